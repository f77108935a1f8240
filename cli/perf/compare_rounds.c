/* `weft perf compare` for the rounds of a pattern: each measurement is `weft perf PATTERN --json`,
 * which also writes the times of its rounds. Pictures, two for each network:
 *
 *   NAME-cdf.png    the cumulative distribution of round times, one curve for each transport, all
 *   repetitions together; the ideal time is a vertical line
 *   NAME-bars.png   mean and p99 (medians over the repetitions) as multiples of the ideal time
 */
#include "cli/perf/compare.h"
#include "cli/perf/figures.h"
#include "cli/verbs.h"

#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 1000 }; /* of a curve */

enum { INCAST, OUTCAST, ALLTOALL };

static const char *const patterns[] = {"incast", "outcast", "alltoall", NULL};

/* ---- round times ----------------------------------------------------------------------------- */

struct times {
    double *values; /* ms, ascending */
    size_t count;
    size_t room;
};

/* A file without that column has no undisturbed rounds. */
static void read_file(const char *path, bool undisturbed, struct times *times)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t line_room = 0;
    bool says = false;
    while (file != NULL && times->count < times->room && getline(&line, &line_room, file) >= 0) {
        double *value = &times->values[times->count];
        says = says || strstr(line, " undisturbed\n") != NULL;
        if (!undisturbed || (says && strstr(line, " 1\n") != NULL)) {
            times->count += sscanf(line, "%*u %lf", value) == 1;
        }
    }
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* All rounds of all repetitions, or only those without preemption by the host (recorded by weft
 * perf --realtime). False: no memory.
 * Owns: gives values; free() them in any case. */
