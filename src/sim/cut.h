/* Tracks the connections of a swarm that the plan has closed, and the failures that such a close
 * permits although no host died.
 *
 * A connection is identified by a pair (opener, acceptor). After a close, a new connection of the
 * pair replaces it. The two ends open and close at different times: an end of the old connection
 * may even open after the other end was closed, if its first packet is the CLOSE. Each end
 * therefore records how often its pair had been closed when it opened, and each close by the opener
 * permits one late end.
 */
#ifndef WEFT_SIM_CUT_H
#define WEFT_SIM_CUT_H

#include <stdbool.h>
#include <stdint.h>

struct weft_cuts {
    uint32_t hosts;
    uint32_t peers;
    uint32_t *closes; /* [opener][acceptor] */
    uint32_t *late;   /* [opener][acceptor] */
    struct weft_cut_end {
        uint32_t closes; /* number of closes of its pair when it opened */
        bool opener;
    } * ends; /* [host][peer] */
};

/* Create for the given numbers of hosts and of peers per host. Running out of memory ends the
 * process. */
void weft_cuts_init(struct weft_cuts *cuts, uint32_t hosts, uint32_t peers);
void weft_cuts_fini(struct weft_cuts *cuts);

/* This host has a connection with `other` under this peer number, which it opened or accepted. */
void weft_cuts_made(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other,
                    bool opener);

/* This host closes the connection now. */
void weft_cuts_close(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

/* Whether the connection may end with messages open. */
bool weft_cuts_may_end(const struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

/* The connection ended. */
void weft_cuts_ended(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

#endif
