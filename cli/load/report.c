#include "cli/load/run.h"

#include "cli/output.h"
#include "metrics/report.h"

/* ---- figures --------------------------------------------------------------------------------- */

static double us(uint64_t ns)
{
    return (double)ns / (double)WEFT_NS_PER_US;
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)WEFT_NS_PER_S;
}

static double per_second(const struct weft_load_outcome *o, uint64_t count)
{
    return o->span_ns > 0 ? (double)count / seconds(o->span_ns) : 0;
}

static double quantile_us(const struct weft_hist *hist, uint32_t ppm)
{
    return us(weft_hist_quantile(hist, ppm));
}

static double mean_us(const struct weft_hist *hist)
{
    return weft_times_mean(hist) / (double)WEFT_NS_PER_US;
}

static uint64_t rpcs(const struct weft_load_outcome *o)
{
    return o->rpc[WEFT_LOAD_PUSH].total.count + o->rpc[WEFT_LOAD_PULL].total.count;
}

static uint64_t requests(const struct weft_load_outcome *o)
{
    return o->sums.latency[WEFT_LOAD_PUSH].count + o->sums.latency[WEFT_LOAD_PULL].count -
           o->sums.unanswered;
}

static double server_us_per_rpc(const struct weft_load_outcome *o)
{
    return rpcs(o) > 0 ? us(o->server_cpu_ns) / (double)rpcs(o) : 0;
}

static uint32_t active(const struct weft_load_servers *servers, uint32_t ppm)
{
    return servers->active != NULL ? weft_active_quantile(servers->active, servers->count, ppm) : 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_quantiles(cJSON *object, const char *name, const struct weft_hist *hist)
{
    (void)weft_json_add_times(object, name, hist,
                              WEFT_TIMES_P50 | WEFT_TIMES_P90 | WEFT_TIMES_P99 | WEFT_TIMES_MAX,
                              (double)WEFT_NS_PER_US);
}

static void add_breakdown(cJSON *object, const char *name, const struct weft_ps_latencies *of)
{
    cJSON *at = cJSON_AddObjectToObject(object, name);
    for (unsigned part = 0; part < WEFT_REPORT_PARTS; part++) {
        cJSON_AddNumberToObject(at, weft_report_parts[part].name,
                                mean_us(weft_report_part(of, part)));
    }
}

static void add_latencies(cJSON *object, const struct weft_load_outcome *o)
{
    cJSON *rows = cJSON_AddObjectToObject(object, "rows_per_s");
    cJSON *latency = cJSON_AddObjectToObject(object, "latency_us");
    cJSON *breakdown = cJSON_AddObjectToObject(object, "breakdown_us");
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        cJSON_AddNumberToObject(rows, weft_report_kinds[kind], per_second(o, o->sums.rows[kind]));
        add_quantiles(latency, weft_report_kinds[kind], &o->sums.latency[kind]);
        add_breakdown(breakdown, weft_report_kinds[kind], &o->rpc[kind]);
    }
}

