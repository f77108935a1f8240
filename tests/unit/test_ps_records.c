/* Each of the seven durations of an RPC is validated by a delay of known size that is injected at
 * one place only. The test uses real clients, a real shard and real endpoints on virtual time,
 * where everything else takes no time. So a duration equals the injected delay, or the test fails.
 *
 * Every node has a clock that a round of progress can delay: a delay in the middle of the round
 * advances the clock, and packets of the node are sent that much later. Packets that arrive
 * meanwhile wait with their arrival timestamp, as in a socket's buffer. */
#include "../lib/datagram_net.h"
#include "ps/client.h"
#include "ps/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SERVER = 0, WORKERS = 2, NODES = 1 + WORKERS, RING = 256, DIM = 4 };

#define LINK_NS  (100 * WEFT_NS_PER_US)
#define DELAY_NS (700 * WEFT_NS_PER_US)

static_assert((int)NODES <= (int)ENDS_MAX);

struct rig;

/* End n of the network. */
struct node {
    struct rig *rig;
    uint64_t now_ns;  /* time inside a round; between rounds, the end of the last one */
    uint64_t late_ns; /* injected: delay from the first datagram's arrival to the round */
};

struct rig {
    struct net net; /* first member; its clock is that of the node whose round runs */
    struct node nodes[NODES];
    struct weft_shard *shard;
    struct weft_ps_client *clients[WORKERS];
    struct weft_rpc_record_ring *ring[NODES];
    uint64_t now_ns; /* start of the last round */
    /* Injected: */
    uint64_t apply_ns; /* in the apply path: per chunk applied and per pull read */
    uint64_t applied;  /* number of delayed ones */
    uint64_t hand_ns;  /* in the worker, between receiving a reply and delivering it */
    uint32_t asked;    /* number of clock readings in this event */
    bool in_answer;
};

/* ---- clocks, with the delays that happen in the middle of work ------------------------------- */

/* The clock is read before and after the work; a changed counter shows that work was done. */
static uint64_t server_clock_ns(void *arg)
{
    struct node *node = arg;
    struct rig *rig = node->rig;
    if (rig->shard != NULL) {
        const struct weft_shard_counters *counters = weft_shard_counters(rig->shard);
        uint64_t applied = counters->chunks_applied + counters->rows_pulled;
        node->now_ns += applied > rig->applied ? rig->apply_ns : 0;
        rig->applied = applied;
    }
    return node->now_ns;
}

/* The clock is read when a reply is received, and again when it is delivered. */
static uint64_t worker_clock_ns(void *arg)
{
    struct node *node = arg;
    if (node->rig->in_answer && ++node->rig->asked == 2) {
        node->now_ns += node->rig->hand_ns;
    }
    return node->now_ns;
}

/* ---- rounds of progress ---------------------------------------------------------------------- */

static void on_event(struct net *net, uint32_t n, const struct weft_msg_event *event)
{
    struct rig *rig = (struct rig *)net;
    struct node *node = &rig->nodes[n];
    if (n == SERVER) {
        weft_shard_event(rig->shard, event, node->now_ns);
    } else {
        rig->in_answer = event->type == WEFT_EVENT_RECEIVED;
        rig->asked = 0;
        weft_ps_client_event(rig->clients[n - 1], event, node->now_ns);
        rig->in_answer = false;
    }
}

static void finish_round(struct rig *rig, uint32_t n)
{
    struct node *node = &rig->nodes[n];
    uint16_t table;
    size_t bytes;
    if (n == SERVER) {
        weft_shard_progress(rig->shard, node->now_ns);
        while (weft_shard_wants_slab(rig->shard, &table, &bytes)) {
            assert_int_equal(weft_shard_add_slab(rig->shard, table, malloc(bytes), bytes), 0);
        }
    } else {
        weft_ps_client_progress(rig->clients[n - 1], node->now_ns);
    }
    rig->net.now_ns = node->now_ns;
    net_pump_end(&rig->net, n);
}

