#include "node/transport_options.h"

void weft_transport_options_apply(const struct weft_transport_options *transport,
                                  struct weft_driver_config *config)
{
    config->kind = transport->kind;
    config->tcp_cc = transport->tcp_cc;
    config->tcp_rto_min_ns = transport->tcp_rto_min_ms * WEFT_NS_PER_MS;
    if (transport->peer_timeout_s != 0) {
        config->udp.ep.peer_timeout_ns = transport->peer_timeout_s * WEFT_NS_PER_S;
    }
}
