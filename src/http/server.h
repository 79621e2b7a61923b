#ifndef QUASAR_HTTP_SERVER_H
#define QUASAR_HTTP_SERVER_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/api.h"
#include "http/bind.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/work.h"

/* The insides of the listener, shared by listen.c (sockets), guard.c (who may ask, and how long
 * that may take), take.c (bodies become prompts), server.c (the loop that reads what the model
 * says), answer.c (one answer) and info.c (everything that needs no answer). */

#define UNSENT_MOST 262144 /* bytes that wait for a slow reader before text is held back */
#define PING_NS     5000000000LL
#define WORK_MOST   512 /* bodies that wait to become prompts */
#define TRACE_SIZE  72
#define GOING_DOWN  "the server is going down"

/* A path and what it takes. */
struct route {
    const char *path;      /* that ends with a slash: all below it */
    bool post;             /* else GET and HEAD */
    const struct api *api; /* NULL: it is answered without the model */
    bool open;             /* needs no key */
};

/* A connection, for as long as it lives; times are of the program's clock. */
struct peer {
    struct peer *next, **prev; /* under peers_lock */
    int fd;
    atomic_int_fast64_t deadline; /* for the request that is coming in; INT64_MAX: it is there */
    size_t target_n; /* bytes of the request's target before a zero byte; the sockets' thread */
};

/* One request on its way in, and its answer. The sockets' thread owns it; while its connection is
 * suspended before there is an answer, the thread that makes the prompt does. */
struct exchange {
    struct http *h;
    struct MHD_Connection *conn;
    struct peer *peer;
    const struct route *route;           /* NULL: there is no such path */
    const char *path, *method, *version; /* the connection's */
    bool cut_path;                       /* there was a zero byte in what was asked for */
    struct buf body;
    int key;      /* of the server's, that it came with; -1: none */
    int limit_ms; /* it must be over by then, since it began; 0: it takes its time */
    int refused;  /* status of what is said once the body has come, and why */
    const char *why;
    bool closes;   /* the connection ends with it */
    bool ready;    /* status and out are what is answered */
    int64_t begun; /* when */
    int status;
    struct buf out;
    char client[32];
    char trace[TRACE_SIZE]; /* the id that came with it, if it is plain; else empty */
    struct answer *answer;
};

/* One choice of an answer. The loop's thread. */
struct choice {
    struct chat *chat; /* NULL: over, or not begun */
    struct choice_out out;
    struct buf thought, text; /* not turned into events yet */
    int prefills;             /* seen; 1: accepted, 2: it is known what is cached */
    int64_t heard;            /* when something of it came last; 0: nothing did */
    int tokens;               /* drawn by then */
};

struct answer {
    struct http *h;
    struct ask *ask;                             /* constant once made */
    struct conv_prepared *prepared[API_CHOICES]; /* of each prompt */
    struct MHD_Connection *conn;
    int fd;  /* of the connection */
    int key; /* as in exchange */
    char trace[TRACE_SIZE];

    /* the loop's thread */
    struct choice choice[API_CHOICES];
    int n_begun, n_ended;
    int64_t asked, last; /* when; when something last went out */
    int64_t shown;       /* when the table last got figures */
    bool cut;            /* it was told to end */
    bool told;           /* the log and the table know how it ended */
    struct view_request view;

    /* under the server's lock */
    bool submitted; /* the loop has it, or is to get it */
    bool gone;      /* the connection is over */
    bool cancelled; /* somebody at the screen ended it */
    bool suspended;
    bool headed; /* status and kind of body are known */
    bool done;   /* nothing follows in out */
    bool broken; /* what has gone out is not whole: the connection must end */
    bool held;   /* text waits for room in out */
    int status;
    struct buf out;
    size_t sent;

    struct answer *next;
};

/* What is counted of a key. */
struct key_count {
    char name[40];
    atomic_int live; /* its answers, as of the server */
    atomic_uint_fast64_t requests, refused, prompt, output, preemptions;
};

