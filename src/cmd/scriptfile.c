/* Reads scripts of the scripted engine: one statement a line, and texts of several lines
 * between <<WORD and WORD. Knows every statement by one table. */
#define _GNU_SOURCE
#include "config.h"
#include "cmd/scriptfile.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/vclock.h"
#include "view/spec.h"

#define REPEAT_MAX 1000000
#define TEXT_MAX   ((size_t)64 << 20) /* of all answers */

struct reader {
    const char *p, *end; /* what is left */
    const char *name;
    int line;
    struct scriptfile *s;
    struct scriptfile_answer *answer; /* the last; NULL: none yet */
    size_t texts;
    struct err *e;
};

static int wrong(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int wrong(struct reader *r, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(r->e, QE_USAGE, "%s:%d: %s", r->name, r->line, what);
}

/* The next line without its end and without blanks around it; false at the end of the file. */
static bool next_line(struct reader *r, bool raw, struct buf *out)
{
    buf_truncate(out, 0);
    if (r->p == r->end) {
        return false;
    }
    const char *nl = memchr(r->p, '\n', (size_t)(r->end - r->p));
    const char *from = r->p, *to = nl ? nl : r->end;
    r->p = nl ? nl + 1 : r->end;
    r->line++;
    while (!raw && from < to && (*from == ' ' || *from == '\t')) {
        from++;
    }
    while (to > from && (to[-1] == '\r' || (!raw && (to[-1] == ' ' || to[-1] == '\t')))) {
        to--;
    }
    buf_add(out, from, (size_t)(to - from));
    return true;
}

/* Takes the first word off a line. */
static char *word(char **line)
{
    char *w = *line;
    char *end = w + strcspn(w, " \t");
    *line = end + strspn(end, " \t");
    *end = 0;
    return w;
}

static int number(struct reader *r, const char *what, const char *s, long lo, long hi, long *out)
{
    char *end = NULL;
    errno = 0;
    const long x = isdigit((unsigned char)*s) ? strtol(s, &end, 10) : 0;
    if (!end || *end || errno != 0 || x < lo || x > hi) {
        return wrong(r, "%s is \"%.40s\"; it must be a number from %ld to %ld", what, s, lo, hi);
    }
    *out = x;
    return 0;
}

static int duration(struct reader *r, const char *s, int64_t *out)
{
    return vclock_parse_time(s, out)
               ? 0
               : wrong(r, "\"%.40s\" is no time such as 20ms, 1.5s or 300us", s);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The rest of a line as text: \n, \t, \\ and \xHH stand for bytes. */
static int unescape(struct reader *r, const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s != '\\') {
            buf_addc(out, *s);
            continue;
        }
        s++;
        if (*s == 'n' || *s == 't' || *s == '\\') {
            buf_addc(out, *s == 'n' ? '\n' : *s == 't' ? '\t' : '\\');
        } else if (*s == 'x' && hex(s[1]) >= 0 && hex(s[2]) >= 0) {
            buf_addc(out, (char)(hex(s[1]) * 16 + hex(s[2])));
            s += 2;
        } else {
            return wrong(r, "a backslash is followed by none of n, t, \\ and xHH");
        }
    }
    return 0;
}

/* A text: the rest of the line, or the lines up to a word. */
static int text_of(struct reader *r, const char *rest, struct buf *out)
{
    if (strncmp(rest, "<<", 2) != 0) {
        return unescape(r, rest, out);
    }
    const int from = r->line;
    struct buf line = BUF_INIT;
    int rc = rest[2] ? 0 : wrong(r, "a word that ends the text must follow <<");
    while (rc == 0) {
        if (!next_line(r, true, &line)) {
            r->line = from;
            rc = wrong(r, "the text is not ended by a line \"%.40s\"", rest + 2);
        } else if (line.len == strlen(rest + 2) && memcmp(line.data, rest + 2, line.len) == 0) {
            break;
        } else {
            buf_add(out, line.data ? line.data : "", line.len);
            buf_addc(out, '\n');
        }
    }
    buf_free(&line);
    return rc;
}

/* ---- statements ---- */

static struct scriptfile_part *add_part(struct reader *r, enum scriptfile_kind kind)
{
    struct scriptfile_answer *a = r->answer;
    if (a->n_parts == a->cap_parts) {
        a->cap_parts = a->cap_parts ? 2 * a->cap_parts : 8;
        a->parts = mem_realloc(a->parts, a->cap_parts * sizeof *a->parts);
    }
    a->parts[a->n_parts] = (struct scriptfile_part){.kind = kind};
    return &a->parts[a->n_parts++];
}

