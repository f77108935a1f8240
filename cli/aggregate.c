/* `weft aggregate`: aggregates pushes of workers in the path to the servers, and replies to their
 * pulls. */
#define _GNU_SOURCE
#include "cli/aggregate_dense.h"
#include "cli/aggregate_xdp.h"
#include "cli/child.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train/job.h"
#include "cli/verbs.h"
#include "io/member_thread.h"
#include "io/resolve.h"
#include "metrics/text.h"
#include "node/aggregator_thread.h"
#include "node/membership.h"
#include "node/recording.h"
#include "node/worker.h"
#include "ps/aggregate.h"
#include "ps/shard.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 7800, DEFAULT_WORKERS = 16 };

enum { ON_COMMIT, ON_APPLY };
static const char *const acknowledgements[] = {"commit", "apply", NULL};

struct verb {
    const char *listen;
    const char *servers;
    const char *parent;
    const char *rack;
    const char *advertise;
    const char *ports; /* one for each shard; NULL = from --listen */
    struct weft_membership membership;
    uint64_t list_version; /* version of the shard address list */
    uint32_t shards;       /* with --parent */
    uint32_t push_mib;
    uint32_t acknowledge; /* index in acknowledgements[] */
    uint32_t age_us;
    uint32_t cut_through;
    uint32_t cache_mib;
    uint32_t pull_age_us;
    bool json;
    uint32_t control_fd; /* 0 = none */
    struct weft_channel channel;
    struct weft_transport_options transport;
    struct weft_security security;
    struct weft_metrics_options metrics_options;
    struct weft_recording recording;
    struct weft_aggregator_thread_config each;
    char host[WEFT_METRICS_HOST_BYTES];
    uint16_t port;                         /* 0 = any */
    struct weft_launch_address *addresses; /* (count,) */
    struct weft_aggregator_thread *threads;
    struct weft_aggregator_stats *stats; /* (count,) as last copied */
    uint32_t count;
    uint32_t started;
    struct weft_metrics metrics;
};

/* ---- counters -------------------------------------------------------------------------------- */

static const struct figure {
    const char *name; /* in /metrics and in --json */
    const char *help;
    size_t offset;
} figures[] = {
#define FIGURE(field, help)                                                                        \
    {                                                                                              \
#field, help, offsetof(struct weft_aggregator_counters, field)                             \
    }
    FIGURE(pushes_in, "Pushes received completely."),
    FIGURE(pushes_absorbed, "Pushes committed by the server inside an aggregate."),
    FIGURE(pushes_direct, "Pushes that workers were redirected to send to the server."),
    FIGURE(direct_table, "Of these, of a table that is not open here or cannot be aggregated."),
    FIGURE(direct_form,
           "Of these, that name a list of ids, are malformed, or have a value that is not finite."),
    FIGURE(direct_large, "Of these, with more rows than memory was available for."),
    FIGURE(direct_shard, "Of these, while the server was not connected."),
    FIGURE(direct_refused, "Of these, in an aggregate that the server rejected."),
    FIGURE(pushes_applied, "Pushes acknowledged when they were added to a sum."),
    FIGURE(pushes_lost, "Of these, in an aggregate that the server did not accept."),
    FIGURE(on_apply_refused,
           "Tables of workers or servers that do not allow acknowledgement on apply."),
    FIGURE(aggregates_in, "Aggregates received from children; their pushes are in pushes_in."),
    FIGURE(aggregates_out, "Aggregates sent to the server."),
    FIGURE(flushed_complete, "Aggregates sent because they had a push of every worker."),
    FIGURE(flushed_count, "Aggregates sent because they had --flush-count pushes."),
    FIGURE(flushed_age, "Aggregates sent because of their age."),
    FIGURE(flushed_memory, "Aggregates sent to free memory."),
    FIGURE(rows_in, "Rows of pushes that were aggregated."),
    FIGURE(rows_out, "Rows of aggregates."),
    FIGURE(bytes_in, "Bytes of pushes that were aggregated."),
    FIGURE(bytes_out, "Bytes of aggregates."),
    FIGURE(clocks_in, "Ends of clocks received, one for each worker and table."),
    FIGURE(clocks_passed, "Of these, accepted by the server."),
    FIGURE(clocks_direct, "Of these, that their workers must send to the server."),
    FIGURE(clocks_out, "Messages with ends of clocks sent to the server."),
    FIGURE(pulls_in, "Pulls received completely."),
    FIGURE(pulls_answered, "Pulls replied to by this aggregator."),
    FIGURE(pulls_direct, "Pulls that workers were redirected to send to the server."),
    FIGURE(pulls_direct_table, "Of these, of a table that is not open here, or malformed."),
    FIGURE(pulls_direct_large, "Of these, with more rows than memory was available for."),
    FIGURE(pulls_direct_shard,
           "Of these, while the server was disconnected, or was not the process to which the "
           "worker is connected."),
    FIGURE(pulls_direct_busy,
           "Of these, that lacked rows while the connection to the server accepted no request."),
    FIGURE(pulls_direct_late, "Of these, whose request to the server timed out."),
    FIGURE(pulls_direct_refused, "Of these, with rows that the server rejected."),
    FIGURE(fetches_out, "Requests for rows sent to the server."),
    FIGURE(pull_rows_in, "Rows of pulls."),
    FIGURE(pull_rows_cached, "Of these, that were cached and recent enough."),
    FIGURE(pull_rows_shared, "Of these, that shared a request already sent for another pull."),
    FIGURE(pull_rows_fetched, "Rows requested from the server, each once per request."),
    FIGURE(shard_refusals,
           "Connections that the server or the parent closed because the number of this "
           "aggregator is in use or not accepted."),
    FIGURE(cycles_detected,
           "Times that the parent was this aggregator, a descendant of it, or had its number."),
    FIGURE(parent_tables_refused, "Tables that the parent rejected."),
    FIGURE(children_refused,
           "Connections of aggregators with a number that is in use or out of range."),
    FIGURE(tables_refused, "Tables that workers requested and that cannot be aggregated."),
    FIGURE(workers_replaced, "Connections of workers that were replaced by a newer one."),
    FIGURE(peers_ignored, "Connections of processes that are neither worker nor server."),
#undef FIGURE
};

