/* Hot rows in whole jobs, in virtual time: workers send ROWS packets to a box in memory over a
 * network that loses, duplicates and delays packets; a controller flushes the bank to a server and
 * begins epochs; the box dies and restarts empty.
 *
 * The server has a window of packet numbers for each worker, of the same form as the box's
 * (agg/window.h). With a sum it gets the numbers of the packets in it that the box holds, and adds
 * the sum only if it has none of them. A packet that a worker sends directly is added unless the
 * server has its number. A sum can arrive after its box has died.
 *
 * On commit, every update must be counted once. On apply the box holds no numbers: an update may be
 * lost if the box dies within one age and a commit after adding it, and counted twice if the box
 * dies before its sender gets the acknowledgement. Both are counted.
 */
#include "agg/flush.h"
#include "fake_box_net.h"
#include "print_seed.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 2000 };
#else
enum { SEEDS = 10000 };
#endif
enum {
    WORKERS_MAX = 4,
    PACKETS_MAX = 240, /* of one worker */
    IN_FLIGHT = 24,
    BLOCKS = 12,
    BLOCKS_OF_PACKET = 3,
    JOB = 9,
    DEATHS_MAX = 4,
};

static const uint64_t step_ns = 50 * WEFT_NS_PER_US;

/* A packet of a worker: what it adds, and what became of it. */
struct update {
    uint32_t count; /* blocks */
    uint16_t block[BLOCKS_OF_PACKET];
    int32_t value[BLOCKS_OF_PACKET]; /* of all eight values of the block */
    uint32_t epoch;
    bool sent;
    bool settled;  /* acknowledged as added, or at the server */
    bool direct;   /* its sender sends it to the server */
    uint32_t times; /* counted by the server */
    uint64_t added_ns; /* by the box; 0: never */
    uint64_t due_ns;   /* when it is sent again */
};

struct worker {
    struct update update[PACKETS_MAX];
    uint32_t packets;
    uint32_t from;  /* all below are settled */
    uint32_t epoch; /* of the bank, as far as it knows */
    struct weft_agg_window seen; /* by the server */
};

typedef uint64_t numbers[WORKERS_MAX][WEFT_AGG_WINDOW_WORDS];

/* A sum on its way to the server. */
struct flush {
    bool is_there;
    bool answered; /* by the server; the box does not know it yet */
    bool taken;
    uint64_t due_ns;
    uint32_t updates[BLOCKS];
    int32_t sums[BLOCKS];
    numbers held;  /* the numbers that the server gets */
    numbers added; /* the packets in it */
};

static struct box_net net;

static struct job {
    struct weft_prng prng;
    struct weft_agg_box box;
    numbers added[2]; /* the packets in each set of the bank */
    struct worker worker[WORKERS_MAX];
    uint32_t workers;
    enum weft_agg_policy policy;
    struct weft_agg_flush_rules rules;
    struct weft_agg_flush_state state;
    struct flush flush;
    struct flush late; /* of a box that died */
    uint32_t epoch;
    uint64_t epoch_end_ns;
    uint64_t death_ns; /* of the next one */
    uint32_t deaths;
    uint32_t deaths_max;
    uint64_t died_ns[DEATHS_MAX];
    int64_t sums[BLOCKS]; /* at the server */
    uint32_t updates[BLOCKS];
    uint64_t now_ns;
    uint64_t commit_ns_max; /* one way */
    uint32_t direct_ppm;    /* probability that a worker sends a direct packet in a step */
} job;

static struct {
    uint64_t updates;
    uint64_t direct;
    uint64_t sums;
    uint64_t sums_refused;
    uint64_t deaths;
    uint64_t epochs;
    uint64_t late;  /* sums that arrived after the death of their box */
    uint64_t lost;  /* updates, on apply */
    uint64_t twice; /* the same */
} total;

