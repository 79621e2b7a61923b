#!/bin/sh
# The measuring commands from outside: score and bench, their JSON keys, their
# refusals and exit statuses, and quasar-bench as a file that stands alone. TAP.
src=${QUASAR_SRCDIR:-.}
q=${QUASAR_BIN:?}
m=$src/models/demo.qsr
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 1..27
n=0
result() { # result TEXT STATUS
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then echo "ok $n - $1"; else
        sed 's/^/# /' "$tmp/err" "$tmp/out" 2>/dev/null | cut -c1-300
        echo "not ok $n - $1"
    fi
}
score() { "$q" score -m "$m" --backend cpu --threads 1 "$@" >"$tmp/out" 2>"$tmp/err"; }
refused() { # refused STATUS PATTERN ARGS…
    want=$1 pattern=$2
    shift 2
    "$q" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc -eq "$want" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -q -- "$pattern" "$tmp/err"
}
number() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2"; }
# near A B LIMIT
near() { awk -v a="$1" -v b="$2" -v l="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < l && d > -l) }'; }

printf 'The quick brown fox jumps over the lazy dog. In the beginning' >"$tmp/text"
score -f "$tmp/text" --top 3 --logits --mtp 2 --states --json
rc=$?
for key in positions pos id logprob top logit mtp nll ppl states conv_states recurrent_states keys values hidden; do
    grep -q "\"$key\":" "$tmp/out" || rc=1
done
result 'score --json has its keys' $rc
a=$(number nll "$tmp/out")
ids=$(sed 's/"pos":/\n&/g' "$tmp/out" | sed -n 's/^"pos":[0-9]*,"id":\([0-9]*\).*/\1/p' | paste -sd, -)
near "$a" 3 2.5
result 'the loss of an English sentence is plausible' $?
score --tokens "$ids" --json && near "$(number nll "$tmp/out")" "$a" 1e-12
result 'ids give what the text gave' $?
score --tokens "$ids" --as decode --json && near "$(number nll "$tmp/out")" "$a" 1e-4
result 'steps agree with prefill' $?
score --tokens 5 --json && grep -q '"nll":null,"ppl":null' "$tmp/out"
result 'one token alone has no loss' $?
score -f - --json <"$tmp/text" && near "$(number nll "$tmp/out")" "$a" 1e-12
result 'standard input is read' $?
score -f "$tmp/text" && grep -q 'nats per token' "$tmp/out"
result 'score without --json is for readers' $?

score --tokens "$ids" --kv fp16 --against fp16 --json && grep -q '"kl":0.0,"flips":0,' "$tmp/out" &&
    near "$(sed -n 's/^{[^{[]*"ref_nll":\([0-9.]*\).*/\1/p' "$tmp/out")" "$a" 1e-5
result 'a cache format against itself changes nothing' $?
refused 2 'leave --as decode' score -m "$m" --tokens 1,2 --against fp16 --as decode
ok=$?
score --tokens "$ids,$ids,$ids,$ids,$ids,$ids" --kv k3v3 --against fp16 --ctx 64 --json
rc=$?
for key in kv against tokens nll ref_nll kl flips flip_rate mean_moved p999_moved confident_and_wrong buckets from to; do
    grep -q "\"$key\":" "$tmp/out" || rc=1
done
[ $ok -eq 0 ] && ! grep -q '"kl":0.0,' "$tmp/out" || rc=1
result 'another cache format is compared by position' $rc

refused 2 'score wants a text' score -m "$m" && refused 2 'not a token id' score -m "$m" --tokens 1,x &&
    refused 2 'outside 0..8172' score -m "$m" --tokens 1,8192 &&
    refused 2 'leave -f' score -m "$m" --ref x --tokens 1
result 'score refuses wrong use with status 2' $?
: >"$tmp/empty"
refused 1 'no model "nowhere"' score -m nowhere --tokens 1 && refused 1 'no model file' score -m ./no.qsr --tokens 1 &&
    refused 1 'folder' score -m "$src/models" --tokens 1 && refused 1 "$tmp/empty" score -m "$tmp/empty" --tokens 1 &&
    refused 1 'does not exist\|No such file\|cannot' score -m "$m" -f "$tmp/none"
rc=$?
result 'missing and broken files are refused with status 1' $rc
if "$q" score -m "$m" --backend cuda --tokens 1 >"$tmp/out" 2>"$tmp/err"; then rc=1; else
    grep -q -- '--backend cpu' "$tmp/err"
    rc=$?
fi
result '--backend cuda is refused with the remedy' $rc
score --tokens 1,2,3 --ctx 64 --json && ! score --tokens "$(seq -s, 1 80)" --ctx 64 && grep -q '64 tokens' "$tmp/err"
result 'the window is a limit' $?

"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --what kv --kv k5v3 --depth 300 --json >"$tmp/out" 2>"$tmp/err"
rc=$?
for key in kv_format token_bytes kv_bytes kv_tokens ms_per_step ms_at_0 kv_ms kv_read_bytes gb_s fraction_of_read_bandwidth; do
    grep -q "\"$key\":" "$tmp/out" || rc=1
done
grep -q '"token_bytes":792,' "$tmp/out" || rc=1 # three layers of one head, 164 + 100
result 'bench tells what a cache format takes' $rc

"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --rows 1,3 --depth 0,70 --prompt-tokens 65 --json >"$tmp/out" 2>"$tmp/err"
rc=$?
for key in what rows depth tok_s ms_per_step bytes_per_step gb_s launches_per_step fraction_of_read_bandwidth \
    read_gb_s copy_gb_s ttft_ms prompt_tokens; do
    grep -q "\"$key\":" "$tmp/out" || rc=1
done
[ "$(grep -o '"what":"decode"' "$tmp/out" | wc -l)" -eq 4 ] && [ "$(grep -o '"what":"prefill"' "$tmp/out" | wc -l)" -eq 2 ] || rc=1
result 'bench --json has its keys and rows' $rc
rc=0
"$q" bench -m "$m" --backend cpu --threads 1 --what start --max-draft 3 --json >"$tmp/out" 2>"$tmp/err" || rc=1
for key in start_ms before_ms open_ms first_token_ms warm_token_ms file_bytes file_gb_s upload_gb_s phases beside memory kv_tokens weights; do
    grep -q "\"$key\":" "$tmp/out" || rc=1
done
for name in process file context model plan backend prompt token; do
    grep -q "{\"name\":\"$name\",\"ms\":" "$tmp/out" || rc=1
done
grep -q '"what":"start"' "$tmp/out" && grep -q '"times_copy":null' "$tmp/out" &&
    grep -q '"max_draft":3' "$tmp/out" && grep -q '"verify_width":4' "$tmp/out" || rc=1
result 'bench --what start tells the parts of a start' $rc
rc=0
"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --what restore --depth 200 --json >"$tmp/out" 2>"$tmp/err" || rc=1
for key in cold_ms memory_ms file_ms follow_ms take_ms write_ms read_ms read_one_ms threads bytes all_ms open_ms \
    begin_ms bring_ms rest_ms reading_ms waiting_ms step_ms worst_ms worst_alone_ms steps; do
    grep -q "\"$key\":[0-9]" "$tmp/out" || rc=1
done
grep -q '"what":"restore","depth":192,"prompt_tokens":256' "$tmp/out" && grep -q '"upload_ms":null' "$tmp/out" || rc=1
result 'bench --what restore goes on from a kept state' $rc
rc=0
"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --what pool --depth 700 --rows 2 --kv k3v3 --json >"$tmp/out" 2>"$tmp/err" || rc=1
for key in token_bytes kv_tokens kv_bytes used_bytes weights_bytes ms_per_step; do
    grep -q "\"$key\":[0-9]" "$tmp/out" || rc=1
done
grep -q '"what":"pool","kv_format":"k3v3","depth":700,"rows":2' "$tmp/out" && grep -q '"used_tokens":1536' "$tmp/out" || rc=1
result 'bench --what pool has sequences side by side' $rc
"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --what users --users 1,3 --depth 70 --accept 1 --prompt-tokens 130 --json >"$tmp/out" 2>"$tmp/err" &&
    sed 's/{"what"/\n&/g' "$tmp/out" | grep '^{"what":"users' | awk '
    function is(key,   v) { # the number of a key
        v = $0
        return sub(".*\"" key "\":", "", v) ? v + 0 : -1
    }
    function same(x, y) { return x - y < 1e-6 * y && y - x < 1e-6 * y }
    /"what":"users",/ {
        steps++
        n = is("users")
        if (n != (steps == 1 ? 1 : 3) || !same(is("tok_s") * is("ms_per_step"), 1e3 * n)) bad = 1
        if (steps == 1 && is("times_one") != 1 || gsub(/"part":/, "") != 7) bad = 1
    }
    /users-gap/ {
        gaps++
        if (is("chunks") * is("chunk_tokens") < 130 || is("prompt_ms") < is("largest_gap_ms") || is("step_ms") <= 0) bad = 1
    }
    /users-spec/ { # every draft is taken
        rounds[is("users")]++
        if (!same(is("tok_s") * is("ms_per_round"), 1e3 * is("users") * (is("drafts") + 1))) bad = 1
    }
    END { exit bad || steps != 2 || gaps != 2 || rounds[1] != 9 || rounds[3] != 4 }'
result 'bench --what users: many conversations at once' $?
"$q" bench -m "$m" --backend cpu --threads 1 --reps 2 --what profile --depth 0,70 --prompt-tokens 65 --json >"$tmp/out" 2>"$tmp/err" &&
    sed 's/{"what"/\n&/g' "$tmp/out" | grep '^{"what":"profile"' | awk '
    {
        n++
        head = substr($0, 1, index($0, "\"parts\"") - 1)
        sub(/.*"ms":/, "", head)
        all = head + 0
        rest = $0
        sum = parts = 0
        while (match(rest, /"part":"[a-z ]*","ms":[-+0-9.e]*/)) {
            part = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            sub(/.*"ms":/, "", part)
            sum += part
            parts++
        }
        d = sum - all
        if (parts != 7 || all <= 0 || d > 1e-4 * all || d < -1e-4 * all)
            bad = 1
    }
    END { exit bad || n != 3 }'
rc=$?
for key in '"pass":"decode","depth":70' '"pass":"prefill"' '"prompt_tokens":65' bound_ms fraction_of_bound share bytes flops \
    '"part":"weights"' '"part":"deltanet"' '"part":"attention"' '"part":"norms"' '"part":"head"' \
    '"part":"launch gaps"' '"part":"host gaps"' peak_flops most_to_gain gain_ms; do
    grep -q -- "$key" "$tmp/out" || rc=1
done
result 'bench --what profile: parts that add up' $rc
"$q" bench -m "$m" --backend cpu --threads 1 --reps 1 --what profile --prompt-tokens 64 >"$tmp/out" 2>"$tmp/err" &&
    grep -q '^profile  decode at depth 0' "$tmp/out" && grep -q '^profile  prefill of 64 tokens' "$tmp/out" &&
    grep -q '^  weights .* ms .* %' "$tmp/out"
result 'and as a table' $?
"$q" config -m "$m" --backend cpu --ctx 1000 --max-draft 0 >"$tmp/out" 2>"$tmp/err" &&
    grep -q '^# memory: CPU: .* GB of KV cache' "$tmp/out" &&
    "$q" config -m "$m" --backend cpu --ctx 1000 --max-draft 0 --json >"$tmp/out" 2>"$tmp/err" &&
    grep -q '"ctx":1000[,}]' "$tmp/out" && grep -q '"verify_width":1[,}]' "$tmp/out" &&
    grep -q '"line":"CPU: ' "$tmp/out" && grep -q '"error":null' "$tmp/out" &&
    "$q" config -m nothing-of-that-name --json >"$tmp/out" 2>"$tmp/err" && grep -q '"error":"there is no model' "$tmp/out"
result 'config shows the memory plan of its settings' $?
refused 2 'more than the verify width of 4' bench -m "$m" --one-sequence --rows 5 --max-draft 3 &&
    refused 2 'more than the verify width of 2' bench -m "$m" --one-sequence --rows 1,3 --verify-width 2 &&
    refused 2 'more than --max-draft 3' score -m "$m" --tokens 1,2,3 --mtp 4 --max-draft 3 &&
    refused 1 'switched off' score -m "$m" --tokens 1,2,3 --mtp 1 --max-draft 0 &&
    refused 2 '0 to 16' score -m "$m" --tokens 1 --max-draft 17 &&
    refused 2 'wants a model file' bench --synthetic demo --what start
result 'what is beyond the caps is refused' $?
refused 2 'none of decode' bench -m "$m" --what fly && refused 2 'no synthetic model' bench --synthetic big &&
    refused 2 '1 to 16' bench -m "$m" --rows 17 && refused 2 'goes with --synthetic' bench -m "$m" --write x &&
    refused 2 'goes with --synthetic' bench -m "$m" --tier q8 && refused 2 'given together' bench -m "$m" --synthetic demo &&
    refused 2 'exists already' bench --synthetic demo --write "$tmp/text" && refused 2 'empty' bench -m "$m" --what ''
result 'bench refuses wrong use with status 2' $?
bench=${QUASAR_BUILDDIR:-.}/quasar-bench
"$bench" --synthetic demo --tier q4s --backend cpu --threads 1 --reps 1 --prompt-tokens 64 >"$tmp/out" 2>"$tmp/err" &&
    grep -q '^decode' "$tmp/out" && grep -q '^prefill' "$tmp/out"
result 'quasar-bench measures random weights' $?
"$q" bench --synthetic demo --tier q8 --write "$tmp/s.qsr" >"$tmp/out" 2>"$tmp/err" &&
    "$q" score -m "$tmp/s.qsr" --threads 1 --tokens 1,2,3,4 --json >"$tmp/out" 2>"$tmp/err" && grep -q '"nll":[0-9]' "$tmp/out"
result 'random weights can be written as a model file' $?
# drafts: whole answers must be the same, and figures about them
head -1 "$src/tests/prompts/demo.jsonl" >"$tmp/prompt"
"$q" bench -m "$m" --backend cpu --threads 1 --what spec --prompts "$tmp/prompt" --reps 1 --json >"$tmp/out" 2>"$tmp/err" &&
    grep -q '"category":"chat"' "$tmp/out" && grep -q '"tokens_per_round":[1-9]' "$tmp/out" &&
    grep -q '"least_speed_up":[0-9]' "$tmp/out" && grep -q '"prompts":\[{"tokens":[0-9].*"cpu_speed_up":[0-9]' "$tmp/out" && ! grep -q heads_compared "$tmp/out"
result 'bench answers prompts with and without drafts' $?
"$q" bench -m "$m" --backend cpu --threads 1 --what spec --prompts "$tmp/prompt" --reps 1 --fast-head --json >"$tmp/out" 2>"$tmp/err" &&
    grep -q '"heads_compared":[1-9]' "$tmp/out" && grep -q '"heads_differ":[0-9]' "$tmp/out"
result '--fast-head: how often the heads differ' $?
