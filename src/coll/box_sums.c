/* The hash of the settings of coll/box.h. Its vectors: their chunks, which are direct or not, the
 * hash of a result, and the numbers of the trial. */
#include "coll/box_internal.h"

#include "base/prng.h"
#include "coll/fold.h"

#include <math.h>
#include <string.h>

enum { TRIAL_MOST = 1000 }; /* of a number; sums of 64 are exact in float32 */

uint32_t weft_coll_box_settings(const struct weft_coll_box_config *c, uint64_t more)
{
    uint64_t h = weft_mix64(more);
    h = weft_mix64(h ^ ((uint64_t)c->type << 8 | (uint8_t)c->exponent));
    h = weft_mix64(h ^ (c->slots | (uint64_t)c->values << 32));
    h = weft_mix64(h ^ c->bytes_min);
    h = weft_mix64(h ^ c->silence_ns);
    h = weft_mix64(h ^ c->retry_ns);
    return (uint32_t)(h >> 32) | 1;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Calls of `next` return the runs of chunks that are direct, or that are not. */
struct run {
    uint64_t at; /* elements */
    uint64_t count;
};

static bool run_next(const struct weft_coll_box *b, const struct entry *e, bool direct,
                     uint32_t *chunk, struct run *run_p)
{
    size_t first = direct ? weft_bits_next_one(e->direct, e->chunks, *chunk)
                          : weft_bits_next_zero(e->direct, e->chunks, *chunk);
    if (first == e->chunks) {
        return false;
    }
    size_t end = direct ? weft_bits_next_zero(e->direct, e->chunks, first)
                        : weft_bits_next_one(e->direct, e->chunks, first);
    run_p->at = (uint64_t)first * b->config.values;
    run_p->count =
        weft_min_u64((uint64_t)end * b->config.values, e->call.count) - run_p->at;
    *chunk = (uint32_t)end;
    return true;
}

static uint64_t load_u64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

/* Four sums that do not depend on each other: a multiplication takes several cycles. */
static uint64_t hash_bytes(uint64_t h, const uint8_t *bytes, uint64_t count)
{
    const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t lane[4] = {h, h + 1, h + 2, h + 3};
    uint64_t at = 0;
    for (; at + 32 <= count; at += 32) {
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t x = (lane[k] ^ load_u64(bytes + at + 8 * k)) * prime;
            lane[k] = x ^ x >> 29;
        }
    }
    for (; at + BOX_ELEMENT_BYTES <= count; at += BOX_ELEMENT_BYTES) {
        uint32_t value;
        memcpy(&value, bytes + at, sizeof(value));
        lane[0] = weft_mix64(lane[0] ^ value);
    }
    for (uint32_t k = 1; k < 4; k++) {
        lane[0] = weft_mix64(lane[0] ^ lane[k]);
    }
    return weft_mix64(lane[0] ^ count);
}

int64_t weft_coll_box_hash(const struct weft_coll_box *b, const struct entry *e)
{
    uint64_t h = weft_mix64(e->call.count ^ (uint64_t)e->call.reduction << 56);
    uint32_t chunk = 0;
    struct run run;
    while (run_next(b, e, false, &chunk, &run)) {
        h = weft_mix64(h ^ run.at);
        h = hash_bytes(h, e->sums + run.at * BOX_ELEMENT_BYTES, run.count * BOX_ELEMENT_BYTES);
    }
    return (int64_t)(h >> 1);
}

uint64_t weft_coll_box_direct(const struct weft_coll_box *b, const struct entry *e)
{
    uint64_t count = 0;
    uint32_t chunk = 0;
    struct run run;
    while (run_next(b, e, true, &chunk, &run)) {
        count += run.count;
    }
    return count;
}

void weft_coll_box_gather(const struct weft_coll_box *b, const struct entry *e)
{
    uint8_t *to = e->spare;
    uint32_t chunk = 0;
    struct run run;
    while (run_next(b, e, true, &chunk, &run)) {
        memcpy(to, (const uint8_t *)e->call.in + run.at * BOX_ELEMENT_BYTES,
               run.count * BOX_ELEMENT_BYTES);
        to += run.count * BOX_ELEMENT_BYTES;
    }
}

void weft_coll_box_scatter(const struct weft_coll_box *b, const struct entry *e)
{
    const uint8_t *from = e->spare;
    uint32_t chunk = 0;
    struct run run;
    while (run_next(b, e, true, &chunk, &run)) {
        memcpy((uint8_t *)e->call.out + run.at * BOX_ELEMENT_BYTES, from,
               run.count * BOX_ELEMENT_BYTES);
        from += run.count * BOX_ELEMENT_BYTES;
    }
}

void weft_coll_box_take(const struct weft_coll_box *b, const struct entry *e)
{
    uint32_t chunk = 0;
    struct run run;
    if (e->sums == e->call.out && e->call.reduction == WEFT_COLL_SUM) {
        return;
    }
    while (run_next(b, e, false, &chunk, &run)) {
        const void *from = e->sums + run.at * BOX_ELEMENT_BYTES;
        weft_coll_fold(e->call.type, e->call.reduction,
                       (uint8_t *)e->call.out + run.at * BOX_ELEMENT_BYTES, &from, 1, run.count,
                       b->coll_config.ranks);
    }
}

/* ---- the trial ------------------------------------------------------------------------------- */

void weft_coll_box_trial_fill(struct weft_coll_box *b)
{
    for (uint64_t i = 0; i < trial_count(b); i++) {
        uint64_t random = weft_mix64(b->config.nonce ^ weft_mix64(i));
        int32_t number = (int32_t)(random % (2 * TRIAL_MOST + 1)) - TRIAL_MOST;
        float scaled = ldexpf((float)number, b->config.exponent);
        memcpy(b->trial + i * BOX_ELEMENT_BYTES,
               b->config.type == WEFT_COLL_F32 ? (const void *)&scaled : (const void *)&number,
               BOX_ELEMENT_BYTES);
    }
}

enum weft_coll_box_reason weft_coll_box_trial_check(const struct weft_coll_box *b)
{
    const struct entry *e = &b->entry[b->ops_max];
    if (weft_coll_box_direct(b, e) > 0) {
        return WEFT_COLL_BOX_FORM;
    }
    bool equal = memcmp(e->sums, b->trial + 2 * trial_bytes(b), trial_bytes(b)) == 0;
    return equal ? WEFT_COLL_BOX_FINE : WEFT_COLL_BOX_WRONG;
}
