/* Workers whose pushes and pulls go by an aggregator: every gradient counts once, whatever dies, breaks or
 * comes again; sums are those of a job without an aggregator; and no row that is pulled is older than the
 * table's mode allows. Random jobs over a transport in memory, with gradients that are integers, so that no
 * order of adding changes a bit, and not negative, so that a row that lacks one is too small. */
#include "ps/aggregator.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SHARD = 0, IDS = 60, DIM = 3, SEEDS = 500, OPS = 4, WORKERS_MAX = 5, CLOCKS_MAX = 12 };
enum { STALENESS = 2, PULL_IDS = 30 };

/* A pull, and what its rows had to have when it was sent. */
struct pull {
    weft_ps_op op;
    uint32_t n;
    uint64_t ids[PULL_IDS];
    float rows[PULL_IDS][DIM];
    float must[PULL_IDS][DIM];
};

struct worker {
    weft_ps_op op[OPS];
    bool busy[OPS];
    uint32_t clock; /* that it may push for */
    uint32_t left;  /* pushes in it */
};

static uint64_t via_timeout_ns = 2 * WEFT_NS_PER_MS;

struct bench {
    struct cluster c;
    struct cluster_config cluster;
    struct weft_prng prng;
    struct weft_aggregator *agg;
    struct weft_aggregator_config config;
    struct weft_aggregator_counters before; /* of aggregators that died */
    uint32_t box;                           /* its node */
    bool no_box;
    struct worker workers[WORKERS_MAX];
    uint8_t mode;
    uint64_t delivered, missed;
    uint32_t clock; /* that all have ended */
    float want[IDS][DIM];
    float sums[WORKERS_MAX][IDS][DIM];                  /* of one worker's pushes, */
    float ended[CLOCKS_MAX + 1][WORKERS_MAX][IDS][DIM]; /* and of those of its ended clocks */
};

/* ---- the aggregator -------------------------------------------------------------------------- */

static void box_start(struct bench *b)
{
    struct fake_node *node = &b->c.net->nodes[b->box];
    node->dead = false;
    node->events_head = node->events_tail = 0;
    memset(node->expects, 0, sizeof(node->expects));
    node->name = weft_rpc_aggregator_name(SHARD, 0);
    node->incarnation++;
    assert_int_equal(weft_aggregator_new(&b->config, fake_msgr(b->c.net, b->box), &b->agg),
                     WEFT_OK);
}

static void box_kill(struct bench *b)
{
    fake_kill(b->c.net, b->box);
    weft_aggregator_free(b->agg);
    b->agg = NULL;
}

static void box_poll(struct bench *b)
{
    struct weft_msg_event event;
    weft_peer peer;
    if (b->agg == NULL) {
        return;
    }
    while (fake_poll(&b->c.net->nodes[b->box], &event)) {
        weft_aggregator_event(b->agg, &event, b->c.net->now_ns);
    }
    weft_aggregator_progress(b->agg, b->c.net->now_ns);
    while (weft_aggregator_take_closed(b->agg, &peer)) {
        fake_break(b->c.net, b->box, peer - 10);
    }
}

/* ---- the job --------------------------------------------------------------------------------- */

/* What the drivers do: connections that are wanted. */
static void connect_all(struct bench *b)
{
    struct fake_net *net = b->c.net;
    uint64_t ns;
    weft_peer peer;
    if (b->agg != NULL && weft_aggregator_wants_shard(b->agg)) {
        weft_aggregator_connect(b->agg, fake_peer(SHARD));
        fake_connect(net, SHARD, b->box);
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        struct weft_ps_client *client = b->c.client[w];
        while (weft_ps_client_take_via_close(client, &peer)) {
            fake_break(net, 1 + w, b->box);
        }
        if (weft_ps_client_away(client, 0, &ns)) {
            assert_int_equal(weft_ps_client_reconnect(client, 0, fake_peer(SHARD), net->now_ns),
                             WEFT_OK);
            fake_connect(net, SHARD, 1 + w);
        }
        if (b->agg != NULL && weft_ps_client_wants_via(client, 0, &ns)) {
            weft_ps_client_via(client, 0, fake_peer(b->box));
            fake_connect(net, b->box, 1 + w);
        }
    }
}

