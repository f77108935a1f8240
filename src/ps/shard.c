/* Life, queues, clocks and events. Peers and the memory of their requests are in shard_peers.c,
 * what a request does in shard_request.c. */
#include "ps/hot_rows.h"
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "base/prefetch.h"

#include <math.h>
#include <stdlib.h>

/* Replies and CLOCK together must stay below WEFT_MSGS_MAX, otherwise a reply might find no message
 * slot. */
enum { SLOTS_MAX = WEFT_MSGS_MAX - 4 };

void weft_shard_config_default(struct weft_shard_config *config_p)
{
    *config_p = (struct weft_shard_config){
        .shards = 1,
        .workers_max = 16,
        .tables_max = 4,
        .rows_max = 1 << 20,
        .dim_max = 64,
        .push_slots = 8,
        .pull_slots = 4,
        .rows_per_rpc_max = WEFT_RPC_ROWS_LONG,
        .can = WEFT_RPC_CAN_ALL,
        .aggregators_max = 2,
        .list_ids = 1 << 17,
        .replica_lease_ns = 2 * WEFT_NS_PER_S,
        .replica_cow_bytes = 64 << 20,
        .slab_bytes = 1 << 20,
        .step_rows = 16384,
        .active_window_ns = WEFT_NS_PER_MS,
        .hot_top = 1000,
        .hot_epoch_ns = 10 * WEFT_NS_PER_S,
    };
}

uint32_t weft_shard_expects_max(const struct weft_shard_config *config)
{
    return config->workers_max * (config->push_slots + config->pull_slots + 3) +
           config->replicas_max +
           weft_shard_aggregators(config) * (WEFT_AGGREGATE_SLOTS + WEFT_AGGREGATE_PULLS);
}

static bool config_valid(const struct weft_shard_config *config)
{
    return config->shards >= 1 && config->shard < config->shards && config->workers_max >= 1 &&
           config->workers_max <= WEFT_RPC_WORKERS_MAX && config->tables_max >= 1 &&
           config->tables_max <= UINT32_C(1) << 16 && config->push_slots >= 1 &&
           config->pull_slots >= 1 && config->push_slots <= SLOTS_MAX &&
           config->pull_slots <= SLOTS_MAX - config->push_slots && config->rows_per_rpc_max >= 1 &&
           config->step_rows >= 1 && config->rows_per_rpc_max <= UINT32_C(1) << 28 &&
           config->dim_max >= 1 && config->dim_max <= WEFT_RPC_DIM_MAX &&
           config->clock_ns != NULL && config->active_window_ns >= 1 &&
           (config->hot_rows == 0 ||
            (config->hot_rows <= WEFT_HOT_ROWS_MAX && config->hot_epoch_ns >= WEFT_NS_PER_MS &&
             (uint64_t)config->hot_top * 5 >= (uint64_t)config->hot_rows * 6)) &&
           config->list_ids <= UINT32_C(1) << 30 && config->on_death <= WEFT_DEATH_FAIL &&
           (config->can & ~WEFT_RPC_CAN_ALL) == 0 &&
           (!config->checkpoints || config->chunks_max >= 1) && config->replicas_max <= 1 &&
           (config->replicas_max == 0 ||
            (config->chunks_max >= 1 && config->div_max >= 0 && isfinite(config->div_max) &&
             config->replica_lease_ns >= WEFT_NS_PER_MS)) &&
           config->chunks_max <= UINT32_C(1) << 18 &&
           config->aggregators_max <= WEFT_SHARD_AGGREGATORS_MAX;
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status slot_init(const struct weft_shard_config *config, struct shard_slot *slot)
{
    size_t answer_bytes = WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES;
    bool is_pull = slot->op == WEFT_RPC_PULL, has_ids = is_pull || slot->op == WEFT_RPC_LIST;
    if (is_pull) {
        /* One more block, for the padding of the reply's head. */
        answer_bytes += config->rows_per_rpc_max * weft_table_row_push_bytes_max(config->dim_max) +
                        WEFT_RPC_BLOCK_FLOATS * sizeof(float);
        if (config->hot_rows > 0) {
            answer_bytes = weft_max_u64(answer_bytes, weft_hot_reply_bytes_max(config->hot_rows));
        }
        slot->came = calloc(WEFT_BITS_WORDS((size_t)config->rows_per_rpc_max), sizeof(*slot->came));
    }
    if (has_ids) {
        slot->ids = calloc(config->rows_per_rpc_max, sizeof(*slot->ids));
    }
    slot->answer = malloc(answer_bytes); /* touched only as far as replies need it */
    bool lacks = (has_ids && slot->ids == NULL) || (is_pull && slot->came == NULL);
    return slot->answer == NULL || lacks ? WEFT_NOMEM : WEFT_OK;
}

static weft_status slots_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    const uint32_t of_workers = config->workers_max * shard->slots_per_worker;
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < shard->slot_count; i++) {
        shard->slots[i].spans = &shard->spans[i];
    }
    for (uint32_t i = of_workers; status == WEFT_OK && i < shard->slot_count; i++) {
        struct shard_slot *slot = &shard->slots[i];
        slot->worker = config->workers_max + (i - of_workers) / WEFT_AGGREGATE_PULLS;
        slot->op = WEFT_RPC_PULL;
        status = slot_init(config, slot);
    }
    for (uint32_t i = 0; status == WEFT_OK && i < of_workers; i++) {
        struct shard_slot *slot = &shard->slots[i];
        uint32_t place = i % shard->slots_per_worker;
        slot->worker = i / shard->slots_per_worker;
        slot->op = place < config->push_slots                         ? WEFT_RPC_PUSH
                   : place < config->push_slots + config->pull_slots  ? WEFT_RPC_PULL
                   : place == config->push_slots + config->pull_slots ? WEFT_RPC_TABLE
                                                                      : WEFT_RPC_LIST;
        status = slot_init(config, slot);
    }
    return status;
}

