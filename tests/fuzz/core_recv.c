/* A connected endpoint sends and receives while packets of its peer are forged.
 *
 * Two endpoints are connected in memory; the input is a program of one-byte operations: move time,
 * post memory, send messages, carry or drop real packets, and deliver forged ones to the victim, as
 * they are or with a header that passes (right address, connection id and a fresh packet number).
 * The first byte also chooses the security mode; in auth and seal, with toy cryptography, the
 * forger holds the victim's keys, so that the code behind the tag check is reached.
 *
 * Invariants for any input: no crash and no assertion; weft_ep_send and the deadlines terminate;
 * every packet sent decodes; no chunk is delivered twice; the number of ones in a mask equals its
 * count; memory is not accessed after its owner got it back (it is freed at that event, so that
 * AddressSanitizer detects an access). */
#include "../lib/datagram_net.h"
#include "../unit/core_inspect.h"
#include "base/cursor.h"
#include "sim/toy_crypto.h"
#include "wire/packet.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CHUNKS_MAX = 1024,
    PEERS_MAX = 3,
    SLOTS = 24, /* posted buffers and messages of one end */
    OPERATIONS_MAX = 200,
    BURSTS_MAX = 4000, /* more bursts at one instant indicate an endless loop */
    ROUNDS_MAX = 64,
    UNDER_WAY_MAX = 256, /* datagrams in flight; more are lost */
    DATAGRAM_BYTES = 1500,
    FORGED_BYTES_MAX = 400,
};

struct slot {
    void *memory;
    weft_expect_id expect;
    bool used;
    bool opened;
};

struct handed {
    uint64_t seq;
    uint64_t bits[WEFT_BITS_WORDS(CHUNKS_MAX)];
};

struct end {
    struct net_end *at;
    bool failing; /* its cryptography returns errors */
    struct slot sends[SLOTS];
    struct slot expects[SLOTS];
    struct handed handed[PEERS_MAX][WEFT_MSGS_MAX];
    uint32_t connection_id; /* of its newest connection, from its handshake */
    uint64_t number_to_it;  /* newest packet number sent to it */
};

struct world {
    struct net net; /* ends 0 and 1: */
    struct end victim;
    struct end other;
    uint8_t mode;
    bool turns; /* the ends grant credit in turns, as in an all-to-all: they send ACK_SHORT */
    struct weft_tx tx;
};

static struct world world;

static struct weft_addr addr_make(uint8_t host)
{
    return (struct weft_addr){.bytes = {host}, .bytes_used = 1};
}

