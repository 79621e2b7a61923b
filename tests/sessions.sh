#!/bin/sh
# Stored conversations as a user meets them: run --session, quasar sessions, kills,
# locks, damage, folders that cannot be written. TAP.
q=${QUASAR_BIN:?}
src=${QUASAR_SRCDIR:?}
model=$src/models/demo.qsr
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export XDG_STATE_HOME="$t/state" XDG_CONFIG_HOME="$t/config" XDG_DATA_HOME="$t/data"
dir=$t/state/quasar
n=0
ok() { # ok NAME: the last command's status decides
    rc=$?
    n=$((n + 1))
    if [ $rc -eq 0 ]; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        sed 's/^/# out: /' "$t/out" | head -5
        sed 's/^/# err: /' "$t/err" | head -5
    fi
}
# say STATUS NAME TEXT ARGS…: one turn
say() {
    want=$1 name=$2 text=$3
    shift 3
    "$q" run -m "$model" --threads 1 --session "$name" -p "$text" --think off --preserve-thinking --temp 0 \
        -n 24 "$@" </dev/null >"$t/out" 2>"$t/err"
    got=$?
    [ $got -eq "$want" ] || {
        echo "# status $got instead of $want: $name: $text"
        return 1
    }
}
# se STATUS ARGS…: quasar sessions
se() {
    want=$1
    shift
    "$q" sessions "$@" </dev/null >"$t/out" 2>"$t/err"
    got=$?
    [ $got -eq "$want" ] || {
        echo "# status $got instead of $want: sessions $*"
        return 1
    }
}
empty() { [ ! -s "$1" ]; }
one_line() { [ "$(wc -l <"$1")" -eq 1 ]; }
figure() { grep -o "\"$1\":[0-9]*" "$t/out" | head -1 | cut -d: -f2; }
turns() { # turns NAME: how many a conversation has
    "$q" sessions export "$1" --format jsonl | wc -l
}

echo 1..71

# one conversation, a process a turn
say 0 notes 'How many days are in a week?' --json && empty "$t/err" && [ "$(figure conversation)" = 1 ] &&
    [ "$(figure cached_tokens)" = 0 ]
ok 'a conversation begins'
prompt=$(figure prompt_tokens)
say 0 notes 'And in a year?' --json && empty "$t/err" && [ "$(figure conversation)" = 1 ] &&
    [ "$(figure cached_tokens)" -ge "$prompt" ]
ok 'the next process goes on with it, from its state'
say 0 notes 'Thank you.' --json-stream && grep -q '"event":"end".*"conversation":1' "$t/out"
ok 'the stream names it too'
say 0 1 'By number.' && [ "$(turns notes)" = 8 ]
ok 'a number means the same conversation'
say 1 77 'Nobody.' && one_line "$t/err" && grep -q 77 "$t/err"
ok 'a number that is none is status 1'
[ "$(stat -c %a "$dir" "$dir/catalog.db" "$dir/states" "$dir/locks" | tr '\n' ' ')" = '700 600 700 700 ' ] &&
    [ "$(stat -c %a "$dir"/states/* | sort -u)" = 600 ]
ok 'nobody else may read it'
say 0 other 'What is your name?' --no-save-state && [ "$(ls "$dir/states" | wc -l)" -eq 4 ] &&
    say 0 other 'And mine?' --json && [ "$(figure cached_tokens)" = 0 ] && one_line "$t/err" &&
    grep -q 'no state was saved' "$t/err"
ok '--no-save-state keeps the text only'
for args in '--raw' '--tokens 1' '--messages x'; do
    "$q" run -m "$model" --session notes $args -p x </dev/null >"$t/out" 2>"$t/err"
    [ $? -eq 2 ] && one_line "$t/err" || break
done
[ "$args" = '--messages x' ] && say 2 '' x && say 2 notes x --state-budget lots && one_line "$t/err"
ok 'what does not go with it is status 2'
echo 'Piped.' | "$q" -c -n 4 -m "$model" >"$t/out" 2>"$t/err" && [ "$(turns other)" = 6 ] &&
    echo 'Piped.' | "$q" --resume oth -n 4 -m "$model" >"$t/out" 2>"$t/err" && [ "$(turns other)" = 8 ]
ok '-c and --resume go on with one in a pipe'
(cd "$t" && echo x | "$q" -c -n 4 -m "$model" >"$t/out" 2>"$t/err")
[ $? -eq 1 ] && one_line "$t/err"
ok '-c where none was begun is status 1'
"$q" --resume </dev/null >"$t/out" 2>"$t/err" && grep -q '^ *1 .* notes$' "$t/out" && empty "$t/err"
ok '--resume alone lists them'

