/* <weft/fabric.h>, a server written by its user: shards in threads (node/shard_thread.h), which
 * call the user's functions for rows, replies and closed updates. */
#include "api/ps_internal.h"
#include "io/clock.h"
#include "io/random.h"
#include "node/shard_thread.h"

#include <weft/fabric.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONFIG_BYTES_MIN = offsetof(struct weft_fabric_server_config, user) + sizeof(void *),
    COUNTERS_BYTES_MIN =
        offsetof(struct weft_fabric_server_counters, updates_late) + sizeof(uint64_t),
    REPLICATION_BYTES_MIN = offsetof(struct weft_fabric_replication, holds) + sizeof(uint64_t),
    SHARDS_MAX = 64,
    WORKERS_MAX = 2040, /* an endpoint has at most 4,096 peers, two of them for each worker */
    ADDRESS_BYTES = WEFT_LAUNCH_ADDRESS_BYTES + 10,
};

static const uint64_t patience_ns = 5 * WEFT_NS_PER_S;

struct fabric_shard {
    const struct weft_fabric_server *server;
    uint32_t number;
    struct weft_row_hooks hooks;
    struct weft_shard_thread thread;
};

struct weft_fabric_server {
    pid_t pid; /* of the process that has its threads */
    struct weft_fabric_server_config config;
    struct weft_security security;
    struct weft_launch_address scheduler;
    struct weft_launch_address *replicated; /* (shards,): of a replica; else NULL */
    bool is_promoted;
    struct weft_credit_share credit_share; /* of the host's link */
    uint64_t host;                         /* identifies the host for the scheduler */
    uint32_t started;
    char *address;
    struct fabric_shard shards[];
};

static _Thread_local struct weft_error last_error;

const char *weft_fabric_server_error(void)
{
    return last_error.text;
}

/* ---- configuration --------------------------------------------------------------------------- */

void weft_fabric_server_config_init(struct weft_fabric_server_config *config_p, size_t size)
{
    const struct weft_fabric_server_config config = {
        .shards = 1, .workers = 16, .tables_max = 4, .rows_max = 1 << 20, .dim_max = 64};
    weft_api_struct_init(config_p, size, &config, sizeof(config), CONFIG_BYTES_MIN);
}

static weft_status check_ranges(const struct weft_fabric_server_config *c)
{
    const struct weft_api_range fields[] = {
        {"security", c->security, WEFT_TRANSPORT_AUTH, WEFT_TRANSPORT_NONE},
        {"shards", c->shards, 1, SHARDS_MAX},
        {"shard_first", c->shard_first, 0, WEFT_PS_SHARDS_MAX - SHARDS_MAX},
        {"shards_total", c->shards_total, (uint64_t)c->shard_first + c->shards, WEFT_PS_SHARDS_MAX},
        {"port", c->port, 0, (uint64_t)UINT16_MAX + 1 - c->shards},
        {"workers", c->workers, 1, WORKERS_MAX},
        {"tables_max", c->tables_max, 1, 65536},
        {"rows_max", c->rows_max, 1, WEFT_TABLE_ROWS_MAX},
        {"dim_max", c->dim_max, 1, WEFT_RPC_DIM_MAX},
        {"tau_max", c->tau_max, 0, WEFT_PS_TAU_MAX_MAX},
        {"reserved", c->reserved, 0, 0},
        {"replicas", c->replicas, 0, 1},
        {"link_mbps", c->link_mbps, 0, WEFT_PS_LINK_MBPS_MAX},
    };
    return weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), &last_error);
}

static weft_status check_replicas(const struct weft_fabric_server_config *c)
{
    if (!isfinite(c->div_max) || c->div_max < 0) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "div_max is %g; it must be finite and not negative", c->div_max);
    }
    if (c->replicas == 0 && (c->div_max > 0 || c->replica_of != NULL)) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "%s needs replicas 1, at the server and at its replica",
                         c->replica_of != NULL ? "replica_of" : "div_max");
    }
    return WEFT_OK;
}

