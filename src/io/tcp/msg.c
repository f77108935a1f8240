/* The message interface: calls of the layer above, and the events for it.
 *
 * The event ring has room for every event that can be pending, so it never overflows: the slot of a
 * message or of a peer is not reused before its last event was polled.
 */
#include "io/tcp/internal.h"

/* ---- events ---------------------------------------------------------------------------------- */

struct weft_msg_event *weft_tcp_event_push(struct weft_tcp *t)
{
    WEFT_ASSERT(t->event_count < t->events_max);
    uint32_t at = (t->event_head + t->event_count) % t->events_max;
    t->event_count++;
    t->events[at] = (struct weft_msg_event){0};
    return &t->events[at];
}

static bool msg_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_tcp *t = self;
    if (t->event_count == 0) {
        return false;
    }
    *event_p = t->events[t->event_head];
    t->event_head = (t->event_head + 1) % t->events_max;
    t->event_count--;
    struct tcp_peer *p = &t->peers[event_p->peer];
    p->events_unpolled -= event_p->type == WEFT_EVENT_SENT ||
                          event_p->type == WEFT_EVENT_RECEIVED ||
                          event_p->type == WEFT_EVENT_PEER_DOWN;
    if (event_p->type == WEFT_EVENT_SENT) {
        p->tx[event_p->seq & TCP_MSG_MASK].unpolled = false;
    }
    if (event_p->type == WEFT_EVENT_RECEIVED) {
        p->rx[event_p->seq & TCP_MSG_MASK].unpolled = false;
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The chunk grid for packets of 65,000 bytes (docs/PROTOCOL.md section 3.7). */
uint32_t weft_tcp_chunk_elems(uint16_t elem_bytes)
{
    uint32_t elems = (uint32_t)weft_min_u64(WEFT_WIRE_RECORD_CHUNK_MAX / elem_bytes, UINT16_MAX);
    return elems >= 32 ? elems - elems % 32 : elems;
}

static uint32_t msg_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    const struct weft_tcp *t = self;
    return peer < t->peers_used && elem_bytes > 0 ? weft_tcp_chunk_elems(elem_bytes) : 0;
}

static weft_status msg_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                            uint64_t *seq_p)
{
    struct weft_tcp *t = self;
    if (send->peer >= t->peers_used || t->peers[send->peer].state == TCP_PEER_FREE) {
        return WEFT_PEER;
    }
    struct tcp_peer *p = &t->peers[send->peer];
    bool waited = weft_tcp_peer_outstanding(p);
    weft_status status = weft_tcp_tx_send(t, p, send, seq_p);
    if (status == WEFT_OK) {
        p->quiet_ns = waited ? p->quiet_ns : now_ns;
        tcp_peer_ready(t, p);
    }
    return status;
}

static weft_status msg_pace(void *self, weft_peer peer, uint64_t seq,
                            const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct weft_tcp *t = self;
    return peer < t->peers_used ? weft_tcp_tx_pace(t, &t->peers[peer], seq, pace, now_ns)
                                : WEFT_NOTFOUND;
}

static weft_status msg_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct weft_tcp *t = self;
    return peer < t->peers_used ? weft_tcp_tx_withdraw(t, &t->peers[peer], seq, now_ns)
                                : WEFT_NOTFOUND;
}

static weft_status msg_expect(void *self, const struct weft_msg_expect *expect,
                              weft_expect_id *id_p)
{
    struct weft_tcp *t = self;
    struct weft_expect *slot;
    weft_status status = weft_expects_post(&t->expects, expect, &slot);
    if (status == WEFT_OK) {
        *id_p = slot->id;
        weft_tcp_rx_wake(t, slot);
    }
    return status;
}

static weft_status msg_cancel(void *self, weft_expect_id id)
{
    struct weft_tcp *t = self;
    return weft_expects_cancel(&t->expects, id);
}

static struct tcp_rx *rx_find(struct weft_tcp *t, weft_peer peer, uint64_t seq)
{
    if (peer >= t->peers_used) {
        return NULL;
    }
    struct tcp_rx *m = &t->peers[peer].rx[seq & TCP_MSG_MASK];
    bool known = m->state == TCP_RX_OPEN || m->state == TCP_RX_CLOSED;
    return known && m->seq == seq ? m : NULL;
}

/* Pending events in the ring get the new value too. */
static void msg_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct weft_tcp *t = self;
    struct tcp_rx *m = rx_find(t, peer, seq);
    if (m != NULL) {
        m->user = user;
    }
    for (uint32_t i = 0; i < t->event_count; i++) {
        struct weft_msg_event *ev = &t->events[(t->event_head + i) % t->events_max];
        bool incoming = ev->type == WEFT_EVENT_CHUNK || ev->type == WEFT_EVENT_RECEIVED;
        if (incoming && ev->peer == peer && ev->seq == seq) {
            ev->user = user;
        }
    }
}

static void msg_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct tcp_rx *m = rx_find(self, peer, seq);
    if (m != NULL && m->refused < m->received_count) {
        m->refused++;
    }
}

const struct weft_msg_ops weft_tcp_msg_ops = {
    .chunk_elems = msg_chunk_elems,
    .send = msg_send,
    .pace = msg_pace,
    .withdraw = msg_withdraw,
    .expect = msg_expect,
    .cancel = msg_cancel,
    .set_user = msg_set_user,
    .refuse = msg_refuse,
    .poll = msg_poll,
};
