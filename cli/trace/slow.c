/* `weft trace slow`: the slowest RPCs, and which stage made them so.
 *
 * The stage that made an RPC slow is the one with the largest excess over the median of that stage
 * among the RPCs of the same kind; its part of the sum of all such excesses says how far it alone is
 * to blame. One pass: histograms for the medians, a list of the slowest.
 */
#include "cli/output.h"
#include "cli/trace/digest.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SLOW_MAX = 100000 };

struct slow {
    struct weft_recdb_rpc *list; /* (2 * wanted,) */
    uint32_t count;
    uint32_t wanted;
    uint64_t least_ns; /* faster ones are none of them */
    bool json;
};

struct blame {
    unsigned stage;
    uint64_t median_ns;
    double part; /* of all excess over the medians */
};

static int slowest_first(const void *a, const void *b)
{
    const struct weft_recdb_rpc *x = a;
    const struct weft_recdb_rpc *y = b;
    if (x->total_ns != y->total_ns) {
        return (x->total_ns < y->total_ns) - (x->total_ns > y->total_ns);
    }
    return (x->t0_ns > y->t0_ns) - (x->t0_ns < y->t0_ns);
}

static void keep_slowest(struct slow *slow)
{
    qsort(slow->list, slow->count, sizeof(*slow->list), slowest_first);
    if (slow->count > slow->wanted) {
        slow->count = slow->wanted;
        slow->least_ns = slow->list[slow->count - 1].total_ns;
    }
}

static struct blame blame_of(const struct weft_recdb_rpc *rpc,
                             const struct weft_recdb_digest *digest)
{
    struct blame blame = {0};
    uint64_t most = 0;
    uint64_t all = 0;
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        uint64_t median_ns = weft_hist_quantile(&digest->kinds[rpc->kind].stages[i], 500000);
        uint64_t over = rpc->stage_ns[i] > median_ns ? rpc->stage_ns[i] - median_ns : 0;
        all += over;
        if (over > most || i == 0) {
            most = over;
            blame.stage = i;
            blame.median_ns = median_ns;
        }
    }
    blame.part = all > 0 ? (double)most / (double)all : 0;
    return blame;
}

/* ---- output ---------------------------------------------------------------------------------- */

static cJSON *rpc_json(const struct weft_recdb_rpc *rpc, const struct weft_recdb_digest *digest)
{
    struct blame blame = blame_of(rpc, digest);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "kind", weft_recdb_kind_name(rpc->kind));
    cJSON_AddNumberToObject(object, "worker", rpc->worker);
    cJSON_AddNumberToObject(object, "server", rpc->server);
    cJSON_AddNumberToObject(object, "rpc", (double)rpc->rpc);
    cJSON_AddNumberToObject(object, "iteration", (double)rpc->iteration);
    cJSON_AddNumberToObject(object, "table", rpc->table);
    cJSON_AddNumberToObject(object, "rows", (double)rpc->rows);
    cJSON_AddNumberToObject(object, "at_s", (double)(rpc->t0_ns - digest->first_ns) / 1e9);
    cJSON_AddNumberToObject(object, "latency_us", (double)rpc->total_ns / 1e3);
    cJSON *stages = cJSON_AddObjectToObject(object, "stages_us");
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        cJSON_AddNumberToObject(stages, weft_recdb_stage_name(i), (double)rpc->stage_ns[i] / 1e3);
    }
    cJSON_AddStringToObject(object, "because", weft_recdb_stage_name(blame.stage));
    cJSON_AddNumberToObject(object, "median_us", (double)blame.median_ns / 1e3);
    cJSON_AddNumberToObject(object, "part_of_excess", blame.part);
    return object;
}

static bool print_json(const struct slow *slow, const struct weft_recdb_digest *digest)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < slow->count; i++) {
        cJSON_AddItemToArray(list, rpc_json(&slow->list[i], digest));
    }
    return weft_output_json("trace slow", list, false);
}

