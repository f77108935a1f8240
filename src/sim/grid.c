#include "sim/grid.h"

#include "base/assert.h"

/* All limits. The first matching row applies to a cell. A cell without a row, or with burst losses,
 * is reported only. */
struct limit {
    uint32_t bound_ppm;
    uint32_t loss_ppm_max;
    uint32_t p99_ppm_max; /* relative to the ideal */
};
static const struct limit limits[] = {
    {.bound_ppm = 100000, .loss_ppm_max = 50000, .p99_ppm_max = 1100000},
    {.bound_ppm = 100000, .loss_ppm_max = 100000, .p99_ppm_max = 1200000},
    {.bound_ppm = 0, .loss_ppm_max = 10000, .p99_ppm_max = 1250000},
};
static const uint32_t jain_ppm_min = 950000;

struct network {
    uint64_t rate_bps;
    uint64_t rtt_ns;
    uint64_t message_bytes;
};
static const struct network networks[] = {
    {UINT64_C(1000000000), 50 * WEFT_NS_PER_US, 250000},
    {UINT64_C(40000000000), 10 * WEFT_NS_PER_US, 10000000},
};

static const uint32_t senders[] = {1, 8, 16, 64};
static const uint64_t buffers_bytes[] = {64000, 128000, 450000};
static const uint32_t bounds_ppm[] = {0, 100000};
/* The last one is the burst loss, 1 % on average. */
static const uint32_t losses_ppm[] = {0, 1000, 10000, 50000, 100000, 10000};

enum {
    BUFFERS = WEFT_ARRAY_COUNT(buffers_bytes),
    LOSSES = WEFT_ARRAY_COUNT(losses_ppm),
    BURST_IDX = LOSSES - 1,
    FAIR_SENDERS = 8,
    ROUNDS = 500,
    THIN_ROUNDS_MAX = 100,
    THIN_ROUNDS_MIN = 3,
    THIN_BYTES = 700000000, /* payload of a cell */
};

struct list {
    const struct weft_grid_config *config;
    struct weft_grid_cell *cells;
    uint32_t count;
};

static uint32_t p99_limit(uint32_t bound_ppm, uint32_t loss_ppm, bool burst)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(limits) && !burst; i++) {
        if (limits[i].bound_ppm == bound_ppm && loss_ppm <= limits[i].loss_ppm_max) {
            return limits[i].p99_ppm_max;
        }
    }
    return 0;
}

static uint32_t rounds_of(const struct weft_grid_config *config, uint64_t round_bytes)
{
    if (config->rounds > 0 || !config->thin) {
        return config->rounds > 0 ? config->rounds : ROUNDS;
    }
    uint64_t fit = weft_max_u64(THIN_BYTES / round_bytes, THIN_ROUNDS_MIN);
    return (uint32_t)weft_min_u64(fit, THIN_ROUNDS_MAX);
}

static struct weft_grid_cell *add(struct list *list, const struct network *network,
                                  uint32_t sender_count, uint32_t shards, uint64_t buffer_bytes)
{
    WEFT_ASSERT(list->count < WEFT_GRID_CELLS_MAX);
    struct weft_grid_cell *cell = &list->cells[list->count++];
    *cell = (struct weft_grid_cell){.config = {
                                        .senders = sender_count,
                                        .shards = shards,
                                        .message_bytes = network->message_bytes,
                                        .rate_bps = network->rate_bps,
                                        .rtt_ns = network->rtt_ns,
                                        .buffer_bytes = buffer_bytes,
                                        .seed = list->config->seed,
                                        .cc_name = list->config->cc_name,
                                    }};
    cell->config.rounds = rounds_of(list->config, network->message_bytes * sender_count * shards);
    return cell;
}

static void add_incast(struct list *list, const struct network *network, uint32_t sender_count,
                       uint32_t loss_idx, uint32_t bound_ppm, uint64_t buffer_bytes)
{
    if (list->config->senders > 0 && list->config->senders != sender_count) {
        return;
    }
    struct weft_grid_cell *cell = add(list, network, sender_count, 1, buffer_bytes);
    cell->config.loss_ppm = losses_ppm[loss_idx];
    cell->config.burst = loss_idx == BURST_IDX;
    cell->config.bound_ppm = bound_ppm;
    cell->p99_ppm_max = p99_limit(bound_ppm, losses_ppm[loss_idx], cell->config.burst);
}

static void add_fair(struct list *list, const struct network *network, uint64_t buffer_bytes)
{
    if (list->config->senders > 0 && list->config->senders != FAIR_SENDERS) {
        return;
    }
    struct weft_grid_cell *cell = add(list, network, FAIR_SENDERS, 2, buffer_bytes);
    cell->jain_ppm_min = jain_ppm_min;
    cell->no_drops = true;
}

/* In the thin grid: one buffer for each (senders, loss, bound), in turns, and no cell without a
 * limit except burst cells. */
static bool is_left_out(const struct list *list, uint32_t turn, uint32_t buffer, uint32_t loss,
                        uint32_t bound_ppm)
{
    if (!list->config->thin) {
        return false;
    }
    bool burst = loss == BURST_IDX;
    return turn % BUFFERS != buffer ||
           (!burst && p99_limit(bound_ppm, losses_ppm[loss], false) == 0) ||
           (burst && bound_ppm == 0);
}

static void add_network(struct list *list, const struct network *network)
{
    uint32_t turn = 0;
    for (uint32_t w = 0; w < WEFT_ARRAY_COUNT(senders); w++, turn++) {
        for (uint32_t loss = 0; loss < LOSSES; loss++) {
            for (uint32_t b = 0; b < WEFT_ARRAY_COUNT(bounds_ppm); b++, turn++) {
                for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
                    if (!is_left_out(list, turn, buffer, loss, bounds_ppm[b])) {
                        add_incast(list, network, senders[w], loss, bounds_ppm[b],
                                   buffers_bytes[buffer]);
                    }
                }
            }
        }
    }
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        if (!list->config->thin || buffer == 1) {
            add_fair(list, network, buffers_bytes[buffer]);
        }
    }
}

uint32_t weft_grid_cells(const struct weft_grid_config *config,
                         struct weft_grid_cell cells_p[WEFT_GRID_CELLS_MAX])
{
    struct list list = {.config = config, .cells = cells_p};
    if (config->slow_network) {
        add_network(&list, &networks[0]);
    }
    if (config->fast_network) {
        add_network(&list, &networks[1]);
    }
    return list.count;
}

const char *weft_grid_verdict(const struct weft_grid_cell *cell,
                              const struct weft_incast_result *result)
{
    if (!result->ok) {
        return "failed";
    }
    __extension__ unsigned __int128 scaled = (unsigned __int128)result->p99_ns * WEFT_PPM;
    __extension__ unsigned __int128 allowed =
        (unsigned __int128)result->ideal_ns * cell->p99_ppm_max;
    if (cell->p99_ppm_max > 0 && scaled > allowed) {
        return "p99";
    }
    if (cell->jain_ppm_min > 0 && result->jain_ppm < cell->jain_ppm_min) {
        return "unfair";
    }
    return cell->no_drops && result->dropped_full > 0 ? "drops" : NULL;
}
