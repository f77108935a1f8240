/* A member of dense rounds: sums a vector with those of the other members through a box
 * (agg/dense.h, docs/PROTOCOL.md section 12).
 *
 * The vector is cut into chunks of `values` elements; chunk c is sent in slot c modulo `slots`. A
 * slot has one packet outstanding: when the sum of a chunk arrives, the slot's next chunk is sent,
 * so arriving sums clock the packets, and `slots` is the window. All members must have the same
 * configuration (except for `member`), and sum vectors of the same lengths in the same order: then
 * they agree on the round of each chunk without exchanging anything.
 *
 * A packet is sent again
 *   - when its sum has not arrived after a timeout: four smoothed round trips, doubled each time,
 *     then shortened at random by up to a half. A round trip includes the wait for the other
 *     members;
 *   - once before that, when a packet that was sent `reorder` or more packets later has been
 *     answered.
 * The box replies to a duplicate only if the round is complete.
 *
 * A chunk is *direct* if it has no sum that can be used: a value does not fit the exponent or is
 * not finite, the sum would overflow, members disagree with the box on exponent, format or length,
 * or a value of the sum is not finite as a float. Every member gets the same verdict; the members
 * then sum that chunk without the box. A member marks a chunk that it cannot encode by an exponent
 * other than the epoch's, which makes the round void; if the box has that exponent and every member
 * sent it, the sum has it too, and is not used.
 *
 * With BLOCK_FLOATS the members agree on each chunk's exponent: the packet of a chunk has the
 * exponent that this member needs for the slot's next chunk, and its sum has the largest one of all
 * members. The first chunk of a vector in each slot is preceded by a round of 8 zeros that has only
 * this. Each exponent leaves room for the values of all members, so a chunk of finite values is not
 * direct unless its sum is not finite as a float.
 *
 * It sends nothing itself, reads no clock and knows no addresses. Packets are not authenticated.
 *
 * Source: SwitchML (Sapio et al., NSDI 2021), the worker; differs: round numbers instead of one
 *         bit, adaptive timeouts, resending before the timeout, direct chunks.
 */
#ifndef WEFT_AGG_DENSE_MEMBER_H
#define WEFT_AGG_DENSE_MEMBER_H

#include "agg/agg.h"
#include "base/status.h"
#include "base/units.h"

enum weft_agg_element {
    WEFT_AGG_INTEGERS, /* int32, exact */
    WEFT_AGG_FIXED,    /* float, sent as int32 with the epoch's exponent */
    WEFT_AGG_FLOATS,   /* float, sent as such: the XDP box has no floats. The sum depends on the
                        * order of packets */
    WEFT_AGG_BLOCK_FLOATS, /* float, sent as int32 with an exponent for each chunk */
};

struct weft_agg_member_config {
    uint16_t job;
    uint16_t member;
    uint32_t members; /* number of members, for the proposal of an exponent */
    uint32_t slots;   /* 0 .. slots - 1 are used; at most the box's */
    uint32_t values;  /* of a chunk: a multiple of 8, at most 352 */
    uint32_t epoch;
    uint8_t element; /* enum weft_agg_element */
    int8_t exponent; /* of the epoch, with FIXED; else 0 */
    uint32_t reorder; /* a packet is sent again when the sum of one that was sent this many packets
                       * later, or more, has arrived; 0 = only timeouts */
    uint64_t timeout_ns_first; /* until a round trip was measured */
    uint64_t timeout_ns_min;
    uint64_t timeout_ns_max;
};

struct weft_agg_member_counters {
    uint64_t sent;           /* packets, including those sent again */
    uint64_t resent_timeout; /* packets queued for resending after a timeout. Also counts those
                              * that a sum, arriving before they are sent, makes unnecessary; so
                              * does resent_early */
    uint64_t resent_early;   /* packets queued for resending because a later one was answered */
    uint64_t sums;           /* of rounds, each once */
    uint64_t direct;         /* of them, those whose chunk is direct */
    uint64_t unfit;          /* chunks with a value that this member could not encode */
    uint64_t late;           /* sums of a round that is over, or of another epoch */
    uint64_t foreign;        /* packets that are no sum for this member */
};

/* A packet that is the first of its round is in a list, oldest first, until it is answered or sent
 * again. */
