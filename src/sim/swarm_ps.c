#include "sim/swarm_ps.h"

#include "base/assert.h"
#include "ps/client.h"
#include "ps/journal.h"
#include "ps/shard.h"
#include "sim/plan.h"
#include "sim/saved.h"
#include "sim/swarm_table.h"
#include "sim/world.h"
#include "wire/packet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bits of a float's mantissa bound workers x clocks. */
enum { SHARDS_MAX = 4, WORKERS_MAX = 6, BITS_MAX = 22, IDS_MAX = 400, DEATHS_MAX = 4 };
enum { STEPS_MAX = 20000000, SOCKET_PACKETS = 4096 };
enum { JOURNAL_BYTES = 4 << 20, JOURNAL_BYTES_SMALL = 16 << 10 };

static const uint64_t look_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t death_gap_ns = 30 * WEFT_NS_PER_MS;
static const uint64_t drain_ns = 2 * WEFT_NS_PER_S;

/* What brings back what a shard's checkpoint lacks. */
enum keeper {
    KEEPER_WORKERS,       /* they send it again */
    KEEPER_BOTH,          /* its journal; workers would, too */
    KEEPER_SMALL_JOURNAL, /* as BOTH, but it will be full, and workers must */
    KEEPER_JOURNAL,       /* its journal alone */
    KEEPER_NOBODY,        /* it is lost, and counted */
    KEEPERS
};
static const char *const keeper_names[KEEPERS] = {"workers replay", "journal and workers",
                                                  "small journal and workers", "journal", "nobody"};

enum phase {
    PHASE_OPEN,
    PHASE_OPENING,
    PHASE_PULL,
    PHASE_PULLING,
    PHASE_PUSH,
    PHASE_PUSHING,
    PHASE_CLOCK,
    PHASE_DONE
};

struct worker {
    struct weft_ps_client *client;
    enum phase phase;
    uint32_t clock; /* finished */
    weft_ps_op op;
    uint32_t n;         /* rows of the push under way */
    uint64_t delivered; /* elements, as the client was told */
    uint32_t lives;     /* behind the first process */
    uint32_t cut_off;   /* clocks, bit by bit, whose push was not answered before its process died:
                         * any of it may count */
    uint64_t cut_off_elements; /* of these */
    uint64_t lost;             /* pushes, as clients that died were told */
    float *rows;               /* (ids, dim) */
};

struct ps {
    struct weft_plan plan;
    struct weft_world *world;
    struct weft_swarm_table table;
    uint32_t shards;
    uint32_t rows_per_rpc;
    struct weft_shard *shard[SHARDS_MAX];
    struct worker worker[WORKERS_MAX];
    uint64_t id[IDS_MAX];
    uint64_t picked[IDS_MAX];
    uint64_t closed_ns;
    uint32_t deaths;  /* of shards, which come back from their last checkpoint; workers replay */
    uint64_t died_ns; /* the last one */
    enum keeper keeper;
    bool mortal; /* workers die, too */
    uint8_t *journal[SHARDS_MAX];
    struct weft_saved saved[SHARDS_MAX];
    uint32_t lives[SHARDS_MAX]; /* behind the first */
    uint32_t blocks;            /* of a row, once a shard has the table */
};

/* ---- drawing --------------------------------------------------------------------------------- */

/* The longest and the shortest packets of any host. */
static void packet_bytes(const struct ps *ps, uint32_t *most_p, uint32_t *least_p)
{
    *most_p = 0;
    *least_p = UINT32_MAX;
    for (uint32_t h = 0; h < ps->plan.hosts; h++) {
        uint32_t bytes = ps->plan.host[h].ep.packet_bytes;
        *most_p = bytes > *most_p ? bytes : *most_p;
        *least_p = bytes < *least_p ? bytes : *least_p;
    }
}

/* Only where a restart may leave no trace: what is admitted or evicted depends on the order. */
static uint32_t deaths_draw(const struct weft_swarm_table *table)
{
    struct weft_prng prng;
    weft_prng_split(&prng, table->seed, UINT64_C(0x646561746873));
    bool leaves_none = table->flavour == WEFT_SWARM_PLAIN ||
                       table->flavour == WEFT_SWARM_OPTIMIZER ||
                       table->flavour == WEFT_SWARM_DENSE || table->flavour == WEFT_SWARM_WIDE;
    uint32_t deaths = (uint32_t)weft_prng_below(&prng, 2 * DEATHS_MAX);
    return leaves_none && table->push_bound_ppm == 0 && deaths <= DEATHS_MAX ? deaths : 0;
}

/* Only plain rows say exactly which pushes are in them, whatever is missing. */
static void keeper_draw(struct ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x6b6565706572));
    bool plain = ps->table.flavour == WEFT_SWARM_PLAIN;
    uint32_t drawn = (uint32_t)weft_prng_below(&prng, KEEPERS);
    /* A part of a row, or another number of gradients in a mean, could not be told from a mistake. */
    bool whole_rows =
        plain || (ps->table.flavour == WEFT_SWARM_DENSE && ps->table.spec.mode != WEFT_TABLE_BSP);
    ps->keeper = drawn == KEEPER_NOBODY && !plain ? KEEPER_JOURNAL : (enum keeper)drawn;
    ps->mortal =
        whole_rows && ps->deaths > 0 && (ps->keeper == KEEPER_BOTH || ps->keeper == KEEPER_JOURNAL);
}

