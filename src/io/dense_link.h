/* A member of dense rounds (agg/dense_member.h) with a UDP socket to its box: the host process of
 * io/dense_box.h, or an XDP program. Packets are not authenticated.
 */
#ifndef WEFT_IO_DENSE_LINK_H
#define WEFT_IO_DENSE_LINK_H

#include "agg/dense_member.h"
#include "base/error.h"
#include "io/driver_types.h"
#include "io/udp/inject_loss.h"

struct weft_dense_link;

struct weft_dense_link_config {
    const char *host; /* numeric address to bind */
    const char *box_host;
    uint16_t box_port;
    bool insecure_network; /* allow addresses beyond loopback, where any host may change sums */
    struct weft_agg_member_config member;
    struct weft_inject_loss_config loss; /* of arriving datagrams */
    /* Called while a sum waits, after each batch of packets and every 50 ms at least; true: the sum
     * ends with WEFT_AGAIN. NULL = never. */
    bool (*is_stopped)(void *arg);
    void *arg;
};

/* Owns:    gives *link_p; close it with weft_dense_link_close.
 * Errors:  WEFT_INVALID  a host is no numeric address, or the member's configuration is invalid;
 *          WEFT_UNSUPPORTED  an address is beyond loopback, and insecure_network is not set;
 *          WEFT_IO; WEFT_NOMEM. */
[[nodiscard]] weft_status weft_dense_link_open(const struct weft_dense_link_config *config,
                                               struct weft_dense_link **link_p,
                                               struct weft_error *error);
void weft_dense_link_close(struct weft_dense_link *link); /* NULL is allowed */

/* Sum a vector; returns when every chunk has a sum or is direct. Arguments as for
 * weft_agg_member_begin.
 * Errors:  those of weft_agg_member_begin; WEFT_TIMEOUT  not after timeout_ns; WEFT_AGAIN
 *          is_stopped: this link can sum again only in another epoch.
 * Thread:  one. */
[[nodiscard]] weft_status weft_dense_link_sum(struct weft_dense_link *link, const void *in,
                                              void *out, uint64_t count, uint64_t *direct,
                                              uint64_t timeout_ns, struct weft_error *error);

struct weft_agg_member *weft_dense_link_member(struct weft_dense_link *link);
const struct weft_socket_counters *weft_dense_link_counters(const struct weft_dense_link *link);

#endif
