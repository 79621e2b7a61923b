#!/bin/bash
# The workbench that serves: --listen and /listen, the listener's view, a request that is
# cancelled there, while the conversation goes on. The real program with a scripted engine. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
if ! command -v curl >/dev/null; then
    printf '1..1\nok 1 # SKIP curl is missing\n'
    exit 0
fi
cat >"$tmp/script" <<'S'
round 5ms
answer /endless/
  repeat 20000 word%d 
answer
  text Hello from the script.
S
q=${QUASAR_BIN:?}
export XDG_CONFIG_HOME=$tmp/config XDG_STATE_HOME=$tmp/state
ask='{"stream":true,"max_tokens":15000,"messages":[{"role":"user","content":"endless"}]}'
echo 1..4
t new-session -d -x 120 -y 40 "$q --engine script:$tmp/script --start new --listen 0; bash --rcfile $tmp/rc"
wait_for '^ >'
key F3
wait_for '127\.0\.0\.1:[0-9]+'
port=$(screen | grep -Eo '127\.0\.0\.1:[0-9]+' | head -1 | cut -d: -f2)
curl -sN -o "$tmp/stream" "http://127.0.0.1:$port/v1/chat/completions" -A 'claude-cli/9 (x)' -d "$ask" &
pid=$!
wait_for 'claude-code .*decode'
wait_until grep -q '"content":"9"' "$tmp/stream"
wait_for 'claude-code .*decode .* 1\.0 ' # tokens of a round, while it is answered
key Enter
wait_for 'queued [0-9.]+ m?s, prefill [0-9.]+ m?s, first token after [0-9.]+ m?s, decode [0-9.]+ m?s'
must 'result    -'
key Enter
wait_not 'first token after'
result "a request is on the screen while it is answered"
key k
wait_for 'claude-code .*(failed|cancelled)'
wait $pid
grep -q '"word"' "$tmp/stream" || wrong "nothing was streamed"
grep -q DONE "$tmp/stream" && wrong "the answer was not cut"
result "k ends it"
key F3
wait_for '^ >'
say 'hello'
wait_for 'Hello from the script'
curl -s "http://127.0.0.1:$port/v1/chat/completions" -d '{"messages":[{"role":"user","content":"hello"}]}' >"$tmp/one"
grep -q 'Hello from the script' "$tmp/one" || wrong "no answer: $(cat "$tmp/one")"
result "the conversation goes on beside it"
say '/listen off'
wait_for 'listener is off'
curl -s -m 5 -o /dev/null "http://127.0.0.1:$port/health" && wrong "it still listens"
say '/listen on'
wait_for 'listening at http://127\.0\.0\.1:[0-9]+; F3 shows the requests'
must_not '^ LISTENER'
say "/listen $port" "/listen"
wait_for "listening at http://127\.0\.0\.1:$port; F3"
must_not '^ LISTENER'
say /listen
wait_for "the listener is on at .*127\.0\.0\.1:$port; F3"
say '/listen nowhere:port' /listen
wait_for 'nowhere:port'
must_not 'error'
key F3
wait_for '^ LISTENER'
curl -s -m 5 "http://127.0.0.1:$port/health" | grep -q ok || wrong "it does not listen again"
key F3
wait_for '^ >'
key C-d
wait_for 'shell>'
result "off and on again"
