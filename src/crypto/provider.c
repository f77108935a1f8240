#include "crypto/provider.h"

#include "base/assert.h"
#include "crypto/fork_guard.h"

#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { IV_BYTES = 12, IV_PREFIX_BYTES = 4, SEAL = 1, OPEN = 0 };

/* The context stays allocated from the first key on; key_bytes is 0 while there is none. */
struct slot {
    EVP_CIPHER_CTX *context;
    size_t key_bytes;
};

struct weft_provider {
    struct weft_fork_guard *guard;
    bool broken; /* a hash failed; see provider.h */
    EVP_CIPHER *gcm_128;
    EVP_CIPHER *gcm_256;
    EVP_MD *sha256;
    EVP_MAC *hmac;
    EVP_MD_CTX *hash_context;
    EVP_MAC_CTX *hmac_context;
    uint8_t iv[IV_BYTES];
    uint8_t tag[WEFT_AEAD_TAG_BYTES];
    OSSL_PARAM tag_param[2]; /* points to tag: EVP_CIPHER_CTX_ctrl would build it for each packet */
    uint32_t slot_count;
    struct slot slots[];
};

/* ---- life ------------------------------------------------------------------------------------ */

static bool fetch_all(struct weft_provider *provider)
{
    provider->gcm_128 = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    provider->gcm_256 = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    provider->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    provider->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_KEYMGMT *x25519 = EVP_KEYMGMT_fetch(NULL, "X25519", NULL);
    bool has_x25519 = x25519 != NULL;
    EVP_KEYMGMT_free(x25519);
    return provider->gcm_128 != NULL && provider->gcm_256 != NULL && provider->sha256 != NULL &&
           provider->hmac != NULL && has_x25519;
}

/* The hash is set once; hmac takes it over from a context without a key. */
static bool make_contexts(struct weft_provider *provider)
{
    char name[] = "SHA256";
    OSSL_PARAM digest[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                           OSSL_PARAM_construct_end()};
    provider->hash_context = EVP_MD_CTX_new();
    provider->hmac_context = EVP_MAC_CTX_new(provider->hmac);
    return provider->hash_context != NULL && provider->hmac_context != NULL &&
           EVP_DigestInit_ex2(provider->hash_context, provider->sha256, NULL) == 1 &&
           EVP_MAC_CTX_set_params(provider->hmac_context, digest) == 1;
}

weft_status weft_provider_new(uint32_t slots, struct weft_provider **provider_p)
{
    struct weft_provider *provider =
        calloc(1, sizeof(*provider) + (size_t)slots * sizeof(provider->slots[0]));
    if (provider == NULL) {
        return WEFT_NOMEM;
    }
    provider->slot_count = slots;
    provider->tag_param[0] = OSSL_PARAM_construct_octet_string(
        OSSL_CIPHER_PARAM_AEAD_TAG, provider->tag, sizeof(provider->tag));
    provider->tag_param[1] = OSSL_PARAM_construct_end();
    weft_status status = weft_fork_guard_new(&provider->guard);
    if (status == WEFT_OK && !fetch_all(provider)) {
        status = WEFT_UNSUPPORTED;
    }
    if (status == WEFT_OK && !make_contexts(provider)) {
        status = WEFT_NOMEM;
    }
    if (status != WEFT_OK) {
        weft_provider_free(provider);
        return status;
    }
    *provider_p = provider;
    return WEFT_OK;
}

void weft_provider_free(struct weft_provider *provider)
{
    if (provider == NULL) {
        return;
    }
    for (uint32_t i = 0; i < provider->slot_count; i++) {
        EVP_CIPHER_CTX_free(provider->slots[i].context);
    }
    EVP_MAC_CTX_free(provider->hmac_context);
    EVP_MD_CTX_free(provider->hash_context);
    EVP_MAC_free(provider->hmac);
    EVP_MD_free(provider->sha256);
    EVP_CIPHER_free(provider->gcm_256);
    EVP_CIPHER_free(provider->gcm_128);
    weft_fork_guard_free(provider->guard);
    OPENSSL_cleanse(provider->tag, sizeof(provider->tag));
    free(provider);
}

