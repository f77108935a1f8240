/* Retransmitted pushes count once: after the loss of their reply, after a disconnect in the middle
 * of a push, and at a shard that was restored meanwhile. Also the state that another process of the
 * same rank finds, and the window compared with a simple one. */
#include "ps/snapshot.h"
#include "shard_rig.h"

enum { SHARD = 0, WORKER = 1, OTHER = 2, ROWS = 100 };

struct bench {
    struct fake_net *net;
    struct weft_shard *shard;
    uint32_t rpc_id;
    uint8_t messages[4][(RIG_HEAD_ELEMS + ROWS) *
                        RIG_ELEM_BYTES]; /* by number: several are in flight at a time */
    uint8_t table[WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES];
    uint8_t reply[64];
    struct weft_rpc_reply head;
    uint32_t replies;
};

static struct weft_shard *shard_new(struct bench *b)
{
    struct weft_shard_config config = shard_rig_config(b->net);
    config.tables_max = 3;
    config.push_slots = config.pull_slots = 2;
    return shard_rig_new(b->net, SHARD, &config);
}

static struct bench *bench_new(uint64_t seed)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->net = fake_net_new(seed);
    b->net->packet_bytes = 400; /* 32 elements: 4 chunks */
    b->shard = shard_new(b);
    for (uint32_t n = WORKER; n <= OTHER; n++) {
        b->net->nodes[n].name = weft_rpc_name(WEFT_ROLE_WORKER, n - WORKER);
        b->net->nodes[n].incarnation = 1000 + n;
        fake_connect(b->net, SHARD, n);
    }
    return b;
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
    for (uint32_t n = WORKER; n <= OTHER; n++) {
        while (!b->net->nodes[n].dead && fake_poll(&b->net->nodes[n], &event)) {
            if (event.type == WEFT_EVENT_RECEIVED && event.outcome == WEFT_MSG_COMPLETE) {
                b->replies++;
                assert_int_equal(weft_rpc_reply_unpack(b->reply, sizeof(b->reply), &b->head),
                                 WEFT_OK);
            }
        }
    }
}

/* Run at most this number of steps; true: nothing is in flight. */
static bool run(struct bench *b, uint32_t steps)
{
    for (poll_all(b); steps > 0; steps--) {
        if (!fake_step(b->net)) {
            return true;
        }
        poll_all(b);
    }
    return false;
}

static struct shard_rig_request request_of(struct bench *b, uint8_t op, uint32_t clock)
{
    return (struct shard_rig_request){.tag = {.op = op, .number = clock},
                                      .rpc_id = ++b->rpc_id,
                                      .reply = b->reply,
                                      .reply_bytes = sizeof(b->reply)};
}

static void send(struct bench *b, uint32_t node, uint8_t op, uint32_t clock, void *base,
                 uint32_t total, uint16_t elem_bytes)
{
    struct shard_rig_request r = request_of(b, op, clock);
    const struct weft_rpc_request head = {.rpc_id = r.rpc_id, .worker = node - WORKER};
    weft_rpc_request_pack(&head, base);
    r.base = base;
    r.total = total;
    r.elem_bytes = elem_bytes;
    (void)shard_rig_send(b->net, node, SHARD, &r);
}

/* -1 to each of ids 1 .. ROWS. */
static void push(struct bench *b, uint32_t clock, uint64_t number)
{
    const struct weft_rpc_request head = {.after_seq = (uint32_t)number};
    shard_rig_send_push(b->net, WORKER, SHARD, request_of(b, WEFT_RPC_PUSH, clock), head,
                        b->messages[number % 4], ROWS, -1);
}

static uint32_t declare(struct bench *b, uint32_t node, uint8_t mode, uint16_t workers)
{
    struct weft_table_spec spec = {.dim = 1, .mode = mode, .workers = workers, .learning_rate = 1};
    weft_table_spec_pack(&spec, b->table + WEFT_RPC_REQUEST_BYTES);
    b->replies = 0;
    send(b, node, WEFT_RPC_TABLE, 0, b->table, sizeof(b->table), 1);
    assert_true(run(b, 100));
    assert_int_equal(b->replies, 1);
    assert_int_equal(b->head.status, WEFT_RPC_OK);
    return b->head.rows;
}

static void clock_of(struct bench *b, uint32_t node, uint32_t clock)
{
    uint8_t message[WEFT_RPC_REQUEST_BYTES];
    send(b, node, WEFT_RPC_CLOCK, clock, message, 1, WEFT_RPC_REQUEST_BYTES);
    assert_true(run(b, 100));
}

