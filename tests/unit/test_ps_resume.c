/* Clients whose shards fail: connections that break, and servers that restart from a checkpoint or
 * empty, at random instants. Every push counts once, or is among those reported to the client as
 * lost. */
#include "ps_churn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { OPS = 3, PULLED = 10, DIM = CHURN_DIM, IDS = CHURN_IDS };

struct worker {
    struct {
        bool open;
        weft_ps_op op;
    } ops[OPS];
    float pulled[PULLED * DIM];
    uint64_t pull_ids[PULLED];
    bool stopped;
};

struct rig {
    struct churn churn;
    struct worker workers[CHURN_WORKERS];
    uint32_t rows_max;
    bool replay;
    double pushed[IDS];
    uint64_t reports_lost;
    void *kept[CHURN_WORKERS]; /* memory of error feedback; NULL = no loss in the network */
};

/* For tests with lists: pushes use pulled rows, so they name lists. Counts of the outcomes. */
static struct {
    bool on;
    bool some_none; /* a restarted shard may accept no lists */
    struct weft_ps_client_counters clients;
    struct weft_shard_counters shards;
} lists;

/* Shards evict lists early. */
static void lists_draw(struct churn *churn)
{
    churn->config.shard.list_ids = 3 + (uint32_t)weft_prng_below(&churn->prng, 30);
    churn->same_percent = 80;
}

static void lists_count(const struct churn *churn)
{
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        const struct weft_ps_client_counters *c = weft_ps_client_counters(churn->c.client[w]);
        lists.clients.pushes_listed += c->pushes_listed;
        lists.clients.lists_unknown += c->lists_unknown;
        lists.clients.lists_sent += c->lists_sent;
    }
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) { /* the last value of each */
        const struct weft_shard_counters *c = weft_shard_counters(churn->c.shard[s]);
        lists.shards.ids_by_list += c->ids_by_list;
        lists.shards.lists_refused += c->lists_refused;
    }
}

