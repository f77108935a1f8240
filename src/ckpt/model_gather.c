/* Read the newest checkpoint of a directory as a model. */
#include "ckpt/directory.h"
#include "ckpt/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GONE = 0, IS_THERE = 1 };

/* One statement of a file about an id; the last statement about an id is valid. In a file,
 * removed ids precede rows. A file that replaces the table voids all statements of earlier files of
 * its shard. */
struct saying {
    uint64_t id;
    uint64_t order; /* of the file, then GONE or IS_THERE */
    uint64_t row;
};

struct gathering {
    struct saying *said;
    uint64_t count;
    uint64_t room;
    float *rows; /* (row_count, dim) */
    uint64_t row_count;
    uint32_t dim;          /* 0 = no file read yet */
    uint32_t shard;        /* of the last file */
    uint64_t shard_begins; /* index of its first statement */
};

static weft_status no_memory(struct weft_error *error)
{
    return weft_fail(error, WEFT_NOMEM, "no memory for its rows");
}

static weft_status odd(struct weft_error *error)
{
    return weft_fail(error, WEFT_DATA,
                     "it has no table 0 of features, or one that this "
                     "release does not write");
}

static bool make_room(struct gathering *all, uint64_t more)
{
    if (all->count + more > all->room) {
        uint64_t room = all->count + more;
        struct saying *said = realloc(all->said, room * sizeof(*said));
        if (said == NULL) {
            return false;
        }
        all->said = said;
        all->room = room;
    }
    return true;
}

/* Note the ids (count,) of one file: removed, or present with the rows that follow. */
static weft_status note_ids(struct gathering *all, struct weft_ckpt_reader *reader,
                            const struct weft_ckpt_tensor *ids, uint64_t order,
                            struct weft_error *error)
{
    uint64_t count = ids->shape[0];
    if (ids->type != WEFT_CKPT_U64 || ids->bytes != count * sizeof(uint64_t)) {
        return odd(error);
    }
    uint64_t *read = malloc(ids->bytes + 1);
    weft_status status = read != NULL && make_room(all, count) ? WEFT_OK : no_memory(error);
    if (status == WEFT_OK) {
        status = weft_ckpt_reader_get(reader, ids, 0, read, ids->bytes, error);
    }
    for (uint64_t i = 0; status == WEFT_OK && i < count; i++) {
        all->said[all->count++] =
            (struct saying){.id = read[i], .order = order, .row = all->row_count + i};
    }
    free(read);
    return status;
}

static weft_status read_weights(struct gathering *all, struct weft_ckpt_reader *reader,
                                const struct weft_ckpt_tensor *weights, uint64_t count,
                                struct weft_error *error)
{
    uint64_t dim = weights->shape[1];
    if (weights->type != WEFT_CKPT_F32 || weights->dims != 2 || weights->shape[0] != count ||
        dim < 1 || dim > WEFT_CKPT_MODEL_DIM_MAX || (all->dim != 0 && all->dim != dim)) {
        return odd(error);
    }
    all->dim = (uint32_t)dim;
    float *rows = realloc(all->rows, ((all->row_count + count) * dim + 1) * sizeof(*rows));
    if (rows == NULL) {
        return no_memory(error);
    }
    all->rows = rows;
    weft_status status = weft_ckpt_reader_get(reader, weights, 0, rows + all->row_count * dim,
                                              weights->bytes, error);
    all->row_count += count;
    return status;
}

/* Files are in the order of their shards, each from the whole file to the last delta. */
static weft_status begin_file(struct gathering *all, uint32_t shard, const char *replaces,
                              struct weft_error *error)
{
    if (replaces != NULL && strcmp(replaces, "1") != 0) {
        return odd(error);
    }
    if (shard != all->shard) {
        all->shard = shard;
        all->shard_begins = all->count;
    }
    all->count = replaces != NULL ? all->shard_begins : all->count;
    return WEFT_OK;
}

