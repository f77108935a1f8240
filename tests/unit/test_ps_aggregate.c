/* A shard applies the sum of an aggregator once, as a whole or not at all, and counts it as the
 * pushes of its members. The test acts as the aggregator and as two workers. */
#include "ps/aggregate.h"
#include "ps/id_pack.h"
#include "ps/shard_journal.h"
#include "ps/update.h"
#include "shard_rig.h"

#include <math.h>

enum { SHARD = 0, WORKER = 1, OTHER = 2, BOX = 3, ROWS = 50, SESSION = 7 };
enum { JOURNAL_BYTES = 1 << 20 };

struct bench {
    struct fake_net *net;
    struct weft_shard *shard;
    enum weft_worker_death on_death;
    uint32_t delay_max;
    uint64_t slab_bytes; /* 0 = the default */
    uint32_t rpc_id;
    uint8_t message[8][4096];
    uint32_t messages;
    uint8_t reply[64];
    struct weft_rpc_reply head;
    uint32_t replies, refused;
    _Alignas(8) uint8_t journal[JOURNAL_BYTES];
};

static struct weft_shard *shard_for(struct bench *b, uint32_t aggregators)
{
    struct weft_shard_config config = shard_rig_config(b->net);
    config.aggregators_max = aggregators;
    config.on_death = b->on_death;
    config.delay_max = b->delay_max;
    config.slab_bytes = b->slab_bytes > 0 ? b->slab_bytes : config.slab_bytes;
    return shard_rig_new(b->net, SHARD, &config);
}

static struct weft_shard *shard_new(struct bench *b)
{
    return shard_for(b, 1);
}

static struct bench *bench_alloc(void)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    return b;
}

static void bench_begin(struct bench *b, uint64_t seed)
{
    b->net = fake_net_new(seed);
    b->net->packet_bytes = 400;
    b->shard = shard_new(b);
    const struct weft_shard_journal_config journal = {
        .memory = b->journal, .bytes = JOURNAL_BYTES, .bytes_max = JOURNAL_BYTES, .lineage = 3};
    assert_int_equal(weft_shard_journal_init(b->shard, &journal), WEFT_OK);
    for (uint32_t n = WORKER; n <= BOX; n++) {
        b->net->nodes[n].name =
            n == BOX ? weft_rpc_aggregator_name(0, 0) : weft_rpc_name(WEFT_ROLE_WORKER, n - WORKER);
        b->net->nodes[n].incarnation = 1000 + n;
        fake_connect(b->net, SHARD, n);
    }
}

static struct bench *bench_with(uint64_t seed, enum weft_worker_death on_death, uint32_t delay_max)
{
    struct bench *b = bench_alloc();
    b->on_death = on_death;
    b->delay_max = delay_max;
    bench_begin(b, seed);
    return b;
}

static struct bench *bench_for(uint64_t seed, enum weft_worker_death on_death)
{
    return bench_with(seed, on_death, 0);
}

static struct bench *bench_new(uint64_t seed)
{
    return bench_for(seed, WEFT_DEATH_WAIT);
}

static void bench_free(struct bench *b)
{
    shard_rig_end(b->shard);
    fake_net_free(b->net);
    free(b);
}

static void poll_all(struct bench *b)
{
    struct weft_msg_event event;
    shard_rig_progress(b->shard, b->net, SHARD);
    for (uint32_t n = WORKER; n <= BOX; n++) {
        while (fake_poll(&b->net->nodes[n], &event)) {
            b->refused += event.type == WEFT_EVENT_SENT ? event.refused : 0;
            if (event.type == WEFT_EVENT_RECEIVED) {
                b->replies++;
                assert_int_equal(weft_rpc_reply_unpack(b->reply, sizeof(b->reply), &b->head),
                                 WEFT_OK);
            }
        }
    }
}

static void run(struct bench *b)
{
    for (poll_all(b); fake_step(b->net) || weft_shard_has_work(b->shard);) {
        poll_all(b);
    }
}

static uint8_t *memory(struct bench *b)
{
    return b->message[b->messages++ % 8];
}

static struct shard_rig_request request_of(struct bench *b, uint8_t op, uint32_t clock)
{
    return (struct shard_rig_request){.tag = {.op = op, .number = clock},
                                      .rpc_id = b->rpc_id,
                                      .reply = b->reply,
                                      .reply_bytes = sizeof(b->reply)};
}

static void send(struct bench *b, uint32_t node, uint8_t op, uint32_t clock, const uint8_t *base,
                 size_t bytes)
{
    struct shard_rig_request r = request_of(b, op, clock);
    r.base = base;
    r.total = (uint32_t)bytes;
    r.elem_bytes = 1;
    (void)shard_rig_send(b->net, node, SHARD, &r);
}

static uint16_t answer(struct bench *b)
{
    uint32_t before = b->replies;
    run(b);
    assert_int_equal(b->replies, before + 1);
    assert_int_equal(b->head.rpc_id, b->rpc_id);
    return b->head.status;
}

/* Sum of +1s for ids 1 .. ROWS. */
static void declare(struct bench *b, uint32_t node, struct weft_table_spec spec, uint32_t session)
{
    uint8_t *message = memory(b);
    spec.dim = spec.dim > 0 ? spec.dim : 1;
    spec.workers = 2;
    spec.learning_rate = -1;
    struct weft_rpc_request head = {.rpc_id = ++b->rpc_id,
                                    .worker = node - WORKER,
                                    .need_clock = WEFT_RPC_CAN_ALL,
                                    .after_seq = session};
    weft_rpc_request_pack(&head, message);
    weft_table_spec_pack(&spec, message + WEFT_RPC_REQUEST_BYTES);
    send(b, node, WEFT_RPC_TABLE, 0, message, WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_true((b->head.can & WEFT_RPC_CAN_AGGREGATE) != 0);
}

/* A push of rows first .. ROWS, all values 1; a held push has missing rows. */
static void push(struct bench *b, uint32_t node, uint32_t clock, uint64_t number)
{
    const struct weft_rpc_request head = {.worker = node - WORKER, .after_seq = (uint32_t)number};
    b->rpc_id++;
    shard_rig_send_push(b->net, node, SHARD, request_of(b, WEFT_RPC_PUSH, clock), head, memory(b),
                        ROWS, 1);
}

static void clock_of(struct bench *b, uint32_t node, uint32_t clock)
{
    uint8_t *message = memory(b);
    struct weft_rpc_request head = {.rpc_id = ++b->rpc_id, .worker = node - WORKER};
    weft_rpc_request_pack(&head, message);
    struct weft_msg_send send = {
        .peer = fake_peer(SHARD),
        .base = message,
        .total = 1,
        .elem_bytes = WEFT_RPC_REQUEST_BYTES,
        .critical = 1,
        .deadline_ns = WEFT_NEVER,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_RPC_CLOCK, .number = clock})};
    struct weft_msgr msgr = fake_msgr(b->net, node);
    uint64_t seq;
    assert_int_equal(msgr.ops->send(msgr.self, &send, 0, &seq), WEFT_OK);
    run(b);
}

