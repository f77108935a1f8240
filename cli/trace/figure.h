/* Figures 4 to 10 of [imc20] from the records of runs: what each is drawn from, its picture, and the
 * paper's finding beside what the run shows.
 *
 * A figure is a gnuplot script with its data inside, which stays beside the picture: `gnuplot NAME.gp`
 * draws it again. Each function writes the body of one script and the words; a figure that the
 * data cannot support gets a reason instead.
 */
#ifndef WEFT_CLI_TRACE_FIGURE_H
#define WEFT_CLI_TRACE_FIGURE_H

#include "cli/trace/digest.h"
#include "cli/trace/hotness.h"

#include <stdio.h>

enum { WEFT_FIGURE_WORDS = 640, WEFT_FIGURE_NAME = 96, WEFT_FIGURE_RUNS_MAX = 64 };

/* What the records of one run say. */
struct weft_figure_run {
    const char *file;
    char name[WEFT_FIGURE_NAME]; /* of the file, safe as a part of file names */
    char title[256];             /* what was run */
    char transport[16];          /* weft or tcp */
    struct weft_recdb_digest digest;
    struct weft_hist intervals_ns; /* between requests of one worker to one server */
    struct weft_recdb_hotness hotness;
    uint64_t refused;
};

enum weft_figure_verdict {
    WEFT_FIGURE_AGREES,
    WEFT_FIGURE_PARTLY,
    WEFT_FIGURE_DIFFERS,
    WEFT_FIGURE_OPEN, /* the run cannot tell */
};

struct weft_figure {
    const char *number; /* "7a" */
    const char *slug;   /* "intervals" */
    const char *paper;  /* its finding */
    char here[WEFT_FIGURE_WORDS];
    char why_not[WEFT_FIGURE_WORDS]; /* not empty: no picture, for this reason */
    enum weft_figure_verdict verdict;
    char png[2 * WEFT_FIGURE_NAME];
    const struct weft_figure_run *run; /* NULL: of all runs */
};

/* Errors:  false, said.   Owns: *run_p is freed with fini, also after false. */
bool weft_figure_run_make(const char *file, struct weft_figure_run *run_p);
void weft_figure_run_fini(struct weft_figure_run *run);

/* Figures of one run: 4, 5, 6, 7a, 7b, 10. The body is written only if there is no reason not to. */
enum { WEFT_FIGURES_OF_ONE = 6 };
typedef void weft_figure_one_fn(const struct weft_figure_run *run, struct weft_figure *figure,
                                FILE *body);
extern weft_figure_one_fn *const weft_figures_of_one[WEFT_FIGURES_OF_ONE];

/* Figures that compare runs: 8, 9. */
enum { WEFT_FIGURES_OF_RUNS = 2 };
typedef void weft_figure_runs_fn(const struct weft_figure_run *runs, unsigned count,
                                 struct weft_figure *figure, FILE *body);
extern weft_figure_runs_fn *const weft_figures_of_runs[WEFT_FIGURES_OF_RUNS];

/* ---- drawing --------------------------------------------------------------------------------- */

/* In quotes of gnuplot, whatever it holds. */
void weft_figure_quoted(FILE *script, const char *text);
/* "$name << EOD", the cumulative distribution with values divided by scale, "EOD". */
void weft_figure_cdf(FILE *script, const char *name, const struct weft_hist *hist, double scale);
const char *weft_figure_verdict_name(enum weft_figure_verdict verdict);

/* Write folder/PNG's script of head, body and words, and draw it.
 * Errors:  false, said; *no_gnuplot_p is set when only the program is missing. */
bool weft_figure_draw(const struct weft_figure *figure, const char *body, const char *folder,
                      bool *no_gnuplot_p);

#endif
