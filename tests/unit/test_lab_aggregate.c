/* The XDP box where no driver has to take part: replies whose note cannot be had or is lost. Links
 * to interfaces are not made (the linker's --wrap), and frames run in a network namespace of this
 * process alone.
 *
 * Needs root and BPF; skipped without them.
 */
#define _GNU_SOURCE /* unshare */
#include "lab/aggregate.h"

#include "agg_frame.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#include <cmocka.h>

enum {
    PORT = 7701,
    HEADS = 42,
    FRAME_MAX = 512,
    VALUES = 8,
    NOTE = sizeof(struct weft_aggregate_note),
    TC_UNSPEC_CODE = UINT32_MAX,
    TC_REDIRECT_CODE = 7,
    XDP_PASS_CODE = 2,
    XDP_TX_CODE = 3,
};

int __wrap_bpf_link_create(int program, int target, unsigned type, const void *options);

enum { TYPE_XDP = 37 }; /* enum bpf_attach_type */

/* 0: the link is made. */
static int xdp_errno;
static int tcx_errno;
static bool is_linux_5_15;

/* The descriptor of a link, which nothing depends on here. */
int __wrap_bpf_link_create(int program, int target, unsigned type, const void *options)
{
    (void)program;
    (void)target;
    (void)options;
    errno = type == TYPE_XDP ? xdp_errno : tcx_errno;
    if (errno != 0) {
        return -1;
    }
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int __real_uname(struct utsname *name);
int __wrap_uname(struct utsname *name);

int __wrap_uname(struct utsname *name)
{
    int code = __real_uname(name);
    if (is_linux_5_15) {
        strcpy(name->release, "5.15.0");
    }
    return code;
}

static void must(weft_status status, const struct weft_error *error)
{
    if (status != WEFT_OK) {
        fail_msg("%s", error->text);
    }
}

/* A box of two members that sends through queues. */
static struct weft_aggregate *open_or_skip(void)
{
    const struct weft_agg_config config = {.members = 3, .slots = 1};
    const uint32_t address = htonl(0x0a000002);
    struct weft_aggregate *box = NULL;
    struct weft_error error;
    if (weft_aggregate_probe(&error) != WEFT_OK) {
        print_message("%s\n", error.text);
        skip();
    }
    must(weft_aggregate_open(&config, PORT, &box, &error), &error);
    must(weft_aggregate_set_addresses(box, &address, 1, &error), &error);
    must(weft_aggregate_attach(box, "lo", WEFT_AGGREGATE_QUEUE, &error), &error);
    must(weft_aggregate_learn(box, &error), &error);
    return box;
}

/* A packet of a member to the box at lo, whose MAC address is zero. Returns its length. */
static uint32_t frame_make(uint8_t *frame, uint16_t member)
{
    enum { UDP_BYTES = 8 + WEFT_AGG_HEADER_BYTES + 4 * VALUES };
    const struct weft_wire_agg head = {.kind = WEFT_AGG_DENSE, .member = member, .count = VALUES};
    memset(frame, 0, FRAME_MAX);
    memcpy(frame + 6, "\x02\0\0\0\0\2\x08\0\x45", 9);
    weft_wire_put_u16(frame + 16, 20 + UDP_BYTES);
    frame[22] = 64;
    frame[23] = 17;
    memcpy(frame + 26, "\x0a\0\0\1\x0a\0\0\2", 8);
    weft_wire_put_u16(frame + 34, 4000);
    weft_wire_put_u16(frame + 36, PORT);
    weft_wire_put_u16(frame + 38, UDP_BYTES);
    weft_wire_agg_encode(frame + HEADS, &head);
    for (uint32_t i = 0; i < VALUES; i++) {
        weft_wire_store_u32(frame + HEADS + WEFT_AGG_HEADER_BYTES + 4 * i, i + member);
    }
    return 34 + UDP_BYTES;
}

static struct weft_aggregate_run run(struct weft_aggregate *box, const uint8_t *frame,
                                     uint32_t count, struct weft_aggregate_run how, uint8_t *answer)
{
    struct weft_error error;
    uint32_t answer_count = FRAME_MAX;
    must(weft_aggregate_run(box, frame, count, 1, answer, &answer_count, &how, &error), &error);
    return how;
}

/* As much metadata as the kernel takes: 216 bytes leave only the room for its own struct, and where
 * they are refused the limit is 32. */
static struct weft_aggregate_run full_of_metadata(struct weft_aggregate *box)
{
    struct weft_aggregate_run how = {.meta_bytes = 216};
    struct weft_error error;
    uint8_t frame[FRAME_MAX] = {0};
    uint8_t answer[FRAME_MAX];
    uint32_t answer_count = FRAME_MAX;
    if (weft_aggregate_run(box, frame, 64, 1, answer, &answer_count, &how, &error) != WEFT_OK) {
        how.meta_bytes = 32;
    }
    return how;
}

static uint64_t unnoted(const struct weft_aggregate *box)
{
    struct weft_aggregate_counts counts;
    struct weft_error error;
    must(weft_aggregate_read_counts(box, &counts, &error), &error);
    return counts.unnoted;
}

/* A driver without XDP metadata: the reply leaves by XDP_TX to the sender of the packet. */
static void a_reply_without_room_for_a_note(void **state)
{
    (void)state;
    struct weft_aggregate *box = open_or_skip();
    const struct weft_aggregate_run full = full_of_metadata(box);
    uint8_t frame[FRAME_MAX];
    uint8_t answer[FRAME_MAX];
    uint32_t count = frame_make(frame, 0);
    (void)run(box, frame, count, full, answer);
    assert_int_equal(unnoted(box), 0);
    count = frame_make(frame, 1);
    assert_int_equal(run(box, frame, count, full, answer).action, XDP_TX_CODE);
    assert_int_equal(unnoted(box), 1);
    assert_memory_equal(answer, frame + 6, 6);
    assert_memory_equal(answer + 30, frame + 26, 4);
    assert_int_equal(weft_wire_get_u16(answer + 36), 4000);
    assert_int_equal(answer[HEADS + 1], WEFT_AGG_SUM);
    assert_int_equal(weft_wire_get_u16(answer + HEADS + 6), 1);
    assert_int_equal(weft_wire_load_u32(answer + HEADS + WEFT_AGG_HEADER_BYTES + 4), 3);

    /* The other member repeats its packet and gets the sum. */
    count = frame_make(frame, 0);
    assert_int_equal(run(box, frame, count, full, answer).action, XDP_TX_CODE);
    assert_int_equal(unnoted(box), 2);
    assert_int_equal(weft_wire_load_u32(answer + HEADS + WEFT_AGG_HEADER_BYTES + 4), 3);

    /* With room it has a note, and is not counted. */
    struct weft_aggregate_run noted =
        run(box, frame, count, (struct weft_aggregate_run){0}, answer);
    struct weft_aggregate_note note;
    memcpy(&note, answer, NOTE);
    assert_int_equal(noted.action, XDP_PASS_CODE);
    assert_int_equal(note.to, WEFT_AGGREGATE_TO_SENDER);
    assert_int_equal(answer[NOTE + HEADS + 1], WEFT_AGG_SUM);
    assert_int_equal(unnoted(box), 2);
    weft_aggregate_close(box);
}

/* A driver that loses metadata between XDP and tc: the reply is recognised by its addresses. */
static void a_reply_whose_note_is_lost(void **state)
{
    (void)state;
    struct weft_aggregate *box = open_or_skip();
    const struct weft_aggregate_run tc = {.is_tc = true};
    uint8_t frame[FRAME_MAX];
    uint8_t answer[FRAME_MAX];
    uint8_t reply[FRAME_MAX];
    (void)run(box, frame, frame_make(frame, 0), (struct weft_aggregate_run){0}, answer);
    uint32_t count = frame_make(frame, 1);
    (void)run(box, frame, count, (struct weft_aggregate_run){0}, answer);
    memcpy(reply, answer + NOTE, count);
    assert_int_equal(run(box, reply, count, tc, answer).action, TC_REDIRECT_CODE);
    assert_memory_equal(answer, reply, 22);
    assert_int_equal(answer[22], 64); /* time to live */
    assert_memory_equal(answer + 26, reply + 26, count - 26);
    assert_int_equal(ip_sum(answer + 14), 0xffff);
    assert_int_equal(unnoted(box), 1);

    static const struct {
        const char *text;
        uint32_t at;
        uint8_t value;
    } others[] = {
        {"another source MAC", 11, 1},     {"not UDP", 23, 6},
        {"another source port", 35, 0},    {"another class", HEADS, 0x20},
        {"a reply that was sent", 22, 64}, {"another source address", 29, 3},
        {"IP options", 14, 0x46},          {"no IPv4", 14, 0x65},
        {"a request", HEADS + 1, WEFT_AGG_DENSE},
        {"a request for rows", HEADS + 1, WEFT_AGG_ROWS},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(others); i++) {
        memcpy(frame, reply, count);
        frame[others[i].at] = others[i].value;
        if (run(box, frame, count, tc, answer).action != TC_UNSPEC_CODE) {
            fail_msg("%s: not passed", others[i].text);
        }
    }
    assert_int_equal(unnoted(box), 1);
    weft_aggregate_close(box);
}

/* A driver may lack queues or memory for native mode alone. */
static void an_interface_without_room(void **state)
{
    (void)state;
    struct weft_aggregate *box = open_or_skip();
    struct weft_error error;
    static const int codes[] = {ENOSPC, ENOMEM, EOPNOTSUPP};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(codes); i++) {
        xdp_errno = codes[i];
        assert_int_equal(weft_aggregate_attach(box, "lo", 0, &error), WEFT_UNSUPPORTED);
        assert_non_null(strstr(error.text, strerror(codes[i])));
    }
    xdp_errno = ENOMEM;
    assert_int_equal(weft_aggregate_attach(box, "lo", WEFT_AGGREGATE_GENERIC, &error), WEFT_IO);
    xdp_errno = EBUSY;
    assert_int_equal(weft_aggregate_attach(box, "lo", 0, &error), WEFT_EXISTS);
    xdp_errno = 0;
    weft_aggregate_close(box);
}

