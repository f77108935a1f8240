/* Trees of aggregators: each gradient is applied once and no row is too old, whichever process dies
 * at any level. A cycle of aggregators, and two with the same number, are detected, and then cost
 * only a detour. */
#include "ps/id_pack.h"
#include "fewer.h"
#include "ps_boxes.h"

#include <math.h>

#include <math.h>

enum { SEEDS = FEWER(500) };

static const uint32_t two_below_one[] = {SHARD_ABOVE, 0, 0};
static const uint32_t chain[] = {SHARD_ABOVE, 0, 1};

static const struct weft_aggregator_counters *counters_of(const struct bench *b, uint32_t box)
{
    return weft_aggregator_counters(b->box[box].agg);
}

/* Aggregators that accept all requests, and wait for all workers. */
static void patient(struct bench *b)
{
    for (uint32_t i = 0; i < b->boxes; i++) {
        struct weft_aggregator_config *config = &b->box[i].config;
        config->push_bytes_max = 4096;
        config->push_slots = 2;
        config->count_max = 0;
        config->groups_max = 3;
        config->age_ns = WEFT_NS_PER_S;
        config->pull_slots = 4;
        config->pull_rows_max = 100;
        config->cache_bytes = 1 << 20;
        config->pull_patience_ns = WEFT_NS_PER_S / 2;
        box_kill(b, &b->box[i]);
    }
    bench_quiet(b);
    for (uint32_t i = 0; i < b->boxes; i++) {
        box_start(b, &b->box[i]);
    }
    for (uint32_t steps = 0; steps < 100; steps++) {
        bench_step(b);
    }
    bench_quiet(b);
}

static void round_of_pushes(struct bench *b)
{
    for (uint32_t w = 0; w < b->c.workers; w++) {
        push(b, w, 0);
    }
    end_clock(b);
    wait_all(b);
}

/* The root sends one message with all pushes to the shard for each clock. */
static void one_message_a_clock(const uint32_t *above, uint64_t from_children)
{
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 4, WEFT_TABLE_BSP, 5, 3, above);
    patient(&b);
    for (uint32_t round = 0; round < 10; round++) {
        round_of_pushes(&b);
    }
    check_sums(&b);
    assert_int_equal(counters_of(&b, 0)->pushes_in, 40);
    assert_int_equal(counters_of(&b, 0)->pushes_absorbed, 40);
    assert_int_equal(counters_of(&b, 0)->aggregates_in, from_children);
    assert_int_equal(counters_of(&b, 0)->aggregates_out, 10);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 10);
    assert_int_equal(counters_of(&b, 2)->pushes_absorbed, 20);
    assert_true(weft_aggregator_age_ns(b.box[0].agg) == WEFT_NS_PER_S);
    assert_true(weft_aggregator_age_ns(b.box[2].agg) == (above == chain ? 3 : 2) * WEFT_NS_PER_S);
    assert_int_equal(counters_of(&b, 0)->clocks_in, 40);
    assert_int_equal(counters_of(&b, 0)->clocks_passed, 40);
    assert_int_equal(counters_of(&b, 0)->clocks_out, 10);
    assert_int_equal(counters_of(&b, 2)->clocks_passed, 20);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->aggregate_clocks, 40);
    assert_int_equal(shard->aggregates, 10);
    assert_int_equal(shard->aggregate_pushes, 40);
    uint64_t rows = 0;
    for (uint32_t w = 0; w < 4; w++) {
        rows += weft_ps_client_counters(b.c.client[w])->push.elements_sent;
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_committed, 10);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_direct, 0);
    }
    assert_true(shard->aggregate_gradients <= rows); /* each push also has a head */
    assert_true(shard->aggregate_gradients > counters_of(&b, 0)->rows_in);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

static void all_there(void **state)
{
    (void)state;
    one_message_a_clock(two_below_one, 20);
    one_message_a_clock(chain, 10);
}

/* Updates that a plan assigns to one sum are summed at the granted aggregator. At higher levels
 * this sum is treated like any other, also beside pushes with the same number. The shard counts one
 * update per member. */
static void granted_sums(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = 10 * WEFT_NS_PER_S;
    has_scheduler = true;
    bench_open_tree(&b, 4, WEFT_TABLE_ASP, 7, 3, two_below_one);
    patient(&b);
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_vias_open(b.c.client[w]), 1);
        push(&b, w, 0);
    }
    end_clock(&b);
    grant(&b, 0, 5, 2); /* through box 2, like that of worker 3 */
    grant(&b, 2, 5, 2); /* through box 0, where the other member never arrives */
    grant(&b, 1, 6, 2); /* through box 1: the same */
    bench_quiet(&b);
    assert_int_equal(counters_of(&b, 2)->aggregates_out, 0);
    grant(&b, 3, 5, 2);
    bench_quiet(&b);
    assert_int_equal(counters_of(&b, 2)->aggregates_out, 1);
    assert_int_equal(counters_of(&b, 2)->flushed_complete, 1);
    assert_int_equal(counters_of(&b, 0)->aggregates_in, 1);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 0); /* two sums of one rank each */
    for (uint32_t w = 0; w < 4; w++) {
        assert_true(update_over(&b, w) >=
                    1); /* twice, unless the second occurs before the first is polled */
    }
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters_of(&b, 1)->flushed_age, 1);
    assert_true(counters_of(&b, 0)->aggregates_out >= 2);
    assert_int_equal(counters_of(&b, 0)->pushes_direct, 0);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->aggregate_pushes, 4);
    assert_int_equal(shard->pushes, 4);
    assert_int_equal(shard->updates_opened, 4);
    assert_int_equal(shard->updates_closed, 4);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    has_scheduler = false;
}

