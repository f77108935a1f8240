/* AES-GCM of one provider: numbered key slots, by one of two libraries. Internal to this folder.
 *
 *   weft_aead_libcrypto    OpenSSL's EVP interface: always available; the reference in tests of the
 *                          other
 *   weft_aead_ipsec_mb()   Intel's ipsec-mb: direct calls without bookkeeping, VAES if the
 *                          processor has it. Used only if the build found its header, the library
 *                          can be loaded (crypto/ipsec_mb_library.h) and the processor is supported
 *
 * The caller (provider.c) ensures that slots are in range, that the process is not a forked child,
 * and that additional data in several spans next to text is at most WEFT_AEAD_AAD_MAX bytes.
 * Lengths are below INT_MAX. Sealing or opening with a slot that has no key fails an assertion.
 *
 * Source: core/crypto.h, of which these are the aead_* functions with the nonce written out.
 */
#ifndef WEFT_CRYPTO_AEAD_H
#define WEFT_CRYPTO_AEAD_H

#include "core/crypto.h"
#include "crypto/provider.h"

enum { WEFT_AEAD_IV_BYTES = 12, WEFT_AEAD_AAD_MAX = 1024 };

struct weft_aead_ops {
    /* Owns:    gives *self_p, to be freed with free.   Errors: WEFT_NOMEM, WEFT_UNSUPPORTED. */
    weft_status (*make)(uint32_t slots, void **self_p);
    /* Erases all keys; NULL is allowed, and so is a forked child's copy. */
    void (*free)(void *self);
    weft_status (*set)(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes);
    void (*clear)(void *self, uint32_t slot);
    weft_status (*seal)(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                        const struct weft_crypto_span *aad, size_t aad_count,
                        const struct weft_crypto_span *text, size_t text_count, uint8_t *out,
                        uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);
    weft_status (*open)(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                        const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                        size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES]);
    void (*prefetch)(void *self, uint32_t slot); /* NULL = nothing to do */
};

extern const struct weft_aead_ops weft_aead_libcrypto;

/* NULL if it cannot be used; *about_p has the implementation, or the reason.
 *
 * Thread:  any. The first call of a process prepares the library (half a millisecond). */
const struct weft_aead_ops *weft_aead_ipsec_mb(struct weft_provider_aead *about_p);

#endif
