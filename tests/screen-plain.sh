#!/bin/bash
# Line mode as a reader hears it: a transcript of the commands of the table, with
# no control sequence in it. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
cd "$tmp" || exit 1
printf 'int x;\n' >lexer.c
line() { # line TEXT REGEX: says TEXT, and waits for what comes
    text "$1"
    key Enter
    wait_for "$2"
}

shell 100 50 TERM=dumb
t pipe-pane -o "cat >$tmp/raw"
args=--plain
program
args=
wait_for '^You: ?$'
line /help '^/quit: leave$'
line /help '^/think on.off.default.budget N: '
line '/think show' 'Thoughts do not fold in line mode'
must '^/edit \[N\]: edit the question and ask it anew$'
must '^/status: the model, the context'
line /palette 'There is no such command'
line /hlep 'did you mean /help\?'
line '/theme dark' 'That command is of the screen'
line /retry 'Nothing was asked yet'
line hello '^Model: got 5 bytes, 1 lines'
line 'lines 3' '^line 3 of 3'
result 'what there is, and what there is not'

line '/find LINE 2' '^2, model: line 2 of 3$'
line '/find nothing' 'Nothing of the conversation has "nothing"'
line /status '^fake q8 on cpu script. Context .* Last answer: [0-9]+ tokens'
line '/edit 1' '^The question was: hello$'
wait_for '^Ask it anew .*: ?$'
line '' '^Nothing was changed.$'
line '/edit 2' '^The question was: lines 3$'
line count '^Model: 2 messages were before this one'
line /undo 'are taken back'
line count '^Model: 2 messages were before this one'
line '/branch 1' 'What you say next follows on that answer'
line '/edit 9' 'There is no such question'
line /retry '^Model: got 5 bytes, 1 lines, sum 05e918d2'
line '/attach lexer.c' '^lexer.c goes with the next message.'
line look '^Model: got 25 bytes, 3 lines'
line '/attach none' 'none: No such file'
result 'found, edited, taken back, branched, asked again, with a file'

line "/export md $tmp/out.md" 'Wrote 4 messages'
grep -q '^## Model$' "$tmp/out.md" || wrong 'the export is wrong'
line '/compact' '^What you say next goes on from this summary alone'
line count '^Model: got [0-9]+ bytes' # the summary stands before it
line /sessions '^7  An old question\?, 1 turn$'
must '^6  bad ␛\[2J title$'
line '/resume 8' 'conversation 8 is open in another'
line '/resume 7' '^Resumed conversation 7, 2 messages'
must '^Model: An old answer.$'
line '/rename anew' '^Named.$'
line /pin 'Pinned: its'
line /forget 'what was said stays'
line /new '^A new conversation.$'
line '/think off' '^Set, from the next'
line '//slash' '^Model: got 6 bytes'
line /quit '^rc=0'
t pipe-pane
sed -n '/Loading the model/,/^rc=/p' "$tmp/raw" | grep -q $'[\033\b]' && wrong 'control sequences in line mode'
grep -q 'Loading the model' "$tmp/raw" || wrong 'nothing was recorded'
result 'exported, summed up, resumed; no control sequence anywhere'
finish
