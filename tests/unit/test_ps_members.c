/* A table after the death of a worker, by --on-worker-death: the workers that clocks wait for, the
 * divisor of a mean, and the first clock of workers that join late or again. */
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t id = 7;

static struct weft_table_spec spec_of(uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){.dim = 1,
                                    .mode = mode,
                                    .workers = workers,
                                    .learning_rate = 1,
                                    .staleness = mode == WEFT_TABLE_SSP ? 2 : 0};
}

static struct cluster *cluster_new(struct cluster_config *config, uint32_t workers, uint64_t seed)
{
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    cluster_start(c, config, workers, seed);
    return c;
}

static struct cluster *shrinking(uint32_t workers, uint64_t seed)
{
    struct cluster_config config = cluster_config(1, workers);
    config.shard.on_death = WEFT_DEATH_SHRINK;
    return cluster_new(&config, workers, seed);
}

static void cluster_free(struct cluster *c)
{
    cluster_stop(c);
    free(c);
}

static void open_one(struct cluster *c, uint32_t w, const struct weft_table_spec *spec)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_table_open(c->client[w], spec, c->net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(c, w, op).status, WEFT_OK);
}

static void push(struct cluster *c, uint32_t w, float gradient)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[w], 0, &id, &gradient, 1, 0, c->net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(c, w, op).status, WEFT_OK);
}

static float pull(struct cluster *c, uint32_t w)
{
    weft_ps_op op;
    float row = 0;
    assert_int_equal(weft_ps_pull(c->client[w], 0, &id, &row, 1, 0, c->net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(c, w, op).status, WEFT_OK);
    return row;
}

static void step(struct cluster *c, uint32_t w, float gradient)
{
    push(c, w, gradient);
    cluster_clock(c, w, 0);
}

static void die(struct cluster *c, uint32_t w)
{
    fake_kill(c->net, c->shards + w);
    cluster_poll(c);
}

/* Start a new process of the rank on the same node. */
static void come_back(struct cluster *c, uint32_t w)
{
    struct fake_node *node = &c->net->nodes[c->shards + w];
    struct cluster_config config = cluster_config(c->shards, c->workers);
    weft_peer peers[FAKE_NODES];
    weft_ps_client_free(c->client[w]);
    node->dead = false;
    node->events_head = node->events_tail = 0;
    node->incarnation++;
    memset(node->expects, 0, sizeof(node->expects));
    config.client.worker = w;
    config.client.clock_ns = fake_clock_ns;
    config.client.clock_arg = c->net;
    for (uint32_t s = 0; s < c->shards; s++) {
        peers[s] = fake_peer(s);
    }
    assert_int_equal(
        weft_ps_client_new(&config.client, fake_msgr(c->net, node->index), peers, &c->client[w]),
        WEFT_OK);
    for (uint32_t s = 0; s < c->shards; s++) {
        fake_connect(c->net, node->index, s);
    }
    cluster_poll(c);
}

/* ---- wait, fail ------------------------------------------------------------------------------ */

static void by_default_the_clock_stands(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster *c = cluster_new(&config, 2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    step(c, 0, -2);
    die(c, 1);
    cluster_run(c);
    uint32_t rank;
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 0);
    assert_false(weft_shard_has_lost(c->shard[0], &rank));
    come_back(c, 1);
    open_one(c, 1, &spec);
    step(c, 1, -4);
    assert_true(pull(c, 0) == 3); /* (2 + 4) / 2 */
    cluster_free(c);
}

static void to_fail_is_to_say_who_died(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 3);
    config.shard.on_death = WEFT_DEATH_FAIL;
    struct cluster *c = cluster_new(&config, 3, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 3);
    uint32_t rank = 77;
    open_one(c, 1, &spec);
    die(c, 2); /* it had pushed nothing */
    cluster_run(c);
    assert_false(weft_shard_has_lost(c->shard[0], &rank));
    die(c, 1);
    assert_true(weft_shard_has_lost(c->shard[0], &rank));
    assert_int_equal(rank, 1);
    cluster_free(c);
}

