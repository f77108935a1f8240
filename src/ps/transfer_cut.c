/* The contents of a transfer: sections as of the cut, then rows, written into pieces. */
#include "ps/transfer_internal.h"

#include "ps/table_internal.h"

#include "base/assert.h"

/* Longest body of a section of ranks or ids: several fit into a piece. */
enum { BODY_MAX = 16384 };

static_assert((int)BODY_MAX <= (int)WEFT_SECTION_BYTES_MAX);
static_assert((1 << 18) / 8 + (int)WEFT_SECTION_PARTIAL_BYTES <= (int)WEFT_SECTION_BYTES_MAX);

/* ---- as of the cut --------------------------------------------------------------------------- */

/* Size of sections with so many bytes, each at most BODY_MAX, with their headers and padding. */
static size_t room_for(size_t bytes)
{
    return bytes + (bytes / (BODY_MAX / 2) + 1) * (WEFT_SECTION_HEAD_BYTES + WEFT_PIECE_ELEM_BYTES);
}

size_t weft_transfer_head_max(const struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    const size_t words = WEFT_BITS_WORDS((size_t)config->chunks_max);
    const size_t of_table = room_for(WEFT_RPC_SPEC_BYTES) +
                            room_for(config->workers_max * sizeof(uint32_t)) +
                            room_for(config->workers_max * WEFT_SECTION_PUSHES_BYTES) +
                            room_for(WEFT_DIRTY_SET_REMOVED_MAX * sizeof(uint64_t));
    return room_for(config->workers_max * WEFT_SECTION_RANK_BYTES) + config->tables_max * of_table +
           shard->partial_count *
               (WEFT_SECTION_HEAD_BYTES + WEFT_SECTION_PARTIAL_BYTES + words * sizeof(uint64_t));
}

static void begin_section(struct weft_writer *w, const struct weft_section *section)
{
    bool fits = weft_section_begin(w, section);
    WEFT_ASSERT(fits); /* see weft_transfer_head_max */
}

/* For each rank, in sections that are not too long. */
static void write_ranks(struct weft_writer *w, const struct weft_shard *shard, uint16_t kind,
                        uint16_t table, uint32_t rank_bytes,
                        void (*write)(struct weft_writer *w, const struct weft_shard *shard,
                                      uint16_t table, uint32_t rank))
{
    const uint32_t most = BODY_MAX / rank_bytes;
    for (uint32_t first = 0, n; first < shard->config.workers_max; first += n) {
        n = (uint32_t)weft_min_u64(most, shard->config.workers_max - first);
        const struct weft_section section = {
            .kind = kind, .table = table, .count = n, .first = first, .bytes = n * rank_bytes};
        begin_section(w, &section);
        for (uint32_t i = 0; i < n; i++) {
            write(w, shard, table, first + i);
        }
        weft_section_end(w, section.bytes);
    }
}

static void write_rank(struct weft_writer *w, const struct weft_shard *shard, uint16_t table,
                       uint32_t rank)
{
    const struct shard_worker *worker = &shard->workers[rank];
    (void)table;
    weft_write_u64(w, worker->incarnation);
    weft_write_u64(w, worker->retired.floor);
    for (uint32_t i = 0; i < WEFT_RETIRED_MAX; i++) {
        weft_write_u64(w, worker->retired.incarnations[i]);
    }
}

static void write_clock(struct weft_writer *w, const struct weft_shard *shard, uint16_t table,
                        uint32_t rank)
{
    weft_write_u32(w, shard->clocks[(size_t)table * shard->config.workers_max + rank]);
}

static void write_pushes(struct weft_writer *w, const struct weft_shard *shard, uint16_t table,
                         uint32_t rank)
{
    weft_section_pushes_write(w, shard_pushes(shard, table, rank));
}

static void write_partials(struct weft_writer *w, const struct weft_shard *shard, uint16_t table)
{
    for (uint32_t i = 0; i < shard->partial_count; i++) {
        const struct shard_partial *partial = &shard->partials[i];
        if (!partial->live || partial->table != table || partial->number == 0) {
            continue;
        }
        const uint32_t words = (uint32_t)WEFT_BITS_WORDS((size_t)partial->chunks);
        const struct weft_section section = {
            .kind = WEFT_SECTION_PARTIAL,
            .table = table,
            .count = partial->chunks,
            .first = i / shard->partials_per_worker,
            .bytes = WEFT_SECTION_PARTIAL_BYTES + words * (uint32_t)sizeof(uint64_t),
        };
        begin_section(w, &section);
        weft_write_u64(w, partial->number);
        weft_write_u64(w, partial->chunk_elems);
        for (uint32_t k = 0; k < words; k++) {
            weft_write_u64(w, partial->mask[k]);
        }
    }
}

