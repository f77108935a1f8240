/* What went wrong with a checkpoint, in words: file, call, reason. One line. */
#ifndef WEFT_CKPT_ERROR_H
#define WEFT_CKPT_ERROR_H

#include "base/status.h"

enum { WEFT_CKPT_ERROR_BYTES = 512 };

struct weft_ckpt_error {
    char text[WEFT_CKPT_ERROR_BYTES];
};

/* Writes the text and returns status. */
[[gnu::format(printf, 3, 4)]] weft_status weft_ckpt_fail(struct weft_ckpt_error *error,
                                                         weft_status status, const char *format,
                                                         ...);

#endif
