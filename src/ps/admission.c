#include "ps/admission.h"

#include "base/assert.h"

#include <assert.h>
#include <string.h>

struct cell {
    uint64_t id;
    uint32_t count; /* 0 = empty */
    uint32_t home;
};

static_assert(sizeof(struct cell) == 16);

/* PROBES: bytes of the Bloom filter per id. LOOK: ids examined before one is evicted. */
enum { PROBES = 4, LOOK = 8 };

static void set_key(struct weft_admission *admission, const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    memcpy(admission->key, key, sizeof(admission->key));
    admission->hash_key = weft_hash_key(key);
    admission->keyed = !weft_hash_key_is_zero(key);
}

void weft_admission_init(struct weft_admission *admission, const struct weft_table_spec *spec,
                         const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    *admission = (struct weft_admission){
        .kind = spec->admission,
        .threshold = spec->admission_count,
        .cells = spec->admission_cells,
    };
    if (spec->admission != WEFT_ADMISSION_ALL) {
        set_key(admission, key);
    }
}

size_t weft_admission_bytes(const struct weft_admission *admission)
{
    return admission->kind == WEFT_ADMISSION_ALL     ? 0
           : admission->kind == WEFT_ADMISSION_BLOOM ? admission->cells
                                                     : admission->cells * sizeof(struct cell);
}

void weft_admission_begin(struct weft_admission *admission, void *memory)
{
    memset(memory, 0, weft_admission_bytes(admission));
    admission->memory = memory;
}

static uint64_t hash_of(const struct weft_admission *admission, uint64_t id)
{
    return admission->keyed ? weft_hash_keyed(&admission->hash_key, id) : weft_mix64(id);
}

static uint32_t scaled(uint32_t hash, uint32_t cells)
{
    return (uint32_t)((uint64_t)hash * cells >> 32);
}

/* ---- one cell for each id: linear probing in a ring of any length ---------------------------- */

static uint32_t next_of(const struct weft_admission *admission, uint32_t at)
{
    return at + 1 == admission->cells ? 0 : at + 1;
}

/* Forward distance from `from` to `at`. */
static uint32_t distance(const struct weft_admission *admission, uint32_t from, uint32_t at)
{
    return at >= from ? at - from : at + admission->cells - from;
}

static uint32_t home_of(const struct weft_admission *admission, uint64_t id)
{
    return scaled((uint32_t)hash_of(admission, id), admission->cells);
}

/* The cell of id, or the empty cell for it. There is always an empty cell. */
static uint32_t cell_of(const struct weft_admission *admission, uint64_t id, uint32_t home)
{
    const struct cell *cells = admission->memory;
    uint32_t at = home;
    while (cells[at].count > 0 && cells[at].id != id) {
        at = next_of(admission, at);
    }
    return at;
}

/* Shift later entries back into the hole, so that no tombstones are needed. */
static void cell_remove(struct weft_admission *admission, uint32_t hole)
{
    struct cell *cells = admission->memory;
    for (uint32_t at = next_of(admission, hole); cells[at].count > 0; at = next_of(admission, at)) {
        if (distance(admission, cells[at].home, at) >= distance(admission, hole, at)) {
            cells[hole] = cells[at];
            hole = at;
        }
    }
    cells[hole].count = 0;
    admission->used--;
}

static void forget_one(struct weft_admission *admission)
{
    struct cell *cells = admission->memory;
    uint32_t rarest = 0, least = UINT32_MAX;
    for (int looked = 0; looked < LOOK; admission->hand = next_of(admission, admission->hand)) {
        const struct cell *cell = &cells[admission->hand];
        if (cell->count > 0) {
            looked++;
            rarest = cell->count < least ? admission->hand : rarest;
            least = cell->count < least ? cell->count : least;
        }
    }
    cell_remove(admission, rarest);
    admission->forgotten++;
}

/* The id's cell, allocated if it has none; then its count is 0, and the caller must increase it. */
static struct cell *cell_obtain(struct weft_admission *admission, uint64_t id)
{
    struct cell *cells = admission->memory;
    uint32_t home = home_of(admission, id), at = cell_of(admission, id, home);
    if (cells[at].count == 0) {
        if (admission->used == admission->cells - admission->cells / 8) {
            forget_one(admission);
            at = cell_of(admission, id, home);
        }
        cells[at] = (struct cell){.id = id, .home = home};
        admission->used++;
    }
    return &cells[at];
}

static bool counter_count(struct weft_admission *admission, uint64_t id)
{
    struct cell *cell = cell_obtain(admission, id);
    cell->count += cell->count < UINT32_MAX;
    return cell->count >= admission->threshold;
}

/* ---- counting Bloom filter ------------------------------------------------------------------- */

