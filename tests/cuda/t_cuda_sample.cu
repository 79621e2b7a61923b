/* Draws on the device: the same tokens as kernels/sample.c draws, over settings, rules,
 * ties, masks and vocabularies; alone and in company. On a GPU --time only measures. */
#include "cutest.h"

#include <algorithm>
#include <vector>

extern "C" {
#include "kernels/sample.h"
}
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sample_math.h"

enum { MOST_EDITS = 200, TIMED_EDITS = 4000 };

struct row {
    std::vector<float> l;
    std::vector<struct be_edit> edit, over;
    std::vector<uint32_t> allow;
    struct be_sample s;
};

static std::vector<struct be_edit> random_edits(int v)
{
    std::vector<struct be_edit> e;
    const int step = 1 + cut_below(v / 20 + 2);
    for (int id = cut_below(step); id < v && e.size() < MOST_EDITS; id += step) {
        const uint64_t r = cut_random();
        struct be_edit x = {};
        x.id = id;
        x.bias = r & 1 ? 0 : cut_uniform() * 5;
        x.count = r & 2 ? 0 : (uint32_t)(r >> 8 & 7);
        x.flags = (r & 4 ? (uint32_t)BE_SEEN : 0) | (r % 13 == 0 ? (uint32_t)BE_BAN : 0);
        e.push_back(x);
    }
    return e;
}

/* kind decides what is special about it. */
static struct row random_row(int v, int kind)
{
    static const float temps[] = {1, 0.7f, 0, 1.3f, 0.3f, 0.004f};
    static const int top_ks[] = {0, 1, 20, 300, 5};
    static const float top_ps[] = {1, 0.95f, 0.5f, 0.999f, 0.01f};
    static const float min_ps[] = {0, 0.05f, 0.3f};
    static const float spreads[] = {4, 0.2f, 12, 1, 40};
    struct row r;
    const float spread = spreads[kind % 5];
    const int shape = cut_below(6);
    for (int i = 0; i < v; i++) {
        float x = cut_normal() * spread;
        if (shape == 0) {
            x = floorf(x); /* ties at every cut */
        } else if (shape == 1 && cut_below(3) == 0) {
            x = -INFINITY;
        } else if (shape == 2) {
            x = 0.5f; /* nothing but ties */
        }
        r.l.push_back(x);
    }
    if (kind % 29 == 7) {
        r.l.assign((size_t)v, -INFINITY); /* nothing, or one */
        if (kind % 2) {
            r.l[(size_t)cut_below(v)] = -3;
        }
    }
    if (kind % 31 == 5) {
        r.l[(size_t)cut_below(v)] = NAN;
        r.l[(size_t)cut_below(v)] = 3e38f;
        r.l[(size_t)cut_below(v)] = -3e38f;
    }
    struct be_sample s = {};
    s.temp = temps[cut_below(6)];
    s.top_k = top_ks[cut_below(5)];
    s.top_p = top_ps[cut_below(5)];
    s.min_p = min_ps[cut_below(3)];
    s.seed = cut_random();
    s.pos = (uint32_t)cut_random();
    s.repetition = 1;
    if (cut_below(2)) {
        s.repetition = 1 + 0.3f * (float)cut_below(3);
        s.frequency = cut_uniform() * 2;
        s.presence = cut_uniform() * 2;
        r.edit = random_edits(v);
        if (cut_below(2)) {
            r.over = random_edits(v);
        }
    }
    if (cut_below(6) == 0) {
        const int few = cut_below(2);
        for (int i = 0; i < (v + 31) / 32; i++) {
            const uint64_t w = cut_random();
            r.allow.push_back((uint32_t)(few ? w & w >> 32 & cut_random() & cut_random() : w));
        }
    }
    r.s = s;
    return r;
}

static int32_t on_the_host(struct row *r, std::vector<float> &work)
{
    struct be_sample s = r->s;
    s.edit = r->edit.data();
    s.n_edit = (int)r->edit.size();
    s.over = r->over.data();
    s.n_over = (int)r->over.size();
    s.allow = r->allow.empty() ? NULL : r->allow.data();
    work.resize(sample_work((int)r->l.size()));
    return sample_row(r->l.data(), (int)r->l.size(), &s, work.data());
}

/* What is on the device for one vocabulary. */
struct bed {
    int v;
    size_t ld;
    float *logits;
    int32_t *n, *ids;
    struct cu_sample_row *row;
    struct be_edit *edit;
    uint32_t *mask;
    void *work;
};

