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
};

#define WEFT_LOAD_WORKLOAD_DEFAULTS                                                                \
    {                                                                                              \
        .workers = 16, .rows = 64, .dim = 16, .mix = {.push = 1, .pull = 1},                       \
        .top = {.keys = 20000, .share = 0.5}, .keys = 150000000, .id_bits = 64, .in_flight = 1,    \
        .seconds = 10, .warmup = 1, .seed = 1,                                                     \
    }

const char *weft_load_parse_mix(const char *text, void *value);
const char *weft_load_parse_top(const char *text, void *value);
const char *weft_load_parse_id_bits(const char *text, void *value);
const char *weft_load_parse_rate(const char *text, void *value);
const char *weft_load_parse_seconds(const char *text, void *value);
const char *weft_load_parse_warmup(const char *text, void *value);
/* "S1" .. "S6" of [imc20] Table 2: sets workers and shards of the workload. */
const char *weft_load_parse_scale(const char *text, void *value);

/* Rows of an option table: those that a workload file may have, too. */
#define WEFT_LOAD_WORKLOAD_OPTIONS(w)                                                                \
    {"local",                                                                                        \
     "S",                                                                                            \
     "start S shards here, a thread each, for this run",                                             \
     WEFT_OPTION_U32,                                                                                \
     .value = &(w)->shards,                                                                          \
     .min = 1,                                                                                       \
     .max = WEFT_LOAD_SHARDS_MAX,                                                                    \
     .fallback = ""},                                                                                \
        {"workers",                                                                                  \
         "W",                                                                                        \
         "logical workers, each with an endpoint and a rank of its own",                             \
         WEFT_OPTION_U32,                                                                            \
         .value = &(w)->workers,                                                                     \
         .min = 1,                                                                                   \
         .max = WEFT_LOAD_WORKERS_MAX},                                                              \
        {"scale",                                                                                    \
         "NAME",                                                                                     \
         "workers and shards of [imc20] Table 2: S1 = 80 + 20, S2 = 120 + 30,\n"                     \
         "S3 = 160 + 40, S4 = 200 + 50, S5 = 240 + 60, S6 = 280 + 70",                               \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = (w),                                                                               \
         .parse = weft_load_parse_scale,                                                             \
         .fallback = ""},                                                                            \
        {"rows",                                                                                     \
         "N",                                                                                        \
         "rows of a request; they go to the shards that have them. 0 = requests\n"                   \
         "that carry nothing, each to one shard: what an RPC costs at least",                        \
         WEFT_OPTION_U32,                                                                            \
         .value = &(w)->rows,                                                                        \
         .max = WEFT_LOAD_ROWS_MAX},                                                                 \
        {"dim", "D", "floats of a row", WEFT_OPTION_U32, .value = &(w)->dim, .min = 1, .max = 1024}, \
        {"mix",                                                                                      \
         "PUSH:PULL",                                                                                \
         "parts of pushes and of pulls among the requests",                                          \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->mix,                                                                         \
         .parse = weft_load_parse_mix,                                                               \
         .fallback = "1:1"},                                                                         \
        {"keys",                                                                                     \
         "K",                                                                                        \
         "different keys",                                                                           \
         WEFT_OPTION_U64,                                                                            \
         .value = &(w)->keys,                                                                        \
         .min = 2,                                                                                   \
         .max = UINT64_C(1) << 40},                                                                  \
        {"zipf-top",                                                                                 \
         "N:F",                                                                                      \
         "popularity by Zipf's law: the N most popular keys take the fraction F",                    \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->top,                                                                         \
         .parse = weft_load_parse_top,                                                               \
         .fallback = "20000:0.5"},                                                                   \
        {"id-bits",                                                                                  \
         "B",                                                                                        \
         "ids are spread over 64 or 32 bits",                                                        \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->id_bits,                                                                     \
         .parse = weft_load_parse_id_bits,                                                           \
         .fallback = "64"},                                                                          \
        {"in-flight",                                                                                \
         "N",                                                                                        \
         "requests of one worker at a time",                                                         \
         WEFT_OPTION_U32,                                                                            \
         .value = &(w)->in_flight,                                                                   \
         .min = 1,                                                                                   \
         .max = WEFT_LOAD_IN_FLIGHT_MAX},                                                            \
        {"rate",                                                                                     \
         "R",                                                                                        \
         "open loop: R requests a second of all workers together, at random times\n"                 \
         "(Poisson) whatever the servers do; latency counts from the time meant",                    \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->rate,                                                                        \
         .parse = weft_load_parse_rate,                                                              \
         .fallback = "closed loop: the next request when one is answered"},                          \
        {"seconds",                                                                                  \
         "T",                                                                                        \
         "how long to measure",                                                                      \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->seconds,                                                                     \
         .parse = weft_load_parse_seconds,                                                           \
         .fallback = "10"},                                                                          \
        {"warmup",                                                                                   \
         "T",                                                                                        \
         "seconds of load before that, which count for nothing",                                     \
         WEFT_OPTION_CUSTOM,                                                                         \
         .value = &(w)->warmup,                                                                      \
         .parse = weft_load_parse_warmup,                                                            \
         .fallback = "1"},                                                                           \
    {                                                                                                \
        "seed", "N", "of keys, arrivals and the order of pushes and pulls", WEFT_OPTION_U64,         \
            .value = &(w)->seed                                                                      \
    }

/* Take the file's lines as options of the command.
 * Returns WEFT_OPTIONS_RUN, or an exit status with a sentence printed that names the line. */
int weft_load_workload_read(const struct weft_command *command, const char *path);

/* A file that weft_load_workload_read takes for the same workload. */
void weft_load_workload_print(const struct weft_load_workload *workload, FILE *out);

#endif
