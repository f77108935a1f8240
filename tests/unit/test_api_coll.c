/* Collective operations through <weft/coll.h> over loopback: every kind, many at a time and from
 * several threads, loss with error feedback, groups, and invalid calls. */
#include "comm_job.h"

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/units.h"

enum { RANKS = 4, COUNT = 5000, ROUNDS = 30 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)
#define RUN(op) CHECK(weft_comm_run(comm, (op), NULL) == WEFT_OK)

/* ---- every kind ------------------------------------------------------------------------------ */

struct buffers {
    int64_t in[RANKS * COUNT];
    int64_t out[RANKS * COUNT];
};

static int64_t value(uint32_t rank, uint64_t i)
{
    return (int64_t)(rank + 1) * 1000000 + (int64_t)i;
}

static struct buffers *filled(uint32_t rank)
{
    struct buffers *b = calloc(1, sizeof(*b));
    for (uint64_t i = 0; i < RANKS * COUNT; i++) {
        b->in[i] = value(rank, i);
    }
    return b;
}

static int64_t sum_at(uint64_t i)
{
    int64_t sum = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        sum += value(r, i);
    }
    return sum;
}

static const char *reductions(struct weft_comm *comm, uint32_t rank, struct buffers *b)
{
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, b->in, b->out, COUNT);
    op.type = WEFT_COMM_I64;
    RUN(&op);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(b->out[i] == sum_at(i));
    }
    op.kind = WEFT_COMM_REDUCE;
    op.root = 2;
    memset(b->out, 0, sizeof(b->out));
    RUN(&op);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(b->out[i] == (rank == 2 ? sum_at(i) : 0));
    }
    op.kind = WEFT_COMM_REDUCE_SCATTER;
    op.reduction = WEFT_COMM_MAX;
    RUN(&op);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(b->out[i] == value(RANKS - 1, rank * COUNT + i));
    }
    return NULL;
}

static const char *movements(struct weft_comm *comm, uint32_t rank, struct buffers *b)
{
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_GATHER, b->in, b->out, COUNT);
    op.type = WEFT_COMM_I64;
    RUN(&op);
    for (uint64_t i = 0; i < RANKS * COUNT; i++) {
        CHECK(b->out[i] == value((uint32_t)(i / COUNT), i % COUNT));
    }
    op.kind = WEFT_COMM_ALL_TO_ALL;
    RUN(&op);
    for (uint64_t i = 0; i < RANKS * COUNT; i++) {
        CHECK(b->out[i] == value((uint32_t)(i / COUNT), rank * COUNT + i % COUNT));
    }
    op.kind = WEFT_COMM_SCATTER;
    op.root = 1;
    RUN(&op);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(b->out[i] == value(1, rank * COUNT + i));
    }
    op.kind = WEFT_COMM_GATHER;
    memset(b->out, 0, sizeof(b->out));
    RUN(&op);
    for (uint64_t i = 0; i < RANKS * COUNT; i++) {
        CHECK(b->out[i] == (rank == 1 ? value((uint32_t)(i / COUNT), i % COUNT) : 0));
    }
    op.kind = WEFT_COMM_BROADCAST;
    op.root = 3;
    RUN(&op);
    for (uint64_t i = 0; rank != 3 && i < COUNT; i++) {
        CHECK(b->out[i] == value(3, i));
    }
    op = job_op(WEFT_COMM_BARRIER, NULL, NULL, 0);
    RUN(&op);
    return NULL;
}

