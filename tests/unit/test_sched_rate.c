/* The scheduler's estimates of link rates against the true rates: daemons and the service on a
 * network of known links, in virtual time. Hosts add a constant delay at both ends of each
 * transfer, like processes that must first be scheduled. An estimate that includes this delay would
 * fall with each measurement. */
#include "base/prng.h"
#include "sched/daemon.h"
#include "sched/service.h"
#include "sched_exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static bool has_memory = true;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    return has_memory ? __real_calloc(count, bytes) : NULL;
}

enum { WORKERS = 4, BYTES = 4000000 };

#define MBIT UINT64_C(1000000)

static const uint64_t tick_ns = 100 * WEFT_NS_PER_US;
static const uint64_t host_ns = 8 * WEFT_NS_PER_MS; /* delay at each end */

enum phase { COMPUTING, ASKING, SENDING, CONFIRMING };

struct worker {
    struct weft_sched_daemon *daemon;
    enum phase phase;
    uint64_t until_ns; /* COMPUTING, CONFIRMING */
    uint64_t clock;
    uint64_t start_ns;
    uint64_t rate_bps;
    uint64_t up_bps; /* true rate */
    double left;     /* bytes not sent yet */
    uint64_t first_ns;
    double all;             /* arrived at the shard since the start of the update */
    double alone, alone_ns; /* of these, arrived while no other update did */
    uint64_t updates;
};

struct net {
    struct weft_sched_service *service;
    struct weft_sched_daemon *shard;
    struct worker worker[WORKERS];
    uint64_t down_bps; /* true rate */
    uint64_t compute_ns;
    uint64_t now_ns;
    uint64_t opened, closed;
};

static void net_new(struct net *net, enum weft_sched_mode mode, uint64_t link_bps)
{
    struct weft_sched_service_config config;
    struct weft_sched_daemon_config daemon;
    memset(net, 0, sizeof(*net));
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = WORKERS + 1;
    config.link_bps = link_bps;
    assert_int_equal(weft_sched_service_new(&config, &net->service), WEFT_OK);
    weft_sched_daemon_config_default(&daemon);
    daemon.workers = WORKERS;
    daemon.role = WEFT_SCHED_SERVER;
    assert_int_equal(weft_sched_daemon_new(&daemon, &net->shard), WEFT_OK);
    weft_sched_service_connected(net->service, WORKERS, WEFT_SCHED_SERVER, 0, 1);
    weft_sched_daemon_connected(net->shard, 0);
    daemon.role = WEFT_SCHED_WORKER;
    daemon.mode = mode;
    for (uint32_t i = 0; i < WORKERS; i++) {
        daemon.index = i;
        assert_int_equal(weft_sched_daemon_new(&daemon, &net->worker[i].daemon), WEFT_OK);
        weft_sched_service_connected(net->service, i, WEFT_SCHED_WORKER, i, 1);
        weft_sched_daemon_connected(net->worker[i].daemon, 0);
        net->worker[i].until_ns = (i + 1) * 20 * WEFT_NS_PER_MS;
        net->worker[i].up_bps = 1000 * MBIT;
    }
    net->down_bps = 1000 * MBIT;
    net->compute_ns = 20 * WEFT_NS_PER_MS;
}

static void net_free(struct net *net)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_free(net->worker[i].daemon);
    }
    weft_sched_daemon_free(net->shard);
    weft_sched_service_free(net->service);
}

static void exchange(struct net *net)
{
    struct weft_sched_daemon *daemons[WORKERS + 1];
    for (uint32_t i = 0; i < WORKERS; i++) {
        daemons[i] = net->worker[i].daemon;
    }
    daemons[WORKERS] = net->shard;
    sched_exchange(net->service, daemons, WORKERS + 1, net->now_ns);
}

/* ---- workers --------------------------------------------------------------------------------- */

static void take_answers(struct net *net, struct worker *w)
{
    struct weft_sched_answer answer;
    while (weft_sched_daemon_answer(w->daemon, net->now_ns, &answer)) {
        bool is_first = w->phase == ASKING;
        assert_true(answer.kind != WEFT_SCHED_DROP);
        if (is_first || net->now_ns < w->start_ns) {
            w->start_ns = weft_max_u64(answer.start_ns, net->now_ns) + host_ns;
        }
        w->rate_bps = answer.rate_bps != 0 ? answer.rate_bps : UINT64_MAX;
        w->phase = is_first ? SENDING : w->phase;
    }
}

