/* Heads of src/rpc, and the messages of a small job as a client and its shards hand them over. */
#include "golden.h"

#include "base/cursor.h"
#include "ps/snapshot.h"
#include "ps_cluster.h"
#include "sim/saved.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>

enum { SHARDS = 2, NAMES_MAX = 64, NAME_BYTES = 96, MESSAGE_BYTES = 4096 };

/* ---- heads ----------------------------------------------------------------------------------- */

static void tag_add(struct golden *g, uint8_t op)
{
    const struct weft_rpc_tag tag = {.op = op,
                                     .table = 0xabcd,
                                     .number = 0x12345678,
                                     .low = op == WEFT_RPC_PUSH ? 0xef : 0};
    uint8_t bytes[8];
    weft_put_u64(bytes, weft_rpc_tag_pack(tag));
    golden_item(g, bytes, sizeof(bytes), "tag, op %u", op);
}

static void heads(struct golden *g)
{
    const struct weft_rpc_request request = {.rpc_id = 0x01020304,
                                             .worker = 7,
                                             .t0_ns = 0x1112131415161718,
                                             .rows_critical = 0x21,
                                             .after_seq = 0x31323334,
                                             .need_clock = 0x41424344,
                                             .reply_bound_ppm = 250000,
                                             .rows = 0x5152,
                                             .flags = WEFT_RPC_FLAGS_ALL};
    const struct weft_rpc_reply reply = {.rpc_id = 0xa1a2a3a4,
                                         .status = WEFT_RPC_CUT_LATE,
                                         .t0_ns = 0x1112131415161718,
                                         .clock = 0x61626364,
                                         .rows = 0x5152,
                                         .ps_proc_ns = 0x7172737475767778,
                                         .ps_overlap_ns = 0x8182838485868788,
                                         .ps_wait_ns = 0x9192939495969798,
                                         .ps_queue_ns = 0xa1a2a3a4a5a6a7a8};
    const struct weft_rpc_pushes pushes = {.newest = 0x0102030405060708,
                                           .closed = {0x1112131415161718, 0x2122232425262728},
                                           .begun = {0x3132333435363738, 0x4142434445464748}};
    uint8_t bytes[WEFT_RPC_REPLY_BYTES];
    weft_rpc_request_pack(&request, bytes);
    golden_item(g, bytes, WEFT_RPC_REQUEST_BYTES, "request");
    weft_rpc_reply_pack(&reply, bytes);
    golden_item(g, bytes, WEFT_RPC_REPLY_BYTES, "reply");
    weft_rpc_pushes_pack(&pushes, bytes);
    golden_item(g, bytes, WEFT_RPC_PUSHES_BYTES, "pushes");
    weft_rpc_durable_upto_pack(0x0102030405060708, bytes);
    golden_item(g, bytes, WEFT_RPC_DURABLE_UPTO_BYTES, "safe");
    for (uint8_t op = WEFT_RPC_PUSH; op <= WEFT_RPC_DURABLE_UPTO; op++) {
        tag_add(g, op);
        tag_add(g, op | WEFT_RPC_REPLY_FLAG);
    }
}

static void specs(struct golden *g)
{
    const struct weft_table_spec sparse = {.dim = 300,
                                           .optimizer = WEFT_OPTIMIZER_ADAM,
                                           .mode = WEFT_TABLE_SSP,
                                           .workers = 0x0102,
                                           .staleness = 3,
                                           .learning_rate = 0.5F,
                                           .epsilon = 0.25F,
                                           .beta1 = 0.875F,
                                           .beta2 = 0.9375F,
                                           .init_scale = 0.125F,
                                           .init_skip = 2,
                                           .init_seed = 0x1112131415161718,
                                           .admission = WEFT_ADMISSION_COUNTER,
                                           .eviction = WEFT_EVICTION_TTL,
                                           .not_finite = WEFT_NOT_FINITE_CLIP,
                                           .clip = 2,
                                           .admission_count = 5,
                                           .admission_cells = 128,
                                           .ttl = 6,
                                           .rows_max = 0x2122,
                                           .bytes_max = 0x313233343536,
                                           .block_floats = 64,
                                           .average = WEFT_AVERAGE_CONTRIBUTORS};
    const struct weft_table_spec dense = {.dim = 8,
                                          .optimizer = WEFT_OPTIMIZER_FTRL,
                                          .mode = WEFT_TABLE_BSP,
                                          .workers = 4,
                                          .learning_rate = 0.5F,
                                          .epsilon = 1,
                                          .accumulator = 0.25F,
                                          .l1 = 0.125F,
                                          .l2 = 0.0625F,
                                          .kind = WEFT_TABLE_DENSE,
                                          .length = 0x010203,
                                          .average = WEFT_AVERAGE_WORKERS};
    uint8_t bytes[WEFT_RPC_SPEC_BYTES];
    weft_table_spec_pack(&sparse, bytes);
    golden_item(g, bytes, sizeof(bytes), "specification, sparse");
    weft_table_spec_pack(&dense, bytes);
    golden_item(g, bytes, sizeof(bytes), "specification, dense");
}

