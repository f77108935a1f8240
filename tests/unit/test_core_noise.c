/* Noise_NNpsk0_25519_AESGCM_SHA256 between two ends of this implementation, with toy primitives.
 * test_crypto_noise.c checks the published vector with libcrypto. */
#include "core/noise.h"

#include "base/units.h"
#include "sim/toy_crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_MAX = 64 };

struct two {
    struct weft_toy_crypto *toy;
    struct weft_crypto crypto;
    struct weft_noise a;
    struct weft_noise b;
    uint8_t ephemeral[WEFT_DH_BYTES];
    uint8_t tag[WEFT_AEAD_TAG_BYTES];
};

static const uint8_t PSK[WEFT_PSK_BYTES] = "thirty-two bytes that all share!";

static void begin(struct two *t, const uint8_t *psk_b, const char *prologue_b)
{
    struct weft_crypto_span a = {"prologue", 8};
    struct weft_crypto_span b = {prologue_b, strlen(prologue_b)};
    t->toy = weft_toy_crypto_new(1, 1);
    t->crypto = weft_toy_crypto_ops(t->toy);
    weft_noise_init(&t->a, &t->crypto, 0, PSK, &a, 1);
    weft_noise_init(&t->b, &t->crypto, 0, psk_b, &b, 1);
}

static void both_ends_get_the_same_keys(void **state)
{
    (void)state;
    struct two t;
    uint8_t text[TEXT_MAX] = "ping";
    begin(&t, PSK, "prologue");
    assert_int_equal(weft_noise_hello_write(&t.a, text, 4, t.ephemeral, t.tag), WEFT_OK);
    assert_memory_not_equal(text, "ping", 4);
    assert_int_equal(weft_noise_hello_read(&t.b, t.ephemeral, text, 4, t.tag), WEFT_OK);
    assert_memory_equal(text, "ping", 4);
    assert_int_equal(weft_toy_crypto_dhs(t.toy), 0); /* the psk is proven before any DH */
    assert_int_equal(weft_noise_accept_write(&t.b, NULL, 0, t.ephemeral, t.tag), WEFT_OK);
    assert_int_equal(weft_noise_accept_read(&t.a, t.ephemeral, NULL, 0, t.tag), WEFT_OK);
    uint8_t a1[32], a2[32], b1[32], b2[32];
    weft_noise_split(&t.a, a1, a2);
    weft_noise_split(&t.b, b1, b2);
    assert_memory_equal(a1, b1, 32);
    assert_memory_equal(a2, b2, 32);
    assert_memory_not_equal(a1, a2, 32);
    static const struct weft_noise zero;
    weft_noise_wipe(&t.a);
    assert_memory_equal(&t.a, &zero, sizeof(zero));
    weft_toy_crypto_free(t.toy);
}

static void another_psk_or_prologue_is_refused(void **state)
{
    (void)state;
    static const uint8_t other[WEFT_PSK_BYTES] = "thirty-two bytes that all share?";
    for (int i = 0; i < 2; i++) {
        struct two t;
        begin(&t, i == 0 ? other : PSK, i == 0 ? "prologue" : "prologuf");
        assert_int_equal(weft_noise_hello_write(&t.a, NULL, 0, t.ephemeral, t.tag), WEFT_OK);
        assert_int_equal(weft_noise_hello_read(&t.b, t.ephemeral, NULL, 0, t.tag), WEFT_PROTO);
        weft_toy_crypto_free(t.toy);
    }
}

static void every_bit_of_both_messages_counts(void **state)
{
    (void)state;
    struct two t;
    uint8_t text[TEXT_MAX] = "ping";
    uint8_t message[WEFT_DH_BYTES + WEFT_AEAD_TAG_BYTES + 4];
    begin(&t, PSK, "prologue");
    for (int round = 0; round < 2; round++) {
        uint8_t *ephemeral = message;
        uint8_t *tag = message + WEFT_DH_BYTES;
        uint8_t *body = tag + WEFT_AEAD_TAG_BYTES;
        memcpy(body, text, 4);
        assert_int_equal(round == 0 ? weft_noise_hello_write(&t.a, body, 4, ephemeral, tag)
                                    : weft_noise_accept_write(&t.b, body, 4, ephemeral, tag),
                         WEFT_OK);
        for (size_t bit = 0; bit <= 8 * sizeof(message); bit++) {
            uint8_t copy[sizeof(message)];
            struct weft_noise reader = round == 0 ? t.b : t.a;
            memcpy(copy, message, sizeof(copy));
            bool changed = bit < 8 * sizeof(message);
            if (changed) {
                copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
            }
            weft_status status =
                round == 0 ? weft_noise_hello_read(&reader, copy, copy + 48, 4, copy + 32)
                           : weft_noise_accept_read(&reader, copy, copy + 48, 4, copy + 32);
            assert_int_equal(status, changed ? WEFT_PROTO : WEFT_OK);
            if (!changed) {
                *(round == 0 ? &t.b : &t.a) = reader;
            }
        }
    }
    weft_toy_crypto_free(t.toy);
}

static void a_provider_that_fails_is_told_of(void **state)
{
    (void)state;
    struct two t;
    begin(&t, PSK, "prologue");
    assert_int_equal(weft_noise_hello_write(&t.a, NULL, 0, t.ephemeral, t.tag), WEFT_OK);
    weft_toy_crypto_fail(t.toy, WEFT_STATE);
    struct weft_noise copy = t.b;
    assert_int_equal(weft_noise_hello_read(&copy, t.ephemeral, NULL, 0, t.tag), WEFT_STATE);
    assert_int_equal(weft_noise_accept_write(&t.b, NULL, 0, t.ephemeral, t.tag), WEFT_STATE);
    weft_toy_crypto_free(t.toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_get_the_same_keys),
        cmocka_unit_test(another_psk_or_prologue_is_refused),
        cmocka_unit_test(every_bit_of_both_messages_counts),
        cmocka_unit_test(a_provider_that_fails_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
