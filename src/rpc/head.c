#include "rpc/head.h"

#include "base/assert.h"
#include "base/cursor.h"

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
    weft_write_u32(&w, request->rows_critical);
    weft_write_u32(&w, request->after_seq);
    weft_write_u32(&w, request->need_clock);
    weft_write_u32(&w, request->reply_bound_ppm);
    weft_write_u32(&w, request->rows);
    weft_write_u32(&w, request->flags);
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
        .rows_critical = weft_read_u32(&r),
        .after_seq = weft_read_u32(&r),
        .need_clock = weft_read_u32(&r),
        .reply_bound_ppm = weft_read_u32(&r),
        .rows = weft_read_u32(&r),
        .flags = weft_read_u32(&r),
    };
    if (r.bad || (request.flags & ~(uint32_t)WEFT_RPC_FLAGS_ALL) != 0 || request.rpc_id == 0 ||
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
    weft_write_u16(&w, reply->can);
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
    reply.can = weft_read_u16(&r);
    reply.t0_ns = weft_read_u64(&r);
    reply.clock = weft_read_u32(&r);
    reply.rows = weft_read_u32(&r);
    reply.ps_proc_ns = weft_read_u64(&r);
    reply.ps_overlap_ns = weft_read_u64(&r);
    reply.ps_wait_ns = weft_read_u64(&r);
    reply.ps_queue_ns = weft_read_u64(&r);
    if (r.bad || (reply.can & ~WEFT_RPC_CAN_ALL) != 0 || reply.rpc_id == 0) {
        return WEFT_PROTO;
    }
    *reply_p = reply;
    return WEFT_OK;
}

void weft_rpc_pushes_pack(const struct weft_rpc_pushes *pushes, void *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_RPC_PUSHES_BYTES);
    weft_write_u64(&w, pushes->newest);
    weft_write_u64(&w, pushes->closed[0]);
    weft_write_u64(&w, pushes->closed[1]);
    weft_write_u64(&w, pushes->begun[0]);
    weft_write_u64(&w, pushes->begun[1]);
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

weft_status weft_rpc_pushes_unpack(const void *bytes, struct weft_rpc_pushes *pushes_p)
{
    struct weft_reader r = weft_reader_make(bytes, WEFT_RPC_PUSHES_BYTES);
    struct weft_rpc_pushes pushes = {.newest = weft_read_u64(&r)};
    pushes.closed[0] = weft_read_u64(&r);
    pushes.closed[1] = weft_read_u64(&r);
    pushes.begun[0] = weft_read_u64(&r);
    pushes.begun[1] = weft_read_u64(&r);
    if (r.bad || pushes.newest > INT64_MAX) {
        return WEFT_PROTO;
    }
    *pushes_p = pushes;
    return WEFT_OK;
}

void weft_rpc_durable_upto_pack(uint64_t number, void *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_RPC_DURABLE_UPTO_BYTES);
    weft_write_u64(&w, number);
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

uint64_t weft_rpc_durable_upto_unpack(const void *bytes)
{
    struct weft_reader r = weft_reader_make(bytes, WEFT_RPC_DURABLE_UPTO_BYTES);
    return weft_read_u64(&r);
}
