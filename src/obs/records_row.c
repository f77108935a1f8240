/* The definitions of the tables, and the conversion of a record to a row. */
#include "obs/records_internal.h"

#include <string.h>

#define COUNT(...) (sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *))
#define TABLE(text, at, ...)                                                                       \
    {                                                                                              \
        .name = text, .columns = {__VA_ARGS__}, .column_count = COUNT(__VA_ARGS__), .process = at  \
    }

const struct records_table weft_records_tables[TABLE_COUNT] = {
    [TABLE_RPC] =
        TABLE("rpc", 19, "worker", "server", "rpc", "iteration", "kind", "tbl", "status", "rows",
              "t0_ns", "t1_ns", "request_bytes", "reply_bytes", "w_proc_ns", "w_queue_ns",
              "ps_proc_ns", "ps_overlap_ns", "ps_wait_ns", "ps_queue_ns", "n_tx_ns", "process"),
    [TABLE_SERVED] = TABLE("served", 9, "server", "worker", "rpc", "kind", "arrival_ns",
                           "departure_ns", "ps_proc_ns", "ps_wait_ns", "ps_queue_ns", "process"),
    [TABLE_ACTIVE] =
        TABLE("active", 4, "server", "start_ns", "window_ns", "workers", "process", "connections"),
    [TABLE_HOT] = TABLE("hot", 5, "server", "tbl", "id", "updates", "error"),
    [TABLE_HOT_TOTAL] =
        TABLE("hot_total", 5, "server", "tbl", "updates", "exact", "removed"),
    [TABLE_AGGREGATE_IN] = TABLE("aggregate_in", 14, "aggregator", "server", "child", "sender",
                                 "rpc", "tbl", "status", "reason", "pushes", "rows", "bytes",
                                 "arrival_ns", "answer_ns", "aggregate", "process"),
    [TABLE_AGGREGATE_OUT] =
        TABLE("aggregate_out", 16, "aggregator", "server", "rpc", "tbl", "clock", "status",
              "reason", "messages", "pushes", "rows_in", "rows_out", "bytes_in", "bytes_out",
              "first_ns", "sent_ns", "answer_ns", "process"),
};

static void rpc_row(const struct weft_rpc_record *record, int64_t process, int64_t *out)
{
    const struct weft_rpc_record_client *rpc = &record->rpc;
    const struct weft_rpc_latency *latency = &rpc->latency;
    const int64_t row[] = {
        rpc->worker,
        rpc->server,
        rpc->rpc,
        rpc->iteration,
        rpc->kind,
        record->table,
        rpc->status,
        rpc->rows,
        (int64_t)rpc->t0_ns,
        (int64_t)rpc->t1_ns,
        (int64_t)rpc->request_bytes,
        (int64_t)rpc->reply_bytes,
        (int64_t)latency->w_proc_ns,
        (int64_t)latency->w_queue_ns,
        (int64_t)latency->ps_proc_ns,
        (int64_t)latency->ps_overlap_ns,
        (int64_t)latency->ps_wait_ns,
        (int64_t)latency->ps_queue_ns,
        (int64_t)latency->n_tx_ns,
        process,
    };
    memcpy(out, row, sizeof(row));
}

static void served_row(const struct weft_rpc_record *record, int64_t process, int64_t *out)
{
    const struct weft_rpc_record_served *served = &record->served;
    const int64_t row[] = {
        served->server,
        served->worker,
        served->rpc,
        served->kind,
        (int64_t)served->arrival_ns,
        (int64_t)served->departure_ns,
        (int64_t)served->ps_proc_ns,
        (int64_t)served->ps_wait_ns,
        (int64_t)served->ps_queue_ns,
        process,
    };
    memcpy(out, row, sizeof(row));
}

static void aggregate_in_row(const struct weft_rpc_record *record, int64_t process, int64_t *out)
{
    const struct weft_rpc_record_aggregate_in *in = &record->aggregate_in;
    const int64_t row[] = {
        in->aggregator,
        in->server,
        in->is_child,
        in->sender,
        in->rpc,
        record->table,
        in->status,
        in->reason,
        in->pushes,
        in->rows,
        (int64_t)in->bytes,
        (int64_t)in->arrival_ns,
        (int64_t)in->answer_ns,
        in->aggregate,
        process,
    };
    memcpy(out, row, sizeof(row));
}

static void aggregate_out_row(const struct weft_rpc_record *record, int64_t process, int64_t *out)
{
    const struct weft_rpc_record_aggregate_out *sum = &record->aggregate_out;
    const int64_t row[] = {
        sum->aggregator,
        sum->server,
        sum->rpc,
        record->table,
        sum->clock,
        sum->status,
        sum->reason,
        sum->messages,
        sum->pushes,
        sum->rows_in,
        sum->rows_out,
        (int64_t)sum->bytes_in,
        (int64_t)sum->bytes_out,
        (int64_t)sum->first_ns,
        (int64_t)sum->sent_ns,
        (int64_t)sum->answer_ns,
        process,
    };
    memcpy(out, row, sizeof(row));
}

bool weft_records_row(const struct weft_rpc_record *record, int64_t process,
                      enum weft_records_table *table_p, int64_t values_p[RECORDS_COLUMNS_MAX])
{
    const struct weft_rpc_record_active *active = &record->active;
    const struct weft_rpc_record_hot *hot = &record->hot;
    const struct weft_rpc_record_hot_total *total = &record->hot_total;
    switch (record->type) {
    case WEFT_RPC_RECORD_CLIENT:
        *table_p = TABLE_RPC;
        rpc_row(record, process, values_p);
        return true;
    case WEFT_RPC_RECORD_SERVED:
        *table_p = TABLE_SERVED;
        served_row(record, process, values_p);
        return true;
    case WEFT_RPC_RECORD_ACTIVE:
        *table_p = TABLE_ACTIVE;
        memcpy(values_p,
               (int64_t[]){active->server, (int64_t)active->start_ns, (int64_t)active->window_ns,
                           active->workers, process, active->connections},
               6 * sizeof(int64_t));
        return true;
    case WEFT_RPC_RECORD_HOT:
        *table_p = TABLE_HOT;
        memcpy(values_p,
               (int64_t[]){hot->server, record->table, (int64_t)hot->id, (int64_t)hot->updates, 0},
               5 * sizeof(int64_t));
        return true;
    case WEFT_RPC_RECORD_HOT_TOTAL:
        *table_p = TABLE_HOT_TOTAL;
        memcpy(values_p,
               (int64_t[]){total->server, record->table, (int64_t)total->updates,
                           total->exact != 0, (int64_t)total->removed},
               5 * sizeof(int64_t));
        return true;
    case WEFT_RPC_RECORD_AGGREGATE_IN:
        *table_p = TABLE_AGGREGATE_IN;
        aggregate_in_row(record, process, values_p);
        return true;
    case WEFT_RPC_RECORD_AGGREGATE_OUT:
        *table_p = TABLE_AGGREGATE_OUT;
        aggregate_out_row(record, process, values_p);
        return true;
    default:
        return false;
    }
}
