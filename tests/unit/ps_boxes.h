/* Jobs with aggregators, one or a tree of them, over a transport in memory. Gradients are integers,
 * so that the order of additions does not matter, and positive, so that a row with a missing
 * gradient is too small. */
#ifndef WEFT_TESTS_PS_BOXES_H
#define WEFT_TESTS_PS_BOXES_H

#include "ps/aggregator.h"
#include "ps/shard_journal.h"
#include "ps/update.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SHARD = 0, IDS = 60, DIM = 5, OPS = 4, WORKERS_MAX = 5, CLOCKS_MAX = 12 };
enum { BOXES_MAX = 3, SHARD_ABOVE = 99 };
enum { STALENESS = 2, PULL_IDS = 30 };
enum { JOURNAL_BYTES = 1 << 20 };

/* A pull, and the gradients that its rows had to contain when it was sent. */
struct pull {
    weft_ps_op op;
    uint32_t n;
    uint64_t ids[PULL_IDS];
    float rows[PULL_IDS][DIM];
    float must[PULL_IDS][DIM];
};

struct worker {
    uint32_t via; /* index in b->box */
    weft_ps_op op[OPS];
    bool busy[OPS];
    uint32_t clock; /* clock for which it may push */
    uint32_t left;  /* pushes left in this clock */
};

/* An aggregator. */
struct box {
    struct weft_aggregator *agg; /* NULL: dead */
    struct weft_aggregator_config config;
    uint32_t node;
    uint32_t above;        /* node of its parent, or SHARD */
    uint32_t closed_above; /* connections to the parent that this box has ended */
};

static uint64_t via_timeout_ns = 2 * WEFT_NS_PER_MS;
static bool has_scheduler; /* the test acts as the scheduler */
static uint8_t optimizer; /* of the table */
static uint32_t pieces;   /* pushes are cut into so many pieces */
static uint32_t delay_max; /* of updates; 0 = none */
static uint64_t reconnect_ns = WEFT_NS_PER_S;
static uint64_t park_lease_ns, park_pause_ns; /* of workers */
static enum weft_worker_death on_death;
static bool on_apply;    /* aggregators acknowledge pushes on apply */
static uint8_t *journal; /* of the shard, of JOURNAL_BYTES */
static uint32_t
    hot_rows; /* > 0: size of hot sets by which workers split requests; ids are then skewed, */
static uint32_t hot_rows_most; /* maximum that workers accept; 0 = hot_rows */

struct bench {
    struct cluster c;
    struct cluster_config cluster;
    struct weft_prng prng;
    struct box box[BOXES_MAX];
    uint32_t boxes;
    struct worker workers[WORKERS_MAX];
    uint8_t mode;
    uint64_t delivered, missed;
    uint32_t clock; /* clock that all workers have ended */
    float want[IDS][DIM];
    float sums[WORKERS_MAX][IDS][DIM];                  /* sums of each worker's pushes */
    float ended[CLOCKS_MAX + 1][WORKERS_MAX][IDS][DIM]; /* the same at the end of each clock */
};

/* ---- the aggregators ------------------------------------------------------------------------- */

static inline void box_start(struct bench *b, struct box *box)
{
    struct fake_node *node = &b->c.net->nodes[box->node];
    node->dead = false;
    node->events_head = node->events_tail = 0;
    memset(node->expects, 0, sizeof(node->expects));
    node->name = weft_rpc_aggregator_name(SHARD, box->config.number);
    node->incarnation++;
    assert_int_equal(weft_aggregator_new(&box->config, fake_msgr(b->c.net, box->node), &box->agg),
                     WEFT_OK);
}

static inline void box_kill(struct bench *b, struct box *box)
{
    fake_kill(b->c.net, box->node);
    weft_aggregator_free(box->agg);
    box->agg = NULL;
}

static inline void box_poll(struct bench *b)
{
    struct weft_msg_event event;
    weft_peer peer;
    bool for_good;
    for (uint32_t i = 0; i < b->boxes; i++) {
        struct box *box = &b->box[i];
        while (box->agg != NULL && fake_poll(&b->c.net->nodes[box->node], &event)) {
            weft_aggregator_event(box->agg, &event, b->c.net->now_ns);
        }
        if (box->agg != NULL) {
            weft_aggregator_progress(box->agg, b->c.net->now_ns);
        }
        while (box->agg != NULL && weft_aggregator_take_closed(box->agg, &peer, &for_good)) {
            box->closed_above += peer == fake_peer(box->above);
            fake_break(b->c.net, box->node, peer - 10);
        }
    }
}

