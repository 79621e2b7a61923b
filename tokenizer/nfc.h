#ifndef QUASAR_TOKENIZER_NFC_H
#define QUASAR_TOKENIZER_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* False when well-formed text is certainly in normalisation form C already. */
bool nfc_may_change(const char *p, size_t n);

/* Appends well-formed text in normalisation form C; time linear in n whatever
 * the order of its marks. */
void nfc_add(const char *p, size_t n, struct buf *out);

#endif
