/* Lifecycle, peers, TABLE, and replies to pushes. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Replies per worker in addition to those of its slots: the transport acknowledges a push long
 * before the aggregator replies to it. Equal to the number of pushes of one table that a worker has
 * in flight. */
enum { ANSWERS_PER_WORKER = 258, ANSWERS_PER_CHILD = 4 * WEFT_AGGREGATE_SLOTS };

void weft_aggregator_config_default(struct weft_aggregator_config *config_p)
{
    *config_p = (struct weft_aggregator_config){
        .workers_max = 16,
        .tables_max = 4,
        .push_slots = 4,
        .push_bytes_max = WEFT_AGGREGATE_BYTES_MAX,
        .groups_max = 16,
        .age_ns = 2 * WEFT_NS_PER_MS,
        .sum_age_ns = 300 * WEFT_NS_PER_MS,
        .pull_slots = 4,
        .pull_rows_max = 16384,
        .cache_bytes = 64 << 20,
        .pull_age_ns = 2 * WEFT_NS_PER_MS,
        .pull_patience_ns = 500 * WEFT_NS_PER_MS,
    };
}

uint32_t weft_aggregator_expects_max(const struct weft_aggregator_config *config)
{
    return config->workers_max * (config->push_slots + config->pull_slots + 2) +
           config->children_max * (WEFT_AGGREGATE_SLOTS + WEFT_AGGREGATE_PULLS + 1) +
           config->groups_max + WEFT_AGGREGATE_SLOTS + AGG_ENDS_MAX + WEFT_AGGREGATE_PULLS +
           (config->has_parent ? config->tables_max : 0);
}

