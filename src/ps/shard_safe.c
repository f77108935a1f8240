/* Durable pushes: those of the windows that a checkpoint holds which counts. A worker that asks (TABLE
 * with DURABLE) is told the number up to which its pushes to each table are, one message at a time,
 * and need not keep them any more.
 *
 * Source: docs/PROTOCOL.md section 7, "Durable".
 */
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static size_t place(const struct weft_shard *shard, uint32_t table, uint32_t rank)
{
    return (size_t)table * shard->config.workers_max + rank;
}

weft_status weft_shard_safe_init(struct weft_shard *shard)
{
    size_t count = (size_t)shard->config.tables_max * shard->config.workers_max;
    shard->safe = calloc(count, sizeof(*shard->safe));
    shard->safe_told = calloc(count, sizeof(*shard->safe_told));
    return shard->safe == NULL || shard->safe_told == NULL ? WEFT_NOMEM : WEFT_OK;
}

void weft_shard_safe_fini(struct weft_shard *shard)
{
    free(shard->safe);
    free(shard->safe_told);
}

void weft_shard_safe_from(struct weft_shard *shard, uint16_t table, const struct weft_once *pushes,
                          uint32_t workers)
{
    for (uint32_t w = 0; shard->safe != NULL && w < workers; w++) {
        shard->safe[place(shard, table, w)] = weft_once_prefix(&pushes[w]);
    }
    shard->safe_untold = true;
}

void weft_shard_durable(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    WEFT_ASSERT(snapshot != NULL);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        for (uint32_t w = 0; w < shard->config.workers_max; w++) {
            bool same = snapshot->kept_incarnations[w] == shard->workers[w].incarnation;
            size_t i = place(shard, t, w);
            shard->safe[i] =
                same ? weft_max_u64(shard->safe[i], snapshot->kept[i]) : shard->safe[i];
        }
    }
    shard->safe_untold = true;
    weft_shard_cut_counts(shard);
    weft_shard_journal_durable(shard);
}

void weft_shard_safe_forget(struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    if (shard->safe != NULL) {
        shard->safe[place(shard, table, rank)] = 0;
    }
}

void weft_shard_safe_unbind(struct weft_shard *shard, uint32_t rank, bool renewed)
{
    shard->workers[rank].wants_safe = false;
    for (uint32_t t = 0; shard->safe != NULL && t < shard->config.tables_max; t++) {
        shard->safe_told[place(shard, t, rank)] = 0;
        if (renewed) {
            weft_shard_safe_forget(shard, (uint16_t)t, rank);
        }
    }
}

void weft_shard_safe_sent(struct weft_shard *shard, uint32_t rank, bool complete)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->safe_sending = false;
    shard->safe_untold = true;
    if (complete) {
        uint64_t *told = &shard->safe_told[place(shard, worker->safe_table, rank)];
        *told = weft_max_u64(*told, worker->safe_number);
    }
}

static void tell(struct weft_shard *shard, uint32_t rank, uint16_t table, uint64_t now_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->safe_table = table;
    worker->safe_number = shard->safe[place(shard, table, rank)];
    weft_rpc_safe_pack(worker->safe_number, worker->safe_message);
    struct weft_msg_send send = {
        .peer = worker->peer,
        .base = worker->safe_message,
        .total = 1,
        .elem_bytes = WEFT_RPC_SAFE_BYTES,
        .critical = 1,
        .tag = weft_rpc_tag_pack(
            (struct weft_rpc_tag){.op = WEFT_RPC_SAFE | WEFT_RPC_REPLY_FLAG, .table = table}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_SAFE + rank,
    };
    uint64_t seq;
    worker->safe_sending = shard->msgr.ops->send(shard->msgr.self, &send, now_ns, &seq) == WEFT_OK;
}

void weft_shard_safe_send(struct weft_shard *shard, uint64_t now_ns)
{
    if (!shard->safe_untold) {
        return;
    }
    shard->safe_untold = false;
    for (uint32_t w = 0; w < shard->config.workers_max; w++) {
        const struct shard_worker *worker = &shard->workers[w];
        for (uint32_t t = 0; worker->up && worker->wants_safe && t < shard->config.tables_max;
             t++) {
            size_t i = place(shard, t, w);
            if (shard->safe[i] <= shard->safe_told[i]) {
                continue;
            }
            shard->safe_untold = true;
            if (!worker->safe_sending) {
                tell(shard, w, (uint16_t)t, now_ns);
            }
        }
    }
}
