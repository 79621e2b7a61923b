/* Random test models and their double-precision reference. */
#include "config.h"
#include "kmodel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

uint32_t krand(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return (uint32_t)((x ^ x >> 31) >> 16);
}

float krandf(uint64_t *state)
{
    return (float)(krand(state) >> 8) * 0x1p-23F - 1;
}

static void *own(struct kmodel *m, size_t n)
{
    m->owned = mem_realloc(m->owned, (size_t)(m->n_owned + 1) * sizeof *m->owned);
    return m->owned[m->n_owned++] = mem_zalloc(n);
}

struct tensor kmodel_tensor(struct kmodel *m, uint64_t *seed, enum dtype t, int rows, int cols,
                            float amp)
{
    struct tensor r = {.name = "test", .dtype = t, .n_dims = 2};
    r.shape[0] = (uint64_t)rows;
    r.shape[1] = (uint64_t)cols;
    if (dtype_sizes(t, r.shape[0], r.shape[1], &r.size, &r.scale_size) < 0) {
        abort();
    }
    uint8_t *data = own(m, r.size);
    uint16_t *scales = r.scale_size > 0 ? own(m, r.scale_size) : NULL;
    const size_t n = (size_t)rows * (size_t)cols;
    for (size_t i = 0; i < n; i++) {
        float x = krandf(seed) * amp;
        uint16_t h = t == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
        switch (t) {
        case DT_F32:
            memcpy(data + 4 * i, &x, sizeof x);
            break;
        case DT_F16:
        case DT_BF16:
            memcpy(data + 2 * i, &h, sizeof h);
            break;
        case DT_Q8_G128:
            data[i] = (uint8_t)krand(seed);
            break;
        case DT_Q4_G64:
            data[i / 2] = (uint8_t)krand(seed);
            break;
        }
    }
    for (size_t i = 0; i < r.scale_size / 2; i++) {
        float largest = t == DT_Q8_G128 ? 128 : 8;
        scales[i] = f32_to_f16(amp / largest * (1.5F + 0.5F * krandf(seed)));
    }
    r.data = data;
    r.scales = scales;
    return r;
}

double ktensor_at(const struct tensor *t, int r, int c)
{
    const size_t cols = (size_t)tensor_cols(t);
    const size_t i = (size_t)r * cols + (size_t)c;
    const uint8_t *data = t->data;
    const uint16_t *half = t->data;
    const uint16_t *scales = t->scales;
    const float *f = t->data;
    const size_t group = i / (size_t)dtype_group(t->dtype);
    switch (t->dtype) {
    case DT_F32:
        return (double)f[i];
    case DT_F16:
        return (double)f16_to_f32(half[i]);
    case DT_BF16:
        return (double)bf16_to_f32(half[i]);
    case DT_Q8_G128:
        return (double)(int8_t)data[i] * (double)f16_to_f32(scales[group]);
    case DT_Q4_G64:
        return ((double)(data[i / 2] >> 4 * (i & 1) & 15) - 8) * (double)f16_to_f32(scales[group]);
    }
    return NAN;
}

/* ---- model ---- */

static struct tensor vector(struct kmodel *m, uint64_t *seed, int n, float mean, float amp)
{
    struct tensor t = kmodel_tensor(m, seed, DT_F32, 1, n, amp);
    float *f = m->owned[m->n_owned - 1];
    for (int i = 0; i < n; i++) {
        f[i] += mean;
    }
    t.n_dims = 1;
    t.shape[0] = (uint64_t)n;
    return t;
}

