#!/bin/bash
# Three replicas of the demo model behind HAProxy, with the configuration that is shipped: sessions
# stay where they are, a replica that dies takes its own streams alone, one that goes down takes
# nothing new, and all of them can be restarted one after the other with no request lost. TAP.
src=${QUASAR_SRCDIR:?}
if ! command -v haproxy >/dev/null; then
    printf '1..1\nok 1 # SKIP haproxy is missing\n'
    exit 0
fi
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
declare -a pids url agent
proxy=
load=
trap 'kill -9 $proxy $load ${pids[@]} 2>/dev/null; rm -rf "$tmp"' EXIT
# until_true SECONDS COMMAND...: until it succeeds
until_true() {
    local i most=$(($1 * 50))
    shift
    for ((i = 0; i < most; i++)); do
        "$@" && return 0
        sleep 0.02
    done
    wrong "never true: $*"
    return 1
}
# replica I: starts it, at the addresses it had before
replica() {
    "$q" serve --backend cpu --threads 1 --prefix-cache off --slots 8 --drain-delay 1 \
        --listen "${url[$1]:-127.0.0.1:0}" --agent "${agent[$1]:-127.0.0.1:0}" >/dev/null 2>"$tmp/log.$1" &
    pids[$1]=$!
}
is_ready() { grep -q 'is ready' "$tmp/log.$1" && grep -q '^listening at' "$tmp/log.$1"; }
addresses() {
    url[$1]=$(sed -n 's/^listening at http:..//p' "$tmp/log.$1")
    agent[$1]=$(sed -n 's/^load balancers are told at //p' "$tmp/log.$1")
}
# state I: what HAProxy thinks of it
state() {
    curl -s --unix-socket "$tmp/figures" 'http://x/;csv' |
        awk -F, -v s="gpu$1" '$1 == "replicas" && $2 == s { print $18 }'
}
is() { [ "$(state "$1")" = "$2" ]; }
ask='{"messages":[{"role":"user","content":"Tell me about numbers."}],"temperature":0,"max_tokens":6}'
# one SESSION NAME: a line for a list of requests of curl
one() {
    printf 'url = "http://x/v1/chat/completions"\nunix-socket = "%s"\nheader = "x-session-id: %s"\ndata = "%s"\noutput = "%s"\nmax-time = 30\nwrite-out = "%%{http_code} %%header{x-served-by} %s %%{exitcode}\\n"\nnext\n' \
        "$tmp/front" "$1" "${ask//\"/\\\"}" "$tmp/b.$2" "$1"
}
# round NAME: one request of each session; lines "status server session error"
round() {
    for ((s = 0; s < 20; s++)); do one "user-$s" "$1.$s"; done | sed '$d' >"$tmp/list"
    curl -s -Z --parallel-max 8 -K "$tmp/list" >"$tmp/round.$1" 2>/dev/null
}
texts() { grep -ho '"content":"[^"]*"' "$tmp"/b.$1.* | sort | uniq -c | awk '{ print $1 }'; }

echo 1..7
for i in 0 1 2; do replica $i; done
for i in 0 1 2; do until_true 20 is_ready $i && addresses $i; done
sed -e "s|bind :8080|bind unix@$tmp/front|; s|bind 127.0.0.1:8404|bind unix@$tmp/figures|" \
    -e 's/inter 1s fastinter 200ms/inter 150ms fastinter 50ms/; s/agent-inter 1s/agent-inter 150ms/; s/slowstart 30s/slowstart 1s/' \
    "$src/packaging/haproxy/haproxy.cfg" >"$tmp/cfg"
for i in 0 1 2; do
    sed -i "s/server gpu$i .*/server gpu$i ${url[i]} agent-addr ${agent[i]%:*} agent-port ${agent[i]##*:}/" "$tmp/cfg"
done
haproxy -c -f "$src/packaging/haproxy/haproxy.cfg" >"$tmp/check" 2>&1 || wrong "it is not taken: $(cat "$tmp/check")"
grep -qi warning "$tmp/check" && wrong "it is warned of: $(cat "$tmp/check")"
haproxy -db -f "$tmp/cfg" >"$tmp/haproxy" 2>&1 &
proxy=$!
for i in 0 1 2; do until_true 10 is $i UP; done
result "the configuration is taken as it is, and all replicas are up"

