/* A data set in memory: sparse rows (CSR) with labels or targets, split into training and test
 * rows.
 *
 * A feature has two numbers: its id (u64, used by the parameter server), listed in ascending order
 * in `feature_ids`, and its column, the index in that list. Ascending columns are ascending ids, so
 * a process works on small integers and still pushes and pulls in sorted order. Every row ends with
 * the bias (row.h).
 *
 * The split: a row is a test row iff XXH64(its line without the line end, seed 0) mod 5 = 0. It
 * depends on the bytes of the line alone, so all processes and formats agree on it, and two equal
 * lines are always in the same part. If a row has several lines (docword.h), the hash is over the
 * digits of the document's number.
 */
#ifndef WEFT_ML_DATASET_H
#define WEFT_ML_DATASET_H

#include "ml/format.h"

enum { WEFT_ML_SPLIT_MODULUS = 5 };

struct weft_ml_dataset {
    bool has_ratings; /* every row is a user and an item, then the bias; see format.h */
    bool has_counts;  /* every row is a document, with a count for each of its words */
    uint32_t row_count;
    uint32_t feature_count; /* distinct ids, the bias included */
    uint64_t nonzero_count;

    uint64_t *row_begin; /* (row_count + 1,): row r is nonzeros row_begin[r] .. row_begin[r + 1) */
    uint32_t *columns;   /* (nonzero_count,): per row in ascending order of the data's ids (row.h
                          * describes the renamed id), then the bias */
    float *values;       /* (nonzero_count,): finite, not zero */
    uint8_t *labels;     /* (row_count,): 0 or 1 */
    float *targets;      /* (row_count,): the rating or, without ratings, the label */
    uint64_t *feature_ids; /* (feature_count,): strictly ascending */

    uint32_t *train_rows; /* (train_count,): row numbers in the order of the file */
    uint32_t *test_rows;  /* (test_count,): the same */
    uint32_t train_count;
    uint32_t test_count;
};

/* Read a whole file.
 *
 * Owns:    gives *dataset_p; end it with weft_ml_dataset_fini. Written only on success.
 * Errors:  WEFT_NOTFOUND, WEFT_IO, WEFT_NOMEM, WEFT_DATA (malformed, cut short, or without a single
 *          row); the text begins with "path:line: " for an error in a line, else with "path: ".
 * Thread:  any; a loaded data set is immutable, so all threads may share it.
 * Cost:    one pass over the bytes; memory proportional to the rows and nonzeros.
 */
weft_status weft_ml_dataset_load(const char *path, const struct weft_ml_format *format,
                                 struct weft_error *error, struct weft_ml_dataset *dataset_p);

/* The same from memory (plain or compressed); `name` replaces the path in messages. */
weft_status weft_ml_dataset_load_memory(const char *name, const void *bytes, size_t count,
                                        const struct weft_ml_format *format,
                                        struct weft_error *error,
                                        struct weft_ml_dataset *dataset_p);

/* A zeroed data set is allowed. */
void weft_ml_dataset_fini(struct weft_ml_dataset *dataset);

/* The split rule, for one line without its line end. */
bool weft_ml_is_test_line(const char *text, size_t bytes);

#endif