static void turn(struct net *net, struct worker *w)
{
    take_answers(net, w);
    if (w->phase == COMPUTING && net->now_ns >= w->until_ns) {
        const struct weft_sched_share share = {.bytes = BYTES, .base = net->opened};
        weft_sched_daemon_ask(w->daemon, ++w->clock, 1, &share, net->now_ns);
        w->phase = ASKING;
        w->left = BYTES;
        w->first_ns = 0;
        w->all = w->alone = w->alone_ns = 0;
    } else if (w->phase == CONFIRMING && net->now_ns >= w->until_ns) {
        weft_sched_daemon_delivered(w->daemon, 0, net->now_ns - w->start_ns);
        weft_sched_daemon_ended(w->daemon);
        w->updates++;
        w->phase = COMPUTING;
        w->until_ns = net->now_ns + net->compute_ns;
    }
}

static double rate_of(const struct net *net, const struct worker *w)
{
    bool is_sending = w->phase == SENDING && net->now_ns >= w->start_ns;
    return is_sending ? (double)weft_min_u64(w->rate_bps, w->up_bps) : 0;
}

static void close_update(struct net *net, struct worker *w)
{
    double took_s = (double)(net->now_ns - w->first_ns) / WEFT_NS_PER_S;
    struct weft_sched_event event = {.worker = (uint32_t)(w - net->worker),
                                     .clock = w->clock,
                                     .norm = 1,
                                     .rate_bps = (uint64_t)(BYTES * 8 / took_s),
                                     .all_bps = (uint64_t)(w->all * 8 / took_s)};
    event.rate_bps = weft_min_u64(event.rate_bps, event.all_bps);
    if (w->alone > 65536) {
        event.alone_bps = (uint64_t)(w->alone * 8 * WEFT_NS_PER_S / w->alone_ns);
    }
    weft_sched_daemon_committed(net->shard, &event);
    weft_sched_daemon_counts(net->shard, net->opened, ++net->closed);
    w->phase = CONFIRMING;
    w->until_ns = net->now_ns + host_ns;
}

/* Rates sum to at most the downlink's rate; each is the same fraction of its own maximum. */
static void carry(struct net *net)
{
    double rate[WORKERS], sum = 0, came = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        sum += rate[i] = rate_of(net, &net->worker[i]);
    }
    double part = sum > (double)net->down_bps ? (double)net->down_bps / sum : 1;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        if (rate[i] > 0 && w->first_ns == 0) {
            w->first_ns = net->now_ns;
            weft_sched_daemon_counts(net->shard, ++net->opened, net->closed);
        }
        rate[i] *= part * (double)tick_ns / (8.0 * WEFT_NS_PER_S);
        w->left -= rate[i];
        came += rate[i];
    }
    net->now_ns += tick_ns;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        w->all += w->first_ns != 0 ? came : 0;
        w->alone += rate[i] > 0 && rate[i] >= came ? came : 0;
        w->alone_ns += rate[i] > 0 && rate[i] >= came ? (double)tick_ns : 0;
        if (w->phase == SENDING && w->left <= 0) {
            close_update(net, w);
        }
    }
}

static void run(struct net *net, uint64_t for_ns)
{
    for (uint64_t end_ns = net->now_ns + for_ns; net->now_ns < end_ns;) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            turn(net, &net->worker[i]);
        }
        exchange(net);
        carry(net);
    }
}

