/* <weft/fabric.h>: a server whose hooks for steps, replies and closed updates are in this test, and
 * workers that push whole updates. Values are whole numbers, so that sums are exact. */
#include "comm_job.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weft/fabric.h>

enum { WORKERS = 2, DIM = 300, BLOCK = 256, N = 20, TAU_MAX = 2, COMMITTED_MAX = 64 };
enum { OURS, THEIRS }; /* tables: stepped by the test, and by their optimizer */

/* Counts of the calls of the server's functions. */
struct seen {
    pthread_mutex_t lock;
    uint64_t steps;
    uint64_t bad; /* invalid arguments */
    uint64_t requests;
    uint64_t absent;
    struct weft_fabric_committed committed[COMMITTED_MAX];
    uint32_t committed_count;
};

struct site {
    struct seen seen;
    struct weft_fabric_server *server;
    struct weft_ps *ps[WORKERS];
    struct weft_ps_table *table[WORKERS][2];
};

static void must(weft_status status, const char *why)
{
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), why);
    }
}

/* w += 10 g, and the state counts steps. */
static bool update(void *user, const struct weft_fabric_update *u)
{
    struct seen *seen = user;
    bool is_last = u->column == BLOCK;
    pthread_mutex_lock(&seen->lock);
    seen->steps += u->table == OURS;
    seen->bad += u->shard > 1 || u->table > THEIRS || (u->column != 0 && !is_last) ||
                 u->count != (is_last ? DIM - BLOCK : BLOCK) ||
                 u->states != (u->table == OURS ? 1 : 0) || u->stride != DIM || u->id % 7919 != 0;
    pthread_mutex_unlock(&seen->lock);
    if (u->table != OURS) {
        return false;
    }
    for (uint32_t i = 0; i < u->count; i++) {
        u->weights[i] += 10 * u->gradient[i];
        u->state[i] += 1;
    }
    return true;
}

/* For table OURS: the weights plus a thousand per step; -1 for a row without pushes. */
static void request(void *user, const struct weft_fabric_request *r)
{
    struct seen *seen = user;
    pthread_mutex_lock(&seen->lock);
    seen->requests++;
    seen->absent += !r->exists;
    seen->bad += r->count != DIM || r->stride != DIM || (r->exists == 0) != (r->state == NULL);
    pthread_mutex_unlock(&seen->lock);
    for (uint32_t i = 0; r->table == OURS && i < r->count; i++) {
        r->values[i] = r->exists ? r->values[i] + 1000 * r->state[i] : -1;
    }
}

static void committed(void *user, const struct weft_fabric_committed *c)
{
    struct seen *seen = user;
    pthread_mutex_lock(&seen->lock);
    if (seen->committed_count < COMMITTED_MAX) {
        seen->committed[seen->committed_count++] = *c;
    }
    pthread_mutex_unlock(&seen->lock);
}

static struct weft_fabric_server_config server_config(struct site *site, uint32_t shards)
{
    struct weft_fabric_server_config config;
    weft_fabric_server_config_init(&config, sizeof(config));
    config.security = WEFT_TRANSPORT_NONE;
    config.shards = shards;
    config.workers = WORKERS;
    config.rows_max = 10000;
    config.dim_max = DIM;
    config.tau_max = TAU_MAX;
    config.update = update;
    config.request = request;
    config.committed = committed;
    config.user = &site->seen;
    return config;
}

static void open_tables(struct site *site, uint32_t worker, const char *consistency)
{
    static const char *const optimizers[] = {[OURS] = "momentum", [THEIRS] = "sgd"};
    for (uint32_t t = OURS; t <= THEIRS; t++) {
        struct weft_table_options options;
        weft_table_options_init(&options, sizeof(options), optimizers[t]);
        options.consistency = consistency;
        options.number = t;
        options.dim = DIM;
        options.average = "none";
        options.learning_rate = -1.0F;
        must(weft_table_open(site->ps[worker], &options, &site->table[worker][t]),
             weft_ps_error(site->ps[worker]));
    }
}