static bool has_journal(const struct ps *ps)
{
    return ps->deaths > 0 && ps->keeper != KEEPER_WORKERS && ps->keeper != KEEPER_NOBODY;
}

static void ps_draw(struct ps *ps, uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, UINT64_C(0x7073));
    ps->shards = (uint32_t)weft_prng_range(&prng, 1, SHARDS_MAX);
    ps->table.workers = (uint32_t)weft_prng_range(&prng, 1, WORKERS_MAX);
    ps->table.clocks =
        (uint32_t)weft_prng_range(&prng, 1, weft_min_u64(5, BITS_MAX / ps->table.workers));
    ps->table.ids = (uint32_t)weft_prng_range(&prng, 1, IDS_MAX);
    ps->rows_per_rpc = (uint32_t)weft_prng_range(&prng, 10, IDS_MAX);
    ps->table.share_percent = (uint32_t)weft_prng_range(&prng, 10, 100);
    bool lossy = weft_prng_below(&prng, 2) == 0;
    ps->table.push_bound_ppm = lossy ? (uint32_t)weft_prng_below(&prng, 400000) : 0;
    ps->table.pull_bound_ppm = lossy ? (uint32_t)weft_prng_below(&prng, 400000) : 0;
    uint8_t mode = (uint8_t)weft_prng_below(&prng, 3);
    ps->table.spec = (struct weft_table_spec){
        .table = 1,
        .dim = (uint32_t)weft_prng_range(&prng, 2, 40),
        .optimizer = WEFT_OPTIMIZER_SGD,
        .mode = mode,
        .workers = (uint16_t)ps->table.workers,
        .staleness = mode == WEFT_TABLE_SSP ? (uint32_t)weft_prng_range(&prng, 1, 3) : 0,
        .learning_rate = 1,
    };
    ps->table.seed = seed;
    ps->plan.seed = seed;
    ps->plan.pattern = "parameter server";
    ps->plan.victim = UINT32_MAX;
    ps->plan.hosts = ps->shards + ps->table.workers;
    weft_plan_draw_cluster(&prng, &ps->plan);
    weft_plan_draw_security(&ps->plan);
    for (uint32_t i = 0; i < IDS_MAX; i++) {
        /* In half of the runs all fit 32 bits; an odd factor keeps them apart. */
        ps->id[i] = seed % 2 == 0 ? weft_mix64(seed * IDS_MAX + i + 1)
                                  : (uint32_t)(seed * IDS_MAX + i) * UINT32_C(0x9e3779b1);
    }
    uint32_t most, least;
    packet_bytes(ps, &most, &least);
    weft_swarm_table_draw(&ps->table, most, least - WEFT_DATA_OVERHEAD_BYTES, ps->id);
    for (uint32_t i = 0; ps->table.flavour == WEFT_SWARM_DENSE && i < IDS_MAX; i++) {
        ps->id[i] = i;
    }
    ps->deaths = deaths_draw(&ps->table);
    keeper_draw(ps);
    ps->plan.limit_ns = ps->plan.heal_ns + 30 * WEFT_NS_PER_S;
}

/* ---- what a row says ------------------------------------------------------------------------- */

/* The set of pushes in a row, checked: whole, counted once each, and only such as may be in it. */
static uint32_t row_set(struct ps *ps, uint32_t i, const float *row, const char *where)
{
    uint32_t possible = weft_swarm_table_all(&ps->table, i);
    float top = (float)(UINT32_C(1) << BITS_MAX);
    bool sane = -row[0] >= 0 && -row[0] < top && -row[1] >= 0 && -row[1] < top;
    uint32_t set = sane ? (uint32_t)-row[0] : 0;
    if (!sane || (float)set != -row[0] || (float)__builtin_popcount(set) != -row[1] ||
        (set & ~possible) != 0) {
        weft_world_fail(ps->world, "row %" PRIu32 " %s: %g and %g are no set of pushes", i, where,
                        (double)row[0], (double)row[1]);
    }
    for (uint32_t d = 2; d < ps->table.spec.dim; d++) {
        if (row[d] != row[1]) {
            weft_world_fail(ps->world, "row %" PRIu32 " %s: column %" PRIu32 " differs", i, where,
                            d);
            break;
        }
    }
    return set;
}

/* OPTIMIZER: just these weights, or, where a pull may lose rows, the zeros of before. */
static void check_truth(struct ps *ps, uint32_t i, uint32_t version, const float *row,
                        bool may_be_lost, const char *where)
{
    const float *truth = weft_swarm_table_truth(&ps->table, i, version);
    bool lost = may_be_lost;
    for (uint32_t d = 0; d < ps->table.spec.dim; d++) {
        lost &= row[d] == 0;
    }
    if (!lost && memcmp(row, truth, ps->table.spec.dim * sizeof(float)) != 0) {
        weft_world_fail(
            ps->world, "row %" PRIu32 " %s is %.9g %.9g, not %.9g %.9g, after %" PRIu32 " clocks",
            i, where, (double)row[0], (double)row[1], (double)truth[0], (double)truth[1], version);
    }
}

