/* Partition of the waiting updates into groups that are summed at aggregators.
 *
 *     O = the waiting updates, shortest first (in SYNC by clock, longest first), at most `window`
 *     for k = 0, 1, ...                            (in steps that grow, to bound the work)
 *         the first k go direct
 *         frontier = when the servers have received everything ahead
 *         repeat: a group is the longest run of O that an aggregator has received (cut-through:
 *                 has begun to receive) before the frontier; its sum is sent after the
 *                 transfers ahead of it; a single update is not a group and goes direct
 *     not in SYNC: again for each k, but a group that would have a single member gets a second one
 *         that is received after the frontier, so that the servers are idle meanwhile
 *     keep the trial with the least makespan, of equal ones the least mean completion
 *
 * Aggregation thus overlaps the transfers ahead of it (Fig. 6), and the server receives one sum
 * instead of its members. If a server's link is slower than those of the aggregators, a sum of two
 * behind a gap may end before two direct updates without one.
 *
 * A trial reserves on the real timelines and releases all its reservations at its end. Then the
 * groups of the best trial are granted, up to the limit of groups in flight. The direct updates are
 * granted by order.c (late binding).
 *
 * Source: [mlfabric] section 5, Fig. 6; cut-through is ours.
 */
#include "sched/partition.h"

#include <stdlib.h>
#include <string.h>

weft_status planner_partition_init(struct weft_planner *planner)
{
    const struct weft_planner_config *c = &planner->config;
    struct planner_partition *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return WEFT_NOMEM;
    }
    planner->partition = p;
    p->hops_max = 2 * c->window * (c->servers + 1);
    p->hops = calloc(p->hops_max, sizeof(p->hops[0]));
    return p->hops == NULL ? WEFT_NOMEM : WEFT_OK;
}

void planner_partition_fini(struct weft_planner *planner)
{
    if (planner->partition != NULL) {
        free(planner->partition->hops);
        free(planner->partition);
    }
}

/* ---- tentative reservations ------------------------------------------------------------------ */

/* Release the hops from `first` on. */
void planner_partition_undo(struct weft_planner *planner, uint32_t first)
{
    struct planner_partition *p = planner->partition;
    while (p->hops_count > first) {
        const struct planner_transfer *hop = &p->hops[--p->hops_count];
        struct weft_path path = planner_path(planner, hop->from_host, hop->to_host);
        /* The hop is released at the same time at which it was reserved, so its ends are still
         * steps, or free steps remain. */
        bool done = weft_path_release(&path, &hop->booking, 0);
        WEFT_ASSERT(done);
    }
}

/* Reserve one hop as early as possible; false = it does not fit. */
static bool place(struct weft_planner *planner, struct planner_transfer hop, uint64_t from_ns)
{
    struct planner_partition *p = planner->partition;
    struct weft_path path = planner_path(planner, hop.from_host, hop.to_host);
    if (p->hops_count == p->hops_max ||
        !weft_path_fit(&path, weft_max_u64(hop.bytes, 1), from_ns, WEFT_TIMELINE_BPS_MAX,
                       &hop.booking) ||
        !weft_path_reserve(&path, &hop.booking)) {
        return false;
    }
    p->hops[p->hops_count++] = hop;
    return true;
}

static const struct weft_booking *last_booking(const struct planner_partition *p)
{
    return &p->hops[p->hops_count - 1].booking;
}

/* A direct update: one hop to each server. end_ns_p: completion of the last hop. */
static bool place_direct(struct weft_planner *planner, uint32_t worker, uint64_t *end_ns_p)
{
    const struct planner_worker *w = &planner->workers[worker];
    uint32_t servers = planner->config.servers, first = planner->partition->hops_count;
    *end_ns_p = 0;
    for (uint32_t i = 0; i < servers; i++) {
        uint32_t s = (worker + i) % servers; /* distribute the starting points over the servers */
        struct planner_transfer hop = {.worker = worker,
                                       .server = s,
                                       .from_host = w->host,
                                       .to_host = planner->config.server_host[s],
                                       .group = WEFT_PLANNER_NONE,
                                       .bytes =
                                           planner->server_bytes[(size_t)worker * servers + s]};
        if (!place(planner, hop, planner->now_ns)) {
            planner_partition_undo(planner, first);
            return false;
        }
        *end_ns_p = weft_max_u64(*end_ns_p, last_booking(planner->partition)->end_ns);
    }
    return true;
}

