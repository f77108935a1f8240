/* AES-GCM by Intel's ipsec-mb, called directly: a function with a key schedule, without context
 * lookup and named parameters. A tag over a short packet costs a fifth of the time of EVP
 * (bench/NOTEBOOK.md).
 *
 * Errors. The library reports an error in a process-wide variable, which calls of other threads
 * overwrite, and does not write its results. The errors are NULL pointers and lengths that do not
 * occur here. As a precaution, so that an error never looks like success: a tag to be compared is
 * initialized to the complement of the received one, and a tag to be sent to zeros.
 *
 * Keys. Key schedules are in a separate mapping that, if the kernel supports it, is wiped on fork
 * and left out of core dumps; unlike those of libcrypto they are not in the child at all.
 *
 * ipsec-mb 1.3 (Debian 12) sets that variable to 0 in each call: threads on several processors
 * share its cache line, which cost 0 to 30 ns a packet with two of them. From 1.4 on it does not.
 *
 * Source: intel-ipsec-mb.h; NIST SP 800-38D; madvise(2).
 */
#include "crypto/aead.h"

#include "base/assert.h"
#include "base/prefetch.h"
#include "crypto/ipsec_mb_library.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The library's function tables, one per process and never freed; they hold no key. */
static const struct weft_ipsec_mb *library;
static IMB_MGR *manager;
static struct weft_provider_aead about;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { LINE_BYTES = 64, PREFETCH_BYTES = 256 };

struct slot {
    alignas(64) struct gcm_key_data key;
    size_t key_bytes; /* 0 = none */
};

struct aead {
    struct slot *slots; /* the mapping */
    size_t mapping_bytes;
    struct gcm_context_data context; /* of the current packet */
    uint8_t aad[WEFT_AEAD_AAD_MAX];
};

/* ---- is it supported ------------------------------------------------------------------------- */

static void refuse(const char *why, const char *advice)
{
    snprintf(about.text, sizeof(about.text), "libcrypto; %s", why);
    about.advice = advice;
    if (manager != NULL) {
        library->free_mb_mgr(manager);
        manager = NULL;
    }
}

static void prepare(void)
{
    const char *wish = getenv("WEFT_IPSEC_MB");
    IMB_ARCH arch = IMB_ARCH_NONE;
    if (wish != NULL && strcmp(wish, "no") == 0) {
        refuse("WEFT_IPSEC_MB=no", "unset WEFT_IPSEC_MB: with ipsec-mb the cryptography of a "
                                   "packet takes a quarter of the time");
        return;
    }
    library = weft_ipsec_mb_load(&about);
    if (library == NULL) {
        return;
    }
    manager = library->alloc_mb_mgr(0);
    if (manager == NULL) {
        refuse("no memory for ipsec-mb", "");
        return;
    }
    library->init_mb_mgr_auto(manager, &arch);
    const uint64_t wanted = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    if ((manager->features & wanted) != wanted || arch < IMB_ARCH_SSE) {
        refuse("the processor lacks AES or carry-less multiplication", "");
    } else if (library->imb_get_errno(manager) != 0 ||
               ((manager->features & IMB_FEATURE_SELF_TEST) != 0 &&
                (manager->features & IMB_FEATURE_SELF_TEST_PASS) == 0)) {
        refuse("ipsec-mb fails its self-test here", "");
    } else {
        snprintf(about.text, sizeof(about.text), "ipsec-mb %s for %s%s",
                 library->imb_get_version_str(),
                 arch == IMB_ARCH_AVX512 ? "AVX-512"
                 : arch > IMB_ARCH_SSE   ? "AVX"
                                         : "SSE",
                 (manager->features & IMB_FEATURE_VAES) != 0 ? " and VAES" : "");
        about.advice = "";
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void aead_free(void *self)
{
    struct aead *aead = self;
    if (aead == NULL) {
        return;
    }
    if (aead->slots != NULL) {
        OPENSSL_cleanse(aead->slots, aead->mapping_bytes);
        (void)munmap(aead->slots, aead->mapping_bytes);
    }
    OPENSSL_cleanse(aead, sizeof(*aead));
    free(aead);
}

static weft_status aead_make(uint32_t slots, void **self_p)
{
    struct aead *aead = calloc(1, sizeof(*aead));
    if (aead == NULL) {
        return WEFT_NOMEM;
    }
    size_t bytes = (size_t)slots * sizeof(struct slot);
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        aead_free(aead);
        return WEFT_NOMEM;
    }
    /* A failure of either call does no harm: the fork guard rejects a child in any case. Pages
     * of a table for thousands of peers are to be allocated only when used. */
    (void)madvise(mapping, bytes, MADV_WIPEONFORK);
    (void)madvise(mapping, bytes, MADV_DONTDUMP);
    (void)madvise(mapping, bytes, MADV_NOHUGEPAGE);
    aead->slots = mapping;
    aead->mapping_bytes = bytes;
    *self_p = aead;
    return WEFT_OK;
}

static void aead_clear(void *self, uint32_t slot)
{
    struct aead *aead = self;
    if (aead->slots[slot].key_bytes > 0) { /* otherwise the memory was never touched */
        OPENSSL_cleanse(&aead->slots[slot], sizeof(aead->slots[slot]));
        OPENSSL_cleanse(&aead->context, sizeof(aead->context));
    }
}

static weft_status aead_set(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes)
{
    struct aead *aead = self;
    struct slot *at = &aead->slots[slot];
    aead_clear(self, slot);
    if (key_bytes == 16) {
        IMB_AES128_GCM_PRE(manager, key, &at->key);
    } else {
        IMB_AES256_GCM_PRE(manager, key, &at->key);
    }
    /* The schedule begins with the key, unless the call failed. */
    if (CRYPTO_memcmp(at->key.expanded_keys, key, 16) != 0) {
        return WEFT_IO;
    }
    at->key_bytes = key_bytes;
    return WEFT_OK;
}

/* ---- additional data ------------------------------------------------------------------------- */

static size_t total(const struct weft_crypto_span *spans, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += spans[i].bytes;
    }
    return bytes;
}

