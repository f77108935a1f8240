/* The answer to a part: checked, applied, and recorded. */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "ps/layout.h"

/* An answer with rows must have exactly the requested grid. */
static bool rows_match(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event)
{
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    uint16_t elem_bytes = weft_table_pull_elem_bytes(spec);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes);
    return event->elem_bytes == elem_bytes && event->chunk_elems >= head_elems &&
           event->total == head_elems + part->rows * weft_table_blocks(spec);
}

bool weft_ps_reply_head(const struct ps_part *part, const struct weft_msg_event *event,
                        uint32_t rpc_id, struct weft_rpc_reply *reply_p)
{
    size_t chunk0_bytes =
        (size_t)weft_min_u64(event->chunk_elems, event->total) * event->elem_bytes;
    return event->mask != NULL && weft_bits_test(event->mask, 0) &&
           weft_rpc_reply_unpack(part->reply, chunk0_bytes, reply_p) == WEFT_OK &&
           reply_p->rpc_id == rpc_id;
}

/* Returns false if the answer is malformed. */
static bool take_answer(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event, struct weft_rpc_reply *reply_p)
{
    if (!weft_ps_reply_head(part, event, part->rpc_id, reply_p)) {
        return false;
    }
    bool good = reply_p->status == WEFT_RPC_OK;
    if (ps_part_resumes(part) && good) {
        struct weft_rpc_pushes theirs;
        return event->elem_bytes == 1 &&
               event->total == WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES &&
               weft_rpc_pushes_unpack(part->reply + WEFT_RPC_REPLY_BYTES, &theirs) == WEFT_OK;
    }
    bool rows_wanted = part->kind == WEFT_RPC_PULL && part->rows > 0 && good;
    if (!rows_wanted) {
        return event->elem_bytes == WEFT_RPC_REPLY_BYTES && event->total == 1;
    }
    const struct ps_link *link = ps_link_of(client, part->table, part->shard);
    bool counts = weft_ps_counts_updates(part, link);
    if ((!counts && reply_p->rows != part->rows) || !rows_match(client, part, event)) {
        return false;
    }
    if (counts) {
        weft_ps_update_set_count(client, part->shard, reply_p->rows);
    }
    if (ps_op_lent(&client->ops[part->op])) {
        weft_ps_rows_scatter(client, part, event);
    }
    weft_ps_count_flow(client, part, event, WEFT_RPC_REPLY_BYTES);
    return true;
}

static void write_down(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                       const struct weft_rpc_latency *latency)
{
    weft_rpc_record_put_client(
        client->config.records, part->table,
        &(struct weft_rpc_record_client){
            .worker = client->config.worker,
            .server = part->shard,
            .rpc = part->rpc_id,
            .iteration = part->iteration,
            .rows = part->rows,
            .status = reply->status,
            .kind = part->kind,
            .t0_ns = reply->t0_ns,
            .t1_ns = event->at_ns,
            .request_bytes = (uint64_t)part->request_elems * part->request_elem_bytes,
            .reply_bytes = (uint64_t)event->total * event->elem_bytes,
            .latency = *latency,
        });
}

static void record(struct weft_ps_client *client, const struct ps_part *part,
                   const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                   const struct weft_rpc_latency *latency)
{
    if (part->op == WEFT_PS_NONE || part->kind == WEFT_RPC_TABLE || part->cut) {
        return;
    }
    uint64_t total_ns = event->at_ns > reply->t0_ns ? event->at_ns - reply->t0_ns : 0;
    write_down(client, part, event, reply, latency);
    struct weft_ps_latencies *all =
        part->kind == WEFT_RPC_PUSH ? &client->push_latencies : &client->pull_latencies;
    weft_hist_add(&all->w_proc, latency->w_proc_ns);
    weft_hist_add(&all->w_queue, latency->w_queue_ns);
    weft_hist_add(&all->ps_proc, latency->ps_proc_ns);
    weft_hist_add(&all->ps_queue, latency->ps_queue_ns);
    weft_hist_add(&all->ps_wait, latency->ps_wait_ns);
    weft_hist_add(&all->n_tx, latency->n_tx_ns);
    weft_hist_add(&all->total, total_ns);
}

/* True: the shard ended the push's clock without this worker, after a broken connection. */
static bool was_passed(const struct ps_link *link, const struct ps_part *part,
                       const struct weft_rpc_reply *reply)
{
    return part->kind == WEFT_RPC_PUSH && reply->status == WEFT_RPC_STALE_CLOCK &&
           part->clock <= link->clock_passed;
}

/* The shard applied nothing of the push, as if the scheduler had dropped it. */
static void refused_late(struct weft_ps_client *client, struct ps_part *part)
{
    part->refusal = REFUSAL_LATE;
    weft_ps_update_late(client, part);
    weft_ps_part_missed(client, part);
    weft_ps_residual_keep_all(client, part); /* zeros for the rows already kept as lost */
    client->counters.pushes_late++;
    if (part->op != WEFT_PS_NONE) {
        client->ops[part->op].result.rpcs_dropped++;
    }
}

