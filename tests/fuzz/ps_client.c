/* A worker's client whose two servers and aggregators reply anything: the right reply, one with
 * changed fields, rows of another grid, an incomplete one, none, or messages that nobody requested;
 * and whose connections end at any time. The transport is that of the unit tests. Whatever the
 * others send, the client writes only into its own memory, and every operation ends when they are
 * gone.
 *
 * Input: two bytes of options, and records of 8 bytes {op, a, b, c, d u16, e u16}. */
#include "ps/client.h"
#include "ps/hot_rows.h"

#include "../unit/fake_msgr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CLIENT = 0, /* nodes */
    SERVERS = 1,
    SHARDS = 2,
    AGGREGATORS = SERVERS + SHARDS,
    NODES = AGGREGATORS + SHARDS,
    OPS = 4,
    ROWS_MAX = 24,
    DIM_MAX = 300,
    RECORDS_MAX = 64,
    RECORD_BYTES = 8,
    REQUESTS = 64,
    REPLY_BYTES_MAX = 1 << 16,
};

enum {
    WITH_RECONNECT = 1,
    WITH_AGGREGATORS = 2,
    WITH_HOT = 4,
    WITH_REPLAY = 8,
    WITH_PARK = 16,
    WITH_BSP = 32,
    WITH_MEMORY = 64, /* last values and error feedback */
};

enum op {
    OP_PUSH,
    OP_PULL,
    OP_CLOCK,
    OP_DELIVER,
    OP_REPLY,
    OP_REPLY_ALL,
    OP_UNASKED,
    OP_BREAK,
    OP_CONNECT,
    OP_TIME,
    OP_END,
    OP_COUNT
};

/* A request that a server or an aggregator has received. */
struct request {
    uint32_t node;
    struct weft_rpc_tag tag;
    struct weft_rpc_request head;
};

struct operation {
    bool used;
    weft_ps_op op;
    float rows[ROWS_MAX * DIM_MAX];
    uint64_t ids[ROWS_MAX];
};

struct job {
    struct fake_net *net;
    struct weft_ps_client *client;
    struct weft_table_spec spec;
    uint8_t options;
    struct request requests[REQUESTS]; /* oldest first */
    uint32_t request_count;
    struct request partly[FAKE_MESSAGES]; /* by sequence number modulo FAKE_MESSAGES */
    struct operation ops[OPS];
    void *memory[2];
};

static uint16_t u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

/* ---- the other processes --------------------------------------------------------------------- */

