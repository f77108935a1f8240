/* Plans through <weft/coll.h> over loopback: by the configuration and by weft_comm_plan_set, of all
 * ranks and of a group; what ranks disagree about; invalid fields; a rank without memory for
 * the plan; and a rank of a tree that closes. */
#include "comm_job.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/units.h"

enum { RANKS = 4, COUNT = 100000 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

static _Thread_local uint32_t until_failure = UINT32_MAX; /* allocations that still succeed; one
                                                           * fails then; UINT32_MAX = none */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    bool fails = until_failure == 0;
    until_failure -= until_failure != UINT32_MAX && until_failure > 0;
    until_failure = fails ? UINT32_MAX : until_failure;
    return fails ? NULL : __real_calloc(count, bytes);
}

static const char *sums(struct weft_comm *comm, uint32_t rank, uint32_t group, uint32_t n,
                        uint64_t count)
{
    int64_t *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
    for (uint64_t i = 0; i < count; i++) {
        in[i] = (int64_t)(rank + 1) * 1000 + (int64_t)(i % 777);
    }
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out, count);
    op.type = WEFT_COMM_I64;
    op.group = group;
    weft_status status = weft_comm_run(comm, &op, NULL);
    bool good = status == WEFT_OK;
    int64_t first = good ? out[0] : 0;
    for (uint64_t i = 0; i < count && good; i++) {
        good = out[i] - first == (int64_t)n * (int64_t)(i % 777);
    }
    free(out);
    free(in);
    return status == WEFT_PEER ? "failed" : good ? NULL : "a wrong sum";
}

static uint64_t along_trees(struct weft_comm *comm)
{
    struct weft_comm_counters counters = {.size = sizeof(counters)};
    weft_comm_counters_get(comm, &counters);
    return counters.plan_trees + 1000 * counters.plan_operations;
}

static struct weft_comm_plan plan_of(enum weft_comm_plan_form form)
{
    struct weft_comm_plan plan;
    weft_comm_plan_init(&plan, sizeof(plan));
    plan.form = form;
    plan.timeout_ns = JOB_TIMEOUT_NS;
    return plan;
}

/* ---- plans of all ranks ---------------------------------------------------------------------- */

/* Two hosts of two ranks: trees; then the last rank has a slow link: slices; then none. */
static const char *one_plan_after_the_other(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    struct weft_comm_planned planned = {.size = sizeof(planned)};
    struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_AUTO);
    plan.host = 1 + rank / 2;
    plan.up_bps = 1000000000;
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 0);
    CHECK(weft_comm_plan_set(comm, &plan, &planned) == WEFT_OK);
    CHECK(planned.form == WEFT_COMM_PLAN_TREES && planned.hosts == 2 && planned.depth == 2);
    CHECK(planned.parts == 4 && planned.trees_ns < planned.slices_ns);
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 1001);
    CHECK(sums(comm, rank, 0, RANKS, 1000) == NULL && along_trees(comm) == 2001); /* a short one */
    plan.host = 1 + rank;
    plan.up_bps = rank == 3 ? 100000000 : 1000000000;
    CHECK(weft_comm_plan_set(comm, &plan, &planned) == WEFT_OK);
    CHECK(planned.form == WEFT_COMM_PLAN_SLICES && planned.owners == 3 && planned.parts == 0);
    CHECK(planned.own_ppm / 1000 == (rank == 3 ? 0 : 333));
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 3001);
    plan = plan_of(WEFT_COMM_PLAN_TREES);
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_OK);
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 4002);
    plan = plan_of(WEFT_COMM_PLAN_NONE);
    CHECK(weft_comm_plan_set(comm, &plan, &planned) == WEFT_OK);
    CHECK(planned.form == WEFT_COMM_PLAN_NONE);
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 4002);
    return NULL;
}

static void plans_follow_each_other(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, one_plan_after_the_other, NULL);
    job_close(&job);
}

static const char *planned_by_join(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 1001);
    return NULL;
}

static void join_sets_the_plan_of_the_configuration(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    config.plan = WEFT_COMM_PLAN_TREES;
    config.link_bps = 1000000000;
    config.inject_loss_ppm = 20000;
    struct job job = job_open(&config);
    job_run(&job, planned_by_join, NULL);
    job_close(&job);
}

