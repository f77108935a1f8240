/* The target of a comparison of jobs, and the file that says which jobs a folder of results is of:
 *
 *     DIR/job.json   {"job": "--workers 8 ...", "reference_loss": X or null, "until_loss": Y}
 *
 * The reference run is `weft train` on loopback with everything delivered. It stays beside the file
 * as DIR/reference.json.
 */
#include "cli/perf/compare_train.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static cJSON *read_object(const struct weft_compare *compare, const char *name)
{
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", compare->out, name);
    return weft_compare_read(path);
}

/* The reference run; false: it failed, and has said why. */
static bool refer(const struct weft_compare *compare, double *loss_p)
{
    const struct weft_compare_train *t = compare->train;
    char path[WEFT_COMPARE_PATH_BYTES];
    struct weft_args args = {0};
    weft_args_add(&args, "weft");
    weft_args_add(&args, "train");
    for (uint32_t i = 0; i < t->word_count; i++) {
        weft_args_add(&args, "%s", t->words[i]);
    }
    weft_args_add(&args, "--workers=%u", t->workers);
    weft_args_add(&args, "--servers=%u", t->servers);
    weft_args_add(&args, "--epochs=%u", t->epochs);
    weft_args_add(&args, "--loss-bound=0");
    weft_args_add(&args, "--json");
    weft_args_add(&args, "--quiet");
    (void)snprintf(path, sizeof(path), "%s/reference.json", compare->out);
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "reference run: %s\n", t->joined);
    }
    cJSON *report = weft_compare_run_self(&args, path) ? weft_compare_read(path) : NULL;
    *loss_p = number(report, "test_logloss");
    cJSON_Delete(report);
    if (!(*loss_p > 0)) {
        fprintf(stderr, "weft perf compare: the reference run failed: weft train %s\n", t->joined);
    }
    return *loss_p > 0;
}

static bool write_down(const struct weft_compare *compare)
{
    const struct weft_compare_train *t = compare->train;
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/job.json", compare->out);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "job", t->joined);
    cJSON_AddNumberToObject(object, "reference_loss", t->reference_loss);
    cJSON_AddNumberToObject(object, "until_loss", (double)t->until_loss);
    char *text = cJSON_Print(object);
    FILE *file = fopen(path, "w");
    bool good = text != NULL && file != NULL && fprintf(file, "%s\n", text) > 0;
    good = file != NULL && fclose(file) == 0 && good;
    if (!good) {
        fprintf(stderr, "weft perf compare: %s: %s\n", path, strerror(errno));
    }
    cJSON_free(text);
    cJSON_Delete(object);
    return good;
}

/* The target as a float that prints alike wherever it is passed on. */
static float with_tolerance(double loss, uint32_t tolerance_ppm)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%.6f", loss * (1 + (double)tolerance_ppm / WEFT_PPM));
    return strtof(text, NULL);
}

bool weft_compare_train_prepare(const struct weft_compare *compare)
{
    struct weft_compare_train *t = compare->train;
    cJSON *before = read_object(compare, "job.json");
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(before, "job");
    bool other = cJSON_IsString(job) && strcmp(job->valuestring, t->joined) != 0;
    if (other) {
        fprintf(stderr, "weft perf compare: %s has results of another job: %s\nuse another --out\n",
                compare->out, job->valuestring);
    }
    t->reference_loss = number(before, "reference_loss");
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
    return write_down(compare);
}
