/* Where the processes of a `weft train` are: on loopback, or on the hosts of a lab.
 *
 * In a lab, server s of S is on host s, worker w on host S + w, and where the hosts end it begins
 * again with host 0: process i is on host i mod H. The parent stays outside: it reads data paths,
 * keeps the clock and hears the processes over their channels, which are no part of the network.
 */
#ifndef WEFT_CLI_TRAIN_HOSTS_H
#define WEFT_CLI_TRAIN_HOSTS_H

#include "lab/cluster.h"

#include <cjson/cJSON.h>
#include <sys/types.h>

struct weft_train_hosts {
    const char *lab;           /* its name; NULL = loopback */
    struct weft_lab_info info; /* when in a lab */
};

/* Find the lab, if one is named; servers and workers are counts.
 * Errors:  WEFT_NOTFOUND, WEFT_STATE, WEFT_IO  as weft_lab_find.
 *          WEFT_INVALID  one host: nothing would cross the network.   error->text says what to do. */
weft_status weft_train_hosts_find(struct weft_train_hosts *hosts, uint32_t servers,
                                  uint32_t workers, struct weft_error *error);

/* Numeric address of a server. */
void weft_train_hosts_address(const struct weft_train_hosts *hosts, uint32_t server,
                              char out[WEFT_LAB_ADDRESS_BYTES]);

/* A child on the host of process i: servers come first. For weft_supervisor_policy, in a lab. */
pid_t weft_train_hosts_fork(void *hosts, uint32_t process, struct weft_error *error_p);

/* For the report: the lab and its network, or null.   Owns: gives. */
cJSON *weft_train_hosts_report(const struct weft_train_hosts *hosts);

#endif
