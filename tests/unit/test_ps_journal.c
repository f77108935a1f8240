/* The journal: shards restored from it are bit-identical, while workers and servers die at random
 * instants. Its ring of records is tested in test_ps_journal_ring.c. */
#include "ps/shard_journal.h"
#include "ps/journal_ring.h"
#include "ps/shard_internal.h"
#include "ps_churn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SHARDS = CHURN_SHARDS, WORKERS = CHURN_WORKERS, IDS = CHURN_IDS, DIM = CHURN_DIM, OPS = 3 };
enum { JOURNAL_BYTES = 256 * 1024, LIVES_MAX = 60, RECORD_MAX = 512 };

struct worker {
    struct {
        bool open;
        weft_ps_op op;
        uint32_t picked[IDS];
    } ops[OPS];
    bool opening;
    weft_ps_op opening_op;
};

struct rig {
    struct churn churn;
    uint8_t *memory[SHARDS];
    uint64_t journal_bytes;     /* usable bytes of a journal */
    uint64_t journal_bytes_max; /* maximum bytes of a journal */
    struct worker workers[WORKERS];
    double answered[IDS];
    double cut_off[IDS]; /* pushes without a reply at their worker's death */
    uint32_t shard_deaths;
    uint32_t worker_deaths;
    uint64_t records;
    uint64_t lost;
    bool exact;   /* the journal was never full */
    bool shrinks; /* clocks continue without dead workers */
};

/* Replay the previous process's journal into new memory, and free the old memory. */
static void open_journal(struct rig *rig, uint32_t s)
{
    uint8_t *former = rig->memory[s];
    rig->memory[s] = aligned_alloc(4096, JOURNAL_BYTES);
    memset(rig->memory[s], 0, JOURNAL_BYTES);
    const struct weft_shard_journal_config config = {.memory = rig->memory[s],
                                                     .bytes = rig->journal_bytes,
                                                     .bytes_max = rig->journal_bytes_max,
                                                     .job = 5,
                                                     .checkpoint = rig->churn.saved[s].number,
                                                     .lineage = 8,
                                                     .source = former,
                                                     .source_bytes = rig->journal_bytes};
    assert_int_equal(weft_shard_journal_init(rig->churn.c.shard[s], &config), WEFT_OK);
    while (weft_shard_journal_replay(rig->churn.c.shard[s])) {
        assert_false(weft_shard_journal_stalls(rig->churn.c.shard[s]));
        cluster_slabs(&rig->churn.c, s);
    }
    assert_false(weft_shard_journal_report(rig->churn.c.shard[s])->damaged);
    free(former);
}

static void rig_start_of(struct rig *rig, uint8_t mode, uint8_t optimizer, bool shrinks,
                         uint64_t seed, uint64_t journal_bytes)
{
    *rig = (struct rig){.journal_bytes = journal_bytes,
                        .journal_bytes_max = journal_bytes,
                        .exact = true,
                        .shrinks = shrinks};
    struct churn *churn = &rig->churn;
    churn_init(churn, mode, seed);
    churn->spec.optimizer = optimizer;
    churn->spec.epsilon = optimizer == WEFT_OPTIMIZER_ADAGRAD ? 1 : 0;
    churn->config.shard.on_death = shrinks ? WEFT_DEATH_SHRINK : WEFT_DEATH_WAIT;
    churn->config.client.replay_bytes = seed % 2 == 0 ? 200000 : 0;
    churn_start(churn, seed);
    for (uint32_t s = 0; s < SHARDS; s++) {
        /* Replace the shard by a new one that has replayed the journal before any worker
         * connects. */
        fake_kill(churn->c.net, s);
        churn_shard_free(churn, s, churn_shard_again(churn, s));
        open_journal(rig, s);
        assert_false(weft_shard_journal_report(churn->c.shard[s])->used);
        fake_revive(churn->c.net, s);
    }
    cluster_run(&churn->c);
    churn_reconnect(churn, WEFT_PPM);
    cluster_run(&churn->c);
    cluster_open(&churn->c, &churn->spec);
}

static void rig_start(struct rig *rig, uint8_t mode, uint8_t optimizer, bool shrinks, uint64_t seed)
{
    rig_start_of(rig, mode, optimizer, shrinks, seed, JOURNAL_BYTES);
}

static void rig_stop(struct rig *rig)
{
    churn_stop(&rig->churn);
    for (uint32_t s = 0; s < SHARDS; s++) {
        free(rig->memory[s]);
    }
}

