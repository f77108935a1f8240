/* A shard's side of replication: what the replica lacks, when it is sent, and what waits for it.
 *
 * A *transfer* is what changed of some tables since the replica has confirmed one: their dirty rows with
 * the optimizer's state, and as of the same instant the clocks of the workers and the windows of their
 * pushes. It is cut like a checkpoint (ps/dirty_set.h: rows that are about to change are copied aside
 * first), and sent in pieces while training goes on, WEFT_PIECE_FLIGHT_MAX at a time. One transfer is
 * under way at a time. It begins when half of div_max is used, or a table was not sent yet.
 *
 * The bound: what anybody has been told of the model is within div_max of what a replica that is *ready*
 * has confirmed (ps/divergence.h). While it would not be, every answer to a worker or an aggregator is
 * held: what was applied for it may be lost, and then its sender sends it again, for it was not answered.
 *
 *   SSP, ASP   a table is cut at any time, so a transfer begins as soon as one is wanted.
 *   BSP        a table is cut at the boundary of a clock; and a clock does not end (its rows are not
 *              stepped) while a transfer is under way. So at each boundary a transfer can begin at once,
 *              and none has to begin in the middle of a clock, where it could not. Of several tables one
 *              may be at its boundary while rows of another are stepped: then the transfer waits for those,
 *              and no further clock ends meanwhile.
 *
 * A replica that has connected is not ready before it has all tables, and the bound holds; until it has
 * them answers do not wait. When its connection ends it may still be promoted for replica_lease_ns after
 * it last heard of this shard; so for twice as long, answers that go beyond the bound stay held. After
 * that the shard goes on without. A replica that comes anew gets everything.
 *
 * Not here: pieces as bytes (ps/transfer_piece.h), the other end (ps/replica.h).
 *
 * Source: docs/PROTOCOL.md section 14; docs/SCHEDULER.md, "Replicas"; [mlfabric].
 */
#ifndef WEFT_PS_TRANSFER_H
#define WEFT_PS_TRANSFER_H

#include "ps/shard.h"

/* As it is now; counters since the shard was made. */
struct weft_replication {
    bool connected;
    bool ready;            /* it may be promoted, and the bound holds */
    bool held;             /* answers wait for it */
    double divergence;     /* an upper bound */
    double divergence_max; /* of all times at which an answer was sent while it was ready */
    uint64_t transfers;    /* confirmed */
    uint64_t failed;       /* given up: the memory for copies was used up, or the connection ended */
    uint64_t bytes;        /* of pieces sent */
    uint64_t rows;         /* in them */
    uint64_t holds;        /* times that answers had to begin to wait */
    uint64_t lost;         /* replicas that were ready, and whose connection ended */
};

/* All zero where the shard has no replicas. */
void weft_shard_replication(const struct weft_shard *shard, struct weft_replication *replication_p);

/* When weft_shard_progress has to be called at the latest; WEFT_NEVER = no need. */
uint64_t weft_shard_deadline(const struct weft_shard *shard);

#endif
