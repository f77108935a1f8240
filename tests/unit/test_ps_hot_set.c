/* The hot set of a table: selection and announcement at a shard, refusals, and the set that a
 * worker stores. */
#include "ps/hot_rows.h"
#include "shard_bench.h"

#include "base/prng.h"

enum { ROOM = 10, MESSAGE = 4096 };

static const uint8_t key[WEFT_HASH_KEY_BYTES] = {5};

/* ---- the worker's end ------------------------------------------------------------------------ */

static void sets_as_sent(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    uint64_t unpacked[200], ids[200];
    static uint8_t bytes[MESSAGE];
    struct weft_hot_set set;
    assert_int_equal(weft_hot_set_init(&set, 0, unpacked, key), WEFT_INVALID);
    assert_int_equal(weft_hot_set_init(&set, WEFT_HOT_ROWS_MAX + 1, unpacked, key), WEFT_INVALID);
    assert_int_equal(weft_hot_set_init(&set, 200, unpacked, key), WEFT_OK);
    assert_false(weft_hot_set_has(&set, 0));
    assert_false(weft_hot_set_has(&set, 1));
    for (uint32_t epoch = 1; epoch < 300; epoch++) {
        const uint32_t count = (uint32_t)weft_prng_below(&prng, 201);
        const uint32_t shift = (uint32_t)weft_prng_below(&prng, 54); /* gaps of any length */
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = (i == 0 ? weft_prng_below(&prng, 2) * 1000 : ids[i - 1] + 1) +
                     (i == 0 ? 0 : weft_prng_below(&prng, UINT64_C(1) << shift));
        }
        uint32_t period_ms;
        bool changed;
        const size_t size = weft_hot_reply_pack(epoch, 7 * epoch, ids, count, bytes);
        assert_true(WEFT_RPC_REPLY_BYTES + size <= weft_hot_reply_bytes_max(count));
        assert_int_equal(weft_hot_set_take(&set, count, bytes, size, &period_ms, &changed),
                         WEFT_OK);
        assert_true(changed && period_ms == 7 * epoch && set.epoch == epoch && set.rows == count);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(weft_hot_set_has(&set, ids[i]));
            if (i + 1 < count && ids[i + 1] > ids[i] + 1) {
                assert_false(weft_hot_set_has(&set, ids[i] + 1));
            }
        }
        if (count > 0) {
            assert_false(weft_hot_set_has(&set, ids[count - 1] + 1));
        }
        /* The same epoch: no ids, and nothing changes. */
        const size_t head = weft_hot_reply_pack(epoch, 5, NULL, 0, bytes);
        assert_int_equal(head, WEFT_HOT_HEAD_BYTES);
        assert_int_equal(weft_hot_set_take(&set, 0, bytes, head, &period_ms, &changed), WEFT_OK);
        assert_true(!changed && period_ms == 5 && set.rows == count);
    }
    weft_hot_set_clear(&set);
    assert_int_equal(set.epoch, 0);
    assert_false(weft_hot_set_has(&set, ids[0]));
    weft_hot_set_fini(&set);
}

/* Malformed and hostile replies change nothing. */
static void sets_that_are_not(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    uint64_t unpacked[20];
    const uint64_t ids[20] = {0, 3, 5, 9, 1000, 1001, 5000};
    uint8_t bytes[MESSAGE], broken[MESSAGE];
    struct weft_hot_set set;
    uint32_t period_ms = 0;
    bool changed = false;
    assert_int_equal(weft_hot_set_init(&set, 20, unpacked, key), WEFT_OK);
    const size_t size = weft_hot_reply_pack(3, 10, ids, 7, bytes);
    assert_int_equal(weft_hot_set_take(&set, 7, bytes, size, &period_ms, &changed), WEFT_OK);
    for (size_t less = 0; less < size; less++) {
        bytes[0] = 4;
        assert_int_equal(weft_hot_set_take(&set, 7, bytes, less, &period_ms, &changed), WEFT_PROTO);
    }
    assert_int_equal(weft_hot_set_take(&set, 6, bytes, size, &period_ms, &changed), WEFT_PROTO);
    assert_int_equal(weft_hot_set_take(&set, 8, bytes, size, &period_ms, &changed), WEFT_PROTO);
    assert_int_equal(weft_hot_set_take(&set, 21, bytes, size, &period_ms, &changed), WEFT_NOMEM);
    assert_int_equal(weft_hot_set_take(&set, UINT32_MAX, bytes, size, &period_ms, &changed),
                     WEFT_NOMEM);
    bytes[0] = 3; /* the known epoch: no ids may follow */
    assert_int_equal(weft_hot_set_take(&set, 7, bytes, size, &period_ms, &changed), WEFT_PROTO);
    bytes[0] = 0; /* nor with epoch 0 */
    assert_int_equal(weft_hot_set_take(&set, 7, bytes, size, &period_ms, &changed), WEFT_PROTO);
    assert_true(set.epoch == 3 && set.rows == 7 && weft_hot_set_has(&set, 0) &&
                weft_hot_set_has(&set, 5000) && period_ms == 10);
    for (uint32_t i = 0; i < 100000; i++) {
        memcpy(broken, bytes, size);
        broken[0] = 9;
        for (uint64_t k = weft_prng_below(&prng, 4); k > 0; k--) {
            broken[4 + weft_prng_below(&prng, size - 4)] = (uint8_t)weft_prng_below(&prng, 256);
        }
        const uint32_t rows = (uint32_t)weft_prng_below(&prng, 21);
        (void)!weft_hot_set_take(&set, rows, broken,
                                 WEFT_HOT_HEAD_BYTES +
                                     weft_prng_below(&prng, size - WEFT_HOT_HEAD_BYTES + 1),
                                 &period_ms, &changed);
        assert_true(set.rows <= 20);
    }
    weft_hot_set_fini(&set);
}