static int count_text(struct reader *r, size_t n)
{
    r->texts += n;
    return r->texts <= TEXT_MAX ? 0 : wrong(r, "the answers have more than %zu MB", TEXT_MAX >> 20);
}

static int do_text(struct reader *r, char *rest, enum scriptfile_kind kind)
{
    struct scriptfile_part *p = add_part(r, kind);
    const int rc = text_of(r, rest, &p->text);
    return rc < 0 ? rc : count_text(r, p->text.len);
}

static int on_text(struct reader *r, char *rest)
{
    return do_text(r, rest, SF_TEXT);
}

static int on_thought(struct reader *r, char *rest)
{
    for (size_t i = 0; i < r->answer->n_parts; i++) {
        if (r->answer->parts[i].kind == SF_TEXT || r->answer->parts[i].kind == SF_TOOL) {
            return wrong(r, "a thought comes before the text of its answer");
        }
    }
    return do_text(r, rest, SF_THOUGHT);
}

/* repeat N TEXT, in which %d is the number from 1 on. */
static int on_repeat(struct reader *r, char *rest)
{
    long n = 0;
    int rc = number(r, "how often", word(&rest), 1, REPEAT_MAX, &n);
    struct buf one = BUF_INIT;
    rc = rc < 0 ? rc : text_of(r, rest, &one);
    rc = rc < 0 ? rc : count_text(r, (one.len + 8) * (size_t)n);
    if (rc == 0) {
        struct scriptfile_part *p = add_part(r, SF_TEXT);
        const char *s = one.data ? one.data : "";
        const char *at = strstr(s, "%d");
        for (long i = 1; i <= n; i++) {
            if (at) {
                buf_add(&p->text, s, (size_t)(at - s));
                buf_printf(&p->text, "%ld%s", i, at + 2);
            } else {
                buf_add(&p->text, s, one.len);
            }
        }
    }
    buf_free(&one);
    return rc;
}

static int on_tool(struct reader *r, char *rest)
{
    char *name = word(&rest);
    if (!*name || *rest != '{') {
        return wrong(r, "tool is followed by a name and a JSON object");
    }
    struct scriptfile_part *p = add_part(r, SF_TOOL);
    buf_adds(&p->name, name);
    buf_adds(&p->text, rest);
    return count_text(r, p->text.len);
}

static int on_pause(struct reader *r, char *rest)
{
    int64_t ns = 0;
    const int rc = duration(r, rest, &ns);
    if (rc == 0) {
        struct scriptfile_part *p = add_part(r, SF_EVENT);
        p->what = SCRIPT_PAUSE;
        p->ns = ns;
    }
    return rc;
}

static int on_hold(struct reader *r, char *rest)
{
    if (!*rest || strpbrk(rest, " \t")) {
        return wrong(r, "hold is followed by one word, its name");
    }
    struct scriptfile_part *p = add_part(r, SF_EVENT);
    p->what = SCRIPT_HOLD;
    buf_adds(&p->text, rest);
    return 0;
}

static int on_fail(struct reader *r, char *rest)
{
    const char *how = word(&rest);
    const bool device = strcmp(how, "device") == 0, memory = strcmp(how, "memory") == 0;
    if (!device && !memory && strcmp(how, "nan") != 0) {
        return wrong(r, "fail is followed by device, memory or nan, not \"%.40s\"", how);
    }
    struct scriptfile_part *p = add_part(r, SF_EVENT);
    p->what = device ? SCRIPT_DEVICE : memory ? SCRIPT_MEMORY : SCRIPT_NAN;
    buf_adds(&p->text, *rest ? rest : device ? "the device is lost" : "no memory is left");
    return 0;
}

static int on_forever(struct reader *r, char *rest)
{
    (void)rest;
    r->answer->forever = true;
    return 0;
}

/* round TIME [mtp|suffix DRAFTED ACCEPTED [TIME]] */
static int on_round(struct reader *r, char *rest)
{
    struct script_round round = {.source = VS_NONE};
    long drafted = 0, accepted = 0;
    int rc = duration(r, word(&rest), &round.verify_ns);
    if (rc == 0 && *rest) {
        const char *source = word(&rest);
        round.source = strcmp(source, "mtp") == 0      ? VS_MTP
                       : strcmp(source, "suffix") == 0 ? VS_SUFFIX
                                                       : VS_NONE;
        rc = round.source != VS_NONE
                 ? number(r, "what is drafted", word(&rest), 1, VIEW_DRAFTS, &drafted)
                 : wrong(r, "drafts come from mtp or suffix, not from \"%.40s\"", source);
        rc = rc < 0 ? rc : number(r, "what is accepted", word(&rest), 0, drafted, &accepted);
        rc = rc < 0 || !*rest ? rc : duration(r, word(&rest), &round.draft_ns);
    }
    if (rc == 0 && *rest) {
        rc = wrong(r, "\"%.40s\" is too much", rest);
    }
    if (rc < 0) {
        return rc;
    }
    round.drafted = (int)drafted;
    round.accepted = (int)accepted;
    struct scriptfile_answer *a = r->answer;
    struct script_round **v = a ? &a->rounds : &r->s->rounds;
    size_t *n = a ? &a->n_rounds : &r->s->n_rounds, *cap = a ? &a->cap_rounds : &r->s->cap_rounds;
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 8;
        *v = mem_realloc(*v, *cap * sizeof **v);
    }
    (*v)[(*n)++] = round;
    return 0;
}

