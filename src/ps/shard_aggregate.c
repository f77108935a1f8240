/* Aggregates: pushes summed by an aggregator. Each is received completely, then applied as a whole
 * or not at all.
 *
 * A message arrives complete (its loss bound is 0) in a buffer of its own. All checks precede the
 * first change. Each member's push must be one that the worker could begin now, and it must be
 * neither begun nor closed; the rows must exist or be creatable. Then one step of the shard adds
 * the sums to the rows and closes all members' push numbers. A push therefore counts once, whether
 * it arrives through an aggregator, from its worker, or both. The second arrival finds the number
 * closed or begun, and an aggregate with such a member is refused. The aggregator then makes all
 * members send their pushes directly (SEND_DIRECT).
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
#include "ps/shard_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"

#include <stdlib.h>
#include <string.h>

enum aggregate_state {
    AGGREGATE_IDLE,
    AGGREGATE_POSTED,
    AGGREGATE_OPEN,
    AGGREGATE_READY,
    AGGREGATE_SENDING,
};

/* Buffer of one message, from posting it to the reply's SENT event. */
struct shard_aggregate {
    enum aggregate_state state;
    bool stale;   /* OPEN, but its connection was replaced */
    bool stopped; /* OPEN, and others passed it: it has no part in the time any more */
    uint16_t table;
    weft_expect_id expect;
    weft_peer peer;
    struct shard_part since; /* OPEN: at its first chunk; also the next three */
    uint64_t begun;          /* sequence number of its first chunk */
    uint64_t bytes;
    uint64_t passed; /* bytes of aggregates that began later and have ended */
    uint8_t *memory;         /* (WEFT_AGGREGATE_BYTES_MAX,) */
    uint8_t answer[WEFT_RPC_REPLY_BYTES];
};

struct shard_aggregator {
    bool up;
    weft_peer peer;
    uint64_t incarnation;
    uint64_t rival_ns; /* time since when another process requests its number; 0 = none */
};

struct weft_shard_aggregates {
    uint32_t *sessions; /* (tables_max, workers_max): the session in the worker's last TABLE; 0 =
                         * none */
    bool *updates;      /* (tables_max, workers_max): its pushes belong to updates (ps/update.h) */
    uint64_t *ids;      /* (WEFT_AGGREGATE_ROWS_MAX,) scratch, like the next two */
    uint64_t *hashes;
    struct weft_table_row **rows;
    uint8_t order[WEFT_AGGREGATE_MEMBERS_MAX]; /* in which the members' updates open */
    struct shard_aggregator *aggregators; /* (aggregators_max,) */
    struct shard_aggregate *slots;        /* ordered by aggregator */
    uint32_t slot_count;
    uint32_t arriving; /* OPEN, and not stopped */
    uint64_t begun;
    bool ready; /* a reply waits for the transport */
    bool lacks; /* the transport had no room for an expectation */
};

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_shard_aggregates_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    struct weft_shard_aggregates *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        return WEFT_NOMEM;
    }
    shard->aggregates = all;
    all->slot_count = config->aggregators_max * WEFT_AGGREGATE_SLOTS;
    all->sessions = calloc((size_t)config->tables_max * config->workers_max, sizeof(uint32_t));
    all->updates = calloc((size_t)config->tables_max * config->workers_max, sizeof(bool));
    /* malloc, not calloc: each element is written before it is read, and clearing would touch all
     * pages. */
    all->ids = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*all->ids));
    all->hashes = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*all->hashes));
    all->rows = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(struct weft_table_row *));
    all->aggregators = calloc(config->aggregators_max, sizeof(*all->aggregators));
    all->slots = calloc(all->slot_count, sizeof(*all->slots));
    if (all->sessions == NULL || all->updates == NULL || all->ids == NULL || all->hashes == NULL ||
        all->rows == NULL || all->aggregators == NULL || all->slots == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < all->slot_count; i++) {
        all->slots[i].memory = malloc(WEFT_AGGREGATE_BYTES_MAX);
        if (all->slots[i].memory == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_shard_aggregates_fini(struct weft_shard *shard)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL) {
        return;
    }
    for (uint32_t i = 0; all->slots != NULL && i < all->slot_count; i++) {
        free(all->slots[i].memory);
    }
    free(all->sessions);
    free(all->updates);
    free(all->ids);
    free(all->hashes);
    free(all->rows);
    free(all->aggregators);
    free(all->slots);
    free(all);
    shard->aggregates = NULL;
}

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

