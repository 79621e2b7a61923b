#!/bin/bash
# quasar serve against rude clients: requests that say two things, paths that try something,
# connections that drip, vanish or come by the hundred, large bodies, sockets of all kinds,
# encryption, pages of other sites. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
hammer=${QUASAR_BUILDDIR:?}/tests/http/hammer
# start OPTIONS: serve with the script; sets $url and $port
start() {
    serve --engine "script:$tmp/script" "$@"
    port=${url##*:}
}
stop() {
    kill -TERM $pid
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
    body=$(tr -d '\0' <"$tmp/body" 2>/dev/null)
    [ "$got" = "$want" ] || wrong "$path: $got, not $want: $body"
}
has() {
    for t in "$@"; do
        case $body in *"$t"*) ;; *) wrong "$t is not in: $body" ;; esac
    done
}
head_has() { grep -qi "^$1" "$tmp/head" || wrong "no $1 in: $(cat "$tmp/head")"; }
# once: one answer came
once() {
    local heads
    heads=$(grep -ac '^HTTP/1' <<<"$body")
    [ "$heads" = 1 ] || wrong "$heads heads: $body"
}
# raw STATUS TEXT: what is sent as it is, printf's escapes resolved
raw() {
    body=$(printf "$2" | "$hammer" "$port" raw | tr -d '\0')
    case $body in "HTTP/1.1 $1"*) ;; *) wrong "$2: not $1: $body" ;; esac
}
# quiet: no answer is under way, and all the cache is free
quiet() {
    for ((i = 0; i < 500; i++)); do
        body=$(curl -s -m 10 "$url/v1/status")
        case $body in *'"requests":0,"running":0,"waiting":0'*) break ;; esac
        sleep 0.02
    done
    has '"requests":0,"running":0,"waiting":0'
    body=$(curl -s -m 10 "$url/metrics")
    has 'vllm:kv_cache_usage_perc{model_name="demo"} 0
'
}
chat='{"messages":[{"role":"user","content":"hello"}],"temperature":0}'

cat >"$tmp/script" <<'S'
round 1ms
answer /endless/
  repeat 20000 word%d 
answer /patient/
  pause 6s
  text At last.
answer
  text Hello from the script.
S

echo 1..17
start --max-queue 1024 --slots 8
# streams that have nothing to say for a while, looked at below
patient='"stream":true,"max_tokens":20,"messages":[{"role":"user","content":"be patient"}]'
curl -sN -m 60 -o "$tmp/ping.1" "$url/v1/messages" -d "{$patient}" &
pings=$!
curl -sN -m 60 -o "$tmp/ping.2" "$url/v1/chat/completions" -d "{$patient}" &
pings="$pings $!"
curl -sN -m 60 -o "$tmp/ping.3" "$url/v1/responses" -d '{"stream":true,"input":"be patient"}' &
pings="$pings $!"
get 405 /v1/chat/completions && head_has 'Allow: POST'
get 405 /tokenize && head_has 'Allow: POST'
get 405 /v1/messages/count_tokens && head_has 'Allow: POST'
get 405 /v1/models -d '{}' && head_has 'Allow: GET'
get 405 /health -X DELETE && head_has 'Allow: GET'
get 404 /v1/models/..%2f..%2fetc%2fpasswd
get 404 /../../etc/passwd --path-as-is
get 404 /health%00
get 404 /%68ealth
get 404 /v1/models/de%00mo
get 404 '/v1/models/%zz'
get 200 /v1/models/%64emo
get 200 '/health?x=1&y=%00'
result "paths and methods"

raw 400 'GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n'
raw 400 'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
raw 400 'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n'
raw 413 'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n'
raw 400 'GET /health HTTP/1.1\r\n\r\n' && has '"error":' Host && once
raw 400 'GET /health HTTP/1.1\r\nHost : x\r\n\r\n' && has '"error":' && once
raw 400 'POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length : 15\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n' && once
raw 200 'GET /health HTTP/1.0\r\n\r\n' && once
for target in '/health\0zz' '/health\0' '/health\0?a=1' '/health\0?' '/health?a=\0' '\0/health'; do
    raw 400 "GET $target HTTP/1.1\r\nHost: x\r\n\r\n" && once
