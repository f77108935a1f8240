/* Where the participants of a run are: all on loopback, or each in a host of a lab. */
#ifndef WEFT_CLI_PERF_PLACE_H
#define WEFT_CLI_PERF_PLACE_H

#include "cli/perf/plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_PERF_ADDRESS_BYTES = 46, WEFT_PERF_PLACE_ERROR_BYTES = 700 };

/* What is known of the network, in the lab's terms; zeros on loopback. */
struct weft_perf_network {
    uint64_t rate_bps;
    uint64_t buffer_bytes;
    uint64_t base_rtt_ns;
    uint32_t loss_ppm;
    uint32_t ecn_bytes;
    uint32_t hosts;
    bool hysteresis; /* of the lab's buckets: docs/LAB.md */
    bool uneven;     /* rate_bps is not that of every link */
    char topology[16];
};

struct weft_lab_info;

struct weft_perf_place {
    const char *lab; /* its name; NULL = loopback */
    struct weft_perf_network network;
    uint32_t hosts[WEFT_PERF_PARTICIPANTS_MAX]; /* of each participant */
    struct weft_lab_info *info; /* NULL = loopback */
};

/* Find the lab, and a host for each participant: host i for participant i, or as `hosts` says
 * ("0,3-8": the first for participant 0). False with the reason and what to do;
 * weft_perf_place_fini is due in any case. */
bool weft_perf_place_find(const char *lab, const char *hosts, uint32_t participants,
                          struct weft_perf_place *place_p, char *error);
void weft_perf_place_fini(struct weft_perf_place *place);

/* fork(), with the child there (*pid_p is 0 in it): killed when the caller ends, and when the lab
 * does. False, in the caller, with the reason. */
bool weft_perf_place_fork(const struct weft_perf_place *place, uint32_t participant, pid_t *pid_p,
                          char *error);

/* Open sockets there: the calling thread is in that network until it returns. False with the
 * reason; *home_p is for weft_perf_place_return. */
bool weft_perf_place_visit(const struct weft_perf_place *place, uint32_t participant, int *home_p,
                           char *error);
void weft_perf_place_return(int home);

void weft_perf_place_address(const struct weft_perf_place *place, uint32_t participant,
                             char address_p[WEFT_PERF_ADDRESS_BYTES]);

#endif