/* An aggregate of both workers' pushes with this number: each row has `count` gradients with the
 * total `sum`. */
struct aggregate {
    uint64_t number;
    uint32_t session;
    uint64_t incarnation; /* incarnation of the first member */
    float sum;
    uint16_t count;
    uint32_t ranks;     /* 0 .. ranks - 1 are members */
    uint32_t pushes;    /* of each of them, with consecutive numbers; 0 = 1 */
    int32_t longer;     /* excess length in bytes */
    uint64_t first;     /* id of the first row */
    uint32_t ahead;     /* added to the rpc_ids */
    uint32_t clocks[4]; /* clocks of the members, if clocks_count is not 0 */
    uint16_t clocks_count;
    uint32_t bases[4]; /* 1 + their bases, after the clocks, if bases_count is not 0 */
    uint16_t bases_count;
    uint32_t weights; /* the t for which the sum is weighted; 0 = it is not */
};

static const struct aggregate usual = {.number = 1,
                                       .session = SESSION,
                                       .incarnation = 1000 + WORKER,
                                       .sum = 2,
                                       .count = 2,
                                       .ranks = 2,
                                       .first = 1};

static size_t lay_out(struct bench *b, const struct aggregate *a, uint8_t *message)
{
    uint64_t ids[ROWS];
    uint32_t taken;
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = a->first + i;
    }
    uint8_t *at = message + WEFT_AGGREGATE_HEAD_BYTES;
    const uint32_t pushes = a->pushes > 0 ? a->pushes : 1, members = a->ranks * pushes;
    for (uint32_t m = 0; m < members; m++, at += WEFT_AGGREGATE_MEMBER_BYTES) {
        const uint32_t r = m / pushes, number = (uint32_t)a->number + m % pushes;
        const struct weft_aggregate_member member = {
            .rank = r,
            .session = a->session,
            .incarnation = r == 0 ? a->incarnation : 1000 + WORKER + r,
            .number = number,
            .rpc_id = 500 + number + a->ahead,
        };
        weft_aggregate_member_pack(&member, at);
    }
    memcpy(at, a->clocks, a->clocks_count * sizeof(a->clocks[0]));
    at += a->clocks_count * sizeof(a->clocks[0]);
    memcpy(at, a->bases, a->bases_count * sizeof(a->bases[0]));
    at += a->bases_count * sizeof(a->bases[0]);
    size_t size = weft_ids_pack_block(ids, ROWS, 0, at, &taken);
    assert_int_equal(taken, ROWS);
    const struct weft_rpc_request head = {
        .rpc_id = ++b->rpc_id, .need_clock = a->weights, .rows = ROWS};
    weft_aggregate_head_pack(&head, members, size, message);
    weft_aggregate_head_columns(message, (uint32_t)a->clocks_count + a->bases_count);
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(at + size + i * 2, &a->count, 2);
        memcpy(at + size + ROWS * 2 + i * 4, &a->sum, 4);
    }
    return (size_t)(at - message) + size + ROWS * 6;
}

static uint16_t aggregate(struct bench *b, uint32_t clock, struct aggregate a)
{
    uint8_t *message = memory(b);
    size_t bytes = lay_out(b, &a, message);
    send(b, BOX, WEFT_RPC_AGGREGATE, clock, message, (size_t)((int64_t)bytes + a.longer));
    return answer(b);
}

/* The first `ranks` ranks have ended this clock. */
struct ends {
    uint32_t ranks;
    uint32_t clock;
    uint32_t session; /* session of the last of them; the others' are valid */
    uint32_t flags;
    uint32_t rows;
};

static uint16_t ends(struct bench *b, struct ends e)
{
    uint8_t *message = memory(b), *at = message + WEFT_AGGREGATE_HEAD_BYTES;
    memset(message, 0, sizeof(b->message[0]));
    for (uint32_t r = 0; r < e.ranks; r++, at += WEFT_AGGREGATE_MEMBER_BYTES) {
        const struct weft_aggregate_member member = {
            .rank = r,
            .session = r + 1 == e.ranks ? e.session : SESSION,
            .incarnation = 1000 + WORKER + r,
            .number = e.clock,
            .rpc_id = 700 + e.clock,
        };
        weft_aggregate_member_pack(&member, at);
    }
    const struct weft_rpc_request head = {
        .rpc_id = ++b->rpc_id, .rows = e.rows, .flags = e.flags};
    weft_aggregate_head_pack(&head, e.ranks, 0, message);
    send(b, BOX, WEFT_RPC_AGGREGATE, 0, message, (size_t)(at - message) + e.rows * 6);
    return answer(b);
}

static uint32_t rows_with(const struct weft_shard *shard, float value)
{
    return shard_rig_rows_with(shard, ROWS, value);
}

static const struct weft_table_spec asp = {.mode = WEFT_TABLE_ASP, .average = WEFT_AVERAGE_NONE};

static struct bench *opened(struct weft_table_spec spec)
{
    struct bench *b = bench_new(1);
    declare(b, WORKER, spec, SESSION);
    declare(b, OTHER, spec, SESSION);
    return b;
}

static void counts_once_whichever_way(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    push(b, WORKER, 1, 1); /* both workers also send it directly */
    assert_int_equal(answer(b), WEFT_RPC_OK);
    push(b, OTHER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    /* and the aggregate is repeated */
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_SEND_DIRECT);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
    assert_int_equal(counters->aggregates, 1);
    assert_int_equal(counters->aggregates_refused, 1);
    assert_int_equal(counters->aggregate_pushes, 2);
    assert_int_equal(counters->aggregate_rows, ROWS);
    assert_int_equal(counters->aggregate_gradients, 2 * ROWS);
    assert_int_equal(counters->pushes, 4);
    bench_free(b);
}

/* Each member's update reports the size of the sum that contained it. */
static void sizes_are_reported(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct weft_shard_committed of[2];
    uint8_t scratch[4096];
    const size_t bytes = lay_out(b, &usual, scratch);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    clock_of(b, WORKER, 1);
    clock_of(b, OTHER, 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(weft_shard_take_committed(b->shard, &of[i]));
        assert_int_equal(of[i].rank, i);
        assert_int_equal(of[i].members, 2);
        assert_int_equal(of[i].sum_bytes, bytes);
    }
    struct aggregate a = usual;
    a.number = 2;
    a.ranks = 1;
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_OK);
    clock_of(b, WORKER, 2);
    assert_true(weft_shard_take_committed(b->shard, &of[0]));
    assert_int_equal(of[0].members, 1);
    /* Two pushes of rank 0, and of rank 1, of clock 3 are two updates, each in one message. */
    clock_of(b, OTHER, 2);
    a.number = 3;
    a.ranks = a.pushes = 2;
    a.clocks_count = 4;
    for (uint32_t m = 0; m < 4; m++) {
        a.clocks[m] = 3;
    }
    for (uint32_t of_two = 0; of_two < 2; of_two++) {
        const size_t sum_bytes = lay_out(b, &a, scratch);
        assert_int_equal(aggregate(b, 3 + of_two, a), WEFT_RPC_OK);
        clock_of(b, WORKER, 3 + of_two);
        clock_of(b, OTHER, 3 + of_two);
        for (uint32_t i = 0; i < 2; i++) {
            assert_true(weft_shard_take_committed(b->shard, &of[i]));
            assert_int_equal(of[i].rank, i);
            assert_int_equal(of[i].members, 2);
            assert_int_equal(of[i].sum_bytes, sum_bytes);
        }
        a.number = 5; /* and all of clock 4, without a column of clocks */
        a.clocks_count = 0;
    }
    bench_free(b);
}

