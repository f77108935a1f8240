/* core/noise.c with libcrypto's primitives against the published vector of this pattern: cacophony,
 * github.com/haskell-cryptography/cacophony, vectors/cacophony.txt (public domain), protocol_name
 * Noise_NNpsk0_25519_AESGCM_SHA256. The test runs both ends, so every message is written and
 * read. */
#include "core/noise.h"

#include "base/units.h"
#include "crypto/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MESSAGES = 6, TEXT_MAX = 64 };

static const char PROLOGUE[] = "4a6f686e2047616c74";
static const char PSK[] = "54686973206973206d7920417573747269616e20706572737065637469766521";
static const char SECRETS[2][65] = {
    "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
};
static const char HASH[] = "9f3b1f9afd7767767b5b9d1069844a6154fdbdcc36dfb3e31c0fffc5c973d530";
static const char PAYLOADS[MESSAGES][64] = {
    "4c756477696720766f6e204d69736573",   "4d757272617920526f746862617264",
    "462e20412e20486179656b",             "4361726c204d656e676572",
    "4a65616e2d426170746973746520536179", "457567656e2042f6686d20766f6e2042617765726b",
};
static const char CIPHERTEXTS[MESSAGES][144] = {
    "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
    "7c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1",
    "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
    "2f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461",
    "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6",
    "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0",
    "6cfc49a3e65472edc2d0152abe5ce950170a8a47c959f30bd48b5f0aacf29adbfd",
    "9bc86e6d974ed21ba04604a94aa68de21677eb409ead070c0cd569b069ee19ba142aa4c1a9",
};

static size_t hex(const char *text, uint8_t *bytes_p)
{
    size_t count = strlen(text) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned value;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
        bytes_p[i] = (uint8_t)value;
    }
    return count;
}

/* The real provider, except that it returns the vector's ephemeral keys in sequence. */
static struct weft_crypto real;
static unsigned pairs;

static weft_status fixed_keypair(void *self, uint8_t *secret_p, uint8_t *public_p)
{
    (void)self;
    uint8_t message[TEXT_MAX + 32];
    (void)hex(CIPHERTEXTS[pairs], message);
    (void)hex(SECRETS[pairs++], secret_p);
    memcpy(public_p, message, WEFT_DH_BYTES); /* a message begins with the public key */
    return WEFT_OK;
}

static void check(const char *expected, const void *bytes, size_t count)
{
    uint8_t right[128];
    assert_int_equal(hex(expected, right), count);
    assert_memory_equal(bytes, right, count);
}

/* Ephemeral key, encrypted payload, tag: what Noise calls the message. */
static void check_message(unsigned i, const uint8_t *ephemeral, const uint8_t *text, size_t bytes,
                          const uint8_t *tag)
{
    uint8_t message[128];
    memcpy(message, ephemeral, 32);
    memcpy(message + 32, text, bytes);
    memcpy(message + 32 + bytes, tag, 16);
    check(CIPHERTEXTS[i], message, 32 + bytes + 16);
}

static void the_published_vector(void **state)
{
    (void)state;
    struct weft_provider *provider;
    assert_int_equal(weft_provider_new(2, &provider), WEFT_OK);
    real = weft_provider_crypto(provider);
    struct weft_crypto_ops ops = *real.ops;
    ops.dh_keypair = fixed_keypair;
    struct weft_crypto crypto = {.ops = &ops, .self = real.self};

    uint8_t psk[WEFT_PSK_BYTES], prologue[16], text[TEXT_MAX], ephemeral[32], tag[16];
    struct weft_crypto_span span = {prologue, hex(PROLOGUE, prologue)};
    struct weft_noise a, b;
    assert_int_equal(hex(PSK, psk), sizeof(psk));
    weft_noise_init(&a, &crypto, 0, psk, &span, 1);
    weft_noise_init(&b, &crypto, 0, psk, &span, 1);

    size_t bytes = hex(PAYLOADS[0], text);
    assert_int_equal(weft_noise_hello_write(&a, text, bytes, ephemeral, tag), WEFT_OK);
    check_message(0, ephemeral, text, bytes, tag);
    assert_int_equal(weft_noise_hello_read(&b, ephemeral, text, bytes, tag), WEFT_OK);
    check(PAYLOADS[0], text, bytes);

    bytes = hex(PAYLOADS[1], text);
    assert_int_equal(weft_noise_accept_write(&b, text, bytes, ephemeral, tag), WEFT_OK);
    check_message(1, ephemeral, text, bytes, tag);
    assert_int_equal(weft_noise_accept_read(&a, ephemeral, text, bytes, tag), WEFT_OK);
    check(PAYLOADS[1], text, bytes);
    check(HASH, a.h, sizeof(a.h));
    check(HASH, b.h, sizeof(b.h));

    /* The vector continues with AES-256-GCM under both keys of Split, with counters from 0. */
    uint8_t keys[2][WEFT_HASH_BYTES];
    weft_noise_split(&a, keys[0], keys[1]);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ops.aead_set(crypto.self, i, keys[i], 32), WEFT_OK);
    }
    for (unsigned i = 2; i < MESSAGES; i++) {
        uint8_t out[TEXT_MAX];
        bytes = hex(PAYLOADS[i], text);
        struct weft_crypto_span in = {text, bytes};
        assert_int_equal(
            ops.aead_seal(crypto.self, i % 2, i / 2 - 1, NULL, 0, &in, 1, out, out + bytes),
            WEFT_OK);
        check(CIPHERTEXTS[i], out, bytes + 16);
    }
    weft_noise_wipe(&a);
    weft_noise_wipe(&b);
    weft_provider_free(provider);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
