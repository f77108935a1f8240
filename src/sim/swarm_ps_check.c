/* The checks of a simulated parameter server: each row that a worker pulls, and the tables at the
 * end. */
#include "sim/swarm_ps_internal.h"

#include "base/assert.h"
#include "ps/shard_journal.h"
#include "ps/row_store.h"
#include "ps/values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- content of a row ------------------------------------------------------------------------ */

/* Allowed deviation of a column, except the first, from the sum of these pushes: the residuals of
 * workers, including those that died. With bf16 that is at most half a unit in the last place of a
 * push, which the next push corrects; with int8 half a step. Anchors of int8 are large, and float32
 * sums round. */
static double slack(const struct swarm_ps *ps, uint32_t column, uint32_t set)
{
    const struct weft_swarm_table *table = &ps->table;
    const uint32_t pushes = (uint32_t)__builtin_popcount(set);
    const bool is_int8 = table->spec.push_values == WEFT_VALUE_INT8;
    const double sum = weft_swarm_table_sum(table, column, set);
    if (is_int8 && weft_swarm_table_is_anchor(table, column)) {
        return sum * 1e-6;
    }
    if (!table->is_odd) {
        return 0;
    }
    return is_int8 ? sum / 2 : 1001 / 256.0 * 2 * (pushes + table->workers);
}

/* The set of pushes in a row, after checks: each is complete, counted once, and allowed in it. */
static uint32_t row_set(struct swarm_ps *ps, uint32_t i, const float *row, const char *where)
{
    uint32_t possible = weft_swarm_table_all(&ps->table, i);
    const float top = (float)(UINT32_C(1) << BITS_MAX);
    bool sane = -row[0] >= 0 && -row[0] < top;
    uint32_t set = sane ? (uint32_t)-row[0] : 0;
    if (!sane || (float)set != -row[0] || (set & ~possible) != 0) {
        weft_world_fail(ps->world, "row %" PRIu32 " %s: %g is not a set of pushes", i, where,
                        (double)row[0]);
    }
    for (uint32_t d = 1; d < ps->table.spec.dim; d++) {
        const double apart = -(double)row[d] - weft_swarm_table_sum(&ps->table, d, set);
        const bool alike = ps->table.spec.push_values == WEFT_VALUE_INT8 || row[d] == row[1];
        if (fabs(apart) > slack(ps, d, set) || !alike) {
            weft_world_fail(ps->world,
                            "row %" PRIu32 " %s: column %" PRIu32 " is %g, which are not the "
                            "pushes %x of the first",
                            i, where, d, (double)row[d], set);
            break;
        }
    }
    return set;
}

/* OPTIMIZER: exactly these weights or, if a pull may lose rows, the previous zeros. */
static void check_truth(struct swarm_ps *ps, uint32_t i, uint32_t version, const float *row,
                        uint8_t type, bool may_be_lost, const char *where)
{
    const float *whole = weft_swarm_table_truth(&ps->table, i, version);
    float truth[WEFT_RPC_DIM_MAX];
    uint8_t sent[sizeof(truth)];
    bool lost = may_be_lost;
    for (uint32_t d = 0; d < ps->table.spec.dim; d++) {
        lost &= row[d] == 0;
    }
    weft_values_store(type, whole, ps->table.spec.dim, sent);
    weft_values_load(type, sent, ps->table.spec.dim, truth);
    if (!lost && memcmp(row, truth, ps->table.spec.dim * sizeof(float)) != 0) {
        weft_world_fail(
            ps->world, "row %" PRIu32 " %s is %.9g %.9g, not %.9g %.9g, after %" PRIu32 " clocks",
            i, where, (double)row[0], (double)row[1], (double)truth[0], (double)truth[1], version);
    }
}

/* Whether rows of this kind keep all pushes. */
static bool keeps_all(const struct swarm_ps *ps)
{
    return ps->table.flavour != WEFT_SWARM_ADMITTED && ps->table.flavour != WEFT_SWARM_EVICTING;
}

/* Whether pushes lost with a restarted shard, or with an aggregator, are not recovered. */
static bool forgets(const struct swarm_ps *ps)
{
    return ps->applies || (ps->deaths > 0 && ps->durability == DURABILITY_NOBODY &&
                           !weft_swarm_ps_replicas_keep_all(ps));
}

static double bf16(double value)
{
    return (double)weft_bf16_load(weft_bf16_store((float)value));
}

