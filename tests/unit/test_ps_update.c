/* Updates that wait for a grant (ps/update.h), at the client and at the shard. Values are whole
 * numbers, so that sums are exact. */
#include "ps_cluster.h"

#include "ps/client_internal.h"
#include "ps/update.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 200, DIM = 8, SHARDS = 2 };

struct rig {
    struct cluster c;
    void *kept;
    uint64_t ids[N];
    float pulled[N * DIM];
};

/* ASP, so that steps are visible at once. Rate -1 adds the gradient divided by the number of
 * workers. reconnect_ns: timeout for a disconnected shard; 0 = fail at once. */
static struct rig *rig_waiting(uint8_t mode, uint32_t workers, uint32_t delay_max,
                               uint64_t bytes_min, uint64_t reconnect_ns)
{
    struct rig *r = calloc(1, sizeof(*r));
    struct cluster_config config = cluster_config(SHARDS, workers);
    config.incarnation = 10;
    config.client.reconnect_ns = reconnect_ns;
    config.shard.chunks_max = reconnect_ns > 0 ? 64 : config.shard.chunks_max;
    config.shard.dim_max = config.client.dim_max = DIM;
    config.shard.delay_max = delay_max;
    config.client.update_bytes_min = bytes_min;
    config.client.ops_max = 64;
    cluster_start(&r->c, &config, workers, 5);
    r->c.net->packet_bytes = 400;
    for (uint16_t t = 0; t < 2; t++) {
        struct weft_table_spec spec = {.table = t,
                                       .dim = DIM,
                                       .mode = mode,
                                       .workers = (uint16_t)workers,
                                       .learning_rate = -1};
        cluster_open(&r->c, &spec);
    }
    for (uint32_t i = 0; i < N; i++) {
        r->ids[i] = weft_mix64(i);
    }
    return r;
}

static struct rig *rig_new(uint8_t mode, uint32_t workers, uint32_t delay_max, uint64_t bytes_min)
{
    return rig_waiting(mode, workers, delay_max, bytes_min, 0);
}

static void rig_free(struct rig *r)
{
    cluster_stop(&r->c);
    free(r->kept);
    free(r);
}

static weft_ps_op push(struct rig *r, uint32_t worker, uint16_t table, float value)
{
    float rows[N * DIM];
    for (size_t i = 0; i < N * DIM; i++) {
        rows[i] = value;
    }
    weft_ps_op op;
    assert_int_equal(
        weft_ps_push(r->c.client[worker], table, r->ids, rows, N, 0, r->c.net->now_ns, &op),
        WEFT_OK);
    return op;
}

static void pull(struct rig *r, uint32_t worker, uint16_t table)
{
    weft_ps_op op;
    assert_int_equal(
        weft_ps_pull(r->c.client[worker], table, r->ids, r->pulled, N, 0, r->c.net->now_ns, &op),
        WEFT_OK);
    assert_int_equal(cluster_wait(&r->c, worker, op).status, WEFT_OK);
}

static bool next_event(struct rig *r, uint32_t worker, enum weft_ps_update_event_type type,
                       struct weft_ps_update_event *event_p)
{
    return weft_ps_update_poll(r->c.client[worker], event_p) && event_p->type == type;
}

static void grant_all(struct rig *r, uint32_t worker, uint64_t update, uint64_t start_ns)
{
    const struct weft_msg_pace pace = {.start_ns = start_ns, .rate_bps = 1000000, .rank = 2};
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(
            weft_ps_update_grant(r->c.client[worker], update, s, &pace, r->c.net->now_ns), WEFT_OK);
    }
}

/* One simultaneous update per worker, with a pause of the network in the middle; the reports of
 * shard 0. */
