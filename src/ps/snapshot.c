/* The cut and its stream. Restoring is in restore.c, rows and copy on write in dirty_set.c. */
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status tables_init(struct weft_snapshot *snapshot,
                               const struct weft_shard_config *config)
{
    struct weft_cut_view *view = &snapshot->view;
    view->tables = calloc(config->tables_max, sizeof(*view->tables));
    snapshot->dirty_sets = calloc(config->tables_max, sizeof(*snapshot->dirty_sets));
    if (view->tables == NULL || snapshot->dirty_sets == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t t = 0; t < config->tables_max; t++) {
        struct weft_cut_table *table = &view->tables[t];
        table->clocks = calloc(config->workers_max, sizeof(*table->clocks));
        table->pushes = calloc(config->workers_max, sizeof(*table->pushes));
        if (table->clocks == NULL || table->pushes == NULL ||
            weft_dirty_set_init(&snapshot->dirty_sets[t], (uint16_t)t, config->rows_max) !=
                WEFT_OK) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

static weft_status snapshot_init(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    const struct weft_shard_config *config = &shard->config;
    struct weft_cut_view *view = &snapshot->view;
    view->tables_max = config->tables_max;
    view->workers_max = config->workers_max;
    snapshot->mask_words = WEFT_BITS_WORDS((size_t)config->chunks_max);
    view->incarnations = calloc(config->workers_max, sizeof(*view->incarnations));
    view->retired = calloc(config->workers_max, sizeof(*view->retired));
    view->partials = calloc(shard->partial_count, sizeof(*view->partials));
    snapshot->masks = calloc(shard->partial_count * snapshot->mask_words, sizeof(uint64_t));
    snapshot->kept = calloc((size_t)config->tables_max * config->workers_max, sizeof(uint64_t));
    snapshot->kept_incarnations = calloc(config->workers_max, sizeof(uint64_t));
    if (view->incarnations == NULL || view->retired == NULL || view->partials == NULL ||
        snapshot->masks == NULL || snapshot->kept == NULL || snapshot->kept_incarnations == NULL) {
        return WEFT_NOMEM;
    }
    return tables_init(snapshot, config);
}

weft_status weft_snapshot_init(struct weft_shard *shard)
{
    shard->snapshot = calloc(1, sizeof(*shard->snapshot));
    if (shard->snapshot == NULL) {
        return WEFT_NOMEM;
    }
    weft_status status = snapshot_init(shard);
    for (uint32_t t = 0; status == WEFT_OK && t < shard->config.tables_max; t++) {
        weft_dirty_set_attach(&shard->tables[t], &shard->snapshot->dirty_sets[t]);
    }
    return status;
}

void weft_snapshot_fini(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    if (snapshot == NULL) {
        return;
    }
    for (uint32_t t = 0; snapshot->view.tables != NULL && t < shard->config.tables_max; t++) {
        free(snapshot->view.tables[t].clocks);
        free(snapshot->view.tables[t].pushes);
    }
    for (uint32_t t = 0; snapshot->dirty_sets != NULL && t < shard->config.tables_max; t++) {
        weft_dirty_set_fini(&snapshot->dirty_sets[t]);
    }
    free(snapshot->view.tables);
    free(snapshot->view.incarnations);
    free(snapshot->view.retired);
    free(snapshot->view.partials);
    free(snapshot->dirty_sets);
    free(snapshot->masks);
    free(snapshot->kept);
    free(snapshot->kept_incarnations);
    free(snapshot);
    shard->snapshot = NULL;
}

/* ---- the cut --------------------------------------------------------------------------------- */

static bool is_bsp(const struct weft_shard *shard, uint32_t table)
{
    return shard->tables[table].spec.mode == WEFT_TABLE_BSP;
}

static void cut_partials(struct weft_shard *shard, uint32_t table)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    struct weft_cut_view *view = &snapshot->view;
    for (uint32_t i = 0; i < shard->partial_count; i++) {
        const struct shard_partial *partial = &shard->partials[i];
        if (!partial->live || partial->table != table) {
            continue;
        }
        WEFT_ASSERT(view->partial_count < shard->partial_count);
        uint64_t *mask = snapshot->masks + view->partial_count * snapshot->mask_words;
        memcpy(mask, partial->mask, snapshot->mask_words * sizeof(*mask));
        view->partials[view->partial_count++] = (struct weft_cut_partial){
            .worker = i / shard->partials_per_worker,
            .table = (uint16_t)table,
            .number = partial->number,
            .chunks = partial->chunks,
            .chunk_elems = partial->chunk_elems,
            .mask = mask,
        };
    }
}

/* Copy the counts to the end of the memory lent; the rest is for rows. False: too small. */
static bool cut_counted(struct weft_snapshot *snapshot, const struct weft_admission *admission,
                        struct weft_admission_counts *counted_p)
{
    struct weft_cow_buffer *cow = &snapshot->cow;
    size_t bytes = weft_admission_copy_bytes(admission);
    *counted_p = (struct weft_admission_counts){.count = 0};
    memcpy(counted_p->key, admission->key, sizeof(counted_p->key));
    if (bytes > 0) {
        if (bytes > cow->bytes || (cow->bytes - bytes) / 8 * 8 < cow->end) {
            return false;
        }
        cow->bytes = (cow->bytes - bytes) / 8 * 8;
        weft_admission_copy(admission, cow->memory + cow->bytes, counted_p);
    }
    return true;
}

/* Cut one table. */
static void cut_table(struct weft_shard *shard, uint32_t t)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    struct weft_cut_table *table = &snapshot->view.tables[t];
    struct weft_dirty_set *dirty_set = &snapshot->dirty_sets[t];
    uint32_t workers = shard->config.workers_max;
    if (!snapshot->begun) {
        weft_shard_journal_cut_begin(shard);
    }
    weft_shard_journal_cut(shard, (uint16_t)t);
    weft_dirty_set_cut(dirty_set, &shard->tables[t], snapshot->order.whole, &snapshot->cow);
    table->present = true;
    table->spec = shard->tables[t].spec;
    table->clock = shard->clock_min[t];
    table->rows = dirty_set->cut_count;
    table->rows_total = weft_table_rows(&shard->tables[t]);
    table->removed = dirty_set->removed;
    table->removed_count = dirty_set->removed_cut;
    table->replaces = weft_dirty_set_replaces(dirty_set, snapshot->order.whole);
    table->record_bytes = dirty_set->record_bytes;
    if (!cut_counted(snapshot, &shard->tables[t].admission, &table->counted)) {
        dirty_set->overrun = true;
    }
    memcpy(table->clocks, shard->clocks + (size_t)t * workers, workers * sizeof(*table->clocks));
    memcpy(table->pushes, shard->pushes + (size_t)t * workers, workers * sizeof(*table->pushes));
    for (uint32_t w = 0; w < workers; w++) {
        snapshot->view.incarnations[w] = shard->workers[w].incarnation;
        snapshot->view.retired[w] = shard->workers[w].retired;
    }
    cut_partials(shard, t);
    if (!snapshot->begun) {
        weft_shard_cut_instant(shard);
    }
    snapshot->begun = true;
}

