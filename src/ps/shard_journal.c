/* What a shard writes into its journal, and how it is done again.
 *
 * Doing again calls what did it the first time (weft_shard_push_take, weft_shard_clock_take, ...), so
 * there is one description of what a request means. A checkpoint cuts each table at an instant of its
 * own; MARK says which position of the journal that was, and what was done to a table before it is
 * passed over.
 *
 * A journal that is full still leads from the last checkpoint that counts to a state that the shard
 * had. That is not given up for a cut that may fail: what comes after its instant goes into a reserve,
 * behind a GAP. Where that checkpoint is restored, the GAP is passed over with all before it; where an
 * older one is, the journal ends at the GAP. LIFE may go into the reserve, too: it is what a shard that
 * comes back to a journal without room has to write before it knows whether anything will follow. Never
 * one behind another, so that it takes no more of the reserve however often the shard dies there.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#include "ps/journal.h"
#include "ps/journal_ring.h"
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

#include "base/assert.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* 0 is WRAP. */
enum record_type {
    RECORD_CHUNK = 1, /* struct chunk_body, then the chunk as it came */
    RECORD_CLOSED,    /* value: number of the push; all of it is there, or enough */
    RECORD_CLOCK,     /* value: clock that the rank has finished */
    RECORD_RENEWED,   /* value: incarnation that speaks for the rank from here on */
    RECORD_LEFT,      /* the rank's connection is gone */
    RECORD_TABLE,     /* struct table_body: the rank has opened the table */
    RECORD_MARK,      /* struct mark_body, then of each table: position, bits of its members */
    RECORD_LIFE,      /* another process goes on with the shard: all connections are gone */
    RECORD_GAP,       /* here it was full; what follows leads on from the cut that begins here */
};

struct value_body {
    uint64_t value;
    uint64_t reserved[3];
};

struct chunk_body {
    uint64_t number;
    uint32_t clock;
    uint32_t chunk;
    uint32_t chunks;
    uint32_t total;
    uint32_t elems;
    uint16_t elem_bytes;
    uint16_t chunk_elems;
};

struct table_body {
    uint64_t resumes; /* 0, 1 */
    uint8_t spec[WEFT_RPC_SPEC_BYTES];
    uint8_t pushes[WEFT_RPC_PUSHES_BYTES]; /* with resumes */
    uint64_t reserved;
    uint8_t admission_key[WEFT_HASH_KEY_BYTES]; /* where the table has admission; earlier releases
                                                 * end before it, too */
};

struct mark_body {
    uint64_t checkpoint;
    uint64_t tables;
    uint64_t words; /* of each table's bits */
    uint64_t reserved;
};

static_assert(sizeof(struct value_body) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct chunk_body) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct table_body) % WEFT_RING_UNIT == 0);
static_assert(offsetof(struct table_body, admission_key) % WEFT_RING_UNIT == 0);
static_assert(sizeof(struct mark_body) % WEFT_RING_UNIT == 0);

struct weft_shard_journal {
    struct weft_ring ring;
    bool full;
    bool replaying;
    struct weft_ring_place cursor; /* replaying: the record being done again */
    uint64_t needed;               /* position from which on the checkpoint may lack records */
    struct weft_ring_place oldest; /* of those the first */
    uint32_t cursor_life;
    bool ends_in_life; /* the last record that was done again is LIFE */
    struct weft_shard_journal_report report;
    struct weft_ring_place *cut; /* (tables_max,): where the cut under way has each table */
    struct weft_ring_place kept; /* the oldest of those of the last cut that was kept */
    bool kept_any;
    struct weft_ring_place gap; /* gapped: of the one GAP that is there */
    bool gapped;
    bool gap_kept; /* a cut behind it was kept, but does not count yet */
    size_t words;  /* bits of the members of a table */
    size_t mark_words;
    uint64_t *mark; /* (mark_words,): what MARK says behind its head */
};

/* ---- writing --------------------------------------------------------------------------------- */

static bool writes(const struct weft_shard *shard)
{
    const struct weft_shard_journal *journal = shard->journal;
    return journal != NULL && !journal->full && !journal->replaying;
}

static bool may_use_reserve(const struct weft_shard_journal *journal, uint16_t type)
{
    return type == RECORD_GAP || type == RECORD_MARK || type == RECORD_LIFE || journal->gapped;
}

