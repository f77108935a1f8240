#include "coll/shape.h"

#include "base/bits.h"
#include "coll/fold.h"
#include "coll/internal.h"

/* Upper bound of a buffer: more bytes than any host has. */
static const uint64_t bytes_max = UINT64_C(1) << 47;

static bool is_reducing(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_ALL_REDUCE || kind == WEFT_COLL_REDUCE ||
           kind == WEFT_COLL_REDUCE_SCATTER || kind == WEFT_COLL_BARRIER;
}

static bool has_blocks(enum weft_coll_kind kind)
{
    return kind == WEFT_COLL_REDUCE_SCATTER || kind == WEFT_COLL_ALL_GATHER ||
           kind == WEFT_COLL_GATHER || kind == WEFT_COLL_SCATTER || kind == WEFT_COLL_ALL_TO_ALL;
}

static void phases_set(struct shape *s)
{
    switch (s->kind) {
    case WEFT_COLL_ALL_REDUCE:
    case WEFT_COLL_BARRIER:
        s->senders = PARTY_ALL;
        s->targets = s->slices == SLICES_WHOLE ? PARTY_NONE : PARTY_ALL;
        break;
    case WEFT_COLL_REDUCE:
        s->senders = PARTY_ALL;
        s->targets = s->slices == SLICES_ROOT ? PARTY_NONE : PARTY_ROOT;
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        s->senders = PARTY_ALL;
        break;
    case WEFT_COLL_ALL_GATHER:
        s->targets = PARTY_ALL;
        break;
    case WEFT_COLL_GATHER:
        s->targets = PARTY_ROOT;
        break;
    case WEFT_COLL_BROADCAST:
        s->senders = s->slices == SLICES_ROOT ? PARTY_NONE : PARTY_ROOT;
        s->landing = LAND_IN_SLICE;
        s->targets = PARTY_ALL;
        break;
    case WEFT_COLL_SCATTER:
        s->senders = PARTY_ROOT;
        s->landing = LAND_AT_START;
        break;
    case WEFT_COLL_ALL_TO_ALL:
        s->senders = PARTY_ALL;
        s->landing = LAND_BY_SENDER;
        break;
    case WEFT_COLL_SEND:
    case WEFT_COLL_RECV:
        s->senders = PARTY_PAIR;
        s->landing = LAND_AT_START;
        break;
    case WEFT_COLL_KINDS:
        break;
    }
}

/* Upper bound of a slice whose messages fit. */
static uint64_t slice_bytes_max(const struct weft_coll_config *config)
{
    return (uint64_t)config->chunks_max * WEFT_COLL_CHUNK_MIN * (WEFT_COLL_SEGMENTS_MAX / 2);
}

static enum slices slices_of(const struct weft_coll_config *config, const struct shape *s)
{
    uint64_t bytes = s->count * s->elem_bytes;
    if (has_blocks(s->kind)) {
        return SLICES_BLOCKS;
    }
    if (weft_coll_is_pair(s->kind)) {
        return SLICES_WHOLE;
    }
    bool pair = s->n == 2 && bytes <= slice_bytes_max(config);
    if (s->kind == WEFT_COLL_BROADCAST) {
        return bytes <= config->bcast_bytes || pair ? SLICES_ROOT : SLICES_VECTOR;
    }
    if (s->kind == WEFT_COLL_REDUCE) {
        return bytes <= config->small_bytes || pair ? SLICES_ROOT : SLICES_VECTOR;
    }
    bool small = bytes <= config->small_bytes && s->n <= config->small_ranks;
    return small ? SLICES_WHOLE : SLICES_VECTOR;
}

/* Length of the longest slice, in elements. */
static uint64_t slice_elems_max(const struct shape *s)
{
    if (s->slices != SLICES_VECTOR) {
        return s->count;
    }
    uint64_t most = 0;
    for (uint32_t j = 0; s->plan != NULL && j < s->n; j++) {
        most = weft_max_u64(most, weft_coll_slice_elems(s, j));
    }
    if (s->plan != NULL) {
        return most;
    }
    uint64_t grains = weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN);
    return weft_min_u64(weft_div_ceil_u64(grains, s->n) * WEFT_COLL_GRAIN, s->count);
}

