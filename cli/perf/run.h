/* A run: rounds of a pattern, one after the other, and what was measured.
 *
 * Definitions (bench/METRICS.md has them for readers):
 *   round  from the go signal, one moment for all participants, to the moment when the last
 *          receiver has the last message. Of pingpong a trip: from the send to the answer.
 *   flow   from go to the end of that message; where a sender may have only some messages under way
 *          (shuffle), from its own start.
 * Connections are made and used before the first round that counts. Between rounds the network
 * rests.
 */
#ifndef WEFT_CLI_PERF_RUN_H
#define WEFT_CLI_PERF_RUN_H

#include "cli/perf/agent.h"

struct weft_perf_round {
    uint64_t ns;
    uint64_t go_ns;   /* on the clock of traces; pingpong: 0 */
    uint64_t lag_ns;  /* from go until the last sender had begun; 0 where they begin by and by */
    double delivered; /* mean over the messages */
    bool undisturbed; /* no processor was taken away from its go for window_ns */
};

struct weft_perf_result {
    uint32_t rounds; /* measured: fewer than asked for when it was broken off */
    bool dnf;        /* a round had no answer */
    bool interrupted;
    struct weft_perf_round *each; /* (rounds,) */
    uint64_t *flow_ns;    /* rounds x flows; pingpong: none */
    uint64_t window_ns;   /* 1.25 times the ideal; 0: nobody watched the processors */
    double delivered_min; /* over all messages */
    uint64_t delivered_bytes;
    uint64_t retransmitted;
    uint64_t kernel_drops;
    uint64_t cpu_ns;
    uint64_t elapsed_ns;   /* all round times together */
    uint64_t wire_bytes;   /* of a message, with headers; 0 = not known */
    uint32_t packet_bytes; /* payload of a full packet */
    uint32_t rto_us;       /* TCP: the largest in use at the end */
    char cc[16];           /* TCP: the congestion control in use, as in the notes (shared.h) */
    double machine_busy; /* of all CPUs' time from the first to the last timed round, gaps included:
                          * how much was in use, by whomever; 0 = not known */
    double machine_cpu_s;  /* the same in CPU seconds */
    double machine_stolen; /* of that time, what the host of a virtual machine took away */
};

/* False: error says who failed and why; a result is then not to be used.
 * Owns:    weft_perf_result_fini is due in any case. */
bool weft_perf_run(const struct weft_perf_job *job, const struct weft_security *security,
                   bool progress, struct weft_perf_result *result_p, struct weft_error *error);
void weft_perf_result_fini(struct weft_perf_result *result);

/* What a round takes when every packet crosses the busiest link once, without a gap; 0: the rate is
 * not known. */
double weft_perf_ideal_ms(const struct weft_perf_job *job, const struct weft_perf_result *result);

#endif
