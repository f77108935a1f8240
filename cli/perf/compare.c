/* `weft perf compare`: the same rounds, or the same training job, over several transports, on
 * several networks, side by side.
 *
 * On each network the transports are measured in turn, A B C, A B C, ..., so that a load peak of
 * the machine affects all of them alike. A figure is the median of the repetitions. Each
 * measurement is a separate file in --out, and existing ones are not repeated, so an interrupted
 * comparison continues where it stopped. */
#define _GNU_SOURCE
#include "cli/perf/compare.h"

#include "base/assert.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/perf/busy.h"
#include "cli/stop.h"
#include "lab/build.h"
#include "node/security.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OPTIONS_MAX = 32 };

/* ---- planning -------------------------------------------------------------------------------- */

static void name_network(const struct weft_compare *c, struct weft_compare_network *n)
{
    char *name = n->name;
    size_t at = strlen(name);
    if (c->inside != NULL) {
        (void)snprintf(name, sizeof(n->name), "%s", c->inside);
    } else if (n->loss != NULL) {
        (void)snprintf(name + at, sizeof(n->name) - at, "-%s-%s-loss%s%s%s%s%s", c->rate, n->buffer,
                       n->loss, c->ecn != NULL ? "-ecn" : "", c->ecn != NULL ? c->ecn : "",
                       n->background != NULL ? "-" : "",
                       n->background != NULL ? n->background : "");
    } else {
        (void)snprintf(name + at, sizeof(n->name) - at, "-%s",
                       c->lab != NULL ? c->lab : "loopback");
    }
    if (c->inside == NULL && c->busy > 0) {
        at = strlen(name);
        (void)snprintf(name + at, sizeof(n->name) - at, "-busy%u", c->busy);
    }
    for (; *name != '\0'; name++) { /* a folder, and quoted in plots */
        *name = *name == '/' || *name == '\'' || *name == ':' ? '_' : *name;
    }
}

void weft_compare_add_networks(struct weft_compare *c, const struct weft_compare_network *like)
{
    bool given = c->lab != NULL || c->loopback;
    for (uint32_t q = 0; q < (given ? 1 : c->buffers.count); q++) {
        for (uint32_t l = 0; l < (given ? 1 : c->losses.count); l++) {
            if (c->network_count++ >= WEFT_COMPARE_NETWORKS_MAX) {
                continue;
            }
            struct weft_compare_network *n = &c->networks[c->network_count - 1];
            *n = *like;
            n->loss = given ? NULL : c->losses.items[l];
            n->buffer = given ? NULL : c->buffers.items[q];
            n->background = given ? NULL : like->background;
            name_network(c, n);
        }
    }
}

/* A missing lab is reported when it is needed. */
static void ask_lab(struct weft_compare *c)
{
    struct weft_lab_info info = {.hysteresis = false};
    struct weft_error error;
    if (c->lab == NULL) {
        c->hysteresis = !c->loopback && weft_lab_hysteresis();
    } else if (weft_lab_find(c->lab, &info, &error) == WEFT_OK) {
        c->hysteresis = info.hysteresis;
        c->offload = info.offload;
        c->given = c->inside == NULL ? info : (struct weft_lab_info){.hosts = 0};
    }
}

