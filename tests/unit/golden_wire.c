/* Bytes encoded by src/wire, src/rpc and src/member, and packets sent by endpoints, a client and
 * shards. */
#include "golden.h"

#include "core_net.h"
#include "member/format.h"
#include "wire/tcp_record.h"

#include <stdio.h>

/* ---- src/wire -------------------------------------------------------------------------------- */

static struct weft_wire_packet header(uint8_t klass, uint8_t flags)
{
    return (struct weft_wire_packet){.klass = klass,
                                     .flags = flags,
                                     .data_count = 0x0102,
                                     .connection_id = 0xa1a2a3a4,
                                     .number = 0x0102030405060708};
}

static void frame(struct golden *g, const char *name, const struct weft_wire_frame *f)
{
    uint8_t control[4096], bytes[4200];
    struct weft_writer c = weft_writer_make(control, sizeof(control));
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet packet = header(WEFT_CLASS_PLAIN, WEFT_FLAG_CONTROL);
    weft_wire_frame_encode(&c, f);
    size_t count = (size_t)(c.at - control);
    weft_wire_header_encode(&w, &packet);
    weft_write_u16(&w, (uint16_t)count);
    weft_write_bytes(&w, control, count);
    assert_false(c.bad || w.bad);
    golden_item(g, bytes, (size_t)(w.at - bytes), "packet with %s", name);
}

static void frames(struct golden *g)
{
    struct weft_wire_frame f = {.type = WEFT_FRAME_ACK};
    f.ack = (struct weft_wire_ack){.word_count = 2,
                                   .note_count = 2,
                                   .flags = WEFT_ACK_IDLE | WEFT_ACK_LATER,
                                   .largest = 130,
                                   .delay = 0x21,
                                   .clock = 0x22232425,
                                   .ect = 0x31323334,
                                   .ce = 0x41424344,
                                   .credit = 0x51525354,
                                   .open_from = 0x61626364,
                                   .words = {5, 0xfff0ffffffffffff},
                                   .notes = {{3, 17}, {4, 0}}};
    frame(g, "ACK", &f);
    f.ack.delay_step = 44;
    frame(g, "ACK that announces a delay", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_ACK_SHORT};
    f.ack_short = (struct weft_wire_ack_short){.flags = WEFT_ACK_LATER,
                                               .delay_step = 44,
                                               .largest = 0x11121314,
                                               .delay = 0x2122,
                                               .credit = 0x5152,
                                               .open_from = 0x61,
                                               .ce = 0x41,
                                               .mask = 0xfff0ffffffffff81};
    frame(g, "ACK_SHORT", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_DONE};
    f.done = (struct weft_wire_done){.status = WEFT_DONE_SHORT,
                                     .word_count = 2,
                                     .msg = 0x71727374,
                                     .chunks = 200,
                                     .received = 150,
                                     .refused = 2,
                                     .first = 128,
                                     .words = {0x0f00000000000081, 0x80}};
    frame(g, "DONE", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_FINISH,
                                 .finish = {WEFT_FINISH_SHORT, 0x71727374}};
    frame(g, "FINISH", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_PING};
    frame(g, "PING", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_PATH_CHALLENGE, .token = 0x1122334455667788};
    frame(g, "PATH_CHALLENGE", &f);
    f.type = WEFT_FRAME_PATH_RESPONSE;
    frame(g, "PATH_RESPONSE", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_CLOSE, .close_code = WEFT_CLOSE_REPLACED};
    frame(g, "CLOSE", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_CRITICAL};
    f.critical = (struct weft_wire_critical){
        .word_count = 2, .msg = 0x71727374, .chunks = 200, .first = 128, .words = {0x81, 0x80}};
    frame(g, "CRITICAL", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_PADDING, .padding_bytes = 5};
    frame(g, "PADDING", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_BACKLOG, .backlog_end = 0x71727374};
    frame(g, "BACKLOG", &f);
    f = (struct weft_wire_frame){.type = WEFT_FRAME_MESSAGE};
    f.message = (struct weft_wire_message){.priority = 3,
                                           .critical = 1,
                                           .chunk_elems = 4,
                                           .elem_bytes = 3,
                                           .msg = 0x71727374,
                                           .total = 2,
                                           .tag = 0x8182838485868788,
                                           .payload = (const uint8_t *)"\xd1\xd2\xd3\xd4\xd5\xd6"};
    frame(g, "MESSAGE", &f);
}

