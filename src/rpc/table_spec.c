#include "rpc/table_spec.h"

#include "base/assert.h"
#include "base/cursor.h"

#include <math.h>

/* The body of TABLE in order: one list for both directions. */
#define SPEC_FIELDS(U8, U16, U32, U64, F32)                                                        \
    U32(dim)                                                                                       \
    U8(optimizer) U8(mode) U16(workers)                                                            \
    U32(staleness)                                                                                 \
    F32(learning_rate) F32(epsilon) F32(accumulator)                                               \
    F32(beta1) F32(beta2) F32(l1) F32(l2)                                                          \
    F32(init_scale) U32(init_skip) U64(init_seed)                                                  \
    U8(kind) U8(admission) U8(eviction) U8(not_finite)                                             \
    F32(clip)                                                                                      \
    U32(admission_count) U32(admission_cells)                                                      \
    U32(ttl)                                                                                       \
    U32(rows_max) U64(bytes_max)                                                                   \
    U64(length)                                                                                    \
    U16(block_floats) U8(average)                                                                  \
    U8(push_values) U8(pull_values)

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void weft_table_spec_pack(const struct weft_table_spec *spec, void *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_RPC_SPEC_BYTES);
#define U8(field)  weft_write_u8(&w, spec->field);
#define U16(field) weft_write_u16(&w, spec->field);
#define U32(field) weft_write_u32(&w, spec->field);
#define U64(field) weft_write_u64(&w, spec->field);
#define F32(field) weft_write_u32(&w, float_bits(spec->field));
    SPEC_FIELDS(U8, U16, U32, U64, F32)
#undef U8
#undef U16
#undef U32
#undef U64
#undef F32
    weft_write_u8(&w, 0);
    weft_write_u16(&w, 0);
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