static bool config_valid(const struct weft_aggregator_config *config)
{
    return config->workers_max >= 1 && config->workers_max <= WEFT_RPC_WORKERS_MAX &&
           config->children_max <= WEFT_AGGREGATE_NUMBERS_MAX &&
           config->number < WEFT_AGGREGATE_NUMBERS_MAX && config->tables_max >= 1 &&
           config->tables_max <= UINT32_C(1) << 16 && config->push_slots >= 1 &&
           config->push_slots <= 60 && config->push_bytes_max >= 64 &&
           config->push_bytes_max <= WEFT_AGGREGATE_BYTES_MAX && config->groups_max >= 1 &&
           config->groups_max <= WEFT_AGGREGATOR_GROUPS_MAX && config->age_ns >= 1 &&
           config->pull_slots <= 16 && config->pull_rows_max >= 1 &&
           config->pull_rows_max <= UINT32_C(1) << 20 && config->pull_patience_ns >= 1 &&
           config->clock_ns != NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status answers_init(struct weft_aggregator *agg)
{
    const struct weft_aggregator_config *config = &agg->config;
    agg->answer_count = config->workers_max * (config->push_slots + ANSWERS_PER_WORKER) +
                        config->children_max * ANSWERS_PER_CHILD;
    agg->answers = calloc(agg->answer_count, sizeof(*agg->answers));
    for (uint32_t i = 0; agg->answers != NULL && i < agg->answer_count; i++) {
        agg->answers[i].next = i + 1 < agg->answer_count ? i + 1 : AGG_NONE;
    }
    return agg->answers == NULL ? WEFT_NOMEM : WEFT_OK;
}

static weft_status agg_init(struct weft_aggregator *agg)
{
    const struct weft_aggregator_config *config = &agg->config;
    agg->ready_head = agg->ready_tail = AGG_NONE;
    agg->ranks_max = config->workers_max + config->children_max;
    agg->workers = calloc(agg->ranks_max, sizeof(*agg->workers));
    agg->tables = calloc(config->tables_max, sizeof(*agg->tables));
    agg->closed_max = 2 * agg->ranks_max + 64;
    agg->closed = calloc(agg->closed_max, sizeof(*agg->closed));
    agg->closed_for_good = calloc(agg->closed_max, sizeof(*agg->closed_for_good));
    if (agg->workers == NULL || agg->tables == NULL || agg->closed == NULL ||
        agg->closed_for_good == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t t = 0; t < config->tables_max; t++) {
        agg->tables[t].open = calloc(WEFT_BITS_WORDS((size_t)agg->ranks_max), sizeof(uint64_t));
        agg->tables[t].shards = calloc(agg->ranks_max, sizeof(uint64_t));
        agg->tables[t].ended = calloc(agg->ranks_max, sizeof(uint32_t));
        if (agg->tables[t].open == NULL || agg->tables[t].shards == NULL ||
            agg->tables[t].ended == NULL) {
            return WEFT_NOMEM;
        }
    }
    weft_status status = answers_init(agg);
    status = status == WEFT_OK ? weft_agg_pushes_init(agg) : status;
    status = status == WEFT_OK ? weft_agg_children_init(agg) : status;
    status = status == WEFT_OK ? weft_agg_groups_init(agg) : status;
    status = status == WEFT_OK ? weft_agg_pulls_init(agg) : status;
    status = status == WEFT_OK ? weft_agg_fetches_init(agg) : status;
    return status == WEFT_OK ? weft_agg_cache_init(agg) : status;
}

weft_status weft_aggregator_new(const struct weft_aggregator_config *config, struct weft_msgr msgr,
                                struct weft_aggregator **aggregator_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_aggregator *agg = calloc(1, sizeof(*agg));
    if (agg == NULL) {
        return WEFT_NOMEM;
    }
    agg->config = *config;
    agg->msgr = msgr;
    agg->key = weft_hash_key(config->key);
    weft_status status = agg_init(agg);
    if (status != WEFT_OK) {
        weft_aggregator_free(agg);
        return status;
    }
    *aggregator_p = agg;
    return WEFT_OK;
}

void weft_aggregator_free(struct weft_aggregator *agg)
{
    if (agg == NULL) {
        return;
    }
    weft_agg_pushes_fini(agg);
    weft_agg_children_fini(agg);
    weft_agg_cache_fini(agg);
    for (uint32_t t = 0; agg->tables != NULL && t < agg->config.tables_max; t++) {
        free(agg->tables[t].open);
        free(agg->tables[t].shards);
        free(agg->tables[t].ended);
    }
    weft_agg_groups_fini(agg);
    weft_agg_pulls_fini(agg);
    weft_agg_fetches_fini(agg);
    free(agg->workers);
    free(agg->tables);
    free(agg->answers);
    free(agg->closed);
    free(agg->closed_for_good);
    free(agg);
}

/* ---- expectations ---------------------------------------------------------------------------- */

bool weft_agg_expect(struct weft_aggregator *agg, uint32_t rank, enum weft_rpc_op op, void *memory,
                     size_t bytes, uint64_t user, weft_expect_id *id_p)
{
    const struct weft_msg_expect expect = {
        .peer = agg->workers[rank].peer,
        .sink = memory != NULL ? WEFT_SINK_COPY : WEFT_SINK_EVENT,
        .tag = (uint64_t)op << 56,
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = memory,
        .memory_bytes = memory != NULL ? bytes : UINT64_MAX,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = user,
    };
    const bool posted = agg->msgr.ops->expect(agg->msgr.self, &expect, id_p) == WEFT_OK;
    agg->lacks |= !posted;
    return posted;
}

weft_status weft_agg_expect_answer(struct weft_aggregator *agg, enum weft_rpc_op op, uint16_t table,
                                   uint32_t rpc_id, void *memory, size_t bytes, uint64_t user,
                                   weft_expect_id *id_p)
{
    const struct weft_msg_expect expect = {
        .peer = agg->shard,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = (uint8_t)(op | WEFT_RPC_REPLY_FLAG), .table = table, .number = rpc_id}),
        .tag_mask = UINT64_MAX,
        .memory = memory,
        .memory_bytes = bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = user,
    };
    return agg->msgr.ops->expect(agg->msgr.self, &expect, id_p);
}