static void rig_start(struct rig *rig, uint8_t mode, uint32_t rows_max, bool replay, uint64_t seed)
{
    *rig = (struct rig){.rows_max = rows_max, .replay = replay};
    churn_init(&rig->churn, mode, seed);
    if (lists.on) {
        lists_draw(&rig->churn);
    }
    rig->churn.config.client.replay_bytes = replay ? 200000 : 0;
    churn_start(&rig->churn, seed);
    cluster_open(&rig->churn.c, &rig->churn.spec);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void shard_dies(struct rig *rig, uint32_t s)
{
    if (lists.some_none) {
        bool takes = weft_prng_below(&rig->churn.prng, 2) > 0;
        rig->churn.config.shard.can = takes ? WEFT_RPC_CAN_ALL : WEFT_RPC_CAN_PACK;
    }
    fake_kill(rig->churn.c.net, s);
    churn_shard_free(&rig->churn, s, churn_shard_again(&rig->churn, s));
    fake_revive(rig->churn.c.net, s);
}

static void faults(struct rig *rig, bool deaths)
{
    struct churn *churn = &rig->churn;
    struct cluster *c = &churn->c;
    uint32_t s = (uint32_t)weft_prng_below(&churn->prng, CHURN_SHARDS);
    uint32_t w = (uint32_t)weft_prng_below(&churn->prng, CHURN_WORKERS);
    uint64_t until_ns;
    if (weft_prng_chance(&churn->prng, 5000) && !weft_ps_client_away(c->client[w], s, &until_ns)) {
        fake_break(c->net, s, CHURN_SHARDS + w);
    }
    if (weft_prng_chance(&churn->prng, 20000)) {
        weft_saved_begin(&churn->saved[s], c->shard[s]);
    }
    if (deaths && weft_prng_chance(&churn->prng, 3000)) {
        shard_dies(rig, s);
    }
    churn_cuts(churn);
    churn_reconnect(churn, 100000);
}

/* ---- work ------------------------------------------------------------------------------------ */

static weft_status start_push(struct rig *rig, uint32_t w, weft_ps_op *op_p)
{
    uint32_t picked[IDS];
    weft_status status = churn_push(&rig->churn, w, rig->rows_max, picked, op_p);
    for (uint32_t i = 0; status == WEFT_OK && i < IDS; i++) {
        rig->pushed[i] += picked[i];
    }
    return status;
}

static weft_status start_pull(struct rig *rig, uint32_t w, weft_ps_op *op_p)
{
    struct worker *worker = &rig->workers[w];
    uint32_t n = lists.on ? 1 + (uint32_t)weft_prng_below(&rig->churn.prng, rig->rows_max) : PULLED;
    n = n < PULLED ? n : PULLED;
    for (uint32_t i = 0; i < n; i++) {
        rig->churn.last[w][i] = (uint32_t)weft_prng_below(&rig->churn.prng, IDS);
        worker->pull_ids[i] = churn_id(rig->churn.last[w][i]);
    }
    rig->churn.last_count[w] = n;
    return weft_ps_pull(rig->churn.c.client[w], 0, worker->pull_ids, worker->pulled, n,
                        lists.on ? rig->churn.how.bound_ppm : 0, rig->churn.c.net->now_ns, op_p);
}

static uint32_t work(struct rig *rig, uint32_t w, bool more)
{
    struct worker *worker = &rig->workers[w];
    struct weft_ps_client *client = rig->churn.c.client[w];
    struct weft_ps_result result;
    uint32_t open = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        if (worker->ops[i].open && weft_ps_op_done(client, worker->ops[i].op, &result)) {
            assert_int_equal(result.status, WEFT_OK);
            weft_ps_op_release(client, worker->ops[i].op);
            worker->ops[i].open = false;
        }
        if (more && !worker->ops[i].open && weft_prng_chance(&rig->churn.prng, 200000)) {
            bool pull = i == 0; /* one at a time, because it borrows memory */
            weft_status status = pull ? start_pull(rig, w, &worker->ops[i].op)
                                      : start_push(rig, w, &worker->ops[i].op);
            assert_true(status == WEFT_OK || status == WEFT_AGAIN);
            worker->ops[i].open = status == WEFT_OK;
        }
        open += worker->ops[i].open;
    }
    churn_clock(&rig->churn, w);
    struct weft_ps_resumed resumed;
    while (weft_ps_client_take_resumed(client, &resumed)) {
        rig->reports_lost += resumed.pushes_lost;
        assert_true(resumed.shard < CHURN_SHARDS && resumed.table == 0);
    }
    return open;
}

static uint32_t work_off(void *arg, uint32_t w)
{
    return work(arg, w, false);
}

static void settle(struct rig *rig)
{
    churn_settle(&rig->churn, work_off, rig);
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        assert_false(weft_ps_client_busy(rig->churn.c.client[w]));
    }
}

/* From here on the network loses chunks, and lost gradients are kept. */
static void lose(struct rig *rig)
{
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        rig->kept[w] = malloc(weft_row_store_bytes(IDS, DIM));
        assert_int_equal(weft_ps_client_feedback(rig->churn.c.client[w], 0, rig->kept[w], IDS),
                         WEFT_OK);
    }
    rig->churn.how.bound_ppm = 500000;
    rig->churn.c.net->loss_ppm = 400000;
}

/* The kept gradients of a row. */
static double kept_of(const struct rig *rig, uint32_t i)
{
    double sum = 0;
    for (uint32_t w = 0; w < CHURN_WORKERS && rig->kept[w] != NULL; w++) {
        uint64_t ids[IDS];
        float rows[IDS * DIM];
        uint32_t n = weft_ps_client_kept(rig->churn.c.client[w], 0, ids, rows, IDS);
        for (uint32_t k = 0; k < n; k++) {
            sum += ids[k] == churn_id(i) ? rows[k * DIM + DIM - 1] : 0;
        }
    }
    return sum;
}

/* Returns the number of lost elements that were kept. */
static uint64_t conserved(const struct rig *rig, bool all)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        double row = churn_row(&rig->churn, i) + kept_of(rig, i);
        assert_true(row <= rig->pushed[i]);
        assert_true(!all || row == rig->pushed[i]);
    }
    for (uint32_t w = 0; w < CHURN_WORKERS && rig->kept[w] != NULL; w++) {
        const struct weft_ps_client_counters *counters =
            weft_ps_client_counters(rig->churn.c.client[w]);
        kept += counters->feedback_added > 0 ? counters->feedback_stored : 0;
        assert_int_equal(counters->feedback_dropped, 0);
    }
    return kept;
}

