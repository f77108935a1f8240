/* `weft sim swarm`: many seeds, each a whole cluster on virtual time with faults.
 *
 * Seeds run in child processes, so an assertion or a sanitizer's finding ends one seed and not the
 * run: the parent knows which seed the child was running, reports it, and starts another child with
 * the next seed. Child j of n takes seeds first + j, first + j + n, ...; results are combined in
 * the order of the seeds, so the trace hash does not depend on --jobs.
 */
#include "cli/options.h"
#include "cli/sim/live.h"
#include "cli/sim/tap.h"
#include "cli/verbs.h"

#include "base/assert.h"
#include "rpc/table_spec.h"
#include "sim/memory.h"
#include "sim/swarm.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A seed takes milliseconds. One that takes this long is considered hung, and reported as signal
 * 14. */
enum { JOBS_MAX = 64, FAILED_SHOWN_MAX = 1000, SEED_SECONDS_MAX = 120 };
static const uint64_t seeds_count_max = 10000000;

struct seeds {
    uint64_t first;
    uint64_t last; /* included */
};

struct job {
    pid_t pid;     /* 0 = not running */
    int fd;        /* results are read from here */
    uint64_t next; /* the seed whose result is expected next; beyond last = done */
};

/* Result of a seed, kept until all seeds are done. */
struct outcome {
    bool ok;
    uint64_t trace_hash;
};

struct swarm {
    struct seeds seeds;
    uint32_t jobs;
    bool json;
    bool verbose;
    uint32_t value_type; /* enum weft_value_type */
    bool via;
    bool replicas;
    struct job job[JOBS_MAX];
    struct outcome *outcomes;
    uint64_t done;
    uint64_t failed;
    uint64_t messages;
    uint64_t packets;
    struct weft_swarm_replicas replica_sums;
    bool broken; /* a child crashed after its last seed */
    struct weft_metrics_options metrics;
    struct weft_sim_live live;
};

static const char *parse_seeds(const char *text, void *value)
{
    static const char allowed[] = "A..B with A <= B, at most ten million seeds";
    struct seeds *seeds = value;
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return allowed;
    }
    errno = 0;
    seeds->first = strtoull(text, &end, 10);
    if (strncmp(end, "..", 2) != 0 || end[2] < '0' || end[2] > '9') {
        return allowed;
    }
    seeds->last = strtoull(end + 2, &end, 10);
    bool good = errno == 0 && *end == '\0' && seeds->first <= seeds->last &&
                seeds->last - seeds->first < seeds_count_max;
    return good ? NULL : allowed;
}

/* ---- the child ------------------------------------------------------------------------------- */

static uint64_t child_seed;

static void on_assert(const char *file, int line, const char *expression)
{
    fprintf(stderr, "seed %" PRIu64 ": assertion failed: %s:%d: %s\n", child_seed, file, line,
            expression);
    abort();
}

static const char *const value_types[] = {"float32", "bf16", "int8", NULL}; /* by number */

static void run_seed(const struct swarm *s, uint64_t seed, const struct weft_world_tap *tap,
                     struct weft_swarm_result *result_p)
{
    if (s->via && s->replicas) {
        weft_swarm_run_kills(seed, tap, result_p);
    } else if (s->via) {
        weft_swarm_run_via(seed, tap, result_p);
    } else if (s->replicas) {
        weft_swarm_run_replicas(seed, tap, result_p);
    } else if (s->value_type != WEFT_VALUE_FLOAT32) {
        weft_swarm_run_values(seed, (uint8_t)s->value_type, tap, result_p);
    } else {
        weft_swarm_run(seed, tap, result_p);
    }
}

/* End with exit, not _exit, because LeakSanitizer runs in exit. */
[[gnu::noreturn]] static void child_run(const struct swarm *s, uint64_t from, int fd)
{
    static struct weft_swarm_result result;
    weft_assert_set_handler(on_assert);
    for (uint64_t seed = from; seed <= s->seeds.last && seed >= from; seed += s->jobs) {
        child_seed = seed;
        alarm(SEED_SECONDS_MAX);
        run_seed(s, seed, NULL, &result);
        /* No signal handler returns here, so a write to the pipe is never partial. */
        if (write(fd, &result, sizeof(result)) != (ssize_t)sizeof(result)) {
            exit(WEFT_EXIT_FAILED);
        }
    }
    close(fd);
    exit(WEFT_EXIT_OK);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static bool job_start(struct swarm *s, struct job *job)
{
    int fds[2];
    fflush(NULL);
    if (pipe(fds) != 0) {
        return false;
    }
    job->pid = fork();
    if (job->pid < 0) {
        close(fds[0]);
        close(fds[1]);
        job->pid = 0;
        return false;
    }
    if (job->pid == 0) {
        close(fds[0]);
        child_run(s, job->next, fds[1]);
    }
    close(fds[1]);
    job->fd = fds[0];
    return true;
}

static void progress(const struct swarm *s)
{
    uint64_t count = s->seeds.last - s->seeds.first + 1;
    uint64_t tenth = count / 10;
    if (tenth > 0 && s->done % tenth == 0) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " failed\n", s->done, count,
                s->failed);
    }
}

