#include "ml/adult.h"

#include "base/assert.h"
#include "ml/number.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    FIELDS = 15,
    USED_MAX = 12,
    FIELD_BYTES_MAX = 64, /* the longest in the original is 26 */
    TEXT_BYTES_MAX = 16 + FIELD_BYTES_MAX,
    ORDER_MAX = 3, /* columns combined in one cross */
};

enum kind { KIND_CATEGORY, KIND_BUCKET, KIND_CHECKED, KIND_LABEL };

/* The number of a bucket is the count of edges <= the value. Edges are round numbers, closer
 * together where the column is dense; bucket 0 of a money column is the value 0. */
static const uint64_t age_edges[] = {20, 23, 26, 29, 32, 35, 38, 42, 46, 50, 55, 60, 65, 75};
static const uint64_t gain_edges[] = {1,    1000, 2000, 3000, 3500,  4000,  4500,
                                      5000, 6000, 7000, 8000, 10000, 15000, 50000};
static const uint64_t loss_edges[] = {1,    1400, 1500, 1600, 1700, 1800,
                                      1900, 2000, 2200, 2400, 2800};
static const uint64_t hour_edges[] = {10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70};

struct column {
    const char *name;
    enum kind kind;
    const uint64_t *edges;
    size_t edge_count;
};

#define EDGES(array) (array), WEFT_ARRAY_COUNT(array)

static const struct column columns[FIELDS] = {
    {"age", KIND_BUCKET, EDGES(age_edges)},
    {"type_employer", KIND_CATEGORY, NULL, 0},
    {"fnlwgt", KIND_CHECKED, NULL, 0},
    {"education", KIND_CATEGORY, NULL, 0},
    {"education_num", KIND_CHECKED, NULL, 0},
    {"marital", KIND_CATEGORY, NULL, 0},
    {"occupation", KIND_CATEGORY, NULL, 0},
    {"relationship", KIND_CATEGORY, NULL, 0},
    {"race", KIND_CATEGORY, NULL, 0},
    {"sex", KIND_CATEGORY, NULL, 0},
    {"capital_gain", KIND_BUCKET, EDGES(gain_edges)},
    {"capital_loss", KIND_BUCKET, EDGES(loss_edges)},
    {"hr_per_week", KIND_BUCKET, EDGES(hour_edges)},
    {"country", KIND_CATEGORY, NULL, 0},
    {"income", KIND_LABEL, NULL, 0},
};

static const char *const headers[] = {
    "age,type_employer,fnlwgt,education,education_num,marital,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hr_per_week,country,income",
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income",
    "|1x3Crossvalidator",
};

struct field {
    const char *text;
    size_t bytes;
};

