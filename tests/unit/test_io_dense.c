/* The box of a host process and members with sockets, on loopback, each in its own thread: exact
 * sums with losses injected at both ends, a member that moves, and what is refused. */
#include "base/bits.h"
#include "io/clock.h"
#include "io/dense_box.h"
#include "io/dense_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MEMBERS = 3, JOB = 4, SLOTS = 16, COUNT = 20000, VECTORS = 3, CHUNKS = 57 };

static const uint64_t patience_ns = 120 * WEFT_NS_PER_S;

static struct weft_dense_box *box;
static int stop_fds[2];
static pthread_t box_thread;

static void *box_run(void *arg)
{
    (void)arg;
    weft_dense_box_run(box, stop_fds[0]);
    return NULL;
}

static const uint32_t *interfaces; /* of the box; NULL = any */

static void box_start(uint32_t members, uint8_t form, uint32_t loss_ppm)
{
    struct weft_error error = {.text = ""};
    const struct weft_dense_box_config config = {
        .host = "127.0.0.1",
        .interfaces = interfaces,
        .interfaces_count = interfaces != NULL ? 2 : 0,
        .agg = {.members = (UINT64_C(1) << members) - 1,
                .slots = SLOTS,
                .banks = 3, /* ignored: ROWS packets are dropped */
                .job = JOB,
                .form = form},
        .loss = {.loss_ppm = loss_ppm, .seed = 5},
    };
    assert_int_equal(weft_dense_box_open(&config, &box, &error), WEFT_OK);
    assert_int_equal(pipe(stop_fds), 0);
    assert_int_equal(pthread_create(&box_thread, NULL, box_run, NULL), 0);
}

static void box_stop(struct weft_dense_box_stats *stats_p)
{
    assert_int_equal(write(stop_fds[1], "", 1), 1);
    assert_int_equal(pthread_join(box_thread, NULL), 0);
    weft_dense_box_read(box, stats_p);
    weft_dense_box_close(box);
    (void)close(stop_fds[0]);
    (void)close(stop_fds[1]);
}

