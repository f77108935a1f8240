/* Statistics of aggregators from the records of a run: how many updates the servers did not have to
 * apply because of them, and the servers' processing time per update, with and without aggregation.
 *
 * A push is aggregated if a record of an aggregator says that the server has committed it inside an
 * aggregate. Pushes are matched by server, worker and rpc; a restarted worker counts its RPCs from
 * 1 again, so some of its pushes may be matched with records of its predecessor.
 */
#ifndef WEFT_OBS_RECDB_AGGREGATION_H
#define WEFT_OBS_RECDB_AGGREGATION_H

#include "obs/recdb.h"

/* An aggregator's process has one for each server (shard). */
struct weft_recdb_aggregator {
    uint32_t number;
    uint32_t server;
    uint64_t pushes;                           /* received, also in aggregates of children */
    uint64_t direct[WEFT_RPC_RECORD_DIRECTS];  /* of these, by reason; [0]: none, committed */
    uint64_t sums;                             /* aggregates sent */
    uint64_t flushed[WEFT_RPC_RECORD_FLUSHES]; /* of these, by reason */
    uint64_t messages;                         /* pushes and aggregates of children in them */
    uint64_t rows_in;                          /* rows of those; rows_out: of the aggregates */
    uint64_t rows_out;
    uint64_t rows_removed; /* rows_in - rows_out of the aggregates that the server committed: pushes
                            * of a refused one are sent again */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t age_ns; /* sum of the times from the first push of an aggregate until it was sent */
    uint64_t age_ns_max;
};

enum weft_recdb_path { WEFT_RECDB_DIRECT, WEFT_RECDB_AGGREGATED, WEFT_RECDB_PATHS };

/* Successful pushes, as recorded by their workers. */
struct weft_recdb_path_sums {
    uint64_t pushes;
    uint64_t updates; /* rows */
    uint64_t ps_proc_ns;
    uint64_t ps_overlap_ns;
};

struct weft_recdb_aggregation {
    struct weft_recdb_aggregator *list; /* by number, then server */
    size_t count;
    struct weft_recdb_aggregator all; /* sums and maximum of the list */
    struct weft_recdb_path_sums paths[WEFT_RECDB_PATHS];
    uint64_t refused; /* invalid rows of aggregators, not included */
};

/* Owns:    *aggregation_p is freed with fini, also after a failure.
 * Errors:  those of reading, WEFT_NOMEM; also in db. */
weft_status weft_recdb_aggregation_make(struct weft_recdb *db,
                                        struct weft_recdb_aggregation *aggregation_p);
void weft_recdb_aggregation_fini(struct weft_recdb_aggregation *aggregation);

/* 1 - messages that the server got for the pushes / pushes: aggregates, and direct pushes. May
 * be negative: a push that was sent in a refused aggregate and then direct has cost two. 0 without
 * pushes. */
double weft_recdb_absorbed(const struct weft_recdb_aggregator *aggregator);
/* 1 - rows out / rows in; 0 without rows. */
double weft_recdb_combined(const struct weft_recdb_aggregator *aggregator);
/* Pushes that workers sent to the server instead. */
uint64_t weft_recdb_direct(const struct weft_recdb_aggregator *aggregator);

/* Share of the run's updates that the servers did not have to apply. The updates are those in the
 * workers' records or, without such records, those that reached aggregators. -1: there is
 * neither. */
double weft_recdb_removed(const struct weft_recdb_aggregation *aggregation);

/* Mean of PS_proc + PS_overlap per update, in ns; 0 = no updates took this path. WEFT_RECDB_PATHS:
 * over both paths. */
double weft_recdb_path_ns(const struct weft_recdb_aggregation *aggregation,
                          enum weft_recdb_path path);

#endif
