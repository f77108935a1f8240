/* Pushes that name a list of ids (key caching): the same rows in fewer bytes, and recovery if a
 * shard does not have the list. Random disconnects, deaths, losses and deadlines with lists are in
 * test_ps_resume.c; malformed lists at a shard are in test_ps_keys_shard.c. */
#include "ps/shard_journal.h"
#include "ps/snapshot.h"
#include "ps_keys_rig.h"

enum { N = 700, ROUNDS = 5, SHARD = 0, WORKER = 1 };

static const struct weft_ps_client_counters *counted(const struct cluster *c)
{
    return weft_ps_client_counters(c->client[0]);
}

static weft_ps_op pull(struct cluster *c, uint16_t table, const uint64_t *ids, float *rows,
                       uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c->client[0], table, ids, rows, n, 0, c->net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static void pull_all(struct cluster *c, uint16_t table, const uint64_t *ids, float *rows,
                     uint32_t n)
{
    assert_int_equal(cluster_wait(c, 0, pull(c, table, ids, rows, n)).status, WEFT_OK);
}

static weft_ps_op push(struct cluster *c, uint16_t table, const uint64_t *ids, const float *rows,
                       uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[0], table, ids, rows, n, 0, c->net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static void push_all(struct cluster *c, uint16_t table, const uint64_t *ids, const float *rows,
                     uint32_t n)
{
    struct weft_ps_result result = cluster_wait(c, 0, push(c, table, ids, rows, n));
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_sent, n);
    assert_int_equal(result.elements_delivered, n);
    assert_int_equal(result.rows_missed, 0);
    assert_int_equal(result.chunks_refused, 0);
}

/* Ascending, or unordered and wide. */
static void ids_make(uint64_t *ids, uint32_t n, uint32_t round, bool wide)
{
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = wide ? weft_mix64(i + (uint64_t)round * n) : (uint64_t)i * 50 + round;
    }
}

struct outcome {
    uint64_t bytes;
    uint64_t listed;
    float *rows;
};

static struct outcome job(uint32_t shards, uint32_t dim, bool wide, uint16_t can, uint32_t loss_ppm)
{
    struct cluster_config config = keys_config(shards);
    struct outcome out = {.rows = calloc((size_t)N * dim, sizeof(float))};
    struct cluster c;
    config.client.can = can;
    config.client.dim_max = config.shard.dim_max = dim;
    cluster_start(&c, &config, 1, 1);
    c.net->loss_ppm = loss_ppm;
    struct weft_table_spec spec = sums(0, dim);
    spec.mode = WEFT_TABLE_BSP;
    spec.optimizer = WEFT_OPTIMIZER_ADAGRAD;
    spec.accumulator = 1;
    cluster_open(&c, &spec);
    uint64_t ids[N];
    float *values = calloc((size_t)N * dim, sizeof(*values));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        ids_make(ids, N, round % 2, wide);
        for (uint32_t i = 0; i < N * dim; i++) {
            values[i] = (float)(weft_mix64(i + round) % 100) / 7;
        }
        weft_ps_op op;
        assert_int_equal(
            weft_ps_pull(c.client[0], 0, ids, out.rows, N, loss_ppm, c.net->now_ns, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, push(&c, 0, ids, values, N));
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rows_missed, 0);
        cluster_clock(&c, 0, 0);
        cluster_run(&c);
    }
    out.bytes = c.net->sent_bytes[shards];
    out.listed = counted(&c)->pushes_listed;
    assert_int_equal(counted(&c)->lists_unknown, 0);
    c.net->loss_ppm = 0;
    pull_all(&c, 0, ids, out.rows, N);
    free(values);
    cluster_stop(&c);
    return out;
}