/* Of ranks 3, 1 and 0; rank 2 is no member. */
static const char *a_group_with_a_plan(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    static const uint32_t members[] = {3, 1, 0};
    uint32_t group;
    CHECK(weft_comm_group(comm, members, 3, &group) == WEFT_OK);
    struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_TREES);
    plan.group = group;
    if (rank == 2) {
        CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_INVALID);
        CHECK(strstr(weft_comm_error(comm), "not in it") != NULL);
    } else {
        CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_OK);
        CHECK(sums(comm, rank, group, 3, COUNT) == NULL && along_trees(comm) == 1001);
    }
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL);
    CHECK(along_trees(comm) == (rank == 2 ? 0 : 1001));
    return NULL;
}

static void a_group_has_its_own_plan(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, a_group_with_a_plan, NULL);
    job_close(&job);
}

struct two_ranks {
    const char *addresses[2];
    atomic_bool told; /* rank 0 has told its link, and has waited */
    atomic_bool made; /* rank 1 has a plan */
};

static void until_set(atomic_bool *flag)
{
    while (!*flag) {
        usleep(1000);
    }
}

/* Rank 0 joins with a plan, for which it waits; rank 1 joins without one, and sets it later. */
static const char *gather_is_not_offered(struct weft_comm *comm, uint32_t rank, void *arg)
{
    struct weft_comm_done done = {.size = sizeof(done)};
    struct pollfd one = {.events = POLLIN};
    struct two_ranks *two = arg;
    CHECK(weft_comm_fd(comm, &one.fd) == WEFT_OK);
    if (rank == 1) {
        const char *wrong = job_join(comm, rank, two->addresses);
        until_set(&two->told);
        struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_AUTO);
        CHECK(wrong != NULL || weft_comm_plan_set(comm, &plan, NULL) == WEFT_OK);
        two->made = true;
        return wrong;
    }
    bool told = false;
    for (uint32_t tries = 0; !told && tries < 400; tries++) {
        CHECK(weft_comm_join(comm, two->addresses, 50 * WEFT_NS_PER_MS) == WEFT_TIMEOUT);
        told = strstr(weft_comm_error(comm), " s 1 of 2 ranks have not told their links: 1;");
    }
    two->told = true;
    until_set(&two->made);
    CHECK(told);
    CHECK(poll(&one, 1, 100) == 0);
    CHECK(weft_comm_wait_any(comm, 0, &done) == WEFT_NOTFOUND);
    return job_join(comm, rank, two->addresses);
}

static void the_gather_of_a_plan_is_not_offered(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    config.plan = WEFT_COMM_PLAN_AUTO;
    struct job job = job_open_only(&config);
    weft_comm_close(job.comm[1]);
    config.rank = 1;
    config.plan = WEFT_COMM_PLAN_NONE;
    assert_int_equal(weft_comm_open(&config, &job.comm[1]), WEFT_OK);
    struct two_ranks two = {.told = false};
    job_addresses(&job, two.addresses);
    job_run(&job, gather_is_not_offered, &two);
    job_close(&job);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *other_wishes(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    struct weft_comm_plan plan = plan_of(rank == 1 ? WEFT_COMM_PLAN_SLICES : WEFT_COMM_PLAN_AUTO);
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_INVALID);
    CHECK(strstr(weft_comm_error(comm), "all must want the same") != NULL);
    plan = plan_of(WEFT_COMM_PLAN_AUTO);
    plan.bytes += rank == 2;
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_INVALID);
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 0);
    return NULL;
}

static void ranks_that_want_different_plans_are_told(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, other_wishes, NULL);
    job_close(&job);
}

