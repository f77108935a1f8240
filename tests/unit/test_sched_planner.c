/* The planner's events and decisions, one rule at a time; reports and configurations that are
 * refused. */
#include "sched_rig.h"

#include <float.h>
#include <math.h>

/* Three workers on hosts 0-2 and a server on host 3, all links 1 Gbit/s: 125 bytes need 1 us. */
static struct weft_planner *three_workers(uint32_t policy)
{
    const struct weft_planner_host host[4] = {
        {GBIT, GBIT}, {GBIT, GBIT}, {GBIT, GBIT}, {GBIT, GBIT}};
    const uint32_t worker_host[3] = {0, 1, 2}, server_host[1] = {3};
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    config.policy = policy;
    config.hosts = 4;
    config.workers = 3;
    config.servers = 1;
    config.host = host;
    config.worker_host = worker_host;
    config.server_host = server_host;
    struct weft_planner *planner;
    assert_int_equal(weft_planner_new(&config, &planner), WEFT_OK);
    return planner;
}

static void ask(struct weft_planner *planner, uint32_t worker, uint64_t bytes)
{
    struct weft_planner_update update = {.worker = worker, .bytes = bytes, .norm = 1};
    assert_int_equal(weft_planner_update(planner, &update, 0), WEFT_OK);
}

static void expect_order(struct weft_planner *planner, const uint32_t *order)
{
    struct weft_planner_decision decision;
    uint64_t at_ns = 0;
    weft_planner_plan(planner, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(weft_planner_poll(planner, &decision));
        assert_int_equal(decision.kind, WEFT_PLANNER_GRANT);
        assert_int_equal(decision.worker, order[i]);
        assert_int_equal(decision.to_host, 3);
        assert_int_equal(decision.booking.start_ns, at_ns);
        at_ns += weft_transfer_ns(decision.bytes, GBIT);
        assert_int_equal(decision.booking.end_ns, at_ns);
    }
    assert_false(weft_planner_poll(planner, &decision));
    weft_planner_free(planner);
}

static void first_come_first_served(void **state)
{
    (void)state;
    struct weft_planner *planner = three_workers(0);
    ask(planner, 1, 3000);
    ask(planner, 2, 1000);
    ask(planner, 0, 2000);
    expect_order(planner, (uint32_t[]){1, 2, 0});
}

static void shortest_completion_first(void **state)
{
    (void)state;
    struct weft_planner *planner = three_workers(WEFT_PLAN_ORDER);
    ask(planner, 1, 3000);
    ask(planner, 2, 1000);
    ask(planner, 0, 2000);
    expect_order(planner, (uint32_t[]){2, 0, 1});
}

/* ---- modes and floors ------------------------------------------------------------------------ */

static struct rig rig;

static void ask_rig(uint32_t worker, uint64_t clock, uint64_t bytes, uint64_t base_version)
{
    struct weft_planner_update update = {
        .worker = worker, .clock = clock, .bytes = bytes, .base_version = base_version};
    assert_int_equal(weft_planner_update(rig.planner, &update, rig.now_ns), WEFT_OK);
}

static uint32_t next_grant(void)
{
    struct weft_planner_decision d;
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_true(weft_planner_poll(rig.planner, &d));
    assert_int_equal(d.kind, WEFT_PLANNER_GRANT);
    assert_int_equal(weft_planner_delivered(rig.planner, d.transfer, rig.now_ns), WEFT_OK);
    assert_int_equal(weft_planner_committed(rig.planner, d.worker, -1, rig.now_ns), WEFT_OK);
    return d.worker;
}

static void begin(uint32_t workers, enum weft_planner_mode mode, uint32_t policy)
{
    rig_hosts(&rig, workers, 1, 0, GBIT);
    rig.config.mode = mode;
    rig.config.policy = policy;
    rig.config.ahead = 1;
}

static void make(void)
{
    assert_int_equal(weft_planner_new(&rig.config, &rig.planner), WEFT_OK);
}

/* SSP: all workers wait for those at the lowest clock, so these are first, although their transfers
 * are longer. */
