/* Pieces of a transfer: how the rows, windows and clocks that changed travel from a shard to its
 * replica.
 *
 * A transfer is a sequence of pieces, each a message; a piece is a head and whole *sections*. Only the
 * format is here: every byte is looked at in this file before anything of a transfer is used, one piece
 * by itself (weft_piece_unpack) and all of them together, in their order (weft_piece_check_*).
 *
 * All numbers are big-endian, but those of ROWS, which are as a checkpoint keeps them.
 *
 * Not here: who sends what when (ps/transfer.h), and what becomes of it (ps/replica.h).
 *
 * Source: docs/PROTOCOL.md section 14.
 */
#ifndef WEFT_PS_TRANSFER_PIECE_H
#define WEFT_PS_TRANSFER_PIECE_H

#include "base/cursor.h"
#include "ps/push_window.h"
#include "ps/retired.h"
#include "rpc/table_spec.h"

enum {
    WEFT_PIECE_BYTES_MAX = 65536,
    WEFT_PIECE_HEAD_BYTES = 32,
    WEFT_PIECE_ELEM_BYTES = 8, /* of the messages: every length is a multiple */
    WEFT_PIECE_VERSION = 1,
    WEFT_PIECE_FLIGHT_MAX = 4, /* pieces that a replica has memory posted for */
    WEFT_SECTION_HEAD_BYTES = 16,
    WEFT_SECTION_BYTES_MAX = WEFT_PIECE_BYTES_MAX - WEFT_PIECE_HEAD_BYTES - WEFT_SECTION_HEAD_BYTES,
    WEFT_SECTION_RANK_BYTES = 8 + sizeof(struct weft_retired),
    WEFT_SECTION_PUSHES_BYTES = 8 + WEFT_PUSH_WINDOW_SIZE / 8 + 8,
    WEFT_SECTION_PARTIAL_BYTES = 16, /* and the mask */
    WEFT_CONFIRM_BYTES = 16,
};

/* In the op byte of the tag; apart from those of workers, coordinator and scheduler. */
enum weft_transfer_op {
    WEFT_TRANSFER_PIECE = 96,   /* to the replica */
    WEFT_TRANSFER_CONFIRM = 97, /* from it */
};

enum weft_piece_flag {
    WEFT_PIECE_LAST = 0x01,     /* no piece of the transfer follows */
    WEFT_PIECE_READY = 0x02, /* the shard knows that this replica has every table: from now on the bound
                              * holds, and it may be promoted */
    WEFT_PIECE_BEAT = 0x04,     /* of no transfer: its sender lives, that is all */
};

struct weft_piece_head {
    uint64_t transfer; /* >= 1; BEAT: 0 */
    uint32_t index;    /* from 0 */
    uint16_t flags;
    uint32_t shard;
    uint32_t shards;
    uint32_t bytes; /* of the sections */
};

enum weft_section_kind {
    WEFT_SECTION_RANKS = 1, /* incarnation and retired of `count` ranks from `first` on */
    WEFT_SECTION_TABLE,     /* count: 1 = all its rows come, 0 = those that changed; its spec */
    WEFT_SECTION_CLOCKS,    /* u32 of `count` ranks from `first` on */
    WEFT_SECTION_PUSHES,    /* windows of `count` ranks from `first` on */
    WEFT_SECTION_PARTIAL,   /* a push of rank `first` of `count` chunks, of which some are applied */
    WEFT_SECTION_REMOVED,   /* `count` ids whose rows are gone; of them some may come among ROWS */
    WEFT_SECTION_ROWS,      /* `count` records (ps/table.h) */
};

struct weft_section {
    uint16_t kind;
    uint16_t table;
    uint32_t count;
    uint32_t first;
    uint32_t bytes; /* of the body, without its padding */
    const uint8_t *body;
};

/* What a shard allows. */
struct weft_piece_limits {
    uint32_t shard;
    uint32_t shards;
    uint32_t tables_max;
    uint32_t workers_max;
    uint32_t dim_max;
    uint32_t chunks_max;
};

/* Shape: out (WEFT_PIECE_HEAD_BYTES,). */
void weft_piece_head_pack(const struct weft_piece_head *head, uint8_t *out);

/* A head, and sections that fill the piece, each as long as its numbers say.
 * Errors:  WEFT_PROTO  it is not, or not for this shard. */
weft_status weft_piece_unpack(const uint8_t *bytes, size_t count,
                              const struct weft_piece_limits *limits,
                              struct weft_piece_head *head_p);

/* The head of a section; behind it the caller writes its body, then weft_section_end pads it.
 * False: no room for it and for so many bytes; nothing is written. */
bool weft_section_begin(struct weft_writer *w, const struct weft_section *section);
void weft_section_end(struct weft_writer *w, uint32_t bytes);

/* Sections of a piece that was unpacked, one after the other; false at the end. *at_p is 0 at first. */
bool weft_section_next(const uint8_t *piece, const struct weft_piece_head *head, uint32_t *at_p,
                       struct weft_section *section_p);

/* A piece's sections in the light of those before: what a table is asked about, it was told of.
 *
 *     weft_piece_check_begin, then weft_piece_check of each piece, in their order
 *
 * Owns:    record_bytes (tables_max,) is the caller's; of a table that the transfer has, else 0.
 * Errors:  WEFT_PROTO. */
void weft_piece_check_begin(const struct weft_piece_limits *limits, uint32_t *record_bytes);
weft_status weft_piece_check(const struct weft_piece_limits *limits, uint32_t *record_bytes,
                             const uint8_t *piece, const struct weft_piece_head *head);

/* Of a record of such a table. */
uint32_t weft_piece_record_bytes(const struct weft_table_spec *spec);

void weft_section_pushes_write(struct weft_writer *w, const struct weft_push_window *window);
/* Shape: body (WEFT_SECTION_PUSHES_BYTES,). */
void weft_section_pushes_read(const uint8_t *body, struct weft_push_window *window_p);

/* ---- CONFIRM --------------------------------------------------------------------------------- */

struct weft_confirm {
    uint64_t transfer;
    bool refused; /* and nothing of it is there */
};

/* Shape: out (WEFT_CONFIRM_BYTES,). */
void weft_confirm_pack(const struct weft_confirm *confirm, uint8_t *out);
/* Errors: WEFT_PROTO. */
weft_status weft_confirm_unpack(const void *bytes, size_t count, struct weft_confirm *confirm_p);

#endif
