/* Where the participants of a run are: all on loopback, or each in a host of a lab. */
#ifndef WEFT_CLI_PERF_LAYOUT_H
#define WEFT_CLI_PERF_LAYOUT_H

#include "cli/perf/error.h"
#include "cli/perf/plan.h"
#include "lab/cluster.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_PERF_ADDRESS_BYTES = WEFT_LAB_ADDRESS_BYTES };

struct weft_perf_layout {
    const char *lab; /* its name; NULL = loopback */
    struct weft_lab_info network; /* zeros on loopback */
    uint32_t hosts[WEFT_PERF_PARTICIPANTS_MAX]; /* of each participant */
};

/* Find the lab, and a host for each participant: host i for participant i, or as `hosts` says
 * ("0,3-8": the first for participant 0). False with the reason and what to do. */
bool weft_perf_layout_find(const char *lab, const char *hosts, uint32_t participants,
                          struct weft_perf_layout *layout_p, struct weft_error *error);

/* fork() in a lab, with the child on the participant's host: for weft_supervisor_policy. */
pid_t weft_perf_layout_fork(void *layout, uint32_t participant, struct weft_error *error_p);

/* Open sockets there: the calling thread is in that network until it returns. False with the
 * reason; *home_p is for weft_perf_netns_leave. */
bool weft_perf_netns_enter(const struct weft_perf_layout *layout, uint32_t participant, int *home_p,
                           struct weft_error *error);
void weft_perf_netns_leave(int home);

/* A socket of that type there, as for weft_perf_netns_enter; -1 with the reason. */
int weft_perf_layout_socket(const struct weft_perf_layout *layout, uint32_t participant, int type,
                           struct weft_error *error);

/* Bind a socket to that participant's address; *addr_p is where it then is. False: errno says
 * why. */
bool weft_perf_layout_bind(const struct weft_perf_layout *layout, uint32_t participant, int fd,
                          struct sockaddr_in *addr_p);

void weft_perf_layout_sockaddr(const struct weft_perf_layout *layout, uint32_t participant,
                              uint16_t port, struct sockaddr_in *addr_p);
void weft_perf_layout_address(const struct weft_perf_layout *layout, uint32_t participant,
                             char address_p[WEFT_PERF_ADDRESS_BYTES]);

#endif
