#ifndef QUASAR_HTTP_AGENT_H
#define QUASAR_HTTP_AGENT_H

#include "base/err.h"
#include "http/http.h"

/*
 * The word for load balancers: whoever connects is told in one line how the listener stands, as
 * HAProxy's agent-check reads it, and is let go. A thread of its own.
 */
struct agent;

/* Listens at host and port (as in http_opts) for h, which must outlive it. QE_IO: the address
 * cannot be listened at. */
int agent_open(struct http *h, const char *host, int port, struct agent **out, struct err *e);
/* "127.0.0.1:8081" */
const char *agent_address(const struct agent *a);
/* NULL is allowed. */
void agent_close(struct agent *a);

#endif
