/* A shard and handmade requests of a worker: refused requests get replies and change no
 * parameter. */
#include "ps/layout.h"
#include "shard_bench.h"

static void pushes_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), WEFT_RPC_UNKNOWN_TABLE);
    assert_int_equal(b->refused, 1);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, push_of(b, 1, UINT64_MAX, -3)), WEFT_RPC_OK);
    assert_int_equal(b->refused, 0);
    assert_true(weight(b, UINT64_MAX) == 3);
    bench_free(b);
}

/* Each request: a valid push with one error. */
static void hostile_pushes(void **state)
{
    (void)state;
    struct bench *b = bench_new(2);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    struct request r = push_of(b, 1, 7, -1);
    r.head.worker = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_WRONG_WORKER);
    r = push_of(b, 1, 7, -1);
    r.head.rows = 2; /* false */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 1, 7, -1);
    r.elem_bytes = 16; /* another dim */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = push_of(b, 0, 7, -1); /* clock 0 is finished from the beginning */
    assert_int_equal(ask(b, r), WEFT_RPC_STALE_CLOCK);
    r = push_of(b, 1, 7, -1);
    r.table = 1;
    assert_int_equal(ask(b, r), WEFT_RPC_UNKNOWN_TABLE);
    r.table = 60000;
    r.head.rpc_id = ++b->rpc_id;
    assert_int_equal(ask(b, r), WEFT_RPC_UNKNOWN_TABLE);
    r = push_of(b, 1, 7, __builtin_inff());
    assert_int_equal(ask(b, r), WEFT_RPC_NOT_FINITE);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_refused, 7);
    /* No head, no reply; and the slot is freed, otherwise the last of these would find none. */
    for (int i = 0; i < 5; i++) {
        r = push_of(b, 1, 7, -1);
        r.head.rpc_id = 0;
        assert_int_equal(ask(b, r), -1);
        assert_true(b->sent && b->refused == 1);
        r = push_of(b, 1, 7, -1);
        r.total = 3; /* cut inside the head */
        assert_int_equal(ask(b, r), -1);
        assert_true(b->sent && b->refused == 1);
    }
    /* A worker beyond the table's number of workers. */
    r = push_of(b, 1, 7, -1);
    r.head.worker = 1;
    assert_int_equal(ask_from(b, OTHER, r), WEFT_RPC_WRONG_WORKER);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_applied, 0);
    assert_true(weight(b, 7) == 0);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
}

static int clock_by(struct bench *b, uint32_t node, uint32_t worker, uint32_t clock)
{
    struct request r = {WEFT_RPC_CLOCK, 0, clock, 40, 1, head_of(b, 0)};
    r.head.worker = worker;
    assert_int_equal(ask_from(b, node, r), -1);
    assert_true(b->sent);
    return (int)b->refused;
}

static int clock_upto(struct bench *b, uint32_t clock)
{
    struct request r = {WEFT_RPC_CLOCK, 0, clock, 40, 1, head_of(b, 0)};
    r.head.flags = WEFT_RPC_UPTO;
    (void)ask_from(b, WORKER, r);
    return (int)b->refused;
}

static int park(struct bench *b, uint32_t node, uint32_t lease_ms, uint32_t flags)
{
    struct request r = {WEFT_RPC_CLOCK, 0, lease_ms, 40, 1, head_of(b, 0)};
    r.head.worker = node - WORKER;
    r.head.flags = flags;
    assert_int_equal(ask_from(b, node, r), -1);
    assert_true(b->sent);
    return (int)b->refused;
}

static uint64_t parked(const struct bench *b)
{
    struct weft_shard_gauges gauges;
    weft_shard_gauges(b->shard, b->net->now_ns, WEFT_NS_PER_S, &gauges);
    return gauges.workers_parked;
}

static void later(struct bench *b, uint64_t span_ns)
{
    b->net->now_ns += span_ns;
    bench_run(b);
}

