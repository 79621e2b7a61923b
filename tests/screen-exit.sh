#!/bin/bash
# Every way out leaves the terminal whole; other terminals, no colour, ASCII,
# one column, line mode. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

for sig in TERM HUP; do
    begin 80 24
    say hello
    wait_for 'got 5 bytes'
    kill -"$sig" "$(pid)"
    wait_for '^rc=(143|129)'
    whole
done
begin 80 24
say forever
wait_for word5
kill -SEGV "$(pid)"
wait_for '^rc='
whole
result 'signals leave the terminal whole'

begin 80 24
kill -KILL "$(pid)"
wait_for 'Killed|rc=137'
text " $fake --reset-terminal"
key Enter
whole
result 'after kill -9: --reset-terminal'

shell 80 24
program FAKE_LOAD=fail
wait_for '^quasar: models/none.qsr: there is no such file'
wait_for '^rc=1'
whole
result 'a model that cannot be loaded'

mkfifo "$tmp/fifo"
begin 80 24 "FAKE_HISTORY=$tmp/fifo"
wait_for 'fifo is not a regular file'
say hello
wait_for 'got 5 bytes'
key Up
wait_for '^ > hello'
result 'a pipe in the place of the history'

shell 80 24 FAKE_HISTORY=/dev/null
program 'ulimit -f 0; trap "" XFSZ;'
wait_for '── idle'
say hello
wait_for 'got 5 bytes'
for i in 1 2; do
    say "/export md $tmp/full.md" '/export md'
    wait_for 'cannot write .*full.md: File too large'
    key C-l
    [ ! -e "$tmp/full.md" ] || wrong 'an empty file is left'
    say "hello $i"
    wait_not 'full.md'
done
result 'an export that does not fit leaves nothing'

shell 80 24
program FAKE_LOAD=slow
wait_for 'loading the model; you can type already'
must 'ctx -'
say early
wait_for 'got 5 bytes'
key C-c
wait_for 'again quits'
key C-c
wait_for '^rc=0'
result 'typing while the model loads; ^C twice leaves'

cat >"$tmp/editor" <<'ED'
#!/bin/sh
printf 'from the editor\n' >>"$1"
ED
chmod +x "$tmp/editor"
shell 80 24
program "VISUAL=$tmp/editor"
wait_for '── idle'
text 'draft '
wait_for '> draft'
key C-g
wait_for 'draft from the editor'
must '── idle'
key C-u
key C-d
wait_for '^rc=0'
whole
result 'the editor'

args=--vi
begin 80 24
text 'one two three'
wait_for 'one two three'
key Escape
text '0dw'
wait_for '^ > two three$'
text 'ia '
wait_for '^ > a two three$'
key Enter
wait_for 'got 11 bytes'
args=
result 'vi keys'

# ---- other terminals ----
begin 80 24 NO_COLOR=1
say 'md please'
wait_for 'See the manual'
if t capture-pane -pe | grep -q $'\033\\[[0-9;]*3[0-7]'; then wrong 'colour in spite of NO_COLOR'; fi
t capture-pane -pe | grep -q $'\033\\[[0-9;]*1m' || wrong 'no bold'
begin 80 24 TERM=tmux-256color
say 'md please'
wait_for 'See the manual'
t capture-pane -pe | grep -q $'\033\\[[0-9;]*3[0-7]' || wrong 'no colour'
result 'NO_COLOR'

ascii_only() { if screen | LC_ALL=C grep -q '[^ -~]'; then wrong 'not ASCII'; fi; }
args=--ascii
begin 80 24
say 'lines 3'
wait_for '^ \| line 3 of 3'
must '^-- idle -+$'
must '\[-+\] 0%'
ascii_only
args=
begin 80 24 LC_ALL=C
say 'md please'
wait_for 'See the manual'
must '\+ c -+\+'
ascii_only
result 'ASCII'

for term in screen vt100 xterm linux; do
    begin 80 24 TERM=$term
    say 'md please'
    wait_for 'See the manual'
    say hello
    wait_for 'got 5 bytes'
    key C-d
    wait_for '^rc=0'
    whole
done
result 'TERM of other kinds'

fresh
t new-session -d -x 1 -y 24 "$fake"
t set-option -g window-size manual >/dev/null
size 80 24
wait_for 'fake q8'
result 'one column'

