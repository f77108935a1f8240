/* Shared by the parts of `weft perf compare` (compare.c has the essay).
 *
 * Two operations are compared: rounds of a pattern (compare_rounds.c) and training jobs
 * (compare_train.c). Their differences are in struct weft_compare_op; all else is common.
 */
#ifndef WEFT_CLI_PERF_COMPARE_H
#define WEFT_CLI_PERF_COMPARE_H

#include "cli/options.h"
#include "job/args.h"
#include "lab/cluster.h"

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
    WEFT_COMPARE_FIGURES_MAX = 16,
    WEFT_COMPARE_WORDS_BYTES = 1024,
    /* The network's and the measurement's names are appended. */
    WEFT_COMPARE_OUT_BYTES_MAX = WEFT_COMPARE_PATH_BYTES - 2 * WEFT_COMPARE_NAME_BYTES - 32,
};

/* ---- settings of a comparison ---------------------------------------------------------------- */

/* "a,b,c", cut. */
struct weft_compare_list {
    char room[1024];
    const char *items[WEFT_COMPARE_LIST_MAX];
    uint32_t count;
};

/* "tcp-raw:cubic:rto5", and the pattern's options for it. */
struct weft_compare_transport {
    const char *name; /* as written */
    char words[12][40];
    uint32_t word_count;
    bool is_weft; /* weft's own transport */
    bool is_tcp;  /* kernel TCP, raw or under weft's messages */
    bool secure;  /* accepts --security */
};

struct weft_compare_network {
    const char *senders; /* of rounds, as bytes; else NULL */
    const char *bytes;
    const char *loss; /* NULL: of the existing lab, or loopback */
    const char *buffer;
    const char *background;             /* NULL: none */
    uint32_t hosts;                     /* of a lab made for it */
    uint32_t hosts_min;                 /* of an existing lab */
    char name[WEFT_COMPARE_NAME_BYTES]; /* folder of its cells */
};

struct weft_compare_rounds {
    struct weft_compare_list senders;
    struct weft_compare_list bytes;
    uint32_t pattern;
    uint32_t rounds;
    uint32_t packet_bytes;
    bool realtime; /* of the participants' processes */
};

struct weft_compare_train {
    struct weft_compare_list backgrounds;
    const char *const *words; /* options of `weft train` */
    uint32_t word_count;
    char joined[WEFT_COMPARE_WORDS_BYTES]; /* the same with blanks, and the counts below */
    uint32_t workers;
    uint32_t servers;
    uint32_t epochs; /* of the reference run; a measured one may take twice as many */
    uint32_t check_steps;
    uint32_t timeout_s;
    float until_loss;       /* the target; 0 = not known yet */
    uint32_t tolerance_ppm; /* of the reference run's loss */
    double reference_loss;  /* 0 = no reference run: the target was given */
};

struct weft_compare {
    const struct weft_compare_op *op;
    struct weft_compare_rounds rounds; /* the own options of one operation; the other is unused */
    struct weft_compare_train train;
    struct weft_compare_list transport_names;
    struct weft_compare_list losses;
    struct weft_compare_list buffers;
    struct weft_compare_transport transports[WEFT_COMPARE_LIST_MAX];
    uint32_t transport_count;
    struct weft_compare_network networks[WEFT_COMPARE_NETWORKS_MAX];
    uint32_t network_count;
    const char *rate;
    const char *ecn;
    const char *security;
    const char *lab; /* an existing lab; or, inside, that of this network */
    bool loopback;
    bool hysteresis; /* the buckets of its networks have HTB's; false on loopback */
    bool offload;    /* the lab's links carry merged segments as one packet; false elsewhere */
    struct weft_lab_info given; /* of --lab; .hosts is 0 without one, or if it is not running */
    uint32_t busy;   /* CPU-bound processes during each measurement */
    uint32_t repetitions;
    const char *out;    /* the folder of the results */
    const char *inside; /* name of the network created for this process, in which it runs */
    int argc;           /* of this program, for the one inside: up to "--" */
    char **argv;
};

/* ---- figures --------------------------------------------------------------------------------- */

