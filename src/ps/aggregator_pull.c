/* Pulls of workers, from the first chunk to the reply.
 *
 * A row may be used for a pull if all of these hold:
 *
 *     it is of the shard process that the worker uses;
 *     its version is at least the pull's bound;
 *     the aggregator requested it no earlier than `fresh_ns`.
 *
 * The pull states how old rows may be (after_seq, in microseconds): the time since the shard closed
 * the worker's last push. The worker computed that time before it sent the pull. Subtracting it
 * from the time of arrival here gives a moment after the close, so a row requested since then
 * contains all of the worker's pushes. The two clocks need not agree; they only have to run at
 * nearly the same rate, and the worker subtracts a thousandth.
 *
 * Cached rows are copied into the reply at once, at their final position. For each other row the
 * index of its fetch is noted. A reply that is incomplete after pull_patience_ns is given up, and
 * the pull goes direct. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/pull_ids.h"

#include <stdlib.h>
#include <string.h>

enum { CRITICAL_MAX = 254 }; /* leading chunks that a message can name; core/msg.h */

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status pull_init(const struct weft_aggregator *agg, struct agg_pull *pull)
{
    const uint32_t rows = agg->config.pull_rows_max;
    pull->ids = calloc(rows, sizeof(*pull->ids));
    pull->came = calloc(WEFT_BITS_WORDS((size_t)rows), sizeof(*pull->came));
    pull->from = calloc(rows, sizeof(*pull->from));
    pull->answer = calloc(1, agg_rows_bytes(agg));
    bool lacks = pull->ids == NULL || pull->came == NULL || pull->from == NULL;
    return lacks || pull->answer == NULL ? WEFT_NOMEM : WEFT_OK;
}

weft_status weft_agg_pulls_init(struct weft_aggregator *agg)
{
    uint32_t count;
    agg->pull_count = agg_pulls_of(agg, agg->ranks_max, &count);
    agg->pulls = calloc(agg->pull_count + 1, sizeof(*agg->pulls));
    agg->found = calloc(agg->config.pull_rows_max, sizeof(*agg->found));
    weft_status status = agg->pulls == NULL || agg->found == NULL ? WEFT_NOMEM : WEFT_OK;
    for (uint32_t rank = 0; status == WEFT_OK && rank < agg->ranks_max; rank++) {
        const uint32_t first = agg_pulls_of(agg, rank, &count);
        for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
            agg->pulls[first + i].rank = rank;
            status = pull_init(agg, &agg->pulls[first + i]);
        }
    }
    return status;
}

void weft_agg_pulls_fini(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; agg->pulls != NULL && i < agg->pull_count; i++) {
        free(agg->pulls[i].ids);
        free(agg->pulls[i].came);
        free(agg->pulls[i].from);
        free(agg->pulls[i].answer);
    }
    free(agg->pulls);
    free(agg->found);
}

/* ---- memory for pulls ------------------------------------------------------------------------ */

static void post(struct weft_aggregator *agg, struct agg_pull *pull)
{
    if (!agg->workers[pull->rank].up) {
        return;
    }
    /* A pull that is too large is answered with SEND_DIRECT. */
    if (weft_agg_expect(agg, pull->rank, WEFT_RPC_PULL, NULL, 0,
                        AGG_USER_PULL | (uint32_t)(pull - agg->pulls), &pull->expect)) {
        pull->state = AGG_PULL_POSTED;
    }
}

static void release(struct weft_aggregator *agg, struct agg_pull *pull)
{
    agg->pulls_waiting -= pull->state == AGG_PULL_WAITING;
    agg->pulls_ready -= pull->state == AGG_PULL_READY;
    pull->state = AGG_PULL_IDLE;
    post(agg, pull);
}

void weft_agg_pulls_post(struct weft_aggregator *agg, uint32_t rank)
{
    uint32_t count, first = agg_pulls_of(agg, rank, &count);
    for (uint32_t i = first; i < first + count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state == AGG_PULL_IDLE) {
            post(agg, pull);
        }
    }
}

