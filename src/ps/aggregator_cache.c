/* Row cache of an aggregator: one bounded store per table, allocated at the start. An entry is a
 * mark (struct agg_mark) followed by the row's bytes as in a reply to PULL. A full store evicts the
 * entry that was inserted first. A row that all workers use is fetched once per version under any
 * policy, so a policy that counts uses would cost time on every hit and save little. */
#include "ps/aggregator_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t part_bytes(const struct weft_aggregator *agg)
{
    return agg->config.cache_bytes / agg->config.tables_max;
}

weft_status weft_agg_cache_init(struct weft_aggregator *agg)
{
    for (uint32_t t = 0; part_bytes(agg) > 0 && t < agg->config.tables_max; t++) {
        agg->tables[t].memory = calloc(1, part_bytes(agg));
        if (agg->tables[t].memory == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_agg_cache_fini(struct weft_aggregator *agg)
{
    for (uint32_t t = 0; agg->tables != NULL && t < agg->config.tables_max; t++) {
        free(agg->tables[t].memory);
    }
}

/* Floats of an entry: its mark and its row. */
static uint32_t row_floats(const struct weft_table_spec *spec)
{
    const size_t bytes = sizeof(struct agg_mark) + weft_table_pull_elem_bytes(spec);
    return (uint32_t)((bytes + sizeof(float) - 1) / sizeof(float));
}

void weft_agg_cache_begin(struct weft_aggregator *agg, uint16_t index)
{
    struct agg_table *table = &agg->tables[index];
    const uint32_t floats = row_floats(&table->spec);
    uint64_t most = weft_min_u64(part_bytes(agg) / (floats * sizeof(float)), WEFT_ROW_STORE_MAX);
    while (most > 0 && weft_row_store_bytes((uint32_t)most, floats) > part_bytes(agg)) {
        most -= most / 64 + 1;
    }
    table->version = 0;
    table->kept = (struct weft_row_store){0};
    if (most > 0) {
        weft_row_store_init(&table->kept, table->memory, (uint32_t)most, floats, agg->config.key);
    }
}

void weft_agg_cache_clear(struct weft_aggregator *agg)
{
    for (uint32_t t = 0; t < agg->config.tables_max; t++) {
        if (agg->tables[t].declared) {
            weft_agg_cache_begin(agg, (uint16_t)t);
        }
    }
}

void weft_agg_cache_find(const struct weft_aggregator *agg, uint16_t table, const uint64_t *ids,
                         uint32_t count, float **rows_p)
{
    const struct weft_row_store *kept = &agg->tables[table].kept;
    if (kept->rows_max == 0) {
        memset(rows_p, 0, count * sizeof(*rows_p));
        return;
    }
    weft_row_store_find_all(kept, ids, count, rows_p);
}

void weft_agg_cache_put(struct weft_aggregator *agg, uint16_t table, uint64_t id,
                        struct agg_mark mark, const uint8_t *row, size_t bytes)
{
    struct weft_row_store *kept = &agg->tables[table].kept;
    if (kept->rows_max == 0) {
        return;
    }
    float *slot = weft_row_store_find(kept, id);
    slot = slot != NULL ? slot : weft_row_store_replace(kept, id);
    memcpy(slot, &mark, sizeof(mark));
    memcpy((uint8_t *)slot + sizeof(mark), row, bytes);
}
