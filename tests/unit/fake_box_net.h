/* A network in memory between the members of dense rounds and their box (agg/dense_member.h), in
 * virtual time: it loses, duplicates and delays packets. */
#ifndef WEFT_TESTS_FAKE_BOX_NET_H
#define WEFT_TESTS_FAKE_BOX_NET_H

#include "agg/box.h"
#include "base/prng.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BOX_NET_PACKETS = 8192 };

#define BOX_NET_BOX UINT32_MAX /* the number of the box; members have their own */

struct box_packet {
    uint64_t due_ns;
    uint32_t to;
    uint32_t from;
    uint32_t count;
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
};

struct box_net {
    struct box_packet packet[BOX_NET_PACKETS];
    uint32_t packets;
    uint32_t loss_ppm;
    uint32_t duplicate_ppm;
    uint32_t slow_ppm; /* packets delayed by hundreds of round trips */
};

static inline void box_net_send(struct box_net *net, struct weft_prng *prng, uint64_t now_ns,
                                uint32_t from, uint32_t to, const uint8_t *bytes, uint32_t count)
{
    uint32_t copies = weft_prng_chance(prng, net->loss_ppm) ? 0 : 1;
    copies += weft_prng_chance(prng, net->duplicate_ppm);
    for (; copies > 0; copies--) {
        assert_true(net->packets < BOX_NET_PACKETS);
        struct box_packet *p = &net->packet[net->packets++];
        uint64_t most = weft_prng_chance(prng, net->slow_ppm) ? 20000 : 50;
        p->due_ns = now_ns + weft_prng_range(prng, 20, 20 + most) * WEFT_NS_PER_US;
        p->from = from;
        p->to = to;
        p->count = count;
        memcpy(p->bytes, bytes, count);
    }
}

/* Give a packet to the box, and send its replies. Shape: bytes (packet->count,), changed. */
static inline void box_net_receive(struct box_net *net, struct weft_prng *prng, uint64_t now_ns,
                                   struct weft_agg_box *box, uint32_t members,
                                   struct box_packet *packet)
{
    uint32_t count;
    enum weft_agg_action action = weft_agg_box_receive(box, packet->bytes, packet->count, &count);
    for (uint32_t m = 0; action != WEFT_AGG_DROP && m < members; m++) {
        weft_wire_agg_put_member(packet->bytes, (uint16_t)m);
        if (action == WEFT_AGG_ANSWER_ALL || m == packet->from) {
            box_net_send(net, prng, now_ns, BOX_NET_BOX, m, packet->bytes, count);
        }
    }
}

static inline uint32_t box_net_next(const struct box_net *net)
{
    uint32_t next = 0;
    for (uint32_t i = 1; i < net->packets; i++) {
        next = net->packet[i].due_ns < net->packet[next].due_ns ? i : next;
    }
    return next;
}

/* When the next packet arrives; WEFT_NEVER: none is on its way. */
static inline uint64_t box_net_next_ns(const struct box_net *net)
{
    return net->packets > 0 ? net->packet[box_net_next(net)].due_ns : WEFT_NEVER;
}

/* The next packet, if it has arrived by now. */
static inline bool box_net_take(struct box_net *net, uint64_t now_ns, struct box_packet *packet_p)
{
    if (box_net_next_ns(net) > now_ns || net->packets == 0) {
        return false;
    }
    uint32_t at = box_net_next(net);
    *packet_p = net->packet[at];
    net->packet[at] = net->packet[--net->packets];
    return true;
}

#endif