void weft_agg_pulls_unbind(struct weft_aggregator *agg, uint32_t rank)
{
    uint32_t count, first = agg_pulls_of(agg, rank, &count);
    for (uint32_t i = first; i < first + count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state == AGG_PULL_POSTED) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, pull->expect);
            pull->state = AGG_PULL_IDLE;
        } else if (pull->state == AGG_PULL_OPEN) {
            pull->stale = true;
        } else if (pull->state == AGG_PULL_WAITING || pull->state == AGG_PULL_READY) {
            release(agg, pull);
        }
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static void kill(struct agg_pull *pull, uint64_t *why)
{
    pull->why = pull->why == NULL ? why : pull->why;
}

/* True: the rows here are of the shard process that the worker uses. */
static bool knows_process(const struct weft_aggregator *agg, const struct agg_pull *pull)
{
    const uint64_t process = agg_process(agg, pull->table);
    return agg->shard_up && process != 0 && agg->tables[pull->table].shards[pull->rank] == process;
}

static void open(struct weft_aggregator *agg, struct agg_pull *pull,
                 const struct weft_msg_event *event)
{
    struct weft_rpc_tag tag;
    bool good = weft_rpc_tag_unpack(event->tag, &tag);
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
    pull->state = AGG_PULL_OPEN;
    pull->stale = pull->head_seen = false;
    pull->why = NULL;
    pull->table = tag.table;
    pull->id_bytes = (uint8_t)event->elem_bytes;
    pull->rows = pull->rows_end = 0;
    if (!good || event->total < head_elems || event->chunk_elems < head_elems ||
        (event->elem_bytes != WEFT_RPC_ID_PACKED && event->elem_bytes != WEFT_RPC_ID_NARROW &&
         event->elem_bytes != WEFT_RPC_ID_WIDE) ||
        tag.table >= agg->config.tables_max ||
        !weft_bits_test(agg->tables[tag.table].open, pull->rank)) {
        kill(pull, &agg->counters.pulls_direct_table);
    } else if (!knows_process(agg, pull)) {
        kill(pull, &agg->counters.pulls_direct_shard);
    } else if (event->elem_bytes == WEFT_RPC_ID_PACKED) {
        memset(pull->came, 0,
               WEFT_BITS_WORDS((size_t)agg->config.pull_rows_max) * sizeof(*pull->came));
    } else if (event->total - head_elems > agg->config.pull_rows_max) {
        kill(pull, &agg->counters.pulls_direct_large);
    }
}

static void read_head(struct weft_aggregator *agg, struct agg_pull *pull,
                      const struct weft_msg_event *event)
{
    uint64_t *why = &agg->counters.pulls_direct_table;
    const uint32_t who =
        agg_is_child(agg, pull->rank) ? pull->rank - agg->config.workers_max : pull->rank;
    const uint32_t flags = pull->id_bytes == WEFT_RPC_ID_PACKED   ? WEFT_RPC_PACKED_IDS
                           : pull->id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS
                                                                  : 0;
    const size_t bytes = (size_t)event->elems * event->elem_bytes;
    if (weft_rpc_request_unpack(event->data, bytes, &pull->request) != WEFT_OK) {
        kill(pull, why);
        return;
    }
    pull->head_seen = true;
    if (pull->request.worker != who || pull->request.flags != flags ||
        pull->request.rows_critical > pull->request.rows) {
        kill(pull, why);
    }
}

static void take_ids(struct weft_aggregator *agg, struct agg_pull *pull,
                     const struct weft_msg_event *event)
{
    if (pull->id_bytes == WEFT_RPC_ID_PACKED) {
        struct weft_pull_ids of = {.ids = pull->ids,
                                   .came = pull->came,
                                   .rows_max = agg->config.pull_rows_max,
                                   .rows = pull->rows,
                                   .rows_end = pull->rows_end};
        uint32_t first, count;
        enum weft_rpc_status status = weft_pull_ids_take(&of, event, &first, &count);
        if (status != WEFT_RPC_OK) {
            kill(pull, status == WEFT_RPC_TOO_LARGE ? &agg->counters.pulls_direct_large
                                                    : &agg->counters.pulls_direct_table);
        }
        pull->rows = of.rows;
        pull->rows_end = of.rows_end;
        return;
    }
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, event->elem_bytes);
    const uint32_t head = event->chunk == 0 ? head_elems : 0;
    const uint32_t first = event->chunk == 0 ? 0 : event->chunk * event->chunk_elems - head_elems;
    weft_ps_load_ids((const uint8_t *)event->data + (size_t)head * pull->id_bytes, pull->id_bytes,
                     event->elems - head, pull->ids + first);
    pull->rows += event->elems - head;
    pull->rows_end = pull->rows;
}

