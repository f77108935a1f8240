/* A ring of records in memory that outlives its process: a file that is mapped, where every store
 * is kept whatever becomes of who made it. Only `kill -9` is survived in full; after a crash of the
 * machine what the disk has is found by the checks, up to the first record that is not whole.
 *
 * What the records say is not known here (shard_journal.c), and no system call is made.
 *
 *     0      head: magic, version, shard, shards, job, check of those
 *     64     begin, twice (128): where the oldest record is, life; the valid one with the larger seq
 *     4,096  records, each a multiple of 32 bytes, up to the end of the memory
 *
 * A record has its position, counted in bytes since the journal began, and a check over all of it,
 * written last. No position comes twice in one life, so what an older lap left behind is told from
 * what follows; a record of an earlier life behind one of a later is a leftover, too, of an earlier
 * process or from before the end was cut back (weft_ring_cut_back). WRAP says that the
 * next record lies at 4,096 again. All numbers as this host has them: a journal does not travel.
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

enum { WEFT_RING_HEAD_BYTES = 4096, WEFT_RING_UNIT = 32, WEFT_RING_VERSION = 2 };

/* Heads and bodies are multiples of the unit. */
struct weft_ring_record {
    uint64_t position;
    uint32_t bytes; /* with this head */
    uint32_t life;
    uint16_t type; /* 0 = WRAP */
    uint16_t table;
    uint32_t rank;
    uint64_t check;
};

struct weft_ring_place {
    uint64_t position;
    uint64_t at; /* offset in the memory */
};

/* Whose journal it is. */
struct weft_ring_owner {
    uint32_t shard;
    uint32_t shards;
    uint64_t job;
};

struct weft_ring {
    uint8_t *memory;
    uint64_t bytes; /* that may be touched; may grow up to bytes_max */
    uint64_t bytes_max;
    struct weft_ring_place begin; /* the oldest record */
    struct weft_ring_place end;   /* the next one */
    uint64_t seq;
    uint32_t life; /* of this process: 1, 2, ... */
};

/* Blank memory (all zero where the head is) becomes an empty journal; another one is checked. `end`
 * is not known before weft_ring_next has come to it.
 * Shape:   memory (bytes_max,), 8-byte aligned, of which `bytes` may be touched; both multiples of
 *          the unit, bytes > WEFT_RING_HEAD_BYTES.
 * Owns:    borrows memory.
 * Errors:  WEFT_DATA  not a journal, or damaged. WEFT_UNSUPPORTED  of another version.
 *          WEFT_EXISTS  of another owner. Nothing is changed. */
weft_status weft_ring_open(struct weft_ring *ring, void *memory, uint64_t bytes, uint64_t bytes_max,
                           const struct weft_ring_owner *owner);

/* The record at *place_p, and *place_p behind it. NULL: it is the end, or torn. The body follows the
 * head. */
const struct weft_ring_record *weft_ring_next(const struct weft_ring *ring, uint32_t *life_p,
                                              struct weft_ring_place *place_p);

/* Write a record of a body and data, which are padded with zeros; head->type, table and rank are
 * read. False: there is no room, nothing is changed.
 * Shape:   body_bytes a multiple of the unit. */
bool weft_ring_append(struct weft_ring *ring, const struct weft_ring_record *head, const void *body,
                      size_t body_bytes, const void *data, size_t data_bytes);

/* What lies before this place is not needed any more. */
void weft_ring_drop(struct weft_ring *ring, struct weft_ring_place place);

static inline uint64_t weft_ring_used(const struct weft_ring *ring)
{
    return ring->end.position - ring->begin.position;
}

/* What lies behind this place is not wanted: the next record comes here. To be written at once: till
 * then who opens the ring finds what lay there. */
void weft_ring_cut_back(struct weft_ring *ring, struct weft_ring_place place);

/* A quarter: room that its user keeps for records of another kind. */
static inline uint64_t weft_ring_reserve(const struct weft_ring *ring)
{
    return ring->bytes / 4;
}

/* Would as many bytes, head and all, leave the reserve as it is? */
bool weft_ring_spares(const struct weft_ring *ring, uint64_t bytes);

/* More memory, up to bytes_max, would be of use. */
bool weft_ring_wants(const struct weft_ring *ring);

#endif