/* Add the parameters of the run, and values that are not in the contract's fields. */
static void add_run(cJSON *object, const struct weft_load *load, const struct weft_load_outcome *o)
{
    const struct weft_load_workload *w = &load->workload;
    cJSON *run = cJSON_AddObjectToObject(object, "run");
    char mix[32];
    snprintf(mix, sizeof(mix), "%u:%u", w->mix.push, w->mix.pull);
    cJSON_AddStringToObject(run, "transport", weft_driver_kind_name(load->transport.kind));
    cJSON_AddStringToObject(run, "security", weft_security_mode_name(load->security.mode));
    cJSON_AddStringToObject(run, "loop", w->rate > 0 ? "open" : "closed");
    weft_json_add_known(run, "rate", w->rate, w->rate > 0);
    cJSON_AddNumberToObject(run, "workers", w->workers);
    cJSON_AddNumberToObject(run, "servers", load->servers.count);
    cJSON_AddNumberToObject(run, "threads", load->threads);
    cJSON_AddNumberToObject(run, "rows", w->rows);
    cJSON_AddNumberToObject(run, "dim", w->dim);
    cJSON_AddStringToObject(run, "mix", mix);
    cJSON_AddNumberToObject(run, "in_flight", w->in_flight);
    cJSON_AddNumberToObject(run, "keys", (double)w->keys);
    cJSON_AddNumberToObject(run, "zipf_top", (double)w->top.keys);
    cJSON_AddNumberToObject(run, "zipf_share", w->top.share);
    cJSON_AddNumberToObject(run, "zipf_exponent", load->zipf.exponent);
    cJSON_AddNumberToObject(run, "seed", (double)w->seed);
    cJSON_AddNumberToObject(run, "seconds", seconds(o->span_ns));
    cJSON_AddNumberToObject(run, "requests", (double)requests(o));
    cJSON_AddNumberToObject(run, "requests_per_s", per_second(o, requests(o)));
    cJSON_AddNumberToObject(run, "unanswered", (double)o->sums.unanswered);
    cJSON_AddNumberToObject(run, "refused", (double)o->sums.refused);
    cJSON *packets = cJSON_AddObjectToObject(run, "worker_packets");
    cJSON_AddNumberToObject(packets, "sent", (double)o->transport.socket.datagrams_sent);
    cJSON_AddNumberToObject(packets, "received", (double)o->transport.socket.datagrams_received);
    cJSON_AddNumberToObject(packets, "retransmitted",
                            (double)o->transport.ep.retransmitted_packets);
    cJSON_AddNumberToObject(packets, "dropped", (double)o->transport.socket.kernel_drops);
    cJSON_AddNumberToObject(run, "aggregators", load->vias.count);
    cJSON *via = cJSON_AddObjectToObject(run, "via");
    cJSON_AddNumberToObject(via, "pushes", (double)o->client.via_pushes);
    cJSON_AddNumberToObject(via, "committed", (double)o->client.via_committed);
    cJSON_AddNumberToObject(via, "direct", (double)o->client.via_direct);
    cJSON_AddNumberToObject(via, "pulls", (double)o->client.via_pulls);
    cJSON_AddNumberToObject(via, "answered", (double)o->client.via_answered);
    cJSON_AddNumberToObject(via, "pulls_direct", (double)o->client.via_pulls_direct);
    cJSON_AddNumberToObject(via, "rows_hot", (double)o->client.rows_hot);
    cJSON_AddNumberToObject(via, "rows_cold", (double)o->client.rows_cold);
    cJSON_AddNumberToObject(via, "clocks", (double)o->client.via_clocks);
    cJSON_AddNumberToObject(via, "clocks_taken", (double)o->client.via_clocks_taken);
    cJSON_AddNumberToObject(via, "clocks_direct", (double)o->client.via_clocks_direct);
    cJSON_AddBoolToObject(run, "interrupted", o->is_interrupted);
    cJSON *rpc = cJSON_AddObjectToObject(run, "rpc_latency_us");
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        add_quantiles(rpc, weft_report_kinds[kind], &o->rpc[kind].total);
    }
}

static cJSON *build(const struct weft_load *load, const struct weft_load_outcome *o)
{
    bool local = load->servers.active != NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "rpcs", (double)rpcs(o));
    cJSON_AddNumberToObject(object, "rpcs_per_s", per_second(o, rpcs(o)));
    add_latencies(object, o);
    cJSON *connections = cJSON_AddObjectToObject(object, "active_connections_per_ms");
    weft_json_add_known(connections, "p50", active(&load->servers, 500000), local);
    weft_json_add_known(connections, "p99", active(&load->servers, 990000), local);
    weft_json_add_known(object, "server_cpu_s", seconds(o->server_cpu_ns), o->server_cpu_known);
    cJSON_AddNumberToObject(object, "worker_cpu_s", seconds(o->worker_cpu_ns));
    weft_json_add_known(object, "server_cpu_us_per_rpc", server_us_per_rpc(o), o->server_cpu_known);
    cJSON_AddNumberToObject(object, "rss_mb", (double)o->rss_bytes / 1e6);
    cJSON_AddNumberToObject(object, "records_dropped", (double)o->records_dropped);
    add_run(object, load, o);
    return object;
}

