/* The public face and its threads. The caller's thread sends commands and reads
 * events; the worker does text and disk; the scheduler's thread computes. The
 * worker sleeps in poll on one eventfd that all of them write. Neither the reader
 * nor the engine is ever waited for, except by conv_close. */
#include "config.h"
#include "conv/conv.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "conv/chat.h"
#include "conv/request.h"

#define RETRY_NS 5000000000 /* between two tries to write what could not be written */

/* ---- options ---- */

struct conv_opts conv_opts_default(void)
{
    return (struct conv_opts){
        .think = -1,
        .think_budget = -1,
        .preserve = -1,
        .temp = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .top_k = -2,
        .presence = NAN,
        .frequency = NAN,
        .repetition = NAN,
        .seed = -1,
        .max_tokens = -1,
        .logprobs = -1,
        .state_budget = UINT64_MAX,
    };
}

static void own(const char **s)
{
    *s = *s ? mem_strdup(*s) : NULL;
}

static void disown(const char *s)
{
    free((void *)(uintptr_t)s);
}

static void copy_opts(struct conv *c, const struct conv_opts *o)
{
    c->opts = *o;
    own(&c->opts.model);
    own(&c->opts.backend);
    own(&c->opts.isa);
    own(&c->opts.kv);
    own(&c->opts.cuda_path);
    own(&c->opts.draft_head);
    own(&c->opts.spec);
    own(&c->opts.fallback);
    own(&c->opts.template);
    own(&c->opts.effort);
    own(&c->opts.system);
    own(&c->opts.directory);
    own(&c->opts.prefix_dir);
    settings_from(&c->settings, o);
    c->opts.stop = NULL; /* they are there */
    c->opts.n_stop = 0;
    c->opts.bias = NULL;
    c->opts.form = (struct conv_form){.kind = CF_NONE};
    c->opts.n_bias = 0;
}

static void free_opts(struct conv *c)
{
    disown(c->opts.model);
    disown(c->opts.backend);
    disown(c->opts.isa);
    disown(c->opts.kv);
    disown(c->opts.cuda_path);
    disown(c->opts.draft_head);
    disown(c->opts.spec);
    disown(c->opts.fallback);
    disown(c->opts.template);
    disown(c->opts.effort);
    disown(c->opts.system);
    disown(c->opts.directory);
    disown(c->opts.prefix_dir);
    settings_fini(&c->settings);
}

/* The number of value in the list of names that ends with NULL. */
static int pick(const char *what, const char *value, const char *const *names, int *out,
                struct err *e)
{
    struct buf list = BUF_INIT;
    for (int i = 0; names[i]; i++) {
        if (!value || strcmp(value, names[i]) == 0) {
            *out = i;
            buf_free(&list);
            return 0;
        }
        buf_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
    }
    int rc = err_set(e, QE_USAGE, "%s is \"%s\"; it must be %s", what, value, list.data);
    buf_free(&list);
    return rc;
}

static int spec_options(const struct conv_opts *o, struct spec_opts *out, struct err *e)
{
    static const char *const modes[] = {"auto", "off", "mtp", "suffix", "mtp+suffix", NULL};
    int mode = 0;
    int rc = pick("spec", o->spec, modes, &mode, e);
    if (rc == 0 && (o->draft < 0 || o->draft > VIEW_DRAFTS)) {
        rc = err_set(e, QE_USAGE, "%d drafts a round were asked for; the limit is %d", o->draft,
                     VIEW_DRAFTS);
    }
    *out = (struct spec_opts){.mode = spec_mode_of(modes[mode]), .draft = o->draft};
    return rc;
}

