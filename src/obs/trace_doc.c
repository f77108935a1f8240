#include "obs/trace_doc.h"

#include "core/msg.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

static weft_status take_endpoint(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    if (block->endpoint != doc->endpoint_count) {
        return WEFT_DATA;
    }
    size_t bytes = (doc->endpoint_count + 1) * sizeof(*doc->endpoints);
    struct weft_trace_doc_endpoint *endpoints = realloc(doc->endpoints, bytes);
    if (endpoints == NULL) {
        return WEFT_NOMEM;
    }
    doc->endpoints = endpoints;
    struct weft_trace_doc_endpoint *e = &doc->endpoints[doc->endpoint_count++];
    memset(e, 0, sizeof(*e));
    weft_trace_block_endpoint(block, &e->about);
    return WEFT_OK;
}

static weft_status take_records(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    size_t bytes = (doc->count + block->count) * sizeof(*doc->entries);
    struct weft_trace_entry *entries = bytes == 0 ? NULL : realloc(doc->entries, bytes);
    if (entries == NULL && bytes > 0) {
        return WEFT_NOMEM;
    }
    doc->entries = entries;
    for (uint32_t i = 0; i < block->count; i++) {
        struct weft_trace_entry *entry = &doc->entries[doc->count];
        weft_trace_block_record(block, i, &entry->record);
        entry->endpoint = block->endpoint;
        entry->order = (uint32_t)doc->count++;
    }
    doc->endpoints[block->endpoint].records += block->count;
    doc->endpoints[block->endpoint].overwritten += block->overwritten;
    return WEFT_OK;
}

static void take_counters(struct weft_trace_doc_endpoint *e, const struct weft_trace_block *block)
{
    e->counters = 0;
    for (uint32_t i = 0; i < block->count && i < WEFT_TRACE_COUNTERS_MAX; i++) {
        e->values[i] = weft_trace_block_counter(block, i, e->names[i]);
        e->counters++;
    }
}

static weft_status take_block(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    if (block->kind == WEFT_TRACE_BLOCK_ENDPOINT) {
        return take_endpoint(doc, block);
    }
    if (block->endpoint >= doc->endpoint_count) {
        return WEFT_DATA;
    }
    if (block->kind == WEFT_TRACE_BLOCK_RECORDS) {
        return take_records(doc, block);
    }
    take_counters(&doc->endpoints[block->endpoint], block);
    return WEFT_OK;
}

/* Records with equal times keep the order of the file, which is that of the endpoint. */
static int by_time(const void *a, const void *b)
{
    const struct weft_trace_entry *x = a;
    const struct weft_trace_entry *y = b;
    uint64_t x_ns = x->record.time_ns;
    uint64_t y_ns = y->record.time_ns;
    return x_ns != y_ns ? (x_ns > y_ns) - (x_ns < y_ns)
                        : (x->order > y->order) - (x->order < y->order);
}

weft_status weft_trace_doc_make(const void *bytes, size_t count, struct weft_trace_doc *doc_p)
{
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    weft_status status = count > 0 ? WEFT_OK : WEFT_DATA;
    *doc_p = (struct weft_trace_doc){0};
    weft_trace_reader_init(&reader, bytes, count);
    while (status == WEFT_OK && weft_trace_reader_next(&reader, &block)) {
        status = take_block(doc_p, &block);
    }
    doc_p->truncated = reader.truncated;
    doc_p->bad_at = reader.at;
    if (doc_p->count > 0) {
        qsort(doc_p->entries, doc_p->count, sizeof(*doc_p->entries), by_time);
    }
    return status == WEFT_OK && reader.bad ? WEFT_DATA : status;
}

void weft_trace_doc_fini(struct weft_trace_doc *doc)
{
    free(doc->entries);
    free(doc->endpoints);
    *doc = (struct weft_trace_doc){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

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
