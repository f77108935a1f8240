/* Sums assigned by the plan: the service and daemons of eight workers, one shard and some
 * aggregators, over links modeled as queues, in virtual time. A worker reads the model, computes,
 * requests a grant, and sends as granted; an aggregator sends a sum, or with cut-through a piece of
 * it, when all its members have arrived. */
#include "base/prng.h"
#include "print_seed.h"
#include "sched/daemon.h"
#include "sched/planner.h"
#include "sched/service.h"
#include "sched_exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 8, BYTES = 250000 };

#define MBIT UINT64_C(1000000)

static const uint64_t tick_ns = 500 * WEFT_NS_PER_US;

enum phase { COMPUTING, ASKING, SENDING };

struct worker {
    struct weft_sched_daemon *daemon;
    enum phase phase;
    uint64_t until_ns; /* COMPUTING */
    uint64_t clock;
    uint64_t base;
    uint64_t begin_ns;
    uint64_t at_hop_ns; /* arrival time at an aggregator; 0 = arrived, or sent directly */
    uint64_t done_ns;   /* arrival time at the shard; 0 = not known yet */
    uint32_t hop, group, members;
    uint64_t sum_bytes; /* of the sum that contained it; 0 = none */
    uint64_t gather_ns; /* with pieces: time when the members begin to arrive at the aggregator */
    uint32_t forwarded; /* with pieces, of the sum's first member: pieces sent to the shard */
    uint64_t rate_bps;  /* at which the shard received it */
};

struct net {
    struct weft_sched_service *service;
    struct weft_sched_daemon *shard;
    struct worker worker[WORKERS];
    uint32_t aggregators;
    uint64_t reading_ns;                         /* the shard's uplink is busy until then */
    uint64_t down_ns;                            /* the same for its downlink */
    uint64_t hop_ns[WEFT_SCHED_AGGREGATORS_MAX]; /* the same for aggregators' downlinks */
    uint64_t link_bps, down_bps;                 /* true rates */
    uint64_t now_ns, opened, closed, sums, in_sums, compute_ns;
    uint64_t delay_sum, delay_max; /* of commits */
    uint64_t drops, dropped_sum;   /* updates that were dropped, and their delays by then */
    uint32_t slow_ppm; /* share of steps with three times the computation time */
    bool is_sparse;    /* a sum is larger than one update */
    bool hides_sums;   /* the shard does not report the sizes of sums */
    bool varies;       /* other traffic leaves each transfer to the shard another rate */
    uint32_t pieces;   /* > 1: aggregators forward sums in so many pieces */
    uint64_t stop_steps; /* all workers stop after each so many steps; 0 = never */
    uint32_t stopped;    /* workers that have stopped */
    uint64_t stops;
    struct weft_prng prng;
};

static uint32_t pieces; /* of the next job */

static void net_new(struct net *net, enum weft_sched_mode mode, uint32_t aggregators,
                    uint64_t tau_max)
{
    struct weft_sched_service_config config;
    struct weft_sched_daemon_config daemon;
    memset(net, 0, sizeof(*net));
    net->aggregators = aggregators;
    net->link_bps = 28 * MBIT;
    net->down_bps = 11 * MBIT;
    net->compute_ns = 20 * WEFT_NS_PER_MS;
    weft_prng_init(&net->prng, 1);
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.conns_max = WORKERS + 1;
    config.link_bps = net->link_bps;
    config.pieces = net->pieces = pieces;
    assert_int_equal(weft_sched_service_new(&config, &net->service), WEFT_OK);
    weft_sched_daemon_config_default(&daemon);
    daemon.workers = WORKERS;
    daemon.role = WEFT_SCHED_SERVER;
    assert_int_equal(weft_sched_daemon_new(&daemon, &net->shard), WEFT_OK);
    weft_sched_service_connected(net->service, WORKERS, WEFT_SCHED_SERVER, 0, 1);
    weft_sched_daemon_connected(net->shard, 0);
    daemon.role = WEFT_SCHED_WORKER;
    daemon.mode = mode;
    daemon.tau_max = tau_max;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        daemon.index = i;
        assert_int_equal(weft_sched_daemon_new(&daemon, &w->daemon), WEFT_OK);
        weft_sched_daemon_aggregators(w->daemon, aggregators, 0);
        weft_sched_service_connected(net->service, i, WEFT_SCHED_WORKER, i, 1);
        weft_sched_daemon_connected(w->daemon, 0);
        w->until_ns = (i + 1) * 20 * WEFT_NS_PER_MS;
    }
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

/* Append to the queue of the link. */
static uint64_t passes(uint64_t *busy_ns, uint64_t from_ns, uint64_t bytes, uint64_t bps)
{
    *busy_ns = weft_max_u64(*busy_ns, from_ns) + bytes * 8 * 1000 / (bps / MBIT);
    return *busy_ns;
}

/* Sparse: each update has 48 % of the rows, independently of the others, so two have 1.52 times the
 * rows of one. */
static uint64_t bytes_of_sum(const struct net *net, uint32_t members)
{
    uint64_t bytes = BYTES, rest = BYTES;
    for (uint32_t i = 1; net->is_sparse && i < members; i++) {
        rest = rest * 52 / 100;
        bytes += rest;
    }
    return bytes;
}

/* The rate of one transfer to the shard. */
static uint64_t free_bps(struct net *net)
{
    return net->varies ? (7 + 4 * weft_prng_below(&net->prng, 3)) * MBIT : net->down_bps;
}

static void send(struct net *net, struct worker *w)
{
    if (w->hop > 0) {
        w->at_hop_ns = passes(&net->hop_ns[w->hop - 1], net->now_ns, BYTES, net->link_bps);
    } else if (w->done_ns == 0 && net->now_ns >= w->begin_ns) {
        w->rate_bps = free_bps(net);
        w->done_ns = passes(&net->down_ns, net->now_ns, BYTES, w->rate_bps);
    }
}

/* Time when a worker that starts now has read the model and computed. */
static uint64_t computes_until(struct net *net)
{
    uint64_t ns = net->compute_ns * (weft_prng_chance(&net->prng, net->slow_ppm) ? 3 : 1);
    return passes(&net->reading_ns, net->now_ns, BYTES, net->link_bps) + ns;
}

static void read_all(struct net *net)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        net->worker[i].base = net->opened;
        net->worker[i].until_ns = computes_until(net);
    }
}

/* The last worker to stop lets all continue. */
static void stop(struct net *net, struct worker *w)
{
    w->until_ns = WEFT_NEVER;
    if (++net->stopped == WORKERS) {
        net->stopped = 0;
        net->stops++;
        read_all(net);
    }
}

