/* The figures of one run: latencies (4), their stages (5), sizes of replies (6), intervals and
 * active workers (7), hot parameters (10). Aggregators (10b) are in figure_aggregators.c. The
 * thresholds for "heavy", "much" and "mostly" are defined here, and in docs/TRACING.md. */
#include "base/units.h"
#include "cli/trace/figure.h"

#include <inttypes.h>

/* p99 / p50 of an exponential distribution is ln 100 / ln 2: a heavier tail is above it. */
static const double exponential_tail = 6.64;

enum { MUCH = 4, MOSTLY_SHORT = 10 };

static double quantile(const struct weft_hist *hist, double part)
{
    return (double)weft_hist_quantile(hist, (uint32_t)(part * 1e6));
}

static double tail(const struct weft_hist *hist)
{
    double median = quantile(hist, 0.5);
    return median > 0 ? quantile(hist, 0.99) / median : 0;
}

static const struct weft_recdb_kind_digest *kind_of(const struct weft_figure_run *run,
                                                    unsigned kind)
{
    return &run->digest.kinds[kind];
}

/* Most figures compare pushes with pulls. */
static bool has_both(const struct weft_figure_run *run, struct weft_figure *figure)
{
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        if (kind_of(run, k)->total.count == 0) {
            snprintf(figure->why_not, sizeof(figure->why_not), "this run has no successful %s",
                     weft_recdb_kind_name(k));
            return false;
        }
    }
    return true;
}

static void two_cdfs(FILE *body, const struct weft_hist *push, const struct weft_hist *pull,
                     double scale)
{
    weft_figure_cdf(body, "push", push, scale);
    weft_figure_cdf(body, "pull", pull, scale);
    fprintf(body, "set logscale x\nset yrange [0:1]\nset key right bottom\n"
                  "set ylabel 'fraction of RPCs'\nset grid\nset rmargin 5\n"
                  "plot $push with steps lw 2 title 'push', $pull with steps lw 2 title 'pull'\n");
}

static void latency(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    if (!has_both(run, figure)) {
        return;
    }
    const struct weft_hist *push = &kind_of(run, WEFT_RECDB_PUSH)->total;
    const struct weft_hist *pull = &kind_of(run, WEFT_RECDB_PULL)->total;
    bool heavy = tail(push) > exponential_tail || tail(pull) > exponential_tail;
    bool longer = quantile(push, 0.5) > quantile(pull, 0.5);
    figure->verdict = heavy && longer   ? WEFT_FIGURE_AGREES
                      : heavy || longer ? WEFT_FIGURE_PARTLY
                                        : WEFT_FIGURE_DIFFERS;
    snprintf(figure->here, sizeof(figure->here),
             "p99 is %.1f times p50 for pushes and %.1f times for pulls (%s: an exponential "
             "distribution has 6.6); the median of a push is %.0f us, the median pull %.0f us",
             tail(push), tail(pull), heavy ? "a heavy tail" : "no heavy tail",
             quantile(push, 0.5) / 1e3, quantile(pull, 0.5) / 1e3);
    fprintf(body, "set xlabel 'latency of an RPC, us'\n");
    two_cdfs(body, push, pull, 1e3);
}

/* ---- 5: stages ------------------------------------------------------------------------------- */

/* The two largest stages. */
static void largest(const struct weft_recdb_kind_digest *kind, unsigned two_p[2])
{
    two_p[0] = two_p[1] = WEFT_RECDB_STAGES;
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        if (two_p[0] == WEFT_RECDB_STAGES || kind->stages[i].sum > kind->stages[two_p[0]].sum) {
            two_p[1] = two_p[0];
            two_p[0] = i;
        } else if (two_p[1] == WEFT_RECDB_STAGES ||
                   kind->stages[i].sum > kind->stages[two_p[1]].sum) {
            two_p[1] = i;
        }
    }
}

static bool is_papers_two(const unsigned two[2])
{
    return (two[0] == WEFT_RECDB_PS_PROC && two[1] == WEFT_RECDB_N_TX) ||
           (two[0] == WEFT_RECDB_N_TX && two[1] == WEFT_RECDB_PS_PROC);
}

