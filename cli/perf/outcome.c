#include "cli/perf/outcome.h"

#include "cli/output.h"
#include "cli/tcp_cc.h"
#include "core/cc.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

bool weft_perf_outcome_make(const struct weft_perf_job *job, const struct weft_perf_result *result,
                            uint32_t senders, uint32_t receivers,
                            struct weft_perf_outcome *outcome_p)
{
    size_t flows =
        weft_perf_is_pingpong(job->plan) ? 0 : (size_t)result->rounds * job->plan->flow_count;
    size_t most = flows > result->rounds ? flows : result->rounds;
    double *room = calloc(most + 1, sizeof(*room));
    if (room == NULL) {
        return false;
    }
    *outcome_p = (struct weft_perf_outcome){
        .job = job, .result = result, .senders = senders, .receivers = receivers};
    for (uint32_t i = 0; i < result->rounds; i++) {
        room[i] = ms(result->each[i].ns);
    }
    outcome_p->round = weft_perf_summarize(room, result->rounds);
    for (uint32_t i = 0; i < result->rounds; i++) {
        room[i] = ms(result->each[i].lag_ns);
    }
    outcome_p->start_lag_ms = weft_perf_summarize(room, result->rounds).p50_ms;
    for (uint32_t i = 0; i < result->rounds; i++) {
        if (result->each[i].undisturbed) {
            room[outcome_p->undisturbed_rounds++] = ms(result->each[i].ns);
        }
    }
    outcome_p->undisturbed = weft_perf_summarize(room, outcome_p->undisturbed_rounds);
    for (size_t i = 0; i < flows; i++) {
        room[i] = ms(result->flow_ns[i]);
    }
    outcome_p->flow = flows > 0 ? weft_perf_summarize(room, flows) : outcome_p->round;
    outcome_p->ideal_ms = weft_perf_ideal_ms(job, result);
    free(room);
    return true;
}

static const char *cc_of(const struct weft_perf_outcome *outcome)
{
    if (outcome->job->transport->kernel_tcp) {
        return weft_cli_tcp_cc_name(outcome->result->cc);
    }
    return outcome->job->transport->bounded ? weft_cc_find(outcome->job->cc)->name : "none";
}

static const char *security_of(const struct weft_perf_job *job)
{
    return weft_security_mode_name(job->transport->secure ? job->mode : WEFT_MODE_NONE);
}

static double delivered_mean(const struct weft_perf_result *result)
{
    double sum = 0;
    for (uint32_t i = 0; i < result->rounds; i++) {
        sum += result->each[i].delivered;
    }
    return result->rounds > 0 ? sum / result->rounds : 0;
}

static double goodput_gbps(const struct weft_perf_result *result)
{
    return result->elapsed_ns > 0
               ? 8.0 * (double)result->delivered_bytes / (double)result->elapsed_ns
               : 0;
}

