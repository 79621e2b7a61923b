#!/bin/bash
# Tool calls and thoughts over real sockets: 206 turns of an agent in every shape of call that a
# model makes, calls that must come, budgets of thoughts, what is refused. TAP.
q=${QUASAR_BIN:?}
if ! command -v curl >/dev/null || ! command -v python3 >/dev/null; then
    printf '1..1\nok 1 # SKIP curl or python3 is missing\n'
    exit 0
fi
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$tmp"' EXIT
export XDG_CONFIG_HOME=$tmp/config XDG_STATE_HOME=$tmp/state XDG_DATA_HOME=$tmp/data
start() {
    "$q" serve --backend cpu --threads 1 --port 0 --prefix-cache off "$@" >"$tmp/out" 2>"$tmp/log" &
    pid=$!
    url=
    for ((i = 0; i < 1000; i++)); do
        url=$(sed -n 's/^listening at //p' "$tmp/log")
        if [ -n "$url" ] && curl -sf -o /dev/null "$url/ready"; then return; fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    echo "# it does not listen: $(cat "$tmp/log")"
}
stop() {
    kill -TERM $pid
    wait $pid
    pid=
}

cat >"$tmp/client.py" <<'P'
import json, sys, urllib.request, urllib.error

url, part = sys.argv[1], sys.argv[2]


def post(path, body, headers={}):
    r = urllib.request.Request(url + path, json.dumps(body).encode(), {'content-type': 'application/json', **headers})
    try:
        with urllib.request.urlopen(r, timeout=120) as f:
            return f.status, f.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def params(required, *more):
    return {'type': 'object', 'properties': {k: {'type': 'string'} for k in (*required, *more)}, 'required': list(required)}


SCHEMAS = {'run': params(['cmd'], 'note'), 'open_file': params(['path']), 'put_file': params(['path', 'body']),
           'swap_text': params(['path', 'old', 'new'])}
CHAT = [{'type': 'function', 'function': {'name': n, 'description': n, 'parameters': s}} for n, s in SCHEMAS.items()]
CLAUDE = [{'name': n, 'description': n, 'input_schema': s} for n, s in SCHEMAS.items()]
CODEX = [{'type': 'function', 'name': n, 'description': n, 'parameters': s} for n, s in SCHEMAS.items()]


def events(text):
    return [json.loads(l[6:]) for l in text.split('\n') if l.startswith('data: {')]


def chat(q, stream):
    s, t = post('/v1/chat/completions', {'model': 'm', 'messages': [{'role': 'user', 'content': q}], 'tools': CHAT, 'stream': stream})
    assert s == 200, t
    if not stream:
        c = json.loads(t)['choices'][0]
        m = c['message']
        return c['finish_reason'], m.get('content') or '', [(x['function']['name'], json.loads(x['function']['arguments'])) for x in m.get('tool_calls', [])]
    text, calls, why = '', {}, None
    for e in events(t):
        for c in e['choices']:
            d = c['delta']
            text += d.get('content') or ''
            why = c['finish_reason'] or why
            for x in d.get('tool_calls', []):
                f = calls.setdefault(x['index'], ['', ''])
                f[0] += x['function'].get('name', '')
                f[1] += x['function'].get('arguments', '')
    return why, text, [(n, json.loads(a)) for n, a in calls.values()]


def claude(q, stream):
    s, t = post('/v1/messages', {'model': 'm', 'max_tokens': 4000, 'messages': [{'role': 'user', 'content': q}], 'tools': CLAUDE, 'stream': stream})
    assert s == 200, t
    if not stream:
        m = json.loads(t)
        blocks, why = m['content'], m['stop_reason']
    else:
        blocks, why = [], None
        for e in events(t):
            if e['type'] == 'content_block_start':
                blocks.append(dict(e['content_block'], js=''))
            elif e['type'] == 'content_block_delta':
                d = e['delta']
                blocks[-1]['js'] += d.get('partial_json', '')
                if 'text' in d:
                    blocks[-1]['text'] += d['text']
            elif e['type'] == 'message_delta':
                why = e['delta']['stop_reason']
        for b in blocks:
            if b['type'] == 'tool_use':
                b['input'] = json.loads(b['js'])
    return ({'tool_use': 'tool_calls', 'end_turn': 'stop'}.get(why, why), ''.join(b['text'] for b in blocks if b['type'] == 'text'),
            [(b['name'], b['input']) for b in blocks if b['type'] == 'tool_use'])


def codex(q, stream):
    s, t = post('/v1/responses', {'model': 'm', 'input': q, 'tools': CODEX, 'stream': stream})
    assert s == 200, t
    r = json.loads(t) if not stream else events(t)[-1]['response']
    calls = [(x['name'], json.loads(x['arguments'])) for x in r['output'] if x['type'] == 'function_call']
    text = ''.join(p['text'] for x in r['output'] if x['type'] == 'message' for p in x['content'])
    return 'tool_calls' if calls else 'stop', text, calls


