/* Workers that push and pull through an aggregator. Every gradient counts once, whichever process
 * or connection fails or returns; sums equal those of a job without an aggregator; and no pulled
 * row is older than the table's mode allows. Trees of aggregators are in test_ps_aggregator_tree.c.
 */
#include "ps/client_internal.h"
#include "fewer.h"
#include "ps_boxes.h"

#include <math.h>

enum { SEEDS = FEWER(500) };

/* ---- tests ----------------------------------------------------------------------------------- */

/* ASP with by_age_asp: sums wait for their age even if all workers are in them. */
static void by_age(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 4;
    b.box[0].config.count_max = 0;
    b.box[0].config.age_ns = WEFT_NS_PER_MS;
    b.box[0].config.by_age_asp = true;
    box_again(&b, &b.box[0]);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
            push(&b, w, 0);
        }
        wait_all(&b);
    }
    check_sums(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pushes_in, 80);
    assert_int_equal(counters->pushes_absorbed, 80);
    assert_int_equal(counters->flushed_complete, 0);
    assert_int_equal(counters->flushed_age, 10);
    assert_int_equal(counters->aggregates_out, 10);
    bench_close(&b);
}

static void step_without_shard(struct bench *b)
{
    struct weft_msg_event event;
    (void)fake_step(b->c.net);
    box_poll(b);
    for (uint32_t w = 0; w < b->c.workers; w++) {
        while (fake_poll(&b->c.net->nodes[1 + w], &event)) {
            weft_ps_client_event(b->c.client[w], &event, b->c.net->now_ns);
        }
        weft_ps_client_progress(b->c.client[w], b->c.net->now_ns);
    }
}

/* Sending each sum when it is old enough would exceed the shard's message slots: sums wait and
 * grow. */
static void a_busy_shard(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S; /* the aggregator is slow but alive */
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = OPS;
    b.box[0].config.count_max = 0;
    b.box[0].config.age_ns = 1;
    b.box[0].config.by_age_asp = true;
    box_again(&b, &b.box[0]);
    for (uint32_t i = 0; i < 4 * OPS; i++) {
        push(&b, i % 4, 0);
    }
    for (uint32_t steps = 0; steps < 2000; steps++) {
        step_without_shard(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pushes_in, 4 * OPS);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(counters->aggregates_out, WEFT_AGGREGATE_SLOTS);
    assert_int_equal(weft_aggregator_deadline(b.box[0].agg), WEFT_NEVER);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters->pushes_absorbed, 4 * OPS);
    assert_int_equal(counters->aggregates_out, WEFT_AGGREGATE_SLOTS + 1);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* BSP with all workers connected: one message to the shard for each clock. */
static void all_there(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_BSP, 5);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 2;
    b.box[0].config.count_max = 0;
    b.box[0].config.age_ns = WEFT_NS_PER_S;
    box_again(&b, &b.box[0]);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
        }
        end_clock(&b);
        wait_all(&b);
    }
    check_sums(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pushes_in, 40);
    assert_int_equal(counters->pushes_absorbed, 40);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(counters->aggregates_out, 10);
    assert_int_equal(counters->flushed_complete, 10);
    assert_true(counters->rows_out < counters->rows_in);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->aggregates, 10);
    assert_int_equal(shard->aggregate_pushes, 40);
    assert_int_equal(shard->pushes, 40);
    assert_int_equal(shard->aggregate_gradients, counters->rows_in);
    assert_int_equal(shard->clocks, 40); /* reported by the aggregator, four per message */
    assert_int_equal(shard->aggregate_clocks, 40);
    assert_int_equal(counters->clocks_in, 40);
    assert_int_equal(counters->clocks_passed, 40);
    assert_int_equal(counters->clocks_direct, 0);
    assert_int_equal(counters->clocks_out, 10);
    struct weft_shard_gauges gauges;
    weft_shard_gauges(b.c.shard[SHARD], b.c.net->now_ns, WEFT_NS_PER_S, &gauges);
    assert_int_equal(gauges.aggregators_connected, 1);
    assert_int_equal(gauges.aggregators_active, 1);
    weft_shard_gauges(b.c.shard[SHARD], b.c.net->now_ns + 2 * WEFT_NS_PER_S, WEFT_NS_PER_S,
                      &gauges);
    assert_int_equal(gauges.aggregators_active, 0);
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_committed, 10);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_direct, 0);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_clocks_taken, 10);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_clocks_direct, 0);
    }
    bench_close(&b);
}

/* ---- records --------------------------------------------------------------------------------- */

enum { RECORDS = 4096 };

/* The records of one type; returns their number. */
static uint32_t records_of(struct weft_rpc_record_ring *ring, uint8_t type,
                           struct weft_rpc_record *records_p)
{
    uint32_t count, found = 0;
    const struct weft_rpc_record_unit *units = weft_rpc_record_ring_peek(ring, &count);
    struct weft_rpc_record record;
    for (uint32_t at = 0; at < count;) {
        const uint32_t used = weft_rpc_record_read(units + at, count - at, &record);
        assert_true(used > 0);
        at += used;
        if (record.type == type) {
            assert_true(found < RECORDS);
            records_p[found++] = record;
        }
    }
    return found;
}

static struct weft_rpc_record records[RECORDS];

/* Check the records against the counters, which count the same messages. unsent: sums that were to
 * be sent when the connection to the shard ended; the counters of reasons have them, too. */
static void check_records(struct weft_rpc_record_ring *ring,
                          const struct weft_aggregator_counters *counters, uint32_t unsent)
{
    struct weft_aggregator_counters in = {0}, out = {0};
    uint64_t *const direct[WEFT_RPC_RECORD_DIRECTS] = {&in.pushes_absorbed, &in.direct_table,
                                                       &in.direct_form,     &in.direct_large,
                                                       &in.direct_shard,    &in.direct_refused};
    uint64_t *const flushed[WEFT_RPC_RECORD_FLUSHES] = {&out.pulls_in, &out.flushed_complete,
                                                        &out.flushed_count, &out.flushed_age,
                                                        &out.flushed_memory};
    uint32_t count = records_of(ring, WEFT_RPC_RECORD_AGGREGATE_IN, records);
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_rpc_record_aggregate_in *r = &records[i].aggregate_in;
        assert_int_equal(r->status == WEFT_RPC_OK, r->reason == WEFT_RPC_RECORD_ABSORBED);
        assert_true(r->reason != WEFT_RPC_RECORD_ABSORBED || r->aggregate > 0);
        assert_true(r->answer_ns >= r->arrival_ns && r->bytes > 0);
        in.pushes_in += r->pushes;
        *direct[r->reason] += r->pushes;
    }
    assert_int_equal(in.pushes_in, counters->pushes_in);
    assert_int_equal(in.pushes_absorbed, counters->pushes_absorbed);
    assert_int_equal(in.direct_table, counters->direct_table);
    assert_int_equal(in.direct_form, counters->direct_form);
    assert_int_equal(in.direct_large, counters->direct_large);
    assert_int_equal(in.direct_shard, counters->direct_shard);
    assert_int_equal(in.direct_refused, counters->direct_refused);
    count = records_of(ring, WEFT_RPC_RECORD_AGGREGATE_OUT, records);
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_rpc_record_aggregate_out *r = &records[i].aggregate_out;
        *flushed[r->reason] += 1;
        assert_true(r->answer_ns >= r->first_ns && r->rows_in >= r->rows_out);
        assert_int_equal(r->sent_ns > 0, r->rpc > 0);
        assert_int_equal(r->sent_ns > 0, r->reason != WEFT_RPC_RECORD_UNFLUSHED);
        if (r->sent_ns > 0) {
            assert_true(r->sent_ns >= r->first_ns && r->answer_ns >= r->sent_ns);
            out.aggregates_out++;
            out.rows_out += r->rows_out;
            out.bytes_out += r->bytes_out;
        }
        out.rows_in += r->rows_in;
        out.bytes_in += r->bytes_in;
    }
    assert_int_equal(out.aggregates_out, counters->aggregates_out);
    assert_in_range(out.flushed_complete, 0, counters->flushed_complete);
    assert_in_range(out.flushed_count, 0, counters->flushed_count);
    assert_in_range(out.flushed_age, 0, counters->flushed_age);
    assert_in_range(out.flushed_memory, 0, counters->flushed_memory);
    assert_int_equal(out.aggregates_out + unsent,
                     counters->flushed_complete + counters->flushed_count + counters->flushed_age +
                         counters->flushed_memory);
    assert_int_equal(out.rows_in, counters->rows_in);
    assert_int_equal(out.rows_out, counters->rows_out);
    assert_int_equal(out.bytes_in, counters->bytes_in);
    assert_int_equal(out.bytes_out, counters->bytes_out);
}