done
raw 200 'GET /health?a=1&b HTTP/1.1\r\nHost: x\r\n\r\n' && once
raw 200 'GET /v1/models/demo?a=%%20+ HTTP/1.1\r\nHost: x\r\n\r\nGET /version? HTTP/1.1\r\nHost: x\r\n\r\n' && has '"version"' '"display_name"'
raw 400 'GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n'
raw 400 'POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}'
raw 200 'POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{"prom\r\n9\r\npt":"hi"}\r\n0\r\n\r\n'
has '"count":1'
raw 200 'GET /version HTTP/1.1\r\nHost: x\r\nx-session-id: a\tb\r\nX: \377\376\r\n\r\n'
case $body in *'x-session-id'*) wrong "a session with a tab is given back" ;; esac
raw 200 'GET /version HTTP/1.1\r\nHost: x\r\nx-session-id: plain-1\r\n\r\n' && has 'x-session-id: plain-1'
raw 200 'GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n' && has '"version"'
result "requests whose end or goal is said twice"

printf '{"messages":[{"role":"user","content":"\377\376"}]}' >"$tmp/b" && get 400 /v1/chat/completions --data-binary "@$tmp/b" && has 'not valid JSON'
get 200 /tokenize -d '{"prompt":"a\u0000b"}' && has '"count":3'
get 200 /tokenize -d '{"prompt":""}' && has '"count":0'
get 200 /v1/chat/completions -d '{"model":"a\r\nX-Evil: 1","messages":[{"role":"user","content":"hello"}]}'
grep -qi '^X-Evil' "$tmp/head" && wrong "a header was smuggled in"
get 400 /v1/chat/completions -d "{\"tools\":5,${chat#\{}" && has '"param":"tools"'
get 400 /v1/chat/completions -d "{\"tools\":[5],${chat#\{}" && has '"param":"tools"' 'tools[0]: is a number'
get 400 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":5}}],${chat#\{}" && has 'tools[0].function.name: is a number'
get 400 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}],${chat#\{}" && has 'parameters is an array'
get 400 /v1/chat/completions -d "{\"tools\":[{}],${chat#\{}" && has 'tools[0].name: is missing'
get 400 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\"}],${chat#\{}" && has 'tools[0].name: is missing'
long=$(printf 'x%.0s' $(seq 1 201))
for name in 'a>b' 'a<b' 'a\nb' 'a\u0000b' ' a' 'a\t' "'a" 'a\"' '`a' '' "$long"; do
    get 400 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{\"name\":\"$name\"}}],${chat#\{}" && has '"param":"tools"' 'tools[1].function.name: '
    get 400 /v1/messages -d "{\"max_tokens\":5,\"tools\":[{\"name\":\"$name\",\"input_schema\":{}}],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}" && has 'tools[0].name: '
    get 400 /v1/responses -d "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"$name\"}]}]}" && has 'tools[0].tools[0].name: '
done
for name in 'a b' 'a\"b' 'é/=:' "${long%x}"; do
    get 200 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"$name\"}}],${chat#\{}"
done
get 400 /v1/chat/completions -d '{"messages":[5]}' && has '"param":"messages"' 'messages[0] is not an object'
get 400 /v1/chat/completions -d '{"messages":[{"role":"user","content":"x"},{"role":"user","content":7}]}' && has '"param":"messages"' 'messages[1]: '
get 400 /v1/chat/completions -d '{"messages":[{"role":"system","content":"s"},{"role":"user","content":[7]}]}' && has 'messages[1]: '
get 400 /v1/chat/completions -d '{"messages":[{"content":"x"}]}' && has 'messages[0]: ' 'role'
get 400 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":"x"},5]}' && has 'messages[1]: is a number'
get 400 /v1/responses -d '{"input":[5]}' && has '"param":"input"' 'input[0]: is a number'
get 400 /v1/responses -d '{"input":[{"type":"strange"}]}' && has '"param":"input"' 'no item'
get 400 /v1/chat/completions -d "{\"guided_regex\":\"a(\",${chat#\{}" && has '"param":"guided_regex"'
get 400 /v1/chat/completions -d "{\"guided_grammar\":\"root ::= nothing\",${chat#\{}" && has '"param":"guided_grammar"'
get 400 /v1/chat/completions -d "{\"guided_choice\":[5],${chat#\{}" && has '"param":"guided_choice"'
get 400 /v1/responses -d '{"input":"x","text":{"format":{"type":"json_schema","schema":{"type":"odd"}}}}' && has '"param":"text.format"'
get 400 /v1/chat/completions -d "{\"thinking\":{\"type\":\"zz\"},${chat#\{}" && has '"param":"thinking.type"'
get 400 /v1/messages -d '{"max_tokens":5,"thinking":{"type":"zz"},"messages":[{"role":"user","content":"x"}]}' && has 'thinking.type'
get 200 /v1/messages -d '{"max_tokens":5,"thinking":{"type":"adaptive","display":"omitted"},"messages":[{"role":"user","content":"x"}]}'
get 400 /v1/chat/completions -d "{\"top_logprobs\":2,${chat#\{}" && has '"param":"top_logprobs"' 'needs logprobs'
get 200 /v1/chat/completions -d "{\"top_logprobs\":0,${chat#\{}"
get 400 /v1/chat/completions -d "{\"logprobs\":true,\"top_logprobs\":21,${chat#\{}" && has '"param":"top_logprobs"' 'from 0 to 20'
for many in 0 17; do get 400 /v1/chat/completions -d "{\"n\":$many,${chat#\{}" && has '"param":"n"' 'from 1 to 16'; done
for path in chat/completions completions responses; do
    get 400 /v1/$path -d '{"temperature":2.5,"prompt":"x","input":"x","messages":[{"role":"user","content":"x"}]}' && has '"param":"temperature"' 'from 0 to 2'
    get 200 /v1/$path -d '{"temperature":2,"max_tokens":3,"prompt":"x","input":"x","messages":[{"role":"user","content":"x"}]}'
done
get 400 /v1/messages -d '{"max_tokens":5,"temperature":1.1,"messages":[{"role":"user","content":"x"}]}' && has 'temperature' 'from 0 to 1'
get 400 /v1/chat/completions -d '{"messages":[],"messages":[]}' && has 'duplicate key'
get 400 /v1/chat/completions -d "{\"tool_choice\":7,${chat#\{}" && has '"param":"tool_choice"'
get 400 /v1/chat/completions -d "{\"reasoning_effort\":7,${chat#\{}" && has '"param":"reasoning_effort"'
get 400 /v1/chat/completions -d "{\"reasoning\":{\"effort\":7},${chat#\{}" && has '"param":"reasoning.effort"'
get 400 /v1/messages -d '{"max_tokens":5,"tools":[{"name":"f","input_schema":3}],"messages":[{"role":"user","content":"x"}]}' && has '"type":"error"' 'input_schema is a number'
get 400 /v1/messages -d '{"max_tokens":5,"output_config":{"effort":1},"messages":[{"role":"user","content":"x"}]}' && has 'output_config.effort'
get 400 /v1/messages -d '{"max_tokens":5,"thinking":[],"messages":[{"role":"user","content":"x"}]}' && has 'thinking'
get 400 /v1/messages -d '{"max_tokens":5,"tool_choice":"auto","messages":[{"role":"user","content":"x"}]}' && has 'tool_choice'
get 400 /v1/responses -d '{"input":"x","tools":[{"type":"function","name":4}]}' && has '"param":"tools"'
get 200 /v1/responses -d '{"input":"x","tools":[{"type":"web_search"},{"type":"tool_search","parameters":{}}],"max_output_tokens":5}'
get 400 /v1/responses -d '{"input":"x","reasoning":{"effort":[]}}' && has '"param":"reasoning.effort"'
get 200 /v1/chat/completions -d "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"maximum\":18446744073709551615,\"minimum\":-99999999999999999999,\"type\":[\"string\",\"null\"]}}}}}],${chat#\{}"
get 200 /v1/messages -d '{"max_tokens":9,"temperature":0,"min_p":0.1,"presence_penalty":0.5,"seed":3,"logit_bias":{"5":-100},"messages":[{"role":"user","content":"x"}]}'
get 400 /v1/messages -d '{"max_tokens":9,"min_p":7,"messages":[{"role":"user","content":"x"}]}' && has 'min_p'
get 400 /v1/responses -d '{"input":"x","repetition_penalty":-7}' && has '"param":"repetition_penalty"'
get 200 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{}}]}]}]}'
result "bodies of wrong bytes and types"