static void who_says_goodbye_has_not_died(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    config.shard.on_death = WEFT_DEATH_FAIL;
    struct cluster *c = cluster_new(&config, 2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    uint32_t rank;
    cluster_open(c, &spec);
    const struct weft_msg_event closed = {
        .type = WEFT_EVENT_PEER_DOWN, .peer = fake_peer(1), .down = WEFT_DOWN_CLOSED};
    weft_shard_event(c->shard[0], &closed, c->net->now_ns);
    assert_false(weft_shard_has_lost(c->shard[0], &rank));
    /* The other worker restarts before its death is detected. */
    c->net->nodes[2].incarnation = 5;
    fake_connect(c->net, 2, 0);
    cluster_poll(c);
    assert_true(weft_shard_has_lost(c->shard[0], &rank));
    assert_int_equal(rank, 1);
    cluster_free(c);
}

/* ---- shrink: who is waited for, what is divided by ------------------------------------------- */

static void the_clock_goes_on_without_the_dead(void **state)
{
    (void)state;
    struct cluster *c = shrinking(3, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 3);
    cluster_open(c, &spec);
    step(c, 0, -6);
    step(c, 1, -6);
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 0);
    die(c, 2); /* it has pushed nothing: the mean is that of two */
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 1);
    assert_true(pull(c, 0) == 6);
    step(c, 0, -6);
    step(c, 1, -6);
    assert_true(pull(c, 1) == 12);
    cluster_free(c);
}

static void what_the_dead_pushed_counts_and_so_do_they(void **state)
{
    (void)state;
    struct cluster *c = shrinking(3, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 3);
    cluster_open(c, &spec);
    push(c, 2, -6); /* its clock is not finished */
    die(c, 2);
    step(c, 0, -6);
    step(c, 1, -6);
    assert_true(pull(c, 0) == 6); /* 18 / 3 */
    step(c, 0, -6);
    step(c, 1, -6);
    assert_true(pull(c, 0) == 12); /* 12 / 2 */
    assert_int_equal(weft_shard_counters(c->shard[0])->clocks_skipped, 1);
    cluster_free(c);
}

static void pulls_that_waited_for_the_dead_are_answered(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    step(c, 0, -2);
    weft_ps_op op;
    float row = 0;
    assert_int_equal(weft_ps_pull(c->client[0], 0, &id, &row, 1, 0, 0, &op), WEFT_OK);
    cluster_run(c);
    assert_false(weft_ps_op_done(c->client[0], op, NULL));
    die(c, 1);
    assert_int_equal(cluster_wait(c, 0, op).status, WEFT_OK);
    assert_true(row == 2);
    cluster_free(c);
}

static void nobody_left_the_clock_stands(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    step(c, 0, -2);
    step(c, 1, -2);
    cluster_run(c);
    die(c, 0);
    die(c, 1);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 1);
    come_back(c, 1);
    open_one(c, 1, &spec);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 1);
    step(c, 1, -5);
    assert_true(pull(c, 1) == 7);
    cluster_free(c);
}

/* ---- shrink: who comes ----------------------------------------------------------------------- */

static void who_comes_late_joins_the_clock_in_progress(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    open_one(c, 0, &spec);
    step(c, 0, -1);
    step(c, 0, -1);
    cluster_run(c);
    assert_true(pull(c, 0) == 2);
    open_one(c, 1, &spec);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 2);
    step(c, 0, -8);
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 2); /* clocks wait for it from now on */
    step(c, 1, -4);
    assert_true(pull(c, 1) == 8); /* 2 + (8 + 4) / 2 */
    cluster_free(c);
}

static void who_comes_back_joins_the_clock_in_progress(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    die(c, 1);
    for (int i = 0; i < 5; i++) {
        step(c, 0, -1);
    }
    cluster_run(c);
    come_back(c, 1);
    open_one(c, 1, &spec);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 5);
    step(c, 0, -4);
    step(c, 1, -4);
    assert_true(pull(c, 1) == 9);
    cluster_free(c);
}

/* A connection that is declared dead although its process lives: its requests have no effect until
 * it opens the table again. */
