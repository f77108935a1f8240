/* The results of a comparison as a table and as JSON; the operation's list of figures defines the
 * columns and members. */
#include "cli/output.h"
#include "cli/perf/compare.h"
#include "cli/perf/figures.h"

#include <stdlib.h>
#include <string.h>

/* ---- cells ----------------------------------------------------------------------------------- */

/* Over the completed repetitions of a cell. Sorts. */
static double summarize(enum weft_compare_of of, double *values, uint32_t count)
{
    double median = weft_perf_median(values, count);
    if (count == 0 || of == WEFT_COMPARE_MEDIAN) {
        return median;
    }
    return of == WEFT_COMPARE_LEAST ? values[0]
           : of == WEFT_COMPARE_P90 ? weft_perf_rank(values, count, 90)
                                    : values[count - 1];
}

static void make_cell(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                      struct weft_compare_cell *cell)
{
    static double all[WEFT_COMPARE_FIGURES_MAX][WEFT_COMPARE_REPETITIONS_MAX];
    const struct weft_compare_op *op = compare->op;
    double ranks[WEFT_COMPARE_REPETITIONS_MAX];
    uint32_t repetitions[WEFT_COMPARE_REPETITIONS_MAX];
    uint32_t answers = 0;
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        bool answered = run != NULL && op->has_answer(run);
        cell->runs += run != NULL;
        cell->dnf += run != NULL && !answered;
        for (uint32_t i = 0; answered && i < op->figure_count; i++) {
            const char *path = op->figures[i].path;
            all[i][answers] = path != NULL ? weft_compare_number(run, path) : 0;
        }
        if (answered) {
            ranks[answers] = all[op->rank_by][answers];
            repetitions[answers++] = r;
        }
        cJSON_Delete(run);
    }
    cell->answered = answers > cell->dnf;
    for (uint32_t i = 0; i < op->figure_count; i++) {
        cell->values[i] = summarize(op->figures[i].of, all[i], answers);
    }
    for (uint32_t i = 0; i < answers; i++) {
        if (ranks[i] == all[op->rank_by][(answers - 1) / 2]) {
            cell->typical = repetitions[i];
        }
    }
    if (op->more != NULL) {
        op->more(compare, network, transport, cell);
    }
}

static uint32_t best_tcp(const struct weft_compare *compare, const struct weft_compare_cell *cells)
{
    const struct weft_compare_op *op = compare->op;
    uint32_t best = UINT32_MAX;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        const double *values = cells[t].values;
        bool whole = op->whole == UINT32_MAX || values[op->whole] == 1;
        if (compare->transports[t].is_tcp && cells[t].answered && whole &&
            (best == UINT32_MAX || values[op->rank_by] < cells[best].values[op->rank_by])) {
            best = t;
        }
    }
    return best;
}

static void add_ratios(const struct weft_compare_op *op, struct weft_compare_cell *cell,
                       const struct weft_compare_cell *best)
{
    for (uint32_t i = 0; i < op->figure_count; i++) {
        const struct weft_compare_figure *figure = &op->figures[i];
        double over = 0;
        if (figure->of == WEFT_COMPARE_RATIO) {
            over = cell->values[figure->over];
        } else if (figure->of == WEFT_COMPARE_TO_BEST) {
            over = best != NULL ? best->values[figure->by] : 0;
        } else {
            continue;
        }
        cell->values[i] = over > 0 ? cell->values[figure->by] / over : 0;
    }
}

struct weft_compare_cell *weft_compare_cells(const struct weft_compare *compare, uint32_t network,
                                             uint32_t *best_p)
{
    struct weft_compare_cell *cells = calloc(compare->transport_count, sizeof(*cells));
    if (cells == NULL) {
        return NULL;
    }
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        make_cell(compare, network, t, &cells[t]);
    }
    *best_p = best_tcp(compare, cells);
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        add_ratios(compare->op, &cells[t], *best_p != UINT32_MAX ? &cells[*best_p] : NULL);
    }
    return cells;
}

static bool is_known(const struct weft_compare_cell *cell, const struct weft_compare_figure *figure,
                     double value)
{
    return figure->known == WEFT_COMPARE_ALWAYS ||
           (cell->answered && (figure->known == WEFT_COMPARE_ANSWERED || value != 0));
}

/* ---- text ------------------------------------------------------------------------------------ */

void weft_compare_print_network(FILE *out, const struct weft_compare *compare, uint32_t network)
{
    const struct weft_compare_network *n = &compare->networks[network];
    if (n->loss != NULL) {
        fprintf(out, "%s, buffer %s, loss %s", compare->rate, n->buffer, n->loss);
        fprintf(out, compare->ecn != NULL ? ", ECN at %s" : "", compare->ecn);
        fprintf(out, "%s", compare->hysteresis ? ", HTB with hysteresis" : "");
    } else if (compare->lab != NULL) {
        fprintf(out, "lab %s%s", compare->lab, compare->offload ? ", segmentation offload" : "");
    } else {
        fprintf(out, "loopback");
    }
    if (compare->busy > 0) {
        fprintf(out, ", %u busy process%s", compare->busy, compare->busy > 1 ? "es" : "");
    }
}