static struct bed bed_make(int v, int edits)
{
    struct bed b = {};
    b.v = v;
    b.ld = (size_t)v + 3;
    b.logits = cut_new<float>(b.ld * CU_ROWS);
    b.n = cut_new<int32_t>(1);
    b.ids = cut_new<int32_t>(CU_ROWS);
    b.row = cut_new<struct cu_sample_row>(CU_ROWS);
    b.edit = cut_new<struct be_edit>((size_t)(CU_ROWS * edits));
    b.mask = cut_new<uint32_t>((size_t)CU_ROWS * (size_t)((v + 31) / 32));
    const size_t bytes = cu_sample_work(v);
    b.work = cut_alloc(bytes);
    cut_must(cudaMemset(b.work, 0, bytes), "cudaMemset");
    return b;
}

static void bed_free(struct bed *b)
{
    cut_free(b->logits);
    cut_free(b->n);
    cut_free(b->ids);
    cut_free(b->row);
    cut_free(b->edit);
    cut_free(b->mask);
    cut_free(b->work);
}

static int looks_of(const std::vector<struct row *> &rows, int v)
{
    int most = 0;
    for (const struct row *r : rows) {
        const int n = cu_sample_looks(&r->s, v);
        most = n > most ? n : most;
    }
    return most;
}

/* Draws rows on the device; the launch is made for most of them. */
static std::vector<int32_t> draw(struct cu_ctx *c, struct bed *b,
                                 const std::vector<struct row *> &rows, int most)
{
    std::vector<struct be_edit> edits;
    std::vector<struct cu_sample_row> to;
    std::vector<uint32_t> masks;
    for (size_t i = 0; i < rows.size(); i++) {
        const struct row *r = rows[i];
        cut_put(b->logits + i * b->ld, r->l.data(), r->l.size());
        struct cu_sample_row t = {};
        t.seed = r->s.seed;
        t.temp = r->s.temp;
        t.top_p = r->s.top_p;
        t.log_min_p = r->s.min_p > 0 ? sample_log_min_p(r->s.min_p) : -INFINITY;
        t.top_k = r->s.top_k;
        t.pos = r->s.pos;
        t.repetition = r->s.repetition;
        t.frequency = r->s.frequency;
        t.presence = r->s.presence;
        t.edit = (int32_t)edits.size();
        t.n_edit = (int32_t)r->edit.size();
        edits.insert(edits.end(), r->edit.begin(), r->edit.end());
        t.over = (int32_t)edits.size();
        t.n_over = (int32_t)r->over.size();
        edits.insert(edits.end(), r->over.begin(), r->over.end());
        t.allow = r->allow.empty() ? -1 : (int32_t)masks.size();
        masks.insert(masks.end(), r->allow.begin(), r->allow.end());
        to.push_back(t);
    }
    const int32_t n = (int32_t)rows.size();
    cut_put(b->n, &n, 1);
    cut_put(b->row, to.data(), to.size());
    cut_put(b->edit, edits.data(), edits.size());
    cut_put(b->mask, masks.data(), masks.size());
    cut_poison(b->ids, CU_ROWS * sizeof *b->ids);
    struct cu_sample s = {};
    s.logits = b->logits;
    s.ld = b->ld;
    s.used = b->v;
    s.n = b->n;
    s.max_n = most;
    s.row = b->row;
    s.edit = b->edit;
    s.mask = b->mask;
    s.work = b->work;
    s.ids = b->ids;
    s.looks = looks_of(rows, b->v);
    cut_must((cudaError_t)cu_sample(c, &s), "cu_sample");
    std::vector<int32_t> ids(CU_ROWS);
    cut_download(ids.data(), b->ids, CU_ROWS);
    return ids;
}

