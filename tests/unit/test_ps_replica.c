/* Shards and their replicas: the distance of the model from its replica at every instant; random
 * promotions and broken connections; invalid pieces and peers. */
#include "ps_churn.h"

#include "ps/divergence.h"
#include "ps/replica.h"
#include "ps/shard_internal.h"
#include "ps/transfer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { OPS = 3, DIM = CHURN_DIM, IDS = CHURN_IDS, FIRST = CHURN_SHARDS + CHURN_WORKERS };

struct standby {
    struct weft_shard *shard; /* NULL: none */
    struct weft_replica *replica;
    uint64_t incarnation;
};

struct rig {
    struct churn churn;
    struct standby standbys[CHURN_SHARDS];
    struct {
        bool open;
        bool clocks; /* in_turn */
        weft_ps_op op;
    } ops[CHURN_WORKERS][OPS];
    double pushed[IDS];
    double told[CHURN_SHARDS][IDS];     /* value of row i in replies while the replica was ready */
    double answered[CHURN_SHARDS][IDS]; /* the same, including the time before the replica was
                                         * ready */
    float (*gradient)(struct weft_prng *prng);
    uint32_t promotions;
    uint64_t transfers, holds, lost;
    double divergence_max;
};

static struct rig rig;
static uint32_t ranks;      /* maximum ranks of shards; 0 = the number of workers */
static uint32_t pieces_max; /* limit of replicas; 0 = the default */
static uint32_t step_rows;  /* 0 = the usual value */
static bool is_closed;      /* open no table */
static uint32_t ttl;        /* TTL of rows in clocks; 0 = none */

static void supply(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        assert_int_equal(weft_shard_add_slab(shard, table, malloc(bytes), bytes), WEFT_OK);
    }
}

static void shard_free(struct weft_shard *shard)
{
    void *slab;
    while ((slab = weft_shard_take_slab(shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(shard);
}

static void pieces_free(struct weft_replica *replica, bool all)
{
    void *piece;
    while ((piece = weft_replica_take_piece(replica, all)) != NULL) {
        free(piece);
    }
}

static void standby_start(uint32_t s)
{
    struct cluster *c = &rig.churn.c;
    struct standby *standby = &rig.standbys[s];
    struct weft_msgr msgr = fake_msgr(c->net, FIRST + s);
    struct weft_replica_config config;
    weft_replica_config_default(&config);
    config.supply = supply;
    config.pieces_max = pieces_max > 0 ? pieces_max : config.pieces_max;
    c->net->nodes[FIRST + s].name = weft_rpc_name(WEFT_ROLE_SERVER, s);
    c->net->nodes[FIRST + s].incarnation = ++standby->incarnation;
    standby->shard = cluster_shard_new(c, &rig.churn.config, s);
    standby->shard->msgr = msgr;
    assert_int_equal(weft_replica_new(&config, standby->shard, msgr, &standby->replica), WEFT_OK);
    fake_connect(c->net, FIRST + s, s);
}

static void standby_poll(uint32_t s)
{
    struct standby *standby = &rig.standbys[s];
    struct fake_net *net = rig.churn.c.net;
    struct weft_msg_event event;
    while (standby->shard != NULL && fake_poll(&net->nodes[FIRST + s], &event)) {
        (void)weft_replica_event(standby->replica, &event, net->now_ns);
    }
    if (standby->shard != NULL) {
        weft_replica_progress(standby->replica, net->now_ns);
        while (weft_replica_wants_piece(standby->replica)) {
            weft_replica_add_piece(standby->replica, malloc(WEFT_PIECE_BYTES_MAX));
        }
        pieces_free(standby->replica, false);
    }
}

/* End the process; its shard object stays. */
static struct weft_shard *standby_end(uint32_t s)
{
    struct standby *standby = &rig.standbys[s];
    struct weft_shard *shard = standby->shard;
    weft_replica_end(standby->replica);
    fake_kill(rig.churn.c.net, FIRST + s);
    fake_revive(rig.churn.c.net, FIRST + s);
    pieces_free(standby->replica, true);
    weft_replica_free(standby->replica);
    *standby = (struct standby){.incarnation = standby->incarnation};
    return shard;
}

static struct weft_replication replication(uint32_t s)
{
    struct weft_replication state;
    weft_shard_replication(rig.churn.c.shard[s], &state);
    return state;
}

/* ---- the bound ------------------------------------------------------------------------------- */

static const float *row_of(const struct weft_shard *shard, uint32_t i, float *row)
{
    const struct weft_table *table = weft_shard_table(shard, 0);
    if (table == NULL) {
        weft_table_fill_initial(&rig.churn.spec, churn_id(i), row);
    } else {
        (void)weft_table_read(table, churn_id(i), row);
    }
    return row;
}

static double distance(uint32_t s)
{
    double squares = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        float a[DIM], b[DIM];
        row_of(rig.churn.c.shard[s], i, a);
        row_of(rig.standbys[s].shard, i, b);
        for (uint32_t d = 0; d < DIM; d++) {
            squares += ((double)a[d] - b[d]) * ((double)a[d] - b[d]);
        }
    }
    return sqrt(squares);
}

/* Check the distance at this instant. */
static void look(uint32_t s)
{
    const struct weft_replication state = replication(s);
    const double bound = rig.churn.config.shard.div_max;
    assert_true(state.divergence_max <= bound);
    for (uint32_t i = 0; i < IDS && !state.held; i++) {
        float row[DIM];
        rig.answered[s][i] = -(double)row_of(rig.churn.c.shard[s], i, row)[0];
    }
    if (!state.ready || rig.standbys[s].shard == NULL ||
        rig.churn.spec.eviction != WEFT_EVICTION_NONE) {
        return;
    }
    double by = distance(s);
    assert_true(by <= state.divergence);
    assert_true(state.held || by <= bound);
    assert_int_equal(state.held, state.divergence > bound);
    for (uint32_t i = 0; i < IDS && !state.held; i++) {
        float row[DIM];
        rig.told[s][i] = -(double)row_of(rig.churn.c.shard[s], i, row)[0];
    }
}

static bool step(void)
{
    bool moved = cluster_step(&rig.churn.c);
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        look(s);
        standby_poll(s);
        look(s);
    }
    return moved;
}

/* ---- work ------------------------------------------------------------------------------------ */

static float one(struct weft_prng *prng)
{
    (void)prng;
    return 1;
}

static float any(struct weft_prng *prng)
{
    return (float)weft_prng_below(prng, 2001) / 1000 - 1;
}

static void start_push(uint32_t w, uint32_t o)
{
    struct churn *churn = &rig.churn;
    uint64_t ids[IDS];
    float rows[IDS * DIM];
    uint32_t picked[IDS] = {0};
    uint32_t n = 1 + (uint32_t)weft_prng_below(&churn->prng, IDS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)weft_prng_below(&churn->prng, IDS); /* possibly the same row twice */
        ids[i] = churn_id(k);
        picked[k]++;
        rows[i * DIM] = rig.gradient(&churn->prng);
        for (uint32_t d = 1; d < DIM; d++) {
            rows[i * DIM + d] = rows[i * DIM];
        }
    }
    weft_status status = weft_ps_push(churn->c.client[w], 0, ids, rows, n, 0, churn->c.net->now_ns,
                                      &rig.ops[w][o].op);
    assert_true(status == WEFT_OK || status == WEFT_AGAIN);
    rig.ops[w][o].open = status == WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < IDS; i++) {
        rig.pushed[i] += picked[i];
    }
}

