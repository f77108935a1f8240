/* Memory shared by the coordinator of a run and its participants: one mapping, made before the
 * participants are forked, so it works across the namespaces of a lab.
 *
 * A participant writes only its own note and, of the notes of flows, the sender's or the receiver's
 * fields; the coordinator reads them after that participant sent "through" on its channel, which
 * orders the two.
 *
 * Only the go signal must reach all participants at once: it is a futex, so one system call wakes
 * them all, whatever their number.
 */
#ifndef WEFT_CLI_PERF_SHARED_H
#define WEFT_CLI_PERF_SHARED_H

#include "cli/perf/error.h"
#include "cli/perf/plan.h"
#include "io/driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_PERF_TRIPS_MAX = 128, /* of pingpong: trips between two messages of the coordinator */
};

struct weft_perf_flow_note {
    uint64_t started_ns; /* sender: time at which the message was passed to the transport */
    uint64_t done_ns;    /* receiver: time at which the message was complete or closed */
    uint64_t bytes;      /* receiver: bytes of the message that arrived */
    uint32_t chunks;     /* receiver: parts that can arrive or be missing */
    uint32_t received;   /* receiver: of these, arrived */
};

/* Cumulative. */
struct weft_perf_agent_note {
    uint64_t cpu_ns;        /* from go until nothing was outstanding, timed rounds */
    uint64_t retransmitted; /* retransmitted packets */
    uint64_t kernel_drops;  /* a full receive buffer */
    uint64_t wire_bytes;    /* sender: of one whole message with all headers; 0 = not known */
    uint32_t packet_bytes;  /* sender: payload of a full packet: weft's chunk, TCP's segment */
    uint32_t rto_us;        /* TCP: the largest timeout in use */
    char cc[16];            /* TCP: the congestion control in use; if a connection uses another one
                             * than requested, that one */
    uint16_t port;
    struct weft_error error;
    _Atomic uint32_t answered; /* number of the last query answered; if it is the current query: */
    struct weft_driver_counters counters;
};

struct weft_perf_shared {
    _Atomic uint32_t go;    /* a futex: counts rounds */
    atomic_bool stopping;   /* abandon the round: it will not be used */
    _Atomic uint32_t asked; /* queries for counters, while it runs (live.h) */
    uint64_t trip_ns[WEFT_PERF_TRIPS_MAX];
    struct weft_perf_agent_note agents[WEFT_PERF_PARTICIPANTS_MAX];
    struct weft_perf_flow_note flows[WEFT_PERF_PAIRS_MAX];
};

/* NULL: no memory. */
struct weft_perf_shared *weft_perf_shared_new(void);
void weft_perf_shared_free(struct weft_perf_shared *shared);

/* Coordinator: send the go signal. Returns the time just before. */
uint64_t weft_perf_shared_go(struct weft_perf_shared *shared);

/* Participant: sleep until the go signal with a number after `seen`. False: stopping. */
bool weft_perf_shared_wait(struct weft_perf_shared *shared, uint32_t seen);

/* ---- the channel of each participant (job/channel.h): events ------------------------------------
 *
 * to it      connect     all are open: the notes hold the ports
 *            prepare     post memory for the rounds from "round" on; "count" of them follow each
 *                        other without an event between them, 1 but for pingpong; "timed": 0 = a
 *                        warm-up
 *            count       copy the counters to the note; the network is idle
 *            quit
 * from it    open, connected, ready, through, counted
 *            failed      the note says why; the process ends
 */

#endif