static void who_was_taken_out_cannot_push(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    c->net->nodes[2].incarnation = 9;
    cluster_open(c, &spec);
    const struct weft_msg_event down = {
        .type = WEFT_EVENT_PEER_DOWN, .peer = fake_peer(2), .down = WEFT_DOWN_SILENT};
    weft_shard_event(c->shard[0], &down, c->net->now_ns);
    fake_connect(c->net, 0, 2);
    cluster_poll(c);
    weft_ps_op op;
    const float gradient = -2;
    assert_int_equal(weft_ps_push(c->client[1], 0, &id, &gradient, 1, 0, 0, &op), WEFT_OK);
    struct weft_ps_result result = cluster_wait(c, 1, op);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_STALE_CLOCK);
    cluster_free(c);
}

/* ---- SSP and ASP ----------------------------------------------------------------------------- */

static void ssp_does_not_wait_for_the_dead(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_SSP, 2);
    cluster_open(c, &spec);
    for (int i = 0; i < 3; i++) {
        step(c, 0, -2);
    }
    weft_ps_op op;
    float row = 0;
    assert_int_equal(weft_ps_pull(c->client[0], 0, &id, &row, 1, 0, 0, &op), WEFT_OK);
    cluster_run(c);
    assert_false(weft_ps_op_done(c->client[0], op, NULL));
    die(c, 1);
    assert_int_equal(cluster_wait(c, 0, op).status, WEFT_OK);
    assert_true(row == 3);
    step(c, 0, -2); /* alone: the whole gradient */
    assert_true(pull(c, 0) == 5);
    cluster_run(c);
    come_back(c, 1);
    open_one(c, 1, &spec);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 4);
    step(c, 1, -2);
    assert_true(pull(c, 1) == 6);
    cluster_free(c);
}

static void asp_divides_by_those_there_are(void **state)
{
    (void)state;
    struct cluster *c = shrinking(4, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 4);
    open_one(c, 0, &spec);
    push(c, 0, -8);
    assert_true(pull(c, 0) == 8);
    open_one(c, 1, &spec);
    push(c, 1, -8);
    assert_true(pull(c, 0) == 12);
    die(c, 1);
    push(c, 0, -8);
    assert_true(pull(c, 0) == 20);
    cluster_free(c);
}

/* ---- the driver's word ----------------------------------------------------------------------- */

static void a_supervisor_knows_first(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    weft_peer peer;
    bool for_good;
    cluster_open(c, &spec);
    step(c, 0, -2);
    cluster_run(c);
    weft_shard_worker_died(c->shard[0], 1, 0, c->net->now_ns); /* the previous process */
    weft_shard_worker_died(c->shard[0], 9, UINT64_MAX, c->net->now_ns);
    assert_false(weft_shard_take_replaced(c->shard[0], &peer, &for_good));
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 0);
    weft_shard_worker_died(c->shard[0], 1, c->net->now_ns, c->net->now_ns);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 1);
    assert_true(weft_shard_take_replaced(c->shard[0], &peer, &for_good));
    assert_int_equal(peer, fake_peer(2));
    assert_false(for_good);
    cluster_free(c);
}

/* ---- several processes of one rank ----------------------------------------------------------- */

static void process_up(struct cluster *c, weft_peer peer, uint64_t incarnation)
{
    const struct weft_msg_event up = {.type = WEFT_EVENT_PEER_UP,
                                      .peer = peer,
                                      .name = weft_rpc_name(WEFT_ROLE_WORKER, 1),
                                      .incarnation = incarnation};
    weft_shard_event(c->shard[0], &up, c->net->now_ns);
}

static void process_gone(struct cluster *c, weft_peer peer)
{
    const struct weft_msg_event down = {
        .type = WEFT_EVENT_PEER_DOWN, .peer = peer, .down = WEFT_DOWN_SILENT};
    weft_shard_event(c->shard[0], &down, c->net->now_ns);
}

static void assert_closed(struct cluster *c, weft_peer expected, bool expected_for_good)
{
    weft_peer peer;
    bool for_good;
    assert_true(weft_shard_take_replaced(c->shard[0], &peer, &for_good));
    assert_int_equal(peer, expected);
    assert_int_equal(for_good, expected_for_good);
    assert_false(weft_shard_take_replaced(c->shard[0], &peer, &for_good));
}

