/* A trace file of arbitrary bytes: the reader terminates, stays within the file, and reports how it
 * ended. */
#include "base/assert.h"
#include "obs/trace_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct weft_trace_block *block)
{
    struct weft_trace_record record;
    struct weft_trace_endpoint endpoint;
    char name[WEFT_TRACE_NAME_BYTES + 1];
    if (block->kind == WEFT_TRACE_BLOCK_ENDPOINT) {
        weft_trace_block_endpoint(block, &endpoint);
        WEFT_ASSERT(strlen(endpoint.label) <= WEFT_TRACE_ENTRY_BYTES);
        return;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->kind == WEFT_TRACE_BLOCK_RECORDS) {
            weft_trace_block_record(block, i, &record);
            (void)weft_trace_type_name(record.type);
            (void)weft_trace_drop_name(record.flags);
        } else {
            (void)weft_trace_block_counter(block, i, name);
            for (const char *c = name; *c != '\0'; c++) {
                WEFT_ASSERT(*c >= 0x20 && *c < 0x7f);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    size_t before = 0;
    weft_trace_reader_init(&reader, data, size);
    while (weft_trace_reader_next(&reader, &block)) {
        WEFT_ASSERT(reader.at > before && reader.at <= size);
        before = reader.at;
        look(&block);
    }
    WEFT_ASSERT(!reader.bad || !reader.truncated || reader.at < size);
    WEFT_ASSERT(reader.bad || reader.truncated || reader.at == size);
    return 0;
}