static bool read_times(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                       bool undisturbed, struct times *times_p)
{
    *times_p = (struct times){.room = (size_t)compare->repetitions * compare->rounds.rounds};
    times_p->values = calloc(times_p->room, sizeof(*times_p->values));
    for (uint32_t r = 0; times_p->values != NULL && r < compare->repetitions; r++) {
        char path[WEFT_COMPARE_PATH_BYTES];
        weft_compare_path(compare, network, transport, r, "rounds", path);
        read_file(path, undisturbed, times_p);
    }
    (void)weft_perf_median(times_p->values, times_p->count); /* sorts */
    return times_p->values != NULL;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void add_run(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                    uint32_t repetition, const char *rounds, struct weft_args *args)
{
    const struct weft_compare_network *n = &compare->networks[network];
    const struct weft_compare_transport *t = &compare->transports[transport];
    weft_args_add(args, "perf");
    weft_args_add(args, "%s", patterns[compare->rounds.pattern]);
    if (t->secure) {
        weft_args_add(args, "--security=%s", compare->security);
    }
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
    weft_args_add(args, "--%s=%s",
                  compare->rounds.pattern == OUTCAST ? "receivers" : "senders", n->senders);
    weft_args_add(args, "--bytes=%s", n->bytes);
    weft_args_add(args, "--rounds=%u", compare->rounds.rounds);
    weft_args_add(args, "--packet-bytes=%u", compare->rounds.packet_bytes);
    weft_args_add(args, "--seed=%u", repetition + 1);
    weft_args_add(args, "--per-round=%s", rounds);
    if (compare->rounds.realtime) {
        weft_args_add(args, "--realtime");
    }
    weft_args_add(args, "--json");
}

static void add_inside(const struct weft_compare *compare, uint32_t network, struct weft_args *args)
{
    weft_args_add(args, "--senders=%s", compare->networks[network].senders);
    weft_args_add(args, "--bytes=%s", compare->networks[network].bytes);
}

/* The security in a report of that transport: its own part, or else that of --security. */
static const char *security_of(const struct weft_compare *compare, uint32_t transport)
{
    const struct weft_compare_transport *t = &compare->transports[transport];
    const char *mode = t->secure ? compare->security : "none";
    for (uint32_t i = 0; i + 1 < t->word_count; i += 2) {
        mode = strcmp(t->words[i], "--security") == 0 ? t->words[i + 1] : mode;
    }
    return mode;
}

static bool is_ours(const struct weft_compare *compare, uint32_t transport, const cJSON *run)
{
    const struct weft_compare_rounds *r = &compare->rounds;
    const cJSON *security = cJSON_GetObjectItemCaseSensitive(run, "security");
    return weft_compare_number(run, "rounds_asked") == r->rounds &&
           weft_compare_number(run, "packet_bytes") == r->packet_bytes &&
           weft_compare_is_true(run, "realtime") == r->realtime &&
           weft_compare_is_network(compare, run) && cJSON_IsString(security) &&
           strcmp(security->valuestring, security_of(compare, transport)) == 0 &&
           !weft_compare_is_true(run, "interrupted");
}

static bool has_answer(const cJSON *run)
{
    return !weft_compare_is_true(run, "dnf");
}

/* ---- figures --------------------------------------------------------------------------------- */

enum {
    IDEAL, MEAN, P50, P90, P99, MAX, CALM_ROUNDS, CALM_P50, CALM_P99, MEAN_RATIO, P99_RATIO,
    DELIVERED, LEAST, GOODPUT, RESENT, CPU, FIGURES
};

static const struct weft_compare_figure figures[FIGURES] = {
    [IDEAL] = {"ideal_ms", "ideal", 8, 2, .known = WEFT_COMPARE_NOT_ZERO},
    [MEAN] = {"round_ms.mean", "mean", 8, 2},
    [P50] = {"round_ms.p50", "p50", 8, 2},
    [P90] = {"round_ms.p90"},
    [P99] = {"round_ms.p99", "p99", 8, 2},
    [MAX] = {"round_ms.max", "max", 8, 2},
    /* Over the undisturbed rounds of all repetitions together. */
    [CALM_ROUNDS] = {.key = "undisturbed_ms.rounds", .of = WEFT_COMPARE_OWN,
                     .known = WEFT_COMPARE_ALWAYS},
    [CALM_P50] = {.key = "undisturbed_ms.p50", .of = WEFT_COMPARE_OWN,
                  .known = WEFT_COMPARE_NOT_ZERO},
    [CALM_P99] = {.key = "undisturbed_ms.p99", .of = WEFT_COMPARE_OWN,
                  .known = WEFT_COMPARE_NOT_ZERO},
    [MEAN_RATIO] = {NULL, "mean/i", 6, 3, "mean_ratio", .of = WEFT_COMPARE_RATIO,
                    .known = WEFT_COMPARE_NOT_ZERO, .by = MEAN, .over = IDEAL},
    [P99_RATIO] = {NULL, "p99/i", 6, 3, "p99_ratio", .of = WEFT_COMPARE_RATIO,
                   .known = WEFT_COMPARE_NOT_ZERO, .by = P99, .over = IDEAL},
    [DELIVERED] = {"delivered_fraction.mean", "delivered", 9, 2, .percent = true},
    [LEAST] = {"delivered_fraction.min", .of = WEFT_COMPARE_LEAST},
    [GOODPUT] = {"goodput_gbps"},
    [RESENT] = {"retransmitted_packets", "resent", 8, 0},
    [CPU] = {"cpu_s_per_gb", "CPU s/GB", 8, 2},
};

static void more(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                 struct weft_compare_cell *cell)
{
    struct times times;
    if (read_times(compare, network, transport, true, &times) && times.count > 0) {
        cell->values[CALM_ROUNDS] = (double)times.count;
        cell->values[CALM_P50] = weft_perf_rank(times.values, times.count, 50);
        cell->values[CALM_P99] = weft_perf_rank(times.values, times.count, 99);
    }
    free(times.values);
}

/* ---- text and JSON --------------------------------------------------------------------------- */

static void title(FILE *out, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    fprintf(out, "%s %s x %s bytes, ", patterns[compare->rounds.pattern], n->senders, n->bytes);
    weft_compare_print_network(out, compare, network);
}

static void text_head(const struct weft_compare *compare, uint32_t network)
{
    title(stdout, compare, network);
    printf(": medians of %u repetitions of %u rounds, ms\n", compare->repetitions,
           compare->rounds.rounds);
}

static void print_ratios(const struct weft_compare *compare, const struct weft_compare_cell *cells,
                         uint32_t figure, uint32_t best)
{
    for (uint32_t t = 0; best != UINT32_MAX && t < compare->transport_count; t++) {
        double value = cells[t].values[figure];
        if (compare->transports[t].is_weft && cells[t].answered && value > 0) {
            printf("p99 of %s is %.3f x that of %s\n", compare->transports[t].name,
                   value / cells[best].values[figure], compare->transports[best].name);
        }
    }
}

/* weft's p99 relative to that of the best TCP; then the same for the undisturbed rounds, if
 * known. */
static void text_tail(const struct weft_compare *compare, const struct weft_compare_cell *cells,
                      uint32_t best)
{
    uint32_t best_calm = UINT32_MAX;
    bool head = false;
    print_ratios(compare, cells, P99, best);
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        const double *v = cells[t].values;
        if (v[CALM_ROUNDS] == 0 || !cells[t].answered) {
            continue;
        }
        if (!head) {
            printf("rounds during which the machine took no processor away, all repetitions in "
                   "one:\n");
            head = true;
        }
        printf("%-26s %8s %8s %8.2f %8.2f %8s %6s %6.3f %9.0f rounds\n",
               compare->transports[t].name, "", "", v[CALM_P50], v[CALM_P99], "", "",
               v[CALM_P99] / v[IDEAL], v[CALM_ROUNDS]);
        if (compare->transports[t].is_tcp && v[LEAST] == 1 &&
            (best_calm == UINT32_MAX || v[CALM_P99] < cells[best_calm].values[CALM_P99])) {
            best_calm = t;
        }
    }
    print_ratios(compare, cells, CALM_P99, best_calm);
}

