/* A ring of records in memory that outlives its process: a mapped file, where every store survives
 * the death of the process. A process writes a new ring, in zeroed memory, and reads the ring of
 * the previous process without changing it.
 *
 * Not here: the contents of records (shard_journal.c). Makes no system call.
 *
 *     0      head: magic, version, shard, shards, job, lineage, their checksum
 *     64     begin, twice (128): position of the oldest record, life
 *     192    end, twice (256): position of the next record, number of records so far, life
 *     4,096  records, each a multiple of 32 bytes, up to the end of the memory
 *
 * Of the two copies of begin and of end, the valid one with the larger sequence number is used. The
 * copies are written alternately, so a process that is killed between two stores leaves the other
 * copy intact.
 *
 * A record contains its position, in bytes since the journal began, and a checksum over the record,
 * which is written last. A position occurs once per life, so leftovers of an earlier lap are
 * distinguished from current records. A record of an earlier life after one of a later life is a
 * leftover, too, from before the end was cut back (weft_ring_cut_back). WRAP: the next record is at
 * 4,096 again. FILLER: no record; it covers positions at which a copied ring had its WRAP.
 *
 * The end is written after its record. A reader that reaches it, or passes it, has read everything;
 * a reader that stops earlier has lost the records in between, and knows how many bytes. Version 2
 * has no end (and no lineage): there damage is indistinguishable from the end.
 *
 * All numbers are in host byte order: a journal is not portable.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_PS_JOURNAL_RING_H
#define WEFT_PS_JOURNAL_RING_H

#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_RING_HEAD_BYTES = 4096, WEFT_RING_UNIT = 32, WEFT_RING_VERSION = 6 };

/* The same format without chunks that name evicted rows or were refused (since 6), aggregates
 * (since 5) and chunks with packed ids (since 4), which releases that wrote it did not have. */
enum { WEFT_RING_VERSION_PLAIN = 3 };

/* Types that this layer writes and reads; all others belong to its user. */
enum { WEFT_RING_WRAP = 0, WEFT_RING_FILLER = UINT16_MAX };

/* Heads and bodies are multiples of the unit. */
struct weft_ring_record {
    uint64_t position;
    uint32_t bytes; /* including this head */
    uint32_t life;
    uint16_t type;
    uint16_t table;
    uint32_t rank;
    uint64_t check;
};

struct weft_ring_cursor {
    uint64_t position;
    uint64_t at;      /* offset in the memory */
    uint64_t records; /* number of user records before it */
};

/* The shard and job of a journal. */
struct weft_ring_owner {
    uint32_t shard;
    uint32_t shards;
    uint64_t job;
};

/* ---- the ring that is written ---------------------------------------------------------------- */

struct weft_ring {
    uint8_t *memory;
    uint64_t bytes; /* usable bytes; may grow up to bytes_max */
    uint64_t bytes_max;
    struct weft_ring_cursor begin; /* the oldest record */
    struct weft_ring_cursor end;   /* the next one */
    uint64_t begin_seq;
    uint64_t end_seq;
    uint32_t life; /* 1, incremented each time that the end is cut back */
};

/* Make an empty journal in zeroed memory; its first record will have this position.
 * Shape:   memory (bytes_max,), 8-byte aligned, all zero, of which `bytes` are usable; both
 *          multiples of the unit, bytes > WEFT_RING_HEAD_BYTES.
 * Owns:    borrows memory. */
void weft_ring_make(struct weft_ring *ring, void *memory, uint64_t bytes, uint64_t bytes_max,
                    const struct weft_ring_owner *owner, uint64_t lineage, uint64_t position);

/* Append a record with a body and data, padded with zeros; uses type, table and rank of head.
 * False: no room; nothing was changed.
 * Shape:   body_bytes a multiple of the unit. */
bool weft_ring_append(struct weft_ring *ring, const struct weft_ring_record *head, const void *body,
                      size_t body_bytes, const void *data, size_t data_bytes);

/* Copy a record of another ring at its position there, before anything was appended here. False: no
 * room without a WRAP; nothing was changed. */
bool weft_ring_copy(struct weft_ring *ring, const struct weft_ring_record *record);

/* Free the records before this position. */
void weft_ring_drop(struct weft_ring *ring, struct weft_ring_cursor cursor);

static inline uint64_t weft_ring_used(const struct weft_ring *ring)
{
    return ring->end.position - ring->begin.position;
}

/* Discard the records after this position; the next record is written here. Write it at once: until
 * then a reader of the ring finds the old records. */
void weft_ring_cut_back(struct weft_ring *ring, struct weft_ring_cursor cursor);

/* A quarter of the memory, which the user reserves for records of another kind. */
static inline uint64_t weft_ring_reserve(const struct weft_ring *ring)
{
    return ring->bytes / 4;
}

/* Would a record of this many bytes, head included, leave the reserve free? */
bool weft_ring_spares(const struct weft_ring *ring, uint64_t bytes);

/* True: more memory, up to bytes_max, is useful now. */
bool weft_ring_wants(const struct weft_ring *ring);

/* ---- the ring that is read ------------------------------------------------------------------- */

struct weft_ring_reader {
    const uint8_t *memory;
    uint64_t bytes;
    struct weft_ring_cursor begin;
    struct weft_ring_cursor last; /* the writer's last position; `at` is unknown */
    bool has_last;                /* false: version 2, or both copies of the end are damaged */
    uint32_t version;
    uint32_t life;
    uint64_t lineage; /* 0 in version 2 */
};

/* Read the head of a journal of this version or of versions 2 to 5. Nothing is written.
 * Shape:   memory (bytes,), 8-byte aligned, bytes > WEFT_RING_HEAD_BYTES.
 * Owns:    borrows memory.
 * Errors:  WEFT_DATA  not a journal, or damaged. WEFT_UNSUPPORTED  of another version.
 *          WEFT_EXISTS  of another owner. */
weft_status weft_ring_read(struct weft_ring_reader *reader, const void *memory, uint64_t bytes,
                           const struct weft_ring_owner *owner);

/* Returns the record at *cursor_p, and moves *cursor_p after it. NULL: the end, or a torn record.
 * The body follows the head. */
const struct weft_ring_record *weft_ring_next(const struct weft_ring_reader *reader,
                                              uint32_t *life_p, struct weft_ring_cursor *cursor_p);

/* The lineage in the first WEFT_RING_HEAD_BYTES of a journal; false: not the head of a journal of
 * this version, or of versions 3 to 5. */
bool weft_ring_lineage(const void *head, uint64_t *lineage_p);

#endif
