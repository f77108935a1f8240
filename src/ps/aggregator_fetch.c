/* Fetches: the aggregator's own PULLs to the shard for rows that workers' pulls lack. A few are in
 * progress at a time; each serves all pulls that wait for its rows.
 *
 * A fetch waits at the shard for the version that its pulls need. Another pull shares the fetch
 * only if it needs the same version, or a lower one and the shard has reached the fetch's version.
 * Otherwise the pull could wait for a clock that its own worker has still to end. The shard reads
 * the rows after the fetch was sent, so the time of sending bounds their age.
 *
 * Pulls of the next clock arrive before that clock begins, and wait at the shard. Fetches for a
 * version that the shard has not reached, as far as the aggregator knows, therefore leave some
 * slots free for other fetches. Pulls without a slot wait and share one fetch when a slot becomes
 * free. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD_MAX = WEFT_AGGREGATE_PULLS / 2 }; /* limit of fetches for a version not yet reached */

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_agg_fetches_init(struct weft_aggregator *agg)
{
    const uint32_t rows = agg->config.pull_rows_max;
    agg->fetch_slots = 64;
    while (agg->fetch_slots < 2 * rows) {
        agg->fetch_slots *= 2;
    }
    for (uint32_t i = 0; agg->config.pull_slots > 0 && i < WEFT_AGGREGATE_PULLS; i++) {
        struct agg_fetch *fetch = &agg->fetches[i];
        fetch->ids = calloc(rows, sizeof(*fetch->ids));
        fetch->index = calloc(agg->fetch_slots, sizeof(*fetch->index));
        fetch->request = calloc(1, WEFT_RPC_REQUEST_BYTES + rows * sizeof(uint64_t));
        fetch->reply = calloc(1, agg_rows_bytes(agg));
        if (fetch->ids == NULL || fetch->index == NULL || fetch->request == NULL ||
            fetch->reply == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_agg_fetches_fini(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; i < WEFT_AGGREGATE_PULLS; i++) {
        free(agg->fetches[i].ids);
        free(agg->fetches[i].index);
        free(agg->fetches[i].request);
        free(agg->fetches[i].reply);
    }
}

/* ---- which rows ------------------------------------------------------------------------------ */

static uint32_t slot_of(const struct weft_aggregator *agg, const struct agg_fetch *fetch,
                        uint64_t id)
{
    uint32_t slot = (uint32_t)weft_hash_keyed(&agg->key, id) % agg->fetch_slots;
    while (fetch->index[slot] >> 32 == fetch->life &&
           fetch->ids[(uint32_t)fetch->index[slot]] != id) {
        slot = (slot + 1) % agg->fetch_slots;
    }
    return slot;
}

static bool is_good_for(const struct weft_aggregator *agg, const struct agg_fetch *fetch,
                        const struct agg_pull *pull)
{
    return fetch->live && !fetch->answered && !fetch->is_void && fetch->table == pull->table &&
           fetch->elem_bytes == pull->elem_bytes &&
           (fetch->need == pull->request.need_clock ||
            (fetch->need > pull->request.need_clock &&
             agg->tables[pull->table].version >= fetch->need)) &&
           fetch->asked_ns >= pull->fresh_ns;
}

uint8_t weft_agg_fetch_of(const struct weft_aggregator *agg, const struct agg_pull *pull,
                          uint64_t id)
{
    for (uint32_t i = 0; i < WEFT_AGGREGATE_PULLS; i++) {
        const struct agg_fetch *fetch = &agg->fetches[i];
        if (is_good_for(agg, fetch, pull) &&
            fetch->index[slot_of(agg, fetch, id)] >> 32 == fetch->life) {
            return (uint8_t)(i + 1);
        }
    }
    return 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Add the pull's missing rows to the fetch. False: the fetch is full. */
static bool take_ids(struct weft_aggregator *agg, struct agg_fetch *fetch, struct agg_pull *pull)
{
    const uint32_t index = (uint32_t)(fetch - agg->fetches);
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, fetch->elem_bytes);
    const uint32_t room = (uint32_t)weft_min_u64(
        agg->config.pull_rows_max, agg_rows_bytes(agg) / fetch->elem_bytes - head_elems);
    for (uint32_t i = 0; i < pull->rows && pull->unasked > 0; i++) {
        if (pull->from[i] != AGG_FROM_NOWHERE) {
            continue;
        }
        const uint32_t slot = slot_of(agg, fetch, pull->ids[i]);
        if (fetch->index[slot] >> 32 != fetch->life) {
            if (fetch->rows == room) {
                return false;
            }
            fetch->index[slot] = (uint64_t)fetch->life << 32 | fetch->rows;
            fetch->ids[fetch->rows++] = pull->ids[i];
        } else {
            agg->counters.pull_rows_shared++;
        }
        pull->from[i] = (uint8_t)(index + 1);
        pull->waits |= UINT32_C(1) << index;
        pull->unasked--;
    }
    return true;
}

/* Maximum age, in microseconds, of the rows with which a parent may reply. */
static uint32_t age_of(const struct agg_fetch *fetch)
{
    uint64_t age_ns = fetch->sent_ns - fetch->asked_ns;
    if (fetch->asked_ns == 0) {
        return UINT32_MAX;
    }
    age_ns -= age_ns / 1024; /* the parent's clock may be slower */
    return (uint32_t)weft_min_u64(age_ns / WEFT_NS_PER_US, UINT32_MAX - 1);
}

/* Returns the length of the message in elements. */
static uint32_t lay_out(struct weft_aggregator *agg, struct agg_fetch *fetch, uint8_t *id_bytes_p)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < fetch->rows; i++) {
        all |= fetch->ids[i];
    }
    const uint8_t id_bytes = all <= UINT32_MAX ? WEFT_RPC_ID_NARROW : WEFT_RPC_ID_WIDE;
    const struct weft_rpc_request request = {
        .rpc_id = fetch->rpc_id,
        .worker = agg->config.number,
        .t0_ns = fetch->sent_ns,
        .after_seq = agg->config.has_parent ? age_of(fetch) : 0,
        .need_clock = fetch->need,
        .rows = fetch->rows,
        .flags = id_bytes == WEFT_RPC_ID_NARROW ? WEFT_RPC_NARROW_IDS : 0,
    };
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, id_bytes);
    weft_rpc_request_pack(&request, fetch->request);
    for (uint32_t i = 0; i < fetch->rows; i++) {
        weft_ps_store_id(fetch->request + (size_t)head_elems * id_bytes, id_bytes, i,
                         fetch->ids[i]);
    }
    *id_bytes_p = id_bytes;
    return head_elems + fetch->rows;
}