/* PARK: refusals, and how long a rank stays alive after an accepted one. */
static void parking(void **state)
{
    (void)state;
    struct bench *b = bench_new(3);
    declare(b, 0, 1, WEFT_TABLE_ASP, 2);
    assert_int_equal(park(b, WORKER, 1000, WEFT_RPC_PARK), 1); /* the shard has no aggregators */
    bench_free(b);
    b = bench_new(3);
    struct weft_shard_config config = shard_rig_config(b->net);
    config.on_death = WEFT_DEATH_FAIL;
    config.aggregators_max = 1;
    shard_rig_end(b->shard);
    b->shard = shard_rig_new(b->net, SHARD, &config);
    const struct weft_shard_counters *counters = weft_shard_counters(b->shard);
    assert_int_equal(park(b, WORKER, 1000, WEFT_RPC_PARK), 1); /* no table */
    declare(b, 0, 1, WEFT_TABLE_ASP, 2);
    assert_int_equal(park(b, WORKER, 0, WEFT_RPC_PARK), 1);
    assert_int_equal(park(b, WORKER, WEFT_RPC_PARK_MS_MAX + 1, WEFT_RPC_PARK), 1);
    assert_int_equal(park(b, WORKER, 1000, WEFT_RPC_PARK | WEFT_RPC_UPTO), 1);
    assert_int_equal(park(b, WORKER, 1000, WEFT_RPC_PARK | WEFT_RPC_CUT), 1);
    assert_int_equal(counters->clocks_refused, 5);
    assert_int_equal(counters->clocks, 0);
    fake_break(b->net, SHARD, OTHER); /* it has not parked */
    bench_run(b);
    assert_int_equal(parked(b), 0);
    assert_int_equal(park(b, WORKER, 1000, WEFT_RPC_PARK), 0);
    assert_int_equal(parked(b), 0);
    fake_break(b->net, SHARD, WORKER);
    later(b, WEFT_NS_PER_S / 2);
    assert_int_equal(parked(b), 1);
    fake_connect(b->net, SHARD, WORKER); /* a new connection ends the lease */
    bench_run(b);
    assert_int_equal(parked(b), 0);
    assert_int_equal(park(b, WORKER, WEFT_RPC_PARK_MS_MAX, WEFT_RPC_PARK), 0);
    later(b, 61 * WEFT_NS_PER_S); /* no request arrived before its connection ended */
    fake_break(b->net, SHARD, WORKER);
    bench_run(b);
    assert_int_equal(parked(b), 0);
    assert_int_equal(counters->workers_parked, 1);
    assert_int_equal(counters->workers_overdue, 0);
    uint32_t rank = 99;
    assert_true(weft_shard_has_lost(b->shard, &rank));
    assert_int_equal(rank, 0);
    bench_free(b);
}

/* A worker that claims to be far ahead does not make rows of other workers expire, now or later. */
static void one_worker_does_not_move_time(void **state)
{
    (void)state;
    struct bench *b = bench_new(3);
    struct weft_table_spec spec = {.table = 0,
                                   .dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 2,
                                   .learning_rate = 1,
                                   .eviction = WEFT_EVICTION_TTL,
                                   .ttl = 5};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 1, 7, -4)), WEFT_RPC_OK);
    assert_int_equal(clock_upto(b, WEFT_RPC_CLOCK_MAX), 0);
    assert_true(weight(b, 7) == 2);
    assert_int_equal(ask(b, push_of(b, WEFT_RPC_CLOCK_MAX + 1, 8, -4)), WEFT_RPC_BAD_REQUEST);
    for (uint32_t clock = 1; clock <= 5; clock++) {
        assert_int_equal(clock_by(b, OTHER, 1, clock), 0);
        assert_true(weight(b, 7) == 2);
    }
    assert_int_equal(clock_by(b, OTHER, 1, 6), 0); /* the other worker's clocks count */
    assert_true(weight(b, 7) == 0);
    bench_free(b);
}