/* A member's push as a separate request. clock: of the message's tag. */
static struct shard_slot push_of(struct weft_shard *shard, uint16_t table, uint32_t clock,
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
    const struct shard_slot push = push_of(shard, index, clock, member);
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
        const struct shard_slot push = push_of(shard, index, clock, &member);
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
    struct shard_slot push = push_of(shard, index, clock, member);
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

static bool is_ends(const struct weft_aggregate_view *view)
{
    return (view->request.flags & WEFT_AGGREGATE_ENDS) != 0;
}

/* again: replayed from a journal, which has CLOCK records of its own. */
static enum weft_rpc_status take(struct weft_shard *shard, const struct weft_rpc_tag *tag,
                                 const uint8_t *bytes, size_t count, bool again,
                                 struct weft_aggregate_view *view_p, uint32_t *refused_p,
                                 uint64_t now_ns)
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
    if (is_ends(view_p)) {
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
           take(shard, &tag, bytes, count, true, &view, &refused, 0) == WEFT_RPC_OK;
}

/* The members of an accepted message are alive and active: renew their leases. */
static void vouch(struct weft_shard *shard, const struct weft_aggregate_view *view, uint64_t at_ns,
                  uint64_t now_ns)
{
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        shard->workers[member.rank].vouched_ns = now_ns;
        weft_shard_record_member(shard, member.rank, at_ns);
    }
}

static uint32_t index_of(const struct weft_shard_aggregates *all,
                         const struct shard_aggregate *slot)
{
    return (uint32_t)(slot - all->slots) / WEFT_AGGREGATE_SLOTS;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void post(struct weft_shard *shard, struct shard_aggregate *slot)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t index = (uint32_t)(slot - all->slots);
    const struct shard_aggregator *from = &all->aggregators[index_of(all, slot)];
    WEFT_ASSERT(slot->state == AGGREGATE_IDLE);
    if (!from->up) {
        return;
    }
    const struct weft_msg_expect expect = {
        .peer = from->peer,
        .sink = WEFT_SINK_COPY,
        .tag = (uint64_t)WEFT_RPC_AGGREGATE << 56,
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = slot->memory,
        .memory_bytes = WEFT_AGGREGATE_BYTES_MAX,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_AGGREGATE + index,
    };
    if (shard->msgr.ops->expect(shard->msgr.self, &expect, &slot->expect) != WEFT_OK) {
        shard->counters.slots_unposted++;
        all->lacks = true;
        return;
    }
    slot->peer = from->peer;
    slot->state = AGGREGATE_POSTED;
}

static void release(struct weft_shard *shard, struct shard_aggregate *slot)
{
    shard->busy_count--;
    slot->state = AGGREGATE_IDLE;
    post(shard, slot);
}

static void unbind(struct weft_shard *shard, uint32_t aggregator)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    all->aggregators[aggregator].up = false;
    weft_shard_pulls_unbind(shard, aggregator);
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        struct shard_aggregate *slot = &all->slots[aggregator * WEFT_AGGREGATE_SLOTS + i];
        if (slot->state == AGGREGATE_POSTED) {
            (void)!shard->msgr.ops->cancel(shard->msgr.self, slot->expect);
            slot->state = AGGREGATE_IDLE;
        } else if (slot->state == AGGREGATE_OPEN) {
            slot->stale = true;
        } else if (slot->state == AGGREGATE_READY) {
            release(shard, slot);
        }
    }
}

