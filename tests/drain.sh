#!/bin/bash
# How quasar serve ends, and what it tells those who send requests to it: streams that end well,
# answers that are cut, the line for load balancers, the word to the service manager. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
fake=${QUASAR_BUILDDIR:?}/tests/http/manager
# start OPTIONS: serve with the script; sets $url, and $agent if there is one
start() {
    serve --engine "script:$tmp/script" "$@"
    agent=$(sed -n 's/^load balancers are told at //p' "$tmp/log")
}
# ended: waits for it, which must have ended well
ended() {
    wait $pid
    rc=$?
    pid=
    [ $rc = 0 ] || wrong "it ended with $rc: $(tail -3 "$tmp/log")"
}
# get STATUS PATH [curl options]: the body is in $body
get() {
    local want=$1 path=$2 got
    shift 2
    got=$(curl -s -m 60 -o "$tmp/body" -D "$tmp/head" -w '%{http_code}' "$@" "$url$path")
    body=$(cat "$tmp/body" 2>/dev/null)
    [ "$got" = "$want" ] || wrong "$path: $got, not $want: $body"
}
has() {
    for t in "$@"; do
        case $body in *"$t"*) ;; *) wrong "$t is not in: $body" ;; esac
    done
}
head_has() { grep -qi "^$1" "$tmp/head" || wrong "no $1 in: $(cat "$tmp/head")"; }
ask_agent() { (exec 3<>"/dev/tcp/${agent%:*}/${agent##*:}" && cat <&3) 2>/dev/null; }
# begun FILE...: something of each stream is there
begun() {
    for ((i = 0; i < 1000; i++)); do
        local all=1
        for f in "$@"; do grep -qs word "$f" || all=; done
        [ -n "$all" ] && return
        sleep 0.01
    done
    wrong "streams do not begin"
}
say='"messages":[{"role":"user","content":"endless"}]'

cat >"$tmp/script" <<'S'
round 1ms
answer /endless/
  repeat 4000 word%d 
answer
  text Hello from the script.
S

echo 1..9
start --agent 127.0.0.1:0 --slots 8 --max-queue 33 --drain-delay 60
[ "$(ask_agent)" = 'ready up 100% maxconn:30' ] || wrong "the line is: $(ask_agent)"
get 200 /version
has '"version":"' '"model":"demo"' '"device":"' '"backend":"' '"checkpoint":"'
grep -q '"compat":"[0-9a-f]\{64\}"' "$tmp/body" || wrong "nothing says which answers are the same: $body"
get 200 /v1/chat/completions -H 'x-request-id: trace-7' -d '{"messages":[{"role":"user","content":"hi"}]}'
head_has 'x-request-id: trace-7'
grep -q 'stop, x-request-id trace-7$' "$tmp/log" || wrong "the log does not name the request: $(tail -3 "$tmp/log")"
get 200 /version -H "x-request-id: $(printf 'x%.0s' $(seq 1 100))"
grep -qi '^x-request-id' "$tmp/head" && wrong "a long id is given back"
result "what balancers are told, versions and ids"

# sixteen streams, some of which wait; then a signal
for i in $(seq 1 16); do
    curl -sN -m 60 -o "$tmp/s$i" "$url/v1/chat/completions" -d "{\"stream\":true,\"max_tokens\":800,$say}" &
    streams[i]=$!
done
for ((i = 0; i < 1000; i++)); do
    get 200 /v1/status
    case $body in *'"requests":16'*) break ;; esac
    sleep 0.01
done
has '"requests":16'
kill -TERM $pid
for ((i = 0; i < 500; i++)); do
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/ready")" = 503 ] && break
    sleep 0.01
done
get 503 /ready
head_has 'Connection: close'
get 200 /health
get 503 /v1/chat/completions -d "{$say}" -H 'x-request-id: late-1'
head_has 'Connection: close'
head_has 'Retry-After: '
head_has 'x-request-id: late-1'
has 'going down'
grep -q 'status 503, .*, x-request-id late-1$' "$tmp/log" || wrong "the log does not name the request: $(tail -3 "$tmp/log")"
[ "$(ask_agent)" = drain ] || wrong "the line is: $(ask_agent)"
get 200 /v1/status && has '"draining":true'
result "after a signal it refuses, and says so"

wait "${streams[@]}"
for i in $(seq 1 16); do
    grep -q '"finish_reason":"length"' "$tmp/s$i" && grep -q 'DONE' "$tmp/s$i" || wrong "stream $i was cut: $(tail -c 200 "$tmp/s$i")"
done
result "sixteen streams end as if nothing had been"

get 503 /ready
kill -0 $pid 2>/dev/null || wrong "it did not go on listening"
kill -TERM $pid
ended
result "it listens on for the delay; a second signal ends that"

