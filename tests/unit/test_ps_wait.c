/* The order in which a shard answers the pulls that the end of a clock releases. Every worker asks
 * for the next clock ahead, pushes, and ends its clock some time after its reply. */
#include "ps_client_rig.h"

enum { WORKERS = 5, MS = 1000000 };

struct run {
    struct cluster c;
    weft_ps_op op[WORKERS];
    float row[WORKERS];
    uint32_t order[WORKERS]; /* ranks, in the order in which the shard passed on their replies */
    uint32_t replies;
    uint64_t seen; /* seq of the newest message looked at */
};

static const uint64_t one_id = 7;

static void run_start(struct run *run, uint32_t workers)
{
    struct cluster_config config = cluster_config(1, workers);
    *run = (struct run){.replies = 0};
    cluster_start(&run->c, &config, workers, 3);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, (uint16_t)workers);
    cluster_open(&run->c, &spec);
}

/* Record the replies that the shard has begun since the last call. */
static void look(struct run *run)
{
    for (bool more = true; more;) {
        const struct fake_message *next = NULL;
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            const struct fake_message *m = &run->c.net->messages[i];
            bool reply = m->live && m->from == 0 &&
                         m->send.tag >> 56 == (WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG);
            next = reply && m->seq > run->seen && (next == NULL || m->seq < next->seq) ? m : next;
        }
        more = next != NULL;
        if (more) {
            run->seen = next->seq;
            run->order[run->replies++ % WORKERS] = next->to - 1;
        }
    }
}

static void run_until(struct run *run, uint64_t until_ns)
{
    while (cluster_step(&run->c)) {
        look(run);
    }
    look(run);
    run->c.net->now_ns = weft_max_u64(run->c.net->now_ns, until_ns);
}

static void ask_table(struct run *run, uint16_t table, uint32_t w, uint32_t ahead)
{
    const struct weft_ps_list list = {
        .table = table, .n = 1, .ids = &one_id, .out = &run->row[w]};
    const struct weft_ps_how how = {.ahead = ahead};
    assert_int_equal(weft_ps_begin(run->c.client[w], WEFT_RPC_PULL, &list, 1, &how,
                                   run->c.net->now_ns, &run->op[w]),
                     WEFT_OK);
}

static void ask(struct run *run, uint32_t w, uint32_t ahead)
{
    ask_table(run, 0, w, ahead);
}

/* One clock: workers ask ahead, push, and end the clock in the order of `ends`, each after[w] ns
 * after the replies. Leaves the order of the replies in run->order. */
static void clock_of(struct run *run, uint32_t workers, const uint32_t *ends, const uint64_t *after)
{
    const uint64_t begin_ns = run->c.net->now_ns;
    const float gradient = 1;
    for (uint32_t w = 0; w < workers; w++) {
        assert_int_equal(cluster_wait(&run->c, w, run->op[w]).status, WEFT_OK);
    }
    run_until(run, begin_ns);
    run->replies = 0;
    for (uint32_t k = 0; k < workers; k++) {
        uint32_t w = ends[k];
        run_until(run, begin_ns + after[w]);
        assert_int_equal(push(&run->c, w, &one_id, &gradient, 1).status, WEFT_OK);
        ask(run, w, 1);
        run_until(run, 0);
        cluster_clock(&run->c, w, 0);
    }
    run_until(run, 0);
    assert_int_equal(run->replies, workers);
}

/* The slowest worker asks last and ends its clock last, and is answered first from the second clock
 * on; then the others, by their times. */
static void slowest_first(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, WORKERS);
    static const uint32_t ends[WORKERS] = {3, 0, 4, 1, 2};
    static const uint64_t after[WORKERS] = {20 * MS, 40 * MS, 80 * MS, 10 * MS, 30 * MS};
    static const uint32_t order[WORKERS] = {2, 1, 4, 0, 3};
    for (uint32_t w = 0; w < WORKERS; w++) {
        ask(&run, w, 0);
    }
    for (uint32_t clock = 0; clock < 4; clock++) {
        clock_of(&run, WORKERS, ends, after);
        assert_memory_equal(run.order, order, sizeof(order));
    }
    cluster_stop(&run.c);
}

/* A worker that becomes slow is first after as many clocks as the mean needs, and one that is fast
 * again is last. */
static void the_order_follows(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, 2);
    static const uint32_t first_0[] = {0, 1}, first_1[] = {1, 0};
    static const uint64_t slow_1[] = {10 * MS, 50 * MS}, slow_0[] = {50 * MS, 10 * MS};
    ask(&run, 0, 0);
    ask(&run, 1, 0);
    for (uint32_t clock = 0; clock < 3; clock++) {
        clock_of(&run, 2, first_0, slow_1);
        assert_int_equal(run.order[0], 1);
    }
    clock_of(&run, 2, first_1, slow_0); /* means 30 and 30, each by the time of one clock */
    clock_of(&run, 2, first_1, slow_0);
    assert_int_equal(run.order[0], 0);
    cluster_stop(&run.c);
}

/* Worker 1 is slow for table 0 and fast for table 1, whose clock ends in between: only the CLOCK of
 * the reply's own table ends a measurement. */
static void each_table_by_its_own_clock(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, 2);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 2);
    spec.table = 1;
    cluster_open(&run.c, &spec);
    for (uint32_t clock = 0; clock < 5; clock++) {
        run.replies = 0;
        for (uint32_t w = 0; w < 2; w++) {
            ask_table(&run, 0, w, 1);
            run_until(&run, run.c.net->now_ns + (w == 0 ? 10 : 40) * MS);
            cluster_clock(&run.c, w, 0);
        }
        run_until(&run, 0);
        assert_int_equal(run.replies, 2);
        assert_true(clock == 0 || run.order[0] == 1);
        for (uint32_t w = 0; w < 2; w++) {
            assert_int_equal(cluster_wait(&run.c, w, run.op[w]).status, WEFT_OK);
        }
        run_until(&run, run.c.net->now_ns + 30 * MS);
        cluster_clock(&run.c, 1, 1);
        run_until(&run, run.c.net->now_ns + 30 * MS);
        cluster_clock(&run.c, 0, 1);
        run_until(&run, 0);
    }
    cluster_stop(&run.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slowest_first),
        cmocka_unit_test(the_order_follows),
        cmocka_unit_test(each_table_by_its_own_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
