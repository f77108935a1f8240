#include "sim/swarm_table.h"

#include "base/assert.h"
#include "base/init.h"
#include "ps/optimizer.h"

#include <stdlib.h>
#include <string.h>

const char *weft_swarm_table_name(const struct weft_swarm_table *table)
{
    static const char *const names[] = {"plain",    "optimizer", "admitted", "evicting",
                                        "expiring", "dense",     "wide"};
    return names[table->flavour];
}

/* ---- pattern of pushes ----------------------------------------------------------------------- */

bool weft_swarm_table_pushes(const struct weft_swarm_table *table, uint32_t w, uint32_t clock,
                             uint32_t i)
{
    struct weft_prng prng;
    weft_prng_split(&prng, table->seed, (uint64_t)w << 40 | (uint64_t)clock << 32 | i);
    return weft_prng_below(&prng, 100) < table->share_percent;
}

double weft_swarm_table_sum(const struct weft_swarm_table *table, uint32_t column, uint32_t set)
{
    const double count = __builtin_popcount(set);
    if (table->spec.push_values != WEFT_VALUE_INT8) {
        return column == 0 ? (double)set : count * (table->is_odd ? 1001 : 1);
    }
    const double steps = table->flavour == WEFT_SWARM_OPTIMIZER ? count : (double)set;
    return steps * (weft_swarm_table_is_anchor(table, column) ? 127
                    : table->is_odd && column > 0             ? 1.25
                                                              : 1);
}

/* The bits of the pushes of one clock. */
static uint32_t pushed_in(const struct weft_swarm_table *table, uint32_t clock, uint32_t i)
{
    uint32_t set = 0;
    for (uint32_t w = 0; w < table->workers; w++) {
        set |=
            weft_swarm_table_pushes(table, w, clock, i) ? weft_swarm_table_bit(table, w, clock) : 0;
    }
    return set;
}

uint32_t weft_swarm_table_all(const struct weft_swarm_table *table, uint32_t i)
{
    uint32_t set = 0;
    for (uint32_t c = 0; c < table->clocks; c++) {
        set |= pushed_in(table, c, i);
    }
    return set;
}

uint32_t weft_swarm_table_unexpired(const struct weft_swarm_table *table, uint32_t i,
                                    uint32_t version)
{
    uint32_t set = 0, last = 0;
    for (uint32_t c = 0; c < version; c++) {
        uint32_t now = pushed_in(table, c, i);
        if (now != 0) {
            set = c - last > table->spec.ttl ? now : set | now;
            last = c;
        }
    }
    /* Clock `version` is in progress. */
    return version - last > table->spec.ttl ? 0 : set;
}

/* ---- expected weights of optimizers ---------------------------------------------------------- */

static float *truth_at(const struct weft_swarm_table *table, uint32_t i, uint32_t version)
{
    return table->truth + ((size_t)version * table->ids + i) * table->spec.dim;
}

const float *weft_swarm_table_truth(const struct weft_swarm_table *table, uint32_t i,
                                    uint32_t version)
{
    return truth_at(table, i, version);
}

