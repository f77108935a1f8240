/* Pictures of a comparison, drawn by gnuplot: two for each network, defined by its operation. The
 * scripts contain their data and are kept beside the pictures: `gnuplot NAME-cdf.gp` draws one
 * again.
 */
#include "cli/gnuplot.h"
#include "cli/output.h"
#include "cli/perf/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- scripts --------------------------------------------------------------------------------- */

/* A transport's name in quotes, without the control characters of gnuplot's enhanced text. */
static void print_name(FILE *script, const char *name)
{
    fputc('"', script);
    for (; *name != '\0'; name++) {
        fputc(*name == '_' || *name == '"' || *name == '\\' ? ' ' : *name, script);
    }
    fputc('"', script);
}

void weft_compare_plot_bars(FILE *script, const struct weft_compare *compare,
                            const struct weft_compare_cell *cells, const uint32_t figures[2],
                            const char *axis, const char *const titles[2], const char *beside)
{
    fprintf(script,
            "set style data histogram\nset style histogram clustered gap 1\n"
            "set style fill solid 0.8\nset boxwidth 0.9\nset yrange [0:*]\n"
            "set xtics rotate by -25 noenhanced\nset key left top\nset ylabel '%s'\n"
            "$bars << EOD\n",
            axis);
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        const double *values = cells[t].values;
        print_name(script, compare->transports[t].name);
        if (cells[t].answered) {
            fprintf(script, " %.6f %.6f\n", values[figures[0]], values[figures[1]]);
        } else {
            fprintf(script, " NaN NaN\n");
        }
    }
    fprintf(script, "EOD\nplot $bars using 2:xtic(1) title '%s', '' using 3 title '%s'%s\n",
            titles[0], titles[1], beside);
}

void weft_compare_plot_curves(FILE *script, const struct weft_compare *compare, const char *style)
{
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        /* gnuplot has eight colours, so the ninth curve is dashed. */
        fprintf(script, "%s$t%u using 1:2 with %s linewidth 2 dashtype %u title ",
                t == 0 ? "plot " : ", ", t, style, 1 + t / 8);
        print_name(script, compare->transports[t].name);
    }
}

static bool write_script(const struct weft_compare *compare, uint32_t network,
                         const struct weft_compare_cell *cells,
                         const struct weft_compare_picture *picture, const char *path)
{
    FILE *script = weft_output_open(path);
    if (script != NULL) {
        fprintf(script,
                "set terminal pngcairo size 1000,600 font 'sans,11'\n"
                "set output '%s-%s.png'\nset title '",
                compare->networks[network].name, picture->kind);
        compare->op->title(script, compare, network);
        fprintf(script, "' noenhanced\nset grid\nset key noenhanced\n");
    }
    return weft_output_close("perf compare", path, script,
                             script != NULL && picture->write(script, compare, network, cells));
}

/* ---- drawing --------------------------------------------------------------------------------- */

static bool draw(const char *folder, const char *script)
{
    enum weft_gnuplot drawn = weft_gnuplot_run("perf compare", folder, script);
    if (drawn == WEFT_GNUPLOT_MISSING) {
        fprintf(stderr, "weft perf compare: --plot " WEFT_GNUPLOT_ADVICE "; the script is %s/%s\n",
                folder, script);
    }
    return drawn == WEFT_GNUPLOT_DRAWN;
}

static bool plot_network(const struct weft_compare *compare, uint32_t network, const char *folder)
{
    uint32_t best;
    struct weft_compare_cell *cells = weft_compare_cells(compare, network, &best);
    bool good = cells != NULL;
    for (size_t i = 0; good && i < WEFT_ARRAY_COUNT(compare->op->pictures); i++) {
        const struct weft_compare_picture *picture = &compare->op->pictures[i];
        char name[WEFT_COMPARE_NAME_BYTES + 16];
        char path[WEFT_COMPARE_PATH_BYTES];
        (void)snprintf(name, sizeof(name), "%s-%s.gp", compare->networks[network].name,
                       picture->kind);
        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        good = write_script(compare, network, cells, picture, path) && draw(folder, name);
    }
    free(cells);
    return good;
}

bool weft_compare_plot(const struct weft_compare *compare, const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "weft perf compare: %s: %s\n", folder, strerror(errno));
        return false;
    }
    bool good = true;
    for (uint32_t n = 0; good && n < compare->network_count; n++) {
        good = plot_network(compare, n, folder);
    }
    return good;
}
