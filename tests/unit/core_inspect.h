/* Access of tests to an endpoint's private state, and actions that otherwise only a timer causes.
 * The only place in tests that knows how endpoints store their peers. A peer's objects are
 * described in src/core: conn.h, recovery.h, and so on. */
#ifndef WEFT_TESTS_CORE_INSPECT_H
#define WEFT_TESTS_CORE_INSPECT_H

#include "base/assert.h"
#include "core/internal.h"

/* The peer in this slot, which may be free. */
[[maybe_unused]] static struct peer *inspect_peer(const struct weft_ep *ep, weft_peer peer)
{
    WEFT_ASSERT(peer < ep->config.peers_max);
    return &ep->peers[peer];
}

/* Send PING, as the keep-alive does. */
[[maybe_unused]] static void inspect_ping(struct weft_ep *ep, weft_peer peer)
{
    struct peer *p = inspect_peer(ep, peer);
    conn_ping(&p->conn, true);
    weft_core_peer_ready(ep, p);
}

#endif
