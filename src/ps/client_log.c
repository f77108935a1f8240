/* Durability replay: pushes are built in a log and stay there, beyond the end of their operation,
 * until their shard reports that a checkpoint contains them.
 *
 * The log is bounded, and only checkpoints free it; the periodic ones may be too rare. Therefore,
 * once the log is half full, every PUSH requests a checkpoint. A BSP table is cut at the end of a
 * clock, which may require the next pushes of this worker. If that boundary is missed, because
 * another checkpoint was being written, a worker that waited with a full log would wait forever.
 * Therefore the last quarter is used at a limited rate: clocks advance slowly, and a cut happens at
 * one of the next boundaries. If the log is full nevertheless, the push fails with an error.
 *
 * Source: docs/PROTOCOL.md section 7, "Durable"; docs/CHECKPOINTS.md.
 */
#include "ps/client_internal.h"

#include "base/assert.h"

#include <stdlib.h>

/* In the last quarter: one push per this interval. */
static const uint64_t slow_ns = 20 * WEFT_NS_PER_MS;

weft_status weft_ps_log_init(struct weft_ps_client *client)
{
    client->log.bytes = client->config.replay_bytes / 8 * 8;
    client->log.memory = malloc(client->log.bytes);
    return client->log.memory == NULL ? WEFT_NOMEM : WEFT_OK;
}

void weft_ps_log_fini(struct weft_ps_client *client)
{
    free(client->log.memory);
}

static struct ps_part *part_at(const struct weft_ps_client *client, uint32_t i)
{
    const struct ps_log *log = &client->log;
    return &client->parts[log->first + (log->head + i) % log->slots];
}

#define FOR_LOG(client, i) for (uint32_t i = 0; i < (client)->log.count; i++)

/* ---- room ------------------------------------------------------------------------------------ */

/* Offset of the oldest request, where the free memory ends. */
static uint64_t begin_of(const struct weft_ps_client *client)
{
    const struct ps_log *log = &client->log;
    return log->count == 0 ? 0 : (uint64_t)(part_at(client, 0)->request - log->memory);
}

static uint64_t used(const struct weft_ps_client *client)
{
    const struct ps_log *log = &client->log;
    uint64_t begin = begin_of(client);
    return log->count == 0    ? 0
           : log->end > begin ? log->end - begin
                              : log->bytes - begin + log->end;
}

bool weft_ps_log_filling(const struct weft_ps_client *client)
{
    return ps_log_on(client) &&
           (used(client) > client->log.bytes / 2 || client->log.count > client->log.slots / 2);
}

/* Upper bounds for the parts of these lists: total bytes, number, and largest part. */
static uint64_t needed(const struct weft_ps_client *client, const struct weft_ps_list *lists,
                       uint32_t count, uint32_t *parts_p, uint64_t *largest_p)
{
    uint64_t bytes = 0;
    *parts_p = 0;
    *largest_p = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_table_spec *spec = &client->tables[lists[i].table].spec;
        uint64_t elem_bytes = weft_table_push_elem_bytes(spec, lists[i].id_bytes);
        uint64_t row_bytes = elem_bytes * weft_table_blocks(spec);
        uint64_t more = WEFT_RPC_REQUEST_BYTES + elem_bytes + WEFT_RPC_REPLY_BYTES + 16;
        uint32_t rows_max = client->config.rows_per_rpc_max;
        uint32_t parts = (uint32_t)weft_min_u64(
            lists[i].n,
            client->config.shards * weft_ps_groups(&client->config) + lists[i].n / rows_max);
        uint64_t all = lists[i].n * row_bytes,
                 most = weft_min_u64(lists[i].n, ps_rows_most(&client->config)) * row_bytes;
        if (lists[i].known != NULL) {
            more += ps_listed_extra(more);
            all += ps_listed_extra(all);
            most += ps_listed_extra(most);
        }
        *parts_p += parts;
        bytes += all + parts * more;
        *largest_p = weft_max_u64(*largest_p, most + more);
    }
    return bytes;
}

/* With a BSP table a checkpoint contains only finished clocks, so it cannot free the clock in
 * progress. */