static void stages(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    if (!has_both(run, figure)) {
        return;
    }
    unsigned agreeing = 0;
    size_t used = 0;
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        const struct weft_recdb_kind_digest *kind = kind_of(run, k);
        unsigned two[2];
        largest(kind, two);
        agreeing += is_papers_two(two);
        used += (size_t)snprintf(
            figure->here + used, sizeof(figure->here) - used,
            "%s%s: %s %.0f %% and %s %.0f %% of a mean of %.0f us", k > 0 ? "; " : "",
            weft_recdb_kind_name(k), weft_recdb_stage_name(two[0]),
            100 * weft_recdb_share(kind, two[0]), weft_recdb_stage_name(two[1]),
            100 * weft_recdb_share(kind, two[1]), weft_times_mean(&kind->total) / 1e3);
    }
    figure->verdict = agreeing == 2   ? WEFT_FIGURE_AGREES
                      : agreeing == 1 ? WEFT_FIGURE_PARTLY
                                      : WEFT_FIGURE_DIFFERS;
    fprintf(body, "$stages << EOD\nkind");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        fprintf(body, " %s", weft_recdb_stage_name(i));
    }
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        fprintf(body, "\n%s", weft_recdb_kind_name(k));
        for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
            fprintf(body, " %.4f", 100 * weft_recdb_share(kind_of(run, k), i));
        }
    }
    fprintf(body,
            "\nEOD\nset style data histogram\nset style histogram rowstacked\n"
            "set style fill solid 0.8 border -1\nset boxwidth 0.5\nset yrange [0:100]\n"
            "set ylabel '%% of the time of all RPCs'\nset grid y\nset key outside right\n"
            "set key autotitle columnheader noenhanced\n"
            "plot for [i=2:%d] $stages using i:xtic(1)\n",
            WEFT_RECDB_STAGES + 1);
}

/* ---- 6: sizes -------------------------------------------------------------------------------- */

static void sizes(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    if (!has_both(run, figure)) {
        return;
    }
    const struct weft_hist *push = &kind_of(run, WEFT_RECDB_PUSH)->replies;
    const struct weft_hist *pull = &kind_of(run, WEFT_RECDB_PULL)->replies;
    double times = quantile(pull, 0.5) / weft_max_u64((uint64_t)quantile(push, 0.5), 1);
    figure->verdict = times >= MUCH ? WEFT_FIGURE_AGREES
                      : times > 1   ? WEFT_FIGURE_PARTLY
                                    : WEFT_FIGURE_DIFFERS;
    snprintf(
        figure->here, sizeof(figure->here),
        "the median reply to a pull has %.0f bytes, to a push %.0f; 99 %% of them have at most "
        "%.0f and %.0f",
        quantile(pull, 0.5), quantile(push, 0.5), quantile(pull, 0.99), quantile(push, 0.99));
    fprintf(body, "set xlabel 'bytes of a reply'\n");
    two_cdfs(body, push, pull, 1);
}

/* ---- 7: intervals, active workers ------------------------------------------------------------ */

static void intervals(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    const struct weft_hist *ns = &run->intervals_ns;
    if (ns->count == 0) {
        snprintf(figure->why_not, sizeof(figure->why_not),
                 "no worker sent two requests to one server");
        return;
    }
    double times = quantile(ns, 0.5) > 0 ? quantile(ns, 0.99) / quantile(ns, 0.5) : 0;
    figure->verdict = times >= MOSTLY_SHORT ? WEFT_FIGURE_AGREES
                      : times >= 2          ? WEFT_FIGURE_PARTLY
                                            : WEFT_FIGURE_DIFFERS;
    snprintf(
        figure->here, sizeof(figure->here),
        "half of the intervals are at most %.0f us, 90 %% at most %.0f us, 99 %% at most %.0f us "
        "(%.1f times the median); the longest has %.1f ms",
        quantile(ns, 0.5) / 1e3, quantile(ns, 0.9) / 1e3, quantile(ns, 0.99) / 1e3, times,
        (double)ns->max / 1e6);
    weft_figure_cdf(body, "intervals", ns, 1e3);
    fprintf(body, "set xlabel 'us between two requests of a worker to a server'\n"
                  "set ylabel 'fraction of intervals'\nset logscale x\nset yrange [0:1]\n"
                  "set grid\nset rmargin 5\nunset key\nplot $intervals with steps lw 2\n");
}

static void active(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    const struct weft_hist *workers = &run->digest.active;
    size_t all = run->digest.workers.count;
    if (workers->count == 0) {
        snprintf(figure->why_not, sizeof(figure->why_not), "the servers counted no active workers");
        return;
    }
    double median = quantile(workers, 0.5);
    figure->verdict = all < 50                        ? WEFT_FIGURE_OPEN
                      : median >= 50 && median <= 200 ? WEFT_FIGURE_AGREES
                                                      : WEFT_FIGURE_DIFFERS;
    int used = snprintf(
        figure->here, sizeof(figure->here),
        "a server receives from %.0f workers within %.0f us (median of the windows with any), 99 "
        "%% of "
        "the windows have at most %.0f; the run has %zu workers%s",
        median, (double)run->digest.window_ns / 1e3, quantile(workers, 0.99), all,
        all < 50 ? ", too few to compare" : "");
    weft_figure_cdf(body, "active", workers, 1);
    fprintf(body,
            "set xlabel 'distinct workers that a server receives from within %.0f us'\n"
            "set ylabel 'fraction of windows with any'\nset xrange [0:*]\nset yrange [0:1]\n"
            "set grid\nset key right bottom\n",
            (double)run->digest.window_ns / 1e3);
    const struct weft_hist *connections = &run->digest.connections;
    if (connections->count > 0) {
        snprintf(figure->here + used, sizeof(figure->here) - (size_t)used,
                 "; on %.0f connections (median), of workers and aggregators",
                 quantile(connections, 0.5));
        weft_figure_cdf(body, "connections", connections, 1);
    }
    fprintf(body, "plot $active with steps lw 2 title 'workers'%s\n",
            connections->count > 0 ? ", $connections with steps lw 2 title 'connections'" : "");
}