static const struct net_datagram *first_for(const struct rig *rig, uint32_t n)
{
    for (uint32_t i = 0; i < rig->net.queued; i++) {
        if (rig->net.queue[i].to_end == n) {
            return &rig->net.queue[i];
        }
    }
    return NULL;
}

static uint64_t next_round_ns(const struct rig *rig, uint32_t n)
{
    const struct node *node = &rig->nodes[n];
    const struct net_datagram *first = first_for(rig, n);
    uint64_t at_ns = weft_ep_deadline(rig->net.end[n].ep);
    if (first != NULL && first->due_ns <= at_ns) {
        at_ns = first->due_ns + node->late_ns; /* a timer that fires meanwhile is delayed, too */
    }
    return weft_max_u64(at_ns, node->now_ns);
}

static void progress_at(struct rig *rig, uint32_t n, uint64_t at_ns)
{
    struct node *node = &rig->nodes[n];
    struct weft_ep *ep = rig->net.end[n].ep;
    node->now_ns = at_ns;
    for (const struct net_datagram *first;
         (first = first_for(rig, n)) != NULL && first->due_ns <= at_ns;) {
        struct net_datagram d = net_dequeue(&rig->net, (uint32_t)(first - rig->net.queue));
        rig->net.now_ns = node->now_ns; /* an event may have delayed it */
        net_deliver_at(&rig->net, &rig->net.end[n], &d.from, WEFT_ECN_ECT0, d.data, d.bytes,
                       d.due_ns);
        free(d.data);
    }
    if (weft_ep_deadline(ep) <= node->now_ns) {
        weft_ep_on_deadline(ep, node->now_ns);
        net_drain(&rig->net, n);
    }
    finish_round(rig, n);
}

/* The next node to run; false: none until then. */
static bool round_step(struct rig *rig, uint64_t until_ns)
{
    uint32_t next = 0;
    for (uint32_t n = 1; n < NODES; n++) {
        next = next_round_ns(rig, n) < next_round_ns(rig, next) ? n : next;
    }
    uint64_t at_ns = next_round_ns(rig, next);
    if (at_ns > until_ns) {
        return false;
    }
    rig->now_ns = weft_max_u64(rig->now_ns, at_ns);
    progress_at(rig, next, at_ns);
    return true;
}

