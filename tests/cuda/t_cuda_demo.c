/*
 * The demo model on the CUDA backend: its logits beside those of the CPU backend
 * (tests/data/demo_logits.bin, every 8th id of some positions), a digest of 128 greedy
 * tokens per kind of kernels (tests/data/golden-digests), and, on a GPU, rows among
 * random company and a long prompt cut at random places, bit for bit.
 * t_cuda_demo --write FILE IDS… makes the logits' file, with the CPU.
 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/philox.h"
#include "format/container.h"
#include "tests/cuda/engtest.h"

enum { EVERY = 8, ROWS = 8, MAX_PROMPT = 512, GREEDY = 128, CTX = 17408 };

/* The emulator takes seconds for a step of this model; a checker on a GPU, for which
 * QUASAR_TEST_SMALL is set, is slow too. */
#ifdef QUASAR_TEST_EMULATED
static bool slow = true;
#else
static bool slow;
#endif

static struct container *file;
static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    return philox_word(99, drawn++, PHILOX_TARGET, 0) % below;
}

static char *data_path(const char *name)
{
    const char *dir = getenv("QUASAR_SRCDIR");
    return io_join(dir ? dir : ".", name);
}

static struct engine *open_engine(enum engine_backend backend, int slots, int ctx)
{
    const struct engine_opts o = {
        .backend = backend, .slots = slots, .ctx = ctx, .cuda_path = wanted_path()};
    struct engine *g = NULL;
    struct err e = ERR_INIT;
    need_device(engine_open(file, &o, &g, &e), &e);
    return g;
}

/* ---- the logits' file: prompts, each with its last ROWS positions ---- */

struct prompt {
    int32_t n;
    int32_t ids[MAX_PROMPT];
};

static void row_of(struct engine *g, int output, float *row, float *full)
{
    struct err e = ERR_INIT;
    must(engine_logits(g, output, full, &e), &e);
    const int n = engine_info(g)->vocab / EVERY;
    for (int i = 0; i < n; i++) {
        row[i] = full[i * EVERY];
    }
}

static int write_file(const char *path, int argc, char **argv)
{
    struct buf out = BUF_INIT;
    struct engine *g = open_engine(EB_CPU, 1, 1024);
    const int vocab = engine_info(g)->vocab, kept = vocab / EVERY;
    float *row = mem_array((size_t)kept, sizeof *row),
          *full = mem_array((size_t)vocab, sizeof *full);
    int32_t count = argc;
    buf_add(&out, &count, sizeof count);
    for (int k = 0; k < argc; k++) {
        struct prompt p = {0};
        for (char *s = strtok(argv[k], ","); s && p.n < MAX_PROMPT; s = strtok(NULL, ",")) {
            p.ids[p.n++] = atoi(s);
        }
        buf_add(&out, &p.n, sizeof p.n);
        buf_add(&out, p.ids, (size_t)p.n * sizeof *p.ids);
        int seq = open_seq(g);
        prefill(g, seq, p.ids, p.n - ROWS, 0, NULL);
        for (int i = p.n - ROWS; i < p.n; i++) {
            decode(g, &seq, &p.ids[i], 1, NULL);
            row_of(g, 0, row, full);
            buf_add(&out, row, (size_t)kept * sizeof *row);
        }
        engine_seq_close(g, seq);
    }
    engine_close(g);
    FILE *f = fopen(path, "wb");
    const bool good = f && fwrite(out.data, 1, out.len, f) == out.len;
    return f && fclose(f) == 0 && good ? 0 : 1;
}

/* Squared differences and values of all compared logits. */
struct sums {
    double diff, sum, square;
    uint64_t n;
};

static void compare(struct sums *s, const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++) {
        if (want[i] == -INFINITY && got[i] == -INFINITY) {
            continue; /* a padding id */
        }
        const double d = (double)got[i] - (double)want[i];
        s->diff += d * d;
        s->sum += (double)want[i];
        s->square += (double)want[i] * (double)want[i];
        s->n++;
    }
}

static double error_of(const struct sums *s)
{
    const double mean = s->sum / (double)s->n;
    return sqrt(s->diff / (double)s->n) / sqrt(s->square / (double)s->n - mean * mean);
}

struct sink {
    struct engine *g;
    struct sums *s;
    const float *want;
    float *row, *full;
    int first, kept;
};

static int sink_row(void *ctx, int index, int output, struct err *e)
{
    struct sink *k = ctx;
    (void)e;
    row_of(k->g, output, k->row, k->full);
    compare(k->s, k->row, k->want + (size_t)(index - k->first) * (size_t)k->kept, k->kept);
    return 0;
}

