/* Load a checkpoint into a shard. With the same number of shards, only the shard's own files are
 * read, and the push windows are restored, too. With another number, all files are read, and the
 * shard keeps the rows that belong to it. */
#include "node/checkpoint_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_BYTES = 1 << 20, ITEMS_MAX = 1 << 20 };

struct load {
    struct weft_shard *shard;
    uint32_t workers_max;
    bool same;         /* number of shards */
    uint32_t shards;   /* of the checkpoint */
    uint32_t of_shard; /* of the current file */
    uint64_t cut;      /* of the order; 0 = unknown */
    weft_checkpoint_supply *supply;
    struct weft_error *error;
    uint8_t *records; /* BATCH_BYTES, as are columns */
    uint8_t *columns;
    struct weft_ckpt_reader *reader; /* of the current file */
    const struct weft_ckpt_head *head;
};

static const struct weft_ckpt_tensor *tensor(const struct load *load, uint32_t table,
                                             const char *what)
{
    char name[WEFT_CKPT_NAME_BYTES];
    snprintf(name, sizeof(name), "table.%u.%s", table, what);
    return weft_ckpt_head_find(load->head, name);
}

/* A file with valid checksums that this release would not write. */
static weft_status odd(const struct load *load, const char *what)
{
    return weft_fail(load->error, WEFT_DATA, "the %s of a data file are invalid", what);
}

/* ---- the specification ----------------------------------------------------------------------- */

static const char *note(const struct load *load, uint32_t table, const char *what)
{
    char name[WEFT_CKPT_NAME_BYTES];
    snprintf(name, sizeof(name), "table.%u.%s", table, what);
    return weft_ckpt_head_text(load->head, name);
}

/* Decode hexadecimal digits to exactly this many bytes. */
static bool parse_bytes(const char *text, uint8_t *bytes, size_t count)
{
    if (text == NULL || strlen(text) != 2 * count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) {
            return false;
        }
        bytes[i] = (uint8_t)byte;
    }
    return true;
}

static bool read_spec(const struct load *load, uint16_t table, struct weft_table_spec *spec_p)
{
    uint8_t packed[WEFT_RPC_SPEC_BYTES];
    return parse_bytes(note(load, table, "spec"), packed, sizeof(packed)) &&
           weft_table_spec_unpack(table, packed, sizeof(packed), spec_p) == WEFT_OK;
}

