/* TABLE messages to the parent: one for each table that a worker or child has open.
 *
 * TABLE names the shard process that those below use, because cached rows belong to one process. It
 * also lists all aggregators below, so that a cycle is detected: the parent finds its own number in
 * the list. TABLE is repeated when the process or the list changes. While a TABLE with a new
 * process is in flight no pull is answered from here, and the rows in flight are discarded.
 *
 * After a shard process has died, those below may use different processes for a while. TABLE names
 * the one that most of them use; pulls of the others go direct.
 *
 * If the parent refuses a table, pushes to it are not summed here. Workers and children that have
 * it open are disconnected, so that they reopen it and are refused. When the parent accepts the
 * table later, those that do not have it open are disconnected, so that they open it. After a
 * refusal TABLE is sent again only when its content has changed, and after a pause. The pause is
 * needed in a cycle: each aggregator disconnects its child, and the child has reconnected before
 * the next TABLE. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"

#include <string.h>

static const uint64_t refused_pause_ns = 2 * WEFT_NS_PER_S;

/* Time for workers to reconnect and open a table. */
static const uint64_t reopen_ns = 2 * WEFT_NS_PER_S;

/* ---- content of TABLE ------------------------------------------------------------------------ */

static void all_below(const struct weft_aggregator *agg, uint64_t *below)
{
    memset(below, 0, AGG_BELOW_WORDS * sizeof(*below));
    weft_bits_set(below, agg->config.number);
    for (uint32_t rank = agg->config.workers_max; rank < agg->ranks_max; rank++) {
        for (uint32_t i = 0; i < AGG_BELOW_WORDS; i++) {
            below[i] |= agg->workers[rank].below[i];
        }
    }
}

/* The shard process that most of those below use. In a tie, the process of the lowest rank. */
static uint64_t process_below(const struct weft_aggregator *agg, const struct agg_table *table)
{
    uint64_t process = 0;
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < agg->ranks_max && most <= table->open_count / 2; rank++) {
        uint32_t count = 0;
        if (!weft_bits_test(table->open, rank) || table->shards[rank] == process) {
            continue;
        }
        for (uint32_t other = rank; other < agg->ranks_max; other++) {
            count +=
                weft_bits_test(table->open, other) && table->shards[other] == table->shards[rank];
        }
        process = count > most ? table->shards[rank] : process;
        most = count > most ? count : most;
    }
    return process;
}

/* The shard process has changed: discard the rows of the old process and refuse pulls that wait for
 * them. */
static void process_gone(struct weft_aggregator *agg, uint16_t index)
{
    agg->tables[index].parent.answers = 0;
    weft_agg_fetches_void(agg, index);
    weft_agg_pulls_refuse_table(agg, index, &agg->counters.pulls_direct_shard);
    weft_agg_cache_begin(agg, index);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void lay_out(struct weft_aggregator *agg, uint16_t index, uint64_t process,
                    const uint64_t *below)
{
    const struct agg_table *table = &agg->tables[index];
    struct agg_parent *parent = &agg->tables[index].parent;
    uint8_t *at = parent->request;
    agg->rpc_id = agg->rpc_id == UINT32_MAX ? 1 : agg->rpc_id + 1;
    parent->rpc_id = agg->rpc_id;
    parent->unsaid = true;
    parent->process = process;
    memcpy(parent->below, below, sizeof(parent->below));
    const struct weft_rpc_request request = {
        .rpc_id = parent->rpc_id,
        .worker = agg->config.number,
        .t0_ns = agg->config.clock_ns(agg->config.clock_arg),
    };
    weft_rpc_request_pack(&request, at);
    weft_table_spec_pack(&table->spec, at + WEFT_RPC_REQUEST_BYTES);
    at += WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES;
    weft_aggregate_shard_pack(process, at);
    memcpy(at + WEFT_AGGREGATE_SHARD_BYTES, below, WEFT_AGGREGATE_BELOW_BYTES);
}

/* False: not sent; retry later. */
static bool ask(struct weft_aggregator *agg, uint16_t index, uint64_t now_ns)
{
    struct agg_parent *parent = &agg->tables[index].parent;
    if (weft_agg_expect_answer(agg, WEFT_RPC_TABLE, index, parent->rpc_id, parent->reply,
                               sizeof(parent->reply), AGG_USER_PARENT | index,
                               &parent->expect) != WEFT_OK) {
        return false;
    }
    const struct weft_msg_send send = {
        .peer = agg->shard,
        .base = parent->request,
        .total = sizeof(parent->request),
        .elem_bytes = 1,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_RPC_TABLE, .table = index}),
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_PARENT | index,
    };
    uint64_t seq;
    if (agg->msgr.ops->send(agg->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)!agg->msgr.ops->cancel(agg->msgr.self, parent->expect);
        return false;
    }
    parent->unsaid = false;
    parent->sending = parent->expected = true;
    parent->state = AGG_PARENT_ASKED;
    return true;
}

