/* `weft perf allreduce`, `allgather` and `broadcast`: collective operations of several ranks, over
 * loopback or between the hosts of a lab.
 *
 * Every rank is a communicator of its own (node/coll_thread.h), with a thread and a socket in its
 * host's network, as in a job. All are in this process; its main thread calls the operation at
 * every rank and waits for all. A time is that of the slowest rank, from the first call. Results
 * are checked after the last timed round of each size.
 *
 * Columns are those of nccl-tests: algbw is the size divided by the time; busbw is algbw times
 * the bytes on each link / the size, which is 2 (n - 1) / n for all_reduce, (n - 1) / n for
 * all_gather and 1 for broadcast, so that it can be compared with the link's rate for any n. The
 * size is that of the whole vector.
 *
 * With --box the ranks are members of dense rounds instead (cli/perf/collective_box.h), and each
 * link carries the vector once in each direction: busbw is algbw. */
#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/perf/collective_box.h"
#include "cli/perf/collective_plan.h"
#include "cli/perf/layout.h"
#include "cli/stop.h"
#include "cli/verbs.h"
#include "agg/agg.h"
#include "io/clock.h"
#include "node/coll_thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = WEFT_PERF_PARTICIPANTS_MAX, PACKET_BYTES = 1472, PACKET_HEADERS = 78 };

static const uint64_t join_timeout_ns = 60 * WEFT_NS_PER_S;

static const struct kind {
    const char *verb;
    enum weft_coll_kind kind;
} kinds[] = {
    {"allreduce", WEFT_COLL_ALL_REDUCE},
    {"allgather", WEFT_COLL_ALL_GATHER},
    {"broadcast", WEFT_COLL_BROADCAST},
};

static const char *const transports[] = {"weft", "tcp", NULL};

struct options {
    const struct kind *kind;
    uint32_t ranks;
    uint64_t from_bytes;
    uint64_t to_bytes;
    uint32_t factor;
    uint32_t rounds;
    uint32_t warmup;
    uint32_t bound_ppm;
    bool feedback;
    uint32_t transport;
    uint32_t packet_bytes;
    uint32_t timeout_s;
    struct weft_security security;
    const char *lab;
    const char *hosts;
    struct weft_perf_layout layout;
    struct weft_perf_box_options box;
    struct weft_perf_plan_options plan;
    bool json;
};

struct rank {
    struct weft_coll_thread *thread;
    float *in;
    float *out;
    float *residual;
    uint8_t *missed;
};

/* Of one size. */
struct line {
    uint64_t bytes;
    uint64_t p50_ns;
    uint64_t p99_ns;
    double cpu_s;     /* of all ranks, for one round */
    uint64_t missing; /* elements of contributions */
    uint64_t resent;  /* with a box: packets, in all rounds */
};

struct perf {
    const struct options *options;
    struct rank rank[RANKS_MAX];
    struct weft_perf_box *box; /* NULL: none */
    struct weft_collective_plan planned;
    uint64_t *round_ns;        /* (rounds,) */
    struct weft_error error;
};

/* ---- ranks ----------------------------------------------------------------------------------- */

static bool open_rank(struct perf *p, uint32_t r)
{
    const struct options *o = p->options;
    struct weft_coll_thread_config config;
    char address[WEFT_PERF_ADDRESS_BYTES];
    int home;
    weft_coll_thread_config_default(&config);
    weft_perf_layout_address(&o->layout, r, address);
    config.coll.rank = r;
    config.coll.ranks = o->ranks;
    config.security = &o->security;
    config.driver.kind = o->transport == 0 ? WEFT_DRIVER_UDP : WEFT_DRIVER_TCP;
    config.driver.udp.host = address;
    config.driver.udp.insecure_network = o->lab != NULL;
    config.driver.udp.loopback_packet_bytes =
        o->packet_bytes == 0 ? WEFT_COLL_THREAD_LOOPBACK_BYTES : 0;
    config.driver.udp.blocking_receive = WEFT_UDP_BLOCKING_RECEIVE;
    config.driver.udp.ep.packet_bytes =
        (uint16_t)(o->packet_bytes != 0 ? o->packet_bytes : PACKET_BYTES);
    if (!weft_perf_netns_enter(&o->layout, r, &home, &p->error)) {
        return false;
    }
    weft_status status = weft_coll_thread_start(&config, &p->rank[r].thread, &p->error);
    weft_perf_netns_leave(home);
    return status == WEFT_OK;
}

