/* Workers that close their connection to the shard while an aggregator delivers their requests: the
 * job continues, every gradient is applied once, and a rank is declared dead when its lease expires
 * without a request, not before, whichever other process dies. */
#include "fewer.h"
#include "ps_boxes.h"
#include "ps/transfer.h"

enum { SEEDS = FEWER(300), WORKERS = 3 };

static const uint64_t lease_ns = 20 * WEFT_NS_PER_MS;

/* ---- the job --------------------------------------------------------------------------------- */

static void open_job(struct bench *b, uint8_t mode, enum weft_worker_death death, uint64_t seed)
{
    park_lease_ns = lease_ns;
    park_pause_ns = 100000;
    on_death = death;
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    bench_open(b, WORKERS, mode, seed);
    b->box[0].config.push_bytes_max = 4096;
    b->box[0].config.push_slots = 2;
    b->box[0].config.pull_slots = 2;
    b->box[0].config.pull_rows_max = 100;
    b->box[0].config.age_ns = 100000;
    box_again(b, &b->box[0]);
}

static uint64_t parks_of(const struct bench *b)
{
    uint64_t parks = 0;
    for (uint32_t w = 0; w < b->c.workers; w++) {
        parks += weft_ps_client_counters(b->c.client[w])->parks;
    }
    return parks;
}

static struct weft_shard_gauges gauges_of(const struct bench *b)
{
    struct weft_shard_gauges gauges;
    weft_shard_gauges(b->c.shard[SHARD], b->c.net->now_ns, WEFT_NS_PER_S, &gauges);
    return gauges;
}

/* Includes pulls, whose replies report that a clock has begun. */
static void clock_of_all(struct bench *b)
{
    struct pull pull[WORKERS];
    for (uint32_t w = 0; w < b->c.workers; w++) {
        push(b, w, 0);
    }
    end_clock(b);
    wait_all(b);
    for (uint32_t w = 0; w < b->c.workers; w++) {
        pull_start(b, w, &pull[w], 0);
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        pull_check(b, w, &pull[w]);
    }
    bench_quiet(b);
}

/* Run clocks until every worker has parked its connection. */
static void until_parked(struct bench *b)
{
    for (uint32_t clocks = 0; gauges_of(b).workers_parked < b->c.workers; clocks++) {
        assert_true(clocks < CLOCKS_MAX - 4);
        clock_of_all(b);
    }
    assert_int_equal(gauges_of(b).workers_connected, 0);
    assert_int_equal(gauges_of(b).aggregators_connected, 1);
    for (uint32_t w = 0; w < b->c.workers; w++) {
        assert_true(weft_ps_client_parked(b->c.client[w], 0));
    }
}

static bool is_lost(const struct bench *b)
{
    uint32_t rank;
    return weft_shard_has_lost(b->c.shard[SHARD], &rank);
}

/* Let this time pass without requests. */
static void idle(struct bench *b, uint64_t span_ns)
{
    for (const uint64_t end_ns = b->c.net->now_ns + span_ns; b->c.net->now_ns < end_ns;) {
        bench_step(b);
    }
}

static weft_status ask(struct bench *b, uint32_t w)
{
    struct weft_ps_result result;
    weft_ps_op op;
    assert_int_equal(weft_ps_ask(b->c.client[w], 0, 0, b->c.net->now_ns, &op), WEFT_OK);
    for (uint32_t steps = 0; !weft_ps_op_done(b->c.client[w], op, &result); steps++) {
        assert_true(steps < 10000);
        bench_step(b);
    }
    weft_ps_op_release(b->c.client[w], op);
    return result.status;
}

static void close_job(struct bench *b)
{
    bench_close(b);
    reconnect_ns = WEFT_NS_PER_S;
    park_lease_ns = park_pause_ns = 0;
    on_death = WEFT_DEATH_WAIT;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The shard has one connection, that of its aggregator; pushes, pulls and clocks continue. */
static void job_goes_on(void **state)
{
    (void)state;
    const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    for (uint32_t m = 0; m < 3; m++) {
        struct bench b;
        open_job(&b, modes[m], WEFT_DEATH_FAIL, 5);
        until_parked(&b);
        const uint64_t direct = weft_shard_counters(b.c.shard[SHARD])->pulls;
        for (uint32_t i = 0; i < 3; i++) {
            clock_of_all(&b);
        }
        assert_int_equal(gauges_of(&b).workers_parked, WORKERS);
        assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->workers_parked, WORKERS);
        assert_true(weft_shard_counters(b.c.shard[SHARD])->pulls > direct);
        assert_int_equal(parks_of(&b), WORKERS);
        assert_int_equal(weft_ps_client_counters(b.c.client[0])->shard_disconnects, 0);
        check_sums(&b);
        assert_false(is_lost(&b));
        close_job(&b);
    }
}

