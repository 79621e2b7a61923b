#ifndef QUASAR_TESTS_CUDA_TESTMODEL_H
#define QUASAR_TESTS_CUDA_TESTMODEL_H

#include <stdint.h>

#include "engine/engine.h"

/*
 * A model of random weights in memory: 4 layers (3 DeltaNet, 1 attention) and the MTP
 * layer, hidden 256, FFN 384, 2 key and 6 value heads, 2 query heads over 1, 320 rows
 * of vocabulary (the last 5 padding), every weight format somewhere.
 */
struct testmodel;

struct testmodel *testmodel_create(uint64_t seed);
void testmodel_free(struct testmodel *m);
const struct engine_source *testmodel_source(const struct testmodel *m);

enum { TM_VOCAB = 320, TM_USED = 315, TM_HIDDEN = 256 };

#endif
