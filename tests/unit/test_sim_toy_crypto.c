/* The toy cryptography: the properties that core needs, and the three kinds of misuse that it must
 * detect. */
#include "base/assert.h"
#include "base/units.h"
#include "sim/toy_crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 100 };

static struct weft_toy_crypto *toy;
static struct weft_crypto c;

static int setup(void **state)
{
    (void)state;
    static const uint8_t key[32] = "some key or other, two or three";
    toy = weft_toy_crypto_new(1, 3);
    c = weft_toy_crypto_ops(toy);
    assert_int_equal(c.ops->aead_set(c.self, 0, key, 16), WEFT_OK);
    assert_int_equal(c.ops->aead_set(c.self, 1, key, 32), WEFT_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weft_toy_crypto_free(toy);
    return 0;
}

static void both_ends_of_a_dh_agree(void **state)
{
    (void)state;
    uint8_t secret[2][32], public[2][32], shared[2][32], zero[32] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.ops->dh_keypair(c.self, secret[i], public[i]), WEFT_OK);
    }
    assert_int_equal(c.ops->dh(c.self, secret[0], public[1], shared[0]), WEFT_OK);
    assert_int_equal(c.ops->dh(c.self, secret[1], public[0], shared[1]), WEFT_OK);
    assert_memory_equal(shared[0], shared[1], 32);
    assert_memory_not_equal(shared[0], public[0], 32);
    assert_int_equal(c.ops->dh(c.self, secret[0], zero, shared[0]), WEFT_PROTO);
}

static void spans_may_be_cut_anywhere(void **state)
{
    (void)state;
    uint8_t bytes[BYTES], whole[32], parts[32];
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i * 37);
    }
    struct weft_crypto_span one = {bytes, BYTES};
    c.ops->hash(c.self, &one, 1, whole);
    for (size_t at = 0; at <= BYTES; at++) {
        struct weft_crypto_span two[2] = {{bytes, at}, {bytes + at, BYTES - at}};
        c.ops->hash(c.self, two, 2, parts);
        assert_memory_equal(whole, parts, 32);
        one.bytes = at;
        c.ops->hash(c.self, &one, 1, parts);
        assert_true(at == BYTES || memcmp(whole, parts, 32) != 0);
    }
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint8_t packet[BYTES + 16] = {1, 2, 3};
    struct weft_crypto_span aad = {packet, 16};
    struct weft_crypto_span text = {packet + 16, BYTES - 16};
    uint8_t sealed[BYTES + 16];
    memcpy(sealed, packet, 16);
    assert_int_equal(c.ops->aead_seal(c.self, 0, 7, &aad, 1, &text, 1, sealed + 16, sealed + BYTES),
                     WEFT_OK);
    assert_memory_not_equal(sealed + 16, packet + 16, BYTES - 16);
    for (size_t bit = 0; bit <= 8 * sizeof(sealed); bit++) {
        uint8_t copy[sizeof(sealed)];
        memcpy(copy, sealed, sizeof(copy));
        if (bit < 8 * sizeof(sealed)) {
            copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        aad.base = copy;
        assert_int_equal(
            c.ops->aead_open(c.self, 0, 7, &aad, 1, copy + 16, BYTES - 16, copy + BYTES),
            bit < 8 * sizeof(sealed) ? WEFT_PROTO : WEFT_OK);
    }
    aad.base = sealed;
    assert_int_equal(
        c.ops->aead_open(c.self, 0, 8, &aad, 1, sealed + 16, BYTES - 16, sealed + BYTES),
        WEFT_PROTO); /* another nonce */
}

static void seal_once(uint32_t slot, uint64_t nonce, uint8_t byte)
{
    uint8_t tag[16];
    struct weft_crypto_span aad = {&byte, 1};
    assert_int_equal(c.ops->aead_seal(c.self, slot, nonce, &aad, 1, NULL, 0, NULL, tag), WEFT_OK);
}

static void nonce_again(void)
{
    seal_once(0, 5, 1);
    seal_once(0, 5, 1);
}

static void handshake_again(void)
{
    seal_once(1, 0, 1);
    seal_once(1, 0, 2);
}

static void no_key(void)
{
    seal_once(2, 1, 1);
}

static jmp_buf after_handler;

[[gnu::noreturn]] static void catch (const char *file, int line, const char *expression)
{
    (void)file;
    (void)line;
    (void)expression;
    longjmp(after_handler, 1);
}

static bool asserts(void (*what)(void))
{
    volatile bool caught = true;
    weft_assert_set_handler(catch);
    if (setjmp(after_handler) == 0) {
        what();
        caught = false;
    }
    weft_assert_set_handler(NULL);
    return caught;
}

static void misuse_is_asserted(void **state)
{
    (void)state;
    assert_true(asserts(nonce_again));
    assert_true(asserts(handshake_again));
    assert_true(asserts(no_key));
    seal_once(1, 0, 1); /* repeating the same message is allowed */
    seal_once(1, 0, 1);
    seal_once(0, 6, 1);
    seal_once(0, 7, 1);
}

static void it_fails_when_told(void **state)
{
    (void)state;
    uint8_t bytes[32];
    weft_toy_crypto_fail(toy, WEFT_STATE);
    assert_int_equal(c.ops->random(c.self, bytes, sizeof(bytes)), WEFT_STATE);
    assert_int_equal(c.ops->dh_keypair(c.self, bytes, bytes), WEFT_STATE);
    assert_int_equal(c.ops->aead_set(c.self, 0, bytes, 16), WEFT_STATE);
    weft_toy_crypto_fail(toy, WEFT_OK);
    assert_int_equal(c.ops->random(c.self, bytes, sizeof(bytes)), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_ends_of_a_dh_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(spans_may_be_cut_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(every_bit_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(misuse_is_asserted, setup, teardown),
        cmocka_unit_test_setup_teardown(it_fails_when_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
