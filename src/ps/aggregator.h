/* An aggregator for one shard. It adds up the pushes of its workers by table and clock and sends
 * each sum to the shard as one message (ps/aggregate.h). It forwards the CLOCKs of several workers
 * as one message. It answers pulls with cached rows, or with rows that it fetches from the shard.
 * Workers send all other requests to the shard.
 *
 * This is a sans-I/O state machine over one transport. Workers connect to that transport, and it is
 * connected to the shard. A push is buffered until it is complete, then added to the open group of
 * its table and clock. A group is sent when each worker that has opened the table here has a push
 * in it, when the group reaches its age or count limit, or when memory is needed. The aggregator
 * replies to a worker after the shard has replied. The reply is OK or SEND_DIRECT. SEND_DIRECT
 * makes the worker send the request to the shard itself; below, such a request "goes direct". A
 * worker keeps each push until that reply, so an aggregator that dies loses no data.
 *
 * With on_apply the reply OK to a push is sent when the push is added, and a second reply,
 * COMMITTED, when the shard has replied. Between them the push is only in the aggregator's sum, so
 * an aggregator that dies loses it. If the shard does not accept the sum, the second reply is
 * SEND_DIRECT, and the push is lost, too. The worker determines which of its pushes are lost
 * (client_applied.c).
 *
 * A cached row has a version and an age. The version is the minimum clock of all workers when the
 * shard read the row; the age is the time since the aggregator requested it. A cached row answers a
 * pull if its version is at least the pull's bound and its age is at most the limit in the pull.
 * That limit is the time since the shard closed the worker's own last push. In ASP the age must not
 * exceed pull_age_ns either. Missing rows are fetched once for all workers that wait for them. A
 * worker names the shard process that it is connected to; rows of another process never answer its
 * pulls. All cached rows are dropped when the connection to the shard ends. When the cache is full,
 * the oldest entry is evicted.
 *
 * In a tree an aggregator is connected to another aggregator, its *parent*, instead of the shard.
 * It behaves toward the parent like a worker, except that its pushes are AGGREGATE messages. The
 * parent adds up these sums, and its own message lists the members of all of them. The shard
 * therefore sees the name of each worker's push, and counts the push once, whatever the depth of
 * the tree. A parent refuses an aggregator if the connection would close a cycle.
 *
 *     On every event: weft_aggregator_event; after a batch: weft_aggregator_progress; then sleep
 *     until weft_aggregator_deadline.
 *     While weft_aggregator_wants_shard: connect to the shard, then weft_aggregator_connect.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates"; [imc20] section 4; [mlfabric] section 5. */
#ifndef WEFT_PS_AGGREGATOR_H
#define WEFT_PS_AGGREGATOR_H

#include "base/hash_key.h"
#include "core/msg.h"
#include "ps/aggregate.h"
#include "rpc/rpc_record.h"

struct weft_aggregator;

/* Open groups that can be configured: those of 4 sums of the most pieces. */
enum { WEFT_AGGREGATOR_GROUPS_MAX = 4 * WEFT_PS_PIECES_MAX };