static bool bench_step(struct bench *b)
{
    bool moved = cluster_step(&b->c);
    box_poll(b);
    cluster_poll(&b->c);
    connect_all(b);
    if (!moved) {
        b->c.net->now_ns += 20000; /* ages and timeouts */
    }
    return moved;
}

static void bench_quiet(struct bench *b)
{
    for (uint32_t still = 0; still < 50;) {
        still = bench_step(b) ? 0 : still + 1;
    }
}

static void wait_op(struct bench *b, uint32_t w, uint32_t i)
{
    struct weft_ps_result result;
    struct worker *worker = &b->workers[w];
    for (uint32_t steps = 0; worker->busy[i]; steps++) {
        assert_true(steps < 200000);
        if (weft_ps_op_done(b->c.client[w], worker->op[i], &result)) {
            if (result.status != WEFT_OK) {
                print_message("worker %u: rpc_status %u\n", w, result.rpc_status);
            }
            assert_int_equal(result.status, WEFT_OK);
            b->delivered += result.elements_delivered;
            weft_ps_op_release(b->c.client[w], worker->op[i]);
            worker->busy[i] = false;
            return;
        }
        bench_step(b);
    }
}

static struct weft_table_spec spec_of(uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){.dim = DIM,
                                    .mode = mode,
                                    .workers = workers,
                                    .staleness = mode == WEFT_TABLE_SSP ? STALENESS : 0,
                                    .learning_rate = -1,
                                    .average = WEFT_AVERAGE_NONE};
}

static void bench_open(struct bench *b, uint32_t workers, uint8_t mode, uint64_t seed)
{
    memset(b, 0, sizeof(*b));
    weft_prng_init(&b->prng, seed);
    struct cluster_config config = cluster_config(1, workers);
    config.incarnation = 100;
    config.shard.chunks_max = 256;
    config.shard.aggregators_max = 2;
    config.client.reconnect_ns = WEFT_NS_PER_S;
    config.client.via_timeout_ns = via_timeout_ns;
    config.client.can &= (uint16_t)weft_prng_below(&b->prng, 8) | WEFT_RPC_CAN_AGGREGATE;
    b->mode = mode;
    b->cluster = config;
    cluster_start(&b->c, &config, workers, seed);
    b->c.net->packet_bytes = 200 + (uint32_t)weft_prng_below(&b->prng, 400);
    b->box = 1 + workers;
    weft_aggregator_config_default(&b->config);
    b->config.workers_max = workers;
    b->config.push_slots = 1 + (uint32_t)weft_prng_below(&b->prng, 3);
    b->config.push_bytes_max = weft_prng_below(&b->prng, 4) == 0 ? 400 : 4096;
    b->config.groups_max = 1 + (uint32_t)weft_prng_below(&b->prng, 3);
    b->config.count_max = (uint32_t)weft_prng_below(&b->prng, 4);
    b->config.age_ns = 1 + weft_prng_below(&b->prng, 200000);
    b->config.pull_slots = (uint32_t)weft_prng_below(&b->prng, 5);
    b->config.pull_rows_max = weft_prng_below(&b->prng, 6) == 0 ? PULL_IDS - 1 : 100;
    b->config.cache_bytes = weft_prng_below(&b->prng, 3) * 1500;
    b->config.pull_age_ns = weft_prng_below(&b->prng, 500000);
    b->config.pull_patience_ns = WEFT_NS_PER_MS;
    b->config.clock_ns = fake_clock_ns;
    b->config.clock_arg = b->c.net;
    box_start(b);
    struct weft_table_spec spec = spec_of(mode, (uint16_t)workers);
    for (uint32_t w = 0; w < workers; w++) {
        weft_ps_op op;
        assert_int_equal(weft_ps_table_open(b->c.client[w], &spec, 0, &op), WEFT_OK);
        b->workers[w] = (struct worker){.op = {op}, .busy = {true}};
        wait_op(b, w, 0);
        b->delivered = 0;
    }
    bench_quiet(b);
}