/* Processes that had lost their rank are still refused. */
static void assert_same_retired(const struct weft_shard *a, const struct weft_shard *b, uint32_t w)
{
    for (uint32_t i = 0; i < WEFT_RETIRED_MAX; i++) {
        uint64_t incarnation = a->workers[w].retired.incarnations[i];
        assert_true(incarnation == 0 || weft_retired_has(&b->workers[w].retired, incarnation));
    }
    assert_true(a->workers[w].retired.floor == b->workers[w].retired.floor);
}

/* Compare every table, clock and window of the two, except pushes without an applied chunk. */
static void assert_same(const struct weft_shard *a, const struct weft_shard *b)
{
    const struct weft_table *ta = weft_shard_table(a, 0), *tb = weft_shard_table(b, 0);
    uint32_t workers = a->config.workers_max;
    assert_int_equal(ta == NULL, tb == NULL);
    assert_int_equal(a->clock_min[0], b->clock_min[0]);
    for (uint32_t i = 0; ta != NULL && i < IDS; i++) {
        float ra[DIM], rb[DIM];
        assert_int_equal(weft_table_read(ta, churn_id(i), ra),
                         weft_table_read(tb, churn_id(i), rb));
        assert_memory_equal(ra, rb, sizeof(ra));
    }
    for (uint32_t w = 0; w < workers; w++) {
        const struct weft_push_window *oa = &a->pushes[w], *ob = &b->pushes[w];
        uint64_t newest = weft_max_u64(oa->newest, ob->newest);
        assert_int_equal(a->clocks[w], b->clocks[w]);
        assert_true(a->workers[w].incarnation == b->workers[w].incarnation);
        assert_same_retired(a, b, w);
        assert_int_equal(oa->clock, ob->clock);
        for (uint64_t n = 1; n <= newest; n++) {
            assert_int_equal(weft_push_window_test(oa, n), weft_push_window_test(ob, n));
        }
    }
}

static struct weft_ring_cursor end_of(const struct weft_ring_reader *reader)
{
    struct weft_ring_cursor end = reader->begin;
    uint32_t life = 0;
    while (weft_ring_next(reader, &life, &end) != NULL) {
    }
    return end;
}

static struct weft_ring_reader read_journal(const struct rig *rig, uint32_t s)
{
    const struct weft_ring_owner mine = {.shard = s, .shards = SHARDS, .job = 5};
    struct weft_ring_reader reader;
    assert_int_equal(weft_ring_read(&reader, rig->memory[s], rig->journal_bytes, &mine), WEFT_OK);
    return reader;
}

/* An incomplete record after the last one: its request had no reply, and it is ignored. */
static void tear(struct rig *rig, uint32_t s)
{
    struct weft_ring_reader reader = read_journal(rig, s);
    struct weft_ring_cursor end = end_of(&reader);
    if (end.at + 256 <= rig->journal_bytes &&
        (end.at > reader.begin.at || end.at + 256 < reader.begin.at)) {
        struct weft_ring_record torn = {
            .position = end.position, .bytes = 256, .life = reader.life, .type = 1, .check = 9};
        memcpy(rig->memory[s] + end.at, &torn, sizeof(torn));
        memset(rig->memory[s] + end.at + sizeof(torn), 0x55, 100);
    }
}

static void shard_dies(struct rig *rig, uint32_t s)
{
    struct cluster *c = &rig->churn.c;
    struct weft_shard *dead = c->shard[s];
    bool full = weft_shard_journal_is_full(dead);
    fake_kill(c->net, s);
    while (weft_shard_has_work(dead)) {
        /* rows still to be stepped at the end of a clock */
        weft_shard_progress(dead, c->net->now_ns);
    }
    rig->exact &= !full;
    if (weft_prng_below(&rig->churn.prng, 2) == 0) {
        tear(rig, s);
    }
    (void)churn_shard_again(&rig->churn, s);
    open_journal(rig, s);
    assert_true(full || weft_shard_journal_report(c->shard[s])->used);
    assert_int_equal(weft_shard_journal_report(c->shard[s])->refused, 0);
    rig->records += weft_shard_journal_report(c->shard[s])->records;
    if (!full) {
        assert_same(dead, c->shard[s]);
    }
    churn_shard_free(&rig->churn, s, dead);
    fake_revive(c->net, s);
    rig->shard_deaths++;
}

