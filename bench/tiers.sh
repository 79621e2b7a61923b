#!/bin/sh
# Divergence of every tier of the demo model from the unquantised one, as a table
# for LOG.md. Usage: bench/tiers.sh BUILD_DIR CHECKPOINT_DIR; make bench/tierdiff
# in BUILD_DIR first. The texts are the prompts and continuations of the
# checkpoint's reference files.
set -eu
build=${1:?build folder}
ck=${2:?checkpoint folder}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$build/quasar" convert "$ck" "$tmp/ref.qsr" --tier bf16 >/dev/null
echo '| tier | MB | tokens | mean KL (nats) | 99 % KL | same top-1 | nll unquantised | nll tier |'
echo '|---|---:|---:|---:|---:|---:|---:|---:|'
for t in f32 bf16 q8 q6k q6 default q6f q5f q4s; do
    "$build/quasar" convert "$ck" "$tmp/$t.qsr" --tier $t --force >/dev/null
    "$build/bench/tierdiff" "$tmp/ref.qsr" "$tmp/$t.qsr" "$ck"/reference/*.json
    rm -f "$tmp/$t.qsr"
done
