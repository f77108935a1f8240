#include "sched/collective.h"

#include "base/assert.h"
#include "base/units.h"
#include "sched/tree.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum { RATE_UNKNOWN_BPS = 1000000000, TRY_MAX = 44, STAGED_MAX = 4 };

/* A host, or a rank if all ranks are on one host. */
struct node {
    uint64_t name; /* of the host */
    uint64_t up_bps;
    uint64_t down_bps;
    uint64_t ready_ns;
    uint32_t ranks;
    uint32_t first;  /* its ranks are member[first .. first + ranks) */
    uint64_t weight; /* fraction of the vector, in WHOLE */
};

struct maker {
    const struct weft_collective_options *options;
    struct weft_collective_plan *plan;
    uint32_t n;
    uint32_t count; /* of nodes */
    uint32_t most;  /* ranks of a node */
    struct node *node;   /* (n,) */
    uint16_t *member;    /* (n,): ranks, node by node */
    uint32_t *node_of;   /* (n,) */
    uint64_t *fraction;  /* (n,): of each node, for the slices */
    struct weft_tree_node *tree_node;
    struct weft_tree_edge *edges;
    struct weft_tree_scratch scratch;
    struct weft_tree_plan tree;
};

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t room_for(uint8_t **at, size_t bytes, void **out_p)
{
    bytes = (bytes + 7) / 8 * 8;
    if (at != NULL) {
        *out_p = *at;
        *at += bytes;
    }
    return bytes;
}

static uint32_t parts_max(uint32_t n)
{
    return n > WEFT_COLLECTIVE_TREE_RANKS_MAX ? 0 : WEFT_COLLECTIVE_PARTS_MAX;
}

/* Divide the memory; at NULL: only add up its size. */
static size_t divide(uint32_t n, uint8_t *memory, struct maker *m)
{
    struct maker none = {.n = n};
    struct weft_collective_plan plan;
    uint8_t *at = memory, **next = memory != NULL ? &at : NULL;
    size_t bytes = 0, cells = (size_t)parts_max(n) * n;
    none.plan = &plan;
    m = m != NULL ? m : &none;
    void *p = NULL;
#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        bytes += room_for(next, (count) * sizeof(*(field)), &p);                                   \
        (field) = p;                                                                               \
    } while (0)
    TAKE(m->plan->slice, (size_t)n + 1);
    TAKE(m->plan->part, (size_t)parts_max(n) + 1);
    TAKE(m->plan->up, cells);
    TAKE(m->plan->down, cells);
    TAKE(m->plan->row, cells);
    TAKE(m->node, (size_t)n);
    TAKE(m->member, (size_t)n);
    TAKE(m->node_of, (size_t)n);
    TAKE(m->fraction, (size_t)n);
    TAKE(m->tree_node, (size_t)n);
    TAKE(m->edges, (size_t)2 * WEFT_TREES_MAX * n);
    for (uint32_t i = 0; i <= WEFT_TREES_MAX; i++) {
        TAKE(m->scratch.order[i], (size_t)n);
    }
    TAKE(m->scratch.up_flows, (size_t)n);
    TAKE(m->scratch.down_flows, (size_t)n);
    TAKE(m->scratch.members, (size_t)n);
    TAKE(m->scratch.first_ns, (size_t)n);
    TAKE(m->scratch.last_ns, (size_t)n);
#undef TAKE
    m->tree.reduce = m->edges;
    m->tree.broadcast = m->edges != NULL ? m->edges + (size_t)WEFT_TREES_MAX * n : NULL;
    return bytes;
}

