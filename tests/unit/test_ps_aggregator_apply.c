/* Aggregators that acknowledge pushes on apply. A push is done before the shard has it; CLOCKs and
 * pulls follow its commit; and what is lost with an aggregator or with a sum is counted by the
 * workers, once. Whole jobs are in test_sim_swarm.c. */
#include "ps_boxes.h"

/* ---- helpers --------------------------------------------------------------------------------- */

/* Sums are sent after 100 ms, and workers use the aggregator. */
static void open_applying_by(struct bench *b, uint32_t workers, uint8_t mode, uint64_t seed)
{
    via_timeout_ns = WEFT_NS_PER_S;
    bench_open(b, workers, mode, seed);
    struct weft_aggregator_config *config = &b->box[0].config;
    config->push_bytes_max = 4096;
    config->push_slots = 2;
    config->groups_max = 2;
    config->count_max = 0;
    config->age_ns = 100 * WEFT_NS_PER_MS;
    config->by_age_asp = true;
    config->on_apply = true;
    box_kill(b, &b->box[0]);
    bench_quiet(b);
    box_start(b, &b->box[0]);
    b->c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(b);
    for (uint32_t w = 0; w < workers; w++) {
        assert_int_equal(weft_ps_client_vias_open(b->c.client[w]), 1);
    }
}

static void open_applying(struct bench *b, uint32_t workers, uint8_t mode)
{
    open_applying_by(b, workers, mode, 11);
}

static void close_applying(struct bench *b)
{
    bench_close(b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
}

static const struct weft_aggregator_counters *counters_of(const struct bench *b)
{
    return weft_aggregator_counters(b->box[0].agg);
}

/* Pushes of all workers, which are acknowledged and in an open sum. */
static void push_all(struct bench *b)
{
    const uint64_t before = counters_of(b)->aggregates_out;
    for (uint32_t w = 0; w < b->c.workers; w++) {
        const uint64_t applied = weft_ps_client_counters(b->c.client[w])->via_applied;
        push(b, w, 0);
        wait_op(b, w, 0);
        assert_int_equal(weft_ps_client_counters(b->c.client[w])->via_applied, applied + 1);
        assert_int_equal(weft_ps_client_applied(b->c.client[w]), 1);
        assert_true(weft_ps_client_busy(b->c.client[w]));
    }
    assert_int_equal(counters_of(b)->aggregates_out, before);
}

/* The pushes since `want` was copied are lost. */
static void check_lost(struct bench *b, float want[IDS][DIM], uint64_t each)
{
    memcpy(b->want, want, sizeof(b->want));
    wait_all(b);
    check_sums(b);
    for (uint32_t w = 0; w < b->c.workers; w++) {
        struct weft_ps_resumed resumed;
        assert_int_equal(weft_ps_client_counters(b->c.client[w])->pushes_lost, each);
        assert_int_equal(weft_ps_client_applied(b->c.client[w]), 0);
        assert_int_equal(weft_ps_client_take_resumed(b->c.client[w], &resumed), each > 0);
        assert_true(each == 0 || resumed.pushes_lost == each);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The push is done at once; a CLOCK and a pull wait until the sum has its age and the shard has
 * it. */
static void the_clock_follows_the_commit(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_TABLE_BSP; mode <= WEFT_TABLE_ASP; mode++) {
        struct bench b;
        struct pull pull;
        open_applying(&b, 2, mode);
        push(&b, 0, 0);
        wait_op(&b, 0, 0);
        assert_int_equal(counters_of(&b)->pushes_applied, 1);
        assert_int_equal(counters_of(&b)->aggregates_out, 0);
        assert_int_equal(weft_ps_clock(b.c.client[0], 0, b.c.net->now_ns), WEFT_OK);
        bench_quiet(&b);
        assert_false(weft_ps_clock_accepted(b.c.client[0], 0));
        assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->clocks, 0);
        if (mode == WEFT_TABLE_ASP) {
            pull_start(&b, 0, &pull, 0);
            bench_quiet(&b);
            assert_false(weft_ps_op_done(b.c.client[0], pull.op, NULL));
            pull_check(&b, 0, &pull); /* its own push is in it */
            assert_int_equal(counters_of(&b)->aggregates_out, 1);
        }
        wait_all(&b);
        assert_int_equal(weft_ps_clock(b.c.client[1], 0, b.c.net->now_ns), WEFT_OK); /* BSP steps */
        wait_all(&b);
        assert_int_equal(counters_of(&b)->flushed_age, 1);
        assert_true(weft_ps_clock_accepted(b.c.client[0], 0));
        assert_int_equal(weft_ps_client_counters(b.c.client[0])->via_committed, 1);
        assert_int_equal(weft_ps_client_counters(b.c.client[0])->resumes, 0);
        check_lost(&b, b.want, 0);
        close_applying(&b);
    }
}

/* The aggregator dies with an open sum: its pushes are lost, and counted by each worker on the
 * connection that it has. The job continues. */
static void a_death_loses_an_age(void **state)
{
    (void)state;
    struct bench b;
    float want[IDS][DIM];
    open_applying(&b, 3, WEFT_TABLE_ASP);
    push_all(&b);
    wait_all(&b);
    check_sums(&b);
    memcpy(want, b.want, sizeof(want));
    push_all(&b);
    for (uint32_t w = 0; w < 3; w++) {
        assert_int_equal(weft_ps_clock(b.c.client[w], 0, b.c.net->now_ns), WEFT_OK);
    }
    bench_quiet(&b);
    assert_int_equal(weft_shard_counters(b.c.shard[SHARD])->clocks, 0);
    box_kill(&b, &b.box[0]);
    check_lost(&b, want, 1);
    for (uint32_t w = 0; w < 3; w++) {
        assert_true(weft_ps_clock_accepted(b.c.client[w], 0));
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->shard_disconnects, 0);
        assert_int_equal(weft_ps_client_counters(b.c.client[w])->resumes, 1);
    }
    for (uint32_t w = 0; w < 3; w++) {
        push(&b, w, 0); /* direct: under numbers of the lost pushes */
    }
    wait_all(&b);
    check_sums(&b);
    box_start(&b, &b.box[0]);
    b.c.net->now_ns += 2 * WEFT_NS_PER_S;
    bench_quiet(&b);
    push_all(&b);
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters_of(&b)->pushes_absorbed, 3);
    assert_int_equal(counters_of(&b)->pushes_lost, 0);
    close_applying(&b);
}

