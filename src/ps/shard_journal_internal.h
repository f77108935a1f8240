/* Format of the records of a shard's journal, shared by shard_journal.c, which writes them, and
 * shard_journal_replay.c, which replays them. Internal to these two files.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_PS_SHARD_JOURNAL_INTERNAL_H
#define WEFT_PS_SHARD_JOURNAL_INTERNAL_H

#include "ps/shard_journal.h"
#include "ps/journal_ring.h"
#include "ps/shard_internal.h"

#include <assert.h>
#include <stddef.h>

/* The ring's own types are 0 and 65,535. */
enum record_type {
    RECORD_CHUNK = 1, /* struct chunk_body, then the chunk as received; if it names a list, then its
                       * ids (shard_list.c) */
    RECORD_CLOSED,    /* value: number of the push, which is complete within its bound */
    RECORD_CLOCK,     /* value: clock finished by the rank */
    RECORD_RENEWED,   /* value: incarnation that has the rank from here on */
    RECORD_LEFT,      /* the rank's connection has ended */
    RECORD_TABLE,     /* struct table_body: the rank has opened the table */
    RECORD_MARK,      /* struct mark_body, then for each table: position, bits of its members */
    RECORD_LIFE,      /* another process continues the shard: all connections have ended */
    RECORD_GAP,       /* the journal was full here; later records continue from the cut that begins
                       * here */
    RECORD_AGGREGATE, /* value: clock; then the message as received (ps/aggregate.h) */
    RECORD_EVICTING,  /* CHUNK that evicted rows: struct chunk_body, struct evicting_body, the ids
                       * of these rows, padded; then as CHUNK */
    RECORD_REFUSED,   /* the same of a chunk for which there was no room, and which was not
                       * applied */
};

struct value_body {
    uint64_t value;
    uint64_t bytes; /* AGGREGATE: of the message; else 0 */
    uint64_t reserved[2];
};

struct chunk_body {
    uint64_t number;
    uint32_t clock;
    uint32_t chunk;
    uint32_t chunks;
    uint32_t total;
    uint32_t elems;
    uint16_t elem_bytes;
    uint16_t chunk_elems;
};

struct evicting_body {
    uint32_t evicted; /* rows */
    uint32_t created; /* REFUSED: rows, before one was refused */
    uint64_t reserved[3];
};

struct table_body {
    uint64_t resumes; /* 0, 1 */
    uint8_t spec[WEFT_RPC_SPEC_BYTES];
    uint8_t pushes[WEFT_RPC_PUSHES_BYTES]; /* with resumes */
    uint64_t reserved;
    uint8_t admission_key[WEFT_HASH_KEY_BYTES]; /* if the table has admission; records of earlier
                                                 * releases may end before it */
};

struct mark_body {
    uint64_t checkpoint;
    uint64_t tables;
    uint64_t words; /* of the bits of each table */
    uint64_t cut;   /* identifies the cut among those of this number; 0: of an earlier release */
};

static_assert(sizeof(struct value_body) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct chunk_body) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct evicting_body) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct table_body) % WEFT_RING_UNIT == 0);
static_assert(offsetof(struct table_body, admission_key) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct mark_body) % WEFT_RING_UNIT == 0);

struct weft_shard_journal {
    struct weft_ring ring;          /* the journal of this process */
    struct weft_ring_reader source; /* replaying: the journal of the previous process */
    bool full;
    bool failed; /* its memory is unreliable: nothing more is written */
    bool replaying;
    bool stalled;                   /* replaying: the next record does not fit */
    struct weft_ring_cursor cursor; /* replaying: the record being replayed */
    struct weft_ring_cursor last;   /* of the source: after the last intact record */
    uint64_t needed;                /* position from which the checkpoint may lack records */
    uint32_t cursor_life;
    bool waited;          /* for slabs, before the record at the cursor; */
    uint32_t waited_room; /* the table then had room for so many rows */
    bool ends_in_life; /* the last replayed record is LIFE */
    struct weft_shard_journal_report report;
    struct weft_ring_cursor *cut; /* (tables_max,): position of each table in the cut in progress */
    struct weft_ring_cursor kept; /* the oldest of the positions of the last kept cut */
    bool kept_any;
    struct weft_ring_cursor gap; /* with `gapped`: position of the only GAP */
    bool gapped;
    bool gap_kept; /* a cut after it was kept, but is in no valid checkpoint yet */
    size_t words;  /* of the member bits of a table */
    size_t mark_words;
    uint64_t *mark;  /* (mark_words,): contents of MARK after its head */
    uint8_t *listed; /* (JOURNAL_LISTED_BYTES,) scratch: a chunk that names a list, and its ids */
    uint8_t *evicting;                     /* (JOURNAL_EVICTING_BYTES,): body of EVICTING */
    struct weft_table_evictions evictions; /* of the last chunk; in `evicting`. Replaying: of the
                                            * record at the cursor */
    struct weft_table_counters before;     /* of the table, before the search for its rows */
    const uint8_t *evicted_at;             /* replaying: the ids of the record, unaligned */
};

enum {
    JOURNAL_LISTED_BYTES = WEFT_PS_PACKED_CHUNK_BYTES + WEFT_SHARD_IDS_BEHIND_MAX,
    JOURNAL_EVICTING_HEAD = sizeof(struct chunk_body) + sizeof(struct evicting_body),
    JOURNAL_EVICTING_BYTES = JOURNAL_EVICTING_HEAD + WEFT_PS_CHUNK_ROWS_MAX * 8,
};

static_assert(JOURNAL_EVICTING_BYTES % WEFT_RING_UNIT == 0);

/* Bytes of the ids of EVICTING, padded. */
static inline uint64_t journal_evicted_bytes(uint32_t count)
{
    return ((uint64_t)count * sizeof(uint64_t) + WEFT_RING_UNIT - 1) / WEFT_RING_UNIT *
           WEFT_RING_UNIT;
}

/* Position of the table's cut, then the bits of its members. */
static inline uint64_t *journal_mark_of(const struct weft_shard_journal *journal, uint32_t table)
{
    return journal->mark + table * (1 + journal->words);
}

/* Write journal->mark as a record. */
void weft_shard_journal_write_mark(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut);

/* Write LIFE: another process continues from here. */
void weft_shard_journal_write_life(struct weft_shard *shard);

#endif