/* Compute one row over all clocks. Only clocks in which it is pushed make a step. */
static void truth_of(const struct weft_swarm_table *table, uint32_t i, uint64_t id)
{
    const struct weft_table_spec *spec = &table->spec;
    const struct weft_optimizer *optimizer = weft_optimizer_at(spec->optimizer);
    float weights[64], slots[WEFT_OPTIMIZER_SLOTS_MAX * 64], sums[64];
    float steps[WEFT_OPTIMIZER_STEPS_MAX] = {0};
    WEFT_ASSERT(spec->dim <= 64);
    for (uint32_t d = 0; d < spec->dim; d++) {
        weights[d] = weft_init_value(spec->init_seed, id, d, spec->init_scale);
    }
    memset(slots, 0, sizeof(slots));
    optimizer->init(spec, weights, slots, spec->dim, spec->dim);
    memcpy(truth_at(table, i, 0), weights, spec->dim * sizeof(float));
    for (uint32_t c = 0; c < table->clocks; c++) {
        uint32_t set = pushed_in(table, c, i);
        for (uint32_t d = 0; d < spec->dim; d++) {
            sums[d] = (float)(table->workers * weft_swarm_table_sum(table, d, set));
        }
        const struct weft_optimizer_block block = {.weights = weights,
                                                   .slots = slots,
                                                   .steps = steps,
                                                   .sums = sums,
                                                   .stride = spec->dim,
                                                   .count = spec->dim,
                                                   .divisor = spec->workers,
                                                   .fresh = 1};
        if (set != 0) {
            optimizer->step(spec, &block);
        }
        memcpy(truth_at(table, i, c + 1), weights, spec->dim * sizeof(float));
    }
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void draw_optimizer(struct weft_swarm_table *table, struct weft_prng *prng)
{
    struct weft_table_spec *spec = &table->spec;
    spec->mode = WEFT_TABLE_BSP;
    spec->staleness = 0;
    spec->optimizer = (uint8_t)weft_prng_range(prng, 1, WEFT_OPTIMIZERS_COUNT - 1);
    spec->init_scale = 0.5F;
    spec->init_seed = weft_prng_u64(prng);
    uint8_t kind = spec->optimizer;
    bool beta = kind == WEFT_OPTIMIZER_MOMENTUM || kind == WEFT_OPTIMIZER_ADAM;
    spec->beta1 = beta ? 0.9F : 0;
    spec->beta2 = kind == WEFT_OPTIMIZER_ADAM ? 0.99F : 0;
    spec->epsilon = kind == WEFT_OPTIMIZER_MOMENTUM ? 0 : 0.5F;
    spec->l2 = kind == WEFT_OPTIMIZER_FTRL ? 0.25F : 0;
    table->push_bound_ppm = 0;
}

static void draw_admitted(struct weft_swarm_table *table, struct weft_prng *prng)
{
    bool bloom = weft_prng_below(prng, 3) == 0;
    table->spec.admission = bloom ? WEFT_ADMISSION_BLOOM : WEFT_ADMISSION_COUNTER;
    table->spec.admission_count = (uint32_t)weft_prng_range(prng, 2, 5);
    /* For the counter, cells for all ids: which ids it drops depends on the order of arrival. */
    table->spec.admission_cells = bloom ? (uint32_t)weft_prng_range(prng, 64, 2000) : 1000;
}

/* Room for at least the rows of the longest packet, since otherwise that packet could not be
 * accepted. */
static void draw_evicting(struct weft_swarm_table *table, struct weft_prng *prng,
                          uint32_t packet_bytes)
{
    struct weft_table_spec *spec = &table->spec;
    spec->mode = spec->mode == WEFT_TABLE_BSP ? WEFT_TABLE_ASP : spec->mode;
    spec->eviction = weft_prng_below(prng, 2) == 0 ? WEFT_EVICTION_LRU : WEFT_EVICTION_L2;
    spec->rows_max = weft_table_push_blocks_within(spec, packet_bytes) + /* ids may be in a list */
                     (uint32_t)weft_prng_range(prng, 1, 30);
}

static void draw_expiring(struct weft_swarm_table *table, struct weft_prng *prng)
{
    table->spec.mode = WEFT_TABLE_BSP;
    table->spec.staleness = 0;
    table->spec.eviction = WEFT_EVICTION_TTL;
    table->spec.ttl = (uint32_t)weft_prng_range(prng, 1, 3);
    table->share_percent = (uint32_t)weft_prng_range(prng, 3, 40);
    table->push_bound_ppm = 0;
}

/* In BSP a block is divided by the number of pushes received, so all workers push all rows. */
static void draw_dense(struct weft_swarm_table *table)
{
    table->spec.kind = WEFT_TABLE_DENSE;
    table->spec.length = (uint64_t)table->ids * table->spec.dim;
    if (table->spec.mode == WEFT_TABLE_BSP) {
        table->share_percent = 100;
        table->push_bound_ppm = 0;
        /* Both means are then equal, so either setting must give the same result. */
        table->spec.average =
            weft_table_average_of(&table->spec, (table->seed & 1) == 0 ? WEFT_AVERAGE_CONTRIBUTORS
                                                                       : WEFT_AVERAGE_WORKERS);
    }
}

/* With a bound, or in order of arrival, a part of a row could be missing, and its columns would
 * disagree. */
static void draw_wide(struct weft_swarm_table *table, struct weft_prng *prng, uint32_t chunk_bytes)
{
    uint32_t fits = (chunk_bytes - 8) / 4;
    fits = fits < WEFT_RPC_BLOCK_FLOATS ? fits : WEFT_RPC_BLOCK_FLOATS;
    table->spec.block_floats = (uint16_t)weft_prng_range(prng, WEFT_RPC_BLOCK_FLOATS_MIN, fits);
    table->spec.mode = WEFT_TABLE_BSP;
    table->spec.staleness = 0;
    table->spec.dim = (uint32_t)weft_prng_range(prng, 257, WEFT_RPC_DIM_MAX);
    table->ids = (uint32_t)weft_min_u64(table->ids, 40);
    table->push_bound_ppm = table->pull_bound_ppm = 0;
}

void weft_swarm_table_draw(struct weft_swarm_table *table, uint32_t packet_bytes,
                           uint32_t chunk_bytes, const uint64_t *id)
{
    static const enum weft_swarm_flavour flavours[] = {
        WEFT_SWARM_PLAIN,     WEFT_SWARM_PLAIN,    WEFT_SWARM_PLAIN,    WEFT_SWARM_OPTIMIZER,
        WEFT_SWARM_OPTIMIZER, WEFT_SWARM_ADMITTED, WEFT_SWARM_ADMITTED, WEFT_SWARM_EVICTING,
        WEFT_SWARM_EVICTING,  WEFT_SWARM_EXPIRING, WEFT_SWARM_DENSE,    WEFT_SWARM_WIDE,
    };
    struct weft_prng prng;
    weft_prng_split(&prng, table->seed, UINT64_C(0x7461626c65));
    table->flavour = flavours[weft_prng_below(&prng, WEFT_ARRAY_COUNT(flavours))];
    switch (table->flavour) {
    case WEFT_SWARM_PLAIN:
        break;
    case WEFT_SWARM_OPTIMIZER:
        draw_optimizer(table, &prng);
        break;
    case WEFT_SWARM_ADMITTED:
        draw_admitted(table, &prng);
        break;
    case WEFT_SWARM_EVICTING:
        draw_evicting(table, &prng, packet_bytes);
        break;
    case WEFT_SWARM_EXPIRING:
        draw_expiring(table, &prng);
        break;
    case WEFT_SWARM_DENSE:
        draw_dense(table);
        break;
    case WEFT_SWARM_WIDE:
        draw_wide(table, &prng, chunk_bytes);
        break;
    }
    WEFT_ASSERT(weft_table_spec_valid(&table->spec));
    if (table->flavour == WEFT_SWARM_OPTIMIZER) {
        table->truth =
            calloc((size_t)(table->clocks + 1) * table->ids * table->spec.dim, sizeof(float));
        WEFT_ASSERT(table->truth != NULL);
        for (uint32_t i = 0; i < table->ids; i++) {
            truth_of(table, i, id[i]);
        }
    }
}

void weft_swarm_table_fini(struct weft_swarm_table *table)
{
    free(table->truth);
    table->truth = NULL;
}
