/* The measurements of a comparison: each is `weft perf PATTERN --json` in a process of its own, so
 * one that fails takes nothing with it, and its result is a file that appears as a whole.
 *
 * A network is brought up once, by `weft lab run`, which puts it away whatever happens; in it runs
 * this program again (--inside), with the same arguments, and measures what is missing.
 */
#define _GNU_SOURCE
#include "cli/perf/compare.h"

#include "cli/options.h"
#include "cli/perf/compare_train.h"
#include "cli/perf/place.h"
#include "cli/stop.h"
#include "io/clock.h"
#include "lab/build.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- results as files ------------------------------------------------------------------------ */

void weft_compare_path(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                       uint32_t repetition, const char *extension,
                       char path_p[static WEFT_COMPARE_PATH_BYTES])
{
    int at = snprintf(path_p, WEFT_COMPARE_PATH_BYTES, "%s/%s/", compare->out,
                      compare->networks[network].name);
    (void)snprintf(path_p + at, WEFT_COMPARE_PATH_BYTES - (size_t)at, "%s.%u.%s",
                   compare->transports[transport].name, repetition + 1, extension);
    for (char *c = path_p + at; *c != '\0'; c++) {
        *c = *c == ':' || *c == '/' ? '_' : *c;
    }
}

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return NULL;
    }
    char *text = NULL;
    size_t room = 0;
    ssize_t got = getdelim(&text, &room, '\0', file);
    (void)fclose(file);
    if (got < 0) {
        free(text);
        return NULL;
    }
    return text;
}

cJSON *weft_compare_read(const char *path)
{
    char *text = read_whole(path);
    cJSON *object = text != NULL ? cJSON_Parse(text) : NULL;
    free(text);
    return object;
}

static bool has_number(const cJSON *object, const char *name, double value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) && item->valuedouble == value;
}

/* What a report of that transport says of its security: its own word, else that of --security. */
static const char *security_of(const struct weft_compare *compare, uint32_t transport)
{
    const struct weft_compare_transport *t = &compare->transports[transport];
    const char *mode = t->secure ? compare->security : "none";
    for (uint32_t i = 0; i + 1 < t->word_count; i += 2) {
        mode = strcmp(t->words[i], "--security") == 0 ? t->words[i + 1] : mode;
    }
    return mode;
}

static bool has_text(const cJSON *object, const char *name, const char *text)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

bool weft_compare_hysteresis(const struct weft_compare *compare)
{
    struct weft_lab_info info;
    struct weft_lab_error error;
    if (compare->loopback) {
        return false;
    }
    return compare->lab == NULL ? weft_lab_hysteresis()
                                : weft_lab_find(compare->lab, &info, &error) == WEFT_OK &&
                                      info.hysteresis;
}

/* False: a result of other settings, or of a run that was interrupted. */
static bool is_ours(const struct weft_compare *compare, uint32_t transport, const cJSON *result)
{
    if (compare->train != NULL) {
        return weft_compare_train_is_ours(compare, result);
    }
    return has_number(result, "rounds_asked", compare->rounds) &&
           has_number(result, "packet_bytes", compare->packet_bytes) &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "realtime")) ==
               compare->realtime &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "htb_hysteresis")) ==
               compare->hysteresis &&
           has_text(result, "security", security_of(compare, transport)) &&
           !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(result, "interrupted"));
}

cJSON *weft_compare_load(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                         uint32_t repetition)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    weft_compare_path(compare, network, transport, repetition, "json", path);
    cJSON *result = weft_compare_read(path);
    if (result != NULL && !is_ours(compare, transport, result)) {
        cJSON_Delete(result);
        result = NULL;
    }
    return result;
}

static bool is_there(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                     uint32_t repetition)
{
    cJSON *result = weft_compare_load(compare, network, transport, repetition);
    cJSON_Delete(result);
    return result != NULL;
}

