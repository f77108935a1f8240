#include "obs/trace_file.h"

#include "base/assert.h"

#include <string.h>

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = bytes; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

void weft_trace_reader_init(struct weft_trace_reader *reader, const void *bytes, size_t count)
{
    *reader = (struct weft_trace_reader){.bytes = bytes, .count = count};
}

static bool head_valid(const uint8_t *at)
{
    uint8_t kind = at[5];
    uint64_t count = get(at + 8, 4);
    bool fits = kind == WEFT_TRACE_BLOCK_ENDPOINT
                    ? count == 2
                    : kind >= WEFT_TRACE_BLOCK_RECORDS && kind <= WEFT_TRACE_BLOCK_COUNTERS;
    return memcmp(at, "WEFT", 4) == 0 && at[4] == 1 && fits && get(at + 12, 4) == 0;
}

bool weft_trace_reader_next(struct weft_trace_reader *reader, struct weft_trace_block *block_p)
{
    size_t left = reader->count - reader->at;
    if (left == 0 || reader->truncated || reader->bad) {
        return false;
    }
    const uint8_t *at = reader->bytes + reader->at;
    if (left < WEFT_TRACE_ENTRY_BYTES) {
        /* Either the beginning of a head, or not a trace file. */
        reader->bad = memcmp(at, "WEFT", left < 4 ? left : 4) != 0;
        reader->truncated = !reader->bad;
        return false;
    }
    if (!head_valid(at)) {
        reader->bad = true;
        return false;
    }
    left -= WEFT_TRACE_ENTRY_BYTES;
    uint64_t count = get(at + 8, 4);
    if (count > left / WEFT_TRACE_ENTRY_BYTES) {
        reader->truncated = true;
        count = left / WEFT_TRACE_ENTRY_BYTES;
        if (at[5] == WEFT_TRACE_BLOCK_ENDPOINT) {
            return false; /* an incomplete name is not used */
        }
    }
    *block_p = (struct weft_trace_block){
        .kind = (enum weft_trace_block_kind)at[5],
        .endpoint = (uint16_t)get(at + 6, 2),
        .count = (uint32_t)count,
        .first = get(at + 16, 8),
        .overwritten = get(at + 24, 8),
        .entries = at + WEFT_TRACE_ENTRY_BYTES,
    };
    reader->at += WEFT_TRACE_ENTRY_BYTES * (1 + (size_t)count);
    return true;
}

static const uint8_t *entry(const struct weft_trace_block *block, uint32_t i,
                            enum weft_trace_block_kind kind)
{
    WEFT_ASSERT(block->kind == kind && i < block->count);
    return block->entries + (size_t)i * WEFT_TRACE_ENTRY_BYTES;
}

void weft_trace_block_record(const struct weft_trace_block *block, uint32_t i,
                             struct weft_trace_record *record_p)
{
    const uint8_t *at = entry(block, i, WEFT_TRACE_BLOCK_RECORDS);
    *record_p = (struct weft_trace_record){
        .time_ns = get(at, 8),
        .number = get(at + 8, 8),
        .a = (uint32_t)get(at + 16, 4),
        .b = (uint32_t)get(at + 20, 4),
        .c = (uint32_t)get(at + 24, 4),
        .peer = (uint16_t)get(at + 28, 2),
        .type = at[30],
        .flags = at[31],
    };
}

/* Text written by weft is plain ASCII. A damaged file must not pass control characters, or bytes
 * that are not UTF-8, to a terminal or into JSON. */
static void text_copy(char *to, const uint8_t *from, size_t bytes)
{
    size_t i = 0;
    for (; i < bytes && from[i] != 0; i++) {
        to[i] = (char)(from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?');
    }
    to[i] = '\0';
}

void weft_trace_block_endpoint(const struct weft_trace_block *block,
                               struct weft_trace_endpoint *endpoint_p)
{
    const uint8_t *at = entry(block, 0, WEFT_TRACE_BLOCK_ENDPOINT);
    endpoint_p->name = get(at, 8);
    endpoint_p->incarnation = get(at + 8, 8);
    endpoint_p->wall_ns = get(at + 16, 8);
    text_copy(endpoint_p->label, at + WEFT_TRACE_ENTRY_BYTES, WEFT_TRACE_ENTRY_BYTES);
}

uint64_t weft_trace_block_counter(const struct weft_trace_block *block, uint32_t i,
                                  char name_p[WEFT_TRACE_NAME_BYTES + 1])
{
    const uint8_t *at = entry(block, i, WEFT_TRACE_BLOCK_COUNTERS);
    text_copy(name_p, at, WEFT_TRACE_NAME_BYTES);
    return get(at + WEFT_TRACE_NAME_BYTES, 8);
}
