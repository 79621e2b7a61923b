#!/bin/bash
# What is kept of a conversation whatever ends the program, and where it is open: the queue, the
# mark of an answer that was cut off, branches beside each other, copies, names. On the scripted
# engine and the real store. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
fake=${QUASAR_BIN:?}
unset XDG_STATE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
run="--engine script:$tmp/script"

script() { printf 'round 2ms\n' >"$tmp/script" && cat >>"$tmp/script"; }
kill_it() { # as a power cut does
    kill -9 "$(pid)"
    wait_for '^rc=137'
    key C-l
}
again() { # again WIDTH HEIGHT ARGUMENTS
    local w=$1 h=$2
    shift 2
    args="$run $*"
    begin "$w" "$h"
}

script <<'S'
answer /first/
  forever
  repeat 20 said%d\x20
answer
  text Answered.
S
again 100 30
say 'the first question'
wait_for 'said20'
for m in 'then one' 'then two' 'then three'; do
    text "$m"
    wait_for "^ > $m"
    wait_until sh -c 'sleep 1' # longer than a draft is not on the disk
    key Enter
    wait_for "queued [1-3]: \"$m\""
done
key C-x
key q
wait_for 'queue +Enter edits'
key M-Up
wait_for 'queued 2: "then three"'
key d
wait_for 'dropped'
key Escape
wait_until sh -c 'sleep 2.5' # an answer is committed every two seconds
kill_it
result 'a queue of two, and the end of the program'

again 100 30 --resume 1
wait_for 'held 1: "then one"'
must 'held 2: "then two"'
must_not 'then three'
must '2 queued messages were kept here and were not sent: Enter sends, \^X q edits'
must 'recovered 1 conversation, the last answer cut at [0-9]+ tokens'
must 'said20'
must '── idle'
must_not 'Answered'
key C-x
key q
wait_for '^ > then two'
key Enter
wait_for '^ > then two'
text ' and a half'
wait_for '^ > then two and a half'
key C-u
kill_it
again 100 30 --resume 1
wait_for 'held 1: "then one"'
must '1 queued message was kept here and was not sent'
must_not 'held 2'
key Enter
wait_for '│ then one'
wait_for '│ Answered\.'
wait_for '── idle'
key C-d
wait_for '^rc=0'
again 100 30 --resume 1
wait_for '│ Answered\.'
must_not 'held|queued message'
key C-d
wait_for '^rc=0'
result 'it comes back as it was, is not sent by itself, and is gone once it is sent'

# ---- a draft that is written while an answer runs ----
for end in HUP TERM KILL; do
    again 100 30 --start new
    say "the first of $end"
    wait_for 'said20'
    text "meanwhile $end"
    wait_for "^ > meanwhile $end"
    wait_until sh -c 'sleep 2.5'
    kill -"$end" "$(pid)"
    wait_for '^rc='
    key C-l
    again 100 30 -c
    wait_for "^ > meanwhile $end"
    must 'said20'
    key C-u
    wait_not "^ > meanwhile $end"
    key C-d
    wait_for '^rc=0'
    again 100 30 -c
    wait_for 'said20'
    must_not "meanwhile $end"
    key C-d
    wait_for '^rc=0'
done
result 'a draft that is written while an answer runs is there again, whatever ended it'

# ---- what was taken out of a draft, and a command ----
again 100 30 --start new
say 'about drafts' 'about drafts'
wait_for '│ Answered\.'
wait_for '── idle'
text 'SECRET three'
wait_for '^ > SECRET three'
wait_until sh -c 'sleep 1.5'
key C-u
text '/new'
wait_for '^ > /new'
key Enter
wait_for 'a new conversation'
key F4
wait_for '^ conversations: '
key Enter
wait_for '│ about drafts'
wait_for 'ctx [1-9]' # without a key
must_not 'SECRET'
text '/new'
wait_for '^ > /new'
wait_until sh -c 'sleep 1.5'
key Enter
wait_for 'a new conversation'
key F4
wait_for '^ conversations: '
key Enter
wait_for '│ about drafts'
must_not '^ > /new'
text 'stays here'
wait_for '^ > stays here'
key C-d
key C-u
key C-d
wait_for '^rc=0'
again 100 30 -c
wait_for '│ about drafts'
must_not 'stays here|SECRET'
text '/quit'
wait_for '^ > /quit'
wait_until sh -c 'sleep 1.5'
key Enter
wait_for '^rc=0'
again 100 30 -c
wait_for '│ about drafts'
must_not '^ > /quit'
key C-x
key 3
wait_for '\[2\]'
key C-x
key o
text 'kept in a pane'
wait_for 'kept in a pane'
key C-x
key 0
wait_not '\[2\]'
wait_until sh -c 'sleep 0.2'
key F4
wait_for '^ conversations: '
text 'about drafts'
wait_for '^ > about drafts'
key Enter
wait_for '│ about drafts'
wait_for '> kept in a pane'
key C-u
key C-d
wait_for '^rc=0'
result 'a draft is left as it is, also when it was cleared; a command that was run is none'

