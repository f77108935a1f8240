/* A row in its slab:
 *
 *     struct weft_table_row (24 bytes) | weights (dim) | slots (slots x dim) | steps (blocks x steps)
 *                                      | sums (dim, BSP)
 *
 * The index is linear probing over u64 entries {high half of the hash, row number + 1}; comparing
 * the half hash first saves the cache miss of looking into a row that is not the one.
 */
#include "ps/table.h"

#include "base/assert.h"
#include "base/init.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct weft_table_row {
    uint64_t id;
    uint32_t number;
    uint32_t touched_next; /* 0: not touched; LAST; else the next one's number + 1 */
    uint32_t clock;        /* as in weft_table_view, like the next */
    uint32_t count;
};

static_assert(sizeof(struct weft_table_row) == 24, "rows follow their header without a gap");

#define TOUCHED_LAST UINT32_MAX

static uint32_t row_bytes_of(uint32_t weights, uint32_t state, uint32_t sums)
{
    uint32_t bytes = (uint32_t)sizeof(struct weft_table_row) + 4 * (weights + state + sums);
    return (bytes + 7) / 8 * 8;
}

/* The longest row of dim_max floats: every slot, the shortest blocks, and sums. */
static uint32_t row_bytes_max(uint32_t dim_max)
{
    uint32_t blocks = (dim_max + WEFT_RPC_BLOCK_FLOATS_MIN - 1) / WEFT_RPC_BLOCK_FLOATS_MIN;
    return row_bytes_of(dim_max,
                        WEFT_OPTIMIZER_SLOTS_MAX * dim_max + WEFT_OPTIMIZER_STEPS_MAX * blocks,
                        dim_max);
}

/* The largest power of two of rows that fits, at least one. */
static uint32_t slab_rows_log2_of(uint64_t slab_bytes, uint32_t row_bytes)
{
    uint32_t log2 = 0;
    while (log2 < 30 && ((uint64_t)row_bytes << (log2 + 1)) <= slab_bytes) {
        log2++;
    }
    return log2;
}

static uint32_t index_size(uint32_t rows_max)
{
    uint64_t size = 4;
    while (size * 2 < (uint64_t)rows_max * 3) {
        size *= 2;
    }
    return (uint32_t)size;
}

