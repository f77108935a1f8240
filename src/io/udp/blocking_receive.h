/* Sleeping inside the receive call, where the other end answers each time.
 *
 * Why: to sleep until a datagram, a moment or a wake takes epoll_wait, and recvmmsg after it, and in
 * a closed loop of one row that is a system call and a half too many at each end: 3 us of a round
 * trip of 14. When many sleeps in a row were ended by a datagram, the next one is recvmmsg itself,
 * which the kernel ends after a tick of its clock (1 to 10 ms); then the other sleep takes over.
 *
 * What it costs: the moment may be missed by that tick, so near moments are left to the other sleep.
 * They are what pacing and late acknowledgements wait for; a far one is a probe for what may be
 * lost, and what is awaited so long is mostly not lost but has no processor. Only for sockets of
 * the loopback address, where a datagram is hardly ever lost.
 *
 * A wake from another thread is a datagram without bytes, to itself.
 *
 * Internal to this folder. One thread sleeps; weft_lockstep_wake: any thread, also a signal handler.
 */
#ifndef WEFT_IO_LOCKSTEP_H
#define WEFT_IO_LOCKSTEP_H

#include "core/endpoint.h"

#include <stdatomic.h>

struct weft_lockstep {
    int fd;                /* -1 = never */
    struct weft_addr self; /* where the socket is bound */
    uint32_t need;         /* answers in a row before it is worth it */
    uint32_t answers;      /* in a row */
    atomic_uint asleep;    /* a word of its own: see struct weft_sleeper */
};

/* Never. */
void weft_lockstep_init(struct weft_lockstep *lockstep);

/* fd: a socket bound to `self`, on which nothing sleeps but this: it is made a blocking one.
 * need: answers in a row, >= 1.
 * Errors:  WEFT_IO, and it stays at never. */
weft_status weft_lockstep_open(struct weft_lockstep *lockstep, int fd, const struct weft_addr *self,
                               uint32_t need);

/* Is the next sleep, which may take so long, one inside the receive call? */
bool weft_lockstep_due(const struct weft_lockstep *lockstep, uint64_t sleep_ns);

/* Around the receive call. Look for wakes after begin: an earlier one is not told by a datagram. */
void weft_lockstep_begin(struct weft_lockstep *lockstep);
void weft_lockstep_end(struct weft_lockstep *lockstep);

/* A sleep of either kind is over: did a datagram end it? */
void weft_lockstep_note(struct weft_lockstep *lockstep, bool answered);

/* Is this datagram a wake? */
bool weft_lockstep_is_wake(const struct weft_lockstep *lockstep, const struct weft_addr *from,
                           uint32_t bytes);

/* End a receive call that sleeps. */
void weft_lockstep_wake(struct weft_lockstep *lockstep);

#endif
