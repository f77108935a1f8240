/* A ring of records in memory that outlives its process: a file that is mapped, where every store
 * is kept whatever becomes of the process that made it. A process writes a ring of its own, in memory
 * that was blank, and reads that of the process before it, which it never changes.
 *
 * What the records say is not known here (shard_journal.c), and no system call is made.
 *
 *     0      head: magic, version, shard, shards, job, lineage, check of those
 *     64     begin, twice (128): where the oldest record is, life
 *     192    end, twice (256): where the next record will be, how many there were, life
 *     4,096  records, each a multiple of 32 bytes, up to the end of the memory
 *
 * Of two begins, and of two ends, the valid one with the larger sequence number counts. They are
 * written in turn, so a process that is killed between two stores leaves the other one whole.
 *
 * A record has its position, counted in bytes since the journal began, and a check over all of it,
 * written last. No position comes twice in one life, so what an older lap left behind is told from
 * what follows; a record of an earlier life behind one of a later is a leftover, too, from before the
 * end was cut back (weft_ring_cut_back). WRAP says that the next record lies at 4,096 again, FILLER
 * that nothing lies here: positions of another ring where that one had its WRAP.
 *
 * The end is written after its record. A reader that comes to it, or past it, has read all that was
 * written; one that cannot come so far has lost what lies between, and knows how much. Version 2 had
 * no end (and no lineage): there damage looks like the end, and is still read so.
 *
 * All numbers as this host has them: a journal does not travel.
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

enum { WEFT_RING_HEAD_BYTES = 4096, WEFT_RING_UNIT = 32, WEFT_RING_VERSION = 5 };

/* The same but for aggregates (since 5) and chunks with packed ids (since 4), which no release knew that
 * wrote it. */
enum { WEFT_RING_VERSION_PLAIN = 3 };

/* Types that this layer makes and reads; all others are its user's. */
enum { WEFT_RING_WRAP = 0, WEFT_RING_FILLER = UINT16_MAX };

/* Heads and bodies are multiples of the unit. */
struct weft_ring_record {
    uint64_t position;
    uint32_t bytes; /* with this head */
    uint32_t life;
    uint16_t type;
    uint16_t table;
    uint32_t rank;
    uint64_t check;
};

struct weft_ring_cursor {
    uint64_t position;
    uint64_t at;      /* offset in the memory */
    uint64_t records; /* of the user's, written before it */
};

/* Whose journal it is. */
struct weft_ring_owner {
    uint32_t shard;
    uint32_t shards;
    uint64_t job;
};

/* ---- the ring that is written ---------------------------------------------------------------- */

struct weft_ring {
    uint8_t *memory;
    uint64_t bytes; /* that may be touched; may grow up to bytes_max */
    uint64_t bytes_max;
    struct weft_ring_cursor begin; /* the oldest record */
    struct weft_ring_cursor end;   /* the next one */
    uint64_t begin_seq;
    uint64_t end_seq;
    uint32_t life; /* 1, and one more for each time that its end was cut back */
};

/* An empty journal in blank memory, whose first record will have this position.
 * Shape:   memory (bytes_max,), 8-byte aligned, all zero, of which `bytes` may be touched; both
 *          multiples of the unit, bytes > WEFT_RING_HEAD_BYTES.
 * Owns:    borrows memory. */
void weft_ring_make(struct weft_ring *ring, void *memory, uint64_t bytes, uint64_t bytes_max,
                    const struct weft_ring_owner *owner, uint64_t lineage, uint64_t position);

/* Write a record of a body and data, which are padded with zeros; head->type, table and rank are
 * read. False: there is no room, nothing is changed.
 * Shape:   body_bytes a multiple of the unit. */
bool weft_ring_append(struct weft_ring *ring, const struct weft_ring_record *head, const void *body,
                      size_t body_bytes, const void *data, size_t data_bytes);

/* Write a record of another ring at the position that it has there, before anything was appended
 * here. False: there is no room without a WRAP, nothing is changed. */
bool weft_ring_copy(struct weft_ring *ring, const struct weft_ring_record *record);

/* What lies before this place is not needed any more. */
void weft_ring_drop(struct weft_ring *ring, struct weft_ring_cursor cursor);

static inline uint64_t weft_ring_used(const struct weft_ring *ring)
{
    return ring->end.position - ring->begin.position;
}

/* What lies behind this place is not wanted: the next record comes here. To be written at once: till
 * then who opens the ring finds what lay there. */
void weft_ring_cut_back(struct weft_ring *ring, struct weft_ring_cursor cursor);

/* A quarter: room that its user keeps for records of another kind. */
static inline uint64_t weft_ring_reserve(const struct weft_ring *ring)
{
    return ring->bytes / 4;
}

/* Would as many bytes, head and all, leave the reserve as it is? */
bool weft_ring_spares(const struct weft_ring *ring, uint64_t bytes);

/* More memory, up to bytes_max, would be of use. */
bool weft_ring_wants(const struct weft_ring *ring);

/* ---- the ring that is read ------------------------------------------------------------------- */

struct weft_ring_reader {
    const uint8_t *memory;
    uint64_t bytes;
    struct weft_ring_cursor begin;
    struct weft_ring_cursor last; /* where its writer was; `at` is not known */
    bool has_last;               /* false: version 2, or both copies of it are damaged */
    uint32_t version;
    uint32_t life;
    uint64_t lineage; /* 0 in version 2 */
};

/* Read the head of a journal of this version or of versions 2 to 4. Nothing is written.
 * Shape:   memory (bytes,), 8-byte aligned, bytes > WEFT_RING_HEAD_BYTES.
 * Owns:    borrows memory.
 * Errors:  WEFT_DATA  not a journal, or damaged. WEFT_UNSUPPORTED  of another version.
 *          WEFT_EXISTS  of another owner. */
weft_status weft_ring_read(struct weft_ring_reader *reader, const void *memory, uint64_t bytes,
                           const struct weft_ring_owner *owner);

/* The record at *place_p, and *place_p behind it. NULL: it is the end, or torn. The body follows the
 * head. */
const struct weft_ring_record *weft_ring_next(const struct weft_ring_reader *reader,
                                              uint32_t *life_p, struct weft_ring_cursor *cursor_p);

/* The lineage in a journal's first WEFT_RING_HEAD_BYTES; false: they are not the head of a journal
 * of this version. */
bool weft_ring_lineage(const void *head, uint64_t *lineage_p);

#endif
