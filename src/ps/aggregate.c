/* The format of AGGREGATE. */
#include "ps/aggregate.h"

#include "ps/id_pack.h"
#include "ps/optimizer.h"
#include "ps/values.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert((int)WEFT_AGGREGATE_BASE_BYTES == (int)WEFT_AGGREGATE_CLOCK_BYTES);

/* An aggregator is declared dead if it has sent no request for this long while another process
 * requests its number. */
static const uint64_t rival_patience_ns = WEFT_NS_PER_S;

bool weft_aggregate_takes(const struct weft_table_spec *spec)
{
    return weft_table_blocks(spec) == 1 && spec->push_values == WEFT_VALUE_FLOAT32 &&
           spec->not_finite != WEFT_NOT_FINITE_CLIP && spec->admission == WEFT_ADMISSION_ALL &&
           spec->eviction == WEFT_EVICTION_NONE;
}

bool weft_aggregate_weighs(const struct weft_table_spec *spec)
{
    return spec->optimizer == WEFT_OPTIMIZER_ADADELAY && spec->mode != WEFT_TABLE_BSP;
}

double weft_aggregate_weight(uint32_t newest, uint32_t clock)
{
    return newest == 0 ? 1 : sqrt((double)weft_optimizer_fresh(newest, clock));
}

double weft_aggregate_reweigh(const struct weft_aggregate_view *view, uint32_t clock,
                              uint32_t newest)
{
    double from = 0, to = 0;
    for (uint32_t i = 0; i < view->members; i++) {
        const uint32_t own = weft_aggregate_member_at(view, i).clock;
        from += weft_aggregate_weight(view->request.need_clock, own != 0 ? own : clock);
        to += weft_aggregate_weight(newest, own != 0 ? own : clock);
    }
    return to / from;
}

uint64_t weft_aggregate_bytes_max(uint32_t members, uint32_t rows, uint32_t dim)
{
    /* Ascending ids need at most 8 bytes each plus the block headers. */
    uint64_t ids = (uint64_t)rows * 9 + 32 * ((uint64_t)rows / WEFT_IDS_BLOCK + 1);
    return WEFT_AGGREGATE_HEAD_BYTES +
           (uint64_t)members * (WEFT_AGGREGATE_MEMBER_BYTES + WEFT_AGGREGATE_CLOCK_BYTES +
                                WEFT_AGGREGATE_BASE_BYTES) +
           ids +
           (uint64_t)rows * (sizeof(uint16_t) + sizeof(float) * dim);
}

uint32_t weft_aggregate_rows_max(uint32_t dim)
{
    uint64_t fixed = weft_aggregate_bytes_max(WEFT_AGGREGATE_MEMBERS_MAX, 0, dim) + 64;
    uint64_t each = weft_aggregate_bytes_max(0, WEFT_IDS_BLOCK, dim) / WEFT_IDS_BLOCK + 1;
    return (uint32_t)weft_min_u64((WEFT_AGGREGATE_BYTES_MAX - fixed) / each,
                                  WEFT_AGGREGATE_ROWS_MAX);
}

void weft_aggregate_head_pack(const struct weft_rpc_request *request, uint32_t members,
                              size_t ids_bytes, uint8_t *out)
{
    const uint16_t numbers[2] = {(uint16_t)members, 0};
    const uint32_t size = (uint32_t)ids_bytes;
    weft_rpc_request_pack(request, out);
    memcpy(out + WEFT_RPC_REQUEST_BYTES, numbers, sizeof(numbers));
    memcpy(out + WEFT_RPC_REQUEST_BYTES + 4, &size, sizeof(size));
}

void weft_aggregate_head_columns(uint8_t *head, uint32_t columns)
{
    const uint16_t numbers = (uint16_t)columns;
    memcpy(head + WEFT_RPC_REQUEST_BYTES + 2, &numbers, sizeof(numbers));
}

void weft_aggregate_member_pack(const struct weft_aggregate_member *member, uint8_t *out)
{
    memcpy(out, &member->rank, 4);
    memcpy(out + 4, &member->session, 4);
    memcpy(out + 8, &member->incarnation, 8);
    memcpy(out + 16, &member->number, 4);
    memcpy(out + 20, &member->rpc_id, 4);
}

struct weft_aggregate_member weft_aggregate_member_at(const struct weft_aggregate_view *view,
                                                      uint32_t i)
{
    const uint8_t *at = view->member + (size_t)i * WEFT_AGGREGATE_MEMBER_BYTES;
    struct weft_aggregate_member member = {.clock = 0};
    memcpy(&member.rank, at, 4);
    memcpy(&member.session, at + 4, 4);
    memcpy(&member.incarnation, at + 8, 8);
    memcpy(&member.number, at + 16, 4);
    memcpy(&member.rpc_id, at + 20, 4);
    if (view->clocks != NULL) {
        memcpy(&member.clock, view->clocks + (size_t)i * WEFT_AGGREGATE_CLOCK_BYTES, 4);
    }
    if (view->bases != NULL) {
        memcpy(&member.base, view->bases + (size_t)i * WEFT_AGGREGATE_BASE_BYTES, 4);
    }
    return member;
}

uint16_t weft_aggregate_count_at(const struct weft_aggregate_view *view, uint32_t row)
{
    uint16_t count;
    memcpy(&count, view->counts + (size_t)row * sizeof(count), sizeof(count));
    return count;
}