/* ASP, with all workers connected: each aggregate has the four pushes of a clock. In BSP workers
 * without pulls would also ask the shard whether the next clock has begun. */
static void recorded(void **state)
{
    (void)state;
    struct bench b;
    struct weft_rpc_record_ring *ring;
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    assert_int_equal(weft_rpc_record_ring_new(RECORDS, &ring), WEFT_OK);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 2;
    b.box[0].config.count_max = 0;
    b.box[0].config.age_ns = WEFT_NS_PER_S;
    b.box[0].config.records = ring;
    box_again(&b, &b.box[0]);
    weft_shard_records_end(b.c.shard[SHARD]); /* the window in which the table was opened */
    const struct weft_shard_counters before = *weft_shard_counters(b.c.shard[SHARD]);
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
        }
        end_clock(&b);
        wait_all(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pushes_in, 20);
    check_records(ring, counters, 0);
    assert_int_equal(records_of(ring, WEFT_RPC_RECORD_AGGREGATE_OUT, records), 5);
    const struct weft_rpc_record_aggregate_out first = records[0].aggregate_out;
    assert_int_equal(first.pushes, 4);
    assert_int_equal(first.messages, 4);
    assert_int_equal(first.clock, 1);
    assert_int_equal(first.reason, WEFT_RPC_RECORD_FLUSH_COMPLETE);
    assert_int_equal(records_of(ring, WEFT_RPC_RECORD_AGGREGATE_IN, records), 20);
    uint32_t ranks = 0, rows = 0;
    for (uint32_t i = 0; i < 20; i++) {
        const struct weft_rpc_record_aggregate_in *in = &records[i].aggregate_in;
        if (in->aggregate == first.rpc) {
            ranks |= 1u << in->sender;
            rows += in->rows;
            assert_int_equal(in->answer_ns, first.answer_ns);
            assert_int_equal(in->pushes, 1);
            assert_false(in->is_child);
        }
    }
    assert_int_equal(ranks, 15);
    assert_int_equal(rows, first.rows_in);
    /* The shard counts requests of four workers on one connection, and their time as that of
     * aggregates. */
    weft_shard_records_end(b.c.shard[SHARD]);
    const struct weft_shard_counters *after = weft_shard_counters(b.c.shard[SHARD]);
    const uint64_t windows = after->active_windows - before.active_windows;
    assert_true(windows > 0);
    assert_int_equal(after->active_connections - before.active_connections, windows);
    assert_true(after->active_workers - before.active_workers > windows);
    assert_true(after->aggregate_proc_ns > before.aggregate_proc_ns);
    assert_int_equal(after->direct_proc_ns, before.direct_proc_ns);
    bench_close(&b);
    weft_rpc_record_ring_free(ring);
}