static weft_status shard_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    shard->slots_per_worker = config->push_slots + config->pull_slots + 2;
    const uint32_t aggregators = weft_shard_aggregators(config);
    shard->slot_count =
        config->workers_max * shard->slots_per_worker + aggregators * WEFT_AGGREGATE_PULLS;
    shard->waiting = shard->due = shard->ready = shard->asking =
        (struct shard_queue){WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    shard->tables = calloc(config->tables_max, sizeof(*shard->tables));
    shard->clocks = calloc((size_t)config->tables_max * config->workers_max, sizeof(uint32_t));
    shard->clock_min = calloc(config->tables_max, sizeof(*shard->clock_min));
    shard->step_to = calloc(config->tables_max, sizeof(*shard->step_to));
    shard->workers = calloc(config->workers_max + aggregators, sizeof(*shard->workers));
    shard->slots = calloc(shard->slot_count, sizeof(*shard->slots));
    shard->spans = calloc(shard->slot_count, sizeof(*shard->spans));
    shard->pushes =
        calloc((size_t)config->tables_max * config->workers_max, sizeof(*shard->pushes));
    shard->critical =
        calloc(WEFT_BITS_WORDS((size_t)WEFT_SHARD_CHUNKS_MAX), sizeof(*shard->critical));
    shard->restored = calloc(config->tables_max, sizeof(*shard->restored));
    shard->chunk_rows = calloc(WEFT_PS_CHUNK_ROWS_MAX, sizeof(struct weft_table_row *));
    shard->chunk_hashes = calloc(WEFT_PS_CHUNK_ROWS_MAX, sizeof(*shard->chunk_hashes));
    shard->chunk_ids = calloc(WEFT_PS_CHUNK_ROWS_MAX, sizeof(*shard->chunk_ids));
    shard->values = calloc(WEFT_PS_CHUNK_VALUES_MAX, sizeof(*shard->values));
    if (shard->tables == NULL || shard->clocks == NULL || shard->clock_min == NULL ||
        shard->step_to == NULL || shard->workers == NULL || shard->slots == NULL ||
        shard->chunk_rows == NULL || shard->chunk_hashes == NULL || shard->chunk_ids == NULL ||
        shard->values == NULL || shard->pushes == NULL || shard->restored == NULL ||
        shard->critical == NULL || shard->spans == NULL) {
        return WEFT_NOMEM;
    }
    weft_status status = weft_shard_members_init(shard);
    status = status == WEFT_OK ? weft_shard_updates_init(shard) : status;
    status = status == WEFT_OK ? slots_init(shard) : status;
    const struct weft_table_limits limits = {
        .rows_max = config->rows_max,
        .dim_max = config->dim_max,
        .slab_bytes = config->slab_bytes,
        .bytes_max = config->table_bytes_max,
        .shard = config->shard,
        .shards = config->shards,
        .hot_top = config->hot_top,
        .keys = config->keys,
    };
    for (uint32_t t = 0; status == WEFT_OK && t < config->tables_max; t++) {
        status = weft_table_init(&shard->tables[t], &limits);
        weft_table_set_hooks(&shard->tables[t], config->hooks, (uint16_t)t);
    }
    if (status == WEFT_OK && config->chunks_max > 0) {
        status = weft_shard_partials_init(shard);
        status = status == WEFT_OK ? weft_shard_lists_init(shard) : status;
        if (status == WEFT_OK && config->aggregators_max > 0) {
            status = weft_shard_aggregates_init(shard);
            status =
                status == WEFT_OK && config->hot_rows > 0 ? weft_shard_hots_init(shard) : status;
        }
    }
    if (status == WEFT_OK && config->checkpoints) {
        status = weft_snapshot_init(shard);
        status = status == WEFT_OK ? weft_shard_durable_init(shard) : status;
    }
    if (status == WEFT_OK && config->replicas_max > 0) {
        status = weft_transfer_init(shard);
    }
    return status;
}

