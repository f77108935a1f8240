/* An aggregate from any bytes: it is refused, or all its parts are within it, and its head and its
 * members, packed again, are the same bytes. The first byte determines the length of the table's
 * rows. */
#include "base/assert.h"
#include "ps/aggregate.h"
#include "ps/id_pack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t sum_of(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += bytes[i];
    }
    return sum;
}

/* Ranks and numbers ascend, and each member is unchanged after packing. */
static void check_members(const struct weft_aggregate_view *view)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        const uint64_t now = (uint64_t)member.rank << 32 | member.number;
        uint8_t again[WEFT_AGGREGATE_MEMBER_BYTES];
        WEFT_ASSERT(i == 0 || now > before);
        before = now;
        weft_aggregate_member_pack(&member, again);
        WEFT_ASSERT(memcmp(again, view->member + i * sizeof(again), sizeof(again)) == 0);
    }
}

/* As the shard reads them: every byte, within the message. */
static void check_rows(const struct weft_aggregate_view *view, uint32_t dim, const uint8_t *end)
{
    const uint32_t rows = view->request.rows;
    uint64_t *ids = malloc(rows * sizeof(*ids) + 1);
    uint32_t sum = 0;
    WEFT_ASSERT(ids != NULL);
    for (uint32_t i = 0; i < rows; i++) {
        sum += weft_aggregate_count_at(view, i);
    }
    sum += sum_of(view->sums, (size_t)rows * dim * sizeof(float));
    WEFT_ASSERT(view->sums + (size_t)rows * dim * sizeof(float) == end);
    if (weft_ids_unpack(view->ids, view->ids_bytes, rows, ids)) {
        sum += sum_of((const uint8_t *)ids, rows * sizeof(*ids));
    }
    volatile uint32_t keep = sum; /* so that the reads are made */
    (void)keep;
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_aggregate_view view;
    if (size < 1) {
        return 0;
    }
    const uint32_t dim = data[0] % 16 + 1U;
    const uint8_t *bytes = data + 1;
    const size_t count = size - 1;
    if (weft_aggregate_unpack(bytes, count, dim, &view) != WEFT_OK) {
        return 0;
    }
    uint8_t head[WEFT_AGGREGATE_HEAD_BYTES];
    weft_aggregate_head_pack(&view.request, view.members, view.ids_bytes, head);
    if (view.clocks != NULL) {
        weft_aggregate_head_columns(head, (view.bases != NULL ? 2 : 1) * view.members);
    }
    WEFT_ASSERT(memcmp(head, bytes, sizeof(head)) == 0);
    check_members(&view);
    check_rows(&view, dim, bytes + count);
    return 0;
}