/* ---- 10: hot parameters ---------------------------------------------------------------------- */

static bool is_exact(const struct weft_recdb_hot_share *share)
{
    return share->low >= share->high;
}

static void hot_words(const struct weft_figure_run *run, struct weft_figure *figure,
                      const struct weft_recdb_hot_share *shares, unsigned count)
{
    enum { PAPERS_TOP = 20000 };
    unsigned best = count - 1; /* the paper's number, or all that exist */
    for (unsigned i = 0; i < count; i++) {
        if (shares[i].k == PAPERS_TOP) {
            best = i;
        }
    }
    bool known = shares[best].k == PAPERS_TOP;
    figure->verdict = !known                    ? WEFT_FIGURE_OPEN
                      : shares[best].low >= 0.5 ? WEFT_FIGURE_AGREES
                      : shares[best].high < 0.5 ? WEFT_FIGURE_DIFFERS
                                                : WEFT_FIGURE_OPEN;
    int used = snprintf(figure->here, sizeof(figure->here),
                        "the top %" PRIu64 " get %.1f %% of %" PRIu64 " updates", shares[best].k,
                        100 * shares[best].low, run->hotness.updates);
    if (!is_exact(&shares[best])) {
        used += snprintf(figure->here + used, sizeof(figure->here) - (size_t)used, " at least");
    }
    if (!is_exact(&shares[best]) && shares[best].has_high) {
        used += snprintf(figure->here + used, sizeof(figure->here) - (size_t)used,
                         ", %.1f %% at most", 100 * shares[best].high);
    }
    if (!known) {
        snprintf(figure->here + used, sizeof(figure->here) - (size_t)used,
                 "; no more than %zu were kept, too few to compare", run->hotness.count);
    }
}

static void hot(const struct weft_figure_run *run, struct weft_figure *figure, FILE *body)
{
    struct weft_recdb_hot_share shares[WEFT_RECDB_HOT_LEVELS];
    unsigned count = weft_recdb_hot_shares(&run->hotness, shares);
    if (count == 0 || run->hotness.updates == 0) {
        snprintf(figure->why_not, sizeof(figure->why_not), "the servers counted no updates");
        return;
    }
    hot_words(run, figure, shares, count);
    bool exact = true, bounded = false;
    fprintf(body, "$hot << EOD\n");
    for (unsigned i = 0; i < count; i++) {
        exact = exact && is_exact(&shares[i]);
        bounded = bounded || shares[i].has_high;
        fprintf(body, "\"%" PRIu64 "\" %.4f ", shares[i].k, 100 * shares[i].low);
        if (shares[i].has_high) {
            fprintf(body, "%.4f\n", 100 * shares[i].high);
        } else {
            fprintf(body, "NaN\n");
        }
    }
    fprintf(body,
            "EOD\nset style fill solid 0.8\nset boxwidth 0.6\nset yrange [0:100]\n"
            "set ylabel '%% of all updates'\nset xlabel 'the most updated parameters'\n"
            "set grid y\nset key outside top center horizontal\n"
            "plot $hot using 0:2:xtic(1) with boxes title 'share%s'%s\n",
            exact ? "" : ", at least",
            exact || !bounded ? "" : ", '' using 0:3 with points pt 7 lc 'black' title 'at most'");
}

const struct weft_figure_kind weft_figures_of_one[] = {
    {"4", "latency", "latencies have a heavy tail, and pushes take longer than pulls",
     .of_one = latency},
    {"5", "stages", "PS_proc and N_tx are the largest parts of pushes and of pulls",
     .of_one = stages},
    {"6", "reply-sizes",
     "replies to pulls are much larger than those to pushes, which are like acknowledgements",
     .of_one = sizes},
    {"7a", "intervals",
     "most intervals between a worker's RPCs to a server are very short, a few are long: a push or "
     "pull is many RPCs, and between them the worker computes",
     .of_one = intervals},
    {"7b", "active-workers", "a server receives from 50 to 200 workers within 1,000 us",
     .of_one = active},
    {"10", "hot-parameters",
     "the top 20,000 parameters get 50 % (R1) and 70 % (R2) of all updates; R2 has 150 million "
     "(Table 1)",
     .of_one = hot},
    {"10b", "aggregators", WEFT_FIGURE_PREDICTION, .of_one = weft_figure_aggregators},
    {0},
};
