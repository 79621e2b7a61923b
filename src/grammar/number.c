/* Bounds of numbers as digits: a number is in between when, at the first digit in which it
 * differs from a bound, it is on the right side. */
#include "config.h"
#include "grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN   18 /* digits where nothing says how many */
#define DIGITS 96 /* of a bound, before and behind the point */

/* A number of digits: whole ones without zeros before them, fraction without zeros behind. */
struct dec {
    bool there, negative, open;
    int n, m;
    char whole[DIGITS], part[DIGITS];
};

/* ---- digits ---- */

static node digits(struct nodes *x, int lo, int hi)
{
    return nodes_rep(x, nodes_range(x, '0', '9'), lo, hi);
}

static int compare(const char *a, int n, const char *b, int m)
{
    return n != m ? (n > m) - (n < m) : memcmp(a, b, (size_t)n);
}

static bool all_are(const char *d, int n, char c)
{
    int i = 0;
    while (i < n && d[i] == c) {
        i++;
    }
    return i == n;
}

/* From a to b, both of n digits. What begins with a digit between their first ones, or has the
 * whole range behind it, is not looked at further: there are two ways down at most. */
static node same_length(struct nodes *x, const char *a, const char *b, int n)
{
    if (n == 0) {
        return NODE_EMPTY;
    }
    if (a[0] == b[0]) {
        return nodes_seq(x, nodes_byte(x, a[0]), same_length(x, a + 1, b + 1, n - 1));
    }
    char least[DIGITS], most[DIGITS];
    memset(least, '0', sizeof least);
    memset(most, '9', sizeof most);
    int from = a[0], to = b[0];
    node all = NODE_FAIL;
    if (!all_are(a + 1, n - 1, '0')) {
        all = nodes_seq(x, nodes_byte(x, from++), same_length(x, a + 1, most, n - 1));
    }
    if (!all_are(b + 1, n - 1, '9')) {
        all = nodes_alt(x, all,
                        nodes_seq(x, nodes_byte(x, to--), same_length(x, least, b + 1, n - 1)));
    }
    if (from <= to) {
        all = nodes_alt(x, all, nodes_seq(x, nodes_range(x, from, to), digits(x, n - 1, n - 1)));
    }
    return all;
}

/* Whole numbers from a to b, not negative. */
static node whole_between(struct nodes *x, const char *a, int n, const char *b, int m)
{
    node all = NODE_FAIL;
    if (compare(a, n, b, m) > 0) {
        return all;
    }
    for (int len = n; len <= m; len++) {
        char lo[DIGITS], hi[DIGITS];
        memset(lo, '0', sizeof lo);
        memset(hi, '9', sizeof hi);
        lo[0] = '1';
        if (len == n) {
            memcpy(lo, a, (size_t)n);
        }
        if (len == m) {
            memcpy(hi, b, (size_t)m);
        }
        all = nodes_alt(x, all, same_length(x, lo, hi, len));
    }
    return all;
}

/* The next whole number, in place. */
static void up(char *d, int *n)
{
    int i = *n - 1;
    while (i >= 0 && d[i] == '9') {
        d[i--] = '0';
    }
    if (i >= 0) {
        d[i]++;
        return;
    }
    memmove(d + 1, d, (size_t)*n);
    d[0] = '1';
    (*n)++;
}

/* The one before; not of 0. */
static void down(char *d, int *n)
{
    int i = *n - 1;
    while (d[i] == '0') {
        d[i--] = '9';
    }
    d[i]--;
    if (d[0] == '0' && *n > 1) {
        memmove(d, d + 1, (size_t)-- * n);
    }
}

/* ---- bounds ---- */

static bool is_zero(const struct dec *d)
{
    return d->n == 1 && d->whole[0] == '0' && d->m == 0;
}

bool number_is_wide(const json_t *v)
{
    return json_is_real(v) && fabs(json_real_value(v)) >= 0x1p63;
}

int number_compare(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        const json_int_t x = json_integer_value(a), y = json_integer_value(b);
        return (x > y) - (x < y);
    }
    const double x = json_number_value(a), y = json_number_value(b);
    return (x > y) - (x < y);
}

