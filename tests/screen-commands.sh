#!/bin/bash
# The commands of a conversation: taking back, summing up, copying, exporting,
# naming, settings, and what they say when they cannot. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1
cd "$tmp" || exit 1
printf 'You are terse.' >"$tmp/system.txt"

begin 100 30
say /undo
wait_for 'nothing was asked yet'
say /compact
wait_for 'nothing was said yet that could be summed up'
say /copy
wait_for 'there is nothing to copy'
say '/export md' '/export md'
wait_for 'there is nothing to export'
say '/rename it' '/rename it'
wait_for 'this conversation is not stored'
say /paste
wait_for 'nothing was pasted yet'
key F7
wait_for ' F7 does nothing here; F1 tells the keys'
key M-q
wait_for ' Alt-q does nothing here; F1 tells the keys'
key C-t
wait_for ' \^T does nothing here; F1 tells the keys'
text 'ab cd'
key C-x
key w
wait_for ' \^X w does nothing here; F1 tells the keys'
must '^ > ab cd *$'
key C-x
key C-w
wait_for ' \^X \^W does nothing here; F1 tells the keys'
must '^ > ab cd *$'
key M-q
wait_for ' Alt-q does nothing here; F1 tells the keys'
must '^ > ab cd *$'
key M-b
key M-u
wait_for '^ > ab CD *$'
key C-t
text 'e'
wait_for '^ > ab .*e *$'
must_not 'does nothing'
key C-u
result 'nothing to work on; a key that means nothing is told of and leaves the draft'

say hello
wait_for 'got 5 bytes'
key Tab
wait_for '┃ got 5 bytes'
key Up
wait_for '┃ hello'
key z
wait_for 'there is no thought here'
key M-q
wait_for 'Alt-q does nothing here; . tells the keys'
key Escape
wait_for 'Enter send'
say 'md please'
wait_for 'See the manual'
say '/copy code' '/copy code'
wait_for 'sent 7[0-9] bytes'
say '/copy 2' '/copy 2'
wait_for 'sent 3[0-9] bytes'
say '/copy 9' '/copy 9'
wait_for 'usage: /copy N, of 2 answers'
say "/export json $tmp/out.json --last 1" '/export json'
wait_for 'wrote [0-9]+ bytes, 2 messages, to'
head -c 80 "$tmp/out.json" | grep -q '^\[{"role": "user", "at": "20[0-9-]*T[0-9:]*Z", "content": "md please"' ||
    wrong "$(head -c 200 "$tmp/out.json")"
say "/export json $tmp/out.json" '/export json'
wait_for 'cannot write .*: File exists'
say '/export txt' '/export txt'
wait_for 'wrote .* 4 messages, to quasar-[0-9]+-[0-9]+.txt'
say '/export doc' '/export doc'
wait_for 'usage: /export md, txt or json'
key C-u
result 'copies and exports'

key Tab
wait_for 'Esc types'
key Y
wait_for 'sent [0-9]+ bytes'
key x
wait_for 'wrote .* 1 message, to quasar-[0-9]+-[0-9]+.md'
key Escape
wait_for 'Enter send'
say /undo
wait_for 'undone: what stood here is gone'
must_not 'See the manual'
must 'got 5 bytes'
key Up
wait_for '^ > md please'
key C-u
say count
wait_for '2 messages were before this one'
result 'a turn copied, exported from, taken back'

text 'draft'
say '' 'draft'
wait_for 'got 5 bytes'
say '/compact the numbers' '/compact the'
wait_for '│ /compact the numbers'
wait_for 'what you send now goes on from the summary alone'
must 'going on from a summary'
must '^ > \[file summary, [0-9]+ bytes\]'
key Escape
wait_for 'nothing was changed'
wait_not 'file summary'
must_not '/compact the numbers'
say count
wait_for '6 messages were before this one'
say '/compact' '/compact'
wait_for 'going on from a summary'
text 'and now'
wait_for 'bytes\] and now'
key Enter
wait_for 'what followed here is gone'
wait_for '│ \[file summary, [0-9]+ bytes\] and now'
must_not '│ /compact'
say count
wait_for '2 messages were before this one'
result 'summed up: given up, and gone on with'

