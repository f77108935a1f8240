/* What verbs print and write: a report as JSON, values that may be unknown, times of a histogram, and
 * files. One way for each, so that every verb fails alike when memory or the disk is full.
 */
#ifndef WEFT_CLI_OUTPUT_H
#define WEFT_CLI_OUTPUT_H

#include "base/hist.h"
#include "base/status.h"
#include "node/log.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

/* What node logs, on standard error: "weft VERB: ...", or "weft: ..." for NULL. warnings_only: a
 * parent reads this process's channel, and needs no more. */
struct weft_node_log weft_output_log(const char *verb, bool warnings_only);

/* Print the object on standard output and delete it. False: "weft VERB: ..." on standard error says
 * why. NULL counts as no memory. */
bool weft_output_json(const char *verb, cJSON *object, bool pretty);

/* A number, or null when it is not known. */
void weft_json_add_known(cJSON *object, const char *key, double value, bool known);
/* A float in the digits that it has: 0.1, not 0.10000000149. */
void weft_json_add_float(cJSON *object, const char *key, float value);
/* A string, or null. */
void weft_json_add_text(cJSON *object, const char *key, const char *text);
/* The number at a path such as "round_ms.p99"; false: there is none. */
bool weft_json_number_at(const cJSON *object, const char *path, double *value_p);

/* Which figures of a histogram. */
enum {
    WEFT_TIMES_COUNT = 1,
    WEFT_TIMES_MEAN = 2,
    WEFT_TIMES_P50 = 4,
    WEFT_TIMES_P90 = 8,
    WEFT_TIMES_P99 = 16,
    WEFT_TIMES_MAX = 32,
};

/* Add {"count", "mean", "p50", "p90", "p99", "max"}, those of `which`, under key; in units of unit_ns.
 * Returns the new object. */
cJSON *weft_json_add_times(cJSON *object, const char *key, const struct weft_hist *hist,
                           unsigned which, double unit_ns);
/* Of the recorded values, in their unit; 0 of an empty histogram. */
double weft_times_mean(const struct weft_hist *hist);

/* The whole file with a 0 behind it, of at most bytes_max.
 * Owns:    gives *text_p, to be freed.
 * Errors:  WEFT_IO (errno says why; EFBIG: it is longer), WEFT_NOMEM. */
weft_status weft_file_read(const char *path, size_t bytes_max, char **text_p, size_t *bytes_p);

/* A file to write, or standard output for NULL. NULL: errno says why. */
FILE *weft_output_open(const char *path);
/* Close it, NULL too; false when anything that was written, or `good`, has failed: then standard error
 * says so with the verb and the path. */
bool weft_output_close(const char *verb, const char *path, FILE *out, bool good);

#endif
