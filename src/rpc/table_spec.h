/* The specification of a table: the parameters that all ends must agree on, the division of rows
 * into elements, and the assignment of rows to shards.
 *
 * This header defines a format and its rules only. Optimizers, admission and eviction are
 * implemented in ps/ and documented for users in docs/TABLES.md. A field that has no meaning with
 * the values of the other fields must be zero, so that equal tables have equal bytes. If all fields
 * from `init_scale` on are zero, the table is a plain sparse table whose weights start at zero.
 *
 * Source: docs/PROTOCOL.md section 7, TABLE.
 */
#ifndef WEFT_RPC_TABLE_SPEC_H
#define WEFT_RPC_TABLE_SPEC_H

#include "base/prng.h"
#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

enum {
    WEFT_RPC_SPEC_BYTES = 104,
    WEFT_RPC_DIM_MAX = 1024,
    WEFT_RPC_BLOCK_FLOATS = 256,    /* longest block of a row in one element, in floats */
    WEFT_RPC_BLOCK_FLOATS_MIN = 8,  /* shortest block that a spec may set, in floats */
    WEFT_RPC_ROWS_MAX = 1 << 30,    /* of a table on one shard */
    WEFT_RPC_BLOOM_COUNT_MAX = 255, /* counters of the filter are bytes */
    WEFT_RPC_CELLS_MIN = 64,
    WEFT_RPC_CELLS_MAX = 1 << 30,
};

enum weft_table_mode { WEFT_TABLE_BSP = 0, WEFT_TABLE_SSP = 1, WEFT_TABLE_ASP = 2 };

enum weft_table_kind { WEFT_TABLE_SPARSE = 0, WEFT_TABLE_DENSE = 1 };

/* Values on the wire; ps/optimizer.h has the names and the arithmetic. */
enum weft_optimizer_kind {
    WEFT_OPTIMIZER_SGD = 0,
    WEFT_OPTIMIZER_ADAGRAD = 1,
    WEFT_OPTIMIZER_MOMENTUM = 2,
    WEFT_OPTIMIZER_ADAM = 3,
    WEFT_OPTIMIZER_FTRL = 4,
    WEFT_OPTIMIZER_ADADELAY = 5,
};

/* The push at which an id gets a row. */
enum weft_table_admission {
    WEFT_ADMISSION_ALL = 0,     /* at its first push */
    WEFT_ADMISSION_COUNTER = 1, /* at push number admission_count, counted per id */
    WEFT_ADMISSION_BLOOM = 2,   /* as COUNTER, with a counting Bloom filter: never later,
                                 * occasionally earlier */
};

/* The row that is evicted when a new row needs space. */
enum weft_table_eviction {
    WEFT_EVICTION_NONE = 0, /* none: the new row is refused */
    WEFT_EVICTION_TTL = 1,  /* rows not pushed for `ttl` clocks, whether the table is full or not;
                             * no other row */
    WEFT_EVICTION_LRU = 2,  /* the row pushed or pulled least recently */
    WEFT_EVICTION_L2 = 3,   /* the row with the smallest norm */
};

/* Handling of a gradient that is infinite or not a number. */
enum weft_table_not_finite {
    WEFT_NOT_FINITE_REJECT = 0, /* its chunk is refused */
    WEFT_NOT_FINITE_CLIP = 1,   /* every element is clipped to [-clip, clip]; NaN becomes 0 */
    WEFT_NOT_FINITE_DROP = 2,   /* its element of the message (a block of a row) is skipped */
};

/* The divisor of a gradient. The default for a kind and mode is encoded only as USUAL, so that
 * equal tables have equal bytes. */
enum weft_table_average {
    WEFT_AVERAGE_USUAL = 0,        /* CONTRIBUTORS for a dense table in BSP, else WORKERS */
    WEFT_AVERAGE_WORKERS = 1,      /* W, regardless of the number of gradients received */
    WEFT_AVERAGE_CONTRIBUTORS = 2, /* BSP: the number of gradients received for the block of the row
                                    * in the clock; else 1, because every gradient is a separate
                                    * step */
    WEFT_AVERAGE_NONE = 3,         /* 1: no division, for counts */
};

/* Encoding of values on the wire. Both ends compute with float32. */
enum weft_value_type {
    WEFT_VALUE_FLOAT32 = 0,
    WEFT_VALUE_BF16 = 1, /* the upper half of a float32: 8 bits of exponent, 8 of precision */
    WEFT_VALUE_INT8 = 2, /* gradients only: a multiple of a step size, which is sent per group */
};

/* Values per group of int8, at most. A scale of two bytes precedes each group. */
enum { WEFT_INT8_GROUP = 64, WEFT_INT8_SCALE_BYTES = 2 };

/* `table` is the table's number, which is sent in the tag. The other fields are the body of TABLE.
 * Limits and cells apply to each shard. */