static bool is_rival(struct weft_shard *shard, uint32_t number, uint64_t incarnation,
                     uint64_t now_ns)
{
    struct shard_aggregator *from = &shard->aggregates->aggregators[number];
    const uint64_t used_ns = shard->workers[shard->config.workers_max + number].request_ns;
    return from->up && from->incarnation != incarnation &&
           weft_aggregate_rival_refused(&from->rival_ns, used_ns, now_ns);
}

void weft_shard_aggregates_gauges(const struct weft_shard *shard, uint64_t since_ns,
                                  struct weft_shard_gauges *gauges_p)
{
    for (uint32_t i = 0; shard->aggregates != NULL && i < shard->config.aggregators_max; i++) {
        const bool up = shard->aggregates->aggregators[i].up;
        const uint64_t used_ns = shard->workers[shard->config.workers_max + i].request_ns;
        gauges_p->aggregators_connected += up;
        gauges_p->aggregators_active += up && used_ns >= since_ns && used_ns != 0;
    }
}

static bool peer_up(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    const uint32_t number = (uint32_t)event->name & 0xff;
    if (event->name != weft_rpc_aggregator_name(shard->config.shard, number) ||
        number >= shard->config.aggregators_max) {
        return false;
    }
    struct shard_aggregator *from = &all->aggregators[number];
    if (is_rival(shard, number, event->incarnation, now_ns)) {
        shard->counters.aggregators_refused++;
        weft_shard_refuse_peer(shard, event->peer);
        return true;
    }
    if (from->up) {
        if (from->incarnation == event->incarnation) {
            weft_shard_replace(shard, from->peer);
        } else {
            weft_shard_refuse_peer(shard, from->peer);
        }
        unbind(shard, number);
    }
    *from = (struct shard_aggregator){
        .up = true, .peer = event->peer, .incarnation = event->incarnation};
    weft_shard_pulls_bind(shard, number, event->peer);
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        struct shard_aggregate *slot = &all->slots[number * WEFT_AGGREGATE_SLOTS + i];
        if (slot->state == AGGREGATE_IDLE) {
            post(shard, slot);
        }
    }
    return true;
}

static void peer_down(struct weft_shard *shard, const struct weft_msg_event *event)
{
    for (uint32_t i = 0; i < shard->config.aggregators_max; i++) {
        const struct shard_aggregator *from = &shard->aggregates->aggregators[i];
        if (from->up && from->peer == event->peer) {
            unbind(shard, i);
        }
    }
}

/* Record a reply for each member with its share of the processing time. */
static void record(struct weft_shard *shard, uint16_t table, uint64_t at_ns,
                   const struct weft_aggregate_view *view, struct weft_rpc_reply *reply,
                   uint64_t departure_ns)
{
    shard->counters.aggregate_proc_ns += reply->ps_proc_ns;
    reply->ps_proc_ns /= view->members;
    for (uint32_t i = 0; i < view->members; i++) {
        struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        struct weft_rpc_reply own = *reply;
        own.rpc_id = member.rpc_id;
        const struct shard_slot push = {
            .op = WEFT_RPC_PUSH, .worker = member.rank, .table = table, .b_ns = at_ns};
        weft_shard_record_served(shard, &push, &own, departure_ns);
    }
}

/* A part of the time for an aggregate that is not arriving would make the others look faster. How
 * much of it has arrived is not known before its end; but its part is as large as that of others,
 * so if others that began later had as many bytes and have ended, its sender has stopped. True: one
 * is found to have stopped now, so the part of the aggregate that ends is not known. */
static bool find_stopped(struct weft_shard *shard, const struct shard_aggregate *ends,
                         uint64_t at_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    bool any = false;
    for (uint32_t i = 0; all->arriving > 0 && i < all->slot_count; i++) {
        struct shard_aggregate *other = &all->slots[i];
        if (other->state != AGGREGATE_OPEN || other->stopped || other->begun >= ends->begun) {
            continue;
        }
        other->passed += ends->bytes;
        if (other->passed >= other->bytes) {
            other->stopped = any = true;
            all->arriving--;
            (void)weft_shard_sum_ends(shard, at_ns);
        }
    }
    return any;
}

