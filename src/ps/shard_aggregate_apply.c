/* What an aggregate says: all of it is checked, then applied as a whole or not at all.
 *
 * All checks precede the first change. Each member's push must be one that the worker could begin
 * now, and it must be neither begun nor closed; the rows must exist or be creatable. Then one step
 * of the shard adds the sums to the rows and closes all members' push numbers. A push therefore
 * counts once, whether it arrives through an aggregator, from its worker, or both. The second
 * arrival finds the number closed or begun, and an aggregate with such a member is refused. The
 * aggregator then makes all members send their pushes directly (SEND_DIRECT).
 *
 * Instead of sums a message may contain ended clocks of its members. They are checked like pushes
 * and have the effect of each member's CLOCK; a repeated clock has no effect.
 *
 * A worker renumbers the pushes that a restored shard has not seen, but an aggregator may still
 * have them under the old numbers. Each member therefore names the session in which its worker
 * assigned the number. The worker reports its session in TABLE and uses a new one after each broken
 * connection. A restored shard knows no sessions.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates". */
#include "ps/shard_aggregate.h"

#include "ps/id_pack.h"

/* ---- sessions -------------------------------------------------------------------------------- */

static uint32_t *session_of(const struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    return &shard->aggregates->sessions[(size_t)table * shard->config.workers_max + rank];
}

static bool *updates_of(const struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    return &shard->aggregates->updates[(size_t)table * shard->config.workers_max + rank];
}

void weft_shard_aggregate_session(struct weft_shard *shard, const struct shard_slot *slot)
{
    if (weft_shard_takes_aggregates(shard)) {
        bool asks = (slot->request.need_clock & WEFT_RPC_CAN_AGGREGATE) != 0;
        *session_of(shard, slot->table, slot->worker) = asks ? slot->request.after_seq : 0;
        *updates_of(shard, slot->table, slot->worker) =
            (slot->request.need_clock & WEFT_RPC_CAN_UPDATE) != 0;
    }
}

void weft_shard_aggregate_forget(struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    if (shard->aggregates != NULL) {
        *session_of(shard, table, rank) = 0;
    }
}

/* ---- what a message says --------------------------------------------------------------------- */

struct shard_slot weft_shard_aggregate_push(struct weft_shard *shard, uint16_t table,
                                            uint32_t clock,
                                            const struct weft_aggregate_member *member)
{
    clock = member->clock != 0 ? member->clock : clock;
    const struct weft_push_window *window = shard_pushes(shard, table, member->rank);
    return (struct shard_slot){.op = WEFT_RPC_PUSH,
                               .table = table,
                               .worker = member->rank,
                               .clock = clock,
                               .partial = WEFT_SHARD_NONE,
                               .base = member->base != 0 ? member->base - 1 : WEFT_RPC_BASE_NONE,
                               .number = weft_push_window_number_of(window, member->number)};
}

/* True: the rank's process has reported this session since its last broken connection. */
static bool is_of_session(const struct weft_shard *shard, uint16_t index,
                          const struct weft_aggregate_member *member)
{
    const struct shard_worker *worker = &shard->workers[member->rank];
    return member->session != 0 && member->session == *session_of(shard, index, member->rank) &&
           worker->incarnation != 0 && member->incarnation == worker->incarnation;
}

/* WEFT_RPC_OK: this push may begin, through this aggregator. again: replayed from a journal, so its
 * session was checked before. */
static enum weft_rpc_status member_check(struct weft_shard *shard, uint16_t index, uint32_t clock,
                                         const struct weft_aggregate_member *member, bool again)
{
    const struct weft_table *table = shard_table(shard, index);
    if (member->rank >= shard->config.workers_max || member->rank >= table->spec.workers) {
        return WEFT_RPC_WRONG_WORKER;
    }
    if (!again && !is_of_session(shard, index, member)) {
        return WEFT_RPC_SEND_DIRECT;
    }
    const struct weft_push_window *window = shard_pushes(shard, index, member->rank);
    const struct shard_slot push = weft_shard_aggregate_push(shard, index, clock, member);
    /* A number far ahead would void all numbers below it: they count as closed. */
    if (push.number == 0 || push.number > window->newest + WEFT_PUSH_WINDOW_SIZE ||
        push.clock > clock) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (weft_push_window_test(window, push.number) ||
        weft_shard_dedup_begun(shard, index, member->rank, push.number) ||
        (!again && !weft_shard_rpc_plausible(shard, member->rank, member->rpc_id))) {
        return WEFT_RPC_SEND_DIRECT;
    }
    return weft_shard_push_allowed(shard, &push, table);
}