static void read_again(struct net *net, struct worker *w)
{
    weft_sched_daemon_ended(w->daemon);
    w->phase = COMPUTING;
    if (net->stop_steps > 0 && w->clock % net->stop_steps == 0) {
        stop(net, w);
        return;
    }
    w->base = net->opened;
    w->until_ns = computes_until(net);
}

static void take_answers(struct net *net, struct worker *w)
{
    struct weft_sched_answer answer;
    while (weft_sched_daemon_answer(w->daemon, net->now_ns, &answer)) {
        if (answer.kind == WEFT_SCHED_DROP) {
            assert_int_equal(w->phase, ASKING); /* no byte was sent */
            net->drops++;
            net->dropped_sum += net->opened - w->base;
            read_again(net, w);
            continue;
        }
        assert_int_equal(answer.kind, WEFT_SCHED_SEND);
        if (w->phase == ASKING) {
            w->begin_ns = answer.start_ns;
            w->hop = answer.hop;
            w->group = answer.group;
            w->members = answer.members;
            assert_true(w->hop <= net->aggregators && (w->hop > 0) == (w->members >= 2));
            w->phase = SENDING;
            w->done_ns = w->at_hop_ns = w->sum_bytes = 0;
            if (w->hop > 0) {
                w->gather_ns = weft_max_u64(net->hop_ns[w->hop - 1], net->now_ns);
                w->forwarded = 0;
                send(net, w);
            }
        } else if (w->hop == 0 && w->done_ns == 0) {
            w->begin_ns = answer.start_ns;
        }
    }
}

/* Members of the sum of this worker that are being sent; *first_p: the first of them, *begin_ns_p
 * and *end_ns_p: from when to when they arrive at the aggregator. */
static uint32_t members_there(struct net *net, const struct worker *of, struct worker **first_p,
                              uint64_t *begin_ns_p, uint64_t *end_ns_p)
{
    uint32_t there = 0;
    *first_p = NULL;
    *begin_ns_p = WEFT_NEVER;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        if (w->phase == SENDING && w->hop == of->hop && w->group == of->group) {
            *first_p = *first_p == NULL ? w : *first_p;
            *begin_ns_p = weft_min_u64(*begin_ns_p, w->gather_ns);
            there++;
        }
    }
    *end_ns_p = net->hop_ns[of->hop - 1];
    return there;
}

/* The members arrive together, in pieces: each piece is sent when it has arrived from all. */
static void hop_forward(struct net *net, const struct worker *of)
{
    struct worker *first;
    uint64_t begin_ns, end_ns;
    const uint32_t there = members_there(net, of, &first, &begin_ns, &end_ns);
    if (there < of->members || first->forwarded == net->pieces) {
        return;
    }
    assert_int_equal(there, of->members);
    const uint64_t bytes = bytes_of_sum(net, there);
    while (first->forwarded < net->pieces) {
        const uint64_t ready_ns =
            begin_ns + (end_ns - begin_ns) * (first->forwarded + 1) / net->pieces;
        if (net->now_ns < ready_ns) {
            return;
        }
        first->rate_bps = free_bps(net);
        (void)passes(&net->down_ns, net->now_ns, bytes / net->pieces, first->rate_bps);
        first->forwarded++;
    }
    net->sums++;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        if (w->phase == SENDING && w->hop == of->hop && w->group == of->group) {
            w->done_ns = net->down_ns;
            w->sum_bytes = bytes;
            w->rate_bps = first->rate_bps;
            net->in_sums++;
        }
    }
}

/* All members have arrived: the sum is sent. */
static void hop_look(struct net *net, const struct worker *of)
{
    uint32_t there = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct worker *w = &net->worker[i];
        there +=
            w->phase == SENDING && w->hop == of->hop && w->group == of->group && w->at_hop_ns == 0;
    }
    if (there < of->members) {
        return;
    }
    assert_int_equal(there, of->members);
    const uint64_t bytes = bytes_of_sum(net, there), rate_bps = free_bps(net);
    const uint64_t done_ns = passes(&net->down_ns, net->now_ns, bytes, rate_bps);
    net->sums++;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &net->worker[i];
        if (w->phase == SENDING && w->hop == of->hop && w->group == of->group) {
            w->done_ns = done_ns;
            w->sum_bytes = bytes;
            w->rate_bps = rate_bps;
            net->in_sums++;
        }
    }
}

static void turn(struct net *net, uint32_t i)
{
    struct worker *w = &net->worker[i];
    take_answers(net, w);
    if (w->phase == COMPUTING && net->now_ns >= w->until_ns) {
        const struct weft_sched_share share = {.bytes = BYTES, .base = w->base};
        weft_sched_daemon_ask(w->daemon, ++w->clock, 1, &share, net->now_ns);
        w->phase = ASKING;
    } else if (w->phase == SENDING && w->at_hop_ns != 0 && net->now_ns >= w->at_hop_ns) {
        w->at_hop_ns = 0;
        weft_sched_daemon_delivered(w->daemon, 0, net->now_ns - w->begin_ns);
        if (net->pieces <= 1) {
            hop_look(net, w);
        }
    } else if (w->phase == SENDING && w->hop == 0) {
        send(net, w);
    }
    if (w->phase == SENDING && w->hop > 0 && net->pieces > 1 && w->done_ns == 0) {
        hop_forward(net, w);
    }
    if (w->phase == SENDING && w->done_ns != 0 && w->at_hop_ns == 0 && net->now_ns >= w->done_ns) {
        const uint64_t rate = w->rate_bps;
        const bool is_in_sum = w->sum_bytes > 0 && !net->hides_sums;
        const uint64_t delay = net->opened - w->base;
        net->delay_sum += delay;
        net->delay_max = weft_max_u64(net->delay_max, delay);
        weft_sched_daemon_counts(net->shard, ++net->opened, ++net->closed);
        const struct weft_sched_event event = {.worker = i,
                                               .clock = w->clock,
                                               .norm = 1,
                                               .rate_bps = rate,
                                               .alone_bps = rate,
                                               .all_bps = rate,
                                               .members = is_in_sum ? w->members : 0,
                                               .sum_bytes = is_in_sum ? w->sum_bytes : 0};
        weft_sched_daemon_committed(net->shard, &event);
        weft_sched_daemon_delivered(w->daemon, 0, net->now_ns - w->begin_ns);
        read_again(net, w);
    }
}

/* In BSP no worker reads before all have ended the clock. */
static bool must_wait(const struct net *net, const struct worker *w)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct worker *other = &net->worker[i];
        if (other->clock < w->clock || (other->clock == w->clock && other->phase != COMPUTING)) {
            return true;
        }
    }
    return false;
}

static void turns(struct net *net)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        turn(net, i);
    }
    exchange(net);
    net->now_ns += tick_ns;
}

