#include "cli/top/view.h"

#include "base/units.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct picture {
    struct weft_top_view *view;            /* output lines */
    const struct weft_top_target *targets; /* (count,) */
    uint32_t count;
    uint32_t width;
};

/* ---- lines ----------------------------------------------------------------------------------- */

[[gnu::format(printf, 2, 3)]] static void add(const struct picture *p, const char *format, ...)
{
    struct weft_top_view *view = p->view;
    char text[2 * WEFT_TOP_WIDTH_MAX];
    va_list args;
    if (view->count == WEFT_TOP_LINES_MAX) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t end = strnlen(text, p->width);
    /* Names and ids come from other processes: they must not contain terminal escapes. */
    for (size_t i = 0; i < end; i++) {
        text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    while (end > 0 && text[end - 1] == ' ') {
        end--;
    }
    snprintf(view->lines[view->count], sizeof(view->lines[0]), "%.*s", (int)end, text);
    view->is_head[view->count++] = false;
}

static void head(const struct picture *p, const char *text)
{
    add(p, "%s", "");
    add(p, "%s", text);
    p->view->is_head[p->view->count > 0 ? p->view->count - 1 : 0] = true;
}

/* 1234567 -> "1.2M": at most six characters. */
static const char *short_text(double value, char text_p[16])
{
    static const char units[] = " kMGTP";
    unsigned unit = 0;
    while (value >= 999.5 && unit < sizeof(units) - 2) {
        value /= 1000;
        unit++;
    }
    if (unit == 0) {
        bool is_whole = value == floor(value);
        snprintf(text_p, 16, value < 9.95 && !is_whole ? "%.1f" : "%.0f", value);
    } else {
        snprintf(text_p, 16, value < 9.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
    }
    return text_p;
}

/* ---- processes ------------------------------------------------------------------------------- */

static bool is_role(const struct weft_top_target *target, const char *role)
{
    return strcmp(target->role, role) == 0;
}

static uint32_t count_role(const struct picture *p, const char *role)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        found += is_role(&p->targets[i], role) && !p->targets[i].is_gone;
    }
    return found;
}

/* Buffers for the short texts of one line. */
struct cells {
    char text[8][16];
    unsigned used;
};

static const char *rate(struct cells *cells, const struct weft_top_target *target, const char *name,
                        const char *with)
{
    return short_text(weft_top_rate(target, name, with), cells->text[cells->used++]);
}

static const char *now(struct cells *cells, const struct weft_top_target *target, const char *name)
{
    return short_text(weft_samples_sum(&target->now, name, NULL), cells->text[cells->used++]);
}

static void draw_gone(const struct picture *p, const struct weft_top_target *target)
{
    add(p, "%-21.21s gone: %s", target->name, target->why);
}

/* Common columns of processes that send and receive messages; `first` has 11 columns. */
static void draw_row(const struct picture *p, const struct weft_top_target *target,
                     const char *first, const char *messages, const char *rows,
                     const char *rows_with)
{
    struct cells cells = {.used = 0};
    add(p, "%-21.21s %11s %6s %6s %6s %6s %6s %4.0f %6s", target->name, first,
        rate(&cells, target, messages, "kind=\"push\""),
        rate(&cells, target, messages, "kind=\"pull\""), rate(&cells, target, rows, rows_with),
        rate(&cells, target, "weft_received_bytes_total", NULL),
        rate(&cells, target, "weft_sent_bytes_total", NULL),
        100 * weft_top_rate(target, "process_cpu_seconds_total", NULL),
        now(&cells, target, "process_resident_memory_bytes"));
}

static void draw_server(const struct picture *p, const struct weft_top_target *target)
{
    uint32_t shards = 0;
    for (uint32_t i = 0; i < target->now.count; i++) {
        shards += strcmp(target->now.at[i].name, "weft_workers_connected") == 0;
    }
    double connected = weft_samples_sum(&target->now, "weft_workers_connected", NULL) +
                       weft_samples_sum(&target->now, "weft_workers_parked", NULL);
    double active = weft_samples_sum(&target->now, "weft_workers_active", NULL);
    char workers[32];
    char first[64];
    snprintf(workers, sizeof(workers), "%.0f/%.0f", shards > 0 ? active / shards : 0,
             shards > 0 ? connected / shards : 0);
    snprintf(first, sizeof(first), "%3u %7s", shards, workers);
    draw_row(p, target, first, "weft_requests_total", "weft_updates_applied_total", NULL);
}

static void draw_worker(const struct picture *p, const struct weft_top_target *target)
{
    char first[64];
    char steps[16];
    snprintf(first, sizeof(first), "%3.0f %7s",
             weft_samples_sum(&target->now, "weft_worker_rank", NULL),
             short_text(weft_top_rate(target, "weft_step_seconds_count", NULL), steps));
    draw_row(p, target, first, "weft_client_messages_total", "weft_client_elements_total",
             "kind=\"push\"");
}