/* ---- the shard's end ------------------------------------------------------------------------- */

static struct request hot_of(struct bench *b, uint32_t epoch, uint32_t most)
{
    struct request r = {WEFT_RPC_PULL, 0, 0, 8, 5, head_of(b, 0)};
    r.head.flags = WEFT_RPC_HOT;
    r.head.need_clock = epoch;
    r.head.after_seq = most;
    return r;
}

static void declare_hot(struct bench *b, uint32_t can)
{
    const struct weft_table_spec spec = asp_spec(1);
    weft_table_spec_pack(&spec, b->message + 40);
    struct request r = {WEFT_RPC_TABLE, 0, 0, 1, TABLE_BYTES, head_of(b, 0)};
    r.head.need_clock = can;
    r.head.after_seq = 1; /* session */
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
}

/* Push this many updates of each of ids first .. first + count - 1. */
static void update(struct bench *b, uint64_t first, uint32_t count, uint32_t times)
{
    for (uint32_t i = 0; i < count * times; i++) {
        assert_int_equal(ask(b, push_of(b, 1, first + i % count, 1)), WEFT_RPC_OK);
    }
}

/* Store the set of the reply. Returns `rows` of its head. */
static uint32_t announced(struct bench *b, struct weft_hot_set *set, size_t size)
{
    uint32_t period_ms;
    bool changed;
    assert_int_equal(weft_hot_set_take(set, b->head.rows, b->reply + WEFT_RPC_REPLY_BYTES, size,
                                       &period_ms, &changed),
                     WEFT_OK);
    assert_int_equal(period_ms, set->epoch > 0 ? 10000 : 157);
    return b->head.rows;
}

/* The length of the reply is unknown here; packing the set again gives the same bytes. */
static size_t size_of(uint32_t epoch, uint64_t first, uint32_t count)
{
    uint64_t ids[ROOM];
    uint8_t bytes[MESSAGE];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    return weft_hot_reply_pack(epoch, 10000, ids, count, bytes);
}