static void assert_none_closed(struct cluster *c)
{
    weft_peer peer;
    bool for_good;
    assert_false(weft_shard_take_replaced(c->shard[0], &peer, &for_good));
}

/* The first process hung, and so did the second; the third is working when both resume. */
static void whoever_lost_the_rank_does_not_get_it_back(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    process_gone(c, fake_peer(2));
    process_up(c, 50, 10);
    process_up(c, 51, 20);
    assert_closed(c, 50, true);
    process_up(c, 52, 30);
    assert_closed(c, 51, true);
    process_up(c, 53, 10);
    assert_closed(c, 53, true);
    process_up(c, 54, 20);
    assert_closed(c, 54, true);
    process_gone(c, 52); /* not even if the rank is free */
    process_up(c, 55, 10);
    assert_closed(c, 55, true);
    process_up(c, 56, 30);
    assert_none_closed(c);
    process_up(c, 57, 30); /* the same process over a new connection */
    assert_closed(c, 56, false);
    assert_int_equal(weft_shard_counters(c->shard[0])->workers_replaced, 3);
    assert_int_equal(weft_shard_counters(c->shard[0])->workers_refused, 3);
    cluster_free(c);
}

/* A process dies, and its packets arrive late: it seems to connect while its successor's connection
 * is broken. The successor keeps the rank. Later a process whose host's clock is behind connects
 * instead. */
static void a_late_connection_takes_no_rank(void **state)
{
    (void)state;
    const uint64_t dead = UINT64_C(1) << 40, successor = dead + 1;
    struct cluster *c = shrinking(2, 1);
    process_gone(c, fake_peer(2));
    process_up(c, 50, successor);
    process_gone(c, 50);
    process_up(c, 51, dead);
    assert_closed(c, 51, false);
    process_gone(c, 51);
    process_up(c, 52, successor);
    assert_none_closed(c);
    process_gone(c, 52);
    c->net->now_ns += WEFT_NS_PER_S;
    process_up(c, 53, dead);
    assert_none_closed(c);
    cluster_free(c);
}

/* Hundreds of consecutive processes of a rank whose clocks differ slightly: none that lost the rank
 * gets it back, and no new one is refused. */
static void the_memory_of_replaced_processes_is_bounded(void **state)
{
    (void)state;
    enum { PROCESSES = 300 };
    struct cluster *c = shrinking(2, 1);
    process_gone(c, fake_peer(2));
    for (uint64_t i = 1; i <= PROCESSES; i++) {
        uint64_t incarnation = 1000 * i + (i % 7) * 1500; /* the next may be smaller */
        c->net->now_ns += WEFT_NS_PER_S;
        process_up(c, 100, incarnation);
        assert_none_closed(c);
        process_gone(c, 100);
        for (uint64_t before = 1; before < i; before++) {
            process_up(c, 101, 1000 * before + (before % 7) * 1500);
            assert_closed(c, 101, true);
        }
    }
    cluster_free(c);
}

/* A process that hung before its first connection may connect when the rank has been free for a
 * second, not earlier. */
static void an_older_process_waits_for_the_rank(void **state)
{
    (void)state;
    struct cluster *c = shrinking(2, 1);
    process_gone(c, fake_peer(2));
    process_up(c, 50, 20);
    process_up(c, 51, 10);
    assert_closed(c, 51, false);
    process_gone(c, 50);
    process_up(c, 52, 10);
    assert_closed(c, 52, false);
    c->net->now_ns += WEFT_NS_PER_S;
    process_up(c, 53, 10);
    assert_none_closed(c);
    cluster_free(c);
}

/* ---- at random ------------------------------------------------------------------------------- */

/* Each worker pushes 1 in each clock that it takes part in, so each clock changes the row by
 * exactly 1, whichever workers die or join in it; clocks continue while any worker lives. */
enum { RANDOM_WORKERS = 4, RANDOM_CLOCKS = 30 };

struct walker {
    bool dead, opening, pushing, ready;
    weft_ps_op op;
};