static void rig_run(struct rig *rig, bool deaths)
{
    for (uint32_t step = 0; step < 6000; step++) {
        (void)cluster_step(&rig->churn.c);
        faults(rig, deaths);
        for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
            (void)work(rig, w, true);
        }
    }
    settle(rig);
}

static void rig_stop(struct rig *rig)
{
    lists_count(&rig->churn);
    churn_stop(&rig->churn);
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        free(rig->kept[w]);
    }
}

static struct rig rig;

/* Pushed gradients equal applied plus kept ones, whichever connection breaks; with replay also if
 * shards die: gradients reported as lost are not applied by a resent push. */
static void losses_are_kept(void **state)
{
    (void)state;
    uint64_t kept = 0;
    for (uint64_t seed = 401; seed <= 440; seed++) {
        bool replay = seed % 2 == 0;
        rig_start(&rig, (uint8_t)(seed % 3), IDS, replay, seed);
        lose(&rig);
        rig_run(&rig, replay);
        kept += conserved(&rig, true);
        rig_stop(&rig);
    }
    assert_true(kept > 1000);
}

/* The same with deadlines and little other loss: pushes end with the chunks that arrived, or are
 * not sent. */
static void what_is_late_is_kept(void **state)
{
    (void)state;
    uint64_t kept = 0, late = 0;
    for (uint64_t seed = 501; seed <= 540; seed++) {
        bool replay = seed % 2 == 0;
        rig_start(&rig, (uint8_t)(seed % 3), IDS, replay, seed);
        lose(&rig);
        rig.churn.how.bound_ppm = seed % 4 < 2 ? 0 : 300000;
        rig.churn.in_time_ns = 200000;
        rig_run(&rig, replay);
        kept += conserved(&rig, true);
        for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
            late += weft_ps_client_counters(rig.churn.c.client[w])->deadlines_expired;
        }
        rig_stop(&rig);
    }
    assert_true(kept > 1000 && late > 1000);
}

static void run(uint8_t mode, uint32_t rows_max, bool deaths, bool replay, uint64_t seed)
{
    rig_start(&rig, mode, rows_max, replay, seed);
    rig_run(&rig, deaths);
    assert_int_equal(conserved(&rig, !deaths || replay), 0);
    double pushed = 0, there = 0;
    uint64_t lost = 0, away = 0, durable = 0;
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        const struct weft_ps_client_counters *counters =
            weft_ps_client_counters(rig.churn.c.client[w]);
        lost += counters->pushes_lost;
        away += counters->shard_disconnects;
        durable += counters->pushes_durable;
        assert_int_equal(counters->replies_malformed, 0);
        assert_int_equal(counters->rpcs_refused, 0);
    }
    for (uint32_t i = 0; i < IDS; i++) {
        pushed += rig.pushed[i];
        there += churn_row(&rig.churn, i);
    }
    assert_true(away > 5 && lost == rig.reports_lost && (!replay || lost == 0));
    assert_true(!replay || durable > 0);
    if (rows_max == 1) {
        assert_true(there + (double)lost == pushed);
    } else {
        assert_true(there + (double)lost * rows_max >= pushed);
    }
    rig_stop(&rig);
}

static void connections_break(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        run((uint8_t)(seed % 3), IDS, false, false, seed);
    }
}

static void servers_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 140; seed++) {
        run((uint8_t)(seed % 3), 1, true, false, seed);
    }
}

static void servers_come_back_in_the_middle_of_pushes(void **state)
{
    (void)state;
    for (uint64_t seed = 201; seed <= 240; seed++) {
        run((uint8_t)(seed % 3), IDS, true, false, seed);
    }
}

static void replayed(void **state)
{
    (void)state;
    for (uint64_t seed = 301; seed <= 340; seed++) {
        run((uint8_t)(seed % 3), IDS, true, true, seed);
    }
}

