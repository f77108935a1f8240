/* Noise_NNpsk0_25519_AESGCM_SHA256: the two handshake messages of a connection, and its two keys.
 *
 *     -> psk, e          HELLO
 *     <- e, ee           ACCEPT
 *
 * This is exactly that pattern, so that the proofs and test vectors of the Noise framework apply.
 * It is not a general implementation of Noise: it has one pattern and no static keys. It does not
 * interpret the fields of HELLO and ACCEPT; those that must be authenticated are passed as the
 * prologue.
 *
 * Each message must be written only once. Its key and nonce are derived from the ephemeral key, and
 * AES-GCM reveals its authentication key when both are used for two different messages. A
 * retransmission repeats the same bytes.
 *
 * Source: docs/PROTOCOL.md section 8.2; The Noise Protocol Framework, revision 34, sections 5, 7.5
 * and 9.
 */
#ifndef WEFT_CORE_NOISE_H
#define WEFT_CORE_NOISE_H

#include "core/crypto.h"

struct weft_noise {
    const struct weft_crypto *crypto;
    uint32_t slot;                 /* slot of the provider; set and cleared within each call */
    uint8_t h[WEFT_HASH_BYTES];    /* the transcript so far */
    uint8_t ck[WEFT_HASH_BYTES];   /* chaining key */
    uint8_t k[WEFT_HASH_BYTES];    /* cipher key */
    uint8_t secret[WEFT_DH_BYTES]; /* ephemeral key pair of this end */
    uint8_t public[WEFT_DH_BYTES];
    uint8_t remote[WEFT_DH_BYTES]; /* ephemeral public key of the other end */
};

/* Initialize, at either end. Borrows crypto for the lifetime of the object. */
void weft_noise_init(struct weft_noise *noise, const struct weft_crypto *crypto, uint32_t slot,
                     const uint8_t psk[WEFT_PSK_BYTES], const struct weft_crypto_span *prologue,
                     size_t prologue_count);

/* The first message: text (bytes long; NULL when 0) is encrypted in place.
 * Errors:  those of the provider; the object is then unusable. */
[[nodiscard]] weft_status weft_noise_hello_write(struct weft_noise *noise, uint8_t *text,
                                                 size_t bytes, uint8_t ephemeral_p[WEFT_DH_BYTES],
                                                 uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);

/* WEFT_PROTO: different psk or prologue, or modified bytes. Performs no DH. */
[[nodiscard]] weft_status weft_noise_hello_read(struct weft_noise *noise,
                                                const uint8_t ephemeral[WEFT_DH_BYTES],
                                                uint8_t *text, size_t bytes,
                                                const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

/* The second message, written by the reader of the first. */
[[nodiscard]] weft_status weft_noise_accept_write(struct weft_noise *noise, uint8_t *text,
                                                  size_t bytes, uint8_t ephemeral_p[WEFT_DH_BYTES],
                                                  uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);
[[nodiscard]] weft_status weft_noise_accept_read(struct weft_noise *noise,
                                                 const uint8_t ephemeral[WEFT_DH_BYTES],
                                                 uint8_t *text, size_t bytes,
                                                 const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

/* The send keys of the initiator and of the responder. Call weft_noise_wipe afterwards. */
void weft_noise_split(const struct weft_noise *noise, uint8_t initiator_p[WEFT_HASH_BYTES],
                      uint8_t responder_p[WEFT_HASH_BYTES]);
void weft_noise_wipe(struct weft_noise *noise);

#endif
