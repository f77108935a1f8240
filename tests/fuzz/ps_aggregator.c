/* An aggregator fed with arbitrary requests: any tag, any grid, any bytes, chunks in any order,
 * some missing, workers that connect and disconnect, a shard that replies anything, late or never.
 * The transport is the minimum that fulfils the contract of core/msg.h. Every message to the shard
 * must be a valid aggregate, or a request for rows. When all peers have left, each push and pull
 * was replied to, and the transport owns no memory.
 *
 * Input: records {op u8, flags u8, table u8, clock u8, elem_bytes u16, chunk_elems u16, total u16,
 * bytes u16} and the message's first bytes; the rest of a message is zero. Ops 1, 4, 5 and 6 are
 * PUSH, TABLE, PULL and CLOCK of a worker, 2 is a reply of the shard with status `table`, 3
 * connects or disconnects the shard, and 0 advances the time. */
#include "ps/aggregator.h"
#include "ps/id_pack.h"

#include "transport.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    SENDS = 64,
    WORKERS = 2,
    SHARD = 100, /* its peer */
    OP_PASS = 0,
    OP_ANSWER = 2,
    OP_SHARD = 3,
    OP_PULL = 5,
    OP_CLOCK = 6,
    OPS = 7,
    TABLES = 2,
    FLAG_SHORT = 1,
    FLAG_KILL = 2,
    FLAG_OTHER = 4,
    FLAG_BACKWARDS = 8,
    FLAG_HOLE = 16,
    FLAG_AGAIN = 32,
    FLAG_KEEP = 64, /* sent messages stay unacknowledged */
    FLAG_HELD = 128 /* half of the message's chunks arrive after the next record */
};

struct held {
    bool open;
    struct weft_msg_event event;
    struct weft_msg_expect expect;
    uint8_t flags;
    uint32_t next; /* next chunk, in delivery order */
    uint8_t bytes[MESSAGE_BYTES_MAX];
};

struct fake {
    struct transport t;
    struct weft_aggregator *agg;
    bool shard_up;
    weft_peer peers[WORKERS];
    struct held held[WORKERS];
    struct weft_msg_send sends[SENDS]; /* messages whose SENT is outstanding */
    uint32_t send_count;
    uint16_t row_bytes[TABLES]; /* row length of replies to PULL, from the last TABLE */
    uint64_t pushes_before;     /* counted in earlier inputs */
    uint64_t pulls_before;
    uint64_t clocks_before;
    uint64_t answers; /* replies to pushes */
    uint64_t pull_answers;
    uint64_t clock_answers;
    bool came_again; /* worker: it reconnected, so requests of the old connection may have no
                      * reply */
};

/* ---- the transport --------------------------------------------------------------------------- */

/* The shard knows the row length from its table; here it is derived from the length of the
 * message. */
static void check_aggregate(const struct weft_msg_send *send)
{
    const uint8_t *bytes = send->base;
    const size_t count = (size_t)send->total * send->elem_bytes;
    struct weft_aggregate_view view;
    static uint64_t ids[WEFT_AGGREGATE_ROWS_MAX];
    bool good = false;
    for (uint32_t dim = 1; !good && dim <= WEFT_RPC_BLOCK_FLOATS; dim++) {
        good = weft_aggregate_unpack(bytes, count, dim, &view) == WEFT_OK;
    }
    WEFT_ASSERT(good && count <= WEFT_AGGREGATE_BYTES_MAX && send->bound_ppm == 0);
    const uint32_t rows = view.request.rows;
    WEFT_ASSERT(weft_ids_unpack(view.ids, view.ids_bytes, rows, ids));
    for (uint32_t i = 0; i < rows; i++) {
        WEFT_ASSERT(weft_aggregate_count_at(&view, i) > 0 && (i == 0 || ids[i] > ids[i - 1]));
    }
}