static void slot_free(struct slot *s)
{
    free(s->memory);
    *s = (struct slot){0};
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint32_t bytes_sum; /* so that every delivered byte is read */

static void chunk_check(struct end *e, const struct weft_msg_event *ev)
{
    struct handed *h = &e->handed[ev->peer][ev->seq % WEFT_MSGS_MAX];
    WEFT_ASSERT(h->seq == ev->seq && ev->chunk < ev->chunks);
    WEFT_ASSERT(!weft_bits_test(h->bits, ev->chunk));
    weft_bits_set(h->bits, ev->chunk);
    WEFT_ASSERT((uint64_t)ev->chunk * ev->chunk_elems + ev->elems <= ev->total);
    const uint8_t *bytes = ev->data;
    for (size_t i = 0; i < (size_t)ev->elems * ev->elem_bytes; i++) {
        bytes_sum += bytes[i];
    }
    if (ev->chunk % 3 == 0) {
        e->at->msgr.ops->refuse(e->at->msgr.self, ev->peer, ev->seq);
    }
}

static void event_take(struct end *e, const struct weft_msg_event *ev)
{
    WEFT_ASSERT(ev->peer < PEERS_MAX);
    switch (ev->type) {
    case WEFT_EVENT_PEER_UP:
    case WEFT_EVENT_PEER_DOWN:
        break;
    case WEFT_EVENT_OPEN:
        WEFT_ASSERT(ev->user < SLOTS && e->expects[ev->user].used);
        WEFT_ASSERT(ev->chunks >= 1 && ev->chunks <= CHUNKS_MAX);
        e->expects[ev->user].opened = true;
        e->handed[ev->peer][ev->seq % WEFT_MSGS_MAX] = (struct handed){.seq = ev->seq};
        break;
    case WEFT_EVENT_CHUNK:
        chunk_check(e, ev);
        break;
    case WEFT_EVENT_RECEIVED:
        WEFT_ASSERT(ev->user < SLOTS && e->expects[ev->user].used);
        WEFT_ASSERT(weft_bits_count(ev->mask, ev->chunks) == ev->received && ev->received > 0);
        if (e->expects[ev->user].memory != NULL) {
            slot_free(&e->expects[ev->user]);
        }
        break;
    case WEFT_EVENT_SENT:
        WEFT_ASSERT(ev->user < SLOTS && e->sends[ev->user].used);
        WEFT_ASSERT(weft_bits_count(ev->mask, ev->chunks) == ev->received);
        WEFT_ASSERT(ev->refused <= ev->received);
        slot_free(&e->sends[ev->user]);
        break;
    }
}

static void on_event(struct net *net, uint32_t end, const struct weft_msg_event *ev)
{
    (void)net;
    event_take(end == 0 ? &world.victim : &world.other, ev);
}

static void events_take(const struct end *e)
{
    net_drain(&world.net, (uint32_t)(e->at - world.net.end));
}

/* ---- packets that go out --------------------------------------------------------------------- */

/* Any endpoint must be able to decode what an endpoint sends. */
static void sent_check(const uint8_t *bytes, size_t count)
{
    uint8_t version;
    uint8_t klass;
    bool eliciting;
    struct weft_wire_packet packet;
    struct weft_wire_data data;
    struct weft_wire_hello hello;
    struct weft_wire_accept accept;
    struct weft_wire_cookie cookie;
    struct weft_wire_unknown unknown;
    struct weft_wire_refused refused;
    weft_status status = weft_wire_classify(bytes, count, &version, &klass);
    WEFT_ASSERT(status == WEFT_OK);
    if (klass == WEFT_CLASS_HELLO) {
        status = weft_wire_hello_decode(bytes, count, &hello);
    } else if (klass == WEFT_CLASS_ACCEPT) {
        status = weft_wire_accept_decode(bytes, count, &accept);
    } else if (klass == WEFT_CLASS_COOKIE) {
        status = weft_wire_cookie_decode(bytes, count, &cookie);
    } else if (klass == WEFT_CLASS_UNKNOWN) {
        status = weft_wire_unknown_decode(bytes, count, &unknown);
    } else if (klass == WEFT_CLASS_REFUSED) {
        status = weft_wire_refused_decode(bytes, count, &refused);
    } else if (klass == WEFT_CLASS_SEAL) {
        status = weft_wire_header_decode(bytes, count, &packet);
    } else {
        status = weft_wire_packet_decode(bytes, count, &packet);
        if (status == WEFT_OK && packet.control != NULL) {
            status = weft_wire_control_check(packet.control, packet.control_bytes, &eliciting);
        }
        if (status == WEFT_OK && packet.data != NULL && weft_wire_is_brief(packet.flags)) {
            struct weft_wire_brief brief;
            status = weft_wire_brief_decode(packet.data, packet.data_bytes, &brief);
        } else if (status == WEFT_OK && packet.data != NULL) {
            status = weft_wire_data_decode(packet.data, packet.data_bytes, &data);
        }
    }
    WEFT_ASSERT(status == WEFT_OK);
}

static uint32_t u32_at(const uint8_t *bytes, size_t offset)
{
    struct weft_reader r = weft_reader_make(bytes + offset, 4);
    return weft_read_u32(&r);
}

/* False: the destination is unknown, or the datagram is lost. */
static bool on_sent(struct net *net, struct net_datagram *d)
{
    const uint8_t *bytes = d->data;
    struct end *from = d->from_end == 0 ? &world.victim : &world.other;
    WEFT_ASSERT(d->bytes <= DATAGRAM_BYTES);
    sent_check(bytes, d->bytes);
    if ((bytes[0] & 15) == WEFT_CLASS_HELLO) {
        from->connection_id = u32_at(bytes, 4);
    } else if ((bytes[0] & 15) == WEFT_CLASS_ACCEPT) {
        from->connection_id = u32_at(bytes, 8);
    }
    if (d->to_end >= 2 || net->queued == UNDER_WAY_MAX) {
        return false;
    }
    if ((bytes[0] & 15) <= WEFT_CLASS_SEAL) {
        /* Packet numbers stay below 2^32, so a short header contains the whole number. */
        struct end *to = d->to_end == 0 ? &world.victim : &world.other;
        size_t number_bytes = weft_wire_header_bytes(bytes[1]) - 8;
        struct weft_reader r = weft_reader_make(bytes + 8, number_bytes);
        uint64_t number = number_bytes == 8 ? weft_read_u64(&r) : weft_read_u32(&r);
        to->number_to_it = weft_max_u64(to->number_to_it, number);
    }
    return true;
}

/* Make progress until the endpoint rests: nothing to send, no deadline that has passed. */
static void settle(struct end *e)
{
    unsigned bursts = 0;
    for (unsigned round = 0;; round++) {
        WEFT_ASSERT(round < ROUNDS_MAX);
        events_take(e);
        if (weft_ep_deadline(e->at->ep) <= world.net.now_ns) {
            weft_ep_on_deadline(e->at->ep, world.net.now_ns);
            events_take(e);
        }
        while (weft_ep_send(e->at->ep, world.net.now_ns, &world.tx) > 0) {
            WEFT_ASSERT(++bursts < BURSTS_MAX);
            net_burst(&world.net, e->at, &world.tx);
        }
        if (weft_ep_deadline(e->at->ep) > world.net.now_ns) {
            return;
        }
    }
}

static void deliver(struct end *to, const struct weft_addr *from, const uint8_t *bytes,
                    size_t count, enum weft_ecn ecn)
{
    net_deliver_at(&world.net, to->at, from, ecn, bytes, count, world.net.now_ns);
}

/* Deliver the queued datagrams, except those whose bit in `drops` is set. Both ends then reply,
 * into a new queue. */
static void carry(uint32_t drops)
{
    const uint32_t count = world.net.queued;
    for (uint32_t i = 0; i < count; i++) {
        struct net_datagram d = net_dequeue(&world.net, 0);
        if (!((drops >> (i % 32)) & 1)) {
            struct end *to = d.to_end == 0 ? &world.victim : &world.other;
            deliver(to, &d.from, d.data, d.bytes, WEFT_ECN_ECT0);
        }
        free(d.data);
    }
    settle(&world.victim);
    settle(&world.other);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct slot *slot_take(struct slot *slots, uint64_t *user_p)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        if (!slots[i].used) {
            slots[i].used = true;
            *user_p = i;
            return &slots[i];
        }
    }
    return NULL;
}

