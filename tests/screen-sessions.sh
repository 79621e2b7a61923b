#!/bin/bash
# A stored conversation on the screen and in lines: what was said is there, what
# cannot be gone on with is told. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

args='--resume 7'
begin 80 24
wait_for 'fake q8, on cpu script|fake q8  cpu'
must '^ you '
must '│ An old question\?'
must '▸ thought for -, 5 tokens'
must '│ An old answer\.'
must 'interrupted'
must 'resumed; /new starts another conversation'
say hello
wait_for 'got 5 bytes, 1 lines'
must '│ An old answer\.'
key C-d
wait_for '^rc=0'
must '^quasar --resume 7 goes on with this conversation'
result 'a conversation is gone on with, and how to do so again is told'

args='--resume 8'
begin 80 24
wait_for 'conversation 8 is open in another quasar \(process 1\)'
must 'a line that was recovered'
must_not 'An old'
say hello
wait_for 'got 5 bytes, 1 lines'
key C-d
wait_for '^rc=0'
must_not '^quasar --resume'
result 'one that another process has open: a new one, and a line'

args='--resume 9'
shell 80 24
program
wait_for '^rc=1'
must '^quasar: conversation 9 is open in another quasar'
result 'one that was asked for by name: status 1'

args=
begin 80 24
say hello
wait_for 'got 5 bytes'
key F4
wait_for '^ conversations: '
must '^ > locked away +2 turns  2 min ago  text only  pinned'
must '^   An old question\? +1 turn  3 days ago  state saved, 4\.0 K'
must '^   ├ main +1 turn \*'
must '^   └ main~2: Another way\? +1 turn$'
must '^ disk 38 G of 186 G'
must '^ text 191 M  state 38 G'
must '2 min ago  text only  pinned  elsewhere'
must '^ ! bad ␛\[2J title +recovered, the last answer cut at 12 tokens'
key Enter
wait_for 'conversation 8 is open in another quasar \(process 1\): the same key again'
key Up
key Enter
wait_for 'conversation 8 is open in another quasar \(process 1\): the same key again'
key Enter
wait_for '│ An old answer\.'
say /new
wait_for 'a new conversation'
say hello
wait_for 'got 5 bytes'
text /sessions
key Enter
wait_for '^ conversations: '
text old
wait_for '^ > An old question'
must_not 'locked away'
key Enter
wait_for '│ An old answer\.'
must_not 'got 5 bytes'
must 'resumed; F4 goes to another conversation'
say 'count it'
wait_for '2 messages were before'
key F4
wait_for '^ conversations: '
key Down
wait_for '^ > An old'
key Enter
wait_for 'that is the conversation on the screen'
key F4
wait_for '^ conversations: '
text nozthing
wait_for '^ conversations: nozthing  ?no title and no text of 3 conversations has it'
key Enter
wait_for '── idle'
key C-d
wait_for '^rc=0'
must '^quasar --resume 7'
result 'the list: choose, narrow, go on, refuse'

begin 80 24
key F4
wait_for '^ conversations: '
key Down
key Down
key Down
wait_for '^ > └ main~2'
key Enter
wait_for '│ The other answer\.'
key F4
wait_for '^ conversations: '
must '^   An old question\? .*  \*$'
key Down
key M-r
wait_for '^ new name: .'
must '^ ?Enter gives the name  Esc leaves it as it is'
must_not 'Alt-Enter beside'
key C-u
wait_for '^ new name: *$'
text taken
key Enter
wait_for 'is named "taken" already'
must_not '! [0-9]+ error'
key M-r
key C-u
text fine
wait_for '^ new name: fine'
key Enter
wait_for 'it is called fine now'
key M-p
wait_for 'pinned: its saved state goes last'
key M-f
wait_for 'the same key again drops'
key M-f
wait_for 'its saved state is gone, 4.1K bytes'
key Escape
wait_not '^ conversations: '
key C-d
wait_for '^rc=0'

