#include "ml/batch.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Where a column was found. The two are read together, in the order of the data, so they share a
 * cache line. */
struct meeting {
    uint32_t generation; /* of the last build in which the column occurred */
    uint32_t order;      /* in that build: 0 = the first distinct column */
};

/* Memory reused by all batches. Columns are the feature numbers of the data set; `generation`
 * marks those found in the current build, so that nothing needs clearing between batches. */
struct weft_ml_batch_memory {
    struct meeting *met; /* (feature_count,) */
    uint32_t generation;

    uint32_t *rows;
    uint32_t row_capacity;
    uint32_t *local;
    uint64_t nonzero_capacity;
    uint64_t *ids; /* the next three share id_capacity */
    uint32_t *columns;
    uint32_t *sort_space;
    uint32_t id_capacity;
};

weft_status weft_ml_batch_init(struct weft_ml_batch *batch, const struct weft_ml_dataset *dataset)
{
    struct weft_ml_batch_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return WEFT_NOMEM;
    }
    size_t count = weft_max_u64(dataset->feature_count, 1);
    memory->met = calloc(count, sizeof(*memory->met));
    *batch = (struct weft_ml_batch){.dataset = dataset, .memory = memory};
    if (memory->met == NULL) {
        weft_ml_batch_fini(batch);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_ml_batch_fini(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    if (memory != NULL) {
        free(memory->met);
        free(memory->rows);
        free(memory->local);
        free(memory->ids);
        free(memory->columns);
        free(memory->sort_space);
        free(memory);
    }
    *batch = (struct weft_ml_batch){0};
}

/* Free and reallocate: the old contents are not needed. */
static bool renew(void *array_p, uint64_t count, size_t element_bytes)
{
    void *old = NULL;
    memcpy(&old, array_p, sizeof(old));
    free(old);
    void *array = calloc(count, element_bytes);
    memcpy(array_p, &array, sizeof(array));
    return array != NULL;
}

static bool reserve(struct weft_ml_batch_memory *memory, uint32_t rows, uint64_t nonzeros,
                    uint32_t ids)
{
    if (rows > memory->row_capacity) {
        memory->row_capacity = 0;
        if (!renew(&memory->rows, rows, sizeof(*memory->rows))) {
            return false;
        }
        memory->row_capacity = rows;
    }
    if (nonzeros > memory->nonzero_capacity) {
        memory->nonzero_capacity = 0;
        nonzeros += nonzeros / 2; /* batches differ slightly; avoids reallocation for each */
        if (!renew(&memory->local, nonzeros, sizeof(*memory->local))) {
            return false;
        }
        memory->nonzero_capacity = nonzeros;
    }
    if (ids > memory->id_capacity) {
        memory->id_capacity = 0;
        if (!renew(&memory->ids, ids, sizeof(*memory->ids)) ||
            !renew(&memory->columns, ids, sizeof(*memory->columns)) ||
            !renew(&memory->sort_space, ids, sizeof(*memory->sort_space))) {
            return false;
        }
        memory->id_capacity = ids;
    }
    return true;
}

/* Start a new generation for each build; 0 is never used. */
static void next_generation(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    memory->generation++;
    if (memory->generation == 0) {
        memset(memory->met, 0, batch->dataset->feature_count * sizeof(*memory->met));
        memory->generation = 1;
    }
}

/* The distinct columns of the rows, in the order of their first appearance; `local` is filled with
 * numbers in this order. */
static uint32_t collect_columns(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    const struct weft_ml_dataset *set = batch->dataset;
    uint32_t *local = memory->local;
    uint32_t count = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint64_t end = set->row_begin[memory->rows[r] + 1];
        for (uint64_t i = set->row_begin[memory->rows[r]]; i < end; i++) {
            uint32_t column = set->columns[i];
            struct meeting *met = &memory->met[column];
            if (met->generation != memory->generation) {
                *met = (struct meeting){.generation = memory->generation, .order = count};
                memory->columns[count] = column;
                count++;
            }
            *local++ = met->order;
        }
    }
    return count;
}

