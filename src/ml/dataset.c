#include "ml/dataset.h"

#include "base/assert.h"
#include "ml/dictionary.h"
#include "ml/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A data set under construction: arrays with spare capacity, columns numbered by first
 * appearance. */
struct builder {
    struct weft_ml_dataset set;
    struct weft_ml_dictionary dictionary;
    uint64_t nonzero_capacity;
    uint32_t row_capacity;
    uint32_t field_count;        /* in the first row */
    struct weft_ml_row document; /* the document being read, line by line; document.document = 0:
                                  * none */
    uint64_t lines_announced;
    uint64_t lines; /* lines of documents */
};

bool weft_ml_is_test_line(const char *text, size_t bytes)
{
    return XXH64(text, bytes, 0) % WEFT_ML_SPLIT_MODULUS == 0;
}

/* realloc of count elements that leaves *array_p valid on failure. */
static bool resize(void *array_p, uint64_t count, size_t element_bytes)
{
    void *old = NULL;
    memcpy(&old, array_p, sizeof(old));
    size_t bytes = 0;
    if (__builtin_mul_overflow(weft_max_u64(count, 1), element_bytes, &bytes)) {
        return false;
    }
    void *array = realloc(old, bytes);
    if (array == NULL) {
        return false;
    }
    memcpy(array_p, &array, sizeof(array));
    return true;
}

static bool resize_rows(struct builder *builder, uint32_t capacity)
{
    struct weft_ml_dataset *set = &builder->set;
    /* Either list may have to hold all rows. */
    return resize(&set->row_begin, (uint64_t)capacity + 1, sizeof(*set->row_begin)) &&
           resize(&set->labels, capacity, sizeof(*set->labels)) &&
           resize(&set->targets, capacity, sizeof(*set->targets)) &&
           resize(&set->train_rows, capacity, sizeof(*set->train_rows)) &&
           resize(&set->test_rows, capacity, sizeof(*set->test_rows));
}

static bool resize_nonzeros(struct builder *builder, uint64_t capacity)
{
    struct weft_ml_dataset *set = &builder->set;
    return resize(&set->columns, capacity, sizeof(*set->columns)) &&
           resize(&set->values, capacity, sizeof(*set->values));
}

/* Reserve space for one more row of `nonzeros` entries. */
static bool reserve(struct builder *builder, uint64_t nonzeros)
{
    struct weft_ml_dataset *set = &builder->set;
    if (set->row_count == builder->row_capacity) {
        uint64_t capacity = weft_max_u64((uint64_t)builder->row_capacity * 2, 1024);
        if (capacity > UINT32_MAX || !resize_rows(builder, (uint32_t)capacity)) {
            return false;
        }
        builder->row_capacity = (uint32_t)capacity;
    }
    uint64_t needed = set->nonzero_count + nonzeros;
    if (needed > builder->nonzero_capacity) {
        uint64_t capacity = weft_max_u64(builder->nonzero_capacity * 2, needed);
        if (!resize_nonzeros(builder, capacity)) {
            return false;
        }
        builder->nonzero_capacity = capacity;
    }
    return true;
}

static weft_status append_nonzero(struct builder *builder, uint64_t id, float value)
{
    struct weft_ml_dataset *set = &builder->set;
    weft_status status =
        weft_ml_dictionary_number(&builder->dictionary, id, &set->columns[set->nonzero_count]);
    if (status == WEFT_OK) {
        set->values[set->nonzero_count] = value;
        set->nonzero_count++;
    }
    return status;
}

static weft_status append_row(struct builder *builder, const struct weft_ml_row *row, bool is_test)
{
    struct weft_ml_dataset *set = &builder->set;
    if (!reserve(builder, (uint64_t)row->count + 1)) {
        return WEFT_NOMEM;
    }
    uint32_t number = set->row_count;
    set->row_begin[number] = set->nonzero_count;
    for (uint32_t i = 0; i < row->count; i++) {
        uint64_t id = row->ids[i] == WEFT_ML_BIAS_ID ? WEFT_ML_BIAS_TWIN : row->ids[i];
        weft_status status = append_nonzero(builder, id, row->values[i]);
        if (status != WEFT_OK) {
            return status;
        }
    }
    weft_status status = append_nonzero(builder, WEFT_ML_BIAS_ID, 1.0F);
    if (status != WEFT_OK) {
        return status;
    }
    set->labels[number] = row->label;
    set->targets[number] = set->has_ratings ? row->target : (float)row->label;
    if (is_test) {
        set->test_rows[set->test_count++] = number;
    } else {
        set->train_rows[set->train_count++] = number;
    }
    set->row_count++;
    set->row_begin[set->row_count] = set->nonzero_count;
    return WEFT_OK;
}