/* ---- one group ------------------------------------------------------------------------------- */

/* Transmission time of the bytes over an idle path. */
static uint64_t idle_ns(struct weft_planner *planner, uint32_t from_host, uint32_t to_host,
                        uint64_t bytes)
{
    struct weft_path path = planner_path(planner, from_host, to_host);
    uint64_t rate_bps = WEFT_TIMELINE_BPS_MAX;
    for (uint32_t i = 0; i < path.count; i++) {
        rate_bps = weft_min_u64(rate_bps, path.links[i]->capacity_bps);
    }
    return weft_transfer_ns(bytes, rate_bps);
}

/* Size of a chunk of an update to this many servers, or of a sum to one of them. */
static uint64_t chunk_of(const struct weft_planner *planner, uint64_t bytes, uint32_t servers)
{
    const struct weft_planner_config *config = &planner->config;
    const uint64_t chunk = config->pieces > 0
                               ? bytes / weft_planner_pieces(config, bytes / servers)
                               : config->chunk_bytes;
    return weft_max_u64(weft_min_u64(chunk, bytes), 1);
}

/* Time when the first chunks of all members so far, this one included, have arrived. With `pieces`
 * the members are sent interleaved, so the first chunks of all arrive one after the other.
 * *chunks_ns_p: transmission time of the first chunks of the members before it. */
static uint64_t first_chunks_ns(struct weft_planner *planner, const struct planner_worker *w,
                                const struct planner_trial_group *group,
                                const struct weft_booking *booking, uint64_t *start_ns_p,
                                uint64_t *chunks_ns_p)
{
    const uint64_t chunk_bytes = chunk_of(planner, w->bytes, planner->config.servers);
    const uint64_t chunk_ns = idle_ns(planner, w->host, group->host, chunk_bytes);
    if (planner->config.pieces == 0) {
        return weft_time_add(booking->start_ns, chunk_ns);
    }
    *start_ns_p = weft_min_u64(*start_ns_p, booking->start_ns);
    *chunks_ns_p += chunk_ns;
    return weft_time_add(*start_ns_p, *chunks_ns_p);
}

/* The longest run of the order, from `first` on, of at most `most` updates that an aggregator
 * receives before the frontier. */
static void place_members(struct weft_planner *planner, struct planner_trial_group *group,
                          uint32_t most, uint64_t frontier_ns, uint64_t *begin_ns_p,
                          uint64_t *end_ns_p)
{
    struct planner_partition *p = planner->partition;
    bool is_cut_through = planner_has(planner, WEFT_PLAN_CUT_THROUGH);
    uint64_t start_ns = WEFT_NEVER, chunks_ns = 0;
    *begin_ns_p = *end_ns_p = 0;
    for (group->count = 0; group->count < most && group->first + group->count < p->count;
         group->count++) {
        const struct planner_worker *w = &planner->workers[p->order[group->first + group->count]];
        if (planner->config.groups_of_a_clock &&
            w->clock != planner->workers[p->order[group->first]].clock) {
            return;
        }
        struct planner_transfer hop = {.worker = p->order[group->first + group->count],
                                       .server = WEFT_PLANNER_NONE,
                                       .from_host = w->host,
                                       .to_host = group->host,
                                       .group = p->trial.groups,
                                       .bytes = w->bytes};
        if (!place(planner, hop, planner->now_ns)) {
            return;
        }
        const struct weft_booking *booking = last_booking(p);
        uint64_t ready_ns = booking->end_ns;
        if (is_cut_through) {
            ready_ns = weft_min_u64(ready_ns, first_chunks_ns(planner, w, group, booking, &start_ns,
                                                              &chunks_ns));
        }
        if (ready_ns > frontier_ns) {
            planner_partition_undo(planner, p->hops_count - 1);
            return;
        }
        *begin_ns_p = weft_max_u64(*begin_ns_p, ready_ns);
        *end_ns_p = weft_max_u64(*end_ns_p, booking->end_ns);
    }
}

