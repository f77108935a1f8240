/* The message interface of an endpoint (core/msg.h), and the ring of events behind it. */
#include "core/internal.h"

#include "base/assert.h"

/* Before on_deadline processes a peer, EVENTS_RESERVE entries are free, and the caller polls after
 * every datagram (recv), so the ring cannot overflow in the documented use. */
struct weft_msg_event *weft_core_event_push(struct weft_ep *ep)
{
    WEFT_ASSERT(ep->event_count < EVENTS_MAX);
    uint32_t at = (ep->event_head + ep->event_count) % EVENTS_MAX;
    ep->event_count++;
    ep->events[at] = (struct weft_msg_event){0};
    return &ep->events[at];
}

static bool ep_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_ep *ep = self;
    if (ep->event_count == 0) {
        return false;
    }
    *event_p = ep->events[ep->event_head];
    /* An empty ring restarts at its first entry, so that few entries are used and remain in the
     * cache. */
    ep->event_count--;
    ep->event_head = ep->event_count == 0 ? 0 : (ep->event_head + 1) % EVENTS_MAX;
    struct peer *p = &ep->peers[event_p->peer];
    bool counted = event_p->type == WEFT_EVENT_SENT || event_p->type == WEFT_EVENT_RECEIVED ||
                   event_p->type == WEFT_EVENT_PEER_DOWN;
    conn_event_polled(&p->conn, counted);
    if (event_p->type == WEFT_EVENT_SENT) {
        tx_msg_polled(&p->tx.msgs[event_p->seq & MSG_MASK]);
    }
    if (event_p->type == WEFT_EVENT_RECEIVED) {
        rx_msg_polled(&p->rx.msgs[event_p->seq & MSG_MASK]);
    }
    return true;
}

/* The grid of docs/PROTOCOL.md section 3.7. */
uint32_t weft_core_chunk_elems(uint32_t packet_bytes, uint16_t elem_bytes)
{
    uint32_t room = packet_bytes - WEFT_DATA_OVERHEAD_BYTES;
    uint32_t elems = (uint32_t)weft_min_u64(room / elem_bytes, UINT16_MAX);
    return elems >= 32 ? elems - elems % 32 : elems;
}

/* A message with too many chunks for the current packet size is divided for the largest possible
 * packet size instead; its packets may then be fragmented. */
uint32_t weft_core_grid(const struct weft_ep *ep, const struct peer *p, uint16_t elem_bytes,
                        uint32_t total)
{
    uint32_t elems = weft_core_chunk_elems(p->path.packet_bytes, elem_bytes);
    if (elems > 0 && weft_div_ceil_u64(total, elems) <= ep->config.chunks_max) {
        return elems;
    }
    return weft_core_chunk_elems(p->path.ceiling_bytes, elem_bytes);
}

uint32_t weft_ep_grid(const struct weft_ep *ep, weft_peer peer, uint16_t elem_bytes, uint32_t total)
{
    if (peer >= ep->peers_used || elem_bytes == 0) {
        return 0;
    }
    return weft_core_grid(ep, &ep->peers[peer], elem_bytes, total);
}

static uint32_t ep_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct weft_ep *ep = self;
    if (peer >= ep->peers_used || elem_bytes == 0) {
        return 0;
    }
    return weft_core_chunk_elems(ep->peers[peer].path.packet_bytes, elem_bytes);
}

static weft_status ep_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                           uint64_t *seq_p)
{
    struct weft_ep *ep = self;
    if (send->peer >= ep->peers_used || ep->peers[send->peer].conn.state == PEER_FREE ||
        ep->peers[send->peer].conn.state == PEER_CLOSING) {
        return WEFT_PEER;
    }
    ep->trace.now_ns = now_ns;
    struct peer *p = &ep->peers[send->peer];
    weft_status status = weft_core_tx_open(ep, p, send, now_ns, seq_p);
    if (status == WEFT_OK) {
        weft_core_peer_ready(ep, p);
    }
    return status;
}

static weft_status ep_pace(void *self, weft_peer peer, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct weft_ep *ep = self;
    return peer < ep->peers_used ? weft_core_pace(ep, &ep->peers[peer], seq, pace, now_ns)
                                 : WEFT_NOTFOUND;
}

static weft_status ep_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct weft_ep *ep = self;
    return peer < ep->peers_used ? weft_core_withdraw(ep, &ep->peers[peer], seq, now_ns)
                                 : WEFT_NOTFOUND;
}

static weft_status ep_expect(void *self, const struct weft_msg_expect *expect, weft_expect_id *id_p)
{
    struct weft_ep *ep = self;
    struct weft_expect *slot;
    weft_status status = weft_expects_post(&ep->expects, expect, &slot);
    if (status == WEFT_OK) {
        *id_p = slot->id;
    }
    return status;
}

static weft_status ep_cancel(void *self, weft_expect_id id)
{
    struct weft_ep *ep = self;
    return weft_expects_cancel(&ep->expects, id);
}

static struct rx_msg *rx_open_find(struct weft_ep *ep, weft_peer peer, uint64_t seq)
{
    if (peer >= ep->peers_used) {
        return NULL;
    }
    struct rx_msg *m = &ep->peers[peer].rx.msgs[seq & MSG_MASK];
    return m->state != RX_FREE && m->seq == seq ? m : NULL;
}

/* When one packet causes OPEN, CHUNK and RECEIVED, the message may be closed already; events in the
 * ring get the new value, too. */
static void ep_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct weft_ep *ep = self;
    struct rx_msg *m = rx_open_find(ep, peer, seq);
    if (m != NULL) {
        rx_msg_user_set(m, user);
    }
    for (uint32_t i = 0; i < ep->event_count; i++) {
        struct weft_msg_event *ev = &ep->events[(ep->event_head + i) % EVENTS_MAX];
        bool incoming = ev->type == WEFT_EVENT_CHUNK || ev->type == WEFT_EVENT_RECEIVED;
        if (incoming && ev->peer == peer && ev->seq == seq) {
            ev->user = user;
        }
    }
}

static void ep_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct rx_msg *m = rx_open_find(self, peer, seq);
    if (m != NULL) {
        rx_msg_refuse(m);
    }
}

struct weft_msgr weft_ep_msgr(struct weft_ep *ep)
{
    static const struct weft_msg_ops ops = {
        .chunk_elems = ep_chunk_elems,
        .send = ep_send,
        .pace = ep_pace,
        .withdraw = ep_withdraw,
        .expect = ep_expect,
        .cancel = ep_cancel,
        .set_user = ep_set_user,
        .refuse = ep_refuse,
        .poll = ep_poll,
    };
    return (struct weft_msgr){.ops = &ops, .self = ep};
}
