#ifndef QUASAR_VIEW_HIST_H
#define QUASAR_VIEW_HIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "view/load.h"

/*
 * How the figures went over time: 1 s slices for ten minutes and 1 min slices for a
 * day. A slice is filled while something happens and exists only then: a time without
 * one is a gap, no zero. The memory is bounded and allocated once. One thread.
 */
enum hist_span { HS_SECONDS, HS_MINUTES, HS_COUNT };

#define HIST_SECONDS 600
#define HIST_MINUTES 1440
#define HIST_SEC_NS  1000000000LL

/* Figures that are read, not counted. NaN: not known. */
enum hist_gauge {
    HG_KV,    /* share of the cache's pages in use, 0..1 */
    HG_QUEUE, /* jobs that wait */
    HG_GPU_TEMP,
    HG_GPU_POWER, /* W */
    HG_GPU_MEM,   /* bytes */
    HG_HOST_MEM,  /* bytes of this process */
    HG_COUNT
};

/* Under the line of a slice. */
enum hist_mark {
    HM_DISCARD = 1, /* drafts were made and none of them was used, or a round failed */
    HM_PLAIN = 2,   /* plain decoding took over from drafts */
    HM_RESTORE = 4, /* a state was put back from memory or disk */
    HM_RESET = 8    /* the user's mark */
};

/* The engine's totals and the gauges at one moment. */
struct hist_sample {
    struct view_load load;
    double gauge[HG_COUNT];
};

#define HIST_PLACES 6 /* draft positions told apart */

/* What happened in a slice, or in several. */
struct hist_slice {
    int64_t at; /* its number: time by its length; the first of several */
    uint32_t rounds[VS_COUNT], tokens[VS_COUNT];
    uint32_t drafted[VS_COUNT], accepted[VS_COUNT];
    uint32_t place_drafted[HIST_PLACES], place_accepted[HIST_PLACES];
    float draft_s, verify_s, host_s;
    uint32_t prompt, cached, prefilled;
    float prefill_s;
    uint32_t failed;      /* rounds */
    double sum[HG_COUNT]; /* of what was read … */
    uint32_t n[HG_COUNT]; /* … so often */
    uint8_t noted;        /* PLAIN, RESTORE, RESET; all of them: hist_marks */
    bool filled;          /* something happened */
};

struct hist;
struct hist *hist_create(void);
void hist_free(struct hist *h);

/* The totals at a time (ns of any clock that does not go back). What came since the last
 * call is put into the slices of that time; nothing came and nobody works: no slice is made. The
 * first call only learns the totals. */
void hist_take(struct hist *h, int64_t now, const struct hist_sample *s);
/* The user's mark: averages begin with its slice. */
void hist_reset(struct hist *h, int64_t now);
/* Where the last one is; 0: none. */
int64_t hist_reset_at(const struct hist *h);

/* When something happened last; 0: nothing did. */
int64_t hist_latest(const struct hist *h);

/* Slices of a span, and their length. */
int hist_slices(enum hist_span span);
int64_t hist_length(enum hist_span span);
/* The slice of age 0 (the time `now` itself), 1 … before it; NULL: a gap. */
const struct hist_slice *hist_at(const struct hist *h, enum hist_span span, int64_t now, int age);
/* Adds the slices of ages from (younger) to up (older, not included) to *out, which is cleared;
 * false: all of them are gaps. since: earlier slices do not count. */
bool hist_sum(const struct hist *h, enum hist_span span, int64_t now, int from, int up,
              int64_t since, struct hist_slice *out);

/* ---- what is made of a slice; NaN: unknown ---- */
enum hist_row {
    HR_SPEED,  /* tokens by the time of rounds, per second */
    HR_ROUND,  /* tokens of a round */
    HR_ACCEPT, /* share of drafts used: all, of each place, of each drafter */
    HR_PLACE1,
    HR_PLACE2,
    HR_PLACE3,
    HR_PLACE4,
    HR_PLACE5,
    HR_PLACE6,
    HR_MTP,
    HR_SUFFIX,
    HR_DRAFT_MS, /* of a round: making drafts, model with draw, the rest */
    HR_VERIFY_MS,
    HR_HOST_MS,
    HR_PREFILL, /* prompt tokens computed per second */
    HR_REUSE,   /* share of prompt tokens not computed again */
    HR_KV,
    HR_QUEUE,
    HR_GPU_TEMP,
    HR_GPU_POWER,
    HR_GPU_MEM,
    HR_HOST_MEM,
    HR_COUNT
};
double hist_value(const struct hist_slice *s, enum hist_row row);
/* enum hist_mark, of all that happened in it. */
unsigned hist_marks(const struct hist_slice *s);
/* Short name for the screen ("tok/s"), and of its column in the CSV ("tok_s"). */
const char *hist_row_name(enum hist_row row);
const char *hist_row_column(enum hist_row row);

struct hist_stats {
    double now, average, p5, p95; /* NaN: unknown. now: at the age asked for */
    int n;                        /* slices with a value */
};
/* Of the slices of ages 0 .. ages-1, not earlier than the user's mark; now is of age `at`, or the
 * youngest with a value when at < 0. The average weighs by what is counted: tokens by time, not
 * the mean of rates. */
void hist_stats(const struct hist *h, enum hist_span span, int64_t now, int ages, int at,
                enum hist_row row, struct hist_stats *out);

/* The whole span as CSV, oldest first, one line per slice that exists, under a line of column
 * names. wall: seconds since 1970 at the time `now`. */
void hist_csv(const struct hist *h, enum hist_span span, int64_t now, int64_t wall,
              struct buf *out);

#endif
