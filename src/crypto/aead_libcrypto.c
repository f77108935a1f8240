#include "crypto/aead.h"

#include "base/assert.h"

#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SEAL = 1, OPEN = 0 };

/* The context stays allocated after the first key; key_bytes is 0 while there is no key. */
struct slot {
    EVP_CIPHER_CTX *context;
    size_t key_bytes;
};

struct aead {
    EVP_CIPHER *gcm_128;
    EVP_CIPHER *gcm_256;
    uint8_t tag[WEFT_AEAD_TAG_BYTES];
    OSSL_PARAM tag_param[2]; /* describes tag; prepared once, because EVP_CIPHER_CTX_ctrl would
                              * build such an array for each packet */
    uint32_t slot_count;
    struct slot slots[];
};

static void aead_free(void *self)
{
    struct aead *aead = self;
    if (aead == NULL) {
        return;
    }
    for (uint32_t i = 0; i < aead->slot_count; i++) {
        EVP_CIPHER_CTX_free(aead->slots[i].context);
    }
    EVP_CIPHER_free(aead->gcm_256);
    EVP_CIPHER_free(aead->gcm_128);
    OPENSSL_cleanse(aead->tag, sizeof(aead->tag));
    free(aead);
}

static weft_status aead_make(uint32_t slots, void **self_p)
{
    struct aead *aead = calloc(1, sizeof(*aead) + (size_t)slots * sizeof(aead->slots[0]));
    if (aead == NULL) {
        return WEFT_NOMEM;
    }
    aead->slot_count = slots;
    aead->tag_param[0] =
        OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, aead->tag, sizeof(aead->tag));
    aead->tag_param[1] = OSSL_PARAM_construct_end();
    aead->gcm_128 = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    aead->gcm_256 = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    if (aead->gcm_128 == NULL || aead->gcm_256 == NULL) {
        aead_free(aead);
        return WEFT_UNSUPPORTED;
    }
    *self_p = aead;
    return WEFT_OK;
}

static void aead_clear(void *self, uint32_t slot)
{
    struct aead *aead = self;
    if (aead->slots[slot].key_bytes > 0) {
        (void)EVP_CIPHER_CTX_reset(aead->slots[slot].context); /* erases the schedule */
        aead->slots[slot].key_bytes = 0;
    }
}

static weft_status aead_set(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes)
{
    struct aead *aead = self;
    struct slot *at = &aead->slots[slot];
    aead_clear(self, slot);
    if (at->context == NULL) {
        at->context = EVP_CIPHER_CTX_new();
        if (at->context == NULL) {
            return WEFT_NOMEM;
        }
    }
    const EVP_CIPHER *cipher = key_bytes == 16 ? aead->gcm_128 : aead->gcm_256;
    if (EVP_CipherInit_ex(at->context, cipher, NULL, key, NULL, SEAL) != 1) {
        (void)EVP_CIPHER_CTX_reset(at->context);
        return WEFT_NOMEM;
    }
    at->key_bytes = key_bytes;
    return WEFT_OK;
}

/* Begin a packet: the context keeps the cipher and the key schedule; direction and IV are set.
 * GCM uses its key schedule in the same direction to seal and to open, so one context does both. */
static bool begin(struct aead *aead, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                  int direction, EVP_CIPHER_CTX **context_p)
{
    WEFT_ASSERT(aead->slots[slot].key_bytes > 0);
    *context_p = aead->slots[slot].context;
    return EVP_CipherInit_ex(*context_p, NULL, NULL, NULL, iv, direction) == 1;
}

/* Process one span; out NULL = additional data. */
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
        /* With a NULL output buffer and zero bytes EVP_CipherUpdate would finalise. */
        good = aad[i].bytes == 0 || take(context, NULL, aad[i].base, aad[i].bytes);
    }
    return good;
}

static weft_status aead_seal(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                             const struct weft_crypto_span *aad, size_t aad_count,
                             const struct weft_crypto_span *text, size_t text_count, uint8_t *out,
                             uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct aead *aead = self;
    EVP_CIPHER_CTX *context;
    bool good = begin(aead, slot, iv, SEAL, &context) && take_aad(context, aad, aad_count);
    for (size_t i = 0; good && i < text_count; i++) {
        good = text[i].bytes == 0 || take(context, out, text[i].base, text[i].bytes);
        out = text[i].bytes == 0 ? out : out + text[i].bytes;
    }
    int none;
    uint8_t nowhere[EVP_MAX_BLOCK_LENGTH]; /* GCM has no remaining bytes */
    if (!good || EVP_CipherFinal_ex(context, nowhere, &none) != 1 ||
        EVP_CIPHER_CTX_get_params(context, aead->tag_param) != 1) {
        return WEFT_IO;
    }
    memcpy(tag_p, aead->tag, WEFT_AEAD_TAG_BYTES);
    return WEFT_OK;
}

static weft_status aead_open(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                             const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                             size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    struct aead *aead = self;
    EVP_CIPHER_CTX *context;
    if (!begin(aead, slot, iv, OPEN, &context)) {
        return WEFT_IO;
    }
    memcpy(aead->tag, tag, WEFT_AEAD_TAG_BYTES);
    if (EVP_CIPHER_CTX_set_params(context, aead->tag_param) != 1 ||
        !take_aad(context, aad, aad_count) ||
        (text_bytes > 0 && !take(context, text, text, text_bytes))) {
        return WEFT_IO;
    }
    int none;
    uint8_t nowhere[EVP_MAX_BLOCK_LENGTH];
    /* The tag is compared in constant time by this call. */
    return EVP_CipherFinal_ex(context, nowhere, &none) == 1 ? WEFT_OK : WEFT_PROTO;
}

const struct weft_aead_ops weft_aead_libcrypto = {
    .make = aead_make,
    .free = aead_free,
    .set = aead_set,
    .clear = aead_clear,
    .seal = aead_seal,
    .open = aead_open,
};
