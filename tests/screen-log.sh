#!/bin/bash
# What goes wrong and what libraries print is in the log, and nowhere over the screen. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

begin 80 24
key F9
wait_for '^ LOG$'
must 'Nothing went wrong'
must 'Esc closes'
key F9
wait_not '^ LOG$'
say 'print 5'
wait_for 'It printed'
wait_for '── idle'
must_not 'library line'
wait_for '! 5 errors F9'
say /log
wait_for '[0-9:]+ output  library line 1 ␛\[2J$'
must 'output  library line 5 ␛\[2J$'
must_not '! 5 errors'
key Escape
wait_not '^ LOG$'
must_not '! 5 errors'
say notice
wait_for 'It was said'
say fail
wait_for 'lost its device'
wait_for '! 1 error F9'
say '/nonsense'
wait_for 'no command /nonsense'
key C-u
key F9
wait_for 'warning the disk is nearly full'
must 'error   failed: the engine lost its device'
must 'warning no command /nonsense'
key Escape
result 'lines and their kinds'

say 'print 3000'
wait_for '── idle'
wait_for '! [0-9]+ errors F9'
key F9
wait_for 'library line 3000'
must_not 'library line 2900 '
key PageUp PageUp
wait_not 'library line 3000'
key Home
wait_for 'earlier lines are gone'
key End
wait_for 'library line 3000'
for wh in '40 10' '41 13' '120 40' '200 60' '80 24'; do
    # shellcheck disable=SC2086
    size $wh
    wait_for 'library line 3000'
done
key q
wait_not '^ LOG$'
key C-d
wait_for '^rc=0'
screen | grep -q 'library line 3000 ?\[2J' || wrong 'what was printed last is not on the normal screen'
result 'bounded, and scrolled'

begin 80 24
key F9
wait_for '^ LOG$'
key Escape
say crash crash
wait_for "the library's last words"
wait_for '^rc='
whole
result 'the last words of a crash'

args=--ascii
begin 80 24 NO_COLOR=1
say 'print 1'
wait_for '! 1 error F9'
key F9
wait_for 'output  library line 1 \^\[\[2J'
key Escape
key C-d
wait_for '^rc=0'
result 'in ASCII'
args=

finish