struct weft_table_spec {
    uint16_t table;
    uint32_t dim;        /* floats in a row; 1 .. WEFT_RPC_DIM_MAX */
    uint8_t optimizer;   /* enum weft_optimizer_kind */
    uint8_t mode;        /* enum weft_table_mode */
    uint16_t workers;    /* W: clocks are counted over ranks 0 .. W-1; >= 1 */
    uint32_t staleness;  /* SSP: number of clocks that a pull may be behind; 0 in the other modes */
    float learning_rate; /* finite; FTRL: > 0 */
    float epsilon;       /* Adagrad, AdaDelay, Adam; FTRL's beta; >= 0 */
    float accumulator;   /* sum of squares of a new row (Adagrad, AdaDelay, FTRL); >= 0 */
    float beta1;         /* Adam; momentum; 0 <= beta1 < 1 */
    float beta2;         /* Adam; 0 <= beta2 < 1 */
    float l1;            /* FTRL; >= 0 */
    float l2;            /* FTRL; >= 0 */
    float init_scale;    /* initial weights are weft_init_value(init_seed, id, column,
                          * init_scale) */
    uint32_t init_skip;  /* the first init_skip columns start at 0 instead; < dim */
    uint64_t init_seed;
    uint8_t kind;             /* enum weft_table_kind */
    uint8_t admission;        /* enum weft_table_admission */
    uint8_t eviction;         /* enum weft_table_eviction */
    uint8_t not_finite;       /* enum weft_table_not_finite */
    float clip;               /* CLIP: > 0 */
    uint32_t admission_count; /* COUNTER: >= 2; BLOOM: 2 .. WEFT_RPC_BLOOM_COUNT_MAX */
    uint32_t admission_cells; /* COUNTER: ids (16 bytes each); BLOOM: counters (a byte each) */
    uint32_t ttl;             /* TTL: clocks, >= 1 */
    uint32_t rows_max;        /* 0 = only the server's limit applies */
    uint64_t bytes_max;       /* of index, rows and cells; 0 = only the server's limit applies */
    uint64_t length;          /* DENSE: floats in the vector, >= 1 */
    uint16_t block_floats;    /* floats per element: WEFT_RPC_BLOCK_FLOATS_MIN .. min(dim, 256), for
                               * packets too small for a longer block; 0 = min(dim, 256) */
    uint8_t average;          /* enum weft_table_average */
    uint8_t push_values;      /* enum weft_value_type: of gradients in PUSH */
    uint8_t pull_values;      /* enum weft_value_type except INT8: of weights in the reply to
                               * PULL */
};

/* out must have WEFT_RPC_SPEC_BYTES. */
void weft_table_spec_pack(const struct weft_table_spec *spec, void *out);

/* Errors: WEFT_PROTO too short, a field is out of range, or an unused field is nonzero. */
weft_status weft_table_spec_unpack(uint16_t table, const void *bytes, size_t count,
                                   struct weft_table_spec *spec_p);

bool weft_table_spec_valid(const struct weft_table_spec *spec);
bool weft_table_spec_equal(const struct weft_table_spec *a, const struct weft_table_spec *b);

/* ---- averages -------------------------------------------------------------------------------- */

static inline bool weft_table_usually_contributors(const struct weft_table_spec *spec)
{
    return spec->kind == WEFT_TABLE_DENSE && spec->mode == WEFT_TABLE_BSP;
}

static inline uint8_t weft_table_usual_average(const struct weft_table_spec *spec)
{
    return weft_table_usually_contributors(spec) ? WEFT_AVERAGE_CONTRIBUTORS : WEFT_AVERAGE_WORKERS;
}

/* The effective `average` of a table; never USUAL. */
static inline uint8_t weft_table_average(const struct weft_table_spec *spec)
{
    return spec->average == WEFT_AVERAGE_USUAL ? weft_table_usual_average(spec) : spec->average;
}

/* The encoding of `average` for a table of this kind and mode: USUAL if it is the default. */
static inline uint8_t weft_table_average_of(const struct weft_table_spec *spec,
                                            enum weft_table_average average)
{
    return average == weft_table_usual_average(spec) ? WEFT_AVERAGE_USUAL : (uint8_t)average;
}

/* ---- rows as elements ------------------------------------------------------------------------ */

/* A row is `blocks` elements of `block_floats` floats; the last block is padded with zeros. */
static inline uint32_t weft_table_block_floats(const struct weft_table_spec *spec)
{
    uint32_t most = spec->dim < WEFT_RPC_BLOCK_FLOATS ? spec->dim : WEFT_RPC_BLOCK_FLOATS;
    return spec->block_floats == 0 ? most : spec->block_floats;
}

static inline uint32_t weft_table_blocks(const struct weft_table_spec *spec)
{
    uint32_t floats = weft_table_block_floats(spec);
    return (spec->dim + floats - 1) / floats;
}

/* Floats of block `block` that belong to the row (the rest is padding). */
static inline uint32_t weft_table_block_used(const struct weft_table_spec *spec, uint32_t block)
{
    uint32_t floats = weft_table_block_floats(spec);
    uint32_t left = spec->dim - block * floats;
    return left < floats ? left : floats;
}

/* Bytes of an id in a request. */
enum { WEFT_RPC_ID_NARROW = 4, WEFT_RPC_ID_WIDE = 8 };