size_t weft_collective_plan_bytes(uint32_t ranks)
{
    return divide(ranks, NULL, NULL);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool rate_valid(uint64_t rate_bps)
{
    return rate_bps == 0 ||
           (rate_bps >= WEFT_COLLECTIVE_BPS_MIN && rate_bps <= WEFT_COLLECTIVE_BPS_MAX);
}

const char *weft_collective_check(const struct weft_collective_rank *ranks, uint32_t count,
                                  uint32_t n, const struct weft_collective_options *options)
{
    if (n < 1 || n > WEFT_COLLECTIVE_RANKS_MAX) {
        return "a plan has 1 to 1,024 ranks";
    }
    if (options->bytes < 1 || options->bytes > WEFT_COLLECTIVE_BYTES_MAX ||
        options->chunk_bytes < 1) {
        return "a plan's vector has 1 byte to 64 GiB";
    }
    if ((unsigned)options->form > WEFT_COLLECTIVE_TREES) {
        return "unknown form of a plan";
    }
    if (options->form == WEFT_COLLECTIVE_TREES && n > WEFT_COLLECTIVE_TREE_RANKS_MAX) {
        return "a plan with trees has at most 256 ranks";
    }
    for (uint32_t r = 0; r < count; r++) {
        if (!rate_valid(ranks[r].up_bps) || !rate_valid(ranks[r].down_bps)) {
            return "a link's rate is 1 Mbit/s to 10 Tbit/s, or 0 if it is not known";
        }
        if (ranks[r].ready_ns > WEFT_COLLECTIVE_READY_MAX) {
            return "a rank is more than an hour late";
        }
    }
    return NULL;
}

static uint64_t either(uint64_t rate_bps, uint64_t other_bps)
{
    return rate_bps != 0 ? rate_bps : other_bps;
}

/* The ranks of a host know the same link: of different rates the lower one counts. */
static void join(struct node *node, const struct weft_collective_rank *rank, uint64_t unknown_bps)
{
    uint64_t up_bps = either(rank->up_bps, either(rank->down_bps, unknown_bps));
    uint64_t down_bps = either(rank->down_bps, up_bps);
    bool first = node->ranks == 0;
    node->up_bps = first ? up_bps : weft_min_u64(node->up_bps, up_bps);
    node->down_bps = first ? down_bps : weft_min_u64(node->down_bps, down_bps);
    node->ready_ns = weft_max_u64(node->ready_ns, rank->ready_ns);
    node->ranks++;
}

static void make_nodes(struct maker *m, const struct weft_collective_rank *ranks)
{
    uint64_t fastest_bps = 0, earliest_ns = WEFT_NEVER;
    bool one = true;
    for (uint32_t r = 0; r < m->n; r++) {
        fastest_bps = weft_max_u64(fastest_bps, weft_max_u64(ranks[r].up_bps, ranks[r].down_bps));
        earliest_ns = weft_min_u64(earliest_ns, ranks[r].ready_ns);
        one = one && ranks[r].host == ranks[0].host;
    }
    m->count = 0;
    for (uint32_t r = 0; r < m->n; r++) {
        uint32_t k = 0;
        while (k < m->count && (one || m->node[k].name != ranks[r].host)) {
            k++;
        }
        if (k == m->count) {
            m->node[m->count++] = (struct node){.name = ranks[r].host};
        }
        struct weft_collective_rank rank = ranks[r];
        rank.ready_ns -= earliest_ns;
        join(&m->node[k], &rank, either(fastest_bps, RATE_UNKNOWN_BPS));
        m->node_of[r] = k;
    }
    uint32_t first = 0;
    m->most = 0;
    for (uint32_t k = 0; k < m->count; k++) {
        m->node[k].first = first;
        m->most = m->node[k].ranks > m->most ? m->node[k].ranks : m->most;
        for (uint32_t r = 0; r < m->n; r++) {
            if (m->node_of[r] == k) {
                m->member[first++] = (uint16_t)r;
            }
        }
    }
}

static uint32_t leader(const struct maker *m, uint32_t node, uint32_t turn)
{
    const struct node *k = &m->node[node];
    return m->member[k->first + turn % k->ranks];
}

/* ---- fractions ------------------------------------------------------------------------------- */

/* The largest fraction, in WHOLE, that a node may own: each of its ranks holds the contributions of
 * the others to its part of it, at most STAGED_MAX vectors. others: the ranks, or hosts, that
 * send to it. normalize may add a seventh. */
static uint64_t fraction_max(const struct node *node, uint64_t others)
{
    uint64_t most = others > 0 ? (uint64_t)STAGED_MAX * node->ranks * WEFT_COLLECTIVE_WHOLE / others
                               : WEFT_COLLECTIVE_WHOLE;
    return weft_min_u64(most, WEFT_COLLECTIVE_WHOLE);
}

/* The largest fraction, in WHOLE, that a node's link can carry if all is to end at end_ns; false:
 * it cannot even take part. It carries base + slope x fraction vectors in each direction. */
static bool can_own(const struct maker *m, const struct node *node, uint64_t end_ns, uint64_t base,
                    uint64_t slope, uint64_t *fraction_p)
{
    uint64_t rate_bps = weft_min_u64(node->up_bps, node->down_bps);
    if (end_ns < node->ready_ns) {
        return false;
    }
    /* Vectors that the link carries in this time, in WHOLE. */
    wide carried = (wide)(end_ns - node->ready_ns) * rate_bps / WEFT_NS_PER_S *
                   WEFT_COLLECTIVE_WHOLE / ((wide)m->options->bytes * 8);
    wide least = (wide)base * WEFT_COLLECTIVE_WHOLE;
    if (carried < least) {
        return false;
    }
    wide fraction = slope == 0 ? WEFT_COLLECTIVE_WHOLE : (carried - least) / slope;
    *fraction_p =
        fraction > WEFT_COLLECTIVE_WHOLE ? WEFT_COLLECTIVE_WHOLE : (uint64_t)fraction;
    return true;
}

/* direct: every rank sends to every owner; else only one rank of each node. */
static bool can_end(const struct maker *m, uint64_t end_ns, bool direct, uint64_t *fraction)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < m->count; k++) {
        const struct node *node = &m->node[k];
        uint64_t base = direct ? node->ranks : 1, all = direct ? m->n : m->count;
        base = m->count == 1 ? 0 : base;
        uint64_t slope = all > 2 * base ? all - 2 * base : 0;
        if (!can_own(m, node, end_ns, base, slope, &fraction[k])) {
            return false;
        }
        fraction[k] = weft_min_u64(fraction[k], fraction_max(node, all - 1));
        sum += fraction[k];
    }
    return sum >= WEFT_COLLECTIVE_WHOLE;
}