static void run_measured(uint32_t workers, uint64_t pause_ns,
                         struct weft_shard_committed *committed)
{
    enum { PUSHES = 40, PAUSE_AT_STEP = 500 };
    struct rig *r = rig_new(WEFT_TABLE_ASP, workers, 0, 1000);
    struct weft_ps_update_event event;
    for (uint32_t w = 0; w < workers; w++) {
        pull(r, w, 0);
        for (int i = 0; i < PUSHES; i++) {
            (void)push(r, w, 0, 1);
        }
        cluster_clock(&r->c, w, 0);
    }
    for (uint32_t w = 0; w < workers; w++) {
        assert_true(next_event(r, w, WEFT_PS_UPDATE_ASK, &event));
        grant_all(r, w, event.update, 0);
    }
    for (uint32_t step = 0; cluster_step(&r->c); step++) {
        r->c.net->now_ns += step == PAUSE_AT_STEP ? pause_ns : 0;
    }
    for (uint32_t w = 0; w < workers; w++) {
        assert_true(weft_shard_take_committed(r->c.shard[0], &committed[w]));
    }
    rig_free(r);
}

/* The rates of an update are those of the network: they exclude pauses and the data of other
 * updates. */
static void a_shard_measures_how_fast_an_update_came(void **state)
{
    (void)state;
    struct weft_shard_committed alone, paused, two[2];
    run_measured(1, 0, &alone);
    assert_true(alone.rate_bps > 0);
    assert_int_equal(alone.alone_bps, alone.rate_bps);
    assert_int_equal(alone.all_bps, alone.rate_bps);
    run_measured(1, 50 * WEFT_NS_PER_MS, &paused);
    /* Less data is measured. Including the pause the rate would be a fiftieth. */
    assert_true(paused.rate_bps > alone.rate_bps / 2);
    assert_int_equal(paused.alone_bps, paused.rate_bps);
    run_measured(2, 0, two);
    assert_int_equal(two[0].alone_bps, 0); /* the other one may be alone at its end */
    for (int i = 0; i < 2; i++) { /* the one that the network served less has a smaller share */
        assert_true(two[i].rate_bps > 0);
        assert_true(two[i].all_bps > two[i].rate_bps + two[i].rate_bps / 8);
    }
}

/* The caller's norm is used instead of the computed one. Only one of two pushes has it. */
static void a_norm_is_what_the_caller_says(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    struct weft_ps_update_event event;
    float rows[N * DIM] = {1};
    const struct weft_ps_list list = {.n = N, .ids = r->ids, .values = rows};
    for (uint32_t i = 0; i < 2; i++) { /* one part per shard: the norm counts once */
        const struct weft_ps_how how = {.has_norm = true, .norm = i == 0 ? 3 : 0};
        weft_ps_op op[2];
        assert_int_equal(
            weft_ps_begin(r->c.client[0], WEFT_RPC_PUSH, &list, 1, &how, r->c.net->now_ns, &op[0]),
            WEFT_OK);
        op[1] = push(r, 0, 1, 0.1F); /* 0.1 x sqrt(1600) = 4 */
        cluster_clock(&r->c, 0, 0);
        cluster_clock(&r->c, 0, 1);
        assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
        double wanted = i == 0 ? 5 : 4;
        assert_true(event.norm > wanted - 1e-5 && event.norm < wanted + 1e-5);
        grant_all(r, 0, event.update, 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(cluster_wait(&r->c, 0, op[k]).status, WEFT_OK);
        }
        while (weft_ps_update_poll(r->c.client[0], &event)) {
        }
    }
    rig_free(r);
}

/* Nothing is sent before the grant; pushes to two tables are one update; its end is reported at
 * both ends. */
