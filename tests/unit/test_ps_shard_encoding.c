/* A shard and handmade requests of a worker: narrow and packed ids, values as bf16 and int8, and
 * refused encodings. */
#include "ps/id_pack.h"
#include "ps/layout.h"
#include "shard_bench.h"

/* The same with an id of 4 bytes: elements of 8 bytes; the head needs 5 elements. */
static struct request narrow_push_of(struct bench *b, uint32_t id, float gradient)
{
    memset(b->message, 0, 64);
    weft_ps_store_id(b->message + 40, WEFT_RPC_ID_NARROW, 0, id);
    memcpy(b->message + 44, &gradient, 4);
    struct request r = {WEFT_RPC_PUSH, 0, 1, 8, 6, head_of(b, 1)};
    r.head.flags = WEFT_RPC_NARROW_IDS;
    return r;
}

/* Element size and flag must match, in both directions. */
static void narrow_ids_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(15);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, narrow_push_of(b, UINT32_MAX, -2)), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 1, UINT32_MAX, -1)), WEFT_RPC_OK);
    assert_true(weight(b, UINT32_MAX) == 3);
    struct request r = narrow_push_of(b, 5, -2);
    r.head.flags = 0;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 5, -2);
    r.head.flags = WEFT_RPC_NARROW_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    assert_true(weight(b, 5) == 0);
    memset(b->message, 0, 64);
    weft_ps_store_id(b->message + 40, WEFT_RPC_ID_NARROW, 0, UINT32_MAX);
    r = (struct request){WEFT_RPC_PULL, 0, 0, 4, 11, head_of(b, 1)};
    r.head.flags = WEFT_RPC_NARROW_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    float value;
    memcpy(&value, b->reply + WEFT_RPC_REPLY_BYTES, 4);
    assert_true(value == 3);
    r.head = head_of(b, 1);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    bench_free(b);
}

/* Two ids, 7 and 7 + gap, and their gradients; packed. */
static struct request packed_push_of(struct bench *b, uint8_t gap, float gradient)
{
    uint8_t *at = b->message + WEFT_RPC_REQUEST_BYTES;
    const float two[2] = {gradient, 2 * gradient};
    const uint8_t ids[] = {1, 7, 7, gap,
                           1}; /* 2 ids, 7 bits; from 7 on; the gap; its quotient is 0 */
    memset(b->message, 0, 128);
    weft_ps_packed_head(at, 0, 2, sizeof(ids));
    memcpy(at + WEFT_PS_PACKED_HEAD_BYTES, ids, sizeof(ids));
    memcpy(at + WEFT_PS_PACKED_HEAD_BYTES + sizeof(ids), two, sizeof(two));
    struct request r = {WEFT_RPC_PUSH, 0, 1, 1, 40 + 8 + sizeof(ids) + sizeof(two), head_of(b, 2)};
    r.head.flags = WEFT_RPC_PACKED_IDS;
    return r;
}

static struct request packed_pull_of(struct bench *b, uint8_t gap)
{
    struct request r = packed_push_of(b, gap, 0);
    r.op = WEFT_RPC_PULL;
    r.clock = 0;
    r.total -= 8;
    return r;
}

