#!/bin/bash
# What a form of the answer costs: the same answers without one and with one that lets everything
# come (the text is the same, so that only the work for the form differs), by turns, on one thread, in
# time of the processor, less that of an answer of one token; the median of the pairs. Then answers of a schema beside free ones. Usage: form.sh QUASAR [MODEL]
# [PAIRS]
q=${1:?}
m=${2:-demo}
pairs=${3:-9}
any='(.|[\n\r\u2028\u2029])*'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CONFIG_HOME=$tmp XDG_STATE_HOME=$tmp
cat >"$tmp/schema.json" <<'JSON'
{"type": "object", "properties": {"title": {"type": "string", "maxLength": 60}, "people": {"type":
"array", "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 24},
"age": {"type": "integer", "minimum": 0, "maximum": 120}, "role": {"enum": ["author", "editor",
"reader"]}}, "required": ["name", "age", "role"], "additionalProperties": false}, "minItems": 4,
"maxItems": 6}, "verdict": {"enum": ["yes", "no", "unsure"]}}, "required": ["title", "people",
"verdict"], "additionalProperties": false}
JSON
# cpu OPTIONS: seconds of the processor
cpu() {
    /usr/bin/env bash -c 'TIMEFORMAT=%U; time "$0" run -m "$@" --backend cpu --threads 1 --think off --json >"$OUT"' \
        "$q" "$m" "$@" 2>&1 | tail -1
}
export OUT=$tmp/out
figure() { grep -o "\"$1\": *[^,}]*" "$OUT" | head -1 | sed 's/.*: *//'; }
count() { grep -o '"tokens": *\[[^]]*' "$OUT" | tr ',' '\n' | wc -l; }
median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.3f", v[int((NR + 1) / 2)] }'; }
# per OPTIONS: milliseconds of the processor for a token after the first; also tokens a round
per() {
    local all one n
    all=$(cpu "$@" -n 400)
    n=$(count)
    one=$(cpu "$@" -n 1 --min-tokens 0)
    awk -v a="$all" -v b="$one" -v n="$n" 'BEGIN { printf "%.4f", 1000 * (a - b) / (n - 1) }'
}
ask='Write a C function that reverses a string, and tell how it works.'
for spec in auto off; do
    for temp in 0 0.8; do
        : >"$tmp/ratios"
        for ((i = 0; i < pairs; i++)); do
            a=$(per -p "$ask" --seed $i --spec $spec --temp $temp --min-tokens 300)
            b=$(per -p "$ask" --seed $i --spec $spec --temp $temp --min-tokens 300 --regex "$any")
            awk -v a="$a" -v b="$b" 'BEGIN { print b / a }' >>"$tmp/ratios"
        done
        echo "spec $spec, temp $temp: $(median <"$tmp/ratios") times the time without a form"
    done
done
for form in without with; do
    : >"$tmp/per"
    for ((i = 0; i < pairs; i++)); do
        set -- -p 'List the people of a small journal as JSON.' --temp 0.8 --seed "$i"
        [ $form = with ] && set -- "$@" --json-schema "$tmp/schema.json"
        [ $form = without ] && set -- "$@" --min-tokens 120
        per "$@" >>"$tmp/per"
        echo >>"$tmp/per"
    done
    echo "$form a schema: $(grep . "$tmp/per" | median) ms a token"
done
