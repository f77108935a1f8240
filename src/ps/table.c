#include "base/assert.h"
#include "base/init.h"
#include "ps/table_index.h"
#include "ps/table_internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t row_bytes_of(uint32_t floats)
{
    uint32_t bytes = (uint32_t)sizeof(struct weft_table_row) + 4 * floats;
    return (bytes + 7) / 8 * 8;
}

/* Size of the longest row of dim_max floats: all slots, the shortest blocks, sums and counts. */
static uint32_t row_bytes_max(uint32_t dim_max)
{
    uint32_t blocks = (dim_max + WEFT_RPC_BLOCK_FLOATS_MIN - 1) / WEFT_RPC_BLOCK_FLOATS_MIN;
    return row_bytes_of((2 + WEFT_OPTIMIZER_SLOTS_MAX) * dim_max +
                        (1 + WEFT_OPTIMIZER_STEPS_MAX) * blocks);
}

/* Log2 of the largest power of two of rows that fits, at least one row. */
static uint32_t slab_rows_log2_of(uint64_t slab_bytes, uint32_t row_bytes)
{
    uint32_t log2 = 0;
    while (log2 < 30 && ((uint64_t)row_bytes << (log2 + 1)) <= slab_bytes) {
        log2++;
    }
    return log2;
}

weft_status weft_table_init(struct weft_table *table, const struct weft_table_limits *limits)
{
    if (limits->rows_max == 0 || limits->rows_max > WEFT_TABLE_ROWS_MAX || limits->dim_max == 0 ||
        limits->dim_max > WEFT_RPC_DIM_MAX || limits->slab_bytes == 0 ||
        limits->slab_bytes > UINT64_C(1) << 40 || limits->shard >= limits->shards) {
        return WEFT_INVALID;
    }
    uint32_t fewest_log2 = slab_rows_log2_of(limits->slab_bytes, row_bytes_max(limits->dim_max));
    *table = (struct weft_table){
        .limits = *limits,
        .slabs_max = (uint32_t)weft_div_ceil_u64(limits->rows_max, UINT64_C(1) << fewest_log2),
        .index_key = weft_hash_key(limits->keys.index),
    };
    /* Not aligned_alloc, whose memory would have to be cleared: calloc returns untouched pages. */
    size_t line = sizeof(*table->index);
    table->index_memory = calloc(weft_table_index_buckets(limits->rows_max) + UINT64_C(1), line);
    table->index =
        (struct weft_table_bucket *)(void *)(((uintptr_t)table->index_memory + line - 1) / line *
                                             line);
    table->slabs = calloc(table->slabs_max, sizeof(*table->slabs));
    weft_status status = weft_hot_init(&table->hot, limits->hot_top);
    if (status == WEFT_OK && (table->index_memory == NULL || table->slabs == NULL)) {
        status = WEFT_NOMEM;
    }
    if (status != WEFT_OK) {
        weft_table_fini(table);
    }
    return status;
}

void weft_table_fini(struct weft_table *table)
{
    free(table->index_memory);
    free(table->slabs);
    weft_hot_fini(&table->hot);
    *table = (struct weft_table){0};
}

/* ---- shape ----------------------------------------------------------------------------------- */

static void lay_out_rows(struct weft_table *table)
{
    const struct weft_table_spec *spec = &table->spec;
    bool sums = spec->mode == WEFT_TABLE_BSP;
    table->optimizer = weft_optimizer_at(spec->optimizer);
    table->blocks = weft_table_blocks(spec);
    table->block_floats = weft_table_block_floats(spec);
    table->slots_at = spec->dim;
    table->steps_at = table->slots_at + spec->dim * table->optimizer->slots;
    table->sums_at = table->steps_at + table->blocks * table->optimizer->steps;
    table->counts_at = table->sums_at + (sums ? spec->dim : 0);
    table->counts = sums && weft_table_average(spec) == WEFT_AVERAGE_CONTRIBUTORS;
    table->row_bytes = row_bytes_of(table->counts_at + (table->counts ? table->blocks : 0));
    table->slab_rows_log2 = slab_rows_log2_of(table->limits.slab_bytes, table->row_bytes);
}

