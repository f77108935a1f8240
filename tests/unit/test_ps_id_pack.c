/* Packed ids: round trips, their sizes, and refusal of malformed bytes. */
#include "base/assert.h"
#include "base/prng.h"
#include "ps/id_pack.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 2000, BYTES_MAX = 40000 };

static size_t pack(const uint64_t *ids, uint32_t count, uint8_t *out)
{
    uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX];
    uint64_t before = 0;
    size_t bytes = 0;
    for (uint32_t i = 0, n; i < count; i += n) {
        uint32_t left = count - i;
        size_t more = weft_ids_pack_block(ids + i, left < WEFT_IDS_BLOCK ? left : WEFT_IDS_BLOCK,
                                          before, block, &n);
        assert_true(n >= 1 && n <= left && more <= sizeof(block) && bytes + more <= BYTES_MAX);
        memcpy(out + bytes, block, more);
        bytes += more;
        before = ids[i + n - 1];
    }
    return bytes;
}

/* In a buffer of exact size, so that a sanitizer detects an access beyond it. */
static bool unpack(const uint8_t *bytes, size_t size, uint32_t count, uint64_t *ids)
{
    uint8_t *exact = malloc(size + 1);
    uint64_t *out = malloc(count * sizeof(*out) + 1);
    assert_true(exact != NULL && out != NULL);
    memcpy(exact + 1, bytes, size);
    bool good = weft_ids_unpack(exact + 1, size, count, out);
    if (good && ids != NULL) {
        memcpy(ids, out, count * sizeof(*ids));
    }
    free(exact);
    free(out);
    return good;
}

static size_t round_trip(const uint64_t *ids, uint32_t count)
{
    static uint8_t bytes[BYTES_MAX];
    static uint64_t back[IDS_MAX];
    size_t size = pack(ids, count, bytes);
    assert_true(unpack(bytes, size, count, back));
    assert_memory_equal(back, ids, count * sizeof(*ids));
    assert_false(unpack(bytes, size, count + 1, NULL));
    assert_false(count > 1 && unpack(bytes, size, count - 1, NULL));
    assert_false(unpack(bytes, size - 1, count, NULL));
    bytes[size] = 0;
    assert_false(unpack(bytes, size + 1, count, NULL));
    return size;
}

