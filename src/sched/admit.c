/* Admission of reads: oldest request first; the number of workers between read and commit is
 * limited by the credits. */
#include "sched/internal.h"

/* The oldest request at or after a given one; WEFT_PLANNER_NONE = none. */
static uint32_t oldest_read(const struct weft_planner *planner, uint64_t asked_min)
{
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->reading_count; i++) {
        uint32_t worker = planner->reading[i];
        uint64_t asked = planner->workers[worker].asked;
        if (asked >= asked_min &&
            (best == WEFT_PLANNER_NONE || asked < planner->workers[best].asked)) {
            best = worker;
        }
    }
    return best;
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

/* A read whose path is down is skipped. If a table is full, all reads wait. */
void planner_admit_reads(struct weft_planner *planner)
{
    bool has_credits = planner_has(planner, WEFT_PLAN_ADMISSION);
    uint64_t full = planner->counters.full;
    uint32_t worker = oldest_read(planner, 0);
    while (worker != WEFT_PLANNER_NONE && planner->counters.full == full &&
           (!has_credits || planner->outstanding < planner->config.read_credits)) {
        uint64_t asked = planner->workers[worker].asked;
        grant_read(planner, worker);
        worker = oldest_read(planner, asked + 1);
    }
}