/* ---- its rows -------------------------------------------------------------------------------- */

static uint8_t *row_at(const struct agg_pull *pull, uint32_t row)
{
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, pull->elem_bytes);
    return pull->answer + (size_t)(head_elems + row) * pull->elem_bytes;
}

static void put(struct agg_pull *pull, uint32_t row, uint32_t version, const uint8_t *bytes)
{
    memcpy(row_at(pull, row), bytes, pull->elem_bytes);
    pull->version = version < pull->version ? version : pull->version;
    pull->from[row] = 0;
}

void weft_agg_pull_fill(struct agg_pull *pull, uint32_t row, uint32_t version, const uint8_t *bytes)
{
    put(pull, row, version, bytes);
    pull->left--;
}

/* Rows requested before this time are too old. */
static uint64_t fresh_from(const struct weft_aggregator *agg, const struct agg_pull *pull)
{
    const uint64_t now_ns = agg->config.clock_ns(agg->config.clock_arg);
    uint64_t age_ns = pull->request.after_seq == UINT32_MAX
                          ? UINT64_MAX
                          : (uint64_t)pull->request.after_seq * WEFT_NS_PER_US;
    if (agg->tables[pull->table].spec.mode == WEFT_TABLE_ASP) {
        age_ns = weft_min_u64(age_ns, agg->config.pull_age_ns);
    }
    return age_ns < now_ns ? now_ns - age_ns : 0;
}

static void gather(struct weft_aggregator *agg, struct agg_pull *pull)
{
    uint32_t missing = 0, kept = 0;
    weft_agg_cache_find(agg, pull->table, pull->ids, pull->rows, agg->found);
    for (uint32_t i = 0; i < pull->rows; i++) {
        struct agg_mark mark;
        if (agg->found[i] != NULL) {
            memcpy(&mark, agg->found[i], sizeof(mark));
            if (mark.version >= pull->request.need_clock && mark.asked_ns >= pull->fresh_ns) {
                put(pull, i, mark.version, (const uint8_t *)agg->found[i] + sizeof(mark));
                kept++;
                continue;
            }
        }
        const uint8_t fetch = weft_agg_fetch_of(agg, pull, pull->ids[i]);
        pull->from[i] = fetch != 0 ? fetch : AGG_FROM_NOWHERE;
        pull->waits |= fetch != 0 ? UINT32_C(1) << (fetch - 1) : 0;
        missing += fetch == 0;
    }
    pull->left = pull->rows - kept;
    agg->counters.pull_rows_in += pull->rows;
    agg->counters.pull_rows_cached += kept;
    pull->unasked = missing;
    agg->counters.pull_rows_shared += pull->left - missing;
}

static void begin(struct weft_aggregator *agg, struct agg_pull *pull)
{
    const uint64_t begin_ns = agg->config.clock_ns(agg->config.clock_arg);
    const struct weft_table_spec *spec = &agg->tables[pull->table].spec;
    pull->elem_bytes = weft_table_pull_elem_bytes(spec);
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, pull->elem_bytes);
    pull->waits = 0;
    pull->version = UINT32_MAX;
    pull->waited_ns = 0;
    pull->answer_elems = head_elems + pull->rows;
    if ((uint64_t)pull->answer_elems * pull->elem_bytes > agg_rows_bytes(agg) ||
        agg->msgr.ops->chunk_elems(agg->msgr.self, agg->workers[pull->rank].peer,
                                   pull->elem_bytes) < head_elems) {
        weft_agg_pull_refuse(agg, pull, &agg->counters.pulls_direct_large);
        return;
    }
    memset(pull->answer, 0, (size_t)head_elems * pull->elem_bytes);
    pull->fresh_ns = fresh_from(agg, pull);
    gather(agg, pull);
    pull->wait_ns = agg->config.clock_ns(agg->config.clock_arg);
    pull->proc_ns = pull->wait_ns > begin_ns ? pull->wait_ns - begin_ns : 0;
    if (pull->left == 0) {
        weft_agg_pull_whole(agg, pull);
        return;
    }
    pull->state = AGG_PULL_WAITING;
    agg->pulls_waiting++;
}