static uint32_t work(uint32_t w, bool more)
{
    struct weft_ps_client *client = rig.churn.c.client[w];
    struct weft_ps_result result;
    struct weft_ps_resumed resumed;
    uint32_t open = 0;
    for (uint32_t o = 0; o < OPS; o++) {
        if (rig.ops[w][o].open && weft_ps_op_done(client, rig.ops[w][o].op, &result)) {
            assert_int_equal(result.status, WEFT_OK);
            weft_ps_op_release(client, rig.ops[w][o].op);
            rig.ops[w][o].open = false;
        }
        if (more && !rig.ops[w][o].open && weft_prng_chance(&rig.churn.prng, 100000)) {
            start_push(w, o);
        }
        open += rig.ops[w][o].open;
    }
    churn_clock(&rig.churn, w);
    while (weft_ps_client_take_resumed(client, &resumed)) {
        rig.lost += resumed.pushes_lost;
    }
    return open;
}

static uint32_t work_off(void *arg, uint32_t w)
{
    (void)arg;
    for (uint32_t s = 0; w == 0 && s < CHURN_SHARDS; s++) {
        look(s);
        standby_poll(s);
    }
    return work(w, false);
}

static void settle(void)
{
    churn_settle(&rig.churn, work_off, NULL);
    for (uint32_t i = 0; i < 3000; i++) {
        (void)step();
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* The shard's process dies, and its replica is promoted: the loss of reported state is at most the
 * bound. */
static void promote(uint32_t s)
{
    struct cluster *c = &rig.churn.c;
    struct standby *standby = &rig.standbys[s];
    struct weft_shard *dead = c->shard[s];
    const struct weft_replication state = replication(s);
    double lost = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        float row[DIM];
        double lacks = rig.told[s][i] + (double)row_of(standby->shard, i, row)[0];
        lost += lacks > 0 ? DIM * lacks * lacks : 0;
    }
    assert_true(rig.gradient != one || sqrt(lost) <= rig.churn.config.shard.div_max);
    rig.transfers += state.transfers;
    rig.holds += state.holds;
    rig.divergence_max = fmax(rig.divergence_max, state.divergence_max);
    fake_kill(c->net, s);
    c->shard[s] = standby_end(s);
    c->shard[s]->msgr = fake_msgr(c->net, s);
    fake_revive(c->net, s);
    shard_free(dead);
    for (uint32_t i = 0; i < IDS; i++) {
        rig.told[s][i] = 0;
    }
    rig.promotions++;
}

static void faults(void)
{
    struct cluster *c = &rig.churn.c;
    uint32_t s = (uint32_t)weft_prng_below(&rig.churn.prng, CHURN_SHARDS);
    uint32_t w = (uint32_t)weft_prng_below(&rig.churn.prng, CHURN_WORKERS);
    struct standby *standby = &rig.standbys[s];
    uint64_t until_ns;
    if (weft_prng_chance(&rig.churn.prng, 3000) &&
        !weft_ps_client_away(c->client[w], s, &until_ns)) {
        fake_break(c->net, s, CHURN_SHARDS + w);
    }
    if (standby->shard == NULL) {
        if (weft_prng_chance(&rig.churn.prng, 10000)) {
            standby_start(s);
        }
        /* the replica dies, or loses its connection */
    } else if (weft_prng_chance(&rig.churn.prng, 1000)) {
        shard_free(standby_end(s));
    } else if (weft_prng_chance(&rig.churn.prng, 4000) &&
               weft_replica_may_be_promoted(standby->replica, c->net->now_ns) ==
                   WEFT_REPLICA_GOOD) {
        promote(s);
    }
    churn_reconnect(&rig.churn, 100000);
}

static void start(uint8_t mode, uint8_t optimizer, double div_max, uint64_t seed)
{
    rig = (struct rig){.gradient = one};
    churn_init(&rig.churn, mode, seed);
    struct weft_table_spec *spec = &rig.churn.spec;
    spec->optimizer = optimizer;
    if (optimizer != WEFT_OPTIMIZER_SGD) {
        spec->learning_rate = 0.5f;
        spec->epsilon = optimizer == WEFT_OPTIMIZER_MOMENTUM ? 0 : 0.5f;
        spec->beta1 =
            optimizer == WEFT_OPTIMIZER_ADAM || optimizer == WEFT_OPTIMIZER_MOMENTUM ? 0.5f : 0;
        spec->beta2 = optimizer == WEFT_OPTIMIZER_ADAM ? 0.75f : 0;
        rig.gradient = any;
    }
    struct weft_shard_config *shard = &rig.churn.config.shard;
    spec->eviction = ttl > 0 ? WEFT_EVICTION_TTL : WEFT_EVICTION_NONE;
    spec->ttl = ttl;
    shard->replicas_max = 1;
    shard->div_max = div_max;
    shard->replica_lease_ns = WEFT_NS_PER_MS;
    shard->workers_max = ranks > 0 ? ranks : shard->workers_max;
    shard->step_rows = step_rows > 0 ? step_rows : shard->step_rows;
    shard->replica_cow_bytes = seed % 4 == 0 ? 2000 : 1 << 20;
    churn_start(&rig.churn, seed);
    rig.churn.c.net->packet_bytes = 600;
    if (!is_closed) {
        cluster_open(&rig.churn.c, spec);
    }
}

static void run(uint32_t steps, bool deaths)
{
    for (uint32_t i = 0; i < steps; i++) {
        (void)step();
        if (deaths) {
            faults();
        }
        for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
            (void)work(w, true);
        }
    }
    settle();
}