/* Around a ring; the receive is called after the send. */
static const char *pairs(struct weft_comm *comm, uint32_t rank, struct buffers *b)
{
    uint64_t sent;
    struct weft_comm_op op = job_op(WEFT_COMM_SEND, b->in, NULL, COUNT);
    op.type = WEFT_COMM_I64;
    op.peer = (rank + 1) % RANKS;
    op.tag = 77;
    CHECK(weft_comm_begin(comm, &op, &sent) == WEFT_OK);
    op = job_op(WEFT_COMM_RECV, NULL, b->out, COUNT);
    op.type = WEFT_COMM_I64;
    op.peer = (rank + RANKS - 1) % RANKS;
    op.tag = 77;
    RUN(&op);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(b->out[i] == value(op.peer, i));
    }
    CHECK(weft_comm_wait(comm, sent, JOB_TIMEOUT_NS, NULL) == WEFT_OK);
    op.peer = rank;
    CHECK(weft_comm_run(comm, &op, NULL) == WEFT_INVALID);
    CHECK(strstr(weft_comm_error(comm), "peer") != NULL);
    return NULL;
}

static const char *every_kind(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    struct buffers *b = filled(rank);
    const char *wrong = reductions(comm, rank, b);
    wrong = wrong != NULL ? wrong : movements(comm, rank, b);
    wrong = wrong != NULL ? wrong : pairs(comm, rank, b);
    free(b);
    return wrong;
}

static void every_kind_gives_the_right_values(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, every_kind, NULL);
    struct weft_comm_counters counters = {.size = sizeof(counters)};
    weft_comm_counters_get(job.comm[1], &counters);
    assert_int_equal(counters.operations, 11);
    assert_int_equal(counters.operations_done, 11);
    assert_true(counters.messages_sent > 0 && counters.bytes_sent > COUNT);
    assert_int_equal(counters.elements_missing, 0);
    assert_null(weft_comm_failure(job.comm[0]));
    job_close(&job);
}

static void the_same_over_tcp(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    config.transport = "tcp";
    char *host = strdup("127.0.0.1"); /* borrowed by open alone */
    config.host = host;
    struct job job = job_open_only(&config);
    memset(host, '?', strlen(host));
    free(host);
    const char *addresses[JOB_RANKS_MAX];
    job_addresses(&job, addresses);
    job_run(&job, job_join, addresses);
    job_run(&job, every_kind, NULL);
    job_close(&job);
}

static void the_same_without_a_key(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    config.key = NULL;
    config.security = WEFT_TRANSPORT_NONE;
    struct job job = job_open(&config);
    job_run(&job, every_kind, NULL);
    job_close(&job);
}

static const char *alone_or_many(struct weft_comm *comm, uint32_t rank, void *arg)
{
    const uint32_t *n = arg;
    float in[700], out[700];
    for (uint32_t i = 0; i < 700; i++) {
        in[i] = (float)rank;
    }
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out, 700);
    op.reduction = WEFT_COMM_MEAN;
    RUN(&op);
    for (uint32_t i = 0; i < 700; i++) {
        CHECK(out[i] == (float)(*n - 1) / 2);
    }
    return NULL;
}

static void one_rank_and_sixteen(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= JOB_RANKS_MAX; n += 15) {
        struct weft_comm_config config = job_config(n);
        struct job job = job_open(&config);
        job_run(&job, alone_or_many, &n);
        job_close(&job);
    }
}

/* ---- many at a time -------------------------------------------------------------------------- */

enum { FLIGHT = 12, SMALL = 3000 };

