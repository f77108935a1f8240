/* `weft trace msg`: the events of one message, line by line. */
#include "cli/trace/trace.h"
#include "wire/packet.h"

#include <inttypes.h>

enum { ANY = UINT32_MAX };

struct query {
    uint64_t msg;
    uint32_t endpoint;
    uint32_t peer;
    bool json;
};

/* Identifies a message: the number alone is ambiguous between endpoints, peers and directions. */
struct which {
    uint16_t endpoint;
    uint16_t peer;
    unsigned direction;
};

/* Does this record belong to message `msg`, and in which direction is that sent? */
static bool concerns(const struct weft_trace_record *r, uint64_t msg, unsigned *direction_p)
{
    bool low = r->a == (uint32_t)msg;
    switch ((enum weft_trace_type)r->type) {
    case WEFT_TRACE_PACKET_SENT:
    case WEFT_TRACE_PACKET_ACKED:
    case WEFT_TRACE_PACKET_LOST:
    case WEFT_TRACE_PACKET_SPURIOUS:
        *direction_p = WEFT_TRACE_OUTGOING;
        return low && (r->flags & WEFT_TRACE_HAS_DATA) != 0;
    case WEFT_TRACE_PACKET_RECEIVED:
        *direction_p = WEFT_TRACE_INCOMING;
        return low && weft_wire_has_chunk(r->flags);
    case WEFT_TRACE_CHUNK_AGAIN:
    case WEFT_TRACE_PROBE:
        *direction_p = WEFT_TRACE_OUTGOING;
        return low;
    case WEFT_TRACE_MSG_SHARED:
        *direction_p = r->flags & 1;
        return low;
    case WEFT_TRACE_MSG_OPENED:
    case WEFT_TRACE_MSG_TAG:
    case WEFT_TRACE_MSG_CLOSED:
        *direction_p = r->flags & 1;
        return r->number == msg;
    case WEFT_TRACE_DONE_SENT:
        *direction_p = WEFT_TRACE_INCOMING;
        return r->number == (uint32_t)msg;
    case WEFT_TRACE_DONE_RECEIVED:
        *direction_p = WEFT_TRACE_OUTGOING;
        return r->number == (uint32_t)msg;
    default:
        return false;
    }
}

static bool same(const struct weft_trace_entry *entry, unsigned direction, const struct which *w)
{
    return entry->endpoint == w->endpoint && entry->record.peer == w->peer &&
           direction == w->direction;
}

/* ---- one record ------------------------------------------------------------------------------ */

static void detail(const struct weft_trace_record *r, char *text, size_t bytes)
{
    switch ((enum weft_trace_type)r->type) {
    case WEFT_TRACE_MSG_OPENED:
        snprintf(text, bytes, "%" PRIu32 " chunks of %" PRIu32 " bytes, %" PRIu32 " may be missing",
                 r->a, r->c, r->b);
        break;
    case WEFT_TRACE_MSG_TAG:
        snprintf(text, bytes, "tag %08" PRIx32 "%08" PRIx32 ", %" PRIu32 " elements", r->a, r->b,
                 r->c);
        break;
    case WEFT_TRACE_MSG_CLOSED:
        snprintf(text, bytes, "%s, %" PRIu32 " of %" PRIu32 " chunks, %" PRIu32 " refused",
                 weft_trace_outcome_name(r->flags), r->a, r->b, r->c);
        break;
    case WEFT_TRACE_DONE_SENT:
    case WEFT_TRACE_DONE_RECEIVED:
        snprintf(text, bytes,
                 "%s, %" PRIu32 " chunks, mask of %" PRIu32 " words from chunk %" PRIu32,
                 r->flags == WEFT_DONE_COMPLETE ? "complete" : "short", r->a, r->b, r->c);
        break;
    case WEFT_TRACE_PACKET_RECEIVED:
        snprintf(text, bytes, "%" PRIu32 " bytes%s", r->c,
                 (r->flags & WEFT_FLAG_PASS_END) != 0 ? ", the pass is over" : "");
        break;
    case WEFT_TRACE_CHUNK_AGAIN:
        snprintf(text, bytes, "the next packet retransmits it");
        break;
    case WEFT_TRACE_PROBE:
        snprintf(text, bytes, "no packet was received");
        break;
    case WEFT_TRACE_MSG_SHARED:
        snprintf(text, bytes, "%" PRIu32 " bytes, beside other messages", r->c);
        break;
    default:
        snprintf(text, bytes, "%" PRIu32 " bytes%s", r->c,
                 (r->flags & WEFT_TRACE_HAS_PROBE) != 0 ? ", probe" : "");
    }
}

static bool has_packet(unsigned type)
{
    return (type >= WEFT_TRACE_PACKET_SENT && type <= WEFT_TRACE_CHUNK_AGAIN) ||
           type == WEFT_TRACE_PROBE || type == WEFT_TRACE_MSG_SHARED;
}

static void print_record(const struct weft_trace_record *r, uint64_t from_ns)
{
    char packet[24] = "-";
    char chunk[16] = "-";
    char text[96];
    if (has_packet(r->type)) {
        snprintf(packet, sizeof(packet), "%" PRIu64, r->number);
        if (r->b != UINT32_MAX) {
            snprintf(chunk, sizeof(chunk), "%" PRIu32, r->b);
        }
    }
    detail(r, text, sizeof(text));
    printf("%12.3f  %-16s %8s %8s  %s\n", (double)(r->time_ns - from_ns) / 1e3,
           weft_trace_type_name(r->type), packet, chunk, text);
}