# cut_all [SIGNAL]: what is cut says so, in each shape
cut_all() {
    curl -sN -m 60 -o "$tmp/chat" "$url/v1/chat/completions" -d "{\"stream\":true,$say}" &
    local all=$!
    curl -sN -m 60 -o "$tmp/messages" "$url/v1/messages" -d "{\"max_tokens\":8000,\"stream\":true,$say}" &
    all="$all $!"
    curl -sN -m 60 -o "$tmp/responses" "$url/v1/responses" -d '{"stream":true,"input":"endless"}' &
    all="$all $!"
    curl -s -m 60 -o "$tmp/whole" -w '%{http_code}' "$url/v1/chat/completions" -d "{$say}" >"$tmp/status" &
    all="$all $!"
    begun "$tmp/chat" "$tmp/messages" "$tmp/responses"
    for ((i = 0; i < 1000; i++)); do
        get 200 /v1/status
        case $body in *'"running":4'*) break ;; esac
        sleep 0.01
    done
    sleep 0.1
    curl -s -m 60 -o "$tmp/waits" -w '%{http_code}' "$url/v1/chat/completions" -d "{$say}" >"$tmp/status2" &
    all="$all $!"
    for ((i = 0; i < 1000; i++)); do
        get 200 /v1/status
        case $body in *'"waiting":1'*) break ;; esac
        sleep 0.01
    done
    kill -TERM $pid
    [ -z "${1-}" ] || { sleep 0.1 && kill "-$1" $pid; }
    wait $all
    grep -q '"finish_reason":"abort"' "$tmp/chat" && grep -q 'DONE' "$tmp/chat" || wrong "chat: $(tail -c 300 "$tmp/chat")"
    grep -q '^event: error' "$tmp/messages" && grep -q 'going down' "$tmp/messages" || wrong "messages: $(tail -c 300 "$tmp/messages")"
    grep -q '^event: message_stop' "$tmp/messages" && wrong "the message looks whole"
    grep -q '^event: response.failed\|^event: error' "$tmp/responses" || wrong "responses: $(tail -c 300 "$tmp/responses")"
    grep -q 'word' "$tmp/whole" && grep -q '"finish_reason":"abort"' "$tmp/whole" || wrong "whole: $(tail -c 300 "$tmp/whole")"
    [ "$(cat "$tmp/status") $(cat "$tmp/status2")" = '200 503' ] || wrong "statuses $(cat "$tmp/status" "$tmp/status2"): $(cat "$tmp/waits")"
}
start --slots 5 --grace 0
cut_all
ended
grep -q '5 answers are cut' "$tmp/log" || wrong "it does not say so: $(tail -8 "$tmp/log")"
result "answers that outlast the grace are cut, and say so"

start --slots 5
cut_all INT
ended
result "a second signal cuts at once"

for bad_agent in nonsense 127.0.0.1:99999; do
    "$q" serve --backend cpu --port 0 --engine "script:$tmp/script" --agent "$bad_agent" >/dev/null 2>"$tmp/second"
    [ $? = 2 ] && grep -q "is no address" "$tmp/second" || wrong "$bad_agent: $(cat "$tmp/second")"
done
start --listen "unix:$tmp/sock" --agent 0
case $agent in 127.0.0.1:*) ;; *) wrong "the agent of a socket is at $agent" ;; esac
"$q" serve --backend cpu --port 0 --engine "script:$tmp/script" --agent "$agent" >/dev/null 2>"$tmp/second"
[ $? = 1 ] && grep -q "cannot listen at $agent" "$tmp/second" || wrong "a taken agent: $(cat "$tmp/second")"
kill -TERM $pid
ended
result "addresses of the agent that cannot be, and one of its own"

# the service manager: a path, and a name in no file system
for sock in "$tmp/manager" "@quasar-test-$$"; do
    "$fake" "$sock" >"$tmp/told" &
    also=$!
    for ((i = 0; i < 500; i++)); do grep -qs listening "$tmp/told" && break || sleep 0.01; done
    NOTIFY_SOCKET=$sock start
    for ((i = 0; i < 500; i++)); do grep -q '^READY=1$' "$tmp/told" && break || sleep 0.01; done
    grep -q '^READY=1$' "$tmp/told" && grep -q '^STATUS=demo on ' "$tmp/told" || wrong "$sock: $(cat "$tmp/told")"
    grep -q STOPPING "$tmp/told" && wrong "it stops already"
    kill -TERM $pid
    ended
    for ((i = 0; i < 500; i++)); do grep -q '^STOPPING=1$' "$tmp/told" && break || sleep 0.01; done
    grep -q '^STOPPING=1$' "$tmp/told" || wrong "$sock: $(cat "$tmp/told")"
    kill $also
    wait $also 2>/dev/null
    also=
done
result "the service manager knows when it is ready, and when it stops"

NOTIFY_SOCKET=$tmp/nobody start
get 200 /ready
kill -TERM $pid
ended
NOTIFY_SOCKET=relative start
kill -TERM $pid
ended
result "a service manager that does not listen costs nothing"
