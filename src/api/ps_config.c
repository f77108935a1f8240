#include "api/ps_internal.h"
#include "ps/hot_rows.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONFIG_BYTES_MIN = offsetof(struct weft_ps_config, inject_seed) + sizeof(uint32_t),
    OPTIONS_BYTES_MIN = offsetof(struct weft_table_options, reserved) + sizeof(uint32_t),
    RESULT_BYTES_MIN = offsetof(struct weft_result, latency) + sizeof(struct weft_ps_latency),
    OP_OPTIONS_BYTES_MIN = offsetof(struct weft_op_options, fill) + sizeof(uint64_t),
    COUNTERS_BYTES_MIN = offsetof(struct weft_ps_counters, injected_drops) + sizeof(uint64_t),
};

/* ---- structs that grow ----------------------------------------------------------------------- */

void weft_ps_config_init(struct weft_ps_config *config_p, size_t size)
{
    struct weft_ps_config config = {
        .worker = WEFT_PS_WORKER_ENVIRONMENT,
        .tables_max = 4,
        .dim_max = 64,
        .ops_max = 8,
        .rows_max = 65536,
        .missed_max = 65536,
        .lists_max = 4,
        .connect_timeout_ns = 60 * WEFT_NS_PER_S,
        .peer_timeout_ns = weft_api_peer_timeout_ns(),
        .keepalive_ns = WEFT_NS_PER_S,
        .reconnect_timeout_ns = WEFT_PS_RECONNECT_ENVIRONMENT,
        .replay_bytes = WEFT_PS_REPLAY_ENVIRONMENT,
        .call_timeout_ns = WEFT_NEVER,
    };
    weft_api_struct_init(config_p, size, &config, sizeof(config), CONFIG_BYTES_MIN);
}

/* Defaults of the papers or of the usual implementations. */
static const struct {
    const char *optimizer;
    float rate;
    float epsilon;
    float accumulator;
    float beta1;
    float beta2;
} defaults[] = {
    {.optimizer = "sgd", .rate = 0.1F},
    {.optimizer = "momentum", .rate = 0.01F, .beta1 = 0.9F},
    {.optimizer = "adagrad", .rate = 0.1F, .epsilon = 1e-10F, .accumulator = 0.1F},
    {.optimizer = "adadelay", .rate = 0.1F, .epsilon = 1e-10F, .accumulator = 0.1F},
    {.optimizer = "adam", .rate = 0.001F, .epsilon = 1e-8F, .beta1 = 0.9F, .beta2 = 0.999F},
    {.optimizer = "ftrl", .rate = 0.1F, .epsilon = 1.0F},
};

void weft_table_options_init(struct weft_table_options *options_p, size_t size,
                             const char *optimizer)
{
    struct weft_table_options options = {.optimizer = optimizer,
                                         .consistency = "bsp",
                                         .admission = "all",
                                         .eviction = "none",
                                         .not_finite = "reject",
                                         .dim = 1,
                                         .deadline_ns = WEFT_NEVER};
    for (size_t i = 0; optimizer != NULL && i < WEFT_ARRAY_COUNT(defaults); i++) {
        if (strcmp(defaults[i].optimizer, optimizer) == 0) {
            options.learning_rate = defaults[i].rate;
            options.epsilon = defaults[i].epsilon;
            options.accumulator = defaults[i].accumulator;
            options.beta1 = defaults[i].beta1;
            options.beta2 = defaults[i].beta2;
        }
    }
    weft_api_struct_init(options_p, size, &options, sizeof(options), OPTIONS_BYTES_MIN);
}

weft_status weft_api_ps_options_read(const struct weft_table_options *theirs,
                                     struct weft_table_options *ours_p, struct weft_error *error)
{
    weft_table_options_init(ours_p, sizeof(*ours_p), NULL);
    return weft_api_struct_in(ours_p, sizeof(*ours_p), OPTIONS_BYTES_MIN, theirs,
                              "set of table options", "weft_table_options_init", error);
}

