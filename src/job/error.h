/* What went wrong in this folder, for a person: one line of text beside the status. */
#ifndef WEFT_JOB_ERROR_H
#define WEFT_JOB_ERROR_H

#include "base/status.h"

enum { WEFT_JOB_ERROR_BYTES = 320 };

struct weft_job_error {
    char text[WEFT_JOB_ERROR_BYTES]; /* without a full stop or newline */
};

/* Write the text and hand the status back. error may be NULL. */
[[gnu::format(printf, 3, 4)]] weft_status weft_job_fail(struct weft_job_error *error,
                                                        weft_status status, const char *format,
                                                        ...);

#endif
