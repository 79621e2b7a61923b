#!/bin/bash
# The mouse, the clipboard and the widths that terminals do not agree on: clicks go where they
# point, Shift is left alone, the modes are undone; copies go to the terminal, a program or a
# file, and what is said of it is true. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

# press X Y [BUTTON]: cells from 1, as xterm tells a click
press() { t send-keys -l "$(printf '\033[<%d;%d;%dM\033[<%d;%d;%dm' "${3:-0}" "$1" "$2" "${3:-0}" "$1" "$2")"; }
row() { screen | grep -n -m1 -E -- "$1" | cut -d: -f1; }
mouse_is() { [ "$(t display-message -p '#{mouse_standard_flag}')" = "$1" ]; }

begin 100 30
say think
wait_for '▸ thought for'
press 20 "$(row 'thought for')"
text x # no mode: the clicks are bytes of a mouse that nobody asked for
wait_for '^ > x'
must '▸ thought for'
key C-c
wait_for '^ > *$'
say '/set mouse on' '/set mouse'
wait_for 'scrolls and clicks'
mouse_is 1 || wrong 'the mode is not on'
press 20 "$(row 'thought for')"
wait_for '▾ thought for'
wait_for 'Esc types'
press 20 "$(row 'thought for')"
wait_for '▸ thought for'
press 20 "$(row 'thought for')" 4
sleep 0.2
must '▸ thought for'
press 10 "$(row '^ >( |$)')"
wait_for 'Enter send'
text 'hello world'
wait_for '^ > hello world'
press 9 "$(row '^ >( |$)')"
text X
wait_for '^ > helloX world'
key C-c
wait_for '^ > *$'
result 'a click folds, focuses, and puts the cursor; Shift is left alone'

key C-x 3
wait_for '2 panes'
wait_for '▸\[2\]'
press 5 5
wait_for '▸\[1\]'
press 90 5
wait_for '▸\[2\]'
key C-x 1
wait_not '2 panes'
say 'lines 5'
wait_for 'line 5 of 5'
key C-r
wait_for '^ history:'
press 10 "$(row '^ +think')"
wait_for '^ > think'
press 10 "$(row '^ > think')"
wait_for '^ > think'
key C-c
wait_for '^ > *$'
key C-d
wait_for 'rc=0'
mouse_is 0 || wrong 'the mode is still on'
result 'a click chooses a pane and an entry of a list; the mode is undone'

for how in C-z quit kill; do
    begin 80 24
    say '/set mouse on' '/set mouse'
    wait_until mouse_is 1
    case $how in
    C-z) key C-z ;;
    quit) key C-d ;;
    kill) kill -SEGV "$(pid)" ;;
    esac
    wait_until mouse_is 0
done
result 'suspended, left or crashed: the mode is undone'

# ---- copies ----
mkdir "$tmp/bin"
for p in wl-copy xclip; do
    printf '#!/bin/sh\nsleep 1\n{ echo "%s $*"; cat; } >"%s/copied.part"\nmv "%s/copied.part" "%s/copied"\n' $p "$tmp" "$tmp" "$tmp" >"$tmp/bin/$p"
    chmod +x "$tmp/bin/$p"
done
copies() { # copies NAME=VALUE PROGRAM ARGS
    rm -f "$tmp/copied"
    begin 100 30 PATH="$tmp/bin:$PATH" SSH_TTY= SSH_CLIENT= SSH_CONNECTION= DISPLAY= WAYLAND_DISPLAY= "$1"
    say 'lines 3'
    wait_for 'line 3 of 3'
    say /copy
    wait_for "sent [0-9]+ bytes to the terminal, and to the clipboard by $2"
    text 'not blocked'
    wait_for '^ > not blocked'
    wait_until test -e "$tmp/copied"
    grep -q "^$2 $3\$" "$tmp/copied" || wrong "it was called as $(head -1 "$tmp/copied")"
    grep -q '^line 3 of 3' "$tmp/copied" || wrong "it was given $(cat "$tmp/copied")"
}
copies WAYLAND_DISPLAY=w wl-copy ''
copies DISPLAY=:1 xclip '-selection clipboard'
begin 100 30 PATH="$tmp/bin:$PATH" SSH_TTY=/dev/pts/1 WAYLAND_DISPLAY=w
say 'lines 3'
wait_for 'line 3 of 3'
say /copy
wait_for 'sent [0-9]+ bytes to the terminal *$'
say 'lines 5000'
wait_for 'line 5000 of 5000'
say /copy
wait_for 'too long for the terminal: [0-9.]+KB written to .*copied.txt'
[ "$(tail -1 "$tmp/.local/state/quasar/copied.txt")" = 'line 5000 of 5000' ] || wrong 'the file is not the answer'
result 'copies: the terminal, the desktop where there is one, a file'

begin 100 30 SSH_TTY=/dev/pts/1
say 'md please'
wait_for 'See the manual'
key Tab
wait_for 'Esc types'
key c
wait_for 'y copies .?'
key y
wait_for 'sent [0-9]+ bytes to the terminal'
one=$(screen | grep -o 'sent [0-9]* bytes')
key c # none any more
wait_not 'y copies'
key y
wait_for 'sent [0-9.]+(B| bytes|KB) to the terminal'
[ "$(screen | grep -o 'sent [0-9]* bytes')" != "$one" ] || wrong 'the whole message is as long as its code'
result 'the code of a message is copied alone'

# ---- widths ----
begin 100 30
say 'md please'
wait_for 'See the manual'
must '│ See'
say '/set ambiguous 2' '/set ambiguous'
wait_for 'take two cells'
wait_for '\| See'
say '/set ambiguous 3' '/set ambiguous'
wait_for 'it must be 1 or 2'
say '/set ambiguous 1' '/set ambiguous'
wait_for '│ See'
say '/set unicode full' '/set unicode'
wait_for 'drawn raw'
result 'widths can be set'
finish
