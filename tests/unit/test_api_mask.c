/* Gaps, residuals and counts compared with simple oracles, on random masks; and the invariant of
 * error feedback: arrived plus kept equals sent. */
#include "base/bits.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <weft/transport.h>

enum { ELEMENTS_MAX = 3000, WORDS = ELEMENTS_MAX / 64 + 1 };

/* A mask with its bits; loss in parts per million. */
struct sample {
    uint64_t bits[WORDS];
    struct weft_mask mask;
};

static void sample_draw(struct sample *s, struct weft_prng *prng, uint32_t elements,
                        uint32_t chunk_elems, uint32_t loss_ppm)
{
    memset(s, 0, sizeof(*s));
    s->mask = (struct weft_mask){
        .bits = s->bits,
        .elements = elements,
        .elem_bytes = sizeof(float),
        .chunk_elems = chunk_elems,
        .chunks = (elements + chunk_elems - 1) / chunk_elems,
    };
    for (uint32_t c = 0; c < s->mask.chunks; c++) {
        if (!weft_prng_chance(prng, loss_ppm)) {
            weft_bits_set(s->bits, c);
            s->mask.chunks_received++;
        }
    }
}

static bool arrived(const struct weft_mask *mask, uint32_t element)
{
    uint32_t chunk = element / mask->chunk_elems;
    return (mask->bits[chunk / 64] >> (chunk % 64)) & 1;
}

static uint32_t draw(struct weft_prng *prng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(weft_prng_u64(prng) % (high - low + 1));
}

static void gaps_are_the_missing_elements(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 1, 1);
    for (int round = 0; round < 500; round++) {
        struct sample s;
        sample_draw(&s, &prng, draw(&prng, 1, ELEMENTS_MAX), draw(&prng, 1, 400),
                    draw(&prng, 0, 1000000));
        uint32_t from = draw(&prng, 0, s.mask.elements);
        uint32_t at = from;
        uint32_t first;
        uint32_t count;
        uint32_t missing = 0;
        while (weft_mask_gap(&s.mask, at, &first, &count)) {
            assert_true(count > 0 && first >= at && first + count <= s.mask.elements);
            for (; at < first; at++) {
                assert_true(arrived(&s.mask, at));
            }
            for (; at < first + count; at++) {
                assert_false(arrived(&s.mask, at));
            }
            /* Gaps are maximal: the next element has arrived. */
            assert_true(at == s.mask.elements || arrived(&s.mask, at));
            missing += count;
        }
        for (; at < s.mask.elements; at++) {
            assert_true(arrived(&s.mask, at));
        }
        if (from == 0) {
            assert_int_equal(missing, weft_mask_missing(&s.mask));
        }
    }
}

static void all_and_none(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 2, 1);
    struct sample s;
    uint32_t first;
    uint32_t count;
    sample_draw(&s, &prng, 1000, 352, 0);
    assert_false(weft_mask_gap(&s.mask, 0, &first, &count));
    assert_int_equal(weft_mask_missing(&s.mask), 0);
    sample_draw(&s, &prng, 1000, 352, 1000000);
    assert_true(weft_mask_gap(&s.mask, 0, &first, &count));
    assert_int_equal(first, 0);
    assert_int_equal(count, 1000);
    assert_true(weft_mask_gap(&s.mask, 999, &first, &count));
    assert_int_equal(first, 999);
    assert_int_equal(count, 1);
    assert_false(weft_mask_gap(&s.mask, 1000, &first, &count));
}

/* Whole numbers that floats hold exactly: after any number of steps and losses, the receiver's sum
 * and the residual are the sum of all vectors, element by element. */
static void feedback_loses_nothing(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 3, 1);
    static float vector[ELEMENTS_MAX];
    for (int round = 0; round < 30; round++) {
        static float residual[ELEMENTS_MAX];
        static float got[ELEMENTS_MAX];
        static int64_t sent[ELEMENTS_MAX];
        memset(residual, 0, sizeof(residual));
        memset(got, 0, sizeof(got));
        memset(sent, 0, sizeof(sent));
        uint32_t elements = draw(&prng, 1, ELEMENTS_MAX);
        uint32_t chunk_elems = draw(&prng, 1, 400);
        uint32_t loss_ppm = draw(&prng, 0, 900000);
        uint64_t kept = 0;
        for (int step = 0; step < 20; step++) {
            for (uint32_t i = 0; i < elements; i++) {
                int32_t value = (int32_t)draw(&prng, 0, 20000) - 10000;
                vector[i] = (float)value;
                sent[i] += value;
            }
            weft_residual_add(residual, vector, elements);
            struct sample s;
            sample_draw(&s, &prng, elements, chunk_elems, loss_ppm);
            for (uint32_t i = 0; i < elements; i++) {
                got[i] += arrived(&s.mask, i) ? vector[i] : 0;
            }
            assert_int_equal(weft_residual_keep(residual, vector, &s.mask), WEFT_OK);
            kept += weft_mask_missing(&s.mask);
        }
        for (uint32_t i = 0; i < elements; i++) {
            assert_true((int64_t)got[i] + (int64_t)residual[i] == sent[i]);
        }
        assert_true(kept > 0 || loss_ppm < 300000);
    }
}