static bool print_text(const struct slow *slow, const struct weft_recdb_digest *digest)
{
    uint32_t blamed[WEFT_RECDB_STAGES] = {0};
    printf("%12s  %-4s %6s %6s %10s %9s %7s %9s  %s\n", "latency us", "kind", "worker", "server",
           "rpc", "iteration", "rows", "at s", "because of");
    for (uint32_t i = 0; i < slow->count; i++) {
        const struct weft_recdb_rpc *rpc = &slow->list[i];
        struct blame blame = blame_of(rpc, digest);
        blamed[blame.stage]++;
        printf("%12.1f  %-4s %6" PRIu32 " %6" PRIu32 " %10" PRIu64 " %9" PRIu64 " %7" PRIu64
               " %9.3f  %s %.1f us (median %.1f), %.0f %% of the excess\n",
               (double)rpc->total_ns / 1e3, weft_recdb_kind_name(rpc->kind), rpc->worker,
               rpc->server, rpc->rpc, rpc->iteration, rpc->rows,
               (double)(rpc->t0_ns - digest->first_ns) / 1e9, weft_recdb_stage_name(blame.stage),
               (double)rpc->stage_ns[blame.stage] / 1e3, (double)blame.median_ns / 1e3,
               100 * blame.part);
    }
    const char *comma = "made slow by: ";
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        if (blamed[i] > 0) {
            printf("%s%s %" PRIu32, comma, weft_recdb_stage_name(i), blamed[i]);
            comma = ", ";
        }
    }
    printf("%s", slow->count > 0 ? "\n" : "no RPC is in it\n");
    return true;
}

static bool run(struct weft_recdb *db, void *arg)
{
    static struct weft_recdb_digest digest = {.first_ns = UINT64_MAX};
    struct slow *slow = arg;
    slow->list = weft_recdb_need(calloc(2 * (size_t)slow->wanted, sizeof(*slow->list)));
    sqlite3_stmt *scan = weft_recdb_scan(db, "", "");
    struct weft_recdb_rpc rpc;
    while (weft_recdb_next(db, scan, &rpc)) {
        weft_recdb_digest_add(&digest, &rpc);
        if (rpc.status == 0 && rpc.total_ns >= slow->least_ns) {
            slow->list[slow->count++] = rpc;
        }
        if (slow->count == 2 * slow->wanted) {
            keep_slowest(slow);
        }
    }
    sqlite3_finalize(scan);
    keep_slowest(slow);
    bool good = !db->said && (slow->json ? print_json : print_text)(slow, &digest);
    free(slow->list);
    weft_recdb_digest_fini(&digest);
    return good;
}

int weft_cli_recdb_slow(int argc, char **argv)
{
    struct slow slow = {.wanted = 20};
    struct weft_recdb_files files;
    const struct weft_option options[] = {
        {"count", "N", "how many; also -n N", WEFT_OPTION_U32, &slow.wanted, .min = 1,
         .max = SLOW_MAX, .letter = 'n'},
        {"json", NULL, "print them as one JSON array, with all stages", WEFT_OPTION_FLAG,
         .value = &slow.json},
        {0},
    };
    struct weft_command command = {
        .name = "trace slow",
        .summary = "the slowest RPCs of a run, and which stage made them so",
        .description =
            "FILE is a database that --records wrote; several are parts of one run. Latency is "
            "the\n"
            "whole time of an RPC, from the request until the worker has handed the reply over. "
            "To\n"
            "blame is the stage that is farthest above its median among RPCs of the same kind.",
        .example = "  weft trace slow run.db -n 50\n"
                   "  weft trace slow run.db --json | jq '.[0].stages_us'",
        .options = options,
    };
    int status = weft_recdb_parse(&command, &files, argc, argv);
    return status == WEFT_OPTIONS_RUN ? weft_recdb_run(&command, &files, run, &slow) : status;
}
