#include "ml/libsvm.h"

#include "ml/number.h"

#include <inttypes.h>
#include <string.h>

struct token {
    const char *text;
    size_t bytes; /* 0 = end of the line */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next sequence of non-blanks in [*at_p, end). */
static struct token next_token(const char **at_p, const char *end)
{
    const char *at = *at_p;
    while (at < end && is_blank(*at)) {
        at++;
    }
    const char *begin = at;
    while (at < end && !is_blank(*at)) {
        at++;
    }
    *at_p = at;
    return (struct token){.text = begin, .bytes = (size_t)(at - begin)};
}

static weft_status parse_label(struct token token, struct weft_error *error, uint8_t *label_p)
{
    float value = 0;
    if (!weft_ml_number_f32(token.text, token.bytes, &value) ||
        (value != 0 && value != 1 && value != -1)) {
        return weft_fail(error, WEFT_DATA, "label \"%s\" is not one of 0, 1, -1, +1",
                         weft_ml_quote(token.text, token.bytes).text);
    }
    *label_p = value == 1;
    return WEFT_OK;
}

static weft_status parse_feature(struct token token, struct weft_error *error, uint64_t *index_p,
                                 float *value_p)
{
    const char *colon = memchr(token.text, ':', token.bytes);
    if (colon == NULL) {
        return weft_fail(error, WEFT_DATA, "feature \"%s\" is not index:value",
                         weft_ml_quote(token.text, token.bytes).text);
    }
    size_t index_bytes = (size_t)(colon - token.text);
    if (!weft_ml_number_u64(token.text, index_bytes, index_p) || *index_p >= WEFT_ML_BIAS_TWIN) {
        return weft_fail(error, WEFT_DATA,
                         "feature \"%s\": the index is not an integer from 0 to 2^63 - 2",
                         weft_ml_quote(token.text, token.bytes).text);
    }
    if (!weft_ml_number_f32(colon + 1, token.bytes - index_bytes - 1, value_p)) {
        return weft_fail(error, WEFT_DATA,
                         "feature \"%s\": the value is not a finite decimal number",
                         weft_ml_quote(token.text, token.bytes).text);
    }
    return WEFT_OK;
}

static weft_status parse_features(const char *at, const char *end, struct weft_ml_row *row,
                                  struct weft_error *error)
{
    uint64_t index_min = 0; /* the smallest index allowed next */
    for (;;) {
        struct token token = next_token(&at, end);
        if (token.bytes == 0) {
            return WEFT_OK;
        }
        uint64_t index = 0;
        float value = 0;
        weft_status status = parse_feature(token, error, &index, &value);
        if (status != WEFT_OK) {
            return status;
        }
        if (index < index_min) {
            return weft_fail(error, WEFT_DATA,
                             "index %" PRIu64 " after %" PRIu64 ": indices must ascend", index,
                             index_min - 1);
        }
        index_min = index + 1;
        if (value != 0) {
            status = weft_ml_row_add(row, index, value, error);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
}

weft_status weft_ml_libsvm_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    (void)number;
    weft_ml_row_clear(row);
    const char *comment = memchr(text, '#', bytes);
    const char *end = comment != NULL ? comment : text + bytes;
    const char *at = text;
    struct token label = next_token(&at, end);
    if (label.bytes == 0) {
        *is_row_p = false;
        return WEFT_OK;
    }
    weft_status status = parse_label(label, error, &row->label);
    if (status == WEFT_OK) {
        status = parse_features(at, end, row, error);
    }
    if (status == WEFT_OK) {
        *is_row_p = true;
    }
    return status;
}
