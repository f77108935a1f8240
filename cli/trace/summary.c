/* `weft trace summary` of a records database. */
#include "cli/trace/trace.h"
#include "obs/recdb_digest.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SERVERS_SHOWN = 8 };

static double us(double ns)
{
    return ns / 1e3;
}

static int slower_first(const void *a, const void *b)
{
    const struct weft_recdb_party *x = a;
    const struct weft_recdb_party *y = b;
    double slow_x = (double)x->total_ns / (double)x->rpcs;
    double slow_y = (double)y->total_ns / (double)y->rpcs;
    return slow_x != slow_y ? (slow_x < slow_y) - (slow_x > slow_y)
                            : (x->id > y->id) - (x->id < y->id);
}

static double utilisation(const struct weft_recdb_role *role)
{
    return role->wall_ns > 0 ? (double)role->cpu_ns / (double)role->wall_ns : 0;
}

static uint64_t dropped(const struct weft_recdb_digest *d)
{
    return weft_recdb_digest_dropped(d);
}

static double span_s(const struct weft_recdb_digest *d)
{
    return d->last_ns > d->first_ns ? (double)(d->last_ns - d->first_ns) / 1e9 : 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static cJSON *add_times(cJSON *object, const char *key, const struct weft_hist *hist)
{
    return weft_json_add_times(
        object, key, hist,
        WEFT_TIMES_MEAN | WEFT_TIMES_P50 | WEFT_TIMES_P90 | WEFT_TIMES_P99 | WEFT_TIMES_MAX, 1e3);
}

static cJSON *kind_json(const struct weft_recdb_kind_digest *kind)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "rpcs", (double)kind->total.count);
    cJSON_AddNumberToObject(object, "failed", (double)kind->failed);
    cJSON_AddNumberToObject(object, "rows", (double)kind->rows);
    cJSON_AddNumberToObject(object, "request_bytes", (double)kind->request_bytes);
    cJSON_AddNumberToObject(object, "reply_bytes", (double)kind->reply_bytes);
    (void)add_times(object, "latency_us", &kind->total);
    cJSON *stages = cJSON_AddObjectToObject(object, "stages_us");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        cJSON *stage = add_times(stages, weft_recdb_stage_name(i), &kind->stages[i]);
        cJSON_AddNumberToObject(stage, "share", weft_recdb_share(kind, i));
    }
    (void)add_times(object, "PS_overlap_us", &kind->overlap);
    return object;
}

static cJSON *server_json(const struct weft_recdb_party *server)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "server", server->id);
    cJSON_AddNumberToObject(object, "rpcs", (double)server->rpcs);
    double rpcs = (double)server->rpcs;
    cJSON_AddNumberToObject(object, "mean_us", us((double)server->total_ns / rpcs));
    cJSON_AddNumberToObject(object, "max_us", us((double)server->max_ns));
    cJSON *stages = cJSON_AddObjectToObject(object, "stages_mean_us");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        cJSON_AddNumberToObject(stages, weft_recdb_stage_name(i),
                                us((double)server->stage_ns[i] / rpcs));
    }
    return object;
}

static void role_json(cJSON *into, const char *name, const struct weft_recdb_role *role)
{
    cJSON *object = cJSON_AddObjectToObject(into, name);
    cJSON_AddNumberToObject(object, "processes", (double)role->processes);
    cJSON_AddNumberToObject(object, "cpu_s", (double)role->cpu_ns / 1e9);
    cJSON_AddNumberToObject(object, "wall_s", (double)role->wall_ns / 1e9);
    cJSON_AddNumberToObject(object, "utilisation", utilisation(role));
}