# ---- the mark of an answer that was cut off ----
again 100 30 --start new
say 'the first of them'
wait_for 'said20'
wait_until sh -c 'sleep 2.5'
kill_it
again 100 30 --start new
wait_for 'recovered 1 conversation'
key F4
wait_for '^ conversations: '
must '^ > ?!? ?the first of them +recovered, the last answer cut at [0-9]+ token'
must '^ >!'
must '^   the first question '
key Enter
wait_for 'said20'
key F4
wait_for '^ conversations: '
must_not 'recovered, the'
key Escape
key C-d
wait_for '^rc=0'
result 'a conversation that was cut off is marked in the list until it is opened'

# ---- two branches of one conversation beside each other ----
again 200 60 --resume 1
wait_for '│ Answered\.'
text '/edit 1'
key Enter
wait_for '^ > the first questi'
key C-u
say 'a second way'
wait_for '\[main~2: a second way\]'
key F4
wait_for '^ > the first questi'
key Down
wait_for '^ > ├ main '
key M-Enter
wait_for '\[2\] the first question  \[main\]'
must '\[1\] the first question  \[main~2: a second way\]'
must '├ main +\[2\] +│'
must '└ a second way +\[1\] +│'
say 'on main'
wait_for '│ on main'
wait_for '\[1\] idle   \[2\] idle'
must '\[2\] the first question  \[main\]'
must '\[1\] the first question  \[main~2: a second way\]'
size 80 24 # the name stays whole where the branch can be shorter
wait_for '\[1\] the first question  \[main~2: a.*\.\.\.\]'
size 200 60
wait_for '\[1\] the first question  \[main~2: a second way\]'
key C-x
key o
wait_for '▸\[1\]'
say 'on the second'
wait_for '│ on the second'
wait_for '\[1\] idle   \[2\] idle'
key F4
wait_for '^ conversations: '
key Down
wait_for '^ > ├ main '
key Enter
wait_for '▸\[2\]'
key C-d
wait_for '^rc=0'
$fake sessions export 1 --format md >"$tmp/main" 2>&1
grep -q 'on the second' "$tmp/main" || wrong "$(cat "$tmp/main")"
result 'another branch opens beside, and both go on; the same one is gone to'

# ---- who waits for whom ----
again 200 60 --start new
say 'the first of the panes'
wait_for 'said20'
key C-x
key 3
wait_for '▸\[2\]'
say 'after it'
wait_for '│ model  [0-9:]+  waiting for slot \(1 ahead\)'
must '\[2\] waiting, 1 ahead'
key C-x
key 3
wait_for '▸\[3\]'
say 'the last'
wait_for '│ model  [0-9:]+  waiting for slot \(2 ahead\)'
must '\[2\] waiting, 1 ahead   \[3\] waiting, 2 ahead'
must 'waiting for slot \(1 ahead\)'
key C-x
key o
wait_for '▸\[1\]'
key Escape
wait_for '│ Answered\..*│ Answered\.'
must_not 'waiting'
wait_for '\[1\] idle   \[2\] idle   \[3\] idle'
key C-d
wait_for '^rc=0'
result 'how many are before an answer that waits'

# ---- another process ----
again 100 30 --resume 1
wait_for 'on the second'
owner=$(pid)
first=$sock
sock=quasar-second-$$-0 # the first one stays
again 100 30 --start new
key F4
wait_for '^ conversations: '
text question
wait_for '^ > the first question .*elsewhere'
key Enter
wait_for "conversation 1 is open in another quasar \(process $owner\): the same key again"
key Enter
wait_for '│ on the second'
say 'in the copy'
wait_for '│ Answered\.'
wait_for '── idle'
key C-d
wait_for '^rc=0'
tmux -L "$first" kill-server
wait_until sh -c "! kill -0 $owner 2>/dev/null"
$fake sessions export 1 --format md | grep -q 'in the copy' && wrong 'the copy is the same'
result 'one that another process has open is told of, and copied when asked again'

# ---- names ----
again 100 30 --start new
say '/resume the first qestion' '/resume the first'
wait_for 'there is no conversation "the first qestion"; similar: [0-9]+ "the first question'
key C-u
say '/resume the first question' '/resume the first question'
wait_for '│ on the second'
say '/resume the' '/resume the'
wait_for '"the" may mean '
key C-u
key C-d
wait_for '^rc=0'
shell 100 30
args="$run --resume kuestion"
program
wait_for '^quasar: there is no conversation "kuestion"; similar: '
wait_for '^rc=1'
result 'a name like another one'

finish
