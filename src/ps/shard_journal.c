/* Writes a shard's journal. The replay is in shard_journal_replay.c.
 *
 * A full journal still leads from the last valid checkpoint to an earlier state of the shard. This
 * is not discarded for a new cut, which may fail: records after the cut are written to a reserve,
 * after a GAP. If the new checkpoint is restored, the replay skips the GAP and all records before
 * it; if an older one is restored, the journal ends at the GAP. LIFE may be written to the reserve,
 * too: a shard that restarts with a full journal must write it before it knows whether any record
 * will follow. Two LIFE records are never adjacent, so repeated deaths there use no more of the
 * reserve.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#include "ps/shard_journal_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static bool writes(const struct weft_shard *shard)
{
    const struct weft_shard_journal *journal = shard->journal;
    return journal != NULL && !journal->full && !journal->replaying && !journal->failed;
}

static bool may_use_reserve(const struct weft_shard_journal *journal, uint16_t type)
{
    return type == RECORD_GAP || type == RECORD_MARK || type == RECORD_LIFE || journal->gapped;
}

/* False: it does not fit without the reserve. */
static bool append(struct weft_shard *shard, const struct weft_ring_record *head, const void *body,
                   size_t body_bytes, const void *data, size_t data_bytes)
{
    struct weft_shard_journal *journal = shard->journal;
    uint64_t bytes = sizeof(*head) + body_bytes + data_bytes + WEFT_RING_UNIT;
    if (journal->failed) {
        return false;
    }
    bool may = may_use_reserve(journal, head->type) || weft_ring_spares(&journal->ring, bytes);
    if (!may || !weft_ring_append(&journal->ring, head, body, body_bytes, data, data_bytes)) {
        shard->counters.journal_full += !journal->full;
        journal->full = true;
        return false;
    }
    shard->counters.journal_records++;
    return true;
}

static void append_value(struct weft_shard *shard, enum record_type type, uint16_t table,
                         uint32_t rank, uint64_t value)
{
    const struct weft_ring_record head = {.type = type, .table = table, .rank = rank};
    const struct value_body body = {.value = value};
    if (writes(shard)) {
        (void)append(shard, &head, &body, sizeof(body), NULL, 0);
    }
}

void weft_shard_journal_closed(struct weft_shard *shard, uint16_t table, uint32_t rank,
                               uint64_t number)
{
    append_value(shard, RECORD_CLOSED, table, rank, number);
}

void weft_shard_journal_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              uint32_t clock)
{
    append_value(shard, RECORD_CLOCK, table, rank, clock);
}

void weft_shard_journal_renewed(struct weft_shard *shard, uint32_t rank, uint64_t incarnation)
{
    append_value(shard, RECORD_RENEWED, 0, rank, incarnation);
}

void weft_shard_journal_left(struct weft_shard *shard, uint32_t rank)
{
    append_value(shard, RECORD_LEFT, 0, rank, 0);
}

void weft_shard_journal_write_life(struct weft_shard *shard)
{
    append_value(shard, RECORD_LIFE, 0, 0, 0);
}

enum { CLOCKS_APART = 8 };

/* A wrapped ring cannot grow before the wrapped part is freed. */
static bool is_tight(const struct weft_shard_journal *journal)
{
    const struct weft_ring *ring = &journal->ring;
    uint64_t used = weft_ring_used(ring);
    bool wrapped = ring->end.at <= ring->begin.at && used > 0;
    return journal->full || used > (wrapped ? ring->bytes : ring->bytes_max) / 2;
}

/* Request a checkpoint to free room. A checkpoint is valid only if all shards are cut at the same
 * clock, and each shard requests independently. So they request clocks of a common grid, usually
 * the same one. */
static void ask_for_cut(struct weft_shard *shard, const struct shard_slot *slot)
{
    const struct weft_shard_journal *journal = shard->journal;
    if (journal == NULL || journal->replaying || !is_tight(journal)) {
        return;
    }
    size_t at = (size_t)slot->table * shard->config.workers_max + slot->worker;
    uint64_t clock = weft_min_u64(slot->clock, (uint64_t)shard->clocks[at] + 1);
    if (shard->config.shards > 1) {
        clock = weft_min_u64((clock + CLOCKS_APART - 1) / CLOCKS_APART * CLOCKS_APART,
                             UINT32_MAX - CLOCKS_APART);
    }
    weft_shard_want_cut(shard, (uint32_t)clock);
}

void weft_shard_journal_watch(struct weft_shard *shard, struct weft_table *table)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal == NULL) {
        return;
    }
    journal->before = table->counters;
    if (journal->replaying) {
        table->replay.is_on = true;
        for (uint32_t i = 0; i < journal->evictions.count; i++) {
            uint64_t id;
            memcpy(&id, journal->evicted_at + i * sizeof(id), sizeof(id));
            weft_table_evict(table, id);
        }
        return;
    }
    journal->evictions.count = 0;
    table->evictions = &journal->evictions;
}

