/* Applies gradients to rows. One indirect call per block; the loop over its floats is
 * vectorized. */
#include "base/assert.h"
#include "base/prefetch.h"
#include "ps/table_internal.h"

#include <string.h>

enum {
    PREFETCH_ROWS = 8, /* prefetch distance, in rows */
    SPAN = 16, /* rows after which the loop tests whether one of them has reached the threshold of
                * ps/hot.h */
    SUMS_PIECE = 256, /* rows that are obtained, then applied */
};

void weft_table_set_averaged(struct weft_table *table, uint32_t workers)
{
    table->averaged = workers > 0 ? workers : 1;
}

void weft_table_set_now(struct weft_table *table, uint32_t now)
{
    WEFT_ASSERT(now >= table->now);
    table->now = now;
}

void weft_table_set_newest(struct weft_table *table, uint32_t newest)
{
    table->newest = newest > table->newest ? newest : table->newest;
}

uint32_t weft_table_newest(const struct weft_table *table)
{
    return table->newest > table->now ? table->newest : table->now;
}

float weft_table_fresh(const struct weft_table *table, uint32_t clock)
{
    return weft_optimizer_fresh(weft_table_newest(table), clock);
}

void weft_table_begin_sums(struct weft_table *table, float fresh)
{
    table->fresh = fresh;
    if (table->spec.eviction == WEFT_EVICTION_TTL) {
        weft_table_sweep(table);
    }
}

void weft_table_begin(struct weft_table *table, uint32_t clock)
{
    weft_table_begin_sums(table, weft_table_fresh(table, clock));
}

static inline void note_use(struct weft_table *table, struct weft_table_row *row, uint32_t block)
{
    row->clock = table->now;
    if (block == 0) {
        row->count += row->count < UINT32_MAX;
        table->hot.updates++;
        table_hot_look(table, row);
    }
}

static uint32_t used_of(const struct weft_table *table, uint32_t block)
{
    uint32_t left = table->spec.dim - block * table->block_floats;
    return left < table->block_floats ? left : table->block_floats;
}

void weft_table_accumulate(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                           const float *gradient)
{
    uint32_t used = used_of(table, block);
    if (table_is_cut(table)) {
        /* note_use changes the row now, before the step, so a checkpoint or transfer in progress
         * must copy the row here. This also spreads the copies over the clock. */
        table_row_changes(table, row);
    }
    float *restrict sums = table_sums(table, row) + (size_t)block * table->block_floats;
    const float *restrict add = gradient;
    for (uint32_t i = 0; i < used; i++) {
        sums[i] += add[i];
    }
    if (table->counts) {
        table_counts(table, row)[block] += 1;
    }
    note_use(table, row, block);
    table_touch(table, row);
}

/* Returns false if the table's own optimizer must do the step. */
static bool step_by_hook(const struct weft_table *table, struct weft_table_row *row, uint32_t block,
                         const float *sums, float divisor)
{
    float gradient[WEFT_RPC_BLOCK_FLOATS];
    const uint32_t column = block * table->block_floats;
    const struct weft_row_step step = {
        .id = row->id,
        .table = table->number,
        .column = column,
        .count = used_of(table, block),
        .gradient = gradient,
        .weights = table_weights(row) + column,
        .slots = table_slots(table, row) + column,
        .slots_count = table->optimizer->slots,
        .stride = table->spec.dim,
    };
    for (uint32_t i = 0; i < step.count; i++) {
        gradient[i] = sums[i] / divisor;
    }
    return table->hooks->step(table->hooks->arg, &step);
}

static inline bool has_step_hook(const struct weft_table *table)
{
    return table->hooks != NULL && table->hooks->step != NULL;
}

static void step_unmeasured(const struct weft_table *table, struct weft_table_row *row,
                            uint32_t block, const float *sums, float divisor)
{
    uint32_t column = block * table->block_floats;
    if (__builtin_expect(has_step_hook(table), 0) &&
        step_by_hook(table, row, block, sums, divisor)) {
        return;
    }
    /* If the optimizer has no slots or steps, the pointer refers to the next field of the row and
     * is not used. */
    const struct weft_optimizer_block work = {
        .weights = table_weights(row) + column,
        .slots = table_slots(table, row) + column,
        .steps = table_steps(table, row) + (size_t)block * table->optimizer->steps,
        .sums = sums,
        .stride = table->spec.dim,
        .count = used_of(table, block),
        .divisor = divisor,
        .fresh = table->fresh,
    };
    table->optimizer->step(&table->spec, &work);
}

