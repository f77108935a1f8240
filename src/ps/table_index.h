/* The buckets of a sparse table's index: from an id's hash to the number of its row.
 *
 *     tags (12 bytes) | passed | 0 0 0 | row numbers + 1 (12 x u32)      64 bytes, a cache line
 *
 * The home of an id is a bucket; when that is full it goes to the next that is not, and every full
 * one that it went past counts it in `passed`. So a search ends at the first bucket that nobody
 * went past, mostly the first, and a removed entry just leaves its place empty. A tag is 8 bits of
 * the hash that neither choose the bucket (low half) nor say on which shard a row lives (the top),
 * 0 = empty; all tags of a bucket are compared at once.
 *
 * The buckets in use are as many as the rows that there are ask for, up to what the limit of rows
 * does: a small table's index stays in the cache, and its pages in the TLB, however many rows are
 * allowed. They double at once, by a walk over the rows in the order of memory: 60 ns a row on a
 * busy 2-core VM, so 0.3 s when the 4.7 millionth is made, once. (Linear hashing would do it bucket
 * by bucket; it would have to know of each entry in an overflowed bucket where it came from.)
 *
 * Rejected: linear probing over entries of 8 bytes, which was here before. It took 12 bytes a row
 * instead of 7 and a branch for each entry looked at.
 */
#ifndef WEFT_PS_TABLE_INDEX_H
#define WEFT_PS_TABLE_INDEX_H

#include "ps/table.h"

#include <assert.h>
#include <string.h>

enum {
    TABLE_BUCKET_SLOTS = 12,
    TABLE_BUCKET_ROWS = 9,  /* that are put into one on average, at most */
    TABLE_PASSED_MAX = 255, /* then it stays: searches are longer, and right */
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

/* Bit i: place i has this tag. */
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
    memcpy(&tags, bucket->tags, sizeof(tags)); /* with what follows them */
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

/* The mask that a table begins with. */
uint32_t weft_table_index_first(const struct weft_table *table);
/* Before a row is made: twice the buckets when there are rows for it. Cost: O(rows) then. */
void weft_table_index_grow(struct weft_table *table);
/* Buckets for so many rows: a power of two. */
uint32_t weft_table_index_buckets(uint32_t rows);
/* Number + 1 of the row of id; 0 = there is none. */
uint32_t weft_table_index_find(const struct weft_table *table, uint64_t id, uint64_t hash);
/* Put a row in whose id has none. */
void weft_table_index_add(struct weft_table *table, uint64_t hash, uint32_t number);
/* Take one out that is there. */
void weft_table_index_remove(struct weft_table *table, uint64_t hash, uint32_t number);

#endif