/* WEFT_OK when this process may use the provider. */
static weft_status fit(const struct weft_provider *provider)
{
    if (!weft_fork_guard_holds(provider->guard)) {
        return WEFT_STATE;
    }
    return provider->broken ? WEFT_IO : WEFT_OK;
}

/* ---- random and X25519 ----------------------------------------------------------------------- */

static weft_status op_random(void *self, void *out, size_t bytes)
{
    weft_status status = fit(self);
    if (status != WEFT_OK) {
        return status;
    }
    WEFT_ASSERT(bytes <= INT_MAX);
    return RAND_bytes(out, (int)bytes) == 1 ? WEFT_OK : WEFT_IO;
}

static EVP_PKEY *secret_key(const uint8_t secret[WEFT_DH_BYTES])
{
    return EVP_PKEY_new_raw_private_key_ex(NULL, "X25519", NULL, secret, WEFT_DH_BYTES);
}

static weft_status op_dh_keypair(void *self, uint8_t secret_p[WEFT_DH_BYTES],
                                 uint8_t public_p[WEFT_DH_BYTES])
{
    uint8_t secret[WEFT_DH_BYTES];
    uint8_t public[WEFT_DH_BYTES];
    size_t bytes = sizeof(public);
    weft_status status = fit(self);
    if (status != WEFT_OK) {
        return status;
    }
    if (RAND_priv_bytes(secret, sizeof(secret)) != 1) {
        return WEFT_IO;
    }
    EVP_PKEY *key = secret_key(secret);
    status = key != NULL && EVP_PKEY_get_raw_public_key(key, public, &bytes) == 1 &&
                     bytes == sizeof(public)
                 ? WEFT_OK
                 : WEFT_NOMEM;
    EVP_PKEY_free(key);
    if (status == WEFT_OK) {
        memcpy(secret_p, secret, sizeof(secret));
        memcpy(public_p, public, sizeof(public));
    }
    OPENSSL_cleanse(secret, sizeof(secret));
    return status;
}

/* Any 32 bytes are a public key. What is refused is a point of small order: then the result is zero
 * whatever the secret is, and derive says so. */
static weft_status agree(EVP_PKEY_CTX *context, EVP_PKEY *peer, uint8_t shared_p[WEFT_DH_BYTES])
{
    uint8_t shared[WEFT_DH_BYTES];
    size_t bytes = sizeof(shared);
    if (EVP_PKEY_derive_init(context) != 1 ||
        EVP_PKEY_derive_set_peer_ex(context, peer, 0) != 1) {
        return WEFT_NOMEM;
    }
    /* A peer must not fill the thread's error queue, which may be the application's, too. */
    ERR_set_mark();
    bool good = EVP_PKEY_derive(context, shared, &bytes) == 1 && bytes == sizeof(shared);
    ERR_pop_to_mark();
    if (!good) {
        return WEFT_PROTO;
    }
    memcpy(shared_p, shared, sizeof(shared));
    OPENSSL_cleanse(shared, sizeof(shared));
    return WEFT_OK;
}

static weft_status op_dh(void *self, const uint8_t secret[WEFT_DH_BYTES],
                         const uint8_t public[WEFT_DH_BYTES], uint8_t shared_p[WEFT_DH_BYTES])
{
    weft_status status = fit(self);
    if (status != WEFT_OK) {
        return status;
    }
    EVP_PKEY *own = secret_key(secret);
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, public, WEFT_DH_BYTES);
    EVP_PKEY_CTX *context = own != NULL ? EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL) : NULL;
    status = context != NULL && peer != NULL ? agree(context, peer, shared_p) : WEFT_NOMEM;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
    return status;
}

/* ---- SHA-256 and HMAC ------------------------------------------------------------------------ */