static void an_update_waits_for_its_grant(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    struct weft_ps_update_event event;
    struct weft_shard_committed committed;
    pull(r, 0, 0);
    uint64_t before = r->c.net->sent_bytes[SHARDS];
    weft_ps_op op[2] = {push(r, 0, 0, 2), push(r, 0, 1, 1)};
    cluster_clock(&r->c, 0, 0);
    cluster_run(&r->c);
    assert_false(weft_ps_update_poll(r->c.client[0], &event)); /* table 1 has not ended its clock */
    cluster_clock(&r->c, 0, 1);
    cluster_run(&r->c);
    assert_int_equal(r->c.net->sent_bytes[SHARDS], before);
    assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
    assert_int_equal(event.update, 1);
    assert_int_equal(event.clock, 1);
    assert_int_equal(event.shards, SHARDS);
    assert_true(event.norm > 89.4 && event.norm < 89.5); /* sqrt(1600 x (4 + 1)) */
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_ps_update_part part;
        assert_int_equal(weft_ps_update_part(r->c.client[0], 1, s, &part), WEFT_OK);
        assert_true(part.based && part.base == 0 && part.pushes == 2);
        bytes += part.bytes;
    }
    assert_int_equal(bytes, event.bytes);
    grant_all(r, 0, 1, r->c.net->now_ns + 5000000);
    assert_true(r->c.net->sent_bytes[SHARDS] > before);
    for (int i = 0; i < 100; i++) {
        (void)cluster_step(&r->c);
    }
    assert_int_equal(weft_shard_updates_opened(r->c.shard[0]), 0); /* before its start */
    r->c.net->now_ns += 5000000;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cluster_wait(&r->c, 0, op[i]).status, WEFT_OK);
    }
    cluster_run(&r->c);
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_true(next_event(r, 0, WEFT_PS_UPDATE_DELIVERED, &event));
        assert_int_equal(event.shard, s);
        assert_true(event.ended_ns > event.begun_ns && event.begun_ns > 0);
        assert_int_equal(weft_shard_updates_opened(r->c.shard[s]), 1);
        assert_true(weft_shard_take_committed(r->c.shard[s], &committed));
        assert_int_equal(committed.clock, 1);
        assert_int_equal(committed.number, 1);
        assert_int_equal(committed.closed, 1);
        assert_false(committed.late);
        assert_true(committed.norm > 0);
        assert_false(weft_shard_take_committed(r->c.shard[s], &committed));
    }
    assert_true(next_event(r, 0, WEFT_PS_UPDATE_OVER, &event));
    assert_false(event.dropped || event.late);
    assert_false(weft_ps_update_poll(r->c.client[0], &event));
    assert_int_equal(weft_ps_update_drop(r->c.client[0], 1, 0), WEFT_NOTFOUND);
    pull(r, 0, 0);
    assert_true(r->pulled[0] == 2 && r->pulled[N * DIM - 1] == 2);
    rig_free(r);
}

static void a_short_one_goes_at_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_BSP, 1, 0, 1000000);
    struct weft_ps_update_event event;
    for (int i = 0; i < 20; i++) { /* more than there are slots */
        weft_ps_op op = push(r, 0, 0, 1);
        cluster_clock(&r->c, 0, 0);
        assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
        pull(r, 0, 0);
    }
    assert_false(weft_ps_update_poll(r->c.client[0], &event));
    assert_true(r->pulled[0] == 20);
    assert_int_equal(weft_shard_updates_opened(r->c.shard[0]), 20);
    rig_free(r);
}

/* Operations that would wait forever complete the update: a pull that must see the push, and
 * weft_ps_update_end. */
static void who_waits_for_a_push_completes_its_update(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000000);
    weft_ps_op op = push(r, 0, 0, 3);
    pull(r, 0, 0);
    assert_true(r->pulled[0] == 3);
    assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
    op = push(r, 0, 0, 3);
    assert_false(cluster_step(&r->c));
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
    rig_free(r);
}

/* Dropped before and after its grant: no rows are sent, its CLOCK is sent nevertheless, and the
 * next push of these rows contains the dropped gradients. */
static void what_is_dropped_is_kept_for_the_next_push(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    struct weft_ps_update_event event;
    r->kept = malloc(weft_row_store_bytes(N, DIM));
    assert_int_equal(weft_ps_client_feedback(r->c.client[0], 0, r->kept, N), WEFT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        weft_ps_op op = push(r, 0, 0, 1 + (float)i);
        cluster_clock(&r->c, 0, 0);
        assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
        if (i == 1) {
            grant_all(r, 0, event.update, UINT64_MAX / 2);
        }
        assert_int_equal(weft_ps_update_drop(r->c.client[0], event.update, r->c.net->now_ns),
                         WEFT_OK);
        assert_int_equal(weft_ps_update_drop(r->c.client[0], event.update, r->c.net->now_ns),
                         WEFT_STATE);
        cluster_poll(&r->c);
        struct weft_ps_result result = cluster_wait(&r->c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rpcs_dropped, SHARDS);
        assert_int_equal(result.rows_missed, N);
        assert_true(next_event(r, 0, WEFT_PS_UPDATE_OVER, &event));
        assert_true(event.dropped);
        cluster_run(&r->c);
        assert_int_equal(weft_shard_clock(r->c.shard[0], 0), i + 1);
        assert_int_equal(weft_shard_updates_opened(r->c.shard[0]), 0);
    }
    assert_int_equal(weft_ps_client_counters(r->c.client[0])->updates_dropped, 2);
    assert_int_equal(weft_ps_client_kept(r->c.client[0], 0, NULL, NULL, 0), N);
    weft_ps_op op = push(r, 0, 0, 4);
    cluster_clock(&r->c, 0, 0);
    assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
    assert_int_equal(weft_ps_update_direct(r->c.client[0], event.update, 0, r->c.net->now_ns),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r->c, 0, op).rpcs_dropped, 0);
    pull(r, 0, 0);
    for (size_t i = 0; i < N * DIM; i++) {
        assert_true(r->pulled[i] == 7); /* 1 + 2 + 4 */
    }
    rig_free(r);
}