/* Rows that say less than all that was pushed, as they should. */
static bool keeps_all(const struct ps *ps)
{
    return ps->table.flavour != WEFT_SWARM_ADMITTED && ps->table.flavour != WEFT_SWARM_EVICTING;
}

/* Nobody keeps what a shard that came back has lost. */
static bool forgets(const struct ps *ps)
{
    return ps->deaths > 0 && ps->keeper == KEEPER_NOBODY;
}

static bool was_cut_off(const struct ps *ps, uint32_t w, uint32_t clock)
{
    return (ps->worker[w].cut_off >> clock & 1) != 0;
}

/* What row i of a pull must and may contain. */
static void check_row(struct ps *ps, uint32_t w, uint32_t i, uint32_t need)
{
    const struct worker *worker = &ps->worker[w];
    const struct weft_swarm_table *table = &ps->table;
    const float *row = worker->rows + (size_t)i * table->spec.dim;
    if (table->flavour == WEFT_SWARM_OPTIMIZER) {
        check_truth(ps, i, need, row, table->pull_bound_ppm > 0, "pulled");
        return;
    }
    bool exact = table->push_bound_ppm == 0 && table->pull_bound_ppm == 0 && keeps_all(ps);
    uint32_t set = row_set(ps, i, row, "pulled");
    uint32_t must = 0;
    uint32_t may = 0;
    for (uint32_t v = 0; v < table->workers; v++) {
        for (uint32_t c = 0; c < table->clocks; c++) {
            uint32_t bit =
                weft_swarm_table_pushes(table, v, c, i) ? weft_swarm_table_bit(table, v, c) : 0;
            bool own = v == w && c < worker->clock;
            must |= (c < need || own) && !was_cut_off(ps, v, c) && !forgets(ps) ? bit : 0;
            may |= table->spec.mode != WEFT_TABLE_BSP || c < need ? bit : 0;
        }
    }
    if (table->flavour == WEFT_SWARM_EXPIRING) {
        must = may = weft_swarm_table_unexpired(table, i, need);
    }
    if ((exact && (set & must) != must) || (set & ~may) != 0) {
        weft_world_fail(ps->world,
                        "worker %" PRIu32 " in clock %" PRIu32 " pulled row %" PRIu32
                        " as %x; must %x, may %x",
                        w, worker->clock, i, set, must, may);
    }
}

static void check_pulled(struct ps *ps, uint32_t w, const struct weft_ps_result *result)
{
    const struct worker *worker = &ps->worker[w];
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

/* ---- the workers ----------------------------------------------------------------------------- */

static bool finished(struct ps *ps, uint32_t w, struct weft_ps_result *result_p)
{
    struct worker *worker = &ps->worker[w];
    if (!weft_ps_op_done(worker->client, worker->op, result_p)) {
        return false;
    }
    weft_ps_op_release(worker->client, worker->op);
    if (result_p->status != WEFT_OK) {
        weft_world_fail(ps->world, "worker %" PRIu32 " phase %d: %s, reason %u", w,
                        (int)worker->phase, weft_status_name(result_p->status),
                        result_p->rpc_status);
    }
    return true;
}

/* Go on when the call was taken, stay when it says AGAIN. */
static bool taken(struct ps *ps, uint32_t w, weft_status status)
{
    if (status != WEFT_OK && status != WEFT_AGAIN) {
        weft_world_fail(ps->world, "worker %" PRIu32 " phase %d: %s", w, (int)ps->worker[w].phase,
                        weft_status_name(status));
    }
    return status == WEFT_OK;
}

static weft_status start_push(struct ps *ps, uint32_t w, uint64_t now_ns)
{
    struct worker *worker = &ps->worker[w];
    float *rows = malloc((size_t)IDS_MAX * ps->table.spec.dim * sizeof(*rows));
    WEFT_ASSERT(rows != NULL);
    worker->n = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        if (!weft_swarm_table_pushes(&ps->table, w, worker->clock, i)) {
            continue;
        }
        float *row = rows + (size_t)worker->n * ps->table.spec.dim;
        for (uint32_t d = 0; d < ps->table.spec.dim; d++) {
            uint32_t bit = weft_swarm_table_bit(&ps->table, w, worker->clock);
            row[d] = (float)ps->table.workers * (d == 0 ? (float)bit : 1);
        }
        ps->picked[worker->n++] = ps->id[i];
    }
    /* All of a vector needs no ids. */
    bool vector = ps->table.flavour == WEFT_SWARM_DENSE && worker->n == ps->table.ids;
    const struct weft_ps_push_list list = {.table = ps->table.spec.table,
                                           .n = worker->n,
                                           .ids = vector ? NULL : ps->picked,
                                           .rows = rows};
    weft_status status =
        weft_ps_push_lists(worker->client, &list, 1, ps->table.push_bound_ppm, now_ns, &worker->op);
    free(rows);
    return status;
}