/* Before Linux 6.6 a tc program cannot be attached for as long as its process lives. Another mode
 * does not help, so it must not look like a driver without native mode. */
static void a_kernel_without_tcx(void **state)
{
    (void)state;
    struct weft_aggregate *box = open_or_skip();
    struct weft_error error;
    tcx_errno = EINVAL;
    is_linux_5_15 = true;
    assert_int_equal(weft_aggregate_attach(box, "lo", WEFT_AGGREGATE_QUEUE, &error), WEFT_IO);
    assert_non_null(strstr(error.text, "lo: tc program of a queue: needs Linux 6.6; this is 5.15"));
    assert_int_equal(weft_aggregate_attach(box, "lo", WEFT_AGGREGATE_GENERIC, &error), WEFT_IO);
    assert_int_equal(weft_aggregate_attach(box, "lo", 0, &error), WEFT_OK);
    tcx_errno = 0;
    is_linux_5_15 = false;
    weft_aggregate_close(box);
}

/* Without root the tests are skipped. */
static int own_network(void **state)
{
    (void)state;
    return unshare(CLONE_NEWNET) == 0 || errno == EPERM ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_without_room_for_a_note),
        cmocka_unit_test(a_reply_whose_note_is_lost),
        cmocka_unit_test(an_interface_without_room),
        cmocka_unit_test(a_kernel_without_tcx),
    };
    return cmocka_run_group_tests(tests, own_network, NULL);
}