struct weft_agg_member_slot {
    uint64_t due_ns;  /* the timeout; WEFT_NEVER: no packet is outstanding */
    uint64_t sent_ns; /* of the first packet of the round */
    uint64_t sequence;
    uint32_t round; /* of the chunk; without a chunk, of the next one */
    uint32_t chunk; /* UINT32_MAX: none */
    uint32_t older; /* in the list; UINT32_MAX: none; also the next field */
    uint32_t newer;
    uint8_t tries; /* packets sent in this round; stops at 255 */
    bool listed;
    bool queued; /* to be sent */
    bool opens;  /* BLOCK_FLOATS: the round is that before the first chunk */
    int8_t exponent; /* of the round's values */
};

struct weft_agg_member {
    struct weft_agg_member_config config;
    struct weft_agg_member_counters counters;
    struct weft_agg_member_slot *slots; /* (config.slots,) */
    uint32_t *queue;                    /* (config.slots,), a ring of slots to send */
    uint32_t queue_at;
    uint32_t queue_count;
    uint32_t oldest; /* ends of the list; UINT32_MAX: empty */
    uint32_t newest;
    uint64_t sequence;   /* of the next packet */
    uint64_t answered;   /* highest sequence of a first packet whose sum has arrived */
    uint64_t expiry_ns;  /* no timeout expires before this time */
    uint64_t trip_ns;    /* smoothed round trip; 0: none was measured */
    const uint8_t *in;   /* the vector; NULL: none yet */
    uint8_t *out;
    uint64_t *direct;
    uint64_t count;
    uint32_t chunks;
    uint32_t left; /* chunks without a sum */
    float largest; /* of the finite inputs in this epoch */
};

/* 352 values, 32 slots, 10 ms until a round trip was measured, at least 200 us, at most 50 ms. */
void weft_agg_member_config_default(struct weft_agg_member_config *config_p);

/* Owns:    allocates 60 bytes per slot.
 * Errors:  WEFT_INVALID  the configuration is outside its limits; WEFT_NOMEM. */
[[nodiscard]] weft_status weft_agg_member_init(struct weft_agg_member *member,
                                               const struct weft_agg_member_config *config);
void weft_agg_member_fini(struct weft_agg_member *member);

/* Chunks of a vector of `count` elements. */
uint32_t weft_agg_member_chunks(const struct weft_agg_member *member, uint64_t count);

/* Begin to sum a vector.
 *
 * Shape:   in (count,), out (count,): int32 or float, as configured; in == out is allowed. direct
 *          (WEFT_BITS_WORDS(chunks),).
 * Owns:    borrows all three until the vector is done or the epoch ends. An element of `out` is
 *          written when the sum of its chunk arrives; elements of direct chunks are not written,
 *          and their bits are set.
 * Errors:  WEFT_STATE  the last vector is not done; WEFT_INVALID  count is 0, or more than 2^31
 *          chunks. */
[[nodiscard]] weft_status weft_agg_member_begin(struct weft_agg_member *member, const void *in,
                                                void *out, uint64_t count, uint64_t *direct);

/* The next packet to send at this time.
 *
 * Shape:   bytes (WEFT_AGG_HEADER_BYTES + 4 * config.values,).
 * Returns its length; 0: none. */
uint32_t weft_agg_member_send(struct weft_agg_member *member, uint8_t *bytes, uint64_t now_ns);

/* When weft_agg_member_send has to be called next; 0: at once; WEFT_NEVER: after the next sum. */
uint64_t weft_agg_member_deadline(const struct weft_agg_member *member);

/* Process a packet from the box. Returns true if it is a sum that was missing. Others are dropped
 * and counted. */
bool weft_agg_member_receive(struct weft_agg_member *member, const uint8_t *bytes, uint32_t count,
                             uint64_t now_ns);

/* Every chunk has a sum or is direct. */
static inline bool weft_agg_member_is_done(const struct weft_agg_member *member)
{
    return member->left == 0;
}

/* Begin another epoch, later than the one before, in which all rounds begin at 0. A vector that is
 * not done is given up.
 *
 * All members do so between the same two vectors, and none before weft_agg_member_is_done is true
 * at every member: the first packet of the new epoch makes the box forget the sums of the old one,
 * and a member that lacks one would request it in vain. Members that exchange their exponents after
 * is_done, and begin the epoch when they have those of all, satisfy this. */
void weft_agg_member_epoch(struct weft_agg_member *member, uint32_t epoch, int8_t exponent);

/* The exponent for the next epoch according to the largest input in this one, with room for twice
 * that value; the present one if there was no input other than 0. Members get different exponents;
 * all must use the largest of them. */
int8_t weft_agg_member_exponent(const struct weft_agg_member *member);

#endif
