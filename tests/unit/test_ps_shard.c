/* A shard against one worker that writes its own bytes: what is refused, with which answer, and
 * that nothing of it changes a parameter. */
#include "fake_msgr.h"
#include "ps/id_pack.h"
#include "ps/layout.h"
#include "ps/shard.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SHARD = 0, WORKER = 1, OTHER = 2, BYTES_MAX = 65536 };
enum { TABLE_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES };

struct bench {
    struct fake_net *net;
    struct weft_shard *shard;
    struct weft_msgr worker;
    uint32_t rpc_id;
    uint8_t message[BYTES_MAX];
    uint8_t reply[BYTES_MAX];
    struct weft_rpc_reply head;
    bool replied;
    uint32_t refused; /* of the last message */
    bool sent;
};

static struct bench *bench_new(uint64_t seed)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->net = fake_net_new(seed);
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.workers_max = 2;
    config.tables_max = 2;
    config.rows_max = 1000;
    config.rows_per_rpc_max = 400;
    config.push_slots = config.pull_slots = 2;
    config.clock_ns = fake_clock_ns;
    config.clock_arg = b->net;
    assert_int_equal(weft_shard_new(&config, fake_msgr(b->net, SHARD), &b->shard), WEFT_OK);
    b->worker = fake_msgr(b->net, WORKER);
    b->net->nodes[WORKER].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    b->net->nodes[OTHER].name = weft_rpc_name(WEFT_ROLE_WORKER, 1);
    fake_connect(b->net, SHARD, WORKER);
    fake_connect(b->net, SHARD, OTHER);
    return b;
}

static void bench_free(struct bench *b)
{
    void *slab;
    while ((slab = weft_shard_take_slab(b->shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(b->shard);
    fake_net_free(b->net);
    free(b);
}

static void bench_run(struct bench *b)
{
    struct weft_msg_event event;
    do {
        while (fake_poll(&b->net->nodes[SHARD], &event)) {
            weft_shard_event(b->shard, &event, b->net->now_ns);
        }
        weft_shard_progress(b->shard, b->net->now_ns);
        uint16_t table;
        size_t bytes;
        while (weft_shard_wants_slab(b->shard, &table, &bytes)) {
            assert_int_equal(weft_shard_add_slab(b->shard, table, malloc(bytes), bytes), WEFT_OK);
        }
        for (uint32_t n = WORKER; n <= OTHER; n++) {
            while (fake_poll(&b->net->nodes[n], &event)) {
                if (event.type == WEFT_EVENT_RECEIVED) {
                    b->replied = true;
                    assert_int_equal(weft_rpc_reply_unpack(b->reply, sizeof(b->reply), &b->head),
                                     WEFT_OK);
                } else if (event.type == WEFT_EVENT_SENT) {
                    b->sent = true;
                    b->refused = event.refused;
                }
            }
        }
    } while (fake_step(b->net));
}

struct request {
    uint8_t op;
    uint16_t table;
    uint32_t clock;
    uint16_t elem_bytes;
    uint32_t total;
    struct weft_rpc_request head;
};

/* Send b->message with this head at its beginning (none when its rpc_id is 0). Returns the answer's
 * status, -1 when none came. */
static int ask_from(struct bench *b, uint32_t node, struct request r)
{
    uint32_t id = r.head.rpc_id;
    if (id != 0) {
        weft_rpc_request_pack(&r.head, b->message);
    }
    struct weft_msgr msgr = fake_msgr(b->net, node);
    struct weft_msg_expect expect = {.peer = fake_peer(SHARD),
                                     .memory = b->reply,
                                     .memory_bytes = sizeof(b->reply),
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER,
                                     .tag_mask = UINT64_MAX,
                                     .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
                                         (uint8_t)(r.op | WEFT_RPC_REPLY_FLAG), r.table, id, 0})};
    struct weft_msg_send send = {
        .peer = fake_peer(SHARD),
        .base = b->message,
        .total = r.total,
        .elem_bytes = r.elem_bytes,
        .critical = 1,
        .deadline_ns = WEFT_NEVER,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){r.op, r.table, r.clock, 0})};
    weft_expect_id expect_id = 0;
    uint64_t seq;
    assert_int_equal(msgr.ops->expect(msgr.self, &expect, &expect_id), WEFT_OK);
    b->replied = b->sent = false;
    b->refused = 0;
    assert_int_equal(msgr.ops->send(msgr.self, &send, 0, &seq), WEFT_OK);
    bench_run(b);
    if (!b->replied) {
        (void)!msgr.ops->cancel(msgr.self, expect_id);
        return -1;
    }
    assert_int_equal(b->head.rpc_id, id);
    assert_int_equal(b->head.t0_ns, r.head.t0_ns);
    return b->head.status;
}

