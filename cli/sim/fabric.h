/* Shared by the files of `weft sim fabric`. */
#ifndef WEFT_CLI_SIM_FABRIC_H
#define WEFT_CLI_SIM_FABRIC_H

#include "cli/fabric_settings.h"
#include "sim/fabric.h"

#include <cjson/cJSON.h>

/* ---- pictures -------------------------------------------------------------------------------- */

struct weft_cli_fabric_spans {
    struct weft_fabric_span *spans;
    size_t count;
    size_t room;
    bool lost; /* no memory */
};

/* on_span of a run; arg is the spans. */
void weft_cli_fabric_take_span(void *arg, const struct weft_fabric_span *span);

/* A Gantt chart: a PNG, and beside it the script of gnuplot that drew it. A Chrome trace. False:
 * reported on standard error. */
bool weft_cli_fabric_gantt(const char *path, const struct weft_fabric_config *config,
                           const struct weft_cli_fabric_spans *spans);
bool weft_cli_fabric_chrome(const char *path, const struct weft_fabric_config *config,
                            const struct weft_cli_fabric_spans *spans);

/* Check the names of both before the run: no output is an input, of (count,), or the other one.
 * NULL names are allowed. False: reported on standard error. */
bool weft_cli_fabric_outputs_good(const char *gantt, const char *chrome, const char *const *inputs,
                                  uint32_t count);

/* ---- the grid -------------------------------------------------------------------------------- */

/* Can the baselines also run with this configuration? NULL, or the reason why not, in error_p. */
const char *weft_cli_fabric_grid_check(const struct weft_fabric_config *config,
                                       char error_p[WEFT_CLI_FABRIC_ERROR_BYTES]);

/* Run CS1-CS3 x NS1-NS3 with all else as in a checked config; returns the exit status. */
int weft_cli_fabric_grid(const struct weft_fabric_config *config, bool json);

/* The figures of a run as members of an object. */
void weft_cli_fabric_add_result(cJSON *object, const struct weft_fabric_config *config,
                                const struct weft_fabric_result *result);

#endif
