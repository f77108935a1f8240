/* Who is connected to the HTTP server, and who goes when there are many. Internal to this folder.
 *
 * Nobody is authenticated, so connections cost nothing to open: half a request, or an answer that is
 * not read, must not keep a place that a scrape needs. The daemon takes WEFT_HTTP_CONNECTIONS_MAX; a
 * quarter of them is kept free: when a connection beyond the others comes, another one is shut down,
 * and the daemon, which then reads its end, closes it. The first to go is the one that has waited
 * longest for the rest of its request, then the one whose answer is longest on its way.
 *
 * It is not a limit for each address: most of what connects comes from one proxy, or from loopback.
 */
#ifndef WEFT_OBS_HTTP_SLOTS_H
#define WEFT_OBS_HTTP_SLOTS_H

#include <stdint.h>

enum { WEFT_HTTP_CONNECTIONS_MAX = 64, WEFT_HTTP_CONNECTIONS_KEPT = 48 };

enum weft_http_slot_state {
    WEFT_HTTP_FREE,
    WEFT_HTTP_ASKING,    /* its request is not whole */
    WEFT_HTTP_ANSWERING, /* its answer is not sent */
    WEFT_HTTP_LEAVING,   /* shut down here */
};

struct weft_http_slot {
    enum weft_http_slot_state state;
    int fd;
    uint64_t since; /* number of the change to this state */
};

/* Zeros: nobody is there. */
struct weft_http_slots {
    struct weft_http_slot slots[WEFT_HTTP_CONNECTIONS_MAX];
    uint64_t changes;
};

/* A connection has come; NULL where there are more than the daemon was told to take, and it is not
 * watched. Thread: the daemon's, and so for all below. */
struct weft_http_slot *weft_http_slots_take(struct weft_http_slots *slots, int fd);
/* NULL is fine. Of one that is leaving the state stays. */
void weft_http_slots_turn(struct weft_http_slots *slots, struct weft_http_slot *slot,
                          enum weft_http_slot_state state);
/* It is closed. NULL is fine. */
void weft_http_slots_drop(struct weft_http_slot *slot);

#endif
