#include "core/noise.h"

#include "base/assert.h"

#include <string.h>

enum { OUTPUTS_MAX = 3 };

/* Section 4.3 of the framework: HKDF with the chaining key as salt and no info. */
static void hkdf(const struct weft_noise *n, const uint8_t *input, size_t bytes, unsigned count,
                 uint8_t (*out_p)[WEFT_HASH_BYTES])
{
    const struct weft_crypto *c = n->crypto;
    uint8_t key[WEFT_HASH_BYTES];
    struct weft_crypto_span in = {input, bytes};
    c->ops->hmac(c->self, n->ck, sizeof(n->ck), &in, 1, key);
    for (unsigned i = 0; i < count; i++) {
        uint8_t number = (uint8_t)(i + 1);
        struct weft_crypto_span spans[2] = {{&number, 1}, {&number, 1}};
        if (i > 0) {
            spans[0] = (struct weft_crypto_span){out_p[i - 1], WEFT_HASH_BYTES};
        }
        c->ops->hmac(c->self, key, sizeof(key), spans, i > 0 ? 2 : 1, out_p[i]);
    }
    c->ops->wipe(c->self, key, sizeof(key));
}

static void mix_hash(struct weft_noise *n, const struct weft_crypto_span *data, size_t count)
{
    struct weft_crypto_span spans[8] = {{n->h, sizeof(n->h)}};
    WEFT_ASSERT(count < sizeof(spans) / sizeof(spans[0]));
    memcpy(spans + 1, data, count * sizeof(*data));
    uint8_t h[WEFT_HASH_BYTES];
    n->crypto->ops->hash(n->crypto->self, spans, count + 1, h);
    memcpy(n->h, h, sizeof(h));
}

static void mix_hash_one(struct weft_noise *n, const uint8_t *bytes, size_t count)
{
    mix_hash(n, &(struct weft_crypto_span){bytes, count}, 1);
}

static void mix_key(struct weft_noise *n, const uint8_t *input, size_t bytes)
{
    uint8_t out[OUTPUTS_MAX][WEFT_HASH_BYTES];
    hkdf(n, input, bytes, 2, out);
    memcpy(n->ck, out[0], sizeof(n->ck));
    memcpy(n->k, out[1], sizeof(n->k));
    n->crypto->ops->wipe(n->crypto->self, out, sizeof(out));
}

static void mix_key_and_hash(struct weft_noise *n, const uint8_t *input, size_t bytes)
{
    uint8_t out[OUTPUTS_MAX][WEFT_HASH_BYTES];
    hkdf(n, input, bytes, 3, out);
    memcpy(n->ck, out[0], sizeof(n->ck));
    mix_hash_one(n, out[1], sizeof(out[1]));
    memcpy(n->k, out[2], sizeof(n->k));
    n->crypto->ops->wipe(n->crypto->self, out, sizeof(out));
}

/* Token e: in patterns with a psk the public key is mixed into the chaining key, too. */
static void mix_ephemeral(struct weft_noise *n, const uint8_t public[WEFT_DH_BYTES])
{
    mix_hash_one(n, public, WEFT_DH_BYTES);
    mix_key(n, public, WEFT_DH_BYTES);
}

static void mix_text(struct weft_noise *n, const uint8_t *text, size_t bytes, const uint8_t *tag)
{
    struct weft_crypto_span spans[2] = {{text, bytes}, {tag, WEFT_AEAD_TAG_BYTES}};
    mix_hash(n, bytes > 0 ? spans : spans + 1, bytes > 0 ? 2 : 1);
}

/* In both messages the key is new at the payload, so the nonce is 0. */
static weft_status encrypt_and_hash(struct weft_noise *n, uint8_t *text, size_t bytes,
                                    uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    const struct weft_crypto *c = n->crypto;
    struct weft_crypto_span aad = {n->h, sizeof(n->h)};
    struct weft_crypto_span in = {text, bytes};
    weft_status status = c->ops->aead_set(c->self, n->slot, n->k, sizeof(n->k));
    if (status != WEFT_OK) {
        return status;
    }
    status = c->ops->aead_seal(c->self, n->slot, 0, &aad, 1, &in, bytes > 0 ? 1 : 0, text, tag_p);
    c->ops->aead_clear(c->self, n->slot);
    if (status == WEFT_OK) {
        mix_text(n, text, bytes, tag_p);
    }
    return status;
}