/* Find the rows of the aggregate, or room for them. Rows created before the table was full stay,
 * with initial weights. */
static enum weft_rpc_status rows_check(struct weft_shard *shard, struct weft_table *table,
                                       const struct weft_aggregate_view *view)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t count = view->request.rows;
    if (!weft_ids_unpack(view->ids, view->ids_bytes, count, all->ids) ||
        !weft_aggregate_counts_good(view)) {
        return WEFT_RPC_BAD_REQUEST;
    }
    bool here = true;
    for (uint32_t i = 0; i < count && !weft_table_owns_all(table); i++) {
        here &= weft_table_owns(table, all->ids[i]);
    }
    if (!here) {
        return WEFT_RPC_WRONG_SHARD;
    }
    if (!weft_aggregate_sums_finite(view, table->spec.dim)) {
        return WEFT_RPC_NOT_FINITE;
    }
    if (!weft_table_obtain_sums(table, all->ids, count, all->hashes, all->rows)) {
        shard->counters.rows_refused++;
        return WEFT_RPC_FULL;
    }
    return WEFT_RPC_OK;
}

/* AdaDelay's a of the sum. The gradients of a weighted sum have their weights; see ps/aggregate.h.
 * An unweighted one cannot be taken apart: to first order of the delays a step of all of them
 * together is as long as those of each alone if a is the mean of theirs. */
static float fresh_of(const struct weft_table *table, uint32_t clock,
                      const struct weft_aggregate_view *view)
{
    double sum = 0;
    if (view->request.need_clock != 0) {
        const double ratio = weft_aggregate_reweigh(view, clock, weft_table_newest(table));
        return (float)(ratio * ratio);
    }
    for (uint32_t i = 0; i < view->members; i++) {
        const uint32_t own = weft_aggregate_member_at(view, i).clock;
        sum += (double)weft_table_fresh(table, own != 0 ? own : clock);
    }
    return (float)(sum / view->members);
}

/* A sum cannot be taken apart: false if the update of one member would be, or was, refused. */
static bool updates_check(struct weft_shard *shard, uint16_t index, uint32_t clock,
                          const struct weft_aggregate_view *view)
{
    struct shard_opening of[WEFT_AGGREGATE_MEMBERS_MAX];
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        const struct shard_slot push = weft_shard_aggregate_push(shard, index, clock, &member);
        of[i] = (struct shard_opening){.rank = member.rank,
                                       .clock = push.clock,
                                       .base = push.base,
                                       .has_update = *updates_of(shard, index, member.rank)};
    }
    return weft_shard_updates_fit(shard, of, view->members, shard->aggregates->order);
}

/* Check an aggregate completely before any of it is applied. */
static enum weft_rpc_status validate(struct weft_shard *shard, uint16_t index, uint32_t clock,
                                     const struct weft_aggregate_view *view, bool again)
{
    struct weft_table *table = shard_table(shard, index);
    uint32_t newest = view->clocks == NULL ? clock : 0;
    for (uint32_t i = 0; i < view->members; i++) {
        struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        enum weft_rpc_status status = member_check(shard, index, clock, &member, again);
        if (status != WEFT_RPC_OK) {
            return status;
        }
        newest = member.clock > newest ? member.clock : newest;
    }
    if (newest != clock) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (!updates_check(shard, index, clock, view)) {
        return WEFT_RPC_SEND_DIRECT;
    }
    weft_table_begin_sums(table, fresh_of(table, clock, view));
    return rows_check(shard, table, view);
}