enum { WIDE = 64, WIDE_ROWS = 300, WIDE_BYTES = 100000 };

/* The usual aggregate, with this number and so many wide rows. */
static size_t lay_out_rows(struct bench *b, uint32_t number, uint32_t rows, uint8_t *message)
{
    uint64_t ids[WIDE_ROWS], before = 0;
    size_t size = 0;
    uint8_t *at = message + WEFT_AGGREGATE_HEAD_BYTES;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = 1 + i;
    }
    for (uint32_t r = 0; r < 2; r++, at += WEFT_AGGREGATE_MEMBER_BYTES) {
        const struct weft_aggregate_member member = {.rank = r,
                                                     .session = SESSION,
                                                     .incarnation = 1000 + WORKER + r,
                                                     .number = number,
                                                     .rpc_id = 500 + number};
        weft_aggregate_member_pack(&member, at);
    }
    for (uint32_t done = 0, taken; done < rows; done += taken) {
        const uint32_t count = (uint32_t)weft_min_u64(WEFT_IDS_BLOCK, rows - done);
        size += weft_ids_pack_block(ids + done, count, before, at + size, &taken);
        before = ids[done + taken - 1];
    }
    const struct weft_rpc_request head = {.rpc_id = ++b->rpc_id, .rows = rows};
    weft_aggregate_head_pack(&head, 2, size, message);
    for (size_t i = 0; i < rows; i++) {
        memcpy(at + size + i * 2, &usual.count, 2);
    }
    for (size_t i = 0; i < (size_t)rows * WIDE; i++) {
        memcpy(at + size + rows * 2 + i * 4, &usual.sum, 4);
    }
    const size_t bytes = (size_t)(at - message) + size + rows * (2 + WIDE * 4);
    assert_true(bytes <= WIDE_BYTES);
    return bytes;
}

static size_t lay_out_wide(struct bench *b, uint32_t number, uint8_t *message)
{
    return lay_out_rows(b, number, WIDE_ROWS, message);
}

/* The rate of the members' updates in two sums, which arrive together or one after the other. */
static uint64_t rate_of_two(bool are_together)
{
    static uint8_t message[2][WIDE_BYTES];
    struct weft_table_spec spec = asp;
    spec.dim = WIDE;
    struct bench *b = opened(spec);
    struct weft_shard_committed of;
    b->net->packet_bytes = 1408;
    for (uint32_t i = 0; i < 2; i++) {
        const size_t bytes = lay_out_wide(b, 1 + i, message[i]);
        send(b, BOX, WEFT_RPC_AGGREGATE, 1, message[i], bytes);
        if (!are_together) {
            run(b);
        }
    }
    run(b);
    assert_int_equal(weft_shard_counters(b->shard)->aggregates, 2);
    clock_of(b, WORKER, 1);
    assert_true(weft_shard_take_committed(b->shard, &of));
    assert_int_equal(of.members, 2);
    assert_int_equal(of.all_bps, of.rate_bps);
    bench_free(b);
    return of.rate_bps;
}

/* Sums that arrive together measure the same rate as those that have the link for themselves. */
static void rates_of_sums_together(void **state)
{
    (void)state;
    const uint64_t one_bps = rate_of_two(false), two_bps = rate_of_two(true);
    assert_true(one_bps > 0);
    assert_true(two_bps > one_bps - one_bps / 16 && two_bps < one_bps + one_bps / 16);
}

/* An update may be cut into pieces. Their sums are too short to be measured each, but together they
 * measure the same rate as one. Here a message is closed a step after its last chunk, which makes
 * the rate of short ones lower by up to an eighth. */
static void rates_of_pieces(void **state)
{
    (void)state;
    enum { PIECES = 4 };
    static uint8_t message[WIDE_BYTES];
    const uint64_t whole_bps = rate_of_two(false);
    struct weft_table_spec spec = asp;
    spec.dim = WIDE;
    struct bench *b = opened(spec);
    struct weft_shard_committed of;
    b->net->packet_bytes = 1408;
    size_t bytes = 0;
    for (uint32_t i = 0; i < PIECES; i++) {
        const size_t piece = lay_out_rows(b, 1 + i, WIDE_ROWS / PIECES, message);
        send(b, BOX, WEFT_RPC_AGGREGATE, 1, message, piece);
        run(b);
        bytes += piece;
    }
    assert_int_equal(weft_shard_counters(b->shard)->aggregates, PIECES);
    clock_of(b, WORKER, 1);
    assert_true(weft_shard_take_committed(b->shard, &of));
    assert_int_equal(of.members, 2);
    assert_int_equal(of.sum_bytes, bytes);
    assert_int_equal(of.all_bps, of.rate_bps);
    assert_true(of.rate_bps > whole_bps - whole_bps / 8);
    assert_true(of.rate_bps < whole_bps + whole_bps / 16);
    bench_free(b);
}

/* Send an aggregate whose sender stops after the first chunk. */
static struct fake_message *begin_sum(struct bench *b, uint32_t clock, const uint8_t *message,
                                      size_t bytes)
{
    struct fake_message *m = b->net->messages;
    send(b, BOX, WEFT_RPC_AGGREGATE, clock, message, bytes);
    assert_true(fake_step(b->net));
    poll_all(b);
    while (!m->live || !m->open) {
        m++;
        assert_true(m < b->net->messages + FAKE_MESSAGES);
    }
    assert_int_equal(m->from, BOX);
    m->held = true;
    return m;
}

/* The report of worker 0's update of a clock, in a sum with worker 1's. */
static struct weft_shard_committed sum_of(struct bench *b, uint32_t clock)
{
    static uint8_t message[WIDE_BYTES];
    struct weft_shard_committed of[2];
    const size_t bytes = lay_out_wide(b, clock, message);
    send(b, BOX, WEFT_RPC_AGGREGATE, clock, message, bytes);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        clock_of(b, WORKER + i, clock);
        assert_true(weft_shard_take_committed(b->shard, &of[i]));
    }
    assert_int_equal(of[0].members, 2);
    return of[0];
}

/* A sum has stopped when another one that began later, and is as long, has arrived. From then on it
 * has no part of the time, so the others measure the rate of the link. */