# ---- words in the texts ----
begin 80 24
say hello
wait_for 'got 5 bytes'
key F4
wait_for '^ conversations:  type to find titles, and words in the texts'
text answer
wait_for '^ conversations: answer  ?2 places in texts'
must '^ > An old question\? '
must '^   ├ model: The other answer\.'
must '^   └ model: An old answer\. +and 5 more'
t capture-pane -pe | grep -Eq $'The other .*\e\\[([0-9;]*;)?7[0-9;]*m(\e\\[[0-9;]*m)*answer' || wrong 'the word is not marked'
key Enter
wait_for '│ The other answer\.'
wait_for '^ find: answer +1/1 +n N step'
must '\[main~2: Another way\?\]'
key Escape
wait_for 'Enter send'
must_not '^ find:'
key F4
wait_for '^ conversations: '
text answer
wait_for 'An old answer\. +and 5 more'
key Down
key Down
wait_for '^ > └ model: An old answer'
key Enter
wait_for '│ An old answer\.'
wait_for '^ find: answer +1/1 '
must '\[main\]'
key Escape
# the place is in the conversation on the screen: the search is set, nothing is left
say hello
wait_for 'got 5 bytes'
say '/sessions old' /sessions
wait_for '^ > An old question'
wait_for '^   └ you: An old question\?'
must '^   ├ main'
key Down
key Down
key Down
wait_for '^ > └ you: An old'
key Enter
wait_for '^ find: old +1/2 '
must '│ An old question\?'
must 'got 5 bytes'
key N
wait_for '^ find: old +2/2 '
key Escape
wait_for 'Enter send'
# what is found cannot paint; where it is cannot be gone to, which is told
key F4
wait_for '^ conversations: '
text hostile
wait_for '^   └ you: a ␛\[31m ␇ red<RLO> hostile � text hostile'
must '^!? ?>?!? ?bad ␛\[2J title|^ >! bad'
key Down
key Enter
wait_for 'conversation 6 has no turn 9'
key C-u
text broken
wait_for 'the catalogue cannot be read'
must 'no such title; the texts cannot be searched'
key C-c
wait_not '^ conversations: '
# from the search of the transcript to that of all
key C-s
text 'answer'
wait_for '^ find: answer +1/1 |^ find: answer'
key F4
wait_for '^ conversations: answer  ?2 places in texts'
key Escape
wait_not '^ conversations: '
key C-s
text nozthing
wait_for 'nothing found  F4 looks in every conversation'
key Escape
wait_for '── idle'
size 60 16
key F4
text answer
wait_for '^   └ model: An old answer\. +and 5 more'
size 200 60
wait_for '^   └ model: An old answer\. +│'
key Escape
wait_for '^ SESSIONS  F4 chooses'
wait_not 'model: An old answer'
key C-d
wait_for '^rc=0'
result 'words in the texts: marked, opened where they are, on their branch'

begin 80 24 NO_COLOR=1 LC_ALL=C
key F4
wait_for '^ conversations: '
text answer
wait_for '^   `- model: An old answer\. +and 5 more'
key Escape
key C-d
wait_for '^rc=0'
result 'words in the texts without colour, in ASCII'

begin 200 60
wait_for '^ SESSIONS  F4 chooses'
must '^   locked away .*│'
key F4
wait_for '^ conversations:  type to find'
text another
wait_for '^ > An old question'
key M-Enter
wait_for '\[2\] An old question\?  \[main\]'
key C-x
key o
key F4
wait_for '^ conversations:'
key Down
key Enter
wait_for '▸\[2\]'
key C-d
wait_for '^rc=0'
result 'a tree of branches, names, pins, states; docked; in another pane'

# ---- what cannot be saved ----
args=
full=$tmp/full
begin 80 24 FAKE_FULL="$full"
touch "$full"
say hello
wait_for 'got 5 bytes'
wait_for 'not saved'
say /new
wait_for 'this conversation is not saved: the disk is full; /new again'
must 'got 5 bytes'
key F4
wait_for '^ conversations: '
key Down
wait_for '^ > An old'
key Enter
wait_for 'is not saved: the disk is full; choosing that one again'
must 'got 5 bytes'
say /new
wait_for 'this conversation is not saved: the disk is full; /new again'
must 'got 5 bytes'
say /new
wait_for 'a new conversation'
must_not 'got 5 bytes'
say hello
wait_for 'got 5 bytes'
wait_for 'not saved'
rm "$full"
say /new
wait_for 'a new conversation'
say hello
wait_for 'got 5 bytes'
touch "$full"
say again
wait_for 'not saved'
key F4
wait_for '^ conversations: '
key Down
wait_for '^ > An old'
key Enter
wait_for 'choosing that one again'
key F4
wait_for '^ conversations: '
key Down
wait_for '^ > An old'
key Enter
wait_for '│ An old answer'
say again
wait_for 'not saved'
key C-d
wait_for '^rc=1'
must '^quasar: the conversation is not saved: the disk is full'
result 'what cannot be saved is not left without a word'

args='--plain --resume 7'
shell 80 24
program
wait_for 'Resumed conversation 7, 2 messages\.'
must '^Model: An old answer\.'
wait_for '^You:'
result 'in lines'

finish
