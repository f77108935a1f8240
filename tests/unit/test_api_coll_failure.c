/* Failures of a communicator, through <weft/coll.h>: ranks that close, are killed or frozen, call a
 * different operation or none, never join, or join with another key; forks. In each case all ranks
 * report the rank at fault, and no rank hangs. */
#include "comm_job.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

/* The failure text of every rank must contain this. */
static const char *ends_with(struct weft_comm *comm, weft_status status, const char *words)
{
    if (status != WEFT_PEER) {
        return "it did not fail";
    }
    if (strstr(weft_comm_error(comm), words) == NULL) {
        print_message("not in it: \"%s\": %s\n", words, weft_comm_error(comm));
        return "other words";
    }
    float in = 0, out;
    uint64_t id;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    if (weft_comm_begin(comm, &op, &id) != WEFT_PEER) {
        return "another operation has begun";
    }
    return weft_comm_failure(comm) != NULL ? NULL : "no failure";
}

static const char *reduce_some(struct weft_comm *comm, uint64_t count, const char *words)
{
    float *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out, count);
    weft_status status = weft_comm_run(comm, &op, NULL);
    const char *wrong = ends_with(comm, status, words);
    free(out);
    free(in);
    return wrong;
}

/* ---- what a rank's program does -------------------------------------------------------------- */

static const char *rank_2_aborts(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank == 2) {
        weft_comm_abort(comm, "out of paper");
    }
    return reduce_some(comm, 1000, "out of paper");
}

static void an_abort_is_told_to_all(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(3);
    struct job job = job_open(&config);
    job_run(&job, rank_2_aborts, NULL);
    job_close(&job);
}

static const char *rank_1_closes(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank == 1) {
        weft_comm_close(comm);
        return NULL;
    }
    return reduce_some(comm, 100000, "rank 1");
}

static void who_closes_too_early_is_named(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(3);
    struct job job = job_open(&config);
    job_run(&job, rank_1_closes, NULL);
    job.comm[1] = NULL;
    job_close(&job);
}

static const char *rank_0_differs(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    return reduce_some(comm, rank == 0 ? 100 : 200, "all_reduce(float32 x 100");
}

static void calls_that_differ_are_both_in_the_words(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(3);
    struct job job = job_open(&config);
    job_run(&job, rank_0_differs, NULL);
    assert_non_null(strstr(weft_comm_failure(job.comm[1]), "x 200"));
    job_close(&job);
}

static const char *rank_2_is_late(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank == 2) {
        return NULL;
    }
    float in = 1, out;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    op.timeout_ns = SECOND_NS / 2;
    return ends_with(comm, weft_comm_run(comm, &op, NULL), "rank 2");
}

static void who_does_not_call_in_time_is_named(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(3);
    struct job job = job_open(&config);
    job_run(&job, rank_2_is_late, NULL);
    job_close(&job);
}

static void a_wait_can_time_out_and_go_on(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    float in = 1, out[2] = {0};
    uint64_t id[2];
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out[0], 1);
    assert_int_equal(weft_comm_begin(job.comm[0], &op, &id[0]), WEFT_OK);
    assert_int_equal(weft_comm_wait(job.comm[0], id[0], 0, NULL), WEFT_TIMEOUT);
    assert_int_equal(weft_comm_wait(job.comm[0], id[0], SECOND_NS / 50, NULL), WEFT_TIMEOUT);
    assert_int_equal(weft_comm_wait_any(job.comm[0], SECOND_NS / 50, NULL), WEFT_TIMEOUT);
    op.out = &out[1];
    assert_int_equal(weft_comm_begin(job.comm[1], &op, &id[1]), WEFT_OK);
    assert_int_equal(weft_comm_wait(job.comm[0], id[0], JOB_TIMEOUT_NS, NULL), WEFT_OK);
    assert_int_equal(weft_comm_wait(job.comm[1], id[1], JOB_TIMEOUT_NS, NULL), WEFT_OK);
    assert_true(out[0] == 2 && out[1] == 2);
    job_close(&job);
}

