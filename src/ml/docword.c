#include "ml/docword.h"

#include "ml/number.h"

#include <string.h>

enum { HEADER_LINES = 3, FIELDS = 3 };

static const char *const header_names[HEADER_LINES] = {"documents", "words", "lines that follow"};

static weft_status parse_header(const char *text, size_t bytes, uint64_t number,
                                struct weft_ml_row *row, struct weft_error *error)
{
    uint64_t value = 0;
    if (!weft_ml_number_u64(text, bytes, &value) || value == 0) {
        return weft_fail(error, WEFT_DATA, "\"%s\" is not the number of %s",
                         weft_ml_quote(text, bytes).text, header_names[number - 1]);
    }
    row->lines_announced = number == HEADER_LINES ? value : 0;
    return WEFT_OK;
}

/* The next field of a line that ends at `end`; NULL after the last one. */
static const char *next_field(const char *at, const char *end, size_t *bytes_p)
{
    const char *blank = memchr(at, ' ', (size_t)(end - at));
    *bytes_p = (size_t)((blank != NULL ? blank : end) - at);
    return blank != NULL ? blank + 1 : NULL;
}

static weft_status parse_fields(const char *text, size_t bytes, uint64_t fields_p[FIELDS],
                                struct weft_error *error)
{
    static const char *const names[FIELDS] = {"document", "word", "count"};
    static const uint64_t most[FIELDS] = {UINT32_MAX, UINT32_MAX - 1, WEFT_ML_DOCWORD_COUNT_MAX};
    const char *end = text + bytes;
    const char *at = text;
    for (int f = 0; f < FIELDS; f++) {
        size_t length = 0;
        const char *next = at != NULL ? next_field(at, end, &length) : NULL;
        if (at == NULL || (f == FIELDS - 1 && next != NULL)) {
            return weft_fail(error, WEFT_DATA, "not \"document word count\": \"%s\"",
                             weft_ml_quote(text, bytes).text);
        }
        if (!weft_ml_number_u64(at, length, &fields_p[f]) || fields_p[f] == 0 ||
            fields_p[f] > most[f]) {
            return weft_fail(error, WEFT_DATA, "%s \"%s\" is not a whole number from 1 to %llu",
                             names[f], weft_ml_quote(at, length).text, (unsigned long long)most[f]);
        }
        at = next;
    }
    return WEFT_OK;
}

weft_status weft_ml_docword_parse(const char *text, size_t bytes, uint64_t number,
                                  struct weft_ml_row *row, struct weft_error *error, bool *is_row_p)
{
    uint64_t fields[FIELDS];
    weft_ml_row_clear(row);
    *is_row_p = false;
    if (number <= HEADER_LINES) {
        return parse_header(text, bytes, number, row, error);
    }
    if (bytes == 0) {
        return WEFT_OK;
    }
    weft_status status = parse_fields(text, bytes, fields, error);
    if (status == WEFT_OK) {
        status = weft_ml_row_add(row, fields[1], (float)fields[2], error);
    }
    row->document = status == WEFT_OK ? fields[0] : 0;
    *is_row_p = status == WEFT_OK;
    return status;
}
