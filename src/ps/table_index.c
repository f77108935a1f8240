#include "ps/table_index.h"

#include "base/assert.h"
#include "base/prefetch.h"
#include "ps/table_internal.h"

/* Buckets of a new table; rows whose buckets are prefetched together. */
enum { BUCKETS_FIRST = 64, PREFETCH_BUCKETS = 16 };

uint32_t weft_table_index_buckets(uint32_t rows)
{
    uint64_t buckets = 1;
    while (buckets * TABLE_BUCKET_ROWS < rows) {
        buckets *= 2;
    }
    return (uint32_t)buckets;
}

uint32_t weft_table_index_first(const struct weft_table *table)
{
    return (uint32_t)weft_min_u64(table->index_mask_max, BUCKETS_FIRST - 1);
}

/* Rebuild the index from the rows, prefetching buckets. */
static void rebuild(struct weft_table *table)
{
    uint64_t hashes[PREFETCH_BUCKETS];
    uint32_t numbers[PREFETCH_BUCKETS];
    uint32_t kept = 0;
    for (uint32_t number = 0; number <= table->rows_begun; number++) {
        bool last = number == table->rows_begun;
        const struct weft_table_row *row = last ? NULL : table_row_at(table, number);
        if (!last && (row->number & TABLE_ROW_LIVE) != 0) {
            hashes[kept] = weft_table_hash(table, row->id);
            numbers[kept] = number;
            weft_prefetch_to_write(table_home(table, hashes[kept++]));
        }
        for (uint32_t i = 0; i < kept && (last || kept == PREFETCH_BUCKETS); i++) {
            weft_table_index_add(table, hashes[i], numbers[i]);
        }
        kept = kept == PREFETCH_BUCKETS ? 0 : kept;
    }
}

void weft_table_index_grow(struct weft_table *table)
{
    uint64_t buckets = table->index_mask + UINT64_C(1);
    if (table->rows < buckets * TABLE_BUCKET_ROWS || table->index_mask == table->index_mask_max) {
        return;
    }
    memset(table->index, 0, buckets * sizeof(*table->index));
    table->index_mask = (uint32_t)(2 * buckets - 1);
    rebuild(table);
}

uint32_t weft_table_index_find(const struct weft_table *table, uint64_t id, uint64_t hash)
{
    uint8_t tag = table_tag(hash);
    uint32_t at = (uint32_t)hash & table->index_mask;
    for (uint32_t looks = 0; looks <= table->index_mask; looks++) {
        const struct weft_table_bucket *bucket = &table->index[at];
        for (uint32_t match = table_bucket_match(bucket, tag); match != 0; match &= match - 1) {
            uint32_t row = bucket->rows[__builtin_ctz(match)];
            if (table_row_at(table, row - 1)->id == id) {
                return row;
            }
        }
        if (bucket->passed == 0) {
            return 0;
        }
        at = (at + 1) & table->index_mask;
    }
    return 0;
}

void weft_table_index_add(struct weft_table *table, uint64_t hash, uint32_t number)
{
    for (uint32_t at = (uint32_t)hash & table->index_mask;; at = (at + 1) & table->index_mask) {
        struct weft_table_bucket *bucket = &table->index[at];
        uint32_t empty = table_bucket_match(bucket, 0);
        if (empty != 0) {
            uint32_t slot = (uint32_t)__builtin_ctz(empty);
            bucket->tags[slot] = table_tag(hash);
            bucket->rows[slot] = number + 1;
            return;
        }
        bucket->passed += bucket->passed < TABLE_PASSED_MAX;
    }
}

/* Index of this row in a bucket; TABLE_BUCKET_SLOTS = not in it. */
static uint32_t slot_of(const struct weft_table_bucket *bucket, uint8_t tag, uint32_t number)
{
    for (uint32_t match = table_bucket_match(bucket, tag); match != 0; match &= match - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(match);
        if (bucket->rows[slot] == number + 1) {
            return slot;
        }
    }
    return TABLE_BUCKET_SLOTS;
}

void weft_table_index_remove(struct weft_table *table, uint64_t hash, uint32_t number)
{
    uint32_t at = (uint32_t)hash & table->index_mask;
    for (uint32_t looks = 0;; looks++, at = (at + 1) & table->index_mask) {
        struct weft_table_bucket *bucket = &table->index[at];
        uint32_t slot = slot_of(bucket, table_tag(hash), number);
        WEFT_ASSERT(looks <= table->index_mask);
        if (slot < TABLE_BUCKET_SLOTS) {
            bucket->tags[slot] = 0;
            bucket->rows[slot] = 0;
            return;
        }
        bucket->passed -= bucket->passed < TABLE_PASSED_MAX;
    }
}
