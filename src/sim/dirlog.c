#include "sim/dirlog.h"

#include "base/assert.h"

#include <stdlib.h>

static void drop(struct weft_dirlog_record *record)
{
    if (record->data != NULL) {
        weft_saved_fini(record->data);
        free(record->data);
        record->data = NULL;
    }
}

void weft_dirlog_fini(struct weft_dirlog *log)
{
    for (uint32_t i = 0; i < log->count; i++) {
        drop(&log->records[i]);
    }
    free(log->records);
    *log = (struct weft_dirlog){0};
}

static void make_room(struct weft_dirlog *log)
{
    if (log->count == log->room) {
        log->room = log->room != 0 ? 2 * log->room : 64;
        log->records = realloc(log->records, log->room * sizeof(*log->records));
        WEFT_ASSERT(log->records != NULL);
    }
}

enum weft_dirlog_try weft_dirlog_link(struct weft_dirlog *log, struct weft_dirlog_reader *reader,
                                      enum weft_dirlog_kind kind, uint64_t number,
                                      struct weft_saved *data)
{
    if (reader->seen < log->count && !log->is_lax) {
        const struct weft_dirlog_record *other = &log->records[reader->seen++];
        bool mine = other->kind == WEFT_DIRLOG_CLAIM && other->shard == reader->shard;
        reader->is_replaced |= mine && reader->claim != 0;
        return reader->is_replaced ? WEFT_DIRLOG_REPLACED : WEFT_DIRLOG_TAKEN;
    }
    make_room(log);
    reader->seen = ++log->count;
    reader->claim = kind == WEFT_DIRLOG_CLAIM ? log->count : reader->claim;
    log->records[log->count - 1] = (struct weft_dirlog_record){.kind = kind,
                                                               .shard = reader->shard,
                                                               .claim = reader->claim,
                                                               .number = number,
                                                               .data = data};
    return WEFT_DIRLOG_LINKED;
}

/* The last claim of the shard before a serial: the writer at that point. */
static uint32_t claim_at(const struct weft_dirlog *log, uint32_t shard, uint32_t serial)
{
    while (--serial > 0) {
        const struct weft_dirlog_record *record = &log->records[serial - 1];
        if (record->shard == shard && record->kind == WEFT_DIRLOG_CLAIM) {
            break;
        }
    }
    return serial;
}

/* The shard's newest valid manifest before `end` that is older than at least `newer` other valid
 * ones; 0 = none. Only a later RESTORED can change the validity of a manifest. */
static uint32_t nth_newest(const struct weft_dirlog *log, uint32_t shard, uint32_t end,
                           uint32_t newer)
{
    uint64_t most = UINT64_MAX; /* higher numbers are invalid because of a later RESTORED */
    for (uint32_t serial = end - 1; serial > 0; serial--) {
        const struct weft_dirlog_record *record = &log->records[serial - 1];
        if (record->shard != shard || record->kind == WEFT_DIRLOG_CLAIM ||
            (!log->is_lax && record->claim != claim_at(log, shard, serial))) {
            continue;
        }
        if (record->kind == WEFT_DIRLOG_RESTORED) {
            most = record->number < most ? record->number : most;
        } else if (record->number <= most && newer-- == 0) {
            return serial;
        }
    }
    return 0;
}

uint32_t weft_dirlog_choose(const struct weft_dirlog *log, uint32_t shard, uint32_t claim)
{
    return nth_newest(log, shard, claim, 0);
}

void weft_dirlog_prune(struct weft_dirlog *log, uint32_t shard, uint32_t keep)
{
    uint32_t serial = log->count + 1;
    while ((serial = nth_newest(log, shard, serial, keep)) != 0 &&
           log->records[serial - 1].data != NULL) {
        drop(&log->records[serial - 1]);
        keep = 0; /* no earlier ones */
    }
}