static void check_answer(struct fake *fake, const struct weft_msg_send *send)
{
    struct weft_rpc_reply reply;
    struct weft_rpc_tag tag;
    const size_t bytes = (size_t)send->total * send->elem_bytes;
    WEFT_ASSERT(bytes >= WEFT_RPC_REPLY_BYTES);
    WEFT_ASSERT(weft_rpc_reply_unpack(send->base, WEFT_RPC_REPLY_BYTES, &reply) == WEFT_OK);
    WEFT_ASSERT(reply.status < WEFT_RPC_STATUS_COUNT);
    WEFT_ASSERT(weft_rpc_tag_unpack(send->tag, &tag) && tag.number == reply.rpc_id);
    const bool has_rows =
        tag.op == (WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG) && reply.status == WEFT_RPC_OK;
    const uint32_t head = weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, send->elem_bytes);
    WEFT_ASSERT(has_rows ? send->total == head + reply.rows : bytes == WEFT_RPC_REPLY_BYTES);
    fake->answers += tag.op == (WEFT_RPC_PUSH | WEFT_RPC_REPLY_FLAG);
    fake->pull_answers += tag.op == (WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG);
    fake->clock_answers += tag.op == (WEFT_RPC_CLOCK | WEFT_RPC_REPLY_FLAG);
}

static void check_fetch(const struct weft_msg_send *send)
{
    struct weft_rpc_request request;
    const size_t bytes = (size_t)send->total * send->elem_bytes;
    WEFT_ASSERT(weft_rpc_request_unpack(send->base, bytes, &request) == WEFT_OK);
    WEFT_ASSERT(request.rows > 0 && send->bound_ppm == 0 &&
                send->total ==
                    request.rows + weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, send->elem_bytes));
}

static bool is_fetch(const struct weft_msg_send *send)
{
    return send->tag >> 56 == WEFT_RPC_PULL;
}

static weft_status take_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                             uint64_t *seq_p)
{
    struct fake *fake = self;
    (void)now_ns;
    if (fake->t.again || fake->send_count == SENDS) {
        return WEFT_AGAIN;
    }
    if (send->peer == SHARD) {
        WEFT_ASSERT(fake->shard_up);
        if (is_fetch(send)) {
            check_fetch(send);
        } else {
            check_aggregate(send);
        }
    } else {
        WEFT_ASSERT(send->peer == fake->peers[0] || send->peer == fake->peers[1]);
        check_answer(fake, send);
    }
    fake->sends[fake->send_count++] = *send;
    *seq_p = ++fake->t.ids;
    return WEFT_OK;
}

/* SENT of all messages to this peer; WEFT_PEER_ANY: to every worker. */
static void confirm(struct fake *fake, weft_peer peer)
{
    for (uint32_t i = 0; i < fake->send_count;) {
        const struct weft_msg_send send = fake->sends[i];
        if (send.peer != peer && (peer != WEFT_PEER_ANY || send.peer == SHARD)) {
            i++;
            continue;
        }
        fake->sends[i] = fake->sends[--fake->send_count];
        const struct weft_msg_event sent = {
            .type = WEFT_EVENT_SENT, .peer = send.peer, .user = send.user};
        weft_aggregator_event(fake->agg, &sent, fake->t.now_ns);
    }
}

/* Deliver chunks up to to - 1 in order, each in memory of exact size at an odd address. */
static void chunks(struct fake *fake, struct held *held, uint32_t to)
{
    struct weft_msg_event *event = &held->event;
    for (; held->next < to; held->next++) {
        uint32_t k = held->flags & FLAG_BACKWARDS ? event->chunks - 1 - held->next : held->next;
        if ((held->flags & FLAG_HOLE && k == event->chunks / 2) ||
            (held->flags & FLAG_SHORT && held->next > 2)) {
            continue;
        }
        transport_chunk(event, k);
        event->received++;
        if (held->expect.sink == WEFT_SINK_COPY) {
            const size_t at = (size_t)k * event->chunk_elems * event->elem_bytes;
            memcpy((uint8_t *)held->expect.memory + at, held->bytes + at,
                   (size_t)event->elems * event->elem_bytes);
            continue;
        }
        transport_data(event, held->bytes);
        weft_aggregator_event(fake->agg, event, fake->t.now_ns);
        transport_data_free(event);
    }
}

