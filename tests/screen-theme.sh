#!/bin/bash
# Colours: of code, of the themes, none with NO_COLOR or in mono; the terminal's
# background is asked for only to choose. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
colored() { t capture-pane -pe | grep -Eq -- "$1"; }

for theme in default light dark mono; do
    args="--theme $theme"
    shell 100 40 TERM=tmux-256color
    program
    wait_for '── idle'
    say 'md please'
    wait_for 'See the manual'
    case $theme in
    default) want=$'\e\\[([0-9;]*;)?35m' ;;
    light) want=$'\e\\[([0-9;]*;)?38;5;91m' ;;
    dark) want=$'\e\\[([0-9;]*;)?38;5;141m' ;;
    mono) want= ;;
    esac
    if [ -n "$want" ]; then
        wait_until colored "${want}static"
    elif t capture-pane -pe | grep -Eq $'\e\\[([0-9;]*;)?(3[0-7]|38;5;[0-9]+)m'; then
        wrong 'a colour in mono'
    fi
    if t capture-pane -pe | grep -Eq $'\e\\[([0-9;]*;)?(4[0-7]|48;5;[0-9]+)m'; then
        wrong 'a background is painted'
    fi
    key C-d
    wait_for 'rc=0'
    result "theme $theme"
done

args='--theme dark'
shell 100 40 NO_COLOR=1
program
wait_for '── idle'
say 'md please'
wait_for 'See the manual'
if t capture-pane -pe | grep -Eq $'\e\\[([0-9;]*;)?(3[0-7]|38;5;[0-9]+)m'; then
    wrong 'a colour with NO_COLOR'
fi
key C-d
wait_for 'rc=0'
result 'NO_COLOR wins over a theme'

# tmux answers with its own colours once it knows them; either way it goes on
args='--theme auto'
begin 100 40
say hello
wait_for 'got 5 bytes'
must_not 'rgb:'
key C-d
wait_for 'rc=0'
whole
result 'auto asks, and an answer is no text'
finish
