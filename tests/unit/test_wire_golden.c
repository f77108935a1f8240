/* Every packet and frame compared with the bytes of wire_golden.h: the bytes decode to these
 * fields, and these fields encode to the bytes. */
#include "wire/packet.h"
#include "wire_golden.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { OUT_BYTES = 256 };

/* Decode the header and, if present, the first frame of the control block. */
static struct weft_wire_packet check_packet(const uint8_t *bytes, size_t count, uint8_t klass,
                                            uint8_t flags)
{
    uint8_t version = 0;
    uint8_t class_seen = 0;
    assert_int_equal(weft_wire_classify(bytes, count, &version, &class_seen), WEFT_OK);
    assert_int_equal(version, 2);
    assert_int_equal(class_seen, klass);
    struct weft_wire_packet p;
    assert_int_equal(weft_wire_packet_decode(bytes, count, &p), WEFT_OK);
    assert_int_equal(p.klass, klass);
    assert_int_equal(p.flags, flags);
    assert_int_equal(p.data_count, 0x0102);
    assert_int_equal(p.connection_id, 0xa1a2a3a4);
    bool whole = weft_wire_header_bytes(flags) == WEFT_HEADER_BYTES;
    assert_int_equal(p.number, whole ? UINT64_C(0x0102030405060708) : 0x05060708);
    return p;
}

/* A packet of one frame: decoded, then encoded again. */
static void check_frame(const uint8_t *bytes, size_t count, bool eliciting,
                        struct weft_wire_frame *frame_p)
{
    struct weft_wire_packet p = check_packet(bytes, count, WEFT_CLASS_PLAIN, WEFT_FLAG_CONTROL);
    assert_null(p.data);
    assert_ptr_equal(p.control, bytes + 18);
    assert_int_equal(p.control_bytes, count - 18);
    bool eliciting_seen = !eliciting;
    assert_int_equal(weft_wire_control_check(p.control, p.control_bytes, &eliciting_seen), WEFT_OK);
    assert_int_equal(eliciting_seen, eliciting);
    struct weft_reader r = weft_reader_make(p.control, p.control_bytes);
    assert_true(weft_wire_frame_decode(&r, frame_p));
    assert_int_equal(weft_reader_left(&r), 0);
    struct weft_wire_frame none;
    assert_false(weft_wire_frame_decode(&r, &none));
    assert_false(r.bad);

    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_header_encode(&w, &p);
    weft_write_u16(&w, (uint16_t)p.control_bytes);
    weft_wire_frame_encode(&w, frame_p);
    assert_false(w.bad);
    assert_int_equal(w.at - out, count);
    assert_memory_equal(out, bytes, count);
}

static void sizes_are_those_of_the_tables(void **state)
{
    (void)state;
    assert_int_equal(sizeof(GOLDEN_HELLO), 120);
    assert_int_equal(sizeof(GOLDEN_HELLO_AUTH), 120);
    assert_int_equal(sizeof(GOLDEN_ACCEPT), 112);
    assert_int_equal(sizeof(GOLDEN_ACCEPT_SEAL), 112);
    assert_int_equal(sizeof(GOLDEN_COOKIE), 40);
    assert_int_equal(sizeof(GOLDEN_UNKNOWN), 32);
    assert_int_equal(sizeof(GOLDEN_REFUSED), 8);
    assert_int_equal(WEFT_HELLO_BYTES, 120);
    assert_int_equal(WEFT_ACCEPT_BYTES, 112);
    assert_int_equal(WEFT_COOKIE_BYTES, 40);
    assert_int_equal(WEFT_UNKNOWN_BYTES, 32);
    assert_int_equal(WEFT_REFUSED_BYTES, 8);
    assert_int_equal(WEFT_HEADER_BYTES, 16);
    assert_int_equal(WEFT_HEADER_BRIEF_BYTES, 12);
    assert_int_equal(WEFT_DATA_BYTES, 32);
    assert_int_equal(WEFT_BRIEF_BYTES, 8);
    assert_int_equal(WEFT_TAG_BYTES, 16);
    assert_int_equal(WEFT_DATA_OVERHEAD_BYTES, 64);
    assert_int_equal(1472 - WEFT_DATA_OVERHEAD_BYTES, 1408);
    assert_int_equal(WEFT_ACK_BYTES, 36);
    assert_int_equal(WEFT_ACK_SHORT_BYTES, 20);
    assert_int_equal(WEFT_DONE_BYTES, 24);
    assert_int_equal(WEFT_CRITICAL_BYTES, 16);
    assert_int_equal(WEFT_FINISH_BYTES, 6);
    assert_int_equal(WEFT_PING_BYTES, 1);
    assert_int_equal(WEFT_PATH_BYTES, 9);
    assert_int_equal(WEFT_CLOSE_BYTES, 3);
    assert_int_equal(WEFT_PADDING_BYTES, 3);
    assert_int_equal(WEFT_BACKLOG_BYTES, 5);
    assert_int_equal(WEFT_ACK_WORDS_MAX, 32);
    assert_int_equal(WEFT_ACK_NOTES_MAX, 32);
    assert_int_equal(WEFT_DONE_WORDS_MAX, 160);
}

