#include "ps/journal_ring.h"

#include "base/assert.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

static_assert(sizeof(struct weft_ring_record) == WEFT_RING_UNIT);

static const uint64_t magic = UINT64_C(0x6c6e726a74666577); /* "weftjrnl" */

/* More memory is requested below this free space, which exceeds what is written between two
 * checks. */
static const uint64_t low_bytes = UINT64_C(16) << 20;

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards;
    uint32_t reserved;
    uint64_t job;
    uint64_t lineage; /* of version 2: the check, and nothing behind it */
    uint64_t check;
};

struct begin {
    uint64_t seq;
    uint64_t position;
    uint64_t at;
    uint64_t life;
    uint64_t records; /* of version 2: the check, and nothing behind it */
    uint64_t check;
};

struct end {
    uint64_t seq;
    uint64_t position;
    uint64_t records;
    uint64_t life;
    uint64_t check;
};

enum { BEGIN_AT = 64, END_AT = 192, SLOT_STRIDE = 64, VERSION_WITHOUT_END = 2 };

static_assert(sizeof(struct head) <= BEGIN_AT && sizeof(struct begin) <= SLOT_STRIDE);

/* ---- checksums ------------------------------------------------------------------------------- */

/* Four lanes, so that multiplications do not depend on each other. Each step is a bijection of its
 * lane, so a changed word changes the sum. It detects accidental damage, not forgery. */
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

/* Checksum of a record: its head without the checksum, then the rest. */
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

/* The head of version 2 ends before the lineage. */
static uint64_t head_check(const struct head *head)
{
    const uint64_t words[] = {head->magic, (uint64_t)head->version << 32 | head->shard,
                              (uint64_t)head->shards << 32 | head->reserved, head->job,
                              head->lineage};
    bool old = head->version == VERSION_WITHOUT_END;
    return words_check(words, WEFT_ARRAY_COUNT(words) - old);
}

static uint64_t begin_check(const struct begin *begin, bool old)
{
    const uint64_t words[] = {begin->seq, begin->position, begin->at, begin->life, begin->records};
    return words_check(words, WEFT_ARRAY_COUNT(words) - old);
}

