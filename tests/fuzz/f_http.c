/* Fuzz target: any bytes sent to a listener, over a socket in the file system, before a stand-in
 * for the engine. What comes back is nothing or an HTTP answer with a status that the listener
 * gives; afterwards nothing runs that nobody waits for, and the next client is served. */
#include "config.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "http/http.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/conv_help.h"

static struct conv *conv;
static struct http *http;
static char address[200];
static unsigned long inputs;

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void end(void)
{
    /* whoever was asked for an answer has gone: the answers end by themselves */
    for (int i = 0; i < 2000 && http_live(http) > 0; i++) {
        usleep(5000);
    }
    must(http_live(http) == 0, "answers run for nobody");
    http_close(http);
    conv_close(conv);
    (void)conv_clean(NULL);
}

static void begin(void)
{
    struct err e = ERR_INIT;
    struct conv_event ev = {0};
    must(conv_prepare(NULL) == 0, "the demo model cannot be read");
    snprintf(address, sizeof address, "unix:%s/sock", state_home);
    struct conv_opts o = opts("ctx=2048");
    conv = open_conv(&o);
    for (bool ready = false; !ready;) {
        must(conv_wait(conv, &ev, 20000), "the model does not load");
        ready = ev.kind == CE_READY;
        conv_event_fini(&ev);
    }
    const struct http_opts h = {.host = address, .body = 65536, .max_tokens = 8};
    must(http_open(conv, &h, &http, &e) == 0, e.msg);
    (void)atexit(end);
}

/* Sends it, and reads to the end. Returns how much of the beginning of the answer is in p. */
static size_t speak(const uint8_t *bytes, size_t size, char *p, size_t room)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, address + 5, strlen(address + 5) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    must(fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at) == 0,
         "the listener is gone");
    size_t n = 0;
    while (size > 0) {
        const ssize_t k = send(fd, bytes, size, MSG_NOSIGNAL);
        if (k <= 0) {
            break;
        }
        bytes += k;
        size -= (size_t)k;
    }
    shutdown(fd, SHUT_WR);
    char rest[4096];
    for (;;) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        must(poll(&f, 1, 30000) == 1, "the listener says nothing for half a minute");
        const ssize_t k = n < room ? recv(fd, p + n, room - n, 0) : recv(fd, rest, sizeof rest, 0);
        if (k <= 0) {
            break;
        }
        n += n < room ? (size_t)k : 0;
    }
    close(fd);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char *const known[] = {"200", "204", "400", "403", "404", "405", "413", "414",
                                        "417", "429", "431", "500", "501", "503", "505", "411"};
    static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    char text[64] = "";
    if (!http) {
        begin();
    }
    const size_t got = speak(p, n, text, sizeof text - 1);
    if (got > 12) {
        bool fine = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            fine = fine || strncmp(text + 9, known[i], 3) == 0;
        }
        must(strncmp(text, "HTTP/1.", 7) == 0 && fine, text);
    }
    if (inputs++ % 64 == 0) {
        char again[64] = "";
        (void)speak((const uint8_t *)health, sizeof health - 1, again, sizeof again - 1);
        must(strncmp(again, "HTTP/1.1 200", 12) == 0, "the next client is not served");
    }
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const heads[] = {"/v1/chat/completions", "/v1/messages?beta=true",
                                        "/v1/completions", "/tokenize",
                                        "/v1/messages/count_tokens"};
    static const char *const bodies[] = {
        "{\"stream\":true,\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
        "{\"prompt\":[1,2,3],\"max_tokens\":3}", "{\"prompt\":\"hello\"}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"};
    static const char *const whole[] = {
        "GET /v1/models HTTP/1.1\r\nHost: x\r\nx-session-id: a\r\n\r\nGET /metrics HTTP/1.1\r\n"
        "Host: x\r\n\r\n",
        "HEAD /v1/models/demo HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "f\r\n{\"prompt\":\"hey\"}\r\n0\r\n\r\n",
        "OPTIONS /v1/messages HTTP/1.0\r\nOrigin: http://localhost\r\n\r\n"};
    const size_t a = sizeof heads / sizeof *heads, b = sizeof whole / sizeof *whole;
    struct fuzz_seed *s = mem_array(a + b, sizeof *s);
    char text[1024];
    for (size_t i = 0; i < a + b; i++) {
        if (i < a) {
            snprintf(text, sizeof text,
                     "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\nExpect: \r\n\r\n%s",
                     heads[i], strlen(bodies[i]), bodies[i]);
        }
        const char *t = i < a ? text : whole[i - a];
        s[i].size = strlen(t);
        s[i].data = (uint8_t *)mem_strdup(t);
    }
    *n = a + b;
    return s;
}
