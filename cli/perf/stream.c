/* `weft perf stream`: goodput of one flow of float vectors, over loopback or from host to host of a
 * lab.
 *
 *   weft     the endpoint over weft_udp: reliable (bound 0), ADD sink
 *   udp-raw  a bare GSO+GRO program with the same packets and the same add: the upper limit
 *   tcp-raw  kernel TCP; the receiver adds floats in the same way
 *
 * Each has two threads, sender and receiver. Goodput counts only floats added at the receiver; the
 * formulas are in bench/METRICS.md. In a round each flow is measured once, one after the other, so
 * a load peak of the machine affects all of them alike, and the ratios within a round are more
 * reliable than the absolute figures. Each measurement opens its own sockets; after it the
 * accumulator is compared with the expected sum. */
#define _GNU_SOURCE // CPU_SET
#include "cli/options.h"
#include "cli/perf/report.h"
#include "cli/perf/stream.h"
#include "cli/verbs.h"
#include "io/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PACKET_BYTES_MIN = 256,
    PACKET_BYTES_MAX = 65000,
    MESSAGE_BYTES_MAX = 64000000,
    MESSAGES_MAX = 1000000, /* sums of small whole numbers stay exact */
    CHUNKS_MAX = 262144,
    WARMUP_BYTES = 8000000, /* enough to leave slow start */
};

enum { WEFT, UDP_RAW, TCP_RAW, ALL };

static const char *const transports[] = {"weft", "udp-raw", "tcp-raw", "all", NULL};
static const char *const securities[] = {"none", "auth", "seal", "all", NULL};

struct options {
    uint32_t transport;
    uint32_t security; /* enum weft_wire_mode or ALL; of weft alone */
    uint32_t packet_bytes;
    uint32_t message_bytes;
    uint64_t bytes;
    uint32_t rounds;
    uint32_t busy_poll_us;
    int cpus[2];
    const char *lab;
    const char *hosts;
    struct weft_perf_layout layout;
    bool json;
    bool verbose;
};

/* ---- shared by the flows --------------------------------------------------------------------- */

struct weft_stream_mark weft_stream_mark(void)
{
    return (struct weft_stream_mark){.at_ns = weft_clock_now_ns(),
                                     .cpu_ns = weft_clock_cpu_ns()};
}

void weft_stream_pin(int cpu)
{
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
        (void)sched_setaffinity(0, sizeof(set), &set);
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static bool sum_is_right(const struct weft_stream_job *job)
{
    float messages = (float)(job->warmup_messages + job->messages);
    for (uint32_t i = 0; i < job->message_floats; i++) {
        if (job->accumulator[i] != messages * job->vector[i]) {
            return false;
        }
    }
    return true;
}

static bool measure(struct weft_perf_flow *flow, weft_stream_run *run,
                    const struct weft_stream_job *job, uint32_t round, bool verbose)
{
    struct weft_error error = {.text = ""};
    struct weft_stream_result result = {0};
    memset(job->accumulator, 0, job->message_floats * sizeof(float));
    if (!run(job, &result, &error)) {
        fprintf(stderr, "weft perf stream: %s: %s\n", flow->name, error.text);
        return false;
    }
    if (result.lost == 0 && !sum_is_right(job)) {
        fprintf(stderr, "weft perf stream: %s: the accumulator holds a wrong sum\n", flow->name);
        return false;
    }
    double bytes = (double)job->messages * (double)job->message_floats * sizeof(float);
    struct weft_perf_sample *sample = &flow->samples[round];
    *sample = (struct weft_perf_sample){
        .goodput_gbps = 8.0 * bytes / (double)(result.end.at_ns - result.start.at_ns),
        .cpu_s = (double)(result.end.cpu_ns - result.start.cpu_ns) / 1e9,
        .retransmitted = result.retransmitted,
        .lost = result.lost,
    };
    if (verbose) {
        fprintf(stderr, "round %u: %-10s %6.2f Gbit/s, %.3f s of CPU time, %s\n", round + 1,
                flow->name, sample->goodput_gbps, sample->cpu_s, result.note);
    }
    return true;
}

static void vector_fill(float *vector, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        vector[i] = (float)(i % 7) - 3.0f;
    }
}

/* The flows that can be measured; weft is first, in each mode. */
static const struct kind {
    const char *name;
    uint32_t transport;
    enum weft_wire_mode security;
    weft_stream_run *run;
} kinds[WEFT_PERF_FLOWS_MAX] = {
    {"weft none", WEFT, WEFT_MODE_NONE, weft_stream_weft},
    {"weft auth", WEFT, WEFT_MODE_AUTH, weft_stream_weft},
    {"weft seal", WEFT, WEFT_MODE_SEAL, weft_stream_weft},
    {"udp-raw", UDP_RAW, WEFT_MODE_NONE, weft_stream_udp_raw},
    {"tcp-raw", TCP_RAW, WEFT_MODE_NONE, weft_stream_tcp_raw},
};