static uint64_t figure_of(const struct figure *figure, const struct weft_aggregator_counters *of)
{
    return *(const uint64_t *)(const void *)((const char *)of + figure->offset);
}

static void add_families(void *arg, struct weft_exposition *text)
{
    struct verb *verb = arg;
    char name[64], label[24];
    for (uint32_t i = 0; i < verb->started; i++) {
        (void)weft_aggregator_thread_ask(&verb->threads[i], &verb->stats[i]);
    }
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(figures); f++) {
        snprintf(name, sizeof(name), "weft_aggregator_%s_total", figures[f].name);
        weft_exposition_family(text, name, "counter", figures[f].help);
        for (uint32_t i = 0; i < verb->started; i++) {
            snprintf(label, sizeof(label), "shard=\"%u\"", i);
            weft_exposition_u64(text, name, label,
                                figure_of(&figures[f], &verb->stats[i].counters));
        }
    }
    weft_exposition_family(text, "weft_aggregator_workers", "gauge", "Workers connected.");
    for (uint32_t i = 0; i < verb->started; i++) {
        snprintf(label, sizeof(label), "shard=\"%u\"", i);
        weft_exposition_u64(text, "weft_aggregator_workers", label,
                            verb->stats[i].gauges.workers_connected);
    }
    weft_exposition_family(text, "weft_aggregator_children", "gauge",
                           "Child aggregators connected.");
    for (uint32_t i = 0; i < verb->started; i++) {
        snprintf(label, sizeof(label), "shard=\"%u\"", i);
        weft_exposition_u64(text, "weft_aggregator_children", label,
                            verb->stats[i].gauges.children_connected);
    }
    weft_exposition_family(text, "weft_aggregator_rows_cached", "gauge", "Rows cached for pulls.");
    for (uint32_t i = 0; i < verb->started; i++) {
        snprintf(label, sizeof(label), "shard=\"%u\"", i);
        weft_exposition_u64(text, "weft_aggregator_rows_cached", label,
                            verb->stats[i].gauges.rows_cached);
    }
    weft_exposition_family(text, "weft_aggregator_server_up", "gauge",
                           "1: the server of the shard, or the parent, is connected.");
    for (uint32_t i = 0; i < verb->started; i++) {
        snprintf(label, sizeof(label), "shard=\"%u\"", i);
        weft_exposition_u64(text, "weft_aggregator_server_up", label,
                            verb->stats[i].gauges.shard_up);
    }
}

/* Send the counters to a parent. Its report has the counters of all its processes in one object. */
static void tell_parent(struct verb *verb, const struct weft_aggregator_counters *sum,
                        const struct weft_recorder_counts *records)
{
    cJSON *event = weft_channel_event("done");
    cJSON *counters = cJSON_AddObjectToObject(event, "counters");
    char name[64];
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(figures); f++) {
        snprintf(name, sizeof(name), "aggregator_%s", figures[f].name);
        cJSON_AddNumberToObject(counters, name, (double)figure_of(&figures[f], sum));
    }
    cJSON_AddNumberToObject(counters, "records_dropped", (double)records->dropped);
    (void)weft_channel_send(&verb->channel, event);
}