/* False: it does not fit, but for the reserve. */
static bool append(struct weft_shard *shard, const struct weft_ring_record *head, const void *body,
                   size_t body_bytes, const void *data, size_t data_bytes)
{
    struct weft_shard_journal *journal = shard->journal;
    uint64_t bytes = sizeof(*head) + body_bytes + data_bytes + WEFT_RING_UNIT;
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

enum { CLOCKS_APART = 8 };

/* A ring that has wrapped grows no more before the wrapped part is dropped. */
static bool is_tight(const struct weft_shard_journal *journal)
{
    const struct weft_ring *ring = &journal->ring;
    uint64_t used = weft_ring_used(ring);
    bool wrapped = ring->end.at <= ring->begin.at && used > 0;
    return journal->full || used > (wrapped ? ring->bytes : ring->bytes_max) / 2;
}

/* A checkpoint would make room. It counts where all shards were cut at one clock, and each asks by
 * itself: they ask for clocks of one grid, and mostly for the same. */
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

void weft_shard_journal_chunk(struct weft_shard *shard, const struct shard_slot *slot,
                              const struct weft_msg_event *event)
{
    if (!writes(shard)) {
        ask_for_cut(shard, slot);
        return;
    }
    const struct weft_ring_record head = {
        .type = RECORD_CHUNK, .table = slot->table, .rank = slot->worker};
    const struct chunk_body body = {.number = slot->number,
                                    .clock = slot->clock,
                                    .chunk = event->chunk,
                                    .chunks = event->chunks,
                                    .total = event->total,
                                    .elems = event->elems,
                                    .elem_bytes = event->elem_bytes,
                                    .chunk_elems = event->chunk_elems};
    (void)append(shard, &head, &body, sizeof(body), event->data,
                 (size_t)event->elems * event->elem_bytes);
    ask_for_cut(shard, slot);
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

static uint64_t *mark_of(const struct weft_shard_journal *journal, uint32_t table)
{
    return journal->mark + table * (1 + journal->words);
}

/* Begin to write behind what is there. Not where that holds a cut that was kept: it may count soon, and
 * the one after it will find room. */
static void go_on_behind(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_record head = {.type = RECORD_GAP};
    if (journal->gapped && journal->gap_kept) {
        return;
    }
    if (journal->gapped) { /* of a cut that failed */
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
    if (journal->full) {
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
    uint64_t *mark = mark_of(journal, table);
    mark[0] = journal->ring.end.position;
    for (uint32_t w = 0; w < shard->config.workers_max; w++) {
        if (shard->members[(size_t)table * shard->config.workers_max + w]) {
            weft_bits_set(mark + 1, w);
        }
    }
}

static void write_mark(struct weft_shard *shard, uint64_t checkpoint)
{
    const struct weft_shard_journal *journal = shard->journal;
    const struct weft_ring_record head = {.type = RECORD_MARK};
    const struct mark_body body = {
        .checkpoint = checkpoint, .tables = shard->config.tables_max, .words = journal->words};
    /* When it is full, too: all that is written of what came after the cut is there. */
    (void)append(shard, &head, &body, sizeof(body), journal->mark,
                 journal->mark_words * sizeof(*journal->mark));
}

void weft_shard_journal_cut_ready(struct weft_shard *shard, uint64_t checkpoint)
{
    if (shard->journal != NULL) {
        write_mark(shard, checkpoint);
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
        journal->full = true; /* what is behind the gap leads on from nothing */
    }
}

void weft_shard_journal_durable(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    if (journal != NULL && journal->kept_any &&
        journal->kept.position > journal->ring.begin.position) {
        weft_ring_drop(&journal->ring, journal->kept);
        journal->gapped &= journal->ring.begin.position <= journal->gap.position;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The last MARK of this checkpoint whose positions are all still there, into journal->mark; `end` is
 * found by the way. */
static bool find_mark(struct weft_shard *shard, uint64_t checkpoint)
{
    struct weft_shard_journal *journal = shard->journal;
    struct weft_ring *ring = &journal->ring;
    const struct weft_ring_record *record;
    uint32_t life = 0;
    bool found = false;
    ring->end = ring->begin;
    while ((record = weft_ring_next(ring, &life, &ring->end)) != NULL) {
        size_t data_bytes = journal->mark_words * sizeof(*journal->mark);
        struct mark_body body;
        if (record->type != RECORD_MARK ||
            record->bytes < sizeof(*record) + sizeof(body) + data_bytes) {
            continue;
        }
        memcpy(&body, record + 1, sizeof(body));
        if (body.checkpoint != checkpoint || body.tables != shard->config.tables_max ||
            body.words != journal->words) {
            continue;
        }
        memcpy(journal->mark, (const uint8_t *)(record + 1) + sizeof(body), data_bytes);
        found = true;
        for (uint32_t t = 0; t < body.tables; t++) {
            uint64_t from = mark_of(journal, t)[0];
            found &= from == 0 || (from >= ring->begin.position && from <= record->position);
        }
    }
    return found;
}

/* Nothing in it leads on from the checkpoint. */
static void begin_anew(struct weft_shard *shard, uint64_t checkpoint)
{
    struct weft_shard_journal *journal = shard->journal;
    weft_ring_drop(&journal->ring, journal->ring.end);
    memset(journal->mark, 0, journal->mark_words * sizeof(*journal->mark));
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        mark_of(journal, t)[0] = journal->ring.end.position;
    }
    write_mark(shard, checkpoint);
}

static void members_from_mark(struct weft_shard *shard)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const uint64_t *bits = mark_of(shard->journal, t) + 1;
        for (uint32_t w = 0; w < shard->config.workers_max; w++) {
            shard->members[(size_t)t * shard->config.workers_max + w] = weft_bits_test(bits, w);
        }
        if (shard->tables[t].declared) {
            weft_shard_members_average(shard, (uint16_t)t);
        }
    }
}

/* The first position that the checkpoint may lack. A table that has none was made behind the cut of
 * the others, or there was no cut. */
static uint64_t needed_from(const struct weft_shard *shard)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        uint64_t from = mark_of(shard->journal, t)[0];
        first = from > 0 ? weft_min_u64(first, from) : first;
    }
    return first == UINT64_MAX ? 0 : first;
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
    if (journal->cut == NULL || journal->mark == NULL) {
        free(journal->cut);
        free(journal->mark);
        free(journal);
        return NULL;
    }
    return journal;
}

void weft_shard_journal_fini(struct weft_shard *shard)
{
    if (shard->journal != NULL) {
        free(shard->journal->cut);
        free(shard->journal->mark);
        free(shard->journal);
        shard->journal = NULL;
    }
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
    weft_status status =
        weft_ring_open(&journal->ring, config->memory, config->bytes, config->bytes_max, &owner);
    if (status != WEFT_OK) {
        weft_shard_journal_fini(shard);
        return status;
    }
    journal->replaying = journal->report.used = find_mark(shard, config->checkpoint);
    if (!journal->replaying) {
        begin_anew(shard, config->checkpoint);
        return WEFT_OK;
    }
    members_from_mark(shard);
    journal->needed = needed_from(shard);
    journal->cursor = journal->ring.begin;
    journal->oldest = journal->ring.end;
    return WEFT_OK;
}

/* ---- doing it again -------------------------------------------------------------------------- */

bool weft_shard_journal_passes_over(const struct weft_shard *shard, uint16_t table)
{
    const struct weft_shard_journal *journal = shard->journal;
    return journal != NULL && journal->replaying &&
           journal->cursor.position < mark_of(journal, table)[0];
}

static bool again_chunk(struct weft_shard *shard, const struct weft_ring_record *record)
{
    const uint8_t *at = (const uint8_t *)(record + 1);
    struct chunk_body body;
    if (record->bytes < sizeof(*record) + sizeof(body)) {
        return false;
    }
    memcpy(&body, at, sizeof(body));
    const struct weft_msg_event event = {.chunk = body.chunk,
                                         .chunks = body.chunks,
                                         .total = body.total,
                                         .elems = body.elems,
                                         .elem_bytes = body.elem_bytes,
                                         .chunk_elems = body.chunk_elems,
                                         .data = at + sizeof(body)};
    bool fits =
        (uint64_t)body.elems * body.elem_bytes <= record->bytes - sizeof(*record) - sizeof(body);
    return fits && weft_shard_push_again(shard, record->table, record->rank, body.number,
                                         body.clock, &event);
}

static bool again_table(struct weft_shard *shard, const struct weft_ring_record *record)
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
    /* The same ids are admitted, and forgotten, as the first time. */
    return (!is_new || weft_admission_restore_key(&shard->tables[record->table].admission,
                                                  body.admission_key) == WEFT_OK) &&
           (body.resumes == 0 ||
            weft_shard_again_resume(shard, record->table, record->rank, &theirs) == WEFT_RPC_OK);
}

