#include "sim/fabric_internal.h"

#include "base/assert.h"
#include "sim/packet_flows.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_LINKS = 100, STREAM_SLOW_UPLINKS, STREAM_CONTENDED };

static const char *const policy_names[] = {
    "fair",
    "fifo",
    "order",
    "order+bound",
    "+aggregation",
    "+cut-through",
    "+admission",
    "tree",
    "tree+cut-through",
    "tree+early-sums",
    "ring",
    "halving-doubling",
};

static_assert(WEFT_ARRAY_COUNT(policy_names) == WEFT_FABRIC_POLICIES);

const char *weft_fabric_policy_name(enum weft_fabric_policy policy)
{
    return policy_names[policy];
}

const char *weft_fabric_level_name(enum weft_fabric_level level)
{
    return level == WEFT_FABRIC_FLOWS ? "flow" : "packet";
}

const char *weft_fabric_mode_name(enum weft_fabric_mode mode)
{
    static const char *const names[] = {"async", "ssp", "sync"};
    return names[mode];
}

const char *weft_fabric_span_name(enum weft_fabric_span_kind kind)
{
    static const char *const names[] = {"read",    "compute", "wait",      "push", "aggregate",
                                        "replica", "reduce",  "broadcast", "drop"};
    return names[kind];
}

bool weft_fabric_is_all_reduce(enum weft_fabric_policy policy)
{
    return policy >= WEFT_FABRIC_TREE;
}

bool weft_fabric_is_planned(enum weft_fabric_policy policy)
{
    return policy != WEFT_FABRIC_FAIR && policy < WEFT_FABRIC_RING;
}

void weft_fabric_config_default(struct weft_fabric_config *config_p)
{
    *config_p = (struct weft_fabric_config){
        .workers = 30,
        .servers = 1,
        .policy = WEFT_FABRIC_FAIR,
        .mode = WEFT_FABRIC_ASYNC,
        .compute = *weft_fabric_compute_find("CS1"),
        .network = *weft_fabric_network_find("NS1"),
        .update_bytes = 12500000,
        .model_bytes = 12500000,
        .chunk_bytes = 64000,
        .tau_max = 60,
        .read_credits = 12,
        .report_ns = 100 * WEFT_NS_PER_MS,
        .duration_ns = 60 * WEFT_NS_PER_S,
        .seed = 1,
    };
}

static const char *check_sizes(const struct weft_fabric_config *config)
{
    if (config->workers < 1 || config->workers > WEFT_FABRIC_WORKERS_MAX || config->servers < 1 ||
        config->servers > WEFT_FABRIC_SERVERS_MAX) {
        return "1 to 1,000 workers, 1 to 16 servers";
    }
    if (config->update_bytes < 1000 || config->update_bytes > WEFT_FABRIC_BYTES_MAX ||
        (config->model_bytes > 0 && config->model_bytes < 1000) ||
        config->model_bytes > WEFT_FABRIC_BYTES_MAX) {
        return "an update has 1,000 to 1,000,000,000 bytes, a model as many or none";
    }
    if (config->chunk_bytes < 1000 || config->chunk_bytes > WEFT_FABRIC_BYTES_MAX) {
        return "a chunk has 1,000 to 1,000,000,000 bytes";
    }
    uint32_t hosts = config->workers + (config->div_max > 0 ? 2 : 1) * config->servers;
    if (config->level == WEFT_FABRIC_PACKETS &&
        (hosts > WEFT_PACKET_FLOWS_HOSTS_MAX ||
         config->update_bytes > WEFT_PACKET_FLOWS_BYTES_MAX ||
         config->model_bytes > WEFT_PACKET_FLOWS_BYTES_MAX)) {
        return "the packet level takes 64 hosts (workers, servers and replicas), and 300,000,000 "
               "bytes "
               "of an update or a model";
    }
    if (config->duration_ns == 0 || config->duration_ns > 100000 * WEFT_NS_PER_S) {
        return "a run must be at most 100,000 s";
    }
    return NULL;
}

static const char *check_policy(const struct weft_fabric_config *config)
{
    if (weft_fabric_is_all_reduce(config->policy) && config->mode != WEFT_FABRIC_SYNC) {
        return "an all-reduce (tree, ring, halving-doubling) requires --mode sync";
    }
    if (weft_fabric_is_all_reduce(config->policy) && config->workers < 2) {
        return "an all-reduce requires at least two workers";
    }
    if (weft_fabric_is_all_reduce(config->policy) && config->div_max > 0) {
        return "an all-reduce has no servers, and so no replicas";
    }
    if (config->policy == WEFT_FABRIC_ADMISSION &&
        (config->mode == WEFT_FABRIC_SYNC || config->model_bytes == 0)) {
        return "admission delays reads: it cannot be used with --mode sync or without reads";
    }
    if (config->policy == WEFT_FABRIC_ADMISSION && config->read_credits == 0) {
        return "admission requires at least one read credit";
    }
    if (config->is_chained && config->div_max == 0) {
        return "a chain requires replicas: --div-max";
    }
    if (config->is_chained && config->policy >= WEFT_FABRIC_AGGREGATION) {
        return "a chain copies single updates: policies fair to order+bound";
    }
    if (!(config->div_max >= 0 && config->div_max <= 1e9)) {
        return "a divergence bound must be from 0 to 10^9 mean norms";
    }
    return NULL;
}

