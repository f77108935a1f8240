/* K: the number of chunks of a message that may be missing.
 *
 * A bound is rarely a whole number of chunks: 10 % of seven chunks is 0.7, which rounds down to
 * none, so that a short message would never use its bound. The fraction that rounding leaves,
 * always less than one chunk, is therefore carried over to the next message of the same stream. The
 * layer above defines the streams (weft_msg_send.stream): for example, the pushes to one table. K
 * is reserved when a message is opened. The part of K that a message does not use is not carried
 * over.
 *
 * Of any sequence of consecutive messages of a stream, at most bound x (their chunks) + 1 chunks
 * may thus be missing. Over many messages the bound is the same for short messages as for long
 * ones.
 *
 * There is one object per peer, at the sender, zeroed with the connection. It keeps the fractions
 * of the WEFT_BOUND_STREAMS_MAX streams used most recently. A stream used again later starts at
 * zero; less than its bound may then be missing, never more.
 *
 * Source: docs/PROTOCOL.md section 6. TCP (src/io) reserves by the same rule.
 */
#ifndef WEFT_CORE_BOUND_H
#define WEFT_CORE_BOUND_H

#include "core/msg.h"

enum { WEFT_BOUND_STREAMS_MAX = 16 };

struct weft_bound_stream {
    uint32_t stream;
    uint32_t chunk_elems; /* of its last message; 0 = free entry */
    uint64_t rest; /* carried fraction, in 1 / (10^6 x chunk_elems) of a chunk; below one chunk */
};

/* All zero before the first message. */
struct weft_bounds {
    struct weft_bound_stream used[WEFT_BOUND_STREAMS_MAX]; /* most recently used first */
};

/* K of a message that is about to be opened: at most chunks - 1, and at most chunks -
 * send->critical. The excess over these limits is not carried over. A message with bound 0 has K =
 * 0 and does not change its stream. Cost: O(WEFT_BOUND_STREAMS_MAX). */
uint32_t weft_bound_reserve(struct weft_bounds *bounds, const struct weft_msg_send *send,
                            uint32_t chunk_elems, uint32_t chunks);

#endif