static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : weft_min_u64(a, b);
}

/* The specification determines the number of cells. If the server has no limit in bytes, cells must
 * not use more memory than the rows that it allows. */
static bool cells_allowed(const struct weft_table *table)
{
    const struct weft_table_limits *limits = &table->limits;
    return limits->bytes_max > 0 ||
           weft_admission_bytes(&table->admission) <= (uint64_t)limits->rows_max * table->row_bytes;
}

/* Choose the index size that allows the most rows: a larger index can address more rows, but leaves
 * less memory for them. */
static void fit_sparse(struct weft_table *table)
{
    uint64_t bytes_max = smaller_limit(table->spec.bytes_max, table->limits.bytes_max);
    uint64_t rows_max = smaller_limit(table->spec.rows_max, table->limits.rows_max);
    uint64_t fixed = weft_admission_bytes(&table->admission);
    uint64_t full = weft_table_index_buckets((uint32_t)rows_max);
    for (uint64_t buckets = 1; buckets <= full; buckets *= 2) {
        uint64_t taken = fixed + buckets * sizeof(*table->index);
        uint64_t rows = weft_min_u64(buckets * TABLE_BUCKET_ROWS, rows_max);
        if (bytes_max > 0) {
            uint64_t left = bytes_max > taken ? bytes_max - taken : 0;
            rows = weft_min_u64(rows, left / table->row_bytes);
        }
        if (rows > table->rows_limit) {
            table->rows_limit = (uint32_t)rows;
            table->index_mask_max = (uint32_t)buckets - 1;
        }
    }
}

/* False when not all of the vector's rows fit. */
static bool fit_dense(struct weft_table *table)
{
    const struct weft_table_limits *limits = &table->limits;
    uint64_t all = weft_table_dense_rows(&table->spec);
    uint64_t rows = all / limits->shards + (limits->shard < all % limits->shards);
    table->rows_limit = (uint32_t)weft_min_u64(rows, limits->rows_max);
    return rows <= limits->rows_max &&
           (limits->bytes_max == 0 || rows * table->row_bytes <= limits->bytes_max);
}

void weft_table_set_hooks(struct weft_table *table, const struct weft_row_hooks *hooks,
                          uint16_t number)
{
    table->hooks = hooks;
    table->number = number;
}

weft_status weft_table_declare(struct weft_table *table, const struct weft_table_spec *spec)
{
    WEFT_ASSERT(!table->declared);
    if (!weft_table_spec_valid(spec) || spec->dim > table->limits.dim_max) {
        return WEFT_INVALID;
    }
    table->spec = *spec;
    table->averaged = spec->workers;
    table->rows_limit = 0;
    lay_out_rows(table);
    weft_admission_init(&table->admission, spec,
                        spec->admission == WEFT_ADMISSION_BLOOM ? table->limits.keys.filter
                                                                : table->limits.keys.counter);
    if (table_is_dense(table)) {
        if (!fit_dense(table)) {
            return WEFT_INVALID;
        }
    } else {
        fit_sparse(table);
        table->index_mask = weft_table_index_first(table);
        if (table->rows_limit == 0 || !cells_allowed(table)) {
            return WEFT_INVALID;
        }
    }
    table->touched_head = TABLE_TOUCHED_LAST;
    table->now = 1;
    table->fresh = 1;
    table->declared = true;
    return WEFT_OK;
}

uint32_t weft_table_state_floats(const struct weft_table *table)
{
    return table->sums_at - table->slots_at;
}

