#include "crypto/provider.h"

#include "base/assert.h"
#include "crypto/aead.h"
#include "crypto/fork_guard.h"

#include <endian.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { IV_PREFIX_BYTES = 4 };

struct weft_provider {
    struct weft_fork_guard *guard;
    bool broken; /* a hash has failed; see provider.h */
    const struct weft_aead_ops *aead;
    void *aead_self;
    struct weft_provider_aead about_aead;
    EVP_MD *sha256;
    EVP_MAC *hmac;
    EVP_MD_CTX *hash_context;
    EVP_MAC_CTX *hmac_context;
    uint8_t iv[WEFT_AEAD_IV_BYTES];
    uint32_t slot_count;
};

/* ---- creation and destruction ---------------------------------------------------------------- */

static bool fetch_all(struct weft_provider *provider)
{
    provider->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    provider->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_KEYMGMT *x25519 = EVP_KEYMGMT_fetch(NULL, "X25519", NULL);
    bool has_x25519 = x25519 != NULL;
    EVP_KEYMGMT_free(x25519);
    return provider->sha256 != NULL && provider->hmac != NULL && has_x25519;
}

/* The hash is set once, in a context without a key from which hmac contexts are copied. */
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

static weft_status make(uint32_t slots, const struct weft_aead_ops *aead,
                        const struct weft_provider_aead *about, struct weft_provider **provider_p)
{
    struct weft_provider *provider = calloc(1, sizeof(*provider));
    if (provider == NULL) {
        return WEFT_NOMEM;
    }
    provider->slot_count = slots;
    provider->aead = aead;
    provider->about_aead = *about;
    weft_status status = weft_fork_guard_new(&provider->guard);
    if (status == WEFT_OK && !fetch_all(provider)) {
        status = WEFT_UNSUPPORTED;
    }
    if (status == WEFT_OK && !make_contexts(provider)) {
        status = WEFT_NOMEM;
    }
    if (status == WEFT_OK) {
        status = aead->make(slots, &provider->aead_self);
    }
    if (status != WEFT_OK) {
        weft_provider_free(provider);
        return status;
    }
    *provider_p = provider;
    return WEFT_OK;
}

weft_status weft_provider_new(uint32_t slots, struct weft_provider **provider_p)
{
    struct weft_provider_aead about;
    const struct weft_aead_ops *fast = weft_aead_ipsec_mb(&about);
    return make(slots, fast != NULL ? fast : &weft_aead_libcrypto, &about, provider_p);
}

weft_status weft_provider_new_libcrypto(uint32_t slots, struct weft_provider **provider_p)
{
    static const struct weft_provider_aead about = {.text = "libcrypto", .advice = ""};
    return make(slots, &weft_aead_libcrypto, &about, provider_p);
}

void weft_provider_free(struct weft_provider *provider)
{
    if (provider == NULL) {
        return;
    }
    provider->aead->free(provider->aead_self);
    EVP_MAC_CTX_free(provider->hmac_context);
    EVP_MD_CTX_free(provider->hash_context);
    EVP_MAC_free(provider->hmac);
    EVP_MD_free(provider->sha256);
    weft_fork_guard_free(provider->guard);
    free(provider);
}

struct weft_provider_aead weft_provider_aead(const struct weft_provider *provider)
{
    return provider->about_aead;
}

/* WEFT_OK if this process may use the provider. */
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

/* Any 32 bytes are a public key. Rejected are points of small order: with them the result is
 * zero whatever the secret is, and derive reports it. */
static weft_status agree(EVP_PKEY_CTX *context, EVP_PKEY *peer, uint8_t shared_p[WEFT_DH_BYTES])
{
    uint8_t shared[WEFT_DH_BYTES];
    size_t bytes = sizeof(shared);
    if (EVP_PKEY_derive_init(context) != 1 || EVP_PKEY_derive_set_peer_ex(context, peer, 0) != 1) {
        return WEFT_NOMEM;
    }
    /* A peer must not fill the thread's error queue, which the application may use, too. */
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

/* Zeros, or the previous content of the memory, could be a MAC that a peer can guess. Use random
 * bytes, from the kernel, because libcrypto's generator may need memory, too. */
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
    /* With a NULL key libcrypto would continue to use the key of the previous call. */
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
    provider->aead->clear(provider->aead_self, slot);
}

static weft_status op_aead_set(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes)
{
    struct weft_provider *provider = self;
    WEFT_ASSERT(slot < provider->slot_count && (key_bytes == 16 || key_bytes == 32));
    weft_status status = fit(provider);
    return status != WEFT_OK ? status
                             : provider->aead->set(provider->aead_self, slot, key, key_bytes);
}

/* Check that it may be used, and convert the nonce to the cipher's form. */
static weft_status begin(struct weft_provider *provider, uint32_t slot, uint64_t nonce)
{
    WEFT_ASSERT(slot < provider->slot_count);
    const uint64_t big = htobe64(nonce);
    memcpy(provider->iv + IV_PREFIX_BYTES, &big, sizeof(big));
    return fit(provider);
}

static weft_status op_aead_seal(void *self, uint32_t slot, uint64_t nonce,
                                const struct weft_crypto_span *aad, size_t aad_count,
                                const struct weft_crypto_span *text, size_t text_count,
                                uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct weft_provider *provider = self;
    weft_status status = begin(provider, slot, nonce);
    return status != WEFT_OK ? status
                             : provider->aead->seal(provider->aead_self, slot, provider->iv, aad,
                                                    aad_count, text, text_count, out, tag_p);
}

static weft_status op_aead_open(void *self, uint32_t slot, uint64_t nonce,
                                const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                                size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    struct weft_provider *provider = self;
    weft_status status = begin(provider, slot, nonce);
    if (status != WEFT_OK) {
        return status;
    }
    status = provider->aead->open(provider->aead_self, slot, provider->iv, aad, aad_count, text,
                                  text_bytes, tag);
    if (status == WEFT_PROTO && text_bytes > 0) {
        memset(text, 0, text_bytes); /* the decryption of unauthenticated bytes must not leave
                                      * this function */
    }
    return status;
}

static void op_aead_prefetch(void *self, uint32_t slot)
{
    const struct weft_provider *provider = self;
    if (provider->aead->prefetch != NULL && slot < provider->slot_count) {
        provider->aead->prefetch(provider->aead_self, slot);
    }
}

/* ---- the function table ---------------------------------------------------------------------- */

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
        .aead_prefetch = op_aead_prefetch,
        .wipe = op_wipe,
    };
    return (struct weft_crypto){.ops = &ops, .self = provider};
}
