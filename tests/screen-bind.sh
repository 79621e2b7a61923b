#!/bin/bash
# Keys that were bound anew: what they do, where they show, what is said of
# those that cannot be. And ~/.editrc. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

args='--bind find=^T --bind transcript.fold=o --bind export=F6 --bind nothing=^F --bind history=^S'
shell 100 30
program
wait_for '── idle'
wait_for 'settings:7: there is no action "nothing"'
must_not 'history, no more find' # find has a line of its own
say think
wait_for '▸ thought for'
key C-t
wait_for '^ ?find'
key Escape
wait_for 'Enter send'
key C-s
wait_for '^ history:'
key Escape
wait_not '^ history:'
key Tab
wait_for 'Esc types'
key z
must_not 'The user wants'
key o
wait_for 'The user wants a thought'
key Escape
wait_for 'Enter send'
key F6
wait_for '^ > /export$'
key C-u
key F1
wait_for '\^S +search earlier prompts'
key PageDown
wait_for '\^T +search the transcript'
key Escape
wait_not 'Esc closes'
key M-x
text 'find'
wait_for '> find .*\^T$'
key Escape
wait_not 'actions:'
key C-d
wait_for 'rc=0'
result 'keys of the settings: pressed, shown in help and palette, complained of'

# what is bound is what is shown: welcome, title, hints, lists
args='--bind send=F5 --bind newline=F6 --bind help=^T --bind sessions=F7 --bind sessions.back=^Y --bind sessions.rename-it=^N --bind quit-if-empty=none --bind escape=^O --bind transcript.back=w --bind transcript.copy-message=u --bind bottom=F8 --bind unqueue=^P'
begin 120 30
must 'F5 +send the message'
must 'F6 +new line'
must '\^T +every key'
must 'F7 +go on with an earlier'
must '\^T help *$'
must '^ F5 send  F6 new line  / commands'
must_not '\^D quit'
text 'lines 200'
key F5
wait_for 'line 200 of 200'
key PageUp
wait_for 'F8 follows'
key F8
wait_for '\^O \^O earlier messages'
key Tab
wait_for 'w types'
must 'u copy'
key w
wait_for 'F5 send'
key F7
wait_for '\^N rename'
must '\^Y closes'
key C-y
wait_for 'F5 send'
text 'forever'
key F5
wait_for '\^O stop'
text 'later'
key F5
wait_for '\^P edits it'
key C-o
wait_for 'stopped'
result 'hints, the welcome and lists show the keys that were bound'

printf 'quasar:bind ^T ed-move-to-beg\n' >"$tmp/.editrc"
args=
begin 100 30
text abc
key C-t
text X
wait_for '^ > Xabc'
key C-c
wait_for '^ > *$'
say /vi
wait_for 'vi keys'
text abc
key Escape
sleep 0.1
text 0
text iY
wait_for '^ > Yabc'
key C-c
wait_for '^ > *$'
say '/set editor emacs' '/set editor'
wait_for 'Emacs keys'
rm "$tmp/.editrc"
key C-d
wait_for 'rc=0'
whole
result "the line editor's own keys from ~/.editrc, vi and back"
finish
