/* Plots by gnuplot. A script contains its data and stays next to its plot: `gnuplot NAME.gp`
 * redraws it. */
#ifndef WEFT_CLI_GNUPLOT_H
#define WEFT_CLI_GNUPLOT_H

#include <stdbool.h>

enum weft_gnuplot {
    WEFT_GNUPLOT_DRAWN,
    WEFT_GNUPLOT_FAILED,  /* reported on standard error, with the verb */
    WEFT_GNUPLOT_MISSING, /* gnuplot is not installed; not reported */
};

enum { WEFT_GNUPLOT_PATH_BYTES = 1024 };

/* "a/b.png" or "a/b": folder "a", files "b.png" and "b.gp". */
struct weft_gnuplot_files {
    char folder[WEFT_GNUPLOT_PATH_BYTES];
    char png[WEFT_GNUPLOT_PATH_BYTES];
    char gp[WEFT_GNUPLOT_PATH_BYTES];
    char gp_path[2 * WEFT_GNUPLOT_PATH_BYTES];
};

#define WEFT_GNUPLOT_ADVICE "needs gnuplot (Debian: apt-get install gnuplot-nox)"

/* Run the script, a file name without directories, in `folder`. */
enum weft_gnuplot weft_gnuplot_run(const char *verb, const char *folder, const char *script);

/* False: the path has no file name. */
bool weft_gnuplot_files_of(const char *path, struct weft_gnuplot_files *files_p);

/* Run the script in files->gp_path. False: the error was reported on standard error with the verb,
 * including when gnuplot is missing. */
bool weft_gnuplot_draw(const char *verb, const struct weft_gnuplot_files *files);

#endif
