#!/bin/bash
# The screen in a private terminal (a tmux server of its own): what is drawn,
# what keys do, and that the terminal is whole again after every way out. The
# conversation is the scripted one of tests/fake; what is waited for is the
# screen's content, never time. TAP.
build=${QUASAR_BUILDDIR:-.}
fake=$build/tests/fake_quasar
if ! command -v tmux >/dev/null; then
    printf '1..1\nok 1 # SKIP tmux is missing\n'
    exit 0
fi
tmp=$(mktemp -d)
sock=quasar-screen-$$
export LC_ALL=C.UTF-8 HOME=$tmp TMUX='' FAKE_HISTORY=$tmp/history SHELL=/bin/bash
# curses keeps its tables; reports of other kinds go to a file
export ASAN_OPTIONS=detect_leaks=0:log_path=$tmp/asan UBSAN_OPTIONS=log_path=$tmp/asan
unset NO_COLOR ACCESSIBLE VISUAL EDITOR
t() { tmux -L "$sock" -f /dev/null -u "$@"; }
trap 't kill-server 2>/dev/null; rm -rf "$tmp"' EXIT
cat >"$tmp/rc" <<'RC'
PS1='shell> '
RC

n=0
bad=
result() { # result NAME: by $bad, which it clears
    n=$((n + 1))
    if [ -z "$bad" ]; then echo "ok $n - $1"; else
        printf '%s\n' "$bad" | sed 's/^/# /'
        echo "not ok $n - $1"
    fi
    bad=
}
wrong() {
    [ -n "$bad" ] || bad="$1
$(t capture-pane -p)"
}

screen() { t capture-pane -p; }
# wait_for REGEX [FLAGS]: until the screen shows it within 20 s
wait_for() {
    local i
    for ((i = 0; i < 700; i++)); do
        if screen | grep -Eq -- "$1"; then return 0; fi
        sleep 0.02
    done
    wrong "never on the screen: $1"
    return 1
}
wait_not() {
    local i
    for ((i = 0; i < 700; i++)); do
        if ! screen | grep -Eq -- "$1"; then return 0; fi
        sleep 0.02
    done
    wrong "still on the screen: $1"
    return 1
}
wait_until() { # wait_until COMMAND...
    local i
    for ((i = 0; i < 700; i++)); do
        if "$@"; then return 0; fi
        sleep 0.02
    done
    wrong "never true: $*"
    return 1
}
must() { screen | grep -Eq -- "$1" || wrong "not on the screen: $1"; }
must_not() { if screen | grep -Eq -- "$1"; then wrong "on the screen: $1"; fi; }
key() { t send-keys "$@"; }
text() { t send-keys -l "$1"; }
say() { text "$1" && wait_for "^ > .*${2:-$1}" && key Enter; }
size() { t resize-window -x "$1" -y "$2"; }
alternate() { [ "$(t display-message -p '#{alternate_on}')" = "$1" ]; }

# A shell in a window of the given size, and in it the program.
shell() { # shell WIDTH HEIGHT [NAME=VALUE ...]
    local w=$1 h=$2
    shift 2
    t kill-server 2>/dev/null
    t new-session -d -x "$w" -y "$h" env "$@" bash --noprofile --rcfile "$tmp/rc" -i
    t set-option -g window-size manual >/dev/null
    t set-option -g default-size "${w}x$h" >/dev/null
    size "$w" "$h"
    wait_for '^shell>'
}
program() {
    text "$* $fake $args; echo rc=\$?"
    key Enter
}
begin() { # begin WIDTH HEIGHT [NAME=VALUE ...]
    shell "$@"
    program
    wait_for '── idle|-- idle'
}
pid() { pgrep -n -f "$fake" | head -1; }
whole() { # the terminal is as the shell left it
    wait_until alternate 0
    key C-l
    text 'stty -a | grep -c -- " icanon.* echo " ; echo modes'
    key Enter
    wait_for '^modes'
    screen | grep -qx '[12]' || wrong 'the line discipline is not sane'
}
args=

# ---- a conversation ----
begin 80 24
wait_for 'fake q8, on cpu script'
must ' quasar +fake q8  cpu script  F1 help'
must '^ ctx 0/4.1K .* 0%   - t/s'
must 'Enter +send the message'
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
result 'Esc stops the answer and keeps the draft'

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
wait_for 'more rows'
a=$(screen | sed -n 2,5p)
c=$(screen | grep -o '[0-9]* more rows')
wait_until eval '[ "$(screen | grep -o "[0-9]* more rows")" != "$c" ]'
[ "$(screen | sed -n 2,5p)" = "$a" ] || wrong "the rows moved"
key C-End
key Escape
wait_for '│ stopped'
result 'rows being read do not move'

# ---- commands, help, history ----
text /
wait_for '/export +write the conversation'
text 'foo'
wait_for '^ > /foo'
key Enter
wait_for 'no command /foo'
must '^ > /foo'
key C-u
say '/set temp 0.5'
wait_for 'temp: 0.5, from the next message on'
say '/set nonsense 1'
wait_for 'there is no setting "nonsense"'
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
key PageDown
wait_for 'In the transcript|Anywhere'
key Escape
wait_not 'Esc closes'
result 'help'

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
cat >"$tmp/editor" <<'ED'
#!/bin/sh
printf 'from the editor\n' >>"$1"
ED
chmod +x "$tmp/editor"
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

# ---- sizes ----
say 'md please'
wait_for 'See the manual'
size 40 10
wait_for '^── idle ─+$'
wait_for '^ > *$'
[ "$(screen | wc -l)" -le 10 ] || wrong 'more than ten rows'
must 'example.org'
size 200 60
wait_for '│ tab  │     8 │ up to the next stop'
must '^ │ three$'
must '^── idle ─{150,}'
size 30 8
wait_for '40x10 needed, now 30x8'
size 1 1
size 2 3
size 80 24
wait_for 'See the manual'
wait_for '^── idle ─+$'
result 'resizing'

steps=${QUASAR_LONG:+10000}
awk -v n="${steps:-200}" 'BEGIN { s = 12345; for (i = 0; i < n; i++) { s = (s * 1103515245 + 12345) % 2147483648; w = 1 + int(s / 65536) % 220; s = (s * 1103515245 + 12345) % 2147483648; h = 1 + int(s / 65536) % 70; print "resize-window -x " w " -y " h } }' >"$tmp/storm"
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

t kill-server
t new-session -d -x 1 -y 24 "$fake"
t set-option -g window-size manual >/dev/null
wait_until [ -n "$(pid)" ]
size 80 24
wait_for 'fake q8'
result 'one column'

# ---- line mode ----
shell 80 24 TERM=dumb
t pipe-pane -o "cat >$tmp/raw"
args=--plain
program
args=
wait_for '^You: $'
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

for f in "$tmp"/asan*; do
    [ -e "$f" ] && bad=$(head -30 "$f")
done
result 'no sanitizer report'
echo "1..$n"
