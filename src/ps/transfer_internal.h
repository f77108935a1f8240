/* The inside of transfers, shared by transfer.c (when, and what waits) and transfer_cut.c (what is in one).
 * Not for others. */
#ifndef WEFT_PS_TRANSFER_INTERNAL_H
#define WEFT_PS_TRANSFER_INTERNAL_H

#include "ps/divergence.h"
#include "ps/shard_internal.h"
#include "ps/transfer.h"
#include "ps/transfer_piece.h"
#include "ps/dirty_set.h"

struct transfer_piece {
    bool is_full; /* made, and not taken by the transport yet */
    bool is_busy; /* borrowed by it */
    uint32_t bytes;
    uint8_t *memory; /* (WEFT_PIECE_BYTES_MAX,) */
};

struct weft_transfer {
    struct weft_replication state;
    weft_peer peer;
    bool is_posted;
    weft_expect_id expect;
    bool is_lost; /* a ready one is gone; it may be promoted for a while */
    uint64_t lost_until_ns;
    uint64_t spoken_ns;
    uint64_t number; /* of the transfer under way, or the last */
    bool is_active;
    bool is_ended;    /* its last piece is made */
    bool is_complete; /* with it the replica has every table */
    bool is_whole;    /* the replica has every table: answers wait */
    bool is_waiting;  /* one is wanted, and begins when no rows are being stepped: no clock ends before */
    uint32_t index;   /* of the next piece */
    bool *sent;       /* (tables_max,): the replica has the table */
    bool *in_cut;     /* (tables_max,): it is in the transfer under way */
    struct weft_dirty_set *dirty_sets;    /* (tables_max,) */
    struct weft_divergence *divergences; /* (tables_max,) */
    struct weft_cow_buffer cow;          /* of all of spill_memory while a transfer is under way */
    uint8_t *cow_memory;
    uint8_t *head; /* sections as of the cut: all but rows */
    size_t head_max;
    size_t head_bytes;
    size_t head_at;
    struct transfer_piece pieces[WEFT_PIECE_FLIGHT_MAX];
};

/* transfer_cut.c */

/* Bytes of all sections but rows, at most. */
size_t weft_transfer_head_max(const struct weft_shard *shard);
/* As of now: who has which rank; a table, whose rows go with the transfer, with its clocks and windows.
 * w has room for all of it. */
void weft_transfer_cut_ranks(const struct weft_shard *shard, struct weft_writer *w);
void weft_transfer_cut_table(struct weft_shard *shard, struct weft_writer *w, uint16_t table);
/* As many whole sections of the transfer as there is room for. True: they were the last. */
bool weft_transfer_put(struct weft_shard *shard, struct weft_writer *w);

#endif