static uint64_t part_elems_max(uint64_t slice_elems, uint32_t segments)
{
    uint64_t grains = weft_div_ceil_u64(slice_elems, WEFT_COLL_GRAIN);
    return weft_min_u64(weft_div_ceil_u64(grains, segments) * WEFT_COLL_GRAIN, slice_elems);
}

/* A segment has at most segment_bytes, or, if that would be too many segments, a multiple of half
 * of it. By default the half is nearly as long as a packet between processes of one host, so that a
 * segment does not end with a few bytes in a packet of their own. */
static uint32_t segments_of(const struct weft_coll_config *config, uint64_t bytes)
{
    uint64_t halves = weft_max_u64(weft_div_ceil_u64(bytes, config->segment_bytes / 2), 1);
    uint64_t each = weft_max_u64(weft_div_ceil_u64(halves, WEFT_COLL_SEGMENTS_MAX), 2);
    return (uint32_t)weft_div_ceil_u64(halves, each);
}

/* The longest segment, in elements, whose message fits. */
static uint64_t part_elems_limit(const struct weft_coll_config *config, const struct shape *s)
{
    return weft_min_u64((uint64_t)config->chunks_max * WEFT_COLL_CHUNK_MIN / s->elem_bytes,
                        UINT32_MAX);
}

bool weft_coll_shape_make(const struct weft_coll_config *config, const struct weft_coll_call *call,
                          uint32_t n, uint32_t me, struct shape *shape_p)
{
    if ((unsigned)call->kind >= WEFT_COLL_KINDS || (unsigned)call->type >= WEFT_COLL_TYPES ||
        call->root >= n || me >= n) {
        return false;
    }
    struct shape s = {
        .kind = call->kind,
        .reduces = is_reducing(call->kind),
        .n = n,
        .me = me,
        .root = call->root,
        .elem_bytes = weft_coll_type_bytes(call->type),
        .count = call->count,
    };
    if (weft_coll_is_pair(s.kind)) {
        s.root = s.kind == WEFT_COLL_SEND ? me : call->peer;
        s.receiver = s.kind == WEFT_COLL_SEND ? call->peer : me;
        if (s.count == 0) {
            s.count = s.elem_bytes = 1;
        }
    }
    if (s.reduces && !weft_coll_fold_has(call->type, call->reduction)) {
        return false;
    }
    uint64_t blocks = has_blocks(s.kind) ? n : 1;
    if (s.count > bytes_max / s.elem_bytes / blocks) {
        return false;
    }
    s.slices = slices_of(config, &s);
    uint64_t elems = slice_elems_max(&s);
    s.segments = segments_of(config, elems * s.elem_bytes);
    uint64_t part_max = n > 1 ? part_elems_limit(config, &s) : UINT32_MAX;
    if (part_elems_max(elems, s.segments) > part_max) {
        return false;
    }
    phases_set(&s);
    *shape_p = s;
    return true;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static uint64_t grains_before(uint64_t grains, uint32_t position)
{
    return grains * position / WEFT_COLL_PLAN_WHOLE;
}

static bool plan_slices(const struct weft_coll_config *config, const struct weft_coll_plan *plan,
                        struct shape *s)
{
    s->plan = plan;
    uint64_t elems = slice_elems_max(s);
    s->segments = segments_of(config, elems * s->elem_bytes);
    s->part_grains =
        weft_div_ceil_u64(weft_div_ceil_u64(elems, WEFT_COLL_GRAIN), s->segments);
    return s->part_grains * WEFT_COLL_GRAIN <= part_elems_limit(config, s);
}

/* Segments have half of the length of a slice's: the sum of a segment arrives at the root after as
 * many of them as its tree is deep. */
static bool plan_trees(const struct weft_coll_config *config, const struct weft_coll_plan *plan,
                       struct shape *s)
{
    uint64_t grains = weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN), most = 0;
    for (uint32_t p = 0; p < plan->parts; p++) {
        most = weft_max_u64(most, grains_before(grains, plan->part[p + 1]) -
                                      grains_before(grains, plan->part[p]));
    }
    uint64_t bytes = most * WEFT_COLL_GRAIN * s->elem_bytes;
    uint64_t each = weft_max_u64(weft_div_ceil_u64(bytes, config->segment_bytes / 2), 1);
    s->plan = plan;
    s->slices = SLICES_TREES;
    s->each = (uint32_t)weft_min_u64(each, WEFT_COLL_PLAN_SEGMENTS_MAX / plan->parts);
    s->segments = s->each * plan->parts;
    return weft_div_ceil_u64(most, s->each) * WEFT_COLL_GRAIN <= part_elems_limit(config, s);
}