/* Fractions that make their sum one. Those below an eighth of an equal one are left out: their
 * messages would be short. */
static void normalize(const struct maker *m, uint64_t *fraction)
{
    uint64_t sum = 0, least = WEFT_COLLECTIVE_WHOLE / m->count / 8;
    for (uint32_t k = 0; k < m->count; k++) {
        fraction[k] = fraction[k] >= least ? fraction[k] : 0;
        sum += fraction[k];
    }
    uint64_t at = 0, left = WEFT_COLLECTIVE_WHOLE, seen = 0;
    for (uint32_t k = 0; k < m->count; k++) {
        seen += fraction[k];
        uint64_t end = (uint64_t)((wide)WEFT_COLLECTIVE_WHOLE * seen / sum);
        fraction[k] = end - at;
        left -= end - at;
        at = end;
    }
    WEFT_ASSERT(left == 0);
}

/* The least time, and the fractions of all nodes. */
static uint64_t fill(const struct maker *m, bool direct, uint64_t *fraction)
{
    uint64_t low_ns = 0, high_ns = 1;
    while (!can_end(m, high_ns, direct, fraction)) {
        WEFT_ASSERT(high_ns < UINT64_C(1) << 62);
        low_ns = high_ns;
        high_ns *= 2;
    }
    while (low_ns + 1 < high_ns) {
        uint64_t middle_ns = low_ns + (high_ns - low_ns) / 2;
        if (can_end(m, middle_ns, direct, fraction)) {
            high_ns = middle_ns;
        } else {
            low_ns = middle_ns;
        }
    }
    bool can = can_end(m, high_ns, direct, fraction);
    WEFT_ASSERT(can);
    normalize(m, fraction);
    return high_ns;
}

