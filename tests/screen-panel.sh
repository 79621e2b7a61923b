#!/bin/bash
# The figures: beside the transcript where there is room, else in its place. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

begin 120 40
must '│ SPEED  1 min +last +avg$'
must '│ accept +- +-$'
must '│ reused  -$'
must '│ KV BUDGET +24\.0 / 100\.0 MB$'
must '│ LISTENER off   F3 opens$'
say 'lines 40'
wait_for 'line 40 of 40 +│'
wait_for '│ accept +[▁▂▃▄▅▆▇█]+ +67% +67%$'
must '│ tok/s .* 200 +200$'
must '│ tok/rnd .* 3\.0 +3\.0$'
must '│ pos 1-3 % 100 100 0$'
must '│ mtp +[0-9]+ rounds  3\.0 each  67%$'
must '│ round +15\.0 ms draft 2\.0 verify 12\.0$'
must '│ prefill ▕█+▏ [0-9]+ in [0-9.]+ s$'
must '│ ▕A+B+k+░+▏26%$'
must '│ B conversation 8 +1\.2K +19 MB$'
key F1
wait_for 'While typing'
must_not 'SPEED'
key Escape
wait_for 'SPEED'
say /kv
wait_for '^ cache [0-9.]+/100\.0MB, [0-9]+% in use; A a new conversation: .* tokens'
result 'beside the transcript'

# panel, statistics, neither
key F2
wait_for '^ STATS  10 min'
must_not 'SPEED'
key F2
wait_not 'STATS'
must_not 'SPEED'
must 'line 40 of 40'
key F2
wait_for 'SPEED'
result 'F2 goes around'

size 80 24
wait_not 'SPEED'
wait_for '│ line 40 of 40$'
key F2
wait_for '^  ?SPEED'
must_not 'line 40'
must 'Esc closes'
say hello
wait_for '── idle'
key Escape
wait_for 'got 5 bytes'
key F2
wait_for '^  ?SPEED'
key F2
wait_for '^ STATS'
key F2
wait_not 'STATS|SPEED'
say /stats
wait_for '^ STATS'
key Escape
wait_not 'STATS'
key C-d
wait_for '^rc=0'
result 'in its place'

args=--ascii
begin 120 40 NO_COLOR=1
say 'lines 40'
wait_for '\| accept +[_.:=+*#-]+ +67% +67%$'
must '\| \[[A-Zk-]+\][0-9]+%$'
key C-d
wait_for '^rc=0'
result 'without colour, in ASCII'
args=

finish
