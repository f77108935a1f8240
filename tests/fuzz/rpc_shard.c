/* A shard fed with arbitrary requests: any tag, any grid, any bytes, chunks in any order, some
 * missing, workers dying in between. The transport is the minimum that fulfils the contract of
 * core/msg.h. The shard must neither crash nor leak a slot: when all messages are closed, it is
 * idle, or pulls wait for consistency.
 *
 * With HELD the second half of a message's chunks arrives after the next record: meanwhile other
 * messages are open, lists are dropped or received, and workers reconnect.
 *
 * Workers reconnect as the same process unless AGAIN is set with KILL, and number their pushes.
 *
 * If an input begins with 254, aggregators may connect to the shard, so workers can park; a record
 * that begins with 253 arrives a second later. If it begins with 252, an aggregator is connected,
 * updates are counted, and all ops occur: a record that begins with 128 or more is a message of the
 * aggregator.
 *
 * Input: records {op u8, flags u8, table u8, clock u8, elem_bytes u16, chunk_elems u16, total u16,
 * bytes u16} and the message's first bytes; the rest of a message is zero. The upper half of table
 * is the low byte of a push's number. */
#include "ps/shard.h"

#include "transport.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    FLAG_SHORT = 1,
    FLAG_KILL = 2,
    FLAG_OTHER = 4,
    FLAG_BACKWARDS = 8,
    FLAG_HOLE = 16,
    FLAG_AGAIN = 32,
    FLAG_SLABS = 64,
    FLAG_HELD = 128
};

enum { AGGREGATOR = 3 }; /* its peer; workers are 1 and 2 */

struct fake {
    struct transport t;
    struct weft_shard *shard;
    struct {
        bool open;
        struct weft_msg_event event;
        uint8_t flags;
        uint32_t next;   /* next chunk, in delivery order */
        uint8_t *memory; /* of the expectation, if it copies */
        uint8_t bytes[MESSAGE_BYTES_MAX];
    } held;
    bool sums; /* the input begins with 252 */
    uint32_t replies;
    struct weft_msg_send reply[EXPECTS];
};

static weft_status send_reply(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                              uint64_t *seq_p)
{
    struct fake *fake = self;
    (void)now_ns;
    if (fake->t.again) {
        return WEFT_AGAIN;
    }
    WEFT_ASSERT(fake->replies < EXPECTS && send->bound_ppm < WEFT_PPM);
    /* Every byte must be readable, and the message must be a reply. */
    const uint8_t *bytes = send->base;
    uint32_t sum = 0;
    for (size_t i = 0; i < (size_t)send->total * send->elem_bytes; i++) {
        sum += bytes[i];
    }
    struct weft_rpc_reply head;
    WEFT_ASSERT(weft_rpc_reply_unpack(bytes, WEFT_RPC_REPLY_BYTES, &head) == WEFT_OK && sum > 0);
    WEFT_ASSERT(head.status < WEFT_RPC_STATUS_COUNT && send->tag >> 63 == 1);
    fake->reply[fake->replies++] = *send;
    *seq_p = ++fake->t.ids;
    return WEFT_OK;
}

/* Deliver the replies accepted since the last call, or drop them if their worker is gone. */
static void close_replies(struct fake *fake)
{
    while (fake->replies > 0) {
        struct weft_msg_send send = fake->reply[--fake->replies];
        struct weft_msg_event sent = {
            .type = WEFT_EVENT_SENT, .peer = send.peer, .user = send.user};
        weft_shard_event(fake->shard, &sent, fake->t.now_ns);
    }
}

static void peer_event(struct fake *fake, enum weft_msg_event_type type, weft_peer peer,
                       uint64_t incarnation)
{
    struct weft_msg_event event = {.type = type,
                                   .peer = peer,
                                   .at_ns = fake->t.now_ns,
                                   .incarnation = incarnation,
                                   .name = peer == AGGREGATOR
                                               ? weft_rpc_aggregator_name(0, 0)
                                               : weft_rpc_name(WEFT_ROLE_WORKER, peer - 1)};
    weft_shard_event(fake->shard, &event, fake->t.now_ns);
}

/* Chunks from .. to - 1 in the message's order, each of exact size at an odd address; copied if
 * `memory` is not NULL. */