static void post(struct job *job, uint32_t node)
{
    const struct weft_msg_expect all = {.peer = WEFT_PEER_ANY,
                                        .sink = WEFT_SINK_EVENT,
                                        .memory_bytes = UINT64_MAX,
                                        .count = UINT32_MAX,
                                        .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    WEFT_ASSERT(fake_expect(&job->net->nodes[node], &all, &id) == WEFT_OK);
}

static void take_event(struct job *job, uint32_t node, const struct weft_msg_event *event)
{
    struct request *partly = &job->partly[event->seq % FAKE_MESSAGES];
    if (event->type == WEFT_EVENT_OPEN) {
        *partly = (struct request){.node = node};
        (void)weft_rpc_tag_unpack(event->tag, &partly->tag);
    } else if (event->type == WEFT_EVENT_CHUNK && event->chunk == 0) {
        (void)weft_rpc_request_unpack(event->data, (size_t)event->elems * event->elem_bytes,
                                      &partly->head);
    } else if (event->type == WEFT_EVENT_RECEIVED && !event->sender_gone &&
               partly->tag.op != WEFT_RPC_CLOCK && job->request_count < REQUESTS) {
        job->requests[job->request_count++] = *partly;
    } else if (event->type == WEFT_EVENT_SENT) {
        free((void *)(uintptr_t)event->user);
    }
}

static void poll_all(struct job *job)
{
    struct weft_msg_event event;
    for (uint32_t node = 0; node < NODES; node++) {
        while (fake_poll(&job->net->nodes[node], &event)) {
            if (node == CLIENT) {
                weft_ps_client_event(job->client, &event, job->net->now_ns);
            } else {
                take_event(job, node, &event);
            }
        }
    }
    weft_peer close;
    while (weft_ps_client_take_via_close(job->client, &close)) {
        fake_break(job->net, CLIENT, close - fake_peer(0));
    }
    weft_ps_client_progress(job->client, job->net->now_ns);
    for (uint32_t i = 0; i < OPS; i++) {
        if (job->ops[i].used && weft_ps_op_done(job->client, job->ops[i].op, NULL)) {
            weft_ps_op_release(job->client, job->ops[i].op);
            job->ops[i].used = false;
        }
    }
}

static void deliver(struct job *job, uint32_t steps)
{
    poll_all(job);
    for (uint32_t i = 0; i < steps && fake_step(job->net); i++) {
        poll_all(job);
    }
}

/* Send a message to the client. Owns: takes bytes. */
static void send_to_client(struct job *job, uint32_t node, uint64_t tag, uint8_t *bytes,
                           uint32_t total, uint16_t elem_bytes, bool is_short)
{
    const struct weft_msg_send send = {
        .peer = fake_peer(CLIENT),
        .base = bytes,
        .total = total,
        .elem_bytes = elem_bytes,
        .critical = is_short ? 0 : 1,
        .bound_ppm = is_short ? 900000 : 0,
        .tag = tag,
        .deadline_ns = is_short ? job->net->now_ns + 20000 : WEFT_NEVER,
        .user = (uint64_t)(uintptr_t)bytes,
    };
    uint64_t seq;
    if (fake_send(&job->net->nodes[node], &send, job->net->now_ns, &seq) != WEFT_OK) {
        free(bytes);
    }
}

/* Bytes of the reply after its head; *elem_bytes_p: of its elements. */
static uint32_t rows_of(const struct job *job, const struct request *request, uint8_t *bytes,
                        uint16_t *elem_bytes_p)
{
    const struct weft_rpc_request *head = &request->head;
    *elem_bytes_p = WEFT_RPC_REPLY_BYTES;
    if (request->tag.op == WEFT_RPC_TABLE && (head->flags & WEFT_RPC_RESUME) != 0) {
        const struct weft_rpc_pushes none = {.newest = 0};
        *elem_bytes_p = 1;
        weft_rpc_pushes_pack(&none, bytes);
        return WEFT_RPC_PUSHES_BYTES;
    }
    if (request->tag.op != WEFT_RPC_PULL) {
        return 0;
    }
    if ((head->flags & WEFT_RPC_HOT) != 0) {
        const uint64_t ids[] = {0, 1, 2, 7, UINT64_MAX};
        *elem_bytes_p = 1;
        return (uint32_t)weft_hot_reply_pack(head->need_clock + 1, 1, ids, WEFT_ARRAY_COUNT(ids),
                                             bytes);
    }
    if (head->rows > 0) {
        *elem_bytes_p = weft_table_pull_elem_bytes(&job->spec);
    }
    return head->rows <= ROWS_MAX ? head->rows * weft_table_blocks(&job->spec) * *elem_bytes_p : 0;
}

/* Reply to a request; `at` NULL: as a correct process does. */
static void reply(struct job *job, uint32_t index, const uint8_t *at)
{
    const struct request request = job->requests[index];
    const bool is_hot = request.tag.op == WEFT_RPC_PULL && (request.head.flags & WEFT_RPC_HOT) != 0;
    uint8_t *bytes = calloc(1, REPLY_BYTES_MAX + REPLY_BYTES_MAX);
    WEFT_ASSERT(bytes != NULL);
    memmove(&job->requests[index], &job->requests[index + 1],
            (job->request_count - index - 1) * sizeof(request));
    job->request_count--;
    uint16_t elem_bytes;
    uint8_t body[REPLY_BYTES_MAX] = {0};
    uint32_t body_bytes = rows_of(job, &request, body, &elem_bytes);
    struct weft_rpc_reply head = {
        .rpc_id = request.head.rpc_id,
        .can = request.tag.op == WEFT_RPC_TABLE ? request.head.need_clock & WEFT_RPC_CAN_ALL : 0,
        .t0_ns = request.head.t0_ns,
        .rows = is_hot ? 5 : request.tag.op == WEFT_RPC_PULL ? request.head.rows : 0};
    uint64_t tag = weft_rpc_tag_pack(
        (struct weft_rpc_tag){.op = request.tag.op | WEFT_RPC_REPLY_FLAG,
                              .table = request.tag.table,
                              .number = request.head.rpc_id});
    if (at != NULL) {
        head.status = at[2] % (WEFT_RPC_STATUS_COUNT + 1);
        head.clock = at[4] % 8;
        head.rows += at[3] & 1 ? at[5] : 0;
        head.rpc_id += at[3] & 2 ? 1 : 0;
        head.can ^= at[3] & 4 ? at[6] & WEFT_RPC_CAN_ALL : 0;
        const uint64_t other = at[6] * (uint64_t)elem_bytes;
        body_bytes = at[3] & 8 ? (uint32_t)weft_min_u64(other, REPLY_BYTES_MAX) : body_bytes;
        elem_bytes = at[3] & 16 ? at[7] + 1 : elem_bytes;
        elem_bytes = head.status != WEFT_RPC_OK && (at[3] & 32) == 0 ? WEFT_RPC_REPLY_BYTES
                                                                    : elem_bytes;
        body_bytes = head.status != WEFT_RPC_OK && (at[3] & 32) == 0 ? 0 : body_bytes;
        body[at[5] % 64] ^= at[3] & 64 ? at[6] : 0;
    }
    const uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes);
    if (head.rpc_id != 0) {
        weft_rpc_reply_pack(&head, bytes);
    }
    memcpy(bytes + (size_t)head_elems * elem_bytes, body, body_bytes);
    send_to_client(job, request.node, tag, bytes, head_elems + body_bytes / elem_bytes, elem_bytes,
                   at != NULL && (at[3] & 128) != 0);
}

