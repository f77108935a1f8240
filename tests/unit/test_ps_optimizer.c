/* Optimizers against the reference trainer's formula, bit for bit. */
#include "base/prng.h"
#include "ps/optimizer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static float draw(struct weft_prng *prng)
{
    return ((float)weft_prng_below(prng, 2001) - 1000) / 300;
}

/* The update of src/ml/reference.c, one weight. */
static void reference(const struct weft_table_spec *spec, float sum, float *weight, float *square)
{
    float gradient = sum / (float)spec->workers;
    if (spec->optimizer == WEFT_OPTIMIZER_SGD) {
        *weight -= spec->learning_rate * gradient;
        return;
    }
    *square += gradient * gradient;
    *weight -= spec->learning_rate * gradient / (sqrtf(*square) + spec->epsilon);
}

static void like_the_reference(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (uint8_t kind = 0; kind < WEFT_OPTIMIZERS_COUNT; kind++) {
        struct weft_table_spec spec = {
            .dim = 8, .optimizer = kind, .workers = 3, .learning_rate = 0.3F};
        if (kind == WEFT_OPTIMIZER_ADAGRAD) {
            spec.epsilon = 1e-6F;
            spec.accumulator = 0.25F;
        }
        const struct weft_optimizer *optimizer = weft_optimizer_at(kind);
        float weights[8] = {0}, slots[8] = {0}, sums[8], w[8] = {0}, s[8];
        optimizer->init(&spec, slots, 8);
        for (int i = 0; i < 8; i++) {
            s[i] = spec.accumulator;
            assert_true(optimizer->slots == 0 || slots[i] == spec.accumulator);
        }
        for (int step = 0; step < 50; step++) {
            for (int i = 0; i < 8; i++) {
                sums[i] = draw(&prng);
                reference(&spec, sums[i], &w[i], &s[i]);
            }
            optimizer->step(&spec, weights, slots, sums, 8);
            assert_memory_equal(weights, w, sizeof(w));
            assert_true(optimizer->slots == 0 || memcmp(slots, s, sizeof(s)) == 0);
        }
    }
}

static void by_name_and_number(void **state)
{
    (void)state;
    for (uint8_t kind = 0; kind < WEFT_OPTIMIZERS_COUNT; kind++) {
        const struct weft_optimizer *optimizer = weft_optimizer_at(kind);
        assert_int_equal(optimizer->kind, kind);
        assert_ptr_equal(weft_optimizer_find(optimizer->name), optimizer);
    }
    assert_null(weft_optimizer_at(WEFT_OPTIMIZERS_COUNT));
    assert_null(weft_optimizer_find("adam"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_reference),
        cmocka_unit_test(by_name_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