static int ask(struct bench *b, struct request r)
{
    return ask_from(b, WORKER, r);
}

static struct weft_rpc_request head_of(struct bench *b, uint32_t rows)
{
    return (struct weft_rpc_request){.rpc_id = ++b->rpc_id, .t0_ns = 99, .rows = rows};
}

static int declare_spec(struct bench *b, const struct weft_table_spec *spec)
{
    weft_table_spec_pack(spec, b->message + 40);
    struct request r = {WEFT_RPC_TABLE, spec->table, 0, 1, TABLE_BYTES, head_of(b, 0)};
    return ask(b, r);
}

static void declare(struct bench *b, uint16_t table, uint32_t dim, uint8_t mode, uint16_t workers)
{
    struct weft_table_spec spec = {
        .table = table, .dim = dim, .mode = mode, .workers = workers, .learning_rate = 1};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
}

/* One id, dim 1: head of 4 elements, id, gradient. */
static struct request push_of(struct bench *b, uint32_t clock, uint64_t id, float gradient)
{
    memset(b->message, 0, 64);
    weft_ps_store_id(b->message + 48, WEFT_RPC_ID_WIDE, 0, id);
    memcpy(b->message + 56, &gradient, 4);
    return (struct request){WEFT_RPC_PUSH, 0, clock, 12, 5, head_of(b, 1)};
}

static float weight(struct bench *b, uint64_t id)
{
    float value = 0;
    const struct weft_table *table = weft_shard_table(b->shard, 0);
    return table == NULL ? 0 : (weft_table_read(table, id, &value), value);
}

static void pushes_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), WEFT_RPC_UNKNOWN_TABLE);
    assert_int_equal(b->refused, 1);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, push_of(b, 1, UINT64_MAX, -3)), WEFT_RPC_OK);
    assert_int_equal(b->refused, 0);
    assert_true(weight(b, UINT64_MAX) == 3);
    bench_free(b);
}

static struct weft_table_spec asp_spec(uint32_t dim);

/* The same with an id of 4 bytes: elements of 8, of which the head takes 5. */
static struct request narrow_push_of(struct bench *b, uint32_t id, float gradient)
{
    memset(b->message, 0, 64);
    weft_ps_store_id(b->message + 40, WEFT_RPC_ID_NARROW, 0, id);
    memcpy(b->message + 44, &gradient, 4);
    struct request r = {WEFT_RPC_PUSH, 0, 1, 8, 6, head_of(b, 1)};
    r.head.flags = WEFT_RPC_NARROW_IDS;
    return r;
}

/* Element size and flag must agree, both ways. */
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
    const uint8_t ids[] = {1, 7, 7, gap, 1}; /* 2 ids, 7 bits; from 7 on; the gap; its quotient is 0 */
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
    assert_int_equal(ask(b, packed_push_of(b, 0, -2)), WEFT_RPC_OK); /* twice the same */
    assert_true(weight(b, 7) == 8);
    struct request r = packed_push_of(b, 5, -1);
    r.total += 3; /* zeros behind it mean nothing */
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 12) == 6);
    assert_int_equal(ask(b, packed_pull_of(b, 5)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    float values[2];
    memcpy(values, b->reply + WEFT_RPC_REPLY_BYTES, sizeof(values));
    assert_true(values[0] == 9 && values[1] == 6);
    /* A head alone, as a push that came too late to be sent. */
    r = packed_push_of(b, 5, -1);
    r.total = WEFT_RPC_REQUEST_BYTES;
    r.head.rows = 0;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    bench_free(b);
}

/* What a chunk says of itself, with one thing wrong. */
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
        r.total = 40 + 7; /* cut inside */
        assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    }
    /* Rows that are not 0, 1, ...: none may be left out. */
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
    /* Rows 0 and 1 twice, none 2 and 3: their number, and the last, would be right. */
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

/* Rows of several blocks have ids of their own form. */
static void packed_ids_are_of_whole_rows(void **state)
{
    (void)state;
    struct bench *b = bench_new(18);
    struct weft_table_spec spec = asp_spec(2);
    spec.dim = 60;
    spec.block_floats = 30;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    struct request r = packed_push_of(b, 5, -1);
    r.total += 2 * 30 * sizeof(float); /* as if 2 rows were 2 blocks */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = packed_pull_of(b, 5);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_applied, 0);
    bench_free(b);
}

