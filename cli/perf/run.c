#include "cli/perf/run.h"

#include "cli/perf/fleet.h"
#include "cli/perf/live.h"
#include "cli/stop.h"
#include "io/clock.h"
#include "lab/steal_monitor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIPS = 100 };

static const uint64_t prepare_ns = 120 * WEFT_NS_PER_S;
static const uint64_t progress_after_ns = 2 * WEFT_NS_PER_S;

/* CPU time of the machine, in the kernel's ticks. */
struct ticks {
    unsigned long long busy;
    unsigned long long all;
    unsigned long long stolen; /* time stolen by the host of a virtual machine */
};

struct counts {
    uint64_t retransmitted;
    uint64_t kernel_drops;
};

struct run {
    const struct weft_perf_job *job;
    struct weft_perf_fleet fleet;
    struct weft_perf_result *result;
    struct counts before; /* in the warm-up */
    uint64_t began_ns;
    uint64_t shown_ns;
    struct weft_steal_monitor *monitor; /* NULL: the processors are not watched */
    bool progress;
};

static struct ticks ticks_now(void)
{
    unsigned long long t[8] = {0}; /* user, nice, system, idle, iowait, irq, softirq, steal */
    FILE *file = fopen("/proc/stat", "r");
    if (file != NULL) {
        if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) != 8) {
            memset(t, 0, sizeof(t));
        }
        (void)fclose(file);
    }
    unsigned long long idle = t[3] + t[4];
    unsigned long long busy = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
    return (struct ticks){.busy = busy, .all = busy + idle, .stolen = t[7]};
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Of all participants, the warm-up included. */
static struct counts counts_of(const struct run *run)
{
    struct counts sum = {0};
    for (uint32_t i = 0; i < run->job->plan->participants; i++) {
        sum.retransmitted += run->fleet.shared->agents[i].retransmitted;
        sum.kernel_drops += run->fleet.shared->agents[i].kernel_drops;
    }
    return sum;
}

static void keep_delivered(struct run *run, uint32_t count)
{
    struct weft_perf_result *result = run->result;
    double sum = 0;
    for (uint32_t i = 0; i < run->job->plan->flow_count; i++) {
        const struct weft_perf_flow_note *flow = &run->fleet.shared->flows[i];
        double delivered = flow->chunks > 0 ? (double)flow->received / flow->chunks : 0;
        sum += delivered;
        result->delivered_min =
            delivered < result->delivered_min ? delivered : result->delivered_min;
        result->delivered_bytes += flow->bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        result->each[result->rounds + i].delivered = sum / run->job->plan->flow_count;
    }
}

static void keep_times(struct run *run, uint64_t go_ns)
{
    struct weft_perf_result *result = run->result;
    const struct weft_perf_plan *plan = run->job->plan;
    uint64_t *flow_ns = result->flow_ns + (size_t)result->rounds * plan->flow_count;
    uint64_t last_ns = go_ns;
    uint64_t started_ns = go_ns;
    bool own_start = plan->parallel < plan->flow_count;
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        const struct weft_perf_flow_note *flow = &run->fleet.shared->flows[i];
        flow_ns[i] = flow->done_ns - (own_start ? flow->started_ns : go_ns);
        last_ns = weft_max_u64(last_ns, flow->done_ns);
        started_ns = weft_max_u64(started_ns, flow->started_ns);
    }
    result->each[result->rounds].ns = last_ns - go_ns;
    result->each[result->rounds].go_ns = go_ns;
    result->elapsed_ns += last_ns - go_ns;
    result->each[result->rounds].lag_ns = own_start ? 0 : started_ns - go_ns;
}

static void keep_trips(struct run *run, uint32_t count)
{
    struct weft_perf_result *result = run->result;
    for (uint32_t i = 0; i < count; i++) {
        result->each[result->rounds + i].ns = run->fleet.shared->trip_ns[i];
        result->elapsed_ns += run->fleet.shared->trip_ns[i];
    }
}

static void keep_counters(struct run *run)
{
    struct counts now = counts_of(run);
    run->result->retransmitted = now.retransmitted - run->before.retransmitted;
    run->result->kernel_drops = now.kernel_drops - run->before.kernel_drops;
}

static void keep(struct run *run, uint32_t count, uint64_t go_ns)
{
    keep_delivered(run, count);
    if (weft_perf_is_pingpong(run->job->plan)) {
        keep_trips(run, count);
    } else {
        keep_times(run, go_ns);
    }
    run->result->rounds += count;
    keep_counters(run);
    if (run->monitor != NULL) {
        weft_steal_monitor_read(run->monitor);
    }
}

/* As within a participant: one with another congestion control than requested is reported for
 * all. */
