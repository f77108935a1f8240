/* `weft perf compare --train`: the same training job over several transports, on several networks,
 * each until it reaches the same test loss.
 *
 * It compares the training time to an equal loss on the test rows: the target is given, or it is
 * the loss that a run without packet loss reaches on loopback in --epochs, plus a tolerance
 * (--tolerance). The check of the target and the clock are those of `weft train --until-loss`
 * (cli/train/until.h): the time excludes process startup, reading data and the tests. Without a
 * loss bound all jobs make the same steps; with a bound they may need more or fewer, and the time
 * includes all of them.
 *
 * A file describes the job of a folder of results; the reference run's report is beside it:
 *
 *     DIR/job.json   {"job": "--workers 8 ...", "reference_loss": X or 0, "until_loss": Y}
 *
 * Pictures, two for each network:
 *
 *   NAME-time.png   bars of the training time to the target: median and p90 of the repetitions
 *   NAME-loss.png   the loss on the test rows over the training time, one curve a transport, of its
 *                   repetition with the median time; the target is a horizontal line
 */
#include "base/units.h"
#include "cli/output.h"
#include "cli/perf/compare.h"
#include "cli/train/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the arguments of the job ---------------------------------------------------------------- */

/* Options that the comparison sets itself. */
static const char *const taken[] = {
    "--lab",       "--transport", "--tcp-cc",      "--tcp-rto-min", "--loss-bound", "--report",
    "--json",      "--workers",   "--servers",     "--epochs",      "--until-loss", "--until-auc",
    "--timeout-s", "--security",  "--check-steps", "--trace",       "--port",       "--quiet",
};

static bool is_taken(const char *word)
{
    size_t bytes = strcspn(word, "=");
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(taken); i++) {
        if (strlen(taken[i]) == bytes && strncmp(word, taken[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The arguments after "--", or the larger model (docs/MODELS.md, section 5). */
static int join_words(const struct weft_command *command, struct weft_compare *c)
{
    static const char *const larger[] = {"--format", "adult3", "--lr", "0.02"};
    struct weft_compare_train *t = &c->train;
    if (t->word_count == 0) {
        t->words = larger;
        t->word_count = WEFT_ARRAY_COUNT(larger);
    }
    int at = snprintf(t->joined, sizeof(t->joined),
                      "--workers %u --servers %u --epochs %u --security %s", t->workers, t->servers,
                      t->epochs, c->security);
    for (uint32_t i = 0; i < t->word_count; i++) {
        if (is_taken(t->words[i])) {
            return weft_options_usage(command,
                                      "%.40s belongs before --, or is set by the "
                                      "comparison itself",
                                      t->words[i]);
        }
        at += snprintf(t->joined + at, sizeof(t->joined) - (size_t)at, " %s", t->words[i]);
        if ((size_t)at >= sizeof(t->joined)) {
            return weft_options_usage(command, "the arguments after -- are too long");
        }
    }
    return WEFT_OPTIONS_RUN;
}

/* Append the job's own arguments, after those for its target and its transport. */
static void add_job(const struct weft_compare_train *t, struct weft_args *args)
{
    weft_args_add(args, "train");
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
    weft_args_add(args, "--workers=%u", t->workers);
    weft_args_add(args, "--servers=%u", t->servers);
    weft_args_add(args, "--loss-bound=0");
    weft_args_add(args, "--json");
    weft_args_add(args, "--quiet");
}

static void add_run(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                    uint32_t repetition, const char *rounds, struct weft_args *args)
{
    const struct weft_compare_train *t = &compare->train;
    const struct weft_compare_transport *over = &compare->transports[transport];
    (void)network;
    (void)repetition;
    (void)rounds;
    add_job(t, args);
    weft_args_add(args, "--security=%s", compare->security);
    for (uint32_t i = 0; i + 1 < over->word_count; i += 2) {
        bool bound = strcmp(over->words[i], "--bound") == 0;
        weft_args_add(args, "%s=%s", bound ? "--loss-bound" : over->words[i], over->words[i + 1]);
    }
    weft_args_add(args, "--epochs=%u", 2 * t->epochs);
    weft_args_add(args, "--until-loss=%.9g", (double)t->until_loss);
    weft_args_add(args, "--check-steps=%u", t->check_steps);
    weft_args_add(args, "--timeout-s=%u", t->timeout_s);
}

static void add_inside(const struct weft_compare *compare, uint32_t network, struct weft_args *args)
{
    const struct weft_compare_train *t = &compare->train;
    (void)network;
    weft_args_add(args, "--until-loss=%.9g", (double)t->until_loss);
    weft_args_add(args, "--");
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
}

static bool is_ours(const struct weft_compare *compare, uint32_t transport, const cJSON *run)
{
    const cJSON *lab = cJSON_GetObjectItemCaseSensitive(run, "lab");
    (void)transport;
    return (float)weft_compare_number(run, "until.loss") == compare->train.until_loss &&
           weft_compare_number(run, "until.check_steps") == compare->train.check_steps &&
           weft_compare_is_network(compare, lab);
}

static bool has_answer(const cJSON *run)
{
    return weft_compare_is_true(cJSON_GetObjectItemCaseSensitive(run, "until"), "reached");
}

/* ---- the target ------------------------------------------------------------------------------ */

/* The loss of the reference run; false: it failed, which is reported. */
static bool refer(const struct weft_compare *compare, double *loss_p)
{
    const struct weft_compare_train *t = &compare->train;
    char path[WEFT_COMPARE_PATH_BYTES];
    struct weft_args args = {0};
    weft_args_add(&args, "weft");
    add_job(t, &args);
    weft_args_add(&args, "--epochs=%u", t->epochs);
    (void)snprintf(path, sizeof(path), "%s/reference.json", compare->out);
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "reference run: %s\n", t->joined);
    }
    bool good = weft_compare_run_self(&args, path);
    cJSON *report = good ? weft_compare_read(compare, "reference.json") : NULL;
    *loss_p = weft_compare_number(report, "test_logloss");
    cJSON_Delete(report);
    if (!(*loss_p > 0)) {
        fprintf(stderr, "weft perf compare: the reference run failed: weft train %s\n", t->joined);
    }
    return *loss_p > 0;
}

static bool write_job(const struct weft_compare *compare)
{
    const struct weft_compare_train *t = &compare->train;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "job", t->joined);
    cJSON_AddNumberToObject(object, "reference_loss", t->reference_loss);
    cJSON_AddNumberToObject(object, "until_loss", (double)t->until_loss);
    bool good = weft_compare_write(compare, "job.json", object, true);
    cJSON_Delete(object);
    return good;
}

/* The target, rounded to a float so that it prints the same everywhere. */
static float with_tolerance(double loss, uint32_t tolerance_ppm)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%.6f", loss * (1 + (double)tolerance_ppm / WEFT_PPM));
    return strtof(text, NULL);
}

