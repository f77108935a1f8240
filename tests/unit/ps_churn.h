/* Two workers, and two shards that die and restart, for tests of restarts. Gradients are 1, so a
 * row is minus the number of pushes applied to it. All random choices of a test come from
 * churn->prng. */
#ifndef WEFT_TESTS_PS_CHURN_H
#define WEFT_TESTS_PS_CHURN_H

#include "ps_cluster.h"
#include "sim/saved.h"

enum {
    CHURN_SHARDS = 2,
    CHURN_WORKERS = 2,
    CHURN_IDS = 40,
    CHURN_DIM = 4,
    CHURN_CLOCKS_APART = 3,
};

struct churn {
    struct cluster c;
    struct cluster_config config;
    struct weft_prng prng;
    struct weft_table_spec spec;
    struct weft_saved saved[CHURN_SHARDS];
    struct weft_ps_how how; /* options of pushes; all 0: nothing may be lost */
    uint64_t in_time_ns;    /* maximum deadline of a push, from now; 0 = none */
    uint32_t same_percent;  /* share of pushes that reuse the rows of the worker's last pull */
    uint32_t last[CHURN_WORKERS][CHURN_IDS]; /* the ids of that pull */
    uint32_t last_count[CHURN_WORKERS];      /* their number */
};

static inline uint64_t churn_id(uint32_t i)
{
    return weft_mix64(i + 1);
}

/* Initialize the configuration; change it before churn_start. */
static inline void churn_init(struct churn *churn, uint8_t mode, uint64_t seed)
{
    *churn = (struct churn){.config = cluster_config(CHURN_SHARDS, CHURN_WORKERS)};
    weft_prng_init(&churn->prng, seed);
    churn->spec = (struct weft_table_spec){.dim = CHURN_DIM,
                                           .mode = mode,
                                           .workers = CHURN_WORKERS,
                                           .staleness = mode == WEFT_TABLE_SSP ? 1 : 0,
                                           .learning_rate = CHURN_WORKERS};
    /* Small limits, because hundreds of shards are created. */
    churn->config.shard.rows_max = 10 * CHURN_IDS;
    churn->config.shard.list_ids = 100 * CHURN_IDS;
    churn->config.shard.dim_max = churn->config.client.dim_max = CHURN_DIM;
    churn->config.incarnation = 1000;
    churn->config.shard.checkpoints = true;
    churn->config.shard.chunks_max = 64;
    churn->config.shard.push_slots = 1 + (uint32_t)weft_prng_below(&churn->prng, 4);
    churn->config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    churn->config.client.rows_per_rpc_max = 5 + (uint32_t)weft_prng_below(&churn->prng, 100);
}

static inline void churn_start(struct churn *churn, uint64_t seed)
{
    cluster_start(&churn->c, &churn->config, CHURN_WORKERS, seed);
    churn->c.net->packet_bytes = 200;
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        weft_saved_init(&churn->saved[s], 2, CHURN_WORKERS);
    }
}

static inline void churn_stop(struct churn *churn)
{
    cluster_stop(&churn->c);
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        weft_saved_fini(&churn->saved[s]);
    }
}

/* Replace shard s by a new one, restored from its checkpoint. The previous one is not freed. */
static inline struct weft_shard *churn_shard_again(struct churn *churn, uint32_t s)
{
    struct weft_shard *before = churn->c.shard[s];
    churn->c.shard[s] = cluster_shard_new(&churn->c, &churn->config, s);
    weft_saved_restore(&churn->saved[s], churn->c.shard[s]);
    return before;
}

/* Free a replaced shard. */
static inline void churn_shard_free(struct churn *churn, uint32_t s, struct weft_shard *shard)
{
    struct weft_shard *alive = churn->c.shard[s];
    churn->c.shard[s] = shard;
    cluster_shard_free(&churn->c, s);
    churn->c.shard[s] = alive;
}

/* Act as the drivers: reconnect after a random delay. Some connections break before they are
 * used. */
static inline void churn_reconnect(struct churn *churn, uint32_t chance_ppm)
{
    struct cluster *c = &churn->c;
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            uint64_t until_ns;
            if (weft_ps_client_away(c->client[w], s, &until_ns) &&
                weft_prng_chance(&churn->prng, chance_ppm)) {
                uint64_t now_ns = c->net->now_ns;
                WEFT_ASSERT(weft_ps_client_reconnect(c->client[w], s, fake_peer(s), now_ns) ==
                            WEFT_OK);
                WEFT_ASSERT(weft_ps_client_reconnect(c->client[w], s, fake_peer(s), now_ns) ==
                            WEFT_STATE);
                fake_connect(c->net, CHURN_SHARDS + w, s);
            }
        }
    }
}