static void the_least_clock_goes_first(void **state)
{
    (void)state;
    begin(3, WEFT_PLANNER_SSP, WEFT_PLAN_ORDER);
    make();
    ask_rig(0, 5, 1000, 0);
    ask_rig(1, 4, 90000, 0);
    ask_rig(2, 4, 80000, 0);
    assert_int_equal(next_grant(), 2);
    weft_planner_free(rig.planner);
}

/* The delay bound has priority over the lowest clock of SSP: an update that is too old is dropped
 * there, too. */
static void the_least_clock_can_be_late(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    begin(2, WEFT_PLANNER_SSP, WEFT_PLAN_ORDER | WEFT_PLAN_BOUND);
    rig.config.tau_max = 1;
    make();
    for (uint64_t i = 0; i < 2; i++) {
        ask_rig(1, 5 + i, 1000, i);
        assert_int_equal(next_grant(), 1);
    }
    ask_rig(0, 4, 1000, 0); /* two were committed since its base */
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_true(weft_planner_poll(rig.planner, &d));
    assert_int_equal(d.drop, WEFT_PLANNER_DROP_LATE);
    weft_planner_free(rig.planner);
}

/* The clock UINT64_MAX must not wrap to the lowest one. */
static void the_last_clock_does_not_wrap(void **state)
{
    (void)state;
    begin(3, WEFT_PLANNER_SSP, WEFT_PLAN_ORDER);
    make();
    ask_rig(0, UINT64_MAX, 1000, 0);
    assert_int_equal(next_grant(), 0);
    ask_rig(1, 5, 90000, 0);
    ask_rig(2, 7, 1000, 0);
    assert_int_equal(next_grant(), 1);
    weft_planner_free(rig.planner);
}