static void the_same_rows_in_fewer_bytes(void **state)
{
    (void)state;
    const uint32_t dims[] = {1, 3, 17, 64, 256, 300};
    for (uint32_t k = 0; k < WEFT_ARRAY_COUNT(dims); k++) {
        for (uint32_t shards = 1; shards <= 3; shards += 2) {
            for (int wide = 0; wide < 4; wide++) {
                /* loss of pulls: the next pull requests missed rows first */
                uint32_t loss = wide / 2 * 300000;
                struct outcome before = job(shards, dims[k], wide % 2, WEFT_RPC_CAN_PACK, loss);
                struct outcome listed = job(shards, dims[k], wide % 2, WEFT_RPC_CAN_ALL, loss);
                assert_memory_equal(listed.rows, before.rows, (size_t)N * dims[k] * sizeof(float));
                assert_int_equal(before.listed, 0);
                assert_true(listed.bytes <= before.bytes);
                if (dims[k] <= 64) { /* all parts, of 300 rows */
                    assert_int_equal(listed.listed, ROUNDS * (N / 300 + 1));
                }
                assert_int_equal(dims[k] == 300, listed.listed == 0 && dims[k] == 300);
                assert_true(dims[k] > 1 || listed.bytes < before.bytes * (wide % 2 ? 7 : 9) / 10);
                free(before.rows);
                free(listed.rows);
            }
        }
    }
}

/* Other ids, another order, or fewer ids: the ids are sent with the push. A list may be named more
 * than once. */
static void only_just_these_ids(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(1);
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    const struct weft_table_spec spec = sums(0, 2), other = sums(1, 2);
    cluster_open(&c, &spec);
    cluster_open(&c, &other);
    uint64_t ids[100], changed[100];
    float rows[200] = {0};
    ids_make(ids, 100, 0, true);
    pull_all(&c, 0, ids, rows, 100);
    push_all(&c, 0, ids, rows, 99);
    push_all(&c, 1, ids, rows, 100);
    memcpy(changed, ids, sizeof(ids));
    changed[99]++;
    push_all(&c, 0, changed, rows, 100);
    memcpy(changed, ids, sizeof(ids));
    changed[3] = ids[4];
    changed[4] = ids[3];
    push_all(&c, 0, changed, rows, 100);
    assert_int_equal(counted(&c)->pushes_listed, 0);
    push_all(&c, 0, ids, rows, 100);
    push_all(&c, 0, ids, rows, 100);
    assert_int_equal(counted(&c)->pushes_listed, 2);
    assert_int_equal(counted(&c)->list_bytes_saved, 2 * (100 * 8 - 4));
    assert_int_equal(weft_shard_counters(c.shard[0])->ids_by_list, 200);
    cluster_stop(&c);
}

/* Later pulls evict the list; then no list fits at all. */
static void the_list_is_gone(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(2);
    struct cluster c;
    config.shard.list_ids = 100;
    cluster_start(&c, &config, 1, 4);
    const struct weft_table_spec spec = sums(0, 2), other = sums(1, 2);
    cluster_open(&c, &spec);
    cluster_open(&c, &other);
    uint64_t ids[140], many[400];
    float rows[280], back[800] = {0};
    ids_make(ids, 140, 0, true); /* about 70 per shard */
    ids_make(many, 400, 7, true);
    for (uint32_t i = 0; i < 280; i++) {
        rows[i] = (float)i;
    }
    pull_all(&c, 0, ids, back, 140);
    pull_all(&c, 1, ids, back, 140);
    push_all(&c, 0, ids, rows, 140);
    assert_int_equal(counted(&c)->lists_unknown, 2);
    assert_int_equal(counted(&c)->lists_sent, 2);
    assert_int_equal(counted(&c)->list_bytes_saved, 0);
    push_all(&c, 1, ids, rows, 140);
    push_all(&c, 0, ids, rows, 140); /* not named again */
    assert_int_equal(counted(&c)->lists_unknown, 2);
    assert_int_equal(counted(&c)->pushes_listed, 4);
    for (uint16_t t = 0; t < 2; t++) {
        memset(back, 0, sizeof(back));
        pull_all(&c, t, ids, back, 140);
        for (uint32_t i = 0; i < 280; i++) {
            assert_true(back[i] == (t == 0 ? 2 : 1) * rows[i]);
        }
    }
    uint64_t kept = counted(&c)->lists_stored;
    pull_all(&c, 0, many, back, 400);
    assert_int_equal(counted(&c)->lists_stored, kept);
    push_all(&c, 0, many, back, 400);
    assert_int_equal(counted(&c)->lists_unknown, 2);
    cluster_stop(&c);
}

