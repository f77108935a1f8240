/* A worker with packed ids and one without get the same rows; packed ids need fewer bytes. Shards
 * that do not accept packed ids get plain ones. Values are whole numbers, so that sums are
 * exact. */
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 700, ROUNDS = 6, PLACES = 60000 };

enum order { ASCENDING, DESCENDING, MIXED, ORDERS };

static uint64_t id_of(uint32_t i, uint32_t round, enum order order)
{
    uint32_t k = order == DESCENDING ? N - 1 - i : i;
    uint64_t id = (uint64_t)k * (PLACES / N) + weft_mix64(k + round * N) % (PLACES / N);
    return order == MIXED ? weft_mix64(id) >> 40 : id + (k == N - 1 ? UINT32_MAX - PLACES : 0);
}

struct outcome {
    uint64_t bytes; /* bytes of requests */
    uint64_t packed;
    float *rows; /* (ROUNDS, N, dim), as pulled at the end */
};

static struct outcome job(uint32_t shards, uint32_t dim, enum order order, uint16_t can)
{
    struct cluster_config config = cluster_config(shards, 1);
    struct outcome out = {.rows = calloc((size_t)ROUNDS * N * dim, sizeof(float))};
    struct cluster c;
    weft_ps_op op;
    config.client.can = can;
    config.client.dim_max = config.shard.dim_max = dim;
    config.shard.slab_bytes = 8 << 20;
    uint32_t blocks = (dim + WEFT_RPC_BLOCK_FLOATS - 1) / WEFT_RPC_BLOCK_FLOATS;
    cluster_start(&c, &config, 1, 1);
    const struct weft_table_spec spec = {.dim = dim,
                                         .mode = WEFT_TABLE_BSP,
                                         .workers = 1,
                                         .optimizer = WEFT_OPTIMIZER_ADAGRAD,
                                         .accumulator = 1,
                                         .learning_rate = 0.1F};
    cluster_open(&c, &spec);
    uint64_t ids[N];
    float *values = calloc((size_t)N * dim, sizeof(*values));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = id_of(i, round, order);
        }
        for (uint32_t i = 0; i < N * dim; i++) {
            values[i] = (float)(weft_mix64(i + round) % 100) / 7;
        }
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out.rows, N, 0, c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, values, N, 0, c.net->now_ns, &op),
                         WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.elements_sent, N * blocks);
        assert_int_equal(result.elements_delivered, N * blocks);
        cluster_clock(&c, 0, 0);
        cluster_run(&c);
    }
    out.bytes = c.net->sent_bytes[shards];
    out.packed = weft_ps_client_counters(c.client[0])->packed;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = id_of(i, round, order);
        }
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out.rows + (size_t)round * N * dim, N, 0,
                                      c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    }
    free(values);
    cluster_stop(&c);
    return out;
}

static void the_same_rows_in_fewer_bytes(void **state)
{
    (void)state;
    const uint32_t dims[] = {1, 3, 17, 64, 300};
    for (uint32_t k = 0; k < WEFT_ARRAY_COUNT(dims); k++) {
        for (uint32_t shards = 1; shards <= 3; shards += 2) {
            for (enum order order = ASCENDING; order < ORDERS; order++) {
                struct outcome plain = job(shards, dims[k], order, 0);
                struct outcome packed = job(shards, dims[k], order, WEFT_RPC_CAN_PACK);
                assert_memory_equal(packed.rows, plain.rows,
                                    (size_t)ROUNDS * N * dims[k] * sizeof(float));
                assert_int_equal(plain.packed, 0);
                assert_true(packed.bytes <= plain.bytes);
                if (order == ASCENDING) {
                    assert_true(packed.packed >= ROUNDS * shards);
                    assert_true(dims[k] > 1 || packed.bytes < plain.bytes * 6 / 10);
                }
                free(plain.rows);
                free(packed.rows);
            }
        }
    }
}

/* A shard of an earlier release grants nothing. */
static void a_shard_that_cannot(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    weft_ps_op op;
    config.shard.can = 0;
    cluster_start(&c, &config, 1, 2);
    const struct weft_table_spec spec = {
        .dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
    cluster_open(&c, &spec);
    uint64_t ids[N];
    float values[N], back[N];
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = i;
        values[i] = (float)i;
    }
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, values, N, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).elements_delivered, N);
    assert_int_equal(weft_ps_pull(c.client[0], 0, ids, back, N, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    assert_memory_equal(back, values, sizeof(values));
    assert_int_equal(weft_ps_client_counters(c.client[0])->packed, 0);
    cluster_stop(&c);
}

/* The worker knows how many rows of a push with lost chunks arrived. */
static void what_was_lost_is_counted(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    weft_ps_op op;
    config.shard.slab_bytes = 8 << 20;
    cluster_start(&c, &config, 1, 5);
    c.net->loss_ppm = 400000;
    c.net->packet_bytes = 200;
    const struct weft_table_spec spec = {
        .dim = 2, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
    cluster_open(&c, &spec);
    uint64_t ids[N], told = 0, short_ones = 0;
    float values[2 * N] = {0};
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = (uint64_t)i * (round + 1);
        }
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, values, N, 300000, c.net->now_ns, &op),
                         WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.elements_sent, N);
        assert_int_equal(result.rows_missed, N - result.elements_delivered);
        told += result.elements_delivered;
        short_ones += result.rpcs_short;
    }
    assert_true(short_ones > 10 && weft_ps_client_counters(c.client[0])->packed > 20 * 2);
    assert_int_equal(told, weft_shard_counters(c.shard[0])->elements_applied +
                               weft_shard_counters(c.shard[1])->elements_applied);
    cluster_stop(&c);
}