static int engine_options(const struct conv_opts *o, struct engine_opts *out, struct err *e)
{
    static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
    static const char *const formats[] = {"auto", "f32",  "fp16", "fp8",
                                          "k8v4", "k5v3", "k3v3", NULL};
    static const char *const paths[] = {"auto", "sm80", "sm90", NULL};
    static const char *const heads[] = {"auto", "full", "q4", NULL};
    int backend = 0, kv = 0, path = 0, head = 0;
    int rc = pick("backend", o->backend, backends, &backend, e);
    rc = rc < 0 ? rc : pick("kv", o->kv, formats, &kv, e);
    rc = rc < 0 ? rc : pick("cuda-path", o->cuda_path, paths, &path, e);
    rc = rc < 0 ? rc : pick("draft-head", o->draft_head, heads, &head, e);
    if (rc < 0) {
        return rc;
    }
    *out = (struct engine_opts){
        .backend = (enum engine_backend)backend,
        .device = o->device,
        .threads = o->threads,
        .isa = o->isa && strcmp(o->isa, "auto") != 0 ? o->isa : NULL,
        .ctx = o->ctx,
        .slots = o->slots,
        .kv = (enum engine_kv)kv,
        .fallback = o->fallback,
        .max_draft = o->max_draft,
        .verify_width = o->verify_width,
        .draft_head = (enum engine_draft_head)head,
        .fast_head = o->fast_head,
        .cuda_path = (enum engine_cuda_path)path,
        .graphs = o->graphs,
        .verify = o->verify_weights,
    };
    if (o->script) {
        out->backend = EB_SCRIPT;
        out->script = o->script;
    }
    return 0;
}

/* ---- the worker ---- */

static void copy_name(char *dst, size_t n, const char *src)
{
    strncpy(dst, src ? src : "", n - 1);
    dst[n - 1] = 0;
}

static void post_load(struct conv *c, enum conv_event_kind kind, double progress,
                      const struct err *e)
{
    struct post_item it = {.ev = {.kind = kind, .progress = progress, .code = e ? e->code : 0}};
    buf_adds(&it.ev.text, e ? e->msg : "");
    post_put(c->screen.post, &it);
}

void conv_notice(struct conv *c, struct chat *t, const char *text)
{
    struct post_item it = {.ev = {.kind = CE_NOTICE, .chat = t}};
    buf_adds(&it.ev.text, text);
    post_put(t ? t->reader->post : c->screen.post, &it);
}

void conv_record_news(struct conv *c, struct chat *t)
{
    struct buf *b = &c->record.notice;
    for (char *line = b->data, *end; b->len > 0 && *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        conv_notice(c, t, line);
    }
    buf_truncate(b, 0);
}

static void on_ready(struct conv *c)
{
    const struct engine_info *info = sched_info(c->sched);
    struct view_model v = {
        .ctx = info->ctx,
        .gpu = strcmp(info->backend, "cuda") == 0 ? c->opts.device : -1,
        .ready = true,
    };
    copy_name(v.name, sizeof v.name, info->model_name);
    copy_name(v.tier, sizeof v.tier, info->tier);
    copy_name(v.backend, sizeof v.backend, info->backend);
    copy_name(v.device, sizeof v.device, info->device);
    copy_name(v.fallback, sizeof v.fallback, info->fallback);
    sched_compat(c->sched, c->compat, c->label, sizeof c->label);
    copy_name(v.digest, sizeof v.digest, info->digest);
    hex_of(c->compat, sizeof c->compat, v.compat);
    snap_put(&c->model, &v, sizeof v);
    post_load(c, CE_READY, 1, NULL);
}

static void watch_loading(struct conv *c)
{
    if (c->state != SCHED_LOADING) {
        return;
    }
    struct err e = ERR_INIT;
    double progress = 0;
    enum sched_state st = sched_poll(c->sched, &progress, &e);
    if (st == SCHED_READY && prompt_open(&c->prompt, c->sched, c->opts.template, &e) < 0) {
        st = SCHED_FAILED;
    }
    c->state = st;
    switch (st) {
    case SCHED_LOADING:
        if (progress != c->progress) {
            post_load(c, CE_LOADING, progress, NULL);
        }
        c->progress = progress;
        break;
    case SCHED_READY:
        on_ready(c);
        break;
    case SCHED_FAILED:
        post_load(c, CE_FAILED, progress, &e);
        break;
    }
}

static void add_chat(struct conv *c, struct chat *t)
{
    if (c->n_chats == c->cap_chats) {
        c->cap_chats = c->cap_chats ? 2 * c->cap_chats : 4;
        c->chats = mem_realloc(c->chats, c->cap_chats * sizeof(struct chat *));
    }
    c->chats[c->n_chats++] = t;
    t->messages = json_array();
    drafting_init(t);
    t->live = t->reader == &c->screen ? live_create() : NULL;
}