static void print_cell(const struct weft_compare *compare, uint32_t transport,
                       const struct weft_compare_cell *cell)
{
    printf("%-26s", compare->transports[transport].name);
    if (cell->runs == 0) {
        printf(" not measured\n");
        return;
    }
    if (!cell->answered) {
        printf(" DNF (%u of %u)\n", cell->dnf, cell->runs);
        return;
    }
    for (uint32_t i = 0; i < compare->op->figure_count; i++) {
        const struct weft_compare_figure *figure = &compare->op->figures[i];
        double value = cell->values[i];
        if (figure->head != NULL && is_known(cell, figure, value)) {
            printf(" %*.*f%s", figure->width - figure->percent, figure->digits,
                   figure->percent ? 100 * value : value, figure->percent ? "%" : "");
        } else if (figure->head != NULL) {
            printf(" %*s", figure->width, "-");
        }
    }
    if (cell->dnf > 0) {
        printf("  DNF %u of %u", cell->dnf, cell->runs);
    }
    if (cell->runs < compare->repetitions) {
        printf("  %u of %u missing", compare->repetitions - cell->runs, compare->repetitions);
    }
    printf("\n");
}

static void print_network(const struct weft_compare *compare, uint32_t network,
                          const struct weft_compare_cell *cells, uint32_t best)
{
    const struct weft_compare_op *op = compare->op;
    op->text_head(compare, network);
    printf("%-26s", "");
    for (uint32_t i = 0; i < op->figure_count; i++) {
        if (op->figures[i].head != NULL) {
            printf(" %*s", op->figures[i].width, op->figures[i].head);
        }
    }
    printf("\n");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        print_cell(compare, t, &cells[t]);
    }
    if (op->text_tail != NULL) {
        op->text_tail(compare, cells, best);
    }
    printf("%s", network + 1 < compare->network_count ? "\n" : "");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* "round_ms.p99": in an object of that name, created by the first such figure. */
static void add_figure(cJSON *item, const char *key, double value, bool known)
{
    const char *dot = strchr(key, '.');
    if (dot != NULL) {
        char outer[64];
        (void)snprintf(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
        cJSON *inner = cJSON_GetObjectItemCaseSensitive(item, outer);
        item = inner != NULL ? inner : cJSON_AddObjectToObject(item, outer);
        key = dot + 1;
    }
    weft_json_add_known(item, key, value, known);
}

static void add_cell(cJSON *cells, const struct weft_compare *compare, uint32_t network,
                     uint32_t transport, const struct weft_compare_cell *cell)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, item);
    cJSON_AddStringToObject(item, "name", compare->transports[transport].name);
    cJSON_AddNumberToObject(item, "repetitions", cell->runs);
    cJSON_AddNumberToObject(item, "dnf", cell->dnf);
    for (uint32_t i = 0; i < compare->op->figure_count; i++) {
        const struct weft_compare_figure *figure = &compare->op->figures[i];
        add_figure(item, figure->key != NULL ? figure->key : figure->path, cell->values[i],
                   is_known(cell, figure, cell->values[i]));
    }
    cJSON *runs = cJSON_AddArrayToObject(item, "runs");
    for (uint32_t r = 0; r < compare->repetitions; r++) {
        cJSON *run = weft_compare_load(compare, network, transport, r);
        if (run != NULL) {
            cJSON_AddItemToArray(runs, run);
        }
    }
}

static void add_text(const struct weft_compare *compare, cJSON *item, const char *key,
                     const char *text)
{
    if (text != NULL || compare->op->nulls) {
        weft_json_add_text(item, key, text);
    }
}

static void add_network(cJSON *networks, const struct weft_compare *compare, uint32_t network,
                        const struct weft_compare_cell *cells, uint32_t best)
{
    const struct weft_compare_network *n = &compare->networks[network];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(networks, item);
    cJSON_AddStringToObject(item, "name", n->name);
    if (n->senders != NULL) {
        cJSON_AddNumberToObject(item, "senders", strtod(n->senders, NULL));
        cJSON_AddNumberToObject(item, "bytes", strtod(n->bytes, NULL));
    }
    weft_json_add_known(item, "loss", n->loss != NULL ? strtod(n->loss, NULL) : 0, n->loss != NULL);
    add_text(compare, item, "buffer", n->buffer);
    add_text(compare, item, "background", n->background);
    cJSON_AddNumberToObject(item, "busy", compare->busy);
    cJSON *list = cJSON_AddArrayToObject(item, "cells");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        add_cell(list, compare, network, t, &cells[t]);
    }
    add_text(compare, item, "best_tcp", best != UINT32_MAX ? compare->transports[best].name : NULL);
}

cJSON *weft_compare_report(const struct weft_compare *compare, bool quiet)
{
    cJSON *object = cJSON_CreateObject();
    compare->op->json_head(compare, object);
    cJSON *networks = cJSON_AddArrayToObject(object, "networks");
    for (uint32_t n = 0; n < compare->network_count; n++) {
        uint32_t best;
        struct weft_compare_cell *cells = weft_compare_cells(compare, n, &best);
        if (cells == NULL) {
            cJSON_Delete(object);
            return NULL;
        }
        add_network(networks, compare, n, cells, best);
        if (!quiet) {
            print_network(compare, n, cells, best);
        }
        free(cells);
    }
    return object;
}
