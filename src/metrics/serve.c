#include "metrics/serve.h"

#include "io/clock.h"
#include "io/resolve.h"
#include "metrics/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HOT_DEFAULT = 20, HOT_MAX = 100000 };

/* Digits only, a number that fits. */
static bool read_number(const char *text, uint64_t *value_p)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9' && i < 19; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *value_p = value;
    return i > 0 && text[i] == '\0';
}

bool weft_metrics_address(const char *text, char host_p[WEFT_METRICS_HOST_BYTES], uint16_t *port_p)
{
    const char *colon = strrchr(text, ':');
    const char *port = colon != NULL ? colon + 1 : text;
    size_t bytes = colon != NULL ? (size_t)(colon - text) : 0;
    uint64_t number;
    if (!read_number(port, &number) || number > UINT16_MAX) {
        return false;
    }
    if (bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']') {
        text++;
        bytes -= 2;
    }
    if (bytes >= WEFT_METRICS_HOST_BYTES || (colon != NULL && bytes == 0)) {
        return false;
    }
    snprintf(host_p, WEFT_METRICS_HOST_BYTES, "%.*s", colon != NULL ? (int)bytes : 9,
             colon != NULL ? text : "127.0.0.1");
    *port_p = (uint16_t)number;
    return true;
}

bool weft_metrics_environment(struct weft_metrics_options *options_p)
{
    const char *text = getenv("WEFT_METRICS");
    return text != NULL && weft_metrics_address(text, options_p->host, &options_p->port);
}

/* ---- /metrics -------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    unsigned long long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &total, &resident) != 2) {
            resident = 0;
        }
        (void)fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Metrics of every process. The names that begin with process_ are those of all Prometheus
 * clients. */
static void add_process(const struct weft_metrics *metrics, struct weft_exposition *text)
{
    char labels[96];
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    snprintf(labels, sizeof(labels), "role=\"%s\",version=\"%s\"", metrics->source.role,
             WEFT_VERSION);
    weft_exposition_family(text, "weft_build_info", "gauge", "Role and version; always 1.");
    weft_exposition_u64(text, "weft_build_info", labels, 1);
    weft_exposition_family(text, "weft_uptime_seconds", "gauge",
                           "Since this process began to serve its metrics.");
    weft_exposition_real(text, "weft_uptime_seconds", NULL,
                         (double)(weft_clock_now_ns() - metrics->begun_ns) / 1e9);
    weft_exposition_family(text, "process_start_time_seconds", "gauge", "Start time in Unix time.");
    weft_exposition_real(text, "process_start_time_seconds", NULL, metrics->begun_unix_s);
    weft_exposition_family(text, "process_cpu_seconds_total", "counter",
                           "CPU time of the process, user and system.");
    weft_exposition_real(text, "process_cpu_seconds_total", NULL,
                         seconds(usage.ru_utime) + seconds(usage.ru_stime));
    weft_exposition_one(text, "process_resident_memory_bytes", "gauge", "Memory in RAM.",
                        resident_bytes());
}

static void reply_metrics(struct weft_metrics *metrics, struct weft_http_reply *reply)
{
    struct weft_exposition text = {0};
    add_process(metrics, &text);
    metrics->source.families(metrics->source.arg, &text);
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    reply->body = text.text;
    reply->bytes = text.bytes;
}

/* ---- other paths ----------------------------------------------------------------------------- */

static void reply_text(struct weft_http_reply *reply, unsigned code, const char *words)
{
    reply->code = code;
    reply->body = strdup(words);
    reply->bytes = strlen(words);
}

static void reply_json(struct weft_http_reply *reply, char *json)
{
    reply->type = "application/json";
    reply->body = json;
    reply->bytes = json != NULL ? strlen(json) : 0;
}

/* ?name=N; false if it is present and not a number up to most. */
static bool query_number(const struct weft_http_request *request, const char *name, uint64_t most,
                         uint64_t *value_p)
{
    const char *text = weft_http_query(request, name);
    return text == NULL || (read_number(text, value_p) && *value_p <= most);
}

