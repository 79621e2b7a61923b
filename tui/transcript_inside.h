#ifndef QUASAR_TUI_TRANSCRIPT_INSIDE_H
#define QUASAR_TUI_TRANSCRIPT_INSIDE_H

#include "tui/md.h"
#include "tui/transcript.h"

/* What the parts of the transcript share: transcript.c has its blocks, transcript_view.c lays
 * them out and draws, transcript_find.c searches. */
enum kind { B_USER, B_MODEL, B_NOTICE };

struct block {
    enum kind kind;
    char clock[8];
    int64_t at;         /* seconds since 1970; 0: not known */
    struct buf shown;   /* B_USER, B_NOTICE */
    struct buf full;    /* B_USER: what was sent; B_MODEL: unused */
    struct buf thought; /* B_MODEL */
    struct md *answer;  /* B_MODEL */
    long message;       /* its number in the conversation; -1: none */
    bool open;          /* still growing */
    bool waiting;       /* B_NOTICE: the place of an answer that has not begun */
    bool thought_over;
    bool unfolded;
    double thought_s;    /* negative: not known */
    int thought_tokens;  /* as that */
    enum role note_role; /* of shown in B_NOTICE, of note in B_MODEL */
    char note[256];
    /* cache */
    struct text_rows head; /* header and thought; the whole block but for B_MODEL's answer */
    struct text_rows tail; /* note and the blank row */
    const struct text_rows *body;
    int width;      /* of the cache; 0: none */
    size_t rows;    /* how many it has … */
    int rows_width; /* … at this width, also without the cache; 0: not known */
    /* what is looked for in it */
    struct buf head_said;    /* what head says without ornaments; body: md_said */
    unsigned searched;       /* serial of the search that these are of; 0: none */
    size_t in_head, in_body; /* matches */
    struct search_hits head_hits, body_hits;
    unsigned hits; /* … these; they are found when they are to be seen */
};

struct transcript {
    struct block **block;
    size_t n, cap;
    bool show_thoughts;
    bool follow;
    size_t top_block; /* anchor, when not following */
    size_t top_row;
    int selected;                /* -1: none */
    size_t code;                 /* of its blocks of code, from 1; 0: all of it */
    char code_hint[40];          /* … what can be done with that */
    int height;                  /* of the last drawing */
    size_t seen_block, seen_row; /* the end as it was when the view left it */
    int fresh;                   /* rows that came since, as last drawn */
    /* search */
    const struct search *search;
    unsigned serial;         /* of the search; never 0 in one */
    int step;                /* asked for since the last drawing; 0: none */
    bool go;                 /* show the nearest … */
    long go_message;         /* … in this message; -1: of all */
    size_t hit_block, hit_i; /* the match shown, by its block and number there */
    bool has_hit;
    size_t n_matches, shown; /* as last drawn */
};

/* transcript.c */
/* What a block says changed. */
void block_stale(struct block *b);

/* transcript_view.c */
/* Makes its rows, unless they are there. */
void block_layout(struct block *b, const struct theme *th, int width);
/* How many rows it has. */
size_t block_height(struct block *b, const struct theme *th, int width);
/* Without spaces around: what an open thought shows. */
void block_thought(const struct block *b, const char **p, size_t *n);
/* Moves (block, row) up by rows; stops at the top. */
void view_step_up(struct transcript *t, const struct theme *th, int width, size_t *block,
                  size_t *row, size_t rows);
/* Makes the anchor a real place. */
void view_settle(struct transcript *t, const struct theme *th, int height, int width);

/* transcript_find.c */
/* Carries out what was asked of the search, when the view is settled. */
void find_view(struct transcript *t, const struct theme *th, int height, int width);
/* Marks the matches in row i of a block's head (or body) over what was drawn at x. */
void find_mark(const struct transcript *t, size_t block, const struct theme *th, int y, int x,
               int width, bool head, size_t i);
/* Nothing of a search is kept with a block. */
void find_forget(struct block *b);

#endif
