/* One shard on the fake transport, and messages as a worker encodes them: for tests that act as the
 * workers. */
#ifndef WEFT_TESTS_SHARD_RIG_H
#define WEFT_TESTS_SHARD_RIG_H

#include "fake_msgr.h"
#include "ps/layout.h"
#include "ps/shard.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Layout of a push: elements of the head, bytes of an element (an id and a float), 32 elements per
 * chunk. */
enum { RIG_HEAD_ELEMS = 4, RIG_ELEM_BYTES = 12, RIG_CHUNK_ELEMS = 32 };

/* Configuration: two workers, one table of up to 1,000 rows, checkpoints. */
static inline struct weft_shard_config shard_rig_config(struct fake_net *net)
{
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.workers_max = 2;
    config.tables_max = 1;
    config.rows_max = 1000;
    config.checkpoints = true;
    config.chunks_max = 64;
    config.clock_ns = fake_clock_ns;
    config.clock_arg = net;
    return config;
}

static inline struct weft_shard *shard_rig_new(struct fake_net *net, uint32_t node,
                                               const struct weft_shard_config *config)
{
    struct weft_shard *shard;
    assert_int_equal(weft_shard_new(config, fake_msgr(net, node), &shard), WEFT_OK);
    return shard;
}

static inline void shard_rig_end(struct weft_shard *shard)
{
    void *slab;
    while ((slab = weft_shard_take_slab(shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(shard);
}

static inline void shard_rig_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        assert_int_equal(weft_shard_add_slab(shard, table, malloc(bytes), bytes), WEFT_OK);
    }
}

/* Process the shard's events, make progress, and supply the memory that it requests. */
static inline void shard_rig_progress(struct weft_shard *shard, struct fake_net *net, uint32_t node)
{
    struct weft_msg_event event;
    while (fake_poll(&net->nodes[node], &event)) {
        weft_shard_event(shard, &event, net->now_ns);
    }
    weft_shard_progress(shard, net->now_ns);
    shard_rig_slabs(shard);
}

/* Write the rows of a push to message (HEAD_ELEMS + rows elements): the same gradient for each of
 * ids 1 .. rows. */
static inline void shard_rig_push(uint8_t *message, uint32_t rows, float gradient)
{
    const uint32_t total = RIG_HEAD_ELEMS + rows;
    for (uint32_t first = 0, k = 0; first < total; first += RIG_CHUNK_ELEMS, k++) {
        uint32_t left = total - first, elems = left < RIG_CHUNK_ELEMS ? left : RIG_CHUNK_ELEMS;
        struct weft_ps_chunk_rows at = weft_ps_chunk_rows(
            RIG_ELEM_BYTES, WEFT_RPC_ID_WIDE, RIG_CHUNK_ELEMS, RIG_HEAD_ELEMS, k, elems);
        uint8_t *chunk = message + first * RIG_ELEM_BYTES;
        for (uint32_t i = 0; i < at.count; i++) {
            weft_ps_store_id(chunk + at.ids_offset, WEFT_RPC_ID_WIDE, i, at.first + i + 1);
            memcpy(chunk + at.blocks_offset + i * sizeof(gradient), &gradient, sizeof(gradient));
        }
    }
}

/* A request to a shard, which begins with its head, and the memory of the reply. */
struct shard_rig_request {
    struct weft_rpc_tag tag;
    uint32_t rpc_id;
    const void *base;
    uint32_t total; /* elements */
    uint16_t elem_bytes;
    void *reply;
    size_t reply_bytes;
};

/* Expect the reply, and send the request. */
static inline weft_expect_id shard_rig_send(struct fake_net *net, uint32_t from, uint32_t shard,
                                            const struct shard_rig_request *r)
{
    const struct weft_msgr msgr = fake_msgr(net, from);
    const uint8_t op = r->tag.op == WEFT_RPC_UPDATE ? WEFT_RPC_PUSH : r->tag.op;
    const struct weft_msg_expect expect = {
        .peer = fake_peer(shard),
        .memory = r->reply,
        .memory_bytes = r->reply_bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .tag_mask = UINT64_MAX,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = (uint8_t)(op | WEFT_RPC_REPLY_FLAG),
                                                       .table = r->tag.table,
                                                       .number = r->rpc_id})};
    const struct weft_msg_send send = {.peer = fake_peer(shard),
                                       .base = r->base,
                                       .total = r->total,
                                       .elem_bytes = r->elem_bytes,
                                       .critical = 1,
                                       .deadline_ns = WEFT_NEVER,
                                       .tag = weft_rpc_tag_pack(r->tag)};
    weft_expect_id id = 0;
    uint64_t seq;
    assert_int_equal(msgr.ops->expect(msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(msgr.ops->send(msgr.self, &send, 0, &seq), WEFT_OK);
    return id;
}

/* Send PUSH or UPDATE of the rows 1 .. rows, all with this gradient, at `message`
 * (RIG_HEAD_ELEMS + rows elements). The number of the push is in the head. */
static inline void shard_rig_send_push(struct fake_net *net, uint32_t from, uint32_t shard,
                                       struct shard_rig_request r, struct weft_rpc_request head,
                                       uint8_t *message, uint32_t rows, float gradient)
{
    shard_rig_push(message, rows, gradient);
    head.rpc_id = r.rpc_id;
    head.rows = rows;
    weft_rpc_request_pack(&head, message);
    r.tag.low = (uint8_t)head.after_seq;
    r.base = message;
    r.total = RIG_HEAD_ELEMS + rows;
    r.elem_bytes = RIG_ELEM_BYTES;
    (void)shard_rig_send(net, from, shard, &r);
}

/* How many of the rows 1 .. rows of table 0, with dim 1, have this weight. */
static inline uint32_t shard_rig_rows_with(const struct weft_shard *shard, uint32_t rows,
                                           float value)
{
    uint32_t count = 0;
    for (uint64_t id = 1; id <= rows; id++) {
        float weight = 0;
        (void)weft_table_read(weft_shard_table(shard, 0), id, &weight);
        count += weight == value;
    }
    return count;
}

#endif