static void clocks_go_by_one(void **state)
{
    (void)state;
    struct bench *b = bench_new(3);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 1); /* no table */
    declare(b, 0, 1, WEFT_TABLE_BSP, 2);
    assert_int_equal(clock_by(b, WORKER, 0, 2), 1);
    assert_int_equal(clock_by(b, WORKER, 1, 1), 1); /* not the sender's rank */
    assert_int_equal(clock_by(b, WORKER, 0, 0), 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -4)), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 2, 7, -100)), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 0);
    assert_int_equal(clock_by(b, WORKER, 0, 1), 0); /* repeated: no effect */
    assert_int_equal(weft_shard_counters(b->shard)->clocks_duplicate, 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -100)), WEFT_RPC_STALE_CLOCK);
    assert_int_equal(ask(b, push_of(b, 2, 7, -100)), WEFT_RPC_EARLY_CLOCK);
    assert_int_equal(weft_shard_clock(b->shard, 0), 0);
    assert_true(weight(b, 7) == 0);
    assert_int_equal(clock_by(b, OTHER, 1, 1), 0);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1);
    assert_true(weight(b, 7) == 2);
    assert_int_equal(weft_shard_counters(b->shard)->clocks, 2);
    assert_int_equal(weft_shard_counters(b->shard)->clocks_refused, 4);
    assert_int_equal(clock_upto(b, 10), 0); /* many at once, if the flag is set */
    assert_int_equal(clock_upto(b, 9), 0);
    assert_int_equal(weft_shard_counters(b->shard)->clocks_duplicate, 2);
    assert_int_equal(clock_upto(b, WEFT_RPC_CLOCK_MAX + 1), 1);
    assert_int_equal(clock_by(b, WORKER, 0, 12), 1);
    assert_int_equal(clock_by(b, WORKER, 0, 11), 0);
    /* A CLOCK of another shape. */
    struct request r = {WEFT_RPC_CLOCK, 0, 2, 40, 2, head_of(b, 0)};
    assert_int_equal(ask(b, r), -1);
    assert_int_equal(b->refused, 1);
    bench_free(b);
}

static struct request pull_of(struct bench *b, uint32_t n)
{
    memset(b->message, 0, BYTES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        weft_ps_store_id(b->message + 40 + i * 8, WEFT_RPC_ID_WIDE, 0, i);
    }
    return (struct request){WEFT_RPC_PULL, 0, 0, 8, 5 + n, head_of(b, n)};
}

static void pulls_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_new(4);
    assert_int_equal(ask(b, pull_of(b, 3)), WEFT_RPC_UNKNOWN_TABLE);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    assert_int_equal(ask(b, push_of(b, 1, 2, -5)), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 400)), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 400);
    for (uint32_t i = 0; i < 400; i++) {
        float value;
        memcpy(&value, b->reply + 56 + i * 4, 4);
        assert_true(value == (i == 2 ? 5 : 0));
    }
    assert_int_equal(weft_shard_counters(b->shard)->rows_absent, 399);
    assert_int_equal(ask(b, pull_of(b, 401)), WEFT_RPC_TOO_LARGE);
    assert_int_equal(b->head.rows, 0);
    struct request r = pull_of(b, 10);
    r.head.rows = 9;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.elem_bytes = 12;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.head.after_seq = r.head.rpc_id; /* after itself */
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 10);
    r.head.after_seq = r.head.rpc_id + 1;
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r = pull_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    r = pull_of(b, 2);
    assert_int_equal(ask(b, r), WEFT_RPC_OK);
    assert_int_equal(b->head.rows, 2);
    bench_free(b);
}

/* Packets that fit ids and heads, but no row of 64 floats. */
static void rows_larger_than_a_packet(void **state)
{
    (void)state;
    struct bench *b = bench_new(9);
    declare(b, 0, 64, WEFT_TABLE_ASP, 1);
    b->net->packet_bytes = 200;
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_TOO_LARGE);
    b->net->packet_bytes = 256;
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_OK);
    bench_free(b);
}