# ---- line mode ----
shell 80 24 TERM=dumb
t pipe-pane -o "cat >$tmp/raw"
args=--plain
program
args=
wait_for '^You: ?$'
text hello
key Enter
wait_for '^Model: got 5 bytes, 1 lines'
text forever
key Enter
wait_for 'word20 '
key C-c
wait_for '^\(stopped\)'
text '/status'
key Enter
wait_for 'fake q8 on cpu script. Context'
text 'two\'
key Enter
text 'lines'
key Enter
wait_for 'got 9 bytes, 2 lines'
text hostile
key Enter
wait_for '␛\[2J'
key C-d
wait_for '^rc=0'
t pipe-pane
sed -n '/Loading the model/,/^rc=/p' "$tmp/raw" | grep -q $'[\033\b]' && wrong 'control sequences in line mode'
grep -q 'Loading the model' "$tmp/raw" || wrong 'nothing was recorded'
result 'line mode'

# Only answers go into a file; the talk is on the terminal.
args="--plain >$tmp/answers"
program
args=
wait_for '^You: ?$'
text hello
key Enter
wait_until grep -q '^got 5 bytes' "$tmp/answers"
key C-d
wait_for '^rc=0'
[ "$(wc -l <"$tmp/answers")" = 1 ] || wrong "not only the answer: $(cat "$tmp/answers")"
result 'standard output is a file'

# ---- the program itself, on the demo model ----
real=${QUASAR_BIN:?} model=${QUASAR_SRCDIR:-.}/models/demo.qsr
shell 100 30 XDG_STATE_HOME="$tmp/state" XDG_CONFIG_HOME="$tmp/config"
text "$real $model; echo rc=\$?"
key Enter
wait_for 'demo q8, on cpu'
say 'Say hello.'
wait_for '^ │ [A-Z].*[a-z]'
wait_for '^ ctx [1-9][0-9]*/'
wait_for '── idle'
must '^ model  [0-9][0-9]:[0-9][0-9]'
say /new
wait_for '^ ctx 0/[0-9.]+K .* 0% .* - t/s$'
say 'Say hello.'
wait_for '^ │ [A-Z].*[a-z]'
wait_for '── idle'
text '/quit'
key Enter
wait_for '^rc=0'
whole
text "TERM=dumb $real $model; echo rc=\$?"
key Enter
wait_for '^You: ?$'
text 'Say hello.'
key Enter
wait_for '^Model: [A-Z]'
key C-d
wait_for '^rc=0'
result 'the demo model answers, on the screen and in lines'

# The answer has ended and is on the disk; while one is written "saved" tells of what came before it.
settled() { screen | grep -q '── idle' && screen | grep -Eq '^ ctx .* saved' && ! screen | grep -q 'not saved'; }

if command -v prlimit >/dev/null; then
    shell 100 30 XDG_STATE_HOME="$tmp/filled" XDG_CONFIG_HOME="$tmp/config"
    text "$real $model --think off; echo rc=\$?"
    key Enter
    wait_for 'demo q8, on cpu'
    say 'Say hello.'
    wait_until settled
    prlimit --pid "$(pid)" --fsize=1024:
    say 'Say more.'
    wait_for '^ ctx .* not saved'
    wait_for '── idle'
    say /new
    wait_for 'this conversation is not saved: .*'
    must 'Say more'
    key C-d
    wait_for '^rc=1'
    t capture-pane -pJ | grep -q '^quasar: the end of conversation 1 is not saved: .' || wrong 'not told what is lost'
    whole
    shell 100 30 XDG_STATE_HOME="$tmp/filled" XDG_CONFIG_HOME="$tmp/config"
    text "TERM=dumb $real $model --think off; echo rc=\$?"
    key Enter
    wait_for '^You: ?$'
    prlimit --pid "$(pid)" --fsize=1024:
    text 'Say hello.'
    key Enter
    wait_for 'You: Say hello'
    wait_for '^You: ?$'
    text /new
    key Enter
    wait_for '^(You: )?This conversation is not saved: '
    key C-d
    wait_for '^rc=1'
    must '^quasar: the .*conversation.* is not saved: '
    result 'leaving what cannot be saved: one line, and status 1'
else
    n=$((n + 1))
    echo "ok $n - leaving what cannot be saved: one line, and status 1 # SKIP prlimit is missing"
fi

got=$(echo 'Say hello.' | "$real" "$model" 2>/dev/null)
[ -n "$got" ] || bad='no answer to a prompt on standard input'
"$real" no-such-command 2>"$tmp/err"
[ $? -eq 2 ] && grep -q 'no command and no model "no-such-command"' "$tmp/err" ||
    bad="an unknown word: $(cat "$tmp/err")"
echo hello | "$real" "$tmp" 2>"$tmp/err"
[ $? -eq 1 ] &&
    grep -q 'is a folder, not a model file' "$tmp/err" || bad="a folder: $(cat "$tmp/err")"
"$real" --keys | grep -q '\^C .*stop the answer' || bad='--keys does not list ^C'
result 'a prompt on standard input; an unknown word; --keys'

finish
