#include "cli/trace/load.h"

#include "cli/trace/records.h"
#include "core/msg.h"
#include "obs/records_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file -------------------------------------------------------------------------------- */

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft trace: out of memory\n");
        exit(1);
    }
    return memory;
}

static uint8_t *read_all(const char *path, size_t *count_p)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        fprintf(stderr, "weft trace: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    size_t capacity = 1 << 20;
    size_t count = 0;
    uint8_t *bytes = need(malloc(capacity));
    for (;;) {
        size_t got = fread(bytes + count, 1, capacity - count, file);
        count += got;
        if (got == 0) {
            break;
        }
        if (count == capacity) {
            capacity *= 2;
            bytes = need(realloc(bytes, capacity));
        }
    }
    bool bad = ferror(file) != 0;
    fclose(file);
    if (bad) {
        fprintf(stderr, "weft trace: %s cannot be read\n", path);
        free(bytes);
        return NULL;
    }
    *count_p = count;
    return bytes;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool take_endpoint(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    if (block->endpoint != doc->endpoint_count) {
        return false;
    }
    size_t bytes = (doc->endpoint_count + 1) * sizeof(*doc->endpoints);
    doc->endpoints = need(realloc(doc->endpoints, bytes));
    struct weft_trace_doc_endpoint *e = &doc->endpoints[doc->endpoint_count++];
    memset(e, 0, sizeof(*e));
    weft_trace_block_endpoint(block, &e->about);
    return true;
}

static void take_records(struct weft_trace_doc *doc, const struct weft_trace_block *block)
{
    size_t bytes = (doc->count + block->count) * sizeof(*doc->entries);
    doc->entries = bytes == 0 ? doc->entries : need(realloc(doc->entries, bytes));
    for (uint32_t i = 0; i < block->count; i++) {
        struct weft_trace_entry *entry = &doc->entries[doc->count++];
        weft_trace_block_record(block, i, &entry->record);
        entry->endpoint = block->endpoint;
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

/* By time; equal times keep the order of the file, which is that of an endpoint's records. */
static void sort_by_time(struct weft_trace_doc *doc)
{
    struct weft_trace_entry *from = doc->entries;
    struct weft_trace_entry *to = need(malloc((doc->count + 1) * sizeof(*to)));
    for (size_t width = 1; width < doc->count; width *= 2) {
        for (size_t low = 0; low < doc->count; low += 2 * width) {
            size_t middle = low + width < doc->count ? low + width : doc->count;
            size_t high = low + 2 * width < doc->count ? low + 2 * width : doc->count;
            size_t a = low;
            size_t b = middle;
            for (size_t i = low; i < high; i++) {
                bool left =
                    a < middle && (b == high || from[a].record.time_ns <= from[b].record.time_ns);
                to[i] = left ? from[a++] : from[b++];
            }
        }
        struct weft_trace_entry *swap = from;
        from = to;
        to = swap;
    }
    doc->entries = from;
    free(to);
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
    size_t count = 0;
    uint8_t *bytes = read_all(path, &count);
    if (bytes == NULL) {
        return false;
    }
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    bool good = count > 0;
    weft_trace_reader_init(&reader, bytes, count);
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
    sort_by_time(doc_p);
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

const char *weft_trace_take_file(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "-o") == 0) {
            static char out[] = "--out";
            argv[i] = out;
        }
    }
    if (*argc < 2 || argv[1][0] == '-') {
        return NULL;
    }
    const char *file = argv[1];
    memmove(argv + 1, argv + 2, (size_t)(*argc - 1) * sizeof(*argv));
    (*argc)--;
    return file;
}
