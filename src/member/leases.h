/* The leases of a coordinator: which member holds which rank, or which run of shards, and until
 * when; and the addresses of the shards. member/roster.h defines a lease. Internal to the roster's
 * files.
 *
 * An unordered table of members_max entries, searched linearly: a job has tens of members, and each
 * sends a few requests per lease. In addition there are the shards, each with its holder and its
 * address, and the ranks that have left with their work done. The table grants and removes leases;
 * the roster decides whether a request is granted.
 */
#ifndef WEFT_MEMBER_LEASES_H
#define WEFT_MEMBER_LEASES_H

#include "member/format.h"

/* One holder of a lease. member 0 = a free entry of the table. */
struct weft_lease {
    uint64_t member;
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t until_ns; /* end of the lease */
    uint32_t rank;
    uint32_t first;
    uint32_t span;
    uint8_t role;
    bool expired;
};

struct weft_lease_shard {
    struct weft_lease *holder;          /* NULL = none */
    struct weft_member_address address; /* port 0 = not reachable yet */
};

struct weft_leases {
    struct weft_lease *entries;      /* (members_max,) */
    struct weft_lease_shard *shards; /* (shards_max,) */
    bool *done;                      /* (workers_max,): rank has left with DONE */
    uint32_t members_max;
    uint32_t workers;     /* W, <= workers_max; 0 = not known */
    uint32_t shard_count; /* S, <= shards_max; 0 = not known */
    uint64_t epoch_last;  /* the highest that was given */
};

/* Errors:  WEFT_NOMEM  fini is still needed. */
weft_status weft_leases_init(struct weft_leases *leases, uint32_t members_max, uint32_t workers_max,
                             uint32_t shards_max);
void weft_leases_fini(struct weft_leases *leases);

/* ---- holders of leases: NULL = none ---------------------------------------------------------- */

/* member 0: a free entry. */
struct weft_lease *weft_leases_find(const struct weft_leases *leases, uint64_t member);
struct weft_lease *weft_leases_find_worker(const struct weft_leases *leases, uint32_t rank);
/* The holder whose lease ends first, of those that have not expired. */
struct weft_lease *weft_leases_next_to_expire(const struct weft_leases *leases);
/* When the next lease of that role ends; WEFT_NEVER = there is none. */
uint64_t weft_leases_next_end_ns(const struct weft_leases *leases, uint8_t role);
uint32_t weft_leases_count(const struct weft_leases *leases);

/* ---- free ranks and shards: WEFT_MEMBER_NONE = none ------------------------------------------ */

/* A free rank, else one whose holder's lease has expired. */
uint32_t weft_leases_choose_rank(const struct weft_leases *leases);
/* The first of a run of `span` shards, free or else expired. */
uint32_t weft_leases_choose_first(const struct weft_leases *leases, uint32_t span);

/* ---- changes --------------------------------------------------------------------------------- */

/* Remove the expired holders of this rank (span 0) or of these shards. If a holder has not expired,
 * it is returned, with its rank or shard in *detail_p, and nothing was removed. */
struct weft_lease *weft_leases_remove_expired(struct weft_leases *leases, uint32_t rank,
                                              uint32_t first, uint32_t span, uint32_t *detail_p);
/* An entry for a new member: a free one, else that of an expired worker, which nothing depends on.
 * NULL: the table is full. */
struct weft_lease *weft_leases_make_room(struct weft_leases *leases);
/* Copy `holder` into this entry, and give it its rank or its shards, which remove_expired has
 * freed. */
void weft_leases_grant(struct weft_leases *leases, struct weft_lease *entry,
                       const struct weft_lease *holder);
/* Free its entry, rank and shards. */
void weft_leases_remove(struct weft_leases *leases, struct weft_lease *lease);
/* The rank has left with its work done, or is in use again. */
void weft_leases_set_done(struct weft_leases *leases, uint32_t rank, bool done);
/* This epoch was granted: the next one is larger. */
void weft_leases_note_epoch(struct weft_leases *leases, uint64_t epoch);
/* While a journal is restored: later grants replace all leases, or none. */
void weft_leases_set_all_expired(struct weft_leases *leases, bool expired);
/* Set the addresses of its shards from a request. False: they are unchanged, or the request has
 * none. */
bool weft_leases_set_addresses(struct weft_leases *leases, const struct weft_lease *lease,
                               const struct weft_member_request *request);

/* ---- the list of all shards ------------------------------------------------------------------ */

/* Each shard has a holder that has not expired, and an address. */
bool weft_leases_complete(const struct weft_leases *leases);
/* Version of the list's content; 0 = it is not complete. */
uint64_t weft_leases_version(const struct weft_leases *leases);
/* Every worker has left with DONE. */
bool weft_leases_all_done(const struct weft_leases *leases);

#endif
