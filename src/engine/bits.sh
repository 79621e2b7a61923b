#!/bin/sh
# Usage: bits.sh SRCDIR. Prints one digest of every source that decides a number the engine
# computes: other kernels, other digest. Names and bytes only, so that the same sources
# give the same digest on every machine and in every build folder.
set -e
LC_ALL=C
export LC_ALL
cd "$1"
find kernels src/engine src/format/quant.c src/format/quant.h -type f ! -name '.*' \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) ! -path src/engine/bits.h |
    sort | xargs sha256sum | sha256sum | cut -c1-64
