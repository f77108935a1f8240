/* `weft perf compare`: the same rounds over several transports, on several networks, side by side.
 *
 * On each network the transports take turns, A B C, A B C, ...: a busy moment of the machine then
 * falls on all of them alike. A figure is the median of the repetitions. Each measurement is a file
 * of its own in --out, and what is there is not measured again, so a comparison that was broken off
 * goes on where it was. */
#define _GNU_SOURCE
#include "cli/perf/compare.h"

#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/perf/compare_train.h"
#include "cli/perf/perf.h"
#include "cli/stop.h"
#include "node/security.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    struct weft_compare compare;
    struct weft_compare_list transports;
    struct weft_compare_list senders;
    struct weft_compare_list bytes;
    struct weft_compare_list losses;
    struct weft_compare_list buffers;
    const char *plot;
    const char *inside; /* name of the network that this process runs in */
    uint8_t mode;
    bool json;
    bool train; /* for the help alone: these options are not read with it */
};

static const char *parse_list(const char *text, void *value)
{
    return weft_compare_list_cut(text, value);
}

static const char *parse_pattern(const char *text, void *value)
{
    static const char *const names[] = {"incast", "outcast", "alltoall"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *(const char **)value = names[i];
            return NULL;
        }
    }
    return "incast, outcast or alltoall";
}

const char *weft_compare_check_numbers(const struct weft_compare_list *list, double least,
                                       double most)
{
    for (uint32_t i = 0; i < list->count; i++) {
        char *end;
        double value = strtod(list->items[i], &end);
        if (end == list->items[i] || *end != '\0' || !(value >= least && value <= most)) {
            return list->items[i];
        }
    }
    return NULL;
}

/* The same for whole numbers, as the patterns' own options take them. */
static const char *check_whole(const struct weft_compare_list *list, double least, double most)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->items[i][strspn(list->items[i], "0123456789")] != '\0') {
            return list->items[i];
        }
    }
    return weft_compare_check_numbers(list, least, most);
}

static const char *check_floats(const struct weft_compare_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (strtoul(list->items[i], NULL, 10) % 4 != 0) {
            return list->items[i];
        }
    }
    return NULL;
}

/* Before each of many measurements says the same. */
static int check_lists(const struct weft_command *command, const struct options *o)
{
    bool alltoall = strcmp(o->compare.pattern, "alltoall") == 0;
    const char *wrong = check_whole(&o->senders, alltoall ? 2 : 1, 256);
    if (wrong != NULL) {
        return weft_options_usage(command, "--senders: \"%.40s\" is not a whole number from %d to "
                                           "256",
                                  wrong, alltoall ? 2 : 1);
    }
    wrong = check_whole(&o->bytes, 4, 1e8);
    if (wrong != NULL) {
        return weft_options_usage(command, "--bytes: \"%.40s\" is not a whole number from 4 to "
                                           "100000000",
                                  wrong);
    }
    wrong = check_floats(&o->bytes);
    if (wrong != NULL) {
        return weft_options_usage(command, "--bytes: %.40s: a message is whole floats, a multiple "
                                           "of 4 bytes",
                                  wrong);
    }
    wrong = weft_compare_check_numbers(&o->losses, 0, 0.999);
    return wrong == NULL ? WEFT_OPTIONS_RUN
                         : weft_options_usage(command, "--loss: \"%.40s\" is no fraction", wrong);
}

/* ---- planning -------------------------------------------------------------------------------- */

static void name_network(const struct options *o, struct weft_compare_network *n)
{
    const struct weft_compare *c = &o->compare;
    if (o->inside != NULL) {
        (void)snprintf(n->name, sizeof(n->name), "%s", o->inside);
    } else if (n->loss != NULL) {
        (void)snprintf(n->name, sizeof(n->name), "%s-%sx%s-%s-%s-loss%s%s%s", c->pattern,
                       n->senders, n->bytes, c->rate, n->buffer, n->loss,
                       c->ecn != NULL ? "-ecn" : "", c->ecn != NULL ? c->ecn : "");
    } else {
        (void)snprintf(n->name, sizeof(n->name), "%s-%sx%s-%s", c->pattern, n->senders, n->bytes,
                       c->lab != NULL ? c->lab : "loopback");
    }
    for (char *at = n->name; *at != '\0'; at++) {
        *at = *at == '/' || *at == '\'' ? '_' : *at; /* a folder, and quoted in plots */
    }
}

/* False: too many. */
static bool add_network(struct options *o, const char *senders, const char *bytes,
                        const char *loss, const char *buffer)
{
    struct weft_compare *c = &o->compare;
    if (c->network_count == WEFT_COMPARE_NETWORKS_MAX) {
        return false;
    }
    struct weft_compare_network *n = &c->networks[c->network_count++];
    *n = (struct weft_compare_network){
        .senders = senders, .bytes = bytes, .loss = loss, .buffer = buffer};
    n->hosts = (uint32_t)strtoul(senders, NULL, 10) + (strcmp(c->pattern, "alltoall") != 0);
    name_network(o, n);
    return true;
}

