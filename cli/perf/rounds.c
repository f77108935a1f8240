/* `weft perf pingpong, incast, outcast, alltoall, shuffle`: the patterns that consist of rounds. */
#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/perf/busy.h"
#include "cli/perf/live.h"
#include "cli/perf/outcome.h"
#include "cli/perf/run.h"
#include "cli/stop.h"
#include "cli/tcp_cc.h"
#include "cli/verbs.h"
#include "core/cc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ROUNDS_MAX = 1000000,
    MESSAGE_BYTES_MAX = 100000000,
    PACKET_BYTES_MIN = 256,
    PACKET_BYTES_MAX = 65000,
    CHUNKS_MAX = 262144,
};

/* Of all messages of a round. */
static const uint64_t MEMORY_BYTES_MAX = UINT64_C(4000000000);

struct pattern {
    enum weft_perf_pattern pattern;
    const char *name;
    const char *summary;
    const char *description;
    const char *example;
    uint32_t bytes; /* defaults */
    uint32_t rounds;
    uint32_t warmup;
    uint32_t gap_ms;
};

#define ROUND_WORDS                                                                                \
    "Every participant is a process with sockets of its own, on a host of --lab or on loopback;\n" \
    "connections are kept for all rounds. A round lasts from the go signal, at the same time\n"    \
    "for all, to the end of the last message at its receiver. Contents and masks are checked\n"    \
    "after each round. ideal is the time of a round in which every packet, with its headers,\n"    \
    "crosses the busiest link once without a gap. A round that does not complete within\n"         \
    "--timeout-s seconds ends the run, which is reported as DNF (did not finish)."

static const struct pattern patterns[] = {
    {.pattern = WEFT_PERF_PINGPONG,
     .name = "perf pingpong",
     .summary = "measure round trips of a message and its reply",
     .description =
         "One participant sends a message; the other replies with one of the same size as soon as\n"
         "it has received it. This is a round; it lasts from the send until the reply is complete.\n"
         "Contents are checked; connections are kept for all rounds. A round that does not complete\n"
         "within --timeout-s seconds ends the run, which is reported as DNF (did not finish).",
     .example = "  weft perf pingpong --bytes 64 --transport weft\n"
                "  weft perf pingpong --lab demo --transport tcp-raw --json",
     .bytes = 64,
     .rounds = 10000,
     .warmup = 200},
    {.pattern = WEFT_PERF_INCAST,
     .name = "perf incast",
     .summary = "measure many senders and one receiver, one message per sender and round",
     .description = ROUND_WORDS,
     .example = "  weft lab up demo --hosts 9 --rate 1gbit --buffer 450kb --loss 0.01\n"
                "  weft perf incast --lab demo --bound 0.10\n"
                "  weft perf incast --lab demo --transport tcp-raw --tcp-cc bbr --tcp-rto-min 5",
     .bytes = 250000,
     .rounds = 200,
     .warmup = 5,
     .gap_ms = 5},
    {.pattern = WEFT_PERF_OUTCAST,
     .name = "perf outcast",
     .summary = "measure one sender and many receivers, one message per receiver and round",
     .description = ROUND_WORDS,
     .example = "  weft perf outcast --lab demo --receivers 8 --bytes 1000000",
     .bytes = 250000,
     .rounds = 200,
     .warmup = 5,
     .gap_ms = 5},
    {.pattern = WEFT_PERF_ALLTOALL,
     .name = "perf alltoall",
     .summary = "measure rounds in which every host sends to every other host",
     .description = ROUND_WORDS,
     .example = "  weft perf alltoall --lab demo --senders 8 --bytes 100000",
     .bytes = 100000,
     .rounds = 200,
     .warmup = 5,
     .gap_ms = 5},
    {.pattern = WEFT_PERF_SHUFFLE,
     .name = "perf shuffle",
     .summary = "measure rounds in which every mapper sends to every reducer",
     .description = "Every mapper sends a message to every reducer in each round, in an order\n"
                    "drawn anew, with at most --parallel of its messages in flight (Hadoop's\n"
                    "shuffle.parallelcopies, which has the same default).\n" ROUND_WORDS,
     .example = "  weft perf shuffle --lab demo --senders 4 --receivers 4 --bytes 1000000",
     .bytes = 250000,
     .rounds = 100,
     .warmup = 3,
     .gap_ms = 5},
};