/* Report the counters, summed over all shards. False: an error was printed. */
static bool report_counters(struct verb *verb)
{
    struct weft_aggregator_counters sum = {0};
    uint64_t cpu_ns = 0;
    for (uint32_t i = 0; i < verb->started; i++) {
        for (size_t f = 0; f < WEFT_ARRAY_COUNT(figures); f++) {
            *(uint64_t *)(void *)((char *)&sum + figures[f].offset) +=
                figure_of(&figures[f], &verb->threads[i].stats.counters);
        }
        cpu_ns += verb->threads[i].stats.cpu_ns;
    }
    const struct weft_recorder_counts records = weft_recording_finish(&verb->recording);
    if (verb->channel.fd >= 0) {
        tell_parent(verb, &sum, &records);
        return true;
    }
    if (!verb->json) {
        printf("pushes: %llu in, %llu absorbed, %llu sent by workers to the server instead; "
               "%llu aggregates out\n"
               "rows: %llu in, %llu out; bytes: %llu in, %llu out\n"
               "pulls: %llu in, %llu answered, %llu sent by workers to the server instead; "
               "rows: %llu in, %llu fetched\n",
               (unsigned long long)sum.pushes_in, (unsigned long long)sum.pushes_absorbed,
               (unsigned long long)sum.pushes_direct, (unsigned long long)sum.aggregates_out,
               (unsigned long long)sum.rows_in, (unsigned long long)sum.rows_out,
               (unsigned long long)sum.bytes_in, (unsigned long long)sum.bytes_out,
               (unsigned long long)sum.pulls_in, (unsigned long long)sum.pulls_answered,
               (unsigned long long)sum.pulls_direct, (unsigned long long)sum.pull_rows_in,
               (unsigned long long)sum.pull_rows_fetched);
        bool good = ferror(stdout) == 0 && fflush(stdout) == 0;
        if (!good) {
            fprintf(stderr, "weft aggregate: cannot write the report on standard output\n");
        }
        return good;
    }
    cJSON *counters = cJSON_CreateObject();
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(figures); f++) {
        cJSON_AddNumberToObject(counters, figures[f].name, (double)figure_of(&figures[f], &sum));
    }
    cJSON_AddNumberToObject(counters, "cpu_s", (double)cpu_ns / WEFT_NS_PER_S);
    return weft_output_json("aggregate", counters, true);
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Log callback of each shard's thread. */
static void say(void *arg, enum weft_node_level level, const char *text)
{
    (void)arg, (void)level;
    fprintf(stderr, "weft aggregate: %s\n", text);
}

/* 0 = any. */
static uint16_t port_of(const struct verb *verb, uint32_t shard)
{
    const char *at = verb->ports;
    if (at == NULL) {
        return (uint16_t)(verb->port != 0 ? verb->port + shard : 0);
    }
    for (; shard > 0 && at != NULL; shard--) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? (uint16_t)strtoul(at, NULL, 10) : 0;
}