static void worker_dies(struct rig *rig, uint32_t w)
{
    struct cluster *c = &rig->churn.c;
    struct worker *worker = &rig->workers[w];
    weft_peer peers[SHARDS];
    uint32_t node = SHARDS + w;
    for (uint32_t i = 0; i < OPS; i++) {
        for (uint32_t k = 0; worker->ops[i].open && k < IDS; k++) {
            rig->cut_off[k] += worker->ops[i].picked[k];
        }
        worker->ops[i].open = false;
    }
    rig->lost += weft_ps_client_counters(c->client[w])->pushes_lost;
    fake_kill(c->net, node);
    /* The shards process the disconnect before the next process connects, because both have the
     * same peer number here. */
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_msg_event event;
        while (fake_poll(&c->net->nodes[s], &event)) {
            weft_shard_event(c->shard[s], &event, c->net->now_ns);
        }
    }
    weft_ps_client_free(c->client[w]);
    fake_revive(c->net, node);
    c->net->nodes[node].incarnation += 10;
    struct weft_ps_client_config config = rig->churn.config.client;
    config.worker = w;
    config.clock_ns = fake_clock_ns;
    config.clock_arg = c->net;
    for (uint32_t s = 0; s < SHARDS; s++) {
        peers[s] = fake_peer(s);
    }
    assert_int_equal(weft_ps_client_new(&config, fake_msgr(c->net, node), peers, &c->client[w]),
                     WEFT_OK);
    for (uint32_t s = 0; s < SHARDS; s++) {
        fake_connect(c->net, node, s);
    }
    assert_int_equal(
        weft_ps_table_open(c->client[w], &rig->churn.spec, c->net->now_ns, &worker->opening_op),
        WEFT_OK);
    worker->opening = true;
    rig->worker_deaths++;
}

/* Exclude workers that die while they open the table, or whose shard dies then. */
static bool any_opening(const struct rig *rig)
{
    return rig->workers[0].opening || rig->workers[1].opening;
}

static void faults(struct rig *rig)
{
    struct cluster *c = &rig->churn.c;
    uint32_t s = (uint32_t)weft_prng_below(&rig->churn.prng, SHARDS);
    uint32_t w = (uint32_t)weft_prng_below(&rig->churn.prng, WORKERS);
    uint64_t until_ns;
    if (weft_prng_chance(&rig->churn.prng, 8000)) {
        weft_saved_begin(&rig->churn.saved[s], c->shard[s]);
    }
    if (weft_prng_chance(&rig->churn.prng, 3000) && !any_opening(rig)) {
        shard_dies(rig, s);
    }
    bool all_there = true;
    for (uint32_t i = 0; i < SHARDS; i++) {
        all_there &= !weft_ps_client_away(c->client[w], i, &until_ns);
    }
    if (weft_prng_chance(&rig->churn.prng, 3000) && all_there && !any_opening(rig)) {
        worker_dies(rig, w);
    }
    churn_cuts(&rig->churn);
    churn_reconnect(&rig->churn, 100000);
}

static void start_push(struct rig *rig, uint32_t w, uint32_t i)
{
    struct worker *worker = &rig->workers[w];
    worker->ops[i].open =
        churn_push(&rig->churn, w, IDS, worker->ops[i].picked, &worker->ops[i].op) == WEFT_OK;
}

static uint32_t work(struct rig *rig, uint32_t w, bool more)
{
    struct worker *worker = &rig->workers[w];
    struct weft_ps_client *client = rig->churn.c.client[w];
    struct weft_ps_result result;
    uint32_t open = 0;
    if (worker->opening) {
        if (!weft_ps_op_done(client, worker->opening_op, &result)) {
            return 1;
        }
        assert_int_equal(result.status, WEFT_OK);
        weft_ps_op_release(client, worker->opening_op);
        worker->opening = false;
    }
    for (uint32_t i = 0; i < OPS; i++) {
        if (worker->ops[i].open && weft_ps_op_done(client, worker->ops[i].op, &result)) {
            /* The push was for a clock that ended without its worker. */
            bool late = rig->shrinks && result.rpc_status == WEFT_RPC_STALE_CLOCK;
            assert_true(result.status == WEFT_OK || late);
            weft_ps_op_release(client, worker->ops[i].op);
            worker->ops[i].open = false;
            for (uint32_t k = 0; k < IDS; k++) {
                rig->answered[k] += worker->ops[i].picked[k];
            }
        }
        if (more && !worker->ops[i].open && weft_prng_chance(&rig->churn.prng, 200000)) {
            start_push(rig, w, i);
        }
        open += worker->ops[i].open;
    }
    churn_clock(&rig->churn, w);
    return open;
}