static void step_block(const struct weft_table *table, struct weft_table_row *row, uint32_t block,
                       const float *sums, float divisor)
{
    float before[WEFT_RPC_BLOCK_FLOATS];
    const float *weights = table_weights(row) + block * table->block_floats;
    const uint32_t used = used_of(table, block);
    if (__builtin_expect(table->divergence == NULL, 1)) {
        step_unmeasured(table, row, block, sums, divisor);
        return;
    }
    memcpy(before, weights, used * sizeof(*before));
    step_unmeasured(table, row, block, sums, divisor);
    weft_divergence_add(table->divergence, table_row_number(row),
                        table_squares(before, weights, used));
}

/* Divisor of a gradient that is applied immediately (ssp, asp). With average = contributors it is
 * 1, because there is one contributor. */
static float divisor_at_once(const struct weft_table *table)
{
    return weft_table_average(&table->spec) == WEFT_AVERAGE_WORKERS ? (float)table->averaged : 1;
}

void weft_table_step(struct weft_table *table, struct weft_table_row *row, uint32_t block,
                     const float *gradient)
{
    table_row_changes(table, row);
    step_block(table, row, block, gradient, divisor_at_once(table));
    note_use(table, row, block);
}

/* ---- a chunk --------------------------------------------------------------------------------- */

/* NaN becomes 0, other values are limited to [-most, most]. Returns true if all were finite. */
static bool clip(float *gradient, uint32_t count, float most)
{
    bool finite = true;
    for (uint32_t i = 0; i < count; i++) {
        float g = gradient[i];
        finite &= g - g == 0;
        g = g > most ? most : g;
        g = g < -most ? -most : g;
        gradient[i] = g == g ? g : 0;
    }
    return finite;
}

static void prefetch_row(const struct weft_table *table, const struct weft_table_row *row)
{
    for (uint32_t at = 0; row != NULL && at < table->row_bytes && at < 256; at += 64) {
        weft_prefetch_to_write((const uint8_t *)row + at);
    }
}

uint32_t weft_table_apply_any(struct weft_table *table, struct weft_table_row *const *rows,
                              uint32_t first, uint32_t count, const uint8_t *blocks)
{
    size_t block_bytes = (size_t)table->block_floats * sizeof(float);
    bool clips = table->spec.not_finite == WEFT_NOT_FINITE_CLIP;
    bool adds = table->spec.mode == WEFT_TABLE_BSP;
    uint32_t block = first % table->blocks, applied = 0;
    for (uint32_t i = 0; i < count; i++, blocks += block_bytes) {
        /* A copy, because the receive buffer is not aligned for floats. */
        float gradient[WEFT_RPC_BLOCK_FLOATS];
        if (i + PREFETCH_ROWS < count) {
            prefetch_row(table, rows[i + PREFETCH_ROWS]);
        }
        if (rows[i] != NULL) {
            memcpy(gradient, blocks, block_bytes);
            if (clips) {
                table->counters.not_finite +=
                    !clip(gradient, used_of(table, block), table->spec.clip);
            }
            if (adds) {
                weft_table_accumulate(table, rows[i], block, gradient);
            } else {
                weft_table_step(table, rows[i], block, gradient);
            }
            applied++;
        }
        block = block + 1 == table->blocks ? 0 : block + 1;
    }
    return applied;
}

/* Called when at least one of these rows has reached the threshold of ps/hot.h, which is rare, so
 * it is not in the loop. Only these SPAN rows are examined: in a young table about 15 of 2,000 rows
 * reach it, and examining the whole chunk took a fifth of the time. */
static void look_at_all(struct weft_table *table, struct weft_table_row *const *rows,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] != NULL) {
            table_hot_look(table, rows[i]);
        }
    }
}

/* The usual tables: rows of one block, sparse, no clipping; gradients are applied immediately by
 * SGD, or added to the sums (bsp). For the usual lengths the compiler knows the count of the inner
 * loop; what is computed is the same, bit for bit, as in weft_table_apply_any
 * (tests/unit/test_ps_index.c). */