/* Shards that accept lists are replaced by shards that do not: pushes that named a list are sent
 * with their ids. Pushes have one chunk, because a push that was begun would have other chunks with
 * ids. */
static void some_take_no_lists(void **state)
{
    (void)state;
    memset(&lists, 0, sizeof(lists));
    lists.on = lists.some_none = true;
    for (uint64_t seed = 601; seed <= 640; seed++) {
        run((uint8_t)(seed % 3), 8, true, seed % 2 == 0, seed);
    }
    lists.on = lists.some_none = false;
    assert_true(lists.clients.pushes_listed > 100 && lists.shards.ids_by_list > 100);
}

/* The same with lists, some of which the shards have evicted. */
static void with_lists(void **state)
{
    memset(&lists, 0, sizeof(lists));
    lists.on = true;
    losses_are_kept(state);
    what_is_late_is_kept(state);
    connections_break(state);
    servers_come_back(state);
    servers_come_back_in_the_middle_of_pushes(state);
    replayed(state);
    lists.on = false;
    assert_true(lists.clients.pushes_listed > 1000 && lists.clients.lists_unknown > 100 &&
                lists.clients.lists_sent > lists.clients.lists_unknown);
    assert_true(lists.shards.ids_by_list > 1000 && lists.shards.lists_refused > 100);
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void waited_too_long(void **state)
{
    (void)state;
    struct cluster c;
    struct cluster_config config = cluster_config(2, 1);
    config.incarnation = 1;
    config.client.reconnect_ns = WEFT_NS_PER_MS;
    cluster_start(&c, &config, 1, 7);
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    cluster_open(&c, &spec);
    const uint64_t ids[2] = {churn_id(0), churn_id(1)};
    float rows[2 * DIM] = {0};
    weft_ps_op op;
    uint64_t until_ns;
    fake_kill(c.net, 0);
    cluster_run(&c);
    assert_true(weft_ps_client_away(c.client[0], 0, &until_ns));
    assert_false(weft_ps_client_away(c.client[0], 1, &until_ns));
    assert_true(until_ns > c.net->now_ns && until_ns <= c.net->now_ns + WEFT_NS_PER_MS);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 1, fake_peer(1), 0), WEFT_STATE);
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 2, 0, c.net->now_ns, &op), WEFT_AGAIN);
    uint64_t all[IDS];
    float out[IDS * DIM] = {0};
    for (uint32_t i = 0; i < IDS; i++) {
        all[i] = churn_id(i);
    }
    assert_int_equal(weft_ps_pull(c.client[0], 0, all, out, IDS, 0, c.net->now_ns, &op), WEFT_OK);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], op, NULL));
    c.net->now_ns = until_ns;
    weft_ps_client_progress(c.client[0], c.net->now_ns);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_PEER);
    assert_false(weft_ps_client_away(c.client[0], 0, &until_ns));
    assert_int_equal(weft_ps_clock(c.client[0], 0, c.net->now_ns), WEFT_PEER);
    cluster_stop(&c);
}

/* ---- the log --------------------------------------------------------------------------------- */

enum { LOG_BYTES = 40000, PUSH_ROWS = 40 };

static void log_start(struct cluster *c, struct weft_saved *saved, bool checkpoints)
{
    struct cluster_config config = cluster_config(1, 1);
    config.incarnation = 1;
    config.shard.chunks_max = 64;
    config.shard.checkpoints = checkpoints;
    config.client.reconnect_ns = 10 * WEFT_NS_PER_S;
    config.client.replay_bytes = LOG_BYTES;
    cluster_start(c, &config, 1, 7);
    weft_saved_init(saved, 2, 1);
}

static weft_status log_push(struct cluster *c)
{
    uint64_t ids[PUSH_ROWS];
    float rows[PUSH_ROWS * DIM] = {0};
    weft_ps_op op;
    for (uint32_t i = 0; i < PUSH_ROWS; i++) {
        ids[i] = churn_id(i);
    }
    weft_status status =
        weft_ps_push(c->client[0], 0, ids, rows, PUSH_ROWS, 0, c->net->now_ns, &op);
    if (status == WEFT_OK) {
        assert_int_equal(cluster_wait(c, 0, op).status, WEFT_OK);
    }
    return status;
}