/* Gradients and weights as bf16: plain ids, packed ones and the answer, byte by byte. */
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
    static const uint8_t packed[] = {0, 0, 0,    0,    2,    0,   5, 0, 1, 7, 7, 5, 1,
                                     0x80, 0x3f, 0x00, 0xbf};
    memcpy(b->message + 40, packed, sizeof(packed));
    r = (struct request){WEFT_RPC_PUSH, 0, 1, 1, 40 + sizeof(packed), head_of(b, 2)};
    r.head.flags = WEFT_RPC_PACKED_IDS;
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    r.total--; /* of the last gradient a byte is missing */
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

/* Gradients as int8: a block with its own scale behind a plain id, and packed ids before one scale for all;
 * scales that no sender makes, which are refused and counted. */
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
    b->message[40 + 16] = 0x80; /* no number */
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    b->message[40 + 14] = 0x7f; /* finite, but 4 of them are not */
    b->message[40 + 13] = 0x7f;
    b->message[40 + 16] = 0;
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    r.total--; /* of the last gradient the byte is missing */
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 7, -1); /* float32 */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    assert_true(weight(b, 7) == 2 && weight(b, 12) == 0.5F);
    bench_free(b);
}

/* What is not finite: its row is left out, or it is 0; the rest of its group counts. */
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
        /* Ids 7 and 12: no number, and -6 steps of 0.25. */
        static const uint8_t packed[] = {0, 0, 0, 0, 2, 0, 5, 0, 1, 7, 7, 5, 1, 0x80, 0x3e, 0x80, 0xfa};
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

/* Half as many bytes a value would be twice as many rows as any chunk has. */
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
        struct request r = {WEFT_RPC_PUSH, 0, 1, 1, (uint32_t)(40 + 8 + bytes + n * 2), head_of(b, n)};
        r.head.flags = WEFT_RPC_PACKED_IDS;
        bool fits = n == WEFT_PS_CHUNK_ROWS_MAX;
        assert_int_equal(ask(b, r), fits ? WEFT_RPC_OK : WEFT_RPC_BAD_REQUEST);
    }
    assert_int_equal(weft_shard_counters(b->shard)->elements_applied, WEFT_PS_CHUNK_ROWS_MAX);
    bench_free(b);
}

/* A worker is told what it may send only when it asks. */
static void what_a_shard_can(void **state)
{
    (void)state;
    struct bench *b = bench_new(19);
    struct weft_table_spec spec = asp_spec(2);
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(b->head.can, 0);
    weft_table_spec_pack(&spec, b->message + 40);
    struct request r = {WEFT_RPC_TABLE, 0, 0, 1, TABLE_BYTES, head_of(b, 0)};
    r.head.need_clock = UINT32_MAX; /* and what releases to come can */
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.can, WEFT_RPC_CAN_PACK | WEFT_RPC_CAN_UPDATE); /* it keeps no chunks, so it takes no lists */
    bench_free(b);
}

/* Each: a good push with one thing wrong. */
static void hostile_pushes(void **state)
{
    (void)state;
    struct bench *b = bench_new(2);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    struct request r = push_of(b, 1, 7, -1);
    r.head.worker = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_WRONG_WORKER);
    r = push_of(b, 1, 7, -1);
    r.head.rows = 2; /* lies */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 7, -1);
    r.elem_bytes = 16; /* of another dim */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 0, 7, -1); /* clock 0 is finished from the beginning */
    assert_int_equal(ask(b, r), WEFT_RPC_STALE_CLOCK);
    r = push_of(b, 1, 7, -1);
    r.table = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_UNKNOWN_TABLE);
    r.table = 60000;
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_UNKNOWN_TABLE);
    r = push_of(b, 1, 7, __builtin_inff());
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_refused, 7);
    /* No head, no answer; and the slot is free again, or the last of these would find none. */
    for (int i = 0; i < 5; i++) {
        r = push_of(b, 1, 7, -1);
        r.head.rpc_id = 0;
        assert_int_equal(ask(b, r), -1);
        assert_true(b->sent && b->refused == 1);
        r = push_of(b, 1, 7, -1);
        r.total = 3; /* cut inside the head */
        assert_int_equal(ask(b, r), -1);
        assert_true(b->sent && b->refused == 1);
    }
    /* A worker that the table does not count. */
    r = push_of(b, 1, 7, -1);
    r.head.worker = 1;
    assert_int_equal(ask_from(b, OTHER, r), WEFT_RPC_WRONG_WORKER);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_applied, 0);
    assert_true(weight(b, 7) == 0);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
}

