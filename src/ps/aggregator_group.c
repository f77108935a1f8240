/* Groups, from the first push to the shard's reply. A group is the sum of pushes of one table and
 * clock, or of the pushes that a scheduler assigned to one sum. A group without rows collects ended
 * clocks of one table in the same way.
 *
 * The rows of a group are added in aggregator_rows.c. A group is sent in ascending order of ids,
 * which gives the shortest encoding. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"
#include "ps/id_pack.h"

#include <stdlib.h>
#include <string.h>

enum {
    ENDS_BYTES =
        WEFT_AGGREGATE_HEAD_BYTES + WEFT_AGGREGATE_MEMBERS_MAX * WEFT_AGGREGATE_MEMBER_BYTES,
};

/* In BSP no worker proceeds until all have ended the clock, so a report of ended clocks waits for
 * the workers still missing here. The wait is short: those workers may send CLOCK to the shard
 * directly. */
static const uint64_t ends_age_max_ns = 2 * WEFT_NS_PER_MS;

/* ---- life ------------------------------------------------------------------------------------ */

static bool sums_init(struct agg_group *group)
{
    group->index = calloc(AGG_INDEX_SLOTS, sizeof(*group->index));
    group->ids = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*group->ids));
    group->counts = malloc(WEFT_AGGREGATE_ROWS_MAX * sizeof(*group->counts));
    group->sums = malloc(WEFT_AGGREGATE_BYTES_MAX);
    return group->index != NULL && group->ids != NULL && group->counts != NULL &&
           group->sums != NULL;
}