static void run_until(struct rig *rig, uint64_t until_ns)
{
    while (round_step(rig, until_ns)) {
    }
    rig->now_ns = weft_max_u64(rig->now_ns, until_ns);
    for (uint32_t n = 0; n < NODES; n++) {
        rig->nodes[n].now_ns = weft_max_u64(rig->nodes[n].now_ns, until_ns);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void node_open(struct rig *rig, uint32_t n, uint64_t name, uint32_t expects_max)
{
    struct node *node = &rig->nodes[n];
    struct net_end *end = &rig->net.end[n];
    struct weft_ep_config config;
    weft_ep_config_default(&config);
    config.name = name;
    config.incarnation = 10 + n;
    config.seed = n;
    config.accept = n == SERVER;
    config.expects_max = expects_max;
    node->rig = rig;
    node->now_ns = rig->now_ns;
    end->delay_ns = LINK_NS;
    end->addr = (struct weft_addr){.bytes = {(uint8_t)(1 + n)}, .bytes_used = 1};
    assert_int_equal(weft_ep_new(&config, &end->ep), WEFT_OK);
    end->msgr = weft_ep_msgr(end->ep);
    assert_int_equal(weft_rpc_record_ring_new(RING, &rig->ring[n]), WEFT_OK);
}

static void worker_open(struct rig *rig, uint32_t w)
{
    struct weft_ps_client_config config;
    struct node *node = &rig->nodes[1 + w];
    weft_peer peer;
    weft_ps_client_config_default(&config);
    config.worker = w;
    config.rows_per_op_max = 4096;
    node_open(rig, 1 + w, weft_rpc_name(WEFT_ROLE_WORKER, w), weft_ps_client_expects_max(&config));
    config.clock_ns = worker_clock_ns;
    config.clock_arg = node;
    config.records = rig->ring[1 + w];
    const struct net_end *end = &rig->net.end[1 + w];
    assert_int_equal(weft_ep_connect(end->ep, &rig->net.end[SERVER].addr, node->now_ns, &peer),
                     WEFT_OK);
    assert_int_equal(weft_ps_client_new(&config, end->msgr, &peer, &rig->clients[w]), WEFT_OK);
}

/* Both workers are connected; no delay is injected yet. */
static struct rig *rig_open(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct weft_shard_config config;
    net_init(&rig->net, 1);
    rig->net.on_event = on_event;
    rig->now_ns = rig->net.now_ns;
    weft_shard_config_default(&config);
    config.workers_max = WORKERS;
    config.rows_max = 4096;
    config.slab_bytes = 65536;
    node_open(rig, SERVER, weft_rpc_name(WEFT_ROLE_SERVER, 0), weft_shard_expects_max(&config));
    config.clock_ns = server_clock_ns;
    config.clock_arg = &rig->nodes[SERVER];
    config.records = rig->ring[SERVER];
    assert_int_equal(weft_shard_new(&config, rig->net.end[SERVER].msgr, &rig->shard), WEFT_OK);
    for (uint32_t w = 0; w < WORKERS; w++) {
        worker_open(rig, w);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        finish_round(rig, n);
    }
    run_until(rig, rig->now_ns + 10 * WEFT_NS_PER_MS);
    return rig;
}

static void rig_close(struct rig *rig)
{
    net_fini(&rig->net);
    for (uint32_t n = 0; n < NODES; n++) {
        weft_ep_free(rig->net.end[n].ep);
    }
    for (void *slab; (slab = weft_shard_take_slab(rig->shard)) != NULL;) {
        free(slab);
    }
    weft_shard_free(rig->shard);
    for (uint32_t w = 0; w < WORKERS; w++) {
        weft_ps_client_free(rig->clients[w]);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        weft_rpc_record_ring_free(rig->ring[n]);
    }
    free(rig);
}

/* ---- what workers do ------------------------------------------------------------------------- */

static void wait_for(struct rig *rig, uint32_t w, weft_ps_op op)
{
    struct weft_ps_result result;
    finish_round(rig, 1 + w);
    while (!weft_ps_op_done(rig->clients[w], op, &result)) {
        assert_true(round_step(rig, rig->now_ns + WEFT_NS_PER_S));
    }
    assert_int_equal(result.status, WEFT_OK);
    weft_ps_op_release(rig->clients[w], op);
    /* Run until idle: outstanding acknowledgements must not delay the next RPC. */
    run_until(rig, rig->now_ns + 50 * WEFT_NS_PER_MS);
}

static void open_table(struct rig *rig, uint8_t mode, uint16_t workers)
{
    const struct weft_table_spec spec = {
        .dim = DIM, .mode = mode, .workers = workers, .learning_rate = 1};
    for (uint32_t w = 0; w < workers; w++) {
        weft_ps_op op;
        assert_int_equal(weft_ps_table_open(rig->clients[w], &spec, rig->nodes[1 + w].now_ns, &op),
                         WEFT_OK);
        wait_for(rig, w, op);
    }
}

static weft_ps_op push_start(struct rig *rig, uint32_t w, uint32_t rows)
{
    static uint64_t ids[1024];
    static float values[1024 * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = i + 1;
    }
    assert_int_equal(
        weft_ps_push(rig->clients[w], 0, ids, values, rows, 0, rig->nodes[1 + w].now_ns, &op),
        WEFT_OK);
    return op;
}

static weft_ps_op pull_start(struct rig *rig, uint32_t w, uint32_t rows)
{
    static uint64_t ids[1024];
    static float values[1024 * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = i + 1;
    }
    assert_int_equal(
        weft_ps_pull(rig->clients[w], 0, ids, values, rows, 0, rig->nodes[1 + w].now_ns, &op),
        WEFT_OK);
    return op;
}

/* ---- what was recorded ----------------------------------------------------------------------- */

/* Records of RPCs by the worker and by the server; their stages sum up as for a single clock. */
struct seen {
    uint32_t count;
    struct weft_rpc_record_client rpc[8];
};

/* Copy the records of a node; they stay in its ring. Returns their number. */
static uint32_t records_of(const struct rig *rig, uint32_t node,
                           struct weft_rpc_record records[RING])
{
    uint32_t units, count = 0;
    const struct weft_rpc_record_unit *at = weft_rpc_record_ring_peek(rig->ring[node], &units);
    for (uint32_t used; units > 0; at += used, units -= used) {
        assert_true(count < RING);
        used = weft_rpc_record_read(at, units, &records[count++]);
        assert_in_range(used, 1, units);
    }
    return count;
}

static void forget_records(const struct rig *rig, uint32_t node)
{
    uint32_t units;
    (void)weft_rpc_record_ring_peek(rig->ring[node], &units);
    weft_rpc_record_ring_take(rig->ring[node], units);
}

static struct weft_rpc_record_served served_of(const struct rig *rig,
                                               const struct weft_rpc_record_client *rpc)
{
    struct weft_rpc_record records[RING];
    uint32_t count = records_of(rig, SERVER, records);
    for (uint32_t i = 0; i < count; i++) {
        if (records[i].type == WEFT_RPC_RECORD_SERVED && records[i].served.worker == rpc->worker &&
            records[i].served.rpc == rpc->rpc) {
            return records[i].served;
        }
    }
    fail_msg("rpc %u of worker %u has no record of the server", rpc->rpc, rpc->worker);
    return (struct weft_rpc_record_served){0};
}

static void check_identity(const struct rig *rig, const struct weft_rpc_record_client *rpc)
{
    const struct weft_rpc_record_served served = served_of(rig, rpc);
    assert_int_equal(served.kind, rpc->kind);
    assert_int_equal(served.ps_proc_ns, rpc->latency.ps_proc_ns);
    assert_int_equal(served.ps_wait_ns, rpc->latency.ps_wait_ns);
    assert_int_equal(served.ps_queue_ns, rpc->latency.ps_queue_ns);
    assert_true(served.arrival_ns >= rpc->t0_ns && served.departure_ns <= rpc->t1_ns);
    assert_int_equal(rpc->latency.n_tx_ns,
                     (served.arrival_ns - rpc->t0_ns) + (rpc->t1_ns - served.departure_ns));
}

static struct seen look(const struct rig *rig, uint32_t w)
{
    struct seen seen = {0};
    struct weft_rpc_record records[RING];
    uint32_t count = records_of(rig, 1 + w, records);
    assert_true(count <= WEFT_ARRAY_COUNT(seen.rpc));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(records[i].type, WEFT_RPC_RECORD_CLIENT);
        seen.rpc[seen.count++] = records[i].rpc;
        check_identity(rig, &records[i].rpc);
    }
    return seen;
}

/* One worker, so no waiting: a push, then a pull. */
static struct seen push_and_pull(struct rig *rig)
{
    wait_for(rig, 0, push_start(rig, 0, 10));
    wait_for(rig, 0, pull_start(rig, 0, 10));
    struct seen seen = look(rig, 0);
    rig_close(rig);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.rpc[0].kind, WEFT_RPC_PUSH);
    assert_int_equal(seen.rpc[1].kind, WEFT_RPC_PULL);
    return seen;
}