static bool plan_networks(struct options *o)
{
    bool given = o->compare.lab != NULL || o->compare.loopback;
    bool fits = true;
    for (uint32_t s = 0; s < o->senders.count; s++) {
        for (uint32_t b = 0; b < o->bytes.count; b++) {
            for (uint32_t q = 0; q < (given ? 1 : o->buffers.count); q++) {
                for (uint32_t l = 0; l < (given ? 1 : o->losses.count); l++) {
                    fits = fits && add_network(o, o->senders.items[s], o->bytes.items[b],
                                               given ? NULL : o->losses.items[l],
                                               given ? NULL : o->buffers.items[q]);
                }
            }
        }
    }
    return fits;
}

static int plan(const struct weft_command *command, struct options *o)
{
    struct weft_compare *c = &o->compare;
    for (uint32_t i = 0; i < o->transports.count; i++) {
        const char *allowed =
            weft_compare_transport_parse(o->transports.items[i], &c->transports[i]);
        if (allowed != NULL) {
            return weft_options_usage(command, "--transports: \"%.60s\" is not allowed; it must be "
                                               "%s",
                                      o->transports.items[i], allowed);
        }
    }
    c->transport_count = o->transports.count;
    c->security = weft_security_mode_name(o->mode);
    int status = check_lists(command, o);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (c->out != NULL && strlen(c->out) > WEFT_COMPARE_OUT_BYTES_MAX) {
        return weft_options_usage(command, "--out: a path of at most %d bytes, please",
                                  (int)WEFT_COMPARE_OUT_BYTES_MAX);
    }
    if (o->inside != NULL) {
        c->lab = getenv("WEFT_LAB");
        if (c->lab == NULL) {
            return weft_options_usage(command, "--inside without WEFT_LAB: no network is there");
        }
    }
    if (c->loopback && c->lab != NULL) {
        return weft_options_usage(command, "--loopback or --lab, not both");
    }
    c->hysteresis = weft_compare_hysteresis(c);
    if (!plan_networks(o)) {
        return weft_options_usage(command, "more than %u networks", WEFT_COMPARE_NETWORKS_MAX);
    }
    return WEFT_OPTIONS_RUN;
}

/* ---- running --------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static bool write_whole(const struct weft_compare *compare, const char *text)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/compare.json", compare->out);
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fprintf(file, "%s\n", text) > 0;
    good = file != NULL && fclose(file) == 0 && good;
    if (!good) {
        fprintf(stderr, "weft perf compare: %s: %s\n", path, strerror(errno));
    }
    return good;
}

/* As JSON or text, and in DIR/compare.json when it is kept. */
static bool report(const struct weft_compare *compare, bool keep, bool json)
{
    bool jobs = compare->train != NULL;
    char *text = jobs ? weft_compare_train_json(compare) : weft_compare_json(compare);
    if (text == NULL) {
        fprintf(stderr, "weft perf compare: out of memory\n");
        return false;
    }
    bool good = !keep || write_whole(compare, text);
    if (json) {
        puts(text);
    } else if (jobs) {
        weft_compare_train_text(compare);
    } else {
        weft_compare_text(compare);
    }
    cJSON_free(text);
    return good;
}

static bool draw(const struct weft_compare *compare, const char *folder)
{
    return compare->train != NULL ? weft_compare_train_plot(compare, folder)
                                  : weft_compare_plot(compare, folder);
}

