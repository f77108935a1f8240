/* The hot set of each table: the rows with most updates, selected from counts (ps/hot.h). Workers
 * request the set. They then send hot rows through their aggregators, and all other rows directly
 * to the shard.
 *
 * The shard selects a set when a worker requests it and the last selection is at least one epoch
 * old. A table whose set is never requested costs nothing. Few updates give no reliable ranks: with
 * fewer than UPDATES_PER_ROW updates per row of the set, the last selection stands.
 *
 * Rows are compared by their updates since the last selection. A row that was not listed then had
 * fewer updates than the threshold of the list. Its count above that threshold is a lower bound of
 * its updates since.
 *
 * Cost: a selection reads up to 2 x hot_top rows, sorts them by id, and sorts those of rank below
 * 1.2 x hot_rows by rank; a reply packs the ids.
 *
 * Source: [imc20] section 4; docs/PROTOCOL.md section 7, "Hot rows"; docs/AGGREGATION.md. */
#include "ps/shard_internal.h"

#include "agg/hot_set.h"
#include "base/assert.h"
#include "ps/hot.h"
#include "ps/hot_rows.h"

#include <stdlib.h>
#include <string.h>

/* CHANGED_OF: a new epoch makes every worker fetch the set, so it needs a change of at least 1 in
 * 50 rows. FIRST_TIMES: requests of a worker per epoch until the first set exists. */
enum { UPDATES_PER_ROW = 4, CHANGED_OF = 50, FIRST_TIMES = 64 };

struct shard_hot {
    uint64_t *ids;              /* (hot_rows,), ascending: the set */
    struct weft_hot_row *known; /* (2 x hot_top,), by id: the listed rows at the last selection */
    uint32_t count;
    uint32_t known_count;
    uint32_t epoch; /* 0 = none yet */
    uint64_t chosen_ns;
    uint64_t updates;   /* of the table at the last selection */
    uint64_t threshold; /* of its list at the last selection */
};