/* As `declare`, `push` and `clock_of`, for any table. */
static void declare_in(struct bench *b, uint32_t node, uint16_t table, uint8_t mode)
{
    struct weft_table_spec spec = {
        .table = table, .dim = 1, .mode = mode, .workers = 2, .learning_rate = 1};
    struct shard_rig_request r = request_of(b, WEFT_RPC_TABLE, 0);
    const struct weft_rpc_request head = {.rpc_id = r.rpc_id, .worker = node - WORKER};
    weft_rpc_request_pack(&head, b->table);
    weft_table_spec_pack(&spec, b->table + WEFT_RPC_REQUEST_BYTES);
    r.tag.table = table;
    r.base = b->table;
    r.total = sizeof(b->table);
    r.elem_bytes = 1;
    (void)shard_rig_send(b->net, node, SHARD, &r);
    assert_true(run(b, 100));
    assert_int_equal(b->head.status, WEFT_RPC_OK);
}

static void push_begin(struct bench *b, uint16_t table, uint32_t clock, uint64_t number)
{
    const struct weft_rpc_request head = {.after_seq = (uint32_t)number};
    struct shard_rig_request r = request_of(b, WEFT_RPC_PUSH, clock);
    r.tag.table = table;
    shard_rig_send_push(b->net, WORKER, SHARD, r, head, b->messages[number % 4], ROWS, -1);
}

static void push_in(struct bench *b, uint16_t table, uint32_t clock, uint64_t number)
{
    push_begin(b, table, clock, number);
    assert_true(run(b, 1000));
    assert_int_equal(b->head.status, WEFT_RPC_OK);
}

static void clock_in(struct bench *b, uint32_t node, uint16_t table, uint32_t clock)
{
    uint8_t message[WEFT_RPC_REQUEST_BYTES];
    struct shard_rig_request r = request_of(b, WEFT_RPC_CLOCK, clock);
    const struct weft_rpc_request head = {.rpc_id = r.rpc_id, .worker = node - WORKER};
    weft_rpc_request_pack(&head, message);
    r.tag.table = table;
    r.base = message;
    r.total = 1;
    r.elem_bytes = WEFT_RPC_REQUEST_BYTES;
    (void)shard_rig_send(b->net, node, SHARD, &r);
    assert_true(run(b, 100));
}

/* Number of rows that were pushed this many times. */
static uint32_t rows_with(struct bench *b, float value)
{
    return shard_rig_rows_with(b->shard, ROWS, value);
}

/* The connection breaks and is reestablished. */
static void reconnect(struct bench *b, uint64_t incarnation)
{
    fake_kill(b->net, WORKER);
    poll_all(b);
    struct fake_node *node = &b->net->nodes[WORKER];
    node->dead = false;
    node->events_head = node->events_tail = 0;
    memset(node->expects, 0, sizeof(node->expects));
    node->incarnation = incarnation;
    fake_connect(b->net, SHARD, WORKER);
    poll_all(b);
}

static void whole_ones(void **state)
{
    (void)state;
    struct bench *b = bench_new(1);
    declare(b, WORKER, WEFT_TABLE_ASP, 1);
    for (uint32_t i = 0; i < 3; i++) {
        push(b, 1, 1);
        assert_true(run(b, 1000));
        assert_int_equal(b->head.status, WEFT_RPC_OK);
        assert_int_equal(rows_with(b, 1), ROWS);
        if (i == 1) {
            reconnect(b, 1001);
        }
    }
    assert_int_equal(weft_shard_counters(b->shard)->chunks_duplicate, 8);
    push(b, 1, 2);
    assert_true(run(b, 1000));
    assert_int_equal(rows_with(b, 2), ROWS);
    /* Its clock has ended; a repeated message of the push is still not an error. */
    clock_of(b, WORKER, 1);
    push(b, 1, 2);
    assert_true(run(b, 1000));
    assert_int_equal(b->head.status, WEFT_RPC_OK);
    assert_int_equal(rows_with(b, 2), ROWS);
    bench_free(b);
}

/* The connection breaks after any number of steps, and the same process resends: each row counts
 * once. */