static void add_input(struct chat *t, struct input *in)
{
    struct input **end = &t->inputs;
    while (*end) {
        end = &(*end)->next;
    }
    *end = in;
    t->waiting.changed = true;
}

static void drop_reader(struct conv *c, struct conv_reader *r)
{
    struct conv_reader **p = &c->readers;
    while (*p != r) {
        p = &(*p)->next;
    }
    *p = r->next;
    sem_post(&r->dropped);
}

static void obey(struct conv *c, struct cmd *cmd)
{
    struct chat *t = cmd->chat;
    switch (cmd->kind) {
    case CMD_CREATE:
        add_chat(c, t);
        break;
    case CMD_INPUT:
        add_input(t, cmd->input);
        break;
    case CMD_STOP:
        chat_work_stop(t, cmd->serial);
        break;
    case CMD_CLEAR:
        chat_work_clear(t);
        break;
    case CMD_REWIND:
        chat_work_rewind(t, cmd->keep);
        chat_work_recount(t, &cmd->settings);
        break;
    case CMD_RESUME:
        chat_work_resume(t, cmd->resume);
        chat_work_recount(t, &cmd->settings);
        resume_free(cmd->resume);
        break;
    case CMD_SAVE:
        t->saving.asked = true;
        break;
    case CMD_FLUSH:
        chat_work_flush(t);
        break;
    case CMD_DRAFT:
        drafting_set(t, &cmd->draft);
        break;
    case CMD_BUDGET:
        if (c->keeper) {
            keeper_set_budget(c->keeper, cmd->budget);
        }
        break;
    case CMD_QUEUE:
        waiting_set(t, &cmd->queue);
        break;
    case CMD_FREE:
        chat_work_close(t);
        break;
    case CMD_READER:
        cmd->reader->next = c->readers;
        c->readers = cmd->reader;
        break;
    case CMD_READER_GONE:
        drop_reader(c, cmd->reader);
        break;
    }
    settings_fini(&cmd->settings);
    free(cmd);
}

static bool obey_all(struct conv *c)
{
    pthread_mutex_lock(&c->lock);
    struct cmd *cmd = c->cmds;
    c->cmds = NULL;
    c->cmds_end = &c->cmds;
    bool quit = c->quit;
    pthread_mutex_unlock(&c->lock);
    while (cmd) {
        struct cmd *next = cmd->next;
        obey(c, cmd);
        cmd = next;
    }
    return !quit;
}

/* Works on every chat; lets go of those that are closed and done. */
static void work_all(struct conv *c)
{
    for (size_t i = 0; i < c->n_chats;) {
        struct chat *t = c->chats[i];
        chat_work(t);
        if (!t->closing || chat_working(t) || saving_busy(t)) {
            i++;
            continue;
        }
        chat_work_free(t);
        c->chats[i] = c->chats[--c->n_chats];
        struct post_item it = {.ev = {.kind = CE_END, .chat = t}, .gone = true};
        post_put(t->reader->post, &it);
    }
}

/* Takes what the keeper has done. */
static void hear_keeper(struct conv *c)
{
    for (struct keep_task *t = c->keeper ? keeper_take(c->keeper) : NULL; t;
         t = keeper_take(c->keeper)) {
        saving_done(t);
    }
}

/* Milliseconds until a state is to be saved, or the disk to be tried again; -1: never. */
static int patience(const struct conv *c)
{
    int64_t first = INT64_MAX;
    const int64_t now = clock_now(clock_main());
    for (size_t i = 0; i < c->n_chats; i++) {
        const struct chat *t = c->chats[i];
        if (t->saving.due && c->state == SCHED_READY && !chat_working(t)) {
            first = t->saving.due < first ? t->saving.due : first;
        }
        if (t->drafting.retry_at) {
            first = t->drafting.retry_at < first ? t->drafting.retry_at : first;
        }
        if (t->record.rows && c->record.failing) {
            first = c->retry_at < first ? c->retry_at : first;
        }
    }
    if (first == INT64_MAX) {
        return -1;
    }
    const int64_t left = (first - now + 999999) / 1000000;
    return left < 0 ? 0 : left > 600000 ? 600000 : (int)left;
}