/* A request that an aggregator does not accept reopens the connection: no broken connection is
 * reported, and the next pause is longer. */
static void direct_request(void **state)
{
    (void)state;
    struct bench b;
    struct weft_ps_resumed resumed;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    const uint64_t before_ns = b.c.net->now_ns;
    assert_int_equal(ask(&b, 1), WEFT_OK);
    assert_true(b.c.net->now_ns - before_ns < WEFT_NS_PER_MS);
    assert_int_equal(weft_ps_client_counters(b.c.client[1])->unparks, 1);
    assert_int_equal(gauges_of(&b).workers_parked, WORKERS - 1);
    assert_int_equal(gauges_of(&b).workers_connected, 1);
    assert_false(weft_ps_client_take_resumed(b.c.client[1], &resumed));
    assert_int_equal(weft_ps_client_counters(b.c.client[1])->resumes, 1);
    until_parked(&b);
    assert_int_equal(parks_of(&b), WORKERS + 1);
    check_sums(&b);
    close_job(&b);
}

/* The aggregator dies with pushes: workers send them to the shard over new connections, and they
 * count once. */
static void aggregator_dies(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    for (uint32_t w = 0; w < WORKERS; w++) {
        push(&b, w, 0);
    }
    for (uint32_t steps = 0; steps < 6; steps++) {
        bench_step(&b);
    }
    box_kill(&b, &b.box[0]);
    end_clock(&b);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    idle(&b, 5 * lease_ns);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    clock_of_all(&b);
    box_start(&b, &b.box[0]);
    idle(&b, WEFT_NS_PER_S + 5 * WEFT_NS_PER_MS); /* until workers reconnect to it */
    until_parked(&b);
    check_sums(&b);
    assert_false(is_lost(&b));
    close_job(&b);
}

/* Workers that are alive without requests reconnect in time and stay members. */
static void silence(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    idle(&b, 10 * lease_ns);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->workers_overdue, 0);
    assert_int_equal(parks_of(&b), WORKERS);
    clock_of_all(&b);
    check_sums(&b);
    assert_false(is_lost(&b));
    close_job(&b);
}

/* A parked worker dies: it is declared dead when its lease ends, not earlier. */
static void worker_dies(void **state)
{
    (void)state;
    struct bench b;
    uint32_t rank = 99;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    const uint64_t died_ns = b.c.net->now_ns;
    fake_kill(b.c.net, 1 + 2);
    idle(&b, lease_ns / 2);
    assert_false(is_lost(&b));
    assert_true(weft_shard_deadline(b.c.shard[SHARD]) <= died_ns + lease_ns);
    idle(&b, lease_ns);
    assert_true(weft_shard_has_lost(b.c.shard[SHARD], &rank));
    assert_int_equal(rank, 2);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->workers_overdue, 1);
    assert_int_equal(gauges_of(&b).workers_parked, 0);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS - 1);
    assert_int_equal(weft_shard_deadline(b.c.shard[SHARD]), WEFT_NEVER);
    close_job(&b);
}

/* The shard's process was stopped for longer than all leases: no worker is declared dead because of
 * that. A worker that is dead is declared dead one lease later. */
static void shard_is_stopped(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    b.c.net->now_ns += 200 * WEFT_NS_PER_MS;
    weft_shard_progress(b.c.shard[SHARD], b.c.net->now_ns);
    assert_false(is_lost(&b));
    assert_int_equal(gauges_of(&b).workers_parked, WORKERS);
    fake_kill(b.c.net, 1 + 2);
    idle(&b, lease_ns / 2);
    assert_false(is_lost(&b));
    idle(&b, lease_ns);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->workers_overdue, 1);
    assert_true(is_lost(&b));
    close_job(&b);
}

/* The same, reported by its supervisor. */
static void worker_reported_dead(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    fake_kill(b.c.net, 1 + 2);
    /* the report is about an earlier process */
    weft_shard_worker_died(b.c.shard[SHARD], 2, 1, b.c.net->now_ns);
    assert_false(is_lost(&b));
    weft_shard_worker_died(b.c.shard[SHARD], 2, b.c.net->now_ns, b.c.net->now_ns);
    assert_true(is_lost(&b));
    assert_int_equal(gauges_of(&b).workers_parked, WORKERS - 1);
    close_job(&b);
}