/* Least-significant-digit radix sort, only as many digits as `limit` has. A comparison sort here
 * costs several times the gradient itself. */
static void sort_columns(uint32_t *columns, uint32_t *space, uint32_t count, uint32_t limit)
{
    enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
    uint32_t *from = columns;
    uint32_t *to = space;
    for (uint32_t shift = 0; shift < 32 && (limit >> shift) != 0; shift += DIGIT_BITS) {
        uint32_t begin[DIGITS + 1] = {0};
        for (uint32_t i = 0; i < count; i++) {
            begin[((from[i] >> shift) & (DIGITS - 1)) + 1]++;
        }
        for (uint32_t d = 0; d < DIGITS; d++) {
            begin[d + 1] += begin[d];
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t digit = (from[i] >> shift) & (DIGITS - 1);
            to[begin[digit]] = from[i];
            begin[digit]++;
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != columns) {
        memcpy(columns, from, count * sizeof(*columns));
    }
}

/* The order of first appearance becomes that of the sorted columns. */
static void renumber_local(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    uint32_t *sorted_of = memory->sort_space; /* no longer needed for sorting */
    for (uint32_t k = 0; k < batch->id_count; k++) {
        sorted_of[memory->met[memory->columns[k]].order] = k;
    }
    for (uint64_t i = 0; i < batch->nonzero_count; i++) {
        memory->local[i] = sorted_of[memory->local[i]];
    }
}

static void select_columns(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    next_generation(batch);
    batch->id_count = collect_columns(batch);
    sort_columns(memory->columns, memory->sort_space, batch->id_count,
                 batch->dataset->feature_count);
    renumber_local(batch);
}

/* All columns of the data set, which are sorted already. */
static void all_columns(struct weft_ml_batch *batch)
{
    struct weft_ml_batch_memory *memory = batch->memory;
    const struct weft_ml_dataset *set = batch->dataset;
    for (uint32_t c = 0; c < set->feature_count; c++) {
        memory->columns[c] = c;
    }
    batch->id_count = set->feature_count;
    uint32_t *local = memory->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint64_t begin = set->row_begin[memory->rows[r]];
        uint64_t count = set->row_begin[memory->rows[r] + 1] - begin;
        if (count > 0) {
            memcpy(local, set->columns + begin, count * sizeof(*local));
        }
        local += count;
    }
}

static weft_status build(struct weft_ml_batch *batch, const uint32_t *rows, uint32_t row_count,
                         bool is_whole)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t nonzeros = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        WEFT_ASSERT(rows[r] < set->row_count);
        nonzeros += set->row_begin[rows[r] + 1] - set->row_begin[rows[r]];
    }
    struct weft_ml_batch_memory *memory = batch->memory;
    batch->row_count = 0;
    batch->id_count = 0;
    batch->nonzero_count = 0;
    uint32_t ids_max =
        is_whole ? set->feature_count : (uint32_t)weft_min_u64(nonzeros, set->feature_count);
    if (!reserve(memory, row_count, nonzeros, ids_max)) {
        return WEFT_NOMEM;
    }
    if (row_count > 0) {
        memcpy(memory->rows, rows, row_count * sizeof(*rows));
    }
    batch->row_count = row_count;
    batch->nonzero_count = nonzeros;
    if (is_whole) {
        all_columns(batch);
    } else {
        select_columns(batch);
    }
    for (uint32_t k = 0; k < batch->id_count; k++) {
        memory->ids[k] = set->feature_ids[memory->columns[k]];
    }
    batch->rows = memory->rows;
    batch->ids = memory->ids;
    batch->columns = memory->columns;
    batch->local = memory->local;
    return WEFT_OK;
}

weft_status weft_ml_batch_build(struct weft_ml_batch *batch, const uint32_t *rows,
                                uint32_t row_count)
{
    return build(batch, rows, row_count, false);
}

weft_status weft_ml_batch_build_whole(struct weft_ml_batch *batch, const uint32_t *rows,
                                      uint32_t row_count)
{
    return build(batch, rows, row_count, true);
}