static struct weft_dense_link_config link_config(uint16_t member, uint32_t members)
{
    struct weft_dense_link_config config = {
        .host = "127.0.0.1", .box_host = "127.0.0.1", .box_port = weft_dense_box_port(box)};
    weft_agg_member_config_default(&config.member);
    config.member.job = JOB;
    config.member.member = member;
    config.member.members = members;
    config.member.slots = SLOTS;
    return config;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct one {
    pthread_t thread;
    struct weft_dense_link_config config;
    struct weft_agg_member_counters counters;
    uint64_t injected_drops;
    float in[COUNT];
    float out[VECTORS][COUNT];
    weft_status status;
};

static void *member_run(void *arg)
{
    struct one *one = arg;
    struct weft_error error;
    struct weft_dense_link *link;
    uint64_t direct[WEFT_BITS_WORDS(CHUNKS)];
    one->status = weft_dense_link_open(&one->config, &link, &error);
    if (one->status != WEFT_OK) {
        return NULL;
    }
    for (uint32_t v = 0; v < VECTORS && one->status == WEFT_OK; v++) {
        one->status = weft_dense_link_sum(link, one->in, one->out[v], COUNT - v, direct,
                                          patience_ns, &error);
    }
    one->counters = weft_dense_link_member(link)->counters;
    one->injected_drops = weft_dense_link_counters(link)->injected_drops;
    weft_dense_link_close(link);
    return NULL;
}

static void sum(uint8_t element, uint32_t loss_ppm, struct weft_dense_box_stats *stats_p)
{
    struct one *ones = calloc(MEMBERS, sizeof(*ones));
    assert_non_null(ones);
    box_start(MEMBERS, element == WEFT_AGG_FLOATS ? WEFT_AGG_FLOAT32 : 0, loss_ppm);
    for (uint16_t m = 0; m < MEMBERS; m++) {
        ones[m].config = link_config(m, MEMBERS);
        ones[m].config.member.element = element;
        ones[m].config.loss = (struct weft_inject_loss_config){
            .loss_ppm = loss_ppm, .rank = m, .role = 1, .seed = 6};
        for (uint32_t i = 0; i < COUNT; i++) {
            ones[m].in[i] = (float)((m + 1) * (i % 1000)) - 700;
        }
        assert_int_equal(pthread_create(&ones[m].thread, NULL, member_run, &ones[m]), 0);
    }
    uint64_t drops = 0;
    for (uint32_t m = 0; m < MEMBERS; m++) {
        assert_int_equal(pthread_join(ones[m].thread, NULL), 0);
        assert_int_equal(ones[m].status, WEFT_OK);
        assert_int_equal(ones[m].counters.sums, VECTORS * CHUNKS);
        assert_int_equal(ones[m].counters.direct + ones[m].counters.foreign, 0);
        drops += ones[m].injected_drops;
        for (uint32_t v = 0; v < VECTORS; v++) {
            for (uint32_t i = 0; i < COUNT - v; i++) {
                assert_true(ones[m].out[v][i] == (float)(6 * (i % 1000)) - 2100);
            }
        }
    }
    assert_int_equal(drops > 0, loss_ppm > 0);
    box_stop(stats_p);
    free(ones);
}

static void test_sums(void **state)
{
    (void)state;
    struct weft_dense_box_stats stats;
    const uint32_t losses_ppm[] = {0, 100000};
    for (uint8_t element = WEFT_AGG_FIXED; element <= WEFT_AGG_FLOATS; element++) {
        for (size_t i = 0; i < WEFT_ARRAY_COUNT(losses_ppm); i++) {
            sum(element, losses_ppm[i], &stats);
            assert_int_equal(stats.counts.packets[WEFT_AGG_COMPLETE], VECTORS * CHUNKS);
            assert_int_equal(stats.counts.voided, 0);
            assert_int_equal(stats.members, MEMBERS);
            assert_int_equal(stats.moved + stats.unsent, 0);
            assert_int_equal(stats.socket.injected_drops > 0, i > 0);
            assert_true(stats.socket.datagrams_sent >= (uint64_t)MEMBERS * VECTORS * CHUNKS);
            uint64_t packets = 0;
            for (uint32_t v = 0; v < WEFT_AGG_VERDICTS; v++) {
                packets += stats.counts.packets[v];
            }
            assert_int_equal(stats.socket.datagrams_received,
                             packets + stats.socket.injected_drops);
            assert_int_equal(stats.socket.send_dropped, 0);
        }
    }
}

/* ---- one member ------------------------------------------------------------------------------ */

static void sum_alone(uint32_t epoch, uint64_t timeout_ns, weft_status expected)
{
    struct weft_error error;
    struct weft_dense_link *link;
    struct weft_dense_link_config config = link_config(0, 1);
    uint64_t direct[1];
    float in[] = {1, 2, 3}, out[3] = {0};
    config.member.element = WEFT_AGG_FIXED;
    config.member.epoch = epoch;
    assert_int_equal(weft_dense_link_open(&config, &link, &error), WEFT_OK);
    assert_int_equal(weft_dense_link_sum(link, in, out, 3, direct, timeout_ns, &error), expected);
    if (expected == WEFT_OK) {
        assert_true(out[0] == 1 && out[1] == 2 && out[2] == 3);
    } else {
        assert_string_equal(error.text, "1 of 1 chunks have no sum");
        assert_int_equal(weft_dense_link_sum(link, in, out, 3, direct, timeout_ns, &error),
                         WEFT_STATE);
    }
    weft_dense_link_close(link);
}

/* A later epoch begins with its first packet, from another port; earlier ones are over. */
static void test_epochs(void **state)
{
    (void)state;
    struct weft_dense_box_stats stats;
    box_start(1, 0, 0);
    sum_alone(0, patience_ns, WEFT_OK);
    sum_alone(7, patience_ns, WEFT_OK);
    sum_alone(6, WEFT_NS_PER_S / 10, WEFT_TIMEOUT);
    weft_dense_box_read(box, &stats);
    assert_int_equal(stats.epoch, 7);
    assert_int_equal(stats.moved, 0);
    sum_alone(7, patience_ns, WEFT_OK); /* the same number twice: the sum of the round before */
    box_stop(&stats);
    assert_true(stats.counts.packets[WEFT_AGG_EPOCH] > 0);
    assert_int_equal(stats.moved, 1);
    assert_int_equal(stats.members, 1);
    assert_int_equal(stats.counts.packets[WEFT_AGG_COMPLETE], 2);
}

/* What arrives at another interface is dropped, as by a program that is not attached there. */
static void test_interfaces(void **state)
{
    (void)state;
    struct weft_dense_box_stats stats;
    const uint32_t loopback = if_nametoindex("lo");
    const uint32_t with[] = {loopback + 100000, loopback}, without[] = {100000, 100001};
    assert_true(loopback > 0);
    interfaces = with;
    box_start(1, 0, 0);
    sum_alone(0, patience_ns, WEFT_OK);
    box_stop(&stats);
    interfaces = without;
    box_start(1, 0, 0);
    sum_alone(0, WEFT_NS_PER_S / 10, WEFT_TIMEOUT);
    box_stop(&stats);
    interfaces = NULL;
    assert_int_equal(stats.socket.datagrams_received, 0);
}

static bool is_stopped(void *arg)
{
    return arg != NULL;
}

static void test_stop(void **state)
{
    (void)state;
    struct weft_error error;
    struct weft_dense_link *link;
    struct weft_dense_box_stats stats;
    uint64_t direct[1];
    float in[] = {1}, out[1];
    box_start(2, 0, 0); /* the other member never comes */
    struct weft_dense_link_config config = link_config(0, 2);
    config.is_stopped = is_stopped;
    config.arg = &config;
    assert_int_equal(weft_dense_link_open(&config, &link, &error), WEFT_OK);
    assert_int_equal(weft_dense_link_sum(link, in, out, 1, direct, WEFT_NEVER, &error),
                     WEFT_AGAIN);
    weft_dense_link_close(link);
    box_stop(&stats);
}

/* Datagrams that are no DENSE packets are counted, and the box goes on. */
static void test_garbage(void **state)
{
    (void)state;
    struct weft_dense_box_stats stats = {0};
    uint8_t rows[WEFT_AGG_HEADER_BYTES + WEFT_AGG_ROW_BYTES] = {0};
    struct weft_wire_agg head = {.kind = WEFT_AGG_ROWS, .job = JOB, .count = 1};
    weft_wire_agg_encode(rows, &head);
    box_start(1, 0, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(weft_dense_box_port(box)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(sendto(fd, "", 0, 0, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(sendto(fd, "garbage", 7, 0, (struct sockaddr *)&to, sizeof(to)), 7);
    assert_int_equal(sendto(fd, rows, sizeof(rows), 0, (struct sockaddr *)&to, sizeof(to)),
                     sizeof(rows));
    (void)close(fd);
    uint64_t end_ns = weft_clock_now_ns() + patience_ns;
    while (stats.counts.packets[WEFT_AGG_FOREIGN] == 0 && weft_clock_now_ns() < end_ns) {
        weft_dense_box_read(box, &stats);
    }
    sum_alone(0, patience_ns, WEFT_OK);
    box_stop(&stats);
    assert_int_equal(stats.counts.packets[WEFT_AGG_FOREIGN], 1);
    assert_true(stats.counts.packets[WEFT_AGG_MALFORMED] >= 1);
    assert_int_equal(stats.counts.packets[WEFT_AGG_COMPLETE], 1);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    struct weft_error error;
    struct weft_dense_box *other;
    struct weft_dense_link *link;
    struct weft_dense_box_stats stats;
    struct weft_dense_box_config config = {.host = "0.0.0.0", .agg = {.members = 1, .slots = 1}};
    assert_int_equal(weft_dense_box_open(&config, &other, &error), WEFT_UNSUPPORTED);
    config.host = "a host";
    assert_int_equal(weft_dense_box_open(&config, &other, &error), WEFT_INVALID);
    config.host = "0.0.0.0";
    config.insecure_network = true;
    assert_int_equal(weft_dense_box_open(&config, &other, &error), WEFT_OK);
    weft_dense_box_close(other);

    box_start(1, 0, 0);
    config.host = "127.0.0.1";
    config.port = weft_dense_box_port(box);
    assert_int_equal(weft_dense_box_open(&config, &other, &error), WEFT_EXISTS);
    struct weft_dense_link_config member = link_config(0, 1);
    member.box_host = "192.0.2.1";
    assert_int_equal(weft_dense_link_open(&member, &link, &error), WEFT_UNSUPPORTED);
    member = link_config(0, 1);
    member.member.values = 9;
    assert_int_equal(weft_dense_link_open(&member, &link, &error), WEFT_INVALID);
    member = link_config(0, 1);
    member.box_port = 0;
    assert_int_equal(weft_dense_link_open(&member, &link, &error), WEFT_INVALID);

    uint64_t direct[1];
    float in[] = {1}, out[1];
    member = link_config(0, 1);
    const uint64_t too_many = (UINT64_C(1) << 31) * member.member.values + 1;
    assert_int_equal(weft_dense_link_open(&member, &link, &error), WEFT_OK);
    assert_int_equal(weft_dense_link_sum(link, in, out, 0, direct, 0, &error), WEFT_INVALID);
    assert_string_equal(error.text, "a vector has at least one element");
    assert_int_equal(weft_dense_link_sum(link, in, out, too_many, direct, 0, &error),
                     WEFT_INVALID);
    assert_string_equal(error.text, "a vector has at most 2^31 chunks");
    weft_dense_link_close(link);
    box_stop(&stats);
    weft_dense_box_close(NULL);
    weft_dense_link_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
