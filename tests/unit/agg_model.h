/* The oracle for src/agg: an aggregator as in docs/PROTOCOL.md section 12, implemented
 * independently and simply: one array element per number, 64-bit sums, no bit tricks, its own
 * decoder. */
#ifndef WEFT_TEST_AGG_MODEL_H
#define WEFT_TEST_AGG_MODEL_H

#include "agg/receive.h"

#include <string.h>

enum { MODEL_MEMBERS = 64, MODEL_NUMBERS = 1024, MODEL_SLOTS = 2, MODEL_BANKS = 2 };

enum model_state { NUMBER_NEW, NUMBER_ADDED, NUMBER_REFUSED };

struct model_round {
    uint32_t round;
    uint32_t values;
    bool has[MODEL_MEMBERS];
    bool is_void;
    uint8_t form;    /* flags of the first packet */
    int8_t exponent; /* of the round; also the next, if the members agree on exponents */
    int8_t next;     /* the largest that a packet has named */
    int64_t sums[WEFT_AGG_VALUES_MAX];
};

struct model_slot {
    bool begun;
    uint32_t epoch;
    struct model_round sets[2];
};

struct model_number {
    enum model_state state;
    bool held;
    int set;
};

struct model_bank {
    struct weft_agg_bank_epoch epoch;
    bool open;
    bool draining;
    int active;
    uint32_t packets[2];
    uint32_t updates[2][WEFT_AGG_BANK_BLOCKS];
    int64_t sums[2][WEFT_AGG_BANK_BLOCKS][WEFT_AGG_BLOCK];
    uint32_t base[MODEL_MEMBERS];
    struct model_number numbers[MODEL_MEMBERS][MODEL_NUMBERS];
};

struct model {
    struct weft_agg_config config;
    struct model_slot slots[MODEL_SLOTS];
    struct model_bank banks[MODEL_BANKS];
    struct weft_agg_counts counts;
};

static inline uint32_t model_be(const uint8_t *at, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) {
        v = v << 8 | at[i];
    }
    return v;
}

static inline int64_t model_value(const uint8_t *at)
{
    uint32_t v = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
    return (int32_t)v;
}

static inline bool model_fits(int64_t sum)
{
    return sum >= INT32_MIN && sum <= INT32_MAX;
}

static inline bool model_is_member(const struct model *m, uint32_t member)
{
    return member < 64 && (m->config.members >> member & 1) != 0;
}

static inline bool model_complete(const struct model *m, const struct model_round *r)
{
    for (uint32_t i = 0; i < MODEL_MEMBERS; i++) {
        if (model_is_member(m, i) && !r->has[i]) {
            return false;
        }
    }
    return true;
}

static inline enum weft_agg_verdict model_dense(struct model *m, const uint8_t *p)
{
    struct model_slot *slot = &m->slots[model_be(p + 8, 4)];
    uint32_t member = model_be(p + 6, 2);
    uint32_t round = model_be(p + 16, 4);
    uint32_t count = model_be(p + 24, 2);
    if (model_be(p + 12, 4) != m->config.dense_epoch) {
        return WEFT_AGG_EPOCH;
    }
    if (!slot->begun || slot->epoch != m->config.dense_epoch) {
        memset(slot, 0, sizeof(*slot));
        slot->begun = true;
        slot->epoch = m->config.dense_epoch;
        slot->sets[1].round = 1;
    }
    struct model_round *r = &slot->sets[round % 2];
    if ((int32_t)(round - r->round) < 0) {
        return WEFT_AGG_STALE;
    }
    if (round != r->round) {
        if (round - r->round != 2 || !model_complete(m, r)) {
            return WEFT_AGG_EARLY;
        }
        memset(r, 0, sizeof(*r));
        r->round = round;
    }
    if (r->has[member]) {
        return model_complete(m, r) ? WEFT_AGG_RESULT : WEFT_AGG_WAITING;
    }
    if (r->values == 0) {
        r->values = count;
        r->form = p[2];
        r->exponent = (int8_t)p[3];
        r->next = -126;
    }
    if (p[2] == 4 && (int8_t)p[26] > r->next) {
        r->next = (int8_t)p[26];
    }
    if (!r->is_void) {
        bool good = count == r->values && p[2] == r->form && (int8_t)p[3] == r->exponent;
        good = good && (p[2] == 4 ? m->config.form == 0
                                  : r->exponent == m->config.exponent && p[2] == m->config.form);
        for (uint32_t i = 0; good && i < count; i++) {
            good = model_fits(r->sums[i] + model_value(p + 32 + 4 * i));
        }
        for (uint32_t i = 0; good && i < count; i++) {
            r->sums[i] += model_value(p + 32 + 4 * i);
        }
        m->counts.values += good ? count : 0;
        m->counts.voided += !good;
        r->is_void = !good;
    }
    r->has[member] = true;
    return model_complete(m, r) ? WEFT_AGG_COMPLETE : WEFT_AGG_SUMMED;
}

