#include "sim/cut.h"

#include "base/assert.h"

#include <stdlib.h>

void weft_cuts_init(struct weft_cuts *cuts, uint32_t hosts, uint32_t peers)
{
    size_t pairs = (size_t)hosts * hosts;
    *cuts = (struct weft_cuts){.hosts = hosts, .peers = peers};
    cuts->closes = calloc(pairs, sizeof(*cuts->closes));
    cuts->late = calloc(pairs, sizeof(*cuts->late));
    cuts->ends = calloc((size_t)hosts * peers, sizeof(*cuts->ends));
    WEFT_ASSERT(cuts->closes != NULL && cuts->late != NULL && cuts->ends != NULL);
}

void weft_cuts_fini(struct weft_cuts *cuts)
{
    free(cuts->closes);
    free(cuts->late);
    free(cuts->ends);
    *cuts = (struct weft_cuts){0};
}

static struct weft_cut_end *end_of(const struct weft_cuts *cuts, uint32_t host, uint32_t peer)
{
    WEFT_ASSERT(host < cuts->hosts && peer < cuts->peers);
    return &cuts->ends[(size_t)host * cuts->peers + peer];
}

static size_t pair_of(const struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other)
{
    bool opener = end_of(cuts, host, peer)->opener;
    return opener ? (size_t)host * cuts->hosts + other : (size_t)other * cuts->hosts + host;
}

void weft_cuts_made(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other,
                    bool opener)
{
    struct weft_cut_end *end = end_of(cuts, host, peer);
    end->opener = opener;
    end->closes = cuts->closes[pair_of(cuts, host, peer, other)];
}

void weft_cuts_close(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other)
{
    size_t pair = pair_of(cuts, host, peer, other);
    cuts->closes[pair]++;
    cuts->late[pair] += end_of(cuts, host, peer)->opener;
}

bool weft_cuts_may_end(const struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other)
{
    const struct weft_cut_end *end = end_of(cuts, host, peer);
    size_t pair = pair_of(cuts, host, peer, other);
    return end->closes < cuts->closes[pair] || (!end->opener && cuts->late[pair] > 0);
}

void weft_cuts_ended(struct weft_cuts *cuts, uint32_t host, uint32_t peer, uint32_t other)
{
    const struct weft_cut_end *end = end_of(cuts, host, peer);
    size_t pair = pair_of(cuts, host, peer, other);
    if (!end->opener && cuts->late[pair] > 0) {
        cuts->late[pair]--; /* the acceptor's end of a connection that the opener closed */
    }
}