static bool prepare(struct weft_compare *compare)
{
    struct weft_compare_train *t = &compare->train;
    cJSON *before = weft_compare_read(compare, "job.json");
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(before, "job");
    bool other = cJSON_IsString(job) && strcmp(job->valuestring, t->joined) != 0;
    if (other) {
        fprintf(stderr, "weft perf compare: %s has results of another job: %s\nuse another --out\n",
                compare->out, job->valuestring);
    }
    t->reference_loss = weft_compare_number(before, "reference_loss");
    cJSON_Delete(before);
    if (other) {
        return false;
    }
    if (!(t->until_loss > 0)) {
        if (!(t->reference_loss > 0) && !refer(compare, &t->reference_loss)) {
            return false;
        }
        t->until_loss = with_tolerance(t->reference_loss, t->tolerance_ppm);
    }
    return write_job(compare);
}

/* ---- figures --------------------------------------------------------------------------------- */

enum {
    TIME, TIME_P90, TIME_MIN, TIME_MAX, TO_BEST, STEPS, EPOCHS, LOSS, DELIVERED, RESENT, STEP_P50,
    STEP_P99, FIGURES
};

static const struct weft_compare_figure figures[FIGURES] = {
    [TIME] = {"until.training_s", "median s", 9, 3, "training_s.median"},
    [TIME_P90] = {"until.training_s", "p90 s", 9, 3, "training_s.p90", .of = WEFT_COMPARE_P90},
    [TIME_MIN] = {"until.training_s", .key = "training_s.min", .of = WEFT_COMPARE_LEAST},
    [TIME_MAX] = {"until.training_s", .key = "training_s.max", .of = WEFT_COMPARE_MOST},
    [TO_BEST] = {NULL, "/best TCP", 9, 3, "ratio_to_best_tcp", .of = WEFT_COMPARE_TO_BEST,
                 .known = WEFT_COMPARE_NOT_ZERO, .by = TIME},
    [STEPS] = {"until.steps", "steps", 6, 0, "steps"},
    [EPOCHS] = {"until.epochs", "epochs", 6, 2, "epochs"},
    [LOSS] = {"test_logloss", "loss", 8, 4},
    [DELIVERED] = {"delivered_fraction", "delivered", 9, 2, .percent = true},
    [RESENT] = {"retransmitted_packets", "resent", 8, 0},
    [STEP_P50] = {"step_ms.p50", "step p50", 9, 2},
    [STEP_P99] = {"step_ms.p99", "p99 ms", 9, 2},
};