static void what_was_begun_is_not_dropped(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    struct weft_ps_update_event event;
    weft_ps_op op = push(r, 0, 0, 1);
    cluster_clock(&r->c, 0, 0);
    assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
    grant_all(r, 0, event.update, 0);
    for (int i = 0; i < 12; i++) {
        (void)cluster_step(&r->c);
    }
    assert_int_equal(weft_ps_update_drop(r->c.client[0], event.update, r->c.net->now_ns),
                     WEFT_STATE);
    assert_int_equal(cluster_wait(&r->c, 0, op).rpcs_dropped, 0);
    pull(r, 0, 0);
    assert_true(r->pulled[0] == 1 && r->pulled[N * DIM - 1] == 1);
    rig_free(r);
}

/* Worker 1 opens three updates while worker 0 computes with an old model. */
static void an_update_beyond_the_bound_is_refused_whole(void **state)
{
    (void)state;
    for (uint32_t bound = 2; bound <= 3; bound++) {
        struct rig *r = rig_new(WEFT_TABLE_ASP, 2, bound, 1000);
        struct weft_ps_update_event event;
        struct weft_shard_committed committed;
        r->kept = malloc(weft_row_store_bytes(N, DIM));
        assert_int_equal(weft_ps_client_feedback(r->c.client[0], 0, r->kept, N), WEFT_OK);
        pull(r, 0, 0);
        for (int i = 0; i < 3; i++) {
            pull(r, 1, 0);
            weft_ps_op op = push(r, 1, 0, 2);
            cluster_clock(&r->c, 1, 0);
            while (weft_ps_update_poll(r->c.client[1], &event)) {
                if (event.type == WEFT_PS_UPDATE_ASK) {
                    grant_all(r, 1, event.update, 0);
                }
            }
            assert_int_equal(cluster_wait(&r->c, 1, op).rpcs_dropped, 0);
        }
        weft_ps_op op = push(r, 0, 0, 4);
        cluster_clock(&r->c, 0, 0);
        assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
        grant_all(r, 0, event.update, 0);
        struct weft_ps_result result = cluster_wait(&r->c, 0, op);
        cluster_run(&r->c);
        bool late = bound == 2;
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rpcs_dropped, late ? SHARDS : 0);
        for (uint32_t s = 0; s < SHARDS; s++) {
            assert_int_equal(weft_shard_updates_opened(r->c.shard[s]), late ? 3 : 4);
            assert_int_equal(weft_shard_counters(r->c.shard[s])->updates_late, late);
            for (int i = 0; i < 4; i++) {
                assert_true(weft_shard_take_committed(r->c.shard[s], &committed));
            }
            assert_int_equal(committed.rank, 0);
            assert_int_equal(committed.late, late);
            assert_int_equal(committed.base, 0);
        }
        pull(r, 0, 0);
        assert_true(r->pulled[0] == (late ? 3 : 5) && r->pulled[N * DIM - 1] == (late ? 3 : 5));
        if (late) { /* it has read the model again, and pushes the refused gradients */
            op = push(r, 0, 0, 2);
            cluster_clock(&r->c, 0, 0);
            while (weft_ps_update_poll(r->c.client[0], &event)) {
                if (event.type == WEFT_PS_UPDATE_ASK) {
                    grant_all(r, 0, event.update, 0);
                } else if (event.type == WEFT_PS_UPDATE_OVER) {
                    assert_true(event.late);
                }
            }
            assert_int_equal(cluster_wait(&r->c, 0, op).rpcs_dropped, 0);
            pull(r, 0, 0);
            assert_true(r->pulled[0] == 6 && r->pulled[N * DIM - 1] == 6);
        }
        rig_free(r);
    }
}