/* AdaDelay: a late push through two aggregators, which know less of the clocks than the shard: its
 * step is as long as that of a direct push, a = 4 / 7. */
static void a_late_push_has_its_weight(void **state)
{
    (void)state;
    struct bench b;
    const uint64_t late = 1, other = 2;
    float row[DIM], weights[DIM];
    via_timeout_ns = 10 * WEFT_NS_PER_S;
    optimizer = WEFT_OPTIMIZER_ADADELAY;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 7, 2, (const uint32_t[]){SHARD_ABOVE, 0});
    patient(&b);
    for (uint32_t k = 0; k < DIM; k++) {
        row[k] = 3;
    }
    for (uint32_t i = 0; i < 4; i++) { /* worker 1 up to clock 3, then worker 0 for clock 1 */
        struct worker *worker = &b.workers[i < 3];
        assert_int_equal(weft_ps_push(b.c.client[i < 3], 0, i < 3 ? &other : &late, row, 1, 0,
                                      b.c.net->now_ns, &worker->op[0]),
                         WEFT_OK);
        worker->busy[0] = true;
        assert_int_equal(weft_ps_clock(b.c.client[i < 3], 0, b.c.net->now_ns), WEFT_OK);
        wait_op(&b, i < 3, 0);
        bench_quiet(&b);
    }
    (void)weft_table_read(weft_shard_table(b.c.shard[SHARD], 0), late, weights);
    const double sum = 3 * sqrt(4. / 7);
    assert_true(fabs((double)weights[0] - sum / sqrt(1 + sum * sum)) < 1e-6);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->aggregate_pushes, 4);
    assert_int_equal(counters_of(&b, 0)->aggregates_in, 1);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    optimizer = WEFT_OPTIMIZER_SGD;
}

/* Rows that all workers pull are fetched once by each box, and once from the shard. */
static void asked_once(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull[4];
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 4, WEFT_TABLE_BSP, 5, 3, two_below_one);
    patient(&b);
    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            pull_start(&b, w, &pull[w], 0);
        }
        for (uint32_t w = 0; w < 4; w++) {
            pull_check(&b, w, &pull[w]);
        }
        round_of_pushes(&b);
    }
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_answered, 8);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(counters_of(&b, i)->pulls_direct, 0);
        assert_int_equal(counters_of(&b, i)->pull_rows_fetched, 8 * PULL_IDS);
    }
    assert_int_equal(counters_of(&b, 0)->pulls_in, 8 + 2 * 8); /* of its worker and of two boxes */
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->rows_pulled, 8 * PULL_IDS);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* In ASP rows cached by a parent are used, unless they are older than the worker's own push. */
static void own_pushes_are_seen(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull[4];
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 4, WEFT_TABLE_ASP, 6, 3, two_below_one);
    for (uint32_t i = 0; i < 3; i++) {
        b.box[i].config.pull_age_ns = 1000000 * WEFT_NS_PER_S;
    }
    patient(&b);
    for (uint32_t i = 0; i < 3; i++) {
        b.box[i].config.count_max = 1;
    }
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t w = round % 4;
        push(&b, w, 0);
        wait_all(&b);
        for (uint32_t v = 0; v < 4; v++) {
            pull_start(&b, (w + v) % 4, &pull[v], 0);
            pull_check(&b, (w + v) % 4, &pull[v]);
        }
    }
    assert_true(counters_of(&b, 0)->pull_rows_cached > 0);
    assert_true(counters_of(&b, 1)->pull_rows_cached > 0);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* The shard restarts without state: boxes at both levels serve no old row. busy: the transport of
 * the lower boxes refuses messages when they have to notify their parent. */
static void another_process(bool busy)
{
    struct bench b;
    struct pull pull;
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 4, WEFT_TABLE_ASP, 5, 3, two_below_one);
    for (uint32_t i = 0; i < 3; i++) {
        b.box[i].config.pull_age_ns = 1000000 * WEFT_NS_PER_S;
    }
    patient(&b);
    push(&b, 0, 0);
    wait_all(&b);
    for (uint32_t w = 0; w < 4; w++) {
        pull_start(&b, w, &pull, 0);
        pull_check(&b, w, &pull);
    }
    const uint64_t before = counters_of(&b, 2)->pulls_answered;
    assert_true(before > 0);
    fake_kill(b.c.net, SHARD);
    cluster_poll(&b.c);
    box_poll(&b);
    cluster_shard_free(&b.c, SHARD);
    fake_revive(b.c.net, SHARD);
    b.c.net->nodes[SHARD].incarnation += 1000;
    b.c.shard[SHARD] = cluster_shard_new(&b.c, &b.cluster, SHARD);
    memset(b.want, 0, sizeof(b.want));
    memset(b.sums, 0, sizeof(b.sums));
    b.c.net->expects_limited_from = b.box[1].node;
    b.c.net->expects_max = busy ? 0 : FAKE_EXPECTS;
    for (uint32_t steps = 0; busy && steps < 100000; steps++) {
        bench_step(&b);
    }
    b.c.net->expects_max = FAKE_EXPECTS;
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(&b);
    }
    for (uint32_t w = 4; w-- > 0;) {
        pull_start(&b, w, &pull, 0);
        pull_check(&b, w, &pull);
    }
    assert_true(counters_of(&b, 2)->pulls_answered > before); /* by the boxes again */
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