static bool hopeless(const struct weft_ps_client *client)
{
    FOR_LOG(client, i)
    {
        const struct ps_part *part = part_at(client, i);
        const struct ps_table *table = &client->tables[part->table];
        if (part->state != PART_FREE &&
            (table->spec.mode != WEFT_TABLE_BSP || part->clock <= table->clock)) {
            return false;
        }
    }
    return true;
}

static weft_status full(struct weft_ps_client *client, uint64_t now_ns)
{
    struct ps_log *log = &client->log;
    client->counters.replay_full++;
    log->full_ns = log->full_ns == 0 ? now_ns : log->full_ns;
    bool too_long = now_ns - log->full_ns >= client->config.reconnect_ns;
    return hopeless(client) || too_long ? WEFT_NOMEM : WEFT_AGAIN;
}

weft_status weft_ps_log_room(struct weft_ps_client *client, const struct weft_ps_list *lists,
                             uint32_t count, uint64_t now_ns)
{
    struct ps_log *log = &client->log;
    uint32_t parts;
    uint64_t largest, bytes = needed(client, lists, count, &parts, &largest);
    uint64_t after = used(client) + bytes + largest; /* including the unused end of the ring */
    if (parts == 0) {
        return WEFT_OK;
    }
    if (bytes + largest > log->bytes || parts > log->slots) {
        return WEFT_NOMEM;
    }
    if (after > log->bytes || log->count + parts > log->slots) {
        return full(client, now_ns);
    }
    log->full_ns = 0;
    if (after <= log->bytes / 4 * 3 && log->count + parts <= log->slots / 4 * 3) {
        log->slow_ns = 0;
        return WEFT_OK;
    }
    if (log->slow_ns == 0 || now_ns < log->slow_ns) {
        log->slow_ns = log->slow_ns == 0 ? weft_time_add(now_ns, slow_ns) : log->slow_ns;
        client->counters.replay_full++;
        return WEFT_AGAIN;
    }
    log->slow_ns = weft_time_add(now_ns, slow_ns);
    return WEFT_OK;
}

/* ---- in and out ------------------------------------------------------------------------------ */

struct ps_part *weft_ps_log_take(struct weft_ps_client *client)
{
    WEFT_ASSERT(client->log.count < client->log.slots);
    return part_at(client, client->log.count++);
}

uint8_t *weft_ps_log_memory(struct weft_ps_client *client, size_t bytes)
{
    struct ps_log *log = &client->log;
    uint32_t before = log->count - 1; /* the newest part has no memory yet */
    uint64_t begin = before == 0 ? 0 : begin_of(client);
    bool wrapped = before > 0 && log->end <= begin;
    if (before == 0) {
        log->end = 0;
    } else if (!wrapped && log->bytes - log->end < bytes) {
        log->end = 0;
        wrapped = true;
    }
    WEFT_ASSERT((wrapped ? begin : log->bytes) - log->end >= bytes);
    uint8_t *memory = log->memory + log->end;
    log->end += bytes;
    client->counters.replay_bytes_now += bytes;
    return memory;
}

void weft_ps_log_give_back(struct weft_ps_client *client, size_t bytes)
{
    WEFT_ASSERT(bytes <= client->log.end);
    client->log.end -= bytes;
    client->counters.replay_bytes_now -= bytes;
}

static void pop(struct weft_ps_client *client)
{
    struct ps_log *log = &client->log;
    while (log->count > 0 && part_at(client, 0)->state == PART_FREE) {
        log->head = (log->head + 1) % log->slots;
        log->count--;
    }
    client->counters.replay_bytes_now = used(client);
}

/* No longer needed: it is durable, or its shard is permanently gone. */
static bool expendable(struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    return part->number <= link->durable || client->ends[part->shard].down || link->gone;
}

void weft_ps_log_done(struct weft_ps_client *client, struct ps_part *part)
{
    if (expendable(client, part)) {
        ps_part_to(part, PART_FREE);
        pop(client);
    }
}

void weft_ps_log_sweep(struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    bool durable = !client->ends[shard].down && !ps_link_of(client, table, shard)->gone;
    FOR_LOG(client, i)
    {
        struct ps_part *part = part_at(client, i);
        if (part->state == PART_DONE && part->table == table && part->shard == shard &&
            expendable(client, part)) {
            ps_part_to(part, PART_FREE);
            client->counters.pushes_durable += durable;
        }
    }
    pop(client);
}