static void stop(void)
{
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        const struct weft_replication state = replication(s);
        rig.transfers += state.transfers;
        rig.holds += state.holds;
        if (rig.standbys[s].shard != NULL) {
            shard_free(standby_end(s));
        }
    }
    churn_stop(&rig.churn);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Every mode and optimizer, bounds from 0 to large; with and without memory for copies. */
static void never_beyond_the_bound(void **state)
{
    (void)state;
    static const double bounds[] = {0, 1, 8, 60};
    uint64_t transfers = 0, holds = 0;
    for (uint64_t seed = 1; seed <= 36; seed++) {
        start((uint8_t)(seed % 3), (uint8_t)(seed / 3 % WEFT_OPTIMIZERS_COUNT),
              bounds[seed / 9 % 4], seed);
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            standby_start(s);
        }
        run(2500, false);
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            assert_true(replication(s).ready && !replication(s).held);
            assert_true(distance(s) <= rig.churn.config.shard.div_max / 2);
            assert_int_equal(
                weft_replica_may_be_promoted(rig.standbys[s].replica, rig.churn.c.net->now_ns),
                WEFT_REPLICA_GOOD);
        }
        stop();
        transfers += rig.transfers;
        holds += rig.holds;
    }
    assert_true(transfers > 500 && holds > 50);
}

/* With a scheduler a transfer that is due waits for its grant. Without one it begins when 3/4 of
 * the bound is used, so that the bound is kept and work does not stop. In BSP none waits. */