/* A pull that names a push that has not arrived waits for it; it occupies only its own slot. */
static void pull_waits_for_its_push(void **state)
{
    (void)state;
    struct bench *b = bench_new(5);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    uint32_t push_id = b->rpc_id + 1;
    b->rpc_id++;
    struct request r = pull_of(b, 8);
    r.head.after_seq = push_id;
    static uint8_t kept[BYTES_MAX];
    assert_int_equal(ask(b, r), -1);
    assert_true(b->sent && weft_shard_busy(b->shard));
    assert_int_equal(weft_shard_counters(b->shard)->waits, 1);
    memcpy(kept, b->message, sizeof(kept));
    /* ask() has cancelled the reply's expectation; post it again. */
    struct weft_msg_expect expect = {
        .peer = fake_peer(SHARD),
        .memory = kept,
        .memory_bytes = sizeof(kept),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .tag_mask = UINT64_MAX,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){0x82, 0, r.head.rpc_id, 0})};
    weft_expect_id id;
    assert_int_equal(b->worker.ops->expect(b->worker.self, &expect, &id), WEFT_OK);
    struct request push = push_of(b, 1, 2, -5);
    push.head.rpc_id = push_id;
    b->rpc_id--;
    /* Two replies arrive now; bench_run keeps the head of one of them. */
    weft_rpc_request_pack(&push.head, b->message);
    struct weft_msg_send send = {.peer = fake_peer(SHARD),
                                 .base = b->message,
                                 .total = 5,
                                 .elem_bytes = 12,
                                 .critical = 1,
                                 .deadline_ns = WEFT_NEVER,
                                 .tag = weft_rpc_tag_pack((struct weft_rpc_tag){1, 0, 1, 0})};
    struct weft_msg_expect push_reply = expect;
    push_reply.memory = b->reply;
    push_reply.memory_bytes = sizeof(b->reply);
    push_reply.tag = weft_rpc_tag_pack((struct weft_rpc_tag){0x81, 0, push_id, 0});
    assert_int_equal(b->worker.ops->expect(b->worker.self, &push_reply, &id), WEFT_OK);
    uint64_t seq;
    assert_int_equal(b->worker.ops->send(b->worker.self, &send, 0, &seq), WEFT_OK);
    weft_rpc_reply_pack(&(struct weft_rpc_reply){.rpc_id = 1}, b->reply);
    bench_run(b);
    struct weft_rpc_reply head;
    assert_int_equal(weft_rpc_reply_unpack(kept, sizeof(kept), &head), WEFT_OK);
    assert_int_equal(head.rpc_id, r.head.rpc_id);
    assert_int_equal(head.status, WEFT_RPC_OK);
    assert_true(head.ps_wait_ns > 0);
    float value;
    memcpy(&value, kept + 56 + 2 * 4, 4);
    assert_true(value == 5);
    assert_false(weft_shard_busy(b->shard));
    bench_free(b);
}

static void bad_tables(void **state)
{
    (void)state;
    struct bench *b = bench_new(6);
    struct weft_table_spec spec = {.table = 0, .dim = 1, .workers = 1, .learning_rate = 1};
    struct request r = {WEFT_RPC_TABLE, 0, 0, 1, TABLE_BYTES, {0}};
    r.head = head_of(b, 0);
    memset(b->message, 0, TABLE_BYTES);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC); /* dim 0 */
    weft_table_spec_pack(&spec, b->message + 40);
    r.table = 2; /* tables 0 and 1 exist */
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC);
    r.table = 0;
    r.total = TABLE_BYTES - 1;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    r.total = TABLE_BYTES + 1;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_REQUEST);
    spec.dim = 65; /* dim_max is 64 */
    weft_table_spec_pack(&spec, b->message + 40);
    r.total = TABLE_BYTES;
    r.head = head_of(b, 0);
    assert_int_equal(ask(b, r), WEFT_RPC_BAD_SPEC);
    assert_null(weft_shard_table(b->shard, 0));
    spec.dim = 64;
    weft_table_spec_pack(&spec, b->message + 40);
    for (int i = 0; i < 3; i++) { /* a repetition is allowed */
        r.head = head_of(b, 0);
        assert_int_equal(ask(b, r), WEFT_RPC_OK);
    }
    assert_non_null(weft_shard_table(b->shard, 0));
    bench_free(b);
}

/* ---- what a table may ask for ---------------------------------------------------------------- */

/* Two rows of dim 2 in one chunk: head of 3 elements, ids 1 and 2, blocks. */
static struct request push_two(struct bench *b, const float *values)
{
    memset(b->message, 0, 80);
    weft_ps_store_id(b->message + 48, WEFT_RPC_ID_WIDE, 0, 1);
    weft_ps_store_id(b->message + 56, WEFT_RPC_ID_WIDE, 0, 2);
    memcpy(b->message + 64, values, 16);
    return (struct request){WEFT_RPC_PUSH, 0, 1, 16, 5, head_of(b, 2)};
}

