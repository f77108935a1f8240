/* The transport udp-raw of `weft perf stream`: the minimum that a program must do to move the same
 * packets as weft. It sends GSO bursts of (48-byte header, a chunk of payload taken in shuffled
 * order straight from the vector), receives with GRO, and adds each chunk to the accumulator at the
 * offset in the header. Flow control is a count of packets received, sent
 * back after each batch; there is no loss recovery, no acknowledgement of ranges, no checksum.
 * Packets missing at the end are reported as lost. */
#define _GNU_SOURCE // recvmmsg, sendmmsg
#include "cli/perf/stream.h"

#include "core/sink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BURST_PACKETS_MAX = 64, /* the kernel's limit */
    BURST_BYTES_MAX = 65000,
    BURSTS_PER_CALL = 4,
    WINDOW_BYTES = 2500000, /* in flight; the socket buffer has 4 MB */
    SLOTS = 8,
    SLOT_BYTES = 65536,
    SOCKET_BUFFER_BYTES = 4 << 20,
    STALL_MS = 100, /* without an acknowledgement: packets in flight count as lost */
};

/* Host byte order: both ends are this program. The rest of the 48 bytes is padding. */
struct header {
    uint32_t message;
    uint32_t chunk;
    uint8_t rest[WEFT_STREAM_HEADER_BYTES - 2 * sizeof(uint32_t)];
};

struct raw {
    const struct weft_stream_job *job;
    uint32_t segment_bytes; /* of a full packet */
    uint32_t burst_packets;
    uint32_t chunks;  /* of a message */
    uint32_t *order;  /* chunks in the order in which they are sent */
    int fds[2];       /* sender, receiver; connected to each other */
    atomic_bool sent; /* the sender is done */
};

static bool open_pair(const struct weft_perf_layout *layout, int fds[2], struct weft_error *error)
{
    static const uint32_t participants[2] = {WEFT_STREAM_SENDER, WEFT_STREAM_RECEIVER};
    struct sockaddr_in addr[2];
    int bytes_wanted = SOCKET_BUFFER_BYTES;
    int on = 1;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        fds[i] = weft_perf_layout_socket(layout, participants[i], SOCK_DGRAM, error);
        if (fds[i] < 0) {
            return false;
        }
        good = good && weft_perf_layout_bind(layout, participants[i], fds[i], &addr[i]) &&
               setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &bytes_wanted, sizeof(int)) == 0 &&
               setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes_wanted, sizeof(int)) == 0;
    }
    good = good && setsockopt(fds[1], SOL_UDP, UDP_GRO, &on, sizeof(on)) == 0;
    for (int i = 0; i < 2; i++) {
        good = good && connect(fds[i], (struct sockaddr *)&addr[1 - i], sizeof(addr[i])) == 0;
    }
    if (!good) {
        (void)weft_perf_fail(error, "UDP at %s: %s", inet_ntoa(addr[0].sin_addr), strerror(errno));
    }
    return good;
}

/* ---- sender ---------------------------------------------------------------------------------- */

/* Wait until less than a window is in flight. Returns the number of packets that arrived or were
 * given up. */
static uint64_t wait_for_window(const struct raw *raw, uint64_t sent, uint64_t acked)
{
    int fd = raw->fds[0];
    uint64_t window = WINDOW_BYTES / raw->segment_bytes;
    while (sent - acked + (uint64_t)raw->burst_packets * BURSTS_PER_CALL > window) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        uint64_t count;
        if (poll(&wait, 1, STALL_MS) == 0) {
            return sent;
        }
        while (recv(fd, &count, sizeof(count), MSG_DONTWAIT) == (ssize_t)sizeof(count)) {
            acked = count > acked ? count : acked;
        }
    }
    return acked;
}

struct burst {
    struct header headers[BURST_PACKETS_MAX];
    struct iovec iov[2 * BURST_PACKETS_MAX];
    alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(uint16_t))];
};

