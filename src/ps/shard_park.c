/* Parked ranks: without a connection; their pushes, pulls and clocks arrive through an aggregator.
 *
 * A worker sends PARK on its connection, with the time for which it may be silent, and closes the
 * connection. Its rank keeps the state of a connected rank (process, windows, sessions, membership
 * of tables), but no request memory. It is alive for that time after PARK, or after its last sum or
 * clock that an aggregator delivered. Then it is declared dead, as if its connection had broken.
 * The shard need not react to the death of an aggregator: the worker reconnects in time if its
 * requests are not committed, and earlier if it must send a direct request. It resumes as after a
 * break.
 *
 * Only PEER_DOWN, with any reason, ends the connection: CLOSE may be lost.
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
    /* DURABLE_UPTO is sent over the connection. */
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

/* This process wakes when the first lease ends. If it wakes later than this, it was itself stopped,
 * and has not read the packets that arrived meanwhile: as for connections, every worker's lease
 * starts again. */
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