static void waits_for_a_grant(void **state)
{
    (void)state;
    uint64_t waited = 0, granted = 0, urgent = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const bool grants = seed % 2 == 0;
        start((uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, 60, seed);
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            standby_start(s);
            weft_shard_transfers_wait(rig.churn.c.shard[s], true);
        }
        uint64_t since[CHURN_SHARDS] = {0};
        uint32_t number_before[CHURN_SHARDS] = {0};
        for (uint32_t i = 0; i < 2500; i++) {
            (void)step();
            for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
                struct weft_shard *shard = rig.churn.c.shard[s];
                uint64_t bytes = 0;
                bool waits;
                const uint32_t number = weft_shard_transfer_now(shard, &waits, &bytes);
                urgent += !waits && number != 0 && number == number_before[s];
                number_before[s] = waits ? number : 0;
                if (!waits) {
                    since[s] = 0;
                    continue;
                }
                assert_true(bytes > 0 && rig.churn.spec.mode != WEFT_TABLE_BSP);
                assert_true(replication(s).divergence <= 45 && !replication(s).held);
                waited++;
                if (grants && ++since[s] == 20) {
                    granted++;
                    weft_shard_transfer_begin(shard, rig.churn.c.net->now_ns);
                    assert_int_equal(weft_shard_transfer_now(shard, &waits, &bytes), number);
                    assert_false(waits);
                    number_before[s] = 0;
                }
            }
            for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
                (void)work(w, true);
            }
        }
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            weft_shard_transfers_wait(rig.churn.c.shard[s], false);
        }
        settle();
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            assert_true(replication(s).ready && distance(s) <= 30);
        }
        stop();
    }
    print_message("# waited %llu steps, %llu granted, %llu without a grant\n",
                  (unsigned long long)waited, (unsigned long long)granted,
                  (unsigned long long)urgent);
    assert_true(waited > 100 && granted > 5 && urgent > 5);
}

/* No push counts twice, and with a bound of 0 no acknowledged push is lost. In BSP pushes of the
 * clock in progress may be lost, because no weights contain them yet. */
static void promoted(uint8_t mode, double div_max, uint64_t first)
{
    uint32_t promotions = 0;
    for (uint64_t seed = first; seed < first + 12; seed++) {
        start(mode, WEFT_OPTIMIZER_SGD, div_max, seed);
        run(8000, true);
        for (uint32_t i = 0; i < IDS; i++) {
            double row = churn_row(&rig.churn, i);
            assert_true(row <= rig.pushed[i]);
            assert_true(div_max > 0 || mode == WEFT_TABLE_BSP || row == rig.pushed[i]);
        }
        assert_true(div_max > 0 || mode == WEFT_TABLE_BSP || rig.lost == 0);
        promotions += rig.promotions;
        stop();
    }
    assert_true(promotions > 20);
}

static void promoted_without_loss(void **state)
{
    (void)state;
    promoted(WEFT_TABLE_ASP, 0, 101);
    promoted(WEFT_TABLE_SSP, 0, 151);
}

static void promoted_within_the_bound(void **state)
{
    (void)state;
    promoted(WEFT_TABLE_ASP, 30, 201);
    promoted(WEFT_TABLE_SSP, 30, 251);
}

static void promoted_at_a_boundary(void **state)
{
    (void)state;
    promoted(WEFT_TABLE_BSP, 0, 301);
    promoted(WEFT_TABLE_BSP, 30, 351);
}

/* A ready replica disappears: replies beyond the bound are held for twice the time in which it may
 * be promoted; then the shard continues alone. */
static void waits_for_a_lost_one(void **state)
{
    (void)state;
    start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, 0, 7);
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        standby_start(s);
    }
    run(500, false);
    assert_true(replication(0).ready);
    struct weft_replica *replica = rig.standbys[0].replica;
    fake_break(rig.churn.c.net, 0, FIRST);
    standby_poll(0);
    uint64_t broken_ns = rig.churn.c.net->now_ns;
    (void)step();
    assert_false(replication(0).connected);
    assert_int_equal(replication(0).lost, 1);
    start_push(0, 0);
    bool was_old = false;
    while (rig.ops[0][0].open) {
        (void)step();
        (void)work(0, false);
        bool is_old =
            weft_replica_may_be_promoted(replica, rig.churn.c.net->now_ns) == WEFT_REPLICA_OLD;
        was_old |= is_old;
        assert_true(was_old || rig.ops[0][0].open); /* not while it may still be promoted */
    }
    assert_true(rig.churn.c.net->now_ns >= broken_ns + 2 * WEFT_NS_PER_MS);
    assert_true(distance(0) > 0);
    stop();
}

/* Replies are not held during the first copy of all tables, so the reported state may exceed the
 * bound when the copy is complete. Until it is within the bound, the replica is not told that it
 * may be promoted. */
static void ready_within_the_bound(void **state)
{
    (void)state;
    uint64_t looks = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        ranks = 1000; /* a transfer has several pieces */
        start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, seed % 2 == 0 ? 0 : 10, 4 * seed + 1);
        ranks = 0;
        for (uint32_t i = 0; i < 3000; i++) {
            if (i == 100) {
                standby_start(0);
            }
            (void)step();
            (void)work(0, true);
            (void)work(1, true);
            if (rig.standbys[0].replica == NULL ||
                weft_replica_may_be_promoted(rig.standbys[0].replica, rig.churn.c.net->now_ns) !=
                    WEFT_REPLICA_GOOD) {
                continue;
            }
            double lost = 0;
            for (uint32_t k = 0; k < IDS; k++) {
                float row[DIM];
                double lacks =
                    rig.answered[0][k] + (double)row_of(rig.standbys[0].shard, k, row)[0];
                lost += lacks > 0 ? DIM * lacks * lacks : 0;
            }
            assert_true(sqrt(lost) <= rig.churn.config.shard.div_max);
            looks++;
        }
        settle();
        assert_true(replication(0).ready);
        stop();
    }
    assert_true(looks > 100);
}

