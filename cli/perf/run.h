/* A run: rounds of a pattern, one after the other, and their measurements.
 *
 * Definitions (bench/METRICS.md has them for readers):
 *   round  from the go signal, one moment for all participants, to the moment when the last
 *          receiver has the last message. Of pingpong a trip: from the send to the reply.
 *   flow   from go to the end of that message; where a sender may have only some messages in flight
 *          (shuffle), from its own start.
 * Connections are made and used before the first measured round. Between rounds the network is
 * idle.
 */
#ifndef WEFT_CLI_PERF_RUN_H
#define WEFT_CLI_PERF_RUN_H

#include "cli/perf/agent.h"

struct weft_perf_round {
    uint64_t ns;
    uint64_t go_ns;   /* on the clock of traces; pingpong: 0 */
    uint64_t lag_ns;  /* from go until the last sender had begun; 0 where senders do not begin
                       * together */
    double delivered; /* mean over the messages */
    bool undisturbed; /* no processor was preempted by the host for window_ns after its go */
};

struct weft_perf_result {
    uint32_t rounds; /* measured: fewer than requested if the run was interrupted */
    bool dnf;        /* a round did not complete */
    bool interrupted;
    struct weft_perf_round *each; /* (rounds,) */
    uint64_t *flow_ns;            /* rounds x flows; pingpong: none */
    uint64_t window_ns;           /* 1.25 times the ideal; 0: the processors were not watched */
    double delivered_min;         /* over all messages */
    uint64_t delivered_bytes;
    uint64_t retransmitted;
    uint64_t kernel_drops;
    uint64_t cpu_ns;
    uint64_t elapsed_ns;   /* all round times together */
    uint64_t wire_bytes;   /* of a message, with headers; 0 = not known */
    uint32_t packet_bytes; /* payload of a full packet */
    uint32_t rto_us;       /* TCP: the largest in use at the end */
    char cc[16];           /* TCP: the congestion control in use, as in the notes (shared.h) */
    double machine_busy;   /* share of all CPUs' time in use, by any process, from the first to the
                            * last timed round, gaps included; 0 = not known */
    double machine_cpu_s;  /* the same in CPU seconds */
    double machine_stolen; /* of that time, stolen by the host of a virtual machine */
};

/* False: error has the participant that failed and the reason; do not use the result. Owns: call
 *        weft_perf_result_fini in any case. */
bool weft_perf_run(const struct weft_perf_job *job, const struct weft_security *security,
                   bool progress, struct weft_perf_result *result_p, struct weft_error *error);
void weft_perf_result_fini(struct weft_perf_result *result);

/* The duration of a round in which every packet crosses the busiest link once, without a gap; 0:
 * the rate is not known. */
double weft_perf_ideal_ms(const struct weft_perf_job *job, const struct weft_perf_result *result);

#endif
