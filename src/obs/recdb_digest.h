/* Statistics from one pass over the RPCs of a run: histograms of every stage, sums of every server
 * and worker. Memory is constant except for the list of servers and workers.
 *
 * Quantiles are the upper edges of log-linear buckets (base/hist.h), so at most 3.2 % above the
 * true value; means, shares and maxima are exact.
 */
#ifndef WEFT_OBS_RECDB_DIGEST_H
#define WEFT_OBS_RECDB_DIGEST_H

#include "base/hist.h"
#include "obs/recdb.h"

struct weft_recdb_kind_digest {
    uint64_t failed; /* ended with an error status; not included below */
    uint64_t rows;
    uint64_t request_bytes;
    uint64_t reply_bytes;
    struct weft_hist requests; /* sizes in bytes */
    struct weft_hist replies;
    struct weft_hist total;
    struct weft_hist overlap;
    struct weft_hist stages[WEFT_RECDB_STAGES];
};

/* Sums of one server or one worker. */
struct weft_recdb_party {
    uint32_t id;
    uint64_t rpcs;
    uint64_t total_ns;
    uint64_t max_ns;
    uint64_t stage_ns[WEFT_RECDB_STAGES];
};

struct weft_recdb_parties {
    struct weft_recdb_party *list; /* by id */
    size_t count;
    size_t room;
};

enum weft_recdb_roles {
    WEFT_RECDB_WORKERS,
    WEFT_RECDB_SERVERS,
    WEFT_RECDB_AGGREGATORS,
    WEFT_RECDB_ROLES,
};

struct weft_recdb_role {
    uint64_t processes;
    uint64_t cut; /* of these, processes that were killed or still ran: their last records are
                   * missing */
    uint64_t records;
    uint64_t dropped;
    uint64_t cpu_ns;
    uint64_t wall_ns; /* sums over the processes */
};

struct weft_recdb_digest {
    struct weft_recdb_kind_digest kinds[WEFT_RECDB_KINDS];
    struct weft_recdb_parties servers;
    struct weft_recdb_parties workers;
    struct weft_recdb_role roles[WEFT_RECDB_ROLES];
    struct weft_hist active;      /* number of workers active in a window of a server with any */
    struct weft_hist connections; /* the same for connections; earlier releases did not count
                                   * them */
    uint64_t window_ns;
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t odd; /* RPCs whose stages do not sum to t1 - t0 */
};

/* The slowest successful RPCs, slowest first. */
struct weft_recdb_slowest {
    uint32_t wanted; /* at least 1; set by the caller */
    uint32_t count;
    uint64_t least_ns; /* faster RPCs are not in the list */
    struct weft_recdb_rpc *list;
};

/* The stage that made an RPC slow: the one with the largest excess over the median of that stage
 * among the RPCs of the same kind. */
struct weft_recdb_blame {
    unsigned stage;
    uint64_t median_ns;
    double part; /* its share of the sum of all such excesses */
};

/* slowest: also filled in this pass; NULL = not needed.
 * Owns:    *digest_p, 300 KB, is freed with fini, and slowest->list with free(), also after a
 *          failure.
 * Errors:  those of reading, WEFT_NOMEM; also in db. */
weft_status weft_recdb_digest_make(struct weft_recdb *db, struct weft_recdb_slowest *slowest,
                                   struct weft_recdb_digest *digest_p);
void weft_recdb_digest_fini(struct weft_recdb_digest *digest);

struct weft_recdb_blame weft_recdb_blame(const struct weft_recdb_digest *digest,
                                         const struct weft_recdb_rpc *rpc);

uint64_t weft_recdb_digest_rpcs(const struct weft_recdb_digest *digest);
/* Records dropped by all processes, and processes whose last records are missing. */
uint64_t weft_recdb_digest_dropped(const struct weft_recdb_digest *digest);
uint64_t weft_recdb_digest_cut(const struct weft_recdb_digest *digest);
/* Share of the stage in the total time of all RPCs of that kind, in [0, 1]. */
double weft_recdb_share(const struct weft_recdb_kind_digest *kind, unsigned stage);

#endif