static void answered(struct weft_ps_client *client, struct ps_part *part,
                     const struct weft_msg_event *event, const struct weft_rpc_reply *reply,
                     uint64_t dequeued_ns)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    const bool is_passed = was_passed(link, part, reply);
    const bool is_late = part->kind == WEFT_RPC_PUSH && reply->status == WEFT_RPC_LATE;
    part->refusal =
        is_passed ? REFUSAL_PASSED : REFUSAL_NONE; /* of this answer, not an older one */
    client->counters.pushes_skipped += is_passed && part->op != WEFT_PS_NONE;
    link->clock_known = reply->clock > link->clock_known ? reply->clock : link->clock_known;
    if (part->kind == WEFT_RPC_TABLE && reply->status == WEFT_RPC_OK) {
        link->opened = true;
        link->can = reply->can & client->config.can;
        link->clock_closed = reply->rows;
    }
    if (reply->status == WEFT_RPC_OK) {
        weft_ps_list_used(client, part, reply);
    }
    client->counters.rpcs_refused += reply->status != WEFT_RPC_OK && !is_passed;
    client->counters.pushes_lost +=
        part->op == WEFT_PS_NONE && part->logged && reply->status != WEFT_RPC_OK;
    if (is_late) {
        refused_late(client, part);
    }
    weft_ps_note_status(client, part, WEFT_OK, is_passed || is_late ? WEFT_RPC_OK : reply->status);
    if (reply->status != WEFT_RPC_OK) {
        weft_ps_pull_missed(client, part);
    }
    struct weft_rpc_latency latency =
        weft_rpc_latency_make(reply, event->at_ns, dequeued_ns, ps_clock_ns(client));
    record(client, part, event, reply, &latency);
    if (part->op != WEFT_PS_NONE) {
        struct weft_ps_result *result = &client->ops[part->op].result;
        bool good = result->status == WEFT_OK && result->rpc_status == WEFT_RPC_OK;
        result->latency = latency;
        result->shard = good ? part->shard : result->shard;
        result->clock = reply->clock < result->clock ? reply->clock : result->clock;
    }
}

/* Apply rows that arrived by the deadline without the head, which contains the latencies. */
static void take_headless(struct weft_ps_client *client, struct ps_part *part,
                          const struct weft_msg_event *event)
{
    if (!rows_match(client, part, event)) {
        weft_ps_pull_missed(client, part); /* the answer has no rows */
        return;
    }
    if (ps_op_lent(&client->ops[part->op])) {
        weft_ps_rows_scatter(client, part, event);
    }
    weft_ps_count_flow(client, part, event, WEFT_RPC_REPLY_BYTES);
}

void weft_ps_part_reply(struct weft_ps_client *client, uint32_t index,
                        const struct weft_msg_event *event)
{
    struct ps_part *part = &client->parts[index];
    if (part->via_answering) {
        weft_ps_via_answer_over(client, index);
        return;
    }
    WEFT_ASSERT(part->state == PART_FLYING && part->answer != ANSWER_CLOSED);
    if (part->message == MESSAGE_LIST) {
        weft_ps_list_reply(client, index, event);
        return;
    }
    bool gone = event->outcome != WEFT_MSG_COMPLETE && event->sender_gone;
    if (gone && (client->config.reconnect_ns > 0 || ps_part_is_via(part))) {
        part->answer = ps_part_is_via(part) ? ANSWER_NONE : part->answer;
        return; /* only because the shard is down: PEER_DOWN follows */
    }
    /* A shard never ends an answer before it is complete within its bound. */
    bool is_short = event->outcome != WEFT_MSG_COMPLETE;
    bool may_be_short = weft_ps_reply_until(client, part) != 0;
    uint64_t dequeued_ns = ps_clock_ns(client);
    struct weft_rpc_reply reply;
    part->answer = ANSWER_CLOSED;
    if (part->kind == WEFT_RPC_PULL) {
        ps_pull_answered(&client->ends[part->shard], part);
    }
    if (gone) {
        /* Fewer rows than the bound guarantees: the answer is discarded, and the rows keep their
         * old values. */
        client->counters.rpcs_failed++;
        weft_ps_note_status(client, part, WEFT_PEER, WEFT_RPC_OK);
        weft_ps_pull_missed(client, part);
    } else if (is_short && may_be_short && !weft_bits_test(event->mask, 0)) {
        take_headless(client, part, event);
    } else if (ps_part_resumes(part)) {
        bool good = !is_short && take_answer(client, part, event, &reply);
        client->counters.replies_malformed += !good;
        weft_ps_resume_answered(client, part, good ? &reply : NULL);
    } else if ((!is_short || may_be_short) && take_answer(client, part, event, &reply)) {
        if (part->listed && !ps_part_head_only(part) && part->message != MESSAGE_IDS &&
            reply.status == WEFT_RPC_UNKNOWN_LIST) {
            weft_ps_listed_unknown(client, index, &reply);
            return;
        }
        const bool is_applied =
            part->kind == WEFT_RPC_PUSH && (reply.can & WEFT_RPC_CAN_ON_APPLY) != 0;
        if (ps_part_is_via(part) &&
            (reply.status != WEFT_RPC_OK || (is_applied && !part->on_apply) ||
             part->second == SECOND_LOST)) {
            weft_ps_via_answered(client, index, false);
            return;
        }
        answered(client, part, event, &reply, dequeued_ns);
        if (ps_part_is_via(part) && is_applied) {
            weft_ps_via_applied(client, index);
            return;
        }
        if (ps_part_is_via(part)) {
            weft_ps_via_answered(client, index, true);
            return;
        }
    } else if (ps_part_is_via(part)) {
        client->counters.replies_malformed++;
        weft_ps_via_answered(client, index, false);
        return;
    } else {
        client->counters.replies_malformed++;
        weft_ps_note_status(client, part, WEFT_PROTO, WEFT_RPC_OK);
        weft_ps_pull_missed(client, part);
    }
    if (part->list_doubt == DOUBT_SENT) {
        weft_ps_listed_answered(client, index);
    } else if (part->request_closed) {
        weft_ps_part_done(client, part);
    }
}