static struct rig *rig_alone(void)
{
    struct rig *rig = rig_open();
    open_table(rig, WEFT_TABLE_ASP, 1);
    return rig;
}

/* All durations of an RPC as one line, in us, so that differences are easy to see. */
static void is_us(const struct weft_rpc_record_client *rpc, const char *wanted)
{
    char line[256];
    const struct weft_rpc_latency *l = &rpc->latency;
    snprintf(line, sizeof(line),
             "w_proc %g w_queue %g ps_proc %g ps_overlap %g ps_wait %g "
             "ps_queue %g n_tx %g",
             (double)l->w_proc_ns / 1e3, (double)l->w_queue_ns / 1e3, (double)l->ps_proc_ns / 1e3,
             (double)l->ps_overlap_ns / 1e3, (double)l->ps_wait_ns / 1e3,
             (double)l->ps_queue_ns / 1e3, (double)l->n_tx_ns / 1e3);
    assert_string_equal(line, wanted);
}

static void both_are_us(const struct seen *seen, const char *wanted)
{
    is_us(&seen->rpc[0], wanted);
    is_us(&seen->rpc[1], wanted);
}

/* ---- the delays ------------------------------------------------------------------------------ */

static void nothing_injected(void **state)
{
    (void)state;
    struct seen seen = push_and_pull(rig_alone());
    both_are_us(&seen, "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 200");
    assert_int_equal(seen.rpc[0].rows, 10);
    assert_int_equal(seen.rpc[0].iteration, 1);
    assert_int_equal(seen.rpc[0].reply_bytes, WEFT_RPC_REPLY_BYTES);
    assert_true(seen.rpc[0].request_bytes >= WEFT_RPC_REQUEST_BYTES + 10 * 4 * DIM);
    assert_true(seen.rpc[1].reply_bytes >= WEFT_RPC_REPLY_BYTES + 10 * 4 * DIM);
}

