/* The libsvm line parser on any bytes: a valid row or a refusal with a reason. */
#include "base/assert.h"
#include "ml/libsvm.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_ml_row row = {0};
    struct weft_error error = {0};
    bool is_row = false;
    const char *text = size > 0 ? (const char *)data : "";
    weft_status status = weft_ml_libsvm_parse(text, size, 1, &row, &error, &is_row);
    if (status != WEFT_OK) {
        WEFT_ASSERT(status == WEFT_DATA && strlen(error.text) > 0 && !is_row);
    } else if (is_row) {
        WEFT_ASSERT(row.label <= 1);
        for (uint32_t i = 0; i < row.count; i++) {
            WEFT_ASSERT(row.ids[i] < WEFT_ML_BIAS_TWIN);
            WEFT_ASSERT(i == 0 || row.ids[i] > row.ids[i - 1]);
            WEFT_ASSERT(isfinite(row.values[i]) && row.values[i] != 0);
        }
    }
    weft_ml_row_fini(&row);
    return 0;
}