static void write_removed(struct weft_writer *w, const struct weft_dirty_set *dirty_set)
{
    const uint32_t most = BODY_MAX / sizeof(uint64_t);
    for (uint32_t first = 0, n; first < dirty_set->removed_cut; first += n) {
        n = (uint32_t)weft_min_u64(most, dirty_set->removed_cut - first);
        const struct weft_section section = {.kind = WEFT_SECTION_REMOVED,
                                             .table = dirty_set->table,
                                             .count = n,
                                             .bytes = n * (uint32_t)sizeof(uint64_t)};
        begin_section(w, &section);
        for (uint32_t i = 0; i < n; i++) {
            weft_write_u64(w, dirty_set->removed[first + i]);
        }
    }
}

void weft_transfer_cut_ranks(const struct weft_shard *shard, struct weft_writer *w)
{
    write_ranks(w, shard, WEFT_SECTION_RANKS, 0, WEFT_SECTION_RANK_BYTES, write_rank);
}

void weft_transfer_cut_table(struct weft_shard *shard, struct weft_writer *w, uint16_t t)
{
    struct weft_transfer *transfer = shard->transfer;
    struct weft_dirty_set *dirty_set = &transfer->dirty_sets[t];
    weft_dirty_set_cut(dirty_set, &shard->tables[t], !transfer->sent[t], &transfer->cow);
    weft_divergence_cut(&transfer->divergences[t]);
    transfer->in_cut[t] = true;
    const struct weft_section section = {.kind = WEFT_SECTION_TABLE,
                                         .table = t,
                                         .count = dirty_set->is_whole,
                                         .bytes = WEFT_RPC_SPEC_BYTES};
    begin_section(w, &section);
    weft_table_spec_pack(&shard->tables[t].spec, weft_write_take(w, WEFT_RPC_SPEC_BYTES));
    weft_section_end(w, section.bytes);
    write_ranks(w, shard, WEFT_SECTION_CLOCKS, t, sizeof(uint32_t), write_clock);
    write_ranks(w, shard, WEFT_SECTION_PUSHES, t, WEFT_SECTION_PUSHES_BYTES, write_pushes);
    write_partials(w, shard, t);
    write_removed(w, dirty_set);
}

/* ---- into pieces ----------------------------------------------------------------------------- */

static bool rows_are_out(const struct weft_shard *shard)
{
    const struct weft_transfer *transfer = shard->transfer;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (transfer->in_cut[t] &&
            transfer->dirty_sets[t].emitted < transfer->dirty_sets[t].cut_count) {
            return false;
        }
    }
    return true;
}

/* Write as many complete sections as fit. */
static void put_head(struct weft_transfer *transfer, struct weft_writer *w)
{
    while (transfer->head_at < transfer->head_bytes) {
        const uint8_t *section = transfer->head + transfer->head_at;
        size_t bytes = weft_get_u32(section + 12);
        bytes = WEFT_SECTION_HEAD_BYTES +
                (bytes + WEFT_PIECE_ELEM_BYTES - 1) / WEFT_PIECE_ELEM_BYTES * WEFT_PIECE_ELEM_BYTES;
        if (weft_writer_left(w) < bytes) {
            return;
        }
        weft_write_bytes(w, section, bytes);
        transfer->head_at += bytes;
    }
}

/* Take records of one table, copied ones first. Returns their number; 0: the next table's records
 * are longer than the room. */
static uint32_t take_rows(struct weft_shard *shard, uint8_t *out, size_t bytes, uint16_t *table_p)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer->cow.begin < transfer->cow.end) {
        return weft_cow_buffer_take(&transfer->cow, transfer->dirty_sets, out, bytes, table_p);
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        struct weft_dirty_set *dirty_set = &transfer->dirty_sets[t];
        if (transfer->in_cut[t] && dirty_set->emitted < dirty_set->cut_count) {
            *table_p = (uint16_t)t;
            uint64_t most = weft_min_u64(bytes / dirty_set->record_bytes, UINT32_MAX);
            return most == 0
                       ? 0
                       : weft_dirty_set_take(dirty_set, &shard->tables[t], out, (uint32_t)most);
        }
    }
    return 0;
}

static void put_rows(struct weft_shard *shard, struct weft_writer *w)
{
    while (weft_writer_left(w) > WEFT_SECTION_HEAD_BYTES + WEFT_PIECE_ELEM_BYTES) {
        uint16_t table = 0;
        uint8_t *body = w->at + WEFT_SECTION_HEAD_BYTES;
        size_t room = weft_writer_left(w) - WEFT_SECTION_HEAD_BYTES - WEFT_PIECE_ELEM_BYTES;
        uint32_t count = take_rows(shard, body, room, &table);
        if (count == 0) {
            return;
        }
        const struct weft_section section = {
            .kind = WEFT_SECTION_ROWS,
            .table = table,
            .count = count,
            .bytes = count * shard->transfer->dirty_sets[table].record_bytes};
        begin_section(w, &section);
        (void)weft_write_take(w, section.bytes);
        weft_section_end(w, section.bytes);
        shard->transfer->state.rows += count;
    }
}

bool weft_transfer_put(struct weft_shard *shard, struct weft_writer *w)
{
    struct weft_transfer *transfer = shard->transfer;
    put_head(transfer, w);
    if (transfer->head_at < transfer->head_bytes) {
        return false;
    }
    put_rows(shard, w);
    return rows_are_out(shard);
}
