#ifndef QUASAR_CMD_LISTENER_H
#define QUASAR_CMD_LISTENER_H

#include "base/conf.h"
#include "base/err.h"
#include "conv/conv.h"
#include "http/http.h"

/* The listener as the options have it, with the table of its requests; it may be opened and
 * closed while the program runs. One thread. */
struct listener;

/* Closed at first. loud: a line of every answer goes to standard error. */
int listener_create(const struct conf *cf, struct conv *c, bool loud, struct listener **out,
                    struct err *e);
/* Listens at an address: "HOST:PORT", ":PORT", "PORT", "unix:PATH", or NULL for that of the
 * options, or (loud) of the service manager that has opened one. One that is open is closed first.
 */
int listener_open(struct listener *l, const char *address, struct err *e);
/* Opens the line for load balancers (http/agent.h) at such an address, for as long as it is open;
 * NULL: none. Once it listens. */
int listener_agent(struct listener *l, const char *address, struct err *e);
void listener_close(struct listener *l);
/* What stands before its address: "http://", "https://" or "". While open. */
const char *listener_scheme(const struct listener *l);
/* NULL while closed. */
struct http *listener_http(const struct listener *l);
struct requests *listener_requests(const struct listener *l);
/* Whether anybody but this machine reaches it, and may use the model. */
bool listener_is_public(const struct listener *l);
/* Before conv_end; NULL is allowed. */
void listener_free(struct listener *l);

#endif
