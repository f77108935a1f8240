/* `weft trace slow`: the slowest RPCs, and the stage that delayed each. */
#include "cli/trace/trace.h"
#include "obs/recdb_digest.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SLOW_MAX = 100000 };

struct query {
    struct weft_recdb_slowest slowest;
    bool json;
};

static cJSON *rpc_json(const struct weft_recdb_rpc *rpc, const struct weft_recdb_digest *digest)
{
    struct weft_recdb_blame blame = weft_recdb_blame(digest, rpc);
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

static bool print_json(const struct weft_recdb_slowest *slow,
                       const struct weft_recdb_digest *digest)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < slow->count; i++) {
        cJSON_AddItemToArray(list, rpc_json(&slow->list[i], digest));
    }
    return weft_output_json("trace slow", list, false);
}

static bool print_text(const struct weft_recdb_slowest *slow,
                       const struct weft_recdb_digest *digest)
{
    uint32_t blamed[WEFT_RECDB_STAGES] = {0};
    printf("%12s  %-4s %6s %6s %10s %9s %7s %9s  %s\n", "latency us", "kind", "worker", "server",
           "rpc", "iteration", "rows", "at s", "because of");
    for (uint32_t i = 0; i < slow->count; i++) {
        const struct weft_recdb_rpc *rpc = &slow->list[i];
        struct weft_recdb_blame blame = weft_recdb_blame(digest, rpc);
        blamed[blame.stage]++;
        printf("%12.1f  %-4s %6" PRIu32 " %6" PRIu32 " %10" PRIu64 " %9" PRIu64 " %7" PRIu64
               " %9.3f  %s %.1f us (median %.1f), %.0f %% of the excess\n",
               (double)rpc->total_ns / 1e3, weft_recdb_kind_name(rpc->kind), rpc->worker,
               rpc->server, rpc->rpc, rpc->iteration, rpc->rows,
               (double)(rpc->t0_ns - digest->first_ns) / 1e9, weft_recdb_stage_name(blame.stage),
               (double)rpc->stage_ns[blame.stage] / 1e3, (double)blame.median_ns / 1e3,
               100 * blame.part);
    }
    const char *comma = "delayed by: ";
    for (unsigned i = 0; i < WEFT_RECDB_STAGES; i++) {
        if (blamed[i] > 0) {
            printf("%s%s %" PRIu32, comma, weft_recdb_stage_name(i), blamed[i]);
            comma = ", ";
        }
    }
    printf("%s", slow->count > 0 ? "\n" : "the file has no RPCs\n");
    return true;
}

static bool run(struct weft_recdb *db, void *arg)
{
    static struct weft_recdb_digest digest;
    struct query *query = arg;
    bool good = weft_recdb_digest_make(db, &query->slowest, &digest) == WEFT_OK &&
                (query->json ? print_json : print_text)(&query->slowest, &digest);
    free(query->slowest.list);
    weft_recdb_digest_fini(&digest);
    return good;
}

int weft_cli_trace_slow(int argc, char **argv)
{
    struct query query = {.slowest = {.wanted = 20}};
    struct weft_trace_files files;
    const struct weft_option options[] = {
        {"count", "N", "number of RPCs to list; also -n N", WEFT_OPTION_U32, &query.slowest.wanted,
         .min = 1,
         .max = SLOW_MAX, .letter = 'n'},
        {"json", NULL, "print them as one JSON array, with all stages", WEFT_OPTION_FLAG,
         .value = &query.json},
        {0},
    };
    struct weft_command command = {
        .name = "trace slow",
        .summary = "list the slowest RPCs of a run, and the stage that delayed each",
        .description =
        "FILE is a database written by --records; several files are parts of one run. Latency is\n"
        "the whole time of an RPC, from the request until the worker has delivered the reply. The\n"
        "reported stage is the one that exceeds its median, among RPCs of the same kind, by the\n"
        "most.",
        .example = "  weft trace slow run.db -n 50\n"
                   "  weft trace slow run.db --json | jq '.[0].stages_us'",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    return status == WEFT_OPTIONS_RUN ? weft_trace_run(&command, &files, run, &query) : status;
}