/* The aggregator dies after the shard has committed the sum, and before it has told the workers. */
static void a_death_after_the_commit(void **state)
{
    (void)state;
    struct bench b;
    open_applying(&b, 2, WEFT_TABLE_ASP);
    push_all(&b);
    while (weft_shard_counters(b.c.shard[SHARD])->aggregates == 0) {
        bench_step(&b);
    }
    assert_int_equal(weft_ps_client_applied(b.c.client[0]), 1);
    box_kill(&b, &b.box[0]);
    check_lost(&b, b.want, 0);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->resumes, 1);
    close_applying(&b);
}

/* The shard refuses a sum because one of its members has reconnected: the pushes of all are lost,
 * as the aggregator counts, too. */
static void a_refused_sum(void **state)
{
    (void)state;
    struct bench b;
    float want[IDS][DIM];
    open_applying(&b, 3, WEFT_TABLE_ASP);
    memcpy(want, b.want, sizeof(want));
    push_all(&b);
    fake_break(b.c.net, SHARD, 1 + 1);
    check_lost(&b, want, 1);
    assert_int_equal(counters_of(&b)->pushes_lost, 3);
    assert_int_equal(counters_of(&b)->pushes_direct, 0);
    assert_int_equal(counters_of(&b)->pushes_absorbed, 0);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->shard_disconnects, 0);
    assert_int_equal(weft_ps_client_counters(b.c.client[1])->shard_disconnects, 1);
    close_applying(&b);
}

