/* Operations: allocation, start, completion and release; and the operations without rows: TABLE,
 * the empty pull, the checkpoint request. Pushes and pulls are in client_split.c. */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"

#include <string.h>

uint32_t weft_ps_op_take(struct weft_ps_client *client, uint8_t kind, uint16_t table)
{
    for (uint32_t i = 0; i < client->config.ops_max; i++) {
        struct ps_op *op = &client->ops[i];
        if (op->state == OP_FREE) {
            op->state = OP_ACTIVE;
            op->kind = kind;
            op->abandoned = op->cut = op->expired = op->late = false;
            op->deadline_ns = WEFT_NEVER;
            op->logged = kind == WEFT_RPC_PUSH && ps_log_on(client);
            op->table = table;
            op->lists = 0;
            op->life++;
            op->parts = op->parts_open = 0;
            op->buffer_used = 0;
            if (op->result.rows_missed > 0) {
                memset(op->missed, 0, WEFT_BITS_WORDS(op->rows) * sizeof(*op->missed));
            }
            op->rows = 0;
            op->result = (struct weft_ps_result){.clock = UINT32_MAX};
            client->ops_active++;
            return i;
        }
    }
    return WEFT_PS_NONE;
}

/* Continue at the clock that the shards report for this rank, from its previous process or from the
 * checkpoint that they restored. A shard that is behind the others gets their clock. */
static void clock_resume(struct weft_ps_client *client, uint16_t index)
{
    struct ps_table *table = &client->tables[index];
    for (uint32_t s = 0; s < client->config.shards; s++) {
        uint32_t closed = ps_link_of(client, index, s)->clock_closed;
        table->clock = closed > table->clock ? closed : table->clock;
    }
    weft_ps_clocks_count(client);
}

void weft_ps_result_settle(const struct ps_op *op, struct weft_ps_result *result)
{
    result->rpcs = op->parts;
    result->clock = result->clock == UINT32_MAX ? 0 : result->clock;
    if (result->status == WEFT_OK && result->rpc_status != WEFT_RPC_OK) {
        result->status = WEFT_DATA;
    }
}

static void op_finish(struct weft_ps_client *client, struct ps_op *op)
{
    op->state = OP_DONE;
    client->ops_active--;
    struct weft_ps_result *result = &op->result;
    weft_ps_result_settle(op, result);
    if (op->kind == WEFT_RPC_TABLE) {
        client->tables[op->table].state = result->status == WEFT_OK ? TABLE_OPEN : TABLE_CLOSED;
        if (result->status == WEFT_OK) {
            clock_resume(client, op->table);
        }
    }
}

void weft_ps_op_part_done(struct weft_ps_client *client, uint32_t index)
{
    struct ps_op *op = &client->ops[index];
    WEFT_ASSERT(op->state == OP_ACTIVE && op->parts_open > 0);
    if (--op->parts_open == 0) {
        op_finish(client, op);
        if (op->abandoned) {
            weft_ps_op_release(client, index);
        }
    }
}

bool weft_ps_op_start(struct weft_ps_client *client, uint32_t index)
{
    struct ps_op *op = &client->ops[index];
    uint32_t parts = op->parts;
    op->parts_open = parts;
    if (parts == 0) {
        op_finish(client, op);
        return false;
    }
    for (uint32_t i = 0; i < parts; i++) {
        weft_ps_part_queue(client, ps_op_part(client, index, i));
    }
    return true;
}

/* Start the operation, and send what may be sent. */
static void start_and_send(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    if (weft_ps_op_start(client, index)) {
        weft_ps_client_progress(client, now_ns);
    }
}

bool weft_ps_any_away(const struct weft_ps_client *client)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (client->ends[s].away) {
            return true;
        }
    }
    return false;
}

/* A block of 256 floats fits almost any packet. If it does not, and the caller has not set the
 * block length, use the longest of 128, 64, ... that fits: few sizes, so that all workers of one
 * configuration choose the same. */
static uint16_t fitting_block(const struct weft_ps_client *client,
                              const struct weft_table_spec *spec)
{
    struct weft_table_spec cut = *spec;
    uint32_t block = WEFT_RPC_BLOCK_FLOATS / 2;
    while (spec->block_floats == 0 && !weft_ps_push_fits(client, &cut, WEFT_RPC_ID_WIDE) &&
           block >= WEFT_RPC_BLOCK_FLOATS_MIN) {
        cut.block_floats = (uint16_t)(block <= spec->dim ? block : 0);
        block /= 2;
    }
    return weft_ps_push_fits(client, &cut, WEFT_RPC_ID_WIDE) ? cut.block_floats
                                                             : spec->block_floats;
}