/* From the shortest text that reads back as the number; of one that is wide the nearest that is
 * not, and a little more. lower: the bound is the lower one. */
static void read_dec(const json_t *v, bool open, bool lower, struct dec *out)
{
    if (number_is_wide(v)) {
        *out = (struct dec){.there = true,
                            .negative = json_real_value(v) < 0,
                            .n = 19,
                            .whole = "9223372036854775807"};
        return;
    }
    char s[64], all[40];
    int exponent = 0, n = 0;
    *out = (struct dec){.there = false, .open = open};
    if (json_is_integer(v)) {
        snprintf(s, sizeof s, "%lld", (long long)json_integer_value(v));
        out->negative = s[0] == '-';
        n = (int)strlen(s + out->negative);
        memcpy(all, s + out->negative, (size_t)n);
        exponent = n;
    } else {
        const double d = json_real_value(v);
        for (int k = 0; k < 17; k++) {
            snprintf(s, sizeof s, "%.*e", k, d);
            if (strtod(s, NULL) == d) {
                break;
            }
        }
        out->negative = s[0] == '-';
        const char *p = s + out->negative;
        for (; *p != 'e'; p++) {
            if (*p != '.') {
                all[n++] = *p;
            }
        }
        exponent = d == 0 ? 1 : atoi(p + 1) + 1;
    }
    while (n > 1 && all[n - 1] == '0') {
        n--;
    }
    out->there = true;
    if (exponent < -OPEN) { /* nothing has so many digits that it lies between this and 0 */
        *out = (struct dec){.there = true, .n = 1, .whole = "0", .open = out->negative != lower};
        return;
    }
    for (int i = exponent < 0 ? exponent : 0; i < (n > exponent ? n : exponent); i++) {
        const char c = i >= 0 && i < n ? all[i] : '0';
        if (i < exponent) {
            out->whole[out->n++] = c;
        } else {
            out->part[out->m++] = c;
        }
    }
    if (out->n == 0) {
        out->whole[out->n++] = '0';
    }
    while (out->m > 0 && out->part[out->m - 1] == '0') {
        out->m--;
    }
    out->negative = out->negative && !is_zero(out);
}

/* ---- fractions ---- */

static node zeros(struct nodes *x, int lo)
{
    return nodes_rep(x, nodes_byte(x, '0'), lo, OPEN);
}

/* Digits that stand at place i of a fraction which is so far the bound's. */
struct parts {
    const struct dec *a, *b; /* NULL: no more a bound */
};

static node part_from(struct nodes *x, struct parts p, int i)
{
    if (p.a && i >= p.a->m && !p.a->open) {
        p.a = NULL;
    }
    if (!p.a && !p.b) {
        return digits(x, 0, OPEN);
    }
    const bool a_over = p.a && i >= p.a->m, b_over = p.b && i >= p.b->m;
    if (b_over) { /* only the bound itself is left */
        return p.a || p.b->open ? NODE_FAIL : zeros(x, 0);
    }
    if (a_over && !p.b) { /* more than the bound, by any digit */
        return nodes_seq3(x, zeros(x, 0), nodes_range(x, '1', '9'), digits(x, 0, OPEN));
    }
    const char lo = p.a && !a_over ? p.a->part[i] : '0';
    const char hi = p.b ? p.b->part[i] : '9';
    node all = p.a ? NODE_FAIL : NODE_EMPTY; /* no more digits: less than b, not than a */
    for (char d = lo; d <= hi; d++) {
        const struct parts rest = {d == lo ? p.a : NULL, d == hi ? p.b : NULL};
        all = nodes_alt(x, all, nodes_seq(x, nodes_byte(x, d), part_from(x, rest, i + 1)));
    }
    return all;
}