static void json_head(const struct weft_compare *compare, cJSON *object)
{
    cJSON_AddStringToObject(object, "pattern", patterns[compare->rounds.pattern]);
    cJSON_AddNumberToObject(object, "rounds", compare->rounds.rounds);
    cJSON_AddNumberToObject(object, "repetitions", compare->repetitions);
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Use weft's, if it is measured: the others' differ by their headers. */
static double ideal_of(const struct weft_compare *compare, const struct weft_compare_cell *cells)
{
    double ideal_ms = 0;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        double value = cells[t].values[IDEAL];
        if (value > 0 && (ideal_ms == 0 || compare->transports[t].is_weft)) {
            ideal_ms = value;
        }
    }
    return ideal_ms;
}

static bool write_curve(FILE *script, const struct weft_compare *compare, uint32_t network,
                        uint32_t transport)
{
    struct times times;
    bool good = read_times(compare, network, transport, false, &times);
    size_t step = times.count / POINTS_MAX + 1;
    fprintf(script, "$t%u << EOD\n", transport);
    for (size_t i = 0; i < times.count; i += step) {
        fprintf(script, "%.6f %.6f\n", times.values[i], (double)(i + 1) / (double)times.count);
    }
    if (times.count > 0) {
        fprintf(script, "%.6f 1\n", times.values[times.count - 1]);
    } else {
        fprintf(script, "NaN NaN\n");
    }
    fprintf(script, "EOD\n");
    free(times.values);
    return good;
}

static bool write_cdf(FILE *script, const struct weft_compare *compare, uint32_t network,
                      const struct weft_compare_cell *cells)
{
    double ideal_ms = ideal_of(compare, cells);
    fprintf(script, "set xlabel 'round time, ms'\nset ylabel 'fraction of rounds'\n"
                    "set logscale x\nset yrange [0:1]\nset key right bottom\n");
    if (ideal_ms > 0) {
        fprintf(script,
                "set arrow from %.6f, graph 0 to %.6f, graph 1 nohead dashtype 2\n"
                "set label 'ideal' at %.6f, graph 0.05 offset 0.5,0\n",
                ideal_ms, ideal_ms, ideal_ms);
    }
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        if (!write_curve(script, compare, network, t)) {
            return false;
        }
    }
    weft_compare_plot_curves(script, compare, "steps");
    fprintf(script, "\n");
    return true;
}

static bool write_bars(FILE *script, const struct weft_compare *compare, uint32_t network,
                       const struct weft_compare_cell *cells)
{
    static const uint32_t times[] = {MEAN, P99};
    static const uint32_t ratios[] = {MEAN_RATIO, P99_RATIO};
    static const char *const titles[] = {"mean", "p99"};
    bool ratio = ideal_of(compare, cells) > 0;
    (void)network;
    weft_compare_plot_bars(script, compare, cells, ratio ? ratios : times,
                           ratio ? "round time / ideal time" : "round time, ms", titles,
                           ratio ? ", 1 with lines dashtype 2 linecolor 'black' title 'ideal'"
                                 : "");
    return true;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Check once here, or each of many measurements would report the same. */
static int plan(const struct weft_command *command, struct weft_compare *c)
{
    const struct weft_compare_rounds *r = &c->rounds;
    bool alltoall = r->pattern == ALLTOALL;
    const char *wrong = weft_compare_check_numbers(&r->senders, alltoall ? 2 : 1, 256, 1);
    if (wrong != NULL) {
        return weft_options_usage(command, "--senders: \"%.40s\" is not a whole number from %d to "
                                           "256",
                                  wrong, alltoall ? 2 : 1);
    }
    wrong = weft_compare_check_numbers(&r->bytes, 4, 1e8, 4);
    if (wrong != NULL) {
        return weft_options_usage(command, "--bytes: \"%.40s\" is not a whole number from 4 to "
                                           "100000000 and a multiple of 4: a message is whole "
                                           "floats",
                                  wrong);
    }
    for (uint32_t s = 0; s < r->senders.count; s++) {
        for (uint32_t b = 0; b < r->bytes.count; b++) {
            struct weft_compare_network like = {.senders = r->senders.items[s],
                                                .bytes = r->bytes.items[b]};
            like.hosts = (uint32_t)strtoul(like.senders, NULL, 10) + !alltoall;
            like.hosts_min = like.hosts;
            (void)snprintf(like.name, sizeof(like.name), "%s-%sx%s", patterns[r->pattern],
                           like.senders, like.bytes);
            weft_compare_add_networks(c, &like);
        }
    }
    return WEFT_OPTIONS_RUN;
}

static const struct weft_compare_op op = {
    .transports_allowed = "it must be weft[:BOUND][:CC], tcp[:BOUND][:CC][:rtoMS], "
                          "tcp-raw[:CC][:rtoMS][:dropF] or udp-raw, as in "
                          "weft:0.1,tcp-raw:cubic:rto5",
    .transports = "weft:0,weft:0.1,tcp-raw:cubic,tcp-raw:cubic:rto5,tcp-raw:bbr,tcp-raw:bbr:rto5",
    .figures = figures,
    .figure_count = FIGURES,
    .rank_by = P99,
    .whole = LEAST,
    .writes_rounds = true,
    .plan = plan,
    .add_run = add_run,
    .add_inside = add_inside,
    .is_ours = is_ours,
    .has_answer = has_answer,
    .more = more,
    .text_head = text_head,
    .text_tail = text_tail,
    .json_head = json_head,
    .title = title,
    .pictures = {{"cdf", write_cdf}, {"bars", write_bars}},
};

/* "--train" among the words before "--". */
static bool is_about_jobs(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--train") == 0) {
            return true;
        }
    }
    return false;
}

