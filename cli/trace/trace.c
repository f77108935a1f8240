/* `weft trace`: analysis of packet traces and record databases. The summary of a trace is here; the
 * other verbs are in files of their own. */
#include "cli/trace/trace.h"
#include "cli/verbs.h"

#include <inttypes.h>

enum { SLOWEST = 5 };

static uint64_t span_ns(const struct weft_trace_tally *t)
{
    return t->last_ns >= t->first_ns ? t->last_ns - t->first_ns : 0;
}

/* Index of a nearest-rank percentile. */
static size_t rank(size_t count, size_t percent)
{
    size_t nth = (count * percent + 99) / 100;
    return nth == 0 ? 0 : nth - 1;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static cJSON *quantiles_json(const uint64_t *sorted, size_t count)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "count", (double)count);
    if (count > 0) {
        cJSON_AddNumberToObject(object, "p50", (double)sorted[rank(count, 50)]);
        cJSON_AddNumberToObject(object, "p90", (double)sorted[rank(count, 90)]);
        cJSON_AddNumberToObject(object, "p99", (double)sorted[rank(count, 99)]);
        cJSON_AddNumberToObject(object, "max", (double)sorted[count - 1]);
    }
    return object;
}

static void messages_json(cJSON *into, const struct weft_trace_tally *t, unsigned direction)
{
    cJSON *object = cJSON_AddObjectToObject(into, weft_trace_direction_name(direction));
    cJSON_AddNumberToObject(object, "complete", (double)t->outcomes[direction][0]);
    cJSON_AddNumberToObject(object, "short", (double)t->outcomes[direction][1]);
    cJSON_AddNumberToObject(object, "unknown", (double)t->outcomes[direction][2]);
    cJSON_AddItemToObject(object, "completion_ns",
                          quantiles_json(t->times_ns[direction], t->time_count[direction]));
}

static void slowest_json(cJSON *into, const struct weft_trace_tally *t)
{
    cJSON *list = cJSON_AddArrayToObject(into, "slowest");
    for (size_t i = 0; i < SLOWEST && i < t->life_count; i++) {
        const struct weft_trace_life *life = &t->lives[t->life_count - 1 - i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "msg", (double)life->seq);
        cJSON_AddNumberToObject(object, "peer", life->peer);
        cJSON_AddStringToObject(object, "direction", weft_trace_direction_name(life->direction));
        cJSON_AddNumberToObject(object, "ns", (double)life->ns);
        cJSON_AddItemToArray(list, object);
    }
}

static cJSON *endpoint_json(const struct weft_trace_doc_endpoint *e,
                            const struct weft_trace_tally *t)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "label", e->about.label);
    cJSON_AddNumberToObject(object, "records", (double)e->records);
    cJSON_AddNumberToObject(object, "overwritten", (double)e->overwritten);
    cJSON_AddNumberToObject(object, "span_ns", (double)span_ns(t));
    cJSON_AddNumberToObject(object, "data_sent", (double)t->data_sent);
    cJSON *events = cJSON_AddObjectToObject(object, "events");
    for (unsigned type = 1; type < WEFT_TRACE_TYPE_END; type++) {
        cJSON_AddNumberToObject(events, weft_trace_type_name(type), (double)t->types[type]);
    }
    cJSON_AddNumberToObject(events, "of_other_versions", (double)t->unknown_types);
    cJSON *drops = cJSON_AddObjectToObject(object, "drops");
    for (unsigned reason = 0; reason < WEFT_TRACE_DROP_END; reason++) {
        cJSON_AddNumberToObject(drops, weft_trace_drop_name(reason), (double)t->drops[reason]);
    }
    cJSON_AddItemToObject(object, "rtt_ns", quantiles_json(t->rtts_ns, t->rtt_count));
    messages_json(object, t, WEFT_TRACE_OUTGOING);
    messages_json(object, t, WEFT_TRACE_INCOMING);
    slowest_json(object, t);
    if (e->counters > 0) {
        cJSON *counters = cJSON_AddObjectToObject(object, "counters");
        for (uint32_t i = 0; i < e->counters; i++) {
            cJSON_AddNumberToObject(counters, e->names[i], (double)e->values[i]);
        }
    }
    return object;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void quantiles_print(const char *what, const uint64_t *sorted, size_t count)
{
    if (count > 0) {
        printf("  %-22s p50 %.1f us, p90 %.1f, p99 %.1f, max %.1f (%zu)\n", what,
               (double)sorted[rank(count, 50)] / 1e3, (double)sorted[rank(count, 90)] / 1e3,
               (double)sorted[rank(count, 99)] / 1e3, (double)sorted[count - 1] / 1e3, count);
    }
}