/* True: this table needs no TABLE, or its TABLE was sent. False: check again later. */
static bool table_told(struct weft_aggregator *agg, uint16_t index, const uint64_t *below,
                       uint64_t now_ns)
{
    struct agg_table *table = &agg->tables[index];
    struct agg_parent *parent = &table->parent;
    parent->waits = false;
    /* After a refusal no worker has the table open, and TABLE is still repeated until the parent
     * accepts it. */
    if (!table->declared || (table->open_count == 0 && !parent->was_refused)) {
        return true;
    }
    if (parent->sending || parent->expected) {
        return true; /* checked again when that TABLE ends */
    }
    const uint64_t process = table->open_count > 0 ? process_below(agg, table) : parent->process;
    if (parent->state != AGG_PARENT_NONE && !parent->unsaid && parent->process == process &&
        memcmp(parent->below, below, sizeof(parent->below)) == 0) {
        return true;
    }
    if (parent->state == AGG_PARENT_REFUSED && now_ns < parent->retry_ns) {
        parent->waits = true;
        return false;
    }
    if (process != parent->process) {
        process_gone(agg, index);
    }
    lay_out(agg, index, process, below);
    return ask(agg, index, now_ns);
}

/* True: the parent has a table open that neither a worker nor a child has open any more, so the
 * parent would wait for sums that never arrive. Closing the connection ends that wait; it affects
 * all tables, and messages in flight go direct. */
static bool is_idle(const struct weft_aggregator *agg, uint64_t now_ns)
{
    bool told = false, asked = false;
    for (uint32_t t = 0; t < agg->config.tables_max; t++) {
        const struct agg_parent *parent = &agg->tables[t].parent;
        told |= parent->state == AGG_PARENT_OPEN && agg->tables[t].open_count == 0 &&
                now_ns >= parent->idle_ns;
        asked |= parent->state == AGG_PARENT_ASKED;
    }
    return told && !asked;
}

/* True: is_idle has to be checked again at idle_ns. */
static bool is_awaited(struct agg_table *table, uint64_t now_ns)
{
    table->parent.is_awaited = table->parent.state == AGG_PARENT_OPEN && table->open_count == 0 &&
                               now_ns < table->parent.idle_ns;
    return table->parent.is_awaited;
}

void weft_agg_parent_progress(struct weft_aggregator *agg, uint64_t now_ns)
{
    if (!agg->config.has_parent || !agg->shard_up || !agg->parent_due) {
        return;
    }
    uint64_t below[AGG_BELOW_WORDS];
    all_below(agg, below);
    agg->parent_due = false;
    for (uint32_t t = 0; t < agg->config.tables_max; t++) {
        agg->parent_due |= !table_told(agg, (uint16_t)t, below, now_ns);
        agg->parent_due |= is_awaited(&agg->tables[t], now_ns);
    }
    if (is_idle(agg, now_ns)) {
        weft_agg_close_later(agg, agg->shard, false); /* PEER_DOWN follows, then a new connection */
    }
}

/* ---- the reply ------------------------------------------------------------------------------- */

/* Disconnect those below that have the table open (or do not), so that they send TABLE again. */
static void send_away(struct weft_aggregator *agg, uint16_t index, bool open)
{
    for (uint32_t rank = 0; rank < agg->ranks_max; rank++) {
        if (agg->workers[rank].up && weft_bits_test(agg->tables[index].open, rank) == open) {
            weft_agg_close_later(agg, agg->workers[rank].peer, false);
        }
    }
}

