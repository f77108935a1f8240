/* Invalid packets: each packet of wire_golden.h truncated to every length, extended by one byte, or
 * with one field set to a value that docs/PROTOCOL.md excludes. All are refused, and a refused
 * packet leaves the output unchanged. */
#include "wire/packet.h"
#include "wire_golden.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>

/* A heap copy of exactly `size` bytes, so that AddressSanitizer detects one byte too many; bytes
 * after the packet are zero. */
static uint8_t *copy_of(const uint8_t *bytes, size_t count, size_t size)
{
    uint8_t *copy = calloc(1, size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, count < size ? count : size);
    return copy;
}

/* All checks that an endpoint makes before a connection packet has an effect. */
static bool connection_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_packet p;
    struct weft_wire_data d;
    bool eliciting = false;
    if (weft_wire_packet_decode(bytes, count, &p) != WEFT_OK) {
        return false;
    }
    if (p.control != NULL &&
        weft_wire_control_check(p.control, p.control_bytes, &eliciting) != WEFT_OK) {
        return false;
    }
    if (weft_wire_is_brief(p.flags)) {
        struct weft_wire_brief b;
        d = (struct weft_wire_data){.total = 13, .chunk_elems = 4, .elem_bytes = 3, .lost_max = 1};
        return weft_wire_brief_decode(p.data, p.data_bytes, &b) == WEFT_OK &&
               weft_wire_brief_complete(&b, &d) == WEFT_OK;
    }
    return p.data == NULL || weft_wire_data_decode(p.data, p.data_bytes, &d) == WEFT_OK;
}

static bool hello_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_hello h;
    struct weft_wire_hello untouched;
    memset(&h, 0xa5, sizeof(h));
    memset(&untouched, 0xa5, sizeof(untouched));
    bool taken = weft_wire_hello_decode(bytes, count, &h) == WEFT_OK;
    assert_true(taken || memcmp(&h, &untouched, sizeof(h)) == 0);
    return taken;
}

static bool accept_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_accept a;
    struct weft_wire_accept untouched;
    memset(&a, 0xa5, sizeof(a));
    memset(&untouched, 0xa5, sizeof(untouched));
    bool taken = weft_wire_accept_decode(bytes, count, &a) == WEFT_OK;
    assert_true(taken || memcmp(&a, &untouched, sizeof(a)) == 0);
    return taken;
}

static bool cookie_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_cookie c;
    return weft_wire_cookie_decode(bytes, count, &c) == WEFT_OK;
}

static bool unknown_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_unknown u;
    return weft_wire_unknown_decode(bytes, count, &u) == WEFT_OK;
}

static bool refused_taken(const uint8_t *bytes, size_t count)
{
    struct weft_wire_refused f;
    return weft_wire_refused_decode(bytes, count, &f) == WEFT_OK;
}

typedef bool taken_fn(const uint8_t *bytes, size_t count);

#define ROW(golden, taken)                                                                         \
    {                                                                                              \
#golden, golden, sizeof(golden), taken                                                     \
    }

static const struct {
    const char *name;
    const uint8_t *bytes;
    size_t count;
    taken_fn *taken;
} PACKETS[] = {
    ROW(GOLDEN_ACK, connection_taken),       ROW(GOLDEN_ACK_NONE_YET, connection_taken),
    ROW(GOLDEN_CRITICAL, connection_taken),  ROW(GOLDEN_ACK_SHORT, connection_taken),
    ROW(GOLDEN_DONE, connection_taken),      ROW(GOLDEN_DONE_ALL, connection_taken),
    ROW(GOLDEN_FINISH, connection_taken),    ROW(GOLDEN_PING, connection_taken),
    ROW(GOLDEN_CHALLENGE, connection_taken), ROW(GOLDEN_RESPONSE, connection_taken),
    ROW(GOLDEN_CLOSE, connection_taken),     ROW(GOLDEN_PADDING, connection_taken),
    ROW(GOLDEN_MESSAGE, connection_taken),   ROW(GOLDEN_DATA, connection_taken),
    ROW(GOLDEN_BRIEF, connection_taken),     ROW(GOLDEN_BOTH, connection_taken),
    ROW(GOLDEN_AUTH, connection_taken),      ROW(GOLDEN_SEAL, connection_taken),
    ROW(GOLDEN_HELLO, hello_taken),          ROW(GOLDEN_HELLO_AUTH, hello_taken),
    ROW(GOLDEN_ACCEPT, accept_taken),        ROW(GOLDEN_ACCEPT_SEAL, accept_taken),
    ROW(GOLDEN_COOKIE, cookie_taken),        ROW(GOLDEN_UNKNOWN, unknown_taken),
    ROW(GOLDEN_REFUSED, refused_taken),
};

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(PACKETS); i++) {
        for (size_t size = 0; size <= PACKETS[i].count + 1; size++) {
            uint8_t *copy = copy_of(PACKETS[i].bytes, PACKETS[i].count, size);
            if (PACKETS[i].taken(copy, size) != (size == PACKETS[i].count)) {
                fail_msg("%s at %zu of %zu bytes", PACKETS[i].name, size, PACKETS[i].count);
            }
            free(copy);
        }
    }
}

