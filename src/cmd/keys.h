#ifndef QUASAR_CMD_KEYS_H
#define QUASAR_CMD_KEYS_H

#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "http/http.h"

/* The keys that clients are asked for: those of --api-key, QUASAR_API_KEY and the lines of
 * --api-key-file, which may say beside a key what it is called and what it may do. */
struct keys {
    struct http_key *v;
    size_t n;
    struct buf file; /* that texts of v lie in */
};

/* k: zero. QE_USAGE: a key is empty, the file has none, or a line of it says something that is not
 * known (named, with the line's number; never the key). Texts of options are borrowed from cf. */
int keys_read(const struct conf *cf, struct keys *k, struct err *e);
void keys_free(struct keys *k);

#endif
