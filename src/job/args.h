/* A list of texts that grows and ends with NULL: an argument vector, or an environment.
 *
 * Errors:  none: without memory for it the program ends.
 */
#ifndef WEFT_JOB_ARGS_H
#define WEFT_JOB_ARGS_H

#include <stdint.h>

/* The program's own bookkeeping, a few kilobytes: there is no sensible way on without it. Returns the
 * memory, or ends the program where it is NULL. */
[[gnu::returns_nonnull]] void *weft_job_need(void *memory);

struct weft_args {
    char **list; /* (count,), then NULL; NULL while nothing was added */
    uint32_t count;
    uint32_t capacity;
};

[[gnu::format(printf, 2, 3)]] void weft_args_add(struct weft_args *args, const char *format, ...);

/* Add copies of all of these. list: ends with NULL, or is NULL. */
void weft_args_add_all(struct weft_args *args, char *const *list);

/* Put this in place of the text at an index. */
[[gnu::format(printf, 3, 4)]] void weft_args_set(struct weft_args *args, uint32_t index,
                                                 const char *format, ...);

/* Wipes the texts: one of them may be a key. */
void weft_args_fini(struct weft_args *args);

#endif
