#include "coll/shape.h"

#include "base/bits.h"
#include "coll/fold.h"

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
    uint64_t part_max = (uint64_t)config->chunks_max * WEFT_COLL_CHUNK_MIN / s.elem_bytes;
    part_max = n > 1 ? weft_min_u64(part_max, UINT32_MAX) : UINT32_MAX;
    if (part_elems_max(elems, s.segments) > part_max) {
        return false;
    }
    phases_set(&s);
    *shape_p = s;
    return true;
}

uint64_t weft_coll_slice_at(const struct shape *s, uint32_t j)
{
    switch (s->slices) {
    case SLICES_VECTOR: {
        uint64_t grains = weft_div_ceil_u64(s->count, WEFT_COLL_GRAIN);
        return weft_min_u64(grains * j / s->n * WEFT_COLL_GRAIN, s->count);
    }
    case SLICES_BLOCKS:
        return j * s->count;
    case SLICES_WHOLE:
    case SLICES_ROOT:
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
        break;
    case SLICES_ROOT:
        return j == s->root ? s->count : 0;
    }
    return s->count;
}

struct part weft_coll_part(const struct shape *s, uint32_t j, uint32_t segment)
{
    uint64_t elems = weft_coll_slice_elems(s, j);
    uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
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
    w->bytes += (bytes + WEFT_COLL_ALIGN - 1) / WEFT_COLL_ALIGN * WEFT_COLL_ALIGN;
    return at;
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
    w.bits_bytes = w.bytes;
    if (s->reduces) {
        uint64_t elems = weft_coll_slice_elems(s, s->me);
        size_t bytes = elems * s->elem_bytes;
        uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
        w.mask_words = lossy ? WEFT_BITS_WORDS(grains) : 0;
        w.masks = take(&w, s->n * w.mask_words * sizeof(uint64_t));
        w.stage_bytes = (bytes + WEFT_COLL_ALIGN - 1) / WEFT_COLL_ALIGN * WEFT_COLL_ALIGN;
        w.staging = take(&w, (s->n - 1) * w.stage_bytes);
        bool elsewhere = s->kind == WEFT_COLL_REDUCE && s->me != s->root;
        w.result = take(&w, elsewhere ? bytes : 0);
        w.copy = take(&w, s->slices == SLICES_WHOLE ? bytes : 0);
    }
    *work_p = w;
}