/* answer [/PATTERN/] */
static int on_answer(struct reader *r, char *rest)
{
    struct scriptfile *s = r->s;
    struct scriptfile_answer a = {.has_pattern = *rest != 0};
    size_t n = strlen(rest);
    if (a.has_pattern) {
        if (n < 3 || rest[0] != '/' || rest[n - 1] != '/') {
            return wrong(r, "a pattern stands between two slashes");
        }
        rest[n - 1] = 0;
        const int bad = regcomp(&a.pattern, rest + 1, REG_EXTENDED | REG_NOSUB | REG_ICASE);
        if (bad) {
            char why[128];
            regerror(bad, &a.pattern, why, sizeof why);
            return wrong(r, "\"%.60s\" is no pattern: %s", rest + 1, why);
        }
    }
    if (s->n_answers == s->cap_answers) {
        s->cap_answers = s->cap_answers ? 2 * s->cap_answers : 8;
        s->answers = mem_realloc(s->answers, s->cap_answers * sizeof *s->answers);
    }
    s->answers[s->n_answers++] = a;
    r->answer = &s->answers[s->n_answers - 1];
    return 0;
}

static int on_clock(struct reader *r, char *rest)
{
    const char *kind = word(&rest);
    if (strcmp(kind, "virtual") != 0 && strcmp(kind, "real") != 0) {
        return wrong(r, "the clock is virtual or real, not \"%.40s\"", kind);
    }
    r->s->is_virtual = kind[0] == 'v';
    if (!*rest) {
        return 0;
    }
    struct tm tm = {.tm_isdst = -1};
    const char *end = strptime(rest, "%Y-%m-%d %H:%M", &tm);
    const time_t t = end && !*end && r->s->is_virtual ? mktime(&tm) : -1;
    if (t <= 0) {
        return wrong(r, "\"%.40s\" is no beginning of a virtual clock such as 2026-01-31 14:02",
                     rest);
    }
    r->s->wall = t;
    return 0;
}

static int one_path(struct reader *r, char *rest, char **out)
{
    if (!*rest || *out) {
        return wrong(r, "one file is named, once");
    }
    *out = mem_strdup(rest);
    return 0;
}

static int on_control(struct reader *r, char *rest)
{
    return one_path(r, rest, &r->s->control);
}

static int on_report(struct reader *r, char *rest)
{
    return one_path(r, rest, &r->s->report);
}

/* load TIME [STEPS], load fails REASON */
static int on_load(struct reader *r, char *rest)
{
    long steps = 1;
    const char *first = word(&rest);
    if (strcmp(first, "fails") == 0) {
        free(r->s->load_fails);
        r->s->load_fails = mem_strdup(*rest ? rest : "the model file is damaged");
        return 0;
    }
    int rc = duration(r, first, &r->s->load_ns);
    rc = rc < 0 || !*rest ? rc : number(r, "the number of steps", rest, 1, 10000, &steps);
    r->s->load_steps = (int)steps;
    return rc;
}

static int on_prefill(struct reader *r, char *rest)
{
    long speed = 0;
    const int rc = number(r, "the prefill speed", rest, 1, 1000000000, &speed);
    r->s->prefill_ns = rc == 0 ? 1000000000 / speed : 0;
    return rc;
}

/* disk N kill|full|error */
static int on_disk(struct reader *r, char *rest)
{
    long n = 0;
    int rc = number(r, "the number of the disk call", word(&rest), 1, 1000000, &n);
    if (rc == 0 && strcmp(rest, "kill") != 0 && strcmp(rest, "full") != 0 &&
        strcmp(rest, "error") != 0) {
        rc = wrong(r, "a disk call ends in kill, full or error, not \"%.40s\"", rest);
    }
    if (rc == 0) {
        r->s->disk_at = (unsigned)n;
        r->s->disk_errno = rest[0] == 'k' ? 0 : rest[0] == 'f' ? ENOSPC : EIO;
    }
    return rc;
}

