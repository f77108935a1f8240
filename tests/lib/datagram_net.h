/* A network of datagrams in memory, on virtual time, used by the tests of endpoints.
 *
 * Each end is an endpoint (core/endpoint.h) with an address. A burst that it sends is divided into
 * datagrams as by the kernel (GSO), and each arrives NET_DELAY_NS later, in the order of sending. A
 * test may configure faults: loss, duplicates, reordering, a delay other than NET_DELAY_NS to one
 * end, a minimum gap between arrivals at one end, ends that cannot reach each other, and a frozen
 * end. It may also install functions that are called when a datagram is sent and when it arrives.
 * One seed determines everything.
 *
 * Not a model of links: no queue, no bandwidth, no ECN marks (src/sim/net.h has them). Not the
 * transport for the layers above the core, which is tests/unit/fake_msgr.h. */
#ifndef WEFT_TESTS_DATAGRAM_NET_H
#define WEFT_TESTS_DATAGRAM_NET_H

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "core/endpoint.h"

#include <stdlib.h>
#include <string.h>

enum { ENDS_MAX = 3, NET_QUEUE_MAX = 8192, KEPT_MAX = 512, NET_DELAY_NS = 20000 };

struct net_datagram {
    uint64_t due_ns;
    uint64_t arrived_ns; /* arrival time at a frozen end; else 0 */
    struct weft_addr from;
    struct weft_addr to;
    uint32_t from_end; /* sender */
    uint32_t to_end;   /* the end that had the address `to` when it was sent; ENDS_MAX: none */
    enum weft_ecn ecn;
    bool fragment; /* as in struct weft_tx */
    uint32_t bytes;
    uint8_t *data;
};

struct net;

struct net_end {
    struct weft_ep *ep;          /* NULL: no endpoint */
    struct weft_toy_crypto *toy; /* core_net.h */
    struct weft_msgr msgr;
    struct weft_addr addr;
    uint64_t delay_ns;    /* delay of datagrams to this end; 0 = NET_DELAY_NS */
    uint64_t gap_ns;      /* minimum time between two arrivals at this end; 0 = none */
    uint64_t last_due_ns; /* arrival time of the last datagram to this end */
    uint64_t frozen_until_ns;
    uint32_t side; /* ends of different sides cannot reach each other */
    /* Events seen by its application: */
    uint32_t ups;
    uint32_t downs;
    uint32_t received;
    uint32_t sent;
    weft_peer peer;                /* of the last PEER_UP */
    enum weft_msg_down why;        /* of the last PEER_DOWN */
    enum weft_msg_outcome outcome; /* of the last SENT */
    /* Called for each RECEIVED event, to send a reply; NULL = none. */
    void (*answer)(struct net *net, uint32_t end, weft_peer peer);
};

struct net {
    uint64_t now_ns;
    struct net_end end[ENDS_MAX];
    struct net_datagram *queue; /* sorted by due_ns */
    uint32_t queued, queue_max;
    struct net_datagram kept[KEPT_MAX];
    uint32_t kept_count;
    bool keep; /* the first KEPT_MAX sent datagrams */
    struct weft_prng prng;
    uint32_t loss_ppm;
    uint32_t duplicate_ppm;
    uint32_t late_ppm; /* share of datagrams that are delayed by up to late_ns more, so that later
                        * ones overtake them */
    uint64_t late_ns;
    /* Called for each datagram: `tap` when it is sent, `on_arrival` when it arrives. The function
     * may change the datagram; false drops it. */
    bool (*tap)(struct net *net, struct net_datagram *d);
    bool (*on_arrival)(struct net *net, struct net_datagram *d);
    void *tap_arg;
    /* Called with each event of an end, after it is counted. */
    void (*on_event)(struct net *net, uint32_t end, const struct weft_msg_event *event);
};

static inline bool net_addr_is(const struct weft_addr *a, const struct weft_addr *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static inline void net_init(struct net *net, uint64_t seed)
{
    *net = (struct net){.now_ns = WEFT_NS_PER_S};
    weft_prng_init(&net->prng, seed);
}

/* Drop all datagrams in flight. */
static inline void net_clear(struct net *net)
{
    while (net->queued > 0) {
        free(net->queue[--net->queued].data);
    }
}

/* Frees the datagrams; the caller frees the endpoints. */
static inline void net_fini(struct net *net)
{
    net_clear(net);
    for (uint32_t i = 0; i < net->kept_count; i++) {
        free(net->kept[i].data);
    }
    free(net->queue);
}

/* ---- events ---------------------------------------------------------------------------------- */

static inline void net_event(struct net *net, uint32_t end, const struct weft_msg_event *event)
{
    struct net_end *e = &net->end[end];
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        e->ups++;
        e->peer = event->peer;
        break;
    case WEFT_EVENT_PEER_DOWN:
        e->downs++;
        e->why = event->down;
        break;
    case WEFT_EVENT_RECEIVED:
        e->received++;
        if (e->answer != NULL) {
            e->answer(net, end, event->peer);
        }
        break;
    case WEFT_EVENT_SENT:
        e->sent++;
        e->outcome = event->outcome;
        break;
    default:
        break;
    }
    if (net->on_event != NULL) {
        net->on_event(net, end, event);
    }
}