static void walk(struct cluster *c, struct walker *walker, uint32_t w,
                 const struct weft_table_spec *spec)
{
    static const float gradient = -1;
    struct weft_ps_client *client = c->client[w];
    struct weft_ps_result result;
    bool waits = walker->opening || walker->pushing;
    if (waits && !weft_ps_op_done(client, walker->op, &result)) {
        return;
    }
    if (waits) {
        assert_int_equal(result.status, WEFT_OK);
        weft_ps_op_release(client, walker->op);
        walker->ready |= walker->opening;
    }
    if (walker->pushing) {
        assert_int_equal(weft_ps_clock(client, 0, c->net->now_ns), WEFT_OK);
    }
    walker->opening = walker->pushing = false;
    if (!walker->ready) {
        walker->opening = true;
        assert_int_equal(weft_ps_table_open(client, spec, c->net->now_ns, &walker->op), WEFT_OK);
    } else if (weft_ps_clock_accepted(client, 0)) {
        walker->pushing = true;
        assert_int_equal(weft_ps_push(client, 0, &id, &gradient, 1, 0, c->net->now_ns, &walker->op),
                         WEFT_OK);
    }
}

static void fate(struct cluster *c, struct weft_prng *prng, struct walker *walkers)
{
    uint32_t w = (uint32_t)weft_prng_below(prng, RANDOM_WORKERS);
    if (walkers[w].dead) {
        come_back(c, w);
        walkers[w] = (struct walker){0};
    } else {
        die(c, w);
        walkers[w] = (struct walker){.dead = true};
    }
}

static void random_run(uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct cluster *c = shrinking(RANDOM_WORKERS, seed);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, RANDOM_WORKERS);
    struct walker walkers[RANDOM_WORKERS] = {0};
    uint32_t turns = 0;
    while (weft_shard_clock(c->shard[0], 0) < RANDOM_CLOCKS) {
        assert_in_range(turns++, 0, 100000);
        (void)cluster_step(c);
        uint32_t w = (uint32_t)weft_prng_below(&prng, RANDOM_WORKERS);
        if (!walkers[w].dead) {
            walk(c, &walkers[w], w, &spec);
        }
        if (weft_prng_below(&prng, 40) == 0) {
            fate(c, &prng, walkers);
        }
    }
    struct walker *reader = walkers;
    if (!reader->dead) {
        die(c, 0);
    }
    come_back(c, 0);
    open_one(c, 0, &spec);
    /* The others continue; a pull returns at least the requested clock. */
    for (uint32_t w = 1; w < RANDOM_WORKERS; w++) {
        if (!walkers[w].dead) {
            die(c, w);
        }
    }
    float row = pull(c, 0);
    assert_true(row == (float)weft_shard_clock(c->shard[0], 0));
    cluster_free(c);
}

static void whoever_dies_each_clock_counts_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        print_message("seed %u\n", (unsigned)seed);
        random_run(seed);
    }
}

/* A worker's connection to one of two shards breaks: that shard continues without it, the other one
 * waits. */
static void who_was_away_goes_on_where_the_others_are(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 2);
    config.shard.on_death = WEFT_DEATH_SHRINK;
    config.shard.chunks_max = 64;
    config.incarnation = 10;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    struct cluster *c = cluster_new(&config, 2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    step(c, 0, -2);
    step(c, 1, -2);
    cluster_run(c);
    fake_break(c->net, 0, 3);
    cluster_run(c);
    step(c, 0, -2);
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 2);
    assert_int_equal(weft_shard_clock(c->shard[1], 0), 1);
    assert_int_equal(weft_ps_client_reconnect(c->client[1], 0, fake_peer(0), 0), WEFT_OK);
    fake_connect(c->net, 0, 3);
    cluster_poll(c);
    cluster_run(c);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 2);
    assert_int_equal(weft_shard_clock(c->shard[1], 0), 2);
    step(c, 0, -2);
    step(c, 1, -4);
    float alone = weft_table_spec_shard(&spec, id, 2) == 0 ? 2 : 1;
    assert_true(pull(c, 0) == 2 + alone + 3);
    assert_true(pull(c, 1) == 2 + alone + 3);
    cluster_free(c);
}

/* The clock of rows is that of the second fastest worker; a worker that left counts as the slowest
 * of the others. */