static void join(struct site *site, const char *consistency, const char *replicas)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct weft_ps_config worker;
        weft_ps_config_init(&worker, sizeof(worker));
        worker.servers = weft_fabric_server_address(site->server);
        worker.security = WEFT_TRANSPORT_NONE;
        worker.worker = w;
        worker.workers = WORKERS;
        worker.dim_max = DIM;
        worker.rows_max = 100;
        worker.update_bytes_min = 1;
        worker.replicas = replicas;
        worker.reconnect_timeout_ns = replicas != NULL ? JOB_TIMEOUT_NS : 0;
        worker.peer_timeout_ns = JOB_TIMEOUT_NS * 3; /* one thread runs both workers */
        must(weft_ps_connect(&worker, &site->ps[w]), weft_ps_error(NULL));
        open_tables(site, w, consistency);
    }
}

static void site_start(struct site *site, uint32_t shards, const char *consistency)
{
    *site = (struct site){.seen = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    const struct weft_fabric_server_config config = server_config(site, shards);
    must(weft_fabric_server_open(&config, &site->server), weft_fabric_server_error());
    join(site, consistency, NULL);
}

/* After this returns, the counts are complete. */
static void site_stop(struct site *site)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        must(weft_ps_flush(site->ps[w], JOB_TIMEOUT_NS), weft_ps_error(site->ps[w]));
        weft_ps_close(site->ps[w]);
    }
    weft_fabric_server_close(site->server);
    assert_int_equal(site->seen.bad, 0);
}

static void ids_of(uint64_t *ids, uint64_t from)
{
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = (from + i) * 7919;
    }
}

/* Both tables in one update. */
static weft_status push(struct site *site, uint32_t worker, float value,
                        struct weft_result *result_p)
{
    static float rows[N * DIM];
    uint64_t ids[N];
    struct weft_push_list lists[3];
    ids_of(ids, 0);
    for (size_t i = 0; i < N * DIM; i++) {
        rows[i] = value;
    }
    for (uint32_t t = 0; t < 3; t++) { /* table 1 twice, for half of its rows each */
        lists[t] = (struct weft_push_list){.table = site->table[worker][t > 0],
                                           .ids = t == 2 ? ids + N / 2 : ids,
                                           .rows = rows,
                                           .n = t == 0 ? N : N / 2};
    }
    *result_p = (struct weft_result){.size = sizeof(*result_p)};
    return weft_fabric_push(site->ps[worker], lists, 3, 77, result_p);
}

static void reads(struct site *site, uint32_t worker, uint32_t table, uint64_t from, float wanted)
{
    static float rows[N * DIM];
    uint64_t ids[N];
    ids_of(ids, from);
    const struct weft_pull_list get = {
        .table = site->table[worker][table], .ids = ids, .rows_p = rows, .n = N};
    must(weft_fabric_get(site->ps[worker], &get, 1, NULL), weft_ps_error(site->ps[worker]));
    for (size_t i = 0; i < N * DIM; i++) {
        if (rows[i] != wanted) {
            fail_msg("float %zu is %g, not %g", i, (double)rows[i], (double)wanted);
        }
    }
}

static void steps_and_answers_are_the_users(void **state)
{
    (void)state;
    static struct site site;
    struct weft_result result;
    struct weft_fabric_server_counters counters = {.size = sizeof(counters)};
    site_start(&site, 2, "asp");
    reads(&site, 0, OURS, 0, -1);
    reads(&site, 0, THEIRS, 0, 0);
    must(push(&site, 0, 2, &result), weft_ps_error(site.ps[0]));
    assert_int_equal(result.requests_dropped, 0);
    reads(&site, 0, OURS, 0, 1020); /* 10 x 2, one step */
    reads(&site, 0, OURS, 0, 1020); /* a reply changes no weights */
    reads(&site, 0, THEIRS, 0, 2);
    must(push(&site, 1, 3, &result), weft_ps_error(site.ps[1]));
    reads(&site, 1, OURS, 0, 2050);
    reads(&site, 1, THEIRS, 0, 5);
    reads(&site, 1, OURS, N, -1);
    assert_int_equal(weft_clock_ended(site.table[0][OURS]), 1);
    assert_int_equal(weft_clock_ended(site.table[0][THEIRS]), 1);
    must(weft_fabric_server_counters_get(site.server, &counters), "counters");
    assert_int_equal(counters.rows_pulled, 8 * N);
    assert_int_equal(counters.elements_applied, 2 * 2 * 2 * N);
    assert_int_equal(counters.updates_opened, 2 * 2);
    site_stop(&site);
    assert_int_equal(site.seen.steps, 2 * 2 * N); /* updates, blocks, rows */
    assert_int_equal(site.seen.requests, 8 * N);
    assert_int_equal(site.seen.absent, 3 * N);
}