/* A header, and the chunk that its flags describe. */
static void chunk(struct golden *g, const char *name, uint8_t klass, uint8_t flags)
{
    static const uint8_t payload[12] = {0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9};
    const struct weft_wire_data data = {.msg = 0x71727374,
                                        .chunk = 3,
                                        .total = 16,
                                        .chunk_elems = 4,
                                        .elem_bytes = 3,
                                        .critical = 2,
                                        .lost_max = 1,
                                        .tag = 0x8182838485868788,
                                        .clock = 0x91929394,
                                        .payload = payload};
    uint8_t bytes[256];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet packet = header(klass, flags);
    weft_wire_header_encode(&w, &packet);
    if (flags & WEFT_FLAG_CONTROL) {
        weft_write_u16(&w, WEFT_PING_BYTES);
        weft_wire_frame_encode(&w, &(struct weft_wire_frame){.type = WEFT_FRAME_PING});
    }
    if (weft_wire_is_brief(flags)) {
        weft_wire_brief_encode(&w, &data);
    } else if (weft_wire_has_chunk(flags)) {
        weft_wire_data_encode(&w, &data);
    }
    weft_write_bytes(&w, payload, sizeof(payload));
    assert_false(w.bad);
    golden_item(g, bytes, (size_t)(w.at - bytes), "%s", name);
}

static void chunks(struct golden *g)
{
    const uint8_t all = WEFT_FLAG_KEY_PHASE | WEFT_FLAG_PASS_END | WEFT_FLAG_SENDER_LIMITED;
    chunk(g, "DATA packet", WEFT_CLASS_PLAIN, WEFT_FLAG_DATA | 3 << 2);
    chunk(g, "DATA packet, AUTH", WEFT_CLASS_AUTH, WEFT_FLAG_DATA | WEFT_FLAG_KEY_PHASE);
    chunk(g, "DATA packet, SEAL", WEFT_CLASS_SEAL, WEFT_FLAG_DATA | all);
    chunk(g, "BRIEF packet", WEFT_CLASS_PLAIN, WEFT_FLAG_BRIEF | WEFT_FLAG_PASS_END);
    chunk(g, "BRIEF packet with control", WEFT_CLASS_SEAL, WEFT_FLAG_BRIEF | WEFT_FLAG_CONTROL);
    chunk(g, "DATA packet with control", WEFT_CLASS_PLAIN,
          WEFT_FLAG_DATA | WEFT_FLAG_CONTROL | all);
}

static void fill(uint8_t *bytes, size_t count, uint8_t from)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(from + i);
    }
}

static void hellos(struct golden *g)
{
    uint8_t bytes[WEFT_HELLO_BYTES];
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
        struct weft_wire_hello hello = {.mode = mode,
                                        .key_id = mode == WEFT_MODE_NONE ? 0 : 0xa1a2,
                                        .connection_id = 0xc1c2c3c4,
                                        .incarnation = 0x1112131415161718,
                                        .name = 0x0000000200000003,
                                        .open_from = 0x2122232425262728,
                                        .clock = 0x51525354,
                                        .unscheduled = 64,
                                        .packet_bytes_max = 1472};
        struct weft_wire_accept accept = {.mode = mode,
                                          .key_id = hello.key_id,
                                          .connection_id = 0xc1c2c3c4,
                                          .own_connection_id = 0xe1e2e3e4,
                                          .clock = 0x51525354,
                                          .incarnation = 0x1112131415161718,
                                          .name = 0x0000000100000000,
                                          .open_from = 0x2122232425262728,
                                          .unscheduled = 32,
                                          .packet_bytes_max = 9000};
        if (mode != WEFT_MODE_NONE) {
            fill(hello.cookie, sizeof(hello.cookie), 0x40);
            fill(hello.ephemeral, sizeof(hello.ephemeral), 0x80);
            fill(hello.tag, sizeof(hello.tag), 0xf0);
            fill(hello.mac, sizeof(hello.mac), 0xb0);
            fill(accept.ephemeral, sizeof(accept.ephemeral), 0x80);
            fill(accept.tag, sizeof(accept.tag), 0xf0);
            fill(accept.mac, sizeof(accept.mac), 0xb0);
        }
        weft_wire_hello_encode(&w, &hello);
        golden_item(g, bytes, (size_t)(w.at - bytes), "HELLO, mode %u", mode);
        w = weft_writer_make(bytes, sizeof(bytes));
        weft_wire_accept_encode(&w, &accept);
        golden_item(g, bytes, (size_t)(w.at - bytes), "ACCEPT, mode %u", mode);
    }
}