static uint32_t work_off(void *arg, uint32_t w)
{
    return work(arg, w, false);
}

static void settle(struct rig *rig)
{
    churn_settle(&rig->churn, work_off, rig);
}

static void check_rows(const struct rig *rig)
{
    for (uint32_t i = 0; i < IDS; i++) {
        double row = churn_row(&rig->churn, i);
        assert_true(row >= rig->answered[i] && row <= rig->answered[i] + rig->cut_off[i]);
    }
}

static struct rig rig;
static uint32_t shard_deaths, worker_deaths;
static uint64_t records;

static void run(uint8_t mode, uint8_t optimizer, bool shrinks, uint64_t seed)
{
    rig_start(&rig, mode, optimizer, shrinks, seed);
    for (uint32_t step = 0; step < 6000; step++) {
        (void)cluster_step(&rig.churn.c);
        faults(&rig);
        for (uint32_t w = 0; w < WORKERS; w++) {
            (void)work(&rig, w, true);
        }
    }
    settle(&rig);
    for (uint32_t w = 0; w < WORKERS; w++) {
        rig.lost += weft_ps_client_counters(rig.churn.c.client[w])->pushes_lost;
    }
    assert_true(rig.exact && rig.lost == 0);
    shard_deaths += rig.shard_deaths;
    worker_deaths += rig.worker_deaths;
    records += rig.records;
    if (optimizer == WEFT_OPTIMIZER_SGD && !shrinks) {
        check_rows(&rig);
    }
    rig_stop(&rig);
}

static void nothing_answered_is_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 45; seed++) {
        run((uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed);
    }
    assert_true(shard_deaths > 200 && worker_deaths > 200 && records > 10000);
}

static void optimizers_are_where_they_were(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 115; seed++) {
        run((uint8_t)(seed % 3), WEFT_OPTIMIZER_ADAGRAD, false, seed);
    }
}

static void who_counts_is_known_again(void **state)
{
    (void)state;
    for (uint64_t seed = 201; seed <= 215; seed++) {
        run((uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, true, seed);
    }
}

/* Work without faults; a checkpoint contains some of it. */
static void rig_work(struct rig *r, bool cut)
{
    for (uint32_t step = 0; step < 600; step++) {
        (void)cluster_step(&r->churn.c);
        for (uint32_t s = 0; s < SHARDS; s++) {
            if (cut && step == 300) {
                weft_saved_begin(&r->churn.saved[s], r->churn.c.shard[s]);
            }
            (void)weft_saved_poll(&r->churn.saved[s], r->churn.c.shard[s]);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            (void)work(r, w, true);
        }
    }
}

/* Restart all servers; then a worker opens the table with r->churn.spec. */
static enum weft_rpc_status comes_again(struct rig *r, uint32_t w, bool servers_too)
{
    for (uint32_t s = 0; servers_too && s < SHARDS; s++) {
        shard_dies(r, s);
    }
    worker_dies(r, w);
    cluster_poll(&r->churn.c); /* the ends process each other's events */
    r->workers[w].opening = false;
    return (enum weft_rpc_status)cluster_wait(&r->churn.c, w, r->workers[w].opening_op).rpc_status;
}

/* As after a checkpoint, the first worker to open the table may change the rate. The journal
 * contains the new rate, and no other worker may change it again. */
static void takes_another_rate(void **state)
{
    (void)state;
    for (uint64_t seed = 401; seed <= 412; seed++) {
        rig_start(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed);
        rig_work(&rig, seed % 2 == 0);
        for (uint32_t times = 3; times < 6; times++) {
            rig.churn.spec.learning_rate = (float)(times * WORKERS);
            assert_int_equal(comes_again(&rig, 0, true), WEFT_RPC_OK);
            for (uint32_t s = 0; s < SHARDS; s++) {
                assert_true(weft_shard_table(rig.churn.c.shard[s], 0)->spec.learning_rate ==
                            rig.churn.spec.learning_rate);
            }
            assert_int_equal(comes_again(&rig, 1, false), WEFT_RPC_OK);
        }
        rig.churn.spec.learning_rate = WORKERS;
        assert_int_equal(comes_again(&rig, 1, false), WEFT_RPC_SPEC_MISMATCH);
        rig_stop(&rig);
    }
}

/* The number of workers must not change while a BSP clock has sums of the old workers. */
static void takes_another_number_of_workers(void **state)
{
    (void)state;
    uint32_t taken = 0, refused = 0;
    for (uint64_t seed = 501; seed <= 524; seed++) {
        rig_start(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed);
        rig_work(&rig, false);
        if (seed % 2 == 0) {
            settle(&rig);
        }
        rig.churn.spec.workers = 1;
        enum weft_rpc_status status = comes_again(&rig, 0, true);
        bool settled = true;
        for (uint32_t s = 0; s < SHARDS; s++) {
            settled &= weft_table_settled(weft_shard_table(rig.churn.c.shard[s], 0));
        }
        assert_int_equal(status, settled ? WEFT_RPC_OK : WEFT_RPC_SPEC_MISMATCH);
        taken += settled;
        refused += !settled;
        rig_stop(&rig);
    }
    assert_true(taken > 10 && refused > 2);
}

/* Worker 0 pushes more ids to table 1 than it has admission cells. */
static void push_many(struct rig *r, uint32_t rounds)
{
    enum { MANY = 400, N = 100 };
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t ids[N];
        float rows[N * DIM] = {0};
        weft_ps_op op;
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = churn_id((uint32_t)weft_prng_below(&r->churn.prng, MANY));
        }
        assert_int_equal(
            weft_ps_push(r->churn.c.client[0], 1, ids, rows, N, 0, r->churn.c.net->now_ns, &op),
            WEFT_OK);
        cluster_wait(&r->churn.c, 0, op);
    }
}

