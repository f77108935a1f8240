#include "ckpt/history.h"

#include <stdlib.h>
#include <string.h>

void weft_ckpt_history_fini(struct weft_ckpt_history *history)
{
    for (size_t i = 0; i < history->part_count; i++) {
        weft_ckpt_manifest_fini(&history->parts[i].manifest);
    }
    free(history->parts);
    free(history->holders);
    *history = (struct weft_ckpt_history){0};
}

void weft_ckpt_history_forget(struct weft_ckpt_history *history, size_t place)
{
    weft_ckpt_manifest_fini(&history->parts[place].manifest);
    history->part_count--;
    memmove(&history->parts[place], &history->parts[place + 1],
            (history->part_count - place) * sizeof(*history->parts));
}

static bool overlaps(const struct weft_ckpt_claim *claim, uint32_t shards, uint32_t first,
                     uint32_t count)
{
    return claim->shards != shards ||
           (claim->first < first + count && first < claim->first + claim->count);
}

static struct weft_ckpt_holder *find_holder(const struct weft_ckpt_history *history,
                                            uint64_t serial)
{
    for (size_t i = history->holder_count; i > 0; i--) {
        if (history->holders[i - 1].serial == serial) {
            return &history->holders[i - 1];
        }
    }
    return NULL;
}

const struct weft_ckpt_holder *weft_ckpt_history_holder(const struct weft_ckpt_history *history,
                                                        uint64_t serial)
{
    return find_holder(history, serial);
}

/* ---- queries --------------------------------------------------------------------------------- */

static const struct weft_ckpt_part *part_at(const struct weft_ckpt_history *history,
                                            uint64_t number, uint32_t shards, uint32_t shard,
                                            uint32_t *place_p)
{
    for (size_t i = 0; i < history->part_count; i++) {
        const struct weft_ckpt_part *part = &history->parts[i];
        if (!part->is_void && part->manifest.number == number && part->manifest.first == shard &&
            (shards == 0 || part->manifest.shards == shards)) {
            *place_p = (uint32_t)i;
            return part;
        }
    }
    return NULL;
}

/* True if all parts that it is based on exist and are valid. */
static bool has_bases(const struct weft_ckpt_history *history, const struct weft_ckpt_part *part)
{
    for (uint32_t links = 1; part != NULL && part->manifest.base != 0; links++) {
        if (links > WEFT_CKPT_CHAIN_MAX) {
            return false;
        }
        part = weft_ckpt_history_beside(history, &part->manifest, part->manifest.base);
    }
    return part != NULL;
}

uint32_t weft_ckpt_history_complete(const struct weft_ckpt_history *history, uint64_t number,
                                    uint32_t *places)
{
    uint32_t count = 0, next = 0, shards = 0;
    do {
        const struct weft_ckpt_part *part = part_at(history, number, shards, next, &places[count]);
        if (part == NULL || !has_bases(history, part)) {
            return 0;
        }
        shards = part->manifest.shards;
        next += part->manifest.count;
        count++;
    } while (next < shards);
    return next == shards ? count : 0;
}

uint64_t weft_ckpt_history_newest_part(const struct weft_ckpt_history *history, uint64_t below)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < history->part_count; i++) {
        uint64_t number = history->parts[i].manifest.number;
        if (!history->parts[i].is_void && number < below && number > newest) {
            newest = number;
        }
    }
    return newest;
}

uint64_t weft_ckpt_history_newest(const struct weft_ckpt_history *history, uint64_t below)
{
    static _Thread_local uint32_t places[WEFT_CKPT_SHARDS_MAX];
    uint64_t number = weft_ckpt_history_newest_part(history, below);
    while (number > 0 && weft_ckpt_history_complete(history, number, places) == 0) {
        number = weft_ckpt_history_newest_part(history, number);
    }
    return number;
}

bool weft_ckpt_history_has(const struct weft_ckpt_history *history, uint64_t claim, uint64_t number)
{
    for (size_t i = 0; i < history->part_count; i++) {
        const struct weft_ckpt_part *part = &history->parts[i];
        if (!part->is_void && part->manifest.claim == claim && part->manifest.number == number) {
            return true;
        }
    }
    return false;
}

const struct weft_ckpt_part *weft_ckpt_history_beside(const struct weft_ckpt_history *history,
                                                      const struct weft_ckpt_manifest *like,
                                                      uint64_t number)
{
    uint32_t place;
    const struct weft_ckpt_part *part = part_at(history, number, like->shards, like->first, &place);
    return part != NULL && part->manifest.count == like->count ? part : NULL;
}

const struct weft_ckpt_holder *weft_ckpt_history_former(const struct weft_ckpt_history *history,
                                                        uint64_t before, uint32_t shard,
                                                        uint32_t shards)
{
    for (size_t i = history->holder_count; i > 0; i--) {
        const struct weft_ckpt_holder *holder = &history->holders[i - 1];
        if (holder->serial < before && holder->restored && holder->claim.shards == shards &&
            overlaps(&holder->claim, shards, shard, 1)) {
            return holder;
        }
    }
    return NULL;
}

const struct weft_ckpt_holder *weft_ckpt_history_overtaken(const struct weft_ckpt_history *history,
                                                           const struct weft_ckpt_claim *claim,
                                                           uint64_t since)
{
    for (size_t i = 0; i < history->holder_count; i++) {
        const struct weft_ckpt_claim *other = &history->holders[i].claim;
        if (history->holders[i].serial >= since &&
            overlaps(claim, other->shards, other->first, other->count)) {
            return &history->holders[i];
        }
    }
    return NULL;
}