/* Lists are always evicted before their use: few pushes are sent twice. */
static void lists_are_of_no_use(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(1);
    struct cluster c;
    config.shard.list_ids = 100;
    cluster_start(&c, &config, 1, 5);
    const struct weft_table_spec spec = sums(0, 1);
    cluster_open(&c, &spec);
    uint64_t ids[2][80];
    float rows[80], back[80];
    for (uint32_t i = 0; i < 80; i++) {
        rows[i] = (float)i;
    }
    for (uint32_t round = 0; round < 600; round++) {
        ids_make(ids[0], 80, 2 * round, false);
        ids_make(ids[1], 80, 2 * round + 1, false);
        pull_all(&c, 0, ids[0], back, 80);
        pull_all(&c, 0, ids[1], back, 80);
        push_all(&c, 0, ids[0], rows, 80);
    }
    assert_in_range(counted(&c)->lists_unknown, 5, 12);
    assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 600 * 80);
    cluster_stop(&c);
}

/* A shard dies or its connection breaks at every step of a push whose list it does not have. */
static void breaks_at_every_step(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 60; steps++) {
        for (int dies = 0; dies < 2; dies++) {
            struct cluster_config config = keys_config(1);
            struct cluster c;
            config.shard.list_ids = 200;
            config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
            cluster_start(&c, &config, 1, steps);
            c.net->packet_bytes = 200;
            const struct weft_table_spec spec = sums(0, 1);
            cluster_open(&c, &spec);
            uint64_t ids[2][150];
            float rows[150], back[150] = {0};
            for (uint32_t i = 0; i < 150; i++) {
                rows[i] = (float)i + 1;
            }
            ids_make(ids[0], 150, 0, true);
            ids_make(ids[1], 150, 1, true);
            pull_all(&c, 0, ids[0], back, 150);
            pull_all(&c, 0, ids[1], back, 150);
            weft_ps_op op = push(&c, 0, ids[0], rows, 150);
            for (uint32_t i = 0; i < steps; i++) {
                (void)cluster_step(&c);
            }
            bool was_done = weft_ps_op_done(c.client[0], op, NULL);
            if (dies) { /* the next process has no state */
                fake_kill(c.net, SHARD);
                cluster_shard_free(&c, SHARD);
                c.shard[0] = cluster_shard_new(&c, &config, SHARD);
                fake_revive(c.net, SHARD);
            } else {
                fake_break(c.net, SHARD, WORKER);
            }
            cluster_poll(&c);
            assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), c.net->now_ns),
                             WEFT_OK);
            fake_connect(c.net, SHARD, WORKER);
            cluster_poll(&c);
            struct weft_ps_result result = cluster_wait(&c, 0, op);
            assert_int_equal(result.status, WEFT_OK);
            assert_int_equal(result.elements_delivered, 150);
            cluster_run(&c);
            pull_all(&c, 0, ids[0], back, 150);
            for (uint32_t i = 0; i < 150; i++) {
                assert_true(back[i] == (dies && was_done ? 0 : rows[i]));
            }
            assert_int_equal(counted(&c)->replies_malformed, 0);
            assert_int_equal(counted(&c)->pushes_lost, dies && was_done);
            cluster_stop(&c);
        }
    }
}

/* The same without a reconnection: the operation fails, or all of it was applied. */
static void no_second_connection(void **state)
{
    (void)state;
    uint32_t failed = 0;
    for (uint32_t steps = 0; steps < 60; steps++) {
        struct cluster_config config = keys_config(1);
        struct cluster c;
        config.shard.list_ids = 200;
        cluster_start(&c, &config, 1, steps);
        c.net->packet_bytes = 200;
        const struct weft_table_spec spec = sums(0, 1);
        cluster_open(&c, &spec);
        uint64_t ids[2][150];
        float rows[150] = {0};
        ids_make(ids[0], 150, 0, true);
        ids_make(ids[1], 150, 1, true);
        pull_all(&c, 0, ids[0], rows, 150);
        pull_all(&c, 0, ids[1], rows, 150);
        weft_ps_op op = push(&c, 0, ids[0], rows, 150);
        for (uint32_t i = 0; i < steps; i++) {
            (void)cluster_step(&c);
        }
        fake_break(c.net, SHARD, WORKER);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        uint64_t applied = weft_shard_counters(c.shard[0])->elements_applied;
        assert_true(result.status == WEFT_PEER || (result.status == WEFT_OK && applied == 150));
        failed += result.status == WEFT_PEER;
        assert_false(weft_ps_client_busy(c.client[0]));
        cluster_stop(&c);
    }
    assert_true(failed > 20);
}

