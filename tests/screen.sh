#!/bin/bash
# The screen of a conversation: what is drawn and what keys do, at several
# sizes, through resizing, suspension and big pastes. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

# ---- a conversation ----
begin 80 24
wait_for 'fake q8, on cpu script'
must ' quasar +fake q8  cpu script  F1 help'
must '^ ctx 0/4.1K .* 0% .* - t/s'
must 'Enter +send the message'
must 'F4 +go on with an earlier conversation'
must '\^D quit  \^S find  Tab transcript$'
result 'start: what runs, what to press'

say hello
wait_for 'got 5 bytes, 1 lines'
must '^ you  [0-9][0-9]:[0-9][0-9]$'
must '^ │ hello$'
must '^ model  [0-9][0-9]:[0-9][0-9]'
must 'saved'
result 'a message and its answer'

say 'md please'
wait_for 'See the manual \(https://example.org/m\)'
must '│ ┌ c ─+┐$'
must '│ │     size_t col = 0; +│$'
must '│ tab  │     8 │ up to the next stop'
must '│ 漢字 │     4 │ two each'
must '│ ▎ quoted once'
must '│    • no globals'
result 'markdown'

say think
wait_for '▸ thought for [0-9.]+ s, [0-9]+ tokens \(z opens\)'
must 'The answer after the thought.'
must_not 'wants a thought'
key Tab
wait_for 'Up Down message'
key z
wait_for '[┊┃] The user wants a thought.'
key z
wait_not 'wants a thought'
key Escape
wait_for 'Enter send'
result 'a thought folds and opens'

say hostile
wait_for '␛]0;owned␇ clear ␛\[2J bidi <RLO>abc c1 <9B>31m bad �� end'
[ "$(t display-message -p '#{pane_title}')" != owned ] || wrong 'the title was changed'
result 'hostile text is shown, not obeyed'

say fail
wait_for 'failed: the engine lost its device'
result 'a failed turn says why'

# ---- interrupting, queueing ----
say forever
wait_for 'word20 '
must 'Esc stop'
must 'decode 100 t/s'
text 'a draft'
wait_for '^ > a draft'
key Escape
wait_for '│ stopped'
must '^ > a draft'
wait_for '── idle'
key C-u
wait_not '> a draft'
result 'Esc stops the answer and keeps the draft'

say wait
wait_for 'prefill 100/100'
key C-c
wait_for '^ stopped'
wait_for '── idle'
result '^C stops a turn that has said nothing yet'

say 'a draft'
wait_for 'got 7 bytes'
text 'a draft'
wait_for '^ > a draft'
key C-c
wait_for 'the draft is in the history'
wait_not '> a draft'
key Up
wait_for '^ > a draft'
key C-u
wait_not '> a draft'
result '^C clears a draft into the history'

say forever
wait_for 'word5 '
say 'then this'
wait_for 'queued 1: "then this" +Alt-Up edits it'
say 'and that'
wait_for 'queued 2: "and that"'
key M-Up
wait_for '^ > and that'
must 'queued 1: "then this"'
key C-c
wait_for 'held 1: "then this"'
must '^ > and that'
wait_for '── idle'
key C-u
wait_not 'and that'
key Enter
wait_for 'got 9 bytes'
wait_not 'held'
result 'queue, take back, stop holds it, Enter sends it'

# ---- scrolling ----
say 'lines 200'
wait_for 'line 200 of 200'
key PageUp
wait_for '↓ [0-9]+ more rows, \^End follows'
must_not 'line 200 of 200'
top=$(screen | sed -n 2p)
say hello
wait_for 'got 5 bytes'
key PageUp
key PageUp
wait_for 'more rows'
key C-Home
wait_for '│ hello'
key C-End
wait_for 'got 5 bytes'
wait_not 'more rows'
[ -n "$top" ] || wrong 'no top row'
result 'scrolling away and back'

# what is read stays in its place while text arrives below
say forever
wait_for 'word10 '
key PageUp
wait_for '[0-9]+ new rows? below, \^End follows'
a=$(screen | sed -n 2,5p)
c=$(screen | grep -o '[0-9]* new row')
wait_until eval '[ "$(screen | grep -o "[0-9]* new row")" != "$c" ]'
[ "$(screen | sed -n 2,5p)" = "$a" ] || wrong "the rows moved"
key C-End
key Escape
wait_for '│ stopped'
result 'rows being read do not move'

