/* Restoring a snapshot into a shard without connections. */
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <string.h>

weft_status weft_shard_restore_table(struct weft_shard *shard, const struct weft_table_spec *spec)
{
    if (spec->table >= shard->config.tables_max || spec->workers > shard->config.workers_max) {
        return WEFT_INVALID;
    }
    if (shard->tables[spec->table].declared) {
        return WEFT_EXISTS;
    }
    weft_status status = weft_table_declare(&shard->tables[spec->table], spec);
    if (status == WEFT_OK) {
        shard->restored[spec->table] = true;
    }
    return status;
}

weft_status weft_shard_restore_rows(struct weft_shard *shard, uint16_t index, const void *records,
                                    uint32_t count, uint32_t *used_p)
{
    struct weft_table *table = shard_table(shard, index);
    WEFT_ASSERT(table != NULL);
    size_t record_bytes = weft_table_record_bytes(table);
    const uint8_t *record = records;
    for (uint32_t i = 0; i < count; i++, record += record_bytes) {
        uint64_t id;
        memcpy(&id, record, sizeof(id));
        if (!weft_table_owns(table, id)) {
            continue;
        }
        weft_status status = weft_table_record_write(table, record);
        if (status != WEFT_OK) {
            *used_p = i;
            return status;
        }
    }
    *used_p = count;
    return WEFT_OK;
}

void weft_shard_restore_clear(struct weft_shard *shard, uint16_t table, uint32_t of_shard,
                              uint32_t shards)
{
    weft_table_clear(shard_table(shard, table), of_shard, shards);
}

void weft_shard_restore_removed(struct weft_shard *shard, uint16_t table, const uint64_t *ids,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        weft_table_record_remove(shard_table(shard, table), ids[i]);
    }
}

weft_status weft_shard_restore_counted(struct weft_shard *shard, uint16_t index,
                                       const struct weft_admission_counts *counted)
{
    struct weft_table *table = shard_table(shard, index);
    WEFT_ASSERT(table != NULL);
    struct weft_admission *admission = &table->admission;
    bool of_ids = admission->kind == WEFT_ADMISSION_COUNTER && counted->count > 0;
    bool of_filter = admission->kind == WEFT_ADMISSION_BLOOM && counted->filter != NULL;
    bool keyed = of_filter || admission->kind == WEFT_ADMISSION_COUNTER;
    if (keyed && weft_admission_restore_key(admission, counted->key) != WEFT_OK) {
        return WEFT_EXISTS;
    }
    if (!of_ids && !of_filter) {
        return WEFT_OK;
    }
    if (admission->memory == NULL) {
        return WEFT_AGAIN;
    }
    if (of_filter && counted->cells != admission->cells) {
        return WEFT_INVALID;
    }
    if (of_filter) {
        weft_admission_restore_filter(admission, counted->filter);
    }
    for (uint32_t i = 0; of_ids && i < counted->count; i++) {
        if (weft_table_owns(table, counted->ids[i])) {
            weft_admission_restore_count(admission, counted->ids[i], counted->counts[i]);
        }
    }
    if (of_ids) {
        weft_admission_restore_hand(admission, counted->hand);
    }
    return WEFT_OK;
}

/* Recompute the minimum clock of the table's ranks, and the clock in progress. */
static void find_min(struct weft_shard *shard, uint16_t index)
{
    const uint32_t *clocks = shard->clocks + (size_t)index * shard->config.workers_max;
    struct weft_table *table = &shard->tables[index];
    uint32_t min = UINT32_MAX, max = 0;
    for (uint32_t w = 0; w < table->spec.workers; w++) {
        min = clocks[w] < min ? clocks[w] : min;
        max = clocks[w] > max ? clocks[w] : max;
    }
    shard->clock_min[index] = min;
    bool bsp = table->spec.mode == WEFT_TABLE_BSP;
    uint32_t now = (bsp ? min : weft_shard_clock_reached(shard, index)) + 1;
    weft_table_set_newest(table, (bsp ? min : max) + 1);
    weft_table_set_now(table, now > table->now ? now : table->now);
}

