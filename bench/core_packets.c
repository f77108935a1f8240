/* Two endpoints in memory, without sockets or clock: the cost of core per packet.
 *
 *   core_packets [--messages N] [--packet-bytes N]
 *
 * One end sends messages of 4 MB of floats, the other sums them. A burst of the sender is written
 * as datagrams and passed to the receiver, then the receiver's packets are passed back. Virtual
 * time advances at 10 Gbit/s. Run alone, the program checks the sum and prints the numbers of
 * packets. bench/core runs it under callgrind and divides. For this the four functions named step_*
 * are not inlined; everything else is the harness, and is not counted.
 *
 * Instruction counts are exact on a busy machine, but are not time: a cache miss costs no
 * instruction.
 */
#include "core/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_FLOATS = 1000000, DEPTH = 4, DATAGRAM_BYTES_MAX = 65536 };

static const uint64_t rate_bps = 10000000000;

struct world {
    struct weft_ep *ep[2]; /* sender, receiver */
    struct weft_msgr msgr[2];
    struct weft_addr addr[2];
    uint64_t now_ns;
    uint32_t begun[2];
    uint32_t done[2];
    uint32_t messages;
    uint64_t packets[2]; /* sent by each end */
    float *vector;
    float *sum;
    struct weft_tx tx;
    uint8_t datagrams[DATAGRAM_BYTES_MAX];
};

/* ---- what is counted ------------------------------------------------------------------------- */

[[gnu::noinline]] static uint32_t step_sender_send(struct world *w)
{
    return weft_ep_send(w->ep[0], w->now_ns, &w->tx);
}

[[gnu::noinline]] static uint32_t step_receiver_send(struct world *w)
{
    return weft_ep_send(w->ep[1], w->now_ns, &w->tx);
}

[[gnu::noinline]] static void step_sender_recv(struct world *w, uint8_t *bytes, size_t count)
{
    weft_ep_recv(w->ep[0], &w->addr[1], WEFT_ECN_ECT0, bytes, count, w->now_ns, w->now_ns);
}

[[gnu::noinline]] static void step_receiver_recv(struct world *w, uint8_t *bytes, size_t count)
{
    weft_ep_recv(w->ep[1], &w->addr[0], WEFT_ECN_ECT0, bytes, count, w->now_ns, w->now_ns);
}

/* ---- the harness ----------------------------------------------------------------------------- */

static void sender_fill(struct world *w)
{
    while (w->begun[0] < w->messages && w->begun[0] - w->done[0] < DEPTH) {
        struct weft_msg_send send = {.base = w->vector,
                                     .total = MESSAGE_FLOATS,
                                     .elem_bytes = sizeof(float),
                                     .tag = 1,
                                     .deadline_ns = WEFT_NEVER};
        uint64_t seq;
        if (w->msgr[0].ops->send(w->msgr[0].self, &send, w->now_ns, &seq) != WEFT_OK) {
            return;
        }
        w->begun[0]++;
    }
}

static void receiver_fill(struct world *w)
{
    while (w->begun[1] < w->messages && w->begun[1] - w->done[1] < DEPTH) {
        struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                         .sink = WEFT_SINK_ADD,
                                         .tag = 1,
                                         .tag_mask = UINT64_MAX,
                                         .memory = w->sum,
                                         .memory_bytes = MESSAGE_FLOATS * sizeof(float),
                                         .count = 1,
                                         .timeout_ns = WEFT_NEVER};
        weft_expect_id id;
        if (w->msgr[1].ops->expect(w->msgr[1].self, &expect, &id) != WEFT_OK) {
            return;
        }
        w->begun[1]++;
    }
}

static void events(struct world *w, int end)
{
    struct weft_msg_event event;
    while (w->msgr[end].ops->poll(w->msgr[end].self, &event)) {
        w->done[end] += event.type == (end == 0 ? WEFT_EVENT_SENT : WEFT_EVENT_RECEIVED);
    }
}

/* Pass the burst in w->tx to the other end. */
static void deliver(struct world *w, int from)
{
    uint8_t *at = w->datagrams;
    for (uint32_t i = 0; i < w->tx.iov_count; i++) {
        memcpy(at, w->tx.iov[i].base, w->tx.iov[i].bytes);
        at += w->tx.iov[i].bytes;
    }
    w->packets[from] += w->tx.packets;
    w->now_ns += w->tx.bytes * UINT64_C(8000000000) / rate_bps;
    size_t left = (size_t)(at - w->datagrams);
    for (at = w->datagrams; left > 0;) {
        size_t count = left < w->tx.seg_bytes ? left : w->tx.seg_bytes;
        if (from == 0) {
            step_receiver_recv(w, at, count);
        } else {
            step_sender_recv(w, at, count);
        }
        events(w, 1 - from);
        at += count;
        left -= count;
    }
}