static void a_sum_that_stops_has_no_part(void **state)
{
    (void)state;
    static uint8_t message[WIDE_BYTES];
    enum { STOPPED_CLOCK = 4 };
    const uint64_t link_bps = rate_of_two(false);
    struct weft_table_spec spec = asp;
    struct weft_shard_committed of;
    spec.dim = WIDE;
    struct bench *b = opened(spec);
    b->net->packet_bytes = 1408;
    const size_t bytes = lay_out_wide(b, STOPPED_CLOCK, message);
    struct fake_message *stopped = begin_sum(b, STOPPED_CLOCK, message, bytes);
    assert_int_equal(sum_of(b, 1).rate_bps, 0);
    for (uint32_t clock = 2; clock <= 5; clock++) {
        if (clock == STOPPED_CLOCK) { /* it continues; its own rate is not known */
            stopped->held = false;
            run(b);
            assert_int_equal(weft_shard_counters(b->shard)->aggregates, STOPPED_CLOCK);
            clock_of(b, WORKER, clock);
            clock_of(b, OTHER, clock);
            for (uint32_t i = 0; i < 2; i++) {
                assert_true(weft_shard_take_committed(b->shard, &of));
                assert_true(of.members == 2 && of.rate_bps == 0 && of.sum_bytes == bytes);
            }
            continue;
        }
        of = sum_of(b, clock);
        assert_true(of.rate_bps > link_bps - link_bps / 16);
        assert_true(of.rate_bps < link_bps + link_bps / 16);
    }
    bench_free(b);
}

/* Windows with requests since `before`, and the workers and connections in them. */
static void check_active(struct bench *b, const struct weft_shard_counters *before,
                         uint64_t windows, uint64_t workers, uint64_t connections)
{
    const struct weft_shard_counters *after = weft_shard_counters(b->shard);
    weft_shard_records_end(b->shard);
    assert_int_equal(after->active_windows - before->active_windows, windows);
    assert_int_equal(after->active_workers - before->active_workers, workers);
    assert_int_equal(after->active_connections - before->active_connections, connections);
}

/* A message of an aggregator counts once, in the window in which it was complete: for its
 * connection, and for its members' workers, whether it has pushes or ended clocks. */
static void members_and_connection_are_active_together(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    const uint64_t window_ns = WEFT_NS_PER_MS;
    uint8_t *message = memory(b);
    size_t bytes = lay_out(b, &usual, message);
    b->net->now_ns += 2 * window_ns;
    weft_shard_records_end(b->shard);
    struct weft_shard_counters before = *weft_shard_counters(b->shard);
    send(b, BOX, WEFT_RPC_AGGREGATE, 1, message, bytes);
    for (uint32_t i = 0; i < 2; i++) { /* some chunks of it, in one window */
        assert_true(fake_step(b->net));
        poll_all(b);
    }
    assert_true(weft_shard_busy(b->shard));
    b->net->now_ns += 2 * window_ns;
    assert_int_equal(answer(b), WEFT_RPC_OK);
    check_active(b, &before, 1, 2, 1);
    before = *weft_shard_counters(b->shard);
    b->net->now_ns += 2 * window_ns;
    assert_int_equal(
        ends(b, (struct ends){
                    .ranks = 2, .clock = 1, .session = SESSION, .flags = WEFT_AGGREGATE_ENDS}),
        WEFT_RPC_OK);
    check_active(b, &before, 1, 2, 1);
    /* A refused one has no pushes or clocks of workers. */
    before = *weft_shard_counters(b->shard);
    b->net->now_ns += 2 * window_ns;
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_SEND_DIRECT);
    check_active(b, &before, 1, 0, 1);
    bench_free(b);
}

static void the_other_way_round(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    push(b, OTHER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_SEND_DIRECT);
    /* the push of the first member is not applied either */
    assert_int_equal(rows_with(b->shard, 1), ROWS);
    push(b, WORKER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    a.number = 2;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 4), ROWS);
    bench_free(b);
}

/* A push in progress when the aggregate arrives, at each of its chunks. */
static void begun_direct(void **state)
{
    (void)state;
    for (uint32_t steps = 1; steps <= 4; steps++) {
        struct bench *b = opened(asp);
        push(b, OTHER, 1, 1);
        for (uint32_t i = 0; i < steps && fake_step(b->net); i++) {
            poll_all(b);
        }
        uint8_t *message = memory(b);
        size_t bytes = lay_out(b, &usual, message);
        send(b, BOX, WEFT_RPC_AGGREGATE, 1, message, bytes);
        run(b);
        assert_int_equal(rows_with(b->shard, 1), ROWS);
        assert_int_equal(weft_shard_counters(b->shard)->aggregates, 0);
        bench_free(b);
    }
}

/* CLOCKs of several ranks in one message: all or none are accepted, and a repetition has no
 * effect. */
static void clocks_together(void **state)
{
    (void)state;
    const struct weft_table_spec bsp = {.mode = WEFT_TABLE_BSP, .average = WEFT_AVERAGE_NONE};
    struct bench *b = opened(bsp);
    const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
    const struct ends first = {
        .ranks = 2, .clock = 1, .session = SESSION, .flags = WEFT_AGGREGATE_ENDS};
    struct ends e = first;
    e.session = SESSION + 1; /* one member has another session: none is applied */
    assert_int_equal(ends(b, e), WEFT_RPC_SEND_DIRECT);
    assert_int_equal(b->head.rows, 2); /* 1 + its rank */
    e.session = 0;
    assert_int_equal(ends(b, e), WEFT_RPC_SEND_DIRECT);
    e = first;
    e.clock = 2;
    assert_int_equal(ends(b, e), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(b->head.rows, 1);
    e.clock = 0;
    assert_int_equal(ends(b, e), WEFT_RPC_EARLY_CLOCK);
    e = first;
    e.ranks = 3;
    assert_int_equal(ends(b, e), WEFT_RPC_WRONG_WORKER);
    e = first;
    e.flags |= WEFT_RPC_CUT;
    assert_int_equal(ends(b, e), WEFT_RPC_BAD_REQUEST);
    e = first;
    e.rows = 1;
    assert_int_equal(ends(b, e), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(counters->clocks, 0);
    assert_int_equal(counters->aggregate_clocks, 0);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    assert_int_equal(ends(b, first), WEFT_RPC_OK);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1);
    assert_int_equal(b->head.clock, 1);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    assert_int_equal(ends(b, first), WEFT_RPC_OK);
    clock_of(b, WORKER, 1); /* and sent directly */
    assert_int_equal(counters->clocks, 2);
    assert_int_equal(counters->clocks_duplicate, 3);
    e = first;
    e.clock = 2;
    clock_of(b, WORKER, 2);
    assert_int_equal(ends(b, e), WEFT_RPC_OK); /* the other member's clock is new */
    assert_int_equal(weft_shard_clock(b->shard, 0), 2);
    assert_int_equal(counters->clocks, 4);
    assert_int_equal(counters->aggregate_clocks, 6);
    assert_int_equal(counters->aggregates, 1);
    fake_break(b->net, SHARD, OTHER); /* its connection has ended */
    run(b);
    e.clock = 3;
    assert_int_equal(ends(b, e), WEFT_RPC_SEND_DIRECT);
    assert_int_equal(counters->clocks, 4);
    bench_free(b);
}

static void who_may(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    a.session = SESSION - 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_SEND_DIRECT);
    a.session = 0;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_SEND_DIRECT);
    a = usual;
    a.incarnation++;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_SEND_DIRECT);
    declare(b, OTHER, asp, SESSION + 1); /* its connection broke */
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_SEND_DIRECT);
    a = usual;
    a.ranks = 1;
    a.sum = a.count = 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 1), ROWS);
    clock_of(b, WORKER, 1);
    a.number = 2;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_STALE_CLOCK);
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_OK);
    a.ranks = 3;
    a.number = 3;
    declare(b, OTHER, asp, SESSION);
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_WRONG_WORKER);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    bench_free(b);
}

