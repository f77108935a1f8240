/* Shared by the files of the UDP driver. Internal to src/io/udp.
 *
 *   udp.c               configuration, open, close, the functions of a driver
 *   progress.c          one step: receive, wait, timers, send
 *   socket.c            socket options, what the kernel granted
 *   rx.c, tx.c          batches of datagrams from the socket and to it
 *   datagrams.c         separate datagrams, for packets outside of connections
 *   errors.c            ICMP about connections that are being made
 *   delayed_ack.c       a DONE that is sent in the owner's next step
 *   blocking_receive.c  sleeping inside the receive call
 *   inject_loss.c       injected loss
 *   link_counter.c      bytes sent by the interface, of all programs
 *   probe.c             what sockets of this host can do, for `weft doctor`
 */
#ifndef WEFT_IO_UDP_INTERNAL_H
#define WEFT_IO_UDP_INTERNAL_H

#include "io/driver_base.h"
#include "io/udp/blocking_receive.h"
#include "io/udp/delayed_ack.h"
#include "io/udp/errors.h"
#include "io/udp/link_counter.h"
#include "io/udp/rx.h"
#include "io/udp/socket.h"
#include "io/udp/tx.h"
#include "io/udp/udp.h"

#include <sys/types.h>

struct weft_udp {
    struct weft_driver base;
    int socket_fd;
    struct weft_blocking_receive blocking;
    bool slept;              /* this step, and not inside the receive call */
    bool flowing;            /* the last step received datagrams */
    bool handled;            /* the handler has been called since the endpoint was last touched */
    uint64_t taken_ns;       /* when the last batch was received */
    bool more_to_receive;    /* the last batch was full */
    bool more_to_send;       /* the last flush stopped at its limit */
    uint32_t timers_put_off; /* batches received since the timers became due */
    pid_t link_pid;          /* not bound to loopback: the process that has it; otherwise 0 */
    struct weft_ep *ep;
    struct weft_rx *rx;
    struct weft_sender sender;
    struct weft_udp_errors errors;
    bool gso_before; /* error reports are on; they may look like a refusal of GSO */
    struct weft_inject_loss loss;
    struct weft_link_counter link;
    struct weft_addr link_to; /* receiver of the first burst off loopback; bytes_used = 0: none */
    struct weft_sock_facts facts;
    uint32_t peers_max;
    struct weft_udp_observer observer;
    struct weft_delayed_ack *delayed_ack; /* NULL = nothing is delayed */
    struct weft_tx bursts[WEFT_TX_BATCH];
};

static inline struct weft_udp *weft_udp_of(struct weft_driver *driver)
{
    return (struct weft_udp *)driver; /* base is its first member */
}

/* progress.c */
uint32_t weft_udp_step(struct weft_driver *driver, uint64_t timeout_ns,
                       weft_driver_handler *handler, void *arg);
/* Send until no packet is ready. */
void weft_udp_send_all(struct weft_udp *udp);
/* Whether this process has several endpoints that are not bound to loopback. */
bool weft_udp_has_siblings(void);
void weft_udp_observe(struct weft_udp *udp, bool last);

#endif