static void constants_are_those_of_the_tables(void **state)
{
    (void)state;
    assert_int_equal(WEFT_CLASS_PLAIN, 0);
    assert_int_equal(WEFT_CLASS_AUTH, 1);
    assert_int_equal(WEFT_CLASS_SEAL, 2);
    assert_int_equal(WEFT_CLASS_HELLO, 8);
    assert_int_equal(WEFT_CLASS_ACCEPT, 9);
    assert_int_equal(WEFT_CLASS_COOKIE, 10);
    assert_int_equal(WEFT_CLASS_UNKNOWN, 11);
    assert_int_equal(WEFT_CLASS_REFUSED, 12);
    assert_int_equal(WEFT_FLAG_KEY_PHASE, 0x80);
    assert_int_equal(WEFT_FLAG_PASS_END, 0x40);
    assert_int_equal(WEFT_FLAG_SENDER_LIMITED, 0x20);
    assert_int_equal(WEFT_FLAG_PRIORITY, 0x1c);
    assert_int_equal(WEFT_FLAG_BRIEF, 0x10);
    assert_int_equal(WEFT_FLAG_CONTROL, 0x02);
    assert_int_equal(WEFT_FLAG_DATA, 0x01);
    assert_int_equal(WEFT_MODE_NONE, 0);
    assert_int_equal(WEFT_MODE_AUTH, 1);
    assert_int_equal(WEFT_MODE_SEAL, 2);
    assert_int_equal(WEFT_ACK_IDLE, 1);
    assert_int_equal(WEFT_ACK_LATER, 2);
    assert_int_equal(WEFT_ACK_DELAY_SHIFT, 2);
    assert_int_equal(WEFT_DONE_COMPLETE, 0);
    assert_int_equal(WEFT_DONE_SHORT, 1);
    assert_int_equal(WEFT_FINISH_SHORT, 1);
    assert_int_equal(WEFT_REFUSED_VERSION, 1);
    assert_int_equal(WEFT_REFUSED_KEY, 2);
    assert_int_equal(WEFT_REFUSED_MODE, 3);
    assert_int_equal(WEFT_REFUSED_FULL, 4);
    assert_int_equal(WEFT_REFUSED_CLOSED, 5);
    assert_int_equal(WEFT_CLOSE_FINISHED, 0);
    assert_int_equal(WEFT_CLOSE_SILENT, 1);
    assert_int_equal(WEFT_CLOSE_PROTOCOL, 2);
    assert_int_equal(WEFT_CLOSE_IDLE, 3);
    assert_int_equal(WEFT_CLOSE_REPLACED, 4);
}

static void ack(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_ACK, sizeof(GOLDEN_ACK), false, &f);
    assert_int_equal(f.type, WEFT_FRAME_ACK);
    assert_int_equal(f.ack.word_count, 2);
    assert_int_equal(f.ack.note_count, 2);
    assert_int_equal(f.ack.flags, WEFT_ACK_IDLE);
    assert_int_equal(f.ack.delay_step, 0);
    assert_int_equal(f.ack.largest, 130);
    assert_int_equal(f.ack.delay, 0x21);
    assert_int_equal(f.ack.clock, 0x22232425);
    assert_int_equal(f.ack.ect, 0x31323334);
    assert_int_equal(f.ack.ce, 0x41424344);
    assert_int_equal(f.ack.credit, 0x51525354);
    assert_int_equal(f.ack.open_from, 0x61626364);
    assert_int_equal(f.ack.words[0], 5);
    assert_int_equal(f.ack.words[1], UINT64_C(0xfff0ffffffffffff));
    assert_int_equal(f.ack.notes[0].msg, 3);
    assert_int_equal(f.ack.notes[0].received, 17);
    assert_int_equal(f.ack.notes[1].msg, 4);
    assert_int_equal(f.ack.notes[1].received, 0);
}