weft_status weft_table_spec_unpack(uint16_t table, const void *bytes, size_t count,
                                   struct weft_table_spec *spec_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_table_spec spec = {.table = table};
#define U8(field)  spec.field = weft_read_u8(&r);
#define U16(field) spec.field = weft_read_u16(&r);
#define U32(field) spec.field = weft_read_u32(&r);
#define U64(field) spec.field = weft_read_u64(&r);
#define F32(field) spec.field = bits_float(weft_read_u32(&r));
    SPEC_FIELDS(U8, U16, U32, U64, F32)
#undef U8
#undef U16
#undef U32
#undef U64
#undef F32
    uint32_t reserved = weft_read_u8(&r);
    reserved |= weft_read_u16(&r);
    if (r.bad || reserved != 0 || !weft_table_spec_valid(&spec)) {
        return WEFT_PROTO;
    }
    *spec_p = spec;
    return WEFT_OK;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Minus zero does not count as unused, because its bytes are not zero. */
static bool unused(float value)
{
    return float_bits(value) == 0;
}

static bool at_least_0(float value)
{
    return isfinite(value) && value >= 0 && !signbit(value);
}

static bool below_1(float value)
{
    return at_least_0(value) && value < 1;
}

/* The fields that each optimizer uses of the seven parameters. */
enum { EPSILON = 1, ACCUMULATOR = 2, BETA1 = 4, BETA2 = 8, L1 = 16, L2 = 32 };

static bool optimizer_ranges(const struct weft_table_spec *spec, unsigned reads)
{
    return isfinite(spec->learning_rate) &&
           (reads & EPSILON ? at_least_0(spec->epsilon) : unused(spec->epsilon)) &&
           (reads & ACCUMULATOR ? at_least_0(spec->accumulator) : unused(spec->accumulator)) &&
           (reads & BETA1 ? below_1(spec->beta1) : unused(spec->beta1)) &&
           (reads & BETA2 ? below_1(spec->beta2) : unused(spec->beta2)) &&
           (reads & L1 ? at_least_0(spec->l1) : unused(spec->l1)) &&
           (reads & L2 ? at_least_0(spec->l2) : unused(spec->l2));
}

/* The second conditions prevent 0 / 0 if the first gradient is zero. */
static bool optimizer_valid(const struct weft_table_spec *spec)
{
    switch (spec->optimizer) {
    case WEFT_OPTIMIZER_SGD:
        return optimizer_ranges(spec, 0);
    case WEFT_OPTIMIZER_MOMENTUM:
        return optimizer_ranges(spec, BETA1);
    case WEFT_OPTIMIZER_ADAGRAD:
    case WEFT_OPTIMIZER_ADADELAY:
        return optimizer_ranges(spec, EPSILON | ACCUMULATOR) &&
               spec->epsilon + spec->accumulator > 0;
    case WEFT_OPTIMIZER_ADAM:
        return optimizer_ranges(spec, EPSILON | BETA1 | BETA2) && spec->epsilon > 0;
    case WEFT_OPTIMIZER_FTRL:
        return optimizer_ranges(spec, EPSILON | ACCUMULATOR | L1 | L2) && spec->learning_rate > 0 &&
               spec->epsilon + spec->accumulator + spec->l2 > 0;
    default:
        return false;
    }
}

static bool init_valid(const struct weft_table_spec *spec)
{
    if (unused(spec->init_scale)) {
        return spec->init_skip == 0 && spec->init_seed == 0;
    }
    return at_least_0(spec->init_scale) && spec->init_skip < spec->dim;
}

static bool admission_valid(const struct weft_table_spec *spec)
{
    if (spec->admission == WEFT_ADMISSION_ALL) {
        return spec->admission_count == 0 && spec->admission_cells == 0;
    }
    return spec->admission <= WEFT_ADMISSION_BLOOM && spec->admission_count >= 2 &&
           (spec->admission == WEFT_ADMISSION_COUNTER ||
            spec->admission_count <= WEFT_RPC_BLOOM_COUNT_MAX) &&
           spec->admission_cells >= WEFT_RPC_CELLS_MIN &&
           spec->admission_cells <= WEFT_RPC_CELLS_MAX;
}

static bool not_finite_valid(const struct weft_table_spec *spec)
{
    return spec->not_finite <= WEFT_NOT_FINITE_DROP &&
           (spec->not_finite == WEFT_NOT_FINITE_CLIP ? isfinite(spec->clip) && spec->clip > 0
                                                     : unused(spec->clip));
}

/* A dense table has all its rows from the start, and never loses one. */
static bool kind_valid(const struct weft_table_spec *spec)
{
    if (spec->kind == WEFT_TABLE_SPARSE) {
        return spec->length == 0 && spec->rows_max <= WEFT_RPC_ROWS_MAX &&
               spec->eviction <= WEFT_EVICTION_L2 &&
               (spec->eviction == WEFT_EVICTION_TTL) == (spec->ttl > 0) && admission_valid(spec);
    }
    return spec->kind == WEFT_TABLE_DENSE && spec->length >= 1 &&
           spec->length <= (uint64_t)WEFT_RPC_ROWS_MAX * spec->dim && spec->rows_max == 0 &&
           spec->bytes_max == 0 && spec->eviction == WEFT_EVICTION_NONE && spec->ttl == 0 &&
           spec->admission == WEFT_ADMISSION_ALL && admission_valid(spec);
}

static bool shape_valid(const struct weft_table_spec *spec)
{
    uint32_t most = spec->dim < WEFT_RPC_BLOCK_FLOATS ? spec->dim : WEFT_RPC_BLOCK_FLOATS;
    return spec->dim >= 1 && spec->dim <= WEFT_RPC_DIM_MAX &&
           (spec->block_floats == 0 ||
            (spec->block_floats >= WEFT_RPC_BLOCK_FLOATS_MIN && spec->block_floats <= most));
}

static bool average_valid(const struct weft_table_spec *spec)
{
    return spec->average <= WEFT_AVERAGE_NONE &&
           spec->average == weft_table_average_of(spec, weft_table_average(spec));
}

static bool values_valid(const struct weft_table_spec *spec)
{
    return spec->push_values <= WEFT_VALUE_INT8 && spec->pull_values <= WEFT_VALUE_BF16;
}

bool weft_table_spec_valid(const struct weft_table_spec *spec)
{
    return shape_valid(spec) && values_valid(spec) && spec->workers >= 1 &&
           spec->mode <= WEFT_TABLE_ASP && (spec->mode == WEFT_TABLE_SSP || spec->staleness == 0) &&
           optimizer_valid(spec) && init_valid(spec) && kind_valid(spec) &&
           not_finite_valid(spec) && average_valid(spec);
}

bool weft_table_spec_equal(const struct weft_table_spec *a, const struct weft_table_spec *b)
{
    uint8_t a_bytes[WEFT_RPC_SPEC_BYTES], b_bytes[WEFT_RPC_SPEC_BYTES];
    weft_table_spec_pack(a, a_bytes);
    weft_table_spec_pack(b, b_bytes);
    return a->table == b->table && memcmp(a_bytes, b_bytes, sizeof(a_bytes)) == 0;
}
