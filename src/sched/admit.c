/* Reads: oldest request first, as many workers between read and commit as there are credits. */
#include "sched/internal.h"

static uint32_t oldest_read(const struct weft_planner *planner)
{
    uint32_t best = planner->reading[0];
    for (uint32_t i = 1; i < planner->reading_count; i++) {
        uint32_t worker = planner->reading[i];
        if (planner->workers[worker].asked < planner->workers[best].asked) {
            best = worker;
        }
    }
    return best;
}

static bool grant_read(struct weft_planner *planner, uint32_t worker)
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
        return false;
    }
    planner_set_remove(planner->reading, &planner->reading_count, worker);
    planner->outstanding++;
    planner->counters.reads_granted++;
    w->phase = WORKER_READING;
    w->transfers_left = servers;
    planner_announce_from(planner, first);
    return true;
}

void planner_admit_reads(struct weft_planner *planner)
{
    bool has_credits = planner_has(planner, WEFT_PLAN_ADMISSION);
    while (planner->reading_count > 0 &&
           (!has_credits || planner->outstanding < planner->config.read_credits)) {
        if (!grant_read(planner, oldest_read(planner))) {
            return;
        }
    }
}
