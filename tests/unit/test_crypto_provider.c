/* The primitives compared with their published vectors, and AES-GCM with a slow implementation of
 * GCM: the vectors with additional data use nonces that no packet number yields.
 *
 * Source: RFC 7748 section 5.2; RFC 4231; FIPS 180-4 examples; McGrew and Viega, "The
 * Galois/Counter Mode of Operation", appendix B (the NIST vectors), cases 1, 2, 13, 14; SP 800-38D
 * section 7. */
#include "crypto/provider.h"

#include "base/prng.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>

enum { SLOTS = 4, TEXT_BYTES_MAX = 1500 };

static struct weft_provider *provider;
static struct weft_crypto crypto;

static int open_provider(void **state)
{
    (void)state;
    assert_int_equal(weft_provider_new(SLOTS, &provider), WEFT_OK);
    crypto = weft_provider_crypto(provider);
    return 0;
}

static int open_libcrypto(void **state)
{
    (void)state;
    assert_int_equal(weft_provider_new_libcrypto(SLOTS, &provider), WEFT_OK);
    crypto = weft_provider_crypto(provider);
    return 0;
}

/* AES-GCM is the fastest implementation on this host, unless configured otherwise. */
static void it_says_who_does_aes_gcm(void **state)
{
    (void)state;
    struct weft_provider *plain;
    const struct weft_provider_aead about = weft_provider_aead(provider);
    assert_true(strncmp(about.text, "ipsec-mb ", 9) == 0
                    ? about.advice[0] == '\0'
                    : strncmp(about.text, "libcrypto; ", 11) == 0);
    assert_int_equal(weft_provider_new_libcrypto(SLOTS, &plain), WEFT_OK);
    assert_string_equal(weft_provider_aead(plain).text, "libcrypto");
    weft_provider_free(plain);
}

static int close_provider(void **state)
{
    (void)state;
    weft_provider_free(provider);
    /* A failure in a test must not leave an error in libcrypto's queue for the application. */
    assert_int_equal(ERR_peek_error(), 0);
    return 0;
}

static size_t bytes_of(const char *hex, uint8_t *out)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned value = 0;
        for (size_t j = 2 * i; j < 2 * i + 2; j++) {
            char c = hex[j];
            value = value << 4 | (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
        }
        out[i] = (uint8_t)value;
    }
    return count;
}

static void assert_hex(const uint8_t *seen, const char *wanted)
{
    uint8_t bytes[64];
    size_t count = bytes_of(wanted, bytes);
    assert_memory_equal(seen, bytes, count);
}

/* ---- X25519 ---------------------------------------------------------------------------------- */

static void x25519_vectors(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
         "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
         "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"},
        {"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
         "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
         "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        uint8_t scalar[WEFT_DH_BYTES];
        uint8_t point[WEFT_DH_BYTES];
        uint8_t shared[WEFT_DH_BYTES];
        bytes_of(rows[i][0], scalar);
        bytes_of(rows[i][1], point);
        assert_int_equal(crypto.ops->dh(crypto.self, scalar, point, shared), WEFT_OK);
        assert_hex(shared, rows[i][2]);
    }
}

