#!/bin/sh
# quasar run as a user meets it: exit statuses, what goes to which stream, the
# ways to give a prompt, JSON, interrupts and broken pipes. TAP.
q=${QUASAR_BIN:?}
src=${QUASAR_SRCDIR:?}
model=$src/models/demo.qsr
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
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
# go STATUS ARGS…: runs with standard input from $in, output to $t/out and $t/err
in=/dev/null
go() {
    want=$1
    shift
    "$q" run -m "$model" --threads 1 "$@" <"$in" >"$t/out" 2>"$t/err"
    got=$?
    [ $got -eq "$want" ] || {
        echo "# status $got instead of $want: $*"
        return 1
    }
}
empty() { [ ! -s "$1" ]; }
ids() { grep -o '"tokens":\[[^]]*\]' "$1"; }
one_line() { [ "$(wc -l <"$1")" -eq 1 ]; }
keys() { sed 's/"\(tokens\|text\|thought\)":\(\[[^]]*\]\|"[^"]*"\)/"\1":0/g' "$1" | grep -o '"[a-z_]*":' | tr -d '":\n ' ; }

XDG_STATE_HOME=$t/state
export XDG_STATE_HOME

echo 1..89

# a question and its answer
go 0 -p 'How many days are in a week?' --seed 3 && grep -q . "$t/out" && empty "$t/err"
ok 'an answer goes to standard output, nothing else anywhere'
cp "$t/out" "$t/first"
go 0 -p 'How many days are in a week?' --seed 3 && cmp -s "$t/out" "$t/first"
ok 'a seed repeats its text'
echo 'How many days are in a week?' >"$t/q"
in=$t/q
go 0 --seed 3 && cmp -s "$t/out" "$t/first"
ok 'standard input is the prompt'
go 0 --seed 3 -f - && cmp -s "$t/out" "$t/first"
ok '-f - is standard input'
in=/dev/null
go 0 --seed 3 -f "$t/q" && cmp -s "$t/out" "$t/first" && : >"$t/nothing" && go 2 -f "$t/nothing" && one_line "$t/err" &&
    grep -q "the prompt is empty: there is no text in $t/nothing" "$t/err" && go 2 -f - && go 2 -p '' && one_line "$t/err"
ok '-f reads a file'
mkfifo "$t/fifo"
cat "$t/q" >"$t/fifo" &
go 0 --seed 3 -f "$t/fifo" && cmp -s "$t/out" "$t/first" && go 0 --seed 3 -f /dev/fd/3 3<"$t/q" && cmp -s "$t/out" "$t/first" &&
    cat "$t/q" | go 0 --seed 3 -f /dev/fd/3 3<&0 && cmp -s "$t/out" "$t/first"
ok '-f reads a pipe'
printf 'are in a week?' >"$t/rest"
in=$t/rest
go 0 --seed 3 --json -n 1 -p 'How many days' && cp "$t/out" "$t/joined"
in=/dev/null
printf 'How many days\n\nare in a week?' >"$t/whole"
go 0 --seed 3 --json -n 1 -f "$t/whole" &&
    [ "$(grep -o '"prompt_tokens":[0-9]*' "$t/out")" = "$(grep -o '"prompt_tokens":[0-9]*' "$t/joined")" ]
ok 'standard input goes on from -p'
printf '[{"role":"user","content":"How many days are in a week?"}]' >"$t/m.json"
go 0 --seed 3 --messages "$t/m.json" && cmp -s "$t/out" "$t/first"
ok '--messages reads a conversation'
printf '[{"role":"user","content":"2 + 2?"},{"role":"assistant","content":"4"},{"role":"user","content":"And 3 + 3?"}]' >"$t/m3.json"
go 0 --seed 3 --messages "$t/m3.json" && grep -q . "$t/out"
ok '--messages with a history'
printf '[{"role":"user","content":"2 + 2?"},{"role":"narrator","content":"4"},{"role":"user","content":"And?"}]' >"$t/mb.json"
go 1 --messages "$t/mb.json" && one_line "$t/err" && grep -q 'messages\[1\]: the role "narrator" is none of' "$t/err"
ok 'a role that nobody knows is refused'
go 0 -p hello -n 5 --temp 0 --think off && [ -s "$t/out" ]
ok '-n ends an answer'