/* In the folder of results, which is there. */
static int measure_and_report(const struct weft_compare *compare, bool keep, bool json,
                              const char *plot)
{
    if (compare->train != NULL && !weft_compare_train_prepare(compare)) {
        return WEFT_EXIT_FAILED;
    }
    uint32_t failed = weft_compare_measure(compare);
    bool good = report(compare, keep, json) && (plot == NULL || draw(compare, plot));
    if (failed > 0) {
        fprintf(stderr, "weft perf compare: %u measurements are missing%s\n", failed,
                keep ? "; the same command goes on with them" : "");
    }
    return good && failed == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_compare_run(struct weft_compare *compare, bool inside, bool json, const char *plot)
{
    char folder[] = "/tmp/weft-compare-XXXXXX";
    bool keep = compare->out != NULL;
    if (!keep) {
        compare->out = mkdtemp(folder);
    }
    if (compare->out == NULL || (mkdir(compare->out, 0777) != 0 && errno != EEXIST)) {
        fprintf(stderr, "weft perf compare: %s: %s\n", keep ? compare->out : folder,
                strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    weft_stop_install();
    int status;
    if (inside) {
        status = weft_compare_measure(compare) == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    } else {
        status = measure_and_report(compare, keep, json, plot);
    }
    if (!keep) {
        (void)nftw(compare->out, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    return status;
}

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
    static struct options o = {.compare = {.pattern = "incast",
                                           .rate = "1gbit",
                                           .packet_bytes = 1472,
                                           .rounds = 200,
                                           .repetitions = 5},
                               .mode = WEFT_MODE_AUTH};
    if (is_about_jobs(argc, argv)) {
        return weft_perf_compare_train(argc, argv);
    }
    (void)weft_compare_list_cut("weft:0,weft:0.1,tcp-raw:cubic,tcp-raw:cubic:rto5,tcp-raw:bbr,"
                                "tcp-raw:bbr:rto5",
                                &o.transports);
    (void)weft_compare_list_cut("8", &o.senders);
    (void)weft_compare_list_cut("250000", &o.bytes);
    (void)weft_compare_list_cut("0.01", &o.losses);
    (void)weft_compare_list_cut("450kb", &o.buffers);
    const struct weft_option options[] = {
        {"transports", "LIST", "NAME[:PART]...: weft and tcp take a bound (0.1), none, auth or\n"
                               "seal, and a congestion control; tcp and tcp-raw one of the\n"
                               "kernel's and rto5 (--tcp-rto-min); tcp-raw also drop0.1\n"
                               "(--drop-at-sender)",
         WEFT_OPTION_CUSTOM, &o.transports,
         .fallback = "weft:0,weft:0.1,\n"
                     "tcp-raw:cubic,tcp-raw:cubic:rto5,tcp-raw:bbr,tcp-raw:bbr:rto5",
         .parse = parse_list},
        {"train", NULL, "training jobs instead of rounds, with options of their own:\n"
                        "`weft perf compare --train --help`",
         WEFT_OPTION_FLAG, .value = &o.train},
        {"pattern", "NAME", "incast, outcast or alltoall", WEFT_OPTION_CUSTOM, &o.compare.pattern,
         .fallback = "incast", .parse = parse_pattern},
        {"senders", "LIST", "numbers of senders", WEFT_OPTION_CUSTOM, &o.senders, .fallback = "8",
         .parse = parse_list},
        {"bytes", "LIST", "bytes of a message", WEFT_OPTION_CUSTOM, &o.bytes,
         .fallback = "250000", .parse = parse_list},
        {"loss", "LIST", "of packets, as `weft lab up` takes it", WEFT_OPTION_CUSTOM, &o.losses,
         .fallback = "0.01", .parse = parse_list},
        {"buffer", "LIST", "of a switch port, as `weft lab up` takes it", WEFT_OPTION_CUSTOM,
         &o.buffers, .fallback = "450kb", .parse = parse_list},
        {"rate", "RATE", "of the hosts' links", WEFT_OPTION_STRING, .value = &o.compare.rate},
        {"ecn", "BYTES", "mark packets from this queue length on", WEFT_OPTION_STRING,
         &o.compare.ecn, .fallback = "no marks"},
        {"realtime", NULL, "all participants at real-time priority, as in `weft perf incast --realtime`",
         WEFT_OPTION_FLAG, .value = &o.compare.realtime},
        {"rounds", "N", "rounds of a repetition", WEFT_OPTION_U32, &o.compare.rounds, .min = 1,
         .max = 100000},
        {"repetitions", "N", "of each transport on each network", WEFT_OPTION_U32,
         &o.compare.repetitions, .min = 1, .max = WEFT_COMPARE_REPETITIONS_MAX},
        {"security", "MODE", "of weft's and tcp's packets: auth, seal or none", WEFT_OPTION_CUSTOM,
         &o.mode, .fallback = "auth", .parse = weft_security_parse_mode},
        {"packet-bytes", "N", "UDP payload of a full packet", WEFT_OPTION_U32,
         &o.compare.packet_bytes, .min = 512, .max = 65000},
        {"lab", "NAME", "on this lab, which is up, instead of networks made for it",
         WEFT_OPTION_STRING, &o.compare.lab, .fallback = "none"},
        {"loopback", NULL, "on loopback", WEFT_OPTION_FLAG, .value = &o.compare.loopback},
        {"out", "DIR", "keep each measurement there; those that are there are not repeated",
         WEFT_OPTION_STRING, &o.compare.out, .fallback = "a temporary folder"},
        {"plot", "DIR", "draw PNGs there, with gnuplot", WEFT_OPTION_STRING, .value = &o.plot},
        {"json", NULL, "print all results as one JSON object", WEFT_OPTION_FLAG, .value = &o.json},
        {"inside", "NAME", "the network that this process is in", WEFT_OPTION_STRING,
         .value = &o.inside, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "perf compare",
        .summary = "the same rounds over several transports and networks, side by side",
        .description =
            "Each combination of --senders, --bytes, --buffer and --loss is a network, brought up\n"
            "by `weft lab run` (that takes root); on it the transports take turns, --repetitions\n"
            "times. The table has medians over the repetitions, their ratio to the ideal time,\n"
            "and weft's p99 over that of the best TCP that delivered everything.",
        .example = "  weft perf compare --loss 0,0.01 --buffer 128kb,450kb --out results\n"
                   "  weft perf compare --lab demo --transports weft:0,tcp-raw:cubic:rto5 --json",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = plan(&command, &o);
    }
    return status == WEFT_OPTIONS_RUN
               ? weft_compare_run(&o.compare, o.inside != NULL, o.json, o.plot)
               : status;
}
