/* What went wrong with a key or with libcrypto, for a person: one line beside the status. Never a
 * byte of a key.
 */
#ifndef WEFT_CRYPTO_ERROR_H
#define WEFT_CRYPTO_ERROR_H

#include "base/status.h"

enum { WEFT_CRYPTO_ERROR_BYTES = 512 };

struct weft_crypto_error {
    char text[WEFT_CRYPTO_ERROR_BYTES]; /* without a full stop or newline */
};

/* Write the text and hand the status back.
 *
 * Owns:    error may be NULL: the caller wants the status alone. */
[[gnu::format(printf, 3, 4)]] weft_status weft_crypto_fail(struct weft_crypto_error *error,
                                                           weft_status status, const char *format,
                                                           ...);

#endif