struct plan {
    struct weft_stream_job job;
    struct weft_perf_flow flows[WEFT_PERF_FLOWS_MAX];
    const struct kind *kinds[WEFT_PERF_FLOWS_MAX]; /* of the flows */
    uint32_t flow_count;
};

static bool measure_all(struct plan *plan, const struct options *options)
{
    struct weft_stream_job *job = &plan->job;
    float *vector = calloc(job->message_floats, sizeof(float));
    job->accumulator = calloc(job->message_floats, sizeof(float));
    bool good = vector != NULL && job->accumulator != NULL;
    if (good) {
        vector_fill(vector, job->message_floats);
    } else {
        fprintf(stderr, "weft perf stream: out of memory\n");
    }
    job->vector = vector;
    weft_stream_pin(job->cpus[1]); /* this thread is the receiver */
    for (uint32_t round = 0; good && round < options->rounds; round++) {
        for (uint32_t i = 0; good && i < plan->flow_count; i++) {
            job->security = plan->kinds[i]->security;
            good = measure(&plan->flows[i], plan->kinds[i]->run, job, round, options->verbose);
        }
    }
    free(job->accumulator);
    free(vector);
    return good;
}

/* ---- planning -------------------------------------------------------------------------------- */

static bool chosen(uint32_t choice, uint32_t one)
{
    return choice == one || choice == ALL;
}

static void plan_flows(struct plan *plan, const struct options *options)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(kinds); i++) {
        const struct kind *kind = &kinds[i];
        if (chosen(options->transport, kind->transport) &&
            (kind->transport != WEFT || chosen(options->security, kind->security))) {
            plan->kinds[plan->flow_count] = kind;
            plan->flows[plan->flow_count++] =
                (struct weft_perf_flow){.name = kind->name,
                                        .transport = transports[kind->transport],
                                        .security = securities[kind->security]};
        }
    }
}

/* Equal messages of whole floats, together at least the requested number of bytes. */
static void plan_sizes(struct plan *plan, const struct options *options)
{
    struct weft_stream_job *job = &plan->job;
    uint64_t messages = weft_div_ceil_u64(options->bytes, options->message_bytes);
    uint64_t message_bytes = weft_div_ceil_u64(options->bytes, messages);
    job->messages = (uint32_t)weft_min_u64(messages, UINT32_MAX);
    job->message_floats = (uint32_t)weft_div_ceil_u64(message_bytes, sizeof(float));
    /* For tiny messages fewer bytes are used, or the warm-up would last longer than the rest. */
    uint64_t warmup_max = weft_max_u64(messages / 8, 64);
    job->warmup_messages =
        (uint32_t)weft_min_u64(weft_div_ceil_u64(WARMUP_BYTES, message_bytes), warmup_max);
    job->packet_bytes = options->packet_bytes;
    job->chunk_floats = weft_perf_chunk_bytes(options->packet_bytes) / (uint32_t)sizeof(float);
    job->busy_poll_us = options->busy_poll_us;
    job->layout = &options->layout;
    memcpy(job->cpus, options->cpus, sizeof(job->cpus));
}

