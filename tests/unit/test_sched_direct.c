/* Updates without a grant, while the scheduler does not reply: the daemons' rate and the pushes at
 * that rate, over a transport in memory that paces messages as core/msg.h says, in virtual time.
 * However many pushes an update has, all workers together use no more than the servers' link. */
#include "ps/update.h"
#include "ps_cluster.h"
#include "sched_exchange.h"

enum { WORKERS = 3, SHARDS = 2, TABLES = 2, ROWS = 200, DIM = 8 };
enum { PACKET = 400, LINK_BPS = 60000000 };

struct rig {
    struct cluster c;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemon[WORKERS + SHARDS];
    uint64_t begun_ns;
    uint64_t begun_bytes[WORKERS][SHARDS];
};

/* The shards are on one host, and share its link, or each has its own. */
static struct rig *rig_new(bool is_one_host)
{
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    struct cluster_config config = cluster_config(SHARDS, WORKERS);
    config.shard.dim_max = config.client.dim_max = DIM;
    config.client.update_bytes_min = 1000;
    config.client.ops_max = 64;
    config.incarnation = 10;
    cluster_start(&r->c, &config, WORKERS, 5);
    r->c.net->packet_bytes = PACKET;
    r->c.net->paces = true;
    for (uint16_t t = 0; t < TABLES; t++) {
        const struct weft_table_spec spec = {.table = t,
                                             .dim = DIM,
                                             .mode = WEFT_TABLE_ASP,
                                             .workers = WORKERS,
                                             .average = WEFT_AVERAGE_NONE,
                                             .learning_rate = -1};
        cluster_open(&r->c, &spec);
    }
    struct weft_sched_service_config service;
    weft_sched_service_config_default(&service);
    service.workers = WORKERS;
    service.shards = SHARDS;
    service.link_bps = LINK_BPS;
    service.life = 1;
    assert_int_equal(weft_sched_service_new(&service, &r->service), WEFT_OK);
    for (uint32_t p = 0; p < WORKERS + SHARDS; p++) {
        struct weft_sched_daemon_config daemon;
        weft_sched_daemon_config_default(&daemon);
        const bool is_worker = p < WORKERS;
        daemon.role = is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
        daemon.index = is_worker ? p : p - WORKERS;
        daemon.workers = WORKERS;
        daemon.shards = SHARDS;
        daemon.mode = is_worker ? WEFT_SCHED_ASP : 0;
        daemon.tau_max = is_worker ? WEFT_NEVER : 0;
        daemon.host = is_worker ? 0 : is_one_host ? 7 : 7 + p;
        assert_int_equal(weft_sched_daemon_new(&daemon, &r->daemon[p]), WEFT_OK);
        weft_sched_daemon_connected(r->daemon[p], r->c.net->now_ns);
        weft_sched_service_connected(r->service, p, daemon.role, daemon.index, 1);
    }
    for (int i = 0; i < 10; i++) { /* each process knows the rate from its last plan */
        r->c.net->now_ns += 200 * WEFT_NS_PER_MS;
        sched_exchange(r->service, r->daemon, WORKERS + SHARDS, r->c.net->now_ns);
    }
    return r;
}

static void rig_free(struct rig *r)
{
    for (uint32_t p = 0; p < WORKERS + SHARDS; p++) {
        weft_sched_daemon_free(r->daemon[p]);
    }
    weft_sched_service_free(r->service);
    cluster_stop(&r->c);
    free(r);
}

static void push(struct rig *r, uint32_t w, uint16_t table, uint32_t rows)
{
    uint64_t ids[ROWS];
    float values[ROWS * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = weft_mix64(i);
    }
    for (uint32_t i = 0; i < rows * DIM; i++) {
        values[i] = 1;
    }
    assert_int_equal(
        weft_ps_push(r->c.client[w], table, ids, values, rows, 0, r->c.net->now_ns, &op), WEFT_OK);
}

/* The worker makes an update of `pushes` pushes for each of two tables, one of them short, and
 * asks. Its daemon gives up after a second. */
static void ask(struct rig *r, uint32_t w, uint32_t pushes)
{
    struct weft_ps_update_event event;
    for (uint32_t i = 0; i < pushes; i++) {
        push(r, w, 0, ROWS);
        push(r, w, 1, ROWS / 4);
    }
    for (uint16_t t = 0; t < TABLES; t++) {
        cluster_clock(&r->c, w, t);
    }
    assert_true(weft_ps_update_poll(r->c.client[w], &event));
    assert_int_equal(event.type, WEFT_PS_UPDATE_ASK);
    struct weft_sched_share shares[SHARDS] = {0};
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_ps_update_part part;
        assert_int_equal(weft_ps_update_part(r->c.client[w], event.update, s, &part), WEFT_OK);
        shares[s].bytes = part.bytes;
        r->begun_bytes[w][s] = r->c.net->came_bytes[SHARDS + w][s];
    }
    weft_sched_daemon_ask(r->daemon[w], event.clock, event.norm, shares, r->c.net->now_ns);
}

