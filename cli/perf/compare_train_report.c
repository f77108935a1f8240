/* The results of a comparison of jobs: medians over the repetitions, as a table and as JSON. */
#include "cli/perf/compare_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a cell ---------------------------------------------------------------------------------- */

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

enum { TIME, STEPS, EPOCHS, LOSS, DELIVERED, RESENT, STEP_P50, STEP_P99, FIGURES };

static void figures_of(const cJSON *run, double figures_p[FIGURES])
{
    const cJSON *until = cJSON_GetObjectItemCaseSensitive(run, "until");
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(run, "step_ms");
    figures_p[TIME] = number(until, "training_s");
    figures_p[STEPS] = number(until, "steps");
    figures_p[EPOCHS] = number(until, "epochs");
    figures_p[LOSS] = number(run, "test_logloss");
    figures_p[DELIVERED] = number(run, "delivered_fraction");
    figures_p[RESENT] = number(run, "retransmitted_packets");
    figures_p[STEP_P50] = number(step, "p50");
    figures_p[STEP_P99] = number(step, "p99");
}

static bool has_reached(const cJSON *run)
{
    const cJSON *until = cJSON_GetObjectItemCaseSensitive(run, "until");
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(until, "reached"));
}

/* Times of the repetitions that reached the target: the lower median's repetition. */
static uint32_t typical_of(const double *times, const uint32_t *repetitions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = 0;
        for (uint32_t j = 0; j < count; j++) {
            before += times[j] < times[i] || (times[j] == times[i] && j < i);
        }
        if (before == (count - 1) / 2) {
            return repetitions[i];
        }
    }
    return 0;
}

static void summarize(double all[FIGURES][WEFT_COMPARE_REPETITIONS_MAX], uint32_t count,
                      struct weft_compare_jobs *jobs)
{
    jobs->median_s = weft_perf_median(all[TIME], count); /* sorts */
    if (count > 0) {
        uint32_t rank = (uint32_t)ceil(0.9 * count);
        jobs->least_s = all[TIME][0];
        jobs->p90_s = all[TIME][rank - 1];
        jobs->most_s = all[TIME][count - 1];
    }
    jobs->steps = weft_perf_median(all[STEPS], count);
    jobs->epochs = weft_perf_median(all[EPOCHS], count);
    jobs->loss = weft_perf_median(all[LOSS], count);
    jobs->delivered = weft_perf_median(all[DELIVERED], count);
    jobs->resent = weft_perf_median(all[RESENT], count);
    jobs->step_p50_ms = weft_perf_median(all[STEP_P50], count);
    jobs->step_p99_ms = weft_perf_median(all[STEP_P99], count);
}

struct weft_compare_jobs weft_compare_train_jobs(const struct weft_compare *compare,
                                                 uint32_t network, uint32_t transport)
{
    static double all[FIGURES][WEFT_COMPARE_REPETITIONS_MAX];
    uint32_t repetitions[WEFT_COMPARE_REPETITIONS_MAX];
    struct weft_compare_jobs jobs = {0};
    uint32_t count = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        jobs.runs += run != NULL;
        jobs.dnf += run != NULL && !has_reached(run);
        if (run != NULL && has_reached(run)) {
            double figures[FIGURES];
            figures_of(run, figures);
            for (int i = 0; i < FIGURES; i++) {
                all[i][count] = figures[i];
            }
            repetitions[count++] = r;
        }
        cJSON_Delete(run);
    }
    jobs.answered = count > jobs.dnf;
    jobs.typical = typical_of(all[TIME], repetitions, count);
    summarize(all, count, &jobs);
    return jobs;
}

uint32_t weft_compare_train_best_tcp(const struct weft_compare *compare, uint32_t network)
{
    uint32_t best = UINT32_MAX;
    double best_s = 0;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_jobs jobs = weft_compare_train_jobs(compare, network, t);
        if (compare->transports[t].is_tcp && jobs.answered &&
            (best == UINT32_MAX || jobs.median_s < best_s)) {
            best = t;
            best_s = jobs.median_s;
        }
    }
    return best;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_head(const struct weft_compare *compare, const struct weft_compare_network *n)
{
    const struct weft_compare_train *t = compare->train;
    printf("weft train %s\n", t->joined);
    if (n->loss != NULL) {
        printf("%s, buffer %s, loss %s", compare->rate, n->buffer, n->loss);
        printf(compare->ecn != NULL ? ", ECN at %s" : "", compare->ecn);
        printf("%s", compare->hysteresis ? ", HTB with hysteresis" : "");
        printf(", background %s", n->background != NULL ? n->background : "none");
    } else if (compare->lab != NULL) {
        printf("lab %s", compare->lab);
    } else {
        printf("loopback");
    }
    printf(": training time to a test log-loss of %.4f", (double)t->until_loss);
    if (t->reference_loss > 0) {
        printf(" (%.4f without loss, on loopback)", t->reference_loss);
    }
    printf(",\nlooked at every %u steps; medians of %u jobs; without start-up and tests\n",
           t->check_steps, compare->repetitions);
    printf("%-24s %9s %9s %9s %6s %6s %8s %9s %8s %9s %9s\n", "", "median s", "p90 s", "/best TCP",
           "steps", "epochs", "loss", "delivered", "resent", "step p50", "p99 ms");
}

