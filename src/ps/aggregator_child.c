/* AGGREGATEs of child aggregators: buffered until complete, then added to a group like a push. As
 * at the shard, all checks precede the first addition. No member may be in the group already, have
 * a rank beyond the table's workers, or have a rank that is connected here as another process. The
 * ids must form a valid list, and the sums must be finite. Only the shard can check the members'
 * sessions: a child is trusted with the ranks that it names, as it is with their gradients.
 *
 * A child gets one reply for all members of a message; the first member carries it. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_agg_children_init(struct weft_aggregator *agg)
{
    agg->below_count = agg->config.children_max * WEFT_AGGREGATE_SLOTS;
    if (agg->below_count == 0) {
        return WEFT_OK;
    }
    agg->below_ids = calloc(WEFT_AGGREGATE_ROWS_MAX, sizeof(*agg->below_ids));
    agg->below = calloc(agg->below_count, sizeof(*agg->below));
    if (agg->below_ids == NULL || agg->below == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < agg->below_count; i++) {
        agg->below[i].rank = agg->config.workers_max + i / WEFT_AGGREGATE_SLOTS;
        agg->below[i].memory = calloc(1, WEFT_AGGREGATE_BYTES_MAX);
        if (agg->below[i].memory == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_agg_children_fini(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; agg->below != NULL && i < agg->below_count; i++) {
        free(agg->below[i].memory);
    }
    free(agg->below);
    free(agg->below_ids);
}

/* ---- connections ----------------------------------------------------------------------------- */

static struct agg_below *below_of(const struct weft_aggregator *agg, uint32_t rank)
{
    return &agg->below[(rank - agg->config.workers_max) * WEFT_AGGREGATE_SLOTS];
}

static void post(struct weft_aggregator *agg, struct agg_below *below)
{
    if (!agg->workers[below->rank].up || agg->answer_free == AGG_NONE) {
        return; /* weft_agg_answer_free retries */
    }
    if (weft_agg_expect(agg, below->rank, WEFT_RPC_AGGREGATE, below->memory,
                        WEFT_AGGREGATE_BYTES_MAX, AGG_USER_CHILD | (uint32_t)(below - agg->below),
                        &below->expect)) {
        below->answer = weft_agg_answer_take(agg);
        below->state = AGG_SLOT_POSTED;
    }
}

/* keeps: another owner has the reply buffer now. */
static void release(struct weft_aggregator *agg, struct agg_below *below, bool keeps)
{
    if (!keeps) {
        weft_agg_answer_free(agg, below->answer);
    }
    below->state = AGG_SLOT_IDLE;
    post(agg, below);
}

void weft_agg_child_post(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_below *below = below_of(agg, rank);
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        if (below[i].state == AGG_SLOT_IDLE) {
            post(agg, &below[i]);
        }
    }
}

void weft_agg_child_unbind(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_below *below = below_of(agg, rank);
    memset(agg->workers[rank].below, 0, sizeof(agg->workers[rank].below));
    for (uint32_t i = 0; i < WEFT_AGGREGATE_SLOTS; i++) {
        if (below[i].state == AGG_SLOT_POSTED) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, below[i].expect);
            release(agg, &below[i], false);
        }
        below[i].stale |= below[i].state == AGG_SLOT_OPEN;
    }
}

void weft_agg_child_up(struct weft_aggregator *agg, const struct weft_msg_event *event,
                       uint64_t now_ns)
{
    const uint32_t number = (uint32_t)event->name & 0xff;
    if (event->name != weft_rpc_aggregator_name(agg->config.shard, number) ||
        number >= agg->config.children_max || number == agg->config.number) {
        agg->counters.children_refused++;
        weft_agg_close_later(agg, event->peer, true);
        return;
    }
    const uint32_t rank = agg->config.workers_max + number;
    struct agg_worker *child = &agg->workers[rank];
    const bool is_same = child->incarnation == event->incarnation;
    if (child->up && !is_same &&
        weft_aggregate_rival_refused(&child->rival_ns, child->used_ns, now_ns)) {
        agg->counters.children_refused++;
        weft_agg_close_later(agg, event->peer, true);
        return;
    }
    if (child->up) {
        weft_agg_close_later(agg, child->peer, !is_same);
        weft_agg_unbind(agg, rank);
    }
    child->rival_ns = 0;
    weft_agg_bind(agg, rank, event);
}