static void contradicts_itself(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    a.longer = 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a.longer = -1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a = usual;
    a.count = 0;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a = usual;
    a.sum = __builtin_inff();
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_NOT_FINITE);
    a = usual;
    a.first = 5000; /* the limit is 1,000 rows, and 50 of these do not exist yet */
    for (uint32_t i = 0; i < 20; i++, a.number++) {
        a.first += ROWS;
        assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    }
    a.first += ROWS;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_FULL);
    assert_int_equal(rows_with(b->shard, 0), ROWS);
    /* The same number can be sent directly, because it was not closed. */
    push(b, WORKER, 1, a.number);
    assert_int_equal(answer(b), WEFT_RPC_FULL);
    bench_free(b);
}

/* A number far ahead of those that the shard knows is no worker's. Accepted, it would void the
 * pushes below it. */
static void a_number_far_ahead_is_refused(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    static const uint32_t ahead[] = {1025, 100000, INT32_MAX};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(ahead); i++) {
        a.number = 1 + ahead[i];
        assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    }
    push(b, WORKER, 1, 2);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    push(b, OTHER, 1, 2);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 4), ROWS);
    a.number = 2 + 1024;
    a.ahead = (uint32_t)-1024;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 6), ROWS);
    bench_free(b);
}

/* A pull of one row that waits for the worker's own push with this rpc_id. */
static void pull_after(struct bench *b, uint32_t push_rpc_id)
{
    enum { HEAD_ELEMS = WEFT_RPC_REQUEST_BYTES / WEFT_RPC_ID_WIDE };
    uint8_t *message = memory(b);
    const struct weft_rpc_request head = {
        .rpc_id = ++b->rpc_id, .rows = 1, .after_seq = push_rpc_id};
    struct shard_rig_request r = request_of(b, WEFT_RPC_PULL, 0);
    weft_rpc_request_pack(&head, message);
    weft_ps_store_id(message + WEFT_RPC_REQUEST_BYTES, WEFT_RPC_ID_WIDE, 0, 1);
    r.base = message;
    r.total = HEAD_ELEMS + 1;
    r.elem_bytes = WEFT_RPC_ID_WIDE;
    (void)shard_rig_send(b->net, WORKER, SHARD, &r);
    run(b);
}

/* A member names the rpc_id of its push. One far ahead would make RPCs that the worker has yet to
 * send count as closed: its pulls would not wait for its own pushes. */
static void an_rpc_id_far_ahead_is_refused(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    static const uint32_t newest = 1, of_first = 501; /* WORKER's TABLE; `usual` */
    static const uint32_t ahead[] = {1025, 100000, INT32_MAX};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(ahead); i++) {
        a.ahead = newest + ahead[i] - of_first;
        assert_int_equal(aggregate(b, 1, a), WEFT_RPC_SEND_DIRECT);
    }
    assert_int_equal(rows_with(b->shard, 0), ROWS);
    a.ahead = newest + 1024 - of_first;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    a.number++; /* nor by several aggregates, each of which is a window ahead of the last */
    a.ahead += 1023;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_SEND_DIRECT);
    const uint32_t replies = b->replies, id = ++b->rpc_id;
    pull_after(b, id);
    assert_int_equal(b->replies, replies); /* it waits */
    b->rpc_id = id - 1;
    push(b, WORKER, 1, 2);
    run(b);
    assert_int_equal(b->replies, replies + 2);
    bench_free(b);
}

/* Members with several clocks: each is treated like a separate push. */
static void several_clocks(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    clock_of(b, WORKER, 1);
    a.clocks_count = 2;
    a.clocks[0] = 2;
    a.clocks[1] = 1;
    /* later than the clock of the tag */
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a.clocks[1] = 0;
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_BAD_REQUEST);
    a.clocks[0] = a.clocks[1] = 1;
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_STALE_CLOCK); /* the first member has ended it */
    a.clocks[0] = 2;
    a.clocks_count = 1;
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_BAD_REQUEST);
    a.clocks_count = 2;
    /* the tag must have the latest clock */
    assert_int_equal(aggregate(b, 3, a), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(rows_with(b->shard, 0), ROWS);
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    push(b, WORKER, 2, 1); /* both also arrive directly */
    assert_int_equal(answer(b), WEFT_RPC_OK);
    push(b, OTHER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    clock_of(b, OTHER, 1);
    clock_of(b, WORKER, 2);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1);
    bench_free(b);
    b = opened((struct weft_table_spec){.mode = WEFT_TABLE_BSP, .average = WEFT_AVERAGE_NONE});
    /* a BSP shard accepts one clock at a time */
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(rows_with(b->shard, 0), ROWS);
    bench_free(b);
}

/* With a delay bound each member is one update, with a delay of its own. They open one after the
 * other, the oldest base first; a sum is refused if one of them would be late. */
static void each_member_has_a_delay(void **state)
{
    (void)state;
    struct bench *b = bench_with(1, WEFT_DEATH_WAIT, 1);
    const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
    struct weft_shard_committed of[2];
    struct aggregate a = usual;
    declare(b, WORKER, asp, SESSION);
    declare(b, OTHER, asp, SESSION);
    a.clocks_count = a.bases_count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        a.clocks[i] = 1;
        a.bases[i] = 1; /* base 0 */
    }
    a.bases[1] = 1 << 24;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a.bases[1] = 1;
    a.bases_count = 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    a.bases_count = 2;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    assert_int_equal(counters->updates_opened, 2);
    assert_int_equal(counters->updates_delay_sum, 1);
    clock_of(b, WORKER, 1);
    clock_of(b, OTHER, 1);
    a.number = 2;
    a.clocks[0] = a.clocks[1] = 2;
    a.bases[1] = 1 + 2;
    /* the first would have a delay of 2 */
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_SEND_DIRECT);
    assert_int_equal(counters->updates_opened, 2);
    assert_int_equal(counters->updates_late, 0);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    a.bases[0] = 1 + 2;
    a.bases[1] = 1 + 1; /* the second opens first: a delay of 1 for each */
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_OK);
    clock_of(b, WORKER, 2);
    clock_of(b, OTHER, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(weft_shard_take_committed(b->shard, &of[0]));
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(weft_shard_take_committed(b->shard, &of[i]));
        assert_int_equal(of[i].number, 4 - i);
        assert_int_equal(of[i].base, 2 - i);
    }
    assert_int_equal(counters->updates_delay_sum, 3);
    assert_int_equal(counters->updates_delay_max, 1);
    a.number = 3;
    a.clocks[0] = a.clocks[1] = 3;
    a.bases[0] = 0; /* not known: no delay before the sum */
    a.bases[1] = 1 + 4;
    assert_int_equal(aggregate(b, 3, a), WEFT_RPC_OK);
    assert_int_equal(counters->updates_opened, 6);
    bench_free(b);
}