static void chunks(struct fake *fake, struct weft_msg_event *event, uint8_t flags,
                   const uint8_t *bytes, uint8_t *memory, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint32_t k = flags & FLAG_BACKWARDS ? event->chunks - 1 - i : i;
        if ((flags & FLAG_HOLE && k == event->chunks / 2) || (flags & FLAG_SHORT && i > 2)) {
            continue;
        }
        transport_chunk(event, k);
        event->at_ns = fake->t.now_ns++;
        if (memory != NULL) {
            const size_t at = (size_t)k * event->chunk_elems * event->elem_bytes;
            memcpy(memory + at, bytes + at, (size_t)event->elems * event->elem_bytes);
            event->received++;
            continue;
        }
        transport_data(event, bytes);
        weft_shard_event(fake->shard, event, fake->t.now_ns);
        transport_data_free(event);
        event->received++;
    }
}

static void end(struct fake *fake, struct weft_msg_event *event, uint8_t flags, bool gone)
{
    event->type = WEFT_EVENT_RECEIVED;
    event->outcome = gone || flags & FLAG_SHORT ? WEFT_MSG_SHORT : WEFT_MSG_COMPLETE;
    event->sender_gone = gone;
    weft_shard_event(fake->shard, event, fake->t.now_ns);
}

static void held_end(struct fake *fake, bool gone)
{
    if (fake->held.open) {
        struct weft_msg_event *event = &fake->held.event;
        fake->held.open = false;
        if (!gone) {
            chunks(fake, event, fake->held.flags, fake->held.bytes, fake->held.memory,
                   fake->held.next, event->chunks);
        }
        end(fake, event, fake->held.flags, gone);
    }
    if (gone) { /* SENT of all open messages precedes PEER_DOWN */
        close_replies(fake);
    }
}

static void message(struct fake *fake, struct weft_msg_event event, uint8_t flags,
                    const uint8_t *bytes)
{
    const struct weft_msg_expect *expect = transport_match(&fake->t, &event, false);
    if (expect == NULL) {
        return;
    }
    WEFT_ASSERT(expect->memory_bytes >= MESSAGE_BYTES_MAX);
    uint8_t *memory = expect->sink == WEFT_SINK_COPY ? expect->memory : NULL;
    event.seq = ++fake->t.ids;
    event.type = WEFT_EVENT_OPEN;
    weft_shard_event(fake->shard, &event, fake->t.now_ns);
    if (flags & FLAG_HELD && !fake->held.open) {
        chunks(fake, &event, flags, bytes, memory, 0, event.chunks / 2);
        fake->held.open = true;
        fake->held.memory = memory;
        fake->held.event = event;
        fake->held.flags = flags;
        fake->held.next = event.chunks / 2;
        memcpy(fake->held.bytes, bytes, sizeof(fake->held.bytes));
        return;
    }
    chunks(fake, &event, flags, bytes, memory, 0, event.chunks);
    end(fake, &event, flags, false);
}

/* The tag from {op, flags, table, clock}. */
static uint64_t tag_of(const struct fake *fake, const uint8_t *at)
{
    struct weft_rpc_tag tag = {
        .op = at[0] % (fake->sums ? 10 : 7), .table = at[2] & 15, .number = at[3]};
    if (tag.op == WEFT_RPC_PUSH || tag.op == WEFT_RPC_UPDATE) {
        tag.low = at[2] >> 4;
    }
    if (tag.op == WEFT_RPC_UPDATE) {
        tag.number = weft_rpc_update_pack(at[3] & 15, at[3] >> 4);
    }
    return weft_rpc_tag_pack(tag) | (uint64_t)(at[0] == 255) << 32;
}

