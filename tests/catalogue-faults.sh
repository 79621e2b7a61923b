#!/bin/bash
# The disk under the catalogue and the saved states fails, or the process ends, at every single
# write: what was committed is there afterwards, what is reported as stored is stored, and what
# is not is told in a line. At every eleventh write, so that in the end all kinds of them are met;
# with QUASAR_LONG at each. TAP.
quasar=${QUASAR_BIN:?}
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export HOME=$t XDG_STATE_HOME=$t/state
unset XDG_CONFIG_HOME XDG_DATA_HOME
step=${QUASAR_LONG:+1}
step=${step:-11}

n=0
bad=
result() {
    n=$((n + 1))
    if [ -z "$bad" ]; then echo "ok $n - $1"; else
        printf '%s\n' "$bad" | sed 's/^/# /'
        echo "not ok $n - $1"
    fi
    bad=
}
wrong() { bad=${bad:-$*}; }

answer='answer\n  text Answered, to the end.\n'
ask() { # ask QUESTION [FAULT]: $rc, $t/out, $t/err
    printf "round 1ms\n%s\n$answer" "$2" >"$t/script"
    "$quasar" run --engine "script:$t/script" --session talk -p "$1" >"$t/out" 2>"$t/err"
    rc=$?
}
# What is stored of the conversation.
stored() { "$quasar" sessions export talk --format md 2>/dev/null; }
sound() { # sound WHAT: the catalogue is
    "$quasar" sessions verify >"$t/verify" 2>&1 || wrong "$1: $(head -3 "$t/verify")"
}
has() { # has WHAT QUESTION
    stored | grep -qx "$2" || wrong "$1: \"$2\" is lost"
}
prepare() {
    rm -rf "$t/state"
    [ "$1" = empty ] && return
    ask 'the first question'
    [ $rc = 0 ] || wrong "cannot begin: $(cat "$t/err")"
    rm -rf "$t/ready"
    cp -r "$t/state" "$t/ready"
}
renew() {
    rm -rf "$t/state"
    [ "$1" = empty ] || cp -r "$t/ready" "$t/state"
}

# every KIND FROM: a kill at every write, from a folder with a turn or an empty one; $writes.
every() {
    local i
    prepare "$2"
    for ((i = 1; i < 500; i += step)); do
        renew "$2"
        ask 'the second question' "$1 $i kill"
        [ $rc = 99 ] || break
        sound "$1 $i kill"
        [ "$2" = empty ] || has "$1 $i kill" 'the first question'
        # it goes on
        ask 'the third question'
        [ $rc = 0 ] || wrong "after $1 $i kill: $(cat "$t/err")"
        has "after $1 $i kill" 'the third question'
    done
    writes=$((i - step))
    [ $rc = 0 ] || wrong "without a fault: $rc $(cat "$t/err")"
    [ $writes -gt 3 ] || wrong "only $writes writes"
}

every catalogue turn
result "a kill at the writes of the catalogue, up to $writes"
most=$writes
every catalogue empty
result "and at those that make it, up to $writes"
fresh=$writes
step=${QUASAR_LONG:+1}
step=${step:-2}
every disk turn
result "a kill at the operations on a saved state, up to $writes"
states=$writes

# fails KIND MOST HOW FROM: the write fails, and perhaps all that follow.
fails() {
    local i hows
    for hows in "$3" "$3 on"; do
        [ "$1" = disk ] && [ "$hows" != "$3" ] && continue
        for ((i = 1; i <= $2; i += step)); do
            renew "$4"
            ask 'the second question' "$1 $i $hows"
            case $rc in
            0)
                has "$1 $i $hows, status 0" 'the second question'
                has "$1 $i $hows, status 0" 'Answered, to the end\.'
                ;;
            1)
                lines=$(grep -c . "$t/err")
                [ "$lines" -ge 1 ] && [ "$lines" -le 4 ] ||
                    wrong "$1 $i $hows: $lines lines: $(cat "$t/err")"
                grep -q "disk\|written\|stored\|saved" "$t/err" || wrong "$1 $i $hows: $(cat "$t/err")"
                ;;
            *) wrong "$1 $i $hows: status $rc: $(cat "$t/err")" ;;
            esac
            sound "$1 $i $hows"
            [ "$4" = empty ] || has "$1 $i $hows" 'the first question'
            ask 'the third question'
            [ $rc = 0 ] || wrong "after $1 $i $hows: $(cat "$t/err")"
            has "after $1 $i $hows" 'the third question'
        done
    done
}
prepare turn
step=${QUASAR_LONG:+1}
step=${step:-17}
for how in full error readonly; do
    fails catalogue "$most" $how turn
    result "$how: what is said to be stored is stored, the rest is told"
done
fails catalogue "$fresh" full empty
result 'full, while the catalogue is made'
step=${QUASAR_LONG:+1}
step=${step:-3}
for how in full error; do
    fails disk "$states" $how turn
    result "$how at a saved state: the text is stored"
done
echo "1..$n"
