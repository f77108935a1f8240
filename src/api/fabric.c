/* <weft/fabric.h>, the worker's side: whole updates, on <weft/ps.h> and <weft/coll.h>. */
#include <weft/fabric.h>

static bool is_earlier(const struct weft_push_list *lists, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (lists[k].table == lists[i].table) {
            return true;
        }
    }
    return false;
}

static weft_status end_clocks(const struct weft_push_list *lists, uint32_t count)
{
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        if (is_earlier(lists, i)) {
            continue;
        }
        do {
            status = weft_clock(lists[i].table);
        } while (status == WEFT_TIMEOUT);
    }
    return status;
}

weft_status weft_fabric_push(struct weft_ps *ps, const struct weft_push_list *lists, uint32_t count,
                             double norm, struct weft_result *result_p)
{
    struct weft_op_options how;
    uint64_t op;
    weft_status status;
    weft_op_options_init(&how, sizeof(how));
    how.norm = norm;
    do {
        status = weft_push_with(ps, lists, count, &how, &op);
    } while (status == WEFT_TIMEOUT);
    if (status != WEFT_OK) {
        return status;
    }
    /* The clocks first: they complete the update, so that all of it is one decision. */
    status = end_clocks(lists, count);
    weft_status fate = weft_wait(ps, op, WEFT_NEVER, result_p);
    return status == WEFT_OK ? fate : status;
}

weft_status weft_fabric_get(struct weft_ps *ps, const struct weft_pull_list *lists, uint32_t count,
                            struct weft_result *result_p)
{
    return weft_pull_lists_wait(ps, lists, count, 0, result_p);
}

weft_status weft_fabric_all_reduce(struct weft_comm *comm, float *update, uint64_t count)
{
    struct weft_comm_op op;
    weft_comm_op_init(&op, sizeof(op));
    op.kind = WEFT_COMM_ALL_REDUCE;
    op.in = op.out = update;
    op.count = count;
    return weft_comm_run(comm, &op, NULL);
}
