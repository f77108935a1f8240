/* Figures 4 to 10 of [imc20] from the records of runs: the data of each, its picture, and the
 * paper's finding compared with the run's. 10b and 10c have no picture in the paper: they measure
 * what it predicts from Fig. 10, the effect of summing updates of hot parameters on the way.
 *
 * A figure is a gnuplot script that contains its data and is kept beside the picture: `gnuplot
 * NAME.gp` draws it again. Each function writes the body of one script and the text; a figure that
 * the data cannot support gets a reason instead.
 */
#ifndef WEFT_CLI_TRACE_FIGURE_H
#define WEFT_CLI_TRACE_FIGURE_H

#include "cli/gnuplot.h"
#include "cli/trace/trace.h"
#include "obs/recdb_aggregation.h"
#include "obs/recdb_digest.h"
#include "obs/recdb_hotness.h"

#define WEFT_FIGURE_NUMBERS "4, 5, 6, 7a, 7b, 8, 9, 10, 10b, 10c"
#define WEFT_FIGURE_PREDICTION                                                                     \
    "if the top 20,000 parameters are summed on the way, half of the operations do not reach the " \
    "servers, and 50 % of PS_proc is saved (a prediction, section 4)"

enum {
    WEFT_FIGURE_WORDS = 640,
    WEFT_FIGURE_NAME = 96,
    WEFT_FIGURE_FILE = 2 * WEFT_FIGURE_NAME,
    WEFT_FIGURE_RUNS_MAX = 64,
    WEFT_FIGURES_MAX = 7 * WEFT_FIGURE_RUNS_MAX + 3,
};

/* The data of one run's records. */
struct weft_figure_run {
    const char *file;
    char name[WEFT_FIGURE_NAME]; /* of the file, safe as a part of file names */
    char title[256];             /* the command of the run */
    char transport[16];          /* weft or tcp */
    struct weft_recdb_digest digest;
    struct weft_hist intervals_ns; /* between requests of one worker to one server */
    struct weft_recdb_hotness hotness;
    struct weft_recdb_aggregation aggregation;
    uint64_t refused;
};

enum weft_figure_verdict {
    WEFT_FIGURE_AGREES,
    WEFT_FIGURE_PARTLY,
    WEFT_FIGURE_DIFFERS,
    WEFT_FIGURE_OPEN, /* the run has no evidence */
};

struct weft_figure;

struct weft_figure_kind {
    const char *number; /* "7a" */
    const char *slug;   /* "intervals" */
    const char *paper;  /* the paper's finding */
    /* One of the two: write the body of the script, unless there is a reason not to. */
    void (*of_one)(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body);
    void (*of_runs)(const struct weft_figure_run *runs, unsigned count, struct weft_figure *figure,
                    FILE *body);
};

/* 4, 5, 6, 7a, 7b, 10, 10b of each run; 8, 9, 10c, which compare runs. Both end with a NULL
 * number. */
extern const struct weft_figure_kind weft_figures_of_one[];
extern const struct weft_figure_kind weft_figures_of_runs[];

/* 10b, 10c */
void weft_figure_aggregators(const struct weft_figure_run *run, struct weft_figure *figure,
                             FILE *body);
void weft_figure_with_and_without(const struct weft_figure_run *runs, unsigned count,
                                  struct weft_figure *figure, FILE *body);
/* One line for each aggregator and server; nothing for a run without aggregators. */
void weft_figure_aggregators_text(FILE *out, const struct weft_figure_run *run);
/* "aggregators" and "aggregation", of a run with aggregators. */
void weft_figure_aggregators_json(cJSON *into, const struct weft_figure_run *run);

struct weft_figure {
    const struct weft_figure_kind *kind;
    char here[WEFT_FIGURE_WORDS];
    char why_not[WEFT_FIGURE_WORDS]; /* not empty: the reason why there is no picture */
    enum weft_figure_verdict verdict;
    char png[WEFT_FIGURE_FILE];
    const struct weft_figure_run *run; /* NULL: of all runs */
};

/* Errors:  false: reported on standard error.   Owns: *run_p is freed with fini, also after
 *          false. */
bool weft_figure_run_make(const char *file, struct weft_figure_run *run_p);
void weft_figure_run_fini(struct weft_figure_run *run);

/* ---- drawing --------------------------------------------------------------------------------- */

/* "$name << EOD", the cumulative distribution with values divided by scale, "EOD". */
void weft_figure_cdf(FILE *script, const char *name, const struct weft_hist *hist, double scale);
const char *weft_figure_verdict_name(enum weft_figure_verdict verdict);

/* The name of a picture becomes that of its script. */
void weft_figure_script_name(char png[WEFT_FIGURE_FILE]);

/* Write the script, folder/NAME.gp for figure->png NAME.png: title, caption and body. Then draw
 * it. */
enum weft_gnuplot weft_figure_draw(const struct weft_figure *figure, const char *body,
                                   const char *folder);

/* Create folder/name with the output of `write`. False: it cannot be written, which is reported. */
bool weft_figure_file(const char *folder, const char *name,
                      void (*write)(FILE *out, const void *arg), const void *arg);

#endif