struct weft_shard_hots {
    struct shard_hot *tables;     /* (tables_max,) */
    struct weft_hot_row *rows[2]; /* (2 x hot_top,) scratch, like the next */
    struct weft_agg_candidate *candidates;
};

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_shard_hots_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    const size_t listed = 2 * (size_t)config->hot_top;
    struct weft_shard_hots *all = calloc(1, sizeof(*all));
    if (all == NULL) {
        return WEFT_NOMEM;
    }
    shard->hots = all;
    all->tables = calloc(config->tables_max, sizeof(*all->tables));
    all->rows[0] = calloc(listed, sizeof(*all->rows[0]));
    all->rows[1] = calloc(listed, sizeof(*all->rows[1]));
    all->candidates = calloc(listed, sizeof(*all->candidates));
    if (all->tables == NULL || all->rows[0] == NULL || all->rows[1] == NULL ||
        all->candidates == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t t = 0; t < config->tables_max; t++) {
        all->tables[t].ids = calloc(config->hot_rows, sizeof(*all->tables[t].ids));
        all->tables[t].known = calloc(listed, sizeof(*all->tables[t].known));
        if (all->tables[t].ids == NULL || all->tables[t].known == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

void weft_shard_hots_fini(struct weft_shard *shard)
{
    struct weft_shard_hots *all = shard->hots;
    if (all == NULL) {
        return;
    }
    for (uint32_t t = 0; all->tables != NULL && t < shard->config.tables_max; t++) {
        free(all->tables[t].ids);
        free(all->tables[t].known);
    }
    free(all->tables);
    free(all->rows[0]);
    free(all->rows[1]);
    free(all->candidates);
    free(all);
}

bool weft_shard_hot_takes(const struct weft_shard *shard, uint16_t index)
{
    const struct weft_table *table = shard_table(shard, index);
    return shard->hots != NULL && weft_shard_takes_aggregates(shard) && table != NULL &&
           (shard->config.can & WEFT_RPC_CAN_HOT) != 0 && table->spec.kind == WEFT_TABLE_SPARSE &&
           weft_aggregate_takes(&table->spec);
}

/* ---- selecting ------------------------------------------------------------------------------- */

/* Radix sort of rows by id over the bytes in which the ids differ. Returns the array that contains
 * the result. */
static struct weft_hot_row *sort_by_id(struct weft_hot_row *from, struct weft_hot_row *to,
                                       uint32_t count)
{
    uint64_t differ = 0;
    for (uint32_t i = 0; i < count; i++) {
        differ |= from[i].id ^ from[0].id;
    }
    for (uint32_t shift = 0; shift < 64; shift += 8) {
        uint32_t start[257] = {0};
        if ((differ >> shift & 0xff) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            start[(from[i].id >> shift & 0xff) + 1]++;
        }
        for (uint32_t d = 0; d < 256; d++) {
            start[d + 1] += start[d];
        }
        for (uint32_t i = 0; i < count; i++) {
            to[start[from[i].id >> shift & 0xff]++] = from[i];
        }
        struct weft_hot_row *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Build candidates from the listed rows. The rows, the set and `known` are sorted by id. */
static void compare(const struct shard_hot *hot, const struct weft_hot_row *rows, uint32_t count,
                    struct weft_agg_candidate *candidates)
{
    const uint64_t unlisted = hot->threshold > 0 ? hot->threshold - 1 : 0;
    for (uint32_t i = 0, known = 0, in = 0; i < count; i++) {
        const uint64_t id = rows[i].id;
        while (known < hot->known_count && hot->known[known].id < id) {
            known++;
        }
        while (in < hot->count && hot->ids[in] < id) {
            in++;
        }
        const bool was_listed = known < hot->known_count && hot->known[known].id == id;
        candidates[i] = (struct weft_agg_candidate){
            .id = id,
            .before = was_listed ? hot->known[known].updates
                                 : (uint32_t)weft_min_u64(rows[i].updates, unlisted),
            .now = rows[i].updates,
            .is_hot = in < hot->count && hot->ids[in] == id,
        };
    }
}

/* Updates since the last selection. */
static uint32_t fresh(const struct weft_agg_candidate *c)
{
    return c->now >= c->before ? c->now - c->before : c->now;
}

/* Updates of hot rows since the last selection. */
static uint64_t hot_updates(const struct weft_agg_candidate *candidates, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += candidates[i].is_hot ? fresh(&candidates[i]) : 0;
    }
    return sum;
}

/* Drop candidates that cannot be among the first `ranks`: find the highest count that at least
 * `ranks` candidates reach, and drop those below it. No sort is needed. Returns the number kept. */
static uint32_t drop_last(struct weft_agg_candidate *candidates, uint32_t count, uint64_t ranks)
{
    uint32_t low = 1, high = 1, kept = 0; /* invariant: at least `ranks` candidates reach `low`, or
                                           * it is 1 */
    for (uint32_t i = 0; i < count; i++) {
        high = fresh(&candidates[i]) > high ? fresh(&candidates[i]) : high;
    }
    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        uint64_t reach = 0;
        for (uint32_t i = 0; i < count; i++) {
            reach += fresh(&candidates[i]) >= middle;
        }
        if (reach >= ranks) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (fresh(&candidates[i]) >= low) {
            candidates[kept++] = candidates[i];
        }
    }
    return kept;
}

/* Store the selected ids in ascending order as the next set. */
static void announce(struct weft_shard *shard, struct shard_hot *hot, uint32_t count)
{
    struct weft_shard_hots *all = shard->hots;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (all->candidates[i].is_hot) {
            all->rows[0][rows++].id = all->candidates[i].id;
        }
    }
    const struct weft_hot_row *sorted = sort_by_id(all->rows[0], all->rows[1], rows);
    for (uint32_t i = 0; i < rows; i++) {
        hot->ids[i] = sorted[i].id;
    }
    hot->count = rows;
    hot->epoch = hot->epoch == UINT32_MAX ? 1 : hot->epoch + 1;
}

static void choose(struct weft_shard *shard, uint16_t index, uint64_t now_ns)
{
    struct weft_shard_hots *all = shard->hots;
    struct shard_hot *hot = &all->tables[index];
    const struct weft_table *table = shard_table(shard, index);
    const uint64_t updates = table->hot.updates;
    const uint64_t since = updates - weft_min_u64(hot->updates, updates);
    const uint32_t room = shard->config.hot_rows;
    if (since < (uint64_t)UPDATES_PER_ROW * room ||
        (hot->updates > 0 && now_ns < weft_time_add(hot->chosen_ns, shard->config.hot_epoch_ns))) {
        return;
    }
    const uint32_t count = weft_table_hot_listed(table, all->rows[0]);
    const struct weft_hot_row *rows = sort_by_id(all->rows[0], all->rows[1], count);
    compare(hot, rows, count, all->candidates);
    memcpy(hot->known, rows, count * sizeof(*rows));
    hot->known_count = count;
    shard->counters.hot_selections++;
    if (hot->epoch > 0) {
        shard->counters.hot_updates += hot_updates(all->candidates, count);
        shard->counters.hot_updates_of += since;
    }
    struct weft_agg_hot_change change;
    const uint32_t left = drop_last(all->candidates, count, (uint64_t)room * 6 / 5);
    weft_agg_hot_choose(all->candidates, left, room, &change);
    /* including rows of the set that are not candidates */
    change.left = hot->count - (change.hot - change.came);
    const bool changed = weft_agg_hot_changed(&change, hot->epoch > 0 ? room / CHANGED_OF + 1 : 1);
    hot->chosen_ns = now_ns;
    hot->updates = updates;
    hot->threshold = table->hot.threshold;
    if (changed) {
        announce(shard, hot, left);
        shard->counters.hot_epochs++;
        shard->counters.hot_rows_came += change.came;
        shard->counters.hot_rows_left += change.left;
    }
}

/* ---- announcing ------------------------------------------------------------------------------ */

bool weft_shard_hot_answer(struct weft_shard *shard, struct shard_slot *slot, uint64_t now_ns)
{
    const struct weft_shard_hots *all = shard->hots;
    slot->opened = 0;
    slot->version = shard->clock_min[slot->table];
    if (!weft_shard_hot_takes(shard, slot->table) || slot->request.reply_bound_ppm != 0) {
        shard_slot_reject(slot, WEFT_RPC_BAD_REQUEST);
        return false;
    }
    choose(shard, slot->table, now_ns);
    const struct shard_hot *hot = &all->tables[slot->table];
    if (hot->count > slot->request.after_seq) {
        shard_slot_note(slot, WEFT_RPC_TOO_LARGE);
        return false;
    }
    const uint64_t period_ms = weft_div_ceil_u64(
        shard->config.hot_epoch_ns / (hot->epoch > 0 ? 1 : FIRST_TIMES), WEFT_NS_PER_MS);
    slot->opened = hot->epoch == slot->request.need_clock ? 0 : hot->count;
    slot->answer_elem_bytes = 1;
    slot->answer_elems =
        WEFT_RPC_REPLY_BYTES +
        (uint32_t)weft_hot_reply_pack(hot->epoch, (uint32_t)weft_min_u64(period_ms, UINT32_MAX),
                                      hot->ids, slot->opened, slot->answer + WEFT_RPC_REPLY_BYTES);
    WEFT_ASSERT(slot->answer_elems <= weft_hot_reply_bytes_max(slot->opened));
    return true;
}

uint64_t weft_shard_hot_rows(const struct weft_shard *shard)
{
    uint64_t rows = 0;
    for (uint32_t t = 0; shard->hots != NULL && t < shard->config.tables_max; t++) {
        rows += shard->hots->tables[t].count;
    }
    return rows;
}