/* A server that writes checkpoints only on request: clocks of a quarter of the log can continue
 * forever. */
static void log_is_emptied(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_saved saved;
    log_start(&c, &saved, true);
    struct weft_table_spec spec = {.dim = DIM, .workers = 1, .learning_rate = 1};
    cluster_open(&c, &spec);
    uint32_t cuts = 0, pushes = 0, waited = 0, clock;
    while (pushes < 900) {
        weft_status status = log_push(&c);
        assert_true(status == WEFT_OK || status == WEFT_AGAIN);
        pushes += status == WEFT_OK;
        waited += status == WEFT_AGAIN;
        if (status == WEFT_OK && pushes % 9 == 0) {
            cluster_clock(&c, 0, 0);
        }
        if (weft_shard_cut_wanted(c.shard[0], &clock)) {
            weft_saved_begin(&saved, c.shard[0]);
        }
        cluster_run(&c);
        if (weft_saved_poll(&saved, c.shard[0])) {
            cuts++;
            weft_shard_durable(c.shard[0]);
        }
        cluster_run(&c);
    }
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(c.client[0]);
    assert_true(cuts > 10 && cuts < 60);
    assert_true(counters->pushes_durable > 800 && counters->replay_bytes_now <= LOG_BYTES);
    assert_int_equal(counters->replay_full, waited);
    weft_saved_fini(&saved);
    cluster_stop(&c);
}

/* Pushes of one clock that do not fit fail, with delays near the end. So do pushes without any
 * checkpoint that would free memory, and a push larger than the log. */
static void log_is_full(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_saved saved;
    log_start(&c, &saved, true);
    struct weft_table_spec spec = {.dim = DIM, .workers = 1, .learning_rate = 1};
    cluster_open(&c, &spec);
    uint32_t pushes = 0, slow = 0;
    weft_status status;
    while ((status = log_push(&c)) != WEFT_NOMEM) {
        pushes += status == WEFT_OK;
        slow += status == WEFT_AGAIN;
        c.net->now_ns += status == WEFT_AGAIN ? WEFT_NS_PER_MS : 0;
        assert_true(slow < 1000);
    }
    assert_true(pushes > 30 && pushes <= 40 && slow > 50);
    cluster_clock(&c, 0, 0); /* a checkpoint could free memory now, but none is written */
    cluster_run(&c);
    assert_int_equal(log_push(&c), WEFT_AGAIN);
    c.net->now_ns += 11 * WEFT_NS_PER_S;
    assert_int_equal(log_push(&c), WEFT_NOMEM);
    weft_saved_begin(&saved, c.shard[0]);
    assert_true(weft_saved_poll(&saved, c.shard[0]));
    weft_shard_durable(c.shard[0]);
    cluster_poll(&c);
    cluster_run(&c);
    assert_int_equal(log_push(&c), WEFT_OK);
    uint64_t ids[1000] = {0};
    static float rows[1000 * DIM];
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 1000, 0, c.net->now_ns, &op), WEFT_OK);
    (void)cluster_wait(&c, 0, op);
    weft_saved_fini(&saved);
    cluster_stop(&c);
}

static void log_needs_checkpoints(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_saved saved;
    log_start(&c, &saved, false);
    struct weft_table_spec spec = {.dim = DIM, .workers = 1, .learning_rate = 1};
    weft_ps_op op;
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, c.net->now_ns, &op), WEFT_OK);
    struct weft_ps_result result = cluster_wait(&c, 0, op);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_NOT_DURABLE);
    weft_saved_fini(&saved);
    cluster_stop(&c);
}

/* A shard without masks does not know which chunks of a push it applied, and reports that. */
static void refused(void **state)
{
    (void)state;
    struct cluster c;
    struct cluster_config config = cluster_config(1, 1);
    config.incarnation = 1;
    config.client.reconnect_ns = WEFT_NS_PER_S;
    cluster_start(&c, &config, 1, 7);
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    cluster_open(&c, &spec);
    const uint64_t id = churn_id(0);
    float row[DIM] = {0};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, row, 1, 0, c.net->now_ns, &op), WEFT_OK);
    fake_break(c.net, 0, 1);
    cluster_run(&c);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), 0), WEFT_OK);
    fake_connect(c.net, 0, 1);
    cluster_poll(&c);
    struct weft_ps_result result = cluster_wait(&c, 0, op);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_BAD_REQUEST);
    assert_int_equal(weft_ps_clock(c.client[0], 0, c.net->now_ns), WEFT_PEER);
    cluster_stop(&c);
}