/* Their numeric values are sent in messages. */
static void statuses(struct golden *g)
{
    char names[2048] = "";
    for (uint16_t s = 0; s < WEFT_RPC_STATUS_COUNT; s++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%u %s\n", s, weft_rpc_status_name(s));
    }
    golden_item(g, names, strlen(names), "statuses");
}

/* ---- messages -------------------------------------------------------------------------------- */

struct job {
    struct cluster c;
    struct golden *g;
    uint64_t seq; /* number of the last examined message */
    bool packs;   /* record only messages with packed ids */
    bool lists;   /* or only messages of lists */
    bool gives;   /* of those only LIST and the preceding message */
    char names[NAMES_MAX][NAME_BYTES];
    uint32_t name_count;
};

/* Zero the times in heads: they depend on how often the clock was read, not on the format. */
static void times_clear(uint8_t *head, uint8_t op)
{
    if (op == (WEFT_RPC_DURABLE_UPTO | WEFT_RPC_REPLY_FLAG)) {
        return;
    }
    memset(head + 8, 0, 8);
    if (op & WEFT_RPC_REPLY_FLAG) {
        memset(head + 24, 0, WEFT_RPC_REPLY_BYTES - 24);
    }
}

static bool is_new(struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->name_count; i++) {
        if (strcmp(job->names[i], name) == 0) {
            return false;
        }
    }
    WEFT_ASSERT(job->name_count < NAMES_MAX);
    (void)snprintf(job->names[job->name_count++], NAME_BYTES, "%s", name);
    return true;
}

/* Record the first message of each op, table, and flags or status. */
static void message_add(struct job *job, const struct fake_message *m)
{
    uint8_t bytes[8 + MESSAGE_BYTES];
    char name[NAME_BYTES];
    size_t count = (size_t)m->send.total * m->send.elem_bytes;
    uint8_t op = (uint8_t)(m->send.tag >> 56);
    bool is_reply = (op & WEFT_RPC_REPLY_FLAG) != 0;
    assert_true(count <= MESSAGE_BYTES);
    weft_put_u64(bytes, m->send.tag);
    memcpy(bytes + 8, m->send.base, count);
    uint8_t *head = bytes + 8;
    uint32_t what = count < WEFT_RPC_REQUEST_BYTES ? 0
                    : is_reply                     ? (uint32_t)head[4] << 8 | head[5]
                                                   : weft_get_u32(head + 36);
    bool names = op == WEFT_RPC_PUSH && m->send.elem_bytes == WEFT_RPC_ID_PACKED && count >= 52 &&
                 head[46] == 0xff && head[47] == 0xff;
    (void)snprintf(name, sizeof(name), "%s%s %u, table %u, %s %u, elements of %u bytes",
                   names        ? "naming a list, "
                   : job->lists ? "with lists, "
                   : job->packs ? "with packed ids, "
                                : "",
                   is_reply ? "reply" : "request", op & 127, (unsigned)(m->send.tag >> 40 & 0xffff),
                   is_reply ? "status" : "flags", what, m->send.elem_bytes);
    bool tells = m->send.elem_bytes == WEFT_RPC_ID_PACKED || (op & 127) == WEFT_RPC_TABLE;
    tells |= job->lists && is_reply;
    tells = job->gives ? (op & 127) == WEFT_RPC_LIST || (is_reply && what == WEFT_RPC_UNKNOWN_LIST)
                       : tells;
    if (is_new(job, name) && (tells || !job->packs)) {
        times_clear(head, op);
        golden_item(job->g, bytes, 8 + count, "%s", name);
    }
}

static void look(struct job *job)
{
    for (; job->seq < job->c.net->seq; job->seq++) {
        const struct fake_message *m = fake_find(job->c.net, job->seq + 1);
        assert_non_null(m); /* a message exists for at least two steps */
        message_add(job, m);
    }
}

static void run(struct job *job)
{
    do {
        look(job);
    } while (cluster_step(&job->c));
    look(job);
}

static void done(struct job *job, weft_ps_op op, uint16_t rpc_status)
{
    struct weft_ps_result result;
    run(job);
    assert_true(weft_ps_op_done(job->c.client[0], op, &result));
    assert_int_equal(result.rpc_status, rpc_status);
    weft_ps_op_release(job->c.client[0], op);
}

static void open_tables(struct job *job)
{
    weft_ps_op op;
    struct weft_table_spec spec = {.dim = 3,
                                   .mode = WEFT_TABLE_SSP,
                                   .workers = 1,
                                   .staleness = 1,
                                   .optimizer = WEFT_OPTIMIZER_ADAGRAD,
                                   .accumulator = 1,
                                   .learning_rate = 1};
    assert_int_equal(weft_ps_table_open(job->c.client[0], &spec, job->c.net->now_ns, &op), WEFT_OK);
    done(job, op, WEFT_RPC_OK);
    spec = (struct weft_table_spec){.table = 1,
                                    .dim = 4,
                                    .workers = 1,
                                    .learning_rate = 1,
                                    .kind = WEFT_TABLE_DENSE,
                                    .length = 30};
    assert_int_equal(weft_ps_table_open(job->c.client[0], &spec, job->c.net->now_ns, &op), WEFT_OK);
    done(job, op, WEFT_RPC_OK);
}

