/* What a message must have become: plain, slow, and without a look into the endpoint.
 *
 * One struct per message holds what was sent, the memory that the endpoints work on, and what the
 * events said. The functions compare; each returns NULL or one sentence about what is wrong. They
 * are pure, so tests can feed them wrong runs (tests/unit/test_sim_oracle.c).
 *
 * Memory is compared with what it should hold byte for byte: chunks in the mask, and the bytes
 * around and between them, which nobody may touch.
 */
#ifndef WEFT_SIM_ORACLE_H
#define WEFT_SIM_ORACLE_H

#include "sim/plan.h"

/* What the bounds of the messages of a stream have left, of messages with this chunk_elems: in
 * 1 / (10^6 x chunk_elems) of a chunk. */
struct weft_oracle_stream {
    bool used;
    uint32_t stream;
    uint32_t chunk_elems;
    uint64_t parts;
};

/* All streams from one end of a connection to the other; all zero when it begins. */
struct weft_oracle_streams {
    struct weft_oracle_stream of[WEFT_PLAN_STREAMS_MAX];
};

struct weft_oracle_msg {
    const struct weft_plan_msg *plan;
    uint8_t *source;       /* what is sent */
    uint8_t *lent;         /* a copy that the sender borrows; freed at SENT: a late read shows */
    uint8_t *memory;       /* COPY, ADD unless shared: what the receiver borrows */
    uint64_t memory_bytes;
    uint64_t *handed;      /* HAND: chunks handed up */
    uint32_t refused;      /* HAND: of these, refused by the application */
    uint64_t refuse_seed;
    /* the sender */
    bool queued;
    bool sent;
    bool gone;             /* never queued: the peer was down already */
    uint64_t seq;
    uint32_t lost_max;     /* K */
    enum weft_msg_outcome sent_outcome;
    uint32_t sent_received;
    /* the receiver */
    bool posted;
    bool opened;
    bool received;
    uint64_t opened_ns;
    uint32_t opened_peer;
    enum weft_msg_outcome received_outcome;
    uint32_t received_count;
    uint64_t *mask;
};

/* Make the data and the memory. Values are small integers where they are floats: their sums are
 * exact in any order. */
void weft_oracle_msg_init(struct weft_oracle_msg *msg, const struct weft_plan_msg *plan,
                          uint64_t seed);
void weft_oracle_msg_fini(struct weft_oracle_msg *msg);

/* What memory holds before anything is received: byte or float number i. */
uint8_t weft_oracle_byte_before(uint64_t i);
float weft_oracle_float_before(uint64_t i);

/* It was sent, after all others of its connection for which this was called. */
void weft_oracle_queued(struct weft_oracle_msg *msg, struct weft_oracle_streams *streams,
                        uint64_t seq);

/* The events of the receiver, in the order in which they must come. sender_died, as receiver_died
 * below: or the connection was closed. */
const char *weft_oracle_open(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             uint64_t now_ns);
const char *weft_oracle_chunk(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                              bool *refuse_p);
const char *weft_oracle_received(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                                 bool sender_died, uint64_t now_ns);

/* The event of the sender. */
const char *weft_oracle_sent(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             bool receiver_died);

/* The receiver's own memory against its mask; nothing for shared memory and HAND. */
const char *weft_oracle_memory(const struct weft_oracle_msg *msg);

/* Add to sums (floats) what the shared accumulator should have got from this message. */
void weft_oracle_accumulate(const struct weft_oracle_msg *msg, float *sums);

#endif
