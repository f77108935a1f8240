/* A substitute for cryptography in simulations and tests. NOT SECURE: the keys can be computed from
 * the packets. It must never be used on a network.
 *
 * It implements core/crypto.h with the properties that the state machines of core need: both ends
 * of a DH agree; a different key, nonce, address or any changed bit gives a different tag (128 bits
 * of a mixing function, so an accidental match is practically impossible); ciphertext differs from
 * plaintext. It is seeded and deterministic on every machine, so that a seed is repeatable.
 *
 * It also checks the caller, and asserts against a packet nonce that does not increase under one
 * key, a handshake key and nonce used for two different messages, and a slot without a key.
 */
#ifndef WEFT_SIM_TOY_CRYPTO_H
#define WEFT_SIM_TOY_CRYPTO_H

#include "core/crypto.h"

struct weft_toy_crypto;

/* Running out of memory ends the process. */
struct weft_toy_crypto *weft_toy_crypto_new(uint64_t seed, uint32_t slots);
void weft_toy_crypto_free(struct weft_toy_crypto *toy); /* NULL is allowed */
struct weft_crypto weft_toy_crypto_ops(struct weft_toy_crypto *toy);

/* Make every function that can fail return this status; WEFT_OK ends it. */
void weft_toy_crypto_fail(struct weft_toy_crypto *toy, weft_status status);

/* Seal as the owner of the slot, without the nonce check: for tests that forge packets that only a
 * key holder could create. */
void weft_toy_crypto_forge(struct weft_toy_crypto *toy, uint32_t slot, uint64_t nonce,
                           const void *aad, size_t aad_bytes, const void *text, size_t text_bytes,
                           uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);

/* Number of packets sealed and successfully opened so far; one call per packet is expected. */
uint64_t weft_toy_crypto_sealed(const struct weft_toy_crypto *toy);
uint64_t weft_toy_crypto_opened(const struct weft_toy_crypto *toy);
uint64_t weft_toy_crypto_dhs(const struct weft_toy_crypto *toy);

#endif