/* BSP: a row is removed in the middle of a clock, when the table cannot be cut. No reply is held
 * because of that: the clock cannot end before its pushes have replies. */
static void rows_go_within_a_clock(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        ttl = 1;
        start(WEFT_TABLE_BSP, WEFT_OPTIMIZER_SGD, seed % 2 == 0 ? 0 : 10, seed);
        ttl = 0;
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            standby_start(s);
        }
        run(2500, false);
        for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
            struct weft_shard_table_sums sums;
            weft_shard_table_sums(rig.churn.c.shard[s], &sums);
            assert_true(sums.rows_expired > 0);
            assert_true(replication(s).ready && !replication(s).held);
        }
        stop();
    }
}

/* A worker of two tables: it pushes, waits for the reply, ends the clock, and repeats. */
static void in_turn(uint32_t w, uint16_t t)
{
    struct churn *churn = &rig.churn;
    struct weft_ps_client *client = churn->c.client[w];
    if (rig.ops[w][t].open) {
        if (weft_ps_op_done(client, rig.ops[w][t].op, NULL)) {
            weft_ps_op_release(client, rig.ops[w][t].op);
            rig.ops[w][t].open = false;
            rig.ops[w][t].clocks = true;
        }
    } else if (rig.ops[w][t].clocks) {
        rig.ops[w][t].clocks = weft_ps_clock(client, t, churn->c.net->now_ns) != WEFT_OK;
    } else if (weft_prng_chance(&churn->prng, 100000)) {
        uint64_t ids[IDS];
        float rows[IDS * DIM];
        for (uint32_t i = 0; i < IDS; i++) {
            ids[i] = churn_id(i);
        }
        for (uint32_t i = 0; i < IDS * DIM; i++) {
            rows[i] = 1;
        }
        rig.ops[w][t].open = weft_ps_push(client, t, ids, rows, IDS, 0, churn->c.net->now_ns,
                                          &rig.ops[w][t].op) == WEFT_OK;
    }
}

/* BSP: rows of one table are stepped while another one is at its boundary, and replicas connect and
 * disconnect. A table is cut before a reply reports its new state, so no reply waits for a clock
 * that waits for the reply. */
static void two_tables_have_boundaries(void **state)
{
    (void)state;
    enum { CLOCKS = 60, STEPS = 400000 };
    for (uint64_t seed = 1; seed <= 24; seed++) {
        uint32_t clock = 0, steps = 0;
        step_rows = 1; /* the end of a clock has many slices */
        start(WEFT_TABLE_BSP, WEFT_OPTIMIZER_SGD, seed % 3 == 0 ? 0 : 30, seed);
        step_rows = 0;
        struct weft_table_spec second = rig.churn.spec;
        second.table = 1;
        cluster_open(&rig.churn.c, &second);
        while (clock < CLOCKS) {
            if (++steps == STEPS) {
                fail_msg("seed %u: no clock ends after %u", (unsigned)seed, clock);
            }
            clock = CLOCKS;
            (void)step();
            for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
                if (rig.standbys[s].shard == NULL) {
                    standby_start(s);
                } else if (weft_prng_chance(&rig.churn.prng, 2000)) {
                    shard_free(standby_end(s));
                }
            }
            for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
                in_turn(w, 0);
                in_turn(w, 1);
                clock = (uint32_t)weft_min_u64(clock, weft_ps_clock_now(rig.churn.c.client[w], 0));
                clock = (uint32_t)weft_min_u64(clock, weft_ps_clock_now(rig.churn.c.client[w], 1));
            }
        }
        stop();
    }
}

/* Pieces of the first shard's transfers are delayed. */
static void steps_with(uint32_t steps, bool pieces_wait)
{
    struct fake_net *net = rig.churn.c.net;
    for (uint32_t n = 0; n < steps; n++) {
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            struct fake_message *m = &net->messages[i];
            if (m->live && m->from == 0 && m->to == FIRST) {
                m->held = pieces_wait;
            }
        }
        (void)step();
    }
}

/* Push to every row of a table. False: no reply. */
static bool push_all(uint32_t w, uint16_t t, bool pieces_wait)
{
    struct weft_ps_client *client = rig.churn.c.client[w];
    uint64_t ids[IDS];
    float rows[IDS * DIM];
    weft_ps_op op;
    weft_status status;
    for (uint32_t i = 0; i < IDS * DIM; i++) {
        ids[i / DIM] = churn_id(i / DIM);
        rows[i] = 1;
    }
    while ((status = weft_ps_push(client, t, ids, rows, IDS, 0, rig.churn.c.net->now_ns, &op)) ==
           WEFT_AGAIN) {
        steps_with(1, pieces_wait);
    }
    assert_int_equal(status, WEFT_OK);
    for (uint32_t i = 0; i < 5000; i++) {
        if (weft_ps_op_done(client, op, NULL)) {
            weft_ps_op_release(client, op);
            return true;
        }
        steps_with(1, pieces_wait);
    }
    return false;
}

static void end_clock(uint32_t w, uint16_t t, bool pieces_wait)
{
    while (weft_ps_clock(rig.churn.c.client[w], t, rig.churn.c.net->now_ns) != WEFT_OK) {
        steps_with(1, pieces_wait);
    }
}