struct weft_aggregator_config {
    uint32_t number;       /* index among the job's aggregators; part of the endpoint's name */
    uint32_t shard;        /* shard index expected in the name of the connected process */
    uint32_t workers_max;  /* ranks 0 .. workers_max - 1 may connect */
    uint32_t children_max; /* aggregators 0 .. children_max - 1 may connect as children */
    bool has_parent;       /* connects to another aggregator instead of the shard */
    uint32_t tables_max;     /* tables 0 .. tables_max - 1 */
    uint32_t push_slots;     /* concurrent pushes of one worker, <= 60 */
    uint32_t push_bytes_max; /* limit of one push: 8 bytes per row plus its values; larger pushes go
                              * direct. Each slot reserves this much memory and touches it on use */
    uint32_t groups_max;     /* open groups; opening one more sends the oldest */
    uint32_t count_max;      /* a group with this many pushes is sent; 0 = the format's limit */
    uint64_t age_ns;     /* a group this old is sent as soon as the shard accepts another message */
    uint64_t sum_age_ns; /* the same for a sum assigned by a scheduler, if longer than age_ns, since
                          * the last chunk of one of its pushes (flush_at in aggregator_group.c) */
    bool on_apply;   /* acknowledge the pushes of workers that allow it when they are added to a
                      * sum, instead of when the shard has committed it */
    bool by_age_asp; /* sums of ASP tables wait for their age or count limit even if all workers are
                      * in them */
    uint32_t pull_slots;    /* concurrent pulls of one worker, <= 16; 0: all pulls go direct */
    uint32_t pull_rows_max; /* row limit of one pull (push_bytes_max limits its reply); larger pulls
                             * go direct */
    uint64_t cache_bytes;   /* size of the row cache; each table has an equal part */
    uint64_t pull_age_ns;   /* ASP: maximum age of a cached row */
    uint64_t pull_patience_ns;        /* a pull that has waited this long for the shard goes direct;
                                       * shorter than the workers' timeout for a dead aggregator */
    uint8_t key[WEFT_HASH_KEY_BYTES]; /* random, chosen by the driver */
    uint64_t (*clock_ns)(void *arg);  /* same clock as now_ns */
    void *clock_arg;
    struct weft_rpc_record_ring *records; /* receives a record of every message from below that
                                           * contains pushes, and of every aggregate; borrowed until
                                           * free. NULL = none */
};

/* Cumulative. */
struct weft_aggregator_counters {
    uint64_t pushes_in;     /* complete pushes received, including the next counter */
    uint64_t aggregates_in; /* AGGREGATEs of children */
    uint64_t pushes_direct; /* pushes answered SEND_DIRECT; the next five are the reasons */
    uint64_t direct_table;  /* the table is not open here, or its pushes cannot be summed */
    uint64_t direct_form;  /* uses a cached list, is malformed, repeats a push number or has a value
                            * that is not finite */
    uint64_t direct_large; /* too large for a slot */
    uint64_t direct_shard; /* the shard was not connected, or its connection ended */
    uint64_t direct_refused;  /* the shard refused the aggregate that contained the push */
    uint64_t pushes_applied;  /* acknowledged on apply; of these: */
    uint64_t pushes_lost;     /* not committed, as far as known here: the shard refused their
                               * aggregate, or its connection ended */
    uint64_t on_apply_refused; /* on_apply: TABLEs of workers that do not allow it, because of a
                                * journal of the shard or their own replay */
    uint64_t pushes_absorbed; /* committed by the shard */
    uint64_t aggregates_out;  /* messages to the shard; the next four are the reasons for sending */
    uint64_t flushed_complete; /* the group had a push of every worker that has opened the
                               * table, or of every member of a sum of the scheduler */
    uint64_t flushed_count;
    uint64_t flushed_age;
    uint64_t flushed_memory;
    uint64_t rows_in;            /* row gradients in the pushes that were added up */
    uint64_t rows_out;           /* row sums sent */
    uint64_t bytes_in;           /* bytes of the pushes that were added up */
    uint64_t bytes_out;          /* bytes of the messages to the shard */
    uint64_t clocks_in;          /* ended clocks reported by workers and children */
    uint64_t clocks_passed;      /* of these, accepted by the shard */
    uint64_t clocks_direct;      /* of these, answered SEND_DIRECT */
    uint64_t clocks_out;         /* CLOCK messages to the shard */
    uint64_t pulls_in;           /* complete pulls received */
    uint64_t pulls_answered;     /* answered with rows by this aggregator */
    uint64_t pulls_direct;       /* answered SEND_DIRECT; the next six are the reasons */
    uint64_t pulls_direct_table; /* the table is not open here, or this kind of pull is not
                                  * supported here */
    uint64_t pulls_direct_large;
    uint64_t pulls_direct_shard; /* the shard was not connected, disconnected, or is not the process
                                  * that the worker knows */
    uint64_t pulls_direct_busy;  /* the transport did not accept the request to the shard */
    uint64_t pulls_direct_late;  /* no reply of the shard within pull_patience_ns */
    uint64_t pulls_direct_refused; /* the shard refused the fetch */
    uint64_t fetches_out;          /* PULLs sent to the shard */
    uint64_t pull_rows_in;         /* rows requested by pulls; of these: */
    uint64_t pull_rows_cached;     /* found in the cache, new enough */
    uint64_t pull_rows_shared;     /* arrived in a fetch begun for another pull */
    uint64_t pull_rows_fetched;    /* requested from the shard; each row counts once per fetch */
    uint64_t shard_refusals; /* connections refused by the shard or parent: the number is in use by
                              * another aggregator, or is not accepted */
    uint64_t cycles_detected; /* the parent was this aggregator or below it, or had the same
                               * number */
    uint64_t parent_tables_refused; /* refused by the parent, including `cycles_detected` */
    uint64_t children_refused; /* child connections refused: number in use by another aggregator, or
                                * out of range */
    uint64_t tables_refused;
    uint64_t workers_replaced;
    uint64_t peers_ignored;
};