/* Truncate the control block and adjust its length: the missing part of its frame must be
 * detected. */
static void every_frame_cut_short_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(PACKETS); i++) {
        const uint8_t *bytes = PACKETS[i].bytes;
        if (bytes[0] != WEFT_WIRE_VERSION << 4 || bytes[1] != WEFT_FLAG_CONTROL) {
            continue;
        }
        for (size_t size = 18; size < PACKETS[i].count; size++) {
            uint8_t *copy = copy_of(bytes, PACKETS[i].count, size);
            copy[17] = (uint8_t)(size - 18);
            assert_false(connection_taken(copy, size));
            free(copy);
        }
    }
}

static void only_its_own_version_and_class_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(PACKETS); i++) {
        uint8_t *copy = copy_of(PACKETS[i].bytes, PACKETS[i].count, PACKETS[i].count);
        for (unsigned first = 0; first < 256; first++) {
            copy[0] = (uint8_t)first;
            uint8_t version = 0;
            uint8_t klass = 0;
            weft_status status = weft_wire_classify(copy, PACKETS[i].count, &version, &klass);
            assert_int_equal(status, first >> 4 == 2 ? WEFT_OK : WEFT_PROTO);
            assert_int_equal(version, first >> 4);
            bool kin = false;
            if (PACKETS[i].taken == connection_taken) {
                /* The position of the tag depends on the class, so the test only requires a
                 * refusal. */
                kin = first >= 0x20 && first <= 0x22;
            } else if (PACKETS[i].taken == refused_taken) {
                kin = (first & 15) == WEFT_CLASS_REFUSED; /* valid in any version */
            } else {
                kin = first == PACKETS[i].bytes[0];
            }
            assert_true(kin || !PACKETS[i].taken(copy, PACKETS[i].count));
        }
        free(copy);
    }
    uint8_t version = 0;
    uint8_t klass = 0;
    assert_int_equal(weft_wire_classify("", 0, &version, &klass), WEFT_PROTO);
}