/* The connection of the aggregator to the shard ends: the same. */
static void the_shard_is_gone(void **state)
{
    (void)state;
    struct bench b;
    float want[IDS][DIM];
    open_applying(&b, 2, WEFT_TABLE_ASP);
    memcpy(want, b.want, sizeof(want));
    push_all(&b);
    fake_break(b.c.net, SHARD, b.box[0].node);
    check_lost(&b, want, 1);
    assert_int_equal(counters_of(&b)->pushes_lost, 2);
    close_applying(&b);
}

static uint64_t downs_of(const struct bench *b)
{
    uint64_t downs = 0;
    for (uint32_t w = 0; w < b->c.workers; w++) {
        downs += weft_ps_client_counters(b->c.client[w])->via_downs;
    }
    return downs;
}

/* The shard commits the sum five times the workers' timeout after the acknowledgement, and the
 * aggregator replies to probes: nothing is lost. */
static void a_slow_shard_is_waited_for(void **state)
{
    (void)state;
    struct bench b;
    open_applying(&b, 2, WEFT_TABLE_ASP);
    const uint64_t downs = downs_of(&b);
    push_all(&b);
    b.c.net->held_until_ns[SHARD] = b.c.net->now_ns + 5 * WEFT_NS_PER_S;
    for (uint32_t i = 0; i < 48; i++) {
        b.c.net->now_ns += 100 * WEFT_NS_PER_MS;
        bench_quiet(&b);
    }
    assert_int_equal(counters_of(&b)->aggregates_out, 1);
    assert_int_equal(weft_ps_client_applied(b.c.client[0]), 1);
    assert_int_equal(downs_of(&b), downs);
    check_lost(&b, b.want, 0);
    assert_int_equal(downs_of(&b), downs);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->resumes, 0);
    close_applying(&b);
}

/* A frozen aggregator, which replies to nothing, is closed after the timeout also while only
 * COMMITTED is awaited. */
static void a_frozen_aggregator_is_left(void **state)
{
    (void)state;
    struct bench b;
    float want[IDS][DIM];
    open_applying(&b, 2, WEFT_TABLE_ASP);
    const uint64_t downs = downs_of(&b);
    memcpy(want, b.want, sizeof(want));
    push_all(&b);
    for (uint32_t i = 0; i < 40; i++) {
        (void)cluster_step(&b.c);
        cluster_poll(&b.c);
        connect_all(&b);
        b.c.net->now_ns += 50 * WEFT_NS_PER_MS;
    }
    assert_int_equal(downs_of(&b), downs + 2);
    check_lost(&b, want, 1);
    close_applying(&b);
}

/* A shard with a journal: the aggregator acknowledges on commit, and counts the refusal. */
static void a_journal_refuses(void **state)
{
    (void)state;
    struct bench b;
    journal = calloc(1, JOURNAL_BYTES);
    assert_non_null(journal);
    open_applying(&b, 2, WEFT_TABLE_ASP);
    assert_int_equal(counters_of(&b)->on_apply_refused, 2);
    for (uint32_t w = 0; w < 2; w++) {
        push(&b, w, 0);
    }
    bench_quiet(&b);
    assert_false(weft_ps_op_done(b.c.client[0], b.workers[0].op[0], NULL));
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters_of(&b)->pushes_applied, 0);
    assert_int_equal(counters_of(&b)->pushes_absorbed, 2);
    close_applying(&b);
    free(journal);
    journal = NULL;
}