struct http {
    struct http_opts opts;
    struct conv *conv;
    struct conv_reader *reader;
    struct conv_request defaults;
    struct MHD_Daemon *daemon;
    struct bound bound;
    struct work *work;
    _Atomic(struct MHD_Response *) models; /* ready made; NULL: not asked for yet */
    pthread_t loop;
    int wake_fd, drained_fd;
    atomic_bool draining, cutting, paused, quit;
    atomic_int live; /* answers, and bodies that are to become some */
    atomic_uint_fast64_t serial;
    atomic_bool checking; /* the weights */
    pthread_mutex_t lock; /* the list, and what answers have under it */
    struct answer *answers;
    pthread_mutex_t peers_lock;
    struct peer *peers;
    struct metrics *metrics;
    struct key_count *keys; /* for each of opts */
};

/* ---- answer.c ---- */

/* Takes ask. Its connection is suspended. */
struct answer *answer_create(struct http *h, struct ask *ask, const struct exchange *x);
/* The loop begins it. */
void answer_begin(struct answer *a);
/* An event of choice i. */
void answer_event(struct answer *a, int i, const struct conv_event *ev);
/* Turns held text into events where there is room, and pings a silent stream. */
void answer_tend(struct answer *a, int64_t now);
/* The server ends: the answer does too, as far as it has come. */
void answer_cut(struct answer *a);
/* The connection is gone: stops what still runs. */
void answer_drop(struct answer *a);
bool answer_over(const struct answer *a);
void answer_free(struct answer *a);

/* ---- server.c ---- */

int server_start(struct http *h, struct err *e);
/* Cuts all answers and ends the loop. */
void server_stop(struct http *h);
void server_wake(const struct http *h);
/* Room for one more answer, of a key, until server_release or the end of the answer that was
 * submitted; NULL, or why there is none. */
const char *server_reserve(struct http *h, int key);
void server_release(struct http *h, int key);
/* Gives an answer, for which there is room, to the loop. */
void server_submit(struct answer *a);

/* ---- listen.c ---- */

int listen_start(struct http *h, struct err *e);
void listen_stop(struct http *h);
/* With the lock held: lets the connection go on. */
void listen_resume(struct answer *a);
/* Whether the message is to be in the Anthropic API's shape. */
bool listen_anthropic(struct MHD_Connection *conn, const char *path);

/* ---- guard.c ---- */

/* Who asks, by what the agent says of itself. */
void guard_client(const char *agent, char out[32]);
/* The first look at a request, before its body: 0, or the status of a refusal, and why. */
int guard_look(struct exchange *x);
/* The origin of a page that may be told the answer; NULL: none. */
const char *guard_origin(const struct http *h, struct MHD_Connection *conn);
/* A connection begins; it ends. */
struct peer *guard_enter(struct http *h, int fd);
void guard_leave(struct http *h, struct peer *p);
/* How long until its request is there, from now. */
void guard_expect(struct peer *p, int64_t ns);
/* Cuts connections whose requests take too long. */
void guard_sweep(struct http *h, int64_t now);
bool guard_empty(struct http *h);

/* ---- take.c ---- */

/* The work of a body (struct exchange); its connection goes on when there is an answer. */
void take_task(void *ctx, void *exchange);
/* Has x answered with an error in its API's shape. */
void take_refuse(struct exchange *x, int status, const char *field, const char *why);

/* ---- info.c ---- */

/* What needs no answer of the model: the body of a GET, and its kind. */
void info_get(struct exchange *x, const char **type);
/* Those that are posted, on a thread of the work; body is taken. */
void info_post(struct exchange *x, json_t *body);
/* The list of models. */
void info_models(const struct http *h, struct buf *out);
/* Reads the weights again: what /health?verify=1 says. */
void info_verify(struct exchange *x);

#endif
