#include "ckpt/model.h"

#include "ckpt/disk.h"
#include "file/target.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char version[] = "1";

/* ---- writing --------------------------------------------------------------------------------- */

static void make_head(const struct weft_ckpt_model *model, struct weft_ckpt_head *head)
{
    weft_ckpt_head_add(head, "ids", WEFT_CKPT_U64, model->count, 0);
    weft_ckpt_head_add(head, "rows", WEFT_CKPT_F32, model->count, model->dim);
    weft_ckpt_head_note(head, "weft_model", "%s", version);
    weft_ckpt_head_note(head, "model", "%s", model->kind);
    weft_ckpt_head_note(head, "factors", "%u", model->dim - 1);
    weft_ckpt_head_note(head, "offset", "%.9g", (double)model->offset);
    weft_ckpt_head_note(head, "format", "%s", model->format);
    if (model->alpha > 0) {
        weft_ckpt_head_note(head, "alpha", "%.9g", (double)model->alpha);
        weft_ckpt_head_note(head, "beta", "%.9g", (double)model->beta);
    }
}

/* Split "a/b" into "a" and "b", and "b" into "." and "b". */
static weft_status cut_path(const char *path, char *directory, size_t bytes, const char **name_p,
                            struct weft_error *error)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t front = (size_t)(name - path);
    if (name[0] == '\0' || strlen(name) >= WEFT_CKPT_FILE_BYTES || front >= bytes) {
        return weft_fail(error, WEFT_IO, "%.200s: a file name has 1 to %d bytes", path,
                         WEFT_CKPT_FILE_BYTES - 1);
    }
    memcpy(directory, path, front);
    strcpy(directory + front, ".");
    *name_p = name;
    return WEFT_OK;
}

static weft_status write_model(const char *path, const struct weft_ckpt_model *model,
                               struct weft_error *error)
{
    char directory[WEFT_CKPT_PATH_BYTES];
    const char *name = path;
    struct stat about;
    weft_status status = cut_path(path, directory, sizeof(directory) - 1, &name, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) { /* a device would be replaced */
        return weft_fail(error, WEFT_IO, "%.200s is not a regular file: name another", path);
    }
    struct weft_ckpt_head head = {.tensors = NULL};
    make_head(model, &head);
    if (head.is_short) {
        weft_ckpt_head_fini(&head);
        return weft_fail(error, WEFT_NOMEM, "%.200s: out of memory", path);
    }
    struct weft_ckpt_writer *writer = NULL;
    status = weft_ckpt_writer_open(directory, name, &head, &writer, error);
    if (status != WEFT_OK) {
        return status;
    }
    size_t row_bytes = model->dim * sizeof(float);
    status = weft_ckpt_writer_put(writer, 0, model->ids, model->count * sizeof(*model->ids), error);
    if (status == WEFT_OK) {
        status = weft_ckpt_writer_put(writer, 1, model->rows, model->count * row_bytes, error);
    }
    if (status != WEFT_OK) {
        weft_ckpt_writer_abandon(writer);
        return status;
    }
    struct weft_ckpt_file done;
    status = weft_ckpt_writer_close(writer, &done, error);
    return status == WEFT_OK ? weft_ckpt_sync_directory(directory, error) : status;
}