static void rows_of_another_process(void **state)
{
    (void)state;
    another_process(false);
    another_process(true);
}

/* The parent dies: the worker sends directly, and through both boxes after the parent is back. */
static void the_parent_returns(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_BSP, 5, 2, two_below_one);
    patient(&b);
    round_of_pushes(&b);
    const uint64_t before = counters_of(&b, 1)->pushes_absorbed;
    assert_true(before > 0);
    box_kill(&b, &b.box[0]);
    round_of_pushes(&b);
    assert_int_equal(counters_of(&b, 1)->pushes_absorbed, before);
    assert_true(counters_of(&b, 1)->direct_shard > 0);
    box_start(&b, &b.box[0]);
    for (uint32_t steps = 0; steps < 200; steps++) {
        bench_step(&b);
    }
    round_of_pushes(&b);
    assert_true(counters_of(&b, 1)->pushes_absorbed > before);
    check_sums(&b);
    bench_close(&b);
}

/* The parent does not wait for a child whose workers have all left. */
static void nobody_below(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 5, 2, two_below_one);
    patient(&b);
    round_of_pushes(&b);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 1);
    b.workers[0].via = 0; /* it was the child's only worker */
    fake_break(b.c.net, 1, b.box[1].node);
    for (uint32_t steps = 0; steps < 300000; steps++) {
        bench_step(&b);
    }
    round_of_pushes(&b);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 2);
    assert_int_equal(counters_of(&b, 0)->flushed_age, 0);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* A child whose workers have left one of their tables, but not the other: its parent does not wait
 * for sums of that one. */
static void a_table_left(void **state)
{
    (void)state;
    struct bench b;
    weft_ps_op op;
    struct weft_ps_result result;
    via_timeout_ns = 10 * WEFT_NS_PER_S;
    bench_open_tree(&b, 3, WEFT_TABLE_ASP, 5, 2, two_below_one); /* workers 0 and 2 use the child */
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 3);
    spec.table = 1;
    assert_int_equal(weft_ps_table_open(b.c.client[2], &spec, b.c.net->now_ns, &op), WEFT_OK);
    while (!weft_ps_op_done(b.c.client[2], op, &result)) {
        bench_step(&b);
    }
    weft_ps_op_release(b.c.client[2], op);
    patient(&b);
    round_of_pushes(&b);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 1);
    b.workers[2].via = 0; /* only this worker had the other table open */
    fake_break(b.c.net, 3, b.box[1].node);
    for (uint32_t steps = 0; steps < 300000; steps++) {
        bench_step(&b);
    }
    const uint64_t id = 3;
    const float row[DIM] = {1, 1, 1};
    assert_int_equal(weft_ps_push(b.c.client[2], 1, &id, row, 1, 0, b.c.net->now_ns, &op), WEFT_OK);
    while (!weft_ps_op_done(b.c.client[2], op, &result)) {
        bench_step(&b);
    }
    weft_ps_op_release(b.c.client[2], op);
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 2);
    assert_int_equal(counters_of(&b, 0)->flushed_age, 0);
    round_of_pushes(&b); /* for the first table it waits for both */
    assert_int_equal(counters_of(&b, 0)->flushed_complete, 3);
    check_sums(&b);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* Two boxes are each other's parents: the cycle is detected, workers push to the shard, and nothing
 * is lost. */
static void circles(void **state)
{
    (void)state;
    static const uint32_t circle[][BOXES_MAX] = {{1, 0}, {1, 2, 0}};
    for (uint32_t i = 0; i < 6; i++) {
        struct bench b;
        uint64_t cycles_detected = 0, refused = 0;
        bench_open_tree(&b, 3, WEFT_TABLE_BSP, 5, 2 + i % 2, circle[i % 2]);
        patient(&b);
        for (uint32_t round = 0; round < 5; round++) {
            round_of_pushes(&b);
        }
        check_sums(&b);
        for (uint32_t box = 0; box < b.boxes; box++) {
            cycles_detected += counters_of(&b, box)->cycles_detected;
            refused += counters_of(&b, box)->parent_tables_refused;
            assert_int_equal(counters_of(&b, box)->pushes_absorbed, 0);
        }
        assert_true(cycles_detected > 0 && refused > 0);
        /* The cycle is removed, before or after all are notified: one of the boxes restarts below
         * the shard. */
        for (uint32_t steps = 0; i >= 2 && steps < 300000; steps++) {
            bench_step(&b);
        }
        struct box *root = &b.box[i >= 4]; /* the box that refused, or the one that was refused */
        box_kill(&b, root);
        root->config.has_parent = false;
        root->above = SHARD;
        box_start(&b, root);
        for (uint32_t steps = 0; steps < 300000; steps++) {
            bench_step(&b);
        }
        for (uint32_t round = 0; round < 5; round++) {
            round_of_pushes(&b);
        }
        check_sums(&b);
        for (uint32_t box = 0; box < b.boxes; box++) {
            assert_true(counters_of(&b, box)->pushes_absorbed > 0);
        }
        bench_close(&b);
    }
}

