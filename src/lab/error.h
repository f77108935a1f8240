/* What went wrong in the lab, for a person: one line of text beside the status, with the words of
 * the program or call that failed and what to do next. Nothing in this folder prints.
 */
#ifndef WEFT_LAB_ERROR_H
#define WEFT_LAB_ERROR_H

#include "base/status.h"

enum { WEFT_LAB_ERROR_BYTES = 640 };

struct weft_lab_error {
    char text[WEFT_LAB_ERROR_BYTES]; /* without a full stop or newline */
};

/* Write the text and hand the status back, so that a failure is one return statement.
 *
 * Owns:    error may be NULL: the caller wants the status alone. */
[[gnu::format(printf, 3, 4)]] weft_status weft_lab_fail(struct weft_lab_error *error,
                                                        weft_status status, const char *format,
                                                        ...);

#endif
