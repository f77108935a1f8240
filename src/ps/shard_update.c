/* Updates of a job with a transfer scheduler, at the shard: opened, checked, closed (ps/update.h).
 *
 * An update opens with its first chunk to arrive, of any of its pushes. Chunks are applied on
 * arrival, so its delay must be known by then: its base is in the tag, because the head is in one
 * chunk only (rpc/head.h). It closes with the CLOCKs that end its clock in all tables with its
 * pushes, because a worker sends CLOCK after its pushes are closed.
 *
 * The two clocks after a rank's last CLOCK can be open in a table. The clocks of tables may differ,
 * so each rank has room for two updates per table.
 *
 * Counts start at 0 in each process. Checkpoints do not contain them: a restored model is older
 * than the rows that workers have pulled, so a base from before the restart is meaningless. Such a
 * base is above the count, and counts as no delay.
 *
 * Source: docs/PROTOCOL.md section 7, "Updates".
 */
#include "ps/shard_internal.h"
#include "ps/update.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>

enum { RING_MIN = 1024 };

/* A pause this long without data of an update is attributed to its worker, which computed or was
 * not scheduled. A path that delivers packets less often than that carries at most 1 Mbit/s. */
static const uint64_t pause_ns = 10 * WEFT_NS_PER_MS;

/* WINDOW: hosts deliver packets in bursts, so fewer bytes than this do not measure a path. ALONE:
 * an update that received at least this fraction of a window's bytes was alone in it. */
enum { WINDOW_BYTES = 65536, ALONE_PPM = 900000, US_PER_S = 1000000 };

struct came {
    uint64_t bytes; /* of one update */
    uint64_t all;   /* of all updates in the same time */
    uint64_t took_ns;
};

/* Arrival rate of an update. Bytes that arrived at the first instant, or at the first after a
 * pause, took an unknown time, and are not counted. Nor are windows in which aggregates arrived:
 * how many bytes of them is known only at their end. */
struct arrival {
    uint64_t first_ns; /* since the last pause; 0 = nothing arrived */
    uint64_t last_ns;
    uint64_t came; /* total bytes at the shard, at last_ns */
    uint64_t sums; /* aggregates that had begun or ended, at last_ns */
    bool is_beside_sum; /* an aggregate arrived during the window */
    struct came window;
    struct came total; /* windows */
    struct came alone; /* windows in which almost nothing else arrived */
    struct came short_sums; /* aggregates that are not in `total` yet: short pieces */
    uint64_t short_bytes;
};

struct shard_update {
    bool live;
    bool late;
    uint32_t clock;
    uint32_t tables; /* tables with its pushes and without its CLOCK yet */
    uint64_t number;
    uint64_t base;
    double squares; /* of the applied values */
    uint32_t members; /* updates in its largest sum */
    uint64_t sum_bytes;
    struct arrival arrival;
};

struct weft_shard_updates {
    struct shard_update *of; /* (workers_max, per_rank) */
    uint32_t per_rank;
    uint32_t *clocks; /* (tables_max, workers_max, 2), by parity: clock of an open update with
                       * pushes in the table; 0 = none */
    uint64_t came;    /* total bytes of updates */
    uint32_t sums;    /* aggregates that are arriving */
    uint64_t sums_changed; /* times that one began or ended */
    struct shard_part part;
    struct shard_part until; /* time, and `came`, up to which `part` was computed */
    struct weft_shard_committed *ring;
    uint32_t ring_size;
    uint32_t ring_head;
    uint32_t ring_count;
};

weft_status weft_shard_updates_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    struct weft_shard_updates *u = shard->updates = calloc(1, sizeof(*u));
    if (u == NULL) {
        return WEFT_NOMEM;
    }
    size_t links = (size_t)config->tables_max * config->workers_max;
    u->ring_size = config->workers_max > RING_MIN ? config->workers_max : RING_MIN;
    u->per_rank = 2 * config->tables_max;
    u->of = calloc((size_t)config->workers_max * u->per_rank, sizeof(*u->of));
    u->clocks = calloc(links * 2, sizeof(*u->clocks));
    u->ring = calloc(u->ring_size, sizeof(*u->ring));
    return u->of != NULL && u->clocks != NULL && u->ring != NULL ? WEFT_OK : WEFT_NOMEM;
}