static struct be_layer random_layer(struct kmodel *m, uint64_t *seed, enum dtype t, bool attention)
{
    const struct be_shape *s = &m->shape;
    const float in = 1.5F / sqrtf((float)s->hidden);
    const int ch = (2 * s->k_heads + s->v_heads) * BE_DN_DIM;
    const int vd = s->v_heads * BE_DN_DIM;
    const int qd = s->q_heads * BE_HEAD_DIM;
    struct be_layer l = {
        .norm = vector(m, seed, s->hidden, 1, 0.3F),
        .post_norm = vector(m, seed, s->hidden, 1, 0.3F),
        .gate = kmodel_tensor(m, seed, t, s->ffn, s->hidden, in),
        .up = kmodel_tensor(m, seed, t, s->ffn, s->hidden, in),
        .down = kmodel_tensor(m, seed, t, s->hidden, s->ffn, 1.5F / sqrtf((float)s->ffn)),
    };
    if (attention) {
        l.q = kmodel_tensor(m, seed, t, 2 * qd, s->hidden, in);
        l.k = kmodel_tensor(m, seed, t, s->kv_heads * BE_HEAD_DIM, s->hidden, in);
        l.v = kmodel_tensor(m, seed, t, s->kv_heads * BE_HEAD_DIM, s->hidden, in);
        l.o = kmodel_tensor(m, seed, t, s->hidden, qd, 1.5F / sqrtf((float)qd));
        l.q_norm = vector(m, seed, BE_HEAD_DIM, 1, 0.3F);
        l.k_norm = vector(m, seed, BE_HEAD_DIM, 1, 0.3F);
    } else {
        l.qkv = kmodel_tensor(m, seed, t, ch, s->hidden, in);
        l.z = kmodel_tensor(m, seed, t, vd, s->hidden, in);
        l.b = kmodel_tensor(m, seed, DT_F32, s->v_heads, s->hidden, in);
        l.a = kmodel_tensor(m, seed, DT_F32, s->v_heads, s->hidden, in);
        l.out = kmodel_tensor(m, seed, t, s->hidden, vd, 1.5F / sqrtf((float)vd));
        l.conv = kmodel_tensor(m, seed, DT_F32, ch, BE_CONV, 0.8F);
        l.a_log = vector(m, seed, s->v_heads, -0.2F, 0.15F);
        l.dt_bias = vector(m, seed, s->v_heads, -0.5F, 1);
        l.gnorm = vector(m, seed, BE_DN_DIM, 1, 0.3F);
    }
    return l;
}

void kmodel_init(struct kmodel *m, const struct be_shape *shape, enum dtype t, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->shape = *shape;
    m->attention = own(m, (size_t)shape->layers);
    m->shape.attention = m->attention;
    m->layers = own(m, (size_t)shape->layers * sizeof *m->layers);
    for (int i = 0; i < shape->layers; i++) {
        m->attention[i] = i % 4 == 3;
        m->layers[i] = random_layer(m, &seed, t, m->attention[i]);
    }
    const int h = shape->hidden;
    const float in = 1.5F / sqrtf((float)h);
    m->w = (struct be_weights){
        .embed = kmodel_tensor(m, &seed, t, shape->vocab, h, 1),
        .head = kmodel_tensor(m, &seed, t, shape->vocab, h, 2 * in),
        .norm = vector(m, &seed, h, 1, 0.3F),
        .layers = m->layers,
    };
    if (shape->mtp) {
        m->w.mtp_fc = kmodel_tensor(m, &seed, t, h, 2 * h, in);
        m->w.mtp_enorm = vector(m, &seed, h, 1, 0.3F);
        m->w.mtp_hnorm = vector(m, &seed, h, 1, 0.3F);
        m->w.mtp_norm = vector(m, &seed, h, 1, 0.3F);
        m->w.mtp_layer = random_layer(m, &seed, t, true);
    }
}

void kmodel_free(struct kmodel *m)
{
    for (int i = 0; i < m->n_owned; i++) {
        free(m->owned[i]);
    }
    free(m->owned);
}

/* ---- reference ---- */

struct kref {
    const struct kmodel *m;
    int max, pos, mtp_pos;
    double **k, **v; /* per layer and MTP: [max][kv_heads][256] */
    double **conv;   /* per layer: [3][channels] */
    double **s;      /* per layer: [v_heads][128][128] */
    /* Matrices already turned to double. */
    const void *seen[128];
    double *matrix[128];
    int n_seen;
};

static double vec(const struct tensor *t, int i)
{
    return (double)((const float *)t->data)[i];
}

static double *zeros(int n)
{
    return mem_array((size_t)n, sizeof(double));
}

