/* Names shared by several protocols: of a job, and of the statuses in their replies. */
#ifndef WEFT_BASE_NAMES_H
#define WEFT_BASE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_JOB_NAME_BYTES = 32 }; /* including the final zero */

/* Valid: 1 to 31 characters of A-Z a-z 0-9 . _ -, or empty; the remaining bytes are zero. */
bool weft_job_name_valid(const char job[WEFT_JOB_NAME_BYTES]);

/* A status of a protocol, defined by an X macro: X(name, what happened; what to do). */
struct weft_status_words {
    const char *name;
    const char *text;
};

/* Name of a status received in a reply, which may be unknown to this release. Never NULL.
 *
 * Shape:   all (count,), indexed by status. */
const char *weft_status_words_name(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status);
const char *weft_status_words_text(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status);

#endif
