/* The aggregation box between veth interfaces, in native mode. Run in its own network namespace, in
 * which the veth pairs w0 - p0 and w1 - p1 exist and are up. The box is on p0 and p1; this program
 * is both workers, with raw frames on w0 and w1.
 *
 *   aggregate [ROUNDS]      prints TAP; ROUNDS: rounds of the timing at the end; without it nothing
 *                           is timed
 */
#include "lab/aggregate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PORT = 7701,
    JOB = 5,
    HEADS = 42,
    FRAME_MAX = 2048,
    WAIT_MS = 2000,
    VALUES = 352,
    SLOTS = 32,
    EPOCH_FIGURE = 1
};

static int cases;
static int failed;

static void check(bool good, const char *what)
{
    printf("%sok %d - %s\n", good ? "" : "not ", ++cases, what);
    failed |= !good;
}

[[gnu::noreturn]] static void die(const char *what)
{
    fprintf(stderr, "Bail out! %s: %s\n", what, strerror(errno));
    exit(1);
}

static void must(weft_status status, const struct weft_error *error)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "Bail out! %s\n", error->text);
        exit(1);
    }
}

static uint8_t port_macs[2][ETH_ALEN];

static int worker_open(const char *interface, const char *port, uint8_t *mac, uint8_t *port_mac)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_IP),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    struct ifreq request = {0};
    int one = 1;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) != 0 ||
        ioctl(fd, SIOCGIFHWADDR, &request) != 0) {
        die(interface);
    }
    memcpy(mac, request.ifr_hwaddr.sa_data, ETH_ALEN);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", port);
    if (ioctl(fd, SIOCGIFHWADDR, &request) != 0) {
        die(port);
    }
    memcpy(port_mac, request.ifr_hwaddr.sa_data, ETH_ALEN);
    return fd;
}

/* Make a frame of worker w in which all values are `value`. Returns its length in bytes. */
static uint32_t frame_make(uint8_t *frame, const uint8_t *mac, uint32_t w,
                           const struct weft_wire_agg *head, uint32_t value)
{
    bool dense = head->kind == WEFT_AGG_DENSE;
    uint32_t body = dense ? 4u * head->count : head->count * WEFT_AGG_ROW_BYTES;
    uint8_t *at = frame + HEADS + WEFT_AGG_HEADER_BYTES;
    memset(frame, 0, HEADS);
    memcpy(frame, port_macs[w], ETH_ALEN);
    memcpy(frame + 6, mac, ETH_ALEN);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[22] = 64;
    frame[23] = 17;
    memcpy(frame + 26, "\x0a\0\0\0\x0a\0\0\xfe", 8);
    frame[29] = (uint8_t)w;
    weft_wire_put_u16(frame + 16, (uint16_t)(28 + WEFT_AGG_HEADER_BYTES + body));
    weft_wire_put_u16(frame + 34, (uint16_t)(4000 + w));
    weft_wire_put_u16(frame + 36, PORT);
    weft_wire_put_u16(frame + 38, (uint16_t)(8 + WEFT_AGG_HEADER_BYTES + body));
    weft_wire_agg_encode(frame + HEADS, head);
    for (uint32_t i = 0; i < body / 4; i++) {
        weft_wire_store_u32(at + 4 * i, !dense && i % 9 == 0 ? 0 : value);
    }
    return HEADS + WEFT_AGG_HEADER_BYTES + body;
}

/* The next frame at a worker, or 0 if none arrives. */
static uint32_t next_frame(int fd, uint8_t *frame, int wait_ms)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    if (poll(&poller, 1, wait_ms) != 1) {
        return 0;
    }
    ssize_t count = recv(fd, frame, FRAME_MAX, 0);
    return count > 0 ? (uint32_t)count : 0;
}

static void send_frame(int fd, const uint8_t *frame, uint32_t count)
{
    if (send(fd, frame, count, 0) != (ssize_t)count) {
        die("send");
    }
}

