/* Life, operations, clocks and events. One RPC is in client_part.c. */
#include "ps/client_internal.h"

#include "base/assert.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

void weft_ps_client_config_default(struct weft_ps_client_config *config_p)
{
    *config_p = (struct weft_ps_client_config){
        .shards = 1,
        .tables_max = 4,
        .ops_max = 8,
        .lists_per_op_max = 4,
        .rows_per_op_max = 65536,
        .rows_per_rpc_max = 16384,
        .dim_max = 64,
        .can = WEFT_RPC_CAN_ALL,
        .missed_max = 65536,
        .replay_messages_max = 16384,
    };
}

/* Each list has at most one part for each shard that is not full. */
static uint32_t parts_per_op_of(const struct weft_ps_client_config *config)
{
    return config->lists_per_op_max * config->shards +
           config->rows_per_op_max / config->rows_per_rpc_max;
}

uint32_t weft_ps_client_expects_max(const struct weft_ps_client_config *config)
{
    /* Of the log: what may be under way at once, and what is durable. */
    uint32_t log = config->replay_bytes > 0 ? config->shards * (WEFT_MSGS_MAX + 1) : 0;
    return config->ops_max * parts_per_op_of(config) + 2 * config->tables_max * config->shards +
           log + (config->via_timeout_ns > 0 ? config->tables_max * config->shards : 0);
}

static bool config_valid(const struct weft_ps_client_config *config)
{
    return config->worker < WEFT_RPC_WORKERS_MAX && config->shards >= 1 && config->shards <= 4096 &&
           config->tables_max >= 1 && config->tables_max <= 65536 && config->ops_max >= 1 &&
           config->ops_max <= 4096 && config->lists_per_op_max >= 1 &&
           config->lists_per_op_max <= WEFT_PS_LISTS_MAX && config->rows_per_op_max >= 1 &&
           config->rows_per_op_max <= UINT32_C(1) << 28 && config->rows_per_rpc_max >= 1 &&
           config->dim_max >= 1 && config->dim_max <= WEFT_RPC_DIM_MAX &&
           config->clock_ns != NULL && (config->can & ~WEFT_RPC_CAN_ALL) == 0 &&
           (config->replay_bytes == 0 ||
            (config->reconnect_ns > 0 && config->replay_messages_max >= 1 &&
             config->replay_messages_max <= UINT32_C(1) << 20));
}

/* ---- life ------------------------------------------------------------------------------------ */

static void ends_init(struct weft_ps_client *client, const weft_peer *peers)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        client->ends[s] = (struct ps_shard_end){
            .peer = peers[s],
            .session = 1,
            .queue_head = WEFT_PS_NONE,
            .queue_tail = WEFT_PS_NONE,
        };
    }
}

/* Each link's gate is a part for life. */
static void gates_init(struct weft_ps_client *client)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    for (uint32_t i = 0; i < links; i++) {
        client->parts[client->gates_first + i] = (struct ps_part){
            .kind = WEFT_RPC_PULL,
            .table = (uint16_t)(i / client->config.shards),
            .shard = i % client->config.shards,
            .op = WEFT_PS_NONE,
            .request = client->links[i].gate_request,
            .request_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, sizeof(uint64_t)),
            .request_elem_bytes = sizeof(uint64_t),
            .reply = client->links[i].gate_reply,
            .reply_bytes = WEFT_RPC_REPLY_BYTES,
        };
    }
}

static weft_status members_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    size_t links = (size_t)config->tables_max * config->shards;
    client->parts_per_op = parts_per_op_of(config);
    client->gates_first = config->ops_max * client->parts_per_op;
    client->resumes_first = client->gates_first + (uint32_t)links;
    client->log.first = client->resumes_first + (uint32_t)links;
    client->log.places = config->replay_bytes > 0 ? config->replay_messages_max : 0;
    client->parts_total = client->log.first + client->log.places;
    client->ends = calloc(config->shards, sizeof(*client->ends));
    client->tables = calloc(config->tables_max, sizeof(*client->tables));
    client->links = calloc(links, sizeof(*client->links));
    client->ops = calloc(config->ops_max, sizeof(*client->ops));
    client->parts = calloc(client->parts_total, sizeof(*client->parts));
    client->sort_start = calloc((size_t)config->shards * 3 + 1, sizeof(*client->sort_start));
    client->sort_first =
        calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*client->sort_first));
    client->sort_must =
        calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*client->sort_must));
    client->slice = malloc(sizeof(*client->slice));
    client->unpacked = calloc(weft_max_u64(WEFT_PS_CHUNK_ROWS_MAX, config->rows_per_rpc_max),
                              sizeof(*client->unpacked));
    client->critical =
        calloc(WEFT_BITS_WORDS((size_t)WEFT_PS_CHUNKS_MAX), sizeof(*client->critical));
    bool have = client->ends != NULL && client->tables != NULL && client->links != NULL &&
                client->ops != NULL && client->parts != NULL && client->sort_start != NULL &&
                client->sort_first != NULL && client->sort_must != NULL &&
                client->unpacked != NULL && client->slice != NULL && client->critical != NULL;
    return have ? WEFT_OK : WEFT_NOMEM;
}

