#include "cli/perf/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a cell ---------------------------------------------------------------------------------- */

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static double inner(const cJSON *object, const char *outer, const char *name)
{
    return number(cJSON_GetObjectItemCaseSensitive(object, outer), name);
}

/* The figures of one run, in the order of struct weft_compare_cell. */
enum { IDEAL, MEAN, P50, P90, P99, MAX, DELIVERED, LEAST, GOODPUT, RESENT, CPU, FIGURES };

static void figures_of(const cJSON *run, double figures_p[FIGURES])
{
    figures_p[IDEAL] = number(run, "ideal_ms");
    figures_p[MEAN] = inner(run, "round_ms", "mean");
    figures_p[P50] = inner(run, "round_ms", "p50");
    figures_p[P90] = inner(run, "round_ms", "p90");
    figures_p[P99] = inner(run, "round_ms", "p99");
    figures_p[MAX] = inner(run, "round_ms", "max");
    figures_p[DELIVERED] = inner(run, "delivered_fraction", "mean");
    figures_p[LEAST] = inner(run, "delivered_fraction", "min");
    figures_p[GOODPUT] = number(run, "goodput_gbps");
    figures_p[RESENT] = number(run, "retransmitted_packets");
    figures_p[CPU] = number(run, "cpu_s_per_gb");
}

static void add_undisturbed(const struct weft_compare *compare, uint32_t network,
                            uint32_t transport, struct weft_compare_cell *cell)
{
    struct weft_compare_times times;
    if (weft_compare_times_read(compare, network, transport, true, &times) && times.count > 0) {
        cell->undisturbed_rounds = (uint32_t)times.count;
        cell->undisturbed_p50_ms = times.values[(times.count * 50 + 99) / 100 - 1];
        cell->undisturbed_p99_ms = times.values[(times.count * 99 + 99) / 100 - 1];
    }
    free(times.values);
}

struct weft_compare_cell weft_compare_cell_of(const struct weft_compare *compare, uint32_t network,
                                              uint32_t transport)
{
    static double all[FIGURES][WEFT_COMPARE_REPETITIONS_MAX];
    struct weft_compare_cell cell = {.delivered_min = 1};
    uint32_t answers = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        if (run == NULL) {
            continue;
        }
        cell.runs++;
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(run, "dnf"))) {
            cell.dnf++;
        } else {
            double figures[FIGURES];
            figures_of(run, figures);
            for (int i = 0; i < FIGURES; i++) {
                all[i][answers] = figures[i];
            }
            answers++;
        }
        cJSON_Delete(run);
    }
    cell.answered = answers > cell.dnf;
    for (uint32_t i = 0; i < answers; i++) {
        cell.delivered_min =
            all[LEAST][i] < cell.delivered_min ? all[LEAST][i] : cell.delivered_min;
    }
    cell.ideal_ms = weft_perf_median(all[IDEAL], answers);
    cell.mean_ms = weft_perf_median(all[MEAN], answers);
    cell.p50_ms = weft_perf_median(all[P50], answers);
    cell.p90_ms = weft_perf_median(all[P90], answers);
    cell.p99_ms = weft_perf_median(all[P99], answers);
    cell.max_ms = weft_perf_median(all[MAX], answers);
    cell.delivered_mean = weft_perf_median(all[DELIVERED], answers);
    cell.goodput_gbps = weft_perf_median(all[GOODPUT], answers);
    cell.retransmitted = weft_perf_median(all[RESENT], answers);
    cell.cpu_s_per_gb = weft_perf_median(all[CPU], answers);
    add_undisturbed(compare, network, transport, &cell);
    return cell;
}