static weft_status start(struct verb *verb, struct weft_error *error)
{
    verb->threads = calloc(verb->count, sizeof(*verb->threads));
    verb->stats = calloc(verb->count, sizeof(*verb->stats));
    if (verb->threads == NULL || verb->stats == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for %u shards", verb->count);
    }
    weft_transport_options_apply(&verb->transport, &verb->each.driver);
    verb->each.security = &verb->security;
    verb->each.driver.udp.host = verb->host;
    verb->each.aggregator.push_bytes_max = verb->push_mib << 20;
    verb->each.aggregator.age_ns = verb->age_us * WEFT_NS_PER_US;
    verb->each.aggregator.on_apply = verb->acknowledge == ON_APPLY;
    if (verb->cut_through > 1) { /* each piece of a sum is a group */
        verb->each.aggregator.groups_max = (uint32_t)weft_min_u64(
            (uint64_t)verb->each.aggregator.groups_max * verb->cut_through,
            WEFT_AGGREGATOR_GROUPS_MAX);
    }
    verb->each.aggregator.cache_bytes = (uint64_t)verb->cache_mib << 20;
    verb->each.aggregator.pull_age_ns = verb->pull_age_us * WEFT_NS_PER_US;
    verb->each.log = (struct weft_node_log){.say = say};
    weft_status opened = weft_recording_open(&verb->recording, "aggregator",
                                             verb->each.aggregator.number, verb->each.log, error);
    if (opened != WEFT_OK) {
        return opened;
    }
    for (uint32_t i = 0; i < verb->count; i++) {
        struct weft_aggregator_thread_config config = verb->each;
        config.aggregator.records = weft_recording_ring(&verb->recording);
        config.aggregator.shard = i;
        config.server = verb->addresses[i];
        config.driver.udp.port = port_of(verb, i);
        weft_status status = weft_aggregator_thread_start(&verb->threads[i], &config, error);
        if (status != WEFT_OK) {
            return status;
        }
        verb->started++;
    }
    const struct weft_metrics_source source = {
        .role = "aggregator", .arg = verb, .families = add_families};
    return weft_metrics_start(&verb->metrics, &verb->metrics_options, &source, error);
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static int stop_fd = -1;

static bool is_asked(void)
{
    struct pollfd fd = {.fd = stop_fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

/* Claim the number before opening a port. The coordinator has the server addresses, unless there is
 * a parent. */
static weft_status join_job(struct verb *verb, struct weft_error *error)
{
    struct weft_member_state state;
    const bool asks = verb->count == 0;
    const struct weft_membership_join join = {
        .security = &verb->security,
        .transport = &verb->transport,
        .first = WEFT_MEMBER_NONE,
        .is_aggregator = true,
        .number = verb->each.aggregator.number,
        .rack = verb->rack,
        .what = asks ? WEFT_MEMBER_WAIT_LISTED : WEFT_MEMBER_WAIT_JOINED,
        .patience_ns = verb->membership.patience_s * WEFT_NS_PER_S,
        .stop = is_asked,
    };
    weft_status status = weft_membership_join(&verb->membership, &join, &state, error);
    if (status != WEFT_OK || !asks) {
        return status;
    }
    if (state.list.count > WEFT_JOB_SHARDS_MAX ||
        (verb->port != 0 && verb->port + state.list.count - 1 > UINT16_MAX)) {
        return weft_fail(error, WEFT_DATA,
                         "the job has %u shards; --listen :%u leaves too "
                         "few ports",
                         state.list.count, verb->port);
    }
    verb->count = state.list.count;
    verb->list_version = state.list.version;
    verb->addresses = calloc(verb->count, sizeof(*verb->addresses));
    if (verb->addresses == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for %u shards", verb->count);
    }
    for (uint32_t s = 0; s < verb->count; s++) {
        weft_resolve_member_host(&state.list.addresses[s], verb->addresses[s].host);
        verb->addresses[s].port = state.list.addresses[s].port;
    }
    return WEFT_OK;
}

/* Publish the address at which workers reach this aggregator. */
static weft_status offer(struct verb *verb, struct weft_error *error)
{
    struct weft_member_address addresses[WEFT_MEMBER_SPAN_MAX];
    char host[WEFT_RESOLVE_TEXT_BYTES], coordinator[WEFT_RESOLVE_TEXT_BYTES];
    const char *named = verb->advertise != NULL ? verb->advertise : verb->host;
    if (verb->started > WEFT_MEMBER_SPAN_MAX) {
        return weft_fail(error, WEFT_INVALID,
                         "the coordinator lists aggregators of %d shards at most",
                         (int)WEFT_MEMBER_SPAN_MAX);
    }
    weft_status status = weft_resolve(named, host, error);
    if (status == WEFT_OK && weft_resolve_is_wildcard(host)) {
        status = weft_resolve(verb->membership.launch.coordinator_host, coordinator, error);
        status = status == WEFT_OK ? weft_resolve_local(coordinator, host, error) : status;
    }
    for (uint32_t i = 0; status == WEFT_OK && i < verb->started; i++) {
        status = weft_resolve_member_address(host, verb->threads[i].port, &addresses[i], error);
    }
    if (status == WEFT_OK) {
        weft_member_thread_offer(verb->membership.thread, addresses, verb->started);
    }
    return status;
}

/* False: another process has its number. Server addresses may have changed. */
static bool look_at_membership(struct verb *verb, struct weft_error *error)
{
    struct weft_member_state state;
    if (verb->membership.thread == NULL) {
        return true;
    }
    weft_member_thread_state(verb->membership.thread, &state);
    if (state.phase == WEFT_MEMBER_REPLACED || state.phase == WEFT_MEMBER_IS_REFUSED) {
        weft_member_thread_words(verb->membership.thread, error->text, sizeof(error->text));
        return false;
    }
    if (verb->list_version == 0 || state.list.version == verb->list_version ||
        state.list.count != verb->started) {
        return true;
    }
    verb->list_version = state.list.version;
    for (uint32_t s = 0; s < verb->started; s++) {
        struct weft_launch_address server = {.port = state.list.addresses[s].port};
        weft_resolve_member_host(&state.list.addresses[s], server.host);
        weft_aggregator_thread_move(&verb->threads[s], &server);
    }
    return true;
}

static void tell_ready(struct verb *verb)
{
    if (verb->channel.fd >= 0) {
        uint16_t ports[WEFT_JOB_SHARDS_MAX];
        for (uint32_t i = 0; i < verb->started; i++) {
            ports[i] = verb->threads[i].port;
        }
        (void)weft_channel_send(
            &verb->channel, weft_child_ready(ports, verb->started,
                                             verb->metrics.http != NULL ? verb->metrics.url : ""));
        return;
    }
    for (uint32_t i = 0; i < verb->started; i++) {
        bool v6 = strchr(verb->host, ':') != NULL;
        printf("shard %u: %s%s%s:%u\n", i, v6 ? "[" : "", verb->host, v6 ? "]" : "",
               verb->threads[i].port);
    }
    if (verb->metrics.http != NULL) {
        printf("metrics: %s\n", verb->metrics.url);
    }
    fflush(stdout);
}

/* False: a thread cannot acknowledge on apply, and has logged why. */
static bool look_at_threads(struct verb *verb, struct weft_error *error)
{
    for (uint32_t i = 0; i < verb->started; i++) {
        if (weft_aggregator_thread_failed(&verb->threads[i])) {
            (void)weft_fail(error, WEFT_STATE, "stopped: --acknowledge apply is not possible");
            return false;
        }
    }
    return true;
}

static int serve(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    int signal_fd = weft_stop_fd(0); /* before the threads start: they inherit the mask */
    weft_status status = signal_fd < 0 ? weft_fail(&error, WEFT_IO, "cannot create a signalfd")
                                       : weft_security_load(&verb->security, false, &error);
    stop_fd = signal_fd;
    const bool has_coordinator = weft_membership_has_coordinator(&verb->membership);
    status = status == WEFT_OK && has_coordinator ? join_job(verb, &error) : status;
    status = status == WEFT_OK ? start(verb, &error) : status;
    status = status == WEFT_OK && has_coordinator ? offer(verb, &error) : status;
    if (status == WEFT_OK) {
        struct pollfd fds[] = {
            {.fd = signal_fd, .events = POLLIN},
            {.fd = verb->channel.fd,
             .events = POLLIN}, /* the parent has ended; -1 is skipped */
        };
        const bool looks = has_coordinator || verb->acknowledge == ON_APPLY;
        tell_ready(verb);
        while (status == WEFT_OK && poll(fds, WEFT_ARRAY_COUNT(fds), looks ? 200 : -1) <= 0) {
            status = !look_at_membership(verb, &error) ? WEFT_PEER
                     : !look_at_threads(verb, &error)  ? WEFT_STATE
                                                       : WEFT_OK;
        }
    }
    weft_membership_leave(&verb->membership, true);
    weft_metrics_stop(&verb->metrics);
    for (uint32_t i = 0; i < verb->started; i++) {
        weft_aggregator_thread_join(&verb->threads[i]);
    }
    bool told = status != WEFT_OK || report_counters(verb);
    if (!weft_recording_close(&verb->recording) && status == WEFT_OK) {
        status = weft_fail(&error, WEFT_IO, "no file of records was made");
    }
    weft_security_fini(&verb->security);
    close(signal_fd);
    int code = weft_child_exit(&verb->channel, "aggregate", status, &error);
    return told ? code : WEFT_EXIT_FAILED;
}

/* ---- options --------------------------------------------------------------------------------- */

/* The parent has shard s at its port + s. */
static int check_parent(const struct weft_command *command, struct verb *verb)
{
    verb->addresses = calloc(verb->shards, sizeof(*verb->addresses));
    if (verb->addresses == NULL) {
        return weft_options_usage(command, "no memory for %u shards", verb->shards);
    }
    if (!weft_worker_via_parse(verb->parent, verb->addresses, verb->shards)) {
        return weft_options_usage(command,
                                  "--parent \"%.80s\" is not the HOST:PORT of another `weft "
                                  "aggregate`, or a list of one for each of --shards %u",
                                  verb->parent, verb->shards);
    }
    if (verb->port != 0 && verb->addresses[0].port == verb->port &&
        strcmp(verb->addresses[0].host, verb->host) == 0) {
        return weft_options_usage(command, "--parent %.80s is the --listen address of this process",
                                  verb->parent);
    }
    verb->count = verb->shards;
    verb->each.aggregator.has_parent = true;
    return WEFT_OPTIONS_RUN;
}

static int check_servers(const struct weft_command *command, struct verb *verb)
{
    uint32_t most = 1;
    for (const char *at = verb->servers; *at != '\0'; at++) {
        most += *at == ',';
    }
    verb->addresses = calloc(most, sizeof(*verb->addresses));
    if (verb->addresses == NULL) {
        return weft_options_usage(command, "no memory for %u servers", most);
    }
    const char *bad = weft_launch_servers_parse(verb->servers, verb->addresses, most, &verb->count);
    if (bad == NULL && verb->count > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(command, "--servers has %u shards; the maximum is %d",
                                  verb->count, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (bad != NULL) {
        return weft_options_usage(command, "\"%.80s\" in --servers is not HOST:PORT", bad);
    }
    return WEFT_OPTIONS_RUN;
}

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static int check(const struct weft_command *command, struct verb *verb)
{
    if (is_given(verb->servers) && is_given(verb->parent)) {
        return weft_options_usage(command,
                                  "--servers and --parent are mutually exclusive: sums are "
                                  "sent either to the servers or to another aggregator");
    }
    if (verb->membership.coordinator == NULL &&
        (is_given(verb->rack) || is_given(verb->advertise))) {
        return weft_options_usage(command, "--rack and --advertise require --coordinator, which "
                                           "assigns workers to this aggregator");
    }
    if (verb->membership.coordinator != NULL) {
        struct weft_launch flags = weft_launch_nothing();
        flags.role = WEFT_LAUNCH_AGGREGATOR;
        int status = weft_membership_detect(&verb->membership, command, &flags, 1, true);
        if (status != WEFT_OPTIONS_RUN) {
            return status;
        }
    } else if (!is_given(verb->servers) && !is_given(verb->parent)) {
        return weft_options_usage(command, "--servers HOST:PORT,... is missing: the addresses that "
                                           "`weft server` prints, shard 0 first; or --parent, or "
                                           "--coordinator");
    }
    if (!weft_metrics_address(verb->listen, verb->host, &verb->port)) {
        return weft_options_usage(command,
                                  "--listen %.80s is not HOST:PORT, such as "
                                  "127.0.0.1:%u",
                                  verb->listen, DEFAULT_PORT);
    }
    int status = is_given(verb->parent)    ? check_parent(command, verb)
                 : is_given(verb->servers) ? check_servers(command, verb)
                                           : WEFT_OPTIONS_RUN;
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (verb->port != 0 && verb->count > 0 && verb->port + verb->count - 1 > UINT16_MAX) {
        return weft_options_usage(command, "--listen :%u leaves too few ports for %u shards",
                                  verb->port, verb->count);
    }
    return weft_security_check(command, &verb->security);
}

int weft_cli_aggregate(int argc, char **argv)
{
    if (weft_options_given(argc, argv, "--xdp")) {
        return weft_cli_aggregate_xdp(argc, argv);
    }
    if (weft_options_given(argc, argv, "--dense")) {
        return weft_cli_aggregate_dense(argc, argv);
    }
    static struct verb verb;
    static const char *xdp, *dense; /* only for --help */
    verb = (struct verb){.listen = "127.0.0.1:7800",
                         .shards = 1,
                         .membership = WEFT_MEMBERSHIP_DEFAULTS,
                         .push_mib = WEFT_AGGREGATE_BYTES_MAX >> 20,
                         .age_us = 2000,
                         .cache_mib = 64,
                         .pull_age_us = 2000,
                         .channel = {.fd = -1},
                         .transport = WEFT_TRANSPORT_DEFAULTS,
                         .security = WEFT_SECURITY_DEFAULTS,
                         .recording = WEFT_RECORDING_DEFAULTS};
    weft_aggregator_thread_config_default(&verb.each);
    verb.each.aggregator.workers_max = DEFAULT_WORKERS;
    struct weft_aggregator_config *aggregator = &verb.each.aggregator;
    const struct weft_option options[] = {
        {"listen", "HOST:PORT",
         "address that workers give with --via; shard s uses port PORT + s.\n"
         "Numeric; 0.0.0.0 = every address of this host",
         WEFT_OPTION_STRING, .value = &verb.listen},
        {"servers", "HOST:PORT,...", "all shards, shard 0 first, as `weft server` prints them",
         WEFT_OPTION_STRING, .value = &verb.servers,
         .fallback = "required, unless --parent or --coordinator is given"},
        {"parent", "HOST:PORT",
         "send sums to this `weft aggregate` instead of the servers; it\n"
         "aggregates them with those of its own workers. It needs --children",
         WEFT_OPTION_STRING, .value = &verb.parent, .fallback = "none; sums are sent to --servers"},
        WEFT_MEMBERSHIP_ROWS(&verb.membership),
        {"rack", "NAME",
         "with --coordinator: serve workers with the same --rack. Without it, or\n"
         "if no aggregator has a worker's rack, workers are spread over all\n"
         "aggregators by rank",
         WEFT_OPTION_STRING, .value = &verb.rack, .fallback = "none"},
        {"advertise", "HOST", "with --coordinator: the address given to workers",
         WEFT_OPTION_STRING, .value = &verb.advertise,
         .fallback = "--listen; if it is a wildcard, the local address on the route to the "
                     "coordinator"},
        {"shards", "N", "shards of the job, with --parent", WEFT_OPTION_U32, .value = &verb.shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"children", "N",
         "aggregators with numbers below N may use this one as --parent. Each\n"
         "uses up to 64 MiB per shard",
         WEFT_OPTION_U32, .value = &aggregator->children_max, .max = WEFT_AGGREGATE_NUMBERS_MAX},
        {"number", "N",
         "number of this aggregator, unique in the job, starting at 0. It must\n"
         "be below --aggregators of the servers (default 2) or, with --parent,\n"
         "below --children of the parent",
         WEFT_OPTION_U32, .value = &aggregator->number, .max = WEFT_SHARD_AGGREGATORS_MAX - 1},
        {"workers", "N", "ranks 0 to N-1 may connect", WEFT_OPTION_U32,
         .value = &aggregator->workers_max, .min = 1, .max = WEFT_JOB_WORKERS_MAX},
        {"tables", "N", "aggregate tables 0 to N-1", WEFT_OPTION_U32,
         .value = &aggregator->tables_max, .min = 1, .max = 4096},
        {"flush-age-us", "US",
         "send a sum at the latest this long after its first push, even if\n"
         "pushes of some workers are missing. A sum with a push of every worker\n"
         "is sent at once. With a scheduler, which assigns pushes to sums, the\n"
         "limit is at least 300 ms, and a sum waits for pushes that are arriving",
         WEFT_OPTION_U32, .value = &verb.age_us, .min = 1, .max = 10000000},
        {"flush-by-age", NULL,
         "ASP tables: hold a sum until it has the age --flush-age-us or\n"
         "--flush-count pushes, even if it has a push of every worker. More pushes\n"
         "are aggregated, but workers that wait for each push are delayed by up to\n"
         "that age",
         WEFT_OPTION_FLAG, .value = &aggregator->by_age_asp},
        {"acknowledge", "WHEN",
         "commit: a push completes when the server has it. apply: when it is in a\n"
         "sum here; a CLOCK still follows the commit. If the aggregator dies, the\n"
         "pushes of at most one --flush-age-us are lost, and the workers count\n"
         "them. apply is refused if a server has --journal or a worker\n"
         "--replay-bytes",
         WEFT_OPTION_CHOICE, .value = &verb.acknowledge, .choices = acknowledgements},
        {"cut-through", "N",
         "workers have this option, and cut updates into up to N pieces: room for\n"
         "16 sums of N pieces, at most 128 pieces, with up to 20 MiB of virtual\n"
         "memory for each piece and shard, mostly not used. 0 and 1 = they do not",
         WEFT_OPTION_U32, .value = &verb.cut_through, .max = WEFT_PS_PIECES_MAX},
        {"flush-count", "N", "send a sum with N pushes; 0 = when it has a push of every worker",
         WEFT_OPTION_U32, .value = &aggregator->count_max, .max = 256},
        {"push-mib", "MIB",
         "largest push that is aggregated, and largest reply to a pull; larger\n"
         "messages bypass the aggregator. Memory for each worker and shard: up\n"
         "to (4 + --pulls) times MIB",
         WEFT_OPTION_U32, .value = &verb.push_mib, .min = 1,
         .max = WEFT_AGGREGATE_BYTES_MAX >> 20},
        {"pulls", "N", "outstanding pulls per worker; 0 = send pulls to the servers",
         WEFT_OPTION_U32, .value = &aggregator->pull_slots, .max = 16},
        {"cache-mib", "MIB",
         "memory per server for rows cached for pulls; the oldest are evicted. 0\n"
         "= no cache: request each row again, once for all waiting pulls",
         WEFT_OPTION_U32, .value = &verb.cache_mib, .max = 65536},
        {"pull-age-us", "US",
         "ASP tables: maximum age of the rows in a reply, measured from their\n"
         "request. BSP and SSP need no limit, since the clock determines how\n"
         "recent a row must be",
         WEFT_OPTION_U32, .value = &verb.pull_age_us, .max = 10000000},
        WEFT_TRANSPORT_ROWS(&verb.transport),
        WEFT_SECURITY_NETWORK_ROWS(&verb.security),
        WEFT_METRICS_OPTIONS(&verb.metrics_options),
        {"records", "FILE",
         "record every push in and every sum out, for `weft trace figures`: a\n"
         "SQLite database, or JSON lines if FILE ends in .jsonl (docs/RECORDS.md)",
         WEFT_OPTION_STRING, .value = &verb.recording.path, .fallback = "none"},
        WEFT_RECORDING_CHILD_ROW(&verb.recording),
        {"json", NULL, "print the counters at the end as a JSON object", WEFT_OPTION_FLAG,
         .value = &verb.json},
        {"xdp", "IFACE,...",
         "load an XDP program that sums packets at these interfaces. This is a\n"
         "different function, with the options that `weft aggregate --xdp IFACE\n"
         "--help` lists",
         WEFT_OPTION_STRING, .value = &xdp, .fallback = ""},
        {"dense", "HOST:PORT",
         "the function of --xdp in this process, at a UDP port, without BPF and\n"
         "root; `weft aggregate --dense HOST:PORT --help` lists its options",
         WEFT_OPTION_STRING, .value = &dense, .fallback = ""},
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &verb.each.driver.udp.loss.loss_ppm},
        {"inject-seed", "N", "seed of the random choice of dropped datagrams", WEFT_OPTION_U64,
         .value = &verb.each.driver.udp.loss.seed},
        {"busy-poll-us", "N", WEFT_JOB_BUSY_POLL_HELP, WEFT_OPTION_U32,
         .value = &verb.each.driver.udp.busy_poll_us, .max = WEFT_JOB_BUSY_POLL_US_MAX},
        {"ports", "P,...", "one port per shard, from `weft run`", WEFT_OPTION_STRING,
         .value = &verb.ports, .hidden = true},
        {"control-fd", "FD", "channel to `weft train`", WEFT_OPTION_U32, .value = &verb.control_fd,
         .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "aggregate",
        .summary = "aggregate pushes and serve pulls between workers and servers",
        .description =
         "Workers with --via send their pushes, pulls and ends of clocks to this process, and\n"
         "everything else to the servers. It aggregates pushes of the same table and clock into one\n"
         "message to the servers: fewer rows, bytes and requests. A worker's push completes when the\n"
         "server has it, or with --acknowledge apply when it is in a sum. A pull is served from a\n"
         "cache or by requesting rows from the server, once for all waiting workers; rows are never\n"
         "older than the table's consistency allows. A server accepts one aggregator per --number at a\n"
         "time.\n"
         "\n"
         "With --parent, aggregators form a tree: the parent aggregates the sums of its children.\n"
         "With --coordinator, the aggregator learns the server addresses from it, and workers with\n"
         "--via coordinator learn the aggregator's address.\n"
         "\n"
         "If the aggregator fails or a push cannot be aggregated (values other than float32, rows\n"
         "longer than 256 floats, clipping, admission, eviction), workers send the push to the\n"
         "server; nothing is counted twice, and nothing lost except with --acknowledge apply. Ctrl-C\n"
         "or SIGTERM stops the aggregator.",
        .example =
            "  weft keygen job.key\n"
            "  weft server --key-file job.key --workers 2 --port 7700 &\n"
            "  weft aggregate --key-file job.key --servers 127.0.0.1:7700 &\n"
            "  weft worker --key-file job.key --servers 127.0.0.1:7700 --workers 2 --rank 0 \\\n"
            "      --via 127.0.0.1:7800 &\n"
            "  weft worker --key-file job.key --servers 127.0.0.1:7700 --workers 2 --rank 1 \\\n"
            "      --via 127.0.0.1:7800\n"
            "  # a tree: one aggregator per rack, and one per host of the rack\n"
            "  weft aggregate --key-file job.key --servers 127.0.0.1:7700 --children 2 &\n"
            "  weft aggregate --key-file job.key --parent 127.0.0.1:7800 --number 1 \\\n"
            "      --listen 127.0.0.1:7810",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &verb);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &verb.transport);
    }
    if (verb.control_fd != 0) {
        verb.channel.fd = (int)verb.control_fd;
    }
    status = status == WEFT_OPTIONS_RUN ? serve(&verb) : status;
    free(verb.addresses);
    free(verb.threads);
    free(verb.stats);
    return status;
}
