/* Choice of the row to evict. When room is needed, the next few rows after the clock hand, in slot
 * order, are compared, and the lowest ranked is evicted. Only a search behind rows that may not be
 * evicted examines more than LOOK_MAX slots, in the worst case all (below). (Redis also evicts by
 * samples; an exact LRU list would cost two more cache misses per use.)
 *
 *   TTL  rows not pushed for more than ttl clocks. They count as absent from that moment on
 *        (table_row_expired); their slots are freed here, some with every chunk.
 *   LRU  the earliest clock of last use; on a tie, fewer gradients.
 *   L2   the smallest norm; rows of the clock in progress only if there are no others. Otherwise
 *        new rows, which begin small, would be evicted before they grow.
 *
 * A row is not evicted while it has gradients of an unfinished BSP clock, nor while the chunk being
 * processed uses it. Such rows are often in consecutive slots: those of a chunk, and rows that were
 * created together and are pushed together. So the search goes on behind them until it finds a row.
 * It does not if most of the rows wait for the end of the clock: then every search could be long.
 */
#include "ps/table_internal.h"

#include <string.h>

/* SAMPLE: rows compared. LOOK_MAX: slots examined to find them. FREE_PART: if at least one of so
 * many rows does not wait for the end of the clock, as many more as it takes to find one. SWEEP:
 * slots examined by a sweep. */
enum { SAMPLE = 16, LOOK_MAX = 256, FREE_PART = 8, SWEEP = 8 };

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

/* Bits of the squared norm in float32. Positive floats compare like their bits; overflow and NaN
 * rank last. */
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

/* The row with the smallest rank is evicted. */
static uint64_t rank_of(const struct weft_table *table, const struct weft_table_row *row)
{
    if (table->spec.eviction == WEFT_EVICTION_L2) {
        return (uint64_t)(row->clock == table->now) << 32 | norm_bits(table, row);
    }
    return (uint64_t)row->clock << 32 | row->count;
}

/* TTL: the rows that have expired are not counted. */
static bool searches_on(const struct weft_table *table)
{
    const uint32_t waiting = table->touched_count + table->step_left;
    return table->spec.eviction != WEFT_EVICTION_TTL &&
           table->rows >= waiting + table->rows / FREE_PART;
}

bool weft_table_evict_one(struct weft_table *table)
{
    struct weft_table_row *best = NULL;
    uint64_t best_rank = UINT64_MAX;
    if (table->spec.eviction == WEFT_EVICTION_NONE) {
        return false;
    }
    /* A replay must find a row if the dead process did, whose rows were in other slots. */
    const bool all = table->replay.is_on || searches_on(table);
    uint32_t looks = 0, sample = 0;
    while (looks < table->rows_begun && sample < SAMPLE &&
           (looks < LOOK_MAX || (all && best == NULL))) {
        looks++;
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
    if (table->evictions != NULL && !expired) {
        table->evictions->ids[table->evictions->count++] = best->id;
    }
    weft_table_remove(table, best);
    return true;
}

void weft_table_evict(struct weft_table *table, uint64_t id)
{
    bool evicts =
        table->spec.eviction == WEFT_EVICTION_LRU || table->spec.eviction == WEFT_EVICTION_L2;
    struct weft_table_row *row = evicts ? weft_table_find(table, id) : NULL;
    if (row != NULL && !table_is_dense(table) && row->touched_next == 0) {
        table->counters.rows_evicted++;
        weft_table_remove(table, row);
    }
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
