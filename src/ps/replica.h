/* A replica of one shard: it receives the shard's transfers, and can replace the shard.
 *
 * Pieces are kept in memory lent by the driver until the last one of their transfer has arrived.
 * Then all are checked, and restored into a shard without connections (ps/snapshot.h, "restoring")
 * in one step, between two events. Then the transfer is confirmed. A transfer that is refused or
 * interrupted has no effect: its pieces are discarded at the first piece of another transfer, or at
 * the end of the connection.
 *
 * One object serves one connection. After a reconnection the shard sends everything again, so the
 * driver recreates the replica and the shard behind it.
 *
 *     weft_replica_new; connect; every event of the endpoint: weft_replica_event; after a batch:
 *     weft_replica_progress, then while weft_replica_wants_piece: weft_replica_add_piece. To
 *     promote: weft_replica_may_be_promoted, then weft_replica_end; from then on events that
 *     weft_replica_event does not consume belong to the shard.
 *
 * Not here: the decision to promote. The replica's consent is necessary, but not sufficient: the
 * caller must also ensure that no other process serves the shard (the lease of the job's
 * coordinator; the claim of a checkpoint directory).
 *
 * Thread:  the shard's. No system call, no clock; only weft_replica_new allocates.
 *
 * Source: docs/PROTOCOL.md section 14; docs/SCHEDULER.md, "Replicas".
 */
#ifndef WEFT_PS_REPLICA_H
#define WEFT_PS_REPLICA_H

#include "ps/shard.h"
#include "ps/transfer_piece.h"

struct weft_replica;

struct weft_replica_config {
    uint32_t pieces_max; /* of one transfer; >= 1 */
    /* Supply the row memory that the shard requests, as far as available. */
    void (*supply)(struct weft_shard *shard);
};

enum weft_replica_why {
    WEFT_REPLICA_GOOD,
    WEFT_REPLICA_NOT_READY, /* its shard has not reported it READY */
    WEFT_REPLICA_OLD,       /* no message of its shard for longer than the lease */
    WEFT_REPLICA_TOO_LARGE, /* a transfer has more than pieces_max */
    WEFT_REPLICA_REFUSED,   /* a transfer was refused: invalid, or no memory */
};

/* Counters since weft_replica_new. */
struct weft_replica_state {
    bool connected;
    bool ready; /* reported by its shard: it lacks no more than the bound allows */
    bool refused;
    bool too_large; /* refused, for this reason */
    uint64_t transfers;
    uint64_t pieces;
    uint64_t pieces_bad; /* malformed pieces; the whole transfer is dropped */
    uint64_t bytes;
    uint64_t rows;
    uint64_t heard_ns; /* arrival of the last piece; 0 = none */
};

/* pieces_max 65,536: 4 GiB. The caller sets supply. */
void weft_replica_config_default(struct weft_replica_config *config_p);

/* shard: has the configuration of the replicated shard, and no connections.
 * Owns:    borrows shard until free; gives *replica_p.
 * Errors:  WEFT_NOMEM, WEFT_INVALID. */
weft_status weft_replica_new(const struct weft_replica_config *config, struct weft_shard *shard,
                             struct weft_msgr msgr, struct weft_replica **replica_p);
/* Take back all pieces, and close the endpoint first. NULL is allowed. */
void weft_replica_free(struct weft_replica *replica);

/* Most expectations that it posts. */
enum { WEFT_REPLICA_EXPECTS = WEFT_PIECE_FLIGHT_MAX };

/* Process an event. False: the event is unrelated to replication. */
bool weft_replica_event(struct weft_replica *replica, const struct weft_msg_event *event,
                        uint64_t now_ns);

/* Post memory and send confirmations. */
void weft_replica_progress(struct weft_replica *replica, uint64_t now_ns);

/* Memory for pieces, WEFT_PIECE_BYTES_MAX each, 8-byte aligned. The driver need not supply it: the
 * shard waits. */
bool weft_replica_wants_piece(const struct weft_replica *replica);
/* Owns: borrows memory until weft_replica_take_piece gives it back. */
void weft_replica_add_piece(struct weft_replica *replica, void *memory);
/* An unused piece beyond the few that are always needed (all: any unused piece); NULL = none. */
void *weft_replica_take_piece(struct weft_replica *replica, bool all);

/* May this replica replace the shard, as far as it can determine? at_ns: the shard has sent no
 * reply since this time: now, or earlier if it is known to have been dead then. */
enum weft_replica_why weft_replica_may_be_promoted(const struct weft_replica *replica,
                                                   uint64_t at_ns);
const char *weft_replica_why_text(enum weft_replica_why why);

/* Stop: cancel posted expectations, drop an incomplete transfer. */
void weft_replica_end(struct weft_replica *replica);

const struct weft_replica_state *weft_replica_state(const struct weft_replica *replica);

/* The connection, for the driver to close; WEFT_PEER_ANY = none. */
weft_peer weft_replica_peer(const struct weft_replica *replica);

#endif
