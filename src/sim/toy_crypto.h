/* A toy that stands in for cryptography in simulations and tests. NOT SECURE, NOT EVEN CLOSE: who
 * sees its packets can compute its keys. It must never meet a network.
 *
 * It has the shape of the real thing (core/crypto.h) and what the state machines of core need of
 * it: both ends of a DH agree; another key, nonce, address or any changed bit gives another tag
 * (128 bits of a mixing function, so an accident is out of question); what is sealed differs from
 * its plain text. It is seeded and the same everywhere, so that a seed repeats its run.
 *
 * It watches the caller, too, and asserts: a packet nonce that does not grow under one key, a
 * handshake key and nonce used for two different messages, a slot without a key.
 */
#ifndef WEFT_SIM_TOY_CRYPTO_H
#define WEFT_SIM_TOY_CRYPTO_H

#include "core/crypto.h"

struct weft_toy_crypto;

/* Lack of memory ends the process. */
struct weft_toy_crypto *weft_toy_crypto_new(uint64_t seed, uint32_t slots);
void weft_toy_crypto_free(struct weft_toy_crypto *toy); /* NULL is fine */
struct weft_crypto weft_toy_crypto_ops(struct weft_toy_crypto *toy);

/* From now on every function that can fail returns this; WEFT_OK ends it. */
void weft_toy_crypto_fail(struct weft_toy_crypto *toy, weft_status status);

/* Seal as the owner of the slot would, without watching the nonce: for tests that forge what only a
 * key holder can. */
void weft_toy_crypto_forge(struct weft_toy_crypto *toy, uint32_t slot, uint64_t nonce,
                           const void *aad, size_t aad_bytes, const void *text, size_t text_bytes,
                           uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES]);

/* Packets sealed and opened (with success) so far: one call for each packet is the rule. */
uint64_t weft_toy_crypto_sealed(const struct weft_toy_crypto *toy);
uint64_t weft_toy_crypto_opened(const struct weft_toy_crypto *toy);
uint64_t weft_toy_crypto_dhs(const struct weft_toy_crypto *toy);

#endif
