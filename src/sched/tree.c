#include "sched/tree.h"

#include "base/assert.h"
#include "sched/timeline.h"

#include <string.h>

struct candidate {
    uint32_t trees;
    uint32_t fanout;
};

struct evaluation {
    const struct weft_tree_node *nodes;
    uint32_t count;  /* of all nodes */
    uint32_t joined; /* nodes that are not merged: the first entries of order[0] */
    const struct weft_tree_options *options;
    const struct weft_tree_scratch *scratch;
    struct weft_tree_plan *plan;
    bool keeps_edges;
};

/* ---- order ----------------------------------------------------------------------------------- */

static uint64_t width_of(const struct weft_tree_node *node)
{
    return weft_min_u64(node->up_bps, node->down_bps);
}

/* From the root to the leaves: unmerged before merged, fast before slow, late before early. */
static bool is_before(const struct weft_tree_node *a, const struct weft_tree_node *b,
                      uint64_t slow_bps)
{
    if (a->is_merged != b->is_merged) {
        return b->is_merged;
    }
    bool a_slow = width_of(a) < slow_bps, b_slow = width_of(b) < slow_bps;
    return a_slow != b_slow ? b_slow : a->ready_ns > b->ready_ns;
}

static void make_orders(struct evaluation *e)
{
    uint32_t *order = e->scratch->order[0], *mirror = e->scratch->order[1];
    uint64_t widest_bps = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        widest_bps = weft_max_u64(widest_bps, width_of(&e->nodes[i]));
    }
    e->joined = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t at = i;
        while (at > 0 && is_before(&e->nodes[i], &e->nodes[order[at - 1]], widest_bps / 2)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        e->joined += !e->nodes[i].is_merged;
    }
    /* The second tree uses the reverse order, so that its inner nodes are leaves of the first. Its
     * broadcast starts at the same root, and the merged nodes follow. */
    for (uint32_t i = 0; i < e->count; i++) {
        mirror[i] = order[i < e->joined ? e->joined - 1 - i : i];
    }
    e->scratch->order[2][0] = mirror[0];
    for (uint32_t i = e->count, at = 1; i-- > 0;) {
        if (order[i] != mirror[0]) {
            e->scratch->order[2][at++] = order[i];
        }
    }
}

/* In the order of tree t, node i is a child of node (i - 1) / fanout. */
static const uint32_t *broadcast_order(const struct evaluation *e, uint32_t tree)
{
    return e->scratch->order[tree == 0 ? 0 : 2];
}

/* ---- one candidate --------------------------------------------------------------------------- */

static void count_flows(const struct evaluation *e, const struct candidate *c, bool reduces,
                        bool broadcasts)
{
    const struct weft_tree_scratch *s = e->scratch;
    memset(s->up_flows, 0, e->count * sizeof(s->up_flows[0]));
    memset(s->down_flows, 0, e->count * sizeof(s->down_flows[0]));
    for (uint32_t t = 0; t < c->trees; t++) {
        const uint32_t *up = s->order[t], *down = broadcast_order(e, t);
        for (uint32_t i = 1; reduces && i < e->joined; i++) {
            s->up_flows[up[i]]++;
            s->down_flows[up[(i - 1) / c->fanout]]++;
        }
        for (uint32_t i = 1; broadcasts && i < e->count; i++) {
            s->up_flows[down[(i - 1) / c->fanout]]++;
            s->down_flows[down[i]]++;
        }
    }
}

static uint64_t share_bps(const struct evaluation *e, uint32_t from, uint32_t to)
{
    return weft_min_u64(e->nodes[from].up_bps / e->scratch->up_flows[from],
                        e->nodes[to].down_bps / e->scratch->down_flows[to]);
}

/* Transfer one part between two nodes; false = it never completes. */
static bool pass(const struct evaluation *e, uint32_t tree, const struct candidate *c,
                 uint32_t from, uint32_t to, struct weft_tree_edge *edge_p)
{
    const struct weft_tree_scratch *s = e->scratch;
    uint64_t bytes = weft_div_ceil_u64(e->options->bytes, c->trees);
    uint64_t rate_bps = share_bps(e, from, to);
    if (rate_bps == 0) {
        return false;
    }
    uint64_t span_ns = weft_transfer_ns(bytes, rate_bps), chunk_ns = span_ns;
    uint64_t start_ns = s->last_ns[from];
    if (e->options->is_cut_through) {
        chunk_ns = weft_transfer_ns(weft_min_u64(e->options->chunk_bytes, bytes), rate_bps);
        start_ns = s->first_ns[from];
    }
    /* A transfer to a node starts no earlier than the node's own contribution is ready. */
    start_ns = weft_max_u64(start_ns, e->nodes[to].ready_ns);
    uint64_t end_ns =
        weft_max_u64(weft_time_add(start_ns, span_ns), weft_time_add(s->last_ns[from], chunk_ns));
    *edge_p = (struct weft_tree_edge){.from = from,
                                      .to = to,
                                      .tree = tree,
                                      .members = s->members[from],
                                      .start_ns = start_ns,
                                      .end_ns = end_ns};
    s->first_ns[to] = weft_max_u64(s->first_ns[to], weft_time_add(start_ns, chunk_ns));
    s->last_ns[to] = weft_max_u64(s->last_ns[to], end_ns);
    return end_ns != WEFT_NEVER;
}