/* The transport with the least p99 of those that are kernel TCP; UINT32_MAX: none answered. */
static uint32_t best_tcp(const struct weft_compare *compare, uint32_t network)
{
    uint32_t best = UINT32_MAX;
    double best_ms = 0;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        /* One that leaves data out does less than the others. */
        bool whole = cell.delivered_min == 1;
        if (compare->transports[t].is_tcp && cell.answered && whole &&
            (best == UINT32_MAX || cell.p99_ms < best_ms)) {
            best = t;
            best_ms = cell.p99_ms;
        }
    }
    return best;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_head(const struct weft_compare *compare, const struct weft_compare_network *n)
{
    printf("%s %s x %s bytes, ", compare->pattern, n->senders, n->bytes);
    if (n->loss != NULL) {
        printf("%s, buffer %s, loss %s", compare->rate, n->buffer, n->loss);
        printf(compare->ecn != NULL ? ", ECN at %s" : "", compare->ecn);
        printf("%s", compare->hysteresis ? ", HTB with hysteresis" : "");
    } else if (compare->lab != NULL) {
        printf("lab %s", compare->lab);
    } else {
        printf("loopback");
    }
    printf(": medians of %u repetitions of %u rounds, ms\n", compare->repetitions, compare->rounds);
    printf("%-26s %8s %8s %8s %8s %8s %6s %6s %9s %8s %8s\n", "", "ideal", "mean", "p50", "p99",
           "max", "mean/i", "p99/i", "delivered", "resent", "CPU s/GB");
}

static void print_cell(const char *name, const struct weft_compare_cell *cell, uint32_t repetitions)
{
    if (cell->runs == 0) {
        printf("%-26s not measured\n", name);
        return;
    }
    if (!cell->answered) {
        printf("%-26s DNF (%u of %u)\n", name, cell->dnf, cell->runs);
        return;
    }
    char ideal[16] = "-";
    char mean_ratio[16] = "-";
    char p99_ratio[16] = "-";
    if (cell->ideal_ms > 0) {
        (void)snprintf(ideal, sizeof(ideal), "%.2f", cell->ideal_ms);
        (void)snprintf(mean_ratio, sizeof(mean_ratio), "%.3f", cell->mean_ms / cell->ideal_ms);
        (void)snprintf(p99_ratio, sizeof(p99_ratio), "%.3f", cell->p99_ms / cell->ideal_ms);
    }
    printf("%-26s %8s %8.2f %8.2f %8.2f %8.2f %6s %6s %8.2f%% %8.0f %8.2f", name, ideal,
           cell->mean_ms, cell->p50_ms, cell->p99_ms, cell->max_ms, mean_ratio, p99_ratio,
           100 * cell->delivered_mean, cell->retransmitted, cell->cpu_s_per_gb);
    if (cell->dnf > 0) {
        printf("  DNF %u of %u", cell->dnf, cell->runs);
    }
    if (cell->runs < repetitions) {
        printf("  %u of %u missing", repetitions - cell->runs, repetitions);
    }
    printf("\n");
}

/* Of the rounds that the machine left alone; nothing where nobody watched. */
static void print_undisturbed(const struct weft_compare *compare, uint32_t network)
{
    double best_ms = 0;
    const char *best = NULL;
    bool head = false;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        const char *name = compare->transports[t].name;
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        double p99_ms = cell.undisturbed_p99_ms;
        if (cell.undisturbed_rounds == 0 || !cell.answered) {
            continue;
        }
        if (!head) {
            printf("rounds during which the machine took no processor away, all repetitions in "
                   "one:\n");
            head = true;
        }
        printf("%-26s %8s %8s %8.2f %8.2f %8s %6s %6.3f %9u rounds\n", name, "", "",
               cell.undisturbed_p50_ms, p99_ms, "", "", p99_ms / cell.ideal_ms,
               cell.undisturbed_rounds);
        if (compare->transports[t].is_tcp && cell.delivered_min == 1 &&
            (best == NULL || p99_ms < best_ms)) {
            best = name;
            best_ms = p99_ms;
        }
    }
    for (uint32_t t = 0; best != NULL && t < compare->transport_count; t++) {
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        if (compare->transports[t].is_weft && cell.undisturbed_rounds > 0) {
            printf("p99 of %s is %.3f x that of %s\n", compare->transports[t].name,
                   cell.undisturbed_p99_ms / best_ms, best);
        }
    }
}

static void print_against_tcp(const struct weft_compare *compare, uint32_t network)
{
    uint32_t best = best_tcp(compare, network);
    if (best == UINT32_MAX) {
        return;
    }
    double best_ms = weft_compare_cell_of(compare, network, best).p99_ms;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        if (compare->transports[t].is_weft && cell.answered) {
            printf("p99 of %s is %.3f x that of %s\n", compare->transports[t].name,
                   cell.p99_ms / best_ms, compare->transports[best].name);
        }
    }
}