/* Elements of a row; clients may have cut rows shorter than the seed said. */
static uint32_t blocks_of(const struct ps *ps)
{
    return ps->blocks;
}

static weft_status start_pull(struct ps *ps, uint32_t w, uint64_t now_ns)
{
    struct worker *worker = &ps->worker[w];
    bool vector = ps->table.flavour == WEFT_SWARM_DENSE;
    const struct weft_ps_pull_list list = {.table = ps->table.spec.table,
                                           .n = ps->table.ids,
                                           .ids = vector ? NULL : ps->id,
                                           .rows_out = worker->rows};
    return weft_ps_pull_lists(worker->client, &list, 1, ps->table.pull_bound_ppm, now_ns,
                              &worker->op);
}

static void pushed(struct ps *ps, uint32_t w, const struct weft_ps_result *result)
{
    struct worker *worker = &ps->worker[w];
    worker->delivered += result->elements_delivered;
    uint64_t elements = (uint64_t)worker->n * blocks_of(ps);
    if (was_cut_off(ps, w, worker->clock)) { /* nothing of it was there, and this is all of it */
        worker->cut_off &= ~(UINT32_C(1) << worker->clock);
        worker->cut_off_elements -= elements;
    }
    bool whole = result->elements_delivered == elements;
    if (result->elements_sent != elements || (ps->table.push_bound_ppm == 0 && !whole) ||
        result->chunks_refused != 0) {
        weft_world_fail(ps->world,
                        "worker %" PRIu32 ": pushed %" PRIu32 " rows, sent %" PRIu64
                        ", delivered %" PRIu64,
                        w, worker->n, result->elements_sent, result->elements_delivered);
    }
}

/* One step of a worker; true when it got on. */
static bool worker_step(struct ps *ps, uint32_t w, uint64_t now_ns)
{
    struct worker *worker = &ps->worker[w];
    struct weft_ps_result result;
    enum phase before = worker->phase;
    switch (worker->phase) {
    case PHASE_OPEN:
        worker->phase +=
            taken(ps, w, weft_ps_table_open(worker->client, &ps->table.spec, now_ns, &worker->op));
        break;
    case PHASE_PULL:
        memset(worker->rows, 0, (size_t)IDS_MAX * ps->table.spec.dim * sizeof(float));
        worker->phase += taken(ps, w, start_pull(ps, w, now_ns));
        break;
    case PHASE_PUSH:
        worker->phase += taken(ps, w, start_push(ps, w, now_ns));
        break;
    case PHASE_OPENING:
        worker->phase += finished(ps, w, &result);
        worker->clock = weft_ps_clock_now(worker->client, ps->table.spec.table);
        break;
    case PHASE_PULLING:
        if (finished(ps, w, &result)) {
            check_pulled(ps, w, &result);
            worker->phase = worker->clock == ps->table.clocks ? PHASE_DONE : PHASE_PUSH;
            ps->closed_ns = now_ns;
        }
        break;
    case PHASE_PUSHING:
        if (finished(ps, w, &result)) {
            pushed(ps, w, &result);
            worker->phase = PHASE_CLOCK;
        }
        break;
    case PHASE_CLOCK:
        if (taken(ps, w, weft_ps_clock(worker->client, ps->table.spec.table, now_ns))) {
            worker->clock++;
            worker->phase = PHASE_PULL;
        }
        break;
    case PHASE_DONE:
        break;
    }
    return worker->phase != before;
}

/* ---- the hosts ------------------------------------------------------------------------------- */

static uint64_t clock_ns(void *arg)
{
    return weft_world_now_ns(arg);
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    (void)self;
    (void)host;
    (void)now_ns;
}

static void give_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        void *slab = malloc(bytes);
        WEFT_ASSERT(slab != NULL);
        WEFT_ASSERT(weft_shard_add_slab(shard, table, slab, bytes) == WEFT_OK);
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct ps *ps = self;
    if (event->type == WEFT_EVENT_PEER_DOWN && ps->deaths == 0) {
        weft_world_fail(ps->world, "host %" PRIu32 ": PEER_DOWN (%d), but nobody died", host,
                        (int)event->down);
    }
    if (host < ps->shards) {
        weft_shard_event(ps->shard[host], event, now_ns);
        /* At every event: a batch of a slow host may bring more new rows than one slab has. */
        give_slabs(ps->shard[host]);
    } else {
        weft_ps_client_event(ps->worker[host - ps->shards].client, event, now_ns);
    }
}

static void connect_again(struct ps *ps, uint32_t w, uint64_t now_ns)
{
    for (uint32_t s = 0; s < ps->shards; s++) {
        uint64_t until_ns;
        weft_peer peer;
        if (weft_ps_client_away(ps->worker[w].client, s, &until_ns)) {
            struct weft_addr addr = weft_world_addr(s);
            weft_status status =
                weft_ep_connect(weft_world_ep(ps->world, ps->shards + w), &addr, now_ns, &peer);
            WEFT_ASSERT(status == WEFT_OK);
            status = weft_ps_client_reconnect(ps->worker[w].client, s, peer, now_ns);
            WEFT_ASSERT(status == WEFT_OK);
        }
    }
}