/* Bytes of the update that have arrived never exceed its rate, but for a packet. */
static void check_rates(const struct rig *r, uint64_t rate_bps)
{
    const uint64_t span_ns = r->c.net->now_ns - r->begun_ns;
    for (uint32_t w = 0; w < WORKERS; w++) {
        for (uint32_t s = 0; s < SHARDS; s++) {
            const uint64_t came =
                r->c.net->came_bytes[SHARDS + w][s] - r->begun_bytes[w][s];
            assert_true(came <= rate_bps * (span_ns / 1000) / 8000000 + PACKET + 100);
        }
    }
}

static void the_rate_is_kept(bool is_one_host, uint32_t pushes)
{
    struct rig *r = rig_new(is_one_host);
    const uint64_t share_bps = LINK_BPS / WORKERS / (is_one_host ? SHARDS : 1);
    for (uint32_t w = 0; w < WORKERS; w++) {
        ask(r, w, pushes);
    }
    r->c.net->now_ns += WEFT_NS_PER_S - 1000;
    struct weft_sched_answer answer;
    assert_false(weft_sched_daemon_answer(r->daemon[0], r->c.net->now_ns, &answer));
    r->c.net->now_ns += 1000000;
    r->begun_ns = r->c.net->now_ns;
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_true(weft_sched_daemon_answer(r->daemon[w], r->c.net->now_ns, &answer));
        assert_int_equal(answer.kind, WEFT_SCHED_SEND_DIRECT);
        assert_int_equal(answer.rate_bps, share_bps);
        assert_int_equal(
            weft_ps_update_direct(r->c.client[w], 1, answer.rate_bps, r->c.net->now_ns), WEFT_OK);
    }
    uint64_t ended_ns[WORKERS][SHARDS] = {0};
    uint32_t over = 0;
    for (uint32_t steps = 0; over < WORKERS; steps++) {
        struct weft_ps_update_event event;
        assert_true(steps < 1000000);
        (void)cluster_step(&r->c);
        check_rates(r, share_bps);
        for (uint32_t w = 0; w < WORKERS; w++) {
            while (weft_ps_update_poll(r->c.client[w], &event)) {
                over += event.type == WEFT_PS_UPDATE_OVER;
                if (event.type == WEFT_PS_UPDATE_DELIVERED) {
                    ended_ns[w][event.shard] = event.ended_ns;
                    const uint64_t span_ns = event.ended_ns - r->begun_ns;
                    const uint64_t due_ns = event.bytes * 8 * WEFT_NS_PER_S / share_bps;
                    assert_in_range(span_ns, due_ns - due_ns / 10, due_ns + due_ns / 10);
                }
            }
        }
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        for (uint32_t s = 0; s < SHARDS; s++) {
            assert_true(ended_ns[w][s] > 0);
        }
    }
    rig_free(r);
}

static void a_rate_for_one_push_of_a_table(void **state)
{
    (void)state;
    the_rate_is_kept(false, 1);
}

static void a_rate_for_many_pushes(void **state)
{
    (void)state;
    the_rate_is_kept(false, 6);
}

static void shards_of_a_host_share_its_link(void **state)
{
    (void)state;
    the_rate_is_kept(true, 2);
}

/* The group of the worker's pushes to a shard, at least `least`, which all have this rate. */
static uint8_t group_of(const struct rig *r, uint32_t shard, uint64_t rate_bps, uint32_t least)
{
    uint32_t count = 0;
    uint8_t group = 0;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        const struct fake_message *m = &r->c.net->messages[i];
        if (m->live && m->from == SHARDS && m->to == shard && m->send.held) {
            assert_int_equal(m->rate_bps, rate_bps);
            assert_true(m->group > 0 && (count == 0 || m->group == group));
            group = m->group;
            count++;
        }
    }
    assert_true(count >= least);
    return group;
}

/* A push for the same clock after the decision shares the rate of the pushes before it; so it does
 * after a grant that is revised. */
static void later_pushes_share_the_rate(void **state)
{
    (void)state;
    struct rig *r = rig_new(false);
    struct weft_ps_update_event event;
    const uint64_t rate_bps = 4000000, later_bps = 8000000;
    push(r, 0, 0, ROWS);
    weft_ps_update_end(r->c.client[0], r->c.net->now_ns);
    assert_true(weft_ps_update_poll(r->c.client[0], &event));
    assert_int_equal(weft_ps_update_direct(r->c.client[0], event.update, rate_bps,
                                           r->c.net->now_ns),
                     WEFT_OK);
    push(r, 0, 0, ROWS);
    push(r, 0, 0, ROWS / 2);
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct weft_msg_pace pace = {.rate_bps = later_bps};
        const uint8_t group = group_of(r, s, rate_bps, 3);
        assert_int_equal(weft_ps_update_grant(r->c.client[0], event.update, s, &pace,
                                              r->c.net->now_ns),
                         WEFT_OK);
        assert_int_equal(group_of(r, s, later_bps, 3), group);
    }
    cluster_run(&r->c);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_for_one_push_of_a_table),
        cmocka_unit_test(a_rate_for_many_pushes),
        cmocka_unit_test(shards_of_a_host_share_its_link),
        cmocka_unit_test(later_pushes_share_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
