/* The Adult line parser on any bytes. The first byte is the line number, because line 1 may be a
 * header; 3 means line 2 with triples. The rest is the line. A row always has all its features. */
#include "base/assert.h"
#include "ml/adult.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct weft_ml_row row = {0};
    struct weft_error error = {0};
    bool is_row = false;
    bool triples = data[0] == '3';
    weft_ml_parse_fn *parse = triples ? weft_ml_adult3_parse : weft_ml_adult_parse;
    weft_status status =
        parse((const char *)data + 1, size - 1, data[0] == '1' ? 1 : 2, &row, &error, &is_row);
    if (status != WEFT_OK) {
        WEFT_ASSERT(status == WEFT_DATA && strlen(error.text) > 0 && !is_row);
    } else if (is_row) {
        float total = 0;
        WEFT_ASSERT(row.label <= 1);
        for (uint32_t i = 0; i < row.count; i++) {
            WEFT_ASSERT(row.ids[i] < UINT64_C(1) << WEFT_ML_ADULT_HASH_BITS);
            WEFT_ASSERT(i == 0 || row.ids[i] > row.ids[i - 1]);
            total += row.values[i];
        }
        /* 12 columns, their 66 pairs and 220 triples. */
        WEFT_ASSERT(total == (triples ? 298 : 78));
    }
    weft_ml_row_fini(&row);
    return 0;
}
