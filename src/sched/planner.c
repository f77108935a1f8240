/* Lifecycle of the planner: memory, configuration, polling. Events are in report.c. */
#include "sched/internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

void weft_planner_config_default(struct weft_planner_config *config_p)
{
    *config_p = (struct weft_planner_config){.mode = WEFT_PLANNER_ASYNC,
                                             .policy = WEFT_PLAN_ORDER,
                                             .ahead = 3,
                                             .groups_ahead = 2,
                                             .window = 32,
                                             .tie_ppm = 50000,
                                             .slow_ppm = WEFT_PPM / 2,
                                             .floor_ppm = WEFT_PPM,
                                             .age_ns = WEFT_NEVER,
                                             .hold_max = 1,
                                             .drops_max = 2,
                                             .tau_max = UINT32_MAX,
                                             .read_credits = UINT32_MAX,
                                             .chunk_bytes = 64 << 10,
                                             .step_size = 1};
}

/* ---- configuration --------------------------------------------------------------------------- */

static bool hosts_valid(const uint32_t *host, uint32_t count, uint32_t hosts, bool may_be_none)
{
    for (uint32_t i = 0; i < count; i++) {
        if (host[i] >= hosts && !(may_be_none && host[i] == WEFT_PLANNER_NONE)) {
            return false;
        }
    }
    return true;
}

static bool topology_valid(const struct weft_planner_config *c)
{
    if (c->hosts == 0 || c->hosts > WEFT_PLANNER_HOSTS_MAX || c->host == NULL || c->workers == 0 ||
        c->workers > WEFT_PLANNER_WORKERS_MAX || c->worker_host == NULL ||
        c->servers > WEFT_PLANNER_SERVERS_MAX || (c->servers > 0) != (c->server_host != NULL) ||
        (c->servers == 0) != (c->mode == WEFT_PLANNER_ALL_REDUCE) ||
        (c->servers == 0 && c->workers < 2) || c->aggregators > c->hosts ||
        (c->aggregators > 0 && c->aggregator_host == NULL)) {
        return false;
    }
    for (uint32_t h = 0; h < c->hosts; h++) {
        if (weft_max_u64(c->host[h].up_bps, c->host[h].down_bps) > WEFT_TIMELINE_BPS_MAX) {
            return false;
        }
    }
    return hosts_valid(c->worker_host, c->workers, c->hosts, false) &&
           hosts_valid(c->server_host, c->servers, c->hosts, false) &&
           (c->replica_host == NULL || hosts_valid(c->replica_host, c->servers, c->hosts, true)) &&
           hosts_valid(c->aggregator_host, c->aggregators, c->hosts, false);
}