static void in_the_apply_path(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    rig->apply_ns = DELAY_NS;
    struct seen seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 0 w_queue 0 ps_proc 700 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 200");
}

static void in_the_servers_queue(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    rig->nodes[SERVER].late_ns = DELAY_NS;
    struct seen seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 700 n_tx 200");
}

static void on_the_link(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    rig->net.end[SERVER].delay_ns += DELAY_NS;
    struct seen seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 900");
    rig = rig_alone();
    rig->net.end[1].delay_ns += DELAY_NS;
    seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 900");
}

static void in_the_workers_queue(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    rig->nodes[1].late_ns = DELAY_NS;
    struct seen seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 0 w_queue 700 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 200");
}

static void in_the_worker(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    rig->hand_ns = DELAY_NS;
    struct seen seen = push_and_pull(rig);
    both_are_us(&seen, "w_proc 700 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 200");
}

/* Worker 1 ends its clock this long after worker 0 has pulled the next clock. */
static struct seen at_a_barrier(uint64_t late_ns)
{
    struct rig *rig = rig_open();
    open_table(rig, WEFT_TABLE_BSP, WORKERS);
    for (uint32_t w = 0; w < WORKERS; w++) {
        wait_for(rig, w, push_start(rig, w, 10));
    }
    assert_int_equal(weft_ps_clock(rig->clients[0], 0, rig->nodes[1].now_ns), WEFT_OK);
    finish_round(rig, 1);
    run_until(rig, rig->now_ns + 50 * WEFT_NS_PER_MS);
    weft_ps_op op = pull_start(rig, 0, 10);
    finish_round(rig, 1);
    run_until(rig, rig->now_ns + late_ns);
    assert_int_equal(weft_ps_clock(rig->clients[1], 0, rig->nodes[2].now_ns), WEFT_OK);
    finish_round(rig, 2);
    wait_for(rig, 0, op);
    struct seen seen = look(rig, 0);
    rig_close(rig);
    assert_int_equal(seen.count, 2);
    return seen;
}

static void at_the_barrier(void **state)
{
    (void)state;
    struct seen seen = at_a_barrier(5 * WEFT_NS_PER_MS);
    is_us(&seen.rpc[0], "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 0 ps_queue 0 n_tx 200");
    is_us(&seen.rpc[1],
          "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 5000 ps_queue 0 n_tx 200");
    seen = at_a_barrier(5 * WEFT_NS_PER_MS + DELAY_NS);
    is_us(&seen.rpc[1],
          "w_proc 0 w_queue 0 ps_proc 0 ps_overlap 0 ps_wait 5700 ps_queue 0 n_tx 200");
    assert_int_equal(seen.rpc[1].iteration, 2);
}

