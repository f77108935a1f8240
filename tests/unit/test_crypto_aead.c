/* AES-GCM of ipsec-mb compared with libcrypto: equal bytes for all lengths and splits, each opens
 * the output of the other, and no byte outside the given ranges is accessed. Buffers end at an
 * inaccessible page, because the sanitizers do not check the library's assembler code.
 *
 * Skipped if the provider has no ipsec-mb; test_crypto_provider.c has the published vectors for
 * both. */
#include "crypto/provider.h"

#include "base/prng.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPANS = 6, BYTES_MAX = 65536, AAD_BESIDE_TEXT_MAX = 1024, TAG = WEFT_AEAD_TAG_BYTES };

static struct weft_provider *providers[2]; /* libcrypto, ipsec-mb */
static struct weft_crypto cryptos[2];
static struct weft_prng prng;

/* Memory that ends at an inaccessible page. */
static uint8_t *edge(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *start =
        mmap(NULL, BYTES_MAX + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(start, MAP_FAILED);
    assert_int_equal(mprotect(start + BYTES_MAX, page, PROT_NONE), 0);
    return start + BYTES_MAX;
}

static uint8_t *aad_end;
static uint8_t *text_end;
static uint8_t *out_end[2];

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(weft_provider_new_libcrypto(2, &providers[0]), WEFT_OK);
    assert_int_equal(weft_provider_new(2, &providers[1]), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        cryptos[i] = weft_provider_crypto(providers[i]);
        out_end[i] = edge();
    }
    aad_end = edge();
    text_end = edge();
    weft_prng_init(&prng, 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const ends[] = {aad_end, text_end, out_end[0], out_end[1]};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(ends); i++) {
        assert_int_equal(munmap(ends[i] - BYTES_MAX, BYTES_MAX + page), 0);
    }
    weft_provider_free(providers[0]);
    weft_provider_free(providers[1]);
    return 0;
}

static void skip_without_ipsec_mb(void)
{
    const struct weft_provider_aead about = weft_provider_aead(providers[1]);
    if (strncmp(about.text, "ipsec-mb", 8) != 0) {
        print_message("AES-GCM here: %s\n", about.text);
        skip();
    }
}

static void draw(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)weft_prng_u64(&prng);
    }
}

static void draw_key(size_t key_bytes)
{
    uint8_t key[32];
    draw(key, sizeof(key));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cryptos[i].ops->aead_set(cryptos[i].self, 0, key, key_bytes), WEFT_OK);
    }
}

/* Split into 1 to SPANS spans at random places, some of them empty. */
static size_t cut(const uint8_t *bytes, size_t count, struct weft_crypto_span spans[SPANS])
{
    size_t used = 0;
    size_t wanted = weft_prng_below(&prng, SPANS);
    while (used < wanted) {
        size_t part = weft_prng_below(&prng, weft_prng_below(&prng, 2) == 0 ? 20 : count + 1);
        part = part < count ? part : count;
        spans[used++] = (struct weft_crypto_span){part > 0 ? bytes : NULL, part};
        bytes += part;
        count -= part;
    }
    spans[used++] = (struct weft_crypto_span){count > 0 ? bytes : NULL, count};
    return used;
}

/* Seal with both, compare, open each with the other. */
static void both_agree(size_t aad_bytes, size_t text_bytes)
{
    struct weft_crypto_span aad[SPANS];
    struct weft_crypto_span text[SPANS];
    uint8_t tags[2][TAG];
    uint64_t nonce = weft_prng_u64(&prng);
    uint8_t *clear = text_end - text_bytes;
    draw(aad_end - aad_bytes, aad_bytes);
    draw(clear, text_bytes);
    size_t aad_count = cut(aad_end - aad_bytes, aad_bytes, aad);
    size_t text_count = cut(clear, text_bytes, text);
    for (int i = 0; i < 2; i++) {
        uint8_t *out = out_end[i] - text_bytes;
        out[-1] = 0x5a;
        assert_int_equal(cryptos[i].ops->aead_seal(cryptos[i].self, 0, nonce, aad, aad_count, text,
                                                   text_count, out, tags[i]),
                         WEFT_OK);
        assert_int_equal(out[-1], 0x5a);
    }
    assert_memory_equal(out_end[0] - text_bytes, out_end[1] - text_bytes, text_bytes);
    assert_memory_equal(tags[0], tags[1], TAG);
    aad_count = cut(aad_end - aad_bytes, aad_bytes, aad);
    for (int i = 0; i < 2; i++) {
        uint8_t *sealed = out_end[1 - i] - text_bytes;
        assert_int_equal(cryptos[i].ops->aead_open(cryptos[i].self, 0, nonce, aad, aad_count,
                                                   text_bytes > 0 ? sealed : NULL, text_bytes,
                                                   tags[1 - i]),
                         WEFT_OK);
        assert_memory_equal(sealed, clear, text_bytes);
        assert_int_equal(sealed[-1], 0x5a);
    }
}