static void end(struct fake *fake, struct held *held, bool gone)
{
    struct weft_msg_event *event = &held->event;
    if (!held->open) {
        return;
    }
    if (!gone) {
        chunks(fake, held, event->chunks);
    }
    held->open = false;
    event->type = WEFT_EVENT_RECEIVED;
    event->outcome = gone || held->flags & FLAG_SHORT ? WEFT_MSG_SHORT : WEFT_MSG_COMPLETE;
    event->sender_gone = gone;
    weft_aggregator_event(fake->agg, event, fake->t.now_ns);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void peer_event(struct fake *fake, enum weft_msg_event_type type, weft_peer peer,
                       uint64_t name)
{
    const struct weft_msg_event event = {
        .type = type, .peer = peer, .at_ns = fake->t.now_ns, .incarnation = peer, .name = name};
    weft_aggregator_event(fake->agg, &event, fake->t.now_ns);
}

static void worker_up(struct fake *fake, uint32_t rank)
{
    fake->peers[rank] = (weft_peer)(SHARD + ++fake->t.ids);
    peer_event(fake, WEFT_EVENT_PEER_UP, fake->peers[rank], weft_rpc_name(WEFT_ROLE_WORKER, rank));
}

/* RECEIVED and SENT of all open messages precede PEER_DOWN. */
static void worker_down(struct fake *fake, uint32_t rank, weft_peer peer)
{
    if (fake->held[rank].event.peer == peer) {
        end(fake, &fake->held[rank], true);
    }
    confirm(fake, peer);
    peer_event(fake, WEFT_EVENT_PEER_DOWN, peer, 0);
}

/* A worker dies and reconnects; with FLAG_HOLE the new connection is up before the old one has
 * ended. */
static void worker_again(struct fake *fake, uint32_t rank, uint8_t flags)
{
    const weft_peer before = fake->peers[rank];
    weft_peer closed;
    fake->came_again = true;
    if ((flags & FLAG_HOLE) == 0) {
        worker_down(fake, rank, before);
        worker_up(fake, rank);
        return;
    }
    worker_up(fake, rank);
    bool for_good;
    const bool closes = weft_aggregator_take_closed(fake->agg, &closed, &for_good);
    WEFT_ASSERT(closes && closed == before);
    worker_down(fake, rank, before);
}

static void shard_turn(struct fake *fake, uint8_t flags)
{
    if (fake->shard_up) {
        confirm(fake, SHARD);
        fake->shard_up = false;
        peer_event(fake, WEFT_EVENT_PEER_DOWN, SHARD, 0);
        return;
    }
    weft_peer closed;
    WEFT_ASSERT(weft_aggregator_wants_shard(fake->agg));
    weft_aggregator_connect(fake->agg, SHARD);
    fake->shard_up = true;
    peer_event(fake, WEFT_EVENT_PEER_UP, SHARD,
               weft_rpc_name(flags & FLAG_OTHER ? WEFT_ROLE_MEMBER : WEFT_ROLE_SERVER, 0));
    if (flags & FLAG_OTHER) { /* another peer has connected */
        bool for_good;
        const bool closes = weft_aggregator_take_closed(fake->agg, &closed, &for_good);
        WEFT_ASSERT(closes && closed == SHARD);
        fake->shard_up = false;
        peer_event(fake, WEFT_EVENT_PEER_DOWN, SHARD, 0);
    }
}

/* The shard replies to the oldest message, before or after its acknowledgement. */
static void shard_answers(struct fake *fake, const uint8_t *data)
{
    const uint8_t flags = data[1];
    uint32_t i = 0;
    while (i < fake->send_count && fake->sends[i].peer != SHARD) {
        i++;
    }
    if (i == fake->send_count) {
        return;
    }
    struct weft_rpc_request request;
    weft_status status =
        weft_rpc_request_unpack(fake->sends[i].base, WEFT_RPC_REQUEST_BYTES, &request);
    WEFT_ASSERT(status == WEFT_OK);
    struct weft_rpc_tag tag;
    WEFT_ASSERT(weft_rpc_tag_unpack(fake->sends[i].tag, &tag));
    const bool has_rows = is_fetch(&fake->sends[i]) && data[2] == WEFT_RPC_OK;
    const uint16_t elem_bytes = has_rows ? fake->row_bytes[tag.table] : WEFT_RPC_REPLY_BYTES;
    struct weft_msg_event event = {
        .peer = SHARD,
        .seq = ++fake->t.ids,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = tag.op | WEFT_RPC_REPLY_FLAG, .table = tag.table, .number = request.rpc_id}),
        .total =
            has_rows ? weft_rpc_head_elems(WEFT_RPC_REPLY_BYTES, elem_bytes) + request.rows : 1,
        .elem_bytes = elem_bytes,
        .chunk_elems = 1,
        .chunks = 1,
        .received = 1,
    };
    if ((flags & FLAG_BACKWARDS) == 0) {
        confirm(fake, SHARD);
    }
    const struct weft_msg_expect *expect = transport_match(&fake->t, &event, true);
    if (expect == NULL) {
        return;
    }
    const struct weft_rpc_reply reply = {.rpc_id = request.rpc_id + (flags & FLAG_HOLE ? 1 : 0),
                                         .status = data[2],
                                         .clock = data[3],
                                         .rows = has_rows ? request.rows : 0};
    weft_rpc_reply_pack(&reply, expect->memory);
    event.type = WEFT_EVENT_OPEN;
    weft_aggregator_event(fake->agg, &event, fake->t.now_ns);
    event.type = WEFT_EVENT_RECEIVED;
    event.outcome = flags & FLAG_SHORT ? WEFT_MSG_SHORT : WEFT_MSG_COMPLETE;
    weft_aggregator_event(fake->agg, &event, fake->t.now_ns);
    confirm(fake, SHARD);
}

