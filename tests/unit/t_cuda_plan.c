/* The memory plan of the CUDA backend: what fits, what is left, and what the refusal
 * says. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/plan.h"

#define GB 1000000000ULL

/* The 27B in 4 bits. */
static const struct cuda_needs big = {.cc = 90,
                                      .free = 140 * GB,
                                      .weights = 15 * GB,
                                      .slot = 163 * 1000000ULL,
                                      .page = 17825792,
                                      .work = 900 * 1000000ULL,
                                      .slots = 16,
                                      .layers = 64,
                                      .graphs = 16};

static uint64_t used(const struct be_plan *p)
{
    return p->weights + p->states + p->work + p->graphs + p->margin + p->page * (uint64_t)p->pages;
}

static void everything_fits_to_a_page(void **state)
{
    (void)state;
    struct cuda_needs n = big;
    struct be_plan p;
    for (n.free = 17 * GB; n.free < 150 * GB; n.free += 777 * 1000000ULL) {
        cuda_plan_make(&n, &p);
        if (p.pages > 0) {
            assert_true(used(&p) <= n.free);
            assert_true(used(&p) + p.page > n.free);
        } else {
            assert_true(used(&p) + p.page > n.free);
        }
    }
}

static void each_option_gives_pages(void **state)
{
    (void)state;
    struct cuda_needs n = big;
    struct be_plan all, p;
    n.free = 24 * GB;
    cuda_plan_make(&n, &all);
    assert_true(all.pages > 0);
    n.slots = 2;
    cuda_plan_make(&n, &p);
    assert_true(p.pages > all.pages + 100);
    n = big;
    n.free = 24 * GB;
    n.graphs = 0;
    cuda_plan_make(&n, &p);
    assert_true(p.graphs == 0 && p.pages > all.pages);
    n.page /= 2;
    cuda_plan_make(&n, &p);
    assert_true(p.pages > 2 * all.pages);
}

static void older_chips_keep_more_back(void **state)
{
    (void)state;
    struct cuda_needs n = big;
    struct be_plan hopper, ampere;
    cuda_plan_make(&n, &hopper);
    n.cc = 86;
    cuda_plan_make(&n, &ampere);
    assert_true(ampere.graphs > 2 * hopper.graphs && ampere.margin > hopper.margin);
}

static void the_refusal_is_one_line_with_the_plan(void **state)
{
    (void)state;
    struct cuda_needs n = big;
    struct be_plan p;
    struct err e = ERR_INIT;
    n.free = 20 * GB;
    n.slots = 2;
    cuda_plan_make(&n, &p);
    snprintf(p.device, sizeof p.device, "some card");
    assert_true(p.pages > 2);
    assert_int_equal(cuda_plan_refuse(&p, 4096, NULL, &e), QE_NOMEM);
    char remedy[64];
    snprintf(remedy, sizeof remedy, "--ctx %d", (p.pages - 1) * BE_PAGE);
    const char *const words[] = {"some card",      "20.0 GB free", "15.0 GB of weights",
                                 "1048576 tokens", "--kv fp8",     remedy};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(e.msg, words[i])) {
            fail_msg("\"%s\" lacks \"%s\"", e.msg, words[i]);
        }
    }
    assert_null(strchr(e.msg, '\n'));
    n.free = 10 * GB;
    cuda_plan_make(&n, &p);
    assert_int_equal(p.pages, 0);
    assert_int_equal(cuda_plan_refuse(&p, 4, NULL, &e), QE_NOMEM);
    assert_non_null(strstr(e.msg, "q4s"));
    assert_non_null(strstr(e.msg, "--verify-width 1"));
    assert_int_equal(cuda_plan_refuse(&p, 4, "uploading the weights", &e), QE_NOMEM);
    assert_ptr_equal(strstr(e.msg, "out of memory uploading the weights: "), e.msg);
    assert_null(strchr(e.msg, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_fits_to_a_page),
        cmocka_unit_test(each_option_gives_pages),
        cmocka_unit_test(older_chips_keep_more_back),
        cmocka_unit_test(the_refusal_is_one_line_with_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
