#!/bin/bash
# quasar serve over real sockets: shapes of answers and errors, keys, streams, clients that go
# away, the end. Answers are scripted where their words matter. TAP.
. "${QUASAR_SRCDIR:?}/tests/serve-lib.sh" || exit 1
src=${QUASAR_SRCDIR:?}
# stop [SIGNAL]: its exit status in $rc
stop() {
    kill "-${1:-TERM}" $pid
    wait $pid
    rc=$?
    pid=
}
# get STATUS PATH [curl options]: the body is in $body
get() {
    local want=$1 path=$2 got
    shift 2
    got=$(curl -s -m 60 -o "$tmp/body" -w '%{http_code}' "$@" "$url$path")
    body=$(cat "$tmp/body" 2>/dev/null)
    [ "$got" = "$want" ] || wrong "$path: $got, not $want: $body"
}
# has TEXT...: each is in the body
has() {
    for t in "$@"; do
        case $body in *"$t"*) ;; *) wrong "$t is not in: $body" ;; esac
    done
}
data() { get 200 "$@"; }
chat='{"messages":[{"role":"user","content":"hello"}],"temperature":0}'

cat >"$tmp/script" <<'S'
round 2ms mtp 3 2 1ms
answer /weather/
  thought They ask for the weather.
  text I look.
  tool get_weather {"city": "Oslo"}
answer /endless/
  repeat 4000 word%d 
answer /hang/
  text begun
  hold here
  forever
answer /digits/
  thought hmm
  text <tool_call>\n<function=calc>\n<parameter=x>\n1700000000.123456\n</parameter>\n<parameter=s>\n{"a":"q\\u0000r"}\n</parameter>\n</function>\n</tool_call>
answer /break/
  text begun
  fail device the card fell off
answer
  thought Hm.
  text Hello, wörld!
S

echo 1..16
serve --engine "script:$tmp/script"
data /health && has '"ok"'
data /v1/models && has '"object":"list"' '"type":"model"' '"has_more":false' '"demo"'
data /v1/models/demo && has '"id":"demo"'
get 404 /v1/models/none
data /version && has '"version"'
data /v1/status && has '"ready":true'
data /metrics && has 'vllm:num_requests_running{model_name="demo"} 0'
result "what it is"

data /v1/chat/completions -d "$chat"
has '"object":"chat.completion"' '"content":"Hello, wörld!"' '"reasoning_content":"Hm."' \
    '"finish_reason":"stop"' '"role":"assistant"' '"cached_tokens":0'
