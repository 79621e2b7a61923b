#!/bin/bash
# The share of tool calls that land with a model: asks N questions that want one, and counts the
# answers that call a tool, those in which something like a call stayed text, and the shapes.
# Usage: bench/tools.sh QUASAR MODEL [N]
q=${1:?path of quasar} model=${2:?model} n=${3:-100}
tmp=$(mktemp -d)
trap 'kill "$pid" 2>/dev/null; rm -rf "$tmp"' EXIT
"$q" serve -m "$model" --port 0 --prefix-cache off 2>"$tmp/log" &
pid=$!
until url=$(sed -n 's/^listening at //p' "$tmp/log") && [ -n "$url" ] && curl -sf -o "$tmp/ready" "$url/ready"; do
    kill -0 $pid || exit 1
    sleep 0.1
done
python3 - "$url" "$n" <<'P'
import json, sys, urllib.request
url, n = sys.argv[1], int(sys.argv[2])
def tool(name, **props):
    return {'type': 'function', 'function': {'name': name, 'description': name.replace('_', ' '),
            'parameters': {'type': 'object', 'properties': {k: {'type': t} for k, t in props.items()}, 'required': list(props)}}}
tools = [tool('get_weather', city='string'), tool('run', cmd='string'), tool('open_file', path='string'), tool('add', a='integer', b='integer')]
asks = ['What is the weather in %s?', 'Run the command ls %s.', 'Open the file %s.txt.', 'Use the tool to add 12 and %s.']
words = ['Oslo', 'Paris', 'notes', 'main', 'Rome', '7', 'Berlin', 'data']
called = valid = 0
for i in range(n):
    body = {'messages': [{'role': 'user', 'content': asks[i % 4] % words[(i // 4) % 8]}], 'tools': tools, 'seed': i, 'max_tokens': 300}
    r = json.load(urllib.request.urlopen(urllib.request.Request(url + '/v1/chat/completions', json.dumps(body).encode(), {'content-type': 'application/json'})))
    calls = r['choices'][0]['message'].get('tool_calls') or []
    called += bool(calls)
    need = {t['function']['name']: t['function']['parameters']['required'] for t in tools}
    valid += bool(calls) and all(set(need.get(c['function']['name'], ['?'])) <= set(json.loads(c['function']['arguments'])) for c in calls)
m = urllib.request.urlopen(url + '/metrics').read().decode()
missed = [l for l in m.split('\n') if l.startswith('quasar:tool_calls_missed_total')][0].split()[-1]
shapes = {l.split('shape="')[1].split('"')[0]: l.split()[-1] for l in m.split('\n') if l.startswith('quasar:tool_calls_shape_total') and not l.endswith(' 0')}
print('%d turns: %d call a tool, %d of these with all that is required, %s with a missed call; shapes %s' % (n, called, valid, missed, shapes))
P