static int clock_by(struct bench *b, uint32_t node, uint32_t worker, uint32_t clock)
{
    struct request r = {WEFT_RPC_CLOCK, 0, clock, 40, 1, head_of(b, 0)};
    r.head.worker = worker;
    assert_int_equal(ask_from(b, node, r), -1);
    assert_true(b->sent);
    return (int)b->refused;
}

static int clock_upto(struct bench *b, uint32_t clock)
{
    struct request r = {WEFT_RPC_CLOCK, 0, clock, 40, 1, head_of(b, 0)};
    r.head.flags = WEFT_RPC_UPTO;
    (void)ask_from(b, WORKER, r);
    return (int)b->refused;
}

/* One worker that claims to be far ahead expires no rows of the others, now or later. */
static void one_worker_does_not_move_time(void **state)
{
    (void)state;
    struct bench *b = bench_new(3);
    struct weft_table_spec spec = {.table = 0,
                                   .dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 2,
                                   .learning_rate = 1,
                                   .eviction = WEFT_EVICTION_TTL,
                                   .ttl = 5};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 1, 7, -4)), WEFT_RPC_OK);
    assert_int_equal(clock_upto(b, WEFT_RPC_CLOCK_MAX), 0);
    assert_true(weight(b, 7) == 2);
    assert_int_equal(ask(b, push_of(b, WEFT_RPC_CLOCK_MAX + 1, 8, -4)), WEFT_RPC_BAD_REQUEST);
    for (uint32_t clock = 1; clock <= 5; clock++) {
        assert_int_equal(clock_by(b, OTHER, 1, clock), 0);
        assert_true(weight(b, 7) == 2);
    }
    assert_int_equal(clock_by(b, OTHER, 1, 6), 0); /* the other one's clocks count */
    assert_true(weight(b, 7) == 0);
    bench_free(b);
}

static void clocks_go_by_one(void **state)
{
    (void)state;
    struct bench *b = bench_new(3);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 1); /* no table */
    declare(b, 0, 1, WEFT_TABLE_BSP, 2);
    assert_int_equal(clock_by(b, WORKER, 0, 2), 1);
    assert_int_equal(clock_by(b, WORKER, 1, 1), 1); /* not its rank */
    assert_int_equal(clock_by(b, WORKER, 0, 0), 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -4)), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 2, 7, -100)), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 0);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 0); /* again: of no effect */
    assert_int_equal(weft_shard_counters(b->shard)->clocks_again, 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -100)), WEFT_RPC_STALE_CLOCK);
    assert_int_equal(ask(b, push_of(b, 2, 7, -100)), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(weft_shard_clock(b->shard, 0), 0);
    assert_true(weight(b, 7) == 0);
    assert_int_equal(clock_by(b, OTHER, 1, 1), 0);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1);
    assert_true(weight(b, 7) == 2);
    assert_int_equal(weft_shard_counters(b->shard)->clocks, 2);
    assert_int_equal(weft_shard_counters(b->shard)->clocks_refused, 4);
    assert_int_equal(clock_upto(b, 10), 0); /* many at once, when that is said */
    assert_int_equal(clock_upto(b, 9), 0);
    assert_int_equal(weft_shard_counters(b->shard)->clocks_again, 2);
    assert_int_equal(clock_upto(b, WEFT_RPC_CLOCK_MAX + 1), 1);
    assert_int_equal(clock_by(b, WORKER, 0, 12), 1);
    assert_int_equal(clock_by(b, WORKER, 0, 11), 0);
    /* A CLOCK of another shape. */
    struct request r = {WEFT_RPC_CLOCK, 0, 2, 40, 2, head_of(b, 0)};
    assert_int_equal(ask(b, r), -1);
    assert_int_equal(b->refused, 1);
    bench_free(b);
}

static struct request pull_of(struct bench *b, uint32_t n)
{
    memset(b->message, 0, BYTES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        weft_ps_store_id(b->message + 40 + i * 8, WEFT_RPC_ID_WIDE, 0, i);
    }
    return (struct request){WEFT_RPC_PULL, 0, 0, 8, 5 + n, head_of(b, n)};
}

static void pulls_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(4);
    assert_int_equal(ask(b, pull_of(b, 3)), WEFT_RPC_UNKNOWN_TABLE);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, push_of(b, 1, 2, -5)), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 400)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 400);
    for (uint32_t i = 0; i < 400; i++) {
        float value;
        memcpy(&value, b->reply + 56 + i * 4, 4);
        assert_true(value == (i == 2 ? 5 : 0));
    }
    assert_int_equal(weft_shard_counters(b->shard)->rows_absent, 399);
    assert_int_equal(ask(b, pull_of(b, 401)), WEFT_RPC_TOO_LARGE);
    assert_int_equal(b->head.rows, 0);
    struct request r = pull_of(b, 10);
    r.head.rows = 9;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.elem_bytes = 12;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.head.after_seq = r.head.rpc_id; /* after itself */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.head.after_seq = r.head.rpc_id + 1;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    r = pull_of(b, 2);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    bench_free(b);
}

