/* Failure of the object. The first failure that is detected or received is kept. All ranks are
 * notified; then connections are closed, so that the transport returns the buffers of all
 * operations.
 *
 * A rank that does not respond is detected within the keep-alive interval and the peer timeout of
 * its connection, 0.5 s and 5 s (coll_thread.c). If several ranks died, ABORT to the others is not
 * acknowledged either. The wait for that is shorter after such a failure, so that operations end
 * within 6 s of the death of the first. */
#include "coll/internal.h"

void weft_coll_fail(struct weft_coll *c, const struct weft_coll_failure *failure)
{
    if (coll_failed(c)) {
        return;
    }
    bool down = failure->reason == WEFT_COLL_DOWN;
    uint64_t wait_ns = down ? c->config.abort_ns / 5 * 2 : c->config.abort_ns;
    c->failure = *failure;
    c->failure.text[sizeof(c->failure.text) - 1] = '\0';
    weft_coll_abort_pack(c);
    c->abort_ns = weft_time_add(c->now_ns, wait_ns);
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        c->rank[i].abort_due = c->rank[i].state == RANK_UP;
    }
    c->closes = true;
    uint32_t next;
    for (uint32_t i = c->open_head; i != NONE; i = next) {
        next = c->op[i].next;
        weft_coll_op_check(c, &c->op[i]);
    }
}

void weft_coll_fail_rank(struct weft_coll *c, enum weft_coll_reason reason, uint32_t rank,
                         const struct op *op)
{
    const struct op *first = op != NULL || c->open_head == NONE ? op : &c->op[c->open_head];
    struct weft_coll_failure failure = {
        .reason = reason,
        .rank = rank,
        .by = c->config.rank,
        .group = first != NULL ? first->call.group : NONE,
        .op = first != NULL ? first->number : NONE,
        .last_op = NONE,
    };
    weft_coll_fail(c, &failure);
}

void weft_coll_abort(struct weft_coll *c, const char *text, uint64_t now_ns)
{
    c->now_ns = now_ns;
    const struct op *first = c->open_head == NONE ? NULL : &c->op[c->open_head];
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_ABORTED,
        .rank = c->config.rank,
        .by = c->config.rank,
        .group = first != NULL ? first->call.group : NONE,
        .op = first != NULL ? first->number : NONE,
        .last_op = NONE,
    };
    size_t bytes = strlen(text);
    memcpy(failure.text, text, weft_min_u64(bytes, sizeof(failure.text) - 1));
    weft_coll_fail(c, &failure);
    weft_coll_progress(c, now_ns);
}

bool weft_coll_rank_met(const struct weft_coll *c, uint32_t rank)
{
    return rank == c->config.rank || c->rank[rank].state != RANK_AWAY;
}

uint32_t weft_coll_ranks_met(const struct weft_coll *c)
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        met += weft_coll_rank_met(c, i);
    }
    return met;
}

bool weft_coll_has_left(const struct weft_coll *c)
{
    bool left = false;
    for (uint32_t i = 0; i < c->config.ranks && !left; i++) {
        left = c->rank[i].state == RANK_LEFT;
    }
    return left;
}

bool weft_coll_waits_for(const struct weft_coll *c, uint32_t group, uint32_t index)
{
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        if (c->op[i].call.group == group) {
            return index != c->group[group].me && weft_coll_op_awaits(&c->op[i], index);
        }
    }
    return false;
}

const struct weft_coll_failure *weft_coll_failure(const struct weft_coll *c)
{
    return &c->failure;
}
