#ifndef QUASAR_TOKENIZER_TOOLCALL_INT_H
#define QUASAR_TOKENIZER_TOOLCALL_INT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define TAG_CALL      "<tool_call>"
#define TAG_CALL_END  "</tool_call>"
#define TAG_FUNC      "<function="
#define TAG_FUNC_END  "</function>"
#define TAG_PARAM     "<parameter="
#define TAG_PARAM_END "</parameter>"

enum verdict { V_MORE, V_NO, V_YES };

/* Reads one call at the start of p, which is TAG_CALL or TAG_FUNC. V_MORE: what
 * follows decides. A verdict never changes when more text arrives. At the end
 * (eof) the rules are laxer, and V_MORE does not occur. V_YES: *used bytes are
 * the call; *name and *args are the caller's. */
enum verdict call_parse(const json_t *tools, const char *p, size_t n, bool eof, size_t *used,
                        char **name, json_t **args);

/* The schema of one parameter; NULL when unknown. */
const json_t *schema_find(const json_t *tools, const char *name, const char *key);
/* The value of a parameter's text. New reference. */
json_t *schema_convert(const json_t *schema, const char *p, size_t n);
/* Parses JSON, forgiving raw control characters inside strings; NULL if bad. */
json_t *json_lenient(const char *p, size_t n);

#endif
