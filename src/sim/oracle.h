/* The expected result of a message: simple, slow, and independent of the endpoint's state.
 *
 * One struct per message has the data sent, the memory that the endpoints use, and the events so
 * far. Each function compares them and returns NULL or a one-sentence error. They are pure, so
 * tests can pass them incorrect runs (tests/unit/test_sim_oracle.c).
 *
 * Memory is compared byte by byte: the chunks in the mask, and the bytes around and between them,
 * which must not change.
 */
#ifndef WEFT_SIM_ORACLE_H
#define WEFT_SIM_ORACLE_H

#include "sim/plan.h"

/* The unused loss allowance of a stream, for messages with this chunk_elems, in 1 / (10^6 x
 * chunk_elems) of a chunk. */
struct weft_oracle_stream {
    bool used;
    uint32_t stream;
    uint32_t chunk_elems;
    uint64_t parts;
};

/* All streams in one direction of a connection; zeroed at its start. */
struct weft_oracle_streams {
    struct weft_oracle_stream of[WEFT_PLAN_STREAMS_MAX];
};

struct weft_oracle_msg {
    const struct weft_plan_msg *plan;
    uint8_t *source; /* the data to send */
    uint8_t *lent;   /* a copy that the sender borrows; freed at SENT, so that a later read is
                      * detected */
    uint8_t *memory; /* COPY, and ADD unless shared: memory that the receiver borrows */
    uint64_t memory_bytes;
    uint64_t *handed; /* EVENT: chunks delivered */
    uint32_t refused; /* EVENT: of these, refused by the application */
    uint64_t refuse_seed;
    /* the sender */
    bool queued;
    bool sent;
    bool gone; /* never queued: the peer was already down */
    uint64_t seq;
    uint32_t lost_max; /* K */
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

/* Create the data and the memory. Float values are small integers, so that their sums are exact in
 * any order. */
void weft_oracle_msg_init(struct weft_oracle_msg *msg, const struct weft_plan_msg *plan,
                          uint64_t seed);
void weft_oracle_msg_fini(struct weft_oracle_msg *msg);

/* Content of the memory before anything is received: byte or float number i. */
uint8_t weft_oracle_byte_before(uint64_t i);
float weft_oracle_float_before(uint64_t i);

/* Record that a message was sent. Call in the order of sending on each connection. */
void weft_oracle_queued(struct weft_oracle_msg *msg, struct weft_oracle_streams *streams,
                        uint64_t seq);

/* Check the receiver's events, in the required order. sender_died, and receiver_died below, are
 * also true if the connection was closed. */
const char *weft_oracle_open(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             uint64_t now_ns);
const char *weft_oracle_chunk(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                              bool *refuse_p);
const char *weft_oracle_received(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                                 bool sender_died, uint64_t now_ns);

/* Check the sender's event. */
const char *weft_oracle_sent(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             bool receiver_died);

/* Check the receiver's own memory against its mask. Shared memory and EVENT are not checked. */
const char *weft_oracle_memory(const struct weft_oracle_msg *msg);

/* Add to sums (floats) the expected contribution of this message to the shared accumulator. */
void weft_oracle_accumulate(const struct weft_oracle_msg *msg, float *sums);

#endif
