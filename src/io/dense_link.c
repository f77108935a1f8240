#include "io/dense_link.h"

#include "io/clock.h"
#include "io/sock_addr.h"
#include "io/udp/datagrams.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 8 << 20,
    BATCH = 64,
    PACKET_BYTES = WEFT_AGG_HEADER_BYTES + WEFT_AGG_PAYLOAD_MAX,
};

struct weft_dense_link {
    int fd;
    struct weft_addr box;
    struct weft_rx *rx;
    struct weft_datagrams *out;
    struct weft_agg_member member;
    struct weft_inject_loss loss;
    bool (*is_stopped)(void *arg);
    void *arg;
    struct weft_socket_counters counters;
    uint8_t packets[BATCH][PACKET_BYTES];
};

static weft_status open_socket(struct weft_dense_link *link,
                               const struct weft_dense_link_config *config,
                               struct weft_error *error)
{
    const struct weft_sock_request request = {.buffer_bytes = BUFFER_BYTES, .gro = true};
    const bool loopback_only = !config->insecure_network;
    struct weft_sock_facts facts;
    struct weft_addr own;
    weft_status status = weft_sock_addr_usable(config->host, 0, loopback_only, &own, error);
    if (status == WEFT_OK) {
        status = weft_sock_addr_target(config->box_host, config->box_port, loopback_only,
                                       weft_sock_addr_family(&own), &link->box, error);
    }
    return status == WEFT_OK ? weft_sock_open(&own, &request, &link->fd, &facts, error) : status;
}

weft_status weft_dense_link_open(const struct weft_dense_link_config *config,
                                 struct weft_dense_link **link_p, struct weft_error *error)
{
    struct weft_dense_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a member");
    }
    link->fd = -1;
    weft_status status = weft_agg_member_init(&link->member, &config->member);
    if (status != WEFT_OK) {
        status = weft_fail(error, status, "%s",
                           status == WEFT_INVALID ? "the member's configuration is invalid"
                                                  : "no memory for a member's slots");
    }
    status = status == WEFT_OK ? open_socket(link, config, error) : status;
    if (status == WEFT_OK && (weft_rx_new(link->fd, &link->rx) != WEFT_OK ||
                              weft_datagrams_new(link->fd, &link->out) != WEFT_OK)) {
        status = weft_fail(error, WEFT_NOMEM, "no memory for a member");
    }
    if (status != WEFT_OK) {
        weft_dense_link_close(link);
        return status;
    }
    weft_inject_loss_init(&link->loss, &config->loss);
    link->is_stopped = config->is_stopped;
    link->arg = config->arg;
    *link_p = link;
    return WEFT_OK;
}

void weft_dense_link_close(struct weft_dense_link *link)
{
    if (link == NULL) {
        return;
    }
    weft_rx_free(link->rx);
    weft_datagrams_free(link->out);
    weft_agg_member_fini(&link->member);
    if (link->fd >= 0) {
        (void)close(link->fd);
    }
    free(link);
}

struct weft_agg_member *weft_dense_link_member(struct weft_dense_link *link)
{
    return &link->member;
}

const struct weft_socket_counters *weft_dense_link_counters(const struct weft_dense_link *link)
{
    return &link->counters;
}

static void send_all(struct weft_dense_link *link, uint64_t now_ns)
{
    uint32_t bytes;
    do {
        bytes = 0;
        for (uint32_t i = 0; i < BATCH; i++) {
            uint8_t *packet = link->packets[i];
            bytes = weft_agg_member_send(&link->member, packet, now_ns);
            if (bytes == 0) {
                break;
            }
            weft_datagrams_add(link->out, &link->box, packet, WEFT_AGG_HEADER_BYTES,
                               packet + WEFT_AGG_HEADER_BYTES, bytes - WEFT_AGG_HEADER_BYTES,
                               &link->counters);
        }
        weft_datagrams_flush(link->out, &link->counters);
    } while (bytes > 0);
}

/* Returns the current time. */
static uint64_t receive_batch(struct weft_dense_link *link)
{
    const struct weft_rx_buffer *buffers;
    uint32_t count;
    uint64_t now_ns;
    (void)weft_rx_batch(link->rx, false, &link->counters, &now_ns, &buffers, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_rx_buffer *b = &buffers[i];
        for (uint32_t at = 0; at < b->count; at += b->segment_bytes) {
            uint32_t bytes = (uint32_t)weft_min_u64(b->segment_bytes, b->count - at);
            if (weft_inject_loss_next(&link->loss)) {
                link->counters.injected_drops++;
            } else {
                (void)weft_agg_member_receive(&link->member, b->bytes + at, bytes, now_ns);
            }
        }
    }
    return now_ns;
}

/* Sleep for at most 50 ms, after which the caller calls is_stopped. */
static void sleep_until(const struct weft_dense_link *link, uint64_t until_ns, uint64_t now_ns)
{
    struct pollfd fd = {.fd = link->fd, .events = POLLIN};
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    left_ns = weft_min_u64(left_ns, 50 * WEFT_NS_PER_MS);
    const struct timespec left = {.tv_sec = (time_t)(left_ns / WEFT_NS_PER_S),
                                  .tv_nsec = (long)(left_ns % WEFT_NS_PER_S)};
    (void)ppoll(&fd, 1, &left, NULL);
}

weft_status weft_dense_link_sum(struct weft_dense_link *link, const void *in, void *out,
                                uint64_t count, uint64_t *direct, uint64_t timeout_ns,
                                struct weft_error *error)
{
    uint64_t now_ns = weft_clock_now_ns();
    const uint64_t end_ns = weft_time_add(now_ns, timeout_ns);
    weft_status status = weft_agg_member_begin(&link->member, in, out, count, direct);
    if (status == WEFT_STATE) {
        return weft_fail(error, status, "the previous vector is not summed yet");
    }
    if (status != WEFT_OK) {
        return weft_fail(error, status, "%s",
                         count == 0 ? "a vector has at least one element"
                                    : "a vector has at most 2^31 chunks");
    }
    send_all(link, now_ns);
    while (!weft_agg_member_is_done(&link->member)) {
        if (link->is_stopped != NULL && link->is_stopped(link->arg)) {
            return weft_fail(error, WEFT_AGAIN, "interrupted");
        }
        if (now_ns >= end_ns) {
            return weft_fail(error, WEFT_TIMEOUT, "%u of %u chunks have no sum",
                             link->member.left, link->member.chunks);
        }
        sleep_until(link, weft_min_u64(weft_agg_member_deadline(&link->member), end_ns), now_ns);
        now_ns = receive_batch(link);
        send_all(link, now_ns);
    }
    return WEFT_OK;
}