weft_status weft_shard_new(const struct weft_shard_config *config, struct weft_msgr msgr,
                           struct weft_shard **shard_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_shard *shard = calloc(1, sizeof(*shard));
    if (shard == NULL) {
        return WEFT_NOMEM;
    }
    shard->config = *config;
    shard->msgr = msgr;
    weft_status status = shard_init(shard);
    if (status != WEFT_OK) {
        weft_shard_free(shard);
        return status;
    }
    *shard_p = shard;
    return WEFT_OK;
}

void weft_shard_free(struct weft_shard *shard)
{
    if (shard == NULL) {
        return;
    }
    for (uint32_t i = 0; shard->slots != NULL && i < shard->slot_count; i++) {
        free(shard->slots[i].ids);
        free(shard->slots[i].came);
        free(shard->slots[i].answer);
    }
    for (uint32_t t = 0; shard->tables != NULL && t < shard->config.tables_max; t++) {
        weft_table_fini(&shard->tables[t]);
    }
    weft_snapshot_fini(shard);
    weft_transfer_fini(shard);
    weft_shard_journal_fini(shard);
    weft_shard_partials_fini(shard);
    weft_shard_lists_fini(shard);
    weft_shard_aggregates_fini(shard);
    weft_shard_hots_fini(shard);
    weft_shard_durable_fini(shard);
    weft_shard_updates_fini(shard);
    free(shard->pushes);
    free(shard->critical);
    free(shard->restored);
    free(shard->members);
    free(shard->tables);
    free(shard->clocks);
    free(shard->clock_min);
    free(shard->step_to);
    free(shard->workers);
    free(shard->slots);
    free(shard->spans);
    free(shard->chunk_rows);
    free(shard->chunk_hashes);
    free(shard->chunk_ids);
    free(shard->values);
    free(shard);
}

/* ---- queues ---------------------------------------------------------------------------------- */

void weft_shard_queue_push(struct weft_shard *shard, struct shard_queue *queue, uint32_t slot)
{
    shard->slots[slot].next = WEFT_SHARD_NONE;
    if (queue->head == WEFT_SHARD_NONE) {
        queue->head = slot;
    } else {
        shard->slots[queue->tail].next = slot;
    }
    queue->tail = slot;
}

