#include "member/format.h"

#include "base/cursor.h"

#include <string.h>

static const struct weft_status_words statuses[] = {
#define X(name, text) {#name, text},
    WEFT_MEMBER_STATUS_MAP(X)
#undef X
};

const char *weft_member_status_name(uint16_t status)
{
    return weft_status_words_name(statuses, WEFT_MEMBER_STATUS_COUNT, status);
}

const char *weft_member_status_text(uint16_t status)
{
    return weft_status_words_text(statuses, WEFT_MEMBER_STATUS_COUNT, status);
}

static void write_addresses(struct weft_writer *w, const struct weft_member_address *addresses,
                            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        weft_write_bytes(w, addresses[i].ip, sizeof(addresses[i].ip));
        weft_write_u16(w, addresses[i].port);
        weft_write_zeros(w, 6);
    }
}

/* Read exactly `count` addresses; fails if bytes follow. */
static bool read_addresses(struct weft_reader *r, struct weft_member_address *addresses_p,
                           uint32_t count)
{
    if (weft_reader_left(r) != (size_t)count * WEFT_MEMBER_ADDRESS_BYTES) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(addresses_p[i].ip, weft_read_bytes(r, sizeof(addresses_p[i].ip)),
               sizeof(addresses_p[i].ip));
        addresses_p[i].port = weft_read_u16(r);
        bool zero = weft_read_u16(r) == 0;
        zero = weft_read_u32(r) == 0 && zero;
        if (addresses_p[i].port == 0 || !zero) {
            return false;
        }
    }
    return !r->bad;
}

size_t weft_member_request_pack(const struct weft_member_request *request, uint8_t *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_MEMBER_REQUEST_BYTES_MAX);
    weft_write_u32(&w, request->rpc_id);
    weft_write_u8(&w, request->role);
    weft_write_u8(&w, request->flags);
    weft_write_u16(&w, (uint16_t)request->count);
    weft_write_u64(&w, request->member);
    weft_write_u64(&w, request->incarnation);
    weft_write_u32(&w, request->rank);
    weft_write_u32(&w, request->workers);
    weft_write_u32(&w, request->shards);
    weft_write_u32(&w, request->first);
    weft_write_u32(&w, request->span);
    weft_write_u32(&w, request->rack);
    weft_write_u64(&w, request->epoch);
    weft_write_u64(&w, request->have_version);
    weft_write_bytes(&w, request->job, sizeof(request->job));
    write_addresses(&w, request->addresses, request->count);
    return (size_t)(w.at - out);
}

size_t weft_member_reply_pack(const struct weft_member_reply *reply, uint8_t *out)
{
    struct weft_writer w = weft_writer_make(out, weft_member_reply_bytes(WEFT_MEMBER_SHARDS_MAX));
    weft_write_u32(&w, reply->rpc_id);
    weft_write_u16(&w, reply->status);
    weft_write_u16(&w, (uint16_t)reply->count);
    weft_write_u32(&w, reply->rank);
    weft_write_u32(&w, reply->first);
    weft_write_u32(&w, reply->workers);
    weft_write_u32(&w, reply->shards);
    weft_write_u64(&w, reply->epoch);
    weft_write_u64(&w, reply->version);
    weft_write_u32(&w, reply->lease_ms);
    weft_write_u32(&w, reply->retry_ms);
    weft_write_u32(&w, reply->detail);
    weft_write_u8(&w, reply->flags);
    weft_write_zeros(&w, 3);
    weft_write_bytes(&w, reply->job, sizeof(reply->job));
    write_addresses(&w, reply->addresses, reply->count);
    return (size_t)(w.at - out);
}