/* A child with its parent's number, and two children with the same number. */
static void numbers_taken(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 3, WEFT_TABLE_BSP, 5, 3, two_below_one);
    b.box[1].config.number = 0;
    patient(&b);
    round_of_pushes(&b);
    assert_true(counters_of(&b, 1)->cycles_detected > 0);
    assert_true(counters_of(&b, 0)->children_refused > 0);
    assert_int_equal(counters_of(&b, 1)->pushes_absorbed, 0);
    assert_true(counters_of(&b, 2)->pushes_absorbed > 0);
    b.box[1].config.number = 2;
    b.c.net->nodes[b.box[1].node].incarnation = 777;
    patient(&b);
    for (uint32_t round = 0; round < 5; round++) {
        round_of_pushes(&b);
    }
    check_sums(&b);
    const uint64_t one = counters_of(&b, 1)->pushes_absorbed;
    const uint64_t other = counters_of(&b, 2)->pushes_absorbed;
    assert_true((one == 0) != (other == 0));
    assert_true(counters_of(&b, 0)->children_refused > 0);
    bench_close(&b);
}

/* A parent refuses this table: its child disconnects its workers once. */
static void a_table_not_taken(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 3, WEFT_TABLE_BSP, 5, 2, two_below_one);
    b.box[0].config.children_max = 1; /* number 1 is out of range */
    patient(&b);
    for (uint32_t round = 0; round < 3; round++) {
        round_of_pushes(&b);
    }
    check_sums(&b);
    assert_int_equal(counters_of(&b, 1)->pushes_absorbed, 0);
    assert_true(counters_of(&b, 0)->children_refused > 0);
    bench_close(&b);
}

enum {
    HEAD_WORKER,
    BAD_IDS,
    ZERO_COUNT,
    NOT_FINITE,
    NO_MEMBERS,
    CUT_SHORT,
    WEIGHTED, /* the table has no weights: the shard would refuse the whole sum */
    NO_RANK,
    OTHER_PROCESS, /* the member names another process than the connected one with that rank */
    WHOLE,
    AGAIN,
    CLOCK_BEFORE, /* a member's clock is not that of the tag */
    HOSTILE
};

/* A sum of one row and one member with one error; ids, counts and sums are at their specified
 * offsets. */
static size_t hostile_sum(const struct bench *b, uint8_t *out, uint32_t what)
{
    const struct weft_rpc_request request = {
        .rpc_id = what + 2, .worker = what == HEAD_WORKER ? 6 : 7, .t0_ns = 1, .rows = 1,
        .need_clock = what == WEIGHTED};
    const struct weft_aggregate_member member = {
        .rank = what == NO_RANK ? b->c.workers : 0,
        .session = 9,
        .incarnation = b->c.net->nodes[1].incarnation + (what == OTHER_PROCESS),
        .number = 77,
        .rpc_id = 3};
    const uint64_t id = 5;
    uint32_t taken;
    uint8_t *at = out + WEFT_AGGREGATE_HEAD_BYTES;
    weft_aggregate_member_pack(&member, at);
    at += WEFT_AGGREGATE_MEMBER_BYTES;
    const uint32_t clocks = what == CLOCK_BEFORE, clock = 1;
    memcpy(at, &clock, clocks * sizeof(clock));
    at += clocks * sizeof(clock);
    const size_t ids_bytes = weft_ids_pack_block(&id, 1, 0, at, &taken);
    memset(at, what == BAD_IDS ? 0xff : at[0], 1);
    const uint16_t count = what == ZERO_COUNT ? 0 : 1;
    const float sums[DIM] = {1, 2, what == NOT_FINITE ? INFINITY : 3};
    memcpy(at + ids_bytes, &count, sizeof(count));
    memcpy(at + ids_bytes + sizeof(count), sums, sizeof(sums));
    weft_aggregate_head_pack(&request, what == NO_MEMBERS ? 0 : 1, ids_bytes, out);
    weft_aggregate_head_columns(out, clocks);
    return (size_t)(at - out) + ids_bytes + sizeof(count) + sizeof(sums) - (what == CUT_SHORT);
}