/* ---- answers --------------------------------------------------------------------------------- */

uint32_t weft_agg_answer_take(struct weft_aggregator *agg)
{
    const uint32_t index = agg->answer_free;
    if (index != AGG_NONE) {
        agg->answer_free = agg->answers[index].next;
        agg->answers[index].is_first = false;
    }
    return index;
}

void weft_agg_answer_free(struct weft_aggregator *agg, uint32_t index)
{
    agg->answers[index].next = agg->answer_free;
    agg->answer_free = index;
    agg->lacks = true; /* a slot may be waiting for this reply */
}

void weft_agg_answer(struct weft_aggregator *agg, uint32_t index, enum weft_rpc_status status,
                     const struct weft_rpc_reply *from_shard)
{
    struct agg_answer *answer = &agg->answers[index];
    struct weft_rpc_reply reply = {
        .rpc_id = answer->rpc_id,
        .status = (uint16_t)status,
        .can = answer->is_first ? WEFT_RPC_CAN_ON_APPLY : 0,
        .t0_ns = answer->t0_ns};
    if (from_shard != NULL) {
        reply.clock = from_shard->clock;
        reply.ps_proc_ns = from_shard->ps_proc_ns;
        reply.ps_overlap_ns = from_shard->ps_overlap_ns;
        reply.ps_wait_ns = from_shard->ps_wait_ns;
        reply.ps_queue_ns = from_shard->ps_queue_ns;
        /* on refusal: the rank that is refused; to a child: the clock for its weights */
        reply.rows = status == WEFT_RPC_OK && answer->op != WEFT_RPC_AGGREGATE ? 0
                                                                              : from_shard->rows;
    }
    weft_rpc_reply_pack(&reply, answer->bytes);
    answer->next = AGG_NONE;
    if (agg->ready_head == AGG_NONE) {
        agg->ready_head = index;
    } else {
        agg->answers[agg->ready_tail].next = index;
    }
    agg->ready_tail = index;
}

void weft_agg_answer_first(struct weft_aggregator *agg, uint32_t index)
{
    const uint32_t first = weft_agg_answer_take(agg);
    if (first == AGG_NONE) {
        return; /* it is acknowledged on commit */
    }
    agg->answers[first] = agg->answers[index];
    agg->answers[first].is_first = true;
    agg->answers[index].op = WEFT_RPC_COMMITTED;
    agg->counters.pushes_applied++;
    weft_agg_answer(agg, first, WEFT_RPC_OK, NULL);
}

static weft_status answer_send(struct weft_aggregator *agg, uint32_t index, uint64_t now_ns)
{
    const struct agg_answer *answer = &agg->answers[index];
    const struct agg_worker *worker = &agg->workers[answer->rank];
    if (!worker->up || worker->life != answer->life) {
        return WEFT_PEER;
    }
    const struct weft_msg_send send = {
        .peer = worker->peer,
        .base = answer->bytes,
        .total = 1,
        .elem_bytes = WEFT_RPC_REPLY_BYTES,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = answer->op | WEFT_RPC_REPLY_FLAG,
            .table = answer->table,
            .number = answer->rpc_id,
        }),
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_ANSWER | index,
    };
    uint64_t seq;
    return agg->msgr.ops->send(agg->msgr.self, &send, now_ns, &seq);
}