static inline struct box *box_at(struct bench *b, uint32_t node)
{
    struct box *box = NULL;
    for (uint32_t i = 0; i < b->boxes; i++) {
        box = b->box[i].node == node ? &b->box[i] : box;
    }
    return box;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Act as the drivers: make the requested connections. */
static inline void connect_all(struct bench *b)
{
    struct fake_net *net = b->c.net;
    uint64_t ns;
    weft_peer peer;
    for (uint32_t i = 0; i < b->boxes; i++) {
        const struct box *box = &b->box[i];
        const struct box *above = box_at(b, box->above);
        if (box->agg != NULL && weft_aggregator_wants_shard(box->agg) &&
            (above == NULL || above->agg != NULL)) {
            weft_aggregator_connect(box->agg, fake_peer(box->above));
            fake_connect(net, box->above, box->node);
        }
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        struct weft_ps_client *client = b->c.client[w];
        const struct box *via = &b->box[b->workers[w].via];
        if (net->nodes[1 + w].dead) {
            continue;
        }
        while (weft_ps_client_take_via_close(client, &peer)) {
            fake_break(net, 1 + w, peer - fake_peer(0));
        }
        if (weft_ps_client_away(client, 0, &ns)) {
            assert_int_equal(weft_ps_client_reconnect(client, 0, fake_peer(SHARD), net->now_ns),
                             WEFT_OK);
            fake_connect(net, SHARD, 1 + w);
        }
        if (via->agg != NULL && weft_ps_client_wants_via(client, 0, &ns)) {
            weft_ps_client_via(client, 0, fake_peer(via->node));
            fake_connect(net, via->node, 1 + w);
        }
    }
}

static inline bool bench_step(struct bench *b)
{
    bool moved = cluster_step(&b->c);
    box_poll(b);
    cluster_poll(&b->c);
    connect_all(b);
    if (!moved) {
        b->c.net->now_ns += 20000; /* ages and timeouts */
    }
    return moved;
}

static inline void bench_quiet(struct bench *b)
{
    for (uint32_t still = 0; still < 50;) {
        still = bench_step(b) ? 0 : still + 1;
    }
}

/* Restart the box with the current configuration. */
static inline void box_again(struct bench *b, struct box *box)
{
    box_kill(b, box);
    bench_quiet(b);
    box_start(b, box);
    bench_quiet(b);
}

static inline void wait_op(struct bench *b, uint32_t w, uint32_t i)
{
    struct weft_ps_result result;
    struct worker *worker = &b->workers[w];
    for (uint32_t steps = 0; worker->busy[i]; steps++) {
        assert_true(steps < 200000);
        if (weft_ps_op_done(b->c.client[w], worker->op[i], &result)) {
            if (result.status != WEFT_OK) {
                print_message("worker %u: rpc_status %u\n", w, result.rpc_status);
            }
            assert_int_equal(result.status, WEFT_OK);
            b->delivered += result.elements_delivered;
            weft_ps_op_release(b->c.client[w], worker->op[i]);
            worker->busy[i] = false;
            return;
        }
        bench_step(b);
    }
}

static inline struct weft_table_spec spec_of(uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){.dim = DIM,
                                    .mode = mode,
                                    .workers = workers,
                                    .staleness = mode == WEFT_TABLE_SSP ? STALENESS : 0,
                                    .learning_rate = -1,
                                    .optimizer = optimizer,
                                    .accumulator = optimizer == WEFT_OPTIMIZER_ADADELAY,
                                    .average = WEFT_AVERAGE_NONE};
}

