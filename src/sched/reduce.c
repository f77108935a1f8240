/* Mode ALL_REDUCE: rounds.
 *
 * A worker with a request *waits*. With WEFT_PLAN_AGGREGATE, workers that wait before all are ready
 * are summed at one of them, the *holder*, which continues to wait with the sum. Little work then
 * remains when the last worker is ready. At that time one plan (sched/tree.h) sums the holders and
 * the last workers, and sends the result to all. A worker's part in the round ends when it has the
 * result; it may request the next round while others still receive.
 *
 * Source: [mlfabric] section 6.
 */
#include "sched/reduce.h"

#include <stdlib.h>
#include <string.h>

weft_status planner_reduce_init(struct weft_planner *planner)
{
    uint32_t n = planner->config.workers, edges = WEFT_TREES_MAX * n;
    struct planner_reduce *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return WEFT_NOMEM;
    }
    planner->reduce = r;
    r->words = calloc(7 * (size_t)n, sizeof(r->words[0]));
    r->times = calloc(3 * (size_t)n, sizeof(r->times[0]));
    r->nodes = calloc(n, sizeof(r->nodes[0]));
    r->edges = calloc(2 * (size_t)edges, sizeof(r->edges[0]));
    if (r->words == NULL || r->times == NULL || r->nodes == NULL || r->edges == NULL) {
        return WEFT_NOMEM;
    }
    r->node_worker = r->words + 5 * n;
    r->ready_ns = r->times + 2 * n;
    r->scratch = (struct weft_tree_scratch){.order = {r->words, r->words + n, r->words + 6 * n},
                                            .up_flows = r->words + 2 * n,
                                            .down_flows = r->words + 3 * n,
                                            .members = r->words + 4 * n,
                                            .first_ns = r->times,
                                            .last_ns = r->times + n};
    r->plan.reduce = r->edges;
    r->plan.broadcast = r->edges + edges;
    r->round = 1;
    return WEFT_OK;
}

void planner_reduce_fini(struct weft_planner *planner)
{
    if (planner->reduce != NULL) {
        free(planner->reduce->words);
        free(planner->reduce->times);
        free(planner->reduce->nodes);
        free(planner->reduce->edges);
        free(planner->reduce);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t free_bps(const struct weft_planner *planner, uint32_t host, bool is_up,
                         uint64_t from_ns)
{
    const struct weft_timeline *line = planner_link(planner, host, is_up);
    uint64_t used_bps = weft_timeline_peak(line, from_ns);
    return line->capacity_bps > used_bps ? line->capacity_bps - used_bps : 0;
}

static void add_node(struct weft_planner *planner, uint32_t worker, bool is_merged)
{
    struct planner_reduce *r = planner->reduce;
    const struct planner_worker *w = &planner->workers[worker];
    uint64_t ready_ns = weft_max_u64(planner->now_ns, r->ready_ns[worker]);
    r->node_worker[r->count] = worker;
    r->nodes[r->count++] =
        (struct weft_tree_node){.ready_ns = ready_ns,
                                .up_bps = free_bps(planner, w->host, true, ready_ns),
                                .down_bps = free_bps(planner, w->host, false, ready_ns),
                                .members = w->members,
                                .is_merged = is_merged};
}

/* All waiting workers; for the last plan of a round also those that were merged. */
static void make_nodes(struct weft_planner *planner, bool with_merged)
{
    planner->reduce->count = 0;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        add_node(planner, planner->waiting[i], false);
    }
    for (uint32_t i = 0; with_merged && i < planner->flying_count; i++) {
        if (planner->workers[planner->flying[i]].transfers_left == PLANNER_MERGED) {
            add_node(planner, planner->flying[i], true);
        }
    }
}

/* ---- transfers ------------------------------------------------------------------------------- */

static bool make_transfer(struct weft_planner *planner, const struct weft_tree_edge *edge,
                          enum weft_planner_decision_kind kind, uint64_t all_bytes)
{
    const struct planner_reduce *r = planner->reduce;
    uint32_t from = r->node_worker[edge->from], to = r->node_worker[edge->to];
    uint64_t bytes = all_bytes / r->plan.trees + (edge->tree < all_bytes % r->plan.trees);
    uint64_t span_ns = weft_max_u64(edge->end_ns - edge->start_ns, 1);
    struct planner_transfer what = {.kind = kind,
                                    .worker = kind == WEFT_PLANNER_REDUCE ? from : to,
                                    .to_worker = to,
                                    .server = WEFT_PLANNER_NONE,
                                    .from_host = planner->workers[from].host,
                                    .to_host = planner->workers[to].host,
                                    .group = WEFT_PLANNER_NONE,
                                    .round = r->round,
                                    .members = edge->members,
                                    .tree = edge->tree,
                                    .trees = r->plan.trees,
                                    .bytes = weft_max_u64(bytes, 1)};
    what.booking = (struct weft_booking){
        .start_ns = edge->start_ns,
        .end_ns = edge->start_ns + span_ns,
        .count = 1,
        .pieces = {{edge->start_ns, edge->start_ns + span_ns, weft_rate_bps(bytes, span_ns)}}};
    struct planner_transfer *transfer = planner_transfer_new(planner, &what);
    if (transfer == NULL) {
        return false;
    }
    planner_announce(planner, transfer, false);
    planner->workers[to].incoming += kind == WEFT_PLANNER_REDUCE;
    return true;
}

/* The length of the vector is the maximum over all requests. */
static uint64_t longest(const struct weft_planner *planner)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < planner->reduce->count; i++) {
        bytes = weft_max_u64(bytes, planner->workers[planner->reduce->node_worker[i]].bytes);
    }
    return bytes;
}