static void messages_print(const struct weft_trace_tally *t, unsigned direction)
{
    const uint64_t *o = t->outcomes[direction];
    if (o[0] + o[1] + o[2] == 0) {
        return;
    }
    printf("  %s messages: %" PRIu64 " complete, %" PRIu64 " short, %" PRIu64 " unknown\n",
           weft_trace_direction_name(direction), o[0], o[1], o[2]);
    quantiles_print("  completion time", t->times_ns[direction], t->time_count[direction]);
}

static void drops_print(const struct weft_trace_tally *t)
{
    const char *comma = "  dropped: ";
    for (unsigned reason = 0; reason < WEFT_TRACE_DROP_END; reason++) {
        if (t->drops[reason] > 0) {
            printf("%s%s %" PRIu64, comma, weft_trace_drop_name(reason), t->drops[reason]);
            comma = ", ";
        }
    }
    if (comma[1] == ' ' && comma[0] == ',') {
        printf("\n");
    }
}

static void endpoint_print(const struct weft_trace_doc_endpoint *e, uint32_t idx,
                           const struct weft_trace_tally *t)
{
    printf("%s (endpoint %" PRIu32 "): %" PRIu64 " records in %.3f ms", e->about.label, idx,
           e->records, (double)span_ns(t) / 1e6);
    if (e->overwritten > 0) {
        printf("; %" PRIu64 " more were overwritten before they could be read", e->overwritten);
    }
    printf("%s\n", e->counters == 0 ? "; the process did not exit normally" : "");
    uint64_t lost = t->types[WEFT_TRACE_PACKET_LOST];
    uint64_t sent = t->types[WEFT_TRACE_PACKET_SENT];
    printf("  packets: %" PRIu64 " sent (%" PRIu64 " with DATA), %" PRIu64 " received, %" PRIu64
           " declared lost (%.2f %% of those with DATA), %" PRIu64 " of these spuriously\n",
           sent, t->data_sent, t->types[WEFT_TRACE_PACKET_RECEIVED], lost,
           t->data_sent > 0 ? 100.0 * (double)lost / (double)t->data_sent : 0.0,
           t->types[WEFT_TRACE_PACKET_SPURIOUS]);
    printf("  chunks retransmitted: %" PRIu64 "; probe timeouts: %" PRIu64 "\n",
           t->types[WEFT_TRACE_CHUNK_AGAIN], t->types[WEFT_TRACE_PTO]);
    drops_print(t);
    quantiles_print("round-trip time", t->rtts_ns, t->rtt_count);
    messages_print(t, WEFT_TRACE_OUTGOING);
    messages_print(t, WEFT_TRACE_INCOMING);
    for (size_t i = 0; i < SLOWEST && i < t->life_count; i++) {
        const struct weft_trace_life *life = &t->lives[t->life_count - 1 - i];
        printf("%s%s message %" PRIu64 ", peer %u: %.1f us\n",
               i == 0 ? "  slowest: " : "           ", weft_trace_direction_name(life->direction),
               life->seq, life->peer, (double)life->ns / 1e3);
    }
}

