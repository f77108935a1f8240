/* What the owner of an endpoint has to say, but not at once: held back until it is here again, or
 * until a thread says it for it, some milliseconds later.
 *
 * Why: a program that pulls a row, uses it and pulls the next owes the server a DONE after each.
 * Said at once it is a datagram, and often one more for its acknowledgement; said with the next
 * request it is none. But the owner of an endpoint that no thread turns may as well go away and
 * compute for a minute, and a server whose answer nobody confirms takes it for dead. So nothing is
 * held unless the owner was back within `gap_ns` the last time, and then a thread looks after it.
 *
 * One owner at a time has the endpoint: give leaves it to the thread, take gets it back, and waits
 * where the thread is just speaking. The thread is made when it is first needed; it sleeps while
 * nothing is held, and while something is looks every 2 ms whether it is still the same.
 *
 * Internal to this folder. Thread: the owner's, all of it.
 */
#ifndef WEFT_IO_HOLD_H
#define WEFT_IO_HOLD_H

#include "core/msg.h"

struct weft_hold;

/* Say what there is to say. Called by the thread, which has the endpoint meanwhile. */
typedef void weft_hold_say(void *arg);

struct weft_hold_config {
    uint64_t gap_ns;         /* > 0; WEFT_NEVER: hold whatever the owner did before */
    struct weft_msgr inside; /* the endpoint's */
    weft_hold_say *say;
    void *arg;
};

/* Owns:    gives *hold_p, to be ended with weft_hold_free. Errors:  WEFT_NOMEM. */
weft_status weft_hold_new(const struct weft_hold_config *config, struct weft_hold **hold_p);

/* Ends the thread; what is held is not said any more. NULL is fine. */
void weft_hold_free(struct weft_hold *hold);

/* The endpoint's message interface, for an owner that may have given it away: each call takes it
 * back, and gives it again. */
struct weft_msgr weft_hold_msgr(struct weft_hold *hold);

/* Is it worth holding, by what the owner did the last time? False also when there is no thread to
 * be had. */
bool weft_hold_worth(struct weft_hold *hold);

/* The owner goes away. `gives`: and leaves something to be said, so it touches nothing of the endpoint
 * before weft_hold_take or weft_hold_back. */
void weft_hold_leave(struct weft_hold *hold, bool gives, uint64_t now_ns);

/* The owner looks in: from take to again it has the endpoint. Take: true when it was given, which is
 * for again, that leaves it once more. NULL, and nothing given: nothing to do. */
bool weft_hold_take(struct weft_hold *hold);
void weft_hold_again(struct weft_hold *hold, bool was_given);

/* The owner is here to stay. The time tells whether it was worth it. */
void weft_hold_back(struct weft_hold *hold, uint64_t now_ns);

/* So many times the thread has spoken. */
uint64_t weft_hold_said(const struct weft_hold *hold);

#endif