static bool ask(struct weft_aggregator *agg, struct agg_fetch *fetch)
{
    uint8_t id_bytes;
    const uint32_t total = lay_out(agg, fetch, &id_bytes);
    if (weft_agg_expect_answer(
            agg, WEFT_RPC_PULL, fetch->table, fetch->rpc_id, fetch->reply, agg_rows_bytes(agg),
            AGG_USER_FETCH | (uint32_t)(fetch - agg->fetches), &fetch->expect) != WEFT_OK) {
        return false;
    }
    const struct weft_msg_send send = {
        .peer = agg->shard,
        .base = fetch->request,
        .total = total,
        .elem_bytes = id_bytes,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .stream = weft_rpc_stream(WEFT_RPC_PULL, fetch->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_PULL, .table = fetch->table, .number = fetch->need}),
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_FETCH | (uint32_t)(fetch - agg->fetches),
    };
    uint64_t seq;
    if (agg->msgr.ops->send(agg->msgr.self, &send, fetch->sent_ns, &seq) != WEFT_OK) {
        (void)!agg->msgr.ops->cancel(agg->msgr.self, fetch->expect);
        return false;
    }
    return true;
}

static bool is_ahead(const struct weft_aggregator *agg, uint16_t table, uint32_t need)
{
    return need > agg->tables[table].version;
}

/* A free slot for a fetch of this pull; NULL: none now. */
static struct agg_fetch *slot_for(struct weft_aggregator *agg, const struct agg_pull *pull)
{
    struct agg_fetch *slot = NULL;
    uint32_t ahead = 0;
    for (uint32_t i = 0; i < WEFT_AGGREGATE_PULLS; i++) {
        struct agg_fetch *fetch = &agg->fetches[i];
        ahead += fetch->live && is_ahead(agg, fetch->table, fetch->need);
        slot = fetch->live ? slot : fetch;
    }
    const bool waits = is_ahead(agg, pull->table, pull->request.need_clock);
    return waits && ahead >= AHEAD_MAX ? NULL : slot;
}