static void assert_near(struct net *net, enum weft_sched_role role, uint32_t index,
                        uint64_t true_bps)
{
    uint64_t bps = weft_sched_service_capacity(net->service, role, index);
    if (bps < true_bps - true_bps / 10 || bps > true_bps + true_bps / 10) {
        fail_msg("%s %u: thought %llu, is %llu Mbit/s",
                 role == WEFT_SCHED_WORKER ? "worker" : "shard", index,
                 (unsigned long long)(bps / MBIT), (unsigned long long)(true_bps / MBIT));
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The configured rates are ten times too high, or exact. */
static void late_hosts_make_no_link_slower(void **state)
{
    (void)state;
    for (uint64_t bps = 1000 * MBIT; bps <= 10000 * MBIT; bps *= 10) {
        struct net net;
        net_new(&net, WEFT_SCHED_ASP, bps);
        run(&net, 3 * WEFT_NS_PER_S);
        assert_near(&net, WEFT_SCHED_SERVER, 0, 1000 * MBIT);
        uint64_t before = net.closed;
        run(&net, 2 * WEFT_NS_PER_S);
        /* An update needs 32 ms of the downlink. */
        print_message("# said %llu Mbit/s: %llu of 62 updates in 2 s\n",
                      (unsigned long long)(bps / MBIT), (unsigned long long)(net.closed - before));
        assert_true(net.closed - before >= 55);
        net_free(&net);
    }
}

static void contention_is_noticed_within_a_second(void **state)
{
    (void)state;
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, 1000 * MBIT);
    run(&net, 2 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_WORKER, 0, 1000 * MBIT);
    net.worker[0].up_bps = 400 * MBIT; /* other traffic uses 60 % of its uplink */
    run(&net, WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_WORKER, 0, 400 * MBIT);
    for (uint32_t i = 1; i < WORKERS; i++) {
        assert_near(&net, WEFT_SCHED_WORKER, i, 1000 * MBIT);
    }
    assert_near(&net, WEFT_SCHED_SERVER, 0, 1000 * MBIT);
    run(&net, 3 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_WORKER, 0, 400 * MBIT);
    /* On a downlink that is always full the worker shares, and only the rate while it is alone is
     * measured. */
    net.worker[0].up_bps = 1000 * MBIT;
    run(&net, 2 * WEFT_NS_PER_S);
    assert_true(weft_sched_service_capacity(net.service, WEFT_SCHED_WORKER, 0) > 500 * MBIT);
    net.compute_ns = 150 * WEFT_NS_PER_MS;
    run(&net, 3 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_WORKER, 0, 1000 * MBIT);
    net_free(&net);
}

static void a_server_that_everybody_finds_slow_is(void **state)
{
    (void)state;
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, 1000 * MBIT);
    run(&net, 2 * WEFT_NS_PER_S);
    net.down_bps = 400 * MBIT;
    run(&net, WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_SERVER, 0, 400 * MBIT);
    net.down_bps = 1000 * MBIT;
    run(&net, 2 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_SERVER, 0, 1000 * MBIT);
    net_free(&net);
}

/* A server that is restarted with another rate of its links. */
static void a_rate_that_a_server_reports_later(void **state)
{
    (void)state;
    struct net net;
    struct weft_sched_daemon_config config;
    net_new(&net, WEFT_SCHED_ASP, 1000 * MBIT);
    exchange(&net);
    assert_int_equal(weft_sched_service_capacity(net.service, WEFT_SCHED_SERVER, 0), 1000 * MBIT);
    weft_sched_daemon_free(net.shard);
    weft_sched_daemon_config_default(&config);
    config.workers = WORKERS;
    config.role = WEFT_SCHED_SERVER;
    config.up_bps = config.down_bps = 100 * MBIT;
    assert_int_equal(weft_sched_daemon_new(&config, &net.shard), WEFT_OK);
    weft_sched_service_connected(net.service, WORKERS, WEFT_SCHED_SERVER, 0, 2);
    weft_sched_daemon_connected(net.shard, net.now_ns);
    exchange(&net);
    assert_int_equal(weft_sched_service_capacity(net.service, WEFT_SCHED_SERVER, 0), 100 * MBIT);
    net.down_bps = 100 * MBIT;
    run(&net, 5 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_SERVER, 0, 100 * MBIT);
    net_free(&net);
}

/* All requests are granted at once, at the maximum rate. */
static void in_bsp_nothing_waits(void **state)
{
    (void)state;
    struct net net;
    net_new(&net, WEFT_SCHED_BSP, 1000 * MBIT);
    for (uint32_t i = 0; i < WORKERS; i++) {
        net.worker[i].until_ns = 20 * WEFT_NS_PER_MS;
    }
    run(&net, 21 * WEFT_NS_PER_MS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(net.worker[i].phase, SENDING);
        assert_true(net.worker[i].start_ns <= net.now_ns + host_ns);
        assert_int_equal(net.worker[i].rate_bps, 1000 * MBIT);
    }
    run(&net, 3 * WEFT_NS_PER_S);
    assert_near(&net, WEFT_SCHED_SERVER, 0, 1000 * MBIT);
    net_free(&net);
}

/* Updates that are booked for 32 s each: the third and the fourth are booked more than a minute
 * ahead, later than a plan can express, and each begins after the one before it nevertheless. */
