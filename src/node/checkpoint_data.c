/* Write the data file of a checkpoint; checkpoint_load.c reads it. */
#include "node/checkpoint_data.h"

#include "base/assert.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct weft_push_window) == 18 * sizeof(uint64_t),
              "its bytes in memory are written to the file");

enum { PARTIAL_WORDS = 5 };

static uint32_t mask_words(const struct weft_cut_view *view)
{
    uint32_t words = 0;
    for (uint32_t i = 0; i < view->partial_count; i++) {
        uint32_t of = (uint32_t)WEFT_BITS_WORDS((size_t)view->partials[i].chunks);
        words = of > words ? of : words;
    }
    return words;
}

/* Store bytes in the metadata as hexadecimal digits. */
static void note_bytes(struct weft_ckpt_head *head, const char *name, const uint8_t *bytes,
                       size_t count)
{
    char text[WEFT_CKPT_TEXT_BYTES];
    WEFT_ASSERT(2 * count < sizeof(text));
    for (size_t i = 0; i < count; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    weft_ckpt_head_note(head, name, "%s", text);
}

/* Store the hash key of the admission counters, and the cell at which the next search for a rare id
 * begins. */
static void note_admission(struct weft_ckpt_head *head, const struct weft_cut_table *table)
{
    const struct weft_admission_counts *counted = &table->counted;
    char name[WEFT_CKPT_NAME_BYTES];
    if (weft_hash_key_is_zero(counted->key)) {
        return;
    }
    snprintf(name, sizeof(name), "table.%u.admission_key", table->spec.table);
    note_bytes(head, name, counted->key, sizeof(counted->key));
    if (counted->count > 0) {
        snprintf(name, sizeof(name), "table.%u.admission_hand", table->spec.table);
        weft_ckpt_head_note(head, name, "%u", counted->hand);
    }
}

static void note_spec(struct weft_ckpt_head *head, const struct weft_cut_table *table)
{
    static const char *const modes[] = {"BSP", "SSP", "ASP"};
    uint8_t packed[WEFT_RPC_SPEC_BYTES];
    char name[WEFT_CKPT_NAME_BYTES];
    const struct weft_table_spec *spec = &table->spec;
    weft_table_spec_pack(spec, packed);
    snprintf(name, sizeof(name), "table.%u.spec", spec->table);
    note_bytes(head, name, packed, sizeof(packed));
    snprintf(name, sizeof(name), "table.%u.about", spec->table);
    weft_ckpt_head_note(head, name, "dim %u, optimizer %s, %s, %u workers", spec->dim,
                        weft_optimizer_at(spec->optimizer)->name, modes[spec->mode], spec->workers);
    snprintf(name, sizeof(name), "table.%u.clock", spec->table);
    weft_ckpt_head_note(head, name, "%u", table->clock);
    if (table->replaces) {
        snprintf(name, sizeof(name), "table.%u.replaces", spec->table);
        weft_ckpt_head_note(head, name, "1");
    }
}

static void add(struct weft_ckpt_head *head, uint32_t table, const char *what,
                enum weft_ckpt_type type, uint64_t rows, uint64_t columns)
{
    char name[WEFT_CKPT_NAME_BYTES];
    snprintf(name, sizeof(name), "table.%u.%s", table, what);
    weft_ckpt_head_add(head, name, type, rows, columns);
}

static void add_counted(struct weft_ckpt_head *head, uint32_t table,
                        const struct weft_admission_counts *counted)
{
    if (counted->filter != NULL) {
        add(head, table, "waiting_filter", WEFT_CKPT_U8, counted->cells, 0);
    } else if (counted->count > 0) {
        add(head, table, "waiting_ids", WEFT_CKPT_U64, counted->count, 0);
        add(head, table, "waiting_counts", WEFT_CKPT_U32, counted->count, 0);
    }
}

static void add_table(struct weft_checkpoint_file *file, struct weft_ckpt_head *head,
                      const struct weft_cut_table *table, uint32_t workers)
{
    uint32_t t = table->spec.table, dim = table->spec.dim;
    uint32_t floats = (table->record_bytes - WEFT_TABLE_RECORD_HEAD) / 4;
    file->tables[t] = (struct weft_checkpoint_table){.ids = head->tensor_count,
                                                     .dim = dim,
                                                     .state_floats = floats - dim,
                                                     .record_bytes = table->record_bytes};
    note_spec(head, table);
    note_admission(head, table);
    add(head, t, "ids", WEFT_CKPT_U64, table->rows, 0);
    add(head, t, "clock", WEFT_CKPT_U32, table->rows, 0);
    add(head, t, "count", WEFT_CKPT_U32, table->rows, 0);
    add(head, t, "weights", WEFT_CKPT_F32, table->rows, dim);
    if (floats > dim) {
        add(head, t, "state", WEFT_CKPT_F32, table->rows, floats - dim);
    }
    add(head, t, "worker_clocks", WEFT_CKPT_U32, workers, 0);
    add(head, t, "pushes", WEFT_CKPT_U64, workers, 18);
    add(head, t, "removed", WEFT_CKPT_U64, table->removed_count, 0);
    add_counted(head, t, &table->counted);
}

bool weft_checkpoint_replaces(const struct weft_cut_view *view)
{
    bool replaces = false;
    for (uint32_t t = 0; t < view->tables_max; t++) {
        replaces |= view->tables[t].present && view->tables[t].replaces;
    }
    return replaces;
}

static void make_head(struct weft_checkpoint_file *file, struct weft_ckpt_head *head,
                      const struct weft_checkpoint_place *place, const struct weft_cut_view *view)
{
    weft_ckpt_head_note(head, "format", "weft-checkpoint");
    weft_ckpt_head_note(head, "version", "%d",
                        weft_checkpoint_replaces(view) ? (int)WEFT_CKPT_VERSION
                                                       : (int)WEFT_CKPT_VERSION_PLAIN);
    weft_ckpt_head_note(head, "number", "%" PRIu64, place->number);
    weft_ckpt_head_note(head, "base", "%" PRIu64, place->base);
    if (place->cut != 0) {
        weft_ckpt_head_note(head, "cut", "%" PRIu64, place->cut);
    }
    weft_ckpt_head_note(head, "shard", "%u", place->shard);
    weft_ckpt_head_note(head, "shards", "%u", place->shards);
    for (uint32_t t = 0; t < view->tables_max; t++) {
        if (view->tables[t].present) {
            add_table(file, head, &view->tables[t], view->workers_max);
        }
    }
    weft_ckpt_head_add(head, "workers.incarnations", WEFT_CKPT_U64, view->workers_max, 0);
    weft_ckpt_head_add(head, "partials.head", WEFT_CKPT_U64, view->partial_count, PARTIAL_WORDS);
    weft_ckpt_head_add(head, "partials.mask", WEFT_CKPT_U64, view->partial_count, mask_words(view));
    weft_ckpt_head_add(head, "workers.retired", WEFT_CKPT_U64, view->workers_max,
                       1 + WEFT_RETIRED_MAX);
}

/* at: index of the first tensor added by add_counted. */
static weft_status put_counted(struct weft_ckpt_writer *writer, uint32_t at,
                               const struct weft_admission_counts *counted,
                               struct weft_error *error)
{
    if (counted->filter != NULL) {
        return weft_ckpt_writer_put(writer, at, counted->filter, counted->cells, error);
    }
    if (counted->count == 0) {
        return WEFT_OK;
    }
    weft_status status = weft_ckpt_writer_put(writer, at, counted->ids,
                                              counted->count * sizeof(*counted->ids), error);
    return status == WEFT_OK
               ? weft_ckpt_writer_put(writer, at + 1, counted->counts,
                                      counted->count * sizeof(*counted->counts), error)
               : status;
}

/* Write all tensors except the rows. They are small, and the shard keeps them only until the
 * snapshot ends. */
static weft_status put_rest(struct weft_checkpoint_file *file, const struct weft_cut_view *view,
                            uint32_t tensor, struct weft_error *error)
{
    weft_status status = WEFT_OK;
    size_t workers = view->workers_max;
    for (uint32_t t = 0; status == WEFT_OK && t < view->tables_max; t++) {
        const struct weft_cut_table *table = &view->tables[t];
        if (!table->present) {
            continue;
        }
        uint32_t at = file->tables[t].ids + (file->tables[t].state_floats > 0 ? 5 : 4);
        status = weft_ckpt_writer_put(file->writer, at, table->clocks,
                                      workers * sizeof(*table->clocks), error);
        if (status == WEFT_OK) {
            status = weft_ckpt_writer_put(file->writer, at + 1, table->pushes,
                                          workers * sizeof(*table->pushes), error);
        }
        if (status == WEFT_OK) {
            status = weft_ckpt_writer_put(file->writer, at + 2, table->removed,
                                          table->removed_count * sizeof(*table->removed), error);
        }
        if (status == WEFT_OK) {
            status = put_counted(file->writer, at + 3, &table->counted, error);
        }
    }
    if (status == WEFT_OK) {
        status = weft_ckpt_writer_put(file->writer, tensor, view->incarnations,
                                      workers * sizeof(*view->incarnations), error);
    }
    uint32_t words = mask_words(view);
    for (uint32_t i = 0; status == WEFT_OK && i < view->partial_count; i++) {
        const struct weft_cut_partial *p = &view->partials[i];
        uint64_t head[PARTIAL_WORDS] = {p->worker, p->table, p->number, p->chunks, p->chunk_elems};
        status = weft_ckpt_writer_put(file->writer, tensor + 1, head, sizeof(head), error);
        if (status == WEFT_OK) {
            status = weft_ckpt_writer_put(file->writer, tensor + 2, p->mask,
                                          words * sizeof(*p->mask), error);
        }
    }
    return status == WEFT_OK ? weft_ckpt_writer_put(file->writer, tensor + 3, view->retired,
                                                    workers * sizeof(*view->retired), error)
                             : status;
}

weft_status weft_checkpoint_file_open(struct weft_checkpoint_file *file,
                                      const struct weft_checkpoint_place *place,
                                      const struct weft_cut_view *view, size_t batch_bytes,
                                      struct weft_error *error)
{
    struct weft_ckpt_head head = {.tensors = NULL};
    char name[WEFT_CKPT_FILE_BYTES];
    *file = (struct weft_checkpoint_file){.columns_bytes = batch_bytes};
    file->tables = calloc(view->tables_max, sizeof(*file->tables));
    file->columns = malloc(batch_bytes);
    if (file->tables != NULL) {
        make_head(file, &head, place, view);
    }
    if (file->tables == NULL || file->columns == NULL || head.is_short) {
        weft_ckpt_head_fini(&head);
        weft_checkpoint_file_abandon(file);
        return weft_fail(error, WEFT_NOMEM, "no memory for a checkpoint");
    }
    uint32_t rest = head.tensor_count - 4;
    weft_ckpt_data_name(place->number, place->shard, place->claim, name);
    weft_status status = weft_ckpt_writer_open(place->directory, name, &head, &file->writer, error);
    status = status == WEFT_OK ? put_rest(file, view, rest, error) : status;
    if (status != WEFT_OK) {
        weft_checkpoint_file_abandon(file);
    }
    return status;
}

/* Split records into consecutive columns in one pass, because a batch may be larger than the
 * caches of a core. */
static void split(const struct weft_checkpoint_table *t, const uint8_t *records, size_t count,
                  uint8_t *columns)
{
    const size_t weights_bytes = t->dim * sizeof(float);
    const size_t state_bytes = t->state_floats * sizeof(float);
    uint8_t *clocks = columns + 8 * count, *counts = clocks + 4 * count;
    uint8_t *weights = counts + 4 * count, *state = weights + weights_bytes * count;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = records + i * t->record_bytes;
        memcpy(columns + 8 * i, record, 8);
        memcpy(clocks + 4 * i, record + 8, 4);
        memcpy(counts + 4 * i, record + 12, 4);
        memcpy(weights + weights_bytes * i, record + WEFT_TABLE_RECORD_HEAD, weights_bytes);
        if (state_bytes > 0) {
            memcpy(state + state_bytes * i, record + WEFT_TABLE_RECORD_HEAD + weights_bytes,
                   state_bytes);
        }
    }
}