static void op_expect(struct end *e, struct weft_reader *in)
{
    struct weft_msg_expect x = {.peer = WEFT_PEER_ANY, .count = 1};
    uint8_t how = weft_read_u8(in);
    x.memory_bytes = weft_read_u16(in);
    struct slot *s = slot_take(e->expects, &x.user);
    if (s == NULL) {
        return;
    }
    x.sink = (enum weft_msg_sink)(how % 3);
    x.timeout_ns = how & 0x80 ? WEFT_NS_PER_MS * (how & 0x7c) : WEFT_NEVER;
    if (x.sink == WEFT_SINK_EVENT) {
        x.count = how & 0x40 ? 1000 : 1;
    } else {
        s->memory = calloc(1, x.memory_bytes > 0 ? x.memory_bytes : 1);
        x.memory = s->memory;
    }
    if (e->at->msgr.ops->expect(e->at->msgr.self, &x, &s->expect) != WEFT_OK) {
        slot_free(s);
    }
}

static void op_cancel(struct end *e, struct weft_reader *in)
{
    struct slot *s = &e->expects[weft_read_u8(in) % SLOTS];
    if (s->used && e->at->msgr.ops->cancel(e->at->msgr.self, s->expect) == WEFT_OK && !s->opened) {
        slot_free(s); /* a message opened earlier continues, so the slot is kept */
    }
}

static void op_send(struct end *e, struct weft_reader *in)
{
    struct weft_msg_send m = {.deadline_ns = WEFT_NEVER};
    uint8_t how = weft_read_u8(in);
    m.total = weft_read_u16(in);
    m.elem_bytes = 1 + weft_read_u8(in) % 200;
    m.critical = how & 1 ? 1 : 0;
    m.priority = (how >> 1) & 7;
    m.bound_ppm = how & 0x10 ? WEFT_PPM / 4 : 0;
    m.deadline_ns = how & 0x20 ? world.net.now_ns + (how >> 6) * WEFT_NS_PER_MS : WEFT_NEVER;
    m.shares = (how & 0x60) == 0x40;
    m.peer = 0;
    struct slot *s = slot_take(e->sends, &m.user);
    if (s == NULL) {
        return;
    }
    s->memory = calloc(m.total > 0 ? m.total : 1, m.elem_bytes);
    m.base = s->memory;
    uint64_t seq;
    if (e->at->msgr.ops->send(e->at->msgr.self, &m, world.net.now_ns, &seq) != WEFT_OK) {
        slot_free(s);
    }
    if (!m.shares || (how & 0x80) == 0) { /* otherwise the next message may share its packet */
        settle(e);
    }
}