void weft_shard_restore_clocks(struct weft_shard *shard, uint16_t index, const uint32_t *clocks,
                               uint32_t count)
{
    WEFT_ASSERT(shard_table(shard, index) != NULL && count <= shard->config.workers_max);
    memcpy(shard->clocks + (size_t)index * shard->config.workers_max, clocks,
           count * sizeof(*clocks));
    find_min(shard, index);
}

void weft_shard_restore_clocks_max(struct weft_shard *shard, uint16_t index, const uint32_t *clocks,
                                   uint32_t count)
{
    WEFT_ASSERT(shard_table(shard, index) != NULL && count <= shard->config.workers_max);
    uint32_t *mine = shard->clocks + (size_t)index * shard->config.workers_max;
    for (uint32_t w = 0; w < count; w++) {
        mine[w] = clocks[w] > mine[w] ? clocks[w] : mine[w];
    }
    find_min(shard, index);
}

void weft_shard_restore_pushes(struct weft_shard *shard, uint16_t table,
                               const struct weft_push_window *pushes, uint32_t count)
{
    WEFT_ASSERT(shard_table(shard, table) != NULL && count <= shard->config.workers_max);
    memcpy(shard->pushes + (size_t)table * shard->config.workers_max, pushes,
           count * sizeof(*pushes));
    weft_shard_durable_from(shard, table, pushes, count);
}

void weft_shard_restore_incarnations(struct weft_shard *shard, const uint64_t *incarnations,
                                     uint32_t count)
{
    WEFT_ASSERT(count <= shard->config.workers_max);
    for (uint32_t w = 0; w < count; w++) {
        shard->workers[w].incarnation = incarnations[w];
    }
}

void weft_shard_restore_retired(struct weft_shard *shard, const struct weft_retired *retired,
                                uint32_t count)
{
    WEFT_ASSERT(count <= shard->config.workers_max);
    for (uint32_t w = 0; w < count; w++) {
        shard->workers[w].retired = retired[w];
    }
}

weft_status weft_shard_restore_partial(struct weft_shard *shard,
                                       const struct weft_cut_partial *from)
{
    if (from->worker >= shard->config.workers_max || shard_table(shard, from->table) == NULL ||
        from->chunks > shard->config.chunks_max) {
        return WEFT_INVALID;
    }
    struct shard_partial *partial = weft_shard_partial_take(shard, from->worker);
    if (partial == NULL) {
        return WEFT_INVALID;
    }
    partial->table = from->table;
    partial->number = from->number;
    partial->chunks = from->chunks;
    partial->chunk_elems = from->chunk_elems;
    memcpy(partial->mask, from->mask, WEFT_BITS_WORDS((size_t)from->chunks) * sizeof(uint64_t));
    return WEFT_OK;
}

/* FTRL computes weights from its state and its rate: with another rate they would jump. After a
 * journal replay a BSP table may be in the middle of a clock: its sums belong to the previous
 * number of workers. */
static bool may_become(const struct weft_table *table, const struct weft_table_spec *spec)
{
    struct weft_table_spec allowed = table->spec;
    if (weft_table_settled(table)) {
        allowed.workers = spec->workers;
    }
    if (allowed.optimizer != WEFT_OPTIMIZER_FTRL) {
        allowed.learning_rate = spec->learning_rate;
    }
    allowed.staleness = spec->staleness;
    allowed.push_values = spec->push_values;
    allowed.pull_values = spec->pull_values;
    return weft_table_spec_equal(&allowed, spec);
}

/* A worker opens a table restored from a checkpoint or a journal, for the first time since the
 * restart: fields of the specification that do not change rows may differ. A clock that ends at
 * this moment (a rank's successor closes it) ends under the old specification. */
bool weft_shard_respec(struct weft_shard *shard, const struct weft_table_spec *spec)
{
    struct weft_table *table = shard_table(shard, spec->table);
    while (shard->restored[spec->table] && shard->step_to[spec->table] != 0) {
        weft_shard_step(shard, shard_clock_ns(shard));
    }
    if (!shard->restored[spec->table] || !may_become(table, spec)) {
        return false;
    }
    uint32_t *clocks = shard->clocks + (size_t)spec->table * shard->config.workers_max;
    for (uint32_t w = table->spec.workers; w < spec->workers; w++) {
        clocks[w] = shard->clock_min[spec->table];
    }
    table->spec = *spec;
    table->averaged = spec->workers;
    find_min(shard, spec->table);
    return true;
}
