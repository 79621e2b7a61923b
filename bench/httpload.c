/* Load on an HTTP server, to measure what a request costs there: keep-alive connections that ask
 * for one path over and over, each as soon as the answer before is there. Prints answers per
 * second and how many were not 200.
 *
 * usage: httpload ADDRESS PORT PATH CONNECTIONS SECONDS [BODY-FILE] */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MAX 65536

struct link {
    int fd;
    size_t got;
    char answer[ANSWER_MAX];
};

struct request {
    char *text;
    size_t n;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
    fprintf(stderr, "httpload: %s: %s\n", what, strerror(errno));
    return 1;
}

/* Bytes of the whole answer at p; 0: not all of it is there yet. */
static size_t whole(const char *p, size_t n)
{
    const char *end = memmem(p, n, "\r\n\r\n", 4);
    if (!end) {
        return 0;
    }
    size_t length = 0;
    for (const char *line = p; line < end; line++) {
        if (strncasecmp(line, "Content-Length:", 15) == 0) {
            length = strtoul(line + 15, NULL, 10);
        }
        line = memchr(line, '\n', (size_t)(end - line));
        if (!line) {
            break;
        }
    }
    const size_t all = (size_t)(end + 4 - p) + length;
    return n >= all ? all : 0;
}

static bool ask(const struct link *l, const struct request *r)
{
    return send(l->fd, r->text, r->n, MSG_NOSIGNAL) == (ssize_t)r->n;
}

static int make_request(int argc, char **argv, struct request *r)
{
    char head[1024];
    char *body = NULL;
    size_t n = 0;
    if (argc > 6) {
        FILE *f = fopen(argv[6], "rb");
        if (!f) {
            return fail(argv[6]);
        }
        body = malloc(1 << 24);
        n = body ? fread(body, 1, 1 << 24, f) : 0;
        fclose(f);
    }
    const int k = snprintf(head, sizeof head,
                           "%s %.200s HTTP/1.1\r\nHost: %.60s\r\nContent-Length: %zu\r\n\r\n",
                           argc > 6 ? "POST" : "GET", argv[3], argv[1], n);
    r->n = (size_t)k + n;
    r->text = malloc(r->n + 1);
    if (!r->text) {
        free(body);
        return fail("memory");
    }
    memcpy(r->text, head, (size_t)k);
    if (n > 0) {
        memcpy(r->text + k, body, n);
    }
    free(body);
    return 0;
}

static int open_link(struct link *l, const struct sockaddr_in *at)
{
    const int one = 1;
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (l->fd < 0 || connect(l->fd, (const struct sockaddr *)at, sizeof *at) < 0) {
        return fail("connect");
    }
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return 0;
}

int main(int argc, char **argv)
{
    struct request r = {NULL, 0};
    struct sockaddr_in at = {.sin_family = AF_INET};
    if (argc < 6 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
        fprintf(stderr, "usage: httpload ADDRESS PORT PATH CONNECTIONS SECONDS [BODY-FILE]\n");
        return 2;
    }
    at.sin_port = htons((uint16_t)atoi(argv[2]));
    const int n = atoi(argv[4]);
    const double seconds = atof(argv[5]);
    if (n < 1 || n > 4096 || make_request(argc, argv, &r) != 0) {
        return 2;
    }
    struct link *links = calloc((size_t)n, sizeof *links);
    const int ep = epoll_create1(0);
    int rc = links && ep >= 0 ? 0 : fail("memory");
    for (int i = 0; i < n && rc == 0; i++) {
        rc = open_link(&links[i], &at);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &links[i]};
        if (rc == 0 &&
            (epoll_ctl(ep, EPOLL_CTL_ADD, links[i].fd, &ev) < 0 || !ask(&links[i], &r))) {
            rc = fail("send");
        }
    }
    long answers = 0, wrong = 0;
    const double begin = now();
    while (rc == 0 && now() - begin < seconds) {
        struct epoll_event evs[64];
        const int k = epoll_wait(ep, evs, 64, 100);
        for (int i = 0; i < k && rc == 0; i++) {
            struct link *l = evs[i].data.ptr;
            const ssize_t got = recv(l->fd, l->answer + l->got, ANSWER_MAX - l->got, 0);
            if (got <= 0) {
                rc = fail("the server closed a connection");
                break;
            }
            l->got += (size_t)got;
            if (whole(l->answer, l->got) > 0) {
                answers++;
                wrong += strncmp(l->answer, "HTTP/1.1 200", 12) != 0;
                l->got = 0;
                rc = ask(l, &r) ? 0 : fail("send");
            }
        }
    }
    printf("%.0f answers/s, %ld of %ld not 200\n", (double)answers / (now() - begin), wrong,
           answers);
    free(links);
    free(r.text);
    return rc;
}
