/* The log. One of the three places with writable globals: level and sink. */
#include "config.h"
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static enum log_level log_level_max = LOG_WARN;
static log_sink_fn log_sink;
static void *log_sink_ctx;

void log_set_level(enum log_level level)
{
    pthread_mutex_lock(&log_mutex);
    log_level_max = level;
    pthread_mutex_unlock(&log_mutex);
}

void log_set_sink(log_sink_fn sink, void *ctx)
{
    pthread_mutex_lock(&log_mutex);
    log_sink = sink;
    log_sink_ctx = ctx;
    pthread_mutex_unlock(&log_mutex);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&log_mutex);
    if (level <= log_level_max) {
        if (log_sink) {
            log_sink(log_sink_ctx, level, line);
        } else {
            static const char *const names[] = {"error", "warning", "note", "debug"};
            fprintf(stderr, "quasar: %s: %s\n", names[level], line);
        }
    }
    pthread_mutex_unlock(&log_mutex);
}
