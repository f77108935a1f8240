/* What went wrong while reading data, for a person: one line of text beside the status.
 *
 * Nothing in this folder prints. A reader fills the text and the caller (cli) shows it once. For an
 * error inside a file the text begins with "path:line: ", lines counted from 1 in the uncompressed
 * file, so that an editor can jump there.
 */
#ifndef WEFT_ML_ERROR_H
#define WEFT_ML_ERROR_H

#include "base/error.h"
#include "base/units.h"

enum { WEFT_ML_QUOTE_BYTES = 40 };

/* Put "path:line: " (or "path: " for line 0) in front of the text. A path too long to leave room
 * for the text loses its front part. */
void weft_ml_error_place(struct weft_error *error, const char *path, uint64_t line);

/* A piece of input that can be shown: at most WEFT_ML_QUOTE_BYTES bytes, unprintable bytes as '?',
 * "..." when shortened. */
struct weft_ml_quote {
    char text[WEFT_ML_QUOTE_BYTES + 4];
};

struct weft_ml_quote weft_ml_quote(const char *text, size_t bytes);

#endif
