/* Counted datagrams between hosts of a lab: what tests/lab/network.sh measures rates, buffers and
 * losses with.
 *
 *   blast send ADDRESS COUNT    as fast as the socket takes them: the rate of the host's own queue,
 *                               or at once when its link has no limit
 *   blast recv COUNT QUIET_MS   until COUNT came, or none for QUIET_MS after the first; prints
 *                               "ready", then "packets N bytes B seconds S" (S: first to last, by the
 *                               kernel's stamps)
 *
 * A datagram is a packet of 1514 bytes with its Ethernet header; `bytes` counts those.
 */
#include "base/units.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 9900, PAYLOAD_BYTES = 1472, FRAME_BYTES = 1514, BATCH = 32, BUFFER_BYTES = 16 << 20 };

static int fail(const char *what)
{
    perror(what);
    return 1;
}

/* Batches of equal datagrams; control = with room for a time stamp each. */
static struct mmsghdr *batch(bool control)
{
    static uint8_t payload[PAYLOAD_BYTES];
    static struct iovec vector = {payload, sizeof(payload)};
    static struct mmsghdr messages[BATCH];
    static _Alignas(struct cmsghdr) uint8_t rooms[BATCH][CMSG_SPACE(sizeof(struct timespec))];
    for (size_t i = 0; i < BATCH; i++) {
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1};
        if (control) {
            messages[i].msg_hdr.msg_control = rooms[i];
            messages[i].msg_hdr.msg_controllen = sizeof(rooms[i]);
        }
    }
    return messages;
}

/* When it arrived: a receiver that had no turn must not change what is measured. */
static uint64_t stamp_ns(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    struct timespec stamp = {0};
    if (head != NULL && head->cmsg_type == SCM_TIMESTAMPNS) {
        memcpy(&stamp, CMSG_DATA(head), sizeof(stamp));
    }
    return (uint64_t)stamp.tv_sec * WEFT_NS_PER_S + (uint64_t)stamp.tv_nsec;
}

static int run_send(const char *to, uint64_t count)
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
    return 0;
}

static int run_recv(uint64_t count, int quiet_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int size = BUFFER_BYTES;
    int on = 1;
    struct pollfd socket_fd = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .events = POLLIN};
    if (socket_fd.fd < 0 ||
        setsockopt(socket_fd.fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0 ||
        setsockopt(socket_fd.fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 ||
        bind(socket_fd.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        return fail("blast recv");
    }
    puts("ready");
    fflush(stdout);
    uint64_t packets = 0;
    uint64_t first_ns = 0;
    uint64_t last_ns = 0;
    while (packets < count && poll(&socket_fd, 1, packets == 0 ? 20000 : quiet_ms) > 0) {
        struct mmsghdr *messages = batch(true);
        int got = recvmmsg(socket_fd.fd, messages, BATCH, MSG_DONTWAIT, NULL);
        if (got > 0) {
            last_ns = stamp_ns(&messages[got - 1].msg_hdr);
            first_ns = packets == 0 ? stamp_ns(&messages[0].msg_hdr) : first_ns;
            packets += (uint64_t)got;
        }
    }
    printf("packets %llu bytes %llu seconds %.6f\n", (unsigned long long)packets,
           (unsigned long long)packets * FRAME_BYTES, (double)(last_ns - first_ns) / 1e9);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "send") == 0) {
        return run_send(argv[2], strtoull(argv[3], NULL, 10));
    }
    if (argc == 4 && strcmp(argv[1], "recv") == 0) {
        return run_recv(strtoull(argv[2], NULL, 10), atoi(argv[3]));
    }
    fprintf(stderr, "blast: read the top of blast.c\n");
    return 2;
}
