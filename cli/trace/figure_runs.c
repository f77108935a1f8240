/* The figures that compare runs: CPU over scale (8), cost of an RPC over connections (9). */
#include "base/units.h"
#include "cli/trace/figure.h"

#include <stdlib.h>
#include <string.h>

/* A ratio between 1 / 1.2 and 1.2 is called flat. */
static const double flat = 1.2;

static double utilisation(const struct weft_recdb_role *role)
{
    return role->wall_ns > 0 ? 100 * (double)role->cpu_ns / (double)role->wall_ns : 0;
}

static size_t scale_of(const struct weft_figure_run *run)
{
    return run->digest.workers.count;
}

static int by_scale(const void *a, const void *b)
{
    const struct weft_figure_run *x = *(const struct weft_figure_run *const *)a;
    const struct weft_figure_run *y = *(const struct weft_figure_run *const *)b;
    int order = strcmp(x->transport, y->transport);
    if (order != 0) {
        return -order; /* weft first */
    }
    order = (scale_of(x) > scale_of(y)) - (scale_of(x) < scale_of(y));
    return order != 0 ? order
                      : (x->digest.servers.count > y->digest.servers.count) -
                            (x->digest.servers.count < y->digest.servers.count);
}

static bool scales_differ(const struct weft_figure_run *runs, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        if (scale_of(&runs[i]) != scale_of(&runs[0])) {
            return true;
        }
    }
    return false;
}

/* Collect the runs in order, except those whose servers' CPU time is unknown, or not separate from
 * that of workers in the same process (`weft load --local`). Returns their number. */
static unsigned sorted(const struct weft_figure_run *runs, unsigned count,
                       const struct weft_figure_run **sorted_p)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct weft_recdb_role *roles = runs[i].digest.roles;
        const struct weft_recdb_role *servers = &roles[WEFT_RECDB_SERVERS];
        bool good = roles[WEFT_RECDB_WORKERS].processes > 0 && servers->wall_ns > 0 &&
                    servers->cpu_ns > 0 && weft_recdb_digest_rpcs(&runs[i].digest) > 0;
        if (good) {
            sorted_p[kept++] = &runs[i];
        }
    }
    qsort(sorted_p, kept, sizeof(struct weft_figure_run *), by_scale);
    return kept;
}

static bool compares(const struct weft_figure_run *runs, unsigned count, unsigned kept,
                     struct weft_figure *figure)
{
    const char *why = !scales_differ(runs, count)
                          ? "it compares runs with different numbers of workers; give "
                            "several files"
                      : kept < 2 ? "the CPU times of servers are missing, or workers are in the "
                                   "same process (weft load --local)"
                                 : "";
    snprintf(figure->why_not, sizeof(figure->why_not), "%s", why);
    return why[0] == '\0';
}

/* ---- 8 --------------------------------------------------------------------------------------- */

static void cpu(const struct weft_figure_run *runs, unsigned count, struct weft_figure *figure,
                FILE *body)
{
    const struct weft_figure_run *in_order[WEFT_FIGURE_RUNS_MAX];
    unsigned kept = sorted(runs, count, in_order);
    if (!compares(runs, count, kept, figure)) {
        return;
    }
    const struct weft_recdb_role *first = in_order[0]->digest.roles;
    const struct weft_recdb_role *last = in_order[kept - 1]->digest.roles;
    bool falls = utilisation(&last[0]) < utilisation(&first[0]);
    bool rises = utilisation(&last[1]) > utilisation(&first[1]);
    figure->verdict = falls && rises   ? WEFT_FIGURE_AGREES
                      : falls || rises ? WEFT_FIGURE_PARTLY
                                       : WEFT_FIGURE_DIFFERS;
    snprintf(
        figure->here, sizeof(figure->here),
        "from %zu workers and %zu servers to %zu and %zu, the workers' CPU goes from %.1f to "
        "%.1f %%, the servers' from %.1f to %.1f %% (CPU time over wall time of their processes)",
        scale_of(in_order[0]), in_order[0]->digest.servers.count, scale_of(in_order[kept - 1]),
        in_order[kept - 1]->digest.servers.count, utilisation(&first[0]), utilisation(&last[0]),
        utilisation(&first[1]), utilisation(&last[1]));
    fprintf(body, "$cpu << EOD\n");
    for (unsigned i = 0; i < kept; i++) {
        const struct weft_figure_run *run = in_order[i];
        fprintf(body, "\"%zu+%zu%s\" %.4f %.4f\n", scale_of(run), run->digest.servers.count,
                strcmp(run->transport, "weft") == 0 ? "" : " tcp",
                utilisation(&run->digest.roles[WEFT_RECDB_WORKERS]),
                utilisation(&run->digest.roles[WEFT_RECDB_SERVERS]));
    }
    fprintf(body, "EOD\nset style data histogram\nset style histogram clustered gap 1\n"
                  "set style fill solid 0.8\nset yrange [0:*]\nset grid y\nset key outside top "
                  "center horizontal\n"
                  "set xlabel 'workers+servers'\nset ylabel 'CPU utilisation, %%'\n"
                  "plot $cpu using 2:xtic(1) title 'workers', '' using 3 title 'servers'\n");
}

