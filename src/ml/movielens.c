#include "ml/movielens.h"

#include "ml/number.h"

#include <string.h>

enum { FIELD_USER, FIELD_MOVIE, FIELD_RATING, FIELD_TIMESTAMP, FIELDS };

static const char header[] = "userId,movieId,rating,timestamp";

struct field {
    const char *text;
    size_t bytes;
};

static weft_status split(const char *text, size_t bytes, struct field fields[FIELDS],
                         struct weft_error *error)
{
    const char *end = text + bytes;
    size_t count = 0;
    for (const char *at = text;; count++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (count < FIELDS) {
            fields[count].text = at;
            fields[count].bytes = (size_t)((comma != NULL ? comma : end) - at);
        }
        if (comma == NULL) {
            count++;
            break;
        }
        at = comma + 1;
    }
    if (count != FIELDS) {
        return weft_fail(error, WEFT_DATA, "%zu fields where a rating has %d", count, (int)FIELDS);
    }
    return WEFT_OK;
}

static weft_status parse_id(struct field field, const char *name, struct weft_error *error,
                            uint64_t *id_p)
{
    if (!weft_ml_number_u64(field.text, field.bytes, id_p) || *id_p > UINT32_MAX) {
        return weft_fail(error, WEFT_DATA, "%s \"%s\" is not a whole number below 2^32", name,
                         weft_ml_quote(field.text, field.bytes).text);
    }
    return WEFT_OK;
}

static weft_status parse_rating(struct field field, struct weft_error *error, float *rating_p)
{
    if (!weft_ml_number_f32(field.text, field.bytes, rating_p) || *rating_p < 0 || *rating_p > 5) {
        return weft_fail(error, WEFT_DATA, "rating \"%s\" is not a number from 0 to 5",
                         weft_ml_quote(field.text, field.bytes).text);
    }
    return WEFT_OK;
}

/* Parse the four fields; the row is set only if all are valid. */
static weft_status parse_fields(const struct field fields[FIELDS], struct weft_ml_row *row,
                                struct weft_error *error)
{
    uint64_t user = 0;
    uint64_t movie = 0;
    uint64_t timestamp = 0;
    float rating = 0;
    weft_status status = parse_id(fields[FIELD_USER], "userId", error, &user);
    if (status == WEFT_OK) {
        status = parse_id(fields[FIELD_MOVIE], "movieId", error, &movie);
    }
    if (status == WEFT_OK) {
        status = parse_rating(fields[FIELD_RATING], error, &rating);
    }
    const struct field *time = &fields[FIELD_TIMESTAMP];
    if (status == WEFT_OK && !weft_ml_number_u64(time->text, time->bytes, &timestamp)) {
        status = weft_fail(error, WEFT_DATA, "timestamp \"%s\" is not a whole number",
                           weft_ml_quote(time->text, time->bytes).text);
    }
    if (status == WEFT_OK) {
        status = weft_ml_row_add(row, user, 1.0F, error);
    }
    if (status == WEFT_OK) {
        status = weft_ml_row_add(row, WEFT_ML_MOVIELENS_MOVIES + movie, 1.0F, error);
    }
    row->target = rating;
    row->label = rating >= WEFT_ML_MOVIELENS_CLICK_MIN;
    return status;
}

weft_status weft_ml_movielens_parse(const char *text, size_t bytes, uint64_t number,
                                    struct weft_ml_row *row, struct weft_error *error,
                                    bool *is_row_p)
{
    weft_ml_row_clear(row);
    if (bytes == 0 ||
        (number == 1 && bytes == strlen(header) && memcmp(text, header, bytes) == 0)) {
        *is_row_p = false;
        return WEFT_OK;
    }
    struct field fields[FIELDS];
    weft_status status = split(text, bytes, fields, error);
    if (status == WEFT_OK) {
        status = parse_fields(fields, row, error);
    }
    if (status == WEFT_OK) {
        *is_row_p = true;
    }
    return status;
}