/* BSP, the first copy of two tables. The first transfer contains only the second table, because the
 * first table is within a clock. Both clocks end after it, and rows of both are stepped. Suppose
 * that the next transfer began when the rows of the first table are stepped: it would lack the
 * second table's step, which replies report meanwhile. Workers would push again, and the bound
 * would then begin to apply. It could not be met before the clock ends, and would hold the replies
 * for which the clock waits. */
static void a_first_copy_waits_for_both_tables(void **state)
{
    (void)state;
    step_rows = 1;
    start(WEFT_TABLE_BSP, WEFT_OPTIMIZER_SGD, 0, 9);
    step_rows = 0;
    struct weft_table_spec second = rig.churn.spec;
    second.table = 1;
    cluster_open(&rig.churn.c, &second);
    assert_true(push_all(0, 0, true));
    standby_start(0);
    steps_with(300, true);
    assert_true(weft_transfer_holds_steps(rig.churn.c.shard[0]));
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        assert_true(w == 0 || push_all(w, 0, true));
        assert_true(push_all(w, 1, true));
        end_clock(w, 0, true);
        end_clock(w, 1, true);
    }
    steps_with(1000, true);
    assert_int_equal(replication(0).transfers, 0);
    for (uint32_t i = 0; i < 5000 && replication(0).transfers == 0; i++) {
        steps_with(1, false);
    }
    assert_int_equal(replication(0).transfers, 1);
    assert_true(push_all(0, 1, true)); /* for the next clock */
    assert_false(replication(0).ready);
    for (uint32_t i = 0; i < 5000 && replication(0).transfers == 1; i++) {
        steps_with(1, false);
    }
    end_clock(0, 1, false);
    for (uint32_t w = 1; w < CHURN_WORKERS; w++) {
        if (!push_all(w, 1, false)) {
            fail_msg("worker %u has no answer", w);
        }
        end_clock(w, 1, false);
    }
    steps_with(5000, false);
    assert_true(replication(0).ready);
    stop();
}

/* If the transport has no room for a piece, an event occurs when it has. Until then nothing is due,
 * so that the driver's loop can sleep. */
static void sleeps_without_room(void **state)
{
    (void)state;
    start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, 0, 9);
    struct fake_net *net = rig.churn.c.net;
    struct weft_shard *shard = rig.churn.c.shard[0];
    assert_true(push_all(0, 0, false));
    const uint32_t msgs_max = net->msgs_max;
    net->msgs_max = 1;
    standby_start(0);
    for (uint32_t i = 0; i < 20; i++) {
        steps_with(50, true);
        net->now_ns += WEFT_NS_PER_MS; /* less than the interval of heartbeats */
        weft_shard_progress(shard, net->now_ns);
        weft_shard_progress(shard, net->now_ns);
        assert_true(weft_shard_deadline(shard) > net->now_ns);
    }
    assert_false(replication(0).ready);
    net->msgs_max = msgs_max;
    steps_with(3000, false);
    assert_true(replication(0).ready);
    assert_true(weft_shard_deadline(shard) != WEFT_NEVER);
    stop();
}

/* The shard checks a replica's messages: an invalid one makes the replica reconnect, and the shard
 * continues. */
static void confirms_that_are_none(void **state)
{
    (void)state;
    static const uint8_t messages[][24] = {
        {0}, {0, 0, 0, 0, 0, 0, 0, 99}, {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}, {255, 255}};
    for (uint32_t m = 0; m < WEFT_ARRAY_COUNT(messages); m++) {
        start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, 0, 9);
        standby_start(0);
        run(300, false);
        const struct weft_msg_send send = {
            .peer = fake_peer(0),
            .base = messages[m],
            .total = 2,
            .elem_bytes = 8,
            .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_CONFIRM}),
            .deadline_ns = WEFT_NEVER,
            .user = UINT64_C(1) << 36};
        uint64_t seq;
        weft_peer peer = WEFT_PEER_ANY;
        bool for_good;
        struct weft_msgr msgr = fake_msgr(rig.churn.c.net, FIRST);
        assert_int_equal(msgr.ops->send(msgr.self, &send, rig.churn.c.net->now_ns, &seq), WEFT_OK);
        for (uint32_t i = 0; i < 50; i++) {
            (void)step();
        }
        assert_true(weft_shard_take_replaced(rig.churn.c.shard[0], &peer, &for_good));
        assert_true(peer == fake_peer(FIRST) && !for_good);
        stop();
    }
}

/* A replica of another shard cannot read even the first piece. It reports that; otherwise BSP
 * clocks would wait for the end of the transfer while it is connected. */
static void refuses_the_first_piece(void **state)
{
    (void)state;
    struct weft_shard_config *config = &rig.churn.config.shard;
    weft_peer peer = WEFT_PEER_ANY;
    bool for_good;
    start(WEFT_TABLE_BSP, WEFT_OPTIMIZER_SGD, 0, 9);
    config->workers_max--;
    standby_start(0);
    config->workers_max++;
    for (uint32_t i = 0; i < 100; i++) {
        (void)step();
    }
    assert_int_equal(weft_replica_state(rig.standbys[0].replica)->pieces_bad, 1);
    assert_false(replication(0).connected); /* before its connection ends */
    assert_false(weft_transfer_holds_steps(rig.churn.c.shard[0]));
    assert_true(weft_shard_take_replaced(rig.churn.c.shard[0], &peer, &for_good));
    assert_true(peer == fake_peer(FIRST) && !for_good);
    stop();
}

