/* src/engine/kv: page tables, sharing and copy on write, over a backend that
 * only remembers what each page holds. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "engine/kv.h"
#include "engine/rstate.h"

#define PAGES 24

static int held[PAGES]; /* what was written last to a page */
static int copies;

static int copy_page(struct backend *b, int dst, int src, struct err *e)
{
    (void)b;
    (void)e;
    held[dst] = held[src];
    copies++;
    return 0;
}

static const struct be_ops ops = {.page_copy = copy_page};

static void covers_and_gives_back(void **state)
{
    (void)state;
    struct kv_pool p;
    struct kv_table t = {0};
    kv_pool_init(&p, &ops, NULL, PAGES);
    assert_int_equal(kv_writable(&p, &t, 0, 1, NULL), 0);
    assert_int_equal(t.n, 1);
    assert_int_equal(kv_writable(&p, &t, 1, BE_PAGE, NULL), 0);
    assert_int_equal(t.n, 1);
    assert_int_equal(kv_writable(&p, &t, BE_PAGE, BE_PAGE + 1, NULL), 0);
    assert_int_equal(t.n, 2);
    assert_int_equal(p.n_free, PAGES - 2);
    kv_trim(&p, &t, BE_PAGE);
    assert_int_equal(t.n, 1);
    struct err e = ERR_INIT;
    assert_int_equal(kv_writable(&p, &t, 0, (PAGES + 1) * BE_PAGE, &e), QE_NOMEM);
    assert_non_null(strstr(e.msg, "--ctx"));
    kv_table_fini(&p, &t);
    assert_int_equal(p.n_free, PAGES);
    kv_pool_fini(&p);
}

static void shared_pages_are_copied_before_writing(void **state)
{
    (void)state;
    struct kv_pool p;
    struct kv_table a = {0}, b = {0};
    kv_pool_init(&p, &ops, NULL, PAGES);
    copies = 0;
    assert_int_equal(kv_writable(&p, &a, 0, 2 * BE_PAGE + 10, NULL), 0);
    for (int i = 0; i < a.n; i++) {
        held[a.pages[i]] = 100 + i;
    }
    kv_share(&p, &b, &a, 2 * BE_PAGE + 10);
    assert_int_equal(p.n_free, PAGES - 3);
    assert_int_equal(kv_writable(&p, &b, 2 * BE_PAGE + 10, 2 * BE_PAGE + 11, NULL), 0);
    assert_int_equal(copies, 1);
    assert_int_not_equal(a.pages[2], b.pages[2]);
    assert_int_equal(a.pages[1], b.pages[1]);
    assert_int_equal(held[b.pages[2]], 102);
    /* now each has its own last page */
    assert_int_equal(kv_writable(&p, &a, 2 * BE_PAGE + 10, 2 * BE_PAGE + 11, NULL), 0);
    assert_int_equal(copies, 1);
    kv_table_fini(&p, &a);
    assert_int_equal(p.n_free, PAGES - 3);
    kv_table_fini(&p, &b);
    assert_int_equal(p.n_free, PAGES);
    kv_pool_fini(&p);
}

/* Any sequence of growing, forking and closing keeps every table's own values. */
static void random_walk_keeps_contents(void **state)
{
    (void)state;
    enum { SEQS = 5, STEPS = 4000 };
    struct kv_pool p;
    struct kv_table t[SEQS] = {{0}};
    int len[SEQS] = {0}, want[SEQS][PAGES] = {{0}};
    kv_pool_init(&p, &ops, NULL, PAGES);
    int full = 0;
    for (int step = 0; step < STEPS; step++) {
        int s = (int)(philox_word(1, (uint32_t)step, PHILOX_TARGET, 0) % SEQS);
        int o = (int)(philox_word(1, (uint32_t)step, PHILOX_TARGET, 1) % SEQS);
        uint32_t what = philox_word(1, (uint32_t)step, PHILOX_TARGET, 2) % 16;
        int more = (int)(philox_word(1, (uint32_t)step, PHILOX_TARGET, 3) % 300) + 1;
        if (what == 0) {
            kv_trim(&p, &t[s], 0);
            len[s] = 0;
        } else if (what < 4 && s != o) {
            kv_share(&p, &t[s], &t[o], len[o]);
            len[s] = len[o];
            memcpy(want[s], want[o], sizeof want[s]);
        } else if (kv_writable(&p, &t[s], len[s], len[s] + more, NULL) == 0) {
            for (int i = len[s] / BE_PAGE; i < kv_pages_for(len[s] + more); i++) {
                held[t[s].pages[i]] = want[s][i] = step;
            }
            len[s] += more;
        } else {
            full++;
        }
        for (int i = 0; i < SEQS; i++) {
            for (int j = 0; j < kv_pages_for(len[i]); j++) {
                assert_int_equal(held[t[i].pages[j]], want[i][j]);
            }
        }
    }
    assert_true(full > 0); /* the walk met a full pool too */
    for (int i = 0; i < SEQS; i++) {
        kv_table_fini(&p, &t[i]);
    }
    assert_int_equal(p.n_free, PAGES);
    kv_pool_fini(&p);
}

static void slots_are_taken_lowest_first(void **state)
{
    (void)state;
    struct rstate r;
    rstate_init(&r, 3);
    assert_int_equal(rstate_take(&r), 0);
    assert_int_equal(rstate_take(&r), 1);
    assert_int_equal(rstate_take(&r), 2);
    assert_int_equal(rstate_take(&r), -1);
    rstate_give(&r, 1);
    assert_false(rstate_has(&r, 1));
    assert_false(rstate_has(&r, -1));
    assert_false(rstate_has(&r, 3));
    assert_int_equal(rstate_take(&r), 1);
    rstate_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_and_gives_back),
        cmocka_unit_test(shared_pages_are_copied_before_writing),
        cmocka_unit_test(random_walk_keeps_contents),
        cmocka_unit_test(slots_are_taken_lowest_first),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