/* After the restart of a shard bases are above its count, or unknown: an update has no delay,
 * whatever its place in the sum, unless the count has passed its base by then. The others count. */
static void unknown_bases_have_no_delay(void **state)
{
    (void)state;
    enum { NONE = 0, ABOVE = 1 + 50, BOUND = 2 };
    static const struct {
        uint32_t bases[4];
        uint16_t status;
        uint64_t delays; /* sum of all */
    } cases[] = {
        {{NONE, NONE, NONE, NONE}, WEFT_RPC_OK, 0},
        {{ABOVE, ABOVE, ABOVE, ABOVE}, WEFT_RPC_OK, 0},
        {{NONE, 1, ABOVE, 1}, WEFT_RPC_OK, 1}, /* the known ones are first */
        {{1, 1, NONE, 1}, WEFT_RPC_OK, 0 + 1 + 2},
        {{1, 1, 1, 1}, WEFT_RPC_SEND_DIRECT, 0}, /* the last would have a delay of 3 */
        {{1, 1, 1, 1 + 1}, WEFT_RPC_OK, 0 + 1 + 2 + 2},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct bench *b = bench_with(1, WEFT_DEATH_WAIT, BOUND);
        const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
        struct aggregate a = usual;
        declare(b, WORKER, asp, SESSION);
        declare(b, OTHER, asp, SESSION);
        a.pushes = 2;
        a.clocks_count = a.bases_count = 4;
        for (uint32_t m = 0; m < 4; m++) {
            a.clocks[m] = 1 + m % 2;
            a.bases[m] = cases[i].bases[m];
        }
        assert_int_equal(aggregate(b, 2, a), cases[i].status);
        assert_int_equal(counters->updates_opened, cases[i].status == WEFT_RPC_OK ? 4 : 0);
        assert_int_equal(counters->updates_delay_sum, cases[i].delays);
        assert_int_equal(counters->updates_late, 0);
        bench_free(b);
    }
}

/* A push of an update with base 0. */
static uint16_t update(struct bench *b, uint32_t node, uint32_t clock, uint64_t number)
{
    const struct weft_rpc_request head = {
        .worker = node - WORKER, .need_clock = clock, .after_seq = (uint32_t)number};
    b->rpc_id++;
    shard_rig_send_push(b->net, node, SHARD,
                        request_of(b, WEFT_RPC_UPDATE, weft_rpc_update_pack(clock, 0)), head,
                        memory(b), ROWS, 1);
    return answer(b);
}

/* The report of an update of many pushes. An aggregate may be arriving all the time. */
static struct weft_shard_committed update_beside(bool is_beside_sum)
{
    enum { PUSHES = 300 };
    static uint8_t message[4096];
    struct bench *b = opened(asp);
    struct weft_shard_committed of;
    if (is_beside_sum) {
        const size_t bytes = lay_out(b, &usual, message);
        (void)begin_sum(b, 1, message, bytes);
    }
    for (uint32_t i = 1; i <= PUSHES; i++) {
        assert_int_equal(update(b, WORKER, 1, usual.number + i), WEFT_RPC_OK);
    }
    clock_of(b, WORKER, 1);
    assert_true(weft_shard_take_committed(b->shard, &of));
    bench_free(b);
    return of;
}

/* An update is not alone, and does not measure its uplink, while a sum arrives: the bytes of the
 * sum are not known yet. */
static void who_is_beside_a_sum_is_not_alone(void **state)
{
    (void)state;
    const struct weft_shard_committed alone = update_beside(false), beside = update_beside(true);
    assert_true(alone.rate_bps > 0);
    assert_true(alone.alone_bps == alone.rate_bps && alone.all_bps == alone.rate_bps);
    assert_true(beside.rate_bps == 0 && beside.alone_bps == 0 && beside.all_bps == 0);
}

/* A sum with a push of an update that was refused as late is refused, whatever its base. */
static void a_late_update_is_in_no_sum(void **state)
{
    (void)state;
    struct bench *b = bench_with(1, WEFT_DEATH_WAIT, 1);
    struct aggregate a = usual;
    declare(b, WORKER, asp, SESSION);
    declare(b, OTHER, asp, SESSION);
    a.clocks_count = a.bases_count = 2;
    a.clocks[0] = a.clocks[1] = a.bases[0] = a.bases[1] = 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    clock_of(b, WORKER, 1);
    clock_of(b, OTHER, 1);
    assert_int_equal(update(b, WORKER, 2, 2), WEFT_RPC_LATE);
    a.number = 3;
    a.clocks[0] = a.clocks[1] = 2;
    a.bases[0] = a.bases[1] = 1 + 2;
    assert_int_equal(aggregate(b, 2, a), WEFT_RPC_SEND_DIRECT);
    a.clocks[0] = 3;
    assert_int_equal(aggregate(b, 3, a), WEFT_RPC_OK);
    assert_int_equal(weft_shard_counters(b->shard)->updates_late, 1);
    bench_free(b);
}

/* AdaDelay: in clock 4 of the fastest, gradients of clocks 4 and 1 have a = 1 and 4 / 7. Their sum
 * has the mean, 11 / 14, whatever the order of the members: s = 1 + 4 a, step = 2 / sqrt(s / a). */
static void a_late_member_makes_the_step_shorter(void **state)
{
    (void)state;
    struct weft_table_spec spec = asp;
    spec.optimizer = WEFT_OPTIMIZER_ADADELAY;
    spec.accumulator = 1;
    for (uint32_t late = 0; late < 3; late++) { /* 2: neither is */
        struct bench *b = opened(spec);
        struct aggregate a = usual;
        float weight;
        for (uint32_t clock = 1; clock <= 3; clock++) {
            clock_of(b, late == 0 ? OTHER : WORKER, clock);
        }
        a.clocks_count = late < 2 ? 2 : 0;
        a.clocks[late % 2] = 1;
        a.clocks[1 - late % 2] = 4;
        assert_int_equal(aggregate(b, 4, a), WEFT_RPC_OK);
        (void)weft_table_read(weft_shard_table(b->shard, 0), 1, &weight);
        float step = late < 2 ? 0.87098905F : 0.89442719F;
        assert_true(__builtin_fabsf(weight - step) < 1e-6F);
        assert_int_equal(rows_with(b->shard, weight), ROWS);
        bench_free(b);
    }
}

/* Weight after the aggregate of gradients g of clocks 6 and 2, weighted for t = `weights`, arrives
 * in clock 6 of the fastest. */