/* ---- how often it is tried ------------------------------------------------------------------- */

static struct cluster *waiting(uint32_t workers)
{
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    struct cluster_config config = cluster_config(1, workers);
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    cluster_start(c, &config, workers, 7);
    return c;
}

static void waiting_free(struct cluster *c)
{
    cluster_stop(c);
    free(c);
}

static void tell(struct cluster *c, uint32_t w, enum weft_msg_event_type type,
                 enum weft_msg_down down, uint64_t now_ns)
{
    const struct weft_msg_event event = {.type = type, .peer = fake_peer(0), .down = down};
    weft_ps_client_event(c->client[w], &event, now_ns);
}

/* A shard that accepts and immediately ends each connection for this long; the driver checks every
 * millisecond. Returns the number of connections. pauses_p: the sum of squares of all pauses, in
 * ms. */
static uint32_t attempts_within(struct cluster *c, uint32_t w, uint64_t span_ns, uint64_t *pauses_p)
{
    uint64_t until_ns, last_ns = 0;
    uint32_t attempts = 0;
    *pauses_p = 0;
    for (uint64_t now_ns = 0; now_ns < span_ns; now_ns += WEFT_NS_PER_MS) {
        if (!weft_ps_client_away(c->client[w], 0, &until_ns) ||
            now_ns < weft_ps_client_reconnect_ns(c->client[w], 0)) {
            continue;
        }
        assert_int_equal(weft_ps_client_reconnect(c->client[w], 0, fake_peer(0), now_ns), WEFT_OK);
        tell(c, w, WEFT_EVENT_PEER_UP, 0, now_ns);
        tell(c, w, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_CLOSED, now_ns);
        uint64_t pause_ms = (now_ns - last_ns) / WEFT_NS_PER_MS;
        assert_true(pause_ms <= 1000);
        *pauses_p += pause_ms * pause_ms;
        last_ns = now_ns;
        attempts++;
    }
    return attempts;
}

static void a_shard_that_ends_connections_is_asked_ever_more_rarely(void **state)
{
    (void)state;
    uint64_t pauses[2], same;
    struct cluster *c = waiting(2);
    for (uint32_t w = 0; w < 2; w++) {
        tell(c, w, WEFT_EVENT_PEER_UP, 0, 0);
        tell(c, w, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_CLOSED, 0);
        uint32_t attempts = attempts_within(c, w, 60 * WEFT_NS_PER_S, &pauses[w]);
        assert_in_range(attempts, 60, 127); /* 60 s with pauses of 0.5 to 1 s, and 7 shorter ones */
    }
    assert_int_not_equal(pauses[0], pauses[1]);
    waiting_free(c);
    c = waiting(1);
    tell(c, 0, WEFT_EVENT_PEER_UP, 0, 0);
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_CLOSED, 0);
    (void)attempts_within(c, 0, 60 * WEFT_NS_PER_S, &same);
    assert_int_equal(same, pauses[0]);
    waiting_free(c);
}

/* A server does this while another process has the rank; operations of the client time out. */
static void a_shard_that_ends_connections_is_given_up(void **state)
{
    (void)state;
    struct cluster *c = waiting(1);
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    const uint64_t id = churn_id(0);
    uint64_t pauses, until_ns;
    float row[DIM];
    weft_ps_op op;
    struct weft_ps_result result;
    cluster_open(c, &spec);
    tell(c, 0, WEFT_EVENT_PEER_UP, 0, 0);
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_CLOSED, 0);
    assert_int_equal(weft_ps_pull(c->client[0], 0, &id, row, 1, 0, 0, &op), WEFT_OK);
    (void)attempts_within(c, 0, 1000 * WEFT_NS_PER_S, &pauses);
    weft_ps_client_progress(c->client[0], 1000 * WEFT_NS_PER_S - 1);
    assert_true(weft_ps_client_away(c->client[0], 0, &until_ns));
    assert_int_equal(until_ns, 1000 * WEFT_NS_PER_S);
    assert_false(weft_ps_op_done(c->client[0], op, NULL));
    weft_ps_client_progress(c->client[0], until_ns);
    assert_true(weft_ps_op_done(c->client[0], op, &result));
    assert_int_equal(result.status, WEFT_PEER);
    weft_ps_op_release(c->client[0], op);
    waiting_free(c);
}