static bool is_sum(const uint8_t *frame, uint32_t count, const uint8_t *mac, uint32_t w,
                   uint32_t value)
{
    const uint8_t *values = frame + HEADS + WEFT_AGG_HEADER_BYTES;
    uint32_t sum = 0;
    for (int i = 14; i < 34; i += 2) {
        sum += weft_wire_get_u16(frame + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return count == HEADS + WEFT_AGG_HEADER_BYTES + 4 * VALUES &&
           frame[HEADS + 1] == WEFT_AGG_SUM && frame[HEADS + 2] == 0 &&
           weft_wire_get_u16(frame + HEADS + 6) == w && frame[33] == w &&
           memcmp(frame, mac, ETH_ALEN) == 0 && weft_wire_get_u16(frame + 36) == 4000 + w &&
           (sum & 0xffff) + (sum >> 16) == 0xffff && weft_wire_load_u32(values) == value &&
           weft_wire_load_u32(values + 4 * (VALUES - 1)) == value;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One round of all slots: both workers send, then both read their sums. Returns the number of sums
 * that did not arrive in time. */
static uint32_t round_run(const int *fds, uint8_t frames[2][FRAME_MAX], uint32_t count,
                          uint32_t round)
{
    uint8_t sum[FRAME_MAX];
    uint32_t missing = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t w = 0; w < 2; w++) {
            weft_wire_put_u32(frames[w] + HEADS + 8, slot);
            weft_wire_put_u32(frames[w] + HEADS + 16, round);
            send_frame(fds[w], frames[w], count);
        }
    }
    for (uint32_t w = 0; w < 2; w++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            bool good = next_frame(fds[w], sum, WAIT_MS) == count &&
                        sum[HEADS + 1] == WEFT_AGG_SUM &&
                        weft_wire_load_u32(sum + HEADS + WEFT_AGG_HEADER_BYTES) == 2;
            missing += !good;
        }
    }
    return missing;
}

/* Time rounds of SLOTS slots each. A round ends when every worker has read every sum. */
static void figure(struct weft_aggregate *box, const int *fds, uint8_t macs[2][ETH_ALEN],
                   uint32_t rounds)
{
    static uint8_t frames[2][FRAME_MAX];
    struct weft_wire_agg head = {
        .kind = WEFT_AGG_DENSE, .job = JOB, .count = VALUES, .epoch = EPOCH_FIGURE};
    struct weft_aggregate_counts before;
    struct weft_aggregate_counts after;
    struct weft_error error;
    uint32_t count = 0;
    uint32_t missing = 0;
    for (uint32_t w = 0; w < 2; w++) {
        head.member = (uint16_t)w;
        count = frame_make(frames[w], macs[w], w, &head, 1);
    }
    must(weft_aggregate_read_counts(box, &before, &error), &error);
    uint64_t start_ns = now_ns();
    uint32_t round = 0;
    while (round < rounds && missing == 0) {
        missing += round_run(fds, frames, count, round++);
    }
    uint64_t took_ns = now_ns() - start_ns;
    must(weft_aggregate_read_counts(box, &after, &error), &error);
    uint64_t packets = (uint64_t)round * SLOTS * 2;
    check(missing == 0 && after.box.values - before.box.values == packets * VALUES,
          "no packet was lost, and every one was added once");
    printf("# %llu packets of %d values in rounds of %d slots: %.0f ns each, %.0f M adds/s\n",
           (unsigned long long)packets, VALUES, SLOTS, (double)took_ns / (double)packets,
           1e3 * VALUES * (double)packets / (double)took_ns);
}

