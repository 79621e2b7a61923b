# For tests of quasar serve, sourced: a folder of their own in $tmp, results, and a server on a
# free port. TAP.
q=${QUASAR_BIN:?}
if ! command -v curl >/dev/null; then
    printf '1..1\nok 1 # SKIP curl is missing\n'
    exit 0
fi
tmp=$(mktemp -d)
pid=
also= # other processes that end with the test
trap 'kill -9 $pid $also 2>/dev/null; rm -rf "$tmp"' EXIT
export XDG_CONFIG_HOME=$tmp/config XDG_STATE_HOME=$tmp/state XDG_DATA_HOME=$tmp/data

n=0
bad=
result() { # result NAME: by $bad, which it clears
    n=$((n + 1))
    if [ -z "$bad" ]; then echo "ok $n - $1"; else
        printf '%s\n' "$bad" | sed 's/^/# /' | cut -c1-600
        echo "not ok $n - $1"
    fi
    bad=
}
wrong() { bad="$bad${bad:+
}${1:0:600}"; }

# serve OPTIONS: until it is ready; sets $pid and $url
serve() {
    : >"$tmp/log" # that of the one before says that it is ready
    "$q" serve --backend cpu --threads 1 --port 0 --prefix-cache off "$@" >"$tmp/out" 2>"$tmp/log" &
    pid=$!
    for ((i = 0; i < 1500; i++)); do
        if grep -q 'is ready' "$tmp/log"; then
            url=$(sed -n 's/^listening at //p' "$tmp/log")
            [ -z "$url" ] || return
        fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    wrong "it does not get ready: $(cat "$tmp/log")"
}