const char *weft_fabric_config_check(const struct weft_fabric_config *config)
{
    const char *wrong = check_sizes(config);
    wrong = wrong != NULL ? wrong : check_policy(config);
    wrong = wrong != NULL ? wrong : weft_fabric_compute_check(&config->compute);
    return wrong != NULL ? wrong : weft_fabric_network_check(&config->network);
}

/* ---- shared by all files --------------------------------------------------------------------- */

void *weft_fabric_zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

void weft_fabric_event(struct weft_fabric *f, uint64_t time_ns, enum weft_fabric_event kind,
                       uint32_t index, void *object)
{
    weft_sim_heap_push(&f->heap, time_ns, kind, index, object);
}

void weft_fabric_fail(struct weft_fabric *f, const char *format, ...)
{
    if (f->result->ok) {
        int used = snprintf(f->result->failure, sizeof(f->result->failure),
                            "at %.6f s: ", (double)f->now_ns / 1e9);
        va_list args;
        va_start(args, format);
        vsnprintf(f->result->failure + used, sizeof(f->result->failure) - (size_t)used, format,
                  args);
        va_end(args);
    }
    f->result->ok = false;
    f->ended = true;
}

void weft_fabric_span_until(struct weft_fabric *f, const struct weft_fabric_span *span)
{
    if (f->config.on_span != NULL &&
        (span->kind == WEFT_FABRIC_SPAN_DROP || span->to_ns > span->from_ns)) {
        f->config.on_span(f->config.span_arg, span);
    }
}