void weft_compare_text(const struct weft_compare *compare)
{
    for (uint32_t n = 0; n < compare->network_count; n++) {
        print_head(compare, &compare->networks[n]);
        for (uint32_t t = 0; t < compare->transport_count; t++) {
            struct weft_compare_cell cell = weft_compare_cell_of(compare, n, t);
            print_cell(compare->transports[t].name, &cell, compare->repetitions);
        }
        print_against_tcp(compare, n);
        print_undisturbed(compare, n);
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

static void add_medians(cJSON *item, const struct weft_compare_cell *cell)
{
    bool ratio = cell->answered && cell->ideal_ms > 0;
    bool watched = cell->answered && cell->undisturbed_rounds > 0;
    add_known(item, "ideal_ms", cell->ideal_ms, ratio);
    cJSON *times = cJSON_AddObjectToObject(item, "round_ms");
    add_known(times, "mean", cell->mean_ms, cell->answered);
    add_known(times, "p50", cell->p50_ms, cell->answered);
    add_known(times, "p90", cell->p90_ms, cell->answered);
    add_known(times, "p99", cell->p99_ms, cell->answered);
    add_known(times, "max", cell->max_ms, cell->answered);
    cJSON *undisturbed = cJSON_AddObjectToObject(item, "undisturbed_ms");
    cJSON_AddNumberToObject(undisturbed, "rounds", cell->undisturbed_rounds);
    add_known(undisturbed, "p50", cell->undisturbed_p50_ms, watched);
    add_known(undisturbed, "p99", cell->undisturbed_p99_ms, watched);
    add_known(item, "mean_ratio", ratio ? cell->mean_ms / cell->ideal_ms : 0, ratio);
    add_known(item, "p99_ratio", ratio ? cell->p99_ms / cell->ideal_ms : 0, ratio);
    cJSON *delivered = cJSON_AddObjectToObject(item, "delivered_fraction");
    add_known(delivered, "mean", cell->delivered_mean, cell->answered);
    add_known(delivered, "min", cell->delivered_min, cell->answered);
    add_known(item, "goodput_gbps", cell->goodput_gbps, cell->answered);
    add_known(item, "retransmitted_packets", cell->retransmitted, cell->answered);
    add_known(item, "cpu_s_per_gb", cell->cpu_s_per_gb, cell->answered);
}

static void add_cell(cJSON *cells, const struct weft_compare *compare, uint32_t network,
                     uint32_t transport)
{
    struct weft_compare_cell cell = weft_compare_cell_of(compare, network, transport);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, item);
    cJSON_AddStringToObject(item, "name", compare->transports[transport].name);
    cJSON_AddNumberToObject(item, "repetitions", cell.runs);
    cJSON_AddNumberToObject(item, "dnf", cell.dnf);
    add_medians(item, &cell);
    cJSON *runs = cJSON_AddArrayToObject(item, "runs");
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        if (run != NULL) {
            cJSON_AddItemToArray(runs, run);
        }
    }
}

static void add_network(cJSON *networks, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(networks, item);
    cJSON_AddStringToObject(item, "name", n->name);
    cJSON_AddNumberToObject(item, "senders", strtod(n->senders, NULL));
    cJSON_AddNumberToObject(item, "bytes", strtod(n->bytes, NULL));
    add_known(item, "loss", n->loss != NULL ? strtod(n->loss, NULL) : 0, n->loss != NULL);
    if (n->buffer != NULL) {
        cJSON_AddStringToObject(item, "buffer", n->buffer);
    }
    cJSON *cells = cJSON_AddArrayToObject(item, "cells");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        add_cell(cells, compare, network, t);
    }
    uint32_t best = best_tcp(compare, network);
    if (best != UINT32_MAX) {
        cJSON_AddStringToObject(item, "best_tcp", compare->transports[best].name);
    }
}

char *weft_compare_json(const struct weft_compare *compare)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "pattern", compare->pattern);
    cJSON_AddNumberToObject(object, "rounds", compare->rounds);
    cJSON_AddNumberToObject(object, "repetitions", compare->repetitions);
    cJSON *networks = cJSON_AddArrayToObject(object, "networks");
    for (uint32_t n = 0; n < compare->network_count; n++) {
        add_network(networks, compare, n);
    }
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}