static float *floats(uint64_t bytes)
{
    float *values = malloc(bytes);
    if (values != NULL) {
        memset(values, 0, bytes);
    }
    return values;
}

static bool take_memory(struct perf *p, uint32_t r)
{
    const struct options *o = p->options;
    uint64_t most = o->to_bytes + sizeof(float) * o->ranks;
    struct rank *rank = &p->rank[r];
    rank->in = floats(most);
    rank->out = floats(most);
    rank->residual = o->feedback ? floats(most) : NULL;
    rank->missed = o->feedback ? calloc(1, most / (4 * WEFT_COLL_GRAIN) + 1) : NULL;
    bool good = rank->in != NULL && rank->out != NULL &&
                (!o->feedback || (rank->residual != NULL && rank->missed != NULL));
    if (!good) {
        (void)weft_fail(&p->error, WEFT_NOMEM, "no memory for vectors of %" PRIu64 " bytes",
                        o->to_bytes);
    }
    for (uint64_t i = 0; good && i < most / sizeof(float); i++) {
        rank->in[i] = (float)(r + i % 7);
    }
    return good;
}

struct joining {
    pthread_t thread;
    struct perf *perf;
    uint32_t rank;
    const struct weft_launch_address *addresses;
    struct weft_error error;
    weft_status status;
};

static void *join_one(void *arg)
{
    struct joining *j = arg;
    j->status = weft_coll_thread_join(j->perf->rank[j->rank].thread, j->addresses, join_timeout_ns,
                                      &j->error);
    return NULL;
}

static bool join_all(struct perf *p)
{
    uint32_t n = p->options->ranks;
    struct weft_launch_address *addresses = calloc(n, sizeof(*addresses));
    struct joining *joining = calloc(n, sizeof(*joining));
    bool good = addresses != NULL && joining != NULL;
    uint32_t started = 0;
    for (uint32_t r = 0; good && r < n; r++) {
        weft_perf_layout_address(&p->options->layout, r, addresses[r].host);
        addresses[r].port = weft_coll_thread_port(p->rank[r].thread);
    }
    for (; good && started < n; started++) {
        joining[started] = (struct joining){.perf = p, .rank = started, .addresses = addresses};
        good = pthread_create(&joining[started].thread, NULL, join_one, &joining[started]) == 0;
    }
    for (uint32_t r = 0; r < started; r++) {
        (void)pthread_join(joining[r].thread, NULL);
        if (good && joining[r].status != WEFT_OK) {
            p->error = joining[r].error;
            good = false;
        }
    }
    if (!good && p->error.text[0] == '\0') {
        (void)weft_fail(&p->error, WEFT_NOMEM, "no memory or threads for %u ranks", n);
    }
    free(joining);
    free(addresses);
    return good;
}

static void close_all(struct perf *p)
{
    weft_perf_box_close(p->box);
    for (uint32_t r = 0; r < p->options->ranks; r++) {
        struct rank *rank = &p->rank[r];
        weft_coll_thread_stop(rank->thread);
        free(rank->in);
        free(rank->out);
        free(rank->residual);
        free(rank->missed);
    }
    free(p->round_ns);
}

/* ---- a round --------------------------------------------------------------------------------- */

static uint64_t count_of(const struct options *o, uint64_t bytes)
{
    uint64_t elems = bytes / sizeof(float);
    return o->kind->kind == WEFT_COLL_ALL_GATHER ? weft_max_u64(elems / o->ranks, 1) : elems;
}