static void retry_records(struct conv *c)
{
    const int64_t now = clock_now(clock_main());
    if (!c->record.failing || now < c->retry_at) {
        return;
    }
    c->retry_at = now + RETRY_NS;
    for (size_t i = 0; i < c->n_chats; i++) {
        if (!chat_working(c->chats[i])) {
            (void)record_flush(&c->record, &c->chats[i]->record);
            conv_record_news(c, c->chats[i]);
        }
    }
}

static void sleep_on(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t n = 0;
    while (clock_poll(&p, 1, ms < 0 ? -1 : (int64_t)ms * 1000000, true) < 0 && errno == EINTR) {
    }
    ssize_t rc = read(fd, &n, sizeof n);
    (void)rc;
}

/* From when on there is a store that can be written. */
static void have_keeper(struct conv *c)
{
    if (!c->keeper && c->record.store && c->opts.save_state) {
        c->keeper = keeper_create(c->dir, atomic_load(&c->budget), c->wake_fd);
    }
}

static void open_store(struct conv *c)
{
    record_open(&c->record, c->opts.save ? c->dir : NULL, c->opts.state_budget, c->opts.directory,
                c->locks);
    have_keeper(c);
    conv_record_news(c, NULL);
}

static void flush_readers(struct conv *c)
{
    post_flush(c->screen.post);
    for (struct conv_reader *r = c->readers; r; r = r->next) {
        post_flush(r->post);
    }
}

static void *worker_thread(void *arg)
{
    struct conv *c = arg;
    open_store(c);
    while (obey_all(c)) {
        watch_loading(c);
        hear_keeper(c);
        retry_records(c);
        work_all(c);
        have_keeper(c);
        flush_readers(c);
        sleep_on(c->wake_fd, patience(c));
    }
    /* Every turn ends and is stored; then the chats go. */
    for (size_t i = 0; i < c->n_chats; i++) {
        chat_work_close(c->chats[i]);
    }
    hear_keeper(c); /* the wake-up that brought the end may have been its too */
    work_all(c);
    while (c->n_chats > 0) {
        sleep_on(c->wake_fd, -1);
        hear_keeper(c);
        work_all(c);
    }
    keeper_close(c->keeper);
    record_close(&c->record);
    clock_leave();
    return NULL;
}

/* ---- the caller's side ---- */

static void wake_worker(struct conv *c)
{
    uint64_t one = 1;
    ssize_t rc = write(c->wake_fd, &one, sizeof one);
    (void)rc;
}

void conv_command(struct conv *c, struct cmd *cmd)
{
    pthread_mutex_lock(&c->lock);
    *c->cmds_end = cmd;
    c->cmds_end = &cmd->next;
    pthread_mutex_unlock(&c->lock);
    wake_worker(c);
}

static void command(struct conv *c, enum cmd_kind kind, struct chat *t, struct input *in)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = kind;
    cmd->chat = t;
    cmd->input = in;
    cmd->serial = t->ended + 1;
    conv_command(c, cmd);
}

void conv_command_resume(struct chat *t, struct resume *r)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = CMD_RESUME;
    cmd->chat = t;
    cmd->resume = r;
    settings_copy(&cmd->settings, &t->settings);
    conv_command(t->conv, cmd);
}