/* A process with other keys admits and evicts the same ids as the dead one. */
static void admits_as_the_dead_one(void **state)
{
    (void)state;
    for (uint64_t seed = 551; seed <= 556; seed++) {
        rig_start(&rig, WEFT_TABLE_ASP, WEFT_OPTIMIZER_SGD, false, seed);
        struct churn *churn = &rig.churn;
        struct weft_table_spec spec = churn->spec;
        spec.table = 1;
        spec.admission = seed % 2 == 0 ? WEFT_ADMISSION_COUNTER : WEFT_ADMISSION_BLOOM;
        spec.admission_count = 5;
        spec.admission_cells = 64;
        cluster_open(&churn->c, &spec);
        push_many(&rig, 8);
        memset(&churn->config.shard.keys, (int)seed, sizeof(churn->config.shard.keys));
        for (uint32_t s = 0; s < SHARDS; s++) {
            fake_kill(churn->c.net, s);
            struct weft_shard *dead = churn_shard_again(churn, s);
            open_journal(&rig, s);
            const struct weft_table *was = weft_shard_table(dead, 1);
            const struct weft_table *is = weft_shard_table(churn->c.shard[s], 1);
            assert_int_equal(was->admission.forgotten > 0,
                             spec.admission == WEFT_ADMISSION_COUNTER);
            assert_true(weft_table_rows(was) > 0);
            assert_int_equal(weft_table_rows(was), weft_table_rows(is));
            assert_int_equal(was->admission.hand, is->admission.hand);
            assert_memory_equal(was->admission.memory, is->admission.memory,
                                weft_admission_bytes(&was->admission));
            assert_memory_not_equal(&was->index_key, &is->index_key, sizeof(is->index_key));
            churn_shard_free(churn, s, dead);
            fake_revive(churn->c.net, s);
        }
        rig_stop(&rig);
    }
}

/* ---- full, and checkpoints that fail --------------------------------------------------------- */

enum { SMALL_BYTES = 5 * 4096, COW_BYTES = 1 << 20 };
/* This much is in use only if a part of the reserve is in use. */
enum { SMALL_USED = SMALL_BYTES - WEFT_RING_HEAD_BYTES - SMALL_BYTES / 4 };

static void work_on(struct rig *r, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        (void)cluster_step(&r->churn.c);
        for (uint32_t w = 0; w < WORKERS; w++) {
            (void)work(r, w, true);
        }
    }
}

static void fill_journal(struct rig *r)
{
    for (uint32_t steps = 0; !weft_shard_journal_is_full(r->churn.c.shard[0]); steps++) {
        assert_true(steps < 100000);
        work_on(r, 1);
    }
}

/* Create another shard from the last checkpoint and a copy of this journal. */
static struct weft_shard *twin_new(struct rig *r, uint32_t s, const uint8_t *memory)
{
    uint8_t *own = r->memory[s];
    struct weft_shard *alive = churn_shard_again(&r->churn, s);
    r->memory[s] = aligned_alloc(4096, JOURNAL_BYTES);
    memcpy(r->memory[s], memory, JOURNAL_BYTES);
    open_journal(r, s);
    struct weft_shard *twin = r->churn.c.shard[s];
    free(r->memory[s]); /* the old process writes nothing more */
    r->memory[s] = own;
    r->churn.c.shard[s] = alive;
    return twin;
}

