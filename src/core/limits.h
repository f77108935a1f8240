/* Sizes and times that several objects of core share. Internal to src/core. */
#ifndef WEFT_CORE_LIMITS_H
#define WEFT_CORE_LIMITS_H

#include "core/endpoint.h"

enum {
    MSG_MASK = WEFT_MSGS_MAX - 1,
    RX_WINDOW_BLOCKS = 64, /* receive window: 64 x 64 packet numbers */
    EVENTS_MAX = 1024,
    /* Maximum number of events that one peer can raise in one call: OPEN, CHUNK and RECEIVED, and
     * SENT, of every message, because a packet may contain many short messages. */
    EVENTS_RESERVE = 4 * WEFT_MSGS_MAX + 8,
    DONE_PART_WORDS = 16, /* a part of a mask in DONE and CRITICAL has 1,024 chunks */
    MASK_PARTS_WORDS = 4, /* bit sets of such parts */
    REORDER_FIRST = 3,
    FINISH_CHUNKS_MIN = 16, /* shorter messages send no FINISH, to save a packet */
    NOTES_MAX = 8,
    ACK_EVERY = 64,
    ACK_EVERY_LATE = 16, /* acknowledge this many if the first of them arrived 100 us ago or
                          * earlier, for smaller bursts */
    LATE_NUMBERS_MAX = 64, /* packet numbers after which a delayed acknowledgement is sent: the ring
                            * of the sender must not fill up */
    INLINE_CHUNKS = 64,  /* masks up to this length are stored in the message */
    TX_MASKS = 4,
    TX_SHARED_RESENT_MAX = 2, /* share.c */
    RX_MASKS = 2,
    PROBES_UNHEARD_MAX = 1024, /* probes that a peer, at two per second, may have sent while none of
                                * its packets arrived */
};

static const uint64_t granularity_ns = 100 * WEFT_NS_PER_US;
static const uint64_t ack_delay_ns_min = 100 * WEFT_NS_PER_US; /* default max_ack_delay */
static const uint64_t initial_rtt_ns = WEFT_NS_PER_MS;
static const uint64_t pto_ns_max = WEFT_NS_PER_S;
static const uint64_t retell_ns =
    50 * WEFT_NS_PER_US;                             /* in addition to two round trips, before a
                                                      * grant is repeated: credit.c */
static const uint64_t lossy_ns = 10 * WEFT_NS_PER_S; /* after a loss, further losses are likely for
                                                      * this time */
static const uint64_t hello_first_ns = 10 * WEFT_NS_PER_MS;

/* Rule 2: losses of up to an eighth of K are not retransmitted during the first pass. Further
 * losses are retransmitted immediately, up to half of K. The rest of the bound is reserved for
 * losses that would extend the message. A lossy path therefore adds at most K / 2 packets to a
 * message whose bound is sufficient. Both ends use these numbers. */
static inline uint32_t pass_spare(uint32_t lost_max)
{
    return lost_max / 8;
}

static inline uint32_t pass_again_max(uint32_t lost_max)
{
    return lost_max / 2 + lost_max % 2;
}

/* Parts of a message's mask in DONE and CRITICAL. */
enum { MASK_PART_CHUNKS = 64 * DONE_PART_WORDS };
static inline uint32_t mask_parts(uint32_t chunks)
{
    return (uint32_t)weft_div_ceil_u64(chunks, MASK_PART_CHUNKS);
}

/* The wire's clock: 64 ns units, modulo 2^32. */
static inline uint32_t wire_clock(uint64_t ns)
{
    return (uint32_t)(ns >> 6);
}

enum { PRIORITY_LAST = 7 };

#endif