/* A shard may be dead when it is asked. */
static void note_blocks(struct ps *ps, uint32_t s)
{
    const struct weft_table *table = weft_shard_table(ps->shard[s], ps->table.spec.table);
    ps->blocks = table != NULL ? weft_table_blocks(&table->spec) : ps->blocks;
}

static void save(struct ps *ps, uint32_t s, uint64_t now_ns)
{
    uint32_t clock;
    if (has_journal(ps) && weft_shard_cut_wanted(ps->shard[s], &clock)) {
        weft_saved_begin(&ps->saved[s], ps->shard[s]);
    }
    if (ps->deaths > 0 && weft_saved_poll(&ps->saved[s], ps->shard[s])) {
        weft_shard_durable(ps->shard[s]);
        weft_shard_progress(ps->shard[s], now_ns);
    }
}

static void on_batch(void *self, uint32_t host, uint64_t now_ns)
{
    struct ps *ps = self;
    if (host >= ps->shards) {
        uint32_t w = host - ps->shards;
        connect_again(ps, w, now_ns);
        weft_ps_client_progress(ps->worker[w].client, now_ns);
        while (weft_world_wrong(ps->world)[0] == '\0' && worker_step(ps, w, now_ns)) {
            weft_ps_client_progress(ps->worker[w].client, now_ns);
        }
        return;
    }
    do {
        weft_shard_progress(ps->shard[host], now_ns);
        save(ps, host, now_ns);
        note_blocks(ps, host);
    } while (weft_shard_has_work(ps->shard[host]));
    give_slabs(ps->shard[host]);
}

static struct weft_shard_config shard_config(const struct ps *ps, uint32_t shard)
{
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.shard = shard;
    config.shards = ps->shards;
    config.workers_max = ps->table.workers;
    config.tables_max = 2;
    config.rows_max = 2 * IDS_MAX;
    config.dim_max = ps->table.spec.dim;
    config.step_rows = 50; /* fewer than there are: clocks end in slices */
    config.rows_per_rpc_max = ps->rows_per_rpc;
    config.slab_bytes = 1 << 20; /* twice the rows of the longest packet, at least */
    if (ps->deaths > 0) {
        config.checkpoints = true;
        config.chunks_max = 4 * IDS_MAX;
    }
    config.clock_ns = clock_ns;
    config.clock_arg = ps->world;
    return config;
}

static struct weft_ps_client_config client_config(const struct ps *ps, uint32_t w)
{
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    config.worker = w;
    config.shards = ps->shards;
    config.tables_max = 2;
    config.ops_max = 2;
    config.lists_per_op_max = 1;
    config.rows_per_op_max = IDS_MAX;
    config.rows_per_rpc_max = ps->rows_per_rpc;
    config.dim_max = ps->table.spec.dim;
    config.missed_max = IDS_MAX;
    if (ps->deaths > 0) {
        config.reconnect_ns = 100 * WEFT_NS_PER_S;
        bool replays = ps->keeper != KEEPER_JOURNAL && ps->keeper != KEEPER_NOBODY;
        config.replay_bytes = replays ? 16 << 20 : 0;
    }
    config.clock_ns = clock_ns;
    config.clock_arg = ps->world;
    return config;
}

static struct weft_world_host_config host_config(struct ps *ps, uint32_t host, uint64_t name,
                                                 uint32_t expects)
{
    struct weft_world_host_config config = {
        .ep = ps->plan.host[host].ep,
        .crank_delay_ns = ps->plan.host[host].crank_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = ps, .event = on_event, .wake = on_wake, .batch = on_batch},
    };
    config.ep.name = name;
    config.ep.expects_max = expects;
    config.ep.chunks_max = 4 * IDS_MAX;
    config.ep.peer_timeout_ns = ps->plan.heal_ns + 20 * WEFT_NS_PER_S;
    if (ps->deaths > 0) {
        config.ep.keepalive_ns = 300 * WEFT_NS_PER_MS;
    }
    return config;
}

static void host_init(struct ps *ps, uint32_t host, uint64_t name, uint32_t expects)
{
    struct weft_world_host_config config = host_config(ps, host, name, expects);
    weft_status status = weft_world_host_init(ps->world, host, &config);
    WEFT_ASSERT(status == WEFT_OK);
}

/* What was done behind the checkpoint is done again, and written down from now on. */
static void keep_journal(struct ps *ps, uint32_t s)
{
    if (!has_journal(ps)) {
        return;
    }
    uint64_t bytes = ps->keeper == KEEPER_SMALL_JOURNAL ? JOURNAL_BYTES_SMALL : JOURNAL_BYTES;
    const struct weft_shard_journal_config config = {.memory = ps->journal[s],
                                                     .bytes = bytes,
                                                     .bytes_max = bytes,
                                                     .job = ps->table.seed,
                                                     .checkpoint = ps->saved[s].number};
    weft_status status = weft_shard_journal_init(ps->shard[s], &config);
    WEFT_ASSERT(status == WEFT_OK);
    while (weft_shard_journal_replay(ps->shard[s])) {
        give_slabs(ps->shard[s]);
    }
    if (weft_shard_journal_report(ps->shard[s])->refused > 0) {
        weft_world_fail(ps->world, "shard %" PRIu32 ": its journal cannot be done again", s);
    }
}