int conv_open(const struct conv_opts *o, struct conv **out, struct err *e)
{
    if (!o->model) {
        return err_set(e, QE_USAGE, "no model is named");
    }
    struct conv *c = mem_zalloc(sizeof *c);
    copy_opts(c, o);
    struct engine_opts eo;
    struct spec_opts spec;
    int rc = engine_options(&c->opts, &eo, e);
    rc = rc < 0 ? rc : spec_options(&c->opts, &spec, e);
    if (rc < 0) {
        free_opts(c);
        free(c);
        return rc;
    }
    c->dir = io_xdg_state();
    c->locks = lock_set_create(c->dir);
    atomic_init(&c->budget, o->state_budget);
    c->forms = forms_create();
    c->landed = landed_create(o->tool_misses);
    c->cmds_end = &c->cmds;
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->screen.conv = c;
    c->screen.post = post_create(c->wake_fd);
    pthread_mutex_init(&c->lock, NULL);
    if (c->wake_fd < 0 || post_fd(c->screen.post) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot make an event descriptor");
        goto fail;
    }
    if (o->prefix_dir && o->prefix_memory >= 0) {
        const struct disk_opts disk = {.dir = o->prefix_dir,
                                       .limit = o->prefix_disk > 0 ? (uint64_t)o->prefix_disk
                                                                   : (uint64_t)16 << 30,
                                       .least = o->prefix_least > 0 ? o->prefix_least : 1024};
        c->disk = disk_open(&disk);
    }
    struct sched_opts so = {
        .path = c->opts.model,
        .verify = o->verify_weights,
        .engine = eo,
        .spec = spec,
        .keep = {.off = o->prefix_memory<0, .bytes = o->prefix_memory> 0
                            ? (uint64_t)o->prefix_memory
                            : 0,
                 .every = o->prefix_every,
                 .generated = o->cache_generated,
                 .tier = c->disk ? disk_tier(c->disk) : NULL},
        .queue = o->queue,
        .wake_fd = c->wake_fd,
    };
    rc = sched_open(&so, &c->sched, e);
    if (rc < 0) {
        goto fail;
    }
    disk_attach(c->disk, c->sched);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    clock_enter();
    int err = pthread_create(&c->worker, NULL, worker_thread, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err != 0) {
        clock_leave();
        rc = err_sys(e, QE_NOMEM, err, "cannot start the conversation thread");
        goto fail;
    }
    *out = c;
    return 0;
fail:
    disk_attach(c->disk, NULL);
    sched_close(c->sched);
    disk_close(c->disk);
    pthread_mutex_destroy(&c->lock);
    post_free(c->screen.post);
    if (c->wake_fd >= 0) {
        close(c->wake_fd);
    }
    free_opts(c);
    lock_set_free(c->locks);
    forms_free(c->forms);
    landed_free(c->landed);
    free(c->dir);
    free(c);
    return rc;
}

static void chat_destroy(struct chat *t)
{
    *t->prev = t->next;
    if (t->next) {
        t->next->prev = t->prev;
    }
    settings_fini(&t->settings);
    chat_result_free(t->last);
    buf_free(&t->draft);
    waiting_list_free(&t->queue);
    free(t);
}

bool conv_close(struct conv *c)
{
    return conv_end(c, NULL) == 0;
}

int conv_end(struct conv *c, struct err *e)
{
    if (!c) {
        return 0;
    }
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_mutex_unlock(&c->lock);
    wake_worker(c);
    clock_let_go();
    clock_leave();
    pthread_join(c->worker, NULL);
    clock_enter();
    /* The worker said goodbye to every chat; the news may be in backlog and ring. */
    struct post_item it;
    do {
        post_flush(c->screen.post);
        while (post_take(c->screen.post, &it)) {
            if (it.gone) {
                chat_destroy(it.ev.chat);
            }
            conv_event_fini(&it.ev);
            chat_result_free(it.result);
        }
    } while (post_waiting(c->screen.post));
    post_free(c->screen.post);
    disk_attach(c->disk, NULL);
    sched_close(c->sched);
    disk_close(c->disk);
    forms_free(c->forms);
    landed_free(c->landed);
    prompt_close(&c->prompt);
    pthread_mutex_destroy(&c->lock);
    close(c->wake_fd);
    free(c->chats);
    free_opts(c);
    lock_set_free(c->locks);
    free(c->dir);
    const struct err lost = c->lost;
    free(c);
    return lost.code < 0 ? err_set(e, lost.code, "%s", lost.msg) : 0;
}

int conv_fd(const struct conv *c)
{
    return post_fd(c->screen.post);
}

