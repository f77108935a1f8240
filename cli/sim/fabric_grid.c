/* `weft sim fabric --grid`: the speed-up of a policy in each of nine settings.
 *
 * The baselines are the policies without a scheduler: fair, and with --mode sync ring and
 * halving-doubling. The speed of a run is its number of commits; with --mode sync it is 1 / (time
 * of a round), so that a round cut off by the end has no effect. A cell is the policy's speed
 * divided by the best baseline's.
 *
 * Separable: the distance of the table from (a row's factor) x (a column's factor), with the means
 *            of rows and columns as factors. [mlfabric]'s own table is separable within 3.2 %.
 */
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sim/fabric.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 3 };

struct cell {
    double speed_up;
    enum weft_fabric_policy best; /* of the baselines */
    cJSON *json;
};

static const enum weft_fabric_policy baselines[] = {WEFT_FABRIC_FAIR, WEFT_FABRIC_RING,
                                                    WEFT_FABRIC_HALVING_DOUBLING};

static bool has_baseline(const struct weft_fabric_config *config, enum weft_fabric_policy baseline)
{
    return config->mode == WEFT_FABRIC_SYNC || !weft_fabric_is_all_reduce(baseline);
}

const char *weft_cli_fabric_grid_check(const struct weft_fabric_config *config,
                                       char error_p[WEFT_CLI_FABRIC_ERROR_BYTES])
{
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(baselines); i++) {
        struct weft_fabric_config at = *config;
        at.policy = baselines[i];
        const char *wrong =
            has_baseline(config, baselines[i]) ? weft_fabric_config_check(&at) : NULL;
        if (wrong != NULL) {
            (void)snprintf(error_p, WEFT_CLI_FABRIC_ERROR_BYTES, "--grid also runs %s: %s",
                           weft_fabric_policy_name(baselines[i]), wrong);
            return error_p;
        }
    }
    return NULL;
}

static double speed_of(const struct weft_fabric_config *config,
                       const struct weft_fabric_result *result)
{
    if (config->mode == WEFT_FABRIC_SYNC) {
        return result->makespan_ns > 0 ? 1e9 / (double)result->makespan_ns : 0;
    }
    return (double)result->commits / ((double)config->duration_ns / 1e9);
}

/* One run of the cell, which becomes a member of its object. False: a check failed, which was
 * reported. */
static bool run_one(struct weft_fabric_config config, enum weft_fabric_policy policy, cJSON *runs,
                    double *speed_p)
{
    static struct weft_fabric_result result;
    config.policy = policy;
    weft_fabric_run(&config, &result);
    *speed_p = speed_of(&config, &result);
    if (!result.ok) {
        (void)weft_cli_fail("sim fabric", "%s, %s, %s: %s", config.compute.name,
                            config.network.name, weft_fabric_policy_name(policy), result.failure);
        return false;
    }
    cJSON *run = cJSON_AddObjectToObject(runs, weft_fabric_policy_name(policy));
    weft_cli_fabric_add_result(run, &config, &result);
    return true;
}

static bool run_cell(const struct weft_fabric_config *config, struct cell *cell)
{
    cJSON *runs = cJSON_CreateObject();
    double speed = 0;
    double best = 0;
    bool good = run_one(*config, config->policy, runs, &speed);
    for (uint32_t i = 0; good && i < WEFT_ARRAY_COUNT(baselines); i++) {
        double baseline = 0;
        if (!has_baseline(config, baselines[i])) {
            continue;
        }
        good = run_one(*config, baselines[i], runs, &baseline);
        if (baseline > best) {
            best = baseline;
            cell->best = baselines[i];
        }
    }
    cell->speed_up = best > 0 ? speed / best : 0;
    cell->json = cJSON_CreateObject();
    cJSON_AddStringToObject(cell->json, "compute", config->compute.name);
    cJSON_AddStringToObject(cell->json, "network", config->network.name);
    cJSON_AddNumberToObject(cell->json, "speed_up", cell->speed_up);
    cJSON_AddStringToObject(cell->json, "best_baseline", weft_fabric_policy_name(cell->best));
    cJSON_AddItemToObject(cell->json, "runs", runs);
    return good;
}

