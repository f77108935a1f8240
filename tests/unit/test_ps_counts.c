/* Counts on the server, as `weft train --model lda` has them: every token (a word at a position) is
 * at one worker and has one topic; a row counts the tokens of a word by topic, one more row all
 * tokens by topic. Workers draw new topics and push the changes. Whatever is dropped, refused as
 * late, sent again or sent through an aggregator, in pieces or whole: after each chunk that arrives
 * the counts are right, that is,
 *
 *     at the server + kept by workers + in pushes that were not applied yet = tokens by topic
 *
 * for each row and topic. A row of a push is applied as a whole. A push in progress may be applied
 * or not, so there must be a choice of rows that are not applied yet with which the sums agree. */
#include "ps/client_internal.h"
#include "ps_boxes.h"

#include <math.h>

enum { WORKERS = 3, WORDS = 16, TOTALS = WORDS, TOKENS = 60, STEP = 20, TOPICS = DIM, ROUNDS = 6 };
enum { IN_PROGRESS = 12 }; /* rows of one id in pushes in progress; see check */

enum stage { READS, PUSHES, ENDS_CLOCK, SETTLES, STOPPED };

struct counter {
    enum stage stage;
    uint32_t rounds; /* left */
    uint8_t word[TOKENS];
    uint8_t topic[TOKENS]; /* TOPICS = none yet */
    float pulled[WORDS + 1][DIM];
    void *kept;
};

struct totals {
    uint64_t dropped, late, direct, resent, absorbed, partly, steps;
};

struct job {
    struct bench b;
    struct counter counter[WORKERS];
    float tokens[WORDS + 1][DIM]; /* by topic, as the workers know them */
    struct totals totals;
};

/* ---- what must hold -------------------------------------------------------------------------- */

struct open_row {
    float values[DIM];
};

struct open_rows {
    uint32_t count[WORDS + 1];
    struct open_row row[WORDS + 1][IN_PROGRESS];
};

static void take_rows(struct weft_ps_client *client, const struct ps_part *part,
                      struct open_rows *open)
{
    for (uint32_t c = 0; c < ps_part_chunks(part); c++) {
        const struct ps_chunk chunk = weft_ps_chunk_of(client, part, c, true);
        const uint8_t *values = chunk.bytes + chunk.rows.blocks_offset;
        for (uint32_t i = 0; i < chunk.rows.count; i++, values += sizeof(float) * DIM) {
            const uint64_t id = ps_chunk_id(&chunk, i);
            assert_true(id <= TOTALS && open->count[id] < IN_PROGRESS);
            memcpy(open->row[id][open->count[id]++].values, values, sizeof(float) * DIM);
        }
    }
}

/* True: the sum of some of these rows is `missing`. */
static bool is_sum_of(const float *missing, const struct open_row *rows, uint32_t count)
{
    for (uint32_t some = 0; some < UINT32_C(1) << count; some++) {
        float rest[DIM];
        bool good = true;
        memcpy(rest, missing, sizeof(rest));
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t k = 0; (some >> i & 1) != 0 && k < DIM; k++) {
                rest[k] -= rows[i].values[k];
            }
        }
        for (uint32_t k = 0; k < DIM; k++) {
            good &= rest[k] == 0;
        }
        if (good) {
            return true;
        }
    }
    return false;
}