/* ---- text, JSON and pictures ----------------------------------------------------------------- */

/* With the background traffic, which only jobs have. */
static void print_network(FILE *out, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    weft_compare_print_network(out, compare, network);
    if (n->loss != NULL) {
        fprintf(out, ", background %s", n->background != NULL ? n->background : "none");
    }
}

static void text_head(const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_train *t = &compare->train;
    printf("weft train %s\n", t->joined);
    print_network(stdout, compare, network);
    printf(": training time to a test log-loss of %.4f", (double)t->until_loss);
    if (t->reference_loss > 0) {
        printf(" (%.4f without loss, on loopback)", t->reference_loss);
    }
    printf(",\nchecked every %u steps; medians of %u jobs; without start-up and tests\n",
           t->check_steps, compare->repetitions);
}

static void json_head(const struct weft_compare *compare, cJSON *object)
{
    const struct weft_compare_train *t = &compare->train;
    cJSON_AddStringToObject(object, "job", t->joined);
    cJSON_AddNumberToObject(object, "repetitions", compare->repetitions);
    cJSON_AddNumberToObject(object, "until_loss", (double)t->until_loss);
    weft_json_add_known(object, "reference_loss", t->reference_loss, t->reference_loss > 0);
    cJSON_AddNumberToObject(object, "check_steps", t->check_steps);
}

static void title(FILE *script, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_train *t = &compare->train;
    fprintf(script, "training to a test log-loss of %.4f, %u workers, %u servers, ",
            (double)t->until_loss, t->workers, t->servers);
    print_network(script, compare, network);
}

static bool write_time(FILE *script, const struct weft_compare *compare, uint32_t network,
                       const struct weft_compare_cell *cells)
{
    static const uint32_t times[] = {TIME, TIME_P90};
    static const char *const titles[] = {"median", "p90"};
    (void)network;
    weft_compare_plot_bars(script, compare, cells, times, "training time, s", titles, "");
    return true;
}

static void write_curve(FILE *script, const struct weft_compare *compare, uint32_t network,
                        uint32_t transport, uint32_t repetition)
{
    cJSON *run = weft_compare_load(compare, network, transport, repetition);
    const cJSON *until = cJSON_GetObjectItemCaseSensitive(run, "until");
    const cJSON *checks = cJSON_GetObjectItemCaseSensitive(until, "checks");
    const cJSON *check;
    fprintf(script, "$t%u << EOD\n%s", transport, checks == NULL ? "NaN NaN\n" : "");
    cJSON_ArrayForEach(check, checks)
    {
        fprintf(script, "%.6f %.6f\n", weft_compare_number(check, "training_s"),
                weft_compare_number(check, "test_logloss"));
    }
    fprintf(script, "EOD\n");
    cJSON_Delete(run);
}

static bool write_loss(FILE *script, const struct weft_compare *compare, uint32_t network,
                       const struct weft_compare_cell *cells)
{
    fprintf(script, "set xlabel 'training time, s'\nset ylabel 'log-loss on the test rows'\n"
                    "set logscale x\nset key right top\n");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        write_curve(script, compare, network, t, cells[t].typical);
    }
    weft_compare_plot_curves(script, compare, "linespoints pointsize 0.6");
    fprintf(script, ", %.6f with lines dashtype 2 linecolor 'black' title 'target'\n",
            (double)compare->train.until_loss);
    return true;
}

/* ---- options --------------------------------------------------------------------------------- */

/* The subset of transports that `weft train` has. */
static bool takes(const struct weft_compare_transport *transport)
{
    bool good = transport->secure;
    for (uint32_t i = 0; i < transport->word_count; i += 2) {
        good = good && strcmp(transport->words[i], "--cc") != 0;
    }
    return good;
}

static int plan(const struct weft_command *command, struct weft_compare *c)
{
    const struct weft_compare_train *t = &c->train;
    bool given = c->lab != NULL || c->loopback;
    for (uint32_t b = 0; b < (given ? 1 : t->backgrounds.count); b++) {
        /* A job's processes may share hosts. */
        struct weft_compare_network like = {.hosts = t->workers + t->servers, .hosts_min = 2};
        if (strcmp(t->backgrounds.items[b], "none") != 0) {
            like.background = t->backgrounds.items[b];
        }
        (void)snprintf(like.name, sizeof(like.name), "train-%ux%u", t->workers, t->servers);
        weft_compare_add_networks(c, &like);
    }
    return join_words(command, c);
}