/* What stands behind the whole digits: nothing, or a point and digits. */
static node part(struct nodes *x, const struct dec *a, const struct dec *b)
{
    const bool more_than_a = !a || (a->m == 0 && !a->open); /* the whole number alone */
    const bool less_than_b = !b || b->m > 0 || !b->open;
    const struct parts p = {a, b};
    node all = NODE_FAIL;
    for (char d = '0'; d <= '9'; d++) {
        /* The first digit is made here: there is one at least. */
        const char lo = a && a->m > 0 ? a->part[0] : '0';
        const char hi = b ? b->m > 0 ? b->part[0] : '0' : '9';
        if (d < lo || d > hi) {
            continue;
        }
        const struct parts rest = {d == lo ? p.a : NULL, d == hi ? p.b : NULL};
        all = nodes_alt(x, all, nodes_seq(x, nodes_byte(x, d), part_from(x, rest, 1)));
    }
    all = nodes_seq(x, nodes_byte(x, '.'), all);
    return more_than_a && less_than_b ? nodes_alt(x, NODE_EMPTY, all) : all;
}

/* ---- between two bounds that are not negative ---- */

/* Of all that is smaller than a, or (b) larger, nothing. b may not be there. */
static node magnitudes(struct nodes *x, const struct dec *a, const struct dec *b, bool integer)
{
    struct dec lo = *a, hi = *b;
    if (!hi.there) {
        hi.n = lo.n > OPEN ? lo.n : OPEN;
        memset(hi.whole, '9', (size_t)hi.n);
    }
    if (integer) {
        if (lo.m > 0 || lo.open) {
            up(lo.whole, &lo.n);
        }
        if (hi.there && hi.m == 0 && hi.open) {
            if (is_zero(&hi)) {
                return NODE_FAIL;
            }
            down(hi.whole, &hi.n);
        }
        return whole_between(x, lo.whole, lo.n, hi.whole, hi.n);
    }
    const int order = compare(lo.whole, lo.n, hi.whole, hi.n);
    if (order > 0) {
        return NODE_FAIL;
    }
    if (order == 0) {
        return nodes_seq(x, nodes_text(x, lo.whole, (size_t)lo.n),
                         part(x, &lo, hi.there ? &hi : NULL));
    }
    node all = nodes_seq(x, nodes_text(x, lo.whole, (size_t)lo.n), part(x, &lo, NULL));
    const node last =
        nodes_seq(x, nodes_text(x, hi.whole, (size_t)hi.n), part(x, NULL, hi.there ? &hi : NULL));
    all = nodes_alt(x, all, last);
    up(lo.whole, &lo.n);
    if (is_zero(&hi)) {
        return all;
    }
    down(hi.whole, &hi.n);
    const node between = whole_between(x, lo.whole, lo.n, hi.whole, hi.n);
    return nodes_alt(x, all, nodes_seq(x, between, part(x, NULL, NULL)));
}

static node exponent(struct nodes *x)
{
    const node sign = nodes_opt(x, nodes_alt(x, nodes_byte(x, '+'), nodes_byte(x, '-')));
    const node e = nodes_alt(x, nodes_byte(x, 'e'), nodes_byte(x, 'E'));
    return nodes_seq3(x, e, sign, digits(x, 1, 2));
}

node number_node(struct nodes *x, const struct number_bounds *b, bool integer)
{
    struct dec lo = {.there = false}, hi = {.there = false};
    const struct dec none = {.there = false};
    const struct dec zero = {.there = true, .n = 1, .whole = "0"};
    if (b->lo) {
        read_dec(b->lo, b->lo_open, true, &lo);
    }
    if (b->hi) {
        read_dec(b->hi, b->hi_open, false, &hi);
    }
    node all = NODE_FAIL;
    if (!hi.there || !hi.negative) {
        const bool from_lo = lo.there && !lo.negative;
        all = magnitudes(x, from_lo ? &lo : &zero, &hi, integer);
    }
    if (!lo.there || lo.negative) {
        struct dec least = hi.there && hi.negative ? hi : zero;
        least.open = least.open || is_zero(&least); /* there is no -0 */
        const node less = magnitudes(x, &least, lo.there ? &lo : &none, integer);
        all = nodes_alt(x, all, nodes_seq(x, nodes_byte(x, '-'), less));
    }
    return integer || b->lo || b->hi ? all : nodes_seq(x, all, nodes_opt(x, exponent(x)));
}