# ---- commands, help, history ----
text /ex
wait_for '/export +write md, txt or json'
key C-u
text '/xyzzy'
wait_for '^ > /xyzzy'
key Enter
wait_for 'no command /xyzzy; /help lists them'
must_not 'did you mean'
must '^ > /xyzzy'
key C-u
say /hlep
wait_for 'no command /hlep; did you mean /help'
key C-u
say '/set temp 0.5'
wait_for 'temp: 0.5, from the next message on'
say '/set nonsense 1'
wait_for 'there is no setting "nonsense"'
must '^ max-tokens and effort$'
key C-u
say '/system Be brief.'
wait_for 'system: Be brief.'
say settings
wait_for 'settings: temp=0.5 system=Be brief.'
say "/export md $tmp/out.md" '/export md'
wait_for 'wrote [0-9]+ bytes'
grep -q '^## You$' "$tmp/out.md" && grep -q 'got 5 bytes' "$tmp/out.md" || wrong 'the export is wrong'
say '//slash'
wait_for 'got 6 bytes'
result 'commands'

key F1
wait_for 'While typing'
must '\^R +search earlier prompts'
must_not 'answer the question again'
key PageDown
wait_not 'While typing'
key Escape
wait_not 'Esc closes'
key Tab
wait_for 'Esc types'
key ?
wait_for 'In the transcript'
must 'answer the question again'
must_not 'While typing'
key Escape
key Escape
wait_for 'Enter send'
say /help
wait_for 'While typing'
key PageDown
wait_for 'answer the question again'
key Escape
wait_not 'Esc closes'
result 'help'

text 'one'
wait_for '^ > one'
key F1
wait_for 'While typing'
key End
wait_for '/quit +leave'
key Home
wait_for 'While typing'
key F1
wait_not 'Esc closes'
key F1
wait_for 'While typing'
text re
wait_for '^ > onere'
must_not 'Esc closes'
key C-u
wait_not '^ > one'
key F1
wait_for 'While typing'
key C-d
wait_not 'While typing'
text 'r' # no command here
wait_for '^ > r$'
must_not 'Esc closes'
must '── idle'
key BSpace
key Tab
wait_for 'Esc types'
key F1
wait_for 'In the transcript'
key q
wait_not 'Esc closes'
must 'Esc types'
key '?'
wait_for 'In the transcript'
key Z
wait_not 'Esc closes'
must 'Esc types'
key Escape
wait_for 'Enter send'
result 'a key that is none of the help closes it and goes where the focus was'

key C-r
wait_for 'history: '
text setti
wait_for '> settings'
key Enter
wait_for '^ > settings$'
key C-u
result 'history search'

# ---- editing ----
text 'one'
key M-Enter
text 'two'
wait_for '^   two'
text '\'
wait_for 'two\\'
key Enter
wait_not 'two\\'
text three
wait_for '^   three'
key Enter
wait_for 'got 13 bytes, 3 lines'
result 'lines of a message'

# ---- paste ----
awk 'BEGIN { for (i = 1; i <= 2000; i++) printf "pasted line %d\n", i }' >"$tmp/paste"
sum=$(od -An -v -tu1 "$tmp/paste" | awk '{ for (i = 1; i <= NF; i++) s = (s * 31 + $i) % 4294967296 } END { printf "%08x", s }')
bytes=$(wc -c <"$tmp/paste")
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^ > \[paste 1: 2000 lines, 32 KB\]'
key Enter
wait_for "got $bytes bytes, 2001 lines, sum $sum"
must '│ \[paste 1: 2000 lines, 32 KB\]'
printf 'two\nlines' >"$tmp/paste"
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^   lines'
key Enter
wait_for 'got 9 bytes, 2 lines'
result 'a big paste is a chip, a small one is text; every byte is sent'

head -c 100000 /dev/zero | tr '\0' y >"$tmp/paste"
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^ > \[paste 1: 1 line, 97 KB\]'
key C-c
wait_for 'the draft is in the history'
key Up
wait_for '^ > \[paste 1: 1 line, 97 KB\]'
key Enter
wait_for 'got 100000 bytes'
result 'a draft of any length comes back from the history'

printf 'int x;\nint y' >"$tmp/lexer.c"
say "/attach $tmp/lexer.c" /attach
wait_for '^ > \[file lexer.c, 12 bytes\]'
must 'lexer.c is in the message; Enter sends it'
key Enter
wait_for 'got 27 bytes, 4 lines'
must '│ \[file lexer.c, 12 bytes\]'
say "/attach $tmp/none" /attach
wait_for 'none: '
wait_for '^ > /attach'
key C-u
printf 'a\0b' >"$tmp/binary"
say "/attach $tmp/binary" /attach
wait_for 'is no text'
key C-u
mkfifo "$tmp/fifo"
for f in "$tmp/fifo" /dev/tty; do
    say "/attach $f" /attach
    wait_for "${f##*/} is not a regular file"
    key C-u