static void active_json(cJSON *into, const struct weft_recdb_digest *d)
{
    cJSON *object = cJSON_AddObjectToObject(into, "active_workers");
    cJSON_AddNumberToObject(object, "window_us", us((double)d->window_ns));
    cJSON_AddNumberToObject(object, "windows", (double)d->active.count);
    cJSON_AddNumberToObject(object, "p50", (double)weft_hist_quantile(&d->active, 500000));
    cJSON_AddNumberToObject(object, "p90", (double)weft_hist_quantile(&d->active, 900000));
    cJSON_AddNumberToObject(object, "p99", (double)weft_hist_quantile(&d->active, 990000));
    cJSON_AddNumberToObject(object, "max", (double)d->active.max);
}

static bool print_json(struct weft_recdb *db, struct weft_recdb_digest *d)
{
    cJSON *object = cJSON_CreateObject();
    for (const char *const *key = weft_recdb_about; *key != NULL; key++) {
        cJSON_AddStringToObject(object, *key, weft_recdb_meta(db, *key));
    }
    cJSON_AddNumberToObject(object, "rpcs", (double)weft_recdb_digest_rpcs(d));
    cJSON_AddNumberToObject(object, "dropped", (double)dropped(d));
    cJSON_AddNumberToObject(object, "refused", (double)db->refused);
    cJSON_AddNumberToObject(object, "not_adding_up", (double)d->odd);
    cJSON_AddNumberToObject(object, "workers", (double)d->workers.count);
    cJSON_AddNumberToObject(object, "servers", (double)d->servers.count);
    cJSON_AddNumberToObject(object, "span_s", span_s(d));
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        cJSON_AddItemToObject(object, weft_recdb_kind_name(k), kind_json(&d->kinds[k]));
    }
    cJSON *servers = cJSON_AddArrayToObject(object, "by_server");
    for (size_t i = 0; i < d->servers.count; i++) {
        cJSON_AddItemToArray(servers, server_json(&d->servers.list[i]));
    }
    active_json(object, d);
    cJSON *cpu = cJSON_AddObjectToObject(object, "cpu");
    role_json(cpu, "worker", &d->roles[WEFT_RECDB_WORKERS]);
    role_json(cpu, "server", &d->roles[WEFT_RECDB_SERVERS]);
    role_json(cpu, "aggregator", &d->roles[WEFT_RECDB_AGGREGATORS]);
    return weft_output_json("trace summary", object, false);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_times(const char *name, const struct weft_hist *hist, double share)
{
    printf("  %-10s %10.1f %10.1f %10.1f %10.1f %12.1f", name, us(weft_times_mean(hist)),
           us((double)weft_hist_quantile(hist, 500000)),
           us((double)weft_hist_quantile(hist, 900000)),
           us((double)weft_hist_quantile(hist, 990000)), us((double)hist->max));
    if (share >= 0) {
        printf(" %7.1f %%", 100 * share);
    }
    printf("\n");
}

static void print_kind(unsigned k, const struct weft_recdb_kind_digest *kind)
{
    if (kind->total.count + kind->failed == 0) {
        return;
    }
    printf("\n%s: %" PRIu64 " RPCs, %" PRIu64 " rows, requests %.1f MB, replies %.1f MB\n",
           weft_recdb_kind_name(k), kind->total.count, kind->rows,
           (double)kind->request_bytes / 1e6, (double)kind->reply_bytes / 1e6);
    if (kind->failed > 0) {
        printf("  %" PRIu64 " more FAILED; they are not included\n", kind->failed);
    }
    printf("  %-10s %10s %10s %10s %10s %12s %9s\n", "us", "mean", "p50", "p90", "p99", "max",
           "share");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        print_times(weft_recdb_stage_name(i), &kind->stages[i], weft_recdb_share(kind, i));
    }
    print_times("all", &kind->total, kind->total.count > 0 ? 1 : 0);
    if (kind->overlap.sum > 0) {
        print_times("PS_overlap", &kind->overlap, -1);
        printf("  (PS_overlap: work of the server while the request arrives, part of N_tx)\n");
    }
}