/* Ids that fit 32 bits, and ids that do not. */
static void push_and_pull(struct job *job, uint16_t table, bool wide)
{
    enum { IDS = 6 };
    uint64_t ids[IDS];
    float rows[IDS * 4];
    weft_ps_op op;
    for (uint32_t i = 0; i < IDS; i++) {
        ids[i] = i + (wide ? UINT64_C(0x0102030405060708) : 0);
    }
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        rows[i] = (float)i / 4;
    }
    assert_int_equal(
        weft_ps_push(job->c.client[0], table, ids, rows, IDS, 100000, job->c.net->now_ns, &op),
        WEFT_OK);
    done(job, op, WEFT_RPC_OK);
    assert_int_equal(
        weft_ps_pull(job->c.client[0], table, ids, rows, IDS, 100000, job->c.net->now_ns, &op),
        WEFT_OK);
    done(job, op, WEFT_RPC_OK);
}

/* The connection to shard 0 breaks: TABLE has RESUME. */
static void resume(struct job *job)
{
    struct cluster *c = &job->c;
    fake_break(c->net, SHARDS, 0);
    cluster_poll(c);
    assert_int_equal(weft_ps_client_reconnect(c->client[0], 0, fake_peer(0), c->net->now_ns),
                     WEFT_OK);
    fake_connect(c->net, SHARDS, 0);
    cluster_poll(c);
    run(job);
}

/* A checkpoint requested by the worker: CUT, and DURABLE_UPTO once it is valid. */
static void checkpoint(struct job *job)
{
    struct weft_saved saved[SHARDS];
    weft_ps_op op;
    assert_int_equal(weft_ps_client_checkpoint(job->c.client[0], job->c.net->now_ns, &op), WEFT_OK);
    run(job);
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_shard *shard = job->c.shard[s];
        weft_saved_init(&saved[s], 2, 1);
        weft_saved_begin(&saved[s], shard);
        while (!weft_saved_poll(&saved[s], shard)) {
            assert_true(cluster_step(&job->c));
            look(job);
        }
        weft_shard_durable(shard);
    }
    cluster_poll(&job->c);
    done(job, op, WEFT_RPC_OK);
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_saved_fini(&saved[s]);
    }
}

void golden_messages(void **state)
{
    (void)state;
    struct golden *g = golden_begin("messages");
    struct job *job = calloc(1, sizeof(*job));
    struct cluster_config config = cluster_config(SHARDS, 1);
    WEFT_ASSERT(job != NULL);
    config.incarnation = 1000;
    config.shard.checkpoints = true;
    config.shard.chunks_max = 64;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    config.client.replay_bytes = 1 << 20;
    config.client.replay_messages_max = 100;
    config.client.can = 0;
    job->g = g;
    cluster_start(&job->c, &config, 1, 1);
    open_tables(job);
    push_and_pull(job, 0, false);
    push_and_pull(job, 0, true);
    push_and_pull(job, 1, false);
    assert_int_equal(weft_ps_clock(job->c.client[0], 0, job->c.net->now_ns), WEFT_OK);
    assert_int_equal(weft_ps_clock(job->c.client[0], 1, job->c.net->now_ns), WEFT_OK);
    run(job);
    resume(job);
    checkpoint(job);
    cluster_stop(&job->c);
    memset(job, 0, sizeof(*job));
    job->g = g;
    job->packs = true;
    config.client.can = WEFT_RPC_CAN_PACK;
    cluster_start(&job->c, &config, 1, 1);
    open_tables(job);
    push_and_pull(job, 0, false);
    push_and_pull(job, 0, true);
    cluster_stop(&job->c);
    memset(job, 0, sizeof(*job));
    job->g = g;
    job->packs = job->lists = true;
    config.client.can = WEFT_RPC_CAN_ALL;
    cluster_start(&job->c, &config, 1, 1);
    open_tables(job);
    push_and_pull(job, 0, false);
    push_and_pull(job, 0, false); /* the push names the list of the pull before */
    cluster_stop(&job->c);
    config.shard.list_ids = 4; /* room for one shard's part of the six ids */
    memset(job, 0, sizeof(*job));
    job->g = g;
    job->packs = job->lists = job->gives = true;
    cluster_start(&job->c, &config, 1, 1);
    open_tables(job);
    push_and_pull(job, 0, true);
    push_and_pull(job, 0, false);
    push_and_pull(job, 0, true); /* its list was evicted */
    cluster_stop(&job->c);
    free(job);
    golden_end(g);
}

void golden_rpc(void **state)
{
    (void)state;
    struct golden *g = golden_begin("rpc");
    heads(g);
    specs(g);
    statuses(g);
    golden_end(g);
}