static void x25519_thousand_times(void **state)
{
    (void)state;
    uint8_t k[WEFT_DH_BYTES] = {9};
    uint8_t u[WEFT_DH_BYTES] = {9};
    for (int i = 1; i <= 1000; i++) {
        uint8_t next[WEFT_DH_BYTES];
        assert_int_equal(crypto.ops->dh(crypto.self, k, u, next), WEFT_OK);
        memcpy(u, k, sizeof(u));
        memcpy(k, next, sizeof(k));
        if (i == 1) {
            assert_hex(k, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
        }
    }
    assert_hex(k, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

static void two_ends_agree(void **state)
{
    (void)state;
    uint8_t secrets[2][WEFT_DH_BYTES];
    uint8_t publics[2][WEFT_DH_BYTES];
    uint8_t shared[2][WEFT_DH_BYTES];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(crypto.ops->dh_keypair(crypto.self, secrets[i], publics[i]), WEFT_OK);
    }
    assert_memory_not_equal(secrets[0], secrets[1], WEFT_DH_BYTES);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(crypto.ops->dh(crypto.self, secrets[i], publics[1 - i], shared[i]),
                         WEFT_OK);
    }
    assert_memory_equal(shared[0], shared[1], WEFT_DH_BYTES);
}

static void points_of_small_order_are_refused(void **state)
{
    (void)state;
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    uint8_t secret[WEFT_DH_BYTES];
    uint8_t public[WEFT_DH_BYTES];
    assert_int_equal(crypto.ops->dh_keypair(crypto.self, secret, public), WEFT_OK);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(points); i++) {
        uint8_t shared[WEFT_DH_BYTES] = {1, 2, 3};
        bytes_of(points[i], public);
        assert_int_equal(crypto.ops->dh(crypto.self, secret, public, shared), WEFT_PROTO);
        assert_int_equal(shared[0] + shared[1] + shared[2], 6); /* unchanged */
    }
}

/* ---- SHA-256 and HMAC ------------------------------------------------------------------------ */

/* The same text in one piece, and byte by byte with an empty span between. */
static void hash_both_ways(const char *text, const char *wanted)
{
    uint8_t out[WEFT_HASH_BYTES];
    size_t bytes = strlen(text);
    struct weft_crypto_span spans[2 * 128];
    for (size_t i = 0; i < bytes; i++) {
        spans[2 * i] = (struct weft_crypto_span){text + i, 1};
        spans[2 * i + 1] = (struct weft_crypto_span){NULL, 0};
    }
    crypto.ops->hash(crypto.self, &(struct weft_crypto_span){text, bytes}, 1, out);
    assert_hex(out, wanted);
    crypto.ops->hash(crypto.self, spans, 2 * bytes, out);
    assert_hex(out, wanted);
}

