/* Opens a shard's journal, and replays that of the previous process.
 *
 * The replay calls the same functions as the original requests (weft_shard_push_take,
 * weft_shard_clock_take, ...), so each request has a single implementation. A checkpoint cuts each
 * table at its own instant. MARK contains the journal position of each of these; earlier records of
 * a table are skipped.
 *
 * The journal of the previous process is only read: that process may be frozen, and continue
 * writing when it resumes. Records that the checkpoint may lack are copied into the new journal as
 * they are replayed, at their original positions, so that MARK stays valid. After the replay the
 * new journal is complete.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#include "ps/shard_journal_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { LIFE_BYTES = sizeof(struct weft_ring_record) + sizeof(struct value_body) };

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_mark_of(const struct weft_shard *shard, const struct weft_ring_record *record,
                       uint64_t checkpoint, uint64_t cut)
{
    const struct weft_shard_journal *journal = shard->journal;
    size_t data_bytes = journal->mark_words * sizeof(*journal->mark);
    struct mark_body body;
    if (record->type != RECORD_MARK ||
        record->bytes < sizeof(*record) + sizeof(body) + data_bytes) {
        return false;
    }
    memcpy(&body, record + 1, sizeof(body));
    return body.checkpoint == checkpoint && (cut == 0 || body.cut == cut) &&
           body.tables == shard->config.tables_max && body.words == journal->words;
}

/* Read the last MARK of this checkpoint whose positions all still exist into journal->mark; also
 * finds the end of the source. A MARK of an abandoned cut with the same number is not that of the
 * checkpoint. */
static bool find_mark(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_reader *source = &journal->source;
    const struct weft_ring_record *record;
    uint32_t life = 0;
    bool found = false;
    journal->last = source->begin;
    while ((record = weft_ring_next(source, &life, &journal->last)) != NULL) {
        if (!is_mark_of(shard, record, checkpoint, cut)) {
            continue;
        }
        memcpy(journal->mark, (const uint8_t *)(record + 1) + sizeof(struct mark_body),
               journal->mark_words * sizeof(*journal->mark));
        found = true;
        for (uint32_t t = 0; t < shard->config.tables_max; t++) {
            uint64_t from = journal_mark_of(journal, t)[0];
            found &= from == 0 || (from >= source->begin.position && from <= record->position &&
                                   from % WEFT_RING_UNIT == 0);
        }
    }
    return found;
}

/* Report how much was written after the last readable record. A source of version 2 does not
 * contain its last position: no damage is reported. */
static void report_damage(struct weft_shard_journal *journal)
{
    const struct weft_ring_reader *source = &journal->source;
    struct weft_shard_journal_report *report = &journal->report;
    bool short_of = source->has_last && journal->last.position < source->last.position;
    report->end_unknown = !source->has_last && source->version >= WEFT_RING_VERSION_PLAIN;
    report->damaged = short_of || report->end_unknown;
    if (short_of) {
        report->lost_bytes = source->last.position - journal->last.position;
        report->lost_records = source->last.records > journal->last.records
                                   ? source->last.records - journal->last.records
                                   : 0;
    }
}

/* No source, or it does not continue from the checkpoint: start an empty journal. */
static void begin_anew(struct weft_shard *shard, uint64_t checkpoint, uint64_t cut)
{
    struct weft_shard_journal *journal = shard->journal;
    memset(journal->mark, 0, journal->mark_words * sizeof(*journal->mark));
    weft_shard_journal_write_mark(shard, checkpoint, cut);
}

static void members_from_mark(struct weft_shard *shard)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const uint64_t *bits = journal_mark_of(shard->journal, t) + 1;
        for (uint32_t w = 0; w < shard->config.workers_max; w++) {
            shard->members[(size_t)t * shard->config.workers_max + w] = weft_bits_test(bits, w);
        }
        if (shard->tables[t].declared) {
            weft_shard_members_average(shard, (uint16_t)t);
        }
    }
}

/* The first position that the checkpoint may lack. A table without a position was created after the
 * cut of the others, or there was no cut. */
static uint64_t needed_from(const struct weft_shard *shard)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        uint64_t from = journal_mark_of(shard->journal, t)[0];
        first = from > 0 ? weft_min_u64(first, from) : first;
    }
    return first == UINT64_MAX ? 0 : first;
}

