/* CLOCKs of workers, forwarded under each worker's rank. CLOCKs of several workers form one
 * message: a group without rows (aggregator_group.c). A worker sends CLOCK after the shard has
 * committed its pushes of that clock, so the shard receives the pushes first. The aggregator
 * replies after the shard has accepted the clock. Without an OK the worker sends CLOCK to the shard
 * itself; a repeated CLOCK has no effect. */
#include "ps/aggregator_internal.h"

#include "base/assert.h"

#include <string.h>

void weft_agg_clock_post(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_worker *worker = &agg->workers[rank];
    struct agg_clock *clock = &worker->clock;
    if (!worker->up || clock->state != AGG_SLOT_IDLE || agg->answer_free == AGG_NONE) {
        return; /* weft_agg_answer_free retries */
    }
    if (weft_agg_expect(agg, rank, WEFT_RPC_CLOCK, clock->memory, sizeof(clock->memory),
                        AGG_USER_CLOCK | rank, &clock->expect)) {
        clock->answer = weft_agg_answer_take(agg);
        clock->state = AGG_SLOT_POSTED;
    }
}

/* keeps: another owner has the reply buffer now. */
static void release(struct weft_aggregator *agg, uint32_t rank, bool keeps)
{
    struct agg_clock *clock = &agg->workers[rank].clock;
    if (!keeps) {
        weft_agg_answer_free(agg, clock->answer);
    }
    clock->state = AGG_SLOT_IDLE;
    weft_agg_clock_post(agg, rank);
}

void weft_agg_clock_unbind(struct weft_aggregator *agg, uint32_t rank)
{
    struct agg_clock *clock = &agg->workers[rank].clock;
    if (clock->state == AGG_SLOT_POSTED) {
        (void)!agg->msgr.ops->cancel(agg->msgr.self, clock->expect);
        release(agg, rank, false);
    }
    clock->stale |= clock->state == AGG_SLOT_OPEN;
}

/* False: the worker has to send CLOCK to the shard itself. */
static bool pass_on(struct weft_aggregator *agg, uint32_t rank, const struct weft_rpc_tag *tag,
                    const struct weft_rpc_request *request, uint64_t now_ns)
{
    const struct agg_worker *worker = &agg->workers[rank];
    if (tag->table >= agg->config.tables_max ||
        !weft_bits_test(agg->tables[tag->table].open, rank) || !agg_takes_sums(agg, tag->table) ||
        request->worker != rank || request->flags != 0 || request->rows != 0 ||
        request->need_clock == 0 || tag->number == 0) {
        return false;
    }
    const struct agg_member member = {
        .push = {.rank = rank,
                 .session = request->need_clock,
                 .incarnation = worker->incarnation,
                 .number = tag->number,
                 .rpc_id = request->rpc_id},
        .answer = worker->clock.answer,
    };
    const struct agg_input input = {
        .table = tag->table, .rank = rank, .ends = true, .member = &member, .members = 1};
    return !weft_agg_group_has(agg, &input) && weft_agg_group_add(agg, &input, now_ns);
}

static void received(struct weft_aggregator *agg, uint32_t rank, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    struct agg_clock *clock = &agg->workers[rank].clock;
    struct weft_rpc_request request;
    struct weft_rpc_tag tag;
    if (event->outcome != WEFT_MSG_COMPLETE || clock->stale || event->received < event->chunks ||
        (size_t)event->total * event->elem_bytes != sizeof(clock->memory) ||
        !weft_rpc_tag_unpack(event->tag, &tag) ||
        weft_rpc_request_unpack(clock->memory, sizeof(clock->memory), &request) != WEFT_OK) {
        release(agg, rank, false); /* the sender no longer waits, or violated the protocol */
        return;
    }
    struct agg_answer *answer = &agg->answers[clock->answer];
    answer->rank = rank;
    answer->life = agg->workers[rank].life;
    answer->op = WEFT_RPC_CLOCK;
    answer->table = tag.table;
    answer->rpc_id = request.rpc_id;
    answer->t0_ns = request.t0_ns;
    agg->counters.clocks_in++;
    if (!pass_on(agg, rank, &tag, &request, now_ns)) {
        agg->counters.clocks_direct++;
        weft_agg_answer(agg, clock->answer, WEFT_RPC_SEND_DIRECT, NULL);
    }
    release(agg, rank, true);
}

void weft_agg_clock_event(struct weft_aggregator *agg, uint32_t rank,
                          const struct weft_msg_event *event, uint64_t now_ns)
{
    struct agg_clock *clock = &agg->workers[rank].clock;
    if (event->type == WEFT_EVENT_OPEN) {
        WEFT_ASSERT(clock->state == AGG_SLOT_POSTED);
        clock->state = AGG_SLOT_OPEN;
        clock->stale = false;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(agg, rank, event, now_ns);
    }
}
