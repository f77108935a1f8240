#include "obs/qlog.h"

#include "base/utf8.h"
#include "wire/packet.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

struct qlog {
    FILE *out;
    weft_status status; /* of the first failure; later objects are not written */
};

/* Checks a result of cJSON: NULL means out of memory; cJSON's functions accept NULL. */
static void *kept(struct qlog *q, void *made)
{
    q->status = made == NULL && q->status == WEFT_OK ? WEFT_NOMEM : q->status;
    return made;
}

static cJSON *child(struct qlog *q, cJSON *object, const char *name)
{
    return kept(q, cJSON_AddObjectToObject(object, name));
}

static void number(struct qlog *q, cJSON *object, const char *name, uint64_t value)
{
    kept(q, cJSON_AddNumberToObject(object, name, (double)value));
}

static void text(struct qlog *q, cJSON *object, const char *name, const char *value)
{
    kept(q, cJSON_AddStringToObject(object, name, value));
}

static void milliseconds(struct qlog *q, cJSON *object, const char *name, uint64_t ns)
{
    kept(q, cJSON_AddNumberToObject(object, name, (double)ns / 1e6));
}

/* A JSON number cannot hold 64 bits. */
static void hexadecimal(struct qlog *q, cJSON *object, const char *name, uint64_t value)
{
    char digits[20];
    snprintf(digits, sizeof(digits), "%016" PRIx64, value);
    text(q, object, name, digits);
}

static void put(struct qlog *q, cJSON *object)
{
    char *line = kept(q, cJSON_PrintUnformatted(object));
    cJSON_Delete(object);
    if (line != NULL) {
        weft_utf8_repair(line);
    }
    if (q->status == WEFT_OK && fprintf(q->out, "\x1e%s\n", line) < 0) {
        q->status = WEFT_IO;
    }
    cJSON_free(line);
}

/* ---- header ---------------------------------------------------------------------------------- */

static cJSON *head(struct qlog *q, const struct weft_trace_doc *doc, const char *path)
{
    cJSON *file = kept(q, cJSON_CreateObject());
    text(q, file, "file_schema", "urn:ietf:params:qlog:file:sequential");
    text(q, file, "serialization_format", "application/qlog+json-seq");
    text(q, file, "title", path);
    text(q, file, "description",
         doc->truncated ? "weft " WEFT_VERSION "; the trace was cut off" : "weft " WEFT_VERSION);
    cJSON *trace = child(q, file, "trace");
    cJSON *common = child(q, trace, "common_fields");
    text(q, common, "time_format", "relative_to_epoch");
    cJSON *reference = child(q, common, "reference_time");
    text(q, reference, "clock_type", "monotonic");
    text(q, reference, "epoch", "unknown");
    cJSON *vantage = child(q, trace, "vantage_point");
    text(q, vantage, "name", doc->endpoint_count == 1 ? doc->endpoints[0].about.label : "weft");
    text(q, vantage, "type", "unknown");
    cJSON *schemas = kept(q, cJSON_AddArrayToObject(trace, "event_schemas"));
    cJSON_AddItemToArray(schemas, kept(q, cJSON_CreateString("urn:ietf:params:qlog:events:quic")));
    cJSON_AddItemToArray(schemas, kept(q, cJSON_CreateString("weft:qlog/events/1")));
    return file;
}

/* ---- packets --------------------------------------------------------------------------------- */

static void holds_put(struct qlog *q, cJSON *weft, unsigned flags)
{
    static const char *const names[] = {"data", "done", "probe", "finish", "critical"};
    cJSON *holds = kept(q, cJSON_AddArrayToObject(weft, "holds"));
    for (unsigned i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        if ((flags >> i & 1) != 0) {
            cJSON_AddItemToArray(holds, kept(q, cJSON_CreateString(names[i])));
        }
    }
}

static void chunk_put(struct qlog *q, cJSON *weft, const struct weft_trace_record *r)
{
    number(q, weft, "msg", r->a);
    number(q, weft, "chunk", r->b);
}

static void packet_put(struct qlog *q, cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    cJSON *header = child(q, data, "header");
    cJSON *weft = child(q, event, "weft");
    text(q, header, "packet_type", "1RTT");
    number(q, header, "packet_number", r->number);
    number(q, child(q, data, "raw"), "length", r->c);
    if (r->type == WEFT_TRACE_PACKET_RECEIVED) {
        kept(q, cJSON_AddBoolToObject(weft, "pass_end", (r->flags & WEFT_FLAG_PASS_END) != 0));
    } else {
        holds_put(q, weft, r->flags);
    }
    if ((r->flags & WEFT_TRACE_HAS_DATA) != 0) { /* the flag in the packet's header has the same
                                                  * value */
        chunk_put(q, weft, r);
    }
    if (r->type == WEFT_TRACE_PACKET_SENT && (r->flags & WEFT_TRACE_HAS_PROBE) != 0) {
        text(q, data, "trigger", "pto_probe");
    }
}