/* Packets that hold ids and heads, but no row of 64 floats. */
static void rows_larger_than_a_packet(void **state)
{
    (void)state;
    struct bench *b = bench_new(9);
    declare(b, 0, 64, WEFT_TABLE_ASP, 1);
    b->net->packet_bytes = 200;
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_TOO_LARGE);
    b->net->packet_bytes = 256;
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_OK);
    bench_free(b);
}

/* A pull behind a push that has not arrived waits for it, holding its slot but no other's. */
static void pull_waits_for_its_push(void **state)
{
    (void)state;
    struct bench *b = bench_new(5);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    uint32_t push_id = b->rpc_id + 1;
    b->rpc_id++;
    struct request r = pull_of(b, 8);
    r.head.after_seq = push_id;
    static uint8_t kept[BYTES_MAX];
    assert_int_equal(ask(b, r), -1);
    assert_true(b->sent && weft_shard_busy(b->shard));
    assert_int_equal(weft_shard_counters(b->shard)->waits, 1);
    memcpy(kept, b->message, sizeof(kept));
    /* The reply's memory was taken back by ask(); post it again. */
    struct weft_msg_expect expect = {
        .peer = fake_peer(SHARD),
        .memory = kept,
        .memory_bytes = sizeof(kept),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .tag_mask = UINT64_MAX,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){0x82, 0, r.head.rpc_id, 0})};
    weft_expect_id id;
    assert_int_equal(b->worker.ops->expect(b->worker.self, &expect, &id), WEFT_OK);
    struct request push = push_of(b, 1, 2, -5);
    push.head.rpc_id = push_id;
    b->rpc_id--;
    /* Two answers come now; the head that bench_run keeps is that of either. */
    weft_rpc_request_pack(&push.head, b->message);
    struct weft_msg_send send = {.peer = fake_peer(SHARD),
                                 .base = b->message,
                                 .total = 5,
                                 .elem_bytes = 12,
                                 .critical = 1,
                                 .deadline_ns = WEFT_NEVER,
                                 .tag = weft_rpc_tag_pack((struct weft_rpc_tag){1, 0, 1, 0})};
    struct weft_msg_expect push_reply = expect;
    push_reply.memory = b->reply;
    push_reply.memory_bytes = sizeof(b->reply);
    push_reply.tag = weft_rpc_tag_pack((struct weft_rpc_tag){0x81, 0, push_id, 0});
    assert_int_equal(b->worker.ops->expect(b->worker.self, &push_reply, &id), WEFT_OK);
    uint64_t seq;
    assert_int_equal(b->worker.ops->send(b->worker.self, &send, 0, &seq), WEFT_OK);
    weft_rpc_reply_pack(&(struct weft_rpc_reply){.rpc_id = 1}, b->reply);
    bench_run(b);
    struct weft_rpc_reply head;
    assert_int_equal(weft_rpc_reply_unpack(kept, sizeof(kept), &head), WEFT_OK);
    assert_int_equal(head.rpc_id, r.head.rpc_id);
    assert_int_equal(head.status, WEFT_RPC_OK);
    assert_true(head.ps_wait_ns > 0);
    float value;
    memcpy(&value, kept + 56 + 2 * 4, 4);
    assert_true(value == 5);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
}

static void bad_tables(void **state)
{
    (void)state;
    struct bench *b = bench_new(6);
    struct weft_table_spec spec = {.table = 0, .dim = 1, .workers = 1, .learning_rate = 1};
    struct request r = {WEFT_RPC_TABLE, 0, 0, 1, TABLE_BYTES, {0}};
    r.head = head_of(b, 0);
    memset(b->message, 0, TABLE_BYTES);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC); /* dim 0 */
    weft_table_spec_pack(&spec, b->message + 40);
    r.table = 2; /* tables 0 and 1 exist */
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC);
    r.table = 0;
    r.total = TABLE_BYTES - 1;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r.total = TABLE_BYTES + 1;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    spec.dim = 65; /* dim_max is 64 */
    weft_table_spec_pack(&spec, b->message + 40);
    r.total = TABLE_BYTES;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC);
    assert_null(weft_shard_table(b->shard, 0));
    spec.dim = 64;
    weft_table_spec_pack(&spec, b->message + 40);
    for (int i = 0; i < 3; i++) { /* the same again is fine */
        r.head = head_of(b, 0);
        assert_int_equal(ask(b, r), WEFT_RPC_OK);
    }
    assert_non_null(weft_shard_table(b->shard, 0));
    bench_free(b);
}