/* ---- 9 --------------------------------------------------------------------------------------- */

static double cpu_us_per_rpc(const struct weft_figure_run *run)
{
    return (double)run->digest.roles[WEFT_RECDB_SERVERS].cpu_ns / 1e3 /
           (double)weft_recdb_digest_rpcs(&run->digest);
}

static double mean_us(const struct weft_figure_run *run)
{
    const struct weft_recdb_kind_digest *kinds = run->digest.kinds;
    uint64_t rpcs = kinds[0].total.count + kinds[1].total.count;
    return rpcs > 0 ? (double)(kinds[0].total.sum + kinds[1].total.sum) / (double)rpcs / 1e3 : 0;
}

static void cost_data(FILE *body, const struct weft_figure_run *const *runs, unsigned count,
                      const char *transport)
{
    fprintf(body, "$%s << EOD\n", transport);
    bool any = false;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(runs[i]->transport, transport) == 0) {
            fprintf(body, "%zu %.4f %.4f\n", scale_of(runs[i]), cpu_us_per_rpc(runs[i]),
                    mean_us(runs[i]));
            any = true;
        }
    }
    fprintf(body, "%sEOD\n", any ? "" : "NaN NaN NaN\n");
}

/* Describe how one transport's cost grows; true when it grows with the workers. */
static bool growth(const struct weft_figure_run *const *runs, unsigned count, const char *transport,
                   char *words, size_t bytes)
{
    const struct weft_figure_run *first = NULL;
    const struct weft_figure_run *last = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(runs[i]->transport, transport) == 0) {
            first = first == NULL ? runs[i] : first;
            last = runs[i];
        }
    }
    words[0] = '\0';
    if (first == NULL || first == last) {
        return false;
    }
    double times = cpu_us_per_rpc(last) / cpu_us_per_rpc(first);
    snprintf(words, bytes,
             "%s: from %zu to %zu workers an RPC takes %.1f and then %.1f us of server CPU "
             "(%.2f times: %s); its mean latency is %.0f and then %.0f us (%.2f times)",
             transport, scale_of(first), scale_of(last), cpu_us_per_rpc(first),
             cpu_us_per_rpc(last), times,
             times > flat       ? "it grows"
             : times < 1 / flat ? "it falls"
                                : "flat",
             mean_us(first), mean_us(last),
             mean_us(first) > 0 ? mean_us(last) / mean_us(first) : 0);
    return times > flat;
}

static void cost(const struct weft_figure_run *runs, unsigned count, struct weft_figure *figure,
                 FILE *body)
{
    const struct weft_figure_run *in_order[WEFT_FIGURE_RUNS_MAX];
    unsigned kept = sorted(runs, count, in_order);
    char weft[WEFT_FIGURE_WORDS / 2 - 8];
    char tcp[WEFT_FIGURE_WORDS / 2 - 8];
    if (!compares(runs, count, kept, figure)) {
        return;
    }
    bool grows = growth(in_order, kept, "weft", weft, sizeof(weft));
    bool tcp_grows = growth(in_order, kept, "tcp", tcp, sizeof(tcp));
    if (weft[0] == '\0' && tcp[0] == '\0') {
        snprintf(figure->why_not, sizeof(figure->why_not),
                 "it compares runs of one transport with different numbers of workers");
        return;
    }
    figure->verdict =
        grows || (weft[0] == '\0' && tcp_grows) ? WEFT_FIGURE_AGREES : WEFT_FIGURE_DIFFERS;
    snprintf(figure->here, sizeof(figure->here), "%s%s%s", weft,
             weft[0] != '\0' && tcp[0] != '\0' ? "; " : "", tcp);
    cost_data(body, in_order, kept, "weft");
    cost_data(body, in_order, kept, "tcp");
    fprintf(body,
            "set grid\nset xlabel 'workers (connections)'\nset xrange [0:*]\nset yrange [0:*]\n"
            "set y2range [0:*]\nset y2tics\nset key outside top center horizontal\n"
            "set ylabel 'server CPU of an RPC, us'\nset y2label 'mean latency of an RPC, us'\n"
            "plot $weft using 1:2 with linespoints lw 2 pt 7 lc 1 title 'weft, CPU'");
    fprintf(body, ", '' using 1:3 axes x1y2 with linespoints dt 2 pt 6 lc 1 title 'weft, latency'");
    if (tcp[0] != '\0') {
        fprintf(body,
                ", $tcp using 1:2 with linespoints lw 2 pt 5 lc 2 title 'TCP, CPU'"
                ", '' using 1:3 axes x1y2 with linespoints dt 2 pt 4 lc 2 title 'TCP, latency'");
    }
    fprintf(body, "\n");
}

const struct weft_figure_kind weft_figures_of_runs[] = {
    {"8", "cpu",
     "as the system grows (4 workers to a server), workers' CPU utilisation falls and servers' "
     "rises, to 90 %",
     .of_runs = cpu},
    {"9", "cost",
     "the cost of an RPC grows linearly with the number of connections, even when requests are "
     "empty",
     .of_runs = cost},
    {"10c", "with-and-without", WEFT_FIGURE_PREDICTION, .of_runs = weft_figure_with_and_without},
    {0},
};
