/* What shard_aggregate.c (messages) and shard_aggregate_apply.c (their content) share. */
#ifndef WEFT_PS_SHARD_AGGREGATE_H
#define WEFT_PS_SHARD_AGGREGATE_H

#include "ps/shard_internal.h"

enum aggregate_state {
    AGGREGATE_IDLE,
    AGGREGATE_POSTED,
    AGGREGATE_OPEN,
    AGGREGATE_READY,
    AGGREGATE_SENDING,
};

/* Buffer of one message, from posting it to the reply's SENT event. */
struct shard_aggregate {
    enum aggregate_state state;
    bool stale;   /* OPEN, but its connection was replaced */
    bool stopped; /* OPEN, and others passed it: it has no part in the time any more */
    uint16_t table;
    weft_expect_id expect;
    weft_peer peer;
    struct shard_part since; /* OPEN: at its first chunk; also the next three */
    uint64_t begun;          /* sequence number of its first chunk */
    uint64_t bytes;
    uint64_t passed; /* bytes of aggregates that began later and have ended */
    uint8_t *memory;         /* (WEFT_AGGREGATE_BYTES_MAX,) */
    uint8_t answer[WEFT_RPC_REPLY_BYTES];
};

struct shard_aggregator {
    bool up;
    weft_peer peer;
    uint64_t incarnation;
    uint64_t rival_ns; /* time since when another process requests its number; 0 = none */
};

struct weft_shard_aggregates {
    uint32_t *sessions; /* (tables_max, workers_max): the session in the worker's last TABLE; 0 =
                         * none */
    bool *updates;      /* (tables_max, workers_max): its pushes belong to updates (ps/update.h) */
    uint64_t *ids;      /* (WEFT_AGGREGATE_ROWS_MAX,) scratch, like the next two */
    uint64_t *hashes;
    struct weft_table_row **rows;
    uint8_t order[WEFT_AGGREGATE_MEMBERS_MAX]; /* in which the members' updates open */
    struct shard_aggregator *aggregators; /* (aggregators_max,) */
    struct shard_aggregate *slots;        /* ordered by aggregator */
    uint32_t slot_count;
    uint32_t arriving; /* OPEN, and not stopped */
    uint64_t begun;
    bool ready; /* a reply waits for the transport */
    bool lacks; /* the transport had no room for an expectation */
};

/* True: the message has ended clocks instead of sums. */
static inline bool aggregate_is_ends(const struct weft_aggregate_view *view)
{
    return (view->request.flags & WEFT_AGGREGATE_ENDS) != 0;
}

/* A member's push as a separate request. clock: of the message's tag. */
struct shard_slot weft_shard_aggregate_push(struct weft_shard *shard, uint16_t table,
                                            uint32_t clock,
                                            const struct weft_aggregate_member *member);

/* Check a message of `count` bytes, and apply all of it if it may be.
 * again:    replayed from a journal, which has CLOCK records of its own.
 * Result:   WEFT_RPC_OK: applied. Otherwise nothing is changed, except that rows may have been
 *           created with their initial weights.
 * Out:      *view_p borrows bytes; *refused_p is the rank at fault, if ended clocks are refused. */
enum weft_rpc_status weft_shard_aggregate_take(struct weft_shard *shard,
                                               const struct weft_rpc_tag *tag, const uint8_t *bytes,
                                               size_t count, bool again,
                                               struct weft_aggregate_view *view_p,
                                               uint32_t *refused_p, uint64_t now_ns);

#endif