static void the_clock_of_rows_goes_on_without_the_slowest(void **state)
{
    (void)state;
    const uint8_t modes[] = {WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    for (uint32_t m = 0; m < 2; m++) {
        struct cluster *c = shrinking(2, 1);
        struct weft_table_spec spec = spec_of(modes[m], 2);
        cluster_open(c, &spec);
        for (uint32_t i = 0; i < 10; i++) {
            step(c, 0, 1);
        }
        step(c, 1, 1);
        cluster_run(c);
        assert_int_equal(weft_shard_table(c->shard[0], 0)->now, 2);
        die(c, 1);
        assert_int_equal(weft_shard_table(c->shard[0], 0)->now, 11);
        step(c, 0, 1);
        cluster_run(c);
        assert_int_equal(weft_shard_table(c->shard[0], 0)->now, 12);
        cluster_free(c);
    }
}

enum { MANY = 200 };

static weft_ps_op push_many(struct cluster *c, uint32_t w)
{
    uint64_t ids[MANY];
    float rows[MANY];
    weft_ps_op op;
    for (uint32_t i = 0; i < MANY; i++) {
        ids[i] = i;
        rows[i] = -1;
    }
    assert_int_equal(weft_ps_push(c->client[w], 0, ids, rows, MANY, 0, c->net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static void comes_back_to(struct cluster *c, uint32_t w, uint32_t shard)
{
    assert_int_equal(weft_ps_client_reconnect(c->client[w], shard, fake_peer(shard), 0), WEFT_OK);
    fake_connect(c->net, shard, c->shards + w);
    cluster_poll(c);
}

/* A push has been in flight for this many steps when its connection to one of two shards breaks,
 * and that shard ends the clock without this worker. Applied chunks count, the rest is reported as
 * missing, and all workers continue. */
static void pass_a_push(uint32_t steps, uint64_t *passed_p, uint64_t *partly_p)
{
    struct cluster_config config = cluster_config(2, 2);
    config.shard.on_death = WEFT_DEATH_SHRINK;
    config.shard.chunks_max = 64;
    config.incarnation = 10;
    config.client.can = 0; /* chunks of 24 rows, except the first and the last */
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    struct cluster *c = cluster_new(&config, 2, steps);
    c->net->packet_bytes = 200;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    weft_ps_op late = push_many(c, 1), other = push_many(c, 0);
    for (uint32_t i = 0; i < steps; i++) {
        (void)cluster_step(c);
    }
    fake_break(c->net, 0, 3);
    uint64_t sent = cluster_wait(c, 0, other).elements_delivered;
    assert_int_equal(sent, MANY);
    cluster_clock(c, 0, 0);
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 1);
    assert_int_equal(weft_shard_clock(c->shard[1], 0), 0);
    comes_back_to(c, 1, 0);
    struct weft_ps_result result = cluster_wait(c, 1, late);
    assert_int_equal(result.status, WEFT_OK);
    uint64_t passed = weft_ps_client_counters(c->client[1])->pushes_skipped;
    assert_int_equal(result.rpcs_short, passed);
    assert_int_equal(result.elements_delivered == MANY, passed == 0);
    uint64_t applied = weft_shard_counters(c->shard[0])->elements_applied +
                       weft_shard_counters(c->shard[1])->elements_applied;
    /* Chunks are reported as full ones, although the first and the last are shorter. */
    assert_in_range(applied - MANY - result.elements_delivered, 0, 20);
    *passed_p += passed;
    *partly_p +=
        passed > 0 && applied > MANY + weft_shard_counters(c->shard[1])->elements_applied / 2;
    cluster_clock(c, 1, 0); /* the clock of the push: no clock is skipped or ended twice */
    cluster_run(c);
    assert_int_equal(weft_ps_clock_now(c->client[1], 0), 1);
    assert_int_equal(weft_shard_clock(c->shard[1], 0), 1);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(cluster_wait(c, w, push_many(c, w)).elements_delivered, MANY);
        cluster_clock(c, w, 0);
    }
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 2);
    assert_int_equal(weft_shard_clock(c->shard[1], 0), 2);
    cluster_free(c);
}

static void a_push_whose_clock_is_passed_is_absent(void **state)
{
    (void)state;
    uint64_t passed = 0, partly = 0;
    for (uint32_t steps = 0; steps < 40; steps++) {
        pass_a_push(steps, &passed, &partly);
    }
    assert_in_range(passed, 3, 40);
    assert_in_range(partly, 1, 40);
}

static struct fake_message *push_from(const struct cluster *c, uint32_t node)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &c->net->messages[i];
        if (m->live && m->from == node && m->send.tag >> 56 == WEFT_RPC_PUSH) {
            return m;
        }
    }
    return NULL;
}