weft_status weft_agg_groups_init(struct weft_aggregator *agg)
{
    agg->sums_count = agg->config.groups_max + WEFT_AGGREGATE_SLOTS;
    agg->group_count = agg->sums_count + AGG_ENDS_MAX;
    agg->groups = calloc(agg->group_count, sizeof(*agg->groups));
    /* malloc, not calloc: each element is written before it is read, and clearing would touch all
     * pages. */
    agg->order = malloc((size_t)2 * WEFT_AGGREGATE_ROWS_MAX * sizeof(*agg->order));
    if (agg->groups == NULL || agg->order == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < agg->group_count; i++) {
        struct agg_group *group = &agg->groups[i];
        group->ends = i >= agg->sums_count;
        group->ranks = calloc(WEFT_BITS_WORDS((size_t)agg->ranks_max), sizeof(uint64_t));
        group->message = malloc(group->ends ? ENDS_BYTES : WEFT_AGGREGATE_BYTES_MAX);
        if (group->ranks == NULL || group->message == NULL || (!group->ends && !sums_init(group))) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_agg_groups_fini(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; agg->groups != NULL && i < agg->group_count; i++) {
        free(agg->groups[i].ranks);
        free(agg->groups[i].index);
        free(agg->groups[i].ids);
        free(agg->groups[i].counts);
        free(agg->groups[i].sums);
        free(agg->groups[i].message);
    }
    free(agg->groups);
    free(agg->order);
}

static struct agg_group *group_new(struct weft_aggregator *agg, const struct agg_input *input,
                                   uint64_t now_ns)
{
    const uint32_t first = input->ends ? agg->sums_count : 0;
    const uint32_t end = input->ends ? agg->group_count : agg->sums_count;
    uint32_t open = 0;
    struct agg_group *group = NULL;
    for (uint32_t i = first; i < end; i++) {
        open += agg->groups[i].state == AGG_GROUP_OPEN;
        group = agg->groups[i].state == AGG_GROUP_FREE ? &agg->groups[i] : group;
    }
    if (group == NULL || (!input->ends && open >= agg->config.groups_max)) {
        return NULL;
    }
    group->state = AGG_GROUP_OPEN;
    group->message_closed = group->answered = group->again = group->wants_cut = false;
    group->table = input->table;
    group->clock = input->clock;
    group->sum = input->sum;
    group->piece = input->piece;
    group->weights = weft_agg_weights_of(agg, input);
    group->born_ns = now_ns;
    group->heard_ns = now_ns;
    group->arrival_ns = group->sent_ns = group->bytes_in = 0;
    group->members = group->rows = group->count_max = group->ranks_count = group->newest = 0;
    group->messages = group->rows_in = group->rpc_id = 0;
    group->flushed = NULL;
    group->rows_max = weft_aggregate_rows_max(agg->tables[input->table].spec.dim);
    memset(group->ranks, 0, WEFT_BITS_WORDS((size_t)agg->ranks_max) * sizeof(*group->ranks));
    if (!group->ends && ++group->life == 0) {
        memset(group->index, 0, AGG_INDEX_SLOTS * sizeof(*group->index));
        group->life = 1;
    }
    return group;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static void clock_begun(struct agg_table *table, uint64_t clock)
{
    table->newest = (uint32_t)weft_max_u64(table->newest, clock);
}

static void add(struct weft_aggregator *agg, struct agg_group *group, const struct agg_input *input)
{
    clock_begun(&agg->tables[input->table], input->clock);
    weft_agg_rows_add(agg, group, input);
    group->wants_cut |= input->wants_cut;
    group->clock = input->clock > group->clock ? input->clock : group->clock;
    memcpy(group->member + group->members, input->member, input->members * sizeof(*input->member));
    for (uint32_t i = 0; i < input->members; i++) {
        group->member[group->members + i].from = input->rank;
    }
    group->members += input->members;
    group->ranks_count += !weft_bits_test(group->ranks, input->rank);
    weft_bits_set(group->ranks, input->rank);
    for (uint32_t i = 0; group->ends && i < input->members; i++) {
        uint32_t *ended = &agg->tables[input->table].ended[input->rank];
        const uint32_t clock = input->member[i].push.number;
        clock_begun(&agg->tables[input->table], weft_min_u64(clock, UINT32_MAX - 1) + 1);
        *ended = clock > *ended ? clock : *ended;
        group->newest = clock > group->newest ? clock : group->newest;
    }
    group->messages++;
    group->rows_in += input->rows;
    group->bytes_in += input->bytes;
    group->arrival_ns = weft_max_u64(group->arrival_ns, input->arrival_ns);
    agg->counters.rows_in += input->rows;
    agg->counters.bytes_in += input->bytes;
}

/* why: the counter of the reason; counted for sums only. */
static void group_close(struct agg_group *group, uint64_t *why)
{
    group->state = AGG_GROUP_CLOSED;
    group->flushed = why;
    *why += !group->ends;
}

/* A sum assigned by a scheduler may span several clocks, except in BSP, where a shard accepts one
 * clock at a time. */
static struct agg_group *group_of(struct weft_aggregator *agg, const struct agg_input *input)
{
    const bool of_a_clock =
        input->sum == 0 || agg->tables[input->table].spec.mode == WEFT_TABLE_BSP;
    for (uint32_t i = 0; i < agg->group_count; i++) {
        struct agg_group *group = &agg->groups[i];
        if (group->state == AGG_GROUP_OPEN && group->ends == input->ends &&
            group->table == input->table && group->sum == input->sum &&
            group->piece == input->piece &&
            (!of_a_clock || group->clock == input->clock)) {
            return group;
        }
    }
    return NULL;
}

static void close_oldest(struct weft_aggregator *agg)
{
    struct agg_group *oldest = NULL;
    for (uint32_t i = 0; i < agg->sums_count; i++) {
        struct agg_group *group = &agg->groups[i];
        if (group->state == AGG_GROUP_OPEN &&
            (oldest == NULL || group->born_ns < oldest->born_ns)) {
            oldest = group;
        }
    }
    if (oldest != NULL) {
        group_close(oldest, &agg->counters.flushed_memory);
    }
}

/* True: each rank that has the table open has ended the clock, in this group or in an earlier
 * message. */
static bool all_ended(const struct weft_aggregator *agg, const struct agg_group *group)
{
    const struct agg_table *table = &agg->tables[group->table];
    bool all = true;
    for (uint32_t rank = 0; rank < agg->ranks_max; rank++) {
        all &= !weft_bits_test(table->open, rank) || weft_bits_test(group->ranks, rank) ||
               table->ended[rank] >= group->newest;
    }
    return all;
}

static void look(struct weft_aggregator *agg, struct agg_group *group)
{
    const uint32_t count_max = group->ends ? 0 : agg->config.count_max;
    const struct agg_table *table = &agg->tables[group->table];
    const bool by_age = agg->config.by_age_asp && table->spec.mode == WEFT_TABLE_ASP;
    const bool is_whole = group->ends ? all_ended(agg, group)
                          : group->sum != 0
                              ? group->ranks_count >= weft_aggregate_sum_members(group->sum)
                              : !by_age && group->ranks_count >= table->open_count;
    if (is_whole) {
        group_close(group, &agg->counters.flushed_complete);
    } else if ((count_max > 0 && group->members >= count_max) ||
               group->members == WEFT_AGGREGATE_MEMBERS_MAX) {
        group_close(group, &agg->counters.flushed_count);
    }
}

static bool has_member(const struct agg_group *group, const struct weft_aggregate_member *push)
{
    bool has = false;
    for (uint32_t i = 0; i < group->members; i++) {
        const struct weft_aggregate_member *other = &group->member[i].push;
        has |= other->rank == push->rank && other->number == push->number;
    }
    return has;
}

bool weft_agg_group_has(struct weft_aggregator *agg, const struct agg_input *input)
{
    const struct agg_group *group = group_of(agg, input);
    if (group == NULL ||
        (agg->config.children_max == 0 && !weft_bits_test(group->ranks, input->rank))) {
        return false;
    }
    bool has = false;
    for (uint32_t i = 0; i < input->members; i++) {
        has |= has_member(group, &input->member[i].push);
    }
    return has;
}

bool weft_agg_group_add(struct weft_aggregator *agg, const struct agg_input *input, uint64_t now_ns)
{
    struct agg_group *group = group_of(agg, input);
    if (group != NULL && !weft_agg_rows_fit(agg, group, input)) {
        group_close(group, &agg->counters.flushed_memory);
        group = NULL;
    }
    if (group == NULL) {
        group = group_new(agg, input, now_ns);
    }
    if (group == NULL && !input->ends) {
        close_oldest(agg);
        weft_agg_groups_progress(agg, now_ns);
        group = group_new(agg, input, now_ns);
    }
    if (group == NULL) {
        return false;
    }
    if (!weft_agg_rows_fit(agg, group, input)) {
        group->state = AGG_GROUP_FREE; /* the group is new and has no push */
        return false;
    }
    add(agg, group, input);
    look(agg, group);
    return true;
}

void weft_agg_groups_look(struct weft_aggregator *agg, uint16_t table)
{
    for (uint32_t i = 0; i < agg->group_count; i++) {
        if (agg->groups[i].state == AGG_GROUP_OPEN && agg->groups[i].table == table) {
            look(agg, &agg->groups[i]);
        }
    }
}

/* ---- the message ----------------------------------------------------------------------------- */

static int by_rank_and_number(const struct agg_member *a, const struct agg_member *b)
{
    return a->push.rank != b->push.rank       ? (a->push.rank < b->push.rank ? -1 : 1)
           : a->push.number != b->push.number ? (a->push.number < b->push.number ? -1 : 1)
                                              : 0;
}

/* Insertion sort: few members, mostly in order. */
static void sort_members(struct agg_group *group)
{
    for (uint32_t i = 1; i < group->members; i++) {
        struct agg_member member = group->member[i];
        uint32_t at = i;
        for (; at > 0 && by_rank_and_number(&group->member[at - 1], &member) > 0; at--) {
            group->member[at] = group->member[at - 1];
        }
        group->member[at] = member;
    }
}

static size_t pack_ids(const struct weft_id_sort *order, uint32_t rows, uint8_t *out)
{
    uint64_t ids[WEFT_IDS_BLOCK], before = 0;
    size_t bytes = 0;
    for (uint32_t done = 0, taken; done < rows; done += taken) {
        uint32_t count = (uint32_t)weft_min_u64(WEFT_IDS_BLOCK, rows - done);
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = order[done + i].id;
        }
        bytes += weft_ids_pack_block(ids, count, before, out + bytes, &taken);
        before = ids[taken - 1];
    }
    return bytes;
}

/* Number of the columns' entries: with bases each member also has its clock. */
static uint32_t columns_of(const struct agg_group *group)
{
    bool has_clocks = false, has_bases = false;
    for (uint32_t i = 0; i < group->members; i++) {
        has_clocks |= group->member[i].push.clock != group->clock;
        has_bases |= group->member[i].push.base != 0;
    }
    return group->ends ? 0
           : has_bases ? 2 * group->members
                       : has_clocks * group->members;
}

static void lay_out_rows(const struct agg_group *group, const struct weft_id_sort *order,
                         uint32_t dim, uint8_t *counts_out, uint8_t *sums_out)
{
    const uint32_t rows = group->rows;
    const uint16_t *counts = group->counts;
    const float *sums = group->sums;
    for (uint32_t i = 0; i < rows; i++, sums_out += dim * sizeof(float)) {
        const uint32_t row = order[i].row;
        memcpy(counts_out + (size_t)i * sizeof(uint16_t), &counts[row], sizeof(uint16_t));
        agg_row_copy(sums_out, sums + (size_t)row * dim, dim);
    }
}

static void lay_out(struct weft_aggregator *agg, struct agg_group *group)
{
    const uint32_t dim = agg->tables[group->table].spec.dim;
    const struct weft_id_sort *order = weft_ids_sort(group->ids, group->rows, agg->order);
    sort_members(group);
    uint8_t *at = group->message + WEFT_AGGREGATE_HEAD_BYTES;
    for (uint32_t i = 0; i < group->members; i++, at += WEFT_AGGREGATE_MEMBER_BYTES) {
        weft_aggregate_member_pack(&group->member[i].push, at);
    }
    const uint32_t columns = columns_of(group);
    for (uint32_t i = 0; i < columns; i++, at += WEFT_AGGREGATE_CLOCK_BYTES) {
        const struct weft_aggregate_member *push = &group->member[i % group->members].push;
        memcpy(at, i < group->members ? &push->clock : &push->base, WEFT_AGGREGATE_CLOCK_BYTES);
    }
    const size_t ids_bytes = pack_ids(order, group->rows, at);
    uint8_t *sums = at + ids_bytes + (size_t)group->rows * sizeof(uint16_t);
    lay_out_rows(group, order, dim, at + ids_bytes, sums);
    agg->rpc_id = agg->rpc_id == UINT32_MAX ? 1 : agg->rpc_id + 1;
    group->rpc_id = agg->rpc_id;
    const struct weft_rpc_request request = {
        .rpc_id = group->rpc_id,
        .worker = agg->config.number,
        .t0_ns = agg->config.clock_ns(agg->config.clock_arg),
        .need_clock = group->weights,
        .rows = group->rows,
        .flags = group->ends        ? WEFT_AGGREGATE_ENDS
                 : group->wants_cut ? WEFT_RPC_CUT
                                    : 0,
    };
    weft_aggregate_head_pack(&request, group->members, ids_bytes, group->message);
    weft_aggregate_head_columns(group->message, columns);
    group->message_bytes =
        (size_t)(sums - group->message) + (size_t)group->rows * dim * sizeof(float);
    WEFT_ASSERT(group->message_bytes <=
                (group->ends ? (size_t)ENDS_BYTES : WEFT_AGGREGATE_BYTES_MAX));
}

/* False: the transport did not accept the message; retry later. */
static bool group_send(struct weft_aggregator *agg, struct agg_group *group, uint64_t now_ns)
{
    lay_out(agg, group);
    if (weft_agg_expect_answer(agg, WEFT_RPC_AGGREGATE, group->table, group->rpc_id, group->reply,
                               sizeof(group->reply),
                               AGG_USER_GROUP | (uint32_t)(group - agg->groups),
                               &group->expect) != WEFT_OK) {
        return false;
    }
    const struct weft_msg_send send = {
        .peer = agg->shard,
        .base = group->message,
        .total = (uint32_t)group->message_bytes,
        .elem_bytes = 1,
        .priority = group->ends ? WEFT_RPC_PRIORITY_CLOCK : WEFT_RPC_PRIORITY,
        .critical = 1,
        .stream = group->ends ? 0 : weft_rpc_stream(WEFT_RPC_AGGREGATE, group->table),
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_AGGREGATE, .table = group->table, .number = group->clock}),
        .deadline_ns = WEFT_NEVER,
        .user = AGG_USER_GROUP | (uint32_t)(group - agg->groups),
    };
    uint64_t seq;
    if (agg->msgr.ops->send(agg->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)!agg->msgr.ops->cancel(agg->msgr.self, group->expect);
        return false; /* retried later, or PEER_DOWN follows */
    }
    group->state = AGG_GROUP_SENT;
    group->sent_ns = now_ns;
    if (group->ends) {
        agg->counters.clocks_out++;
        return true;
    }
    agg->counters.aggregates_out++;
    agg->counters.rows_out += group->rows;
    agg->counters.bytes_out += group->message_bytes;
    return true;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void tell_members(struct weft_aggregator *agg, struct agg_group *group,
                         enum weft_rpc_status status, const struct weft_rpc_reply *reply,
                         uint64_t *why)
{
    uint32_t lost = 0; /* acknowledged on apply, so their workers cannot send them again */
    weft_agg_record_out(agg, group, status, why);
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t answer = group->member[i].answer;
        if (answer != AGG_NONE) {
            lost += status != WEFT_RPC_OK && agg->answers[answer].op == WEFT_RPC_COMMITTED;
            weft_agg_answer(agg, answer, status, reply);
        }
    }
    agg->counters.pushes_lost += lost;
    if (group->ends) {
        *(status == WEFT_RPC_OK ? &agg->counters.clocks_passed : &agg->counters.clocks_direct) +=
            group->members;
    } else {
        *why += group->members - lost;
        agg->counters.pushes_direct += status == WEFT_RPC_OK ? 0 : group->members - lost;
    }
    group->members = 0;
}