static const char *in_flight(struct weft_comm *comm, uint32_t rank, void *arg)
{
    static float in[RANKS][FLIGHT][SMALL], out[RANKS][FLIGHT][SMALL];
    const bool *by_fd = arg;
    uint64_t id[FLIGHT];
    bool seen[FLIGHT] = {0};
    int fd = -1;
    CHECK(!*by_fd || weft_comm_fd(comm, &fd) == WEFT_OK);
    for (uint32_t k = 0; k < FLIGHT; k++) {
        for (uint32_t i = 0; i < SMALL; i++) {
            in[rank][k][i] = (float)(rank + k);
        }
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in[rank][k], out[rank][k], SMALL);
        op.user = &seen[k];
        CHECK(weft_comm_begin(comm, &op, &id[k]) == WEFT_OK);
    }
    for (uint32_t k = 0; k < FLIGHT; k++) {
        struct weft_comm_done done = {.size = sizeof(done)};
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        CHECK(!*by_fd || poll(&ready, 1, 20000) == 1);
        CHECK(weft_comm_wait_any(comm, *by_fd ? 0 : JOB_TIMEOUT_NS, &done) == WEFT_OK);
        CHECK(done.status == WEFT_OK && done.contributors_min == RANKS && done.total_ns > 0);
        bool *mark = done.user;
        CHECK(!*mark);
        *mark = true;
    }
    struct pollfd idle = {.fd = fd, .events = POLLIN};
    CHECK(!*by_fd || poll(&idle, 1, 0) == 0);
    CHECK(weft_comm_wait_any(comm, 0, NULL) == WEFT_NOTFOUND);
    CHECK(weft_comm_wait(comm, id[3], 0, NULL) == WEFT_NOTFOUND);
    for (uint32_t k = 0; k < FLIGHT; k++) {
        for (uint32_t i = 0; i < SMALL; i++) {
            CHECK(out[rank][k][i] == (float)(6 + RANKS * k));
        }
    }
    return NULL;
}

static void many_are_under_way_at_once(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    bool by_fd = false;
    job_run(&job, in_flight, &by_fd);
    by_fd = true;
    job_run(&job, in_flight, &by_fd);
    job_close(&job);
}

struct one_waiter {
    pthread_t thread;
    struct weft_comm *comm;
    uint64_t id;
    bool by_id;
    atomic_bool begun;
    weft_status status;
    struct weft_comm_done done;
};

static void *wait_in_thread(void *arg)
{
    struct one_waiter *w = arg;
    w->done.size = sizeof(w->done);
    atomic_store(&w->begun, true);
    w->status = w->by_id ? weft_comm_wait(w->comm, w->id, JOB_TIMEOUT_NS, &w->done)
                         : weft_comm_wait_any(w->comm, JOB_TIMEOUT_NS, &w->done);
    return NULL;
}

enum { WAITERS = 3, WAIT_ROUNDS = 10 };

struct wait_round {
    bool both;        /* wait for both operations by id, or only for the second */
    atomic_bool wait; /* rank 0's threads wait: rank 1 may call */
    bool as_meant;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * (long)WEFT_NS_PER_MS}, NULL);
}

/* Three threads of rank 0 wait before the first operation is done: one for the second by its id,
 * one for any, and one perhaps for the first, so that no operation remains for the second
 * thread. */
static const char *by_id_and_any(struct weft_comm *comm, uint32_t rank, void *arg)
{
    struct wait_round *round = arg;
    float in = 1, out[2] = {0};
    uint64_t id[2];
    int fd;
    CHECK(weft_comm_fd(comm, &fd) == WEFT_OK);
    while (rank == 1 && !atomic_load(&round->wait)) {
        pause_ms(1);
    }
    for (uint32_t k = 0; k < 2; k++) {
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out[k], 1);
        CHECK(weft_comm_begin(comm, &op, &id[k]) == WEFT_OK);
    }
    if (rank == 1) {
        CHECK(weft_comm_wait(comm, id[0], JOB_TIMEOUT_NS, NULL) == WEFT_OK);
        CHECK(weft_comm_wait(comm, id[1], JOB_TIMEOUT_NS, NULL) == WEFT_OK);
        return NULL;
    }
    struct one_waiter waiter[WAITERS] = {{.comm = comm}, /* the first sleeping thread */
                                         {.comm = comm, .id = id[1], .by_id = true},
                                         {.comm = comm, .id = id[0], .by_id = true}};
    uint32_t n = round->both ? 3 : 2, ended = 0;
    for (uint32_t i = 0; i < n; i++) {
        CHECK(pthread_create(&waiter[i].thread, NULL, wait_in_thread, &waiter[i]) == 0);
        while (!atomic_load(&waiter[i].begun)) {
            pause_ms(1);
        }
        pause_ms(5);
    }
    atomic_store(&round->wait, true);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(pthread_join(waiter[i].thread, NULL) == 0);
        CHECK(waiter[i].status == WEFT_OK || waiter[i].status == WEFT_NOTFOUND);
        ended += waiter[i].status == WEFT_OK;
    }
    struct pollfd idle = {.fd = fd, .events = POLLIN};
    CHECK(poll(&idle, 1, 0) == 0);
    CHECK(out[0] == 2 && out[1] == 2 && ended == 2);
    round->as_meant = waiter[1].status == WEFT_OK && (!round->both || waiter[2].status == WEFT_OK);
    return NULL;
}