static void sha256_vectors(void **state)
{
    (void)state;
    hash_both_ways("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_both_ways("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_both_ways("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void hmac_is(const void *key, size_t key_bytes, const char *text, size_t bytes,
                    const char *wanted)
{
    uint8_t out[WEFT_HASH_BYTES];
    size_t half = bytes / 2;
    const struct weft_crypto_span spans[] = {{text, half}, {text + half, bytes - half}};
    crypto.ops->hmac(crypto.self, key, key_bytes, spans, 2, out);
    assert_hex(out, wanted);
}

static void hmac_vectors(void **state)
{
    (void)state;
    uint8_t key[131];
    char text[50];
    memset(key, 0x0b, 20);
    hmac_is(key, 20, "Hi There", 8,
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_is("Jefe", 4, "what do ya want for nothing?", 28,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    memset(text, (char)0xdd, 50);
    hmac_is(key, 20, text, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    static const char large_key[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    hmac_is(key, 131, large_key, sizeof(large_key) - 1,
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    static const char large_both[] =
        "This is a test using a larger than block-size key and a larger than block-size data. The "
        "key needs to be hashed before being used by the HMAC algorithm.";
    hmac_is(key, 131, large_both, sizeof(large_both) - 1,
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
    /* An absent key means an empty key, not the key of the previous call. */
    hmac_is(NULL, 0, "", 0, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

/* ---- AES-GCM --------------------------------------------------------------------------------- */

/* GCM as SP 800-38D writes it, bit by bit, over libcrypto's single-block AES. */
static void oracle_block(const uint8_t *key, size_t key_bytes, const uint8_t in[16],
                         uint8_t out[16])
{
    int done;
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    const EVP_CIPHER *ecb = key_bytes == 16 ? EVP_aes_128_ecb() : EVP_aes_256_ecb();
    assert_int_equal(EVP_EncryptInit_ex(context, ecb, NULL, key, NULL), 1);
    assert_int_equal(EVP_CIPHER_CTX_set_padding(context, 0), 1);
    assert_int_equal(EVP_EncryptUpdate(context, out, &done, in, 16), 1);
    EVP_CIPHER_CTX_free(context);
}

/* y = (y xor the next 16 bytes, padded with zeros) * h */
static void oracle_ghash(uint8_t y[16], const uint8_t h[16], const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count; at += 16) {
        uint8_t z[16] = {0};
        uint8_t v[16];
        memcpy(v, h, 16);
        for (size_t i = 0; i < 16 && at + i < count; i++) {
            y[i] ^= bytes[at + i];
        }
        for (int bit = 0; bit < 128; bit++) {
            for (int i = 0; i < 16 && (y[bit / 8] >> (7 - bit % 8) & 1) != 0; i++) {
                z[i] ^= v[i];
            }
            bool carry = (v[15] & 1) != 0;
            for (int i = 15; i >= 0; i--) {
                v[i] = (uint8_t)(v[i] >> 1 | (i > 0 ? v[i - 1] << 7 : 0));
            }
            v[0] ^= carry ? 0xe1 : 0;
        }
        memcpy(y, z, 16);
    }
}

static void oracle_seal(const uint8_t *key, size_t key_bytes, uint64_t nonce, const uint8_t *aad,
                        size_t aad_bytes, const uint8_t *text, size_t text_bytes, uint8_t *out,
                        uint8_t tag[16])
{
    uint8_t counter[16] = {0};
    uint8_t zero[16] = {0};
    uint8_t h[16];
    uint8_t mask[16];
    uint8_t lengths[16] = {0};
    oracle_block(key, key_bytes, zero, h);
    for (int i = 0; i < 8; i++) {
        counter[4 + i] = (uint8_t)(nonce >> (56 - 8 * i));
        lengths[i] = (uint8_t)((uint64_t)aad_bytes * 8 >> (56 - 8 * i));
        lengths[8 + i] = (uint8_t)((uint64_t)text_bytes * 8 >> (56 - 8 * i));
    }
    for (size_t at = 0; at < text_bytes; at += 16) {
        size_t block = at / 16 + 2;
        counter[14] = (uint8_t)(block >> 8);
        counter[15] = (uint8_t)block;
        oracle_block(key, key_bytes, counter, mask);
        for (size_t i = 0; i < 16 && at + i < text_bytes; i++) {
            out[at + i] = text[at + i] ^ mask[i];
        }
    }
    memset(tag, 0, 16);
    oracle_ghash(tag, h, aad, aad_bytes);
    oracle_ghash(tag, h, out, text_bytes);
    oracle_ghash(tag, h, lengths, 16);
    counter[14] = 0;
    counter[15] = 1;
    oracle_block(key, key_bytes, counter, mask);
    for (int i = 0; i < 16; i++) {
        tag[i] ^= mask[i];
    }
}

static void gcm_vectors(void **state)
{
    (void)state;
    static const struct {
        size_t key_bytes;
        size_t text_bytes;
        const char *cipher;
        const char *tag;
    } rows[] = {
        {16, 0, "", "58e2fccefa7e3061367f1d57a4e7455a"},
        {16, 16, "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
        {32, 0, "", "530f8afbc74536b9a963b4f1c4cb738b"},
        {32, 16, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
    };
    const uint8_t zeros[32] = {0};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        uint8_t out[16];
        uint8_t tag[16];
        const struct weft_crypto_span text = {zeros, rows[i].text_bytes};
        assert_int_equal(crypto.ops->aead_set(crypto.self, 0, zeros, rows[i].key_bytes), WEFT_OK);
        assert_int_equal(crypto.ops->aead_seal(crypto.self, 0, 0, NULL, 0, &text, 1, out, tag),
                         WEFT_OK);
        assert_hex(out, rows[i].cipher);
        assert_hex(tag, rows[i].tag);
    }
}

/* Split `bytes` into up to four spans at random places. */
static size_t cut(struct weft_prng *prng, const uint8_t *bytes, size_t count,
                  struct weft_crypto_span spans[4])
{
    size_t used = 0;
    while (used < 3 && count > 0) {
        size_t part = weft_prng_below(prng, count + 1);
        spans[used++] = (struct weft_crypto_span){bytes, part};
        bytes += part;
        count -= part;
    }
    spans[used++] = (struct weft_crypto_span){bytes, count};
    return used;
}

struct packet {
    uint8_t key[32];
    size_t key_bytes;
    uint64_t nonce;
    uint8_t aad[TEXT_BYTES_MAX];
    size_t aad_bytes;
    uint8_t text[TEXT_BYTES_MAX];
    size_t text_bytes;
};

static void draw(struct weft_prng *prng, struct packet *packet)
{
    packet->key_bytes = weft_prng_below(prng, 2) == 0 ? 16 : 32;
    packet->nonce = weft_prng_u64(prng);
    packet->aad_bytes = weft_prng_below(prng, 100);
    packet->text_bytes = weft_prng_below(prng, 4) == 0 ? 0 : weft_prng_below(prng, 200);
    for (size_t i = 0; i < sizeof(packet->key); i++) {
        packet->key[i] = (uint8_t)weft_prng_u64(prng);
    }
    for (size_t i = 0; i < TEXT_BYTES_MAX; i++) {
        packet->aad[i] = (uint8_t)weft_prng_u64(prng);
        packet->text[i] = (uint8_t)weft_prng_u64(prng);
    }
}

static void gcm_equals_the_oracle(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 7);
    for (int round = 0; round < 200; round++) {
        static struct packet packet;
        uint8_t wanted[TEXT_BYTES_MAX];
        uint8_t wanted_tag[16];
        uint8_t out[TEXT_BYTES_MAX];
        uint8_t tag[16];
        struct weft_crypto_span aad[4];
        struct weft_crypto_span text[4];
        draw(&prng, &packet);
        uint32_t slot = (uint32_t)weft_prng_below(&prng, SLOTS);
        oracle_seal(packet.key, packet.key_bytes, packet.nonce, packet.aad, packet.aad_bytes,
                    packet.text, packet.text_bytes, wanted, wanted_tag);
        size_t aad_count = cut(&prng, packet.aad, packet.aad_bytes, aad);
        size_t text_count =
            packet.text_bytes > 0 ? cut(&prng, packet.text, packet.text_bytes, text) : 0;
        assert_int_equal(crypto.ops->aead_set(crypto.self, slot, packet.key, packet.key_bytes),
                         WEFT_OK);
        assert_int_equal(crypto.ops->aead_seal(crypto.self, slot, packet.nonce, aad, aad_count,
                                               text, text_count, text_count > 0 ? out : NULL, tag),
                         WEFT_OK);
        assert_memory_equal(out, wanted, packet.text_bytes);
        assert_memory_equal(tag, wanted_tag, 16);
        /* A slot can open its own output. */
        assert_int_equal(crypto.ops->aead_open(crypto.self, slot, packet.nonce, aad, aad_count, out,
                                               packet.text_bytes, tag),
                         WEFT_OK);
        assert_memory_equal(out, packet.text, packet.text_bytes);
    }
}

/* Change any bit of the tag, additional data, text or nonce; a valid packet can still be opened
 * afterwards. */
static void one_bit_is_enough(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 8);
    static struct packet packet;
    draw(&prng, &packet);
    packet.aad_bytes = 48;
    packet.text_bytes = 100;
    uint8_t sealed[100];
    uint8_t tag[16];
    const struct weft_crypto_span aad = {packet.aad, packet.aad_bytes};
    const struct weft_crypto_span text = {packet.text, packet.text_bytes};
    assert_int_equal(crypto.ops->aead_set(crypto.self, 1, packet.key, 16), WEFT_OK);
    assert_int_equal(
        crypto.ops->aead_seal(crypto.self, 1, packet.nonce, &aad, 1, &text, 1, sealed, tag),
        WEFT_OK);
    for (size_t bit = 0; bit < 8 * (16 + 48 + 100 + 8); bit++) {
        uint8_t copy[100];
        uint64_t nonce = packet.nonce;
        size_t byte = bit / 8;
        uint8_t flip = (uint8_t)(1u << bit % 8);
        memcpy(copy, sealed, sizeof(copy));
        uint8_t *hit = byte < 16              ? &tag[byte]
                       : byte < 16 + 48       ? &packet.aad[byte - 16]
                       : byte < 16 + 48 + 100 ? &copy[byte - 64]
                                              : NULL;
        if (hit != NULL) {
            *hit ^= flip;
        } else {
            nonce ^= UINT64_C(1) << (bit - 8 * 164);
        }
        assert_int_equal(crypto.ops->aead_open(crypto.self, 1, nonce, &aad, 1, copy, 100, tag),
                         WEFT_PROTO);
        if (hit != NULL) {
            *hit ^= flip;
        }
    }
    assert_int_equal(crypto.ops->aead_open(crypto.self, 1, packet.nonce, &aad, 1, sealed, 100, tag),
                     WEFT_OK);
    assert_memory_equal(sealed, packet.text, 100);
}

/* Clearing, setting anew and other slots do not disturb a slot. */
static void slots_are_apart(void **state)
{
    (void)state;
    static const uint8_t keys[2][16] = {{1}, {2}};
    uint8_t tags[3][16];
    const struct weft_crypto_span aad = {"header", 6};
    crypto.ops->aead_clear(crypto.self, 2); /* a slot that never had a key */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(crypto.ops->aead_set(crypto.self, i, keys[i], 16), WEFT_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(crypto.ops->aead_seal(crypto.self, i, 5, &aad, 1, NULL, 0, NULL, tags[i]),
                         WEFT_OK);
    }
    assert_memory_not_equal(tags[0], tags[1], 16);
    crypto.ops->aead_clear(crypto.self, 0);
    crypto.ops->aead_clear(crypto.self, 0);
    assert_int_equal(crypto.ops->aead_set(crypto.self, 0, keys[1], 16), WEFT_OK);
    assert_int_equal(crypto.ops->aead_seal(crypto.self, 0, 5, &aad, 1, NULL, 0, NULL, tags[2]),
                     WEFT_OK);
    assert_memory_equal(tags[2], tags[1], 16);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void random_bytes_differ(void **state)
{
    (void)state;
    uint8_t a[32] = {0};
    uint8_t b[32] = {0};
    assert_int_equal(crypto.ops->random(crypto.self, a, sizeof(a)), WEFT_OK);
    assert_int_equal(crypto.ops->random(crypto.self, b, sizeof(b)), WEFT_OK);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(crypto.ops->random(crypto.self, a, 0), WEFT_OK);
}

static void wipe_wipes(void **state)
{
    (void)state;
    uint8_t bytes[4] = {1, 2, 3, 4};
    crypto.ops->wipe(crypto.self, bytes + 1, 2);
    assert_memory_equal(bytes, ((uint8_t[]){1, 0, 0, 4}), 4);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_provider, close_provider)
#define LIBCRYPTO(name)                                                                            \
    {                                                                                              \
#name " (libcrypto)", name, open_libcrypto, close_provider, NULL                           \
    }
    const struct CMUnitTest tests[] = {
        CASE(x25519_vectors),
        CASE(x25519_thousand_times),
        CASE(two_ends_agree),
        CASE(points_of_small_order_are_refused),
        CASE(sha256_vectors),
        CASE(hmac_vectors),
        CASE(gcm_vectors),
        LIBCRYPTO(gcm_vectors),
        CASE(gcm_equals_the_oracle),
        LIBCRYPTO(gcm_equals_the_oracle),
        CASE(one_bit_is_enough),
        LIBCRYPTO(one_bit_is_enough),
        CASE(slots_are_apart),
        LIBCRYPTO(slots_are_apart),
        CASE(it_says_who_does_aes_gcm),
        CASE(random_bytes_differ),
        CASE(wipe_wipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
