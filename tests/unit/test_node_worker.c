/* A worker against real shards in threads: it connects, makes progress, reconnects, and reports the
 * servers that are down. Pushes and pulls are tested with the client. */
#include "api_ps_server.h"
#include "coordinator.h"
#include "io/clock.h"
#include "free_port.h"
#include "node/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { SHARDS = 2, ROWS = 20 };

static const struct weft_security none = {.mode = WEFT_MODE_NONE};
static const uint64_t limit_ns = 120 * WEFT_NS_PER_S;

struct site {
    struct test_server servers[SHARDS];
    struct weft_launch_address addresses[SHARDS];
};

static struct weft_launch_address loopback(uint16_t port)
{
    return (struct weft_launch_address){.host = "127.0.0.1", .port = port};
}

static void start_shard(struct site *site, uint32_t shard, struct ps_server_options options)
{
    options.shard = shard;
    options.shards = SHARDS;
    options.workers = 1;
    test_server_start(&site->servers[shard], options);
    site->addresses[shard] = loopback(site->servers[shard].port);
}

static void site_start(struct site *site, struct ps_server_options options)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        start_shard(site, s, options);
    }
}

static void site_stop(struct site *site)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        test_server_stop(&site->servers[s]);
    }
}

static struct weft_worker_config config_for(const struct site *site)
{
    struct weft_worker_config config;
    weft_worker_config_default(&config);
    config.endpoint.security = &none;
    config.endpoint.driver.udp.ep.peer_timeout_ns = WEFT_NS_PER_S;
    config.endpoint.driver.udp.ep.keepalive_ns = 100 * WEFT_NS_PER_MS;
    config.client.shards = SHARDS;
    config.client.tables_max = 1;
    config.client.rows_per_op_max = 1024;
    config.servers = site->addresses;
    config.connect_timeout_ns = limit_ns;
    return config;
}

static void must_open(struct weft_worker *worker, const struct weft_worker_config *config)
{
    if (weft_worker_open(worker, config) != WEFT_OK) {
        fail_msg("%s", worker->error.text);
    }
}