static void print_servers(struct weft_recdb_digest *d)
{
    if (d->servers.count == 0) {
        return;
    }
    qsort(d->servers.list, d->servers.count, sizeof(*d->servers.list), slower_first);
    printf("\nservers, slowest first\n  %6s %10s %10s %12s", "server", "RPCs", "mean us", "max us");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        printf(" %9s", weft_recdb_stage_name(i));
    }
    printf("\n");
    for (size_t i = 0; i < d->servers.count && i < SERVERS_SHOWN; i++) {
        const struct weft_recdb_party *s = &d->servers.list[i];
        printf("  %6" PRIu32 " %10" PRIu64 " %10.1f %12.1f", s->id, s->rpcs,
               us((double)s->total_ns / (double)s->rpcs), us((double)s->max_ns));
        for (unsigned j = 0; j < WEFT_RECDB_STAGES; j++) {
            printf(" %9.1f", us((double)s->stage_ns[j] / (double)s->rpcs));
        }
        printf("\n");
    }
    if (d->servers.count > SERVERS_SHOWN) {
        printf("  ... and %zu more; --json has all\n", d->servers.count - SERVERS_SHOWN);
    }
}

static void print_losses(const struct weft_recdb *db, const struct weft_recdb_digest *d)
{
    uint64_t kept = 0;
    for (unsigned r = 0; r < WEFT_RECDB_ROLES; r++) {
        kept += d->roles[r].records;
    }
    if (dropped(d) > 0) {
        printf("DROPPED: %" PRIu64 " of %" PRIu64 " records did not fit into their rings; all "
               "figures are of the rest\n",
               dropped(d), dropped(d) + kept);
    }
    if (db->refused > 0) {
        printf("REFUSED: %" PRIu64 " invalid rows (unknown kind, negative time) are in no "
               "figure\n",
               db->refused);
    }
    if (d->odd > 0) {
        printf("INCONSISTENT: the stages of %" PRIu64 " RPCs differ from their latency by more "
               "than 1 us\n",
               d->odd);
    }
}

static bool print_text(struct weft_recdb *db, struct weft_recdb_digest *d)
{
    printf("%" PRIu64 " RPCs of %zu workers to %zu servers in %.3f s\n", weft_recdb_digest_rpcs(d),
           d->workers.count, d->servers.count, span_s(d));
    const char *command = weft_recdb_meta(db, "command");
    if (command[0] != '\0') {
        printf("%s\n", command);
    }
    print_losses(db, d);
    for (unsigned k = 0; k < WEFT_RECDB_KINDS; k++) {
        print_kind(k, &d->kinds[k]);
    }
    print_servers(d);
    if (d->active.count > 0) {
        printf("\nworkers that a server received from within %.0f us: p50 %" PRIu64 ", p90 %" PRIu64
               ", p99 %" PRIu64 ", max %" PRIu64 " (%" PRIu64 " windows with any)\n",
               us((double)d->window_ns), weft_hist_quantile(&d->active, 500000),
               weft_hist_quantile(&d->active, 900000), weft_hist_quantile(&d->active, 990000),
               d->active.max, d->active.count);
    }
    static const char *const names[] = {"worker", "server", "aggregator"};
    for (unsigned i = 0; i < WEFT_RECDB_ROLES; i++) {
        const struct weft_recdb_role *role = &d->roles[i];
        if (role->wall_ns > 0) {
            bool both = i == WEFT_RECDB_SERVERS && d->roles[WEFT_RECDB_WORKERS].processes == 0 &&
                        d->workers.count > 0;
            printf("%s CPU: %.3f s in %" PRIu64 " processes, %.1f %% of their time%s\n", names[i],
                   (double)role->cpu_ns / 1e9, role->processes, 100 * utilisation(role),
                   both ? "; includes the workers, which are in the same process" : "");
        }
    }
    return true;
}

bool weft_trace_records_summary(struct weft_recdb *db, void *arg)
{
    static struct weft_recdb_digest digest;
    const bool *json = arg;
    bool good = weft_recdb_digest_make(db, NULL, &digest) == WEFT_OK &&
                (*json ? print_json : print_text)(db, &digest);
    weft_recdb_digest_fini(&digest);
    return good;
}
