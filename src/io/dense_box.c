#include "io/dense_box.h"

#include "agg/box.h"
#include "io/sock_addr.h"
#include "io/udp/datagrams.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 8 << 20 };

_Static_assert((int)WEFT_SOCK_INTERFACES_MAX == (int)WEFT_AGG_MEMBERS_MAX, "one of each member");
_Static_assert((int)WEFT_DATAGRAM_HEAD_BYTES >= (int)WEFT_AGG_HEADER_BYTES,
               "a batch has room for the header");

struct weft_dense_box {
    int fd;
    uint16_t port;
    struct weft_rx *rx;
    struct weft_datagrams *out;
    struct weft_agg_box box;
    struct weft_inject_loss loss;
    struct weft_addr members[WEFT_AGG_MEMBERS_MAX]; /* bytes_used 0: not known */
    uint32_t epochs[WEFT_AGG_MEMBERS_MAX];          /* of the last packet from there */
    struct weft_dense_box_stats stats;              /* all but those of `box` */
    pthread_mutex_t lock;                           /* held for a batch; of stats and box.counts */
};

weft_status weft_dense_box_open(const struct weft_dense_box_config *config,
                                struct weft_dense_box **box_p, struct weft_error *error)
{
    const struct weft_sock_request request = {.buffer_bytes = BUFFER_BYTES, .gro = true};
    struct weft_sock_facts facts;
    struct weft_addr addr;
    weft_status status = weft_sock_addr_usable(config->host, config->port,
                                               !config->insecure_network, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_dense_box *box = calloc(1, sizeof(*box));
    if (box == NULL || pthread_mutex_init(&box->lock, NULL) != 0) {
        free(box);
        return weft_fail(error, WEFT_NOMEM, "no memory for a box");
    }
    struct weft_agg_config agg = config->agg;
    agg.banks = 0;
    box->fd = -1;
    status = weft_sock_open(&addr, &request, &box->fd, &facts, error);
    if (status == WEFT_OK && config->interfaces_count > 0) {
        status = weft_sock_limit(box->fd, config->interfaces, config->interfaces_count, error);
    }
    if (status == WEFT_OK &&
        (weft_agg_box_init(&box->box, &agg) != WEFT_OK ||
         weft_rx_new(box->fd, &box->rx) != WEFT_OK ||
         weft_datagrams_new(box->fd, &box->out) != WEFT_OK)) {
        status = weft_fail(error, WEFT_NOMEM, "no memory for %u slots", config->agg.slots);
    }
    if (status != WEFT_OK) {
        weft_dense_box_close(box);
        return status;
    }
    weft_inject_loss_init(&box->loss, &config->loss);
    box->port = facts.port;
    *box_p = box;
    return WEFT_OK;
}

void weft_dense_box_close(struct weft_dense_box *box)
{
    if (box == NULL) {
        return;
    }
    weft_rx_free(box->rx);
    weft_datagrams_free(box->out);
    weft_agg_box_fini(&box->box);
    if (box->fd >= 0) {
        (void)close(box->fd);
    }
    (void)pthread_mutex_destroy(&box->lock);
    free(box);
}

uint16_t weft_dense_box_port(const struct weft_dense_box *box)
{
    return box->port;
}

/* ---- packets --------------------------------------------------------------------------------- */

static void learn(struct weft_dense_box *box, uint32_t member, uint32_t epoch,
                  const struct weft_addr *from)
{
    struct weft_addr *known = &box->members[member];
    const bool is_same = known->bytes_used == from->bytes_used &&
                         memcmp(known->bytes, from->bytes, from->bytes_used) == 0;
    box->stats.members += known->bytes_used == 0;
    box->stats.moved += known->bytes_used != 0 && !is_same && box->epochs[member] == epoch;
    box->epochs[member] = epoch;
    *known = *from;
}

/* Send the answer at bytes to a member. */
static void answer(struct weft_dense_box *box, uint32_t member, const uint8_t *bytes,
                   uint32_t count)
{
    uint8_t head[WEFT_AGG_HEADER_BYTES];
    if (box->members[member].bytes_used == 0) {
        box->stats.unsent++;
        return;
    }
    memcpy(head, bytes, sizeof(head));
    weft_wire_agg_put_member(head, (uint16_t)member);
    weft_datagrams_add(box->out, &box->members[member], head, sizeof(head), bytes + sizeof(head),
                       count - (uint32_t)sizeof(head), &box->stats.socket);
}

/* The sum is written over the packet. */
static void dense(struct weft_dense_box *box, struct weft_wire_agg *packet, uint8_t *bytes,
                  uint32_t count, const struct weft_addr *from)
{
    struct weft_agg_config *config = &box->box.config;
    struct weft_agg_dense *slot = &box->box.slots[packet->place];
    uint8_t *values = bytes + WEFT_AGG_HEADER_BYTES;
    const uint32_t sender = packet->member;
    if ((int32_t)(packet->epoch - config->dense_epoch) > 0) {
        config->dense_epoch = packet->epoch;
    }
    struct weft_agg_outcome out = weft_agg_dense_receive(slot, config, packet, values,
                                                         bytes + count, &box->box.counts);
    weft_agg_count(&box->box.counts, out.verdict);
    if (out.verdict >= WEFT_AGG_SUMMED) {
        learn(box, sender, packet->epoch, from);
    }
    if (out.action == WEFT_AGG_DROP) {
        return;
    }
    weft_agg_dense_answer(slot, config, packet, values, bytes + count);
    weft_wire_agg_encode(bytes, packet);
    for (uint32_t m = 0; m < WEFT_AGG_MEMBERS_MAX; m++) {
        bool all = out.action == WEFT_AGG_ANSWER_ALL && ((config->members >> m) & 1) != 0;
        if (all || m == sender) {
            answer(box, m, bytes, count);
        }
    }
}

static void receive(struct weft_dense_box *box, uint8_t *bytes, uint32_t count,
                    const struct weft_addr *from)
{
    struct weft_wire_agg packet;
    uint8_t verdict;
    if (weft_agg_open(&box->box.config, bytes, bytes + count, count, &packet, &verdict)) {
        dense(box, &packet, bytes, count, from); /* without banks there are no ROWS */
    } else {
        weft_agg_count(&box->box.counts, verdict);
    }
}

static void receive_buffer(struct weft_dense_box *box, const struct weft_rx_buffer *buffer)
{
    for (uint32_t at = 0; at < buffer->count; at += buffer->segment_bytes) {
        uint32_t count = (uint32_t)weft_min_u64(buffer->segment_bytes, buffer->count - at);
        box->stats.socket.datagrams_received++;
        box->stats.socket.bytes_received += count;
        if (weft_inject_loss_next(&box->loss)) {
            box->stats.socket.injected_drops++;
        } else {
            receive(box, buffer->bytes + at, count, &buffer->from);
        }
    }
}

static void receive_batch(struct weft_dense_box *box)
{
    const struct weft_rx_buffer *buffers;
    uint32_t count;
    uint64_t now_ns;
    (void)pthread_mutex_lock(&box->lock);
    (void)weft_rx_batch(box->rx, false, &box->stats.socket, &now_ns, &buffers, &count);
    for (uint32_t i = 0; i < count; i++) {
        receive_buffer(box, &buffers[i]);
    }
    weft_datagrams_flush(box->out, &box->stats.socket); /* before the buffers are used again */
    (void)pthread_mutex_unlock(&box->lock);
}

void weft_dense_box_run(struct weft_dense_box *box, int stop_fd)
{
    struct pollfd fds[] = {{.fd = box->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    while (fds[1].revents == 0) {
        if (poll(fds, 2, -1) > 0 && fds[0].revents != 0) {
            receive_batch(box);
        }
    }
}

void weft_dense_box_read(struct weft_dense_box *box, struct weft_dense_box_stats *stats_p)
{
    (void)pthread_mutex_lock(&box->lock);
    *stats_p = box->stats;
    stats_p->counts = box->box.counts;
    stats_p->epoch = box->box.config.dense_epoch;
    (void)pthread_mutex_unlock(&box->lock);
}