# thoughts
go 0 -p 'What is your name?' --seed 1 --think on && [ -s "$t/err" ] && [ -s "$t/out" ]
ok '--think on shows the thought on standard error'
cp "$t/out" "$t/first"
go 0 -p 'What is your name?' --seed 1 && empty "$t/err" && cmp -s "$t/out" "$t/first"
ok 'without it the same answer comes alone'
go 0 -p 'What is your name?' --seed 1 --stats && grep -q '^prompt ' "$t/err" && grep -q '^answer ' "$t/err"
ok '--stats goes to standard error'

# bare continuation
go 0 --raw -p 'The river' -n 8 --temp 0 --json && grep -q '"prompt_tokens":[1-4],' "$t/out"
ok '--raw has no template'
ids=$(grep -o '"tokens":\[[0-9,]*\]' "$t/out")
printf "The river" >"$t/raw"
go 0 --raw -f "$t/raw" -n 8 --temp 0 --json && [ "$(grep -o '"tokens":\[[0-9,]*\]' "$t/out")" = "$ids" ]
ok '--raw takes a file as it is'
go 0 --tokens 461,3040 -n 4 --temp 0 --json && grep -q '"prompt_tokens":2[,}]' "$t/out"
ok '--tokens continues ids'
go 0 -p hi -n 60 --temp 0 --think off --ignore-eos --json && grep -q '"finish_reason":"length"' "$t/out"
ok '--ignore-eos goes on'
go 0 -p 'How many days are in a week?' --seed 3 --stop days && ! grep -q days "$t/out"
ok '--stop ends the answer before it'

# reuse
go 0 -p 'What is your name?' --seed 1 --stats -n 2 && grep -q '^reuse   none: .*64 tokens' "$t/err"
ok '--stats says why nothing was reused'
go 0 -p 'What is your name?' --seed 1 -n 2 --prefix-memory 0 --json && grep -q '"short":"off"' "$t/out"
ok '--prefix-memory 0 keeps nothing'
seq 1 900 | sed 's/$/ and/' >"$t/long"
go 0 -f "$t/long" --json -n 4 --temp 0 --think off --logprobs 2 --prefix-cache off && ids "$t/out" >"$t/cold" &&
    sed 's/.*"logprobs"://' "$t/out" >"$t/coldp" &&
    go 0 -f "$t/long" --json -n 4 --temp 0 --think off --logprobs 2 --prefix-cache "$t/prefixes" &&
    ids "$t/out" | cmp -s - "$t/cold" && grep -q '"cached_tokens":0' "$t/out" &&
    [ "$(ls "$t/prefixes" | grep -c prefix)" -eq 1 ]
ok '--prefix-cache leaves a file'
go 0 -f "$t/long" --json -n 4 --temp 0 --think off --logprobs 2 --prefix-cache "$t/prefixes" &&
    ids "$t/out" | cmp -s - "$t/cold" && sed 's/.*"logprobs"://' "$t/out" | cmp -s - "$t/coldp" &&
    grep -q '"reuse":{"from":"disk","short":"all"' "$t/out" && ! grep -q '"cached_tokens":0' "$t/out"
