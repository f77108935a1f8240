/* Workers and shards over the fake transport: losses, limits, refusals, deaths and latencies. */
#include "ps_client_rig.h"

#include <math.h>

/* ---- loss ------------------------------------------------------------------------------------ */

enum { MANY = 1000 };

static void fill_ids(uint64_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = id_of(i);
    }
}

static void gaps_keep_old_values_run(uint32_t dim, uint64_t seed)
{
    struct cluster_config config = cluster_config(2, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, seed);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    float *rows = malloc((size_t)MANY * dim * 4);
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY * dim; i++) {
        rows[i] = -(float)(i % 1000 + 1);
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    uint64_t got_all = 0, sent_all = 0;
    uint32_t first = 0;
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < MANY * dim; i++) {
            rows[i] = -5;
        }
        c.net->loss_ppm = round == 5 ? 0 : 1000000;
        weft_ps_op op;
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 700000, 0, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        uint32_t blocks = blocks_of(dim), new_blocks = 0, missed_rows = 0;
        for (uint32_t r = 0; r < MANY; r++) {
            bool whole = true;
            for (uint32_t b = 0; b < blocks; b++) {
                bool is_new = rows[r * dim + b * 256] != -5;
                for (uint32_t d = 0; d < weft_table_block_used(&spec, b); d++) {
                    uint32_t i = r * dim + b * 256 + d;
                    assert_true(rows[i] == (is_new ? (float)(i % 1000 + 1) : -5));
                }
                new_blocks += is_new;
                whole &= is_new;
            }
            missed_rows += !whole;
        }
        assert_int_equal(result.elements_sent, MANY * blocks);
        assert_int_equal(result.elements_delivered, new_blocks);
        const struct weft_ps_client_counters *counters = weft_ps_client_counters(c.client[0]);
        assert_int_equal(counters->missed_ids, missed_rows);
        assert_int_equal(counters->missed_first, first);
        first += missed_rows;
        assert_true((missed_rows > 0) == (round < 5));
        got_all += new_blocks;
        sent_all += MANY * blocks;
        assert_int_equal(counters->pull.elements_delivered, got_all);
        assert_int_equal(counters->pull.elements_sent, sent_all);
    }
    free(rows);
    cluster_stop(&c);
}

static void gaps_keep_old_values(void **state)
{
    (void)state;
    gaps_keep_old_values_run(1, 1);
    gaps_keep_old_values_run(8, 2);
    gaps_keep_old_values_run(300, 3);
}

/* Rows missed once are not missed again if they fit the first chunk. */
static void missed_rows_come_first(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, 9);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    c.net->loss_ppm = 1000000; /* as much as the bound allows: 1 chunk of 3 */
    bool missed[MANY] = {false};
    for (int round = 0; round < 4; round++) {
        memset(rows, 0, sizeof(rows));
        weft_ps_op op;
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 400000, 0, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.rpcs_short, 1);
        uint32_t again = 0, count = 0;
        for (uint32_t i = 0; i < MANY; i++) {
            again += missed[i] && rows[i] == 0;
            missed[i] = rows[i] == 0;
            count += missed[i];
        }
        /* 352 rows were missed; 338 of them fit chunk 0 after the head; the others are in chunk
         * 1. */
        assert_int_equal(count, 352);
        assert_true(round == 0 || again <= 352 - 338);
    }
    cluster_stop(&c);
}

/* Rule 7: rows missing twice in a row arrive the third time, however many rows there are. */
static void nothing_is_missing_three_times(bool is_push, uint32_t dim, uint32_t shards)
{
    enum { ROUNDS = 30 };
    struct cluster_config config = cluster_config(shards, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, dim);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float before[MANY][3];
    uint8_t running[MANY] = {0};
    uint32_t twice = 0;
    float *rows = calloc((size_t)MANY * dim, sizeof(float));
    fill_ids(ids, MANY);
    memset(before, 0, sizeof(before));
    for (uint32_t i = 0; !is_push && i < MANY * dim; i++) {
        rows[i] = -1;
    }
    assert_true(is_push || push(&c, 0, ids, rows, MANY).status == WEFT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        weft_ps_op op;
        for (uint32_t i = 0; i < MANY * dim; i++) {
            rows[i] = is_push ? -1 : 0;
        }
        c.net->loss_ppm = is_push && dim > 256 ? 400000 : 1000000; /* some blocks of a row */
        assert_int_equal(is_push ? weft_ps_push(c.client[0], 0, ids, rows, MANY, 400000, 0, &op)
                                 : weft_ps_pull(c.client[0], 0, ids, rows, MANY, 400000, 0, &op),
                         WEFT_OK);
        assert_true(cluster_wait(&c, 0, op).rpcs_short > 0);
        c.net->loss_ppm = 0;
        assert_true(!is_push || pull(&c, 0, ids, rows, MANY).status == WEFT_OK);
        for (uint32_t i = 0; i < MANY; i++) {
            bool came = true;
            for (uint32_t b = 0; b * 256 < dim; b++) {
                float now = rows[i * dim + b * 256];
                came = came && now != (is_push ? before[i][b] : 0);
                before[i][b] = now;
            }
            running[i] = came ? 0 : running[i] + 1;
            twice += running[i] == 2;
            assert_true(running[i] <= 2);
        }
    }
    assert_true(twice > 0); /* the rule was exercised */
    free(rows);
    cluster_stop(&c);
}