# The client sends all of it before it reads the answer.
head -c 34000000 /dev/zero >"$tmp/b"
get 413 /v1/messages -H 'Expect:' --data-binary "@$tmp/b" && has request_too_large
get 413 /v1/messages -H 'Expect: 100-continue' --data-binary "@$tmp/b"
get 413 /v1/chat/completions -H 'Expect:' -H 'Transfer-Encoding: chunked' --data-binary "@$tmp/b" && has 'too large'
{
    printf '{"prompt":"'
    head -c 10000000 /dev/zero | tr '\0' 'a'
    printf '"}'
} >"$tmp/b"
get 400 /v1/completions --data-binary "@$tmp/b" && has 'maximum context length'
result "bodies of 10 and 34 MB"

# Other requests are answered while a large one is turned into tokens.
{
    printf '{"max_tokens":5,"messages":[{"role":"user","content":"'
    for ((i = 0; i < 20000; i++)); do printf '%d is a word of a long text, and this is how it goes on and on; ' $i; done
    printf '"}]}'
} >"$tmp/b"
curl -s -o "$tmp/large" "$url/v1/messages/count_tokens" --data-binary "@$tmp/b" &
large=$!
answered=0
while kill -0 $large 2>/dev/null; do
    [ "$(curl -s -m 20 -o /dev/null -w '%{http_code}' "$url/v1/chat/completions" -d "$chat")" = 200 ] && answered=$((answered + 1))
