/* Completion of paths. A folder is read once, with bounds on how much of it; whether an entry is
 * a folder is asked of the file system only for links and where the folder does not say. */
#include "config.h"
#include "tui/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"

void file_names_free(struct file_names *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i]);
    }
    free(f->v);
    *f = (struct file_names){0};
}

char *files_expand(const char *path)
{
    const char *home = getenv("HOME");
    return path[0] == '~' && (path[1] == '/' || !path[1]) && home
               ? io_join(home, path[1] ? path + 2 : "")
               : mem_strdup(path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_folder(DIR *d, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) {
        return entry->d_type == DT_DIR;
    }
    return fstatat(dirfd(d), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

/* The draft is a line of characters: no other name comes out of it as it went in. */
static bool can_be_typed(const char *name)
{
    for (const char *s = name; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7F) {
            return false;
        }
    }
    return utf8_valid(name, strlen(name));
}

static void take(DIR *d, const struct dirent *entry, struct file_names *out)
{
    struct buf name = BUF_INIT;
    buf_adds(&name, entry->d_name);
    buf_adds(&name, is_folder(d, entry) ? "/" : "");
    if ((out->n & (out->n - 1)) == 0) {
        out->v = mem_realloc(out->v, (out->n ? out->n * 2 : 1) * sizeof *out->v);
    }
    out->v[out->n++] = buf_take(&name);
}

int files_match(const char *path, struct file_names *out, struct err *e)
{
    char *whole = files_expand(path);
    char *slash = strrchr(whole, '/');
    const char *part = slash ? slash + 1 : whole;
    char *folder = slash ? mem_strndup(whole, (size_t)(slash - whole) + 1) : mem_strdup(".");
    const size_t n = strlen(part);
    int rc = 0;
    *out = (struct file_names){0};
    errno = 0;
    DIR *d = opendir(folder);
    if (!d) {
        rc =
            err_sys(e, errno == ENOENT ? QE_NOTFOUND : QE_IO, errno, "cannot look into %s", folder);
        goto out;
    }
    size_t seen = 0;
    for (const struct dirent *entry = readdir(d); entry; entry = readdir(d)) {
        const char *name = entry->d_name;
        const bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (++seen > FILES_READ || out->n == FILES_MOST) {
            out->cut = true;
            break;
        }
        if (!dots && strncmp(name, part, n) == 0 && (name[0] != '.' || part[0] == '.')) {
            if (can_be_typed(name)) {
                take(d, entry, out);
            } else {
                out->left_out++;
            }
        }
    }
    closedir(d);
    if (out->n > 0) {
        qsort(out->v, out->n, sizeof *out->v, by_name);
    }
out:
    free(folder);
    free(whole);
    return rc;
}

void files_quote(const char *path, bool open, struct buf *out)
{
    if (!path[strcspn(path, " \t\"\\")]) {
        buf_adds(out, path);
        return;
    }
    buf_addc(out, '"');
    for (const char *s = path; *s; s++) {
        if (*s == '"' || *s == '\\') {
            buf_addc(out, '\\');
        }
        buf_addc(out, *s);
    }
    buf_adds(out, open ? "" : "\"");
}

void files_unquote(const char *word, size_t n, struct buf *out)
{
    size_t i = n > 0 && word[0] == '@';
    const bool quoted = i < n && word[i] == '"';
    for (i += quoted; i < n; i++) {
        if (quoted && word[i] == '"') {
            return;
        }
        if (quoted && word[i] == '\\' && i + 1 < n) {
            i++;
        }
        buf_addc(out, word[i]);
    }
}

size_t files_common(const struct file_names *f)
{
    if (f->n == 0) {
        return 0;
    }
    size_t k = strlen(f->v[0]);
    for (size_t i = 1; i < f->n; i++) {
        size_t same = 0;
        while (same < k && f->v[i][same] == f->v[0][same]) {
            same++;
        }
        k = same;
    }
    while (k > 0 && ((unsigned char)f->v[0][k] & 0xC0) == 0x80) {
        k--; /* not within a character */
    }
    return k;
}
