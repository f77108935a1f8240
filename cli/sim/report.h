/* Printing of incast simulation results, shared by `sim incast` and `sim grid`. */
#ifndef WEFT_CLI_SIM_REPORT_H
#define WEFT_CLI_SIM_REPORT_H

#include "sim/incast.h"

static inline double weft_cli_ratio(uint64_t ns, uint64_t ideal_ns)
{
    return (double)ns / (double)ideal_ns;
}

static inline double weft_cli_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static inline double weft_cli_percent(uint32_t ppm)
{
    return (double)ppm / 1e4;
}

/* Print the members of a JSON object, without its braces, on standard output. */
void weft_cli_incast_print_json(const struct weft_incast_config *config,
                                const struct weft_incast_result *result);

#endif
