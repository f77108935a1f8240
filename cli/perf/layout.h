/* The placement of the participants of a run: all on loopback, or each on a host of a lab. */
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
    const char *lab;                            /* its name; NULL = loopback */
    struct weft_lab_info network;               /* zeros on loopback */
    uint32_t hosts[WEFT_PERF_PARTICIPANTS_MAX]; /* of each participant */
};

/* Find the lab, and a host for each participant: host i for participant i, or in the order of
 * `hosts` ("0,3-8": the first for participant 0). False with the reason and the next action. */
bool weft_perf_layout_find(const char *lab, const char *hosts, uint32_t participants,
                           struct weft_perf_layout *layout_p, struct weft_error *error);

/* fork() in a lab, with the child on the participant's host: for weft_supervisor_policy. */
pid_t weft_perf_layout_fork(void *layout, uint32_t participant, struct weft_error *error_p);

/* Enter the participant's network namespace to open sockets there; the calling thread stays in it
 * until weft_perf_netns_leave, which needs *home_p. False with the reason. */
bool weft_perf_netns_enter(const struct weft_perf_layout *layout, uint32_t participant, int *home_p,
                           struct weft_error *error);
void weft_perf_netns_leave(int home);

/* Open a socket of that type in the participant's namespace; -1 with the reason. */
int weft_perf_layout_socket(const struct weft_perf_layout *layout, uint32_t participant, int type,
                            struct weft_error *error);

/* Bind a socket to that participant's address; *addr_p is the bound address. False: errno has the
 * reason. */
bool weft_perf_layout_bind(const struct weft_perf_layout *layout, uint32_t participant, int fd,
                           struct sockaddr_in *addr_p);

void weft_perf_layout_sockaddr(const struct weft_perf_layout *layout, uint32_t participant,
                               uint16_t port, struct sockaddr_in *addr_p);
void weft_perf_layout_address(const struct weft_perf_layout *layout, uint32_t participant,
                              char address_p[WEFT_PERF_ADDRESS_BYTES]);

#endif
