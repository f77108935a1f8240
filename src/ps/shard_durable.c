/* Durable pushes: those in the windows of a valid checkpoint. A worker that requests it (TABLE with
 * DURABLE) receives, one message at a time, the number up to which its pushes to each table are
 * durable, and need not keep them any longer.
 *
 * Source: docs/PROTOCOL.md section 7, "Durable".
 */
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static size_t index_of(const struct weft_shard *shard, uint32_t table, uint32_t rank)
{
    return (size_t)table * shard->config.workers_max + rank;
}

weft_status weft_shard_durable_init(struct weft_shard *shard)
{
    size_t count = (size_t)shard->config.tables_max * shard->config.workers_max;
    shard->durable_upto = calloc(count, sizeof(*shard->durable_upto));
    shard->durable_upto_sent = calloc(count, sizeof(*shard->durable_upto_sent));
    return shard->durable_upto == NULL || shard->durable_upto_sent == NULL ? WEFT_NOMEM : WEFT_OK;
}

void weft_shard_durable_fini(struct weft_shard *shard)
{
    free(shard->durable_upto);
    free(shard->durable_upto_sent);
}

void weft_shard_durable_from(struct weft_shard *shard, uint16_t table,
                             const struct weft_push_window *pushes, uint32_t workers)
{
    for (uint32_t w = 0; shard->durable_upto != NULL && w < workers; w++) {
        shard->durable_upto[index_of(shard, table, w)] = weft_push_window_prefix(&pushes[w]);
    }
    shard->durable_upto_unsent = true;
}

void weft_shard_durable(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    WEFT_ASSERT(snapshot != NULL);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        for (uint32_t w = 0; w < shard->config.workers_max; w++) {
            bool same = snapshot->kept_incarnations[w] == shard->workers[w].incarnation;
            size_t i = index_of(shard, t, w);
            shard->durable_upto[i] = same ? weft_max_u64(shard->durable_upto[i], snapshot->kept[i])
                                          : shard->durable_upto[i];
        }
    }
    shard->durable_upto_unsent = true;
    weft_shard_cut_counts(shard);
    weft_shard_journal_durable(shard);
}

void weft_shard_durable_forget(struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    if (shard->durable_upto != NULL) {
        shard->durable_upto[index_of(shard, table, rank)] = 0;
    }
}

void weft_shard_durable_unbind(struct weft_shard *shard, uint32_t rank, bool renewed)
{
    shard->workers[rank].wants_durable = false;
    for (uint32_t t = 0; shard->durable_upto != NULL && t < shard->config.tables_max; t++) {
        shard->durable_upto_sent[index_of(shard, t, rank)] = 0;
        if (renewed) {
            weft_shard_durable_forget(shard, (uint16_t)t, rank);
        }
    }
}

void weft_shard_durable_sent(struct weft_shard *shard, uint32_t rank, bool complete)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->durable_upto_sending = false;
    shard->durable_upto_unsent = true;
    if (complete) {
        uint64_t *told =
            &shard->durable_upto_sent[index_of(shard, worker->durable_upto_table, rank)];
        *told = weft_max_u64(*told, worker->durable_upto_number);
    }
}

static void tell(struct weft_shard *shard, uint32_t rank, uint16_t table, uint64_t now_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->durable_upto_table = table;
    worker->durable_upto_number = shard->durable_upto[index_of(shard, table, rank)];
    weft_rpc_durable_upto_pack(worker->durable_upto_number, worker->durable_upto_message);
    struct weft_msg_send send = {
        .peer = worker->peer,
        .base = worker->durable_upto_message,
        .total = 1,
        .elem_bytes = WEFT_RPC_DURABLE_UPTO_BYTES,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_DURABLE_UPTO | WEFT_RPC_REPLY_FLAG, .table = table}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_DURABLE + rank,
    };
    uint64_t seq;
    worker->durable_upto_sending =
        shard->msgr.ops->send(shard->msgr.self, &send, now_ns, &seq) == WEFT_OK;
}

void weft_shard_durable_send(struct weft_shard *shard, uint64_t now_ns)
{
    if (!shard->durable_upto_unsent) {
        return;
    }
    shard->durable_upto_unsent = false;
    for (uint32_t w = 0; w < shard->config.workers_max; w++) {
        const struct shard_worker *worker = &shard->workers[w];
        for (uint32_t t = 0; worker->up && worker->wants_durable && t < shard->config.tables_max;
             t++) {
            size_t i = index_of(shard, t, w);
            if (shard->durable_upto[i] <= shard->durable_upto_sent[i]) {
                continue;
            }
            shard->durable_upto_unsent = true;
            if (!worker->durable_upto_sending) {
                tell(shard, w, (uint16_t)t, now_ns);
            }
        }
    }
}