bool weft_aggregate_counts_good(const struct weft_aggregate_view *view)
{
    uint16_t zeros = 0;
    for (uint32_t i = 0; i < view->request.rows; i++) {
        const uint16_t count = weft_aggregate_count_at(view, i);
        zeros |= count == 0;
    }
    return zeros == 0;
}

bool weft_aggregate_sums_finite(const struct weft_aggregate_view *view, uint32_t dim)
{
    return weft_values_finite(view->sums, (size_t)view->request.rows * dim);
}

bool weft_aggregate_rival_refused(uint64_t *since_ns_p, uint64_t used_ns, uint64_t now_ns)
{
    if (*since_ns_p == 0 || used_ns >= *since_ns_p) {
        *since_ns_p = now_ns;
    }
    return now_ns < weft_time_add(*since_ns_p, rival_patience_ns);
}

void weft_aggregate_shard_pack(uint64_t incarnation, uint8_t *out)
{
    memcpy(out, &incarnation, WEFT_AGGREGATE_SHARD_BYTES);
}

uint64_t weft_aggregate_shard_unpack(const uint8_t *bytes)
{
    uint64_t incarnation;
    memcpy(&incarnation, bytes, WEFT_AGGREGATE_SHARD_BYTES);
    return incarnation;
}

bool weft_aggregate_same_update(const struct weft_aggregate_view *view, uint32_t i)
{
    if (i == 0) {
        return false;
    }
    const struct weft_aggregate_member before = weft_aggregate_member_at(view, i - 1);
    const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
    return member.rank == before.rank && member.clock == before.clock;
}

uint32_t weft_aggregate_updates(const struct weft_aggregate_view *view)
{
    uint32_t updates = 0;
    for (uint32_t i = 0; i < view->members; i++) {
        updates += !weft_aggregate_same_update(view, i);
    }
    return updates;
}

/* True: the pairs of rank and number ascend strictly. */
static bool members_ascend(const struct weft_aggregate_view *view)
{
    struct weft_aggregate_member before = weft_aggregate_member_at(view, 0);
    for (uint32_t i = 1; i < view->members; i++) {
        struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        if (member.rank < before.rank ||
            (member.rank == before.rank && member.number <= before.number)) {
            return false;
        }
        before = member;
    }
    return true;
}

static bool flags_good(const struct weft_aggregate_view *view, uint32_t columns)
{
    const uint32_t flags = view->request.flags;
    return flags == 0 || flags == WEFT_RPC_CUT ||
           (flags == WEFT_AGGREGATE_ENDS && view->request.rows == 0 && view->ids_bytes == 0 &&
            columns == 0 && view->request.need_clock == 0);
}

static bool columns_good(const struct weft_aggregate_view *view)
{
    bool good = true;
    for (uint32_t i = 0; view->clocks != NULL && i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        good &= member.clock > 0 && member.base <= WEFT_RPC_BASE_MASK;
    }
    return good;
}

weft_status weft_aggregate_unpack(const void *bytes, size_t count, uint32_t dim,
                                  struct weft_aggregate_view *view_p)
{
    const uint8_t *at = bytes;
    struct weft_aggregate_view view;
    uint16_t numbers[2];
    uint32_t size;
    if (count < WEFT_AGGREGATE_HEAD_BYTES ||
        weft_rpc_request_unpack(at, WEFT_RPC_REQUEST_BYTES, &view.request) != WEFT_OK) {
        return WEFT_PROTO;
    }
    memcpy(numbers, at + WEFT_RPC_REQUEST_BYTES, sizeof(numbers));
    memcpy(&size, at + WEFT_RPC_REQUEST_BYTES + 4, sizeof(size));
    const uint64_t rows = view.request.rows;
    const uint64_t columns = numbers[1];
    view.members = numbers[0];
    view.ids_bytes = size;
    if (view.members == 0 || view.members > WEFT_AGGREGATE_MEMBERS_MAX ||
        (columns != 0 && columns != view.members && columns != 2 * view.members) ||
        rows > WEFT_AGGREGATE_ROWS_MAX ||
        !flags_good(&view, numbers[1]) ||
        count != WEFT_AGGREGATE_HEAD_BYTES + (uint64_t)view.members * WEFT_AGGREGATE_MEMBER_BYTES +
                     columns * WEFT_AGGREGATE_CLOCK_BYTES + size +
                     rows * (sizeof(uint16_t) + sizeof(float) * dim)) {
        return WEFT_PROTO;
    }
    view.member = at + WEFT_AGGREGATE_HEAD_BYTES;
    view.ids = view.member + (size_t)view.members * WEFT_AGGREGATE_MEMBER_BYTES;
    view.clocks = columns > 0 ? view.ids : NULL;
    view.bases = columns > view.members
                     ? view.ids + (size_t)view.members * WEFT_AGGREGATE_CLOCK_BYTES
                     : NULL;
    view.ids += columns * WEFT_AGGREGATE_CLOCK_BYTES;
    view.counts = view.ids + view.ids_bytes;
    view.sums = view.counts + rows * sizeof(uint16_t);
    if (!members_ascend(&view) || !columns_good(&view)) {
        return WEFT_PROTO;
    }
    *view_p = view;
    return WEFT_OK;
}