/* All slices are equally long. */
static uint64_t equal_ns(const struct maker *m)
{
    uint64_t end_ns = 0;
    for (uint32_t k = 0; k < m->count && m->count > 1; k++) {
        const struct node *node = &m->node[k];
        wide bits = (wide)2 * node->ranks * (m->n - node->ranks) * m->options->bytes * 8 / m->n;
        uint64_t rate_bps = weft_min_u64(node->up_bps, node->down_bps);
        end_ns = weft_max_u64(end_ns, node->ready_ns +
                                          (uint64_t)(bits * WEFT_NS_PER_S / rate_bps));
    }
    return end_ns;
}

static void set_slices(struct maker *m)
{
    uint64_t at = 0;
    for (uint32_t r = 0; r < m->n; r++) {
        const struct node *node = &m->node[m->node_of[r]];
        m->plan->slice[r] = (uint32_t)at;
        at += m->fraction[m->node_of[r]] / node->ranks;
    }
    m->plan->slice[m->n] = WEFT_COLLECTIVE_WHOLE;
    /* What the divisions have left belongs to the last rank that owns anything. */
    for (uint32_t r = m->n; r-- > 0 && m->fraction[m->node_of[r]] == 0;) {
        m->plan->slice[r] = WEFT_COLLECTIVE_WHOLE;
    }
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Begin a part: every rank is the child of its host's leader; the leaders have no parent yet. */
static uint16_t *part_begin(struct maker *m, uint32_t turn, uint16_t **down_p)
{
    struct weft_collective_plan *plan = m->plan;
    uint16_t *up = plan->up + (size_t)plan->parts * m->n;
    uint16_t *down = plan->down + (size_t)plan->parts * m->n;
    for (uint32_t r = 0; r < m->n; r++) {
        up[r] = down[r] = (uint16_t)leader(m, m->node_of[r], turn);
    }
    *down_p = down;
    return up;
}

static void part_end(struct maker *m, uint64_t end)
{
    struct weft_collective_plan *plan = m->plan;
    const uint16_t *up = plan->up + (size_t)plan->parts * m->n;
    uint16_t *row = plan->row + (size_t)plan->parts * m->n;
    uint32_t *children = m->scratch.members;
    memset(children, 0, m->n * sizeof(*children));
    for (uint32_t r = 0; r < m->n; r++) {
        uint32_t depth = 0;
        row[r] = up[r] == r ? 0 : (uint16_t)children[up[r]]++;
        for (uint32_t at = r; up[at] != at; at = up[at]) {
            depth++;
        }
        plan->depth = depth > plan->depth ? depth : plan->depth;
    }
    plan->part[++plan->parts] = (uint32_t)end;
}

/* One part for each turn of the leaders of each host that owns anything. */
static void make_host_trees(struct maker *m)
{
    uint32_t owners = 0;
    for (uint32_t k = 0; k < m->count; k++) {
        owners += m->node[k].weight > 0;
    }
    uint32_t turns = (uint32_t)weft_min_u64(m->most, WEFT_COLLECTIVE_PARTS_MAX / owners);
    uint64_t at = 0;
    for (uint32_t k = 0; k < m->count; k++) {
        for (uint32_t turn = 0; turn < turns && m->node[k].weight > 0; turn++) {
            uint16_t *down, *up = part_begin(m, turn, &down);
            uint16_t root = (uint16_t)leader(m, k, turn);
            for (uint32_t other = 0; other < m->count; other++) {
                up[leader(m, other, turn)] = down[leader(m, other, turn)] = root;
            }
            part_end(m, at + m->node[k].weight * (turn + 1) / turns);
        }
        at += m->node[k].weight;
    }
}

static void make_deep_trees(struct maker *m)
{
    const struct weft_tree_plan *tree = &m->tree;
    uint32_t turns = (uint32_t)weft_min_u64(m->most, WEFT_COLLECTIVE_PARTS_MAX / tree->trees);
    uint32_t parts = tree->trees * turns;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t turn = i / tree->trees;
        uint16_t *down, *up = part_begin(m, turn, &down);
        for (uint32_t e = 0; e < tree->reduce_count; e++) {
            const struct weft_tree_edge *edge = &tree->reduce[e];
            if (edge->tree == i % tree->trees) {
                up[leader(m, edge->from, turn)] = (uint16_t)leader(m, edge->to, turn);
            }
        }
        for (uint32_t e = 0; e < tree->broadcast_count; e++) {
            const struct weft_tree_edge *edge = &tree->broadcast[e];
            if (edge->tree == i % tree->trees) {
                down[leader(m, edge->to, turn)] = (uint16_t)leader(m, edge->from, turn);
            }
        }
        part_end(m, (uint64_t)WEFT_COLLECTIVE_WHOLE * (i + 1) / parts);
    }
}