/* 0: nothing was delivered. */
static double cpu_s_per_gb(const struct weft_perf_result *result)
{
    return result->delivered_bytes > 0 ? (double)result->cpu_ns / (double)result->delivered_bytes
                                       : 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_head(const struct weft_perf_outcome *outcome)
{
    const struct weft_perf_job *job = outcome->job;
    const struct weft_lab_info *network = &job->layout->network;
    printf("%s: ", weft_perf_pattern_name(job->plan->pattern));
    if (job->plan->pattern == WEFT_PERF_SHUFFLE) {
        printf("%u mappers x %u reducers", outcome->senders, outcome->receivers);
    } else if (!weft_perf_is_pingpong(job->plan)) {
        const bool outcast = job->plan->pattern == WEFT_PERF_OUTCAST;
        printf("%u %s", outcast ? outcome->receivers : outcome->senders,
               outcast                                    ? "receivers"
               : job->plan->pattern == WEFT_PERF_ALLTOALL ? "participants"
                                                          : "senders");
    }
    printf("%s%u bytes, %s %s %s", weft_perf_is_pingpong(job->plan) ? "" : " x ", job->bytes,
           job->transport->name, security_of(job), cc_of(outcome));
    if (job->bound_ppm > 0) {
        printf(", bound %g %%", job->bound_ppm / 1e4);
    }
    if (job->drop_ppm > 0) {
        printf(", %g %% dropped at the sender", job->drop_ppm / 1e4);
    }
    if (job->layout->lab == NULL) {
        printf("; loopback");
    } else {
        printf("; lab %s: %g Mbit/s, buffer %g KB, loss %g %%, base RTT %.0f us%s",
               job->layout->lab, (double)network->rate_bps / 1e6,
               (double)network->buffer_bytes / 1e3, network->loss_ppm / 1e4,
               (double)network->base_rtt_ns / 1e3,
               network->offload ? ", segmentation offload" : "");
    }
    if (job->busy > 0) {
        printf("; %u busy process%s", job->busy, job->busy > 1 ? "es" : "");
    }
    printf("\n");
}

static void print_times(const char *name, const struct weft_perf_summary *s, double scale)
{
    printf("%-12s %10.3f %10.3f %10.3f %10.3f %10.3f\n", name, s->mean_ms * scale,
           s->p50_ms * scale, s->p90_ms * scale, s->p99_ms * scale, s->max_ms * scale);
}

void weft_perf_outcome_text(const struct weft_perf_outcome *outcome)
{
    const struct weft_perf_result *result = outcome->result;
    bool pingpong = weft_perf_is_pingpong(outcome->job->plan);
    double scale = pingpong ? 1e3 : 1;
    print_head(outcome);
    printf("%-12s %10s %10s %10s %10s %10s\n", pingpong ? "us" : "ms", "mean", "p50", "p90", "p99",
           "max");
    print_times(pingpong ? "trip" : "round", &outcome->round, scale);
    if (!pingpong) {
        print_times("flow", &outcome->flow, scale);
    }
    if (outcome->undisturbed_rounds > 0) {
        print_times("undisturbed", &outcome->undisturbed, scale);
        printf("%-12s %u of %u rounds: no processor was preempted in the first %.2f ms\n", "",
               outcome->undisturbed_rounds, result->rounds, ms(result->window_ns));
    }
    if (outcome->ideal_ms > 0) {
        printf("%-12s %10.3f   mean %.3f x, p99 %.3f x of it\n", "ideal", outcome->ideal_ms * scale,
               outcome->round.mean_ms / outcome->ideal_ms,
               outcome->round.p99_ms / outcome->ideal_ms);
    }
    printf("%-12s %.3f %% mean, %.3f %% least\n", "delivered", 100 * delivered_mean(result),
           100 * result->delivered_min);
    printf("%-12s %.3f Gbit/s; %llu packets retransmitted, %llu dropped by a full socket\n",
           "goodput", goodput_gbps(result), (unsigned long long)result->retransmitted,
           (unsigned long long)result->kernel_drops);
    printf("%-12s %.3f s, %.2f s a GB; the machine was %.0f %% busy\n", "CPU",
           (double)result->cpu_ns / 1e9, cpu_s_per_gb(result), 100 * result->machine_busy);
    if (result->dnf) {
        printf("DNF (did not finish): a round did not complete within %u s; %u of %u rounds were measured\n",
               outcome->job->round_s, result->rounds, outcome->job->rounds);
    } else if (result->rounds < outcome->job->rounds) {
        printf("interrupted: %u of %u rounds were measured\n", result->rounds,
               outcome->job->rounds);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_times(cJSON *object, const char *name, const struct weft_perf_summary *s)
{
    cJSON *item = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(item, "mean", s->mean_ms);
    cJSON_AddNumberToObject(item, "p50", s->p50_ms);
    cJSON_AddNumberToObject(item, "p90", s->p90_ms);
    cJSON_AddNumberToObject(item, "p99", s->p99_ms);
    cJSON_AddNumberToObject(item, "max", s->max_ms);
}

static void json_job(cJSON *object, const struct weft_perf_outcome *outcome)
{
    const struct weft_perf_job *job = outcome->job;
    uint32_t rto_us = outcome->result->rto_us;
    bool has_receivers = job->plan->pattern == WEFT_PERF_SHUFFLE ||
                         job->plan->pattern == WEFT_PERF_OUTCAST;
    cJSON_AddStringToObject(object, "pattern", weft_perf_pattern_name(job->plan->pattern));
    cJSON_AddStringToObject(object, "transport", job->transport->name);
    cJSON_AddStringToObject(object, "security", security_of(job));
    cJSON_AddStringToObject(object, "cc", cc_of(outcome));
    cJSON_AddNumberToObject(object, "senders", outcome->senders);
    weft_json_add_known(object, "receivers", outcome->receivers, has_receivers);
    cJSON_AddNumberToObject(object, "bytes", job->bytes);
    cJSON_AddNumberToObject(object, "rounds", outcome->result->rounds);
    cJSON_AddNumberToObject(object, "rounds_asked", job->rounds);
    cJSON_AddBoolToObject(object, "realtime", job->realtime);
    cJSON_AddBoolToObject(object, "awake", job->awake);
    cJSON_AddNumberToObject(object, "warmup", job->warmup);
    cJSON_AddNumberToObject(object, "packet_bytes", job->packet_bytes);
    cJSON_AddBoolToObject(object, "dnf", outcome->result->dnf);
    cJSON_AddBoolToObject(object, "interrupted", outcome->result->interrupted);
    cJSON_AddNumberToObject(object, "bound", job->bound_ppm / 1e6);
    cJSON_AddNumberToObject(object, "drop_at_sender", job->drop_ppm / 1e6);
    weft_json_add_known(object, "deadline_ms", job->deadline_ms, job->deadline_ms > 0);
    weft_json_add_known(object, "tcp_rto_min_ms", job->tcp_rto_min_ms, job->tcp_rto_min_ms > 0);
    weft_json_add_known(object, "rto_ms", rto_us / 1e3, rto_us > 0);
    weft_json_add_known(object, "parallel", job->plan->parallel,
                        job->plan->pattern == WEFT_PERF_SHUFFLE);
}

static void json_network(cJSON *object, const struct weft_perf_outcome *outcome)
{
    const struct weft_lab_info *network = &outcome->job->layout->network;
    struct utsname host = {0};
    bool lab = outcome->job->layout->lab != NULL;
    (void)uname(&host);
    weft_json_add_text(object, "lab", outcome->job->layout->lab);
    weft_json_add_text(object, "lab_settings", lab ? network->settings : NULL);
    cJSON_AddStringToObject(object, "topology", lab ? network->topology : "loopback");
    weft_json_add_known(object, "rate_bps", (double)network->rate_bps, network->rate_bps > 0);
    weft_json_add_known(object, "loss", network->loss_ppm / 1e6, lab);
    weft_json_add_known(object, "buffer", (double)network->buffer_bytes, lab);
    weft_json_add_known(object, "ecn", network->ecn_bytes, network->ecn_bytes > 0);
    weft_json_add_known(object, "base_rtt_ms", ms(network->base_rtt_ns), network->base_rtt_ns > 0);
    cJSON_AddBoolToObject(object, "htb_hysteresis", network->hysteresis);
    cJSON_AddBoolToObject(object, "offload", network->offload);
    cJSON_AddStringToObject(object, "kernel", host.release);
    cJSON_AddNumberToObject(object, "cpus", (double)sysconf(_SC_NPROCESSORS_ONLN));
    cJSON_AddNumberToObject(object, "busy", outcome->job->busy);
}

/* null: the processors were not watched. */
static void json_undisturbed(cJSON *object, const struct weft_perf_outcome *outcome)
{
    if (outcome->result->window_ns == 0) {
        cJSON_AddNullToObject(object, "undisturbed_ms");
        return;
    }
    json_times(object, "undisturbed_ms", &outcome->undisturbed);
    cJSON *item = cJSON_GetObjectItemCaseSensitive(object, "undisturbed_ms");
    cJSON_AddNumberToObject(item, "rounds", outcome->undisturbed_rounds);
    cJSON_AddNumberToObject(item, "window_ms", ms(outcome->result->window_ns));
}

static void json_figures(cJSON *object, const struct weft_perf_outcome *outcome)
{
    const struct weft_perf_result *result = outcome->result;
    bool ideal = outcome->ideal_ms > 0;
    weft_json_add_known(object, "ideal_ms", outcome->ideal_ms, ideal);
    json_times(object, "round_ms", &outcome->round);
    json_times(object, "flow_ms", &outcome->flow);
    json_undisturbed(object, outcome);
    weft_json_add_known(object, "mean_ratio",
                        ideal ? outcome->round.mean_ms / outcome->ideal_ms : 0, ideal);
    weft_json_add_known(object, "p99_ratio", ideal ? outcome->round.p99_ms / outcome->ideal_ms : 0,
                        ideal);
    cJSON *delivered = cJSON_AddObjectToObject(object, "delivered_fraction");
    cJSON_AddNumberToObject(delivered, "mean", delivered_mean(result));
    cJSON_AddNumberToObject(delivered, "min", result->rounds > 0 ? result->delivered_min : 0);
    cJSON_AddNumberToObject(object, "goodput_gbps", goodput_gbps(result));
    cJSON_AddNumberToObject(object, "retransmitted_packets", (double)result->retransmitted);
    cJSON_AddNumberToObject(object, "kernel_drops", (double)result->kernel_drops);
    cJSON_AddNumberToObject(object, "packet_payload_bytes", result->packet_bytes);
    cJSON_AddNumberToObject(object, "wire_bytes", (double)result->wire_bytes);
    cJSON_AddNumberToObject(object, "cpu_s", (double)result->cpu_ns / 1e9);
    cJSON_AddNumberToObject(object, "cpu_s_per_gb", cpu_s_per_gb(result));
    weft_json_add_known(object, "machine_busy", result->machine_busy, result->machine_busy > 0);
    weft_json_add_known(object, "machine_cpu_s", result->machine_cpu_s, result->machine_busy > 0);
    weft_json_add_known(object, "machine_stolen", result->machine_stolen, result->machine_busy > 0);
    cJSON_AddNumberToObject(object, "start_lag_ms", outcome->start_lag_ms);
}

bool weft_perf_outcome_json(const struct weft_perf_outcome *outcome)
{
    cJSON *object = cJSON_CreateObject();
    json_job(object, outcome);
    json_network(object, outcome);
    json_figures(object, outcome);
    return weft_output_json("perf", object, false);
}

/* ---- round by round -------------------------------------------------------------------------- */

bool weft_perf_outcome_rounds(const struct weft_perf_outcome *outcome, const char *path)
{
    const struct weft_perf_result *result = outcome->result;
    uint32_t flows = weft_perf_is_pingpong(outcome->job->plan) ? 0 : outcome->job->plan->flow_count;
    FILE *file = weft_output_open(path);
    if (file == NULL) {
        return weft_output_close("perf", path, file, false);
    }
    fprintf(file, "# round round_ms delivered");
    for (uint32_t i = 0; i < flows; i++) {
        fprintf(file, " %u-%u_ms", outcome->job->plan->flows[i].from,
                outcome->job->plan->flows[i].to);
    }
    if (flows > 0) {
        fprintf(file, " go_ns");
    }
    if (result->window_ns > 0) {
        fprintf(file, " undisturbed");
    }
    for (uint32_t round = 0; round < result->rounds; round++) {
        const struct weft_perf_round *r = &result->each[round];
        fprintf(file, "\n%u %.6f %.6f", round, ms(r->ns), r->delivered);
        for (uint32_t i = 0; i < flows; i++) {
            fprintf(file, " %.6f", ms(result->flow_ns[(size_t)round * flows + i]));
        }
        if (flows > 0) {
            fprintf(file, " %llu", (unsigned long long)r->go_ns);
        }
        if (result->window_ns > 0) {
            fprintf(file, " %d", r->undisturbed);
        }
    }
    fprintf(file, "\n");
    return weft_output_close("perf", path, file, true);
}