/* Positions of a prompt's last rows by decode steps, and all of it by prefill. */
static void one_prompt(struct engine *g, const struct prompt *p, const float *want,
                       struct sums *steps, struct sums *pre)
{
    const int vocab = engine_info(g)->vocab, kept = vocab / EVERY, first = p->n - ROWS;
    float *row = mem_array((size_t)kept, sizeof *row),
          *full = mem_array((size_t)vocab, sizeof *full);
    struct err e = ERR_INIT;
    int seq = open_seq(g);
    if (slow) { /* a few of a short prompt's positions, all by steps */
        for (int i = 0; i < first + 2; i++) {
            decode(g, &seq, &p->ids[i], 1, NULL);
            if (i >= first) {
                row_of(g, 0, row, full);
                compare(steps, row, want + (size_t)(i - first) * (size_t)kept, kept);
            }
        }
    } else {
        prefill(g, seq, p->ids, first, 0, NULL);
        for (int i = first; i < p->n; i++) {
            decode(g, &seq, &p->ids[i], 1, NULL);
            row_of(g, 0, row, full);
            compare(steps, row, want + (size_t)(i - first) * (size_t)kept, kept);
        }
        engine_seq_reset(g, seq);
        int32_t rows[ROWS];
        for (int i = 0; i < ROWS; i++) {
            rows[i] = first + i;
        }
        struct sink k = {g, pre, want, row, full, first, kept};
        const struct engine_prefill q = {.seq = seq,
                                         .tokens = p->ids,
                                         .n = p->n,
                                         .want = rows,
                                         .n_want = ROWS,
                                         .sink = sink_row,
                                         .sink_ctx = &k};
        must(engine_prefill(g, &q, &e), &e);
    }
    engine_seq_close(g, seq);
    free(row);
    free(full);
}

static const char *take(const char **at, size_t n)
{
    const char *p = *at;
    *at += n;
    return p;
}

static void beside_the_cpu(struct engine *g, struct prompt *first)
{
    struct buf in = BUF_INIT;
    struct err e = ERR_INIT;
    char *path = data_path("tests/data/demo_logits.bin");
    must(io_read_file(path, 1 << 22, &in, &e), &e);
    free(path);
    const size_t kept = (size_t)engine_info(g)->vocab / EVERY;
    const char *at = in.data;
    int32_t count = 0;
    struct sums steps = {0}, pre = {0};
    memcpy(&count, take(&at, sizeof count), sizeof count);
    for (int k = 0; k < count; k++) {
        struct prompt p = {0};
        memcpy(&p.n, take(&at, sizeof p.n), sizeof p.n);
        memcpy(p.ids, take(&at, (size_t)p.n * sizeof *p.ids), (size_t)p.n * sizeof *p.ids);
        float *want = mem_array(ROWS * kept, sizeof *want);
        memcpy(want, take(&at, ROWS * kept * sizeof *want), ROWS * kept * sizeof *want);
        if (k == 0) {
            *first = p;
        }
        if (!slow || k == 0) {
            one_prompt(g, &p, want, &steps, &pre);
        }
        free(want);
    }
    buf_free(&in);
    ok(error_of(&steps) <= 0.005,
       "steps: RMS error %.4f %% of the logits' deviation (limit 0.5 %%)", 100 * error_of(&steps));
    if (!slow) {
        ok(error_of(&pre) <= 0.005, "prefill: RMS error %.4f %% (limit 0.5 %%)",
           100 * error_of(&pre));
    }
}

/* ---- the digest ---- */

static void digest(struct engine *g, const struct prompt *p, const char *kind)
{
    int32_t ids[GREEDY];
    struct err e = ERR_INIT;
    const struct engine_draw greedy = {.top_p = 1};
    const int output = 0;
    int seq = open_seq(g);
    prefill(g, seq, p->ids, p->n, 0, NULL);
    for (int i = 0; i < GREEDY; i++) {
        must(engine_sample(g, &output, &greedy, 1, &ids[i], &e), &e);
        if (i + 1 < GREEDY) {
            decode(g, &seq, &ids[i], 1, NULL);
        }
    }
    engine_seq_close(g, seq);
    char line[128], want[64];
    snprintf(line, sizeof line, "demo %s %016" PRIx64, kind, hash64(ids, sizeof ids, 0));
    snprintf(want, sizeof want, "demo %s ", kind);
    struct buf in = BUF_INIT;
    char *path = data_path("tests/data/golden-digests");
    must(io_read_file(path, 1 << 16, &in, &e), &e);
    free(path);
    buf_addc(&in, 0);
    if (strstr(in.data, want)) {
        ok(strstr(in.data, line) != NULL,
           "128 greedy tokens are those of tests/data/golden-digests: %s", line);
    } else {
        ok(true, "128 greedy tokens: no digest is kept; add \"%s\"", line);
    }
    buf_free(&in);
}

/* ---- the same bits ---- */

/* A prompt cut at random multiples of 64 and resumed from each. */
static void cuts(struct engine *g, int n, int sets)
{
    int32_t *ids = mem_array((size_t)n, sizeof *ids);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)draw((uint32_t)engine_info(g)->vocab_used);
    }
    const int wrong = cut_and_resume(g, ids, n, sets, draw);
    ok(wrong == 0,
       "a prompt of %d tokens cut at %d random sets of multiples of 64, resumed from each", n,
       sets);
    free(ids);
}

