/* Cryptography as the endpoint needs it, behind a struct of functions.
 *
 * The state machines of handshake, cookie, keys and replay live in core; the primitives do not.
 * Production gives libcrypto (src/crypto), the simulator a seeded toy, so that swarms of seeds
 * drive the very state machines that run on a network. Nothing here knows the protocol.
 *
 * AEAD keys live in numbered slots of the provider, so that it may keep expanded key schedules and
 * nobody else holds key bytes; the endpoint uses slots [0, slots) as told to the provider at its
 * creation: weft_ep_crypto_slots (core/endpoint.h) of them, set and cleared in any order, a set
 * over an old key included. The nonce of a packet is 4 zero bytes and its packet number, big-endian
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

/* A stretch of bytes to read. */
struct weft_crypto_span {
    const void *base;
    size_t bytes;
};

/* Every function may be called only by the thread that owns the endpoint. A status that is not
 * WEFT_OK from random, dh_keypair or aead_set ends the connection attempt, never the process;
 * WEFT_STATE from any of them means: this process was forked after the provider was made. */
struct weft_crypto_ops {
    const char *name;

    /* Bytes fit for keys. */
    weft_status (*random)(void *self, void *out, size_t bytes);

    weft_status (*dh_keypair)(void *self, uint8_t secret_p[WEFT_DH_BYTES],
                              uint8_t public_p[WEFT_DH_BYTES]);
    /* WEFT_PROTO: the peer's public key gives the all-zero secret. */
    weft_status (*dh)(void *self, const uint8_t secret[WEFT_DH_BYTES],
                      const uint8_t public[WEFT_DH_BYTES], uint8_t shared_p[WEFT_DH_BYTES]);

    void (*hash)(void *self, const struct weft_crypto_span *spans, size_t span_count,
                 uint8_t out_p[WEFT_HASH_BYTES]);
    void (*hmac)(void *self, const void *key, size_t key_bytes,
                 const struct weft_crypto_span *spans, size_t span_count,
                 uint8_t out_p[WEFT_HASH_BYTES]);

    /* AES-GCM; key_bytes is 16 (packets) or 32 (handshake, as Noise has it). */
    weft_status (*aead_set)(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes);
    /* Forget the key; of a slot without one it is no error. */
    void (*aead_clear)(void *self, uint32_t slot);
    /* Encrypt the text spans, in order, to out (their total length; NULL when there are none). The
     * caller never repeats a nonce under one key with other bytes. Where there is text, additional
     * data of more than one span is at most 1,024 bytes; to open, too. */
    weft_status (*aead_seal)(void *self, uint32_t slot, uint64_t nonce,
                             const struct weft_crypto_span *aad, size_t aad_count,
                             const struct weft_crypto_span *text, size_t text_count, uint8_t *out,
                             uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);
    /* Verify, and decrypt text in place. WEFT_PROTO: the tag is wrong; text is then garbage. */
    weft_status (*aead_open)(void *self, uint32_t slot, uint64_t nonce,
                             const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                             size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

    /* Ask the memory for the slot's key, which is about to be used. NULL: there is no such thing. */
    void (*aead_prefetch)(void *self, uint32_t slot);

    /* Overwrite, in a way that no compiler removes. */
    void (*wipe)(void *self, void *bytes, size_t count);
};

struct weft_crypto {
    const struct weft_crypto_ops *ops;
    void *self;
};

#endif