/* Chunks of a long push are applied while others are in flight: that time is part of N_tx and not
 * counted twice. The last chunk arrives 2 ms after the previous one. */
static void while_others_arrive(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    wait_for(rig, 0, push_start(rig, 0, 1000)); /* opens the congestion window */
    uint64_t chunks = weft_shard_counters(rig->shard)->chunks_applied;
    rig->apply_ns = DELAY_NS;
    rig->net.end[SERVER].gap_ns = 2 * WEFT_NS_PER_MS;
    wait_for(rig, 0, push_start(rig, 0, 1000));
    struct seen seen = look(rig, 0);
    rig_close(rig);
    assert_true(chunks > 1);
    assert_int_equal(seen.count, 2);
    const struct weft_rpc_latency *l = &seen.rpc[1].latency;
    assert_int_equal(l->ps_overlap_ns, (chunks - 1) * DELAY_NS);
    assert_int_equal(l->ps_proc_ns, DELAY_NS);
    assert_int_equal(l->ps_queue_ns, 0);
    assert_true(l->n_tx_ns >= 2 * LINK_NS + (chunks - 1) * 2 * WEFT_NS_PER_MS);
}

/* ---- active workers -------------------------------------------------------------------------- */

static void workers_of_each_window(void **state)
{
    (void)state;
    struct rig *rig = rig_alone();
    struct weft_rpc_record records[RING];
    weft_shard_records_end(rig->shard); /* the window in which the table was opened */
    forget_records(rig, SERVER);
    /* Two requests of worker 0 in one window, then one in another, 50 ms later. */
    weft_ps_op first = push_start(rig, 0, 10), second = push_start(rig, 0, 10);
    wait_for(rig, 0, first);
    wait_for(rig, 0, second);
    uint64_t at_ns = rig->now_ns;
    wait_for(rig, 0, pull_start(rig, 0, 10));
    weft_shard_records_end(rig->shard);
    weft_shard_records_end(rig->shard); /* no requests since */
    uint32_t windows = 0, count = records_of(rig, SERVER, records);
    uint64_t last_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (records[i].type == WEFT_RPC_RECORD_ACTIVE) {
            windows++;
            last_ns = records[i].active.start_ns;
            assert_int_equal(records[i].active.workers, 1);
            assert_int_equal(records[i].active.connections, 1);
            assert_int_equal(records[i].active.window_ns, WEFT_NS_PER_MS);
        }
    }
    assert_int_equal(windows, 2);
    assert_int_equal(last_ns, (at_ns + LINK_NS) / WEFT_NS_PER_MS * WEFT_NS_PER_MS);
    rig_close(rig);
}

static void both_workers_in_one_window(void **state)
{
    (void)state;
    struct rig *rig = rig_open();
    open_table(rig, WEFT_TABLE_ASP, WORKERS);
    struct weft_rpc_record records[RING];
    weft_shard_records_end(rig->shard);
    forget_records(rig, SERVER);
    weft_ps_op a = pull_start(rig, 0, 1), b = pull_start(rig, 1, 1);
    finish_round(rig, 1);
    finish_round(rig, 2);
    wait_for(rig, 0, a);
    wait_for(rig, 1, b);
    weft_shard_records_end(rig->shard);
    assert_int_equal(records_of(rig, SERVER, records), 3); /* two replies, one window */
    assert_int_equal(records[2].type, WEFT_RPC_RECORD_ACTIVE);
    assert_int_equal(records[2].active.workers, 2);
    assert_int_equal(records[2].active.connections, 2);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_injected),
        cmocka_unit_test(in_the_apply_path),
        cmocka_unit_test(in_the_servers_queue),
        cmocka_unit_test(at_the_barrier),
        cmocka_unit_test(on_the_link),
        cmocka_unit_test(in_the_workers_queue),
        cmocka_unit_test(in_the_worker),
        cmocka_unit_test(while_others_arrive),
        cmocka_unit_test(workers_of_each_window),
        cmocka_unit_test(both_workers_in_one_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