static void print_jobs(const char *name, const struct weft_compare_jobs *jobs, double best_s,
                       uint32_t repetitions)
{
    if (jobs->runs == 0) {
        printf("%-24s not measured\n", name);
        return;
    }
    if (!jobs->answered) {
        printf("%-24s DNF (%u of %u)\n", name, jobs->dnf, jobs->runs);
        return;
    }
    char ratio[16] = "-";
    if (best_s > 0) {
        (void)snprintf(ratio, sizeof(ratio), "%.3f", jobs->median_s / best_s);
    }
    printf("%-24s %9.3f %9.3f %9s %6.0f %6.2f %8.4f %8.2f%% %8.0f %9.2f %9.2f", name,
           jobs->median_s, jobs->p90_s, ratio, jobs->steps, jobs->epochs, jobs->loss,
           100 * jobs->delivered, jobs->resent, jobs->step_p50_ms, jobs->step_p99_ms);
    if (jobs->dnf > 0) {
        printf("  DNF %u of %u", jobs->dnf, jobs->runs);
    }
    if (jobs->runs < repetitions) {
        printf("  %u of %u missing", repetitions - jobs->runs, repetitions);
    }
    printf("\n");
}

static double best_time(const struct weft_compare *compare, uint32_t network, uint32_t best)
{
    return best == UINT32_MAX ? 0 : weft_compare_train_jobs(compare, network, best).median_s;
}

void weft_compare_train_text(const struct weft_compare *compare)
{
    for (uint32_t n = 0; n < compare->network_count; n++) {
        double best_s = best_time(compare, n, weft_compare_train_best_tcp(compare, n));
        print_head(compare, &compare->networks[n]);
        for (uint32_t t = 0; t < compare->transport_count; t++) {
            struct weft_compare_jobs jobs = weft_compare_train_jobs(compare, n, t);
            print_jobs(compare->transports[t].name, &jobs, best_s, compare->repetitions);
        }
        printf("%s", n + 1 < compare->network_count ? "\n" : "");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_known(cJSON *object, const char *name, double value, bool known)
{
    if (known) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

static void add_medians(cJSON *item, const struct weft_compare_jobs *jobs, double best_s)
{
    bool known = jobs->answered;
    cJSON *time = cJSON_AddObjectToObject(item, "training_s");
    add_known(time, "median", jobs->median_s, known);
    add_known(time, "p90", jobs->p90_s, known);
    add_known(time, "min", jobs->least_s, known);
    add_known(time, "max", jobs->most_s, known);
    bool ratio = known && best_s > 0;
    add_known(item, "ratio_to_best_tcp", ratio ? jobs->median_s / best_s : 0, ratio);
    add_known(item, "steps", jobs->steps, known);
    add_known(item, "epochs", jobs->epochs, known);
    add_known(item, "test_logloss", jobs->loss, known);
    add_known(item, "delivered_fraction", jobs->delivered, known);
    add_known(item, "retransmitted_packets", jobs->resent, known);
    cJSON *step = cJSON_AddObjectToObject(item, "step_ms");
    add_known(step, "p50", jobs->step_p50_ms, known);
    add_known(step, "p99", jobs->step_p99_ms, known);
}

static void add_cell(cJSON *cells, const struct weft_compare *compare, uint32_t network,
                     uint32_t transport, double best_s)
{
    struct weft_compare_jobs jobs = weft_compare_train_jobs(compare, network, transport);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, item);
    cJSON_AddStringToObject(item, "name", compare->transports[transport].name);
    cJSON_AddNumberToObject(item, "repetitions", jobs.runs);
    cJSON_AddNumberToObject(item, "dnf", jobs.dnf);
    add_medians(item, &jobs, best_s);
    cJSON *runs = cJSON_AddArrayToObject(item, "runs");
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        if (run != NULL) {
            cJSON_AddItemToArray(runs, run);
        }
    }
}

static void add_text_or_null(cJSON *object, const char *name, const char *text)
{
    cJSON_AddItemToObject(object, name,
                          text != NULL ? cJSON_CreateString(text) : cJSON_CreateNull());
}

static void add_network(cJSON *networks, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    uint32_t best = weft_compare_train_best_tcp(compare, network);
    double best_s = best_time(compare, network, best);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(networks, item);
    cJSON_AddStringToObject(item, "name", n->name);
    add_known(item, "loss", n->loss != NULL ? strtod(n->loss, NULL) : 0, n->loss != NULL);
    add_text_or_null(item, "buffer", n->buffer);
    add_text_or_null(item, "background", n->background);
    cJSON *cells = cJSON_AddArrayToObject(item, "cells");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        add_cell(cells, compare, network, t, best_s);
    }
    add_text_or_null(item, "best_tcp",
                     best != UINT32_MAX ? compare->transports[best].name : NULL);
}

char *weft_compare_train_json(const struct weft_compare *compare)
{
    const struct weft_compare_train *t = compare->train;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "job", t->joined);
    cJSON_AddNumberToObject(object, "repetitions", compare->repetitions);
    cJSON_AddNumberToObject(object, "until_loss", (double)t->until_loss);
    add_known(object, "reference_loss", t->reference_loss, t->reference_loss > 0);
    cJSON_AddNumberToObject(object, "check_steps", t->check_steps);
    cJSON *networks = cJSON_AddArrayToObject(object, "networks");
    for (uint32_t n = 0; n < compare->network_count; n++) {
        add_network(networks, compare, n);
    }
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}
