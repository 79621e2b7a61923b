#!/bin/bash
# The view of other programs' requests, on a table made for the test, and without any. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

begin 80 24
key F3
wait_for '^ LISTENER  off$'
must 'quasar serve answers other programs'
key F3
wait_not 'LISTENER  off'
say /requests
wait_for '^ LISTENER  off$'
key P
wait_for 'there is no listener to pause'
key Escape
say '/listen 127.0.0.1:8080' '/listen'
wait_for 'nothing is served beside a conversation'
key C-d
wait_for '^rc=0'
result 'without a listener'

begin 120 40 FAKE_REQUESTS=3
must 'LISTENER 127\.0\.0\.1:8080  3 live'
must '│ 1 code␛\[2J +decode'
key F3
wait_for '^ LISTENER  127\.0\.0\.1:8080  on  token required  2 live  1 queued$'
must '^> +1 code␛\[2J +/v1/messages +decode +1\.0K/- '
must '^ +2 curl +/v1/messages +queued +2\.0K/- '
must_not 'the text of request'
key Down
wait_for '^> +2 curl'
key Enter
wait_for '^ request 2$'
must 'messages  0 system, 2 user, 0 model, 0 tool'
must_not 'the text of request'
key b
wait_for 'user: the text of request 2 ␛\]0;owned'
key b
wait_not 'the text of request'
key k
wait_for 'request 2 is told to end'
wait_for '^[> ] +2 curl .*failed .*cancelled on the screen'
key P
wait_for '127\.0\.0\.1:8080  on, paused'
key P
wait_not 'paused'
key F1
wait_for "^ ?In the listener's view"
key Escape
key Escape
wait_not '^ LISTENER'
result 'the table'

for wh in '40 10' '41 13' '80 24' '200 60'; do
    key F3
    # shellcheck disable=SC2086
    size $wh
    wait_for '^ LISTENER  127'
    wait_for '^> +[12] c'
    key Escape
    wait_not '^ LISTENER  127'
done
key C-d
wait_for '^rc=0'
result 'every size'

begin 80 24 FAKE_REQUESTS=2
key C-z
wait_for '^ ?[0-9]+ requests? will freeze; \^Z again suspends'
must '── idle'
key C-d
wait_for '^rc=0'
result 'requests that are served are told of before they freeze'

args=--ascii
begin 80 24 NO_COLOR=1 FAKE_REQUESTS=2
key F3
wait_for '^> +1 code\^\[\[2J +decode'
key Escape
key C-d
wait_for '^rc=0'
result 'in ASCII'
args=

finish