/* Pushes that the aggregator does not take, and a shard that goes away with a sum. */
static void recorded_direct(void **state)
{
    (void)state;
    struct bench b;
    struct weft_rpc_record_ring *ring;
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    assert_int_equal(weft_rpc_record_ring_new(RECORDS, &ring), WEFT_OK);
    b.box[0].config.push_bytes_max = 400; /* of up to 40 rows of 20 bytes */
    b.box[0].config.push_slots = OPS;
    b.box[0].config.count_max = 3;
    b.box[0].config.age_ns = 50000;
    b.box[0].config.by_age_asp = true;
    b.box[0].config.records = ring;
    box_again(&b, &b.box[0]);
    for (uint32_t i = 0; i < 100; i++) {
        push(&b, i % 4, 0);
    }
    wait_all(&b);
    b.box[0].config.age_ns = WEFT_NS_PER_S;
    for (uint32_t i = 0; i < 2; i++) {
        push(&b, i, 0);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    for (uint32_t steps = 0; counters->pushes_in < 102 && steps < 50; steps++) {
        bench_step(&b);
    }
    fake_break(b.c.net, SHARD, b.box[0].node);
    wait_all(&b);
    check_sums(&b);
    assert_true(counters->direct_large > 10 && counters->pushes_absorbed > 10);
    assert_true(counters->flushed_count > 0 && counters->flushed_age > 0);
    check_records(ring, counters, 0);
    assert_true(weft_shard_counters(b.c.shard[SHARD])->direct_proc_ns > 0);
    bench_close(&b);
    weft_rpc_record_ring_free(ring);
}

/* The shard does not answer, and more sums have their number of pushes than may be in flight, when
 * the connection to it ends. */
static void recorded_unsent(void **state)
{
    (void)state;
    enum { UNSENT = 2 * OPS - WEFT_AGGREGATE_SLOTS };
    struct bench b;
    struct weft_rpc_record_ring *ring;
    via_timeout_ns = WEFT_NS_PER_S; /* the aggregator is slow but alive */
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    assert_int_equal(weft_rpc_record_ring_new(RECORDS, &ring), WEFT_OK);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = OPS;
    b.box[0].config.count_max = 2;
    b.box[0].config.groups_max = UNSENT;
    b.box[0].config.age_ns = WEFT_NS_PER_S;
    b.box[0].config.by_age_asp = true;
    b.box[0].config.records = ring;
    box_again(&b, &b.box[0]);
    for (uint32_t i = 0; i < 4 * OPS; i++) {
        push(&b, i % 4, 0);
    }
    for (uint32_t steps = 0; steps < 2000; steps++) {
        step_without_shard(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->flushed_count, 2 * OPS);
    assert_int_equal(counters->aggregates_out, WEFT_AGGREGATE_SLOTS);
    fake_break(b.c.net, SHARD, b.box[0].node);
    wait_all(&b);
    check_sums(&b);
    check_records(ring, counters, UNSENT);
    assert_int_equal(records_of(ring, WEFT_RPC_RECORD_AGGREGATE_OUT, records), 2 * OPS);
    bench_close(&b);
    weft_rpc_record_ring_free(ring);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* Ended clocks wait at the aggregator for a worker that has not ended its clock, but only for a
 * short time. If the aggregator dies with them, or a worker's connection to the shard breaks
 * meanwhile, each worker sends CLOCK to the shard itself. */
static void clocks_that_wait(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open(&b, 3, WEFT_TABLE_BSP, 5);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.age_ns = WEFT_NS_PER_S;
    box_again(&b, &b.box[0]);
    /* until workers reconnect to the aggregator */
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    for (uint32_t w = 0; w < 2; w++) { /* the third ends its clock later */
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    while (counters->clocks_in < 2) {
        bench_step(&b);
    }
    assert_int_equal(counters->clocks_out, 0);
    for (uint32_t steps = 0; steps < 500; steps++) {
        bench_step(&b);
    }
    assert_int_equal(counters->clocks_out, 1); /* sent because of their age */
    assert_int_equal(shard->clocks, 2);
    assert_int_equal(weft_ps_clock(b.c.client[2], 0, b.c.net->now_ns), WEFT_OK);
    bench_quiet(&b);
    assert_int_equal(shard->clocks, 3);
    assert_int_equal(shard->aggregate_clocks, 3);
    /* The aggregator dies with the clocks. */
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    while (counters->clocks_in < 5) {
        bench_step(&b);
    }
    box_kill(&b, &b.box[0]);
    assert_int_equal(weft_ps_clock(b.c.client[2], 0, b.c.net->now_ns), WEFT_OK);
    bench_quiet(&b);
    assert_int_equal(shard->clocks, 6);
    assert_int_equal(shard->aggregate_clocks, 3);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_clocks_direct, 1);
    box_start(&b, &b.box[0]);
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    /* A worker's connection to the shard breaks. The aggregator's clock of this worker then belongs
     * to an old session. */
    counters = weft_aggregator_counters(b.box[0].agg);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    while (counters->clocks_in < 2) {
        bench_step(&b);
    }
    fake_break(b.c.net, SHARD, 1);
    bench_quiet(&b);
    assert_int_equal(weft_ps_clock(b.c.client[2], 0, b.c.net->now_ns), WEFT_OK);
    for (uint32_t steps = 0; steps < 500; steps++) {
        bench_step(&b);
    }
    assert_int_equal(shard->clocks, 9);
    for (uint32_t w = 0; w < 3; w++) {
        assert_false(weft_ps_client_busy(b.c.client[w]));
        assert_int_equal(weft_ps_clock_now(b.c.client[w], 0), 3);
    }
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* A worker's timeout for an aggregator follows the reply times of the current process, not those of
 * the previous one. */
static void a_new_process_is_not_slow(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = 400 * WEFT_NS_PER_MS;
    bench_open(&b, 2, WEFT_TABLE_ASP, 5);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.count_max = 0;
    b.box[0].config.age_ns = 300 * WEFT_NS_PER_MS;
    b.box[0].config.by_age_asp = true;
    box_again(&b, &b.box[0]);
    /* until workers reconnect to the aggregator */
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    push(&b, 0, 0);
    wait_all(&b);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_committed, 1);
    b.box[0].config.age_ns = 100 * WEFT_NS_PER_S;
    box_again(&b, &b.box[0]);
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    push(&b, 0, 0);
    const uint64_t begin_ns = b.c.net->now_ns;
    wait_all(&b);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_direct, 1);
    assert_true(b.c.net->now_ns - begin_ns < 600 * WEFT_NS_PER_MS);
    check_sums(&b);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* Grants define the members of a sum: it is sent when these have arrived, even if other workers
 * have the table open. The shard counts one update per member. */
static void granted_sums(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    has_scheduler = true;
    bench_open(&b, 4, WEFT_TABLE_ASP, 7);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 2;
    b.box[0].config.groups_max = 3;
    b.box[0].config.count_max = 0;
    b.box[0].config.sum_age_ns = 100 * WEFT_NS_PER_MS;
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    box_start(&b, &b.box[0]);
    b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(&b);
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_vias_open(b.c.client[w]), 1);
        push(&b, w, 0);
    }
    end_clock(&b);
    grant(&b, 0, 5, 2);
    grant(&b, 1, 0, 0);
    bench_quiet(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(counters->pushes_in, 1); /* waits for the other member */
    assert_int_equal(counters->aggregates_out, 0);
    assert_int_equal(shard->pushes, 1);
    grant(&b, 2, 6, 3); /* of another sum whose other members never arrive: it is sent because of
                         * its age */
    grant(&b, 3, 5, 2);
    assert_int_equal(update_over(&b, 3), 2);
    assert_int_equal(counters->aggregates_out, 1);
    assert_int_equal(counters->flushed_complete, 1);
    assert_int_equal(shard->aggregate_pushes, 2);
    assert_int_equal(update_over(&b, 0), 2);
    assert_int_equal(update_over(&b, 1), 1);
    assert_int_equal(update_over(&b, 2), 2);
    assert_int_equal(counters->flushed_age, 1);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(shard->updates_opened, 4);
    assert_int_equal(shard->updates_closed, 4);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(shard->pushes, 4);
    /* The aggregator dies with an update: the worker sends it to the shard as an ordinary
     * update. */
    push(&b, 0, 0);
    end_clock(&b);
    grant(&b, 0, 7, 2);
    bench_quiet(&b);
    box_kill(&b, &b.box[0]);
    (void)update_over(&b, 0);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(shard->updates_opened, 5);
    assert_int_equal(shard->updates_closed, 5);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_direct, 1);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
}

/* A step of a slow network: one datagram in 60 ms. */
static void slow_step(struct bench *b, bool is_frozen)
{
    (void)cluster_step(&b->c);
    if (!is_frozen) {
        box_poll(b);
    }
    cluster_poll(&b->c);
    connect_all(b);
    b->c.net->now_ns += 60 * WEFT_NS_PER_MS;
}

static void push_all(struct bench *b, uint32_t w);

/* Grant a push of all rows, and wait until it has arrived at the aggregator. */
static void push_slowly_of(struct bench *b, uint32_t w, uint32_t group, uint32_t members)
{
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b->box[0].agg);
    const uint64_t before = counters->pushes_in;
    push_all(b, w);
    assert_int_equal(weft_ps_clock(b->c.client[w], 0, b->c.net->now_ns), WEFT_OK);
    grant(b, w, group, members);
    for (uint32_t steps = 0; counters->pushes_in == before; steps++) {
        assert_true(steps < 1000);
        slow_step(b, false);
    }
}

static void push_slowly(struct bench *b, uint32_t w, uint32_t group)
{
    push_slowly_of(b, w, group, 2);
}

static void slow_open(struct bench *b, uint64_t timeout_ns, uint64_t sum_age_ns)
{
    via_timeout_ns = timeout_ns;
    has_scheduler = true;
    bench_open(b, 2, WEFT_TABLE_ASP, 7);
    b->box[0].config.push_bytes_max = 4096;
    b->box[0].config.push_slots = 2;
    b->box[0].config.count_max = 0;
    b->box[0].config.sum_age_ns = sum_age_ns;
    box_again(b, &b->box[0]);
    b->c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(b);
    b->c.net->packet_bytes = 200;
}