static void run(struct net *net, uint64_t seconds, bool is_bsp)
{
    uint64_t waits = 0; /* bits: workers that read when all have arrived */
    for (uint64_t end_ns = net->now_ns + seconds * WEFT_NS_PER_S; net->now_ns < end_ns;
         net->now_ns += tick_ns) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct worker *w = &net->worker[i];
            enum phase was = w->phase;
            uint64_t reading_ns = net->reading_ns;
            turn(net, i);
            if (is_bsp && was == SENDING && w->phase == COMPUTING) {
                net->reading_ns = reading_ns;
                w->until_ns = WEFT_NEVER;
                waits |= UINT64_C(1) << i;
            }
        }
        for (uint32_t i = 0; waits != 0 && i < WORKERS; i++) {
            if ((waits >> i & 1) != 0 && !must_wait(net, &net->worker[i])) {
                waits ^= UINT64_C(1) << i;
                net->worker[i].until_ns = computes_until(net);
            }
        }
        exchange(net);
    }
}

static uint64_t commits(enum weft_sched_mode mode, uint32_t aggregators, uint32_t slow_ppm,
                        uint64_t *in_sums_p)
{
    struct net net;
    net_new(&net, mode, aggregators, WEFT_NEVER);
    net.slow_ppm = slow_ppm;
    net.compute_ns = slow_ppm > 0 ? 200 * WEFT_NS_PER_MS : net.compute_ns;
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_aggregators(net.worker[i].daemon, aggregators,
                                      (UINT32_C(1) << aggregators) - 1);
    }
    run(&net, 30, mode == WEFT_SCHED_BSP);
    const struct weft_sched_service_counters *counters = weft_sched_service_counters(net.service);
    print_message("# mode %d, %u aggregators: %llu commits in 30 s, %llu of them in %llu sums\n",
                  (int)mode, aggregators, (unsigned long long)net.closed,
                  (unsigned long long)net.in_sums, (unsigned long long)net.sums);
    assert_int_equal(counters->ended_unreported, 0);
    assert_int_equal(counters->unplanned, 0);
    uint64_t least = WEFT_NEVER, most = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        least = weft_min_u64(least, net.worker[i].clock);
        most = weft_max_u64(most, net.worker[i].clock);
    }
    assert_true(least * 10 >= most * 7); /* no worker waits while others continue */
    *in_sums_p = net.in_sums;
    uint64_t closed = net.closed;
    net_free(&net);
    return closed;
}

/* If the server's downlink is the bottleneck, sums increase the number of updates that it
 * carries. */
static void more_commits(void **state)
{
    (void)state;
    uint64_t none, in_sums;
    uint64_t asp = commits(WEFT_SCHED_ASP, 0, 0, &none);
    assert_int_equal(none, 0);
    assert_true(commits(WEFT_SCHED_ASP, 2, 0, &in_sums) * 10 >= asp * 16);
    assert_true(commits(WEFT_SCHED_ASP, 3, 0, &in_sums) * 10 >= asp * 21);
    assert_true(in_sums * 2 > asp);
    uint64_t bsp = commits(WEFT_SCHED_BSP, 0, 0, &none);
    assert_true(commits(WEFT_SCHED_BSP, 3, 0, &in_sums) * 10 >= bsp * 13);
}

/* Slow steps make the workers' clocks differ, and sums are formed nevertheless. */
static void clocks_apart(void **state)
{
    (void)state;
    uint64_t none, in_sums;
    uint64_t asp = commits(WEFT_SCHED_ASP, 0, 100000, &none);
    uint64_t planned = commits(WEFT_SCHED_ASP, 3, 100000, &in_sums);
    assert_true(planned * 10 >= asp * 17);
    assert_true(in_sums * 10 >= planned * 9);
}

/* Virtual time of two rounds of eight steps, with one step in ten three times as long; all workers
 * stop at the end of each round, as `weft train` does to test the model. Adds to *in_sums_p. */
static uint64_t two_rounds_ns(uint32_t aggregators, uint64_t *in_sums_p)
{
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, aggregators, WEFT_NEVER);
    weft_prng_init(&net.prng, seed);
    net.slow_ppm = 100000;
    net.compute_ns = 200 * WEFT_NS_PER_MS;
    net.stop_steps = 8;
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_aggregators(net.worker[i].daemon, aggregators,
                                      (UINT32_C(1) << aggregators) - 1);
    }
    read_all(&net);
    while (net.stops < 2) {
        assert_true(net.now_ns < 60 * WEFT_NS_PER_S);
        turns(&net);
    }
    *in_sums_p += net.in_sums;
    net_free(&net);
    return net.now_ns;
}

/* The same, summed over 6 jobs. */
static uint64_t rounds_ns(uint32_t aggregators, uint64_t *in_sums_p)
{
    uint64_t all_ns = 0;
    *in_sums_p = 0;
    for (seed = 1; seed <= 6; seed++) {
        all_ns += two_rounds_ns(aggregators, in_sums_p);
    }
    print_message("# %u aggregators: %.2f s for 128 updates, %.1f of them in sums\n", aggregators,
                  (double)all_ns / (6.0 * WEFT_NS_PER_S), (double)*in_sums_p / 6);
    return all_ns;
}

/* At the begin and the end of a round few workers wait at a time. Two of them are still summed,
 * although the server is idle while the sum is formed. */
static void rounds(void **state)
{
    (void)state;
    uint64_t in_sums;
    const uint64_t none_ns = rounds_ns(0, &in_sums);
    for (uint32_t aggregators = 2; aggregators <= 3; aggregators++) {
        assert_true(rounds_ns(aggregators, &in_sums) * 170 <= none_ns * 100);
        assert_true(in_sums >= UINT64_C(6) * 112);
    }
}

/* In no job are three or four aggregators worse than two by more than a sixteenth. */
static void more_aggregators(void **state)
{
    (void)state;
    uint64_t in_sums = 0, worst_ppm = 0;
    for (seed = 1; seed <= 24; seed++) {
        const uint64_t two_ns = two_rounds_ns(2, &in_sums);
        for (uint32_t aggregators = 3; aggregators <= 4; aggregators++) {
            const uint64_t ppm = two_rounds_ns(aggregators, &in_sums) / (two_ns / WEFT_PPM);
            worst_ppm = weft_max_u64(worst_ppm, ppm);
        }
    }
    print_message("# three or four aggregators take at most %.3f times as long as two\n",
                  (double)worst_ppm / WEFT_PPM);
    assert_true(worst_ppm <= WEFT_PPM + WEFT_PPM / 16);
}