# ten requests of each of 20 sessions, one after the other within a session
for r in $(seq 1 10); do round "a$r"; done
cat "$tmp"/round.a* >"$tmp/all"
[ "$(grep -c '^200 gpu. user-[0-9]* 0$' "$tmp/all")" = 200 ] || wrong "not all were answered: $(grep -v '^200' "$tmp/all" | sort | uniq -c)"
kept=$(awk '{ seen[$3, $2]++; if (seen[$3, $2] > best[$3]) best[$3] = seen[$3, $2] }
    END { for (s in best) n += best[s]; print n }' "$tmp/all")
[ "$kept" -ge 198 ] || wrong "of 200 requests $kept went where their session is"
for i in 0 1 2; do
    n_i=$(grep -c " gpu$i " "$tmp/round.a1")
    [ "$n_i" -ge 2 ] || wrong "gpu$i has $n_i of 20 sessions: $(cat "$tmp/round.a1")"
done
[ "$(texts 'a*')" = 200 ] || wrong "equal requests have different answers: $(texts 'a*')"
result "sessions stay where they are, and are spread"

# stream NAME SESSION [TOKENS]: a long one
stream() {
    curl -sN -m 60 -o "$tmp/stream.$1" -D "$tmp/head.$1" --unix-socket "$tmp/front" http://x/v1/completions \
        -H "x-session-id: $2" -d '{"prompt":"one two three","stream":true,"max_tokens":'"${3:-400}"',"min_tokens":'"${3:-400}"',"temperature":0}' &
    echo $! >"$tmp/pid.$1"
    wait $!
    echo $? >"$tmp/exit.$1"
}
begun() { grep -qs '"text"' "$tmp/stream.$1"; }
place() { awk -v s="$1" '$3 == s { print $2; exit }' "$tmp/round.a10"; }
dead=$(place user-0)
dead=${dead#gpu}
streams=
for s in $(seq 0 5); do
    stream "$s" "user-$s" &
    streams="$streams $!"
done
for s in $(seq 0 5); do until_true 10 begun $s; done
kill -9 "${pids[dead]}"
wait "${pids[dead]}" 2>/dev/null
round b
wait $streams
for s in $(seq 0 5); do
    at=$(sed -n 's/^x-served-by: gpu\([0-9]\).*/\1/p' "$tmp/head.$s")
    whole=0
    grep -q 'DONE' "$tmp/stream.$s" && whole=1
    if [ "$at" = "$dead" ]; then
        hit=1
        [ $whole = 0 ] && [ "$(cat "$tmp/exit.$s")" != 0 ] || wrong "stream $s of the dead replica looks whole"
    else
        [ $whole = 1 ] || wrong "stream $s of replica $at was cut: $(tail -c 200 "$tmp/stream.$s")"
    fi
done
[ "${hit-}" = 1 ] || wrong "no stream ran where it died"
result "a replica that is killed takes its own streams alone"

grep -qv '^200' "$tmp/round.b" && wrong "requests right after it: $(grep -v '^200' "$tmp/round.b")"
grep -q " gpu$dead " "$tmp/round.b" && wrong "the dead answered"
round c
round d
[ "$(cat "$tmp/round.b" "$tmp/round.c" "$tmp/round.d" | grep -c "^200 gpu")" = 60 ] || wrong "its sessions are lost: $(cat "$tmp"/round.[bcd] | grep -v '^200')"
[ "$(texts '[abcd]*')" = 260 ] || wrong "answers differ elsewhere: $(texts '[abcd]*')"
moved=$(awk 'NR == FNR { was[$3] = $2; next } $2 != was[$3]' "$tmp/round.c" "$tmp/round.d" | wc -l)
[ "$moved" = 0 ] || wrong "$moved sessions moved again"
result "its sessions go on elsewhere, with the same answers"

replica "$dead"
until_true 20 is_ready "$dead"
until_true 10 is "$dead" UP
# load without a pause, while each replica goes down and comes back
(
    r=0
    while [ ! -e "$tmp/enough" ]; do
        r=$((r + 1))
        round "load$r"
    done
) &
load=$!
load_at() { [ -e "$tmp/round.load$1" ]; } # a round of the load
for i in 0 1 2; do
    until_true 60 load_at $((i + 1)) # each goes down in another one
    kill -TERM "${pids[i]}"
    wait "${pids[i]}"
    rc=$?
    [ $rc = 0 ] || wrong "replica $i ended with $rc: $(tail -3 "$tmp/log.$i")"
    replica $i
    until_true 20 is_ready $i
    until_true 10 is $i UP
done
: >"$tmp/enough"
wait $load
load=
cat "$tmp"/round.load* >"$tmp/all"
failed=$(grep -v '^200 gpu. user-[0-9]* 0$' "$tmp/all")
[ -z "$failed" ] || wrong "$(printf '%s\n' "$failed" | wc -l) of $(wc -l <"$tmp/all") requests failed: $failed"
[ "$(wc -l <"$tmp/all")" -ge 60 ] || wrong "there was no load: $(wc -l <"$tmp/all") requests"
[ "$(texts '*' | wc -l)" = 1 ] || wrong "answers differ: $(texts '*')"
result "all replicas are restarted under load with no request lost"

# a stream holds a replica in its drain; whoever belongs there goes elsewhere meanwhile
stream last user-0 4000 &
streams=$!
until_true 10 begun last
at=$(sed -n 's/^x-served-by: gpu\([0-9]\).*/\1/p' "$tmp/head.last")
kill -TERM "${pids[at]}"
until_true 10 grep -q 'no more requests are taken' "$tmp/log.$at"
late=$({
    printf '%s' "${ask:0:10}"
    sleep 0.3
    printf '%s' "${ask:10}"
} | curl -s -m 60 --unix-socket "$tmp/front" -o "$tmp/late" -w '%{http_code}' -X POST -T - -H expect: -H 'x-session-id: user-0' http://x/v1/chat/completions)
[ "$late" = 200 ] || wrong "a body behind its head: $late $(cat "$tmp/late")"
round e
kill -0 "${pids[at]}" 2>/dev/null || wrong "it did not wait for its stream"
[ "$(grep -c '^200 gpu' "$tmp/round.e")" = 20 ] || wrong "not all were answered: $(cat "$tmp/round.e")"
grep -q " gpu$at " "$tmp/round.e" && wrong "it took new work while it went down"
kill $(cat "$tmp/pid.last")
wait $streams
wait "${pids[at]}"
rc=$?
[ $rc = 0 ] || wrong "it ended with $rc: $(tail -3 "$tmp/log.$at")"
result "a replica that goes down keeps its streams and takes nothing new"

figures=$(curl -s --unix-socket "$tmp/figures" http://x/metrics)
case $figures in *haproxy_backend_http_responses_total*) ;; *) wrong "HAProxy has no figures: ${figures:0:200}" ;; esac
kill $proxy
wait $proxy 2>/dev/null
proxy=
for i in 0 1 2; do kill -TERM "${pids[i]}" 2>/dev/null; done
wait
for i in 0 1 2; do grep -q 'error\|fail' "$tmp/log.$i" && wrong "replica $i: $(grep 'error\|fail' "$tmp/log.$i" | head -3)"; done
result "figures"