static struct fake_message *under_way(struct cluster *c, uint8_t op)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &c->net->messages[i];
        if (m->live && m->send.tag >> 56 == op) {
            return m;
        }
    }
    return NULL;
}

/* UNKNOWN_LIST arrives before the end of the push is known, and then the shard dies. */
static void unknown_and_then_nothing(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(1);
    struct cluster c;
    config.shard.list_ids = 200;
    cluster_start(&c, &config, 1, 9);
    const struct weft_table_spec spec = sums(0, 1);
    cluster_open(&c, &spec);
    uint64_t ids[2][150];
    float rows[150] = {0};
    ids_make(ids[0], 150, 0, true);
    ids_make(ids[1], 150, 1, true);
    pull_all(&c, 0, ids[0], rows, 150);
    pull_all(&c, 0, ids[1], rows, 150);
    weft_ps_op op = push(&c, 0, ids[0], rows, 150);
    struct fake_message *m = under_way(&c, WEFT_RPC_PUSH);
    while (m->left > 0) {
        assert_true(cluster_step(&c));
    }
    /* The shard receives the end and replies; the worker does not receive the reply. */
    struct fake_message copy = *m;
    struct weft_msg_event *event = fake_event(&c.net->nodes[SHARD], WEFT_EVENT_RECEIVED);
    fake_event_grid(&c.net->nodes[SHARD], event, m, false);
    m->live = false;
    cluster_poll(&c);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], op, NULL));
    assert_int_equal(weft_shard_counters(c.shard[0])->lists_unknown, 1);
    event = fake_event(&c.net->nodes[WORKER], WEFT_EVENT_SENT);
    fake_event_grid(&c.net->nodes[WORKER], event, &copy, true);
    event->outcome = WEFT_MSG_UNKNOWN;
    cluster_poll(&c);
    struct weft_ps_result result;
    assert_true(weft_ps_op_done(c.client[0], op, &result));
    assert_int_equal(result.status, WEFT_PEER);
    assert_int_equal(result.rows_missed, 150);
    weft_ps_op_release(c.client[0], op);
    cluster_stop(&c);
}

/* The deadline passes while LIST is in flight: no part of the push counts, and all of it is
 * kept. */
static void too_late_for_the_list(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(1);
    struct cluster c;
    config.shard.list_ids = 200;
    cluster_start(&c, &config, 1, 9);
    const struct weft_table_spec spec = sums(0, 1);
    cluster_open(&c, &spec);
    void *memory = malloc(weft_row_store_bytes(500, 1));
    assert_int_equal(weft_ps_client_feedback(c.client[0], 0, memory, 500), WEFT_OK);
    uint64_t ids[2][150];
    float rows[150], back[150] = {0};
    for (uint32_t i = 0; i < 150; i++) {
        rows[i] = (float)i + 1;
    }
    ids_make(ids[0], 150, 0, true);
    ids_make(ids[1], 150, 1, true);
    pull_all(&c, 0, ids[0], back, 150);
    pull_all(&c, 0, ids[1], back, 150);
    const struct weft_ps_list list = {.n = 150, .ids = ids[0], .values = rows};
    const struct weft_ps_how how = {.deadline_ns = c.net->now_ns + WEFT_NS_PER_S};
    weft_ps_op op, next;
    assert_int_equal(weft_ps_begin(c.client[0], WEFT_RPC_PUSH, &list, 1, &how, c.net->now_ns, &op),
                     WEFT_OK);
    while (under_way(&c, WEFT_RPC_LIST) == NULL) {
        assert_true(cluster_step(&c));
    }
    struct fake_message *m = under_way(&c, WEFT_RPC_LIST);
    m->held = true;
    cluster_run(&c);
    c.net->now_ns = how.deadline_ns + 10;
    cluster_run(&c);
    /* Another push that needs a LIST waits for the buffer. */
    assert_int_equal(weft_ps_push(c.client[0], 0, ids[1], rows, 150, 0, c.net->now_ns, &next),
                     WEFT_OK);
    m->held = false;
    struct weft_ps_result result = cluster_wait(&c, 0, op);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.rows_missed, 150);
    assert_int_equal(result.elements_delivered, 0);
    assert_int_equal(result.rpcs_short, 1);
    assert_int_equal(cluster_wait(&c, 0, next).elements_delivered, 150);
    assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 150);
    assert_int_equal(counted(&c)->feedback_stored, 150);
    push_all(&c, 0, ids[0], rows, 150);
    pull_all(&c, 0, ids[0], back, 150);
    for (uint32_t i = 0; i < 150; i++) {
        assert_true(back[i] == 2 * rows[i]);
    }
    cluster_clock(&c, 0, 0);
    cluster_run(&c);
    assert_true(weft_ps_clock_accepted(c.client[0], 0));
    cluster_stop(&c);
    free(memory);
}