/* Largest distance of a cell from its row's mean x its column's mean / the mean of all. */
static double inseparable(const struct cell cells[SIDE][SIDE])
{
    double row[SIDE] = {0};
    double column[SIDE] = {0};
    double all = 0;
    double most = 0;
    for (int c = 0; c < SIDE; c++) {
        for (int n = 0; n < SIDE; n++) {
            row[c] += cells[c][n].speed_up / SIDE;
            column[n] += cells[c][n].speed_up / SIDE;
            all += cells[c][n].speed_up / (SIDE * SIDE);
        }
    }
    for (int c = 0; all > 0 && c < SIDE; c++) {
        for (int n = 0; n < SIDE; n++) {
            double distance = cells[c][n].speed_up / (row[c] * column[n] / all) - 1;
            distance = distance < 0 ? -distance : distance;
            most = distance > most ? distance : most;
        }
    }
    return most;
}

static void print_text(const struct weft_fabric_config *config, const struct cell cells[SIDE][SIDE])
{
    printf("%s over the best baseline, %s, %u workers, %u servers, %g s\n",
           weft_fabric_policy_name(config->policy), weft_fabric_mode_name(config->mode),
           config->workers, config->servers, (double)config->duration_ns / 1e9);
    printf("      %-24s %-24s %s\n", "NS1", "NS2", "NS3");
    for (int c = 0; c < SIDE; c++) {
        printf("CS%d  ", c + 1);
        for (int n = 0; n < SIDE; n++) {
            printf(" %5.2f %-18s", cells[c][n].speed_up, weft_fabric_policy_name(cells[c][n].best));
        }
        printf("\n");
    }
    printf("row x column fits within %.1f %%\n", 100 * inseparable(cells));
}

static cJSON *json_of(const struct weft_fabric_config *config, struct cell cells[SIDE][SIDE])
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "policy", weft_fabric_policy_name(config->policy));
    cJSON_AddStringToObject(o, "mode", weft_fabric_mode_name(config->mode));
    cJSON_AddNumberToObject(o, "workers", config->workers);
    cJSON_AddNumberToObject(o, "servers", config->servers);
    cJSON_AddNumberToObject(o, "seconds", (double)config->duration_ns / 1e9);
    cJSON_AddNumberToObject(o, "seed", (double)config->seed);
    cJSON_AddNumberToObject(o, "row_times_column_error", inseparable(cells));
    cJSON *list = cJSON_AddArrayToObject(o, "cells");
    for (int c = 0; c < SIDE; c++) {
        for (int n = 0; n < SIDE; n++) {
            cJSON_AddItemToArray(list, cells[c][n].json);
            cells[c][n].json = NULL;
        }
    }
    return o;
}

int weft_cli_fabric_grid(const struct weft_fabric_config *config, bool json)
{
    static const char *const computes[SIDE] = {"CS1", "CS2", "CS3"};
    static const char *const networks[SIDE] = {"NS1", "NS2", "NS3"};
    struct cell cells[SIDE][SIDE] = {0};
    bool good = true;
    for (int c = 0; c < SIDE; c++) {
        for (int n = 0; good && n < SIDE; n++) {
            struct weft_fabric_config at = *config;
            at.compute = *weft_fabric_compute_find(computes[c]);
            at.network = *weft_fabric_network_find(networks[n]);
            good = run_cell(&at, &cells[c][n]);
        }
    }
    if (good && json) {
        good = weft_output_json("sim fabric", json_of(config, cells), false);
    } else if (good) {
        print_text(config, cells);
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        cJSON_Delete(cells[i / SIDE][i % SIDE].json);
    }
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