/* A replica without room for the pieces reports that, and is not counted as ready. */
static void refuses_what_is_too_large(void **state)
{
    (void)state;
    ranks = 1000;
    pieces_max = 1;
    start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, 0, 9);
    standby_start(0);
    for (uint32_t i = 0; i < 2000 && !weft_replica_state(rig.standbys[0].replica)->refused; i++) {
        (void)step();
    }
    ranks = pieces_max = 0;
    assert_int_equal(weft_replica_may_be_promoted(rig.standbys[0].replica, rig.churn.c.net->now_ns),
                     WEFT_REPLICA_TOO_LARGE);
    stop();
}

/* A server may die before any worker has opened a table. */
static void replicates_a_shard_without_tables(void **state)
{
    (void)state;
    is_closed = true;
    start(WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, 0, 9);
    is_closed = false;
    standby_start(0);
    for (uint32_t i = 0; i < 100; i++) {
        (void)cluster_step(&rig.churn.c);
        standby_poll(0);
    }
    assert_true(replication(0).ready);
    assert_int_equal(weft_replica_may_be_promoted(rig.standbys[0].replica, rig.churn.c.net->now_ns),
                     WEFT_REPLICA_GOOD);
    struct weft_shard *dead = rig.churn.c.shard[0];
    fake_kill(rig.churn.c.net, 0);
    rig.churn.c.shard[0] = standby_end(0);
    rig.churn.c.shard[0]->msgr = fake_msgr(rig.churn.c.net, 0);
    fake_revive(rig.churn.c.net, 0);
    shard_free(dead);
    for (uint32_t i = 0; i < 300; i++) {
        (void)cluster_step(&rig.churn.c);
        churn_reconnect(&rig.churn, WEFT_PPM);
    }
    cluster_open(&rig.churn.c, &rig.churn.spec);
    run(300, false);
    stop();
}

/* BSP: a replica that connects in the middle of a clock gets the table at the end of the clock.
 * Until then only heartbeats are sent. */
static void comes_within_a_clock(void **state)
{
    (void)state;
    uint64_t before;
    start(WEFT_TABLE_BSP, WEFT_OPTIMIZER_SGD, 0, 9);
    start_push(0, 0);
    for (uint32_t i = 0; i < 300; i++) {
        (void)step();
    }
    standby_start(0);
    for (uint32_t i = 0; i < 300; i++) {
        (void)step();
    }
    before = replication(0).transfers;
    for (uint32_t i = 0; i < 3000; i++) {
        (void)step();
    }
    assert_true(replication(0).connected && !replication(0).ready);
    assert_int_equal(replication(0).transfers, before);
    run(300, false);
    assert_true(replication(0).ready);
    stop();
}

/* Compared with sums over all slots: in any order of events, no change is lost and none remains. */
static void ways_are_added_up(void **state)
{
    (void)state;
    enum { PLACES = 200 };
    double since[PLACES] = {0}, sent[PLACES] = {0};
    bool is_cut = false;
    struct weft_divergence divergence;
    struct weft_prng prng;
    weft_prng_init(&prng, 5);
    assert_int_equal(weft_divergence_init(&divergence, PLACES), WEFT_OK);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t place = (uint32_t)weft_prng_below(&prng, 1 + weft_prng_below(&prng, PLACES));
        double step = (double)weft_prng_below(&prng, 1000) / 64, squares[2] = {0, 0};
        if (!weft_prng_chance(&prng, 100000)) {
            if (weft_prng_chance(&prng, 500000)) {
                weft_divergence_add(&divergence, place, step * step);
            } else {
                weft_divergence_add_later(&divergence, place, step * step);
                weft_divergence_settle(&divergence);
            }
            since[place] += step;
        } else if (!is_cut) {
            weft_divergence_cut(&divergence);
            memcpy(sent, since, sizeof(sent));
            memset(since, 0, sizeof(since));
            is_cut = true;
        } else {
            bool kept = weft_prng_chance(&prng, 500000);
            weft_divergence_end(&divergence, kept);
            for (uint32_t k = 0; k < PLACES; k++) {
                since[k] += kept ? 0 : sent[k];
            }
            memset(sent, 0, sizeof(sent));
            is_cut = false;
        }
        for (uint32_t k = 0; k < PLACES; k++) {
            squares[0] += since[k] * since[k];
            squares[1] += sent[k] * sent[k];
        }
        double now = sqrt(squares[0]) + sqrt(squares[1]);
        assert_true(weft_divergence_now(&divergence) >= now);
        assert_true(weft_divergence_now(&divergence) <= now * 1.0001);
    }
    weft_divergence_fini(&divergence);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static const struct weft_piece_limits limits = {
    .shard = 1, .shards = 2, .tables_max = 2, .workers_max = 4, .dim_max = 8, .chunks_max = 128};