static weft_status ops_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    size_t buffer_bytes = weft_ps_op_buffer_bytes(config, client->parts_per_op);
    for (uint32_t i = 0; i < config->ops_max; i++) {
        struct ps_op *op = &client->ops[i];
        op->order = calloc(config->rows_per_op_max, sizeof(*op->order));
        op->buffer = calloc(1, buffer_bytes);
        op->missed = calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*op->missed));
        if (op->order == NULL || op->buffer == NULL || op->missed == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

static weft_status client_init(struct weft_ps_client *client, const weft_peer *peers)
{
    weft_status status = members_init(client);
    if (status == WEFT_OK) {
        ends_init(client, peers);
        gates_init(client);
        weft_ps_resumes_init(client);
        status = ops_init(client);
    }
    status = status == WEFT_OK ? weft_ps_known_init(client) : status;
    if (status == WEFT_OK && client->config.update_bytes_min > 0) {
        status = weft_ps_updates_init(client);
    }
    status = status == WEFT_OK ? weft_ps_via_init(client) : status;
    if (status == WEFT_OK && ps_log_on(client)) {
        status = weft_ps_log_init(client);
    }
    for (uint32_t t = 0; status == WEFT_OK && t < client->config.tables_max; t++) {
        struct weft_ps_missed *both[] = {&client->tables[t].missed, &client->tables[t].push_missed};
        for (int i = 0; status == WEFT_OK && i < 2; i++) {
            status = weft_ps_missed_init(both[i], client->config.missed_max,
                                         client->config.missed_key);
        }
    }
    return status;
}

weft_status weft_ps_client_new(const struct weft_ps_client_config *config, struct weft_msgr msgr,
                               const weft_peer *shard_peers, struct weft_ps_client **client_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_ps_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return WEFT_NOMEM;
    }
    client->config = *config;
    if (config->update_bytes_min == 0) {
        client->config.can &= (uint16_t)~WEFT_RPC_CAN_UPDATE;
    }
    client->msgr = msgr;
    weft_prng_split(&client->prng, config->seed, config->worker);
    client->deadline_ns = WEFT_NEVER;
    weft_status status = client_init(client, shard_peers);
    if (status != WEFT_OK) {
        weft_ps_client_free(client);
        return status;
    }
    *client_p = client;
    return WEFT_OK;
}

void weft_ps_client_free(struct weft_ps_client *client)
{
    if (client == NULL) {
        return;
    }
    for (uint32_t i = 0; client->ops != NULL && i < client->config.ops_max; i++) {
        free(client->ops[i].order);
        free(client->ops[i].buffer);
        free(client->ops[i].missed);
    }
    for (uint32_t t = 0; client->tables != NULL && t < client->config.tables_max; t++) {
        weft_ps_missed_fini(&client->tables[t].missed);
        weft_ps_missed_fini(&client->tables[t].push_missed);
    }
    weft_ps_log_fini(client);
    weft_ps_updates_fini(client);
    weft_ps_known_fini(client);
    weft_ps_via_fini(client);
    free(client->ends);
    free(client->tables);
    free(client->links);
    free(client->ops);
    free(client->parts);
    free(client->sort_start);
    free(client->sort_first);
    free(client->sort_must);
    free(client->slice);
    free(client->unpacked);
    free(client->critical);
    free(client);
}

/* ---- operations ------------------------------------------------------------------------------ */

static uint32_t op_take(struct weft_ps_client *client, uint8_t kind, uint16_t table)
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

/* Go on where the shards say that this rank stands: the process before this one, or the checkpoint
 * that they were restored from. A shard that is behind the others is told their clock. */
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

/* All parts are made: now they may finish, even at once. */
static void op_start(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    struct ps_op *op = &client->ops[index];
    uint32_t parts = op->parts;
    op->parts_open = parts;
    if (parts == 0) {
        op_finish(client, op);
        return;
    }
    for (uint32_t i = 0; i < parts; i++) {
        weft_ps_part_queue(client, ps_op_part(client, index, i));
    }
    weft_ps_client_progress(client, now_ns);
}

