/* A shard in its thread: start and end, hooks, stats queries, reported deaths, and log lines about
 * refused peers. Workers connect through <weft/ps.h>. */
#include "node/shard_thread.h"

#include "io/clock.h"
#include "ps/transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>
#include <weft/ps.h>

static const uint64_t patience_ns = 60 * WEFT_NS_PER_S;

static struct weft_shard_thread_config config_for(uint32_t workers)
{
    struct weft_shard_thread_config config;
    weft_shard_thread_config_default(&config);
    config.shard.workers_max = workers;
    config.shard.rows_max = 1000;
    return config;
}

static void start(struct weft_shard_thread *thread, const struct weft_shard_thread_config *config)
{
    struct weft_error error = {.text = ""};
    if (weft_shard_thread_start(thread, config, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static struct weft_ps_config worker_of(const struct weft_shard_thread *thread, char servers[32])
{
    struct weft_ps_config config;
    (void)snprintf(servers, 32, "127.0.0.1:%u", (unsigned)thread->port);
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers;
    config.security = WEFT_TRANSPORT_NONE;
    config.connect_timeout_ns = patience_ns;
    config.rows_max = 64;
    return config;
}

static struct weft_ps *connect_to(const struct weft_shard_thread *thread)
{
    char servers[32];
    struct weft_ps_config config = worker_of(thread, servers);
    struct weft_ps *ps = NULL;
    if (weft_ps_connect(&config, &ps) != WEFT_OK) {
        fail_msg("%s", weft_ps_error(NULL));
    }
    return ps;
}

static struct weft_ps_table *open_table(struct weft_ps *ps)
{
    struct weft_table_options options;
    struct weft_ps_table *table = NULL;
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.dim = 1;
    assert_int_equal(weft_table_open(ps, &options, &table), WEFT_OK);
    return table;
}

/* ---- start and end --------------------------------------------------------------------------- */

static void it_serves_and_counts(void **state)
{
    (void)state;
    struct weft_shard_thread thread;
    const struct weft_shard_thread_config config = config_for(1);
    const uint64_t id = 7;
    const float row = 1;
    start(&thread, &config);
    assert_int_not_equal(thread.port, 0);
    struct weft_ps *ps = connect_to(&thread);
    assert_int_equal(weft_push_wait(open_table(ps), &id, &row, 1, 0, NULL), WEFT_OK);
    weft_ps_close(ps);
    weft_shard_thread_join(&thread);
    assert_int_equal(thread.shard_counters.pushes, 1);
    assert_int_equal(thread.table_sums.rows, 1);
    assert_true(thread.counters.ep.data_received > 0);
    assert_int_equal(thread.hint, WEFT_HINT_NONE);
}

static void a_port_in_use_is_an_error(void **state)
{
    (void)state;
    struct weft_shard_thread first, second;
    struct weft_shard_thread_config config = config_for(1);
    struct weft_error error = {.text = ""};
    start(&first, &config);
    config.driver.udp.port = first.port;
    assert_int_equal(weft_shard_thread_start(&second, &config, &error), WEFT_EXISTS);
    assert_non_null(strstr(error.text, "in use"));
    weft_shard_thread_join(&first);
    start(&second, &config);
    assert_int_equal(second.port, config.driver.udp.port);
    weft_shard_thread_join(&second);
}

static void a_shard_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    struct weft_shard_thread thread;
    struct weft_shard_thread_config config = config_for(1);
    struct weft_error error = {.text = ""};
    config.shard.dim_max = 0;
    assert_int_equal(weft_shard_thread_start(&thread, &config, &error), WEFT_INVALID);
    assert_non_null(strstr(error.text, "cannot make the shard"));
}

/* ---- hooks and questions --------------------------------------------------------------------- */

struct seen {
    atomic_uint prepared;
    atomic_uint turns;
    atomic_uint opens; /* messages opened */
    atomic_bool refuses;
    atomic_bool stands; /* the next step does not end while this is set */
    bool was_prepared_first;
};

static void prepare(void *arg, struct weft_shard *shard)
{
    struct seen *seen = arg;
    assert_non_null(shard);
    seen->was_prepared_first = atomic_load(&seen->turns) == 0 && atomic_load(&seen->opens) == 0;
    atomic_fetch_add(&seen->prepared, 1);
}

static bool on_event(void *arg, struct weft_msgr msgr, const struct weft_msg_event *event)
{
    struct seen *seen = arg;
    struct weft_rpc_tag tag;
    if (event->type == WEFT_EVENT_OPEN) {
        atomic_fetch_add(&seen->opens, 1);
    }
    if (event->type == WEFT_EVENT_CHUNK && atomic_load(&seen->refuses) &&
        weft_rpc_tag_unpack(event->tag, &tag) && tag.op == WEFT_RPC_CLOCK) {
        msgr.ops->refuse(msgr.self, event->peer, event->seq);
        return true;
    }
    return false;
}

static void turn(void *arg, struct weft_shard *shard)
{
    struct seen *seen = arg;
    (void)shard;
    atomic_fetch_add(&seen->turns, 1);
    while (atomic_load(&seen->stands)) {
        usleep(1000);
    }
}

static void count_pushes(void *arg, void *object)
{
    const struct weft_shard_serving *serving = object;
    *(uint64_t *)arg = weft_shard_counters(serving->shard)->pushes;
}

static void count_clocks(void *arg, void *object)
{
    const struct weft_shard_serving *serving = object;
    *(uint64_t *)arg = weft_shard_counters(serving->shard)->clocks;
}

static void hooks_see_what_passes(void **state)
{
    (void)state;
    static struct seen seen;
    struct weft_shard_thread thread;
    struct weft_shard_thread_config config = config_for(1);
    const uint64_t id = 7;
    const float row = 1;
    uint64_t pushes = 99;
    config.hooks = (struct weft_shard_hooks){
        .prepare = prepare, .on_event = on_event, .turn = turn, .arg = &seen};
    start(&thread, &config);
    struct weft_ps *ps = connect_to(&thread);
    struct weft_ps_table *table = open_table(ps);
    assert_int_equal(weft_push_wait(table, &id, &row, 1, 0, NULL), WEFT_OK);
    assert_true(weft_stats_query_ask(&thread.query, count_pushes, &pushes, patience_ns));
    assert_int_equal(pushes, 1);
    /* Events consumed by a hook do not reach the shard. */
    uint64_t clocks = 99;
    atomic_store(&seen.refuses, true);
    assert_int_equal(weft_clock(table), WEFT_OK);
    assert_int_equal(weft_ps_flush(ps, patience_ns), WEFT_PEER);
    assert_true(weft_stats_query_ask(&thread.query, count_clocks, &clocks, patience_ns));
    assert_int_equal(clocks, 0);
    weft_ps_close(ps);
    weft_shard_thread_join(&thread);
    assert_int_equal(atomic_load(&seen.prepared), 1);
    assert_true(seen.was_prepared_first);
    assert_true(atomic_load(&seen.turns) > 0);
    assert_true(atomic_load(&seen.opens) >= 2);
}

static void ask_to_stand(void *arg, void *object)
{
    struct seen *seen = arg;
    (void)object;
    atomic_store(&seen->stands, true);
}

static void a_question_ends_in_time(void **state)
{
    (void)state;
    static struct seen seen;
    struct weft_shard_thread thread;
    struct weft_shard_thread_config config = config_for(1);
    uint64_t pushes = 99;
    config.hooks = (struct weft_shard_hooks){.turn = turn, .arg = &seen};
    start(&thread, &config);
    assert_true(weft_stats_query_ask(&thread.query, ask_to_stand, &seen, patience_ns));
    assert_false(weft_stats_query_ask(&thread.query, count_pushes, &pushes, 20 * WEFT_NS_PER_MS));
    atomic_store(&seen.stands, false);
    assert_true(weft_stats_query_ask(&thread.query, count_pushes, &pushes, patience_ns));
    assert_int_equal(pushes, 0);
    weft_shard_thread_join(&thread);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void a_death_that_ends_the_job_is_told(void **state)
{
    (void)state;
    struct weft_shard_thread thread;
    struct weft_shard_thread_config config = config_for(2);
    uint64_t told = 0;
    config.shard.on_death = WEFT_DEATH_FAIL;
    config.lost_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(config.lost_fd >= 0);
    start(&thread, &config);
    struct weft_ps *ps = connect_to(&thread);
    (void)open_table(ps);
    weft_shard_thread_worker_died(&thread, 2, weft_clock_now_ns()); /* no such rank */
    weft_shard_thread_worker_died(&thread, 1, weft_clock_now_ns()); /* it never connected */
    assert_true(weft_stats_query_ask(&thread.query, count_pushes, &told, patience_ns));
    assert_int_equal(atomic_load(&thread.lost_rank), UINT32_MAX);
    weft_shard_thread_worker_died(&thread, 0, weft_clock_now_ns());
    assert_int_equal(read(config.lost_fd, &told, sizeof(told)), sizeof(told));
    assert_int_equal(atomic_load(&thread.lost_rank), 0);
    weft_ps_close(ps);
    weft_shard_thread_join(&thread);
    (void)close(config.lost_fd);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* A scheduler process that accepts connections, and is frozen once all are established. */
struct frozen {
    struct weft_driver *driver;
    struct weft_launch_address address;
    uint32_t up;
};

static void frozen_open_as(struct frozen *frozen, uint64_t name)
{
    struct weft_error error = {.text = ""};
    struct weft_driver_config config;
    weft_driver_config_default(&config);
    config.udp.ep.name = name;
    config.udp.ep.accept = 1;
    config.udp.ep.peers_max = 32;
    *frozen = (struct frozen){0};
    assert_int_equal(weft_driver_open(&config, &frozen->driver, &error), WEFT_OK);
    (void)snprintf(frozen->address.host, sizeof(frozen->address.host), "127.0.0.1");
    frozen->address.port = weft_driver_port(frozen->driver);
}

static void frozen_open(struct frozen *frozen)
{
    frozen_open_as(frozen, weft_rpc_name(WEFT_ROLE_SCHEDULER, 0));
}

static void count_up(void *arg, uint64_t now_ns)
{
    struct frozen *frozen = arg;
    struct weft_msgr msgr = weft_driver_msgr(frozen->driver);
    struct weft_msg_event event;
    (void)now_ns;
    while (msgr.ops->poll(msgr.self, &event)) {
        frozen->up += event.type == WEFT_EVENT_PEER_UP;
    }
}

/* Shards report every 200 ms, so soon after this each waits for a reply that does not arrive. */
static void freeze_with(struct frozen *frozen, uint32_t shards)
{
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (frozen->up < shards) {
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(frozen->driver, WEFT_NS_PER_MS, count_up, frozen);
    }
    usleep(500000);
}

static struct weft_shard_thread_config reporting_to(const struct frozen *frozen, uint32_t shard,
                                                    uint32_t shards)
{
    struct weft_shard_thread_config config = config_for(1);
    config.shard.shard = shard;
    config.shard.shards = shards;
    config.scheduler = &frozen->address;
    config.scheduler_workers = 1;
    config.driver.udp.ep.peer_timeout_ns = patience_ns;
    return config;
}

static void shards_told_to_end_do_it_together(void **state)
{
    (void)state;
    enum { SHARDS = 8 };
    static struct weft_shard_thread threads[SHARDS];
    struct frozen frozen;
    frozen_open(&frozen);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct weft_shard_thread_config config = reporting_to(&frozen, i, SHARDS);
        start(&threads[i], &config);
    }
    freeze_with(&frozen, SHARDS);
    const uint64_t begun_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < SHARDS; i++) {
        weft_shard_thread_end(&threads[i]);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        weft_shard_thread_join(&threads[i]);
    }
    /* One after the other, each would need half a second. */
    const uint64_t took_ns = weft_clock_now_ns() - begun_ns;
    assert_in_range(took_ns, WEFT_NS_PER_S / 4, SHARDS * WEFT_NS_PER_S / 2 - 1);
    weft_driver_close(frozen.driver);
}

/* A thread that was blocked for longer than the timeout of its last reports still waits a short
 * time for a reply. */
static void a_shard_held_up_sends_its_reports(void **state)
{
    (void)state;
    static struct seen seen;
    struct weft_shard_thread thread;
    struct frozen frozen;
    frozen_open(&frozen);
    struct weft_shard_thread_config config = reporting_to(&frozen, 0, 1);
    config.hooks = (struct weft_shard_hooks){.turn = turn, .arg = &seen};
    start(&thread, &config);
    freeze_with(&frozen, 1);
    assert_true(weft_stats_query_ask(&thread.query, ask_to_stand, &seen, patience_ns));
    weft_shard_thread_end(&thread);
    usleep(700000);
    const uint64_t begun_ns = weft_clock_now_ns();
    atomic_store(&seen.stands, false);
    weft_shard_thread_join(&thread);
    assert_true(weft_clock_now_ns() - begun_ns >= 90 * WEFT_NS_PER_MS);
    weft_driver_close(frozen.driver);
}

/* The last checkpoint may have been written: requests that arrive now are left to the next
 * server. */
static void a_shard_told_to_end_takes_no_push(void **state)
{
    (void)state;
    static struct seen seen;
    struct weft_shard_thread thread;
    struct frozen frozen;
    const uint64_t id = 7;
    const float row = 1;
    uint64_t op;
    frozen_open(&frozen);
    struct weft_shard_thread_config config = reporting_to(&frozen, 0, 1);
    config.hooks = (struct weft_shard_hooks){.turn = turn, .arg = &seen};
    start(&thread, &config);
    struct weft_ps *ps = connect_to(&thread);
    struct weft_ps_table *table = open_table(ps);
    freeze_with(&frozen, 1);
    assert_true(weft_stats_query_ask(&thread.query, ask_to_stand, &seen, patience_ns));
    weft_shard_thread_end(&thread); /* while it is blocked between two steps */
    assert_int_equal(weft_push(table, &id, &row, 1, 0, &op), WEFT_OK);
    atomic_store(&seen.stands, false);
    assert_int_not_equal(weft_ps_flush(ps, 300 * WEFT_NS_PER_MS), WEFT_OK);
    weft_shard_thread_join(&thread);
    assert_int_equal(thread.shard_counters.pushes, 0);
    weft_ps_close(ps);
    weft_driver_close(frozen.driver);
}

struct transferring {
    atomic_bool is_ready; /* the replica has the table */
    atomic_bool waits;    /* a transfer waits for a grant, and the thread for `may_end` */
    atomic_bool may_end;
    uint64_t bytes; /* of pieces sent by then */
};

static void stop_at_transfer(void *arg, struct weft_shard *shard)
{
    struct transferring *seen = arg;
    struct weft_replication replication;
    bool waits;
    uint64_t bytes;
    weft_shard_replication(shard, &replication);
    (void)weft_shard_transfer_now(shard, &waits, &bytes);
    atomic_store(&seen->is_ready, replication.ready && replication.transfers > 0);
    if (waits) {
        seen->bytes = replication.bytes;
        atomic_store(&seen->waits, true);
    }
    while (waits && !atomic_load(&seen->may_end)) {
        usleep(1000);
    }
}

static void await(const atomic_bool *flag)
{
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (!atomic_load(flag)) {
        assert_true(weft_clock_now_ns() < until_ns);
        usleep(1000);
    }
}

/* A shard that is ending handles no messages of its replica, so a transfer could not end. One is
 * due when the connection to the scheduler ends, because without a scheduler none waits. */
static void a_shard_told_to_end_begins_no_transfer(void **state)
{
    (void)state;
    static struct transferring seen;
    struct weft_shard_thread thread, replica;
    struct frozen frozen;
    struct weft_table_options options;
    struct weft_ps_table *table = NULL;
    const uint64_t id = 7;
    const float row = 5; /* more than a half of div_max, less than three quarters */
    uint64_t op;
    frozen_open(&frozen);
    struct weft_shard_thread_config config = reporting_to(&frozen, 0, 1);
    config.shard.replicas_max = 1;
    config.shard.replica_lease_ns = patience_ns;
    config.shard.div_max = 8;
    config.hooks = (struct weft_shard_hooks){.turn = stop_at_transfer, .arg = &seen};
    start(&thread, &config);
    freeze_with(&frozen, 1);
    struct weft_launch_address address = {.port = thread.port};
    (void)snprintf(address.host, sizeof(address.host), "127.0.0.1");
    config.replica_of = &address;
    config.scheduler = NULL;
    config.hooks = (struct weft_shard_hooks){.turn = NULL};
    start(&replica, &config);
    struct weft_ps *ps = connect_to(&thread);
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = "asp";
    options.learning_rate = 1;
    assert_int_equal(weft_table_open(ps, &options, &table), WEFT_OK);
    await(&seen.is_ready);
    assert_int_equal(weft_push(table, &id, &row, 1, 0, &op), WEFT_OK);
    await(&seen.waits);
    weft_shard_thread_end(&thread); /* while it is blocked between two steps */
    weft_driver_close(frozen.driver);
    usleep(50000);
    atomic_store(&seen.may_end, true);
    weft_shard_thread_join(&thread);
    assert_int_equal(thread.shard_counters.pushes, 1);
    assert_int_equal(thread.replication.bytes, seen.bytes);
    weft_ps_close(ps);
    weft_shard_thread_join(&replica);
}

/* ---- log lines ------------------------------------------------------------------------------- */

struct heard {
    char text[2048];
};

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    struct heard *heard = arg;
    size_t used = strlen(heard->text);
    (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s%s\n",
                   level == WEFT_NODE_WARNING ? "! " : "", text);
}

/* The process at the scheduler's address must be logged: otherwise the job would silently run
 * without grants. */
static void what_is_no_scheduler_is_named(void **state)
{
    (void)state;
    static struct heard heard;
    struct weft_shard_thread thread;
    struct frozen server;
    frozen_open_as(&server, weft_rpc_name(WEFT_ROLE_SERVER, 0));
    struct weft_shard_thread_config config = reporting_to(&server, 0, 1);
    config.log = (struct weft_node_log){hear, &heard};
    start(&thread, &config);
    freeze_with(&server, 1);
    weft_driver_close(server.driver); /* closing again is allowed */
    weft_shard_thread_join(&thread);
    const char *said =
        strstr(heard.text, "is not a scheduler, and gets no reports; name the address");
    assert_non_null(said);
    assert_null(strstr(said + 1, "is not a scheduler"));
}

static void each_kind_of_trouble_is_logged_once(void **state)
{
    (void)state;
    static struct heard heard;
    static const uint8_t other_key[32] = {1};
    struct weft_security security = WEFT_SECURITY_DEFAULTS;
    struct weft_error key_error;
    struct weft_shard_thread thread;
    struct weft_shard_thread_config config = config_for(1);
    char servers[32];
    struct weft_ps *ps = NULL;
    assert_int_equal(weft_security_load(&security, true, &key_error), WEFT_OK);
    config.security = &security;
    config.log = (struct weft_node_log){hear, &heard};
    start(&thread, &config);
    for (int i = 0; i < 3; i++) { /* the second one has security none */
        struct weft_ps_config worker = worker_of(&thread, servers);
        worker.security = i == 1 ? WEFT_TRANSPORT_NONE : WEFT_TRANSPORT_AUTH;
        worker.key = i == 1 ? NULL : other_key;
        worker.connect_timeout_ns = WEFT_NS_PER_S;
        assert_int_not_equal(weft_ps_connect(&worker, &ps), WEFT_OK);
    }
    weft_shard_thread_join(&thread);
    weft_security_fini(&security);
    assert_int_equal(thread.hint, WEFT_HINT_KEY);
    assert_ptr_equal(strstr(heard.text, "shard 0: "), heard.text);
    assert_non_null(strstr(heard.text, "another job key"));
    const char *second = strstr(heard.text + 1, "shard 0: ");
    assert_non_null(second);
    assert_null(strstr(second + 1, "shard 0: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_and_counts),
        cmocka_unit_test(a_port_in_use_is_an_error),
        cmocka_unit_test(a_shard_that_cannot_be_made_is_an_error),
        cmocka_unit_test(hooks_see_what_passes),
        cmocka_unit_test(a_question_ends_in_time),
        cmocka_unit_test(a_death_that_ends_the_job_is_told),
        cmocka_unit_test(shards_told_to_end_do_it_together),
        cmocka_unit_test(a_shard_held_up_sends_its_reports),
        cmocka_unit_test(a_shard_told_to_end_takes_no_push),
        cmocka_unit_test(a_shard_told_to_end_begins_no_transfer),
        cmocka_unit_test(what_is_no_scheduler_is_named),
        cmocka_unit_test(each_kind_of_trouble_is_logged_once),
    };
    return cmocka_run_group_tests_name("node/shard_thread", tests, NULL, NULL);
}