/* A row that was rounded on the way back determines a range of sets, in each of its columns. */
static bool rounded_is(const struct swarm_ps *ps, const float *row, uint32_t must, uint32_t may)
{
    const struct weft_swarm_table *table = &ps->table;
    bool good = -(double)row[0] >= bf16(must) && -(double)row[0] <= bf16(may);
    for (uint32_t d = 1; d < table->spec.dim; d++) {
        const double least = weft_swarm_table_sum(table, d, must);
        const double most = weft_swarm_table_sum(table, d, may);
        const double apart = slack(ps, d, may) + most / 256.0, there = -(double)row[d];
        good &= there >= least - apart && there <= most + apart;
        good &= table->spec.push_values == WEFT_VALUE_INT8 || row[d] == row[1];
    }
    return good;
}

static void check_rounded(struct swarm_ps *ps, uint32_t w, uint32_t i, uint32_t must, uint32_t may)
{
    const float *row = ps->worker[w].rows + (size_t)i * ps->table.spec.dim;
    if (!rounded_is(ps, row, must, may)) {
        weft_world_fail(ps->world,
                        "worker %" PRIu32 " in clock %" PRIu32 " pulled row %" PRIu32
                        " as %g and %g, rounded; must %x, may %x",
                        w, ps->worker[w].clock, i, (double)row[0], (double)row[1], must, may);
    }
}

/* Check the pushes that row i of a pull must and may contain. */
static void check_row(struct swarm_ps *ps, uint32_t w, uint32_t i, uint32_t need)
{
    const struct swarm_ps_worker *worker = &ps->worker[w];
    const struct weft_swarm_table *table = &ps->table;
    const float *row = worker->rows + (size_t)i * table->spec.dim;
    if (table->flavour == WEFT_SWARM_OPTIMIZER) {
        check_truth(ps, i, need, row, table->spec.pull_values, table->pull_bound_ppm > 0, "pulled");
        return;
    }
    bool exact = table->push_bound_ppm == 0 && table->pull_bound_ppm == 0 && keeps_all(ps);
    uint32_t owed = 0; /* unless it was lost */
    uint32_t may = 0;
    for (uint32_t v = 0; v < table->workers; v++) {
        for (uint32_t c = 0; c < table->clocks; c++) {
            uint32_t bit =
                weft_swarm_table_pushes(table, v, c, i) ? weft_swarm_table_bit(table, v, c) : 0;
            bool own = v == w && c < worker->clock;
            owed |= (c < need || own) && !ps_was_cut_off(ps, v, c) &&
                            (ps->worker[v].dropped >> c & 1) == 0
                        ? bit
                        : 0;
            may |= table->spec.mode != WEFT_TABLE_BSP || c < need ? bit : 0;
        }
    }
    uint32_t must = forgets(ps) ? 0 : owed;
    if (table->flavour == WEFT_SWARM_EXPIRING) {
        must = may = weft_swarm_table_unexpired(table, i, need);
    }
    if (table->spec.pull_values == WEFT_VALUE_BF16) {
        check_rounded(ps, w, i, exact ? must : 0, may);
        return;
    }
    uint32_t set = row_set(ps, i, row, "pulled");
    ps->lacked[i] |= ps->applies && exact ? owed & ~set : 0;
    if ((exact && (set & must) != must) || (set & ~may) != 0) {
        weft_world_fail(ps->world,
                        "worker %" PRIu32 " in clock %" PRIu32 " pulled row %" PRIu32
                        " as %x; must %x, may %x",
                        w, worker->clock, i, set, must, may);
    }
}

void weft_swarm_ps_check_pulled(struct swarm_ps *ps, uint32_t w,
                                const struct weft_ps_result *result)
{
    const struct swarm_ps_worker *worker = &ps->worker[w];
    uint32_t mode = ps->table.spec.mode;
    uint32_t need = mode == WEFT_TABLE_BSP ? worker->clock
                    : mode == WEFT_TABLE_SSP && worker->clock > ps->table.spec.staleness
                        ? worker->clock - ps->table.spec.staleness
                        : 0;
    if (result->clock < need) {
        weft_world_fail(ps->world, "worker %" PRIu32 " in clock %" PRIu32 " got version %" PRIu32,
                        w, worker->clock, result->clock);
    }
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        check_row(ps, w, i, need);
    }
}

/* ---- at the end ------------------------------------------------------------------------------ */