uint32_t weft_table_sums_floats(const struct weft_table *table)
{
    return table->spec.mode != WEFT_TABLE_BSP ? 0
           : table->counts                    ? table->spec.dim + table->blocks
                                              : table->spec.dim;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint32_t capacity(const struct weft_table *table)
{
    return (uint32_t)weft_min_u64((uint64_t)table->slab_count << table->slab_rows_log2,
                                  table->rows_limit);
}

uint32_t weft_table_room(const struct weft_table *table)
{
    return capacity(table) - table->rows;
}

static bool wants_admission(const struct weft_table *table)
{
    return table->admission.memory == NULL && weft_admission_bytes(&table->admission) > 0;
}

/* The last slab is only as long as the limit requires. */
static uint32_t next_slab_rows(const struct weft_table *table)
{
    uint64_t left = table->rows_limit - capacity(table);
    return (uint32_t)weft_min_u64(UINT64_C(1) << table->slab_rows_log2, left);
}

bool weft_table_wants_slab(const struct weft_table *table, size_t *bytes_p)
{
    if (!table->declared) {
        return false;
    }
    if (wants_admission(table)) {
        *bytes_p = (weft_admission_bytes(&table->admission) + 7) / 8 * 8;
        return true;
    }
    uint64_t slab_rows = UINT64_C(1) << table->slab_rows_log2;
    uint32_t free_rows = weft_table_room(table);
    if (capacity(table) == table->rows_limit ||
        (!table_is_dense(table) && free_rows * UINT64_C(2) >= slab_rows &&
         free_rows >= table->ahead_rows)) {
        return false;
    }
    *bytes_p = (size_t)table->row_bytes * next_slab_rows(table);
    return true;
}

void weft_table_want_rows(struct weft_table *table, uint32_t rows)
{
    table->ahead_rows = rows > table->ahead_rows ? rows : table->ahead_rows;
}

static void row_begin(struct weft_table *table, uint64_t id, uint32_t number, uint32_t marks);

/* All rows of a dense table exist once it has memory. */
static void begin_dense(struct weft_table *table)
{
    while (table->rows_begun < capacity(table)) {
        uint32_t number = table->rows_begun++;
        row_begin(table, (uint64_t)number * table->limits.shards + table->limits.shard, number, 0);
    }
}

weft_status weft_table_add_slab(struct weft_table *table, void *memory, size_t bytes)
{
    size_t wanted = 0;
    if (!weft_table_wants_slab(table, &wanted)) {
        return WEFT_STATE;
    }
    if (bytes < wanted || (uintptr_t)memory % 8 != 0) {
        return WEFT_INVALID;
    }
    if (wants_admission(table)) {
        weft_admission_begin(&table->admission, memory);
        return WEFT_OK;
    }
    WEFT_ASSERT(table->slab_count < table->slabs_max);
    table->slabs[table->slab_count++] = memory;
    if (table_is_dense(table)) {
        begin_dense(table);
    }
    return WEFT_OK;
}

void *weft_table_take_slab(struct weft_table *table)
{
    if (table->slab_count > 0) {
        return table->slabs[--table->slab_count];
    }
    void *memory = table->admission.memory;
    table->admission.memory = NULL;
    return memory;
}

uint64_t weft_table_bytes(const struct weft_table *table)
{
    if (!table->declared) {
        return 0;
    }
    uint64_t index =
        table_is_dense(table) ? 0 : (table->index_mask + UINT64_C(1)) * sizeof(*table->index);
    uint64_t admission =
        table->admission.memory == NULL ? 0 : weft_admission_bytes(&table->admission);
    return index + admission + (uint64_t)capacity(table) * table->row_bytes;
}

uint32_t weft_table_rows(const struct weft_table *table)
{
    return table->rows;
}

/* ---- making and removing --------------------------------------------------------------------- */

void weft_table_fill_initial(const struct weft_table_spec *spec, uint64_t id, float *out)
{
    uint32_t zeros = spec->init_scale > 0 ? spec->init_skip : spec->dim;
    memset(out, 0, sizeof(*out) * zeros);
    for (uint32_t column = zeros; column < spec->dim; column++) {
        out[column] = weft_init_value(spec->init_seed, id, column, spec->init_scale);
    }
}

/* marks: TABLE_ROW_HOT if the slot had it before. */
static void row_begin(struct weft_table *table, uint64_t id, uint32_t number, uint32_t marks)
{
    struct weft_table_row *row = table_row_at(table, number);
    memset(row, 0, table->row_bytes);
    row->id = id;
    row->number = number | marks | TABLE_ROW_LIVE;
    row->clock = table->now;
    weft_table_fill_initial(&table->spec, id, table_weights(row));
    table->optimizer->init(&table->spec, table_weights(row), table_slots(table, row),
                           table->spec.dim, table->spec.dim);
    table->rows++;
    table->counters.rows_created++;
    for (struct weft_dirty_set *dirty_set = table->dirty_set; dirty_set != NULL;
         dirty_set = dirty_set->next) {
        weft_dirty_set_made(dirty_set, number);
    }
}

/* Create a row for id, which must have none; NULL, and counted, if there is no room. */
static struct weft_table_row *row_make(struct weft_table *table, uint64_t id, uint64_t hash)
{
    bool refused = table->replay.is_bounded && table->replay.rows_left == 0;
    if (refused || (table->rows == capacity(table) && !weft_table_evict_one(table))) {
        table->counters.rows_refused++;
        return NULL;
    }
    table->replay.rows_left -= table->replay.is_bounded;
    weft_table_index_grow(table); /* while every used slot is consistent */
    uint32_t number = table->rows_begun, marks = 0;
    if (table->free_head != 0) {
        number = table->free_head - 1;
        table->free_head = table_row_at(table, number)->touched_next;
        marks = table_row_at(table, number)->number & TABLE_ROW_HOT;
    } else {
        table->rows_begun++;
    }
    row_begin(table, id, number, marks);
    weft_table_index_add(table, hash, number);
    return table_row_at(table, number);
}

/* From now on a pull of this id returns initial weights. In BSP this may happen in the middle of a
 * clock: the table is not cut before the end of the clock, which must not wait for it. */
static void table_row_goes(const struct weft_table *table, const struct weft_table_row *row)
{
    float initial[WEFT_RPC_DIM_MAX];
    if (table->divergence == NULL) {
        return;
    }
    weft_table_fill_initial(&table->spec, row->id, initial);
    double squares = table_squares(initial, table_weights(row), table->spec.dim);
    if (table->spec.mode == WEFT_TABLE_BSP) {
        weft_divergence_add_later(table->divergence, table_row_number(row), squares);
    } else {
        weft_divergence_add(table->divergence, table_row_number(row), squares);
    }
}

void weft_table_remove(struct weft_table *table, struct weft_table_row *row)
{
    WEFT_ASSERT((row->number & TABLE_ROW_LIVE) != 0 && row->touched_next == 0);
    table->hot.removed += row->count;
    table_row_goes(table, row);
    for (struct weft_dirty_set *dirty_set = table->dirty_set; dirty_set != NULL;
         dirty_set = dirty_set->next) {
        weft_dirty_set_remove(dirty_set, table, table_row_number(row));
    }
    weft_table_index_remove(table, weft_table_hash(table, row->id), table_row_number(row));
    uint32_t number = table_row_number(row);
    row->number = number | (row->number & TABLE_ROW_HOT);
    row->touched_next = table->free_head;
    table->free_head = number + 1;
    table->rows--;
}

/* ---- finding --------------------------------------------------------------------------------- */

bool weft_table_owns(const struct weft_table *table, uint64_t id)
{
    const struct weft_table_limits *limits = &table->limits;
    if (table_is_dense(table)) {
        return id % limits->shards == limits->shard && id / limits->shards < table->rows_limit;
    }
    return weft_table_shard_of(id, limits->shards) == limits->shard;
}

static struct weft_table_row *dense_row(const struct weft_table *table, uint64_t id)
{
    uint64_t number = id / table->limits.shards;
    return id % table->limits.shards == table->limits.shard && number < table->rows_begun
               ? table_row_at(table, (uint32_t)number)
               : NULL;
}

struct weft_table_row *weft_table_find_hashed(const struct weft_table *table, uint64_t id,
                                              uint64_t hash)
{
    if (table_is_dense(table)) {
        return dense_row(table, id);
    }
    uint32_t number = weft_table_index_find(table, id, hash);
    struct weft_table_row *row = number == 0 ? NULL : table_row_at(table, number - 1);
    return row == NULL || table_row_expired(table, row) ? NULL : row;
}

struct weft_table_row *weft_table_obtain_hashed(struct weft_table *table, uint64_t id,
                                                uint64_t hash, bool asks, bool counts, bool *full_p)
{
    if (table_is_dense(table)) {
        struct weft_table_row *row = dense_row(table, id);
        *full_p |= row == NULL;
        return row;
    }
    uint32_t number = weft_table_index_find(table, id, hash);
    if (number != 0) {
        struct weft_table_row *row = table_row_at(table, number - 1);
        if (!table_row_expired(table, row)) {
            return row;
        }
        table->counters.rows_expired++;
        weft_table_remove(table, row);
    }
    bool filtered = asks && table->spec.admission != WEFT_ADMISSION_ALL;
    if (filtered && (!counts || table->admission.memory == NULL ||
                     !weft_admission_count(&table->admission, id))) {
        table->counters.unadmitted += counts;
        return NULL;
    }
    struct weft_table_row *row = row_make(table, id, hash);
    *full_p |= row == NULL;
    if (filtered && row != NULL) {
        weft_admission_done(&table->admission, id);
    }
    return row;
}

struct weft_table_row *weft_table_find(const struct weft_table *table, uint64_t id)
{
    return weft_table_find_hashed(table, id, weft_table_hash(table, id));
}

struct weft_table_row *weft_table_obtain(struct weft_table *table, uint64_t id)
{
    bool full = false;
    return weft_table_obtain_hashed(table, id, weft_table_hash(table, id), false, false, &full);
}

const float *weft_table_weights(const struct weft_table *table, const struct weft_table_row *row)
{
    (void)table;
    return table_weights(row);
}

bool weft_table_read(const struct weft_table *table, uint64_t id, float *out)
{
    const struct weft_table_row *row = weft_table_find(table, id);
    if (row == NULL) {
        weft_table_fill_initial(&table->spec, id, out);
        return false;
    }
    memcpy(out, table_weights(row), sizeof(*out) * table->spec.dim);
    return true;
}

/* ---- all rows -------------------------------------------------------------------------------- */

bool weft_table_next(const struct weft_table *table, uint32_t *cursor,
                     struct weft_table_view *view_p)
{
    while (*cursor < table->rows_begun) {
        const struct weft_table_row *row = table_row_at(table, (*cursor)++);
        if ((row->number & TABLE_ROW_LIVE) == 0 || table_row_expired(table, row)) {
            continue;
        }
        *view_p = (struct weft_table_view){
            .id = row->id,
            .clock = row->clock,
            .count = row->count,
            .weights = table_weights(row),
            .state = table_slots(table, row),
            .sums = row->touched_next == 0 ? NULL : table_sums(table, row),
        };
        return true;
    }
    return false;
}

static void row_fill(struct weft_table *table, struct weft_table_row *row,
                     const struct weft_table_view *view)
{
    row->clock = view->clock;
    table_hot_restore(table, row, view->count);
    memcpy(table_weights(row), view->weights, sizeof(float) * table->spec.dim);
    memcpy(table_slots(table, row), view->state, sizeof(float) * weft_table_state_floats(table));
    if (view->sums != NULL) {
        memcpy(table_sums(table, row), view->sums, sizeof(float) * weft_table_sums_floats(table));
        table_touch(table, row);
    }
}

weft_status weft_table_restore(struct weft_table *table, const struct weft_table_view *view)
{
    uint64_t hash = weft_table_hash(table, view->id);
    if ((view->sums != NULL && weft_table_sums_floats(table) == 0) ||
        !weft_table_owns(table, view->id)) {
        return WEFT_INVALID;
    }
    struct weft_table_row *row = weft_table_find_hashed(table, view->id, hash);
    if (row != NULL && !table_is_dense(table)) {
        return WEFT_EXISTS;
    }
    if (row == NULL && table->rows < capacity(table)) {
        /* Without eviction, which could remove rows that were just restored. */
        bool full = false;
        row = weft_table_obtain_hashed(table, view->id, hash, false, false, &full);
    }
    if (row == NULL) {
        return WEFT_NOMEM;
    }
    row_fill(table, row, view);
    return WEFT_OK;
}