static weft_status declare(const struct load *load, uint16_t table)
{
    struct weft_table_spec spec;
    if (!read_spec(load, table, &spec)) {
        return odd(load, "tables");
    }
    /* Another number of workers is allowed (ps/restore.c); the rows are the same. */
    if (spec.workers > load->workers_max) {
        spec.workers = (uint16_t)load->workers_max;
    }
    const struct weft_table *have = weft_shard_table(load->shard, table);
    if (have != NULL) {
        return weft_table_spec_equal(&have->spec, &spec) ? WEFT_OK : odd(load, "tables");
    }
    weft_status status = weft_shard_restore_table(load->shard, &spec);
    if (status != WEFT_OK) {
        return weft_fail(load->error, status,
                         "table %u of the checkpoint exceeds this server's limits", table);
    }
    return WEFT_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static weft_status give_rows(const struct load *load, uint16_t table, uint32_t count)
{
    size_t record_bytes = weft_table_record_bytes(weft_shard_table(load->shard, table));
    for (uint32_t at = 0; at < count;) {
        uint32_t used;
        load->supply(load->shard);
        weft_status status = weft_shard_restore_rows(
            load->shard, table, load->records + at * record_bytes, count - at, &used);
        if (status == WEFT_NOMEM || (status == WEFT_AGAIN && used == 0)) {
            return weft_fail(load->error, WEFT_NOMEM,
                             "table %u of the checkpoint has more rows than this server "
                             "has room for: give it more memory, or a larger --rows-max",
                             table);
        }
        at += used;
    }
    return WEFT_OK;
}

/* Convert the five columns of rows [at, at + count) to records. */
static weft_status read_rows(const struct load *load,
                             const struct weft_ckpt_tensor *const columns[5], const size_t sizes[5],
                             uint64_t at, uint32_t count, size_t record_bytes)
{
    size_t from = 0;
    for (int c = 0; c < 5 && sizes[c] > 0; c++) {
        weft_status status = weft_ckpt_reader_get(load->reader, columns[c], at * sizes[c],
                                                  load->columns, count * sizes[c], load->error);
        if (status != WEFT_OK) {
            return status;
        }
        for (uint32_t i = 0; i < count; i++) {
            memcpy(load->records + i * record_bytes + from, load->columns + i * sizes[c], sizes[c]);
        }
        from += sizes[c];
    }
    return WEFT_OK;
}

static weft_status load_rows(const struct load *load, uint16_t table)
{
    const struct weft_table *to = weft_shard_table(load->shard, table);
    size_t record_bytes = weft_table_record_bytes(to), dim = to->spec.dim;
    size_t state_bytes = weft_table_state_floats(to) * sizeof(float);
    const struct weft_ckpt_tensor *const columns[5] = {
        tensor(load, table, "ids"), tensor(load, table, "clock"), tensor(load, table, "count"),
        tensor(load, table, "weights"), tensor(load, table, "state")};
    const size_t sizes[5] = {8, 4, 4, dim * sizeof(float), state_bytes};
    uint64_t rows = columns[0] != NULL ? columns[0]->shape[0] : 0;
    for (int c = 0; c < 5; c++) {
        if ((columns[c] == NULL) != (sizes[c] == 0) ||
            (columns[c] != NULL && columns[c]->bytes != rows * sizes[c])) {
            return odd(load, "rows");
        }
    }
    uint32_t batch = (uint32_t)(BATCH_BYTES / record_bytes);
    for (uint64_t at = 0; at < rows; at += batch) {
        uint32_t count = (uint32_t)weft_min_u64(batch, rows - at);
        weft_status status = read_rows(load, columns, sizes, at, count, record_bytes);
        status = status == WEFT_OK ? give_rows(load, table, count) : status;
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* ---- clocks and windows ---------------------------------------------------------------------- */

/* Read a small tensor completely; the caller frees it. */
static weft_status read_all(const struct load *load, const struct weft_ckpt_tensor *t,
                            uint64_t element_bytes, void **out_p, uint32_t *count_p)
{
    if (t == NULL || t->shape[0] > ITEMS_MAX || t->bytes != t->shape[0] * element_bytes) {
        return odd(load, "windows");
    }
    void *out = calloc(t->shape[0] + 1, element_bytes);
    if (out == NULL) {
        return weft_fail(load->error, WEFT_NOMEM, "no memory to read a checkpoint");
    }
    weft_status status = weft_ckpt_reader_get(load->reader, t, 0, out, t->bytes, load->error);
    if (status != WEFT_OK) {
        free(out);
        return status;
    }
    *out_p = out;
    *count_p = (uint32_t)t->shape[0];
    return WEFT_OK;
}

/* If the number of shards changed, a rank's clock is the largest that it had on any shard: its
 * pushes to that shard are in rows that may be here now, and must not be applied again. In BSP that
 * is the clock of the snapshot. */
static weft_status load_clocks(const struct load *load, uint16_t table)
{
    uint32_t *clocks, count;
    weft_status status =
        read_all(load, tensor(load, table, "worker_clocks"), 4, (void **)&clocks, &count);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_push_window *pushes = NULL;
    uint32_t push_count = 0;
    status = read_all(load, tensor(load, table, "pushes"), sizeof(*pushes), (void **)&pushes,
                      &push_count);
    if (status == WEFT_OK && push_count != count) {
        status = odd(load, "windows");
    }
    if (status == WEFT_OK) {
        uint32_t mine = count < load->workers_max ? count : load->workers_max;
        if (load->same) {
            weft_shard_restore_clocks(load->shard, table, clocks, mine);
            weft_shard_restore_pushes(load->shard, table, pushes, mine);
        } else {
            for (uint32_t w = 0; w < mine; w++) {
                clocks[w] = clocks[w] > pushes[w].clock ? clocks[w] : pushes[w].clock;
            }
            weft_shard_restore_clocks_max(load->shard, table, clocks, mine);
        }
    }
    free(clocks);
    free(pushes);
    return status;
}

static weft_status load_partials(const struct load *load)
{
    const struct weft_ckpt_tensor *heads = weft_ckpt_head_find(load->head, "partials.head");
    const struct weft_ckpt_tensor *masks = weft_ckpt_head_find(load->head, "partials.mask");
    uint64_t *head = NULL, *mask = NULL;
    uint32_t count = 0, mask_count = 0;
    weft_status status = read_all(load, heads, 5 * sizeof(uint64_t), (void **)&head, &count);
    if (status != WEFT_OK || count == 0) {
        free(head);
        return status;
    }
    uint64_t words = masks != NULL ? masks->shape[1] : 0;
    status = read_all(load, masks, words * sizeof(uint64_t), (void **)&mask, &mask_count);
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        const uint64_t *h = head + (size_t)i * 5;
        struct weft_cut_partial partial = {.worker = (uint32_t)h[0],
                                           .table = (uint16_t)h[1],
                                           .number = h[2],
                                           .chunks = (uint32_t)h[3],
                                           .chunk_elems = (uint32_t)h[4],
                                           .mask = mask + i * words};
        if (mask_count != count || h[0] > UINT16_MAX || h[1] > UINT16_MAX || h[3] > 64 * words) {
            status = odd(load, "windows");
        } else if (h[0] < load->workers_max &&
                   weft_shard_restore_partial(load->shard, &partial) != WEFT_OK) {
            status = odd(load, "windows");
        }
    }
    free(head);
    free(mask);
    return status;
}

/* Checkpoints of earlier releases lack it. */
static weft_status load_retired(const struct load *load)
{
    const struct weft_ckpt_tensor *t = weft_ckpt_head_find(load->head, "workers.retired");
    struct weft_retired *retired;
    uint32_t count;
    if (t == NULL) {
        return WEFT_OK;
    }
    weft_status status = read_all(load, t, sizeof(*retired), (void **)&retired, &count);
    if (status == WEFT_OK) {
        weft_shard_restore_retired(load->shard, retired,
                                   count < load->workers_max ? count : load->workers_max);
        free(retired);
    }
    return status;
}

static weft_status load_windows(const struct load *load)
{
    uint64_t *incarnations;
    uint32_t count;
    weft_status status = read_all(load, weft_ckpt_head_find(load->head, "workers.incarnations"),
                                  sizeof(uint64_t), (void **)&incarnations, &count);
    if (status != WEFT_OK) {
        return status;
    }
    weft_shard_restore_incarnations(load->shard, incarnations,
                                    count < load->workers_max ? count : load->workers_max);
    free(incarnations);
    status = load_retired(load);
    return status == WEFT_OK ? load_partials(load) : status;
}

/* Before the rows of the same file: a removed row may have been created again. */
static weft_status load_removed(const struct load *load, uint16_t table)
{
    uint64_t *ids;
    uint32_t count;
    weft_status status =
        read_all(load, tensor(load, table, "removed"), sizeof(*ids), (void **)&ids, &count);
    if (status == WEFT_OK) {
        weft_shard_restore_removed(load->shard, table, ids, count);
        free(ids);
    }
    return status;
}

/* The base's rows are void: more were removed than a delta lists. */
static weft_status load_replaces(const struct load *load, uint16_t table)
{
    const char *text = note(load, table, "replaces");
    if (text != NULL && strcmp(text, "1") != 0) {
        return odd(load, "tables");
    }
    if (text != NULL) {
        weft_shard_restore_clear(load->shard, table, load->of_shard, load->shards);
    }
    return WEFT_OK;
}

/* ---- admission counters ---------------------------------------------------------------------- */

static weft_status give_counted(const struct load *load, uint16_t table,
                                const struct weft_admission_counts *counted)
{
    load->supply(load->shard);
    weft_status status = weft_shard_restore_counted(load->shard, table, counted);
    if (status == WEFT_AGAIN) {
        return weft_fail(load->error, WEFT_NOMEM, "no memory for table %u's admission", table);
    }
    if (status == WEFT_EXISTS) {
        return weft_fail(load->error, WEFT_DATA,
                         "the filters of table %u were made with different keys and cannot be "
                         "joined: restore on as many shards as the checkpoint has",
                         table);
    }
    return status == WEFT_OK ? status : odd(load, "counts of admission");
}

static weft_status load_filter(const struct load *load, uint16_t table,
                               const struct weft_ckpt_tensor *t,
                               struct weft_admission_counts *counted)
{
    if (t->bytes > UINT32_MAX) {
        return odd(load, "counts of admission");
    }
    uint8_t *filter = malloc(t->bytes + 1);
    if (filter == NULL) {
        return weft_fail(load->error, WEFT_NOMEM, "no memory to read a checkpoint");
    }
    weft_status status = weft_ckpt_reader_get(load->reader, t, 0, filter, t->bytes, load->error);
    if (status == WEFT_OK) {
        counted->filter = filter;
        counted->cells = (uint32_t)t->bytes;
        status = give_counted(load, table, counted);
    }
    free(filter);
    return status;
}

static weft_status load_waiting(const struct load *load, uint16_t table,
                                const struct weft_ckpt_tensor *ids,
                                struct weft_admission_counts *counted)
{
    const struct weft_ckpt_tensor *counts = tensor(load, table, "waiting_counts");
    uint64_t rows = ids->shape[0];
    if (counts == NULL || ids->bytes != rows * 8 || counts->bytes != rows * 4) {
        return odd(load, "counts of admission");
    }
    weft_status status = WEFT_OK;
    for (uint64_t at = 0, n; status == WEFT_OK && at < rows; at += n) {
        n = weft_min_u64(BATCH_BYTES / 8, rows - at);
        status = weft_ckpt_reader_get(load->reader, ids, at * 8, load->records, n * 8, load->error);
        if (status == WEFT_OK) {
            status = weft_ckpt_reader_get(load->reader, counts, at * 4, load->columns, n * 4,
                                          load->error);
        }
        if (status == WEFT_OK) {
            counted->ids = (const void *)load->records;
            counted->counts = (const void *)load->columns;
            counted->count = (uint32_t)n;
            status = give_counted(load, table, counted);
        }
    }
    return status;
}

/* Both are absent in checkpoints of earlier releases. */
static bool read_admission(const struct load *load, uint16_t table,
                           struct weft_admission_counts *counted)
{
    const char *key = note(load, table, "admission_key");
    const char *hand = note(load, table, "admission_hand");
    return (key == NULL || parse_bytes(key, counted->key, sizeof(counted->key))) &&
           (hand == NULL || sscanf(hand, "%" SCNu32, &counted->hand) == 1);
}

static weft_status load_counted(const struct load *load, uint16_t table)
{
    struct weft_admission_counts counted = {.count = 0};
    if (!read_admission(load, table, &counted)) {
        return odd(load, "counts of admission");
    }
    const struct weft_ckpt_tensor *filter = tensor(load, table, "waiting_filter");
    const struct weft_ckpt_tensor *ids = tensor(load, table, "waiting_ids");
    if (filter != NULL) {
        return load_filter(load, table, filter, &counted);
    }
    return ids != NULL ? load_waiting(load, table, ids, &counted)
                       : give_counted(load, table, &counted);
}

/* Checkpoints of earlier releases do not have it. */
static weft_status load_cut(struct load *load)
{
    const char *text = weft_ckpt_head_text(load->head, "cut");
    return text == NULL || sscanf(text, "%" SCNu64, &load->cut) == 1 ? WEFT_OK : odd(load, "cut");
}

/* ---- files ----------------------------------------------------------------------------------- */

static weft_status load_file(struct load *load, const char *directory,
                             const struct weft_ckpt_file *file, bool is_last)
{
    weft_status status = weft_ckpt_reader_open(directory, file, &load->reader, load->error);
    if (status != WEFT_OK) {
        return status;
    }
    load->head = weft_ckpt_reader_head(load->reader);
    for (uint32_t i = 0; status == WEFT_OK && i < load->head->tensor_count; i++) {
        unsigned t;
        int end = 0;
        if (sscanf(load->head->tensors[i].name, "table.%5u.ids%n", &t, &end) != 1 || end == 0 ||
            t > UINT16_MAX) {
            continue;
        }
        status = declare(load, (uint16_t)t);
        status = status == WEFT_OK ? load_replaces(load, (uint16_t)t) : status;
        status = status == WEFT_OK ? load_removed(load, (uint16_t)t) : status;
        status = status == WEFT_OK ? load_rows(load, (uint16_t)t) : status;
        /* The newest file's values are used. */
        status = status == WEFT_OK && is_last ? load_clocks(load, (uint16_t)t) : status;
        status = status == WEFT_OK && is_last ? load_counted(load, (uint16_t)t) : status;
    }
    if (status == WEFT_OK && is_last && load->same) {
        status = load_cut(load);
        status = status == WEFT_OK ? load_windows(load) : status;
    }
    weft_ckpt_reader_close(load->reader);
    return status;
}

weft_status weft_checkpoint_load(const char *directory, const struct weft_ckpt_set *set,
                                 struct weft_shard *shard, uint32_t number, uint32_t shards,
                                 uint32_t workers_max, weft_checkpoint_supply *supply,
                                 uint64_t *cut_p, struct weft_error *error)
{
    struct load load = {.shard = shard,
                        .workers_max = workers_max,
                        .same = set->shards == shards,
                        .shards = set->shards,
                        .supply = supply,
                        .error = error,
                        .records = malloc(BATCH_BYTES),
                        .columns = malloc(BATCH_BYTES)};
    weft_status status = WEFT_OK;
    if (load.records == NULL || load.columns == NULL) {
        status = weft_fail(error, WEFT_NOMEM, "no memory to read a checkpoint");
    }
    for (uint32_t i = 0; status == WEFT_OK && i < set->file_count; i++) {
        bool is_last = i + 1 == set->file_count || set->files[i + 1].shard != set->files[i].shard;
        if (!load.same || set->files[i].shard == number) {
            load.of_shard = set->files[i].shard;
            status = load_file(&load, directory, &set->files[i].file, is_last);
        }
    }
    free(load.records);
    free(load.columns);
    *cut_p = load.cut;
    return status;
}

/* ---- the clock of the order ------------------------------------------------------------------ */

/* BSP tables are cut at the clock of the order; without any, the first table that reaches it is
 * cut, and the others with it. */
static weft_status cut_clock(const struct load *load, uint32_t *clock_p)
{
    uint32_t bsp = 0, most = 0;
    bool any_bsp = false;
    for (uint32_t i = 0; i < load->head->tensor_count; i++) {
        unsigned t;
        int end = 0;
        if (sscanf(load->head->tensors[i].name, "table.%5u.ids%n", &t, &end) != 1 || end == 0 ||
            t > UINT16_MAX) {
            continue;
        }
        struct weft_table_spec spec;
        const char *text = note(load, t, "clock");
        uint32_t clock;
        if (text == NULL || sscanf(text, "%" SCNu32, &clock) != 1 ||
            !read_spec(load, (uint16_t)t, &spec)) {
            return odd(load, "tables");
        }
        bool is_bsp = spec.mode == WEFT_TABLE_BSP;
        any_bsp |= is_bsp;
        bsp = is_bsp && clock > bsp ? clock : bsp;
        most = clock > most ? clock : most;
    }
    *clock_p = any_bsp ? bsp : most;
    return WEFT_OK;
}

weft_status weft_checkpoint_ordered(const char *directory, const struct weft_ckpt_set *set,
                                    uint32_t *clock_p, struct weft_error *error)
{
    struct load load = {.error = error};
    weft_status status = WEFT_OK;
    *clock_p = set->has_clock ? set->clock : UINT32_MAX;
    for (uint32_t i = 0; status == WEFT_OK && !set->has_clock && i < set->file_count; i++) {
        uint32_t clock = 0;
        if (i + 1 < set->file_count && set->files[i + 1].shard == set->files[i].shard) {
            continue;
        }
        status = weft_ckpt_reader_open(directory, &set->files[i].file, &load.reader, error);
        if (status == WEFT_OK) {
            load.head = weft_ckpt_reader_head(load.reader);
            status = cut_clock(&load, &clock);
            weft_ckpt_reader_close(load.reader);
        }
        *clock_p = clock < *clock_p ? clock : *clock_p;
    }
    return status;
}