/* Disconnect the children, so that they send TABLE again: the reply contains the time that sums
 * wait here and above. The time is the same for all tables, so children without this table are
 * included. */
static void children_again(struct weft_aggregator *agg)
{
    for (uint32_t rank = agg->config.workers_max; rank < agg->ranks_max; rank++) {
        bool has_table = false;
        for (uint32_t t = 0; t < agg->config.tables_max; t++) {
            has_table |= weft_bits_test(agg->tables[t].open, rank);
        }
        if (agg->workers[rank].up && has_table) {
            weft_agg_close_later(agg, agg->workers[rank].peer, false);
        }
    }
}

static void answered(struct weft_aggregator *agg, uint16_t index,
                     const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_parent *parent = &agg->tables[index].parent;
    struct weft_rpc_reply reply;
    const bool is_answer =
        event->outcome == WEFT_MSG_COMPLETE &&
        weft_rpc_reply_unpack(parent->reply, sizeof(parent->reply), &reply) == WEFT_OK &&
        reply.rpc_id == parent->rpc_id;
    parent->open = is_answer && reply.status == WEFT_RPC_OK;
    parent->answers = parent->open && reply.rows >= WEFT_AGGREGATE_PULLS ? parent->process : 0;
    parent->state = parent->open ? AGG_PARENT_OPEN : AGG_PARENT_REFUSED;
    if (parent->open && agg->above_age_ns != reply.clock * WEFT_NS_PER_MS) {
        agg->above_age_ns = reply.clock * WEFT_NS_PER_MS;
        children_again(agg);
    }
    if (!parent->open) {
        agg->counters.parent_tables_refused++;
        agg->counters.cycles_detected += is_answer && reply.status == WEFT_RPC_BAD_REQUEST;
        process_gone(agg, index);
        send_away(agg, index, true);
        parent->retry_ns = now_ns + refused_pause_ns;
    } else if (parent->was_refused) {
        parent->idle_ns = now_ns + reopen_ns;
        send_away(agg, index, false);
    }
    parent->was_refused = !parent->open;
}

void weft_agg_parent_event(struct weft_aggregator *agg, uint32_t index,
                           const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_parent *parent = &agg->tables[index].parent;
    if (event->type == WEFT_EVENT_SENT) {
        parent->sending = false;
    } else if (event->type == WEFT_EVENT_RECEIVED && parent->expected) {
        if (event->outcome != WEFT_MSG_COMPLETE && event->sender_gone) {
            return; /* PEER_DOWN follows */
        }
        parent->expected = false;
        if (parent->state == AGG_PARENT_ASKED) {
            answered(agg, (uint16_t)index, event, now_ns);
        }
    }
    agg->parent_due = true;
}

uint64_t weft_agg_parent_deadline(const struct weft_aggregator *agg)
{
    uint64_t first_ns = WEFT_NEVER;
    const bool due = agg->config.has_parent && agg->parent_due && agg->shard_up;
    for (uint32_t t = 0; due && t < agg->config.tables_max; t++) {
        const struct agg_parent *parent = &agg->tables[t].parent;
        if (parent->waits) {
            first_ns = weft_min_u64(first_ns, parent->retry_ns);
        }
        if (parent->is_awaited) {
            first_ns = weft_min_u64(first_ns, parent->idle_ns);
        }
    }
    return first_ns;
}

void weft_agg_parent_forget(struct weft_aggregator *agg, uint16_t index)
{
    struct agg_parent *parent = &agg->tables[index].parent;
    parent->state = AGG_PARENT_NONE;
    parent->open = false;
    parent->answers = 0;
    agg->parent_due = true;
}

void weft_agg_parent_down(struct weft_aggregator *agg)
{
    for (uint32_t t = 0; agg->config.has_parent && t < agg->config.tables_max; t++) {
        struct agg_parent *parent = &agg->tables[t].parent;
        if (parent->expected) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, parent->expect);
        }
        parent->expected = false;
        weft_agg_parent_forget(agg, (uint16_t)t);
    }
}
