/* The transport of an endpoint, weft's own over UDP or TCP, and its tuning.
 *
 * All processes of a job must use the same transport. TCP is for comparisons, and for networks that
 * block UDP.
 */
#ifndef WEFT_NODE_TRANSPORT_OPTIONS_H
#define WEFT_NODE_TRANSPORT_OPTIONS_H

#include "io/driver.h"
#include "job/launch.h"

struct weft_transport_options {
    enum weft_driver_kind kind;
    const char *tcp_cc;      /* NULL = the host's */
    uint32_t tcp_rto_min_ms; /* 0 = the host's */
    uint32_t peer_timeout_s; /* 0 = the transport's default, or the value in the environment is
                              * invalid */
};

enum { WEFT_TRANSPORT_PEER_TIMEOUT_S = 5 };

#define WEFT_TRANSPORT_DEFAULTS                                                                    \
    {.peer_timeout_s = weft_launch_peer_timeout_s(WEFT_TRANSPORT_PEER_TIMEOUT_S)}

/* Apply the options to a configuration. */
void weft_transport_options_apply(const struct weft_transport_options *transport,
                                  struct weft_driver_config *config);

#endif