static void shard_dies(struct ps *ps, uint32_t s)
{
    struct weft_shard_config config = shard_config(ps, s);
    struct weft_world_host_config host =
        host_config(ps, s, weft_rpc_name(WEFT_ROLE_SERVER, s), weft_shard_expects_max(&config));
    host.ep.incarnation += ++ps->lives[s];
    host.ep.seed += ps->lives[s];
    weft_status status = weft_world_restart(ps->world, s, &host);
    WEFT_ASSERT(status == WEFT_OK);
    void *slab;
    while ((slab = weft_shard_take_slab(ps->shard[s])) != NULL) {
        free(slab);
    }
    weft_shard_free(ps->shard[s]);
    status = weft_shard_new(&config, weft_ep_msgr(weft_world_ep(ps->world, s)), &ps->shard[s]);
    WEFT_ASSERT(status == WEFT_OK);
    weft_saved_restore(&ps->saved[s], ps->shard[s]);
    keep_journal(ps, s);
    weft_world_wake(ps->world, s, weft_world_now_ns(ps->world));
}

static void make_shard(struct ps *ps, uint32_t s)
{
    struct weft_shard_config config = shard_config(ps, s);
    host_init(ps, s, weft_rpc_name(WEFT_ROLE_SERVER, s), weft_shard_expects_max(&config));
    weft_status status =
        weft_shard_new(&config, weft_ep_msgr(weft_world_ep(ps->world, s)), &ps->shard[s]);
    WEFT_ASSERT(status == WEFT_OK);
    keep_journal(ps, s);
}

static void make_client(struct ps *ps, uint32_t w, uint64_t now_ns)
{
    uint32_t host = ps->shards + w;
    weft_peer peers[SHARDS_MAX];
    struct weft_ps_client_config config = client_config(ps, w);
    struct weft_ep *ep = weft_world_ep(ps->world, host);
    for (uint32_t s = 0; s < ps->shards; s++) {
        struct weft_addr addr = weft_world_addr(s);
        weft_status status = weft_ep_connect(ep, &addr, now_ns, &peers[s]);
        WEFT_ASSERT(status == WEFT_OK);
    }
    weft_status status =
        weft_ps_client_new(&config, weft_ep_msgr(ep), peers, &ps->worker[w].client);
    WEFT_ASSERT(status == WEFT_OK);
    weft_world_wake(ps->world, host, now_ns);
}

static void make_worker(struct ps *ps, uint32_t w)
{
    struct weft_ps_client_config config = client_config(ps, w);
    host_init(ps, ps->shards + w, weft_rpc_name(WEFT_ROLE_WORKER, w),
              weft_ps_client_expects_max(&config));
    ps->worker[w].rows = calloc((size_t)IDS_MAX * ps->table.spec.dim, sizeof(float));
    WEFT_ASSERT(ps->worker[w].rows != NULL);
    make_client(ps, w, 0);
}

/* Another process is in its place at once, and goes on where the shards say. */
static void worker_dies(struct ps *ps, uint32_t w)
{
    struct worker *worker = &ps->worker[w];
    struct weft_ps_client_config config = client_config(ps, w);
    uint32_t h = ps->shards + w;
    if (worker->phase == PHASE_DONE) {
        return; /* it has ended */
    }
    if (worker->phase == PHASE_PUSHING && !was_cut_off(ps, w, worker->clock)) {
        worker->cut_off |= UINT32_C(1) << worker->clock;
        worker->cut_off_elements += (uint64_t)worker->n * blocks_of(ps);
    }
    struct weft_world_host_config host =
        host_config(ps, h, weft_rpc_name(WEFT_ROLE_WORKER, w), weft_ps_client_expects_max(&config));
    worker->lives++;
    host.ep.incarnation += worker->lives;
    host.ep.seed += worker->lives;
    weft_status status = weft_world_restart(ps->world, h, &host);
    WEFT_ASSERT(status == WEFT_OK);
    worker->lost += weft_ps_client_counters(worker->client)->pushes_lost;
    weft_ps_client_free(worker->client);
    worker->phase = PHASE_OPEN;
    make_client(ps, w, weft_world_now_ns(ps->world));
}