static void answers_send(struct weft_aggregator *agg, uint64_t now_ns)
{
    uint32_t index = agg->ready_head;
    agg->ready_head = agg->ready_tail = AGG_NONE;
    /* Try each reply once: a worker that accepts no message now must not block the others. */
    while (index != AGG_NONE) {
        const uint32_t next = agg->answers[index].next;
        weft_status status = answer_send(agg, index, now_ns);
        if (status == WEFT_AGAIN) {
            agg->answers[index].next = AGG_NONE;
            *(agg->ready_head == AGG_NONE ? &agg->ready_head
                                          : &agg->answers[agg->ready_tail].next) = index;
            agg->ready_tail = index;
        } else if (status != WEFT_OK) {
            weft_agg_answer_free(agg, index); /* the worker is gone; a new connection resends the
                                               * push */
        }
        index = next;
    }
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void table_post(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_worker *worker = &agg->workers[rank];
    if (!worker->up || worker->table_busy || worker->table_posted) {
        return;
    }
    worker->table_posted = weft_agg_expect(agg, rank, WEFT_RPC_TABLE, worker->table_request,
                                           sizeof(worker->table_request), AGG_USER_TABLE | rank,
                                           &worker->table_expect);
}

static void post_all(struct weft_aggregator *agg, uint32_t rank)
{
    table_post(agg, rank);
    weft_agg_pulls_post(agg, rank);
    if (agg_is_child(agg, rank)) {
        weft_agg_child_post(agg, rank);
    } else {
        weft_agg_pushes_post(agg, rank);
        weft_agg_clock_post(agg, rank);
    }
}

void weft_agg_close_later(struct weft_aggregator *agg, weft_peer peer, bool for_good)
{
    for (uint32_t i = 0; i < agg->closed_count; i++) {
        if (agg->closed[i] == peer) {
            agg->closed_for_good[i] |= for_good;
            return;
        }
    }
    if (agg->closed_count < agg->closed_max) {
        agg->closed_for_good[agg->closed_count] = for_good;
        agg->closed[agg->closed_count++] = peer;
    }
}

bool weft_aggregator_take_closed(struct weft_aggregator *agg, weft_peer *peer_p, bool *for_good_p)
{
    if (agg->closed_count == 0) {
        return false;
    }
    *peer_p = agg->closed[--agg->closed_count];
    *for_good_p = agg->closed_for_good[agg->closed_count];
    return true;
}

void weft_agg_unbind(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_worker *worker = &agg->workers[rank];
    worker->up = false;
    if (worker->table_posted) {
        (void)!agg->msgr.ops->cancel(agg->msgr.self, worker->table_expect);
        worker->table_posted = false;
    }
    worker->table_stale = worker->table_busy &= !worker->table_due;
    worker->table_due = false;
    weft_agg_pulls_unbind(agg, rank);
    if (agg_is_child(agg, rank)) {
        weft_agg_child_unbind(agg, rank);
    } else {
        weft_agg_pushes_unbind(agg, rank);
        weft_agg_clock_unbind(agg, rank);
    }
    agg->parent_due = true;
    for (uint32_t t = 0; t < agg->config.tables_max; t++) {
        struct agg_table *table = &agg->tables[t];
        if (weft_bits_test(table->open, rank)) {
            weft_bits_clear(table->open, rank);
            table->ended[rank] = 0;
            table->open_count--;
            weft_agg_groups_look(agg, (uint16_t)t);
        }
    }
}

static void shard_down(struct weft_aggregator *agg)
{
    agg->shard_up = agg->shard_connecting = false;
    agg->shard_incarnation = 0;
    weft_agg_groups_drop(agg);
    weft_agg_fetches_drop(agg);
    weft_agg_cache_clear(agg);
    weft_agg_parent_down(agg);
}

/* True: the process that answered is the expected shard, or a possible parent. */
static bool is_above(struct weft_aggregator *agg, uint64_t name)
{
    const uint32_t number = (uint32_t)name & 0xff;
    if (!agg->config.has_parent) {
        return name == weft_rpc_name(WEFT_ROLE_SERVER, agg->config.shard);
    }
    if (name != weft_rpc_aggregator_name(agg->config.shard, number)) {
        return false;
    }
    agg->counters.cycles_detected += number == agg->config.number;
    return number != agg->config.number;
}

void weft_agg_bind(struct weft_aggregator *agg, uint32_t rank, const struct weft_msg_event *event)
{
    struct agg_worker *worker = &agg->workers[rank];
    worker->up = true;
    worker->life++;
    worker->peer = event->peer;
    worker->incarnation = event->incarnation;
    post_all(agg, rank);
}

static void peer_up(struct weft_aggregator *agg, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    const uint32_t rank = (uint32_t)event->name;
    if (agg->shard_connecting && event->peer == agg->shard) {
        agg->shard_connecting = false;
        agg->shard_up = is_above(agg, event->name);
        agg->shard_incarnation = event->incarnation;
        agg->parent_due = true;
        if (!agg->shard_up) {
            agg->counters.peers_ignored++;
            weft_agg_close_later(agg, event->peer, false);
        }
        return;
    }
    if (event->name >> 32 == WEFT_ROLE_AGGREGATOR) {
        weft_agg_child_up(agg, event, now_ns);
        return;
    }
    if (event->name >> 32 != WEFT_ROLE_WORKER || rank >= agg->config.workers_max) {
        agg->counters.peers_ignored++;
        return;
    }
    if (agg->workers[rank].up) {
        agg->counters.workers_replaced++;
        weft_agg_close_later(agg, agg->workers[rank].peer, false);
        weft_agg_unbind(agg, rank);
    }
    weft_agg_bind(agg, rank, event);
}

static void peer_down(struct weft_aggregator *agg, const struct weft_msg_event *event)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < agg->closed_count; i++) { /* the peer number may be reused */
        if (agg->closed[i] != event->peer) {
            agg->closed_for_good[kept] = agg->closed_for_good[i];
            agg->closed[kept++] = agg->closed[i];
        }
    }
    agg->closed_count = kept;
    if ((agg->shard_up || agg->shard_connecting) && event->peer == agg->shard) {
        agg->counters.shard_refusals += event->down == WEFT_DOWN_REPLACED;
        shard_down(agg);
        return;
    }
    for (uint32_t rank = 0; rank < agg->ranks_max; rank++) {
        if (agg->workers[rank].up && agg->workers[rank].peer == event->peer) {
            weft_agg_unbind(agg, rank);
        }
    }
}

