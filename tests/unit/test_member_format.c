/* Requests and replies of members: exact bytes, round trips, and every refusal. */
#include "member/format.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static struct weft_member_request full(void)
{
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
    memset(q.addresses[0].ip, 0x71, 16);
    memset(q.addresses[1].ip, 0x72, 16);
    q.addresses[0].port = 0x7374;
    q.addresses[1].port = 0x7576;
    return q;
}

static void request_bytes(void **state)
{
    (void)state;
    static const uint8_t wanted[WEFT_MEMBER_REQUEST_BYTES + 2 * WEFT_MEMBER_ADDRESS_BYTES] = {
        1,    2,    3,    4,    1,    0,    0,    2,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
        0x18, 0,    0,    0,    0,    0,    0,    0,    0x21, 0xff, 0xff, 0xff, 0xff, 0,    0,
        0x31, 0x32, 0,    0,    0,    0x41, 0,    0,    0,    0x51, 0,    0,    0,    2,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x61, 0,    0,    0,    0,
        0,    0,    0,    0,    'j',  '.',  '1',  0,
        [96] = 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71, 0x71,
        0x71, 0x71, 0x73, 0x74,
        [120] = 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72, 0x72,
        0x72, 0x72, 0x75, 0x76};
    uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
    struct weft_member_request q = full();
    struct weft_member_request back;
    assert_int_equal(weft_member_request_pack(&q, bytes), sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    memset(&back, 0xee, sizeof(back));
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, bytes, sizeof(wanted), &back),
                     WEFT_OK);
    uint8_t again[WEFT_MEMBER_REQUEST_BYTES_MAX];
    assert_int_equal(weft_member_request_pack(&back, again), sizeof(wanted));
    assert_memory_equal(again, wanted, sizeof(wanted));
}

static void request_refused(void **state)
{
    (void)state;
    uint8_t good[WEFT_MEMBER_REQUEST_BYTES_MAX];
    uint8_t bad[WEFT_MEMBER_REQUEST_BYTES_MAX];
    struct weft_member_request q = full();
    struct weft_member_request out = {.rpc_id = 77};
    size_t count = weft_member_request_pack(&q, good);
    for (size_t cut = 0; cut < count; cut++) {
        assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, good, cut, &out),
                         WEFT_PROTO);
    }
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, good, count + 8, &out),
                     WEFT_PROTO);
    static const struct {
        size_t at;
        uint8_t value;
    } breaks[] = {
        {4, 0},
        {4, 2} /* a worker with shards */,
        {4, 3},
        {5, 1} /* flag of LEAVE */,
        {7, 1} /* count is not span */,
        {28, 1} /* workers above 65,535 */,
        {34, 1} /* 256 + 65 shards */,
        {43, 0} /* span */,
        {43, 65},
        {63, 1} /* version without LIST */,
        {64, '/'},
        {70, 'x'} /* a byte after the end */,
        {114, 1} /* reserved in an address */,
        {119, 1},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(breaks); i++) {
        memcpy(bad, good, count);
        bad[breaks[i].at] = breaks[i].value;
        if (weft_member_request_unpack(WEFT_MEMBER_REGISTER, bad, count, &out) != WEFT_PROTO) {
            fail_msg("byte %zu = %u was accepted", breaks[i].at, breaks[i].value);
        }
    }
    memcpy(bad, good, count);
    bad[7] = 1; /* one address instead of two, with the matching length */
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, bad,
                                                count - WEFT_MEMBER_ADDRESS_BYTES, &out),
                     WEFT_PROTO);
    memcpy(bad, good, count);
    memset(bad, 0, 4); /* rpc_id 0 */
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, bad, count, &out),
                     WEFT_PROTO);
    memcpy(bad, good, count);
    memset(bad + 8, 0, 8); /* member 0 */
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, bad, count, &out),
                     WEFT_PROTO);
    memcpy(bad, good, count);
    bad[112] = 0;
    bad[113] = 0; /* port 0 */
    assert_int_equal(weft_member_request_unpack(WEFT_MEMBER_REGISTER, bad, count, &out),
                     WEFT_PROTO);
    for (unsigned op = 0; op < 256; op++) { /* only REGISTER has addresses */
        assert_int_equal(weft_member_request_unpack((uint8_t)op, good, count, &out),
                         op == WEFT_MEMBER_REGISTER ? WEFT_OK : WEFT_PROTO);
    }
}

static void reply_round_trip(void **state)
{
    (void)state;
    static uint8_t
        bytes[WEFT_MEMBER_REPLY_BYTES + WEFT_MEMBER_SHARDS_MAX * WEFT_MEMBER_ADDRESS_BYTES];
    static struct weft_member_reply a;
    static struct weft_member_reply back;
    a = (struct weft_member_reply){.rpc_id = 9,
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
                                   .job = "x",
                                   .count = WEFT_MEMBER_SHARDS_MAX};
    for (uint32_t i = 0; i < a.count; i++) {
        a.addresses[i].port = (uint16_t)(i + 1);
    }
    size_t count = weft_member_reply_pack(&a, bytes);
    assert_int_equal(count, sizeof(bytes));
    assert_int_equal(weft_member_reply_unpack(bytes, count, &back), WEFT_OK);
    assert_int_equal(back.status, WEFT_MEMBER_CLAIMED);
    assert_int_equal(back.rank, 1);
    assert_int_equal(back.first, WEFT_MEMBER_NONE);
    assert_int_equal(back.version, 6);
    assert_int_equal(back.retry_ms, 8);
    assert_int_equal(back.detail, 10);
    assert_int_equal(back.flags, WEFT_MEMBER_JOB_DONE);
    assert_int_equal(back.addresses[255].port, 256);
    for (size_t cut = 0; cut < count; cut += 8) {
        assert_int_equal(weft_member_reply_unpack(bytes, cut, &back), WEFT_PROTO);
    }
    bytes[55] = 1; /* reserved */
    assert_int_equal(weft_member_reply_unpack(bytes, count, &back), WEFT_PROTO);
    bytes[55] = 0;
    bytes[52] = 2; /* an undefined flag */
    assert_int_equal(weft_member_reply_unpack(bytes, count, &back), WEFT_PROTO);
}

static void words(void **state)
{
    (void)state;
    assert_string_equal(weft_member_status_name(WEFT_MEMBER_CLAIMED), "CLAIMED");
    for (uint16_t s = 0; s < WEFT_MEMBER_STATUS_COUNT; s++) {
        assert_true(strlen(weft_member_status_text(s)) > 3);
    }
    assert_string_equal(weft_member_status_name(999), "unknown");
    assert_non_null(weft_member_status_text(999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(request_bytes),
                                       cmocka_unit_test(request_refused),
                                       cmocka_unit_test(reply_round_trip), cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