static void closed(struct weft_aggregator *agg, struct agg_pull *pull,
                   const struct weft_msg_event *event)
{
    if (event->outcome != WEFT_MSG_COMPLETE || pull->stale || !pull->head_seen) {
        release(agg, pull); /* the sender no longer waits, or violated the protocol */
        return;
    }
    pull->at_ns = event->at_ns;
    agg->counters.pulls_in++;
    if (event->received < event->chunks || pull->rows != pull->request.rows ||
        pull->rows_end != pull->rows || pull->rows == 0) {
        kill(pull, &agg->counters.pulls_direct_table);
    }
    if (pull->why != NULL) {
        weft_agg_pull_refuse(agg, pull, pull->why);
    } else if (!knows_process(agg, pull)) {
        /* the table was closed meanwhile */
        weft_agg_pull_refuse(agg, pull, &agg->counters.pulls_direct_shard);
    } else {
        begin(agg, pull);
    }
}

void weft_agg_pull_event(struct weft_aggregator *agg, uint32_t index,
                         const struct weft_msg_event *event)
{
    struct agg_pull *pull = &agg->pulls[index];
    switch (event->type) {
    case WEFT_EVENT_OPEN:
        open(agg, pull, event);
        break;
    case WEFT_EVENT_CHUNK:
        if (event->chunk == 0) {
            read_head(agg, pull, event);
        }
        if (pull->why == NULL && !pull->stale) {
            take_ids(agg, pull, event);
        }
        break;
    case WEFT_EVENT_RECEIVED:
        closed(agg, pull, event);
        break;
    case WEFT_EVENT_SENT:
        WEFT_ASSERT(pull->state == AGG_PULL_SENDING);
        release(agg, pull);
        break;
    default:
        break;
    }
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void ready(struct weft_aggregator *agg, struct agg_pull *pull, enum weft_rpc_status status)
{
    const uint64_t now_ns = agg->config.clock_ns(agg->config.clock_arg);
    const bool good = status == WEFT_RPC_OK;
    const uint64_t inside_ns = now_ns > pull->at_ns ? now_ns - pull->at_ns : 0;
    const uint64_t told_ns = pull->proc_ns + pull->waited_ns;
    const struct weft_rpc_reply reply = {
        .rpc_id = pull->request.rpc_id,
        .status = (uint16_t)status,
        .t0_ns = pull->request.t0_ns,
        .clock = good ? pull->version : 0,
        .rows = good ? pull->rows : 0,
        .ps_proc_ns = good ? pull->proc_ns : 0,
        .ps_wait_ns = good ? pull->waited_ns : 0,
        .ps_queue_ns = good && inside_ns > told_ns ? inside_ns - told_ns : 0,
    };
    weft_rpc_reply_pack(&reply, pull->answer);
    agg->pulls_waiting -= pull->state == AGG_PULL_WAITING;
    pull->state = AGG_PULL_READY;
    agg->pulls_ready++;
}

void weft_agg_pull_refuse(struct weft_aggregator *agg, struct agg_pull *pull, uint64_t *why)
{
    (*why)++;
    agg->counters.pulls_direct++;
    pull->answer_elems = 1;
    pull->elem_bytes = WEFT_RPC_REPLY_BYTES;
    ready(agg, pull, WEFT_RPC_SEND_DIRECT);
}

void weft_agg_pulls_refuse(struct weft_aggregator *agg, uint32_t fetch, uint64_t *why)
{
    for (uint32_t i = 0; i < agg->pull_count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state == AGG_PULL_WAITING && (pull->waits >> fetch & 1) != 0) {
            weft_agg_pull_refuse(agg, pull, why);
        }
    }
}