static const char *const transport_names[] = {"weft", "tcp", "tcp-raw", "udp-raw", NULL};

static const struct weft_perf_agent_ops *const transports[] = {
    &weft_perf_agent_weft, &weft_perf_agent_tcp, &weft_perf_agent_tcp_raw,
    &weft_perf_agent_udp_raw};

struct options {
    struct weft_security security;
    struct weft_perf_job job;
    uint32_t transport;
    uint32_t senders;
    uint32_t receivers;
    uint32_t parallel;
    const char *lab;
    const char *hosts;
    const char *per_round;
    struct weft_metrics_options metrics;
    bool json;
};

/* ---- options --------------------------------------------------------------------------------- */

static const char *parse_cc(const char *text, void *value)
{
    if (weft_cc_find(text) == NULL) {
        return "dctcp, delay or reno-fair";
    }
    *(const char **)value = text;
    return NULL;
}

static int check_transport(const struct weft_command *command, const struct options *o)
{
    const struct weft_perf_job *job = &o->job;
    const char *name = job->transport->name;
    bool weft = job->transport == &weft_perf_agent_weft;
    if (!job->transport->bounded && (job->bound_ppm > 0 || job->deadline_ms > 0)) {
        return weft_options_usage(command,
                                  "--bound and --deadline require --transport weft or "
                                  "tcp; %s has neither",
                                  name);
    }
    if (job->transport != &weft_perf_agent_tcp_raw && job->drop_ppm > 0) {
        return weft_options_usage(command, "--drop-at-sender requires --transport tcp-raw");
    }
    if (!job->transport->kernel_tcp && (job->tcp_cc != NULL || job->tcp_rto_min_ms > 0)) {
        return weft_options_usage(command, "--tcp-cc and --tcp-rto-min require --transport tcp or "
                                           "tcp-raw");
    }
    if (!weft && job->trace != NULL) {
        return weft_options_usage(command, "--trace requires --transport weft");
    }
    if (!weft && job->cc != NULL) {
        return weft_options_usage(command, "--cc requires --transport weft; the kernel's TCP has "
                                           "--tcp-cc");
    }
    if (!job->transport->secure && o->security.mode == WEFT_MODE_SEAL) {
        return weft_options_usage(command,
                                  "%s has no security: --security requires --transport "
                                  "weft or tcp",
                                  name);
    }
    if (job->transport == &weft_perf_agent_udp_raw && job->packet_bytes < 512) {
        return weft_options_usage(command, "udp-raw requires --packet-bytes of at least 512");
    }
    return WEFT_OPTIONS_RUN;
}

static int check_sizes(const struct weft_command *command, const struct options *o,
                       const struct weft_perf_plan *plan)
{
    const struct weft_perf_job *job = &o->job;
    if (job->bytes % 4 != 0) {
        return weft_options_usage(command, "--bytes %u: a message is whole floats, a multiple of 4 "
                                           "bytes",
                                  job->bytes);
    }
    uint32_t chunk_bytes = weft_perf_chunk_bytes(job->packet_bytes);
    if (job->bytes / chunk_bytes >= CHUNKS_MAX) {
        return weft_options_usage(command,
                                  "a message of %u bytes is more than %u packets of %u "
                                  "bytes: raise --packet-bytes",
                                  job->bytes, CHUNKS_MAX, job->packet_bytes);
    }
    if ((uint64_t)plan->flow_count * job->bytes > MEMORY_BYTES_MAX) {
        return weft_options_usage(command, "%u messages of %u bytes a round are more than 4 GB",
                                  plan->flow_count, job->bytes);
    }
    if (o->hosts != NULL && o->lab == NULL) {
        return weft_options_usage(command, "--hosts requires --lab");
    }
    return WEFT_OPTIONS_RUN;
}