n = 0


def result(what, bad):
    global n
    n += 1
    for b in bad[:8]:
        print('# ' + str(b)[:600])
    print(('not ok' if bad else 'ok'), n, '-', what)


if part == 'agent':
    turns = json.load(open(sys.argv[3]))
    shapes = [(f, s) for f in (chat, claude, codex) for s in (False, True)]
    bad, landed, meant = [], 0, 0
    for i, t in enumerate(turns):
        f, stream = shapes[i % len(shapes)]
        why, text, calls = f('turn%d.' % i, stream)
        want = [(c[0], c[1]) for c in t['calls']]
        meant += len(want)
        landed += len(want) if calls == want else 0
        if calls != want or text.strip() != t['text'] or why != ('tool_calls' if want else 'stop'):
            bad.append((i, t, why, text, calls))
    print('# %d of %d calls landed in %d turns' % (landed, meant, len(turns)))
    result('every call that is meant lands, on every shape, streamed or not; and nothing else', bad)
    s, m = 200, urllib.request.urlopen(url + '/metrics').read().decode()
    result('they are counted', [] if 'quasar:tool_calls_landed_total{model_name="demo"} %d' % meant in m else [m])
else:
    bad = []
    for i in range(12):
        for tools, path, body in (
                (CHAT, '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'List %d files.' % i}], 'tool_choice': 'required'}),
                (CLAUDE, '/v1/messages', {'max_tokens': 400, 'messages': [{'role': 'user', 'content': 'List %d files.' % i}], 'tool_choice': {'type': 'tool', 'name': 'open_file'}}),
                (CODEX, '/v1/responses', {'input': 'Open %d.' % i, 'tool_choice': {'type': 'allowed_tools', 'mode': 'required', 'tools': [{'type': 'function', 'name': 'run'}]}})):
            s, t = post(path, dict(body, model='m', tools=tools, seed=i))
            j = json.loads(t)
            if 'choices' in j:
                got = [x['function'] for x in j['choices'][0]['message'].get('tool_calls', [])]
                got = [(x['name'], json.loads(x['arguments'])) for x in got]
                cut = j['choices'][0]['finish_reason'] == 'length'
            elif 'content' in j:
                got = [(x['name'], x['input']) for x in j['content'] if x['type'] == 'tool_use']
                cut = j['stop_reason'] == 'max_tokens'
                got = [g for g in got if g[0] == 'open_file']
            else:
                got = [(x['name'], json.loads(x['arguments'])) for x in j.get('output', []) if x['type'] == 'function_call' and x['name'] == 'run']
                cut = j.get('status') == 'incomplete'
            good = len(got) == 1 and all(k in got[0][1] for k in SCHEMAS[got[0][0]]['required'])
            if not good and not cut:
                bad.append((path, t))
    result('a call that must come comes, with all it requires', bad)
    bad = []
    for path, body, field in (
            ('/v1/chat/completions', {'tools': CHAT, 'tool_choice': {'type': 'function', 'function': {'name': 'nope'}}}, 'nope'),
            ('/v1/chat/completions', {'tool_choice': 'required'}, 'no tools'),
            ('/v1/chat/completions', {'tools': CHAT, 'tool_choice': 'sometimes'}, 'sometimes'),
            ('/v1/chat/completions', {'thinking_budget': 'much'}, 'thinking_budget')):
        s, t = post(path, dict(body, messages=[{'role': 'user', 'content': 'x'}]))
        if s != 400 or field not in t:
            bad.append((s, t))
    result('what cannot be called is refused', bad)
    bad = []
    for budget in (1, 2, 5, 9, 30):
        for seed in range(4):
            body = {'messages': [{'role': 'user', 'content': 'What is 12 plus 7? Explain.'}], 'thinking_budget': budget, 'enable_thinking': True, 'seed': seed, 'max_tokens': 200}
            s, t = post('/v1/chat/completions', body)
            m = json.loads(t)
            r = m['usage']['completion_tokens_details']['reasoning_tokens']
            if not m['choices'][0]['message']['content'].strip() or r > budget + 3 or r < 1:
                bad.append((budget, t))
    result('a thought keeps its budget, and an answer follows', bad)
    print(json.dumps([json.loads(post('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'Count to %d.' % b}], 'thinking_budget': b, 'temperature': 0, 'max_tokens': 120})[1])['choices'][0]['message'] for b in (2, 4, 7)]), file=open(sys.argv[3], 'w'))
P

# The turns, and the script that says them. Shapes as in docs/tools.md.
python3 - "$tmp" <<'P'
import json, sys
tmp = sys.argv[1]
run = lambda c: ['run', {'cmd': c}]
P = lambda k, v: '<parameter=%s>\n%s\n</parameter>\n' % (k, v)
W = lambda s: '<tool_call>\n%s\n</tool_call>' % s
shapes = [
    lambda i: (W('<function=run>\n' + P('cmd', 'ls %d' % i) + '</function>'), [run('ls %d' % i)]),
    lambda i: (W('{"name": "run", "arguments": {"cmd": "ls %d"}}' % i), [run('ls %d' % i)]),
    lambda i: ('{"name":"run","arguments":{"cmd":"ls %d"}}' % i, [run('ls %d' % i)]),
    lambda i: ('{"tool":"run","parameters":{"cmd":"w %d"}}' % i, [run('w %d' % i)]),
    lambda i: ('<function name="run">\n' + P('cmd', 'w %d' % i) + '</function>', [run('w %d' % i)]),
    lambda i: ('{"name":"put_file","arguments":{"path":"h.c","body":"puts("hi %d");\n"}}' % i, [['put_file', {'path': 'h.c', 'body': 'puts("hi %d");\n' % i}]]),
    lambda i: (P('path', 'a') + P('body', 'z %d' % i) + '</function>', [['put_file', {'path': 'a', 'body': 'z %d' % i}]]),
    lambda i: ('{"name":{"path":"m%d.c"}}' % i, [['open_file', {'path': 'm%d.c' % i}]]),
    lambda i: (W('<function=run>\n' + P('cmd', 'a\n</parameter>\nb') + '</function>\n<function=open_file>\n' + P('path', 'q%d' % i) + '</function>'), [run('a\n</parameter>\nb'), ['open_file', {'path': 'q%d' % i}]]),
    lambda i: ('<function_calls>\n<invoke name="run">\n<parameter name="cmd">w%d</parameter>\n</invoke>\n</function_calls>' % i, [run('w%d' % i)]),
    lambda i: ('<tool_name>run</tool_name>\n<parameter=arguments>\n{"cmd":"w%d"}}\n</parameter>\n</function>' % i, [run('w%d' % i)]),
    lambda i: ('{"name":"run","arguments":{"cmd":"w%d"}\n</parameter>\n</function>' % i, [run('w%d' % i)]),
    lambda i: ('<function=list_dir>\n' + P('path', 'x%d' % i) + '</function>', [['list_dir', {'path': 'x%d' % i}]]),
    lambda i: ('open_file", "arguments": {"path":"q%d"}}' % i, [['open_file', {'path': 'q%d' % i}]]),
    lambda i: ('The tag `<function=run>` begins call %d.' % i, []),
    lambda i: ('```\n<tool_call>\n<function=run>\n' + P('cmd', str(i)) + '</function>\n</tool_call>\n```', []),
]
turns, script = [], ['round 1ms mtp 3 3 0ms', 'prefill 1000000']
for i in range(200):
    said, calls = shapes[i % len(shapes)](i)
    text = 'Step %d.' % i if i % 3 else ''
    if not calls:
        text, whole = said, said
    else:
        whole = (text + '\n\n' if text else '') + said
    turns.append({'text': text, 'calls': calls})
    script += ['answer /turn%d[.]/' % i, '  thought I must.', '  text <<END_OF_TEXT', whole, 'END_OF_TEXT']
# in a thought that no answer follows
for i in range(200, 206):
    turns.append({'text': '', 'calls': [run('t %d' % i)]})
    script += ['answer /turn%d[.]/' % i, '  thought <<END_OF_TEXT', 'So be it.', shapes[0](i)[0].replace('ls', 't'), 'END_OF_TEXT']
script += ['answer', '  text What?']
open(tmp + '/script', 'w').write('\n'.join(script) + '\n')
json.dump(turns, open(tmp + '/turns', 'w'))
P

echo 1..6
start -m demo --engine "script:$tmp/script"
python3 "$tmp/client.py" "$url" agent "$tmp/turns"
stop
start -m demo
python3 "$tmp/client.py" "$url" model "$tmp/with" | sed 's/^\(not \)\{0,1\}ok 1 /\1ok 3 /; s/^\(not \)\{0,1\}ok 2 /\1ok 4 /; s/^\(not \)\{0,1\}ok 3 - a t/\1ok 5 - a t/'
stop
start -m demo --spec off
python3 "$tmp/client.py" "$url" model "$tmp/without" >/dev/null
stop
if [ -s "$tmp/with" ] && cmp -s "$tmp/with" "$tmp/without"; then
    echo "ok 6 - a budget gives the same text with and without speculation"
else
    diff "$tmp/with" "$tmp/without" | sed 's/^/# /'
    echo "not ok 6 - a budget gives the same text with and without speculation"
fi
