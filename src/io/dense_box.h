/* The aggregation box of a host process: sums the DENSE packets of members that arrive at a UDP
 * socket, and sends each sum to all members (docs/PROTOCOL.md section 12, agg/dense.h).
 *
 * A member is where its last accepted packet came from. The first packet of a later epoch begins
 * that epoch, as in the XDP program. Unlike that program it can sum floats. ROWS packets are
 * dropped: it has no banks. Packets are not authenticated.
 */
#ifndef WEFT_IO_DENSE_BOX_H
#define WEFT_IO_DENSE_BOX_H

#include "agg/agg.h"
#include "base/error.h"
#include "io/driver_types.h"
#include "io/udp/inject_loss.h"

struct weft_dense_box;

struct weft_dense_box_config {
    const char *host; /* numeric address to listen at */
    uint16_t port;    /* 0 = any */
    bool insecure_network; /* allow an address beyond loopback, where any host may change sums */
    const uint32_t *interfaces; /* indices: what arrives at others is dropped; borrowed by open */
    uint32_t interfaces_count;  /* 0 = any; at most WEFT_AGG_MEMBERS_MAX */
    struct weft_agg_config agg;
    struct weft_inject_loss_config loss; /* of arriving datagrams */
};

struct weft_dense_box_stats {
    struct weft_agg_counts counts;
    struct weft_socket_counters socket;
    uint64_t moved;   /* times that packets of a member began to come from another address in the
                       * same epoch: two members have one number */
    uint64_t unsent;  /* sums not sent to a member, because its address is not known yet */
    uint32_t members; /* whose address is known */
    uint32_t epoch;
};

/* Owns:    allocates 2.9 KB for each slot, and 2 MB.
 * Errors:  WEFT_INVALID  host is no numeric address; WEFT_UNSUPPORTED  it is beyond loopback, and
 *          insecure_network is not set; WEFT_EXISTS  the port is in use; WEFT_IO; WEFT_NOMEM. */
[[nodiscard]] weft_status weft_dense_box_open(const struct weft_dense_box_config *config,
                                              struct weft_dense_box **box_p,
                                              struct weft_error *error);
void weft_dense_box_close(struct weft_dense_box *box); /* NULL is allowed */

uint16_t weft_dense_box_port(const struct weft_dense_box *box);

/* Sum until stop_fd is readable.
 * Thread:  one. */
void weft_dense_box_run(struct weft_dense_box *box, int stop_fd);

/* Thread:  any. */
void weft_dense_box_read(struct weft_dense_box *box, struct weft_dense_box_stats *stats_p);

#endif