static void residuals_are_of_floats(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 4, 1);
    struct sample s;
    sample_draw(&s, &prng, 10, 4, 1000000);
    s.mask.elem_bytes = 8;
    float residual[10] = {7};
    float vector[10] = {1};
    assert_int_equal(weft_residual_keep(residual, vector, &s.mask), WEFT_INVALID);
    assert_true(residual[0] == 7);
}

static void misses_run_until_arrival(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 7, 1);
    for (int round = 0; round < 50; round++) {
        uint8_t missed[ELEMENTS_MAX / WEFT_GRAIN + 1] = {0};
        uint32_t oracle[ELEMENTS_MAX] = {0};
        uint32_t elements = draw(&prng, 1, ELEMENTS_MAX);
        uint8_t limit = (uint8_t)draw(&prng, 1, 3);
        for (int step = 0; step < 6; step++) {
            struct sample s; /* the grid may change from step to step */
            sample_draw(&s, &prng, elements, 32 * draw(&prng, 1, 12), 400000);
            assert_int_equal(weft_missed_note(missed, &s.mask), WEFT_OK);
            for (uint32_t i = 0; i < elements; i++) {
                oracle[i] = arrived(&s.mask, i) ? 0 : oracle[i] + 1;
            }
        }
        static struct weft_range ranges[ELEMENTS_MAX];
        uint32_t count = weft_missed_ranges(missed, elements, limit, ranges, ELEMENTS_MAX);
        uint32_t at = 0;
        for (uint32_t r = 0; r < count; r++) {
            assert_true(ranges[r].count > 0 && (r == 0 || ranges[r].first > at));
            for (; at < ranges[r].first; at++) {
                assert_true(oracle[at] < limit);
            }
            for (; at < ranges[r].first + ranges[r].count; at++) {
                assert_true(at < elements && oracle[at] >= limit);
            }
        }
        for (; at < elements; at++) {
            assert_true(oracle[at] < limit);
        }
        if (count > 1) { /* with too few ranges they cover more elements, never fewer */
            struct weft_range last = ranges[count - 1];
            uint32_t first = ranges[0].first;
            assert_int_equal(weft_missed_ranges(missed, elements, limit, ranges, 1), 1);
            assert_int_equal(ranges[0].first, first);
            assert_int_equal(ranges[0].count, last.first + last.count - first);
        }
    }
    uint8_t missed[1] = {0};
    struct sample s;
    sample_draw(&s, &prng, 5, 5, 1000000);
    for (int step = 0; step < 300; step++) {
        assert_int_equal(weft_missed_note(missed, &s.mask), WEFT_OK);
    }
    assert_int_equal(missed[0], 255);
    sample_draw(&s, &prng, 100, 31, 0);
    assert_int_equal(weft_missed_note(missed, &s.mask), WEFT_INVALID);
}

static void counts_are_per_grain(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 5, 1);
    for (int round = 0; round < 50; round++) {
        static float sum[ELEMENTS_MAX];
        uint16_t counts[ELEMENTS_MAX / WEFT_GRAIN + 1] = {0};
        uint16_t oracle[ELEMENTS_MAX] = {0};
        memset(sum, 0, sizeof(sum));
        uint32_t elements = draw(&prng, 1, ELEMENTS_MAX);
        uint32_t senders = draw(&prng, 1, 9);
        for (uint32_t k = 0; k < senders; k++) {
            /* Senders may use different chunks: every boundary is a multiple of the grain. */
            struct sample s;
            sample_draw(&s, &prng, elements, 32 * draw(&prng, 1, 12), 300000);
            assert_int_equal(weft_counts_add(counts, &s.mask), WEFT_OK);
            for (uint32_t i = 0; i < elements; i++) {
                oracle[i] = (uint16_t)(oracle[i] + arrived(&s.mask, i));
                sum[i] += arrived(&s.mask, i) ? (float)(i + 1) : 0;
            }
        }
        for (uint32_t i = 0; i < elements; i++) {
            assert_int_equal(counts[i / WEFT_GRAIN], oracle[i]);
        }
        weft_counts_divide(counts, sum, elements);
        for (uint32_t i = 0; i < elements; i++) {
            assert_true(sum[i] == (oracle[i] > 0 ? (float)(i + 1) : 0));
        }
    }
}

static void counts_want_a_common_grain(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_split(&prng, 6, 1);
    struct sample s;
    uint16_t counts[4] = {0};
    sample_draw(&s, &prng, 100, 31, 0);
    assert_int_equal(weft_counts_add(counts, &s.mask), WEFT_INVALID);
    assert_int_equal(counts[0], 0);
    sample_draw(&s, &prng, 20, 20, 0); /* one chunk has no boundary */
    assert_int_equal(weft_counts_add(counts, &s.mask), WEFT_OK);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 0);
    assert_int_equal(weft_grains(0), 0);
    assert_int_equal(weft_grains(32), 1);
    assert_int_equal(weft_grains(33), 2);
    assert_int_equal(weft_grains(UINT32_MAX), 134217728);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_the_missing_elements), cmocka_unit_test(all_and_none),
        cmocka_unit_test(feedback_loses_nothing),        cmocka_unit_test(residuals_are_of_floats),
        cmocka_unit_test(misses_run_until_arrival),      cmocka_unit_test(counts_are_per_grain),
        cmocka_unit_test(counts_want_a_common_grain),
    };
    return cmocka_run_group_tests_name("api_mask", tests, NULL, NULL);
}