/* The share of its bytes that each further member adds to a sum of `members`: as reported for that
 * number, else for the nearest smaller one, else for the nearest larger one. */
static uint32_t share_ppm(const struct weft_planner *planner, uint32_t members)
{
    for (uint32_t m = members; m >= 2; m--) {
        if (planner->has_sum_ppm[m]) {
            return planner->sum_ppm[m];
        }
    }
    for (uint32_t m = members + 1; m <= WEFT_PLANNER_WINDOW_MAX; m++) {
        if (planner->has_sum_ppm[m]) {
            return planner->sum_ppm[m];
        }
    }
    return planner->config.aggregate_ppm;
}

/* Bytes of the sum at one server: the largest member, plus the contribution of each other
 * member. */
static uint64_t sum_bytes(const struct weft_planner *planner, const uint32_t *members,
                          uint32_t count, uint32_t server)
{
    uint64_t largest = 0, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes =
            planner->server_bytes[(size_t)members[i] * planner->config.servers + server];
        largest = weft_max_u64(largest, bytes);
        all += bytes;
    }
    return weft_min_u64(largest + planner_share(all - largest, share_ppm(planner, count)),
                        WEFT_PLANNER_BYTES_MAX);
}

/* The transfers of the sum to the servers. They may start at begin_ns. They cannot end before the
 * last chunk, which arrives at the aggregator at end_ns, is forwarded. */
static bool place_sum(struct weft_planner *planner, const struct planner_trial_group *group,
                      uint64_t begin_ns, uint64_t end_ns, uint64_t *done_ns_p)
{
    struct planner_partition *p = planner->partition;
    *done_ns_p = 0;
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        uint32_t server_host = planner->config.server_host[s];
        struct planner_transfer hop = {
            .kind = WEFT_PLANNER_GRANT_GROUP,
            .worker = WEFT_PLANNER_NONE,
            .server = s,
            .from_host = group->host,
            .to_host = server_host,
            .group = p->trial.groups,
            .bytes = sum_bytes(planner, p->order + group->first, group->count, s)};
        if (!place(planner, hop, begin_ns)) {
            return false;
        }
        uint64_t chunk_ns =
            idle_ns(planner, group->host, server_host, chunk_of(planner, hop.bytes, 1));
        uint64_t least_end_ns = weft_time_add(end_ns, chunk_ns);
        if (planner_has(planner, WEFT_PLAN_CUT_THROUGH) && last_booking(p)->end_ns < least_end_ns) {
            /* The earliest start such that the transfer cannot end before the last chunk is
             * forwarded, even at full rate. */
            uint64_t span_ns = idle_ns(planner, group->host, server_host, hop.bytes);
            planner_partition_undo(planner, p->hops_count - 1);
            uint64_t later_ns = least_end_ns > span_ns ? least_end_ns - span_ns : 0;
            if (!place(planner, hop, weft_max_u64(begin_ns, later_ns))) {
                return false;
            }
        }
        *done_ns_p = weft_max_u64(*done_ns_p, last_booking(p)->end_ns);
    }
    return true;
}

/* ---- the delay bound ------------------------------------------------------------------------- */