/* A clock's sum is one gradient; a pull waits for both workers. */
static void a_sum_is_one_step(void **state)
{
    (void)state;
    static struct site site;
    static float rows[WORKERS][N * DIM];
    uint64_t ids[N], op[WORKERS];
    site_start(&site, 2, "bsp");
    ids_of(ids, 0);
    for (uint32_t w = 0; w < WORKERS; w++) {
        for (size_t i = 0; i < N * DIM; i++) {
            rows[w][i] = 1 + (float)w;
        }
        must(weft_push(site.table[w][OURS], ids, rows[w], N, 0, &op[w]), weft_ps_error(site.ps[w]));
        must(weft_clock(site.table[w][OURS]), weft_ps_error(site.ps[w]));
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        must(weft_wait(site.ps[w], op[w], WEFT_NEVER, NULL), weft_ps_error(site.ps[w]));
        must(weft_ps_flush(site.ps[w], JOB_TIMEOUT_NS), weft_ps_error(site.ps[w]));
    }
    reads(&site, 0, OURS, 0, 1030); /* 10 x (1 + 2), one step */
    site_stop(&site);
    assert_int_equal(site.seen.steps, 2 * N);
}

/* Worker 1 reads, then worker 0 pushes one update more than the bound. The update of worker 1 is
 * then refused. */
static void an_update_is_committed_or_dropped(void **state)
{
    (void)state;
    static struct site site;
    struct weft_result result;
    site_start(&site, 1, "asp");
    reads(&site, 1, THEIRS, 0, 0);
    for (int i = 0; i <= TAU_MAX; i++) {
        reads(&site, 0, THEIRS, 0, 2 * (float)i);
        must(push(&site, 0, 2, &result), weft_ps_error(site.ps[0]));
    }
    assert_int_equal(push(&site, 1, 5, &result), WEFT_DROPPED);
    assert_int_equal(result.requests_dropped, result.requests);
    assert_int_equal(result.rows_missed, 2 * N);
    reads(&site, 1, THEIRS, 0, 2 * (TAU_MAX + 1));
    must(push(&site, 1, 1, &result), weft_ps_error(site.ps[1]));
    reads(&site, 0, THEIRS, 0, 2 * (TAU_MAX + 1) + 1);
    site_stop(&site);
    const struct weft_fabric_committed *c = site.seen.committed;
    assert_int_equal(site.seen.committed_count, TAU_MAX + 3);
    for (uint32_t i = 0; i < TAU_MAX + 3; i++) {
        bool is_slow = i > TAU_MAX, late = i == TAU_MAX + 1;
        assert_int_equal(c[i].shard, 0);
        assert_int_equal(c[i].worker, is_slow);
        assert_int_equal(c[i].clock, is_slow ? i - TAU_MAX : i + 1);
        assert_int_equal(c[i].late, late);
        assert_int_equal(c[i].number, i + 1 - is_slow);
        assert_int_equal(c[i].base, late ? 0 : c[i].number - 1);
        assert_int_equal(c[i].closed, c[i].number);
        double norm = late ? 0 : (is_slow ? 1 : 2) * sqrt(2.0 * N * DIM);
        assert_true(fabs(c[i].norm - norm) < 1e-3);
    }
    assert_int_equal(site.seen.steps, (TAU_MAX + 2) * 2 * N);
}

/* ---- replicas -------------------------------------------------------------------------------- */

static struct weft_fabric_replication replication_of(struct weft_fabric_server *server)
{
    struct weft_fabric_replication of = {.size = sizeof(of)};
    must(weft_fabric_server_replication_get(server, &of), "replication");
    return of;
}