static void op_time(struct weft_reader *in)
{
    uint8_t step = weft_read_u8(in);
    world.net.now_ns += ((uint64_t)(step & 31) + 1) << (10 + (step >> 5) * 2);
    settle(&world.victim);
    settle(&world.other);
}

static void op_forge_bytes(struct weft_reader *in)
{
    size_t count = weft_min_u64(weft_read_u16(in) % FORGED_BYTES_MAX, weft_reader_left(in));
    const uint8_t *bytes = weft_read_bytes(in, count);
    if (bytes != NULL) {
        deliver(&world.victim, &world.other.at->addr, bytes, count, WEFT_ECN_CE);
        settle(&world.victim);
    }
}

/* The fields in the bytes get a tag and a MAC, as a holder of the job key would make them. */
static bool hello_protect(struct weft_wire_hello *hello, uint8_t *bytes)
{
    struct weft_crypto crypto = weft_toy_crypto_ops(world.other.at->toy);
    struct weft_noise noise;
    struct weft_writer w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    hello->key_id = world.victim.at->ep->handshake_guard.key_id;
    weft_wire_hello_encode(&w, hello);
    struct weft_crypto_span prologue[2] = {{bytes, 32}, {bytes + 36, 4}};
    weft_noise_init(&noise, &crypto, PEERS_MAX * KEY_SLOTS, world.victim.at->ep->config.psk,
                    prologue, 2);
    weft_status status = weft_noise_hello_write(&noise, NULL, 0, hello->ephemeral, hello->tag);
    if (status != WEFT_OK) {
        return false; /* the test made its cryptography fail */
    }
    w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    weft_wire_hello_encode(&w, hello);
    size_t covered = WEFT_HELLO_BYTES - WEFT_MAC_BYTES;
    weft_core_handshake_guard_mac(world.victim.at->ep, bytes, covered, hello->mac);
    w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    weft_wire_hello_encode(&w, hello);
    return true;
}