static uint64_t value_of(const struct weft_ring_record *record)
{
    struct value_body body = {.value = 0};
    if (record->bytes >= sizeof(*record) + sizeof(body)) {
        memcpy(&body, record + 1, sizeof(body));
    }
    return body.value;
}

/* Of one table; it is declared, or this declares it. */
static bool again_in_table(struct weft_shard *shard, const struct weft_ring_record *record)
{
    uint16_t table = record->table;
    if (table >= shard->config.tables_max || record->rank >= shard->config.workers_max) {
        return false;
    }
    if (weft_shard_journal_passes_over(shard, table)) {
        return true;
    }
    if (record->type == RECORD_TABLE) {
        return again_table(shard, record);
    }
    if (!shard->tables[table].declared) {
        return false;
    }
    if (record->type == RECORD_CHUNK) {
        return again_chunk(shard, record);
    }
    uint64_t value = value_of(record);
    if (record->type == RECORD_CLOSED) {
        weft_shard_again_close(shard, table, record->rank, value);
        return true;
    }
    return value <= UINT32_MAX &&
           weft_shard_clock_take(shard, table, record->rank, (uint32_t)value, 0);
}

static bool again_record(struct weft_shard *shard, const struct weft_ring_record *record)
{
    switch ((enum record_type)record->type) {
    case RECORD_CHUNK:
    case RECORD_CLOSED:
    case RECORD_CLOCK:
    case RECORD_TABLE:
        return again_in_table(shard, record);
    case RECORD_RENEWED:
        /* The checkpoint knows of those before, and of some behind them in front of a GAP. */
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
    /* What the checkpoint has goes first: it may be all but the reserve, and that full of what came
     * behind a GAP. */
    if (journal->oldest.position > journal->ring.begin.position) {
        weft_ring_drop(&journal->ring, journal->oldest);
    }
    if (!journal->ends_in_life) {
        append_value(shard, RECORD_LIFE, 0, 0, 0);
    }
}

/* Behind the GAP begins what leads on from a checkpoint that was not restored. */
static bool ends_here(struct weft_shard_journal *journal, const struct weft_ring_record *record)
{
    if (record->type != RECORD_GAP || record->position < journal->needed) {
        return false;
    }
    journal->ring.end = journal->cursor;
    if (journal->oldest.position > journal->cursor.position) {
        journal->oldest = journal->cursor;
    }
    return true;
}

bool weft_shard_journal_replay(struct weft_shard *shard)
{
    struct weft_shard_journal *journal = shard->journal;
    const struct weft_shard_counters before = shard->counters;
    uint16_t table;
    size_t bytes;
    while (journal != NULL && journal->replaying) {
        struct weft_ring_place next = journal->cursor;
        const struct weft_ring_record *record =
            weft_ring_next(&journal->ring, &journal->cursor_life, &next);
        if (record == NULL || ends_here(journal, record)) {
            shard->counters = before;
            replay_end(shard);
            return false;
        }
        if (record->position >= journal->needed && record->position < journal->oldest.position) {
            journal->oldest = journal->cursor; /* in front of it, also where a wrap lies between */
        }
        journal->cursor.position = record->position;
        bool done = again_record(shard, record);
        while (shard->step_tables > 0) {
            weft_shard_step(shard, 0);
        }
        journal->ends_in_life = record->type == RECORD_LIFE;
        journal->report.records++;
        journal->report.chunks += record->type == RECORD_CHUNK;
        journal->report.refused += !done;
        journal->cursor = next;
        if (weft_shard_wants_slab(shard, &table, &bytes)) {
            shard->counters = before;
            return true;
        }
    }
    return false;
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct weft_shard_journal_report *weft_shard_journal_report(const struct weft_shard *shard)
{
    return &shard->journal->report;
}

bool weft_shard_journal_wants(const struct weft_shard *shard)
{
    return writes(shard) && weft_ring_wants(&shard->journal->ring);
}

void weft_shard_journal_grow(struct weft_shard *shard, uint64_t bytes)
{
    struct weft_ring *ring = &shard->journal->ring;
    WEFT_ASSERT(bytes >= ring->bytes && bytes <= ring->bytes_max && bytes % WEFT_RING_UNIT == 0);
    ring->bytes = bytes;
}

bool weft_shard_journal_is_full(const struct weft_shard *shard)
{
    return shard->journal != NULL && shard->journal->full;
}

uint64_t weft_shard_journal_used(const struct weft_shard *shard)
{
    return shard->journal != NULL ? weft_ring_used(&shard->journal->ring) : 0;
}