static void slow_close(struct bench *b)
{
    check_sums(b);
    bench_close(b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
}

/* The second member of a sum arrives in much more time than the age limit after the first one. */
static void slow_members_make_one_sum(void **state)
{
    (void)state;
    struct bench b;
    slow_open(&b, 100 * WEFT_NS_PER_S, 50 * WEFT_NS_PER_MS);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    push_slowly(&b, 0, 5);
    const uint64_t born_ns = b.c.net->now_ns;
    push_slowly(&b, 1, 5);
    assert_true(b.c.net->now_ns - born_ns >= 200 * WEFT_NS_PER_MS);
    for (uint32_t w = 0; w < 2; w++) {
        (void)update_over(&b, w);
        wait_op(&b, w, 0);
    }
    assert_int_equal(counters->flushed_complete, 1);
    assert_int_equal(counters->flushed_age, 0);
    slow_close(&b);
}

/* A worker waits for an aggregator that answers probes, several times as long as its push took to
 * be sent. It does not wait for a frozen one. */
static void slow_sums_are_waited_for(void **state)
{
    (void)state;
    struct bench b;
    slow_open(&b, WEFT_NS_PER_S, 100 * WEFT_NS_PER_S);
    const struct weft_ps_client_counters *first = weft_ps_client_counters(b.c.client[0]);
    const uint64_t downs = first->via_downs;
    push_slowly(&b, 0, 5);
    for (uint32_t steps = 0; steps < 2500 / 60; steps++) {
        slow_step(&b, false);
    }
    assert_int_equal(first->via_downs, downs);
    push_slowly(&b, 1, 5);
    for (uint32_t w = 0; w < 2; w++) {
        (void)update_over(&b, w);
        wait_op(&b, w, 0);
    }
    assert_int_equal(first->via_committed, 1);
    bench_quiet(&b);
    push_slowly(&b, 0, 6);
    const uint64_t frozen_ns = b.c.net->now_ns;
    while (first->via_downs == downs) {
        slow_step(&b, true);
        assert_true(b.c.net->now_ns - frozen_ns < 1500 * WEFT_NS_PER_MS);
    }
    (void)update_over(&b, 0);
    wait_op(&b, 0, 0);
    assert_int_equal(first->via_direct, 1);
    slow_close(&b);
}

/* With more members a sum may wait longer: as if they arrived one after the other. */
static void large_sums_are_waited_for(void **state)
{
    (void)state;
    enum { MEMBERS = 32 };
    struct bench b;
    slow_open(&b, WEFT_NS_PER_S, 100 * WEFT_NS_PER_S);
    const struct weft_ps_client_counters *first = weft_ps_client_counters(b.c.client[0]);
    const uint64_t downs = first->via_downs, begun_ns = b.c.net->now_ns;
    push_slowly_of(&b, 0, 5, MEMBERS);
    const uint64_t upload_ns = b.c.net->now_ns - begun_ns;
    while (b.c.net->now_ns - begun_ns < MEMBERS / 2 * upload_ns) {
        slow_step(&b, false);
    }
    assert_int_equal(first->via_downs, downs);
    box_kill(&b, &b.box[0]);
    (void)update_over(&b, 0);
    wait_op(&b, 0, 0);
    assert_int_equal(first->via_direct, 1);
    slow_close(&b);
}

/* The transport of the aggregator has no room for replies to TABLE: they are sent later. */
static void table_replies_are_retried(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2, WEFT_TABLE_ASP, 7);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    box_start(&b, &b.box[0]);
    const uint32_t room = b.c.net->msgs_max;
    for (uint32_t i = 0; i < 50; i++) {
        b.c.net->msgs_max = room;
        (void)cluster_step(&b.c);
        b.c.net->msgs_max = 0;
        box_poll(&b);
        cluster_poll(&b.c);
        connect_all(&b);
    }
    assert_int_equal(weft_ps_client_vias_open(b.c.client[0]), 0);
    b.c.net->msgs_max = room;
    bench_quiet(&b);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_client_vias_open(b.c.client[w]), 1);
        push(&b, w, 0);
    }
    wait_all(&b);
    check_sums(&b);
    bench_close(&b);
}

/* By default an aggregator takes the push of the default mlp of `weft train` with the data set
 * Adult, and the longest push of a program (ROWS_PER_RPC_MAX rows of 64 floats, as many bytes of
 * longer ones). */
static void long_pushes_fit(void **state)
{
    (void)state;
    struct weft_aggregator_config config;
    weft_aggregator_config_default(&config);
    for (uint32_t dim = 1; dim <= WEFT_RPC_BLOCK_FLOATS; dim++) {
        const uint32_t row_bytes = 8 + 4 * dim;
        const uint32_t rows = (uint32_t)weft_min_u64(16384, 16384 * 264 / row_bytes);
        assert_true(config.push_bytes_max / row_bytes >= rows);
        assert_true(weft_aggregate_rows_max(dim) >= rows);
    }
    assert_true(config.push_bytes_max / (8 + 4 * 144) >= 7698);
    assert_true(weft_aggregate_rows_max(144) >= 7698);
}

/* A push with more rows than a sum can have is sent to the shard, also with a grant for a sum. No
 * aggregator is reported as usable then, so that no sums are planned; a shorter update ends
 * that. */
static void too_long_for_a_sum(void **state)
{
    (void)state;
    enum { LONG_DIM = 256, LONG_ROWS = 9000 };
    static uint64_t ids[LONG_ROWS];
    float *rows = calloc((size_t)LONG_ROWS * LONG_DIM, sizeof(*rows));
    struct bench b = {.mode = WEFT_TABLE_ASP, .boxes = 1};
    struct cluster_config config = cluster_config(1, 1);
    assert_non_null(rows);
    assert_true(weft_aggregate_rows_max(LONG_DIM) < LONG_ROWS);
    weft_prng_init(&b.prng, 7);
    config.incarnation = 100;
    config.shard.aggregators_max = 1;
    config.shard.chunks_max = 256;
    config.shard.dim_max = config.client.dim_max = LONG_DIM;
    config.client.reconnect_ns = WEFT_NS_PER_S;
    config.client.via_timeout_ns = WEFT_NS_PER_S;
    config.client.update_bytes_min = 1;
    config.client.ops_max = 2;
    config.client.rows_per_op_max = config.client.rows_per_rpc_max = LONG_ROWS;
    cluster_start(&b.c, &config, 1, 7);
    b.c.net->packet_bytes = 20000; /* a row is one block */
    b.box[0].node = 2;
    box_draw(&b, &b.box[0], 1);
    box_start(&b, &b.box[0]);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
    spec.dim = LONG_DIM;
    assert_int_equal(weft_ps_table_open(b.c.client[0], &spec, 0, &b.workers[0].op[0]), WEFT_OK);
    b.workers[0].busy[0] = true;
    wait_op(&b, 0, 0);
    bench_quiet(&b);
    for (uint64_t i = 0; i < LONG_ROWS; i++) {
        ids[i] = i;
    }
    for (uint32_t i = 0; i < 2; i++) { /* a short one, then a long one */
        const uint32_t n = i == 0 ? 10 : LONG_ROWS;
        assert_int_equal(weft_ps_client_vias_open(b.c.client[0]), 1);
        assert_int_equal(weft_ps_push(b.c.client[0], 0, ids, rows, n, 0, b.c.net->now_ns,
                                      &b.workers[0].op[i]),
                         WEFT_OK);
        assert_int_equal(weft_ps_clock(b.c.client[0], 0, b.c.net->now_ns), WEFT_OK);
        if (i == 1) {
            assert_int_equal(weft_ps_client_vias_open(b.c.client[0]), 0);
        }
        grant(&b, 0, 5, 1);
        if (i == 0) {
            (void)update_over(&b, 0);
        }
    }
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_pushes, 1);
    bool is_direct = false;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        const struct fake_message *m = &b.c.net->messages[i];
        is_direct |= m->live && m->to == SHARD && m->send.total > LONG_ROWS;
    }
    assert_true(is_direct);
    bench_close(&b);
    free(rows);
}