static void bench_close(struct bench *b)
{
    if (b->agg != NULL) {
        weft_aggregator_free(b->agg);
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        weft_ps_client_free(b->c.client[w]);
    }
    cluster_shard_free(&b->c, SHARD);
    fake_net_free(b->c.net);
}

/* Some ids, some of them twice; integers. */
static void push(struct bench *b, uint32_t w, uint32_t bound_ppm)
{
    struct worker *worker = &b->workers[w];
    uint64_t ids[40];
    float rows[40][DIM];
    uint32_t n = 1 + (uint32_t)weft_prng_below(&b->prng, 40), i = 0;
    for (uint32_t r = 0; r < n; r++) {
        ids[r] = weft_prng_below(&b->prng, IDS);
        for (uint32_t k = 0; k < DIM; k++) {
            rows[r][k] = (float)weft_prng_below(&b->prng, 7);
            b->want[ids[r]][k] += rows[r][k];
            b->sums[w][ids[r]][k] += rows[r][k];
        }
    }
    while (i < OPS && worker->busy[i]) {
        i++;
    }
    if (i == OPS) {
        i = (uint32_t)weft_prng_below(&b->prng, OPS);
        wait_op(b, w, i);
    }
    weft_status status;
    for (uint32_t steps = 0;
         (status = weft_ps_push(b->c.client[w], 0, ids, &rows[0][0], n, bound_ppm, b->c.net->now_ns,
                                &worker->op[i])) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
    worker->busy[i] = true;
}

/* What a row has to have that this worker pulls now. */
static float must_be(const struct bench *b, uint32_t w, uint64_t id, uint32_t k)
{
    const uint32_t back = b->mode == WEFT_TABLE_BSP   ? 0
                          : b->mode == WEFT_TABLE_SSP ? STALENESS
                                                      : CLOCKS_MAX;
    const uint32_t need = b->clock > back ? b->clock - back : 0;
    float sum = 0;
    for (uint32_t v = 0; v < b->c.workers; v++) {
        const bool own = v == w && b->mode != WEFT_TABLE_BSP;
        sum += own ? b->sums[v][id][k] : b->ended[need][v][id][k];
    }
    return sum;
}

/* Ids from `first` on, so that several workers can ask for the same. */
static void pull_start(struct bench *b, uint32_t w, struct pull *pull, uint32_t first)
{
    weft_status status;
    pull->n = PULL_IDS;
    for (uint32_t i = 0; i < pull->n; i++) {
        pull->ids[i] = (first + i) % IDS;
        for (uint32_t k = 0; k < DIM; k++) {
            pull->must[i][k] = must_be(b, w, pull->ids[i], k);
        }
    }
    for (uint32_t steps = 0;
         (status = weft_ps_pull(b->c.client[w], 0, pull->ids, &pull->rows[0][0], pull->n, 0,
                                b->c.net->now_ns, &pull->op)) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
}

static void pull_check(struct bench *b, uint32_t w, const struct pull *pull)
{
    struct weft_ps_result result;
    for (uint32_t steps = 0; !weft_ps_op_done(b->c.client[w], pull->op, &result); steps++) {
        assert_true(steps < 200000);
        bench_step(b);
    }
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.rows_missed, 0);
    weft_ps_op_release(b->c.client[w], pull->op);
    for (uint32_t i = 0; i < pull->n; i++) {
        for (uint32_t k = 0; k < DIM; k++) {
            const float is = pull->rows[i][k];
            assert_true(b->mode == WEFT_TABLE_BSP ? is == pull->must[i][k]
                                                  : is >= pull->must[i][k]);
            assert_true(is <= b->want[pull->ids[i]][k]);
        }
    }
}

/* Ends the clock of all workers. */
static void end_clock(struct bench *b)
{
    b->clock++;
    memcpy(b->ended[b->clock], b->sums, sizeof(b->sums));
    for (uint32_t w = 0; w < b->c.workers; w++) {
        weft_status status;
        for (uint32_t steps = 0;
             (status = weft_ps_clock(b->c.client[w], 0, b->c.net->now_ns)) == WEFT_AGAIN; steps++) {
            assert_true(steps < 100000);
            bench_step(b);
        }
        assert_int_equal(status, WEFT_OK);
    }
}

static void wait_all(struct bench *b)
{
    for (uint32_t w = 0; w < b->c.workers; w++) {
        for (uint32_t i = 0; i < OPS; i++) {
            wait_op(b, w, i);
        }
    }
    for (uint32_t steps = 0;; steps++) {
        bool busy = false;
        assert_true(steps < 100000);
        for (uint32_t w = 0; w < b->c.workers; w++) {
            busy |= weft_ps_client_busy(b->c.client[w]);
        }
        if (!busy) {
            break;
        }
        bench_step(b);
    }
    bench_quiet(b);
}

static void check_sums(const struct bench *b)
{
    for (uint64_t id = 0; id < IDS; id++) {
        float weights[DIM];
        (void)weft_table_read(weft_shard_table(b->c.shard[SHARD], 0), id, weights);
        for (uint32_t k = 0; k < DIM; k++) {
            assert_true(weights[k] == b->want[id][k]);
        }
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* ASP by age: sums wait for it, though all workers are in them. */
static void by_age(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    b.config.push_bytes_max = 4096;
    b.config.push_slots = 4;
    b.config.count_max = 0;
    b.config.age_ns = WEFT_NS_PER_MS;
    b.config.by_age_asp = true;
    box_kill(&b);
    bench_quiet(&b);
    box_start(&b);
    bench_quiet(&b);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
            push(&b, w, 0);
        }
        wait_all(&b);
    }
    check_sums(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.agg);
    assert_int_equal(counters->pushes_in, 80);
    assert_int_equal(counters->pushes_absorbed, 80);
    assert_int_equal(counters->flushed_all, 0);
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

/* More messages than the shard takes at a time, were each to go when it is old enough: they wait, and grow. */
static void a_busy_shard(void **state)
{
    (void)state;
    struct bench b;
    via_timeout_ns = WEFT_NS_PER_S; /* it is slow, and not dead */
    bench_open(&b, 4, WEFT_TABLE_ASP, 5);
    b.config.push_bytes_max = 4096;
    b.config.push_slots = OPS;
    b.config.count_max = 0;
    b.config.age_ns = 1;
    b.config.by_age_asp = true;
    box_kill(&b);
    bench_quiet(&b);
    box_start(&b);
    bench_quiet(&b);
    for (uint32_t i = 0; i < 4 * OPS; i++) {
        push(&b, i % 4, 0);
    }
    for (uint32_t steps = 0; steps < 2000; steps++) {
        step_without_shard(&b);
    }
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.agg);
    assert_int_equal(counters->pushes_in, 4 * OPS);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(counters->aggregates_out, WEFT_AGGREGATE_SLOTS);
    assert_int_equal(weft_aggregator_deadline(b.agg), WEFT_NEVER);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters->pushes_absorbed, 4 * OPS);
    assert_int_equal(counters->aggregates_out, WEFT_AGGREGATE_SLOTS + 1);
    bench_close(&b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

/* BSP, everybody there: one message to the shard for each clock. */
static void all_there(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_BSP, 5);
    b.config.push_bytes_max = 4096;
    b.config.push_slots = 2;
    b.config.count_max = 0;
    b.config.age_ns = WEFT_NS_PER_S;
    box_kill(&b);
    bench_quiet(&b);
    box_start(&b);
    bench_quiet(&b);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t w = 0; w < 4; w++) {
            push(&b, w, 0);
        }
        end_clock(&b);
        wait_all(&b);
    }
    check_sums(&b);
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.agg);
    assert_int_equal(counters->pushes_in, 40);
    assert_int_equal(counters->pushes_absorbed, 40);
    assert_int_equal(counters->pushes_direct, 0);
    assert_int_equal(counters->aggregates_out, 10);
    assert_int_equal(counters->flushed_all, 10);
    assert_true(counters->rows_out < counters->rows_in);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->aggregates, 10);
    assert_int_equal(shard->aggregate_pushes, 40);
    assert_int_equal(shard->pushes, 40);
    assert_int_equal(shard->aggregate_gradients, counters->rows_in);
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
    }
    bench_close(&b);
}

