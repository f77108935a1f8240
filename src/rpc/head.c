#include "rpc/head.h"

#include "base/assert.h"
#include "base/cursor.h"

#include <math.h>

static const struct {
    const char *name;
    const char *text;
} statuses[WEFT_RPC_STATUS_COUNT] = {
#define X(name, text) {#name, text},
    WEFT_RPC_STATUS_MAP(X)
#undef X
};

const char *weft_rpc_status_name(uint16_t status)
{
    return status < WEFT_RPC_STATUS_COUNT ? statuses[status].name : "unknown";
}

const char *weft_rpc_status_text(uint16_t status)
{
    return status < WEFT_RPC_STATUS_COUNT ? statuses[status].text : "unknown";
}

void weft_rpc_request_pack(const struct weft_rpc_request *request, void *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_RPC_REQUEST_BYTES);
    weft_write_u32(&w, request->rpc_id);
    weft_write_u32(&w, request->worker);
    weft_write_u64(&w, request->t0_ns);
    weft_write_u64(&w, request->after_seq);
    weft_write_u32(&w, request->need_clock);
    weft_write_u32(&w, request->reply_bound_ppm);
    weft_write_u32(&w, request->rows);
    weft_write_u32(&w, 0);
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

weft_status weft_rpc_request_unpack(const void *bytes, size_t count,
                                    struct weft_rpc_request *request_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_rpc_request request = {
        .rpc_id = weft_read_u32(&r),
        .worker = weft_read_u32(&r),
        .t0_ns = weft_read_u64(&r),
        .after_seq = weft_read_u64(&r),
        .need_clock = weft_read_u32(&r),
        .reply_bound_ppm = weft_read_u32(&r),
        .rows = weft_read_u32(&r),
    };
    uint32_t reserved = weft_read_u32(&r);
    if (r.bad || reserved != 0 || request.rpc_id == 0 || request.after_seq > UINT32_MAX ||
        request.reply_bound_ppm >= WEFT_PPM) {
        return WEFT_PROTO;
    }
    *request_p = request;
    return WEFT_OK;
}

void weft_rpc_reply_pack(const struct weft_rpc_reply *reply, void *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_RPC_REPLY_BYTES);
    weft_write_u32(&w, reply->rpc_id);
    weft_write_u16(&w, reply->status);
    weft_write_u16(&w, 0);
    weft_write_u64(&w, reply->t0_ns);
    weft_write_u32(&w, reply->clock);
    weft_write_u32(&w, reply->rows);
    weft_write_u64(&w, reply->ps_proc_ns);
    weft_write_u64(&w, reply->ps_overlap_ns);
    weft_write_u64(&w, reply->ps_wait_ns);
    weft_write_u64(&w, reply->ps_queue_ns);
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

weft_status weft_rpc_reply_unpack(const void *bytes, size_t count, struct weft_rpc_reply *reply_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_rpc_reply reply = {.rpc_id = weft_read_u32(&r), .status = weft_read_u16(&r)};
    uint16_t reserved = weft_read_u16(&r);
    reply.t0_ns = weft_read_u64(&r);
    reply.clock = weft_read_u32(&r);
    reply.rows = weft_read_u32(&r);
    reply.ps_proc_ns = weft_read_u64(&r);
    reply.ps_overlap_ns = weft_read_u64(&r);
    reply.ps_wait_ns = weft_read_u64(&r);
    reply.ps_queue_ns = weft_read_u64(&r);
    if (r.bad || reserved != 0 || reply.rpc_id == 0) {
        return WEFT_PROTO;
    }
    *reply_p = reply;
    return WEFT_OK;
}

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
    weft_write_u32(&w, spec->dim);
    weft_write_u8(&w, spec->optimizer);
    weft_write_u8(&w, spec->mode);
    weft_write_u16(&w, spec->workers);
    weft_write_u32(&w, spec->staleness);
    weft_write_u32(&w, float_bits(spec->learning_rate));
    weft_write_u32(&w, float_bits(spec->epsilon));
    weft_write_u32(&w, float_bits(spec->accumulator));
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

weft_status weft_table_spec_unpack(uint16_t table, const void *bytes, size_t count,
                                   struct weft_table_spec *spec_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_table_spec spec = {
        .table = table,
        .dim = weft_read_u32(&r),
        .optimizer = weft_read_u8(&r),
        .mode = weft_read_u8(&r),
        .workers = weft_read_u16(&r),
        .staleness = weft_read_u32(&r),
    };
    spec.learning_rate = bits_float(weft_read_u32(&r));
    spec.epsilon = bits_float(weft_read_u32(&r));
    spec.accumulator = bits_float(weft_read_u32(&r));
    if (r.bad || !weft_table_spec_valid(&spec)) {
        return WEFT_PROTO;
    }
    *spec_p = spec;
    return WEFT_OK;
}

static bool optimizer_valid(const struct weft_table_spec *spec)
{
    if (spec->optimizer == WEFT_OPTIMIZER_SGD) {
        return float_bits(spec->epsilon) == 0 && float_bits(spec->accumulator) == 0;
    }
    /* sqrt(s) + epsilon = 0 would divide by zero at the first gradient of zero. */
    return spec->optimizer == WEFT_OPTIMIZER_ADAGRAD && isfinite(spec->epsilon) &&
           isfinite(spec->accumulator) && spec->epsilon >= 0 && spec->accumulator >= 0 &&
           spec->epsilon + spec->accumulator > 0;
}

bool weft_table_spec_valid(const struct weft_table_spec *spec)
{
    return spec->dim >= 1 && spec->dim <= WEFT_RPC_DIM_MAX && spec->workers >= 1 &&
           spec->mode <= WEFT_TABLE_ASP && (spec->mode == WEFT_TABLE_SSP || spec->staleness == 0) &&
           isfinite(spec->learning_rate) && optimizer_valid(spec);
}

bool weft_table_spec_equal(const struct weft_table_spec *a, const struct weft_table_spec *b)
{
    uint8_t a_bytes[WEFT_RPC_SPEC_BYTES], b_bytes[WEFT_RPC_SPEC_BYTES];
    weft_table_spec_pack(a, a_bytes);
    weft_table_spec_pack(b, b_bytes);
    return a->table == b->table && memcmp(a_bytes, b_bytes, sizeof(a_bytes)) == 0;
}