/* Time of the best deep trees; WEFT_NEVER: none. */
static uint64_t choose_deep(struct maker *m)
{
    for (uint32_t k = 0; k < m->count; k++) {
        m->tree_node[k] = (struct weft_tree_node){.ready_ns = m->node[k].ready_ns,
                                                  .up_bps = m->node[k].up_bps,
                                                  .down_bps = m->node[k].down_bps,
                                                  .members = m->node[k].ranks};
    }
    const struct weft_tree_options options = {.bytes = m->options->bytes,
                                              .chunk_bytes = m->options->chunk_bytes,
                                              .is_cut_through = true,
                                              .is_broadcast = true,
                                              .trees_max = WEFT_TREES_MAX};
    if (m->count < 2 ||
        !weft_tree_choose(m->tree_node, m->count, &options, &m->scratch, &m->tree)) {
        return WEFT_NEVER;
    }
    uint32_t depth = 0;
    for (uint32_t reach = 1, level = 1; reach < m->count; depth++) {
        level *= m->tree.fanout;
        reach += level;
    }
    return weft_time_add(m->tree.end_ns, 2 * depth * m->options->hop_ns);
}

static void plan_trees(struct maker *m, uint64_t *fraction)
{
    uint64_t hosts_ns = WEFT_NEVER;
    if (m->count < m->n && m->count > 1) {
        hosts_ns = weft_time_add(fill(m, false, fraction), 4 * m->options->hop_ns);
        for (uint32_t k = 0; k < m->count; k++) {
            m->node[k].weight = fraction[k];
        }
    }
    uint64_t deep_ns = choose_deep(m);
    m->plan->trees_ns = weft_min_u64(hosts_ns, deep_ns);
    bool wins = m->plan->trees_ns < m->plan->slices_ns - m->plan->slices_ns / 20;
    if (m->plan->trees_ns == WEFT_NEVER ||
        (m->options->form == WEFT_COLLECTIVE_AUTO && !wins)) {
        return;
    }
    m->plan->form = WEFT_COLLECTIVE_TREES;
    m->plan->part[0] = 0;
    if (hosts_ns <= deep_ns) {
        make_host_trees(m);
    } else {
        make_deep_trees(m);
    }
}

const char *weft_collective_plan_make(const struct weft_collective_rank *ranks, uint32_t n,
                                      const struct weft_collective_options *options, void *memory,
                                      struct weft_collective_plan *plan_p)
{
    const char *wrong = weft_collective_check(ranks, n, n, options);
    if (wrong != NULL) {
        return wrong;
    }
    struct maker m = {.options = options, .plan = plan_p, .n = n};
    *plan_p = (struct weft_collective_plan){
        .form = WEFT_COLLECTIVE_SLICES, .ranks = n, .trees_ns = WEFT_NEVER};
    (void)divide(n, memory, &m);
    make_nodes(&m, ranks);
    plan_p->hosts = m.count;
    plan_p->equal_ns = weft_time_add(equal_ns(&m), 2 * options->hop_ns);
    plan_p->slices_ns = weft_time_add(fill(&m, true, m.fraction), 2 * options->hop_ns);
    set_slices(&m);
    if (options->form != WEFT_COLLECTIVE_SLICES && n <= WEFT_COLLECTIVE_TREE_RANKS_MAX && n > 1) {
        plan_trees(&m, m.scratch.first_ns);
    }
    return NULL;
}