/* A rank that has joined may have left before another one's join sees all connections. */
static void who_has_left_is_not_waited_for(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct weft_comm *comm[2];
    char text[2][64]; /* addresses remain valid when a communicator is closed */
    const char *addresses[2] = {text[0], text[1]};
    for (uint32_t r = 0; r < 2; r++) {
        config.rank = r;
        assert_int_equal(weft_comm_open(&config, &comm[r]), WEFT_OK);
        (void)snprintf(text[r], sizeof(text[r]), "%s", weft_comm_address(comm[r]));
    }
    weft_status first = weft_comm_join(comm[1], addresses, 1);
    assert_true(first == WEFT_TIMEOUT || first == WEFT_OK);
    assert_int_equal(weft_comm_join(comm[0], addresses, JOB_TIMEOUT_NS), WEFT_OK);
    weft_comm_close(comm[0]);
    assert_int_equal(weft_comm_join(comm[1], addresses, JOB_TIMEOUT_NS), WEFT_OK);
    struct weft_comm_op op = job_op(WEFT_COMM_BARRIER, NULL, NULL, 0);
    assert_int_equal(weft_comm_run(comm[1], &op, NULL), WEFT_PEER);
    assert_non_null(strstr(weft_comm_error(comm[1]), "rank 0 left"));
    weft_comm_close(comm[1]);
}

static void what_is_under_way_may_be_closed(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    static float in[200000], out[200000];
    uint64_t id;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out, 200000);
    assert_int_equal(weft_comm_begin(job.comm[0], &op, &id), WEFT_OK);
    job_close(&job);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(3);
    struct job job = job_open_only(&config);
    const char *addresses[3];
    job_addresses(&job, addresses);
    assert_int_equal(weft_comm_join(job.comm[0], addresses, SECOND_NS / 10), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_comm_error(job.comm[0]), "2 of 3 ranks"));
    assert_non_null(strstr(weft_comm_error(job.comm[0]), "1, 2"));
    job_run(&job, job_join, addresses); /* and join may be retried */
    job_close(&job);
}

static void addresses_that_are_none_are_refused(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open_only(&config);
    const char *addresses[2] = {"somewhere", NULL};
    assert_int_equal(weft_comm_join(job.comm[1], addresses, SECOND_NS), WEFT_INVALID);
    assert_non_null(strstr(weft_comm_error(job.comm[1]), "rank 0 is \"somewhere\""));
    assert_int_equal(weft_comm_join(job.comm[0], addresses, SECOND_NS), WEFT_INVALID);
    job_close(&job);
}

static void another_key_is_named(void **state)
{
    (void)state;
    static const uint8_t other[32] = {9};
    struct weft_comm_config config = job_config(2);
    struct job job = job_open_only(&config);
    config.key = other;
    config.rank = 1;
    weft_comm_close(job.comm[1]);
    assert_int_equal(weft_comm_open(&config, &job.comm[1]), WEFT_OK);
    const char *addresses[2];
    job_addresses(&job, addresses);
    assert_int_equal(weft_comm_join(job.comm[1], addresses, SECOND_NS), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_comm_error(job.comm[1]), "key"));
    assert_int_equal(weft_comm_join(job.comm[0], addresses, SECOND_NS / 10), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_comm_error(job.comm[0]), "key"));
    job_close(&job);
}

