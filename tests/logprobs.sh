#!/bin/bash
# Log probabilities over HTTP: as quasar score has them, and the same whole, streamed, and from
# quasar run. The demo model. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
engine="--backend cpu --threads 1 --ctx 2048"
# numbers KEY: the list of numbers under it, one a line
numbers() { grep -o "\"$1\":\[[^]]*\]" | sed 's/.*\[//;s/\]//' | tr ',' '\n' | grep .; }
# near LIST LIST LIMIT: same length, and nowhere further apart
near() {
    paste -d' ' "$1" "$2" | awk -v limit="$3" '
        NF != 2 { print "line " NR ": one is missing"; exit }
        { d = $1 - $2; if (d < 0) d = -d; if (d > limit) { print "line " NR ": " $1 " and " $2; exit } }'
}
echo 1..5
"$q" serve $engine --port 0 --prefix-cache off >/dev/null 2>"$tmp/log" &
pid=$!
for ((i = 0; i < 3000; i++)); do
    grep -q 'is ready' "$tmp/log" && break
    sleep 0.02
done
url=$(sed -n 's/^listening at //p' "$tmp/log")
ask='"max_tokens":32,"temperature":0,"ignore_eos":true,"logprobs":2'
prompt='Once upon a time there was a'
ids=$(curl -s "$url/tokenize" -d "{\"prompt\":\"$prompt\"}" | grep -o '\[.*\]')
curl -s -m 60 "$url/v1/completions" -d "{\"prompt\":$ids,$ask}" >"$tmp/whole"
numbers token_logprobs <"$tmp/whole" >"$tmp/http"
[ "$(wc -l <"$tmp/http")" = 32 ] || wrong "there are not 32: $(cat "$tmp/whole")"
text=$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' "$tmp/whole")
printf "$prompt$text" >"$tmp/text"
all=$(curl -s "$url/tokenize" -d "{\"prompt\":\"$prompt$text\"}" | grep -o '\[.*\]' | tr -d '[]')
first=$(printf '%s' "$ids" | tr ',' '\n' | grep -c .)
for as in prefill decode; do
    "$q" score $engine --json --as $as --tokens "$all" | grep -o '"logprob":[-0-9.e]*' | cut -d: -f2 | tail -n +"$first" | head -32 >"$tmp/score"
    far=$(near "$tmp/http" "$tmp/score" 0.001)
    [ -z "$far" ] || wrong "score --as $as: $far"
done
result "within 1e-3 of score, of a prompt read at once and of one decoded"
"$q" score $engine --json --as decode --from "$first" --tokens "$all" | grep -o '"logprob":[-0-9.e]*' | cut -d: -f2 | tail -n +"$first" | head -32 >"$tmp/score"
awk '{ printf "%.9g\n", $1 }' "$tmp/http" >"$tmp/http.p" # as many digits as tell floats apart
cmp -s "$tmp/http.p" "$tmp/score" || wrong "they differ: $(diff "$tmp/http.p" "$tmp/score" | head -3)"
result "those of score to the bit, where it reads the prompt at once and decodes the rest"

curl -sN -m 60 "$url/v1/completions" -d "{\"stream\":true,\"prompt\":$ids,$ask}" >"$tmp/stream"
numbers token_logprobs <"$tmp/stream" >"$tmp/streamed"
cmp -s "$tmp/http" "$tmp/streamed" || wrong "streamed ones differ: $(diff "$tmp/http" "$tmp/streamed" | head -3)"
chunks=$(grep -c '"token_logprobs"' "$tmp/stream")
[ "$chunks" -gt 3 ] || wrong "they come in $chunks chunks"
offsets=$(numbers text_offset <"$tmp/stream" | sort -n | uniq | wc -l)
[ "$offsets" = 32 ] || wrong "there are $offsets offsets"
# texts KEY: the JSON strings under it, one a line; several lists follow one another
texts() { grep -o "\"$1\":\[\(\"\(\\\\.\|[^\"\\]\)*\",*\)*\]" | sed "s/^\"$1\":\[//;s/\]$//" | grep -o '"\(\\.\|[^"\]\)*"'; }
# likeliest: the objects of top_logprobs, one a line
likeliest() { grep -o '"top_logprobs":\[[^]]*\]' | grep -o '{"[^}]*}'; }
for what in 'texts tokens' likeliest; do
    for f in whole stream; do $what <"$tmp/$f" >"$tmp/$f.t"; done
    [ "$(wc -l <"$tmp/whole.t")" = 32 ] || wrong "$what: of 32 tokens there are $(wc -l <"$tmp/whole.t")"
    cmp -s "$tmp/whole.t" "$tmp/stream.t" || wrong "$what: streamed ones differ: $(diff "$tmp/whole.t" "$tmp/stream.t" | head -3)"
done
result "the same in a stream, with the chunks of their tokens"

chat='"messages":[{"role":"user","content":"Hello"}],"max_tokens":24,"temperature":0,"ignore_eos":true,"logprobs":true,"top_logprobs":3'
curl -s -m 60 "$url/v1/chat/completions" -d "{$chat}" >"$tmp/whole"
curl -sN -m 60 "$url/v1/chat/completions" -d "{\"stream\":true,$chat}" >"$tmp/stream"
for f in whole stream; do grep -o '"token":"\(\\.\|[^"\]\)*","logprob":[-0-9.e]*,"bytes":\[[0-9,]*\]' "$tmp/$f" >"$tmp/$f.p"; done
[ "$(wc -l <"$tmp/whole.p")" = 96 ] || wrong "of 24 tokens and 3 likeliest there are $(wc -l <"$tmp/whole.p")"
cmp -s "$tmp/whole.p" "$tmp/stream.p" || wrong "streamed ones differ: $(diff "$tmp/whole.p" "$tmp/stream.p" | head -3)"
result "chat: the same in a stream"

printf '%s' "$prompt" >"$tmp/prompt"
"$q" run $engine --raw --json --logprobs 0 --temp 0 --ignore-eos --prefix-cache off -n 32 -f "$tmp/prompt" >"$tmp/run"
grep -o '"logprob":[-0-9.e]*' "$tmp/run" | cut -d: -f2 >"$tmp/run.p"
awk '{ printf "%.9g\n", $1 }' "$tmp/http" >"$tmp/http.p"
cmp -s "$tmp/http.p" "$tmp/run.p" || wrong "run's differ: $(diff "$tmp/http.p" "$tmp/run.p" | head -3)"
result "to the bit those of quasar run"
kill $pid
wait $pid
pid=
