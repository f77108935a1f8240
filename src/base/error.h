/* What went wrong, for a person: one line of text beside the status, with the call or the file that
 * failed, the reason, and where there is one the next action. No folder of src prints it; the one who
 * started the work (cli, a program of the C API) shows it once.
 */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_ERROR_BYTES = 900 };

struct weft_error {
    char text[WEFT_ERROR_BYTES]; /* without a full stop or newline */
    uint64_t line;               /* of a data file, 1-based; 0 = not about one line */
};

/* Write the text and hand the status back, so that a failure is one return statement.
 *
 * Owns:    error may be NULL: the caller wants the status alone. */
[[gnu::format(printf, 3, 4)]] weft_status weft_fail(struct weft_error *error, weft_status status,
                                                    const char *format, ...);

#endif
