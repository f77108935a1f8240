/* What `weft load` does to the servers: one description, from options and from a workload file, so
 * that a run can be repeated by others.
 *
 * A workload file has a line `key = value` for each thing that differs from the defaults; `#` begins
 * a comment. Keys are the names of the options of the same meaning (docs/LOAD.md lists them).
 * Options of the command line win over the file.
 */
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
    uint32_t push; /* parts; not both 0 */
    uint32_t pull;
};

struct weft_load_top {
    uint64_t keys;
    double share; /* of all updates that go to them */
};

/* AUTO: NO_EVICTION with aggregators, else LRU; one of these two once the options are checked. */
enum weft_load_eviction { WEFT_LOAD_EVICTION_AUTO, WEFT_LOAD_LRU, WEFT_LOAD_NO_EVICTION };
extern const char *const weft_load_evictions[];

struct weft_load_workload {
    uint32_t workers;
    uint32_t shards; /* --local; 0 = --servers */
    uint32_t rows;   /* of a request; 0 = requests that carry nothing */
    uint32_t dim;
    struct weft_load_mix mix;
    struct weft_load_top top;
    uint64_t keys;
    uint32_t id_bits;   /* 64 or 32 */
    uint32_t in_flight; /* requests of one worker at a time */
    double rate;        /* requests a second, all workers together; 0 = closed loop */
    double seconds;
    double warmup; /* seconds before that, not measured */
    uint64_t seed;
    uint32_t no_key_caching; /* 1: pushes send their ids, whatever was pulled */
    uint32_t eviction;       /* an index of weft_load_evictions */
};

#define WEFT_LOAD_WORKLOAD_DEFAULTS                                                                \
    {                                                                                              \
        .workers = 16, .rows = 64, .dim = 16, .mix = {.push = 1, .pull = 1},                       \
        .top = {.keys = 20000, .share = 0.5}, .keys = 150000000, .id_bits = 64, .in_flight = 1,    \
        .seconds = 10, .warmup = 1, .seed = 1,                                                     \
    }

/* For option tables: PUSH:PULL, KEYS:FRACTION, 64 or 32. */
const char *weft_load_parse_mix(const char *text, void *value);
const char *weft_load_parse_top(const char *text, void *value);
const char *weft_load_parse_id_bits(const char *text, void *value);
/* "S1" .. "S6" of [imc20] Table 2: sets workers and shards of the workload. */
const char *weft_load_parse_scale(const char *text, void *value);

/* Take the file's lines as options of the command.
 * Returns WEFT_OPTIONS_RUN, or an exit status with a sentence printed that names the line. */
int weft_load_workload_read(const struct weft_command *command, const char *path);

/* A file that weft_load_workload_read takes for the same workload. */
void weft_load_workload_print(const struct weft_load_workload *workload, FILE *out);

#endif