static cJSON *json_record(const struct weft_trace_record *r)
{
    char text[96];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "time_ns", (double)r->time_ns);
    cJSON_AddStringToObject(object, "event", weft_trace_type_name(r->type));
    if (has_packet(r->type)) {
        cJSON_AddNumberToObject(object, "packet_number", (double)r->number);
        cJSON_AddItemToObject(object, "chunk",
                              r->b != UINT32_MAX ? cJSON_CreateNumber(r->b) : cJSON_CreateNull());
    }
    detail(r, text, sizeof(text));
    cJSON_AddStringToObject(object, "detail", text);
    return object;
}

/* ---- one message ----------------------------------------------------------------------------- */

static void show(const struct weft_trace_doc *doc, const struct query *query, const struct which *w,
                 cJSON *list)
{
    const char *label = doc->endpoints[w->endpoint].about.label;
    cJSON *object = NULL;
    cJSON *events = NULL;
    if (query->json) {
        object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "label", label);
        cJSON_AddNumberToObject(object, "endpoint", w->endpoint);
        cJSON_AddNumberToObject(object, "peer", w->peer);
        cJSON_AddStringToObject(object, "direction", weft_trace_direction_name(w->direction));
        events = cJSON_AddArrayToObject(object, "events");
        cJSON_AddItemToArray(list, object);
    } else {
        printf("%s (endpoint %u), peer %u: %s message %" PRIu64 "\n%12s  %-16s %8s %8s\n", label,
               w->endpoint, w->peer, weft_trace_direction_name(w->direction), query->msg, "us",
               "event", "packet", "chunk");
    }
    uint64_t from_ns = UINT64_MAX;
    for (size_t i = 0; i < doc->count; i++) {
        const struct weft_trace_record *r = &doc->entries[i].record;
        unsigned direction;
        if (!concerns(r, query->msg, &direction) || !same(&doc->entries[i], direction, w)) {
            continue;
        }
        from_ns = from_ns == UINT64_MAX ? r->time_ns : from_ns;
        if (query->json) {
            cJSON_AddItemToArray(events, json_record(r));
        } else {
            print_record(r, from_ns);
        }
    }
}

static bool wanted(const struct weft_trace_entry *entry, const struct query *query)
{
    return (query->endpoint == ANY || entry->endpoint == query->endpoint) &&
           (query->peer == ANY || entry->record.peer == query->peer);
}

/* Print every message of that number, ordered by start. */
static int show_all(const struct weft_trace_doc *doc, const struct query *query)
{
    enum { SHOWN_MAX = 256 };
    static struct which shown[SHOWN_MAX];
    size_t count = 0;
    bool good = true;
    cJSON *list = query->json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < doc->count && count < SHOWN_MAX; i++) {
        const struct weft_trace_entry *entry = &doc->entries[i];
        unsigned direction;
        if (!wanted(entry, query) || !concerns(&entry->record, query->msg, &direction)) {
            continue;
        }
        size_t seen = 0;
        while (seen < count && !same(entry, direction, &shown[seen])) {
            seen++;
        }
        if (seen == count) {
            shown[count++] = (struct which){.endpoint = entry->endpoint,
                                            .peer = entry->record.peer,
                                            .direction = direction};
            show(doc, query, &shown[seen], list);
        }
    }
    if (query->json) {
        good = weft_output_json("trace msg", list, false);
    }
    if (count == 0) {
        fprintf(stderr, "weft trace msg: the trace has no message %" PRIu64 "\n", query->msg);
    }
    return good && count > 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_trace_msg(int argc, char **argv)
{
    struct query query = {.endpoint = ANY, .peer = ANY};
    const char *file = NULL;
    const struct weft_option options[] = {
        {"msg", "N", "sequence number of the message, from 1", WEFT_OPTION_U64, &query.msg,
         .min = 1, .fallback = ""},
        {"endpoint", "E", "only this endpoint of the file, from 0", WEFT_OPTION_U32,
         &query.endpoint, .max = UINT16_MAX, .fallback = "all"},
        {"peer", "P", "only messages to and from this peer of the endpoint, from 0",
         WEFT_OPTION_U32, &query.peer, .max = UINT16_MAX, .fallback = "all"},
        {"json", NULL, "print the tables as one JSON array", WEFT_OPTION_FLAG,
         .value = &query.json},
        {0},
    };
    const struct weft_command command = {
        .name = "trace msg",
        .summary = "list the events of one message, as a table",
        .arguments = "FILE",
        .operand = &file,
        .without = "FILE is missing: weft trace msg FILE",
        .description =
            "Each sender numbers its messages to each receiver from 1, so one number may match\n"
            "several messages; each gets a table. `weft trace summary` lists the slowest "
            "messages.\n"
            "Times are us since the first line of the table, which is message_opened unless it\n"
            "was overwritten.",
        .example = "  weft trace summary t.worker-0\n  weft trace msg t.worker-0 --msg 17 --peer 0",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (query.msg == 0) {
        return weft_options_usage(&command, "--msg N is missing");
    }
    struct weft_trace_doc doc;
    status = weft_trace_load(file, &doc) ? show_all(&doc, &query) : WEFT_EXIT_FAILED;
    weft_trace_doc_fini(&doc);
    return status;
}