static void op_stranger(struct weft_reader *in)
{
    struct weft_wire_hello hello = {
        .mode = world.mode, .packet_bytes_max = 1472, .incarnation = 5};
    struct weft_addr from = addr_make((uint8_t)(3 + weft_read_u8(in) % 4));
    hello.connection_id = weft_read_u8(in);
    hello.open_from = weft_read_u8(in) ? 1 : UINT64_MAX;
    uint8_t bytes[WEFT_HELLO_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_hello_encode(&w, &hello);
    if (world.mode != WEFT_MODE_NONE && !hello_protect(&hello, bytes)) {
        return;
    }
    deliver(&world.victim, &from, bytes, sizeof(bytes), WEFT_ECN_NOT);
    settle(&world.victim);
}

/* Encrypt and tag a packet with the key that the victim holds for its phase. */
static size_t forged_seal(uint8_t *bytes, size_t count, uint8_t flags, uint64_t number)
{
    uint32_t idx = world.victim.connection_id & 0xfff;
    if (world.mode == WEFT_MODE_NONE || idx >= PEERS_MAX) {
        return count;
    }
    const struct secure *sec = &inspect_peer(world.victim.at->ep, idx)->sec;
    uint32_t phase = (flags & WEFT_FLAG_KEY_PHASE) != 0;
    uint32_t generation = sec->generation + (phase != sec->generation % 2);
    uint32_t slot = idx * KEY_SLOTS + 1 + generation % (KEY_SLOTS - 1);
    size_t clear = world.mode == WEFT_MODE_AUTH ? count : weft_wire_header_bytes(flags);
    weft_toy_crypto_forge(world.victim.at->toy, slot, number, bytes, clear, bytes + clear,
                          count - clear, bytes + clear, bytes + count);
    return count + WEFT_TAG_BYTES;
}

/* A control block, DATA or both from the input, after a header that passes all checks. */
static void forged_deliver(uint8_t flags, uint8_t number_ahead, const uint8_t *body, size_t count)
{
    uint8_t bytes[DATAGRAM_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet header = {
        .klass = world.mode,
        .flags = flags,
        .data_count = number_ahead,
        .connection_id = world.victim.connection_id,
        .number = world.victim.number_to_it + number_ahead,
    };
    world.victim.number_to_it = header.number;
    weft_wire_header_encode(&w, &header);
    weft_write_bytes(&w, body, count);
    size_t used = forged_seal(bytes, (size_t)(w.at - bytes), flags, header.number);
    deliver(&world.victim, &world.other.at->addr, bytes, used, WEFT_ECN_ECT0);
    settle(&world.victim);
}

static void op_forge_body(struct weft_reader *in)
{
    uint8_t flags = weft_read_u8(in);
    uint8_t ahead = weft_read_u8(in);
    size_t count = weft_min_u64(weft_read_u16(in) % FORGED_BYTES_MAX, weft_reader_left(in));
    const uint8_t *bytes = weft_read_bytes(in, count);
    if (bytes != NULL) {
        forged_deliver(flags, ahead, bytes, count);
    }
}

static void frame_deliver(const struct weft_wire_frame *frame)
{
    uint8_t body[FORGED_BYTES_MAX];
    struct weft_writer w = weft_writer_make(body, sizeof(body));
    weft_write_u16(&w, 0);
    weft_wire_frame_encode(&w, frame);
    size_t count = (size_t)(w.at - body);
    w = weft_writer_make(body, 2);
    weft_write_u16(&w, (uint16_t)(count - 2));
    forged_deliver(WEFT_FLAG_CONTROL, 1, body, count);
}

static void op_forge_ack(struct weft_reader *in)
{
    struct weft_wire_frame f = {.type = WEFT_FRAME_ACK};
    f.ack.largest = world.other.number_to_it - weft_read_u8(in) % 4;
    uint8_t flags = weft_read_u8(in);
    f.ack.flags = flags & (WEFT_ACK_IDLE | WEFT_ACK_LATER);
    f.ack.delay_step = flags >> WEFT_ACK_DELAY_SHIFT;
    f.ack.credit = weft_read_u16(in);
    f.ack.open_from = weft_read_u8(in);
    f.ack.delay = weft_read_u8(in);
    f.ack.ce = weft_read_u8(in);
    f.ack.word_count = weft_read_u8(in) % 4;
    for (unsigned i = 0; i < f.ack.word_count; i++) {
        f.ack.words[i] = weft_read_u64(in);
    }
    f.ack.words[0] &= UINT64_MAX >> (63 - f.ack.largest % 64);
    f.ack.note_count = 1;
    f.ack.notes[0].msg = weft_read_u8(in);
    f.ack.notes[0].received = weft_read_u8(in);
    frame_deliver(&f);
}

static void op_forge_ack_short(struct weft_reader *in)
{
    struct weft_wire_frame f = {.type = WEFT_FRAME_ACK_SHORT};
    uint8_t how = weft_read_u8(in);
    f.ack_short.largest = (uint32_t)world.other.number_to_it - how % 4;
    f.ack_short.largest += how & 0x80 ? weft_read_u32(in) : 0;
    f.ack_short.flags = how & 4 ? WEFT_ACK_LATER : 0;
    f.ack_short.delay_step = weft_read_u8(in) >> WEFT_ACK_DELAY_SHIFT;
    f.ack_short.delay = weft_read_u16(in);
    f.ack_short.credit = weft_read_u16(in);
    f.ack_short.open_from = weft_read_u8(in);
    f.ack_short.ce = weft_read_u8(in);
    f.ack_short.mask = weft_read_u64(in) | UINT64_C(1) << 63;
    frame_deliver(&f);
}

static void op_forge_done(struct weft_reader *in)
{
    struct weft_wire_frame f = {.type = WEFT_FRAME_DONE};
    f.done.status = weft_read_u8(in) & 1;
    f.done.msg = weft_read_u8(in);
    f.done.chunks = weft_read_u16(in);
    f.done.received = weft_read_u16(in);
    f.done.refused = weft_read_u8(in);
    f.done.first = weft_read_u8(in) * 64u;
    f.done.word_count = weft_read_u8(in) % 17;
    for (unsigned i = 0; i < f.done.word_count; i++) {
        f.done.words[i] = UINT64_MAX << (weft_read_u8(in) % 64);
    }
    frame_deliver(&f);
}

static void op_forge_finish(struct weft_reader *in)
{
    struct weft_wire_frame f = {.type = WEFT_FRAME_FINISH};
    f.finish.flags = weft_read_u8(in) & WEFT_FINISH_SHORT;
    f.finish.msg = weft_read_u8(in);
    frame_deliver(&f);
}

/* Several short messages in frames. */
static void op_forge_messages(struct weft_reader *in)
{
    static const uint8_t zeros[64];
    uint8_t body[FORGED_BYTES_MAX];
    uint8_t how = weft_read_u8(in);
    struct weft_writer w = weft_writer_make(body, sizeof(body));
    weft_write_zeros(&w, 2);
    for (unsigned i = 0; i <= how % 3; i++) {
        struct weft_wire_frame f = {.type = WEFT_FRAME_MESSAGE};
        f.message.priority = (how >> 2) & 7;
        f.message.critical = (how >> 5) & 1;
        f.message.msg = weft_read_u8(in);
        f.message.msg -= how & 0x80 ? 128 : 0; /* far below or above */
        f.message.total = 1 + weft_read_u8(in) % 16;
        f.message.chunk_elems = (uint16_t)(f.message.total + (how & 0x40 ? 1 : 0));
        f.message.elem_bytes = 1 + weft_read_u8(in) % 4;
        f.message.tag = i;
        f.message.payload = zeros;
        weft_wire_frame_encode(&w, &f);
    }
    size_t count = (size_t)(w.at - body);
    WEFT_ASSERT(!w.bad);
    w = weft_writer_make(body, 2);
    weft_write_u16(&w, (uint16_t)(count - 2));
    forged_deliver(WEFT_FLAG_CONTROL, 1, body, count);
}

static void op_forge_data(struct weft_reader *in)
{
    struct weft_wire_data d = {0};
    uint8_t how = weft_read_u8(in);
    d.msg = weft_read_u8(in);
    d.chunk = weft_read_u16(in);
    d.total = weft_read_u16(in);
    d.chunk_elems = 1 + (how & 3);
    d.elem_bytes = how & 4 ? 4 : 3;
    d.critical = weft_read_u8(in);
    d.lost_max = weft_read_u8(in);
    d.clock = weft_read_u8(in);
    uint64_t left = d.total - weft_min_u64(d.total, (uint64_t)d.chunk * d.chunk_elems);
    uint8_t body[WEFT_DATA_BYTES + 64];
    struct weft_writer w = weft_writer_make(body, sizeof(body));
    weft_wire_data_encode(&w, &d);
    weft_write_zeros(&w, weft_min_u64(left, d.chunk_elems) * d.elem_bytes);
    uint8_t flags = WEFT_FLAG_DATA | (how & (WEFT_FLAG_PASS_END | WEFT_FLAG_SENDER_LIMITED));
    forged_deliver(flags, 1 + (how >> 7), body, (size_t)(w.at - body));
}

/* A chunk with the short header, of a known or an unknown message. */
static void op_forge_brief(struct weft_reader *in)
{
    uint8_t how = weft_read_u8(in);
    struct weft_wire_data d = {.msg = weft_read_u16(in), .chunk = weft_read_u16(in), .clock = 1};
    uint8_t body[WEFT_BRIEF_BYTES + 64];
    struct weft_writer w = weft_writer_make(body, sizeof(body));
    weft_wire_brief_encode(&w, &d);
    weft_write_zeros(&w, 1 + (how & 31));
    uint8_t flags = WEFT_FLAG_BRIEF | (how & (WEFT_FLAG_PASS_END | WEFT_FLAG_SENDER_LIMITED));
    forged_deliver(flags, 1 + (how >> 7), body, (size_t)(w.at - body));
}

static void op_connect(void)
{
    weft_peer peer;
    if (weft_ep_connect(world.other.at->ep, &world.victim.at->addr, world.net.now_ns, &peer) ==
        WEFT_OK) {
        settle(&world.other);
        carry(0);
        carry(0);
    }
}

static void operation(struct weft_reader *in)
{
    uint8_t op = weft_read_u8(in);
    struct end *e = op & 0x80 ? &world.other : &world.victim;
    for (uint32_t i = 0; world.turns && i < 2; i++) {
        world.net.end[i].ep->credit.round_shared = true;
        world.net.end[i].ep->credit.rounds_shared = true;
    }
    switch (op % 16) {
    case 0:
        op_forge_bytes(in);
        break;
    case 1:
    case 2:
        op_forge_body(in);
        break;
    case 3:
        op & 0x10 ? op_forge_ack_short(in) : op_forge_ack(in);
        break;
    case 4:
        op_forge_done(in);
        break;
    case 5:
        op & 0x10 ? op_forge_messages(in) : op_forge_finish(in);
        break;
    case 6:
        op_forge_data(in);
        break;
    case 7:
        op & 0x10 ? op_forge_brief(in) : op_forge_data(in);
        break;
    case 8:
        op_expect(e, in);
        break;
    case 9:
        op_send(e, in);
        break;
    case 10:
        carry(weft_read_u32(in));
        break;
    case 11:
        carry(0);
        break;
    case 12:
        op_time(in);
        break;
    case 13:
        op_cancel(e, in);
        break;
    case 14:
        op_stranger(in);
        break;
    default:
        if ((op & 0x60) == 0x60 && e->at->toy != NULL) {
            e->failing = !e->failing; /* as after a fork */
            weft_toy_crypto_fail(e->at->toy, e->failing ? WEFT_STATE : WEFT_OK);
        } else if (op & 0x40) {
            weft_ep_close(e->at->ep, 0, world.net.now_ns);
        } else if (op & 0x20) {
            op_connect();
        } else {
            weft_ep_idle(e->at->ep, world.net.now_ns);
        }
        settle(e);
    }
}

static void end_open(struct end *e, uint8_t host, uint16_t packet_bytes, bool rekey)
{
    e->at = &world.net.end[host - 1];
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.name = host;
    config.incarnation = host;
    config.seed = host;
    config.peers_max = PEERS_MAX;
    config.chunks_max = CHUNKS_MAX;
    config.expects_max = SLOTS;
    config.tx_window_max = 256;
    config.rx_window = 64;
    config.unscheduled = 16;
    config.packet_bytes = packet_bytes;
    config.accept = 1;
    config.peer_timeout_ns = WEFT_NS_PER_S;
    config.keepalive_ns = 300 * WEFT_NS_PER_MS;
    config.sleep_timeout_ns = 700 * WEFT_NS_PER_MS; /* one long time step exceeds it */
    config.mode = world.mode;
    config.half_open_max = 1;
    config.rekey_packets = rekey ? 5 : 0;
    if (world.mode != WEFT_MODE_NONE) {
        e->at->toy = weft_toy_crypto_new(host, weft_ep_crypto_slots(PEERS_MAX));
        config.crypto = weft_toy_crypto_ops(e->at->toy);
    }
    weft_status status = weft_ep_new(&config, &e->at->ep);
    WEFT_ASSERT(status == WEFT_OK);
    e->at->msgr = weft_ep_msgr(e->at->ep);
    e->at->addr = addr_make(host);
}

static void end_close(struct end *e)
{
    weft_ep_free(e->at->ep);
    weft_toy_crypto_free(e->at->toy);
    for (unsigned i = 0; i < SLOTS; i++) {
        slot_free(&e->sends[i]);
        slot_free(&e->expects[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint16_t packet_bytes[] = {256, 300, 1472};
    if (size == 0) {
        return 0;
    }
    struct weft_reader in = weft_reader_make(data, size);
    memset(&world, 0, sizeof(world));
    net_init(&world.net, 1);
    world.net.tap = on_sent;
    world.net.on_event = on_event;
    uint8_t first = weft_read_u8(&in);
    uint16_t longest = packet_bytes[first % WEFT_ARRAY_COUNT(packet_bytes)];
    world.mode = first / 3 % 3;
    bool rekey = first / 9 % 2 == 1;
    world.turns = first / 18 % 2 == 1;
    end_open(&world.victim, 1, longest, rekey);
    end_open(&world.other, 2, longest, rekey);
    op_connect();
    for (unsigned i = 0; i < OPERATIONS_MAX && weft_reader_left(&in) > 0; i++) {
        operation(&in);
    }
    net_fini(&world.net);
    end_close(&world.victim);
    end_close(&world.other);
    return 0;
}
