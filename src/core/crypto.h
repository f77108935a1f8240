/* The cryptographic primitives of the endpoint, as a struct of functions (the provider).
 *
 * Core implements the state machines of handshake, cookies, keys and replay protection, but no
 * primitive. In production the provider is libcrypto (src/crypto). In the simulator it is a seeded
 * imitation without security, so that simulated runs test the same state machines. A provider does
 * not depend on the protocol.
 *
 * The provider keeps AEAD keys in numbered slots, so that it can store expanded key schedules, and
 * no other code holds key bytes. The endpoint uses weft_ep_crypto_slots (core/endpoint.h) slots,
 * from 0; the provider is created with that number. Slots are set and cleared in any order; setting
 * a slot may replace a key. The nonce of a packet is 4 zero bytes and its packet number, big-endian
 * (Noise, AESGCM).
 *
 * Source: docs/PROTOCOL.md section 8; The Noise Protocol Framework, revision 34, sections 4 and 12.
 */
#ifndef WEFT_CORE_CRYPTO_H
#define WEFT_CORE_CRYPTO_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_DH_BYTES = 32,   /* X25519: secret, public, shared */
    WEFT_HASH_BYTES = 32, /* SHA-256 */
    WEFT_PSK_BYTES = 32,  /* the job key */
    WEFT_AEAD_TAG_BYTES = 16,
};

/* A span of bytes to read. */
struct weft_crypto_span {
    const void *base;
    size_t bytes;
};

/* Only the thread that owns the endpoint may call these functions. If random(), dh_keypair() or
 * aead_set() fails, the connection attempt ends, never the process. WEFT_STATE from any function
 * means that the process was forked after the provider was created. */
struct weft_crypto_ops {
    const char *name;

    /* Random bytes of the quality needed for keys. */
    weft_status (*random)(void *self, void *out, size_t bytes);

    weft_status (*dh_keypair)(void *self, uint8_t secret_p[WEFT_DH_BYTES],
                              uint8_t public_p[WEFT_DH_BYTES]);
    /* WEFT_PROTO: the shared secret would be all-zero (a low-order public key). */
    weft_status (*dh)(void *self, const uint8_t secret[WEFT_DH_BYTES],
                      const uint8_t public[WEFT_DH_BYTES], uint8_t shared_p[WEFT_DH_BYTES]);

    void (*hash)(void *self, const struct weft_crypto_span *spans, size_t span_count,
                 uint8_t out_p[WEFT_HASH_BYTES]);
    void (*hmac)(void *self, const void *key, size_t key_bytes,
                 const struct weft_crypto_span *spans, size_t span_count,
                 uint8_t out_p[WEFT_HASH_BYTES]);

    /* AES-GCM; key_bytes is 16 (packets) or 32 (handshake, as in Noise). */
    weft_status (*aead_set)(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes);
    /* Erase the key; allowed for a slot without one. */
    void (*aead_clear)(void *self, uint32_t slot);
    /* Encrypt the text spans, in order, to out (their total length; NULL when there are none). The
     * caller never uses a nonce twice under one key with different bytes. If there is
     * text and the additional data has more than one span, the additional data is at most 1,024
     * bytes; the same holds for aead_open. */
    weft_status (*aead_seal)(void *self, uint32_t slot, uint64_t nonce,
                             const struct weft_crypto_span *aad, size_t aad_count,
                             const struct weft_crypto_span *text, size_t text_count, uint8_t *out,
                             uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);
    /* Verify, and decrypt text in place. WEFT_PROTO: the tag is wrong; the content of text is
     * undefined. */
    weft_status (*aead_open)(void *self, uint32_t slot, uint64_t nonce,
                             const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                             size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

    /* Prefetch the slot's key, which is about to be used. May be NULL. */
    void (*aead_prefetch)(void *self, uint32_t slot);

    /* Overwrite with zeros in a way that the compiler cannot remove. */
    void (*wipe)(void *self, void *bytes, size_t count);
};

struct weft_crypto {
    const struct weft_crypto_ops *ops;
    void *self;
};

#endif
