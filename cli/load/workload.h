/* The workload of `weft load`: one description, from options and a workload file, so that others
 * can repeat a run.
 *
 * A workload file has a line `key = value` for each setting that differs from its default; `#`
 * starts a comment. Keys are the names of the corresponding options (docs/LOAD.md lists them).
 * Command-line options take precedence. */
#ifndef WEFT_CLI_LOAD_WORKLOAD_H
#define WEFT_CLI_LOAD_WORKLOAD_H

#include "cli/options.h"

#include "base/status.h"

#include <stdio.h>

enum {
    WEFT_LOAD_WORKERS_MAX = 1000,
    WEFT_LOAD_SHARDS_MAX = 128,
    WEFT_LOAD_ROWS_MAX = 65536,
    WEFT_LOAD_IN_FLIGHT_MAX = 16,
};

struct weft_load_mix {
    uint32_t push; /* ratio; not both 0 */
    uint32_t pull;
};

struct weft_load_top {
    uint64_t keys;
    double share; /* fraction of all updates for these keys */
};

/* AUTO: NO_EVICTION with aggregators, else LRU; one of these two once the options are checked. */
enum weft_load_eviction { WEFT_LOAD_EVICTION_AUTO, WEFT_LOAD_LRU, WEFT_LOAD_NO_EVICTION };
extern const char *const weft_load_evictions[];

struct weft_load_workload {
    uint32_t workers;
    uint32_t shards; /* --local; 0 = --servers */
    uint32_t rows;   /* per request; 0 = empty requests */
    uint32_t dim;
    struct weft_load_mix mix;
    struct weft_load_top top;
    uint64_t keys;
    uint32_t id_bits;   /* 64 or 32 */
    uint32_t in_flight; /* outstanding requests per worker */
    double rate;        /* requests/s over all workers; 0 = closed loop */
    double seconds;
    double warmup; /* seconds before the measurement */
    uint64_t seed;
    uint32_t no_key_caching; /* 1: pushes always send their ids */
    uint32_t eviction;       /* index into weft_load_evictions */
};

#define WEFT_LOAD_WORKLOAD_DEFAULTS                                                                \
    {                                                                                              \
        .workers = 16, .rows = 64, .dim = 16, .mix = {.push = 1, .pull = 1},                       \
        .top = {.keys = 20000, .share = 0.5}, .keys = 150000000, .id_bits = 64, .in_flight = 1,    \
        .seconds = 10, .warmup = 1, .seed = 1,                                                     \
    }

/* Parsers for option tables: PUSH:PULL, KEYS:FRACTION, 64 or 32. */
const char *weft_load_parse_mix(const char *text, void *value);
const char *weft_load_parse_top(const char *text, void *value);
const char *weft_load_parse_id_bits(const char *text, void *value);
/* "S1" .. "S6" of [imc20] Table 2: sets workers and shards of the workload. */
const char *weft_load_parse_scale(const char *text, void *value);

/* Process the file's lines as options of the command.
 * Returns WEFT_OPTIONS_RUN, or an exit status after an error message with the line number. */
int weft_load_workload_read(const struct weft_command *command, const char *path);

/* Write a file from which weft_load_workload_read reads the same workload. */
void weft_load_workload_print(const struct weft_load_workload *workload, FILE *out);

#endif