static bool chance(uint32_t ppm)
{
    return weft_prng_chance(&job.prng, ppm);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void server_direct(uint32_t w, uint32_t number)
{
    struct worker *worker = &job.worker[w];
    struct update *u = &worker->update[number];
    if (weft_agg_window_look(&worker->seen, number) == WEFT_AGG_WINDOW_NEW) {
        weft_agg_window_take(&worker->seen, number, false, 0);
        for (uint32_t i = 0; i < u->count; i++) {
            job.sums[u->block[i]] += u->value[i];
            job.updates[u->block[i]]++;
        }
        u->times++;
    }
    u->settled = true; /* that connection is reliable */
    total.direct++;
}

static bool has(const numbers set, uint32_t w, uint32_t number)
{
    return (set[w][weft_agg_window_word(number)] & weft_agg_window_bit(number)) != 0;
}

/* False: the server has one of the numbers, so it does not add the sum. */
static bool server_sum(const struct flush *f)
{
    bool is_new = true;
    for (uint32_t w = 0; w < job.workers; w++) {
        for (uint32_t n = 0; n < job.worker[w].packets; n++) {
            is_new = is_new && !(has(f->held, w, n) &&
                                 weft_agg_window_look(&job.worker[w].seen, n) !=
                                     WEFT_AGG_WINDOW_NEW);
        }
    }
    for (uint32_t w = 0; is_new && w < job.workers; w++) {
        for (uint32_t n = 0; n < job.worker[w].packets; n++) {
            if (has(f->held, w, n)) {
                weft_agg_window_take(&job.worker[w].seen, n, false, 0);
            }
            job.worker[w].update[n].times += has(f->added, w, n);
        }
    }
    for (uint32_t b = 0; is_new && b < BLOCKS; b++) {
        job.sums[b] += f->sums[b];
        job.updates[b] += f->updates[b];
    }
    total.sums_refused += !is_new;
    return is_new;
}

/* ---- the controller -------------------------------------------------------------------------- */

static void begin_epoch(void)
{
    struct weft_agg_bank_epoch epoch = {
        .epoch = ++job.epoch, .blocks = BLOCKS, .policy = (uint8_t)job.policy};
    for (uint32_t i = 0; i < BLOCKS; i++) {
        epoch.exponents[i] = (int8_t)-(int)(job.epoch % 7);
    }
    assert_true(weft_agg_bank_begin(&job.box.banks[0], &epoch));
    job.state.epoch_ends = false;
    job.epoch_end_ns = job.now_ns + weft_prng_range(&job.prng, 1, 6) * WEFT_NS_PER_MS;
    total.epochs++;
}

static void flush_begin(void)
{
    struct weft_agg_bank *bank = &job.box.banks[0];
    struct flush *f = &job.flush;
    const uint32_t which = bank->active;
    assert_true(weft_agg_bank_flush(bank));
    *f = (struct flush){.is_there = true,
                        .due_ns = job.now_ns + weft_prng_range(&job.prng, 1, job.commit_ns_max)};
    for (uint32_t b = 0; b < BLOCKS; b++) {
        f->sums[b] = (int32_t)bank->sets[which].sums[b * WEFT_AGG_BLOCK + 3];
        f->updates[b] = bank->sets[which].updates[b];
    }
    for (uint32_t w = 0; w < job.workers; w++) {
        memcpy(f->held[w], bank->windows[w].held[which], sizeof(f->held[w]));
    }
    memcpy(f->added, job.added[which], sizeof(f->added));
    memset(job.added[which], 0, sizeof(job.added[which]));
    if (job.policy == WEFT_AGG_ON_COMMIT) {
        assert_memory_equal(f->held, f->added, sizeof(f->held));
    }
    job.state = (struct weft_agg_flush_state){.draining = true, .epoch_ends = job.state.epoch_ends};
    total.sums++;
}

static void flush_progress(void)
{
    struct flush *f = &job.flush;
    if (!f->is_there || f->due_ns > job.now_ns) {
        return;
    }
    if (!f->answered) {
        f->answered = true;
        /* a server may also refuse a sum as a whole */
        f->taken = (job.policy == WEFT_AGG_ON_APPLY || !chance(WEFT_PPM / 20)) && server_sum(f);
        f->due_ns = job.now_ns + weft_prng_range(&job.prng, 1, job.commit_ns_max);
        return;
    }
    assert_true(weft_agg_bank_settle(&job.box.banks[0], f->taken));
    f->is_there = false;
    job.state.draining = false;
}

static void control(void)
{
    struct weft_agg_bank *bank = &job.box.banks[0];
    if (job.now_ns >= job.epoch_end_ns && !job.state.epoch_ends) {
        job.state.epoch_ends = true;
        weft_agg_bank_close(bank);
    }
    flush_progress();
    const uint32_t packets = bank->sets[bank->active].packets;
    job.state.first_ns = job.state.packets == 0 && packets > 0 ? job.now_ns : job.state.first_ns;
    job.state.packets = packets;
    const enum weft_agg_flush why = weft_agg_flush_decide(&job.rules, &job.state, job.now_ns);
    if (why != WEFT_AGG_FLUSH_NONE && why != WEFT_AGG_FLUSH_BLOCKED) {
        flush_begin();
    } else if (job.state.epoch_ends && !bank->draining && packets == 0) {
        begin_epoch();
    }
}

/* ---- the box dies ---------------------------------------------------------------------------- */

static void box_begin(void)
{
    const struct weft_agg_config config = {
        .members = (UINT64_C(1) << job.workers) - 1, .banks = 1, .job = JOB};
    assert_int_equal(weft_agg_box_init(&job.box, &config), WEFT_OK);
    memset(job.added, 0, sizeof(job.added));
    job.state = (struct weft_agg_flush_state){.packets = 0};
    job.flush.is_there = false;
}

/* Workers send directly what they have sent and not settled. The next box begins with an epoch that
 * no packet on its way has. (Its windows begin at 0, which is enough here: a worker has fewer
 * packets than a window.) */
static void die(void)
{
    if (job.flush.is_there && !job.flush.answered && chance(WEFT_PPM / 2)) {
        job.late = job.flush;
        job.late.due_ns += weft_prng_below(&job.prng, 5 * WEFT_NS_PER_MS);
    }
    job.died_ns[job.deaths++] = job.now_ns;
    weft_agg_box_fini(&job.box);
    box_begin();
    for (uint32_t w = 0; w < job.workers; w++) {
        struct worker *worker = &job.worker[w];
        for (uint32_t n = worker->from; n < worker->packets; n++) {
            worker->update[n].direct |= worker->update[n].sent && !worker->update[n].settled;
        }
    }
    begin_epoch();
    job.death_ns = job.now_ns + weft_prng_range(&job.prng, 1, 6) * WEFT_NS_PER_MS;
    total.deaths++;
}

/* ---- workers --------------------------------------------------------------------------------- */

static void worker_send(uint32_t w, uint32_t number)
{
    static uint8_t bytes[WEFT_AGG_PACKET_MAX];
    struct worker *worker = &job.worker[w];
    struct update *u = &worker->update[number];
    if (!u->sent) {
        u->epoch = worker->epoch;
    }
    u->sent = true;
    u->due_ns = job.now_ns + weft_prng_range(&job.prng, 200, 2000) * WEFT_NS_PER_US;
    const struct weft_wire_agg head = {.kind = WEFT_AGG_ROWS,
                                       .job = JOB,
                                       .member = (uint16_t)w,
                                       .count = (uint16_t)u->count,
                                       .epoch = u->epoch,
                                       .number = number,
                                       .from = worker->from};
    weft_wire_agg_encode(bytes, &head);
    for (uint32_t i = 0; i < u->count; i++) {
        uint8_t *at = bytes + WEFT_AGG_HEADER_BYTES + i * WEFT_AGG_ROW_BYTES;
        weft_wire_agg_row_encode(at, u->block[i], (int8_t)-(int)(u->epoch % 7));
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            weft_wire_store_u32(at + WEFT_AGG_ROW_HEAD_BYTES + 4 * j, (uint32_t)u->value[i]);
        }
    }
    box_net_send(&net, &job.prng, job.now_ns, w, BOX_NET_BOX, bytes,
                 WEFT_AGG_HEADER_BYTES + u->count * WEFT_AGG_ROW_BYTES);
}