struct kref *kref_create(const struct kmodel *m, int max_tokens)
{
    const struct be_shape *s = &m->shape;
    struct kref *r = mem_zalloc(sizeof *r);
    const size_t layers = (size_t)s->layers + 1;
    const int ch = (2 * s->k_heads + s->v_heads) * BE_DN_DIM;
    r->m = m;
    r->max = max_tokens;
    r->k = mem_array(layers, sizeof *r->k);
    r->v = mem_array(layers, sizeof *r->v);
    r->conv = mem_array(layers, sizeof *r->conv);
    r->s = mem_array(layers, sizeof *r->s);
    for (int i = 0; i <= s->layers; i++) {
        if (i == s->layers || m->attention[i]) {
            r->k[i] = zeros(max_tokens * s->kv_heads * BE_HEAD_DIM);
            r->v[i] = zeros(max_tokens * s->kv_heads * BE_HEAD_DIM);
        } else {
            r->conv[i] = zeros(3 * ch);
            r->s[i] = zeros(s->v_heads * BE_DN_DIM * BE_DN_DIM);
        }
    }
    return r;
}

void kref_free(struct kref *r)
{
    for (int i = 0; i <= r->m->shape.layers; i++) {
        free(r->k[i]);
        free(r->v[i]);
        free(r->conv[i]);
        free(r->s[i]);
    }
    for (int i = 0; i < r->n_seen; i++) {
        free(r->matrix[i]);
    }
    free(r->k);
    free(r->v);
    free(r->conv);
    free(r->s);
    free(r);
}

static const double *matrix(struct kref *r, const struct tensor *w)
{
    const int cols = (int)tensor_cols(w);
    const int n = (int)tensor_rows(w) * cols;
    for (int i = 0; i < r->n_seen; i++) {
        if (r->seen[i] == w->data) {
            return r->matrix[i];
        }
    }
    double *m = zeros(n);
    for (int i = 0; i < n; i++) {
        m[i] = ktensor_at(w, i / cols, i % cols);
    }
    if (r->n_seen == 128) {
        abort();
    }
    r->seen[r->n_seen] = w->data;
    return r->matrix[r->n_seen++] = m;
}

static double *product(struct kref *r, const struct tensor *w, const double *x)
{
    const double *m = matrix(r, w);
    const int rows = (int)tensor_rows(w);
    const int cols = (int)tensor_cols(w);
    double *y = zeros(rows);
    for (int i = 0; i < rows; i++) {
        double sum[4] = {0};
        for (int c = 0; c < cols; c++) {
            sum[c % 4] += m[(size_t)i * (size_t)cols + (size_t)c] * x[c];
        }
        y[i] = sum[0] + sum[1] + sum[2] + sum[3];
    }
    return y;
}

