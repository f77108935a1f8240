/* An aggregator for one shard: takes pushes of workers, adds up those of one table and clock, and
 * sends the sums to the shard as one message (ps/aggregate.h); passes on which clocks its workers
 * have ended, those of several as one message; and answers pulls of workers, with rows that it
 * keeps or fetches from the shard. A worker's other requests do not come here.
 *
 * A sans-I/O state machine over one transport, which workers connect to and which is connected to
 * the shard. A push is kept until all of it is there, then added to the open group of its table and
 * clock. A group is sent when each worker that has opened the table here has a push in it, when it
 * is old enough, has enough pushes, or room is wanted. Workers are answered when the shard has
 * answered: OK, or SEND_DIRECT, which costs them a second way and nothing else. What an aggregator
 * loses, by dying for instance, its workers still have.
 *
 * A row that it keeps is of a version, the minimum clock of all workers when the shard read it, and has an
 * age: the time since it was asked for. A pull is answered with a row whose version is at least the one that
 * it waits for, and that is not older than the pull says: for that is how long ago the worker's own last push
 * was closed. In ASP it must not be older than pull_age_ns, either. What is not there is fetched, once for all
 * workers that wait for it. A worker says which process of the shard it is connected to; rows of another one
 * are nothing to it, and all are dropped when the connection to the shard ends. What does not fit the memory
 * goes: the row that was put there first.
 *
 * In a tree an aggregator is connected to another one, its *parent*, instead of the shard. It is to
 * the parent what a worker is, but for its pushes, which come as AGGREGATE: the parent adds their
 * sums up, and their members are those of what it sends on. So the shard sees each push of a worker
 * by name, however many have added it up, and counts it once. An aggregator that is its own parent,
 * directly or by others, is refused.
 *
 *     on every event: weft_aggregator_event; after a batch: weft_aggregator_progress; sleep until
 *     weft_aggregator_deadline.
 *     when the shard is not connected (weft_aggregator_wants_shard): connect; weft_aggregator_connect.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates"; [imc20] section 4; [mlfabric] section 5.
 */
#ifndef WEFT_PS_AGGREGATOR_H
#define WEFT_PS_AGGREGATOR_H

#include "base/hash_key.h"
#include "core/msg.h"
#include "ps/aggregate.h"

struct weft_aggregator;

struct weft_aggregator_config {
    uint32_t number;       /* of it, among those of the job: in the endpoint's name */
    uint32_t shard;        /* whose name is expected */
    uint32_t workers_max;  /* ranks 0 .. workers_max - 1 may connect */
    uint32_t children_max; /* aggregators 0 .. children_max - 1 may, too: it is their parent */
    bool has_parent; /* what it is connected to is another aggregator, in the place of the shard */
    uint32_t tables_max;     /* tables 0 .. tables_max - 1 */
    uint32_t push_slots;     /* pushes of one worker that arrive at a time, <= 60 */
    uint32_t push_bytes_max; /* of rows in one push, 8 bytes and its values each; larger ones go
                              * direct. So much memory has each slot, touched when it is used */
    uint32_t groups_max; /* sums that are made at a time; the oldest is sent when more are wanted */
    uint32_t count_max;  /* pushes after which a group is sent; 0 = as many as it can have */
    uint64_t
        age_ns; /* after which it is sent, or when the shard takes one more message after that */
    uint64_t sum_age_ns; /* the same of a sum that a scheduler wants, unless age_ns is longer */
    bool by_age_asp; /* sums of ASP tables wait for it, or the count, also when all workers are in
                        them */
    uint32_t
        pull_slots; /* pulls of one worker that are answered at a time, <= 16; 0: they go direct */
    uint32_t
        pull_rows_max;    /* of one pull, and push_bytes_max of its answer; larger ones go direct */
    uint64_t cache_bytes; /* of rows that are kept; each table has an equal part */
    uint64_t pull_age_ns; /* ASP: rows older than this are fetched again */
    uint64_t pull_patience_ns; /* a pull that waited so long for the shard goes direct: less than
                                * the time after which workers take an aggregator for dead */
    uint8_t key[WEFT_HASH_KEY_BYTES]; /* drawn by the driver */
    uint64_t (*clock_ns)(void *arg);  /* on the clock of now_ns */
    void *clock_arg;
};

