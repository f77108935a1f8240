/* The parsers of tables of categories on any bytes: 'c' first selects Criteo's layout, anything
 * else the free one; the rest is the line. Every field but the label is a feature. */
#include "base/assert.h"
#include "ml/tsv.h"

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
    weft_ml_parse_fn *parse = data[0] == 'c' ? weft_ml_criteo_parse : weft_ml_tsv_parse;
    weft_status status = parse((const char *)data + 1, size - 1, 1, &row, &error, &is_row);
    if (status != WEFT_OK) {
        WEFT_ASSERT(status == WEFT_DATA && strlen(error.text) > 0 && !is_row);
    } else if (is_row) {
        float total = 0;
        WEFT_ASSERT(row.label <= 1);
        WEFT_ASSERT(row.field_count >= 2 && row.field_count <= WEFT_ML_TSV_FIELDS_MAX);
        WEFT_ASSERT(data[0] != 'c' || row.field_count == 40);
        for (uint32_t i = 0; i < row.count; i++) {
            WEFT_ASSERT(row.ids[i] >> WEFT_ML_TSV_HASH_BITS == 0);
            WEFT_ASSERT(i == 0 || row.ids[i] > row.ids[i - 1]);
            total += row.values[i];
        }
        WEFT_ASSERT(total == (float)(row.field_count - 1));
    }
    weft_ml_row_fini(&row);
    return 0;
}
