/* The trace of an endpoint: a record for each event of its packets and messages.
 *
 * Records have a fixed size and are written to a ring, which weft_ep_new allocates when
 * config.trace_records > 0. The newest records overwrite the oldest, and the reader gets the number
 * of records lost. When tracing is off, each trace point costs one predictable branch. A driver
 * reads the ring between two calls of the endpoint and stores the records (src/obs).
 *
 * A trace is neither a text log nor a set of counters: the counters (core/endpoint.h) are exact and
 * always on.
 *
 * Source: docs/TRACING.md describes the records.
 */
#ifndef WEFT_CORE_TRACE_H
#define WEFT_CORE_TRACE_H

#include "core/endpoint.h"

#include <assert.h>

/* V(name, text). Meaning of number, flags, a, b and c:
 *   PACKET_SENT .. SPURIOUS   number: packet number; flags: weft_trace_packet_flags; a: msg, b:
 *                             chunk (of DATA); c: bytes. RECEIVED: flags of the packet's header
 *   CHUNK_AGAIN               number: packet number; a: msg, b: chunk
 *   HANDSHAKE_*               flags: class of the packet; c: bytes
 *   MSG_OPENED                number: sequence number; flags: direction; a: chunks, b: K, c: bytes
 *                             of a full chunk
 *   MSG_TAG                   number: sequence number; flags: direction; a, b: tag, high and low
 *                             half; c: elements
 *   MSG_CLOSED                number: sequence number; flags: direction, outcome << 1; a: chunks
 *                             received, b: chunks, c: chunks refused
 *   RTT                       number: minimum, ns; a: latest, b: smoothed, c: variation, ns
 *   CC                        number: window, bytes; a: rate, kbit/s; b: bytes in flight; c: DATA
 *                             packets of credit left
 *   PATH                      a: smoothed loss, ppm; b: CE marks reported so far; c: packets
 *                             declared lost so far, by the whole endpoint
 *   PTO                       number: next packet number; a: consecutive expiries, b: packets in
 *                             flight
 *   PROBE                     number: packet number; a: msg, b: chunk (UINT32_MAX: FINISH or none)
 *   DONE_*                    number: msg; flags: status; a: chunks received, b: words of the mask
 *                             in this part, c: chunk of its first bit
 *   CREDIT_*                  number: DATA packets granted since the connection began; a: newly
 *                             granted; b: DATA packets seen (GRANTED) or sent (RECEIVED) so far
 *   PEER_UP, PEER_DOWN        number: the peer's name; a: DOWN: enum weft_msg_down; UP: its
 *                             connection id here
 *   DROPPED                   flags: enum weft_trace_drop; a: drops since the last record of it;
 *                             number: 0, and no peer
 *   MSG_SHARED                a MESSAGE frame. number: packet number; flags: direction; a: its msg;
 *                             b: 0 (the message's only chunk); c: bytes of the message
 * Values of a, b and c that exceed 32 bits are written as UINT32_MAX. */
#define WEFT_TRACE_TYPES(V)                                                                        \
    V(PACKET_SENT, "packet_sent")                                                                  \
    V(PACKET_RECEIVED, "packet_received")                                                          \
    V(PACKET_ACKED, "packet_acked")                                                                \
    V(PACKET_LOST, "packet_lost")                                                                  \
    V(PACKET_SPURIOUS, "packet_spurious")                                                          \
    V(CHUNK_AGAIN, "chunk_again")                                                                  \
    V(HANDSHAKE_SENT, "handshake_sent")                                                            \
    V(HANDSHAKE_RECEIVED, "handshake_received")                                                    \
    V(MSG_OPENED, "message_opened")                                                                \
    V(MSG_TAG, "message_tag")                                                                      \
    V(MSG_CLOSED, "message_closed")                                                                \
    V(RTT, "rtt")                                                                                  \
    V(CC, "congestion")                                                                            \
    V(PATH, "path")                                                                                \
    V(PTO, "pto")                                                                                  \
    V(PROBE, "probe")                                                                              \
    V(DONE_SENT, "done_sent")                                                                      \
    V(DONE_RECEIVED, "done_received")                                                              \
    V(CREDIT_GRANTED, "credit_granted")                                                            \
    V(CREDIT_RECEIVED, "credit_received")                                                          \
    V(PEER_UP, "peer_up")                                                                          \
    V(PEER_DOWN, "peer_down")                                                                      \
    V(DROPPED, "dropped")                                                                          \
    V(MSG_SHARED, "message_shared")