static weft_status read_config(const struct weft_fabric_server_config *theirs,
                               struct weft_fabric_server_config *ours_p,
                               struct weft_launch_address *scheduler_p)
{
    weft_fabric_server_config_init(ours_p, sizeof(*ours_p));
    weft_status status =
        weft_api_struct_in(ours_p, sizeof(*ours_p), CONFIG_BYTES_MIN, theirs, "config",
                           "weft_fabric_server_config_init", &last_error);
    ours_p->host = ours_p->host != NULL ? ours_p->host : "127.0.0.1";
    if (ours_p->shards_total == 0) {
        ours_p->shards_total = ours_p->shard_first + ours_p->shards;
    }
    status = status == WEFT_OK ? check_ranges(ours_p) : status;
    status = status == WEFT_OK ? check_replicas(ours_p) : status;
    status = status == WEFT_OK ? weft_api_network_check(ours_p->host, NULL, &last_error) : status;
    ours_p->scheduler = weft_api_environment(ours_p->scheduler, "WEFT_SCHEDULER");
    return status == WEFT_OK && ours_p->scheduler != NULL
               ? weft_api_ps_scheduler_parse(ours_p->scheduler, scheduler_p, &last_error)
               : status;
}

/* ---- the user's functions -------------------------------------------------------------------- */

static bool step(void *arg, const struct weft_row_step *step)
{
    const struct fabric_shard *shard = arg;
    const struct weft_fabric_update update = {
        .id = step->id,
        .shard = shard->number,
        .table = step->table,
        .column = step->column,
        .count = step->count,
        .gradient = step->gradient,
        .weights = step->weights,
        .state = step->slots,
        .states = step->slots_count,
        .stride = step->stride,
    };
    return shard->server->config.update(shard->server->config.user, &update);
}

static void answer(void *arg, const struct weft_row_read *read)
{
    const struct fabric_shard *shard = arg;
    const bool exists = read->slots != NULL;
    const struct weft_fabric_request request = {
        .id = read->id,
        .shard = shard->number,
        .table = read->table,
        .count = read->count,
        .states = exists ? read->slots_count : 0,
        .values = read->values,
        .state = read->slots,
        .stride = read->stride,
        .exists = exists,
    };
    shard->server->config.request(shard->server->config.user, &request);
}

static void closed(void *arg, const struct weft_shard_committed *from)
{
    const struct fabric_shard *shard = arg;
    const struct weft_fabric_committed committed = {
        .shard = shard->number,
        .worker = from->rank,
        .clock = from->clock,
        .number = from->number,
        .base = from->base,
        .opened = from->opened,
        .closed = from->closed,
        .late = from->late,
        .norm = from->norm,
    };
    shard->server->config.committed(shard->server->config.user, &committed);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void set_shard(struct weft_fabric_server *server, struct fabric_shard *shard,
                      struct weft_shard_thread_config *config)
{
    const struct weft_fabric_server_config *c = &server->config;
    config->shard.shard = shard->number;
    config->shard.shards = c->shards_total;
    config->shard.workers_max = c->workers;
    config->shard.tables_max = c->tables_max;
    config->shard.rows_max = c->rows_max;
    config->shard.dim_max = c->dim_max;
    config->shard.delay_max = (uint32_t)c->tau_max;
    config->shard.replicas_max = (uint32_t)c->replicas;
    config->shard.div_max = c->div_max / sqrt(c->shards_total);
    if (c->update != NULL || c->request != NULL) {
        shard->hooks = (struct weft_row_hooks){.step = c->update != NULL ? step : NULL,
                                               .read = c->request != NULL ? answer : NULL,
                                               .arg = shard};
        config->shard.hooks = &shard->hooks;
    }
    config->hooks.arg = shard;
    config->hooks.committed = c->committed != NULL ? closed : NULL;
    config->security = &server->security;
    if (c->scheduler != NULL) {
        config->scheduler = &server->scheduler;
        config->scheduler_workers = c->workers;
        config->scheduler_host = server->host;
        config->scheduler_link_bps = c->link_mbps * 1000000;
    }
}

static weft_status start_shard(struct weft_fabric_server *server, uint32_t i)
{
    const struct weft_fabric_server_config *c = &server->config;
    struct fabric_shard *shard = &server->shards[i];
    struct weft_shard_thread_config config;
    struct weft_udp_config *udp = &config.driver.udp;
    bool tcp;
    weft_status status = weft_api_kernel_check(c->transport, &tcp, &last_error);
    if (status != WEFT_OK) {
        return status;
    }
    shard->server = server;
    shard->number = c->shard_first + i;
    weft_shard_thread_config_default(&config);
    set_shard(server, shard, &config);
    config.driver.kind = tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    config.replica_of = server->replicated != NULL ? &server->replicated[i] : NULL;
    udp->host = c->host;
    udp->port = (uint16_t)(c->port != 0 ? c->port + i : 0);
    udp->ep.credit_share = &server->credit_share;
    udp->loss.role = WEFT_ROLE_SERVER;
    udp->loss.rank = shard->number;
    status = weft_shard_thread_start(&shard->thread, &config, &last_error);
    server->started += status == WEFT_OK;
    return status;
}

static weft_status write_address(struct weft_fabric_server *server)
{
    const char *host = server->config.host;
    host = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    size_t used = 0, bytes = (size_t)server->started * ADDRESS_BYTES;
    server->address = malloc(bytes);
    if (server->address == NULL) {
        return weft_fail(&last_error, WEFT_NOMEM, "no memory for the list of addresses");
    }
    for (uint32_t i = 0; i < server->started; i++) {
        const char *form = strchr(host, ':') != NULL ? "%s[%s]:%u" : "%s%s:%u";
        used += (size_t)snprintf(server->address + used, bytes - used, form, i > 0 ? "," : "", host,
                                 (unsigned)server->shards[i].thread.port);
    }
    return WEFT_OK;
}

/* The addresses of the shards that a replica replicates. */
static weft_status read_replicated(struct weft_fabric_server *server)
{
    const struct weft_fabric_server_config *c = &server->config;
    uint32_t count;
    if (c->replica_of == NULL) {
        return WEFT_OK;
    }
    server->replicated = calloc(c->shards, sizeof(*server->replicated));
    if (server->replicated == NULL) {
        return weft_fail(&last_error, WEFT_NOMEM, "no memory for the list of addresses");
    }
    if (weft_launch_servers_parse(c->replica_of, server->replicated, c->shards, &count) != NULL ||
        count != c->shards) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "replica_of is \"%.80s\"; it must be the address of the server, as "
                         "weft_fabric_server_address returns it: a numeric host:port for each of "
                         "the %u shards",
                         c->replica_of, c->shards);
    }
    return WEFT_OK;
}

