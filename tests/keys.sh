#!/bin/bash
# Keys with shares: what their file may say, limits of one key that are nobody else's, turns that
# are taken when one key asks for a hundred answers, times that a request gives itself. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
# start OPTIONS: serve with the script and the keys; sets $url
start() { serve --engine "script:$tmp/script" --api-key-file "$tmp/keys" "$@"; }
stop() {
    kill -TERM $pid
    sleep 0.1
    kill -TERM $pid 2>/dev/null
    wait $pid
    rc=$?
    pid=
    [ $rc = 0 ] || wrong "it ended with $rc: $(tail -3 "$tmp/log")"
}
# get STATUS KEY PATH [curl options]: the body is in $body
get() {
    local want=$1 key=$2 path=$3 got
    shift 3
    got=$(curl -s -m 60 -o "$tmp/body" -D "$tmp/head" -w '%{http_code}' -H "x-api-key: $key" "$@" "$url$path")
    body=$(cat "$tmp/body" 2>/dev/null)
    [ "$got" = "$want" ] || wrong "$path: $got, not $want: $body"
}
has() {
    for t in "$@"; do
        case $body in *"$t"*) ;; *) wrong "$t is not in: $body" ;; esac
    done
}
# ask KEY NAME [BODY]: in the background; the stream is in $tmp/NAME
ask() {
    curl -sN -m 60 -o "$tmp/$2" -H "x-api-key: $1" "$url/v1/chat/completions" -d "${3:-$endless}" &
    asked="$asked $!"
}
# status_is TEXT...: until /v1/status has all of it
status_is() {
    for ((k = 0; k < 1000; k++)); do
        body=$(curl -s -m 20 -H 'x-api-key: sk-b' "$url/v1/status")
        local all=1
        for t in "$@"; do case $body in *"$t"*) ;; *) all= ;; esac done
        [ -n "$all" ] && return
        sleep 0.01
    done
    has "$@"
}
asked=
endless='{"stream":true,"max_tokens":6000,"messages":[{"role":"user","content":"endless"}]}'
hello='{"messages":[{"role":"user","content":"hello"}],"temperature":0}'

cat >"$tmp/script" <<'S'
round 1ms
answer /endless/
  repeat 4000 word%d 
answer
  text Hello from the script.
S

echo 1..7
refused() { # TEXT WORDS...: the keys of TEXT are refused with the words, and without the key
    printf '%b' "$1" >"$tmp/keys"
    "$q" serve --backend cpu --port 0 --engine "script:$tmp/script" --api-key-file "$tmp/keys" >/dev/null 2>"$tmp/second"
    [ $? = 2 ] && grep -q -- "$2" "$tmp/second" || wrong "$1: $(cat "$tmp/second")"
    grep -q sk- "$tmp/second" && wrong "it tells the key: $(cat "$tmp/second")"
}
refused '# none\n\n' 'no API key'
refused 'sk-a\nsk-b weight=0\n' 'line 2: weight is "0"; it is 1 to 1000'
refused 'sk-a priority=10' 'line 1: priority is "10"; it is 0 to 9'
refused 'sk-a slots=x' 'slots is "x"'
refused 'sk-a queue=' 'queue is ""'
refused 'sk-a name=' 'name= is empty'
refused 'sk-a name=a"b' 'a name has at most'
refused 'sk-a fast=1' 'after a key stand name='
refused '\n\nsk-a sk-b' 'line 3: after a key stand'
result "what a line of the keys may say"

printf 'sk-a name=alice weight=2 queue=3 # hers\n  sk-b\tpriority=5 slots=1 queue=8\r\n# sk-c\n' >"$tmp/keys"
start --slots 6 --max-queue 16
get 401 sk-c /v1/models
get 401 name=alice /v1/models
get 200 sk-a /v1/models
for i in 1 2 3; do ask sk-a "a$i"; done
status_is '"requests":3,"running":3'
get 429 sk-a /v1/chat/completions -d "$hello" && has 'too many requests of this key'
grep -qi '^retry-after' "$tmp/head" || wrong "429 without Retry-After"
get 200 sk-a /ready
get 200 sk-b /v1/chat/completions -d "$hello" && has 'Hello from the script'
has_streams=$(curl -s -H 'x-api-key: sk-b' "$url/v1/status")
case $has_streams in *'"running":3'*) ;; *) wrong "the refusal waited for others: $has_streams" ;; esac
result "a key that has enough is refused at once, another is not"