static void ack_of_nothing(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_ACK_NONE_YET, sizeof(GOLDEN_ACK_NONE_YET), false, &f);
    assert_int_equal(f.ack.largest, 0);
    assert_int_equal(f.ack.word_count, 0);
    assert_int_equal(f.ack.credit, 64);
    assert_int_equal(f.ack.open_from, 1);
}

static void ack_short(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_ACK_SHORT, sizeof(GOLDEN_ACK_SHORT), false, &f);
    assert_int_equal(f.type, WEFT_FRAME_ACK_SHORT);
    assert_int_equal(f.ack_short.flags, WEFT_ACK_LATER);
    assert_int_equal(f.ack_short.delay_step, 44);
    assert_int_equal(f.ack_short.largest, 0x11121314);
    assert_int_equal(f.ack_short.delay, 0x2122);
    assert_int_equal(f.ack_short.credit, 0x5152);
    assert_int_equal(f.ack_short.open_from, 0x61);
    assert_int_equal(f.ack_short.ce, 0x41);
    assert_int_equal(f.ack_short.mask, UINT64_C(0xfff0ffffffffff81));
}

static void done(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_DONE, sizeof(GOLDEN_DONE), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_DONE);
    assert_int_equal(f.done.status, WEFT_DONE_SHORT);
    assert_int_equal(f.done.word_count, 2);
    assert_int_equal(f.done.msg, 0x71727374);
    assert_int_equal(f.done.chunks, 200);
    assert_int_equal(f.done.received, 150);
    assert_int_equal(f.done.refused, 2);
    assert_int_equal(f.done.first, 128);
    assert_int_equal(f.done.words[0], UINT64_C(0x0f00000000000081));
    assert_int_equal(f.done.words[1], 0x80);
    check_frame(GOLDEN_DONE_ALL, sizeof(GOLDEN_DONE_ALL), true, &f);
    assert_int_equal(f.done.status, WEFT_DONE_COMPLETE);
    assert_int_equal(f.done.word_count, 0);
    assert_int_equal(f.done.received, 100);
}

static void critical(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_CRITICAL, sizeof(GOLDEN_CRITICAL), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_CRITICAL);
    assert_int_equal(f.critical.word_count, 2);
    assert_int_equal(f.critical.msg, 0x71727374);
    assert_int_equal(f.critical.chunks, 200);
    assert_int_equal(f.critical.first, 128);
    assert_int_equal(f.critical.words[0], 0x81);
    assert_int_equal(f.critical.words[1], 0x80);
}

static void small_frames(void **state)
{
    (void)state;
    struct weft_wire_frame f;
    check_frame(GOLDEN_FINISH, sizeof(GOLDEN_FINISH), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_FINISH);
    assert_int_equal(f.finish.flags, WEFT_FINISH_SHORT);
    assert_int_equal(f.finish.msg, 0x71727374);
    check_frame(GOLDEN_PING, sizeof(GOLDEN_PING), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_PING);
    check_frame(GOLDEN_CHALLENGE, sizeof(GOLDEN_CHALLENGE), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_PATH_CHALLENGE);
    assert_int_equal(f.token, UINT64_C(0x1122334455667788));
    check_frame(GOLDEN_RESPONSE, sizeof(GOLDEN_RESPONSE), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_PATH_RESPONSE);
    assert_int_equal(f.token, UINT64_C(0x8877665544332211));
    check_frame(GOLDEN_CLOSE, sizeof(GOLDEN_CLOSE), false, &f);
    assert_int_equal(f.type, WEFT_FRAME_CLOSE);
    assert_int_equal(f.close_code, WEFT_CLOSE_PROTOCOL);
    check_frame(GOLDEN_PADDING, sizeof(GOLDEN_PADDING), false, &f);
    assert_int_equal(f.type, WEFT_FRAME_PADDING);
    assert_int_equal(f.padding_bytes, 3);
    check_frame(GOLDEN_BACKLOG, sizeof(GOLDEN_BACKLOG), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_BACKLOG);
    assert_int_equal(f.backlog_end, 0x71727374);
}

