/* Sends and counts datagrams between hosts of a lab. tests/lab/network.sh measures rates, buffers
 * and losses with it.
 *
 *     blast send ADDRESS COUNT
 *         sends as fast as the socket accepts datagrams: at the rate of the host's own queue, or
 *         at once if its link has no limit
 *     blast send ADDRESS COUNT marks
 *         then sends a mark every 20 ms until the receiver has exited; datagrams that have not
 *         arrived before a mark are lost
 *     blast recv COUNT
 *         runs until COUNT datagrams or three marks have arrived; prints "ready", then
 *         "packets N overflown O windows W mbit M"
 *
 * A datagram is a packet of 1514 bytes with its Ethernet header. M is the median rate of windows of
 * 20 packets, by the kernel's timestamps: a processor that is stopped for a while affects only the
 * windows of that time. O packets arrived at this host while its socket buffer was full. */
#include "base/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 9900, PAYLOAD_BYTES = 1472, FRAME_BYTES = 1514, BATCH = 32, BUFFER_BYTES = 64 << 20 };
enum { WINDOW = 20, STAMPS_MAX = 1 << 16, MARKS = 3, MARK_MS = 20, TIMEOUT_MS = 120000 };

/* Statistics of received datagrams. */
struct seen {
    uint64_t packets;
    uint32_t marks;
    uint32_t overflown;
    uint64_t stamps_ns[STAMPS_MAX];
};

static int fail(const char *what)
{
    perror(what);
    return 1;
}

/* Batches of equal datagrams; `control`: with a buffer for the control messages of each. */
static struct mmsghdr *batch(bool control)
{
    static uint8_t payload[PAYLOAD_BYTES];
    static struct iovec vector = {payload, sizeof(payload)};
    static struct mmsghdr messages[BATCH];
    static _Alignas(struct cmsghdr) uint8_t control_bytes[BATCH][128];
    for (size_t i = 0; i < BATCH; i++) {
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1};
        if (control) {
            messages[i].msg_hdr.msg_control = control_bytes[i];
            messages[i].msg_hdr.msg_controllen = sizeof(control_bytes[i]);
        }
    }
    return messages;
}

/* A receiver that was not scheduled must not change the result, so arrival times are the kernel's.
 */
static void note(struct seen *seen, struct mmsghdr *message)
{
    struct msghdr *head = &message->msg_hdr;
    struct timespec stamp = {0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL; c = CMSG_NXTHDR(head, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            memcpy(&seen->overflown, CMSG_DATA(c), sizeof(seen->overflown));
        }
    }
    if (message->msg_len != PAYLOAD_BYTES) {
        seen->marks++;
    } else if (seen->packets++ < STAMPS_MAX) {
        seen->stamps_ns[seen->packets - 1] =
            (uint64_t)stamp.tv_sec * WEFT_NS_PER_S + (uint64_t)stamp.tv_nsec;
    }
}

static int by_size(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(const struct seen *seen)
{
    static double mbit[STAMPS_MAX / WINDOW];
    uint64_t stamps = weft_min_u64(seen->packets, STAMPS_MAX);
    size_t windows = 0;
    for (uint64_t i = 0; i + WINDOW < stamps; i += WINDOW) {
        double ns = (double)(int64_t)(seen->stamps_ns[i + WINDOW] - seen->stamps_ns[i]);
        mbit[windows++] = ns > 0 ? WINDOW * FRAME_BYTES * 8e3 / ns : 1e9;
    }
    qsort(mbit, windows, sizeof(mbit[0]), by_size);
    printf("packets %llu overflown %u windows %zu mbit %.2f\n", (unsigned long long)seen->packets,
           seen->overflown, windows, windows > 0 ? mbit[windows / 2] : 0.0);
}

/* Repeat until a reply arrives, or the receiver has exited. */
static int send_marks(int fd)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms += MARK_MS) {
        if (poll(&answer, 1, MARK_MS) > 0 || send(fd, "", 1, 0) != 1) {
            return 0;
        }
    }
    errno = ETIMEDOUT;
    return fail("blast send: marks");
}

static int run_send(const char *to, uint64_t count, bool marks)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || inet_pton(AF_INET, to, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        return fail("blast send");
    }
    while (count > 0) {
        int sent = sendmmsg(fd, batch(false), (unsigned)weft_min_u64(count, BATCH), 0);
        if (sent <= 0) {
            return fail("blast send");
        }
        count -= (uint64_t)sent;
    }
    return marks ? send_marks(fd) : 0;
}

static int run_recv(uint64_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int size = BUFFER_BYTES;
    int on = 1;
    struct pollfd socket_fd = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .events = POLLIN};
    if (socket_fd.fd < 0 ||
        setsockopt(socket_fd.fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0 ||
        setsockopt(socket_fd.fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 ||
        setsockopt(socket_fd.fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on)) != 0 ||
        bind(socket_fd.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        return fail("blast recv");
    }
    puts("ready");
    fflush(stdout);
    static struct seen seen;
    while (seen.packets < count && seen.marks < MARKS && poll(&socket_fd, 1, TIMEOUT_MS) > 0) {
        struct mmsghdr *messages = batch(true);
        int got = recvmmsg(socket_fd.fd, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            note(&seen, &messages[i]);
        }
    }
    report(&seen);
    return 0;
}

int main(int argc, char **argv)
{
    bool marks = argc == 5 && strcmp(argv[4], "marks") == 0;
    if ((argc == 4 || marks) && strcmp(argv[1], "send") == 0) {
        return run_send(argv[2], strtoull(argv[3], NULL, 10), marks);
    }
    if (argc == 3 && strcmp(argv[1], "recv") == 0) {
        return run_recv(strtoull(argv[2], NULL, 10));
    }
    fprintf(stderr, "blast: read the top of blast.c\n");
    return 2;
}
