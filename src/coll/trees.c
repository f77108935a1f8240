/* Plans: their validation, and the operations that they turn into trees (plan.h).
 *
 * Each segment of a part is one message up and one message down for every rank but the root. A rank
 * sends a segment up when it has the sums of all children, adding them in the order of the ranks,
 * and down when it has the result, so the segments of a part are in different ranks at the same
 * time. All ranks have the bits of the root. */
#include "coll/internal.h"

#include "coll/fold.h"

/* ---- plans ----------------------------------------------------------------------------------- */

static bool positions_valid(const uint32_t *at, uint32_t n)
{
    bool valid = at[0] == 0 && at[n] == WEFT_COLL_PLAN_WHOLE;
    for (uint32_t i = 0; i < n && valid; i++) {
        valid = at[i] <= at[i + 1];
    }
    return valid;
}

/* The root that all ranks reach; NONE: it is not a tree. */
static uint32_t root_of(const uint16_t *parent, uint32_t n)
{
    uint32_t root = NONE;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t at = r, steps = 0;
        while (at < n && parent[at] != at && steps++ < n) {
            at = parent[at];
        }
        if (at >= n || parent[at] != at || (root != NONE && at != root)) {
            return NONE;
        }
        root = at;
    }
    return root;
}

static bool rows_valid(const uint16_t *up, const uint16_t *row, uint32_t n)
{
    uint16_t children[WEFT_COLL_PLAN_RANKS_MAX] = {0};
    bool valid = true;
    for (uint32_t r = 0; r < n && valid; r++) {
        valid = row[r] == (up[r] == r ? 0 : children[up[r]]++);
    }
    return valid;
}

bool weft_coll_plan_valid(const struct weft_coll_plan *plan, uint32_t n)
{
    if (plan->ranks != n || plan->parts > WEFT_COLL_PLAN_PARTS_MAX ||
        !positions_valid(plan->slice, n)) {
        return false;
    }
    if (plan->parts == 0) {
        return true;
    }
    bool valid = n <= WEFT_COLL_PLAN_RANKS_MAX && positions_valid(plan->part, plan->parts);
    for (uint32_t p = 0; p < plan->parts && valid; p++) {
        const size_t at = (size_t)p * n;
        uint32_t root = root_of(plan->up + at, n);
        valid = root != NONE && root == root_of(plan->down + at, n) &&
                rows_valid(plan->up + at, plan->row + at, n);
    }
    return valid;
}

uint32_t weft_coll_plan_hash(const struct weft_coll_plan *plan)
{
    uint64_t h = weft_mix64(plan->ranks | (uint64_t)plan->parts << 32);
    h = weft_mix64(h ^ plan->trees_bytes_min);
    for (uint32_t i = 0; i <= plan->ranks; i++) {
        h = weft_mix64(h ^ plan->slice[i]);
    }
    for (uint32_t i = 0; plan->parts > 0 && i <= plan->parts; i++) {
        h = weft_mix64(h ^ plan->part[i]);
    }
    for (size_t i = 0; i < (size_t)plan->parts * plan->ranks; i++) {
        h = weft_mix64(h ^ (plan->up[i] | (uint64_t)plan->down[i] << 16));
    }
    return (uint32_t)(h >> 32);
}

weft_status weft_coll_plan_set(struct weft_coll *c, uint32_t group,
                               const struct weft_coll_plan *plan)
{
    if (group >= c->groups || (plan != NULL && !weft_coll_plan_valid(plan, c->group[group].n))) {
        return WEFT_INVALID;
    }
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        if (c->op[i].call.group == group) {
            return WEFT_STATE;
        }
    }
    struct group *g = &c->group[group];
    g->plan = plan;
    g->plan_hash = plan != NULL ? weft_coll_plan_hash(plan) & ~UINT32_C(1) : 0;
    return WEFT_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

uint8_t *weft_coll_trees_place(const struct op *op, uint32_t segment, uint32_t index)
{
    const struct shape *s = &op->shape;
    const struct weft_coll_plan *plan = s->plan;
    const uint64_t *at = (const uint64_t *)((uint8_t *)op->call.work + op->work.stage_at);
    size_t bytes = weft_coll_aligned((size_t)weft_coll_part(s, 0, segment).elems * s->elem_bytes);
    size_t row = plan->row[(size_t)(segment / s->each) * s->n + index];
    return (uint8_t *)op->call.work + op->work.staging + at[segment] + row * bytes;
}

/* Where the sums of the children of each segment are. */
void weft_coll_trees_start(struct op *op)
{
    const struct shape *s = &op->shape;
    uint64_t *stage_at = (uint64_t *)((uint8_t *)op->call.work + op->work.stage_at), at = 0;
    for (uint32_t g = 0; g < s->segments; g++) {
        size_t bytes = weft_coll_aligned((size_t)weft_coll_part(s, 0, g).elems * s->elem_bytes);
        stage_at[g] = at;
        at += op->segment[g].left1 * bytes;
        op->segment[g].sums = op->segment[g].left1 > 0;
    }
}

bool weft_coll_trees_root(const struct op *op, uint32_t segment)
{
    const struct shape *s = &op->shape;
    return s->plan->up[(size_t)(segment / s->each) * s->n + s->me] == s->me;
}

/* A leaf sends its contribution as it is. Only the root divides a mean. */
void weft_coll_trees_reduce(struct op *op, uint32_t segment)
{
    const struct shape *s = &op->shape;
    const uint16_t *up = s->plan->up + (size_t)(segment / s->each) * s->n;
    bool is_root = weft_coll_trees_root(op, segment), mean = op->call.reduction == WEFT_COLL_MEAN;
    const struct part part = weft_coll_part(s, 0, segment);
    const uint64_t at = part.at * s->elem_bytes;
    const void *from[WEFT_COLL_PLAN_RANKS_MAX];
    uint32_t sources = 0;
    if (part.elems == 0 || (!op->segment[segment].sums && !is_root)) {
        return;
    }
    for (uint32_t r = 0; r < s->n; r++) {
        if (r == s->me) {
            from[sources++] = (const uint8_t *)op->call.in + at;
        } else if (up[r] == s->me) {
            from[sources++] = weft_coll_trees_place(op, segment, r);
        }
    }
    weft_coll_fold(op->call.type, mean && !is_root ? WEFT_COLL_SUM : op->call.reduction,
                   (uint8_t *)op->call.out + at, from, sources, part.elems, s->n);
}
