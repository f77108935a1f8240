/* Records over TCP: valid and invalid heads and bodies, byte by byte. */
#include "wire/tcp_record.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

enum { VERSION = WEFT_WIRE_VERSION << 4 };

static weft_status head(uint8_t first, uint8_t flags, uint32_t bytes, struct weft_wire_record *r_p)
{
    uint8_t at[WEFT_WIRE_RECORD_HEAD_BYTES] = {first, flags, (uint8_t)(bytes >> 8), (uint8_t)bytes};
    return weft_wire_record_head(at, r_p);
}

static void test_head(void **state)
{
    (void)state;
    struct weft_wire_record r;
    assert_int_equal(head(VERSION | 0, 0x02, 3, &r), WEFT_OK);
    assert_int_equal(r.klass, WEFT_CLASS_PLAIN);
    assert_int_equal(r.flags, WEFT_FLAG_CONTROL);
    assert_int_equal(r.bytes, 3);
    /* DATA, one byte of a chunk, a tag */
    assert_int_equal(head(VERSION | 1, 0x81, 49, &r), WEFT_OK);
    assert_int_equal(head(VERSION | 2, 0x83, 65532, &r), WEFT_OK);
    assert_int_equal(r.bytes + WEFT_WIRE_RECORD_HEAD_BYTES, WEFT_WIRE_RECORD_BYTES_MAX);

    struct weft_wire_record untouched = r;
    assert_int_equal(head(0x10, 0x02, 3, &r), WEFT_PROTO);         /* version */
    assert_int_equal(head(VERSION | 3, 0x02, 30, &r), WEFT_PROTO); /* class */
    assert_int_equal(head(VERSION | 8, 0x02, 30, &r), WEFT_PROTO); /* HELLO is not a record */
    assert_int_equal(head(VERSION | 0, 0x00, 30, &r), WEFT_PROTO); /* an empty record */
    assert_int_equal(head(VERSION | 1, 0x80, 30, &r), WEFT_PROTO);
    assert_int_equal(head(VERSION | 0, 0x42, 30, &r), WEFT_PROTO); /* PASS_END: only in packets */
    assert_int_equal(head(VERSION | 0, 0x06, 30, &r), WEFT_PROTO); /* priority: only in packets */
    assert_int_equal(head(VERSION | 0, 0x82, 30, &r), WEFT_PROTO); /* a key phase without keys */
    assert_int_equal(head(VERSION | 0, 0x02, 2, &r), WEFT_PROTO);  /* no room for a frame */
    assert_int_equal(head(VERSION | 1, 0x02, 18, &r), WEFT_PROTO);
    assert_int_equal(head(VERSION | 1, 0x02, 19, &r), WEFT_OK);
    r = untouched;
    assert_int_equal(head(VERSION | 0, 0x01, 32, &r), WEFT_PROTO); /* only a DATA header */
    assert_int_equal(head(VERSION | 0, 0x03, 35, &r), WEFT_PROTO);
    assert_int_equal(head(VERSION | 0, 0x03, 36, &r), WEFT_OK);
    r = untouched;
    /* longer than 64 KB in total */
    assert_int_equal(head(VERSION | 2, 0x02, 65533, &r), WEFT_PROTO);
    assert_memory_equal(&r, &untouched, sizeof(r));
}

static void test_head_written(void **state)
{
    (void)state;
    uint8_t at[WEFT_WIRE_RECORD_HEAD_BYTES];
    weft_wire_record_head_encode(at, WEFT_CLASS_SEAL, 0x83, 0xabcd);
    static const uint8_t right[] = {VERSION | 2, 0x83, 0xab, 0xcd};
    assert_memory_equal(at, right, sizeof(right));
}

static void test_body(void **state)
{
    (void)state;
    uint8_t body[64] = {0, 2, 4, 4}; /* two PINGs, then 60 bytes */
    struct weft_wire_record both = {.flags = WEFT_FLAG_CONTROL | WEFT_FLAG_DATA};
    struct weft_wire_record r = both;
    assert_int_equal(weft_wire_record_body(body, sizeof(body), &r), WEFT_OK);
    assert_ptr_equal(r.control, body + 2);
    assert_int_equal(r.control_bytes, 2);
    assert_ptr_equal(r.data, body + 4);
    assert_int_equal(r.data_bytes, 60);
    r = (struct weft_wire_record){.flags = WEFT_FLAG_CONTROL};
    assert_int_equal(weft_wire_record_body(body, 4, &r), WEFT_OK);
    assert_null(r.data);
    assert_int_equal(weft_wire_record_body(body, 5, &r), WEFT_PROTO); /* remaining bytes */
    assert_int_equal(weft_wire_record_body(body, 3, &r), WEFT_PROTO); /* runs past the end */
    assert_int_equal(weft_wire_record_body(body, 1, &r), WEFT_PROTO);
    body[1] = 0; /* an empty control block */
    r = both;
    assert_int_equal(weft_wire_record_body(body, sizeof(body), &r), WEFT_PROTO);
    r = (struct weft_wire_record){.flags = WEFT_FLAG_DATA};
    assert_int_equal(weft_wire_record_body(body, sizeof(body), &r), WEFT_OK);
    assert_null(r.control);
    assert_ptr_equal(r.data, body);
}