static void journal_free(struct weft_shard_journal *journal)
{
    free(journal->cut);
    free(journal->mark);
    free(journal->listed);
    free(journal->evicting);
    free(journal);
}

static struct weft_shard_journal *journal_new(const struct weft_shard_config *config)
{
    struct weft_shard_journal *journal = calloc(1, sizeof(*journal));
    if (journal == NULL) {
        return NULL;
    }
    journal->words = WEFT_BITS_WORDS((size_t)config->workers_max);
    journal->mark_words = config->tables_max * (1 + journal->words);
    journal->cut = calloc(config->tables_max, sizeof(*journal->cut));
    journal->mark = calloc(journal->mark_words, sizeof(*journal->mark));
    journal->listed = malloc(JOURNAL_LISTED_BYTES);
    journal->evicting = malloc(JOURNAL_EVICTING_BYTES);
    if (journal->cut == NULL || journal->mark == NULL || journal->listed == NULL ||
        journal->evicting == NULL) {
        journal_free(journal);
        return NULL;
    }
    journal->evictions.ids = (uint64_t *)(void *)(journal->evicting + JOURNAL_EVICTING_HEAD);
    return journal;
}

void weft_shard_journal_fini(struct weft_shard *shard)
{
    if (shard->journal != NULL) {
        journal_free(shard->journal);
        shard->journal = NULL;
    }
}

/* The records of the source that the checkpoint may lack must fit, and a WRAP after them. */
static bool has_room(const struct weft_shard_journal *journal, uint64_t from, uint64_t bytes_max)
{
    uint64_t bytes = journal->last.position - weft_min_u64(from, journal->last.position);
    return bytes + WEFT_RING_HEAD_BYTES + WEFT_RING_UNIT <= bytes_max;
}

static weft_status open_source(struct weft_shard *shard,
                               const struct weft_shard_journal_config *config,
                               const struct weft_ring_owner *owner)
{
    struct weft_shard_journal *journal = shard->journal;
    weft_status status =
        weft_ring_read(&journal->source, config->source, config->source_bytes, owner);
    if (status != WEFT_OK) {
        return status;
    }
    bool used = find_mark(shard, config->checkpoint, config->cut);
    report_damage(journal);
    journal->report.unused_records =
        used ? 0 : journal->last.records - journal->source.begin.records;
    journal->needed = used ? weft_max_u64(needed_from(shard), journal->source.begin.position) : 0;
    if (used && !has_room(journal, journal->needed, config->bytes_max)) {
        return WEFT_INVALID;
    }
    journal->replaying = journal->report.used = used;
    return WEFT_OK;
}

weft_status weft_shard_journal_init(struct weft_shard *shard,
                                    const struct weft_shard_journal_config *config)
{
    const struct weft_ring_owner owner = {
        .shard = shard->config.shard, .shards = shard->config.shards, .job = config->job};
    if (shard->snapshot == NULL || shard->journal != NULL) {
        return WEFT_STATE;
    }
    struct weft_shard_journal *journal = journal_new(&shard->config);
    if (journal == NULL) {
        return WEFT_NOMEM;
    }
    shard->journal = journal;
    weft_status status = config->source != NULL ? open_source(shard, config, &owner) : WEFT_OK;
    if (status != WEFT_OK) {
        weft_shard_journal_fini(shard);
        return status;
    }
    uint64_t lineage = journal->source.lineage != 0 ? journal->source.lineage : config->lineage;
    weft_ring_make(&journal->ring, config->memory, config->bytes, config->bytes_max, &owner,
                   lineage, journal->needed);
    if (!journal->replaying) {
        begin_anew(shard, config->checkpoint, config->cut);
        return WEFT_OK;
    }
    members_from_mark(shard);
    journal->cursor = journal->source.begin;
    return WEFT_OK;
}

/* ---- replay ---------------------------------------------------------------------------------- */

bool weft_shard_journal_passes_over(const struct weft_shard *shard, uint16_t table)
{
    const struct weft_shard_journal *journal = shard->journal;
    return journal != NULL && journal->replaying &&
           journal->cursor.position < journal_mark_of(journal, table)[0];
}

