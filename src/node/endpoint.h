/* The endpoint of a process: UDP or TCP, with the job's security, and its progress made either by
 * the caller (io/driver.h) or by a thread of its own (io/engine.h). Both have the same
 * interface: the choice is made in weft_endpoint_open, and no other call depends on it.
 *
 * The shards of a server do not use it: they use a driver directly, because a separate thread would
 * have to copy their events and data.
 *
 * Thread:  the one that opened it, except weft_endpoint_wake.
 */
#ifndef WEFT_NODE_ENDPOINT_H
#define WEFT_NODE_ENDPOINT_H

#include "io/engine.h"
#include "node/security.h"

struct weft_endpoint_config {
    struct weft_driver_config driver;     /* mode, key, cryptography and insecure_network are set by
                                           * open */
    const struct weft_security *security; /* loaded */
    bool thread;                          /* a thread of its own makes progress */
    uint32_t events_max;                  /* with a thread: least length of its event ring */
};

struct weft_endpoint {
    struct weft_driver *driver;     /* NULL with a thread, or before open */
    struct weft_engine *engine;     /* NULL without */
    struct weft_provider *provider; /* NULL in mode none */
    struct weft_msgr msgr;
};

void weft_endpoint_config_default(struct weft_endpoint_config *config_p);

/* Owns:    borrows config and security until return; the endpoint has the only remaining copy of
 *          the key. Call weft_endpoint_close; after an error it is optional.
 * Errors:  as weft_security_arm, weft_driver_open and weft_engine_start. */
weft_status weft_endpoint_open(const struct weft_endpoint_config *config,
                               struct weft_endpoint *endpoint_p, struct weft_error *error);

static inline bool weft_endpoint_has_thread(const struct weft_endpoint *endpoint)
{
    return endpoint->engine != NULL;
}

uint16_t weft_endpoint_port(const struct weft_endpoint *endpoint);

/* Errors:  as weft_driver_connect. */
weft_status weft_endpoint_connect(struct weft_endpoint *endpoint, const char *host, uint16_t port,
                                  weft_peer *peer_p, struct weft_error *error);
void weft_endpoint_disconnect(struct weft_endpoint *endpoint, weft_peer peer);

/* Make progress: sleep until something happens, at most timeout_ns, and call handler, which polls
 * the message interface until it has no event. */
void weft_endpoint_step(struct weft_endpoint *endpoint, uint64_t timeout_ns,
                        weft_driver_handler *handler, void *arg);

/* As in io/driver.h; no effect with a thread, which does this without a call. */
void weft_endpoint_flush(struct weft_endpoint *endpoint);
void weft_endpoint_idle(struct weft_endpoint *endpoint);
void weft_endpoint_acknowledge(struct weft_endpoint *endpoint);

/* End the sleep of a step; no effect with a thread. Thread: any. */
void weft_endpoint_wake(struct weft_endpoint *endpoint);

/* Run `call` on the thread that owns the driver, and wait for its return: for operations that this
 * interface lacks. */
void weft_endpoint_call(struct weft_endpoint *endpoint, weft_engine_fn *call, void *arg);

void weft_endpoint_counters(struct weft_endpoint *endpoint,
                            struct weft_driver_counters *counters_p);

/* Counters and gauges of the same moment. False: over TCP there are no gauges. */
bool weft_endpoint_stats(struct weft_endpoint *endpoint, struct weft_driver_counters *counters_p,
                         struct weft_ep_gauges *gauges_p);

/* Why connections are not established, as reported by the other end and by the network. */
enum weft_ep_hint weft_endpoint_hint(struct weft_endpoint *endpoint);
void weft_endpoint_unreached(struct weft_endpoint *endpoint, char text_p[WEFT_UNREACHED_BYTES]);

/* A zeroed struct is allowed. */
void weft_endpoint_close(struct weft_endpoint *endpoint);

#endif