/* Append a complete document. */
static weft_status append_document(struct builder *builder, struct weft_error *error)
{
    char digits[24];
    struct weft_ml_row *row = &builder->document;
    if (row->document == 0) {
        return WEFT_OK;
    }
    int bytes = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)row->document);
    weft_ml_row_merge(row);
    return append_row(builder, row, weft_ml_is_test_line(digits, (size_t)bytes)) == WEFT_OK
               ? WEFT_OK
               : weft_fail(error, WEFT_NOMEM, "no memory for more rows");
}

/* Add a line to the current document, or start the next document with it. */
static weft_status append_to_document(struct builder *builder, const struct weft_ml_row *line,
                                      struct weft_error *error)
{
    struct weft_ml_row *row = &builder->document;
    if (line->document < row->document) {
        return weft_fail(error, WEFT_DATA,
                         "document %llu after document %llu; sort the lines by document",
                         (unsigned long long)line->document, (unsigned long long)row->document);
    }
    weft_status status = WEFT_OK;
    if (line->document != row->document) {
        status = append_document(builder, error);
        weft_ml_row_clear(row);
        row->document = line->document;
    }
    builder->lines++;
    return status == WEFT_OK ? weft_ml_row_add(row, line->ids[0], line->values[0], error) : status;
}

/* Append the last document, and check that none is missing. */
static weft_status finish_documents(struct builder *builder, struct weft_error *error)
{
    if (builder->lines != builder->lines_announced) {
        return weft_fail(error, WEFT_DATA, "%llu lines where line 3 announces %llu",
                         (unsigned long long)builder->lines,
                         (unsigned long long)builder->lines_announced);
    }
    return append_document(builder, error);
}

static weft_status append_line(struct builder *builder, const struct weft_ml_format *format,
                               const struct weft_ml_line *line, struct weft_ml_row *row,
                               struct weft_error *error)
{
    bool is_row = false;
    weft_status status = format->parse(line->text, line->bytes, line->number, row, error, &is_row);
    if (status == WEFT_OK && row->lines_announced > 0) {
        builder->lines_announced = row->lines_announced;
    }
    if (status != WEFT_OK || !is_row) {
        return status;
    }
    if (row->document > 0) {
        return append_to_document(builder, row, error);
    }
    if (builder->set.row_count == 0) {
        builder->field_count = row->field_count;
    }
    if (row->field_count != builder->field_count) {
        return weft_fail(error, WEFT_DATA, "%u fields where the first row has %u", row->field_count,
                         builder->field_count);
    }
    status = append_row(builder, row, weft_ml_is_test_line(line->text, line->bytes));
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for more rows");
    }
    return WEFT_OK;
}