/* A cut that cannot be written, abandoned before its instant or at any later time; or a kept cut
 * without news of the other servers. True: the cut was kept. */
static bool cut_in_vain(struct rig *r, uint32_t s, bool take)
{
    static uint64_t cow_memory[COW_BYTES / 8], number = 1000;
    const struct weft_cut_order order = {
        .number = ++number, .now = true, .whole = true, .memory = cow_memory, .bytes = COW_BYTES};
    struct weft_shard *shard = r->churn.c.shard[s];
    uint8_t buffer[RECORD_MAX];
    uint16_t table;
    assert_int_equal(weft_shard_cut_begin(shard, &order), WEFT_OK);
    work_on(r, (uint32_t)weft_prng_below(&r->churn.prng, 200));
    if (weft_shard_cut_state(shard) == WEFT_CUT_READY) {
        (void)weft_shard_cut_take(shard, buffer, sizeof(buffer), &table);
    }
    work_on(r, (uint32_t)weft_prng_below(&r->churn.prng, 50));
    take &= weft_shard_cut_state(shard) == WEFT_CUT_READY;
    weft_shard_cut_end(shard, take);
    return take;
}

/* The records of a full journal stay until another checkpoint is valid, and it stays full until a
 * cut is taken. */
static void check_full(struct rig *r)
{
    uint8_t *copy = aligned_alloc(4096, JOURNAL_BYTES), *left = aligned_alloc(4096, JOURNAL_BYTES);
    bool taken = false;
    fill_journal(r);
    memcpy(copy, r->memory[0], JOURNAL_BYTES);
    struct weft_shard *then = twin_new(r, 0, copy);
    for (uint64_t i = weft_prng_below(&r->churn.prng, 4); i > 0; i--) {
        taken |= cut_in_vain(r, 0, weft_prng_below(&r->churn.prng, 4) == 0);
        assert_true(taken || weft_shard_journal_is_full(r->churn.c.shard[0]));
        work_on(r, (uint32_t)weft_prng_below(&r->churn.prng, 50));
    }
    memcpy(left, r->memory[0], JOURNAL_BYTES);
    struct weft_shard *now = twin_new(r, 0, left);
    assert_same(then, now);
    churn_shard_free(&r->churn, 0, then);
    churn_shard_free(&r->churn, 0, now);
    free(copy);
    free(left);
}

/* A checkpoint that a server would restore; `told`: the shard has been notified. */
static void cut_and_save(struct rig *r)
{
    struct weft_shard *shard = r->churn.c.shard[0];
    weft_saved_begin(&r->churn.saved[0], shard);
    while (!weft_saved_poll(&r->churn.saved[0], shard)) {
        work_on(r, 1);
    }
    if (weft_prng_below(&r->churn.prng, 2) == 0) {
        weft_shard_durable(shard);
    }
    work_on(r, (uint32_t)weft_prng_below(&r->churn.prng, 30));
}

static void full_it_stays_until_a_checkpoint_counts(void **state)
{
    (void)state;
    uint32_t whole = 0;
    for (uint64_t seed = 601; seed <= 660; seed++) {
        rig_start_of(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed, SMALL_BYTES);
        for (uint32_t times = 0; times < 5; times++) {
            check_full(&rig);
            cut_and_save(&rig);
            if (weft_prng_below(&rig.churn.prng, 2) == 0) {
                continue;
            }
            whole += !weft_shard_journal_is_full(rig.churn.c.shard[0]);
            shard_dies(&rig, 0);
            for (uint32_t w = 0; w < WORKERS; w++) {
                worker_dies(&rig, w);
            }
        }
        rig_stop(&rig);
    }
    assert_true(whole > 60);
}

/* A process that connects while the journal is full is in no record. If the server dies before the
 * older records are freed, the later checkpoint takes precedence over them. */