/* ---- input ----------------------------------------------------------------------------------- */

/* A TABLE as a worker of this shard sends it; if the clock is odd, a worker of another shard. */
static void table_note(struct fake *fake, const uint8_t *data, uint8_t *message)
{
    const uint16_t table = data[2] & 15;
    struct weft_table_spec spec;
    uint8_t *body = message + WEFT_RPC_REQUEST_BYTES;
    weft_aggregate_shard_pack(data[3] % 2 == 0 ? SHARD : 0, body + WEFT_RPC_SPEC_BYTES);
    if (table < TABLES &&
        weft_table_spec_unpack(table, body, WEFT_RPC_SPEC_BYTES, &spec) == WEFT_OK) {
        fake->row_bytes[table] = weft_table_pull_elem_bytes(&spec);
    }
}

static void request(struct fake *fake, const uint8_t *data, const uint8_t *bytes, size_t count)
{
    const uint8_t flags = data[1];
    const uint8_t kind = data[0] % OPS;
    const uint8_t op = kind == OP_PULL ? WEFT_RPC_PULL : kind == OP_CLOCK ? WEFT_RPC_CLOCK : kind;
    const uint32_t rank = flags & FLAG_OTHER ? 1 : 0;
    struct held *held = &fake->held[rank];
    end(fake, held, false);
    struct weft_msg_event event = {
        .peer = fake->peers[rank],
        .seq = ++fake->t.ids,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = op, .table = data[2] & 15, .low = data[2] >> 4, .number = data[3]}),
        .at_ns = fake->t.now_ns,
    };
    transport_grid(&event, data + 4);
    const struct weft_msg_expect *expect = transport_match(&fake->t, &event, true);
    if (expect == NULL) {
        return;
    }
    held->expect = *expect;
    held->open = true;
    held->flags = flags;
    held->next = 0;
    memset(held->bytes, 0, sizeof(held->bytes));
    memcpy(held->bytes, bytes, count);
    if (op == WEFT_RPC_TABLE) {
        table_note(fake, data, held->bytes);
    }
    event.type = WEFT_EVENT_OPEN;
    held->event = event;
    weft_aggregator_event(fake->agg, &event, fake->t.now_ns);
    chunks(fake, held, event.chunks / 2);
    if ((flags & FLAG_HELD) == 0) {
        end(fake, held, false);
    }
}