/* ---- running --------------------------------------------------------------------------------- */

static int report(const struct pattern *pattern, const struct options *o,
                  const struct weft_perf_result *result)
{
    struct weft_perf_outcome outcome;
    if (!weft_perf_outcome_make(&o->job, result, o->senders, o->receivers, &outcome)) {
        return weft_cli_fail(pattern->name, "out of memory");
    }
    bool good = !result->interrupted;
    if (o->json) {
        good = weft_perf_outcome_json(&outcome) && good;
    } else {
        weft_perf_outcome_text(&outcome);
    }
    if (o->per_round != NULL) {
        good = weft_perf_outcome_rounds(&outcome, o->per_round) && good;
    }
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* While this file is open the kernel does not halt idle processors (PM QoS; cyclictest does the
 * same): the host gives a halted virtual processor to another machine, and returns it only after
 * that one's time slice. -1: this host has no such file, so they halt. */
static int processors_keep(void)
{
    int32_t latency_us = 0;
    int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, &latency_us, sizeof(latency_us)) != sizeof(latency_us)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Run the rounds together with the busy processes. */
static int measure(const struct pattern *pattern, const struct options *o)
{
    struct weft_perf_busy busy;
    struct weft_perf_result result;
    struct weft_error error = {.text = ""};
    bool progress = isatty(STDERR_FILENO) == 1;
    int status = WEFT_EXIT_FAILED;
    if (!weft_perf_busy_start(&busy, pattern->name, o->job.busy)) {
        return status;
    }
    bool good = weft_perf_run(&o->job, &o->security, progress, &result, &error);
    bool were_busy = weft_perf_busy_end(&busy);
    if (!good) {
        (void)weft_cli_fail(pattern->name, "%s", error.text);
    } else if (result.interrupted && result.rounds == 0) {
        (void)weft_cli_fail(pattern->name, "interrupted before the first round was measured");
    } else if (were_busy) {
        status = report(pattern, o, &result);
    }
    weft_perf_result_fini(&result);
    return status;
}

static int run(const struct pattern *pattern, struct options *o)
{
    struct weft_perf_layout layout;
    struct weft_error error = {.text = ""};
    if (!weft_perf_layout_find(o->lab, o->hosts, o->job.plan->participants, &layout, &error)) {
        return weft_cli_fail(pattern->name, "%s", error.text);
    }
    o->job.layout = &layout;
    o->job.mode = o->job.transport->secure ? o->security.mode : WEFT_MODE_NONE;
    o->security.mode = o->job.mode;
    if (o->job.realtime &&
        sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}) != 0) {
        return weft_cli_fail(pattern->name, "--realtime: %s; run as root, or without it",
                             strerror(errno));
    }
    int kept = o->job.realtime ? processors_keep() : -1;
    o->job.awake = kept >= 0;
    weft_stop_install();
    weft_stop_ignore_pipes();
    int status = measure(pattern, o);
    if (kept >= 0) {
        (void)close(kept);
    }
    return status;
}

/* Start the metrics thread before --realtime takes effect: it must not have priority over the
 * participants. */
static int run_watched(const struct pattern *pattern, struct options *o)
{
    struct weft_perf_live live;
    struct weft_error error;
    if (weft_perf_live_start(&live, &o->metrics, &o->job, &error) != WEFT_OK) {
        return weft_cli_fail(pattern->name, "%s", error.text);
    }
    if (live.metrics.http != NULL) {
        fprintf(stderr, "metrics: %s\n", live.metrics.url);
    }
    o->job.live = &live;
    int status = run(pattern, o);
    weft_perf_live_stop(&live);
    return status;
}

