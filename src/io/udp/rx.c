#include "io/udp/rx.h"

#include "base/assert.h"
#include "io/sock_addr.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* GRO size, arrival timestamp, ECN field, overflow count. */
    CONTROL_BYTES = CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct timespec)) +
                    CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint32_t)),
    SINGLES_MIN = 8,
    LONG_BYTES = 4096, /* a datagram of a jumbo frame, or several merged ones */
};

struct weft_rx {
    int fd;
    uint32_t overflow_seen; /* the kernel's 32-bit count, as last reported */
    uint32_t singles;       /* consecutive batches of one buffer */
    bool interrupted;       /* the last batch was, by a signal */
    bool more;              /* it was full */
    uint32_t slots;         /* of the next batch */
    uint32_t used;          /* messages, from the first, that the kernel has written to */
    struct mmsghdr messages[WEFT_RX_SLOTS];
    struct iovec iov[WEFT_RX_SLOTS];
    struct sockaddr_storage from[WEFT_RX_SLOTS];
    struct weft_rx_buffer buffers[WEFT_RX_SLOTS];
    alignas(struct cmsghdr) uint8_t control[WEFT_RX_SLOTS][CONTROL_BYTES];
    uint8_t *bytes;
};

weft_status weft_rx_new(int fd, struct weft_rx **rx_p)
{
    struct weft_rx *rx = calloc(1, sizeof(*rx));
    uint8_t *bytes = malloc((size_t)WEFT_RX_SLOTS * WEFT_RX_SLOT_BYTES);
    if (rx == NULL || bytes == NULL) {
        free(rx);
        free(bytes);
        return WEFT_NOMEM;
    }
    rx->fd = fd;
    rx->bytes = bytes;
    for (uint32_t i = 0; i < WEFT_RX_SLOTS; i++) {
        rx->iov[i] = (struct iovec){.iov_base = bytes + (size_t)i * WEFT_RX_SLOT_BYTES,
                                    .iov_len = WEFT_RX_SLOT_BYTES};
    }
    rx->slots = WEFT_RX_SLOTS;
    rx->used = WEFT_RX_SLOTS;
    *rx_p = rx;
    return WEFT_OK;
}

void weft_rx_free(struct weft_rx *rx)
{
    if (rx != NULL) {
        free(rx->bytes);
        free(rx);
    }
}

/* The kernel overwrites lengths and flags of each message it fills. */
static void prepare(struct weft_rx *rx)
{
    for (uint32_t i = 0; i < rx->used; i++) {
        rx->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &rx->from[i],
            .msg_namelen = sizeof(rx->from[i]),
            .msg_iov = &rx->iov[i],
            .msg_iovlen = 1,
            .msg_control = rx->control[i],
            .msg_controllen = CONTROL_BYTES,
        };
    }
}

/* What the kernel reports with a message. */
struct beside {
    int segment_bytes;
    int traffic_class;
    struct timespec stamp;
    uint32_t overflow; /* datagrams lost to a full receive buffer since the socket was opened */
    bool has_overflow;
};

static void take_int(const struct cmsghdr *cmsg, int *value_p)
{
    /* IP_TOS is one byte, IPV6_TCLASS and UDP_GRO are an int. */
    if (cmsg->cmsg_len == CMSG_LEN(sizeof(uint8_t))) {
        *value_p = *CMSG_DATA(cmsg);
    } else if (cmsg->cmsg_len >= CMSG_LEN(sizeof(int))) {
        memcpy(value_p, CMSG_DATA(cmsg), sizeof(int));
    }
}

static struct beside read_beside(struct msghdr *message)
{
    struct beside beside = {0};
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg != NULL;
         cmsg = CMSG_NXTHDR(message, cmsg)) {
        int level = cmsg->cmsg_level;
        int type = cmsg->cmsg_type;
        if (level == SOL_UDP && type == UDP_GRO) {
            take_int(cmsg, &beside.segment_bytes);
        } else if ((level == IPPROTO_IP && type == IP_TOS) ||
                   (level == IPPROTO_IPV6 && type == IPV6_TCLASS)) {
            take_int(cmsg, &beside.traffic_class);
        } else if (level == SOL_SOCKET && type == SCM_TIMESTAMPNS) {
            memcpy(&beside.stamp, CMSG_DATA(cmsg), sizeof(beside.stamp));
        } else if (level == SOL_SOCKET && type == SO_RXQ_OVFL) {
            memcpy(&beside.overflow, CMSG_DATA(cmsg), sizeof(beside.overflow));
            beside.has_overflow = true;
        }
    }
    return beside;
}