/* The planner expects the pieces that workers cut: none below 64 KiB for each server. */
static void pieces_of_an_update(void **state)
{
    (void)state;
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    assert_int_equal(weft_planner_pieces(&config, 1 << 20), 1);
    config.pieces = 4;
    assert_int_equal(weft_planner_pieces(&config, 0), 1);
    assert_int_equal(weft_planner_pieces(&config, (128 << 10) - 1), 1);
    assert_int_equal(weft_planner_pieces(&config, 128 << 10), 2);
    assert_int_equal(weft_planner_pieces(&config, 1 << 20), 4);
}

/* With cut-through the server receives a sum while its members still arrive at the aggregator: the
 * same jobs are faster. */
static void cut_through(void **state)
{
    (void)state;
    uint64_t in_sums;
    for (uint32_t aggregators = 1; aggregators <= 3; aggregators++) {
        const uint64_t store_ns = rounds_ns(aggregators, &in_sums);
        const uint64_t store = commits(WEFT_SCHED_ASP, aggregators, 0, &in_sums);
        const uint64_t store_slow = commits(WEFT_SCHED_ASP, aggregators, 100000, &in_sums);
        pieces = 4;
        const uint64_t cut_ns = rounds_ns(aggregators, &in_sums);
        const uint64_t cut = commits(WEFT_SCHED_ASP, aggregators, 0, &in_sums);
        const uint64_t cut_slow = commits(WEFT_SCHED_ASP, aggregators, 100000, &in_sums);
        pieces = 0;
        print_message("# %u aggregators, cut-through: rounds %.3f times as fast, commits x %.3f, "
                      "with slow steps x %.3f\n",
                      aggregators, (double)store_ns / (double)cut_ns, (double)cut / (double)store,
                      (double)cut_slow / (double)store_slow);
        assert_true(cut_ns * 105 <= store_ns * 100);
        assert_true(cut * 100 >= store * 110);
        assert_true(cut_slow * 100 >= store_slow * 105);
    }
}

/* Deadlines of transfers that passed before a report, in the second half of a run. */
static uint64_t overdue(bool is_sparse, bool hides_sums, uint64_t *sums_p)
{
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, 3, WEFT_NEVER);
    net.is_sparse = is_sparse;
    net.hides_sums = hides_sums;
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_aggregators(net.worker[i].daemon, 3, 7);
    }
    run(&net, 15, false);
    const struct weft_planner_counters *counters =
        weft_planner_counters(weft_sched_service_planner(net.service));
    uint64_t before = counters->overdue, sums = net.sums;
    run(&net, 15, false);
    uint64_t overdue = counters->overdue - before;
    print_message("# %s, sizes %s: %llu commits, %llu overdue in %llu sums\n",
                  is_sparse ? "sparse" : "dense", hides_sums ? "not reported" : "reported",
                  (unsigned long long)net.closed, (unsigned long long)overdue,
                  (unsigned long long)(net.sums - sums));
    assert_true(net.sums - sums >= 20);
    *sums_p = net.sums - sums;
    net_free(&net);
    return overdue;
}

/* Sums of sparse updates are larger than one update. Booked as one, each ends later than planned;
 * the planner learns their sizes from the shard's reports. */
static void sparse_sums(void **state)
{
    (void)state;
    uint64_t sums;
    const uint64_t blind = overdue(true, true, &sums);
    assert_true(blind >= sums);
    assert_int_equal(overdue(true, false, &sums), 0);
    assert_int_equal(overdue(false, false, &sums), 0);
}

/* Other traffic leaves 7, 11 or 15 Mbit/s to the transfers to the shard, 10 on average over time.
 * The estimate is that, not the highest of the recent rates. */
static void rates_vary(void **state)
{
    (void)state;
    enum { LOOKS = 200 };
    struct net net;
    uint64_t sum_bps = 0;
    net_new(&net, WEFT_SCHED_ASP, 3, WEFT_NEVER);
    net.varies = true;
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_aggregators(net.worker[i].daemon, 3, 7);
    }
    run(&net, 5, false);
    for (uint32_t i = 0; i < LOOKS; i++) {
        for (uint32_t t = 0; t < 200; t++) {
            turns(&net);
        }
        sum_bps += weft_sched_service_capacity(net.service, WEFT_SCHED_SERVER, 0);
    }
    print_message("# rates of 7, 11 and 15 Mbit/s: estimated as %.2f on average\n",
                  (double)sum_bps / LOOKS / MBIT);
    assert_true(sum_bps > LOOKS * 9 * MBIT && sum_bps < LOOKS * 11 * MBIT);
    net_free(&net);
}

/* Every commit adds one to the delay of each other worker: all are between read and commit. */
static void check_conservation(const struct net *net)
{
    uint64_t sum = net->delay_sum + net->dropped_sum;
    for (uint32_t i = 0; i < WORKERS; i++) {
        sum += net->opened - net->worker[i].base;
    }
    assert_int_equal(sum, net->opened * (WORKERS - 1));
}

/* With a delay bound each member of a sum counts as one update: none is committed with a delay
 * above it, whatever the lengths of steps; sums are formed where the bound allows. */
static void bounded(void **state)
{
    (void)state;
    static const uint64_t taus[] = {0, 1, 3, 7, 8, 10, 14, 24};
    for (seed = 1; seed <= 48; seed++) {
        const uint64_t tau = taus[seed % WEFT_ARRAY_COUNT(taus)];
        const enum weft_sched_mode mode = seed % 3 == 0 ? WEFT_SCHED_SSP : WEFT_SCHED_ASP;
        struct net net;
        net_new(&net, mode, 3, tau);
        weft_prng_init(&net.prng, seed);
        net.slow_ppm = (uint32_t)weft_prng_below(&net.prng, 400000);
        net.compute_ns = weft_prng_range(&net.prng, 1, 300) * WEFT_NS_PER_MS;
        const uint32_t aggregators = (uint32_t)weft_prng_range(&net.prng, 1, 3);
        for (uint32_t i = 0; i < WORKERS; i++) {
            weft_sched_daemon_aggregators(net.worker[i].daemon, 3,
                                          (UINT32_C(1) << aggregators) - 1);
        }
        run(&net, 10, false);
        assert_true(net.delay_max <= tau);
        check_conservation(&net);
        assert_true(net.closed > 10);
        assert_true(net.in_sums > 0 || tau < 14);
        assert_int_equal(weft_sched_service_counters(net.service)->unplanned, 0);
        if (seed <= WEFT_ARRAY_COUNT(taus)) {
            print_message("# bound %llu: %llu commits, %llu in sums, %llu dropped, delay %llu\n",
                          (unsigned long long)tau, (unsigned long long)net.closed,
                          (unsigned long long)net.in_sums, (unsigned long long)net.drops,
                          (unsigned long long)net.delay_max);
        }
        net_free(&net);
    }
}

