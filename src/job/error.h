/* What went wrong in this folder, for a person: one line of text beside the status. */
#ifndef WEFT_JOB_ERROR_H
#define WEFT_JOB_ERROR_H

#include "base/status.h"

enum { WEFT_JOB_ERROR_BYTES = 640 };

struct weft_job_error {
    char text[WEFT_JOB_ERROR_BYTES]; /* without a full stop or newline */
};

/* Write the text and hand the status back. error may be NULL. */
[[gnu::format(printf, 3, 4)]] weft_status weft_job_fail(struct weft_job_error *error,
                                                        weft_status status, const char *format,
                                                        ...);

/* The program's own bookkeeping, a few kilobytes: there is no sensible way on without it. Returns the
 * memory, or ends the program where it is NULL. */
[[gnu::returns_nonnull]] void *weft_job_need(void *memory);

#endif