static void grants_beyond_a_minute(void **state)
{
    (void)state;
    const uint64_t takes_ns = 31 * WEFT_NS_PER_S, look_ns = 100 * WEFT_NS_PER_MS;
    uint64_t end_ns = 0;
    uint32_t begun = 0, ended = 0;
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, MBIT);
    exchange(&net);
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct weft_sched_share share = {.bytes = BYTES};
        weft_sched_daemon_ask(net.worker[i].daemon, ++net.worker[i].clock, 1, &share, 0);
        net.worker[i].start_ns = WEFT_NEVER;
        net.worker[i].phase = ASKING;
    }
    for (; ended < WORKERS; net.now_ns += look_ns) {
        assert_true(net.now_ns < 5 * takes_ns);
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct worker *w = &net.worker[i];
            struct weft_sched_answer answer;
            while (weft_sched_daemon_answer(w->daemon, net.now_ns, &answer)) {
                assert_int_equal(answer.kind, WEFT_SCHED_SEND);
                w->start_ns = answer.start_ns;
            }
            if (w->phase == ASKING && net.now_ns >= w->start_ns) {
                assert_int_equal(begun, ended); /* nothing else is being sent */
                begun++;
                w->phase = SENDING;
                end_ns = net.now_ns + takes_ns;
                weft_sched_daemon_counts(net.shard, begun, ended);
            } else if (w->phase == SENDING && net.now_ns >= end_ns) {
                const struct weft_sched_event event = {.worker = i, .clock = 1, .norm = 1};
                weft_sched_daemon_committed(net.shard, &event);
                weft_sched_daemon_counts(net.shard, begun, ++ended);
                weft_sched_daemon_ended(w->daemon);
                w->phase = COMPUTING;
            }
        }
        exchange(&net);
    }
    assert_int_equal(weft_sched_service_counters(net.service)->ended_unreported, 0);
    net_free(&net);
}

/* The server reports another rate while many transfers of different rates are in flight, none of
 * which ends: its link has no free steps for all of their new bookings. A transfer without a
 * booking keeps its last grant. */
static void a_transfer_without_a_booking_keeps_its_rate(void **state)
{
    enum { MANY = 60, CHANGES = 12 };
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[MANY + 1];
    struct weft_prng prng;
    uint64_t now_ns = 1;
    uint32_t revised = 0;
    (void)state;
    weft_prng_init(&prng, 3);
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = MANY + 1;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    for (uint32_t i = 0; i <= MANY; i++) {
        const uint64_t bps = i < MANY ? weft_prng_range(&prng, 20, 400) * MBIT : 10000 * MBIT;
        daemons[i] = sched_daemon_of(i, MANY, 1, WEFT_SCHED_ASP, WEFT_NEVER, bps);
        weft_sched_service_connected(service, i, i < MANY ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                     i % MANY, 1);
        weft_sched_daemon_connected(daemons[i], 0);
    }
    sched_exchange(service, daemons, MANY + 1, now_ns);
    for (uint32_t i = 0; i < MANY; i++) {
        const struct weft_sched_share share = {.bytes = weft_prng_range(&prng, 100000, 20000000)};
        weft_sched_daemon_ask(daemons[i], 1, 1, &share, now_ns);
    }
    for (uint32_t i = 0; i < CHANGES; i++) {
        weft_sched_daemon_free(daemons[MANY]);
        daemons[MANY] = sched_daemon_of(MANY, MANY, 1, WEFT_SCHED_ASP, WEFT_NEVER,
                                        weft_prng_range(&prng, 500, 20000) * MBIT);
        weft_sched_service_connected(service, MANY, WEFT_SCHED_SERVER, 0, 1);
        weft_sched_daemon_connected(daemons[MANY], now_ns);
        for (uint32_t k = 0; k < 3; k++) {
            now_ns += weft_prng_range(&prng, 0, 30) * WEFT_NS_PER_MS;
            sched_exchange(service, daemons, MANY + 1, now_ns);
        }
        for (uint32_t w = 0; w < MANY; w++) {
            struct weft_sched_answer answer;
            while (weft_sched_daemon_answer(daemons[w], now_ns, &answer)) {
                assert_true(answer.rate_bps >= MBIT);
                revised++;
            }
        }
    }
    const struct weft_planner *planner = weft_sched_service_planner(service);
    assert_true(revised > 5 * MANY);
    assert_true(weft_planner_counters(planner)->full > 0); /* the case of this test occurs */
    for (uint32_t i = 0; i <= MANY; i++) {
        weft_sched_daemon_free(daemons[i]);
    }
    weft_sched_service_free(service);
}