static void broken_in_the_middle(void **state)
{
    (void)state;
    uint32_t partial = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct bench *b = bench_new(seed);
        declare(b, WORKER, WEFT_TABLE_ASP, 1);
        push(b, 1, 1);
        run(b, (uint32_t)seed % 6);
        uint32_t before = rows_with(b, 1);
        partial += before > 0 && before < ROWS;
        reconnect(b, 1001);
        push(b, 1, 1);
        assert_true(run(b, 1000));
        assert_int_equal(rows_with(b, 1), ROWS);
        assert_false(weft_shard_busy(b->shard));
        bench_free(b);
    }
    assert_true(partial >= 4);
}

/* The shard dies, and a new one is restored from the cut, which is then kept. */
static void restore(struct bench *b)
{
    struct weft_shard *old = b->shard;
    const struct weft_cut_view *view = weft_shard_cut_view(old);
    uint8_t rows[ROWS * (WEFT_TABLE_RECORD_HEAD + 4)];
    uint16_t table;
    uint32_t used, count;
    fake_kill(b->net, SHARD);
    memset(b->net->nodes[SHARD].expects, 0, sizeof(b->net->nodes[SHARD].expects));
    b->net->nodes[SHARD].events_head = b->net->nodes[SHARD].events_tail = 0;
    b->net->nodes[SHARD].dead = false;
    b->shard = shard_new(b);
    for (uint16_t t = 0; t < view->tables_max; t++) {
        if (view->tables[t].present) {
            assert_int_equal(weft_shard_restore_table(b->shard, &view->tables[t].spec), WEFT_OK);
        }
    }
    poll_all(b); /* supply slabs */
    while ((count = weft_shard_cut_take(old, rows, sizeof(rows), &table)) > 0) {
        assert_int_equal(weft_shard_restore_rows(b->shard, table, rows, count, &used), WEFT_OK);
    }
    for (uint16_t t = 0; t < view->tables_max; t++) {
        if (view->tables[t].present) {
            weft_shard_restore_clocks(b->shard, t, view->tables[t].clocks, 2);
            weft_shard_restore_pushes(b->shard, t, view->tables[t].pushes, 2);
        }
    }
    weft_shard_restore_incarnations(b->shard, view->incarnations, 2);
    for (uint32_t i = 0; i < view->partial_count; i++) {
        assert_int_equal(weft_shard_restore_partial(b->shard, &view->partials[i]), WEFT_OK);
    }
    weft_shard_cut_end(old, true);
    shard_rig_end(old);
}

/* The same with a shard that dies in between and is restored from the snapshot. */
static void restored_in_the_middle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct bench *b = bench_new(seed);
        declare(b, WORKER, WEFT_TABLE_ASP, 1);
        push(b, 1, 1);
        assert_true(run(b, 1000));
        push(b, 1, 2);
        run(b, (uint32_t)seed % 7);
        struct weft_cut_order order = {.now = true, .whole = true, .bytes = 65536};
        void *memory = order.memory = malloc(order.bytes);
        assert_int_equal(weft_shard_cut_begin(b->shard, &order), WEFT_OK);
        push(b, 1, 3);
        assert_true(run(b, 1000)); /* lost with the shard */
        assert_int_equal(rows_with(b, 3), ROWS);

        restore(b);
        free(memory);
        reconnect(b, 1001);
        for (uint64_t number = 1; number <= 3; number++) {
            push(b, 1, number);
            assert_true(run(b, 1000));
            assert_int_equal(b->head.status, WEFT_RPC_OK);
        }
        assert_int_equal(rows_with(b, 3), ROWS);
        bench_free(b);
    }
}

/* Another process: pushes of the previous one stay, and its clock ends. */
static void another_process(void **state)
{
    (void)state;
    struct bench *b = bench_new(5);
    declare(b, WORKER, WEFT_TABLE_BSP, 2);
    clock_of(b, OTHER, 1);
    push(b, 1, 1);
    uint32_t steps = 0;
    while (weft_shard_counters(b->shard)->chunks_applied < 2) {
        run(b, 1);
        assert_true(steps++ < 1000);
    }
    assert_int_equal(weft_shard_clock(b->shard, 0), 0);
    reconnect(b, 1077);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1); /* closed SHORT */
    assert_int_equal(weft_shard_counters(b->shard)->clocks_skipped, 1);
    uint32_t with_half = rows_with(b, 0.5F); /* -1 of one worker, nothing of the other; the mean of
                                              * two */
    assert_in_range(with_half, 1, ROWS - 1);
    assert_int_equal(declare(b, WORKER, WEFT_TABLE_BSP, 2), 1);
    push(b, 2, 1); /* counts from 1 again */
    assert_true(run(b, 1000));
    assert_int_equal(b->head.status, WEFT_RPC_OK);
    clock_of(b, WORKER, 2);
    clock_of(b, OTHER, 2);
    assert_int_equal(rows_with(b, 1), with_half);
    assert_int_equal(rows_with(b, 0.5F), ROWS - with_half);
    bench_free(b);
}