/* The clock continues without the worker after it is declared dead, not earlier. */
static void shrinks(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_SHRINK, 5);
    until_parked(&b);
    const uint32_t clock = weft_shard_clock(b.c.shard[SHARD], 0);
    fake_kill(b.c.net, 1 + 2);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    idle(&b, lease_ns / 2);
    assert_int_equal(weft_shard_clock(b.c.shard[SHARD], 0), clock);
    idle(&b, lease_ns);
    assert_int_equal(weft_shard_clock(b.c.shard[SHARD], 0), clock + 1);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->workers_left, 1);
    close_job(&b);
}

/* Another process gets the rank: a newer one replaces the parked one at once, an older one is
 * refused. */
static void another_process(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    const struct weft_shard_counters *counters = weft_shard_counters(b.c.shard[SHARD]);
    fake_kill(b.c.net, 1 + 2);
    fake_revive(b.c.net, 1 + 2);
    b.c.net->nodes[1 + 2].incarnation -= 50;
    fake_connect(b.c.net, SHARD, 1 + 2);
    bench_step(&b);
    assert_int_equal(counters->workers_refused, 1);
    assert_int_equal(gauges_of(&b).workers_parked, WORKERS);
    b.c.net->nodes[1 + 2].incarnation += 60;
    fake_connect(b.c.net, SHARD, 1 + 2);
    bench_step(&b);
    assert_int_equal(counters->workers_refused, 1);
    assert_int_equal(gauges_of(&b).workers_parked, WORKERS - 1);
    assert_true(is_lost(&b)); /* the previous process is lost */
    close_job(&b);
}

/* The shard restarts without state: the workers detect that and resume. */
static void shard_dies(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_ASP, WEFT_DEATH_WAIT, 5);
    until_parked(&b);
    fake_kill(b.c.net, SHARD);
    cluster_poll(&b.c);
    box_poll(&b);
    cluster_shard_free(&b.c, SHARD);
    fake_revive(b.c.net, SHARD);
    b.c.net->nodes[SHARD].incarnation += 1000;
    b.c.shard[SHARD] = cluster_shard_new(&b.c, &b.cluster, SHARD);
    memset(b.want, 0, sizeof(b.want));
    memset(b.sums, 0, sizeof(b.sums));
    idle(&b, lease_ns);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS); /* after the lack of commits */
    clock_of_all(&b);
    check_sums(&b);
    close_job(&b);
}

/* Without reconnect_ns a parked connection is still reopened, but only to the same process of the
 * shard; a connection that breaks later ends the job. */
static void without_reconnecting(void **state)
{
    (void)state;
    struct bench b;
    reconnect_ns = 0;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    assert_int_equal(ask(&b, 1), WEFT_OK);
    assert_int_equal(gauges_of(&b).workers_connected, 1);
    until_parked(&b);
    box_kill(&b, &b.box[0]);
    clock_of_all(&b);
    check_sums(&b);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    assert_false(is_lost(&b));
    assert_true(weft_ps_client_parked(b.c.client[0], 0) == false);
    fake_break(b.c.net, SHARD, 1 + 0);
    bench_step(&b);
    assert_int_equal(ask(&b, 0), WEFT_PEER);
    close_job(&b);
}

static void another_shard_without_reconnecting(void **state)
{
    (void)state;
    struct bench b;
    reconnect_ns = 0;
    open_job(&b, WEFT_TABLE_ASP, WEFT_DEATH_WAIT, 5);
    until_parked(&b);
    fake_kill(b.c.net, SHARD);
    cluster_poll(&b.c);
    box_poll(&b);
    cluster_shard_free(&b.c, SHARD);
    fake_revive(b.c.net, SHARD);
    b.c.net->nodes[SHARD].incarnation += 1000;
    b.c.shard[SHARD] = cluster_shard_new(&b.c, &b.cluster, SHARD);
    assert_int_equal(ask(&b, 0), WEFT_PEER);
    assert_int_equal(ask(&b, 1), WEFT_PEER);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->tables, 0);
    idle(&b, lease_ns);
    assert_int_equal(gauges_of(&b).workers_connected, 0); /* the shard has detected their end */
    close_job(&b);
}