/* A shard without a journal is replaced by one with a journal: the new one counts. */
static void a_journal_that_comes_later(void **state)
{
    (void)state;
    struct bench b;
    open_applying(&b, 2, WEFT_TABLE_ASP);
    fake_kill(b.c.net, SHARD);
    cluster_poll(&b.c);
    box_poll(&b);
    cluster_shard_free(&b.c, SHARD);
    fake_revive(b.c.net, SHARD);
    b.c.net->nodes[SHARD].incarnation += 1000;
    journal = calloc(1, JOURNAL_BYTES);
    assert_non_null(journal);
    const struct weft_shard_journal_config in = {
        .memory = journal, .bytes = JOURNAL_BYTES, .bytes_max = JOURNAL_BYTES, .lineage = 1};
    b.cluster.shard.checkpoints = true;
    b.c.shard[SHARD] = cluster_shard_new(&b.c, &b.cluster, SHARD);
    assert_int_equal(weft_shard_journal_init(b.c.shard[SHARD], &in), WEFT_OK);
    bench_quiet(&b);
    assert_int_equal(weft_ps_client_vias_open(b.c.client[0]), 1);
    assert_int_equal(counters_of(&b)->on_apply_refused, 2);
    push(&b, 0, 0);
    bench_quiet(&b);
    assert_false(weft_ps_op_done(b.c.client[0], b.workers[0].op[0], NULL));
    wait_all(&b);
    check_sums(&b);
    assert_int_equal(counters_of(&b)->pushes_applied, 0);
    close_applying(&b);
    free(journal);
    journal = NULL;
}

/* Start a push of the rows that pull_start pulls. */
static void push_pulled(struct bench *b, uint32_t w, const struct pull *pull, uint32_t i)
{
    float rows[PULL_IDS][DIM];
    for (uint32_t r = 0; r < pull->n; r++) {
        for (uint32_t k = 0; k < DIM; k++) {
            rows[r][k] = (float)(1 + k);
            b->want[pull->ids[r]][k] += rows[r][k];
        }
    }
    assert_int_equal(weft_ps_push(b->c.client[w], 0, pull->ids, &rows[0][0], pull->n, 0,
                                  b->c.net->now_ns, &b->workers[w].op[i]),
                     WEFT_OK);
    b->workers[w].busy[i] = true;
}

/* The reply to LIST in the network, or NULL. */
static struct fake_message *list_reply(struct bench *b)
{
    struct fake_message *found = NULL;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &b->c.net->messages[i];
        const bool is_reply = m->send.tag >> 56 == (WEFT_RPC_LIST | WEFT_RPC_REPLY_FLAG);
        found = m->live && m->from == SHARD && is_reply ? m : found;
    }
    return found;
}

/* The aggregator dies while the shard's reply to the list of another push is on its way. That push
 * is sent after the reply, so it is not lost. */
static void a_death_before_the_reply_to_a_list(void **state)
{
    (void)state;
    struct bench b;
    struct pull pull;
    struct fake_message *reply;
    float want[IDS][DIM];
    open_applying_by(&b, 1, WEFT_TABLE_ASP, 4); /* with lists */
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(b.c.client[0]);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    pull_start(&b, 0, &pull, 0);
    pull_check(&b, 0, &pull);
    assert_int_equal(counters->lists_stored, 1);
    b.c.net->held_until_ns[1] = b.c.net->now_ns + WEFT_NS_PER_S;
    push_pulled(&b, 0, &pull, 1);
    bench_quiet(&b);
    fake_break(b.c.net, SHARD, 1);
    b.c.net->held_until_ns[1] = 0;
    while ((reply = list_reply(&b)) == NULL) {
        bench_step(&b);
    }
    reply->held = true;
    box_start(&b, &b.box[0]);
    bench_quiet(&b);
    memcpy(want, b.want, sizeof(want));
    push(&b, 0, 0);
    wait_op(&b, 0, 0);
    assert_int_equal(weft_ps_client_applied(b.c.client[0]), 1);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    assert_true(reply->live && reply->held);
    reply->held = false;
    check_lost(&b, want, 1);
    close_applying(&b);
}