/* A record of a chunk. */
struct chunk_record {
    struct weft_shard_replayed push;
    const uint8_t *evicted_at; /* (evicted,) ids */
    uint32_t evicted;
    uint32_t created;
};

static bool is_chunk(const struct weft_ring_record *record)
{
    return record->type == RECORD_CHUNK || record->type == RECORD_EVICTING ||
           record->type == RECORD_REFUSED;
}

/* False: a record that no shard writes. */
static bool chunk_read(const struct weft_ring_record *record, struct chunk_record *chunk_p)
{
    const uint8_t *at = (const uint8_t *)(record + 1);
    uint64_t room = record->bytes - sizeof(*record);
    struct chunk_body body;
    struct evicting_body evicting = {.evicted = 0};
    if (room < sizeof(body)) {
        return false;
    }
    memcpy(&body, at, sizeof(body));
    at += sizeof(body);
    room -= sizeof(body);
    if (record->type != RECORD_CHUNK) {
        if (room < sizeof(evicting)) {
            return false;
        }
        memcpy(&evicting, at, sizeof(evicting));
        at += sizeof(evicting);
        room -= sizeof(evicting);
    }
    const uint64_t ids_bytes = journal_evicted_bytes(evicting.evicted);
    const uint64_t bytes = (uint64_t)body.elems * body.elem_bytes;
    if (ids_bytes > room || bytes > room - ids_bytes) {
        return false;
    }
    *chunk_p = (struct chunk_record){.push = {.table = record->table,
                                              .worker = record->rank,
                                              .number = body.number,
                                              .clock = body.clock,
                                              .event = {.chunk = body.chunk,
                                                        .chunks = body.chunks,
                                                        .total = body.total,
                                                        .elems = body.elems,
                                                        .elem_bytes = body.elem_bytes,
                                                        .chunk_elems = body.chunk_elems,
                                                        .data = at + ids_bytes},
                                              .behind_bytes = room - ids_bytes - bytes},
                                     .evicted_at = at,
                                     .evicted = evicting.evicted,
                                     .created = evicting.created};
    return true;
}

static bool replay_chunk(struct weft_shard *shard, const struct weft_ring_record *record)
{
    struct weft_shard_journal *journal = shard->journal;
    struct weft_table *table = shard_table(shard, record->table);
    struct chunk_record chunk;
    if (!chunk_read(record, &chunk)) {
        return false;
    }
    journal->evicted_at = chunk.evicted_at;
    journal->evictions.count = chunk.evicted;
    if (record->type == RECORD_REFUSED) {
        table->replay.is_bounded = true;
        table->replay.rows_left = chunk.created;
    }
    bool done = record->type == RECORD_REFUSED ? weft_shard_push_replay_refused(shard, &chunk.push)
                                               : weft_shard_push_replay(shard, &chunk.push);
    table->replay = (struct weft_table_replay){.is_on = false};
    journal->evictions.count = 0;
    return done;
}

static bool replay_table(struct weft_shard *shard, const struct weft_ring_record *record)
{
    struct table_body body = {.resumes = 0};
    struct weft_table_spec spec;
    struct weft_rpc_pushes theirs;
    if (record->bytes < sizeof(*record) + offsetof(struct table_body, admission_key)) {
        return false;
    }
    memcpy(&body, record + 1, weft_min_u64(sizeof(body), record->bytes - sizeof(*record)));
    if (weft_table_spec_unpack(record->table, body.spec, sizeof(body.spec), &spec) != WEFT_OK ||
        (body.resumes != 0 && weft_rpc_pushes_unpack(body.pushes, &theirs) != WEFT_OK)) {
        return false;
    }
    bool is_new = !shard->tables[record->table].declared;
    if (weft_shard_table_open(shard, &spec, record->rank) != WEFT_RPC_OK) {
        return false;
    }
    /* Restore the key, so that the same ids are admitted and evicted as in the first run. */
    return (!is_new || weft_admission_restore_key(&shard->tables[record->table].admission,
                                                  body.admission_key) == WEFT_OK) &&
           (body.resumes == 0 ||
            weft_shard_dedup_resume(shard, record->table, record->rank, &theirs) == WEFT_RPC_OK);
}

static uint64_t value_of(const struct weft_ring_record *record)
{
    struct value_body body = {.value = 0};
    if (record->bytes >= sizeof(*record) + sizeof(body)) {
        memcpy(&body, record + 1, sizeof(body));
    }
    return body.value;
}

