/* One shard on the fake transport, and a worker whose requests the test encodes. */
#ifndef WEFT_TESTS_SHARD_BENCH_H
#define WEFT_TESTS_SHARD_BENCH_H

#include "shard_rig.h"

enum { SHARD = 0, WORKER = 1, OTHER = 2, BYTES_MAX = 65536 };

enum { TABLE_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES };

static uint32_t hot_rows; /* > 0: an aggregator may connect; size of hot sets */

struct bench {
    struct fake_net *net;
    struct weft_shard *shard;
    struct weft_msgr worker;
    uint32_t rpc_id;
    uint8_t message[BYTES_MAX];
    uint8_t reply[BYTES_MAX];
    struct weft_rpc_reply head;
    bool replied;
    uint32_t refused; /* refused chunks of the last message */
    bool sent;
};

static inline struct bench *bench_new(uint64_t seed)
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
    if (hot_rows > 0) {
        config.chunks_max = 64;
        config.aggregators_max = 1;
        config.hot_rows = hot_rows;
    }
    config.clock_ns = fake_clock_ns;
    config.clock_arg = b->net;
    b->shard = shard_rig_new(b->net, SHARD, &config);
    b->worker = fake_msgr(b->net, WORKER);
    b->net->nodes[WORKER].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    b->net->nodes[OTHER].name = weft_rpc_name(WEFT_ROLE_WORKER, 1);
    fake_connect(b->net, SHARD, WORKER);
    fake_connect(b->net, SHARD, OTHER);
    return b;
}

static inline void bench_free(struct bench *b)
{
    shard_rig_end(b->shard);
    fake_net_free(b->net);
    free(b);
}

static inline void bench_run(struct bench *b)
{
    struct weft_msg_event event;
    do {
        shard_rig_progress(b->shard, b->net, SHARD);
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

/* Send b->message, beginning with this head (no head if its rpc_id is 0). Returns the status of the
 * reply, -1 if none arrived. */
static inline int ask_from(struct bench *b, uint32_t node, struct request r)
{
    uint32_t id = r.head.rpc_id;
    if (id != 0) {
        weft_rpc_request_pack(&r.head, b->message);
    }
    const struct shard_rig_request request = {.tag = {r.op, r.table, r.clock, 0},
                                              .rpc_id = id,
                                              .base = b->message,
                                              .total = r.total,
                                              .elem_bytes = r.elem_bytes,
                                              .reply = b->reply,
                                              .reply_bytes = sizeof(b->reply)};
    b->replied = b->sent = false;
    b->refused = 0;
    const weft_expect_id expected = shard_rig_send(b->net, node, SHARD, &request);
    bench_run(b);
    if (!b->replied) {
        const struct weft_msgr msgr = fake_msgr(b->net, node);
        (void)!msgr.ops->cancel(msgr.self, expected);
        return -1;
    }
    assert_int_equal(b->head.rpc_id, id);
    assert_int_equal(b->head.t0_ns, r.head.t0_ns);
    return b->head.status;
}

static inline int ask(struct bench *b, struct request r)
{
    return ask_from(b, WORKER, r);
}

static inline struct weft_rpc_request head_of(struct bench *b, uint32_t rows)
{
    return (struct weft_rpc_request){.rpc_id = ++b->rpc_id, .t0_ns = 99, .rows = rows};
}

static inline int declare_spec(struct bench *b, const struct weft_table_spec *spec)
{
    weft_table_spec_pack(spec, b->message + 40);
    struct request r = {WEFT_RPC_TABLE, spec->table, 0, 1, TABLE_BYTES, head_of(b, 0)};
    return ask(b, r);
}

static inline void declare(struct bench *b, uint16_t table, uint32_t dim, uint8_t mode,
                           uint16_t workers)
{
    struct weft_table_spec spec = {
        .table = table, .dim = dim, .mode = mode, .workers = workers, .learning_rate = 1};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
}

/* One id, dim 1: head of 4 elements, id, gradient. */
static inline struct request push_of(struct bench *b, uint32_t clock, uint64_t id, float gradient)
{
    memset(b->message, 0, 64);
    weft_ps_store_id(b->message + 48, WEFT_RPC_ID_WIDE, 0, id);
    memcpy(b->message + 56, &gradient, 4);
    return (struct request){WEFT_RPC_PUSH, 0, clock, 12, 5, head_of(b, 1)};
}

static inline float weight(struct bench *b, uint64_t id)
{
    float value = 0;
    const struct weft_table *table = weft_shard_table(b->shard, 0);
    return table == NULL ? 0 : (weft_table_read(table, id, &value), value);
}

static inline struct weft_table_spec asp_spec(uint32_t dim)
{
    return (struct weft_table_spec){
        .dim = dim, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
}

#endif