/* True: this BSP table is at the boundary that the order requires. */
static bool at_boundary(const struct weft_shard *shard, uint32_t t)
{
    const struct weft_snapshot *snapshot = shard->snapshot;
    bool settled = weft_table_settled(&shard->tables[t]);
    if (weft_table_rows(&shard->tables[t]) == 0 && snapshot->begun) {
        return true; /* an empty table can be cut at any time */
    }
    return settled && (snapshot->order.now || shard->clock_min[t] == snapshot->order.clock);
}

/* Cut all tables that can be cut now. */
static void cut_tables(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    bool any_bsp = false, reached = snapshot->order.now;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        any_bsp |= shard->tables[t].declared && is_bsp(shard, t);
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (!shard->tables[t].declared || snapshot->view.tables[t].present) {
            continue;
        }
        if (is_bsp(shard, t) && at_boundary(shard, t)) {
            cut_table(shard, t);
        }
        reached |= !any_bsp && shard->clock_min[t] >= snapshot->order.clock;
    }
    uint32_t waiting = 0;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (!shard->tables[t].declared || snapshot->view.tables[t].present) {
            continue;
        }
        if (!is_bsp(shard, t) && (reached || snapshot->begun)) {
            cut_table(shard, t);
            continue;
        }
        waiting++;
        if (is_bsp(shard, t) && !snapshot->order.now &&
            shard->clock_min[t] > snapshot->order.clock) {
            snapshot->why = WEFT_CUT_LATE;
        }
    }
    if (snapshot->why != WEFT_CUT_GOOD) {
        snapshot->state = WEFT_CUT_FAILED;
    } else if (snapshot->begun && waiting == 0) {
        snapshot->state = WEFT_CUT_READY;
        weft_shard_journal_cut_ready(shard, snapshot->order.number, snapshot->order.cut);
    }
}