/* Rows 1..16 among random company equal the step alone. */
static void company(struct engine *g, int reps)
{
    const size_t vocab = (size_t)engine_info(g)->vocab;
    const uint32_t used = (uint32_t)engine_info(g)->vocab_used;
    float *want = mem_array(vocab, sizeof *want), *got = mem_array(16 * vocab, sizeof *got);
    struct err e = ERR_INIT;
    int32_t ids[600], next[16];
    int base = open_seq(g), alone = open_seq(g), wrong = 0;
    for (int r = 0; r < reps; r++) {
        const int n = 1 + (int)draw(600), rows = r % 16 + 1;
        for (int i = 0; i < n; i++) {
            ids[i] = (int32_t)draw(used);
        }
        engine_seq_reset(g, base);
        prefill(g, base, ids, n, 0, NULL);
        must(engine_seq_fork(g, alone, base, &e), &e);
        next[0] = (int32_t)draw(used);
        decode(g, &alone, next, 1, want);
        int seqs[16], opened[16], mine = (int)draw((uint32_t)rows);
        const int32_t token = next[0];
        for (int i = 0; i < rows; i++) {
            seqs[i] = opened[i] = open_seq(g);
            must(engine_seq_fill(g, seqs[i], 1 + (int)draw(2000), &e), &e);
            next[i] = (int32_t)draw(used);
        }
        must(engine_seq_fork(g, seqs[mine], base, &e), &e);
        next[mine] = token;
        decode(g, seqs, next, rows, got);
        wrong += memcmp(got + (size_t)mine * vocab, want, vocab * sizeof *want) != 0;
        for (int i = 0; i < rows; i++) {
            engine_seq_close(g, opened[i]);
        }
    }
    ok(wrong == 0, "%d rows among random company, slots and pages equal the step alone", reps);
    engine_seq_close(g, base);
    engine_seq_close(g, alone);
    free(want);
    free(got);
}

/* ---- the way to the device ---- */

/* The file loses its end as soon as a first part of it is on the device. */
static void cut_off(void *ctx, double done)
{
    (void)done;
    if (truncate(ctx, 1 << 16) < 0) {
        perror("truncate");
    }
}

static void upload(void)
{
    struct err e = ERR_INIT;
    struct engine_opts o = {
        .backend = EB_CUDA, .slots = 1, .ctx = 512, .cuda_path = wanted_path(), .verify = true};
    struct engine *g = NULL;
    for (int i = 0; i < 2; i++) {
        /* the emulator only: readers cannot pin their buffers */
        if (i == 1) {
            setenv("QUASAR_EMU_NO_REGISTER", "1", 1);
        }
        o.threads = i == 0 ? 0 : 1;
        const int rc = engine_open(file, &o, &g, &e);
        ok(rc == 0, "what lies on the device is what the file holds%s%s", rc < 0 ? ": " : "",
           rc < 0 ? e.msg : "");
        engine_close(rc == 0 ? g : NULL);
    }
    unsetenv("QUASAR_EMU_NO_REGISTER");
    char path[] = "/tmp/t_cuda_demo-XXXXXX";
    const int fd = mkstemp(path);
    struct container *copy = NULL;
    must(io_write_all(fd, container_map(file)->data, container_map(file)->size, path, &e), &e);
    close(fd);
    must(container_open(path, false, &copy, &e), &e);
    o.verify = false;
    o.progress = cut_off;
    o.progress_ctx = path;
    const int rc = engine_open(copy, &o, &g, &e);
    ok(rc == QE_IO && strstr(e.msg, "cut off"), "a file that ends on the way is refused: %s",
       rc < 0 ? e.msg : "it was not");
    engine_close(rc == 0 ? g : NULL);
    container_close(copy);
    unlink(path);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    char *path = data_path("models/demo.qsr");
    must(container_open(path, false, &file, &e), &e);
    free(path);
    if (argc > 3 && strcmp(argv[1], "--write") == 0) {
        return write_file(argv[2], argc - 3, argv + 3);
    }
    const bool is_long = getenv("QUASAR_LONG") != NULL;
    slow = slow || getenv("QUASAR_TEST_SMALL") != NULL;
    upload();
    struct engine *g = open_engine(EB_CUDA, slow ? 1 : 18, slow ? 512 : CTX);
    struct prompt p = {0};
    printf("# %s\n", engine_info(g)->plan);
    beside_the_cpu(g, &p);
    if (!slow) {
        const bool sm80 = strstr(engine_info(g)->device, "sm_90") == NULL ||
                          strstr(engine_info(g)->device, "sm_80") != NULL;
        digest(g, &p, sm80 ? "cuda-sm80" : "cuda-sm90");
        company(g, is_long ? 160 : 32);
        cuts(g, 16384, is_long ? 200 : 50);
    }
    engine_close(g);
    if (!slow) {
        g = open_engine(EB_CPU, 1, 1024);
        digest(g, &p, "cpu");
        engine_close(g);
    }
    container_close(file);
    return done();
}