static void weights_are(struct bench *b, uint64_t id, float first, float second)
{
    float row[2] = {0};
    (void)weft_table_read(weft_shard_table(b->shard, 0), id, row);
    if (row[0] != first || row[1] != second) {
        fail_msg("row %u is %g %g", (unsigned)id, (double)row[0], (double)row[1]);
    }
}

static void what_is_not_finite(void **state)
{
    (void)state;
    const float inf = __builtin_inff(), nan = __builtin_nanf("");
    const float values[4] = {1, -inf, nan, 5};
    const float second[4] = {1, 2, 0, 5};
    for (uint8_t policy = WEFT_NOT_FINITE_REJECT; policy <= WEFT_NOT_FINITE_DROP; policy++) {
        struct bench *b = bench_new(20);
        struct weft_table_spec spec = asp_spec(2);
        spec.not_finite = policy;
        spec.clip = policy == WEFT_NOT_FINITE_CLIP ? 3 : 0;
        assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
        int wanted = policy == WEFT_NOT_FINITE_REJECT ? WEFT_RPC_NOT_FINITE : WEFT_RPC_OK;
        assert_int_equal(ask(b, push_two(b, values)), wanted);
        assert_int_equal(b->refused, policy == WEFT_NOT_FINITE_REJECT);
        struct weft_shard_table_sums sums;
        weft_shard_table_sums(b->shard, &sums);
        assert_int_equal(sums.not_finite, policy == WEFT_NOT_FINITE_REJECT ? 0 : 2);
        if (policy == WEFT_NOT_FINITE_CLIP) {
            weights_are(b, 1, -1, 3);
            weights_are(b, 2, 0, -3); /* finite ones are clipped, too */
        } else {
            weights_are(b, 1, 0, 0);
            weights_are(b, 2, 0, 0);
        }
        /* no effect of the earlier push remains */
        assert_int_equal(ask(b, push_two(b, second)), WEFT_RPC_OK);
        if (policy == WEFT_NOT_FINITE_DROP) {
            weights_are(b, 1, -1, -2);
            weights_are(b, 2, 0, -5);
            const float half[4] = {inf, 1, 1, 1};
            assert_int_equal(ask(b, push_two(b, half)), WEFT_RPC_OK);
            weights_are(b, 1, -1, -2);
            weights_are(b, 2, -1, -6);
        }
        bench_free(b);
    }
}

static void tables_say_what_they_count(void **state)
{
    (void)state;
    struct bench *b = bench_new(21);
    struct weft_table_spec spec = asp_spec(2);
    spec.admission = WEFT_ADMISSION_COUNTER;
    spec.admission_count = 2;
    spec.admission_cells = 64;
    spec.eviction = WEFT_EVICTION_LRU;
    spec.rows_max = 1;
    const float values[4] = {1, 1, 1, 1};
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    struct weft_shard_table_sums sums;
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_OK);
    weft_shard_table_sums(b->shard, &sums);
    assert_int_equal(sums.unadmitted, 2);
    assert_int_equal(sums.rows, 0);
    assert_int_equal(weft_shard_counters(b->shard)->elements_applied, 0);
    /* Both are admitted now, but a chunk cannot create two rows if only one fits. */
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_FULL);
    spec.rows_max = 2;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_SPEC_MISMATCH);
    weft_shard_table_sums(b->shard, &sums);
    assert_int_equal(sums.rows, 1);
    assert_int_equal(sums.rows_created, 1);
    assert_int_equal(sums.bytes, 64 * 16 + 64 + 32); /* cells, index, one row of 24 + 8 */
    bench_free(b);
}

/* A table whose requirements exceed the server's limits is refused. */
static void limits_of_the_server(void **state)
{
    (void)state;
    struct bench *b = bench_new(22);
    struct weft_table_spec spec = asp_spec(2);
    spec.kind = WEFT_TABLE_DENSE;
    spec.length = 2 * 1000 + 1; /* rows_max is 1,000 */
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_BAD_SPEC);
    assert_null(weft_shard_table(b->shard, 0));
    spec.length = 2 * 1000;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(weft_table_rows(weft_shard_table(b->shard, 0)), 1000);
    spec = asp_spec(2);
    spec.table = 1;
    spec.bytes_max = 50;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_BAD_SPEC);
    bench_free(b);
}