static void all_lengths_of_text(void **state)
{
    (void)state;
    skip_without_ipsec_mb();
    for (size_t key_bytes = 16; key_bytes <= 32; key_bytes += 16) {
        for (size_t bytes = 0; bytes <= 1500; bytes += bytes == 320 ? 1080 : 1) {
            draw_key(key_bytes);
            both_agree(weft_prng_below(&prng, 300), bytes);
            both_agree(20, bytes);
        }
        both_agree(AAD_BESIDE_TEXT_MAX, 9000);
        both_agree(17, BYTES_MAX - 100);
    }
}

static void all_lengths_of_additional_data(void **state)
{
    (void)state;
    skip_without_ipsec_mb();
    for (size_t key_bytes = 16; key_bytes <= 32; key_bytes += 16) {
        for (size_t bytes = 0; bytes <= 1500; bytes += bytes == 320 ? 680 : 1) {
            draw_key(key_bytes);
            both_agree(bytes, 0);
            both_agree(bytes, 0);
        }
        both_agree(9000, 0);
        both_agree(BYTES_MAX - 100, 0);
    }
}

/* Seal in place. */
static void sealed_in_place(void **state)
{
    (void)state;
    skip_without_ipsec_mb();
    for (size_t bytes = 1; bytes <= 1500; bytes += bytes == 320 ? 1080 : 1) {
        const struct weft_crypto_span aad = {"header", 6};
        uint8_t tags[2][TAG];
        draw_key(bytes % 2 == 0 ? 16 : 32);
        draw(out_end[0] - bytes, bytes);
        memcpy(out_end[1] - bytes, out_end[0] - bytes, bytes);
        for (int i = 0; i < 2; i++) {
            const struct weft_crypto_span text = {out_end[i] - bytes, bytes};
            assert_int_equal(cryptos[i].ops->aead_seal(cryptos[i].self, 0, bytes, &aad, 1, &text, 1,
                                                       out_end[i] - bytes, tags[i]),
                             WEFT_OK);
        }
        assert_memory_equal(out_end[0] - bytes, out_end[1] - bytes, bytes);
        assert_memory_equal(tags[0], tags[1], TAG);
    }
}

/* Change each bit of the tag, with and without text; a rejected plaintext is erased. */
static void a_wrong_tag_opens_nothing(void **state)
{
    (void)state;
    static const uint8_t zeros[100];
    for (int i = 0; i < 2; i++) {
        const struct weft_crypto_span aad = {"header", 6};
        uint8_t clear[100];
        uint8_t sealed[100];
        uint8_t tag[TAG];
        uint8_t tag_of_none[TAG];
        const struct weft_crypto_ops *ops = cryptos[i].ops;
        void *self = cryptos[i].self;
        draw(clear, sizeof(clear));
        draw_key(16);
        assert_int_equal(ops->aead_seal(self, 0, 9, &aad, 1,
                                        &(struct weft_crypto_span){clear, sizeof(clear)}, 1, sealed,
                                        tag),
                         WEFT_OK);
        assert_int_equal(ops->aead_seal(self, 0, 10, &aad, 1, NULL, 0, NULL, tag_of_none), WEFT_OK);
        for (int bit = 0; bit < 8 * TAG; bit++) {
            uint8_t copy[100];
            memcpy(copy, sealed, sizeof(copy));
            tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
            tag_of_none[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(ops->aead_open(self, 0, 9, &aad, 1, copy, sizeof(copy), tag),
                             WEFT_PROTO);
            assert_memory_equal(copy, zeros, sizeof(copy));
            assert_int_equal(ops->aead_open(self, 0, 10, &aad, 1, NULL, 0, tag_of_none),
                             WEFT_PROTO);
            tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
            tag_of_none[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(ops->aead_open(self, 0, 9, &aad, 1, sealed, sizeof(sealed), tag), WEFT_OK);
        assert_memory_equal(sealed, clear, sizeof(clear));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lengths_of_text),
        cmocka_unit_test(all_lengths_of_additional_data),
        cmocka_unit_test(sealed_in_place),
        cmocka_unit_test(a_wrong_tag_opens_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