static void group_done(struct agg_group *group)
{
    if (group->message_closed && group->answered) {
        group->state = group->again ? AGG_GROUP_CLOSED : AGG_GROUP_FREE;
        group->message_closed = group->answered = group->again = false;
    }
}

/* A shard accepts all clocks of a message or none, and a refusal names the rank at fault. Remove
 * that rank, which then sends CLOCK to the shard itself. If the rank belongs to a child's message,
 * remove all members of that message and forward the rank to the child. False: no rank is at fault,
 * or no other member remains. */
static bool drop_refused(struct weft_aggregator *agg, struct agg_group *group,
                         const struct weft_rpc_reply *reply)
{
    uint32_t kept = 0, at = 0;
    while (at < group->members && group->member[at].push.rank + 1 != reply->rows) {
        at++;
    }
    if (!group->ends || reply->status == WEFT_RPC_OK || at == group->members) {
        return false;
    }
    const uint32_t from = group->member[at].from;
    for (uint32_t i = 0; i < group->members; i++) {
        kept += group->member[i].from != from;
    }
    if (kept == 0) {
        return false;
    }
    kept = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        if (group->member[i].from != from) {
            group->member[kept++] = group->member[i];
        } else if (group->member[i].answer != AGG_NONE) {
            weft_agg_answer(agg, group->member[i].answer, WEFT_RPC_SEND_DIRECT, reply);
        }
    }
    agg->counters.clocks_direct += group->members - kept;
    group->members = kept;
    return true;
}