/* Begin the cuts that shards request, and finish those that are ready. Sometimes a server dies
 * after the checkpoint, before it can report it. */
static inline void churn_cuts(struct churn *churn)
{
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        struct weft_shard *shard = churn->c.shard[s];
        uint32_t clock;
        if (weft_shard_cut_wanted(shard, &clock)) {
            weft_saved_begin(&churn->saved[s], shard);
        }
        if (weft_saved_poll(&churn->saved[s], shard) && weft_prng_below(&churn->prng, 4) > 0) {
            weft_shard_durable(shard);
        }
    }
}

/* Push up to rows_max rows. picked (CHURN_IDS,): how often the push contains each id. */
static inline weft_status churn_push(struct churn *churn, uint32_t w, uint32_t rows_max,
                                     uint32_t *picked, weft_ps_op *op_p)
{
    uint64_t ids[CHURN_IDS];
    float rows[CHURN_IDS * CHURN_DIM];
    uint32_t n = 1 + (uint32_t)weft_prng_below(&churn->prng, rows_max);
    bool same = churn->same_percent > 0 && churn->last_count[w] > 0 &&
                weft_prng_below(&churn->prng, 100) < churn->same_percent;
    n = same ? churn->last_count[w] : n;
    memset(picked, 0, CHURN_IDS * sizeof(*picked));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = same ? churn->last[w][i] : (uint32_t)weft_prng_below(&churn->prng, CHURN_IDS);
        ids[i] = churn_id(k);
        picked[k]++;
    }
    for (uint32_t i = 0; i < n * CHURN_DIM; i++) {
        rows[i] = 1;
    }
    const struct weft_ps_list list = {.n = n, .ids = ids, .values = rows};
    churn->how.deadline_ns =
        churn->in_time_ns == 0
            ? 0
            : churn->c.net->now_ns + weft_prng_below(&churn->prng, churn->in_time_ns);
    weft_status status = weft_ps_begin(churn->c.client[w], WEFT_RPC_PUSH, &list, 1, &churn->how,
                                       churn->c.net->now_ns, op_p);
    WEFT_ASSERT(status == WEFT_OK || status == WEFT_AGAIN);
    return status;
}

/* End a clock occasionally. A worker never advances so far that all its operations wait for the
 * slowest one. */
static inline void churn_clock(struct churn *churn, uint32_t w)
{
    const struct cluster *c = &churn->c;
    uint32_t mine = weft_ps_clock_now(c->client[w], 0);
    uint32_t other = weft_ps_clock_now(c->client[1 - w], 0);
    if (weft_prng_chance(&churn->prng, 20000) && mine < other + CHURN_CLOCKS_APART) {
        weft_status status = weft_ps_clock(c->client[w], 0, c->net->now_ns);
        WEFT_ASSERT(status == WEFT_OK || status == WEFT_AGAIN);
    }
}

/* Finish all work: `work` completes a worker's open operations, and returns the number that remain.
 * Then the sums of a BSP clock in progress are stepped. */
static inline void churn_settle(struct churn *churn, uint32_t (*work)(void *arg, uint32_t w),
                                void *arg)
{
    struct cluster *c = &churn->c;
    uint32_t open = 1, idle = 0, last = 0;
    while (open > 0 || idle < 50) {
        open = 0;
        idle = cluster_step(c) ? 0 : idle + 1;
        churn_reconnect(churn, WEFT_PPM);
        for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
            open += work(arg, w);
        }
        WEFT_ASSERT(idle < 100000);
    }
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        last = (uint32_t)weft_max_u64(last, weft_ps_clock_now(c->client[w], 0) + 1);
    }
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        while (weft_ps_clock_now(c->client[w], 0) < last) {
            cluster_clock(c, w, 0);
        }
    }
    cluster_run(c);
}

/* Number of pushes to row i that its shard has applied. */
static inline double churn_row(const struct churn *churn, uint32_t i)
{
    float row[CHURN_DIM];
    uint32_t s = weft_table_spec_shard(&churn->spec, churn_id(i), CHURN_SHARDS);
    (void)weft_table_read(weft_shard_table(churn->c.shard[s], 0), churn_id(i), row);
    for (uint32_t d = 1; d < CHURN_DIM; d++) {
        WEFT_ASSERT(row[d] == row[0]);
    }
    return -(double)row[0];
}

#endif
