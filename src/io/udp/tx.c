#include "io/udp/tx.h"

#include "base/assert.h"
#include "io/udp/socket.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>

/* The kernel reads struct weft_ep_iov as struct iovec. */
static_assert(sizeof(struct weft_ep_iov) == sizeof(struct iovec), "same layout");
static_assert(offsetof(struct weft_ep_iov, base) == offsetof(struct iovec, iov_base),
              "same layout");
static_assert(offsetof(struct weft_ep_iov, bytes) == offsetof(struct iovec, iov_len),
              "same layout");

enum {
    CONTROL_BYTES = CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int)),
    BLOCKED_WAIT_MS = 1,   /* longer than loopback ever needs; after that the packet counts as
                            * lost */
    SOCKET_ERRORS_MAX = 8, /* pending errors cleared for one message before it is dropped */
    /* Splitting a burst cuts at most one buffer at each packet's end. */
    SPLIT_IOV_MAX = 3 * WEFT_TX_PACKETS_MAX,
    SHORT_BYTES = 1024, /* copying up to this many bytes is cheaper than a list of buffers */
    UNLIKE_MAX = 16,    /* consecutive datagrams with another ECN mark, after which the
                         * socket's ECN setting is changed */
};

/* Control data of one message: segment size and ECN mark. */
struct control {
    alignas(struct cmsghdr) uint8_t bytes[CONTROL_BYTES];
};

static void control_add(struct msghdr *message, int level, int type, const void *value,
                        size_t bytes)
{
    struct cmsghdr header = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(bytes)};
    uint8_t *at = (uint8_t *)message->msg_control + message->msg_controllen;
    memset(at, 0, CMSG_SPACE(bytes));
    memcpy(at, &header, sizeof(header));
    memcpy(at + CMSG_LEN(0), value, bytes);
    message->msg_controllen += CMSG_SPACE(bytes);
}

static void message_init(const struct weft_sender *sender, struct mmsghdr *message,
                         const struct weft_tx *burst, const struct iovec *iov, size_t iov_count,
                         struct control *control, bool segmented)
{
    struct msghdr *hdr = &message->msg_hdr;
    *hdr = (struct msghdr){
        .msg_name = (void *)(uintptr_t)burst->addr.bytes, /* sendmsg does not write to it */
        .msg_namelen = burst->addr.bytes_used,
        .msg_iov = (struct iovec *)(uintptr_t)iov,
        .msg_iovlen = iov_count,
        .msg_control = control->bytes,
    };
    if (segmented) {
        uint16_t segment_bytes = (uint16_t)burst->seg_bytes;
        control_add(hdr, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes));
    }
    if (burst->ecn != sender->ecn) {
        int traffic_class = (int)burst->ecn;
        if (burst->addr.bytes_used == sizeof(struct sockaddr_in)) {
            control_add(hdr, IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
        } else {
            control_add(hdr, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof(traffic_class));
        }
    }
    if (hdr->msg_controllen == 0) {
        hdr->msg_control = NULL;
    }
}

/* What to do with a message that the kernel refused. */
enum verdict { TRY_AGAIN, DROP, NO_GSO };

struct attempt {
    bool waited;
    uint32_t socket_errors;
};

static enum verdict blocked(const struct weft_sender *sender, struct attempt *attempt,
                            struct weft_socket_counters *counters)
{
    if (attempt->waited) {
        return DROP;
    }
    attempt->waited = true;
    counters->send_blocked++;
    struct pollfd wait = {.fd = sender->fd, .events = POLLOUT};
    (void)poll(&wait, 1, BLOCKED_WAIT_MS);
    return TRY_AGAIN;
}

static enum verdict judge(const struct weft_sender *sender, int number, bool segmented,
                          struct attempt *attempt, struct weft_socket_counters *counters)
{
    switch (number) {
    case EINTR:
        return TRY_AGAIN;
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
        return blocked(sender, attempt, counters);
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
        /* This may be an error about an earlier datagram: this one was not sent, and the error is
         * now cleared. */
        counters->socket_errors++;
        return attempt->socket_errors++ < SOCKET_ERRORS_MAX ? TRY_AGAIN : DROP;
    case EIO:    /* the route's device cannot compute checksums of segments */
    case EINVAL: /* segments are longer than the route's MTU, or there are too many */
    case EMSGSIZE:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
        return segmented ? NO_GSO : DROP;
    default:
        WEFT_ASSERT(number != EBADF && number != EFAULT && number != ENOTSOCK);
        return DROP;
    }
}