static uint64_t end_check(const struct end *end)
{
    const uint64_t words[] = {end->seq, end->position, end->records, end->life};
    return words_check(words, WEFT_ARRAY_COUNT(words));
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Store `bytes`, of which the last 8 are a checksum. The checksum is stored after the rest and
 * after all earlier stores, and before all later ones. 8-byte aligned. */
static void store_checked(uint8_t *to, const void *from, size_t bytes)
{
    uint64_t check;
    size_t rest = bytes - sizeof(check);
    memcpy(to, from, rest);
    memcpy(&check, (const uint8_t *)from + rest, sizeof(check));
    atomic_store_explicit((_Atomic uint64_t *)(void *)(to + rest), check, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Overwrite the older of the two copies: if the process dies in this function, the other copy is
 * intact. */
static void slot_write(struct weft_ring *ring, uint32_t at, uint64_t seq, const void *slot,
                       size_t bytes)
{
    store_checked(ring->memory + at + seq % 2 * SLOT_STRIDE, slot, bytes);
}

static void begin_write(struct weft_ring *ring)
{
    struct begin begin = {.seq = ++ring->begin_seq,
                          .position = ring->begin.position,
                          .at = ring->begin.at,
                          .life = ring->life,
                          .records = ring->begin.records};
    begin.check = begin_check(&begin, false);
    slot_write(ring, BEGIN_AT, begin.seq, &begin, sizeof(begin));
}

static void end_write(struct weft_ring *ring)
{
    struct end end = {.seq = ++ring->end_seq,
                      .position = ring->end.position,
                      .records = ring->end.records,
                      .life = ring->life};
    end.check = end_check(&end);
    slot_write(ring, END_AT, end.seq, &end, sizeof(end));
}

static bool begin_read(struct weft_ring_reader *reader)
{
    bool old = reader->version == VERSION_WITHOUT_END;
    bool found = false;
    uint64_t seq = 0;
    for (int i = 0; i < 2; i++) {
        struct begin begin;
        memcpy(&begin, reader->memory + BEGIN_AT + i * SLOT_STRIDE, sizeof(begin));
        if ((old ? begin.records : begin.check) != begin_check(&begin, old) ||
            begin.at < WEFT_RING_HEAD_BYTES || begin.at > reader->bytes ||
            begin.at % WEFT_RING_UNIT != 0 || begin.position % WEFT_RING_UNIT != 0 ||
            begin.life > UINT32_MAX - 1 || begin.seq < seq) {
            continue;
        }
        seq = begin.seq;
        reader->begin =
            (struct weft_ring_cursor){begin.position, begin.at, old ? 0 : begin.records};
        reader->life = (uint32_t)begin.life;
        found = true;
    }
    return found;
}

static void last_read(struct weft_ring_reader *reader)
{
    uint64_t seq = 0;
    for (int i = 0; i < 2; i++) {
        struct end end;
        memcpy(&end, reader->memory + END_AT + i * SLOT_STRIDE, sizeof(end));
        if (end.check == end_check(&end) && end.seq >= seq) {
            seq = end.seq;
            reader->last =
                (struct weft_ring_cursor){.position = end.position, .records = end.records};
            reader->has_last = true;
        }
    }
}

/* Does this version have the same head format? */
static bool is_known(uint32_t version)
{
    return version >= WEFT_RING_VERSION_PLAIN && version <= WEFT_RING_VERSION;
}

/* The checksum of version 2 is at the offset of the lineage. */
static weft_status head_read(struct weft_ring_reader *reader, const struct weft_ring_owner *owner)
{
    struct head head;
    memcpy(&head, reader->memory, sizeof(head));
    if (head.magic != magic) {
        return WEFT_DATA;
    }
    bool old = head.version == VERSION_WITHOUT_END;
    if (!is_known(head.version) && !old) {
        return WEFT_UNSUPPORTED;
    }
    if ((old ? head.lineage : head.check) != head_check(&head)) {
        return WEFT_DATA;
    }
    reader->version = head.version;
    reader->lineage = old ? 0 : head.lineage;
    bool ours =
        head.shard == owner->shard && head.shards == owner->shards && head.job == owner->job;
    return ours ? WEFT_OK : WEFT_EXISTS;
}

bool weft_ring_lineage(const void *memory, uint64_t *lineage_p)
{
    struct head head;
    memcpy(&head, memory, sizeof(head));
    if (head.magic != magic || !is_known(head.version) || head.check != head_check(&head)) {
        return false;
    }
    *lineage_p = head.lineage;
    return true;
}

weft_status weft_ring_read(struct weft_ring_reader *reader, const void *memory, uint64_t bytes,
                           const struct weft_ring_owner *owner)
{
    WEFT_ASSERT(bytes > WEFT_RING_HEAD_BYTES);
    struct weft_ring_reader read = {.memory = memory, .bytes = bytes};
    weft_status status = head_read(&read, owner);
    if (status == WEFT_OK && !begin_read(&read)) {
        status = WEFT_DATA;
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (read.version != VERSION_WITHOUT_END) {
        last_read(&read);
    }
    *reader = read;
    return WEFT_OK;
}

static bool is_blank(const uint8_t *memory)
{
    static const uint8_t zeros[sizeof(struct head)];
    return memcmp(memory, zeros, sizeof(zeros)) == 0;
}

/* The head is written last: until then the memory is zero. */
void weft_ring_make(struct weft_ring *ring, void *memory, uint64_t bytes, uint64_t bytes_max,
                    const struct weft_ring_owner *owner, uint64_t lineage, uint64_t position)
{
    WEFT_ASSERT(bytes > WEFT_RING_HEAD_BYTES && bytes <= bytes_max && bytes % WEFT_RING_UNIT == 0);
    WEFT_ASSERT(is_blank(memory));
    struct head head = {.magic = magic,
                        .version = WEFT_RING_VERSION,
                        .shard = owner->shard,
                        .shards = owner->shards,
                        .job = owner->job,
                        .lineage = lineage};
    head.check = head_check(&head);
    *ring = (struct weft_ring){.memory = memory, .bytes = bytes, .bytes_max = bytes_max, .life = 1};
    ring->begin = ring->end =
        (struct weft_ring_cursor){.position = position, .at = WEFT_RING_HEAD_BYTES};
    begin_write(ring);
    end_write(ring);
    memcpy(ring->memory, &head, sizeof(head));
}

/* ---- records --------------------------------------------------------------------------------- */

const struct weft_ring_record *weft_ring_next(const struct weft_ring_reader *reader,
                                              uint32_t *life_p, struct weft_ring_cursor *cursor_p)
{
    for (;;) {
        struct weft_ring_cursor cursor = *cursor_p;
        if (cursor.at + WEFT_RING_UNIT > reader->bytes) {
            return NULL;
        }
        const void *at = reader->memory + cursor.at;
        const struct weft_ring_record *record = at;
        if (record->position != cursor.position || record->bytes < WEFT_RING_UNIT ||
            record->bytes % WEFT_RING_UNIT != 0 || record->bytes > reader->bytes - cursor.at ||
            record->life < *life_p || record->life > reader->life) {
            return NULL;
        }
        struct lanes lanes = lanes_new(record->position);
        lanes_add(&lanes, (const uint8_t *)at + WEFT_RING_UNIT, record->bytes - WEFT_RING_UNIT);
        if (record->check != record_check(record, lanes)) {
            return NULL;
        }
        bool wraps = record->type == WEFT_RING_WRAP;
        bool is_users = !wraps && record->type != WEFT_RING_FILLER;
        *life_p = record->life;
        cursor_p->position += record->bytes;
        cursor_p->at = wraps ? WEFT_RING_HEAD_BYTES : cursor.at + record->bytes;
        cursor_p->records += is_users;
        if (is_users) {
            return record;
        }
    }
}

static bool wrapped(const struct weft_ring *ring)
{
    return ring->end.at <= ring->begin.at && weft_ring_used(ring) > 0;
}

/* Contiguous bytes at `end`, leaving room for WRAP, which must always fit at the end of the
 * memory. */
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
    store_checked(at, &record, sizeof(record));
    ring->end.position += bytes;
    ring->end.at += bytes;
}

/* Write a record of this layer. The end is written with the next record. */
static void write_plain(struct weft_ring *ring, uint16_t type)
{
    const struct weft_ring_record plain = {.type = type};
    write_record(ring, &plain, NULL, 0, NULL, 0, WEFT_RING_UNIT);
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
        write_plain(ring, WEFT_RING_WRAP);
        ring->end.at = WEFT_RING_HEAD_BYTES;
    }
    if (wrapped(ring) && bytes == room(ring)) {
        return false; /* end == begin would mean an empty ring */
    }
    write_record(ring, head, body, body_bytes, data, data_bytes, bytes);
    ring->end.records++;
    end_write(ring);
    return true;
}

bool weft_ring_copy(struct weft_ring *ring, const struct weft_ring_record *record)
{
    WEFT_ASSERT(record->position >= ring->end.position && !wrapped(ring));
    uint64_t gap = record->position - ring->end.position;
    if (gap % WEFT_RING_UNIT != 0 || gap > room(ring) || record->bytes > room(ring) - gap) {
        return false;
    }
    while (ring->end.position < record->position) {
        write_plain(ring, WEFT_RING_FILLER);
    }
    write_record(ring, record, record + 1, record->bytes - sizeof(*record), NULL, 0, record->bytes);
    ring->end.records++;
    end_write(ring);
    return true;
}

void weft_ring_drop(struct weft_ring *ring, struct weft_ring_cursor cursor)
{
    WEFT_ASSERT(cursor.position >= ring->begin.position && cursor.position <= ring->end.position);
    if (cursor.position != ring->begin.position) {
        ring->begin = cursor;
        begin_write(ring);
    }
}

void weft_ring_cut_back(struct weft_ring *ring, struct weft_ring_cursor cursor)
{
    WEFT_ASSERT(cursor.position >= ring->begin.position && cursor.position <= ring->end.position);
    ring->end = cursor;
    ring->life++; /* records after the next one belong to an earlier life */
    begin_write(ring);
    end_write(ring);
}

bool weft_ring_spares(const struct weft_ring *ring, uint64_t bytes)
{
    uint64_t front = wrapped(ring) ? 0 : ring->begin.at - WEFT_RING_HEAD_BYTES;
    return room(ring) + front >= weft_ring_reserve(ring) + bytes;
}

bool weft_ring_wants(const struct weft_ring *ring)
{
    /* If most of the front is free, reuse that instead of growing. */
    bool front = ring->begin.at - WEFT_RING_HEAD_BYTES > ring->bytes / 4 * 3;
    return ring->bytes < ring->bytes_max && !wrapped(ring) && !front &&
           room(ring) < low_bytes + weft_ring_reserve(ring);
}
