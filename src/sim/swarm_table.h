/* The kinds of tables in seeds of the parameter server's swarm, and the expected content of their
 * rows. The seed determines all pushes, so the expected result can be computed independently of the
 * run.
 *
 *   plain      SGD at rate 1: a row is a set of pushes (swarm_ps.h)
 *   optimizer  BSP, bound 0, any optimizer, initial weights: the sums of each clock are whole
 *              numbers, exact in any order, so weights must be bit-identical to the optimizer's
 *   admitted   an id gets a row with its push number N: a row is a set of all but N - 1 of its
 *              pushes; with a Bloom filter fewer may be missing. The shards count the missing ones
 *   evicting   few rows, LRU or L2, SSP or ASP: a row is a set of pushes; the number of rows is at
 *              most the limit
 *   expiring   BSP, bound 0, TTL: the pushes in a row depend only on the clocks
 *   dense      rows are blocks of a vector; a set of pushes again
 *   wide       BSP, bound 0, rows of several elements
 *
 * Contribution of a push to a row:
 *
 *   float32    its bit to column 0, 1 to the others
 *   bf16       the same; `is_odd`: 1001 to the others, which bf16 cannot represent
 *   int8       its bit to all columns, or 127 times that in the anchor column of each group
 *              (weft_swarm_table_is_anchor), so that the step is exactly the bit; `is_odd`: 1.25
 *              bits to columns 1, 2, .., which is not a multiple of the step. With an optimizer, 1
 *              instead of the bit
 */
#ifndef WEFT_SIM_SWARM_TABLE_H
#define WEFT_SIM_SWARM_TABLE_H

#include "rpc/table_spec.h"

enum weft_swarm_flavour {
    WEFT_SWARM_PLAIN,
    WEFT_SWARM_OPTIMIZER,
    WEFT_SWARM_ADMITTED,
    WEFT_SWARM_EVICTING,
    WEFT_SWARM_EXPIRING,
    WEFT_SWARM_DENSE,
    WEFT_SWARM_WIDE,
};

/* Pattern of the workers' pushes. */
struct weft_swarm_table {
    uint64_t seed;
    enum weft_swarm_flavour flavour;
    uint32_t workers;
    uint32_t clocks;
    uint32_t ids;
    uint32_t share_percent; /* fraction of all ids in a push */
    uint32_t push_bound_ppm;
    uint32_t pull_bound_ppm;
    struct weft_table_spec spec;
    bool is_odd;  /* pushes add values that their type cannot represent, and workers keep the
                   * rounding error */
    float *truth; /* OPTIMIZER: (clocks + 1, ids, dim) */
};

const char *weft_swarm_table_name(const struct weft_swarm_table *table);

/* Convert a drawn plain table into one of the other kinds, or leave it unchanged. packet_bytes:
 * length of the longest packet of any host; chunk_bytes: capacity of the shortest.
 * Owns:    allocates truth; see _fini. */
void weft_swarm_table_draw(struct weft_swarm_table *table, uint32_t packet_bytes,
                           uint32_t chunk_bytes, const uint64_t *id);
void weft_swarm_table_fini(struct weft_swarm_table *table);

/* Whether worker w pushes row i in clock c (from 0). */
bool weft_swarm_table_pushes(const struct weft_swarm_table *table, uint32_t w, uint32_t clock,
                             uint32_t i);

/* The bit of that push in a row. */
static inline uint32_t weft_swarm_table_bit(const struct weft_swarm_table *table, uint32_t w,
                                            uint32_t clock)
{
    return UINT32_C(1) << (w * table->clocks + clock);
}

/* int8: whether the column determines the step of its group. Blocks have 8, 16, .. columns, as set
 * in the table, or are whole rows. */
static inline bool weft_swarm_table_is_anchor(const struct weft_swarm_table *table, uint32_t column)
{
    const uint32_t block = weft_table_block_floats(&table->spec);
    return column + 1 == table->spec.dim || column % 8 == 7 || column % block + 1 == block;
}

/* The exact sum that these pushes add to a column, before rounding. */
double weft_swarm_table_sum(const struct weft_swarm_table *table, uint32_t column, uint32_t set);

/* Bits of all pushes to row i. */
uint32_t weft_swarm_table_all(const struct weft_swarm_table *table, uint32_t i);

/* EXPIRING: the pushes in row i after `version` clocks. */
uint32_t weft_swarm_table_unexpired(const struct weft_swarm_table *table, uint32_t i,
                                    uint32_t version);

/* OPTIMIZER: the weights of row i after `version` clocks. */
const float *weft_swarm_table_truth(const struct weft_swarm_table *table, uint32_t i,
                                    uint32_t version);

#endif