static void selected_and_announced(void **state)
{
    (void)state;
    hot_rows = ROOM;
    struct bench *b = bench_new(1);
    uint64_t unpacked[ROOM];
    struct weft_hot_set set;
    assert_int_equal(weft_hot_set_init(&set, ROOM, unpacked, key), WEFT_OK);
    const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
    declare_hot(b, WEFT_RPC_CAN_ALL);
    assert_true((b->head.can & WEFT_RPC_CAN_HOT) != 0);
    declare_hot(b, WEFT_RPC_CAN_AGGREGATE);
    assert_true((b->head.can & WEFT_RPC_CAN_HOT) == 0);        /* not requested */
    assert_int_equal(ask(b, hot_of(b, 0, ROOM)), WEFT_RPC_OK); /* too few updates */
    assert_int_equal(announced(b, &set, WEFT_HOT_HEAD_BYTES), 0);
    assert_int_equal(set.epoch, 0);
    update(b, 100, 10, 5);
    update(b, 200, 20, 1);
    assert_int_equal(ask(b, hot_of(b, 0, ROOM)), WEFT_RPC_OK);
    assert_int_equal(announced(b, &set, size_of(1, 100, ROOM)), ROOM);
    assert_int_equal(set.epoch, 1);
    assert_true(weft_hot_set_has(&set, 100) && weft_hot_set_has(&set, 109));
    assert_false(weft_hot_set_has(&set, 110) || weft_hot_set_has(&set, 200));
    assert_int_equal(ask(b, hot_of(b, 1, ROOM)), WEFT_RPC_OK); /* already known */
    assert_int_equal(announced(b, &set, WEFT_HOT_HEAD_BYTES), 0);
    /* Other rows are updated now. Their lower totals do not matter, but the set changes only after
     * the epoch. */
    update(b, 200, 10, 4);
    update(b, 100, 10, 1);
    assert_int_equal(ask(b, hot_of(b, 1, ROOM)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 0);
    b->net->now_ns += 10 * WEFT_NS_PER_S;
    assert_int_equal(ask(b, hot_of(b, 1, ROOM)), WEFT_RPC_OK);
    /* Rows 200 .. 207 have ranks below 0.8 x ROOM and enter the set; two of the others, which have
     * fewer updates, stay. */
    assert_int_equal(b->head.rows, ROOM);
    assert_int_equal(counters->hot_selections, 2);
    assert_int_equal(counters->hot_epochs, 2);
    assert_int_equal(counters->hot_rows_came, ROOM + 8);
    assert_int_equal(counters->hot_rows_left, 8);
    assert_int_equal(counters->hot_updates, 10);
    assert_int_equal(counters->hot_updates_of, 50);
    /* Neither a small change nor a time without updates begins a new epoch. */
    b->net->now_ns += 10 * WEFT_NS_PER_S;
    assert_int_equal(ask(b, hot_of(b, 2, ROOM)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 0);
    assert_int_equal(counters->hot_selections, 2);
    struct weft_shard_gauges gauges;
    weft_shard_gauges(b->shard, b->net->now_ns, WEFT_NS_PER_S, &gauges);
    assert_int_equal(gauges.hot_rows, ROOM);
    weft_hot_set_fini(&set);
    bench_free(b);
    hot_rows = 0;
}

static void refused(void **state)
{
    (void)state;
    hot_rows = ROOM;
    struct bench *b = bench_new(2);
    assert_int_equal(ask(b, hot_of(b, 0, ROOM)), WEFT_RPC_UNKNOWN_TABLE);
    declare_hot(b, WEFT_RPC_CAN_ALL);
    update(b, 100, 10, 5);
    /* exceeds the worker's limit */
    assert_int_equal(ask(b, hot_of(b, 0, ROOM - 1)), WEFT_RPC_TOO_LARGE);
    assert_int_equal(b->head.rows, 0);
    struct request r = hot_of(b, 0, ROOM);
    r.head.flags |= WEFT_RPC_CUT;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = hot_of(b, 0, ROOM);
    r.head.reply_bound_ppm = 1000;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = hot_of(b, 0, ROOM); /* a request with an id */
    r.total = 6;
    r.head.rows = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = hot_of(b, 0, ROOM);
    r.op = WEFT_RPC_PUSH;
    r.clock = 1;
    r.elem_bytes = 12;
    r.total = 4;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = hot_of(b, 0, UINT32_MAX);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, ROOM);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
    hot_rows = 0;
    /* A shard without hot sets does not grant them. */
    b = bench_new(3);
    declare_hot(b, WEFT_RPC_CAN_ALL);
    assert_int_equal(b->head.can & WEFT_RPC_CAN_HOT, 0);
    assert_int_equal(ask(b, hot_of(b, 0, ROOM)), WEFT_RPC_BAD_REQUEST);
    bench_free(b);
}

static void configurations(void **state)
{
    (void)state;
    struct fake_net *net = fake_net_new(1);
    struct weft_shard_config config = shard_rig_config(net);
    struct weft_shard *shard;
    config.hot_rows = 834;
    config.hot_top = 1000;
    assert_int_equal(weft_shard_new(&config, fake_msgr(net, SHARD), &shard), WEFT_INVALID);
    config.hot_rows = 833;
    config.hot_epoch_ns = WEFT_NS_PER_MS - 1;
    assert_int_equal(weft_shard_new(&config, fake_msgr(net, SHARD), &shard), WEFT_INVALID);
    config.hot_epoch_ns = WEFT_NS_PER_MS;
    assert_int_equal(weft_shard_new(&config, fake_msgr(net, SHARD), &shard), WEFT_OK);
    shard_rig_end(shard);
    config.hot_rows = WEFT_HOT_ROWS_MAX + 1;
    config.hot_top = 1000000;
    assert_int_equal(weft_shard_new(&config, fake_msgr(net, SHARD), &shard), WEFT_INVALID);
    fake_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_as_sent),           cmocka_unit_test(sets_that_are_not),
        cmocka_unit_test(selected_and_announced), cmocka_unit_test(refused),
        cmocka_unit_test(configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
