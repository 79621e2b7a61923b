#!/bin/bash
# Several conversations on one screen: splitting, closing, drafts, answers that
# stream into all of them, and every size with four of them. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

ctrl_x() { # ctrl_x KEY
    key C-x
    key "$1"
}

begin 100 30
say hello
wait_for 'got 5 bytes'
ctrl_x 3
wait_for '^ \[1\] .* │▸\[2\] new conversation'
must 'quasar   2 panes'
must '── \[1\] idle   \[2\] idle ─'
say 'count it'
wait_for '│ 0 messages were before'
must '^ │ got 5 bytes'
must 'ctx \[1\] [0-9]+/4.1K 0%   \[2\] [0-9]+/4.1K 0%'
text 'second draft'
wait_for '^ > second draft'
ctrl_x o
wait_for '^▸\[1\]'
must '^ > *$'
text 'first draft'
wait_for '^ > first draft'
ctrl_x o
wait_for '^ > second draft'
key C-u
wait_not 'second draft'
result 'two conversations beside each other, each with its draft'

# what was held and is taken back leaves nothing that is held
say forever
wait_for 'word[0-9]+ '
say 'then this'
wait_for 'queued.*then this'
key Escape
wait_for '│ stopped'
ctrl_x o
wait_for '\[2\] idle, held'
ctrl_x o
wait_for '▸\[2\]'
key M-Up
wait_for '^ > then this'
wait_not 'idle, held'
key C-u
wait_for '^ > *$'
text x
wait_for '^ > x'
key C-u
wait_for '^ > *$'
ctrl_x o
wait_for '^▸\[1\]'
must '── \[1\] idle   \[2\] idle ─'
ctrl_x o
wait_for '▸\[2\]'
result 'nothing is held where nothing waits'

say forever
wait_for 'word[0-9]+ '
must 'Esc stops \[2\]'
ctrl_x o
wait_for '^ > first draft'
must '\[2\] decode'
must_not 'Esc stop'
key Enter
wait_for '^ │ got 11 bytes'
ctrl_x 0
wait_for '^ +quasar|^ │ forever|^ word'
wait_not '\[1\]'
must 'Esc stop'
key Escape
wait_for '│ stopped'
result 'answers stream while another pane has the keys; ^X 0 closes one'

ctrl_x 2
wait_for '▸\[2\] new conversation'
must '^ \[1\] '
ctrl_x 3
wait_for '▸\[3\] new conversation'
ctrl_x 2
wait_for '▸\[4\] new conversation'
ctrl_x 3
wait_for 'there are 4 panes already'
say forever
wait_for 'word[0-9]+ '
ctrl_x 1
wait_not '\[1\]'
must 'word'
key Escape
wait_for 'stopped'
ctrl_x 0
wait_for 'this is the only pane'
ctrl_x 3
wait_for '▸\[2\]'
say forever
wait_for 'word[0-9]+ '
ctrl_x o
ctrl_x 1
wait_for 'the model is at work in pane 2'
must '\[2\] decode'
ctrl_x o
wait_for '▸\[2\]'
say 'after that'
wait_for 'queued 1: "after that"'
key Escape
wait_for 'held 1'
ctrl_x 0
wait_for 'messages are queued in pane 2'
key Right
wait_for '^ Enter sends what is held  .*new line'
must_not 'close|Enter send '
key M-Up
wait_for '^ > after that'
ctrl_x o
wait_for '\[2\] idle'
must_not 'held' # nothing is, where nothing waits
ctrl_x o
wait_for '^ > after that'
text /other
key C-u
text /only
key Enter
wait_not '\[1\]'
key C-d
wait_for '^rc=0'
result 'four at most; what is at work or queued is not closed'

# ---- messages that wait ----
begin 80 24
say forever
wait_for 'word[0-9]+ '
for m in one two three four; do
    say "$m"
    wait_for "queued [1-4]: \"$m\""
done
must 'queued 1: "one"'
ctrl_x q
wait_for 'queue +Enter edits  d drops'
must '^ > four$'
key Up
wait_for '^ > three'
key M-Up
wait_for 'queued 2: "three"'
must 'queued 3: "two"'
key d
wait_for 'dropped; it is in the history'
wait_not 'three'
wait_for '^ > two'
key Up
wait_for '^ > one'
key Enter
wait_for '^ > one'
wait_not 'd drops'
must 'queued 1: "two"'
key C-u
key Escape
wait_for 'held 2'
must 'Enter sends what is held'
key Enter
wait_for 'got 3 bytes'
wait_for 'got 4 bytes'
ctrl_x q
wait_for 'no message is queued'
key C-d
wait_for '^rc=0'
result 'the queue: edit, move, drop'

# ---- not saved ----
full=$tmp/full
begin 80 24 FAKE_FULL="$full"
text /below
key Enter
wait_for '▸\[2\]'
touch "$full"
say hello
wait_for 'got 5 bytes'
wait_for 'not saved'
ctrl_x 0
wait_for 'not saved: the disk is full; closing it again'
must '▸\[2\]'
ctrl_x 0
wait_not '\[2\]'
rm "$full"
key C-d
wait_for '^rc='
result 'what is not saved is not closed without a word'

# ---- sizes ----
begin 120 40 FAKE_SLOTS=4
for i in 1 2 3 4; do
    say "lines 60"
    wait_for 'line 60 of 60'
    say forever
    [ $i = 4 ] || ctrl_x $((2 + i % 2))
    [ $i = 4 ] || wait_for "new conversation"
done
wait_for '\[1\] decode .*\[2\] decode .*\[3\] decode .*▸?\[4\] decode'
steps=${QUASAR_LONG:+10000}
awk -v n="${steps:-150}" 'BEGIN { s = 4242; for (i = 0; i < n; i++) { s = (s * 1103515245 + 12345) % 2147483648; w = 1 + int(s / 65536) % 300; s = (s * 1103515245 + 12345) % 2147483648; h = 1 + int(s / 65536) % 100; print "resize-window -x " w " -y " h; if (i % 5 == 4) print "run-shell \"sleep 0.06\"" } }' >"$tmp/storm"
t source-file "$tmp/storm"
size 120 40
wait_for '\[1\] decode .*\[4\] decode'
for i in 1 2 3 4; do
    key Escape
    wait_for "\\[$((i == 1 ? 4 : i - 1))\\] idle"
    ctrl_x o
done
wait_for '── \[1\] idle   \[2\] idle   \[3\] idle   \[4\] idle ──'
size 60 12
wait_for '▸\[4\]'
must_not ' \[1\] new'
size 40 10
wait_for 'idle  F1 help'
size 39 9
wait_for '40x10 needed, now 39x9'
text 'written unseen'
size 120 40
wait_for '^ > written unseen'
wait_for '^ \[1\]'
result "a storm of ${steps:-150} sizes while four answers stream"

finish
