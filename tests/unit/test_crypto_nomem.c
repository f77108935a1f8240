/* Allocation failures inside and outside libcrypto: the n-th allocation fails, alone or with all
 * after it, for n = 1, 2, 3, ... until a run succeeds. Each failure must be returned as a status;
 * after a failure of hash or hmac, which return none, the provider must refuse further calls.
 * libcrypto's allocations are counted through CRYPTO_set_mem_functions, ours through --wrap.
 */
#include "crypto/job_key.h"
#include "crypto/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* mmap64, because the build asks for 64-bit file offsets. */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t offset);

static weft_status (*new_provider)(uint32_t slots, struct weft_provider **provider_p);

static uint32_t until_failure = UINT32_MAX; /* allocations that still succeed; UINT32_MAX = all */

static bool fails_once;
static bool has_failed;

static bool may_allocate(void)
{
    if (until_failure == 0) {
        has_failed = true;
        until_failure = fails_once ? UINT32_MAX : 0;
        return false;
    }
    until_failure -= until_failure != UINT32_MAX;
    return true;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_mmap64(void *start, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return may_allocate() ? __real_mmap64(start, bytes, protection, flags, fd, offset) : MAP_FAILED;
}

static void *crypto_malloc(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return may_allocate() ? malloc(bytes) : NULL;
}

static void *crypto_realloc(void *block, size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return may_allocate() ? realloc(block, bytes) : NULL;
}

static void crypto_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    free(block);
}

/* The operations of a handshake, until the first one fails. *hashed_p: both hashes are correct. */
static weft_status everything(bool *hashed_p)
{
    static const uint8_t key[32] = {1};
    static const uint8_t sha256_of_nothing[] = {0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14};
    static const uint8_t hmac_of_nothing[] = {0xb6, 0x13, 0x67, 0x9a, 0x08, 0x14, 0xd9, 0xec};
    uint8_t secret[32];
    uint8_t public[32];
    uint8_t out[32] = {0};
    uint8_t tag[16];
    const struct weft_crypto_span text = {"text", 4};
    struct weft_provider *provider;
    *hashed_p = false;
    weft_status status = new_provider(4, &provider);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_crypto crypto = weft_provider_crypto(provider);
    status = crypto.ops->dh_keypair(crypto.self, secret, public);
    if (status == WEFT_OK) {
        status = crypto.ops->dh(crypto.self, secret, public, out);
    }
    if (status == WEFT_OK) {
        crypto.ops->hash(crypto.self, NULL, 0, out);
        *hashed_p = memcmp(out, sha256_of_nothing, sizeof(sha256_of_nothing)) == 0;
        crypto.ops->hmac(crypto.self, NULL, 0, NULL, 0, out);
        *hashed_p = *hashed_p && memcmp(out, hmac_of_nothing, sizeof(hmac_of_nothing)) == 0;
        status = crypto.ops->aead_set(crypto.self, 0, key, 16);
    }
    if (status == WEFT_OK) {
        status = crypto.ops->aead_set(crypto.self, 1, key, 32);
    }
    for (uint32_t i = 0; status == WEFT_OK && i < 2; i++) {
        status = crypto.ops->aead_seal(crypto.self, i, 1, &text, 1, &text, 1, out, tag);
        if (status == WEFT_OK) {
            status = crypto.ops->aead_open(crypto.self, i, 1, &text, 1, out, 4, tag);
        }
    }
    weft_provider_free(provider);
    return status;
}

/* Returns how many of the rounds failed. */
static uint32_t every_allocation_in_turn(bool once)
{
    uint32_t failures = 0;
    bool hashed;
    fails_once = once;
    for (uint32_t n = 0;; n++) {
        assert_true(n < 10000);
        has_failed = false;
        until_failure = n;
        weft_status status = everything(&hashed);
        until_failure = UINT32_MAX;
        ERR_clear_error();
        if (status == WEFT_OK) {
            assert_true(hashed); /* a wrong hash must not be combined with status OK */
            if (!has_failed) {
                return failures;
            }
        } else {
            failures++;
            assert_true(status == WEFT_NOMEM || status == WEFT_UNSUPPORTED || status == WEFT_IO ||
                        status == WEFT_PROTO);
        }
    }
}

static void provider_without_memory(void **state)
{
    (void)state;
    bool hashed;
    /* Once with all memory: libcrypto reads its configuration, seeds its generators. */
    assert_int_equal(everything(&hashed), WEFT_OK);
    assert_true(hashed);
    assert_true(every_allocation_in_turn(false) > 20); /* otherwise no allocation failed */
    assert_true(every_allocation_in_turn(true) > 20);
}

static void packets_need_no_memory(void **state)
{
    (void)state;
    static const uint8_t key[16] = {1};
    uint8_t payload[1440] = {0};
    uint8_t tag[16];
    const struct weft_crypto_span aad[] = {{payload, 48}, {payload + 48, 1392}};
    struct weft_provider *provider;
    assert_int_equal(new_provider(2, &provider), WEFT_OK);
    struct weft_crypto crypto = weft_provider_crypto(provider);
    assert_int_equal(crypto.ops->aead_set(crypto.self, 0, key, sizeof(key)), WEFT_OK);
    until_failure = 0;
    weft_status sealed = crypto.ops->aead_seal(crypto.self, 0, 1, aad, 2, NULL, 0, NULL, tag);
    weft_status opened = crypto.ops->aead_open(crypto.self, 0, 1, aad, 2, NULL, 0, tag);
    weft_status text = crypto.ops->aead_seal(crypto.self, 0, 2, aad, 1, aad, 2, payload, tag);
    until_failure = UINT32_MAX;
    assert_int_equal(sealed, WEFT_OK);
    assert_int_equal(opened, WEFT_OK);
    assert_int_equal(text, WEFT_OK);
    weft_provider_free(provider);
}

static int any_aead(void **state)
{
    (void)state;
    new_provider = weft_provider_new;
    return 0;
}

static int libcrypto_aead(void **state)
{
    (void)state;
    new_provider = weft_provider_new_libcrypto;
    return 0;
}

static void key_without_memory(void **state)
{
    (void)state;
    struct weft_error error;
    struct weft_job_key *key = NULL;
    until_failure = 0;
    weft_status status = weft_job_key_random(&key, &error);
    until_failure = UINT32_MAX;
    assert_int_equal(status, WEFT_NOMEM);
    assert_null(key);
}

int main(void)
{
    /* Must precede libcrypto's first allocation. */
    if (CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) != 1) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(provider_without_memory, any_aead),
        cmocka_unit_test_setup(packets_need_no_memory, any_aead),
        {"provider_without_memory (libcrypto)", provider_without_memory, libcrypto_aead, NULL,
         NULL},
        {"packets_need_no_memory (libcrypto)", packets_need_no_memory, libcrypto_aead, NULL, NULL},
        cmocka_unit_test(key_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
