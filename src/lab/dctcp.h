/* DCTCP for kernel TCP on kernels that were built without it: our BPF program (bpf/dctcp.bpf.c),
 * registered as a congestion control while a process wants it.
 *
 * It is not part of a lab: the kernel keeps one list of congestion controls for all its network
 * namespaces. This is the one thing outside of its namespaces that a lab leaves visible while it is
 * in use (in tcp_available_congestion_control, as weft_dctcp_ and four more characters). It goes
 * with the process that attached it, however that ends; connections which still use it keep it
 * until they close. Several may be attached at a time, each under its own name.
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

/* DCTCP by whatever name: the kernel's own, "dctcp", where it has one (then *dctcp_p is NULL, which
 * weft_dctcp_detach takes), else ours.
 *
 * Errors:  as weft_dctcp_attach. */
[[nodiscard]] weft_status weft_dctcp_open(struct weft_dctcp **dctcp_p,
                                          char name_p[static WEFT_DCTCP_NAME_BYTES],
                                          struct weft_error *error);

/* Register ours; weft_dctcp_name says what it is called.
 *
 * Owns:    gives the object; one weft_dctcp_detach for each. fork() keeps it alive until parent and
 *          child have both let go of it; exec does not.
 * Errors:  WEFT_UNSUPPORTED  this build has no BPF, or the kernel is older than Linux 6.4, or came
 *                            without its types (BTF).
 *          WEFT_IO           not root (CAP_BPF, CAP_NET_ADMIN), or what libbpf said. */
[[nodiscard]] weft_status weft_dctcp_attach(struct weft_dctcp **dctcp_p, struct weft_error *error);
void weft_dctcp_detach(struct weft_dctcp *dctcp);

/* At most 15 characters.   Owns: borrows until detach. */
const char *weft_dctcp_name(const struct weft_dctcp *dctcp);

/* What the program has counted since it was attached.
 *
 * Errors:  WEFT_IO  the kernel refused. */
[[nodiscard]] weft_status weft_dctcp_read_counts(const struct weft_dctcp *dctcp,
                                                 struct weft_dctcp_counts *counts_p,
                                                 struct weft_error *error);

/* The latest things that happened to connections, oldest first.
 *
 * Shape:   records_p (WEFT_DCTCP_RECORDS,); *count_p of them are valid, the oldest of which is the
 *          *first_p'th since it was attached. While traffic flows the edges of this window may hold
 *          records that are half written.
 * Errors:  WEFT_NOMEM; WEFT_IO  the kernel refused. */
[[nodiscard]] weft_status weft_dctcp_read_records(const struct weft_dctcp *dctcp,
                                                  struct weft_dctcp_record *records_p,
                                                  uint32_t *count_p, uint32_t *first_p,
                                                  struct weft_error *error);

#endif