static int plan_check(const struct weft_command *command, const struct options *options,
                      const struct plan *plan)
{
    if (plan->job.messages > MESSAGES_MAX) {
        return weft_options_usage(command,
                                  "--bytes %llu are %llu messages; at most %u, so raise "
                                  "--message-bytes or lower --bytes",
                                  (unsigned long long)options->bytes,
                                  (unsigned long long)plan->job.messages, MESSAGES_MAX);
    }
    uint32_t chunks = (plan->job.message_floats - 1) / plan->job.chunk_floats + 1;
    if (chunks > CHUNKS_MAX) {
        return weft_options_usage(command, "a message of %u bytes is %u chunks of %u bytes; at "
                                           "most %u, so lower --message-bytes or raise "
                                           "--packet-bytes",
                                  options->message_bytes, chunks, plan->job.chunk_floats * 4,
                                  CHUNKS_MAX);
    }
    if (options->security > WEFT_MODE_AUTH && !chosen(options->transport, WEFT)) {
        return weft_options_usage(command, "--security requires --transport weft; the raw programs "
                                           "have none");
    }
    return WEFT_OPTIONS_RUN;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* "S,R": two CPUs that this process may use. */
static const char *parse_cpus(const char *text, void *value)
{
    static const char allowed[] = "two CPUs that this process may use, as 0,1";
    int *cpus = value;
    int at = 0;
    cpu_set_t set;
    int sender;
    int receiver;
    if (sscanf(text, "%4d,%4d%n", &sender, &receiver, &at) != 2 || text[at] != '\0' || sender < 0 ||
        receiver < 0 || sender >= CPU_SETSIZE || receiver >= CPU_SETSIZE ||
        sched_getaffinity(0, sizeof(set), &set) != 0 || !CPU_ISSET((unsigned)sender, &set) ||
        !CPU_ISSET((unsigned)receiver, &set)) {
        return allowed;
    }
    cpus[0] = sender;
    cpus[1] = receiver;
    return NULL;
}

static int stream_run(const struct options *options, struct plan *plan)
{
    struct weft_perf_sample *samples =
        calloc((size_t)plan->flow_count * options->rounds, sizeof(*samples));
    if (samples == NULL) {
        return weft_cli_fail("perf stream", "out of memory");
    }
    for (uint32_t i = 0; i < plan->flow_count; i++) {
        plan->flows[i].samples = samples + (size_t)i * options->rounds;
    }
    bool good = measure_all(plan, options);
    if (good) {
        const struct weft_perf_report report = {
            .bytes = (uint64_t)plan->job.messages * plan->job.message_floats * sizeof(float),
            .message_bytes = plan->job.message_floats * (uint32_t)sizeof(float),
            .packet_bytes = options->packet_bytes,
            .rounds = options->rounds,
            .lab = options->lab,
            .flows = plan->flows,
            .flow_count = plan->flow_count,
        };
        if (options->json) {
            good = weft_perf_report_json(&report);
        } else {
            weft_perf_report_text(&report);
        }
    }
    free(samples);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_perf_stream(int argc, char **argv)
{
    struct options o = {.transport = WEFT,
                        .security = WEFT_MODE_AUTH,
                        .packet_bytes = 1472,
                        .message_bytes = 4000000,
                        .bytes = 1000000000,
                        .rounds = 7,
                        .cpus = {-1, -1}};
    const struct weft_option options[] = {
        {"transport", "NAME",
         "weft, udp-raw (bare GSO and GRO sockets), tcp-raw (kernel TCP), or\n"
         "all: each of them in every round, with ratios",
         WEFT_OPTION_CHOICE, &o.transport, .choices = transports},
        {"security", "MODE", "of weft's packets: none, auth, seal, or all three in turn",
         WEFT_OPTION_CHOICE, &o.security, .choices = securities},
        {"packet-bytes", "N",
         "UDP payload of a full packet, weft's headers included;\n"
         "TCP chooses for itself",
         WEFT_OPTION_U32, &o.packet_bytes, .min = PACKET_BYTES_MIN, .max = PACKET_BYTES_MAX},
        {"bytes", "N", "bytes of floats in one round, after a warm-up", WEFT_OPTION_U64, &o.bytes,
         .min = sizeof(float), .max = UINT64_C(1) << 40},
        {"message-bytes", "N", "largest message; a round is cut into equal ones", WEFT_OPTION_U32,
         &o.message_bytes, .min = sizeof(float), .max = MESSAGE_BYTES_MAX},
        {"rounds", "N", "measurements of each transport", WEFT_OPTION_U32, &o.rounds, .min = 1,
         .max = WEFT_PERF_STREAM_ROUNDS_MAX},
        {"cpus", "S,R", "pin the sender to CPU S and the receiver to CPU R", WEFT_OPTION_CUSTOM,
         &o.cpus, .fallback = "not pinned", .parse = parse_cpus},
        {"busy-poll-us", "N", "weft: busy-poll the socket for N us before sleeping; 0 = off",
         WEFT_OPTION_U32, &o.busy_poll_us, .max = 10000},
        {"lab", "NAME", "between two hosts of this lab (`weft lab up`)", WEFT_OPTION_STRING, &o.lab,
         .fallback = "loopback"},
        {"hosts", "LIST", "the receiver's and the sender's host", WEFT_OPTION_STRING, &o.hosts,
         .fallback = "0,1"},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &o.json},
        {"verbose", NULL, "print a line for each measurement on standard error", WEFT_OPTION_FLAG,
         .value = &o.verbose},
        {0},
    };
    const struct weft_command command = {
        .name = "perf stream",
        .summary = "measure the goodput of one flow of float vectors",
        .description =
            "A sender and a receiver, two threads of this process, move vectors of floats over\n"
            "127.0.0.1, or from host to host of --lab; the receiver adds them up, and the sum is\n"
            "checked. goodput_gbps counts only floats added. cpu_s is the CPU time of both ends,\n"
            "including the kernel's work for them, in the timed part of a round. Both are medians\n"
            "over the rounds.\n"
            "With other load on the machine only the ratios of --transport all are comparable.",
        .example = "  weft perf stream --transport all --rounds 11\n"
                   "  weft perf stream --transport weft --packet-bytes 65000 --json",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (o.hosts != NULL && o.lab == NULL) {
        return weft_options_usage(&command, "--hosts requires --lab");
    }
    struct plan plan = {0};
    plan_flows(&plan, &o);
    plan_sizes(&plan, &o);
    status = plan_check(&command, &o, &plan);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    struct weft_error error = {.text = ""};
    if (!weft_perf_layout_find(o.lab, o.hosts, 2, &o.layout, &error)) {
        return weft_cli_fail("perf stream", "%s", error.text);
    }
    return stream_run(&o, &plan);
}
