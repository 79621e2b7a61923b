# What the model of the golden screens says.
clock virtual 2026-01-30 14:02
load 400ms 4
prefill 3400
round 20ms mtp 6 5 3ms
round 20ms mtp 6 4 3ms
round 18ms mtp 6 6 3ms
round 24ms mtp 4 1 2ms
round 16ms suffix 8 7
round 15ms

answer /^split/
  thought The user wants the column right with tabs; byte offsets are enough.\n
  thought Two places read the column: the error printer and the tests.
  pause 5s
  text The column drifts because tabs are counted as one cell. Two changes:\n
  text <<END
1. keep byte offsets in the token, compute columns only when printing
2. make `next_token` **pure**

```c
static size_t column_of(const char *line, size_t byte)
{
    size_t col = 0; /* in cells */
    return col + 8;
}
```

| name | cells | note |
|:-----|------:|------|
| tab | 8 | up to the next stop |
| 漢字 | 4 | two each |

> The grammar stays as it is.

See [the manual](https://example.org/manual) for more.
END

answer /^think/
  thought The user wants a thought that can be watched.\nIt has two lines.
  hold thinking
  thought  And a third piece.
  text The answer after the thought.

answer /^lines/
  repeat 120 line %d of the long answer\n

answer /^stream/
  repeat 40 word%d\x20
  hold streaming
  repeat 40 more%d\x20

answer /^tool/
  text I read it first.\n
  tool read_file {"path": "lexer.c", "from": 1}

answer /^fail/
  text The first half of an answer
  fail device the device fell off the bus

answer /^memory/
  fail memory no memory is left for the cache

answer /^hostile/
  text title \x1b]0;owned\x07 clear \x1b[2J bidi \xe2\x80\xaeabc c1 \xc2\x9b31m tab\there cr\x0dover end\n
  text wide 漢字かな emoji \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 heart \xe2\x9d\xa4\xef\xb8\x8f accents e\xcc\x81a\xcc\x88\n

answer
  text A short answer.
answer
  text Another short answer, the second of its kind.
