#include "io/udp/datagrams.h"

#include "base/assert.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 256, PARTS = 2, PATIENCE_MS = 10 };

struct weft_datagrams {
    int fd;
    uint32_t count;
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH][PARTS];
    struct weft_addr to[BATCH];
    uint8_t heads[BATCH][WEFT_DATAGRAM_HEAD_BYTES];
};

weft_status weft_datagrams_new(int fd, struct weft_datagrams **datagrams_p)
{
    struct weft_datagrams *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return WEFT_NOMEM;
    }
    d->fd = fd;
    for (uint32_t i = 0; i < BATCH; i++) {
        d->parts[i][0].iov_base = d->heads[i];
        d->messages[i].msg_hdr =
            (struct msghdr){.msg_iov = d->parts[i], .msg_iovlen = PARTS};
    }
    *datagrams_p = d;
    return WEFT_OK;
}

void weft_datagrams_free(struct weft_datagrams *datagrams)
{
    free(datagrams);
}

void weft_datagrams_add(struct weft_datagrams *datagrams, const struct weft_addr *to,
                        const void *head, uint32_t head_count, const void *body,
                        uint32_t body_count, struct weft_socket_counters *counters)
{
    struct weft_datagrams *d = datagrams;
    WEFT_ASSERT(head_count <= WEFT_DATAGRAM_HEAD_BYTES);
    if (d->count == BATCH) {
        weft_datagrams_flush(d, counters);
    }
    uint32_t i = d->count++;
    d->to[i] = *to;
    memcpy(d->heads[i], head, head_count);
    d->parts[i][0].iov_len = head_count;
    d->parts[i][1] = (struct iovec){.iov_base = (void *)(uintptr_t)body, .iov_len = body_count};
    d->messages[i].msg_hdr.msg_name = d->to[i].bytes;
    d->messages[i].msg_hdr.msg_namelen = d->to[i].bytes_used;
}

/* False: the socket has no room for longer than the patience. */
static bool wait_for_room(const struct weft_datagrams *d, struct weft_socket_counters *counters)
{
    struct pollfd fd = {.fd = d->fd, .events = POLLOUT};
    counters->send_blocked++;
    return poll(&fd, 1, PATIENCE_MS) > 0 && (fd.revents & POLLOUT) != 0;
}

static void count_sent(const struct weft_datagrams *d, uint32_t from, uint32_t count,
                       struct weft_socket_counters *counters)
{
    for (uint32_t i = from; i < from + count; i++) {
        counters->bytes_sent += d->messages[i].msg_len;
    }
    counters->datagrams_sent += count;
    counters->bursts_sent += count;
}

void weft_datagrams_flush(struct weft_datagrams *datagrams, struct weft_socket_counters *counters)
{
    struct weft_datagrams *d = datagrams;
    uint32_t at = 0;
    while (at < d->count) {
        int sent = sendmmsg(d->fd, d->messages + at, d->count - at, 0);
        counters->send_calls++;
        if (sent > 0) {
            count_sent(d, at, (uint32_t)sent, counters);
            at += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for_room(d, counters)) {
                break;
            }
        } else if (errno != EINTR) {
            counters->send_dropped++; /* this one; or the error is about an earlier one */
            at++;
        }
    }
    counters->send_dropped += d->count - at;
    d->count = 0;
}