# quasar sessions
se 0 list && grep -q '^ *1 .* 4 turns .* notes$' "$t/out" && se 0 list --json &&
    grep -q '"id":1,"title":"notes","named":true' "$t/out" && [ "$(figure state_budget)" -gt 0 ]
ok 'list'
se 0 search DAYS && grep -q '^ *1  turn 1 *user *How many days' "$t/out" && se 0 search nothinglikeit && empty "$t/out" &&
    se 0 search week --json && grep -q '"conversation":1' "$t/out"
ok 'search'
se 0 show notes && grep -q '^How many days are in a week?$' "$t/out" && se 0 show 1 --turn 2 --json &&
    grep -q '"path":\[1,2\]' "$t/out" && se 1 show 1 --turn 9999 && one_line "$t/err" && se 1 show nonesuch
ok 'show'
se 0 export notes --format jsonl && head -2 "$t/out" | awk 'BEGIN { printf "[" } { printf "%s%s", s, $0; s = "," } END { printf "]" }' >"$t/m.json" &&
    "$q" run -m "$model" --messages "$t/m.json" -n 3 --temp 0 >"$t/out" 2>"$t/err"
ok 'exported messages are a prompt'
se 0 export notes "$t/notes.md" && empty "$t/out" && head -1 "$t/notes.md" | grep -qx '# notes' &&
    se 1 export notes "$t/notes.md" && one_line "$t/err" && se 0 export notes "$t/notes.md" --force &&
    se 0 export notes --format json && grep -q '"all_turns":\[{"id":1,"parent":null,"role":"user"' "$t/out"
ok 'export writes a new file, or prints'
se 0 fork notes 'notes, again' --turn 4 && id=$(cat "$t/out") && [ "$(turns "$id")" = 4 ] &&
    say 0 'notes, again' 'Thank you.' --json && [ "$(figure cached_tokens)" -gt 0 ] &&
    [ "$(turns notes)" = 8 ] && [ "$(turns "$id")" = 6 ]
ok 'a fork goes its own way, from the same state'
se 0 rename other 'The plan' && se 0 tag 'The plan' work c && se 0 pin 'The p' && se 0 list &&
    grep -q 'The plan  \[c, work\]  pinned' "$t/out" && se 0 untag 'The plan' c && se 0 unpin 'The plan' &&
    se 0 list && grep -q 'The plan  \[work\]$' "$t/out" && se 2 tag 'The plan' 'a,b' && se 2 rename notes '' && se 2 fork notes ''
ok 'names, tags, pins'
se 2 rename notes 77 && one_line "$t/err" && grep -q 'a number means' "$t/err" && se 2 fork notes 77 && se 0 rename notes 77a && se 0 rename 77a notes &&
    se 2 show 1 --turn -1 && one_line "$t/err" && grep -q 'turn: -1 is less than 1$' "$t/err"
ok 'a number is no name'
for args in -c --resume=notes ''; do
    "$q" $args -m "$model" </dev/null >"$t/out" 2>"$t/err"
    [ $? -eq 2 ] && one_line "$t/err" && grep -q "no terminal.*echo TEXT | quasar${args:+ ${args%%=*}}" "$t/err" || break
done
[ -z "$args" ]
ok 'a chat without a terminal and a question: what to do'
long='A title that is much longer than any terminal is wide, and then some more words of it to be sure'
if command -v script >/dev/null; then
    say 0 "$long" x -n 1 && se 0 list && grep -q "  $long\$" "$t/out" && COLUMNS=70 script -qec "'$q' sessions list" /dev/null </dev/null >"$t/out" 2>&1 &&
        grep -q '  A title that is much …' "$t/out" && ! grep -q 'terminal is' "$t/out" && tr -d '\r' <"$t/out" | awk 'length($0) > 72 { bad = 1 } END { exit bad }' &&
        se 0 list --json && grep -q "$long" "$t/out" && se 0 rm "$long"
    ok 'a title has the room that is left of a line'
else
    n=$((n + 1))
    echo "ok $n - a title has the room that is left of a line # SKIP script is missing"
fi
(ulimit -f 16 && XDG_STATE_HOME=$t/limited exec "$q" run -m "$model" --session a -p hi -n 3 --think off </dev/null) >"$t/out" 2>"$t/err"
[ $? -eq 1 ] && [ -s "$t/out" ] && [ "$(grep -c 'ulimit -f' "$t/err")" = 1 ] && grep -q 'this turn is not stored' "$t/err" && ! grep -q 'new-' "$t/err" &&
    (ulimit -f 16 && XDG_STATE_HOME=$t/limited exec "$q" sessions list) >"$t/out" 2>"$t/err" && grep -q 'No conversation' "$t/out" &&
    one_line "$t/err" && grep -q 'nothing is stored: the limit on the size of files' "$t/err"
