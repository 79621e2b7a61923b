# For tests of the screen, sourced: a private terminal (a tmux server of its
# own), and words to press keys and to wait for what is drawn. The conversation
# is the scripted one of tests/fake; what is waited for is the screen's content,
# never time. TAP.
build=$(cd "${QUASAR_BUILDDIR:-.}" && pwd)
fake=$build/tests/fake_quasar
if ! command -v tmux >/dev/null; then
    printf '1..1\nok 1 # SKIP tmux is missing\n'
    exit 0
fi
tmp=$(mktemp -d)
sock=quasar-screen-$$-0
export TMUX_TMPDIR=$tmp LC_ALL=C.UTF-8 HOME=$tmp TMUX='' FAKE_HISTORY=$tmp/history SHELL=/bin/bash
# curses keeps its tables; reports of other kinds go to a file
export ASAN_OPTIONS=detect_leaks=0:log_path=$tmp/asan UBSAN_OPTIONS=log_path=$tmp/asan
unset NO_COLOR ACCESSIBLE VISUAL EDITOR XDG_CONFIG_HOME XDG_STATE_HOME XDG_DATA_HOME
t() { tmux -L "$sock" -f /dev/null -u "$@"; }
# the server may still write while it ends
trap 't kill-server 2>/dev/null; rm -rf "$tmp" 2>/dev/null || { sleep 1; rm -rf "$tmp"; }' EXIT
cat >"$tmp/rc" <<'RC'
PS1='shell> '
RC

n=0
bad=
result() { # result NAME: by $bad, which it clears
    n=$((n + 1))
    if [ -z "$bad" ]; then echo "ok $n - $1"; else
        printf '%s\n' "$bad" | sed 's/^/# /'
        echo "not ok $n - $1"
    fi
    bad=
}
wrong() {
    [ -n "$bad" ] || bad="$1
$(t capture-pane -p)"
}

screen() { t capture-pane -p; }
# After a failure the rest of that test is not waited for.
tries() { if [ -n "$bad" ]; then echo 20; else echo 700; fi; }
# wait_for REGEX [FLAGS]: until the screen shows it within 20 s
wait_for() {
    local i most
    most=$(tries)
    for ((i = 0; i < most; i++)); do
        if screen | grep -Eq -- "$1"; then return 0; fi
        sleep 0.02
    done
    wrong "never on the screen: $1"
    return 1
}
wait_not() {
    local i most
    most=$(tries)
    for ((i = 0; i < most; i++)); do
        if ! screen | grep -Eq -- "$1"; then return 0; fi
        sleep 0.02
    done
    wrong "still on the screen: $1"
    return 1
}
wait_until() { # wait_until COMMAND...
    local i most
    most=$(tries)
    for ((i = 0; i < most; i++)); do
        if "$@"; then return 0; fi
        sleep 0.02
    done
    wrong "never true: $*"
    return 1
}
must() { screen | grep -Eq -- "$1" || wrong "not on the screen: $1"; }
must_not() { if screen | grep -Eq -- "$1"; then wrong "on the screen: $1"; fi; }
# Escape is one only when nothing follows it for a while, however busy the machine is.
key() {
    t send-keys "$@"
    if [ "${*: -1}" = Escape ]; then sleep 0.3; fi
}
text() { t send-keys -l "$1"; }
say() { text "$1" && wait_for "^ > .*${2:-$1}" && key Enter; }
size() { t resize-window -x "$1" -y "$2"; }
alternate() { [ "$(t display-message -p '#{alternate_on}')" = "$1" ]; }

# Ends the terminal; the next one has a socket of its own, since the old server
# may still be on its way out.
fresh() {
    t kill-server 2>/dev/null
    sock=${sock%-*}-$((${sock##*-} + 1))
}

# A shell in a window of the given size, and in it the program.
shell() { # shell WIDTH HEIGHT [NAME=VALUE ...]
    local w=$1 h=$2
    shift 2
    fresh
    t new-session -d -x "$w" -y "$h" env "$@" bash --noprofile --rcfile "$tmp/rc" -i
    t set-option -g window-size manual >/dev/null
    t set-option -g default-size "${w}x$h" >/dev/null
    size "$w" "$h"
    wait_for '^shell>'
}
program() {
    text "$* $fake $args; echo rc=\$?"
    key Enter
}
begin() { # begin WIDTH HEIGHT [NAME=VALUE ...]
    shell "$@"
    program
    wait_for '── idle|-- idle|  idle  F1'
}
pid() { # of the program that the shell runs
    local p
    p=$(t display-message -p '#{pane_pid}')
    awk '{ print $NF }' "/proc/$p/task/$p/children"
}
whole() { # the terminal is as the shell left it
    wait_until alternate 0
    key C-l
    text 'stty -a | grep -c -- " icanon.* echo " ; echo modes'
    key Enter
    wait_for '^modes'
    screen | grep -qx '[12]' || wrong 'the line discipline is not sane'
}
args=


# The last test of a script.
finish() {
    local f
    for f in "$tmp"/asan*; do
        if [ -e "$f" ]; then bad=$(head -30 "$f"); fi
    done
    result 'no sanitizer report'
    echo "1..$n"
}