static void worker_turn(uint32_t w)
{
    struct worker *worker = &job.worker[w];
    while (worker->from < worker->packets && worker->update[worker->from].settled) {
        worker->from++;
    }
    if (chance(WEFT_PPM / 16)) {
        worker->epoch = job.epoch; /* announced late */
    }
    for (uint32_t n = worker->from; n < worker->packets && n < worker->from + IN_FLIGHT; n++) {
        struct update *u = &worker->update[n];
        if (u->direct && !u->settled) {
            if (chance(job.direct_ppm)) {
                server_direct(w, n);
            }
        } else if (!u->settled && u->due_ns <= job.now_ns && (u->sent || chance(WEFT_PPM / 4))) {
            worker_send(w, n);
        }
    }
}

static void worker_receive(uint32_t w, const uint8_t *bytes, uint32_t bytes_count)
{
    struct weft_wire_agg head = {.kind = 0};
    struct weft_agg_ack ack;
    assert_true(weft_wire_agg_decode(bytes, bytes + bytes_count, bytes_count, &head));
    weft_agg_ack_decode(bytes + WEFT_AGG_HEADER_BYTES, head.from, &ack);
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW && head.from + i < job.worker[w].packets; i++) {
        struct update *u = &job.worker[w].update[head.from + i];
        if (u->settled || u->direct) {
            continue;
        }
        u->settled = (ack.added[i / 64] >> i % 64 & 1) != 0;
        u->direct = (ack.refused[i / 64] >> i % 64 & 1) != 0;
    }
}