static bool goes_with(const struct agg_pull *pull, const struct agg_fetch *fetch)
{
    return pull->state == AGG_PULL_WAITING && pull->unasked > 0 && pull->table == fetch->table &&
           pull->request.need_clock == fetch->need && pull->elem_bytes == fetch->elem_bytes;
}

/* A parent may answer with cached rows. Request at most half the age that all of these pulls allow,
 * so that the rows can still answer other pulls here for a while. */
static uint64_t read_after(const struct weft_aggregator *agg, const struct agg_fetch *fetch,
                           const struct agg_pull *first)
{
    uint64_t fresh_ns = 0;
    for (uint32_t i = (uint32_t)(first - agg->pulls); i < agg->pull_count; i++) {
        const struct agg_pull *pull = &agg->pulls[i];
        if (goes_with(pull, fetch) && pull->fresh_ns > fresh_ns) {
            fresh_ns = pull->fresh_ns;
        }
    }
    return fresh_ns == 0 || fresh_ns > fetch->sent_ns ? fresh_ns
                                                      : fresh_ns + (fetch->sent_ns - fresh_ns) / 2;
}

/* One fetch for the missing rows of all pulls that can share it with this one. */
static void fetch_begin(struct weft_aggregator *agg, struct agg_fetch *fetch,
                        const struct agg_pull *first)
{
    agg->rpc_id = agg->rpc_id == UINT32_MAX ? 1 : agg->rpc_id + 1;
    fetch->rpc_id = agg->rpc_id;
    fetch->table = first->table;
    fetch->elem_bytes = first->elem_bytes;
    fetch->need = first->request.need_clock;
    fetch->sent_ns = agg->config.clock_ns(agg->config.clock_arg);
    fetch->asked_ns = agg->config.has_parent ? read_after(agg, fetch, first) : fetch->sent_ns;
    fetch->message_closed = fetch->answered = fetch->is_void = false;
    fetch->rows = 0;
    if (++fetch->life == 0) {
        memset(fetch->index, 0, agg->fetch_slots * sizeof(*fetch->index));
        fetch->life = 1;
    }
    bool room = true;
    for (uint32_t i = (uint32_t)(first - agg->pulls); room && i < agg->pull_count; i++) {
        room = !goes_with(&agg->pulls[i], fetch) || take_ids(agg, fetch, &agg->pulls[i]);
    }
    fetch->live = ask(agg, fetch);
    agg->counters.fetches_out += fetch->live;
    agg->counters.pull_rows_fetched += fetch->rows;
    if (!fetch->live) {
        weft_agg_pulls_refuse(agg, (uint32_t)(fetch - agg->fetches),
                              &agg->counters.pulls_direct_busy);
    }
}

void weft_agg_fetches_progress(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; agg->pulls_waiting > 0 && agg->shard_up && i < agg->pull_count; i++) {
        const struct agg_pull *pull = &agg->pulls[i];
        if (pull->state != AGG_PULL_WAITING || pull->unasked == 0) {
            continue;
        }
        struct agg_fetch *fetch = slot_for(agg, pull);
        if (fetch != NULL) {
            fetch_begin(agg, fetch, pull);
        }
    }
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* The rows of the reply; NULL: refused or malformed. */
static const uint8_t *rows_of(const struct agg_fetch *fetch, const struct weft_msg_event *event,
                              struct weft_rpc_reply *reply_p)
{
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, fetch->elem_bytes);
    bool good =
        event->outcome == WEFT_MSG_COMPLETE && event->received == event->chunks &&
        event->elem_bytes == fetch->elem_bytes && event->total == head_elems + fetch->rows &&
        weft_rpc_reply_unpack(fetch->reply, (size_t)head_elems * event->elem_bytes, reply_p) ==
            WEFT_OK &&
        reply_p->rpc_id == fetch->rpc_id && reply_p->status == WEFT_RPC_OK &&
        reply_p->rows == fetch->rows && reply_p->clock >= fetch->need;
    return good ? fetch->reply + (size_t)head_elems * event->elem_bytes : NULL;
}