static inline void box_draw(struct bench *b, struct box *box, uint32_t workers)
{
    struct weft_aggregator_config *config = &box->config;
    weft_aggregator_config_default(config);
    config->workers_max = workers;
    config->push_slots = 1 + (uint32_t)weft_prng_below(&b->prng, 3);
    config->push_bytes_max = weft_prng_below(&b->prng, 4) == 0 ? 400 : 4096;
    config->groups_max = 1 + (uint32_t)weft_prng_below(&b->prng, 3);
    config->count_max = (uint32_t)weft_prng_below(&b->prng, 4);
    config->age_ns = 1 + weft_prng_below(&b->prng, 200000);
    config->pull_slots = (uint32_t)weft_prng_below(&b->prng, 5);
    config->pull_rows_max = weft_prng_below(&b->prng, 6) == 0 ? PULL_IDS - 1 : 100;
    config->cache_bytes = weft_prng_below(&b->prng, 3) * 1500;
    config->pull_age_ns = weft_prng_below(&b->prng, 500000);
    config->pull_patience_ns = WEFT_NS_PER_MS;
    config->on_apply = on_apply;
    config->clock_ns = fake_clock_ns;
    config->clock_arg = b->c.net;
}

/* Aggregators, each below the shard or another aggregator: above[i] is an index, or SHARD_ABOVE. */
static inline void bench_open_tree(struct bench *b, uint32_t workers, uint8_t mode, uint64_t seed,
                                   uint32_t boxes, const uint32_t *above)
{
    memset(b, 0, sizeof(*b));
    weft_prng_init(&b->prng, seed);
    struct cluster_config config = cluster_config(1, workers);
    config.incarnation = 100;
    config.shard.chunks_max = 256;
    config.shard.aggregators_max = BOXES_MAX;
    config.shard.checkpoints = journal != NULL;
    config.client.reconnect_ns = reconnect_ns;
    config.client.via_timeout_ns = via_timeout_ns;
    config.client.park_lease_ns = park_lease_ns;
    config.client.park_pause_ns = park_pause_ns;
    config.shard.on_death = on_death;
    config.shard.delay_max = delay_max;
    config.shard.hot_rows = hot_rows;
    config.shard.hot_epoch_ns = WEFT_NS_PER_MS;
    config.client.hot_rows = hot_rows_most > 0 ? hot_rows_most : hot_rows;
    config.client.can &=
        (uint16_t)weft_prng_below(&b->prng, 8) | WEFT_RPC_CAN_AGGREGATE | WEFT_RPC_CAN_HOT |
        WEFT_RPC_CAN_ON_APPLY;
    if (has_scheduler) {
        config.client.update_bytes_min = 1;
        config.client.pieces = pieces;
        config.client.piece_rows_min = 1;
        config.client.can = WEFT_RPC_CAN_ALL & ~WEFT_RPC_CAN_LIST;
    }
    b->mode = mode;
    b->cluster = config;
    cluster_start(&b->c, &config, workers, seed);
    if (journal != NULL) {
        const struct weft_shard_journal_config in = {
            .memory = journal, .bytes = JOURNAL_BYTES, .bytes_max = JOURNAL_BYTES, .lineage = 1};
        assert_int_equal(weft_shard_journal_init(b->c.shard[SHARD], &in), WEFT_OK);
    }
    b->c.net->packet_bytes = 200 + (uint32_t)weft_prng_below(&b->prng, 400);
    b->boxes = boxes;
    for (uint32_t i = 0; i < boxes; i++) {
        struct box *box = &b->box[i];
        box->node = 1 + workers + i;
        box->above = above[i] == SHARD_ABOVE ? SHARD : 1 + workers + above[i];
        box_draw(b, box, workers);
        box->config.number = i;
        box->config.has_parent = above[i] != SHARD_ABOVE;
        box->config.children_max = boxes > 1 ? boxes : 0;
        box_start(b, box);
    }
    struct weft_table_spec spec = spec_of(mode, (uint16_t)workers);
    for (uint32_t w = 0; w < workers; w++) {
        weft_ps_op op;
        assert_int_equal(weft_ps_table_open(b->c.client[w], &spec, 0, &op), WEFT_OK);
        b->workers[w] =
            (struct worker){.via = boxes - 1 - w % boxes, .op = {op}, .busy = {true}};
        wait_op(b, w, 0);
        b->delivered = 0;
    }
    bench_quiet(b);
}