static void must_say(const struct weft_worker *worker, const char *part)
{
    if (strstr(worker->error.text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", worker->error.text, part);
    }
}

/* Progress until the operation is done, or a server is lost. */
static weft_status finish(struct weft_worker *worker, weft_ps_op op)
{
    struct weft_ps_result result;
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    uint32_t shard;
    while (!weft_ps_op_done(worker->client, op, &result)) {
        assert_true(weft_clock_now_ns() < end_ns);
        if (weft_worker_is_lost(worker, &shard)) {
            return weft_worker_lost(worker);
        }
        weft_worker_progress(worker, 10 * WEFT_NS_PER_MS);
    }
    weft_ps_op_release(worker->client, op);
    return result.status == WEFT_OK ? WEFT_OK : weft_worker_refused(worker, "it", &result);
}

static weft_status open_table(struct weft_worker *worker, uint8_t mode)
{
    const struct weft_table_spec spec = {.dim = 1, .optimizer = WEFT_OPTIMIZER_SGD, .mode = mode,
                                         .workers = 1, .learning_rate = -1.0F};
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    weft_ps_op op;
    weft_status status;
    while ((status = weft_ps_table_open(worker->client, &spec, weft_clock_now_ns(), &op)) ==
           WEFT_AGAIN) { /* a shard is disconnected */
        assert_true(weft_clock_now_ns() < end_ns);
        weft_worker_progress(worker, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(status, WEFT_OK);
    return finish(worker, op);
}

/* Push 1 to rows of both shards. */
static weft_status push_ones(struct weft_worker *worker)
{
    uint64_t ids[ROWS];
    float ones[ROWS];
    weft_ps_op op;
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = i;
        ones[i] = 1;
    }
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    weft_status status;
    while ((status = weft_ps_push(worker->client, 0, ids, ones, ROWS, 0, weft_clock_now_ns(),
                                  &op)) == WEFT_AGAIN) { /* a shard is disconnected */
        assert_true(weft_clock_now_ns() < end_ns);
        weft_worker_progress(worker, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(status, WEFT_OK);
    return finish(worker, op);
}

static void must_push(struct weft_worker *worker)
{
    if (push_ones(worker) != WEFT_OK) {
        fail_msg("%s", worker->error.text);
    }
}

static float pull_one(struct weft_worker *worker, uint64_t id)
{
    float row = -1;
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(worker->client, 0, &id, &row, 1, 0, weft_clock_now_ns(), &op),
                     WEFT_OK);
    assert_int_equal(finish(worker, op), WEFT_OK);
    return row;
}

static void count_steps(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    *(uint32_t *)arg += 1;
}

static void work(bool thread, bool tcp)
{
    struct site site;
    struct weft_worker worker;
    uint32_t steps = 0, shard;
    char hint[WEFT_SECURITY_HINT_BYTES];
    site_start(&site, (struct ps_server_options){.tcp = tcp});
    struct weft_worker_config config = config_for(&site);
    config.endpoint.thread = thread;
    config.endpoint.driver.kind = tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    config.on_progress = count_steps;
    config.arg = &steps;
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_push(&worker);
    assert_true(pull_one(&worker, 3) == 1.0F);
    assert_true(steps > 0);
    assert_false(weft_worker_is_lost(&worker, &shard));
    assert_false(weft_worker_hint(&worker, hint));
    assert_string_equal(hint, "");
    weft_worker_close(&worker);
    weft_worker_close(&worker); /* closing again is allowed */
    site_stop(&site);
}

static void it_works_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        work((form & 1) != 0, (form & 2) != 0);
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void *start_late(void *arg)
{
    struct site *site = arg;
    const struct timespec pause = {.tv_sec = 2};
    (void)nanosleep(&pause, NULL);
    start_shard(site, 1, (struct ps_server_options){.port = site->addresses[1].port});
    return NULL;
}

static void it_waits_for_a_server_that_starts_late(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    pthread_t thread;
    start_shard(&site, 0, (struct ps_server_options){0});
    site.addresses[1] = loopback(free_port());
    struct weft_worker_config config = config_for(&site);
    struct weft_launch_address addresses[SHARDS] = {site.addresses[0], site.addresses[1]};
    config.servers = addresses; /* not the addresses that the thread writes */
    assert_int_equal(pthread_create(&thread, NULL, start_late, &site), 0);
    must_open(&worker, &config); /* the first attempt times out after a second */
    (void)pthread_join(thread, NULL);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    weft_worker_close(&worker);
    site_stop(&site);
}

static void what_answers_is_checked(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    char address[32];
    site_start(&site, (struct ps_server_options){0});
    struct weft_launch_address swapped[SHARDS] = {site.addresses[1], site.addresses[0]};
    struct weft_worker_config config = config_for(&site);
    config.servers = swapped;
    assert_int_equal(weft_worker_open(&worker, &config), WEFT_INVALID);
    must_say(&worker, "in the list of servers");
    weft_worker_close(&worker);

    config.servers = site.addresses;
    site.addresses[1] = loopback(free_port());
    config.connect_timeout_ns = 300 * WEFT_NS_PER_MS;
    assert_int_equal(weft_worker_open(&worker, &config), WEFT_TIMEOUT);
    snprintf(address, sizeof(address), "127.0.0.1:%u (shard 1 of 2)",
             (unsigned)site.addresses[1].port);
    must_say(&worker, address);
    weft_worker_close(&worker);

    site.addresses[1] = (struct weft_launch_address){.host = "10.1.2.3", .port = 7700};
    assert_int_equal(weft_worker_open(&worker, &config), WEFT_UNSUPPORTED);
    must_say(&worker, "10.1.2.3 is beyond loopback");
    weft_worker_close(&worker);
    site_stop(&site);
}

/* Without a connect timeout operations wait for the connections and then fail. */
static void without_waiting_the_first_operation_fails(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    char words[96];
    start_shard(&site, 0, (struct ps_server_options){0});
    site.addresses[1] = loopback(free_port());
    struct weft_worker_config config = config_for(&site);
    config.connect_timeout_ns = 0;
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_PEER);
    snprintf(words, sizeof(words), "shard 1 at 127.0.0.1:%u is gone: it has not answered for 1 s",
             (unsigned)site.addresses[1].port);
    must_say(&worker, words);
    must_say(&worker, "nothing listens at");
    weft_worker_close(&worker);
    test_server_stop(&site.servers[0]);
}

static void another_key_is_no_matter_of_waiting(void **state)
{
    (void)state;
    static const uint8_t bytes[WEFT_PSK_BYTES] = {9};
    struct weft_security security = {.mode = WEFT_MODE_AUTH, .key_bytes = bytes,
                                     .keep_variable = true};
    struct weft_error error;
    struct site site;
    struct weft_worker worker;
    assert_int_equal(weft_security_load(&security, false, &error), WEFT_OK);
    site_start(&site, (struct ps_server_options){0}); /* security none */
    struct weft_worker_config config = config_for(&site);
    config.endpoint.security = &security;
    assert_int_equal(weft_worker_open(&worker, &config), WEFT_PEER);
    must_say(&worker, "refused the connection: ");
    must_say(&worker, "security mode");
    weft_worker_close(&worker);
    weft_security_fini(&security);
    site_stop(&site);
}

/* ---- servers that go ------------------------------------------------------------------------- */

static void a_server_that_goes_is_named(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    uint32_t shard = 9;
    char words[64];
    site_start(&site, (struct ps_server_options){0});
    struct weft_worker_config config = config_for(&site);
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    test_server_stop(&site.servers[1]);
    assert_int_equal(push_ones(&worker), WEFT_PEER);
    snprintf(words, sizeof(words), "the server of shard 1 at 127.0.0.1:%u is gone: it ended",
             (unsigned)site.addresses[1].port);
    must_say(&worker, words);
    assert_true(weft_worker_is_down(&worker, &shard));
    assert_int_equal(shard, 1);
    weft_worker_close(&worker);
    test_server_stop(&site.servers[0]);
}

static void wait_for_away(struct weft_worker *worker)
{
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (!worker->any_away) {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_worker_progress(worker, 10 * WEFT_NS_PER_MS);
    }
}

static void a_server_comes_back(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    uint32_t shard;
    site_start(&site, (struct ps_server_options){0});
    struct weft_worker_config config = config_for(&site);
    config.client.reconnect_ns = limit_ns;
    must_open(&worker, &config);
    test_server_stop(&site.servers[1]);
    wait_for_away(&worker);
    assert_false(weft_worker_is_lost(&worker, &shard));
    start_shard(&site, 1, (struct ps_server_options){.port = site.addresses[1].port});
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_push(&worker);
    assert_false(worker.any_away || weft_worker_is_lost(&worker, &shard));
    assert_int_equal(weft_ps_client_counters(worker.client)->shard_disconnects, 1);
    weft_worker_close(&worker);
    site_stop(&site);
}

/* Two servers are disconnected at once. The first new connection may get the peer number of the
 * other server's old connection; its events must not affect the other server. */
static void two_servers_come_back(void **state)
{
    (void)state;
    enum { ROUNDS = 16 };
    struct site site;
    struct weft_worker worker;
    uint32_t shard;
    site_start(&site, (struct ps_server_options){0});
    struct weft_worker_config config = config_for(&site);
    config.client.reconnect_ns = limit_ns;
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        site_stop(&site);
        for (uint32_t s = 0; s < SHARDS; s++) {
            start_shard(&site, s, (struct ps_server_options){.port = site.addresses[s].port});
        }
        wait_for_away(&worker);
        must_push(&worker);
        assert_false(weft_worker_is_lost(&worker, &shard));
        assert_int_equal(weft_ps_client_counters(worker.client)->shard_disconnects, round * SHARDS);
    }
    weft_worker_close(&worker);
    site_stop(&site);
}

static void one_that_stays_away_is_given_up(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    uint32_t shard;
    site_start(&site, (struct ps_server_options){0});
    struct weft_worker_config config = config_for(&site);
    config.client.reconnect_ns = WEFT_NS_PER_S;
    must_open(&worker, &config);
    test_server_stop(&site.servers[0]);
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (!weft_worker_is_lost(&worker, &shard)) {
        assert_true(weft_clock_now_ns() < end_ns);
        /* while a server is disconnected, every sleep is short */
        weft_worker_progress(&worker, WEFT_NEVER);
    }
    assert_int_equal(shard, 0);
    assert_int_equal(weft_worker_lost(&worker), WEFT_PEER);
    must_say(&worker, "shard 0 at 127.0.0.1:");
    weft_worker_close(&worker);
    test_server_stop(&site.servers[1]);
}

/* A job with a coordinator: the shards of a site, and a worker that gets their addresses from the
 * coordinator. */
struct listed_site {
    struct site site;
    struct weft_coordinator coordinator;
    struct weft_membership servers, worker;
    struct weft_member_address published[SHARDS];
};

static void publish(struct listed_site *job)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(weft_resolve_member_address("127.0.0.1", job->site.addresses[s].port,
                                                     &job->published[s], NULL),
                         WEFT_OK);
    }
    weft_member_thread_publish(job->servers.thread, job->published);
}