static void vocabulary(struct cu_ctx *c, int v, int rounds)
{
    struct bed b = bed_make(v, 2 * MOST_EDITS);
    std::vector<float> work;
    int rows = 0, wrong = 0, alone_wrong = 0, stray = 0, none = 0, different = 0;
    for (int i = 0; i < rounds; i++) {
        std::vector<struct row> made;
        const int n = 1 + cut_below(CU_ROWS);
        for (int k = 0; k < n; k++) {
            made.push_back(random_row(v, i * CU_ROWS + k));
        }
        std::vector<struct row *> all;
        for (int k = 0; k < n; k++) {
            all.push_back(&made[(size_t)k]);
        }
        cut_order(i);
        const std::vector<int32_t> got = draw(c, &b, all, CU_ROWS);
        for (int k = 0; k < n; k++) {
            const int32_t want = on_the_host(&made[(size_t)k], work);
            if (got[(size_t)k] != want && wrong++ == 0) {
                const struct be_sample *s = &made[(size_t)k].s;
                printf("# row %d of round %d: %d, not %d (temp %g top_k %d top_p %g min_p %g)\n", k,
                       i, got[(size_t)k], want, (double)s->temp, s->top_k, (double)s->top_p,
                       (double)s->min_p);
            }
            none += want < 0;
            different += k > 0 && want != got[0];
        }
        for (int k = n; k < CU_ROWS; k++) {
            stray += got[(size_t)k] != -1;
        }
        const int one = cut_below(n);
        const std::vector<int32_t> alone = draw(c, &b, {all[(size_t)one]}, 1);
        alone_wrong += alone[0] != got[(size_t)one];
        rows += n;
    }
    cut_ok(wrong == 0, "%d of %d: %d rows drawn as the host draws them (%d had nothing)", v, v,
           rows, none);
    cut_ok(alone_wrong == 0, "%d: alone as in company", v);
    cut_ok(stray == 0 && (v < 3 || rounds < 5 || different > 0),
           "%d: rows past the count are left alone", v);
    bed_free(&b);
}

/* ---- cuts among many ---- */

enum shape { FLAT, WIDE, FLOOR, EQUAL, TWO, TINY, HUGE_ONES, LOW, DEEP, HOLES, SHAPES };
static const char *const shape_name[SHAPES] = {"flat", "wide", "steps", "equal", "two values",
                                               "tiny", "huge", "low",   "deep",  "holes"};

static float logit_of(enum shape shape, float normal)
{
    switch (shape) {
    case FLAT:
        return normal * 0.2f;
    case WIDE:
        return normal * 2.5f + 7;
    case FLOOR:
        return floorf(normal); /* thousands of ties at every cut */
    case EQUAL:
        return 3.25f;
    case TWO:
        return normal > 0 ? 1 : 0.25f;
    case TINY:
        return normal * 1e-12f; /* one mass, many orders */
    case HUGE_ONES:
        return 2e6f + normal * 10; /* past where powers end: the same */
    case LOW:
        return normal > 1 ? -INFINITY : -2e6f + normal * 10; /* -inf has no mass there either */
    case DEEP:
        return normal * 1e4f;
    case HOLES:
        return normal > 0.3f ? -INFINITY : normal;
    case SHAPES:
        break;
    }
    return 0;
}

static float noise_of(const struct row *r, int id)
{
    return sm_gumbel(philox_word(r->s.seed, r->s.pos, PHILOX_TARGET, (uint32_t)id));
}

/* Gives the token with the most noise the last place that stays or the first that does
 * not, so that a cut one token off draws another. */
static int put_at_edge(struct row *r, bool stays, std::vector<float> &work)
{
    const int v = (int)r->l.size();
    int noisy = 0;
    for (int id = 1; id < v; id++) {
        noisy = noise_of(r, id) > noise_of(r, noisy) ? id : noisy;
    }
    work.resize(sample_work(v));
    struct sample_kept k;
    sample_filter(r->l.data(), v, &r->s, work.data(), &k);
    int last = -1, next = -1;
    for (int id = 0; id < v; id++) {
        if (sample_keeps(&k, id)) {
            last = last < 0 || k.x[id] <= k.x[last] ? id : last;
        } else if (k.x[id] > -INFINITY) {
            next = next < 0 || k.x[id] > k.x[next] ? id : next;
        }
    }
    const int at = stays ? last : next;
    if (at >= 0 && r->l[(size_t)noisy] > -INFINITY) {
        std::swap(r->l[(size_t)at], r->l[(size_t)noisy]);
    }
    return noisy;
}

static struct row deep_row(int v, enum shape shape)
{
    static const int top_ks[] = {0, 40, 1500, 5000};
    static const float top_ps[] = {1, 0.95f, 0.3f, 0.9999f}, min_ps[] = {0, 0.05f, 0.6f};
    static const float temps[] = {1, 1.5f, 0.5f};
    struct row r = {};
    for (int id = 0; id < v; id++) {
        r.l.push_back(logit_of(shape, cut_normal()));
    }
    r.s.temp = temps[cut_below(3)];
    r.s.top_k = top_ks[cut_below(4)];
    r.s.top_p = top_ps[cut_below(4)];
    r.s.min_p = min_ps[cut_below(3)];
    r.s.seed = cut_random();
    r.s.pos = (uint32_t)cut_random();
    r.s.repetition = 1;
    return r;
}

