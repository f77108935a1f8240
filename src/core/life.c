/* Keep-alive, timeouts of idle connections, and CLOSE.
 *
 * A keep-alive PING expects a reply: if no packet arrives after it, probes follow, and the peer is
 * declared dead after the peer timeout, as with an open message (loss.c). A peer that sent IDLE is
 * not expected to reply: it may compute for minutes. It may also have died, and a server would wait
 * for it forever and keep its slot. If no packet arrives for longer than any training step
 * (sleep_timeout_ns), the connection therefore ends, too, with a CLOSE in case the peer is alive.
 *
 * A closed connection remains in the table for five probe timeouts. CLOSE is sent until the peer
 * replies to it, at most three times, and late packets of the connection are dropped without an
 * UNKNOWN. Its slot is reused earlier if no other is free.
 *
 * Source: docs/PROTOCOL.md section 9; RFC 9000 section 10.
 */
#include "core/internal.h"

enum { CLOSE_SENDS = 3, DRAIN_INTERVALS = 5 };

/* ---- close ----------------------------------------------------------------------------------- */

bool weft_core_closing(const struct peer *p)
{
    const struct conn *conn = &p->conn;
    return p->conn.need_close || !conn->down_raised ||
           (!conn->close_answered && conn->close_sends < CLOSE_SENDS);
}

static void closing_begin(struct weft_ep *ep, struct peer *p, uint16_t code, uint64_t now_ns)
{
    p->conn.need_close = peer_connected(p);
    p->conn.state = PEER_CLOSING;
    p->conn.close_code = code;
    p->conn.drain_ns = now_ns + DRAIN_INTERVALS * weft_core_pto_base(p);
    tx_deadlines_end(&p->tx);
    p->conn.hello_ns = WEFT_NEVER;
    weft_core_peer_ready(ep, p);
}

void weft_core_close(struct weft_ep *ep, struct peer *p, enum weft_msg_down why, uint16_t code,
                     uint64_t now_ns)
{
    rx_done_again(&p->rx); /* the last opportunity to send DONE */
    closing_begin(ep, p, code, now_ns);
    if (why == WEFT_DOWN_LOCAL) {
        p->conn.timer_ns = now_ns; /* deferred: the ring of events may be full now */
        return;
    }
    weft_core_peer_end(ep, p, why, code, now_ns);
    p->conn.down_raised = true;
}

/* CLOSE was received: reply to it, and to each retransmission of it. */
void weft_core_close_recv(struct weft_ep *ep, struct peer *p, uint16_t code, uint64_t now_ns)
{
    bool replaced = code == WEFT_CLOSE_REPLACED;
    weft_core_peer_end(ep, p, replaced ? WEFT_DOWN_REPLACED : WEFT_DOWN_CLOSED, code, now_ns);
    closing_begin(ep, p, WEFT_CLOSE_FINISHED, now_ns);
    rx_done_none(&p->rx);
    p->conn.down_raised = true;
    p->conn.close_answered = true;
}

void weft_core_closing_recv(struct weft_ep *ep, struct peer *p,
                            const struct weft_wire_packet *packet)
{
    ep->counters.closed_packets++;
    if (packet->control == NULL) {
        return;
    }
    struct weft_reader r = weft_reader_make(packet->control, packet->control_bytes);
    struct weft_wire_frame frame;
    bool close = false;
    while (weft_wire_frame_decode(&r, &frame)) {
        close |= frame.type == WEFT_FRAME_CLOSE;
    }
    if (!close) {
        return;
    }
    if (p->conn.close_answered && p->conn.close_sends < CLOSE_SENDS) {
        p->conn.need_close = true; /* the reply was lost */
    }
    p->conn.close_answered = true;
    weft_core_peer_ready(ep, p);
}

static void closing_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    struct conn *conn = &p->conn;
    if (!conn->down_raised) {
        conn->down_raised = true;
        weft_core_peer_end(ep, p, WEFT_DOWN_LOCAL, conn->close_code, now_ns);
        if (!p->conn.need_close && conn->close_sends == 0) { /* no connection was established yet */
            weft_core_peer_clear(ep, p);
        }
        return;
    }
    if (conn->drain_ns <= now_ns) {
        weft_core_peer_clear(ep, p);
        return;
    }
    if (conn->close_ns <= now_ns) {
        p->conn.need_close = true;
    }
}

