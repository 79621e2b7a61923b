#ifndef QUASAR_FORMAT_CONTAINER_PRIV_H
#define QUASAR_FORMAT_CONTAINER_PRIV_H

#include "base/hash.h"
#include "base/io.h"
#include "format/container.h"

/* What the two readers fill, and the constants of both versions. */

#define V1_MAGIC        0x46373251U /* "Q27F" */
#define TOK_MAGIC       0x54373251U /* "Q27T" */
#define V2_MAGIC        0x46525351U /* "QSRF" */
#define CONTAINER_ALIGN 256U

/* Version 2: the fixed header, docs/container.md. */
#define V2_HEADER    96U
#define V2_DIGEST_AT 64U

/* Limits on what is not weights. */
#define MAX_TENSORS 65536U
#define MAX_DOCS    1024U
#define MAX_TABLE   (64U << 20)
#define MAX_META    (64U << 20)

/* Every blob is checked at open when the file is no larger than this. */
#define CHECK_ALL_BELOW (64U << 20)

struct origin {
    const char *name, *type;
    const uint8_t *data_digest, *scale_digest;
};

struct container {
    struct io_map map; /* empty when opened over memory */
    struct buf tok;    /* version 1: the bytes of the .tok */
    const uint8_t *p;
    size_t size;
    const char *what; /* names the file in messages; borrowed while opening */
    int version;
    bool folded;
    size_t n_tensors;
    struct tensor *tensors;
    struct origin *origins;
    size_t *by_name; /* indices of tensors, sorted */
    struct tensor tied_head;
    size_t n_docs;
    struct container_doc *docs;
    json_t *meta, *config; /* config is borrowed from meta in version 2 */
    char *pool;            /* the strings */
    size_t pool_len;
    void **owned; /* version 1: tensors whose heads were moved */
    size_t n_owned;
    char digest[SHA256_HEX];
};

/* Fewer bytes than this are not worth a second thread. */
#define CHECK_ALONE_BELOW (4U << 20)

/* Little-endian reading of a table, never past its end. */
struct rd {
    const uint8_t *p;
    size_t n;
    bool bad;
};
uint64_t rd_uint(struct rd *r, size_t width);
const uint8_t *rd_bytes(struct rd *r, size_t n);
/* n bytes as a NUL terminated string in the pool; "" and bad when they contain
 * a byte that no name has (control characters, blanks, not ASCII). */
const char *rd_name(struct rd *r, size_t n, struct container *c);

int container_read_v1(struct container *c, const char *path, struct err *e);
int container_read_v2(struct container *c, bool verify, struct err *e);

/* Checks that all of t's numbers agree with its data; name and dtype are set. */
int container_check_tensor(const struct container *c, const struct tensor *t, struct err *e);
/* Sorts by name; refuses a name that occurs twice. */
int container_index(struct container *c, struct err *e);

#endif