ok '… from which another run goes on, to the bit'
f=$(echo "$t"/prefixes/*.prefix)
printf x | dd of="$f" bs=1 seek=$(($(wc -c <"$f") / 2)) conv=notrunc 2>/dev/null &&
    go 0 -f "$t/long" --json -n 4 --temp 0 --think off --prefix-cache "$t/prefixes" &&
    ids "$t/out" | cmp -s - "$t/cold" && grep -q 'computed again' "$t/err" && one_line "$t/err"
ok '… and a damaged one costs a line and time'
go 0 -f "$t/long" --json -n 4 --temp 0 --think off --prefix-cache /dev/null/no &&
    ids "$t/out" | cmp -s - "$t/cold" && grep -q 'not kept on disk' "$t/err" && one_line "$t/err"
ok '… one that cannot be written a line'
go 2 -p x --prefix-every 100 && grep -q 'multiple of 64' "$t/err" && one_line "$t/err"
ok '--prefix-every is a multiple of 64'

# rules and log probabilities
go 0 -p hi --think off --temp 0 --json -n 5 --logit-bias 100:20 &&
    grep -q '"tokens":\[100,100,100,100,100\]' "$t/out"
ok '--logit-bias wins over everything'
go 0 -p hi --think off --temp 0 --json -n 5 --logit-bias 100:20 --presence 2 --frequency 2 --repetition 1.5 &&
    ! grep -q '"tokens":\[100,100,100,100,100\]' "$t/out" && grep -q '"tokens":\[100,' "$t/out"
ok 'penalties take it back'
go 0 -p 'How many days are in a week?' --think off --temp 0 --json -n 60 && grep -q '"finish_reason":"stop"' "$t/out" &&
    go 0 -p 'How many days are in a week?' --think off --temp 0 --json -n 60 --min-tokens 60 &&
    grep -q '"finish_reason":"length"' "$t/out"
ok '--min-tokens puts the end off'
go 0 -p hi --think off --temp 0 --json -n 4 --logprobs 2 &&
    [ "$(grep -o '"rank":1,"top":\[{"id":[0-9]*,"logprob":-[0-9.e-]*,"rank":1},{"id":[0-9]*,"logprob":-[0-9.]*,"rank":2}\]' "$t/out" | wc -l)" -eq 4 ]
ok '--logprobs lists every token and the likeliest'
go 0 -p hi --think off --temp 0 --json-stream -n 4 --logprobs 0 &&
    [ "$(tail -2 "$t/out" | head -1 | grep -o '"top":\[\]' | wc -l)" -eq 4 ]
ok '… also as an event'
go 2 -p x --logprobs 1 && go 2 -p x --json --logprobs 21 && go 2 -p x --logit-bias 5 && go 2 -p x --logit-bias 5:101 &&
    go 2 -p x --presence 3 && go 2 -p x --repetition 0 && one_line "$t/err"
ok 'rules out of range are usage errors'
go 2 -p x --logit-bias 999999:1 && one_line "$t/err" && go 2 -p x -n 4 --min-tokens 5 && one_line "$t/err"
ok '… and what only the model can tell is a usage error too'
go 2 --raw -p x --ctx 64 --min-tokens 64 && one_line "$t/err" && grep -q 'lower --min-tokens, or raise --ctx' "$t/err" &&
    go 0 --raw -p x --ctx 64 --min-tokens 63 --json && grep -q '"finish_reason":"length"' "$t/out" &&
    { "$q" score -m "$model" --tokens 1,8180 >"$t/out" 2>"$t/err"; [ $? -eq 2 ]; } && grep -q 'token id 8180 is outside' "$t/err" &&
    go 0 -p 'Tell me a short story about a fox and a lighthouse.' --temp 0 --think off --stop valley --json --spec mtp --draft 15 &&
    grep -q '"rounds":4,"drafted":45,"accepted":12,"tokens_per_round":4.0' "$t/out" &&
    go 0 -p x -n 1 --json && [ "$(grep -o '"seed":[0-9]*' "$t/out" | cut -d: -f2)" -lt 9007199254740992 ]
ok 'figures end at a stop text; what does not fit is refused; seeds are exact in JSON'

# JSON
go 0 -p 'How many days are in a week?' --seed 3 --json && one_line "$t/out" &&
    [ "$(keys "$t/out")" = tokenstextfinish_reasonprompt_tokenscached_tokensreusefromshortatwordsroundsdraftedacceptedtokens_per_roundspeculationnoneroundstokensmtproundstokensdraftedacceptedsuffixroundstokensdraftedaccepteddraft_sverify_shost_sprefill_sdecode_sseedthought ]
ok '--json has its keys in order'
go 0 -p 'How many days are in a week?' --seed 3 --json-stream
awk -F'"' '
{ e = $4 }
NR == 1 && e != "start" { exit 1 }
NR > 1 && e == "start" { exit 1 }
stats && e != "end" { exit 1 }
e == "delta" { d = 1 }
e == "thought" && d { exit 1 }
e == "thought" { th = 1 }
e == "stats" { stats = 1 }
{ last = e }
END { exit !(last == "end" && stats && d && th) }' "$t/out"
ok '--json-stream: start, thoughts, deltas, stats, end'
grep '"event":"delta"' "$t/out" | sed 's/.*"text":"\(.*\)"}$/\1/' | tr -d '\n' >"$t/joined"
go 0 -p 'How many days are in a week?' --seed 3 && [ "$(cat "$t/joined")" = "$(cat "$t/out")" ]
ok 'the deltas are the answer'
cat >"$t/tools.json" <<'END'
[{"type":"function","function":{"name":"Read","description":"Read a file","parameters":{"type":"object","properties":{"file_path":{"type":"string"}},"required":["file_path"]}}}]
END
go 0 -p 'Read the file notes.txt' --tools "$t/tools.json" --temp 0 --json &&
    grep -q '"tool_calls":\[{"name":"Read","arguments":{"file_path":"notes.txt"}}\]' "$t/out" &&
    grep -q '"finish_reason":"tool_calls"' "$t/out"
ok '--tools: the call is listed'
go 0 -p 'Read the file notes.txt' --tools "$t/tools.json" --temp 0 --json-stream &&
    grep -q '^{"event":"tool","name":"Read","arguments":{"file_path":"notes.txt"}}$' "$t/out"
ok '--tools: the call is an event'
go 0 -p 'Read the file notes.txt' --tools "$t/tools.json" --temp 0 &&
    grep -q '^{"name":"Read","arguments":{"file_path":"notes.txt"}}$' "$t/out"
ok '--tools: the call is a line of its own'

# refusals
go 2 --no-such-option && empty "$t/out" && one_line "$t/err"
ok 'an unknown option is status 2'
go 2 stray && grep -q stray "$t/err"
ok 'a stray word is status 2'
go 2 && grep -q 'no prompt' "$t/err"
ok 'no prompt is status 2'
go 2 -p a -f b && go 2 --messages a --tokens 1 && go 2 --raw --messages a && go 2 --json --json-stream -p a && go 2 --raw -p ''
ok 'options that exclude each other are status 2'
go 2 --tokens '1 2' && grep -q '"1 2" is no list of token ids with commas' "$t/err" && go 2 --tokens 1,x && grep -q '"x"' "$t/err" && go 2 --tokens '' && go 2 --tokens 1,,2
ok 'bad token ids are status 2'
go 2 --tokens 99999999 -n 1 && grep -q 99999999 "$t/err" && one_line "$t/err"
ok 'an id outside the vocabulary is named'
go 1 -f "$t/none" && one_line "$t/err" && grep -q "$t/none" "$t/err"
ok 'a missing file is status 1'
printf '{"role":"user"}' >"$t/bad.json"
go 1 --messages "$t/bad.json" && one_line "$t/err" && printf '[{"role":' >"$t/bad.json" &&
    go 1 --messages "$t/bad.json" && one_line "$t/err" && printf '[]' >"$t/bad.json" &&
    go 1 --messages "$t/bad.json" && one_line "$t/err"
ok 'bad messages are status 1 and one line'
"$q" run -m "$t/none.qsr" -p x </dev/null >"$t/out" 2>"$t/err"
[ $? -eq 1 ] && one_line "$t/err" && grep -q none.qsr "$t/err"
ok 'a missing model is status 1 and one line'
head -c 100000 "$model" >"$t/cut.qsr"
"$q" run -m "$t/cut.qsr" -p x </dev/null >"$t/out" 2>"$t/err"
[ $? -eq 1 ] && one_line "$t/err" && empty "$t/out"
ok 'a truncated model is status 1 and one line'
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "word " }' >"$t/long"
go 1 --ctx 1024 -f "$t/long" && one_line "$t/err" && grep -q 1024 "$t/err" && grep -q '[2-9][0-9][0-9][0-9] tokens' "$t/err"
ok 'a prompt that does not fit: both numbers'
go 1 -p x --template ./nonesuch && one_line "$t/err" && go 2 -p x --template nonesuch && one_line "$t/err" && grep -q nonesuch "$t/err"
ok 'an unknown template is named'
go 0 -p x -n 3 --temp 0 --seed 9 --json && grep -q '"seed":9[,}]' "$t/out"
ok 'the seed is told'

go 1 --messages "$t/bad.json" && grep -q "$t/bad.json\|at least one" "$t/err" && printf '[{' >"$t/bad.json" &&
    go 1 --messages "$t/bad.json" && grep -q "$t/bad.json" "$t/err" &&
    printf '' >"$t/bad.json" && go 1 -p x --tools "$t/bad.json" && grep -q "$t/bad.json" "$t/err"
ok 'bad JSON is named by its file, and no tools are not empty tools'
printf '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]' >"$t/img.json"
go 1 --messages "$t/img.json" && one_line "$t/err" && grep -q 'text only' "$t/err"
ok 'a picture is refused, not left out'
go 2 -p x --stop '' && one_line "$t/err" && go 2 -p x --stop "$(printf '\377')" && one_line "$t/err"
ok 'a stop text that cannot be is status 2'
mkdir "$t/folder" && (cd "$t" && "$q" run -m folder -p x </dev/null >out 2>err)
[ $? -eq 1 ] && grep -q 'is a folder' "$t/err"
ok 'a folder as the model is called a folder'
go 0 -p x -n 1 --temp 0 --seed 9223372036854775807 --json && grep -q '"seed":9223372036854775807[,}]' "$t/out"
ok 'the largest seed that is told can be given'
go 0 -p 'What is your name?' --temp 0 -n 3 && empty "$t/out" && one_line "$t/err" && grep -q 'think off' "$t/err"
ok 'an answer that is all thought says so'

# streams that are full or closed
"$q" run -m "$model" --tokens 461,3040 --temp 0 -n 3 </dev/null >/dev/full 2>"$t/err"
[ $? -eq 1 ] && one_line "$t/err" && grep -q 'standard output' "$t/err" &&
    { "$q" --version >/dev/full 2>"$t/err"; [ $? -eq 1 ]; } &&
    { "$q" inspect "$model" --json >/dev/full 2>"$t/err"; [ $? -eq 1 ]; }
ok 'what cannot be written is status 1'
"$q" run -m "$model" --tokens 461,3040 --temp 0 -n 3 </dev/null >&- 2>"$t/err"
[ $? -eq 1 ] && one_line "$t/err"
ok 'a closed standard output too'
QUASAR_STOP=a "$q" config --json >"$t/out" 2>"$t/err" && grep -q '"stop":{"value":\["a"\]' "$t/out" &&
    mkdir -p "$t/conf/quasar" && printf 'stop = a b\nstop = c\n' >"$t/conf/quasar/config" &&
    XDG_CONFIG_HOME=$t/conf "$q" config >"$t/out" 2>"$t/err" &&
    grep -q '^stop *= "a b" ' "$t/out" && grep -q '^stop *= "c" ' "$t/out"
ok 'config lists every value of what can be given more than once'
values() { "$q" config --json | sed 's/"origin":"[^"]*"/"origin":""/g; s/"memory":.*//'; }
printf '\357\273\277ctx = 1000 # tokens\ntemp = 0.5\t# x\nthink=off #\nstop = " # "\nstop = "a\\n" # b\nstop = say "x" # 1\nsystem = "He said "no" # 3" # c\n' >"$t/conf/quasar/config" &&
    XDG_CONFIG_HOME=$t/conf values >"$t/values" && XDG_CONFIG_HOME=$t/conf "$q" config >"$t/out" 2>"$t/err" &&
    grep -q '"stop":{"value":\[" # ","a\\\\n","say \\"x\\" # 1"\]' "$t/values" && grep -q '"system":{"value":"He said \\"no\\" # 3"' "$t/values" &&
    grep -q '"ctx":{"value":"1000"' "$t/values" && grep -q '"think":{"value":"off"' "$t/values" &&
    cp "$t/out" "$t/conf/quasar/config" && XDG_CONFIG_HOME=$t/conf values >"$t/again" 2>"$t/err" && cmp "$t/values" "$t/again" &&
    "$q" config >"$t/conf/quasar/config" && values >"$t/values" && XDG_CONFIG_HOME=$t/conf values >"$t/again" 2>"$t/err" && cmp "$t/values" "$t/again"
ok 'what config prints is a settings file; comments behind values, a byte order mark'

# signals
# drafts: the same text, and figures about them
code='Write a C function that reverses a string.'
figure() { grep -o "\"$1\":[0-9.]*" "$2" | head -1 | cut -d: -f2; }
go 0 -p "$code" --seed 5 --think off --json -n 60 --spec off && ids "$t/out" >"$t/plain" &&
    [ "$(figure drafted "$t/out")" = 0 ] && [ "$(figure rounds "$t/out")" -ge 30 ]
ok '--spec off drafts nothing'
for spec in auto mtp suffix mtp+suffix; do
    go 0 -p "$code" --seed 5 --think off --json -n 60 --spec $spec --draft 5 && ids "$t/out" | cmp -s - "$t/plain"
    ok "--spec $spec says the same"
done
go 0 -p "$code" --temp 0 --think off --json -n 60 --spec mtp --draft 4 --stats &&
    [ "$(figure accepted "$t/out")" -gt 20 ] && [ "$(figure rounds "$t/out")" -lt 40 ] &&
    grep -q '^drafts  mtp: .* rounds, .* tokens each, .* % of .* drafts right' "$t/err" &&
    grep -q '^rounds  .* s drafting, .* s verifying, .* s between' "$t/err"
ok '--stats and --json tell what the drafts were worth'
go 0 -p "$code" --seed 5 --think off --json -n 60 --spec mtp --draft 5 && cp "$t/out" "$t/auto" &&
    grep -q '"speculation":{"none":{"rounds":[0-9]*,"tokens":[0-9]*},"mtp":{"rounds":[1-9][0-9]*,"tokens":[0-9]*,"drafted":\[[0-9,]*\],"accepted":\[[0-9,]*\]}' "$t/out" &&
    ! grep -q heads_compared "$t/out"
ok 'JSON tells drafts by source and place'
for head in full q4; do
    go 0 -p "$code" --seed 5 --think off --json -n 60 --spec mtp --draft 5 --draft-head $head &&
        ids "$t/out" | cmp -s - "$t/plain"
    ok "--draft-head $head says the same"
done
go 0 -p "$code" --temp 0 --think off --json -n 60 --spec off --fast-head --stats && ids "$t/out" >"$t/fast" &&
    [ "$(figure heads_compared "$t/out")" -gt 0 ] && [ -n "$(figure heads_differ "$t/out")" ] &&
    grep -q '^head    the fast one differs in [0-9]* of [0-9]* rows asked of both, ' "$t/err" &&
    go 0 -p "$code" --temp 0 --think off --json -n 60 --spec mtp --draft 5 --fast-head &&
    ids "$t/out" | cmp -s - "$t/fast"
ok '--fast-head tells how often it differs, and says the same with drafts'
go 0 -p "$code" --seed 5 --think off --json -n 60 --max-draft 0 && ids "$t/out" | cmp -s - "$t/plain" &&
    grep -q '"mtp":{"rounds":0,' "$t/out"
ok '--max-draft 0 drafts nothing with the MTP layer'
for caps in '--max-draft 3 --spec mtp' '--max-draft 3 --draft 3' '--verify-width 1' \
    '--verify-width 2 --spec mtp+suffix' '--max-draft 0 --verify-width 4 --spec suffix'; do
    go 0 -p "$code" --seed 5 --think off --json -n 60 $caps && ids "$t/out" | cmp -s - "$t/plain"
    ok "$caps says the same"
done
go 2 -p x --max-draft 3 --draft 4 && one_line "$t/err" && grep -q -e '--max-draft 3' "$t/err" &&
    go 2 -p x --verify-width 1 --spec suffix && one_line "$t/err" && grep -q -e '--verify-width 2' "$t/err"
ok 'drafts beyond what the engine was opened for are refused'
go 2 -p x --spec ngram && one_line "$t/err" && grep -q 'mtp+suffix' "$t/err" &&
    go 2 -p x --draft 16 && one_line "$t/err"
ok 'drafters and depths that do not exist are refused'

# answers in a form
echo '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}' >"$t/schema"
go 0 -p 'Is water wet?' --seed 3 --think off --regex '(yes|no)' && grep -qx 'yes\|no' "$t/out" && empty "$t/err" &&
    go 0 -p 'A number.' --seed 3 --json-schema "$t/schema" -n 400 && tr -d ' \n' <"$t/out" | grep -q '^{"n":-\?[0-9]*}$' &&
    go 1 -p x --regex 'a(' && one_line "$t/err" && go 2 -p x --regex a --json-schema "$t/schema" && one_line "$t/err"
ok 'an answer has its form; a wrong form is refused'
go 1 -p 'Is water wet?' --seed 3 --think off --regex '[0-9]{40}' -n 5 && grep -qx '[0-9]*' "$t/out" && one_line "$t/err" &&
    grep -q 'has not the form asked for: it was cut' "$t/err" &&
    go 1 -p 'Is water wet?' --seed 3 --think off --regex '(yes|no)' --stop e --stop o && one_line "$t/err" && grep -q 'a stop text' "$t/err"
ok 'an answer that was cut before its form was complete is no answer'
"$q" -m "$model" run -p hi </dev/null >"$t/out" 2>"$t/err"
[ $? -eq 2 ] && one_line "$t/err" && grep -q 'the command goes first: quasar run' "$t/err" && {
    "$q" -m "$model" score </dev/null >"$t/out" 2>"$t/err"
    [ $? -eq 2 ]
} && grep -q 'the command goes first: quasar score' "$t/err"
ok 'a command behind options is told to go first'

"$q" run -m "$model" --threads 1 -p 'Count to a million.' --ignore-eos --temp 0 --think off --json-stream \
    </dev/null >"$t/out" 2>"$t/err" &
pid=$!
for i in $(seq 1 200); do
    grep -q delta "$t/out" 2>/dev/null && break
    sleep 0.1
done
kill -INT $pid
wait $pid
[ $? -eq 130 ] && grep -q '"finish_reason":"cancelled"' "$t/out" && grep -q delta "$t/out"
ok 'an interrupt: what there is, status 130'
for sig in TERM HUP; do
    "$q" run -m "$model" --threads 1 -p 'Count to a million.' --ignore-eos --temp 0 --think off --json-stream \
        </dev/null >"$t/out" 2>"$t/err" &
    pid=$!
    for i in $(seq 1 200); do
        grep -q delta "$t/out" 2>/dev/null && break
        sleep 0.1
    done
    kill -$sig $pid
    wait $pid
    [ $? -eq 130 ] && grep -q '"finish_reason":"cancelled"' "$t/out"
    ok "SIG$sig ends it as well"
done
{ "$q" run -m "$model" --threads 1 -p 'Count to a million.' --ignore-eos --temp 0 --think off --json-stream \
    -n 400 </dev/null 2>"$t/err"; echo $? >"$t/status"; } | head -1 >"$t/out"
one_line "$t/out" && empty "$t/err"
ok 'a reader who leaves: not a word'
[ "$(cat "$t/status")" -ne 0 ]
ok 'and the program ends'