weft_status weft_ps_table_open(struct weft_ps_client *client, const struct weft_table_spec *spec,
                               uint64_t now_ns, weft_ps_op *op_p)
{
    if (!weft_table_spec_valid(spec) || spec->table >= client->config.tables_max ||
        spec->dim > client->config.dim_max) {
        return WEFT_INVALID;
    }
    struct ps_table *table = &client->tables[spec->table];
    if (table->state != TABLE_CLOSED) {
        return WEFT_EXISTS;
    }
    if (weft_ps_any_away(client)) {
        return WEFT_AGAIN;
    }
    uint32_t op = weft_ps_op_take(client, WEFT_RPC_TABLE, spec->table);
    if (op == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    table->state = TABLE_OPENING;
    table->last = table->kept = (struct weft_row_store){0};
    table->spec = *spec;
    table->spec.block_floats = fitting_block(client, spec);
    for (uint32_t s = 0; s < client->config.shards; s++) {
        (void)weft_ps_part_table(client, op, s);
    }
    start_and_send(client, op, now_ns);
    *op_p = op;
    return WEFT_OK;
}

weft_status weft_ps_ask(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                        uint64_t now_ns, weft_ps_op *op_p)
{
    if (table >= client->config.tables_max || client->tables[table].state != TABLE_OPEN) {
        return WEFT_STATE;
    }
    if (shard >= client->config.shards) {
        return WEFT_INVALID;
    }
    uint32_t index = weft_ps_op_take(client, WEFT_RPC_PULL, table);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    const struct weft_ps_list none = {.table = table, .id_bytes = sizeof(uint64_t)};
    client->ops[index].bound_ppm = 0;
    uint32_t part = weft_ps_part_pull(client, index, &none, shard, NULL, 0);
    client->parts[part].clock = 0;
    start_and_send(client, index, now_ns);
    *op_p = index;
    return WEFT_OK;
}

static bool cut_under_way(const struct weft_ps_client *client)
{
    for (uint32_t i = 0; i < client->config.ops_max; i++) {
        if (client->ops[i].state == OP_ACTIVE && client->ops[i].cut) {
            return true;
        }
    }
    return false;
}

weft_status weft_ps_client_checkpoint(struct weft_ps_client *client, uint64_t now_ns,
                                      weft_ps_op *op_p)
{
    uint16_t table = 0;
    while (table < client->config.tables_max && client->tables[table].state != TABLE_OPEN) {
        table++;
    }
    if (table == client->config.tables_max) {
        return WEFT_STATE;
    }
    if (cut_under_way(client)) {
        return WEFT_EXISTS;
    }
    uint32_t index = weft_ps_op_take(client, WEFT_RPC_PULL, table);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    const struct weft_ps_list none = {.table = table, .id_bytes = sizeof(uint64_t)};
    client->ops[index].bound_ppm = 0;
    client->ops[index].cut = true;
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_part *part = &client->parts[weft_ps_part_pull(client, index, &none, s, NULL, 0)];
        part->cut = true;
        part->clock = client->tables[table].clock + 2; /* no shard ends this clock before this
                                                        * worker does */
    }
    start_and_send(client, index, now_ns);
    *op_p = index;
    return WEFT_OK;
}

bool weft_ps_op_done(const struct weft_ps_client *client, weft_ps_op index,
                     struct weft_ps_result *result_p)
{
    WEFT_ASSERT(index < client->config.ops_max && client->ops[index].state != OP_FREE);
    const struct ps_op *op = &client->ops[index];
    if (op->state != OP_DONE && !op->late) {
        return false;
    }
    if (result_p != NULL) {
        *result_p = op->late ? op->told : op->result;
    }
    return true;
}

bool weft_ps_op_held(const struct weft_ps_client *client, weft_ps_op index)
{
    const struct ps_op *op = &client->ops[index];
    return op->state != OP_FREE && !op->abandoned && op->kind != WEFT_RPC_TABLE;
}

struct weft_ps_op_about weft_ps_op_about(const struct weft_ps_client *client, weft_ps_op index)
{
    const struct ps_op *op = &client->ops[index];
    return (struct weft_ps_op_about){.is_push = op->kind == WEFT_RPC_PUSH,
                                     .is_checkpoint = op->cut,
                                     .table = op->table,
                                     .lists = op->lists,
                                     .rows = op->rows};
}

uint64_t weft_ps_op_handle(const struct weft_ps_client *client, weft_ps_op index)
{
    return (uint64_t)client->ops[index].life << 32 | (index + UINT64_C(1));
}

bool weft_ps_op_find(const struct weft_ps_client *client, uint64_t handle, weft_ps_op *op_p)
{
    uint32_t index = (uint32_t)handle - 1;
    if (index >= client->config.ops_max || client->ops[index].life != handle >> 32 ||
        !weft_ps_op_held(client, index)) {
        return false;
    }
    *op_p = index;
    return true;
}

void weft_ps_op_release(struct weft_ps_client *client, weft_ps_op index)
{
    WEFT_ASSERT(weft_ps_op_done(client, index, NULL));
    if (client->ops[index].state == OP_ACTIVE) {
        client->ops[index].abandoned = true; /* late: its replies are outstanding */
        return;
    }
    for (uint32_t i = 0; !client->ops[index].logged && i < client->ops[index].parts; i++) {
        ps_part_to(&client->parts[index * client->parts_per_op + i], PART_FREE);
    }
    client->ops[index].state = OP_FREE;
}

void weft_ps_op_abandon(struct weft_ps_client *client, weft_ps_op index)
{
    WEFT_ASSERT(index < client->config.ops_max && client->ops[index].state == OP_ACTIVE);
    client->ops[index].abandoned = true;
}