void weft_shard_updates_fini(struct weft_shard *shard)
{
    if (shard->updates != NULL) {
        free(shard->updates->of);
        free(shard->updates->clocks);
        free(shard->updates->ring);
    }
    free(shard->updates);
}

static struct shard_update *find(const struct weft_shard *shard, uint32_t rank, uint32_t clock)
{
    uint32_t per_rank = shard->updates->per_rank;
    struct shard_update *of = &shard->updates->of[(size_t)rank * per_rank];
    for (uint32_t i = 0; i < per_rank; i++) {
        if (of[i].live && of[i].clock == clock) {
            return &of[i];
        }
    }
    return NULL;
}

/* Pointer to the clocks of a rank's open updates in a table, by parity. */
static uint32_t *clocks_of(const struct weft_shard *shard, uint16_t table, uint32_t rank)
{
    return &shard->updates->clocks[((size_t)table * shard->config.workers_max + rank) * 2];
}

static void add(struct came *to, const struct came *from)
{
    to->bytes += from->bytes;
    to->all += from->all;
    to->took_ns += from->took_ns;
}

static void end_window(struct arrival *a)
{
    if (a->window.bytes < WINDOW_BYTES) {
        return;
    }
    if (!a->is_beside_sum) {
        add(&a->total, &a->window);
        if (a->window.bytes * WEFT_PPM >= a->window.all * ALONE_PPM) {
            add(&a->alone, &a->window);
        }
    }
    a->window = (struct came){0};
    a->is_beside_sum = false;
}

static uint64_t rate_bps(uint64_t bytes, uint64_t took_ns)
{
    return bytes * 8 * US_PER_S / weft_max_u64(took_ns / WEFT_NS_PER_US, 1);
}

static void tell(struct weft_shard *shard, uint32_t rank, const struct shard_update *update)
{
    struct weft_shard_updates *u = shard->updates;
    if (u->ring_count == u->ring_size) {
        u->ring_head = (u->ring_head + 1) % u->ring_size;
        u->ring_count--;
        shard->counters.updates_unreported++;
    }
    u->ring[(u->ring_head + u->ring_count++) % u->ring_size] = (struct weft_shard_committed){
        .rank = rank,
        .clock = update->clock,
        .number = update->number,
        .base = update->base,
        .opened = shard->counters.updates_opened,
        .closed = shard->counters.updates_closed,
        .late = update->late,
        .norm = sqrt(update->squares),
        .rate_bps = rate_bps(update->arrival.total.bytes, update->arrival.total.took_ns),
        .alone_bps = rate_bps(update->arrival.alone.bytes, update->arrival.alone.took_ns),
        .all_bps = rate_bps(update->arrival.total.all, update->arrival.total.took_ns),
        .members = update->members,
        .sum_bytes = update->sum_bytes,
    };
}

static void close_update(struct weft_shard *shard, uint32_t rank, struct shard_update *update)
{
    end_window(&update->arrival);
    shard->counters.updates_closed += !update->late;
    tell(shard, rank, update);
    update->live = false;
}

/* The table has no further pushes of the update of this clock. */
static void leave_table(struct weft_shard *shard, uint32_t rank, uint32_t *clock_p)
{
    struct shard_update *update = *clock_p == 0 ? NULL : find(shard, rank, *clock_p);
    *clock_p = 0;
    if (update != NULL && --update->tables == 0) {
        close_update(shard, rank, update);
    }
}

/* A free slot. There always is one: each open update has a clock in `clocks`, which has as many
 * entries. */