static size_t frame(uint8_t *out, const struct weft_wire_frame *f)
{
    struct weft_writer w = weft_writer_make(out, 256);
    weft_wire_frame_encode(&w, f);
    assert_false(w.bad);
    return (size_t)(w.at - out);
}

static void test_frames_allowed(void **state)
{
    (void)state;
    uint8_t b[256];
    size_t n = frame(b, &(struct weft_wire_frame){.type = WEFT_FRAME_PING});
    n += frame(b + n, &(struct weft_wire_frame){.type = WEFT_FRAME_ACK,
                                                .ack.flags = WEFT_ACK_IDLE});
    n += frame(b + n, &(struct weft_wire_frame){.type = WEFT_FRAME_DONE, .done = {.msg = 7}});
    n += frame(b + n, &(struct weft_wire_frame){.type = WEFT_FRAME_FINISH,
                                                .finish = {.flags = 1, .msg = 8}});
    struct weft_writer w = weft_writer_make(b + n, sizeof(b) - n);
    weft_wire_blocked_encode(&w, WEFT_FRAME_BLOCKED, 9);
    weft_wire_blocked_encode(&w, WEFT_FRAME_READY, 0x01020304);
    n = (size_t)(w.at - b);
    n += frame(b + n, &(struct weft_wire_frame){.type = WEFT_FRAME_CLOSE, .close_code = 2});
    assert_int_equal(weft_wire_record_check(b, n), WEFT_OK);
    static const uint8_t types[] = {WEFT_FRAME_PING,   WEFT_FRAME_ACK,     WEFT_FRAME_DONE,
                                    WEFT_FRAME_FINISH, WEFT_FRAME_BLOCKED, WEFT_FRAME_READY,
                                    WEFT_FRAME_CLOSE};
    struct weft_reader r = weft_reader_make(b, n);
    struct weft_wire_record_frame f;
    for (size_t i = 0; i < sizeof(types); i++) {
        assert_true(weft_wire_record_frame_decode(&r, &f));
        assert_int_equal(f.type, types[i]);
        if (f.type == WEFT_FRAME_READY) {
            assert_int_equal(f.msg, 0x01020304);
        }
        if (f.type == WEFT_FRAME_CLOSE) {
            assert_int_equal(f.other.close_code, 2);
        }
    }
    assert_false(weft_wire_record_frame_decode(&r, &f));
    assert_false(r.bad);
}

static void refuse(const struct weft_wire_frame *f)
{
    uint8_t b[256];
    size_t n = frame(b, f);
    assert_int_equal(weft_wire_record_check(b, n), WEFT_PROTO);
}

static void test_frames_refused(void **state)
{
    (void)state;
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_PATH_CHALLENGE, .token = 1});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_PATH_RESPONSE, .token = 1});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_PADDING, .padding_bytes = 5});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_BACKLOG, .backlog_end = 5});
    refuse(&(struct weft_wire_frame){
        .type = WEFT_FRAME_MESSAGE,
        .message = {.total = 1, .chunk_elems = 1, .elem_bytes = 1, .payload = (const uint8_t *)"x"}});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_CRITICAL,
                                     .critical = {.word_count = 1, .chunks = 9, .words = {1}}});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_ACK,
                                     .ack = {.word_count = 1, .largest = 5, .words = {2}}});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_ACK, .ack = {.note_count = 1}});
    refuse(&(struct weft_wire_frame){.type = WEFT_FRAME_FINISH, .finish = {.msg = 8}});
    uint8_t hold[] = {WEFT_FRAME_BLOCKED, 0, 0, 0}; /* one byte short */
    assert_int_equal(weft_wire_record_check(hold, sizeof(hold)), WEFT_PROTO);
    uint8_t unknown[] = {WEFT_FRAME_PING, 18, 0, 0, 0, 0};
    assert_int_equal(weft_wire_record_check(unknown, sizeof(unknown)), WEFT_PROTO);
    bool eliciting;
    /* Packets have no frames of records. */
    uint8_t ready[] = {WEFT_FRAME_READY, 0, 0, 0, 1};
    assert_int_equal(weft_wire_control_check(ready, sizeof(ready), &eliciting), WEFT_PROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),           cmocka_unit_test(test_head_written),
        cmocka_unit_test(test_body),           cmocka_unit_test(test_frames_allowed),
        cmocka_unit_test(test_frames_refused),
    };
    return cmocka_run_group_tests_name("wire_record", tests, NULL, NULL);
}
