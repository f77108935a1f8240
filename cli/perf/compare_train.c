/* `weft perf compare --train`: the same training job over several transports, on several networks,
 * each until it has learned as much.
 *
 * What is compared is the training time to an equal loss on the test rows: the target is given, or
 * it is what a run without any loss reaches on loopback in --epochs, and a little more
 * (--tolerance). The check of the target and the clock are those of `weft train --until-loss`
 * (cli/train/until.h): the start of processes, the reading of data and the tests are not in the time.
 * Where nothing may be missing all jobs take the same steps; with a bound they may take others, and
 * the time has them all in it.
 */
#define _GNU_SOURCE
#include "cli/perf/compare_train.h"

#include "cli/node_options.h"
#include "cli/perf/perf.h"
#include "cli/train/job.h"
#include "node/security.h"
#include "node/transport_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct weft_compare compare;
    struct weft_compare_train train;
    struct weft_compare_list transports;
    struct weft_compare_list losses;
    struct weft_compare_list buffers;
    struct weft_compare_list backgrounds;
    const char *plot;
    const char *inside;
    uint8_t mode;
    bool json;
    bool is_train; /* the flag that led here */
};

static const char *parse_list(const char *text, void *value)
{
    return weft_compare_list_cut(text, value);
}

/* ---- the words of the job -------------------------------------------------------------------- */