/* Check the fields against role and op. The roster checks whether the job has the rank or shard. */
static bool request_fits(uint8_t op, const struct weft_member_request *q)
{
    bool is_server = q->role == WEFT_ROLE_SERVER;
    bool is_worker = q->role == WEFT_ROLE_WORKER;
    bool is_aggregator = q->role == WEFT_ROLE_AGGREGATOR && q->rank < WEFT_MEMBER_AGGREGATORS_MAX;
    bool shards_fit = is_server ? q->span >= 1 && q->span <= WEFT_MEMBER_SPAN_MAX
                      : is_aggregator
                          ? q->span <= WEFT_MEMBER_SPAN_MAX && q->first == WEFT_MEMBER_NONE
                          : q->span == 0 && q->first == WEFT_MEMBER_NONE;
    uint8_t flags = op == WEFT_MEMBER_LEAVE ? WEFT_MEMBER_DONE : 0;
    return op >= WEFT_MEMBER_REGISTER && op <= WEFT_MEMBER_FIND_AGGREGATOR &&
           (is_server || is_worker || is_aggregator) && shards_fit && q->rpc_id != 0 &&
           q->member != 0 && (q->flags & ~flags) == 0 && q->workers <= WEFT_RPC_WORKERS_MAX &&
           q->shards <= WEFT_MEMBER_SHARDS_MAX &&
           (q->have_version == 0 || op == WEFT_MEMBER_LIST || op == WEFT_MEMBER_FIND_AGGREGATOR) &&
           weft_job_name_valid(q->job) &&
           (q->count == 0 || (op == WEFT_MEMBER_REGISTER && q->count == q->span));
}

weft_status weft_member_request_unpack(uint8_t op, const uint8_t *bytes, size_t count,
                                       struct weft_member_request *request_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_member_request q = {.rpc_id = weft_read_u32(&r)};
    q.role = weft_read_u8(&r);
    q.flags = weft_read_u8(&r);
    q.count = weft_read_u16(&r);
    q.member = weft_read_u64(&r);
    q.incarnation = weft_read_u64(&r);
    q.rank = weft_read_u32(&r);
    q.workers = weft_read_u32(&r);
    q.shards = weft_read_u32(&r);
    q.first = weft_read_u32(&r);
    q.span = weft_read_u32(&r);
    q.rack = weft_read_u32(&r);
    q.epoch = weft_read_u64(&r);
    q.have_version = weft_read_u64(&r);
    const uint8_t *job = weft_read_bytes(&r, sizeof(q.job));
    if (job == NULL) {
        return WEFT_PROTO;
    }
    memcpy(q.job, job, sizeof(q.job));
    if (!request_fits(op, &q) || !read_addresses(&r, q.addresses, q.count)) {
        return WEFT_PROTO;
    }
    *request_p = q;
    return WEFT_OK;
}

weft_status weft_member_reply_unpack(const uint8_t *bytes, size_t count,
                                     struct weft_member_reply *reply_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_member_reply a = {.rpc_id = weft_read_u32(&r)};
    a.status = weft_read_u16(&r);
    a.count = weft_read_u16(&r);
    a.rank = weft_read_u32(&r);
    a.first = weft_read_u32(&r);
    a.workers = weft_read_u32(&r);
    a.shards = weft_read_u32(&r);
    a.epoch = weft_read_u64(&r);
    a.version = weft_read_u64(&r);
    a.lease_ms = weft_read_u32(&r);
    a.retry_ms = weft_read_u32(&r);
    a.detail = weft_read_u32(&r);
    a.flags = weft_read_u8(&r);
    uint32_t reserved = weft_read_u8(&r);
    reserved |= weft_read_u16(&r);
    const uint8_t *job = weft_read_bytes(&r, sizeof(a.job));
    if (job == NULL || reserved != 0 || (a.flags & ~WEFT_MEMBER_JOB_DONE) != 0 || a.rpc_id == 0 ||
        a.workers > WEFT_RPC_WORKERS_MAX || a.shards > WEFT_MEMBER_SHARDS_MAX ||
        a.count > WEFT_MEMBER_SHARDS_MAX || a.lease_ms == 0) {
        return WEFT_PROTO;
    }
    memcpy(a.job, job, sizeof(a.job));
    if (!weft_job_name_valid(a.job) || !read_addresses(&r, a.addresses, a.count)) {
        return WEFT_PROTO;
    }
    *reply_p = a;
    return WEFT_OK;
}

uint32_t weft_member_rack(const char *name)
{
    uint32_t rack = UINT32_C(2166136261); /* FNV-1a */
    for (const char *at = name; at != NULL && *at != '\0'; at++) {
        rack = (rack ^ (uint8_t)*at) * UINT32_C(16777619);
    }
    return name == NULL || name[0] == '\0' ? 0 : rack != 0 ? rack : 1;
}