/* Send the datagrams of one burst as separate messages. */
static uint32_t split(const struct weft_sender *sender, const struct weft_tx *burst,
                      struct mmsghdr *messages, struct iovec *iov, struct control *control)
{
    size_t source = 0;
    size_t offset = 0;
    uint32_t used = 0;
    uint32_t left = burst->bytes;
    for (uint32_t i = 0; i < burst->packets; i++) {
        uint32_t first = used;
        size_t want = left < burst->seg_bytes ? left : burst->seg_bytes;
        left -= (uint32_t)want;
        while (want > 0) {
            WEFT_ASSERT(source < burst->iov_count && used < SPLIT_IOV_MAX);
            const struct weft_ep_iov *from = &burst->iov[source];
            size_t take = from->bytes - offset < want ? from->bytes - offset : want;
            iov[used++] = (struct iovec){
                .iov_base = (uint8_t *)(uintptr_t)from->base + offset,
                .iov_len = take,
            };
            want -= take;
            offset += take;
            if (offset == from->bytes) {
                source++;
                offset = 0;
            }
        }
        message_init(sender, &messages[i], burst, &iov[first], used - first, &control[i], false);
    }
    return burst->packets;
}

static void count_sent(const struct mmsghdr *message, uint32_t datagrams,
                       struct weft_socket_counters *counters)
{
    counters->bursts_sent++;
    counters->datagrams_sent += datagrams;
    counters->bytes_sent += message->msg_len;
}

static void note_too_big(struct weft_sender *sender, int number, const struct weft_addr *addr,
                         uint32_t bytes)
{
    if (number == EMSGSIZE) {
        sender->too_big_addr = *addr;
        sender->too_big_bytes = bytes;
    }
}

/* DF is a setting of the socket, not of a message. */
static void set_fragmenting(struct weft_sender *sender, bool fragment)
{
    if (sender->fragmenting != fragment) {
        sender->fragmenting = fragment;
        weft_sock_set_fragment(sender->fd, sender->family, fragment);
    }
}

static void send_singly(struct weft_sender *sender, const struct weft_tx *burst,
                        struct weft_socket_counters *counters)
{
    struct mmsghdr messages[WEFT_TX_PACKETS_MAX];
    struct iovec iov[SPLIT_IOV_MAX];
    struct control control[WEFT_TX_PACKETS_MAX];
    uint32_t count = split(sender, burst, messages, iov, control);
    struct attempt attempt = {0};
    for (uint32_t done = 0; done < count;) {
        counters->send_calls++;
        int sent = sender->send(sender->fd, messages + done, count - done, MSG_DONTWAIT);
        int number = errno;
        if (sent > 0) {
            for (int i = 0; i < sent; i++) {
                count_sent(&messages[done++], 1, counters);
            }
            attempt = (struct attempt){0};
        } else if (judge(sender, number, false, &attempt, counters) == DROP) {
            uint32_t at = done * burst->seg_bytes;
            uint32_t left = burst->bytes - at;
            note_too_big(sender, number, &burst->addr,
                         left < burst->seg_bytes ? left : burst->seg_bytes);
            counters->send_dropped++;
            done++;
            attempt.socket_errors = 0; /* `waited` is kept: a full socket costs at most one wait for
                                        * each burst */
        }
    }
}