/* The comparison sets these itself. */
static const char *const taken[] = {
    "--lab",     "--transport", "--tcp-cc",      "--tcp-rto-min", "--loss-bound", "--report",
    "--json",    "--workers",   "--servers",     "--epochs",      "--until-loss", "--until-auc",
    "--give-up", "--security",  "--check-steps", "--trace",       "--port",       "--quiet",
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

/* What stands behind "--", or the larger model (docs/MODELS.md, section 5). */
static int take_words(const struct weft_command *command, struct options *o, int count,
                      char **words)
{
    static const char *const larger[] = {"--format", "adult3", "--lr", "0.02"};
    struct weft_compare_train *t = &o->train;
    const char *const *from = count > 0 ? (const char *const *)words : larger;
    t->word_count = count > 0 ? (uint32_t)count : WEFT_ARRAY_COUNT(larger);
    if (t->word_count > WEFT_COMPARE_WORDS_MAX) {
        return weft_options_usage(command, "more than %d words behind --",
                                  (int)WEFT_COMPARE_WORDS_MAX);
    }
    int at = snprintf(t->joined, sizeof(t->joined), "--workers %u --servers %u --epochs %u --security %s",
                      t->workers, t->servers, t->epochs, o->compare.security);
    for (uint32_t i = 0; i < t->word_count; i++) {
        t->words[i] = from[i];
        if (is_taken(from[i])) {
            return weft_options_usage(command, "%.40s belongs before --, or is set by the "
                                               "comparison itself",
                                      from[i]);
        }
        at += snprintf(t->joined + at, sizeof(t->joined) - (size_t)at, " %s", from[i]);
        if ((size_t)at >= sizeof(t->joined)) {
            return weft_options_usage(command, "the words behind -- are too long");
        }
    }
    return WEFT_OPTIONS_RUN;
}

void weft_compare_train_add(const struct weft_compare *compare, uint32_t transport,
                            struct weft_args *args)
{
    const struct weft_compare_train *t = compare->train;
    const struct weft_compare_transport *over = &compare->transports[transport];
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
    weft_args_add(args, "--security=%s", compare->security);
    weft_args_add(args, "--loss-bound=0");
    for (uint32_t i = 0; i + 1 < over->word_count; i += 2) {
        bool bound = strcmp(over->words[i], "--bound") == 0;
        weft_args_add(args, "%s=%s", bound ? "--loss-bound" : over->words[i],
                           over->words[i + 1]);
    }
    weft_args_add(args, "--workers=%u", t->workers);
    weft_args_add(args, "--servers=%u", t->servers);
    weft_args_add(args, "--epochs=%u", 2 * t->epochs);
    weft_args_add(args, "--until-loss=%.9g", (double)t->until_loss);
    weft_args_add(args, "--check-steps=%u", t->check_steps);
    weft_args_add(args, "--give-up=%u", t->give_up_s);
    weft_args_add(args, "--json");
    weft_args_add(args, "--quiet");
}

void weft_compare_train_add_inside(const struct weft_compare *compare,
                                   struct weft_args *args)
{
    const struct weft_compare_train *t = compare->train;
    weft_args_add(args, "--train");
    weft_args_add(args, "--workers=%u", t->workers);
    weft_args_add(args, "--servers=%u", t->servers);
    weft_args_add(args, "--epochs=%u", t->epochs);
    weft_args_add(args, "--until-loss=%.9g", (double)t->until_loss);
    weft_args_add(args, "--check-steps=%u", t->check_steps);
    weft_args_add(args, "--give-up=%u", t->give_up_s);
    weft_args_add(args, "--");
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
}

bool weft_compare_train_is_ours(const struct weft_compare *compare, const cJSON *result)
{
    const cJSON *until = cJSON_GetObjectItemCaseSensitive(result, "until");
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(until, "loss");
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(until, "check_steps");
    const cJSON *lab = cJSON_GetObjectItemCaseSensitive(result, "lab");
    return cJSON_IsNumber(loss) && (float)loss->valuedouble == compare->train->until_loss &&
           cJSON_IsNumber(steps) && steps->valuedouble == compare->train->check_steps &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(lab, "htb_hysteresis")) ==
               compare->hysteresis;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Of all that a transport can be, what `weft train` has. */
static int plan_transports(const struct weft_command *command, struct options *o)
{
    struct weft_compare *c = &o->compare;
    for (uint32_t i = 0; i < o->transports.count; i++) {
        struct weft_compare_transport *over = &c->transports[i];
        const char *text = o->transports.items[i];
        bool good = weft_compare_transport_parse(text, over) == NULL && over->secure;
        for (uint32_t w = 0; good && w < over->word_count; w += 2) {
            good = strcmp(over->words[w], "--cc") != 0;
        }
        if (!good) {
            return weft_options_usage(command,
                                      "--transports: \"%.60s\" is not allowed; a job takes "
                                      "weft[:BOUND] or tcp[:CC][:rtoMS], each with none, auth or "
                                      "seal, as in weft:0.1,tcp:cubic:rto5:none",
                                      text);
        }
    }
    c->transport_count = o->transports.count;
    return WEFT_OPTIONS_RUN;
}

static void name_network(const struct options *o, struct weft_compare_network *n)
{
    const struct weft_compare *c = &o->compare;
    if (o->inside != NULL) {
        (void)snprintf(n->name, sizeof(n->name), "%s", o->inside);
    } else if (n->loss != NULL) {
        (void)snprintf(n->name, sizeof(n->name), "train-%ux%u-%s-%s-loss%s%s%s%s%s",
                       o->train.workers, o->train.servers, c->rate, n->buffer, n->loss,
                       c->ecn != NULL ? "-ecn" : "", c->ecn != NULL ? c->ecn : "",
                       n->background != NULL ? "-" : "",
                       n->background != NULL ? n->background : "");
    } else {
        (void)snprintf(n->name, sizeof(n->name), "train-%ux%u-%s", o->train.workers,
                       o->train.servers, c->lab != NULL ? c->lab : "loopback");
    }
    for (char *at = n->name; *at != '\0'; at++) {
        *at = *at == '/' || *at == '\'' || *at == ':' ? '_' : *at;
    }
}

static bool plan_networks(struct options *o)
{
    struct weft_compare *c = &o->compare;
    bool given = c->lab != NULL || c->loopback;
    for (uint32_t b = 0; b < (given ? 1 : o->backgrounds.count); b++) {
        for (uint32_t q = 0; q < (given ? 1 : o->buffers.count); q++) {
            for (uint32_t l = 0; l < (given ? 1 : o->losses.count); l++) {
                if (c->network_count == WEFT_COMPARE_NETWORKS_MAX) {
                    return false;
                }
                struct weft_compare_network *n = &c->networks[c->network_count++];
                *n = (struct weft_compare_network){.hosts = o->train.workers + o->train.servers};
                if (!given) {
                    bool none = strcmp(o->backgrounds.items[b], "none") == 0;
                    n->loss = o->losses.items[l];
                    n->buffer = o->buffers.items[q];
                    n->background = none ? NULL : o->backgrounds.items[b];
                }
                name_network(o, n);
            }
        }
    }
    return true;
}

static int plan(const struct weft_command *command, struct options *o, int count, char **words)
{
    struct weft_compare *c = &o->compare;
    c->security = weft_security_mode_name(o->mode);
    int status = take_words(command, o, count, words);
    if (status == WEFT_OPTIONS_RUN) {
        status = plan_transports(command, o);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    c->train = &o->train;
    if (c->out != NULL && strlen(c->out) > WEFT_COMPARE_OUT_BYTES_MAX) {
        return weft_options_usage(command, "--out: a path of at most %d bytes, please",
                                  (int)WEFT_COMPARE_OUT_BYTES_MAX);
    }
    if (o->inside != NULL && (c->lab = getenv("WEFT_LAB")) == NULL) {
        return weft_options_usage(command, "--inside without WEFT_LAB: no network is there");
    }
    if (c->loopback && c->lab != NULL) {
        return weft_options_usage(command, "--loopback or --lab, not both");
    }
    c->hysteresis = weft_compare_hysteresis(c);
    const char *wrong = weft_compare_check_numbers(&o->losses, 0, 0.999);
    if (wrong != NULL) {
        return weft_options_usage(command, "--loss: \"%.40s\" is no fraction", wrong);
    }
    return plan_networks(o) ? WEFT_OPTIONS_RUN
                            : weft_options_usage(command, "more than %u networks",
                                                 WEFT_COMPARE_NETWORKS_MAX);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void set_defaults(struct options *o)
{
    (void)weft_compare_list_cut("weft:0,weft:0.1,tcp:cubic:none,tcp:cubic:rto5:none,tcp:bbr:none,"
                                "tcp:bbr:rto5:none",
                                &o->transports);
    (void)weft_compare_list_cut("0.01", &o->losses);
    (void)weft_compare_list_cut("450kb", &o->buffers);
    (void)weft_compare_list_cut("none", &o->backgrounds);
}

int weft_perf_compare_train(int argc, char **argv)
{
    static struct options o = {
        .compare = {.rate = "1gbit", .repetitions = 5},
        .train = {.workers = 8, .servers = 1, .epochs = 6, .check_steps = 6, .give_up_s = 300,
                  .tolerance_ppm = 5000},
        .mode = WEFT_MODE_AUTH,
    };
    set_defaults(&o);
    const struct weft_option options[] = {
        {"train", NULL, "training jobs instead of rounds", WEFT_OPTION_FLAG,
         .value = &o.is_train},
        {"transports", "LIST", "weft and tcp, each with a bound (0.1) and none, auth or seal; tcp\n"
                               "with a congestion control and rto5 (--tcp-rto-min)",
         WEFT_OPTION_CUSTOM, &o.transports,
         .fallback = "weft:0,weft:0.1,\n"
                     "tcp:cubic:none,tcp:cubic:rto5:none,tcp:bbr:none,tcp:bbr:rto5:none",
         .parse = parse_list},
        {"workers", "N", "workers of the job", WEFT_OPTION_U32, &o.train.workers, .min = 1,
         .max = WEFT_JOB_WORKERS_MAX},
        {"servers", "N", "servers of the job", WEFT_OPTION_U32, &o.train.servers, .min = 1,
         .max = WEFT_JOB_SHARDS_MAX},
        {"epochs", "N", "of the reference run; a measured one ends after twice as many",
         WEFT_OPTION_U32, &o.train.epochs, .min = 1, .max = 5000},
        {"until-loss", "X", "the target: log-loss on the test rows", WEFT_OPTION_F32,
         .value = &o.train.until_loss, .fallback = "that of the reference run,\nand --tolerance"},
        {"tolerance", "F", "how much more than the loss of the reference run is as good",
         WEFT_OPTION_PPM, .value = &o.train.tolerance_ppm},
        {"check-steps", "N", "steps between looks at the target", WEFT_OPTION_U32,
         &o.train.check_steps, .min = 1, .max = 1000000},
        {"give-up", "S", "a job without the target after S seconds of training is DNF; 0 = never",
         WEFT_OPTION_U32, &o.train.give_up_s, .max = 86400},
        {"loss", "LIST", "fractions of packets that are lost", WEFT_OPTION_CUSTOM, &o.losses,
         .fallback = "0.01", .parse = parse_list},
        {"buffer", "LIST", "queues of the switch ports", WEFT_OPTION_CUSTOM, &o.buffers,
         .fallback = "450kb", .parse = parse_list},
        {"background", "LIST", "other traffic, SIZES:LOAD or none", WEFT_OPTION_CUSTOM,
         &o.backgrounds, .fallback = "none", .parse = parse_list},
        {"rate", "RATE", "of each link", WEFT_OPTION_STRING, .value = &o.compare.rate},
        {"ecn", "BYTES", "mark packets from this queue length on", WEFT_OPTION_STRING,
         .value = &o.compare.ecn, .fallback = "no marks"},
        {"repetitions", "N", "jobs over each transport on each network", WEFT_OPTION_U32,
         &o.compare.repetitions, .min = 1, .max = WEFT_COMPARE_REPETITIONS_MAX},
        {"security", "MODE", "auth, seal or none, where the transport does not say",
         WEFT_OPTION_CUSTOM, &o.mode, .fallback = "auth", .parse = weft_security_parse_mode},
        {"lab", "NAME", "on this lab, which is up, instead of networks made for it",
         WEFT_OPTION_STRING, .value = &o.compare.lab, .fallback = "none"},
        {"loopback", NULL, "on loopback", WEFT_OPTION_FLAG, .value = &o.compare.loopback},
        {"out", "DIR", "keep each report there; those that are there are not repeated",
         WEFT_OPTION_STRING, .value = &o.compare.out, .fallback = "a temporary folder"},
        {"plot", "DIR", "draw PNGs there, with gnuplot", WEFT_OPTION_STRING, .value = &o.plot},
        {"json", NULL, "print all results as one JSON object", WEFT_OPTION_FLAG, .value = &o.json},
        {"inside", "NAME", "the network that this process is in", WEFT_OPTION_STRING,
         .value = &o.inside, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "perf compare --train",
        .summary = "training time to an equal loss, over several transports and networks",
        .arguments = "[-- OPTIONS OF weft train]",
        .description =
            "Each combination of --background, --buffer and --loss is a network of a host for each\n"
            "process, brought up by `weft lab run` (that takes root); on it the transports take\n"
            "turns, --repetitions times. A job ends when its loss on the test rows is at most the\n"
            "target. Its time has neither the start of its processes nor the tests in it. The job\n"
            "is what stands behind --, else a logistic regression on Adult with crosses of three\n"
            "columns: --format adult3 --lr 0.02.",
        .example = "  weft perf compare --train --background none,websearch:0.3 --out results\n"
                   "  weft perf compare --train --lab demo --workers 4 -- --format adult",
        .options = options,
    };
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0) {
        own++;
    }
    int status = weft_options_parse(&command, own, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = plan(&command, &o, own < argc ? argc - own - 1 : 0, argv + own + 1);
    }
    return status == WEFT_OPTIONS_RUN
               ? weft_compare_run(&o.compare, o.inside != NULL, o.json, o.plot)
               : status;
}
