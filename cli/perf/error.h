/* Why a measurement failed, for a person. */
#ifndef WEFT_CLI_PERF_ERROR_H
#define WEFT_CLI_PERF_ERROR_H

#include "base/error.h"

#include <stdbool.h>

/* Write the text, unless there is one: the first failure is the cause, those that follow are its
 * consequences. Returns false. */
[[gnu::format(printf, 2, 3)]] bool weft_perf_fail(struct weft_error *error, const char *format,
                                                  ...);

#endif