/* Set each bit of a field that must be zero, one at a time. */
static void check_zero(const uint8_t *bytes, size_t count, taken_fn *taken, size_t from, size_t to)
{
    uint8_t *copy = copy_of(bytes, count, count);
    for (size_t bit = from * 8; bit < to * 8; bit++) {
        assert_true(taken(copy, count));
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (taken(copy, count)) {
            fail_msg("bit %zu of byte %zu is not refused", bit % 8, bit / 8);
        }
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    free(copy);
}

static void every_reserved_bit_is_refused(void **state)
{
    (void)state;
    check_zero(GOLDEN_HELLO, sizeof(GOLDEN_HELLO), hello_taken, 2, 4);
    check_zero(GOLDEN_ACCEPT, sizeof(GOLDEN_ACCEPT), accept_taken, 2, 4);
    check_zero(GOLDEN_ACCEPT, sizeof(GOLDEN_ACCEPT), accept_taken, 44, 48);
    check_zero(GOLDEN_ACCEPT_SEAL, sizeof(GOLDEN_ACCEPT_SEAL), accept_taken, 44, 48);
    check_zero(GOLDEN_COOKIE, sizeof(GOLDEN_COOKIE), cookie_taken, 1, 4);
    check_zero(GOLDEN_UNKNOWN, sizeof(GOLDEN_UNKNOWN), unknown_taken, 1, 2);
    check_zero(GOLDEN_REFUSED, sizeof(GOLDEN_REFUSED), refused_taken, 3, 4);
}

static void key_and_tag_are_zero_in_mode_none(void **state)
{
    (void)state;
    check_zero(GOLDEN_HELLO, sizeof(GOLDEN_HELLO), hello_taken, 56, 120);
    check_zero(GOLDEN_ACCEPT, sizeof(GOLDEN_ACCEPT), accept_taken, 48, 112);
}

/* One field of one packet set to `value`; offsets are from the packet's first byte: 18 more than in
 * the table of a frame, 16 more than in that of DATA. */
struct violation {
    const char *what;
    const uint8_t *packet;
    size_t packet_bytes;
    size_t offset;
    size_t bytes;
    uint64_t value;
};

#define IN(golden) golden, sizeof(golden)

static const struct violation OF_PACKETS[] = {
    {"packet number 0", IN(GOLDEN_PING), 8, 8, 0},
    {"neither CONTROL nor DATA", IN(GOLDEN_PING), 1, 1, 0x00},
    {"neither, but KEY_PHASE", IN(GOLDEN_PING), 1, 1, 0x80},
    {"PASS_END without DATA", IN(GOLDEN_PING), 1, 1, 0x42},
    {"SENDER_LIMITED without DATA", IN(GOLDEN_PING), 1, 1, 0x22},
    {"priority 1 without DATA", IN(GOLDEN_PING), 1, 1, 0x06},
    {"priority 2 without DATA", IN(GOLDEN_PING), 1, 1, 0x0a},
    {"priority 4 without DATA", IN(GOLDEN_PING), 1, 1, 0x12},
    {"control block of no bytes", IN(GOLDEN_PING), 16, 2, 0},
    {"control block longer than the packet", IN(GOLDEN_PING), 16, 2, 2},
    {"control block much longer", IN(GOLDEN_PING), 16, 2, 0xffff},
    {"control block of no bytes before DATA", IN(GOLDEN_BOTH), 16, 2, 0},
    {"control block that eats DATA", IN(GOLDEN_BOTH), 16, 2, 40},
    {"frame type 0", IN(GOLDEN_PING), 18, 1, 0},
    {"frame type 8, reserved", IN(GOLDEN_PING), 18, 1, 8},
    {"frame type 9, reserved", IN(GOLDEN_PING), 18, 1, 9},
    {"frame type 11", IN(GOLDEN_PING), 18, 1, 11},
    {"frame type 255", IN(GOLDEN_PING), 18, 1, 255},
    {"HELLO in mode 3", IN(GOLDEN_HELLO_AUTH), 1, 1, 3},
    {"HELLO in mode 255", IN(GOLDEN_HELLO_AUTH), 1, 1, 255},
    {"HELLO with a key in mode none", IN(GOLDEN_HELLO_AUTH), 1, 1, 0},
    {"ACCEPT in mode 3", IN(GOLDEN_ACCEPT_SEAL), 1, 1, 3},
    {"ACCEPT with a key in mode none", IN(GOLDEN_ACCEPT_SEAL), 1, 1, 0},
};

static const struct violation OF_FRAMES[] = {
    {"ACK that announces more words than it has", IN(GOLDEN_ACK), 19, 1, 5},
    {"ACK that announces more notes than it has", IN(GOLDEN_ACK), 20, 1, 3},
    {"ACK of largest 0 with words", IN(GOLDEN_ACK), 22, 8, 0},
    {"ACK with words below number 0", IN(GOLDEN_ACK), 22, 8, 63},
    {"ACK of the bit above largest", IN(GOLDEN_ACK), 54, 8, 0x8},
    {"ACK of the highest bit above largest", IN(GOLDEN_ACK), 54, 8, UINT64_C(1) << 63},
    {"ACK_SHORT with IDLE", IN(GOLDEN_ACK_SHORT), 19, 1, 0xb3},
    {"ACK_SHORT without its largest", IN(GOLDEN_ACK_SHORT), 30, 1, 0x7f},
    {"CRITICAL with a reserved byte", IN(GOLDEN_CRITICAL), 19, 1, 1},
    {"CRITICAL without words", IN(GOLDEN_CRITICAL), 20, 2, 0},
    {"CRITICAL with more words than there are", IN(GOLDEN_CRITICAL), 20, 2, 3},
    {"CRITICAL of no chunks", IN(GOLDEN_CRITICAL), 26, 4, 0},
    {"CRITICAL with words beyond the last chunk", IN(GOLDEN_CRITICAL), 30, 4, 192},
    {"CRITICAL whose first is no multiple of 64", IN(GOLDEN_CRITICAL), 30, 4, 129},
    {"CRITICAL with the bit of chunk N", IN(GOLDEN_CRITICAL), 42, 8, 0x100},
    {"DONE of status 2", IN(GOLDEN_DONE), 19, 1, 2},
    {"DONE of status 255", IN(GOLDEN_DONE), 19, 1, 255},
    {"DONE with fewer chunks than received", IN(GOLDEN_DONE_ALL), 26, 4, 99},
    {"DONE of all with more refused than received", IN(GOLDEN_DONE_ALL), 34, 4, 101},
    {"DONE of all, words 0, first 64", IN(GOLDEN_DONE_ALL), 38, 4, 64},
    {"DONE of part of the chunks, words 0", IN(GOLDEN_DONE_ALL), 30, 4, 98},
    {"DONE of all chunks with words", IN(GOLDEN_DONE), 30, 4, 200},
    {"DONE of no chunk with words", IN(GOLDEN_DONE), 30, 8, 0},
    {"DONE with more received than chunks", IN(GOLDEN_DONE), 30, 4, 201},
    {"DONE with more refused than received", IN(GOLDEN_DONE), 34, 4, 151},
    {"DONE whose first is no multiple of 64", IN(GOLDEN_DONE), 38, 4, 129},
    {"DONE whose first is no multiple of 64", IN(GOLDEN_DONE), 38, 4, 96},
    {"DONE with words beyond the last chunk", IN(GOLDEN_DONE), 38, 4, 192},
    {"DONE with first far beyond", IN(GOLDEN_DONE), 38, 4, 0xffffffc0},
    {"DONE with the bit of chunk N", IN(GOLDEN_DONE), 50, 8, 0x100},
    {"DONE with the highest bit of the last word", IN(GOLDEN_DONE), 50, 8, UINT64_C(1) << 63},
    {"CLOSE of code 5", IN(GOLDEN_CLOSE), 19, 2, 5},
    {"CLOSE of code 256", IN(GOLDEN_CLOSE), 19, 2, 256},
    {"PADDING that is not zero", IN(GOLDEN_PADDING), 22, 1, 1},
    {"PADDING whose last byte is not zero", IN(GOLDEN_PADDING), 23, 1, 0x80},
    {"PADDING longer than its packet", IN(GOLDEN_PADDING), 19, 2, 4},
    {"MESSAGE of priority 8", IN(GOLDEN_MESSAGE), 19, 1, 8},
    {"MESSAGE with more critical chunks than it has", IN(GOLDEN_MESSAGE), 20, 1, 2},
    {"MESSAGE whose critical chunks CRITICAL lists", IN(GOLDEN_MESSAGE), 20, 1, 255},
    {"MESSAGE with a reserved byte", IN(GOLDEN_MESSAGE), 21, 1, 1},
    {"MESSAGE of no elements", IN(GOLDEN_MESSAGE), 26, 4, 0},
    {"MESSAGE longer than its packet", IN(GOLDEN_MESSAGE), 26, 4, 3},
    {"MESSAGE shorter than its frame", IN(GOLDEN_MESSAGE), 26, 4, 1},
    {"MESSAGE of two chunks", IN(GOLDEN_MESSAGE), 30, 2, 1},
    {"MESSAGE whose chunks have no elements", IN(GOLDEN_MESSAGE), 30, 2, 0},
    {"MESSAGE of elements of no bytes", IN(GOLDEN_MESSAGE), 32, 2, 0},
    {"MESSAGE of longer elements", IN(GOLDEN_MESSAGE), 32, 2, UINT16_MAX},
    {"FINISH flag 2", IN(GOLDEN_FINISH), 19, 1, 2},
    {"FINISH flag 0x80 beside SHORT", IN(GOLDEN_FINISH), 19, 1, 0x81},
};

static const struct violation OF_DATA[] = {
    {"BRIEF and a priority", IN(GOLDEN_BRIEF), 1, 1, 0x58},
    {"BRIEF and another priority", IN(GOLDEN_BRIEF), 1, 1, 0x58},
    {"BRIEF of chunk N", IN(GOLDEN_BRIEF), 12, 4, 0xc7cc0004},
    {"BRIEF of the largest chunk", IN(GOLDEN_BRIEF), 12, 4, 0xc7cfffff},
    {"BRIEF of a chunk of another length", IN(GOLDEN_BRIEF), 12, 4, 0xc7cc0002},
    {"total 0", IN(GOLDEN_DATA), 24, 4, 0},
    {"chunk_elems 0", IN(GOLDEN_DATA), 28, 2, 0},
    {"elem_bytes 0", IN(GOLDEN_DATA), 30, 2, 0},
    {"chunk N", IN(GOLDEN_DATA), 20, 4, 4},
    {"largest chunk", IN(GOLDEN_DATA), 20, 4, UINT32_MAX},
    {"a chunk whose product with chunk_elems wraps", IN(GOLDEN_DATA), 20, 4, 0x40000003},
    {"K = N", IN(GOLDEN_DATA), 32, 4, 0x02000004},
    {"largest K", IN(GOLDEN_DATA), 32, 4, 0x02ffffff},
    {"critical N + 1", IN(GOLDEN_DATA), 32, 4, 0x05000001},
    {"critical 254 of fewer chunks", IN(GOLDEN_DATA), 32, 4, 0xfe000001},
    {"length of a whole chunk for the last", IN(GOLDEN_DATA), 24, 4, 16},
    {"length of one element for chunk 0", IN(GOLDEN_DATA), 20, 4, 0},
    {"length of two elements", IN(GOLDEN_DATA), 24, 4, 14},
    {"elements larger than the chunk", IN(GOLDEN_DATA), 30, 2, 4},
    {"elements smaller than the chunk", IN(GOLDEN_DATA), 30, 2, 2},
    {"elements much larger", IN(GOLDEN_DATA), 30, 2, 0xffff},
};

static taken_fn *taker_of(const uint8_t *packet)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(PACKETS); i++) {
        if (PACKETS[i].bytes == packet) {
            return PACKETS[i].taken;
        }
    }
    fail_msg("the packet is not in the table");
    return NULL;
}