static struct shard_update *take(struct weft_shard *shard, uint32_t rank)
{
    uint32_t per_rank = shard->updates->per_rank;
    struct shard_update *of = &shard->updates->of[(size_t)rank * per_rank];
    for (uint32_t i = 0; i < per_rank; i++) {
        if (!of[i].live) {
            return &of[i];
        }
    }
    WEFT_ASSERT(false);
    return of;
}

/* behind_of if the base is not known: negative, also with the number of updates in a sum added. */
static const int64_t not_known = INT32_MIN;

/* Updates opened since a base: the delay of an update with this base that opens now. Negative: the
 * base is above the count, or not_known; its delay is 0. */
static int64_t behind_of(const struct weft_shard *shard, uint32_t base)
{
    uint64_t opened = shard->counters.updates_opened;
    uint32_t apart = (uint32_t)(opened - base) & WEFT_RPC_BASE_MASK;
    if (base != WEFT_RPC_BASE_NONE && apart > WEFT_RPC_BASE_MASK / 2) {
        return (int64_t)apart - WEFT_RPC_BASE_MASK - 1;
    }
    return base == WEFT_RPC_BASE_NONE || apart > opened ? not_known : apart;
}

static void open_update(struct weft_shard *shard, struct shard_update *update, uint32_t clock,
                        uint32_t base)
{
    uint64_t opened = shard->counters.updates_opened;
    int64_t apart = behind_of(shard, base);
    uint64_t behind = apart > 0 ? (uint64_t)apart : 0;
    *update = (struct shard_update){.live = true, .clock = clock, .base = opened - behind};
    update->late = shard->config.delay_max > 0 && behind > shard->config.delay_max;
    shard->counters.updates_late += update->late;
    shard->counters.updates_opened += !update->late;
    update->number = shard->counters.updates_opened;
    if (!update->late) {
        shard->counters.updates_delay_sum += behind;
        shard->counters.updates_delay_max = weft_max_u64(shard->counters.updates_delay_max, behind);
    }
}

enum weft_rpc_status weft_shard_update_open(struct weft_shard *shard, struct shard_slot *slot)
{
    slot->update_open = true;
    uint32_t *clock_p = clocks_of(shard, slot->table, slot->worker) + (slot->clock & 1);
    bool is_first = *clock_p != slot->clock;
    if (is_first) {
        leave_table(shard, slot->worker, clock_p); /* the worker skipped a CLOCK */
    }
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    if (update == NULL) {
        update = take(shard, slot->worker);
        open_update(shard, update, slot->clock, slot->base);
    }
    update->tables += is_first;
    *clock_p = slot->clock;
    return update->late ? WEFT_RPC_LATE : WEFT_RPC_OK;
}

/* The oldest base is first: if any order keeps the bound, this one does. Updates whose base is not
 * known are last, and never too late. A base a little above the count can be below it when its
 * update opens, after others of the sum. */
bool weft_shard_updates_fit(const struct weft_shard *shard, const struct shard_opening *of,
                            uint32_t count, uint8_t *order_p)
{
    int64_t behind[WEFT_AGGREGATE_MEMBERS_MAX];
    uint32_t opens = 0, others = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct shard_update *update = find(shard, of[i].rank, of[i].clock);
        const bool is_same =
            i > 0 && of[i].rank == of[i - 1].rank && of[i].clock == of[i - 1].clock;
        if (update != NULL && update->late) {
            return false;
        }
        if (!of[i].has_update || update != NULL || is_same) {
            order_p[count - ++others] = (uint8_t)i;
            continue;
        }
        behind[i] = behind_of(shard, of[i].base);
        uint32_t at = opens++;
        for (; at > 0 && behind[order_p[at - 1]] < behind[i]; at--) {
            order_p[at] = order_p[at - 1];
        }
        order_p[at] = (uint8_t)i;
    }
    for (uint32_t k = 0; shard->config.delay_max > 0 && k < opens; k++) {
        if (behind[order_p[k]] + k > shard->config.delay_max) {
            return false;
        }
    }
    return true;
}