static void send_tagged(struct bench *b, uint32_t box, uint32_t from, struct weft_rpc_tag tag,
                        uint8_t *bytes, size_t count)
{
    struct weft_msgr msgr = fake_msgr(b->c.net, from);
    const struct weft_msg_send send = {
        .peer = fake_peer(b->box[box].node),
        .base = bytes,
        .total = (uint32_t)count,
        .elem_bytes = 1,
        .critical = 1,
        .tag = weft_rpc_tag_pack(tag),
        .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    assert_int_equal(msgr.ops->send(msgr.self, &send, b->c.net->now_ns, &seq), WEFT_OK);
    for (uint32_t steps = 0; steps < 50; steps++) {
        struct weft_msg_event event;
        bench_step(b);
        while (fake_poll(&b->c.net->nodes[from], &event)) {
        }
    }
}

static void send_to(struct bench *b, uint32_t box, uint32_t from, uint8_t op, uint8_t *bytes,
                    size_t count)
{
    const struct weft_rpc_tag tag = {.op = op, .number = op == WEFT_RPC_TABLE ? 0 : 1};
    send_tagged(b, box, from, tag, bytes, count);
}

static void send_bytes(struct bench *b, uint32_t from, uint8_t op, uint8_t *bytes, size_t count)
{
    send_to(b, 0, from, op, bytes, count);
}

/* A child with the key sends invalid messages: none of them affects a sum. */
static void a_hostile_child(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 5, 1, two_below_one);
    b.box[0].config.children_max = 8;
    patient(&b);
    const uint32_t child = b.box[0].node + 1;
    b.c.net->nodes[child].name = weft_rpc_aggregator_name(SHARD, 7);
    fake_connect(b.c.net, b.box[0].node, child);
    uint8_t table[WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_AGGREGATE_SHARD_BYTES +
                  WEFT_AGGREGATE_BELOW_BYTES] = {0};
    uint8_t sum[HOSTILE][512];
    const struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 2);
    /* Its tables are not open yet. */
    send_bytes(&b, child, WEFT_RPC_AGGREGATE, sum[WHOLE], hostile_sum(&b, sum[WHOLE], WHOLE));
    /* no member of the message was accepted */
    assert_int_equal(counters_of(&b, 0)->direct_table, 0);
    assert_int_equal(counters_of(&b, 0)->aggregates_in, 1);
    weft_rpc_request_pack(&(struct weft_rpc_request){.rpc_id = 1, .worker = 7}, table);
    weft_table_spec_pack(&spec, table + WEFT_RPC_REQUEST_BYTES);
    send_bytes(&b, child, WEFT_RPC_TABLE, table, sizeof(table) - 1); /* too short */
    send_bytes(&b, child, WEFT_RPC_TABLE, table, sizeof(table));
    for (uint32_t what = 0; what < WHOLE; what++) {
        send_bytes(&b, child, WEFT_RPC_AGGREGATE, sum[what], hostile_sum(&b, sum[what], what));
        assert_int_equal(counters_of(&b, 0)->rows_in, 0);
        assert_int_equal(counters_of(&b, 0)->aggregates_in, 2 + what);
    }
    send_tagged(&b, 0, child, (struct weft_rpc_tag){.op = WEFT_RPC_AGGREGATE, .number = 2},
                sum[CLOCK_BEFORE], hostile_sum(&b, sum[CLOCK_BEFORE], CLOCK_BEFORE));
    assert_int_equal(counters_of(&b, 0)->rows_in, 0);
    /* A valid message is added once. The shard does not know the session. */
    send_bytes(&b, child, WEFT_RPC_AGGREGATE, sum[WHOLE], hostile_sum(&b, sum[WHOLE], WHOLE));
    assert_int_equal(counters_of(&b, 0)->rows_in, 1);
    send_bytes(&b, child, WEFT_RPC_AGGREGATE, sum[AGAIN], hostile_sum(&b, sum[AGAIN], AGAIN));
    assert_int_equal(counters_of(&b, 0)->rows_in, 1);
    round_of_pushes(&b);
    check_sums(&b);
    bench_close(&b);
}

/* Open the table at box 0 as aggregator 7. */
static void open_as_child(struct bench *b, uint32_t child, uint8_t *table, size_t bytes)
{
    const struct weft_table_spec spec = spec_of(b->mode, (uint16_t)b->c.workers);
    weft_rpc_request_pack(&(struct weft_rpc_request){.rpc_id = 1, .worker = 7}, table);
    weft_table_spec_pack(&spec, table + WEFT_RPC_REQUEST_BYTES);
    send_bytes(b, child, WEFT_RPC_TABLE, table, bytes);
}

enum {
    CHILD_TABLE_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_AGGREGATE_SHARD_BYTES +
                        WEFT_AGGREGATE_BELOW_BYTES
};