/* A thread may have announced its wait but not begun it, so not every round must have the intended
 * order. */
static void who_waits_for_one_gets_it(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    uint32_t as_meant = 0;
    for (uint32_t i = 0; i < WAIT_ROUNDS; i++) {
        struct wait_round round = {.both = i % 2 == 0};
        job_run(&job, by_id_and_any, &round);
        as_meant += round.as_meant;
    }
    assert_in_range(as_meant, WAIT_ROUNDS * 8 / 10, WAIT_ROUNDS);
    job_close(&job);
}

/* ---- which thread leads ---------------------------------------------------------------------- */

enum { STREAMS = 3, STREAM_ROUNDS = 120 };

/* One of a rank's threads. It uses a separate group, because the operations of a group are
 * ordered. */
struct stream {
    pthread_t thread;
    struct weft_comm *comm;
    uint32_t rank, number, group;
    const char *wrong;
};

/* Begin, and wait in one of the ways in which programs do. */
static const char *one_way(struct stream *s, uint32_t round)
{
    struct weft_comm *comm = s->comm;
    float in[SMALL], out[SMALL];
    uint64_t id;
    for (uint32_t i = 0; i < SMALL; i++) {
        in[i] = (float)(s->rank + round % 100);
    }
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out, round % 4 == 0 ? 1 : SMALL);
    op.group = s->group;
    CHECK(weft_comm_begin(comm, &op, &id) == WEFT_OK);
    weft_status status = WEFT_TIMEOUT;
    switch ((round + s->number + s->rank) % 4) {
    case 0: /* wait at once */
        status = weft_comm_wait(comm, id, JOB_TIMEOUT_NS, NULL);
        break;
    case 1: /* wait after computing, sometimes for longer than the grace period */
        pause_ms(round % 8 == 0 ? 2 : 0);
        status = weft_comm_wait(comm, id, JOB_TIMEOUT_NS, NULL);
        break;
    case 2: /* poll with short waits */
        while (status == WEFT_TIMEOUT) {
            status = weft_comm_wait(comm, id, 20 * WEFT_NS_PER_US, NULL);
        }
        break;
    case 3: /* do not wait: the communicator's thread does all work */
        while (status == WEFT_TIMEOUT) {
            sched_yield();
            status = weft_comm_wait(comm, id, 0, NULL);
        }
        break;
    }
    CHECK(status == WEFT_OK);
    CHECK(out[0] == (float)(1 + 2 * (round % 100)) && out[op.count - 1] == out[0]);
    return NULL;
}

static void *stream_run(void *arg)
{
    struct stream *s = arg;
    for (uint32_t round = 0; round < STREAM_ROUNDS && s->wrong == NULL; round++) {
        s->wrong = one_way(s, round);
    }
    return NULL;
}

static const char *streams(struct weft_comm *comm, uint32_t rank, void *arg)
{
    const uint32_t both[] = {0, 1};
    struct stream stream[STREAMS];
    struct weft_comm_counters counters = {.size = sizeof(counters)};
    (void)arg;
    for (uint32_t i = 0; i < STREAMS; i++) {
        stream[i] = (struct stream){.comm = comm, .rank = rank, .number = i};
        CHECK(weft_comm_group(comm, both, 2, &stream[i].group) == WEFT_OK);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        CHECK(pthread_create(&stream[i].thread, NULL, stream_run, &stream[i]) == 0);
    }
    for (uint32_t i = 0; i < 10; i++) { /* work for the endpoint's thread, whichever thread leads */
        weft_comm_counters_get(comm, &counters);
        pause_ms(1);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        CHECK(pthread_join(stream[i].thread, NULL) == 0);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        CHECK(stream[i].wrong == NULL);
    }
    weft_comm_counters_get(comm, &counters);
    CHECK(counters.operations_done == STREAMS * STREAM_ROUNDS);
    return NULL;
}

