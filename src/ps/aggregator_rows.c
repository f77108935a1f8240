/* Rows of a group: adds those of a push, or of a child's message, to the sums, with their weights.
 *
 * An index of hashed ids locates the rows. Each index entry carries the generation (`life`) of the
 * group that wrote it, so a new group starts with an empty index without clearing memory. */
#include "ps/aggregator_internal.h"

#include <string.h>

/* The index slot of an id: the slot of its row, or the free slot in which to insert it. */
static inline uint32_t slot_of(const uint64_t *index, const uint64_t *ids, uint64_t life,
                               uint64_t hash, uint64_t id)
{
    uint32_t slot = (uint32_t)hash % AGG_INDEX_SLOTS;
    while (index[slot] >> 32 == life && ids[(uint32_t)index[slot]] != id) {
        slot = (slot + 1) % AGG_INDEX_SLOTS;
    }
    return slot;
}

bool weft_agg_rows_fit(const struct weft_aggregator *agg, const struct agg_group *group,
                       const struct agg_input *input)
{
    if (group->members + input->members > WEFT_AGGREGATE_MEMBERS_MAX ||
        group->count_max + input->count_max > WEFT_AGGREGATE_COUNT_MAX) {
        return false;
    }
    if (group->rows + input->rows <= group->rows_max) {
        return true;
    }
    uint32_t more = 0;
    for (uint32_t i = 0; i < input->rows; i++) {
        const uint64_t id = input->ids[i];
        uint32_t slot = slot_of(group->index, group->ids, group->life,
                                weft_hash_keyed(&agg->key, id), id);
        more += group->index[slot] >> 32 != group->life;
    }
    return group->rows + more <= group->rows_max;
}

typedef float quad __attribute__((vector_size(16)));

static inline void row_add(float *sums, const uint8_t *from, uint32_t dim)
{
    uint32_t k = 0;
    for (; k + 4 <= dim; k += 4) {
        quad sum, more;
        memcpy(&sum, sums + k, sizeof(sum));
        memcpy(&more, from + k * sizeof(float), sizeof(more));
        sum += more;
        memcpy(sums + k, &sum, sizeof(sum));
    }
    for (; k < dim; k++) {
        float more;
        memcpy(&more, from + k * sizeof(float), sizeof(more));
        sums[k] += more;
    }
}

uint32_t weft_agg_weights_of(const struct weft_aggregator *agg, const struct agg_input *input)
{
    const struct agg_table *table = &agg->tables[input->table];
    const uint32_t theirs = input->view != NULL ? input->view->request.need_clock : 0;
    return input->ends || !weft_aggregate_weighs(&table->spec)
               ? 0
               : (uint32_t)weft_max_u64(weft_max_u64(table->newest, input->clock), theirs);
}

/* Each weight is a smooth function of t from the member's clock on only, so a sum's t must not be
 * below the clock of a member. When a later one joins, change the weights of the rows so far. */
static void raise_weights(const struct weft_aggregator *agg, struct agg_group *group,
                          const struct agg_input *input)
{
    const uint32_t before = group->weights, now = weft_agg_weights_of(agg, input);
    if (before == 0 || input->clock <= before) {
        return;
    }
    double from = 0, to = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        from += weft_aggregate_weight(before, group->member[i].push.clock);
        to += weft_aggregate_weight(now, group->member[i].push.clock);
    }
    const float ratio = (float)(to / from);
    const size_t floats = (size_t)group->rows * agg->tables[group->table].spec.dim;
    for (size_t k = 0; k < floats; k++) {
        group->sums[k] *= ratio;
    }
    group->weights = now;
}

/* What to multiply an input by before it is added. */
static float weight_of(const struct agg_group *group, const struct agg_input *input)
{
    if (group->weights == 0) {
        return 1;
    }
    return (float)(input->view != NULL
                       ? weft_aggregate_reweigh(input->view, input->clock, group->weights)
                       : weft_aggregate_weight(group->weights, input->clock));
}

/* The row, or in `to` the row multiplied by the weight. */
static inline const uint8_t *row_weighted(const uint8_t *row, float weight, uint32_t dim, float *to)
{
    if (weight == 1) {
        return row;
    }
    memcpy(to, row, dim * sizeof(float));
    for (uint32_t k = 0; k < dim; k++) {
        to[k] *= weight;
    }
    return (const uint8_t *)to;
}

void weft_agg_rows_add(struct weft_aggregator *agg, struct agg_group *group,
                       const struct agg_input *input)
{
    const uint32_t dim = agg->tables[input->table].spec.dim;
    if (group->members > 0) {
        raise_weights(agg, group, input);
    }
    /* Local copies: the compiler may assume that no store changes them. */
    uint64_t *const index = group->index, *const ids = group->ids;
    uint16_t *const counts = group->counts;
    float *const sums = group->sums;
    const struct weft_hash_key key = agg->key;
    const uint64_t life = group->life;
    const uint8_t *from = input->values;
    const float weight = weight_of(group, input);
    float weighted[WEFT_RPC_BLOCK_FLOATS]; /* a row that can be summed is one block */
    uint32_t rows = group->rows, count_max = group->count_max;
    for (uint32_t i = 0; i < input->rows; i++, from += dim * sizeof(float)) {
        const uint16_t times = input->view != NULL ? weft_aggregate_count_at(input->view, i) : 1;
        const uint64_t id = input->ids[i];
        const uint8_t *values = row_weighted(from, weight, dim, weighted);
        const uint32_t slot = slot_of(index, ids, life, weft_hash_keyed(&key, id), id);
        const uint32_t row = index[slot] >> 32 == life ? (uint32_t)index[slot] : rows;
        if (row == rows) {
            index[slot] = life << 32 | row;
            ids[row] = id;
            counts[row] = times;
            agg_row_copy(sums + (size_t)row * dim, values, dim);
            rows++;
        } else {
            counts[row] += times;
            row_add(sums + (size_t)row * dim, values, dim);
        }
        count_max = counts[row] > count_max ? counts[row] : count_max;
    }
    group->rows = rows;
    group->count_max = count_max;
}
