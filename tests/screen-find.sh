#!/bin/bash
# The search of the transcript: what is typed is found at once, counted, and
# stepped through; the view comes back. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

begin 80 24
key C-s
wait_for 'there is nothing to search yet'
say 'lines 120'
wait_for 'line 120 of 120'
say 'md please'
wait_for 'See the manual'
key C-s
wait_for '^ find:  +type what to look for'
text 'line 1'
wait_for '^ find: line 1 +32/32 '
must 'line 119 of 120'
must_not 'See the manual'
text '7 of'
wait_for '^ find: line 17 of +1/1 '
must '│ line 17 of 120'
key BSpace BSpace BSpace BSpace
wait_for '^ find: line 1 +[0-9]+/32 '
key Escape
wait_for '── idle'
wait_for 'See the manual'
result 'found while it is typed; Esc goes back to the end'

key C-s
text 'line [12]0 '
wait_for '^ find: line \[12\]0 +2/2 '
must '│ line 20 of 120'
key Enter
wait_for 'n N step'
key n
wait_for ' 1/2 '
must '│ line 10 of 120'
key n
wait_for ' 2/2 '
key N
wait_for ' 1/2 '
key Escape
wait_for '── idle'
must 'Enter send'
result 'a regular expression; n and N step around the ends'

say '/find DRIFTS' /find
wait_for 'nothing found'
key Escape
wait_for '── idle'
say '/find drifts' /find
wait_for ' 1/1 '
t capture-pane -pe | grep -Eq $'\e\\[([0-9;]*;)?7[0-9;]*m(\e\\[[0-9;]*m)*drifts' || wrong 'the match is not marked'
key Enter
wait_for 'n N step'
text '/'
wait_for 'type what to look for'
text 'call('
wait_for 'nothing found'
key C-c
wait_for '── idle'
key Escape
wait_for 'Enter send'
result 'smart case, marks, / in the transcript, a pattern that is none'

# what streams below is found too, and the view stays
say forever
wait_for 'word9 '
key C-s
text word2
wait_for '^ find: word2 +[0-9]+/[0-9]+ '
c=$(screen | grep -o '/[0-9]*  ' | head -1)
wait_until eval '[ "$(screen | grep -o "/[0-9]*  " | head -1)" != "$c" ]'
key Escape
wait_for 'Esc stop'
key Escape
wait_for '│ stopped'
result 'in an answer that grows'

begin 40 10 NO_COLOR=1
say 'lines 20'
wait_for 'line 20 of 20'
key C-s
text 'line 1$'
wait_for 'find: line 1\$ +nothing found'
key BSpace
wait_for 'find: line 1 +11/11'
size 20 5
wait_for '40x10!'
size 200 60
wait_for 'find: line 1 +11/11 '
key C-c
wait_for 'idle'
key C-d
wait_for '^rc=0'
result 'small, large, without colour'

finish
