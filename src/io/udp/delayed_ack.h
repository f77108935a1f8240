/* Delayed acknowledgement: an endpoint's acknowledgements are sent in the owner's next step, or by
 * a thread some milliseconds later.
 *
 * Why: a program that pulls a row, uses it and pulls the next owes the server a DONE after each.
 * Sent at once it costs a datagram, and often one more for its acknowledgement; sent with the next
 * request it costs none. But the owner of an endpoint that no thread progresses may compute for a
 * minute, and a server whose reply is not acknowledged declares it dead. So nothing is delayed
 * unless the owner returned within `gap_ns` the last time, and a thread sends whatever is delayed
 * for too long.
 *
 * The endpoint has one user at a time: leave lends it to the thread; enter and return reclaim it,
 * and wait while the thread is sending. The thread is started when it is first needed. It sleeps
 * while nothing is lent, and otherwise checks every 2 ms whether the same loan is still open.
 *
 * Internal to src/io. Thread: all functions are the owner's.
 */
#ifndef WEFT_IO_UDP_DELAYED_ACK_H
#define WEFT_IO_UDP_DELAYED_ACK_H

#include "core/msg.h"

struct weft_delayed_ack;

/* Send what is ready. Called by the thread while the endpoint is lent to it. */
typedef void weft_delayed_ack_send(void *arg);

struct weft_delayed_ack_config {
    uint64_t gap_ns;        /* > 0; WEFT_NEVER: delay always */
    struct weft_msgr inner; /* the endpoint's */
    weft_delayed_ack_send *send;
    void *arg;
};

/* Owns:    gives *ack_p, to be ended with weft_delayed_ack_free. Errors:  WEFT_NOMEM. */
weft_status weft_delayed_ack_new(const struct weft_delayed_ack_config *config,
                                 struct weft_delayed_ack **ack_p);

/* End the thread; delayed acknowledgements are discarded. NULL is allowed. */
void weft_delayed_ack_free(struct weft_delayed_ack *ack);

/* The endpoint's message interface for an owner that may have lent the endpoint: each call enters
 * and exits. */
struct weft_msgr weft_delayed_ack_msgr(struct weft_delayed_ack *ack);

/* Is a delay likely to save a datagram, judged by the owner's last gap? False also when no thread
 * can be started. */
bool weft_delayed_ack_pays(struct weft_delayed_ack *ack);

/* The owner ends its step. `lends`: something is delayed, so the owner does not use the endpoint
 * before enter or return. */
void weft_delayed_ack_leave(struct weft_delayed_ack *ack, bool lends, uint64_t now_ns);

/* The owner uses the endpoint between two steps, from enter to exit. Enter returns true when the
 * endpoint was lent; exit is passed that value, and lends it again. NULL, or nothing lent: no
 * effect. */
bool weft_delayed_ack_enter(struct weft_delayed_ack *ack);
void weft_delayed_ack_exit(struct weft_delayed_ack *ack, bool was_lent);

/* The owner begins its next step. The time since leave decides whether the next delay pays. */
void weft_delayed_ack_return(struct weft_delayed_ack *ack, uint64_t now_ns);

/* How many times the thread has sent. */
uint64_t weft_delayed_ack_sent(const struct weft_delayed_ack *ack);

#endif