static bool policy_valid(const struct weft_planner_config *c)
{
    bool replicates = (c->policy & WEFT_PLAN_REPLICATE) != 0;
    return c->mode <= WEFT_PLANNER_ALL_REDUCE && c->policy < 2 * WEFT_PLAN_REPLICATE &&
           c->ahead <= WEFT_PLANNER_AHEAD_MAX && c->window > 0 &&
           c->window <= WEFT_PLANNER_WINDOW_MAX && c->groups_ahead <= PLANNER_GROUPS_MAX &&
           c->tie_ppm <= WEFT_PPM && c->slow_ppm <= WEFT_PPM && c->floor_ppm <= WEFT_PPM &&
           c->aggregate_ppm <= WEFT_PPM && c->read_credits > 0 && c->chunk_bytes > 0 &&
           c->chunk_bytes <= WEFT_PLANNER_BYTES_MAX && c->pieces <= WEFT_PLANNER_PIECES_MAX &&
           (!replicates ||
            (c->replica_host != NULL && c->div_max > 0 && c->div_max <= DBL_MAX &&
             c->step_size >= 0 && c->step_size <= DBL_MAX && c->momentum >= 0 && c->momentum < 1));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Maximum number of concurrent transfers. Per worker: an update or a read to each server and one
 * transfer to an aggregator. Per group and per replica: one for each server. ALL_REDUCE: two trees,
 * in both directions. */
static uint32_t transfers_needed(const struct weft_planner_config *c)
{
    return c->workers * (c->servers + 1) + (PLANNER_GROUPS_MAX + 1) * c->servers + 4 * c->workers;
}

static bool links_new(struct weft_planner *planner, const struct weft_planner_config *c)
{
    planner->links = calloc(2 * c->hosts, sizeof(planner->links[0]));
    if (planner->links == NULL) {
        return false;
    }
    for (uint32_t h = 0; h < c->hosts; h++) {
        weft_timeline_init(planner_link(planner, h, true), c->host[h].up_bps);
        weft_timeline_init(planner_link(planner, h, false), c->host[h].down_bps);
    }
    return true;
}

/* One array for all host indices of the configuration: workers, servers, replicas, aggregators. */
static bool hosts_new(struct weft_planner *planner, const struct weft_planner_config *c)
{
    uint32_t *at = malloc((c->workers + 2 * c->servers + c->aggregators) * sizeof(*at));
    if (at == NULL) {
        return false;
    }
    planner->config.worker_host = at;
    memcpy(at, c->worker_host, c->workers * sizeof(*at));
    at += c->workers;
    planner->config.server_host = at;
    for (uint32_t s = 0; s < c->servers; s++) {
        at[s] = c->server_host[s];
        at[c->servers + s] = c->replica_host == NULL ? WEFT_PLANNER_NONE : c->replica_host[s];
    }
    planner->config.replica_host = at + c->servers;
    at += 2 * c->servers;
    planner->config.aggregator_host = at;
    for (uint32_t a = 0; a < c->aggregators; a++) {
        at[a] = c->aggregator_host[a];
    }
    planner->config.host = NULL;
    return true;
}

static bool tables_new(struct weft_planner *planner, const struct weft_planner_config *c)
{
    uint32_t transfers = planner->transfers_max = transfers_needed(c);
    planner->decisions_max = 2 * transfers;
    planner->workers = calloc(c->workers, sizeof(planner->workers[0]));
    planner->server_bytes =
        calloc((size_t)c->workers * (c->servers + 1), sizeof(planner->server_bytes[0]));
    planner->aggregator_gone = calloc(c->aggregators + 1, sizeof(planner->aggregator_gone[0]));
    planner->waiting = calloc(3 * (size_t)c->workers, sizeof(planner->waiting[0]));
    planner->transfers = calloc(transfers, sizeof(planner->transfers[0]));
    planner->free_transfers = calloc(3 * (size_t)transfers, sizeof(planner->free_transfers[0]));
    planner->replica_bytes = calloc(2 * (c->servers + 1), sizeof(planner->replica_bytes[0]));
    planner->due_count = calloc(c->workers, sizeof(planner->due_count[0]));
    planner->future = calloc(c->servers + 1, sizeof(planner->future[0]));
    planner->decisions = calloc(planner->decisions_max, sizeof(planner->decisions[0]));
    if (planner->workers == NULL || planner->server_bytes == NULL ||
        planner->aggregator_gone == NULL || planner->waiting == NULL ||
        planner->transfers == NULL || planner->free_transfers == NULL || planner->future == NULL ||
        planner->due_count == NULL || planner->replica_bytes == NULL ||
        planner->decisions == NULL) {
        return false;
    }
    planner->replica_transfer = planner->replica_bytes + c->servers + 1;
    planner->flying = planner->waiting + c->workers;
    planner->reading = planner->flying + c->workers;
    planner->active = planner->free_transfers + transfers;
    planner->scratch = planner->active + transfers;
    for (uint32_t i = 0; i < transfers; i++) {
        planner->free_transfers[planner->free_count++] = transfers - 1 - i;
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        planner->workers[w].host = c->worker_host[w];
        planner->workers[w].group = WEFT_PLANNER_NONE;
    }
    return true;
}

weft_status weft_planner_new(const struct weft_planner_config *config,
                             struct weft_planner **planner_p)
{
    if (!topology_valid(config) || !policy_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_planner *planner = calloc(1, sizeof(*planner));
    if (planner == NULL) {
        return WEFT_NOMEM;
    }
    planner->config = *config;
    planner->config.worker_host = NULL;
    planner->version = planner->positions = config->version;
    if (!hosts_new(planner, config) || !links_new(planner, config) ||
        !tables_new(planner, config) || planner_partition_init(planner) != WEFT_OK ||
        planner_reduce_init(planner) != WEFT_OK) {
        weft_planner_free(planner);
        return WEFT_NOMEM;
    }
    planner_find_fastest(planner);
    *planner_p = planner;
    return WEFT_OK;
}

void weft_planner_free(struct weft_planner *planner)
{
    if (planner == NULL) {
        return;
    }
    planner_partition_fini(planner);
    planner_reduce_fini(planner);
    free((void *)planner->config.worker_host);
    free(planner->links);
    free(planner->workers);
    free(planner->server_bytes);
    free(planner->aggregator_gone);
    free(planner->waiting);
    free(planner->transfers);
    free(planner->free_transfers);
    free(planner->future);
    free(planner->due_count);
    free(planner->replica_bytes);
    free(planner->decisions);
    free(planner);
}

/* ---- progress -------------------------------------------------------------------------------- */

void weft_planner_plan(struct weft_planner *planner, uint64_t now_ns)
{
    planner->now_ns = weft_max_u64(planner->now_ns, now_ns);
    planner_announce_due(planner);
    planner_overdue(planner);
    if (planner->config.mode == WEFT_PLANNER_ALL_REDUCE) {
        planner_reduce(planner);
        return;
    }
    if (planner_has(planner, WEFT_PLAN_REPLICATE)) {
        planner_replicate(planner);
    } else {
        planner_replicas_asked(planner);
    }
    if (planner_has(planner, WEFT_PLAN_AGGREGATE)) {
        planner_partition(planner);
    }
    planner_order(planner);
    planner_admit_reads(planner);
}

void weft_planner_plan_reads(struct weft_planner *planner, uint64_t now_ns)
{
    planner->now_ns = weft_max_u64(planner->now_ns, now_ns);
    if (planner->config.mode != WEFT_PLANNER_ALL_REDUCE) {
        planner_admit_reads(planner);
        if (!planner_has(planner, WEFT_PLAN_REPLICATE)) {
            planner_replicas_asked(planner);
        }
    }
}

uint64_t weft_planner_deadline(const struct weft_planner *planner)
{
    uint64_t deadline_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < planner->active_count; i++) {
        deadline_ns = weft_min_u64(deadline_ns, planner->transfers[planner->active[i]].late_ns);
    }
    return deadline_ns;
}

/* Skip a transfer that an event has ended before its decision was fetched. */
bool weft_planner_poll(struct weft_planner *planner, struct weft_planner_decision *decision_p)
{
    while (planner->decisions_count > 0) {
        *decision_p = planner->decisions[planner->decisions_first];
        planner->decisions_first = (planner->decisions_first + 1) % planner->decisions_max;
        planner->decisions_count--;
        if (decision_p->transfer == 0 ||
            planner_transfer_find(planner, decision_p->transfer) != NULL) {
            return true;
        }
    }
    return false;
}

const struct weft_planner_counters *weft_planner_counters(const struct weft_planner *planner)
{
    return &planner->counters;
}

uint64_t weft_planner_version(const struct weft_planner *planner)
{
    return planner->version;
}

uint64_t weft_planner_commits(const struct weft_planner *planner, uint32_t worker)
{
    return worker < planner->config.workers ? planner->workers[worker].commits : 0;
}

const struct weft_timeline *weft_planner_link(const struct weft_planner *planner, uint32_t host,
                                              bool is_up)
{
    return planner_link(planner, host, is_up);
}