static bool push_fits(const struct weft_ps_client *client, const struct weft_table_spec *spec,
                      uint32_t id_bytes);

/* Of a shard that is away nobody can say what its packets hold. */
static bool any_away(const struct weft_ps_client *client)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (client->ends[s].away) {
            return true;
        }
    }
    return false;
}

/* A block of 256 floats fits almost any packet. Where it does not, and the caller has not said how
 * long blocks shall be, the longest of 128, 64, ... that does: few sizes, so that workers of one
 * configuration choose the same. */
static uint16_t fitting_block(const struct weft_ps_client *client,
                              const struct weft_table_spec *spec)
{
    struct weft_table_spec cut = *spec;
    uint32_t block = WEFT_RPC_BLOCK_FLOATS / 2;
    while (spec->block_floats == 0 && !push_fits(client, &cut, WEFT_RPC_ID_WIDE) &&
           block >= WEFT_RPC_BLOCK_FLOATS_MIN) {
        cut.block_floats = (uint16_t)(block <= spec->dim ? block : 0);
        block /= 2;
    }
    return push_fits(client, &cut, WEFT_RPC_ID_WIDE) ? cut.block_floats : spec->block_floats;
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
    if (any_away(client)) {
        return WEFT_AGAIN;
    }
    uint32_t op = op_take(client, WEFT_RPC_TABLE, spec->table);
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
    op_start(client, op, now_ns);
    *op_p = op;
    return WEFT_OK;
}

/* Where a row goes among those of its shard. */
enum { SORT_MUST, SORT_FIRST, SORT_REST, SORT_KINDS };

static uint32_t sort_kind(const struct weft_ps_client *client, uint32_t row)
{
    return weft_bits_test(client->sort_must, row)    ? SORT_MUST
           : weft_bits_test(client->sort_first, row) ? SORT_FIRST
                                                     : SORT_REST;
}

/* Which rows of a pull were missed the last time, and the last two times. At the pull before one that
 * goes ahead they may be missed once more, which is not known yet. */
static void sort_look(struct weft_ps_client *client, const struct ps_list *list, bool is_pull)
{
    const struct weft_ps_missed *missed = &client->tables[list->table].missed;
    size_t bytes = WEFT_BITS_WORDS((size_t)list->n) * sizeof(uint64_t);
    memset(client->sort_first, 0, bytes);
    memset(client->sort_must, 0, bytes);
    for (uint32_t i = 0; is_pull && missed->count > 0 && i < list->n; i++) {
        uint64_t id = ps_list_id(list, i);
        if (weft_ps_missed_has(missed, id)) {
            weft_bits_set(client->sort_first, i);
            client->counters.missed_first++;
        }
        if (weft_ps_missed_twice(missed, id) ||
            (list->ahead > 0 && weft_ps_missed_has(missed, id))) {
            weft_bits_set(client->sort_must, i);
        }
    }
}

/* A hash or a division for each row, which one shard can do without. */
static uint32_t shard_of(const struct weft_table_spec *spec, const struct ps_list *list, uint32_t i,
                         uint32_t shards)
{
    return shards == 1 ? 0 : weft_table_spec_shard(spec, ps_list_id(list, i), shards);
}

/* Rows by shard, those missed first, and before them those missed twice running; a counting sort.
 * Afterwards the rows of shard s are order[sort_start[3s] .. sort_start[3s + 3]), those of them
 * that were missed twice end at sort_start[3s + 1], and those that were missed at
 * sort_start[3s + 2]. */
static void sort_rows(struct weft_ps_client *client, const struct ps_list *list, bool is_pull,
                      uint32_t *order)
{
    uint32_t shards = client->config.shards, n = list->n;
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    uint32_t *start = client->sort_start;
    memset(start, 0, sizeof(*start) * (shards * SORT_KINDS + 1));
    sort_look(client, list, is_pull);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shard = shard_of(spec, list, i, shards);
        start[shard * SORT_KINDS + sort_kind(client, i)]++;
    }
    uint32_t sum = 0;
    for (uint32_t k = 0; k <= shards * SORT_KINDS; k++) {
        uint32_t count = start[k];
        start[k] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shard = shard_of(spec, list, i, shards);
        order[start[shard * SORT_KINDS + sort_kind(client, i)]++] = i;
    }
    /* Placing moved every start to its end, which is the start of the next. */
    for (uint32_t k = shards * SORT_KINDS; k > 0; k--) {
        start[k] = start[k - 1];
    }
    start[0] = 0;
}