/* The part of the time up to the end of this aggregate; none if it had stopped. */
static struct shard_part part_ends(struct weft_shard *shard, struct shard_aggregate *slot,
                                   const struct weft_msg_event *event)
{
    if (slot->stopped) {
        return slot->since;
    }
    const struct shard_part until = weft_shard_sum_ends(shard, event->at_ns);
    shard->aggregates->arriving--;
    const bool is_whole = event->outcome == WEFT_MSG_COMPLETE && !slot->stale;
    return is_whole && find_stopped(shard, slot, event->at_ns) ? slot->since : until;
}

/* The arrival rate of the message is the rate of each update in it, and its size is reported for
 * each. */
static void measure(struct weft_shard *shard, const struct shard_aggregate *slot,
                    const struct weft_rpc_tag *tag, size_t bytes, struct shard_part until,
                    const struct weft_aggregate_view *view)
{
    const uint64_t all = bytes + until.came - slot->since.came;
    const struct shard_sum sum = {weft_aggregate_updates(view), bytes, all,
                                  until.ns - slot->since.ns};
    for (uint32_t i = 0; i < view->members; i++) {
        const struct weft_aggregate_member member = weft_aggregate_member_at(view, i);
        const struct shard_slot push = push_of(shard, tag->table, tag->number, &member);
        if (!weft_aggregate_same_update(view, i)) {
            weft_shard_update_in_sum(shard, &push, &sum);
        }
    }
}

/* `rows` of the reply: the rank at fault plus 1; of a sum that was applied to a table with weights,
 * the t for the next ones. */
static uint32_t answer_rows(struct weft_shard *shard, uint16_t index, enum weft_rpc_status status,
                            const struct weft_aggregate_view *view, uint32_t refused)
{
    if (status != WEFT_RPC_OK) {
        return refused != UINT32_MAX ? refused + 1 : 0;
    }
    const struct weft_table *table = shard_table(shard, index);
    return !is_ends(view) && weft_aggregate_weighs(&table->spec) ? weft_table_newest(table) : 0;
}

static void received(struct weft_shard *shard, struct shard_aggregate *slot,
                     const struct weft_msg_event *event, uint64_t now_ns)
{
    const uint64_t begin_ns = shard_clock_ns(shard);
    const struct shard_part until = part_ends(shard, slot, event);
    const size_t bytes = (size_t)event->total * event->elem_bytes;
    struct weft_rpc_tag tag;
    struct weft_rpc_request request;
    struct weft_aggregate_view view;
    uint32_t refused = UINT32_MAX; /* a rank; UINT32_MAX = none */
    if (event->outcome != WEFT_MSG_COMPLETE || slot->stale || event->received < event->chunks ||
        weft_rpc_request_unpack(slot->memory, bytes, &request) != WEFT_OK) {
        shard->counters.aggregates_refused++;
        release(shard, slot);
        return;
    }
    weft_shard_record_open(shard, shard->config.workers_max + index_of(shard->aggregates, slot),
                           event->at_ns);
    bool good = weft_rpc_tag_unpack(event->tag, &tag) && event->elem_bytes == 1;
    enum weft_rpc_status status =
        good ? take(shard, &tag, slot->memory, bytes, false, &view, &refused, now_ns)
             : WEFT_RPC_BAD_REQUEST;
    const uint64_t end_ns = shard_clock_ns(shard);
    slot->table = tag.table;
    struct weft_rpc_reply reply = {
        .rpc_id = request.rpc_id,
        .status = (uint16_t)status,
        .t0_ns = request.t0_ns,
        .clock = weft_shard_clock(shard, tag.table),
        .ps_proc_ns = end_ns - begin_ns,
        .ps_queue_ns = begin_ns > event->at_ns ? begin_ns - event->at_ns : 0,
        .rows = answer_rows(shard, tag.table, status, &view, refused),
    };
    if (status == WEFT_RPC_OK) {
        vouch(shard, &view, event->at_ns, now_ns);
    }
    if (status == WEFT_RPC_OK && !is_ends(&view)) {
        weft_shard_journal_aggregate(shard, &tag, slot->memory, bytes, &view);
        if ((request.flags & WEFT_RPC_CUT) != 0) {
            weft_shard_want_cut(shard, weft_shard_clock(shard, tag.table) + 1);
        }
        record(shard, tag.table, event->at_ns, &view, &reply, end_ns);
        measure(shard, slot, &tag, bytes, until, &view);
    }
    shard->counters.aggregates_refused += status != WEFT_RPC_OK;
    weft_rpc_reply_pack(&reply, slot->answer);
    slot->state = AGGREGATE_READY;
    shard->aggregates->ready = true;
    weft_shard_aggregate_send(shard, now_ns);
    weft_shard_wake(shard, now_ns);
}