/* One aggregator for all workers. */
static inline void bench_open(struct bench *b, uint32_t workers, uint8_t mode, uint64_t seed)
{
    bench_open_tree(b, workers, mode, seed, 1, (const uint32_t[]){SHARD_ABOVE});
}

static inline void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < b->boxes; i++) {
        if (b->box[i].agg != NULL) {
            weft_aggregator_free(b->box[i].agg);
        }
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        weft_ps_client_free(b->c.client[w]);
    }
    cluster_shard_free(&b->c, SHARD);
    fake_net_free(b->c.net);
}

/* Draw an id. With hot_rows half of the draws are from a few ids, which change every two clocks. */
static inline uint64_t draw_id(struct bench *b)
{
    const bool is_hot = hot_rows > 0 && weft_prng_below(&b->prng, 2) == 0;
    return is_hot ? (13 * (b->clock / 2) + weft_prng_below(&b->prng, hot_rows)) % IDS
                  : weft_prng_below(&b->prng, IDS);
}

/* Push some ids, some of them twice, with integer gradients. */
static inline void push(struct bench *b, uint32_t w, uint32_t bound_ppm)
{
    struct worker *worker = &b->workers[w];
    uint64_t ids[40];
    float rows[40][DIM];
    uint32_t n = 1 + (uint32_t)weft_prng_below(&b->prng, 40), i = 0;
    for (uint32_t r = 0; r < n; r++) {
        ids[r] = draw_id(b);
        for (uint32_t k = 0; k < DIM; k++) {
            rows[r][k] = (float)weft_prng_below(&b->prng, 7);
            b->want[ids[r]][k] += rows[r][k];
            b->sums[w][ids[r]][k] += rows[r][k];
        }
    }
    while (i < OPS && worker->busy[i]) {
        i++;
    }
    if (i == OPS) {
        i = (uint32_t)weft_prng_below(&b->prng, OPS);
        wait_op(b, w, i);
    }
    weft_status status;
    for (uint32_t steps = 0;
         (status = weft_ps_push(b->c.client[w], 0, ids, &rows[0][0], n, bound_ppm, b->c.net->now_ns,
                                &worker->op[i])) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
    worker->busy[i] = true;
}

/* Minimum contents of a row that this worker pulls now. */
static inline float must_be(const struct bench *b, uint32_t w, uint64_t id, uint32_t k)
{
    const uint32_t back = b->mode == WEFT_TABLE_BSP   ? 0
                          : b->mode == WEFT_TABLE_SSP ? STALENESS
                                                      : CLOCKS_MAX;
    const uint32_t need = b->clock > back ? b->clock - back : 0;
    float sum = 0;
    for (uint32_t v = 0; v < b->c.workers; v++) {
        const bool own = v == w && b->mode != WEFT_TABLE_BSP;
        sum += own ? b->sums[v][id][k] : b->ended[need][v][id][k];
    }
    return sum;
}

/* Ids from `first` on, so that several workers can request the same. */
static inline void pull_start(struct bench *b, uint32_t w, struct pull *pull, uint32_t first)
{
    weft_status status;
    pull->n = PULL_IDS;
    for (uint32_t i = 0; i < pull->n; i++) {
        pull->ids[i] = (first + i) % IDS;
        for (uint32_t k = 0; k < DIM; k++) {
            pull->must[i][k] = must_be(b, w, pull->ids[i], k);
        }
    }
    for (uint32_t steps = 0;
         (status = weft_ps_pull(b->c.client[w], 0, pull->ids, &pull->rows[0][0], pull->n, 0,
                                b->c.net->now_ns, &pull->op)) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
}

static inline void pull_check(struct bench *b, uint32_t w, const struct pull *pull)
{
    struct weft_ps_result result;
    for (uint32_t steps = 0; !weft_ps_op_done(b->c.client[w], pull->op, &result); steps++) {
        assert_true(steps < 200000);
        bench_step(b);
    }
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.rows_missed, 0);
    weft_ps_op_release(b->c.client[w], pull->op);
    for (uint32_t i = 0; i < pull->n; i++) {
        for (uint32_t k = 0; k < DIM; k++) {
            const float is = pull->rows[i][k];
            assert_true(b->mode == WEFT_TABLE_BSP ? is == pull->must[i][k]
                                                  : is >= pull->must[i][k]);
            assert_true(is <= b->want[pull->ids[i]][k]);
        }
    }
}

/* End the clock of all workers. */
static inline void end_clock(struct bench *b)
{
    b->clock++;
    memcpy(b->ended[b->clock], b->sums, sizeof(b->sums));
    for (uint32_t w = 0; w < b->c.workers; w++) {
        weft_status status;
        for (uint32_t steps = 0;
             (status = weft_ps_clock(b->c.client[w], 0, b->c.net->now_ns)) == WEFT_AGAIN; steps++) {
            assert_true(steps < 100000);
            bench_step(b);
        }
        assert_int_equal(status, WEFT_OK);
    }
}

static inline void wait_all(struct bench *b)
{
    for (uint32_t w = 0; w < b->c.workers; w++) {
        for (uint32_t i = 0; i < OPS; i++) {
            wait_op(b, w, i);
        }
    }
    for (uint32_t steps = 0;; steps++) {
        bool busy = false;
        assert_true(steps < 100000);
        for (uint32_t w = 0; w < b->c.workers; w++) {
            busy |= weft_ps_client_busy(b->c.client[w]);
        }
        if (!busy) {
            break;
        }
        bench_step(b);
    }
    bench_quiet(b);
}

static inline void check_sums(const struct bench *b)
{
    for (uint64_t id = 0; id < IDS; id++) {
        float weights[DIM];
        (void)weft_table_read(weft_shard_table(b->c.shard[SHARD], 0), id, weights);
        for (uint32_t k = 0; k < DIM; k++) {
            assert_true(weights[k] == b->want[id][k]);
        }
    }
}

/* ---- updates, where has_scheduler ------------------------------------------------------------ */

/* Grant the worker's update: through an aggregator as one of `members` of a sum, or direct. */
static inline void grant(struct bench *b, uint32_t w, uint32_t group, uint32_t members)
{
    struct weft_ps_client *client = b->c.client[w];
    struct weft_ps_update_event event;
    const struct weft_msg_pace pace = {.rate_bps = 1000000000};
    for (uint32_t steps = 0; !weft_ps_update_poll(client, &event); steps++) {
        assert_true(steps < 10000);
        bench_step(b);
    }
    assert_int_equal(event.type, WEFT_PS_UPDATE_ASK);
    assert_int_equal(weft_ps_update_by(client, event.update, SHARD, 1, group, 2), WEFT_INVALID);
    assert_int_equal(weft_ps_update_by(client, event.update, SHARD, 0, group, 257), WEFT_INVALID);
    assert_int_equal(weft_ps_update_by(client, event.update, SHARD + 1, 0, group, 2), WEFT_INVALID);
    if (members > 0) {
        assert_int_equal(weft_ps_update_by(client, event.update, SHARD, 0, group, members),
                         WEFT_OK);
    }
    assert_int_equal(weft_ps_update_grant(client, event.update, SHARD, &pace, b->c.net->now_ns),
                     WEFT_OK);
}

/* Run until the update is over. Returns the number of DELIVERED events. */
static inline uint32_t update_over(struct bench *b, uint32_t w)
{
    struct weft_ps_update_event event;
    uint32_t delivered = 0;
    for (uint32_t steps = 0; steps < 200000; steps++) {
        if (!weft_ps_update_poll(b->c.client[w], &event)) {
            bench_step(b);
        } else if (event.type == WEFT_PS_UPDATE_OVER) {
            return delivered;
        } else {
            assert_int_equal(event.type, WEFT_PS_UPDATE_DELIVERED);
            delivered++;
        }
    }
    fail();
    return 0;
}

/* ---- random jobs ----------------------------------------------------------------------------- */

enum fault {
    FAULT_BOX_DIES,
    FAULT_BOX_FROM_ABOVE,
    FAULT_BOX_FROM_WORKER,
    FAULT_WORKER_FROM_SHARD,
    FAULT_BOX_HANGS,
    FAULT_COUNT
};

static inline void fault(struct bench *b)
{
    struct fake_net *net = b->c.net;
    uint32_t w = (uint32_t)weft_prng_below(&b->prng, b->c.workers);
    struct box *box = &b->box[b->boxes > 1 ? weft_prng_below(&b->prng, b->boxes) : 0];
    const struct box *via = &b->box[b->workers[w].via], *above = box_at(b, box->above);
    switch (weft_prng_below(&b->prng, FAULT_COUNT)) {
    case FAULT_BOX_DIES:
        if (box->agg != NULL) {
            box_kill(b, box);
        } else {
            box_start(b, box);
        }
        break;
    case FAULT_BOX_FROM_ABOVE:
        if (box->agg != NULL && (above == NULL || above->agg != NULL) &&
            !net->cut[box->above][box->node]) {
            fake_break(net, box->above, box->node);
        }
        break;
    case FAULT_BOX_FROM_WORKER:
        if (via->agg != NULL && !net->cut[1 + w][via->node]) {
            fake_break(net, 1 + w, via->node);
        }
        break;
    case FAULT_WORKER_FROM_SHARD:
        if (!net->cut[SHARD][1 + w]) {
            fake_break(net, SHARD, 1 + w);
        }
        break;
    case FAULT_BOX_HANGS: /* its messages are delayed for longer than the workers' timeout */
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            net->messages[i].held |= net->messages[i].live && net->messages[i].from == box->node;
        }
        for (uint32_t i = 0; i < 40; i++) {
            net->now_ns += 100000;
            bench_step(b);
        }
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            net->messages[i].held = false;
        }
        break;
    default:
        break;
    }
    cluster_poll(&b->c);
    box_poll(b);
    connect_all(b);
}