void weft_op_options_init(struct weft_op_options *options_p, size_t size)
{
    const struct weft_op_options options = {.norm = -1};
    weft_api_struct_init(options_p, size, &options, sizeof(options), OP_OPTIONS_BYTES_MIN);
}

weft_status weft_api_ps_op_options_read(const struct weft_op_options *theirs,
                                        struct weft_op_options *ours_p, struct weft_error *error)
{
    if (theirs == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "options is NULL; fill them with weft_op_options_init");
    }
    weft_op_options_init(ours_p, sizeof(*ours_p));
    weft_status status =
        weft_api_struct_in(ours_p, sizeof(*ours_p), OP_OPTIONS_BYTES_MIN, theirs,
                           "set of operation options", "weft_op_options_init", error);
    if (status == WEFT_OK && ours_p->reserved != 0) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "options.reserved is not 0; begin with weft_op_options_init");
    }
    if (status == WEFT_OK && !isfinite(ours_p->norm)) {
        return weft_fail(error, WEFT_INVALID,
                         "norm is %g; it must be finite; negative = the client computes it",
                         ours_p->norm);
    }
    return status;
}

void weft_api_ps_result_out(struct weft_result *result_p, const struct weft_result *ours)
{
    if (result_p != NULL) {
        weft_api_struct_out(result_p, ours, sizeof(*ours), RESULT_BYTES_MIN);
    }
}

void weft_api_ps_counters_out(struct weft_ps_counters *counters_p,
                              const struct weft_ps_counters *ours)
{
    weft_api_struct_out(counters_p, ours, sizeof(*ours), COUNTERS_BYTES_MIN);
}

/* ---- the environment ------------------------------------------------------------------------- */

static weft_status coordinator_parse(const char *text, struct weft_launch *flags_p,
                                     struct weft_error *error)
{
    if (text != NULL && text[0] != '\0' &&
        !weft_launch_endpoint_parse(text, strlen(text), flags_p->coordinator_host,
                                    sizeof(flags_p->coordinator_host),
                                    &flags_p->coordinator_port)) {
        return weft_fail(error, WEFT_INVALID,
                         "coordinator is \"%.80s\"; it must be host:port, as `weft coordinator` "
                         "prints it",
                         text);
    }
    return WEFT_OK;
}

/* Read what the program did not set - rank, workers, servers - from WEFT_* or the variables of a
 * launcher (job/launch.h). The environment is not read if the program has set all three and no
 * coordinator. */
static weft_status environment_read(struct weft_ps_config *c, struct weft_launch *launch_p,
                                    struct weft_error *error)
{
    struct weft_launch flags = weft_launch_nothing();
    bool none_wanted = c->coordinator != NULL ? c->coordinator[0] == '\0' : c->servers != NULL;
    weft_status status = coordinator_parse(c->coordinator, &flags, error);
    if (status != WEFT_OK) {
        return status;
    }
    flags.role = WEFT_LAUNCH_WORKER;
    flags.servers = c->servers;
    flags.workers = c->workers == 0 ? WEFT_LAUNCH_UNKNOWN : c->workers;
    flags.rank = c->worker == WEFT_PS_WORKER_ENVIRONMENT ? WEFT_LAUNCH_UNKNOWN : c->worker;
    *launch_p = flags;
    if (flags.servers == NULL || flags.workers == WEFT_LAUNCH_UNKNOWN ||
        flags.rank == WEFT_LAUNCH_UNKNOWN || flags.coordinator_port != 0) {
        status = weft_launch_detect(&flags, 1, weft_launch_environment, NULL, launch_p, error);
    }
    if (none_wanted) {
        launch_p->coordinator_port = 0;
    }
    return status == WEFT_OK ? WEFT_OK : WEFT_DATA;
}

weft_status weft_api_ps_key_caching(bool *on_p, struct weft_error *error)
{
    uint64_t number = 1;
    weft_status status = weft_launch_number("WEFT_KEY_CACHING", 0, 1, &number, error);
    *on_p = number == 1;
    return status == WEFT_OK ? WEFT_OK : WEFT_DATA;
}