static void burst_message(const struct raw *raw, struct burst *burst, uint32_t packets,
                          struct msghdr *message_p)
{
    uint16_t segment_bytes = (uint16_t)raw->segment_bytes;
    struct cmsghdr cmsg = {.cmsg_level = SOL_UDP,
                           .cmsg_type = UDP_SEGMENT,
                           .cmsg_len = CMSG_LEN(sizeof(segment_bytes))};
    memset(burst->control, 0, sizeof(burst->control));
    memcpy(burst->control, &cmsg, sizeof(cmsg));
    memcpy(burst->control + CMSG_LEN(0), &segment_bytes, sizeof(segment_bytes));
    *message_p = (struct msghdr){
        .msg_iov = burst->iov,
        .msg_iovlen = 2 * packets,
    };
    if (packets > 1) {
        message_p->msg_control = burst->control;
        message_p->msg_controllen = sizeof(burst->control);
    }
}

/* Fill a burst with the chunks order[next], order[next + 1] and so on, at most burst_packets. The
 * short last chunk of a message ends the burst, because GSO requires equal lengths. Returns the
 * number of packets. */
static uint32_t burst_fill(const struct raw *raw, uint32_t message, uint32_t next,
                           struct burst *burst)
{
    uint32_t chunk_floats = raw->job->chunk_floats;
    uint32_t packets = 0;
    bool equal = true;
    while (packets < raw->burst_packets && next < raw->chunks && equal) {
        uint32_t chunk = raw->order[next++];
        uint32_t first = chunk * chunk_floats;
        uint32_t floats = raw->job->message_floats - first;
        equal = floats >= chunk_floats;
        floats = equal ? chunk_floats : floats;
        burst->headers[packets] = (struct header){.message = message, .chunk = chunk};
        burst->iov[2 * packets] =
            (struct iovec){&burst->headers[packets], WEFT_STREAM_HEADER_BYTES};
        burst->iov[2 * packets + 1] =
            (struct iovec){(void *)(uintptr_t)(raw->job->vector + first), floats * sizeof(float)};
        packets++;
    }
    return packets;
}

static void *send_all(void *arg)
{
    struct raw *raw = arg;
    static struct burst bursts[BURSTS_PER_CALL]; /* one sender at a time */
    struct mmsghdr messages[BURSTS_PER_CALL];
    uint64_t sent = 0;
    uint64_t acked = 0;
    weft_stream_pin(raw->job->cpus[0]);
    for (uint32_t m = 0; m < raw->job->warmup_messages + raw->job->messages; m++) {
        for (uint32_t next = 0; next < raw->chunks;) {
            uint32_t count = 0;
            while (count < BURSTS_PER_CALL && next < raw->chunks) {
                uint32_t packets = burst_fill(raw, m, next, &bursts[count]);
                burst_message(raw, &bursts[count], packets, &messages[count].msg_hdr);
                next += packets;
                sent += packets;
                count++;
            }
            for (uint32_t done = 0; done < count;) {
                int taken = sendmmsg(raw->fds[0], messages + done, count - done, 0);
                done += taken > 0 ? (uint32_t)taken : 1; /* a refused burst is lost, and counted as
                                                          * such */
            }
            acked = wait_for_window(raw, sent, acked);
        }
    }
    atomic_store(&raw->sent, true);
    return NULL;
}

/* ---- receiver -------------------------------------------------------------------------------- */

struct inbox {
    struct mmsghdr messages[SLOTS];
    struct iovec iov[SLOTS];
    alignas(struct cmsghdr) uint8_t control[SLOTS][CMSG_SPACE(sizeof(int))];
    uint8_t *bytes;
    uint64_t packets; /* received so far */
};

static int segment_bytes_of(struct msghdr *message, int otherwise)
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(message);
    if (cmsg != NULL && cmsg->cmsg_level == SOL_UDP && cmsg->cmsg_type == UDP_GRO) {
        memcpy(&otherwise, CMSG_DATA(cmsg), sizeof(otherwise));
    }
    return otherwise;
}

