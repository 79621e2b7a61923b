# For tests on the scripted engine, sourced: a program in a private terminal (tmux), whose
# time the test moves. Nothing here sleeps: every word returns when the program has drawn
# all that follows from it, and the terminal has shown it.
#   begin                     starts $quasar $args at $size under the environment in $env
#   type TEXT, key NAME…, paste TEXT     and wait until it is drawn
#   run, go, advance TIME     time passes (docs/script.md); $quiet is the answer
#   say TEXT                  types, Enter, run
#   resize WxH                the terminal's size
#   leave                     ends it
quasar=${QUASAR_BIN:?}
src=${QUASAR_SRCDIR:?}
# Everything under one roof that is always of the same name inside.
roof=${roof:-$(mktemp -d)}
sock=golden-$$
unset NO_COLOR ACCESSIBLE VISUAL EDITOR TMUX STY QUASAR_CONFIG
export ASAN_OPTIONS=detect_leaks=0:log_path=$roof/asan UBSAN_OPTIONS=log_path=$roof/asan
t() { TMUX_TMPDIR=$roof tmux -L "$sock" -f /dev/null -u "$@"; }
ended() {
    t kill-server 2>/dev/null
    rm -rf "$roof" 2>/dev/null || { sleep 1; rm -rf "$roof"; }
}
trap ended EXIT

# One command to the program's clock. No answer within 30 s: it hangs, or is gone.
quiet=
tell() {
    printf '%s\n' "$1" >&"$ctl"
    if ! IFS= read -r -t 30 -u "$rep" quiet; then
        quiet="no answer to: $1"
        trouble=${trouble:-$quiet}
        return 1
    fi
}

size=80x24 args= env= script=$src/tests/golden/screens.qs
# The server stays between programs.
t new-session -d -s keep 'exec sleep 100000' \; set-option -g remain-on-exit on \; \
    set-option -g status off
fresh() { # an empty home
    rm -rf "$roof/home"
    mkdir -p "$roof/home/work"
}
begin() {
    local w=${size%x*} h=${size#*x}
    leave
    rm -f "$roof/ctl" "$roof/rep"
    mkfifo "$roof/ctl" "$roof/rep"
    exec {ctl}<>"$roof/ctl" {rep}<>"$roof/rep"
    local where=$roof/home/work
    { cat "$script"; printf 'control ctl\nreport rep\n'; } | sed '/^control/,$!b' >"$where/s.qs"
    sed -i "s|^control ctl|control $roof/ctl|; s|^report rep|report $roof/rep|" "$where/s.qs"
    sent=0 trouble=
    t new-session -d -s q -x "$w" -y "$h" -c "$roof/home/work" \
        env -i PATH="$PATH" HOME="$roof/home" TZ=UTC LC_ALL=C.UTF-8 SHELL=/bin/sh \
        TERM=tmux-256color ASAN_OPTIONS="$ASAN_OPTIONS" UBSAN_OPTIONS="$UBSAN_OPTIONS" $env \
        "$quasar" --engine script:s.qs $args \; resize-window -t q -x "$w" -y "$h" >/dev/null
}
leave() {
    local p
    if [ -n "${ctl:-}" ]; then
        p=$(t display-message -t q -p '#{pane_pid}')
        t kill-session -t q
        tail --pid="${p:-1}" -s 0.02 -f /dev/null # until it has written what it had to
        exec {ctl}>&- {rep}>&-
    fi
    ctl= rep=
}

arrived() { # arrived BYTES: so many were sent
    sent=$((sent + $1))
    tell "input $sent"
}
type() {
    t send-keys -t q -l -- "$1"
    if [ -n "${by_line:-}" ]; then # the line discipline keeps it until Enter
        sent=$((sent + $(printf %s "$1" | wc -c)))
        return
    fi
    arrived "$(printf %s "$1" | wc -c)"
}
paste() { # as a terminal pastes, in brackets
    printf %s "$1" >"$roof/paste"
    t load-buffer "$roof/paste" \; paste-buffer -p -t q
    arrived $(($(wc -c <"$roof/paste") + 12))
}
key() {
    local k hex
    for k; do
        case $k in
        Enter) hex=0d ;; Tab) hex=09 ;; Escape) hex=1b ;; BSpace) hex=7f ;; Space) hex=20 ;;
        Up) hex='1b 5b 41' ;; Down) hex='1b 5b 42' ;; Right) hex='1b 5b 43' ;; Left) hex='1b 5b 44' ;;
        Home) hex='1b 5b 48' ;; End) hex='1b 5b 46' ;;
        PageUp) hex='1b 5b 35 7e' ;; PageDown) hex='1b 5b 36 7e' ;;
        S-Tab) hex='1b 5b 5a' ;; M-Up) hex='1b 5b 31 3b 33 41' ;; M-x) hex='1b 78' ;;
        F1) hex='1b 4f 50' ;; F2) hex='1b 4f 51' ;; F3) hex='1b 4f 52' ;; F4) hex='1b 4f 53' ;;
        F9) hex='1b 5b 32 30 7e' ;;
        C-?) hex=$(printf '%02x' $(($(printf '%d' "'${k#C-}") & 31))) ;;
        ?) hex=$(printf '%02x' "'$k") ;;
        *) trouble="there is no key $k"; return 1 ;;
        esac
        # shellcheck disable=SC2086
        t send-keys -t q -H $hex
        arrived "$(printf '%s\n' $hex | wc -l)"
        if [ "$k" = Escape ]; then tell 'advance 30ms'; fi
    done
}
run() { tell run; }
go() { tell go; }
advance() { tell "advance $1"; }
say() {
    type "$1"
    key Enter
    run
}
resize() {
    t resize-window -t q -x "${1%x*}" -y "${1#*x}"
    tell "size $1"
}
# The screen with its attributes (ESC as \e), and the cursor.
capture() {
    t capture-pane -t q -pe \; display-message -t q -p \
        'cursor #{cursor_x},#{cursor_y} shown #{cursor_flag}' | sed 's/\x1b/\\e/g
            s/disk [0-9.]* [BKMGT] of [0-9.]* \([KMGT]\)\(\\e\[[0-9;]*m\)* */disk # of # \1\2/
            s/text [0-9.]* [BKMG]  state [0-9.]* [BKMG]\(\\e\[[0-9;]*m\)* */text #  state #\1/
            s/state saved, [0-9.]* [KMG]/state saved, #/
            s/^ host mem .*/ host mem #/'
}
plain_text() { sed 's/\\e\[[0-9;]*m//g; s/\\e[()][0-9A-B]//g; s/\x0e//g; s/\x0f//g'; }