static void rows_are_not_missing_three_times(void **state)
{
    (void)state;
    nothing_is_missing_three_times(false, 1, 1);
    nothing_is_missing_three_times(false, 16, 2);
    nothing_is_missing_three_times(false, 256, 1);
    nothing_is_missing_three_times(false, 600, 2);
}

static void gradients_are_not_missing_three_times(void **state)
{
    (void)state;
    nothing_is_missing_three_times(true, 1, 1);
    nothing_is_missing_three_times(true, 16, 2);
    nothing_is_missing_three_times(true, 256, 1);
    nothing_is_missing_three_times(true, 512, 1);
    nothing_is_missing_three_times(true, 600, 2);
}

/* Four blocks are pushed in separate chunks; the first two that are not critical get lost. wanted:
 * bitmap of the rows, per push. */
static void missing_in_turn(uint32_t dim, uint32_t n, const uint64_t *ids, const uint64_t wanted[3])
{
    struct cluster_config config = cluster_config(1, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static const float rows[4 * 256];
    c.net->loss_ppm = 1000000;
    for (uint32_t round = 0; round < 3; round++) {
        weft_ps_op op;
        uint32_t count;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, n, 500000, 0, &op), WEFT_OK);
        cluster_run(&c);
        assert_true(weft_ps_op_done(c.client[0], op, NULL));
        const uint64_t *missed = weft_ps_op_missed(c.client[0], op, &count);
        assert_int_equal(missed == NULL ? 0 : missed[0], wanted[round]);
        weft_ps_op_release(c.client[0], op);
    }
    cluster_stop(&c);
}

/* "Twice" refers to two pushes, not to two blocks of a row or to a repeated id. */
static void a_row_is_missing_once_a_push(void **state)
{
    (void)state;
    missing_in_turn(512, 2, (const uint64_t[]){5, 6}, (const uint64_t[]){1, 1, 2});
    missing_in_turn(256, 4, (const uint64_t[]){5, 5, 6, 6}, (const uint64_t[]){3, 3, 12});
    missing_in_turn(256, 4, (const uint64_t[]){5, 6, 5, 6}, (const uint64_t[]){3, 3, 0});
}

/* The client's count of delivered elements equals the shards' count of applied ones. */
static void lossy_pushes_are_counted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cluster_config config = cluster_config(2, 2);
        struct cluster c;
        cluster_start(&c, &config, 2, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 2);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY];
        fill_ids(ids, MANY);
        for (uint32_t i = 0; i < MANY; i++) {
            rows[i] = -2;
        }
        c.net->loss_ppm = 400000;
        uint64_t delivered = 0, applied = 0;
        for (uint32_t w = 0; w < 2; w++) {
            weft_ps_op op;
            assert_int_equal(weft_ps_push(c.client[w], 0, ids, rows, MANY, 350000, 0, &op),
                             WEFT_OK);
            struct weft_ps_result result = cluster_wait(&c, w, op);
            assert_int_equal(result.elements_sent, MANY);
            assert_int_equal(result.status, WEFT_OK);
            delivered += result.elements_delivered;
        }
        assert_true(delivered < 2 * MANY);
        c.net->loss_ppm = 0;
        assert_int_equal(pull(&c, 0, ids, rows, MANY).status, WEFT_OK);
        for (uint32_t i = 0; i < MANY; i++) {
            applied += (uint64_t)rows[i];
        }
        assert_int_equal(applied, delivered);
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied +
                             weft_shard_counters(c.shard[1])->elements_applied,
                         delivered);
        cluster_stop(&c);
    }
}

/* ---- limits and refusals --------------------------------------------------------------------- */