/* `weft aggregate`: the fraction of updates that it saved the servers, and pushes redirected to
 * them. */
static void draw_aggregator(const struct picture *p, const struct weft_top_target *target)
{
    struct cells cells = {.used = 0};
    uint32_t shards = 0;
    for (uint32_t i = 0; i < target->now.count; i++) {
        shards += strcmp(target->now.at[i].name, "weft_aggregator_workers") == 0;
    }
    double in = weft_top_rate(target, "weft_aggregator_rows_in_total", NULL);
    double out = weft_top_rate(target, "weft_aggregator_rows_out_total", NULL);
    double workers = weft_samples_sum(&target->now, "weft_aggregator_workers", NULL);
    add(p, "%-21.21s %3u %7s %6s %6s %6s %6.0f %6s %4.0f %6s", target->name, shards,
        short_text(shards > 0 ? workers / shards : 0, cells.text[cells.used++]),
        rate(&cells, target, "weft_aggregator_pushes_in_total", NULL),
        rate(&cells, target, "weft_aggregator_pulls_in_total", NULL),
        rate(&cells, target, "weft_aggregator_rows_in_total", NULL),
        in > out ? 100 * (1 - out / in) : 0.0,
        rate(&cells, target, "weft_aggregator_pushes_direct_total", NULL),
        100 * weft_top_rate(target, "process_cpu_seconds_total", NULL),
        now(&cells, target, "process_resident_memory_bytes"));
}

/* `weft load`: many workers in one process. */
static void draw_load(const struct picture *p, const struct weft_top_target *target)
{
    char first[64];
    snprintf(first, sizeof(first), "%.0f",
             weft_samples_sum(&target->now, "weft_load_workers", "state=\"connected\""));
    draw_row(p, target, first, "weft_client_messages_total", "weft_client_elements_total", NULL);
}

static void draw_other(const struct picture *p, const struct weft_top_target *target)
{
    struct cells cells = {.used = 0};
    add(p, "%-21.21s %-46s %4.0f %6s", target->name, target->role,
        100 * weft_top_rate(target, "process_cpu_seconds_total", NULL),
        now(&cells, target, "process_resident_memory_bytes"));
}

/* Roles without a line format of their own. */
static bool is_other(const struct weft_top_target *target)
{
    static const char *const shown[] = {"server",      "worker", "load", "aggregator",
                                        "coordinator", ""};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(shown); i++) {
        if (is_role(target, shown[i])) {
            return false;
        }
    }
    return true;
}

/* In display order. */
static const struct role {
    const char *name; /* "" = never replied, NULL = all others */
    const char *title;
    void (*draw)(const struct picture *p, const struct weft_top_target *target);
} roles[] = {
    {"server", "SERVER             shards workers push/s pull/s rows/s in B/s outB/s cpu%    mem",
     draw_server},
    {"worker", "WORKER               rank  step/s push/s pull/s rows/s in B/s outB/s cpu%    mem",
     draw_worker},
    {"load", "LOAD                      workers push/s pull/s rows/s in B/s outB/s cpu%    mem",
     draw_load},
    {"aggregator",
     "AGGREGATOR         shards workers push/s pull/s rows/s saved% direct cpu%    mem",
     draw_aggregator},
    {NULL, "OTHERS", draw_other},
    {"coordinator", "COORDINATOR", draw_other},
    {"", "NO ANSWER", draw_gone},
};

/* Draw all targets of a role under one heading; nothing if there is none. */
static void draw_role(const struct picture *p, const struct role *role)
{
    bool begun = false;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct weft_top_target *target = &p->targets[i];
        if (role->name != NULL ? !is_role(target, role->name) : !is_other(target)) {
            continue;
        }
        if (!begun) {
            head(p, role->title);
            begun = true;
        }
        (target->is_gone ? draw_gone : role->draw)(p, target);
    }
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* A norm over the shards of a server. */
static double norm_now(const struct weft_top_target *target, const char *name)
{
    double squares = 0;
    for (uint32_t i = 0; i < target->now.count; i++) {
        const double value = target->now.at[i].value;
        squares += strcmp(target->now.at[i].name, name) == 0 ? value * value : 0;
    }
    return sqrt(squares);
}