/* Cumulative. */
struct weft_aggregator_counters {
    uint64_t pushes_in;     /* pushes that were there, whole, those in the next, too */
    uint64_t aggregates_in; /* of children */
    uint64_t pushes_direct; /* of these, told to go direct; the next five say why */
    uint64_t direct_table;  /* its table is not open here, or cannot be added up */
    uint64_t direct_form; /* it names a list, is malformed, has its number twice, or a value that is
                             not finite */
    uint64_t direct_large;    /* more rows than there is memory for */
    uint64_t direct_shard;    /* the shard was away, or went */
    uint64_t direct_refused;  /* the shard refused what it was in */
    uint64_t pushes_absorbed; /* committed by the shard */
    uint64_t aggregates_out;  /* messages to the shard; the next four say why they were sent */
    uint64_t flushed_all;     /* all workers were in it */
    uint64_t flushed_count;
    uint64_t flushed_age;
    uint64_t flushed_pressure;
    uint64_t rows_in;        /* gradients of rows, in pushes that were added up */
    uint64_t rows_out;       /* sums of rows, sent */
    uint64_t bytes_in;       /* of those pushes */
    uint64_t bytes_out;      /* of the messages */
    uint64_t clocks_in;      /* clocks that members have ended, as told by workers and children */
    uint64_t clocks_passed;  /* of these, the shard has taken */
    uint64_t clocks_direct;  /* and of these, were sent to the shard directly after all */
    uint64_t clocks_out;     /* messages that told of them */
    uint64_t pulls_in;       /* pulls that were there, whole */
    uint64_t pulls_answered; /* from here */
    uint64_t pulls_direct;   /* told to go direct; the next five say why */
    uint64_t
        pulls_direct_table; /* its table is not open here, or it is none that is answered here */
    uint64_t pulls_direct_large;
    uint64_t
        pulls_direct_shard; /* the shard was away, went, or is another process than the worker's */
    uint64_t pulls_direct_busy;    /* the transport took no request to the shard */
    uint64_t pulls_direct_late;    /* the shard had not answered in pull_patience_ns */
    uint64_t pulls_direct_refused; /* the shard refused what was fetched for it */
    uint64_t fetches_out;          /* requests to the shard */
    uint64_t pull_rows_in;         /* rows of pulls; of these: */
    uint64_t pull_rows_cached;     /* were here, and good; */
    uint64_t pull_rows_shared;     /* came with a row that was asked for for another pull; */
    uint64_t pull_rows_fetched;    /* were asked for, each once in a fetch */
    uint64_t shard_refusals; /* connections to the shard or the parent that ended because it has
                              * another aggregator of this number, or takes none of it */
    uint64_t loops; /* times that the parent was this aggregator, was below it, or has its number */
    uint64_t parent_tables_refused; /* by the parent, those that were loops included */
    uint64_t children_refused; /* connections of aggregators: of a number that is another's or not
                                  taken */
    uint64_t tables_refused;
    uint64_t workers_replaced;
    uint64_t peers_ignored;
};

/* As it is now. */
struct weft_aggregator_gauges {
    uint32_t workers_connected;
    uint32_t children_connected;
    uint32_t groups_open;   /* being made */
    uint32_t groups_sent;   /* not answered yet */
    uint32_t pulls_waiting; /* for the shard */
    uint32_t rows_cached;
    bool shard_up;
};

/* The reasonable: 16 workers, 4 tables, 4 slots of 4 MiB each, 4 groups, 2 ms; 4 pulls of 16,384
 * rows each, 64 MiB of rows, 2 ms, 500 ms. */
void weft_aggregator_config_default(struct weft_aggregator_config *config_p);

/* Expectations that it posts at most, and peers that it has. */
uint32_t weft_aggregator_expects_max(const struct weft_aggregator_config *config);

/* Owns:    gives *aggregator_p; allocates all memory it will use.
 * Errors:  WEFT_INVALID, WEFT_NOMEM. */
weft_status weft_aggregator_new(const struct weft_aggregator_config *config, struct weft_msgr msgr,
                                struct weft_aggregator **aggregator_p);
/* Free the endpoint first: it borrows this memory. NULL is fine. */
void weft_aggregator_free(struct weft_aggregator *aggregator);

/* The shard, or the parent, is not connected, nor connecting. */
bool weft_aggregator_wants_shard(const struct weft_aggregator *aggregator);
/* This peer is it: connecting. */
void weft_aggregator_connect(struct weft_aggregator *aggregator, weft_peer peer);

void weft_aggregator_event(struct weft_aggregator *aggregator, const struct weft_msg_event *event,
                           uint64_t now_ns);
void weft_aggregator_progress(struct weft_aggregator *aggregator, uint64_t now_ns);

/* A sum of pushes waits so long at most: here and, as far as the parent has said, above. */
uint64_t weft_aggregator_age_ns(const struct weft_aggregator *aggregator);

/* When progress has something to do at the latest; WEFT_NEVER. */
uint64_t weft_aggregator_deadline(const struct weft_aggregator *aggregator);

/* A connection for the driver to close: of a rank that another connection has, of what answered in
 * the place of the shard, of workers who are to ask for their tables anew. *for_good_p: another
 * process has its place; it is told so (weft_ep_refuse). */
bool weft_aggregator_take_closed(struct weft_aggregator *aggregator, weft_peer *peer_p,
                                 bool *for_good_p);

const struct weft_aggregator_counters *
weft_aggregator_counters(const struct weft_aggregator *aggregator);
void weft_aggregator_gauges(const struct weft_aggregator *aggregator,
                            struct weft_aggregator_gauges *gauges_p);

#endif