bool weft_aggregator_wants_shard(const struct weft_aggregator *agg)
{
    return !agg->shard_up && !agg->shard_connecting;
}

void weft_aggregator_connect(struct weft_aggregator *agg, weft_peer peer)
{
    WEFT_ASSERT(weft_aggregator_wants_shard(agg));
    agg->shard = peer;
    agg->shard_connecting = true;
}

/* ---- TABLE ----------------------------------------------------------------------------------- */

static enum weft_rpc_status table_open(struct weft_aggregator *agg, uint32_t rank,
                                       const struct weft_table_spec *spec, uint64_t shard)
{
    if (spec->table >= agg->config.tables_max || !weft_aggregate_takes(spec)) {
        return WEFT_RPC_SEND_DIRECT;
    }
    struct agg_table *table = &agg->tables[spec->table];
    if (table->open_count > 0 && !weft_table_spec_equal(&table->spec, spec)) {
        return WEFT_RPC_SPEC_MISMATCH;
    }
    for (uint32_t i = 0; i < agg->group_count; i++) {
        /* Workers that have left may still have groups here, whose rows have the old length: refuse
         * the new length until these are sent. */
        if (table->open_count == 0 && table->declared && agg->groups[i].table == spec->table &&
            !agg->groups[i].ends && agg->groups[i].state != AGG_GROUP_FREE &&
            table->spec.dim != spec->dim) {
            return WEFT_RPC_SPEC_MISMATCH;
        }
    }
    const bool is_new = !table->declared || !weft_table_spec_equal(&table->spec, spec);
    if (!is_new && table->parent.state == AGG_PARENT_REFUSED) {
        return WEFT_RPC_SEND_DIRECT;
    }
    table->spec = *spec;
    table->declared = true;
    table->shards[rank] = shard;
    agg->parent_due = true;
    if (is_new) {
        table->newest = 0;
        weft_agg_cache_begin(agg, spec->table);
        weft_agg_parent_forget(agg, spec->table);
    }
    table->open_count += !weft_bits_test(table->open, rank);
    weft_bits_set(table->open, rank);
    return WEFT_RPC_OK;
}

