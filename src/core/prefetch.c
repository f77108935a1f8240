/* Prefetching of memory that a packet will access.
 *
 * With hundreds of peers, the state of a peer that sends rarely is neither in the cache nor in the
 * TLB when its packet arrives: the peer, its keys, its current and its previous message, the ring
 * of packets and the expectation are on a dozen pages. The misses were sequential, 0.4 to 0.8 us
 * each in a virtual machine, and caused half of the additional time of an empty request compared
 * with a single peer. The addresses follow from the peer's index, and then from the peer. All lines
 * are therefore prefetched in these two steps, and arrive while the packet is being verified.
 *
 * For a peer at a high rate, the destination of the next chunk is prefetched. Chunks arrive in
 * random order, which the hardware prefetcher does not predict, and a copy or an addition would
 * wait for each line.
 *
 * A wrong prefetch costs time and has no other effect.
 */
#include "core/internal.h"

#include "base/prefetch.h"

#include <stddef.h>

enum {
    LINE_BYTES = 64,
    CHUNK_BYTES = 1536, /* the hardware prefetcher covers the rest of a longer chunk */
};

/* If the peer's last packet arrived within this time, its state is still in the cache. */
static const uint64_t fresh_ns = 200 * WEFT_NS_PER_US;

static void lines(const void *from, size_t bytes)
{
    uintptr_t end = (uintptr_t)from + bytes;
    for (uintptr_t at = (uintptr_t)from / LINE_BYTES * LINE_BYTES; at < end; at += LINE_BYTES) {
        weft_prefetch_to_write((const void *)at);
    }
}

void weft_ep_prefetch(const struct weft_ep *ep, const void *bytes, size_t count)
{
    struct weft_wire_packet packet;
    if (weft_wire_header_decode(bytes, count, &packet) != WEFT_OK) {
        return;
    }
    uint32_t idx = packet.connection_id & 0xfff;
    if (idx >= ep->peers_used) {
        return;
    }
    const struct peer *p = &ep->peers[idx];
    lines(p, offsetof(struct peer, sec) + offsetof(struct secure, send_secret));
    lines(&p->sec.seen_largest, 1);
    lines(&p->sec.seen[packet.number / 64 % REPLAY_BLOCKS], 1);
    lines(&p->allowed, offsetof(struct peer, ack) - offsetof(struct peer, allowed));
    lines(&p->ack.window[packet.number / 64 % RX_WINDOW_BLOCKS], 1);
    lines(&p->ack.largest, sizeof(*p) - offsetof(struct peer, ack) - offsetof(struct ack, largest));
    lines(&ep->expects.lists[idx], sizeof(*ep->expects.lists));
}

void weft_ep_prefetch_chunk(const struct weft_ep *ep, const void *bytes, size_t count)
{
    struct weft_wire_packet packet;
    struct weft_wire_brief brief;
    if (weft_wire_header_decode(bytes, count, &packet) != WEFT_OK ||
        weft_wire_header_bytes(packet.flags) != WEFT_HEADER_BRIEF_BYTES ||
        packet.klass == WEFT_CLASS_SEAL ||
        weft_wire_brief_decode((const uint8_t *)bytes + WEFT_HEADER_BRIEF_BYTES,
                               count - WEFT_HEADER_BRIEF_BYTES, &brief) != WEFT_OK) {
        return;
    }
    uint32_t idx = packet.connection_id & 0xfff;
    if (idx >= ep->peers_used) {
        return;
    }
    const struct peer *p = &ep->peers[idx];
    uint64_t seq = weft_core_brief_seq(p, brief.msg);
    const struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->state == RX_OPEN && m->seq == seq && m->sink != WEFT_SINK_EVENT &&
        brief.chunk < m->chunks) {
        size_t chunk_bytes = (size_t)m->chunk_elems * m->elem_bytes;
        size_t offset = brief.chunk * chunk_bytes;
        size_t most = weft_min_u64(CHUNK_BYTES, (size_t)m->total * m->elem_bytes - offset);
        lines(m->memory + offset, weft_min_u64(brief.payload_bytes, most));
    }
}

static void message_lines(const struct peer *p)
{
    lines(&p->rx.msgs[p->rx.open_from & MSG_MASK], sizeof(*p->rx.msgs));
    lines(&p->rx.msgs[(p->rx.open_from + 1) & MSG_MASK], sizeof(*p->rx.msgs));
    lines(&p->tx.msgs[p->tx.open_from & MSG_MASK], sizeof(*p->tx.msgs));
    lines(&p->tx.msgs[p->tx.next_seq & MSG_MASK], sizeof(*p->tx.msgs));
}

static void ring_lines(const struct weft_ep *ep, const struct peer *p)
{
    uint32_t mask = ep->config.tx_window_max - 1;
    lines(&p->recovery.packets[p->recovery.pn_next & mask], sizeof(*p->recovery.packets));
    lines(&p->recovery.packets[p->recovery.pn_oldest & mask], 1);
    lines(&p->recovery.in_flight_bits[(p->recovery.pn_next & mask) / 64], 1);
    lines(&p->recovery.lost_bits[(p->recovery.pn_next & mask) / 64], 1);
}

void weft_core_prefetch(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    if (now_ns - p->conn.heard_ns < fresh_ns) {
        return;
    }
    weft_core_secure_prefetch(ep, p);
    message_lines(p);
    ring_lines(ep, p);
    const struct weft_expect *first = weft_expects_likely(&ep->expects, peer_idx(ep, p));
    if (first != NULL) {
        lines(first, sizeof(*first));
    }
}

void weft_core_prefetch_events(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    if (now_ns - p->conn.heard_ns < fresh_ns) {
        return;
    }
    const struct weft_expect *first = weft_expects_likely(&ep->expects, peer_idx(ep, p));
    if (first != NULL && first->e.prefetch != NULL) {
        lines(first->e.prefetch, WEFT_PREFETCH_BYTES);
    }
    const struct tx_msg *oldest = &p->tx.msgs[p->tx.open_from & MSG_MASK];
    if (oldest->active && oldest->prefetch != NULL) {
        lines(oldest->prefetch, WEFT_PREFETCH_BYTES);
    }
}
