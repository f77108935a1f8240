/* Admission of reads: the credits limit the number of workers between read and commit. The oldest
 * request is first; in SSP the lowest clock, then the oldest request.
 *
 * SSP: a worker that is ahead waits at the servers for those behind it, and keeps its credit
 * meanwhile. A worker that is behind all holders of credits is therefore admitted without a credit.
 * This excludes a deadlock: a worker at the least clock never waits at a server, and either such a
 * worker has read already, or the first of them that requests a read is admitted.
 */
#include "sched/internal.h"

static bool is_ssp(const struct weft_planner *planner)
{
    return planner->config.mode == WEFT_PLANNER_SSP;
}

/* True if a request precedes another. */
static bool goes_before(const struct weft_planner *planner, uint32_t worker, uint32_t other)
{
    const struct planner_worker *w = &planner->workers[worker], *o = &planner->workers[other];
    if (is_ssp(planner) && w->step != o->step) {
        return w->step < o->step;
    }
    return w->asked < o->asked;
}

/* The next request after a given one, in the order of admission; WEFT_PLANNER_NONE as `after` = the
 * first, as result = none. */
static uint32_t next_read(const struct weft_planner *planner, uint32_t after)
{
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->reading_count; i++) {
        uint32_t worker = planner->reading[i];
        if (after != WEFT_PLANNER_NONE && !goes_before(planner, after, worker)) {
            continue;
        }
        if (best == WEFT_PLANNER_NONE || goes_before(planner, worker, best)) {
            best = worker;
        }
    }
    return best;
}

/* True if all workers between read and commit are at later clocks. */
static bool is_behind_all(const struct weft_planner *planner, uint32_t worker)
{
    uint64_t step = planner->workers[worker].step;
    for (uint32_t i = 0; i < planner->config.workers; i++) {
        const struct planner_worker *w = &planner->workers[i];
        if (w->phase != WORKER_IDLE && w->phase != WORKER_READ_WAITING && w->step <= step) {
            return false;
        }
    }
    return true;
}

static bool has_credit(const struct weft_planner *planner, uint32_t worker)
{
    return !planner_has(planner, WEFT_PLAN_ADMISSION) ||
           planner->outstanding < planner->config.read_credits ||
           (is_ssp(planner) && is_behind_all(planner, worker));
}

static void grant_read(struct weft_planner *planner, uint32_t worker)
{
    struct planner_worker *w = &planner->workers[worker];
    uint32_t servers = planner->config.servers, first = planner->active_count;
    uint64_t *shares = planner->server_bytes + (size_t)worker * servers;
    for (uint32_t s = 0; s < servers; s++) {
        shares[s] = w->bytes / servers + (s < w->bytes % servers);
    }
    struct planner_transfer what = {.kind = WEFT_PLANNER_GRANT_READ,
                                    .worker = worker,
                                    .to_host = w->host,
                                    .group = WEFT_PLANNER_NONE};
    if (!planner_grant_shares(planner, what, shares, false)) {
        return;
    }
    planner_set_remove(planner->reading, &planner->reading_count, worker);
    planner->outstanding++;
    planner->counters.reads_granted++;
    w->phase = WORKER_READING;
    w->transfers_left = servers;
    planner_announce_from(planner, first);
}

/* Admit reads. A read whose path is down is skipped. If a table is full, all reads wait. */
void planner_admit_reads(struct weft_planner *planner)
{
    uint64_t full = planner->counters.full;
    uint32_t worker = next_read(planner, WEFT_PLANNER_NONE);
    while (worker != WEFT_PLANNER_NONE && planner->counters.full == full &&
           has_credit(planner, worker)) {
        grant_read(planner, worker);
        worker = next_read(planner, worker);
    }
}