static void empty_operations(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c.client[0], 0, NULL, NULL, 0, 0, 0, &op), WEFT_STATE);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    uint64_t steps = c.net->seq;
    assert_int_equal(push(&c, 0, NULL, NULL, 0).status, WEFT_OK);
    assert_int_equal(pull(&c, 0, NULL, NULL, 0).rpcs, 0);
    assert_int_equal(c.net->seq, steps); /* no message */
    /* One id: the other shard gets no message. */
    const uint64_t id = 3;
    const float row = 1;
    assert_int_equal(push(&c, 0, &id, &row, 1).rpcs, 1);
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1001, 0, 0, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1, WEFT_PPM, 0, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, 0, &op), WEFT_EXISTS);
    c.net->packet_bytes = 32; /* a head of 40 bytes does not fit */
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1, 0, 0, &op), WEFT_UNSUPPORTED);
    cluster_stop(&c);
}

static void tables_must_agree(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = sgd_spec(4, WEFT_TABLE_ASP, 2);
    weft_ps_op op;
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    spec.learning_rate = 2;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    struct weft_ps_result result = cluster_wait(&c, 1, op);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_SPEC_MISMATCH);
    assert_int_equal(weft_ps_push(c.client[1], 0, NULL, NULL, 0, 0, 0, &op), WEFT_STATE);
    spec.learning_rate = 1;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 1, op).status, WEFT_OK);
    spec.table = 1;
    spec.workers = 3; /* more than the server allows */
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 1, op).rpc_status, WEFT_RPC_BAD_SPEC);
    cluster_stop(&c);
}

static void full_slots_are_back_pressure(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.shard.push_slots = config.shard.pull_slots = 1;
    config.client.rows_per_rpc_max = 10;
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    weft_ps_op ops[9];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 200, 0, 0, &ops[i]), WEFT_OK);
    }
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 200, 0, 0, &ops[8]), WEFT_AGAIN);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(cluster_wait(&c, 0, ops[i]).status, WEFT_OK);
    }
    assert_true(c.net->unmatched > 0);
    assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 8 * 200);
    assert_true(weft_ps_client_counters(c.client[0])->deferred > 0);
    assert_false(weft_shard_busy(c.shard[0]));
    cluster_stop(&c);
}

/* 200 rows in requests of at most 10 rows, or of 150 towards a shard that accepts long ones. */
static void requests_are_long_where_the_shard_accepts_them(void **state)
{
    (void)state;
    static const uint32_t rows_max[] = {WEFT_RPC_ROWS_LONG, WEFT_RPC_ROWS_LONG - 1};
    static const uint32_t requests[] = {2, 20};
    for (int i = 0; i < 2; i++) {
        struct cluster_config config = cluster_config(1, 1);
        config.shard.rows_per_rpc_max = rows_max[i];
        config.client.rows_per_rpc_max = 10;
        config.client.rows_long_max = 150;
        struct cluster c;
        cluster_start(&c, &config, 1, 1);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY];
        fill_ids(ids, MANY);
        for (int k = 0; k < 200; k++) {
            rows[k] = (float)-k;
        }
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 200, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, 200, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        for (int k = 0; k < 200; k++) {
            assert_true(rows[k] == (float)k);
        }
        assert_int_equal(weft_shard_counters(c.shard[0])->pushes, requests[i]);
        assert_int_equal(weft_shard_counters(c.shard[0])->pulls, requests[i]);
        cluster_stop(&c);
    }
}

/* More pulls than the limit of unacknowledged messages. All wait for this worker's own CLOCK, which
 * waits for a slow push. */
static void pulls_leave_room_for_the_clock(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.shard.pull_slots = 1;
    config.client.rows_per_rpc_max = 10;
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    rows[0] = -1;
    weft_ps_op slow, op;
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 1, 0, 0, &slow), WEFT_OK);
    struct fake_message *m = fake_find(c.net, c.net->seq);
    m->held = true;
    assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_OK);
    assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 0, 0, &op), WEFT_OK);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], op, NULL));
    m->held = false;
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    assert_true(rows[0] == 1 && rows[1] == 0);
    cluster_stop(&c);
}

static void no_slab_no_new_rows(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    c.slabs_allowed = 1; /* 16,384 bytes: 512 rows of 32 bytes */
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    struct weft_ps_result result = push(&c, 0, ids, rows, MANY);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_FULL);
    assert_true(result.chunks_refused > 0);
    const struct weft_shard_counters *counters = weft_shard_counters(c.shard[0]);
    assert_int_equal(counters->rows_refused, result.chunks_refused);
    assert_int_equal(counters->chunks_refused, result.chunks_refused);
    float total = 0;
    assert_int_equal(pull(&c, 0, ids, rows, MANY).status, WEFT_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(rows[i] == 0 || rows[i] == 1);
        total += rows[i];
    }
    assert_true((uint64_t)total == counters->elements_applied && total > 0);
    c.slabs_allowed = 100; /* memory is supplied: it continues */
    cluster_poll(&c);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    cluster_stop(&c);
}

