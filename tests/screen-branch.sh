#!/bin/bash
# Editing a question, asking it again, going on from an earlier answer. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

begin 80 40
text /retry
key Enter
wait_for 'nothing was asked yet'
say 'count one'
wait_for '0 messages were before'
say 'count two'
wait_for '2 messages were before'
say 'count three'
wait_for '4 messages were before'
key Escape Escape
wait_for 'e edit'
key Up
key Up
key e
wait_for 'editing an earlier message  Enter sends it as a new branch'
wait_for '^ > count two'
must '4 messages were before'
key Escape
wait_for 'nothing was changed'
wait_for '── idle'
must '4 messages were before'
must_not '^ > count two'
result 'what is edited is shown first; Esc gives it up'

awk 'BEGIN { for (i = 1; i <= 100; i++) printf "pasted line %d\n", i }' >"$tmp/paste"
text 'my draft: '
wait_for '^ > my draft:'
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^ > my draft: \[paste 1: 100 lines'
key Tab
wait_for 'e edit'
key Up
key Up
key Up
key e
wait_for '^ > count two'
text 'x'
wait_for '^ > count twox'
key Escape
wait_for 'nothing was changed'
wait_for '^ > my draft: \[paste 1: 100 lines'
must '── idle'
key Tab
wait_for 'e edit'
key Up
key Up
key b
wait_for 'going on from an earlier answer'
text 'and more'
wait_for 'KB\]and more'
key Escape
wait_for 'nothing was changed'
wait_not 'and more'
must '^ > my draft: \[paste 1: 100 lines'
key C-c
wait_for 'the draft is in the history'
wait_not '^ > my'
result 'the draft from before comes back, whole'

say '/edit 2' '/edit 2'
wait_for '^ > count two'
text ' again'
wait_for 'two again'
key Enter
wait_for 'what followed here is gone: nothing is stored'
wait_for '│ count two again'
must_not 'count three'
must_not '4 messages were before'
[ "$(screen | grep -c '2 messages were before')" = 1 ] || wrong 'not one answer'
result '/edit: the branch begins after what was before'

say /retry
wait_for '2 messages were before'
wait_for '── idle'
say 'count four'
wait_for '4 messages were before'
[ "$(screen | grep -c 'followed here')" = 1 ] || wrong 'notices pile up'
key Tab
wait_for 'e edit'
key Up
key Up
key Up
key b
wait_for 'going on from an earlier answer'
say 'count five'
wait_for '│ count five'
wait_for '── idle'
must_not 'count four'
result 'r again, b on from an answer'

say '/branch 9' '/branch 9'
wait_for 'there is no question 9'
key C-u
say '/edit x' '/edit x'
wait_for 'usage: /edit N'
say forever
wait_for 'word9 '
say /retry
wait_for 'the model is at work'
key Escape
wait_for '│ stopped'
say fail
wait_for 'failed: the engine'
say /retry
wait_for '── idle'
[ "$(screen | grep -c '│ fail$')" = 1 ] || wrong 'a failed question stays when it is asked again'
say 'count six'
wait_for '8 messages were before'
key C-d
wait_for '^rc=0'
result 'refusals; a failed question is no message'

args='--resume 7'
begin 80 24
wait_for 'An old answer'
say /edit
wait_for '^ > An old question'
key C-a
text 'count: '
wait_for '^ > count: An old'
key Enter
wait_for '0 messages were before'
must 'a new branch; what followed here stays stored'
result 'of a stored conversation'

finish
