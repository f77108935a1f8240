#include "ml/row.h"

#include "base/units.h"

#include <stdlib.h>

void weft_ml_row_clear(struct weft_ml_row *row)
{
    row->count = 0;
    row->label = 0;
    row->target = 0;
    row->field_count = 0;
    row->document = 0;
    row->lines_announced = 0;
}

static weft_status grow(struct weft_ml_row *row, struct weft_error *error)
{
    uint32_t capacity = row->capacity == 0 ? 128 : row->capacity * 2;
    uint64_t *ids = realloc(row->ids, capacity * sizeof(*ids));
    if (ids != NULL) {
        row->ids = ids;
    }
    float *values = realloc(row->values, capacity * sizeof(*values));
    if (values != NULL) {
        row->values = values;
    }
    if (ids == NULL || values == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a row of %u features", capacity);
    }
    row->capacity = capacity;
    return WEFT_OK;
}

weft_status weft_ml_row_add(struct weft_ml_row *row, uint64_t id, float value,
                            struct weft_error *error)
{
    /* The limit of the line length keeps the count far below 2^31, so doubling cannot overflow. */
    if (row->count == row->capacity) {
        weft_status status = grow(row, error);
        if (status != WEFT_OK) {
            return status;
        }
    }
    row->ids[row->count] = id;
    row->values[row->count] = value;
    row->count++;
    return WEFT_OK;
}

void weft_ml_row_fini(struct weft_ml_row *row)
{
    free(row->ids);
    free(row->values);
    *row = (struct weft_ml_row){0};
}

/* Shell sort with Ciura's gaps: rows sorted here have 80 to 300 entries. */
static void sort_by_id(struct weft_ml_row *row)
{
    static const uint32_t distances[] = {132, 57, 23, 10, 4, 1};
    for (size_t d = 0; d < WEFT_ARRAY_COUNT(distances); d++) {
        uint32_t distance = distances[d];
        for (uint32_t i = distance; i < row->count; i++) {
            uint64_t id = row->ids[i];
            float value = row->values[i];
            uint32_t at = i;
            for (; at >= distance && row->ids[at - distance] > id; at -= distance) {
                row->ids[at] = row->ids[at - distance];
                row->values[at] = row->values[at - distance];
            }
            row->ids[at] = id;
            row->values[at] = value;
        }
    }
}

void weft_ml_row_merge(struct weft_ml_row *row)
{
    sort_by_id(row);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        if (kept > 0 && row->ids[kept - 1] == row->ids[i]) {
            row->values[kept - 1] += row->values[i];
        } else {
            row->ids[kept] = row->ids[i];
            row->values[kept] = row->values[i];
            kept++;
        }
    }
    row->count = kept;
}