/* Bytes of an element of the message if ids are packed. */
enum { WEFT_RPC_ID_PACKED = 1 };

/* Number of blocks of this length that share a group of int8. A longer block has several groups. */
static inline uint32_t weft_int8_group_blocks(uint32_t floats)
{
    return floats < WEFT_INT8_GROUP ? WEFT_INT8_GROUP / floats : 1;
}

/* Bytes of this many blocks, encoded together. */
static inline size_t weft_blocks_bytes(uint8_t type, uint32_t floats, size_t blocks)
{
    const size_t values = blocks * floats;
    if (type != WEFT_VALUE_INT8) {
        return values * (type == WEFT_VALUE_BF16 ? 2 : 4);
    }
    const size_t groups = floats < WEFT_INT8_GROUP
                              ? weft_div_ceil_u64(blocks, weft_int8_group_blocks(floats))
                              : blocks * weft_div_ceil_u64(floats, WEFT_INT8_GROUP);
    return values + groups * WEFT_INT8_SCALE_BYTES;
}

/* Number of blocks, encoded together, that fit into this many bytes. */
static inline size_t weft_blocks_within(uint8_t type, uint32_t floats, size_t bytes)
{
    const size_t block_bytes = weft_blocks_bytes(type, floats, 1);
    if (type != WEFT_VALUE_INT8 || floats >= WEFT_INT8_GROUP) {
        return bytes / block_bytes;
    }
    const size_t group_blocks = weft_int8_group_blocks(floats);
    const size_t group_bytes = WEFT_INT8_SCALE_BYTES + group_blocks * floats;
    const size_t rest = bytes % group_bytes;
    return bytes / group_bytes * group_blocks +
           (rest < block_bytes ? 0 : (rest - WEFT_INT8_SCALE_BYTES) / floats);
}

/* Bytes of one block of a row: in PUSH, in its own element, and in the reply to PULL. */
static inline uint32_t weft_table_push_block_bytes(const struct weft_table_spec *spec)
{
    return (uint32_t)weft_blocks_bytes(spec->push_values, weft_table_block_floats(spec), 1);
}

static inline uint32_t weft_table_pull_block_bytes(const struct weft_table_spec *spec)
{
    return (uint32_t)weft_blocks_bytes(spec->pull_values, weft_table_block_floats(spec), 1);
}

/* Bytes of the blocks in a chunk of PUSH with one-byte elements, which are encoded together. */
static inline size_t weft_table_push_blocks_bytes(const struct weft_table_spec *spec, size_t blocks)
{
    return weft_blocks_bytes(spec->push_values, weft_table_block_floats(spec), blocks);
}

static inline uint32_t weft_table_push_blocks_within(const struct weft_table_spec *spec,
                                                     size_t bytes)
{
    return (uint32_t)weft_blocks_within(spec->push_values, weft_table_block_floats(spec), bytes);
}

/* Bytes of one element of PUSH and of the reply to PULL. */
static inline uint16_t weft_table_push_elem_bytes(const struct weft_table_spec *spec,
                                                  uint32_t id_bytes)
{
    return (uint16_t)(id_bytes + weft_table_push_block_bytes(spec));
}

static inline uint16_t weft_table_pull_elem_bytes(const struct weft_table_spec *spec)
{
    return (uint16_t)weft_table_pull_block_bytes(spec);
}

/* Upper bound of the bytes of a row of up to dim_max floats in a PUSH, for any block length and
 * value type. (n blocks of b floats: n < dim / b + 1, b >= 8 unless the row is one block.) */
static inline size_t weft_table_row_push_bytes_max(uint32_t dim_max)
{
    size_t dim = dim_max;
    size_t block = dim < WEFT_RPC_BLOCK_FLOATS ? dim : WEFT_RPC_BLOCK_FLOATS;
    return dim <= WEFT_RPC_BLOCK_FLOATS_MIN ? 8 + 4 * dim : 5 * dim + 8 + 4 * block;
}

/* ---- rows of shards -------------------------------------------------------------------------- */

static inline uint32_t weft_hash_shard(uint64_t hash, uint32_t shards)
{
    return (uint32_t)((__extension__(unsigned __int128) hash * shards) >> 64);
}

/* The shard that stores row `id` of a sparse table; shards >= 1. Every u64 is a valid id. */
static inline uint32_t weft_table_shard_of(uint64_t id, uint32_t shards)
{
    return weft_hash_shard(weft_mix64(id), shards);
}

/* The same for any table. The rows of a dense table, which are its blocks of dim floats, are
 * assigned round-robin. */
static inline uint32_t weft_table_spec_shard(const struct weft_table_spec *spec, uint64_t id,
                                             uint32_t shards)
{
    return spec->kind == WEFT_TABLE_DENSE ? (uint32_t)(id % shards)
                                          : weft_table_shard_of(id, shards);
}

/* Number of rows of a dense table's vector, over all shards. */
static inline uint64_t weft_table_dense_rows(const struct weft_table_spec *spec)
{
    return weft_div_ceil_u64(spec->length, spec->dim);
}

#endif