void weft_agg_group_sent(struct weft_aggregator *agg, uint32_t index)
{
    struct agg_group *group = &agg->groups[index];
    WEFT_ASSERT(group->state == AGG_GROUP_SENT);
    group->message_closed = true;
    group_done(group);
}

void weft_agg_group_answered(struct weft_aggregator *agg, uint32_t index,
                             const struct weft_msg_event *event)
{
    struct agg_group *group = &agg->groups[index];
    struct weft_rpc_reply reply;
    if (event->outcome != WEFT_MSG_COMPLETE && event->sender_gone) {
        return; /* PEER_DOWN follows */
    }
    const bool is_answer =
        event->outcome == WEFT_MSG_COMPLETE &&
        weft_rpc_reply_unpack(group->reply, sizeof(group->reply), &reply) == WEFT_OK &&
        reply.rpc_id == group->rpc_id;
    const bool good = is_answer && reply.status == WEFT_RPC_OK;
    if (good && group->weights != 0 && reply.rows != 0) { /* also after the shard went back */
        agg->tables[group->table].newest = reply.rows;
    }
    group->again = is_answer && drop_refused(agg, group, &reply);
    if (!group->again) {
        tell_members(agg, group, good ? WEFT_RPC_OK : WEFT_RPC_SEND_DIRECT,
                     good || (is_answer && group->ends) ? &reply : NULL,
                     good ? &agg->counters.pushes_absorbed : &agg->counters.direct_refused);
    }
    group->answered = true;
    group_done(group);
}