/* BSP: rows that all workers want are asked for once a clock, and the shard answers one pull. */
static void asked_once(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, WEFT_TABLE_BSP, 5);
    b.config.pull_slots = 4;
    b.config.pull_rows_max = 100;
    b.config.cache_bytes = 1 << 20;
    b.config.push_bytes_max = 4096;
    box_kill(&b);
    bench_quiet(&b);
    box_start(&b);
    bench_quiet(&b);
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
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.agg);
    assert_int_equal(counters->pulls_in, 32);
    assert_int_equal(counters->pulls_answered, 32);
    assert_int_equal(counters->pulls_direct, 0);
    assert_int_equal(counters->pull_rows_in, 32 * PULL_IDS);
    assert_int_equal(counters->pull_rows_fetched, 8 * (PULL_IDS + 3 * 10));
    assert_int_equal(counters->pull_rows_in, counters->pull_rows_fetched +
                                                 counters->pull_rows_kept +
                                                 counters->pull_rows_shared);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(shard->rows_pulled, counters->pull_rows_fetched);
    for (uint32_t w = 0; w < 4; w++) {
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_pulls, 8);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->via_answered, 8);
    }
    bench_close(&b);
}

/* A bench whose aggregator answers pulls and keeps what it has. */
static void bench_open_pulls(struct bench *b, uint32_t workers, uint8_t mode)
{
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open(b, workers, mode, 5);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    b->config.pull_slots = 4;
    b->config.pull_rows_max = 100;
    b->config.cache_bytes = 1 << 20;
    b->config.pull_age_ns = 1000000 * WEFT_NS_PER_S;
    b->config.pull_patience_ns = WEFT_NS_PER_S / 2;
    b->config.push_bytes_max = 4096;
    b->config.push_slots = 2;
    b->config.count_max = 1;
    box_kill(b);
    bench_quiet(b);
    box_start(b);
    for (uint32_t steps = 0; steps < 200000; steps++) { /* until workers try again */
        bench_step(b);
    }
    bench_quiet(b);
}