static int plan_and_run(const struct weft_command *command, const struct pattern *pattern,
                        struct options *o)
{
    static struct weft_perf_plan plan;
    if (pattern->pattern == WEFT_PERF_ALLTOALL && o->senders < 2) {
        return weft_options_usage(command, "--senders 1: alltoall requires at least two");
    }
    if (!weft_perf_plan_make(pattern->pattern, o->senders, o->receivers,
                             pattern->pattern == WEFT_PERF_SHUFFLE ? o->parallel : 0, &plan)) {
        return weft_options_usage(command, "too many: at most %u participants and %u messages a "
                                           "round",
                                  WEFT_PERF_PARTICIPANTS_MAX, WEFT_PERF_PAIRS_MAX);
    }
    o->job.plan = &plan;
    o->job.transport = transports[o->transport];
    int status = check_transport(command, o);
    if (status == WEFT_OPTIONS_RUN) {
        status = check_sizes(command, o, &plan);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_cli_tcp_cc(pattern->name, "tcp-cc", &o->job.tcp_cc);
    }
    return status == WEFT_OPTIONS_RUN ? run_watched(pattern, o) : status;
}

/* Releases until 0.2.0 had --senders for the receivers of outcast. */
static bool names_senders(int argc, char **argv)
{
    static const char name[] = "--senders";
    for (int i = 1; i < argc; i++) {
        const char after = strncmp(argv[i], name, strlen(name)) == 0 ? argv[i][strlen(name)] : '-';
        if (after == '\0' || after == '=') {
            return true;
        }
    }
    return false;
}

