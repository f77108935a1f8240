/* Replicas: their divergence, and the times at which their missing updates are sent.
 *
 * In a job the shards measure the divergence, delay replies to keep the bound, and request each
 * transfer (planner_replicas_asked). The rest describes WEFT_PLAN_REPLICATE, which the simulator
 * uses:
 *
 *     D = norms committed and not sent + norms being sent to the replicas + norms in flight
 *
 * D is computed over all servers together: a replication is one transfer from each server, and D
 * decreases when all have arrived. By the triangle inequality the models differ by at most D at
 * every instant, since an update in flight may be applied in part. An update is granted only if D
 * including it is at most div_max. With momentum beta a step keeps moving the model, in total by
 * the factor 1 / (1 - beta).
 *
 * A replication transfers the sum of all pending updates. It starts as late as possible: when the
 * updates that may be granted soon would raise D above div_max, or, if half of div_max is pending,
 * when the servers' uplinks are idle. Only one replication runs at a time.
 *
 * The norms from workers are forecasts: only SGD applies eta * g. At the commit they are replaced
 * by the reported norm of the applied step, if there is one.
 *
 * Source: [mlfabric] section 5, Fig. 3.
 */
#include "sched/internal.h"

uint64_t planner_norm(const struct weft_planner *planner, double norm)
{
    const struct weft_planner_config *c = &planner->config;
    if (!planner_has(planner, WEFT_PLAN_REPLICATE)) {
        return 0;
    }
    double units = c->step_size / (1 - c->momentum) * norm / c->div_max * 0x1p40;
    /* Norms beyond a thousand times the bound, including infinity, are capped, so that sums do not
     * wrap. */
    if (!(units < 0x1p50)) {
        return UINT64_C(1) << 50;
    }
    uint64_t whole = (uint64_t)units;
    return whole + ((double)whole < units);
}

static uint64_t divergence(const struct weft_planner *planner)
{
    return planner->norm_pending + planner->norm_sent + planner->norm_flying;
}

uint64_t weft_planner_divergence_ppm(const struct weft_planner *planner)
{
    uint64_t committed = planner->norm_pending + planner->norm_sent;
    uint64_t one = PLANNER_NORM_ONE, whole = committed / one, rest = committed % one;
    return whole * WEFT_PPM + weft_div_ceil_u64(rest * WEFT_PPM, one);
}

bool planner_norm_fits(struct weft_planner *planner, uint64_t norm)
{
    if (!planner_has(planner, WEFT_PLAN_REPLICATE) ||
        divergence(planner) + norm <= PLANNER_NORM_ONE) {
        return true;
    }
    planner->counters.held_divergence++;
    return false;
}

bool planner_drop_too_far(struct weft_planner *planner, uint32_t worker)
{
    if (planner->workers[worker].norm <= PLANNER_NORM_ONE) {
        return false;
    }
    planner_drop(planner, worker, WEFT_PLANNER_DROP_DIVERGENCE);
    return true;
}

void planner_norm_committed(struct weft_planner *planner, uint32_t worker, double applied_norm)
{
    if (!planner_has(planner, WEFT_PLAN_REPLICATE)) {
        return;
    }
    const struct planner_worker *w = &planner->workers[worker];
    uint32_t servers = planner->config.servers;
    uint64_t norm = applied_norm < 0 ? w->norm : planner_norm(planner, applied_norm);
    planner->norm_pending += norm;
    if (planner->norm_pending + planner->norm_sent > PLANNER_NORM_ONE && norm > w->norm) {
        planner->counters.divergence_exceeded++;
    }
    for (uint32_t s = 0; s < servers; s++) {
        uint64_t bytes = planner->server_bytes[(size_t)worker * servers + s];
        uint64_t so_far = planner->replica_bytes[s];
        uint64_t larger = weft_max_u64(bytes, so_far), smaller = weft_min_u64(bytes, so_far);
        planner->replica_bytes[s] = weft_min_u64(
            larger + planner_share(smaller, planner->config.aggregate_ppm), WEFT_PLANNER_BYTES_MAX);
    }
}

void planner_replica_delivered(struct weft_planner *planner)
{
    if (--planner->replicas_left == 0) {
        planner->norm_sent = 0;
    }
}

/* True if the updates that may be granted soon would exceed the bound: the number granted ahead,
 * and one that is committed meanwhile. Not all waiting updates are counted: with a long queue every
 * update would then be replicated separately. */
