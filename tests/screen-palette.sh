#!/bin/bash
# The palette and completion: actions by name, commands behind a slash, words and
# files behind those, files as parts of a message. TAP.
. "${QUASAR_SRCDIR:-.}/tests/screen-lib.sh" || exit 1

mkdir -p "$tmp/files/sub"
printf 'int x;\n' >"$tmp/files/lexer.c"
printf 'int y;\n' >"$tmp/files/lexer.h"
printf 'two\n' >"$tmp/files/two words.txt"
printf 'inner\n' >"$tmp/files/sub/inner.txt"
printf 'a\0b' >"$tmp/files/binary"
ln -s loop "$tmp/files/loop"

begin 100 30
key M-x
wait_for '^ actions:'
must '> send .*Enter$'
text 'qqzz'
wait_for 'nothing found'
key C-u
key BSpace BSpace BSpace BSpace
wait_for '> send'
text redraw
wait_for '> redraw +draw everything again +\^L$'
key Escape
wait_not 'actions:'
key C-x
text p
wait_for '^ actions:'
text 'new con'
wait_for '> new +start a new conversation'
key Enter
wait_for 'a new conversation'
key M-x
wait_for '> new ' # the last one first
key Up
wait_for '> (send|newline|stop)'
key Down
wait_for '> new '
key Escape
wait_not 'actions:'
result 'every action by its name, the last ones first, keys at the right'

key M-x
text 'set '
wait_for '> set '
key Enter
wait_for '^ > /set$'
must '/set KEY VALUE: '
key C-u
say hello
wait_for 'got 5 bytes'
key M-x
text 'copy-m'
wait_for '> copy-message .* y$'
key Enter
wait_for 'sent [0-9]+ bytes to the terminal'
must '┃ got 5 bytes'
key Escape
wait_for 'Enter send'
result 'an action that needs words begins in the composer, one of messages selects the last'

# ---- a slash ----
text /
wait_for '^   +/(attach|sessions|retry)'
must_not '^ >  /'
text 'xprt'
wait_for '^   /export'
key Tab
wait_for '^ > /export$'
wait_for '^   md$'
text 'j'
wait_not '^   md$'
wait_for '^   json$'
key C-u
text /
wait_for '   /set'
key Up
wait_for '^ > /'
picked=$(screen | grep '^ > *[/a-z]' | head -1)
[ -n "$picked" ] || wrong 'nothing is chosen'
key Up Up Down
key C-u
wait_for '^ > *$'
text /hel
wait_for '   /help'
key Up
wait_for '^ > /help'
key Enter
wait_for 'While typing'
key Escape
wait_not 'Esc closes'
wait_for '^ > *$'
text '/set '
wait_for '^   temp +temperature; 0 always takes the likeliest'
must '^ Tab takes the lowest  Up chooses'
key C-u
wait_for '^ > *$'
text '/se'
wait_for '^ Tab completes  Up chooses  Enter send'
key C-u
text '@x'
wait_for '^ Tab lists files  Enter send'
key C-u
wait_for '^ > *$'
must_not 'Tab lists files'
text '/set th'
wait_for '^   theme +default, auto'
must '^   think +on, off or default'
key Up
wait_for '^ > think +on'
key Enter
wait_for '^ > /set think$'
wait_for '^   off$'
key C-u
result 'commands and what follows them, by letters and by arrows'

# ---- files ----
text "look at @$tmp/files/lex"
key Tab
wait_for '^ files: '
must '^ +lexer.h$'
must "^ > look at @.*/files/lexer\.$"
key Up
wait_for '^ > lexer.h$'
key Enter
wait_for 'look at \[file lexer.h, 7 bytes\]'
key Enter
wait_for '│ look at \[file lexer.h, 7 bytes\]'
wait_for 'got [0-9]+ bytes, 3 lines'
text "@$tmp/files/two"
key Tab
wait_for '\[file two words.txt, '
key BSpace
wait_for '^ > *$'
text "@$tmp/files/su"
key Tab
wait_for '\[file inner.txt, '
key C-u
text "@$tmp/files/none"
key Tab
wait_for 'no file begins with .*/none'
must '^ > @'
key C-u
text "@$tmp/nowhere/x"
key Tab
wait_for 'cannot look into .*/nowhere/: No such file'
key C-u
text "@$tmp/files/loop"
key Tab
wait_for 'loop: Too many levels of symbolic links'
key C-u
text "@$tmp/files/bin"
key Tab
wait_for 'binary is no text'
must_not '! [0-9]+ errors?' # what the user can mend is none
key C-u
text "@$tmp/files/l"
key Tab
wait_for '^ files: '
text x
wait_not '^ files: '
must '/files/lx$'
key C-u
text "/attach $tmp/files/two"
key Tab
wait_for '/attach .*/files/two words.txt$'
key Enter
wait_for 'two words.txt is in the message'
key C-u
result 'files by Tab: folders, blanks, what cannot be'

key C-d
wait_for 'rc=0'
whole
result 'out again'
finish
