/* What a shard writes down: each answer, and how many workers were active in each window.
 *
 * A window is counted by stamping each worker with the last window in which it began a request:
 * 8 bytes a worker, nothing to clear when a window ends. Arrival stamps of one socket ascend but for
 * the error of the clock's mapping; a request that comes a little late for its window counts in the
 * window in progress.
 */
#include "ps/shard_internal.h"

static void window_end(struct weft_shard *shard)
{
    struct weft_record *record = weft_record_claim(shard->config.records);
    if (record == NULL) {
        return;
    }
    record->type = WEFT_RECORD_ACTIVE;
    record->table = 0;
    record->active = (struct weft_record_active){
        .server = shard->config.shard,
        .workers = shard->active_count,
        .start_ns = (shard->active_window - 1) * shard->config.active_window_ns,
        .window_ns = shard->config.active_window_ns,
    };
    weft_record_commit(shard->config.records);
}

void weft_shard_record_open(struct weft_shard *shard, uint32_t rank, uint64_t at_ns)
{
    shard->workers[rank].request_ns = at_ns;
    if (shard->config.records == NULL) {
        return;
    }
    uint64_t window = at_ns / shard->config.active_window_ns + 1;
    if (window > shard->active_window) {
        weft_shard_records_end(shard);
        shard->active_window = window;
    }
    struct shard_worker *worker = &shard->workers[rank];
    if (worker->active_window != shard->active_window) {
        worker->active_window = shard->active_window;
        shard->active_count++;
    }
}

void weft_shard_records_end(struct weft_shard *shard)
{
    if (shard->config.records != NULL && shard->active_count > 0) {
        window_end(shard);
        shard->active_count = 0;
    }
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
    bool counts = slot->op == WEFT_RPC_PUSH ||
                  (slot->op == WEFT_RPC_PULL && (slot->request.flags & WEFT_RPC_CUT) == 0);
    if (counts) {
        count_latency(slot->op == WEFT_RPC_PUSH ? &shard->push : &shard->pull, reply);
    }
    struct weft_record *record = weft_record_claim(shard->config.records);
    if (record == NULL || !counts) {
        return; /* claimed and not committed: the next one takes the place */
    }
    record->type = WEFT_RECORD_SERVED;
    record->table = slot->table;
    record->served = (struct weft_record_served){
        .server = shard->config.shard,
        .worker = slot->worker,
        .rpc = reply->rpc_id,
        .kind = slot->op,
        .arrival_ns = slot->b_ns,
        .departure_ns = departure_ns,
        .ps_proc_ns = reply->ps_proc_ns,
        .ps_wait_ns = reply->ps_wait_ns,
        .ps_queue_ns = reply->ps_queue_ns,
    };
    weft_record_commit(shard->config.records);
}