/* Replace the shard by another process with this configuration. */
static void replace_shard(struct cluster *c, const struct cluster_config *config)
{
    fake_kill(c->net, SHARD);
    cluster_shard_free(c, SHARD);
    c->shard[SHARD] = cluster_shard_new(c, config, SHARD);
    fake_revive(c->net, SHARD);
    cluster_poll(c);
}

static void come_back(struct cluster *c)
{
    assert_int_equal(weft_ps_client_reconnect(c->client[0], 0, fake_peer(0), c->net->now_ns),
                     WEFT_OK);
    fake_connect(c->net, SHARD, WORKER);
    cluster_poll(c);
}

static void some_rows(uint64_t *ids, float *rows, uint32_t n, bool wide)
{
    ids_make(ids, n, 0, wide);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (float)i + 1;
    }
}

static void assert_rows(struct cluster *c, const uint64_t *ids, const float *rows, uint32_t n)
{
    float back[200] = {0};
    pull_all(c, 0, ids, back, n);
    assert_memory_equal(back, rows, n * sizeof(*rows));
}

/* Reasons why a shard does not get the list of a waiting push. */
enum no_list { NO_LONG_LIST, NO_LISTS, LIST_INVALID, REASONS };

/* The restarted shard accepts no list, or none this long, or the transport refuses LIST: the push
 * is sent with its ids. The connection breaks once more, at any step, and then lists are accepted
 * again. */
static void no_list_so_with_ids(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REASONS * 2 * 40; i++) {
        const enum no_list why = i % REASONS;
        const bool wide = i / REASONS % 2 == 0;
        const uint32_t steps = i / REASONS / 2;
        struct cluster_config config = keys_config(1);
        struct cluster c;
        config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
        cluster_start(&c, &config, 1, 9 + i);
        c.net->packet_bytes = 200;
        const struct weft_table_spec spec = sums(0, 1);
        cluster_open(&c, &spec);
        uint64_t ids[150];
        float rows[150], back[150] = {0};
        some_rows(ids, rows, 150, wide);
        pull_all(&c, 0, ids, back, 150);
        weft_ps_op op = push(&c, 0, ids, rows, 150);
        struct cluster_config other = config;
        other.shard.rows_per_rpc_max = why == NO_LONG_LIST ? 100 : 300;
        other.shard.can = why == NO_LISTS ? WEFT_RPC_CAN_PACK : WEFT_RPC_CAN_ALL;
        c.net->invalid_op = why == LIST_INVALID ? WEFT_RPC_LIST : 0;
        replace_shard(&c, &other);
        come_back(&c);
        for (uint32_t s = 0; s < steps; s++) {
            (void)cluster_step(&c);
        }
        if (steps > 0) {
            fake_break(c.net, SHARD, WORKER);
            c.net->packet_bytes = 300;
            cluster_poll(&c);
            come_back(&c);
        }
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rows_missed, 0);
        assert_int_equal(result.elements_sent, 150);
        assert_int_equal(result.elements_delivered, 150);
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 150);
        assert_int_equal(weft_shard_counters(c.shard[0])->ids_by_list, 0);
        assert_int_equal(counted(&c)->pushes_lost, 0);
        assert_int_equal(counted(&c)->replies_malformed, 0);
        cluster_clock(&c, 0, 0);
        cluster_run(&c);
        assert_true(weft_ps_clock_accepted(c.client[0], 0));
        assert_false(weft_ps_client_busy(c.client[0]));
        c.net->invalid_op = 0;
        float one[1];
        pull_all(&c, 0, ids, one, 1);
        assert_true(one[0] == rows[0]);
        push_all(&c, 0, ids, rows, 1);
        cluster_stop(&c);
    }
}

