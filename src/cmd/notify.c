/* The service manager's notification protocol (sd_notify(3)): one datagram for each change of
 * state, to the socket that it named in the environment. */
#include "config.h"
#include "cmd/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *path_of(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    return path && (path[0] == '/' || path[0] == '@') && path[1] ? path : NULL;
}

bool notify_wanted(void)
{
    return path_of() != NULL;
}

void notify_send(const char *state)
{
    const char *path = path_of();
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = path ? strlen(path) : 0;
    if (n == 0 || n >= sizeof to.sun_path) {
        return;
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    memcpy(to.sun_path, path, n + 1);
    if (path[0] == '@') { /* a name that is in no file system begins with a zero byte */
        to.sun_path[0] = 0;
    }
    const ssize_t rc = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)rc;
    close(fd);
}
