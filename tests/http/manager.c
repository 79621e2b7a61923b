/* A service manager's ear for the tests: prints the datagrams that come to a socket.
 *
 * usage: manager PATH    or @NAME, which is in no file system; "listening" once it does */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[4096];
    const size_t n = argc == 2 ? strlen(argv[1]) : 0;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (n == 0 || n >= sizeof at.sun_path || fd < 0) {
        fprintf(stderr, "usage: manager PATH\n");
        return 2;
    }
    memcpy(at.sun_path, argv[1], n + 1);
    if (at.sun_path[0] == '@') {
        at.sun_path[0] = 0;
    }
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (bind(fd, (struct sockaddr *)&at, size) < 0) {
        perror("manager: bind");
        return 1;
    }
    puts("listening");
    fflush(stdout);
    for (;;) {
        const ssize_t k = recv(fd, text, sizeof text - 1, 0);
        if (k < 0) {
            return 1;
        }
        text[k] = 0;
        puts(text);
        fflush(stdout);
    }
}
