/* A replica of one shard: it takes the shard's transfers, and is a shard that can go on in its place.
 *
 * Pieces are kept in memory lent by the driver until the last one of their transfer is there; then all of
 * them are looked at, and put into a shard that nobody has connected to (ps/snapshot.h, "restoring") at
 * once, between two events; then the transfer is confirmed. A transfer that is refused, or breaks off,
 * leaves nothing: with the first piece of another one, or the end of the connection, its pieces are gone.
 *
 * One object is for one connection. When that ends and comes again, the shard sends everything anew, so
 * the driver makes both anew, this and the shard behind it.
 *
 *     weft_replica_new; connect; every event of the endpoint: weft_replica_event; after a batch:
 *     weft_replica_progress, then while weft_replica_wants_piece: weft_replica_add_piece.
 *     To promote: weft_replica_may_be_promoted, then weft_replica_end; from then on events that
 *     weft_replica_event does not take are the shard's.
 *
 * Not here: whether it is to be promoted. Its own word is necessary, and not enough: who asks must know
 * that nobody else serves the shard (the lease of the job's coordinator; the claim of a checkpoint
 * directory).
 *
 * Thread:  the shard's. No system call, no clock; memory is taken by weft_replica_new alone.
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
    /* Gives the shard the row memory that it asks for, as far as there is some. */
    void (*supply)(struct weft_shard *shard);
};

enum weft_replica_why {
    WEFT_REPLICA_GOOD,
    WEFT_REPLICA_NOT_READY, /* its shard has not said that it has every table */
    WEFT_REPLICA_OLD,          /* it has not heard of its shard for longer than the lease */
    WEFT_REPLICA_TOO_LARGE,    /* a transfer has more than pieces_max */
    WEFT_REPLICA_REFUSED,      /* a transfer that could not be taken: WEFT_REPLICA_NO_MEMORY, or not valid */
};

/* Counters since weft_replica_new. */
struct weft_replica_state {
    bool connected;
    bool ready; /* its shard has said so: it has everything but what the bound allows */
    bool refused;
    bool too_large; /* and that is why */
    uint64_t transfers;
    uint64_t pieces;
    uint64_t pieces_bad; /* not valid by themselves: dropped, and the transfer with them */
    uint64_t bytes;
    uint64_t rows;
    uint64_t heard_ns; /* when the last piece came; 0 = none did */
};

/* pieces_max 65,536: 4 GiB. supply is left to fill in. */
void weft_replica_config_default(struct weft_replica_config *config_p);

/* shard: made with the configuration of the one it replicates, and not connected to.
 * Owns:    borrows shard until free; gives *replica_p.
 * Errors:  WEFT_NOMEM, WEFT_INVALID. */
weft_status weft_replica_new(const struct weft_replica_config *config, struct weft_shard *shard,
                             struct weft_msgr msgr, struct weft_replica **replica_p);
/* All pieces must have been taken back, and the endpoint be closed. NULL is fine. */
void weft_replica_free(struct weft_replica *replica);

/* Expectations that it posts at most. */
enum { WEFT_REPLICA_EXPECTS = WEFT_PIECE_FLIGHT_MAX };

/* Take an event. False: it has nothing to do with replication. */
bool weft_replica_event(struct weft_replica *replica, const struct weft_msg_event *event,
                        uint64_t now_ns);

/* Post memory, send what is to be confirmed. */
void weft_replica_progress(struct weft_replica *replica, uint64_t now_ns);

/* Memory for pieces, WEFT_PIECE_BYTES_MAX each, 8-byte aligned. Not giving it is allowed: the shard
 * waits. */
bool weft_replica_wants_piece(const struct weft_replica *replica);
/* Owns: borrows memory until weft_replica_take_piece gives it back. */
void weft_replica_add_piece(struct weft_replica *replica, void *memory);
/* A piece that is not in use, and more than the few that are always wanted (all: any); NULL = none. */
void *weft_replica_take_piece(struct weft_replica *replica, bool all);

/* May this replica take the shard's place, for all that it knows? The shard has told nobody anything since
 * at_ns: now; or earlier, if it is known to have been dead then. */
enum weft_replica_why weft_replica_may_be_promoted(const struct weft_replica *replica,
                                                   uint64_t at_ns);
const char *weft_replica_why_text(enum weft_replica_why why);

/* It takes no more: what is posted is taken back, a transfer that is not whole is dropped. */
void weft_replica_end(struct weft_replica *replica);

const struct weft_replica_state *weft_replica_state(const struct weft_replica *replica);

/* The connection, WEFT_PEER_ANY without: for the driver to close. */
weft_peer weft_replica_peer(const struct weft_replica *replica);

#endif