say '/compact' '/compact'
wait_for 'going on from a summary'
text 'words'
wait_for 'bytes\] words'
key Up
key Down
wait_for 'going on from a summary'
wait_for 'bytes\] words'
key C-u
wait_for 'the summary was taken out: the conversation goes on as it was'
must_not 'going on from a summary'
must_not '│ /compact'
must '^ > *$'
say count
wait_for '4 messages were before this one'
must_not 'a new branch'
result 'a summary that is taken out of the draft'

say '/set temp 0.5' '/set temp'
wait_for 'temp: 0.5, from the next'
say /sampling
wait_for 'temp 0.5; the model.s own: top-k'
say "/system @$tmp/system.txt" '/system'
wait_for 'system: 14 bytes of'
say "/system @$tmp/none" '/system'
wait_for 'none: '
say '/theme dark' '/theme dark'
wait_for 'theme dark; theme = dark'
say '/set theme none' '/set theme none'
wait_for 'no theme none; there are the themes'
say '/set mouse wheel' '/set mouse'
wait_for 'the wheel scrolls'
say '/set mouse off' '/set mouse'
wait_for 'the terminal.s own'
say '/set editor ed' '/set editor'
wait_for 'it must be emacs or vi'
say '/set' '/set'
wait_for 'usage: /set KEY VALUE'
key C-u
result 'settings'

say forever
wait_for 'word5 '
key C-z
wait_for '1 answer will freeze; \^Z again suspends'
key C-z
wait_for 'Stopped'
wait_until alternate 0
text 'fg; echo rc=$?'
key Enter
wait_for 'Esc stop'
key Escape
wait_for '│ stopped'
wait_for '── idle'
result 'suspending with an answer under way is said first'

head -c 3000 /dev/zero | tr '\0' y >"$tmp/paste"
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^ > \[paste 1: 1 line, '
key Enter
wait_for 'got 3000 bytes'
say /paste
wait_for '^ > \[paste 1: 1 line, '
cat >"$tmp/ed" <<'S'
#!/bin/sh
if [ "$(wc -c <"$1")" -ge 3000 ]; then printf 'abc' >"$1"; else echo 'more' >>"$1"; fi
S
chmod +x "$tmp/ed"
result 'a paste of before'

key C-c
wait_for '^ > *$'
key C-d
wait_for 'rc=0'
begin 100 30 VISUAL="$tmp/ed" PAGER=cat
t load-buffer "$tmp/paste"
t paste-buffer -p
wait_for '^ > \[paste 1: 1 line, 2.9 KB\]'
key C-g
wait_for '^ > \[paste 1?2?: 1 line, 3 bytes\]'
text ' and'
key C-g
wait_for 'bytes\] and'
wait_for 'andmore'
key Enter
wait_for 'got 11 bytes, 1 lines'
key Tab
key C-g
wait_for 'got 11 bytes, 1 lines'
wait_for 'Esc types'
key Escape
wait_for 'Enter send'
say '/keys debug' '/keys debug'
wait_for 'press any key'
key F4
wait_for '(is F4: sessions while typing, sessions in the transcript)'
key C-t
wait_for '14 is \^T: nothing while typing'
key C-c
wait_for 'keys work again'
result 'the editor on a paste and around it, the pager, what keys send'

key C-d
wait_for 'rc=0'
whole
result 'out again'

begin 100 30
args='--resume 7'
key C-d
wait_for 'rc=0'
program
wait_for 'resumed'
say '/rename a better one' '/rename'
wait_for 'this conversation is "a better one"'
say '/rename taken' '/rename'
wait_for 'is named "taken" already'
say /pin
wait_for 'pinned: its saved state goes last'
say '/pin off' '/pin off'
wait_for 'no more pinned'
say /forget
wait_for 'its saved states are deleted \(4.1K bytes\)'
say '/resume x' '/resume x'
wait_for 'there is no conversation "x"; similar: 7 "An old.*F4 lists them'
say '/resume 8' '/resume 8'
wait_for 'conversation 8 is open in another'
result 'a stored conversation: named, pinned, its states forgotten'
begin 80 24
say '/set state-budget 4G' '/set state-budget 4G'
wait_for 'saved states may take [0-9.]+M bytes'
must_not 'what went'
say '/set state-budget 1K' '/set state-budget 1K'
wait_for 'what went for it had 4.1K bytes'
say '/set state-budget much' '/set state-budget much'
wait_for 'state-budget is "much"; it must be auto, or bytes'
key C-d
wait_for '^rc=0'
result 'how much saved states may take'

finish
