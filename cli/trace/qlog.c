/* `weft trace qlog`: a trace as qlog, one JSON text a record (JSON-SEQ, RFC 7464).
 *
 * Source: draft-ietf-quic-qlog-main-schema (QlogFileSeq) and draft-ietf-quic-qlog-quic-events, as
 * of July 2026. Names of the namespace "quic" are used where QUIC has the same thing; "weft" is for
 * the rest. What QUIC's events have no field for is the event's field "weft".
 */
#include "cli/options.h"
#include "cli/trace/load.h"
#include "wire/packet.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft trace: out of memory\n");
        exit(1);
    }
    return memory;
}

static cJSON *child(cJSON *object, const char *name)
{
    return need(cJSON_AddObjectToObject(object, name));
}

static void number(cJSON *object, const char *name, uint64_t value)
{
    need(cJSON_AddNumberToObject(object, name, (double)value));
}

static void text(cJSON *object, const char *name, const char *value)
{
    need(cJSON_AddStringToObject(object, name, value));
}

static void milliseconds(cJSON *object, const char *name, uint64_t ns)
{
    need(cJSON_AddNumberToObject(object, name, (double)ns / 1e6));
}

/* 64 bits do not fit a JSON number. */
static void hexadecimal(cJSON *object, const char *name, uint64_t value)
{
    char digits[20];
    snprintf(digits, sizeof(digits), "%016" PRIx64, value);
    text(object, name, digits);
}

static bool put(FILE *out, cJSON *object)
{
    char *line = need(cJSON_PrintUnformatted(object));
    cJSON_Delete(object);
    bool good = fprintf(out, "\x1e%s\n", line) > 0;
    cJSON_free(line);
    return good;
}

/* ---- the head -------------------------------------------------------------------------------- */

static cJSON *head(const struct weft_trace_doc *doc, const char *path)
{
    cJSON *file = need(cJSON_CreateObject());
    text(file, "file_schema", "urn:ietf:params:qlog:file:sequential");
    text(file, "serialization_format", "application/qlog+json-seq");
    text(file, "title", path);
    text(file, "description",
         doc->truncated ? "weft " WEFT_VERSION "; the trace was cut off" : "weft " WEFT_VERSION);
    cJSON *trace = child(file, "trace");
    cJSON *common = child(trace, "common_fields");
    text(common, "time_format", "relative_to_epoch");
    cJSON *reference = child(common, "reference_time");
    text(reference, "clock_type", "monotonic");
    text(reference, "epoch", "unknown");
    cJSON *vantage = child(trace, "vantage_point");
    text(vantage, "name", doc->endpoint_count == 1 ? doc->endpoints[0].about.label : "weft");
    text(vantage, "type", "unknown");
    cJSON *schemas = need(cJSON_AddArrayToObject(trace, "event_schemas"));
    cJSON_AddItemToArray(schemas, need(cJSON_CreateString("urn:ietf:params:qlog:events:quic")));
    cJSON_AddItemToArray(schemas, need(cJSON_CreateString("weft:qlog/events/1")));
    return file;
}

/* ---- packets --------------------------------------------------------------------------------- */

static void holds_put(cJSON *weft, unsigned flags)
{
    static const char *const names[] = {"data", "done", "probe", "finish", "critical"};
    cJSON *holds = need(cJSON_AddArrayToObject(weft, "holds"));
    for (unsigned i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        if ((flags >> i & 1) != 0) {
            cJSON_AddItemToArray(holds, need(cJSON_CreateString(names[i])));
        }
    }
}

static void chunk_put(cJSON *weft, const struct weft_trace_record *r)
{
    number(weft, "msg", r->a);
    number(weft, "chunk", r->b);
}

static void packet_put(cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    cJSON *header = child(data, "header");
    cJSON *weft = child(event, "weft");
    text(header, "packet_type", "1RTT");
    number(header, "packet_number", r->number);
    number(child(data, "raw"), "length", r->c);
    if (r->type == WEFT_TRACE_PACKET_RECEIVED) {
        need(cJSON_AddBoolToObject(weft, "pass_end", (r->flags & WEFT_FLAG_PASS_END) != 0));
    } else {
        holds_put(weft, r->flags);
    }
    if ((r->flags & WEFT_TRACE_HAS_DATA) != 0) { /* the bit of the packet's header is the same */
        chunk_put(weft, r);
    }
    if (r->type == WEFT_TRACE_PACKET_SENT && (r->flags & WEFT_TRACE_HAS_PROBE) != 0) {
        text(data, "trigger", "pto_probe");
    }
}

