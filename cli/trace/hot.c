/* `weft trace hot`: the most updated parameters and their share of all updates. */
#include "cli/trace/trace.h"
#include "obs/recdb_hotness.h"

#include <inttypes.h>

struct query {
    uint32_t top;
    uint32_t table;
    bool json;
};

static bool print_json(const struct weft_recdb_hotness *hotness, const struct query *query)
{
    struct weft_recdb_hot_share shares[WEFT_RECDB_HOT_LEVELS];
    unsigned count = weft_recdb_hot_shares(hotness, shares);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "updates", (double)hotness->updates);
    cJSON_AddNumberToObject(object, "kept", (double)hotness->count);
    cJSON_AddBoolToObject(object, "exact", hotness->exact);
    weft_json_add_known(object, "removed", (double)hotness->removed, hotness->has_removed);
    cJSON *list = cJSON_AddArrayToObject(object, "shares");
    for (unsigned i = 0; i < count; i++) {
        cJSON *share = cJSON_CreateObject();
        cJSON_AddNumberToObject(share, "top", (double)shares[i].k);
        cJSON_AddNumberToObject(share, "share", shares[i].low);
        cJSON_AddNumberToObject(share, "at_most", shares[i].high);
        cJSON_AddBoolToObject(share, "sure", shares[i].k <= hotness->sure);
        cJSON_AddItemToArray(list, share);
    }
    list = cJSON_AddArrayToObject(object, "hot");
    for (size_t i = 0; i < hotness->count && i < query->top; i++) {
        char id[24];
        cJSON *hot = cJSON_CreateObject();
        snprintf(id, sizeof(id), "%" PRIu64, hotness->list[i].id);
        cJSON_AddNumberToObject(hot, "table", hotness->list[i].table);
        cJSON_AddStringToObject(hot, "id", id); /* a JSON number has 53 bits */
        cJSON_AddNumberToObject(hot, "updates", (double)hotness->list[i].updates);
        cJSON_AddItemToArray(list, hot);
    }
    return weft_output_json("trace hot", object, false);
}

static void print_shares(const struct weft_recdb_hotness *hotness)
{
    struct weft_recdb_hot_share shares[WEFT_RECDB_HOT_LEVELS];
    unsigned count = weft_recdb_hot_shares(hotness, shares);
    bool unsure = false;
    for (unsigned i = 0; i < count; i++) {
        bool last = i + 1 == count;
        printf("  top %-9" PRIu64 " %6.2f %%", shares[i].k, 100 * shares[i].low);
        if (shares[i].low < shares[i].high && shares[i].has_high) {
            printf(", at most %.2f %%", 100 * shares[i].high);
        }
        unsure = unsure || (shares[i].k > hotness->sure && !last);
        printf("%s%s\n", shares[i].k > hotness->sure && !last ? " *" : "",
               last ? "  (all that were tracked)" : "");
    }
    if (unsure) {
        printf("  * the shortest list of a server has %zu; other parameters beyond that may be "
               "missing\n",
               hotness->sure);
    }
}

static bool print_text(const struct weft_recdb_hotness *hotness, const struct query *query)
{
    if (hotness->updates == 0) {
        printf("no updates were counted in this run\n");
        return true;
    }
    printf("%" PRIu64 " updates; %zu parameters tracked; %s\n", hotness->updates, hotness->count,
           hotness->exact ? "every parameter was counted (exact)"
                          : "approximate: updates of rows that were evicted or have expired are in "
                            "no parameter's count, and pushes of ids without a row are not "
                            "counted");
    if (hotness->removed > 0 || !hotness->has_removed) {
        printf("%s%" PRIu64 " updates (%.2f %%) were of such rows%s\n",
               hotness->has_removed ? "" : "at least ", hotness->removed,
               100 * (double)hotness->removed / (double)hotness->updates,
               hotness->has_removed ? ""
                                    : "; records of an earlier release do not have the number");
    }
    print_shares(hotness);
    printf("%6s %6s %20s %14s %9s\n", "rank", "table", "id", "updates", "share");
    for (size_t i = 0; i < hotness->count && i < query->top; i++) {
        const struct weft_recdb_hot *hot = &hotness->list[i];
        printf("%6zu %6" PRIu32 " %20" PRIu64 " %14" PRIu64 " %7.3f %%\n", i + 1, hot->table,
               hot->id, hot->updates, 100 * (double)hot->updates / (double)hotness->updates);
    }
    return true;
}

static bool run(struct weft_recdb *db, void *arg)
{
    const struct query *query = arg;
    struct weft_recdb_hotness hotness;
    bool good = weft_recdb_hotness_make(db, query->table, &hotness) == WEFT_OK &&
                (query->json ? print_json : print_text)(&hotness, query);
    weft_recdb_hotness_fini(&hotness);
    return good;
}

int weft_cli_trace_hot(int argc, char **argv)
{
    struct query query = {.top = 20, .table = UINT32_MAX};
    struct weft_trace_files files;
    const struct weft_option options[] = {
        {"top", "K", "list K parameters", WEFT_OPTION_U32, &query.top, .min = 1},
        {"table", "T", "only this table, by number", WEFT_OPTION_U32, &query.table,
         .max = UINT32_MAX - 1, .fallback = "all"},
        {"json", NULL, "print the result as one JSON object; ids are strings", WEFT_OPTION_FLAG,
         .value = &query.json},
        {0},
    };
    struct weft_command command = {
        .name = "trace hot",
        .summary = "list the most updated parameters, and the share of the top k",
        .description =
            "FILE is a database written by --records; several files are parts of one run.\n"
            "Servers count the updates of every row, and record the rows with the most. A share\n"
            "is computed from these counts, which are never too high. If rows were evicted or\n"
            "expired, their counts are lost; \"at most\" is the share with all lost updates added.",
        .example = "  weft trace hot run.db\n"
                   "  weft trace hot run.db --json | jq '.shares[] | select(.top == 1000)'",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    return status == WEFT_OPTIONS_RUN ? weft_trace_run(&command, &files, run, &query) : status;
}