/* The library requires one contiguous span. */
static struct weft_crypto_span join(struct aead *aead, const struct weft_crypto_span *aad,
                                    size_t count)
{
    if (count == 1) {
        return aad[0];
    }
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        WEFT_ASSERT(aad[i].bytes <= sizeof(aead->aad) - bytes);
        if (aad[i].bytes > 0) {
            memcpy(aead->aad + bytes, aad[i].base, aad[i].bytes);
        }
        bytes += aad[i].bytes;
    }
    return (struct weft_crypto_span){aead->aad, bytes};
}

/* A tag without text, over more data than is worth copying. */
static void tag_of_many(struct aead *aead, const struct slot *at, const uint8_t *iv,
                        const struct weft_crypto_span *aad, size_t count, uint8_t *tag_p)
{
    const bool is_128 = at->key_bytes == 16;
    if (is_128) {
        IMB_AES128_GMAC_INIT(manager, &at->key, &aead->context, iv, WEFT_AEAD_IV_BYTES);
    } else {
        IMB_AES256_GMAC_INIT(manager, &at->key, &aead->context, iv, WEFT_AEAD_IV_BYTES);
    }
    for (size_t i = 0; i < count; i++) {
        if (aad[i].bytes == 0) {
            continue;
        }
        if (is_128) {
            IMB_AES128_GMAC_UPDATE(manager, &at->key, &aead->context, aad[i].base, aad[i].bytes);
        } else {
            IMB_AES256_GMAC_UPDATE(manager, &at->key, &aead->context, aad[i].base, aad[i].bytes);
        }
    }
    if (is_128) {
        IMB_AES128_GMAC_FINALIZE(manager, &at->key, &aead->context, tag_p, WEFT_AEAD_TAG_BYTES);
    } else {
        IMB_AES256_GMAC_FINALIZE(manager, &at->key, &aead->context, tag_p, WEFT_AEAD_TAG_BYTES);
    }
}

/* ---- packets --------------------------------------------------------------------------------- */

static void encrypt(struct aead *aead, const struct slot *at, const uint8_t *iv,
                    struct weft_crypto_span aad, struct weft_crypto_span text, uint8_t *out,
                    uint8_t *tag_p)
{
    aes_gcm_enc_dec_t function = at->key_bytes == 16 ? manager->gcm128_enc : manager->gcm256_enc;
    function(&at->key, &aead->context, out, text.base, text.bytes, iv, aad.base, aad.bytes, tag_p,
             WEFT_AEAD_TAG_BYTES);
}