static void not_a_number_is_refused(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[250];
    static float rows[250];
    fill_ids(ids, 250);
    for (uint32_t i = 0; i < 250; i++) {
        rows[i] = -1;
    }
    rows[240] = NAN; /* chunks of 96 rows, the first with 92: this row is in the third */
    struct weft_ps_result result = push(&c, 0, ids, rows, 250);
    assert_int_equal(result.rpc_status, WEFT_RPC_NOT_FINITE);
    assert_int_equal(result.chunks_refused, 1);
    assert_int_equal(pull(&c, 0, ids, rows, 250).status, WEFT_OK);
    for (uint32_t i = 0; i < 250; i++) {
        assert_true(rows[i] == (i < 92 + 96 ? 1 : 0));
    }
    cluster_stop(&c);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void a_shard_dies(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster_config config = cluster_config(2, 1);
        struct cluster c;
        cluster_start(&c, &config, 1, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 1);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY], out[MANY];
        fill_ids(ids, MANY);
        weft_ps_op a, b, late;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, MANY, 0, 0, &a), WEFT_OK);
        assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_OK);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out, MANY, 0, 0, &b), WEFT_OK);
        for (uint64_t i = 0; i < seed; i++) {
            (void)cluster_step(&c);
        }
        fake_kill(c.net, 1);
        cluster_poll(&c);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out, MANY, 0, 0, &late), WEFT_OK);
        cluster_run(&c);
        struct weft_ps_result result = cluster_wait(&c, 0, b);
        assert_int_equal(result.status, WEFT_PEER);
        assert_int_equal(result.shard, 1);
        assert_int_equal(cluster_wait(&c, 0, late).status, WEFT_PEER);
        (void)cluster_wait(&c, 0, a);
        assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_PEER);
        assert_false(weft_ps_client_busy(c.client[0]));
        assert_false(weft_shard_busy(c.shard[0]));
        /* No expectation stays posted for the dead worker. */
        for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
            assert_false(c.net->nodes[2].expects[i].live);
        }
        cluster_stop(&c);
    }
}

static void a_worker_dies_and_comes_back(void **state)
{
    (void)state;
    uint64_t applied = 0, shorts = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster_config config = cluster_config(1, 2);
        struct cluster c;
        cluster_start(&c, &config, 2, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 2);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY], out[MANY];
        fill_ids(ids, MANY);
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, MANY, 0, 0, &op), WEFT_OK);
        cluster_clock(&c, 1, 0); /* runs until worker 1's CLOCK is sent */
        assert_int_equal(weft_ps_pull(c.client[1], 0, ids, out, MANY, 0, 0, &op), WEFT_OK);
        for (uint64_t i = 0; i < 2 * seed; i++) {
            (void)cluster_step(&c);
        }
        const struct weft_shard_counters *counters = weft_shard_counters(c.shard[0]);
        fake_kill(c.net, 1);
        cluster_poll(&c);
        assert_int_equal(counters->workers_replaced, 0);
        /* Applied data stays; the other worker still waits for the dead one. */
        cluster_run(&c);
        applied += counters->elements_applied;
        assert_false(weft_ps_op_done(c.client[1], op, NULL));
        assert_int_equal(weft_shard_clock(c.shard[0], 0), 0);
        for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
            const struct posted *e = &c.net->nodes[0].expects[i];
            assert_false(e->live && e->expect.peer == fake_peer(1));
        }
        /* A new process of that rank: on another node, as after a restart. */
        c.net->nodes[4].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
        fake_connect(c.net, 4, 0);
        cluster_poll(&c);
        struct weft_ps_client_config config2 = config.client;
        config2.clock_ns = fake_clock_ns;
        config2.clock_arg = c.net;
        weft_ps_client_free(c.client[0]);
        c.client[0] = NULL;
        struct weft_ps_client *again;
        weft_peer peer = fake_peer(0);
        assert_int_equal(weft_ps_client_new(&config2, fake_msgr(c.net, 4), &peer, &again), WEFT_OK);
        weft_ps_op open;
        assert_int_equal(weft_ps_table_open(again, &spec, 0, &open), WEFT_OK);
        struct weft_msg_event event;
        bool clocked = false;
        c.workers = 0; /* cluster_poll would progress the dead client */
        for (int i = 0; i < 3000; i++) {
            (void)fake_step(c.net);
            cluster_poll(&c);
            while (fake_poll(&c.net->nodes[4], &event)) {
                weft_ps_client_event(again, &event, 0);
            }
            while (fake_poll(&c.net->nodes[2], &event)) {
                weft_ps_client_event(c.client[1], &event, 0);
            }
            weft_ps_client_progress(again, 0);
            weft_ps_client_progress(c.client[1], 0);
            if (!clocked && weft_ps_op_done(again, open, NULL)) {
                clocked = weft_ps_clock(again, 0, 0) == WEFT_OK;
            }
        }
        assert_true(clocked && weft_ps_op_done(c.client[1], op, NULL));
        assert_int_equal(weft_shard_clock(c.shard[0], 0), 1);
        shorts += counters->requests_short;
        weft_ps_client_free(again);
        c.workers = 2;
        cluster_stop(&c);
    }
    assert_true(applied > 0 && shorts > 0);
}