/* The shard refuses it, and dies before the worker hears which chunks it refused. Those that
 * reached the shard are no evidence then. */
static void a_passed_push_without_an_end_is_absent(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    config.shard.on_death = WEFT_DEATH_SHRINK;
    config.shard.chunks_max = 64;
    config.incarnation = 10;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    struct cluster *c = cluster_new(&config, 2, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    cluster_open(c, &spec);
    weft_ps_op late = push_many(c, 1);
    fake_break(c->net, 0, 2);
    assert_int_equal(cluster_wait(c, 0, push_many(c, 0)).elements_delivered, MANY);
    cluster_clock(c, 0, 0);
    cluster_run(c);
    assert_int_equal(weft_shard_clock(c->shard[0], 0), 1);
    comes_back_to(c, 1, 0);
    struct fake_message *m;
    while ((m = push_from(c, 2)) == NULL || m->left > 0) {
        assert_true(cluster_step(c));
    }
    struct fake_message copy = *m;
    struct weft_msg_event *event = fake_event(&c->net->nodes[0], WEFT_EVENT_RECEIVED);
    fake_event_grid(&c->net->nodes[0], event, m, false);
    m->live = false;
    cluster_poll(c);
    cluster_run(c);
    assert_int_equal(weft_ps_client_counters(c->client[1])->pushes_skipped, 1);
    assert_false(weft_ps_op_done(c->client[1], late, NULL));
    copy.refused = 0; /* only DONE has it */
    event = fake_event(&c->net->nodes[2], WEFT_EVENT_SENT);
    fake_event_grid(&c->net->nodes[2], event, &copy, true);
    event->outcome = WEFT_MSG_UNKNOWN;
    cluster_poll(c);
    struct weft_ps_result result = cluster_wait(c, 1, late);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_sent, MANY);
    assert_int_equal(result.elements_delivered, 0);
    assert_int_equal(result.rpcs_short, 1);
    assert_int_equal(result.rows_missed, MANY);
    cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default_the_clock_stands),
        cmocka_unit_test(to_fail_is_to_say_who_died),
        cmocka_unit_test(who_says_goodbye_has_not_died),
        cmocka_unit_test(the_clock_goes_on_without_the_dead),
        cmocka_unit_test(what_the_dead_pushed_counts_and_so_do_they),
        cmocka_unit_test(pulls_that_waited_for_the_dead_are_answered),
        cmocka_unit_test(nobody_left_the_clock_stands),
        cmocka_unit_test(who_comes_late_joins_the_clock_in_progress),
        cmocka_unit_test(who_comes_back_joins_the_clock_in_progress),
        cmocka_unit_test(who_was_taken_out_cannot_push),
        cmocka_unit_test(ssp_does_not_wait_for_the_dead),
        cmocka_unit_test(asp_divides_by_those_there_are),
        cmocka_unit_test(a_supervisor_knows_first),
        cmocka_unit_test(whoever_lost_the_rank_does_not_get_it_back),
        cmocka_unit_test(a_late_connection_takes_no_rank),
        cmocka_unit_test(the_memory_of_replaced_processes_is_bounded),
        cmocka_unit_test(an_older_process_waits_for_the_rank),
        cmocka_unit_test(whoever_dies_each_clock_counts_once),
        cmocka_unit_test(who_was_away_goes_on_where_the_others_are),
        cmocka_unit_test(the_clock_of_rows_goes_on_without_the_slowest),
        cmocka_unit_test(a_push_whose_clock_is_passed_is_absent),
        cmocka_unit_test(a_passed_push_without_an_end_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
