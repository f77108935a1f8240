/* Types that all drivers share: the event handler, the hook before a send, the counters.
 * io/driver.h chooses between the drivers; io/driver_base.h is their common base.
 */
#ifndef WEFT_IO_DRIVER_TYPES_H
#define WEFT_IO_DRIVER_TYPES_H

#include "core/endpoint.h"

struct weft_driver;

enum weft_driver_kind { WEFT_DRIVER_UDP, WEFT_DRIVER_TCP };

/* Called from step: poll the message interface until it has no event. It may call everything of the
 * message interface, weft_driver_connect and weft_driver_wake; not weft_driver_step, _idle or
 * _close. */
typedef void weft_driver_handler(void *arg, uint64_t now_ns);

/* Called each time before packets are sent (over TCP: bytes of open connections), so that the owner
 * can make durable what they acknowledge. Zeroed = none. Thread: the one that calls step. Delayed
 * acks over UDP would send from a second thread, so the two are refused together. */
struct weft_before_send {
    void (*call)(void *arg);
    void *arg;
};

/* Cumulative since open. Packets that the endpoint dropped are in weft_ep_counters. Over TCP,
 * datagrams are records, and fields without a meaning are 0. */
struct weft_socket_counters {
    uint64_t datagrams_received; /* after the split of merged ones, injected drops included */
    uint64_t injected_drops;     /* of these, dropped by injected loss: the endpoint never saw
                                  * them */
    uint64_t bytes_received;     /* UDP payload, injected drops included */
    uint64_t buffers_received;   /* before the split */
    uint64_t truncated;          /* buffers longer than a receive slot: dropped completely */
    uint64_t kernel_drops;       /* the kernel's: its receive buffer was full */
    uint64_t datagrams_sent;
    uint64_t bytes_sent;    /* UDP payload */
    uint64_t bursts_sent;   /* messages accepted by the kernel; with GSO one has many datagrams */
    uint64_t send_dropped;  /* datagrams refused by the kernel: lost, as in a network */
    uint64_t send_blocked;  /* waits for room in the socket */
    uint64_t gso_refused;   /* bursts sent one by one after a refusal; GSO stays off then */
    uint64_t socket_errors; /* ECONNREFUSED and similar errors of earlier datagrams: ignored */
    uint64_t unreached;     /* ICMP about connections being made: port or host unreachable */
    uint64_t recv_calls;    /* system calls */
    uint64_t send_calls;
    uint64_t sleeps;
    uint64_t sleeps_receiving;  /* of these, inside the receive call */
    uint64_t naps;              /* of these, to let datagrams gather: weft_ep_batch_ns */
    uint64_t wakes;             /* sleeps ended by weft_driver_wake */
    uint64_t acks_delayed;      /* steps that delayed a DONE to the next step */
    uint64_t acks_delayed_sent; /* times that the thread sent: the next step was late */
};

/* Counted by both drivers. Fields as in struct weft_ep_counters; over TCP data_sent and
 * data_received are records with a chunk, retransmitted_packets the segments retransmitted by the
 * kernel, and fields without a meaning are 0. */
struct weft_driver_counters {
    struct weft_socket_counters socket;
    struct weft_ep_counters ep;
};

/* Length of the text of weft_driver_unreached. */
enum { WEFT_UNREACHED_BYTES = 192 };

#endif