static struct weft_coll_call call_of(const struct perf *p, uint32_t r, uint64_t bytes)
{
    const struct options *o = p->options;
    const struct rank *rank = &p->rank[r];
    bool reduces = o->kind->kind == WEFT_COLL_ALL_REDUCE;
    return (struct weft_coll_call){
        .kind = o->kind->kind,
        .count = count_of(o, bytes),
        .in = rank->in,
        .out = o->kind->kind == WEFT_COLL_BROADCAST && r == 0 ? rank->in : rank->out,
        .bound_ppm = reduces ? o->bound_ppm : 0,
        .residual = reduces ? rank->residual : NULL,
        .missed = reduces ? rank->missed : NULL,
        .timeout_ns = o->timeout_s * WEFT_NS_PER_S,
    };
}

static weft_status failed(struct perf *p, uint32_t r)
{
    char why[700] = "";
    (void)weft_coll_thread_failed(p->rank[r].thread, why, sizeof(why));
    return weft_fail(&p->error, WEFT_PEER, "%s", why);
}

static weft_status play(struct perf *p, uint64_t bytes, uint64_t *ns_p, struct line *line)
{
    uint64_t id[RANKS_MAX];
    if (p->box != NULL) {
        return weft_perf_box_sum(p->box, count_of(p->options, bytes),
                                 p->options->timeout_s * WEFT_NS_PER_S, ns_p, &line->resent,
                                 &p->error);
    }
    uint64_t begin_ns = weft_clock_now_ns();
    for (uint32_t r = 0; r < p->options->ranks; r++) {
        struct weft_coll_call call = call_of(p, r, bytes);
        if (weft_coll_thread_begin(p->rank[r].thread, &call, &id[r]) != WEFT_OK) {
            return failed(p, r);
        }
    }
    weft_status status = WEFT_OK;
    for (uint32_t r = 0; r < p->options->ranks; r++) {
        struct weft_coll_done done;
        weft_status waited =
            weft_coll_thread_wait(p->rank[r].thread, id[r], WEFT_NEVER, &id[r], &done);
        if (status == WEFT_OK && (waited != WEFT_OK || done.status != WEFT_OK)) {
            status = failed(p, r);
        }
        line->missing += waited == WEFT_OK ? done.own_missing : 0;
    }
    *ns_p = weft_clock_now_ns() - begin_ns;
    return status;
}

/* Check every element at every rank. Missing contributions make sums smaller, feedback makes them
 * larger. */
static bool is_right(const struct perf *p, uint64_t bytes)
{
    const struct options *o = p->options;
    uint64_t count = count_of(o, bytes), all = count;
    all *= o->kind->kind == WEFT_COLL_ALL_GATHER ? o->ranks : 1;
    for (uint32_t r = 0; r < o->ranks; r++) {
        if (o->bound_ppm > 0 && r > 0 &&
            memcmp(p->rank[r].out, p->rank[0].out, count * sizeof(float)) != 0) {
            return false;
        }
        bool root = o->kind->kind == WEFT_COLL_BROADCAST && r == 0;
        for (uint64_t i = 0; o->bound_ppm == 0 && !root && i < all; i++) {
            float wanted = o->kind->kind == WEFT_COLL_BROADCAST ? (float)(i % 7)
                           : o->kind->kind == WEFT_COLL_ALL_GATHER
                               ? (float)(i / count + i % count % 7)
                               : (float)(o->ranks * (o->ranks - 1) / 2 + o->ranks * (i % 7));
            if (p->rank[r].out[i] != wanted) {
                return false;
            }
        }
    }
    return true;
}