/* Sums use only aggregators that every worker can reach. */
static void who_is_reached(void **state)
{
    (void)state;
    struct net net;
    net_new(&net, WEFT_SCHED_ASP, 2, WEFT_NEVER);
    for (uint32_t i = 0; i < WORKERS; i++) {
        weft_sched_daemon_aggregators(net.worker[i].daemon, 2, i == 3 ? 1 : 3);
    }
    run(&net, 10, false);
    assert_true(net.in_sums > 0);
    assert_int_equal(net.hop_ns[1], 0);
    /* none that worker 3 can reach, too */
    weft_sched_daemon_aggregators(net.worker[5].daemon, 2, 2);
    run(&net, 2, false);
    uint64_t in_sums = net.in_sums, closed = net.closed;
    run(&net, 5, false);
    assert_int_equal(net.in_sums, in_sums);
    assert_true(net.closed > closed + 10);
    net_free(&net);
}

/* A worker that reaches no aggregator keeps the others from using any, but not after it has left;
 * again when it is back. */
static void who_left_reaches_all(void **state)
{
    (void)state;
    enum { SERVER = 2, LEAVES = 3, ALL = 4 };
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[ALL];
    uint64_t now_ns = WEFT_NS_PER_MS;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = 100 * MBIT;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    for (uint32_t i = 0; i < ALL; i++) {
        struct weft_sched_daemon_config daemon;
        weft_sched_daemon_config_default(&daemon);
        daemon.role = i == SERVER ? WEFT_SCHED_SERVER : WEFT_SCHED_WORKER;
        daemon.index = i == SERVER ? 0 : i == LEAVES ? 2 : i;
        daemon.workers = 3;
        daemon.mode = i == SERVER ? WEFT_SCHED_BSP : WEFT_SCHED_ASP;
        daemon.down_bps = i == SERVER ? MBIT : 0;
        assert_int_equal(weft_sched_daemon_new(&daemon, &daemons[i]), WEFT_OK);
        weft_sched_service_connected(service, i, daemon.role, daemon.index, 1);
        weft_sched_daemon_connected(daemons[i], 0);
        if (i != SERVER) {
            weft_sched_daemon_aggregators(daemons[i], 1, i != LEAVES);
        }
    }
    sched_exchange(service, daemons, ALL, 0);
    weft_sched_service_disconnected(service, LEAVES, now_ns);
    weft_sched_daemon_disconnected(daemons[LEAVES]);
    for (uint32_t i = 0; i < 2; i++) {
        const struct weft_sched_share share = {.bytes = BYTES};
        weft_sched_daemon_ask(daemons[i], 1, 1, &share, now_ns);
    }
    sched_exchange(service, daemons, LEAVES, now_ns);
    struct weft_sched_answer answer;
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(weft_sched_daemon_answer(daemons[i], now_ns, &answer));
        assert_int_equal(answer.hop, 1);
    }
    now_ns += WEFT_NS_PER_MS;
    weft_sched_service_connected(service, LEAVES, WEFT_SCHED_WORKER, 2, 1);
    weft_sched_daemon_connected(daemons[LEAVES], now_ns);
    sched_exchange(service, daemons, ALL, now_ns);
    uint32_t direct = 0;
    for (uint32_t i = 0; i < 2; i++) {
        direct += weft_sched_daemon_answer(daemons[i], now_ns, &answer) && answer.hop == 0;
    }
    assert_int_equal(direct, 1); /* the other one waits for the server's link */
    for (uint32_t i = 0; i < ALL; i++) {
        weft_sched_daemon_free(daemons[i]);
    }
    weft_sched_service_free(service);
}

/* Three workers and two shards; worker 0 sends nothing to the second shard, so the sum there has
 * fewer members. */
static void who_has_nothing_for_a_shard(void **state)
{
    (void)state;
    enum { ALL = 3, SHARDS = 2 };
    struct weft_sched_service_config config;
    struct weft_sched_daemon_config daemon;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[ALL + SHARDS];
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = 100 * MBIT;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    for (uint32_t i = 0; i < ALL + SHARDS; i++) {
        weft_sched_daemon_config_default(&daemon);
        daemon.role = i < ALL ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
        daemon.index = i < ALL ? i : i - ALL;
        daemon.workers = ALL;
        daemon.shards = SHARDS;
        daemon.mode = i < ALL ? WEFT_SCHED_ASP : WEFT_SCHED_BSP;
        daemon.tau_max = WEFT_NEVER;
        daemon.down_bps =
            i < ALL ? 0 : MBIT; /* a sum is complete long before the first update arrives */
        assert_int_equal(weft_sched_daemon_new(&daemon, &daemons[i]), WEFT_OK);
        weft_sched_service_connected(service, i, daemon.role, daemon.index, 1);
        weft_sched_daemon_connected(daemons[i], 0);
    }
    for (uint32_t i = 0; i < ALL; i++) {
        weft_sched_daemon_aggregators(daemons[i], 1, 1);
    }
    sched_exchange(service, daemons, ALL + SHARDS, 0);
    for (uint32_t i = 0; i < ALL; i++) {
        const struct weft_sched_share shares[SHARDS] = {{.bytes = BYTES},
                                                        {.bytes = i == 0 ? 0 : BYTES}};
        weft_sched_daemon_ask(daemons[i], 1, 1, shares, WEFT_NS_PER_MS);
    }
    sched_exchange(service, daemons, ALL + SHARDS, WEFT_NS_PER_MS);
    uint32_t in_sum[SHARDS] = {0}, members[SHARDS] = {0};
    bool is_in = false;
    for (uint32_t i = 0; i < ALL; i++) {
        struct weft_sched_answer answer;
        while (weft_sched_daemon_answer(daemons[i], WEFT_NS_PER_MS, &answer)) {
            in_sum[answer.shard] += answer.hop > 0;
            members[answer.shard] = answer.hop > 0 ? answer.members : members[answer.shard];
            is_in |= i == 0 && answer.hop > 0;
        }
        weft_sched_daemon_free(daemons[i]);
    }
    assert_true(is_in);
    assert_true(in_sum[0] >= 2);
    assert_int_equal(in_sum[1], in_sum[0] - 1);
    assert_int_equal(members[0], in_sum[0]);
    assert_int_equal(members[1], in_sum[1]);
    weft_sched_daemon_free(daemons[ALL]);
    weft_sched_daemon_free(daemons[ALL + 1]);
    weft_sched_service_free(service);
}

/* ---- three workers whose measurements are given ---------------------------------------------- */

enum { TRIO = 3 };

struct trio {
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[TRIO + 1];
    uint64_t now_ns, closed, clock;
    uint32_t hop[TRIO];
};

