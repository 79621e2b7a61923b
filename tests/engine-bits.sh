#!/bin/sh
# The digest of the sources that decide what the engine computes: the same wherever they
# lie, another after any change, and it is what this build's states are marked with. TAP.
src=$(cd "${QUASAR_SRCDIR:?}" && pwd)
build=$(cd "${QUASAR_BUILDDIR:-.}" && pwd)
q=${QUASAR_BIN:?}
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
n=0
ok() {
    rc=$?
    n=$((n + 1))
    if [ $rc -eq 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}
bits() { sh "$src/src/engine/bits.sh" "$1"; }

echo 1..5
here=$(bits "$src")
mkdir -p "$t/copy/src/format"
cp -R "$src/kernels" "$t/copy/" && cp -R "$src/src/engine" "$t/copy/src/" &&
    cp "$src/src/format/quant.c" "$src/src/format/quant.h" "$t/copy/src/format/"
chmod -R u+w "$t/copy"
[ ${#here} -eq 64 ] && [ "$(cd / && LC_ALL=en_US.UTF-8 bits "$t/copy")" = "$here" ]
ok 'the same sources elsewhere have the same digest'
touch "$t/copy/kernels/kvq.c" "$t/copy/kernels/notes.txt" "$t/copy/kernels/.kvq.c.swp" "$t/copy/kernels/cpu/gemm.o"
[ "$(bits "$t/copy")" = "$here" ]
ok 'what is no source does not count'
seen=" $here"
for f in kernels/cpu/attn.c kernels/kvq.h kernels/cuda/gdn_decode.cu kernels/cuda/attn.cuh src/engine/compute.c src/format/quant.c; do
    printf '/* */\n' >>"$t/copy/$f"
    now=$(bits "$t/copy")
    case $seen in *"$now"*) seen=bad && break ;; esac
    seen="$seen $now"
done
[ "$seen" != bad ] && mv "$t/copy/kernels/kvq.c" "$t/copy/kernels/kvr.c" && case $seen in *"$(bits "$t/copy")"*) false ;; esac
ok 'a change of any of them gives another'
grep -q "\"$here\"" "$build/src/engine/bits.h"
ok 'this build was made with it'
export XDG_STATE_HOME="$t/state" XDG_CONFIG_HOME="$t/config" XDG_DATA_HOME="$t/data"
"$q" run -m "$src/models/demo.qsr" --threads 1 --session a -p hi -n 2 </dev/null >"$t/out" 2>&1 &&
    grep -aq "kernels $(echo "$here" | cut -c1-8)" "$t"/state/quasar/states/live-*
ok 'and says so in the states that it saves'