/* Worker 0 is a clock ahead of worker 1: their updates still form one sum, because the grants say
 * so. */
static void sums_of_several_clocks(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    has_scheduler = true;
    bench_open(&b, 2, WEFT_TABLE_ASP, 7);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 2;
    b.box[0].config.count_max = 0;
    b.box[0].config.sum_age_ns = 100 * WEFT_NS_PER_S;
    box_again(&b, &b.box[0]);
    b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(&b);
    push(&b, 0, 0);
    assert_int_equal(weft_ps_clock(b.c.client[0], 0, b.c.net->now_ns), WEFT_OK);
    grant(&b, 0, 0, 0);
    assert_int_equal(update_over(&b, 0), 1);
    bench_quiet(&b);
    push(&b, 0, 0);
    push(&b, 1, 0);
    end_clock(&b);
    assert_int_equal(weft_ps_clock_now(b.c.client[0], 0), 2);
    assert_int_equal(weft_ps_clock_now(b.c.client[1], 0), 1);
    grant(&b, 1, 5, 2);
    grant(&b, 0, 5, 2);
    (void)update_over(&b, 0);
    (void)update_over(&b, 1);
    wait_all(&b);
    check_sums(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(counters->aggregates_out, 1);
    assert_int_equal(counters->flushed_complete, 1);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(shard->aggregate_pushes, 2);
    assert_int_equal(shard->pushes, 3);
    assert_int_equal(shard->updates_opened, 3);
    assert_int_equal(shard->updates_closed, 3);
    assert_int_equal(weft_shard_clock(b.c.shard[SHARD], 0), 1);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
}

static void push_constant(struct bench *b, uint32_t w, uint64_t id, float value)
{
    struct worker *worker = &b->workers[w];
    float row[DIM];
    for (uint32_t k = 0; k < DIM; k++) {
        row[k] = value;
    }
    assert_false(worker->busy[0]);
    assert_int_equal(weft_ps_push(b->c.client[w], 0, &id, row, 1, 0, b->c.net->now_ns,
                                  &worker->op[0]),
                     WEFT_OK);
    worker->busy[0] = true;
}

/* Grant a push of a worker alone, or of both as one sum, `first` before the other; wait for it. */
static void granted(struct bench *b, uint32_t group, uint32_t first, bool both)
{
    for (uint32_t i = 0; i < 1U + both; i++) {
        const uint32_t w = i == 0 ? first : 1 - first;
        assert_int_equal(weft_ps_clock(b->c.client[w], 0, b->c.net->now_ns), WEFT_OK);
        grant(b, w, group, 1 + both);
        bench_quiet(b);
    }
    for (uint32_t i = 0; i < 1U + both; i++) {
        const uint32_t w = i == 0 ? first : 1 - first;
        (void)update_over(b, w);
        wait_op(b, w, 0);
    }
    bench_quiet(b);
}

/* AdaDelay: worker 0 is in clock 4, worker 1 in clock 1. Each gradient in their sum has its own
 * weight, sqrt(4 / 7) for the late one, so the step is that of Adagrad with the weighted sum. If
 * the late one is first, the aggregator knows clock 3 only, from the shard's reply to an earlier
 * sum: it changes the weight from sqrt(3 / 5) when the other joins. */
static void each_member_has_its_weight(void **state)
{
    (void)state;
    via_timeout_ns = WEFT_NS_PER_S;
    has_scheduler = true;
    optimizer = WEFT_OPTIMIZER_ADADELAY;
    for (uint32_t first = 0; first < 2; first++) {
        struct bench b;
        float weights[DIM];
        bench_open(&b, 2, WEFT_TABLE_ASP, 7);
        b.box[0].config.push_bytes_max = 4096;
        b.box[0].config.push_slots = 2;
        b.box[0].config.count_max = 0;
        b.box[0].config.sum_age_ns = 100 * WEFT_NS_PER_S;
        box_again(&b, &b.box[0]);
        b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
        bench_quiet(&b);
        for (uint32_t clock = 1; clock <= 3; clock++) {
            push_constant(&b, 0, 2, 1);
            granted(&b, clock, 0, false);
        }
        push_constant(&b, 0, 1, 1);
        push_constant(&b, 1, 1, 3);
        granted(&b, 9, first, true);
        (void)weft_table_read(weft_shard_table(b.c.shard[SHARD], 0), 1, weights);
        const double sum = 1 + 3 * sqrt(4. / 7);
        assert_true(fabs((double)weights[DIM - 1] - sum / sqrt(1 + sum * sum)) < 1e-6);
        const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
        assert_int_equal(counters->pushes_absorbed, 5);
        assert_int_equal(counters->aggregates_out, 4);
        bench_close(&b);
    }
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
    optimizer = WEFT_OPTIMIZER_SGD;
}

enum { PIECES = 4 };

static void cut_open_into(struct bench *b, uint64_t seed, uint32_t count)
{
    via_timeout_ns = WEFT_NS_PER_S;
    has_scheduler = true;
    pieces = count;
    bench_open(b, 2, WEFT_TABLE_ASP, seed);
    b->box[0].config.push_bytes_max = 4096;
    b->box[0].config.push_slots = 4;
    b->box[0].config.groups_max = PIECES;
    b->box[0].config.count_max = 0;
    b->box[0].config.sum_age_ns = 100 * WEFT_NS_PER_S;
    box_again(b, &b->box[0]);
    b->c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(b);
}

static void cut_open(struct bench *b, uint64_t seed)
{
    cut_open_into(b, seed, PIECES);
}

static void cut_close(struct bench *b)
{
    bench_close(b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
    pieces = 0;
}

/* Push all ids, with other gradients for each worker. */
static void push_all(struct bench *b, uint32_t w)
{
    struct worker *worker = &b->workers[w];
    uint64_t ids[IDS];
    float rows[IDS][DIM];
    for (uint64_t id = 0; id < IDS; id++) {
        ids[id] = id;
        for (uint32_t k = 0; k < DIM; k++) {
            rows[id][k] = (float)(1 + w + id % 7 + k);
            b->want[id][k] += rows[id][k];
            b->sums[w][id][k] += rows[id][k];
        }
    }
    assert_false(worker->busy[0]);
    assert_int_equal(
        weft_ps_push(b->c.client[w], 0, ids, &rows[0][0], IDS, 0, b->c.net->now_ns, &worker->op[0]),
        WEFT_OK);
    worker->busy[0] = true;
}

/* Cut-through: the sum of a piece is forwarded when all members' pushes of that piece have arrived,
 * while later pieces still arrive. The update is one update, and over when all pieces are. */
static void pieces_are_forwarded_early(void **state)
{
    (void)state;
    struct bench b;
    cut_open(&b, 7);
    push_all(&b, 0);
    push_all(&b, 1);
    end_clock(&b);
    grant(&b, 0, 5, 2);
    bench_quiet(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(counters->pushes_in, PIECES);
    assert_int_equal(counters->aggregates_out, 0);
    grant(&b, 1, 5, 2);
    for (uint32_t steps = 0; shard->aggregates == 0; steps++) {
        assert_true(steps < 10000);
        bench_step(&b);
    }
    assert_true(counters->pushes_in < 2 * PIECES);
    assert_int_equal(shard->updates_closed, 0);
    (void)update_over(&b, 0);
    (void)update_over(&b, 1);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters->aggregates_out, PIECES);
    assert_int_equal(counters->flushed_complete, PIECES);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(shard->aggregate_pushes, 2 * PIECES);
    assert_int_equal(shard->updates_opened, 2);
    assert_int_equal(shard->updates_closed, 2);
    cut_close(&b);
}

/* By default the sums of an update of 8 parts, of which each has a sum of its own, stay open until
 * the second member arrives. */
static void many_sums_are_open(void **state)
{
    (void)state;
    enum { MANY = 8 };
    struct bench b;
    struct weft_aggregator_config config;
    weft_aggregator_config_default(&config);
    cut_open_into(&b, 7, MANY);
    b.box[0].config.groups_max = config.groups_max;
    box_again(&b, &b.box[0]);
    b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(&b);
    push_all(&b, 0);
    push_all(&b, 1);
    end_clock(&b);
    grant(&b, 0, 5, 2);
    bench_quiet(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pushes_in, MANY);
    assert_int_equal(counters->aggregates_out, 0);
    grant(&b, 1, 5, 2);
    (void)update_over(&b, 0);
    (void)update_over(&b, 1);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters->flushed_complete, MANY);
    assert_int_equal(counters->aggregates_out, MANY);
    cut_close(&b);
}

/* Without an aggregator an update is not cut. An aggregator has room for 4 sums of 32 pieces. */
static void not_cut_without_an_aggregator(void **state)
{
    (void)state;
    struct bench b;
    cut_open(&b, 7);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    push_all(&b, 0);
    end_clock(&b);
    grant(&b, 0, 0, 0);
    (void)update_over(&b, 0);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->pushes, 1);
    b.box[0].config.groups_max = 4 * WEFT_PS_PIECES_MAX;
    box_again(&b, &b.box[0]);
    cut_close(&b);
}