static void add_replicas(struct weft_swarm_replicas *sums, const struct weft_swarm_replicas *more)
{
    sums->promotions += more->promotions;
    sums->refused += more->refused;
    sums->lost_some += more->lost_some;
    sums->lost_share_max =
        more->lost_share_max > sums->lost_share_max ? more->lost_share_max : sums->lost_share_max;
    sums->transfers += more->transfers;
    sums->holds += more->holds;
    sums->pushes_lost += more->pushes_lost;
    sums->replica_deaths += more->replica_deaths;
    sums->worker_deaths += more->worker_deaths;
    sums->aggregator_deaths += more->aggregator_deaths;
    sums->scheduler_deaths += more->scheduler_deaths;
}

static void take_result(struct swarm *s, struct job *job, const struct weft_swarm_result *result)
{
    FILE *out = s->json ? stderr : stdout;
    struct outcome *outcome = &s->outcomes[result->seed - s->seeds.first];
    *outcome = (struct outcome){result->ok, result->trace_hash};
    job->next = result->seed + s->jobs < result->seed ? UINT64_MAX : result->seed + s->jobs;
    s->done++;
    s->failed += !result->ok;
    s->messages += result->messages;
    s->packets += result->packets;
    add_replicas(&s->replica_sums, &result->replicas);
    weft_sim_live_note(&s->live, result->ok, result->packets);
    if (s->verbose) {
        fprintf(out,
                "seed %" PRIu64 ": %s, trace hash %016" PRIx64 ", %" PRIu64 " packets, %" PRIu64
                " events, closed at %" PRIu64 " ns\n%s",
                result->seed, result->ok ? "good" : "FAILED", result->trace_hash, result->packets,
                result->steps, result->virtual_ns, result->plan);
    }
    if (!result->ok) {
        fprintf(stderr,
                "seed %" PRIu64 " failed: %s\n  repeat: weft sim swarm --seeds %" PRIu64
                "..%" PRIu64 " %s%s --verbose\n",
                result->seed, result->failure, result->seed, result->seed,
                s->via && s->replicas ? "--via --replicas"
                : s->via              ? "--via"
                : s->replicas         ? "--replicas"
                                      : "--value-type ",
                s->via || s->replicas ? "" : value_types[s->value_type]);
    }
    progress(s);
}

/* A child has closed its pipe. If it has seeds left, the current one terminated it. */
static bool job_ended(struct swarm *s, struct job *job)
{
    int status = 0;
    close(job->fd);
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR) {
    }
    job->pid = 0;
    if (job->next > s->seeds.last) {
        if (status != 0) {
            fprintf(stderr,
                    "weft sim swarm: a process failed after its last seed (wait status %d)\n",
                    status);
            s->broken = true;
        }
        return true;
    }
    struct weft_swarm_result result = {.seed = job->next};
    snprintf(result.failure, sizeof(result.failure), "the process ended (%s %d)",
             WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    take_result(s, job, &result);
    return job->next > s->seeds.last || job_start(s, job);
}

/* Handle one result, or the end of the child. */
static bool job_read(struct swarm *s, struct job *job)
{
    static struct weft_swarm_result result;
    char *at = (char *)&result;
    size_t have = 0;
    while (have < sizeof(result)) {
        ssize_t count = read(job->fd, at + have, sizeof(result) - have);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return job_ended(s, job);
        }
        have += (size_t)count;
    }
    take_result(s, job, &result);
    return true;
}

static bool jobs_run(struct swarm *s)
{
    for (uint32_t j = 0; j < s->jobs; j++) {
        s->job[j].next = s->seeds.first + j;
        if (!job_start(s, &s->job[j])) {
            return false;
        }
    }
    for (;;) {
        struct pollfd polls[JOBS_MAX];
        struct job *jobs[JOBS_MAX];
        nfds_t count = 0;
        for (uint32_t j = 0; j < s->jobs; j++) {
            if (s->job[j].pid != 0) {
                polls[count] = (struct pollfd){.fd = s->job[j].fd, .events = POLLIN};
                jobs[count++] = &s->job[j];
            }
        }
        if (count == 0) {
            return true;
        }
        if (poll(polls, count, -1) < 0 && errno != EINTR) {
            return false;
        }
        for (nfds_t i = 0; i < count; i++) {
            if (polls[i].revents != 0 && !job_read(s, jobs[i])) {
                return false;
            }
        }
    }
}