static bool is_needed(const struct weft_planner *planner)
{
    const uint64_t soon = weft_min_u64(planner->waiting_count, planner->config.ahead + 1);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        largest = weft_max_u64(largest, planner->workers[planner->waiting[i]].norm);
    }
    return divergence(planner) + soon * weft_min_u64(largest, PLANNER_NORM_ONE) > PLANNER_NORM_ONE;
}

/* True if no read waits, the servers' uplinks are free according to the plan, and half of div_max
 * is pending. A smaller transfer is not worth it, because reads outside the plan may use the links.
 */
static bool is_idle(const struct weft_planner *planner)
{
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        const struct weft_timeline *line =
            planner_link(planner, planner->config.server_host[s], true);
        if (weft_timeline_peak(line, planner->now_ns) > 0) {
            return false;
        }
    }
    return planner->reading_count == 0 && planner->norm_pending >= PLANNER_NORM_ONE / 2;
}

/* A transfer of a server to its replica, not planned yet. */
static struct planner_transfer transfer_of(const struct weft_planner *planner, uint32_t server,
                                           uint64_t bytes)
{
    return (struct planner_transfer){.kind = WEFT_PLANNER_REPLICATE,
                                     .worker = WEFT_PLANNER_NONE,
                                     .server = server,
                                     .from_host = planner->config.server_host[server],
                                     .to_host = planner->config.replica_host[server],
                                     .group = WEFT_PLANNER_NONE,
                                     .bytes = bytes};
}

static void start(struct weft_planner *planner)
{
    uint32_t first = planner->active_count, servers = planner->config.servers;
    if (!planner_has_room(planner, servers)) {
        return;
    }
    for (uint32_t s = 0; s < servers; s++) {
        struct planner_transfer what =
            transfer_of(planner, s, weft_max_u64(planner->replica_bytes[s], 1));
        if (what.to_host == WEFT_PLANNER_NONE) {
            continue;
        }
        struct weft_path path = planner_path(planner, what.from_host, what.to_host);
        if (!weft_path_fit(&path, what.bytes, planner->now_ns, WEFT_TIMELINE_BPS_MAX,
                           &what.booking) ||
            planner_transfer_new(planner, &what) == NULL) {
            planner_end_from(planner, first);
            return;
        }
    }
    planner->replicas_left = planner->active_count - first;
    planner->norm_sent = planner->replicas_left > 0 ? planner->norm_pending : 0;
    planner->norm_pending = 0;
    planner->counters.replications++;
    for (uint32_t s = 0; s < servers; s++) {
        planner->replica_bytes[s] = 0;
    }
    planner_announce_from(planner, first);
}

void planner_replicate(struct weft_planner *planner)
{
    bool has_pending = planner->norm_pending > 0 && planner->replicas_left == 0;
    if (has_pending && (is_needed(planner) || is_idle(planner))) {
        start(planner);
    }
}

/* True if the path has no reservation, and no server that shares the server's host or its replica's
 * has a transfer in progress, not even one that should have ended. */
static bool is_free(const struct weft_planner *planner, uint32_t server,
                    const struct weft_path *path)
{
    const struct weft_planner_config *c = &planner->config;
    bool is_free = true;
    for (uint32_t s = 0; s < c->servers; s++) {
        const bool shares = c->server_host[s] == c->server_host[server] ||
                            c->replica_host[s] == c->replica_host[server];
        is_free &= planner->replica_transfer[s] == 0 || !shares;
    }
    for (uint32_t i = 0; i < path->count; i++) {
        is_free &= weft_timeline_peak(path->links[i], planner->now_ns) == 0;
    }
    return is_free;
}

void planner_replicas_asked(struct weft_planner *planner)
{
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        if (planner->replica_bytes[s] == 0 || planner->replica_transfer[s] != 0 ||
            !planner_has_room(planner, 1)) {
            continue;
        }
        struct planner_transfer what = transfer_of(planner, s, planner->replica_bytes[s]);
        struct weft_path path = planner_path(planner, what.from_host, what.to_host);
        if (!is_free(planner, s, &path) ||
            !weft_path_fit(&path, what.bytes, planner->now_ns, WEFT_TIMELINE_BPS_MAX,
                           &what.booking)) {
            continue;
        }
        struct planner_transfer *transfer = planner_transfer_new(planner, &what);
        if (transfer != NULL) {
            planner->replica_transfer[s] = transfer->id;
            planner->counters.replications++;
            planner_announce(planner, transfer, false);
        }
    }
}
