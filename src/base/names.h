/* Names that several protocols share: of a job, and of the statuses that their answers carry. */
#ifndef WEFT_BASE_NAMES_H
#define WEFT_BASE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_JOB_NAME_BYTES = 32 }; /* with its final zero */

/* One of 1 .. 31 of A-Z a-z 0-9 . _ -, or empty; all zero after its end. */
bool weft_job_name_valid(const char job[WEFT_JOB_NAME_BYTES]);

/* A status of a protocol, by an X macro: X(name, what happened; what to do). */
struct weft_status_words {
    const char *name;
    const char *text;
};

/* Of a status that an answer carried, which may be one that this release does not know. Never NULL.
 *
 * Shape:   all (count,), by status. */
const char *weft_status_words_name(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status);
const char *weft_status_words_text(const struct weft_status_words *all, uint32_t count,
                                   uint32_t status);

#endif