/* ---- what a table may ask for ---------------------------------------------------------------- */

static struct weft_table_spec asp_spec(uint32_t dim)
{
    return (struct weft_table_spec){
        .dim = dim, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
}

/* Two rows of dim 2 in one chunk: head of 3 elements, ids 1 and 2, blocks. */
static struct request push_two(struct bench *b, const float *values)
{
    memset(b->message, 0, 80);
    weft_ps_store_id(b->message + 48, WEFT_RPC_ID_WIDE, 0, 1);
    weft_ps_store_id(b->message + 56, WEFT_RPC_ID_WIDE, 0, 2);
    memcpy(b->message + 64, values, 16);
    return (struct request){WEFT_RPC_PUSH, 0, 1, 16, 5, head_of(b, 2)};
}

static void weights_are(struct bench *b, uint64_t id, float first, float second)
{
    float row[2] = {0};
    (void)weft_table_read(weft_shard_table(b->shard, 0), id, row);
    if (row[0] != first || row[1] != second) {
        fail_msg("row %u is %g %g", (unsigned)id, (double)row[0], (double)row[1]);
    }
}

static void what_is_not_finite(void **state)
{
    (void)state;
    const float inf = __builtin_inff(), nan = __builtin_nanf("");
    const float values[4] = {1, -inf, nan, 5};
    const float second[4] = {1, 2, 0, 5};
    for (uint8_t policy = WEFT_NOT_FINITE_REJECT; policy <= WEFT_NOT_FINITE_DROP; policy++) {
        struct bench *b = bench_new(20);
        struct weft_table_spec spec = asp_spec(2);
        spec.not_finite = policy;
        spec.clip = policy == WEFT_NOT_FINITE_CLIP ? 3 : 0;
        assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
        int wanted = policy == WEFT_NOT_FINITE_REJECT ? WEFT_RPC_NOT_FINITE : WEFT_RPC_OK;
        assert_int_equal(ask(b, push_two(b, values)), wanted);
        assert_int_equal(b->refused, policy == WEFT_NOT_FINITE_REJECT);
        struct weft_shard_table_sums sums;
        weft_shard_table_sums(b->shard, &sums);
        assert_int_equal(sums.not_finite, policy == WEFT_NOT_FINITE_REJECT ? 0 : 2);
        if (policy == WEFT_NOT_FINITE_CLIP) {
            weights_are(b, 1, -1, 3);
            weights_are(b, 2, 0, -3); /* finite ones are clipped, too */
        } else {
            weights_are(b, 1, 0, 0);
            weights_are(b, 2, 0, 0);
        }
        assert_int_equal(ask(b, push_two(b, second)), WEFT_RPC_OK); /* nothing has stuck */
        if (policy == WEFT_NOT_FINITE_DROP) {
            weights_are(b, 1, -1, -2);
            weights_are(b, 2, 0, -5);
            const float half[4] = {inf, 1, 1, 1};
            assert_int_equal(ask(b, push_two(b, half)), WEFT_RPC_OK);
            weights_are(b, 1, -1, -2);
            weights_are(b, 2, -1, -6);
        }
        bench_free(b);
    }
}

static void tables_say_what_they_count(void **state)
{
    (void)state;
    struct bench *b = bench_new(21);
    struct weft_table_spec spec = asp_spec(2);
    spec.admission = WEFT_ADMISSION_COUNTER;
    spec.admission_count = 2;
    spec.admission_cells = 64;
    spec.eviction = WEFT_EVICTION_LRU;
    spec.rows_max = 1;
    const float values[4] = {1, 1, 1, 1};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    struct weft_shard_table_sums sums;
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_OK);
    weft_shard_table_sums(b->shard, &sums);
    assert_int_equal(sums.unadmitted, 2);
    assert_int_equal(sums.rows, 0);
    assert_int_equal(weft_shard_counters(b->shard)->elements_applied, 0);
    /* Both are admitted now, but a chunk cannot have two rows where there is one. */
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_FULL);
    spec.rows_max = 2;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_SPEC_MISMATCH);
    weft_shard_table_sums(b->shard, &sums);
    assert_int_equal(sums.rows, 1);
    assert_int_equal(sums.rows_made, 1);
    assert_int_equal(sums.bytes, 64 * 16 + 64 + 32); /* cells, index, one row of 24 + 8 */
    bench_free(b);
}

