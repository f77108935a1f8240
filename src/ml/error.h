/* Error texts for reading data: one line of text for a person, in addition to the status.
 *
 * Nothing in this folder prints. A reader fills in the text and the caller (cli) prints it once.
 * For an error inside a file the text begins with "path:line: ", lines counted from 1 in the
 * uncompressed file, so that an editor can jump there.
 */
#ifndef WEFT_ML_ERROR_H
#define WEFT_ML_ERROR_H

#include "base/error.h"
#include "base/units.h"

enum { WEFT_ML_QUOTE_BYTES = 40 };

/* Prepend "path:line: " (or "path: " for line 0) to the text. If the path is too long to leave
 * room for the text, its front part is cut. */
void weft_ml_error_place(struct weft_error *error, const char *path, uint64_t line);

/* A printable excerpt of the input: at most WEFT_ML_QUOTE_BYTES bytes, unprintable bytes as '?',
 * "..." if shortened. */
struct weft_ml_quote {
    char text[WEFT_ML_QUOTE_BYTES + 4];
};

struct weft_ml_quote weft_ml_quote(const char *text, size_t bytes);

#endif