/* Read all lines of the source; on failure *line_p is the line with the error, or 0. */
static weft_status append_all(struct builder *builder, const struct weft_ml_format *format,
                              struct weft_ml_source *source, struct weft_error *error,
                              uint64_t *line_p)
{
    struct weft_ml_lines lines;
    *line_p = 0;
    weft_status status = weft_ml_lines_init(&lines, source, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ml_row row = {0};
    for (bool more = true; status == WEFT_OK && more;) {
        struct weft_ml_line line = {.number = lines.number + 1};
        status = weft_ml_lines_next(&lines, error, &line, &more);
        if (status == WEFT_OK && more) {
            status = append_line(builder, format, &line, &row, error);
        }
        *line_p = status == WEFT_OK ? 0 : line.number;
    }
    if (status == WEFT_OK && format->has_counts && lines.number > 0) {
        status = finish_documents(builder, error);
    }
    if (status == WEFT_OK && builder->set.row_count == 0) {
        status = weft_fail(error, WEFT_DATA, "%s",
                           lines.number == 0 ? "the file is empty"
                                             : "no rows, only blank lines, comments or a header");
    }
    weft_ml_row_fini(&row);
    weft_ml_lines_fini(&lines);
    return status;
}

static int compare_u64(const void *left_p, const void *right_p)
{
    uint64_t left = *(const uint64_t *)left_p;
    uint64_t right = *(const uint64_t *)right_p;
    return (left > right) - (left < right);
}

/* Sort the ids and rename every column from its order of appearance to its rank. */
static bool number_by_rank(struct builder *builder)
{
    struct weft_ml_dataset *set = &builder->set;
    struct weft_ml_dictionary *dictionary = &builder->dictionary;
    uint32_t count = dictionary->count;
    uint32_t *rank_of = NULL;
    if (!resize(&set->feature_ids, count, sizeof(*set->feature_ids)) ||
        !resize(&rank_of, count, sizeof(*rank_of))) {
        return false;
    }
    memcpy(set->feature_ids, dictionary->ids, count * sizeof(*set->feature_ids));
    qsort(set->feature_ids, count, sizeof(*set->feature_ids), compare_u64);
    for (uint32_t rank = 0; rank < count; rank++) {
        uint32_t number = 0;
        weft_status status = weft_ml_dictionary_number(dictionary, set->feature_ids[rank], &number);
        WEFT_ASSERT(status == WEFT_OK && dictionary->count == count);
        rank_of[number] = rank;
    }
    for (uint64_t i = 0; i < set->nonzero_count; i++) {
        set->columns[i] = rank_of[set->columns[i]];
    }
    set->feature_count = count;
    free(rank_of);
    return true;
}

/* Release the spare capacity. A failure to shrink does no harm: the old block stays valid. */
static void shrink(struct builder *builder)
{
    struct weft_ml_dataset *set = &builder->set;
    (void)resize_nonzeros(builder, set->nonzero_count);
    (void)resize(&set->row_begin, (uint64_t)set->row_count + 1, sizeof(*set->row_begin));
    (void)resize(&set->labels, set->row_count, sizeof(*set->labels));
    (void)resize(&set->targets, set->row_count, sizeof(*set->targets));
    (void)resize(&set->train_rows, set->train_count, sizeof(*set->train_rows));
    (void)resize(&set->test_rows, set->test_count, sizeof(*set->test_rows));
}

/* Reads the source and closes it. */
static weft_status load(const char *name, struct weft_ml_source *source,
                        const struct weft_ml_format *format, struct weft_error *error,
                        struct weft_ml_dataset *dataset_p)
{
    struct builder builder = {.set = {.has_ratings = format->has_ratings,
                                      .has_counts = format->has_counts}};
    uint64_t line = 0;
    weft_status status = append_all(&builder, format, source, error, &line);
    weft_ml_source_close(source);
    if (status == WEFT_OK && !number_by_rank(&builder)) {
        status = weft_fail(error, WEFT_NOMEM, "no memory for the list of features");
    }
    weft_ml_dictionary_fini(&builder.dictionary);
    weft_ml_row_fini(&builder.document);
    if (status != WEFT_OK) {
        weft_ml_dataset_fini(&builder.set);
        weft_ml_error_place(error, name, line);
        return status;
    }
    shrink(&builder);
    *dataset_p = builder.set;
    return WEFT_OK;
}

weft_status weft_ml_dataset_load(const char *path, const struct weft_ml_format *format,
                                 struct weft_error *error, struct weft_ml_dataset *dataset_p)
{
    struct weft_ml_source *source = NULL;
    weft_status status = weft_ml_source_open(path, error, &source);
    if (status != WEFT_OK) {
        weft_ml_error_place(error, path, 0);
        return status;
    }
    return load(path, source, format, error, dataset_p);
}

weft_status weft_ml_dataset_load_memory(const char *name, const void *bytes, size_t count,
                                        const struct weft_ml_format *format,
                                        struct weft_error *error, struct weft_ml_dataset *dataset_p)
{
    struct weft_ml_source *source = NULL;
    weft_status status = weft_ml_source_open_memory(bytes, count, error, &source);
    if (status != WEFT_OK) {
        weft_ml_error_place(error, name, 0);
        return status;
    }
    return load(name, source, format, error, dataset_p);
}

void weft_ml_dataset_fini(struct weft_ml_dataset *dataset)
{
    free(dataset->row_begin);
    free(dataset->columns);
    free(dataset->values);
    free(dataset->labels);
    free(dataset->targets);
    free(dataset->feature_ids);
    free(dataset->train_rows);
    free(dataset->test_rows);
    *dataset = (struct weft_ml_dataset){0};
}