/* Nothing for servers that never had a replica. */
static void draw_replicas(const struct picture *p)
{
    bool begun = false;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct weft_top_target *target = &p->targets[i];
        struct cells cells = {.used = 0};
        double ready = weft_samples_sum(&target->now, "weft_replica_ready", NULL);
        double sent = weft_samples_sum(&target->now, "weft_replica_bytes_total", NULL);
        if (!is_role(target, "server") || target->is_gone || !(ready + sent > 0)) {
            continue;
        }
        if (!begun) {
            head(p, "REPLICA OF          ready diverges  highest    bound waits/s trans/s    B/s");
            begun = true;
        }
        add(p, "%-21.21s %3.0f %8.3g %8.3g %8.3g %7s %7s %6s", target->name, ready,
            norm_now(target, "weft_replica_divergence"),
            norm_now(target, "weft_replica_divergence_max"),
            norm_now(target, "weft_replica_divergence_bound"),
            rate(&cells, target, "weft_replica_reply_delays_total", NULL),
            rate(&cells, target, "weft_replica_transfers_total", NULL),
            rate(&cells, target, "weft_replica_bytes_total", NULL));
    }
}

/* ---- aggregation at servers ------------------------------------------------------------------ */

static double over(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* Nothing for servers without aggregators. */
static void draw_aggregation(const struct picture *p)
{
    bool begun = false;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct weft_top_target *target = &p->targets[i];
        const double boxes = weft_samples_sum(&target->now, "weft_aggregators_connected", NULL);
        const double sums = weft_samples_sum(&target->now, "weft_aggregates_total", NULL);
        if (!is_role(target, "server") || target->is_gone || !(boxes + sums > 0)) {
            continue;
        }
        if (!begun) {
            head(p,
                 "AGGREGATION AT         n absorb% remove% direct   sums    cpu   conns  workers");
            begun = true;
        }
        struct cells cells = {.used = 0};
        const double updates = weft_top_rate(target, "weft_updates_applied_total", NULL);
        const double summed = weft_top_rate(target, "weft_aggregate_updates_total", NULL);
        const double ns[] = {
            over(1e9 *
                     weft_top_rate(target, "weft_push_processing_seconds_total", "path=\"direct\""),
                 updates - summed),
            over(1e9 * weft_top_rate(target, "weft_push_processing_seconds_total",
                                     "path=\"aggregated\""),
                 summed),
            over(1e9 * weft_top_rate(target, "process_cpu_seconds_total", NULL), updates),
        };
        const double windows = weft_top_rate(target, "weft_active_windows_total", NULL);
        add(p, "%-21.21s %3.0f %7.1f %7.1f %6s %6s %6s %7.1f %8.1f", target->name, boxes,
            100 * over(weft_top_rate(target, "weft_aggregate_pushes_total", NULL) -
                           weft_top_rate(target, "weft_aggregates_total", NULL),
                       weft_top_rate(target, "weft_requests_total", "kind=\"push\"")),
            100 * over(summed - weft_top_rate(target, "weft_aggregate_rows_total", NULL), updates),
            short_text(ns[0], cells.text[0]), short_text(ns[1], cells.text[1]),
            short_text(ns[2], cells.text[2]),
            over(weft_top_rate(target, "weft_active_connections_total", NULL), windows),
            over(weft_top_rate(target, "weft_active_workers_total", NULL), windows));
    }
    if (begun) {
        add(p, "(ns for an update: direct, in sums, CPU; connections, workers in a window)");
    }
}

/* ---- time by stage --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    char letter;
} parts[] = {{"n_tx", 'n'},    {"ps_queue", 'q'}, {"ps_wait", 'w'},
             {"ps_proc", 'p'}, {"w_queue", 'u'},  {"w_proc", 'c'}};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* Mean of a stage over the RPCs of all workers, us. */
static double part_us(const struct picture *p, const char *kind, const char *part)
{
    double sum = 0, rpcs = 0;
    char with[64];
    snprintf(with, sizeof(with), "kind=\"%s\",part=\"%s\"", kind, part);
    for (uint32_t i = 0; i < p->count; i++) {
        if (!is_role(&p->targets[i], "worker") || p->targets[i].is_gone) {
            continue;
        }
        double rate_rpcs = weft_top_rate(&p->targets[i], "weft_rpc_latency_seconds_count", with);
        sum += weft_top_rate(&p->targets[i], "weft_rpc_latency_seconds_sum", with);
        rpcs += rate_rpcs;
    }
    return rpcs > 0 ? sum / rpcs * 1e6 : 0;
}

/* Letters in proportion: part i ends at the sum of the first i parts. */
static void draw_bar(char *bar_p, uint32_t width, const double *us, double total)
{
    double sum = 0;
    uint32_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        sum += us[i];
        uint32_t end = (uint32_t)(sum / total * width + 0.5);
        for (; at < end && at < width; at++) {
            bar_p[at] = parts[i].letter;
        }
    }
    bar_p[at] = '\0';
}