static struct ps *ps_new(uint64_t seed, const struct weft_world_tap *tap)
{
    struct ps *ps = calloc(1, sizeof(*ps));
    WEFT_ASSERT(ps != NULL);
    ps_draw(ps, seed);
    struct weft_world_config config = {
        .hosts = ps->plan.hosts,
        .seed = weft_mix64(seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = ps->plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    ps->world = weft_world_new(&config);
    for (uint32_t s = 0; s < ps->shards; s++) {
        weft_saved_init(&ps->saved[s], 2, ps->table.workers);
        ps->journal[s] = has_journal(ps) ? calloc(1, JOURNAL_BYTES) : NULL;
        WEFT_ASSERT(ps->journal[s] != NULL || !has_journal(ps));
    }
    weft_plan_build(&ps->plan, weft_world_net(ps->world));
    for (uint32_t s = 0; s < ps->shards; s++) {
        make_shard(ps, s);
    }
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        make_worker(ps, w);
    }
    return ps;
}

static void ps_free(struct ps *ps)
{
    weft_swarm_table_fini(&ps->table);
    weft_world_free(ps->world); /* first: endpoints borrow the memory of shards and clients */
    for (uint32_t s = 0; s < ps->shards; s++) {
        void *slab;
        while ((slab = weft_shard_take_slab(ps->shard[s])) != NULL) {
            free(slab);
        }
        weft_shard_free(ps->shard[s]);
        weft_saved_fini(&ps->saved[s]);
        free(ps->journal[s]);
    }
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        weft_ps_client_free(ps->worker[w].client);
        free(ps->worker[w].rows);
    }
    free(ps);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* NULL when everybody is done, else who is not. */
static const char *waits(const struct ps *ps)
{
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        if (ps->worker[w].phase != PHASE_DONE) {
            return "a worker has not finished its clocks";
        }
        if (weft_ps_client_busy(ps->worker[w].client)) {
            return "a client is busy although its worker has finished";
        }
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (ps->deaths > 0 &&
            weft_shard_clock(ps->shard[s], ps->table.spec.table) != ps->table.clocks) {
            return "a shard that died has not been told all again";
        }
        if (weft_shard_busy(ps->shard[s])) {
            return "a shard is busy although all workers have finished";
        }
    }
    for (uint32_t i = 0; i < ps->plan.hosts; i++) {
        if (weft_ep_busy(weft_world_ep(ps->world, i))) {
            return "an endpoint is busy although all is closed";
        }
    }
    return NULL;
}

/* How many pushes row i kept, checked where all is known. */
static uint32_t check_kept(struct ps *ps, uint32_t i, const float *row)
{
    const struct weft_swarm_table *table = &ps->table;
    if (table->flavour == WEFT_SWARM_OPTIMIZER) {
        check_truth(ps, i, table->clocks, row, false, "at the end");
        return (uint32_t)__builtin_popcount(weft_swarm_table_all(table, i));
    }
    uint32_t set = row_set(ps, i, row, "at the end");
    uint32_t all = table->flavour == WEFT_SWARM_EXPIRING
                       ? weft_swarm_table_unexpired(table, i, table->clocks)
                       : weft_swarm_table_all(table, i);
    uint32_t may_lack = 0;
    for (uint32_t w = 0; w < table->workers; w++) {
        may_lack |= ps->worker[w].cut_off << w * table->clocks;
    }
    may_lack = forgets(ps) ? all : may_lack;
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
    return kept;
}

/* Where every push is in a row or counted as left out, nothing is missing and nothing invented. */
static void check_sums(struct ps *ps, uint64_t kept)
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
        if (sums.rows + sums.rows_evicted + sums.rows_expired != sums.rows_made ||
            (ps->table.spec.rows_max > 0 && sums.rows > ps->table.spec.rows_max)) {
            weft_world_fail(ps->world,
                            "shard %" PRIu32 " made %" PRIu64 " rows, let %" PRIu64
                            " go, and has %" PRIu64,
                            s, sums.rows_made, sums.rows_evicted + sums.rows_expired, sums.rows);
        }
    }
    if (some_went ? kept > told : (kept < told || kept > told + cut_off)) {
        weft_world_fail(ps->world,
                        "the tables hold %" PRIu64 " contributions; workers were told %" PRIu64,
                        kept, told);
    }
}

static bool is_absent(struct ps *ps, uint32_t w, uint32_t clock, uint32_t i)
{
    float row[WEFT_RPC_DIM_MAX];
    uint32_t s = weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards);
    (void)weft_table_read(weft_shard_table(ps->shard[s], ps->table.spec.table), ps->id[i], row);
    return ((uint32_t)-row[0] & weft_swarm_table_bit(&ps->table, w, clock)) == 0;
}

/* The messages of one push to one shard of which something is absent: its rows in their order, so
 * many in each. */
static uint64_t messages_absent(struct ps *ps, uint32_t w, uint32_t clock, uint32_t s)
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

/* Where nobody keeps pushes, what is absent is what the workers were told is lost. */
static void check_lost(struct ps *ps)
{
    uint64_t absent = 0, told = 0;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        told += ps->worker[w].lost;
        told += weft_ps_client_counters(ps->worker[w].client)->pushes_lost;
        for (uint32_t c = 0; forgets(ps) && c < ps->table.clocks; c++) {
            for (uint32_t s = 0; s < ps->shards; s++) {
                absent += messages_absent(ps, w, c, s);
            }
        }
    }
    if (absent != told) {
        weft_world_fail(ps->world,
                        "%" PRIu64 " messages of pushes are absent; workers were told %" PRIu64,
                        absent, told);
    }
}

