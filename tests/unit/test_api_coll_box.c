/* A job whose all_reduce goes through an aggregation box, over loopback, through <weft/coll.h>: a
 * box that works, one that ends during the job, none at all, and configurations that are refused.
 */
#include "comm_job.h"

#include "base/units.h"
#include "io/dense_box.h"
#include "node/box_link.h"
#include "node/coll_thread.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 100000, SMALL = 100, ROUNDS = 4, JOB = 9, SLOTS = 16 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- the box --------------------------------------------------------------------------------- */

static struct weft_dense_box *box;
static int stop_fds[2];
static pthread_t box_thread;
static char box_address[32];

static void *box_run(void *arg)
{
    (void)arg;
    weft_dense_box_run(box, stop_fds[0]);
    return NULL;
}

static void box_start(uint8_t form, int8_t exponent)
{
    struct weft_error error = {.text = ""};
    const struct weft_dense_box_config config = {
        .host = "127.0.0.1",
        .agg = {.members = (UINT64_C(1) << RANKS) - 1,
                .slots = SLOTS,
                .job = JOB,
                .form = form,
                .exponent = exponent},
    };
    assert_int_equal(weft_dense_box_open(&config, &box, &error), WEFT_OK);
    assert_int_equal(pipe(stop_fds), 0);
    assert_int_equal(pthread_create(&box_thread, NULL, box_run, NULL), 0);
    snprintf(box_address, sizeof(box_address), "127.0.0.1:%u", weft_dense_box_port(box));
}

static void box_stop(void)
{
    assert_int_equal(write(stop_fds[1], "", 1), 1);
    assert_int_equal(pthread_join(box_thread, NULL), 0);
    weft_dense_box_close(box);
    (void)close(stop_fds[0]);
    (void)close(stop_fds[1]);
}

static struct weft_comm_config box_config(uint64_t silence_ns)
{
    struct weft_comm_config config = job_config(RANKS);
    config.box = box_address;
    config.box_insecure = 1;
    config.box_job = JOB;
    config.box_slots = SLOTS;
    config.box_timeout_ns = silence_ns;
    return config;
}

/* ---- operations ------------------------------------------------------------------------------ */

static float value(uint32_t rank, uint64_t i)
{
    return (float)(rank + 1) * (float)(i % 1000) / 4;
}

/* Sums and means of float32, in place and not; smaller ones; all are exact. */
static const char *rounds(struct weft_comm *comm, uint32_t rank, float *in, float *out, bool *boxed)
{
    for (uint32_t k = 0; k < ROUNDS; k++) {
        struct weft_comm_done done = {.size = sizeof(done)};
        bool in_place = k % 2 == 1;
        uint64_t count = k == 2 ? SMALL : COUNT;
        for (uint64_t i = 0; i < count; i++) {
            in[i] = value(rank, i);
        }
        struct weft_comm_op op =
            job_op(WEFT_COMM_ALL_REDUCE, in, in_place ? in : out, count);
        op.reduction = k == 3 ? WEFT_COMM_MEAN : WEFT_COMM_SUM;
        CHECK(weft_comm_run(comm, &op, &done) == WEFT_OK);
        for (uint64_t i = 0; i < count; i++) {
            float sum = value(0, i) + value(1, i) + value(2, i);
            CHECK((in_place ? in : out)[i] == (k == 3 ? sum / RANKS : sum));
        }
        CHECK(done.contributors_min == RANKS);
        CHECK((k == 2) == (done.boxed == WEFT_COMM_WITHOUT_BOX));
        *boxed = k == 2 ? *boxed : done.boxed == WEFT_COMM_BOXED;
    }
    return NULL;
}

static const char *work(struct weft_comm *comm, uint32_t rank, bool *boxed)
{
    float *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
    const char *wrong = in == NULL || out == NULL ? "no memory"
                                                  : rounds(comm, rank, in, out, boxed);
    free(in);
    free(out);
    return wrong;
}

static struct weft_comm_counters counters_of(struct weft_comm *comm)
{
    struct weft_comm_counters c = {.size = sizeof(c)};
    weft_comm_counters_get(comm, &c);
    return c;
}