/* All or nothing, one value at a time. */
static inline enum weft_agg_verdict model_add_rows(struct model *m, struct model_bank *bank,
                                                   const uint8_t *p)
{
    static int64_t sums[WEFT_AGG_BANK_BLOCKS][WEFT_AGG_BLOCK];
    uint32_t count = model_be(p + 24, 2);
    if (!bank->open) {
        return WEFT_AGG_REFUSED_CLOSED;
    }
    if (model_be(p + 12, 4) != bank->epoch.epoch) {
        return WEFT_AGG_REFUSED_EPOCH;
    }
    if ((p[2] & 1) != bank->epoch.form) {
        return WEFT_AGG_REFUSED_FORM;
    }
    memcpy(sums, bank->sums[bank->active], sizeof(sums));
    bool fits = true;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = p + 32 + 36 * i;
        uint32_t block = row[0] | row[1] << 8;
        if (block >= bank->epoch.blocks || (int8_t)row[2] != bank->epoch.exponents[block] ||
            row[3] != 0) {
            return WEFT_AGG_REFUSED_FORM;
        }
        for (int j = 0; j < WEFT_AGG_BLOCK; j++) {
            sums[block][j] += model_value(row + 4 + 4 * j);
            fits = fits && model_fits(sums[block][j]);
        }
    }
    if (!fits) {
        return WEFT_AGG_REFUSED_RANGE;
    }
    memcpy(bank->sums[bank->active], sums, sizeof(sums));
    for (uint32_t i = 0; i < count; i++) {
        bank->updates[bank->active][p[32 + 36 * i] | p[33 + 36 * i] << 8]++;
    }
    bank->packets[bank->active]++;
    m->counts.values += count * WEFT_AGG_BLOCK;
    return WEFT_AGG_ADDED;
}

static inline void model_advance(struct model_bank *bank, uint32_t member, uint32_t from)
{
    for (;;) {
        uint32_t base = bank->base[member];
        if ((int32_t)(from - base) < 64) {
            return;
        }
        for (uint32_t n = base; n < base + 64; n++) {
            if (bank->numbers[member][n].state == NUMBER_NEW || bank->numbers[member][n].held) {
                return;
            }
        }
        bank->base[member] += 64;
    }
}

static inline enum weft_agg_verdict model_rows(struct model *m, const uint8_t *p)
{
    struct model_bank *bank = &m->banks[model_be(p + 8, 4)];
    uint32_t member = model_be(p + 6, 2);
    uint32_t number = model_be(p + 16, 4);
    model_advance(bank, member, model_be(p + 20, 4));
    int64_t above = (int32_t)(number - bank->base[member]);
    if (above < 0) {
        return WEFT_AGG_PASSED;
    }
    if (above >= 256) {
        return WEFT_AGG_AHEAD;
    }
    struct model_number *n = &bank->numbers[member][number];
    if (n->state != NUMBER_NEW) {
        return WEFT_AGG_AGAIN;
    }
    enum weft_agg_verdict verdict = model_add_rows(m, bank, p);
    n->state = verdict == WEFT_AGG_ADDED ? NUMBER_ADDED : NUMBER_REFUSED;
    n->held = verdict == WEFT_AGG_ADDED && bank->epoch.policy == WEFT_AGG_ON_COMMIT;
    n->set = bank->active;
    return verdict;
}

/* Decode the head according to the byte table. */
static inline bool model_well_formed(const uint8_t *p, uint32_t bytes)
{
    if (bytes < 32 || p[0] != 0x2d || p[27] != 0 || model_be(p + 28, 4) != 0) {
        return false;
    }
    bool agreed = p[1] == 1 && p[2] == 4;
    if (agreed ? (int8_t)p[26] < -126 : p[26] != 0) {
        return false;
    }
    uint32_t count = model_be(p + 24, 2);
    int exponent = (int8_t)p[3];
    if (p[1] == 1) {
        return (p[2] <= 1 || p[2] == 4) && exponent >= -126 && count > 0 && count <= 352 && count % 8 == 0 &&
               model_be(p + 20, 4) == 0 && bytes == 32 + 4 * count;
    }
    return p[1] == 2 && p[2] <= 1 && exponent == 0 && count > 0 && count <= 39 &&
           (uint32_t)(model_be(p + 16, 4) - model_be(p + 20, 4)) <= 192 && bytes == 32 + 36 * count;
}

static inline enum weft_agg_verdict model_receive(struct model *m, const uint8_t *p, uint32_t bytes)
{
    enum weft_agg_verdict verdict;
    if (!model_well_formed(p, bytes)) {
        verdict = WEFT_AGG_MALFORMED;
    } else if (model_be(p + 4, 2) != m->config.job || !model_is_member(m, model_be(p + 6, 2)) ||
               model_be(p + 8, 4) >= (p[1] == 1 ? m->config.slots : m->config.banks)) {
        verdict = WEFT_AGG_FOREIGN;
    } else {
        verdict = p[1] == 1 ? model_dense(m, p) : model_rows(m, p);
    }
    m->counts.packets[verdict]++;
    return verdict;
}

static inline bool model_flush(struct model_bank *bank)
{
    if (bank->draining || bank->packets[bank->active] == 0) {
        return false;
    }
    bank->draining = true;
    bank->active = 1 - bank->active;
    return true;
}

static inline bool model_settle(struct model_bank *bank, bool committed)
{
    if (!bank->draining) {
        return false;
    }
    int set = 1 - bank->active;
    memset(bank->sums[set], 0, sizeof(bank->sums[set]));
    memset(bank->updates[set], 0, sizeof(bank->updates[set]));
    bank->packets[set] = 0;
    bank->draining = false;
    for (int i = 0; i < MODEL_MEMBERS; i++) {
        for (int n = 0; n < MODEL_NUMBERS; n++) {
            struct model_number *number = &bank->numbers[i][n];
            if (number->held && number->set == set) {
                number->held = false;
                number->state = committed ? NUMBER_ADDED : NUMBER_REFUSED;
            }
        }
    }
    return true;
}

static inline bool model_begin(struct model_bank *bank, const struct weft_agg_bank_epoch *epoch)
{
    if (bank->draining || bank->packets[0] != 0 || bank->packets[1] != 0) {
        return false;
    }
    bank->epoch = *epoch;
    bank->open = true;
    return true;
}

#endif