/* Processes of a job: workers, then one shard. */
static void connect_job(struct weft_sched_service *service, struct weft_sched_daemon **daemons,
                        uint32_t workers, enum weft_sched_mode mode, uint64_t now_ns)
{
    for (uint32_t i = 0; i <= workers; i++) {
        daemons[i] = sched_daemon_of(i, workers, 1, mode, WEFT_NEVER, 1000 * MBIT);
        weft_sched_service_connected(service, i,
                                     i < workers ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                     i % workers, now_ns + 1);
        weft_sched_daemon_connected(daemons[i], now_ns);
    }
}

/* Returns the number of workers that were granted an update. */
static uint32_t run_job(struct weft_sched_service *service, struct weft_sched_daemon **daemons,
                        uint32_t workers, enum weft_sched_mode mode, uint64_t *now_ns)
{
    uint32_t granted = 0;
    connect_job(service, daemons, workers, mode, *now_ns);
    sched_exchange(service, daemons, workers + 1, *now_ns);
    for (uint32_t i = 0; i < workers; i++) {
        const struct weft_sched_share share = {.bytes = BYTES};
        weft_sched_daemon_ask(daemons[i], 1, 1, &share, *now_ns);
    }
    for (uint32_t k = 0; k < 500; k++) {
        struct weft_sched_answer answer;
        *now_ns += WEFT_NS_PER_MS;
        sched_exchange(service, daemons, workers + 1, *now_ns);
        for (uint32_t i = 0; i < workers; i++) {
            while (weft_sched_daemon_answer(daemons[i], *now_ns, &answer)) {
                const struct weft_sched_event event = {.worker = i, .clock = 1, .norm = 1};
                granted += answer.kind == WEFT_SCHED_SEND;
                weft_sched_daemon_committed(daemons[workers], &event);
                weft_sched_daemon_ended(daemons[i]);
            }
        }
    }
    return granted;
}

static void leave(struct weft_sched_service *service, struct weft_sched_daemon **daemons,
                  uint32_t first, uint32_t end, uint64_t now_ns)
{
    for (uint32_t i = first; i < end; i++) {
        weft_sched_service_disconnected(service, i, now_ns);
        weft_sched_daemon_free(daemons[i]);
    }
}

/* A scheduler that is not told its job plans the next one, of another size and mode, when no
 * process of the last is left; its counters are of all. */
static void the_next_job_is_planned(void **state)
{
    enum { MOST = 4 };
    (void)state;
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[MOST + 1];
    struct weft_planner_counters planned;
    uint64_t now_ns = 1;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = MOST + 1;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    assert_int_equal(run_job(service, daemons, 2, WEFT_SCHED_BSP, &now_ns), 2);
    leave(service, daemons, 0, 3, now_ns);
    assert_int_equal(run_job(service, daemons, 3, WEFT_SCHED_ASP, &now_ns), 3);
    assert_int_equal(weft_sched_service_counters(service)->refused_job, 0);
    weft_sched_service_planned(service, &planned);
    assert_int_equal(planned.granted, 5);
    assert_int_equal(planned.commits, 5);
    leave(service, daemons, 0, 4, now_ns);
    weft_sched_service_planned(service, &planned);
    assert_int_equal(planned.granted, 5);
    assert_int_equal(run_job(service, daemons, 4, WEFT_SCHED_SSP, &now_ns), 4);
    leave(service, daemons, 0, 5, now_ns);
    weft_sched_service_free(service);
}

/* The processes of a job are killed and the next job, with fewer workers, is started: its processes
 * connect before the ends of the old connections are known. */
static void the_next_job_connects_before_the_last_is_gone(void **state)
{
    enum { OLD = 3, NEW = 2, ALL = OLD + 1 + NEW + 1 };
    (void)state;
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[ALL];
    uint64_t now_ns = 1;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = ALL;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    assert_int_equal(run_job(service, daemons, OLD, WEFT_SCHED_BSP, &now_ns), OLD);
    for (uint32_t i = 0; i <= OLD; i++) {
        weft_sched_daemon_disconnected(daemons[i]);
    }
    for (uint32_t i = 0; i <= NEW; i++) {
        const uint32_t conn = OLD + 1 + i;
        daemons[conn] = sched_daemon_of(i, NEW, 1, WEFT_SCHED_BSP, WEFT_NEVER, 1000 * MBIT);
        weft_sched_service_connected(service, conn,
                                     i < NEW ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER, i % NEW,
                                     now_ns);
        weft_sched_daemon_connected(daemons[conn], now_ns);
    }
    const struct weft_sched_service_counters *c = weft_sched_service_counters(service);
    assert_int_equal(c->workers_here, OLD - NEW); /* the one without a successor */
    assert_int_equal(c->shards_here, 0);
    for (uint32_t i = 0; i <= OLD; i++) {
        weft_sched_service_disconnected(service, i, now_ns);
    }
    assert_int_equal(c->workers_here, 0);
    sched_exchange(service, daemons, ALL, now_ns); /* no report is refused */
    assert_int_equal(c->refused_job, 0);
    assert_int_equal(c->workers_here, NEW);
    assert_int_equal(c->shards_here, 1);
    for (uint32_t i = 0; i < NEW; i++) {
        const struct weft_sched_share share = {.bytes = BYTES};
        weft_sched_daemon_ask(daemons[OLD + 1 + i], 1, 1, &share, now_ns);
    }
    sched_exchange(service, daemons, ALL, now_ns);
    for (uint32_t i = 0; i < NEW; i++) {
        struct weft_sched_answer answer;
        assert_true(weft_sched_daemon_answer(daemons[OLD + 1 + i], now_ns, &answer));
        assert_int_equal(answer.kind, WEFT_SCHED_SEND);
    }
    leave(service, daemons, 0, ALL, now_ns);
    weft_sched_service_free(service);
}