static const struct weft_compare_op op = {
    .transports_allowed = "a job can use weft[:BOUND] or tcp[:CC][:rtoMS], each with none, auth or "
                          "seal, as in weft:0.1,tcp:cubic:rto5:none",
    .transports = "weft:0,weft:0.1,tcp:cubic:none,tcp:cubic:rto5:none,tcp:bbr:none,"
                  "tcp:bbr:rto5:none",
    .figures = figures,
    .figure_count = FIGURES,
    .rank_by = TIME,
    .whole = UINT32_MAX,
    .nulls = true,
    .takes = takes,
    .plan = plan,
    .prepare = prepare,
    .add_run = add_run,
    .add_inside = add_inside,
    .is_ours = is_ours,
    .has_answer = has_answer,
    .text_head = text_head,
    .json_head = json_head,
    .title = title,
    .pictures = {{"time", write_time}, {"loss", write_loss}},
};

int weft_perf_compare_train(int argc, char **argv)
{
    static struct weft_compare compare = {
        .op = &op,
        .train = {.workers = 8, .servers = 1, .epochs = 6, .check_steps = 6, .timeout_s = 300,
                  .tolerance_ppm = 5000},
    };
    struct weft_compare_train *t = &compare.train;
    bool is_train = true; /* the flag that selects this operation */
    (void)weft_compare_list_cut("none", &t->backgrounds);
    const struct weft_option options[] = {
        {"train", NULL, "run training jobs instead of rounds", WEFT_OPTION_FLAG,
         .value = &is_train},
        {"transports", "LIST", "weft and tcp, each with a bound (0.1) and none, auth or seal; tcp\n"
                               "with a congestion control and rto5 (--tcp-rto-min)",
         WEFT_OPTION_CUSTOM, &compare.transport_names,
         .fallback = "weft:0,weft:0.1,\n"
                     "tcp:cubic:none,tcp:cubic:rto5:none,tcp:bbr:none,tcp:bbr:rto5:none",
         .parse = weft_compare_list_cut},
        {"workers", "N", "workers of the job", WEFT_OPTION_U32, &t->workers, .min = 1,
         .max = WEFT_JOB_WORKERS_MAX},
        {"servers", "N", "servers of the job", WEFT_OPTION_U32, &t->servers, .min = 1,
         .max = WEFT_JOB_SHARDS_MAX},
        {"epochs", "N", "epochs of the reference run; a measured run ends after twice as many",
         WEFT_OPTION_U32, &t->epochs, .min = 1, .max = 5000},
        {"until-loss", "X", "the target: log-loss on the test rows", WEFT_OPTION_F32,
         .value = &t->until_loss, .fallback = "that of the reference run, plus --tolerance"},
        {"tolerance", "F", "accepted relative excess over the loss of the reference run",
         WEFT_OPTION_PPM, .value = &t->tolerance_ppm},
        {"check-steps", "N", "steps between evaluations", WEFT_OPTION_U32,
         &t->check_steps, .min = 1, .max = 1000000},
        {"timeout-s", "S", "report a job that has not reached the target after S seconds of\n"
         "training as DNF (did not finish); 0 = never",
         WEFT_OPTION_U32, &t->timeout_s, .max = 86400},
        {"background", "LIST", "other traffic, SIZES:LOAD or none", WEFT_OPTION_CUSTOM,
         &t->backgrounds, .fallback = "none", .parse = weft_compare_list_cut},
        {0},
    };
    const struct weft_command command = {
        .name = "perf compare --train",
        .summary = "compare training times to an equal loss over several transports and networks",
        .arguments = "[-- OPTIONS OF weft train]",
        .description =
            "Each combination of --background, --buffer and --loss is a network with one host per\n"
            "process, created by `weft lab run` (which requires root). On each network the "
            "transports\n"
            "are measured in turn, --repetitions times. A job ends when its loss on the test rows "
            "is\n"
            "at most the target. Its time excludes process startup and tests. The job is given "
            "after\n"
            "--; default: a logistic regression on Adult with crosses of three columns, --format\n"
            "adult3 --lr 0.02.",
        .example = "  weft perf compare --train --background none,websearch:0.3 --out results\n"
                   "  weft perf compare --train --lab demo --workers 4 -- --format adult",
        .options = options,
    };
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0) {
        own++;
    }
    if (own < argc) {
        t->words = (const char *const *)(argv + own + 1);
        t->word_count = (uint32_t)(argc - own - 1);
    }
    return weft_compare_main(&compare, &command, own, argv);
}