/* What a table asks for is refused when the server's limits cannot give it. */
static void limits_of_the_server(void **state)
{
    (void)state;
    struct bench *b = bench_new(22);
    struct weft_table_spec spec = asp_spec(2);
    spec.kind = WEFT_TABLE_DENSE;
    spec.length = 2 * 1000 + 1; /* rows_max is 1,000 */
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_BAD_SPEC);
    assert_null(weft_shard_table(b->shard, 0));
    spec.length = 2 * 1000;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(weft_table_rows(weft_shard_table(b->shard, 0)), 1000);
    spec = asp_spec(2);
    spec.table = 1;
    spec.bytes_max = 50;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_BAD_SPEC);
    bench_free(b);
}

static void dense_blocks(void **state)
{
    (void)state;
    struct bench *b = bench_new(23);
    struct weft_table_spec spec = asp_spec(2);
    spec.kind = WEFT_TABLE_DENSE;
    spec.length = 5;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    const float values[4] = {1, 2, 3, 4};
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_OK);
    weights_are(b, 1, -1, -2);
    weights_are(b, 2, -3, -4);
    struct request r = push_two(b, values);
    weft_ps_store_id(b->message + 56, WEFT_RPC_ID_WIDE, 0, 3); /* beyond the end */
    assert_int_equal(ask(b, r), WEFT_RPC_WRONG_SHARD);
    assert_int_equal(b->refused, 1);
    weights_are(b, 1, -1, -2);
    assert_int_equal(ask(b, pull_of(b, 3)), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 4)), WEFT_RPC_WRONG_SHARD);
    bench_free(b);
}

/* A gradient of clock 1 while another worker is in clock 4: t 4, delay 3, a = 4 / 7. */
static void a_late_gradient_counts_less(void **state)
{
    (void)state;
    struct bench *b = bench_new(24);
    struct weft_table_spec spec = asp_spec(1);
    spec.workers = 2;
    spec.optimizer = WEFT_OPTIMIZER_ADADELAY;
    spec.epsilon = 1e-30F;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 1, 5, -8)), WEFT_RPC_OK);
    assert_true(weight(b, 5) == 1); /* g / sqrt(g^2) */
    for (uint32_t clock = 1; clock <= 3; clock++) {
        assert_int_equal(clock_by(b, OTHER, 1, clock), 0);
    }
    assert_int_equal(ask(b, push_of(b, 1, 6, -8)), WEFT_RPC_OK);
    /* s = 16 a, step = 4 / sqrt(s / a). */
    assert_true(__builtin_fabsf(weight(b, 6) - 1) < 1e-6F);
    assert_int_equal(ask(b, push_of(b, 1, 5, -8)), WEFT_RPC_OK);
    /* s = 16 + 16 a; step = 4 / sqrt(s / a) = 4 / sqrt(44). */
    assert_true(__builtin_fabsf(weight(b, 5) - 1 - 0.60302269F) < 1e-6F);
    bench_free(b);
}

/* Elements that fit packets of 256 bytes, padding at the end of each row. */
static void rows_cut_short(void **state)
{
    (void)state;
    struct bench *b = bench_new(25);
    b->net->packet_bytes = 256;
    struct weft_table_spec spec = asp_spec(64);
    spec.block_floats = 40;
    spec.init_scale = 1;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_OK);
    float out[64], zeros[16] = {0};
    for (uint64_t id = 0; id < 2; id++) {
        (void)weft_table_read(weft_shard_table(b->shard, 0), id, out);
        const uint8_t *row = b->reply + 160 + id * 2 * 160; /* head: one element of 40 floats */
        assert_memory_equal(row, out, sizeof(out));
        assert_memory_equal(row + 256, zeros, sizeof(zeros));
    }
    bench_free(b);
}

static void strangers_get_no_memory(void **state)
{
    (void)state;
    struct bench *b = bench_new(7);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    static const uint64_t names[] = {0, 0x100000000, 0x200000002, 0x300000000};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        b->net->nodes[3].name = names[i];
        fake_connect(b->net, SHARD, 3);
        assert_int_equal(ask_from(b, 3, push_of(b, 1, 7, -1)), -1);
        assert_false(b->sent);
    }
    assert_int_equal(weft_shard_counters(b->shard)->peers_ignored, 4);
    assert_true(weight(b, 7) == 0);
    bench_free(b);
}