for i in 1 2; do ask sk-b "b$i"; done
status_is '"requests":5,"running":4,"waiting":1'
has '"slots":6,"queue":16' '"name":"alice","live":3,"requests":3,"refused":1' '"name":"key2","live":2,"requests":3,"refused":0'
get 200 sk-b /metrics
has 'quasar:key_requests_live{model_name="demo",key="alice"} 3' 'quasar:key_requests_refused_total{model_name="demo",key="alice"} 1' \
    'quasar:key_requests_total{model_name="demo",key="key2"} 3' 'quasar:key_generation_tokens_total{model_name="demo",key="key2"} '
case $body in *sk-*) wrong "a key is told" ;; esac
stop
wait $asked
asked=
result "slots of a key, and figures of each"

# a hundred requests of one key: another key's one does not wait for them
printf 'sk-a name=alice\nsk-b name=bob\n' >"$tmp/keys"
start --slots 4 --max-queue 200
long='{"max_tokens":400,"messages":[{"role":"user","content":"endless"}]}'
for i in $(seq 1 100); do
    printf 'url = "%s/v1/chat/completions"\nheader = "x-api-key: sk-a"\ndata = "%s"\noutput = "%s/f.%s"\nnext\n' "$url" "${long//\"/\\\"}" "$tmp" "$i"
done | sed '$d' >"$tmp/list"
curl -s -Z --parallel-max 100 -K "$tmp/list" >/dev/null 2>&1 &
asked=$!
live() { curl -s -m 20 -H 'x-api-key: sk-b' "$url/v1/status" | sed 's/.*"name":"alice","live":\([0-9]*\).*/\1/'; }
for ((i = 0; i < 1000; i++)); do
    before=$(live)
    [ "${before:-0}" -ge 60 ] && break
    sleep 0.01
done
get 200 sk-b /v1/chat/completions -d "$hello" && has 'Hello from the script'
after=$(live)
# first come, first served would have been all of them before it
[ "$before" -ge 60 ] && [ $((before - after)) -le 20 ] || wrong "bob waited for $((before - after)) of $before answers of alice"
get 200 sk-b /metrics
has 'quasar:key_requests_live{model_name="demo",key="alice"} ' 'vllm:num_preemptions_total{model_name="demo"} '
kill $asked
wait $asked
asked=
[ "$(grep -ho '"content":"[^"]*"' "$tmp"/f.* 2>/dev/null | sort -u | wc -l)" -le 1 ] || wrong "equal requests have different answers"
status_is '"requests":0,"running":0'
result "a hundred requests of one key do not keep another waiting"
stop

# times
start --slots 2 --queue-timeout 1
ask sk-a long
status_is '"running":1'
get 503 sk-a /v1/chat/completions -d "$hello" && has error
status_is '"requests":1,"running":1'
result "a request that waits too long is told so"

get 400 sk-b /v1/chat/completions -d "$hello" -H 'x-request-timeout: soon' && has x-request-timeout
get 400 sk-b /v1/chat/completions -d "$hello" -H 'x-request-timeout: 0'
get 400 sk-b /v1/chat/completions -d "$hello" -H 'x-request-timeout: -5'
stop
wait $asked
asked=
start
get 200 sk-b /v1/chat/completions -d "$endless" -H 'x-request-timeout: 0.5'
has word '"finish_reason":"abort"' '[DONE]'
get 200 sk-b /v1/chat/completions -d '{"max_tokens":6000,"messages":[{"role":"user","content":"endless"}]}' -H 'x-request-timeout: 0.5'
has word '"finish_reason":"abort"'
get 504 sk-b /v1/messages -d '{"max_tokens":6000,"messages":[{"role":"user","content":"endless"}]}' -H 'x-request-timeout: 0.5'
has '"type":"error"'
get 200 sk-b /v1/chat/completions -d "$hello" -H 'x-request-timeout: 60' && has 'Hello from the script'
status_is '"requests":0,"running":0'
result "a request ends at the time that it gave itself"

stop
result "it ends"
