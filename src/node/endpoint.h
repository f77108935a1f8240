/* A worker's endpoint either turned by the training thread (io/driver.h), or by a thread of its own
 * (io/engine.h). The training loop sees one interface.
 */
#ifndef WEFT_NODE_ENDPOINT_H
#define WEFT_NODE_ENDPOINT_H

#include "io/engine.h"
#include "node/security.h"

/* Polls the message interface until it has no event. */
typedef void weft_endpoint_handler(void *arg, uint64_t now_ns);

struct weft_endpoint {
    struct weft_driver *driver; /* one of the two */
    struct weft_engine *engine;
    struct weft_provider *provider; /* NULL in mode none */
};

/* Errors:  as weft_security_arm and weft_driver_open. */
weft_status weft_endpoint_open(const struct weft_driver_config *config,
                            const struct weft_security *security, bool engine,
                            struct weft_endpoint *endpoint_p, struct weft_io_error *error);

/* Errors:  as weft_driver_connect. */
weft_status weft_endpoint_connect(struct weft_endpoint *endpoint, const char *host, uint16_t port,
                               weft_peer *peer_p, struct weft_io_error *error);

struct weft_msgr weft_endpoint_msgr(struct weft_endpoint *endpoint);

/* Sleep until something happens, at most timeout_ns, then call handler. */
void weft_endpoint_step(struct weft_endpoint *endpoint, uint64_t timeout_ns, weft_endpoint_handler *handler,
                     void *arg);

void weft_endpoint_counters(struct weft_endpoint *endpoint, struct weft_driver_counters *counters_p);

/* Why connections do not come about, as far as the endpoint can tell. */
enum weft_ep_hint weft_endpoint_hint(struct weft_endpoint *endpoint);

/* As weft_udp_unreached: what the network says of connections that do not come about. */
void weft_endpoint_unreached(struct weft_endpoint *endpoint, char text_p[WEFT_UDP_UNREACHED_BYTES]);

/* A zeroed one is fine. */
void weft_endpoint_close(struct weft_endpoint *endpoint);

#endif