/* Do all ids of the list fit u32? */
static uint8_t id_bytes_of(const struct ps_list *list)
{
    uint64_t all = list->ids == NULL ? list->first + list->n : 0;
    for (uint32_t i = 0; list->ids != NULL && i < list->n; i++) {
        all |= list->ids[i];
    }
    return all <= UINT32_MAX ? WEFT_RPC_ID_NARROW : WEFT_RPC_ID_WIDE;
}

/* Every id of a dense table lies within it. */
static bool ids_within(const struct weft_table_spec *spec, const struct ps_list *list)
{
    uint64_t rows = weft_table_dense_rows(spec);
    if (list->ids == NULL) {
        return list->first <= rows && list->n <= rows - list->first;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->ids[i] >= rows) {
            return false;
        }
    }
    return true;
}

static weft_status list_check(const struct weft_ps_client *client, struct ps_list *list)
{
    if (list->table >= client->config.tables_max ||
        client->tables[list->table].state != TABLE_OPEN) {
        return WEFT_STATE;
    }
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    bool dense = spec->kind == WEFT_TABLE_DENSE;
    list->floats = (uint64_t)list->n * spec->dim;
    if (list->n > client->config.rows_per_op_max ||
        list->ahead > (spec->mode == WEFT_TABLE_BSP ? 1 : 0) ||
        (dense ? !ids_within(spec, list) : list->ids == NULL && list->n > 0)) {
        return WEFT_INVALID;
    }
    if (dense && list->ids == NULL) {
        list->floats = weft_min_u64(list->floats, spec->length - list->first * spec->dim);
    }
    list->id_bytes = id_bytes_of(list);
    return WEFT_OK;
}

/* A push is laid out in chunks here, so every shard's packets must hold its head and a row. A shard
 * that is gone fails later, in its part. */
static bool push_fits(const struct weft_ps_client *client, const struct weft_table_spec *spec,
                      uint32_t id_bytes)
{
    uint16_t elem_bytes = weft_table_push_elem_bytes(spec, id_bytes);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes);
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (!client->ends[s].down &&
            client->msgr.ops->chunk_elems(client->msgr.self, client->ends[s].peer, elem_bytes) <
                head_elems) {
            return false;
        }
    }
    return true;
}

/* Is there a free operation, and do the lists fit one? */
static weft_status lists_check(const struct weft_ps_client *client, struct ps_list *lists,
                               uint32_t count, bool is_push, uint32_t bound_ppm)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        weft_status status = list_check(client, &lists[i]);
        if (status != WEFT_OK) {
            return status;
        }
        rows += lists[i].n;
        if (is_push &&
            !push_fits(client, &client->tables[lists[i].table].spec, lists[i].id_bytes)) {
            return WEFT_UNSUPPORTED;
        }
    }
    return rows > client->config.rows_per_op_max || bound_ppm >= WEFT_PPM ? WEFT_INVALID : WEFT_OK;
}

/* Nothing to sort: pieces of the list as they are. */
static void one_shard_parts(struct weft_ps_client *client, uint32_t index,
                            const struct ps_list *list)
{
    bool is_push = client->ops[index].kind == WEFT_RPC_PUSH;
    uint32_t dim = client->tables[list->table].spec.dim, count;
    for (uint32_t first = 0; first < list->n; first += count) {
        count = (uint32_t)weft_min_u64(list->n - first, client->config.rows_per_rpc_max);
        struct ps_list slice = ps_list_slice(list, dim, first, count);
        if (is_push) {
            (void)weft_ps_part_push(client, index, &slice, 0, NULL, count, 0);
        } else {
            (void)weft_ps_part_pull(client, index, &slice, 0, NULL, count);
        }
    }
}

/* So many of the rows first .. first + count - 1 lie before `end`. */
static uint32_t rows_before(uint32_t end, uint32_t first, uint32_t count)
{
    return first < end ? (uint32_t)weft_min_u64(end - first, count) : 0;
}

