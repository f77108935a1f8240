/* Pictures by gnuplot. A script holds its data and stays beside its picture: `gnuplot NAME.gp` draws
 * it again. */
#ifndef WEFT_CLI_GNUPLOT_H
#define WEFT_CLI_GNUPLOT_H

enum weft_gnuplot {
    WEFT_GNUPLOT_DRAWN,
    WEFT_GNUPLOT_FAILED,  /* said on standard error, with the verb */
    WEFT_GNUPLOT_MISSING, /* the program; not said */
};

#define WEFT_GNUPLOT_ADVICE "needs gnuplot (Debian: apt-get install gnuplot-nox)"

/* Run the script, a name without folders, in that folder. */
enum weft_gnuplot weft_gnuplot_run(const char *verb, const char *folder, const char *script);

#endif