uint32_t weft_shard_queue_pop(struct weft_shard *shard, struct shard_queue *queue)
{
    uint32_t slot = queue->head;
    if (slot != WEFT_SHARD_NONE) {
        queue->head = shard->slots[slot].next;
    }
    return slot;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static bool clock_valid(const struct weft_shard *shard, const struct weft_msg_event *event,
                        uint32_t rank, struct weft_rpc_tag *tag_p, bool *parks_p)
{
    struct weft_rpc_request request;
    if (!shard->workers[rank].up || shard->workers[rank].peer != event->peer ||
        event->elem_bytes != WEFT_RPC_REQUEST_BYTES || event->total != 1 ||
        !weft_rpc_tag_unpack(event->tag, tag_p) ||
        weft_rpc_request_unpack(event->data, WEFT_RPC_REQUEST_BYTES, &request) != WEFT_OK ||
        request.worker != rank || request.rows != 0 ||
        (request.flags != WEFT_RPC_PARK && (request.flags & ~WEFT_RPC_UPTO) != 0)) {
        return false;
    }
    const struct weft_table *table = shard_table(shard, tag_p->table);
    if (table == NULL || rank >= table->spec.workers || tag_p->number == 0) {
        return false;
    }
    *parks_p = request.flags == WEFT_RPC_PARK;
    if (*parks_p) {
        return true;
    }
    uint32_t clock = shard->clocks[(size_t)tag_p->table * shard->config.workers_max + rank];
    return tag_p->number <= clock + 1 ||
           ((request.flags & WEFT_RPC_UPTO) != 0 && tag_p->number <= WEFT_RPC_CLOCK_MAX);
}

static void clock_chunk(struct weft_shard *shard, const struct weft_msg_event *event, uint32_t rank,
                        uint64_t now_ns)
{
    struct weft_rpc_tag tag;
    bool parks;
    if (!clock_valid(shard, event, rank, &tag, &parks) ||
        (parks && !weft_shard_park(shard, rank, tag.number, now_ns))) {
        shard->counters.clocks_refused++;
        shard->counters.chunks_refused++;
        shard->msgr.ops->refuse(shard->msgr.self, event->peer, event->seq);
        return;
    }
    if (!parks) {
        (void)weft_shard_clock_take(shard, tag.table, rank, tag.number, now_ns);
    }
}

bool weft_shard_clock_take(struct weft_shard *shard, uint16_t index, uint32_t rank, uint32_t number,
                           uint64_t now_ns)
{
    uint32_t *clock = &shard->clocks[(size_t)index * shard->config.workers_max + rank];
    if (number <= *clock) {
        shard->counters.clocks_duplicate++;
        return true;
    }
    if (number > *clock + 1 && number > WEFT_RPC_CLOCK_MAX) {
        return false;
    }
    weft_shard_journal_clock(shard, index, rank, number);
    *clock = number;
    shard->counters.clocks++;
    weft_shard_clock_arrived(shard, index, rank, now_ns);
    weft_shard_update_clock(shard, index, rank, number);
    weft_shard_clock_advance(shard, index, now_ns);
    weft_shard_now_follow(shard, index);
    if (shard->tables[index].spec.mode != WEFT_TABLE_BSP) {
        weft_table_set_newest(&shard->tables[index], *clock + 1);
    }
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void incoming(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    if (event->user >= WEFT_SHARD_USER_CLOCK) {
        if (event->type == WEFT_EVENT_OPEN) {
            weft_shard_record_open(shard, (uint32_t)(event->user - WEFT_SHARD_USER_CLOCK),
                                   event->at_ns);
        }
        if (event->type == WEFT_EVENT_CHUNK) {
            clock_chunk(shard, event, (uint32_t)(event->user - WEFT_SHARD_USER_CLOCK), now_ns);
        }
        return;
    }
    WEFT_ASSERT(event->user < shard->slot_count);
    struct shard_slot *slot = &shard->slots[event->user];
    if (event->type == WEFT_EVENT_OPEN) {
        weft_prefetch_to_write(slot->answer);
        weft_prefetch_to_write(slot->ids);
        shard->busy_count++;
        weft_shard_record_open(shard, slot->worker, event->at_ns);
        weft_shard_request_open(shard, slot, event);
    } else if (event->type == WEFT_EVENT_CHUNK) {
        weft_shard_request_chunk(shard, slot, event);
        if (slot->update) {
            weft_shard_update_arrived(shard, slot, event->elems * event->elem_bytes, now_ns);
        }
    } else {
        weft_shard_request_closed(shard, slot, event, now_ns);
    }
}

void weft_shard_event(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    if (weft_transfer_event(shard, event, now_ns) ||
        weft_shard_aggregate_event(shard, event, now_ns)) {
        return;
    }
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        weft_shard_peer_up(shard, event, now_ns);
        break;
    case WEFT_EVENT_PEER_DOWN:
        weft_shard_peer_down(shard, event, now_ns);
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
    case WEFT_EVENT_RECEIVED:
        incoming(shard, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        if (event->user >= WEFT_SHARD_USER_DURABLE) {
            weft_shard_durable_sent(shard, (uint32_t)(event->user - WEFT_SHARD_USER_DURABLE),
                                    event->outcome == WEFT_MSG_COMPLETE);
            break;
        }
        WEFT_ASSERT(event->user < shard->slot_count);
        WEFT_ASSERT(shard->slots[event->user].state == SLOT_SENDING);
        shard->counters.replies_failed += event->outcome == WEFT_MSG_UNKNOWN;
        weft_shard_reply_sent(shard, &shard->slots[event->user], event);
        weft_shard_slot_release(shard, (uint32_t)event->user);
        break;
    }
}

void weft_shard_progress(struct weft_shard *shard, uint64_t now_ns)
{
    if (shard->unposted_count > 0) {
        weft_shard_post_again(shard);
    }
    if (shard->step_tables > 0) {
        weft_shard_step(shard, now_ns);
    }
    if (shard->parked_count > 0) {
        weft_shard_parked_overdue(shard, now_ns);
    }
    if (shard->cut_told) {
        weft_shard_cut_tell(shard, now_ns);
    }
    weft_transfer_progress(shard, now_ns);
    weft_shard_answer_due(shard, false);
    weft_shard_send_ready(shard, now_ns);
    weft_shard_aggregate_send(shard, now_ns);
    weft_shard_durable_send(shard, now_ns);
}

bool weft_shard_has_work(const struct weft_shard *shard)
{
    return shard->step_tables > 0 || shard->due.head != WEFT_SHARD_NONE;
}

/* ---- questions ------------------------------------------------------------------------------- */

bool weft_shard_wants_slab(const struct weft_shard *shard, uint16_t *table_p, size_t *bytes_p)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (weft_table_wants_slab(&shard->tables[t], bytes_p)) {
            *table_p = (uint16_t)t;
            return true;
        }
    }
    return false;
}