static int plan(const struct weft_command *command, struct weft_compare *c)
{
    for (; c->transport_count < c->transport_names.count; c->transport_count++) {
        struct weft_compare_transport *transport = &c->transports[c->transport_count];
        const char *name = c->transport_names.items[c->transport_count];
        if (!weft_compare_transport_parse(name, transport) ||
            (c->op->takes != NULL && !c->op->takes(transport))) {
            return weft_options_usage(command, "--transports: \"%.60s\" is not allowed; %s", name,
                                      c->op->transports_allowed);
        }
    }
    const char *wrong = weft_compare_check_numbers(&c->losses, 0, 0.999, 0);
    if (wrong != NULL) {
        return weft_options_usage(command, "--loss: \"%.40s\" is not a fraction", wrong);
    }
    if (c->out != NULL && strlen(c->out) > WEFT_COMPARE_OUT_BYTES_MAX) {
        return weft_options_usage(command, "--out: the path is too long; use at most %d bytes",
                                  (int)WEFT_COMPARE_OUT_BYTES_MAX);
    }
    if (c->inside != NULL && (c->lab = getenv("WEFT_LAB")) == NULL) {
        return weft_options_usage(command, "--inside requires WEFT_LAB");
    }
    if (c->loopback && c->lab != NULL) {
        return weft_options_usage(command, "--loopback and --lab are mutually exclusive");
    }
    ask_lab(c);
    int status = c->op->plan(command, c);
    if (status == WEFT_OPTIONS_RUN && c->network_count > WEFT_COMPARE_NETWORKS_MAX) {
        return weft_options_usage(command, "the options give more than %u networks; shorten a list",
                                  WEFT_COMPARE_NETWORKS_MAX);
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Print as JSON or text, and write DIR/compare.json if results are kept. */
static bool report(const struct weft_compare *compare, bool keep, bool json)
{
    cJSON *object = weft_compare_report(compare, json);
    bool good =
        object != NULL && (!keep || weft_compare_write(compare, "compare.json", object, false));
    if (object == NULL) {
        fprintf(stderr, "weft perf compare: out of memory\n");
    } else if (json) {
        return weft_output_json("perf compare", object, false) && good;
    }
    cJSON_Delete(object);
    return good;
}

/* Run in the folder of results, which exists. */
static int measure_and_report(struct weft_compare *compare, bool keep, bool json, const char *plot)
{
    if (compare->op->prepare != NULL && !compare->op->prepare(compare)) {
        return WEFT_EXIT_FAILED;
    }
    uint32_t failed = weft_compare_measure(compare);
    bool good = report(compare, keep, json) && (plot == NULL || weft_compare_plot(compare, plot));
    if (failed > 0) {
        fprintf(stderr, "weft perf compare: %u measurements are missing%s\n", failed,
                keep ? "; repeat the command to complete them" : "");
    }
    return good && failed == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

static int run(struct weft_compare *compare, bool json, const char *plot)
{
    char folder[] = "/tmp/weft-compare-XXXXXX";
    bool keep = compare->out != NULL;
    if (!keep) {
        compare->out = mkdtemp(folder);
    }
    if (compare->out == NULL || (mkdir(compare->out, 0777) != 0 && errno != EEXIST)) {
        return weft_cli_fail("perf compare", "%s: %s", keep ? compare->out : folder,
                             strerror(errno));
    }
    weft_stop_install();
    weft_stop_ignore_pipes();
    int status;
    if (compare->inside != NULL) {
        status = weft_compare_measure(compare) == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    } else {
        status = measure_and_report(compare, keep, json, plot);
    }
    if (!keep) {
        (void)nftw(compare->out, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    return status;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Append rows to the (count,) existing ones, and the end marker. Returns the new count. */
static uint32_t append(struct weft_option options[OPTIONS_MAX], uint32_t count,
                       const struct weft_option *rows)
{
    for (; rows->name != NULL; rows++) {
        WEFT_ASSERT(count + 1 < OPTIONS_MAX);
        options[count++] = *rows;
    }
    options[count] = (struct weft_option){0};
    return count;
}

int weft_compare_main(struct weft_compare *c, const struct weft_command *own, int argc, char **argv)
{
    uint8_t mode = WEFT_MODE_AUTH;
    bool json = false;
    const char *plot = NULL;
    const struct weft_option common[] = {
        {"loss", "LIST", "packet loss, as for `weft lab up`", WEFT_OPTION_CUSTOM, &c->losses,
         .fallback = "0.01", .parse = weft_compare_list_cut},
        {"buffer", "LIST", "switch port buffer, as for `weft lab up`", WEFT_OPTION_CUSTOM,
         &c->buffers, .fallback = "450kb", .parse = weft_compare_list_cut},
        {"rate", "RATE", "rate of the hosts' links", WEFT_OPTION_STRING, .value = &c->rate},
        {"ecn", "BYTES", "queue length from which packets are marked", WEFT_OPTION_STRING,
         .value = &c->ecn, .fallback = "no marks"},
        {"busy", "N", "CPU-bound processes during each measurement", WEFT_OPTION_U32, &c->busy,
         .max = WEFT_PERF_BUSY_MAX},
        {"repetitions", "N", "repetitions of each transport on each network", WEFT_OPTION_U32,
         &c->repetitions,
         .min = 1, .max = WEFT_COMPARE_REPETITIONS_MAX},
        {"security", "MODE", "auth, seal or none, for transports without a mode in their name",
         WEFT_OPTION_CUSTOM, &mode, .fallback = "auth", .parse = weft_security_parse_mode},
        {"lab", "NAME", "use this running lab instead of creating networks",
         WEFT_OPTION_STRING, .value = &c->lab, .fallback = "none"},
        {"loopback", NULL, "use loopback instead of creating networks", WEFT_OPTION_FLAG,
         .value = &c->loopback},
        {"out", "DIR", "keep the measurements in DIR; existing ones are not repeated",
         WEFT_OPTION_STRING, .value = &c->out, .fallback = "a temporary directory"},
        {"plot", "DIR", "draw PNGs in DIR, with gnuplot", WEFT_OPTION_STRING, .value = &plot},
        {"json", NULL, "print all results as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        {"inside", "NAME", "the network that this process is in", WEFT_OPTION_STRING,
         .value = &c->inside, .hidden = true},
        {0},
    };
    struct weft_option options[OPTIONS_MAX];
    struct weft_command command = *own;
    command.options = options;
    (void)append(options, append(options, 0, own->options), common);
    c->rate = "1gbit";
    c->repetitions = 5;
    c->argc = argc;
    c->argv = argv;
    (void)weft_compare_list_cut(c->op->transports, &c->transport_names);
    (void)weft_compare_list_cut("0.01", &c->losses);
    (void)weft_compare_list_cut("450kb", &c->buffers);
    int status = weft_options_parse(&command, argc, argv);
    c->security = weft_security_mode_name(mode);
    if (status == WEFT_OPTIONS_RUN) {
        status = plan(&command, c);
    }
    return status == WEFT_OPTIONS_RUN ? run(c, json, plot) : status;
}