static bool bloom_count(struct weft_admission *admission, uint64_t id)
{
    uint8_t *counters = admission->memory;
    uint64_t hash = hash_of(admission, id);
    uint32_t first = (uint32_t)hash, step = (uint32_t)(hash >> 32) | 1;
    uint32_t at[PROBES];
    uint8_t least = UINT8_MAX;
    for (uint32_t i = 0; i < PROBES; i++) {
        at[i] = scaled(first + i * step, admission->cells);
        least = counters[at[i]] < least ? counters[at[i]] : least;
    }
    uint8_t raised = least == UINT8_MAX ? least : (uint8_t)(least + 1);
    for (uint32_t i = 0; i < PROBES; i++) {
        counters[at[i]] = counters[at[i]] < raised ? raised : counters[at[i]];
    }
    return raised >= admission->threshold;
}

bool weft_admission_count(struct weft_admission *admission, uint64_t id)
{
    WEFT_ASSERT(admission->memory != NULL);
    admission->begun = true;
    return admission->kind == WEFT_ADMISSION_BLOOM ? bloom_count(admission, id)
                                                   : counter_count(admission, id);
}

void weft_admission_done(struct weft_admission *admission, uint64_t id)
{
    if (admission->kind != WEFT_ADMISSION_COUNTER) {
        return;
    }
    uint32_t at = cell_of(admission, id, home_of(admission, id));
    if (((const struct cell *)admission->memory)[at].count > 0) {
        cell_remove(admission, at);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

size_t weft_admission_copy_bytes(const struct weft_admission *admission)
{
    if (admission->memory == NULL) {
        return 0;
    }
    return admission->kind == WEFT_ADMISSION_BLOOM
               ? admission->cells
               : (size_t)admission->used * (sizeof(uint64_t) + sizeof(uint32_t));
}

static void counter_copy(const struct weft_admission *admission, uint64_t *ids,
                         struct weft_admission_counts *counts_p)
{
    const struct cell *cells = admission->memory;
    uint32_t *counts = (uint32_t *)(void *)(ids + admission->used);
    uint32_t copied = 0, begin = 0;
    while (cells[begin].count > 0) { /* not in the middle of a run */
        begin = next_of(admission, begin);
    }
    for (uint32_t at = next_of(admission, begin); at != begin; at = next_of(admission, at)) {
        if (cells[at].count > 0) {
            ids[copied] = cells[at].id;
            counts[copied++] = cells[at].count;
        }
    }
    WEFT_ASSERT(copied == admission->used);
    counts_p->ids = ids;
    counts_p->counts = counts;
    counts_p->count = admission->used;
    counts_p->hand = admission->hand;
}

void weft_admission_copy(const struct weft_admission *admission, void *memory,
                         struct weft_admission_counts *counts_p)
{
    *counts_p = (struct weft_admission_counts){.count = 0};
    memcpy(counts_p->key, admission->key, sizeof(counts_p->key));
    if (admission->memory == NULL) {
        return;
    }
    if (admission->kind == WEFT_ADMISSION_COUNTER) {
        counter_copy(admission, memory, counts_p);
    } else if (admission->kind == WEFT_ADMISSION_BLOOM) {
        memcpy(memory, admission->memory, admission->cells);
        counts_p->filter = memory;
        counts_p->cells = admission->cells;
    }
}

weft_status weft_admission_restore_key(struct weft_admission *admission,
                                       const uint8_t key[WEFT_HASH_KEY_BYTES])
{
    bool of_filter = admission->kind == WEFT_ADMISSION_BLOOM;
    if (of_filter && admission->begun && memcmp(admission->key, key, sizeof(admission->key)) != 0) {
        return WEFT_EXISTS;
    }
    if (!admission->begun && (of_filter || !weft_hash_key_is_zero(key))) {
        set_key(admission, key);
    }
    return WEFT_OK;
}

void weft_admission_restore_count(struct weft_admission *admission, uint64_t id, uint32_t count)
{
    WEFT_ASSERT(admission->memory != NULL && admission->kind == WEFT_ADMISSION_COUNTER);
    admission->begun = true;
    if (count > 0) {
        struct cell *cell = cell_obtain(admission, id);
        cell->count = cell->count > count ? cell->count : count;
    }
}

void weft_admission_restore_hand(struct weft_admission *admission, uint32_t hand)
{
    WEFT_ASSERT(admission->kind == WEFT_ADMISSION_COUNTER);
    admission->hand = hand % admission->cells;
}

void weft_admission_restore_filter(struct weft_admission *admission, const uint8_t *filter)
{
    WEFT_ASSERT(admission->memory != NULL && admission->kind == WEFT_ADMISSION_BLOOM);
    admission->begun = true;
    uint8_t *counters = admission->memory;
    for (uint32_t i = 0; i < admission->cells; i++) {
        counters[i] = counters[i] > filter[i] ? counters[i] : filter[i];
    }
}
