/* Delayed acknowledgement: what an endpoint has to confirm waits for the owner's next step, or for
 * a thread that sends it some milliseconds later.
 *
 * Why: a program that pulls a row, uses it and pulls the next owes the server a DONE after each.
 * Sent at once it is a datagram, and often one more for its acknowledgement; sent with the next
 * request it is none. But the owner of an endpoint that no thread progresses may as well compute
 * for a minute, and a server whose answer is not confirmed declares it dead. So nothing is delayed
 * unless the owner was back within `gap_ns` the last time, and a thread watches over what is.
 *
 * The endpoint has one user at a time: leave lends it to the thread; enter and return get it back,
 * and wait while the thread is sending. The thread is started when it is first needed. It sleeps
 * while nothing is lent, and otherwise checks every 2 ms whether what is lent is still the same.
 *
 * Internal to src/io. Thread: all functions are the owner's.
 */
#ifndef WEFT_IO_UDP_DELAYED_ACK_H
#define WEFT_IO_UDP_DELAYED_ACK_H

#include "core/msg.h"

struct weft_delayed_ack;

/* Send what is ready. Called by the thread, which has the endpoint meanwhile. */
typedef void weft_delayed_ack_send(void *arg);

struct weft_delayed_ack_config {
    uint64_t gap_ns;         /* > 0; WEFT_NEVER: delay whatever the owner did before */
    struct weft_msgr inner;  /* the endpoint's */
    weft_delayed_ack_send *send;
    void *arg;
};

/* Owns:    gives *ack_p, to be ended with weft_delayed_ack_free. Errors:  WEFT_NOMEM. */
weft_status weft_delayed_ack_new(const struct weft_delayed_ack_config *config,
                                 struct weft_delayed_ack **ack_p);

/* Ends the thread; what is delayed is not sent any more. NULL is fine. */
void weft_delayed_ack_free(struct weft_delayed_ack *ack);

/* The endpoint's message interface for an owner that may have lent the endpoint: each call enters
 * and exits. */
struct weft_msgr weft_delayed_ack_msgr(struct weft_delayed_ack *ack);

/* Is a delay likely to save a datagram, judged by what the owner did the last time? False also when
 * no thread can be started. */
bool weft_delayed_ack_pays(struct weft_delayed_ack *ack);

/* The owner ends its step. `lends`: something is left to be sent, so the owner does not touch the
 * endpoint before enter or return. */
void weft_delayed_ack_leave(struct weft_delayed_ack *ack, bool lends, uint64_t now_ns);

/* The owner uses the endpoint between two steps, from enter to exit. Enter: true when the endpoint
 * was lent; exit takes that value, and lends it once more. NULL, or nothing lent: no effect. */
bool weft_delayed_ack_enter(struct weft_delayed_ack *ack);
void weft_delayed_ack_exit(struct weft_delayed_ack *ack, bool was_lent);

/* The owner begins its next step. The time since leave decides whether the next delay pays. */
void weft_delayed_ack_return(struct weft_delayed_ack *ack, uint64_t now_ns);

/* How many times the thread has sent. */
uint64_t weft_delayed_ack_sent(const struct weft_delayed_ack *ack);

#endif