/* There is no memory for the plan of a job. The next job gets one, also if it connects and reports
 * before anybody has asked whether the scheduler is ready. */
static void the_job_after_one_without_memory_is_planned(void **state)
{
    enum { PAIR = 2, ALL = 2 * (PAIR + 1) };
    (void)state;
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[PAIR + 1];
    uint64_t now_ns = 1;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = ALL;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    connect_job(service, daemons, PAIR, WEFT_SCHED_BSP, now_ns);
    sched_report(service, daemons, PAIR + 1, now_ns);
    assert_true(weft_sched_service_is_ready(service));
    has_memory = false;
    assert_int_equal(weft_sched_job_new(service), WEFT_NOMEM);
    has_memory = true;
    assert_false(weft_sched_service_is_ready(service)); /* it is not tried again at every event */
    for (uint32_t i = 0; i <= PAIR; i++) {
        weft_sched_daemon_free(daemons[i]);
    }
    now_ns += WEFT_NS_PER_S; /* the new processes have other incarnations */
    assert_int_equal(run_job(service, daemons, PAIR, WEFT_SCHED_ASP, &now_ns), PAIR);
    leave(service, daemons, 0, PAIR + 1, now_ns);
    weft_sched_service_free(service);
}

/* SSP: the worker at the least clock goes first, even if its update is longer, and even if a worker
 * with a lower clock has left while it had no update. */
static void who_has_left_is_not_the_slowest(void **state)
{
    enum { TRIO = 3 };
    (void)state;
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[TRIO + 1];
    struct weft_sched_answer answer;
    uint64_t now_ns = 1, start_ns[2] = {0, 0};
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = TRIO + 1;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    assert_int_equal(run_job(service, daemons, TRIO, WEFT_SCHED_SSP, &now_ns), TRIO);
    weft_sched_service_disconnected(service, 2, now_ns);
    weft_sched_daemon_disconnected(daemons[2]);
    for (uint32_t i = 0; i < 2; i++) {
        const struct weft_sched_share share = {.bytes = i == 0 ? 4 * BYTES : BYTES};
        weft_sched_daemon_ask(daemons[i], i == 0 ? 3 : 4, 1, &share, now_ns);
    }
    sched_exchange(service, daemons, TRIO + 1, now_ns);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(weft_sched_daemon_answer(daemons[i], now_ns, &answer));
        assert_int_equal(answer.kind, WEFT_SCHED_SEND);
        start_ns[i] = answer.start_ns;
    }
    assert_true(start_ns[0] < start_ns[1]);
    leave(service, daemons, 0, TRIO + 1, now_ns);
    weft_sched_service_free(service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_hosts_make_no_link_slower),
        cmocka_unit_test(contention_is_noticed_within_a_second),
        cmocka_unit_test(a_server_that_everybody_finds_slow_is),
        cmocka_unit_test(a_rate_that_a_server_reports_later),
        cmocka_unit_test(in_bsp_nothing_waits),
        cmocka_unit_test(a_transfer_without_a_booking_keeps_its_rate),
        cmocka_unit_test(grants_beyond_a_minute),
        cmocka_unit_test(the_next_job_is_planned),
        cmocka_unit_test(the_next_job_connects_before_the_last_is_gone),
        cmocka_unit_test(the_job_after_one_without_memory_is_planned),
        cmocka_unit_test(who_has_left_is_not_the_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