static uint32_t missing(const struct weft_compare *compare, uint32_t network)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        for (uint32_t t = 0; t < compare->transport_count; t++) {
            count += !is_there(compare, network, t, r);
        }
    }
    return count;
}

/* ---- processes ------------------------------------------------------------------------------- */

bool weft_compare_run_self(struct weft_args *args, const char *output)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = output != NULL ? open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)
                                : STDERR_FILENO;
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0) {
            execv("/proc/self/exe", args->list);
        }
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        if (weft_stop_asked()) {
            (void)kill(pid, SIGTERM);
        }
    }
    weft_args_fini(args);
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void add_rounds(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                       uint32_t repetition, const char *rounds,
                       struct weft_args *args)
{
    const struct weft_compare_network *n = &compare->networks[network];
    const struct weft_compare_transport *t = &compare->transports[transport];
    weft_args_add(args, "perf");
    weft_args_add(args, "%s", compare->pattern);
    if (t->secure) {
        weft_args_add(args, "--security=%s", compare->security);
    }
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(args, "%s", t->words[i]);
    }
    weft_args_add(args, "--senders=%s", n->senders);
    weft_args_add(args, "--bytes=%s", n->bytes);
    weft_args_add(args, "--rounds=%u", compare->rounds);
    weft_args_add(args, "--packet-bytes=%u", compare->packet_bytes);
    weft_args_add(args, "--seed=%u", repetition + 1);
    weft_args_add(args, "--per-round=%s", rounds);
    if (compare->realtime) {
        weft_args_add(args, "--realtime");
    }
    weft_args_add(args, "--json");
}

static bool measure_one(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                        uint32_t repetition)
{
    char json[WEFT_COMPARE_PATH_BYTES];
    char rounds[WEFT_COMPARE_PATH_BYTES];
    char json_new[WEFT_COMPARE_PATH_BYTES + 8];
    char rounds_new[WEFT_COMPARE_PATH_BYTES + 8];
    weft_compare_path(compare, network, transport, repetition, "json", json);
    weft_compare_path(compare, network, transport, repetition, "rounds", rounds);
    (void)snprintf(json_new, sizeof(json_new), "%s.new", json);
    (void)snprintf(rounds_new, sizeof(rounds_new), "%s.new", rounds);
    struct weft_args args = {0};
    weft_args_add(&args, "weft");
    if (compare->train != NULL) {
        weft_args_add(&args, "train");
        weft_compare_train_add(compare, transport, &args);
    } else {
        add_rounds(compare, network, transport, repetition, rounds_new, &args);
    }
    if (compare->lab != NULL) {
        weft_args_add(&args, "--lab=%s", compare->lab);
    }
    bool good = weft_compare_run_self(&args, json_new) &&
                (compare->train != NULL || rename(rounds_new, rounds) == 0) &&
                rename(json_new, json) == 0;
    if (!good) {
        (void)unlink(json_new);
        (void)unlink(rounds_new);
    }
    return good;
}

/* ---- a network ------------------------------------------------------------------------------- */

static void show(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                 uint32_t repetition)
{
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "%s: repetition %u of %u, %s\n", compare->networks[network].name,
                repetition + 1, compare->repetitions, compare->transports[transport].name);
    }
}

/* On the network that is there: A B C, A B C, ... */
static uint32_t measure_here(const struct weft_compare *compare, uint32_t network)
{
    uint32_t failed = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        for (uint32_t t = 0; t < compare->transport_count; t++) {
            if (is_there(compare, network, t, r)) {
                continue;
            }
            if (!weft_stop_asked()) {
                show(compare, network, t, r);
            }
            failed += weft_stop_asked() || !measure_one(compare, network, t, r);
        }
    }
    return failed;
}