/* Check the pushes that row i kept, at the end of the run. */
static uint32_t check_kept(struct swarm_ps *ps, uint32_t i, const float *row)
{
    const struct weft_swarm_table *table = &ps->table;
    if (table->flavour == WEFT_SWARM_OPTIMIZER) {
        check_truth(ps, i, table->clocks, row, WEFT_VALUE_FLOAT32, false, "at the end");
        return weft_swarm_table_all(table, i);
    }
    uint32_t set = row_set(ps, i, row, "at the end");
    uint32_t all = table->flavour == WEFT_SWARM_EXPIRING
                       ? weft_swarm_table_unexpired(table, i, table->clocks)
                       : weft_swarm_table_all(table, i);
    uint32_t may_lack = 0;
    for (uint32_t w = 0; w < table->workers; w++) {
        may_lack |= (ps->worker[w].cut_off | ps->worker[w].dropped) << w * table->clocks;
    }
    may_lack = forgets(ps) ? all : may_lack;
    if ((ps->lacked[i] & set) != 0) { /* a CLOCK or a pull passed the push that it follows */
        weft_world_fail(ps->world,
                        "row %" PRIu32 " at the end is %x, and %x of it came too late", i, set,
                        ps->lacked[i] & set);
    }
    if (table->push_bound_ppm == 0 && keeps_all(ps) && (set | may_lack) != (all | may_lack)) {
        weft_world_fail(ps->world, "row %" PRIu32 " at the end is %x, not %x", i, set, all);
    }
    uint32_t kept = (uint32_t)__builtin_popcount(set), came = (uint32_t)__builtin_popcount(all);
    uint32_t waits = table->spec.admission_count - 1;
    uint32_t least = came > waits ? came - waits : 0;
    if (table->push_bound_ppm == 0 && table->flavour == WEFT_SWARM_ADMITTED &&
        (kept < least || (kept > least && table->spec.admission == WEFT_ADMISSION_COUNTER))) {
        weft_world_fail(ps->world, "row %" PRIu32 " kept %" PRIu32 " of %" PRIu32 " pushes", i,
                        kept, came);
    }
    return set;
}

/* The residuals for column d that workers keep, at the shards of a row, in units of a push. */
static void kept_of(const struct swarm_ps *ps, uint32_t i, double *sums)
{
    const uint32_t dim = ps->table.spec.dim;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        uint64_t ids[IDS_MAX];
        static float kept[IDS_MAX * WEFT_RPC_DIM_MAX];
        uint32_t n =
            weft_ps_client_kept(ps->worker[w].client, ps->table.spec.table, ids, kept, IDS_MAX);
        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t d = 0; ids[k] == ps->id[i] && d < dim; d++) {
                sums[d] += (double)kept[(size_t)k * dim + d] / ps->table.workers;
            }
        }
    }
}

/* The difference between the row and the pushes in it must equal the residuals of the workers,
 * except for float32 rounding. The residuals of a worker or shard that died are lost. */
static void check_remainders(struct swarm_ps *ps, uint32_t i, const float *row, uint32_t set)
{
    double sums[WEFT_RPC_DIM_MAX] = {0};
    kept_of(ps, i, sums);
    for (uint32_t d = 1; d < ps->table.spec.dim; d++) {
        const double wanted = weft_swarm_table_sum(&ps->table, d, set);
        double lacks = wanted - (sums[d] - (double)row[d]);
        if (fabs(lacks) > 0.1 + wanted * 2e-6 || sums[0] != 0) {
            weft_world_fail(ps->world,
                            "row %" PRIu32 ", column %" PRIu32 " lacks %g of the pushes %x, which "
                            "nobody keeps",
                            i, d, lacks, set);
            return;
        }
    }
}

/* If every push is either in a row or counted as left out, none may be missing and none added. */
static void check_sums(struct swarm_ps *ps, uint64_t kept)
{
    uint64_t told = 0;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        told += ps->worker[w].delivered;
    }
    bool some_went = ps->table.flavour == WEFT_SWARM_EXPIRING || forgets(ps);
    uint64_t cut_off = 0;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        cut_off += ps->worker[w].cut_off_elements;
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        struct weft_shard_table_sums sums;
        weft_shard_table_sums(ps->shard[s], &sums);
        kept += sums.unadmitted;
        some_went |= sums.rows_evicted > 0;
        if (sums.rows + sums.rows_evicted + sums.rows_expired != sums.rows_created ||
            (ps->table.spec.rows_max > 0 && sums.rows > ps->table.spec.rows_max)) {
            weft_world_fail(ps->world,
                            "shard %" PRIu32 " created %" PRIu64 " rows, removed %" PRIu64
                            ", and has %" PRIu64,
                            s, sums.rows_created, sums.rows_evicted + sums.rows_expired, sums.rows);
        }
    }
    if (some_went ? kept > told + cut_off : (kept < told || kept > told + cut_off)) {
        weft_world_fail(ps->world,
                        "the tables hold %" PRIu64 " contributions; reported to workers: %" PRIu64,
                        kept, told);
    }
}