enum weft_compare_of {
    WEFT_COMPARE_MEDIAN, /* over the completed repetitions; so the next three */
    WEFT_COMPARE_LEAST,
    WEFT_COMPARE_MOST,
    WEFT_COMPARE_P90,     /* the nearest rank: of fewer than ten values the maximum */
    WEFT_COMPARE_RATIO,   /* figure `by` divided by figure `over`; 0 = not known */
    WEFT_COMPARE_TO_BEST, /* figure `by` divided by the best TCP's; 0 = not known */
    WEFT_COMPARE_OWN,     /* the operation's `more` sets it */
};

enum weft_compare_known {
    WEFT_COMPARE_ANSWERED, /* null, and "-", if no repetition completed */
    WEFT_COMPARE_NOT_ZERO, /* also when it is 0 */
    WEFT_COMPARE_ALWAYS,
};

/* A figure of a cell: a member of its JSON and, with a head, a column of the table. */
struct weft_compare_figure {
    const char *path; /* in a run's report, as "round_ms.p99"; NULL: not there */
    const char *head; /* of the column; NULL = there is none */
    int width;
    int digits;
    const char *key; /* in ours; NULL: the path */
    bool percent;    /* the column shows a fraction as such */
    enum weft_compare_of of;
    enum weft_compare_known known;
    uint32_t by;
    uint32_t over;
};

/* Several runs of one transport on one network. */
struct weft_compare_cell {
    uint32_t runs;
    uint32_t dnf;     /* of these, not completed */
    bool answered;    /* most runs completed, so the figures are meaningful */
    uint32_t typical; /* the repetition with the (lower) median of op->rank_by */
    double values[WEFT_COMPARE_FIGURES_MAX];
};

/* ---- an operation ---------------------------------------------------------------------------- */

struct weft_compare_picture {
    const char *kind; /* NAME-KIND.png */
    /* False: no memory. */
    bool (*write)(FILE *script, const struct weft_compare *compare, uint32_t network,
                  const struct weft_compare_cell *cells);
};

struct weft_compare_op {
    const char *transports_allowed; /* the end of a sentence */
    const char *transports;         /* the default */
    const struct weft_compare_figure *figures;
    uint32_t figure_count;
    uint32_t rank_by;   /* the best TCP has the smallest value of this, */
    uint32_t whole;     /* and the value 1 of this, because a transport that omits data does less
                         * work. UINT32_MAX = none */
    bool nulls;         /* fields that a network lacks are null in JSON; otherwise omitted */
    bool writes_rounds; /* a run writes the times of its rounds */

    bool (*takes)(const struct weft_compare_transport *transport); /* NULL: all of them */
    /* Check the operation's own options and add the networks. WEFT_OPTIONS_RUN or the exit
     * status. */
    int (*plan)(const struct weft_command *command, struct weft_compare *compare);
    /* Called first, in the folder of results. False: the reason is on standard error. NULL:
     * none. */
    bool (*prepare)(struct weft_compare *compare);
    /* The arguments of the `weft` that measures, except --lab. */
    void (*add_run)(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                    uint32_t repetition, const char *rounds, struct weft_args *args);
    /* Arguments that this program, inside, needs in addition to its own. */
    void (*add_inside)(const struct weft_compare *compare, uint32_t network,
                       struct weft_args *args);
    /* False: the run had other settings, or was interrupted. */
    bool (*is_ours)(const struct weft_compare *compare, uint32_t transport, const cJSON *run);
    bool (*has_answer)(const cJSON *run);
    /* WEFT_COMPARE_OWN figures; NULL: there are none. */
    void (*more)(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                 struct weft_compare_cell *cell);
    void (*text_head)(const struct weft_compare *compare, uint32_t network);
    void (*text_tail)(const struct weft_compare *compare, const struct weft_compare_cell *cells,
                      uint32_t best); /* NULL: nothing */
    void (*json_head)(const struct weft_compare *compare, cJSON *object);
    void (*title)(FILE *script, const struct weft_compare *compare, uint32_t network);
    struct weft_compare_picture pictures[2];
};

/* ---- the verb (compare.c) -------------------------------------------------------------------- */