ok 'no catalogue, and a limit on the size of files: an answer, and one line says what is the matter'
(export XDG_STATE_HOME="$t/filled" && say 0 a hi && ulimit -f 100 && say 1 a 'More.')
[ $? -eq 0 ] && [ -s "$t/out" ] && grep -q 'not stored' "$t/err" &&
    (export XDG_STATE_HOME="$t/filled" && say 0 a 'More.' && [ "$(turns a)" = 4 ])
ok 'an answer that could not be stored to the end is status 1'
se 2 && one_line "$t/err" && se 2 dance && se 2 show && se 2 list x && se 2 show note && one_line "$t/err"
ok 'what cannot be meant is status 2'
se 2 rename 'The plan' notes && one_line "$t/err" && grep -q 'conversation 1 has the name "notes" already' "$t/err" && se 2 fork 'The plan' notes &&
    se 0 fork notes && fork=$(cat "$t/out") && se 0 list && grep -q "^ *$fork .* notes (2)\$" "$t/out" && se 0 rm "$fork"
ok 'no two conversations are given one name'
se 1 rm notes 99 && one_line "$t/err" && [ "$(turns notes)" = 8 ] && se 1 pin notes 99 && ! "$q" sessions list | grep -q pinned &&
    say 0 gone x -n 1 && se 0 rm gone gone && se 1 show gone && se 1 untag notes nosuch && one_line "$t/err" && se 2 search '' && one_line "$t/err" && se 2 search ' '
ok 'what is meant is found before anything is done; nothing to do is said'
bell=$(printf 'a\033]0;b\007\302\233c')
clean() { ! head -"$1" "$t/out" | LC_ALL=C grep -q "$(printf '[\033\007]')"; }
if command -v python3 >/dev/null; then
    se 2 rename notes "$bell" && one_line "$t/err" && say 2 "$bell" x && say 0 plain x -n 1 --json && c=$(figure conversation) &&
        python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute("UPDATE conversations SET title = ? WHERE id = ?", sys.argv[2:]); d.commit()' "$dir/catalog.db" "$bell" "$c" &&
        se 0 list && clean 99 && grep -q ' a?]0;b??c$' "$t/out" && "$q" --resume </dev/null >"$t/out" 2>"$t/err" && clean 99 &&
        se 0 show "$c" && head -1 "$t/out" | grep -q '^# a?]0;b??c$' && se 0 rm "$c"
    ok 'control characters of names go nowhere'
else
    n=$((n + 1))
    echo "ok $n - control characters of names go nowhere # SKIP python3 is missing"
fi
states=$(ls "$dir/states" | wc -l)
se 0 rm "$id" && [ "$(ls "$dir/states" | wc -l)" -lt "$states" ] && se 1 show "$id" &&
    say 0 notes 'More.' --json && [ "$(figure cached_tokens)" -gt 0 ]
ok 'rm takes its states along, but not those of others'
touch -d '1 hour ago' "$dir/states/live-9-0000000000000000.state" "$dir/states/live-9-1.state.tmp-1" "$dir/locks/99.lock"
se 0 gc --json && grep -q '"states":1,.*"lost":0,"leftovers":2' "$t/out"
ok 'gc finds what nobody needs'
se 0 gc --state-budget 0 && [ "$(ls "$dir/states" | wc -l)" -eq 0 ] && [ "$(turns notes)" = 10 ] &&
    say 0 notes 'More.' --json && [ "$(figure cached_tokens)" = 0 ] && [ "$(turns notes)" = 12 ]