static void packed_ids_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(16);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, packed_push_of(b, 5, -2)), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 4);
    assert_int_equal(ask(b, packed_push_of(b, 0, -2)), WEFT_RPC_OK); /* the same again */
    assert_true(weight(b, 7) == 8);
    struct request r = packed_push_of(b, 5, -1);
    r.total += 3; /* zeros after it are ignored */
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 12) == 6);
    assert_int_equal(ask(b, packed_pull_of(b, 5)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    float values[2];
    memcpy(values, b->reply + WEFT_RPC_REPLY_BYTES, sizeof(values));
    assert_true(values[0] == 9 && values[1] == 6);
    /* Only a head, as for a push whose deadline passed before it was sent. */
    r = packed_push_of(b, 5, -1);
    r.total = WEFT_RPC_REQUEST_BYTES;
    r.head.rows = 0;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    bench_free(b);
}

/* The fields of a chunk, with one error each. */
static struct request lie(struct bench *b, bool is_push, uint32_t first, uint32_t count,
                          size_t ids_bytes)
{
    struct request r = is_push ? packed_push_of(b, 5, -1) : packed_pull_of(b, 5);
    weft_ps_packed_head(b->message + WEFT_RPC_REQUEST_BYTES, first, count, ids_bytes);
    return r;
}

static void hostile_packed_ids(void **state)
{
    (void)state;
    struct bench *b = bench_new(17);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    for (int is_push = 0; is_push < 2; is_push++) {
        const struct {
            uint32_t first, count;
            size_t ids_bytes;
        } lies[] = {{0, 3, 5},     {0, 1, 5},  {0, 65535, 5}, {0, 0, 5},
                    {0, 2, 65535}, {0, 2, 14}, {0, 2, 4},     {0, 2, 0}};
        for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(lies); i++) {
            bool large = !is_push && lies[i].count > 400;
            assert_int_equal(
                ask(b, lie(b, is_push, lies[i].first, lies[i].count, lies[i].ids_bytes)),
                large ? WEFT_RPC_TOO_LARGE : WEFT_RPC_BAD_REQUEST);
        }
        struct request r = is_push ? packed_push_of(b, 5, -1) : packed_pull_of(b, 5);
        r.head.flags = 0;
        assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
        r = is_push ? packed_push_of(b, 5, -1) : packed_pull_of(b, 5);
        b->message[WEFT_RPC_REQUEST_BYTES + WEFT_PS_PACKED_HEAD_BYTES + 1] = 200; /* bits */
        assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
        r = is_push ? packed_push_of(b, 5, -1) : packed_pull_of(b, 5);
        r.total = 40 + 7; /* truncated */
        assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    }
    /* Rows must be 0, 1, ...: none may be skipped. */
    assert_int_equal(ask(b, lie(b, false, 1, 2, 5)), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(ask(b, lie(b, false, 399, 2, 5)), WEFT_RPC_TOO_LARGE);
    assert_int_equal(ask(b, lie(b, false, UINT32_MAX, 2, 5)), WEFT_RPC_TOO_LARGE);
    struct request r = packed_pull_of(b, 5);
    r.head.rows = 3;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = packed_pull_of(b, 5);
    r.head.rows = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = packed_pull_of(b, 5);
    r.head.rows = UINT32_MAX;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    /* Two chunks with the same rows: chunks of 64 bytes. */
    b->net->packet_bytes = 64;
    r = packed_pull_of(b, 5);
    memmove(b->message + 64, b->message + 40, 24);
    weft_ps_packed_head(b->message + 64, 0, 2, 5);
    r.total = 64 + 8 + 5;
    r.head.rows = 4;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = packed_pull_of(b, 5);
    memmove(b->message + 64, b->message + 40, 24);
    weft_ps_packed_head(b->message + 64, 2, 2, 5);
    r.total = 64 + 8 + 5;
    r.head.rows = 4;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    /* Rows 0 and 1 twice, rows 2 and 3 missing: the total and the last row would be correct. */
    r = packed_pull_of(b, 5);
    for (uint32_t k = 1; k < 3; k++) {
        memmove(b->message + 64 * k, b->message + 40, 24);
        weft_ps_packed_head(b->message + 64 * k, k == 1 ? 0 : 4, 2, 5);
    }
    r.total = 2 * 64 + 8 + 5;
    r.head.rows = 6;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_applied, 0);
    assert_true(weight(b, 7) == 0);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
}

/* Rows of several blocks need unpacked ids. */
static void packed_ids_are_of_whole_rows(void **state)
{
    (void)state;
    struct bench *b = bench_new(18);
    struct weft_table_spec spec = asp_spec(2);
    spec.dim = 60;
    spec.block_floats = 30;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    struct request r = packed_push_of(b, 5, -1);
    r.total += 2 * 30 * sizeof(float); /* as if 2 rows had 2 blocks */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = packed_pull_of(b, 5);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_applied, 0);
    bench_free(b);
}