void weft_coll_shape_plan(const struct weft_coll_config *config, const struct weft_coll_call *call,
                          const struct weft_coll_plan *plan, struct shape *shape_p)
{
    struct shape s = *shape_p;
    if (plan == NULL || s.kind != WEFT_COLL_ALL_REDUCE || s.slices != SLICES_VECTOR || s.n < 2) {
        return;
    }
    bool narrow = call->type == WEFT_COLL_F16 || call->type == WEFT_COLL_BF16;
    bool trees = plan->parts > 0 && call->bound_ppm == 0 && call->residual == NULL && !narrow &&
                 s.count * s.elem_bytes >= plan->trees_bytes_min;
    if (trees ? plan_trees(config, plan, &s) : plan_slices(config, plan, &s)) {
        *shape_p = s;
    }
}

static struct part tree_part(const struct shape *s, uint32_t segment)
{
    uint64_t grains = weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN);
    uint32_t p = segment / s->each, i = segment % s->each;
    uint64_t from = grains_before(grains, s->plan->part[p]);
    uint64_t part = grains_before(grains, s->plan->part[p + 1]) - from;
    uint64_t at = weft_min_u64((from + part * i / s->each) * WEFT_COLL_GRAIN, s->count);
    uint64_t end = weft_min_u64((from + part * (i + 1) / s->each) * WEFT_COLL_GRAIN, s->count);
    return (struct part){.at = at, .elems = (uint32_t)(end - at)};
}

static bool sends(const struct shape *s, uint32_t phase, uint32_t i)
{
    uint32_t slice = shape_slice(s, phase, s->me, i);
    return slice != WEFT_COLL_NONE && weft_coll_slice_elems(s, slice) > 0;
}

/* With a plan a rank may owe another one only a result, for which it needs that rank's contribution
 * first. */
bool weft_coll_shape_tells(const struct shape *s, uint32_t i)
{
    if (s->slices == SLICES_TREES) {
        return false;
    }
    return sends(s, PHASE_1, i) || (s->plan == NULL && sends(s, PHASE_2, i));
}

/* ---- slices ---------------------------------------------------------------------------------- */

uint64_t weft_coll_slice_at(const struct shape *s, uint32_t j)
{
    switch (s->slices) {
    case SLICES_VECTOR: {
        uint64_t grains = weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN);
        if (s->plan != NULL) {
            return weft_min_u64(grains_before(grains, s->plan->slice[j]) * WEFT_COLL_GRAIN,
                                s->count);
        }
        return weft_min_u64(grains * j / s->n * WEFT_COLL_GRAIN, s->count);
    }
    case SLICES_BLOCKS:
        return j * s->count;
    case SLICES_WHOLE:
    case SLICES_ROOT:
    case SLICES_TREES:
        break;
    }
    return 0;
}