void weft_shard_journal_unwatch(struct weft_shard *shard, struct weft_table *table)
{
    (void)shard;
    table->evictions = NULL;
    table->replay = (struct weft_table_replay){.is_on = false};
}

/* The bytes of the chunk as in its record; each record can be replayed alone. */
static const void *chunk_bytes(struct weft_shard *shard, const struct weft_msg_event *event,
                               uint32_t listed, size_t *bytes_p)
{
    uint8_t *copy = shard->journal->listed;
    *bytes_p = (size_t)event->elems * event->elem_bytes;
    if (listed == 0) {
        return event->data;
    }
    WEFT_ASSERT(*bytes_p <= WEFT_PS_PACKED_CHUNK_BYTES && listed <= WEFT_PS_CHUNK_ROWS_MAX);
    memcpy(copy, event->data, *bytes_p);
    *bytes_p += weft_shard_list_write(shard->chunk_ids, listed, copy + *bytes_p);
    return copy;
}

static void append_chunk(struct weft_shard *shard, enum record_type type,
                         const struct shard_slot *slot, const struct weft_msg_event *event,
                         uint32_t listed, uint32_t created)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_record head = {.type = type, .table = slot->table, .rank = slot->worker};
    const struct chunk_body body = {.number = slot->number,
                                    .clock = slot->clock,
                                    .chunk = event->chunk,
                                    .chunks = event->chunks,
                                    .total = event->total,
                                    .elems = event->elems,
                                    .elem_bytes = event->elem_bytes,
                                    .chunk_elems = event->chunk_elems};
    size_t bytes;
    const void *data = chunk_bytes(shard, event, listed, &bytes);
    if (type == RECORD_CHUNK) {
        (void)append(shard, &head, &body, sizeof(body), data, bytes);
        return;
    }
    const struct evicting_body evicting = {.evicted = journal->evictions.count, .created = created};
    const uint64_t ids_bytes = journal_evicted_bytes(journal->evictions.count);
    const size_t used = journal->evictions.count * sizeof(uint64_t);
    memcpy(journal->evicting, &body, sizeof(body));
    memcpy(journal->evicting + sizeof(body), &evicting, sizeof(evicting));
    memset(journal->evicting + JOURNAL_EVICTING_HEAD + used, 0, ids_bytes - used);
    (void)append(shard, &head, journal->evicting, JOURNAL_EVICTING_HEAD + ids_bytes, data, bytes);
}

void weft_shard_journal_chunk(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_msg_event *event, uint32_t listed)
{
    if (writes(shard)) {
        append_chunk(shard, shard->journal->evictions.count > 0 ? RECORD_EVICTING : RECORD_CHUNK,
                     slot, event, listed, 0);
    }
    ask_for_cut(shard, slot);
}

void weft_shard_journal_refused(struct weft_shard *shard, const struct shard_slot *slot,
                                const struct weft_msg_event *event, uint32_t listed)
{
    const struct weft_table *table = &shard->tables[slot->table];
    if (!writes(shard)) {
        return;
    }
    const struct weft_table_counters *before = &shard->journal->before;
    const uint64_t created = table->counters.rows_created - before->rows_created;
    /* Otherwise it has changed nothing. */
    if (created > 0 || shard->journal->evictions.count > 0 ||
        table->spec.admission != WEFT_ADMISSION_ALL) {
        append_chunk(shard, RECORD_REFUSED, slot, event, listed, (uint32_t)created);
        ask_for_cut(shard, slot);
    }
}

void weft_shard_journal_aggregate(struct weft_shard *shard, const struct weft_rpc_tag *tag,
                                  const uint8_t *bytes, size_t count,
                                  const struct weft_aggregate_view *view)
{
    const struct weft_ring_record head = {.type = RECORD_AGGREGATE, .table = tag->table};
    const struct value_body body = {.value = tag->number, .bytes = count};
    const struct shard_slot first = {.table = tag->table,
                                     .clock = tag->number,
                                     .worker = weft_aggregate_member_at(view, 0).rank};
    if (writes(shard)) {
        (void)append(shard, &head, &body, sizeof(body), bytes, count);
    }
    ask_for_cut(shard, &first);
}