/* A successor takes over the rank after the cut of two tables, one of them in the middle of a push,
 * and before that of the third: the checkpoint has the rank as the successor's, so it must not have
 * pushes of the predecessor, whose numbers the successor uses again. */
static void successor_within_a_cut(void **state)
{
    (void)state;
    static const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_BSP, WEFT_TABLE_ASP};
    struct bench *b = bench_new(9);
    for (uint16_t t = 0; t < 3; t++) {
        declare_in(b, WORKER, t, modes[t]);
        declare_in(b, OTHER, t, modes[t]);
    }
    struct weft_cut_order order = {.clock = 1, .whole = true, .bytes = 65536};
    void *memory = order.memory = malloc(order.bytes);
    assert_int_equal(weft_shard_cut_begin(b->shard, &order), WEFT_OK);
    for (uint16_t t = 0; t < 2; t++) {
        push_in(b, t, 1, 1);
        push_in(b, t, 1, 2);
        clock_in(b, OTHER, t, 1);
    }
    const uint64_t before = weft_shard_counters(b->shard)->chunks_applied;
    push_begin(b, 2, 1, 1);
    while (weft_shard_counters(b->shard)->chunks_applied < before + 2) {
        assert_false(run(b, 1));
    }
    reconnect(b, 1001);
    clock_in(b, WORKER, 0, 1);
    assert_int_equal(weft_shard_clock(b->shard, 0), 1);
    assert_int_equal(weft_shard_cut_state(b->shard), WEFT_CUT_WAITING);
    reconnect(b, 1077); /* its clock of the second table is closed SHORT */
    assert_int_equal(weft_shard_cut_state(b->shard), WEFT_CUT_READY);
    assert_int_equal(weft_shard_cut_view(b->shard)->incarnations[0], 1077);
    assert_int_equal(weft_shard_cut_view(b->shard)->partial_count, 0);
    assert_int_equal(weft_shard_cut_view(b->shard)->tables[2].clocks[0], 1);

    restore(b);
    free(memory);
    reconnect(b, 1077);
    assert_int_equal(rows_with(b, 1), ROWS); /* two pushes of -1; the mean of two workers */
    for (uint16_t t = 0; t < 3; t++) {
        declare_in(b, WORKER, t, modes[t]);
        push_in(b, t, 2, 1);
    }
    clock_in(b, WORKER, 0, 2);
    fake_connect(b->net, SHARD, OTHER);
    clock_in(b, OTHER, 0, 2);
    assert_int_equal(weft_shard_clock(b->shard, 0), 2);
    assert_int_equal(rows_with(b, 1.5F), ROWS);
    assert_int_equal(weft_shard_counters(b->shard)->chunks_duplicate, 0);
    bench_free(b);
}

/* The window compared with a list of all closed numbers. */
static void window(void **state)
{
    (void)state;
    enum { NUMBERS = 6000 };
    static bool closed[NUMBERS];
    struct weft_prng prng;
    struct weft_push_window once = {0};
    uint64_t oldest = 1;
    weft_prng_init(&prng, 3);
    while (oldest + WEFT_PUSH_WINDOW_SPAN < NUMBERS) {
        uint64_t number = oldest + weft_prng_below(&prng, WEFT_PUSH_WINDOW_SPAN);
        assert_int_equal(weft_push_window_number(&once, (uint8_t)number), number);
        weft_push_window_open(&once, number);
        assert_int_equal(weft_push_window_test(&once, number), closed[number]);
        if (weft_prng_below(&prng, 3) > 0) {
            weft_push_window_close(&once, number);
            closed[number] = true;
        }
        while (closed[oldest]) {
            oldest++;
        }
        assert_int_equal(weft_push_window_prefix(&once), oldest - 1);
        uint64_t any = 1 + weft_prng_below(&prng, oldest + WEFT_PUSH_WINDOW_SPAN - 1);
        assert_int_equal(weft_push_window_test(&once, any), closed[any]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_ones),
        cmocka_unit_test(broken_in_the_middle),
        cmocka_unit_test(restored_in_the_middle),
        cmocka_unit_test(another_process),
        cmocka_unit_test(successor_within_a_cut),
        cmocka_unit_test(window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