#define APPLY_PLAIN(name, dim_known)                                                               \
    static uint32_t name(struct weft_table *table, struct weft_table_row *const *rows,             \
                         uint32_t count, const uint8_t *blocks, bool adds)                         \
    {                                                                                              \
        const uint32_t dim = (dim_known) == 0 ? table->spec.dim : (dim_known);                     \
        const uint32_t at = adds ? table->sums_at : 0, now = table->now;                           \
        const float rate = table->spec.learning_rate, divisor = divisor_at_once(table);            \
        const bool counts = adds && table->counts;                                                 \
        const bool tracked = table->dirty_set != NULL && (!adds || table_is_cut(table));           \
        uint32_t applied = 0;                                                                      \
        for (uint32_t from = 0, to; from < count; from = to) {                                     \
            const uint64_t hot_from = table->hot.threshold;                                        \
            uint32_t reached = 0;                                                                  \
            to = count - from > SPAN ? from + SPAN : count;                                        \
            for (uint32_t i = from; i < to; i++, blocks += sizeof(float) * dim) {                  \
                struct weft_table_row *row = rows[i];                                              \
                if (i + PREFETCH_ROWS < count) {                                                   \
                    prefetch_row(table, rows[i + PREFETCH_ROWS]);                                  \
                }                                                                                  \
                if (row == NULL) {                                                                 \
                    continue;                                                                      \
                }                                                                                  \
                if (tracked) {                                                                     \
                    table_row_changes(table, row);                                                 \
                }                                                                                  \
                float *restrict values = table_weights(row) + at;                                  \
                float gradient[(dim_known) == 0 ? WEFT_RPC_BLOCK_FLOATS : (dim_known)];            \
                memcpy(gradient, blocks, sizeof(float) * dim);                                     \
                if (adds) {                                                                        \
                    for (uint32_t k = 0; k < dim; k++) {                                           \
                        values[k] += gradient[k];                                                  \
                    }                                                                              \
                    if (counts) {                                                                  \
                        values[dim] += 1; /* the count follows the sums: one block */              \
                    }                                                                              \
                    table_touch(table, row);                                                       \
                } else {                                                                           \
                    for (uint32_t k = 0; k < dim; k++) {                                           \
                        float g = gradient[k] / divisor;                                           \
                        values[k] -= rate * g;                                                     \
                    }                                                                              \
                }                                                                                  \
                row->clock = now;                                                                  \
                row->count += row->count < UINT32_MAX;                                             \
                reached |= table_hot_reaches(row, hot_from);                                       \
                applied++;                                                                         \
            }                                                                                      \
            if (reached) {                                                                         \
                look_at_all(table, rows + from, to - from);                                        \
            }                                                                                      \
        }                                                                                          \
        table->hot.updates += applied;                                                             \
        return applied;                                                                            \
    }

APPLY_PLAIN(apply_plain_1, 1)
APPLY_PLAIN(apply_plain_16, 16)
APPLY_PLAIN(apply_plain_any, 0)

static bool is_plain(const struct weft_table *table)
{
    bool adds = table->spec.mode == WEFT_TABLE_BSP;
    return table->blocks == 1 && !table_is_dense(table) &&
           table->spec.not_finite != WEFT_NOT_FINITE_CLIP &&
           (adds || (table->spec.optimizer == WEFT_OPTIMIZER_SGD && !has_step_hook(table) &&
                     table->divergence == NULL));
}

static uint32_t apply_plain(struct weft_table *table, struct weft_table_row *const *rows,
                            uint32_t count, const uint8_t *blocks)
{
    bool adds = table->spec.mode == WEFT_TABLE_BSP;
    switch (table->spec.dim) {
    case 1:
        return apply_plain_1(table, rows, count, blocks, adds);
    case 16:
        return apply_plain_16(table, rows, count, blocks, adds);
    default:
        return apply_plain_any(table, rows, count, blocks, adds);
    }
}

uint32_t weft_table_apply(struct weft_table *table, struct weft_table_row *const *rows,
                          uint32_t first, uint32_t count, const uint8_t *blocks)
{
    return is_plain(table) ? apply_plain(table, rows, count, blocks)
                           : weft_table_apply_any(table, rows, first, count, blocks);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static bool sums_obtain(struct weft_table *table, const uint64_t *ids, uint32_t count,
                        uint64_t *hashes, struct weft_table_row **rows)
{
    /* a local copy: the compiler may assume that no store changes it */
    const struct weft_hash_key key = table->index_key;
    for (uint32_t i = 0; i < count && !table_is_dense(table); i++) {
        hashes[i] = weft_hash_keyed(&key, ids[i]);
    }
    return weft_table_obtain_chunk(table, ids, hashes, 0, count, rows);
}

/* The gradients in the sum of a row beyond its first, which weft_table_apply has counted. */
static void row_counts(struct weft_table *table, struct weft_table_row *row, uint32_t more)
{
    if (table->spec.mode == WEFT_TABLE_BSP && table->counts) {
        *table_counts(table, row) += (float)more;
    }
    row->count += more < UINT32_MAX - row->count ? more : UINT32_MAX - row->count;
    table->hot.updates += more;
    table_hot_look(table, row);
}

/* The same of four rows, with `more` of each in 16 bits. Returns their sum. */
static uint64_t rows_count(struct weft_table *table, struct weft_table_row *const *rows,
                           uint64_t more)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; more != 0; i++, more >>= 16) {
        const uint32_t of_row = (uint16_t)more;
        if (of_row != 0) {
            row_counts(table, rows[i], of_row);
            sum += of_row;
        }
    }
    return sum;
}