/* The aggregator dies when the shard has some pieces of a sum: those count, and the members send
 * the others themselves. None counts twice. */
static void pieces_count_once(void **state)
{
    (void)state;
    uint32_t partly = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct bench b;
        cut_open(&b, seed);
        const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
        push_all(&b, 0);
        push_all(&b, 1);
        end_clock(&b);
        grant(&b, 0, 5, 2);
        grant(&b, 1, 5, 2);
        for (uint64_t steps = 5 * seed; steps > 0; steps--) {
            bench_step(&b);
        }
        box_kill(&b, &b.box[0]);
        const uint64_t summed = shard->aggregate_pushes;
        partly += summed > 0 && summed < 2 * PIECES;
        (void)update_over(&b, 0);
        (void)update_over(&b, 1);
        wait_all(&b);
        check_sums(&b);
        assert_int_equal(shard->updates_opened, 2);
        assert_int_equal(shard->updates_closed, 2);
        cut_close(&b);
    }
    assert_true(partly >= 5);
}

/* A push of too many rows for one message is several, cut or not. Each of them is in a sum of its
 * own, which is sent when it has those of all members; none waits for its age. */
static void each_part_has_a_sum(void **state)
{
    (void)state;
    enum { ROWS_MAX = 20, PARTS = IDS / ROWS_MAX };
    for (uint32_t cuts = 0; cuts < 2; cuts++) {
        struct bench b;
        cut_open_into(&b, 7, cuts == 0 ? 0 : 2);
        const uint32_t parts = cuts == 0 ? PARTS : 2 * 2;
        for (uint32_t w = 0; w < 2; w++) {
            b.c.client[w]->config.rows_per_rpc_max = ROWS_MAX;
        }
        push_all(&b, 0);
        push_all(&b, 1);
        end_clock(&b);
        grant(&b, 0, 5, 2);
        bench_quiet(&b);
        const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
        assert_int_equal(counters->pushes_in, parts);
        assert_int_equal(counters->aggregates_out, 0);
        grant(&b, 1, 5, 2);
        bench_quiet(&b);
        assert_int_equal(counters->pushes_in, 2 * parts);
        assert_int_equal(counters->flushed_complete, parts);
        assert_int_equal(counters->pushes_absorbed, 2 * parts);
        (void)update_over(&b, 0);
        (void)update_over(&b, 1);
        wait_all(&b);
        check_sums(&b);
        cut_close(&b);
    }
}

/* Workers that cut into 4 and 2 pieces, and one that does not, and an aggregator with room for two
 * open groups, as if it had not been told of pieces: each gradient counts once, in sums that are
 * sent because of their age or for lack of memory. */
static void cut_differently(void **state)
{
    (void)state;
    enum { WORKERS = 3 };
    static const uint32_t cuts[WORKERS] = {PIECES, 2, 1};
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    has_scheduler = true;
    pieces = PIECES;
    bench_open(&b, WORKERS, WEFT_TABLE_ASP, 7);
    b.box[0].config.push_bytes_max = 4096;
    b.box[0].config.push_slots = 4;
    b.box[0].config.groups_max = 2;
    b.box[0].config.count_max = 0;
    b.box[0].config.sum_age_ns = WEFT_NS_PER_MS;
    box_again(&b, &b.box[0]);
    b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(&b);
    for (uint32_t w = 0; w < WORKERS; w++) {
        b.c.client[w]->config.pieces = cuts[w];
    }
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            push_all(&b, w);
        }
        end_clock(&b);
        for (uint32_t w = 0; w < WORKERS; w++) {
            grant(&b, w, 5 + round, WORKERS);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            (void)update_over(&b, w);
        }
        wait_all(&b);
        check_sums(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(counters->pushes_absorbed, 5 * (PIECES + 2 + 1));
    assert_int_equal(counters->pushes_direct, 0);
    assert_true(counters->flushed_age > 0 && counters->flushed_memory > 0);
    assert_int_equal(shard->updates_opened, 5 * WORKERS);
    assert_int_equal(shard->updates_closed, 5 * WORKERS);
    cut_close(&b);
}