static weft_status decrypt_and_hash(struct weft_noise *n, uint8_t *text, size_t bytes,
                                    const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    const struct weft_crypto *c = n->crypto;
    uint8_t h[WEFT_HASH_BYTES];
    memcpy(h, n->h, sizeof(h));
    struct weft_crypto_span aad = {h, sizeof(h)};
    mix_text(n, text, bytes, tag); /* before the text is decrypted in place */
    weft_status status = c->ops->aead_set(c->self, n->slot, n->k, sizeof(n->k));
    if (status != WEFT_OK) {
        return status;
    }
    status = c->ops->aead_open(c->self, n->slot, 0, &aad, 1, text, bytes, tag);
    c->ops->aead_clear(c->self, n->slot);
    return status;
}

void weft_noise_init(struct weft_noise *noise, const struct weft_crypto *crypto, uint32_t slot,
                     const uint8_t psk[WEFT_PSK_BYTES], const struct weft_crypto_span *prologue,
                     size_t prologue_count)
{
    static const char name[] = "Noise_NNpsk0_25519_AESGCM_SHA256";
    *noise = (struct weft_noise){.crypto = crypto, .slot = slot};
    _Static_assert(sizeof(name) - 1 == WEFT_HASH_BYTES, "a name of this length is h as it is");
    memcpy(noise->h, name, sizeof(noise->h));
    memcpy(noise->ck, name, sizeof(noise->ck));
    mix_hash(noise, prologue, prologue_count);
    mix_key_and_hash(noise, psk, WEFT_PSK_BYTES);
}

weft_status weft_noise_hello_write(struct weft_noise *noise, uint8_t *text, size_t bytes,
                                   uint8_t ephemeral_p[WEFT_DH_BYTES],
                                   uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    const struct weft_crypto *c = noise->crypto;
    weft_status status = c->ops->dh_keypair(c->self, noise->secret, noise->public);
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(ephemeral_p, noise->public, WEFT_DH_BYTES);
    mix_ephemeral(noise, noise->public);
    return encrypt_and_hash(noise, text, bytes, tag_p);
}

weft_status weft_noise_hello_read(struct weft_noise *noise, const uint8_t ephemeral[WEFT_DH_BYTES],
                                  uint8_t *text, size_t bytes,
                                  const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    memcpy(noise->remote, ephemeral, WEFT_DH_BYTES);
    mix_ephemeral(noise, ephemeral);
    return decrypt_and_hash(noise, text, bytes, tag);
}

static weft_status mix_shared(struct weft_noise *n)
{
    const struct weft_crypto *c = n->crypto;
    uint8_t shared[WEFT_DH_BYTES];
    weft_status status = c->ops->dh(c->self, n->secret, n->remote, shared);
    if (status == WEFT_OK) {
        mix_key(n, shared, sizeof(shared));
    }
    c->ops->wipe(c->self, shared, sizeof(shared));
    return status;
}

weft_status weft_noise_accept_write(struct weft_noise *noise, uint8_t *text, size_t bytes,
                                    uint8_t ephemeral_p[WEFT_DH_BYTES],
                                    uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    const struct weft_crypto *c = noise->crypto;
    weft_status status = c->ops->dh_keypair(c->self, noise->secret, noise->public);
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(ephemeral_p, noise->public, WEFT_DH_BYTES);
    mix_ephemeral(noise, noise->public);
    status = mix_shared(noise);
    return status == WEFT_OK ? encrypt_and_hash(noise, text, bytes, tag_p) : status;
}

weft_status weft_noise_accept_read(struct weft_noise *noise, const uint8_t ephemeral[WEFT_DH_BYTES],
                                   uint8_t *text, size_t bytes,
                                   const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    memcpy(noise->remote, ephemeral, WEFT_DH_BYTES);
    mix_ephemeral(noise, ephemeral);
    weft_status status = mix_shared(noise);
    return status == WEFT_OK ? decrypt_and_hash(noise, text, bytes, tag) : status;
}

void weft_noise_split(const struct weft_noise *noise, uint8_t initiator_p[WEFT_HASH_BYTES],
                      uint8_t responder_p[WEFT_HASH_BYTES])
{
    uint8_t out[OUTPUTS_MAX][WEFT_HASH_BYTES];
    hkdf(noise, NULL, 0, 2, out);
    memcpy(initiator_p, out[0], WEFT_HASH_BYTES);
    memcpy(responder_p, out[1], WEFT_HASH_BYTES);
    noise->crypto->ops->wipe(noise->crypto->self, out, sizeof(out));
}

void weft_noise_wipe(struct weft_noise *noise)
{
    const struct weft_crypto *c = noise->crypto;
    if (c != NULL) {
        c->ops->wipe(c->self, noise, sizeof(*noise));
    }
}