static void keep(struct weft_aggregator *agg, const struct agg_fetch *fetch, uint32_t version,
                 const uint8_t *rows)
{
    struct agg_table *table = &agg->tables[fetch->table];
    const struct agg_mark mark = {.asked_ns = fetch->asked_ns, .version = version};
    table->version = version > table->version ? version : table->version;
    for (uint32_t i = 0; i < fetch->rows; i++) {
        weft_agg_cache_put(agg, fetch->table, fetch->ids[i], mark,
                           rows + (size_t)i * fetch->elem_bytes, fetch->elem_bytes);
    }
}

static void give(struct weft_aggregator *agg, const struct agg_fetch *fetch, struct agg_pull *pull,
                 uint32_t version, const uint8_t *rows)
{
    const uint8_t name = (uint8_t)(fetch - agg->fetches + 1);
    for (uint32_t i = 0; i < pull->rows; i++) {
        if (pull->from[i] == name) {
            const uint64_t slot = fetch->index[slot_of(agg, fetch, pull->ids[i])];
            WEFT_ASSERT(slot >> 32 == fetch->life && version >= pull->request.need_clock);
            weft_agg_pull_fill(pull, i, version, rows + (size_t)(uint32_t)slot * fetch->elem_bytes);
        }
    }
    pull->waits &= ~(UINT32_C(1) << (fetch - agg->fetches)); /* the slot may be reused */
    if (pull->left == 0) {
        weft_agg_pull_whole(agg, pull);
    }
}

static void answered(struct weft_aggregator *agg, struct agg_fetch *fetch,
                     const struct weft_msg_event *event)
{
    const uint32_t bit = UINT32_C(1) << (fetch - agg->fetches);
    struct weft_rpc_reply reply = {0};
    const uint8_t *rows = rows_of(fetch, event, &reply);
    fetch->answered = true;
    rows = fetch->is_void ? NULL : rows;
    /* The table may have been reopened with another specification while the fetch was in flight. */
    if (rows != NULL &&
        weft_table_pull_elem_bytes(&agg->tables[fetch->table].spec) == fetch->elem_bytes) {
        keep(agg, fetch, reply.clock, rows);
    }
    if (rows == NULL) {
        weft_agg_pulls_refuse(agg, (uint32_t)(fetch - agg->fetches),
                              &agg->counters.pulls_direct_refused);
        return;
    }
    for (uint32_t i = 0; i < agg->pull_count; i++) {
        struct agg_pull *pull = &agg->pulls[i];
        if (pull->state == AGG_PULL_WAITING && (pull->waits & bit) != 0) {
            give(agg, fetch, pull, reply.clock, rows);
        }
    }
}

void weft_agg_fetch_event(struct weft_aggregator *agg, uint32_t index,
                          const struct weft_msg_event *event)
{
    struct agg_fetch *fetch = &agg->fetches[index];
    WEFT_ASSERT(fetch->live);
    if (event->type == WEFT_EVENT_SENT) {
        fetch->message_closed = true;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        if (event->outcome != WEFT_MSG_COMPLETE && event->sender_gone) {
            return; /* PEER_DOWN follows */
        }
        answered(agg, fetch, event);
    }
    fetch->live = !fetch->message_closed || !fetch->answered;
}

void weft_agg_fetches_void(struct weft_aggregator *agg, uint16_t table)
{
    for (uint32_t i = 0; i < WEFT_AGGREGATE_PULLS; i++) {
        agg->fetches[i].is_void |= agg->fetches[i].table == table;
    }
}

void weft_agg_fetches_drop(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; i < WEFT_AGGREGATE_PULLS; i++) {
        struct agg_fetch *fetch = &agg->fetches[i];
        if (fetch->live && !fetch->answered) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, fetch->expect);
        }
        fetch->live = false;
    }
    for (uint32_t i = 0; i < agg->pull_count; i++) {
        if (agg->pulls[i].state == AGG_PULL_WAITING) {
            weft_agg_pull_refuse(agg, &agg->pulls[i], &agg->counters.pulls_direct_shard);
        }
    }
}