weft_status weft_table_init(struct weft_table *table, uint32_t rows_max, uint32_t dim_max,
                            uint64_t slab_bytes)
{
    if (rows_max == 0 || rows_max > WEFT_RPC_ROWS_MAX || dim_max == 0 ||
        dim_max > WEFT_RPC_DIM_MAX || slab_bytes == 0 || slab_bytes > UINT64_C(1) << 40) {
        return WEFT_INVALID;
    }
    uint32_t fewest_log2 = slab_rows_log2_of(slab_bytes, row_bytes_max(dim_max));
    uint32_t slots = index_size(rows_max);
    *table = (struct weft_table){
        .rows_max = rows_max,
        .slab_bytes = slab_bytes,
        .index_mask = slots - 1,
        .slabs_max = (uint32_t)weft_div_ceil_u64(rows_max, UINT64_C(1) << fewest_log2),
        .spec.dim = dim_max, /* until declared: the limit */
    };
    table->index = calloc(slots, sizeof(*table->index));
    table->slabs = calloc(table->slabs_max, sizeof(*table->slabs));
    if (table->index == NULL || table->slabs == NULL) {
        weft_table_fini(table);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_table_fini(struct weft_table *table)
{
    free(table->index);
    free(table->slabs);
    *table = (struct weft_table){0};
}

weft_status weft_table_declare(struct weft_table *table, const struct weft_table_spec *spec)
{
    WEFT_ASSERT(!table->declared);
    if (!weft_table_spec_valid(spec) || spec->dim > table->spec.dim) {
        return WEFT_INVALID;
    }
    if (spec->kind != WEFT_TABLE_SPARSE || spec->admission != WEFT_ADMISSION_ALL ||
        spec->eviction != WEFT_EVICTION_NONE || spec->not_finite != WEFT_NOT_FINITE_REJECT ||
        spec->rows_max != 0 || spec->bytes_max != 0) {
        return WEFT_UNSUPPORTED;
    }
    table->spec = *spec;
    table->optimizer = weft_optimizer_at(spec->optimizer);
    table->row_bytes =
        row_bytes_of(spec->dim, weft_table_state_floats(table), weft_table_sums_floats(table));
    table->slab_rows_log2 = slab_rows_log2_of(table->slab_bytes, table->row_bytes);
    table->touched_head = TOUCHED_LAST;
    table->now = 1;
    table->fresh = 1;
    table->declared = true;
    return WEFT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t capacity(const struct weft_table *table)
{
    return weft_min_u64((uint64_t)table->slab_count << table->slab_rows_log2, table->rows_max);
}

bool weft_table_wants_slab(const struct weft_table *table, size_t *bytes_p)
{
    uint64_t slab_rows = UINT64_C(1) << table->slab_rows_log2;
    if (!table->declared || capacity(table) == table->rows_max ||
        (capacity(table) - table->rows) * 2 >= slab_rows) {
        return false;
    }
    *bytes_p = (size_t)table->row_bytes << table->slab_rows_log2;
    return true;
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
    WEFT_ASSERT(table->slab_count < table->slabs_max);
    table->slabs[table->slab_count++] = memory;
    return WEFT_OK;
}

void *weft_table_take_slab(struct weft_table *table)
{
    if (table->slab_count == 0) {
        return NULL;
    }
    return table->slabs[--table->slab_count];
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct weft_table_row *row_at(const struct weft_table *table, uint32_t number)
{
    uint8_t *slab = table->slabs[number >> table->slab_rows_log2];
    uint32_t place = number & ((UINT32_C(1) << table->slab_rows_log2) - 1);
    return (struct weft_table_row *)(slab + (size_t)place * table->row_bytes);
}

static float *row_weights(const struct weft_table_row *row)
{
    return (float *)(uintptr_t)(row + 1);
}

static float *row_slots(const struct weft_table *table, const struct weft_table_row *row)
{
    return row_weights(row) + table->spec.dim;
}

static float *row_steps(const struct weft_table *table, const struct weft_table_row *row)
{
    return row_slots(table, row) + (size_t)table->spec.dim * table->optimizer->slots;
}

static float *row_sums(const struct weft_table *table, const struct weft_table_row *row)
{
    return row_slots(table, row) + weft_table_state_floats(table);
}

uint32_t weft_table_state_floats(const struct weft_table *table)
{
    return table->spec.dim * table->optimizer->slots +
           weft_table_blocks(&table->spec) * table->optimizer->steps;
}

uint32_t weft_table_sums_floats(const struct weft_table *table)
{
    return table->spec.mode == WEFT_TABLE_BSP ? table->spec.dim : 0;
}

/* The entry of id, or the empty one where it would go. There always is an empty one: 2/3 full at
 * most. */
static uint64_t *probe(const struct weft_table *table, uint64_t id, uint64_t hash)
{
    uint64_t high = hash >> 32 << 32;
    for (uint32_t at = (uint32_t)hash & table->index_mask;; at = (at + 1) & table->index_mask) {
        uint64_t *entry = &table->index[at];
        if ((uint32_t)*entry == 0) {
            return entry;
        }
        if ((*entry >> 32 << 32) == high && row_at(table, (uint32_t)*entry - 1)->id == id) {
            return entry;
        }
    }
}

struct weft_table_row *weft_table_find(const struct weft_table *table, uint64_t id)
{
    uint32_t number = (uint32_t)*probe(table, id, weft_mix64(id));
    return number == 0 ? NULL : row_at(table, number - 1);
}

/* Weights that a row begins with. */
static void fill_initial(const struct weft_table_spec *spec, uint64_t id, float *out)
{
    uint32_t zeros = spec->init_scale > 0 ? spec->init_skip : spec->dim;
    memset(out, 0, sizeof(*out) * zeros);
    for (uint32_t column = zeros; column < spec->dim; column++) {
        out[column] = weft_init_value(spec->init_seed, id, column, spec->init_scale);
    }
}

static void row_clear(const struct weft_table *table, struct weft_table_row *row, uint64_t id,
                      uint32_t number)
{
    memset(row, 0, table->row_bytes);
    row->id = id;
    row->number = number;
    row->clock = table->now;
    fill_initial(&table->spec, id, row_weights(row));
    table->optimizer->init(&table->spec, row_weights(row), row_slots(table, row), table->spec.dim,
                           table->spec.dim);
}

struct weft_table_row *weft_table_obtain(struct weft_table *table, uint64_t id)
{
    uint64_t hash = weft_mix64(id);
    uint64_t *entry = probe(table, id, hash);
    if ((uint32_t)*entry != 0) {
        return row_at(table, (uint32_t)*entry - 1);
    }
    if (table->rows == capacity(table)) {
        table->rows_refused++;
        return NULL;
    }
    uint32_t number = table->rows++;
    *entry = (hash >> 32 << 32) | (number + 1);
    struct weft_table_row *row = row_at(table, number);
    row_clear(table, row, id, number);
    return row;
}

const float *weft_table_weights(const struct weft_table *table, const struct weft_table_row *row)
{
    (void)table;
    return row_weights(row);
}

bool weft_table_read(const struct weft_table *table, uint64_t id, float *out)
{
    const struct weft_table_row *row = weft_table_find(table, id);
    if (row == NULL) {
        fill_initial(&table->spec, id, out);
        return false;
    }
    memcpy(out, row_weights(row), sizeof(*out) * table->spec.dim);
    return true;
}

/* ---- gradients ------------------------------------------------------------------------------- */

void weft_table_set_now(struct weft_table *table, uint32_t now)
{
    WEFT_ASSERT(now >= table->now);
    table->now = now;
}

void weft_table_begin(struct weft_table *table, uint32_t clock)
{
    table->fresh = clock >= table->now ? 1 : (float)clock / (float)table->now;
}

static void note_use(const struct weft_table *table, struct weft_table_row *row, uint32_t block)
{
    row->clock = table->now;
    row->count += block == 0 && row->count < UINT32_MAX;
}

void weft_table_accumulate(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                           const float *gradient)
{
    uint32_t used = weft_table_block_used(&table->spec, block);
    float *sums = row_sums(table, row) + block * weft_table_block_floats(&table->spec);
    for (uint32_t i = 0; i < used; i++) {
        sums[i] += gradient[i];
    }
    note_use(table, row, block);
    if (row->touched_next == 0) {
        row->touched_next = table->touched_head;
        table->touched_head = row->number + 1;
    }
}

static void step_block(const struct weft_table *table, struct weft_table_row *row, uint32_t block,
                       const float *sums)
{
    uint32_t column = block * weft_table_block_floats(&table->spec);
    /* What an optimizer has no floats for points past the row's, and is not looked at. */
    const struct weft_optimizer_block work = {
        .weights = row_weights(row) + column,
        .slots = row_slots(table, row) + column,
        .steps = row_steps(table, row) + (size_t)block * table->optimizer->steps,
        .sums = sums,
        .stride = table->spec.dim,
        .count = weft_table_block_used(&table->spec, block),
        .divisor = (float)table->spec.workers,
        .fresh = table->fresh,
    };
    table->optimizer->step(&table->spec, &work);
}

void weft_table_step(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                     const float *gradient)
{
    step_block(table, row, block, gradient);
    note_use(table, row, block);
}

uint32_t weft_table_step_all(struct weft_table *table)
{
    uint32_t count = 0;
    uint32_t next = table->touched_head;
    uint32_t blocks = weft_table_blocks(&table->spec);
    uint32_t block_floats = weft_table_block_floats(&table->spec);
    table->fresh = 1;
    while (next != TOUCHED_LAST) {
        struct weft_table_row *row = row_at(table, next - 1);
        float *sums = row_sums(table, row);
        for (uint32_t block = 0; block < blocks; block++) {
            step_block(table, row, block, sums + (size_t)block * block_floats);
        }
        memset(sums, 0, sizeof(*sums) * table->spec.dim);
        next = row->touched_next;
        row->touched_next = 0;
        count++;
    }
    table->touched_head = TOUCHED_LAST;
    return count;
}

/* ---- all rows -------------------------------------------------------------------------------- */

bool weft_table_next(const struct weft_table *table, uint32_t *cursor,
                     struct weft_table_view *view_p)
{
    if (*cursor >= table->rows) {
        return false;
    }
    const struct weft_table_row *row = row_at(table, (*cursor)++);
    *view_p = (struct weft_table_view){
        .id = row->id,
        .clock = row->clock,
        .count = row->count,
        .weights = row_weights(row),
        .state = row_slots(table, row),
        .sums = row->touched_next == 0 ? NULL : row_sums(table, row),
    };
    return true;
}

weft_status weft_table_restore(struct weft_table *table, const struct weft_table_view *view)
{
    uint32_t sums = weft_table_sums_floats(table);
    if (view->sums != NULL && sums == 0) {
        return WEFT_INVALID;
    }
    if (weft_table_find(table, view->id) != NULL) {
        return WEFT_EXISTS;
    }
    struct weft_table_row *row = weft_table_obtain(table, view->id);
    if (row == NULL) {
        return WEFT_NOMEM;
    }
    row->clock = view->clock;
    row->count = view->count;
    memcpy(row_weights(row), view->weights, sizeof(float) * table->spec.dim);
    memcpy(row_slots(table, row), view->state, sizeof(float) * weft_table_state_floats(table));
    if (view->sums != NULL) {
        memcpy(row_sums(table, row), view->sums, sizeof(float) * sums);
        row->touched_next = table->touched_head;
        table->touched_head = row->number + 1;
    }
    return WEFT_OK;
}