/* Current values. */
struct weft_aggregator_gauges {
    uint32_t workers_connected;
    uint32_t children_connected;
    uint32_t groups_open;   /* accepting pushes */
    uint32_t groups_sent;   /* sent or ready to send; no reply yet */
    uint32_t pulls_waiting; /* waiting for rows from the shard */
    uint32_t rows_cached;
    bool shard_up;
};

/* Defaults: 16 workers, 4 tables, 4 push slots of 8 MiB each, 16 groups, sums sent after 2 ms (300
 * ms if a scheduler assigned them); 4 pull slots of 16,384 rows each, a cache of 64 MiB whose rows
 * are used for 2 ms in ASP, and at most 500 ms of waiting for the shard. */
void weft_aggregator_config_default(struct weft_aggregator_config *config_p);

/* Upper bound of posted expectations. */
uint32_t weft_aggregator_expects_max(const struct weft_aggregator_config *config);

/* Owns:    gives *aggregator_p; allocates all memory it will use.
 * Errors:  WEFT_INVALID, WEFT_NOMEM. */
weft_status weft_aggregator_new(const struct weft_aggregator_config *config, struct weft_msgr msgr,
                                struct weft_aggregator **aggregator_p);
/* Free the endpoint first: it borrows this memory. NULL is allowed. */
void weft_aggregator_free(struct weft_aggregator *aggregator);

/* True: neither a connection to the shard (or parent) nor a connection attempt exists. */
bool weft_aggregator_wants_shard(const struct weft_aggregator *aggregator);
/* The driver has begun to connect to the shard (or parent) as this peer. */
void weft_aggregator_connect(struct weft_aggregator *aggregator, weft_peer peer);

void weft_aggregator_event(struct weft_aggregator *aggregator, const struct weft_msg_event *event,
                           uint64_t now_ns);
void weft_aggregator_progress(struct weft_aggregator *aggregator, uint64_t now_ns);

/* Longest time that a push waits in sums: here plus the time that the parent reported for itself
 * and its own parents. */
uint64_t weft_aggregator_age_ns(const struct weft_aggregator *aggregator);

/* Time of the next weft_aggregator_progress call; WEFT_NEVER = none needed. */
uint64_t weft_aggregator_deadline(const struct weft_aggregator *aggregator);

/* Return a connection that the driver has to close. Reasons: another connection has the same rank,
 * a process other than the shard answered at its address, or a worker has to reopen its tables.
 * *for_good_p: another process has this peer's rank; refuse the peer (weft_ep_refuse). */
bool weft_aggregator_take_closed(struct weft_aggregator *aggregator, weft_peer *peer_p,
                                 bool *for_good_p);

const struct weft_aggregator_counters *
weft_aggregator_counters(const struct weft_aggregator *aggregator);
void weft_aggregator_gauges(const struct weft_aggregator *aggregator,
                            struct weft_aggregator_gauges *gauges_p);

#endif