static weft_status start(struct weft_fabric_server *server)
{
    const struct weft_fabric_server_config *c = &server->config;
    const struct weft_api_security from = {c->security, c->key_file, c->key};
    weft_status status = read_replicated(server);
    status = status == WEFT_OK ? weft_api_security_load(&from, &server->security, &last_error)
                               : status;
    weft_os_random(&server->host, sizeof(server->host));
    server->host |= 1; /* 0 = each shard has a link of its own */
    for (uint32_t i = 0; status == WEFT_OK && i < c->shards; i++) {
        status = start_shard(server, i);
    }
    return status == WEFT_OK ? write_address(server) : status;
}

/* ---- the public functions -------------------------------------------------------------------- */

weft_status weft_fabric_server_open(const struct weft_fabric_server_config *config,
                                    struct weft_fabric_server **server_p)
{
    struct weft_fabric_server_config ours;
    struct weft_launch_address scheduler;
    if (config == NULL || server_p == NULL) {
        return weft_fail(&last_error, WEFT_INVALID,
                         "config or server_p is NULL; fill a config with "
                         "weft_fabric_server_config_init");
    }
    weft_status status = read_config(config, &ours, &scheduler);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_fabric_server *server =
        calloc(1, sizeof(*server) + ours.shards * sizeof(server->shards[0]));
    if (server == NULL) {
        return weft_fail(&last_error, WEFT_NOMEM, "no memory for %u shards", ours.shards);
    }
    server->pid = getpid();
    server->config = ours;
    if (ours.scheduler != NULL) {
        server->scheduler = scheduler;
    }
    status = start(server);
    if (status != WEFT_OK) {
        weft_fabric_server_close(server);
        return status;
    }
    /* The caller's memory is not used after this. */
    server->config.host = server->config.key_file = server->config.transport = NULL;
    server->config.scheduler = server->config.replica_of = NULL;
    server->config.key = NULL;
    *server_p = server;
    return WEFT_OK;
}

const char *weft_fabric_server_address(const struct weft_fabric_server *server)
{
    return server->address;
}

/* On the shard's thread. */
static void add_counters(void *arg, void *object)
{
    struct weft_fabric_server_counters *sum = arg;
    const struct weft_shard_serving *serving = object;
    const struct weft_shard_counters *shard = weft_shard_counters(serving->shard);
    sum->pushes += shard->pushes;
    sum->pulls += shard->pulls;
    sum->elements_applied += shard->elements_applied;
    sum->rows_pulled += shard->rows_pulled;
    sum->clocks += shard->clocks;
    sum->updates_opened += shard->updates_opened;
    sum->updates_closed += shard->updates_closed;
    sum->updates_late += shard->updates_late;
}

