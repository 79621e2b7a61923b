#!/bin/sh
# Every file that conversations are kept in, damaged in every class of its bytes, and the
# command killed at any moment: never another answer, never a turn that is gone without a
# word, one notice. A few of each; QUASAR_LONG: 2,000 damages and 200 kills. TAP.
q=${QUASAR_BIN:?}
src=${QUASAR_SRCDIR:?}
model=$src/models/demo.qsr
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export XDG_STATE_HOME="$t/state" XDG_CONFIG_HOME="$t/config" XDG_DATA_HOME="$t/data"
dir=$XDG_STATE_HOME/quasar
few() { if [ -n "$QUASAR_LONG" ]; then echo "$1"; else echo "$2"; fi; }
n=0
bad=0
ok() { # ok NAME CASES
    n=$((n + 1))
    echo "# $2 cases, $bad wrong"
    if [ "$bad" -eq 0 ] && [ "$2" -gt 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
    bad=0
}
wrong() { # wrong WHAT: of this case
    bad=$((bad + 1))
    [ "$bad" -gt 5 ] || {
        echo "# $what: $1"
        sed 's/^/#   /' "$t/err" | head -3
    }
}
tokens() { sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p' "$1" | head -1; }
lines() { wc -l <"$1"; }
ask() { # ask NAME TEXT ARGS…
    name=$1 text=$2
    shift 2
    "$q" run -m "$model" --threads 1 --session "$name" -p "$text" --think off --preserve-thinking --temp 0 -n 8 --json \
        --prefix-cache off "$@" </dev/null >"$t/out" 2>"$t/err"
}
# flip FILE AT BIT
flip() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "\\$(printf %03o $((byte ^ (1 << $3))))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
# cases COUNT SEED SIZE FROM TO …: "number offset bit cut" of the classes of bytes in turn
cases() {
    awk -v args="$*" 'BEGIN {
        n = split(args, a, " "); srand(a[2]); k = (n - 3) / 2
        for (i = 0; i < a[1]; i++) {
            c = i % k; from = a[4 + 2 * c]; to = a[5 + 2 * c]
            printf "%d %d %d %d\n", i, from + int(rand() * (to - from)), int(rand() * 8), i % 7 == 6
        }
    }'
}
# state_cases FILE COUNT SEED: those of a saved state
state_cases() {
    size=$(stat -c %s "$1")
    ids=$(od -An -tu4 -j 32 -N 4 "$1" | tr -d ' ')
    data=$((256 + 16 + 4 * ids))
    chunks=$(((size - data - 32) / (1048576 + 8) + 1))
    end=$((size - 32 - 8 * chunks))
    cases "$2" "$3" "$size" 0 256 256 272 272 "$data" "$data" "$end" "$end" $((size - 32)) $((size - 32)) "$size" \
        >"$t/cases"
}
restore() {
    rm -rf "$dir"
    mkdir -p "$XDG_STATE_HOME"
    cp -R "$t/base" "$dir"
}

echo 1..6

# ---- saved states ----
what=base
ask talk 'How many days are in a week?' && cp -R "$dir" "$t/base" && ask talk 'And in a year?'
warm=$(tokens "$t/out")
restore
rm -f "$dir"/states/*
ask talk 'And in a year?'
cold=$(tokens "$t/out")
f=$(basename "$t"/base/states/live-*)
count=$(few 700 8)
state_cases "$t/base/states/$f" "$count" 5
while read -r i at bit cut; do
    what="state, byte $at of $size, bit $bit, cut $cut"
    restore
    if [ "$cut" = 1 ]; then truncate -s "$at" "$dir/states/$f"; else flip "$dir/states/$f" "$at" "$bit"; fi
    ask talk 'And in a year?'
    rc=$?
    [ $rc -eq 0 ] || wrong "status $rc"
    [ "$(tokens "$t/out")" = "$cold" ] || wrong 'another answer'
    [ "$(lines "$t/err")" -eq 1 ] && grep -q 'read again' "$t/err" || wrong 'not one notice'
    [ "$("$q" sessions export talk --format jsonl | wc -l)" -eq 4 ] || wrong 'a turn is gone'
done <"$t/cases"
ok 'damaged states' "$count"

# versions, other engines, locks of the dead, two at once
count=0
for round in $(seq 1 "$(few 25 1)"); do
    for case in 0 1 3 255 kv spec lock two; do
        what="state: $case"
        count=$((count + 1))
        restore
        want=$cold
        told=1
        set --
        case $case in
        kv)
            # the format's own answer
            rm -rf "$dir/states"
            ask talk 'And in a year?' --kv k3v3
            want=$(tokens "$t/out")
            restore
            set -- --kv k3v3
            ;;
        spec) want=$warm told=0 && set -- --spec off ;;
        lock)
            want=$warm told=0
            mkdir -p "$dir/locks"
            sh -c 'echo $$' >"$dir/locks/1.lock"
            ;;
        two)
            "$q" run -m "$model" --threads 1 --session talk -p 'Me first.' --think off --temp 0 -n 8 --prefix-cache off \
                </dev/null >"$t/out2" 2>"$t/err2" &
            pid=$!
            ask talk 'And in a year?'
            rc=$?
            wait $pid
            rc2=$?
            [ $rc -eq 0 ] || [ $rc2 -eq 0 ] || wrong 'both were refused'
            [ $rc -eq 0 ] || grep -q 'is open in another quasar' "$t/err" || wrong "status $rc"
            [ $rc2 -eq 0 ] || grep -q 'is open in another quasar' "$t/err2" || wrong "status $rc2"
            turns=$("$q" sessions export talk --format jsonl | wc -l)
            [ "$turns" -eq $((2 + 2 * (rc == 0) + 2 * (rc2 == 0))) ] || wrong "$turns turns"
            continue
            ;;
        *) printf "\\$(printf %03o "$case")" | dd of="$dir/states/$f" bs=1 seek=8 conv=notrunc 2>/dev/null ;;
        esac
        [ "$case" != 1 ] || want=$warm told=0 # the version it has
        ask talk 'And in a year?' "$@" || wrong 'status'
        [ "$(tokens "$t/out")" = "$want" ] || wrong 'another answer'
        [ "$(lines "$t/err")" -eq "$told" ] || wrong "not $told notices"
    done
done
ok 'other versions, other engines, locks of the dead, two at once' "$count"

# ---- kept prompts ----
rm -rf "$dir"
for i in $(seq 1 24); do echo "Line $i of a text that is long enough to be kept on the disk."; done >"$t/long"
prompt() {
    "$q" run -m "$model" --threads 1 -f "$t/long" --think off --temp 0 -n 8 --json --prefix-least 64 --prefix-cache "$1" \
        </dev/null >"$t/out" 2>"$t/err"
}
prompt off
cold=$(tokens "$t/out")
prompt "$t/kept" && prompt "$t/kept"
grep -q '"cached_tokens":[1-9]' "$t/out" || wrong 'nothing is reused'
f=$(ls -S "$t/kept" | grep '\.prefix$' | head -1)
count=$(few 400 6)
state_cases "$t/kept/$f" "$count" 6
while read -r i at bit cut; do
    what="prompt, byte $at of $size, bit $bit, cut $cut"
    rm -rf "$t/now"
    cp -R "$t/kept" "$t/now"
    if [ "$cut" = 1 ]; then truncate -s "$at" "$t/now/$f"; else flip "$t/now/$f" "$at" "$bit"; fi
    prompt "$t/now" || wrong 'status'
    [ "$(tokens "$t/out")" = "$cold" ] || wrong 'another answer'
    [ "$(lines "$t/err")" -le 1 ] || wrong 'more than one notice'
    cmp -s "$t/now/$f" "$t/kept/$f" && wrong 'the same file was written, with the same time'
    # another major version is left alone; what is damaged is gone, or a good one is in its place
    "$q" sessions gc --json --prefix-cache "$t/now" >"$t/out" 2>"$t/err" && grep -q '"damaged_prompts":0' "$t/out" || wrong 'a damaged one stayed'
done <"$t/cases"
ok 'damaged states of prompts' "$count"

# ---- the catalogue ----
rm -rf "$dir" "$t/base"
for c in 1 2 3 4 5; do
    for i in 1 2; do
        "$q" run -m "$model" --threads 1 --session "talk $c" -p "Question $i of $c. $(head -c $((900 * c)) "$t/long" | tr '\n' ' ')" --think off --temp 0 -n 3 \
            --no-save-state --prefix-cache off </dev/null >/dev/null 2>&1
    done
done
cp -R "$dir" "$t/base"
size=$(stat -c %s "$dir/catalog.db")
count=$(few 1000 20)
cases "$count" 7 "$size" 0 100 100 4096 4096 "$size" 0 "$size" >"$t/cases"
lost=0
silent=0
while read -r i at bit cut; do
    what="catalogue, byte $at of $size, bit $bit, cut $cut"
    restore
    case $((i % 5)) in
    0 | 1) flip "$dir/catalog.db" "$at" "$bit" ;;
    2) dd if=/dev/zero of="$dir/catalog.db" bs=1 seek="$at" count=64 conv=notrunc 2>/dev/null ;;
    3) dd if=/dev/urandom of="$dir/catalog.db" bs=4096 seek=$((at / 4096)) count=1 conv=notrunc 2>/dev/null ;;
    4) truncate -s $((at * cut + (at - at % 4096) * (1 - cut))) "$dir/catalog.db" ;;
    esac
    : >"$t/all"
    turns=0
    for c in 1 2 3 4 5; do
        "$q" sessions export "$c" --format jsonl >"$t/out" 2>"$t/err"
        rc=$?
        [ $rc -le 1 ] || wrong "export has status $rc"
        [ $rc -eq 0 ] || [ "$(grep -c . "$t/err")" -ge 1 ] || wrong 'no word'
        cat "$t/err" >>"$t/all"
        [ $rc -ne 0 ] || turns=$((turns + $(lines "$t/out")))
    done
    "$q" sessions list >"$t/out" 2>"$t/err"
    [ $? -le 1 ] || wrong 'list'
    cat "$t/err" >>"$t/all"
    "$q" sessions verify --repair >"$t/out" 2>"$t/err"
    rc=$?
    [ $rc -le 1 ] || wrong "verify has status $rc"
    cat "$t/err" >>"$t/all"
    if [ "$turns" -lt 20 ]; then
        lost=$((lost + 1))
        grep -Eq 'was damaged|was empty|is damaged|verify --repair|newer quasar' "$t/all" || {
            silent=$((silent + 1))
            cp "$t/all" "$t/err"
            wrong "$turns turns of 20, and no word of it"
        }
    fi
    grep -q 'newer quasar' "$t/all" && continue
    "$q" sessions verify >"$t/out" 2>"$t/err" || wrong 'not sound after the repair'
    if [ $((i % 20)) -eq 0 ]; then
        ask 'talk 1' 'More.' --no-save-state || wrong 'it does not go on'
    fi
done <"$t/cases"
echo "# turns were out of reach in $lost, without a word in $silent"
ok 'damaged catalogues' "$count"

# ---- kills ----
# kill_one I DELAY EVENT: the command at turn I, killed DELAY after EVENT ('' : its start)
kill_one() {
    "$q" run -m "$model" --threads 1 --session killed -p "Question $1." --think off --preserve-thinking --temp 0 -n 8 --json-stream \
        --prefix-cache off </dev/null >"$t/kill" 2>"$t/err" &
    pid=$!
    if [ -n "$3" ]; then
        while ! grep -q "\"event\":\"$3\"" "$t/kill" && kill -0 $pid 2>/dev/null; do sleep 0.005; done
    fi
    sleep "$2"
    kill -9 $pid 2>/dev/null && alive=$((alive + 1))
    wait $pid 2>/dev/null
    "$q" sessions export killed --format jsonl >"$t/out" 2>"$t/err2" || [ ! -s "$t/kill" ] || wrong 'nothing can be read'
    if grep -q '"event":"start"' "$t/kill"; then
        grep -q "Question $1\\." "$t/out" || "$q" sessions show killed --json | grep -q "Question $1\\." || wrong 'the question is gone'
    fi
    if grep -q '"event":"end"' "$t/kill"; then
        grep -A1 "Question $1\\." "$t/out" | grep -q '"role":"assistant"' || wrong 'the answer is gone'
    fi
    ls "$dir/states" 2>/dev/null | grep -qv '^live-[0-9]*-[0-9a-f]*\.state$' && wrong 'something else is among the states'
}
rm -rf "$dir"
count=$(few 200 6)
alive=0
for i in $(seq 1 "$count"); do
    what="kill $i"
    delay=$(awk -v s="$i" 'BEGIN { srand(s * 7919); printf "%.3f", rand() }')
    case $((i % 3)) in
    0) kill_one "$i" "$(awk -v d="$delay" 'BEGIN { printf "%.3f", d * 0.7 }')" '' ;;
    1) kill_one "$i" "$(awk -v d="$delay" 'BEGIN { printf "%.3f", d / 30 }')" end ;; # its state is being saved
    2) kill_one "$i" "$(awk -v d="$delay" 'BEGIN { printf "%.3f", d / 12 }')" start ;;
    esac
    # a conversation that is not too long goes on quickly
    [ $((i % 20)) -ne 0 ] || "$q" sessions rename killed "killed until $i" || wrong 'it has no name'
done
what='after the kills'
"$q" sessions verify >"$t/out" 2>"$t/err" || wrong 'not sound'
echo "# $alive of $count were alive when they were killed"
ok 'killed at any moment' "$count"
what='after the kills'
ask killed 'Still there?' || wrong 'it does not go on'
"$q" sessions show killed | grep -q 'Still there?' || wrong 'it is not stored'
ok 'and it goes on' 1