/* A push of the rows of a pull: its parts are the pull's, which their shards may have as lists. */
static void known_parts(struct weft_ps_client *client, uint32_t index, const struct ps_list *list,
                        uint32_t *order)
{
    const struct ps_known *known = list->known;
    uint32_t dim = client->tables[list->table].spec.dim;
    if (known->order != NULL) {
        memcpy(order, known->order, list->n * sizeof(*order));
    }
    for (uint32_t i = 0; i < known->parts; i++) {
        const struct ps_known_part *of = &known->part[i];
        struct ps_link *link = ps_link_of(client, list->table, of->shard);
        bool may = of->number != 0 && (link->can & WEFT_RPC_CAN_LIST) != 0 &&
                   !weft_ps_via_open(client, list->table, of->shard);
        uint32_t number = may && link->list_pause == 0 ? of->number : 0;
        link->list_pause -= may && link->list_pause > 0;
        if (known->order != NULL) {
            (void)weft_ps_part_push(client, index, list, of->shard, order + of->first, of->rows,
                                    number);
        } else {
            struct ps_list slice = ps_list_slice(list, dim, of->first, of->rows);
            (void)weft_ps_part_push(client, index, &slice, of->shard, NULL, of->rows, number);
        }
    }
}

/* The parts of one list; its rows' order is written behind that of the lists before. */
static void list_parts(struct weft_ps_client *client, uint32_t index, const struct ps_list *list,
                       uint32_t *order)
{
    bool is_push = client->ops[index].kind == WEFT_RPC_PUSH;
    if (list->known != NULL) {
        known_parts(client, index, list, order);
        return;
    }
    if (client->config.shards == 1 && (is_push || client->tables[list->table].missed.count == 0)) {
        one_shard_parts(client, index, list);
        return;
    }
    sort_rows(client, list, !is_push, order);
    for (uint32_t s = 0; s < client->config.shards; s++) {
        const uint32_t *start = &client->sort_start[SORT_KINDS * s];
        uint32_t end = start[SORT_KINDS], count;
        for (uint32_t first = start[0]; first < end; first += count) {
            count = (uint32_t)weft_min_u64(end - first, client->config.rows_per_rpc_max);
            uint32_t made =
                is_push ? weft_ps_part_push(client, index, list, s, order + first, count, 0)
                        : weft_ps_part_pull(client, index, list, s, order + first, count);
            struct ps_part *part = &client->parts[made];
            part->rows_must = rows_before(start[SORT_FIRST], first, count);
            part->rows_first = rows_before(start[SORT_REST], first, count);
        }
    }
}

static weft_status lists_start(struct weft_ps_client *client, uint8_t kind, struct ps_list *lists,
                               uint32_t count, const struct weft_ps_how *how, uint64_t now_ns,
                               weft_ps_op *op_p)
{
    bool is_push = kind == WEFT_RPC_PUSH;
    weft_status status = is_push && any_away(client)
                             ? WEFT_AGAIN
                             : lists_check(client, lists, count, is_push, how->bound_ppm);
    for (uint32_t i = 0; status == WEFT_OK && is_push && i < count; i++) {
        lists[i].known = weft_ps_known_find(client, &lists[i]);
    }
    if (status == WEFT_OK && is_push && ps_log_on(client)) {
        status = weft_ps_log_room(client, lists, count, now_ns);
    }
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t index = op_take(client, kind, 0);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    uint32_t *order = client->ops[index].order;
    client->ops[index].bound_ppm = how->bound_ppm;
    client->ops[index].deadline_ns = how->deadline_ns > 0 ? how->deadline_ns : WEFT_NEVER;
    client->ops[index].has_norm = how->has_norm;
    client->ops[index].squares = how->norm * how->norm;
    weft_ps_deadline_arm(client, &client->ops[index]);
    for (uint32_t i = 0; i < count; i++) {
        lists[i].at = client->ops[index].rows;
        lists[i].fill = how->fill >> weft_min_u64(i, 63) & 1;
        client->ops[index].rows += lists[i].n;
        client->tables[lists[i].table].passed &= !is_push;
        uint32_t first = client->ops[index].parts;
        list_parts(client, index, &lists[i], order);
        if (!is_push) {
            weft_ps_known_add(client, index, &lists[i], first, order);
        }
        order += lists[i].n;
    }
    op_start(client, index, now_ns);
    *op_p = index;
    return WEFT_OK;
}

weft_status weft_ps_push_how(struct weft_ps_client *client, const struct weft_ps_push_list *lists,
                             uint32_t count, const struct weft_ps_how *how, uint64_t now_ns,
                             weft_ps_op *op_p)
{
    struct ps_list inside[WEFT_PS_LISTS_MAX];
    if (count > client->config.lists_per_op_max) {
        return WEFT_INVALID;
    }
    for (uint32_t i = 0; i < count; i++) {
        inside[i] = (struct ps_list){.table = lists[i].table,
                                     .n = lists[i].n,
                                     .ids = lists[i].ids,
                                     .first = lists[i].first,
                                     .values = lists[i].rows};
    }
    return lists_start(client, WEFT_RPC_PUSH, inside, count, how, now_ns, op_p);
}

