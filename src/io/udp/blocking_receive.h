/* Sleeping inside the receive call, for closed loops of request and reply.
 *
 * Why: to sleep until a datagram, a deadline or a wake takes epoll_wait, and recvmmsg after it. In
 * a closed loop of one row that is one and a half system calls too many at each end: 3 us of a
 * round trip of 14. When many sleeps in a row were ended by a datagram, the next one is recvmmsg
 * itself, which the kernel ends after a tick of its clock (1 to 10 ms); then the poller takes over.
 *
 * What it costs: a deadline may be missed by that tick, so near deadlines are left to the poller.
 * Near deadlines are those of pacing and delayed acknowledgements; a far one is a probe timeout.
 * Only for sockets of the loopback address, where a datagram is hardly ever lost.
 *
 * A wake from another thread is an empty datagram of the socket to itself.
 *
 * Internal to src/io. One thread sleeps; weft_blocking_receive_wake: any thread, also a signal
 * handler.
 */
#ifndef WEFT_IO_UDP_BLOCKING_RECEIVE_H
#define WEFT_IO_UDP_BLOCKING_RECEIVE_H

#include "core/endpoint.h"

#include <stdatomic.h>

struct weft_blocking_receive {
    int fd;                /* -1 = not used */
    struct weft_addr self; /* the address that the socket is bound to */
    uint32_t need;         /* consecutive replies before it is used */
    uint32_t answers;      /* in a row */
    atomic_uint asleep;    /* a separate word: see struct weft_poller */
};

/* Not used until open. */
void weft_blocking_receive_init(struct weft_blocking_receive *blocking);

/* fd: a socket bound to `self`, on which nothing else sleeps; it is switched to blocking mode.
 * need: consecutive replies, >= 1.
 * Errors:  WEFT_IO: nothing changes. */
weft_status weft_blocking_receive_open(struct weft_blocking_receive *blocking, int fd,
                                       const struct weft_addr *self, uint32_t need);

/* Should the next sleep, of at most this length, be inside the receive call? */
bool weft_blocking_receive_due(const struct weft_blocking_receive *blocking, uint64_t sleep_ns);

/* Call these around the receive call. Check for wakes after begin: an earlier wake sends no
 * datagram. */
void weft_blocking_receive_begin(struct weft_blocking_receive *blocking);
void weft_blocking_receive_end(struct weft_blocking_receive *blocking);

/* A sleep of either kind is over: did a datagram end it? */
void weft_blocking_receive_note(struct weft_blocking_receive *blocking, bool answered);

/* Is this datagram a wake? */
bool weft_blocking_receive_is_wake(const struct weft_blocking_receive *blocking,
                                   const struct weft_addr *from, uint32_t bytes);

/* End a receive call that sleeps. */
void weft_blocking_receive_wake(struct weft_blocking_receive *blocking);

#endif