enum weft_trace_type {
    WEFT_TRACE_NONE = 0,
#define WEFT_TRACE_ENUM(name, text) WEFT_TRACE_##name,
    WEFT_TRACE_TYPES(WEFT_TRACE_ENUM)
#undef WEFT_TRACE_ENUM
        WEFT_TRACE_TYPE_END,
};

/* Contents of an outgoing packet; 0 = acknowledgements only. Other bits are internal to core. */
enum weft_trace_packet_flags {
    WEFT_TRACE_HAS_DATA = 1,
    WEFT_TRACE_HAS_DONE = 2,
    WEFT_TRACE_HAS_PROBE = 4,
    WEFT_TRACE_HAS_FINISH = 8,
    WEFT_TRACE_HAS_CRITICAL = 16,
};

enum { WEFT_TRACE_OUTGOING = 0, WEFT_TRACE_INCOMING = 1 };

/* Counters of drops; their numbers in DROPPED are in this order, from 0. */
#define WEFT_TRACE_DROPS(V)                                                                        \
    V(duplicate_packets)                                                                           \
    V(duplicate_chunks)                                                                            \
    V(late_chunks)                                                                                 \
    V(no_memory)                                                                                   \
    V(bad_short)                                                                                   \
    V(bad_version)                                                                                 \
    V(bad_class)                                                                                   \
    V(bad_peer)                                                                                    \
    V(bad_packet)                                                                                  \
    V(bad_range)                                                                                   \
    V(bad_ack)                                                                                     \
    V(old_packets)                                                                                 \
    V(hello_refused)                                                                               \
    V(bad_tag)                                                                                     \
    V(bad_mode)                                                                                    \
    V(bad_key)

enum weft_trace_drop {
#define WEFT_TRACE_ENUM(name) WEFT_TRACE_DROP_##name,
    WEFT_TRACE_DROPS(WEFT_TRACE_ENUM)
#undef WEFT_TRACE_ENUM
        WEFT_TRACE_DROP_END,
};

#define WEFT_TRACE_NO_PEER UINT16_MAX

struct weft_trace_record {
    uint64_t time_ns;
    uint64_t number;
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint16_t peer;
    uint8_t type; /* enum weft_trace_type */
    uint8_t flags;
};

static_assert(sizeof(struct weft_trace_record) == 32, "a record is half a cache line");

enum { WEFT_TRACE_RECORDS_MIN = 64, WEFT_TRACE_RECORDS_MAX = 1 << 24 };

/* Records written since weft_ep_new; 0 when tracing is off. */
uint64_t weft_ep_trace_written(const struct weft_ep *ep);

/* Copy records from number *from_p on (the first is 0), oldest first, and advance *from_p past
 * them. If the ring has overwritten some of them, copying starts at the oldest record in the ring,
 * and *overwritten_p is the number of missing records.
 *
 * Shape:   records (records_max,).   Returns the records copied.   Thread: the endpoint's. */
size_t weft_ep_trace_read(struct weft_ep *ep, uint64_t *from_p, struct weft_trace_record *records,
                          size_t records_max, uint64_t *overwritten_p);

/* The name of a record type or drop reason; NULL = no such number. */
const char *weft_trace_type_name(unsigned type);
const char *weft_trace_drop_name(unsigned reason);

#endif
