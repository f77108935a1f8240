#include "metrics/server.h"

#include "io/clock.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* Time for a shard to respond to a request. */
#define SHARD_TIMEOUT_NS WEFT_NS_PER_S

/* ---- /metrics -------------------------------------------------------------------------------- */

static void copy_stats(void *arg, void *object)
{
    const struct weft_shard_serving *serving = object;
    weft_shard_stats_take(arg, serving->shard, serving->driver, weft_clock_now_ns());
}

static void add_ages(const struct weft_server_metrics *server, struct weft_exposition *text)
{
    weft_metrics_text_ages(text);
    for (uint32_t i = 0; i < server->count; i++) {
        weft_metrics_text_age(text, server->stats[i].labels,
                              weft_clock_now_ns() - server->taken_ns[i]);
    }
}

static void add_server(void *arg, struct weft_exposition *text)
{
    struct weft_server_metrics *server = arg;
    for (uint32_t i = 0; i < server->count; i++) {
        if (weft_stats_query_ask(&server->threads[i].query, copy_stats, &server->stats[i],
                                 SHARD_TIMEOUT_NS)) {
            server->taken_ns[i] = weft_clock_now_ns();
        }
    }
    weft_metrics_text_shards(text, server->stats, server->count);
    add_ages(server, text);
    if (server->coordinator != NULL) {
        weft_coordinator_metrics_members(server->coordinator, &server->members, text);
    }
}

/* ---- /hot ------------------------------------------------------------------------------------ */

/* One shard's rows of a table. */
struct hot_part {
    uint16_t table;
    uint32_t k;
    uint32_t count;
    struct weft_hot_row *rows; /* (k,) */
    struct weft_hot_total total;
    bool is_there; /* the table is declared */
};

/* A row of the reply. */
struct hot_line {
    struct weft_hot_row row;
    uint32_t shard;
};

static void copy_hot(void *arg, void *object)
{
    struct hot_part *part = arg;
    const struct weft_shard_serving *serving = object;
    const struct weft_table *table = weft_shard_table(serving->shard, part->table);
    part->is_there = table != NULL;
    if (table != NULL) {
        part->count = weft_table_hot(table, part->rows, part->k);
        weft_table_hot_total(table, &part->total);
    }
}

static int by_updates(const void *a, const void *b)
{
    const struct hot_line *x = a, *y = b;
    if (x->row.updates != y->row.updates) {
        return x->row.updates < y->row.updates ? 1 : -1;
    }
    return x->row.id > y->row.id ? 1 : x->row.id < y->row.id ? -1 : 0;
}

/* Ids are text: not every JSON reader has 64-bit integers. */
static void add_lines(cJSON *into, const struct hot_line *lines, uint32_t count)
{
    cJSON *rows = cJSON_AddArrayToObject(into, "rows");
    for (uint32_t i = 0; i < count; i++) {
        char id[24];
        cJSON *row = cJSON_CreateObject();
        snprintf(id, sizeof(id), "%llu", (unsigned long long)lines[i].row.id);
        cJSON_AddStringToObject(row, "id", id);
        cJSON_AddNumberToObject(row, "updates", lines[i].row.updates);
        cJSON_AddNumberToObject(row, "shard", lines[i].shard);
        cJSON_AddItemToArray(rows, row);
    }
}

/* Merge the lines of all shards; `lines` and `rows` are scratch. */
static char *hot_json(const struct weft_server_metrics *server, uint16_t table, uint32_t k,
                      struct hot_line *lines, struct weft_hot_row *rows)
{
    uint64_t updates = 0;
    uint32_t count = 0, answered = 0;
    bool exact = true, is_there = false;
    for (uint32_t i = 0; i < server->count; i++) {
        struct hot_part part = {.table = table, .k = k, .rows = rows};
        struct weft_shard_thread *thread = &server->threads[i];
        answered += weft_stats_query_ask(&thread->query, copy_hot, &part, SHARD_TIMEOUT_NS);
        updates += part.total.updates;
        exact &= !part.is_there || part.total.exact;
        is_there |= part.is_there;
        for (uint32_t r = 0; r < part.count; r++) {
            lines[count++] = (struct hot_line){rows[r], thread->config.shard.shard};
        }
    }
    qsort(lines, count, sizeof(*lines), by_updates);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "table", table);
    cJSON_AddBoolToObject(object, "is_declared", is_there);
    cJSON_AddNumberToObject(object, "updates", (double)updates);
    cJSON_AddBoolToObject(object, "exact", exact);
    cJSON_AddNumberToObject(object, "shards", server->count);
    cJSON_AddNumberToObject(object, "shards_answered", answered);
    add_lines(object, lines, count < k ? count : k);
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}

static char *hot(void *arg, uint16_t table, uint32_t k)
{
    const struct weft_server_metrics *server = arg;
    struct hot_line *lines = calloc((size_t)server->count * k + 1, sizeof(*lines));
    struct weft_hot_row *rows = calloc((size_t)k + 1, sizeof(*rows));
    char *text = lines != NULL && rows != NULL ? hot_json(server, table, k, lines, rows) : NULL;
    free(lines);
    free(rows);
    return text;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static weft_status open_server(struct weft_server_metrics *server,
                               const struct weft_metrics_options *options, struct weft_error *error)
{
    server->stats = calloc(server->count, sizeof(*server->stats));
    server->taken_ns = calloc(server->count, sizeof(*server->taken_ns));
    if (server->stats == NULL || server->taken_ns == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for --metrics");
    }
    for (uint32_t i = 0; i < server->count; i++) {
        server->taken_ns[i] = weft_clock_now_ns();
        snprintf(server->stats[i].labels, sizeof(server->stats[i].labels), "shard=\"%u\"",
                 server->threads[i].config.shard.shard);
    }
    const struct weft_metrics_source source = {
        .role = "server", .arg = server, .families = add_server, .hot = hot};
    return weft_metrics_start(&server->metrics, options, &source, error);
}

weft_status weft_server_metrics_start(struct weft_server_metrics *server,
                                      const struct weft_metrics_options *options,
                                      struct weft_shard_thread *threads, uint32_t count,
                                      struct weft_coordinator *coordinator,
                                      struct weft_error *error)
{
    *server = (struct weft_server_metrics){
        .threads = threads, .count = count, .coordinator = coordinator};
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    weft_status status = open_server(server, options, error);
    if (status != WEFT_OK) {
        weft_server_metrics_stop(server);
    }
    return status;
}

void weft_server_metrics_stop(struct weft_server_metrics *server)
{
    weft_metrics_stop(&server->metrics);
    free(server->stats);
    free(server->taken_ns);
    *server = (struct weft_server_metrics){0};
}
