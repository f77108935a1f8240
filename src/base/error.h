/* The reason of a failure as text for a person: one line that goes with the status, with the call
 * or the file that failed, the reason and, if there is one, the next action. The function that
 * fails does not print it. The caller that started the operation (cli, or a program that uses the C
 * API) prints it once. Only failures that have no such caller, such as those of background threads
 * of src/obs, are printed where they occur.
 */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_ERROR_BYTES = 900 };

struct weft_error {
    char text[WEFT_ERROR_BYTES]; /* without a full stop or newline */
    uint64_t line;               /* line of a data file, 1-based; 0 = not about one line */
};

/* Write the text and return the status, so that a failure is one return statement.
 *
 * Owns:    error may be NULL: no text is written. */
[[gnu::format(printf, 3, 4)]] weft_status weft_fail(struct weft_error *error, weft_status status,
                                                    const char *format, ...);

#endif