/* Fill in buffer from message i; false when the datagram was truncated and must be left out. */
static bool describe(struct weft_rx *rx, uint32_t i, const struct weft_clock_map *map,
                     uint64_t now_ns, struct weft_socket_counters *counters,
                     struct weft_rx_buffer *buffer)
{
    struct msghdr *message = &rx->messages[i].msg_hdr;
    uint32_t count = rx->messages[i].msg_len;
    struct beside beside = read_beside(message);
    if (beside.has_overflow) {
        counters->kernel_drops += beside.overflow - rx->overflow_seen;
        rx->overflow_seen = beside.overflow;
    }
    counters->buffers_received++;
    if ((message->msg_flags & MSG_TRUNC) != 0) {
        counters->truncated++;
        return false;
    }
    weft_sock_addr_canonical(&rx->from[i], &buffer->from);
    buffer->ecn = (enum weft_ecn)(beside.traffic_class & 3);
    buffer->bytes = rx->iov[i].iov_base;
    buffer->count = count;
    buffer->segment_bytes = beside.segment_bytes > 0 ? (uint32_t)beside.segment_bytes : count;
    buffer->at_ns = weft_clock_map_stamp(map, &beside.stamp, now_ns);
    return true;
}

static int receive(struct weft_rx *rx, int flags)
{
    return recvmmsg(rx->fd, rx->messages, rx->slots, flags, NULL);
}

/* When datagrams arrive one at a time, recvmsg is the cheaper call; every 16th call checks that
 * they still do. */
static int receive_asleep(struct weft_rx *rx)
{
    if (rx->singles < SINGLES_MIN || rx->singles % 16 == 0) {
        int received = receive(rx, MSG_WAITFORONE); /* not for the others, too */
        rx->singles = received <= 1 ? rx->singles + 1 : 0;
        return received;
    }
    ssize_t bytes = recvmsg(rx->fd, &rx->messages[0].msg_hdr, 0);
    rx->messages[0].msg_len = (unsigned)bytes;
    rx->singles++;
    return bytes < 0 ? -1 : 1;
}

static void batch_note(struct weft_rx *rx, uint32_t received)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < received; i++) {
        bytes += rx->messages[i].msg_len;
    }
    rx->more = received == rx->slots;
    rx->used = received;
    rx->slots = bytes > (uint64_t)received * LONG_BYTES ? WEFT_RX_SLOTS_LONG : WEFT_RX_SLOTS;
}

uint32_t weft_rx_batch(struct weft_rx *rx, bool sleep, struct weft_socket_counters *counters,
                       uint64_t *now_ns_p, const struct weft_rx_buffer **buffers_p,
                       uint32_t *count_p)
{
    prepare(rx);
    int received = sleep ? receive_asleep(rx) : receive(rx, MSG_DONTWAIT);
    rx->interrupted = received < 0 && errno == EINTR;
    counters->recv_calls++;
    if (received < 0) {
        /* EAGAIN: nothing to read. Other errors are about a datagram sent earlier (ECONNREFUSED):
         * reading them has cleared them, and the endpoint's own timers detect the loss. */
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            WEFT_ASSERT(errno != EBADF && errno != EFAULT && errno != ENOTSOCK);
            counters->socket_errors++;
        }
        received = 0;
    }
    batch_note(rx, (uint32_t)received);
    struct weft_clock_map map;
    *now_ns_p = weft_clock_map_refresh(&map);
    uint32_t count = 0;
    for (int i = 0; i < received; i++) {
        count += describe(rx, (uint32_t)i, &map, *now_ns_p, counters, &rx->buffers[count]);
    }
    *buffers_p = rx->buffers;
    *count_p = count;
    return (uint32_t)received;
}

bool weft_rx_more(const struct weft_rx *rx)
{
    return rx->more;
}

bool weft_rx_interrupted(const struct weft_rx *rx)
{
    return rx->interrupted;
}
