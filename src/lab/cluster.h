/* A running lab, for its users: find it by name, read its parameters, run processes on its hosts.
 *
 * A lab is an emulated cluster: every host is a network namespace, connected by virtual cables and
 * routers whose queues have the configured rate and buffer. This header is for programs that run
 * something in a lab (`weft lab exec`, `weft perf --lab`); lab/holder.h creates one.
 *
 * A lab depends on one process, the holder, which is process 1 of a PID namespace. When it ends,
 * for whatever reason, the kernel kills every member process and removes every interface, queue and
 * rule. Members are created by weft_lab_fork.
 */
#ifndef WEFT_LAB_CLUSTER_H
#define WEFT_LAB_CLUSTER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_LAB_HOSTS_MAX = 256, WEFT_LAB_NAME_BYTES = 32, WEFT_LAB_ADDRESS_BYTES = 46,
       WEFT_LAB_SETTINGS_BYTES = 17 };

struct weft_lab_info {
    char name[WEFT_LAB_NAME_BYTES];
    pid_t holder;          /* the process whose end is the end of the lab */
    uint32_t hosts;        /* 1 .. WEFT_LAB_HOSTS_MAX; host 0 has no special role */
    uint64_t rate_bps;     /* of a host's links, both directions, on the wire; 0 = unlimited */
    uint64_t buffer_bytes; /* of a router's port, in packets with their Ethernet header */
    uint32_t loss_ppm;     /* per packet, after the bottleneck queue, both directions */
    uint32_t ecn_bytes;    /* a port marks above this queue length; 0 = no marks */
    uint64_t base_rtt_ns;  /* measured when it was started, small packet host to host; 0 =
                            * unknown */
    char topology[16];     /* "star", "spine-leaf" */
    bool hysteresis;       /* one timer per burst instead of per frame (docs/LAB.md) */
    bool offload;          /* cables carry segments of up to 64 KB as one packet */
    char settings[WEFT_LAB_SETTINGS_BYTES]; /* a hash of them all: labs with equal ones are alike,
                                             * but for the contents of a file of flow sizes. "" =
                                             * unknown: the lab of an earlier release */
    bool uneven;           /* some link has, or will have, another rate than rate_bps */
};

/* Find the lab of that name.
 *
 * Errors:  WEFT_NOTFOUND  no such lab is running; the text lists the running ones.
 *          WEFT_STATE     it is still being set up.
 *          WEFT_IO        the registry cannot be read. */
[[nodiscard]] weft_status weft_lab_find(const char *name, struct weft_lab_info *info_p,
                                        struct weft_error *error);

/* Move the calling process to that host: its network, its host name, its /sys and the lab's /proc.
 * Children created afterwards are members of the lab. The calling process itself is not (the kernel
 * does not move processes between PID namespaces) and survives the lab. Prefer weft_lab_fork.
 *
 * Errors:  WEFT_IO  not root, or the lab has ended; the process may have moved in part: it should
 *          exit.
 * Thread:  the process has one thread; typically a new child. */
[[nodiscard]] weft_status weft_lab_enter(const struct weft_lab_info *info, uint32_t host,
                                         struct weft_error *error);

/* fork(), with the child on that host and a member of the lab: it is killed when the lab or the
 * caller ends. It is the caller's child, for waitpid and kill.
 *
 *     pid_t pid;
 *     status = weft_lab_fork(&info, host, &pid, &error);
 *     if (status == WEFT_OK && pid == 0) {
 *         execvp(...); _exit(127);
 *     }
 *
 * Errors:  WEFT_IO in the parent only: not root, the lab has ended, no process. A child that cannot
 *                   enter its host does not return from this call; the parent gets its error text.
 * Thread:  the process has one thread. */
[[nodiscard]] weft_status weft_lab_fork(const struct weft_lab_info *info, uint32_t host,
                                        pid_t *pid_p, struct weft_error *error);

/* The same for any node by name: "h3", "switch", "leaf0", "spine1". */
[[nodiscard]] weft_status weft_lab_fork_node(const struct weft_lab_info *info, const char *node,
                                             pid_t *pid_p, struct weft_error *error);

/* A descriptor of that host's network namespace, for setns; close-on-exec. It keeps the network's
 * addresses after the lab has ended, but not the other ends of its cables.
 *
 * Owns:    gives the descriptor.
 * Errors:  WEFT_IO  not root, or the lab has ended. */
[[nodiscard]] weft_status weft_lab_netns(const struct weft_lab_info *info, uint32_t host, int *fd_p,
                                         struct weft_error *error);

/* Numeric IPv4 address of a host: the same everywhere in the lab, and in every lab. */
void weft_lab_address(const struct weft_lab_info *info, uint32_t host,
                      char out[WEFT_LAB_ADDRESS_BYTES]);

#endif