static void grant_what_asks(struct rig *r, uint32_t worker)
{
    struct weft_ps_update_event event;
    while (weft_ps_update_poll(r->c.client[worker], &event)) {
        if (event.type == WEFT_PS_UPDATE_ASK) {
            grant_all(r, worker, event.update, 0);
        }
    }
}

/* The connection to shard 0 breaks after this many steps of a push that both shards refuse as late.
 * A resent push counts once and has one refusal, so its elements are subtracted once and none
 * counts as delivered. */
static uint64_t break_a_late_push(uint32_t steps, uint64_t seed)
{
    struct rig *r = rig_waiting(WEFT_TABLE_ASP, 2, 2, 1000, 1000 * WEFT_NS_PER_S);
    weft_prng_init(&r->c.net->prng, seed);
    pull(r, 0, 0);
    for (int i = 0; i < 3; i++) {
        pull(r, 1, 0);
        weft_ps_op op = push(r, 1, 0, 2);
        cluster_clock(&r->c, 1, 0);
        grant_what_asks(r, 1);
        (void)cluster_wait(&r->c, 1, op);
    }
    weft_ps_op op = push(r, 0, 0, 4);
    cluster_clock(&r->c, 0, 0);
    grant_what_asks(r, 0);
    for (uint32_t i = 0; i < steps; i++) {
        (void)cluster_step(&r->c);
    }
    fake_break(r->c.net, 0, SHARDS);
    cluster_poll(&r->c);
    assert_int_equal(weft_ps_client_reconnect(r->c.client[0], 0, fake_peer(0), r->c.net->now_ns),
                     WEFT_OK);
    fake_connect(r->c.net, 0, SHARDS);
    cluster_poll(&r->c);
    struct weft_ps_result result = cluster_wait(&r->c, 0, op);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_delivered, 0);
    assert_int_equal(result.rpcs_dropped, SHARDS);
    assert_int_equal(weft_ps_client_counters(r->c.client[0])->pushes_late, SHARDS);
    const uint64_t resent = weft_ps_client_counters(r->c.client[0])->pushes_resent;
    rig_free(r);
    return resent;
}

static void a_late_push_is_subtracted_once(void **state)
{
    (void)state;
    uint64_t resent = 0;
    for (uint32_t i = 0; i < 400; i++) {
        resent += break_a_late_push(i % 50, i / 50);
    }
    assert_in_range(resent, 40, 400);
}

/* Without polling eight updates wait; the next one is sent at once. */
static void what_finds_no_place_goes_at_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    struct weft_ps_update_event event;
    for (int i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        weft_ps_op op = push(r, 0, 0, 1);
        weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
        assert_int_equal(
            weft_ps_update_direct(r->c.client[0], (uint64_t)i + 1, 0, r->c.net->now_ns), WEFT_OK);
        assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
        cluster_clock(&r->c, 0, 0);
    }
    weft_ps_op op = push(r, 0, 0, 1);
    assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
    assert_int_equal(weft_ps_client_counters(r->c.client[0])->updates_unplaced, SHARDS);
    pull(r, 0, 0);
    assert_true(r->pulled[0] == WEFT_PS_UPDATES_MAX + 1);
    assert_true(next_event(r, 0, WEFT_PS_UPDATE_ASK, &event));
    rig_free(r);
}

/* Ending a clock twice completes the update, because the other tables can no longer be waited
 * for. */
static void a_clock_ended_again_completes_its_update(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 100000000);
    (void)push(r, 0, 0, 1);
    (void)push(r, 0, 1, 1);
    cluster_clock(&r->c, 0, 0);
    weft_status status = WEFT_AGAIN;
    for (int i = 0; i < 1000 && status == WEFT_AGAIN; i++) {
        status = weft_ps_clock(r->c.client[0], 0, r->c.net->now_ns);
        (void)cluster_step(&r->c);
    }
    assert_int_equal(status, WEFT_OK);
    rig_free(r);
}

/* Clocks of tables may differ: each clock of each table is an update to the shard, and closes
 * once. */