static void trio_new(struct trio *t, uint32_t aggregators)
{
    struct weft_sched_service_config config;
    memset(t, 0, sizeof(*t));
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = 100 * MBIT;
    assert_int_equal(weft_sched_service_new(&config, &t->service), WEFT_OK);
    for (uint32_t i = 0; i <= TRIO; i++) {
        struct weft_sched_daemon_config daemon;
        weft_sched_daemon_config_default(&daemon);
        daemon.role = i < TRIO ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
        daemon.index = i < TRIO ? i : 0;
        daemon.workers = TRIO;
        daemon.mode = i < TRIO ? WEFT_SCHED_ASP : WEFT_SCHED_BSP;
        daemon.tau_max = WEFT_NEVER;
        daemon.down_bps = i < TRIO ? 0 : 2 * MBIT;
        assert_int_equal(weft_sched_daemon_new(&daemon, &t->daemons[i]), WEFT_OK);
        weft_sched_service_connected(t->service, i, daemon.role, daemon.index, 1);
        weft_sched_daemon_connected(t->daemons[i], 0);
    }
    for (uint32_t i = 0; i < TRIO; i++) {
        weft_sched_daemon_aggregators(t->daemons[i], aggregators, (1u << aggregators) - 1);
    }
    sched_exchange(t->service, t->daemons, TRIO + 1, 0);
}

static void trio_free(struct trio *t)
{
    for (uint32_t i = 0; i <= TRIO; i++) {
        weft_sched_daemon_free(t->daemons[i]);
    }
    weft_sched_service_free(t->service);
}

/* The first `workers` ask for the next update, and get their answers. */
static void trio_ask(struct trio *t, uint32_t workers)
{
    const struct weft_sched_share share = {.bytes = BYTES, .base = t->closed};
    uint32_t answers = 0;
    t->clock++;
    for (uint32_t i = 0; i < workers; i++) {
        weft_sched_daemon_ask(t->daemons[i], t->clock, 1, &share, t->now_ns);
    }
    for (const uint64_t end_ns = t->now_ns + 10 * WEFT_NS_PER_S; answers < workers;) {
        struct weft_sched_answer answer;
        assert_true(t->now_ns < end_ns);
        t->now_ns += WEFT_NS_PER_MS;
        sched_exchange(t->service, t->daemons, TRIO + 1, t->now_ns);
        for (uint32_t i = 0; i < workers; i++) {
            while (weft_sched_daemon_answer(t->daemons[i], t->now_ns, &answer)) {
                answers++;
                t->hop[i] = answer.hop;
            }
        }
    }
}

/* The shard reports the end of the worker's update: in a sum of two that arrived at this rate in
 * 0.1 s; directly at this rate, or without a rate (0). */
static void trio_commit(struct trio *t, uint32_t worker, bool is_in_sum, uint64_t bps)
{
    const struct weft_sched_event event = {.worker = worker,
                                           .clock = t->clock,
                                           .norm = 1,
                                           .rate_bps = bps,
                                           .alone_bps = is_in_sum ? 0 : bps,
                                           .all_bps = bps,
                                           .members = is_in_sum ? 2 : 0,
                                           .sum_bytes = is_in_sum ? bps / 80 : 0};
    t->closed++;
    weft_sched_daemon_counts(t->daemons[TRIO], t->closed, t->closed);
    weft_sched_daemon_committed(t->daemons[TRIO], &event);
    weft_sched_daemon_ended(t->daemons[worker]);
    sched_exchange(t->service, t->daemons, TRIO + 1, t->now_ns);
}

/* All three update. The first `members` members of a group are in a sum; nothing else measures. */
static void trio_round(struct trio *t, uint32_t members, uint64_t bps)
{
    uint32_t in_sum = 0;
    trio_ask(t, TRIO);
    for (uint32_t i = 0; i < TRIO; i++) {
        const bool is_in_sum = t->hop[i] > 0 && in_sum < members;
        in_sum += is_in_sum;
        trio_commit(t, i, is_in_sum, is_in_sum ? bps : 0);
    }
    assert_int_equal(in_sum, members);
}

static uint64_t trio_bps(const struct trio *t)
{
    return weft_sched_service_capacity(t->service, WEFT_SCHED_SERVER, 0);
}

/* A sum counts once in the mean, for however many members it is reported. */
static void a_sum_counts_once(void **state)
{
    (void)state;
    struct trio t;
    trio_new(&t, 1);
    trio_round(&t, 2, MBIT);
    assert_int_equal(trio_bps(&t), MBIT);
    trio_round(&t, 1, 2 * MBIT);
    assert_int_equal(trio_bps(&t), MBIT * 3 / 2);
    trio_free(&t);
}

/* The shard reports the ends of all updates but that of a member of the group, which it returns;
 * not of worker 0. Another member's was in a sum with this rate. */
static uint32_t trio_all_but_one(struct trio *t, uint64_t bps)
{
    const uint32_t last = t->hop[TRIO - 1] > 0 ? TRIO - 1 : TRIO - 2;
    assert_true(t->hop[last] > 0);
    for (uint32_t i = 0; i < TRIO; i++) {
        if (i != last) {
            trio_commit(t, i, t->hop[i] > 0, t->hop[i] > 0 ? bps : 0);
        }
    }
    return last;
}

/* A member of a sum is reported long after the other, when many updates were measured since. The
 * sum was counted, and is no news. */
static void a_late_report_of_a_sum_is_no_news(void **state)
{
    (void)state;
    enum { UPDATES = 20 };
    struct trio t;
    trio_new(&t, 1);
    trio_ask(&t, TRIO);
    const uint32_t late = trio_all_but_one(&t, MBIT);
    assert_int_equal(trio_bps(&t), MBIT);
    const uint64_t clock = t.clock;
    for (uint32_t i = 0; i < UPDATES; i++) {
        t.now_ns += 50 * WEFT_NS_PER_MS;
        trio_ask(&t, 1);
        assert_int_equal(t.hop[0], 0);
        trio_commit(&t, 0, false, 2 * MBIT);
    }
    assert_int_equal(trio_bps(&t), 2 * MBIT);
    t.clock = clock;
    trio_commit(&t, late, true, MBIT);
    assert_int_equal(trio_bps(&t), 2 * MBIT);
    trio_free(&t);
}

/* The aggregator of a group fails, and its members are in another group when the shard reports that
 * one of them arrived in a sum: that of the first group. The sum of the second one is still to
 * come, and stays booked. */