static inline void net_drain(struct net *net, uint32_t end)
{
    const struct weft_msgr msgr = net->end[end].msgr;
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        net_event(net, end, &event);
    }
}

/* The endpoint's own operations (core/msg.h), at the network's current time. */
static inline weft_status net_msg_send(const struct net *net, uint32_t end,
                                       const struct weft_msg_send *send, uint64_t *seq_p)
{
    const struct weft_msgr msgr = net->end[end].msgr;
    return msgr.ops->send(msgr.self, send, net->now_ns, seq_p);
}

static inline weft_status net_msg_expect(const struct net *net, uint32_t end,
                                         const struct weft_msg_expect *expect, weft_expect_id *id_p)
{
    const struct weft_msgr msgr = net->end[end].msgr;
    return msgr.ops->expect(msgr.self, expect, id_p);
}

/* ---- sending --------------------------------------------------------------------------------- */

static inline void net_keep(struct net *net, const struct net_datagram *d)
{
    if (net->kept_count < KEPT_MAX) {
        struct net_datagram *k = &net->kept[net->kept_count++];
        *k = *d;
        k->data = malloc(d->bytes);
        memcpy(k->data, d->data, d->bytes);
    }
}

static inline void net_enqueue(struct net *net, const struct net_datagram *d)
{
    WEFT_ASSERT(net->queued < NET_QUEUE_MAX);
    if (net->queued == net->queue_max) {
        net->queue_max = net->queue_max == 0 ? 64 : 2 * net->queue_max;
        net->queue = realloc(net->queue, net->queue_max * sizeof(*net->queue));
        WEFT_ASSERT(net->queue != NULL);
    }
    uint32_t at = net->queued++;
    for (; at > 0 && net->queue[at - 1].due_ns > d->due_ns; at--) {
        net->queue[at] = net->queue[at - 1];
    }
    net->queue[at] = *d;
}

/* Remove entry idx from the queue and return it; the caller frees its data. */
static inline struct net_datagram net_dequeue(struct net *net, uint32_t idx)
{
    struct net_datagram d = net->queue[idx];
    memmove(&net->queue[idx], &net->queue[idx + 1], (--net->queued - idx) * sizeof(d));
    return d;
}

static inline bool net_is_lost(struct net *net, const struct net_datagram *d)
{
    if (d->to_end < ENDS_MAX && net->end[d->from_end].side != net->end[d->to_end].side) {
        return true;
    }
    return weft_prng_chance(&net->prng, net->loss_ppm);
}

/* Compute the time of arrival of a datagram (or of a duplicate) and queue it. */
static inline void net_forward(struct net *net, struct net_datagram *d)
{
    if (d->to_end < ENDS_MAX) {
        struct net_end *to = &net->end[d->to_end];
        d->due_ns = weft_max_u64(d->due_ns, to->last_due_ns + to->gap_ns);
        to->last_due_ns = d->due_ns;
    }
    if (net->late_ppm > 0 && weft_prng_chance(&net->prng, net->late_ppm)) {
        d->due_ns += weft_prng_below(&net->prng, net->late_ns);
    }
    net_enqueue(net, d);
}

static inline void net_send(struct net *net, uint32_t from, const struct weft_tx *tx,
                            const uint8_t *data, size_t bytes)
{
    struct net_datagram d = {.from = net->end[from].addr,
                             .to = tx->addr,
                             .from_end = from,
                             .to_end = 0,
                             .ecn = tx->ecn,
                             .fragment = tx->fragment,
                             .bytes = (uint32_t)bytes};
    while (d.to_end < ENDS_MAX && !net_addr_is(&net->end[d.to_end].addr, &d.to)) {
        d.to_end++;
    }
    uint64_t delay_ns = d.to_end < ENDS_MAX ? net->end[d.to_end].delay_ns : 0;
    d.due_ns = net->now_ns + (delay_ns > 0 ? delay_ns : NET_DELAY_NS);
    d.data = malloc(bytes);
    WEFT_ASSERT(d.data != NULL);
    memcpy(d.data, data, bytes);
    if (net->keep) {
        net_keep(net, &d);
    }
    if ((net->tap != NULL && !net->tap(net, &d)) || net_is_lost(net, &d)) {
        free(d.data);
        return;
    }
    if (net->duplicate_ppm > 0 && weft_prng_chance(&net->prng, net->duplicate_ppm)) {
        struct net_datagram copy = d;
        copy.data = malloc(bytes);
        memcpy(copy.data, d.data, bytes);
        net_forward(net, &copy);
    }
    net_forward(net, &d);
}