static void updates_of_tables_apart_close_once(void **state)
{
    (void)state;
    enum { TABLES = 3 };
    struct rig *r = calloc(1, sizeof(*r));
    struct cluster_config config = cluster_config(SHARDS, 1);
    config.shard.dim_max = config.client.dim_max = DIM;
    config.shard.tables_max = config.client.tables_max = TABLES;
    config.client.update_bytes_min = 100000000;
    cluster_start(&r->c, &config, 1, 3);
    for (uint16_t t = 0; t < TABLES; t++) {
        struct weft_table_spec spec = {
            .table = t, .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
        cluster_open(&r->c, &spec);
        for (int i = 0; i < 10 * t; i++) {
            cluster_clock(&r->c, 0, t);
            cluster_run(&r->c);
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        r->ids[i] = weft_mix64(i);
    }
    weft_ps_op op[2 * TABLES];
    for (uint16_t t = 0; t < TABLES; t++) {
        op[t] = push(r, 0, t, 1);
    }
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    for (uint16_t t = 1; t < TABLES; t++) { /* the first table lags */
        cluster_clock(&r->c, 0, t);
        op[TABLES - 1 + t] = push(r, 0, t, 1);
    }
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    op[2 * TABLES - 1] = push(r, 0, 0, 1);
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    for (int i = 0; i < 2 * TABLES; i++) {
        assert_int_equal(cluster_wait(&r->c, 0, op[i]).status, WEFT_OK);
    }
    for (uint16_t t = 0; t < TABLES; t++) {
        cluster_clock(&r->c, 0, t);
    }
    cluster_run(&r->c);
    static const uint32_t clocks[] = {1, 11, 12, 21, 22};
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_shard_committed committed;
        uint32_t seen = 0;
        for (size_t n = 0; n < 5; n++) {
            assert_true(weft_shard_take_committed(r->c.shard[s], &committed));
            for (uint32_t i = 0; i < 5; i++) {
                seen |= (uint32_t)(committed.clock == clocks[i]) << i;
            }
        }
        assert_int_equal(seen, 31); /* all five, each once */
        assert_false(weft_shard_take_committed(r->c.shard[s], &committed));
        assert_int_equal(weft_shard_counters(r->c.shard[s])->updates_opened, 5);
        assert_int_equal(weft_shard_counters(r->c.shard[s])->updates_closed, 5);
    }
    rig_free(r);
}

/* Without a grant a push still ends at its deadline, its values are kept, and its CLOCK is sent. */
static void a_deadline_ends_a_push_that_waits_for_its_grant(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 1000);
    float rows[N * DIM];
    for (size_t i = 0; i < N * DIM; i++) {
        rows[i] = 1;
    }
    const struct weft_ps_how how = {.deadline_ns = r->c.net->now_ns + 1000000};
    const struct weft_ps_list list = {.table = 0, .ids = r->ids, .values = rows, .n = N};
    weft_ps_op op;
    assert_int_equal(
        weft_ps_begin(r->c.client[0], WEFT_RPC_PUSH, &list, 1, &how, r->c.net->now_ns, &op),
        WEFT_OK);
    cluster_clock(&r->c, 0, 0);
    cluster_run(&r->c);
    assert_false(weft_ps_op_done(r->c.client[0], op, NULL));
    r->c.net->now_ns = how.deadline_ns;
    cluster_poll(&r->c);
    cluster_run(&r->c);
    struct weft_ps_result result;
    assert_true(weft_ps_op_done(r->c.client[0], op, &result));
    assert_int_equal(result.rows_missed, N);
    assert_int_equal(weft_shard_clock(r->c.shard[0], 0), 1);
    assert_int_equal(weft_shard_updates_opened(r->c.shard[0]), 0);
    rig_free(r);
}