void weft_agg_groups_drop(struct weft_aggregator *agg)
{
    for (uint32_t i = 0; i < agg->group_count; i++) {
        struct agg_group *group = &agg->groups[i];
        if (group->state == AGG_GROUP_SENT && !group->answered) {
            (void)!agg->msgr.ops->cancel(agg->msgr.self, group->expect);
        }
        if (group->state != AGG_GROUP_FREE) {
            tell_members(agg, group, WEFT_RPC_SEND_DIRECT, NULL, &agg->counters.direct_shard);
            group->state = AGG_GROUP_FREE;
        }
    }
}

/* A group that cannot be sent yet keeps accepting pushes: the slower the shard, the fewer and
 * longer the messages. */
static bool is_shard_busy(const struct weft_aggregator *agg)
{
    uint32_t gone = 0;
    for (uint32_t i = 0; i < agg->group_count; i++) {
        gone += agg->groups[i].state == AGG_GROUP_SENT || agg->groups[i].state == AGG_GROUP_CLOSED;
    }
    return gone >= WEFT_AGGREGATE_SLOTS;
}

/* One CLOCK message per table is in flight at a time; clocks that end meanwhile share the next
 * one. */
static bool is_held(const struct weft_aggregator *agg, const struct agg_group *group)
{
    if (!group->ends) {
        return is_shard_busy(agg);
    }
    bool held = false;
    for (uint32_t i = agg->sums_count; i < agg->group_count; i++) {
        const struct agg_group *other = &agg->groups[i];
        held |= other->table == group->table &&
                (other->state == AGG_GROUP_CLOSED || other->state == AGG_GROUP_SENT);
    }
    return held;
}