void weft_fabric_span(struct weft_fabric *f, enum weft_fabric_span_kind kind, uint32_t host,
                      uint32_t peer, uint64_t from_ns, uint64_t bytes)
{
    const struct weft_fabric_span span = {kind, host, peer, from_ns, f->now_ns, bytes};
    weft_fabric_span_until(f, &span);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void link_event(struct weft_fabric *f, uint32_t link)
{
    uint64_t next_ns = weft_fabric_link_next_ns(&f->links[link]);
    if (next_ns != WEFT_NEVER) {
        weft_fabric_event(f, next_ns, WEFT_FABRIC_EVENT_LINK, link, NULL);
    }
}

static void link_changes(struct weft_fabric *f, uint32_t link)
{
    weft_fabric_link_step(&f->links[link], &f->config.network, f->now_ns);
    weft_fabric_network_set_capacity(
        f, link, weft_fabric_link_capacity(&f->links[link], &f->config.network));
    if (f->planner != NULL) {
        weft_fabric_report_capacity(f, link);
    }
    link_event(f, link);
}

static void links_new(struct weft_fabric *f)
{
    const struct weft_fabric_config *config = &f->config;
    bool slow[WEFT_FABRIC_WORKERS_MAX];
    bool contended[WEFT_FABRIC_WORKERS_MAX + 2 * WEFT_FABRIC_SERVERS_MAX] = {false};
    struct weft_prng prng;
    weft_prng_split(&prng, config->seed, STREAM_SLOW_UPLINKS);
    weft_fabric_choose(&prng, config->network.slow_uplinks_ppm, config->workers, slow);
    weft_prng_split(&prng, config->seed, STREAM_CONTENDED);
    weft_fabric_choose(&prng, config->network.contended_workers_ppm, config->workers, contended);
    weft_fabric_choose(&prng, config->network.contended_servers_ppm, config->servers,
                       contended + config->workers);
    f->links = weft_fabric_zeroed(2 * f->hosts, sizeof(*f->links));
    for (uint32_t l = 0; l < 2 * f->hosts; l++) {
        uint32_t host = l / 2;
        bool is_slow = l == weft_fabric_up(host) && host < config->workers && slow[host];
        weft_fabric_link_init(&f->links[l], &config->network, is_slow, contended[host],
                              config->seed, (uint64_t)l << 32 | STREAM_LINKS);
        weft_fabric_network_set_capacity(f, l,
                                         weft_fabric_link_capacity(&f->links[l], &config->network));
        link_event(f, l);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void happen(struct weft_fabric *f, const struct weft_sim_event *event)
{
    switch ((enum weft_fabric_event)event->kind) {
    case WEFT_FABRIC_EVENT_LINK:
        link_changes(f, event->index);
        break;
    case WEFT_FABRIC_EVENT_COMPUTED:
        weft_fabric_computed(f, event->index);
        break;
    case WEFT_FABRIC_EVENT_ARRIVED:
        weft_fabric_transfer_arrived(f, event->index, (uintptr_t)event->object);
        break;
    case WEFT_FABRIC_EVENT_PACE:
        weft_fabric_transfer_pace(f, event->index);
        break;
    case WEFT_FABRIC_EVENT_REPORT:
        weft_fabric_report_comes(f, event->object);
        break;
    case WEFT_FABRIC_EVENT_DECISION:
        weft_fabric_decision_comes(f, event->object);
        break;
    case WEFT_FABRIC_EVENT_PLAN: /* weft_fabric_plan checks the time */
        break;
    case WEFT_FABRIC_EVENT_END:
        f->ended = true;
        break;
    }
}

void weft_fabric_moment(struct weft_fabric *f)
{
    struct weft_fluid_event sent;
    struct weft_sim_event event;
    f->now_ns = weft_min_u64(weft_fabric_network_next_ns(f), weft_sim_heap_next_ns(&f->heap));
    weft_fabric_network_advance(f);
    while (weft_fabric_network_poll(f, &sent)) {
        weft_fabric_transfer_sent(f, &sent);
    }
    while (weft_sim_heap_next_ns(&f->heap) == f->now_ns && !f->ended) {
        (void)weft_sim_heap_pop(&f->heap, &event);
        happen(f, &event);
    }
    if (!f->ended) {
        weft_fabric_relay(f);
        weft_fabric_plan(f);
    }
}

static void run(struct weft_fabric *f)
{
    weft_fabric_event(f, f->config.duration_ns, WEFT_FABRIC_EVENT_END, 0, NULL);
    weft_fabric_workers_start(f);
    while (!f->ended) {
        weft_fabric_moment(f);
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Sum of delays = sum over commits of the number of other outstanding updates: each commit adds one
 * to the delay of every other update between its read and its commit, and nothing else does. */
static void check_delays(struct weft_fabric *f)
{
    uint64_t sum = f->delay_sum;
    for (uint32_t i = 0; i < f->config.workers; i++) {
        const struct weft_fabric_worker *w = &f->workers[i];
        sum += w->outstanding ? f->version - w->base : 0;
    }
    if (f->config.mode != WEFT_FABRIC_SYNC && sum != f->others_sum) {
        weft_fabric_fail(f, "delays add up to %" PRIu64 ", the others outstanding to %" PRIu64, sum,
                         f->others_sum);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void delays_of(struct weft_fabric *f)
{
    struct weft_fabric_result *r = f->result;
    uint64_t n = r->commits;
    uint64_t sum = 0;
    __extension__ unsigned __int128 squares = 0;
    if (n == 0) {
        return;
    }
    qsort(f->delays, n, sizeof(*f->delays), compare);
    for (uint64_t i = 0; i < n; i++) {
        sum += f->delays[i];
        squares += (uint64_t)f->delays[i] * f->delays[i];
    }
    r->delay_mean = (double)sum / (double)n;
    /* n x squares - sum^2 is exact, so there is no cancellation error. */
    r->delay_sd =
        sqrt((double)(squares * n - (__extension__(unsigned __int128) sum) * sum)) / (double)n;
    r->delay_p99 = f->delays[(n * 99 + 99) / 100 - 1];
    r->delay_max = f->delays[n - 1];
}

static void finish(struct weft_fabric *f)
{
    struct weft_fabric_result *r = f->result;
    uint64_t least = UINT64_MAX;
    check_delays(f);
    delays_of(f);
    r->server_link_utilization = weft_fabric_network_utilization(f);
    weft_fabric_network_count(f);
    for (uint32_t i = 0; i < f->config.workers; i++) {
        least = weft_min_u64(least, r->commits_by_worker[i]);
    }
    r->share_min = r->commits == 0 ? 0 : (double)least * f->config.workers / (double)r->commits;
    r->has_replica = f->config.div_max > 0;
    r->makespan_ns = r->rounds > 0 ? f->rounds_ns / r->rounds : 0;
}

static void end(struct weft_fabric *f)
{
    struct weft_sim_event event;
    while (weft_sim_heap_pop(&f->heap, &event)) {
        if (event.kind == WEFT_FABRIC_EVENT_REPORT || event.kind == WEFT_FABRIC_EVENT_DECISION) {
            free(event.object);
        }
    }
    if (f->planner != NULL) {
        weft_planner_free(f->planner);
    }
    weft_sim_heap_fini(&f->heap);
    weft_fabric_network_free(f);
    free(f->links);
    free(f->workers);
    free(f->transfers);
    free(f->spare);
    free(f->grouped);
    free(f->relays);
    free(f->delays);
    free(f->step_at);
    free(f->step_has);
}

void weft_fabric_run(const struct weft_fabric_config *config, struct weft_fabric_result *result_p)
{
    WEFT_ASSERT(weft_fabric_config_check(config) == NULL);
    memset(result_p, 0, sizeof(*result_p));
    result_p->ok = true;
    struct weft_fabric f = {.config = *config, .result = result_p};
    f.hosts = config->workers + (config->div_max > 0 ? 2 : 1) * config->servers;
    weft_fabric_network_new(&f);
    f.workers = weft_fabric_zeroed(config->workers, sizeof(*f.workers));
    links_new(&f);
    weft_fabric_network_begin(&f);
    if (weft_fabric_is_planned(config->policy)) {
        weft_fabric_planner_new(&f);
    } else if (config->policy >= WEFT_FABRIC_RING) {
        weft_fabric_collective_init(&f);
    }
    if (result_p->ok) {
        run(&f);
        finish(&f);
    }
    end(&f);
}