static void keep_cc(struct run *run, const struct weft_perf_agent_note *note)
{
    const char *asked = run->job->tcp_cc;
    if (run->result->cc[0] == '\0' || (asked != NULL && strcmp(note->cc, asked) != 0)) {
        memcpy(run->result->cc, note->cc, sizeof(run->result->cc));
    }
}

/* Copy the participants' notes at the end, before they are unmapped. */
static void keep_notes(struct run *run)
{
    struct weft_perf_result *result = run->result;
    for (uint32_t i = 0; i < run->job->plan->participants; i++) {
        const struct weft_perf_agent_note *note = &run->fleet.shared->agents[i];
        result->cpu_ns += note->cpu_ns;
        result->wire_bytes = weft_max_u64(result->wire_bytes, note->wire_bytes);
        result->rto_us = (uint32_t)weft_max_u64(result->rto_us, note->rto_us);
        if (note->wire_bytes > 0) {
            result->packet_bytes = note->packet_bytes;
            keep_cc(run, note);
        }
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void show(struct run *run)
{
    uint64_t now_ns = weft_clock_now_ns();
    if (run->progress && now_ns - run->began_ns > progress_after_ns &&
        now_ns - run->shown_ns > WEFT_NS_PER_S / 4) {
        fprintf(stderr, "\rround %u of %u", run->result->rounds, run->job->rounds);
        run->shown_ns = now_ns;
    }
}

static void rest(const struct run *run)
{
    const struct timespec gap = {.tv_sec = run->job->gap_ms / 1000,
                                 .tv_nsec = run->job->gap_ms % 1000 * (long)WEFT_NS_PER_MS};
    (void)nanosleep(&gap, NULL);
}

/* Wait for that event from all participants. False: it did not arrive, and the result has the
 * reason. */
static bool hear(struct run *run, const char *event, uint64_t until_ns)
{
    enum weft_perf_heard heard = weft_perf_fleet_recv(&run->fleet, event, until_ns);
    run->result->dnf = heard == WEFT_PERF_TOO_LONG;
    run->result->interrupted = heard == WEFT_PERF_INTERRUPTED;
    return heard == WEFT_PERF_ALL;
}

/* Owns: takes the message. */
static bool ask(struct run *run, cJSON *message, const char *answer)
{
    weft_perf_fleet_say(&run->fleet, message);
    return hear(run, answer, weft_clock_now_ns() + prepare_ns);
}

/* Collect the counters of all rounds so far: a TCP sender is done when its bytes are in the
 * kernel's buffer, and lost ones are retransmitted after that. */
static bool count_all(struct run *run)
{
    rest(run);
    return ask(run, weft_channel_event("count"), "counted");
}

/* Run rounds [first, first + count), timed or not. False: the run ends. */
static bool do_rounds(struct run *run, uint32_t first, uint32_t count, bool timed)
{
    cJSON *prepare = weft_channel_event("prepare");
    cJSON_AddNumberToObject(prepare, "round", first);
    cJSON_AddNumberToObject(prepare, "count", count);
    cJSON_AddNumberToObject(prepare, "timed", timed);
    rest(run);
    if (!ask(run, prepare, "ready")) {
        return false;
    }
    uint64_t go_ns = weft_perf_shared_go(run->fleet.shared);
    if (!hear(run, "through", go_ns + run->job->round_s * WEFT_NS_PER_S)) {
        return false;
    }
    const struct weft_perf_round *rounds = &run->result->each[run->result->rounds];
    if (timed) {
        keep(run, count, go_ns);
        show(run);
    }
    weft_perf_live_rounds(run->job->live, timed ? rounds : NULL, count,
                          run->result->delivered_bytes);
    return true;
}

static void do_all(struct run *run)
{
    const struct weft_perf_job *job = run->job;
    uint32_t batch = weft_perf_is_pingpong(job->plan) ? TRIPS : 1;
    bool good = ask(run, weft_channel_event("connect"), "connected");
    for (uint32_t round = 0; good && round < job->warmup; round += batch) {
        uint32_t count = (uint32_t)weft_min_u64(batch, job->warmup - round);
        good = do_rounds(run, round, count, false);
    }
    good = good && count_all(run);
    run->before = counts_of(run);
    struct ticks before = ticks_now();
    for (uint32_t round = 0; good && round < job->rounds; round += batch) {
        uint32_t count = (uint32_t)weft_min_u64(batch, job->rounds - round);
        good = do_rounds(run, job->warmup + round, count, true);
    }
    struct ticks after = ticks_now();
    if (good && count_all(run)) {
        keep_counters(run);
    }
    if (after.all > before.all) {
        run->result->machine_busy =
            (double)(after.busy - before.busy) / (double)(after.all - before.all);
        run->result->machine_cpu_s =
            (double)(after.busy - before.busy) / (double)sysconf(_SC_CLK_TCK);
        run->result->machine_stolen =
            (double)(after.stolen - before.stolen) / (double)(after.all - before.all);
    }
    atomic_store(&run->fleet.shared->stopping, !good);
}

/* Every round is watched for the same time from its go signal: if long rounds were watched for
 * longer, they would be excluded more often. */
static void judge_rounds(struct run *run)
{
    struct weft_perf_result *result = run->result;
    double ideal_ms = weft_perf_ideal_ms(run->job, result);
    if (run->monitor == NULL || weft_perf_is_pingpong(run->job->plan) || !(ideal_ms > 0)) {
        return;
    }
    weft_steal_monitor_read(run->monitor);
    result->window_ns = (uint64_t)(ideal_ms * 1.25e6);
    for (uint32_t i = 0; i < result->rounds; i++) {
        struct weft_perf_round *round = &result->each[i];
        round->undisturbed = weft_steal_monitor_undisturbed(run->monitor, round->go_ns,
                                                            round->go_ns + result->window_ns);
    }
}

static bool result_new(const struct weft_perf_job *job, struct weft_perf_result *result_p)
{
    size_t flows = weft_perf_is_pingpong(job->plan) ? 1 : job->plan->flow_count;
    *result_p = (struct weft_perf_result){.delivered_min = 1};
    result_p->each = calloc(job->rounds, sizeof(*result_p->each));
    result_p->flow_ns = calloc(job->rounds * flows, sizeof(*result_p->flow_ns));
    return result_p->each != NULL && result_p->flow_ns != NULL;
}

void weft_perf_result_fini(struct weft_perf_result *result)
{
    free(result->each);
    free(result->flow_ns);
}

bool weft_perf_run(const struct weft_perf_job *job, const struct weft_security *security,
                   bool progress, struct weft_perf_result *result_p, struct weft_error *error)
{
    struct run run = {
        .job = job, .result = result_p, .progress = progress, .began_ns = weft_clock_now_ns()};
    if (!result_new(job, result_p)) {
        return weft_perf_fail(error, "no memory for %u rounds", job->rounds);
    }
    bool started = weft_perf_fleet_start(job, security, &run.fleet);
    if (started) {
        weft_perf_live_see(job->live, run.fleet.shared);
        run.monitor = weft_perf_is_pingpong(job->plan) ? NULL : weft_steal_monitor_new();
        do_all(&run);
        keep_notes(&run);
        judge_rounds(&run);
        weft_perf_live_see(job->live, NULL);
    }
    result_p->interrupted = result_p->interrupted || weft_stop_requested();
    bool good = weft_perf_fleet_end(&run.fleet) && (started || result_p->interrupted);
    if (run.shown_ns > 0) {
        fprintf(stderr, "\r%40s\r", "");
    }
    *error = run.fleet.error;
    weft_steal_monitor_free(run.monitor);
    return good;
}

/* The number of messages of a round in the busiest direction of a host's link. Messages between
 * participants on one host (named twice by --hosts) cross no link. */
static uint32_t busiest(const struct weft_perf_job *job)
{
    static uint32_t ways[WEFT_PERF_PARTICIPANTS_MAX][2]; /* of the first participant on the host */
    const uint32_t *hosts = job->layout->hosts;
    uint32_t most = 0;
    memset(ways, 0, sizeof(ways));
    for (uint32_t i = 0; i < job->plan->flow_count; i++) {
        const struct weft_perf_pair *flow = &job->plan->flows[i];
        uint32_t ends[2] = {0, 0};
        if (hosts[flow->from] == hosts[flow->to]) {
            continue;
        }
        while (hosts[ends[0]] != hosts[flow->from]) {
            ends[0]++;
        }
        while (hosts[ends[1]] != hosts[flow->to]) {
            ends[1]++;
        }
        most = (uint32_t)weft_max_u64(most, ++ways[ends[0]][0]);
        most = (uint32_t)weft_max_u64(most, ++ways[ends[1]][1]);
    }
    return weft_perf_is_pingpong(job->plan) ? 2 * most : most; /* one after the other */
}

double weft_perf_ideal_ms(const struct weft_perf_job *job, const struct weft_perf_result *result)
{
    const struct weft_lab_info *network = &job->layout->network;
    uint32_t messages = network->rate_bps != 0 && !network->uneven ? busiest(job) : 0;
    if (messages == 0 || result->wire_bytes == 0) {
        return 0;
    }
    double bits = 8.0 * messages * (double)result->wire_bytes;
    return bits / (double)network->rate_bps * 1e3 + (double)network->base_rtt_ns / 1e6;
}
