/* What the parts of `weft perf compare` share (compare.c has the essay). */
#ifndef WEFT_CLI_PERF_COMPARE_H
#define WEFT_CLI_PERF_COMPARE_H

#include "cli/perf/figures.h"
#include "job/args.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    WEFT_COMPARE_LIST_MAX = 24,
    WEFT_COMPARE_NETWORKS_MAX = 64,
    WEFT_COMPARE_NAME_BYTES = 128,
    WEFT_COMPARE_PATH_BYTES = 1024,
    WEFT_COMPARE_REPETITIONS_MAX = 101,
    /* Behind it come the network's and the measurement's names. */
    WEFT_COMPARE_OUT_BYTES_MAX = WEFT_COMPARE_PATH_BYTES - 2 * WEFT_COMPARE_NAME_BYTES - 32,
};

/* "a,b,c", cut. */
struct weft_compare_list {
    char room[1024];
    const char *items[WEFT_COMPARE_LIST_MAX];
    uint32_t count;
};

/* "tcp-raw:cubic:rto5" and what it means as options of a pattern. */
struct weft_compare_transport {
    const char *name; /* as written */
    char words[12][40];
    uint32_t word_count;
    bool is_weft; /* weft's own transport */
    bool is_tcp;  /* kernel TCP, raw or under weft's messages */
    bool secure;  /* takes --security */
};

struct weft_compare_network {
    const char *senders;
    const char *bytes;
    const char *loss; /* NULL: of the lab that is there, or loopback */
    const char *buffer;
    const char *background;             /* NULL: none */
    uint32_t hosts;                     /* of a lab made for it */
    char name[WEFT_COMPARE_NAME_BYTES]; /* folder of its cells */
};

struct weft_compare_train;

struct weft_compare {
    const char *pattern;
    struct weft_compare_train *train; /* NULL: rounds of the pattern, else jobs (compare_train.h) */
    struct weft_compare_transport transports[WEFT_COMPARE_LIST_MAX];
    uint32_t transport_count;
    struct weft_compare_network networks[WEFT_COMPARE_NETWORKS_MAX];
    uint32_t network_count;
    const char *rate;
    const char *ecn;
    const char *security;
    const char *lab; /* an existing one; or, inside, the one of this network */
    bool loopback;
    bool realtime;   /* of the participants' processes */
    bool hysteresis; /* weft_compare_hysteresis */
    uint32_t packet_bytes;
    uint32_t rounds;
    uint32_t repetitions;
    const char *out; /* the folder of the results */
};

/* Several runs of one transport on one network. */
struct weft_compare_cell {
    uint32_t runs;
    uint32_t dnf;    /* of these, without an answer */
    bool answered;   /* most runs were: the medians stand for something */
    double ideal_ms; /* 0 = not known */
    double mean_ms;  /* medians over the runs, also below */
    double p50_ms;
    double p90_ms;
    double p99_ms;
    double max_ms;
    double delivered_mean;
    double delivered_min; /* the least of all runs */
    double goodput_gbps;
    double retransmitted;
    double cpu_s_per_gb;
    uint32_t undisturbed_rounds; /* of all runs together */
    double undisturbed_p50_ms;   /* of all of them in one; 0: there are none */
    double undisturbed_p99_ms;
};

/* ---- what is compared (compare_spec.c) ------------------------------------------------------- */

/* NULL, or what is allowed. */
const char *weft_compare_list_cut(const char *text, struct weft_compare_list *list_p);

/* The first item that is not a number from least to most, or NULL. */
const char *weft_compare_check_numbers(const struct weft_compare_list *list, double least,
                                       double most);
const char *weft_compare_transport_parse(const char *text, struct weft_compare_transport *p);

/* ---- measuring (compare_run.c) --------------------------------------------------------------- */

/* Path of a result; extension "json" or "rounds". */
void weft_compare_path(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                       uint32_t repetition, const char *extension,
                       char path_p[static WEFT_COMPARE_PATH_BYTES]);

/* Whether the buckets of its networks have HTB's hysteresis: those of the lab that is there, or of
 * one that would be made now. False on loopback. */
bool weft_compare_hysteresis(const struct weft_compare *compare);

/* A finished result with the settings of this comparison, or NULL. Owns: gives. */
cJSON *weft_compare_load(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                         uint32_t repetition);

/* The object in a file, or NULL. Owns: gives. */
cJSON *weft_compare_read(const char *path);

/* Run this program with these arguments until it ends; asked to stop, it is asked as well. Its
 * standard output goes to `output`, NULL = to our standard error. True: it succeeded.
 * Owns: takes the arguments. */
bool weft_compare_run_self(struct weft_args *args, const char *output);

/* Measure what is not there yet; networks are brought up, one after the other, as needed. Returns
 * the number of measurements that failed or were not made. */
uint32_t weft_compare_measure(const struct weft_compare *compare);

/* ---- round times (compare_rounds.c) ---------------------------------------------------------- */

struct weft_compare_times {
    double *values; /* ms, ascending */
    size_t count;
    size_t room;
};

/* All rounds of all repetitions, or only those during which the machine took no processor away
 * (weft perf --realtime notes it). False: no memory. Owns: gives values; free() them in any case. */
bool weft_compare_times_read(const struct weft_compare *compare, uint32_t network,
                             uint32_t transport, bool undisturbed,
                             struct weft_compare_times *times_p);

/* ---- results (compare_report.c, compare_plot.c) ---------------------------------------------- */

struct weft_compare_cell weft_compare_cell_of(const struct weft_compare *compare, uint32_t network,
                                              uint32_t transport);
void weft_compare_text(const struct weft_compare *compare);

/* Measure and report; the exit status. inside: in a network made for it, where only measuring is
 * due. */
int weft_compare_run(struct weft_compare *compare, bool inside, bool json, const char *plot);

/* NULL: no memory. Owns: gives. */
char *weft_compare_json(const struct weft_compare *compare);

/* For each network NAME-cdf.png and NAME-bars.png, with the gnuplot scripts that made them; false:
 * a sentence is on standard error. */
bool weft_compare_plot(const struct weft_compare *compare, const char *folder);

/* One picture of that kind, NAME-KIND.png, from a script that `write` writes; the folder is there. */
bool weft_compare_plot_one(const struct weft_compare *compare, uint32_t network, const char *folder,
                           const char *kind,
                           bool (*write)(FILE *, const struct weft_compare *, uint32_t));

/* A transport's name in quotes, without gnuplot's signs. */
void weft_compare_plot_name(FILE *script, const char *name);

/* Dashtype of the curve of transport t: gnuplot has eight colours, so the ninth is dashed. */
static inline uint32_t weft_compare_plot_dash(uint32_t t)
{
    return 1 + t / 8;
}

#endif
