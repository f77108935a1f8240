#include "cli/trace/load.h"

#include "cli/output.h"
#include "cli/trace/trace.h"
#include "core/msg.h"
#include "obs/records_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool take_endpoint(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    if (block->endpoint != doc->endpoint_count) {
        return false;
    }
    size_t bytes = (doc->endpoint_count + 1) * sizeof(*doc->endpoints);
    doc->endpoints = weft_trace_need(realloc(doc->endpoints, bytes));
    struct weft_trace_doc_endpoint *e = &doc->endpoints[doc->endpoint_count++];
    memset(e, 0, sizeof(*e));
    weft_trace_block_endpoint(block, &e->about);
    return true;
}

static void take_records(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    size_t bytes = (doc->count + block->count) * sizeof(*doc->entries);
    doc->entries = bytes == 0 ? doc->entries : weft_trace_need(realloc(doc->entries, bytes));
    for (uint32_t i = 0; i < block->count; i++) {
        struct weft_trace_entry *entry = &doc->entries[doc->count];
        weft_trace_block_record(block, i, &entry->record);
        entry->endpoint = block->endpoint;
        entry->order = (uint32_t)doc->count++;
    }
    doc->endpoints[block->endpoint].records += block->count;
    doc->endpoints[block->endpoint].overwritten += block->overwritten;
}

static void take_counters(struct weft_trace_doc_endpoint *e, const struct weft_trace_block *block)
{
    e->counters = 0;
    for (uint32_t i = 0; i < block->count && i < WEFT_TRACE_COUNTERS_MAX; i++) {
        e->values[i] = weft_trace_block_counter(block, i, e->names[i]);
        e->counters++;
    }
}

static bool take_block(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    if (block->kind == WEFT_TRACE_BLOCK_ENDPOINT) {
        return take_endpoint(doc, block);
    }
    if (block->endpoint >= doc->endpoint_count) {
        return false;
    }
    if (block->kind == WEFT_TRACE_BLOCK_RECORDS) {
        take_records(doc, block);
    } else {
        take_counters(&doc->endpoints[block->endpoint], block);
    }
    return true;
}

/* Equal times keep the order of the file, which is that of an endpoint's records. */
static int by_time(const void *a, const void *b)
{
    const struct weft_trace_entry *x = a;
    const struct weft_trace_entry *y = b;
    uint64_t x_ns = x->record.time_ns;
    uint64_t y_ns = y->record.time_ns;
    return x_ns != y_ns ? (x_ns > y_ns) - (x_ns < y_ns)
                        : (x->order > y->order) - (x->order < y->order);
}

bool weft_trace_doc_load(const char *path, struct weft_trace_doc *doc_p)
{
    *doc_p = (struct weft_trace_doc){0};
    if (weft_recdb_is_sqlite(path)) {
        fprintf(stderr,
                "weft trace: %s is a database of records, not a trace of packets; `weft trace "
                "summary`, `slow`, `hot` and `sql` read it\n",
                path);
        return false;
    }
    if (weft_records_is_json(path)) {
        fprintf(stderr, "weft trace: %s " WEFT_RECORDS_JSON_WORDS "\n", path);
        return false;
    }
    char *bytes;
    size_t count;
    if (weft_file_read(path, SIZE_MAX / 4, &bytes, &count) != WEFT_OK) {
        fprintf(stderr, "weft trace: %s: %s\n", path, strerror(errno));
        return false;
    }
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    bool good = count > 0;
    weft_trace_reader_init(&reader, (const uint8_t *)bytes, count);
    while (good && weft_trace_reader_next(&reader, &block)) {
        good = take_block(doc_p, &block);
    }
    free(bytes);
    if (!good || reader.bad) {
        fprintf(stderr, "weft trace: %s is no trace file, or is damaged (at byte %zu of %zu)\n",
                path, reader.at, count);
        return false;
    }
    doc_p->truncated = reader.truncated;
    if (reader.truncated) {
        fprintf(stderr, "weft trace: %s is cut off; what follows is what it holds\n", path);
    }
    if (doc_p->count > 0) {
        qsort(doc_p->entries, doc_p->count, sizeof(*doc_p->entries), by_time);
    }
    return true;
}

void weft_trace_doc_fini(struct weft_trace_doc *doc)
{
    free(doc->entries);
    free(doc->endpoints);
    *doc = (struct weft_trace_doc){0};
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *weft_trace_direction_name(unsigned flags)
{
    return (flags & 1) == WEFT_TRACE_INCOMING ? "incoming" : "outgoing";
}

const char *weft_trace_outcome_name(unsigned flags)
{
    switch (flags >> 1) {
    case WEFT_MSG_COMPLETE:
        return "complete";
    case WEFT_MSG_SHORT:
        return "short";
    default:
        return "unknown";
    }
}
