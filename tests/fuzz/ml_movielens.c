/* The MovieLens line parser on any bytes. The first byte is the line number, because line 1 may be
 * a header; the rest is the line. A row is always a user, a movie and a rating. */
#include "base/assert.h"
#include "ml/movielens.h"

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
    weft_status status = weft_ml_movielens_parse((const char *)data + 1, size - 1,
                                                 data[0] == '1' ? 1 : 2, &row, &error, &is_row);
    if (status != WEFT_OK) {
        WEFT_ASSERT(status == WEFT_DATA && strlen(error.text) > 0 && !is_row);
    } else if (is_row) {
        WEFT_ASSERT(row.count == 2 && row.values[0] == 1 && row.values[1] == 1);
        WEFT_ASSERT(row.ids[0] < WEFT_ML_MOVIELENS_MOVIES);
        WEFT_ASSERT(row.ids[1] >= WEFT_ML_MOVIELENS_MOVIES);
        WEFT_ASSERT(row.ids[1] < 2 * WEFT_ML_MOVIELENS_MOVIES);
        WEFT_ASSERT(row.target >= 0 && row.target <= 5);
        WEFT_ASSERT(row.label == (row.target >= WEFT_ML_MOVIELENS_CLICK_MIN));
    }
    weft_ml_row_fini(&row);
    return 0;
}
