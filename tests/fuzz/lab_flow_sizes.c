/* Flow sizes from any text: accepted text is a valid distribution, and its samples are valid
 * flows. */
#include "lab/flow_sizes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct weft_flow_sizes *sizes)
{
    const double end = 1 - 0x1p-53;
    WEFT_ASSERT(sizes->count >= 1 && sizes->count <= WEFT_FLOW_SIZES_POINTS_MAX);
    WEFT_ASSERT(sizes->points[sizes->count - 1].share == 1);
    WEFT_ASSERT(sizes->mean_bytes > 0 && sizes->mean_bytes <= WEFT_FLOW_SIZES_BYTES_MAX);
    uint64_t last = 1;
    for (int i = 0; i <= 64; i++) {
        uint64_t bytes = weft_flow_sizes_at(sizes, i < 64 ? i / 64.0 : end);
        WEFT_ASSERT(bytes >= last && (double)bytes <= WEFT_FLOW_SIZES_BYTES_MAX);
        last = bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_flow_sizes sizes;
    struct weft_error error;
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (weft_flow_sizes_parse("fuzz", text, &sizes, &error) == WEFT_OK) {
        check(&sizes);
    }
    free(text);
    return 0;
}
