/* The rows missed by the last completed operation: a copy, because the operation is released when
 * the wait returns.
 *
 * A long list is split into parts, whose rows are numbered consecutively: `base` is the first row
 * of the part.
 */
#include "api/ps_internal.h"

#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_api_ps_missed_begin(struct weft_ps *ps, size_t rows)
{
    struct ps_missed_rows *missed = &ps->missed;
    size_t words = WEFT_BITS_WORDS(rows);
    if (words > missed->words_max) {
        uint64_t *bits = realloc(missed->bits, words * sizeof(*bits));
        if (bits == NULL) {
            return weft_fail(&ps->worker.error, WEFT_NOMEM,
                             "no memory for a bitmap of %zu rows; pass fewer rows", rows);
        }
        missed->bits = bits;
        missed->words_max = words;
    }
    if (words > 0) {
        memset(missed->bits, 0, words * sizeof(*missed->bits));
    }
    missed->rows = rows;
    missed->base = 0;
    return WEFT_OK;
}

void weft_api_ps_missed_all(struct weft_ps *ps, size_t rows)
{
    for (size_t i = 0; i < rows && i < ps->missed.rows - ps->missed.base; i++) {
        weft_bits_set(ps->missed.bits, ps->missed.base + i);
    }
}

void weft_api_ps_missed_take(struct weft_ps *ps, weft_ps_op op)
{
    struct ps_missed_rows *missed = &ps->missed;
    uint32_t rows;
    const uint64_t *bits = weft_ps_op_missed(ps->worker.client, op, &rows);
    for (size_t i = bits != NULL ? weft_bits_next_one(bits, rows, 0) : rows; i < rows;
         i = weft_bits_next_one(bits, rows, i + 1)) {
        weft_bits_set(missed->bits, missed->base + i);
    }
}

bool weft_result_gap(const struct weft_ps *ps, size_t from, size_t *first_p, size_t *count_p)
{
    const struct ps_missed_rows *missed = &ps->missed;
    if (from >= missed->rows) {
        return false;
    }
    size_t first = weft_bits_next_one(missed->bits, missed->rows, from);
    if (first == missed->rows) {
        return false;
    }
    *first_p = first;
    *count_p = weft_bits_next_zero(missed->bits, missed->rows, first) - first;
    return true;
}

size_t weft_result_missed(const struct weft_ps *ps, uint64_t *bits_p, size_t words)
{
    const struct ps_missed_rows *missed = &ps->missed;
    size_t have = weft_min_u64(words, WEFT_BITS_WORDS(missed->rows));
    if (have > 0) {
        memcpy(bits_p, missed->bits, have * sizeof(*bits_p));
    }
    if (words > have) {
        memset(bits_p + have, 0, (words - have) * sizeof(*bits_p));
    }
    return missed->rows;
}