/* The example of docs/PROTOCOL.md. */
static void bytes_by_hand(void **state)
{
    (void)state;
    const uint64_t ids[] = {1000, 1003, 1003, 1010, 7};
    /* 4 ids from 1000 = 0x68 + 7 x 128 on; gaps 3, 0, 7, k = 1: lows 1 0 1, unary 01 1 0001.
     * Then 1 id, 1003 below. */
    const uint8_t wanted[] = {3, 1, 0xe8, 0x07, 5, 0x46, 0x80, 0, 0xeb, 0x07};
    uint8_t bytes[BYTES_MAX];
    assert_int_equal(pack(ids, 5, bytes), sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    assert_int_equal(round_trip(ids, 5), sizeof(wanted));
}

static void ends_of_the_range(void **state)
{
    (void)state;
    const uint64_t ids[] = {UINT64_MAX, 0, UINT64_MAX, UINT64_MAX, 1, UINT64_MAX - 1, UINT64_MAX};
    for (uint32_t n = 1; n <= 7; n++) {
        (void)round_trip(ids, n);
        (void)round_trip(ids + 7 - n, n);
    }
    uint64_t far[300];
    for (uint32_t i = 0; i < 300; i++) {
        far[i] = i * (UINT64_MAX / 300);
    }
    (void)round_trip(far, 300);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void any_ids(void **state)
{
    (void)state;
    static uint64_t ids[IDS_MAX];
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (int round = 0; round < 5000; round++) {
        uint32_t n = (uint32_t)weft_prng_range(&prng, 1, 400);
        uint32_t shift = (uint32_t)weft_prng_below(&prng, 64);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t more = weft_prng_below(&prng, 8) == 0 ? 20 : 0;
            ids[i] = weft_prng_u64(&prng) >> (shift + more < 64 ? shift + more : 63);
        }
        if (weft_prng_below(&prng, 4) != 0) {
            qsort(ids, n, sizeof(*ids), by_value);
        }
        (void)round_trip(ids, n);
    }
}

/* Uniformly drawn ids: the size is slightly more than the entropy of the gaps plus the block
 * headers. */
static void few_bytes(void **state)
{
    (void)state;
    static uint64_t ids[IDS_MAX];
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    const struct {
        uint32_t one_in;
        double bits; /* entropy of a gap */
    } cases[] = {{7, 4.14}, {61, 7.36}, {1000, 11.41}, {65536, 17.44}};
    for (uint32_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        uint64_t at = 0;
        for (uint32_t i = 0; i < IDS_MAX; i++) {
            do {
                at++;
            } while (weft_prng_below(&prng, cases[k].one_in) != 0);
            ids[i] = at;
        }
        double bits = 8.0 * (double)round_trip(ids, IDS_MAX) / IDS_MAX;
        assert_true(bits < cases[k].bits * 1.03 + 0.4);
        assert_true(bits > cases[k].bits * 0.97);
    }
    /* One very long gap does not lengthen the encoding of the others. */
    for (uint32_t i = 0; i < 128; i++) {
        ids[i] = i < 64 ? i * 3 : (UINT64_C(1) << 40) + i * 3;
    }
    assert_true(round_trip(ids, 128) < 128);
}

/* Ascending ids with gaps of about this many bits; some are much longer. */
static uint32_t random_ids(struct weft_prng *prng, uint64_t *ids)
{
    const uint32_t n = (uint32_t)weft_prng_range(prng, 2, IDS_MAX);
    const uint32_t bits = (uint32_t)weft_prng_range(prng, 1, 24);
    uint64_t at = weft_prng_u64(prng) >> weft_prng_below(prng, 64);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t more = weft_prng_below(prng, 200) == 0 ? 8 : 0;
        const uint64_t gap = weft_prng_u64(prng) >> (64 - bits - more) >> weft_prng_below(prng, 3);
        at += gap < UINT64_MAX - at ? gap : 0;
        ids[i] = at;
    }
    return n;
}

/* Eight ids at a time or one, from good bytes and from damaged ones: the same ids, or none. */
static void at_once_like_one_by_one(void **state)
{
    (void)state;
    static uint64_t ids[IDS_MAX], one[IDS_MAX], at_once[IDS_MAX];
    static uint8_t bytes[BYTES_MAX];
    struct weft_prng prng;
    uint32_t good = 0, bad = 0;
    weft_prng_init(&prng, 3);
    for (int round = 0; round < 3000; round++) {
        const uint32_t n = random_ids(&prng, ids);
        const uint32_t damages = (uint32_t)weft_prng_below(&prng, 4);
        const size_t size = pack(ids, n, bytes);
        for (uint32_t i = 0; i < damages; i++) {
            bytes[weft_prng_below(&prng, size)] ^= (uint8_t)(1 << weft_prng_below(&prng, 8));
        }
        const bool fits = weft_ids_unpack_plain(bytes, size, n, one);
        assert_int_equal(unpack(bytes, size, n, at_once), fits);
        if (fits) {
            assert_memory_equal(at_once, one, n * sizeof(*one));
        }
        assert_true(damages > 0 || (fits && memcmp(one, ids, n * sizeof(*ids)) == 0));
        good += fits;
        bad += !fits;
    }
    assert_true(good > 500 && bad > 500);
}

/* A block of many ids whose last one is 2^64 - 1, and then one above that; another block
 * follows. */