static bool choose(struct weft_planner *planner, bool is_last)
{
    struct planner_reduce *r = planner->reduce;
    make_nodes(planner, is_last);
    struct weft_tree_options options = {.bytes = longest(planner),
                                        .chunk_bytes = planner->config.chunk_bytes,
                                        .is_cut_through =
                                            planner_has(planner, WEFT_PLAN_CUT_THROUGH),
                                        .is_broadcast = is_last,
                                        .trees_max = is_last ? WEFT_TREES_MAX : 1};
    return weft_tree_choose(r->nodes, r->count, &options, &r->scratch, &r->plan) &&
           planner_has_room(planner, r->plan.reduce_count + r->plan.broadcast_count);
}

/* Create all of the plan's transfers, or none. */
static bool carry_out(struct weft_planner *planner)
{
    struct planner_reduce *r = planner->reduce;
    uint64_t bytes = longest(planner);
    uint32_t first = planner->active_count;
    bool done = true;
    for (uint32_t i = 0; done && i < r->plan.reduce_count; i++) {
        done = make_transfer(planner, &r->plan.reduce[i], WEFT_PLANNER_REDUCE, bytes);
    }
    for (uint32_t i = 0; done && i < r->plan.broadcast_count; i++) {
        done = make_transfer(planner, &r->plan.broadcast[i], WEFT_PLANNER_BROADCAST, bytes);
    }
    while (!done && planner->active_count > first) {
        uint32_t slot = planner->active[planner->active_count - 1];
        struct planner_transfer *transfer = &planner->transfers[slot];
        planner->workers[transfer->to_worker].incoming -= transfer->kind == WEFT_PLANNER_REDUCE;
        planner_transfer_end(planner, transfer);
    }
    return done;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Sum the ready contributions at one of the waiting workers. */
static void merge_early(struct weft_planner *planner)
{
    struct planner_reduce *r = planner->reduce;
    if (planner->waiting_count < 2 || !choose(planner, false) || !carry_out(planner)) {
        return;
    }
    uint32_t holder = r->node_worker[r->plan.root[0]];
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t worker = r->node_worker[i];
        if (worker == holder) {
            continue;
        }
        planner->workers[holder].members += planner->workers[worker].members;
        planner_depart(planner, worker);
        planner->workers[worker].transfers_left = PLANNER_MERGED;
        r->merged++;
    }
    r->ready_ns[holder] = r->plan.end_ns;
}

static void begin_round(struct weft_planner *planner)
{
    struct planner_reduce *r = planner->reduce;
    r->round++;
    r->merged = 0;
    memset(r->ready_ns, 0, planner->config.workers * sizeof(r->ready_ns[0]));
}

/* End a worker's part in the round when it expects no more data. */
static void end_if_done(struct weft_planner *planner, uint32_t worker)
{
    struct planner_worker *w = &planner->workers[worker];
    if (w->phase == WORKER_FLYING && w->incoming == 0 && w->transfers_left == 0) {
        planner->counters.commits++;
        w->commits++;
        planner_end_flight(planner, worker);
    }
}

static void finish_round(struct weft_planner *planner)
{
    struct planner_reduce *r = planner->reduce;
    if (!choose(planner, true) || !carry_out(planner)) {
        return;
    }
    while (planner->waiting_count > 0) {
        planner_depart(planner, planner->waiting[0]);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        struct planner_worker *w = &planner->workers[r->node_worker[i]];
        w->transfers_left = r->plan.trees;
        for (uint32_t t = 0; t < r->plan.trees; t++) {
            w->transfers_left -= r->plan.root[t] == i;
        }
        end_if_done(planner, r->node_worker[i]); /* it is done at once if it is the only node */
    }
    planner->version++;
    planner->counters.rounds++;
    begin_round(planner);
}

void planner_reduce(struct weft_planner *planner)
{
    struct planner_reduce *r = planner->reduce;
    uint32_t expected = 0;
    for (uint32_t w = 0; w < planner->config.workers; w++) {
        expected += !planner->workers[w].is_gone;
    }
    if (planner->waiting_count > 0 && planner->waiting_count + r->merged == expected) {
        finish_round(planner);
    } else if (planner_has(planner, WEFT_PLAN_AGGREGATE)) {
        merge_early(planner);
    }
}

void planner_reduce_delivered(struct weft_planner *planner, const struct planner_transfer *transfer)
{
    struct planner_worker *w = &planner->workers[transfer->to_worker];
    if (transfer->kind == WEFT_PLANNER_REDUCE) {
        w->incoming--;
    } else {
        w->transfers_left--;
    }
    end_if_done(planner, transfer->to_worker);
}

void planner_reduce_worker_left(struct weft_planner *planner)
{
    while (planner->active_count > 0) {
        planner_transfer_end(planner, &planner->transfers[planner->active[0]]);
    }
    while (planner->flying_count > 0) {
        planner_end_flight(planner, planner->flying[0]);
    }
    while (planner->waiting_count > 0) {
        uint32_t worker = planner->waiting[0];
        planner_set_remove(planner->waiting, &planner->waiting_count, worker);
        planner->workers[worker].phase = WORKER_IDLE;
        planner->outstanding--;
    }
    for (uint32_t w = 0; w < planner->config.workers; w++) {
        planner->workers[w].incoming = 0;
    }
    begin_round(planner);
}