static bool summarize(const struct weft_trace_doc *doc, bool json)
{
    cJSON *object = json ? cJSON_CreateObject() : NULL;
    (void)cJSON_AddBoolToObject(object, "truncated", doc->truncated);
    cJSON *list = cJSON_AddArrayToObject(object, "endpoints");
    for (uint32_t i = 0; i < doc->endpoint_count; i++) {
        struct weft_trace_tally t;
        if (weft_trace_tally_make(doc, i, &t) != WEFT_OK) {
            weft_trace_need(NULL);
        }
        if (json) {
            cJSON_AddItemToArray(list, endpoint_json(&doc->endpoints[i], &t));
        } else {
            endpoint_print(&doc->endpoints[i], i, &t);
        }
        weft_trace_tally_fini(&t);
    }
    return json ? weft_output_json("trace summary", object, false)
                : weft_output_close("trace summary", NULL, stdout, true);
}

static int summarize_trace(const char *file, bool json)
{
    struct weft_trace_doc doc;
    bool good = weft_trace_load(file, &doc) && summarize(&doc, json);
    weft_trace_doc_fini(&doc);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

static int trace_summary(int argc, char **argv)
{
    bool json = false;
    struct weft_trace_files files;
    const struct weft_option options[] = {
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        {0},
    };
    struct weft_command command = {
        .name = "trace summary",
        .summary = "summarize RPC records (latency by stage) or a packet trace (packets, losses, "
                   "times)",
        .description =
            "FILE is a database written by --records or a trace written by --trace; the type is\n"
            "detected from the content.\n"
            "\n"
            "Records: mean, quantiles and share of every stage of pushes and pulls, the slowest\n"
            "servers, the number of workers that sent a request within a time window, CPU time.\n"
            "Several files are parts of one run. Quantiles are at most 3.2 % too high; means, "
            "shares\n"
            "and maxima are exact.\n"
            "\n"
            "Traces: the output has one section per endpoint. The time of a message runs from the\n"
            "call of send (incoming: from its first chunk) until it is closed.",
        .example = "  weft train --records run.db && weft trace summary run.db\n"
                   "  weft train --trace t && weft trace summary t.server-0",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    return files.count > 1 || weft_recdb_is_sqlite(files.paths[0])
               ? weft_trace_run(&command, &files, weft_trace_records_summary, &json)
               : summarize_trace(files.paths[0], json);
}

/* ---- the verb -------------------------------------------------------------------------------- */

int weft_cli_trace(int argc, char **argv)
{
    static const struct weft_verb verbs[] = {
        {"summary", "summarize latencies by stage (records) or packets and losses (trace)",
         trace_summary},
        {"slow", "list the slowest RPCs and the stage that delayed each (records)",
         weft_cli_trace_slow},
        {"hot", "list the most updated parameters and their share (records)", weft_cli_trace_hot},
        {"figures", "plot the figures of [imc20] and compare the findings (records)",
         weft_cli_trace_figures},
        {"sql", "run an SQL query (records)", weft_cli_trace_sql},
        {"export", "convert to a Chrome trace (Perfetto), JSON lines, CSV (records)",
         weft_cli_trace_export},
        {"msg", "list the events of one message (trace)", weft_cli_trace_msg},
        {"qlog", "convert to qlog, for QUIC visualization tools (trace)",
         weft_cli_trace_qlog},
        {"merge", "merge record files, or recover the spools of a killed run",
         weft_cli_trace_merge},
        {0},
    };
    static const struct weft_verb_list list = {
        .name = "weft trace",
        .word = "command",
        .summary = "analyse files written by --records and --trace",
        .usage = "COMMAND FILE [options]",
        .notes = "`weft trace COMMAND --help` describes a command\n"
                 "\nexample:\n  weft train --records run.db\n  weft trace summary run.db\n"
                 "  weft trace slow run.db\n\n  weft train --inject-loss 0.02 --trace t\n"
                 "  weft trace summary t.worker-0\n"
                 "  weft trace msg t.worker-0 --msg 17\n  weft trace qlog t.worker-0 -o t.sqlog",
        .verbs = verbs,
    };
    return weft_verbs_run(&list, argc, argv);
}