weft_status weft_checkpoint_file_rows(struct weft_checkpoint_file *file, uint16_t table,
                                      const uint8_t *records, uint32_t count,
                                      struct weft_error *error)
{
    const struct weft_checkpoint_table *t = &file->tables[table];
    const size_t sizes[] = {8, 4, 4, t->dim * sizeof(float), t->state_floats * sizeof(float)};
    const uint8_t *column = file->columns;
    weft_status status = WEFT_OK;
    WEFT_ASSERT((size_t)count * t->record_bytes <= file->columns_bytes);
    split(t, records, count, file->columns);
    for (uint32_t i = 0; status == WEFT_OK && i < WEFT_ARRAY_COUNT(sizes) && sizes[i] > 0; i++) {
        status = weft_ckpt_writer_put(file->writer, t->ids + i, column, count * sizes[i], error);
        column += count * sizes[i];
    }
    return status;
}

static void file_free(struct weft_checkpoint_file *file)
{
    free(file->tables);
    free(file->columns);
    *file = (struct weft_checkpoint_file){.writer = NULL};
}

weft_status weft_checkpoint_file_close(struct weft_checkpoint_file *file,
                                       struct weft_ckpt_file *file_p, struct weft_error *error)
{
    weft_status status = weft_ckpt_writer_close(file->writer, file_p, error);
    file_free(file);
    return status;
}

void weft_checkpoint_file_abandon(struct weft_checkpoint_file *file)
{
    weft_ckpt_writer_abandon(file->writer);
    file_free(file);
}
