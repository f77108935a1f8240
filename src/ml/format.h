/* The table of data formats: a name and a line parser each.
 *
 * A parser gets one line and nothing else: no file, no state between lines. So it is a pure
 * function of bytes, and the fuzz targets call it directly.
 */
#ifndef WEFT_ML_FORMAT_H
#define WEFT_ML_FORMAT_H

#include "ml/row.h"

#include <stdbool.h>

/* Parse one line (without its end) into the row.
 *
 * Shape:   number is the line's number; a parser may treat line 1 specially (a header).
 *          *is_row_p = false: the line is not a row (blank, comment or header); row unchanged or
 *          cleared.
 * Errors:  WEFT_DATA   malformed; the text has the error and the position in the line, not the
 *          line number.
 *          WEFT_NOMEM
 */
typedef weft_status weft_ml_parse_fn(const char *text, size_t bytes, uint64_t number,
                                     struct weft_ml_row *row, struct weft_error *error,
                                     bool *is_row_p);

struct weft_ml_format {
    const char *name;    /* on the command line */
    const char *help;    /* one line */
    const char *shipped; /* file name (locate.h) if the user gives none; NULL = a name is
                          * required */
    bool has_ratings;    /* every row is a user, an item (a larger id) and a rating */
    bool has_scale;      /* values are in the file's own scale; else most are 1 */
    bool has_counts;     /* rows are documents, values are word counts; no labels */
    weft_ml_parse_fn *parse;
};

/* All formats; ends with a NULL name. */
extern const struct weft_ml_format weft_ml_formats[];

/* Errors:  WEFT_NOTFOUND   unknown; the text lists the known names. */
weft_status weft_ml_format_find(const char *name, struct weft_error *error,
                                const struct weft_ml_format **format_p);

#endif