int weft_perf_rounds(int argc, char **argv)
{
    enum weft_perf_pattern which = WEFT_PERF_PINGPONG;
    while (strcmp(argv[0], weft_perf_pattern_name(which)) != 0) {
        which++;
    }
    const struct pattern *pattern = &patterns[which];
    struct options o = {.security = WEFT_SECURITY_DEFAULTS,
                        .job = {.bytes = pattern->bytes,
                                .rounds = pattern->rounds,
                                .warmup = pattern->warmup,
                                .gap_ms = pattern->gap_ms,
                                .packet_bytes = 1472,
                                .idle_ms = 100,
                                .round_s = 60,
                                .seed = 1},
                        .senders = which == WEFT_PERF_OUTCAST   ? 1
                                   : which == WEFT_PERF_SHUFFLE ? 4
                                                                : 8,
                        .receivers = which == WEFT_PERF_OUTCAST ? 8 : 4,
                        .parallel = 5};
    const struct weft_option options[] = {
        {"receivers", "R", "reducers; --senders sets the mappers", WEFT_OPTION_U32, &o.receivers,
         .min = 1, .max = 256},
        {"parallel", "K", "messages of one mapper in flight", WEFT_OPTION_U32, &o.parallel,
         .min = 1, .max = 256},
        which == WEFT_PERF_OUTCAST
            ? (struct weft_option){"receivers", "R", "receivers", WEFT_OPTION_U32, &o.receivers,
                                   .min = 1, .max = 256}
            : (struct weft_option){"senders", "W",
                                   which == WEFT_PERF_ALLTOALL  ? "participants"
                                   : which == WEFT_PERF_SHUFFLE ? "mappers"
                                                                : "senders",
                                   WEFT_OPTION_U32, &o.senders, .min = 1, .max = 256},
        {"bytes", "N", "bytes of a message, a multiple of 4", WEFT_OPTION_U32, &o.job.bytes,
         .min = 4, .max = MESSAGE_BYTES_MAX},
        {"rounds", "N", "measured rounds",
         WEFT_OPTION_U32, &o.job.rounds, .min = 1, .max = ROUNDS_MAX},
        {"warmup", "N", "rounds before these, which are not measured", WEFT_OPTION_U32, &o.job.warmup,
         .max = ROUNDS_MAX},
        {"gap", "MS", "pause between rounds", WEFT_OPTION_U32, &o.job.gap_ms, .max = 10000},
        {"transport", "NAME",
         "weft; tcp: the same messages over kernel TCP; tcp-raw, udp-raw:\n"
         "programs that use plain sockets",
         WEFT_OPTION_CHOICE, &o.transport, .choices = transport_names},
        {"bound", "F", "fraction of a message that may be missing", WEFT_OPTION_PPM,
         .value = &o.job.bound_ppm},
        {"deadline", "MS", "close a message after MS milliseconds, complete or not",
         WEFT_OPTION_U32, &o.job.deadline_ms, .min = 1, .max = 60000, .fallback = "none"},
        {"cc", "NAME", "weft's congestion control: dctcp, delay or reno-fair", WEFT_OPTION_CUSTOM,
         &o.job.cc, .fallback = "dctcp", .parse = parse_cc},
        {"tcp-cc", "NAME", "TCP's congestion control: dctcp, or cubic, bbr, reno ... of the kernel",
         WEFT_OPTION_STRING, &o.job.tcp_cc, .fallback = "the kernel's"},
        {"tcp-rto-min", "MS", "minimum retransmission timeout of TCP", WEFT_OPTION_U32,
         &o.job.tcp_rto_min_ms, .min = 1, .max = 10000, .fallback = "the kernel's, 200"},
        {"drop-at-sender", "F", "tcp-raw: omit this fraction of a message's chunks, at random",
         WEFT_OPTION_PPM, .value = &o.job.drop_ppm},
        WEFT_SECURITY_LAB_ROWS(&o.security),
        WEFT_METRICS_OPTIONS(&o.metrics),
        {"packet-bytes", "N", "UDP payload of a full packet; TCP chooses for itself",
         WEFT_OPTION_U32, &o.job.packet_bytes, .min = PACKET_BYTES_MIN, .max = PACKET_BYTES_MAX},
        {"busy-poll-us", "N", "weft, tcp: busy-poll the socket for N us before sleeping",
         WEFT_OPTION_U32, &o.job.busy_poll_us, .max = 10000},
        {"idle-ms", "N", "udp-raw: end a round after N ms without a packet",
         WEFT_OPTION_U32, &o.job.idle_ms, .min = 1, .max = 10000},
        {"seed", "N", "seed of --drop-at-sender and of the order of messages", WEFT_OPTION_U64,
         .value = &o.job.seed},
        {"timeout-s", "S",
         "end the run, as DNF (did not finish), if a round takes longer than S\n"
         "seconds",
         WEFT_OPTION_U32, &o.job.round_s, .min = 1, .max = 3600},
        {"lab", "NAME", "run on the hosts of this lab (`weft lab up`)", WEFT_OPTION_STRING, &o.lab,
         .fallback = "loopback"},
        {"hosts", "LIST", "hosts of the lab, such as 0,3-9, in participant order",
         WEFT_OPTION_STRING, &o.hosts, .fallback = "0, 1, 2, ..."},
        {"per-round", "FILE", "write the times of each round to FILE", WEFT_OPTION_STRING,
         .value = &o.per_round},
        {"realtime", NULL,
         "run the participants at real-time priority (SCHED_FIFO, requires root), so\n"
         "that other processes do not delay them, as if each host had its own CPUs;\n"
         "also keep idle CPUs out of sleep states during the run",
         WEFT_OPTION_FLAG, .value = &o.job.realtime},
        {"busy", "N", "CPU-bound processes during the run, at normal priority",
         WEFT_OPTION_U32, &o.job.busy, .max = WEFT_PERF_BUSY_MAX},
        {"trace", "FILE",
         "weft: each participant writes a trace of all packets, FILE.participant-N,\n"
         "for `weft trace`; at most 1 GB each. --per-round has the start of each round",
         WEFT_OPTION_STRING, .value = &o.job.trace},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &o.json},
        {0},
    };
    const struct weft_command command = {
        .name = pattern->name,
        .summary = pattern->summary,
        .description = pattern->description,
        .example = pattern->example,
        /* The first rows are for one pattern, or for all except pingpong. */
        .options = options + (which == WEFT_PERF_SHUFFLE ? 0 : which == WEFT_PERF_PINGPONG ? 3 : 2),
    };
    if (which == WEFT_PERF_OUTCAST && names_senders(argc, argv)) {
        return weft_options_usage(&command, "--senders: outcast has one sender; --receivers R sets "
                                            "the number of receivers");
    }
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_security_check(&command, &o.security);
    }
    return status == WEFT_OPTIONS_RUN ? plan_and_run(&command, pattern, &o) : status;
}