static void dense_blocks(void **state)
{
    (void)state;
    struct bench *b = bench_new(23);
    struct weft_table_spec spec = asp_spec(2);
    spec.kind = WEFT_TABLE_DENSE;
    spec.length = 5;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    const float values[4] = {1, 2, 3, 4};
    assert_int_equal(ask(b, push_two(b, values)), WEFT_RPC_OK);
    weights_are(b, 1, -1, -2);
    weights_are(b, 2, -3, -4);
    struct request r = push_two(b, values);
    weft_ps_store_id(b->message + 56, WEFT_RPC_ID_WIDE, 0, 3); /* beyond the end */
    assert_int_equal(ask(b, r), WEFT_RPC_WRONG_SHARD);
    assert_int_equal(b->refused, 1);
    weights_are(b, 1, -1, -2);
    assert_int_equal(ask(b, pull_of(b, 3)), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 4)), WEFT_RPC_WRONG_SHARD);
    bench_free(b);
}

/* A gradient of clock 1 while another worker is in clock 4: t 4, delay 3, a = 4 / 7. */
static void a_late_gradient_counts_less(void **state)
{
    (void)state;
    struct bench *b = bench_new(24);
    struct weft_table_spec spec = asp_spec(1);
    spec.workers = 2;
    spec.optimizer = WEFT_OPTIMIZER_ADADELAY;
    spec.epsilon = 1e-30F;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, push_of(b, 1, 5, -8)), WEFT_RPC_OK);
    assert_true(weight(b, 5) == 1); /* g / sqrt(g^2) */
    for (uint32_t clock = 1; clock <= 3; clock++) {
        assert_int_equal(clock_by(b, OTHER, 1, clock), 0);
    }
    assert_int_equal(ask(b, push_of(b, 1, 6, -8)), WEFT_RPC_OK);
    /* s = 16 a, step = 4 / sqrt(s / a). */
    assert_true(__builtin_fabsf(weight(b, 6) - 1) < 1e-6F);
    assert_int_equal(ask(b, push_of(b, 1, 5, -8)), WEFT_RPC_OK);
    /* s = 16 + 16 a; step = 4 / sqrt(s / a) = 4 / sqrt(44). */
    assert_true(__builtin_fabsf(weight(b, 5) - 1 - 0.60302269F) < 1e-6F);
    bench_free(b);
}

/* Elements that fit packets of 256 bytes, padding at the end of each row. */
static void rows_cut_short(void **state)
{
    (void)state;
    struct bench *b = bench_new(25);
    b->net->packet_bytes = 256;
    struct weft_table_spec spec = asp_spec(64);
    spec.block_floats = 40;
    spec.init_scale = 1;
    assert_int_equal(declare_spec(b, &spec), WEFT_RPC_OK);
    assert_int_equal(ask(b, pull_of(b, 2)), WEFT_RPC_OK);
    float out[64], zeros[16] = {0};
    for (uint64_t id = 0; id < 2; id++) {
        (void)weft_table_read(weft_shard_table(b->shard, 0), id, out);
        const uint8_t *row = b->reply + 160 + id * 2 * 160; /* head: one element of 40 floats */
        assert_memory_equal(row, out, sizeof(out));
        assert_memory_equal(row + 256, zeros, sizeof(zeros));
    }
    bench_free(b);
}

static void strangers_get_no_memory(void **state)
{
    (void)state;
    struct bench *b = bench_new(7);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    static const uint64_t names[] = {0, 0x100000000, 0x200000002, 0x300000000};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        b->net->nodes[3].name = names[i];
        fake_connect(b->net, SHARD, 3);
        assert_int_equal(ask_from(b, 3, push_of(b, 1, 7, -1)), -1);
        assert_false(b->sent);
    }
    assert_int_equal(weft_shard_counters(b->shard)->peers_ignored, 4);
    assert_true(weight(b, 7) == 0);
    bench_free(b);
}

