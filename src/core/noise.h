/* Noise_NNpsk0_25519_AESGCM_SHA256: the two messages that open a connection, and their two keys.
 *
 *     -> psk, e          HELLO
 *     <- e, ee           ACCEPT
 *
 * Exactly that pattern, so that the proofs and test vectors of the Noise framework hold for it. It
 * is not a general Noise: one pattern, no static keys. It knows nothing of HELLO's and ACCEPT's
 * fields; what of them is to be authenticated comes as the prologue.
 *
 * A message must be written once: its key and nonce follow from the ephemeral key, and AES-GCM
 * gives its authentication key away when they are used for two different messages. A repetition
 * repeats the bytes.
 *
 * Source: docs/PROTOCOL.md section 8.2; The Noise Protocol Framework, revision 34, sections 5, 7.5
 * and 9.
 */
#ifndef WEFT_CORE_NOISE_H
#define WEFT_CORE_NOISE_H

#include "core/crypto.h"

struct weft_noise {
    const struct weft_crypto *crypto;
    uint32_t slot;                  /* of the provider; set and cleared within each call */
    uint8_t h[WEFT_HASH_BYTES];     /* the transcript so far */
    uint8_t ck[WEFT_HASH_BYTES];    /* chaining key */
    uint8_t k[WEFT_HASH_BYTES];     /* cipher key */
    uint8_t secret[WEFT_DH_BYTES];  /* own ephemeral key */
    uint8_t public[WEFT_DH_BYTES];
    uint8_t remote[WEFT_DH_BYTES];  /* the other's */
};

/* Begin, at either end. Borrows crypto until the object is no longer used. */
void weft_noise_init(struct weft_noise *noise, const struct weft_crypto *crypto, uint32_t slot,
                     const uint8_t psk[WEFT_PSK_BYTES], const struct weft_crypto_span *prologue,
                     size_t prologue_count);

/* The first message: text (bytes long; NULL when 0) is encrypted in place.
 * Errors:  those of the provider; then the object is of no more use. */
[[nodiscard]] weft_status weft_noise_hello_write(struct weft_noise *noise, uint8_t *text,
                                                 size_t bytes,
                                                 uint8_t ephemeral_p[WEFT_DH_BYTES],
                                                 uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);

/* WEFT_PROTO: another psk or prologue, or changed bytes. No DH is done. */
[[nodiscard]] weft_status weft_noise_hello_read(struct weft_noise *noise,
                                                const uint8_t ephemeral[WEFT_DH_BYTES],
                                                uint8_t *text, size_t bytes,
                                                const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

/* The second message, by the reader of the first. */
[[nodiscard]] weft_status weft_noise_accept_write(struct weft_noise *noise, uint8_t *text,
                                                  size_t bytes,
                                                  uint8_t ephemeral_p[WEFT_DH_BYTES],
                                                  uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);
[[nodiscard]] weft_status weft_noise_accept_read(struct weft_noise *noise,
                                                 const uint8_t ephemeral[WEFT_DH_BYTES],
                                                 uint8_t *text, size_t bytes,
                                                 const uint8_t tag[WEFT_AEAD_TAG_BYTES]);

/* The keys of what the initiator sends and of what the responder sends; then wipe. */
void weft_noise_split(const struct weft_noise *noise, uint8_t initiator_p[WEFT_HASH_BYTES],
                      uint8_t responder_p[WEFT_HASH_BYTES]);
void weft_noise_wipe(struct weft_noise *noise);

#endif