/* Let the workers make progress until every shard has a replica that could be promoted. */
static void wait_for_replica(struct site *site, struct weft_fabric_server *replica)
{
    const uint64_t part_ns = 1000000;
    uint64_t parts = 0;
    while (replication_of(site->server).ready < 2 || replication_of(replica).ready < 2) {
        assert_true(parts++ * part_ns < JOB_TIMEOUT_NS);
        weft_ps_progress(site->ps[parts % WORKERS], part_ns);
    }
}

static void promote_fails(struct weft_fabric_server *server, const char *words)
{
    assert_int_equal(weft_fabric_server_promote(server, 0), WEFT_STATE);
    if (strstr(weft_fabric_server_error(), words) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", weft_fabric_server_error(), words);
    }
}

static uint64_t pushes_lost(struct weft_ps *ps)
{
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    return counters.pushes_lost;
}

/* A server with two shards ends after two updates, and its replica is promoted. With a bound of 0
 * it has both, and the functions that step and reply are those of the replica's program. With a
 * bound that is never reached it has neither, and the workers know that. */
static void takes_over(double div_max)
{
    static struct site site;
    static struct seen seen;
    struct weft_fabric_server *replica;
    struct weft_result result;
    const bool keeps = div_max == 0;
    site = (struct site){.seen = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    seen = (struct seen){.lock = PTHREAD_MUTEX_INITIALIZER};
    struct weft_fabric_server_config config = server_config(&site, 2);
    config.replicas = 1;
    config.div_max = div_max;
    must(weft_fabric_server_open(&config, &site.server), weft_fabric_server_error());
    config.replica_of = weft_fabric_server_address(site.server);
    config.user = &seen;
    must(weft_fabric_server_open(&config, &replica), weft_fabric_server_error());
    promote_fails(site.server, "not a replica");
    join(&site, "asp", weft_fabric_server_address(replica));
    wait_for_replica(&site, replica);
    const uint64_t before = replication_of(replica).transfers;
    must(push(&site, 0, 2, &result), weft_ps_error(site.ps[0]));
    must(push(&site, 1, 3, &result), weft_ps_error(site.ps[1]));
    reads(&site, 0, OURS, 0, 2050);
    const struct weft_fabric_replication server = replication_of(site.server);
    const struct weft_fabric_replication of = replication_of(replica);
    assert_true(server.shards == 2 && of.shards == 2 && server.ready == 2 && of.ready == 2);
    assert_true(server.is_replica == 0 && of.is_replica == 1);
    assert_true(server.divergence <= div_max && server.divergence_max <= div_max);
    assert_int_equal(of.transfers > before, keeps);
    assert_true(of.bytes > 0 && server.bytes >= of.bytes);
    assert_true(seen.steps == 0 && seen.requests == 0);
    weft_fabric_server_close(site.server);
    must(weft_fabric_server_promote(replica, 0), weft_fabric_server_error());
    must(weft_fabric_server_promote(replica, 0), "again");
    assert_int_equal(replication_of(replica).is_replica, 0);
    site.server = replica;
    reads(&site, 0, OURS, 0, keeps ? 2050 : -1);
    reads(&site, 1, THEIRS, 0, keeps ? 5 : 0);
    must(push(&site, 1, 1, &result), weft_ps_error(site.ps[1]));
    reads(&site, 0, OURS, 0, keeps ? 3060 : 1010);
    reads(&site, 1, THEIRS, 0, keeps ? 6 : 1);
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(pushes_lost(site.ps[w]) > 0, !keeps);
    }
    site_stop(&site);
    assert_int_equal(seen.bad, 0);
    assert_int_equal(seen.steps, 2 * N);
    assert_int_equal(seen.requests, 4 * N);
}