static void draw_times(const struct picture *p)
{
    static const char *const kinds[] = {"push", "pull"};
    char bar[WEFT_TOP_WIDTH_MAX + 1];
    head(p, "RPC TIME  n network  q queue  w consistency  p server  u worker queue  c worker");
    for (int k = 0; k < 2; k++) {
        double us[PARTS], total = 0;
        char text[16];
        for (int i = 0; i < PARTS; i++) {
            us[i] = part_us(p, kinds[k], parts[i].name);
            total += us[i];
        }
        if (!(total > 0 && total < 1e15)) { /* also for invalid values */
            add(p, "%s  none", kinds[k]);
            continue;
        }
        draw_bar(bar, p->width - 18, us, total);
        add(p, "%s %6s us  |%s|", kinds[k], short_text(total, text), bar);
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

static double sum_rate(const struct picture *p, const char *name)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        sum += p->targets[i].is_gone ? 0 : weft_top_rate(&p->targets[i], name, NULL);
    }
    return sum;
}

static double sum_now(const struct picture *p, const char *name)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        sum += p->targets[i].is_gone ? 0 : weft_samples_sum(&p->targets[i].now, name, NULL);
    }
    return sum;
}

static void draw_network(const struct picture *p)
{
    char text[8][16];
    double sent = sum_rate(p, "weft_data_packets_sent_total");
    double lost = sum_rate(p, "weft_packets_lost_total");
    head(p, "NETWORK");
    add(p, "packets/s %s  lost %s (%.2f %%)  retransmitted %s  marked %s  dropped here %s",
        short_text(sent, text[0]), short_text(lost, text[1]), sent > 0 ? 100 * lost / sent : 0.0,
        short_text(sum_rate(p, "weft_packets_retransmitted_total"), text[2]),
        short_text(sum_rate(p, "weft_packets_marked_total"), text[3]),
        short_text(sum_rate(p, "weft_datagrams_dropped_total"), text[4]));
    add(p, "chunks missing/s %s  credit: %s of %s packets out, %s of %s senders wait",
        short_text(sum_rate(p, "weft_chunks_missing_total"), text[0]),
        short_text(sum_now(p, "weft_credit_outstanding_packets"), text[1]),
        short_text(sum_now(p, "weft_credit_budget_packets"), text[2]),
        short_text(sum_now(p, "weft_senders_waiting"), text[3]),
        short_text(sum_now(p, "weft_senders_active"), text[4]));
}

/* The most updated row of all servers; each has its own rows. */
static const struct weft_top_hot *next_hot(const struct picture *p, uint32_t *taken)
{
    uint32_t best = p->count;
    for (uint32_t i = 0; i < p->count; i++) {
        if (!p->targets[i].is_gone && taken[i] < p->targets[i].hot_count &&
            (best == p->count ||
             p->targets[i].hot[taken[i]].updates > p->targets[best].hot[taken[best]].updates)) {
            best = i;
        }
    }
    return best == p->count ? NULL : &p->targets[best].hot[taken[best]++];
}

static void draw_hot(const struct picture *p)
{
    uint32_t taken[WEFT_TOP_TARGETS_MAX] = {0};
    double updates = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        updates += p->targets[i].is_gone ? 0 : p->targets[i].hot_updates;
    }
    const struct weft_top_hot *hot = next_hot(p, taken);
    if (hot == NULL) {
        return;
    }
    head(p, "HOT ROWS OF TABLE 0   updates    share");
    for (int i = 0; i < 5 && hot != NULL; i++, hot = next_hot(p, taken)) {
        char text[16];
        add(p, "%-20s %8s %7.3f %%", hot->id, short_text(hot->updates, text),
            updates > 0 ? 100 * hot->updates / updates : 0.0);
    }
}

static void draw_title(const struct picture *p)
{
    uint32_t gone = 0;
    bool rates = false;
    for (uint32_t i = 0; i < p->count; i++) {
        gone += p->targets[i].is_gone;
        rates |= p->targets[i].before.count > 0;
    }
    add(p, "weft top: %u server%s, %u worker%s, %u gone; rates %s", count_role(p, "server"),
        count_role(p, "server") == 1 ? "" : "s", count_role(p, "worker"),
        count_role(p, "worker") == 1 ? "" : "s", gone,
        rates ? "of the last interval" : "since the processes started");
    p->view->is_head[0] = true;
}

void weft_top_view_draw(struct weft_top_view *view, const struct weft_top_target *targets,
                        uint32_t count, uint32_t left_out, uint32_t width)
{
    const struct picture picture = {view, targets, count, width};
    view->count = 0;
    draw_title(&picture);
    if (left_out > 0) {
        add(&picture, "%s%u more target%s not shown; the maximum is %u",
            left_out == WEFT_TOP_LEFT_OUT_MAX ? "at least " : "", left_out,
            left_out == 1 ? " is" : "s are", (unsigned)WEFT_TOP_TARGETS_MAX);
    }
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(roles); i++) {
        draw_role(&picture, &roles[i]);
    }
    draw_aggregation(&picture);
    draw_replicas(&picture);
    draw_times(&picture);
    draw_network(&picture);
    draw_hot(&picture);
}