weft_status weft_fabric_server_counters_get(struct weft_fabric_server *server,
                                            struct weft_fabric_server_counters *counters_p)
{
    struct weft_fabric_server_counters sum = {.size = sizeof(sum)};
    for (uint32_t i = 0; i < server->started; i++) {
        if (!weft_stats_query_ask(&server->shards[i].thread.query, add_counters, &sum,
                                  patience_ns)) {
            return WEFT_TIMEOUT;
        }
    }
    weft_api_struct_out(counters_p, &sum, sizeof(sum), COUNTERS_BYTES_MIN);
    return WEFT_OK;
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* On the shard's thread. The divergences are sums of squares until all shards are added. */
static void add_replication(void *arg, void *object)
{
    struct weft_fabric_replication *sum = arg;
    const struct weft_shard_serving *serving = object;
    const struct weft_standby *standby = serving->standby;
    if (standby != NULL && !weft_standby_has_ended(standby)) {
        const struct weft_replica *replica = weft_standby_replica(standby);
        sum->is_replica = 1;
        sum->ready += weft_standby_may_end(standby, weft_clock_now_ns()) == WEFT_REPLICA_GOOD;
        sum->transfers += replica != NULL ? weft_replica_state(replica)->transfers : 0;
        sum->bytes += replica != NULL ? weft_replica_state(replica)->bytes : 0;
        return;
    }
    struct weft_replication of;
    weft_shard_replication(serving->shard, &of);
    sum->ready += of.ready;
    sum->divergence += of.divergence * of.divergence;
    sum->divergence_max += of.divergence_max * of.divergence_max;
    sum->transfers += of.transfers;
    sum->bytes += of.bytes;
    sum->holds += of.holds;
}

weft_status weft_fabric_server_replication_get(struct weft_fabric_server *server,
                                               struct weft_fabric_replication *replication_p)
{
    struct weft_fabric_replication sum = {.size = sizeof(sum), .shards = server->started};
    for (uint32_t i = 0; i < server->started; i++) {
        if (!weft_stats_query_ask(&server->shards[i].thread.query, add_replication, &sum,
                                  patience_ns)) {
            return WEFT_TIMEOUT;
        }
    }
    sum.divergence = sqrt(sum.divergence);
    sum.divergence_max = sqrt(sum.divergence_max);
    weft_api_struct_out(replication_p, &sum, sizeof(sum), REPLICATION_BYTES_MIN);
    return WEFT_OK;
}

typedef weft_status ask_fn(struct weft_shard_thread *thread, uint64_t at_ns,
                           enum weft_replica_why *why_p);

static weft_status ask_all(struct weft_fabric_server *server, ask_fn *ask, uint64_t at_ns)
{
    for (uint32_t i = 0; i < server->started; i++) {
        enum weft_replica_why why = WEFT_REPLICA_GOOD;
        if (ask(&server->shards[i].thread, at_ns, &why) != WEFT_OK) {
            return weft_fail(&last_error, WEFT_TIMEOUT,
                             "shard %u did not reply; close this server, because some of its "
                             "shards may serve",
                             server->shards[i].number);
        }
        if (why != WEFT_REPLICA_GOOD) {
            return weft_fail(&last_error, WEFT_STATE,
                             "the replica of shard %u is not promoted: %s",
                             server->shards[i].number, weft_replica_why_text(why));
        }
    }
    return WEFT_OK;
}

weft_status weft_fabric_server_promote(struct weft_fabric_server *server, uint64_t dead_for_ns)
{
    const uint64_t now_ns = weft_clock_now_ns();
    const uint64_t at_ns = now_ns - weft_min_u64(dead_for_ns, now_ns);
    if (server->is_promoted) {
        return WEFT_OK;
    }
    if (server->replicated == NULL) {
        return weft_fail(&last_error, WEFT_STATE,
                         "this server is not a replica: it was opened without replica_of");
    }
    weft_status status = ask_all(server, weft_shard_thread_may_be_promoted, at_ns);
    if (status != WEFT_OK) {
        return status;
    }
    status = ask_all(server, weft_shard_thread_promote, at_ns);
    if (status == WEFT_STATE) { /* a shard began to receive everything again since the check */
        return weft_fail(&last_error, WEFT_PEER,
                         "the replicated server still runs; end it, and close this server, because "
                         "some of its shards serve");
    }
    server->is_promoted = status == WEFT_OK;
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

void weft_fabric_server_close(struct weft_fabric_server *server)
{
    if (server == NULL || server->pid != getpid()) {
        return;
    }
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_end(&server->shards[i].thread);
    }
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_join(&server->shards[i].thread);
    }
    weft_security_fini(&server->security);
    free(server->replicated);
    free(server->address);
    free(server);
}