data /v1/chat/completions -d "{\"stream\":true,\"stream_options\":{\"include_usage\":true},${chat#\{}"
has 'data: [DONE]' '"choices":[],"usage":{' '"finish_reason":"stop"' '"delta":{"role":"assistant"'
[ "$(grep -o '"content":"[^"]*"' "$tmp/body" | sed 's/"content":"//;s/"$//' | tr -d '\n')" = 'Hello, wörld!' ] ||
    wrong "the pieces are not the answer: $body"
result "chat completions, whole and streamed"

data /v1/chat/completions -d "{\"n\":3,\"logprobs\":true,\"top_logprobs\":2,${chat#\{}"
has '"index":2' '"top_logprobs":[' '"bytes":['
data /v1/completions -d '{"prompt":"one","max_tokens":3,"temperature":0,"logprobs":1}'
has '"object":"text_completion"' '"token_logprobs":[' '"finish_reason":"length"' '"completion_tokens":3'
data /v1/completions -d '{"prompt":["one",[1,2,3]],"max_tokens":2,"n":2}'
has '"index":3' '"completion_tokens":8'
result "several answers, log probabilities, token ids"

weather='"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}],"messages":[{"role":"user","content":"weather?"}]'
data /v1/chat/completions -d "{$weather}"
has '"finish_reason":"tool_calls"' '"name":"get_weather"' '"arguments":"{\"city\":\"Oslo\"}"' '"content":"I look."'
data /v1/chat/completions -d "{\"stream\":true,$weather}"
has '"tool_calls":[{"id":' '"function":{"name":"get_weather","arguments":""}' '"arguments":"{\"city\":\"Oslo\"}"'
result "tool calls, chat"

m='"max_tokens":50,"messages":[{"role":"user","content":"weather?"}],"tools":[{"name":"get_weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}]'
data /v1/messages -d "{$m}" -H 'anthropic-version: 2023-06-01'
has '"type":"message"' '"type":"thinking"' '"type":"tool_use"' '"input":{"city":"Oslo"}' '"stop_reason":"tool_use"'
data '/v1/messages?beta=true' -d "{\"stream\":true,$m}"
events=$(sed -n 's/^event: //p' "$tmp/body" | grep -v ping | uniq | tr '\n' ' ')
[ "$events" = "message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop " ] ||
    wrong "the events are $events"
has '"signature_delta"' '"partial_json":"{\"city\":\"Oslo\"}"'
calc='{"type":"object","properties":{"x":{"type":"number"},"s":{"type":"object"}}}'
digits="\"messages\":[{\"role\":\"user\",\"content\":\"digits\"}]"
data /v1/messages -d "{\"max_tokens\":90,$digits,\"tools\":[{\"name\":\"calc\",\"input_schema\":$calc}]}"
has '"x":1700000000.123456' '"a":"q\u0000r"' '"thinking":"hmm"' '"tool_use"'
data /v1/messages -d "{\"stream\":true,\"max_tokens\":90,$digits,\"tools\":[{\"name\":\"calc\",\"input_schema\":$calc}]}"
has 'x\":1700000000.123456' 'q\\u0000r'
case $body in *'hmm\n"'*) wrong "a thought ends with a line break: $body" ;; esac
data /v1/chat/completions -d "{$digits,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"calc\",\"parameters\":$calc}}]}"
has 1700000000.123456 '"reasoning_content":"hmm"' u0000r '"tool_calls"'
result "messages, whole and streamed; numbers and zero bytes of calls"

data /v1/messages/count_tokens -d "{$m}" && counted=$(grep -o '[0-9]*' "$tmp/body")
data /v1/messages -d "{$m}"
used=$(sed 's/.*"input_tokens":\([0-9]*\).*"cache_read_input_tokens":\([0-9]*\).*/\1 \2/' "$tmp/body")
[ "$counted" = $((${used% *} + ${used#* })) ] || wrong "counted $counted, used $used"
data /tokenize -d '{"prompt":"hello world"}' && has '"count":2'
data /detokenize -d "{$(grep -o '"tokens":\[[^]]*\]' "$tmp/body")}" && has '"content":"hello world"'
result "counting and tokens"

data /v1/responses -d '{"input":"weather?","tools":[{"type":"namespace","name":"sky","tools":[{"type":"function","name":"get_weather","parameters":{}}]},{"type":"web_search"}]}'
has '"object":"response"' '"type":"reasoning"' '"type":"function_call"' '"namespace":"sky"' '"status":"completed"' '"output_text"'
data /v1/responses -d '{"stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]}]}'
has 'event: response.created' 'event: response.completed' 'response.output_text.delta' 'response.output_item.done'
[ "$(grep -o '"sequence_number":[0-9]*' "$tmp/body" | cut -d: -f2 | tr '\n' ' ')" = "$(seq -s ' ' 0 $(($(grep -c '"sequence_number"' "$tmp/body") - 1))) " ] ||
    wrong "the numbers of events are not 0, 1, …"
result "responses, whole and streamed"

get 404 /%ff && has 'there is no'
get 404 /nowhere && has '"type":"not_found_error"'
get 405 /v1/chat/completions
get 405 /v1/models -d '{}'
get 400 /v1/chat/completions -d 'x' && has 'not valid JSON'
get 400 /v1/chat/completions -d '[]' && has 'not a JSON object'
get 400 /v1/chat/completions -d '{}' && has '"param":"messages"'
get 400 /v1/chat/completions -d "{\"top_p\":\"hot\",${chat#\{}" && has '"param":"top_p"' 'is a string'
get 400 /v1/chat/completions -d "{\"n\":99,${chat#\{}" && has '"param":"n"'
get 400 /v1/chat/completions -d "{\"response_format\":{\"type\":\"xml\"},${chat#\{}" && has '"param":"response_format"' json_schema
get 400 /v1/chat/completions -d "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}},${chat#\{}" && has 'no schema'
get 400 /v1/chat/completions -d "{\"guided_json\":{\"type\":\"strange\"},${chat#\{}" && has 'no such type'
get 400 /v1/chat/completions -d "{\"guided_regex\":\"a(\",${chat#\{}" && has ') is missing'
get 400 /v1/chat/completions -d "{\"guided_regex\":\"a\",\"guided_choice\":[\"b\"],${chat#\{}" && has 'second form'
get 400 /v1/responses -d '{"input":"x","text":{"format":{"type":"json_schema","strict":true,"schema":{"type":"array","uniqueItems":true}}}}' && has 'uniqueItems cannot be kept'
get 400 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":5}}}' && has 'no schema'
get 400 /v1/messages -d '{"messages":[{"role":"user","content":"x"}]}' && has '"type":"error"' max_tokens
get 400 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}' && has 'text only'
get 400 /v1/messages -d '{"max_tokens":5,"messages":[{"role":"user","content":5}]}'
get 400 /v1/responses -d '{"input":"x","previous_response_id":"r"}' && has previous_response_id
get 400 /v1/completions -d '{"prompt":[1,-2]}' && has '"param":"prompt"'
get 400 /detokenize -d '{"tokens":[99999999]}'
get 403 /v1/models -H 'Origin: https://example.com'
data /v1/models -H 'Origin: http://localhost:3000'
result "wrong requests are told what is wrong"

long=$(printf 'word %.0s' $(seq 1 40000))
get 400 /v1/messages -d @- <<<"{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"$long\"}]}"
has '"message":"prompt is too long: ' ' maximum"'
get 400 /v1/chat/completions -d @- <<<"{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"$long\"}]}"
has '"code":"context_length_exceeded"'
head -c 34000000 /dev/zero | get 413 /v1/messages -H 'Expect:' --data-binary @-
result "too long, and too large"

get 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"break"}],"stream":true}'
has '"error":{' 'the card fell off'
get 500 /v1/chat/completions -d '{"messages":[{"role":"user","content":"break"}]}'
has 'the card fell off'
get 200 /v1/messages -d '{"max_tokens":9,"messages":[{"role":"user","content":"break"}],"stream":true}'
has 'event: error'
data /v1/chat/completions -d "$chat"
result "an answer that fails is an error, and the next one is none"

data /v1/chat/completions -d "$chat" -D "$tmp/head" -H 'x-session-id: abc-1'
grep -qi '^x-session-id: abc-1' "$tmp/head" || wrong "the session is not given back"
grep -qi '^request-id: chatcmpl-' "$tmp/head" || wrong "there is no request-id"
data /v1/models -I && [ -s "$tmp/body" ] || wrong "HEAD is not answered"
result "headers"

# a client that goes away: what it asked for ends
for i in 1 2 3; do
    curl -sN -m 0.3 -o /dev/null "$url/v1/chat/completions" -d '{"stream":true,"messages":[{"role":"user","content":"endless"}],"max_tokens":8000}'
    curl -s -m 0.3 -o /dev/null "$url/v1/messages" -d '{"messages":[{"role":"user","content":"endless"}],"max_tokens":8000}'
done
for ((i = 0; i < 300; i++)); do
    data /v1/status
    case $body in *'"requests":0,"running":0'*) break ;; esac
    sleep 0.05
