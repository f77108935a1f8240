/* Placement of the processes of `weft train`: on loopback, or on the hosts of a lab.
 *
 * In a lab with H hosts, processes are numbered: servers 0 to S - 1, then workers. Process i runs
 * on host i mod H. The parent runs outside the lab. It resolves data paths, measures time and
 * receives events over channels that do not use the lab's network. */
#ifndef WEFT_CLI_TRAIN_HOSTS_H
#define WEFT_CLI_TRAIN_HOSTS_H

#include "lab/cluster.h"

#include <cjson/cJSON.h>
#include <sys/types.h>

struct weft_train_hosts {
    const char *lab;           /* its name; NULL = loopback */
    struct weft_lab_info info; /* valid in a lab */
};

/* Find the lab, if a name is given; `servers` and `workers` are counts.
 * Errors: WEFT_NOTFOUND, WEFT_STATE, WEFT_IO as weft_lab_find.
 * WEFT_INVALID the lab has one host, so no traffic would cross the network. error->text has the
 * remedy. */
weft_status weft_train_hosts_find(struct weft_train_hosts *hosts, uint32_t servers,
                                  uint32_t workers, struct weft_error *error);

/* Numeric address of a server. */
void weft_train_hosts_address(const struct weft_train_hosts *hosts, uint32_t server,
                              char out[WEFT_LAB_ADDRESS_BYTES]);

/* Fork a child on the host of process i. For weft_supervisor_policy, in a lab. */
pid_t weft_train_hosts_fork(void *hosts, uint32_t process, struct weft_error *error_p);

/* The report's object for the lab and its network, or null. Owns: gives. */
cJSON *weft_train_hosts_report(const struct weft_train_hosts *hosts);

#endif