static struct fake_message *to_box(struct bench *b)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &b->c.net->messages[i];
        if (m->live && m->from == SHARD && m->to == b->box) {
            return m;
        }
    }
    return NULL;
}

/* The answer to a request for rows waits for the transport while a clock ends: its rows are of the version of
 * before, and so it must say, or the aggregator gives them out as those of the new one. */
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
    to_box(&b)->held = true; /* and while it is there no other one fits */
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
    assert_int_equal(weft_aggregator_counters(b.agg)->pulls_answered, 2);
    pull_start(&b, 0, &after, PULL_IDS);
    pull_check(&b, 0, &after);
    assert_int_equal(weft_aggregator_counters(b.agg)->pulls_answered, 3);
    bench_close(&b);
}

/* Another process of the shard comes back with nothing: no row of the one before is given out. */
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
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(b.agg);
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
    for (uint32_t w = 2;
         w-- > 0;) { /* first the one that has pushed nothing: any age will do for it */
        pull_start(&b, w, &pull, 0);
        pull_check(&b, w, &pull);
    }
    assert_int_equal(counters->pulls_answered, 4); /* by it again */
    assert_int_equal(counters->fetches_out, 2);
    bench_close(&b);
}

/* A second aggregator with the number of one that is there: refused, and told so; the first goes on. */
static void number_taken(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2, WEFT_TABLE_BSP, 3);
    const uint32_t other = b.box + 1;
    struct weft_aggregator *second;
    struct weft_msg_event event;
    weft_peer peer;
    bool for_good;
    b.c.net->nodes[other].name = weft_rpc_aggregator_name(SHARD, 0);
    b.c.net->nodes[other].incarnation = 999;
    assert_int_equal(weft_aggregator_new(&b.config, fake_msgr(b.c.net, other), &second), WEFT_OK);
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
    weft_aggregator_gauges(b.agg, &gauges);
    assert_true(gauges.shard_up);
    /* It asks again; the first has asked for something meanwhile, and then does not for a second. */
    const uint64_t pauses[] = {0, WEFT_NS_PER_S / 2, WEFT_NS_PER_S};
    for (uint32_t i = 0; i < 3; i++) {
        b.c.net->now_ns += pauses[i];
        weft_aggregator_connect(second, fake_peer(SHARD));
        fake_connect(b.c.net, SHARD, other);
        cluster_poll(&b.c);
        const uint64_t refused = weft_shard_counters(b.c.shard[SHARD])->aggregators_refused;
        assert_int_equal(refused, i < 2 ? i + 2 : 3);
        assert_true(weft_shard_take_replaced(b.c.shard[SHARD], &peer, &for_good) && for_good);
        assert_true(peer == fake_peer(i < 2 ? other : b.box));
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

/* What is lost on the way to the aggregator is lost; nothing is on the way from it. */
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
        uint64_t resent = weft_aggregator_counters(b.agg)->pushes_direct;
        if (resent == 0) {
            assert_int_equal(shard->elements_applied, got);
            lost += sent - got;
        }
        bench_close(&b);
    }
    assert_true(lost > 0);
}