static void a_former_groups_sum_ends_nothing(void **state)
{
    (void)state;
    struct trio t;
    uint32_t hop = 0, member = 0;
    trio_new(&t, 2);
    trio_ask(&t, TRIO);
    for (uint32_t i = 0; i < TRIO; i++) {
        if (t.hop[i] == 0) {
            trio_commit(&t, i, false, 0);
        } else {
            hop = t.hop[i];
            member = i;
        }
    }
    const struct weft_planner *planner = weft_sched_service_planner(t.service);
    const uint64_t end_ns = t.now_ns + 2 * WEFT_NS_PER_S;
    assert_int_equal(weft_planner_counters(planner)->groups, 1);
    for (uint32_t i = 0; i < TRIO; i++) {
        weft_sched_daemon_aggregators(t.daemons[i], 2, hop == 1 ? 2 : 1);
    }
    while (weft_planner_counters(planner)->groups < 2) {
        assert_true(t.now_ns < end_ns);
        t.now_ns += WEFT_NS_PER_MS;
        sched_exchange(t.service, t.daemons, TRIO + 1, t.now_ns);
    }
    trio_commit(&t, member, true, MBIT); /* nor is it measured */
    const struct weft_timeline *down = weft_planner_link(planner, TRIO, false);
    assert_true(down->steps[down->count - 1].from_ns > t.now_ns);
    assert_int_equal(trio_bps(&t), 2 * MBIT);
    trio_free(&t);
}

/* An update whose base version is above the number that its shard has reported waits for the
 * shard's report, which may be on its way. If none arrives, the update is refused, counted, and
 * sent without a grant. */
static void a_version_of_the_future_is_refused(void **state)
{
    (void)state;
    const uint64_t hold_ns = 500 * WEFT_NS_PER_MS;
    for (uint32_t is_reported = 0; is_reported < 2; is_reported++) {
        const struct weft_sched_share share = {.bytes = BYTES, .base = 5};
        struct weft_sched_answer answer;
        struct trio t;
        trio_new(&t, 1);
        const struct weft_sched_service_counters *c = weft_sched_service_counters(t.service);
        t.now_ns = WEFT_NS_PER_MS;
        weft_sched_daemon_ask(t.daemons[0], 1, 1, &share, t.now_ns);
        for (const uint64_t end_ns = t.now_ns + hold_ns; t.now_ns < end_ns - WEFT_NS_PER_MS;) {
            sched_exchange(t.service, t.daemons, TRIO + 1, t.now_ns);
            assert_false(weft_sched_daemon_answer(t.daemons[0], t.now_ns, &answer));
            t.now_ns += WEFT_NS_PER_MS;
        }
        assert_int_equal(c->refused_version, 0);
        if (is_reported) {
            weft_sched_daemon_counts(t.daemons[TRIO], 5, 5);
        }
        for (uint32_t i = 0; i < 400; i++) { /* the scheduler looks at it every 100 ms */
            sched_exchange(t.service, t.daemons, TRIO + 1, t.now_ns);
            t.now_ns += WEFT_NS_PER_MS;
        }
        assert_true(weft_sched_daemon_answer(t.daemons[0], t.now_ns, &answer));
        assert_int_equal(answer.kind, is_reported ? WEFT_SCHED_SEND : WEFT_SCHED_SEND_DIRECT);
        assert_int_equal(c->refused_version, !is_reported);
        assert_int_equal(c->unplanned, !is_reported);
        trio_free(&t);
    }
}

/* ---- two shards on one host ------------------------------------------------------------------ */

enum { HOST_SHARDS = 2 };

struct host {
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[TRIO + HOST_SHARDS];
    uint64_t now_ns, clock, closed[HOST_SHARDS];
    uint32_t hop[TRIO];
};

static void host_new(struct host *h)
{
    struct weft_sched_service_config config;
    memset(h, 0, sizeof(*h));
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = 100 * MBIT;
    assert_int_equal(weft_sched_service_new(&config, &h->service), WEFT_OK);
    for (uint32_t i = 0; i < TRIO + HOST_SHARDS; i++) {
        struct weft_sched_daemon_config daemon;
        weft_sched_daemon_config_default(&daemon);
        daemon.role = i < TRIO ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
        daemon.index = i < TRIO ? i : i - TRIO;
        daemon.workers = TRIO;
        daemon.shards = HOST_SHARDS;
        daemon.mode = i < TRIO ? WEFT_SCHED_ASP : WEFT_SCHED_BSP;
        daemon.tau_max = WEFT_NEVER;
        daemon.host = i < TRIO ? 0 : 7;
        daemon.down_bps = i < TRIO ? 0 : 4 * MBIT;
        assert_int_equal(weft_sched_daemon_new(&daemon, &h->daemons[i]), WEFT_OK);
        weft_sched_service_connected(h->service, i, daemon.role, daemon.index, 1);
        weft_sched_daemon_connected(h->daemons[i], 0);
    }
    for (uint32_t i = 0; i < TRIO; i++) {
        weft_sched_daemon_aggregators(h->daemons[i], 1, 1);
    }
}

static void host_free(struct host *h)
{
    for (uint32_t i = 0; i < TRIO + HOST_SHARDS; i++) {
        weft_sched_daemon_free(h->daemons[i]);
    }
    weft_sched_service_free(h->service);
}

static void host_exchange(struct host *h)
{
    sched_exchange(h->service, h->daemons, TRIO + HOST_SHARDS, h->now_ns);
}

/* All workers ask, and get their answers. */
static void host_ask(struct host *h)
{
    const struct weft_sched_share shares[HOST_SHARDS] = {
        {.bytes = BYTES, .base = h->closed[0]}, {.bytes = BYTES, .base = h->closed[1]}};
    uint32_t answers = 0;
    host_exchange(h);
    h->clock++;
    for (uint32_t i = 0; i < TRIO; i++) {
        weft_sched_daemon_ask(h->daemons[i], h->clock, 1, shares, h->now_ns);
    }
    for (const uint64_t end_ns = h->now_ns + 20 * WEFT_NS_PER_S; answers < TRIO * HOST_SHARDS;) {
        struct weft_sched_answer answer;
        assert_true(h->now_ns < end_ns);
        h->now_ns += WEFT_NS_PER_MS;
        host_exchange(h);
        for (uint32_t i = 0; i < TRIO; i++) {
            while (weft_sched_daemon_answer(h->daemons[i], h->now_ns, &answer)) {
                answers++;
                h->hop[i] = answer.hop;
            }
        }
    }
}

