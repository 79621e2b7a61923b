#ifndef QUASAR_ENGINE_LEAD_H
#define QUASAR_ENGINE_LEAD_H

#include <stdbool.h>

/*
 * How often an MTP draft is right whose logit leads the next best one by so much, in a
 * few steps of the lead. What leads by less than LEAD_LEAST is never worth a row.
 */
#define LEADS      6
#define LEAD_LEAST 0.5F

struct lead_rate {
    float rate;
    int seen; /* drafts behind it, as far as it matters */
};

struct leads {
    struct lead_rate step[LEADS];
};

void leads_init(struct leads *l);
/* A draft with this lead was right or not. */
void leads_learn(struct leads *l, float lead, bool right);
/* The least lead from which drafts are right this often; the highest step's beginning
 * when none is. */
float leads_worth(const struct leads *l, double chance);

#endif