done
wait_not '/attach'
result 'a file is a chip with its name'

printf 'second' >"$tmp/b.txt"
text 'look at'
key M-Enter
text "/attach $tmp/lexer.c"
key M-Enter
text "and /attached"
key Enter
wait_for 'lexer.c is in the message; Enter sends it'
wait_for '^   \[file lexer.c, 12 bytes\]'
wait_for '^   and /attached'
key M-Enter
text "/attach $tmp/b.txt"
key Enter
wait_for 'b.txt is in the message'
wait_for '^   \[file b.txt, 6 bytes\]$'
text " /attach $tmp/lexer.c"
key Enter
wait_for '^   \[file b.txt, 6 bytes\] \[file lexer.c, 12 bytes\]$'
key Enter
wait_for 'got 97 bytes'
text "/attach $tmp/b.txt"
key M-Enter
text "/attach $tmp/lexer.c"
key Enter
wait_for '2 files are in the message'
must '^ > \[file b.txt, 6 bytes\]$'
must '^   \[file lexer.c, 12 bytes\]$'
key Enter
wait_for 'got 47 bytes'
result 'several files, each where its line stood'

text "text first /attach $tmp/b.txt"
key Enter
wait_for '/attach works at the beginning of a line'
must '^ > text first /attach'
key C-u
wait_not 'text first'
text 'one'
key M-Enter
text '/new'
key Enter
wait_for '/new works only as the whole message; Enter again sends it as words'
must '^   /new'
key Enter
wait_for 'got 8 bytes, 2 lines'
text 'two'
key M-Enter
text "/attach $tmp/none"
key Enter
wait_for 'none: .*'
must '^   /attach'
key x
key Enter
wait_for 'nonex: .*'
must '^   /attach'
key Enter
wait_for '│ /attach .*nonex'
wait_for '── idle'
result 'a command that does not work where it stands is not sent unasked'

# ---- sizes ----
say 'md please'
wait_for 'See the manual'
size 40 10
wait_for '^ > +idle  F1 help$'
[ "$(screen | wc -l)" -le 10 ] || wrong 'more than ten rows'
must 'example.org'
size 200 60
wait_for '^── idle ─{150,}'
wait_for '│ tab  │     8 │ up to the next stop'
wait_for '│ \[file b.txt, 6 bytes\] +│'
size 30 8
wait_for '40x10 needed, now 30x8'
size 20 5
wait_for '^40x10!$'
size 1 1
size 2 3
size 80 24
wait_for 'See the manual'
wait_for '^── idle ─+$'
result 'resizing'

steps=${QUASAR_LONG:+10000}
awk -v n="${steps:-200}" 'BEGIN { s = 12345; for (i = 0; i < n; i++) { s = (s * 1103515245 + 12345) % 2147483648; w = 1 + int(s / 65536) % 220; s = (s * 1103515245 + 12345) % 2147483648; h = 1 + int(s / 65536) % 70; print "resize-window -x " w " -y " h; if (i % 5 == 4) print "run-shell \"sleep 0.06\"" } }' >"$tmp/storm"
text 'still here'
t source-file "$tmp/storm"
size 80 24
wait_for '^ > still here'
wait_for 'See the manual'
key C-u
wait_not 'still here'
result "a storm of ${steps:-200} sizes"

# ---- suspension, idleness, leaving ----
key C-z
wait_for 'Stopped'
wait_until alternate 0
must_not '── idle'
text 'fg; echo rc=$?'
key Enter
wait_for 'See the manual'
wait_for '── idle'
say hello
wait_for 'got 5 bytes'
result 'suspend and resume'

p=$(pid)
switches() { awk '/^(non)?voluntary/ { s += $2 } END { print s }' "/proc/$p/status"; }
quiet() {
    local a
    a=$(switches)
    sleep 1
    [ "$(switches)" = "$a" ]
}
quiet || quiet || quiet || wrong "it wakes up although nothing happens"
result 'idle means no wake-ups'

key C-c
wait_for '\^C again quits'
key x
wait_for '^ > x'
key BSpace
wait_not '^ > x'
key C-d
wait_for '^rc=0'
must '^got 5 bytes, 1 lines'
whole
result '^D leaves; the last answer stays; the terminal is whole'

finish