weft_status weft_ps_push_lists(struct weft_ps_client *client, const struct weft_ps_push_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p)
{
    const struct weft_ps_how how = {.bound_ppm = bound_ppm};
    return weft_ps_push_how(client, lists, count, &how, now_ns, op_p);
}

weft_status weft_ps_pull_how(struct weft_ps_client *client, const struct weft_ps_pull_list *lists,
                             uint32_t count, const struct weft_ps_how *how, uint64_t now_ns,
                             weft_ps_op *op_p)
{
    struct ps_list inside[WEFT_PS_LISTS_MAX];
    if (count > client->config.lists_per_op_max) {
        return WEFT_INVALID;
    }
    for (uint32_t i = 0; i < count; i++) {
        inside[i] = (struct ps_list){.table = lists[i].table,
                                     .n = lists[i].n,
                                     .ids = lists[i].ids,
                                     .first = lists[i].first,
                                     .ahead = (uint8_t)weft_min_u64(how->ahead, UINT8_MAX),
                                     .out = lists[i].rows_out};
    }
    return lists_start(client, WEFT_RPC_PULL, inside, count, how, now_ns, op_p);
}

weft_status weft_ps_pull_lists(struct weft_ps_client *client, const struct weft_ps_pull_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p)
{
    const struct weft_ps_how how = {.bound_ppm = bound_ppm};
    return weft_ps_pull_how(client, lists, count, &how, now_ns, op_p);
}

weft_status weft_ps_push(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         const float *rows, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p)
{
    const struct weft_ps_push_list list = {.table = table, .n = n, .ids = ids, .rows = rows};
    return weft_ps_push_lists(client, &list, 1, bound_ppm, now_ns, op_p);
}

weft_status weft_ps_pull(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         float *rows_out, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p)
{
    const struct weft_ps_pull_list list = {
        .table = table, .n = n, .ids = ids, .rows_out = rows_out};
    return weft_ps_pull_lists(client, &list, 1, bound_ppm, now_ns, op_p);
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
    uint32_t index = op_take(client, WEFT_RPC_PULL, table);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    const struct ps_list none = {.table = table, .id_bytes = sizeof(uint64_t)};
    client->ops[index].bound_ppm = 0;
    uint32_t part = weft_ps_part_pull(client, index, &none, shard, NULL, 0);
    client->parts[part].clock = 0;
    op_start(client, index, now_ns);
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
    uint32_t index = op_take(client, WEFT_RPC_PULL, table);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    const struct ps_list none = {.table = table, .id_bytes = sizeof(uint64_t)};
    client->ops[index].bound_ppm = 0;
    client->ops[index].cut = true;
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_part *part = &client->parts[weft_ps_part_pull(client, index, &none, s, NULL, 0)];
        part->cut = true;
        part->clock = client->tables[table].clock + 2; /* over nowhere before this worker ends it */
    }
    op_start(client, index, now_ns);
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

void weft_ps_op_release(struct weft_ps_client *client, weft_ps_op index)
{
    WEFT_ASSERT(weft_ps_op_done(client, index, NULL));
    if (client->ops[index].state == OP_ACTIVE) {
        client->ops[index].abandoned = true; /* late: its answers are still to come */
        return;
    }
    for (uint32_t i = 0; !client->ops[index].logged && i < client->ops[index].parts; i++) {
        client->parts[index * client->parts_per_op + i].state = PART_FREE;
    }
    client->ops[index].state = OP_FREE;
}

void weft_ps_op_abandon(struct weft_ps_client *client, weft_ps_op index)
{
    WEFT_ASSERT(index < client->config.ops_max && client->ops[index].state == OP_ACTIVE);
    client->ops[index].abandoned = true;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

void weft_ps_clocks_count(struct weft_ps_client *client)
{
    client->clocks_open = 0;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        const struct ps_table *table = &client->tables[t];
        for (uint32_t s = 0; table->state == TABLE_OPEN && s < client->config.shards; s++) {
            const struct ps_link *link = ps_link_of(client, (uint16_t)t, s);
            bool counts = !client->ends[s].down && !link->clock_refused;
            client->clocks_open += counts ? table->clock - link->clock_closed : 0;
        }
    }
}

void weft_ps_clock_refuse(struct weft_ps_client *client, struct ps_link *link, bool refused)
{
    client->clocks_refused += refused;
    client->clocks_refused -= link->clock_refused;
    link->clock_refused = refused;
    weft_ps_clocks_count(client);
}