/* The message in an AGGREGATE record; NULL if the record is too short for it. */
static const uint8_t *message_of(const struct weft_ring_record *record, struct value_body *body_p)
{
    const size_t room = record->bytes - sizeof(*record);
    if (room < sizeof(*body_p)) {
        return NULL;
    }
    memcpy(body_p, record + 1, sizeof(*body_p));
    return body_p->bytes <= room - sizeof(*body_p)
               ? (const uint8_t *)(record + 1) + sizeof(*body_p)
               : NULL;
}

static bool replay_aggregate(struct weft_shard *shard, const struct weft_ring_record *record)
{
    struct value_body body;
    const uint8_t *bytes = message_of(record, &body);
    return bytes != NULL && body.value <= UINT32_MAX &&
           weft_shard_aggregate_replay(shard, record->table, (uint32_t)body.value, bytes,
                                       body.bytes);
}

/* Replay a record of one table; the table is declared, or this record declares it. */
static bool replay_in_table(struct weft_shard *shard, const struct weft_ring_record *record)
{
    uint16_t table = record->table;
    if (table >= shard->config.tables_max || record->rank >= shard->config.workers_max) {
        return false;
    }
    if (weft_shard_journal_passes_over(shard, table)) {
        return true;
    }
    if (record->type == RECORD_TABLE) {
        return replay_table(shard, record);
    }
    if (!shard->tables[table].declared) {
        return false;
    }
    if (is_chunk(record)) {
        return replay_chunk(shard, record);
    }
    if (record->type == RECORD_AGGREGATE) {
        return replay_aggregate(shard, record);
    }
    uint64_t value = value_of(record);
    if (record->type == RECORD_CLOSED) {
        weft_shard_dedup_close(shard, table, record->rank, value);
        return true;
    }
    return value <= UINT32_MAX &&
           weft_shard_clock_take(shard, table, record->rank, (uint32_t)value, 0);
}

static bool replay_record(struct weft_shard *shard, const struct weft_ring_record *record)
{
    switch ((enum record_type)record->type) {
    case RECORD_CHUNK:
    case RECORD_CLOSED:
    case RECORD_CLOCK:
    case RECORD_TABLE:
    case RECORD_AGGREGATE:
    case RECORD_EVICTING:
    case RECORD_REFUSED:
        return replay_in_table(shard, record);
    case RECORD_RENEWED:
        /* The checkpoint contains the earlier records, and some later ones before a GAP. */
        if (record->position >= shard->journal->needed &&
            record->rank < shard->config.workers_max) {
            weft_shard_worker_renew(shard, record->rank, value_of(record), 0);
        }
        return record->rank < shard->config.workers_max;
    case RECORD_LEFT:
        if (record->rank < shard->config.workers_max) {
            weft_shard_members_leave(shard, record->rank, false, 0);
        }
        return record->rank < shard->config.workers_max;
    case RECORD_LIFE:
        weft_shard_members_clear(shard);
        return true;
    case RECORD_MARK:
    case RECORD_GAP:
        return true;
    }
    return false;
}

static void replay_end(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    journal->report.bytes = weft_ring_used(&journal->ring);
    journal->replaying = false;
    shard->dead_rank = WEFT_SHARD_NONE;
    weft_shard_members_clear(shard);
    if (!journal->ends_in_life) {
        weft_shard_journal_write_life(shard);
    }
}

/* The records after the GAP continue from a checkpoint that was not restored. */
static bool ends_here(struct weft_shard_journal *journal, const struct weft_ring_record *record,
                      struct weft_ring_cursor next)
{
    if (record->type != RECORD_GAP || record->position < journal->needed) {
        return false;
    }
    uint32_t life = journal->cursor_life;
    uint64_t count = 0;
    while ((record = weft_ring_next(&journal->source, &life, &next)) != NULL) {
        count += record->type != RECORD_MARK && record->type != RECORD_LIFE;
    }
    journal->report.unused_records = count;
    return true;
}

/* True: the replay must wait for room for the record or, after the last record, for LIFE. LIFE is
 * omitted if no more room is possible. */
