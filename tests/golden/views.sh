# Every view of the screen, one function each: what is pressed, and where a picture is
# taken. Names are those of the files beside. Read by tests/golden-screens.

views='welcome chat thought-folded thought-open thought-live stream tool failed memory hostile
prefill queue help help-transcript find history sessions palette commands panel stopped quit-again
draft vi branch edit scrolled paste too-small loading two-panes four-panes stats listener log
tree note'

view_welcome() { shot; }

view_loading() {
    advance 150ms
    shot
}

view_chat() { # text, list, code, table, quotation, link
    say 'split the lexer from the grammar'
    shot
}

view_thought-folded() {
    say 'think about it'
    go
    shot
}

view_thought-open() {
    say 'think about it'
    go
    key Tab z
    shot
}

view_thought-live() {
    say 'think about it'
    shot
}

view_stream() {
    say 'stream it'
    shot
}

view_tool() {
    say 'tool please'
    shot
}

view_failed() {
    say 'fail in the middle'
    shot
}

view_memory() {
    say 'memory is short'
    shot
}

view_hostile() {
    say 'hostile text'
    shot
}

view_prefill() {
    paste "$(seq 1 4000)"
    key Enter
    advance 1500ms
    shot
}

view_queue() {
    say 'stream it'
    type 'then run the tests'
    key Enter
    type 'and the third one'
    key Enter
    type 'a draft'
    shot
}

view_help() {
    key F1
    shot
}

view_help-transcript() {
    say 'first question'
    key Tab
    key '?'
    shot
}

view_find() {
    say 'lines please'
    key C-s
    type 'line 11'
    shot
}

view_history() {
    say 'first question'
    say 'second question'
    key C-r
    shot
}

view_sessions() {
    say 'first question'
    type '/new'
    key Enter
    run
    say 'second question'
    key F4
    shot
}

view_palette() {
    key C-x
    key p
    shot
}

view_commands() {
    type '/'
    shot
}

view_panel() {
    say 'split the lexer from the grammar'
    key F2
    shot
}

view_stopped() {
    say 'stream it'
    key Escape
    go
    shot
}

view_quit-again() {
    key C-c
    shot
}

view_draft() { # several lines and wide characters in the composer
    type 'first line with 漢字'
    key C-j
    type 'second line'
    key C-j
    type 'third'
    key Up
    shot
}

view_vi() {
    type '/vi'
    key Enter
    type 'one two three'
    key Escape
    type 'bb'
    shot
}

view_branch() {
    say 'first question'
    say 'second question'
    key Tab Up Up b
    shot
}

view_edit() {
    say 'first question'
    say 'second question'
    key Escape Escape
    shot
}

view_scrolled() {
    say 'lines please'
    say 'stream it'
    key PageUp
    go
    shot
}

view_paste() {
    type 'look at '
    paste "$(seq 1 412)"
    type ' and this'
    shot
}

view_too-small() {
    say 'split the lexer from the grammar'
    resize 38x9
    shot
    resize 20x3
    shot
    resize 1x1
    shot
    resize "$size"
    shot
}

view_two-panes() {
    say 'split the lexer from the grammar'
    key C-x
    key 3
    say 'stream it'
    shot
}

view_four-panes() {
    say 'first question'
    key C-x
    key 3
    say 'second question'
    key C-x
    key 2
    say 'third question'
    key C-x
    key o
    key C-x
    key 2
    say 'stream it'
    shot
}

view_stats() {
    say 'split the lexer from the grammar'
    say 'lines please'
    key F2 F2
    shot
}

view_listener() {
    key F3
    shot
}

view_log() {
    key F9
    shot
}

view_tree() { # the branches of a conversation
    say 'first question'
    say 'second question'
    key Tab Up Up b
    say 'another second question'
    key F4
    shot
}

view_note() { # what was not understood
    type '/nonsense'
    key Enter
    shot
}