done
has '"requests":0,"running":0'
[ "$(grep -c 'the client went away' "$tmp/log")" = 6 ] || wrong "six clients went away: $(cat "$tmp/log")"
result "clients that go away"

pids=
for i in $(seq 1 12); do
    curl -sN -m 60 -o "$tmp/s$i" "$url/v1/chat/completions" -d "{\"stream\":true,\"seed\":7,\"messages\":[{\"role\":\"user\",\"content\":\"endless\"}],\"max_tokens\":200}" &
    pids="$pids $!"
done
wait $pids
texts=$(for i in $(seq 1 12); do grep -o '"content":"[^"]*"' "$tmp/s$i" | sed 's/"content":"//;s/"$//' | tr -d '\n' | cksum; done | sort -u | wc -l)
[ "$texts" = 1 ] || wrong "twelve equal requests have $texts answers"
result "twelve at a time"

curl -sN -m 60 -o "$tmp/last" "$url/v1/chat/completions" -d '{"stream":true,"messages":[{"role":"user","content":"endless"}],"max_tokens":1500}' &
last=$!
for ((i = 0; i < 300; i++)); do grep -q word "$tmp/last" 2>/dev/null && break; sleep 0.01; done
stop TERM
wait $last
[ $rc = 0 ] || wrong "it ended with $rc: $(tail -30 "$tmp/log")"
grep -q 'DONE' "$tmp/last" || wrong "the answer under way was cut"
result "a termination lets answers end"