/* BSP: rows that all workers pull are fetched once per clock, and the shard answers one pull. */
static void asked_once(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_BSP, 5);
    b.box[0].config.pull_slots = 4;
    b.box[0].config.pull_rows_max = 100;
    b.box[0].config.cache_bytes = 1 << 20;
    b.box[0].config.push_bytes_max = 4096;
    box_again(&b, &b.box[0]);
    struct pull pull[4];
    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            pull_start(&b, w, &pull[w], 10 * w);
        }
        for (uint32_t w = 0; w < 4; w++) {
            pull_check(&b, w, &pull[w]);
        }
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
        }
        end_clock(&b);
        wait_all(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pulls_in, 32);
    assert_int_equal(counters->pulls_answered, 32);
    assert_int_equal(counters->pulls_direct, 0);
    assert_int_equal(counters->pull_rows_in, 32 * PULL_IDS);
    assert_int_equal(counters->pull_rows_fetched, 8 * (PULL_IDS + 3 * 10));
    assert_int_equal(counters->pull_rows_in, counters->pull_rows_fetched +
                                                 counters->pull_rows_cached +
                                                 counters->pull_rows_shared);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->rows_pulled, counters->pull_rows_fetched);
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_pulls, 8);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_answered, 8);
    }
    bench_close(&b);
}

/* A bench whose aggregator answers pulls and caches rows. */
static void bench_open_pulls(struct bench *b, uint32_t workers, uint8_t mode)
{
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open(b, workers, mode, 5);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    b->box[0].config.pull_slots = 4;
    b->box[0].config.pull_rows_max = 100;
    b->box[0].config.cache_bytes = 1 << 20;
    b->box[0].config.pull_age_ns = 1000000 * WEFT_NS_PER_S;
    b->box[0].config.pull_patience_ns = WEFT_NS_PER_S / 2;
    b->box[0].config.push_bytes_max = 4096;
    b->box[0].config.push_slots = 2;
    b->box[0].config.count_max = 1;
    box_kill(b, &b->box[0]);
    bench_quiet(b);
    box_start(b, &b->box[0]);
    /* until workers reconnect to the aggregator */
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(b);
    }
    bench_quiet(b);
}

/* An aggregator that requests rows is an active connection, not an active worker. */
static void a_fetch_is_of_no_worker(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull;
    bench_open_pulls(&b, 2, WEFT_TABLE_ASP);
    push(&b, 0, 0);
    wait_all(&b);
    weft_shard_records_end(b.c.shard[SHARD]);
    const struct weft_shard_counters before = *weft_shard_counters(b.c.shard[SHARD]);
    pull_start(&b, 1, &pull, 0);
    pull_check(&b, 1, &pull);
    weft_shard_records_end(b.c.shard[SHARD]);
    const struct weft_shard_counters *after = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(weft_aggregator_counters(b.box[0].agg)->pulls_answered, 1);
    assert_int_equal(after->active_windows - before.active_windows, 1);
    assert_int_equal(after->active_connections - before.active_connections, 1);
    assert_int_equal(after->active_workers - before.active_workers, 0);
    bench_close(&b);
}

static struct fake_message *to_box(struct bench *b)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &b->c.net->messages[i];
        if (m->live && m->from == SHARD && m->to == b->box[0].node) {
            return m;
        }
    }
    return NULL;
}

/* The shard's reply to a fetch waits for the transport while a clock ends. Its rows have the old
 * version and the reply must say so; otherwise the aggregator would serve them as the new
 * version. */
static void an_answer_waits(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull[2], after;
    bench_open_pulls(&b, 2, WEFT_TABLE_BSP);
    for (uint32_t w = 0; w < 2; w++) {
        push(&b, w, 0);
    }
    for (uint32_t w = 0; w < 2; w++) {
        for (uint32_t i = 0; i < OPS; i++) {
            wait_op(&b, w, i);
        }
    }
    pull_start(&b, 0, &pull[0], 0);
    for (uint32_t steps = 0; to_box(&b) == NULL; steps++) {
        assert_true(steps < 1000);
        bench_step(&b);
    }
    to_box(&b)->held = true; /* while it is held no other message fits */
    const uint32_t most = b.c.net->msgs_max;
    b.c.net->msgs_max = 1;
    pull_start(&b, 1, &pull[1], PULL_IDS);
    for (uint32_t steps = 0; steps < 100; steps++) {
        bench_step(&b);
    }
    end_clock(&b);
    for (uint32_t steps = 0; steps < 200; steps++) {
        bench_step(&b);
    }
    assert_int_equal(weft_shard_clock(b.c.shard[SHARD], 0), 1);
    to_box(&b)->held = false;
    b.c.net->msgs_max = most;
    for (uint32_t w = 0; w < 2; w++) {
        pull_check(&b, w, &pull[w]);
    }
    assert_int_equal(weft_aggregator_counters(b.box[0].agg)->pulls_answered, 2);
    pull_start(&b, 0, &after, PULL_IDS);
    pull_check(&b, 0, &after);
    assert_int_equal(weft_aggregator_counters(b.box[0].agg)->pulls_answered, 3);
    bench_close(&b);
}

/* The shard restarts without state: the aggregator serves no row of the previous process. */
static void rows_of_another_process(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull;
    bench_open_pulls(&b, 2, WEFT_TABLE_ASP);
    push(&b, 0, 0);
    wait_all(&b);
    pull_start(&b, 0, &pull, 0);
    pull_check(&b, 0, &pull);
    pull_start(&b, 1, &pull, 0);
    pull_check(&b, 1, &pull);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(counters->pulls_answered, 2);
    assert_int_equal(counters->fetches_out, 1);
    fake_kill(b.c.net, SHARD);
    cluster_poll(&b.c);
    box_poll(&b);
    cluster_shard_free(&b.c, SHARD);
    fake_revive(b.c.net, SHARD);
    b.c.net->nodes[SHARD].incarnation += 1000;
    b.c.shard[SHARD] = cluster_shard_new(&b.c, &b.cluster, SHARD);
    memset(b.want, 0, sizeof(b.want));
    memset(b.sums, 0, sizeof(b.sums));
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    for (uint32_t w = 2; w-- > 0;) { /* first the worker without pushes: it accepts any age */
        pull_start(&b, w, &pull, 0);
        pull_check(&b, w, &pull);
    }
    assert_int_equal(counters->pulls_answered, 4); /* by the aggregator again */
    assert_int_equal(counters->fetches_out, 2);
    bench_close(&b);
}

/* A second aggregator with the number of a connected one is refused and notified; the first one
 * continues. */
