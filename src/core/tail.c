/* What is said last is said once more, where packets are lost.
 *
 * Behind a lost chunk come others, and the acknowledgement of one of them tells of it after a
 * round trip. Behind the last words between two ends nothing comes: DONE, FINISH, the
 * acknowledgement of the end of a pass that misses chunks. If one of them is lost only a probe
 * timeout finds out, which allows for all that round trips have varied by while the links were
 * full: with messages of 25,000 bytes at 50 Mbit/s 10 ms, a third of the phase that waits for it.
 * A few bytes said again after part of a round trip cost less:
 *
 *   ACK      of a message whose pass is over and of which chunks are missing, when no chunk has
 *            come 3/8 of a round trip after the last ACK.
 *   DONE     that is not confirmed 3/8 of a round trip after it. The stream of chunks that filled
 *            the link has just ended, so confirmation takes less than the round trips that were
 *            measured.
 *   FINISH   when nothing has been acknowledged 9/8 of a round trip after the last chunk: the time
 *            after which a packet counts as lost. DONE waits as long while a message of this end is
 *            open.
 *
 * Each once, until something new has happened; then the probe timeout decides. DONE and FINISH
 * only where no chunk is left to be sent to this peer, and a packet to any peer was lost in the
 * last 10 s, so that they cost nothing elsewhere.
 *
 * Source: docs/PROTOCOL.md section 5, "Tail loss"; RFC 8985 section 7 (tail loss probe), whose
 * probe is a whole segment after two round trips.
 */
#include "core/internal.h"

static uint64_t after(const struct peer *p, uint64_t since_ns, uint64_t eighths)
{
    return since_ns + weft_max_u64(p->recovery.srtt_ns / 8 * eighths, granularity_ns);
}

/* The pass of an open message is over: its sender waits to hear what is missing. */
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

/* Messages whose chunks have all been sent. Of a short one of which nothing was acknowledged all
 * may be lost: a probe brings a chunk. */
static uint64_t finished(const struct peer *p)
{
    uint64_t messages = 0;
    for (uint64_t awake = p->tx.unsent > 0 ? 0 : tx_awake(p); awake != 0; awake &= awake - 1) {
        const struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(awake)];
        messages |= m->acked_count > 0 || m->chunks >= FINISH_CHUNKS_MIN ? awake & -awake : 0;
    }
    return messages;
}

/* An answer, and what is said with it, may be confirmed late by agreement. */
static uint64_t last_time(const struct weft_ep *ep, const struct peer *p)
{
    if ((p->recovery.tail_said & TAIL_LAST) != 0 || p->recovery.in_flight_count == 0 ||
        p->tx.unsent > 0 || p->tx.answers != 0 || !losses_likely(ep, p->recovery.pto_base_ns)) {
        return WEFT_NEVER;
    }
    if (tx_awake(p) != 0) {
        return finished(p) != 0 ? after(p, p->recovery.pto_base_ns, 9) : WEFT_NEVER;
    }
    bool told = (p->rx.closed & ~p->rx.need_done) != 0;
    return told ? after(p, p->recovery.pto_base_ns, 3) : WEFT_NEVER;
}

void weft_core_tail_arm(const struct weft_ep *ep, struct peer *p)
{
    bool open = p->conn.state == PEER_OPEN && !p->conn.idle && p->recovery.srtt_ns != 0;
    p->recovery.tail_ns = open ? weft_min_u64(ack_time(p), last_time(ep, p)) : WEFT_NEVER;
}

void weft_core_tail_fire(const struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (ack_time(p) <= now_ns) {
        p->recovery.tail_said |= TAIL_ACK;
        ack_at_once(&p->ack);
    }
    if (last_time(ep, p) <= now_ns) {
        p->recovery.tail_said |= TAIL_LAST;
        rx_done_again(&p->rx);
        tx_finish_due(&p->tx, finished(p));
    }
}
