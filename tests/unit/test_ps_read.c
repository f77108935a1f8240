/* Read admission (ps/update.h) at the worker: which pulls wait, and for which event. */
#include "ps_cluster.h"

#include "ps/client_internal.h"
#include "ps/update.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 50, DIM = 8, SHARDS = 2, TABLES = 2 };

struct rig {
    struct cluster c;
    uint64_t ids[N];
    float pulled[4][N * DIM];
};

/* Updates of at least bytes_min bytes request grants. */
static struct rig *rig_new(uint64_t bytes_min)
{
    struct rig *r = calloc(1, sizeof(*r));
    struct cluster_config config = cluster_config(SHARDS, 1);
    config.shard.dim_max = config.client.dim_max = DIM;
    config.client.update_bytes_min = bytes_min;
    config.client.ops_max = 64;
    cluster_start(&r->c, &config, 1, 5);
    for (uint16_t t = 0; t < TABLES; t++) {
        const struct weft_table_spec spec = {
            .table = t, .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
        cluster_open(&r->c, &spec);
    }
    for (uint32_t i = 0; i < N; i++) {
        r->ids[i] = weft_mix64(i);
    }
    weft_ps_reads_wait(r->c.client[0], true, r->c.net->now_ns);
    return r;
}

static void rig_free(struct rig *r)
{
    cluster_stop(&r->c);
    free(r);
}

static weft_ps_op pull(struct rig *r, uint16_t table, bool aside)
{
    const struct weft_ps_list list = {
        .table = table, .n = N, .ids = r->ids, .out = r->pulled[2 * table + aside]};
    const struct weft_ps_how how = {.aside = aside};
    weft_ps_op op;
    assert_int_equal(
        weft_ps_begin(r->c.client[0], WEFT_RPC_PULL, &list, 1, &how, r->c.net->now_ns, &op),
        WEFT_OK);
    return op;
}

static weft_ps_op push(struct rig *r, uint16_t table)
{
    float rows[N * DIM] = {1};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(r->c.client[0], table, r->ids, rows, N, 0, r->c.net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static bool is_done(struct rig *r, weft_ps_op op)
{
    cluster_run(&r->c);
    return weft_ps_op_done(r->c.client[0], op, NULL);
}

/* The step for which admission is requested; 0 = none. */
static uint32_t wanted(struct rig *r)
{
    uint32_t clock;
    return weft_ps_read_wanted(r->c.client[0], &clock) ? clock : 0;
}

static void begin(struct rig *r, uint32_t clock)
{
    weft_ps_read_begin(r->c.client[0], clock, r->c.net->now_ns);
}

static void end_clock(struct rig *r)
{
    for (uint16_t t = 0; t < TABLES; t++) {
        cluster_clock(&r->c, 0, t);
    }
}

/* The scheduler does not know a short update, so the worker reports the end of its step and only
 * then requests the next read. */
static void a_step_waits_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(1 << 20);
    struct weft_ps_client *client = r->c.client[0];
    weft_ps_op op[2] = {pull(r, 0, false), pull(r, 1, true)}, asked;
    assert_true(is_done(r, op[1])); /* it belongs to no step */
    assert_int_equal(weft_ps_ask(client, 0, 0, r->c.net->now_ns, &asked), WEFT_OK);
    assert_true(is_done(r, asked));
    assert_false(is_done(r, op[0]));
    assert_int_equal(wanted(r), 1);
    begin(r, 1);
    assert_int_equal(wanted(r), 0);
    assert_true(is_done(r, op[0]));
    assert_true(is_done(r, pull(r, 1, false))); /* in the same step */
    assert_int_equal(wanted(r), 0);
    assert_false(weft_ps_read_over(client));
    weft_ps_op pushed = push(r, 0);
    for (uint16_t t = 0; t < TABLES; t++) {
        assert_int_equal(weft_ps_clock(client, t, r->c.net->now_ns), WEFT_OK);
    }
    op[0] = pull(r, 0, false);
    while (!weft_ps_op_done(client, pushed, NULL)) {
        assert_int_equal(wanted(r), 0);
        assert_true(cluster_step(&r->c));
    }
    assert_false(is_done(r, op[0]));
    assert_int_equal(wanted(r), 2);
    assert_true(weft_ps_read_over(client));
    assert_false(weft_ps_read_over(client));
    begin(r, 2);
    assert_true(is_done(r, op[0]));
    assert_true(r->pulled[0][0] == 1); /* it contains the push */
    /* A step without a push. */
    end_clock(r);
    op[0] = pull(r, 0, false);
    assert_false(is_done(r, op[0]));
    assert_int_equal(wanted(r), 3);
    begin(r, 3);
    assert_true(is_done(r, op[0]));
    rig_free(r);
}

/* The update requests a grant: the shards report its end, so the next read is requested at once. */
static void a_planned_update_is_not_waited_for(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct weft_ps_client *client = r->c.client[0];
    struct weft_ps_update_event event;
    weft_ps_op op = pull(r, 0, false);
    begin(r, 1);
    assert_true(is_done(r, op));
    (void)push(r, 0);
    end_clock(r);
    op = pull(r, 0, false);
    assert_false(is_done(r, op)); /* nor is the push, which waits for its grant */
    assert_int_equal(wanted(r), 0);
    assert_true(weft_ps_update_poll(client, &event));
    assert_int_equal(event.type, WEFT_PS_UPDATE_ASK);
    const struct weft_msg_pace pace = {.rate_bps = 1000000};
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(weft_ps_update_grant(client, event.update, s, &pace, r->c.net->now_ns),
                         WEFT_OK);
    }
    while (wanted(r) == 0) {
        assert_true(cluster_step(&r->c));
    }
    assert_int_equal(wanted(r), 2);
    assert_false(is_done(r, op));
    assert_false(weft_ps_read_over(client)); /* the shards notified the scheduler */
    begin(r, 2);
    assert_true(is_done(r, op));
    rig_free(r);
}

/* The transport accepts no message when a pull is to be sent. A later push of the step before
 * passes the pull while it waits for its admission, so the pull must see that push. */
static void a_push_passes_a_waiting_pull(void **state)
{
    (void)state;
    struct rig *r = rig_new(1);
    struct weft_ps_client *client = r->c.client[0];
    struct weft_ps_update_event event;
    struct weft_ps_result result;
    const uint32_t msgs_max = r->c.net->msgs_max;
    begin(r, 1);
    r->c.net->msgs_max = 0;
    weft_ps_op pulled = pull(r, 0, false), pushed = push(r, 0);
    for (uint16_t t = 0; t < TABLES; t++) {
        assert_int_equal(weft_ps_clock(client, t, r->c.net->now_ns), WEFT_OK);
    }
    assert_true(weft_ps_update_poll(client, &event));
    r->c.net->msgs_max = msgs_max;
    const struct weft_msg_pace pace = {.rate_bps = 1000000};
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(weft_ps_update_grant(client, event.update, s, &pace, r->c.net->now_ns),
                         WEFT_OK);
    }
    assert_int_equal(wanted(r), 2);
    assert_false(weft_ps_op_done(client, pushed, NULL)); /* it is in flight */
    begin(r, 2);
    assert_true(is_done(r, pulled));
    assert_true(weft_ps_op_done(client, pulled, &result));
    assert_int_equal(result.status, WEFT_OK);
    assert_true(r->pulled[0][0] == 1);
    rig_free(r);
}

