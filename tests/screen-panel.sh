#!/bin/bash
# The figures: beside the transcript where there is room, else in its place. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh"

begin 120 40
must '│ DECODING \(1 min of it\) +now +all$'
must '│ accept +- +-$'
must '│ reused +-$'
say 'lines 40'
wait_for 'line 40 of 40 +│'
wait_for '│ accept +█?▆? +67% +67%$'
must '│ tok/s .* 200 +200$'
must '│ tok/rnd .* 3\.0 +3\.0$'
must '│ place 1-3 % 100 100 0$'
must '│ mtp +[0-9]+ rounds  3\.0 each  67%$'
must '│ ms draft 2\.0 model 12\.0 host 1\.0$'
key F2
wait_not 'DECODING'
key F2
wait_for 'DECODING'
key F1
wait_for 'While typing'
must_not 'DECODING'
key Escape
wait_for 'DECODING'
result 'beside the transcript'

size 80 24
wait_not 'DECODING'
wait_for '│ line 40 of 40$'
key F2
wait_for '^  ?DECODING'
must_not 'line 40'
must 'Esc closes'
say hello
wait_for '── idle'
key Escape
wait_for 'got 5 bytes'
say /stats
wait_for 'DECODING'
key F2
wait_not 'DECODING'
key C-d
wait_for '^rc=0'
result 'in its place'

args=--ascii
begin 120 40 NO_COLOR=1
say 'lines 40'
wait_for '\| accept +[_.:=+*#-]+ +67% +67%$'
key C-d
wait_for '^rc=0'
result 'without colour, in ASCII'

finish
