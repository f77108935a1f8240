/* Authentication and validation of a packet: every reason to drop it is checked before any part of
 * it is processed.
 *
 * Order: decode the header; find the connection; check the packet number against the replay window;
 * verify (and decrypt); decode the body; check every frame and the DATA header; check the source
 * address. An invalid packet is dropped and counted. It has no other effect, except those of
 * packets of unknown connections and addresses: weft_core_handshake_guard_unknown,
 * weft_core_path_stray.
 *
 * Source: docs/PROTOCOL.md sections 3, 4 and 8.
 */
#include "core/internal.h"

/* By connection id alone: the source address is checked once the packet is known to be valid. */
static struct peer *peer_find(struct weft_ep *ep, uint32_t connection_id)
{
    uint32_t idx = connection_id & 0xfff;
    if (idx >= ep->peers_used) {
        return NULL;
    }
    struct peer *p = &ep->peers[idx];
    bool keyed = p->sec.mode == WEFT_MODE_NONE || p->sec.keyed;
    bool alive = peer_connected(p) || (p->conn.state == PEER_CLOSING && keyed);
    return alive && p->conn.id == connection_id ? p : NULL;
}

/* Complete a short header with the grid of its message. A chunk outside the grid is thus detected
 * before any part of the packet is processed, as with DATA, whose header contains the grid. */
static weft_status brief_decode(const struct peer *p, const struct weft_wire_packet *packet,
                                struct weft_wire_data *data_p)
{
    struct weft_wire_brief brief;
    if (weft_wire_brief_decode(packet->data, packet->data_bytes, &brief) != WEFT_OK) {
        return WEFT_PROTO;
    }
    uint64_t seq = weft_core_brief_seq(p, brief.msg);
    /* A slot keeps its grid until it is reused, even by another peer. */
    const struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->seq != seq || (m->state == RX_FREE && seq >= p->rx.open_from)) {
        return seq < p->rx.open_from ? WEFT_NOTFOUND : WEFT_PROTO;
    }
    /* The packet was sent before the message was opened at this end, so its chunk belongs to an
     * older message with the same 14 bits: short headers of a message are sent only after an
     * acknowledgement of the packet that opened it. */
    if (packet->number <= m->opened_pn) {
        return WEFT_NOTFOUND;
    }
    *data_p = (struct weft_wire_data){
        .msg = (uint32_t)seq,
        .total = m->total,
        .chunk_elems = m->chunk_elems,
        .elem_bytes = m->elem_bytes,
        .critical = m->critical,
        .lost_max = m->lost_max,
        .tag = m->tag,
    };
    return weft_wire_brief_complete(&brief, data_p);
}

/* Extend a 32-bit packet number; false when no valid number has this low half. */
static bool number_complete(const struct peer *p, struct weft_wire_packet *packet)
{
    if (weft_wire_header_bytes(packet->flags) == WEFT_HEADER_BYTES) {
        return true;
    }
    packet->number = weft_core_number_near(p->sec.seen_largest, (uint32_t)packet->number);
    return packet->number != 0 && packet->number <= UINT64_MAX / 2;
}

/* Decode the chunk at the end of a packet, with either header; counts errors. */
static bool chunk_decode(struct weft_ep *ep, const struct peer *p,
                         const struct weft_wire_packet *packet, struct weft_wire_data *data_p)
{
    weft_status status = weft_wire_is_brief(packet->flags)
                             ? brief_decode(p, packet, data_p)
                             : weft_wire_data_decode(packet->data, packet->data_bytes, data_p);
    ep->counters.old_packets += status == WEFT_NOTFOUND; /* chunk of a message whose slot was
                                                          * reused */
    ep->counters.bad_range += status == WEFT_PROTO;
    return status == WEFT_OK;
}

struct peer *weft_core_packet_verify(struct weft_ep *ep, const struct weft_addr *from,
                                     uint8_t *bytes, size_t count, uint64_t now_ns,
                                     struct incoming *in)
{
    struct weft_wire_packet *packet = &in->packet;
    in->eliciting = false;
    if (weft_wire_header_decode(bytes, count, packet) != WEFT_OK) {
        ep->counters.bad_packet++;
        return NULL;
    }
    struct peer *p = peer_find(ep, packet->connection_id);
    if (p == NULL) {
        ep->counters.bad_peer++;
        weft_core_handshake_guard_unknown(ep, from, packet, count, now_ns);
        return NULL;
    }
    if (packet->klass != p->sec.mode) {
        ep->counters.bad_mode++;
        return NULL;
    }
    weft_core_prefetch(ep, p, now_ns);
    if (!number_complete(p, packet)) {
        ep->counters.bad_packet++;
        return NULL;
    }
    enum replay seen = weft_core_replay_look(&p->sec, packet->number);
    if (seen != REPLAY_NEW) {
        ep->counters.duplicate_packets += seen == REPLAY_SEEN;
        ep->counters.old_packets += seen == REPLAY_OLD;
        return NULL;
    }
    if (!weft_core_secure_open(ep, p, packet, bytes, count, now_ns)) {
        return NULL;
    }
    weft_core_prefetch_events(ep, p, now_ns);
    if (weft_wire_body_decode(bytes, count, packet) != WEFT_OK) {
        ep->counters.bad_packet++;
        return NULL;
    }
    if (packet->control != NULL && weft_wire_control_check(packet->control, packet->control_bytes,
                                                           &in->eliciting) != WEFT_OK) {
        ep->counters.bad_packet++;
        return NULL;
    }
    if (packet->data != NULL) {
        if (!chunk_decode(ep, p, packet, &in->data)) {
            return NULL;
        }
        in->eliciting = true;
    }
    if (!addr_equal(&p->conn.addr, from) &&
        (p->conn.state == PEER_CLOSING || !weft_core_path_stray(ep, p, from, packet, now_ns))) {
        ep->counters.bad_peer++;
        return NULL;
    }
    return p;
}
