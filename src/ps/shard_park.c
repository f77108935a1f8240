/* Ranks without a connection, whose pushes, pulls and clocks come by an aggregator.
 *
 * A worker says PARK on its connection, with the time for which it may be silent, and ends it. Its rank
 * keeps all that a connected one has, but the memory for requests: its process, its windows, its sessions,
 * its membership of tables. It is alive for that time since PARK, or since the last sum or clock of it that
 * an aggregator brought; then it is dead, as one whose connection broke. Nobody else speaks for it, so the
 * death of an aggregator needs nothing here: the worker connects again in time when nothing of it is
 * committed, and sooner when it has something to send itself. It resumes as after a break.
 *
 * That the connection has ended is told by PEER_DOWN alone, whatever the reason: its CLOSE may be lost.
 *
 * Source: docs/PROTOCOL.md section 7, "Parked connections".
 */
#include "ps/shard_internal.h"

static uint64_t due_ns(const struct shard_worker *worker)
{
    return weft_time_add(worker->vouched_ns, worker->lease_ns);
}

bool weft_shard_park(struct weft_shard *shard, uint32_t rank, uint32_t lease_ms, uint64_t now_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    /* What is durable is told over the connection. */
    if (!weft_shard_takes_aggregates(shard) || worker->wants_durable ||
        lease_ms > WEFT_RPC_PARK_MS_MAX) {
        return false;
    }
    worker->lease_ns = lease_ms * WEFT_NS_PER_MS;
    worker->vouched_ns = now_ns;
    return true;
}

bool weft_shard_parks(struct weft_shard *shard, uint32_t rank, uint64_t now_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    if (worker->lease_ns == 0 || now_ns >= due_ns(worker)) {
        worker->lease_ns = 0;
        return false;
    }
    worker->parked = true;
    shard->parked_due_ns = shard->parked_count == 0
                               ? due_ns(worker)
                               : weft_min_u64(shard->parked_due_ns, due_ns(worker));
    shard->parked_count++;
    shard->counters.workers_parked++;
    return true;
}

void weft_shard_unpark(struct weft_shard *shard, uint32_t rank)
{
    struct shard_worker *worker = &shard->workers[rank];
    shard->parked_count -= worker->parked;
    worker->parked = false;
    worker->lease_ns = 0;
}

/* This process wakes up when the first lease ends. If it did not by so much, it was stopped itself, and has
 * not read what came meanwhile: as for connections, every worker gets its time anew. */
static const uint64_t stopped_ns = 100 * WEFT_NS_PER_MS;

void weft_shard_parked_overdue(struct weft_shard *shard, uint64_t now_ns)
{
    if (now_ns < shard->parked_due_ns) {
        return;
    }
    const bool was_stopped = now_ns - shard->parked_due_ns >= stopped_ns;
    shard->parked_due_ns = WEFT_NEVER;
    for (uint32_t rank = 0; rank < shard->config.workers_max; rank++) {
        struct shard_worker *worker = &shard->workers[rank];
        worker->vouched_ns = was_stopped && worker->parked ? now_ns : worker->vouched_ns;
        if (worker->parked && now_ns >= due_ns(worker)) {
            weft_shard_unpark(shard, rank);
            shard->counters.workers_overdue++;
            weft_shard_journal_left(shard, rank);
            weft_shard_members_leave(shard, rank, true, now_ns);
        } else if (worker->parked) {
            shard->parked_due_ns = weft_min_u64(shard->parked_due_ns, due_ns(worker));
        }
    }
}