/* The operation is done and the push is kept until it is durable. The shard restarts without it and
 * accepts no lists. */
static void replayed_with_ids(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 40; steps++) {
        struct cluster_config config = keys_config(1);
        struct cluster c;
        config.shard.checkpoints = true;
        config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
        config.client.replay_bytes = 1 << 20;
        cluster_start(&c, &config, 1, 9 + steps);
        c.net->packet_bytes = 200;
        const struct weft_table_spec spec = sums(0, 1);
        cluster_open(&c, &spec);
        uint64_t ids[150];
        float rows[150], back[150] = {0};
        some_rows(ids, rows, 150, steps % 2 == 0);
        pull_all(&c, 0, ids, back, 150);
        push_all(&c, 0, ids, rows, 150);
        assert_int_equal(counted(&c)->pushes_listed, 1);
        struct cluster_config other = config;
        other.shard.can = WEFT_RPC_CAN_PACK;
        replace_shard(&c, &other);
        come_back(&c);
        for (uint32_t s = 0; s < steps; s++) {
            (void)cluster_step(&c);
        }
        /* The same with a shard that accepts lists. */
        replace_shard(&c, steps % 3 == 0 ? &other : &config);
        come_back(&c);
        for (uint32_t s = 0; s < steps; s++) {
            (void)cluster_step(&c);
        }
        fake_break(c.net, SHARD,
                   WORKER); /* it may have begun the push in chunks that name the list */
        cluster_poll(&c);
        come_back(&c);
        cluster_run(&c);
        assert_int_equal(counted(&c)->pushes_lost, 0);
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 150);
        assert_false(weft_ps_client_busy(c.client[0]));
        assert_rows(&c, ids, rows, 150);
        cluster_stop(&c);
    }
}

/* The packets of the new connection are too short for its chunks, but not for LIST. A pull queued
 * meanwhile names the push, and must not wait for it forever. */
static void shorter_packets_behind_the_list(void **state)
{
    (void)state;
    struct cluster_config config = keys_config(1);
    struct cluster c;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    cluster_start(&c, &config, 1, 5);
    c.net->packet_bytes = 1000;
    const struct weft_table_spec spec = sums(0, 1);
    cluster_open(&c, &spec);
    uint64_t ids[150];
    float rows[150], back[150] = {0};
    some_rows(ids, rows, 150, true);
    pull_all(&c, 0, ids, back, 150);
    weft_ps_op op = push(&c, 0, ids, rows, 150);
    fake_break(c.net, SHARD, WORKER);
    cluster_poll(&c);
    c.net->packet_bytes = c.net->chunk_bytes_max = 300;
    come_back(&c);
    while (under_way(&c, WEFT_RPC_LIST) == NULL) {
        assert_true(cluster_step(&c));
    }
    weft_ps_op read = pull(&c, 0, ids, back, 150);
    struct weft_ps_result result = cluster_wait(&c, 0, op);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_delivered, 150);
    cluster_run(&c);
    assert_true(weft_ps_op_done(c.client[0], read, NULL));
    assert_int_equal(cluster_wait(&c, 0, read).status, WEFT_OK);
    assert_memory_equal(back, rows, sizeof(rows));
    cluster_stop(&c);
}

/* ---- the journal ----------------------------------------------------------------------------- */

