/* DCTCP for kernel TCP on kernels that were built without it: weft's BPF program (bpf/dctcp.bpf.c),
 * registered as a congestion control while a process uses it.
 *
 * It is not part of a lab: the kernel keeps one list of congestion controls for all its network
 * namespaces. This is the only object of a lab that is visible outside of its namespaces while in
 * use (in tcp_available_congestion_control, as weft_dctcp_ and four more characters). It is removed
 * when the process that attached it ends, for whatever reason; connections that still use it keep
 * it until they close. Several may be attached at a time, each under its own name.
 *
 * Both ends of a connection need it, the listening socket before listen(): only then do the
 * handshake's packets carry ECT and is every mark echoed exactly. The option is
 *
 *     setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name));
 */
#ifndef WEFT_LAB_DCTCP_H
#define WEFT_LAB_DCTCP_H

#include "base/error.h"
#include "lab/dctcp_bpf.h"

#include <stdint.h>

enum { WEFT_DCTCP_NAME_BYTES = 16 };

struct weft_dctcp;

/* Use DCTCP under any name: the kernel's own, "dctcp", if it has one (then *dctcp_p is NULL, which
 * weft_dctcp_detach accepts), else weft's.
 *
 * Errors:  as weft_dctcp_attach. */
[[nodiscard]] weft_status weft_dctcp_open(struct weft_dctcp **dctcp_p,
                                          char name_p[static WEFT_DCTCP_NAME_BYTES],
                                          struct weft_error *error);

/* Register weft's DCTCP; weft_dctcp_name returns its name.
 *
 * Owns:    gives the object; one weft_dctcp_detach for each. After fork() it stays until parent and
 *          child have both closed it; exec closes it.
 * Errors:  WEFT_UNSUPPORTED  this build has no BPF, or the kernel is older than Linux 6.4, or has
 *                            no type information (BTF).
 *          WEFT_IO           not root (CAP_BPF, CAP_NET_ADMIN), or an error of libbpf. */
[[nodiscard]] weft_status weft_dctcp_attach(struct weft_dctcp **dctcp_p, struct weft_error *error);
void weft_dctcp_detach(struct weft_dctcp *dctcp);

/* At most 15 characters.   Owns: borrows until detach. */
const char *weft_dctcp_name(const struct weft_dctcp *dctcp);

/* Counters since it was attached.
 *
 * Errors:  WEFT_IO  the kernel call failed. */
[[nodiscard]] weft_status weft_dctcp_read_counts(const struct weft_dctcp *dctcp,
                                                 struct weft_dctcp_counts *counts_p,
                                                 struct weft_error *error);

/* The latest events of connections, oldest first.
 *
 * Shape:   records_p (WEFT_DCTCP_RECORDS,); *count_p of them are valid, the oldest of which is the
 *          *first_p'th since it was attached. While traffic flows, records at the edges of this
 *          window may be incomplete.
 * Errors:  WEFT_NOMEM; WEFT_IO  the kernel call failed. */
[[nodiscard]] weft_status weft_dctcp_read_records(const struct weft_dctcp *dctcp,
                                                  struct weft_dctcp_record *records_p,
                                                  uint32_t *count_p, uint32_t *first_p,
                                                  struct weft_error *error);

#endif
