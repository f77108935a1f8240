/* The libsvm (svmlight) text format, one row per line:
 *
 *     row     = blanks label *(blanks index ":" value) blanks [comment]
 *     label   = 0 | 1 | -1 | +1          decimal, so "1.0" too; -1 and 0 are the negative class
 *     index   = digits                   0 .. 2^63 - 2, strictly ascending within the line
 *     value   = decimal float32, finite
 *     blanks  = spaces and tabs;  comment = "#" to the end of the line
 *
 * A line with only blanks or a comment is not a row. An index is the feature's id, without hashing.
 * A value of zero is checked and left out: it cannot change a margin or a gradient. libsvm itself
 * requires strict order; accepting another order would hide a damaged line. Not here: ranking
 * ("qid:"), regression targets, several classes, precomputed kernels.
 */
#ifndef WEFT_ML_LIBSVM_H
#define WEFT_ML_LIBSVM_H

#include "ml/format.h"

/* See weft_ml_parse_fn. */
weft_status weft_ml_libsvm_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p);

#endif
