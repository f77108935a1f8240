/* Records of an aggregator, and its gauges. A record is written for each message of a worker or a
 * child when it is answered, and for each aggregate when the shard has replied to it or the
 * connection to the shard has ended. Pulls and ended clocks have none. */
#include "ps/aggregator_internal.h"

/* Name the reason for which pushes of this counter were refused with SEND_DIRECT. */
static enum weft_rpc_record_direct direct_of(const struct weft_aggregator *agg, const uint64_t *why)
{
    const struct weft_aggregator_counters *counters = &agg->counters;
    return why == &counters->direct_table     ? WEFT_RPC_RECORD_DIRECT_TABLE
           : why == &counters->direct_form    ? WEFT_RPC_RECORD_DIRECT_FORM
           : why == &counters->direct_large   ? WEFT_RPC_RECORD_DIRECT_LARGE
           : why == &counters->direct_shard   ? WEFT_RPC_RECORD_DIRECT_SHARD
           : why == &counters->direct_refused ? WEFT_RPC_RECORD_DIRECT_REFUSED
                                              : WEFT_RPC_RECORD_ABSORBED;
}

static enum weft_rpc_record_flush flush_of(const struct weft_aggregator *agg, const uint64_t *why)
{
    const struct weft_aggregator_counters *counters = &agg->counters;
    return why == &counters->flushed_complete ? WEFT_RPC_RECORD_FLUSH_COMPLETE
           : why == &counters->flushed_count  ? WEFT_RPC_RECORD_FLUSH_COUNT
           : why == &counters->flushed_age    ? WEFT_RPC_RECORD_FLUSH_AGE
           : why == &counters->flushed_memory ? WEFT_RPC_RECORD_FLUSH_MEMORY
                                              : WEFT_RPC_RECORD_UNFLUSHED;
}

static void put_in(struct weft_aggregator *agg, uint32_t index, enum weft_rpc_status status,
                   const uint64_t *why, uint32_t aggregate, uint64_t now_ns)
{
    const struct agg_answer *answer = &agg->answers[index];
    const bool is_child = agg_is_child(agg, answer->rank);
    const struct weft_rpc_record record = {
        .type = WEFT_RPC_RECORD_AGGREGATE_IN,
        .table = answer->table,
        .aggregate_in = {.server = agg->config.shard,
                         .aggregator = agg->config.number,
                         .sender = is_child ? answer->rank - agg->config.workers_max : answer->rank,
                         .is_child = is_child,
                         .rpc = answer->rpc_id,
                         .aggregate = aggregate,
                         .pushes = answer->pushes,
                         .rows = answer->rows,
                         .status = (uint16_t)status,
                         .reason = (uint8_t)direct_of(agg, why),
                         .bytes = answer->message_bytes,
                         .arrival_ns = answer->arrival_ns,
                         .answer_ns = now_ns},
    };
    weft_rpc_record_put(agg->config.records, &record);
}

void weft_agg_record_direct(struct weft_aggregator *agg, uint32_t answer, const uint64_t *why)
{
    if (agg->config.records != NULL) {
        put_in(agg, answer, WEFT_RPC_SEND_DIRECT, why, 0,
               agg->config.clock_ns(agg->config.clock_arg));
    }
}

void weft_agg_record_out(struct weft_aggregator *agg, const struct agg_group *group,
                         enum weft_rpc_status status, const uint64_t *why)
{
    if (agg->config.records == NULL || group->ends) {
        return;
    }
    const uint64_t now_ns = agg->config.clock_ns(agg->config.clock_arg);
    const bool is_sent = group->sent_ns != 0;
    const uint32_t rpc = is_sent ? group->rpc_id : 0;
    const struct weft_rpc_record record = {
        .type = WEFT_RPC_RECORD_AGGREGATE_OUT,
        .table = group->table,
        .aggregate_out = {.server = agg->config.shard,
                          .aggregator = agg->config.number,
                          .rpc = rpc,
                          .clock = group->clock,
                          .messages = group->messages,
                          .pushes = group->members,
                          .rows_in = group->rows_in,
                          .rows_out = group->rows,
                          .status = (uint16_t)status,
                          .reason = (uint8_t)(is_sent ? flush_of(agg, group->flushed)
                                                      : WEFT_RPC_RECORD_UNFLUSHED),
                          .first_ns = group->born_ns,
                          .sent_ns = group->sent_ns,
                          .answer_ns = now_ns,
                          .bytes_in = group->bytes_in,
                          .bytes_out = is_sent ? group->message_bytes : 0},
    };
    weft_rpc_record_put(agg->config.records, &record);
    for (uint32_t i = 0; i < group->members; i++) {
        if (group->member[i].answer != AGG_NONE) {
            put_in(agg, group->member[i].answer, status, why, rpc, now_ns);
        }
    }
}

void weft_aggregator_gauges(const struct weft_aggregator *agg,
                            struct weft_aggregator_gauges *gauges_p)
{
    *gauges_p = (struct weft_aggregator_gauges){.shard_up = agg->shard_up,
                                                .pulls_waiting = agg->pulls_waiting};
    for (uint32_t t = 0; t < agg->config.tables_max; t++) {
        gauges_p->rows_cached += agg->tables[t].kept.count;
    }
    for (uint32_t i = 0; i < agg->sums_count; i++) {
        gauges_p->groups_open += agg->groups[i].state == AGG_GROUP_OPEN;
        gauges_p->groups_sent += agg->groups[i].state >= AGG_GROUP_CLOSED;
    }
    for (uint32_t i = 0; i < agg->config.workers_max; i++) {
        gauges_p->workers_connected += agg->workers[i].up;
    }
    for (uint32_t i = agg->config.workers_max; i < agg->ranks_max; i++) {
        gauges_p->children_connected += agg->workers[i].up;
    }
}