/* One batch in each direction, as in a driver; returns the number of packets. */
static uint64_t turn(struct world *w)
{
    enum { BURSTS = 8 };
    uint64_t before = w->packets[0] + w->packets[1];
    for (int i = 0; i < BURSTS && step_sender_send(w) > 0; i++) {
        deliver(w, 0);
    }
    while (step_receiver_send(w) > 0) {
        deliver(w, 1);
    }
    for (int end = 0; end < 2; end++) {
        if (weft_ep_deadline(w->ep[end]) <= w->now_ns) {
            weft_ep_on_deadline(w->ep[end], w->now_ns);
        }
        events(w, end);
    }
    sender_fill(w);
    receiver_fill(w);
    return w->packets[0] + w->packets[1] - before;
}

static bool world_run(struct world *w)
{
    weft_peer peer;
    if (weft_ep_connect(w->ep[0], &w->addr[1], w->now_ns, &peer) != WEFT_OK) {
        return false;
    }
    receiver_fill(w);
    sender_fill(w);
    while (w->done[0] < w->messages) {
        if (turn(w) == 0) {
            uint64_t a = weft_ep_deadline(w->ep[0]);
            uint64_t b = weft_ep_deadline(w->ep[1]);
            if (weft_min_u64(a, b) == WEFT_NEVER) {
                return false;
            }
            w->now_ns = weft_max_u64(w->now_ns + 1, weft_min_u64(a, b));
        }
    }
    return true;
}

static bool world_open(struct world *w, uint32_t packet_bytes)
{
    w->now_ns = WEFT_NS_PER_S;
    w->vector = calloc(MESSAGE_FLOATS, sizeof(float));
    w->sum = calloc(MESSAGE_FLOATS, sizeof(float));
    for (int end = 0; end < 2; end++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.incarnation = config.seed = (uint64_t)end + 1;
        config.packet_bytes = (uint16_t)packet_bytes;
        config.chunks_max = 65536;
        config.accept = 1;
        w->addr[end] = (struct weft_addr){.bytes = {(uint8_t)end}, .bytes_used = 1};
        if (w->vector == NULL || w->sum == NULL || weft_ep_new(&config, &w->ep[end]) != WEFT_OK) {
            return false;
        }
        w->msgr[end] = weft_ep_msgr(w->ep[end]);
    }
    for (uint32_t i = 0; i < MESSAGE_FLOATS; i++) {
        w->vector[i] = (float)(i % 7) - 3.0f;
    }
    return true;
}

static bool sum_is_right(const struct world *w)
{
    for (uint32_t i = 0; i < MESSAGE_FLOATS; i++) {
        if (w->sum[i] != (float)w->messages * w->vector[i]) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct world w = {.messages = 16};
    uint32_t packet_bytes = 1472;
    for (int i = 1; i < argc; i++) {
        uint32_t value = i + 1 < argc ? (uint32_t)strtoul(argv[i + 1], NULL, 10) : 0;
        if (strcmp(argv[i], "--messages") == 0 && value >= 1 && value <= 100000) {
            w.messages = value;
        } else if (strcmp(argv[i], "--packet-bytes") == 0 && value >= 256 && value <= 65000) {
            packet_bytes = value;
        } else {
            (void)fprintf(stderr, "usage: core_packets [--messages 1..100000] "
                                  "[--packet-bytes 256..65000]\n");
            return 2;
        }
        i++;
    }
    bool good = world_open(&w, packet_bytes) && world_run(&w) && sum_is_right(&w);
    if (good) {
        const struct weft_ep_counters *c = weft_ep_counters(w.ep[0]);
        printf(
            "messages %u packet_bytes %u data_packets %llu retransmitted %llu "
            "return_packets %llu\n",
            w.messages, packet_bytes, (unsigned long long)c->data_sent,
            (unsigned long long)c->retransmitted_packets, (unsigned long long)w.packets[1]);
    } else {
        (void)fprintf(stderr, "core_packets: the messages did not arrive, or the sum is wrong\n");
    }
    weft_ep_free(w.ep[0]);
    weft_ep_free(w.ep[1]);
    free(w.vector);
    free(w.sum);
    return good ? 0 : 1;
}