/* In a job with a scheduler no worker refuses, and pushes are acknowledged on commit. */
static void a_scheduler_is_no_refusal(void **state)
{
    (void)state;
    struct bench b;
    has_scheduler = true;
    open_applying(&b, 2, WEFT_TABLE_ASP);
    assert_int_equal(counters_of(&b)->on_apply_refused, 0);
    push(&b, 0, 0);
    push(&b, 1, 0);
    end_clock(&b);
    grant(&b, 0, 5, 2);
    bench_quiet(&b);
    assert_int_equal(counters_of(&b)->pushes_in, 1);
    assert_false(weft_ps_op_done(b.c.client[0], b.workers[0].op[0], NULL));
    grant(&b, 1, 5, 2);
    (void)update_over(&b, 0);
    (void)update_over(&b, 1);
    check_lost(&b, b.want, 0);
    assert_int_equal(counters_of(&b)->pushes_applied, 0);
    assert_int_equal(counters_of(&b)->pushes_absorbed, 2);
    close_applying(&b);
    has_scheduler = false;
}

/* ---- random jobs ----------------------------------------------------------------------------- */

enum { SEEDS = 100, MARKS = 1000, MARKS_MAX = 200, FAULTS_MAX = 8, SHARED = 7 };

/* Each push has a row of its own, which shows how often it was counted. */
static struct {
    uint32_t pushes;
    uint64_t begun_ns[MARKS_MAX];
    uint64_t done_ns[MARKS_MAX];
    uint32_t worker[MARKS_MAX];
    bool lacked[MARKS_MAX]; /* a pull that had to have it did not */
    uint32_t faults;
    uint64_t fault_ns[FAULTS_MAX];
} job;