/* Returns the bytes used. */
static size_t record(struct fake *fake, const uint8_t *data, size_t size)
{
    const uint8_t flags = data[1], op = data[0] % OPS;
    const bool is_message =
        op == WEFT_RPC_PUSH || op == WEFT_RPC_TABLE || op == OP_PULL || op == OP_CLOCK;
    size_t count = is_message ? weft_min_u64(u16(data + 10), size - RECORD_BYTES) : 0;
    count = weft_min_u64(count, MESSAGE_BYTES_MAX);
    fake->t.again = flags & FLAG_AGAIN;
    if (op == OP_PASS) {
        fake->t.now_ns += WEFT_NS_PER_MS;
    } else if (op == OP_ANSWER) {
        shard_answers(fake, data);
    } else if (op == OP_SHARD) {
        shard_turn(fake, flags);
    } else {
        request(fake, data, data + RECORD_BYTES, count);
    }
    weft_aggregator_progress(fake->agg, fake->t.now_ns);
    fake->t.again = false;
    if ((flags & FLAG_KEEP) == 0) {
        confirm(fake, WEFT_PEER_ANY);
    }
    if (is_message && flags & FLAG_KILL) {
        worker_again(fake, flags & FLAG_OTHER ? 1 : 0, flags);
    }
    return RECORD_BYTES + count;
}

/* All peers leave, the shard first: each push was replied to, or its worker had left. */
static void leave(struct fake *fake)
{
    const struct weft_aggregator_counters *counters = weft_aggregator_counters(fake->agg);
    struct weft_aggregator_gauges gauges;
    if (fake->shard_up) {
        shard_turn(fake, 0);
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        end(fake, &fake->held[rank], false);
    }
    do { /* the replies may not all fit at once */
        confirm(fake, WEFT_PEER_ANY);
        weft_aggregator_progress(fake->agg, fake->t.now_ns);
    } while (fake->send_count > 0);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        worker_down(fake, rank, fake->peers[rank]);
    }
    weft_aggregator_gauges(fake->agg, &gauges);
    WEFT_ASSERT(gauges.workers_connected == 0 && !gauges.shard_up);
    WEFT_ASSERT(gauges.groups_open == 0 && gauges.groups_sent == 0);
    WEFT_ASSERT(counters->pushes_in == counters->pushes_absorbed + counters->pushes_direct);
    const uint64_t pushes = counters->pushes_in - fake->pushes_before;
    WEFT_ASSERT(fake->answers <= pushes && (fake->came_again || fake->answers == pushes));
    WEFT_ASSERT(counters->clocks_in == counters->clocks_passed + counters->clocks_direct);
    const uint64_t clocks = counters->clocks_in - fake->clocks_before;
    WEFT_ASSERT(fake->clock_answers <= clocks &&
                (fake->came_again || fake->clock_answers == clocks));
    const uint64_t pulls = counters->pulls_in - fake->pulls_before;
    WEFT_ASSERT(fake->pull_answers <= pulls && (fake->came_again || fake->pull_answers == pulls));
    WEFT_ASSERT(gauges.pulls_waiting == 0 && gauges.rows_cached == 0);
    transport_end(&fake->t);
}

/* Allocating its 100 MB for each input would dominate the run time, so one aggregator serves all
 * inputs and is empty between them. */
static struct weft_aggregator *make(struct fake *fake)
{
    struct weft_aggregator_config config;
    struct weft_aggregator *agg;
    weft_aggregator_config_default(&config);
    config.workers_max = WORKERS;
    config.tables_max = TABLES;
    config.pull_slots = 2;
    config.pull_rows_max = 64;
    config.cache_bytes = 8192;
    config.push_slots = 2;
    config.push_bytes_max = 4096;
    config.groups_max = 1;
    config.count_max = 3;
    config.clock_ns = transport_clock_ns;
    config.clock_arg = fake;
    static struct weft_msg_ops ops;
    ops = transport_ops(take_send);
    weft_status status = weft_aggregator_new(&config, (struct weft_msgr){&ops, fake}, &agg);
    WEFT_ASSERT(status == WEFT_OK);
    return agg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fake fake;
    static struct weft_aggregator *agg;
    agg = agg == NULL ? make(&fake) : agg;
    memset(&fake, 0, sizeof(fake));
    fake.agg = agg;
    fake.pushes_before = weft_aggregator_counters(agg)->pushes_in;
    fake.pulls_before = weft_aggregator_counters(agg)->pulls_in;
    fake.clocks_before = weft_aggregator_counters(agg)->clocks_in;
    worker_up(&fake, 0);
    worker_up(&fake, 1);
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_BYTES; i++) {
        const size_t used = record(&fake, data, size);
        data += used;
        size -= used;
    }
    leave(&fake);
    return 0;
}