/* The tables themselves: with bound 0 all that was pushed; together just what the workers were told
 * was delivered. */
static void check_tables(struct ps *ps)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        uint32_t s = weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards);
        float row[WEFT_RPC_DIM_MAX];
        (void)weft_table_read(weft_shard_table(ps->shard[s], ps->table.spec.table), ps->id[i], row);
        kept += (uint64_t)check_kept(ps, i, row) * blocks_of(ps);
    }
    check_sums(ps, kept);
    check_lost(ps);
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (weft_shard_clock(ps->shard[s], ps->table.spec.table) != ps->table.clocks) {
            weft_world_fail(ps->world, "shard %" PRIu32 " does not know the last clock", s);
        }
    }
}

static bool run_until(struct ps *ps, uint64_t until_ns)
{
    enum weft_world_end end = weft_world_run(ps->world, until_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(ps->world, "%d events were not enough", STEPS_MAX);
    }
    return end != WEFT_WORLD_BROKEN && end != WEFT_WORLD_STEPS;
}

/* Checkpoints and deaths, at any time. False: something is wrong already. */
static bool run_deaths(struct ps *ps)
{
    struct weft_prng prng, worker_prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x64696573));
    weft_prng_split(&worker_prng, ps->table.seed, UINT64_C(0x776469657300));
    /* Much must have come since the checkpoint where nobody sends it again. */
    bool by_workers = ps->keeper == KEEPER_WORKERS;
    uint64_t gap_ns = by_workers ? death_gap_ns : 4 * death_gap_ns;
    for (uint32_t i = 0; i < 3 * ps->deaths; i++) {
        ps->died_ns += weft_prng_below(&prng, gap_ns);
        uint32_t s = (uint32_t)weft_prng_below(&prng, ps->shards);
        if (!run_until(ps, ps->died_ns)) {
            return false;
        }
        if (ps->mortal && weft_prng_below(&worker_prng, 2) == 0) {
            worker_dies(ps, (uint32_t)weft_prng_below(&worker_prng, ps->table.workers));
        }
        if (i % 3 == 2) {
            shard_dies(ps, s);
        } else if (by_workers || i % 3 == 0) {
            weft_saved_begin(&ps->saved[s], ps->shard[s]);
        }
    }
    return true;
}

static void ps_run(struct ps *ps)
{
    if (!run_deaths(ps)) {
        return;
    }
    if (!run_until(ps, weft_max_u64(ps->died_ns, ps->plan.heal_ns))) {
        return;
    }
    weft_net_heal(weft_world_net(ps->world));
    uint64_t at_ns = weft_max_u64(ps->died_ns, ps->plan.heal_ns);
    while (waits(ps) != NULL) {
        if (at_ns > ps->plan.limit_ns ||
            weft_net_next_ns(weft_world_net(ps->world)) == WEFT_NEVER) {
            weft_world_fail(ps->world, "%s", waits(ps));
            return;
        }
        at_ns += look_ns;
        if (!run_until(ps, at_ns)) {
            return;
        }
    }
    if (run_until(ps, at_ns + drain_ns)) {
        check_tables(ps);
    }
}

static void describe(const struct ps *ps, char *text, size_t bytes)
{
    static const char *const modes[] = {"BSP", "SSP", "ASP"};
    const struct weft_swarm_table *table = &ps->table;
    int used = snprintf(text, bytes,
                        "%" PRIu32 " shards, %" PRIu32 " workers, %" PRIu32 " clocks, %" PRIu32
                        " ids of dim %" PRIu32 ", %s staleness %" PRIu32 ", %" PRIu32
                        " rows an RPC, bounds %u and %u ppm; %s, optimizer %u, %" PRIu32
                        " deaths of shards%s, kept by: %s\n",
                        ps->shards, table->workers, table->clocks, table->ids, table->spec.dim,
                        modes[table->spec.mode], table->spec.staleness, ps->rows_per_rpc,
                        table->push_bound_ppm, table->pull_bound_ppm, weft_swarm_table_name(table),
                        table->spec.optimizer, ps->deaths, ps->mortal ? " and workers" : "",
                        ps->deaths > 0 ? keeper_names[ps->keeper] : "-");
    weft_plan_describe(&ps->plan, text + used, bytes - (size_t)used);
}

void weft_swarm_ps_run(uint64_t seed, const struct weft_world_tap *tap,
                       struct weft_swarm_result *result_p)
{
    struct ps *ps = ps_new(seed, tap);
    ps_run(ps);
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(ps->world)[0] == '\0',
        .trace_hash = weft_world_hash(ps->world),
        .steps = weft_world_steps(ps->world),
        .virtual_ns = ps->closed_ns,
    };
    for (uint32_t i = 0; i < ps->plan.hosts; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(ps->world, i));
        result_p->packets += weft_world_counters(ps->world, i)->packets_sent;
        result_p->messages += (uint32_t)c->messages_sent;
    }
    describe(ps, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(ps->world));
    ps_free(ps);
}