bool weft_agg_child_below(struct weft_aggregator *agg, uint32_t rank, const uint8_t *bytes)
{
    struct agg_worker *child = &agg->workers[rank];
    uint64_t below[AGG_BELOW_WORDS];
    memcpy(below, bytes, sizeof(below));
    if (weft_bits_test(below, agg->config.number)) {
        agg->counters.cycles_detected++;
        return false;
    }
    agg->parent_due |=
        memcmp(child->below, below, sizeof(below)) != 0; /* also if the table is refused */
    memcpy(child->below, below, sizeof(below));
    return true;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Largest number of gradients of one id in the message. A valid message has ascending ids, so equal
 * ids are adjacent. If the ids do not ascend, return the total: one id may have all gradients. */
static uint32_t count_max_of(const struct weft_aggregator *agg,
                             const struct weft_aggregate_view *view)
{
    uint64_t all = 0, run = 0, most = 0;
    bool ascends = true;
    for (uint32_t i = 0; i < view->request.rows; i++) {
        const uint32_t count = weft_aggregate_count_at(view, i);
        const bool is_same = i > 0 && agg->below_ids[i] == agg->below_ids[i - 1];
        ascends &= i == 0 || agg->below_ids[i] >= agg->below_ids[i - 1];
        run = is_same ? run + count : count;
        most = run > most ? run : most;
        all += count;
    }
    /* One more than the limit of a group, so that additions do not overflow. */
    return (uint32_t)weft_min_u64(ascends ? most : all, WEFT_AGGREGATE_COUNT_MAX + 1);
}

/* True: the shard would refuse this rank, and with it the whole group. */
static bool is_strange(const struct weft_aggregator *agg, const struct weft_table_spec *spec,
                       const struct weft_aggregate_member *member)
{
    if (member->rank >= spec->workers) {
        return true;
    }
    const bool has_rank = member->rank < agg->config.workers_max;
    const struct agg_worker *here = has_rank ? &agg->workers[member->rank] : NULL;
    return here != NULL && here->up && here->incarnation != member->incarnation;
}

/* Returns the counter of the reason for refusal. NULL: the message can be added; *input_p describes
 * it and borrows `members`. */
static uint64_t *look_at(struct weft_aggregator *agg, const struct agg_below *below,
                         const struct weft_rpc_tag *tag, size_t bytes,
                         struct weft_aggregate_view *view, struct agg_member *members,
                         struct agg_input *input_p)
{
    if (tag->table >= agg->config.tables_max ||
        !weft_bits_test(agg->tables[tag->table].open, below->rank)) {
        return &agg->counters.direct_table;
    }
    const struct weft_table_spec *spec = &agg->tables[tag->table].spec;
    if (weft_aggregate_unpack(below->memory, bytes, spec->dim, view) != WEFT_OK ||
        view->request.worker != below->rank - agg->config.workers_max ||
        !weft_ids_unpack(view->ids, view->ids_bytes, view->request.rows, agg->below_ids) ||
        !weft_aggregate_counts_good(view) || !weft_aggregate_sums_finite(view, spec->dim) ||
        (view->request.need_clock != 0 && !weft_aggregate_weighs(spec))) {
        return &agg->counters.direct_form;
    }
    const bool ends = (view->request.flags & WEFT_AGGREGATE_ENDS) != 0;
    uint32_t newest = 0;
    for (uint32_t i = 0; i < view->members; i++) {
        members[i] = (struct agg_member){.push = weft_aggregate_member_at(view, i),
                                         .answer = i == 0 ? below->answer : AGG_NONE};
        if (!ends && members[i].push.clock == 0) {
            members[i].push.clock = tag->number;
        }
        newest = members[i].push.clock > newest ? members[i].push.clock : newest;
        if (is_strange(agg, spec, &members[i].push)) {
            return &agg->counters.direct_form;
        }
    }
    if (!ends && newest != tag->number) {
        return &agg->counters.direct_form;
    }
    *input_p = (struct agg_input){
        .table = tag->table,
        .clock = ends ? 0 : tag->number,
        .ends = ends,
        .rank = below->rank,
        .wants_cut = (view->request.flags & WEFT_RPC_CUT) != 0,
        .member = members,
        .members = view->members,
        .rows = view->request.rows,
        .count_max = count_max_of(agg, view),
        .bytes = ends ? 0 : bytes,
        .ids = agg->below_ids,
        .values = view->sums,
        .view = view,
    };
    return weft_agg_group_has(agg, input_p) ? &agg->counters.direct_form : NULL;
}

static void received(struct weft_aggregator *agg, struct agg_below *below,
                     const struct weft_msg_event *event, uint64_t now_ns)
{
    const size_t bytes = (size_t)event->total * event->elem_bytes;
    struct agg_member members[WEFT_AGGREGATE_MEMBERS_MAX];
    struct weft_aggregate_view view = {0};
    struct agg_input input;
    struct weft_rpc_request request;
    struct weft_rpc_tag tag;
    if (event->outcome != WEFT_MSG_COMPLETE || below->stale || event->received < event->chunks ||
        event->elem_bytes != 1 || !weft_rpc_tag_unpack(event->tag, &tag) ||
        weft_rpc_request_unpack(below->memory, bytes, &request) != WEFT_OK) {
        release(agg, below, false); /* the sender no longer waits, or violated the protocol */
        return;
    }
    struct agg_answer *answer = &agg->answers[below->answer];
    answer->rank = below->rank;
    answer->life = agg->workers[below->rank].life;
    answer->op = WEFT_RPC_AGGREGATE;
    answer->table = tag.table;
    answer->rpc_id = request.rpc_id;
    answer->t0_ns = request.t0_ns;
    answer->rows = request.rows;
    answer->message_bytes = bytes;
    answer->arrival_ns = event->at_ns;
    uint64_t *why = look_at(agg, below, &tag, bytes, &view, members, &input);
    answer->pushes = view.members;
    if (why == NULL && !agg_takes_sums(agg, tag.table)) {
        why = &agg->counters.direct_shard;
    }
    if (why == NULL && !weft_agg_group_add(agg, &input, now_ns)) {
        why = &agg->counters.direct_large;
    }
    const bool ends = (request.flags & WEFT_AGGREGATE_ENDS) != 0;
    agg->counters.aggregates_in += !ends;
    *(ends ? &agg->counters.clocks_in : &agg->counters.pushes_in) += view.members;
    if (why != NULL) {
        *why += ends ? 0 : view.members;
        *(ends ? &agg->counters.clocks_direct : &agg->counters.pushes_direct) += view.members;
        if (!ends) {
            weft_agg_record_direct(agg, below->answer, why);
        }
        weft_agg_answer(agg, below->answer, WEFT_RPC_SEND_DIRECT, NULL);
    }
    release(agg, below, true);
}

void weft_agg_child_event(struct weft_aggregator *agg, uint32_t index,
                          const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_below *below = &agg->below[index];
    if (event->type == WEFT_EVENT_OPEN) {
        WEFT_ASSERT(below->state == AGG_SLOT_POSTED);
        below->state = AGG_SLOT_OPEN;
        below->stale = false;
        agg->workers[below->rank].used_ns = now_ns;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(agg, below, event, now_ns);
    }
}
