#ifndef QUASAR_HTTP_SERVER_H
#define QUASAR_HTTP_SERVER_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/api.h"
#include "http/http.h"

/* The insides of the listener, shared by listen.c (sockets), server.c (the loop that reads what
 * the model says), answer.c (one answer) and info.c (everything that needs no answer). */

#define UNSENT_MOST 262144 /* bytes that wait for a slow reader before text is held back */
#define PING_NS     5000000000LL

/* One choice of an answer. The loop's thread. */
struct choice {
    struct chat *chat; /* NULL: over, or not begun */
    struct choice_out out;
    struct buf thought, text; /* not turned into events yet */
    int prefills;             /* seen; 1: accepted, 2: it is known what is cached */
};

struct answer {
    struct http *h;
    struct ask *ask; /* constant once made */
    struct MHD_Connection *conn;
    int fd; /* of the connection */

    /* the loop's thread */
    struct choice choice[API_CHOICES];
    int n_begun, n_ended;
    int64_t asked, last; /* when; when something last went out */
    int64_t shown;       /* when the table last got figures */
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

struct http {
    struct http_opts opts;
    struct conv *conv;
    struct conv_reader *reader;
    struct conv_request defaults;
    struct MHD_Daemon *daemon;
    char address[80];
    pthread_t loop;
    int wake_fd, drained_fd;
    atomic_bool draining, paused, quit;
    atomic_int live;
    atomic_uint_fast64_t serial;
    pthread_mutex_t lock; /* the list, and what answers have under it */
    struct answer *answers;
};

/* ---- answer.c ---- */

/* Takes ask. */
struct answer *answer_create(struct http *h, struct ask *ask, struct MHD_Connection *conn);
/* Who asks, by what it says of itself. */
void answer_client(struct answer *a, const char *agent);
/* The loop begins it. */
void answer_begin(struct answer *a);
/* An event of choice i. */
void answer_event(struct answer *a, int i, const struct conv_event *ev);
/* Turns held text into events where there is room, and pings a silent stream. */
void answer_tend(struct answer *a, int64_t now);
/* The connection is gone: stops what still runs. */
void answer_drop(struct answer *a);
bool answer_over(const struct answer *a);
void answer_free(struct answer *a);

/* ---- server.c ---- */

int server_start(struct http *h, struct err *e);
/* Cuts all answers and ends the loop. */
void server_stop(struct http *h);
void server_wake(const struct http *h);
/* Gives the answer to the loop. False: there are too many. */
bool server_submit(struct answer *a);

/* ---- listen.c ---- */

int listen_start(struct http *h, struct err *e);
void listen_stop(struct http *h);
/* With the lock held: lets the connection go on. */
void listen_resume(struct answer *a);

/* ---- info.c ---- */

/* Answers what needs no answer of the model, or only its tokens; false: there is no such path
 * (404), or *status says that the method is wrong (405). body: of a POST. */
bool info_answer(struct http *h, const char *method, const char *path, bool anthropic,
                 const struct buf *body, int *status, const char **type, struct buf *out);

#endif