/* A sum of rows with ids 0, step, 2 step and so on, each of `count` gradients. */
static size_t long_sum(const struct bench *b, uint8_t *out, uint32_t number, uint32_t rows,
                       uint64_t step, uint16_t count)
{
    const struct weft_rpc_request request = {.rpc_id = number, .worker = 7, .t0_ns = 1, .rows = rows};
    const struct weft_aggregate_member member = {
        .rank = 0,
        .session = 9,
        .incarnation = b->c.net->nodes[1].incarnation,
        .number = number,
        .rpc_id = 3};
    const float sums[DIM] = {1, 2, 3};
    uint8_t *const ids_at = out + WEFT_AGGREGATE_HEAD_BYTES + WEFT_AGGREGATE_MEMBER_BYTES;
    uint8_t *at = ids_at;
    uint64_t before = 0;
    for (uint32_t done = 0, taken; done < rows; done += taken) {
        uint64_t ids[WEFT_IDS_BLOCK];
        const uint32_t n = (uint32_t)weft_min_u64(WEFT_IDS_BLOCK, rows - done);
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = (done + i) * step;
        }
        at += weft_ids_pack_block(ids, n, before, at, &taken);
        before = ids[taken - 1];
    }
    weft_aggregate_member_pack(&member, ids_at - WEFT_AGGREGATE_MEMBER_BYTES);
    weft_aggregate_head_pack(&request, 1, (size_t)(at - ids_at), out);
    for (uint32_t i = 0; i < rows; i++, at += sizeof(count)) {
        memcpy(at, &count, sizeof(count));
    }
    for (uint32_t i = 0; i < rows; i++, at += sizeof(sums)) {
        memcpy(at, sums, sizeof(sums));
    }
    return (size_t)(at - out);
}

/* Connect to box 1 as this aggregator and send TABLE; first_below: byte 0 of the bitmap of
 * aggregators below it. */
static void child_asks(struct bench *b, uint32_t child, uint32_t number, uint16_t table,
                       uint8_t first_below)
{
    uint8_t bytes[CHILD_TABLE_BYTES] = {0};
    const struct weft_table_spec spec = spec_of(b->mode, (uint16_t)b->c.workers);
    b->c.net->nodes[child].name = weft_rpc_aggregator_name(SHARD, number);
    fake_connect(b->c.net, b->box[1].node, child);
    weft_rpc_request_pack(&(struct weft_rpc_request){.rpc_id = 1, .worker = number}, bytes);
    weft_table_spec_pack(&spec, bytes + WEFT_RPC_REQUEST_BYTES);
    bytes[sizeof(bytes) - WEFT_AGGREGATE_BELOW_BYTES] = first_below;
    send_tagged(b, 1, child, (struct weft_rpc_tag){.op = WEFT_RPC_TABLE, .table = table}, bytes,
                sizeof(bytes));
}

static void steps_of(struct bench *b, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        bench_step(b);
    }
}

/* A child claims to be above the box, so its parent refuses the table. The child is disconnected,
 * and the parent then accepts the table. Those below have nothing open at that time. They get time
 * to reopen the table while the connection to the parent stays; if they do not, it is closed. */
static void a_table_taken_at_last(bool comes)
{
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_BSP, 5, 2, two_below_one);
    b.box[1].config.children_max = 8;
    patient(&b);
    child_asks(&b, b.box[1].node + 1, 7, 0, 1);
    steps_of(&b, 1000);
    assert_int_equal(counters_of(&b, 1)->parent_tables_refused, 1);
    b.workers[0].via = comes ? 1 : 0;
    b.box[1].closed_above = 0;
    steps_of(&b, 300000);
    assert_int_equal(counters_of(&b, 1)->parent_tables_refused, 1);
    assert_int_equal(b.box[1].closed_above, comes ? 0 : 1);
    round_of_pushes(&b);
    assert_true((counters_of(&b, 1)->pushes_absorbed > 0) == comes);
    check_sums(&b);
    bench_close(&b);
}

static void taken_at_last(void **state)
{
    (void)state;
    a_table_taken_at_last(true);
    a_table_taken_at_last(false);
}

/* The time that sums wait at higher levels is the same for all tables. A child is notified of a
 * change even if it has not opened the table whose reply announced it. */
static void ages_are_of_all_tables(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 5, 2, two_below_one);
    b.box[1].config.children_max = 8;
    patient(&b);
    const uint32_t first = b.box[1].node + 1, second = first + 1;
    child_asks(&b, first, 6, 0, 0);
    child_asks(&b, second, 7, 1, 0);
    steps_of(&b, 1000);
    assert_false(b.c.net->cut[b.box[1].node][first] || b.c.net->cut[b.box[1].node][second]);
    b.box[0].config.age_ns = 3 * WEFT_NS_PER_S;
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    box_start(&b, &b.box[0]);
    steps_of(&b, 10000);
    assert_true(weft_aggregator_age_ns(b.box[1].agg) == 4 * WEFT_NS_PER_S);
    assert_true(b.c.net->cut[b.box[1].node][first]);
    assert_true(b.c.net->cut[b.box[1].node][second]);
    bench_close(&b);
}