static const char *through_box(struct weft_comm *comm, uint32_t rank, void *arg)
{
    bool boxed = false;
    (void)arg;
    CHECK(counters_of(comm).box_state == WEFT_COMM_BOX_UNTRIED);
    const char *wrong = work(comm, rank, &boxed);
    if (wrong != NULL) {
        return wrong;
    }
    CHECK(boxed);
    struct weft_comm_counters c = counters_of(comm);
    CHECK(c.box_state == WEFT_COMM_BOX_USED);
    CHECK(c.box_operations == ROUNDS - 1 && c.box_fallbacks == 0);
    CHECK(c.operations == ROUNDS && c.operations_done == ROUNDS);
    CHECK(weft_comm_box_failure(comm) == NULL);
    return NULL;
}

/* A box on a busy machine may be too slow for its limit, so only the results are certain. */
static const char *some_work(struct weft_comm *comm, uint32_t rank, void *arg)
{
    bool boxed;
    (void)arg;
    return work(comm, rank, &boxed);
}

static const char *without_box(struct weft_comm *comm, uint32_t rank, void *arg)
{
    bool boxed = false;
    (void)arg;
    const char *wrong = work(comm, rank, &boxed);
    if (wrong != NULL) {
        return wrong;
    }
    struct weft_comm_counters c = counters_of(comm);
    CHECK(!boxed && c.box_state == WEFT_COMM_BOX_FAILED && c.box_fallbacks >= ROUNDS - 1);
    CHECK(strstr(weft_comm_box_failure(comm),
                 "box at 127.0.0.1, port ") != NULL);
    return NULL;
}

/* Groups of the program work as without a box. */
static const char *in_group(struct weft_comm *comm, uint32_t rank, void *arg)
{
    const uint32_t ranks[] = {2, 0};
    uint32_t group;
    int32_t in = 5 + (int32_t)rank, out = 0;
    (void)arg;
    CHECK(weft_comm_group(comm, ranks, 2, &group) == WEFT_OK);
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    op.type = WEFT_COMM_I32;
    op.group = group;
    if (rank == 1) {
        CHECK(weft_comm_run(comm, &op, NULL) == WEFT_INVALID);
        return NULL;
    }
    CHECK(weft_comm_run(comm, &op, NULL) == WEFT_OK && out == 12);
    op.group = 1; /* is not the program's */
    CHECK(weft_comm_run(comm, &op, NULL) == WEFT_INVALID);
    return NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_works(void **state)
{
    (void)state;
    for (uint32_t form = 0; form < 3; form++) {
        box_start(form == 1 ? WEFT_AGG_FLOAT32 : 0, form == 1 ? 0 : -2);
        struct weft_comm_config config = box_config(60 * WEFT_NS_PER_S);
        config.box_float32 = form == 1;
        config.box_block_float = form == 2;
        config.box_exponent = form == 0 ? -2 : 0;
        struct job job = job_open(&config);
        job_run(&job, through_box, NULL);
        job_run(&job, in_group, NULL);
        job_close(&job);
        box_stop();
    }
}

static void test_integers(void **state)
{
    (void)state;
    box_start(0, 0);
    struct weft_comm_config config = box_config(60 * WEFT_NS_PER_S);
    config.box_bytes_min = 4;
    struct job job = job_open(&config);
    job_run(&job, in_group, NULL);
    int32_t in[RANKS][SMALL], out[RANKS][SMALL];
    uint64_t id[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        for (int32_t i = 0; i < SMALL; i++) {
            in[r][i] = i * ((int32_t)r - 5);
        }
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in[r], out[r], SMALL);
        op.type = WEFT_COMM_I32;
        assert_int_equal(weft_comm_begin(job.comm[r], &op, &id[r]), WEFT_OK);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        struct weft_comm_done done = {.size = sizeof(done)};
        assert_int_equal(weft_comm_wait(job.comm[r], id[r], WEFT_NEVER, &done), WEFT_OK);
        assert_int_equal(done.boxed, WEFT_COMM_BOXED);
        for (int32_t i = 0; i < SMALL; i++) {
            assert_int_equal(out[r][i], -12 * i);
        }
    }
    job_close(&job);
    box_stop();
}

static void test_ends(void **state)
{
    (void)state;
    box_start(WEFT_AGG_FLOAT32, 0);
    struct weft_comm_config config = box_config(WEFT_NS_PER_S / 2);
    config.box_float32 = 1;
    struct job job = job_open(&config);
    job_run(&job, some_work, NULL);
    box_stop();
    job_run(&job, without_box, NULL);
    job_run(&job, without_box, NULL); /* and from the beginning */
    job_close(&job);
}

