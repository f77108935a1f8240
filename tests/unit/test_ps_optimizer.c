/* Optimizers are tested in three ways: SGD and Adagrad must match the reference trainer's formula
 * bit for bit; all must match the papers' formulas, evaluated in double precision over the whole
 * history of gradients, without any running state; and all must match values computed by hand. */
#include "base/prng.h"
#include "ps/optimizer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 8, STEPS = 200 };

/* One block with its state, as in a row. */
struct rig {
    struct weft_table_spec spec;
    const struct weft_optimizer *optimizer;
    float weights[COUNT];
    float slots[WEFT_OPTIMIZER_SLOTS_MAX * COUNT];
    float steps[WEFT_OPTIMIZER_STEPS_MAX];
};

static struct weft_table_spec spec_of(uint8_t kind)
{
    struct weft_table_spec spec = {
        .dim = COUNT, .optimizer = kind, .workers = 3, .learning_rate = 0.3F};
    switch (kind) {
    case WEFT_OPTIMIZER_MOMENTUM:
        spec.beta1 = 0.9F;
        break;
    case WEFT_OPTIMIZER_ADAGRAD:
    case WEFT_OPTIMIZER_ADADELAY:
        spec.epsilon = 1e-6F;
        spec.accumulator = 0.25F;
        break;
    case WEFT_OPTIMIZER_ADAM:
        spec.beta1 = 0.9F;
        spec.beta2 = 0.999F;
        spec.epsilon = 1e-8F;
        spec.learning_rate = 0.01F;
        break;
    case WEFT_OPTIMIZER_FTRL:
        spec.epsilon = 1;
        spec.accumulator = 0.1F;
        spec.l1 = 0.5F;
        spec.l2 = 0.25F;
        break;
    default:
        break;
    }
    assert_true(weft_table_spec_valid(&spec));
    return spec;
}

static struct rig rig_of(const struct weft_table_spec *spec, const float *weights)
{
    struct rig rig = {.spec = *spec, .optimizer = weft_optimizer_at(spec->optimizer)};
    memcpy(rig.weights, weights, sizeof(rig.weights));
    rig.optimizer->init(spec, rig.weights, rig.slots, COUNT, COUNT);
    return rig;
}

static void rig_step(struct rig *rig, const float *sums, float fresh)
{
    const struct weft_optimizer_block block = {
        .weights = rig->weights,
        .slots = rig->slots,
        .steps = rig->steps,
        .sums = sums,
        .stride = COUNT,
        .count = COUNT,
        .divisor = rig->spec.workers,
        .fresh = fresh,
    };
    rig->optimizer->step(&rig->spec, &block);
}

static float draw(struct weft_prng *prng)
{
    return ((float)weft_prng_below(prng, 2001) - 1000) / 300;
}

/* ---- the reference trainer ------------------------------------------------------------------- */

/* The update of src/ml/reference.c, one weight. */
static void trainer(const struct weft_table_spec *spec, float sum, float *weight, float *square)
{
    float gradient = sum / (float)spec->workers;
    if (spec->optimizer == WEFT_OPTIMIZER_SGD) {
        *weight -= spec->learning_rate * gradient;
        return;
    }
    *square += gradient * gradient;
    *weight -= spec->learning_rate * gradient / (sqrtf(*square) + spec->epsilon);
}

static void like_the_trainer(void **state)
{
    (void)state;
    /* AdaDelay without delay is Adagrad. */
    static const uint8_t kinds[] = {WEFT_OPTIMIZER_SGD, WEFT_OPTIMIZER_ADAGRAD,
                                    WEFT_OPTIMIZER_ADADELAY};
    for (size_t k = 0; k < WEFT_ARRAY_COUNT(kinds); k++) {
        struct weft_prng prng;
        weft_prng_init(&prng, 1);
        struct weft_table_spec spec = spec_of(kinds[k]);
        float sums[COUNT], w[COUNT] = {0}, s[COUNT];
        struct rig rig = rig_of(&spec, w);
        for (int i = 0; i < COUNT; i++) {
            s[i] = spec.accumulator;
        }
        for (int step = 0; step < 50; step++) {
            for (int i = 0; i < COUNT; i++) {
                sums[i] = draw(&prng);
                trainer(&spec, sums[i], &w[i], &s[i]);
            }
            rig_step(&rig, sums, 1);
            assert_memory_equal(rig.weights, w, sizeof(w));
            assert_true(rig.optimizer->slots == 0 || memcmp(rig.slots, s, sizeof(s)) == 0);
        }
    }
}

/* ---- the papers, in double ------------------------------------------------------------------- */

/* Input of the formulas: gradients of one weight, oldest first, with their clocks and delays. */
struct history {
    uint32_t n;
    double start;
    double g[STEPS];
    double t[STEPS];     /* clock in progress on arrival, counted from 1 */
    double delay[STEPS]; /* delay in clocks */
};

/* Each gradient contributes to its own step and to all later ones, with one more factor of beta1 in
 * each later step. */