/* `own`: the operation's options and texts; the common options are added. The exit status. */
int weft_compare_main(struct weft_compare *compare, const struct weft_command *own, int argc,
                      char **argv);
int weft_perf_compare_train(int argc, char **argv);

/* Add a network for each buffer and loss, or the existing one; `like` has the other settings, and
 * the first part of the name. Beyond WEFT_COMPARE_NETWORKS_MAX they are only counted. */
void weft_compare_add_networks(struct weft_compare *compare,
                               const struct weft_compare_network *like);

/* ---- words (compare_spec.c) ------------------------------------------------------------------ */

/* For a CUSTOM option whose value is a struct weft_compare_list. */
const char *weft_compare_list_cut(const char *text, void *list);

/* The first item that is not a number from least to most, or, unless multiple_of is 0, not an
 * integer multiple of that; NULL if there is none. */
const char *weft_compare_check_numbers(const struct weft_compare_list *list, double least,
                                       double most, uint32_t multiple_of);
bool weft_compare_transport_parse(const char *text, struct weft_compare_transport *p);

/* ---- measuring (compare_run.c) --------------------------------------------------------------- */

/* Path of a result; extension "json" or "rounds". */
void weft_compare_path(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                       uint32_t repetition, const char *extension,
                       char path_p[static WEFT_COMPARE_PATH_BYTES]);

/* A finished result with the settings of this comparison, or NULL. Owns: gives. */
cJSON *weft_compare_load(const struct weft_compare *compare, uint32_t network, uint32_t transport,
                         uint32_t repetition);

/* The object in a file of the folder of results, or NULL. Owns: gives. */
cJSON *weft_compare_read(const struct weft_compare *compare, const char *name);
/* False, with a sentence on standard error. NULL counts as no memory. */
bool weft_compare_write(const struct weft_compare *compare, const char *name, const cJSON *object,
                        bool pretty);

/* The number at a path such as "round_ms.p99", 0 when there is none; whether a member is true. */
double weft_compare_number(const cJSON *object, const char *path);
bool weft_compare_is_true(const cJSON *object, const char *key);

/* Whether these facts of a run are those of the lab that it would have now: another lab of the same
 * name may have had other links. Those of a network made for it are in the network's name. */
bool weft_compare_is_network(const struct weft_compare *compare, const cJSON *facts);

/* Run this program with these arguments until it ends; a request to stop is passed on to it. Its
 * standard output is written to the file `output`, NULL = to our standard error. True: it
 * succeeded.
 * Owns: takes the arguments. */
bool weft_compare_run_self(struct weft_args *args, const char *output);

/* Make the missing measurements; networks are created, one after the other, as needed. Returns the
 * number of measurements that failed or were not made. */
uint32_t weft_compare_measure(const struct weft_compare *compare);

/* ---- results (compare_report.c, compare_plot.c) ---------------------------------------------- */

/* The cells of a network, one for each transport, and the best TCP among them, UINT32_MAX: none
 * completed.
 * NULL: no memory. Owns: gives. */
struct weft_compare_cell *weft_compare_cells(const struct weft_compare *compare, uint32_t network,
                                             uint32_t *best_p);

/* All results as an object, NULL: no memory; and as a table, unless `quiet`. Owns: gives. */
cJSON *weft_compare_report(const struct weft_compare *compare, bool quiet);

/* "1gbit, buffer 450kb, loss 0.01", "lab demo". */
void weft_compare_print_network(FILE *out, const struct weft_compare *compare, uint32_t network);

/* Draw the pictures of each network, and keep their gnuplot scripts; false: the reason is on
 * standard error. */
bool weft_compare_plot(const struct weft_compare *compare, const char *folder);

/* Bars of two figures of each transport, and further items of the plot command. */
void weft_compare_plot_bars(FILE *script, const struct weft_compare *compare,
                            const struct weft_compare_cell *cells, const uint32_t figures[2],
                            const char *axis, const char *const titles[2], const char *beside);
/* The curves of the transports, whose points are in the data blocks $t0, $t1, ... */
void weft_compare_plot_curves(FILE *script, const struct weft_compare *compare, const char *style);

#endif
