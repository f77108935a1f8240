/* Tables of categorical features, fields separated by tabs: the layout of click logs.
 *
 *     tsv       label  (TAB category)+                at most 1,023 categories
 *     criteo    label  (TAB integer){13}  (TAB category){26}     Criteo's display-advertising sets
 *
 * The label is 0 or 1. There is no header. A field may be empty: the value is missing, which is
 * treated as a value. A category is any text of up to 256 bytes without a tab, compared byte by
 * byte (including blanks). An integer is decimal with an optional minus, below 2^63 in magnitude;
 * the feature is its bucket, which grows with its logarithm:
 *
 *     negative "-",   0 "0",   v >= 1   1 + 2 floor(log2 v) + (the bit below the highest one)
 *
 * that is, edges at 1, 2, 3, 4, 6, 8, 12, 16, 24, ... Column c (counted from 1, the label is 0)
 * gives the text "c=value" with the category or the bucket; its id is XXH64(text, seed 0) mod 2^32
 * and its value 1. The values of texts of one row with the same id are added. There are no crosses:
 * use a factorization machine.
 *
 * All rows of a file must have the same number of fields (checked by dataset.c). Similar data with
 * other columns or separators (Avazu's CSV) can be converted with awk: docs/MODELS.md.
 *
 * Not here: numbers as numbers, several categories in one field, headers.
 */
#ifndef WEFT_ML_TSV_H
#define WEFT_ML_TSV_H

#include "ml/format.h"

enum {
    WEFT_ML_TSV_HASH_BITS = 32,
    WEFT_ML_TSV_FIELDS_MAX = 1024, /* including the label */
    WEFT_ML_TSV_CATEGORY_BYTES_MAX = 256,
    WEFT_ML_CRITEO_INTEGERS = 13,
    WEFT_ML_CRITEO_CATEGORIES = 26,
};

/* See weft_ml_parse_fn. */
weft_status weft_ml_tsv_parse(const char *text, size_t bytes, uint64_t number,
                              struct weft_ml_row *row, struct weft_error *error, bool *is_row_p);
weft_status weft_ml_criteo_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p);

#endif