static void invalid_fields_are_named(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(1);
    struct job job = job_open(&config);
    struct weft_comm *comm = job.comm[0];
    struct weft_comm_plan plan;
#define REFUSED(field, value, words)                                                               \
    do {                                                                                           \
        plan = plan_of(WEFT_COMM_PLAN_AUTO);                                                       \
        assert_int_equal(weft_comm_plan_set(comm, &plan, NULL), WEFT_OK);                          \
        plan.field = value;                                                                        \
        assert_int_equal(weft_comm_plan_set(comm, &plan, NULL), WEFT_INVALID);                     \
        assert_non_null(strstr(weft_comm_error(comm), words));                                     \
    } while (0)
    REFUSED(form, 4, "form");
    REFUSED(group, 1, "group 1");
    REFUSED(group, 70000, "group 70000");
    REFUSED(bytes, 0, "bytes");
    REFUSED(late_ns, UINT64_MAX, "late_ns");
    REFUSED(up_bps, 10, "1 Mbit/s");
    REFUSED(down_bps, UINT64_MAX, "10 Tbit/s");
    REFUSED(size, 8, "weft_comm_plan_init");
    job_close(&job);
    config.plan = 4;
    assert_int_equal(weft_comm_open(&config, &comm), WEFT_INVALID);
    assert_non_null(strstr(weft_comm_error(NULL), "plan"));
    config.plan = WEFT_COMM_PLAN_AUTO;
    config.link_bps = 999999;
    assert_int_equal(weft_comm_open(&config, &comm), WEFT_INVALID);
    assert_non_null(strstr(weft_comm_error(NULL), "1 Mbit/s"));
    config.link_bps = 0;
    config.plan = WEFT_COMM_PLAN_TREES;
    config.ranks = 257;
    assert_int_equal(weft_comm_open(&config, &comm), WEFT_INVALID);
    assert_non_null(strstr(weft_comm_error(NULL), "256 ranks"));
}

static const char *too_early(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    static float in[COUNT], out[2][COUNT];
    struct weft_comm_op op = job_op(WEFT_COMM_ALL_REDUCE, in, out[rank], COUNT);
    struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_AUTO);
    uint64_t id;
    CHECK(weft_comm_begin(comm, &op, &id) == WEFT_OK);
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_STATE);
    CHECK(weft_comm_wait(comm, id, JOB_TIMEOUT_NS, NULL) == WEFT_OK);
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_OK);
    return NULL;
}

static void a_plan_waits_for_operations(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(2);
    struct job job = job_open(&config);
    job_run(&job, too_early, NULL);
    job_close(&job);
}

/* The others wait until rank 1 has memory for all that it needs. */
static const char *rank_1_is_poor(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_TREES);
    weft_status status;
    uint32_t failures = 0;
    do {
        until_failure = rank == 1 ? failures : UINT32_MAX;
        status = weft_comm_plan_set(comm, &plan, NULL);
        until_failure = UINT32_MAX;
        failures += status == WEFT_NOMEM;
    } while (status == WEFT_NOMEM);
    CHECK(status == WEFT_OK);
    CHECK((failures > 1) == (rank == 1));
    CHECK(sums(comm, rank, 0, RANKS, COUNT) == NULL && along_trees(comm) == 1001);
    return NULL;
}

static void a_rank_without_memory_sets_its_plan_later(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    struct job job = job_open(&config);
    job_run(&job, rank_1_is_poor, NULL);
    job_close(&job);
}

/* ---- failures -------------------------------------------------------------------------------- */

static const char *rank_1_closes(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank == 1) {
        weft_comm_close(comm);
        return NULL;
    }
    const char *wrong = sums(comm, rank, 0, RANKS, COUNT);
    CHECK(wrong != NULL && strcmp(wrong, "failed") == 0);
    CHECK(strstr(weft_comm_error(comm), "rank 1") != NULL);
    struct weft_comm_plan plan = plan_of(WEFT_COMM_PLAN_AUTO);
    CHECK(weft_comm_plan_set(comm, &plan, NULL) == WEFT_PEER);
    CHECK(strstr(weft_comm_error(comm), "rank 1") != NULL);
    return NULL;
}

static void a_rank_of_a_tree_that_closes_is_named(void **state)
{
    (void)state;
    struct weft_comm_config config = job_config(RANKS);
    config.plan = WEFT_COMM_PLAN_TREES;
    struct job job = job_open(&config);
    job_run(&job, rank_1_closes, NULL);
    job.comm[1] = NULL;
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_follow_each_other),
        cmocka_unit_test(join_sets_the_plan_of_the_configuration),
        cmocka_unit_test(a_group_has_its_own_plan),
        cmocka_unit_test(the_gather_of_a_plan_is_not_offered),
        cmocka_unit_test(ranks_that_want_different_plans_are_told),
        cmocka_unit_test(invalid_fields_are_named),
        cmocka_unit_test(a_plan_waits_for_operations),
        cmocka_unit_test(a_rank_without_memory_sets_its_plan_later),
        cmocka_unit_test(a_rank_of_a_tree_that_closes_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