static void norm(const double *x, const struct tensor *w, int n, double eps, double *out)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < n; i++) {
        out[i] = x[i] / sqrt(sum / n + eps) * vec(w, i);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Axes of the interleaved rotary frequencies, spelled out. */
static const char axes[] = "THWTHWTHWTHWTHWTHWTHWTHWTHWTHWTH";

static void rotate(const struct kref *r, double *x, const int32_t pos[3])
{
    for (int i = 0; i < 32; i++) {
        int p = pos[axes[i] == 'T' ? 0 : axes[i] == 'H' ? 1 : 2];
        double a = p * pow(r->m->shape.rope_base, -2.0 * i / 64);
        double u = x[i];
        double w = x[i + 32];
        x[i] = u * cos(a) - w * sin(a);
        x[i + 32] = w * cos(a) + u * sin(a);
    }
}

static void ref_attention(struct kref *r, const struct be_layer *l, int index, int pos,
                          const int32_t rope[3], double *x)
{
    const struct be_shape *s = &r->m->shape;
    const int d = BE_HEAD_DIM;
    double *h = zeros(s->hidden);
    norm(x, &l->norm, s->hidden, (double)s->eps, h);
    double *q = product(r, &l->q, h);
    double *k = product(r, &l->k, h);
    double *v = product(r, &l->v, h);
    double *o = zeros(s->q_heads * d);
    double *p = zeros(pos + 1);
    for (int j = 0; j < s->kv_heads; j++) {
        norm(k + j * d, &l->k_norm, d, (double)s->eps, k + j * d);
        rotate(r, k + j * d, rope);
    }
    memcpy(r->k[index] + pos * s->kv_heads * d, k, (size_t)(s->kv_heads * d) * sizeof *k);
    memcpy(r->v[index] + pos * s->kv_heads * d, v, (size_t)(s->kv_heads * d) * sizeof *v);
    for (int j = 0; j < s->q_heads; j++) {
        double *qj = q + j * 2 * d;
        const int kv = j / (s->q_heads / s->kv_heads);
        double max = -INFINITY;
        double sum = 0;
        norm(qj, &l->q_norm, d, (double)s->eps, qj);
        rotate(r, qj, rope);
        for (int t = 0; t <= pos; t++) {
            const double *kt = r->k[index] + (t * s->kv_heads + kv) * d;
            p[t] = 0;
            for (int i = 0; i < d; i++) {
                p[t] += qj[i] * kt[i] / 16;
            }
            max = p[t] > max ? p[t] : max;
        }
        for (int t = 0; t <= pos; t++) {
            p[t] = exp(p[t] - max);
            sum += p[t];
        }
        for (int t = 0; t <= pos; t++) {
            const double *vt = r->v[index] + (t * s->kv_heads + kv) * d;
            for (int i = 0; i < d; i++) {
                o[j * d + i] += p[t] / sum * vt[i];
            }
        }
        for (int i = 0; i < d; i++) {
            o[j * d + i] *= sigmoid(qj[d + i]);
        }
    }
    double *y = product(r, &l->o, o);
    for (int i = 0; i < s->hidden; i++) {
        x[i] += y[i];
    }
    free(h);
    free(q);
    free(k);
    free(v);
    free(o);
    free(p);
    free(y);
}

static void ref_head(struct kref *r, const struct be_layer *l, int index, int h, const double *c,
                     double beta, double decay, const double *z, double *y)
{
    const struct be_shape *s = &r->m->shape;
    const int d = BE_DN_DIM;
    const int kh = h / (s->v_heads / s->k_heads);
    const double *q = c + kh * d;
    const double *k = c + (s->k_heads + kh) * d;
    const double *v = c + (2 * s->k_heads + h) * d;
    double *st = r->s[index] + h * d * d;
    double o[BE_DN_DIM] = {0};
    double qq = 0;
    double kk = 0;
    for (int i = 0; i < d; i++) {
        qq += q[i] * q[i];
        kk += k[i] * k[i];
    }
    for (int j = 0; j < d; j++) {
        double u = v[j];
        for (int i = 0; i < d; i++) {
            st[i * d + j] *= decay;
            u -= st[i * d + j] * k[i] / sqrt(kk + 1e-6);
        }
        for (int i = 0; i < d; i++) {
            st[i * d + j] += k[i] / sqrt(kk + 1e-6) * beta * u;
            o[j] += st[i * d + j] * q[i] / sqrt(qq + 1e-6) / sqrt(128);
        }
    }
    norm(o, &l->gnorm, d, (double)s->eps, y + h * d);
    for (int j = 0; j < d; j++) {
        y[h * d + j] *= z[h * d + j] * sigmoid(z[h * d + j]);
    }
}

static void ref_gdn(struct kref *r, const struct be_layer *l, int index, double *x)
{
    const struct be_shape *s = &r->m->shape;
    const int ch = (2 * s->k_heads + s->v_heads) * BE_DN_DIM;
    double *h = zeros(s->hidden);
    norm(x, &l->norm, s->hidden, (double)s->eps, h);
    double *m = product(r, &l->qkv, h);
    double *z = product(r, &l->z, h);
    double *b = product(r, &l->b, h);
    double *a = product(r, &l->a, h);
    double *c = zeros(ch);
    double *y = zeros(s->v_heads * BE_DN_DIM);
    double *conv = r->conv[index];
    for (int i = 0; i < ch; i++) {
        double u = conv[i] * vec(&l->conv, 4 * i) + conv[ch + i] * vec(&l->conv, 4 * i + 1) +
                   conv[2 * ch + i] * vec(&l->conv, 4 * i + 2) + m[i] * vec(&l->conv, 4 * i + 3);
        c[i] = u * sigmoid(u);
        conv[i] = conv[ch + i];
        conv[ch + i] = conv[2 * ch + i];
        conv[2 * ch + i] = m[i];
    }
    for (int i = 0; i < s->v_heads; i++) {
        double g = vec(&l->a_log, i) * log1p(exp(a[i] + vec(&l->dt_bias, i)));
        ref_head(r, l, index, i, c, sigmoid(b[i]), exp(g), z, y);
    }
    double *o = product(r, &l->out, y);
    for (int i = 0; i < s->hidden; i++) {
        x[i] += o[i];
    }
    free(h);
    free(m);
    free(z);
    free(b);
    free(a);
    free(c);
    free(y);
    free(o);
}

static void ref_ffn(struct kref *r, const struct be_layer *l, double *x)
{
    const struct be_shape *s = &r->m->shape;
    double *h = zeros(s->hidden);
    norm(x, &l->post_norm, s->hidden, (double)s->eps, h);
    double *g = product(r, &l->gate, h);
    double *u = product(r, &l->up, h);
    for (int i = 0; i < s->ffn; i++) {
        g[i] = g[i] * sigmoid(g[i]) * u[i];
    }
    double *o = product(r, &l->down, g);
    for (int i = 0; i < s->hidden; i++) {
        x[i] += o[i];
    }
    free(h);
    free(g);
    free(u);
    free(o);
}

static void ref_logits(struct kref *r, const double *h, double *logits)
{
    double *y = product(r, &r->m->w.head, h);
    for (int i = 0; i < r->m->shape.vocab; i++) {
        logits[i] = i < r->m->shape.vocab_used ? y[i] : -INFINITY;
    }
    free(y);
}

void kref_step(struct kref *r, int32_t token, const int32_t rope[3], double *logits, double *hidden)
{
    const struct be_shape *s = &r->m->shape;
    const int32_t plain[3] = {r->pos, r->pos, r->pos};
    double *x = zeros(s->hidden);
    for (int i = 0; i < s->hidden; i++) {
        x[i] = ktensor_at(&r->m->w.embed, token, i);
    }
    for (int i = 0; i < s->layers; i++) {
        const struct be_layer *l = &r->m->layers[i];
        if (r->m->attention[i]) {
            ref_attention(r, l, i, r->pos, rope ? rope : plain, x);
        } else {
            ref_gdn(r, l, i, x);
        }
        ref_ffn(r, l, x);
    }
    norm(x, &r->m->w.norm, s->hidden, (double)s->eps, x);
    if (hidden) {
        memcpy(hidden, x, (size_t)s->hidden * sizeof *x);
    }
    if (logits) {
        ref_logits(r, x, logits);
    }
    r->pos++;
    free(x);
}

void kref_mtp(struct kref *r, const double *hidden, int32_t token, double *m, double *logits)
{
    const struct be_shape *s = &r->m->shape;
    const struct be_weights *w = &r->m->w;
    const int32_t pos[3] = {r->mtp_pos, r->mtp_pos, r->mtp_pos};
    double *cat = zeros(2 * s->hidden);
    for (int i = 0; i < s->hidden; i++) {
        cat[i] = ktensor_at(&w->embed, token, i);
    }
    norm(cat, &w->mtp_enorm, s->hidden, (double)s->eps, cat);
    norm(hidden, &w->mtp_hnorm, s->hidden, (double)s->eps, cat + s->hidden);
    double *x = product(r, &w->mtp_fc, cat);
    ref_attention(r, &w->mtp_layer, s->layers, r->mtp_pos, pos, x);
    ref_ffn(r, &w->mtp_layer, x);
    norm(x, &w->mtp_norm, s->hidden, (double)s->eps, m);
    ref_logits(r, m, logits);
    r->mtp_pos++;
    free(cat);
    free(x);
}

const double *kref_state(const struct kref *r, int layer)
{
    return r->s[layer];
}