static void acked_put(cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    cJSON *numbers = need(cJSON_AddArrayToObject(data, "packet_numbers"));
    cJSON_AddItemToArray(numbers, need(cJSON_CreateNumber((double)r->number)));
    if ((r->flags & WEFT_TRACE_HAS_DATA) != 0) {
        chunk_put(child(event, "weft"), r);
    }
}

static const char *class_name(unsigned klass)
{
    switch (klass) {
    case WEFT_CLASS_HELLO:
        return "HELLO";
    case WEFT_CLASS_ACCEPT:
        return "ACCEPT";
    case WEFT_CLASS_COOKIE:
        return "COOKIE";
    case WEFT_CLASS_UNKNOWN:
        return "UNKNOWN";
    case WEFT_CLASS_REFUSED:
        return "REFUSED";
    default:
        return "other";
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void message_put(cJSON *data, const struct weft_trace_record *r)
{
    number(data, "seq", r->number);
    text(data, "direction", weft_trace_direction_name(r->flags));
    if (r->type == WEFT_TRACE_MSG_OPENED) {
        number(data, "chunks", r->a);
        number(data, "lost_max", r->b);
        number(data, "chunk_bytes", r->c);
    } else if (r->type == WEFT_TRACE_MSG_TAG) {
        hexadecimal(data, "tag", (uint64_t)r->a << 32 | r->b);
        number(data, "elements", r->c);
    } else {
        text(data, "outcome", weft_trace_outcome_name(r->flags));
        number(data, "received", r->a);
        number(data, "chunks", r->b);
        number(data, "refused", r->c);
    }
}

static void done_put(cJSON *data, const struct weft_trace_record *r)
{
    number(data, "msg", r->number);
    text(data, "status", r->flags == WEFT_DONE_COMPLETE ? "complete" : "short");
    number(data, "received", r->a);
    number(data, "words", r->b);
    number(data, "first", r->c);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void rtt_put(cJSON *data, const struct weft_trace_record *r)
{
    milliseconds(data, "min_rtt", r->number);
    milliseconds(data, "latest_rtt", r->a);
    milliseconds(data, "smoothed_rtt", r->b);
    milliseconds(data, "rtt_variance", r->c);
}

static void congestion_put(cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    number(data, "congestion_window", r->number);
    number(data, "bytes_in_flight", r->b);
    number(data, "pacing_rate", (uint64_t)r->a * 1000);
    number(child(event, "weft"), "credit_packets", r->c);
}

static void timer_put(cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    text(data, "timer_type", "pto");
    text(data, "event_type", "expired");
    cJSON *weft = child(event, "weft");
    number(weft, "pto_count", r->a);
    number(weft, "packets_in_flight", r->b);
}

/* What only weft has; the fields have the names of core/trace.h. */
static void other_put(cJSON *data, const struct weft_trace_record *r)
{
    switch ((enum weft_trace_type)r->type) {
    case WEFT_TRACE_CHUNK_AGAIN:
    case WEFT_TRACE_PROBE:
        number(data, "packet_number", r->number);
        chunk_put(data, r);
        break;
    case WEFT_TRACE_HANDSHAKE_SENT:
    case WEFT_TRACE_HANDSHAKE_RECEIVED:
        text(data, "packet", class_name(r->flags));
        number(data, "length", r->c);
        break;
    case WEFT_TRACE_PATH:
        number(data, "loss_ppm", r->a);
        number(data, "ce_packets", r->b);
        number(data, "lost_packets", r->c);
        break;
    case WEFT_TRACE_CREDIT_GRANTED:
    case WEFT_TRACE_CREDIT_RECEIVED:
        number(data, "credit", r->number);
        number(data, "added", r->a);
        number(data, "data_packets", r->b);
        break;
    case WEFT_TRACE_PEER_UP:
        hexadecimal(data, "name", r->number);
        number(data, "connection_id", r->a);
        break;
    case WEFT_TRACE_PEER_DOWN:
        hexadecimal(data, "name", r->number);
        number(data, "reason", r->a);
        break;
    case WEFT_TRACE_DROPPED:
        text(data, "reason", weft_trace_drop_name(r->flags) != NULL ? weft_trace_drop_name(r->flags)
                                                                    : "unknown");
        number(data, "count", r->a);
        break;
    default: /* a later version's record: its numbers as they are */
        number(data, "type", r->type);
        hexadecimal(data, "number", r->number);
        number(data, "a", r->a);
        number(data, "b", r->b);
        number(data, "c", r->c);
        break;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* NULL: the record's own name, in the namespace weft. */
static const char *standard_name(unsigned type)
{
    switch (type) {
    case WEFT_TRACE_PACKET_SENT:
        return "quic:packet_sent";
    case WEFT_TRACE_PACKET_RECEIVED:
        return "quic:packet_received";
    case WEFT_TRACE_PACKET_ACKED:
        return "quic:packets_acked";
    case WEFT_TRACE_PACKET_LOST:
        return "quic:packet_lost";
    case WEFT_TRACE_RTT:
    case WEFT_TRACE_CC:
        return "quic:recovery_metrics_updated";
    case WEFT_TRACE_PTO:
        return "quic:timer_updated";
    default:
        return NULL;
    }
}

static void data_put(cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    switch ((enum weft_trace_type)r->type) {
    case WEFT_TRACE_PACKET_SENT:
    case WEFT_TRACE_PACKET_RECEIVED:
    case WEFT_TRACE_PACKET_LOST:
    case WEFT_TRACE_PACKET_SPURIOUS:
        packet_put(event, data, r);
        break;
    case WEFT_TRACE_PACKET_ACKED:
        acked_put(event, data, r);
        break;
    case WEFT_TRACE_MSG_OPENED:
    case WEFT_TRACE_MSG_TAG:
    case WEFT_TRACE_MSG_CLOSED:
        message_put(data, r);
        break;
    case WEFT_TRACE_DONE_SENT:
    case WEFT_TRACE_DONE_RECEIVED:
        done_put(data, r);
        break;
    case WEFT_TRACE_RTT:
        rtt_put(data, r);
        break;
    case WEFT_TRACE_CC:
        congestion_put(event, data, r);
        break;
    case WEFT_TRACE_PTO:
        timer_put(event, data, r);
        break;
    default:
        other_put(data, r);
    }
}

static cJSON *event_make(const struct weft_trace_doc *doc, const struct weft_trace_entry *entry)
{
    const struct weft_trace_record *r = &entry->record;
    char name[64];
    char group[64];
    const char *standard = standard_name(r->type);
    const char *own = weft_trace_type_name(r->type);
    snprintf(name, sizeof(name), "weft:%s", own != NULL ? own : "record");
    const char *label = doc->endpoints[entry->endpoint].about.label;
    if (r->peer == WEFT_TRACE_NO_PEER) {
        snprintf(group, sizeof(group), "%s", label);
    } else {
        snprintf(group, sizeof(group), "%s, peer %u", label, r->peer);
    }
    cJSON *event = need(cJSON_CreateObject());
    milliseconds(event, "time", r->time_ns);
    text(event, "name", standard != NULL ? standard : name);
    text(event, "group_id", group);
    data_put(event, child(event, "data"), r);
    return event;
}

static bool write_all(const struct weft_trace_doc *doc, const char *path, FILE *out)
{
    bool good = put(out, head(doc, path));
    for (size_t i = 0; good && i < doc->count; i++) {
        good = put(out, event_make(doc, &doc->entries[i]));
    }
    return fflush(out) == 0 && good;
}

static int run(const char *path, const char *out_path)
{
    struct weft_trace_doc doc;
    bool good = weft_trace_doc_load(path, &doc);
    if (good) {
        FILE *out = out_path != NULL ? fopen(out_path, "we") : stdout;
        good = out != NULL && write_all(&doc, path, out);
        if (out != NULL && out != stdout) {
            good = fclose(out) == 0 && good;
        }
        if (!good) {
            fprintf(stderr, "weft trace qlog: %s: %s\n", out_path != NULL ? out_path : "output",
                    strerror(errno));
        }
    }
    weft_trace_doc_fini(&doc);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_trace_qlog(int argc, char **argv)
{
    const char *out = NULL;
    bool json = false;
    const char *file = weft_trace_take_file(&argc, argv);
    const struct weft_option options[] = {
        {"out", "OUT", "file to write; also -o OUT", WEFT_OPTION_STRING, .value = &out,
         .fallback = "standard output"},
        {"json", NULL, "qlog is JSON; accepted as by the other verbs", WEFT_OPTION_FLAG,
         .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "trace qlog FILE",
        .summary = "a trace as qlog, for the tools that draw QUIC",
        .description =
            "Writes JSON-SEQ: each record begins with the byte 0x1e and is one line of JSON; for\n"
            "tools that want plain lines: `tr -d '\\036'`. Times are ms of the process's clock.",
        .example = "  weft train --trace t && weft trace qlog t.worker-0 -o t.sqlog\n"
                   "  weft trace qlog t.worker-0 | tr -d '\\036' | jq -c 'select(.name == "
                   "\"quic:packet_lost\")'",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (file == NULL) {
        return weft_options_usage(&command, "which file? It comes first: weft trace qlog FILE");
    }
    return run(file, out);
}
