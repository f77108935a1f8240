/* A peer: its objects, and the queries that need several of them. Internal to src/core.
 *
 * Each object has a header with its struct and its functions. Only these functions and the files
 * named here write its fields (tests/check/objects.sh):
 *
 *   conn.h       the connection          handshake.c, life.c, peers.c
 *   secure.h     keys and tags           secure.c
 *   recovery.h   packets in flight       loss.c, tail.c
 *   cc.h         congestion control      cc.c, cc_*.c
 *   pacer.h      token bucket            pacer.c
 *   path.h       size, ECN, address      path.c
 *   tx_msgs.h    outgoing messages       tx_msg.c (one: tx_msg.h)
 *   rx_msgs.h    incoming messages       rx_msg.c (one: rx_msg.h)
 *   ack.h        acknowledgements        ack.c
 *   credit.h     credit of this end      tx.c (allowed)
 *                credit of the peer      credit.c, credit_want.c
 */
#ifndef WEFT_CORE_PEER_H
#define WEFT_CORE_PEER_H

#include "core/ack.h"
#include "core/cc.h"
#include "core/conn.h"
#include "core/credit.h"
#include "core/pacer.h"
#include "core/path.h"
#include "core/recovery.h"
#include "core/rx_msgs.h"
#include "core/secure.h"
#include "core/tx_msgs.h"

/* A peer consists of its objects. Those that every packet accesses are adjacent. */
struct peer {
    struct conn conn;
    struct secure sec;
    struct allowed allowed;
    struct pacer pacer;
    struct recovery recovery;
    struct weft_cc cc;
    struct path path;
    struct tx_msgs tx;
    struct rx_msgs rx;
    struct ack ack;
    struct peer_credit credit;
};

/* ACCEPT arrived, and no packet since: the peer may not know that ACCEPT arrived. */
static inline bool peer_unheard(const struct peer *p)
{
    return p->conn.state == PEER_OPEN && !p->conn.accepted && p->ack.largest == 0;
}
/* Active outgoing messages that have begun: all that are not held. */
static inline uint64_t tx_awake(const struct peer *p)
{
    return p->tx.active & ~p->tx.held;
}
/* A reply is outstanding: for a message without DONE, for a DONE in flight, or for the first PING,
 * without which the peer drops the connection as half-open. That PING counts before it is sent: the
 * application polls PEER_UP first, and if it then stopped making progress, it would not have sent
 * IDLE. Other PINGs in flight, and retransmissions of closed messages, do not arm the probe timer;
 * when they did, a server filled the sockets of 64 slow workers with PINGs. */
static inline bool peer_waiting(const struct peer *p)
{
    bool rests = recovery_due_count(&p->recovery) == 0 && (tx_awake(p) & ~p->tx.paced) == 0;
    return (tx_awake(p) != 0 && !rests) || peer_unheard(p) ||
           (p->rx.closed != 0 && p->recovery.in_flight_count > 0);
}
/* Nothing but DONEs that may be acknowledged late is outstanding. */
static inline bool peer_waits_late(const struct peer *p)
{
    return p->recovery.late_count > 0 && recovery_due_count(&p->recovery) == 0 &&
           (tx_awake(p) & ~p->tx.paced) == 0 && !peer_unheard(p);
}
/* A keep-alive PING was sent, and no packet was received since. */
static inline bool peer_asked(const struct peer *p)
{
    return p->conn.ping_ns > p->conn.heard_ns;
}
static inline bool peer_connected(const struct peer *p)
{
    return p->conn.state == PEER_OPEN || p->conn.state == PEER_HALF_OPEN;
}

/* Number of DATA packets that the peer's credit still allows it to send. */
static inline uint32_t weft_core_credit_outstanding(const struct peer *p)
{
    int32_t ahead = (int32_t)(p->credit.granted - p->credit.data_count);
    return ahead > 0 ? (uint32_t)ahead : 0;
}

#endif
