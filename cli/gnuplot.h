/* Pictures by gnuplot. A script holds its data and stays beside its picture: `gnuplot NAME.gp` draws
 * it again. */
#ifndef WEFT_CLI_GNUPLOT_H
#define WEFT_CLI_GNUPLOT_H

#include <stdbool.h>

enum weft_gnuplot {
    WEFT_GNUPLOT_DRAWN,
    WEFT_GNUPLOT_FAILED,  /* said on standard error, with the verb */
    WEFT_GNUPLOT_MISSING, /* the program; not said */
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

/* Run the script, a name without folders, in that folder. */
enum weft_gnuplot weft_gnuplot_run(const char *verb, const char *folder, const char *script);

/* False: no name for a picture. */
bool weft_gnuplot_files_of(const char *path, struct weft_gnuplot_files *files_p);

/* Run the script that was written to files->gp_path. False: said on standard error, with the verb, also that
 * gnuplot is missing. */
bool weft_gnuplot_draw(const char *verb, const struct weft_gnuplot_files *files);

#endif