/* Returns the bytes used. */
static size_t record(struct fake *fake, const uint8_t *data, size_t size)
{
    static uint8_t bytes[MESSAGE_BYTES_MAX];
    uint8_t flags = data[1];
    fake->t.now_ns += data[0] == 253 ? WEFT_NS_PER_S : 0;
    struct weft_msg_event event = {
        .peer = fake->sums && data[0] >= 128 ? AGGREGATOR : flags & FLAG_OTHER ? 2 : 1,
        .tag = tag_of(fake, data),
        .at_ns = fake->t.now_ns,
    };
    transport_grid(&event, data + 4);
    size_t count = weft_min_u64(u16(data + 10), size - RECORD_BYTES);
    count = weft_min_u64(count, MESSAGE_BYTES_MAX);
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, data + RECORD_BYTES, count);
    fake->t.again = flags & FLAG_AGAIN;
    const bool was_held = fake->held.open;
    message(fake, event, flags, bytes);
    if (was_held && (flags & FLAG_KILL) == 0) {
        held_end(fake, false);
    }
    fake->t.again = false;
    weft_shard_progress(fake->shard, fake->t.now_ns);
    close_replies(fake);
    if (flags & FLAG_KILL) {
        if ((flags & FLAG_HOLE) == 0 && fake->held.event.peer == event.peer) {
            held_end(fake, true);
        }
        peer_event(fake, flags & FLAG_HOLE ? WEFT_EVENT_PEER_UP : WEFT_EVENT_PEER_DOWN, event.peer,
                   flags & FLAG_AGAIN ? fake->t.ids + 10 : event.peer);
    }
    uint16_t table;
    size_t slab;
    if (flags & FLAG_SLABS && weft_shard_wants_slab(fake->shard, &table, &slab)) {
        WEFT_ASSERT(weft_shard_add_slab(fake->shard, table, malloc(slab), slab) == WEFT_OK);
    }
    return RECORD_BYTES + count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fake fake;
    memset(&fake, 0, sizeof(fake));
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.workers_max = 2;
    config.tables_max = 2;
    config.rows_max = 64;
    config.dim_max = 300;
    config.push_slots = config.pull_slots = 2;
    config.rows_per_rpc_max = 40;
    config.list_ids = 60;
    config.slab_bytes = 4096;
    config.table_bytes_max = 1 << 16;
    fake.sums = size > 0 && data[0] == 252;
    const bool may_park = fake.sums || (size > 0 && data[0] == 254);
    config.aggregators_max = may_park; /* at most one: each needs 32 MiB */
    config.delay_max = fake.sums ? 4 : config.delay_max;
    config.checkpoints = true;
    config.chunks_max = 64;
    config.clock_ns = transport_clock_ns;
    config.clock_arg = &fake;
    const struct weft_msg_ops ops = transport_ops(send_reply);
    weft_status status = weft_shard_new(&config, (struct weft_msgr){&ops, &fake}, &fake.shard);
    WEFT_ASSERT(status == WEFT_OK);
    peer_event(&fake, WEFT_EVENT_PEER_UP, 1, 1);
    peer_event(&fake, WEFT_EVENT_PEER_UP, 2, 2);
    if (fake.sums) {
        peer_event(&fake, WEFT_EVENT_PEER_UP, AGGREGATOR, AGGREGATOR);
        data++;
        size--;
    }
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_BYTES; i++) {
        size_t used = record(&fake, data, size);
        data += used;
        size -= used;
    }
    held_end(&fake, true);
    /* All leave: waiting requests are dropped, and no slot leaks. */
    peer_event(&fake, WEFT_EVENT_PEER_DOWN, 1, 0);
    peer_event(&fake, WEFT_EVENT_PEER_DOWN, 2, 0);
    if (fake.sums) {
        peer_event(&fake, WEFT_EVENT_PEER_DOWN, AGGREGATOR, 0);
    }
    WEFT_ASSERT(!weft_shard_busy(fake.shard));
    struct weft_shard_gauges gauges;
    weft_shard_gauges(fake.shard, fake.t.now_ns, 1, &gauges);
    WEFT_ASSERT(gauges.workers_connected == 0 && (may_park || gauges.workers_parked == 0));
    /* In steps: a shard that is called late takes itself for stopped, and renews leases. */
    for (int i = 0; i < 2 * 61 * 20 && gauges.workers_parked > 0; i++) {
        fake.t.now_ns += 50 * WEFT_NS_PER_MS;
        weft_shard_progress(fake.shard, fake.t.now_ns);
        weft_shard_gauges(fake.shard, fake.t.now_ns, 1, &gauges);
    }
    WEFT_ASSERT(gauges.workers_parked == 0);
    transport_end(&fake.t);
    void *slab;
    while ((slab = weft_shard_take_slab(fake.shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(fake.shard);
    return 0;
}