static void a_connection_that_held_is_made_again_at_once(void **state)
{
    (void)state;
    struct cluster *c = waiting(1);
    uint64_t now_ns = 0, pauses, until_ns;
    tell(c, 0, WEFT_EVENT_PEER_UP, 0, now_ns);
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_SILENT, now_ns);
    (void)attempts_within(c, 0, 10 * WEFT_NS_PER_S, &pauses);
    now_ns = 11 * WEFT_NS_PER_S;
    assert_int_equal(weft_ps_client_reconnect(c->client[0], 0, fake_peer(0), now_ns), WEFT_OK);
    tell(c, 0, WEFT_EVENT_PEER_UP, 0, now_ns);
    now_ns += WEFT_NS_PER_S;
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_SILENT, now_ns);
    assert_true(weft_ps_client_reconnect_ns(c->client[0], 0) <= now_ns);
    assert_true(weft_ps_client_away(c->client[0], 0, &until_ns));
    assert_int_equal(until_ns, now_ns + 1000 * WEFT_NS_PER_S); /* the timeout starts again, too */
    /* From there on pauses are short again. */
    assert_int_equal(weft_ps_client_reconnect(c->client[0], 0, fake_peer(0), now_ns), WEFT_OK);
    tell(c, 0, WEFT_EVENT_PEER_UP, 0, now_ns);
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_SILENT, now_ns);
    uint64_t pause_ns = weft_ps_client_reconnect_ns(c->client[0], 0) - now_ns;
    assert_in_range(pause_ns, 5 * WEFT_NS_PER_MS, 10 * WEFT_NS_PER_MS);
    waiting_free(c);
}

static void who_was_replaced_does_not_try_again(void **state)
{
    (void)state;
    struct cluster *c = waiting(1);
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    cluster_open(c, &spec);
    const uint64_t id = churn_id(0);
    uint64_t until_ns;
    float row[DIM] = {0};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[0], 0, &id, row, 1, 0, c->net->now_ns, &op), WEFT_OK);
    tell(c, 0, WEFT_EVENT_PEER_DOWN, WEFT_DOWN_REPLACED, c->net->now_ns);
    assert_false(weft_ps_client_away(c->client[0], 0, &until_ns));
    struct weft_ps_result result = cluster_wait(c, 0, op);
    assert_int_equal(result.status, WEFT_PEER);
    assert_int_equal(weft_ps_clock(c->client[0], 0, c->net->now_ns), WEFT_PEER);
    waiting_free(c);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void clocks_to(struct cluster *c, uint32_t clock)
{
    while (weft_ps_clock_now(c->client[0], 0) < clock) {
        cluster_clock(c, 0, 0);
    }
    cluster_run(c);
}

static void push_one(struct cluster *c)
{
    const uint64_t id = churn_id(0);
    const float row[DIM] = {-1, -1, -1, -1};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[0], 0, &id, row, 1, 0, c->net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(c, 0, op).status, WEFT_OK);
}

