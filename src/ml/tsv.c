#include "ml/tsv.h"

#include "ml/number.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { TEXT_BYTES_MAX = 16 + WEFT_ML_TSV_CATEGORY_BYTES_MAX };

/* Fields 1 .. integers are integers, the others categories. */
struct layout {
    const char *name;
    uint32_t integers;
    uint32_t fields; /* including the label; 0 = any number from 2 */
};

static const struct layout tsv = {.name = "tsv"};
static const struct layout criteo = {
    .name = "Criteo",
    .integers = WEFT_ML_CRITEO_INTEGERS,
    .fields = 1 + WEFT_ML_CRITEO_INTEGERS + WEFT_ML_CRITEO_CATEGORIES,
};

struct field {
    const char *text;
    size_t bytes;
    uint32_t number; /* 0 = the label */
};

static weft_status add_feature(const char *text, size_t bytes, struct weft_ml_row *row,
                               struct weft_error *error)
{
    uint64_t id = XXH64(text, bytes, 0) & ((UINT64_C(1) << WEFT_ML_TSV_HASH_BITS) - 1);
    return weft_ml_row_add(row, id, 1.0F, error);
}

static weft_status add_category(struct field field, struct weft_ml_row *row,
                                struct weft_error *error)
{
    char text[TEXT_BYTES_MAX];
    if (field.bytes > WEFT_ML_TSV_CATEGORY_BYTES_MAX) {
        return weft_fail(error, WEFT_DATA, "field %u is longer than %d bytes", field.number,
                         (int)WEFT_ML_TSV_CATEGORY_BYTES_MAX);
    }
    size_t prefix = (size_t)snprintf(text, sizeof(text), "%u=", field.number);
    memcpy(text + prefix, field.text, field.bytes);
    return add_feature(text, prefix + field.bytes, row, error);
}

static uint32_t bucket_of(uint64_t value)
{
    if (value == 0) {
        return 0;
    }
    uint32_t log2 = 63 - (uint32_t)__builtin_clzll(value);
    uint32_t half = log2 > 0 ? (uint32_t)(value >> (log2 - 1)) & 1 : 0;
    return 1 + 2 * log2 + half;
}

static weft_status add_integer(struct field field, struct weft_ml_row *row,
                               struct weft_error *error)
{
    char text[TEXT_BYTES_MAX];
    bool is_negative = field.bytes > 0 && field.text[0] == '-';
    uint64_t value = 0;
    if (field.bytes > 0 &&
        (!weft_ml_number_u64(field.text + is_negative, field.bytes - is_negative, &value) ||
         value > INT64_MAX)) {
        return weft_fail(error, WEFT_DATA, "field %u: \"%s\" is not a whole number", field.number,
                         weft_ml_quote(field.text, field.bytes).text);
    }
    int bytes = 0;
    if (field.bytes == 0) {
        bytes = snprintf(text, sizeof(text), "%u=", field.number);
    } else if (is_negative) {
        bytes = snprintf(text, sizeof(text), "%u=-", field.number);
    } else {
        bytes = snprintf(text, sizeof(text), "%u=%u", field.number, bucket_of(value));
    }
    return add_feature(text, (size_t)bytes, row, error);
}

static weft_status parse_label(struct field field, struct weft_ml_row *row,
                               struct weft_error *error)
{
    if (field.bytes != 1 || (field.text[0] != '0' && field.text[0] != '1')) {
        return weft_fail(error, WEFT_DATA, "label \"%s\" is neither 0 nor 1",
                         weft_ml_quote(field.text, field.bytes).text);
    }
    row->label = field.text[0] == '1';
    return WEFT_OK;
}

/* Checked before the fields are parsed: a wrong number of fields explains all other errors. */
static weft_status check_count(const char *text, size_t bytes, const struct layout *layout,
                               struct weft_error *error, uint32_t *count_p)
{
    size_t count = 1;
    for (size_t i = 0; i < bytes; i++) {
        count += text[i] == '\t';
    }
    if (layout->fields != 0 && count != layout->fields) {
        return weft_fail(error, WEFT_DATA, "%zu fields where a %s row has %u", count, layout->name,
                         layout->fields);
    }
    if (count < 2 || count > WEFT_ML_TSV_FIELDS_MAX) {
        return weft_fail(error, WEFT_DATA, "%zu fields between tabs; a row has 2 to %d", count,
                         (int)WEFT_ML_TSV_FIELDS_MAX);
    }
    *count_p = (uint32_t)count;
    return WEFT_OK;
}

static weft_status parse(const char *text, size_t bytes, const struct layout *layout,
                         struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    weft_ml_row_clear(row);
    if (bytes == 0) {
        *is_row_p = false;
        return WEFT_OK;
    }
    weft_status status = check_count(text, bytes, layout, error, &row->field_count);
    const char *end = text + bytes;
    const char *at = text;
    for (uint32_t number = 0; status == WEFT_OK && number < row->field_count; number++) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        struct field field = {.text = at, .number = number};
        field.bytes = (size_t)((tab != NULL ? tab : end) - at);
        if (number == 0) {
            status = parse_label(field, row, error);
        } else if (number <= layout->integers) {
            status = add_integer(field, row, error);
        } else {
            status = add_category(field, row, error);
        }
        at = tab != NULL ? tab + 1 : end;
    }
    if (status == WEFT_OK) {
        weft_ml_row_merge(row);
        *is_row_p = true;
    }
    return status;
}

weft_status weft_ml_tsv_parse(const char *text, size_t bytes, uint64_t number,
                              struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    (void)number;
    return parse(text, bytes, &tsv, row, error, is_row_p);
}

weft_status weft_ml_criteo_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    (void)number;
    return parse(text, bytes, &criteo, row, error, is_row_p);
}