void weft_shard_journal_table(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              const uint8_t *spec, const uint8_t *pushes)
{
    const struct weft_ring_record head = {.type = RECORD_TABLE, .table = table, .rank = rank};
    const struct weft_admission *admission = &shard->tables[table].admission;
    struct table_body body = {.resumes = pushes != NULL};
    if (!writes(shard)) {
        return;
    }
    memcpy(body.spec, spec, sizeof(body.spec));
    memcpy(body.admission_key, admission->key, sizeof(body.admission_key));
    if (pushes != NULL) {
        memcpy(body.pushes, pushes, sizeof(body.pushes));
    }
    (void)append(shard, &head, &body,
                 admission->kind == WEFT_ADMISSION_ALL ? offsetof(struct table_body, admission_key)
                                                       : sizeof(body),
                 NULL, 0);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Continue after the existing records, unless they contain a kept cut: it may soon be valid, and
 * then the next cut has room. */
static void go_on_behind(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_record head = {.type = RECORD_GAP};
    if (journal->gapped && journal->gap_kept) {
        return;
    }
    if (journal->gapped) { /* the GAP of a cut that failed */
        weft_ring_cut_back(&journal->ring, journal->gap);
    }
    journal->gap = journal->ring.end;
    journal->gapped = append(shard, &head, NULL, 0, NULL, 0);
    journal->gap_kept = false;
    journal->full = !journal->gapped;
}

void weft_shard_journal_cut_begin(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal == NULL) {
        return;
    }
    memset(journal->mark, 0, journal->mark_words * sizeof(*journal->mark));
    if (journal->full && !journal->failed) {
        go_on_behind(shard);
    }
}

void weft_shard_journal_cut(struct weft_shard *shard, uint16_t table)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal == NULL) {
        return;
    }
    journal->cut[table] = journal->ring.end;
    uint64_t *mark = journal_mark_of(journal, table);
    mark[0] = journal->ring.end.position;
    for (uint32_t w = 0; w < shard->config.workers_max; w++) {
        if (shard->members[(size_t)table * shard->config.workers_max + w]) {
            weft_bits_set(mark + 1, w);
        }
    }
}

void weft_shard_journal_write_mark(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut)
{
    const struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_record head = {.type = RECORD_MARK};
    const struct mark_body body = {.checkpoint = checkpoint,
                                   .tables = shard->config.tables_max,
                                   .words = journal->words,
                                   .cut = cut};
    /* Also when it is full: it contains all records written after the cut. */
    (void)append(shard, &head, &body, sizeof(body), journal->mark,
                 journal->mark_words * sizeof(*journal->mark));
}

void weft_shard_journal_cut_ready(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut)
{
    if (shard->journal != NULL) {
        weft_shard_journal_write_mark(shard, checkpoint, cut);
    }
}

void weft_shard_journal_cut_kept(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal == NULL) {
        return;
    }
    journal->kept = journal->ring.end;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (shard->snapshot->view.tables[t].present &&
            journal->cut[t].position < journal->kept.position) {
            journal->kept = journal->cut[t];
        }
    }
    journal->kept_any = true;
    journal->gap_kept = journal->gapped;
}

void weft_shard_journal_cut_failed(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal != NULL && journal->gapped && !journal->gap_kept) {
        journal->full = true; /* the records after the gap continue from no checkpoint */
    }
}

void weft_shard_journal_durable(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal != NULL && !journal->failed && journal->kept_any &&
        journal->kept.position > journal->ring.begin.position) {
        weft_ring_drop(&journal->ring, journal->kept);
        journal->gapped &= journal->ring.begin.position <= journal->gap.position;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

bool weft_shard_journal_wants(const struct weft_shard *shard)
{
    const struct weft_shard_journal *journal = shard->journal;
    return weft_shard_journal_stalls(shard) || (writes(shard) && weft_ring_wants(&journal->ring));
}

void weft_shard_journal_grow(struct weft_shard *shard, uint64_t bytes)
{
    struct weft_ring *ring = &shard->journal->ring;
    WEFT_ASSERT(bytes >= ring->bytes && bytes <= ring->bytes_max && bytes % WEFT_RING_UNIT == 0);
    ring->bytes = bytes;
}

void weft_shard_journal_fail(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal != NULL && !journal->failed) {
        journal->failed = true;
        journal->full = false;
        shard->counters.journal_failed++;
    }
}

bool weft_shard_journal_is_full(const struct weft_shard *shard)
{
    return shard->journal != NULL && shard->journal->full;
}

uint64_t weft_shard_journal_used(const struct weft_shard *shard)
{
    return shard->journal != NULL ? weft_ring_used(&shard->journal->ring) : 0;
}

uint64_t weft_shard_journal_changes(const struct weft_shard *shard)
{
    const struct weft_shard_journal *journal = shard->journal;
    return journal != NULL ? journal->ring.begin_seq + journal->ring.end_seq : 0;
}

uint64_t weft_shard_journal_frees(const struct weft_shard *shard)
{
    return shard->journal != NULL ? shard->journal->ring.begin_seq : 0;
}