static void push_marked(struct bench *b, uint32_t w)
{
    const uint32_t p = job.pushes++;
    const uint64_t ids[] = {MARKS + p, p % SHARED};
    float rows[2][DIM];
    weft_status status;
    for (uint32_t k = 0; k < 2 * DIM; k++) {
        rows[k / DIM][k % DIM] = 1;
    }
    job.begun_ns[p] = b->c.net->now_ns;
    job.worker[p] = w;
    for (uint32_t steps = 0;
         (status = weft_ps_push(b->c.client[w], 0, ids, &rows[0][0], 2, 0, b->c.net->now_ns,
                                &b->workers[w].op[0])) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
    b->workers[w].busy[0] = true;
    wait_op(b, w, 0);
    job.done_ns[p] = b->c.net->now_ns;
}

/* In SSP and ASP a pull has all of its worker's own pushes, unless they are lost. */
static void pull_marked(struct bench *b, uint32_t w)
{
    uint64_t ids[MARKS_MAX];
    float rows[MARKS_MAX][DIM] = {0};
    weft_ps_op op;
    struct weft_ps_result result;
    weft_status status;
    for (uint32_t p = 0; p < job.pushes; p++) {
        ids[p] = MARKS + p;
    }
    for (uint32_t steps = 0;
         (status = weft_ps_pull(b->c.client[w], 0, ids, &rows[0][0], job.pushes, 0,
                                b->c.net->now_ns, &op)) == WEFT_AGAIN;
         steps++) {
        assert_true(steps < 100000);
        bench_step(b);
    }
    assert_int_equal(status, WEFT_OK);
    for (uint32_t steps = 0; !weft_ps_op_done(b->c.client[w], op, &result); steps++) {
        assert_true(steps < 200000);
        bench_step(b);
    }
    assert_int_equal(result.status, WEFT_OK);
    weft_ps_op_release(b->c.client[w], op);
    for (uint32_t p = 0; p < job.pushes && b->mode != WEFT_TABLE_BSP; p++) {
        job.lacked[p] |= job.worker[p] == w && rows[p][0] == 0;
    }
}

static float weight_of(const struct bench *b, uint64_t id)
{
    float weights[DIM] = {0};
    (void)weft_table_read(weft_shard_table(b->c.shard[SHARD], 0), id, weights);
    return weights[0];
}

/* True: a fault between the push and the commit of its sum, which follows within an age. */
static bool had_fault(uint32_t p, uint64_t age_ns)
{
    bool had = false;
    for (uint32_t f = 0; f < job.faults; f++) {
        had |= job.fault_ns[f] + 5 * WEFT_NS_PER_MS >= job.begun_ns[p] &&
               job.fault_ns[f] <= job.done_ns[p] + age_ns + 5 * WEFT_NS_PER_MS;
    }
    return had;
}

/* Returns the number of pushes lost, which is the number that the workers know. */
static uint64_t check_marked(struct bench *b)
{
    uint64_t lost = 0, told = 0;
    float shared[SHARED] = {0};
    for (uint32_t p = 0; p < job.pushes; p++) {
        const float times = weight_of(b, MARKS + p);
        assert_true(times == 0 || times == 1);
        assert_true(times == 0 || !job.lacked[p]);
        assert_true(times == 1 || had_fault(p, b->box[0].config.age_ns));
        lost += times == 0;
        shared[p % SHARED] += times;
    }
    for (uint32_t i = 0; i < SHARED; i++) {
        assert_true(weight_of(b, i) == shared[i]);
    }
    for (uint32_t w = 0; w < b->c.workers; w++) {
        told += weft_ps_client_counters(b->c.client[w])->pushes_lost;
        assert_int_equal(weft_ps_client_applied(b->c.client[w]), 0);
    }
    assert_int_equal(lost, told);
    return lost;
}

static void random_marked(struct bench *b)
{
    memset(&job, 0, sizeof(job));
    for (uint32_t clock = 0; clock < 6; clock++) {
        for (uint32_t n = 0; n < 3 * b->c.workers; n++) {
            push_marked(b, (uint32_t)weft_prng_below(&b->prng, b->c.workers));
            if (weft_prng_below(&b->prng, 4) == 0) {
                pull_marked(b, (uint32_t)weft_prng_below(&b->prng, b->c.workers));
            }
            if (job.faults < FAULTS_MAX && weft_prng_below(&b->prng, 8) == 0) {
                job.fault_ns[job.faults++] = b->c.net->now_ns;
                fault(b);
            }
        }
        end_clock(b);
        if (weft_prng_below(&b->prng, 2) == 0) {
            if (b->box[0].agg == NULL) {
                box_start(b, &b->box[0]);
            }
            wait_all(b);
            b->c.net->now_ns += 2 * WEFT_NS_PER_S; /* workers connect to the aggregator again */
            bench_quiet(b);
        }
    }
    wait_all(b);
}

/* With faults a push is counted once, or lost and counted as lost; without, none is lost. */
static void lost_or_once(void **state)
{
    (void)state;
    uint64_t applied = 0, lost = 0, jobs_lost = 0;
    on_apply = true;
    for (struct seeds s = seeds_of(SEEDS); s.first < s.end; s.first++) {
        struct bench b;
        const bool parks = s.first % 2 == 0;
        park_lease_ns = parks ? WEFT_NS_PER_S : 0;
        park_pause_ns = parks ? 1 : 0;
        bench_open(&b, 3, (uint8_t)(s.first % 3), s.first);
        random_marked(&b);
        const uint64_t of_job = check_marked(&b);
        lost += of_job;
        jobs_lost += of_job > 0;
        for (uint32_t w = 0; w < 3; w++) {
            applied += weft_ps_client_counters(b.c.client[w])->via_applied;
        }
        bench_close(&b);
    }
    on_apply = false;
    park_lease_ns = park_pause_ns = 0;
    assert_true(applied > 20 * SEEDS && lost > SEEDS);
    print_message("%llu pushes acknowledged on apply, %llu lost in %llu of %d jobs\n",
                  (unsigned long long)applied, (unsigned long long)lost,
                  (unsigned long long)jobs_lost, (int)SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_follows_the_commit), cmocka_unit_test(a_death_loses_an_age),
        cmocka_unit_test(a_death_after_the_commit),     cmocka_unit_test(a_refused_sum),
        cmocka_unit_test(the_shard_is_gone),            cmocka_unit_test(a_journal_refuses),
        cmocka_unit_test(a_slow_shard_is_waited_for),
        cmocka_unit_test(a_frozen_aggregator_is_left),
        cmocka_unit_test(a_journal_that_comes_later),
        cmocka_unit_test(a_death_before_the_reply_to_a_list),
        cmocka_unit_test(a_scheduler_is_no_refusal),
        cmocka_unit_test(lost_or_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