/* Gradients and weights as bf16: plain ids, packed ids and the reply, byte by byte. */
static void bf16_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(21);
    struct weft_table_spec spec = {.dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .push_values = WEFT_VALUE_BF16,
                                   .pull_values = WEFT_VALUE_BF16};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    /* A head of 4 elements of 10 bytes, id 7, -3. */
    static const uint8_t plain[] = {7, 0, 0, 0, 0, 0, 0, 0, 0x40, 0xc0};
    memset(b->message, 0, 64);
    memcpy(b->message + 40, plain, sizeof(plain));
    struct request r = {WEFT_RPC_PUSH, 0, 1, 10, 5, head_of(b, 1)};
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 3);
    /* first 0, 2 rows, 5 bytes of ids: 7 and 12; 1, -0.5. */
    static const uint8_t packed[] = {0, 0, 0, 0, 2, 0, 5, 0, 1, 7, 7, 5, 1, 0x80, 0x3f, 0x00, 0xbf};
    memcpy(b->message + 40, packed, sizeof(packed));
    r = (struct request){WEFT_RPC_PUSH, 0, 1, 1, 40 + sizeof(packed), head_of(b, 2)};
    r.head.flags = WEFT_RPC_PACKED_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    r.total--; /* the last byte of the last gradient is missing */
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 7, -1); /* float32 */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    memset(b->message, 0, 64);
    static const uint8_t ids[] = {12, 0, 0, 0, 7, 0, 0, 0};
    memcpy(b->message + 40, ids, sizeof(ids));
    r = (struct request){WEFT_RPC_PULL, 0, 0, 4, 12, head_of(b, 2)};
    r.head.flags = WEFT_RPC_NARROW_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    static const uint8_t answer[] = {0x00, 0x3f, 0x00, 0x40};
    assert_memory_equal(b->reply + WEFT_RPC_REPLY_BYTES, answer, sizeof(answer));
    bench_free(b);
}

/* Gradients as int8: a block with its own scale behind a plain id, and packed ids before one scale
 * for all; scales that no sender makes, which are refused and counted. */
static void int8_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(23);
    struct weft_table_spec spec = {.dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .push_values = WEFT_VALUE_INT8};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    /* A head of 4 elements of 11 bytes; id 7, steps of 0.5, -6 of them. */
    static const uint8_t plain[] = {7, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x3f, 0xfa};
    memset(b->message, 0, 64);
    memcpy(b->message + 44, plain, sizeof(plain));
    struct request r = {WEFT_RPC_PUSH, 0, 1, 11, 5, head_of(b, 1)};
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 3);
    /* first 0, 2 rows, 5 bytes of ids: 7 and 12; steps of 0.25: 4, -2. */
    uint8_t packed[] = {0, 0, 0, 0, 2, 0, 5, 0, 1, 7, 7, 5, 1, 0x80, 0x3e, 4, 0xfe};
    memcpy(b->message + 40, packed, sizeof(packed));
    r = (struct request){WEFT_RPC_PUSH, 0, 1, 1, 40 + sizeof(packed), head_of(b, 2)};
    r.head.flags = WEFT_RPC_PACKED_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    static const uint16_t bad[] = {0x8000, 0x8001, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        memcpy(b->message + 40 + 13, &bad[i], sizeof(bad[i]));
        r.head.rpc_id = ++b->rpc_id;
        assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
        assert_int_equal(weft_shard_counters(b->shard)->chunks_refused, i + 1);
    }
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    memcpy(b->message + 40, packed, sizeof(packed));
    b->message[40 + 16] = 0x80; /* not a number */
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    b->message[40 + 14] = 0x7f; /* finite, but 4 times it is not */
    b->message[40 + 13] = 0x7f;
    b->message[40 + 16] = 0;
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    r.total--; /* the byte of the last gradient is missing */
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 7, -1); /* float32 */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    bench_free(b);
}

/* A value that is not finite: its row is skipped, or the value is 0; the rest of its group is
 * applied. */