static bool is_absent(struct swarm_ps *ps, uint32_t w, uint32_t clock, uint32_t i)
{
    float row[WEFT_RPC_DIM_MAX];
    uint32_t s = weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards);
    (void)weft_table_read(weft_shard_table(ps->shard[s], ps->table.spec.table), ps->id[i], row);
    return ((uint32_t)-row[0] & weft_swarm_table_bit(&ps->table, w, clock)) == 0;
}

/* Number of messages of one push to one shard that have missing parts: its rows in order, a fixed
 * number per message. */
static uint64_t messages_absent(struct swarm_ps *ps, uint32_t w, uint32_t clock, uint32_t s)
{
    uint32_t rows = 0;
    uint64_t absent = 0;
    bool counted = false;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        if (weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards) != s ||
            !weft_swarm_table_pushes(&ps->table, w, clock, i)) {
            continue;
        }
        counted = rows % ps->rows_per_rpc == 0 ? false : counted;
        rows++;
        if (!counted && is_absent(ps, w, clock, i)) {
            counted = true;
            absent++;
        }
    }
    return absent;
}

/* Rows of one push to one shard that are missing. */
static uint64_t rows_absent(struct swarm_ps *ps, uint32_t w, uint32_t clock, uint32_t s)
{
    uint64_t absent = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        absent += weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards) == s &&
                  weft_swarm_table_pushes(&ps->table, w, clock, i) && is_absent(ps, w, clock, i);
    }
    return absent;
}

/* If pushes are not recovered, the missing ones must equal those reported to the workers as
 * lost. If workers split pushes by hot rows, only the number of rows in a message is known, at
 * most. */
static void check_lost(struct swarm_ps *ps)
{
    uint64_t absent = 0, told = 0, rows = 0;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        if (forgets(ps) && ps->worker[w].lives > 0) {
            continue; /* losses after the worker's death, or of its unfinished pushes, are not
                       * reported */
        }
        told += ps->worker[w].lost;
        told += weft_ps_client_counters(ps->worker[w].client)->pushes_lost;
        for (uint32_t c = 0; forgets(ps) && c < ps->table.clocks; c++) {
            for (uint32_t s = 0; s < ps->shards; s++) {
                absent += messages_absent(ps, w, c, s);
                rows += rows_absent(ps, w, c, s);
            }
        }
    }
    if (ps->hot_rows > 0 && told <= rows && rows <= told * ps->rows_per_rpc) {
        return;
    }
    if (absent != told) {
        weft_world_fail(ps->world,
                        "%" PRIu64 " messages of pushes are absent; workers were told %" PRIu64,
                        absent, told);
    }
}

/* Check the tables. With bound 0 they must contain all pushes; in total they must contain exactly
 * what was reported to the workers as delivered. */
void weft_swarm_ps_check_tables(struct swarm_ps *ps)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        uint32_t s = weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards);
        float row[WEFT_RPC_DIM_MAX];
        (void)weft_table_read(weft_shard_table(ps->shard[s], ps->table.spec.table), ps->id[i], row);
        uint32_t set = check_kept(ps, i, row);
        kept += (uint64_t)__builtin_popcount(set) * ps_blocks(ps);
        if (ps->table.is_odd && !ps->mortal && !forgets(ps)) {
            check_remainders(ps, i, row, set);
        }
    }
    check_sums(ps, kept);
    check_lost(ps);
    for (uint32_t s = 0; s < ps->shards; s++) {
        weft_swarm_ps_sched_check_end(ps, s);
        if (weft_shard_clock(ps->shard[s], ps->table.spec.table) != ps->table.clocks) {
            weft_world_fail(ps->world, "shard %" PRIu32 " does not know the last clock", s);
        }
    }
}