/* A server restored far behind its worker gets all clocks without pushes in one CLOCK. */
static void many_clocks_are_told_at_once(uint8_t mode)
{
    struct cluster c;
    struct cluster_config config = cluster_config(1, 1);
    struct weft_saved saved;
    config.incarnation = 1;
    config.shard.chunks_max = 64;
    config.shard.checkpoints = true;
    config.client.reconnect_ns = 10 * WEFT_NS_PER_S;
    config.client.replay_bytes = LOG_BYTES;
    cluster_start(&c, &config, 1, 7);
    weft_saved_init(&saved, 2, 1);
    struct weft_table_spec spec = {.dim = DIM, .mode = mode, .workers = 1, .learning_rate = 1};
    spec.staleness = mode == WEFT_TABLE_SSP ? 3 : 0;
    cluster_open(&c, &spec);
    push_one(&c);
    clocks_to(&c, 50);
    weft_saved_begin(&saved, c.shard[0]);
    assert_true(weft_saved_poll(&saved, c.shard[0]));
    clocks_to(&c, 2000);
    push_one(&c);
    clocks_to(&c, 9000);
    push_one(&c);
    clocks_to(&c, 10000);
    push_one(&c); /* for the clock in progress */
    uint64_t before = weft_ps_client_counters(c.client[0])->clocks;
    assert_int_equal(before, 10000);
    fake_kill(c.net, 0);
    cluster_shard_free(&c, 0);
    c.shard[0] = cluster_shard_new(&c, &config, 0);
    weft_saved_restore(&saved, c.shard[0]);
    fake_revive(c.net, 0);
    cluster_run(&c);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), 0), WEFT_OK);
    fake_connect(c.net, 0, 1);
    cluster_poll(&c);
    cluster_run(&c);
    assert_int_equal(weft_shard_clock(c.shard[0], 0), 10000);
    /* CLOCKs for: up to 2000; 2001, with its push; up to 9000; 9001, with its push; the rest. */
    assert_in_range(weft_ps_client_counters(c.client[0])->clocks - before, 3, 5);
    clocks_to(&c, 10003);
    const uint64_t id = churn_id(0);
    float row[DIM] = {0};
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c.client[0], 0, &id, row, 1, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    assert_true(row[0] == 4);
    weft_saved_fini(&saved);
    cluster_stop(&c);
}

static void clocks_are_told_at_once(void **state)
{
    (void)state;
    many_clocks_are_told_at_once(WEFT_TABLE_BSP);
    many_clocks_are_told_at_once(WEFT_TABLE_SSP);
    many_clocks_are_told_at_once(WEFT_TABLE_ASP);
}

/* A reported number near 2^64 must not make the worker count in an endless loop. */
static void numbers_that_nobody_counted_to(void **state)
{
    (void)state;
    struct cluster c;
    struct cluster_config config = cluster_config(1, 1);
    config.incarnation = 1;
    config.shard.chunks_max = 64;
    config.client.reconnect_ns = WEFT_NS_PER_S;
    cluster_start(&c, &config, 1, 7);
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    cluster_open(&c, &spec);
    const struct weft_push_window pushes = {.newest = UINT64_MAX};
    const uint64_t id = churn_id(0);
    float row[DIM] = {0};
    weft_ps_op op;
    fake_break(c.net, 0, 1);
    cluster_run(&c);
    weft_shard_restore_pushes(c.shard[0], 0, &pushes, 1);
    assert_int_equal(weft_ps_pull(c.client[0], 0, &id, row, 1, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), 0), WEFT_OK);
    fake_connect(c.net, 0, 1);
    cluster_poll(&c);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_PROTO);
    assert_int_equal(weft_ps_client_counters(c.client[0])->replies_malformed, 1);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_break),
        cmocka_unit_test(servers_come_back),
        cmocka_unit_test(servers_come_back_in_the_middle_of_pushes),
        cmocka_unit_test(replayed),
        cmocka_unit_test(with_lists),
        cmocka_unit_test(some_take_no_lists),
        cmocka_unit_test(losses_are_kept),
        cmocka_unit_test(what_is_late_is_kept),
        cmocka_unit_test(waited_too_long),
        cmocka_unit_test(refused),
        cmocka_unit_test(log_is_emptied),
        cmocka_unit_test(log_is_full),
        cmocka_unit_test(log_needs_checkpoints),
        cmocka_unit_test(a_shard_that_ends_connections_is_asked_ever_more_rarely),
        cmocka_unit_test(a_shard_that_ends_connections_is_given_up),
        cmocka_unit_test(a_connection_that_held_is_made_again_at_once),
        cmocka_unit_test(who_was_replaced_does_not_try_again),
        cmocka_unit_test(clocks_are_told_at_once),
        cmocka_unit_test(numbers_that_nobody_counted_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