/* An end near the maximum time, with 5 % added. */
static void the_latest_end_does_not_wrap(void **state)
{
    (void)state;
    begin(1, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    rig.host[0].up_bps = 1;
    make();
    ask_rig(0, 0, 2250000000, 0);
    assert_int_equal(next_grant(), 0);
    weft_planner_free(rig.planner);
}

/* Equal completion times: the oldest base version first, not the first request. */
static void ties_go_to_the_oldest(void **state)
{
    (void)state;
    begin(4, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    make();
    for (uint32_t w = 0; w < 3; w++) {
        ask_rig(w, 1, 1000, 0);
        assert_int_equal(next_grant(), w);
    }
    ask_rig(0, 2, 100000, 3);
    ask_rig(1, 2, 102000, 1);
    ask_rig(2, 2, 100000, 2);
    assert_int_equal(next_grant(), 1);
    weft_planner_free(rig.planner);
}

static void an_old_request_goes_first(void **state)
{
    (void)state;
    begin(2, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    rig.config.age_ns = WEFT_NS_PER_S;
    make();
    ask_rig(0, 1, 1000000, 0);
    rig.now_ns = WEFT_NS_PER_S;
    ask_rig(1, 1, 1000, 0);
    assert_int_equal(next_grant(), 0);
    assert_int_equal(weft_planner_counters(rig.planner)->slow_first, 1);
    weft_planner_free(rig.planner);
}

/* Ten workers that always have data to send, two of them with a tenth of the link rate: the shares
 * of the slow ones, with and without a floor. The link is always busy in both cases. */
static void a_floor_for_slow_uplinks(void **state)
{
    (void)state;
    uint64_t slow[2], all[2];
    for (int has_floor = 0; has_floor < 2; has_floor++) {
        begin(10, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
        rig.config.ahead = 2;
        rig.config.floor_ppm = has_floor ? WEFT_PPM : 0;
        rig.host[0].up_bps = rig.host[1].up_bps = GBIT / 10;
        rig.setting.compute_ns_min = rig.setting.compute_ns_max = WEFT_NS_PER_MS;
        rig.setting.has_reads = false;
        rig_begin(&rig);
        while (rig.now_ns < 8 * WEFT_NS_PER_S) {
            rig_step(&rig);
        }
        slow[has_floor] = weft_min_u64(rig.workers[0].commits, rig.workers[1].commits);
        all[has_floor] = rig.version;
        rig_end(&rig);
    }
    print_message("# commits: without a floor %llu, slow %llu; with one %llu, slow %llu\n",
                  (unsigned long long)all[0], (unsigned long long)slow[0],
                  (unsigned long long)all[1], (unsigned long long)slow[1]);
    assert_true(20 * slow[1] >= all[1]); /* half of a tenth */
    assert_true(slow[0] < slow[1] / 2);
    assert_true(100 * all[1] >= 99 * all[0]);
}

/* Admitting reads by credits reduces delay, but not throughput. */
static void read_credits(void **state)
{
    (void)state;
    uint64_t delay_ppm[2], commits[2];
    for (int admits = 0; admits < 2; admits++) {
        begin(30, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
        rig.config.policy |= admits ? WEFT_PLAN_ADMISSION : 0;
        rig.config.read_credits = 12;
        rig.config.ahead = 3;
        rig.setting.compute_ns_min = 10 * WEFT_NS_PER_MS;
        rig.setting.compute_ns_max = 20 * WEFT_NS_PER_MS;
        rig_begin(&rig);
        while (rig.now_ns < 20 * WEFT_NS_PER_S) {
            rig_step(&rig);
        }
        commits[admits] = rig.version;
        delay_ppm[admits] = rig.delay_sum * 1000 / rig.version;
        rig_end(&rig);
    }
    print_message("# 30 workers, delay and commits: %.2f, %llu; with 12 credits %.2f, %llu\n",
                  (double)delay_ppm[0] / 1e3, (unsigned long long)commits[0],
                  (double)delay_ppm[1] / 1e3, (unsigned long long)commits[1]);
    assert_true(2 * delay_ppm[1] <= delay_ppm[0]);
    assert_true(100 * commits[1] >= 99 * commits[0]);
}

static struct weft_planner_decision with_capacity(uint64_t up_bps, uint64_t now_ns)
{
    struct weft_planner_decision revised;
    assert_int_equal(weft_planner_capacity(rig.planner, 0, true, up_bps, now_ns), WEFT_OK);
    weft_planner_plan(rig.planner, now_ns);
    assert_true(weft_planner_poll(rig.planner, &revised));
    assert_true(revised.is_revised);
    return revised;
}

/* A link becomes slower: the remainder of the transfer is planned again. */
static void a_new_capacity_revises_grants(void **state)
{
    (void)state;
    begin(1, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    make();
    struct weft_planner_decision d, revised;
    ask_rig(0, 1, 125000000, 0); /* 1 s */
    weft_planner_plan(rig.planner, 0);
    assert_true(weft_planner_poll(rig.planner, &d));
    uint64_t half_ns = WEFT_NS_PER_S / 2;
    revised = with_capacity(GBIT / 4, half_ns);
    assert_int_equal(revised.transfer, d.transfer);
    assert_int_equal(revised.booking.start_ns, half_ns);
    assert_int_equal(revised.booking.end_ns, half_ns + 2 * WEFT_NS_PER_S);
    /* Down, and up again. */
    assert_int_equal(with_capacity(0, half_ns).booking.count, 0);
    revised = with_capacity(GBIT, half_ns);
    assert_int_equal(revised.booking.end_ns - revised.booking.start_ns, half_ns);
    weft_planner_free(rig.planner);
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* Send and commit a worker's update; returns the decisions besides its grant. */
static bool push_and_commit(uint32_t worker, double norm, double applied_norm,
                            struct weft_planner_decision *other_p)
{
    struct weft_planner_update update = {
        .worker = worker, .clock = rig.workers[worker].clock++, .bytes = 1000, .norm = norm};
    assert_int_equal(weft_planner_update(rig.planner, &update, rig.now_ns), WEFT_OK);
    weft_planner_plan(rig.planner, rig.now_ns);
    struct weft_planner_decision d;
    bool has_other = false, is_granted = false;
    while (weft_planner_poll(rig.planner, &d)) {
        has_other = has_other || d.kind != WEFT_PLANNER_GRANT;
        is_granted = is_granted || d.kind == WEFT_PLANNER_GRANT;
        *other_p = d.kind != WEFT_PLANNER_GRANT ? d : *other_p;
    }
    if (is_granted) {
        assert_int_equal(weft_planner_committed(rig.planner, worker, applied_norm, rig.now_ns),
                         WEFT_OK);
    }
    return has_other;
}

/* Bound 1, eta 1/8, beta 1/2: a norm of 1 is a quarter of the bound. */
static void begin_replicas(enum weft_planner_mode mode)
{
    begin(8, mode, WEFT_PLAN_ORDER | WEFT_PLAN_REPLICATE);
    rig.config.div_max = 1;
    rig.config.step_size = 0.125;
    rig.config.momentum = 0.5;
    make();
}

static void a_replica_is_fed_when_links_are_idle(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    begin_replicas(WEFT_PLANNER_ASYNC);
    /* No replication for a quarter of the bound: unreported reads use the same uplinks. */
    assert_false(push_and_commit(0, 1, -1, &d));
    assert_int_equal(weft_planner_divergence_ppm(rig.planner), 250000);
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_false(weft_planner_poll(rig.planner, &d));
    assert_false(push_and_commit(1, 1, -1, &d));
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_true(weft_planner_poll(rig.planner, &d));
    assert_int_equal(d.kind, WEFT_PLANNER_REPLICATE);
    assert_in_range(d.bytes, 1000, 2000);
    assert_int_equal(d.from_host, rig.server_host[0]);
    assert_int_equal(d.to_host, rig.replica_host[0]);
    assert_int_equal(weft_planner_divergence_ppm(rig.planner), 500000);
    assert_int_equal(weft_planner_delivered(rig.planner, d.transfer, rig.now_ns), WEFT_OK);
    assert_int_equal(weft_planner_divergence_ppm(rig.planner), 0);
    weft_planner_free(rig.planner);
}

/* While the server's uplink is busy a replication waits until the next update would exceed the
 * bound; that update waits for the replication. */
static void a_replica_is_fed_when_it_must_be(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    begin_replicas(WEFT_PLANNER_ASYNC);
    assert_int_equal(weft_planner_read(rig.planner, 7, 100000000, rig.now_ns), WEFT_OK);
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_true(weft_planner_poll(rig.planner, &d)); /* the read */
    for (uint32_t w = 0; w < 4; w++) {
        assert_false(push_and_commit(w, 1, -1, &d));
    }
    assert_int_equal(weft_planner_divergence_ppm(rig.planner), WEFT_PPM);
    assert_true(push_and_commit(5, 1, -1, &d));
    assert_int_equal(d.kind, WEFT_PLANNER_REPLICATE);
    assert_int_equal(weft_planner_counters(rig.planner)->granted, 4);
    assert_int_equal(weft_planner_counters(rig.planner)->held_divergence, 1);
    rig.now_ns = d.booking.end_ns;
    assert_int_equal(weft_planner_delivered(rig.planner, d.transfer, rig.now_ns), WEFT_OK);
    weft_planner_plan(rig.planner, rig.now_ns);
    assert_true(weft_planner_poll(rig.planner, &d));
    assert_int_equal(d.kind, WEFT_PLANNER_GRANT);
    weft_planner_free(rig.planner);
}

static void steps_beyond_the_divergence_bound(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    begin_replicas(WEFT_PLANNER_ASYNC);
    assert_true(push_and_commit(0, 4.001, -1, &d));
    assert_int_equal(d.drop, WEFT_PLANNER_DROP_DIVERGENCE);
    assert_false(push_and_commit(1, 4, -1, &d));
    weft_planner_free(rig.planner);
    /* Also in SYNC, where no other update is dropped: this one could never be sent. */
    begin_replicas(WEFT_PLANNER_SYNC);
    assert_true(push_and_commit(0, 4.001, -1, &d));
    assert_int_equal(d.drop, WEFT_PLANNER_DROP_DIVERGENCE);
    weft_planner_free(rig.planner);
    /* A wrong forecast is counted; the applied norm is used. */
    begin_replicas(WEFT_PLANNER_ASYNC);
    assert_false(push_and_commit(0, 1, 7, &d));
    assert_int_equal(weft_planner_counters(rig.planner)->divergence_exceeded, 1);
    assert_int_equal(weft_planner_divergence_ppm(rig.planner), 1750000);
    weft_planner_free(rig.planner);
}

/* ---- the documentation ----------------------------------------------------------------------- */

/* The worked example of docs/SCHEDULER.md. */
static void the_documented_example(void **state)
{
    (void)state;
    begin(4, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER | WEFT_PLAN_BOUND);
    rig.config.ahead = 3;
    rig.config.tau_max = 4;
    rig.host[3].up_bps = GBIT / 10;
    make();
    struct weft_planner *p = rig.planner;
    const struct {
        uint32_t worker;
        uint64_t start_us, end_us;
    } first[4] = {{3, 0, 1000000}, {0, 0, 111111}, {1, 111111, 222222}, {2, 222222, 333333}};
    struct weft_planner_decision d[4], next;
    for (uint32_t w = 0; w < 4; w++) {
        ask_rig(w, 1, 12500000, 0);
    }
    weft_planner_plan(p, 0);
    for (int i = 0; i < 4; i++) {
        assert_true(weft_planner_poll(p, &d[i]));
        assert_int_equal(d[i].worker, first[i].worker);
        assert_int_equal(d[i].booking.start_ns / 1000, first[i].start_us);
        assert_int_equal(d[i].booking.end_ns / 1000, first[i].end_us);
    }
    for (uint32_t i = 1; i <= 2; i++) { /* workers 0 and 1 end, and request again 88.9 ms later */
        rig.now_ns = d[i].booking.end_ns;
        assert_int_equal(weft_planner_delivered(p, d[i].transfer, rig.now_ns), WEFT_OK);
        assert_int_equal(weft_planner_committed(p, i - 1, -1, rig.now_ns), WEFT_OK);
        rig.now_ns += 88900 * WEFT_NS_PER_US;
        ask_rig(i - 1, 2, 12500000, i);
        weft_planner_plan(p, rig.now_ns);
        assert_int_equal(weft_planner_poll(p, &next), i == 1);
    }
    assert_int_equal(next.worker, 0);
    assert_int_equal(next.booking.start_ns / WEFT_NS_PER_US, 333333);
    assert_int_equal(weft_planner_counters(p)->held, 1);
    const struct weft_planner_decision *rest[3] = {&d[3], &next, &d[0]};
    for (int i = 0; i < 3; i++) { /* worker 2, worker 0 again, and at 1 s worker 3 */
        struct weft_planner_decision held;
        assert_false(weft_planner_poll(p, &held));
        rig.now_ns = rest[i]->booking.end_ns;
        assert_int_equal(weft_planner_delivered(p, rest[i]->transfer, rig.now_ns), WEFT_OK);
        assert_int_equal(weft_planner_committed(p, rest[i]->worker, -1, rig.now_ns), WEFT_OK);
        weft_planner_plan(p, rig.now_ns);
    }
    assert_true(weft_planner_poll(p, &next));
    assert_int_equal(next.worker, 1);
    assert_int_equal(next.booking.start_ns, WEFT_NS_PER_S);
    assert_int_equal(weft_planner_counters(p)->delay_max, 4);
    assert_int_equal(weft_planner_counters(p)->held, 3);
    weft_planner_free(p);
}

/* ---- bad reports ----------------------------------------------------------------------------- */

static void refused(const struct weft_planner_update *update, const uint64_t *counter)
{
    uint64_t before = *counter;
    assert_int_equal(weft_planner_update(rig.planner, update, 0), WEFT_DATA);
    assert_int_equal(*counter, before + 1);
}

/* Bytes of the sum of three updates of 1 MB, sent behind one of 10 MB. `members`, `share_ppm`:
 * reported before; 0 = nothing. */
static uint64_t bytes_of_sum(uint32_t members, uint32_t share_ppm)
{
    struct weft_planner_decision d;
    uint64_t bytes = 0;
    rig_hosts(&rig, 4, 1, 1, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE | WEFT_PLAN_CUT_THROUGH;
    rig.config.aggregate_ppm = 100000;
    make();
    if (members > 0) {
        assert_int_equal(weft_planner_sum_share(rig.planner, members, share_ppm), WEFT_OK);
    }
    ask_rig(3, 0, 10000000, 0);
    weft_planner_plan(rig.planner, 0);
    for (uint32_t w = 0; w < 3; w++) {
        ask_rig(w, 0, 1000000, 0);
    }
    weft_planner_plan(rig.planner, 0);
    while (weft_planner_poll(rig.planner, &d)) {
        if (d.kind == WEFT_PLANNER_GRANT_GROUP) {
            assert_int_equal(d.members, 3);
            assert_int_equal(bytes, 0);
            bytes = d.bytes;
        }
    }
    weft_planner_free(rig.planner);
    return bytes;
}

/* Sums are booked with what was reported for their number of members, or the nearest. */
static void sizes_of_sums(void **state)
{
    (void)state;
    assert_int_equal(bytes_of_sum(0, 0), 1200000);
    assert_int_equal(bytes_of_sum(3, 500000), 2000000);
    assert_int_equal(bytes_of_sum(3, 0), 1000000);
    assert_int_equal(bytes_of_sum(2, 600000), 2200000);
    assert_int_equal(bytes_of_sum(5, 300000), 1600000);
    assert_int_equal(bytes_of_sum(3, 1100000), 0); /* a sum would take longer than its members */
    make();
    assert_int_equal(weft_planner_sum_share(rig.planner, 1, 0), WEFT_DATA);
    assert_int_equal(weft_planner_sum_share(rig.planner, WEFT_PLANNER_WINDOW_MAX + 1, 0),
                     WEFT_DATA);
    assert_int_equal(weft_planner_sum_share(rig.planner, 2, WEFT_PLANNER_SHARE_MAX + 1), WEFT_DATA);
    assert_int_equal(weft_planner_counters(rig.planner)->refused_range, 3);
    weft_planner_free(rig.planner);
}

/* Worker 3's update is in flight. Of three that wait the first has an older base: in a sum of all
 * three it could be the last to be committed, with a delay of 4. The sum has two. */
static void begin_bounded_group(bool members_resend)
{
    struct weft_planner_decision d;
    rig_hosts(&rig, 4, 1, 1, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND | WEFT_PLAN_AGGREGATE;
    rig.config.tau_max = 3;
    rig.config.version = 10;
    rig.config.members_resend = members_resend;
    make();
    ask_rig(3, 0, 10000000, 10);
    weft_planner_plan(rig.planner, 0);
    assert_true(weft_planner_poll(rig.planner, &d));
    for (uint32_t w = 0; w < 3; w++) {
        ask_rig(w, 0, 1000000, w == 0 ? 9 : 10);
    }
    weft_planner_plan(rig.planner, 0);
    for (uint32_t w = 0; w < 2; w++) {
        assert_true(weft_planner_poll(rig.planner, &d));
        assert_int_equal(d.kind, WEFT_PLANNER_GRANT);
        assert_int_equal(d.worker, w);
        assert_int_equal(d.server, WEFT_PLANNER_NONE);
        assert_int_equal(d.members, 2);
    }
    assert_false(weft_planner_poll(rig.planner, &d));
}

static void a_sum_keeps_the_bound(void **state)
{
    (void)state;
    const uint32_t order[] = {3, 1, 0}; /* the worst */
    struct weft_planner_decision d;
    begin_bounded_group(true);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(weft_planner_committed(rig.planner, order[i], -1, 0), WEFT_OK);
    }
    const struct weft_planner_counters *counters = weft_planner_counters(rig.planner);
    assert_int_equal(counters->delay_max, 3);
    assert_int_equal(counters->grouped, 2);
    weft_planner_plan(rig.planner, 0);
    assert_true(weft_planner_poll(rig.planner, &d)); /* with a delay of 3, too */
    assert_int_equal(d.worker, 2);
    weft_planner_free(rig.planner);
}

/* The aggregator fails. Members that send directly without a grant stay in flight. */
static void members_of_a_broken_group(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    begin_bounded_group(true);
    assert_int_equal(weft_planner_aggregator(rig.planner, 0, false, 0), WEFT_OK);
    weft_planner_plan(rig.planner, 0);
    assert_false(weft_planner_poll(rig.planner, &d)); /* worker 2 waits for worker 0 */
    assert_int_equal(weft_planner_committed(rig.planner, 1, -1, 0), WEFT_OK);
    /* Its bytes may be at the server: it counts as a version. */
    assert_int_equal(weft_planner_worker_left(rig.planner, 0, 0), WEFT_OK);
    assert_int_equal(weft_planner_version(rig.planner), 12);
    weft_planner_free(rig.planner);
    begin_bounded_group(false);
    assert_int_equal(weft_planner_aggregator(rig.planner, 0, false, 0), WEFT_OK);
    assert_int_equal(weft_planner_committed(rig.planner, 1, -1, 0), WEFT_DATA);
    weft_planner_free(rig.planner);
}

static void bad_updates_are_refused(void **state)
{
    (void)state;
    begin(3, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER | WEFT_PLAN_BOUND);
    make();
    const struct weft_planner_counters *c = weft_planner_counters(rig.planner);
    const struct weft_planner_update good = {.worker = 1, .clock = 7, .bytes = 1000, .norm = 1};
    struct weft_planner_update bad = good;
    const double norms[] = {NAN, -NAN, INFINITY, -INFINITY, -1, -DBL_MIN};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(norms); i++) {
        bad.norm = norms[i];
        refused(&bad, &c->refused_norm);
    }
    bad = good;
    bad.worker = 3;
    refused(&bad, &c->refused_unknown);
    bad = good;
    bad.bytes = 0;
    refused(&bad, &c->refused_range);
    bad.bytes = WEFT_PLANNER_BYTES_MAX + 1;
    refused(&bad, &c->refused_range);
    bad = good;
    const uint64_t parts[] = {999};
    bad.server_bytes = parts;
    refused(&bad, &c->refused_range);
    bad = good;
    bad.base_version = 1; /* no update was granted yet */
    refused(&bad, &c->refused_version);
    assert_int_equal(weft_planner_update(rig.planner, &good, 0), WEFT_OK);
    refused(&good, &c->refused_twice);
    assert_int_equal(next_grant(), 1);
    bad = good;
    bad.clock = 6;
    refused(&bad, &c->refused_version);
    assert_int_equal(c->updates, 1);
    weft_planner_free(rig.planner);
}

static void bad_events_are_refused(void **state)
{
    (void)state;
    begin(2, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    make();
    struct weft_planner *p = rig.planner;
    const struct weft_planner_counters *c = weft_planner_counters(p);
    assert_int_equal(weft_planner_delivered(p, 0, 0), WEFT_DATA);
    assert_int_equal(weft_planner_delivered(p, UINT64_MAX, 0), WEFT_DATA);
    assert_int_equal(weft_planner_committed(p, 0, 1, 0), WEFT_DATA);
    assert_int_equal(weft_planner_committed(p, 9, 1, 0), WEFT_DATA);
    assert_int_equal(weft_planner_worker_left(p, 2, 0), WEFT_DATA);
    assert_int_equal(weft_planner_read(p, 2, 1000, 0), WEFT_DATA);
    assert_int_equal(weft_planner_aggregator(p, 0, true, 0), WEFT_DATA);
    assert_int_equal(c->refused_unknown, 7);
    assert_int_equal(weft_planner_capacity(p, 0, true, UINT64_MAX, 0), WEFT_DATA);
    assert_int_equal(weft_planner_capacity(p, 9, true, GBIT, 0), WEFT_DATA);
    assert_int_equal(weft_planner_read(p, 0, 0, 0), WEFT_DATA);
    assert_int_equal(c->refused_range, 3);
    assert_int_equal(weft_planner_read(p, 0, 1000, 0), WEFT_OK);
    assert_int_equal(weft_planner_read(p, 0, 1000, 0), WEFT_DATA);
    assert_int_equal(c->refused_twice, 1);
    /* A delivery counts once; a commit needs a valid norm. */
    struct weft_planner_decision d;
    ask_rig(1, 1, 1000, 0);
    weft_planner_plan(p, 0);
    do {
        assert_true(weft_planner_poll(p, &d));
    } while (d.kind != WEFT_PLANNER_GRANT);
    assert_int_equal(weft_planner_committed(p, 1, NAN, 0), WEFT_DATA);
    assert_int_equal(weft_planner_delivered(p, d.transfer, 0), WEFT_OK);
    assert_int_equal(weft_planner_delivered(p, d.transfer, 0), WEFT_DATA);
    assert_int_equal(weft_planner_committed(p, 1, 0.5, 0), WEFT_OK);
    assert_int_equal(weft_planner_version(p), 1);
    weft_planner_free(p);
}

static void bad_configurations_are_refused(void **state)
{
    (void)state;
    struct weft_planner *p;
    begin(2, WEFT_PLANNER_ASYNC, WEFT_PLAN_ORDER);
    struct weft_planner_config good = rig.config, bad;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        assert_int_equal(weft_planner_new(&bad, &p), WEFT_INVALID);                                \
    } while (0)
    REFUSED(bad.hosts = 0);
    REFUSED(bad.workers = 0);
    REFUSED(bad.workers = WEFT_PLANNER_WORKERS_MAX + 1);
    REFUSED(bad.servers = 0; bad.server_host = NULL);
    REFUSED(bad.mode = WEFT_PLANNER_ALL_REDUCE);
    REFUSED(bad.hosts = 2); /* the server's host does not exist */
    REFUSED(bad.policy = 64);
    REFUSED(bad.ahead = WEFT_PLANNER_AHEAD_MAX + 1);
    REFUSED(bad.window = 0);
    REFUSED(bad.chunk_bytes = 0);
    REFUSED(bad.policy = WEFT_PLAN_REPLICATE; bad.div_max = 0);
    REFUSED(bad.policy = WEFT_PLAN_REPLICATE; bad.div_max = NAN);
    REFUSED(bad.policy = WEFT_PLAN_REPLICATE; bad.div_max = 1; bad.momentum = 1);
    REFUSED(bad.policy = WEFT_PLAN_REPLICATE; bad.div_max = 1; bad.replica_host = NULL);
    rig.host[0].up_bps = WEFT_TIMELINE_BPS_MAX + 1;
    assert_int_equal(weft_planner_new(&good, &p), WEFT_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(shortest_completion_first),
        cmocka_unit_test(the_least_clock_goes_first),
        cmocka_unit_test(the_least_clock_can_be_late),
        cmocka_unit_test(the_last_clock_does_not_wrap),
        cmocka_unit_test(the_latest_end_does_not_wrap),
        cmocka_unit_test(ties_go_to_the_oldest),
        cmocka_unit_test(an_old_request_goes_first),
        cmocka_unit_test(a_floor_for_slow_uplinks),
        cmocka_unit_test(read_credits),
        cmocka_unit_test(a_new_capacity_revises_grants),
        cmocka_unit_test(a_replica_is_fed_when_links_are_idle),
        cmocka_unit_test(a_replica_is_fed_when_it_must_be),
        cmocka_unit_test(steps_beyond_the_divergence_bound),
        cmocka_unit_test(the_documented_example),
        cmocka_unit_test(sizes_of_sums),
        cmocka_unit_test(a_sum_keeps_the_bound),
        cmocka_unit_test(members_of_a_broken_group),
        cmocka_unit_test(bad_updates_are_refused),
        cmocka_unit_test(bad_events_are_refused),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
