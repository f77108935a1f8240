#include "ps/journal_ring.h"

#include "base/assert.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

static_assert(sizeof(struct weft_ring_record) == WEFT_RING_UNIT);

static const uint64_t magic = UINT64_C(0x6c6e726a74666577); /* "weftjrnl" */

/* Free room at which more is asked for: more than comes between two looks at it. */
static const uint64_t low_bytes = UINT64_C(16) << 20;

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards;
    uint32_t reserved;
    uint64_t job;
    uint64_t check;
};

struct begin {
    uint64_t seq;
    uint64_t position;
    uint64_t at;
    uint64_t life;
    uint64_t check;
};

enum { BEGIN_AT = 64, BEGIN_STRIDE = 64 };

/* ---- checks ---------------------------------------------------------------------------------- */

/* Four lanes, so that a multiplication need not wait for the one before. Each step is a bijection of
 * its lane: a changed word changes the sum. It finds accidents, not forgery. */
struct lanes {
    uint64_t v[4];
};

static struct lanes lanes_new(uint64_t seed)
{
    return (struct lanes){{seed, seed + 1, seed + 2, seed + 3}};
}

static inline void lanes_block(struct lanes *lanes, const uint64_t words[4])
{
    for (int i = 0; i < 4; i++) {
        uint64_t v = (lanes->v[i] ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        lanes->v[i] = v ^ v >> 29;
    }
}

static void lanes_add(struct lanes *lanes, const uint8_t *from, size_t bytes)
{
    struct lanes own = *lanes;
    for (size_t i = 0; i < bytes; i += WEFT_RING_UNIT) {
        uint64_t words[4];
        memcpy(words, from + i, sizeof(words));
        lanes_block(&own, words);
    }
    *lanes = own;
}

/* The same while copying; the last unit is padded. */
static void lanes_copy(struct lanes *lanes, uint8_t *to, const uint8_t *from, size_t bytes)
{
    struct lanes own = *lanes;
    uint64_t words[4];
    size_t whole = bytes / WEFT_RING_UNIT * WEFT_RING_UNIT;
    for (size_t i = 0; i < whole; i += WEFT_RING_UNIT) {
        memcpy(words, from + i, sizeof(words));
        lanes_block(&own, words);
        memcpy(to + i, words, sizeof(words));
    }
    if (whole < bytes) {
        memset(words, 0, sizeof(words));
        memcpy(words, from + whole, bytes - whole);
        lanes_block(&own, words);
        memcpy(to + whole, words, sizeof(words));
    }
    *lanes = own;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t lanes_sum(const struct lanes *lanes)
{
    return mix(lanes->v[0] + mix(lanes->v[1] + mix(lanes->v[2] + mix(lanes->v[3]))));
}

/* Of a record: its head without the check, then the rest. */
static uint64_t record_check(const struct weft_ring_record *record, struct lanes lanes)
{
    uint64_t words[4] = {
        record->position, (uint64_t)record->bytes << 32 | record->life,
        (uint64_t)record->type << 48 | (uint64_t)record->table << 32 | record->rank, 0};
    lanes_block(&lanes, words);
    return lanes_sum(&lanes);
}

static uint64_t words_check(const uint64_t *words, size_t count)
{
    uint64_t sum = magic;
    for (size_t i = 0; i < count; i++) {
        sum = mix(sum ^ words[i]);
    }
    return sum;
}

static uint64_t head_check(const struct head *head)
{
    const uint64_t words[] = {head->magic, (uint64_t)head->version << 32 | head->shard,
                              (uint64_t)head->shards << 32 | head->reserved, head->job};
    return words_check(words, WEFT_ARRAY_COUNT(words));
}

static uint64_t begin_check(const struct begin *begin)
{
    const uint64_t words[] = {begin->seq, begin->position, begin->at, begin->life};
    return words_check(words, WEFT_ARRAY_COUNT(words));
}

/* ---- where it begins ------------------------------------------------------------------------- */

/* Into the place of the older of the two, the check last: whoever dies in here leaves the other. */
static void begin_write(struct weft_ring *ring)
{
    struct begin begin = {.seq = ++ring->seq,
                          .position = ring->begin.position,
                          .at = ring->begin.at,
                          .life = ring->life};
    begin.check = begin_check(&begin);
    atomic_thread_fence(memory_order_release);
    memcpy(ring->memory + BEGIN_AT + ring->seq % 2 * BEGIN_STRIDE, &begin, sizeof(begin));
    atomic_thread_fence(memory_order_release);
}

static bool begin_read(struct weft_ring *ring)
{
    bool found = false;
    for (int i = 0; i < 2; i++) {
        struct begin begin;
        memcpy(&begin, ring->memory + BEGIN_AT + i * BEGIN_STRIDE, sizeof(begin));
        if (begin.check != begin_check(&begin) || begin.at < WEFT_RING_HEAD_BYTES ||
            begin.at > ring->bytes || begin.at % WEFT_RING_UNIT != 0 ||
            begin.life > UINT32_MAX - 1 || begin.seq < ring->seq) {
            continue;
        }
        ring->seq = begin.seq;
        ring->begin = (struct weft_ring_place){begin.position, begin.at};
        ring->life = (uint32_t)begin.life;
        found = true;
    }
    return found;
}

static weft_status head_read(const struct weft_ring *ring, const struct weft_ring_owner *owner)
{
    struct head head;
    memcpy(&head, ring->memory, sizeof(head));
    if (head.magic != magic) {
        return WEFT_DATA;
    }
    if (head.version != WEFT_RING_VERSION) {
        return WEFT_UNSUPPORTED;
    }
    if (head.check != head_check(&head)) {
        return WEFT_DATA;
    }
    bool ours =
        head.shard == owner->shard && head.shards == owner->shards && head.job == owner->job;
    return ours ? WEFT_OK : WEFT_EXISTS;
}

/* The head is written last: before that the memory is blank. */
static void make(struct weft_ring *ring, const struct weft_ring_owner *owner)
{
    struct head head = {.magic = magic,
                        .version = WEFT_RING_VERSION,
                        .shard = owner->shard,
                        .shards = owner->shards,
                        .job = owner->job};
    head.check = head_check(&head);
    ring->begin = (struct weft_ring_place){0, WEFT_RING_HEAD_BYTES};
    begin_write(ring);
    memcpy(ring->memory, &head, sizeof(head));
}

static bool is_blank(const uint8_t *memory)
{
    static const uint8_t zeros[sizeof(struct head)];
    return memcmp(memory, zeros, sizeof(zeros)) == 0;
}

weft_status weft_ring_open(struct weft_ring *ring, void *memory, uint64_t bytes, uint64_t bytes_max,
                           const struct weft_ring_owner *owner)
{
    WEFT_ASSERT(bytes > WEFT_RING_HEAD_BYTES && bytes <= bytes_max && bytes % WEFT_RING_UNIT == 0);
    struct weft_ring opened = {.memory = memory, .bytes = bytes, .bytes_max = bytes_max};
    if (is_blank(memory)) {
        make(&opened, owner);
    } else {
        weft_status status = head_read(&opened, owner);
        if (status == WEFT_OK && !begin_read(&opened)) {
            status = WEFT_DATA;
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    opened.life++;
    opened.end = opened.begin;
    begin_write(&opened);
    *ring = opened;
    return WEFT_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

const struct weft_ring_record *weft_ring_next(const struct weft_ring *ring, uint32_t *life_p,
                                              struct weft_ring_place *place_p)
{
    for (;;) {
        struct weft_ring_place place = *place_p;
        if (place.at + WEFT_RING_UNIT > ring->bytes) {
            return NULL;
        }
        const void *at = ring->memory + place.at;
        const struct weft_ring_record *record = at;
        if (record->position != place.position || record->bytes < WEFT_RING_UNIT ||
            record->bytes % WEFT_RING_UNIT != 0 || record->bytes > ring->bytes - place.at ||
            record->life < *life_p || record->life > ring->life) {
            return NULL;
        }
        struct lanes lanes = lanes_new(record->position);
        lanes_add(&lanes, (const uint8_t *)at + WEFT_RING_UNIT, record->bytes - WEFT_RING_UNIT);
        if (record->check != record_check(record, lanes)) {
            return NULL;
        }
        *life_p = record->life;
        place_p->position += record->bytes;
        place_p->at = record->type == 0 ? WEFT_RING_HEAD_BYTES : place.at + record->bytes;
        if (record->type != 0) {
            return record;
        }
    }
}

static bool wrapped(const struct weft_ring *ring)
{
    return ring->end.at <= ring->begin.at && weft_ring_used(ring) > 0;
}

/* Bytes in one piece at `end`; in front of WRAP, which must fit the end of the memory always. */
static uint64_t room(const struct weft_ring *ring)
{
    return wrapped(ring) ? ring->begin.at - ring->end.at
                         : ring->bytes - ring->end.at - WEFT_RING_UNIT;
}

static void write_record(struct weft_ring *ring, const struct weft_ring_record *head,
                         const void *body, size_t body_bytes, const void *data, size_t data_bytes,
                         uint64_t bytes)
{
    uint8_t *at = ring->memory + ring->end.at;
    struct weft_ring_record record = *head;
    record.position = ring->end.position;
    record.bytes = (uint32_t)bytes;
    record.life = ring->life;
    struct lanes lanes = lanes_new(record.position);
    lanes_copy(&lanes, at + WEFT_RING_UNIT, body, body_bytes);
    lanes_copy(&lanes, at + WEFT_RING_UNIT + body_bytes, data, data_bytes);
    record.check = record_check(&record, lanes);
    atomic_thread_fence(memory_order_release);
    memcpy(at, &record, sizeof(record));
    ring->end.position += bytes;
    ring->end.at += bytes;
}

bool weft_ring_append(struct weft_ring *ring, const struct weft_ring_record *head, const void *body,
                      size_t body_bytes, const void *data, size_t data_bytes)
{
    WEFT_ASSERT(body_bytes % WEFT_RING_UNIT == 0);
    size_t padded = (data_bytes + WEFT_RING_UNIT - 1) / WEFT_RING_UNIT * WEFT_RING_UNIT;
    uint64_t bytes = WEFT_RING_UNIT + body_bytes + padded;
    bool in_front = !wrapped(ring) && ring->begin.at - WEFT_RING_HEAD_BYTES > bytes;
    if (bytes > UINT32_MAX || (bytes > room(ring) && !in_front)) {
        return false;
    }
    if (bytes > room(ring)) {
        const struct weft_ring_record wrap = {.type = 0};
        write_record(ring, &wrap, NULL, 0, NULL, 0, WEFT_RING_UNIT);
        ring->end.at = WEFT_RING_HEAD_BYTES;
    }
    if (wrapped(ring) && bytes == room(ring)) {
        return false; /* an end at the begin would look like nothing used */
    }
    write_record(ring, head, body, body_bytes, data, data_bytes, bytes);
    return true;
}

void weft_ring_drop(struct weft_ring *ring, struct weft_ring_place place)
{
    WEFT_ASSERT(place.position >= ring->begin.position && place.position <= ring->end.position);
    if (place.position != ring->begin.position) {
        ring->begin = place;
        begin_write(ring);
    }
}

void weft_ring_cut_back(struct weft_ring *ring, struct weft_ring_place place)
{
    WEFT_ASSERT(place.position >= ring->begin.position && place.position <= ring->end.position);
    ring->end = place;
    ring->life++; /* what lies behind the next record is of an earlier one */
    begin_write(ring);
}

bool weft_ring_spares(const struct weft_ring *ring, uint64_t bytes)
{
    uint64_t front = wrapped(ring) ? 0 : ring->begin.at - WEFT_RING_HEAD_BYTES;
    return room(ring) + front >= weft_ring_reserve(ring) + bytes;
}

bool weft_ring_wants(const struct weft_ring *ring)
{
    /* Where most of it is free in front, that is used again rather. */
    bool front = ring->begin.at - WEFT_RING_HEAD_BYTES > ring->bytes / 4 * 3;
    return ring->bytes < ring->bytes_max && !wrapped(ring) && !front &&
           room(ring) < low_bytes + weft_ring_reserve(ring);
}