/* Settings for the loss of a server. */
static weft_status reconnect_read(struct weft_ps_config *c, struct weft_error *error)
{
    uint64_t seconds = 0, bytes = 0;
    weft_status status = WEFT_OK;
    if (c->reconnect_timeout_ns == WEFT_PS_RECONNECT_ENVIRONMENT) {
        status = weft_launch_number("WEFT_RECONNECT_S", 0, 86400, &seconds, error);
        c->reconnect_timeout_ns = seconds * WEFT_NS_PER_S;
    }
    if (status == WEFT_OK && c->replay_bytes == WEFT_PS_REPLAY_ENVIRONMENT) {
        status = weft_launch_number("WEFT_REPLAY_BYTES", 0, UINT64_C(1) << 40, &bytes, error);
        c->replay_bytes = c->reconnect_timeout_ns > 0 ? bytes : 0;
    }
    if (status != WEFT_OK) {
        return WEFT_DATA;
    }
    if (c->replay_bytes > 0 && c->reconnect_timeout_ns == 0) {
        return weft_fail(error, WEFT_INVALID,
                         "replay_bytes needs reconnect_timeout_ns above 0: pushes are kept to "
                         "resend them to a server that restarts");
    }
    return status;
}

static weft_status replicas_check(const struct weft_ps_config *c, const struct weft_launch *launch,
                                  struct weft_error *error)
{
    if (c->replicas != NULL && c->reconnect_timeout_ns == 0) {
        return weft_fail(error, WEFT_INVALID,
                         "replicas needs reconnect_timeout_ns above 0: operations wait for that "
                         "time until a replica was promoted");
    }
    if (c->replicas != NULL && launch->coordinator_port != 0) {
        return weft_fail(error, WEFT_INVALID,
                         "replicas does not go with a coordinator, which lists the servers that "
                         "were promoted; leave out one of them (coordinator \"\" = none)");
    }
    return WEFT_OK;
}

static weft_status rank_check(const struct weft_ps_config *c, struct weft_error *error)
{
    if (c->workers == 0 || c->worker == WEFT_PS_WORKER_ENVIRONMENT || c->worker < c->workers) {
        return WEFT_OK;
    }
    return weft_fail(error, WEFT_INVALID,
                     "this worker's rank is %u and there are %u workers; ranks go from 0 to "
                     "workers - 1: set config.worker and config.workers, or WEFT_RANK and "
                     "WEFT_WORKERS",
                     c->worker, c->workers);
}

/* Without a coordinator there is no other source for these settings. */
static weft_status settle(struct weft_ps_config *c, const struct weft_launch *launch,
                          struct weft_error *error)
{
    c->servers = launch->servers;
    c->workers = launch->workers == WEFT_LAUNCH_UNKNOWN ? 1 : launch->workers;
    c->worker = launch->rank == WEFT_LAUNCH_UNKNOWN && c->workers == 1 ? 0 : launch->rank;
    if (launch->coordinator_port != 0) {
        return WEFT_OK;
    }
    if (c->servers == NULL) {
        return weft_fail(
            error, WEFT_NOTFOUND,
            "no servers are named; set config.servers or the environment variable "
            "WEFT_SERVERS to \"host:port,host:port\", as `weft server` prints them, or "
            "config.coordinator or WEFT_COORDINATOR to the coordinator that knows them");
    }
    if (c->worker == WEFT_LAUNCH_UNKNOWN) {
        return weft_fail(error, WEFT_NOTFOUND,
                         "there are %u workers, and the rank of this one is not set; set "
                         "config.worker or WEFT_RANK",
                         c->workers);
    }
    return rank_check(c, error);
}

/* ---- the configuration ----------------------------------------------------------------------- */

