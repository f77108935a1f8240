/* Pictures of a comparison, two for each network, drawn by gnuplot:
 *
 *   NAME-cdf.png    the fraction of rounds that took at most so long, one curve a transport, all
 *                   repetitions together; the ideal time is a vertical line
 *   NAME-bars.png   mean and p99 (medians over the repetitions) as multiples of the ideal time
 *
 * The scripts hold their data and stay beside the pictures: `gnuplot NAME-cdf.gp` draws it again.
 */
#define _GNU_SOURCE
#include "cli/perf/compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POINTS_MAX = 1000 }; /* of a curve */

/* gnuplot's enhanced text takes these for signs. */
void weft_compare_plot_name(FILE *script, const char *name)
{
    fputc('"', script);
    for (; *name != '\0'; name++) {
        fputc(*name == '_' || *name == '"' || *name == '\\' ? ' ' : *name, script);
    }
    fputc('"', script);
}

/* ---- scripts --------------------------------------------------------------------------------- */

static void print_head(FILE *script, const struct weft_compare *compare, uint32_t network,
                       const char *kind)
{
    const struct weft_compare_network *n = &compare->networks[network];
    fprintf(script, "set terminal pngcairo size 1000,600 font 'sans,11'\n");
    fprintf(script, "set output '%s-%s.png'\n", n->name, kind);
    fprintf(script, "set title '%s, %s x %s bytes", compare->pattern, n->senders, n->bytes);
    if (n->loss != NULL) {
        fprintf(script, ", %s, buffer %s, loss %s", compare->rate, n->buffer, n->loss);
    }
    fprintf(script, "' noenhanced\nset grid\nset key noenhanced\n");
}

static bool print_curve(FILE *script, const struct weft_compare *compare, uint32_t network,
                        uint32_t transport)
{
    struct weft_compare_times times;
    bool good = weft_compare_times_read(compare, network, transport, false, &times);
    size_t step = times.count / POINTS_MAX + 1;
    fprintf(script, "$t%u << EOD\n", transport);
    for (size_t i = 0; i < times.count; i += step) {
        fprintf(script, "%.6f %.6f\n", times.values[i], (double)(i + 1) / (double)times.count);
    }
    if (times.count > 0) {
        fprintf(script, "%.6f 1\n", times.values[times.count - 1]);
    } else {
        fprintf(script, "NaN NaN\n");
    }
    fprintf(script, "EOD\n");
    free(times.values);
    return good;
}

/* Of weft when it is there: the others' differ by their headers. */
static double ideal_of(const struct weft_compare *compare, uint32_t network)
{
    double ideal_ms = 0;
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        if (cell.ideal_ms > 0 && (ideal_ms == 0 || compare->transports[t].is_weft)) {
            ideal_ms = cell.ideal_ms;
        }
    }
    return ideal_ms;
}

static bool write_cdf(FILE *script, const struct weft_compare *compare, uint32_t network)
{
    double ideal_ms = ideal_of(compare, network);
    print_head(script, compare, network, "cdf");
    fprintf(script, "set xlabel 'round time, ms'\nset ylabel 'fraction of rounds'\n"
                    "set logscale x\nset yrange [0:1]\nset key right bottom\n");
    if (ideal_ms > 0) {
        fprintf(script,
                "set arrow from %.6f, graph 0 to %.6f, graph 1 nohead dashtype 2\n"
                "set label 'ideal' at %.6f, graph 0.05 offset 0.5,0\n",
                ideal_ms, ideal_ms, ideal_ms);
    }
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        if (!print_curve(script, compare, network, t)) {
            return false;
        }
    }
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        fprintf(script, "%s$t%u using 1:2 with steps linewidth 2 dashtype %u title ",
                t == 0 ? "plot " : ", ", t, weft_compare_plot_dash(t));
        weft_compare_plot_name(script, compare->transports[t].name);
    }
    fprintf(script, "\n");
    return true;
}

static bool write_bars(FILE *script, const struct weft_compare *compare, uint32_t network)
{
    bool ratio = ideal_of(compare, network) > 0;
    print_head(script, compare, network, "bars");
    fprintf(script,
            "set style data histogram\nset style histogram clustered gap 1\n"
            "set style fill solid 0.8\nset boxwidth 0.9\nset yrange [0:*]\n"
            "set xtics rotate by -25 noenhanced\nset key left top\nset ylabel '%s'\n",
            ratio ? "round time / ideal time" : "round time, ms");
    fprintf(script, "$bars << EOD\n");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_cell cell = weft_compare_cell_of(compare, network, t);
        double scale = ratio && cell.ideal_ms > 0 ? cell.ideal_ms : 1;
        weft_compare_plot_name(script, compare->transports[t].name);
        if (cell.answered) {
            fprintf(script, " %.6f %.6f\n", cell.mean_ms / scale, cell.p99_ms / scale);
        } else {
            fprintf(script, " NaN NaN\n");
        }
    }
    fprintf(script, "EOD\nplot $bars using 2:xtic(1) title 'mean', '' using 3 title 'p99'%s\n",
            ratio ? ", 1 with lines dashtype 2 linecolor 'black' title 'ideal'" : "");
    return true;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Run gnuplot in that folder. */
static bool draw(const char *folder, const char *script)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) == 0) {
            execlp("gnuplot", "gnuplot", script, (char *)NULL);
        }
        _exit(errno == ENOENT ? 127 : 126);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        fprintf(stderr,
                "weft perf compare: --plot needs gnuplot (Debian: apt-get install "
                "gnuplot-nox); the script is %s/%s\n",
                folder, script);
    } else {
        fprintf(stderr, "weft perf compare: gnuplot failed on %s/%s\n", folder, script);
    }
    return false;
}

bool weft_compare_plot_one(const struct weft_compare *compare, uint32_t network, const char *folder,
                           const char *kind,
                           bool (*write)(FILE *, const struct weft_compare *, uint32_t))
{
    char name[WEFT_COMPARE_NAME_BYTES + 16];
    char path[WEFT_COMPARE_PATH_BYTES];
    (void)snprintf(name, sizeof(name), "%s-%s.gp", compare->networks[network].name, kind);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *script = fopen(path, "w");
    bool good = script != NULL && write(script, compare, network);
    good = script != NULL && fclose(script) == 0 && good;
    if (!good) {
        fprintf(stderr, "weft perf compare: %s: %s\n", path, strerror(errno));
        return false;
    }
    return draw(folder, name);
}

bool weft_compare_plot(const struct weft_compare *compare, const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "weft perf compare: %s: %s\n", folder, strerror(errno));
        return false;
    }
    bool good = true;
    for (uint32_t n = 0; good && n < compare->network_count; n++) {
        good = weft_compare_plot_one(compare, n, folder, "cdf", write_cdf) &&
               weft_compare_plot_one(compare, n, folder, "bars", write_bars);
    }
    return good;
}
