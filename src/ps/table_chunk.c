/* Batch lookup of rows: for a chunk of a push, or for a pull. */
#include "base/prefetch.h"
#include "ps/table_index.h"
#include "ps/table_internal.h"

#include <string.h>

/* ---- in the order of creation ---------------------------------------------------------------- */

/* RUN_MIN: consecutive rows that pay for the lookup of the first. RUN_AHEAD: prefetch distance in
 * rows, because the hardware prefetcher stops at page boundaries. */
enum { RUN_MIN = 32, RUN_AHEAD = 32 };

/* Number of ids that match the row with this number and the following rows in its slab. */
static uint32_t run_of(const struct weft_table *table, uint32_t number, const uint64_t *ids,
                       uint32_t count, struct weft_table_row **rows_p)
{
    const bool expires = table->spec.eviction == WEFT_EVICTION_TTL;
    const uint32_t row_bytes = table->row_bytes, slab_rows = UINT32_C(1) << table->slab_rows_log2;
    uint8_t *at = (uint8_t *)table_row_at(table, number);
    uint32_t last = slab_rows - (number & (slab_rows - 1)), n = 0;
    last = (uint32_t)weft_min_u64(last, table->rows_begun - number);
    last = (uint32_t)weft_min_u64(last, count);
    for (; n < last; n++, at += row_bytes) {
        struct weft_table_row *row = (struct weft_table_row *)(void *)at;
        /* The address may be beyond the slab: it is only prefetched. */
        weft_prefetch_to_write((const void *)((uintptr_t)at + RUN_AHEAD * row_bytes));
        if (row->id != ids[n] || (row->number & TABLE_ROW_LIVE) == 0 ||
            (expires && table_row_expired(table, row))) {
            break;
        }
        rows_p[n] = row;
    }
    return n;
}

bool weft_table_lookup_run(const struct weft_table *table, const uint64_t *ids, uint32_t count,
                           struct weft_table_row **rows_p)
{
    if (table_is_dense(table)) {
        return false;
    }
    for (uint32_t done = 0, looks = 0; done < count; looks++) {
        uint32_t number =
            looks * RUN_MIN > done + RUN_MIN
                ? 0
                : weft_table_index_find(table, ids[done], weft_table_hash(table, ids[done]));
        uint32_t run =
            number == 0 ? 0 : run_of(table, number - 1, ids + done, count - done, rows_p + done);
        if (run == 0) {
            return false;
        }
        done += run;
    }
    return true;
}

/* ---- in any order ---------------------------------------------------------------------------- */

/* GROUP: ids whose cache misses overlap, first in the index, then in the rows. PULL_PIECE: ids of a
 * pull processed at a time. */
enum { GROUP = 32, PULL_PIECE = 512 };

/* The candidate rows of a group, whose tags match; their ids are not compared yet. NULL = none.
 * Prefetches their first cache lines, and the index lines of the next group. */
static void probe_group(const struct weft_table *table, const uint64_t *hashes, uint32_t count,
                        uint32_t left, struct weft_table_row **rows_p)
{
    const struct weft_table_bucket *index = table->index;
    const uint32_t mask = table->index_mask;
    for (uint32_t i = 0; i < count; i++) {
        if (i + GROUP < left) {
            weft_prefetch(&index[(uint32_t)hashes[i + GROUP] & mask]);
        }
        const struct weft_table_bucket *bucket = &index[(uint32_t)hashes[i] & mask];
        uint32_t match = table_bucket_match(bucket, table_tag(hashes[i]));
        rows_p[i] = NULL;
        if (match != 0) {
            rows_p[i] = table_row_at(table, bucket->rows[__builtin_ctz(match)] - 1);
            weft_prefetch(rows_p[i]);
        }
    }
}

/* Prefetch the index lines of the first group. */
static void probe_begin(const struct weft_table *table, const uint64_t *hashes, uint32_t count)
{
    for (uint32_t i = 0; i < GROUP && i < count; i++) {
        weft_prefetch(table_home(table, hashes[i]));
    }
}

/* Does the candidate row have this id? False is not conclusive. A row removed meanwhile may still
 * contain its id. */
static inline bool probe_hit(const struct weft_table *table, const struct weft_table_row *row,
                             uint64_t id, bool expires)
{
    return row != NULL && row->id == id && (row->number & TABLE_ROW_LIVE) != 0 &&
           !(expires && table_row_expired(table, row));
}

static void unpin(struct weft_table_row **rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] != NULL) {
            rows[i]->number &= ~TABLE_ROW_PINNED;
        }
    }
}