/* ---- a job ----------------------------------------------------------------------------------- */

static void draw(void)
{
    weft_prng_init(&job.prng, seed);
    job.workers = (uint32_t)weft_prng_range(&job.prng, 1, WORKERS_MAX);
    net.packets = 0;
    net.loss_ppm = (uint32_t)weft_prng_below(&job.prng, 200000);
    net.duplicate_ppm = (uint32_t)weft_prng_below(&job.prng, 200000);
    net.slow_ppm = (uint32_t)weft_prng_below(&job.prng, 50000);
    job.deaths_max = (uint32_t)weft_prng_below(&job.prng, DEATHS_MAX + 1);
    job.death_ns = weft_prng_range(&job.prng, 1, 6) * WEFT_NS_PER_MS;
    job.commit_ns_max = weft_prng_range(&job.prng, 100, 1000) * WEFT_NS_PER_US;
    job.direct_ppm = WEFT_PPM >> weft_prng_range(&job.prng, 0, 8);
    job.rules.packets_max = (uint32_t)weft_prng_below(&job.prng, 40);
    job.rules.age_ns_max = weft_prng_range(&job.prng, 200, 2000) * WEFT_NS_PER_US;
    for (uint32_t w = 0; w < job.workers; w++) {
        struct worker *worker = &job.worker[w];
        worker->packets = (uint32_t)weft_prng_range(&job.prng, 1, PACKETS_MAX);
        worker->epoch = 1;
        for (uint32_t n = 0; n < worker->packets; n++) {
            struct update *u = &worker->update[n];
            u->count = (uint32_t)weft_prng_range(&job.prng, 1, BLOCKS_OF_PACKET);
            for (uint32_t i = 0; i < u->count; i++) {
                u->block[i] = (uint16_t)weft_prng_below(&job.prng, BLOCKS);
                /* after a large one, positive ones are refused */
                u->value[i] = chance(WEFT_PPM / 500)
                                  ? INT32_MAX
                                  : (int32_t)weft_prng_below(&job.prng, 2001) - 1000;
            }
        }
    }
}

static bool is_settled(void)
{
    const struct weft_agg_bank *bank = &job.box.banks[0];
    bool all = !job.flush.is_there && !job.late.is_there && bank->sets[bank->active].packets == 0;
    for (uint32_t w = 0; w < job.workers; w++) {
        all = all && job.worker[w].from == job.worker[w].packets;
    }
    return all;
}

/* A packet arrives at the box. */
static void arrive(struct box_packet *p)
{
    struct weft_wire_agg head = {.kind = 0};
    const uint64_t *verdicts = job.box.counts.packets;
    const uint64_t added = verdicts[WEFT_AGG_ADDED], refused = verdicts[WEFT_AGG_REFUSED_RANGE];
    const uint32_t active = job.box.banks[0].active;
    assert_true(weft_wire_agg_decode(p->bytes, p->bytes + p->count, p->count, &head));
    box_net_receive(&net, &job.prng, job.now_ns, &job.box, job.workers, p);
    if (verdicts[WEFT_AGG_ADDED] > added) {
        job.added[active][head.member][weft_agg_window_word(head.number)] |=
            weft_agg_window_bit(head.number);
        job.worker[head.member].update[head.number].added_ns = job.now_ns;
    }
    job.state.refused += (uint32_t)(verdicts[WEFT_AGG_REFUSED_RANGE] - refused);
}