static uint32_t push_chunks(uint16_t can, uint32_t n, uint32_t bound_ppm)
{
    struct cluster_config config = cluster_config(1, 1);
    struct cluster c;
    weft_ps_op op;
    config.client.can = can;
    config.client.rows_per_op_max = config.client.rows_per_rpc_max = 20000;
    config.shard.slab_bytes = 8 << 20;
    cluster_start(&c, &config, 1, 3);
    const struct weft_table_spec spec = {
        .dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
    cluster_open(&c, &spec);
    uint64_t *ids = calloc(n, sizeof(*ids));
    float *values = calloc(n, sizeof(*values));
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (uint64_t)i * 50;
    }
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, values, n, bound_ppm, c.net->now_ns, &op),
                     WEFT_OK);
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        const struct fake_message *m = &c.net->messages[i];
        chunks += m->live && m->from == 1 ? m->chunks : 0;
    }
    assert_int_equal(cluster_wait(&c, 0, op).elements_sent, n);
    free(ids);
    free(values);
    cluster_stop(&c);
    return chunks;
}

/* Fewer bytes are fewer chunks, except for a push whose bound would then allow no loss. */
static void a_bound_stays_of_use(void **state)
{
    (void)state;
    const uint32_t counts[] = {100, 1000, 2000, 3000, 5000, 19000};
    for (uint32_t k = 0; k < WEFT_ARRAY_COUNT(counts); k++) {
        uint32_t plain = push_chunks(0, counts[k], 100000);
        uint32_t packed = push_chunks(WEFT_RPC_CAN_PACK, counts[k], 100000);
        uint32_t least = plain < 20 ? plain : 20;
        assert_in_range(packed, least, plain < 20 ? plain + 1 : plain * 2 / 3 + 1);
        assert_true(push_chunks(WEFT_RPC_CAN_PACK, counts[k], 0) <= plain * 2 / 3 + 1);
    }
}

/* The connection breaks at every step, with requests in flight. The next connection has shorter
 * packets, and its shard accepts no packed ids. Requests laid out for the old connection still get
 * replies. */
static void a_break(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 60; steps += 3) {
        struct cluster_config config = cluster_config(1, 1);
        struct cluster c;
        weft_ps_op push, pull;
        config.shard.chunks_max = 512;
        config.incarnation = 10;
        config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
        cluster_start(&c, &config, 1, steps);
        c.net->packet_bytes = 400;
        const struct weft_table_spec spec = {
            .dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
        cluster_open(&c, &spec);
        uint64_t ids[N];
        float values[N], back[N] = {0};
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = i * 3;
            values[i] = (float)i;
        }
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, values, N, 0, c.net->now_ns, &push),
                         WEFT_OK);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, back, N, 0, c.net->now_ns, &pull),
                         WEFT_OK);
        assert_true(weft_ps_client_counters(c.client[0])->packed > 0);
        for (uint32_t i = 0; i < steps; i++) {
            (void)cluster_step(&c);
        }
        fake_break(c.net, 0, 1);
        cluster_poll(&c);
        c.net->packet_bytes = 200;
        assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), c.net->now_ns),
                         WEFT_OK);
        fake_connect(c.net, 0, 1);
        cluster_poll(&c);
        while (!weft_ps_op_done(c.client[0], pull, NULL)) {
            assert_true(cluster_step(&c) || weft_ps_op_done(c.client[0], pull, NULL));
            for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
                const struct weft_msg_send *send = &c.net->messages[i].send;
                bool packed_pull = c.net->messages[i].live && send->tag >> 56 == WEFT_RPC_PULL &&
                                   send->elem_bytes == WEFT_RPC_ID_PACKED;
                assert_false(packed_pull);
            }
        }
        assert_int_equal(cluster_wait(&c, 0, push).elements_delivered, N);
        assert_int_equal(cluster_wait(&c, 0, pull).status, WEFT_OK);
        assert_memory_equal(back, values, sizeof(values));
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, N);
        cluster_stop(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_rows_in_fewer_bytes),
        cmocka_unit_test(a_shard_that_cannot),
        cmocka_unit_test(what_was_lost_is_counted),
        cmocka_unit_test(a_bound_stays_of_use),
        cmocka_unit_test(a_break),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
