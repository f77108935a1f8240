#include "ps/optimizer.h"

#include <math.h>
#include <string.h>

static void init_nothing(const struct weft_table_spec *spec, float *slots, uint32_t count)
{
    (void)spec;
    (void)slots;
    (void)count;
}

static void sgd_step(const struct weft_table_spec *spec, float *weights, float *slots,
                     const float *sums, uint32_t count)
{
    (void)slots;
    float workers = (float)spec->workers;
    for (uint32_t i = 0; i < count; i++) {
        float gradient = sums[i] / workers;
        weights[i] -= spec->learning_rate * gradient;
    }
}

static void adagrad_init(const struct weft_table_spec *spec, float *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = spec->accumulator;
    }
}

static void adagrad_step(const struct weft_table_spec *spec, float *weights, float *slots,
                         const float *sums, uint32_t count)
{
    float workers = (float)spec->workers;
    for (uint32_t i = 0; i < count; i++) {
        float gradient = sums[i] / workers;
        slots[i] += gradient * gradient;
        weights[i] -= spec->learning_rate * gradient / (sqrtf(slots[i]) + spec->epsilon);
    }
}

static const struct weft_optimizer sgd = {
    .name = "sgd",
    .kind = WEFT_OPTIMIZER_SGD,
    .slots = 0,
    .init = init_nothing,
    .step = sgd_step,
};

static const struct weft_optimizer adagrad = {
    .name = "adagrad",
    .kind = WEFT_OPTIMIZER_ADAGRAD,
    .slots = 1,
    .init = adagrad_init,
    .step = adagrad_step,
};

const struct weft_optimizer *const weft_optimizers[WEFT_OPTIMIZERS_COUNT] = {
    [WEFT_OPTIMIZER_SGD] = &sgd,
    [WEFT_OPTIMIZER_ADAGRAD] = &adagrad,
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