static void a_replica_takes_over(void **state)
{
    (void)state;
    takes_over(0);
    takes_over(1e9);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void must_fail(const struct weft_fabric_server_config *config, weft_status wanted,
                      const char *words)
{
    struct weft_fabric_server *server = NULL;
    assert_int_equal(weft_fabric_server_open(config, &server), wanted);
    assert_null(server);
    if (strstr(weft_fabric_server_error(), words) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", weft_fabric_server_error(), words);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static struct site site;
    struct weft_fabric_server *server;
    struct weft_fabric_server_config config = server_config(&site, 1);
    must_fail(NULL, WEFT_INVALID, "config or server_p is NULL");
    config.shards = 0;
    must_fail(&config, WEFT_INVALID, "shards is 0");
    config = server_config(&site, 2);
    config.shards_total = 1;
    must_fail(&config, WEFT_INVALID, "shards_total");
    config = server_config(&site, 2);
    config.port = 65535;
    must_fail(&config, WEFT_INVALID, "port is 65535");
    config = server_config(&site, 1);
    config.scheduler = "here";
    must_fail(&config, WEFT_INVALID, "scheduler is \"here\"");
    config.scheduler = "";
    config.transport = "pigeons";
    must_fail(&config, WEFT_INVALID, "pigeons");
    config = server_config(&site, 1);
    config.tau_max = 1 << 23;
    must_fail(&config, WEFT_INVALID, "tau_max is 8388608");
    config = server_config(&site, 1);
    config.size = 8;
    must_fail(&config, WEFT_INVALID, "weft_fabric_server_config_init");
    config = server_config(&site, 1);
    config.div_max = 1;
    must_fail(&config, WEFT_INVALID, "div_max needs replicas 1");
    config.replica_of = "127.0.0.1:9";
    must_fail(&config, WEFT_INVALID, "replica_of needs replicas 1");
    config.replicas = 2;
    must_fail(&config, WEFT_INVALID, "replicas is 2");
    config.replicas = 1;
    config.div_max = NAN;
    must_fail(&config, WEFT_INVALID, "div_max is nan");
    config.div_max = -1;
    must_fail(&config, WEFT_INVALID, "div_max is -1");
    config.div_max = 0;
    config.replica_of = "127.0.0.1:9,127.0.0.1:10";
    must_fail(&config, WEFT_INVALID, "for each of the 1 shards");
    config.replica_of = "here";
    must_fail(&config, WEFT_INVALID, "replica_of is \"here\"");
    config.replica_of = "127.0.0.1:9";
    must(weft_fabric_server_open(&config, &server), weft_fabric_server_error());
    promote_fails(server, "it has not received all of its shard yet");
    weft_fabric_server_close(server);
    config = server_config(&site, 1);
    must(weft_fabric_server_open(&config, &server), weft_fabric_server_error());
    config.port = (uint32_t)strtoul(strchr(weft_fabric_server_address(server), ':') + 1, NULL, 10);
    must_fail(&config, WEFT_EXISTS, "in use");
    weft_fabric_server_close(server);
    weft_fabric_server_close(NULL);
}

static const char *sum_of_ranks(struct weft_comm *comm, uint32_t rank, void *arg)
{
    float update[1000];
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        update[i] = (float)((rank + 1) * (uint32_t)i);
    }
    if (weft_fabric_all_reduce(comm, update, 1000) != WEFT_OK) {
        return weft_comm_error(comm);
    }
    for (int i = 0; i < 1000; i++) {
        if (update[i] != 6 * (float)i) { /* 1 + 2 + 3 */
            return "another sum";
        }
    }
    return NULL;
}

static void workers_without_a_server_sum(void **state)
{
    (void)state;
    const struct weft_comm_config config = job_config(3);
    struct job job = job_open(&config);
    job_run(&job, sum_of_ranks, NULL);
    job_close(&job);
}

/* A number of workers for which an endpoint has no room is refused by its name. */
static void the_number_of_workers_is_limited(void **state)
{
    static struct site site;
    struct weft_fabric_server_config config = server_config(&site, 1);
    struct weft_fabric_server *server;
    (void)state;
    config.workers = 2041;
    assert_int_equal(weft_fabric_server_open(&config, &server), WEFT_INVALID);
    assert_non_null(strstr(weft_fabric_server_error(), "workers is 2041"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_answers_are_the_users),
        cmocka_unit_test(a_sum_is_one_step),
        cmocka_unit_test(an_update_is_committed_or_dropped),
        cmocka_unit_test(a_replica_takes_over),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(workers_without_a_server_sum),
        cmocka_unit_test(the_number_of_workers_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