/* Child 7 of this box claims that worker 2 has ended clock 77; the shard refuses that. */
static void wrong_clock(struct bench *b, uint32_t box, uint32_t child)
{
    static uint8_t bytes[WEFT_AGGREGATE_HEAD_BYTES + WEFT_AGGREGATE_MEMBER_BYTES];
    const struct weft_rpc_request request = {
        .rpc_id = 5, .worker = 7, .t0_ns = 1, .flags = WEFT_AGGREGATE_ENDS};
    const struct weft_aggregate_member member = {.rank = 2,
                                                 .session = 9,
                                                 .incarnation = b->c.net->nodes[3].incarnation,
                                                 .number = 77,
                                                 .rpc_id = 3};
    weft_aggregate_head_pack(&request, 1, 0, bytes);
    weft_aggregate_member_pack(&member, bytes + WEFT_AGGREGATE_HEAD_BYTES);
    send_tagged(b, box, child, (struct weft_rpc_tag){.op = WEFT_RPC_AGGREGATE}, bytes,
                sizeof(bytes));
}

/* One of the clocks in a message, or in several levels of messages, is wrong: the others are
 * accepted. */
static void one_clock_is_wrong_below(uint32_t box)
{
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open_tree(&b, 3, WEFT_TABLE_BSP, 5, 2, two_below_one);
    b.box[0].config.children_max = b.box[1].config.children_max = 8;
    patient(&b);
    const uint32_t child = b.box[1].node + 1;
    uint8_t table[CHILD_TABLE_BYTES] = {0};
    b.c.net->nodes[child].name = weft_rpc_aggregator_name(SHARD, 7);
    fake_connect(b.c.net, b.box[box].node, child);
    const struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 3);
    weft_rpc_request_pack(&(struct weft_rpc_request){.rpc_id = 1, .worker = 7}, table);
    weft_table_spec_pack(&spec, table + WEFT_RPC_REQUEST_BYTES);
    send_to(&b, box, child, WEFT_RPC_TABLE, table, sizeof(table));
    wrong_clock(&b, box, child); /* the group waits a while for the others */
    assert_int_equal(counters_of(&b, box)->clocks_in, 1);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    steps_of(&b, 5000);
    assert_int_equal(counters_of(&b, 0)->clocks_passed, 2);
    assert_int_equal(counters_of(&b, 1)->clocks_passed, 1);
    assert_int_equal(counters_of(&b, box)->clocks_direct, 1);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_clocks_direct, 0);
    }
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->aggregate_clocks, 2);
    assert_int_equal(weft_ps_clock(b.c.client[2], 0, b.c.net->now_ns), WEFT_OK);
    b.clock++;
    memcpy(b.ended[b.clock], b.sums, sizeof(b.sums));
    wait_all(&b);
    round_of_pushes(&b);
    check_sums(&b);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

static void one_clock_is_wrong(void **state)
{
    (void)state;
    one_clock_is_wrong_below(0);
    one_clock_is_wrong_below(1);
}

/* The parent refuses a table, and restarts before the child repeats TABLE: workers, which have
 * nothing open by then, use both boxes. */
static void refused_by_the_one_before(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_BSP, 5, 2, two_below_one);
    b.box[1].config.children_max = 8;
    patient(&b);
    const uint32_t child = b.box[1].node + 1;
    uint8_t table[CHILD_TABLE_BYTES] = {0};
    b.c.net->nodes[child].name = weft_rpc_aggregator_name(SHARD, 7);
    fake_connect(b.c.net, b.box[1].node, child);
    const struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    weft_rpc_request_pack(&(struct weft_rpc_request){.rpc_id = 1, .worker = 7}, table);
    weft_table_spec_pack(&spec, table + WEFT_RPC_REQUEST_BYTES);
    table[sizeof(table) - WEFT_AGGREGATE_BELOW_BYTES] = 1; /* it claims that number 0 is below it */
    send_to(&b, 1, child, WEFT_RPC_TABLE, table, sizeof(table));
    for (uint32_t steps = 0; steps < 1000; steps++) {
        bench_step(&b);
    }
    assert_int_equal(counters_of(&b, 1)->parent_tables_refused, 1);
    round_of_pushes(&b);
    assert_int_equal(counters_of(&b, 1)->pushes_absorbed, 0);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    box_start(&b, &b.box[0]);
    for (uint32_t steps = 0; steps < 300000; steps++) {
        bench_step(&b);
    }
    round_of_pushes(&b);
    assert_true(counters_of(&b, 1)->pushes_absorbed > 0);
    check_sums(&b);
    bench_close(&b);
}

/* A group counts up to 65,535 gradients of each id: sums may have more in total, but not of one
 * id. */
static void counts_of_children(void **state)
{
    (void)state;
    static uint8_t sums[3][2 << 20];
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 5, 1, two_below_one);
    b.box[0].config.children_max = 8;
    patient(&b);
    b.c.net->packet_bytes = 1024;
    const uint32_t child = b.box[0].node + 1;
    b.c.net->nodes[child].name = weft_rpc_aggregator_name(SHARD, 7);
    fake_connect(b.c.net, b.box[0].node, child);
    uint8_t table[CHILD_TABLE_BYTES] = {0};
    open_as_child(&b, child, table, sizeof(table));
    static const struct {
        uint32_t rows;
        uint64_t step;
        uint16_t count;
    } of[] = {{65538, 0, UINT16_MAX}, /* 2^32 + 65,534 of one id */
              {2, 0, 40000},
              {10, 1, 30000}};
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(of); i++) {
        size_t bytes = long_sum(&b, sums[i], i + 2, of[i].rows, of[i].step, of[i].count);
        send_bytes(&b, child, WEFT_RPC_AGGREGATE, sums[i], bytes);
        for (uint32_t steps = 0; steps < 3000; steps++) {
            bench_step(&b);
        }
        assert_int_equal(counters_of(&b, 0)->aggregates_in, i + 1);
        assert_int_equal(counters_of(&b, 0)->direct_large, i < 2 ? i + 1 : 2);
        assert_int_equal(counters_of(&b, 0)->rows_in, i < 2 ? 0 : 10);
    }
    bench_close(&b);
}