static void acked_put(struct qlog *q, cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    cJSON *numbers = kept(q, cJSON_AddArrayToObject(data, "packet_numbers"));
    cJSON_AddItemToArray(numbers, kept(q, cJSON_CreateNumber((double)r->number)));
    if ((r->flags & WEFT_TRACE_HAS_DATA) != 0) {
        chunk_put(q, child(q, event, "weft"), r);
    }
}

/* ---- other records: fields ------------------------------------------------------------------- */

static const char *class_name(unsigned klass)
{
    static const char *const names[] = {
        [WEFT_CLASS_HELLO] = "HELLO",     [WEFT_CLASS_ACCEPT] = "ACCEPT",
        [WEFT_CLASS_COOKIE] = "COOKIE",   [WEFT_CLASS_UNKNOWN] = "UNKNOWN",
        [WEFT_CLASS_REFUSED] = "REFUSED",
    };
    return klass < WEFT_ARRAY_COUNT(names) && names[klass] != NULL ? names[klass] : "other";
}

static const char *done_name(unsigned status)
{
    return status == WEFT_DONE_COMPLETE ? "complete" : "short";
}

static const char *drop_name(unsigned reason)
{
    const char *name = weft_trace_drop_name(reason);
    return name != NULL ? name : "unknown";
}

enum value { OF_NUMBER, OF_A, OF_B, OF_C, OF_AB, OF_TYPE };
enum form { AS_NUMBER, AS_HEX, AS_MS, AS_BPS };

struct field {
    const char *name;
    enum value value;
    enum form form;
    const char *(*text)(unsigned flags); /* or this, a function of the flags */
    const char *constant;                /* or this constant */
    bool is_of_weft;                     /* QUIC's event has no such field */
};

enum { FIELDS_MAX = 6 };

/* By type, in the order in which they are written. Fields of weft's own events are named as in
 * core/trace.h. */
static const struct field fields[WEFT_TRACE_TYPE_END][FIELDS_MAX] = {
    /* a type of a later version: its numbers unchanged */
    [WEFT_TRACE_NONE] = {{"type", OF_TYPE},
                         {"number", OF_NUMBER, AS_HEX},
                         {"a", OF_A},
                         {"b", OF_B},
                         {"c", OF_C}},
    [WEFT_TRACE_CHUNK_AGAIN] = {{"packet_number", OF_NUMBER}, {"msg", OF_A}, {"chunk", OF_B}},
    [WEFT_TRACE_PROBE] = {{"packet_number", OF_NUMBER}, {"msg", OF_A}, {"chunk", OF_B}},
    [WEFT_TRACE_HANDSHAKE_SENT] = {{"packet", .text = class_name}, {"length", OF_C}},
    [WEFT_TRACE_HANDSHAKE_RECEIVED] = {{"packet", .text = class_name}, {"length", OF_C}},
    [WEFT_TRACE_MSG_OPENED] = {{"seq", OF_NUMBER},
                               {"direction", .text = weft_trace_direction_name},
                               {"chunks", OF_A},
                               {"lost_max", OF_B},
                               {"chunk_bytes", OF_C}},
    [WEFT_TRACE_MSG_TAG] = {{"seq", OF_NUMBER},
                            {"direction", .text = weft_trace_direction_name},
                            {"tag", OF_AB, AS_HEX},
                            {"elements", OF_C}},
    [WEFT_TRACE_MSG_CLOSED] = {{"seq", OF_NUMBER},
                               {"direction", .text = weft_trace_direction_name},
                               {"outcome", .text = weft_trace_outcome_name},
                               {"received", OF_A},
                               {"chunks", OF_B},
                               {"refused", OF_C}},
    [WEFT_TRACE_RTT] = {{"min_rtt", OF_NUMBER, AS_MS},
                        {"latest_rtt", OF_A, AS_MS},
                        {"smoothed_rtt", OF_B, AS_MS},
                        {"rtt_variance", OF_C, AS_MS}},
    [WEFT_TRACE_CC] = {{"congestion_window", OF_NUMBER},
                       {"bytes_in_flight", OF_B},
                       {"pacing_rate", OF_A, AS_BPS},
                       {"credit_packets", OF_C, .is_of_weft = true}},
    [WEFT_TRACE_PATH] = {{"loss_ppm", OF_A}, {"ce_packets", OF_B}, {"lost_packets", OF_C}},
    [WEFT_TRACE_PTO] = {{"timer_type", .constant = "pto"},
                        {"event_type", .constant = "expired"},
                        {"pto_count", OF_A, .is_of_weft = true},
                        {"packets_in_flight", OF_B, .is_of_weft = true}},
    [WEFT_TRACE_DONE_SENT] = {{"msg", OF_NUMBER},
                              {"status", .text = done_name},
                              {"received", OF_A},
                              {"words", OF_B},
                              {"first", OF_C}},
    [WEFT_TRACE_DONE_RECEIVED] = {{"msg", OF_NUMBER},
                                  {"status", .text = done_name},
                                  {"received", OF_A},
                                  {"words", OF_B},
                                  {"first", OF_C}},
    [WEFT_TRACE_CREDIT_GRANTED] = {{"credit", OF_NUMBER}, {"added", OF_A}, {"data_packets", OF_B}},
    [WEFT_TRACE_CREDIT_RECEIVED] = {{"credit", OF_NUMBER}, {"added", OF_A}, {"data_packets", OF_B}},
    [WEFT_TRACE_PEER_UP] = {{"name", OF_NUMBER, AS_HEX}, {"connection_id", OF_A}},
    [WEFT_TRACE_PEER_DOWN] = {{"name", OF_NUMBER, AS_HEX}, {"reason", OF_A}},
    [WEFT_TRACE_DROPPED] = {{"reason", .text = drop_name}, {"count", OF_A}},
    [WEFT_TRACE_MSG_SHARED] = {{"packet_number", OF_NUMBER},
                               {"direction", .text = weft_trace_direction_name},
                               {"msg", OF_A},
                               {"chunk", OF_B},
                               {"length", OF_C}},
};