static void threads_that_wait_drive_in_turns(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    job_run(&job, streams, NULL);
    job_close(&job);
}

/* The program computes between operations; meanwhile its endpoint's thread answers the other
 * ranks. */
static const char *one_sleeps(struct weft_comm *comm, uint32_t rank, void *arg)
{
    static float in[2][RANKS * COUNT], out[2][RANKS * COUNT];
    uint64_t id;
    (void)arg;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in[rank], out[rank], RANKS * COUNT);
    for (uint32_t i = 0; i < 20; i++) {
        RUN(&op); /* so the caller leads, and afterwards no thread leads */
    }
    CHECK(weft_comm_begin(comm, &op, &id) == WEFT_OK);
    pause_ms(rank == 0 ? 300 : 0);
    struct weft_comm_done done = {.size = sizeof(done)};
    CHECK(weft_comm_wait(comm, id, JOB_TIMEOUT_NS, &done) == WEFT_OK);
    /* at both ranks: rank 1 did not wait for rank 0 to wake up */
    CHECK(done.total_ns < 200 * WEFT_NS_PER_MS);
    return NULL;
}

static void it_goes_on_while_the_program_computes(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    job_run(&job, one_sleeps, NULL);
    job_close(&job);
}

static const char *too_many(struct weft_comm *comm, uint32_t rank, void *arg)
{
    float in = 1, out[3];
    uint64_t id[3];
    (void)rank, (void)arg;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out[0], 1);
    CHECK(weft_comm_begin(comm, &op, &id[0]) == WEFT_OK);
    op.out = &out[1];
    CHECK(weft_comm_begin(comm, &op, &id[1]) == WEFT_OK);
    op.out = &out[2];
    CHECK(weft_comm_begin(comm, &op, &id[2]) == WEFT_AGAIN);
    CHECK(strstr(weft_comm_error(comm), "ops_max") != NULL);
    CHECK(weft_comm_wait(comm, id[1], JOB_TIMEOUT_NS, NULL) == WEFT_OK);
    CHECK(weft_comm_begin(comm, &op, &id[2]) == WEFT_OK);
    CHECK(weft_comm_wait(comm, id[2], JOB_TIMEOUT_NS, NULL) == WEFT_OK);
    CHECK(weft_comm_wait(comm, id[0], JOB_TIMEOUT_NS, NULL) == WEFT_OK);
    return out[0] == 2 && out[1] == 2 && out[2] == 2 ? NULL : "sums";
}

static void a_full_queue_says_so(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    config.ops_max = 2;
    struct job job = job_open(&config);
    job_run(&job, too_many, NULL);
    job_close(&job);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static const char *grouped(struct weft_comm *comm, uint32_t rank, void *arg)
{
    const uint32_t odd[] = {3, 1}, pair[] = {0, 2}, twice[] = {1, 1};
    uint32_t odds, pairs, none;
    (void)arg;
    CHECK(weft_comm_group(comm, odd, 2, &odds) == WEFT_OK);
    CHECK(weft_comm_group(comm, pair, 2, &pairs) == WEFT_OK);
    CHECK(weft_comm_group(comm, twice, 2, &none) == WEFT_INVALID);
    CHECK(odds == 1 && pairs == 2);
    int32_t in = (int32_t)rank + 10, out = 0;
    struct weft_comm_op op = job_op(WEFT_COMM_BROADCAST, &in, &out, 1);
    op.type = WEFT_COMM_I32;
    op.group = rank % 2 == 1 ? odds : pairs;
    RUN(&op);
    CHECK(rank == 3 || rank == 0 ||
          out == (rank == 1 ? 13 : 10)); /* root: the first of the group */
    op.group = rank % 2 == 1 ? pairs : odds;
    CHECK(weft_comm_run(comm, &op, NULL) == WEFT_INVALID);
    CHECK(strstr(weft_comm_error(comm), "is not in group") != NULL);
    op.group = 7;
    CHECK(weft_comm_run(comm, &op, NULL) == WEFT_INVALID);
    CHECK(strstr(weft_comm_error(comm), "group 7 does not exist") != NULL);
    return NULL;
}

static void groups_are_apart(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, grouped, NULL);
    job_close(&job);
}

