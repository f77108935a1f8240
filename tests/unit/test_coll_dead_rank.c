/* A rank that dies without a word ends the operation at all others within 6 s, with the defaults of
 * a communicator, whatever the others are doing and whoever dies after it: production endpoints and
 * state machines in virtual time. */
#include "node/coll_thread.h"
#include "sim/world.h"

#include "base/assert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS WEFT_NS_PER_MS

enum { RANKS = 5, COUNT = 50000, DIES = 3, DIES_LATER = 1, EPOCH = 1 };

static const uint64_t end_ns_max = 6 * WEFT_NS_PER_S;

struct scenario {
    const char *name;
    uint32_t loss_ppm;
    uint64_t rtt_ns;
    bool absent;       /* the rank has not called the operation: the others hear only its replies */
    uint64_t calls_ns; /* from when all are connected until the others call; so is the next */
    uint64_t dies_ns;
    uint64_t later_ns; /* from then until another rank dies; WEFT_NEVER = none */
};

struct rank {
    struct weft_coll *coll;
    float *in;
    float *out;
    void *work;
    uint64_t failed_ns; /* the operation in progress ended with an error; 0 = not yet */
};

struct job {
    const struct scenario *scenario;
    struct weft_world *world;
    struct rank rank[RANKS];
    uint64_t calls_ns;
};

static void begin(struct job *job, uint32_t r, uint64_t now_ns)
{
    struct weft_coll_call call = {
        .kind = WEFT_COLL_ALL_REDUCE,
        .count = COUNT,
        .in = job->rank[r].in,
        .out = job->rank[r].out,
        .timeout_ns = 300 * WEFT_NS_PER_S,
        .work = job->rank[r].work,
    };
    weft_status status = weft_coll_begin(job->rank[r].coll, &call, now_ns);
    assert_int_equal(status, WEFT_OK);
    weft_coll_progress(job->rank[r].coll, now_ns);
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct job *job = self;
    weft_coll_event(job->rank[host].coll, event, now_ns);
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    (void)self;
    (void)host;
    (void)now_ns;
}

/* As the communicator's thread does, and the next operation follows as soon as one is done. */
static void on_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct job *job = self;
    struct rank *rank = &job->rank[host];
    struct weft_coll_done done;
    if (weft_coll_deadline(rank->coll) <= now_ns) {
        weft_coll_on_deadline(rank->coll, now_ns);
    }
    weft_coll_progress(rank->coll, now_ns);
    while (weft_coll_poll(rank->coll, &done)) {
        if (done.status != WEFT_OK) {
            assert_int_equal(done.status, WEFT_PEER);
            rank->failed_ns = now_ns;
        }
    }
    bool absent = job->scenario->absent && host == DIES;
    if (now_ns >= job->calls_ns && !absent && rank->failed_ns == 0 && weft_coll_open_ops(rank->coll) == 0) {
        begin(job, host, now_ns);
    }
    weft_peer peer;
    while (weft_coll_take_close(rank->coll, &peer)) {
        weft_ep_close(weft_world_ep(job->world, host), peer, now_ns);
    }
    uint64_t deadline_ns = weft_coll_deadline(rank->coll);
    if (now_ns < job->calls_ns) {
        deadline_ns = weft_min_u64(deadline_ns, job->calls_ns);
    }
    if (deadline_ns != WEFT_NEVER) {
        weft_world_wake(job->world, host, weft_max_u64(deadline_ns, now_ns + 1));
    }
}

static void rank_make(struct job *job, uint32_t r)
{
    struct weft_coll_thread_config config;
    weft_coll_thread_config_default(&config);
    struct weft_net_link_config link = {.rate_bps = UINT64_C(1000000000),
                                        .delay_ns = job->scenario->rtt_ns / 4,
                                        .buffer_bytes = 1 << 20};
    weft_net_link_set(weft_world_net(job->world), r, WEFT_NET_UP, &link);
    weft_net_link_set(weft_world_net(job->world), r, WEFT_NET_DOWN, &link);
    struct weft_world_host_config host = {
        .ep = config.driver.udp.ep,
        .progress_delay_ns = 20 * WEFT_NS_PER_US,
        .socket_packets = 4096,
        .app = {.self = job, .event = on_event, .wake = on_wake, .batch = on_batch},
    };
    host.ep.name = weft_coll_name(EPOCH, r);
    host.ep.incarnation = r + 1;
    host.ep.seed = 77 + r;
    host.ep.accept = 1;
    host.ep.peers_max = RANKS;
    host.ep.expects_max = WEFT_COLL_EXPECTS;
    assert_int_equal(weft_world_host_init(job->world, r, &host), WEFT_OK);
    config.coll.rank = r;
    config.coll.ranks = RANKS;
    config.coll.epoch = EPOCH;
    config.coll.peers_max = RANKS;
    config.coll.chunks_max = host.ep.chunks_max;
    struct rank *rank = &job->rank[r];
    assert_int_equal(
        weft_coll_new(&config.coll, weft_ep_msgr(weft_world_ep(job->world, r)), &rank->coll),
        WEFT_OK);
    rank->in = calloc(COUNT, sizeof(*rank->in));
    rank->out = calloc(COUNT, sizeof(*rank->out));
    struct weft_coll_call call = {.count = COUNT, .in = rank->in, .out = rank->out};
    rank->work = aligned_alloc(WEFT_COLL_ALIGN, weft_coll_work_bytes(rank->coll, &call));
    WEFT_ASSERT(rank->in != NULL && rank->out != NULL && rank->work != NULL);
}