ok 'a budget of nothing takes states, never text'
se 0 verify && grep -q 'sound' "$t/out" && f=$(ls "$dir"/states/* | head -1) && printf x | dd of="$f" bs=1 seek=5000 conv=notrunc 2>/dev/null &&
    se 1 verify && one_line "$t/err" && grep -q damaged "$t/out"
ok 'verify reads every byte'
say 0 notes 'On.' --json && [ "$(figure cached_tokens)" = 0 ] && one_line "$t/err" && grep -q 'damaged.*read again' "$t/err" &&
    say 0 notes 'And on.' --json && [ "$(figure cached_tokens)" -gt 0 ] && empty "$t/err"
ok 'a damaged state costs a reading and a line'

# the length of a prompt, the size of the budget, what is kept at all
for i in $(seq 1 300); do echo "Word $i of a prompt that is too long."; done >"$t/longer"
mkdir -p "$t/config/quasar"
export XDG_STATE_HOME="$t/refused"
dir=$XDG_STATE_HOME/quasar
# (it waits in the catalogue until it is refused: the room for that is made once)
say 0 a 'Hi.' -n 2 && say 1 a "$(cat "$t/longer")" --ctx 256 && size=$(du -b "$dir/catalog.db" | cut -f1) && for i in 1 2 3; do say 1 a "$(cat "$t/longer")" --ctx 256 || break; done && ! grep -aq 'Word 1 of' "$dir"/catalog.db* &&
    one_line "$t/err" && grep -q 'raise --ctx' "$t/err" && [ "$(turns a)" = 2 ] && se 0 show a --json && ! grep -q 'Word 1 ' "$t/out" &&
    [ "$(du -b "$dir/catalog.db" | cut -f1)" = "$size" ] && say 1 b "$(cat "$t/longer")" --ctx 256 && se 0 list && grep -q ' 0 turns .* b$' "$t/out"
ok 'a prompt that is refused for its length is not stored'
for where in flag env file; do
    case $where in
    flag) "$q" run -m "$model" -p x --state-budget 20X </dev/null >"$t/out" 2>"$t/err" ;;
    env) QUASAR_STATE_BUDGET=20X "$q" run -m "$model" -p x </dev/null >"$t/out" 2>"$t/err" ;;
    file)
        echo 'state-budget = 20X' >"$t/config/quasar/config"
        "$q" sessions list </dev/null >"$t/out" 2>"$t/err"
        ;;
    esac
    [ $? -eq 2 ] && one_line "$t/err" && grep -q 'state-budget: "20X" is no size such as 800M or 20G, nor auto$' "$t/err" || break
    case $where in
    flag) grep -q '^quasar: --state' "$t/err" || break ;;
    env) grep -q 'variable QUASAR_STATE_BUDGET: ' "$t/err" || break ;;
    file) grep -q "$t/config/quasar/config:1: " "$t/err" || break ;;
    esac
    where=
done
[ -z "$where" ]
ok 'a budget that is no size is told with where it stands'
echo 'save = no' >"$t/config/quasar/config"
say 2 a x && one_line "$t/err" && grep -q -e "--session does not go with save = no ($t/config/quasar/config): give --save" "$t/err" &&
    say 0 a x --save -n 2 && rm "$t/config/quasar/config" && say 2 a x --no-save && one_line "$t/err"
ok 'what is not to be saved has no name'
rm -f "$t/config/quasar/config"
se 2 gc --prefix-cache ' ' && one_line "$t/err" && grep -q 'no name of a folder (command line)' "$t/err" && say 2 a x --prefix-cache '' && one_line "$t/err"
ok 'a blank is no folder'
if command -v python3 >/dev/null && say 0 a 'Zanzibar?' -n 2; then
    python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute("INSERT INTO words(words, rowid, text) SELECT '"'delete'"', id, text FROM turns WHERE text LIKE '"'Zanz%'"'"); d.commit()' "$dir/catalog.db"
    se 0 search zanzibar && empty "$t/out" && se 1 verify && one_line "$t/err" && grep -q 'index of words .*verify --repair' "$t/err" &&
        se 1 verify --repair && one_line "$t/err" && grep -q 'made anew' "$t/err" && grep -q 'sound now' "$t/out" && se 0 search zanzibar && [ -s "$t/out" ] && se 0 verify
    ok 'verify compares the index of words with the texts'
else
    n=$((n + 1))
    echo "ok $n - verify compares the index of words with the texts # SKIP python3 is missing"
fi

# damaged states do not stay
spoil() { printf x | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
export XDG_STATE_HOME="$t/spoiled"
dir=$XDG_STATE_HOME/quasar
mkdir -p "$dir/prefixes"
say 0 first 'One.' && one=$(ls -t "$dir"/states/* | head -1) && say 0 second 'Two.' && two=$(ls -t "$dir"/states/* | head -1) &&
    spoil "$two" 9000 && cp "$one" "$dir/prefixes/0000000000000001-0000000000000002-000040-t.prefix" &&
    spoil "$dir/prefixes/0000000000000001-0000000000000002-000040-t.prefix" 9000 &&
    se 0 gc --json && grep -q '"damaged":1,"damaged_prompts":1' "$t/out" && [ ! -e "$two" ] && [ -e "$one" ] && [ -z "$(ls "$dir/prefixes")" ] &&
    se 0 verify && se 0 gc && one_line "$t/out" && say 0 second 'And?' && grep -q 'no state was saved' "$t/err"
ok 'gc deletes damaged states of conversations and prompts, and says how many'
size=$(stat -c %s "$one") two=$(ls -t "$dir"/states/* | head -1)
se 0 gc --state-budget $((size * 5 / 2)) && spoil "$two" 60 && say 0 third 'Three.' --state-budget $((size * 5 / 2)) && [ ! -e "$two" ] &&
    [ -e "$one" ] && say 0 first 'More.' --json && [ "$(figure cached_tokens)" -gt 0 ]
ok 'when there is no room, a damaged state goes first'
export XDG_STATE_HOME="$t/state"
dir=$XDG_STATE_HOME/quasar

# other models, newer files
if say 0 notes 'Another.' --kv f32 --json && [ "$(figure cached_tokens)" = 0 ] && one_line "$t/err"; then
    grep -q 'another way of computing.*read again' "$t/err"
fi
ok 'a state of another engine is not used'
say 0 kept 'One.' && f=$(ls -t "$dir"/states/* | head -1) && printf '\011' | dd of="$f" bs=1 seek=8 conv=notrunc 2>/dev/null &&
    say 0 kept 'Two.' --json && [ "$(figure cached_tokens)" = 0 ] && one_line "$t/err" && grep -q 'newer' "$t/err" && [ -e "$f" ] && se 0 rm kept && [ ! -e "$f" ]
ok 'a state of a newer version is left as it is'

# two processes
"$q" run -m "$model" --threads 1 --session busy -p 'Count to a million.' --ignore-eos --temp 0 --json-stream \
    </dev/null >"$t/first" 2>/dev/null &
pid=$!
for i in $(seq 1 200); do
    grep -q delta "$t/first" 2>/dev/null && break
    sleep 0.1
done
say 1 busy 'Me too.' && one_line "$t/err" && grep -q "is open in another quasar (process $pid)" "$t/err" &&
    se 1 rm busy && one_line "$t/err" && se 0 show busy && grep -q '^Count to a million' "$t/out" && grep -qF '*(unfinished)*' "$t/out" &&
    se 0 list && grep -q "open (process $pid)" "$t/out" && se 0 fork busy mine
ok 'one writer; others may read and fork'
for i in $(seq 1 100); do # an answer is committed every two seconds
    "$q" sessions show busy --json | grep -q '"role":"assistant","text":"[^"]' && break
    sleep 0.2
done
kill -9 $pid
wait $pid 2>/dev/null
se 0 show busy && said=$(sed -n '/^## Model/,$p' "$t/out" | sed -n 3p) && [ -n "$said" ] && grep -qF '*(unfinished)*' "$t/out" && empty "$t/err" &&
    se 0 export busy --format jsonl && [ "$(wc -l <"$t/out")" = 2 ] && grep -q 'unfinished' "$t/err" && one_line "$t/err" &&
    se 0 show busy --json && grep -q '"path":\[\([0-9]*,\)[0-9]*\]' "$t/out" &&
    se 0 fork busy 'busy copy' && se 0 show 'busy copy' && grep -qF '*(interrupted)*' "$t/out" && grep -qF "$said" "$t/out" && se 0 rm 'busy copy'
ok 'what a dead writer said is shown, exported and copied, and marked'
say 0 busy 'And now?' --json && [ "$(turns busy)" -ge 4 ] && se 0 show busy && grep -q '(interrupted)' "$t/out"
ok 'a dead writer holds nothing, and what it said is there'

# kills
runs=${QUASAR_LONG:+200}
runs=${runs:-8}
bad=
told=0
for i in $(seq 1 "$runs"); do
    "$q" run -m "$model" --threads 1 --session killed -p "Question $i." --think off --temp 0 -n 12 --json-stream \
        </dev/null >"$t/kill.$i" 2>"$t/err" &
    pid=$!
    sleep "0.$(awk -v s="$i" 'BEGIN { srand(s * 7919); printf "%03d", rand() * 999 }')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    # what was shown as done is there
    if grep -q '"event":"end"' "$t/kill.$i"; then
        told=$((told + 1))
        "$q" sessions export killed --format jsonl 2>/dev/null | grep -q "Question $i\\." || bad="$bad $i"
    fi
    # what the reader saw of an answer began after the question was stored
    if grep -q '"event":"start"' "$t/kill.$i"; then
        "$q" sessions show killed --json 2>/dev/null | grep -q "Question $i\\." || bad="$bad $i"
    fi
done
echo "# $told of $runs turns had ended"
[ -z "$bad" ] && se 0 verify
ok 'killed at any moment, every turn that was committed is there'
say 0 killed 'Still there?' --json && se 0 show killed && grep -q 'Still there?' "$t/out"
ok 'and it goes on'

# a damaged catalogue
before=$(turns notes)
dd if=/dev/zero of="$dir/catalog.db" bs=4096 count=1 conv=notrunc 2>/dev/null
rm -f "$dir"/catalog.db-*
say 0 notes 'After the damage.' && grep -q 'was damaged: .* could be read and are saved' "$t/err" &&
    [ "$(turns notes)" = $((before + 2)) ] && ls "$dir"/catalog.db.damaged-* >/dev/null
ok 'a damaged catalogue is salvaged, and kept aside'
se 0 verify && se 0 search million && [ -s "$t/out" ]
ok 'the new one is sound'
head -c "$(stat -c %s "$dir/catalog.db")" /dev/urandom >"$t/noise" && cp "$t/noise" "$dir/catalog.db"
rm -f "$dir"/catalog.db-*
se 1 verify && grep -q 'was damaged: .* could be read' "$t/err" && grep -q 'has been salvaged and is sound now, and the damaged one is .*damaged-' "$t/err" &&
    grep -q 'catalogue is salvaged' "$t/out" && se 0 verify && empty "$t/err" && grep -q sound "$t/out"
ok 'verify tells of a salvage once, with status 1'
aside=$(ls -d "$dir"/states.damaged-* | tail -1) && f=$(ls "$aside"/live-* | head -1) && "$q" tokenize -m "$model" --decode -f "$f" >"$t/out" 2>"$t/err" && grep -q assistant "$t/out" && empty "$t/err"
ok 'states of what was lost are kept, and their text can be printed'
say 0 page 'One.' && say 0 page 'Two.' && se 0 verify --json && grep -q '"catalog":true,"salvaged":null' "$t/out"
pages=$(($(stat -c %s "$dir/catalog.db") / 4096))
cp "$dir/catalog.db" "$t/whole.db"
for p in $(seq 1 $((pages - 1))); do # a page in the middle: the catalogue opens, and reading it may not go to the end
    cp "$t/whole.db" "$dir/catalog.db"
    dd if=/dev/urandom of="$dir/catalog.db" bs=4096 seek="$p" count=1 conv=notrunc 2>/dev/null
    "$q" sessions show page >"$t/out" 2>"$t/err" || break
done
one_line "$t/err" && grep -q 'quasar sessions verify --repair saves what can be read' "$t/err" && se 1 verify && grep -q 'verify --repair' "$t/err" &&
    se 1 verify --repair --json && grep -q '"catalog":false,"salvaged":{.*"kept":"' "$t/out" && se 0 verify
ok 'damage in the middle: the message says what mends it, and that mends it'
: >"$dir/catalog.db"
rm -f "$dir"/catalog.db-*
se 0 list && grep -q 'catalog.db was empty (a torn copy, or a disk that was full): 0 conversations' "$t/err" && grep -q 'No conversation' "$t/out" &&
    ls "$dir"/states.damaged-*/live-* >/dev/null && se 0 list && empty "$t/err"
ok 'an empty file is no empty catalogue'
python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute("PRAGMA user_version = 99")' "$dir/catalog.db" 2>/dev/null ||
    { printf '\0\0\0\143' | dd of="$dir/catalog.db" bs=1 seek=60 conv=notrunc 2>/dev/null; rm -f "$dir"/catalog.db-*; }
sum=$(cksum <"$dir/catalog.db")
se 1 list && one_line "$t/err" && grep -q newer "$t/err" && say 1 notes x && [ "$sum" = "$(cksum <"$dir/catalog.db")" ]
ok 'a newer catalogue is left as it is'

# what cannot be written can be read
read_only() { # read_only REASON: everything that only reads works, the rest is one line
    se 0 list && grep -q ' 1 turn .* kept$' "$t/out" && one_line "$t/err" && grep -q "can only be read, nothing is stored: .*$1" "$t/err" &&
        se 0 show kept && grep -q 'Hello' "$t/out" && se 0 export kept && se 0 search hello && se 0 verify &&
        se 1 rename kept other && one_line "$t/err" && grep -q "$1" "$t/err" && se 1 rm kept && se 1 tag kept x && se 1 fork kept &&
        say 1 kept 'And?' --json && [ "$(figure prompt_tokens)" -gt 30 ] && [ "$(grep -c "$1" "$t/err")" = 1 ] && grep -q 'not stored' "$t/err" &&
        say 1 fresh 'And?' && [ -s "$t/out" ] && [ "$(grep -c "$1" "$t/err")" = 1 ]
}
export XDG_STATE_HOME="$t/fixed"
dir=$XDG_STATE_HOME/quasar
say 0 kept 'Hello.' && (ulimit -f 16 && read_only 'ulimit -f') && se 0 list && empty "$t/err"
ok 'no file may grow: what is stored can be read'
mkdir "$t/mounted"
if mount -t tmpfs -o size=40m none "$t/mounted" 2>/dev/null; then
    cp -R "$XDG_STATE_HOME/quasar" "$t/mounted/"
    export XDG_STATE_HOME="$t/mounted"
    mount -o remount,ro "$t/mounted" && read_only 'read-only file system' && mount -o remount,rw "$t/mounted" && se 0 list && empty "$t/err"
    ok 'a read-only file system'
    cat /dev/zero >"$t/mounted/fill" 2>/dev/null
    read_only 'no space left'
    ok 'a full disk'
    se 1 gc && one_line "$t/err" && grep -q 'no space left .*smaller --state-budget' "$t/err" && [ -n "$(ls "$t/mounted/quasar/states")" ] &&
        se 0 gc --state-budget 0 --json && empty "$t/err" && grep -q '"states":1,.*"lost":0,.*"left":0' "$t/out" && [ "$(figure bytes)" -gt 10000 ] &&
        [ -z "$(ls "$t/mounted/quasar/states")" ] && se 0 list && empty "$t/err"
    ok 'gc makes its own room there, of what is over the budget'
    rm -rf "$t/mounted/quasar" "$t/mounted/fill"
    cat /dev/zero >"$t/mounted/fill" 2>/dev/null
    say 1 fresh 'And?' && [ -s "$t/out" ] && [ "$(grep -c 'no space left' "$t/err")" = 1 ] && grep -q 'not stored' "$t/err" && [ "$(wc -l <"$t/err")" = 2 ]
    ok 'a full disk and no catalogue yet: an answer'
    umount "$t/mounted"
    export XDG_STATE_HOME="$t/fixed"
else
    for what in 'a read-only file system' 'a full disk' 'gc makes its own room there, of what is over the budget' \
        'a full disk and no catalogue yet: an answer'; do
        n=$((n + 1))
        echo "ok $n - $what # SKIP nothing can be mounted here"
    done
fi
chmod 700 "$dir" && chmod 400 "$dir/catalog.db"
if [ "$(id -u)" != 0 ]; then
    read_only 'no permission to write .*/catalog.db:'
    ok 'a catalogue that is write-protected, in a folder that is not'
    chmod 500 "$dir"
    read_only 'no permission to write in'
    ok 'a folder of others'
else
    real=$q
    chmod 755 "$t"
    chown -R 65534:65534 "$t/fixed"
    printf '#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups %s "$@"\n' "$real" >"$t/nobody"
    chmod 755 "$t/nobody"
    q=$t/nobody
    if "$q" --version >/dev/null 2>&1; then
        read_only 'no permission to write .*/catalog.db:'
        ok 'a catalogue that is write-protected, in a folder that is not'
        chmod 500 "$dir"
        read_only 'no permission to write in'
        ok 'a folder of others'
    else
        for what in 'a catalogue that is write-protected, in a folder that is not' 'a folder of others'; do
            n=$((n + 1))
            echo "ok $n - $what # SKIP another user cannot run this build"
        done
    fi
    q=$real
fi
export XDG_STATE_HOME="$t/state"

# a reader that goes; FIFOs that nobody writes
export XDG_STATE_HOME="$t/pipe"
dir=$t/pipe/quasar
"$q" run -m "$model" --threads 1 --session pipe -p 'Tell me a long story.' --think off --temp 1 --seed 3 \
    --ignore-eos -n 20000 </dev/null 2>"$t/err" | head -c 40 >"$t/head"
[ "$(wc -c <"$t/head")" -eq 40 ] && se 0 show pipe && empty "$t/err" && grep -qF "$(head -c 20 "$t/head")" "$t/out"
ok 'what was said to a reader that went is stored'
rm -f "$dir"/locks/*.lock
mkfifo "$dir/locks/1.lock"
timeout 20 "$q" sessions list >"$t/out" 2>"$t/err"
ok 'a FIFO in the place of a lock'
rm -f "$dir/locks/1.lock"
for kind in 'a folder' 'a named pipe' 'a link that leads nowhere'; do
    for end in '' -wal; do
        rm -rf "$t/odd" && mkdir -p "$t/odd/quasar"
        case $kind in
        'a folder') mkdir "$t/odd/quasar/catalog.db$end" ;;
        'a named pipe') mkfifo "$t/odd/quasar/catalog.db$end" ;;
        *) ln -s nowhere "$t/odd/quasar/catalog.db$end" ;;
        esac
        XDG_STATE_HOME=$t/odd timeout 20 "$q" sessions list >"$t/out" 2>"$t/err"
        [ $? -eq 1 ] && one_line "$t/err" && grep -q "catalog.db$end is $kind" "$t/err" || break 2
    done
    kind=
done
[ -z "$kind" ]
ok 'what is no file in the place of the catalogue is one line'
rm -rf "$t/odd"
export XDG_STATE_HOME="$t/odd"
dir=$t/odd/quasar
say 0 one 'Hi.' -n 1 && f=$(ls "$dir"/states/live-*) && rm "$f" && mkfifo "$f" && timeout 20 "$q" sessions verify >"$t/out" 2>"$t/err"
[ $? -eq 1 ] && grep -q 'not a regular file' "$t/out" && se 0 gc --json && grep -q '"damaged":1,' "$t/out" && [ ! -e "$f" ] && se 0 verify &&
    say 0 one 'Hi.' -n 1 && f=$(ls "$dir"/states/live-*) && rm "$f" && mkdir "$f" && se 1 verify && se 0 gc --json && grep -q '"damaged":1,' "$t/out" && [ ! -e "$f" ] &&
    say 0 one 'Hi.' -n 1 && f=$(ls "$dir"/states/live-*) && rm "$f" && mkdir "$f" && touch "$f/x" && se 1 gc && one_line "$t/err" &&
    grep -q "could not be read or deleted: .*/live-.*not empty" "$t/err" && se 0 verify
ok 'gc deletes what is no file in the place of a state, or says why not'
rm -rf "$dir/states" && touch "$dir/states" && se 1 gc && one_line "$t/err" && grep -q 'cannot read .*states: Not a directory' "$t/err" && se 1 verify && one_line "$t/err"
ok 'a folder of states that cannot be read is status 1'
export XDG_STATE_HOME="$t/pipe"
dir=$t/pipe/quasar
mkdir -p "$t/config/quasar"
mkfifo "$t/config/quasar/config"
timeout 20 "$q" sessions list >"$t/out" 2>"$t/err"
[ $? -eq 1 ] && one_line "$t/err" && grep -q 'config is not a regular file' "$t/err"
ok 'a FIFO in the place of the settings is one line'
rm -f "$t/config/quasar/config"
export XDG_STATE_HOME="$t/state"
dir=$t/state/quasar

# what is hidden in names and in first words
export XDG_STATE_HOME="$t/hidden"
hidden=$(printf 'Read\342\200\256 it\342\200\250 \363\240\201\201x')
raw() { LC_ALL=C grep -q "$(printf '\342\200[\250\256]')" "$t/out"; }
if command -v script >/dev/null && command -v python3 >/dev/null; then
    say 0 first "$hidden" -n 1 &&
        python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute("UPDATE conversations SET title = ?, named = 0", sys.argv[2:]); d.commit()' "$t/hidden/quasar/catalog.db" "$hidden" &&
        se 0 list && grep -q ' Read<RLO> it<LS> <U+E0041>x$' "$t/out" && "$q" --resume </dev/null >"$t/out" 2>"$t/err" && grep -q ' Read<RLO> it' "$t/out" &&
        se 0 list --json && raw && se 0 show 1 && raw
    ok 'marks that turn the order of a line are named in lists'
    for words in 'search Read' 'show 1' 'export 1'; do
        COLUMNS=40 script -qec "'$q' sessions $words" /dev/null </dev/null >"$t/out" 2>&1 && ! raw && grep -q 'Read<RLO> it<LS> <U+E0041>x' "$t/out" || break
    done
    [ "$words" = 'export 1' ] && COLUMNS=20 script -qec "'$q' sessions list" /dev/null </dev/null >"$t/out" 2>&1 && ! raw && grep -q '  Read<RLO> it<LS…' "$t/out"
    ok 'and on a terminal everywhere'
else
    for what in 'marks that turn the order of a line are named in lists' 'and on a terminal everywhere'; do
        n=$((n + 1))
        echo "ok $n - $what # SKIP script or python3 is missing"
    done
fi
say 0 notes x -n 1
last=$(printf 'a\033b')
for name in '' ' ' "$(printf '\302\240 ')" "$hidden" "$(printf 'a\342\200\213b')" "$(printf '\357\273\277a')" "$(printf '%0201d' 7 | tr 0 x)" ' 12 ' "$last"; do
    se 2 rename notes "$name" && one_line "$t/err" && se 2 fork notes "$name" && say 2 "$name" x && one_line "$t/err" && ! grep -q '<RLO>' "$t/err" || break
done
[ "$name" = "$last" ] && most=$(printf '%0200d' 7 | sed "s/0/$(printf '\303\251')/g") && se 0 rename notes "$most" && se 0 rename "$most" '  notes ' &&
    se 0 list --json && grep -q '"title":"notes"' "$t/out" && say 0 ' notes' x -n 1 && [ "$(turns notes)" = 4 ] &&
    se 0 fork notes ' two ' && se 0 show two && se 2 fork notes 'two '
ok 'names are seen, short, and without blanks around them'
se 2 fork notes --turn 0 && one_line "$t/err" && grep -q 'turn: 0 is less than 1$' "$t/err"
ok 'there is no turn 0'
export XDG_STATE_HOME="$t/state"

# nothing can be written
rm -rf "$t/state"
echo x >"$t/state"
say 1 notes 'No folder.' && [ -s "$t/out" ] && [ "$(wc -l <"$t/err")" = 2 ] && grep -q 'nothing is stored: .*quasar cannot be written: Not a directory; name another' "$t/err" &&
    grep -q 'not stored' "$t/err"
ok 'a folder that cannot be made: an answer, and two lines'
