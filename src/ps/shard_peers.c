/* The peers of a shard, and the memory posted for their requests.
 *
 * A slot is the memory for one request of one op. Each worker has slots of its own; those of the
 * aggregators follow. A slot is posted while its worker is connected, and again when its request
 * has ended. If a new process takes over a rank, the rank is renewed: the shard forgets the pushes
 * of the previous process.
 */
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

/* Longest expected delay of a packet. */
static const uint64_t late_ns = WEFT_NS_PER_S;

/* ---- request memory -------------------------------------------------------------------------- */

/* Every expectation is for one request of one op of one worker, except CLOCK's, which needs no
 * memory and therefore never runs out. */
static weft_status post(struct weft_shard *shard, weft_peer peer, uint8_t op, uint32_t count,
                        uint64_t user, const void *prefetch, weft_expect_id *id_p)
{
    struct weft_msg_expect expect = {
        .peer = peer,
        .sink = WEFT_SINK_EVENT,
        .tag = (uint64_t)op << 56,
        .tag_mask = op == WEFT_RPC_PUSH ? WEFT_RPC_TAG_PUSH_MASK : WEFT_RPC_TAG_OP_MASK,
        .memory_bytes = UINT64_MAX, /* a request that is too large gets a reply that says so */
        .count = count,
        .timeout_ns = WEFT_NEVER,
        .user = user,
        .prefetch = prefetch,
    };
    return shard->msgr.ops->expect(shard->msgr.self, &expect, id_p);
}

static void slot_post(struct weft_shard *shard, struct shard_slot *slot)
{
    struct shard_worker *worker = &shard->workers[slot->worker];
    WEFT_ASSERT(slot->state == SLOT_IDLE);
    if (!worker->up) {
        return;
    }
    if (post(shard, worker->peer, slot->op, 1, (uint64_t)(slot - shard->slots), slot,
             &slot->expect) != WEFT_OK) {
        shard->counters.slots_unposted++;
        shard->unposted_count++;
        return;
    }
    slot->peer = worker->peer;
    slot->state = SLOT_POSTED;
}

static void clock_post(struct weft_shard *shard, uint32_t rank)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->clock_posted =
        post(shard, worker->peer, WEFT_RPC_CLOCK, UINT32_MAX, WEFT_SHARD_USER_CLOCK + rank, NULL,
             &worker->clock_expect) == WEFT_OK;
    if (!worker->clock_posted) {
        shard->counters.slots_unposted++;
        shard->unposted_count++;
    }
}

void weft_shard_slot_release(struct weft_shard *shard, uint32_t index)
{
    struct shard_slot *slot = &shard->slots[index];
    WEFT_ASSERT(slot->state >= SLOT_OPEN);
    shard->busy_count--;
    slot->state = SLOT_IDLE;
    slot_post(shard, slot);
}