/* 2^24 - 1 means "no base": a count with that value is encoded as the preceding one. */
static void a_base_is_never_the_one_that_means_none(void **state)
{
    (void)state;
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 0, 100000000);
    struct weft_ps_client *client = r->c.client[0];
    static const uint32_t told[] = {WEFT_RPC_BASE_NONE, 0x1ffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
        for (uint32_t s = 0; s < SHARDS; s++) {
            weft_ps_update_set_count(client, s, told[i]);
        }
        (void)push(r, 0, 0, 1);
        for (const struct ps_part *p = client->parts; p < client->parts + client->parts_total;
             p++) {
            if (p->kind == WEFT_RPC_PUSH && p->state == PART_QUEUED) {
                assert_int_equal(p->base & WEFT_RPC_BASE_MASK, WEFT_RPC_BASE_MASK - 1);
            }
        }
        weft_ps_update_end(client, r->c.net->now_ns);
        cluster_clock(&r->c, 0, 0);
        cluster_run(&r->c);
    }
    rig_free(r);
}

/* Messages of workers that are under way; *updates_p: those with the tag of an update. */
static uint32_t pushes_sent(const struct rig *r, uint32_t *updates_p)
{
    uint32_t pushes = 0;
    *updates_p = 0;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        const struct fake_message *m = &r->c.net->messages[i];
        const uint64_t op = m->send.tag >> 56;
        pushes += m->live && (op == WEFT_RPC_PUSH || op == WEFT_RPC_UPDATE);
        *updates_p += m->live && op == WEFT_RPC_UPDATE;
    }
    return pushes;
}

/* In a job without a scheduler messages have no update fields, and a client has no memory for
 * updates. */
static void without_a_scheduler_nothing_is_counted(void **state)
{
    (void)state;
    uint32_t updates;
    for (uint32_t counts = 0; counts < 2; counts++) {
        struct rig *with = rig_new(WEFT_TABLE_ASP, 1, 1, counts ? 1000000 : 0);
        pull(with, 0, 0);
        (void)push(with, 0, 0, 1);
        cluster_clock(&with->c, 0, 0);
        cluster_poll(&with->c);
        const uint32_t pushes = pushes_sent(with, &updates);
        assert_true(pushes >= SHARDS);
        assert_int_equal(updates, counts ? pushes : 0);
        assert_int_equal(with->c.client[0]->updates != NULL, counts);
        rig_free(with);
    }
    struct rig *r = rig_new(WEFT_TABLE_ASP, 1, 1, 0);
    struct weft_ps_update_event event;
    weft_ps_op op = push(r, 0, 0, 1);
    assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    assert_false(weft_ps_update_poll(r->c.client[0], &event));
    assert_int_equal(weft_shard_updates_opened(r->c.shard[0]), 0);
    rig_free(r);
}

/* The tag has 8 bits of the clock and 24 bits of the base. */
static void tags_of_updates_name_the_nearest_clock(void **state)
{
    (void)state;
    static const uint32_t now[] = {1, 2, 127, 128, 255, 256, 257, 70000, WEFT_RPC_CLOCK_MAX};
    for (size_t i = 0; i < sizeof(now) / sizeof(*now); i++) {
        for (int64_t d = -128; d < 128; d++) {
            int64_t clock = now[i] + d;
            uint32_t number = weft_rpc_update_pack((uint32_t)clock, 5);
            assert_int_equal(weft_rpc_update_clock(number, now[i]), clock > 0 ? clock : 0);
            assert_int_equal(number & WEFT_RPC_BASE_MASK, 5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_waits_for_its_grant),
        cmocka_unit_test(a_shard_measures_how_fast_an_update_came),
        cmocka_unit_test(a_norm_is_what_the_caller_says),
        cmocka_unit_test(a_short_one_goes_at_once),
        cmocka_unit_test(who_waits_for_a_push_completes_its_update),
        cmocka_unit_test(what_is_dropped_is_kept_for_the_next_push),
        cmocka_unit_test(what_was_begun_is_not_dropped),
        cmocka_unit_test(an_update_beyond_the_bound_is_refused_whole),
        cmocka_unit_test(a_late_push_is_subtracted_once),
        cmocka_unit_test(what_finds_no_place_goes_at_once),
        cmocka_unit_test(a_clock_ended_again_completes_its_update),
        cmocka_unit_test(updates_of_tables_apart_close_once),
        cmocka_unit_test(a_deadline_ends_a_push_that_waits_for_its_grant),
        cmocka_unit_test(a_base_is_never_the_one_that_means_none),
        cmocka_unit_test(without_a_scheduler_nothing_is_counted),
        cmocka_unit_test(tags_of_updates_name_the_nearest_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