static void check_violations(const struct violation *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct violation *v = &rows[i];
        uint8_t *copy = copy_of(v->packet, v->packet_bytes, v->packet_bytes);
        for (size_t b = 0; b < v->bytes; b++) {
            copy[v->offset + b] = (uint8_t)(v->value >> (8 * (v->bytes - 1 - b)));
        }
        assert_memory_not_equal(copy, v->packet, v->packet_bytes);
        if (taker_of(v->packet)(copy, v->packet_bytes)) {
            fail_msg("not refused: %s", v->what);
        }
        free(copy);
    }
}

static void packets_out_of_range_are_refused(void **state)
{
    (void)state;
    check_violations(OF_PACKETS, WEFT_ARRAY_COUNT(OF_PACKETS));
}

static void frames_out_of_range_are_refused(void **state)
{
    (void)state;
    check_violations(OF_FRAMES, WEFT_ARRAY_COUNT(OF_FRAMES));
}

static void chunks_out_of_their_grid_are_refused(void **state)
{
    (void)state;
    check_violations(OF_DATA, WEFT_ARRAY_COUNT(OF_DATA));
}

/* A DATA header followed by `payload_bytes` zeros. */
static bool data_taken(const struct weft_wire_data *data, size_t payload_bytes)
{
    uint8_t bytes[WEFT_DATA_BYTES + 64];
    struct weft_wire_data seen;
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_data_encode(&w, data);
    weft_write_zeros(&w, payload_bytes);
    assert_false(w.bad);
    return weft_wire_data_decode(bytes, (size_t)(w.at - bytes), &seen) == WEFT_OK;
}