/* "name=value" of a used column. */
struct feature_text {
    char text[TEXT_BYTES_MAX];
    size_t bytes;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* True if the text is a known header, apart from blanks. */
static bool is_header(const char *text, size_t bytes)
{
    for (size_t h = 0; h < WEFT_ARRAY_COUNT(headers); h++) {
        const char *expected = headers[h];
        size_t i = 0;
        for (; i < bytes && (is_blank(text[i]) || text[i] == *expected); i++) {
            if (text[i] == '\0') {
                break; /* the input continues after the end of `expected` */
            }
            expected += !is_blank(text[i]);
        }
        if (i == bytes && *expected == '\0') {
            return true;
        }
    }
    return false;
}

static struct field trimmed(const char *begin, const char *end)
{
    while (begin < end && is_blank(*begin)) {
        begin++;
    }
    while (begin < end && is_blank(end[-1])) {
        end--;
    }
    return (struct field){.text = begin, .bytes = (size_t)(end - begin)};
}

static weft_status split(const char *text, size_t bytes, struct field fields[FIELDS],
                         struct weft_error *error)
{
    const char *end = text + bytes;
    size_t count = 0;
    for (const char *at = text;; count++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (count < FIELDS) {
            fields[count] = trimmed(at, comma != NULL ? comma : end);
        }
        if (comma == NULL) {
            count++;
            break;
        }
        at = comma + 1;
    }
    if (count != FIELDS) {
        return weft_fail(error, WEFT_DATA, "%zu fields where an Adult row has %d", count,
                         (int)FIELDS);
    }
    return WEFT_OK;
}

static weft_status parse_label(struct field field, struct weft_error *error, uint8_t *label_p)
{
    size_t bytes = field.bytes;
    if (bytes > 0 && field.text[bytes - 1] == '.') {
        bytes--;
    }
    if (bytes == 5 && memcmp(field.text, "<=50K", 5) == 0) {
        *label_p = 0;
    } else if (bytes == 4 && memcmp(field.text, ">50K", 4) == 0) {
        *label_p = 1;
    } else {
        return weft_fail(error, WEFT_DATA, "income \"%s\" is neither <=50K nor >50K",
                         weft_ml_quote(field.text, field.bytes).text);
    }
    return WEFT_OK;
}

static size_t bucket_of(const struct column *column, uint64_t value)
{
    size_t bucket = 0;
    while (bucket < column->edge_count && column->edges[bucket] <= value) {
        bucket++;
    }
    return bucket;
}

/* Check the field, and write "name=value" or "name=BUCKET". The caller ignores the text of a
 * checked column. */
static weft_status describe(const struct column *column, struct field field,
                            struct weft_error *error, struct feature_text *out)
{
    int bytes = 0;
    if (column->kind == KIND_CATEGORY) {
        if (field.bytes == 0 || field.bytes > FIELD_BYTES_MAX) {
            return weft_fail(error, WEFT_DATA, "column %s is empty or longer than %d bytes",
                             column->name, (int)FIELD_BYTES_MAX);
        }
        bytes = snprintf(out->text, sizeof(out->text), "%s=", column->name);
        memcpy(out->text + bytes, field.text, field.bytes);
        out->bytes = (size_t)bytes + field.bytes;
        return WEFT_OK;
    }
    uint64_t value = 0;
    if (!weft_ml_number_u64(field.text, field.bytes, &value)) {
        return weft_fail(error, WEFT_DATA, "column %s: \"%s\" is not a whole number", column->name,
                         weft_ml_quote(field.text, field.bytes).text);
    }
    bytes =
        snprintf(out->text, sizeof(out->text), "%s=%zu", column->name, bucket_of(column, value));
    out->bytes = (size_t)bytes;
    return WEFT_OK;
}

static weft_status add_text(struct weft_ml_row *row, const char *text, size_t bytes,
                            struct weft_error *error)
{
    uint64_t id = XXH64(text, bytes, 0) & ((UINT64_C(1) << WEFT_ML_ADULT_HASH_BITS) - 1);
    return weft_ml_row_add(row, id, 1.0F, error);
}

/* Add the combinations of 1 to `left` texts, from the text `from` on, after the prefix in `text`. A
 * combination, with '&' appended, is the prefix of longer ones: "a", "a&b", "a&b&c", "a&c", ... */
static weft_status add_crosses(const struct feature_text *texts, size_t count, size_t from,
                               unsigned left, char *text, size_t prefix, struct weft_ml_row *row,
                               struct weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = from; status == WEFT_OK && i < count; i++) {
        size_t bytes = prefix + texts[i].bytes;
        memcpy(text + prefix, texts[i].text, texts[i].bytes);
        status = add_text(row, text, bytes, error);
        if (status == WEFT_OK && left > 1) {
            text[bytes] = '&';
            status = add_crosses(texts, count, i + 1, left - 1, text, bytes + 1, row, error);
        }
    }
    return status;
}

/* Add each text and each combination of up to `order` texts, in the order of the columns. */
static weft_status add_features(const struct feature_text *texts, size_t count, unsigned order,
                                struct weft_ml_row *row, struct weft_error *error)
{
    char text[ORDER_MAX * (TEXT_BYTES_MAX + 1)];
    return add_crosses(texts, count, 0, order, text, 0, row, error);
}

static weft_status parse(const char *text, size_t bytes, uint64_t number, unsigned order,
                         struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    weft_ml_row_clear(row);
    if (trimmed(text, text + bytes).bytes == 0 || (number == 1 && is_header(text, bytes))) {
        *is_row_p = false;
        return WEFT_OK;
    }
    struct field fields[FIELDS];
    weft_status status = split(text, bytes, fields, error);
    struct feature_text texts[USED_MAX];
    size_t count = 0;
    for (size_t c = 0; status == WEFT_OK && c < FIELDS; c++) {
        if (columns[c].kind == KIND_LABEL) {
            status = parse_label(fields[c], error, &row->label);
            continue;
        }
        struct feature_text described;
        status = describe(&columns[c], fields[c], error, &described);
        if (status == WEFT_OK && columns[c].kind != KIND_CHECKED) {
            WEFT_ASSERT(count < USED_MAX);
            texts[count++] = described;
        }
    }
    if (status == WEFT_OK) {
        status = add_features(texts, count, order, row, error);
    }
    if (status == WEFT_OK) {
        weft_ml_row_merge(row);
        *is_row_p = true;
    }
    return status;
}

weft_status weft_ml_adult_parse(const char *text, size_t bytes, uint64_t number,
                                struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    return parse(text, bytes, number, 2, row, error, is_row_p);
}

weft_status weft_ml_adult3_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    return parse(text, bytes, number, 3, row, error, is_row_p);
}