bool conv_reader_next(struct conv_reader *r, struct conv_event *ev)
{
    struct post_item it;
    while (post_take(r->post, &it)) {
        struct chat *t = it.ev.chat;
        if (it.gone) {
            chat_destroy(t);
        } else if (!t || !t->freed) {
            if (it.ev.kind == CE_FAILED) {
                r->conv->failed = true;
            }
            if (it.ev.kind == CE_END) {
                t->ended++;
                chat_result_free(t->last);
                t->last = it.result;
            }
            *ev = it.ev;
            return true;
        }
        conv_event_fini(&it.ev);
        chat_result_free(it.result);
    }
    return false;
}

bool conv_next(struct conv *c, struct conv_event *ev)
{
    return conv_reader_next(&c->screen, ev);
}

bool conv_wait(struct conv *c, struct conv_event *ev, int timeout_ms)
{
    int64_t end = clock_now(clock_main()) + (int64_t)timeout_ms * 1000000;
    while (!conv_next(c, ev)) {
        int left = timeout_ms;
        if (timeout_ms >= 0) {
            int64_t ns = end - clock_now(clock_main());
            if (ns <= 0) {
                return false;
            }
            left = (int)((ns + 999999) / 1000000);
        }
        struct pollfd p = {.fd = post_fd(c->screen.post), .events = POLLIN};
        if (clock_poll(&p, 1, left < 0 ? -1 : (int64_t)left * 1000000, true) < 0) {
            return false; /* a signal: the caller looks at its flags */
        }
    }
    return true;
}

void conv_view_tools(const struct conv *c, struct view_tools *out)
{
    landed_view(c->landed, out);
}

void conv_view_load(const struct conv *c, struct view_load *out)
{
    const struct sched_counters s = sched_counters(c->sched);
    *out = (struct view_load){.spec = s.spec,
                              .prompt_tokens = s.prompt_tokens,
                              .cached_tokens = s.cached_tokens,
                              .prefilled = s.prefilled,
                              .prefill_s = s.prefill_s,
                              .restored = s.restored,
                              .failed = s.failed,
                              .preemptions = s.preemptions,
                              .swapped_bytes = s.swapped_bytes,
                              .gave_way = s.gave_way,
                              .waiting = s.waiting,
                              .running = s.running,
                              .gave_way_bytes = s.gave_way_bytes,
                              .repeated = s.repeated};
}

void conv_view_kv(const struct conv *c, struct view_kv *out)
{
    sched_kv(c->sched, out);
}

void conv_view_model(const struct conv *c, struct view_model *out)
{
    snap_get(&c->model, out, sizeof *out);
}

struct chat *conv_reader_chat(struct conv_reader *r)
{
    struct chat *t = mem_zalloc(sizeof *t);
    t->conv = r->conv;
    t->reader = r;
    t->next = r->first;
    t->prev = &r->first;
    if (t->next) {
        t->next->prev = &t->next;
    }
    r->first = t;
    settings_copy(&t->settings, &r->conv->settings);
    command(r->conv, CMD_CREATE, t, NULL);
    return t;
}

struct chat *chat_create(struct conv *c)
{
    return conv_reader_chat(&c->screen);
}

void chat_free(struct chat *t)
{
    if (t && !t->freed) {
        t->freed = true;
        command(t->conv, CMD_FREE, t, NULL);
    }
}

void chat_view(const struct chat *t, struct view_chat *out)
{
    snap_get(&t->view, out, sizeof *out);
}

static struct input *input_create(const struct chat *t, enum input_kind kind, const char *text,
                                  size_t n)
{
    struct input *in = mem_zalloc(sizeof *in);
    in->kind = kind;
    in->asked = clock_now(clock_main());
    settings_copy(&in->settings, &t->settings);
    buf_add(&in->text, text ? text : "", n);
    return in;
}

int chat_ask(struct chat *t, struct input *in, struct err *e)
{
    if (t->conv->failed) {
        input_free(in);
        return err_set(e, QE_INTERNAL, "the model could not be loaded");
    }
    in->serial = ++t->asked;
    command(t->conv, CMD_INPUT, t, in);
    return 0;
}

static int too_long(size_t n, struct err *e)
{
    return err_set(e, QE_NOMEM, "the text has %zu bytes; at most %d can be sent at once", n,
                   CHAT_TEXT_MAX);
}

