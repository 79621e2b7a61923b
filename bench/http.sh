#!/bin/bash
# What HTTP costs, as tables for LOG.md: answers per second to GET /v1/models over kept connections,
# and one streamed answer against quasar run, the engine at one thread, by turns.
# usage: bench/http.sh BUILD_DIR [TURNS]; make bench/httpload in BUILD_DIR first.
set -eu
build=${1:?build folder}
turns=${2:-7}
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$tmp"' EXIT
export XDG_STATE_HOME=$tmp
tokens=600
common="--backend cpu --threads 1 --ctx 2048 --prefix-cache off"
"$build/quasar" serve $common --port 0 >/dev/null 2>"$tmp/log" &
pid=$!
until grep -q 'is ready' "$tmp/log"; do sleep 0.05; done
port=$(sed -n 's/^listening at .*://p' "$tmp/log")
echo '| connections | answers/s |'
echo '|---:|---:|'
for n in 1 8 64 512; do
    echo "| $n | $("$build/bench/httpload" 127.0.0.1 "$port" /v1/models $n 3 | cut -d' ' -f1) |"
done
printf 'Once upon a time there was a' >"$tmp/prompt"
ask="{\"prompt\":\"$(cat "$tmp/prompt")\",\"stream\":true,\"max_tokens\":$tokens,\"temperature\":0,\"ignore_eos\":true}"
for ((i = 0; i < turns; i++)); do
    "${CURL:-curl}" -sN -o /dev/null "http://127.0.0.1:$port/v1/completions" -d "$ask"
    "$build/quasar" run $common --raw --temp 0 --ignore-eos -n $tokens -f "$tmp/prompt" --json |
        grep -o '"decode_s":[0-9.e-]*' | cut -d: -f2 >>"$tmp/run"
done
kill $pid
wait $pid
pid=
grep -o '[0-9.]* tok/s' "$tmp/log" | cut -d' ' -f1 | sort -n >"$tmp/http.s"
awk -v n=$((tokens - 1)) '{ print n / $1 }' "$tmp/run" | sort -n >"$tmp/run.s"
middle() { sed -n "$((turns / 2 + 1))p" "$1"; }
echo
echo '| | tok/s, median | best |'
echo '|---|---:|---:|'
echo "| quasar run | $(middle "$tmp/run.s") | $(tail -1 "$tmp/run.s") |"
echo "| streamed over HTTP | $(middle "$tmp/http.s") | $(tail -1 "$tmp/http.s") |"