static void another_start_of_the_job_is_refused(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    config.epoch = 3;
    struct job job = job_open_only(&config);
    config.epoch = 2;
    config.rank = 1;
    weft_comm_close(job.comm[1]);
    assert_int_equal(weft_comm_open(&config, &job.comm[1]), WEFT_OK);
    const char *addresses[2];
    job_addresses(&job, addresses);
    assert_int_equal(weft_comm_join(job.comm[1], addresses, 5 * SECOND_NS), WEFT_PEER);
    assert_non_null(strstr(weft_comm_error(job.comm[1]), "another start"));
    assert_int_equal(weft_comm_join(job.comm[0], addresses, SECOND_NS / 10), WEFT_TIMEOUT);
    assert_non_null(strstr(weft_comm_error(job.comm[0]), "another epoch"));
    job_close(&job);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Rank 1 in a separate process: all_reduce until it fails. */
static int child(int to, int from, const struct weft_comm_config *config)
{
    struct weft_comm *comm;
    struct weft_comm_config own = *config;
    char other[80] = "";
    own.rank = 1;
    if (weft_comm_open(&own, &comm) != WEFT_OK || write(to, weft_comm_address(comm), 80) != 80 ||
        read(from, other, 80) != 80) {
        return 1;
    }
    const char *addresses[2] = {other, NULL};
    if (weft_comm_join(comm, addresses, JOB_TIMEOUT_NS) != WEFT_OK) {
        return 1;
    }
    float in = 1, out;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    while (weft_comm_run(comm, &op, NULL) == WEFT_OK) {
    }
    weft_comm_close(comm);
    return 2;
}

/* Run some operations, then send a signal to the other rank. Returns the time until this rank
 * detects it. */
static void when_rank_1_gets(int signal_number, const char *words)
{
    int up[2], down[2], status;
    char other[80];
    struct weft_comm_config config = job_config(2);
    struct weft_comm *comm;
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child(up[1], down[0], &config));
    }
    assert_int_equal(read(up[0], other, 80), 80);
    assert_int_equal(weft_comm_open(&config, &comm), WEFT_OK);
    char mine[80];
    snprintf(mine, sizeof(mine), "%s", weft_comm_address(comm));
    assert_int_equal(write(down[1], mine, 80), 80);
    const char *addresses[2] = {NULL, other};
    assert_int_equal(weft_comm_join(comm, addresses, JOB_TIMEOUT_NS), WEFT_OK);
    float in = 1, out;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    op.timeout_ns = 10 * JOB_TIMEOUT_NS;
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(weft_comm_run(comm, &op, NULL), WEFT_OK);
    }
    kill(pid, signal_number);
    uint64_t begin_ns = job_now_ns();
    weft_status ended = WEFT_OK;
    while (ended == WEFT_OK) {
        ended = weft_comm_run(comm, &op, NULL);
    }
    assert_true(job_now_ns() - begin_ns < 7 * SECOND_NS);
    assert_null(ends_with(comm, ended, words));
    kill(pid, SIGCONT);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    weft_comm_close(comm);
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    when_rank_1_gets(SIGKILL, "rank 1");
}

static void a_frozen_rank_is_named(void **state)
{
    (void)state;
    when_rank_1_gets(SIGSTOP, "rank 1");
}

static void a_forked_child_cannot_use_it(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t id;
        uint32_t group;
        int fd;
        float in = 1, out;
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
        bool refused = weft_comm_begin(job.comm[0], &op, &id) == WEFT_STATE &&
                       weft_comm_wait_any(job.comm[0], 0, NULL) == WEFT_STATE &&
                       weft_comm_group(job.comm[0], &group, 1, &group) == WEFT_STATE &&
                       weft_comm_join(job.comm[0], NULL, 0) == WEFT_STATE &&
                       weft_comm_fd(job.comm[0], &fd) == WEFT_STATE &&
                       strstr(weft_comm_error(NULL), "fork") != NULL;
        weft_comm_abort(job.comm[0], "the child");
        weft_comm_close(job.comm[0]); /* sends no CLOSE to the parent's peers */
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    float in = 1, out[2];
    uint64_t id[2];
    for (uint32_t r = 0; r < 2; r++) {
        struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out[r], 1);
        assert_int_equal(weft_comm_begin(job.comm[r], &op, &id[r]), WEFT_OK);
    }
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(weft_comm_wait(job.comm[r], id[r], JOB_TIMEOUT_NS, NULL), WEFT_OK);
    }
    job_close(&job);
}

static void a_forked_child_learns_of_no_failure(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    int status;
    float in = 1, out;
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, &in, &out, 1);
    weft_comm_abort(job.comm[0], "before the fork");
    assert_int_equal(weft_comm_run(job.comm[0], &op, NULL), WEFT_PEER);
    assert_non_null(weft_comm_failure(job.comm[0]));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(weft_comm_failure(job.comm[0]) == NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_is_told_to_all),
        cmocka_unit_test(who_closes_too_early_is_named),
        cmocka_unit_test(calls_that_differ_are_both_in_the_words),
        cmocka_unit_test(who_does_not_call_in_time_is_named),
        cmocka_unit_test(a_wait_can_time_out_and_go_on),
        cmocka_unit_test(who_has_left_is_not_waited_for),
        cmocka_unit_test(what_is_under_way_may_be_closed),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(addresses_that_are_none_are_refused),
        cmocka_unit_test(another_key_is_named),
        cmocka_unit_test(another_start_of_the_job_is_refused),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_frozen_rank_is_named),
        cmocka_unit_test(a_forked_child_cannot_use_it),
        cmocka_unit_test(a_forked_child_learns_of_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