enum fault {
    FAULT_BOX_DIES,
    FAULT_BOX_FROM_SHARD,
    FAULT_BOX_FROM_WORKER,
    FAULT_WORKER_FROM_SHARD,
    FAULT_BOX_HANGS,
    FAULT_COUNT
};

static void fault(struct bench *b)
{
    struct fake_net *net = b->c.net;
    uint32_t w = (uint32_t)weft_prng_below(&b->prng, b->c.workers);
    switch (weft_prng_below(&b->prng, FAULT_COUNT)) {
    case FAULT_BOX_DIES:
        if (b->agg != NULL) {
            box_kill(b);
        } else {
            box_start(b);
        }
        break;
    case FAULT_BOX_FROM_SHARD:
        if (b->agg != NULL && !net->cut[SHARD][b->box]) {
            fake_break(net, SHARD, b->box);
        }
        break;
    case FAULT_BOX_FROM_WORKER:
        if (b->agg != NULL && !net->cut[1 + w][b->box]) {
            fake_break(net, 1 + w, b->box);
        }
        break;
    case FAULT_WORKER_FROM_SHARD:
        if (!net->cut[SHARD][1 + w]) {
            fake_break(net, SHARD, 1 + w);
        }
        break;
    case FAULT_BOX_HANGS: /* what it sends is held up for longer than the workers wait */
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            net->messages[i].held |= net->messages[i].live && net->messages[i].from == b->box;
        }
        for (uint32_t i = 0; i < 40; i++) {
            net->now_ns += 100000;
            bench_step(b);
        }
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            net->messages[i].held = false;
        }
        break;
    default:
        break;
    }
    cluster_poll(&b->c);
    box_poll(b);
    connect_all(b);
}