bool weft_shard_update_is_late(const struct weft_shard *shard, const struct shard_slot *slot)
{
    const struct shard_update *update = find(shard, slot->worker, slot->clock);
    return update != NULL && update->late;
}

void weft_shard_update_applied(struct weft_shard *shard, const struct shard_slot *slot,
                               double squares)
{
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    if (update != NULL) {
        update->squares += squares;
    }
}

void weft_shard_update_arrived(struct weft_shard *shard, const struct shard_slot *slot,
                               uint32_t bytes, uint64_t now_ns)
{
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    shard->updates->came += bytes;
    if (update == NULL) {
        return;
    }
    struct arrival *a = &update->arrival;
    if (now_ns > a->last_ns) {
        end_window(a); /* including all bytes of an instant */
    }
    if (a->first_ns == 0 || now_ns - a->last_ns > pause_ns) {
        a->first_ns = now_ns;
        a->window = (struct came){0};
        a->is_beside_sum = false;
    } else if (now_ns > a->first_ns) {
        a->window.bytes += bytes;
        a->window.all += shard->updates->came - a->came;
        a->window.took_ns += now_ns - a->last_ns;
        a->is_beside_sum |= shard->updates->sums > 0 || a->sums != shard->updates->sums_changed;
    }
    a->last_ns = now_ns;
    a->came = shard->updates->came;
    a->sums = shard->updates->sums_changed;
}

static struct shard_part divide(struct weft_shard_updates *u, uint64_t at_ns)
{
    at_ns = weft_max_u64(at_ns, u->until.ns);
    if (u->sums > 0) {
        u->part.ns += (at_ns - u->until.ns) / u->sums;
        u->part.came += (u->came - u->until.came) / u->sums;
    }
    u->until = (struct shard_part){at_ns, u->came};
    return u->part;
}

struct shard_part weft_shard_sum_begins(struct weft_shard *shard, uint64_t at_ns)
{
    const struct shard_part part = divide(shard->updates, at_ns);
    shard->updates->sums++;
    shard->updates->sums_changed++;
    return part;
}

struct shard_part weft_shard_sum_ends(struct weft_shard *shard, uint64_t at_ns)
{
    const struct shard_part part = divide(shard->updates, at_ns);
    WEFT_ASSERT(shard->updates->sums > 0);
    shard->updates->sums--;
    shard->updates->sums_changed++;
    return part;
}

void weft_shard_update_in_sum(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct shard_sum *sum)
{
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    if (update == NULL) {
        return;
    }
    update->members = sum->updates > update->members ? sum->updates : update->members;
    update->sum_bytes += sum->bytes;
    if (sum->took_ns == 0) {
        return;
    }
    struct arrival *a = &update->arrival;
    const struct came came = {sum->timed, sum->all, sum->took_ns};
    add(&a->short_sums, &came);
    a->short_bytes += sum->bytes;
    if (a->short_bytes >= WINDOW_BYTES) {
        add(&a->total, &a->short_sums);
        a->short_sums = (struct came){0};
        a->short_bytes = 0;
    }
}

void weft_shard_update_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                             uint32_t finished)
{
    uint32_t *clocks = clocks_of(shard, table, rank);
    for (uint32_t parity = 0; parity < 2; parity++) {
        if (clocks[parity] <= finished) {
            leave_table(shard, rank, &clocks[parity]);
        }
    }
}

void weft_shard_updates_forget(struct weft_shard *shard, uint32_t rank)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        weft_shard_update_clock(shard, (uint16_t)t, rank, UINT32_MAX);
    }
}

bool weft_shard_take_committed(struct weft_shard *shard, struct weft_shard_committed *committed_p)
{
    struct weft_shard_updates *u = shard->updates;
    if (u->ring_count == 0) {
        return false;
    }
    *committed_p = u->ring[u->ring_head];
    u->ring_head = (u->ring_head + 1) % u->ring_size;
    u->ring_count--;
    return true;
}

uint64_t weft_shard_updates_opened(const struct weft_shard *shard)
{
    return shard->counters.updates_opened;
}