static void listed_site_start(struct listed_site *job)
{
    const struct weft_transport_options transport = {.kind = WEFT_DRIVER_UDP};
    struct weft_membership_join join = {.security = &none, .transport = &transport, .span = SHARDS,
                                        .what = WEFT_MEMBER_WAIT_JOINED, .patience_ns = limit_ns};
    struct weft_membership membership = WEFT_MEMBERSHIP_DEFAULTS;
    struct weft_member_state lease;
    struct weft_error error = {.text = ""};
    membership.launch = weft_launch_nothing();
    memcpy(membership.launch.coordinator_host, "127.0.0.1", sizeof("127.0.0.1"));
    membership.launch.coordinator_port =
        coordinator_start(&job->coordinator, 0, SHARDS, 10 * WEFT_NS_PER_S);
    job->servers = job->worker = membership;
    site_start(&job->site, (struct ps_server_options){0});
    assert_int_equal(weft_membership_join(&job->servers, &join, &lease, &error), WEFT_OK);
    publish(job);
    join.span = 0;
    join.first = WEFT_MEMBER_NONE;
    join.what = WEFT_MEMBER_WAIT_LISTED;
    assert_int_equal(weft_membership_join(&job->worker, &join, &lease, &error), WEFT_OK);
}

static void listed_site_stop(struct listed_site *job)
{
    weft_membership_leave(&job->worker, true);
    weft_membership_leave(&job->servers, true);
    site_stop(&job->site);
    weft_coordinator_stop(&job->coordinator);
}