/* The same rank connects again while the old connection lives: the newer one counts. */
static void a_rank_is_replaced(void **state)
{
    (void)state;
    struct bench *b = bench_new(8);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    b->net->nodes[3].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    fake_connect(b->net, SHARD, 3);
    bench_run(b);
    assert_int_equal(weft_shard_counters(b->shard)->workers_replaced, 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), -1);
    assert_false(b->sent);
    uint32_t live = 0;
    for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
        const struct fake_expect *e = &b->net->nodes[SHARD].expects[i];
        assert_false(e->live && e->expect.peer == fake_peer(WORKER));
        live += e->live && e->expect.peer == fake_peer(3);
    }
    assert_int_equal(live, 2 + 2 + 1 + 1 + 1);
    bench_free(b);
}

/* A process that was replaced, because it hung for instance, does not take its rank back. */
static void who_was_replaced_stays_out(void **state)
{
    (void)state;
    struct bench *b = bench_new(8);
    weft_peer closed;
    bool for_good;
    fake_break(b->net, SHARD, OTHER);
    b->net->nodes[WORKER].incarnation = 100;
    b->net->nodes[OTHER].incarnation = 200;
    b->net->nodes[OTHER].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    while (weft_shard_take_replaced(b->shard, &closed, &for_good)) {
    }
    fake_connect(b->net, SHARD, OTHER);
    bench_run(b);
    assert_true(weft_shard_take_replaced(b->shard, &closed, &for_good) && for_good);
    assert_int_equal(closed, fake_peer(WORKER));
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    assert_true(weft_shard_take_replaced(b->shard, &closed, &for_good) && for_good);
    assert_int_equal(closed, fake_peer(WORKER));
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), -1);
    assert_int_equal(ask_from(b, OTHER, push_of(b, 1, 7, -1)), WEFT_RPC_OK);
    fake_break(b->net, SHARD, OTHER); /* the other one goes: what it pushed is forgotten all the same */
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    assert_int_equal(ask(b, push_of(b, 2, 7, -1)), -1);
    fake_connect(b->net, SHARD, OTHER);
    bench_run(b);
    assert_int_equal(ask_from(b, OTHER, push_of(b, 2, 7, -1)), WEFT_RPC_OK);
    bench_free(b);
}

static void limits_are_checked(void **state)
{
    (void)state;
    struct weft_shard_config good, bad;
    weft_shard_config_default(&good);
    struct fake_net *net = fake_net_new(1);
    good.clock_ns = fake_clock_ns;
    good.clock_arg = net;
    struct weft_shard *shard;
#define BAD(field, value)                                                                          \
    bad = good;                                                                                    \
    bad.field = value;                                                                             \
    assert_int_equal(weft_shard_new(&bad, fake_msgr(net, 0), &shard), WEFT_INVALID)
    BAD(shard, 1);
    BAD(workers_max, 0);
    BAD(workers_max, 65536);
    BAD(tables_max, 0);
    BAD(rows_max, 0);
    BAD(dim_max, 1025);
    BAD(push_slots, 0);
    BAD(pull_slots, 60);
    BAD(rows_per_rpc_max, 0);
    BAD(slab_bytes, 0);
    BAD(clock_ns, NULL);
#undef BAD
    assert_int_equal(weft_shard_expects_max(&good), 16 * (8 + 4 + 3));
    fake_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_by_hand),
        cmocka_unit_test(narrow_ids_by_hand),
        cmocka_unit_test(packed_ids_by_hand),
        cmocka_unit_test(hostile_packed_ids),
        cmocka_unit_test(packed_ids_are_of_whole_rows),
        cmocka_unit_test(bf16_by_hand),
        cmocka_unit_test(int8_by_hand),
        cmocka_unit_test(int8_policies),
        cmocka_unit_test(bf16_rows_have_a_limit),
        cmocka_unit_test(what_a_shard_can),
        cmocka_unit_test(hostile_pushes),
        cmocka_unit_test(one_worker_does_not_move_time),
        cmocka_unit_test(clocks_go_by_one),
        cmocka_unit_test(pulls_by_hand),
        cmocka_unit_test(rows_larger_than_a_packet),
        cmocka_unit_test(pull_waits_for_its_push),
        cmocka_unit_test(bad_tables),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(tables_say_what_they_count),
        cmocka_unit_test(limits_of_the_server),
        cmocka_unit_test(dense_blocks),
        cmocka_unit_test(a_late_gradient_counts_less),
        cmocka_unit_test(rows_cut_short),
        cmocka_unit_test(strangers_get_no_memory),
        cmocka_unit_test(a_rank_is_replaced),
        cmocka_unit_test(who_was_replaced_stays_out),
        cmocka_unit_test(limits_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