static void message(void **state)
{
    (void)state;
    static const uint8_t payload[] = {0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6};
    struct weft_wire_frame f;
    check_frame(GOLDEN_MESSAGE, sizeof(GOLDEN_MESSAGE), true, &f);
    assert_int_equal(f.type, WEFT_FRAME_MESSAGE);
    assert_int_equal(f.message.priority, 3);
    assert_int_equal(f.message.critical, 1);
    assert_int_equal(f.message.msg, 0x71727374);
    assert_int_equal(f.message.total, 2);
    assert_int_equal(f.message.chunk_elems, 4);
    assert_int_equal(f.message.elem_bytes, 3);
    assert_int_equal(f.message.tag, UINT64_C(0x8182838485868788));
    assert_memory_equal(f.message.payload, payload, sizeof(payload));
}

static void check_data_again(const struct weft_wire_packet *p, const struct weft_wire_data *d,
                             const uint8_t *bytes, size_t count)
{
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_header_encode(&w, p);
    if (p->control != NULL) {
        weft_write_u16(&w, (uint16_t)p->control_bytes);
        weft_write_bytes(&w, p->control, p->control_bytes);
    }
    weft_wire_data_encode(&w, d);
    weft_write_bytes(&w, d->payload, (size_t)d->elems * d->elem_bytes);
    assert_int_equal(w.at - out, count);
    assert_memory_equal(out, bytes, count);
}

static void data(void **state)
{
    (void)state;
    struct weft_wire_packet p = check_packet(GOLDEN_DATA, sizeof(GOLDEN_DATA), WEFT_CLASS_PLAIN,
                                             WEFT_FLAG_DATA | WEFT_FLAG_PASS_END | 3 << 2);
    assert_null(p.control);
    struct weft_wire_data d;
    assert_int_equal(weft_wire_data_decode(p.data, p.data_bytes, &d), WEFT_OK);
    assert_int_equal(d.msg, 0x71727374);
    assert_int_equal(d.chunk, 3);
    assert_int_equal(d.total, 13);
    assert_int_equal(d.chunk_elems, 4);
    assert_int_equal(d.elem_bytes, 3);
    assert_int_equal(d.critical, 2);
    assert_int_equal(d.lost_max, 1);
    assert_int_equal(d.tag, UINT64_C(0x8182838485868788));
    assert_int_equal(d.clock, 0x91929394);
    assert_int_equal(d.chunks, 4);
    assert_int_equal(d.elems, 1);
    assert_ptr_equal(d.payload, GOLDEN_DATA + 48);
    check_data_again(&p, &d, GOLDEN_DATA, sizeof(GOLDEN_DATA));
}

