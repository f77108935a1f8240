/* The reason why a measurement failed, as text. */
#ifndef WEFT_CLI_PERF_ERROR_H
#define WEFT_CLI_PERF_ERROR_H

#include "base/error.h"

#include <stdbool.h>

/* Set the text, unless it is set: the first failure is the cause, later ones are its consequences.
 * Returns false. */
[[gnu::format(printf, 2, 3)]] bool weft_perf_fail(struct weft_error *error, const char *format,
                                                  ...);

#endif