static uint64_t combine(const struct swarm *s)
{
    uint64_t hash = WEFT_SWARM_COMBINE_INIT;
    for (uint64_t i = 0; i <= s->seeds.last - s->seeds.first; i++) {
        struct weft_swarm_result result = {.seed = s->seeds.first + i,
                                           .ok = s->outcomes[i].ok,
                                           .trace_hash = s->outcomes[i].trace_hash};
        hash = weft_swarm_combine(hash, &result);
    }
    return hash;
}

static void print_json(const struct swarm *s, uint64_t hash)
{
    const char *comma = "";
    uint64_t shown = 0;
    printf("{\"seeds\": %" PRIu64 ", \"failed\": [", s->done);
    for (uint64_t i = 0; i < s->done && shown < FAILED_SHOWN_MAX; i++) {
        if (!s->outcomes[i].ok) {
            printf("%s%" PRIu64, comma, s->seeds.first + i);
            comma = ", ";
            shown++;
        }
    }
    printf("], \"failed_count\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"packets\": %" PRIu64
           ", \"trace_hash\": \"%016" PRIx64 "\"",
           s->failed, s->messages, s->packets, hash);
    if (s->replicas) {
        const struct weft_swarm_replicas *r = &s->replica_sums;
        printf(", \"replicas\": {\"promotions\": %" PRIu64 ", \"promotions_with_loss\": %" PRIu64
               ", \"loss_share_max\": %.6f, \"pushes_lost\": %" PRIu64
               ", \"deaths_skipped\": %" PRIu64 ", \"transfers\": %" PRIu64 ", \"holds\": %" PRIu64
               ", \"replica_deaths\": %" PRIu64 ", \"worker_deaths\": %" PRIu64
               ", \"aggregator_deaths\": %" PRIu64 ", \"scheduler_deaths\": %" PRIu64 "}",
               r->promotions, r->lost_some, r->lost_share_max, r->pushes_lost, r->refused,
               r->transfers, r->holds, r->replica_deaths, r->worker_deaths, r->aggregator_deaths,
               r->scheduler_deaths);
    }
    printf("}\n");
}

static void print_replicas(const struct swarm *s)
{
    const struct weft_swarm_replicas *r = &s->replica_sums;
    printf("replicas: %" PRIu64 " promotions, %" PRIu64
           " of them lost acknowledged updates, at most %.3f of the bound; %" PRIu64
           " pushes lost; %" PRIu64 " transfers\n",
           r->promotions, r->lost_some, r->lost_share_max, r->pushes_lost, r->transfers);
    if (s->via) {
        printf("also died: %" PRIu64 " replicas, %" PRIu64 " workers, %" PRIu64
               " aggregators, %" PRIu64 " schedulers\n",
               r->replica_deaths, r->worker_deaths, r->aggregator_deaths, r->scheduler_deaths);
    }
}