void weft_shard_post_again(struct weft_shard *shard)
{
    shard->unposted_count = 0;
    for (uint32_t rank = 0; rank < shard->config.workers_max; rank++) {
        if (shard->workers[rank].up && !shard->workers[rank].clock_posted) {
            clock_post(shard, rank);
        }
    }
    for (uint32_t i = 0; i < shard->slot_count; i++) {
        if (shard->slots[i].state == SLOT_IDLE) {
            slot_post(shard, &shard->slots[i]);
        }
    }
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* The slots of a rank, or of an aggregator (numbered after the ranks). */
static struct shard_slot *slots_of(const struct weft_shard *shard, uint32_t who, uint32_t *count_p)
{
    const uint32_t ranks = shard->config.workers_max;
    *count_p = who < ranks ? shard->slots_per_worker : WEFT_AGGREGATE_PULLS;
    return &shard->slots[who < ranks ? who * shard->slots_per_worker
                                     : ranks * shard->slots_per_worker +
                                           (who - ranks) * WEFT_AGGREGATE_PULLS];
}

static void queue_drop_worker(struct weft_shard *shard, struct shard_queue *queue, uint32_t rank)
{
    struct shard_queue kept = {WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    uint32_t index;
    while ((index = weft_shard_queue_pop(shard, queue)) != WEFT_SHARD_NONE) {
        if (shard->slots[index].worker != rank) {
            weft_shard_queue_push(shard, &kept, index);
            continue;
        }
        shard->counters.requests_stale++;
        weft_shard_slot_release(shard, index);
    }
    *queue = kept;
}

/* Unbind a worker's connection: posted memory is returned now, that of open requests when they
 * close. */
static void worker_unbind(struct weft_shard *shard, uint32_t rank)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->up = false;
    worker->begun_ns = 0;
    if (worker->clock_posted) {
        /* NOTFOUND: the transport has dropped the expectation with the peer. In both cases it is
         * cancelled. */
        (void)!shard->msgr.ops->cancel(shard->msgr.self, worker->clock_expect);
        worker->clock_posted = false;
    }
    uint32_t count;
    struct shard_slot *slots = slots_of(shard, rank, &count);
    for (uint32_t i = 0; i < count; i++) {
        struct shard_slot *slot = &slots[i];
        if (slot->state == SLOT_POSTED) {
            (void)!shard->msgr.ops->cancel(shard->msgr.self, slot->expect);
            slot->state = SLOT_IDLE;
        } else if (slot->state == SLOT_OPEN) {
            slot->stale = true;
        }
    }
    queue_drop_worker(shard, &shard->waiting, rank);
    queue_drop_worker(shard, &shard->due, rank);
    queue_drop_worker(shard, &shard->ready, rank);
    queue_drop_worker(shard, &shard->asking, rank);
}

static void slots_post(struct weft_shard *shard, uint32_t who)
{
    uint32_t count;
    struct shard_slot *slots = slots_of(shard, who, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].state == SLOT_IDLE) {
            slot_post(shard, &slots[i]);
        }
    }
}

void weft_shard_pulls_bind(struct weft_shard *shard, uint32_t aggregator, weft_peer peer)
{
    const uint32_t who = shard->config.workers_max + aggregator;
    shard->workers[who].up = true;
    shard->workers[who].peer = peer;
    slots_post(shard, who);
}

void weft_shard_pulls_unbind(struct weft_shard *shard, uint32_t aggregator)
{
    worker_unbind(shard, shard->config.workers_max + aggregator);
}

void weft_shard_worker_renew(struct weft_shard *shard, uint32_t rank, uint64_t incarnation,
                             uint64_t now_ns)
{
    weft_shard_journal_renewed(shard, rank, incarnation);
    weft_shard_lists_forget(shard, rank);
    weft_shard_updates_forget(shard, rank);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (!weft_shard_journal_passes_over(shard, (uint16_t)t)) {
            weft_shard_close_short(shard, (uint16_t)t, rank);
            weft_shard_dedup_forget(shard, (uint16_t)t, rank);
            weft_shard_durable_forget(shard, (uint16_t)t, rank);
            weft_shard_aggregate_forget(shard, (uint16_t)t, rank);
        }
    }
    weft_snapshot_renewed(shard, rank);
    weft_retired_add(&shard->workers[rank].retired, shard->workers[rank].incarnation);
    shard->workers[rank].incarnation = incarnation;
    shard->workers[rank].begun_ns = 0;
    shard->workers[rank].return_ns = 0;
    /* Only now: an advancing clock may cut a checkpoint, after the record above. If that checkpoint
     * had the windows of the previous process, a restored shard would discard the pushes of this
     * process as duplicates. */
    weft_shard_members_leave(shard, rank, true, now_ns);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (!weft_shard_journal_passes_over(shard, (uint16_t)t)) {
            weft_shard_clock_advance(shard, (uint16_t)t, now_ns);
        }
    }
}

static void replaced_add(struct weft_shard *shard, weft_peer peer, bool for_good)
{
    if (shard->replaced_count < WEFT_SHARD_REPLACED_MAX) {
        shard->replaced[shard->replaced_count++] = (struct shard_replaced){peer, for_good};
    }
}

void weft_shard_replace(struct weft_shard *shard, weft_peer peer)
{
    replaced_add(shard, peer, false);
}

void weft_shard_refuse_peer(struct weft_shard *shard, weft_peer peer)
{
    replaced_add(shard, peer, true);
}

/* The connection has already ended: its number may be reused from now on. */
static void replaced_remove(struct weft_shard *shard, weft_peer peer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < shard->replaced_count; i++) {
        if (shard->replaced[i].peer != peer) {
            shard->replaced[kept++] = shard->replaced[i];
        }
    }
    shard->replaced_count = kept;
}