weft_status weft_shard_add_slab(struct weft_shard *shard, uint16_t table, void *memory,
                                size_t bytes)
{
    if (table >= shard->config.tables_max) {
        return WEFT_INVALID;
    }
    return weft_table_add_slab(&shard->tables[table], memory, bytes);
}

void *weft_shard_take_slab(struct weft_shard *shard)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        void *memory = weft_table_take_slab(&shard->tables[t]);
        if (memory != NULL) {
            return memory;
        }
    }
    return NULL;
}

bool weft_shard_busy(const struct weft_shard *shard)
{
    return shard->busy_count > 0;
}

const struct weft_shard_counters *weft_shard_counters(const struct weft_shard *shard)
{
    return &shard->counters;
}

const struct weft_shard_latencies *weft_shard_push_latencies(const struct weft_shard *shard)
{
    return &shard->push;
}

const struct weft_shard_latencies *weft_shard_pull_latencies(const struct weft_shard *shard)
{
    return &shard->pull;
}

uint32_t weft_shard_hot_top(const struct weft_shard *shard)
{
    return shard->config.hot_top;
}

uint32_t weft_shard_tables_max(const struct weft_shard *shard)
{
    return shard->config.tables_max;
}

const struct weft_table *weft_shard_table(const struct weft_shard *shard, uint16_t table)
{
    return shard_table(shard, table);
}

void weft_shard_table_sums(const struct weft_shard *shard, struct weft_shard_table_sums *sums_p)
{
    *sums_p = (struct weft_shard_table_sums){0};
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const struct weft_table *table = &shard->tables[t];
        sums_p->rows += weft_table_rows(table);
        sums_p->bytes += weft_table_bytes(table);
        sums_p->rows_created += table->counters.rows_created;
        sums_p->rows_evicted += table->counters.rows_evicted;
        sums_p->rows_expired += table->counters.rows_expired;
        sums_p->unadmitted += table->counters.unadmitted;
        sums_p->unadmitted_forgotten += table->admission.forgotten;
        sums_p->not_finite += table->counters.not_finite;
    }
}

uint32_t weft_shard_clock(const struct weft_shard *shard, uint16_t table)
{
    return shard_table(shard, table) == NULL ? 0 : shard->clock_min[table];
}