weft_status weft_ckpt_model_save(const char *path, const struct weft_ckpt_model *model,
                                 struct weft_error *error)
{
    char *target = NULL; /* a link is kept */
    if (weft_file_target(path, &target) != WEFT_OK) {
        return weft_fail(error, WEFT_IO, "cannot create %.200s: %s", path, strerror(errno));
    }
    weft_status status = write_model(target, model, error);
    free(target);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool copy_name(const char *text, char name_p[WEFT_CKPT_MODEL_NAME_BYTES])
{
    return text != NULL &&
           snprintf(name_p, WEFT_CKPT_MODEL_NAME_BYTES, "%s", text) < WEFT_CKPT_MODEL_NAME_BYTES;
}

/* A prior, above 0 and finite; 0 if the metadata has none. */
static bool read_prior(const struct weft_ckpt_head *head, const char *name, float *prior_p)
{
    const char *text = weft_ckpt_head_text(head, name);
    char *end = NULL;
    *prior_p = text != NULL ? strtof(text, &end) : 0;
    return text == NULL || (end != text && *end == '\0' && *prior_p > 0 && isfinite(*prior_p));
}

/* Read the model's metadata. */
static weft_status read_notes(const struct weft_ckpt_head *head, struct weft_ckpt_model *model,
                              struct weft_error *error)
{
    const char *said = weft_ckpt_head_text(head, "weft_model");
    if (said == NULL || strcmp(said, version) != 0) {
        return weft_fail(error, WEFT_DATA, "not a model of this release (weft_model is %s)",
                         said != NULL ? said : "missing");
    }
    const char *factors = weft_ckpt_head_text(head, "factors");
    const char *offset = weft_ckpt_head_text(head, "offset");
    char *factors_end = NULL;
    char *offset_end = NULL;
    unsigned long count = factors != NULL ? strtoul(factors, &factors_end, 10) : 0;
    model->offset = offset != NULL ? strtof(offset, &offset_end) : 0;
    bool good = factors != NULL && factors[0] >= '0' && factors[0] <= '9' && *factors_end == '\0' &&
                count < WEFT_CKPT_MODEL_DIM_MAX && offset != NULL && offset_end != offset &&
                *offset_end == '\0' && isfinite(model->offset) &&
                read_prior(head, "alpha", &model->alpha) &&
                read_prior(head, "beta", &model->beta) &&
                copy_name(weft_ckpt_head_text(head, "model"), model->kind) &&
                copy_name(weft_ckpt_head_text(head, "format"), model->format);
    model->dim = good ? 1 + (uint32_t)count : 0;
    return good ? WEFT_OK
                : weft_fail(error, WEFT_DATA,
                            "model, factors, offset and format are not those of a model");
}

/* A tensor of the wanted type and width whose bytes have the checksum in the metadata. */
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
                                struct weft_ckpt_model *model, struct weft_error *error)
{
    uint64_t count = 0;
    uint64_t row_count = 0;
    const void *ids = tensor_at(head, "ids", WEFT_CKPT_U64, 0, data, &count);
    const void *rows = tensor_at(head, "rows", WEFT_CKPT_F32, model->dim, data, &row_count);
    if (ids == NULL || rows == NULL || count != row_count || count > UINT32_MAX) {
        return weft_fail(error, WEFT_DATA,
                         "ids and rows are missing, of another shape, or damaged");
    }
    size_t floats = count * model->dim;
    model->ids = malloc((count + 1) * sizeof(*model->ids));
    model->rows = malloc((floats + 1) * sizeof(*model->rows));
    if (model->ids == NULL || model->rows == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for %llu rows", (unsigned long long)count);
    }
    memcpy(model->ids, ids, count * sizeof(*model->ids));
    memcpy(model->rows, rows, floats * sizeof(*model->rows));
    model->count = (uint32_t)count;
    for (uint64_t i = 1; i < count; i++) {
        if (model->ids[i] <= model->ids[i - 1]) {
            return weft_fail(error, WEFT_DATA, "the ids do not ascend");
        }
    }
    for (size_t i = 0; i < floats; i++) {
        if (!isfinite(model->rows[i])) {
            return weft_fail(error, WEFT_DATA, "a weight is not finite");
        }
    }
    return WEFT_OK;
}

weft_status weft_ckpt_model_load(const char *path, struct weft_ckpt_model *model_p,
                                 struct weft_error *error)
{
    struct weft_error why = {.text = ""};
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_ckpt_model model = {.ids = NULL};
    char *bytes = NULL;
    size_t count = 0;
    size_t used = 0;
    weft_status status = weft_ckpt_read_whole(path, SIZE_MAX / 4, &bytes, &count, &why);
    if (status != WEFT_OK) {
        return weft_fail(error, status == WEFT_NOTFOUND ? WEFT_IO : status,
                         "%.200s: cannot read: %s", path, strerror(errno));
    }
    status = weft_ckpt_head_parse(bytes, count, count, &head, &used, &why);
    if (status == WEFT_OK) {
        status = read_notes(&head, &model, &why);
        if (status == WEFT_OK) {
            status = read_tensors(&head, bytes + used, &model, &why);
        }
        weft_ckpt_head_fini(&head);
    }
    free(bytes);
    if (status != WEFT_OK) {
        weft_ckpt_model_fini(&model);
        return weft_fail(error, status, "%.200s: %.280s", path, why.text);
    }
    *model_p = model;
    return WEFT_OK;
}

void weft_ckpt_model_fini(struct weft_ckpt_model *model)
{
    free(model->ids);
    free(model->rows);
    model->ids = NULL;
    model->rows = NULL;
    model->count = 0;
}

uint32_t weft_ckpt_model_rows(const struct weft_ckpt_model *model, const uint64_t *ids,
                              uint32_t count, float *rows_p)
{
    size_t dim = model->dim;
    uint32_t known = 0;
    uint32_t at = 0; /* both lists are in ascending order */
    for (uint32_t i = 0; i < count; i++) {
        while (at < model->count && model->ids[at] < ids[i]) {
            at++;
        }
        if (at < model->count && model->ids[at] == ids[i]) {
            memcpy(rows_p + i * dim, model->rows + at * dim, dim * sizeof(float));
            known++;
        } else {
            memset(rows_p + i * dim, 0, dim * sizeof(float));
        }
    }
    return known;
}