/* Send bursts unsplit until one of them has to be split; returns how many were sent or dropped. */
static uint32_t send_bursts(struct weft_sender *sender, const struct weft_tx *bursts,
                            uint32_t count, struct weft_socket_counters *counters)
{
    struct mmsghdr messages[WEFT_TX_BATCH];
    struct control control[WEFT_TX_BATCH];
    for (uint32_t i = 0; i < count; i++) {
        const struct iovec *iov = (const struct iovec *)(const void *)bursts[i].iov;
        message_init(sender, &messages[i], &bursts[i], iov, bursts[i].iov_count, &control[i],
                     bursts[i].packets > 1);
    }
    struct attempt attempt = {0};
    uint32_t done = 0;
    while (done < count) {
        counters->send_calls++;
        int sent = sender->send(sender->fd, messages + done, count - done, MSG_DONTWAIT);
        int number = errno;
        if (sent > 0) {
            for (int i = 0; i < sent; i++, done++) {
                count_sent(&messages[done], bursts[done].packets, counters);
            }
            attempt = (struct attempt){0};
            continue;
        }
        switch (judge(sender, number, bursts[done].packets > 1, &attempt, counters)) {
        case TRY_AGAIN:
            break;
        case DROP:
            note_too_big(sender, number, &bursts[done].addr, bursts[done].bytes);
            counters->send_dropped += bursts[done++].packets;
            attempt.socket_errors = 0;
            break;
        case NO_GSO:
            /* If its datagrams are too long for the route, GSO is not the cause. */
            sender->too_big_bytes = 0;
            counters->gso_refused++;
            send_singly(sender, &bursts[done++], counters);
            sender->gso = sender->too_big_bytes != 0;
            return done;
        }
    }
    return done;
}

void weft_sender_init(struct weft_sender *sender, int fd, int family, bool gso)
{
    *sender = (struct weft_sender){
        .fd = fd, .family = family, .send = sendmmsg, .gso = gso, .ecn = WEFT_ECN_NOT};
}

/* Does the socket's own mark match this datagram's? It is changed when many in a row need another
 * one. */
static bool marks_alike(struct weft_sender *sender, enum weft_ecn ecn)
{
    sender->unlike = ecn == sender->ecn ? 0 : sender->unlike + 1;
    if (sender->unlike >= UNLIKE_MAX && weft_sock_set_ecn(sender->fd, sender->family, ecn)) {
        sender->ecn = ecn;
        sender->unlike = 0;
    }
    return ecn == sender->ecn;
}

/* Send one short datagram, the usual case of request and reply: copied into one buffer, without
 * control data, by the cheapest call. False: it was not sent, for whatever reason. */
static bool send_short(struct weft_sender *sender, const struct weft_tx *burst,
                       struct weft_socket_counters *counters)
{
    if (burst->packets != 1 || burst->bytes > SHORT_BYTES || sender->send != sendmmsg ||
        !marks_alike(sender, burst->ecn)) {
        return false;
    }
    uint8_t bytes[SHORT_BYTES];
    size_t used = 0;
    for (uint32_t i = 0; i < burst->iov_count; i++) {
        memcpy(bytes + used, burst->iov[i].base, burst->iov[i].bytes);
        used += burst->iov[i].bytes;
    }
    counters->send_calls++;
    ssize_t sent =
        sendto(sender->fd, bytes, used, MSG_DONTWAIT,
               (const struct sockaddr *)(const void *)burst->addr.bytes, burst->addr.bytes_used);
    if (sent < 0) {
        return false; /* the general path sends it again, and handles the error */
    }
    counters->bursts_sent++;
    counters->datagrams_sent++;
    counters->bytes_sent += (uint64_t)sent;
    return true;
}

void weft_sender_send(struct weft_sender *sender, const struct weft_tx *bursts, uint32_t count,
                      struct weft_socket_counters *counters)
{
    WEFT_ASSERT(count <= WEFT_TX_BATCH);
    for (uint32_t done = 0; done < count;) {
        set_fragmenting(sender, bursts[done].fragment);
        if (!sender->gso && bursts[done].packets > 1) {
            counters->gso_refused++;
            send_singly(sender, &bursts[done++], counters);
            continue;
        }
        /* Without GSO, only consecutive single packets share a system call. */
        uint32_t run = 1;
        while (done + run < count && bursts[done + run].fragment == bursts[done].fragment &&
               (sender->gso || bursts[done + run].packets == 1)) {
            run++;
        }
        if (run == 1 && send_short(sender, &bursts[done], counters)) {
            done++;
            continue;
        }
        done += send_bursts(sender, bursts + done, run, counters);
    }
}