done
wait $large
grep -q '"input_tokens":[0-9]\{6,\}' "$tmp/large" || wrong "the large one: $(cut -c1-200 "$tmp/large")"
[ $answered -ge 1 ] || wrong "nobody else was answered meanwhile"
result "a large prompt beside small ones"

# counting is what the request itself is told; requests of different makings
counts=20
[ -z "${QUASAR_LONG-}" ] || counts=200
for i in $(seq 1 $counts); do
    m='"max_tokens":2,"system":"'$(printf 's%.0s' $(seq 1 "$i"))'","messages":[{"role":"user","content":"q'$i'"}'
    [ $((i % 2)) = 0 ] && m="$m,{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"a $i\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"again\"}]}"
    m="$m]"
    [ $((i % 3)) = 0 ] && m="$m,\"tools\":[{\"name\":\"f$i\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}]"
    [ $((i % 4)) = 0 ] && m="$m,\"thinking\":{\"type\":\"disabled\"}"
    get 200 /v1/messages/count_tokens -d "{$m}" && counted=$(grep -o '[0-9]*' "$tmp/body")
    get 200 /v1/messages -d "{$m}"
    used=$(sed 's/.*"input_tokens":\([0-9]*\).*"cache_read_input_tokens":\([0-9]*\).*/\1 \2/' "$tmp/body")
    [ "$counted" = $((${used% *} + ${used#* })) ] || wrong "$i: counted $counted, used $used"
done
result "counting equals usage"

wait $pings
for i in 1 2 3; do
    # one at the beginning, since the prompt is accepted, and one after 5 s
    ticks=$(grep -c '^event: ping\|^:\|^event: keepalive' "$tmp/ping.$i")
    [ "$ticks" -ge 1 ] && grep -q 'last' "$tmp/ping.$i" || wrong "$i: $ticks signs of life: $(head -c 400 "$tmp/ping.$i")"
done
result "signs of life while there is nothing to say"

"$hammer" "$port" deaf >"$tmp/deaf" &
deaf=$!
for ((i = 0; i < 500; i++)); do
    get 200 /v1/status
    case $body in *'"running":1'*) break ;; esac
    sleep 0.02
done
before=$(awk '/VmRSS/ { print $2 }' /proc/$pid/status)
for i in 1 2 3 4 5; do get 200 /v1/chat/completions -d "$chat" && has 'Hello from the script'; done
sleep 1
after=$(awk '/VmRSS/ { print $2 }' /proc/$pid/status)
[ $((after - before)) -lt 32768 ] || wrong "the server grew from $before to $after KB for a client that reads nothing"
kill $deaf
wait $deaf 2>/dev/null
quiet
result "a client that reads nothing holds up nobody"

got=$("$hammer" "$port" many 512)
[ "$got" = 512 ] || wrong "of 512 streams at a time $got were whole"
quiet
result "512 connections at a time"

curl -s -m 0.5 -o /dev/null "$url/v1/messages" -d '{"max_tokens":20000,"messages":[{"role":"user","content":"endless"}]}'
quiet
"$hammer" "$port" vanish 1000 7 || wrong "it could not be reached"
quiet
for ((i = 0; i < 200; i++)); do
    left=$(ls /proc/$pid/fd | wc -l)
    [ "$left" -lt 40 ] && break
    sleep 0.05
done
[ "$left" -lt 40 ] || wrong "$left descriptors are open after all clients left"
get 200 /v1/chat/completions -d "$chat" && has 'Hello from the script'
result "1,000 clients that leave at random"

stop
start --max-queue 2
"$hammer" "$port" drip >"$tmp/drip"
[ "$(cat "$tmp/drip")" -lt 40000 ] || wrong "a header that drips is listened to for $(cat "$tmp/drip") ms"
result "a header that never ends"

for i in 1 2; do
    curl -sN -m 30 -o /dev/null "$url/v1/chat/completions" -d '{"stream":true,"messages":[{"role":"user","content":"endless"}],"max_tokens":8000}' &
done
for ((i = 0; i < 500; i++)); do
    get 200 /v1/status
    case $body in *'"requests":2'*) break ;; esac
    sleep 0.02
done
get 200 /metrics && before=$(grep 'request_success_total.*abort' "$tmp/body")
get 429 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":"x"}]}' && head_has 'Retry-After: ' && has rate_limit_error
get 200 /v1/messages/count_tokens -d '{"messages":[{"role":"user","content":"x"}]}'
get 200 /metrics && has 'quasar:requests_refused_total{model_name="demo",status="429"} 1' "$before"
kill -TERM $pid
sleep 0.2
kill -TERM $pid
wait
pid=
result "a full queue refuses at once, and still counts tokens"

start
for i in 1 2 3; do get 200 /v1/chat/completions -d "$chat"; done
get 400 /v1/completions -d '{"max_tokens":1,"prompt":[99999999]}'
get 200 /metrics
has 'vllm:time_to_first_token_seconds_count{model_name="demo"} 3' \
    'vllm:e2e_request_latency_seconds_count{model_name="demo"} 3' \
    'vllm:request_success_total{model_name="demo",finished_reason="stop"} 3' \
    'vllm:request_success_total{model_name="demo",finished_reason="abort"} 0' \
    'quasar:requests_refused_total{model_name="demo",status="400"} 1' \
    'vllm:request_prompt_tokens_bucket{model_name="demo",le="+Inf"} 3' \
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="demo",position="0"}'
# every line is a comment or NAME{LABELS} NUMBER, and each name has its type before it
odd=$(awk '/^# TYPE/ { t[$3] = 1; next } /^#/ { next }
    !/^[a-z0-9:_]+\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\} [-+0-9.e]+$/ { print; next }
    { name = $1; sub(/\{.*/, "", name); base = name; sub(/_(bucket|sum|count)$/, "", base)
      if (!t[name] && !t[base]) print }' "$tmp/body")
[ -z "$odd" ] || wrong "these lines are none of Prometheus's: $odd"
get 200 '/health?verify=1' && has '"ok"'
grep -q 'prompt [0-9]* reused [0-9]* output [0-9]* prefill .* tok/s .* tok/round stop' "$tmp/log" || wrong "no line of the answers: $(cat "$tmp/log")"
stop
result "figures and lines of the log"

start --template 3.6
get 400 /v1/chat/completions -d '{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[5]}]}' && has 'messages[1]: tool_calls[0]'
get 400 /v1/chat/completions -d '{"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"x"},{"role":"assistant","tool_calls":[5]}]}' && has 'messages[3]: tool_calls[0]'
stop
result "messages are counted as they were given, whatever the template makes of them"

start --listen "unix:$tmp/sock"
[ "$(stat -c %a "$tmp/sock")" = 600 ] || wrong "the socket has mode $(stat -c %a "$tmp/sock")"
url=http://localhost
get 200 /health --unix-socket "$tmp/sock" && has ok
"$q" serve --backend cpu --engine "script:$tmp/script" --listen "unix:$tmp/sock" >/dev/null 2>"$tmp/second"
[ $? = 1 ] && grep -q 'somebody listens there already' "$tmp/second" || wrong "a second one: $(cat "$tmp/second")"
get 200 /health --unix-socket "$tmp/sock"
kill -9 $pid
wait $pid 2>/dev/null
[ -S "$tmp/sock" ] || wrong "there is nothing stale"
start --listen "unix:$tmp/sock"
url=http://localhost
get 200 /health --unix-socket "$tmp/sock"
stop
[ ! -e "$tmp/sock" ] || wrong "the socket is left behind"
: >"$tmp/file"
"$q" serve --backend cpu --engine "script:$tmp/script" --listen "unix:$tmp/file" >/dev/null 2>"$tmp/second"
[ $? = 1 ] && grep -q 'is no socket' "$tmp/second" || wrong "a file in its place: $(cat "$tmp/second")"
result "a socket in the file system"

for bad_key in '--api-key=' "--api-key-file=$tmp/file"; do
    "$q" serve --backend cpu --engine "script:$tmp/script" "$bad_key" >/dev/null 2>"$tmp/second"
    [ $? = 2 ] || wrong "$bad_key is taken: $(cat "$tmp/second")"
done
QUASAR_API_KEY= "$q" serve --backend cpu --engine "script:$tmp/script" >/dev/null 2>"$tmp/second"
[ $? = 2 ] && grep -q QUASAR_API_KEY "$tmp/second" || wrong "an empty key of the environment: $(cat "$tmp/second")"
QUASAR_API_KEY=env1 start --cors https://a.example
get 401 /v1/models
get 200 /v1/models -H 'x-api-key: env1'
get 403 /v1/models -H 'x-api-key: env1' -H 'Origin: https://b.example'
get 200 /v1/models -H 'x-api-key: env1' -H 'Origin: https://a.example' && head_has 'Access-Control-Allow-Origin: https://a.example'
get 204 /v1/chat/completions -X OPTIONS -H 'Origin: https://a.example' -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: x-api-key'
head_has 'Access-Control-Allow-Headers: x-api-key' && head_has 'Access-Control-Allow-Methods: '
stop
start --host 0.0.0.0
grep -q 'warning: whoever reaches this address' "$tmp/log" || wrong "no warning: $(cat "$tmp/log")"
stop
result "keys of all sources; pages of other sites; a warning in public"

if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$tmp/key.pem" -out "$tmp/cert.pem" 2>/dev/null
    start --tls-cert "$tmp/cert.pem" --tls-key "$tmp/key.pem"
    case $url in https://*) ;; *) wrong "it says $url" ;; esac
    url=https://localhost:$port
    get 200 /health --cacert "$tmp/cert.pem"
    get 200 /v1/chat/completions --cacert "$tmp/cert.pem" -d "$chat" && has 'Hello from the script'
    get 200 /v1/chat/completions --cacert "$tmp/cert.pem" -N -d "{\"stream\":true,${chat#\{}" && has 'data: [DONE]'
    stop
    "$q" serve --backend cpu --engine "script:$tmp/script" --tls-cert "$tmp/key.pem" --tls-key "$tmp/key.pem" --port 0 >/dev/null 2>"$tmp/second"
    [ $? = 2 ] && grep -q 'no certificate' "$tmp/second" || wrong "a key as certificate: $(cat "$tmp/second")"
    "$q" serve --backend cpu --engine "script:$tmp/script" --tls-cert "$tmp/cert.pem" --port 0 >/dev/null 2>"$tmp/second"
    [ $? = 2 ] && grep -q 'needs both' "$tmp/second" || wrong "a certificate alone: $(cat "$tmp/second")"
    result "encryption"
else
    n=$((n + 1))
    echo "ok $n - encryption # SKIP openssl is missing"
fi