int weft_perf_compare(int argc, char **argv)
{
    static struct weft_compare compare = {
        .op = &op, .rounds = {.pattern = INCAST, .packet_bytes = 1472, .rounds = 200}};
    struct weft_compare_rounds *r = &compare.rounds;
    bool train = false; /* for the help only: with it, these options are not read */
    if (is_about_jobs(argc, argv)) {
        return weft_perf_compare_train(argc, argv);
    }
    (void)weft_compare_list_cut("8", &r->senders);
    (void)weft_compare_list_cut("250000", &r->bytes);
    const struct weft_option options[] = {
        {"transports", "LIST",
         "NAME[:PART]..., where NAME is weft, tcp, tcp-raw or udp-raw. PARTs:\n"
         "weft and tcp: a bound (0.1) and a security mode (none, auth or seal);\n"
         "weft: its congestion control; tcp and tcp-raw: one of the kernel's, and\n"
         "rto5 (--tcp-rto-min 5); tcp-raw: drop0.1 (--drop-at-sender 0.1)",
         WEFT_OPTION_CUSTOM, &compare.transport_names,
         .fallback = "weft:0,weft:0.1,\n"
                     "tcp-raw:cubic,tcp-raw:cubic:rto5,tcp-raw:bbr,tcp-raw:bbr:rto5",
         .parse = weft_compare_list_cut},
        {"train", NULL, "run training jobs instead of rounds, with other options: `weft perf\n"
                        "compare --train --help`",
         WEFT_OPTION_FLAG, .value = &train},
        {"pattern", "NAME", "pattern: incast, outcast or alltoall", WEFT_OPTION_CHOICE, &r->pattern,
         .choices = patterns},
        {"senders", "LIST", "numbers of senders; of receivers for outcast", WEFT_OPTION_CUSTOM,
         &r->senders, .fallback = "8", .parse = weft_compare_list_cut},
        {"bytes", "LIST", "bytes of a message", WEFT_OPTION_CUSTOM, &r->bytes,
         .fallback = "250000", .parse = weft_compare_list_cut},
        {"rounds", "N", "rounds of a repetition", WEFT_OPTION_U32, &r->rounds, .min = 1,
         .max = 100000},
        {"packet-bytes", "N", "UDP payload of a full packet", WEFT_OPTION_U32, &r->packet_bytes,
         .min = 512, .max = 65000},
        {"realtime", NULL,
         "run all participants at real-time priority, as `weft perf incast --realtime`",
         WEFT_OPTION_FLAG, .value = &r->realtime},
        {0},
    };
    const struct weft_command command = {
        .name = "perf compare",
        .summary = "compare rounds over several transports and networks",
        .description =
           "Each combination of --senders, --bytes, --buffer and --loss is a network, created by\n"
           "`weft lab run` (which requires root). On each network the transports are measured in\n"
           "turn, --repetitions times. The table has medians over the repetitions, their ratio to\n"
           "the ideal time, and weft's p99 relative to that of the best TCP transport that\n"
           "delivered all data.",
        .example = "  weft perf compare --loss 0,0.01 --buffer 128kb,450kb --out results\n"
                   "  weft perf compare --lab demo --transports weft:0,tcp-raw:cubic:rto5 --json",
        .options = options,
    };
    return weft_compare_main(&compare, &command, argc, argv);
}
