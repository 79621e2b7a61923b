/* A rude HTTP client for the tests of the listener.
 *
 * usage: hammer PORT raw              sends standard input, prints what comes until the other side
 *                                     closes or says nothing for a second
 *        hammer PORT vanish N SEED    N requests, each left at a random moment
 *        hammer PORT many N           N streams at a time, read to their ends; prints how many were
 * whole hammer PORT drip             one byte of a header every 50 ms until the other side closes
 *        hammer PORT deaf             asks for a long stream and reads nothing; prints when it is
 * cut */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int port;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int dial(void)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        perror("hammer: connect");
        exit(1);
    }
    return fd;
}

static bool send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) {
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* What comes within ms; 0: nothing, -1: the other side closed. */
static ssize_t hear(int fd, char *p, size_t n, int ms)
{
    struct pollfd f = {.fd = fd, .events = POLLIN};
    if (poll(&f, 1, ms) <= 0) {
        return 0;
    }
    const ssize_t k = recv(fd, p, n, 0);
    return k <= 0 ? -1 : k;
}

static int raw(void)
{
    static char text[1 << 20];
    const size_t n = fread(text, 1, sizeof text, stdin);
    const int fd = dial();
    (void)send_all(fd, text, n);
    for (ssize_t k = 1; k > 0;) {
        k = hear(fd, text, sizeof text, 1000);
        fwrite(text, 1, k > 0 ? (size_t)k : 0, stdout);
    }
    close(fd);
    return 0;
}

static const char stream[] = "{\"stream\":true,\"max_tokens\":%d,\"messages\":[{\"role\":\"user\","
                             "\"content\":\"endless\"}]}";

static size_t request(char *to, size_t room, const char *path, int tokens)
{
    char body[200];
    const int n = snprintf(body, sizeof body, stream, tokens);
    const int k = snprintf(to, room,
                           "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           "Content-Length: %d\r\n\r\n%s",
                           path, n, body);
    return (size_t)k;
}

static uint32_t random_next(uint32_t *s)
{
    *s = *s * 1664525U + 1013904223U;
    return *s >> 8;
}

static int vanish(int n, uint32_t seed)
{
    static const char *const paths[] = {
        "/v1/chat/completions",      "/v1/messages", "/v1/responses", "/v1/completions",
        "/v1/messages/count_tokens", "/tokenize"};
    char text[1024], heard[4096];
    for (int i = 0; i < n; i++) {
        const size_t len = request(text, sizeof text, paths[random_next(&seed) % 6], 8000);
        const int fd = dial();
        const uint32_t how = random_next(&seed) % 5;
        if (how == 0) {
            (void)send_all(fd, text, random_next(&seed) % len);
        } else {
            (void)send_all(fd, text, len);
            if (how == 2) {
                shutdown(fd, SHUT_WR);
            }
            if (how > 2) {
                (void)hear(fd, heard, sizeof heard, (int)(random_next(&seed) % 30));
            }
            if (how == 4) { /* a reset */
                const struct linger l = {1, 0};
                (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
            }
        }
        close(fd);
    }
    return 0;
}

static int many(int n)
{
    struct link {
        int fd;
        bool whole;
    } *links = calloc((size_t)n, sizeof *links);
    struct pollfd *f = calloc((size_t)n, sizeof *f);
    char text[1024], heard[65536];
    const size_t len = request(text, sizeof text, "/v1/chat/completions", 50);
    int open = 0, whole = 0;
    for (int i = 0; i < n && links && f; i++) {
        links[i].fd = dial();
        (void)send_all(links[i].fd, text, len);
        f[i] = (struct pollfd){.fd = links[i].fd, .events = POLLIN};
        open++;
    }
    const int64_t end = now_ms() + 120000;
    while (open > 0 && now_ms() < end) {
        (void)poll(f, (nfds_t)n, 1000);
        for (int i = 0; i < n; i++) {
            if (f[i].fd < 0 || !f[i].revents) {
                continue;
            }
            const ssize_t k = recv(f[i].fd, heard, sizeof heard - 1, 0);
            heard[k > 0 ? k : 0] = 0;
            links[i].whole = links[i].whole || strstr(heard, "data: [DONE]");
            const bool refused =
                k > 12 && strncmp(heard, "HTTP/1.1 ", 9) == 0 && strncmp(heard + 9, "200", 3) != 0;
            if (k <= 0 || links[i].whole || refused) {
                whole += links[i].whole;
                close(f[i].fd);
                f[i].fd = -1;
                open--;
            }
        }
    }
    printf("%d\n", whole);
    free(links);
    free(f);
    return 0;
}

static int drip(void)
{
    const int fd = dial();
    const int64_t begin = now_ms();
    char c = 0;
    (void)send_all(fd, "GET /health HTTP/1.1\r\nX: ", 25);
    while (now_ms() - begin < 60000 && send_all(fd, "y", 1) && hear(fd, &c, 1, 50) == 0) {
    }
    printf("%lld\n", (long long)(now_ms() - begin));
    close(fd);
    return 0;
}

static int deaf(void)
{
    char text[1024];
    const int fd = dial();
    const int64_t begin = now_ms();
    const int small = 4096;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    (void)send_all(fd, text, request(text, sizeof text, "/v1/chat/completions", 30000));
    struct pollfd f = {.fd = fd, .events = POLLRDHUP};
    (void)poll(&f, 1, 120000);
    printf("%lld\n", (long long)(now_ms() - begin));
    close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    port = argc > 1 ? atoi(argv[1]) : 0;
    if (strcmp(what, "raw") == 0) {
        return raw();
    }
    if (strcmp(what, "vanish") == 0 && argc > 4) {
        return vanish(atoi(argv[3]), (uint32_t)atoi(argv[4]));
    }
    if (strcmp(what, "many") == 0 && argc > 3) {
        return many(atoi(argv[3]));
    }
    if (strcmp(what, "drip") == 0) {
        return drip();
    }
    if (strcmp(what, "deaf") == 0) {
        return deaf();
    }
    fprintf(stderr, "usage: hammer PORT raw|vanish N SEED|many N|drip|deaf\n");
    return 2;
}
