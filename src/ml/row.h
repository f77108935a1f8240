/* One parsed row on its way from a line parser (format.h) to the data set (dataset.h). */
#ifndef WEFT_ML_ROW_H
#define WEFT_ML_ROW_H

#include "ml/error.h"

/* The feature that every row has, with value 1: the intercept. It is in every batch, so its id is
 * one that fits 32 bits: messages whose ids all do carry them in half the bytes. A feature of the
 * data with that id gets WEFT_ML_BIAS_TWIN instead, which no reader produces; it is the largest id
 * that fits a signed 64-bit integer, so that files with signed keys can hold it. */
#define WEFT_ML_BIAS_ID ((uint64_t)UINT32_MAX)
#define WEFT_ML_BIAS_TWIN ((uint64_t)INT64_MAX)

struct weft_ml_row {
    uint64_t *ids; /* strictly ascending once the parser has returned */
    float *values; /* finite and not zero */
    uint32_t count;
    uint32_t capacity;
    uint8_t label;        /* 0 or 1 */
    float target;         /* formats with ratings: the rating, finite */
    uint32_t field_count; /* fields of the line where all lines must have the same; else 0 */
    uint64_t document;        /* lines of one document are one row; 0 = the line is a row */
    uint64_t lines_announced; /* by a header: so many lines that are rows follow; else 0 */
};

/* A zeroed row is empty and valid; memory grows to the longest row and is reused. */
void weft_ml_row_clear(struct weft_ml_row *row);
weft_status weft_ml_row_add(struct weft_ml_row *row, uint64_t id, float value,
                            struct weft_error *error);
void weft_ml_row_fini(struct weft_ml_row *row);

/* Sort by id and add up the values of equal ids (features that share a hash). */
void weft_ml_row_merge(struct weft_ml_row *row);

#endif