static uint64_t sums_apply(struct weft_table *table, struct weft_table_row *const *rows,
                           uint32_t count, const uint8_t *sums, const uint8_t *counts)
{
    const uint64_t ones = UINT64_C(0x0001000100010001);
    uint64_t gradients = weft_table_apply(table, rows, 0, count, sums), four = ones;
    WEFT_ASSERT(table->blocks == 1 && gradients == count);
    /* Four at a time: most rows of a sum have one gradient. No count is 0, so the subtraction
     * borrows nothing. */
    for (; count >= 4; count -= 4, rows += 4, counts += sizeof(four)) {
        memcpy(&four, counts, sizeof(four));
        if (four != ones) {
            gradients += rows_count(table, rows, four - ones);
        }
    }
    four = ones;
    memcpy(&four, counts, count * sizeof(uint16_t));
    return gradients + rows_count(table, rows, four - ones);
}

/* Does not change between obtain_sums and apply_sums: there is less room afterwards only if there
 * was too little before. */
static bool sums_fit(const struct weft_table *table, uint32_t count)
{
    return !table_is_dense(table) && weft_table_room(table) >= count;
}

bool weft_table_obtain_sums(struct weft_table *table, const uint64_t *ids, uint32_t count,
                            uint64_t *hashes, struct weft_table_row **rows)
{
    if (sums_fit(table, count)) {
        return true;
    }
    weft_table_want_rows(table, count); /* for the next sums of this length */
    return sums_obtain(table, ids, count, hashes, rows);
}

uint64_t weft_table_apply_sums(struct weft_table *table, const uint64_t *ids, uint32_t count,
                               const uint8_t *sums, const uint8_t *counts, uint64_t *hashes,
                               struct weft_table_row **rows)
{
    const size_t block_bytes = sizeof(float) * table->spec.dim;
    uint64_t gradients = 0;
    if (!sums_fit(table, count)) {
        return sums_apply(table, rows, count, sums, counts);
    }
    for (uint32_t from = 0, n; from < count; from += n) {
        n = count - from > SUMS_PIECE ? SUMS_PIECE : count - from;
        const bool all = sums_obtain(table, ids + from, n, hashes, rows);
        WEFT_ASSERT(all);
        gradients += sums_apply(table, rows, n, sums + from * block_bytes,
                                counts + from * sizeof(uint16_t));
    }
    return gradients;
}

/* ---- the end of a clock ---------------------------------------------------------------------- */

/* With average = contributors a block's step uses the mean of its gradients; a block without
 * gradients is not changed. */
static void step_row(struct weft_table *table, struct weft_table_row *row)
{
    float *sums = table_sums(table, row);
    const float *counts = table_counts(table, row);
    for (uint32_t block = 0; block < table->blocks; block++) {
        float divisor = table->counts ? counts[block] : (float)table->step_averaged;
        if (divisor > 0) {
            step_block(table, row, block, sums + (size_t)block * table->block_floats, divisor);
        }
    }
    memset(sums, 0, sizeof(float) * weft_table_sums_floats(table));
}

void weft_table_step_begin(struct weft_table *table)
{
    WEFT_ASSERT(table->step_left == 0);
    table->step_left = table->touched_count;
    table->step_next = table->touched_head;
    table->step_at = 0;
    /* The list is in random order, and each row must be loaded before the next one is known. If
     * more than a quarter of the rows are in it, scan all rows instead. */
    table->step_walks = table->touched_count > table->rows_begun / 4;
    table->step_averaged =
        weft_table_average(&table->spec) == WEFT_AVERAGE_WORKERS ? table->averaged : 1;
    table->touched_head = TABLE_TOUCHED_LAST;
    table->touched_count = 0;
}

bool weft_table_stepping(const struct weft_table *table)
{
    return table->step_left > 0;
}

/* The next row to be stepped. Precondition: step_left > 0. */
static struct weft_table_row *step_next_row(struct weft_table *table)
{
    struct weft_table_row *row;
    if (table->step_walks) {
        do {
            row = table_row_at(table, table->step_at++);
        } while ((row->number & TABLE_ROW_LIVE) == 0 || row->touched_next == 0);
        return row;
    }
    row = table_row_at(table, table->step_next - 1);
    table->step_next = row->touched_next;
    if (table->step_next != TABLE_TOUCHED_LAST) {
        prefetch_row(table, table_row_at(table, table->step_next - 1));
    }
    return row;
}

uint32_t weft_table_step_some(struct weft_table *table, uint32_t max)
{
    uint32_t count = table->step_left < max ? table->step_left : max;
    table->fresh = 1;
    for (uint32_t i = 0; i < count; i++) {
        struct weft_table_row *row = step_next_row(table);
        table_row_changes(table, row);
        step_row(table, row);
        row->touched_next = 0;
    }
    table->step_left -= count;
    return count;
}

uint32_t weft_table_step_all(struct weft_table *table)
{
    weft_table_step_begin(table);
    return weft_table_step_some(table, UINT32_MAX);
}
