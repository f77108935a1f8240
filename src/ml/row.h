/* A parsed row, passed from a line parser (format.h) to the data set (dataset.h). */
#ifndef WEFT_ML_ROW_H
#define WEFT_ML_ROW_H

#include "ml/error.h"

/* The bias (intercept): a feature of every row, with value 1. It is in every batch, so its id
 * fits in 32 bits: a message needs half the bytes per id if all its ids do. A feature of the
 * data with that id gets WEFT_ML_BIAS_TWIN instead, which no reader produces; it is the largest
 * signed 64-bit integer, so that files with signed keys can hold it. */
#define WEFT_ML_BIAS_ID ((uint64_t)UINT32_MAX)
#define WEFT_ML_BIAS_TWIN ((uint64_t)INT64_MAX)

struct weft_ml_row {
    uint64_t *ids; /* strictly ascending once the parser has returned */
    float *values; /* finite and not zero */
    uint32_t count;
    uint32_t capacity;
    uint8_t label;        /* 0 or 1 */
    float target;         /* formats with ratings: the rating, finite */
    uint32_t field_count; /* fields of the line if all lines must have the same number; else 0 */
    uint64_t document;    /* lines of one document are one row; 0 = the line is a row */
    uint64_t lines_announced; /* from a header: number of lines with rows that follow; else 0 */
};

/* A zeroed row is valid and empty; its memory grows to the longest row and is reused. */
void weft_ml_row_clear(struct weft_ml_row *row);
weft_status weft_ml_row_add(struct weft_ml_row *row, uint64_t id, float value,
                            struct weft_error *error);
void weft_ml_row_fini(struct weft_ml_row *row);

/* Sort by id and add the values of equal ids (features with the same hash). */
void weft_ml_row_merge(struct weft_ml_row *row);

#endif
