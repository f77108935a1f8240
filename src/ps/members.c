/* The members of a table: the ranks that clocks wait for and averages are computed over.
 *
 * WAIT and FAIL: all W of the specification, connected or not. SHRINK: the live ranks that have
 * opened the table. A rank that dies is removed, and its clock in progress ends for it, because its
 * pushes stay applied. A rank that opens the table later, or again, is a member from the clock in
 * progress on.
 *
 * The clocks of ranks that are not members advance with the table's clock. So they rejoin at the
 * clock of the others, and no clock in a checkpoint is behind the table's.
 *
 * Source: docs/PROTOCOL.md section 7, "When a worker dies".
 */
#include "ps/shard_internal.h"

#include "base/assert.h"
#include "ps/snapshot_internal.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_shard_members_init(struct weft_shard *shard)
{
    size_t count = (size_t)shard->config.tables_max * shard->config.workers_max;
    shard->members = calloc(count, sizeof(*shard->members));
    shard->dead_rank = WEFT_SHARD_NONE;
    return shard->members != NULL ? WEFT_OK : WEFT_NOMEM;
}

static bool *member_of(struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    return &shard->members[(size_t)table * shard->config.workers_max + rank];
}

bool weft_shard_member_counts(const struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    return shard->config.on_death != WEFT_DEATH_SHRINK ||
           shard->members[(size_t)table * shard->config.workers_max + rank];
}

/* The lowest clock of the members; UINT32_MAX without members. */
static uint32_t lowest(const struct weft_shard *shard, uint16_t index)
{
    const uint32_t *clocks = &shard->clocks[(size_t)index * shard->config.workers_max];
    uint32_t min = UINT32_MAX;
    for (uint32_t w = 0; w < shard->tables[index].spec.workers; w++) {
        if (weft_shard_member_counts(shard, index, w)) {
            min = clocks[w] < min ? clocks[w] : min;
        }
    }
    return min;
}

/* The second highest clock: a clock that only one rank claims cannot make other ranks' rows old.
 * The clocks of ranks that are not members have advanced, too. */
uint32_t weft_shard_clock_reached(const struct weft_shard *shard, uint16_t index)
{
    const uint32_t *clocks = &shard->clocks[(size_t)index * shard->config.workers_max];
    uint32_t first = clocks[0], second = 0;
    for (uint32_t w = 1; w < shard->tables[index].spec.workers; w++) {
        second = clocks[w] > first ? first : clocks[w] > second ? clocks[w] : second;
        first = clocks[w] > first ? clocks[w] : first;
    }
    return shard->tables[index].spec.workers == 1 ? first : second;
}

/* The divisor of a sum: the members and, in BSP, the ranks removed in this clock after they had
 * pushed for it. */
static void average(struct weft_shard *shard, uint16_t index)
{
    const uint32_t *clocks = &shard->clocks[(size_t)index * shard->config.workers_max];
    struct weft_table *table = &shard->tables[index];
    bool bsp = table->spec.mode == WEFT_TABLE_BSP;
    uint32_t count = 0;
    for (uint32_t w = 0; w < table->spec.workers; w++) {
        count += weft_shard_member_counts(shard, index, w) ||
                 (bsp && clocks[w] > shard->clock_min[index]);
    }
    weft_table_set_averaged(table, count);
}

void weft_shard_members_average(struct weft_shard *shard, uint16_t index)
{
    if (shard->config.on_death == WEFT_DEATH_SHRINK) {
        average(shard, index);
    }
}

void weft_shard_members_clear(struct weft_shard *shard)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (!weft_shard_journal_passes_over(shard, (uint16_t)t)) {
            memset(member_of(shard, (uint16_t)t, 0), 0,
                   shard->config.workers_max * sizeof(*shard->members));
            shard->restored[t] |= shard->tables[t].declared;
        }
    }
}

static void move_along(struct weft_shard *shard, uint16_t index)
{
    uint32_t *clocks = &shard->clocks[(size_t)index * shard->config.workers_max];
    for (uint32_t w = 0; w < shard->tables[index].spec.workers; w++) {
        if (!weft_shard_member_counts(shard, index, w) && clocks[w] < shard->clock_min[index]) {
            clocks[w] = shard->clock_min[index];
        }
    }
}

void weft_shard_now_follow(struct weft_shard *shard, uint16_t index)
{
    struct weft_table *table = &shard->tables[index];
    uint32_t reached = weft_shard_clock_reached(shard, index);
    if (table->spec.mode != WEFT_TABLE_BSP && reached >= table->now) {
        weft_table_set_now(table, reached + 1);
    }
}