static void full_it_forgets_nobody_who_came_anew(void **state)
{
    (void)state;
    for (uint64_t seed = 701; seed <= 712; seed++) {
        uint8_t *copy = aligned_alloc(4096, JOURNAL_BYTES);
        rig_start_of(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed, SMALL_BYTES);
        struct weft_shard *shard = rig.churn.c.shard[0];
        fill_journal(&rig);
        uint64_t before = shard->workers[0].incarnation;
        worker_dies(&rig, 0);
        work_on(&rig, 200);
        assert_true(shard->workers[0].incarnation != before);
        weft_saved_begin(&rig.churn.saved[0], shard);
        while (!weft_saved_poll(&rig.churn.saved[0], shard)) {
            work_on(&rig, 1);
        }
        memcpy(copy, rig.memory[0], JOURNAL_BYTES);
        struct weft_shard *twin = twin_new(&rig, 0, copy);
        assert_true(weft_shard_journal_report(twin)->used);
        assert_true(twin->workers[0].incarnation == shard->workers[0].incarnation);
        churn_shard_free(&rig.churn, 0, twin);
        rig_stop(&rig);
        free(copy);
    }
}

/* ---- full, and another process goes on ------------------------------------------------------- */

/* Replace the workers by new processes. */
static void workers_come(struct rig *r)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        worker_dies(r, w);
    }
}

/* The shard records all changes, and the next process replays them. */
static void check_keeps(struct rig *r)
{
    struct weft_shard *shard = r->churn.c.shard[0];
    uint8_t *copy = aligned_alloc(4096, JOURNAL_BYTES);
    uint64_t until = shard->counters.journal_records + 8;
    for (uint32_t steps = 0; shard->counters.journal_records < until; steps++) {
        assert_true(steps < 100000);
        assert_false(weft_shard_journal_is_full(shard));
        work_on(r, 1);
    }
    while (weft_shard_has_work(shard)) {
        weft_shard_progress(shard, r->churn.c.net->now_ns);
    }
    assert_false(weft_shard_journal_is_full(shard));
    memcpy(copy, r->memory[0], JOURNAL_BYTES);
    struct weft_shard *twin = twin_new(r, 0, copy);
    assert_true(weft_shard_journal_report(twin)->used);
    assert_same(shard, twin);
    churn_shard_free(&r->churn, 0, twin);
    free(copy);
}

/* A checkpoint becomes valid, and the shard dies before it is notified, with records in the
 * reserve. The next process needs only those records, so it has room. */
static void full_the_next_has_the_room_that_a_checkpoint_made(void **state)
{
    (void)state;
    for (uint64_t seed = 801; seed <= 824; seed++) {
        rig_start_of(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed, SMALL_BYTES);
        struct weft_shard *shard = rig.churn.c.shard[0];
        fill_journal(&rig);
        weft_saved_begin(&rig.churn.saved[0], shard);
        while (!weft_saved_poll(&rig.churn.saved[0], shard)) {
            work_on(&rig, 1);
        }
        for (uint32_t steps = 0; weft_shard_journal_used(shard) < SMALL_USED; steps++) {
            assert_true(steps < 100000);
            work_on(&rig, 1);
        }
        shard_dies(&rig, 0);
        assert_false(weft_shard_journal_is_full(rig.churn.c.shard[0]));
        workers_come(&rig);
        check_keeps(&rig);
        rig_stop(&rig);
    }
}

/* The file could not grow earlier, and can grow now. */
static void full_the_next_has_the_room_of_a_larger_file(void **state)
{
    (void)state;
    for (uint64_t seed = 831; seed <= 842; seed++) {
        rig_start_of(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed, SMALL_BYTES);
        fill_journal(&rig);
        rig.journal_bytes_max = JOURNAL_BYTES;
        shard_dies(&rig, 0);
        assert_true(weft_shard_journal_wants(rig.churn.c.shard[0]));
        weft_shard_journal_grow(rig.churn.c.shard[0], JOURNAL_BYTES);
        rig.journal_bytes = JOURNAL_BYTES;
        workers_come(&rig);
        check_keeps(&rig);
        rig_stop(&rig);
    }
}

/* Repeated restarts use no more of the reserve after the first one, so records after the next cut
 * have room. The journal is full when a record is not written; this is reported once. */
static void full_lives_leave_the_reserve(void **state)
{
    (void)state;
    for (uint64_t seed = 851; seed <= 856; seed++) {
        rig_start_of(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, false, seed, SMALL_BYTES);
        fill_journal(&rig);
        shard_dies(&rig, 0);
        uint64_t used = weft_shard_journal_used(rig.churn.c.shard[0]);
        for (uint32_t times = 0; times < 100; times++) {
            assert_false(weft_shard_journal_is_full(rig.churn.c.shard[0]));
            shard_dies(&rig, 0);
            assert_int_equal(weft_shard_journal_used(rig.churn.c.shard[0]), used);
        }
        assert_int_equal(rig.churn.c.shard[0]->counters.journal_full, 0);
        workers_come(&rig);
        fill_journal(&rig);
        assert_int_equal(rig.churn.c.shard[0]->counters.journal_full, 1);
        cut_and_save(&rig);
        shard_dies(&rig, 0);
        assert_true(weft_shard_journal_report(rig.churn.c.shard[0])->used);
        rig_stop(&rig);
    }
}

