/* Keys, and the file that they and their shares are in: a line is a key, then words NAME=VALUE. */
#include "config.h"
#include "cmd/keys.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define FILE_MAX  1048576
#define NAME_MOST 39

static const struct word {
    const char *name;
    size_t at; /* of the number in struct http_key */
    int lo, hi;
} words[] = {
    {"weight", offsetof(struct http_key, weight), 1, 1000},
    {"priority", offsetof(struct http_key, priority), 0, 9},
    {"slots", offsetof(struct http_key, slots), 1, 4096},
    {"queue", offsetof(struct http_key, queue), 1, 4096},
};

static int take_name(struct http_key *k, const char *value, const char *path, int line,
                     struct err *e)
{
    for (size_t i = 0; value[i]; i++) {
        if (value[i] < 0x21 || value[i] > 0x7e || value[i] == '"' || value[i] == '\\' ||
            i >= NAME_MOST) {
            return err_set(e, QE_USAGE,
                           "%s, line %d: a name has at most %d letters of ASCII, without quotes",
                           path, line, NAME_MOST);
        }
    }
    if (!value[0]) {
        return err_set(e, QE_USAGE, "%s, line %d: name= is empty", path, line);
    }
    k->name = value;
    return 0;
}

/* A word after a key. */
static int take_word(struct http_key *k, char *word, const char *path, int line, struct err *e)
{
    char *value = strchr(word, '=');
    if (value) {
        *value++ = 0;
        if (strcmp(word, "name") == 0) {
            return take_name(k, value, path, line, e);
        }
    }
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++) {
        const struct word *w = &words[i];
        if (strcmp(word, w->name) == 0) {
            char *end = NULL;
            errno = 0;
            const long v = strtol(value, &end, 10);
            if (end == value || *end || errno || v < w->lo || v > w->hi) {
                return err_set(e, QE_USAGE, "%s, line %d: %s is \"%.20s\"; it is %d to %d", path,
                               line, w->name, value, w->lo, w->hi);
            }
            *(int *)(void *)((char *)k + w->at) = (int)v;
            return 0;
        }
    }
    /* not the word itself: it may be part of a key */
    return err_set(e, QE_USAGE,
                   "%s, line %d: after a key stand name=, weight=, priority=, slots= or queue=, or "
                   "a comment after #",
                   path, line);
}

static int take_line(struct keys *k, char *text, const char *path, int line, struct err *e)
{
    char *save = NULL;
    char *key = strtok_r(text, " \t\r", &save);
    if (!key || key[0] == '#') {
        return 0;
    }
    struct http_key *to = &k->v[k->n++];
    *to = (struct http_key){.key = key};
    for (char *word = strtok_r(NULL, " \t\r", &save); word && word[0] != '#';
         word = strtok_r(NULL, " \t\r", &save)) {
        const int rc = take_word(to, word, path, line, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int keys_read(const struct conf *cf, struct keys *k, struct err *e)
{
    const char *path = conf_str(cf, "api-key-file");
    const char *env = getenv("QUASAR_API_KEY");
    const size_t given = conf_list_len(cf, "api-key");
    size_t lines = 1;
    if (env && !env[0]) {
        return err_set(e, QE_USAGE, "QUASAR_API_KEY is set and empty; unset it, or give a key");
    }
    int rc = path ? io_read_file(path, FILE_MAX, &k->file, e) : 0;
    for (size_t i = 0; rc == 0 && i < k->file.len; i++) {
        lines += k->file.data[i] == '\n';
    }
    k->v = mem_array(given + lines, sizeof *k->v);
    for (size_t i = 0; rc == 0 && i < given; i++) {
        k->v[k->n++] = (struct http_key){.key = conf_list_at(cf, "api-key", i)};
        if (!k->v[i].key[0]) {
            rc = err_set(e, QE_USAGE, "an API key is empty");
        }
    }
    char *next = k->file.data;
    for (int line = 1; rc == 0 && next; line++) {
        char *text = next;
        next = strchr(text, '\n');
        if (next) {
            *next++ = 0;
        }
        rc = take_line(k, text, path, line, e);
    }
    if (rc == 0 && path && k->n == given) {
        rc = err_set(e, QE_USAGE, "%s has no API key; a line of it is one", path);
    }
    return rc;
}

void keys_free(struct keys *k)
{
    free(k->v);
    buf_free(&k->file);
    *k = (struct keys){.v = NULL};
}