static void unasked(struct job *job, const uint8_t *at)
{
    const uint32_t node = SERVERS + at[1] % (NODES - SERVERS);
    uint8_t *bytes = calloc(1, REPLY_BYTES_MAX);
    WEFT_ASSERT(bytes != NULL);
    memset(bytes, at[6], 64);
    bytes[3] = at[7];
    const uint64_t tag = weft_rpc_tag_pack((struct weft_rpc_tag){
        .op = at[2] % 16 | WEFT_RPC_REPLY_FLAG, .table = at[3] & 1, .number = at[7]});
    send_to_client(job, node, tag, bytes, 1 + at[4], 1 + at[5] % 64, (at[3] & 2) != 0);
}

/* ---- the worker ------------------------------------------------------------------------------ */

static void begin(struct job *job, const uint8_t *at, bool is_push)
{
    struct operation *own = NULL;
    for (uint32_t i = 0; i < OPS && own == NULL; i++) {
        own = job->ops[i].used ? NULL : &job->ops[i];
    }
    if (own == NULL) {
        return;
    }
    const uint32_t n = at[1] % (ROWS_MAX + 1);
    for (uint32_t i = 0; i < n; i++) {
        own->ids[i] = at[3] & 1 ? i * (at[2] + 1U) : weft_mix64(at[2] + i);
    }
    for (uint32_t i = 0; i < n * job->spec.dim; i++) {
        own->rows[i] = (float)at[4];
    }
    const struct weft_ps_list list = {
        .n = n, .ids = own->ids, .values = own->rows, .out = own->rows};
    const struct weft_ps_how how = {
        .bound_ppm = at[3] & 2 ? 500000 : 0,
        .fill = at[3] >> 2 & 1,
        .deadline_ns = at[3] & 8 ? job->net->now_ns + u16(at + 6) * UINT64_C(1000) : 0,
        .ahead = !is_push && (at[3] & 16) != 0 && (job->options & WITH_BSP) != 0,
    };
    own->used = weft_ps_begin(job->client, is_push ? WEFT_RPC_PUSH : WEFT_RPC_PULL, &list, 1, &how,
                              job->net->now_ns, &own->op) == WEFT_OK;
}

