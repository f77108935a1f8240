/* Output of verbs: JSON reports, values that can be unknown, latency statistics from a histogram,
 * and files. All verbs use these functions, so they handle a full disk and lack of memory alike. */
#ifndef WEFT_CLI_OUTPUT_H
#define WEFT_CLI_OUTPUT_H

#include "base/error.h"
#include "base/hist.h"
#include "base/status.h"
#include "node/log.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

/* Log sink for src/node on standard error: "weft VERB: ...", or "weft: ..." if verb is NULL.
 * warnings_only: for a process whose parent reads its channel. */
struct weft_node_log weft_output_log(const char *verb, bool warnings_only);

/* Print the object on standard output and delete it. False: an error "weft VERB: ..." was printed
 * on standard error. A NULL object is reported as out of memory. */
bool weft_output_json(const char *verb, cJSON *object, bool pretty);

/* Add a number, or null if it is not known. */
void weft_json_add_known(cJSON *object, const char *key, double value, bool known);
/* Add a float with its shortest decimal representation: 0.1, not 0.10000000149. */
void weft_json_add_float(cJSON *object, const char *key, float value);
/* Add a string, or null. */
void weft_json_add_text(cJSON *object, const char *key, const char *text);
/* The number at a path such as "round_ms.p99"; false if there is none. */
bool weft_json_number_at(const cJSON *object, const char *path, double *value_p);

/* The statistics of a histogram to add. */
enum {
    WEFT_TIMES_COUNT = 1,
    WEFT_TIMES_MEAN = 2,
    WEFT_TIMES_P50 = 4,
    WEFT_TIMES_P90 = 8,
    WEFT_TIMES_P99 = 16,
    WEFT_TIMES_MAX = 32,
};

/* Add {"count", "mean", "p50", "p90", "p99", "max"}, restricted to `which`, under key, in units of
 * unit_ns. Returns the new object. */
cJSON *weft_json_add_times(cJSON *object, const char *key, const struct weft_hist *hist,
                           unsigned which, double unit_ns);
/* Mean of the recorded values, in their unit; 0 for an empty histogram. */
double weft_times_mean(const struct weft_hist *hist);

/* Read a whole file of at most bytes_max bytes and terminate it with a 0.
 * Owns: gives *text_p, to be freed.
 * Errors: WEFT_IO (see errno; EFBIG: the file is larger), WEFT_NOMEM. */
weft_status weft_file_read(const char *path, size_t bytes_max, char **text_p, size_t *bytes_p);

/* The descriptor with which a shell has opened this file for the process, such as 1 for
 * /dev/stdout; -1 = none. */
int weft_output_given(const char *path);
/* False: an error was printed, because a shell has opened the file for this process, so a file that
 * replaced it would not be seen. NULL is allowed. */
bool weft_output_replaceable(const char *verb, const char *path);
/* Check that the file to write is not one of the (count,) input files, by this name or another: it
 * would be destroyed. NULL paths are allowed.
 * Errors: WEFT_IO. */
weft_status weft_output_check_inputs(const char *path, const char *const *inputs, uint32_t count,
                                     struct weft_error *error);
/* The same; false: the error was printed. */
bool weft_output_distinct(const char *verb, const char *path, const char *const *inputs,
                          uint32_t count);
/* Check before a run that its output can be written. A file is replaced by a new one; a pipe or a
 * character device, if allowed, is written. NULL is allowed.
 * Errors: WEFT_IO. */
weft_status weft_output_check(const char *path, bool may_be_stream, struct weft_error *error);

/* Open a file for writing, or standard output for NULL. NULL on failure: see errno. */
FILE *weft_output_open(const char *path);
/* Close the file; NULL is allowed. False if a write failed or `good` is false; the error is then
 * printed on standard error with the verb and the path. */
bool weft_output_close(const char *verb, const char *path, FILE *out, bool good);

#endif