static void member_close(struct weft_shard *shard, uint16_t index, uint32_t clock,
                         const struct weft_aggregate_member *member)
{
    struct shard_slot push = weft_shard_aggregate_push(shard, index, clock, member);
    if (*updates_of(shard, index, member->rank)) {
        (void)weft_shard_update_open(shard, &push); /* not late: see updates_check */
    }
    struct weft_push_window *window = shard_pushes(shard, index, member->rank);
    weft_shard_dedup_close(shard, index, member->rank, push.number);
    window->clock = push.clock > window->clock ? push.clock : window->clock;
    weft_rpc_window_mark(&shard->workers[member->rank].closed, member->rpc_id);
}

static void apply(struct weft_shard *shard, uint16_t index, uint32_t clock,
                  const struct weft_aggregate_view *view)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t rows = view->request.rows;
    uint64_t gradients = weft_table_apply_sums(shard_table(shard, index), all->ids, rows,
                                               view->sums, view->counts, all->hashes, all->rows);
    shard->counters.elements_applied += gradients;
    shard->counters.aggregates++;
    shard->counters.aggregate_rows += rows;
    shard->counters.aggregate_gradients += gradients;
    shard->counters.pushes += view->members;
    for (uint32_t i = 0; i < view->members; i++) {
        struct weft_aggregate_member member = weft_aggregate_member_at(view, all->order[i]);
        member_close(shard, index, clock, &member);
    }
    shard->counters.aggregate_pushes += view->members;
}

/* Accept all ended clocks of the members, or none. *refused_p: the rank at fault. */
static enum weft_rpc_status clocks_take(struct weft_shard *shard, uint16_t index,
                                        const struct weft_aggregate_view *view, uint32_t *refused_p,
                                        uint64_t now_ns)
{
    const uint32_t *clocks = &shard->clocks[(size_t)index * shard->config.workers_max];
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        *refused_p = member.rank;
        if (member.rank >= shard->config.workers_max ||
            member.rank >= shard_table(shard, index)->spec.workers) {
            return WEFT_RPC_WRONG_WORKER;
        }
        /* A rank that is not connected: its clock was ended for it, or it repeats CLOCK after it
         * reconnects. */
        if (!shard_is_there(&shard->workers[member.rank]) ||
            !is_of_session(shard, index, &member)) {
            return WEFT_RPC_SEND_DIRECT;
        }
        if (member.number == 0 || member.number > clocks[member.rank] + 1) {
            return WEFT_RPC_EARLY_CLOCK;
        }
    }
    shard->counters.aggregate_clocks += view->members;
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        (void)weft_shard_clock_take(shard, index, member.rank, member.number, now_ns);
    }
    return WEFT_RPC_OK;
}

enum weft_rpc_status weft_shard_aggregate_take(struct weft_shard *shard,
                                               const struct weft_rpc_tag *tag, const uint8_t *bytes,
                                               size_t count, bool again,
                                               struct weft_aggregate_view *view_p,
                                               uint32_t *refused_p, uint64_t now_ns)
{
    const struct weft_table *table = shard_table(shard, tag->table);
    if (table == NULL) {
        return WEFT_RPC_UNKNOWN_TABLE;
    }
    if (!weft_aggregate_takes(&table->spec)) {
        return WEFT_RPC_SEND_DIRECT;
    }
    if (weft_aggregate_unpack(bytes, count, table->spec.dim, view_p) != WEFT_OK ||
        (view_p->request.need_clock != 0 && !weft_aggregate_weighs(&table->spec))) {
        return WEFT_RPC_BAD_REQUEST;
    }
    if (aggregate_is_ends(view_p)) {
        return again ? WEFT_RPC_BAD_REQUEST
                     : clocks_take(shard, tag->table, view_p, refused_p, now_ns);
    }
    enum weft_rpc_status status = validate(shard, tag->table, tag->number, view_p, again);
    if (status == WEFT_RPC_OK) {
        apply(shard, tag->table, tag->number, view_p);
    }
    return status;
}

bool weft_shard_aggregate_replay(struct weft_shard *shard, uint16_t table, uint32_t clock,
                                 const uint8_t *bytes, size_t count)
{
    const struct weft_rpc_tag tag = {.table = table, .number = clock};
    struct weft_aggregate_view view;
    uint32_t refused;
    return shard->aggregates != NULL &&
           weft_shard_aggregate_take(shard, &tag, bytes, count, true, &view, &refused, 0) ==
               WEFT_RPC_OK;
}