static void take_buffer(const struct weft_stream_job *job, struct inbox *inbox, int slot)
{
    const uint8_t *bytes = inbox->iov[slot].iov_base;
    int left = (int)inbox->messages[slot].msg_len;
    int segment_bytes = segment_bytes_of(&inbox->messages[slot].msg_hdr, left);
    while (left > 0) {
        int packet_bytes = left < segment_bytes ? left : segment_bytes;
        struct header header;
        memcpy(&header, bytes, sizeof(header));
        float *to = job->accumulator + (size_t)header.chunk * job->chunk_floats;
        weft_sink_add((uint8_t *)to, bytes + WEFT_STREAM_HEADER_BYTES,
                      (size_t)packet_bytes - WEFT_STREAM_HEADER_BYTES);
        inbox->packets++;
        bytes += packet_bytes;
        left -= packet_bytes;
    }
}

static void inbox_prepare(struct inbox *inbox)
{
    for (int i = 0; i < SLOTS; i++) {
        inbox->iov[i] = (struct iovec){inbox->bytes + (size_t)i * SLOT_BYTES, SLOT_BYTES};
        inbox->messages[i].msg_hdr = (struct msghdr){
            .msg_iov = &inbox->iov[i],
            .msg_iovlen = 1,
            .msg_control = inbox->control[i],
            .msg_controllen = sizeof(inbox->control[i]),
        };
    }
}

static void receive_all(struct raw *raw, struct inbox *inbox, struct weft_stream_result *result_p)
{
    const struct weft_stream_job *job = raw->job;
    uint64_t warmup = (uint64_t)job->warmup_messages * raw->chunks;
    uint64_t total = warmup + (uint64_t)job->messages * raw->chunks;
    result_p->start = weft_stream_mark();
    while (inbox->packets < total) {
        struct pollfd wait = {.fd = raw->fds[1], .events = POLLIN};
        if (poll(&wait, 1, STALL_MS / 2) == 0 && atomic_load(&raw->sent)) {
            break;
        }
        inbox_prepare(inbox);
        bool warm = inbox->packets >= warmup;
        int count = recvmmsg(raw->fds[1], inbox->messages, SLOTS, MSG_DONTWAIT, NULL);
        for (int i = 0; i < count; i++) {
            take_buffer(job, inbox, i);
        }
        if (!warm && inbox->packets >= warmup) {
            result_p->start = weft_stream_mark();
        }
        (void)send(raw->fds[1], &inbox->packets, sizeof(inbox->packets), MSG_DONTWAIT);
    }
    result_p->end = weft_stream_mark();
    result_p->lost = total - inbox->packets;
}

/* Fisher-Yates shuffle with a fixed linear congruential generator: any non-sequential order will
 * do. */
static void shuffle(uint32_t *order, uint32_t count)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((state >> 33) % i);
        uint32_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static bool run_threads(struct raw *raw, struct weft_stream_result *result_p,
                        struct weft_error *error)
{
    struct inbox *inbox = calloc(1, sizeof(*inbox));
    uint8_t *bytes = malloc((size_t)SLOTS * SLOT_BYTES);
    pthread_t thread;
    bool good = inbox != NULL && bytes != NULL && pthread_create(&thread, NULL, send_all, raw) == 0;
    if (good) {
        inbox->bytes = bytes;
        receive_all(raw, inbox, result_p);
        (void)pthread_join(thread, NULL);
    } else {
        (void)weft_perf_fail(error, "no memory or no thread");
    }
    free(bytes);
    free(inbox);
    return good;
}

bool weft_stream_udp_raw(const struct weft_stream_job *job, struct weft_stream_result *result_p,
                         struct weft_error *error)
{
    struct raw raw = {.job = job, .fds = {-1, -1}};
    raw.segment_bytes = WEFT_STREAM_HEADER_BYTES + job->chunk_floats * (uint32_t)sizeof(float);
    uint32_t fit = BURST_BYTES_MAX / raw.segment_bytes;
    raw.burst_packets = fit < 1 ? 1 : fit > BURST_PACKETS_MAX ? BURST_PACKETS_MAX : fit;
    raw.chunks = (job->message_floats - 1) / job->chunk_floats + 1;
    raw.order = calloc(raw.chunks, sizeof(*raw.order));
    bool good = raw.order != NULL;
    if (good) {
        shuffle(raw.order, raw.chunks);
        good = open_pair(job->layout, raw.fds, error) && run_threads(&raw, result_p, error);
    }
    (void)close(raw.fds[0]);
    (void)close(raw.fds[1]);
    free(raw.order);
    return good;
}