bool weft_table_obtain_chunk(struct weft_table *table, const uint64_t *ids, const uint64_t *hashes,
                             uint32_t first, uint32_t count, struct weft_table_row **rows_p)
{
    const bool pins = table->spec.eviction != WEFT_EVICTION_NONE, sparse = !table_is_dense(table);
    const bool expires = table->spec.eviction == WEFT_EVICTION_TTL;
    bool full = false;
    uint32_t i = 0;
    if (sparse) {
        probe_begin(table, hashes, count);
    }
    for (; i < count && !full; i++) {
        if (i % GROUP == 0 && sparse) {
            probe_group(table, hashes + i, (uint32_t)weft_min_u64(GROUP, count - i), count - i,
                        rows_p + i);
        }
        if (!sparse || !probe_hit(table, rows_p[i], ids[i], expires)) {
            bool is_first = (first + i) % table->blocks == 0;
            rows_p[i] = weft_table_obtain_hashed(table, ids[i], hashes[i], true, is_first, &full);
        }
        if (pins && rows_p[i] != NULL) {
            rows_p[i]->number |= TABLE_ROW_PINNED;
        }
    }
    if (pins) {
        unpin(rows_p, i);
    }
    return !full;
}

/* Copies with a compile-time length, for common lengths. */
static void copy_weights(float *out, const float *weights, uint32_t dim)
{
    if (dim == 1) {
        *out = *weights;
    } else if (dim == 16) {
        memcpy(out, weights, 16 * sizeof(*out));
    } else {
        memcpy(out, weights, dim * sizeof(*out));
    }
}

/* Copy the weights of id to out; returns 1 if the row does not exist. */
static inline uint32_t read_row(struct weft_table *table, struct weft_table_row *row, uint64_t id,
                                float *out, size_t stride)
{
    const uint32_t dim = table->spec.dim;
    if (stride > dim) {
        memset(out + dim, 0, (stride - dim) * sizeof(*out));
    }
    if (row == NULL) {
        weft_table_fill_initial(&table->spec, id, out);
        return 1;
    }
    copy_weights(out, table_weights(row), dim);
    row->clock = table->spec.eviction == WEFT_EVICTION_LRU ? table->now : row->clock;
    return 0;
}

static uint32_t read_any(struct weft_table *table, const uint64_t *ids, uint32_t count, float *out,
                         size_t stride)
{
    const bool sparse = !table_is_dense(table);
    const struct weft_hash_key key = table->index_key; /* a copy, so that no store below may alias
                                                        * it */
    uint64_t hashes[2 * GROUP];
    struct weft_table_row *probes[GROUP];
    uint32_t absent = 0;
    for (uint32_t i = 0; i < count; i++, out += stride) {
        if (i % GROUP == 0 && sparse) {
            /* Hashes of this group and of the next; those of this group exist already, except at
             * the start. */
            uint32_t from = i == 0 ? 0 : GROUP, n = (uint32_t)weft_min_u64(2 * GROUP, count - i);
            memcpy(hashes, hashes + GROUP, i == 0 ? 0 : GROUP * sizeof(*hashes));
            for (uint32_t k = from; k < n; k++) {
                hashes[k] = weft_hash_keyed(&key, ids[i + k]);
            }
            if (i == 0) {
                probe_begin(table, hashes, n);
            }
            probe_group(table, hashes, (uint32_t)weft_min_u64(GROUP, n), n, probes);
        }
        struct weft_table_row *row = sparse ? probes[i % GROUP] : NULL;
        if (!probe_hit(table, row, ids[i], true)) {
            row = weft_table_find_hashed(table, ids[i], weft_hash_keyed(&key, ids[i]));
        }
        absent += read_row(table, row, ids[i], out, stride);
    }
    return absent;
}

static uint32_t read_rows(struct weft_table *table, const uint64_t *ids, uint32_t count, float *out,
                          size_t stride)
{
    struct weft_table_row *rows[PULL_PIECE];
    for (uint32_t first = 0, n; first < count; first += n, out += n * stride) {
        n = (uint32_t)weft_min_u64(PULL_PIECE, count - first);
        if (!weft_table_lookup_run(table, ids + first, n, rows)) {
            /* The following rows are unlikely to be in order, and each attempt costs two cache
             * misses. */
            return read_any(table, ids + first, count - first, out, stride);
        }
        for (uint32_t i = 0; i < n; i++) {
            (void)read_row(table, rows[i], ids[first + i], out + i * stride, stride);
        }
    }
    return 0;
}

static void read_by_hook(const struct weft_table *table, const uint64_t *ids, uint32_t count,
                         float *out, size_t stride)
{
    for (uint32_t i = 0; i < count; i++, out += stride) {
        const struct weft_table_row *row = weft_table_find(table, ids[i]);
        const struct weft_row_read read = {
            .id = ids[i],
            .table = table->number,
            .count = table->spec.dim,
            .values = out,
            .slots = row != NULL ? table_slots(table, row) : NULL,
            .slots_count = table->optimizer->slots,
            .stride = table->spec.dim,
        };
        table->hooks->read(table->hooks->arg, &read);
    }
}

uint32_t weft_table_read_all(struct weft_table *table, const uint64_t *ids, uint32_t count,
                             float *out, size_t stride)
{
    uint32_t absent = read_rows(table, ids, count, out, stride);
    if (table->hooks != NULL && table->hooks->read != NULL) {
        read_by_hook(table, ids, count, out, stride);
    }
    return absent;
}