/* Zeros, or what was in the memory before, could be a MAC that somebody can guess. From the kernel,
 * because libcrypto's generator may want memory, too. */
static void give_up(struct weft_provider *provider, uint8_t out_p[WEFT_HASH_BYTES])
{
    provider->broken = true;
    WEFT_ASSERT(getrandom(out_p, WEFT_HASH_BYTES, 0) == WEFT_HASH_BYTES);
}

static void op_hash(void *self, const struct weft_crypto_span *spans, size_t span_count,
                    uint8_t out_p[WEFT_HASH_BYTES])
{
    struct weft_provider *provider = self;
    EVP_MD_CTX *context = provider->hash_context;
    bool good = EVP_DigestInit_ex2(context, NULL, NULL) == 1;
    for (size_t i = 0; good && i < span_count; i++) {
        good = EVP_DigestUpdate(context, spans[i].base, spans[i].bytes) == 1;
    }
    if (!good || EVP_DigestFinal_ex(context, out_p, NULL) != 1) {
        give_up(provider, out_p);
    }
}

static void op_hmac(void *self, const void *key, size_t key_bytes,
                    const struct weft_crypto_span *spans, size_t span_count,
                    uint8_t out_p[WEFT_HASH_BYTES])
{
    struct weft_provider *provider = self;
    EVP_MAC_CTX *context = provider->hmac_context;
    static const uint8_t nothing;
    size_t bytes;
    /* With a NULL key libcrypto would go on with the key of the call before. */
    bool good = EVP_MAC_init(context, key_bytes > 0 ? key : &nothing, key_bytes, NULL) == 1;
    for (size_t i = 0; good && i < span_count; i++) {
        good = EVP_MAC_update(context, spans[i].base, spans[i].bytes) == 1;
    }
    if (!good || EVP_MAC_final(context, out_p, &bytes, WEFT_HASH_BYTES) != 1) {
        give_up(provider, out_p);
    }
}

/* ---- AES-GCM --------------------------------------------------------------------------------- */

static void op_aead_clear(void *self, uint32_t slot)
{
    struct weft_provider *provider = self;
    WEFT_ASSERT(slot < provider->slot_count);
    if (provider->slots[slot].key_bytes > 0) {
        (void)EVP_CIPHER_CTX_reset(provider->slots[slot].context); /* erases the schedule */
        provider->slots[slot].key_bytes = 0;
    }
}

static weft_status op_aead_set(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes)
{
    struct weft_provider *provider = self;
    WEFT_ASSERT(slot < provider->slot_count && (key_bytes == 16 || key_bytes == 32));
    struct slot *at = &provider->slots[slot];
    weft_status status = fit(provider);
    if (status != WEFT_OK) {
        return status;
    }
    op_aead_clear(self, slot);
    if (at->context == NULL) {
        at->context = EVP_CIPHER_CTX_new();
        if (at->context == NULL) {
            return WEFT_NOMEM;
        }
    }
    const EVP_CIPHER *cipher = key_bytes == 16 ? provider->gcm_128 : provider->gcm_256;
    if (EVP_CipherInit_ex(at->context, cipher, NULL, key, NULL, SEAL) != 1) {
        (void)EVP_CIPHER_CTX_reset(at->context);
        return WEFT_NOMEM;
    }
    at->key_bytes = key_bytes;
    return WEFT_OK;
}

/* Begin a packet: the context keeps cipher and key schedule and takes direction and IV. GCM uses its
 * key schedule in the same direction to seal and to open, so one context does both. */