static void int8_policies(void **state)
{
    (void)state;
    for (uint8_t policy = WEFT_NOT_FINITE_CLIP; policy <= WEFT_NOT_FINITE_DROP; policy++) {
        struct bench *b = bench_new(24);
        struct weft_table_spec spec = {.dim = 1,
                                       .mode = WEFT_TABLE_ASP,
                                       .workers = 1,
                                       .learning_rate = 1,
                                       .not_finite = policy,
                                       .clip = policy == WEFT_NOT_FINITE_CLIP ? 2 : 0,
                                       .push_values = WEFT_VALUE_INT8};
        assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
        /* Ids 7 and 12: not a number, and -6 steps of 0.25. */
        static const uint8_t packed[] = {0, 0, 0, 0, 2,    0,    5,    0,   1,
                                         7, 7, 5, 1, 0x80, 0x3e, 0x80, 0xfa};
        memset(b->message, 0, 64);
        memcpy(b->message + 40, packed, sizeof(packed));
        struct request r = {WEFT_RPC_PUSH, 0, 1, 1, 40 + sizeof(packed), head_of(b, 2)};
        r.head.flags = WEFT_RPC_PACKED_IDS;
        assert_int_equal(ask(b, r), WEFT_RPC_OK);
        assert_true(weight(b, 7) == 0 && weight(b, 12) == 1.5F);
        struct weft_shard_table_sums sums;
        weft_shard_table_sums(b->shard, &sums);
        assert_int_equal(sums.not_finite, 1);
        bench_free(b);
    }
}

/* With half the bytes per value a chunk would have twice as many rows as allowed. */
static void bf16_rows_have_a_limit(void **state)
{
    (void)state;
    struct bench *b = bench_new(22);
    b->net->packet_bytes = WEFT_PS_PACKED_CHUNK_BYTES;
    struct weft_table_spec spec = {.dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .push_values = WEFT_VALUE_BF16};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    for (uint32_t n = WEFT_PS_CHUNK_ROWS_MAX; n <= WEFT_PS_CHUNK_ROWS_MAX + 1; n++) {
        uint8_t *at = b->message + WEFT_RPC_REQUEST_BYTES, *ids = at + WEFT_PS_PACKED_HEAD_BYTES;
        memset(b->message, 0, BYTES_MAX);
        const uint64_t block[WEFT_IDS_BLOCK] = {0};
        uint64_t before = 0;
        size_t bytes = 0;
        for (uint32_t done = 0, taken; done < n; done += taken) {
            uint32_t left = n - done < WEFT_IDS_BLOCK ? n - done : WEFT_IDS_BLOCK;
            bytes += weft_ids_pack_block(block, left, before, ids + bytes, &taken);
        }
        weft_ps_packed_head(at, 0, n, bytes);
        struct request r = {WEFT_RPC_PUSH, 0, 1, 1, (uint32_t)(40 + 8 + bytes + n * 2),
                            head_of(b, n)};
        r.head.flags = WEFT_RPC_PACKED_IDS;
        bool fits = n == WEFT_PS_CHUNK_ROWS_MAX;
        assert_int_equal(ask(b, r), fits ? WEFT_RPC_OK : WEFT_RPC_BAD_REQUEST);
    }
    assert_int_equal(weft_shard_counters(b->shard)->elements_applied, WEFT_PS_CHUNK_ROWS_MAX);
    bench_free(b);
}

/* Capabilities are granted only if the worker requests them. */
static void what_a_shard_can(void **state)
{
    (void)state;
    struct bench *b = bench_new(19);
    struct weft_table_spec spec = asp_spec(2);
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(b->head.can, 0);
    weft_table_spec_pack(&spec, b->message + 40);
    struct request r = {WEFT_RPC_TABLE, 0, 0, 1, TABLE_BYTES, head_of(b, 0)};
    r.head.need_clock = UINT32_MAX; /* including capabilities of future releases */
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.can,
                     WEFT_RPC_CAN_PACK |
                         WEFT_RPC_CAN_UPDATE); /* without masks the shard accepts no lists */
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_ids_by_hand), cmocka_unit_test(packed_ids_by_hand),
        cmocka_unit_test(hostile_packed_ids), cmocka_unit_test(packed_ids_are_of_whole_rows),
        cmocka_unit_test(bf16_by_hand),       cmocka_unit_test(int8_by_hand),
        cmocka_unit_test(int8_policies),      cmocka_unit_test(bf16_rows_have_a_limit),
        cmocka_unit_test(what_a_shard_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
