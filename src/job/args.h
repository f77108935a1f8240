/* A growing list of strings that ends with NULL: an argument vector, or an environment.
 *
 * Errors:  none: if memory is exhausted, the program ends.
 */
#ifndef WEFT_JOB_ARGS_H
#define WEFT_JOB_ARGS_H

#include <stdint.h>

/* For the program's own bookkeeping, a few kilobytes, without which it cannot continue. Returns
 * `memory`, or ends the program if it is NULL. */
[[gnu::returns_nonnull]] void *weft_job_need(void *memory);

struct weft_args {
    char **list; /* (count,), then NULL; NULL while the list is empty */
    uint32_t count;
    uint32_t capacity;
};

[[gnu::format(printf, 2, 3)]] void weft_args_add(struct weft_args *args, const char *format, ...);

/* Add copies of all strings in list, which ends with NULL or is NULL. */
void weft_args_add_all(struct weft_args *args, char *const *list);

/* Replace the string at an index. */
[[gnu::format(printf, 3, 4)]] void weft_args_set(struct weft_args *args, uint32_t index,
                                                 const char *format, ...);

/* Overwrites the strings before freeing them: one may be a key. */
void weft_args_fini(struct weft_args *args);

#endif