printf '# keys\nfirst\n\nsecond\n' >"$tmp/keys"
serve --engine "script:$tmp/script" --api-key-file "$tmp/keys" --max-queue 2
get 401 /v1/models && has invalid_api_key
get 401 /v1/messages -d "{$m}" && has authentication_error
get 401 /v1/models -H 'Authorization: Bearer firs'
get 401 /v1/models -H 'x-api-key: firstfirst'
data /v1/models -H 'Authorization: Bearer first'
data /v1/models -H 'x-api-key: second'
data /health
for i in 1 2; do
    curl -sN -m 20 -o /dev/null -H 'x-api-key: first' "$url/v1/chat/completions" -d '{"stream":true,"messages":[{"role":"user","content":"endless"}],"max_tokens":8000}' &
done
for ((i = 0; i < 300; i++)); do
    data /v1/status -H 'x-api-key: first'
    case $body in *'"requests":2'*) break ;; esac
    sleep 0.02
done
get 429 /v1/chat/completions -H 'x-api-key: first' -d "$chat" -D "$tmp/head"
grep -qi '^retry-after:' "$tmp/head" || wrong "429 without Retry-After"
get 503 /ready
kill -TERM $pid
stop TERM
wait
result "keys, and a full queue"

serve
port=${url##*:}
"$q" serve --backend cpu --port "$port" >/dev/null 2>"$tmp/second"
[ $? = 1 ] && grep -q "cannot listen at 127.0.0.1:$port" "$tmp/second" || wrong "a taken port: $(cat "$tmp/second")"
"$q" serve --host nowhere.invalid >/dev/null 2>"$tmp/second"
[ $? = 2 ] || wrong "an address that is none: $(cat "$tmp/second")"
data /v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":20}'
one=$body
data /v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}],"temperature":0,"max_tokens":20}'
[ "$(printf %s "$one" | grep -o '"content":"[^"]*"')" = "$(printf %s "$body" | grep -o '"content":"[^"]*"')" ] || wrong "two greedy answers differ"
seven='{"const":7}'
data /v1/chat/completions -d "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":$seven}},${chat#\{}" && has '"content":"7"' '"finish_reason":"stop"'
data /v1/chat/completions -d "{\"structured_outputs\":{\"choice\":[\"left\"]},${chat#\{}" && has '"content":"left"'
data /v1/chat/completions -d "{\"max_tokens\":2,\"guided_regex\":\"[0-9]{64}\",${chat#\{}" && has '"finish_reason":"length"'
data /v1/completions -d '{"prompt":"one","guided_grammar":"root ::= \"a\" \"b\"{3}"}' && has '"text":"abbb"' '"finish_reason":"stop"'
data /v1/responses -d "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,\"schema\":$seven}}}" && has '"text":"7"' '"status":"completed"' '"name":"n"'
data /v1/messages -d "{\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":$seven}}}" && has '"text":"7"' '"stop_reason":"end_turn"'
stop INT
[ $rc = 0 ] || wrong "an interrupt ended it with $rc"
result "the demo model, also in a form in every shape; a taken port; an interrupt"