/* Continue a journal as its own process would. */
static struct weft_ring go_on(struct rig *r, uint32_t s)
{
    struct weft_ring_reader reader = read_journal(r, s);
    return (struct weft_ring){.memory = r->memory[s],
                              .bytes = JOURNAL_BYTES,
                              .bytes_max = JOURNAL_BYTES,
                              .begin = reader.begin,
                              .end = end_of(&reader),
                              .begin_seq = 1000000,
                              .end_seq = 1000000,
                              .life = reader.life};
}

/* Intact records with contents that no shard writes are refused, without other effects. */
static void append_nonsense(struct rig *r, uint32_t s)
{
    const struct weft_ring_record *known[256], *record;
    struct weft_ring_reader reader = read_journal(r, s);
    struct weft_ring_cursor at = reader.begin;
    uint32_t life = 0, n = 0;
    while ((record = weft_ring_next(&reader, &life, &at)) != NULL) {
        known[n++ % 256] = record;
    }
    struct weft_ring ring = go_on(r, s);
    for (uint32_t i = 0; i < 100; i++) {
        uint8_t bytes[2048];
        const struct weft_ring_record *like =
            known[weft_prng_below(&r->churn.prng, n < 256 ? n : 256)];
        uint32_t count = like->bytes - sizeof(*like);
        count = count < sizeof(bytes) ? count : sizeof(bytes);
        memcpy(bytes, like + 1, count);
        for (uint32_t k = 0; k < 1 + weft_prng_below(&r->churn.prng, 4); k++) {
            bytes[weft_prng_below(&r->churn.prng, count < 40 ? count : 40)] =
                (uint8_t)weft_prng_u64(&r->churn.prng);
        }
        struct weft_ring_record head = {
            .type = like->type, .table = like->table, .rank = like->rank};
        if (weft_prng_below(&r->churn.prng, 4) == 0) {
            head.type = (uint16_t)weft_prng_range(&r->churn.prng, 1, 14);
            head.table = (uint16_t)weft_prng_below(&r->churn.prng, 4);
            head.rank = (uint32_t)weft_prng_below(&r->churn.prng, 4);
        }
        count = weft_prng_below(&r->churn.prng, 4) == 0 ? count / 2 : count;
        (void)weft_ring_append(&ring, &head, NULL, 0, bytes, count);
    }
}

static void takes_nothing_on_trust(void **state)
{
    (void)state;
    uint64_t refused = 0;
    for (uint64_t seed = 301; seed <= 330; seed++) {
        rig_start(&rig, (uint8_t)(seed % 3), WEFT_OPTIMIZER_SGD, seed % 2 == 0, seed);
        for (uint32_t step = 0; step < 300; step++) {
            (void)cluster_step(&rig.churn.c);
            (void)work(&rig, step % WORKERS, true);
        }
        for (uint32_t s = 0; s < SHARDS; s++) {
            fake_kill(rig.churn.c.net, s);
            cluster_shard_free(&rig.churn.c, s);
            append_nonsense(&rig, s);
            rig.churn.c.shard[s] = cluster_shard_new(&rig.churn.c, &rig.churn.config, s);
            open_journal(&rig, s);
            refused += weft_shard_journal_report(rig.churn.c.shard[s])->refused;
        }
        rig_stop(&rig);
    }
    assert_true(refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_answered_is_lost),
        cmocka_unit_test(optimizers_are_where_they_were),
        cmocka_unit_test(who_counts_is_known_again),
        cmocka_unit_test(takes_another_rate),
        cmocka_unit_test(takes_another_number_of_workers),
        cmocka_unit_test(admits_as_the_dead_one),
        cmocka_unit_test(full_it_stays_until_a_checkpoint_counts),
        cmocka_unit_test(full_it_forgets_nobody_who_came_anew),
        cmocka_unit_test(full_the_next_has_the_room_that_a_checkpoint_made),
        cmocka_unit_test(full_the_next_has_the_room_of_a_larger_file),
        cmocka_unit_test(full_lives_leave_the_reserve),
        cmocka_unit_test(takes_nothing_on_trust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
