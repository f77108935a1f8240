/* The measurements of a comparison: each runs this program in a separate process, so a failure does
 * not affect others, and its result is a file that is created atomically.
 *
 * A network is created once, by `weft lab run`, which removes it in every case. Inside, this
 * program runs again (--inside) with the same arguments, and makes the missing measurements.
 */
#define _GNU_SOURCE
#include "cli/perf/compare.h"

#include "base/utf8.h"
#include "cli/output.h"
#include "cli/perf/busy.h"
#include "cli/perf/layout.h"
#include "cli/stop.h"
#include "job/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 64 << 20 };

static const uint64_t check_interval_ns = 100 * WEFT_NS_PER_MS; /* to check for a request to stop */

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

static cJSON *read_object(const char *path)
{
    char *text;
    size_t bytes;
    if (weft_file_read(path, FILE_BYTES_MAX, &text, &bytes) != WEFT_OK) {
        return NULL;
    }
    cJSON *object = cJSON_Parse(text);
    free(text);
    return object;
}

cJSON *weft_compare_read(const struct weft_compare *compare, const char *name)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", compare->out, name);
    return read_object(path);
}

static bool write_object(const char *path, const cJSON *object, bool pretty)
{
    char *text = pretty ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    FILE *file = text != NULL ? weft_output_open(path) : NULL;
    if (text != NULL) {
        weft_utf8_repair(text);
    }
    bool good = file != NULL && fprintf(file, "%s\n", text) > 0;
    cJSON_free(text);
    return weft_output_close("perf compare", path, file, good);
}

bool weft_compare_write(const struct weft_compare *compare, const char *name, const cJSON *object,
                        bool pretty)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", compare->out, name);
    return write_object(path, object, pretty);
}

double weft_compare_number(const cJSON *object, const char *path)
{
    double value = 0;
    (void)weft_json_number_at(object, path, &value);
    return value;
}

bool weft_compare_is_true(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

bool weft_compare_is_network(const struct weft_compare *compare, const cJSON *facts)
{
    const struct weft_lab_info *lab = &compare->given;
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(facts, "lab_settings");
    if (weft_compare_is_true(facts, "htb_hysteresis") != compare->hysteresis ||
        weft_compare_is_true(facts, "offload") != compare->offload) {
        return false;
    }
    return lab->hosts == 0 ||
           (cJSON_IsString(settings) && strcmp(settings->valuestring, lab->settings) == 0);
}

cJSON *weft_compare_load(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                         uint32_t repetition)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    weft_compare_path(compare, network, transport, repetition, "json", path);
    cJSON *result = read_object(path);
    if (result != NULL && (weft_compare_number(result, "busy") != compare->busy ||
                           !compare->op->is_ours(compare, transport, result))) {
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
    /* It removes its network, however long that takes. */
    const struct weft_supervisor_policy policy = {.grace_ns = WEFT_NEVER, .orphan_signal = SIGTERM};
    struct weft_supervisor supervisor;
    struct weft_error error = {.text = ""};
    int fd = output != NULL ? open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)
                            : STDERR_FILENO;
    bool good = weft_supervisor_init(&supervisor, &policy, 1, 0) == WEFT_OK;
    struct weft_slot *slot = &supervisor.slots[0];
    slot->role = "measurement";
    slot->program = "/proc/self/exe";
    slot->args = *args;
    slot->stdout_fd = fd;
    if (fd < 0) {
        fprintf(stderr, "weft perf compare: %s: %s\n", output, strerror(errno));
    }
    good = good && fd >= 0 && weft_supervisor_start(&supervisor, slot, &error) == WEFT_OK;
    if (error.text[0] != '\0') {
        fprintf(stderr, "weft perf compare: %s\n", error.text);
    }
    while (slot->is_running) {
        struct weft_supervisor_event event;
        weft_supervisor_next(&supervisor, check_interval_ns, &event);
        if (weft_stop_requested()) {
            weft_supervisor_stop(&supervisor, NULL);
        }
    }
    good = good && slot->wait_status == 0;
    if (fd > STDERR_FILENO) {
        (void)close(fd);
    }
    weft_supervisor_fini(&supervisor);
    *args = (struct weft_args){.list = NULL};
    return good;
}

/* Add the number of busy processes, which the measurement does not know. False: it wrote no
 * object. */
static bool note_busy(const struct weft_compare *compare, const char *path)
{
    cJSON *object = read_object(path);
    cJSON_DeleteItemFromObjectCaseSensitive(object, "busy");
    cJSON_AddNumberToObject(object, "busy", compare->busy);
    bool good = write_object(path, object, false);
    cJSON_Delete(object);
    return good;
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
    compare->op->add_run(compare, network, transport, repetition, rounds_new, &args);
    if (compare->lab != NULL) {
        weft_args_add(&args, "--lab=%s", compare->lab);
    }
    struct weft_perf_busy busy;
    bool started = weft_perf_busy_start(&busy, "perf compare", compare->busy);
    bool good = started && weft_compare_run_self(&args, json_new);
    good = weft_perf_busy_end(&busy) && good && note_busy(compare, json_new) &&
           (!compare->op->writes_rounds || rename(rounds_new, rounds) == 0) &&
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

/* Measure on the existing network: A B C, A B C, ... */
static uint32_t measure_here(const struct weft_compare *compare, uint32_t network)
{
    uint32_t failed = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        for (uint32_t t = 0; t < compare->transport_count; t++) {
            if (is_there(compare, network, t, r)) {
                continue;
            }
            if (!weft_stop_requested()) {
                show(compare, network, t, r);
            }
            failed += weft_stop_requested() || !measure_one(compare, network, t, r);
        }
    }
    return failed;
}

static void add_lab(const struct weft_compare *compare, uint32_t network, struct weft_args *args)
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

/* Run this program again with its arguments, in a lab of its own, whose name is in WEFT_LAB. If an
 * option is given twice, the second is used. */
static bool measure_inside(const struct weft_compare *compare, uint32_t network)
{
    struct weft_args args = {0};
    char self[256] = "/proc/self/exe";
    ssize_t got = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[got > 0 ? (size_t)got : strlen(self)] = '\0';
    add_lab(compare, network, &args);
    weft_args_add(&args, "%s", self);
    weft_args_add(&args, "perf");
    for (int i = 0; i < compare->argc; i++) {
        weft_args_add(&args, "%s", compare->argv[i]);
    }
    weft_args_add(&args, "--inside=%s", compare->networks[network].name);
    weft_args_add(&args, "--out=%s", compare->out);
    compare->op->add_inside(compare, network, &args);
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

/* Report this once, instead of for each measurement. */
static bool has_lab(const struct weft_compare *compare, uint32_t network)
{
    struct weft_perf_layout layout;
    struct weft_error error = {.text = ""};
    bool there = weft_perf_layout_find(compare->lab, NULL, compare->networks[network].hosts_min,
                                       &layout, &error);
    if (!there) {
        fprintf(stderr, "weft perf compare: %s\n", error.text);
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
        } else if (!weft_stop_requested()) {
            (void)measure_inside(compare, i);
            failed += missing(compare, i);
        }
    }
    return failed;
}