int main(int argc, char **argv)
{
    static const char *const workers[] = {"w0", "w1"};
    static const char *const ports[] = {"p0", "p1"};
    struct weft_agg_config config = {.members = 3, .slots = SLOTS, .banks = 1, .job = JOB};
    static struct weft_aggregate_command begin = {
        .what = WEFT_AGGREGATE_BEGIN, .epoch = {.blocks = 8, .policy = WEFT_AGG_ON_APPLY}};
    struct weft_aggregate *box = NULL;
    struct weft_aggregate *other = NULL;
    struct weft_error error;
    uint8_t macs[2][ETH_ALEN];
    uint8_t frame[FRAME_MAX];
    int fds[2];
    bool done = false;
    const uint32_t address = htonl(0x0a0000fe);
    must(weft_aggregate_open(&config, PORT, &box, &error), &error);
    must(weft_aggregate_set_addresses(box, &address, 1, &error), &error);
    must(weft_aggregate_command(box, &begin, &done, &error), &error);
    /* A reply by XDP_TX wakes the far end of a veth only if it has an XDP program, too. Here that
     * is a second box. It processes none of the replies, because they are not addressed to its
     * port. */
    must(weft_aggregate_open(&config, PORT, &other, &error), &error);
    for (uint32_t w = 0; w < 2; w++) {
        fds[w] = worker_open(workers[w], ports[w], macs[w], port_macs[w]);
        struct weft_aggregate_member member = {.address = htonl(0x0a000000 + w),
                                               .port = htons((uint16_t)(4000 + w)),
                                               .member = (uint16_t)w};
        memcpy(member.mac, macs[w], ETH_ALEN);
        must(weft_aggregate_attach(box, ports[w], 0, &error), &error);
        must(weft_aggregate_attach(other, workers[w], 0, &error), &error);
        must(weft_aggregate_reach(box, ports[w], &member, &error), &error);
    }
    check(done, "attached in native mode, and the epoch has begun");

    struct weft_wire_agg head = {.kind = WEFT_AGG_ROWS, .job = JOB, .count = 3};
    send_frame(fds[0], frame, frame_make(frame, macs[0], 0, &head, 7));
    uint32_t count = next_frame(fds[0], frame, WAIT_MS);
    check(count == HEADS + WEFT_AGG_HEADER_BYTES + WEFT_AGG_ACK_BYTES &&
              frame[HEADS + 1] == WEFT_AGG_ACK &&
              weft_wire_get_u64(frame + HEADS + WEFT_AGG_HEADER_BYTES) == 1,
          "hot rows are acknowledged to their sender");

    head = (struct weft_wire_agg){.kind = WEFT_AGG_DENSE, .job = JOB, .count = VALUES};
    send_frame(fds[0], frame, frame_make(frame, macs[0], 0, &head, 40));
    check(next_frame(fds[0], frame, 50) == 0, "an incomplete round is not answered");
    head.member = 1;
    send_frame(fds[1], frame, frame_make(frame, macs[1], 1, &head, 2));
    for (uint32_t w = 0; w < 2; w++) {
        count = next_frame(fds[w], frame, WAIT_MS);
        check(is_sum(frame, count, macs[w], w, 42), "each member receives the sum");
    }
    head.member = 0;
    send_frame(fds[0], frame, frame_make(frame, macs[0], 0, &head, 40));
    count = next_frame(fds[0], frame, WAIT_MS);
    check(count > 0 && frame[HEADS + 1] == WEFT_AGG_SUM &&
              weft_wire_load_u32(frame + HEADS + WEFT_AGG_HEADER_BYTES) == 42,
          "a duplicate is answered with the sum");
    check(next_frame(fds[1], frame, 50) == 0, "no other host receives it");

    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    if (rounds > 0) {
        config.dense_epoch = EPOCH_FIGURE;
        must(weft_aggregate_configure(box, &config, &error), &error);
        figure(box, fds, macs, rounds);
    }
    weft_aggregate_close(box);
    check(weft_aggregate_attach(other, ports[0], 0, &error) == WEFT_OK,
          "after close another box can attach to the interface");
    weft_aggregate_close(other);
    close(fds[0]);
    close(fds[1]);
    printf("1..%d\n", cases);
    return failed;
}
