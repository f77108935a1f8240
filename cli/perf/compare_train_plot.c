/* Pictures of a comparison of jobs, two for each network (compare_plot.c draws them):
 *
 *   NAME-time.png   bars of the training time to the target: median, and p90 over the repetitions
 *   NAME-loss.png   the loss on the test rows over the training time, one curve a transport, of its
 *                   repetition with the median time; the target is a horizontal line
 */
#include "cli/perf/compare_train.h"
#include "job/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void print_head(FILE *script, const struct weft_compare *compare, uint32_t network,
                       const char *kind)
{
    const struct weft_compare_network *n = &compare->networks[network];
    fprintf(script, "set terminal pngcairo size 1000,600 font 'sans,11'\n");
    fprintf(script, "set output '%s-%s.png'\n", n->name, kind);
    fprintf(script, "set title 'training to a test log-loss of %.4f, %u workers, %u servers",
            (double)compare->train->until_loss, compare->train->workers, compare->train->servers);
    if (n->loss != NULL) {
        fprintf(script, ", %s, buffer %s, loss %s, background %s", compare->rate, n->buffer,
                n->loss, n->background != NULL ? n->background : "none");
    }
    fprintf(script, "' noenhanced\nset grid\nset key noenhanced\n");
}

static bool write_time(FILE *script, const struct weft_compare *compare, uint32_t network)
{
    print_head(script, compare, network, "time");
    fprintf(script, "set style data histogram\nset style histogram clustered gap 1\n"
                    "set style fill solid 0.8\nset boxwidth 0.9\nset yrange [0:*]\n"
                    "set xtics rotate by -25 noenhanced\nset key left top\n"
                    "set ylabel 'training time, s'\n$bars << EOD\n");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        struct weft_compare_jobs jobs = weft_compare_train_jobs(compare, network, t);
        weft_compare_plot_name(script, compare->transports[t].name);
        if (jobs.answered) {
            fprintf(script, " %.6f %.6f\n", jobs.median_s, jobs.p90_s);
        } else {
            fprintf(script, " NaN NaN\n");
        }
    }
    fprintf(script, "EOD\nplot $bars using 2:xtic(1) title 'median', '' using 3 title 'p90'\n");
    return true;
}

static void print_curve(FILE *script, const struct weft_compare *compare, uint32_t network,
                        uint32_t transport)
{
    struct weft_compare_jobs jobs = weft_compare_train_jobs(compare, network, transport);
    cJSON *run = weft_compare_load(compare, network, transport, jobs.typical);
    const cJSON *until = cJSON_GetObjectItemCaseSensitive(run, "until");
    const cJSON *checks = cJSON_GetObjectItemCaseSensitive(until, "checks");
    const cJSON *check;
    fprintf(script, "$t%u << EOD\n%s", transport, checks == NULL ? "NaN NaN\n" : "");
    cJSON_ArrayForEach(check, checks)
    {
        fprintf(script, "%.6f %.6f\n", weft_channel_number(check, "training_s"),
                weft_channel_number(check, "test_logloss"));
    }
    fprintf(script, "EOD\n");
    cJSON_Delete(run);
}

static bool write_loss(FILE *script, const struct weft_compare *compare, uint32_t network)
{
    double target = (double)compare->train->until_loss;
    print_head(script, compare, network, "loss");
    fprintf(script, "set xlabel 'training time, s'\nset ylabel 'log-loss on the test rows'\n"
                    "set logscale x\nset key right top\n");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        print_curve(script, compare, network, t);
    }
    fprintf(script, "plot ");
    for (uint32_t t = 0; t < compare->transport_count; t++) {
        fprintf(script,
                "$t%u using 1:2 with linespoints linewidth 2 dashtype %u pointsize 0.6 title ", t,
                weft_compare_plot_dash(t));
        weft_compare_plot_name(script, compare->transports[t].name);
        fprintf(script, ", ");
    }
    fprintf(script, "%.6f with lines dashtype 2 linecolor 'black' title 'target'\n", target);
    return true;
}

bool weft_compare_train_plot(const struct weft_compare *compare, const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "weft perf compare: %s: %s\n", folder, strerror(errno));
        return false;
    }
    bool good = true;
    for (uint32_t n = 0; good && n < compare->network_count; n++) {
        good = weft_compare_plot_one(compare, n, folder, "time", write_time) &&
               weft_compare_plot_one(compare, n, folder, "loss", write_loss);
    }
    return good;
}