/* A child that only pulls is alive: another process cannot take over its number. */
static void who_pulls_is_alive(void **state)
{
    (void)state;
    struct bench b;
    bench_open_tree(&b, 2, WEFT_TABLE_ASP, 5, 1, two_below_one);
    b.box[0].config.children_max = 8;
    patient(&b);
    const uint32_t child = b.box[0].node + 1, rival = child + 1;
    uint8_t table[CHILD_TABLE_BYTES] = {0}, pull[WEFT_RPC_REQUEST_BYTES] = {0};
    b.c.net->nodes[child].name = b.c.net->nodes[rival].name = weft_rpc_aggregator_name(SHARD, 7);
    b.c.net->nodes[child].incarnation = 1;
    b.c.net->nodes[rival].incarnation = 2;
    fake_connect(b.c.net, b.box[0].node, child);
    open_as_child(&b, child, table, sizeof(table));
    for (uint32_t i = 1; i <= 5; i++) {
        fake_connect(b.c.net, b.box[0].node, rival);
        for (uint32_t steps = 0; steps < 50; steps++) {
            bench_step(&b);
        }
        assert_int_equal(counters_of(&b, 0)->children_refused, i);
        send_bytes(&b, child, WEFT_RPC_PULL, pull, sizeof(pull));
        b.c.net->now_ns += WEFT_NS_PER_S;
    }
    /* After this silence another process can. */
    for (uint32_t i = 0; i < 2; i++) {
        fake_connect(b.c.net, b.box[0].node, rival);
        for (uint32_t steps = 0; steps < 50; steps++) {
            bench_step(&b);
        }
        b.c.net->now_ns += WEFT_NS_PER_S;
    }
    assert_int_equal(counters_of(&b, 0)->children_refused, 6);
    bench_close(&b);
}

static void whatever_happens(void **state)
{
    (void)state;
    const struct seeds seeds = seeds_of(SEEDS);
    static const uint32_t forests[][BOXES_MAX] = {
        {SHARD_ABOVE, 0, 0},
        {SHARD_ABOVE, 0, 1},
        {SHARD_ABOVE, SHARD_ABOVE, 0},
        {SHARD_ABOVE, SHARD_ABOVE, 1},
    };
    uint64_t up = 0, answered = 0, kept = 0, direct = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        struct bench b;
        struct weft_prng prng;
        weft_prng_init(&prng, seed * 78);
        const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
        const uint32_t *forest = forests[weft_prng_below(&prng, 4)];
        bench_open_tree(&b, 2 + (uint32_t)weft_prng_below(&prng, 3),
                        modes[weft_prng_below(&prng, 3)], seed, 3, forest);
        random_job(&b, (uint32_t)weft_prng_below(&prng, 12));
        for (uint32_t i = 0; i < b.boxes; i++) {
            up += counters_of(&b, i)->aggregates_in;
            direct += counters_of(&b, i)->pushes_direct;
            kept += counters_of(&b, i)->pull_rows_cached;
        }
        for (uint32_t w = 0; w < b.c.workers; w++) {
            answered += weft_ps_client_counters(b.c.client[w])->via_answered;
        }
        bench_close(&b);
    }
    print_message(
        "%llu aggregates of children, %llu pushes told to go direct; %llu pulls answered, %llu "
        "rows of pulls kept\n",
        (unsigned long long)up, (unsigned long long)direct, (unsigned long long)answered,
        (unsigned long long)kept);
    if (!seeds.is_chosen) { /* the jobs are such that all of this happens */
        assert_true(up > SEEDS && direct > SEEDS && answered > SEEDS && kept > SEEDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_there),           cmocka_unit_test(granted_sums),
        cmocka_unit_test(a_late_push_has_its_weight),
        cmocka_unit_test(asked_once),
        cmocka_unit_test(own_pushes_are_seen), cmocka_unit_test(rows_of_another_process),
        cmocka_unit_test(the_parent_returns),  cmocka_unit_test(nobody_below),
        cmocka_unit_test(a_table_left),
        cmocka_unit_test(circles),             cmocka_unit_test(numbers_taken),
        cmocka_unit_test(a_table_not_taken),   cmocka_unit_test(a_hostile_child),
        cmocka_unit_test(refused_by_the_one_before),
        cmocka_unit_test(taken_at_last),
        cmocka_unit_test(ages_are_of_all_tables),
        cmocka_unit_test(one_clock_is_wrong),
        cmocka_unit_test(counts_of_children),  cmocka_unit_test(who_pulls_is_alive),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