/* Copies to the front the partial pushes of other ranks and other tables, and drops this one's. */
static void forget_partials(struct weft_snapshot *snapshot, uint32_t table, uint32_t rank)
{
    struct weft_cut_view *view = &snapshot->view;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->partial_count; i++) {
        const struct weft_cut_partial *from = &view->partials[i];
        if (from->table == table && from->worker == rank) {
            continue;
        }
        uint64_t *mask = snapshot->masks + count * snapshot->mask_words;
        memmove(mask, from->mask, snapshot->mask_words * sizeof(*mask));
        view->partials[count] = *from;
        view->partials[count++].mask = mask;
    }
    view->partial_count = count;
}

/* The checkpoint has one process for each rank: that of the last cut. In tables that are cut
 * already, the rank then has no pushes, and its clock in progress has ended, as in the shard
 * itself. Otherwise a restored shard would take pushes of the new process for those of the previous
 * one with the same numbers. */
void weft_snapshot_renewed(struct weft_shard *shard, uint32_t rank)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    if (snapshot == NULL || snapshot->state != WEFT_CUT_WAITING) {
        return;
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const struct weft_cut_table *table = &snapshot->view.tables[t];
        if (table->present) {
            const uint32_t pushed = table->pushes[rank].clock;
            table->clocks[rank] = pushed > table->clocks[rank] ? pushed : table->clocks[rank];
            table->pushes[rank] = (struct weft_push_window){.newest = 0};
            forget_partials(snapshot, t, rank);
        }
    }
}

weft_status weft_shard_cut_begin(struct weft_shard *shard, const struct weft_cut_order *order)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    if (snapshot == NULL || snapshot->state != WEFT_CUT_NONE) {
        return WEFT_STATE;
    }
    WEFT_ASSERT((uintptr_t)order->memory % 8 == 0);
    snapshot->state = WEFT_CUT_WAITING;
    snapshot->why = WEFT_CUT_GOOD;
    snapshot->order = *order;
    snapshot->begun = false;
    snapshot->cow = (struct weft_cow_buffer){.memory = order->memory, .bytes = order->bytes};
    snapshot->view.whole = order->whole;
    snapshot->view.partial_count = 0;
    cut_tables(shard);
    return WEFT_OK;
}

void weft_snapshot_boundary(struct weft_shard *shard, uint16_t table)
{
    (void)table;
    if (shard->snapshot != NULL && shard->snapshot->state == WEFT_CUT_WAITING) {
        cut_tables(shard);
    }
}