/* ---- latencies ------------------------------------------------------------------------------- */

static void latencies_add_up(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(16, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY * 16];
    fill_ids(ids, MANY);
    uint32_t pushes = push(&c, 0, ids, rows, MANY).rpcs;
    struct weft_ps_result result = pull(&c, 0, ids, rows, MANY);
    const struct weft_ps_latencies *push_all = weft_ps_client_push_latencies(c.client[0]);
    const struct weft_ps_latencies *pull_all = weft_ps_client_pull_latencies(c.client[0]);
    assert_int_equal(push_all->n_tx.count, pushes);
    assert_int_equal(pull_all->n_tx.count, result.rpcs);
    assert_true(pushes >= 4); /* at most 300 rows per RPC */
    /* The fake clock advances only when it is read or by a step. So every duration is positive, and
     * the parts sum to the total without clamping. */
    assert_int_equal(pull_all->total.sum, pull_all->n_tx.sum + pull_all->ps_proc.sum +
                                              pull_all->ps_queue.sum + pull_all->ps_wait.sum);
    assert_int_equal(push_all->total.sum, push_all->n_tx.sum + push_all->ps_proc.sum +
                                              push_all->ps_queue.sum + push_all->ps_wait.sum);
    assert_true(pull_all->ps_proc.sum > 0 && pull_all->w_proc.sum > 0 && pull_all->n_tx.sum > 0);
    assert_int_equal(pull_all->ps_wait.sum, 0);
    assert_true(result.latency.ps_overlap_ns > 0);
    cluster_stop(&c);
}

static void an_rpc_that_carries_nothing(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(16, WEFT_TABLE_ASP, 1);
    uint64_t now = c.net->now_ns;
    weft_ps_op op;
    assert_int_equal(weft_ps_ask(c.client[0], 0, 0, now, &op), WEFT_STATE);
    cluster_open(&c, &spec);
    assert_int_equal(weft_ps_ask(c.client[0], 0, 2, now, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_ask(c.client[0], 9, 0, now, &op), WEFT_STATE);
    for (uint32_t s = 0; s < 2; s++) {
        assert_int_equal(weft_ps_ask(c.client[0], 0, s, c.net->now_ns, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rpcs, 1);
        assert_int_equal(result.elements_delivered, 0);
    }
    const struct weft_ps_latencies *pulls = weft_ps_client_pull_latencies(c.client[0]);
    assert_int_equal(pulls->total.count, 2);
    weft_ps_client_latencies_clear(c.client[0]);
    assert_int_equal(pulls->total.count, 0);
    assert_int_equal(pulls->n_tx.sum, 0);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_keep_old_values),
        cmocka_unit_test(missed_rows_come_first),
        cmocka_unit_test(rows_are_not_missing_three_times),
        cmocka_unit_test(gradients_are_not_missing_three_times),
        cmocka_unit_test(a_row_is_missing_once_a_push),
        cmocka_unit_test(lossy_pushes_are_counted),
        cmocka_unit_test(empty_operations),
        cmocka_unit_test(tables_must_agree),
        cmocka_unit_test(full_slots_are_back_pressure),
        cmocka_unit_test(requests_are_long_where_the_shard_accepts_them),
        cmocka_unit_test(pulls_leave_room_for_the_clock),
        cmocka_unit_test(no_slab_no_new_rows),
        cmocka_unit_test(not_a_number_is_refused),
        cmocka_unit_test(a_shard_dies),
        cmocka_unit_test(a_worker_dies_and_comes_back),
        cmocka_unit_test(latencies_add_up),
        cmocka_unit_test(an_rpc_that_carries_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