/* A process that ends normally is not declared dead, because it reconnects first. */
static void polite_end(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    for (uint32_t steps = 0; weft_ps_client_unpark(b.c.client[2], b.c.net->now_ns); steps++) {
        assert_true(steps < 1000);
        bench_step(&b);
    }
    assert_false(weft_ps_client_unpark(b.c.client[2], b.c.net->now_ns));
    assert_int_equal(gauges_of(&b).workers_connected, 1);
    idle(&b, lease_ns);
    assert_int_equal(weft_ps_client_counters(b.c.client[2])->parks, 1); /* no more from now on */
    struct weft_msg_event down = {.type = WEFT_EVENT_PEER_DOWN,
                                  .peer = fake_peer(1 + 2),
                                  .down = WEFT_DOWN_CLOSED};
    weft_shard_event(b.c.shard[SHARD], &down, b.c.net->now_ns);
    idle(&b, 5 * lease_ns);
    assert_false(is_lost(&b));
    close_job(&b);
}

/* The connection is reopened before a long computation; afterwards nothing is outstanding. Later it
 * is parked again. */
static void long_computation(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    until_parked(&b);
    for (uint32_t steps = 0; weft_ps_client_unpark(b.c.client[2], b.c.net->now_ns); steps++) {
        assert_true(steps < 1000);
        bench_step(&b);
    }
    assert_int_equal(gauges_of(&b).workers_connected, 1);
    assert_int_equal(weft_ps_client_counters(b.c.client[2])->resumes, 1);
    weft_ps_client_park_again(b.c.client[2]);
    idle(&b, 10 * lease_ns);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    until_parked(&b);
    check_sums(&b);
    assert_false(is_lost(&b));
    close_job(&b);
}

/* No worker parks unless aggregators deliver all its requests. */
static void nobody_parks(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, WEFT_DEATH_FAIL, 5);
    b.box[0].config.pull_slots = 0;
    box_again(&b, &b.box[0]);
    for (uint32_t clocks = 0; clocks < 6; clocks++) {
        clock_of_all(&b);
    }
    assert_int_equal(parks_of(&b), 0);
    box_kill(&b, &b.box[0]);
    for (uint32_t clocks = 0; clocks < 4; clocks++) {
        clock_of_all(&b);
    }
    assert_int_equal(parks_of(&b), 0);
    assert_int_equal(gauges_of(&b).workers_connected, WORKERS);
    check_sums(&b);
    close_job(&b);
}

/* Random faults: every push counts once, and no living worker is declared dead. */
static void random_jobs(void **state)
{
    (void)state;
    static const uint32_t above[][BOXES_MAX] = {
        {SHARD_ABOVE}, {SHARD_ABOVE, 0}, {SHARD_ABOVE, 0, 0}};
    static const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    uint64_t parks = 0, unparks = 0, parked = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct bench b;
        struct weft_prng prng;
        weft_prng_split(&prng, seed, 77);
        const uint32_t boxes = 1 + (uint32_t)weft_prng_below(&prng, BOXES_MAX);
        park_lease_ns = weft_prng_range(&prng, 2, 40) * WEFT_NS_PER_MS;
        park_pause_ns = weft_prng_below(&prng, 300000);
        via_timeout_ns = 2 * WEFT_NS_PER_MS;
        on_death = WEFT_DEATH_WAIT;
        bench_open_tree(&b, 2 + (uint32_t)weft_prng_below(&prng, WORKERS_MAX - boxes),
                        modes[weft_prng_below(&prng, 3)], seed, boxes, above[boxes - 1]);
        random_job(&b, (uint32_t)weft_prng_below(&prng, 8));
        const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
        parked += shard->workers_parked;
        parks += parks_of(&b);
        for (uint32_t w = 0; w < b.c.workers; w++) {
            unparks += weft_ps_client_counters(b.c.client[w])->unparks;
        }
        assert_int_equal(shard->workers_overdue, 0);
        close_job(&b);
    }
    print_message("%llu connections parked, %llu opened again\n", (unsigned long long)parks,
                  (unsigned long long)unparks);
    assert_true(parks > SEEDS && unparks > SEEDS / 2 && parked > SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_goes_on),
        cmocka_unit_test(direct_request),
        cmocka_unit_test(aggregator_dies),
        cmocka_unit_test(silence),
        cmocka_unit_test(worker_dies),
        cmocka_unit_test(shard_is_stopped),
        cmocka_unit_test(worker_reported_dead),
        cmocka_unit_test(shrinks),
        cmocka_unit_test(another_process),
        cmocka_unit_test(shard_dies),
        cmocka_unit_test(without_reconnecting),
        cmocka_unit_test(another_shard_without_reconnecting),
        cmocka_unit_test(polite_end),
        cmocka_unit_test(long_computation),
        cmocka_unit_test(nobody_parks),
        cmocka_unit_test(random_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
