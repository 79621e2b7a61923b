#!/bin/sh
# The engine against reference files that another implementation made in fp32
# from the unquantised demo checkpoint: one test per file. TAP.
src=${QUASAR_SRCDIR:-.}
q=${QUASAR_BIN:?}
ck=${QUASAR_DEMO_CHECKPOINT:-$src/../shared/models/demo}
names='code_prime command_tar define_river echo_file hello_nothink identity_think long_chat
multi_turn one_token plain_c plain_text sum_think tool_answer tool_read unicode'
total=$(echo $names | wc -w)
echo "1..$total"
n=0
if [ ! -f "$ck/model.safetensors" ]; then
    for name in $names; do
        n=$((n + 1))
        echo "ok $n - $name # SKIP the demo checkpoint is not at QUASAR_DEMO_CHECKPOINT"
    done
    exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if ! "$q" convert "$ck" "$tmp/demo-f32.qsr" --tier f32 >"$tmp/log" 2>&1; then
    sed 's/^/# /' "$tmp/log"
fi
for name in $names; do
    n=$((n + 1))
    if out=$("$q" score -m "$tmp/demo-f32.qsr" --backend cpu --threads 1 --kv f32 --ref "$ck/reference/$name.json" 2>&1); then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
    fi
    printf '%s\n' "$out" | cut -c1-2000 | sed 's/^/# /'
done
