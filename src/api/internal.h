/* Shared by the files of the public API. Internal to src/api. The interface of the parameter server
 * has its own header, ps_internal.h.
 *
 *   config.c      the structs that callers fill: defaults, growth, ranges
 *   transport.c   open, close, connect, send, receive
 *   security.c    the job key
 *   event.c       poll, wait, progress
 *   explain.c     error texts: why a peer is down, why no event arrives; counters
 *   metrics.c     /metrics: whether it is enabled, and its address (metrics.h)
 *   fabric.c, fabric_server.c   <weft/fabric.h>
 *   mask.c        gaps, residuals, counts: pure functions
 *
 * The API adds no protocol. It turns public structs into those of core/msg.h and back, and keeps
 * the events of a caller-driven endpoint until they are polled.
 */
#ifndef WEFT_API_INTERNAL_H
#define WEFT_API_INTERNAL_H

#include "api/metrics.h"
#include "io/event_ring.h"
#include "node/endpoint.h"

#include <sys/types.h>
#include <weft/transport.h>

struct weft_transport {
    struct weft_endpoint endpoint;
    pid_t pid; /* of the process that opened it: its forked copies have no connections */
    uint64_t message_bytes_max;
    uint32_t packet_bytes;
    uint32_t peers_max;
    uint32_t chunks_max;
    uint64_t *up;            /* bits: the peer was connected */
    uint64_t *critical_mask; /* of the send that is being queued; chunks_max bits */

    uint32_t posted; /* sends and receives whose event is outstanding */

    /* Caller-driven only: events between progress and poll. Each posted send and receive has a
     * slot reserved, so that progress never finds the ring full. */
    struct weft_event_ring ring;
    uint32_t queued; /* events in it, the lent one included */
    bool lent;       /* the last polled event still belongs to the caller */

    struct weft_metrics_live *metrics; /* NULL = they are not served */

    struct weft_error error;
};

/* config.c */

/* Write as much of ours as the caller's struct has; its size says how much. Asserts that it is at
 * least bytes_min. */
void weft_api_struct_out(void *theirs, const void *ours, size_t ours_bytes, size_t bytes_min);

/* Default peer timeout: WEFT_PEER_TIMEOUT_S of the environment, else 5 s. 0 if the variable is not
 * a number; weft_api_peer_timeout_check then refuses the configuration. */
uint64_t weft_api_peer_timeout_ns(void);
weft_status weft_api_peer_timeout_check(uint64_t peer_timeout_ns, struct weft_error *error);

/* Return the setting; if it is NULL, the environment variable. An empty string in the one that is
 * used means none: returns NULL. */
const char *weft_api_environment(const char *setting, const char *variable);

/* Copy a caller's struct, which may be of an older or newer release, over ours; ours holds the
 * defaults of fields that an older one lacks. `what` names the struct and `init` its _init function
 * in error texts.
 * Errors:  WEFT_INVALID      its size is below bytes_min: the _init function was not called.
 *          WEFT_UNSUPPORTED  it uses fields that this release does not know. */
weft_status weft_api_struct_in(void *ours, size_t ours_bytes, size_t bytes_min, const void *theirs,
                               const char *what, const char *init, struct weft_error *error);

/* Write defaults to a caller's struct; the caller passes its size. */
void weft_api_struct_init(void *theirs, size_t size, const void *defaults, size_t ours_bytes,
                          size_t bytes_min);

struct weft_api_range {
    const char *name;
    uint64_t value;
    uint64_t min;
    uint64_t max;
};

/* All three:  Errors:  WEFT_INVALID; the text has the field, its value and its range. */
weft_status weft_api_ranges_check(const struct weft_api_range *fields, size_t count,
                                  struct weft_error *error);
weft_status weft_api_network_check(const char *host, const char *congestion,
                                   struct weft_error *error);
/* *tcp_p: the setting selects the kernel's TCP. */
weft_status weft_api_kernel_check(const char *transport, bool *tcp_p, struct weft_error *error);

/* Convert a caller's configuration to the driver's. */
weft_status weft_api_config_read(const struct weft_transport_config *theirs,
                                 struct weft_transport_config *ours_p,
                                 struct weft_driver_config *driver_p, struct weft_error *error);

/* Read a caller's send or receive, of an older or newer release. WEFT_INVALID: it was not set by
 * its _init function. */
weft_status weft_api_send_read(const struct weft_transport_send *theirs,
                               struct weft_transport_send *ours_p, struct weft_error *error);
weft_status weft_api_receive_read(const struct weft_transport_receive *theirs,
                                  struct weft_transport_receive *ours_p, struct weft_error *error);

/* security.c */

/* The security fields of a caller's configuration. */
struct weft_api_security {
    uint32_t security; /* enum weft_transport_security */
    const char *key_file;
    const uint8_t *key;
};

/* Owns:    call weft_security_fini, also after an error.   Errors: as weft_security_load. */
weft_status weft_api_security_load(const struct weft_api_security *config,
                                   struct weft_security *security_p, struct weft_error *error);

/* event.c */

/* Allocate space for posted_max sends and receives in progress. peers_max and chunks_max must be
 * set. */
weft_status weft_api_queue_init(struct weft_transport *t, uint32_t posted_max);

/* True if there is a slot for the event of another send or receive. Always true with a progress
 * thread, whose ring is the driver's. */
bool weft_api_queue_has_room(const struct weft_transport *t);

/* explain.c */

/* Write the explanation of a DOWN event to the transport's error text. */
void weft_api_explain_down(struct weft_transport *t, enum weft_transport_down down);

/* Explain a wait without an event, from the counters since `before` (NULL = unknown). */
weft_status weft_api_explain_timeout(struct weft_transport *t,
                                     const struct weft_driver_counters *before,
                                     uint64_t timeout_ns);

#endif