static weft_status range_check(const struct weft_ps_config *c, struct weft_error *error)
{
    const struct weft_api_range fields[] = {
        {"workers", c->workers, 1, WEFT_RPC_WORKERS_MAX},
        {"security", c->security, WEFT_TRANSPORT_AUTH, WEFT_TRANSPORT_NONE},
        {"thread", c->thread, 0, 1},
        {"tables_max", c->tables_max, 1, 65536},
        {"dim_max", c->dim_max, 1, WEFT_RPC_DIM_MAX},
        {"ops_max", c->ops_max, 1, 4096},
        {"rows_max", c->rows_max, 1, UINT64_C(1) << 28},
        {"missed_max", c->missed_max, 0, UINT64_C(1) << 28},
        {"lists_max", c->lists_max, 1, WEFT_PS_LISTS_MAX},
        {"busy_poll_us", c->busy_poll_us, 0, UINT16_MAX},
        {"peer_timeout_ns", c->peer_timeout_ns, WEFT_NS_PER_MS, WEFT_NEVER},
        {"keepalive_ns", c->keepalive_ns, WEFT_NS_PER_MS, WEFT_NEVER},
        {"inject_loss_ppm", c->inject_loss_ppm, 0, WEFT_PPM},
        {"hot_rows", c->hot_rows, 0, WEFT_HOT_ROWS_MAX},
        {"link_mbps", c->link_mbps, 0, WEFT_PS_LINK_MBPS_MAX},
    };
    weft_status status = weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), error);
    bool tcp;
    return status == WEFT_OK ? weft_api_kernel_check(c->transport, &tcp, error) : status;
}

weft_status weft_api_ps_config_read(const struct weft_ps_config *theirs,
                                    struct weft_ps_config *ours_p, struct weft_launch *launch_p,
                                    struct weft_error *error)
{
    weft_ps_config_init(ours_p, sizeof(*ours_p));
    weft_status status = weft_api_struct_in(ours_p, sizeof(*ours_p), CONFIG_BYTES_MIN, theirs,
                                            "config", "weft_ps_config_init", error);
    if (status == WEFT_OK) {
        status = weft_api_peer_timeout_check(ours_p->peer_timeout_ns, error);
    }
    if (status == WEFT_OK) {
        status = rank_check(ours_p, error);
    }
    if (status == WEFT_OK) {
        status = weft_api_metrics_check(ours_p->metrics, error);
    }
    if (status == WEFT_OK) {
        status = environment_read(ours_p, launch_p, error);
    }
    if (status == WEFT_OK) {
        status = reconnect_read(ours_p, error);
    }
    if (status == WEFT_OK) {
        status = replicas_check(ours_p, launch_p, error);
    }
    if (status == WEFT_OK) {
        bool on;
        status = weft_api_ps_key_caching(&on, error);
    }
    ours_p->via = weft_api_environment(ours_p->via, "WEFT_VIA");
    ours_p->scheduler = weft_api_environment(ours_p->scheduler, "WEFT_SCHEDULER");
    if (status == WEFT_OK) {
        struct weft_launch_address address;
        uint8_t mode;
        status = weft_api_ps_scheduler_read(ours_p, &address, &mode, error);
    }
    if (status == WEFT_OK) {
        status = settle(ours_p, launch_p, error);
    }
    if (status == WEFT_OK && ours_p->hot_rows > 0 && ours_p->scheduler != NULL) {
        return weft_fail(
            error, WEFT_INVALID,
            "hot_rows does not go with scheduler, which selects one path for all rows of "
            "an update; leave out one of them (scheduler \"\" = none, also of "
            "WEFT_SCHEDULER)");
    }
    if (status == WEFT_OK && ours_p->hot_rows > 0 && ours_p->update_bytes_min > 0) {
        return weft_fail(
            error, WEFT_INVALID,
            "hot_rows does not go with update_bytes_min: all rows of an update take one "
            "path; leave out one of them");
    }
    return status == WEFT_OK ? range_check(ours_p, error) : status;
}

/* ---- the scheduler --------------------------------------------------------------------------- */

