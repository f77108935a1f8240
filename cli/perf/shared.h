/* What the coordinator of a run and its participants see together: one mapping, made before the
 * participants are forked, so it crosses the namespaces of a lab.
 *
 * A participant writes only its own note and, of the notes of flows, the sender's or the receiver's
 * fields; the coordinator reads them after that participant said on its channel that it is through,
 * which orders the two.
 *
 * The go signal is the one thing that must reach all participants at once: a futex, so one system
 * call wakes them all, whatever their number.
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
    WEFT_PERF_TRIPS_MAX = 128, /* of pingpong: between two words of the coordinator */
};

struct weft_perf_flow_note {
    uint64_t started_ns; /* sender: the message was handed to the transport */
    uint64_t done_ns;    /* receiver: it had all of it that it will have */
    uint64_t bytes;      /* receiver: of the message, that arrived */
    uint32_t chunks;     /* receiver: parts that can arrive or be missing */
    uint32_t received;   /* receiver: of these, arrived */
};

/* Cumulative. */
struct weft_perf_agent_note {
    uint64_t cpu_ns;        /* from go until nothing was outstanding, timed rounds */
    uint64_t retransmitted; /* packets sent again */
    uint64_t kernel_drops;  /* a full receive buffer */
    uint64_t wire_bytes;    /* sender: of one whole message with all headers; 0 = not known */
    uint32_t packet_bytes;  /* sender: payload of a full packet: weft's chunk, TCP's segment */
    uint32_t rto_us;        /* TCP: the largest timeout in use */
    char cc[16];            /* TCP: the congestion control in use; of a connection that has not what
                             * was asked for, where there is one */
    uint16_t port;
    struct weft_error error;
    _Atomic uint32_t told; /* the last question that is answered; while it is the one asked: */
    struct weft_driver_counters counters;
};

struct weft_perf_shared {
    _Atomic uint32_t go;     /* a futex: counts rounds */
    atomic_bool stopping;    /* leave the round, it will not be used */
    _Atomic uint32_t asked;  /* questions for counters, while it runs (live.h) */
    uint64_t trip_ns[WEFT_PERF_TRIPS_MAX];
    struct weft_perf_agent_note agents[WEFT_PERF_PARTICIPANTS_MAX];
    struct weft_perf_flow_note flows[WEFT_PERF_PAIRS_MAX];
};

/* NULL: no memory. */
struct weft_perf_shared *weft_perf_shared_new(void);
void weft_perf_shared_free(struct weft_perf_shared *shared);

/* Coordinator: let them go. Returns the moment before. */
uint64_t weft_perf_shared_go(struct weft_perf_shared *shared);

/* Participant: sleep until the coordinator let go for the time after `seen`. False: stopping. */
bool weft_perf_shared_wait(struct weft_perf_shared *shared, uint32_t seen);

/* ---- the channel of each participant (job/channel.h): events -------------------------------------
 *
 * to it      connect     all are open: the notes hold the ports
 *            prepare     post memory for the rounds from "round" on; "count" of them follow each other
 *                        without an event between them, 1 but for pingpong; "timed": 0 = a warm-up
 *            count       counters to the note: the network rests
 *            quit
 * from it    open, connected, ready, through, counted
 *            failed      the note says why; the process ends
 */

#endif
