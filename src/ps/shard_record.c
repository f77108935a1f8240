/* Records of a shard: each reply, and the number of active workers and connections in each window.
 * The windows are also counted without a recorder.
 *
 * A worker is active if it began a request on its own connection, or if a push or an ended clock of
 * it was accepted in an aggregate. A connection is active if a request began on it: that of such a
 * worker, or that of an aggregator, whatever the number of workers in its request. An aggregate
 * counts when it is complete, so that its members and its connection are active in the same window.
 * Aggregators have the ranks from workers_max.
 *
 * To count them, each rank is stamped with the last window in which it was active: 16 bytes, and
 * nothing to clear when a window ends. Windows are numbered consecutively, so a request in the
 * window in progress, the usual case, needs no division. Arrival stamps of one socket ascend,
 * except for the error of the clock mapping; a request slightly too late for its window is counted
 * in the window in progress.
 */
#include "ps/shard_internal.h"

/* Handle the first request of a later window; or a late request. */
static void window_begin(struct weft_shard *shard, uint64_t at_ns)
{
    if (shard->active_window > 0 && at_ns < shard->active_start_ns) {
        return;
    }
    weft_shard_records_end(shard);
    shard->active_window++;
    shard->active_start_ns = at_ns - at_ns % shard->config.active_window_ns;
}

void weft_shard_record_member(struct weft_shard *shard, uint32_t rank, uint64_t at_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->request_ns = at_ns;
    if (shard->active_window == 0 ||
        at_ns - shard->active_start_ns >= shard->config.active_window_ns) {
        window_begin(shard, at_ns);
    }
    if (rank < shard->config.workers_max && worker->active_window != shard->active_window) {
        worker->active_window = shard->active_window;
        shard->active_count++;
    }
}

void weft_shard_record_open(struct weft_shard *shard, uint32_t rank, uint64_t at_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    weft_shard_record_member(shard, rank, at_ns);
    if (worker->connection_window != shard->active_window) {
        worker->connection_window = shard->active_window;
        shard->connection_count++;
    }
}

void weft_shard_records_end(struct weft_shard *shard)
{
    if (shard->active_count + shard->connection_count == 0) {
        return;
    }
    shard->counters.active_windows++;
    shard->counters.active_workers += shard->active_count;
    shard->counters.active_connections += shard->connection_count;
    const struct weft_rpc_record record = {
        .type = WEFT_RPC_RECORD_ACTIVE,
        .active = {.server = shard->config.shard,
                   .workers = shard->active_count,
                   .connections = shard->connection_count,
                   .start_ns = shard->active_start_ns,
                   .window_ns = shard->config.active_window_ns},
    };
    weft_rpc_record_put(shard->config.records, &record);
    shard->active_count = shard->connection_count = 0;
}

static void count_latency(struct weft_shard_latencies *of, const struct weft_rpc_reply *reply)
{
    weft_hist_add(&of->ps_proc, reply->ps_proc_ns);
    weft_hist_add(&of->ps_queue, reply->ps_queue_ns);
    weft_hist_add(&of->ps_wait, reply->ps_wait_ns);
}

void weft_shard_record_served(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_rpc_reply *reply, uint64_t departure_ns)
{
    bool counts =
        slot->op == WEFT_RPC_PUSH ||
        (slot->op == WEFT_RPC_PULL && (slot->request.flags & (WEFT_RPC_CUT | WEFT_RPC_HOT)) == 0);
    if (!counts) {
        return;
    }
    count_latency(slot->op == WEFT_RPC_PUSH ? &shard->push : &shard->pull, reply);
    /* The times of the slot, not of the reply: the slot of a push in an aggregate has none, because
     * they are counted in aggregate_proc_ns. */
    shard->counters.direct_proc_ns +=
        slot->op == WEFT_RPC_PUSH ? slot->proc_ns + slot->overlap_ns : 0;
    if (shard_slot_is_aggregators(shard, slot)) {
        return; /* not a worker's request: the other end writes no record */
    }
    weft_rpc_record_put_served(shard->config.records, slot->table,
                           &(struct weft_rpc_record_served){
                               .server = shard->config.shard,
                               .worker = slot->worker,
                               .rpc = reply->rpc_id,
                               .kind = slot->op,
                               .arrival_ns = slot->b_ns,
                               .departure_ns = departure_ns,
                               .ps_proc_ns = reply->ps_proc_ns,
                               .ps_wait_ns = reply->ps_wait_ns,
                               .ps_queue_ns = reply->ps_queue_ns,
                           });
}

void weft_shard_gauges(const struct weft_shard *shard, uint64_t now_ns, uint64_t span_ns,
                       struct weft_shard_gauges *gauges_p)
{
    uint64_t since_ns = now_ns > span_ns ? now_ns - span_ns : 0;
    *gauges_p = (struct weft_shard_gauges){.requests_open = shard->busy_count};
    weft_shard_aggregates_gauges(shard, since_ns, gauges_p);
    gauges_p->hot_rows = weft_shard_hot_rows(shard);
    for (uint32_t rank = 0; rank < shard->config.workers_max; rank++) {
        const struct shard_worker *worker = &shard->workers[rank];
        gauges_p->workers_connected += worker->up;
        gauges_p->workers_parked += worker->parked;
        gauges_p->workers_active +=
            shard_is_there(worker) && worker->request_ns >= since_ns && worker->request_ns != 0;
    }
}