static void check(struct job *job)
{
    static struct open_rows open;
    float missing[WORDS + 1][DIM], rows[WORDS + 1][DIM];
    uint64_t ids[WORDS + 1];
    memset(open.count, 0, sizeof(open.count));
    for (uint64_t id = 0; id <= TOTALS; id++) {
        memset(rows[id], 0, sizeof(rows[id]));
        (void)weft_table_read(weft_shard_table(job->b.c.shard[SHARD], 0), id, rows[id]);
        for (uint32_t k = 0; k < DIM; k++) {
            missing[id][k] = job->tokens[id][k] - rows[id][k];
        }
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct weft_ps_client *client = job->b.c.client[w];
        const uint32_t kept = weft_ps_client_kept(client, 0, ids, &rows[0][0], WORDS + 1);
        for (uint32_t i = 0; i < kept; i++) {
            for (uint32_t k = 0; k < DIM; k++) {
                missing[ids[i]][k] -= rows[i][k];
            }
        }
        for (uint32_t i = 0; i < client->parts_total; i++) {
            const struct ps_part *part = &client->parts[i];
            if (part->kind == WEFT_RPC_PUSH && !ps_part_head_only(part) && part->rows > 0 &&
                (part->state == PART_QUEUED || part->state == PART_FLYING)) {
                take_rows(client, part, &open);
            }
        }
    }
    for (uint64_t id = 0; id <= TOTALS; id++) {
        assert_true(is_sum_of(missing[id], open.row[id], open.count[id]));
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Draw new topics for some tokens, and push the changes. False: a push cannot begin now. */
static bool push_step(struct job *job, uint32_t w)
{
    struct counter *counter = &job->counter[w];
    struct worker *worker = &job->b.workers[w];
    struct weft_prng *prng = &job->b.prng;
    float changes[WORDS + 1][DIM] = {0}, values[WORDS + 1][DIM];
    uint64_t ids[WORDS + 1];
    uint8_t topic[TOKENS];
    bool has[WORDS + 1] = {[TOTALS] = true};
    uint32_t n = 0;
    memcpy(topic, counter->topic, sizeof(topic));
    for (uint32_t i = 0; i < STEP; i++) {
        const uint32_t t = (uint32_t)weft_prng_below(prng, TOKENS), word = counter->word[t];
        if (topic[t] < TOPICS) {
            changes[word][topic[t]]--;
            changes[TOTALS][topic[t]]--;
        }
        topic[t] = (uint8_t)weft_prng_below(prng, TOPICS);
        changes[word][topic[t]]++;
        changes[TOTALS][topic[t]]++;
        has[word] = true;
    }
    for (uint64_t id = 0; id <= TOTALS; id++) {
        if (has[id]) {
            ids[n] = id;
            memcpy(values[n++], changes[id], sizeof(changes[id]));
        }
    }
    const weft_status status = weft_ps_push(job->b.c.client[w], 0, ids, &values[0][0], n, 0,
                                            job->b.c.net->now_ns, &worker->op[0]);
    if (status == WEFT_AGAIN) {
        return false;
    }
    assert_int_equal(status, WEFT_OK);
    worker->busy[0] = true;
    memcpy(counter->topic, topic, sizeof(topic));
    for (uint64_t id = 0; id <= TOTALS; id++) {
        for (uint32_t k = 0; k < DIM; k++) {
            job->tokens[id][k] += changes[id][k];
        }
    }
    return true;
}

/* Push what was kept, as zeros to which it is added. */
static bool push_kept(struct job *job, uint32_t w)
{
    struct worker *worker = &job->b.workers[w];
    static const float zeros[WORDS + 1][DIM];
    uint64_t ids[WORDS + 1];
    const uint32_t n = weft_ps_client_kept(job->b.c.client[w], 0, ids, NULL, WORDS + 1);
    const weft_status status = weft_ps_push(job->b.c.client[w], 0, ids, &zeros[0][0], n, 0,
                                            job->b.c.net->now_ns, &worker->op[0]);
    assert_true(status == WEFT_OK || status == WEFT_AGAIN);
    worker->busy[0] = status == WEFT_OK;
    return status == WEFT_OK;
}

static bool is_done(struct job *job, uint32_t w)
{
    struct worker *worker = &job->b.workers[w];
    struct weft_ps_result result;
    if (worker->busy[0] && weft_ps_op_done(job->b.c.client[w], worker->op[0], &result)) {
        assert_int_equal(result.status, WEFT_OK);
        weft_ps_op_release(job->b.c.client[w], worker->op[0]);
        worker->busy[0] = false;
    }
    return !worker->busy[0];
}

/* One step of the program of a worker, as of the learner of `weft train`: read, draw, push, end the
 * clock; at the end push what is kept, until nothing is. */
static void act(struct job *job, uint32_t w)
{
    struct counter *counter = &job->counter[w];
    struct weft_ps_client *client = job->b.c.client[w];
    struct worker *worker = &job->b.workers[w];
    uint64_t ids[WORDS + 1];
    switch (counter->stage) {
    case READS:
        if (is_done(job, w)) {
            for (uint64_t id = 0; id <= TOTALS; id++) {
                ids[id] = id;
            }
            const weft_status status =
                weft_ps_pull(client, 0, ids, &counter->pulled[0][0], WORDS + 1, 0,
                             job->b.c.net->now_ns, &worker->op[0]);
            worker->busy[0] = status == WEFT_OK;
            counter->stage = worker->busy[0] ? PUSHES : READS;
        }
        break;
    case PUSHES:
        if (is_done(job, w) &&
            (counter->rounds > 0 ? push_step(job, w) : push_kept(job, w))) {
            counter->rounds -= counter->rounds > 0;
            counter->stage = ENDS_CLOCK;
        }
        break;
    case ENDS_CLOCK:
        if (weft_ps_clock(client, 0, job->b.c.net->now_ns) == WEFT_OK) {
            counter->stage = counter->rounds > 0 ? READS : SETTLES;
        }
        break;
    case SETTLES:
        if (is_done(job, w) && !weft_ps_client_busy(client)) {
            const bool is_rest = weft_ps_client_kept(client, 0, ids, NULL, WORDS + 1) > 0;
            counter->stage = is_rest ? READS : STOPPED;
        }
        break;
    case STOPPED:
        break;
    }
}

/* ---- the scheduler --------------------------------------------------------------------------- */

static void decide(struct job *job, uint32_t w, uint64_t update)
{
    struct weft_ps_client *client = job->b.c.client[w];
    struct weft_prng *prng = &job->b.prng;
    const uint64_t now_ns = job->b.c.net->now_ns;
    const struct weft_msg_pace pace = {.start_ns = now_ns + weft_prng_below(prng, 20000)};
    const uint64_t kind = weft_prng_below(prng, 8);
    if (kind == 0) {
        (void)weft_ps_update_direct(client, update, 0, now_ns);
        job->totals.direct++;
        return;
    }
    if (kind == 1 && weft_ps_update_drop(client, update, now_ns) == WEFT_OK) {
        job->totals.dropped++;
        return;
    }
    if (kind > 2) { /* through the aggregator, with some of the others, or with too few */
        (void)weft_ps_update_by(client, update, SHARD, 0, 1 + (uint32_t)weft_prng_below(prng, 2),
                                1 + (uint32_t)weft_prng_below(prng, WORKERS));
    }
    (void)weft_ps_update_grant(client, update, SHARD, &pace, now_ns);
    if (kind == 2 && weft_ps_update_drop(client, update, now_ns) == WEFT_OK) {
        job->totals.dropped++; /* a held message is withdrawn */
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void job_open(struct job *job, uint64_t seed)
{
    pieces = seed % 3 == 0 ? 0 : 4;
    delay_max = seed % 2 == 0 ? 0 : 1;
    bench_open(&job->b, WORKERS, WEFT_TABLE_ASP, seed);
    job->b.box[0].config.push_slots = 3;
    job->b.box[0].config.push_bytes_max = 4096;
    job->b.box[0].config.groups_max = 4;
    job->b.box[0].config.count_max = 0;
    job->b.box[0].config.age_ns = 10000;
    job->b.box[0].config.sum_age_ns = 200000;
    box_again(&job->b, &job->b.box[0]);
    job->b.c.net->now_ns += 2 * WEFT_NS_PER_S; /* the pause before workers reconnect */
    bench_quiet(&job->b);
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct counter *counter = &job->counter[w];
        counter->rounds = ROUNDS;
        counter->kept = malloc(weft_row_store_bytes(WORDS + 1, DIM));
        assert_int_equal(
            weft_ps_client_feedback(job->b.c.client[w], 0, counter->kept, WORDS + 1), WEFT_OK);
        for (uint32_t t = 0; t < TOKENS; t++) {
            counter->word[t] = (uint8_t)weft_prng_below(&job->b.prng, WORDS);
            counter->topic[t] = TOPICS;
        }
    }
}

static void job_close(struct job *job, struct totals *all)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct weft_ps_client_counters *c = weft_ps_client_counters(job->b.c.client[w]);
        assert_int_equal(c->feedback_dropped, 0);
        assert_int_equal(c->pushes_lost, 0);
        all->late += c->pushes_late;
        all->resent += c->pushes_resent + c->via_direct;
        all->absorbed += c->via_committed;
    }
    all->partly += weft_shard_counters(job->b.c.shard[SHARD])->aggregates;
    all->dropped += job->totals.dropped;
    all->direct += job->totals.direct;
    all->steps += job->totals.steps;
    bench_close(&job->b);
    for (uint32_t w = 0; w < WORKERS; w++) {
        free(job->counter[w].kept);
    }
}

static bool is_over(const struct job *job)
{
    bool over = true;
    for (uint32_t w = 0; w < WORKERS; w++) {
        over &= job->counter[w].stage == STOPPED;
    }
    return over;
}

static void run_job(struct job *job, uint32_t faults)
{
    struct weft_prng *prng = &job->b.prng;
    for (; !is_over(job); job->totals.steps++) {
        struct weft_ps_update_event event;
        assert_true(job->totals.steps < 400000);
        for (uint32_t w = 0; w < WORKERS; w++) {
            act(job, w);
            check(job);
            while (weft_ps_update_poll(job->b.c.client[w], &event)) {
                if (event.type == WEFT_PS_UPDATE_ASK) {
                    decide(job, w, event.update);
                    check(job);
                }
            }
        }
        (void)bench_step(&job->b);
        check(job);
        if (faults > 0 && weft_prng_below(prng, 300) == 0) {
            faults--;
            fault(&job->b);
            /* until connections that have failed are tried again */
            job->b.c.net->now_ns += weft_prng_below(prng, 2) * WEFT_NS_PER_S;
            check(job);
        }
    }
    for (uint64_t id = 0; id <= TOTALS; id++) {
        float row[DIM] = {0};
        (void)weft_table_read(weft_shard_table(job->b.c.shard[SHARD], 0), id, row);
        for (uint32_t k = 0; k < DIM; k++) {
            assert_true(row[k] == job->tokens[id][k]);
        }
    }
}

static void counts_are_right_at_any_time(void **state)
{
    (void)state;
    struct totals all = {0};
    has_scheduler = true;
    reconnect_ns = 10 * WEFT_NS_PER_S;
    const struct seeds seeds = seeds_of(24);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        struct job *job = calloc(1, sizeof(*job));
        assert_non_null(job);
        print_message("# seed %llu\n", (unsigned long long)seed);
        job_open(job, seed);
        run_job(job, seed % 4 == 0 ? 0 : 6);
        job_close(job, &all);
        free(job);
    }
    print_message("# dropped %llu, late %llu, direct %llu, sent again %llu, in sums %llu (%llu), "
                  "%llu steps\n",
                  (unsigned long long)all.dropped, (unsigned long long)all.late,
                  (unsigned long long)all.direct, (unsigned long long)all.resent,
                  (unsigned long long)all.absorbed, (unsigned long long)all.partly,
                  (unsigned long long)all.steps);
    if (!seeds.is_chosen) {
        assert_true(all.dropped > 20 && all.late > 20 && all.direct > 20);
        assert_true(all.resent > 20 && all.absorbed > 100);
    }
    has_scheduler = false;
    reconnect_ns = WEFT_NS_PER_S;
    pieces = delay_max = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_right_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
