#!/bin/bash
# What a form of the answer costs, on one thread, so that nothing else on the machine can spoil it:
# instructions (counted by valgrind, the same in every run to a thousandth) of an answer without a
# form and of the same one with a form that lets everything come, each less those of an answer of one
# token, with a fixed number of drafts; then those of a token of an answer by a schema, beside one
# without. TIMES=N instead: time of the processor, the least of N runs by turns.
# Usage: [TIMES=N] form.sh QUASAR [MODEL] [TOKENS]
q=${1:?}
m=${2:-demo}
n=${3:-64}
runs=$(printenv TIMES)
any='(.|[\n\r\u2028\u2029])*'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CONFIG_HOME=$tmp XDG_STATE_HOME=$tmp
[ -n "$runs" ] || command -v valgrind >/dev/null || {
    echo "valgrind is missing; TIMES=N measures times instead" >&2
    exit 1
}
cat >"$tmp/schema.json" <<'JSON'
{"type": "object", "properties": {"title": {"type": "string", "maxLength": 60}, "people": {"type":
"array", "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 24},
"age": {"type": "integer", "minimum": 0, "maximum": 120}, "role": {"enum": ["author", "editor",
"reader"]}}, "required": ["name", "age", "role"], "additionalProperties": false}, "minItems": 4,
"maxItems": 6}, "verdict": {"enum": ["yes", "no", "unsure"]}}, "required": ["title", "people",
"verdict"], "additionalProperties": false}
JSON
# once NAME OPTIONS: thousands of instructions, or milliseconds; the answer is in NAME.json
once() {
    local name=$1
    shift
    set -- "$q" run -m "$m" --backend cpu --threads 1 --think off --json "$@"
    if [ -n "$runs" ]; then
        (TIMEFORMAT='%U %S' && time "$@" >"$tmp/$name.json") 2>&1 | tail -1 | awk '{ print 1000 * ($1 + $2) }'
    else
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>"$tmp/err" >"$tmp/$name.json"
        awk '/Collected/ { print $NF / 1000 }' "$tmp/err"
    fi
}
least() { sort -g | head -1; }
tokens() { grep -o '"tokens": *\[[^]]*' "$tmp/$1.json" | tr ',' '\n' | wc -l; }
text() { grep -o '"tokens": *\[[^]]*' "$tmp/$1.json"; }
ask='Write a C function that reverses a string, and tell how it works.'
# pair NAME OPTIONS: how much dearer the same answer is with the form
pair() {
    local name=$1
    shift
    rm -f "$tmp"/{free,any,one}.figures
    for ((i = 0; i < ${runs:-1}; i++)); do
        once one -p "$ask" "$@" -n 1 >>"$tmp/one.figures"
        once free -p "$ask" "$@" -n "$n" --min-tokens "$n" >>"$tmp/free.figures"
        once any -p "$ask" "$@" -n "$n" --min-tokens "$n" --regex "$any" >>"$tmp/any.figures"
    done
    [ "$(text free)" = "$(text any)" ] || echo "$name: the answers differ"
    awk -v a="$(least <"$tmp/free.figures")" -v b="$(least <"$tmp/any.figures")" -v one="$(least <"$tmp/one.figures")" \
        -v name="$name" 'BEGIN { printf "%s: %.3f times that without a form\n", name, (b - one) / (a - one) }'
}
pair 'three drafts a round, greedy' --spec mtp+suffix --draft 3 --temp 0
pair 'three drafts a round, drawn' --spec mtp+suffix --draft 3 --temp 0.8 --seed 1
pair 'no drafts, greedy' --spec off --temp 0
ask='List the people of a small journal as JSON.'
for spec in '--spec mtp+suffix --draft 3' '--spec off'; do
    rm -f "$tmp"/*.figures
    for ((i = 0; i < ${runs:-1}; i++)); do
        # shellcheck disable=SC2086
        {
            once one -p "$ask" --temp 0 $spec -n 1 >>"$tmp/one.figures"
            once free -p "$ask" --temp 0 $spec -n "$n" --min-tokens "$n" >>"$tmp/free.figures"
            once first -p "$ask" --temp 0 $spec --json-schema "$tmp/schema.json" -n 1 >>"$tmp/first.figures"
            once answer -p "$ask" --temp 0 $spec --json-schema "$tmp/schema.json" -n 400 >>"$tmp/answer.figures"
        }
    done
    awk -v a="$(least <"$tmp/free.figures")" -v one="$(least <"$tmp/one.figures")" -v n="$(tokens free)" \
        -v b="$(least <"$tmp/answer.figures")" -v first="$(least <"$tmp/first.figures")" -v k="$(tokens answer)" \
        -v name="$spec" -v unit="$([ -n "$runs" ] && echo ms || echo 'thousand instructions')" 'BEGIN {
            printf "%s, a token of %d by a schema: %.4g %s; of %d without: %.4g; the form and its first row, once: %.4g\n",
                name, k, (b - first) / (k - 1), unit, n, (a - one) / (n - 1), first - one }'
done
