#!/bin/bash
# The share of tool calls that land with a model: asks N questions that want one, with tools that are
# not strict and with tools that are. Counted are answers with a call, answers in which something like
# a call stayed text (missed; the share that lands is that of the others), calls of a declared tool with
# arguments by its schema, which is the model's merit alone unless tools are strict, and the shapes.
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
def tool(strict, name, **props):
    return {'type': 'function', 'function': {'name': name, 'description': name.replace('_', ' '), 'strict': strict,
            'parameters': {'type': 'object', 'properties': {k: {'type': t} for k, t in props.items()}, 'required': list(props),
                           'additionalProperties': False}}}
TYPES = {'string': str, 'integer': int}
def fits(call, tools):
    t = [t['function'] for t in tools if t['function']['name'] == call['function']['name']]
    args = json.loads(call['function']['arguments'])
    props = t[0]['parameters']['properties'] if t else {}
    return bool(t) and set(args) == set(props) and all(type(args[k]) is TYPES[v['type']] for k, v in props.items())
def figures():
    f = {}
    for l in urllib.request.urlopen(url + '/metrics').read().decode().split('\n'):
        if l.startswith('quasar:tool_calls'):
            key = l.split('shape="')[1].split('"')[0] if 'shape="' in l else l.split('{')[0]
            f[key] = int(float(l.split()[-1]))
    return f
asks = ['What is the weather in %s?', 'Run the command ls %s.', 'Open the file %s.txt.', 'Use the tool to add 12 and %s.']
words = ['Oslo', 'Paris', 'notes', 'main', 'Rome', '7', 'Berlin', 'data']
for strict in (False, True):
    tools = [tool(strict, 'get_weather', city='string'), tool(strict, 'run', cmd='string'),
             tool(strict, 'open_file', path='string'), tool(strict, 'add', a='integer', b='integer')]
    before, turns, calls, valid = figures(), 0, 0, 0
    for i in range(n):
        body = {'messages': [{'role': 'user', 'content': asks[i % 4] % words[(i // 4) % 8]}], 'tools': tools, 'seed': i, 'max_tokens': 300}
        r = json.load(urllib.request.urlopen(urllib.request.Request(url + '/v1/chat/completions', json.dumps(body).encode(), {'content-type': 'application/json'})))
        mine = r['choices'][0]['message'].get('tool_calls') or []
        turns += bool(mine)
        calls += len(mine)
        valid += sum(fits(c, tools) for c in mine)
    now = {k: v - before.get(k, 0) for k, v in figures().items()}
    missed = now.pop('quasar:tool_calls_missed_total')
    shapes = {k: v for k, v in now.items() if v and not k.startswith('quasar')}
    print('%s tools, %d turns: %d call a tool, %d with a missed call (%.1f %% land); of %d calls %d are of a declared tool and by its schema; shapes %s'
          % ('strict' if strict else 'plain', n, turns, missed, 100 * turns / max(turns + missed, 1), calls, valid, shapes))
P
