/* The buckets of a sparse table's index: from an id's hash to the number of its row.
 *
 *     tags (12 bytes) | passed | 0 0 0 | row numbers + 1 (12 x u32)      64 bytes, a cache line
 *
 * Each id has a home bucket. If it is full, the entry is stored in the next bucket with room, and
 * every full bucket skipped counts it in `passed`. A search therefore ends at the first bucket with
 * passed = 0, usually the home bucket, and removal leaves no tombstone. A tag is 8 bits of the hash
 * that select neither the bucket (low half) nor the shard (top bits); 0 = empty. All tags of a
 * bucket are compared at once.
 *
 * The number of buckets follows the number of rows, up to that for the row limit, so that a small
 * table's index stays in the cache, and its pages in the TLB, however many rows are allowed. It
 * doubles in one step, by a walk over the rows in memory order: 60 ns per row on a busy 2-core VM,
 * so a pause of 0.3 s at the 4.7 millionth row. (Linear hashing would grow bucket by bucket, but
 * would need the home bucket of each entry in an overflowed bucket.)
 *
 * Rejected: linear probing over entries of 8 bytes, the previous design. It used 12 bytes per row
 * instead of 7, and a branch per entry examined.
 */
#ifndef WEFT_PS_TABLE_INDEX_H
#define WEFT_PS_TABLE_INDEX_H

#include "ps/table.h"

#include <assert.h>
#include <string.h>

enum {
    TABLE_BUCKET_SLOTS = 12,
    TABLE_BUCKET_ROWS = 9,  /* most rows per bucket, on average */
    TABLE_PASSED_MAX = 255, /* saturates: searches are longer, but correct */
};

struct weft_table_bucket {
    uint8_t tags[TABLE_BUCKET_SLOTS];
    uint8_t passed;
    uint8_t zero[3];
    uint32_t rows[TABLE_BUCKET_SLOTS];
};

static_assert(sizeof(struct weft_table_bucket) == 64, "a cache line");

static inline uint8_t table_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 40);
    return tag == 0 ? 1 : tag;
}

/* Bit i: entry i has this tag. */
static inline uint32_t table_bucket_match_plain(const struct weft_table_bucket *bucket, uint8_t tag)
{
    uint32_t match = 0;
    for (uint32_t i = 0; i < TABLE_BUCKET_SLOTS; i++) {
        match |= (uint32_t)(bucket->tags[i] == tag) << i;
    }
    return match;
}

static inline uint32_t table_bucket_match(const struct weft_table_bucket *bucket, uint8_t tag)
{
#ifdef __SSE2__
    typedef char bytes16 __attribute__((vector_size(16)));
    bytes16 tags;
    memcpy(&tags, bucket->tags, sizeof(tags)); /* and the 4 bytes after them */
    bytes16 wanted = (bytes16){0} + (char)tag;
    return (uint32_t)__builtin_ia32_pmovmskb128((bytes16)(tags == wanted)) &
           ((UINT32_C(1) << TABLE_BUCKET_SLOTS) - 1);
#else
    return table_bucket_match_plain(bucket, tag);
#endif
}

static inline struct weft_table_bucket *table_home(const struct weft_table *table, uint64_t hash)
{
    return &table->index[(uint32_t)hash & table->index_mask];
}

/* The initial index_mask of a table. */
uint32_t weft_table_index_first(const struct weft_table *table);
/* Call before a row is created: doubles the buckets if they are too few. Cost: O(rows) if so. */
void weft_table_index_grow(struct weft_table *table);
/* Number of buckets for this many rows: a power of two. */
uint32_t weft_table_index_buckets(uint32_t rows);
/* Number + 1 of the row of id; 0 = none. */
uint32_t weft_table_index_find(const struct weft_table *table, uint64_t id, uint64_t hash);
/* Add a row; its id must have none. */
void weft_table_index_add(struct weft_table *table, uint64_t hash, uint32_t number);
/* Remove a row; it must exist. */
void weft_table_index_remove(struct weft_table *table, uint64_t hash, uint32_t number);

#endif