/* The slowest member has finished clock min, and the rows are stepped for it. */
static void advanced(struct weft_shard *shard, uint16_t index, uint32_t min, uint64_t now_ns)
{
    shard->clock_min[index] = min;
    move_along(shard, index);
    weft_shard_now_follow(shard, index);
    weft_snapshot_boundary(shard, index);
    weft_transfer_boundary(shard, now_ns);
    weft_shard_wake(shard, now_ns);
}

/* Step some rows. Until all are stepped, the last CLOCK has no effect yet: pulls of the table wait,
 * and no worker pushes for the next clock, because none knows that it has begun. */
static void step_slice(struct weft_shard *shard, uint16_t index, uint64_t now_ns)
{
    struct weft_table *table = &shard->tables[index];
    uint32_t min = shard->step_to[index];
    shard->counters.rows_stepped += weft_table_step_some(table, shard->config.step_rows);
    if (weft_table_stepping(table)) {
        return;
    }
    shard->step_to[index] = 0;
    shard->step_tables--;
    weft_table_set_now(table, min + 1);
    advanced(shard, index, min, now_ns);
    weft_shard_clock_advance(shard, index, now_ns); /* a member may have left meanwhile */
}

void weft_shard_clock_advance(struct weft_shard *shard, uint16_t index, uint64_t now_ns)
{
    struct weft_table *table = &shard->tables[index];
    uint32_t min = table->declared ? lowest(shard, index) : UINT32_MAX;
    if (min == UINT32_MAX || min <= shard->clock_min[index] || shard->step_to[index] != 0) {
        return;
    }
    if (table->spec.mode != WEFT_TABLE_BSP) {
        advanced(shard, index, min, now_ns);
        return;
    }
    if (weft_transfer_holds_steps(shard)) {
        return;
    }
    weft_shard_answer_due(shard, true);
    average(shard, index);
    weft_table_step_begin(table);
    shard->step_to[index] = min;
    shard->step_tables++;
    step_slice(shard, index, now_ns);
}

void weft_shard_step(struct weft_shard *shard, uint64_t now_ns)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (shard->step_to[t] != 0) {
            step_slice(shard, (uint16_t)t, now_ns);
        }
    }
}

void weft_shard_member_join(struct weft_shard *shard, uint16_t index, uint32_t rank)
{
    struct weft_table *table = &shard->tables[index];
    bool *member = member_of(shard, index, rank);
    if (*member || rank >= table->spec.workers) {
        return;
    }
    *member = true;
    uint32_t *clock = &shard->clocks[(size_t)index * shard->config.workers_max + rank];
    if (shard->config.on_death == WEFT_DEATH_SHRINK) {
        shard->counters.workers_joined++;
        uint32_t begun = shard->step_to[index] > shard->clock_min[index] ? shard->step_to[index]
                                                                         : shard->clock_min[index];
        *clock = *clock > begun ? *clock : begun;
        average(shard, index);
    }
}

/* Pushes of an unfinished clock stay applied. So that clock ends for this rank, otherwise its
 * gradients would be applied twice. */
void weft_shard_close_short(struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    uint32_t *clock = &shard->clocks[(size_t)table * shard->config.workers_max + rank];
    uint32_t pushed = shard_pushes(shard, table, rank)->clock;
    if (pushed > *clock) {
        shard->counters.clocks_skipped += pushed - *clock;
        *clock = pushed;
        weft_shard_update_clock(shard, table, rank, pushed);
    }
}

static void leave(struct weft_shard *shard, uint16_t index, uint32_t rank, uint64_t now_ns)
{
    *member_of(shard, index, rank) = false;
    if (shard->config.on_death == WEFT_DEATH_SHRINK) {
        shard->counters.workers_left++;
        weft_shard_close_short(shard, index, rank);
        weft_shard_update_clock(shard, index, rank,
                                UINT32_MAX); /* also pushes of which nothing was applied */
        weft_shard_clock_advance(shard, index, now_ns);
        average(shard, index);
    }
}

void weft_shard_members_leave(struct weft_shard *shard, uint32_t rank, bool died, uint64_t now_ns)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (*member_of(shard, (uint16_t)t, rank) &&
            !weft_shard_journal_passes_over(shard, (uint16_t)t)) {
            shard->dead_rank =
                died && shard->dead_rank == WEFT_SHARD_NONE ? rank : shard->dead_rank;
            leave(shard, (uint16_t)t, rank, now_ns);
        }
    }
}

bool weft_shard_has_lost(const struct weft_shard *shard, uint32_t *rank_p)
{
    bool lost = shard->config.on_death == WEFT_DEATH_FAIL && shard->dead_rank != WEFT_SHARD_NONE;
    *rank_p = lost ? shard->dead_rank : *rank_p;
    return lost;
}