/* Cuts where more tokens are in the way than are ranked one by one. */
static void deep_cuts(struct cu_ctx *c, int v, int rounds)
{
    struct bed b = bed_make(v, 2 * MOST_EDITS);
    std::vector<float> work;
    int order = 0;
    for (int shape = 0; shape < SHAPES; shape++) {
        int rows = 0, wrong = 0, edge = 0;
        for (int i = 0; i < rounds; i++) {
            std::vector<struct row> made;
            std::vector<struct row *> all;
            int noisy[CU_ROWS];
            for (int k = 0; k < CU_ROWS; k++) {
                made.push_back(deep_row(v, (enum shape)shape));
                struct row *r = &made.back();
                noisy[k] = put_at_edge(r, k % 2 == 0, work);
                if (shape == EQUAL) {
                    r->s.top_k = 0;
                    r->s.min_p = 0;
                    r->s.top_p = ((float)noisy[k] + (k % 2 == 0 ? 0.5f : -0.5f)) / (float)v;
                }
            }
            for (struct row &r : made) {
                all.push_back(&r);
            }
            cut_order(order++);
            const std::vector<int32_t> got = draw(c, &b, all, CU_ROWS);
            for (int k = 0; k < CU_ROWS; k++) {
                struct row *r = all[(size_t)k];
                const int32_t want = on_the_host(r, work);
                if (got[(size_t)k] != want && wrong++ == 0) {
                    printf(
                        "# row %d of round %d: %d, not %d (temp %g top_k %d top_p %g min_p %g)\n",
                        k, i, got[(size_t)k], want, (double)r->s.temp, r->s.top_k,
                        (double)r->s.top_p, (double)r->s.min_p);
                }
                struct row free = *r;
                free.s.top_k = 0;
                free.s.top_p = 1;
                free.s.min_p = 0;
                edge += (k % 2 == 0 ? want : on_the_host(&free, work)) == noisy[k];
            }
            rows += CU_ROWS;
        }
        cut_ok(wrong == 0, "%d, %s: %d rows cut as the host cuts them", v, shape_name[shape], rows);
        if (shape == FLAT || shape == EQUAL || shape == TINY) {
            cut_ok(edge > rows / 4, "%d, %s: %d draws are of the token at the cut", v,
                   shape_name[shape], edge);
        } else {
            printf("# %d draws are of the token at the cut\n", edge);
        }
    }
    bed_free(&b);
}

/* The words and noise of the device are the host's. */
static __global__ void words_kernel(uint64_t seed, uint32_t n, uint32_t *word, uint32_t *gumbel,
                                    uint64_t *mass)
{
    pdl_wait();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const uint32_t w = philox_word(seed, i / 7, PHILOX_TARGET, i * 5);
        word[i] = w;
        gumbel[i] = sm_bits(sm_gumbel(w));
        const int64_t power = sm_power(((float)w - 2e9f) * 3e-8f);
        mass[i] = sm_mass(power) ^ (uint64_t)power << 20;
    }
}

static void same_words(struct cu_ctx *c)
{
#ifdef QUASAR_EMULATE
    const uint32_t n = 100000;
#else
    const uint32_t n = 4000000;
#endif
    const uint64_t seed = cut_random();
    uint32_t *word = cut_new<uint32_t>(n), *gumbel = cut_new<uint32_t>(n);
    uint64_t *mass = cut_new<uint64_t>(n);
    cut_must(
        cu_launch(c, "words", words_kernel, dim3(50), dim3(128), 0, seed, n, word, gumbel, mass),
        "words");
    std::vector<uint32_t> w(n), g(n);
    std::vector<uint64_t> m(n);
    cut_download(w.data(), word, n);
    cut_download(g.data(), gumbel, n);
    cut_download(m.data(), mass, n);
    uint32_t differ = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = philox_word(seed, i / 7, PHILOX_TARGET, i * 5);
        const int64_t power = sm_power(((float)x - 2e9f) * 3e-8f);
        differ += w[i] != x || g[i] != sm_bits(sm_gumbel(x)) ||
                  m[i] != (sm_mass(power) ^ (uint64_t)power << 20);
    }
    cut_ok(differ == 0, "%u words, noises and masses are the host's", n);
    cut_free(word);
    cut_free(gumbel);
    cut_free(mass);
}

#ifndef QUASAR_EMULATE
struct timed {
    const char *what;
    float temp, top_p, min_p;
    int top_k, edits, rows;
};