bool weft_load_report_json(const struct weft_load *load, const struct weft_load_outcome *outcome)
{
    return weft_output_json("load", build(load, outcome), true);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_kind(const struct weft_load_outcome *o, enum weft_load_kind kind)
{
    const struct weft_hist *latency = &o->sums.latency[kind];
    const struct weft_ps_latencies *of = &o->rpc[kind];
    printf("%-5s %11.0f %9.1f %9.1f %9.1f %10.1f  %7.1f %7.1f %8.1f %8.1f %7.1f %8.1f\n",
           weft_report_kinds[kind], per_second(o, o->sums.rows[kind]), quantile_us(latency, 500000),
           quantile_us(latency, 900000), quantile_us(latency, 990000), us(latency->max),
           mean_us(&of->w_proc), mean_us(&of->w_queue), mean_us(&of->ps_proc),
           mean_us(&of->ps_queue), mean_us(&of->ps_wait), mean_us(&of->n_tx));
}

static void print_workload(const struct weft_load *load)
{
    const struct weft_load_workload *w = &load->workload;
    printf("%u workers (%u threads), %u shards over %s (%s), %u rows x %u floats, push:pull %u:%u",
           w->workers, load->threads, load->servers.count,
           weft_driver_kind_name(load->transport.kind),
           weft_security_mode_name(load->security.mode), w->rows, w->dim, w->mix.push, w->mix.pull);
    if (w->rate > 0) {
        printf(", open loop at %.6g/s\n", w->rate);
    } else {
        printf(", closed loop, %u in flight\n", w->in_flight);
    }
    printf("%llu keys, the top %llu get %.4g of the updates (Zipf exponent %.6f)\n\n",
           (unsigned long long)w->keys, (unsigned long long)w->top.keys, w->top.share,
           load->zipf.exponent);
}

static void print_costs(const struct weft_load *load, const struct weft_load_outcome *o)
{
    if (o->server_cpu_known) {
        printf("server CPU %.2f s, %.2f us an RPC; ", seconds(o->server_cpu_ns),
               server_us_per_rpc(o));
    } else {
        printf("server CPU unknown (see --server-pid); ");
    }
    printf("worker CPU %.2f s; %.0f MB resident\n", seconds(o->worker_cpu_ns),
           (double)o->rss_bytes / 1e6);
    if (load->servers.active != NULL) {
        printf("active workers at a shard within 1 ms: p50 %u, p99 %u\n",
               active(&load->servers, 500000), active(&load->servers, 990000));
    }
    if (load->vias.count > 0) {
        printf("through %u aggregators: pushes %llu, of these resent to the server %llu; pulls "
               "%llu, %llu\n",
               load->vias.count, (unsigned long long)o->client.via_pushes,
               (unsigned long long)o->client.via_direct, (unsigned long long)o->client.via_pulls,
               (unsigned long long)o->client.via_pulls_direct);
    }
    if (o->sums.unanswered > 0) {
        printf("%llu requests had no reply at the end; they are included with their waiting time\n",
               (unsigned long long)o->sums.unanswered);
    }
    if (o->sums.refused > 0) {
        printf("%llu requests were rejected by the servers\n", (unsigned long long)o->sums.refused);
    }
}

void weft_load_report_text(const struct weft_load *load, const struct weft_load_outcome *o)
{
    print_workload(load);
    printf("%.2f s%s: %llu requests, %.0f/s; %llu RPCs, %.0f/s\n\n", seconds(o->span_ns),
           o->is_interrupted ? " (interrupted)" : "", (unsigned long long)requests(o),
           per_second(o, requests(o)), (unsigned long long)rpcs(o), per_second(o, rpcs(o)));
    printf("%5s %11s %9s %9s %9s %10s  %7s %7s %8s %8s %7s %8s\n", "", "rows/s", "p50 us", "p90",
           "p99", "max", "W_proc", "W_queue", "PS_proc", "PS_queue", "PS_wait", "N_tx");
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        if (o->sums.latency[kind].count > 0) {
            print_kind(o, kind);
        }
    }
    printf("%66s mean us per RPC\n\n", "");
    print_costs(load, o);
}