/* Limits that other checks would hide in the packets above: chunk N is invalid with any length, and
 * 255 stays reserved even if a message has that many chunks. */
static void limits_hold_on_their_own(void **state)
{
    (void)state;
    struct weft_wire_data d = {.total = 16, .chunk_elems = 4, .elem_bytes = 3, .chunk = 3};
    assert_true(data_taken(&d, 12));
    d.chunk = 4;
    assert_false(data_taken(&d, 12));
    assert_false(data_taken(&d, 0));
    d.total = 13;
    assert_false(data_taken(&d, 12));
    assert_false(data_taken(&d, 3));
    assert_false(data_taken(&d, 0));
    d.chunk = 0;
    d.total = 4 * 300;
    d.critical = 254;
    assert_true(data_taken(&d, 12));
    d.critical = 255; /* CRITICAL frames have the set */
    assert_true(data_taken(&d, 12));
    d.total = 4;
    assert_true(data_taken(&d, 12));
    d.critical = 254;
    assert_false(data_taken(&d, 12));
}

static bool block_taken(const uint8_t *bytes, size_t count)
{
    bool eliciting = false;
    return weft_wire_control_check(bytes, count, &eliciting) == WEFT_OK;
}

/* The longest lists are accepted; one more entry is refused although its bytes are present. (The
 * count is changed in the bytes, because the struct has no room for one more.) */