/* Shard 1 moves to this port; returns when the worker's member knows the address. */
static void move(struct listed_site *job, uint16_t port)
{
    struct weft_launch_address address = {.port = 0};
    const struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    job->site.addresses[1] = loopback(port);
    publish(job);
    while (address.port != port) {
        assert_true(weft_clock_now_ns() < end_ns);
        (void)nanosleep(&pause, NULL);
        assert_true(weft_membership_locate(&job->worker, 1, SHARDS, &address));
    }
}

/* The timeout exceeds the duration of these tests: only a worker that detects the move
 * continues. */
static struct weft_worker_config config_listed(struct listed_site *job)
{
    struct weft_worker_config config = config_for(&job->site);
    config.endpoint.driver.udp.ep.peer_timeout_ns = 2 * limit_ns;
    config.client.reconnect_ns = 2 * limit_ns;
    config.membership = &job->worker;
    return config;
}

/* The server restarts at another address, which the coordinator reports. */
static void the_coordinator_knows_where_it_is_now(void **state)
{
    (void)state;
    struct listed_site job;
    struct weft_worker worker;
    listed_site_start(&job);
    struct weft_worker_config config = config_listed(&job);
    config.endpoint.driver.udp.ep.peer_timeout_ns = WEFT_NS_PER_S;
    must_open(&worker, &config);
    test_server_stop(&job.site.servers[1]);
    wait_for_away(&worker);
    start_shard(&job.site, 1, (struct ps_server_options){.port = free_port()});
    publish(&job);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_push(&worker);
    assert_int_equal(worker.servers[1].address.port, job.site.addresses[1].port);
    weft_worker_close(&worker);
    listed_site_stop(&job);
}

static void start_elsewhere(struct test_server *elsewhere)
{
    test_server_start(elsewhere,
                      (struct ps_server_options){.shard = 1, .shards = SHARDS, .workers = 1});
}

static void must_go_on(struct weft_worker *worker, uint16_t port)
{
    uint32_t shard;
    must_push(worker);
    assert_int_equal(worker->servers[1].address.port, port);
    assert_false(weft_worker_is_lost(worker, &shard));
}

static void a_move_before_the_first_look_is_seen(void **state)
{
    (void)state;
    struct listed_site job;
    struct weft_worker worker;
    struct test_server elsewhere;
    listed_site_start(&job);
    struct weft_worker_config config = config_listed(&job);
    must_open(&worker, &config);
    test_server_go_deaf(&job.site.servers[1]);
    start_elsewhere(&elsewhere);
    move(&job, elsewhere.port);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_go_on(&worker, elsewhere.port);
    weft_worker_close(&worker);
    test_server_stop(&elsewhere);
    listed_site_stop(&job);
}

/* The worker is connecting to the process in between, which is dead, too. */
static void of_two_moves_the_last_counts(void **state)
{
    (void)state;
    struct listed_site job;
    struct weft_worker worker;
    struct test_server elsewhere;
    listed_site_start(&job);
    struct weft_worker_config config = config_listed(&job);
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_push(&worker);
    test_server_go_deaf(&job.site.servers[1]);
    uint16_t between = free_port();
    move(&job, between);
    uint64_t end_ns = weft_clock_now_ns() + limit_ns, until_ns;
    while (worker.servers[1].address.port != between ||
           weft_ps_client_away(worker.client, 1, &until_ns)) {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_worker_progress(&worker, 10 * WEFT_NS_PER_MS);
    }
    assert_true(worker.servers[1].is_away);
    start_elsewhere(&elsewhere);
    move(&job, elsewhere.port);
    must_go_on(&worker, elsewhere.port);
    weft_worker_close(&worker);
    test_server_stop(&elsewhere);
    listed_site_stop(&job);
}