bool weft_shard_take_replaced(struct weft_shard *shard, weft_peer *peer_p, bool *for_good_p)
{
    if (shard->replaced_count == 0) {
        return false;
    }
    const struct shard_replaced *replaced = &shard->replaced[--shard->replaced_count];
    *peer_p = replaced->peer;
    *for_good_p = replaced->for_good;
    return true;
}

/* True: the process may not have the rank.
 *
 * A process that lost the rank never gets it back, even if the rank is free: its pushes are no
 * longer recorded and would count twice.
 *
 * An unknown process is one that never connected, or that connected after the state from which the
 * shard was restored. If it is older than the connected process, it waits until that process is
 * gone. Most likely the unknown process hung, or its host's clock is behind. It then waits some
 * time longer, because the connection may belong to a dead process whose packets were late. If the
 * shard took that dead process for a successor, the living process would lose the rank
 * permanently. */
static bool is_refused(const struct shard_worker *worker, uint64_t incarnation, uint64_t now_ns,
                       bool *for_good_p)
{
    if (incarnation == 0 || incarnation == worker->incarnation) {
        return false;
    }
    const bool was_there = worker->down_ns != 0 && now_ns - worker->down_ns < late_ns;
    *for_good_p = weft_retired_has(&worker->retired, incarnation);
    return *for_good_p ||
           ((shard_is_there(worker) || was_there) && incarnation < worker->incarnation);
}

void weft_shard_peer_up(struct weft_shard *shard, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    uint32_t rank = (uint32_t)event->name;
    if (event->name >> 32 != WEFT_ROLE_WORKER || rank >= shard->config.workers_max) {
        shard->counters.peers_ignored++;
        return;
    }
    struct shard_worker *worker = &shard->workers[rank];
    bool for_good, renewed;
    if (is_refused(worker, event->incarnation, now_ns, &for_good)) {
        shard->counters.workers_refused++;
        replaced_add(shard, event->peer, for_good);
        return;
    }
    renewed = event->incarnation == 0 || event->incarnation != worker->incarnation;
    if (worker->up) {
        shard->counters.workers_replaced++;
        replaced_add(shard, worker->peer, renewed);
        worker_unbind(shard, rank);
    }
    weft_shard_unpark(shard, rank);
    if (renewed) {
        weft_shard_worker_renew(shard, rank, event->incarnation, now_ns);
        weft_shard_durable_unbind(shard, rank, true);
        worker->closed = (struct weft_rpc_window){0};
        worker->rpc_newest = 0;
    }
    weft_shard_durable_unbind(shard, rank, false);
    worker->up = true;
    worker->up_ns = now_ns;
    worker->peer = event->peer;
    clock_post(shard, rank);
    slots_post(shard, rank);
}

void weft_shard_peer_down(struct weft_shard *shard, const struct weft_msg_event *event,
                          uint64_t now_ns)
{
    replaced_remove(shard, event->peer);
    for (uint32_t rank = 0; rank < shard->config.workers_max; rank++) {
        if (shard->workers[rank].up && shard->workers[rank].peer == event->peer) {
            worker_unbind(shard, rank);
            shard->workers[rank].down_ns = now_ns;
            if (weft_shard_parks(shard, rank, now_ns)) {
                continue;
            }
            bool died = event->down != WEFT_DOWN_CLOSED && event->down != WEFT_DOWN_LOCAL;
            weft_shard_journal_left(shard, rank);
            weft_shard_members_leave(shard, rank, died, now_ns);
        }
    }
}

void weft_shard_worker_died(struct weft_shard *shard, uint32_t rank, uint64_t at_ns,
                            uint64_t now_ns)
{
    if (rank >= shard->config.workers_max) {
        return;
    }
    struct shard_worker *worker = &shard->workers[rank];
    if (shard_is_there(worker) && worker->up_ns < at_ns) {
        if (worker->up) {
            replaced_add(shard, worker->peer, false);
            worker_unbind(shard, rank);
        }
        weft_shard_unpark(shard, rank);
        weft_shard_journal_left(shard, rank);
        weft_shard_members_leave(shard, rank, true, now_ns);
    }
}