bool planner_partition_bound_holds(struct weft_planner *planner, const struct planner_trial *trial,
                                   uint32_t first, uint32_t end)
{
    const struct planner_partition *p = planner->partition;
    uint64_t base = WEFT_NEVER;
    uint32_t count = 0, others = 0;
    if (!planner_is_bounded(planner)) {
        return true;
    }
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        planner->workers[planner->waiting[i]].is_in_trial = false;
    }
    for (uint32_t g = first; g < end; g++) {
        const struct planner_trial_group *group = &trial->group[g];
        for (uint32_t i = 0; i < group->count; i++) {
            struct planner_worker *w = &planner->workers[p->order[group->first + i]];
            base = weft_min_u64(base, w->base_version);
            w->is_in_trial = true;
        }
        count += group->count;
    }
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        if (!planner->workers[planner->waiting[i]].is_in_trial) {
            planner->scratch[others++] = planner->waiting[i];
        }
    }
    return planner_may_fly(planner, count, base) &&
           planner_positions_left(planner, planner->scratch, others, count);
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Try one group from order[first] on. Returns false, with nothing reserved, if it would have fewer
 * than two members. */
static bool try_group(struct weft_planner *planner, uint32_t first, uint64_t frontier_ns,
                      uint64_t *done_ns_p)
{
    struct planner_partition *p = planner->partition;
    if (p->trial.groups == p->aggregators) {
        return false;
    }
    uint32_t hops = p->hops_count;
    uint64_t begin_ns, end_ns;
    struct planner_trial_group *group = &p->trial.group[p->trial.groups];
    *group = (struct planner_trial_group){
        .first = first,
        .aggregator = p->aggregator[p->trial.groups],
        .host = planner->config.aggregator_host[p->aggregator[p->trial.groups]]};
    place_members(planner, group, p->count, frontier_ns, &begin_ns, &end_ns);
    if (group->count < 2 && first + 1 < p->count) {
        p->trial.is_short = true;
        if (p->trial.waits) {
            planner_partition_undo(planner, hops);
            frontier_ns = WEFT_NEVER;
            place_members(planner, group, 2, frontier_ns, &begin_ns, &end_ns);
        }
    }
    /* A member that would be too late, or make others too late, is not in the sum: it goes
     * directly, or in a later sum. */
    while (group->count >= 2 &&
           !planner_partition_bound_holds(planner, &p->trial, 0, p->trial.groups + 1)) {
        planner_partition_undo(planner, hops);
        place_members(planner, group, group->count - 1, frontier_ns, &begin_ns, &end_ns);
    }
    if (group->count < 2 || !place_sum(planner, group, begin_ns, end_ns, done_ns_p)) {
        planner_partition_undo(planner, hops);
        return false;
    }
    p->trial.groups++;
    return true;
}

/* Time at which all transfers reserved so far have passed the servers' links. */
static uint64_t frontier_now(const struct weft_planner *planner)
{
    uint64_t frontier_ns = planner->now_ns;
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        const struct weft_timeline *line =
            planner_link(planner, planner->config.server_host[s], false);
        frontier_ns = weft_max_u64(frontier_ns, line->steps[line->count - 1].from_ns);
    }
    return frontier_ns;
}

bool planner_partition_try(struct weft_planner *planner, uint32_t direct, bool waits)
{
    struct planner_partition *p = planner->partition;
    WEFT_ASSERT(p->hops_count == 0);
    p->trial = (struct planner_trial){.direct = direct, .waits = waits};
    uint64_t frontier_ns = frontier_now(planner), done_ns;
    for (uint32_t i = 0; i < p->count;) {
        if (i >= direct && try_group(planner, i, frontier_ns, &done_ns)) {
            uint32_t members = p->trial.group[p->trial.groups - 1].count;
            p->trial.sum_ns += members * (done_ns - planner->now_ns);
            i += members;
        } else if (place_direct(planner, p->order[i], &done_ns)) {
            p->trial.sum_ns += done_ns - planner->now_ns;
            i++;
        } else {
            return false;
        }
        frontier_ns = weft_max_u64(frontier_ns, done_ns);
    }
    p->trial.makespan_ns = frontier_ns - planner->now_ns;
    return true;
}