/* catalogue N kill|full|error|readonly [TIMES|on] */
static int on_catalogue(struct reader *r, char *rest)
{
    static const struct {
        const char *name;
        int code;
    } ways[] = {{"kill", 0}, {"full", ENOSPC}, {"error", EIO}, {"readonly", EROFS}};
    long n = 0, times = 1;
    int rc = number(r, "the number of the write", word(&rest), 1, 1000000, &n);
    const char *how = word(&rest);
    size_t k = 0;
    while (k < 4 && strcmp(how, ways[k].name) != 0) {
        k++;
    }
    if (rc == 0 && k == 4) {
        rc = wrong(r, "a write ends in kill, full, error or readonly, not \"%.40s\"", how);
    }
    if (rc == 0 && strcmp(rest, "on") == 0) {
        times = 0;
    } else if (rc == 0 && rest[0]) {
        rc = number(r, "how many writes fail", rest, 1, 1000000, &times);
    }
    if (rc == 0) {
        r->s->catalog_at = (unsigned)n;
        r->s->catalog_times = (unsigned)times;
        r->s->catalog_errno = ways[k].code;
    }
    return rc;
}

static const struct {
    const char *name;
    int (*fn)(struct reader *r, char *rest);
    bool of_answer; /* stands behind an answer only */
    bool alone;     /* takes nothing */
} statements[] = {
    {"answer", on_answer, false, false},   {"catalogue", on_catalogue, false, false},
    {"clock", on_clock, false, false},     {"control", on_control, false, false},
    {"disk", on_disk, false, false},       {"fail", on_fail, true, false},
    {"forever", on_forever, true, true},   {"hold", on_hold, true, false},
    {"load", on_load, false, false},       {"pause", on_pause, true, false},
    {"prefill", on_prefill, false, false}, {"repeat", on_repeat, true, false},
    {"report", on_report, false, false},   {"round", on_round, false, false},
    {"text", on_text, true, false},        {"thought", on_thought, true, false},
    {"tool", on_tool, true, false},
};

static int statement(struct reader *r, char *line)
{
    char *rest = line;
    const char *name = word(&rest);
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(name, statements[i].name) != 0) {
            continue;
        }
        if (statements[i].of_answer && !r->answer) {
            return wrong(r, "%s stands behind an answer", name);
        }
        if (statements[i].alone && *rest) {
            return wrong(r, "%s takes nothing, not \"%.40s\"", name, rest);
        }
        return statements[i].fn(r, rest);
    }
    return wrong(r, "there is no statement \"%.40s\"", name);
}

/* ---- the whole ---- */

static int finish(struct reader *r)
{
    static const struct script_round plain = {.verify_ns = 20000000};
    struct scriptfile *s = r->s;
    if (s->n_answers == 0) {
        return wrong(r, "the script has no answer");
    }
    if ((s->control != NULL) != (s->report != NULL)) {
        return wrong(r, "control and report belong together");
    }
    if (s->control && !s->is_virtual) {
        return wrong(r, "control needs a virtual clock");
    }
    if (s->n_rounds == 0) {
        s->rounds = mem_array(1, sizeof *s->rounds);
        s->rounds[s->n_rounds++] = plain;
    }
    return 0;
}

int scriptfile_parse(const char *text, size_t n, const char *name, struct scriptfile *out,
                     struct err *e)
{
    *out = (struct scriptfile){.load_steps = 1, .prefill_ns = 100000};
    struct reader r = {.p = text, .end = text + n, .name = name, .s = out, .e = e};
    struct buf line = BUF_INIT;
    int rc = 0;
    if (memchr(text, 0, n)) {
        rc = err_set(e, QE_USAGE, "%s: a script is text, without NUL bytes", name);
    }
    while (rc == 0 && next_line(&r, false, &line)) {
        if (line.len > 0 && line.data[0] != '#') {
            rc = statement(&r, line.data);
        }
    }
    rc = rc < 0 ? rc : finish(&r);
    buf_free(&line);
    if (rc < 0) {
        scriptfile_free(out);
    }
    return rc;
}

void scriptfile_free(struct scriptfile *s)
{
    for (size_t i = 0; i < s->n_answers; i++) {
        struct scriptfile_answer *a = &s->answers[i];
        for (size_t k = 0; k < a->n_parts; k++) {
            buf_free(&a->parts[k].text);
            buf_free(&a->parts[k].name);
        }
        free(a->parts);
        free(a->rounds);
        if (a->has_pattern) {
            regfree(&a->pattern);
        }
    }
    free(s->answers);
    free(s->rounds);
    free(s->control);
    free(s->report);
    free(s->load_fails);
    *s = (struct scriptfile){0};
}
