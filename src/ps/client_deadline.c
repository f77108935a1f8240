/* Operations with a deadline.
 *
 * Loss is data: whatever has not arrived by the deadline is missed, as if the network had lost it,
 * and the operation's status is OK.
 *
 * A pull ends at that time. The transport closes replies that are arriving (until_ns). The client
 * waits for outstanding replies after the caller has its result: a reply without posted memory
 * would occupy memory at its shard.
 *
 * A push ends when its shards have reported what they received, so that both ends agree on the
 * loss. The transport ends the message (FINISH with SHORT), and the shard closes the push and its
 * number. If the head was lost, or nothing was sent, the head follows alone, under the same number,
 * so that every push gets a reply and no number is skipped.
 *
 * Source: docs/PROTOCOL.md section 7, "Deadlines".
 */
#include "ps/client_internal.h"

/* The transport closes arriving replies at the deadline; process these events first. */
#define LATE_NS WEFT_NS_PER_MS

static uint64_t due_ns(const struct ps_op *op)
{
    return weft_time_add(op->deadline_ns, op->kind == WEFT_RPC_PULL ? LATE_NS : 0);
}

void weft_ps_deadline_arm(struct weft_ps_client *client, const struct ps_op *op)
{
    client->deadline_ns = weft_min_u64(client->deadline_ns, due_ns(op));
}

uint64_t weft_ps_client_deadline(const struct weft_ps_client *client)
{
    uint64_t first_ns = weft_min_u64(client->deadline_ns, weft_ps_via_deadline(client));
    return weft_min_u64(first_ns, weft_ps_park_deadline(client));
}

/* ---- pulls ----------------------------------------------------------------------------------- */

/* For the caller, no row of this part arrives. */
static void part_late(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_table *table = &client->tables[part->table];
    struct weft_ps_result *result = &client->ops[part->op].result;
    weft_ps_pull_missed(client, part);
    weft_ps_missed_begin(&table->missed);
    for (uint32_t r = 0; r < part->rows; r++) {
        weft_ps_missed_note(client, table, ps_list_id(&part->list, ps_part_row(part, r)));
    }
    result->elements_sent += (uint64_t)part->rows * weft_table_blocks(&table->spec);
    result->rpcs_short++;
    client->counters.deadlines_expired++;
}

static void pull_expired(struct weft_ps_client *client, uint32_t index)
{
    struct ps_op *op = &client->ops[index];
    for (uint32_t i = 0; i < op->parts && ps_op_lent(op); i++) {
        struct ps_part *part = &client->parts[ps_op_part(client, index, i)];
        if ((part->state == PART_FLYING && part->answer != ANSWER_CLOSED) ||
            part->state == PART_QUEUED) {
            part_late(client, part);
        }
    }
    op->told = op->result;
    op->late = ps_op_lent(op);
    weft_ps_result_settle(op, &op->told);
    for (uint32_t i = 0; i < op->parts && op->state == OP_ACTIVE; i++) {
        uint32_t part = ps_op_part(client, index, i);
        if (client->parts[part].state == PART_QUEUED) {
            weft_ps_part_withdraw(client, part);
        }
    }
}

/* ---- pushes ---------------------------------------------------------------------------------- */

void weft_ps_push_void(struct weft_ps_client *client, struct ps_part *part)
{
    struct weft_ps_result *result = part->op == WEFT_PS_NONE ? NULL : &client->ops[part->op].result;
    uint64_t elements = (uint64_t)part->rows * weft_table_blocks(&client->tables[part->table].spec);
    ps_part_rows_to(part, ROWS_NEVER);
    part->counted = part->is_short = true;
    weft_ps_part_missed(client, part);
    weft_ps_push_note_all(client, part);
    if (!part->begun) { /* otherwise some chunks are applied, and the client does not know which */
        weft_ps_residual_keep_all(client, part);
    }
    client->counters.deadlines_expired++;
    client->counters.push.messages++;
    client->counters.push.messages_short++;
    client->counters.push.elements_sent += elements;
    if (result != NULL) {
        result->elements_sent += elements;
        result->rpcs_short++;
    }
    weft_ps_list_drop(client, part);
}

static void push_expired(struct weft_ps_client *client, uint32_t index)
{
    const struct ps_op *op = &client->ops[index];
    for (uint32_t i = 0; i < op->parts; i++) {
        struct ps_part *part = &client->parts[ps_op_part(client, index, i)];
        if (part->state == PART_QUEUED && !part->resent && !ps_part_head_only(part)) {
            weft_ps_push_void(client, part);
        }
    }
}

void weft_ps_push_headless(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    link->pushes_flying--;
    link->flying_xor ^= part->rpc_id;
    part->in_air = false;
    ps_part_rows_to(part, ROWS_LOST);
    part->resent = true;
    ps_part_to(part, PART_QUEUED);
    weft_ps_part_enqueue(client, index);
}

/* ---- all ------------------------------------------------------------------------------------- */

void weft_ps_deadlines(struct weft_ps_client *client, uint64_t now_ns)
{
    client->deadline_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < client->config.ops_max; i++) {
        struct ps_op *op = &client->ops[i];
        if (op->state != OP_ACTIVE || op->expired || op->deadline_ns == WEFT_NEVER) {
            continue;
        }
        if (now_ns < due_ns(op)) {
            weft_ps_deadline_arm(client, op);
            continue;
        }
        op->expired = true;
        if (op->kind == WEFT_RPC_PULL) {
            pull_expired(client, i);
        } else {
            push_expired(client, i);
        }
    }
}