static bool is_cut(const struct job *job, uint32_t node)
{
    return job->net->cut[CLIENT][node];
}

static void connect_to(struct job *job)
{
    uint64_t until_ns;
    for (uint32_t s = 0; s < SHARDS; s++) {
        if (is_cut(job, SERVERS + s) && weft_ps_client_away(job->client, s, &until_ns) &&
            weft_ps_client_reconnect(job->client, s, fake_peer(SERVERS + s), job->net->now_ns) ==
                WEFT_OK) {
            fake_connect(job->net, CLIENT, SERVERS + s);
        }
        if ((job->options & WITH_AGGREGATORS) != 0 && is_cut(job, AGGREGATORS + s) &&
            weft_ps_client_wants_via(job->client, s, &until_ns)) {
            weft_ps_client_via(job->client, s, fake_peer(AGGREGATORS + s));
            fake_connect(job->net, CLIENT, AGGREGATORS + s);
        }
    }
}

static void cut(struct job *job, uint32_t node)
{
    if (!is_cut(job, node)) {
        fake_break(job->net, CLIENT, node);
    }
}

static void record(struct job *job, const uint8_t *at)
{
    const enum op op = at[0] % OP_COUNT;
    if (op == OP_PUSH || op == OP_PULL) {
        begin(job, at, op == OP_PUSH);
    } else if (op == OP_CLOCK) {
        (void)!weft_ps_clock(job->client, 0, job->net->now_ns);
    } else if (op == OP_DELIVER) {
        deliver(job, at[1]);
    } else if (op == OP_REPLY && job->request_count > 0) {
        reply(job, at[1] % job->request_count, at);
    } else if (op == OP_REPLY_ALL) {
        for (int i = 0; i < 4; i++) {
            while (job->request_count > 0) {
                reply(job, 0, NULL);
            }
            deliver(job, 100);
        }
    } else if (op == OP_UNASKED) {
        unasked(job, at);
    } else if (op == OP_BREAK) {
        cut(job, SERVERS + at[1] % (NODES - SERVERS));
    } else if (op == OP_CONNECT) {
        connect_to(job);
    } else if (op == OP_TIME) {
        job->net->now_ns += u16(at + 4) * WEFT_NS_PER_MS;
    } else if (op == OP_END) {
        const uint32_t i = at[1] % OPS;
        if (job->ops[i].used) {
            weft_ps_op_abandon(job->client, job->ops[i].op);
            job->ops[i].used = false;
        }
    }
    deliver(job, 2);
}

/* ---- one input ------------------------------------------------------------------------------- */