static void answers(struct golden *g)
{
    uint8_t bytes[WEFT_COOKIE_BYTES];
    struct weft_wire_cookie cookie = {.connection_id = 0xc1c2c3c4};
    struct weft_wire_unknown unknown = {.connection_id = 0xc1c2c3c4, .number = 0x31323334,
                                        .incarnation = 0x5152535455560000};
    fill(cookie.cookie, sizeof(cookie.cookie), 0x40);
    fill(cookie.mac, sizeof(cookie.mac), 0xb0);
    fill(unknown.mac, sizeof(unknown.mac), 0xb0);
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_cookie_encode(&w, &cookie);
    golden_item(g, bytes, (size_t)(w.at - bytes), "COOKIE");
    w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_unknown_encode(&w, &unknown);
    golden_item(g, bytes, (size_t)(w.at - bytes), "UNKNOWN");
    for (uint8_t reason = WEFT_REFUSED_VERSION; reason <= WEFT_REFUSED_CLOSED; reason++) {
        const struct weft_wire_refused refused = {
            .reason = reason, .mode = WEFT_MODE_AUTH, .connection_id = 0xc1c2c3c4};
        w = weft_writer_make(bytes, sizeof(bytes));
        weft_wire_refused_encode(&w, &refused);
        golden_item(g, bytes, (size_t)(w.at - bytes), "REFUSED, reason %u", reason);
    }
}

/* Records of TCP. */
static void records(struct golden *g)
{
    uint8_t bytes[16];
    for (uint8_t klass = WEFT_CLASS_PLAIN; klass <= WEFT_CLASS_SEAL; klass++) {
        weft_wire_record_head_encode(bytes, klass, WEFT_FLAG_CONTROL | WEFT_FLAG_DATA, 0x1234);
        golden_item(g, bytes, WEFT_WIRE_RECORD_HEAD_BYTES, "record, class %u", klass);
    }
    for (int type = WEFT_FRAME_BLOCKED; type <= WEFT_FRAME_READY; type++) {
        struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
        weft_wire_blocked_encode(&w, (enum weft_wire_record_frame_type)type, 0x71727374);
        golden_item(g, bytes, (size_t)(w.at - bytes), "record frame %d", type);
    }
}

/* ---- src/member ------------------------------------------------------------------------------ */

static void members(struct golden *g)
{
    static uint8_t
        bytes[WEFT_MEMBER_REPLY_BYTES + WEFT_MEMBER_SHARDS_MAX * WEFT_MEMBER_ADDRESS_BYTES];
    char names[2048] = "";
    struct weft_member_request q = {.rpc_id = 0x01020304,
                                    .role = WEFT_ROLE_SERVER,
                                    .member = 0x1112131415161718,
                                    .incarnation = 0x21,
                                    .rank = WEFT_MEMBER_NONE,
                                    .workers = 0x3132,
                                    .shards = 0x41,
                                    .first = 0x51,
                                    .span = 2,
                                    .epoch = 0x61,
                                    .job = "j.1",
                                    .count = 2};
    struct weft_member_reply a = {.rpc_id = 9,
                                  .status = WEFT_MEMBER_CLAIMED,
                                  .rank = 1,
                                  .first = WEFT_MEMBER_NONE,
                                  .workers = 3,
                                  .shards = 4,
                                  .epoch = 5,
                                  .version = 6,
                                  .lease_ms = 7,
                                  .retry_ms = 8,
                                  .detail = 10,
                                  .flags = WEFT_MEMBER_JOB_DONE,
                                  .job = "j.1",
                                  .count = 1};
    fill(q.addresses[0].ip, 16, 0x70);
    fill(q.addresses[1].ip, 16, 0x80);
    q.addresses[0].port = 0x7374;
    q.addresses[1].port = 0x7576;
    a.addresses[0] = q.addresses[0];
    golden_item(g, bytes, weft_member_request_pack(&q, bytes), "member request REGISTER");
    q.count = 0;
    q.flags = WEFT_MEMBER_DONE;
    golden_item(g, bytes, weft_member_request_pack(&q, bytes), "member request LEAVE");
    golden_item(g, bytes, weft_member_reply_pack(&a, bytes), "member reply");
    for (uint16_t s = 0; s < WEFT_MEMBER_STATUS_COUNT; s++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%u %s\n", s,
                       weft_member_status_name(s));
    }
    golden_item(g, names, strlen(names), "member statuses");
}