static uint64_t value_of(const struct weft_trace_record *r, enum value value)
{
    const uint64_t values[] = {[OF_NUMBER] = r->number,
                               [OF_A] = r->a,
                               [OF_B] = r->b,
                               [OF_C] = r->c,
                               [OF_AB] = (uint64_t)r->a << 32 | r->b,
                               [OF_TYPE] = r->type};
    return values[value];
}

static void field_put(struct qlog *q, cJSON *into, const struct field *field,
                      const struct weft_trace_record *r)
{
    uint64_t value = value_of(r, field->value);
    if (field->constant != NULL || field->text != NULL) {
        text(q, into, field->name,
             field->constant != NULL ? field->constant : field->text(r->flags));
    } else if (field->form == AS_HEX) {
        hexadecimal(q, into, field->name, value);
    } else if (field->form == AS_MS) {
        milliseconds(q, into, field->name, value);
    } else {
        number(q, into, field->name, field->form == AS_BPS ? value * 1000 : value);
    }
}

static void fields_put(struct qlog *q, cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    const struct field *list = fields[r->type < WEFT_TRACE_TYPE_END ? r->type : WEFT_TRACE_NONE];
    cJSON *weft = NULL;
    for (unsigned i = 0; i < FIELDS_MAX && list[i].name != NULL; i++) {
        weft = weft == NULL && list[i].is_of_weft ? child(q, event, "weft") : weft;
        field_put(q, list[i].is_of_weft ? weft : data, &list[i], r);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* NULL: use the record's own name, in the namespace weft. */
static const char *standard_name(unsigned type)
{
    static const char *const names[WEFT_TRACE_TYPE_END] = {
        [WEFT_TRACE_PACKET_SENT] = "quic:packet_sent",
        [WEFT_TRACE_PACKET_RECEIVED] = "quic:packet_received",
        [WEFT_TRACE_PACKET_ACKED] = "quic:packets_acked",
        [WEFT_TRACE_PACKET_LOST] = "quic:packet_lost",
        [WEFT_TRACE_RTT] = "quic:recovery_metrics_updated",
        [WEFT_TRACE_CC] = "quic:recovery_metrics_updated",
        [WEFT_TRACE_PTO] = "quic:timer_updated",
    };
    return type < WEFT_TRACE_TYPE_END ? names[type] : NULL;
}

static void data_put(struct qlog *q, cJSON *event, cJSON *data, const struct weft_trace_record *r)
{
    if (r->type == WEFT_TRACE_PACKET_ACKED) {
        acked_put(q, event, data, r);
    } else if (r->type >= WEFT_TRACE_PACKET_SENT && r->type <= WEFT_TRACE_PACKET_SPURIOUS) {
        packet_put(q, event, data, r);
    } else {
        fields_put(q, event, data, r);
    }
}

static cJSON *event_make(struct qlog *q, const struct weft_trace_doc *doc,
                         const struct weft_trace_entry *entry)
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
    cJSON *event = kept(q, cJSON_CreateObject());
    milliseconds(q, event, "time", r->time_ns);
    text(q, event, "name", standard != NULL ? standard : name);
    text(q, event, "group_id", group);
    data_put(q, event, child(q, event, "data"), r);
    return event;
}

weft_status weft_qlog_write(const struct weft_trace_doc *doc, const char *title, FILE *out)
{
    struct qlog q = {.out = out};
    put(&q, head(&q, doc, title));
    for (size_t i = 0; q.status == WEFT_OK && i < doc->count; i++) {
        put(&q, event_make(&q, doc, &doc->entries[i]));
    }
    return q.status;
}
