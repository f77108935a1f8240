/* K: how many chunks a message may miss.
 *
 * A bound seldom comes to whole chunks: 10 % of seven chunks is 0.7, and rounded down that is none, so
 * that a short message would never use its bound. The fraction that rounding leaves, always less than a
 * chunk, is therefore kept for the next message of the same stream. A stream is what the layer above
 * calls one (weft_msg_send.stream): the pushes to one table, say. K is reserved when a message is
 * opened, in that order, and stays with it: what it does not miss is not given to a later one.
 *
 * So any run of messages of a stream may miss at most bound x (its chunks) and one more chunk
 * together, and in the long run they may miss bound x (their chunks), as long ones always could.
 *
 * One of these per peer, at the sender; zeroed with the connection. The fractions of the
 * WEFT_BOUND_STREAMS_MAX streams used last are kept; a stream that comes back later begins at zero,
 * and may miss less than its bound, never more.
 *
 * Source: docs/PROTOCOL.md section 6. TCP (src/io) reserves by the same rule.
 */
#ifndef WEFT_CORE_BOUND_H
#define WEFT_CORE_BOUND_H

#include "core/msg.h"

enum { WEFT_BOUND_STREAMS_MAX = 16 };

struct weft_bound_stream {
    uint32_t stream;
    uint32_t chunk_elems; /* of its last message; 0 = a free entry */
    uint64_t rest;        /* in 1 / (10^6 x chunk_elems) of a chunk; less than a chunk */
};

/* All zero before the first message. */
struct weft_bounds {
    struct weft_bound_stream used[WEFT_BOUND_STREAMS_MAX]; /* the last one used comes first */
};

/* K of a message that is about to be opened: at most chunks - 1, and chunks - send->critical. What
 * these limits cut off is lost. A message with bound 0 has K = 0 and leaves its stream as it is.
 * Cost: O(WEFT_BOUND_STREAMS_MAX). */
uint32_t weft_bound_reserve(struct weft_bounds *bounds, const struct weft_msg_send *send,
                            uint32_t chunk_elems, uint32_t chunks);

#endif