void golden_wire(void **state)
{
    (void)state;
    struct golden *g = golden_begin("wire");
    frames(g);
    chunks(g);
    hellos(g);
    answers(g);
    records(g);
    members(g);
    golden_end(g);
}

/* ---- what two endpoints send each other ------------------------------------------------------ */

/* The first packet of each class from each end. The clock is virtual and the cryptography a toy, so
 * that MACs, cookies and tags are reproducible: they depend on the authenticated bytes. */
static void kept_add(struct golden *g, const struct net *net, const char *about)
{
    bool seen[ENDS_MAX][16] = {{false}};
    for (uint32_t i = 0; i < net->kept_count; i++) {
        const struct net_datagram *d = &net->kept[i];
        uint32_t from = memcmp(&d->from, &net->end[0].addr, sizeof(d->from)) == 0 ? 0 : 1;
        unsigned klass = d->data[0] & 15;
        if (!seen[from][klass]) {
            golden_item(g, d->data, d->bytes, "%s: first of class %u from end %u", about, klass,
                        from);
        }
        seen[from][klass] = true;
    }
}

static void run(struct golden *g, struct net *net, const char *about)
{
    static const uint8_t bytes[64] = "sixteen floats of a message";
    static uint8_t memory[64];
    net->keep = true;
    weft_peer peer = net_connect(net, 0, 1);
    net_message(net, 0, peer, 1, bytes, sizeof(bytes), memory);
    net_run(net, 50 * WEFT_NS_PER_MS);
    kept_add(g, net, about);
    net_free(net);
}

/* A packet for an unknown connection. */
static void stranger(struct golden *g)
{
    uint8_t bytes[64] = {0};
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet packet = header(WEFT_CLASS_AUTH, WEFT_FLAG_CONTROL);
    weft_wire_header_encode(&w, &packet);
    weft_write_u16(&w, WEFT_PING_BYTES);
    weft_wire_frame_encode(&w, &(struct weft_wire_frame){.type = WEFT_FRAME_PING});
    net->keep = true;
    net_deliver(net, &net->end[1], &net->end[0].addr, bytes,
                (size_t)(w.at - bytes) + WEFT_TAG_BYTES);
    net_run(net, WEFT_NS_PER_MS);
    kept_add(g, net, "stranger");
    net_free(net);
}

void golden_handshake(void **state)
{
    (void)state;
    struct golden *g = golden_begin("handshake");
    run(g, net_new(WEFT_MODE_NONE, WEFT_MODE_NONE), "none");
    run(g, net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH), "auth");
    run(g, net_new(WEFT_MODE_SEAL, WEFT_MODE_SEAL), "seal");
    run(g, net_new(WEFT_MODE_NONE, WEFT_MODE_AUTH), "refused");
    /* The acceptor replies to no handshake before it has the cookie. */
    struct net *net = calloc(1, sizeof(*net));
    struct weft_ep_config config;
    net->now_ns = WEFT_NS_PER_S;
    for (uint32_t end = 0; end < 2; end++) {
        net_config(&config, WEFT_MODE_SEAL);
        config.incarnation = 10 + end;
        config.half_open_max = 0;
        net_open(net, end, &config);
    }
    run(g, net, "cookie");
    stranger(g);
    golden_end(g);
}