/* A shard reports the ends of all updates; those of the group in a sum that took 0.1 s. */
static void host_commit(struct host *h, uint32_t shard, uint64_t bps)
{
    for (uint32_t i = 0; i < TRIO; i++) {
        const bool is_in_sum = h->hop[i] > 0;
        const struct weft_sched_event event = {.worker = i,
                                               .clock = h->clock,
                                               .norm = 1,
                                               .rate_bps = is_in_sum ? bps : 0,
                                               .all_bps = is_in_sum ? bps : 0,
                                               .members = is_in_sum ? 2 : 0,
                                               .sum_bytes = is_in_sum ? bps / 80 : 0};
        h->closed[shard]++;
        weft_sched_daemon_counts(h->daemons[TRIO + shard], h->closed[shard], h->closed[shard]);
        weft_sched_daemon_committed(h->daemons[TRIO + shard], &event);
    }
    host_exchange(h);
}

/* The sums of a group at two shards of a host arrive together, each at half of the rate of their
 * link; then one after the other, at all of it. */
static void sums_of_a_host_share_its_link(void **state)
{
    (void)state;
    struct host h;
    host_new(&h);
    for (uint32_t apart = 0; apart < 2; apart++) {
        host_ask(&h);
        assert_int_equal((h.hop[0] > 0) + (h.hop[1] > 0) + (h.hop[2] > 0), 2);
        for (uint32_t s = 0; s < HOST_SHARDS; s++) {
            h.now_ns += apart ? 100 * WEFT_NS_PER_MS : 0;
            host_commit(&h, s, apart ? 2 * MBIT : MBIT);
        }
        for (uint32_t i = 0; i < TRIO; i++) {
            weft_sched_daemon_ended(h.daemons[i]);
        }
        for (uint32_t s = 0; s < HOST_SHARDS; s++) {
            const uint64_t bps = weft_sched_service_capacity(h.service, WEFT_SCHED_SERVER, s);
            assert_int_equal(bps, 2 * MBIT);
        }
    }
    host_free(&h);
}

/* A sum of long ago does not decide against a direct update of now. */
static void an_old_sum_decides_nothing(void **state)
{
    (void)state;
    struct trio t;
    trio_new(&t, 1);
    trio_round(&t, 2, MBIT);
    assert_int_equal(trio_bps(&t), MBIT);
    t.now_ns += 2 * WEFT_NS_PER_S;
    trio_ask(&t, 1);
    assert_int_equal(t.hop[0], 0);
    trio_commit(&t, 0, false, 2 * MBIT);
    assert_int_equal(trio_bps(&t), 2 * MBIT);
    trio_free(&t);
}

/* The first member of a group is committed. Its sum's reservation on the server's link ends if the
 * shard says that the member was in a sum, and not if it was sent directly. */
static void a_sum_is_over_where_it_arrived(void **state)
{
    (void)state;
    for (uint32_t is_in_sum = 0; is_in_sum < 2; is_in_sum++) {
        struct trio t;
        uint32_t member = TRIO;
        trio_new(&t, 1);
        trio_ask(&t, TRIO);
        for (uint32_t i = 0; i < TRIO; i++) {
            if (t.hop[i] == 0) {
                trio_commit(&t, i, false, 0);
            } else {
                member = i;
            }
        }
        assert_true(member < TRIO);
        trio_commit(&t, member, is_in_sum, 2 * MBIT);
        const struct weft_timeline *down =
            weft_planner_link(weft_sched_service_planner(t.service), TRIO, false);
        assert_int_equal(down->steps[down->count - 1].from_ns <= t.now_ns, is_in_sum);
        trio_free(&t);
    }
}

/* BSP: workers that do not wait for the clock request updates of clock 2, which the shard takes
 * only after worker 0's of clock 1: nothing of theirs is ever delivered here. Worker 0 requests
 * before or after them. Its grant must not wait for the links that theirs have booked. */
static void behind(uint32_t count, bool is_first)
{
    enum { MOST = 12 };
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[MOST + 1];
    uint64_t now_ns = 0;
    bool is_granted = false;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = 16 * MBIT;
    config.ahead = 1;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    for (uint32_t i = 0; i <= count; i++) {
        daemons[i] = sched_daemon_of(i, count, 1, WEFT_SCHED_BSP, WEFT_NEVER, 0);
        weft_sched_service_connected(service, i, i < count ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                     i % count, 1);
        weft_sched_daemon_connected(daemons[i], 0);
        if (i < count) {
            weft_sched_daemon_aggregators(daemons[i], 2, 3);
        }
    }
    sched_exchange(service, daemons, count + 1, now_ns);
    for (uint32_t k = 0; k < 1000 && !is_granted; k++) {
        struct weft_sched_answer answer;
        now_ns += WEFT_NS_PER_MS;
        for (uint32_t i = 0; i < count; i++) {
            const struct weft_sched_share share = {.bytes = i == 0 ? 79000 : 80000};
            if (k == (i == 0 && !is_first ? 500 : 0)) {
                weft_sched_daemon_ask(daemons[i], i == 0 ? 1 : 2, 1, &share, now_ns);
            }
        }
        sched_exchange(service, daemons, count + 1, now_ns);
        while (weft_sched_daemon_answer(daemons[0], now_ns, &answer)) {
            is_granted = answer.kind == WEFT_SCHED_SEND && answer.start_ns <= now_ns;
        }
        /* the others' answers, of which nothing is delivered */
        for (uint32_t i = 1; i < count; i++) {
            while (weft_sched_daemon_answer(daemons[i], now_ns, &answer)) {
            }
        }
    }
    assert_true(is_granted);
    for (uint32_t i = 0; i <= count; i++) {
        weft_sched_daemon_free(daemons[i]);
    }
    weft_sched_service_free(service);
}

static void in_bsp_a_worker_that_is_behind_is_not_held_back(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= 12; count++) {
        behind(count, true);
        behind(count, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_commits),
        cmocka_unit_test(clocks_apart),
        cmocka_unit_test_teardown(rounds, print_seed),
        cmocka_unit_test_teardown(more_aggregators, print_seed),
        cmocka_unit_test(pieces_of_an_update),
        cmocka_unit_test_teardown(cut_through, print_seed),
        cmocka_unit_test(sparse_sums),
        cmocka_unit_test(rates_vary),
        cmocka_unit_test_teardown(bounded, print_seed),
        cmocka_unit_test(who_is_reached),
        cmocka_unit_test(who_left_reaches_all),
        cmocka_unit_test(who_has_nothing_for_a_shard),
        cmocka_unit_test(a_sum_counts_once),
        cmocka_unit_test(a_late_report_of_a_sum_is_no_news),
        cmocka_unit_test(a_former_groups_sum_ends_nothing),
        cmocka_unit_test(a_version_of_the_future_is_refused),
        cmocka_unit_test(sums_of_a_host_share_its_link),
        cmocka_unit_test(an_old_sum_decides_nothing),
        cmocka_unit_test(a_sum_is_over_where_it_arrived),
        cmocka_unit_test(in_bsp_a_worker_that_is_behind_is_not_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