static void counts_above_the_largest_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[2048] = {0};
    struct weft_wire_frame f = {.type = WEFT_FRAME_ACK};
    f.ack.largest = UINT64_C(64) * 100;
    f.ack.word_count = 32;
    f.ack.note_count = 32;
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_frame_encode(&w, &f);
    size_t full = 36 + 32 * 8 + 32 * 8;
    assert_int_equal(w.at - bytes, full);
    assert_true(block_taken(bytes, full));
    bytes[1] = 33;
    assert_false(block_taken(bytes, full + 8));
    bytes[1] = 32;
    bytes[2] = 33;
    assert_false(block_taken(bytes, full + 8));

    memset(bytes, 0, sizeof(bytes));
    memset(&f, 0, sizeof(f));
    f.type = WEFT_FRAME_DONE;
    f.done.chunks = 161 * 64;
    f.done.received = 1;
    f.done.word_count = 160;
    f.done.words[0] = 1;
    w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_frame_encode(&w, &f);
    full = 24 + 160 * 8;
    assert_int_equal(w.at - bytes, full);
    assert_true(block_taken(bytes, full));
    bytes[3] = 161;
    assert_false(block_taken(bytes, full + 8));
}

/* One invalid frame after valid ones invalidates the whole block, and the output is unchanged. */
static void one_bad_frame_condemns_the_block(void **state)
{
    (void)state;
    static const uint8_t bad_last[] = {4, 4, 7, 0, 1, 8};
    bool eliciting = false;
    assert_int_equal(weft_wire_control_check(bad_last, sizeof(bad_last), &eliciting), WEFT_PROTO);
    assert_false(eliciting);
    assert_int_equal(weft_wire_control_check(bad_last, sizeof(bad_last) - 1, &eliciting), WEFT_OK);
    assert_true(eliciting);
    assert_int_equal(weft_wire_control_check(bad_last + 2, 3, &eliciting), WEFT_OK);
    assert_false(eliciting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_frame_cut_short_is_refused),
        cmocka_unit_test(only_its_own_version_and_class_are_taken),
        cmocka_unit_test(every_reserved_bit_is_refused),
        cmocka_unit_test(key_and_tag_are_zero_in_mode_none),
        cmocka_unit_test(packets_out_of_range_are_refused),
        cmocka_unit_test(frames_out_of_range_are_refused),
        cmocka_unit_test(chunks_out_of_their_grid_are_refused),
        cmocka_unit_test(limits_hold_on_their_own),
        cmocka_unit_test(counts_above_the_largest_are_refused),
        cmocka_unit_test(one_bad_frame_condemns_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