static void make_client(struct job *job, uint8_t options, uint8_t kind)
{
    struct weft_ps_client_config config;
    const weft_peer peers[SHARDS] = {fake_peer(SERVERS), fake_peer(SERVERS + 1)};
    weft_ps_client_config_default(&config);
    config.shards = SHARDS;
    config.tables_max = 1;
    config.ops_max = OPS + 1;
    config.rows_per_op_max = ROWS_MAX;
    config.rows_per_rpc_max = 10;
    config.dim_max = DIM_MAX;
    config.missed_max = 40;
    config.seed = 1;
    config.clock_ns = fake_clock_ns;
    config.clock_arg = job->net;
    config.reconnect_ns = options & WITH_RECONNECT ? 10 * WEFT_NS_PER_S : 0;
    config.via_timeout_ns = options & WITH_AGGREGATORS ? WEFT_NS_PER_S : 0;
    config.hot_rows = options & WITH_HOT && config.via_timeout_ns > 0 ? 8 : 0;
    config.replay_bytes = options & WITH_REPLAY && config.reconnect_ns > 0 ? 65536 : 0;
    config.replay_messages_max = 16;
    config.park_lease_ns = options & WITH_PARK && config.via_timeout_ns > 0 ? WEFT_NS_PER_S : 0;
    config.park_pause_ns = 100 * WEFT_NS_PER_MS;
    WEFT_ASSERT(weft_ps_client_new(&config, fake_msgr(job->net, CLIENT), peers, &job->client) ==
                WEFT_OK);
    static const uint16_t dims[] = {1, 3, 40, DIM_MAX};
    static const uint8_t types[] = {WEFT_VALUE_FLOAT32, WEFT_VALUE_BF16, WEFT_VALUE_INT8};
    job->spec = (struct weft_table_spec){.dim = dims[kind % 4],
                                         .mode =
                                             options & WITH_BSP ? WEFT_TABLE_BSP : WEFT_TABLE_ASP,
                                         .workers = 2,
                                         .learning_rate = 1,
                                         .push_values = types[kind / 4 % 3],
                                         .pull_values =
                                             kind & 64 ? WEFT_VALUE_BF16 : WEFT_VALUE_FLOAT32};
}

static void open_table(struct job *job)
{
    const size_t bytes = weft_row_store_bytes(8, job->spec.dim);
    WEFT_ASSERT(weft_ps_table_open(job->client, &job->spec, job->net->now_ns, &job->ops[0].op) ==
                WEFT_OK);
    job->ops[0].used = true;
    if ((job->options & WITH_MEMORY) == 0) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        job->memory[i] = calloc(1, bytes);
        WEFT_ASSERT(job->memory[i] != NULL);
    }
    (void)!weft_ps_client_remember(job->client, 0, job->memory[0], 8);
    (void)!weft_ps_client_feedback(job->client, 0, job->memory[1], 8);
}

/* The others are gone, and nobody connects again. */
static void end(struct job *job)
{
    for (uint32_t node = SERVERS; node < NODES; node++) {
        cut(job, node);
    }
    deliver(job, 100);
    for (int i = 0; i < 3; i++) {
        job->net->now_ns += 20 * WEFT_NS_PER_S;
        deliver(job, 100);
    }
    for (uint32_t i = 0; i < OPS; i++) {
        WEFT_ASSERT(!job->ops[i].used);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job job;
    if (size < 2) {
        return 0;
    }
    job = (struct job){.net = fake_net_new(data[1]), .options = data[0]};
    job.net->nodes[CLIENT].incarnation = 99;
    job.net->nodes[CLIENT].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    make_client(&job, data[0], data[1]);
    for (uint32_t s = 0; s < SHARDS; s++) {
        job.net->nodes[SERVERS + s].name = weft_rpc_name(WEFT_ROLE_SERVER, s);
        job.net->nodes[AGGREGATORS + s].name = weft_rpc_aggregator_name(s, 0);
        job.net->cut[CLIENT][AGGREGATORS + s] = job.net->cut[AGGREGATORS + s][CLIENT] = true;
        post(&job, SERVERS + s);
        post(&job, AGGREGATORS + s);
        fake_connect(job.net, CLIENT, SERVERS + s);
    }
    poll_all(&job);
    open_table(&job);
    data += 2;
    size -= 2;
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_BYTES; i++) {
        record(&job, data);
        data += RECORD_BYTES;
        size -= RECORD_BYTES;
    }
    end(&job);
    weft_ps_client_free(job.client);
    fake_net_free(job.net);
    free(job.memory[0]);
    free(job.memory[1]);
    return 0;
}
