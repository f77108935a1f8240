/* A lab that is up, as its users see it: find it by name, know its figures, put processes on hosts.
 *
 * A lab is an emulated cluster: every host is a network namespace, joined by virtual cables and
 * routers whose queues have the rate and the buffer that was asked for. This header is for those who
 * run something in it (`weft lab exec`, `weft perf --lab`); making one is lab/holder.h.
 *
 * All of a lab hangs on one process, the holder, which is process 1 of a PID namespace. When it
 * ends, however that happens, the kernel ends every process that is a member and takes apart every
 * interface, queue and rule. Members are made by weft_lab_fork.
 */
#ifndef WEFT_LAB_CLUSTER_H
#define WEFT_LAB_CLUSTER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_LAB_HOSTS_MAX = 256, WEFT_LAB_NAME_BYTES = 32, WEFT_LAB_ADDRESS_BYTES = 46 };

struct weft_lab_info {
    char name[WEFT_LAB_NAME_BYTES];
    pid_t holder;          /* the process whose end is the lab's end */
    uint32_t hosts;        /* 1 .. WEFT_LAB_HOSTS_MAX; host 0 is as good as any other */
    uint64_t rate_bps;     /* of a host's links, both ways, on the wire; 0 = not limited */
    uint64_t buffer_bytes; /* of a router's port, in packets with their Ethernet header */
    uint32_t loss_ppm;     /* per packet, behind the bottleneck queue, both directions */
    uint32_t ecn_bytes;    /* a port marks at that queue length; 0 = no marks */
    uint64_t base_rtt_ns;  /* as measured when it came up, small packet host to host; 0 = unknown */
    char topology[16];     /* "star", "spine-leaf" */
    bool hysteresis;       /* a timer for a burst and not for each frame (docs/LAB.md) */
    bool offload;          /* cables carry segments of up to 64 KB as one packet */
    bool uneven;           /* some link has another rate than rate_bps, or will have */
};

/* The lab of that name.
 *
 * Errors:  WEFT_NOTFOUND  no such lab is up; the text names those that are.
 *          WEFT_STATE     it is still being set up.
 *          WEFT_IO        the registry cannot be read. */
[[nodiscard]] weft_status weft_lab_find(const char *name, struct weft_lab_info *info_p,
                                        struct weft_error *error);

/* Put the calling process on that host: its network, its host name, its /sys and the lab's /proc.
 * Children made afterwards are members of the lab; the calling process itself is not (the kernel
 * does not move processes between PID namespaces) and outlives it. Prefer weft_lab_fork.
 *
 * Errors:  WEFT_IO  not root, or the lab has ended; the process may be half way in: let it end.
 * Thread:  the process has one thread; typically a fresh child. */
[[nodiscard]] weft_status weft_lab_enter(const struct weft_lab_info *info, uint32_t host,
                                         struct weft_error *error);

/* fork(), with the child on that host and a member of the lab: killed when the lab ends, and killed
 * when the caller ends. It is the caller's child, for waitpid and kill.
 *
 *     pid_t pid;
 *     status = weft_lab_fork(&info, host, &pid, &error);
 *     if (status == WEFT_OK && pid == 0) {
 *         execvp(...); _exit(127);
 *     }
 *
 * Errors:  WEFT_IO  in the parent only: not root, the lab has ended, no process. A child that cannot
 *                   get to its host never returns from here, and the parent gets its sentence.
 * Thread:  the process has one thread. */
[[nodiscard]] weft_status weft_lab_fork(const struct weft_lab_info *info, uint32_t host,
                                        pid_t *pid_p, struct weft_error *error);

/* The same for any node by its name: "h3", "switch", "leaf0", "spine1". */
[[nodiscard]] weft_status weft_lab_fork_node(const struct weft_lab_info *info, const char *node,
                                             pid_t *pid_p, struct weft_error *error);

/* A descriptor of that host's network namespace, for setns; it is closed on exec. It keeps the
 * network's addresses alive when the lab has ended, but not its cables' other ends.
 *
 * Owns:    gives the descriptor.
 * Errors:  WEFT_IO  not root, or the lab has ended. */
[[nodiscard]] weft_status weft_lab_netns(const struct weft_lab_info *info, uint32_t host, int *fd_p,
                                         struct weft_error *error);

/* Numeric IPv4 address of a host: the same everywhere in the lab, and in every lab. */
void weft_lab_address(const struct weft_lab_info *info, uint32_t host,
                      char out[WEFT_LAB_ADDRESS_BYTES]);

#endif