static void last_of_many(void **state)
{
    (void)state;
    enum { MANY = 20, MORE = 100, VARINT = 10 };
    uint64_t ids[MANY], more[MORE], out[MANY + MORE];
    uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX], bytes[2 * WEFT_IDS_BLOCK_BYTES_MAX];
    for (uint32_t i = 0; i < MORE; i++) {
        more[i] = UINT64_MAX;
    }
    for (uint32_t bits = 1; bits < 56; bits++) {
        uint32_t n;
        for (uint32_t i = 0; i < MANY; i++) {
            ids[i] = i * (UINT64_C(3) << bits) + i;
        }
        const size_t size = weft_ids_pack_block(ids, MANY, 0, block, &n);
        assert_true(n == MANY && block[2] == 0);
        for (uint64_t above = 0; above < 2; above++) {
            uint64_t first = UINT64_MAX - ids[MANY - 1] + above;
            memcpy(bytes, block, 2);
            for (uint32_t i = 0; i < VARINT; i++) {
                bytes[2 + i] = (uint8_t)((first >> 7 * i & 0x7f) | (i < VARINT - 1 ? 0x80 : 0));
            }
            memcpy(bytes + 2 + VARINT, block + 3, size - 3);
            const size_t behind = 2 + VARINT + size - 3;
            const size_t all =
                behind + weft_ids_pack_block(more, MORE, UINT64_MAX, bytes + behind, &n);
            assert_int_equal(n, MORE);
            assert_int_equal(unpack(bytes, all, MANY + MORE, out), above == 0);
            assert_int_equal(weft_ids_unpack_plain(bytes, all, MANY + MORE, out), above == 0);
            assert_true(above > 0 || out[MANY - 1] == UINT64_MAX);
        }
    }
}

static void hostile(void **state)
{
    (void)state;
    const struct {
        const char *what;
        uint32_t count;
        size_t size;
        uint8_t bytes[24];
    } cases[] = {
        {"nothing", 1, 0, {0}},
        {"no distance", 1, 2, {0, 0}},
        {"a distance without end", 1, 5, {0, 0, 0x80, 0x80, 0x80}},
        {"65 bits", 1, 12, {0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}},
        {"11 bytes", 1, 13, {0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0}},
        {"57 bits a gap", 2, 12, {1, 57, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
        {"255 bits a gap", 2, 12, {1, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
        {"more ids than were said", 2, 5, {2, 0, 0, 3, 0}},
        {"fewer", 3, 4, {1, 0, 0, 1}},
        {"lows that are not there", 2, 4, {1, 40, 0, 0}},
        {"a gap without its one", 2, 12, {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"a gap that is not there", 2, 3, {1, 0, 0}},
        {"below 0", 1, 3, {0x80, 0, 1}},
        {"above 2^64 - 1, by the distance",
         2,
         15,
         {0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 1}},
        {"above 2^64 - 1, by a gap",
         2,
         13,
         {1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2}},
        {"bytes behind", 1, 4, {0, 0, 5, 0}},
    };
    for (uint32_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        bool fits = unpack(cases[k].bytes, cases[k].size, cases[k].count, NULL);
        if (fits) {
            print_message("%s\n", cases[k].what);
        }
        assert_false(fits);
    }
    /* 56 bits and 256 zeros: 2^64. */
    uint8_t far[2 + 1 + 7 + 33] = {1, 56, 0};
    far[sizeof(far) - 1] = 1;
    assert_false(unpack(far, sizeof(far), 2, NULL));
    uint64_t ids[2];
    far[sizeof(far) - 1] = 0;
    far[sizeof(far) - 2] = 0x80; /* 255 zeros */
    assert_true(unpack(far, sizeof(far) - 1, 2, ids));
    assert_true(ids[0] == 0 && ids[1] == UINT64_C(255) << 56);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_by_hand), cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(any_ids),       cmocka_unit_test(few_bytes),
        cmocka_unit_test(at_once_like_one_by_one), cmocka_unit_test(last_of_many),
        cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