static void number_taken(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2, WEFT_TABLE_BSP, 3);
    const uint32_t other = b.box[0].node + 1;
    struct weft_aggregator *second;
    struct weft_msg_event event;
    weft_peer peer;
    bool for_good;
    b.c.net->nodes[other].name = weft_rpc_aggregator_name(SHARD, 0);
    b.c.net->nodes[other].incarnation = 999;
    assert_int_equal(weft_aggregator_new(&b.box[0].config, fake_msgr(b.c.net, other), &second),
                     WEFT_OK);
    weft_aggregator_connect(second, fake_peer(SHARD));
    fake_connect(b.c.net, SHARD, other);
    cluster_poll(&b.c);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->aggregators_refused, 1);
    assert_true(weft_shard_take_replaced(b.c.shard[SHARD], &peer, &for_good));
    assert_true(peer == fake_peer(other) && for_good);
    fake_break(b.c.net, SHARD, other);
    while (fake_poll(&b.c.net->nodes[other], &event)) {
        event.down = event.type == WEFT_EVENT_PEER_DOWN ? WEFT_DOWN_REPLACED : event.down;
        weft_aggregator_event(second, &event, b.c.net->now_ns);
    }
    assert_int_equal(weft_aggregator_counters(second)->shard_refusals, 1);
    assert_true(weft_aggregator_wants_shard(second));
    for (uint32_t w = 0; w < 2; w++) {
        push(&b, w, 0);
    }
    wait_all(&b);
    end_clock(&b);
    wait_all(&b);
    check_sums(&b);
    struct weft_aggregator_gauges gauges;
    weft_aggregator_gauges(b.box[0].agg, &gauges);
    assert_true(gauges.shard_up);
    /* The second one retries. The first has sent a request meanwhile, and then sends none for a
     * second. */
    const uint64_t pauses[] = {0, WEFT_NS_PER_S / 2, WEFT_NS_PER_S};
    for (uint32_t i = 0; i < 3; i++) {
        b.c.net->now_ns += pauses[i];
        weft_aggregator_connect(second, fake_peer(SHARD));
        fake_connect(b.c.net, SHARD, other);
        cluster_poll(&b.c);
        const uint64_t refused = weft_shard_counters(b.c.shard[SHARD])->aggregators_refused;
        assert_int_equal(refused, i < 2 ? i + 2 : 3);
        assert_true(weft_shard_take_replaced(b.c.shard[SHARD], &peer, &for_good) && for_good);
        assert_true(peer == fake_peer(i < 2 ? other : b.box[0].node));
        if (i < 2) {
            fake_break(b.c.net, SHARD, other);
        }
        while (fake_poll(&b.c.net->nodes[other], &event)) {
            weft_aggregator_event(second, &event, b.c.net->now_ns);
        }
    }
    weft_aggregator_gauges(second, &gauges);
    assert_true(gauges.shard_up);
    weft_aggregator_free(second);
    bench_close(&b);
}

/* Loss on the way to the aggregator counts as lost; no data is lost between aggregator and
 * shard. */
static void loss(void **state)
{
    (void)state;
    uint64_t lost = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct bench b;
        uint64_t sent = 0, got = 0;
        bench_open(&b, 3, WEFT_TABLE_ASP, seed);
        b.c.net->loss_ppm = 400000;
        for (uint32_t round = 0; round < 5; round++) {
            for (uint32_t w = 0; w < 3; w++) {
                push(&b, w, 500000);
            }
        }
        wait_all(&b);
        for (uint32_t w = 0; w < 3; w++) {
            sent += weft_ps_client_counters(b.c.client[w])->push.elements_sent;
            got += weft_ps_client_counters(b.c.client[w])->push.elements_delivered;
        }
        const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
        uint64_t resent = weft_aggregator_counters(b.box[0].agg)->pushes_direct;
        if (resent == 0) {
            assert_int_equal(shard->elements_applied, got);
            lost += sent - got;
        }
        bench_close(&b);
    }
    assert_true(lost > 0);
}

static void one_job(uint64_t seed, struct weft_shard_counters *sum,
                    struct weft_ps_client_counters *workers)
{
    struct bench b;
    struct weft_prng prng;
    weft_prng_init(&prng, seed * 77);
    const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    bench_open(&b, 2 + (uint32_t)weft_prng_below(&prng, WORKERS_MAX - 1),
               modes[weft_prng_below(&prng, 3)], seed);
    random_job(&b, (uint32_t)weft_prng_below(&prng, 8));
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    sum->aggregates += shard->aggregates;
    sum->aggregates_refused += shard->aggregates_refused;
    sum->aggregate_pushes += shard->aggregate_pushes;
    sum->pushes += shard->pushes;
    for (uint32_t w = 0; w < b.c.workers; w++) {
        workers->via_answered += weft_ps_client_counters(b.c.client[w])->via_answered;
        workers->via_pulls_direct += weft_ps_client_counters(b.c.client[w])->via_pulls_direct;
        workers->via_clocks_taken += weft_ps_client_counters(b.c.client[w])->via_clocks_taken;
        workers->via_clocks_direct += weft_ps_client_counters(b.c.client[w])->via_clocks_direct;
    }
    bench_close(&b);
}

static void whatever_happens(void **state)
{
    (void)state;
    const struct seeds seeds = seeds_of(SEEDS);
    struct weft_shard_counters sum = {0};
    struct weft_ps_client_counters workers = {0};
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        one_job(seed, &sum, &workers);
    }
    print_message("%llu aggregates of %llu pushes, %llu refused; %llu pushes in all\n",
                  (unsigned long long)sum.aggregates, (unsigned long long)sum.aggregate_pushes,
                  (unsigned long long)sum.aggregates_refused, (unsigned long long)sum.pushes);
    print_message("%llu pulls answered by the aggregator, %llu sent on to the shard\n",
                  (unsigned long long)workers.via_answered,
                  (unsigned long long)workers.via_pulls_direct);
    print_message("%llu clocks told by the aggregator, %llu by workers after all\n",
                  (unsigned long long)workers.via_clocks_taken,
                  (unsigned long long)workers.via_clocks_direct);
    if (!seeds.is_chosen) { /* the jobs are such that all of this happens */
        assert_true(sum.aggregates > 10 * SEEDS && sum.aggregates_refused > 0);
        assert_true(sum.aggregate_pushes > sum.aggregates);
        assert_true(sum.pushes > sum.aggregate_pushes);
        assert_true(workers.via_answered > 10 * SEEDS && workers.via_pulls_direct > SEEDS);
        assert_true(workers.via_clocks_taken > SEEDS && workers.via_clocks_direct > SEEDS / 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_there),
        cmocka_unit_test(recorded),
        cmocka_unit_test(recorded_direct),
        cmocka_unit_test(recorded_unsent),
        cmocka_unit_test(a_fetch_is_of_no_worker),
        cmocka_unit_test(clocks_that_wait),
        cmocka_unit_test(a_new_process_is_not_slow),
        cmocka_unit_test(granted_sums),
        cmocka_unit_test(slow_members_make_one_sum),
        cmocka_unit_test(slow_sums_are_waited_for),
        cmocka_unit_test(large_sums_are_waited_for),
        cmocka_unit_test(table_replies_are_retried),
        cmocka_unit_test(long_pushes_fit),
        cmocka_unit_test(too_long_for_a_sum),
        cmocka_unit_test(sums_of_several_clocks),
        cmocka_unit_test(each_member_has_its_weight),
        cmocka_unit_test(pieces_are_forwarded_early),
        cmocka_unit_test(many_sums_are_open),
        cmocka_unit_test(not_cut_without_an_aggregator),
        cmocka_unit_test(pieces_count_once),
        cmocka_unit_test(each_part_has_a_sum),
        cmocka_unit_test(cut_differently),
        cmocka_unit_test(by_age),
        cmocka_unit_test(a_busy_shard),
        cmocka_unit_test(asked_once),
        cmocka_unit_test(an_answer_waits),
        cmocka_unit_test(rows_of_another_process),
        cmocka_unit_test(number_taken),
        cmocka_unit_test(loss),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