struct mover {
    struct listed_site *job;
    uint16_t port;
    uint32_t steps;
};

static void move_in_a_while(void *arg, uint64_t now_ns)
{
    struct mover *mover = arg;
    (void)now_ns;
    if (mover->steps++ == 3) {
        move(mover->job, mover->port);
    }
}

static void a_move_before_it_is_open_is_seen(void **state)
{
    (void)state;
    struct listed_site job;
    struct weft_worker worker;
    struct test_server elsewhere;
    listed_site_start(&job);
    struct weft_worker_config config = config_listed(&job);
    test_server_go_deaf(&job.site.servers[1]);
    start_elsewhere(&elsewhere);
    struct mover mover = {.job = &job, .port = elsewhere.port};
    config.on_progress = move_in_a_while;
    config.arg = &mover;
    must_open(&worker, &config);
    assert_true(mover.steps > 3);
    assert_int_equal(open_table(&worker, WEFT_TABLE_ASP), WEFT_OK);
    must_go_on(&worker, elsewhere.port);
    weft_worker_close(&worker);
    test_server_stop(&elsewhere);
    listed_site_stop(&job);
}

static void a_clock_that_is_refused_ends_it(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker worker;
    uint32_t shard;
    site_start(&site, (struct ps_server_options){.clocks_max = 1});
    struct weft_worker_config config = config_for(&site);
    must_open(&worker, &config);
    assert_int_equal(open_table(&worker, WEFT_TABLE_BSP), WEFT_OK);
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (!weft_worker_is_lost(&worker, &shard)) {
        assert_true(weft_clock_now_ns() < end_ns);
        (void)weft_ps_clock(worker.client, 0, weft_clock_now_ns());
        weft_worker_progress(&worker, 10 * WEFT_NS_PER_MS);
    }
    assert_int_equal(weft_worker_lost(&worker), WEFT_PEER);
    must_say(&worker, "refused clock 2 of worker 0");
    assert_false(weft_worker_is_down(&worker, &shard));
    weft_worker_close(&worker);
    site_stop(&site);
}

static void the_older_process_of_a_rank_is_told(void **state)
{
    (void)state;
    struct site site;
    struct weft_worker older, newer;
    uint32_t shard;
    site_start(&site, (struct ps_server_options){0});
    struct weft_worker_config config = config_for(&site);
    config.client.reconnect_ns = limit_ns; /* the test ends before this timeout */
    must_open(&older, &config);
    config.endpoint.driver.udp.ep.incarnation++;
    must_open(&newer, &config);
    uint64_t end_ns = weft_clock_now_ns() + limit_ns;
    while (!weft_worker_is_lost(&older, &shard)) {
        assert_true(weft_clock_now_ns() < end_ns);
        weft_worker_progress(&newer, WEFT_NS_PER_MS);
        weft_worker_progress(&older, WEFT_NS_PER_MS);
    }
    assert_int_equal(weft_worker_lost(&older), WEFT_PEER);
    must_say(&older, "another process has the rank of worker 0");
    weft_worker_close(&older);
    weft_worker_close(&newer);
    site_stop(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_works_in_every_form),
        cmocka_unit_test(it_waits_for_a_server_that_starts_late),
        cmocka_unit_test(what_answers_is_checked),
        cmocka_unit_test(without_waiting_the_first_operation_fails),
        cmocka_unit_test(another_key_is_no_matter_of_waiting),
        cmocka_unit_test(a_server_that_goes_is_named),
        cmocka_unit_test(a_server_comes_back),
        cmocka_unit_test(two_servers_come_back),
        cmocka_unit_test(one_that_stays_away_is_given_up),
        cmocka_unit_test(the_coordinator_knows_where_it_is_now),
        cmocka_unit_test(a_move_before_the_first_look_is_seen),
        cmocka_unit_test(of_two_moves_the_last_counts),
        cmocka_unit_test(a_move_before_it_is_open_is_seen),
        cmocka_unit_test(a_clock_that_is_refused_ends_it),
        cmocka_unit_test(the_older_process_of_a_rank_is_told),
    };
    return cmocka_run_group_tests_name("node_worker", tests, NULL, NULL);
}