static void add_lab(const struct weft_compare *compare, uint32_t network,
                    struct weft_args *args)
{
    const struct weft_compare_network *n = &compare->networks[network];
    weft_args_add(args, "weft");
    weft_args_add(args, "lab");
    weft_args_add(args, "run");
    weft_args_add(args, "--hosts=%u", n->hosts);
    weft_args_add(args, "--rate=%s", compare->rate);
    weft_args_add(args, "--buffer=%s", n->buffer);
    weft_args_add(args, "--loss=%s", n->loss);
    if (compare->ecn != NULL) {
        weft_args_add(args, "--ecn=%s", compare->ecn);
    }
    if (n->background != NULL) {
        weft_args_add(args, "--background=%s", n->background);
    }
    weft_args_add(args, "--");
}

static void add_list(struct weft_args *args, const struct weft_compare *compare)
{
    char list[1200] = "";
    for (uint32_t i = 0; i < compare->transport_count; i++) {
        size_t at = strlen(list);
        (void)snprintf(list + at, sizeof(list) - at, "%s%s", i > 0 ? "," : "",
                       compare->transports[i].name);
    }
    weft_args_add(args, "--transports=%s", list);
}

/* This program again, in a lab of its own, whose name it finds in WEFT_LAB. */
static bool measure_inside(const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    struct weft_args args = {0};
    char self[256] = "/proc/self/exe";
    ssize_t got = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[got > 0 ? (size_t)got : strlen(self)] = '\0';
    add_lab(compare, network, &args);
    weft_args_add(&args, "%s", self);
    weft_args_add(&args, "perf");
    weft_args_add(&args, "compare");
    weft_args_add(&args, "--inside=%s", n->name);
    add_list(&args, compare);
    weft_args_add(&args, "--security=%s", compare->security);
    weft_args_add(&args, "--repetitions=%u", compare->repetitions);
    weft_args_add(&args, "--out=%s", compare->out);
    if (compare->train != NULL) {
        weft_compare_train_add_inside(compare, &args);
    } else {
        weft_args_add(&args, "--pattern=%s", compare->pattern);
        weft_args_add(&args, "--senders=%s", n->senders);
        weft_args_add(&args, "--bytes=%s", n->bytes);
        weft_args_add(&args, "--rounds=%u", compare->rounds);
        weft_args_add(&args, "--packet-bytes=%u", compare->packet_bytes);
        if (compare->realtime) {
            weft_args_add(&args, "--realtime");
        }
    }
    return weft_compare_run_self(&args, NULL);
}

static bool make_folder(const struct weft_compare *compare, uint32_t network)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", compare->out, compare->networks[network].name);
    if (mkdir(path, 0777) == 0 || errno == EEXIST) {
        return true;
    }
    fprintf(stderr, "weft perf compare: %s: %s\n", path, strerror(errno));
    return false;
}

/* One sentence, instead of one for each measurement. */
static bool has_lab(const struct weft_compare *compare, uint32_t network)
{
    struct weft_perf_place place;
    char error[WEFT_PERF_PLACE_ERROR_BYTES];
    /* A job's processes may share hosts. */
    uint32_t hosts = compare->train != NULL ? 2 : compare->networks[network].hosts;
    bool there = weft_perf_place_find(compare->lab, NULL, hosts, &place, error);
    weft_perf_place_fini(&place);
    if (!there) {
        fprintf(stderr, "weft perf compare: %s\n", error);
    }
    return there;
}

uint32_t weft_compare_measure(const struct weft_compare *compare)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < compare->network_count; i++) {
        if (missing(compare, i) == 0) {
            continue;
        }
        if (!make_folder(compare, i)) {
            return failed + missing(compare, i);
        }
        if (compare->lab != NULL && !has_lab(compare, i)) {
            failed += missing(compare, i);
        } else if (compare->loopback || compare->lab != NULL) {
            failed += measure_here(compare, i);
        } else if (!weft_stop_asked()) {
            (void)measure_inside(compare, i);
            failed += missing(compare, i);
        }
    }
    return failed;
}