/* Several workers pull nearly the same rows. */
static inline void pull_some(struct bench *b)
{
    struct pull pull[WORKERS_MAX];
    const uint32_t first = (uint32_t)weft_prng_below(&b->prng, IDS);
    const uint32_t count = 1 + (uint32_t)weft_prng_below(&b->prng, b->c.workers);
    for (uint32_t w = 0; w < count; w++) {
        pull_start(b, w, &pull[w], first + (uint32_t)weft_prng_below(&b->prng, 10));
        for (uint32_t s = (uint32_t)weft_prng_below(&b->prng, 10); s > 0; s--) {
            bench_step(b);
        }
    }
    for (uint32_t w = 0; w < count; w++) {
        pull_check(b, w, &pull[w]);
    }
}

/* A job of random pushes and pulls, with at most this many faults. */
static inline void random_job(struct bench *b, uint32_t faults)
{
    for (uint32_t clock = 0; clock < 6; clock++) {
        for (uint32_t n = 0; n < 2 * b->c.workers; n++) {
            push(b, (uint32_t)weft_prng_below(&b->prng, b->c.workers), 0);
            for (uint32_t s = (uint32_t)weft_prng_below(&b->prng, 30); s > 0; s--) {
                bench_step(b);
            }
            if (weft_prng_below(&b->prng, 3) == 0) {
                pull_some(b);
            }
            if (faults > 0 && weft_prng_below(&b->prng, 8) == 0) {
                faults--;
                fault(b);
            }
        }
        end_clock(b);
    }
    for (uint32_t i = 0; i < b->boxes; i++) {
        if (b->box[i].agg == NULL) {
            box_start(b, &b->box[i]);
        }
    }
    wait_all(b);
    check_sums(b);
    assert_false(weft_shard_busy(b->c.shard[SHARD]));
}

/* Seeds of random jobs: `count` from 1 on; or from WEFT_TEST_SEED on, WEFT_TEST_SEEDS of them,
 * which are too few, or others, for what is asserted about all jobs together. */
struct seeds {
    uint64_t first;
    uint64_t end;
    bool is_chosen;
};

[[maybe_unused]] static struct seeds seeds_of(uint64_t count)
{
    const char *first = getenv("WEFT_TEST_SEED"), *some = getenv("WEFT_TEST_SEEDS");
    struct seeds seeds = {.first = 1, .is_chosen = first != NULL};
    if (first != NULL) {
        seeds.first = strtoull(first, NULL, 0);
        count = 1;
    }
    seeds.end = seeds.first + (some != NULL ? strtoull(some, NULL, 0) : count);
    return seeds;
}

#endif
