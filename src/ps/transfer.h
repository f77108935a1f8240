/* A shard's side of replication: the data that the replica lacks, when it is sent, and what is
 * delayed until the replica has it.
 *
 * A *transfer* contains the changes of some tables since the last transfer that the replica
 * confirmed: their dirty rows with the optimizer's state, and, as of the same instant, the clocks
 * of the workers and the windows of their pushes. It is a snapshot like a checkpoint
 * (ps/dirty_set.h: rows that are about to change are copied first), and is sent in pieces while
 * training continues, WEFT_PIECE_FLIGHT_MAX at a time. At most one transfer is in progress. It
 * begins when half of div_max is used, or a table has not been sent yet; with a scheduler it then
 * waits for a grant, as long as the bound allows (weft_shard_transfers_wait).
 *
 * The bound: every state of the model that a reply has reported is within div_max of the state that
 * a *ready* replica has confirmed (ps/divergence.h). While this would not hold, every reply to a
 * worker or an aggregator is held: the update behind it may be lost, and its sender then sends the
 * update again, because it has received no reply.
 *
 *   SSP, ASP   a snapshot of a table is possible at any time, so a transfer begins as soon as it is
 *              due.
 *   BSP        a snapshot of a table is possible only between two clocks, and a clock does not end
 *              (its rows are not stepped) during a transfer. At each boundary a transfer can
 *              therefore begin at once, and none has to begin in the middle of a clock, where it
 *              cannot. If one table is at its boundary while rows of another are being stepped, the
 *              transfer waits for these, and no further clock ends meanwhile.
 *
 * A connected replica is ready once it has all tables and the bound holds. Until it has all tables,
 * replies are not held. After its connection has ended, it may still be promoted for
 * replica_lease_ns after it last received a message of this shard. For twice that time replies that
 * would exceed the bound therefore stay held. Afterwards the shard continues without a replica. A
 * replica that connects again receives all tables.
 *
 * Not here: pieces as bytes (ps/transfer_piece.h), the other end (ps/replica.h).
 *
 * Source: docs/PROTOCOL.md section 14; docs/SCHEDULER.md, "Replicas"; [mlfabric].
 */
#ifndef WEFT_PS_TRANSFER_H
#define WEFT_PS_TRANSFER_H

#include "ps/shard.h"

/* The current state, and counters since the shard was created. */
struct weft_replication {
    bool connected;
    bool ready;            /* it may be promoted, and the bound holds */
    bool held;             /* replies are held for it */
    double bound;          /* of this shard: div_max of the job / sqrt(shards) */
    double divergence;     /* an upper bound of the distance now */
    double divergence_max; /* over all times at which a reply was sent while it was ready */
    uint64_t transfers;    /* confirmed */
    uint64_t failed;       /* aborted: memory for copies was exhausted, or the connection ended */
    uint64_t bytes;        /* of pieces sent */
    uint64_t rows;         /* in them */
    uint64_t holds;        /* times that replies began to be held */
    uint64_t lost;         /* replicas that were ready, and whose connection ended */
};

/* All zero if the shard has no replicas. */
void weft_shard_replication(const struct weft_shard *shard, struct weft_replication *replication_p);

/* With a scheduler: whether a transfer that is due waits for weft_shard_transfer_begin, so that it
 * is sent in idle bandwidth; initially false. None waits until the replica has all tables, when
 * more than 3/4 of div_max is used, or if the shard has a table in BSP, which can be cut only
 * between two clocks. */
void weft_shard_transfers_wait(struct weft_shard *shard, bool wait);
/* The number of the transfer that waits (*waits_p), or that is in progress; 0 = none. *bytes_p: an
 * estimate of its length, > 0. */
uint32_t weft_shard_transfer_now(const struct weft_shard *shard, bool *waits_p, uint64_t *bytes_p);
/* The transfer that waits begins. No effect if none waits. */
void weft_shard_transfer_begin(struct weft_shard *shard, uint64_t now_ns);

/* Latest time at which weft_shard_progress must be called; WEFT_NEVER = none. */
uint64_t weft_shard_deadline(const struct weft_shard *shard);

#endif