/* ---- after a reconnection -------------------------------------------------------------------- */

uint32_t weft_ps_log_resend(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                            const struct weft_rpc_pushes *theirs)
{
    uint32_t requeued = 0;
    FOR_LOG(client, i)
    {
        struct ps_part *part = part_at(client, i);
        if (part->state != PART_DONE || part->table != table || part->shard != shard ||
            weft_rpc_pushes_test(theirs, part->number)) {
            continue;
        }
        ps_part_to(part, PART_QUEUED);
        part->resent = true;
        ps_part_rows_to(part, ROWS_GO);
        part->answer = ANSWER_NONE;
        part->request_closed = part->begun = false;
        weft_ps_listed_reset(client, part);
        weft_ps_part_enqueue(client, (uint32_t)(part - client->parts));
        requeued++;
    }
    client->resent_open += requeued;
    client->counters.pushes_resent += requeued;
    return requeued;
}

void weft_ps_log_hold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                      struct weft_rpc_pushes *ours)
{
    uint64_t oldest = UINT64_MAX;
    FOR_LOG(client, i)
    {
        const struct ps_part *part = part_at(client, i);
        if (part->state != PART_FREE && part->table == table && part->shard == shard) {
            oldest = weft_min_u64(oldest, part->number);
        }
    }
    uint64_t newest = oldest == UINT64_MAX
                          ? ours->newest
                          : weft_min_u64(ours->newest, oldest + WEFT_RPC_PUSHES_BITS - 1);
    struct weft_rpc_pushes held = {.newest = newest};
    for (uint64_t back = 0; back < WEFT_RPC_PUSHES_BITS && back < newest; back++) {
        uint64_t bit = weft_rpc_pushes_test(ours, newest - back);
        held.closed[back / 64] |= bit << back % 64;
    }
    FOR_LOG(client, i)
    {
        const struct ps_part *part = part_at(client, i);
        uint64_t back = newest - part->number;
        if (part->state != PART_FREE && part->table == table && part->shard == shard &&
            back < WEFT_RPC_PUSHES_BITS) {
            held.closed[back / 64] &= ~(UINT64_C(1) << back % 64);
        }
    }
    *ours = held;
}

/* ---- durable --------------------------------------------------------------------------------- */

void weft_ps_durable_expect(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    if (!ps_log_on(client) || end->durable_expected) {
        return;
    }
    struct weft_msg_expect expect = {
        .peer = end->peer,
        .sink = WEFT_SINK_EVENT,
        .tag = (uint64_t)(WEFT_RPC_DURABLE_UPTO | WEFT_RPC_REPLY_FLAG) << 56,
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory_bytes = WEFT_RPC_DURABLE_UPTO_BYTES,
        .count = UINT32_MAX,
        .timeout_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | WEFT_PS_USER_DURABLE | shard,
    };
    end->durable_expected =
        client->msgr.ops->expect(client->msgr.self, &expect, &end->durable_expect) == WEFT_OK;
}

void weft_ps_durable_cancel(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    if (end->durable_expected) {
        (void)!client->msgr.ops->cancel(client->msgr.self, end->durable_expect);
        end->durable_expected = false;
    }
}

void weft_ps_durable_event(struct weft_ps_client *client, const struct weft_msg_event *event)
{
    uint32_t shard = (uint32_t)event->user;
    struct weft_rpc_tag tag;
    if (event->type != WEFT_EVENT_CHUNK || shard >= client->config.shards) {
        return;
    }
    if (!weft_rpc_tag_unpack(event->tag, &tag) || tag.table >= client->config.tables_max ||
        event->total != 1 || event->elem_bytes != WEFT_RPC_DURABLE_UPTO_BYTES) {
        client->counters.replies_malformed++;
        return;
    }
    struct ps_link *link = ps_link_of(client, tag.table, shard);
    uint64_t number = weft_rpc_durable_upto_unpack(event->data);
    if (link->resuming) {
        link->durable_early = weft_max_u64(link->durable_early, number);
    } else if (number <= link->number && number > link->durable) {
        link->durable = number;
        weft_ps_log_sweep(client, tag.table, shard);
    }
}