/* A program that has begun to push for a step reads without admission, and nothing waits for the
 * pull. */
static void a_push_ends_the_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(1 << 20);
    struct weft_ps_client *client = r->c.client[0];
    weft_ps_op op = pull(r, 0, false);
    assert_false(is_done(r, op));
    assert_int_equal(wanted(r), 1);
    weft_ps_op pushed = push(r, 0);
    assert_true(is_done(r, op));
    assert_int_equal(wanted(r), 0);
    assert_true(weft_ps_read_over(client));
    weft_ps_update_end(client, r->c.net->now_ns);
    assert_true(is_done(r, pushed));
    /* A worker that never ends a clock: all its steps have the same number. */
    for (int i = 0; i < 3; i++) {
        op = pull(r, 0, false);
        assert_false(is_done(r, op));
        assert_int_equal(wanted(r), 1);
        begin(r, 1);
        assert_true(is_done(r, op));
        pushed = push(r, 0);
        weft_ps_update_end(client, r->c.net->now_ns);
        assert_true(is_done(r, pushed));
        assert_true(weft_ps_read_over(client));
    }
    rig_free(r);
}

/* The scheduler is down. */
static void what_waits_goes_when_nothing_waits(void **state)
{
    (void)state;
    struct rig *r = rig_new(1 << 20);
    weft_ps_op op = pull(r, 0, false);
    assert_false(is_done(r, op));
    weft_ps_reads_wait(r->c.client[0], false, r->c.net->now_ns);
    assert_int_equal(wanted(r), 0);
    assert_true(is_done(r, op));
    assert_true(is_done(r, pull(r, 1, false)));
    weft_ps_reads_wait(r->c.client[0], true, r->c.net->now_ns);
    assert_false(is_done(r, pull(r, 1, false)));
    assert_int_equal(wanted(r), 1);
    begin(r, 1);
    rig_free(r);
}

/* At its deadline a waiting pull ends without data. */
static void a_deadline_ends_the_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(1 << 20);
    struct weft_ps_result result;
    const struct weft_ps_list list = {.n = N, .ids = r->ids, .out = r->pulled[0]};
    const struct weft_ps_how how = {.deadline_ns = r->c.net->now_ns + WEFT_NS_PER_S};
    weft_ps_op op;
    assert_int_equal(
        weft_ps_begin(r->c.client[0], WEFT_RPC_PULL, &list, 1, &how, r->c.net->now_ns, &op),
        WEFT_OK);
    assert_false(is_done(r, op));
    r->c.net->now_ns += WEFT_NS_PER_S + WEFT_NS_PER_MS;
    weft_ps_client_progress(r->c.client[0], r->c.net->now_ns);
    assert_true(weft_ps_op_done(r->c.client[0], op, &result));
    assert_int_equal(result.rows_missed, N);
    begin(r, 1); /* without effect, or for the next pull of this step */
    assert_true(is_done(r, pull(r, 0, false)));
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(a_planned_update_is_not_waited_for),
        cmocka_unit_test(a_push_passes_a_waiting_pull),
        cmocka_unit_test(a_push_ends_the_wait),
        cmocka_unit_test(what_waits_goes_when_nothing_waits),
        cmocka_unit_test(a_deadline_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