bool weft_ps_clock_refused(const struct weft_ps_client *client,
                           struct weft_ps_clock_refusal *refusal_p)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    for (uint32_t i = 0; client->clocks_refused > 0 && i < links; i++) {
        const struct ps_link *link = &client->links[i];
        uint32_t shard = i % client->config.shards;
        if (!link->clock_refused || client->ends[shard].down || client->ends[shard].away) {
            continue;
        }
        *refusal_p = (struct weft_ps_clock_refusal){
            .table = (uint16_t)(i / client->config.shards),
            .shard = shard,
            .clock = link->clock_closed + 1,
            .status = !link->gone                    ? WEFT_STATE
                      : link->gone_status != WEFT_OK ? link->gone_status
                                                     : WEFT_DATA,
            .rpc_status = link->gone_rpc_status,
        };
        return true;
    }
    return false;
}

weft_status weft_ps_clock(struct weft_ps_client *client, uint16_t index, uint64_t now_ns)
{
    if (index >= client->config.tables_max || client->tables[index].state != TABLE_OPEN) {
        return WEFT_STATE;
    }
    struct ps_table *table = &client->tables[index];
    for (uint32_t s = 0; s < client->config.shards; s++) {
        const struct ps_link *link = ps_link_of(client, index, s);
        if (client->ends[s].down || link->clock_refused) {
            return WEFT_PEER;
        }
    }
    if (!weft_ps_clock_known(client, index)) {
        if (weft_ps_update_waited_for(client,
                                      index)) { /* its CLOCK may wait for other tables' ends */
            weft_ps_client_progress(client, now_ns);
        }
        return WEFT_AGAIN;
    }
    if (table->passed) {
        table->passed = false;
        return WEFT_OK;
    }
    table->clock++;
    weft_ps_update_clocked(client);
    weft_ps_pulls_in_time(client, index);
    client->clocks_open += client->config.shards;
    weft_ps_client_progress(client, now_ns);
    return WEFT_OK;
}

uint32_t weft_ps_clock_now(const struct weft_ps_client *client, uint16_t table)
{
    return table < client->config.tables_max ? client->tables[table].clock : 0;
}

bool weft_ps_clock_known(const struct weft_ps_client *client, uint16_t table)
{
    if (table >= client->config.tables_max) {
        return false;
    }
    const struct ps_link *links = &client->links[(size_t)table * client->config.shards];
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (links[s].clock_closed != client->tables[table].clock) {
            return false;
        }
    }
    return true;
}

/* The clock to be said next. A shard that lacks many, because it was restored or this worker came to it
 * late, is told at once of all those for which no push is left to be sent. */
static uint32_t clock_next(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                           const struct ps_link *link)
{
    uint32_t next = link->clock_closed + 1, now = client->tables[table].clock;
    if (now <= next || link->pushes_open[0] > 0 || link->pushes_open[1] > 0) {
        return next;
    }
    uint32_t before = weft_ps_first_push_clock(client, table, shard) - 1;
    return before < now ? before : now;
}

static void clock_send(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    uint16_t table = (uint16_t)(index / client->config.shards);
    uint32_t shard = index % client->config.shards;
    struct ps_link *link = &client->links[index];
    uint32_t clock = link->clock_closed + 1;
    const struct ps_shard_end *end = &client->ends[shard];
    if (link->clock_sending || link->clock_refused || end->down || end->away || link->resuming ||
        clock > client->tables[table].clock || link->pushes_open[clock & 1] > 0 ||
        (client->updates != NULL && weft_ps_update_keeps_clock(client, table, shard, clock))) {
        return;
    }
    struct weft_rpc_request request = {
        .rpc_id = weft_ps_rpc_id(client, shard),
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
    };
    link->clock_said = clock_next(client, table, shard, link);
    request.flags = link->clock_said > clock ? WEFT_RPC_UPTO : 0;
    weft_rpc_request_pack(&request, link->clock_request);
    struct weft_msg_send send = {
        .peer = client->ends[shard].peer,
        .base = link->clock_request,
        .total = 1,
        .elem_bytes = WEFT_RPC_REQUEST_BYTES,
        .priority = WEFT_RPC_PRIORITY_CLOCK,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_CLOCK, .table = table, .number = link->clock_said}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | WEFT_PS_USER_CLOCK | index,
    };
    uint64_t seq;
    /* Anything but OK: the same again in the next progress, or PEER_DOWN comes. */
    link->clock_sending = client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) == WEFT_OK;
    client->counters.again += !link->clock_sending;
}