static const struct weft_table_spec piece_spec = {
    .dim = 2, .mode = WEFT_TABLE_ASP, .workers = 2, .learning_rate = 1};

static size_t make_piece(uint8_t *bytes)
{
    struct weft_writer w = weft_writer_make(bytes, WEFT_PIECE_BYTES_MAX);
    uint8_t record[24] = {7};
    (void)weft_write_take(&w, WEFT_PIECE_HEAD_BYTES);
    struct weft_section section = {.kind = WEFT_SECTION_TABLE, .count = 1, .bytes = WEFT_RPC_SPEC_BYTES};
    assert_true(weft_section_begin(&w, &section));
    weft_table_spec_pack(&piece_spec, weft_write_take(&w, WEFT_RPC_SPEC_BYTES));
    section = (struct weft_section){.kind = WEFT_SECTION_CLOCKS, .count = 3, .first = 1, .bytes = 12};
    assert_true(weft_section_begin(&w, &section));
    weft_write_zeros(&w, 12);
    weft_section_end(&w, 12);
    section = (struct weft_section){.kind = WEFT_SECTION_PARTIAL, .count = 65, .first = 1, .bytes = 32};
    assert_true(weft_section_begin(&w, &section));
    weft_write_u64(&w, 5);
    weft_write_u64(&w, 6);
    weft_write_u64(&w, UINT64_MAX);
    weft_write_u64(&w, 1);
    section = (struct weft_section){.kind = WEFT_SECTION_ROWS, .count = 1, .bytes = sizeof(record)};
    assert_true(weft_section_begin(&w, &section));
    weft_write_bytes(&w, record, sizeof(record));
    const size_t count = (size_t)(w.at - bytes);
    const struct weft_piece_head head = {.transfer = 3,
                                         .index = 2,
                                         .flags = WEFT_PIECE_LAST,
                                         .shard = 1,
                                         .shards = 2,
                                         .bytes = (uint32_t)count - WEFT_PIECE_HEAD_BYTES};
    weft_piece_head_pack(&head, bytes);
    return count;
}

static void pieces(void **state)
{
    (void)state;
    static uint8_t bytes[WEFT_PIECE_BYTES_MAX], bad[WEFT_PIECE_BYTES_MAX];
    uint32_t record_bytes[2];
    struct weft_piece_head head;
    size_t count = make_piece(bytes);
    assert_int_equal(weft_piece_unpack(bytes, count, &limits, &head), WEFT_OK);
    assert_true(head.transfer == 3 && head.index == 2 && head.flags == WEFT_PIECE_LAST);
    weft_piece_check_begin(&limits, record_bytes);
    assert_int_equal(weft_piece_check(&limits, record_bytes, bytes, &head), WEFT_OK);
    assert_int_equal(record_bytes[0], 24);
    /* A table announced twice; rows of a table that was not announced. */
    assert_int_equal(weft_piece_check(&limits, record_bytes, bytes, &head), WEFT_PROTO);
    for (size_t n = 0; n < count; n++) {
        assert_int_equal(weft_piece_unpack(bytes, n, &limits, &head), WEFT_PROTO);
    }
    /* One byte of the heads changed: refused, or it has another valid meaning. */
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{12, 0x80}, {13, 0x04}, {13, 0x08}, {15, 2},   {19, 0},  {23, 3},   {27, 0},
                   {31, 1},    {33, 9},    {33, 7},    {35, 2},   {39, 2},  {47, 103}, {156, 1},
                   {159, 5},   {163, 3},   {183, 1},   {191, 64}, {195, 9}, {207, 0},  {215, 0},
                   {231, 2},   {235, 1},   {239, 2},   {243, 1},  {247, 23}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(changes); i++) {
        memcpy(bad, bytes, count);
        bad[changes[i].at] = changes[i].value;
        weft_status status = weft_piece_unpack(bad, count, &limits, &head);
        if (status == WEFT_OK) {
            weft_piece_check_begin(&limits, record_bytes);
            status = weft_piece_check(&limits, record_bytes, bad, &head);
        }
        if (status != WEFT_PROTO) {
            fail_msg("byte %zu = %u is taken", changes[i].at, changes[i].value);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(ways_are_added_up),
        cmocka_unit_test(never_beyond_the_bound),
        cmocka_unit_test(waits_for_a_grant),
        cmocka_unit_test(promoted_without_loss),
        cmocka_unit_test(promoted_within_the_bound),
        cmocka_unit_test(promoted_at_a_boundary),
        cmocka_unit_test(waits_for_a_lost_one),
        cmocka_unit_test(ready_within_the_bound),
        cmocka_unit_test(rows_go_within_a_clock),
        cmocka_unit_test(two_tables_have_boundaries),
        cmocka_unit_test(a_first_copy_waits_for_both_tables),
        cmocka_unit_test(sleeps_without_room),
        cmocka_unit_test(refuses_the_first_piece),
        cmocka_unit_test(refuses_what_is_too_large),
        cmocka_unit_test(replicates_a_shard_without_tables),
        cmocka_unit_test(comes_within_a_clock),
        cmocka_unit_test(confirms_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