static void forget(struct perf *p)
{
    uint64_t most = p->options->to_bytes + sizeof(float) * p->options->ranks;
    for (uint32_t r = 0; p->options->feedback && r < p->options->ranks; r++) {
        memset(p->rank[r].residual, 0, most);
        memset(p->rank[r].missed, 0, most / (4 * WEFT_COLL_GRAIN) + 1);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;
    return (one > two) - (one < two);
}

static weft_status measure(struct perf *p, uint64_t bytes, struct line *line_p)
{
    const struct options *o = p->options;
    struct line line = {.bytes = bytes};
    uint64_t ns;
    forget(p); /* of another size */
    for (uint32_t i = 0; i < o->warmup; i++) {
        weft_status status = play(p, bytes, &ns, &line);
        if (status != WEFT_OK) {
            return status;
        }
    }
    line = (struct line){.bytes = bytes}; /* without the warm-up */
    uint64_t cpu_ns = weft_clock_cpu_ns();
    for (uint32_t i = 0; i < o->rounds; i++) {
        weft_status status =
            weft_stop_requested() ? WEFT_AGAIN : play(p, bytes, &p->round_ns[i], &line);
        if (status != WEFT_OK) {
            return status;
        }
    }
    cpu_ns = weft_clock_cpu_ns() - cpu_ns;
    if (!is_right(p, bytes)) {
        return weft_fail(&p->error, WEFT_DATA, "the result of %" PRIu64 " bytes is wrong", bytes);
    }
    qsort(p->round_ns, o->rounds, sizeof(*p->round_ns), by_size);
    line.p50_ns = p->round_ns[o->rounds / 2];
    line.p99_ns = p->round_ns[(uint64_t)o->rounds * 99 / 100];
    line.cpu_s = (double)cpu_ns / 1e9 / o->rounds;
    *line_p = line;
    return WEFT_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* The share of the size that each link carries in one direction. */
static double share(const struct options *o)
{
    double others = (double)(o->ranks - 1) / o->ranks;
    if (o->box.address != NULL) {
        return 1;
    }
    return o->kind->kind == WEFT_COLL_ALL_REDUCE   ? 2 * others
           : o->kind->kind == WEFT_COLL_ALL_GATHER ? others
                                                   : 1.0;
}

static double algbw(const struct line *line)
{
    return (double)line->bytes / (double)line->p50_ns; /* bytes per ns are GB/s */
}

/* The ideal time of all_reduce in a lab with a known rate; docs/COLLECTIVES.md. 0: not known. */
static double ideal_ns(const struct options *o, uint64_t bytes)
{
    uint64_t rate = o->lab != NULL ? o->layout.network.rate_bps : 0;
    if (rate == 0 || o->kind->kind != WEFT_COLL_ALL_REDUCE) {
        return 0;
    }
    if (o->box.address != NULL) {
        return (double)weft_perf_box_wire_bytes(bytes) * 8e9 / (double)rate;
    }
    uint64_t slice = weft_div_ceil_u64(bytes, o->ranks);
    uint64_t wire = slice + PACKET_HEADERS * weft_div_ceil_u64(slice, 1408);
    return 2.0 * (o->ranks - 1) * (double)wire * 8e9 / (double)rate;
}

static void print_line(const struct options *o, const struct line *line)
{
    double ideal = ideal_ns(o, line->bytes);
    printf("%12" PRIu64 " %10.1f %10.1f %8.3f %8.3f %9.2f", line->bytes, (double)line->p50_ns / 1e3,
           (double)line->p99_ns / 1e3, algbw(line), algbw(line) * share(o), line->cpu_s * 1e3);
    if (ideal > 0) {
        printf(" %7.2f", (double)line->p50_ns / ideal);
    }
    if (o->bound_ppm > 0) {
        double all = (double)o->rounds * o->ranks * (double)count_of(o, line->bytes);
        printf(" %8.3f", 100.0 * (double)line->missing / all);
    }
    if (o->box.address != NULL) {
        printf(" %8.1f", (double)line->resent / o->rounds);
    }
    printf("\n");
    fflush(stdout);
}

static void print_head(const struct perf *p)
{
    const struct options *o = p->options;
    const char *box = o->box.address;
    printf("%s, %u ranks, %s%s%s%s%s, %s; median of %u rounds\n",
           weft_coll_kind_name(o->kind->kind), o->ranks, o->lab != NULL ? "lab " : "loopback",
           o->lab != NULL ? o->lab : "", o->transport == 0 ? "" : ", tcp",
           box != NULL ? ", box " : "", box != NULL ? box : "",
           weft_security_mode_name(o->security.mode), o->rounds);
    weft_perf_plan_print(&o->plan, &p->planned, o->to_bytes);
    printf("%12s %10s %10s %8s %8s %9s%s%s%s\n", "bytes", "us", "p99 us", "algbw", "busbw",
           "CPU ms",
           ideal_ns(o, 4) > 0 ? " x ideal" : "", o->bound_ppm > 0 ? " missing%" : "",
           box != NULL ? "   resent" : "");
}

static void add_json(const struct options *o, cJSON *sizes, const struct line *line)
{
    cJSON *one = cJSON_CreateObject();
    cJSON_AddNumberToObject(one, "bytes", (double)line->bytes);
    cJSON_AddNumberToObject(one, "p50_ns", (double)line->p50_ns);
    cJSON_AddNumberToObject(one, "p99_ns", (double)line->p99_ns);
    cJSON_AddNumberToObject(one, "algbw_gbytes_per_s", algbw(line));
    cJSON_AddNumberToObject(one, "busbw_gbytes_per_s", algbw(line) * share(o));
    cJSON_AddNumberToObject(one, "cpu_s", line->cpu_s);
    cJSON_AddNumberToObject(one, "elements_missing", (double)line->missing);
    if (o->box.address != NULL) {
        cJSON_AddNumberToObject(one, "packets_resent", (double)line->resent);
    }
    if (ideal_ns(o, line->bytes) > 0) {
        cJSON_AddNumberToObject(one, "ideal_ns", ideal_ns(o, line->bytes));
    }
    cJSON_AddItemToArray(sizes, one);
}

static weft_status measure_all(struct perf *p, cJSON *sizes)
{
    const struct options *o = p->options;
    uint64_t bytes = o->from_bytes;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && bytes <= o->to_bytes) {
        struct line line = {.bytes = bytes};
        status = measure(p, bytes, &line);
        if (status == WEFT_OK && sizes != NULL) {
            add_json(o, sizes, &line);
        } else if (status == WEFT_OK) {
            print_line(o, &line);
        }
        bytes = bytes == o->to_bytes ? UINT64_MAX : weft_min_u64(bytes * o->factor, o->to_bytes);
    }
    return status;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool open_box(struct perf *p)
{
    const struct options *o = p->options;
    if (!weft_perf_box_open(&o->box, &o->layout, o->ranks, &p->box, &p->error)) {
        return false;
    }
    for (uint32_t r = 0; r < o->ranks; r++) {
        weft_perf_box_vectors(p->box, r, p->rank[r].in, p->rank[r].out);
    }
    return true;
}

static bool set_plan(struct perf *p)
{
    const struct options *o = p->options;
    struct weft_coll_thread *threads[RANKS_MAX];
    for (uint32_t r = 0; r < o->ranks; r++) {
        threads[r] = p->rank[r].thread;
    }
    return o->plan.form == 0 ||
           weft_perf_plan_set(&o->plan, threads, o->ranks, o->to_bytes,
                              o->timeout_s * WEFT_NS_PER_S, &p->planned, &p->error);
}

static weft_status run(struct perf *p, cJSON *sizes)
{
    const struct options *o = p->options;
    p->round_ns = calloc(o->rounds, sizeof(*p->round_ns));
    if (p->round_ns == NULL) {
        return weft_fail(&p->error, WEFT_NOMEM, "no memory for %u rounds", o->rounds);
    }
    bool box = o->box.address != NULL;
    for (uint32_t r = 0; r < o->ranks; r++) {
        if ((!box && !open_rank(p, r)) || !take_memory(p, r)) {
            return WEFT_IO;
        }
    }
    if (box ? !open_box(p) : !join_all(p) || !set_plan(p)) {
        return WEFT_IO;
    }
    if (sizes == NULL) {
        print_head(p);
    }
    return measure_all(p, sizes);
}

static int report(struct options *o, const char *name)
{
    static struct perf perf;
    perf = (struct perf){.options = o};
    cJSON *root = o->json ? cJSON_CreateObject() : NULL;
    cJSON *sizes = o->json ? cJSON_AddArrayToObject(root, "sizes") : NULL;
    weft_status status = weft_security_load(&o->security, true, &perf.error);
    status = status == WEFT_OK ? run(&perf, sizes) : status;
    uint32_t epoch = perf.box != NULL ? weft_perf_box_epoch(perf.box) : 0;
    if (root != NULL) {
        weft_perf_plan_report(&o->plan, &perf.planned, root);
    }
    close_all(&perf);
    weft_security_fini(&o->security);
    if (status != WEFT_OK) {
        cJSON_Delete(root);
        return weft_cli_fail(name, "%s", status == WEFT_AGAIN ? "interrupted" : perf.error.text);
    }
    if (root != NULL) {
        cJSON_AddStringToObject(root, "operation", weft_coll_kind_name(o->kind->kind));
        cJSON_AddNumberToObject(root, "ranks", o->ranks);
        cJSON_AddStringToObject(root, "transport", transports[o->transport]);
        cJSON_AddStringToObject(root, "security", weft_security_mode_name(o->security.mode));
        cJSON_AddNumberToObject(root, "bound_ppm", o->bound_ppm);
        cJSON_AddNumberToObject(root, "rounds", o->rounds);
        cJSON_AddStringToObject(root, "lab", o->lab != NULL ? o->lab : "");
        weft_json_add_text(root, "box", o->box.address);
        if (o->box.address != NULL) {
            cJSON_AddNumberToObject(root, "epoch", epoch);
        }
        return weft_output_json(name, root, false) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    }
    return WEFT_EXIT_OK;
}

static const struct kind *kind_of(const char *verb)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(kinds); i++) {
        if (strcmp(kinds[i].verb, verb) == 0) {
            return &kinds[i];
        }
    }
    return &kinds[0];
}

