/* The work that aggregators save the servers: in one run (10b), and in runs with aggregators
 * compared with runs without (10c). The paper has no such figure, only the prediction.
 * docs/TRACING.md defines the verdicts.
 *
 * Here an update is a row of a push, and its PS_proc includes PS_overlap, because pushes are
 * applied while they arrive, but sums after they have arrived. */
#include "base/units.h"
#include "cli/trace/figure.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static const double half = 0.5;
static const double little = 0.1;

/* If a run has fewer direct updates than this, most are its first ones, which create rows. */
enum { DIRECT_UPDATES_LEAST = 1000 };
static const double direct_share_least = 0.05;

[[gnu::format(printf, 2, 3)]] static void say(struct weft_figure *figure, const char *format, ...)
{
    const size_t used = strlen(figure->here);
    va_list args;
    va_start(args, format);
    vsnprintf(figure->here + used, sizeof(figure->here) - used, format, args);
    va_end(args);
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static uint64_t updates_of(const struct weft_figure_run *run)
{
    return run->aggregation.paths[WEFT_RECDB_DIRECT].updates +
           run->aggregation.paths[WEFT_RECDB_AGGREGATED].updates;
}

/* CPU time of all processes of a role per update, ns; -1: not known. Workers in the servers'
 * process (weft load --local) cannot be separated from them. */
static double cpu_ns(const struct weft_figure_run *run, enum weft_recdb_roles role)
{
    const struct weft_recdb_role *roles = run->digest.roles;
    const uint64_t updates = updates_of(run);
    const bool known =
        updates > 0 && roles[role].cpu_ns > 0 && roles[WEFT_RECDB_WORKERS].processes > 0;
    return known ? (double)roles[role].cpu_ns / (double)updates : -1;
}

static double proc_ns(const struct weft_figure_run *run)
{
    return weft_recdb_path_ns(&run->aggregation, WEFT_RECDB_PATHS);
}

/* ---- 10b ------------------------------------------------------------------------------------- */

static bool has_direct(const struct weft_recdb_aggregation *a)
{
    const uint64_t direct = a->paths[WEFT_RECDB_DIRECT].updates;
    const uint64_t all = direct + a->paths[WEFT_RECDB_AGGREGATED].updates;
    return direct >= DIRECT_UPDATES_LEAST && (double)direct >= direct_share_least * (double)all;
}

/* PS_proc saved by the run, compared with a run in which each update would take the time of a
 * direct one. */
static double saved_of(const struct weft_recdb_aggregation *a)
{
    const double direct = weft_recdb_path_ns(a, WEFT_RECDB_DIRECT);
    return direct > 0 ? 1 - weft_recdb_path_ns(a, WEFT_RECDB_PATHS) / direct : 0;
}

static void say_times(const struct weft_figure_run *run, struct weft_figure *figure)
{
    const struct weft_recdb_aggregation *a = &run->aggregation;
    if (updates_of(run) == 0) {
        say(figure, "; the workers' records are missing, so PS_proc is not known");
    } else if (a->paths[WEFT_RECDB_AGGREGATED].updates == 0) {
        say(figure, "; no recorded push of a worker came through an aggregator");
    } else {
        say(figure, "; in sums an update takes %.0f ns of PS_proc and PS_overlap",
            weft_recdb_path_ns(a, WEFT_RECDB_AGGREGATED));
        if (has_direct(a)) {
            say(figure, ", and in direct pushes %.0f ns: the run saves %.0f %%",
                weft_recdb_path_ns(a, WEFT_RECDB_DIRECT), 100 * saved_of(a));
        } else {
            say(figure, "; too few pushes went to the servers directly for a comparison: see 10c");
        }
    }
    const struct weft_recdb_digest *d = &run->digest;
    if (d->connections.count > 0) {
        say(figure,
            "; within %.0f us a server gets requests of %.1f workers on %.1f connections "
            "(means)",
            (double)d->window_ns / 1e3, weft_times_mean(&d->active),
            weft_times_mean(&d->connections));
    }
}

void weft_figure_aggregators(const struct weft_figure_run *run, struct weft_figure *figure,
                             FILE *body)
{
    const struct weft_recdb_aggregation *a = &run->aggregation;
    if (a->all.pushes == 0) {
        snprintf(figure->why_not, sizeof(figure->why_not), "%s",
                 a->count == 0 ? "the run has no records of aggregators (weft aggregate --records "
                                 "FILE, or weft train --via on --records FILE)"
                               : "no aggregator received a push");
        return;
    }
    const double removed = weft_recdb_removed(a);
    const bool known =
        updates_of(run) > 0 && has_direct(a) && a->paths[WEFT_RECDB_AGGREGATED].updates > 0;
    const unsigned met = (removed >= half) + (saved_of(a) >= half);
    figure->verdict = !known     ? WEFT_FIGURE_OPEN
                      : met == 2 ? WEFT_FIGURE_AGREES
                      : met == 1 ? WEFT_FIGURE_PARTLY
                                 : WEFT_FIGURE_DIFFERS;
    say(figure,
        "of %" PRIu64 " pushes aggregators absorb %.1f %% (1 - messages to the servers / pushes), "
        "workers sent %.1f %% to the servers themselves; combining removes %.1f %% of %s updates",
        a->all.pushes, 100 * weft_recdb_absorbed(&a->all),
        percent(weft_recdb_direct(&a->all), a->all.pushes), 100 * removed,
        updates_of(run) > 0 ? "all" : "the aggregated");
    say_times(run, figure);
    fprintf(body, "$aggregators << EOD\n");
    for (size_t i = 0; i < a->count; i++) {
        const struct weft_recdb_aggregator *one = &a->list[i];
        fprintf(body, "\"%u / %u\" %.4f %.4f %.4f\n", one->number, one->server,
                100 * weft_recdb_absorbed(one), 100 * weft_recdb_combined(one),
                percent(weft_recdb_direct(one), one->pushes));
    }
    fprintf(body, "EOD\nset style data histogram\nset style histogram clustered gap 1\n"
                  "set style fill solid 0.8\nset yrange [0:100]\nset grid y\n"
                  "set key outside top center horizontal\nset xlabel 'aggregator / server'\n"
                  "set ylabel '%%'\n"
                  "plot $aggregators using 2:xtic(1) title 'pushes absorbed', "
                  "'' using 3 title 'rows combined', '' using 4 title 'pushes sent by workers'\n");
}

/* ---- 10c ------------------------------------------------------------------------------------- */

/* Means over runs; a CPU time of -1: not known of at least one. */
struct cost {
    unsigned runs;
    double proc_ns;
    double server_ns;
    double aggregator_ns;
    double connections;
    double removed;
};

/* The mean of n values and one more. */
static double mean_with(double mean, double n, double value)
{
    return mean < 0 || value < 0 ? -1 : (mean * n + value) / (n + 1);
}

static void cost_add(struct cost *cost, const struct weft_figure_run *run)
{
    const double n = cost->runs++;
    cost->proc_ns = mean_with(cost->proc_ns, n, proc_ns(run));
    cost->server_ns = mean_with(cost->server_ns, n, cpu_ns(run, WEFT_RECDB_SERVERS));
    cost->aggregator_ns = mean_with(cost->aggregator_ns, n, cpu_ns(run, WEFT_RECDB_AGGREGATORS));
    cost->connections = mean_with(cost->connections, n, weft_times_mean(&run->digest.connections));
    cost->removed = mean_with(cost->removed, n, weft_recdb_removed(&run->aggregation));
}

static void say_cost(struct weft_figure *figure, const struct cost *cost)
{
    say(figure, "%.0f ns of PS_proc and PS_overlap", cost->proc_ns);
    if (cost->server_ns >= 0) {
        say(figure, ", %.0f ns of the servers' CPU", cost->server_ns);
    }
    if (cost->aggregator_ns >= 0) {
        say(figure, ", %.0f ns of the aggregators'", cost->aggregator_ns);
    }
    if (cost->connections > 0) {
        say(figure, ", %.1f active connections", cost->connections);
    }
}

static void draw_costs(const struct weft_figure_run *runs, unsigned count, FILE *body)
{
    fprintf(body, "$runs << EOD\n");
    for (unsigned i = 0; i < count; i++) {
        const struct weft_figure_run *run = &runs[i];
        const double server_ns = cpu_ns(run, WEFT_RECDB_SERVERS);
        const double aggregator_ns = cpu_ns(run, WEFT_RECDB_AGGREGATORS);
        if (updates_of(run) > 0) {
            fprintf(body, "\"%s%s\" %.4f %.4f %.4f\n", run->name,
                    run->aggregation.count > 0 ? " (with)" : "", proc_ns(run),
                    server_ns < 0 ? 0 : server_ns, aggregator_ns < 0 ? 0 : aggregator_ns);
        }
    }
    fprintf(body, "EOD\nset style data histogram\nset style histogram clustered gap 1\n"
                  "set style fill solid 0.8\nset yrange [0:*]\nset grid y\n"
                  "set key outside top center horizontal noenhanced\nset xtics noenhanced\n"
                  "set xlabel 'run'\nset ylabel 'ns for an update'\n"
                  "plot $runs using 2:xtic(1) title 'PS_proc and PS_overlap', "
                  "'' using 3 title 'CPU of the servers', "
                  "'' using 4 title 'CPU of the aggregators'\n");
}

void weft_figure_with_and_without(const struct weft_figure_run *runs, unsigned count,
                                  struct weft_figure *figure, FILE *body)
{
    struct cost without = {0}, with = {0};
    for (unsigned i = 0; i < count; i++) {
        const struct weft_figure_run *run = &runs[i];
        if (updates_of(run) > 0) {
            cost_add(run->aggregation.count == 0 ? &without : &with, run);
        }
    }
    if (with.runs == 0 || without.runs == 0 || !(without.proc_ns > 0)) {
        snprintf(figure->why_not, sizeof(figure->why_not), "%s",
                 "it compares runs with aggregators and without; give files of both, with the "
                 "records of their workers");
        return;
    }
    const double saved = 1 - with.proc_ns / without.proc_ns;
    figure->verdict = saved >= half     ? WEFT_FIGURE_AGREES
                      : saved >= little ? WEFT_FIGURE_PARTLY
                                        : WEFT_FIGURE_DIFFERS;
    say(figure, "for an update, without aggregators (%u run%s): ", without.runs,
        without.runs == 1 ? "" : "s");
    say_cost(figure, &without);
    say(figure, "; with them (%u run%s), which remove %.1f %% of the updates: ", with.runs,
        with.runs == 1 ? "" : "s", 100 * with.removed);
    say_cost(figure, &with);
    say(figure, ": %.0f %% of PS_proc saved", 100 * saved);
    if (without.server_ns > 0 && with.server_ns >= 0) {
        say(figure, ", %.0f %% of the CPU", 100 * (1 - with.server_ns / without.server_ns));
    }
    draw_costs(runs, count, body);
}

/* ---- text output ----------------------------------------------------------------------------- */

static const char *const direct_names[WEFT_RPC_RECORD_DIRECTS] = {"absorbed", "table",  "form",
                                                                  "large",    "server", "refused"};
static const char *const flush_names[WEFT_RPC_RECORD_FLUSHES] = {"dropped", "complete", "count",
                                                                 "age", "memory"};

static double age_ms(const struct weft_recdb_aggregator *one)
{
    return one->sums > 0 ? (double)one->age_ns / (double)one->sums / 1e6 : 0;
}

void weft_figure_aggregators_text(FILE *out, const struct weft_figure_run *run)
{
    const struct weft_recdb_aggregation *a = &run->aggregation;
    for (size_t i = 0; i < a->count; i++) {
        const struct weft_recdb_aggregator *one = &a->list[i];
        fprintf(out,
                "%s: aggregator %u to server %u: %" PRIu64 " pushes in, %" PRIu64
                " sums out (%.1f %% absorbed), %" PRIu64
                " sent by workers to the server instead; rows: %" PRIu64 " in, %" PRIu64
                " out (%.1f %% combined); age of a sum: mean %.2f ms, longest %.2f ms\n",
                run->file, one->number, one->server, one->pushes, one->sums,
                100 * weft_recdb_absorbed(one), weft_recdb_direct(one), one->rows_in, one->rows_out,
                100 * weft_recdb_combined(one), age_ms(one), (double)one->age_ns_max / 1e6);
    }
}

static void add_counts(cJSON *into, const char *name, const char *const *names,
                       const uint64_t *counts, int first, int count)
{
    cJSON *object = cJSON_AddObjectToObject(into, name);
    for (int i = first; i < count; i++) {
        cJSON_AddNumberToObject(object, names[i], (double)counts[i]);
    }
}

/* null: not known. */
static void add_known(cJSON *into, const char *name, double value, bool known)
{
    if (known) {
        cJSON_AddNumberToObject(into, name, value);
    } else {
        cJSON_AddNullToObject(into, name);
    }
}

static void add_costs(cJSON *into, const struct weft_figure_run *run)
{
    static const char *const names[] = {"direct", "aggregated"};
    const struct weft_recdb_digest *d = &run->digest;
    const bool has_windows = d->connections.count > 0;
    cJSON *object = cJSON_AddObjectToObject(into, "aggregation");
    const double removed = weft_recdb_removed(&run->aggregation);
    add_known(object, "removed", removed, removed >= 0);
    const double server_ns = cpu_ns(run, WEFT_RECDB_SERVERS);
    const double aggregator_ns = cpu_ns(run, WEFT_RECDB_AGGREGATORS);
    add_known(object, "server_cpu_ns", server_ns, server_ns >= 0);
    add_known(object, "aggregator_cpu_ns", aggregator_ns, aggregator_ns >= 0);
    add_known(object, "connections_mean", weft_times_mean(&d->connections), has_windows);
    add_known(object, "workers_mean", weft_times_mean(&d->active), d->active.count > 0);
    for (int p = 0; p < WEFT_RECDB_PATHS; p++) {
        const struct weft_recdb_path_sums *path = &run->aggregation.paths[p];
        cJSON *one = cJSON_AddObjectToObject(object, names[p]);
        cJSON_AddNumberToObject(one, "pushes", (double)path->pushes);
        cJSON_AddNumberToObject(one, "updates", (double)path->updates);
        const double updates = (double)path->updates;
        add_known(one, "ps_proc_ns", (double)path->ps_proc_ns / updates, updates > 0);
        add_known(one, "ps_overlap_ns", (double)path->ps_overlap_ns / updates, updates > 0);
    }
}

void weft_figure_aggregators_json(cJSON *into, const struct weft_figure_run *run)
{
    const struct weft_recdb_aggregation *a = &run->aggregation;
    cJSON *list = cJSON_AddArrayToObject(into, "aggregators");
    for (size_t i = 0; i < a->count; i++) {
        const struct weft_recdb_aggregator *one = &a->list[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "aggregator", one->number);
        cJSON_AddNumberToObject(object, "server", one->server);
        cJSON_AddNumberToObject(object, "pushes", (double)one->pushes);
        cJSON_AddNumberToObject(object, "pushes_direct", (double)weft_recdb_direct(one));
        add_counts(object, "direct", direct_names, one->direct, 1, WEFT_RPC_RECORD_DIRECTS);
        cJSON_AddNumberToObject(object, "messages", (double)one->messages);
        cJSON_AddNumberToObject(object, "sums", (double)one->sums);
        add_counts(object, "flushed", flush_names, one->flushed, 1, WEFT_RPC_RECORD_FLUSHES);
        cJSON_AddNumberToObject(object, "rows_in", (double)one->rows_in);
        cJSON_AddNumberToObject(object, "rows_out", (double)one->rows_out);
        cJSON_AddNumberToObject(object, "bytes_in", (double)one->bytes_in);
        cJSON_AddNumberToObject(object, "bytes_out", (double)one->bytes_out);
        cJSON_AddNumberToObject(object, "absorbed", weft_recdb_absorbed(one));
        cJSON_AddNumberToObject(object, "combined", weft_recdb_combined(one));
        cJSON_AddNumberToObject(object, "age_ms_mean", age_ms(one));
        cJSON_AddNumberToObject(object, "age_ms_max", (double)one->age_ns_max / 1e6);
        cJSON_AddItemToArray(list, object);
    }
    add_costs(into, run);
}
