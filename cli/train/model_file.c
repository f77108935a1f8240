#include "cli/train/model_file.h"

#include "ckpt/disk.h"
#include "ml/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char version[] = "1";

/* ---- writing --------------------------------------------------------------------------------- */

static weft_status make_head(const struct weft_ml_model *model, const char *format, uint32_t count,
                             struct weft_ckpt_head *head)
{
    bool good = weft_ckpt_head_add(head, "ids", WEFT_CKPT_U64, count, 0) == WEFT_OK &&
                weft_ckpt_head_add(head, "rows", WEFT_CKPT_F32, count, model->dim) == WEFT_OK &&
                weft_ckpt_head_note(head, "weft_model", "%s", version) == WEFT_OK &&
                weft_ckpt_head_note(head, "model", "%s", model->kind->name) == WEFT_OK &&
                weft_ckpt_head_note(head, "factors", "%u", model->settings.factors) == WEFT_OK &&
                weft_ckpt_head_note(head, "offset", "%.9g", (double)model->offset) == WEFT_OK &&
                weft_ckpt_head_note(head, "format", "%s", format) == WEFT_OK;
    return good ? WEFT_OK : WEFT_NOMEM;
}

/* Cut "a/b" into "a" and "b", "b" into "." and "b". */
static weft_status cut_path(const char *path, char *directory, size_t bytes, const char **name_p,
                            struct weft_ckpt_error *error)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t front = (size_t)(name - path);
    if (name[0] == '\0' || strlen(name) >= WEFT_CKPT_FILE_BYTES || front >= bytes) {
        return weft_ckpt_fail(error, WEFT_IO, "%.200s: a file name has 1 to %d bytes", path,
                              WEFT_CKPT_FILE_BYTES - 1);
    }
    memcpy(directory, path, front);
    strcpy(directory + front, ".");
    *name_p = name;
    return WEFT_OK;
}