void weft_agg_pulls_refuse_table(struct weft_aggregator *agg, uint16_t table, uint64_t *why)
{
    for (uint32_t i = 0; agg->pulls_waiting > 0 && i < agg->pull_count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state == AGG_PULL_WAITING && pull->table == table) {
            weft_agg_pull_refuse(agg, pull, why);
        }
    }
}

void weft_agg_pull_whole(struct weft_aggregator *agg, struct agg_pull *pull)
{
    const uint64_t now_ns = agg->config.clock_ns(agg->config.clock_arg);
    pull->waited_ns = now_ns > pull->wait_ns ? now_ns - pull->wait_ns : 0;
    agg->counters.pulls_answered++;
    ready(agg, pull, WEFT_RPC_OK);
}

/* Chunks of a bounded reply are short. Chunks with rows that were missing twice in a row are
 * critical. */
static void bound(struct weft_aggregator *agg, const struct agg_pull *pull,
                  struct weft_msg_send *send)
{
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, send->elem_bytes);
    send->chunk_elems = (uint16_t)weft_ps_chunk_elems(
        agg->msgr.ops->chunk_elems(agg->msgr.self, send->peer, send->elem_bytes), send->elem_bytes,
        head_elems, pull->request.reply_bound_ppm);
    const uint64_t must =
        weft_div_ceil_u64((uint64_t)head_elems + pull->request.rows_critical, send->chunk_elems);
    send->critical = (uint8_t)weft_min_u64(must, CRITICAL_MAX);
    send->bound_ppm = must > CRITICAL_MAX ? 0 : pull->request.reply_bound_ppm;
}

static weft_status answer_send(struct weft_aggregator *agg, const struct agg_pull *pull,
                               uint64_t now_ns)
{
    struct weft_msg_send send = {
        .peer = agg->workers[pull->rank].peer,
        .base = pull->answer,
        .total = pull->answer_elems,
        .elem_bytes = pull->elem_bytes,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .stream = weft_rpc_stream(WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG, pull->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG,
            .table = pull->table,
            .number = pull->request.rpc_id,
        }),
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_PULL | (uint32_t)(pull - agg->pulls),
    };
    uint64_t seq;
    if (pull->answer_elems > 1 && pull->request.reply_bound_ppm > 0) {
        bound(agg, pull, &send);
    }
    return agg->msgr.ops->send(agg->msgr.self, &send, now_ns, &seq);
}

static bool is_late(const struct weft_aggregator *agg, const struct agg_pull *pull, uint64_t now_ns)
{
    return pull->state == AGG_PULL_WAITING &&
           now_ns >= weft_time_add(pull->wait_ns, agg->config.pull_patience_ns);
}

void weft_agg_pulls_progress(struct weft_aggregator *agg, uint64_t now_ns)
{
    weft_agg_fetches_progress(agg);
    for (uint32_t i = 0; agg->pulls_waiting > 0 && i < agg->pull_count; i++) {
        if (is_late(agg, &agg->pulls[i], now_ns)) {
            weft_agg_pull_refuse(agg, &agg->pulls[i], &agg->counters.pulls_direct_late);
        }
    }
    for (uint32_t i = 0; agg->pulls_ready > 0 && i < agg->pull_count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state != AGG_PULL_READY) {
            continue;
        }
        weft_status status = answer_send(agg, pull, now_ns);
        if (status == WEFT_OK) {
            agg->pulls_ready--;
            pull->state = AGG_PULL_SENDING;
        } else if (status != WEFT_AGAIN) {
            release(agg, pull); /* the worker is gone */
        }
    }
}

uint64_t weft_agg_pulls_deadline(const struct weft_aggregator *agg)
{
    uint64_t first_ns = WEFT_NEVER;
    for (uint32_t i = 0; agg->pulls_waiting > 0 && i < agg->pull_count; i++) {
        if (agg->pulls[i].state == AGG_PULL_WAITING) {
            first_ns = weft_min_u64(
                first_ns, weft_time_add(agg->pulls[i].wait_ns, agg->config.pull_patience_ns));
        }
    }
    return first_ns;
}
