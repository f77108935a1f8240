/* What carries the messages of an endpoint, weft's own UDP or TCP, and how it is tuned.
 *
 * All processes of a job must be given the same. TCP is there to compare with, and for networks where
 * UDP is blocked.
 */
#ifndef WEFT_NODE_TRANSPORT_OPTIONS_H
#define WEFT_NODE_TRANSPORT_OPTIONS_H

#include "io/driver.h"
#include "job/launch.h"

struct weft_transport_options {
    enum weft_driver_kind kind;
    const char *tcp_cc;      /* NULL = the host's */
    uint32_t tcp_rto_min_ms; /* 0 = the host's */
    uint32_t peer_timeout_s; /* 0 = the transport's, or an environment that is wrong */
};

enum { WEFT_TRANSPORT_PEER_TIMEOUT_S = 5 };

#define WEFT_TRANSPORT_DEFAULTS                                                                    \
    {.peer_timeout_s = weft_launch_peer_timeout_s(WEFT_TRANSPORT_PEER_TIMEOUT_S)}

/* Set what the options say in a configuration. */
void weft_transport_options_apply(const struct weft_transport_options *transport,
                                  struct weft_driver_config *config);

#endif
