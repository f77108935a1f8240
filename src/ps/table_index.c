/* Linear probing over u64 entries {low half of the hash, row number + 1}. Comparing the half hash
 * first saves the cache miss of looking into a row that is not the one; and as the home of an entry
 * is part of that half, removal can shift entries back without looking into rows, so there are no
 * tombstones and the cost stays that of a lookup. (The upper half says on which shard a row lives:
 * on one shard it varies too little.)
 */
#include "base/assert.h"
#include "ps/table_internal.h"

uint32_t weft_table_index_slots(uint32_t rows)
{
    uint64_t slots = 4;
    while (slots * 2 < (uint64_t)rows * 3) {
        slots *= 2;
    }
    return (uint32_t)slots;
}

uint64_t *weft_table_index_probe(const struct weft_table *table, uint64_t id, uint64_t hash)
{
    uint32_t half = (uint32_t)hash;
    for (uint32_t at = half & table->index_mask;; at = (at + 1) & table->index_mask) {
        uint64_t *entry = &table->index[at];
        if ((uint32_t)*entry == 0) {
            return entry;
        }
        if (*entry >> 32 == half && table_row_at(table, (uint32_t)*entry - 1)->id == id) {
            return entry;
        }
    }
}

void weft_table_index_set(uint64_t *entry, uint64_t hash, uint32_t number)
{
    *entry = hash << 32 | (number + 1);
}

void weft_table_index_remove(struct weft_table *table, uint64_t *entry)
{
    uint32_t mask = table->index_mask, hole = (uint32_t)(entry - table->index);
    WEFT_ASSERT((uint32_t)*entry != 0);
    for (uint32_t at = (hole + 1) & mask; (uint32_t)table->index[at] != 0; at = (at + 1) & mask) {
        /* Move back what may lie in the hole: it is at least as far from home as from there. */
        uint32_t home = (uint32_t)(table->index[at] >> 32) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->index[hole] = table->index[at];
            hole = at;
        }
    }
    table->index[hole] = 0;
}
