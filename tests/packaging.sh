#!/bin/bash
# What is shipped to run several servers: units of systemd, and the figures by which a router of
# Kubernetes picks one. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
src=${QUASAR_SRCDIR:?}
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
unit=$src/packaging/systemd/quasar@.service

echo 1..4
if command -v systemd-analyze >/dev/null; then
    for u in service socket; do # the program where it is, not where it will be
        sed "s|/usr/bin/quasar|$q|" "$src/packaging/systemd/quasar@.$u" >"$tmp/quasar@0.$u"
    done
    said=$(systemd-analyze verify --man=no "$tmp/quasar@0.service" "$tmp/quasar@0.socket" 2>&1)
    rc=$?
    case $said in
    *'Failed to initialize manager'* | *'ermission denied'* | *'No such file or directory'*)
        skip 'the units are in order' 'systemd-analyze cannot run here' ;;
    *)
        [ $rc = 0 ] && [ -z "$said" ] || wrong "$said"
        result 'the units are in order' ;;
    esac
else
    skip 'the units are in order' 'systemd-analyze is missing'
fi

setting() { sed -n "s/.*[ =]$1=\([^ ]*\).*/\1/p" "$unit"; }
for v in $(grep -o 'QUASAR_[A-Z_]*=' "$unit" | grep -v '^QUASAR_=' | sort -u); do
    option=$(echo "${v%=}" | sed 's/^QUASAR_//' | tr 'A-Z_' 'a-z-')
    "$q" serve --help | grep -q -- "--$option " || wrong "$v is no option of serve"
done
[ -n "$(setting QUASAR_GRACE)" ] && [ "$(setting QUASAR_GRACE)" -lt "$(sed -n 's/^TimeoutStopSec=//p' "$unit")" ] ||
    wrong "systemd kills before the grace of $(setting QUASAR_GRACE) s is over"
grep -q '^Type=notify' "$unit" || wrong "it does not wait until the model is loaded"
result 'what the units set are options, and systemd waits as long as the server does'

if ! command -v curl >/dev/null; then
    skip 'an endpoint picker finds its four gauges' 'curl is missing'
    skip 'they follow the load' 'curl is missing'
    exit 0
fi
cat >"$tmp/script" <<'S'
round 1ms
answer
  repeat 4000 word%d 
S
"$q" serve --backend cpu --threads 1 --port 0 --prefix-cache off --engine "script:$tmp/script" --slots 3 >/dev/null 2>"$tmp/log" &
pid=$!
for ((i = 0; i < 1500; i++)); do
    grep -q 'is ready' "$tmp/log" && grep -q '^listening at' "$tmp/log" && break
    sleep 0.02
done
url=$(sed -n 's/^listening at //p' "$tmp/log")
# pick: scrapes as an endpoint picker does, by names alone; sets queued, running, usage, size, count
value() { sed -n "s/^$1{[^}]*} \([-+0-9.e]*\)\$/\1/p" "$tmp/metrics"; }
label() { sed -n "s/^$1{.*[,{]$2=\"\([^\"]*\)\".*/\1/p" "$tmp/metrics"; }
pick() {
    curl -s -m 20 "$url/metrics" >"$tmp/metrics"
    queued=$(value vllm:num_requests_waiting)
    running=$(value vllm:num_requests_running)
    usage=$(value vllm:kv_cache_usage_perc)
    size=$(label vllm:cache_config_info block_size)
    count=$(label vllm:cache_config_info num_gpu_blocks)
}
pick
[ "$queued $running $usage" = '0 0 0' ] || wrong "an idle server: queued $queued, running $running, usage $usage"
[ "${size:-0}" -gt 0 ] && [ "${count:-0}" -gt 0 ] || wrong "blocks: $count of $size tokens"
result 'an endpoint picker finds its gauges'

streams=
for i in 1 2 3 4 5; do
    curl -sN -m 60 -o "$tmp/s$i" "$url/v1/chat/completions" -d '{"stream":true,"max_tokens":6000,"messages":[{"role":"user","content":"go"}]}' &
    streams="$streams $!"
done
for ((i = 0; i < 1000; i++)); do
    pick
    [ $((queued + running)) = 5 ] && [ "$usage" != 0 ] && break
    sleep 0.01
done
[ $((queued + running)) = 5 ] && [ "$queued" -ge 2 ] && [ "$running" -ge 1 ] || wrong "queued $queued, running $running"
awk -v u="$usage" 'BEGIN { exit !(u > 0 && u <= 1) }' || wrong "usage $usage is not in 0 .. 1"
kill $streams
wait $streams 2>/dev/null
kill -TERM $pid
wait $pid
rc=$?
pid=
[ $rc = 0 ] || wrong "it ended with $rc"
result 'they follow the load'