weft_status weft_model_file_save(const char *path, const struct weft_ml_model *model,
                                 const char *format, const uint64_t *ids, const float *rows,
                                 uint32_t count, struct weft_ckpt_error *error)
{
    char directory[WEFT_CKPT_PATH_BYTES];
    const char *name = path;
    weft_status status = cut_path(path, directory, sizeof(directory) - 1, &name, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ckpt_head head = {.tensors = NULL};
    if (make_head(model, format, count, &head) != WEFT_OK) {
        weft_ckpt_head_fini(&head);
        return weft_ckpt_fail(error, WEFT_NOMEM, "%.200s: out of memory", path);
    }
    struct weft_ckpt_writer *writer = NULL;
    status = weft_ckpt_writer_open(directory, name, &head, &writer, error);
    if (status != WEFT_OK) {
        return status;
    }
    size_t row_bytes = model->dim * sizeof(float);
    status = weft_ckpt_writer_put(writer, 0, ids, count * sizeof(*ids), error);
    if (status == WEFT_OK) {
        status = weft_ckpt_writer_put(writer, 1, rows, count * row_bytes, error);
    }
    if (status != WEFT_OK) {
        weft_ckpt_writer_abandon(writer);
        return status;
    }
    struct weft_ckpt_file done;
    status = weft_ckpt_writer_close(writer, &done, error);
    return status == WEFT_OK ? weft_ckpt_sync_directory(directory, error) : status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status read_whole(const char *path, char **bytes_p, size_t *count_p,
                              struct weft_ckpt_error *error)
{
    FILE *in = fopen(path, "re");
    char *bytes = NULL;
    long count = -1;
    if (in != NULL && fseek(in, 0, SEEK_END) == 0) {
        count = ftell(in);
    }
    if (count < 0 || fseek(in, 0, SEEK_SET) != 0) {
        (void)!weft_ckpt_fail(error, WEFT_IO, "cannot read: %s", strerror(errno));
    } else if ((bytes = malloc((size_t)count + 1)) == NULL) {
        (void)!weft_ckpt_fail(error, WEFT_NOMEM, "no memory for %ld bytes", count);
    } else if (fread(bytes, 1, (size_t)count, in) != (size_t)count) {
        (void)!weft_ckpt_fail(error, WEFT_IO, "cannot read: %s", strerror(errno));
        free(bytes);
        bytes = NULL;
    }
    if (in != NULL) {
        (void)fclose(in);
    }
    if (bytes == NULL) {
        return count < 0 ? WEFT_IO : WEFT_NOMEM;
    }
    *bytes_p = bytes;
    *count_p = (size_t)count;
    return WEFT_OK;
}

/* What the metadata say of the model. */
static weft_status read_model(const struct weft_ckpt_head *head, struct weft_model_file *file,
                              struct weft_ckpt_error *error)
{
    const char *said = weft_ckpt_head_text(head, "weft_model");
    if (said == NULL || strcmp(said, version) != 0) {
        return weft_ckpt_fail(error, WEFT_DATA, "not a model of this release (weft_model is %s)",
                              said != NULL ? said : "missing");
    }
    const char *kind = weft_ckpt_head_text(head, "model");
    const char *factors = weft_ckpt_head_text(head, "factors");
    const char *offset = weft_ckpt_head_text(head, "offset");
    const char *format = weft_ckpt_head_text(head, "format");
    struct weft_ml_model *model = &file->model;
    uint64_t count = 0;
    if (kind == NULL || factors == NULL || offset == NULL || format == NULL ||
        weft_ml_model_find(kind, NULL, &model->kind) != WEFT_OK ||
        weft_ml_format_find(format, NULL, &file->format) != WEFT_OK ||
        !weft_ml_number_u64(factors, strlen(factors), &count) || count > WEFT_ML_FACTORS_MAX ||
        (count > 0) != model->kind->has_factors ||
        !weft_ml_number_f32(offset, strlen(offset), &model->offset)) {
        return weft_ckpt_fail(error, WEFT_DATA,
                              "model, factors, offset and format are not those of a model");
    }
    model->settings.factors = (uint32_t)count;
    model->dim = 1 + model->settings.factors;
    return WEFT_OK;
}

/* A tensor of the wanted type and width whose bytes have the checksum that goes with them. */
static const void *tensor_at(const struct weft_ckpt_head *head, const char *name,
                             enum weft_ckpt_type type, uint32_t columns, const char *data,
                             uint64_t *rows_p)
{
    const struct weft_ckpt_tensor *tensor = weft_ckpt_head_find(head, name);
    if (tensor == NULL || tensor->type != type || tensor->dims != (columns > 0 ? 2u : 1u) ||
        (columns > 0 && tensor->shape[1] != columns) ||
        XXH3_64bits(data + tensor->offset, tensor->bytes) != tensor->hash) {
        return NULL;
    }
    *rows_p = tensor->shape[0];
    return data + tensor->offset;
}

static weft_status read_tensors(const struct weft_ckpt_head *head, const char *data,
                                struct weft_model_file *file, struct weft_ckpt_error *error)
{
    uint64_t count = 0;
    uint64_t row_count = 0;
    const void *ids = tensor_at(head, "ids", WEFT_CKPT_U64, 0, data, &count);
    const void *rows =
        tensor_at(head, "rows", WEFT_CKPT_F32, file->model.dim, data, &row_count);
    if (ids == NULL || rows == NULL || count != row_count || count > UINT32_MAX) {
        return weft_ckpt_fail(error, WEFT_DATA,
                              "ids and rows are missing, of another shape, or damaged");
    }
    size_t floats = count * file->model.dim;
    file->ids = malloc((count + 1) * sizeof(*file->ids));
    file->rows = malloc((floats + 1) * sizeof(*file->rows));
    if (file->ids == NULL || file->rows == NULL) {
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for %llu rows",
                              (unsigned long long)count);
    }
    memcpy(file->ids, ids, count * sizeof(*file->ids));
    memcpy(file->rows, rows, floats * sizeof(*file->rows));
    file->count = (uint32_t)count;
    for (uint64_t i = 1; i < count; i++) {
        if (file->ids[i] <= file->ids[i - 1]) {
            return weft_ckpt_fail(error, WEFT_DATA, "the ids do not ascend");
        }
    }
    for (size_t i = 0; i < floats; i++) {
        if (!isfinite(file->rows[i])) {
            return weft_ckpt_fail(error, WEFT_DATA, "a weight is no finite number");
        }
    }
    return WEFT_OK;
}

weft_status weft_model_file_load(const char *path, struct weft_model_file *file_p,
                                 struct weft_ckpt_error *error)
{
    struct weft_ckpt_error why = {.text = ""};
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_model_file file = {.ids = NULL};
    char *bytes = NULL;
    size_t count = 0;
    size_t used = 0;
    weft_status status = read_whole(path, &bytes, &count, &why);
    if (status == WEFT_OK) {
        status = weft_ckpt_head_parse(bytes, count, count, &head, &used, &why);
    }
    if (status == WEFT_OK) {
        status = read_model(&head, &file, &why);
        if (status == WEFT_OK) {
            status = read_tensors(&head, bytes + used, &file, &why);
        }
        weft_ckpt_head_fini(&head);
    }
    free(bytes);
    if (status != WEFT_OK) {
        weft_model_file_fini(&file);
        return weft_ckpt_fail(error, status, "%.200s: %.280s", path, why.text);
    }
    *file_p = file;
    return WEFT_OK;
}

void weft_model_file_fini(struct weft_model_file *file)
{
    free(file->ids);
    free(file->rows);
    *file = (struct weft_model_file){.ids = NULL};
}

uint32_t weft_model_file_rows(const struct weft_model_file *file, const uint64_t *ids,
                              uint32_t count, float *rows_p)
{
    size_t dim = file->model.dim;
    uint32_t known = 0;
    uint32_t at = 0; /* both lists ascend */
    for (uint32_t i = 0; i < count; i++) {
        while (at < file->count && file->ids[at] < ids[i]) {
            at++;
        }
        if (at < file->count && file->ids[at] == ids[i]) {
            memcpy(rows_p + i * dim, file->rows + at * dim, dim * sizeof(float));
            known++;
        } else {
            memset(rows_p + i * dim, 0, dim * sizeof(float));
        }
    }
    return known;
}
