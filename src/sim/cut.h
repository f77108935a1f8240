/* Which connections of a swarm the plan has closed, and what may end with them though nobody died.
 *
 * A connection is that of a pair (who opened it, who accepted it); when it was closed, another one
 * takes its place. Ends come and go at different times: an end of the old connection may even come
 * up after the other one was closed, when its first packet is the CLOSE. So each end remembers how
 * often its pair had been closed when it came up, and each close by the opener allows one late end.
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
        uint32_t closes; /* of its pair, when it came up */
        bool opener;
    } *ends;          /* [host][peer] */
};

/* For so many hosts, with so many peers each. Lack of memory ends the process. */
void weft_cuts_init(struct weft_cuts *cuts, uint32_t hosts, uint32_t peers);
void weft_cuts_fini(struct weft_cuts *cuts);

/* This host has a connection with `other`, under this number: opened by it, or accepted. */
void weft_cuts_made(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other,
                    bool opener);

/* This host closes it now. */
void weft_cuts_close(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

/* True when it may go down, with messages open. */
bool weft_cuts_may_end(const struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

/* It went down. */
void weft_cuts_ended(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other);

#endif