enum { JOURNAL_BYTES = 1 << 20 };

static void journal_attach(struct weft_shard *shard, void *memory, const void *source)
{
    const struct weft_shard_journal_config config = {.memory = memory,
                                                     .bytes = JOURNAL_BYTES,
                                                     .bytes_max = JOURNAL_BYTES,
                                                     .job = 1,
                                                     .lineage = 1,
                                                     .source = source,
                                                     .source_bytes = JOURNAL_BYTES};
    assert_int_equal(weft_shard_journal_init(shard, &config), WEFT_OK);
}

/* The longest chunk, with ids that need the most bytes packed, and with ids that need the fewest:
 * each record contains its ids, and a shard without lists can replay it. */
static void a_journal_has_the_ids(void **state)
{
    (void)state;
    enum { ROWS = 12000 };
    for (int kind = 0; kind < 3; kind++) {
        struct cluster_config config = keys_config(1);
        struct cluster c;
        void *memory = calloc(2, JOURNAL_BYTES);
        config.shard.checkpoints = true;
        config.shard.rows_max = 50000;
        config.shard.rows_per_rpc_max = config.client.rows_per_rpc_max = ROWS;
        config.client.rows_per_op_max = ROWS;
        cluster_start(&c, &config, 1, 2);
        fake_kill(c.net, SHARD);
        cluster_shard_free(&c, SHARD);
        c.shard[0] = cluster_shard_new(&c, &config, SHARD);
        journal_attach(c.shard[0], memory, NULL);
        cluster_stop(&c);
        /* The same with a journal from the beginning. */
        memset(memory, 0, JOURNAL_BYTES);
        cluster_start(&c, &config, 1, 2);
        journal_attach(c.shard[0], memory, NULL);
        c.net->packet_bytes = 40000;
        const struct weft_table_spec spec = sums(0, 1);
        cluster_open(&c, &spec);
        uint64_t *ids = calloc(ROWS, sizeof(*ids));
        float *rows = calloc(ROWS, sizeof(*rows)), *back = calloc(ROWS, sizeof(*back));
        for (uint32_t i = 0; i < ROWS; i++) {
            ids[i] = kind == 0 ? (i % 2 == 0 ? 0 : UINT64_MAX) : kind == 1 ? i : weft_mix64(i);
            rows[i] = 1 + (float)(i % 5);
        }
        pull_all(&c, 0, ids, back, ROWS);
        push_all(&c, 0, ids, rows, ROWS);
        assert_int_equal(counted(&c)->pushes_listed, 1);
        assert_false(weft_shard_journal_is_full(c.shard[0]));
        struct weft_shard *alive = c.shard[0];
        c.shard[0] = cluster_shard_new(&c, &config, SHARD);
        journal_attach(c.shard[0], (uint8_t *)memory + JOURNAL_BYTES, memory);
        while (weft_shard_journal_replay(c.shard[0])) {
            cluster_slabs(&c, 0);
        }
        assert_int_equal(weft_shard_journal_report(c.shard[0])->refused, 0);
        assert_int_equal(weft_shard_journal_report(c.shard[0])->chunks, 2);
        for (uint32_t i = 0; i < ROWS; i++) {
            float a = 0, b = 0;
            (void)weft_table_read(weft_shard_table(alive, 0), ids[i], &a);
            (void)weft_table_read(weft_shard_table(c.shard[0], 0), ids[i], &b);
            assert_true(a == b && a > 0);
        }
        cluster_shard_free(&c, SHARD);
        c.shard[0] = alive;
        cluster_stop(&c);
        free(ids);
        free(rows);
        free(back);
        free(memory);
    }
}

static void pull_in_pieces(struct cluster *c, const uint64_t *ids, float *back, uint32_t n)
{
    for (uint32_t first = 0; first < n; first += 50) {
        pull_all(c, 0, ids + first, back + first, 50);
    }
}

/* The shard began the push in its chunks, and the restarted shard accepts no list for it. Missing
 * rows cannot be distinguished from applied ones, so the push ends with an error, and nothing
 * hangs. */