/* ---- loss ------------------------------------------------------------------------------------ */

struct lossy {
    uint64_t count;
    float *out[RANKS];
    float *residual[RANKS];
    uint64_t missing[RANKS];
};

/* The sum sent in all rounds equals the sum that arrived plus the residuals. */
static const char *with_feedback(struct weft_comm *comm, uint32_t rank, void *arg)
{
    struct lossy *l = arg;
    uint64_t n = l->count;
    float *in = calloc(n, sizeof(*in)), *sum = calloc(n, sizeof(*sum));
    uint8_t *missed = calloc(n / 32 + 1, 1);
    const char *wrong = NULL;
    for (uint32_t round = 0; round < ROUNDS && wrong == NULL; round++) {
        for (uint64_t i = 0; i < n; i++) {
            in[i] = (float)(rank + 1);
        }
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, l->out[rank], n);
        struct weft_comm_done done = {.size = sizeof(done)};
        op.bound_ppm = 300000;
        op.residual = l->residual[rank];
        op.missed = missed;
        wrong = weft_comm_run(comm, &op, &done) == WEFT_OK ? NULL : weft_comm_error(comm);
        l->missing[rank] += done.own_missing;
        for (uint64_t i = 0; i < n; i++) {
            sum[i] += l->out[rank][i];
        }
    }
    memcpy(l->out[rank], sum, n * sizeof(*sum));
    free(missed);
    free(sum);
    free(in);
    return wrong;
}

static void what_is_missing_is_kept_and_comes_later(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    config.packet_bytes = 1472;
    config.inject_loss_ppm = 50000;
    struct job job = job_open(&config);
    struct lossy l = {.count = 40000};
    for (uint32_t r = 0; r < RANKS; r++) {
        l.out[r] = calloc(l.count, sizeof(float));
        l.residual[r] = calloc(l.count, sizeof(float));
    }
    job_run(&job, with_feedback, &l);
    for (uint64_t i = 0; i < l.count; i++) {
        float all = l.out[0][i];
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_true(l.out[r][i] == l.out[0][i]);
            all += l.residual[r][i];
        }
        assert_true(all == ROUNDS * 10);
    }
    assert_true(l.missing[0] + l.missing[1] + l.missing[2] + l.missing[3] > 0);
    struct weft_comm_counters counters = {.size = sizeof(counters)};
    weft_comm_counters_get(job.comm[0], &counters);
    assert_int_equal(counters.own_elements_missing, l.missing[0]);
    for (uint32_t r = 0; r < RANKS; r++) {
        free(l.out[r]);
        free(l.residual[r]);
    }
    job_close(&job);
}

/* ---- invalid calls --------------------------------------------------------------------------- */

