/* Private state of replica transfers, shared by transfer.c (when they start, and what they delay)
 * and transfer_cut.c (their contents). Internal to these two files. */
#ifndef WEFT_PS_TRANSFER_INTERNAL_H
#define WEFT_PS_TRANSFER_INTERNAL_H

#include "ps/divergence.h"
#include "ps/shard_internal.h"
#include "ps/transfer.h"
#include "ps/transfer_piece.h"
#include "ps/dirty_set.h"

struct transfer_piece {
    bool is_full; /* filled, not yet accepted by the transport */
    bool is_busy; /* being sent: the transport borrows the memory */
    uint32_t bytes;
    uint8_t *memory; /* (WEFT_PIECE_BYTES_MAX,) */
};

struct weft_transfer {
    struct weft_replication state;
    weft_peer peer;
    bool is_posted;
    weft_expect_id expect;
    bool is_lost; /* the connection to a ready replica ended; until lost_until_ns it may still be
                   * promoted */
    uint64_t lost_until_ns;
    uint64_t spoken_ns; /* when the last piece or heartbeat was sent, or the replica connected; 0 =
                         * send one now */
    uint64_t number;    /* of the transfer in progress, or of the previous one */
    bool is_active;
    bool is_ended;    /* its last piece is filled */
    bool is_complete; /* after this transfer the replica has all tables */
    bool is_whole;    /* the replica has all tables: replies may be delayed for it */
    bool is_waiting;  /* a transfer is due, and starts once no optimizer step is in progress; until
                       * then no clock ends */
    bool is_planned;  /* transfers wait for weft_shard_transfer_begin */
    bool is_asking;   /* a transfer is due, and waits for it */
    bool may_begin;   /* it was called for the next transfer */
    uint64_t bytes_before; /* state.bytes when the transfer began */
    uint64_t bytes_last;   /* of the last transfer that was confirmed */
    uint32_t index;   /* of the next piece */
    bool *sent;       /* (tables_max,): the replica has the table */
    bool *in_cut;     /* (tables_max,): the table is part of the transfer in progress */
    struct weft_dirty_set *dirty_sets;   /* (tables_max,) */
    struct weft_divergence *divergences; /* (tables_max,) */
    struct weft_cow_buffer cow;          /* uses all of cow_memory during a transfer */
    uint8_t *cow_memory;
    uint8_t *head; /* all sections except rows, as of the snapshot */
    size_t head_max;
    size_t head_bytes;
    size_t head_at;
    struct transfer_piece pieces[WEFT_PIECE_FLIGHT_MAX];
};

/* transfer_cut.c */

/* Maximum size in bytes of all sections except rows. */
size_t weft_transfer_head_max(const struct weft_shard *shard);
/* Write the current assignment of ranks, or take the snapshot of a table: its clocks and the
 * windows of its pushes are written now, its rows are sent later in the transfer. w must have
 * enough space. */
void weft_transfer_cut_ranks(const struct weft_shard *shard, struct weft_writer *w);
void weft_transfer_cut_table(struct weft_shard *shard, struct weft_writer *w, uint16_t table);
/* Write as many complete sections of the transfer as fit. Returns true if they were the last. */
bool weft_transfer_put(struct weft_shard *shard, struct weft_writer *w);

#endif