const struct weft_ckpt_holder *weft_ckpt_history_mixture(const struct weft_ckpt_history *history,
                                                         const struct weft_ckpt_holder *mine,
                                                         uint64_t number)
{
    for (size_t i = 0; i < history->holder_count; i++) {
        const struct weft_ckpt_holder *other = &history->holders[i];
        if (other != mine && other->replaced_by == 0 && other->restored && !other->has_written &&
            other->number != number) {
            return other;
        }
    }
    return NULL;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Mark as void the parts beyond `number` of these shards, or of another number of shards. */
static void void_after(struct weft_ckpt_history *history, const struct weft_ckpt_claim *claim,
                       uint64_t number)
{
    for (size_t i = 0; i < history->part_count; i++) {
        const struct weft_ckpt_manifest *m = &history->parts[i].manifest;
        history->parts[i].is_void |=
            m->number > number && overlaps(claim, m->shards, m->first, m->count);
    }
}

/* Owns:    *holder_p is valid until the next claim is added. */
static weft_status holder_new(struct weft_ckpt_history *history, uint64_t serial,
                              const struct weft_ckpt_claim *claim,
                              struct weft_ckpt_holder **holder_p)
{
    struct weft_ckpt_holder *holders =
        realloc(history->holders, (history->holder_count + 1) * sizeof(*holders));
    if (holders == NULL) {
        return WEFT_NOMEM;
    }
    history->holders = holders;
    size_t at = history->holder_count++;
    for (; at > 0 && holders[at - 1].serial > serial; at--) {
        holders[at] = holders[at - 1];
    }
    holders[at] = (struct weft_ckpt_holder){.serial = serial, .claim = *claim};
    for (size_t i = 0; i < history->holder_count; i++) {
        struct weft_ckpt_holder *other = &holders[i];
        bool meets = overlaps(claim, other->claim.shards, other->claim.first, other->claim.count);
        if (i < at && meets && other->replaced_by == 0) {
            other->replaced_by = serial;
        } else if (i > at && meets && holders[at].replaced_by == 0) {
            holders[at].replaced_by = other->serial;
        }
    }
    *holder_p = &holders[at];
    return WEFT_OK;
}

static weft_status add_claim(struct weft_ckpt_history *history, uint64_t serial,
                             const struct weft_ckpt_claim *claim)
{
    struct weft_ckpt_holder *holder;
    weft_status status = holder_new(history, serial, claim, &holder);
    if (status == WEFT_OK) {
        void_after(history, claim, weft_ckpt_history_newest(history, UINT64_MAX));
    }
    return status;
}

/* Create the claim whose own record is damaged from a record that it wrote, which has the needed
 * fields. */
static weft_status claim_of(struct weft_ckpt_history *history,
                            const struct weft_ckpt_manifest *manifest,
                            struct weft_ckpt_holder **holder_p)
{
    const struct weft_ckpt_claim claim = {.shards = manifest->shards,
                                          .first = manifest->first,
                                          .count = manifest->count,
                                          .host = "?",
                                          .time = "?"};
    *holder_p = find_holder(history, manifest->claim);
    return *holder_p != NULL ? WEFT_OK : holder_new(history, manifest->claim, &claim, holder_p);
}

/* Mark as void all complete checkpoints that were skipped by a restore: they are damaged,
 * whichever process wrote the damaged part. */
static void void_damaged(struct weft_ckpt_history *history, uint64_t number)
{
    uint64_t newest;
    while ((newest = weft_ckpt_history_newest(history, UINT64_MAX)) > number) {
        for (size_t i = 0; i < history->part_count; i++) {
            history->parts[i].is_void |= history->parts[i].manifest.number == newest;
        }
    }
}

static weft_status add_restored(struct weft_ckpt_history *history,
                                const struct weft_ckpt_restored *restored)
{
    struct weft_ckpt_holder *holder = find_holder(history, restored->claim);
    if (holder == NULL) {
        return WEFT_DATA;
    }
    if (holder->replaced_by == 0) {
        holder->restored = true;
        holder->journal = restored->journal;
        holder->number = restored->number;
        void_damaged(history, restored->number);
        void_after(history, &holder->claim, restored->number);
    }
    return WEFT_OK;
}

static weft_status add_manifest(struct weft_ckpt_history *history, uint64_t serial,
                                struct weft_ckpt_manifest *manifest)
{
    struct weft_ckpt_holder *holder = NULL;
    struct weft_ckpt_part *parts =
        realloc(history->parts, (history->part_count + 1) * sizeof(*parts));
    history->parts = parts != NULL ? parts : history->parts;
    weft_status status = parts != NULL ? WEFT_OK : WEFT_NOMEM;
    if (status == WEFT_OK && manifest->claim != 0) {
        status = claim_of(history, manifest, &holder);
    }
    if (status != WEFT_OK) {
        weft_ckpt_manifest_fini(manifest);
        return status;
    }
    bool valid = holder == NULL || (holder->replaced_by == 0 && holder->serial < serial);
    if (holder != NULL && valid) {
        holder->has_written = true;
    }
    parts[history->part_count++] =
        (struct weft_ckpt_part){.serial = serial, .is_void = !valid, .manifest = *manifest};
    return WEFT_OK;
}

weft_status weft_ckpt_history_add(struct weft_ckpt_history *history, uint64_t serial,
                                  struct weft_ckpt_record *record)
{
    switch (record->kind) {
    case WEFT_CKPT_RECORD_CLAIM:
        return add_claim(history, serial, &record->claim);
    case WEFT_CKPT_RECORD_RESTORED:
        return add_restored(history, &record->restored);
    case WEFT_CKPT_RECORD_MANIFEST:
        return add_manifest(history, serial, &record->manifest);
    }
    return WEFT_DATA;
}