static weft_status begin(struct weft_provider *provider, uint32_t slot, uint64_t nonce,
                         int direction, EVP_CIPHER_CTX **context_p)
{
    WEFT_ASSERT(slot < provider->slot_count);
    weft_status status = fit(provider);
    if (status != WEFT_OK) {
        return status;
    }
    WEFT_ASSERT(provider->slots[slot].key_bytes > 0);
    uint8_t *iv = provider->iv;
    for (int i = IV_BYTES - 1; i >= IV_PREFIX_BYTES; i--) {
        iv[i] = (uint8_t)nonce;
        nonce >>= 8;
    }
    *context_p = provider->slots[slot].context;
    return EVP_CipherInit_ex(*context_p, NULL, NULL, NULL, iv, direction) == 1 ? WEFT_OK : WEFT_IO;
}

/* One stretch; out NULL = additional data. */
static bool take(EVP_CIPHER_CTX *context, uint8_t *out, const void *bytes, size_t count)
{
    int done;
    WEFT_ASSERT(count <= INT_MAX);
    return EVP_CipherUpdate(context, out, &done, bytes, (int)count) == 1;
}

static bool take_aad(EVP_CIPHER_CTX *context, const struct weft_crypto_span *aad, size_t count)
{
    bool good = true;
    for (size_t i = 0; good && i < count; i++) {
        /* Zero bytes with a NULL result would be taken for the end. */
        good = aad[i].bytes == 0 || take(context, NULL, aad[i].base, aad[i].bytes);
    }
    return good;
}

static weft_status op_aead_seal(void *self, uint32_t slot, uint64_t nonce,
                                const struct weft_crypto_span *aad, size_t aad_count,
                                const struct weft_crypto_span *text, size_t text_count,
                                uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct weft_provider *provider = self;
    EVP_CIPHER_CTX *context;
    weft_status status = begin(provider, slot, nonce, SEAL, &context);
    if (status != WEFT_OK) {
        return status;
    }
    bool good = take_aad(context, aad, aad_count);
    for (size_t i = 0; good && i < text_count; i++) {
        good = text[i].bytes == 0 || take(context, out, text[i].base, text[i].bytes);
        out = text[i].bytes == 0 ? out : out + text[i].bytes;
    }
    int none;
    uint8_t nowhere[EVP_MAX_BLOCK_LENGTH]; /* GCM leaves nothing over */
    if (!good || EVP_CipherFinal_ex(context, nowhere, &none) != 1 ||
        EVP_CIPHER_CTX_get_params(context, provider->tag_param) != 1) {
        return WEFT_IO;
    }
    memcpy(tag_p, provider->tag, WEFT_AEAD_TAG_BYTES);
    return WEFT_OK;
}

static weft_status op_aead_open(void *self, uint32_t slot, uint64_t nonce,
                                const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                                size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    struct weft_provider *provider = self;
    EVP_CIPHER_CTX *context;
    weft_status status = begin(provider, slot, nonce, OPEN, &context);
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(provider->tag, tag, WEFT_AEAD_TAG_BYTES);
    if (EVP_CIPHER_CTX_set_params(context, provider->tag_param) != 1 ||
        !take_aad(context, aad, aad_count) ||
        (text_bytes > 0 && !take(context, text, text, text_bytes))) {
        return WEFT_IO;
    }
    int none;
    uint8_t nowhere[EVP_MAX_BLOCK_LENGTH];
    /* Compared in constant time in there. */
    return EVP_CipherFinal_ex(context, nowhere, &none) == 1 ? WEFT_OK : WEFT_PROTO;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void op_wipe(void *self, void *bytes, size_t count)
{
    (void)self;
    OPENSSL_cleanse(bytes, count);
}

struct weft_crypto weft_provider_crypto(struct weft_provider *provider)
{
    static const struct weft_crypto_ops ops = {
        .name = "libcrypto",
        .random = op_random,
        .dh_keypair = op_dh_keypair,
        .dh = op_dh,
        .hash = op_hash,
        .hmac = op_hmac,
        .aead_set = op_aead_set,
        .aead_clear = op_aead_clear,
        .aead_seal = op_aead_seal,
        .aead_open = op_aead_open,
        .wipe = op_wipe,
    };
    return (struct weft_crypto){.ops = &ops, .self = provider};
}
