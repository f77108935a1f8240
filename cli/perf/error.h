/* Why a measurement failed, for a person: one line of text. */
#ifndef WEFT_CLI_PERF_ERROR_H
#define WEFT_CLI_PERF_ERROR_H

#include <stdbool.h>

enum { WEFT_PERF_ERROR_BYTES = 800 };

struct weft_perf_error {
    char text[WEFT_PERF_ERROR_BYTES]; /* without a full stop or newline; "" = nothing has failed */
};

/* Write the text, unless there is one: the first failure is the cause, those that follow are its
 * consequences. Returns false. */
[[gnu::format(printf, 2, 3)]] bool weft_perf_fail(struct weft_perf_error *error, const char *format,
                                                  ...);

#endif
