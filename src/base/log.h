#ifndef QUASAR_BASE_LOG_H
#define QUASAR_BASE_LOG_H

/* One line of diagnostics, thread safe. Goes to standard error, or to the sink
 * while one is set (the screen's log view). Never called on a decode path. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);

void log_set_level(enum log_level level);
/* sink NULL restores standard error. The sink is called with the log's own
 * mutex held and must not log. */
void log_set_sink(log_sink_fn sink, void *ctx);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