enum weft_cut_state weft_shard_cut_state(const struct weft_shard *shard)
{
    const struct weft_snapshot *snapshot = shard->snapshot;
    if (snapshot == NULL) {
        return WEFT_CUT_NONE;
    }
    return weft_shard_cut_why(shard) != WEFT_CUT_GOOD ? WEFT_CUT_FAILED : snapshot->state;
}

enum weft_cut_why weft_shard_cut_why(const struct weft_shard *shard)
{
    const struct weft_snapshot *snapshot = shard->snapshot;
    if (snapshot->state == WEFT_CUT_NONE || snapshot->why != WEFT_CUT_GOOD) {
        return snapshot->why;
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (snapshot->view.tables[t].present && snapshot->dirty_sets[t].overrun) {
            return WEFT_CUT_NO_MEMORY;
        }
    }
    return WEFT_CUT_GOOD;
}

/* ---- the stream ------------------------------------------------------------------------------ */

const struct weft_cut_view *weft_shard_cut_view(const struct weft_shard *shard)
{
    WEFT_ASSERT(shard->snapshot->state == WEFT_CUT_READY);
    return &shard->snapshot->view;
}

uint32_t weft_shard_cut_take(struct weft_shard *shard, void *out, size_t bytes, uint16_t *table_p)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    if (weft_shard_cut_state(shard) != WEFT_CUT_READY) {
        return 0;
    }
    if (snapshot->cow.begin < snapshot->cow.end) {
        return weft_cow_buffer_take(&snapshot->cow, snapshot->dirty_sets, out, bytes, table_p);
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        struct weft_dirty_set *dirty_set = &snapshot->dirty_sets[t];
        if (!snapshot->view.tables[t].present || dirty_set->emitted == dirty_set->cut_count) {
            continue;
        }
        WEFT_ASSERT(bytes >= dirty_set->record_bytes);
        size_t room = bytes / dirty_set->record_bytes;
        uint32_t count = weft_dirty_set_take(dirty_set, &shard->tables[t], out,
                                             (uint32_t)weft_min_u64(room, UINT32_MAX));
        WEFT_ASSERT(count > 0);
        *table_p = (uint16_t)t;
        return count;
    }
    return 0;
}

/* Record what weft_shard_durable will report, and whether it satisfies the workers' requests. */
static void keep(struct weft_shard *shard)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    uint32_t workers = shard->config.workers_max, clock = UINT32_MAX;
    memcpy(snapshot->kept_incarnations, snapshot->view.incarnations, workers * sizeof(uint64_t));
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const struct weft_cut_table *table = &snapshot->view.tables[t];
        for (uint32_t w = 0; w < workers; w++) {
            snapshot->kept[(size_t)t * workers + w] =
                table->present ? weft_push_window_prefix(&table->pushes[w]) : 0;
        }
        clock = table->present && is_bsp(shard, t) && table->clock < clock ? table->clock : clock;
    }
    shard->cut_wanted = clock >= shard->cut_wanted ? 0 : shard->cut_wanted;
}

void weft_shard_cut_end(struct weft_shard *shard, bool kept)
{
    struct weft_snapshot *snapshot = shard->snapshot;
    WEFT_ASSERT(snapshot->state != WEFT_CUT_NONE);
    if (kept) {
        keep(shard);
        weft_shard_journal_cut_kept(shard);
    } else if (snapshot->begun) {
        weft_shard_journal_cut_failed(shard);
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (snapshot->view.tables[t].present) {
            weft_dirty_set_end(&snapshot->dirty_sets[t], kept);
            snapshot->view.tables[t].present = false;
        }
    }
    snapshot->state = WEFT_CUT_NONE;
    snapshot->cow = (struct weft_cow_buffer){.memory = NULL};
    weft_shard_cut_over(shard, kept);
}

size_t weft_shard_cut_peak(const struct weft_shard *shard)
{
    const struct weft_snapshot *snapshot = shard->snapshot;
    return snapshot->order.bytes - snapshot->cow.bytes + snapshot->cow.peak;
}