/* The same rank reconnects while the old connection is alive: the newer one is used. */
static void a_rank_is_replaced(void **state)
{
    (void)state;
    struct bench *b = bench_new(8);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    b->net->nodes[3].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    fake_connect(b->net, SHARD, 3);
    bench_run(b);
    assert_int_equal(weft_shard_counters(b->shard)->workers_replaced, 1);
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), -1);
    assert_false(b->sent);
    uint32_t live = 0;
    for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
        const struct posted *e = &b->net->nodes[SHARD].expects[i];
        assert_false(e->live && e->expect.peer == fake_peer(WORKER));
        live += e->live && e->expect.peer == fake_peer(3);
    }
    assert_int_equal(live, 2 + 2 + 1 + 1 + 1);
    bench_free(b);
}

/* A replaced process, for instance one that hung, does not get its rank back. */
static void who_was_replaced_stays_out(void **state)
{
    (void)state;
    struct bench *b = bench_new(8);
    weft_peer closed;
    bool for_good;
    fake_break(b->net, SHARD, OTHER);
    b->net->nodes[WORKER].incarnation = 100;
    b->net->nodes[OTHER].incarnation = 200;
    b->net->nodes[OTHER].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    declare(b, 0, 1, WEFT_TABLE_ASP, 1);
    while (weft_shard_take_replaced(b->shard, &closed, &for_good)) {
    }
    fake_connect(b->net, SHARD, OTHER);
    bench_run(b);
    assert_true(weft_shard_take_replaced(b->shard, &closed, &for_good) && for_good);
    assert_int_equal(closed, fake_peer(WORKER));
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    assert_true(weft_shard_take_replaced(b->shard, &closed, &for_good) && for_good);
    assert_int_equal(closed, fake_peer(WORKER));
    assert_int_equal(ask(b, push_of(b, 1, 7, -1)), -1);
    assert_int_equal(ask_from(b, OTHER, push_of(b, 1, 7, -1)), WEFT_RPC_OK);
    fake_break(b->net, SHARD,
               OTHER); /* the other worker leaves: its push records are dropped nevertheless */
    fake_connect(b->net, SHARD, WORKER);
    bench_run(b);
    assert_int_equal(ask(b, push_of(b, 2, 7, -1)), -1);
    fake_connect(b->net, SHARD, OTHER);
    bench_run(b);
    assert_int_equal(ask_from(b, OTHER, push_of(b, 2, 7, -1)), WEFT_RPC_OK);
    bench_free(b);
}

static void limits_are_checked(void **state)
{
    (void)state;
    struct weft_shard_config good, bad;
    weft_shard_config_default(&good);
    struct fake_net *net = fake_net_new(1);
    good.clock_ns = fake_clock_ns;
    good.clock_arg = net;
    struct weft_shard *shard;
#define BAD(field, value)                                                                          \
    bad = good;                                                                                    \
    bad.field = value;                                                                             \
    assert_int_equal(weft_shard_new(&bad, fake_msgr(net, 0), &shard), WEFT_INVALID)
    BAD(shard, 1);
    BAD(workers_max, 0);
    BAD(workers_max, 65536);
    BAD(tables_max, 0);
    BAD(rows_max, 0);
    BAD(dim_max, 1025);
    BAD(push_slots, 0);
    BAD(pull_slots, 60);
    BAD(rows_per_rpc_max, 0);
    BAD(slab_bytes, 0);
    BAD(clock_ns, NULL);
#undef BAD
    assert_int_equal(weft_shard_expects_max(&good), 16 * (8 + 4 + 3));
    fake_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_by_hand),
        cmocka_unit_test(hostile_pushes),
        cmocka_unit_test(one_worker_does_not_move_time),
        cmocka_unit_test(clocks_go_by_one),
        cmocka_unit_test(pulls_by_hand),
        cmocka_unit_test(rows_larger_than_a_packet),
        cmocka_unit_test(pull_waits_for_its_push),
        cmocka_unit_test(bad_tables),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(tables_say_what_they_count),
        cmocka_unit_test(limits_of_the_server),
        cmocka_unit_test(dense_blocks),
        cmocka_unit_test(a_late_gradient_counts_less),
        cmocka_unit_test(rows_cut_short),
        cmocka_unit_test(parking),
        cmocka_unit_test(strangers_get_no_memory),
        cmocka_unit_test(a_rank_is_replaced),
        cmocka_unit_test(who_was_replaced_stays_out),
        cmocka_unit_test(limits_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
