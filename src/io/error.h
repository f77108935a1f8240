/* What went wrong in a driver, for a person: one line of text beside the status.
 *
 * Nothing in this folder prints. A function fills the text with the call that failed, its object
 * and the reason; the caller (cli) shows it once.
 */
#ifndef WEFT_IO_ERROR_H
#define WEFT_IO_ERROR_H

#include "base/status.h"
#include "base/units.h"

enum { WEFT_IO_ERROR_BYTES = 640 };

struct weft_io_error {
    char text[WEFT_IO_ERROR_BYTES]; /* without a full stop or newline */
};

/* Write the text and hand the status back, so that a failure is one return statement.
 *
 * Owns:    error may be NULL: the caller wants the status alone.
 */
[[gnu::format(printf, 3, 4)]] weft_status weft_io_fail(struct weft_io_error *error,
                                                       weft_status status, const char *format, ...);

#endif
