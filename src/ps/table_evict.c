/* Which row goes. Nothing here walks over the table at once: when room is needed, the next few rows
 * after the last look, in the order of their places, are compared, and the best to go goes. (Redis
 * evicts by such samples, too; a true LRU list would cost two more cache misses at every use.)
 *
 *   TTL  rows not pushed for more than ttl clocks. They count as gone from that moment on
 *        (table_row_expired); here their places come back, some with every chunk.
 *   LRU  the earliest clock of last use; of equals, the one with fewer gradients.
 *   L2   the smallest norm; rows of the clock in progress only when there are no others, or new
 *        rows, which begin small, would never live to grow.
 *
 * A row goes neither while gradients of an unfinished BSP clock wait in it nor while the chunk that
 * is being looked at holds it.
 */
#include "ps/table_internal.h"

#include <string.h>

/* Rows compared; places looked at for them; places a sweep looks at. */
enum { SAMPLE = 16, LOOK_MAX = 256, SWEEP = 8 };

static struct weft_table_row *hand_next(struct weft_table *table)
{
    if (table->hand >= table->rows_begun) {
        table->hand = 0;
    }
    return table_row_at(table, table->hand++);
}

static bool may_go(const struct weft_table *table, const struct weft_table_row *row)
{
    return (row->number & TABLE_ROW_LIVE) != 0 && (row->number & TABLE_ROW_PINNED) == 0 &&
           row->touched_next == 0 &&
           (table->spec.eviction != WEFT_EVICTION_TTL || table_row_expired(table, row));
}

/* Squares in float32: of rows that are compared with one another. Positive floats order like their
 * bits, and what overflowed or is not a number comes last. */
static uint32_t norm_bits(const struct weft_table *table, const struct weft_table_row *row)
{
    const float *weights = table_weights(row);
    float sum = 0;
    for (uint32_t i = 0; i < table->spec.dim; i++) {
        sum += weights[i] * weights[i];
    }
    uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    return bits & INT32_MAX;
}

/* The smallest goes. */
static uint64_t rank_of(const struct weft_table *table, const struct weft_table_row *row)
{
    if (table->spec.eviction == WEFT_EVICTION_L2) {
        return (uint64_t)(row->clock == table->now) << 32 | norm_bits(table, row);
    }
    return (uint64_t)row->clock << 32 | row->count;
}

bool weft_table_evict_one(struct weft_table *table)
{
    struct weft_table_row *best = NULL;
    uint64_t best_rank = UINT64_MAX;
    if (table->spec.eviction == WEFT_EVICTION_NONE) {
        return false;
    }
    uint32_t looks = table->rows_begun < LOOK_MAX ? table->rows_begun : LOOK_MAX;
    for (uint32_t sample = 0; looks > 0 && sample < SAMPLE; looks--) {
        struct weft_table_row *row = hand_next(table);
        if (may_go(table, row)) {
            uint64_t rank = rank_of(table, row);
            best = best == NULL || rank < best_rank ? row : best;
            best_rank = best == row ? rank : best_rank;
            sample++;
        }
    }
    if (best == NULL) {
        return false;
    }
    bool expired = table->spec.eviction == WEFT_EVICTION_TTL;
    table->counters.rows_expired += expired;
    table->counters.rows_evicted += !expired;
    weft_table_remove(table, best);
    return true;
}

void weft_table_sweep(struct weft_table *table)
{
    uint32_t looks = table->rows_begun < SWEEP ? table->rows_begun : SWEEP;
    for (; looks > 0; looks--) {
        struct weft_table_row *row = hand_next(table);
        if (may_go(table, row)) {
            table->counters.rows_expired++;
            weft_table_remove(table, row);
        }
    }
}