static void encrypt_many(struct aead *aead, const struct slot *at, const uint8_t *iv,
                         struct weft_crypto_span aad, const struct weft_crypto_span *text,
                         size_t count, uint8_t *out, uint8_t *tag_p)
{
    const bool is_128 = at->key_bytes == 16;
    aes_gcm_init_t init = is_128 ? manager->gcm128_init : manager->gcm256_init;
    aes_gcm_enc_dec_update_t update =
        is_128 ? manager->gcm128_enc_update : manager->gcm256_enc_update;
    aes_gcm_enc_dec_finalize_t finalize =
        is_128 ? manager->gcm128_enc_finalize : manager->gcm256_enc_finalize;
    init(&at->key, &aead->context, iv, aad.base, aad.bytes);
    for (size_t i = 0; i < count; i++) {
        if (text[i].bytes > 0) {
            update(&at->key, &aead->context, out, text[i].base, text[i].bytes);
            out += text[i].bytes;
        }
    }
    finalize(&at->key, &aead->context, tag_p, WEFT_AEAD_TAG_BYTES);
}

static weft_status aead_seal(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                             const struct weft_crypto_span *aad, size_t aad_count,
                             const struct weft_crypto_span *text, size_t text_count, uint8_t *out,
                             uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    static const uint8_t unwritten[WEFT_AEAD_TAG_BYTES];
    struct aead *aead = self;
    const struct slot *at = &aead->slots[slot];
    uint8_t tag[WEFT_AEAD_TAG_BYTES] = {0};
    WEFT_ASSERT(at->key_bytes > 0);
    size_t text_bytes = total(text, text_count);
    if (text_bytes > 0 && text_count > 1) {
        encrypt_many(aead, at, iv, join(aead, aad, aad_count), text, text_count, out, tag);
    } else if (text_bytes > 0) {
        encrypt(aead, at, iv, join(aead, aad, aad_count), text[0], out, tag);
    } else if (aad_count > 1 && total(aad, aad_count) > sizeof(aead->aad)) {
        tag_of_many(aead, at, iv, aad, aad_count, tag);
    } else {
        encrypt(aead, at, iv, join(aead, aad, aad_count), (struct weft_crypto_span){0}, NULL, tag);
    }
    if (memcmp(tag, unwritten, sizeof(tag)) == 0) {
        return WEFT_IO;
    }
    memcpy(tag_p, tag, sizeof(tag));
    return WEFT_OK;
}

static weft_status aead_open(void *self, uint32_t slot, const uint8_t iv[WEFT_AEAD_IV_BYTES],
                             const struct weft_crypto_span *aad, size_t aad_count, uint8_t *text,
                             size_t text_bytes, const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    struct aead *aead = self;
    const struct slot *at = &aead->slots[slot];
    uint8_t seen[WEFT_AEAD_TAG_BYTES];
    WEFT_ASSERT(at->key_bytes > 0);
    for (size_t i = 0; i < sizeof(seen); i++) {
        seen[i] = (uint8_t)~tag[i];
    }
    if (text_bytes == 0 && aad_count > 1 && total(aad, aad_count) > sizeof(aead->aad)) {
        tag_of_many(aead, at, iv, aad, aad_count, seen);
    } else {
        const struct weft_crypto_span joined = join(aead, aad, aad_count);
        aes_gcm_enc_dec_t function =
            at->key_bytes == 16 ? manager->gcm128_dec : manager->gcm256_dec;
        function(&at->key, &aead->context, text, text, text_bytes, iv, joined.base, joined.bytes,
                 seen, sizeof(seen));
    }
    return CRYPTO_memcmp(seen, tag, sizeof(seen)) == 0 ? WEFT_OK : WEFT_PROTO;
}

/* Prefetch the parts needed for a short packet: the round keys, and the first powers of the hash
 * key, which are stored last. */
static void aead_prefetch(void *self, uint32_t slot)
{
    const struct aead *aead = self;
    const uint8_t *at = (const uint8_t *)&aead->slots[slot];
    for (size_t line = 0; line < sizeof(struct slot); line += LINE_BYTES) {
        if (line < PREFETCH_BYTES || line + PREFETCH_BYTES >= sizeof(struct slot)) {
            weft_prefetch(at + line);
        }
    }
}

const struct weft_aead_ops *weft_aead_ipsec_mb(struct weft_provider_aead *about_p)
{
    static const struct weft_aead_ops ops = {
        .make = aead_make,
        .free = aead_free,
        .set = aead_set,
        .clear = aead_clear,
        .seal = aead_seal,
        .open = aead_open,
        .prefetch = aead_prefetch,
    };
    (void)pthread_once(&once, prepare);
    *about_p = about;
    return manager != NULL ? &ops : NULL;
}