/* As order.c: shortest first, but in SYNC the least clock first, of equal ones the longest. */
static bool goes_before(const struct weft_planner *planner, const struct planner_worker *a,
                        const struct planner_worker *b)
{
    if (planner->config.mode == WEFT_PLANNER_SYNC && a->clock != b->clock) {
        return a->clock < b->clock;
    }
    if (a->end_ns != b->end_ns) {
        return planner->config.mode == WEFT_PLANNER_SYNC ? a->end_ns > b->end_ns
                                                         : a->end_ns < b->end_ns;
    }
    return a->asked < b->asked;
}

/* The first `window` updates of those that can be sent. */
static void make_order(struct weft_planner *planner)
{
    struct planner_partition *p = planner->partition;
    p->count = 0;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i], at = p->count;
        const struct planner_worker *w = &planner->workers[worker];
        while (at > 0 && goes_before(planner, w, &planner->workers[p->order[at - 1]])) {
            at--;
        }
        if (w->end_ns == WEFT_NEVER || at == planner->config.window) {
            continue;
        }
        p->count += p->count < planner->config.window;
        memmove(p->order + at + 1, p->order + at, (p->count - at - 1) * sizeof(p->order[0]));
        p->order[at] = worker;
    }
}

/* Aggregators without a group, fastest first. */
static void find_aggregators(struct weft_planner *planner)
{
    struct planner_partition *p = planner->partition;
    uint64_t width[PLANNER_TRIAL_GROUPS];
    p->aggregators = 0;
    for (uint32_t a = 0; a < planner->config.aggregators; a++) {
        bool is_free = !planner->aggregator_gone[a];
        for (uint32_t g = 0; g < PLANNER_GROUPS_MAX; g++) {
            is_free =
                is_free && !(planner->groups[g].id != 0 && planner->groups[g].aggregator == a);
        }
        uint32_t host = planner->config.aggregator_host[a];
        uint64_t bps = weft_min_u64(
            weft_timeline_residual(planner_link(planner, host, true), planner->now_ns),
            weft_timeline_residual(planner_link(planner, host, false), planner->now_ns));
        if (!is_free || bps == 0) {
            continue;
        }
        uint32_t at = p->aggregators;
        while (at > 0 && width[at - 1] < bps) {
            at--;
        }
        if (at == PLANNER_TRIAL_GROUPS) {
            continue;
        }
        p->aggregators += p->aggregators < PLANNER_TRIAL_GROUPS;
        memmove(width + at + 1, width + at, (p->aggregators - at - 1) * sizeof(width[0]));
        memmove(p->aggregator + at + 1, p->aggregator + at,
                (p->aggregators - at - 1) * sizeof(p->aggregator[0]));
        width[at] = bps;
        p->aggregator[at] = a;
    }
}

void planner_partition_prepare(struct weft_planner *planner)
{
    planner_estimate(planner);
    make_order(planner);
    find_aggregators(planner);
}

/* Keep the trial if it is better. Returns true if a group lacked a second member. */
static bool compare(struct weft_planner *planner, uint32_t direct, bool waits,
                    struct planner_trial *best)
{
    struct planner_partition *p = planner->partition;
    if (planner_partition_try(planner, direct, waits) &&
        (p->trial.makespan_ns < best->makespan_ns ||
         (p->trial.makespan_ns == best->makespan_ns && p->trial.sum_ns < best->sum_ns))) {
        *best = p->trial;
    }
    planner_partition_undo(planner, 0);
    return p->trial.is_short;
}

/* In SYNC a group does not wait: the other updates of the clock follow, and fill the gap. */
uint32_t planner_partition_best(struct weft_planner *planner, bool *waits_p)
{
    const uint32_t count = planner->partition->count;
    const bool may_wait = planner->config.mode != WEFT_PLANNER_SYNC;
    struct planner_trial best = {.direct = count, .makespan_ns = WEFT_NEVER};
    for (uint32_t k = 0; k <= count; k += k == count ? 1 : weft_min_u64(1 + k / 8, count - k)) {
        if (compare(planner, k, false, &best) && may_wait) {
            (void)compare(planner, k, true, &best);
        }
    }
    *waits_p = best.waits;
    return best.direct;
}