static void calls_that_are_wrong_are_refused_in_words(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(1);
    struct job job = job_open(&config);
    float in[4] = {1, 2, 3, 4}, out[4];
    const struct weft_comm_op right = job_op(WEFT_COMM_ALL_REDUCE, in, out, 4);
    struct weft_comm_op rows[12];
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        rows[i] = right;
    }
    const char *words[] = {"kind",       "type",        "root",    "reduction",
                           "in is NULL", "out is NULL", "aligned", "bound_ppm",
                           "residual",   "bound_ppm",   "count",   "size"};
    static_assert(WEFT_ARRAY_COUNT(words) == WEFT_ARRAY_COUNT(rows));
    rows[0].kind = 99;
    rows[1].type = 99;
    rows[2].kind = WEFT_COMM_BROADCAST;
    rows[2].root = 1;
    rows[3].reduction = WEFT_COMM_XOR;
    rows[4].in = NULL;
    rows[5].out = NULL;
    rows[6].in = (const char *)in + 1;
    rows[7].bound_ppm = 1000000;
    rows[8].residual = out;
    rows[8].reduction = WEFT_COMM_MAX;
    rows[9].kind = WEFT_COMM_ALL_GATHER;
    rows[9].bound_ppm = 5;
    rows[10].count = UINT64_MAX / 2;
    rows[11].size = 3;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        weft_status status = weft_comm_run(job.comm[0], &rows[i], NULL);
        if (status != WEFT_INVALID) {
            print_message("row %zu is accepted\n", i);
        }
        assert_int_equal(status, WEFT_INVALID);
        if (strstr(weft_comm_error(job.comm[0]), words[i]) == NULL) {
            print_message("row %zu: %s\n", i, weft_comm_error(job.comm[0]));
        }
        assert_non_null(strstr(weft_comm_error(job.comm[0]), words[i]));
    }
    assert_int_equal(weft_comm_run(job.comm[0], &right, NULL), WEFT_OK);
    assert_true(out[3] == 4);
    job_close(&job);
}

static void configurations_that_are_wrong_are_refused_in_words(void **state)
{
    (void)state;
    const struct weft_comm_config right = job_config(2);
    struct weft_comm_config rows[7];
    struct weft_comm *comm = NULL;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        rows[i] = right;
    }
    const char *words[] = {"rank is 2",           "ranks is 0", "epoch",
                           "packet_bytes is 600", "host",       "congestion",
                           "transport \"rdma\""};
    rows[0].rank = 2;
    rows[1].ranks = 0;
    rows[2].epoch = UINT64_C(1) << 40;
    rows[3].packet_bytes = 600;
    rows[4].host = "nowhere.example";
    rows[5].congestion = "best";
    rows[6].transport = "rdma";
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        assert_int_equal(weft_comm_open(&rows[i], &comm), WEFT_INVALID);
        if (strstr(weft_comm_error(NULL), words[i]) == NULL) {
            print_message("row %zu: %s\n", i, weft_comm_error(NULL));
        }
        assert_non_null(strstr(weft_comm_error(NULL), words[i]));
    }
    weft_comm_close(NULL);
}

/* Two jobs on one port: the second is refused, and the first continues. */
static void a_port_in_use_is_refused_in_words(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(1);
    struct weft_comm *comm = NULL;
    float in = 3, out = 0;
    for (int tcp = 0; tcp < 2; tcp++) {
        config.transport = tcp ? "tcp" : NULL;
        config.port = 0;
        struct job job = job_open(&config);
        config.port = (uint16_t)atoi(strrchr(weft_comm_address(job.comm[0]), ':') + 1);
        assert_int_equal(weft_comm_open(&config, &comm), WEFT_EXISTS);
        assert_null(comm);
        assert_non_null(strstr(weft_comm_error(NULL), "is in use by another program"));
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
        assert_int_equal(weft_comm_run(job.comm[0], &op, NULL), WEFT_OK);
        assert_true(out == 3);
        job_close(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_gives_the_right_values),
        cmocka_unit_test(the_same_over_tcp),
        cmocka_unit_test(the_same_without_a_key),
        cmocka_unit_test(one_rank_and_sixteen),
        cmocka_unit_test(many_are_under_way_at_once),
        cmocka_unit_test(who_waits_for_one_gets_it),
        cmocka_unit_test(threads_that_wait_drive_in_turns),
        cmocka_unit_test(it_goes_on_while_the_program_computes),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(groups_are_apart),
        cmocka_unit_test(what_is_missing_is_kept_and_comes_later),
        cmocka_unit_test(calls_that_are_wrong_are_refused_in_words),
        cmocka_unit_test(configurations_that_are_wrong_are_refused_in_words),
        cmocka_unit_test(a_port_in_use_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