static void begun_and_no_list(void **state)
{
    (void)state;
    for (enum no_list why = 0; why < REASONS; why++) {
        struct cluster_config config = keys_config(1);
        struct cluster c;
        uint8_t *memory = calloc(2, JOURNAL_BYTES);
        config.shard.checkpoints = true;
        config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
        cluster_start(&c, &config, 1, 9);
        journal_attach(c.shard[0], memory, NULL);
        c.net->packet_bytes = 200;
        const struct weft_table_spec spec = sums(0, 1);
        cluster_open(&c, &spec);
        void *kept = malloc(weft_row_store_bytes(500, 1));
        assert_int_equal(weft_ps_client_feedback(c.client[0], 0, kept, 500), WEFT_OK);
        uint64_t ids[150];
        float rows[150], back[150] = {0};
        some_rows(ids, rows, 150, true);
        pull_all(&c, 0, ids, back, 150);
        weft_ps_op op = push(&c, 0, ids, rows, 150);
        while (weft_shard_counters(c.shard[0])->chunks_applied < 2) {
            assert_true(cluster_step(&c));
        }
        fake_kill(c.net, SHARD);
        cluster_shard_free(&c, SHARD);
        config.shard.rows_per_rpc_max = why == NO_LONG_LIST ? 100 : 300;
        config.shard.can = why == NO_LISTS ? WEFT_RPC_CAN_PACK : WEFT_RPC_CAN_ALL;
        c.net->invalid_op = why == LIST_INVALID ? WEFT_RPC_LIST : 0;
        c.shard[0] = cluster_shard_new(&c, &config, SHARD);
        const uint64_t incarnation = config.incarnation + WORKER;
        weft_shard_restore_incarnations(c.shard[0], &incarnation, 1);
        journal_attach(c.shard[0], memory + JOURNAL_BYTES, memory);
        while (weft_shard_journal_replay(c.shard[0])) {
            cluster_slabs(&c, 0);
        }
        fake_revive(c.net, SHARD);
        cluster_poll(&c);
        come_back(&c);
        weft_ps_op read;
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, back, 50, 0, c.net->now_ns, &read),
                         WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, why == NO_LONG_LIST ? WEFT_DATA : WEFT_UNSUPPORTED);
        assert_int_equal(result.rpc_status, why == NO_LONG_LIST ? WEFT_RPC_TOO_LARGE : WEFT_RPC_OK);
        assert_int_equal(result.rows_missed, 150);
        assert_int_equal(result.elements_sent, 150);
        assert_int_equal(result.elements_delivered, 0);
        assert_int_equal(counted(&c)->push.messages_short, 1);
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 0);
        assert_int_equal(cluster_wait(&c, 0, read).status, WEFT_OK);
        /* Applied gradients are not added to a later push. */
        c.net->invalid_op = 0;
        float zeros[150] = {0};
        uint32_t applied = 0;
        push_all(&c, 0, ids, zeros, 150);
        pull_in_pieces(&c, ids, back, 150);
        for (uint32_t i = 0; i < 150; i++) {
            assert_true(back[i] == 0 || back[i] == rows[i]);
            applied += back[i] != 0;
        }
        assert_in_range(applied, 2, 149);
        assert_int_equal(counted(&c)->feedback_stored, 0);
        cluster_clock(&c, 0, 0);
        cluster_run(&c);
        assert_true(weft_ps_clock_accepted(c.client[0], 0));
        assert_false(weft_ps_client_busy(c.client[0]));
        cluster_stop(&c);
        free(kept);
        free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_rows_in_fewer_bytes),
        cmocka_unit_test(only_just_these_ids),
        cmocka_unit_test(the_list_is_gone),
        cmocka_unit_test(lists_are_of_no_use),
        cmocka_unit_test(breaks_at_every_step),
        cmocka_unit_test(no_second_connection),
        cmocka_unit_test(unknown_and_then_nothing),
        cmocka_unit_test(too_late_for_the_list),
        cmocka_unit_test(no_list_so_with_ids),
        cmocka_unit_test(replayed_with_ids),
        cmocka_unit_test(shorter_packets_behind_the_list),
        cmocka_unit_test(begun_and_no_list),
        cmocka_unit_test(a_journal_has_the_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