static float weighed_for(uint32_t weights, const float g[2])
{
    struct weft_table_spec spec = asp;
    spec.optimizer = WEFT_OPTIMIZER_ADADELAY;
    spec.accumulator = 1;
    struct bench *b = opened(spec);
    struct aggregate a = usual;
    float weight;
    for (uint32_t clock = 1; clock <= 5; clock++) {
        clock_of(b, WORKER, clock);
    }
    a.clocks_count = 2;
    a.clocks[0] = 6;
    a.clocks[1] = 2;
    a.weights = weights;
    a.sum = (float)((double)g[0] * weft_aggregate_weight(weights, 6) +
                    (double)g[1] * weft_aggregate_weight(weights, 2));
    assert_int_equal(aggregate(b, 6, a), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 6); /* the t for the next sums */
    (void)weft_table_read(weft_shard_table(b->shard, 0), 1, &weight);
    assert_int_equal(rows_with(b->shard, weight), ROWS);
    bench_free(b);
    return weight;
}

/* The reference: Adagrad's step with the sum of sqrt(a) g, a = 1 and 6 / 10. The mean of a, which
 * a shard has to use for a sum without weights, depends on the members only, not on their
 * gradients; here it is wrong by up to 13 %. */
static void weights_are_applied_once(void **state)
{
    (void)state;
    const float of[][2] = {{2, 1}, {3, 0}, {0, 3}, {-1, 2}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(of); i++) {
        const double sum = (double)of[i][0] + sqrt(0.6) * (double)of[i][1];
        const double want = sum / sqrt(1 + sum * sum);
        assert_true(fabs((double)weighed_for(6, of[i]) - want) < 1e-6);
        /* The aggregator knew an earlier t: the shard corrects the sum of the weights, so a member
         * is wrong by less than spread x difference / t^2 = 4 x 1 / 25. */
        assert_true(fabs((double)weighed_for(5, of[i]) - want) < 0.16 * fabs(want));
        /* One that knew a later t, as before a restore of the shard. */
        assert_true(fabs((double)weighed_for(7, of[i]) - want) < 0.16 * fabs(want));
    }
    assert_true(fabs((double)weighed_for(0, of[2]) - 3 * sqrt(0.8) / sqrt(1 + 9 * 0.8)) < 1e-6);
}

/* A sum with one member has that member's weight at the shard's t, whatever t the aggregator
 * knew: the same step as that of the push itself. */
static void one_member_steps_as_alone(void **state)
{
    (void)state;
    struct weft_table_spec spec = asp;
    spec.optimizer = WEFT_OPTIMIZER_ADADELAY;
    spec.accumulator = 1;
    for (uint32_t weights = 1; weights <= 9; weights++) {
        struct bench *b = opened(spec);
        struct aggregate a = usual;
        float weight;
        clock_of(b, OTHER, 1);
        clock_of(b, OTHER, 2);
        a.ranks = a.count = 1;
        a.weights = weights;
        a.sum = (float)(2 * weft_aggregate_weight(weights, 1));
        assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
        (void)weft_table_read(weft_shard_table(b->shard, 0), 1, &weight);
        assert_true(fabs((double)weight - 2 * sqrt(0.6) / sqrt(1 + 4 * 0.6)) < 1e-6);
        bench_free(b);
    }
}

/* Weights for a table without them, and for ended clocks, contradict each other. */
static void weights_where_none_are(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    struct aggregate a = usual;
    a.weights = 1;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(rows_with(b->shard, 0), ROWS);
    a.weights = 0;
    assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 0);
    bench_free(b);
}

static void which_tables(void **state)
{
    (void)state;
    const struct weft_table_spec no[] = {
        {.mode = WEFT_TABLE_ASP, .push_values = WEFT_VALUE_BF16},
        {.mode = WEFT_TABLE_ASP, .not_finite = WEFT_NOT_FINITE_CLIP, .clip = 1},
        {.mode = WEFT_TABLE_ASP, .eviction = WEFT_EVICTION_LRU},
        {.mode = WEFT_TABLE_ASP,
         .admission = WEFT_ADMISSION_COUNTER,
         .admission_count = 2,
         .admission_cells = 64},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(no); i++) {
        struct bench *b = opened(no[i]);
        assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_SEND_DIRECT);
        assert_int_equal(rows_with(b->shard, 0), ROWS);
        bench_free(b);
    }
}

/* BSP: the mean over contributors divides by the number of gradients in a sum, not by the number of
 * sums. */
static void bsp_means(void **state)
{
    (void)state;
    const uint8_t averages[] = {WEFT_AVERAGE_CONTRIBUTORS, WEFT_AVERAGE_NONE};
    const float want[] = {2, 4}; /* 2 gradients of 2 each */
    for (uint32_t i = 0; i < 2; i++) {
        struct bench *b =
            opened((struct weft_table_spec){.mode = WEFT_TABLE_BSP, .average = averages[i]});
        struct aggregate a = usual;
        a.sum = 4;
        assert_int_equal(aggregate(b, 2, a), WEFT_RPC_EARLY_CLOCK);
        assert_int_equal(aggregate(b, 1, a), WEFT_RPC_OK);
        assert_int_equal(rows_with(b->shard, 0), ROWS);
        clock_of(b, WORKER, 1);
        clock_of(b, OTHER, 1);
        assert_int_equal(rows_with(b->shard, want[i]), ROWS);
        bench_free(b);
    }
}

/* A sum may arrive after the death of one of its members. It is refused, and the other members send
 * their pushes directly: the mean over the remaining workers must not contain a push of a rank that
 * is not counted. */