static void reply_hot(struct weft_metrics *metrics, const struct weft_http_request *request,
                      struct weft_http_reply *reply)
{
    uint64_t table = 0, k = HOT_DEFAULT;
    if (!query_number(request, "table", UINT16_MAX, &table) ||
        !query_number(request, "k", HOT_MAX, &k)) {
        reply_text(reply, 400, "usage: /hot?table=N&k=N with k up to 100000\n");
        return;
    }
    reply_json(reply, metrics->source.hot(metrics->source.arg, (uint16_t)table, (uint32_t)k));
}

static bool is_host_allowed(const struct weft_metrics *metrics,
                            const struct weft_http_request *request)
{
    const struct weft_metrics_hosts hosts = {metrics->bound, metrics->hosts};
    char local[WEFT_HTTP_ADDRESS_BYTES];
    weft_http_local(request, local);
    return weft_metrics_hosts_allow(&hosts, weft_http_header(request, "Host"), local);
}

static void handle(void *arg, const struct weft_http_request *request,
                   struct weft_http_reply *reply)
{
    struct weft_metrics *metrics = arg;
    const char *path = weft_http_path(request);
    if (!is_host_allowed(metrics, request)) {
        reply_text(reply, 403,
                   "weft: the Host of this request is not a name of this process; ask by address, "
                   "or start it with --metrics-host NAME or WEFT_METRICS_HOST=NAME\n");
    } else if (strcmp(path, "/metrics") == 0) {
        reply_metrics(metrics, reply);
    } else if (strcmp(path, "/hot") == 0 && metrics->source.hot != NULL) {
        reply_hot(metrics, request, reply);
    } else if (strcmp(path, "/targets") == 0 && metrics->source.targets != NULL) {
        reply_json(reply, weft_targets_json(metrics->source.targets));
    } else {
        reply_text(reply, 404,
                   "weft: /metrics; of a server /hot?table=0&k=20; of weft train "
                   "/targets\n");
    }
}

/* ---- start and stop -------------------------------------------------------------------------- */

/* Set the names under which it may be requested. */
static weft_status take_hosts(struct weft_metrics *metrics,
                              const struct weft_metrics_options *options, struct weft_error *error)
{
    const char *list = getenv("WEFT_METRICS_HOST");
    list = list != NULL ? list : "";
    if (!weft_metrics_hosts_valid(list)) {
        return weft_fail(
            error, WEFT_INVALID,
            "metrics: WEFT_METRICS_HOST is \"%.40s\"; it must be " WEFT_METRICS_HOSTS_WORDS, list);
    }
    snprintf(metrics->bound, sizeof(metrics->bound), "%s", options->host);
    snprintf(metrics->hosts, sizeof(metrics->hosts), "%s", list);
    return WEFT_OK;
}

weft_status weft_metrics_start(struct weft_metrics *metrics,
                               const struct weft_metrics_options *options,
                               const struct weft_metrics_source *source, struct weft_error *error)
{
    char host[WEFT_RESOLVE_TEXT_BYTES];
    struct weft_error why = {.text = ""};
    struct timespec now;
    *metrics = (struct weft_metrics){.source = *source, .begun_ns = weft_clock_now_ns()};
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    metrics->begun_unix_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    weft_status status = take_hosts(metrics, options, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_resolve(options->host, host, &why);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "metrics: %s", why.text);
    }
    const struct weft_http_config config = {
        .host = host, .port = options->port, .handler = handle, .arg = metrics};
    status = weft_http_start(&config, &metrics->http, &why);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "metrics: %s", why.text);
    }
    bool v6 = strchr(host, ':') != NULL;
    snprintf(metrics->url, sizeof(metrics->url), "http://%s%s%s:%u/metrics", v6 ? "[" : "", host,
             v6 ? "]" : "", weft_http_port(metrics->http));
    return WEFT_OK;
}

void weft_metrics_stop(struct weft_metrics *metrics)
{
    weft_http_stop(metrics->http);
    metrics->http = NULL;
}
