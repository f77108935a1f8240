/* Tail loss: the last packets of an exchange are repeated once on lossy paths.
 *
 * Other chunks follow a lost chunk, and the acknowledgement of one of them reveals the loss after a
 * round trip. No packet follows the last ones of an exchange: DONE, FINISH, or the ACK of the end
 * of a first pass with missing chunks. If one of these is lost, only the probe timeout detects it.
 * That timeout includes the variation of the round-trip time while the links were full: 10 ms for
 * messages of 25,000 bytes at 50 Mbit/s, a third of the duration of such an exchange. It costs less
 * to repeat a few bytes after part of a round trip:
 *
 *   ACK      of a message whose first pass has ended with chunks missing: 3/8 of a round trip after
 *            the last ACK, if no chunk has arrived since.
 *   DONE     3/8 of a round trip after the last transmission, if it is not confirmed. The stream of
 *            chunks that filled the link has just ended, so confirmation takes less time than the
 *            measured round trips.
 *   FINISH   9/8 of a round trip after the last chunk, if nothing was acknowledged since: the time
 *            after which a packet counts as lost. DONE also waits this long while a message of this
 *            end is open.
 *   chunk    of a message of a few bytes, part of an exchange (`together`), of which nothing is
 *            acknowledged, in a probe: 9/8 of a round trip after the last chunk, or of twice the
 *            latest one if that is less. With 5 % loss most barriers of eight ranks lose a message,
 *            and its probe timeout was 10 ms after an exchange that had filled the links.
 *
 * Each is repeated once per new packet; after that the probe timeout applies. All but the ACK are
 * repeated only if no chunk to this peer is left to send and a packet to any peer was lost in the
 * last 10 s, so that they cost nothing on other paths.
 *
 * Source: docs/PROTOCOL.md section 5, "Tail loss"; RFC 8985 section 7 (tail loss probe), whose
 * probe is a whole segment after two round trips.
 */
#include "core/internal.h"

enum { LATE_FACTOR = 4, FEW_BYTES = 512 };

static uint64_t after(const struct peer *p, uint64_t since_ns, uint64_t eighths)
{
    return since_ns + weft_max_u64(p->recovery.srtt_ns / 8 * eighths, granularity_ns);
}

/* The first pass of an open message has ended: its sender waits for an ACK that shows the missing
 * chunks. */
static uint64_t ack_time(const struct peer *p)
{
    if (p->ack.gap_ns == 0 || (p->recovery.tail_said & TAIL_ACK) != 0) {
        return WEFT_NEVER;
    }
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        if (p->rx.msgs[__builtin_ctzll(live)].pass_over) {
            return after(p, p->ack.sent_ns, 3);
        }
    }
    return WEFT_NEVER;
}

/* Messages whose chunks have all been sent. Short messages without any acknowledgement are
 * excluded: all their chunks may be lost, and a probe, which contains a chunk, is better
 * (unheard_time). */
static uint64_t finished(const struct peer *p)
{
    uint64_t messages = 0;
    for (uint64_t awake = p->tx.unsent > 0 ? 0 : tx_awake(p); awake != 0; awake &= awake - 1) {
        const struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(awake)];
        messages |= m->acked_count > 0 || m->chunks >= FINISH_CHUNKS_MIN ? awake & -awake : 0;
    }
    return messages;
}

/* All open messages are parts of exchanges between several ends, and a few bytes long. */
static bool all_few(const struct peer *p)
{
    bool few = true;
    for (uint64_t awake = tx_awake(p); awake != 0; awake &= awake - 1) {
        const struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(awake)];
        few = few && m->together && (uint64_t)m->total * m->elem_bytes <= FEW_BYTES;
    }
    return few;
}

/* Short messages of which nothing is acknowledged. The latest round trip includes the queues as
 * they are now, the mean still those of the exchange before. A peer that computes between messages
 * answers late; no early probe is sent to it. Round trips of messages that meet at one receiver
 * differ by the queue of all, so many such probes are redundant. With a full packet in each, rounds
 * of 64 senders took 5 % longer, and all-to-all rounds of one packet a pair up to 19 %. */
static uint64_t unheard_time(const struct peer *p)
{
    const struct recovery *r = &p->recovery;
    if (r->answer_ns > LATE_FACTOR * r->srtt_ns || !all_few(p)) {
        return WEFT_NEVER;
    }
    uint64_t rtt_ns = weft_min_u64(r->srtt_ns, 2 * r->rtt_latest_ns);
    return r->pto_base_ns + weft_max_u64(rtt_ns + rtt_ns / 8, granularity_ns);
}

/* The confirmation of a reply, and of the DONE in it, may be delayed (LATER), so these are not
 * repeated. */
static uint64_t last_time(const struct weft_ep *ep, const struct peer *p)
{
    if ((p->recovery.tail_said & TAIL_LAST) != 0 || p->recovery.in_flight_count == 0 ||
        p->tx.unsent > 0 || p->tx.answers != 0 || !losses_likely(ep, p->recovery.pto_base_ns)) {
        return WEFT_NEVER;
    }
    if (tx_awake(p) != 0) {
        return finished(p) != 0 ? after(p, p->recovery.pto_base_ns, 9) : unheard_time(p);
    }
    bool done_sent = (p->rx.closed & ~p->rx.need_done) != 0;
    return done_sent ? after(p, p->recovery.pto_base_ns, 3) : WEFT_NEVER;
}

void weft_core_tail_arm(const struct weft_ep *ep, struct peer *p)
{
    bool open = p->conn.state == PEER_OPEN && !p->conn.idle && p->recovery.srtt_ns != 0;
    p->recovery.tail_ns = open ? weft_min_u64(ack_time(p), last_time(ep, p)) : WEFT_NEVER;
}

void weft_core_tail_fire(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (ack_time(p) <= now_ns) {
        p->recovery.tail_said |= TAIL_ACK;
        ack_at_once(&p->ack);
    }
    if (last_time(ep, p) <= now_ns) {
        p->recovery.tail_said |= TAIL_LAST;
        rx_done_again(&p->rx);
        tx_finish_due(&p->tx, finished(p));
        if (tx_awake(p) != 0 && finished(p) == 0) {
            recovery_probe(&p->recovery);
            ep->counters.probes++;
        }
    }
}
