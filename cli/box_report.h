/* The options and the report of an aggregation box in the kernel, shared by `weft aggregate --xdp`
 * and `weft lab box`. */
#ifndef WEFT_CLI_BOX_REPORT_H
#define WEFT_CLI_BOX_REPORT_H

#include "cli/options.h"
#include "lab/aggregate.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* WEFT_OPTION_CUSTOM with an int32_t: -126 to 127. */
const char *weft_box_parse_exponent(const char *text, void *value);

/* The members 0 .. count - 1 as a word. Shape: count 1 to 64. */
uint64_t weft_box_members(uint32_t count);

/* Add the configuration and the counters, all verdicts, to an object. */
void weft_box_report_json(cJSON *object, const struct weft_aggregate_facts *facts,
                          const struct weft_aggregate_counts *counts);

/* Print two lines on standard output: packets that were added, and those that were not; more if
 * something is wrong. False: an error "weft VERB: ..." was printed, because a write failed. */
bool weft_box_report_print(const char *verb, const struct weft_aggregate_counts *counts);

#endif