static bool reduce(const struct evaluation *e, uint32_t tree, const struct candidate *c)
{
    const struct weft_tree_scratch *s = e->scratch;
    struct weft_tree_edge edge;
    for (uint32_t i = 0; i < e->count; i++) {
        s->first_ns[i] = s->last_ns[i] = e->nodes[i].ready_ns;
        s->members[i] = e->nodes[i].members;
    }
    for (uint32_t i = e->joined; i-- > 1;) { /* children before their parents */
        uint32_t from = s->order[tree][i], to = s->order[tree][(i - 1) / c->fanout];
        if (!pass(e, tree, c, from, to, &edge)) {
            return false;
        }
        s->members[to] += s->members[from];
        if (e->keeps_edges) {
            e->plan->reduce[e->plan->reduce_count++] = edge;
        }
    }
    return true;
}

static bool broadcast(const struct evaluation *e, uint32_t tree, const struct candidate *c)
{
    const struct weft_tree_scratch *s = e->scratch;
    struct weft_tree_edge edge;
    const uint32_t *order = broadcast_order(e, tree);
    for (uint32_t i = 1; i < e->count; i++) {
        uint32_t to = order[i], from = order[(i - 1) / c->fanout];
        s->first_ns[to] = s->last_ns[to] = 0; /* the times of the node's own sum no longer apply */
        if (!pass(e, tree, c, from, to, &edge)) {
            return false;
        }
        if (e->keeps_edges) {
            e->plan->broadcast[e->plan->broadcast_count++] = edge;
        }
    }
    return true;
}

/* Reduce in all trees. Returns the times of the first and the last chunk at each root. */
static bool reduce_all(struct evaluation *e, const struct candidate *c,
                       uint64_t first_ns[WEFT_TREES_MAX], uint64_t last_ns[WEFT_TREES_MAX])
{
    const struct weft_tree_scratch *s = e->scratch;
    bool overlaps = e->options->is_cut_through;
    count_flows(e, c, true, overlaps && e->options->is_broadcast);
    uint64_t all_ns = 0;
    for (uint32_t t = 0; t < c->trees; t++) {
        if (!reduce(e, t, c)) {
            return false;
        }
        e->plan->root[t] = s->order[t][0];
        first_ns[t] = s->first_ns[e->plan->root[t]];
        last_ns[t] = s->last_ns[e->plan->root[t]];
        all_ns = weft_max_u64(all_ns, last_ns[t]);
    }
    /* Without overlap, broadcasts start when the reductions of both trees are complete. */
    for (uint32_t t = 0; t < c->trees && !overlaps; t++) {
        first_ns[t] = last_ns[t] = all_ns;
    }
    return true;
}

/* Time at which all nodes have the result; WEFT_NEVER = never. */
static uint64_t evaluate(struct evaluation *e, const struct candidate *c)
{
    const struct weft_tree_scratch *s = e->scratch;
    uint64_t first_ns[WEFT_TREES_MAX], last_ns[WEFT_TREES_MAX], end_ns = 0;
    if (!reduce_all(e, c, first_ns, last_ns)) {
        return WEFT_NEVER;
    }
    count_flows(e, c, e->options->is_cut_through, true);
    for (uint32_t t = 0; t < c->trees; t++) {
        end_ns = weft_max_u64(end_ns, last_ns[t]);
        s->first_ns[e->plan->root[t]] = first_ns[t];
        s->last_ns[e->plan->root[t]] = last_ns[t];
        if (!e->options->is_broadcast) {
            continue;
        }
        if (!broadcast(e, t, c)) {
            return WEFT_NEVER;
        }
        for (uint32_t i = 0; i < e->count; i++) {
            end_ns = weft_max_u64(end_ns, s->last_ns[i]);
        }
    }
    return end_ns;
}

bool weft_tree_choose(const struct weft_tree_node *nodes, uint32_t count,
                      const struct weft_tree_options *options,
                      const struct weft_tree_scratch *scratch, struct weft_tree_plan *plan_p)
{
    /* A larger fan-out would exceed the steps of a timeline and be rejected. */
    static const uint32_t fanouts[] = {1, 2, 3, 4, 6, 8, 16};
    struct evaluation e = {
        .nodes = nodes, .count = count, .options = options, .scratch = scratch, .plan = plan_p};
    struct candidate best = {0};
    plan_p->reduce_count = plan_p->broadcast_count = 0;
    plan_p->end_ns = WEFT_NEVER;
    make_orders(&e);
    WEFT_ASSERT(e.joined > 0 && options->bytes > 0 && options->trees_max <= WEFT_TREES_MAX);
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(fanouts); f++) {
        for (uint32_t trees = 1; trees <= options->trees_max; trees++) {
            struct candidate c = {.trees = trees, .fanout = fanouts[f]};
            uint64_t end_ns = evaluate(&e, &c);
            if (end_ns < plan_p->end_ns) {
                plan_p->end_ns = end_ns;
                best = c;
            }
        }
    }
    if (plan_p->end_ns == WEFT_NEVER) {
        return false;
    }
    e.keeps_edges = true;
    plan_p->trees = best.trees;
    plan_p->fanout = best.fanout;
    (void)evaluate(&e, &best);
    return true;
}