static void clock_sent(struct weft_ps_client *client, uint32_t index,
                       const struct weft_msg_event *event)
{
    struct ps_link *link = &client->links[index];
    WEFT_ASSERT(link->clock_sending);
    link->clock_sending = false;
    if (event->outcome != WEFT_MSG_COMPLETE) {
        return; /* PEER_DOWN follows */
    }
    if (event->refused > 0) {
        weft_ps_clock_refuse(client, link, true);
        return;
    }
    uint32_t from = link->clock_closed;
    link->clock_closed = link->clock_said;
    client->clocks_open -= link->clock_closed - from;
    client->counters.clocks++;
    weft_ps_clock_moved(client, (uint16_t)(index / client->config.shards),
                        index % client->config.shards, from);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void peer_down(struct weft_ps_client *client, const struct weft_msg_event *event,
                      uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        bool gone_before = end->down || (end->away && !end->connecting);
        if (gone_before || end->peer != event->peer) {
            continue;
        }
        if (client->config.reconnect_ns > 0 && event->down != WEFT_DOWN_REPLACED) {
            weft_ps_shard_away(client, s, now_ns);
        } else {
            weft_ps_shard_down(client, s);
        }
    }
}

static void peer_up(struct weft_ps_client *client, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        bool gone = end->down || (end->away && !end->connecting);
        if (gone || end->peer != event->peer) {
            continue;
        }
        end->up_ns = now_ns;
        end->incarnation = event->incarnation;
        if (end->connecting) {
            weft_ps_shard_back(client, s);
        }
    }
}

void weft_ps_client_event(struct weft_ps_client *client, const struct weft_msg_event *event,
                          uint64_t now_ns)
{
    client->now_ns = now_ns;
    bool of_peer = event->type == WEFT_EVENT_PEER_DOWN || event->type == WEFT_EVENT_PEER_UP;
    if (of_peer && weft_ps_via_peer(client, event, now_ns)) {
        return;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        peer_down(client, event, now_ns);
        return;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        peer_up(client, event, now_ns);
        return;
    }
    if (!(event->user & WEFT_PS_USER)) {
        return;
    }
    uint32_t index = (uint32_t)event->user;
    if (event->user & WEFT_PS_USER_SAFE) {
        weft_ps_safe_event(client, event);
    } else if (event->user & WEFT_PS_USER_VIA) {
        weft_ps_via_table_event(client, event);
    } else if (event->user & WEFT_PS_USER_CLOCK) {
        clock_sent(client, index, event);
    } else if (event->type == WEFT_EVENT_SENT) {
        weft_ps_part_sent(client, index, event);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        weft_ps_part_reply(client, index, event);
    }
}

static void shards_send(struct weft_ps_client *client, uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (!client->ends[s].down && !client->ends[s].away) {
            weft_ps_safe_expect(client, s);
            weft_ps_shard_send(client, s, now_ns);
        }
    }
}

void weft_ps_client_progress(struct weft_ps_client *client, uint64_t now_ns)
{
    client->round++;
    weft_ps_shards_overdue(client, now_ns);
    weft_ps_via_progress(client, now_ns);
    if (now_ns >= client->deadline_ns) {
        weft_ps_deadlines(client, now_ns);
    }
    shards_send(client, now_ns);
    if (client->updates != NULL && weft_ps_updates_completed(client)) {
        client->round++; /* what it kept back may go */
        shards_send(client, now_ns);
        (void)weft_ps_updates_completed(client);
    }
    if (client->clocks_open > 0) {
        uint32_t links = client->config.tables_max * client->config.shards;
        for (uint32_t i = 0; i < links; i++) {
            clock_send(client, i, now_ns);
        }
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t weft_ps_rpc_id(struct weft_ps_client *client, uint32_t shard)
{
    uint32_t *id = &client->ends[shard].rpc_id;
    *id = *id == UINT32_MAX ? 1 : *id + 1;
    return *id;
}

bool weft_ps_client_busy(const struct weft_ps_client *client)
{
    return client->ops_active > 0 || client->clocks_open > 0 || client->again_open > 0;
}

const struct weft_ps_client_counters *weft_ps_client_counters(const struct weft_ps_client *client)
{
    return &client->counters;
}

const struct weft_ps_latencies *weft_ps_client_push_latencies(const struct weft_ps_client *client)
{
    return &client->push_latencies;
}

const struct weft_ps_latencies *weft_ps_client_pull_latencies(const struct weft_ps_client *client)
{
    return &client->pull_latencies;
}

void weft_ps_client_latencies_clear(struct weft_ps_client *client)
{
    memset(&client->push_latencies, 0, sizeof(client->push_latencies));
    memset(&client->pull_latencies, 0, sizeof(client->pull_latencies));
}