static double momentum(const struct weft_table_spec *spec, const struct history *h)
{
    double w = h->start;
    for (uint32_t step = 0; step < h->n; step++) {
        for (uint32_t past = 0; past <= step; past++) {
            w -= (double)spec->learning_rate * pow((double)spec->beta1, step - past) * h->g[past];
        }
    }
    return w;
}

/* Duchi et al., figure 1 with diagonal matrices; AdaDelay, section 4: alpha(t, tau) = rate /
 * (c_j sqrt(t + tau)), c_j^2 = 1/t sum (i / (i + tau_i)) g_j(i)^2. */
static double adagrad(const struct weft_table_spec *spec, const struct history *h, bool delayed)
{
    double w = h->start;
    for (uint32_t step = 0; step < h->n; step++) {
        double sum = (double)spec->accumulator;
        for (uint32_t i = 0; i <= step; i++) {
            sum += (delayed ? h->t[i] / (h->t[i] + h->delay[i]) : 1) * h->g[i] * h->g[i];
        }
        double c = sqrt(sum / h->t[step]);
        double eta = delayed ? c * sqrt(h->t[step] + h->delay[step]) : sqrt(sum);
        w -= (double)spec->learning_rate * h->g[step] / (eta + (double)spec->epsilon);
    }
    return w;
}

/* Kingma and Ba, algorithm 1, with beta^t computed directly. */
static double adam(const struct weft_table_spec *spec, const struct history *h)
{
    double b1 = (double)spec->beta1, b2 = (double)spec->beta2, w = h->start, m = 0, v = 0;
    for (uint32_t step = 0; step < h->n; step++) {
        m = b1 * m + (1 - b1) * h->g[step];
        v = b2 * v + (1 - b2) * h->g[step] * h->g[step];
        double unbiased_m = m / (1 - pow(b1, step + 1)), unbiased_v = v / (1 - pow(b2, step + 1));
        w -= (double)spec->learning_rate * unbiased_m / (sqrt(unbiased_v) + (double)spec->epsilon);
    }
    return w;
}

/* McMahan et al., algorithm 1; z is computed as an explicit sum. The weight of step 0 is the
 * initial weight. */
static double ftrl(const struct weft_table_spec *spec, const struct history *h)
{
    double alpha = (double)spec->learning_rate, beta = (double)spec->epsilon;
    double l1 = (double)spec->l1, l2 = (double)spec->l2, n = (double)spec->accumulator;
    double w = h->start;
    double z = w == 0 ? 0 : -w * ((beta + sqrt(n)) / alpha + l2) - copysign(l1, w);
    for (uint32_t step = 0; step < h->n; step++) {
        double g = h->g[step], sigma = (sqrt(n + g * g) - sqrt(n)) / alpha;
        z += g - sigma * w;
        n += g * g;
        w = fabs(z) <= l1 ? 0 : -(z - copysign(l1, z)) / ((beta + sqrt(n)) / alpha + l2);
    }
    return w;
}

static double paper(const struct weft_table_spec *spec, const struct history *h)
{
    double w = h->start;
    switch (spec->optimizer) {
    case WEFT_OPTIMIZER_MOMENTUM:
        return momentum(spec, h);
    case WEFT_OPTIMIZER_ADAGRAD:
    case WEFT_OPTIMIZER_ADADELAY:
        return adagrad(spec, h, spec->optimizer == WEFT_OPTIMIZER_ADADELAY);
    case WEFT_OPTIMIZER_ADAM:
        return adam(spec, h);
    case WEFT_OPTIMIZER_FTRL:
        return ftrl(spec, h);
    default:
        for (uint32_t step = 0; step < h->n; step++) {
            w -= (double)spec->learning_rate * h->g[step];
        }
        return w;
    }
}

static void history_step(struct history *all, struct weft_prng *prng, uint32_t step, float *sums)
{
    double delay = (double)weft_prng_below(prng, 6);
    double clock = step + 1;
    for (int i = 0; i < COUNT; i++) {
        struct history *h = &all[i];
        sums[i] = weft_prng_chance(prng, 100000) ? 0 : draw(prng);
        h->g[h->n] = (double)(sums[i] / 3.0F);
        h->t[h->n] = clock;
        h->delay[h->n++] = delay;
    }
}

static void like_the_papers(void **state)
{
    (void)state;
    struct history *all = calloc(COUNT, sizeof(*all));
    uint32_t zeros = 0;
    for (uint8_t kind = 0; kind < WEFT_OPTIMIZERS_COUNT; kind++) {
        struct weft_prng prng;
        weft_prng_init(&prng, kind + 100U);
        struct weft_table_spec spec = spec_of(kind);
        float start[COUNT], sums[COUNT];
        memset(all, 0, sizeof(*all) * COUNT);
        for (int i = 0; i < COUNT; i++) {
            start[i] = i == 0 ? 0 : draw(&prng) / 10;
            all[i].start = (double)start[i];
        }
        struct rig rig = rig_of(&spec, start);
        for (uint32_t step = 0; step < STEPS; step++) {
            history_step(all, &prng, step, sums);
            rig_step(&rig, sums, (float)(all[0].t[step] / (all[0].t[step] + all[0].delay[step])));
            for (int i = 0; i < COUNT && (step < 5 || step % 20 == 19); i++) {
                double wanted = paper(&spec, &all[i]), got = (double)rig.weights[i];
                if (fabs(got - wanted) > 2e-5 * (1 + fabs(wanted))) {
                    fail_msg("%s step %u: %.9g, not %.9g", rig.optimizer->name, step, got, wanted);
                }
                zeros += kind == WEFT_OPTIMIZER_FTRL && rig.weights[i] == 0;
            }
        }
    }
    assert_in_range(zeros, 1, COUNT * 10); /* |z| <= l1 held for some FTRL weights, not for all */
    free(all);
}