int chat_send(struct chat *t, const char *text, size_t n, struct err *e)
{
    struct view_chat v;
    chat_view(t, &v);
    if (v.stuck) {
        chat_flush(t); /* the next one may be taken */
        return err_set(e, QE_IO,
                       "what was said before cannot be written to the disk; it is kept in memory, "
                       "and nothing more is taken until it can");
    }
    return n > CHAT_TEXT_MAX ? too_long(n, e) : chat_ask(t, input_create(t, IN_SEND, text, n), e);
}

int chat_aside(struct chat *t, const char *text, size_t n, struct err *e)
{
    return n > CHAT_TEXT_MAX ? too_long(n, e) : chat_ask(t, input_create(t, IN_ASIDE, text, n), e);
}

int chat_messages(struct chat *t, const char *messages, size_t n, const char *tools, size_t n_tools,
                  struct err *e)
{
    if (n > CHAT_TEXT_MAX || n_tools > CHAT_TEXT_MAX) {
        return too_long(n > n_tools ? n : n_tools, e);
    }
    struct input *in = input_create(t, IN_MESSAGES, messages, n);
    if (tools) {
        buf_add(&in->tools, tools, n_tools);
    }
    return chat_ask(t, in, e);
}

int chat_complete(struct chat *t, const char *text, size_t n, struct err *e)
{
    return n > CHAT_TEXT_MAX ? too_long(n, e) : chat_ask(t, input_create(t, IN_TEXT, text, n), e);
}

int chat_complete_ids(struct chat *t, const int32_t *ids, size_t n, struct err *e)
{
    if (n > CHAT_TEXT_MAX / sizeof *ids) {
        return too_long(n * sizeof *ids, e);
    }
    struct input *in = input_create(t, IN_IDS, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        tok_ids_add(&in->ids, ids[i]);
    }
    return chat_ask(t, in, e);
}

void chat_stop(struct chat *t)
{
    if (chat_busy(t)) {
        command(t->conv, CMD_STOP, t, NULL);
    }
}

void chat_clear(struct chat *t)
{
    command(t->conv, CMD_CLEAR, t, NULL);
}

void chat_rewind(struct chat *t, size_t keep)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = CMD_REWIND;
    cmd->chat = t;
    cmd->keep = keep;
    settings_copy(&cmd->settings, &t->settings);
    conv_command(t->conv, cmd);
}

void chat_draft(struct chat *t, const char *p, size_t n)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = CMD_DRAFT;
    cmd->chat = t;
    buf_add(&cmd->draft, p, n);
    conv_command(t->conv, cmd);
}

const struct buf *chat_draft_of(const struct chat *t)
{
    return &t->draft;
}

void chat_queue(struct chat *t, const struct conv_queued *q, size_t n)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = CMD_QUEUE;
    cmd->chat = t;
    for (size_t i = 0; i < n; i++) {
        waiting_list_add(&cmd->queue, q[i].shown, q[i].shown_n, q[i].message, q[i].message_n);
    }
    conv_command(t->conv, cmd);
}

bool chat_queued(const struct chat *t, size_t i, struct conv_queued *out)
{
    if (i >= t->queue.n) {
        return false;
    }
    const struct waiting_text *w = &t->queue.v[i];
    *out = (struct conv_queued){w->shown.data, w->message.data, w->shown.len, w->message.len};
    return true;
}

void chat_save(struct chat *t)
{
    command(t->conv, CMD_SAVE, t, NULL);
}

void chat_flush(struct chat *t)
{
    command(t->conv, CMD_FLUSH, t, NULL);
}

bool chat_busy(const struct chat *t)
{
    return !t->conv->failed && t->asked > t->ended;
}

int chat_set(struct chat *t, const char *key, const char *value, struct err *e)
{
    const int rc = settings_set(&t->settings, key, value, e);
    t->system_stored = t->system_stored && (rc < 0 || strcmp(key, "system") != 0);
    return rc;
}

bool chat_get(const struct chat *t, const char *key, char out[64])
{
    return settings_get(&t->settings, key, out);
}

const struct chat_result *chat_last(const struct chat *t)
{
    return t->last;
}