/* Several workers want nearly the same rows. */
static void pull_some(struct bench *b)
{
    struct pull pull[WORKERS_MAX];
    const uint32_t first = (uint32_t)weft_prng_below(&b->prng, IDS);
    const uint32_t count = 1 + (uint32_t)weft_prng_below(&b->prng, b->c.workers);
    for (uint32_t w = 0; w < count; w++) {
        pull_start(b, w, &pull[w], first + (uint32_t)weft_prng_below(&b->prng, 10));
        for (uint32_t s = (uint32_t)weft_prng_below(&b->prng, 10); s > 0; s--) {
            bench_step(b);
        }
    }
    for (uint32_t w = 0; w < count; w++) {
        pull_check(b, w, &pull[w]);
    }
}

static void random_job(uint64_t seed, struct weft_shard_counters *sum,
                       struct weft_ps_client_counters *workers)
{
    struct bench b;
    struct weft_prng prng;
    weft_prng_init(&prng, seed * 77);
    const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    bench_open(&b, 2 + (uint32_t)weft_prng_below(&prng, WORKERS_MAX - 1),
               modes[weft_prng_below(&prng, 3)], seed);
    uint32_t faults = (uint32_t)weft_prng_below(&prng, 8);
    for (uint32_t clock = 0; clock < 6; clock++) {
        for (uint32_t n = 0; n < 2 * b.c.workers; n++) {
            push(&b, (uint32_t)weft_prng_below(&b.prng, b.c.workers), 0);
            for (uint32_t s = (uint32_t)weft_prng_below(&b.prng, 30); s > 0; s--) {
                bench_step(&b);
            }
            if (weft_prng_below(&b.prng, 3) == 0) {
                pull_some(&b);
            }
            if (faults > 0 && weft_prng_below(&b.prng, 8) == 0) {
                faults--;
                fault(&b);
            }
        }
        end_clock(&b);
    }
    if (b.agg == NULL) {
        box_start(&b);
    }
    wait_all(&b);
    check_sums(&b);
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    assert_false(weft_shard_busy(b.c.shard[SHARD]));
    sum->aggregates += shard->aggregates;
    sum->aggregates_refused += shard->aggregates_refused;
    sum->aggregate_pushes += shard->aggregate_pushes;
    sum->pushes += shard->pushes;
    for (uint32_t w = 0; w < b.c.workers; w++) {
        workers->via_answered += weft_ps_client_counters(b.c.client[w])->via_answered;
        workers->via_pulls_direct += weft_ps_client_counters(b.c.client[w])->via_pulls_direct;
    }
    bench_close(&b);
}

static void whatever_happens(void **state)
{
    (void)state;
    const char *first = getenv("WEFT_TEST_SEED"), *count = getenv("WEFT_TEST_SEEDS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 0) : 1;
    uint64_t end = seed + (count != NULL ? strtoull(count, NULL, 0) : first != NULL ? 1 : SEEDS);
    struct weft_shard_counters sum = {0};
    struct weft_ps_client_counters workers = {0};
    for (; seed < end; seed++) {
        random_job(seed, &sum, &workers);
    }
    print_message("%llu aggregates of %llu pushes, %llu refused; %llu pushes in all\n",
                  (unsigned long long)sum.aggregates, (unsigned long long)sum.aggregate_pushes,
                  (unsigned long long)sum.aggregates_refused, (unsigned long long)sum.pushes);
    print_message("%llu pulls answered by the aggregator, %llu sent on to the shard\n",
                  (unsigned long long)workers.via_answered,
                  (unsigned long long)workers.via_pulls_direct);
    if (first == NULL) { /* the jobs are such that all of this happens */
        assert_true(sum.aggregates > 10 * SEEDS && sum.aggregates_refused > 0);
        assert_true(sum.aggregate_pushes > sum.aggregates);
        assert_true(sum.pushes > sum.aggregate_pushes);
        assert_true(workers.via_answered > 10 * SEEDS && workers.via_pulls_direct > SEEDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_there),
        cmocka_unit_test(by_age),
        cmocka_unit_test(a_busy_shard),        cmocka_unit_test(asked_once),
        cmocka_unit_test(an_answer_waits),  cmocka_unit_test(rows_of_another_process),
        cmocka_unit_test(number_taken),     cmocka_unit_test(loss),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