void weft_agg_sum_heard(struct weft_aggregator *agg, uint16_t table, uint32_t sum, uint64_t now_ns)
{
    for (uint32_t i = 0; sum != 0 && i < agg->sums_count; i++) {
        struct agg_group *group = &agg->groups[i];
        if (group->state == AGG_GROUP_OPEN && group->table == table && group->sum == sum) {
            group->heard_ns = now_ns;
        }
    }
}

/* When an open group is sent without its other members. A sum assigned by a scheduler waits as long
 * as pushes of it arrive, and then for its age limit or, if longer, the time in which the slowest
 * push so far arrived: the transfers of large ones start seconds apart. It does not wait longer
 * than if all of them arrived one after the other, each in that time. */
static uint64_t flush_at(const struct weft_aggregator *agg, const struct agg_group *group)
{
    uint64_t age_ns = agg->config.age_ns;
    if (group->ends) {
        const bool is_bsp = agg->tables[group->table].spec.mode == WEFT_TABLE_BSP;
        age_ns = is_bsp ? weft_min_u64(age_ns, ends_age_max_ns) : 0;
    }
    if (group->sum == 0) {
        return weft_time_add(group->born_ns, age_ns);
    }
    const uint64_t last_ns = weft_time_add(
        group->born_ns, group->arrival_ns * weft_aggregate_sum_members(group->sum));
    age_ns = weft_max_u64(weft_max_u64(age_ns, agg->config.sum_age_ns), group->arrival_ns);
    return weft_time_add(weft_min_u64(group->heard_ns, last_ns), age_ns);
}

void weft_agg_groups_progress(struct weft_aggregator *agg, uint64_t now_ns)
{
    uint32_t sent = 0;
    for (uint32_t i = 0; i < agg->group_count; i++) {
        struct agg_group *group = &agg->groups[i];
        sent += group->state == AGG_GROUP_SENT;
        if (group->state == AGG_GROUP_OPEN && now_ns >= flush_at(agg, group) &&
            !is_held(agg, group)) {
            group_close(group, &agg->counters.flushed_age);
        }
    }
    /* Clocks first: other workers wait for them. */
    for (uint32_t n = 0; agg->shard_up && n < agg->group_count; n++) {
        struct agg_group *group = &agg->groups[(n + agg->sums_count) % agg->group_count];
        if (group->state == AGG_GROUP_CLOSED && sent < WEFT_AGGREGATE_SLOTS) {
            sent += group_send(agg, group, now_ns);
        }
    }
}

uint64_t weft_aggregator_deadline(const struct weft_aggregator *agg)
{
    uint64_t first_ns = weft_min_u64(weft_agg_pulls_deadline(agg), weft_agg_parent_deadline(agg));
    for (uint32_t i = 0; i < agg->group_count; i++) {
        const struct agg_group *group = &agg->groups[i];
        if (group->state == AGG_GROUP_OPEN && !is_held(agg, group)) {
            first_ns = weft_min_u64(first_ns, flush_at(agg, group));
        }
    }
    return first_ns;
}
