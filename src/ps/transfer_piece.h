/* Pieces of a transfer: the format in which a shard sends changed rows, windows and clocks to its
 * replica.
 *
 * A transfer is a sequence of pieces, each one message. A piece has a head and complete *sections*.
 * Only the format is here. This file checks every byte before any part of a transfer is used: each
 * piece alone (weft_piece_unpack), and all pieces together in order (weft_piece_check_*).
 *
 * All numbers are big-endian, except in ROWS, which have the format of checkpoints.
 *
 * Not here: when pieces are sent (ps/transfer.h), and how they are applied (ps/replica.h).
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
    WEFT_PIECE_FLIGHT_MAX = 4, /* pieces for which a replica posts memory */
    WEFT_SECTION_HEAD_BYTES = 16,
    WEFT_SECTION_BYTES_MAX = WEFT_PIECE_BYTES_MAX - WEFT_PIECE_HEAD_BYTES - WEFT_SECTION_HEAD_BYTES,
    WEFT_SECTION_RANK_BYTES = 8 + sizeof(struct weft_retired),
    WEFT_SECTION_PUSHES_BYTES = 8 + WEFT_PUSH_WINDOW_SIZE / 8 + 8,
    WEFT_SECTION_PARTIAL_BYTES = 16, /* and the mask */
    WEFT_CONFIRM_BYTES = 16,
};

/* In the op byte of the tag; distinct from the ops of workers, coordinator and scheduler. */
enum weft_transfer_op {
    WEFT_TRANSFER_PIECE = 96,   /* to the replica */
    WEFT_TRANSFER_CONFIRM = 97, /* from the replica */
};

enum weft_piece_flag {
    WEFT_PIECE_LAST = 0x01,  /* no piece of the transfer follows */
    WEFT_PIECE_READY = 0x02, /* the replica has every table: from now on the bound holds, and it may
                              * be promoted */
    WEFT_PIECE_BEAT = 0x04,  /* heartbeat; part of no transfer */
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
    WEFT_SECTION_TABLE,     /* count: 1 = all rows follow, 0 = changed rows follow; the spec */
    WEFT_SECTION_CLOCKS,    /* u32 of `count` ranks from `first` on */
    WEFT_SECTION_PUSHES,    /* windows of `count` ranks from `first` on */
    WEFT_SECTION_PARTIAL,   /* a push of rank `first` of `count` chunks, partly applied */
    WEFT_SECTION_REMOVED,   /* `count` ids whose rows were removed; ROWS may contain some of them
                             * again */
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

/* Limits of a shard's configuration. */
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

/* Check a piece: a head, and sections of the right lengths that fill the piece.
 * Errors:  WEFT_PROTO  malformed, or for another shard. */
weft_status weft_piece_unpack(const uint8_t *bytes, size_t count,
                              const struct weft_piece_limits *limits,
                              struct weft_piece_head *head_p);

/* Write the head of a section. The caller then writes the body, and weft_section_end pads it.
 * False: no room for the head and section->bytes; nothing is written. */
bool weft_section_begin(struct weft_writer *w, const struct weft_section *section);
void weft_section_end(struct weft_writer *w, uint32_t bytes);

/* Iterate over the sections of an unpacked piece; false at the end. *at_p is 0 at first. */
bool weft_section_next(const uint8_t *piece, const struct weft_piece_head *head, uint32_t *at_p,
                       struct weft_section *section_p);

/* Check a piece's sections against the earlier ones: each section of a table must follow its TABLE
 * section.
 *
 *     weft_piece_check_begin, then weft_piece_check of each piece, in their order
 *
 * Owns:    record_bytes (tables_max,) is the caller's; nonzero for tables of the transfer.
 * Errors:  WEFT_PROTO. */
void weft_piece_check_begin(const struct weft_piece_limits *limits, uint32_t *record_bytes);
weft_status weft_piece_check(const struct weft_piece_limits *limits, uint32_t *record_bytes,
                             const uint8_t *piece, const struct weft_piece_head *head);

/* Size of a record of such a table. */
uint32_t weft_piece_record_bytes(const struct weft_table_spec *spec);

void weft_section_pushes_write(struct weft_writer *w, const struct weft_push_window *window);
/* Shape: body (WEFT_SECTION_PUSHES_BYTES,). */
void weft_section_pushes_read(const uint8_t *body, struct weft_push_window *window_p);

/* ---- CONFIRM --------------------------------------------------------------------------------- */

struct weft_confirm {
    uint64_t transfer;
    bool refused; /* the replica kept nothing of the transfer */
};

/* Shape: out (WEFT_CONFIRM_BYTES,). */
void weft_confirm_pack(const struct weft_confirm *confirm, uint8_t *out);
/* Errors: WEFT_PROTO. */
weft_status weft_confirm_unpack(const void *bytes, size_t count, struct weft_confirm *confirm_p);

#endif