static enum weft_rpc_status table_take(struct weft_aggregator *agg, uint32_t rank, uint16_t index,
                                       const struct weft_rpc_request *request)
{
    const struct agg_worker *worker = &agg->workers[rank];
    const bool is_child = agg_is_child(agg, rank);
    const uint8_t *at = worker->table_request + WEFT_RPC_REQUEST_BYTES;
    struct weft_table_spec spec;
    if (request->worker != (is_child ? rank - agg->config.workers_max : rank)) {
        return WEFT_RPC_WRONG_WORKER;
    }
    if (weft_table_spec_unpack(index, at, WEFT_RPC_SPEC_BYTES, &spec) != WEFT_OK) {
        return WEFT_RPC_BAD_SPEC;
    }
    at += WEFT_RPC_SPEC_BYTES;
    const uint64_t shard = weft_aggregate_shard_unpack(at);
    if (is_child && !weft_agg_child_below(agg, rank, at + WEFT_AGGREGATE_SHARD_BYTES)) {
        return WEFT_RPC_BAD_REQUEST;
    }
    return table_open(agg, rank, &spec, shard);
}

uint64_t weft_aggregator_age_ns(const struct weft_aggregator *agg)
{
    return weft_time_add(agg->config.age_ns, agg->above_age_ns);
}

static uint32_t age_ms(const struct weft_aggregator *agg)
{
    const uint64_t age_ns = weft_aggregator_age_ns(agg);
    return (uint32_t)weft_min_u64(age_ns / WEFT_NS_PER_MS + (age_ns % WEFT_NS_PER_MS > 0),
                                  UINT32_MAX);
}

static void table_answer_send(struct weft_aggregator *agg, uint32_t rank, uint64_t now_ns)
{
    struct agg_worker *worker = &agg->workers[rank];
    const struct weft_msg_send send = {
        .peer = worker->peer,
        .base = worker->table_answer,
        .total = 1,
        .elem_bytes = WEFT_RPC_REPLY_BYTES,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .tag = worker->table_tag,
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_TABLE | rank,
    };
    uint64_t seq;
    const weft_status status = agg->msgr.ops->send(agg->msgr.self, &send, now_ns, &seq);
    worker->table_due = status == WEFT_AGAIN;
    worker->table_busy = status == WEFT_AGAIN || status == WEFT_OK;
    table_post(agg, rank);
}