/* Split one burst as the kernel would. */
static inline void net_burst(struct net *net, const struct net_end *from, const struct weft_tx *tx)
{
    static uint8_t flat[WEFT_TX_BYTES_MAX];
    size_t used = 0;
    WEFT_ASSERT(tx->iov_count <= WEFT_ARRAY_COUNT(tx->iov) && tx->bytes <= sizeof(flat));
    WEFT_ASSERT(tx->packets <= WEFT_TX_PACKETS_MAX);
    WEFT_ASSERT(!tx->fragment || tx->packets == 1); /* sent without GSO */
    for (uint32_t i = 0; i < tx->iov_count; i++) {
        WEFT_ASSERT(used + tx->iov[i].bytes <= tx->bytes);
        memcpy(flat + used, tx->iov[i].base, tx->iov[i].bytes);
        used += tx->iov[i].bytes;
    }
    WEFT_ASSERT(used == tx->bytes && weft_div_ceil_u64(used, tx->seg_bytes) == tx->packets);
    for (size_t at = 0; at < used; at += tx->seg_bytes) {
        size_t bytes = weft_min_u64(used - at, tx->seg_bytes);
        net_send(net, (uint32_t)(from - net->end), tx, flat + at, bytes);
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

static inline bool net_runs(const struct net *net, uint32_t end)
{
    return net->end[end].ep != NULL && net->now_ns >= net->end[end].frozen_until_ns;
}

static inline void net_pump_end(struct net *net, uint32_t end)
{
    static struct weft_tx tx;
    while (weft_ep_send(net->end[end].ep, net->now_ns, &tx) > 0) {
        net_burst(net, &net->end[end], &tx);
    }
}

static inline void net_pump(struct net *net)
{
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net_runs(net, i)) {
            net_pump_end(net, i);
        }
    }
}

/* Deliver a copy to an end immediately, in a buffer of its exact size: a sanitizer then detects
 * reads beyond the datagram. */
static inline void net_deliver_at(struct net *net, struct net_end *to, const struct weft_addr *from,
                                  enum weft_ecn ecn, const uint8_t *data, size_t bytes,
                                  uint64_t arrived_ns)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    WEFT_ASSERT(copy != NULL);
    memcpy(copy, data, bytes);
    weft_ep_prefetch(to->ep, copy, bytes);
    weft_ep_prefetch_chunk(to->ep, copy, bytes);
    weft_ep_recv(to->ep, from, ecn, copy, bytes, arrived_ns, net->now_ns);
    net_drain(net, (uint32_t)(to - net->end)); /* CHUNK events point to the copy */
    free(copy);
}

static inline void net_deliver(struct net *net, struct net_end *to, const struct weft_addr *from,
                               const uint8_t *data, size_t bytes)
{
    net_deliver_at(net, to, from, WEFT_ECN_ECT0, data, bytes, net->now_ns);
}

/* Deliver a datagram to every end whose address is its destination. */
static inline void net_arrive(struct net *net, const struct net_datagram *d)
{
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net->end[i].ep != NULL && net_addr_is(&net->end[i].addr, &d->to)) {
            net_deliver_at(net, &net->end[i], &d->from, d->ecn, d->data, d->bytes,
                           d->arrived_ns > 0 ? d->arrived_ns : net->now_ns);
        }
    }
}

/* A datagram for a frozen end is queued, as in a socket's buffer. */
static inline bool net_hold_frozen(struct net *net, struct net_datagram *d)
{
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net_addr_is(&net->end[i].addr, &d->to) && net->now_ns < net->end[i].frozen_until_ns) {
            d->arrived_ns = d->arrived_ns > 0 ? d->arrived_ns : d->due_ns;
            d->due_ns = net->end[i].frozen_until_ns;
            net_enqueue(net, d);
            return true;
        }
    }
    return false;
}

static inline uint64_t net_next_ns(const struct net *net)
{
    uint64_t next_ns = net->queued > 0 ? net->queue[0].due_ns : WEFT_NEVER;
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        const struct net_end *e = &net->end[i];
        if (e->ep != NULL) {
            uint64_t own_ns = net_runs(net, i) ? weft_ep_deadline(e->ep) : e->frozen_until_ns;
            next_ns = weft_min_u64(next_ns, own_ns);
        }
    }
    return next_ns;
}

/* Advance to the next event; false if there is none up to until_ns. */
static inline bool net_step(struct net *net, uint64_t until_ns)
{
    net_pump(net);
    uint64_t next_ns = net_next_ns(net);
    if (next_ns > until_ns) {
        return false;
    }
    net->now_ns = weft_max_u64(net->now_ns, next_ns);
    while (net->queued > 0 && net->queue[0].due_ns <= net->now_ns) {
        struct net_datagram d = net_dequeue(net, 0);
        if (net_hold_frozen(net, &d)) {
            continue;
        }
        if (net->on_arrival == NULL || net->on_arrival(net, &d)) {
            net_arrive(net, &d);
        }
        free(d.data);
    }
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net_runs(net, i)) {
            weft_ep_on_deadline(net->end[i].ep, net->now_ns);
            net_drain(net, i);
        }
    }
    return true;
}

static inline void net_run(struct net *net, uint64_t ns)
{
    uint64_t until_ns = net->now_ns + ns;
    for (uint32_t i = 0; net_step(net, until_ns); i++) {
        WEFT_ASSERT(i < 1000000);
    }
    net->now_ns = until_ns;
}

#endif