static int check_box(const struct weft_command *command, const struct options *o)
{
    if (o->box.address == NULL) {
        return WEFT_OPTIONS_RUN;
    }
    if (o->kind->kind != WEFT_COLL_ALL_REDUCE || o->bound_ppm > 0 || o->feedback ||
        o->transport != 0 || o->packet_bytes != 0) {
        return weft_options_usage(command,
                                  "--box requires allreduce, without --loss-bound, --feedback, "
                                  "--transport tcp and --packet-bytes");
    }
    if (o->security.mode != WEFT_MODE_NONE) {
        return weft_options_usage(command,
                                  "--box needs --security none: its packets are not authenticated");
    }
    if (o->ranks > WEFT_AGG_MEMBERS_MAX) {
        return weft_options_usage(command, "--ranks %u: a box has at most %d members", o->ranks,
                                  (int)WEFT_AGG_MEMBERS_MAX);
    }
    if (o->box.floats + o->box.block_floats + (o->box.exponent != 0) > 1) {
        return weft_options_usage(command,
                                  "give one of --exponent, --float32 and --block-float");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_perf_collective(int argc, char **argv)
{
    struct options o = {.kind = kind_of(argv[0]),
                        .ranks = 2,
                        .from_bytes = 1024,
                        .to_bytes = 64 << 20,
                        .factor = 4,
                        .rounds = 20,
                        .warmup = 3,
                        .timeout_s = 60,
                        .security = WEFT_SECURITY_DEFAULTS,
                        .box = {.slots = 32, .job = 1},
                        .plan = {.host_ranks = 1}};
    char name[32], summary[96], example[512];
    const struct weft_option options[] = {
        {"ranks", "N", "number of ranks", WEFT_OPTION_U32, &o.ranks, .min = 2, .max = RANKS_MAX},
        {"from", "BYTES", "smallest vector", WEFT_OPTION_U64, &o.from_bytes, .min = 4,
         .max = UINT64_C(1) << 32},
        {"to", "BYTES", "largest vector", WEFT_OPTION_U64, &o.to_bytes, .min = 4,
         .max = UINT64_C(1) << 32},
        {"factor", "N", "ratio of successive sizes", WEFT_OPTION_U32, &o.factor, .min = 2,
         .max = 1024},
        {"rounds", "N", "timed rounds of each size", WEFT_OPTION_U32, &o.rounds, .min = 1,
         .max = 100000},
        {"warmup", "N", "unmeasured rounds before them", WEFT_OPTION_U32, &o.warmup, .max = 1000},
        {"loss-bound", "F",
         "allreduce: fraction of each rank's contributions that may be missing;\n"
         "results are then checked to be equal at all ranks",
         WEFT_OPTION_PPM, .value = &o.bound_ppm},
        {"feedback", NULL, "allreduce: add missing contributions to the next round",
         WEFT_OPTION_FLAG, .value = &o.feedback},
        {"transport", "NAME", "weft = UDP; tcp = the same messages over kernel TCP",
         WEFT_OPTION_CHOICE, &o.transport, .choices = transports},
        {"packet-bytes", "N",
         "UDP payload of a full packet; 0 = 1472, or 65000 on loopback", WEFT_OPTION_U32,
         &o.packet_bytes, .max = 65000},
        {"timeout-s", "S", "time limit of one operation", WEFT_OPTION_U32, &o.timeout_s, .min = 1,
         .max = 86400},
        {"lab", "NAME", "run one rank on each host of this lab (`weft lab up`)", WEFT_OPTION_STRING,
         &o.lab, .fallback = "loopback"},
        {"hosts", "LIST", "hosts of the lab, such as 0,3-5", WEFT_OPTION_STRING, &o.hosts,
         .fallback = "the first ones"},
        WEFT_PERF_PLAN_ROWS(&o.plan),
        WEFT_PERF_BOX_ROWS(&o.box),
        WEFT_SECURITY_LAB_ROWS(&o.security),
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &o.json},
        {0},
    };
    snprintf(name, sizeof(name), "perf %s", o.kind->verb);
    snprintf(summary, sizeof(summary), "measure %s for vectors of several sizes",
             weft_coll_kind_name(o.kind->kind));
    snprintf(example, sizeof(example),
             "  weft perf %s --ranks 4 --to 4194304\n"
             "  weft perf %s --lab demo --ranks 8%s",
             o.kind->verb, o.kind->verb,
             o.kind->kind != WEFT_COLL_ALL_REDUCE
                 ? ""
                 : " --loss-bound 0.1 --feedback\n"
                   "  weft perf allreduce --ranks 4 --box 127.0.0.1:7701 --security none");
    const struct weft_command command = {
        .name = name,
        .summary = summary,
        .description =
         "Each rank is a communicator with its own thread and socket, on loopback or on the hosts\n"
         "of --lab. A round starts with the first call and ends when the last rank is done. algbw\n"
         "= bytes / time in GB/s; busbw = algbw x (bytes on each link / bytes of the vector), as\n"
         "in nccl-tests: compare it with the link rate. CPU ms is the CPU time of all ranks\n"
         "together for one round; that of a box is not included. Results are checked.\n"
         "bench/torch_allreduce.py is the same measurement through PyTorch, compared with Gloo.",
        .example = example,
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    status = status == WEFT_OPTIONS_RUN ? weft_security_check(&command, &o.security) : status;
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (o.hosts != NULL && o.lab == NULL) {
        return weft_options_usage(&command, "--hosts requires --lab");
    }
    if (o.from_bytes > o.to_bytes) {
        return weft_options_usage(&command, "--from %" PRIu64 " is larger than --to %" PRIu64,
                                  o.from_bytes, o.to_bytes);
    }
    if (o.kind->kind != WEFT_COLL_ALL_REDUCE && (o.bound_ppm > 0 || o.feedback)) {
        return weft_options_usage(&command,
                                  "--loss-bound and --feedback require allreduce: the other "
                                  "operations are exact");
    }
    if (o.packet_bytes != 0 && o.packet_bytes < 1200) {
        return weft_options_usage(&command, "--packet-bytes %u is too small; at least 1200",
                                  o.packet_bytes);
    }
    const char *wrong = weft_perf_plan_check(&o.plan, o.ranks);
    if (wrong == NULL && o.plan.form != 0 &&
        (o.kind->kind != WEFT_COLL_ALL_REDUCE || o.box.address != NULL)) {
        wrong = "--plan requires allreduce, without --box";
    }
    if (wrong != NULL) {
        return weft_options_usage(&command, "%s", wrong);
    }
    status = check_box(&command, &o);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    struct weft_error error = {.text = ""};
    if (!weft_perf_layout_find(o.lab, o.hosts, o.ranks, &o.layout, &error)) {
        return weft_cli_fail(name, "%s", error.text);
    }
    weft_stop_install();
    weft_stop_ignore_pipes();
    return report(&o, name);
}