void weft_shard_aggregate_send(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL || (!all->ready && !all->lacks)) {
        return;
    }
    const bool lacks = all->lacks, holds = weft_transfer_holds_answers(shard);
    all->lacks = false;
    all->ready &= holds;
    for (uint32_t i = 0; i < all->slot_count; i++) {
        struct shard_aggregate *slot = &all->slots[i];
        if (slot->state == AGGREGATE_IDLE && lacks) {
            post(shard, slot);
        }
        if (slot->state != AGGREGATE_READY || holds) {
            continue;
        }
        struct weft_rpc_reply reply;
        weft_status parsed = weft_rpc_reply_unpack(slot->answer, sizeof(slot->answer), &reply);
        WEFT_ASSERT(parsed == WEFT_OK);
        const struct weft_msg_send send = {
            .peer = slot->peer,
            .base = slot->answer,
            .total = 1,
            .elem_bytes = WEFT_RPC_REPLY_BYTES,
            .priority = WEFT_RPC_PRIORITY,
            .critical = 1,
            .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
                .op = WEFT_RPC_AGGREGATE | WEFT_RPC_REPLY_FLAG,
                .table = slot->table,
                .number = reply.rpc_id,
            }),
            .deadline_ns = WEFT_NEVER,
            .user = WEFT_SHARD_USER_AGGREGATE + i,
        };
        uint64_t seq;
        weft_status status = shard->msgr.ops->send(shard->msgr.self, &send, now_ns, &seq);
        if (status == WEFT_OK) {
            slot->state = AGGREGATE_SENDING;
        } else if (status == WEFT_AGAIN) {
            all->ready = true;
        } else {
            release(shard, slot);
        }
    }
}

bool weft_shard_aggregate_event(struct weft_shard *shard, const struct weft_msg_event *event,
                                uint64_t now_ns)
{
    struct weft_shard_aggregates *all = shard->aggregates;
    if (all == NULL) {
        return false;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        return peer_up(shard, event, now_ns);
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        peer_down(shard, event);
        return false;
    }
    if (event->user < WEFT_SHARD_USER_AGGREGATE) {
        return false;
    }
    struct shard_aggregate *slot = &all->slots[event->user - WEFT_SHARD_USER_AGGREGATE];
    if (event->type == WEFT_EVENT_OPEN) {
        WEFT_ASSERT(slot->state == AGGREGATE_POSTED);
        slot->state = AGGREGATE_OPEN;
        slot->stale = slot->stopped = false;
        slot->since = weft_shard_sum_begins(shard, event->at_ns);
        slot->begun = ++all->begun;
        slot->bytes = (uint64_t)event->total * event->elem_bytes;
        slot->passed = 0;
        all->arriving++;
        shard->workers[shard->config.workers_max + index_of(all, slot)].request_ns = now_ns;
        shard->busy_count++;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(shard, slot, event, now_ns);
    } else if (event->type == WEFT_EVENT_SENT) {
        WEFT_ASSERT(slot->state == AGGREGATE_SENDING);
        release(shard, slot);
    }
    return true;
}