/* The grid of GOLDEN_DATA: 13 elements of 3 bytes, 4 per chunk. */
static void brief(void **state)
{
    (void)state;
    struct weft_wire_packet p = check_packet(GOLDEN_BRIEF, sizeof(GOLDEN_BRIEF), WEFT_CLASS_PLAIN,
                                             WEFT_FLAG_BRIEF | WEFT_FLAG_PASS_END);
    assert_null(p.control);
    struct weft_wire_brief b;
    assert_int_equal(weft_wire_brief_decode(p.data, p.data_bytes, &b), WEFT_OK);
    assert_int_equal(b.msg, 0x31f3);
    assert_int_equal(b.chunk, 3);
    assert_int_equal(b.clock, 0x91929394);
    assert_ptr_equal(b.payload, GOLDEN_BRIEF + 20);
    assert_int_equal(b.payload_bytes, 3);
    struct weft_wire_data d = {
        .msg = 0x000331f3, .total = 13, .chunk_elems = 4, .elem_bytes = 3, .lost_max = 1};
    assert_int_equal(weft_wire_brief_complete(&b, &d), WEFT_OK);
    assert_int_equal(d.chunks, 4);
    assert_int_equal(d.elems, 1);
    uint8_t out[OUT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_header_encode(&w, &p);
    weft_wire_brief_encode(&w, &d);
    weft_write_bytes(&w, d.payload, (size_t)d.elems * d.elem_bytes);
    assert_int_equal(w.at - out, sizeof(GOLDEN_BRIEF));
    assert_memory_equal(out, GOLDEN_BRIEF, sizeof(GOLDEN_BRIEF));
}

static void control_and_data(void **state)
{
    (void)state;
    struct weft_wire_packet p =
        check_packet(GOLDEN_BOTH, sizeof(GOLDEN_BOTH), WEFT_CLASS_PLAIN, 0xff);
    assert_ptr_equal(p.control, GOLDEN_BOTH + 18);
    assert_int_equal(p.control_bytes, 4);
    struct weft_wire_data d;
    assert_int_equal(weft_wire_data_decode(p.data, p.data_bytes, &d), WEFT_OK);
    float value = 0;
    assert_int_equal(d.elem_bytes, sizeof(value));
    memcpy(&value, d.payload, sizeof(value));
    assert_true(value == 1.0F);
    check_data_again(&p, &d, GOLDEN_BOTH, sizeof(GOLDEN_BOTH));
}

/* The 16 bytes of the tag belong to neither the control block nor the chunk. */
static void auth_and_seal_end_in_a_tag(void **state)
{
    (void)state;
    struct weft_wire_packet p =
        check_packet(GOLDEN_AUTH, sizeof(GOLDEN_AUTH), WEFT_CLASS_AUTH, WEFT_FLAG_DATA);
    assert_int_equal(p.data_bytes, sizeof(GOLDEN_AUTH) - 16 - 16);
    struct weft_wire_data d;
    assert_int_equal(weft_wire_data_decode(p.data, p.data_bytes, &d), WEFT_OK);
    assert_int_equal(d.payload[1], 0xd2);
    p = check_packet(GOLDEN_SEAL, sizeof(GOLDEN_SEAL), WEFT_CLASS_SEAL,
                     WEFT_FLAG_KEY_PHASE | WEFT_FLAG_CONTROL);
    assert_int_equal(p.control_bytes, 1);
    assert_null(p.data);
}

static void check_hello(const uint8_t *bytes, uint8_t mode, struct weft_wire_hello *hello_p)
{
    assert_int_equal(weft_wire_hello_decode(bytes, 120, hello_p), WEFT_OK);
    assert_int_equal(hello_p->mode, mode);
    assert_int_equal(hello_p->connection_id, 0xc1c2c3c4);
    assert_int_equal(hello_p->incarnation, UINT64_C(0x1112131415161718));
    assert_int_equal(hello_p->name, UINT64_C(0x0000000200000003));
    assert_int_equal(hello_p->open_from, UINT64_C(0x2122232425262728));
    assert_int_equal(hello_p->clock, 0x51525354);
    assert_int_equal(hello_p->unscheduled, 64);
    assert_int_equal(hello_p->packet_bytes_max, 1472);
    assert_memory_equal(hello_p->cookie, bytes + 40, 16);
    assert_memory_equal(hello_p->ephemeral, bytes + 56, 32);
    assert_memory_equal(hello_p->tag, bytes + 88, 16);
    assert_memory_equal(hello_p->mac, bytes + 104, 16);
    assert_int_equal(hello_p->key_id, mode == WEFT_MODE_NONE ? 0 : 0xa1a2);
    uint8_t out[WEFT_HELLO_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_hello_encode(&w, hello_p);
    assert_int_equal(weft_writer_left(&w), 0);
    assert_false(w.bad);
    assert_memory_equal(out, bytes, sizeof(out));
}

static void hello(void **state)
{
    (void)state;
    struct weft_wire_hello h;
    check_hello(GOLDEN_HELLO, WEFT_MODE_NONE, &h);
    assert_int_equal(h.cookie[15], 0x4f);
    check_hello(GOLDEN_HELLO_AUTH, WEFT_MODE_AUTH, &h);
    assert_int_equal(h.ephemeral[31], 0x9f);
    assert_int_equal(h.tag[0], 0xf0);
}

static void check_accept(const uint8_t *bytes, uint8_t mode, struct weft_wire_accept *accept_p)
{
    assert_int_equal(weft_wire_accept_decode(bytes, 112, accept_p), WEFT_OK);
    assert_int_equal(accept_p->mode, mode);
    assert_int_equal(accept_p->connection_id, 0xc1c2c3c4);
    assert_int_equal(accept_p->own_connection_id, 0xe1e2e3e4);
    assert_int_equal(accept_p->clock, 0x51525354);
    assert_int_equal(accept_p->incarnation, UINT64_C(0x1112131415161718));
    assert_int_equal(accept_p->name, UINT64_C(0x0000000100000000));
    assert_int_equal(accept_p->open_from, UINT64_C(0x2122232425262728));
    assert_int_equal(accept_p->unscheduled, 32);
    assert_int_equal(accept_p->packet_bytes_max, 9000);
    assert_memory_equal(accept_p->ephemeral, bytes + 48, 32);
    assert_memory_equal(accept_p->tag, bytes + 80, 16);
    assert_memory_equal(accept_p->mac, bytes + 96, 16);
    assert_int_equal(accept_p->key_id, mode == WEFT_MODE_NONE ? 0 : 0xa1a2);
    uint8_t out[WEFT_ACCEPT_BYTES];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_accept_encode(&w, accept_p);
    assert_int_equal(weft_writer_left(&w), 0);
    assert_false(w.bad);
    assert_memory_equal(out, bytes, sizeof(out));
}

static void accept_packet(void **state)
{
    (void)state;
    struct weft_wire_accept a;
    check_accept(GOLDEN_ACCEPT, WEFT_MODE_NONE, &a);
    check_accept(GOLDEN_ACCEPT_SEAL, WEFT_MODE_SEAL, &a);
    assert_int_equal(a.ephemeral[0], 0x80);
    assert_int_equal(a.tag[15], 0xff);
}

static void cookie_unknown_and_refused(void **state)
{
    (void)state;
    uint8_t out[WEFT_COOKIE_BYTES];
    struct weft_wire_cookie c;
    assert_int_equal(weft_wire_cookie_decode(GOLDEN_COOKIE, sizeof(GOLDEN_COOKIE), &c), WEFT_OK);
    assert_int_equal(c.connection_id, 0xc1c2c3c4);
    assert_memory_equal(c.cookie, GOLDEN_COOKIE + 8, 16);
    assert_memory_equal(c.mac, GOLDEN_COOKIE + 24, 16);
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_wire_cookie_encode(&w, &c);
    assert_memory_equal(out, GOLDEN_COOKIE, sizeof(GOLDEN_COOKIE));

    struct weft_wire_unknown u;
    assert_int_equal(weft_wire_unknown_decode(GOLDEN_UNKNOWN, sizeof(GOLDEN_UNKNOWN), &u), WEFT_OK);
    assert_int_equal(u.connection_id, 0xc1c2c3c4);
    assert_int_equal(u.number, 0x31323334);
    assert_int_equal(u.incarnation, UINT64_C(0x5152535455560000));
    assert_memory_equal(u.mac, GOLDEN_UNKNOWN + 16, 16);
    w = weft_writer_make(out, sizeof(out));
    weft_wire_unknown_encode(&w, &u);
    assert_memory_equal(out, GOLDEN_UNKNOWN, sizeof(GOLDEN_UNKNOWN));

    struct weft_wire_refused f;
    assert_int_equal(weft_wire_refused_decode(GOLDEN_REFUSED, sizeof(GOLDEN_REFUSED), &f), WEFT_OK);
    assert_int_equal(f.version, 2);
    assert_int_equal(f.reason, WEFT_REFUSED_KEY);
    assert_int_equal(f.mode, WEFT_MODE_AUTH);
    assert_int_equal(f.connection_id, 0xc1c2c3c4);
    w = weft_writer_make(out, sizeof(out));
    weft_wire_refused_encode(&w, &f);
    assert_memory_equal(out, GOLDEN_REFUSED, sizeof(GOLDEN_REFUSED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_tables),
        cmocka_unit_test(constants_are_those_of_the_tables),
        cmocka_unit_test(ack),
        cmocka_unit_test(ack_of_nothing),
        cmocka_unit_test(ack_short),
        cmocka_unit_test(done),
        cmocka_unit_test(critical),
        cmocka_unit_test(small_frames),
        cmocka_unit_test(message),
        cmocka_unit_test(data),
        cmocka_unit_test(brief),
        cmocka_unit_test(control_and_data),
        cmocka_unit_test(auth_and_seal_end_in_a_tag),
        cmocka_unit_test(hello),
        cmocka_unit_test(accept_packet),
        cmocka_unit_test(cookie_unknown_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