/* True: a box died within one age and a commit after this time: until a sum is sent it waits for
 * the commit of the sum before, and its own way to the server counts, too. */
static bool is_lost_with_a_box(uint64_t added_ns)
{
    const uint64_t most_ns = job.rules.age_ns_max + 3 * job.commit_ns_max + 6 * step_ns;
    bool is_lost = false;
    for (uint32_t i = 0; i < job.deaths; i++) {
        is_lost |= job.died_ns[i] >= added_ns && job.died_ns[i] - added_ns <= most_ns;
    }
    return is_lost;
}

static void check(void)
{
    int64_t sums[BLOCKS] = {0};
    uint32_t updates[BLOCKS] = {0};
    for (uint32_t w = 0; w < job.workers; w++) {
        for (uint32_t n = 0; n < job.worker[w].packets; n++) {
            const struct update *u = &job.worker[w].update[n];
            for (uint32_t i = 0; i < u->count; i++) {
                sums[u->block[i]] += (int64_t)u->times * u->value[i];
                updates[u->block[i]] += u->times;
            }
            total.updates++;
            if (job.policy == WEFT_AGG_ON_COMMIT) {
                assert_int_equal(u->times, 1);
            } else if (u->times == 0) {
                assert_true(!u->direct && is_lost_with_a_box(u->added_ns));
                total.lost++;
            } else if (u->times == 2) {
                assert_true(u->direct && u->added_ns != 0 && job.deaths > 0);
                total.twice++;
            } else {
                assert_int_equal(u->times, 1);
            }
        }
    }
    assert_memory_equal(job.sums, sums, sizeof(sums));
    assert_memory_equal(job.updates, updates, sizeof(updates));
}

static void run(void)
{
    static struct box_packet p;
    draw();
    box_begin();
    begin_epoch();
    while (!is_settled()) {
        job.now_ns += step_ns;
        assert_true(job.now_ns < 100 * WEFT_NS_PER_S);
        while (box_net_take(&net, job.now_ns, &p)) {
            if (p.to == BOX_NET_BOX) {
                arrive(&p);
            } else {
                worker_receive(p.to, p.bytes, p.count);
            }
        }
        for (uint32_t w = 0; w < job.workers; w++) {
            worker_turn(w);
        }
        control();
        if (job.late.is_there && job.late.due_ns <= job.now_ns) {
            total.late += server_sum(&job.late);
            job.late.is_there = false;
        }
        if (job.deaths < job.deaths_max && job.now_ns >= job.death_ns && !job.late.is_there) {
            die();
        }
    }
    weft_agg_box_fini(&job.box);
    check();
}

static void of_policy(enum weft_agg_policy policy)
{
    memset(&total, 0, sizeof(total));
    for (seed = 1; seed <= SEEDS; seed++) {
        memset(&job, 0, sizeof(job));
        job.policy = policy;
        run();
    }
    print_message("%llu packets, %llu of them directly; %llu sums, %llu refused; %llu deaths, %llu "
                  "sums after them, %llu epochs; %llu packets lost, %llu counted twice\n",
                  (unsigned long long)total.updates, (unsigned long long)total.direct,
                  (unsigned long long)total.sums, (unsigned long long)total.sums_refused,
                  (unsigned long long)total.deaths, (unsigned long long)total.late,
                  (unsigned long long)total.epochs, (unsigned long long)total.lost,
                  (unsigned long long)total.twice);
    /* the jobs are such that all of this happens */
    assert_true(total.deaths > SEEDS && total.late >= SEEDS / 100 && total.epochs > 2 * SEEDS);
    assert_true(total.sums > 10 * SEEDS && total.direct > SEEDS);
}

static void on_commit_each_update_counts_once(void **state)
{
    (void)state;
    of_policy(WEFT_AGG_ON_COMMIT);
    assert_true(total.sums_refused > SEEDS / 100);
}

static void on_apply_one_age_is_lost_at_most(void **state)
{
    (void)state;
    of_policy(WEFT_AGG_ON_APPLY);
    assert_true(total.lost > SEEDS && total.twice > SEEDS / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(on_commit_each_update_counts_once, print_seed),
        cmocka_unit_test_teardown(on_apply_one_age_is_lost_at_most, print_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