static void table_received(struct weft_aggregator *agg, uint32_t rank,
                           const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_worker *worker = &agg->workers[rank];
    struct weft_rpc_request request;
    struct weft_rpc_tag tag;
    const bool is_child = agg_is_child(agg, rank);
    const size_t bytes = is_child ? AGG_CHILD_TABLE_BYTES : AGG_TABLE_REQUEST_BYTES;
    bool good =
        event->outcome == WEFT_MSG_COMPLETE && !worker->table_stale && worker->up &&
        event->total == bytes && event->elem_bytes == 1 && weft_rpc_tag_unpack(event->tag, &tag) &&
        weft_rpc_request_unpack(worker->table_request, WEFT_RPC_REQUEST_BYTES, &request) == WEFT_OK;
    if (!good) {
        worker->table_busy = worker->table_stale = false;
        table_post(agg, rank);
        return;
    }
    const enum weft_rpc_status status = table_take(agg, rank, tag.table, &request);
    const bool asks = agg->config.on_apply && !is_child && status == WEFT_RPC_OK;
    const bool allows = (request.need_clock & WEFT_RPC_CAN_ON_APPLY) != 0;
    uint32_t pulls;
    (void)agg_pulls_of(agg, rank, &pulls);
    agg->counters.tables_refused += status != WEFT_RPC_OK;
    /* Workers of earlier releases set no bit. */
    agg->counters.on_apply_refused +=
        asks && !allows && (request.need_clock & WEFT_RPC_CAN_AGGREGATE) != 0;
    const struct weft_rpc_reply reply = {
        .rpc_id = request.rpc_id,
        .status = (uint16_t)status,
        .can = (uint16_t)((status == WEFT_RPC_OK ? WEFT_AGGREGATE_CAN_CLOCK : 0) |
                          (asks && allows ? WEFT_RPC_CAN_ON_APPLY : 0)),
        .t0_ns = request.t0_ns,
        .clock = status == WEFT_RPC_OK ? age_ms(agg) : 0,
        .rows = status == WEFT_RPC_OK ? pulls : 0};
    weft_rpc_reply_pack(&reply, worker->table_answer);
    worker->table_tag = weft_rpc_tag_pack((struct weft_rpc_tag){
        .op = WEFT_RPC_TABLE | WEFT_RPC_REPLY_FLAG, .table = tag.table, .number = request.rpc_id});
    table_answer_send(agg, rank, now_ns);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void table_event(struct weft_aggregator *agg, uint32_t rank,
                        const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_worker *worker = &agg->workers[rank];
    if (event->type == WEFT_EVENT_OPEN) {
        worker->table_posted = false;
        worker->table_busy = true;
        worker->table_stale = false;
        worker->used_ns = now_ns;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        table_received(agg, rank, event, now_ns);
    } else if (event->type == WEFT_EVENT_SENT) {
        worker->table_busy = worker->table_stale = false;
        table_post(agg, rank);
    }
}

void weft_aggregator_event(struct weft_aggregator *agg, const struct weft_msg_event *event,
                           uint64_t now_ns)
{
    const uint32_t index = (uint32_t)event->user;
    if (event->type == WEFT_EVENT_PEER_UP) {
        peer_up(agg, event, now_ns);
        return;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        peer_down(agg, event);
        return;
    }
    switch (event->user & AGG_USER_MASK) {
    case AGG_USER_PUSH:
        weft_agg_push_event(agg, index, event, now_ns);
        break;
    case AGG_USER_TABLE:
        table_event(agg, index, event, now_ns);
        break;
    case AGG_USER_ANSWER:
        if (event->type == WEFT_EVENT_SENT) {
            weft_agg_answer_free(agg, index);
        }
        break;
    case AGG_USER_PULL:
        if (event->type == WEFT_EVENT_OPEN) {
            agg->workers[agg->pulls[index].rank].used_ns = now_ns;
        }
        weft_agg_pull_event(agg, index, event);
        break;
    case AGG_USER_FETCH:
        weft_agg_fetch_event(agg, index, event);
        break;
    case AGG_USER_CLOCK:
        weft_agg_clock_event(agg, index, event, now_ns);
        break;
    case AGG_USER_CHILD:
        weft_agg_child_event(agg, index, event, now_ns);
        break;
    case AGG_USER_PARENT:
        weft_agg_parent_event(agg, index, event, now_ns);
        break;
    case AGG_USER_GROUP:
        if (event->type == WEFT_EVENT_SENT) {
            weft_agg_group_sent(agg, index);
        } else if (event->type == WEFT_EVENT_RECEIVED) {
            weft_agg_group_answered(agg, index, event);
        }
        break;
    default:
        break;
    }
}

void weft_aggregator_progress(struct weft_aggregator *agg, uint64_t now_ns)
{
    if (agg->lacks) {
        agg->lacks = false;
        for (uint32_t rank = 0; rank < agg->ranks_max; rank++) {
            post_all(agg, rank);
        }
    }
    for (uint32_t rank = 0; rank < agg->ranks_max; rank++) {
        if (agg->workers[rank].table_due) {
            table_answer_send(agg, rank, now_ns);
        }
    }
    weft_agg_parent_progress(agg, now_ns);
    weft_agg_groups_progress(agg, now_ns);
    answers_send(agg, now_ns);
    weft_agg_pulls_progress(agg, now_ns);
}

const struct weft_aggregator_counters *weft_aggregator_counters(const struct weft_aggregator *agg)
{
    return &agg->counters;
}