static weft_status gather_file(struct gathering *all, const char *directory,
                               const struct weft_ckpt_file *file, uint32_t shard, uint64_t number,
                               struct weft_error *error)
{
    struct weft_ckpt_reader *reader = NULL;
    weft_status status = weft_ckpt_reader_open(directory, file, &reader, error);
    if (status != WEFT_OK) {
        return status;
    }
    const struct weft_ckpt_head *head = weft_ckpt_reader_head(reader);
    const struct weft_ckpt_tensor *removed = weft_ckpt_head_find(head, "table.0.removed");
    const struct weft_ckpt_tensor *ids = weft_ckpt_head_find(head, "table.0.ids");
    const struct weft_ckpt_tensor *weights = weft_ckpt_head_find(head, "table.0.weights");
    status = removed != NULL && ids != NULL && weights != NULL ? WEFT_OK : odd(error);
    if (status == WEFT_OK) {
        status = begin_file(all, shard, weft_ckpt_head_text(head, "table.0.replaces"), error);
    }
    if (status == WEFT_OK) {
        status = note_ids(all, reader, removed, 2 * number + GONE, error);
    }
    if (status == WEFT_OK) {
        status = note_ids(all, reader, ids, 2 * number + IS_THERE, error);
    }
    if (status == WEFT_OK) {
        status = read_weights(all, reader, weights, ids->shape[0], error);
    }
    weft_ckpt_reader_close(reader);
    return status;
}

/* By id; for one id the last statement first. */
static int compare(const void *a, const void *b)
{
    const struct saying *x = a;
    const struct saying *y = b;
    return x->id != y->id ? (x->id < y->id ? -1 : 1) : (x->order > y->order ? -1 : 1);
}

/* Apply the last statement about every id, in ascending order of ids. */
static weft_status settle(struct gathering *all, struct weft_ckpt_model *model,
                          struct weft_error *error)
{
    uint32_t dim = all->dim;
    if (all->count > UINT32_MAX) {
        return no_memory(error);
    }
    model->ids = malloc((all->count + 1) * sizeof(*model->ids));
    model->rows = malloc((all->count * dim + 1) * sizeof(*model->rows));
    if (model->ids == NULL || model->rows == NULL) {
        return no_memory(error);
    }
    qsort(all->said, all->count, sizeof(*all->said), compare);
    for (uint64_t i = 0; i < all->count; i++) {
        const struct saying *said = &all->said[i];
        if ((i > 0 && said[-1].id == said->id) || said->order % 2 == GONE) {
            continue;
        }
        model->ids[model->count] = said->id;
        memcpy(model->rows + (size_t)model->count++ * dim, all->rows + said->row * dim,
               dim * sizeof(float));
    }
    for (size_t i = 0; i < (size_t)model->count * dim; i++) {
        if (!isfinite(model->rows[i])) {
            return weft_fail(error, WEFT_DATA, "a weight is not finite");
        }
    }
    model->dim = dim;
    return WEFT_OK;
}

static weft_status load(const char *directory, weft_ckpt_complaint *complain, void *arg,
                        struct gathering *all, uint64_t *number_p, struct weft_error *error)
{
    struct weft_ckpt_set set;
    struct weft_ckpt_log *log;
    weft_status status = weft_ckpt_log_open(directory, complain, arg, &log, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_ckpt_find(directory, weft_ckpt_log_history(log), complain, arg, &set, error);
    weft_ckpt_log_close(log);
    if (status != WEFT_OK) {
        return status;
    }
    *number_p = set.number;
    if (set.number == 0) {
        status = weft_fail(error, WEFT_NOTFOUND, "it holds no checkpoint");
    }
    for (uint32_t i = 0; status == WEFT_OK && i < set.file_count; i++) {
        status = gather_file(all, directory, &set.files[i].file, set.files[i].shard, i, error);
    }
    weft_ckpt_set_fini(&set);
    return status;
}

weft_status weft_ckpt_model_gather(const char *directory, weft_ckpt_complaint *complain, void *arg,
                                   struct weft_ckpt_model *model_p, uint64_t *number_p,
                                   struct weft_error *error)
{
    struct gathering all = {.said = NULL};
    struct weft_ckpt_model model = {.ids = NULL};
    struct weft_error why = {.text = ""};
    weft_status status = load(directory, complain, arg, &all, number_p, &why);
    status = status == WEFT_OK ? settle(&all, &model, &why) : status;
    free(all.said);
    free(all.rows);
    if (status != WEFT_OK) {
        weft_ckpt_model_fini(&model);
        return weft_fail(error, status, "%.200s: %.280s", directory, why.text);
    }
    *model_p = model;
    return WEFT_OK;
}