static bool stalls(struct weft_shard_journal *journal, const struct weft_ring_record *record)
{
    const struct weft_ring *ring = &journal->ring;
    if (record == NULL) {
        uint64_t end = ring->end.at + LIFE_BYTES + WEFT_RING_UNIT;
        return !journal->ends_in_life && end > ring->bytes && ring->bytes < ring->bytes_max;
    }
    return record->position >= journal->needed && !weft_ring_copy(&journal->ring, record);
}

/* The rows for which a record may need room; 0: it needs none, or is invalid. */
static uint32_t rows_of(const struct weft_shard *shard, const struct weft_table *table,
                        const struct weft_ring_record *record)
{
    struct weft_aggregate_view view;
    struct value_body body;
    struct chunk_record chunk;
    if (is_chunk(record)) {
        return record->rank < shard->config.workers_max && chunk_read(record, &chunk)
                   ? weft_shard_push_rows(shard, &chunk.push)
                   : 0;
    }
    const uint8_t *bytes = record->type == RECORD_AGGREGATE ? message_of(record, &body) : NULL;
    bool good = bytes != NULL &&
                weft_aggregate_unpack(bytes, body.bytes, table->spec.dim, &view) == WEFT_OK;
    return good ? view.request.rows : 0;
}

/* True: the replay must wait for slabs, as the table may have too little room for the rows of this
 * record. The dead process may have had more: slabs of rows that were removed before the
 * checkpoint, and room for its longest sums. False if the driver added none since the last call:
 * the record is then replayed with the room that there is. */
static bool waits_for_rows(struct weft_shard *shard, const struct weft_ring_record *record)
{
    struct weft_shard_journal *journal = shard->journal;
    bool has_rows = is_chunk(record) || record->type == RECORD_AGGREGATE;
    struct weft_table *table = has_rows ? shard_table(shard, record->table) : NULL;
    size_t slab_bytes;
    if (table == NULL || table->spec.kind == WEFT_TABLE_DENSE ||
        record->position < journal_mark_of(journal, record->table)[0]) {
        return false;
    }
    const uint32_t rows = rows_of(shard, table, record);
    if (weft_table_room(table) >= rows) {
        return false;
    }
    weft_table_want_rows(table, rows);
    if (!weft_table_wants_slab(table, &slab_bytes) ||
        (journal->waited && journal->waited_room == weft_table_room(table))) {
        return false;
    }
    journal->waited = true;
    journal->waited_room = weft_table_room(table);
    return true;
}

static void replay(struct weft_shard *shard, const struct weft_ring_record *record)
{
    struct weft_shard_journal *journal = shard->journal;
    journal->cursor.position = record->position;
    journal->waited = false;
    bool done = replay_record(shard, record);
    while (shard->step_tables > 0) {
        weft_shard_step(shard, 0);
    }
    journal->ends_in_life = record->type == RECORD_LIFE;
    journal->report.records++;
    journal->report.chunks += record->type == RECORD_CHUNK || record->type == RECORD_EVICTING;
    journal->report.refused += !done;
}

bool weft_shard_journal_replay(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_shard_counters before = shard->counters;
    uint16_t table;
    size_t bytes;
    while (journal != NULL && journal->replaying) {
        struct weft_ring_cursor next = journal->cursor;
        const struct weft_ring_record *record =
            weft_ring_next(&journal->source, &journal->cursor_life, &next);
        if (record != NULL && ends_here(journal, record, next)) {
            record = NULL;
        }
        if (record != NULL && waits_for_rows(shard, record)) {
            journal->stalled = false;
            return true;
        }
        journal->stalled = stalls(journal, record);
        if (journal->stalled) {
            return true;
        }
        if (record == NULL) {
            replay_end(shard);
            return false;
        }
        replay(shard, record);
        shard->counters = before;
        journal->cursor = next;
        if (weft_shard_wants_slab(shard, &table, &bytes)) {
            return true;
        }
    }
    return false;
}

bool weft_shard_journal_stalls(const struct weft_shard *shard)
{
    return shard->journal != NULL && shard->journal->stalled;
}

const struct weft_shard_journal_report *weft_shard_journal_report(const struct weft_shard *shard)
{
    return &shard->journal->report;
}

bool weft_shard_journal_lineage(const void *head, uint64_t *lineage_p)
{
    return weft_ring_lineage(head, lineage_p);
}