/* ---- idle peers ------------------------------------------------------------------------------ */

/* After IDLE a peer sends no packet that could correct its state, so the packet with the largest
 * number decides. If a reordered older IDLE counted, no packet would be sent to an active peer. If
 * a reordered older packet ended the idle state, an idle peer would be probed and declared dead. */
void weft_core_idle_note(struct peer *p, uint64_t pn)
{
    if (pn >= weft_max_u64(p->sec.seen_largest, p->conn.idle_pn)) {
        p->conn.idle = true;
        credit_backlog_none(&p->credit); /* an idle peer has nothing to send */
        p->conn.idle_pn = pn;
        recovery_silence_end(
            &p->recovery); /* the full peer timeout applies once it is active again */
    }
}

void weft_core_awake_note(struct peer *p, uint64_t pn, uint64_t now_ns)
{
    if (pn > p->conn.idle_pn) {
        p->conn.idle = false;
        p->conn.idle_pn = pn;
        recovery_on_progress(&p->recovery, now_ns);
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static uint64_t closing_deadline(struct peer *p)
{
    struct conn *conn = &p->conn;
    if (!conn->down_raised) {
        return conn->timer_ns;
    }
    bool again = !conn->close_answered && conn->close_sends > 0 && conn->close_sends < CLOSE_SENDS;
    if (!again) {
        conn->close_ns = WEFT_NEVER;
    }
    return weft_min_u64(conn->close_ns, conn->drain_ns);
}

/* Start of the time without a packet from the peer, but not before the end of a pause of this
 * process, so that every peer can still reply. */
static uint64_t heard_ns(const struct weft_ep *ep, const struct peer *p)
{
    return weft_max_u64(p->conn.heard_ns, ep->resumed_ns);
}

static uint64_t keepalive_at(const struct weft_ep *ep, const struct peer *p)
{
    return peer_asked(p) ? WEFT_NEVER : weft_time_add(p->conn.heard_ns, ep->config.keepalive_ns);
}

static uint64_t idle_at(const struct weft_ep *ep, const struct peer *p)
{
    return weft_core_peer_quiet(p) ? weft_time_add(heard_ns(ep, p), ep->config.idle_timeout_ns)
                                   : WEFT_NEVER;
}

static uint64_t asleep_until(const struct weft_ep *ep, const struct peer *p)
{
    return weft_time_add(heard_ns(ep, p), ep->config.sleep_timeout_ns);
}

void weft_core_life_arm(const struct weft_ep *ep, struct peer *p)
{
    if (p->conn.state == PEER_CLOSING) {
        p->conn.timer_ns = closing_deadline(p);
        return;
    }
    uint64_t at = WEFT_NEVER;
    if (p->conn.state == PEER_OPEN && !p->conn.idle) {
        at = weft_min_u64(keepalive_at(ep, p), idle_at(ep, p));
        at = weft_min_u64(at, p->path.probe_pn != 0 ? p->path.probe_ns : WEFT_NEVER);
    } else if (p->conn.state == PEER_OPEN) {
        at = asleep_until(ep, p);
    }
    p->conn.timer_ns = at;
}

void weft_core_life_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (p->conn.state == PEER_CLOSING) {
        closing_timer(ep, p, now_ns);
        return;
    }
    if (p->conn.state != PEER_OPEN) {
        return;
    }
    if (p->conn.idle) {
        if (asleep_until(ep, p) <= now_ns) {
            weft_core_close(ep, p, WEFT_DOWN_SILENT, WEFT_CLOSE_SILENT, now_ns);
        }
        return;
    }
    weft_core_path_probe_timer(ep, p, now_ns);
    if (idle_at(ep, p) <= now_ns) {
        weft_core_close(ep, p, WEFT_DOWN_IDLE, WEFT_CLOSE_IDLE, now_ns);
        return;
    }
    if (keepalive_at(ep, p) <= now_ns) {
        p->conn.ping_ns = now_ns;
        p->conn.need_ping = true;
        recovery_silence_begin(&p->recovery, now_ns); /* from the PING, not the first probe */
    }
}