static struct row timed_row(const struct timed *t, int v)
{
    struct row r = {};
    for (int id = 0; id < v; id++) {
        r.l.push_back(cut_normal() * 2.5f);
    }
    for (int i = 0; i < t->edits; i++) {
        struct be_edit e = {};
        e.id = i * (v / TIMED_EDITS);
        e.flags = BE_SEEN;
        e.count = (uint32_t)(i % 3);
        r.edit.push_back(e);
    }
    r.s.temp = t->temp;
    r.s.top_p = t->top_p;
    r.s.top_k = t->top_k;
    r.s.min_p = t->min_p;
    r.s.seed = cut_random();
    r.s.repetition = t->edits ? 1.1f : 1;
    r.s.presence = t->edits ? 0.5f : 0;
    return r;
}

/* Microseconds of a draw at the published vocabulary. */
static void timing(struct cu_ctx *c)
{
    enum { TIMES = 200 };
    const int v = 248077;
    struct bed b = bed_make(v, TIMED_EDITS);
    static const struct timed t[] = {
        {"greedy", 0, 1, 0, 0, 0, 1},
        {"plain", 1, 1, 0, 0, 0, 1},
        {"top-k 20, top-p 0.95", 1, 0.95f, 0, 20, 0, 1},
        {"top-p 0.95", 1, 0.95f, 0, 0, 0, 1},
        {"T 1.5, top-p 0.95", 1.5f, 0.95f, 0, 0, 0, 1},
        {"top-k 5000", 1, 1, 0, 5000, 0, 1},
        {"top-k 5000, top-p 0.95", 1, 0.95f, 0, 5000, 0, 1},
        {"min-p 0.05", 1, 1, 0.05f, 0, 0, 1},
        {"min-p 0.001, top-p 0.95", 1, 0.95f, 0.001f, 0, 0, 1},
        {"plain, 4,000 edits", 1, 1, 0, 0, TIMED_EDITS, 1},
        {"top-p 0.95, 4,000 edits", 1, 0.95f, 0, 0, TIMED_EDITS, 1},
    };
    for (size_t i = 0; i < 2 * (sizeof t / sizeof *t); i++) {
        struct timed now = t[i / 2];
        now.rows = i % 2 == 0 ? 1 : CU_ROWS;
        std::vector<struct row> made;
        std::vector<struct row *> all;
        for (int k = 0; k < now.rows; k++) {
            made.push_back(timed_row(&now, v));
        }
        for (struct row &r : made) {
            all.push_back(&r);
        }
        const int before = c->launches;
        draw(c, &b, all, now.rows);
        const int launches = c->launches - before;
        struct cu_sample s = {b.logits, b.ld,   v,      b.n,   now.rows,        b.row,
                              b.edit,   b.mask, b.work, b.ids, looks_of(all, v)};
        cudaEvent_t from, to;
        cut_must(cudaEventCreate(&from), "event");
        cut_must(cudaEventCreate(&to), "event");
        cut_must(cudaEventRecord(from, (cudaStream_t)c->stream), "event");
        for (int k = 0; k < TIMES; k++) {
            cut_must((cudaError_t)cu_sample(c, &s), "cu_sample");
        }
        cut_must(cudaEventRecord(to, (cudaStream_t)c->stream), "event");
        cut_sync();
        float ms = 0;
        cut_must(cudaEventElapsedTime(&ms, from, to), "event");
        printf("# %s, %s, %d rows of %d: %.1f us, %d launches\n", cut_path_name(c->path), now.what,
               now.rows, v, (double)ms * 1000 / TIMES, launches);
        cudaEventDestroy(from);
        cudaEventDestroy(to);
    }
    bed_free(&b);
}
#endif

int main(int argc, char **argv)
{
    cut_begin();
    const bool only_time = argc > 1 && strcmp(argv[1], "--time") == 0;
    enum cu_path paths[2];
    const int n = cut_paths(paths);
#ifdef QUASAR_EMULATE
    const int often = getenv("QUASAR_LONG") ? 400 : 12;
    const int vocabularies[] = {1, 2, 63, 64, 65, 700, 2047, 2500, 9000};
    const int deep[] = {6000};
#else
    const int often = 300;
    const int vocabularies[] = {1, 2, 63, 65, 700, 2500, 8173, 50000, 248077, 262144};
    const int deep[] = {12000, 248077};
#endif
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(paths[i], true);
        if (!only_time) {
            same_words(c);
            for (int v : vocabularies) {
                vocabulary(c, v, v > 20000 ? often / 20 : v > 3000 ? often / 4 : often);
            }
            for (int v : deep) {
                deep_cuts(c, v, v > 20000 ? 2 : (often + 11) / 12);
            }
        }
#ifndef QUASAR_EMULATE
        timing(c);
#endif
    }
    return cut_end();
}