static void the_dead_are_not_in_a_mean(void **state)
{
    (void)state;
    struct bench *b = bench_for(1, WEFT_DEATH_SHRINK);
    const struct weft_table_spec bsp = {.mode = WEFT_TABLE_BSP}; /* the mean over workers */
    declare(b, WORKER, bsp, SESSION);
    declare(b, OTHER, bsp, SESSION);
    weft_shard_worker_died(b->shard, 1, UINT64_MAX, 0);
    assert_int_not_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    assert_int_equal(weft_shard_counters(b->shard)->aggregate_pushes, 0);
    push(b, WORKER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    clock_of(b, WORKER, 1);
    assert_int_equal(rows_with(b->shard, 1), ROWS);
    /* The reverse case: the sum arrived before the member died, so the member counts in the
     * mean. */
    bench_free(b);
    b = bench_for(1, WEFT_DEATH_SHRINK);
    declare(b, WORKER, bsp, SESSION);
    declare(b, OTHER, bsp, SESSION);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    weft_shard_worker_died(b->shard, 1, UINT64_MAX, 0);
    clock_of(b, WORKER, 1);
    assert_int_equal(rows_with(b->shard, 1), ROWS); /* 2 divided by both */
    bench_free(b);
}

/* The shard's process dies. The next one restores sums and windows from the journal, and refuses
 * aggregates with a worker that has not reconnected. */
static void journal(void **state)
{
    (void)state;
    struct bench *b = opened(asp);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    struct weft_shard *dead = b->shard;
    uint8_t *own = calloc(1, JOURNAL_BYTES);
    assert_non_null(own);
    b->shard = shard_new(b);
    const struct weft_shard_journal_config config = {.memory = own,
                                                     .bytes = JOURNAL_BYTES,
                                                     .bytes_max = JOURNAL_BYTES,
                                                     .lineage = 3,
                                                     .source = b->journal,
                                                     .source_bytes = JOURNAL_BYTES};
    assert_int_equal(weft_shard_journal_init(b->shard, &config), WEFT_OK);
    while (weft_shard_journal_replay(b->shard)) {
        shard_rig_slabs(b->shard);
    }
    assert_int_equal(weft_shard_journal_report(b->shard)->refused, 0);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    for (uint32_t n = WORKER; n <= BOX; n++) {
        memset(b->net->nodes[n].expects, 0, sizeof(b->net->nodes[n].expects));
    }
    memset(b->net->nodes[SHARD].expects, 0, sizeof(b->net->nodes[SHARD].expects));
    for (uint32_t n = WORKER; n <= BOX; n++) {
        fake_connect(b->net, SHARD, n);
    }
    run(b);
    struct aggregate next = usual;
    next.number = 2;
    assert_int_equal(aggregate(b, 1, next), WEFT_RPC_SEND_DIRECT);
    push(b, WORKER, 1, 1);
    assert_int_equal(answer(b), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    declare(b, WORKER, asp, SESSION + 1);
    declare(b, OTHER, asp, SESSION + 1);
    next.session++;
    assert_int_equal(aggregate(b, 1, next), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 4), ROWS);
    shard_rig_end(dead);
    bench_free(b);
    free(own);
}

/* Replay `source` in a new process, whose driver adds up to `slabs` slabs. Returns the number of
 * records that it refused. */
static uint64_t replay_of(struct bench *b, const uint8_t *source, uint8_t *own, uint32_t slabs)
{
    const struct weft_shard_journal_config config = {.memory = memset(own, 0, JOURNAL_BYTES),
                                                     .bytes = JOURNAL_BYTES,
                                                     .bytes_max = JOURNAL_BYTES,
                                                     .lineage = 3,
                                                     .source = source,
                                                     .source_bytes = JOURNAL_BYTES};
    uint16_t table;
    size_t bytes;
    shard_rig_end(b->shard);
    b->shard = shard_new(b);
    assert_int_equal(weft_shard_journal_init(b->shard, &config), WEFT_OK);
    while (weft_shard_journal_replay(b->shard)) {
        for (; slabs > 0 && weft_shard_wants_slab(b->shard, &table, &bytes); slabs--) {
            assert_int_equal(weft_shard_add_slab(b->shard, table, malloc(bytes), bytes), WEFT_OK);
        }
    }
    return weft_shard_journal_report(b->shard)->refused;
}

/* Slabs of 32 rows, so that room is kept for 16. A sum of 50 new rows is refused once; from then on
 * room is kept for the next. The process that replays it keeps none yet. */
static void journal_of_a_long_sum(void **state)
{
    (void)state;
    uint8_t *own = aligned_alloc(8, JOURNAL_BYTES), *last = aligned_alloc(8, JOURNAL_BYTES);
    struct bench *b = bench_alloc();
    b->slab_bytes = 1024;
    bench_begin(b, 1);
    declare(b, WORKER, asp, SESSION);
    declare(b, OTHER, asp, SESSION);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_FULL);
    assert_int_equal(aggregate(b, 1, usual), WEFT_RPC_OK);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    assert_int_equal(replay_of(b, b->journal, own, UINT32_MAX), 0);
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    assert_int_equal(replay_of(b, own, last, UINT32_MAX), 0); /* the record was copied once */
    assert_int_equal(rows_with(b->shard, 2), ROWS);
    assert_int_equal(replay_of(b, b->journal, own, 1), 1); /* without memory it is given up */
    assert_int_equal(rows_with(b->shard, 2), 0);
    bench_free(b);
    free(own);
    free(last);
}

/* The aggregator's process dies in the middle of a message; the next one uses its number. */
static void aggregator_comes_again(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 4; steps++) {
        struct bench *b = opened(asp);
        uint8_t *message = memory(b);
        size_t bytes = lay_out(b, &usual, message);
        send(b, BOX, WEFT_RPC_AGGREGATE, 1, message, bytes);
        for (uint32_t i = 0; i < steps && fake_step(b->net); i++) {
            poll_all(b);
        }
        bool applied = weft_shard_counters(b->shard)->aggregates > 0;
        fake_break(b->net, SHARD, BOX);
        poll_all(b);
        assert_int_equal(rows_with(b->shard, applied ? 2 : 0), ROWS);
        memset(b->net->nodes[BOX].expects, 0, sizeof(b->net->nodes[BOX].expects));
        fake_connect(b->net, SHARD, BOX);
        poll_all(b);
        assert_int_equal(aggregate(b, 1, usual), applied ? WEFT_RPC_SEND_DIRECT : WEFT_RPC_OK);
        assert_int_equal(rows_with(b->shard, 2), ROWS);
        assert_false(weft_shard_busy(b->shard));
        bench_free(b);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t cleared; /* bytes allocated with calloc; linked with --wrap=calloc */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    cleared += count * bytes;
    return __real_calloc(count, bytes);
}

static size_t cleared_for(struct bench *b, uint32_t aggregators)
{
    cleared = 0;
    shard_rig_end(shard_for(b, aggregators));
    return cleared;
}

/* The memory of messages and replies is first touched when used: clearing memory recycled by the C
 * library would touch all of it for every shard. */
static void memory_is_touched_when_used(void **state)
{
    (void)state;
    struct bench *b = calloc(1, sizeof(*b));
    b->net = fake_net_new(1);
    size_t without = cleared_for(b, 0);
    assert_in_range(cleared_for(b, 2) - without, 1, 4 << 20); /* instead of 64 or 73 MiB */
    fake_net_free(b->net);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_once_whichever_way),
        cmocka_unit_test(sizes_are_reported),
        cmocka_unit_test(rates_of_sums_together),
        cmocka_unit_test(rates_of_pieces),
        cmocka_unit_test(a_sum_that_stops_has_no_part),
        cmocka_unit_test(who_is_beside_a_sum_is_not_alone),
        cmocka_unit_test(each_member_has_a_delay),
        cmocka_unit_test(unknown_bases_have_no_delay),
        cmocka_unit_test(a_late_update_is_in_no_sum),
        cmocka_unit_test(members_and_connection_are_active_together),
        cmocka_unit_test(the_other_way_round),
        cmocka_unit_test(begun_direct),
        cmocka_unit_test(clocks_together),
        cmocka_unit_test(who_may),
        cmocka_unit_test(contradicts_itself),
        cmocka_unit_test(a_number_far_ahead_is_refused),
        cmocka_unit_test(an_rpc_id_far_ahead_is_refused),
        cmocka_unit_test(several_clocks),
        cmocka_unit_test(a_late_member_makes_the_step_shorter),
        cmocka_unit_test(weights_are_applied_once),
        cmocka_unit_test(one_member_steps_as_alone),
        cmocka_unit_test(weights_where_none_are),
        cmocka_unit_test(which_tables),
        cmocka_unit_test(bsp_means),
        cmocka_unit_test(the_dead_are_not_in_a_mean),
        cmocka_unit_test(journal),
        cmocka_unit_test(journal_of_a_long_sum),
        cmocka_unit_test(aggregator_comes_again),
        cmocka_unit_test(memory_is_touched_when_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