static struct job *job_new(const struct scenario *scenario)
{
    struct job *job = calloc(1, sizeof(*job));
    WEFT_ASSERT(job != NULL);
    job->scenario = scenario;
    job->calls_ns = WEFT_NEVER;
    struct weft_world_config config = {
        .hosts = RANKS,
        .seed = 5,
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    job->world = weft_world_new(&config);
    for (uint32_t r = 0; r < RANKS; r++) {
        rank_make(job, r);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t to = 0; to < r; to++) {
            struct weft_addr addr = weft_world_addr(to);
            weft_peer peer;
            assert_int_equal(weft_ep_connect(weft_world_ep(job->world, r), &addr, 0, &peer),
                             WEFT_OK);
        }
        weft_world_wake(job->world, r, 0);
    }
    (void)weft_world_run(job->world, WEFT_NS_PER_S);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(weft_coll_ranks_up(job->rank[r].coll), RANKS);
        weft_world_wake(job->world, r, weft_world_now_ns(job->world) + scenario->calls_ns);
        struct weft_net_faults faults = {.loss_ppm = scenario->loss_ppm};
        weft_net_faults_set(weft_world_net(job->world), r, WEFT_NET_DOWN, &faults);
    }
    job->calls_ns = weft_world_now_ns(job->world) + scenario->calls_ns;
    return job;
}

static void job_free(struct job *job)
{
    weft_world_free(job->world); /* first: endpoints borrow the memory */
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_coll_free(job->rank[r].coll);
        free(job->rank[r].in);
        free(job->rank[r].out);
        free(job->rank[r].work);
    }
    free(job);
}

/* Returns the longest time from the death to the end of an operation. */
static uint64_t longest_end(const struct scenario *scenario)
{
    struct job *job = job_new(scenario);
    uint64_t dies_ns = weft_world_now_ns(job->world) + scenario->dies_ns;
    uint64_t most_ns = 0;
    (void)weft_world_run(job->world, dies_ns);
    weft_world_kill(job->world, DIES);
    if (scenario->later_ns != WEFT_NEVER) {
        (void)weft_world_run(job->world, dies_ns + scenario->later_ns);
        weft_world_kill(job->world, DIES_LATER);
    }
    (void)weft_world_run(job->world, dies_ns + 20 * WEFT_NS_PER_S);
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct rank *rank = &job->rank[r];
        if (!weft_world_alive(job->world, r)) {
            continue;
        }
        assert_true(rank->failed_ns > dies_ns);
        const struct weft_coll_failure *f = weft_coll_failure(rank->coll);
        assert_int_equal(f->reason, WEFT_COLL_DOWN);
        bool other = scenario->later_ns < WEFT_NS_PER_S && f->rank == DIES_LATER;
        assert_true(f->rank == DIES || other);
        most_ns = weft_max_u64(most_ns, rank->failed_ns - dies_ns);
    }
    assert_string_equal(weft_world_wrong(job->world), "");
    job_free(job);
    return most_ns;
}

static void a_dead_rank_ends_the_operation_in_time(void **state)
{
    (void)state;
    static const struct scenario rows[] = {
        {"in the middle of an operation", 0, 200000, false, 0, 37 * MS, WEFT_NEVER},
        {"at another time of it", 0, 200000, false, 0, 38 * MS + 700000, WEFT_NEVER},
        {"with loss", 50000, 200000, false, 0, 41 * MS, WEFT_NEVER},
        {"over a long path with loss", 50000, 80 * MS, false, 0, 1500 * MS, WEFT_NEVER},
        {"before its call", 0, 200000, true, 0, 3000 * MS, WEFT_NEVER},
        {"before its call, between two probes", 0, 200000, true, 0, 3271 * MS, WEFT_NEVER},
        {"before its call, with loss", 50000, 80 * MS, true, 0, 3900 * MS, WEFT_NEVER},
        {"two at a time", 0, 200000, false, 0, 37 * MS, 0},
        {"another rank after a second", 0, 200000, true, 0, 3000 * MS, 1000 * MS},
        {"and another, to which messages are then sent", 0, 200000, false, 8210 * MS, 3271 * MS,
         4900 * MS},
        {"the same over a long path", 0, 300 * MS, false, 8250 * MS, 3250 * MS, 4950 * MS},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        uint64_t ns = longest_end(&rows[i]);
        print_message("%s: after %llu ms\n", rows[i].name, (unsigned long long)(ns / MS));
        assert_in_range(ns, 5 * WEFT_NS_PER_S, end_ns_max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_rank_ends_the_operation_in_time),
    };
    return cmocka_run_group_tests_name("coll_dead_rank", tests, NULL, NULL);
}