/* The communicators close while the box owes them a sum, and while messages of the ranks about it
 * are in their transport. */
static void close_early(const char *transport, uint64_t wait_ns)
{
    struct weft_comm_config config = box_config(60 * WEFT_NS_PER_S);
    config.box_float32 = 1;
    config.box_slots = 4096; /* a long trial, which the ranks sum themselves, too */
    config.transport = transport;
    struct job job = job_open(&config);
    float *vector[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        uint64_t id;
        vector[r] = calloc(COUNT, sizeof(float));
        assert_non_null(vector[r]);
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, vector[r], vector[r], COUNT);
        assert_int_equal(weft_comm_begin(job.comm[r], &op, &id), WEFT_OK);
        assert_int_equal(weft_comm_wait(job.comm[r], id, wait_ns, NULL), WEFT_TIMEOUT);
    }
    job_close(&job);
    for (uint32_t r = 0; r < RANKS; r++) {
        free(vector[r]);
    }
}

static void test_close(void **state)
{
    (void)state;
    box_start(WEFT_AGG_FLOAT32, 0);
    box_stop();
    close_early(NULL, WEFT_NS_PER_MS);
    for (uint64_t ms = 0; ms < 4; ms++) {
        close_early("tcp", ms * WEFT_NS_PER_MS);
    }
}

static void refused(const struct weft_comm_config *config, const char *why)
{
    struct weft_comm *comm;
    assert_int_equal(weft_comm_open(config, &comm), WEFT_INVALID);
    if (strstr(weft_comm_error(NULL), why) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", weft_comm_error(NULL), why);
    }
}

static void test_refused(void **state)
{
    (void)state;
    snprintf(box_address, sizeof(box_address), "127.0.0.1:1");
    struct weft_comm_config config = box_config(WEFT_NS_PER_S);
    config.box_insecure = 0;
    refused(&config, "are not authenticated");
    config = box_config(WEFT_NS_PER_S);
    config.box = "127.0.0.1";
    refused(&config, "must be HOST:PORT");
    char name[256 + sizeof(":1")]; /* a label is too long, so nobody is asked for the address */
    memset(name, 'a', sizeof(name));
    memcpy(name + 254, ":1", sizeof(":1"));
    config.box = name;
    refused(&config, "must be HOST:PORT");
    memcpy(name + 253, ":1", sizeof(":1"));
    struct weft_comm *comm;
    assert_int_equal(weft_comm_open(&config, &comm), WEFT_NOTFOUND);
    assert_non_null(strstr(weft_comm_error(NULL), "has no address"));
    config = box_config(WEFT_NS_PER_S);
    config.ranks = 65;
    refused(&config, "ranks");
    config = box_config(WEFT_NS_PER_S);
    config.box_float32 = 1;
    config.box_exponent = -1;
    refused(&config, "0 with box_float32");
    config.box_exponent = 0;
    config.box_block_float = 1;
    refused(&config, "exclude each other");
    config.box_float32 = config.box_block_float = 0;
    config.box_exponent = 65;
    refused(&config, "-126 .. 64");
    config.box_exponent = 0;
    config.box_slots = 0;
    refused(&config, "box_slots");
}

static void ignore(int number)
{
    (void)number;
}

/* Two epochs of one process differ, although a signal ends each sleep. */
static void test_epoch(void **state)
{
    const struct itimerval often = {{.tv_usec = 20000}, {.tv_usec = 20000}}, never = {0};
    struct sigaction handle = {.sa_handler = ignore}, before;
    (void)state;
    assert_int_equal(sigaction(SIGALRM, &handle, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    uint32_t first = weft_box_link_epoch_now();
    uint32_t second = weft_box_link_epoch_now();
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_not_equal(first, second);
}

/* Those of the thread are those of coll/box.h. */
static void test_defaults(void **state)
{
    struct weft_coll_thread_config thread;
    struct weft_coll_box_config coll;
    (void)state;
    weft_coll_thread_config_default(&thread);
    weft_coll_box_config_default(&coll);
    assert_int_equal(thread.box.slots, coll.slots);
    assert_int_equal(thread.box.bytes_min, coll.bytes_min);
    assert_int_equal(thread.box.silence_ns, coll.silence_ns);
    assert_int_equal(thread.box.retry_ns, coll.retry_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_works), cmocka_unit_test(test_integers), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_close), cmocka_unit_test(test_refused), cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
