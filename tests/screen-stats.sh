#!/bin/bash
# The figures over time: every row, the cursor, marks, spans, the file. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
export TZ=UTC
mkdir "$tmp/cwd"
cd "$tmp/cwd" || exit 1

begin 120 40
say /stats
wait_for '^ STATS  10 min$'
for name in tok/s tok/rnd accept 'pos 1' 'pos 6' mtp suffix 'draft ms' 'verify ms' 'host ms' prefill reused kv queue \
    'gpu C' 'gpu W' 'gpu mem' 'host mem'; do
    must "^ +$name +(- +){3}-$"
done
must '^ +last +average +p5 +p95$'
must '^ +-10 min +now$'
must '^ Up Down rows +Left Right time +Space 24 h +e CSV +r averages anew +Esc closes'
must 'r state restored  . averages begin$'
key Escape
say 'lines 60'
wait_for 'line 60 of 60'
say /stats
wait_for '^ tok/s .*[▁▂▃▄▅▆▇█] +200 +200 +200 +200$'
must '^ accept .*▆ +67% +67% +67% +67%$'
must '^  pos 3 .*▁ +0% +0% +0% +0%$'
must '^  pos 4 .* - +- +- +-$'
must '^ draft ms .* +2\.0 +2\.0 +2\.0 +2\.0$'
must '^ host mem .*[0-9.]+ (MB|G)$'
must '^ gpu C .* - +- +- +-$'
result 'every row'

key Left
wait_for '^ STATS  10 min  at [0-9:]+ for 9 s$'
must '^ +then +average'
must '\^$'
key Right
wait_not 'then'
key Space
wait_for '^ STATS  24 h$'
must '^ +-24 h +now$'
key Space
key r
wait_for 'averages since [0-9:]+$'
must '^ marks .*\|$'
result 'cursor, span, mark'

key e
wait_for 'wrote [0-9]+ lines to '
f=$(ls "$tmp"/cwd/quasar-stats-*.csv 2>/dev/null)
[ -n "$f" ] || wrong 'no file'
head -1 "$f" | grep -q '^time,seconds,rounds,tokens,' || wrong 'no head'
awk -F, 'NR == 1 { n = NF } NF != n { exit 1 } END { exit NR < 2 }' "$f" || wrong 'not a table'
awk -F, 'NR > 1 { t += $4; r += $3 } END { exit !(r > 0 && t == 3 * r) }' "$f" || wrong 'other sums'
tail -1 "$f" | grep -q 'reset$' || wrong 'no mark'
[ "$(stat -c %a "$f")" = 600 ] || wrong 'readable by others'
key q
wait_not 'STATS'
key C-d
wait_for '^rc=0'
result 'a file of it'

# where nothing can be written, one line says so, and what is there stays
chmod 555 "$tmp/cwd"
if ! touch "$tmp/cwd/x" 2>/dev/null; then
    begin 80 24
    say /stats
    wait_for '^ STATS'
    key e
    wait_for 'cannot write .*quasar-stats-.*Permission denied'
    key Escape
    key C-d
    wait_for '^rc=0'
fi
chmod 755 "$tmp/cwd"
result 'no place for the file'

begin 80 24
say 'lines 3'
wait_for 'line 3 of 3'
say /stats
wait_for '^ STATS'
must 'of 22  Up Down rows'
must '^ tok/s '
key Down Down Down
wait_not '^ tok/s '
key End
wait_for '^ host mem '
key Home
wait_for '^ tok/s '
key x
wait_for 'Esc goes back to the conversation'
for wh in '40 10' '41 12' '50 11' '60 20' '100 30' '200 60' '300 70' '80 24'; do
    # shellcheck disable=SC2086
    size $wh
    wait_for '^ STATS'
done
key F1
wait_for '^ ?In the statistics'
key Escape
wait_for '^ STATS'
key Escape
wait_for 'line 3 of 3'
key C-d
wait_for '^rc=0'
result 'every size'

# it goes on while the model works, and keys of everywhere work
begin 120 40
say forever 'forever'
wait_for 'word9 '
key F2
wait_for '^ STATS'
wait_for '^ +now +average'
wait_for '^ tok/s .*[▁▂▃▄▅▆▇█] +200 '
key C-c
wait_for '── idle'
wait_for '^ +last +average'
key C-c
wait_not 'STATS'
key C-d
wait_for '^rc=0'
result 'while the model works'

args=--ascii
begin 120 40 NO_COLOR=1
say 'lines 60'
wait_for 'line 60 of 60'
say /stats
wait_for '^ tok/s +[_.:=+*#-] +200'
if screen | LC_ALL=C grep -q '[^ -~]'; then wrong 'not ASCII'; fi
key Escape
key C-d
wait_for '^rc=0'
result 'in ASCII'
args=

begin 200 60 "FAKE_NVML=$build/tests/fake/libnvml.so" "FAKE_NVML_COUNT=$tmp/readings"
say forever 'forever'
wait_for 'word9 '
key F2
wait_for '^ gpu C .*[▁▂▃▄▅▆▇█] +71 +71 +71 +71$'
must '^ gpu W .* 340 +340 +340 +340$'
must '^ gpu mem .* 30\.0 G +30\.0 G +30\.0 G +30\.0 G$'
key C-c
wait_for '── idle'
sleep 1 # nothing is read at rest: that cannot be waited for
a=$(wc -c <"$tmp/readings")
sleep 1
b=$(wc -c <"$tmp/readings")
[ "$a" = "$b" ] || wrong "read $((b - a)) times at rest"
key Escape
key C-d
wait_for '^rc=0'
result 'the GPU'

finish
