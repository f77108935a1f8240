/* The connections of the HTTP server, and the choice of the one to close when there are too many.
 * Internal to this folder.
 *
 * Clients are not authenticated, so anyone can open connections: an incomplete request, or a
 * response that is not read, must not occupy a slot that a scrape needs. The daemon accepts
 * WEFT_HTTP_CONNECTIONS_MAX connections, a quarter of which are kept free: if
 * WEFT_HTTP_CONNECTIONS_KEPT are open when another one is accepted, one of them is shut down; the
 * daemon then reads its end of file and closes it. The first candidate is the connection whose
 * request has been incomplete longest, then the one whose response has been in progress longest.
 *
 * The limit is not per address: most connections come from one proxy, or from loopback.
 */
#ifndef WEFT_OBS_HTTP_SLOTS_H
#define WEFT_OBS_HTTP_SLOTS_H

#include <stdint.h>

enum { WEFT_HTTP_CONNECTIONS_MAX = 64, WEFT_HTTP_CONNECTIONS_KEPT = 48 };

enum weft_http_slot_state {
    WEFT_HTTP_FREE,
    WEFT_HTTP_ASKING,    /* its request is incomplete */
    WEFT_HTTP_ANSWERING, /* its response is not sent */
    WEFT_HTTP_LEAVING,   /* shut down by the server */
};

struct weft_http_slot {
    enum weft_http_slot_state state;
    int fd;
    uint64_t since; /* sequence number of the change to this state */
};

/* All zero: no connections. */
struct weft_http_slots {
    struct weft_http_slot slots[WEFT_HTTP_CONNECTIONS_MAX];
    uint64_t changes;
};

/* Add an accepted connection. NULL if there are more than the daemon's limit; it is then not
 * tracked. Thread: the daemon's, also for all functions below. */
struct weft_http_slot *weft_http_slots_take(struct weft_http_slots *slots, int fd);
/* NULL is allowed. The state of a connection that was shut down does not change. */
void weft_http_slots_turn(struct weft_http_slots *slots, struct weft_http_slot *slot,
                          enum weft_http_slot_state state);
/* Remove a closed connection. NULL is allowed. */
void weft_http_slots_drop(struct weft_http_slot *slot);

#endif