/* ---- known values ---------------------------------------------------------------------------- */

static float once(struct weft_table_spec *spec, float start, float sum, float fresh)
{
    float weights[COUNT] = {start}, sums[COUNT] = {sum};
    spec->workers = 1;
    assert_true(weft_table_spec_valid(spec));
    struct rig rig = rig_of(spec, weights);
    rig_step(&rig, sums, fresh);
    return rig.weights[0];
}

static void known_values(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_OPTIMIZER_ADAM);
    spec.learning_rate = 0.25F;
    /* Adam's first step is the rate, whatever the gradient's size: m / sqrt(v) = sign(g). */
    assert_true(fabsf(once(&spec, 1, 1000, 1) - 0.75F) < 1e-6F);
    assert_true(fabsf(once(&spec, 1, -1e-3F, 1) - 1.25F) < 1e-4F);
    /* FTRL, alpha 2, beta 1, l1 1, l2 0.5, n 0: g = 3: z = 3, n = 9, w = -2 / (4 / 2 + 0.5). */
    spec = spec_of(WEFT_OPTIMIZER_FTRL);
    spec.learning_rate = 2;
    spec.accumulator = 0;
    spec.l1 = 1;
    spec.l2 = 0.5F;
    assert_true(once(&spec, 0, 3, 1) == -2 / 2.5F);
    assert_true(once(&spec, 0, -3, 1) == 2 / 2.5F);
    assert_true(once(&spec, 0, 1, 1) == 0); /* not beyond l1 */
    /* A first gradient of zero keeps the initial weight. */
    assert_true(fabsf(once(&spec, 0.7F, 0, 1) - 0.7F) < 1e-6F);
    assert_true(fabsf(once(&spec, -0.7F, 0, 1) + 0.7F) < 1e-6F);
    assert_true(once(&spec, 0, 0, 1) == 0);
    /* AdaDelay: t 1, delay 3: s = 4 / 4 = 1, step = 2 / sqrt(1 x 4). */
    spec = spec_of(WEFT_OPTIMIZER_ADADELAY);
    spec.learning_rate = 1;
    spec.epsilon = 0;
    spec.accumulator = 1e-30F;
    assert_true(once(&spec, 5, 2, 0.25F) == 4);
    spec = spec_of(WEFT_OPTIMIZER_MOMENTUM);
    spec.learning_rate = 0.5F;
    assert_true(once(&spec, 1, 2, 1) == 0);
}

/* Adam's bias correction is kept per row, so a rarely updated row takes steps of the same size as a
 * frequently updated one. The running c1 and c2 must not drift in 10,000 steps. */
static void adam_for_long(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_OPTIMIZER_ADAM);
    float zeros[COUNT] = {0}, sums[COUNT] = {3, -3, 30, 0.3F, 3, 3, 3, 3};
    struct rig rig = rig_of(&spec, zeros);
    for (int step = 0; step < 10000; step++) {
        rig_step(&rig, sums, 1);
    }
    /* A constant gradient: every step is the rate. */
    for (int i = 0; i < COUNT; i++) {
        float wanted = (i == 1 ? 1 : -1) * 10000 * spec.learning_rate;
        assert_true(fabsf(rig.weights[i] - wanted) < 0.02F);
    }
    assert_true(fabsf(rig.steps[0] - 1) < 1e-5F && fabsf(rig.steps[1] - 1) < 1e-3F);
}

static void by_name_and_number(void **state)
{
    (void)state;
    for (uint8_t kind = 0; kind < WEFT_OPTIMIZERS_COUNT; kind++) {
        const struct weft_optimizer *optimizer = weft_optimizer_at(kind);
        assert_int_equal(optimizer->kind, kind);
        assert_ptr_equal(weft_optimizer_find(optimizer->name), optimizer);
        assert_true(optimizer->slots <= WEFT_OPTIMIZER_SLOTS_MAX);
        assert_true(optimizer->steps <= WEFT_OPTIMIZER_STEPS_MAX);
    }
    assert_null(weft_optimizer_at(WEFT_OPTIMIZERS_COUNT));
    assert_null(weft_optimizer_find("adadelta"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_trainer),   cmocka_unit_test(like_the_papers),
        cmocka_unit_test(known_values),       cmocka_unit_test(adam_for_long),
        cmocka_unit_test(by_name_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