uint64_t weft_coll_slice_elems(const struct shape *s, uint32_t j)
{
    switch (s->slices) {
    case SLICES_VECTOR:
        return weft_coll_slice_at(s, j + 1) - weft_coll_slice_at(s, j);
    case SLICES_BLOCKS:
    case SLICES_WHOLE:
    case SLICES_TREES:
        break;
    case SLICES_ROOT:
        return j == s->root ? s->count : 0;
    }
    return s->count;
}

struct part weft_coll_part(const struct shape *s, uint32_t j, uint32_t segment)
{
    if (s->slices == SLICES_TREES) {
        return tree_part(s, segment);
    }
    uint64_t elems = weft_coll_slice_elems(s, j);
    uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
    if (s->part_grains > 0) {
        uint64_t from = weft_min_u64(s->part_grains * segment * WEFT_COLL_GRAIN, elems);
        uint64_t to = weft_min_u64(from + s->part_grains * WEFT_COLL_GRAIN, elems);
        return (struct part){.at = from, .elems = (uint32_t)(to - from)};
    }
    uint64_t at = weft_min_u64(grains * segment / s->segments * WEFT_COLL_GRAIN, elems);
    uint64_t end = weft_min_u64(grains * (segment + 1) / s->segments * WEFT_COLL_GRAIN, elems);
    return (struct part){.at = at, .elems = (uint32_t)(end - at)};
}

uint64_t weft_coll_grain(const struct shape *s, uint32_t j, uint64_t at)
{
    uint64_t before = s->slices == SLICES_BLOCKS ? j * weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN)
                                                 : weft_coll_slice_at(s, j) / WEFT_COLL_GRAIN;
    return before + at / WEFT_COLL_GRAIN;
}

static size_t take(struct work *w, size_t bytes)
{
    size_t at = w->bytes;
    w->bytes += weft_coll_aligned(bytes);
    return at;
}

/* Bytes of the sums that a rank stages for its children. */
static size_t staged_bytes(const struct shape *s)
{
    size_t bytes = 0;
    for (uint32_t p = 0; p < s->segments / s->each; p++) {
        const uint16_t *up = s->plan->up + (size_t)p * s->n;
        uint32_t children = 0;
        for (uint32_t r = 0; r < s->n; r++) {
            children += up[r] == s->me && r != s->me;
        }
        for (uint32_t i = 0; i < s->each && children > 0; i++) {
            size_t one = (size_t)tree_part(s, p * s->each + i).elems * s->elem_bytes;
            bytes += children * weft_coll_aligned(one);
        }
    }
    return bytes;
}

void weft_coll_work_make(const struct shape *s, bool lossy, struct work *work_p)
{
    struct work w = {0};
    size_t words = WEFT_BITS_WORDS((size_t)s->segments * s->n);
    for (uint32_t phase = 0; phase < PHASES; phase++) {
        for (int i = 0; i < 3; i++) {
            w.bits[phase][i] = take(&w, words * sizeof(uint64_t));
        }
    }
    bool trees = s->slices == SLICES_TREES;
    w.segments = take(&w, trees ? s->segments * sizeof(struct op_segment) : 0);
    w.bits_bytes = w.bytes;
    if (trees) {
        w.stage_at = take(&w, s->segments * sizeof(uint64_t));
        w.staging = take(&w, staged_bytes(s));
    } else if (s->reduces) {
        uint64_t elems = weft_coll_slice_elems(s, s->me);
        size_t bytes = elems * s->elem_bytes;
        uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
        w.mask_words = lossy ? WEFT_BITS_WORDS(grains) : 0;
        w.masks = take(&w, s->n * w.mask_words * sizeof(uint64_t));
        w.stage_bytes = weft_coll_aligned(bytes);
        w.staging = take(&w, (s->n - 1) * w.stage_bytes);
        bool elsewhere = s->kind == WEFT_COLL_REDUCE && s->me != s->root;
        w.result = take(&w, elsewhere ? bytes : 0);
        w.copy = take(&w, s->slices == SLICES_WHOLE ? bytes : 0);
    }
    *work_p = w;
}