weft_status weft_api_ps_consistency_parse(const char *text, uint8_t *mode_p, uint32_t *staleness_p,
                                          struct weft_error *error)
{
    bool is_ssp = text != NULL && strncmp(text, "ssp:", 4) == 0 && text[4] >= '0' && text[4] <= '9';
    bool is_known = text == NULL || is_ssp || strcmp(text, "bsp") == 0 || strcmp(text, "asp") == 0;
    if (is_ssp) {
        char *end;
        errno = 0;
        unsigned long staleness = strtoul(text + 4, &end, 10);
        is_known = *end == '\0' && errno == 0 && staleness < UINT32_MAX;
        *staleness_p = (uint32_t)staleness;
    }
    if (!is_known) {
        return weft_fail(error, WEFT_INVALID,
                         "consistency is \"%.40s\"; choose \"bsp\", \"ssp:N\" with a number of "
                         "clocks N, or \"asp\"",
                         text);
    }
    *mode_p = is_ssp                                     ? WEFT_TABLE_SSP
              : text == NULL || strcmp(text, "bsp") == 0 ? WEFT_TABLE_BSP
                                                         : WEFT_TABLE_ASP;
    return WEFT_OK;
}

static weft_status tau_max_check(const struct weft_ps_config *c, uint8_t mode,
                                 struct weft_error *error)
{
    if (c->tau_max > 0 && c->scheduler == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "tau_max goes with scheduler, which enforces it; without a scheduler the "
                         "servers enforce `weft server --tau-max`");
    }
    if (c->tau_max > 0 && mode == WEFT_TABLE_BSP) {
        return weft_fail(error, WEFT_INVALID,
                         "tau_max goes with consistency \"ssp:N\" or \"asp\"; in \"bsp\" every "
                         "update is waited for");
    }
    const struct weft_api_range field = {"tau_max", c->tau_max, 0, WEFT_PS_TAU_MAX_MAX};
    return weft_api_ranges_check(&field, 1, error);
}

weft_status weft_api_ps_scheduler_parse(const char *text, struct weft_launch_address *address_p,
                                        struct weft_error *error)
{
    uint32_t count;
    if (weft_launch_servers_parse(text, address_p, 1, &count) == NULL && count == 1) {
        return WEFT_OK;
    }
    return weft_fail(error, WEFT_INVALID,
                     "scheduler is \"%.80s\"; it must be the host:port that `weft scheduler` "
                     "prints, with a numeric host",
                     text);
}

weft_status weft_api_ps_scheduler_read(const struct weft_ps_config *c,
                                       struct weft_launch_address *address_p, uint8_t *mode_p,
                                       struct weft_error *error)
{
    uint32_t staleness;
    weft_status status = weft_api_ps_consistency_parse(c->consistency, mode_p, &staleness, error);
    status = status == WEFT_OK ? tau_max_check(c, *mode_p, error) : status;
    if (status != WEFT_OK || c->scheduler == NULL) {
        return status;
    }
    return weft_api_ps_scheduler_parse(c->scheduler, address_p, error);
}

/* ---- the list of servers --------------------------------------------------------------------- */

weft_status weft_api_ps_servers_parse(const char *name, const char *text,
                                      struct weft_launch_address **servers_p, uint32_t *count_p,
                                      struct weft_error *error)
{
    size_t count = 1;
    for (const char *at = text; *at != '\0'; at++) {
        count += *at == ',';
    }
    if (count > WEFT_PS_SHARDS_MAX) {
        return weft_fail(error, WEFT_INVALID, "%s names %zu shards; at most %d", name, count,
                         WEFT_PS_SHARDS_MAX);
    }
    struct weft_launch_address *servers = calloc(count, sizeof(*servers));
    if (servers == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for the list of servers");
    }
    const char *bad = weft_launch_servers_parse(text, servers, (uint32_t)count, count_p);
    if (bad != NULL) {
        free(servers);
        return weft_fail(error, WEFT_INVALID,
                         "\"%.*s\" in %s is not host:port; write \"10.0.0.1:7700\", "
                         "separated by commas, shard 0 first",
                         (int)weft_min_u64(strcspn(bad, ","), 60), bad, name);
    }
    *servers_p = servers;
    return WEFT_OK;
}