static int swarm_run(struct swarm *s)
{
    uint64_t count = s->seeds.last - s->seeds.first + 1;
    s->jobs = s->jobs > count ? (uint32_t)count : s->jobs;
    s->outcomes = calloc(count, sizeof(*s->outcomes));
    if (s->outcomes == NULL) {
        return weft_cli_fail("sim swarm", "out of memory");
    }
    if (!weft_sim_live_start(&s->live, &s->metrics, count, "sim swarm")) {
        free(s->outcomes);
        return WEFT_EXIT_FAILED;
    }
    bool ran = jobs_run(s);
    weft_sim_live_stop(&s->live);
    if (!ran) {
        fprintf(stderr, "weft sim swarm: cannot start a process: %s\n", strerror(errno));
        free(s->outcomes);
        return WEFT_EXIT_FAILED;
    }
    uint64_t hash = combine(s);
    if (s->json) {
        print_json(s, hash);
    } else {
        printf("%" PRIu64 " seeds, %" PRIu64 " failed, %" PRIu64 " messages, %" PRIu64 " packets\n",
               s->done, s->failed, s->messages, s->packets);
        if (s->replicas) {
            print_replicas(s);
        }
        printf("trace hash %016" PRIx64 "\n", hash);
    }
    free(s->outcomes);
    return s->failed == 0 && !s->broken ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* The seed runs twice: here, for the files, and then in the usual way, for the report. */
static int swarm_run_tapped(struct swarm *s, struct weft_sim_tap *tap)
{
    static struct weft_swarm_result result;
    bool good = weft_sim_tap_open(tap);
    if (good) {
        run_seed(s, s->seeds.first, &tap->tap, &result);
    }
    good &= weft_sim_tap_close(tap);
    if (!good) {
        return WEFT_EXIT_FAILED;
    }
    return swarm_run(s);
}

static int verb_swarm(int argc, char **argv)
{
    struct swarm swarm = {.seeds = {1, 100}, .jobs = 1};
    struct weft_sim_tap tap = {0};
    const struct weft_option options[] = {
        {"seeds", "A..B", "range of seeds to run, inclusive", WEFT_OPTION_CUSTOM, &swarm.seeds,
         .fallback = "1..100", .parse = parse_seeds},
        {"jobs", "N", "concurrent processes", WEFT_OPTION_U32, &swarm.jobs, .min = 1,
         .max = JOBS_MAX},
        {"value-type", "TYPE",
         "bf16: run each seed as a parameter server whose messages use bf16\n"
         "values, in one or both directions; int8: whose pushes use int8",
         WEFT_OPTION_CHOICE, .value = &swarm.value_type, .choices = value_types},
        {"via", NULL, "run each seed as a parameter server whose workers use one or two\n"
                      "aggregators per shard, which fail and restart", WEFT_OPTION_FLAG,
                      .value = &swarm.via},
        {"replicas", NULL, "run each seed as a parameter server whose shards have replicas;\n"
                           "servers and replicas fail, and replicas are promoted. With --via\n"
                           "workers also use aggregators, and workers, aggregators and schedulers\n"
                           "fail, too",
                           WEFT_OPTION_FLAG, .value = &swarm.replicas},
        {"verbose", NULL, "print the configuration drawn by each seed", WEFT_OPTION_FLAG,
         .value = &swarm.verbose},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG,
         .value = &swarm.json},
        WEFT_METRICS_OPTIONS(&swarm.metrics),
        WEFT_SIM_TAP_OPTIONS(&tap),
        {0},
    };
    const struct weft_command command = {
        .name = "sim swarm",
        .summary =
            "simulate a cluster with faults for each of many seeds and check its results",
        .description =
          "A seed determines hosts, links, faults and messages. After the fault phase the network\n"
          "heals, and every message must be closed within its loss bound. The last line is a hash\n"
          "of all events: the same seeds give the same hash on every machine and in every build.\n"
          "--replicas checks every promotion: the norm of the acknowledged updates that the\n"
          "promoted replica lacks is at most the seed's divergence bound, and no push is applied\n"
          "twice.\n"
          "Exit status 1 if a seed failed.",
        .example =
            "  weft sim swarm --seeds 1..1000 --jobs 2\n  weft sim swarm --seeds 57..57 --verbose",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if ((swarm.via || swarm.replicas) && swarm.value_type != WEFT_VALUE_FLOAT32) {
        return weft_options_usage(&command, "--value-type cannot be combined with --via or "
                                            "--replicas: their seeds use float32");
    }
    if (tap.trace == NULL && tap.pcap == NULL) {
        return swarm_run(&swarm);
    }
    if (swarm.seeds.first != swarm.seeds.last) {
        return weft_options_usage(
            &command, "--trace and --pcap require a single seed: --seeds %" PRIu64 "..%" PRIu64,
            swarm.seeds.first, swarm.seeds.first);
    }
    return swarm_run_tapped(&swarm, &tap);
}

int weft_cli_sim(int argc, char **argv)
{
    static const struct weft_verb verbs[] = {
        {"swarm", "simulate a cluster with faults for each of many seeds and check its results",
         verb_swarm},
        {"incast", "run incast rounds, one message per sender: round times",
         weft_cli_sim_incast},
        {"exchange", "run rounds with bidirectional traffic or several receivers: round times",
         weft_cli_sim_exchange},
        {"allreduce", "run all_reduce rounds: round times", weft_cli_sim_allreduce},
        {"fabric", "simulate a training job with the transfer scheduler, at flow or packet level",
         weft_cli_sim_fabric},
        {"compression", "compute how much an aggregator saves: bytes of updates vs. of their sum",
         weft_cli_sim_compression},
        {"grid", "run the incast grid: compare the round time of every cell with its limit",
         weft_cli_sim_grid},
        {0},
    };
    static const struct weft_verb_list list = {
        .name = "weft sim",
        .word = "command",
        .summary = "simulate clusters in virtual time, reproducible from a seed",
        .usage = "COMMAND [options]",
        .notes = "`weft sim COMMAND --help` describes a command",
        .verbs = verbs,
    };
    weft_sim_memory_init();
    return weft_verbs_run(&list, argc, argv);
}
