/* Every step is one branch-free loop over restrict pointers, so that compilers vectorize it. All
 * state of a block is in the row. */
#include "ps/optimizer.h"

#include <math.h>
#include <string.h>

static void init_zeros(const struct weft_table_spec *spec, const float *weights, float *slots,
                       uint32_t stride, uint32_t count)
{
    (void)spec;
    (void)weights;
    (void)slots;
    (void)stride;
    (void)count;
}

static void init_accumulator(const struct weft_table_spec *spec, const float *weights, float *slots,
                             uint32_t stride, uint32_t count)
{
    (void)weights;
    (void)stride;
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = spec->accumulator;
    }
}

/* z is chosen so that the closed form yields the initial weight, except for rounding. */
static void init_ftrl(const struct weft_table_spec *spec, const float *weights, float *slots,
                      uint32_t stride, uint32_t count)
{
    float scale = (spec->epsilon + sqrtf(spec->accumulator)) / spec->learning_rate + spec->l2;
    for (uint32_t i = 0; i < count; i++) {
        float l1 = weights[i] > 0 ? spec->l1 : weights[i] < 0 ? -spec->l1 : 0;
        slots[i] = 0.0F - (weights[i] * scale + l1);
        slots[stride + i] = spec->accumulator;
    }
}

static void sgd_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    const float *restrict sums = b->sums;
    float rate = spec->learning_rate, divisor = b->divisor;
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        w[i] -= rate * g;
    }
}

static void momentum_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    float *restrict v = b->slots;
    const float *restrict sums = b->sums;
    float rate = spec->learning_rate, beta = spec->beta1, divisor = b->divisor;
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        v[i] = beta * v[i] + g;
        w[i] -= rate * v[i];
    }
}

static void adagrad_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    float *restrict s = b->slots;
    const float *restrict sums = b->sums;
    float rate = spec->learning_rate, epsilon = spec->epsilon, divisor = b->divisor;
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        s[i] += g * g;
        w[i] -= rate * g / (sqrtf(s[i]) + epsilon);
    }
}

static void adadelay_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    float *restrict s = b->slots;
    const float *restrict sums = b->sums;
    float rate = spec->learning_rate, epsilon = spec->epsilon, divisor = b->divisor;
    float fresh = b->fresh, stale = 1 / b->fresh;
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        s[i] += fresh * (g * g);
        w[i] -= rate * g / (sqrtf(s[i] * stale) + epsilon);
    }
}

static void adam_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    float *restrict m = b->slots;
    float *restrict v = b->slots + b->stride;
    const float *restrict sums = b->sums;
    float beta1 = spec->beta1, beta2 = spec->beta2;
    float rest1 = 1 - beta1, rest2 = 1 - beta2;
    float epsilon = spec->epsilon, divisor = b->divisor;
    b->steps[0] = beta1 * b->steps[0] + rest1;
    b->steps[1] = beta2 * b->steps[1] + rest2;
    float rate = spec->learning_rate / b->steps[0], unbias = 1 / b->steps[1];
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * (g * g);
        w[i] -= rate * m[i] / (sqrtf(v[i] * unbias) + epsilon);
    }
}

static void ftrl_step(const struct weft_table_spec *spec, const struct weft_optimizer_block *b)
{
    float *restrict w = b->weights;
    float *restrict z = b->slots;
    float *restrict n = b->slots + b->stride;
    const float *restrict sums = b->sums;
    float rate = spec->learning_rate, beta = spec->epsilon, divisor = b->divisor;
    float l1 = spec->l1, l2 = spec->l2;
    for (uint32_t i = 0; i < b->count; i++) {
        float g = sums[i] / divisor;
        float root = sqrtf(n[i]);
        n[i] += g * g;
        float new_root = sqrtf(n[i]);
        z[i] += g - (new_root - root) / rate * w[i];
        float beyond = z[i] > l1 ? z[i] - l1 : z[i] < -l1 ? z[i] + l1 : 0;
        w[i] = 0.0F - beyond / ((beta + new_root) / rate + l2);
    }
}

static const struct weft_optimizer sgd = {
    .name = "sgd",
    .kind = WEFT_OPTIMIZER_SGD,
    .init = init_zeros,
    .step = sgd_step,
};

static const struct weft_optimizer adagrad = {
    .name = "adagrad",
    .kind = WEFT_OPTIMIZER_ADAGRAD,
    .slots = 1,
    .init = init_accumulator,
    .step = adagrad_step,
};

static const struct weft_optimizer momentum = {
    .name = "momentum",
    .kind = WEFT_OPTIMIZER_MOMENTUM,
    .slots = 1,
    .init = init_zeros,
    .step = momentum_step,
};

static const struct weft_optimizer adam = {
    .name = "adam",
    .kind = WEFT_OPTIMIZER_ADAM,
    .slots = 2,
    .steps = 2,
    .init = init_zeros,
    .step = adam_step,
};

static const struct weft_optimizer ftrl = {
    .name = "ftrl",
    .kind = WEFT_OPTIMIZER_FTRL,
    .slots = 2,
    .init = init_ftrl,
    .step = ftrl_step,
};

static const struct weft_optimizer adadelay = {
    .name = "adadelay",
    .kind = WEFT_OPTIMIZER_ADADELAY,
    .slots = 1,
    .init = init_accumulator,
    .step = adadelay_step,
};

const struct weft_optimizer *const weft_optimizers[WEFT_OPTIMIZERS_COUNT] = {
    [WEFT_OPTIMIZER_SGD] = &sgd,           [WEFT_OPTIMIZER_ADAGRAD] = &adagrad,
    [WEFT_OPTIMIZER_MOMENTUM] = &momentum, [WEFT_OPTIMIZER_ADAM] = &adam,
    [WEFT_OPTIMIZER_FTRL] = &ftrl,         [WEFT_OPTIMIZER_ADADELAY] = &adadelay,
};

const struct weft_optimizer *weft_optimizer_at(uint8_t kind)
{
    return kind < WEFT_OPTIMIZERS_COUNT ? weft_optimizers[kind] : NULL;
}

const struct weft_optimizer *weft_optimizer_find(const char *name)
{
    for (uint32_t i = 0; i < WEFT_OPTIMIZERS_COUNT; i++) {
        if (strcmp(weft_optimizers[i]->name, name) == 0) {
            return weft_optimizers[i];
        }
    }
    return NULL;
}
