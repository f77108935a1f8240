/* Plans of a simulated job of collectives: random ones, which a planner would not always make. */
#include "sim/swarm_coll_internal.h"

#include "base/prng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool percent(struct weft_prng *prng, uint32_t chance)
{
    return weft_prng_below(prng, 100) < chance;
}

/* Ascending positions from 0 to the whole, often with equal ones in between. */
static void positions_draw(struct weft_prng *prng, uint32_t *at, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t value = (uint32_t)weft_prng_range(prng, 0, WEFT_COLL_PLAN_WHOLE);
        value = percent(prng, 30) ? value / 4 : value;
        uint32_t k = i;
        for (; k > 1 && at[k - 1] > value; k--) {
            at[k] = at[k - 1];
        }
        at[k] = percent(prng, 20) && k > 1 ? at[k - 1] : value;
    }
    at[0] = 0;
    at[n] = WEFT_COLL_PLAN_WHOLE;
}

/* Each rank gets a parent among those before it in a random order, which begins with the root. */
static void tree_draw(struct weft_prng *prng, uint32_t n, uint32_t root, uint16_t *parent)
{
    uint32_t order[COLL_RANKS_MAX];
    bool chain = percent(prng, 30), star = percent(prng, 20);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (root + i) % n;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = (uint32_t)weft_prng_range(prng, i, n - 1), rank = order[k];
        order[k] = order[i];
        order[i] = rank;
        uint32_t to = chain ? i - 1 : star ? 0 : (uint32_t)weft_prng_below(prng, i);
        parent[rank] = (uint16_t)order[to];
    }
    parent[root] = (uint16_t)root;
}

static void plan_draw(struct weft_prng *prng, uint32_t n, struct coll_plan *p)
{
    p->is_set = true;
    positions_draw(prng, p->slice, n);
    p->plan = (struct weft_coll_plan){
        .ranks = n,
        .parts = percent(prng, 25) ? 0 : (uint32_t)weft_prng_range(prng, 1, COLL_PARTS_MAX),
        .trees_bytes_min = percent(prng, 60) ? 0 : weft_prng_range(prng, 1, 40000),
        .slice = p->slice,
        .part = p->part,
        .up = p->up,
        .down = p->down,
        .row = p->row,
    };
    if (p->plan.parts > 0) {
        positions_draw(prng, p->part, p->plan.parts);
    }
    for (uint32_t i = 0; i < p->plan.parts; i++) {
        uint16_t *up = p->up + (size_t)i * n, *row = p->row + (size_t)i * n;
        uint16_t children[COLL_RANKS_MAX] = {0};
        uint32_t root = (uint32_t)weft_prng_below(prng, n);
        tree_draw(prng, n, root, up);
        tree_draw(prng, n, root, p->down + (size_t)i * n);
        for (uint32_t r = 0; r < n; r++) {
            row[r] = up[r] == r ? 0 : children[up[r]]++;
        }
    }
}

void weft_swarm_coll_plans_draw(struct swarm_coll *s, struct weft_prng *prng)
{
    for (uint32_t g = 0; g < s->groups; g++) {
        if (percent(prng, 50)) {
            plan_draw(prng, s->members[g], &s->made[g]);
        }
    }
    const struct coll_op *op = &s->op[s->end_op];
    struct coll_plan *p = &s->made[op->group];
    bool wrong = percent(prng, 40);
    if (s->end != COLL_END_MISMATCH || op->kind != WEFT_COLL_ALL_REDUCE || !p->is_set || !wrong) {
        return;
    }
    p->differs = true;
    s->other = p->plan;
    s->other.trees_bytes_min++;
}

const struct weft_coll_plan *weft_swarm_coll_plan(const struct swarm_coll *s, uint32_t group,
                                                  uint32_t rank)
{
    const struct coll_plan *p = &s->made[group];
    if (!p->is_set) {
        return NULL;
    }
    return p->differs && rank == s->culprit ? &s->other : &p->plan;
}

uint32_t weft_swarm_coll_plans_describe(const struct swarm_coll *s, char *text, size_t bytes)
{
    int used = 0;
    for (uint32_t g = 0; g < s->groups; g++) {
        const struct coll_plan *p = &s->made[g];
        if (p->is_set) {
            used += snprintf(text + used, bytes - (size_t)used,
                             "plan of group %" PRIu32 ": %" PRIu32 " trees from %" PRIu64
                             " bytes on%s\n",
                             g, p->plan.parts, p->plan.trees_bytes_min,
                             p->differs ? ", another one at the culprit" : "");
        }
    }
    return (uint32_t)used;
}
