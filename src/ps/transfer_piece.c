#include "ps/transfer_piece.h"

#include "ps/optimizer.h"
#include "ps/table.h"

#include <assert.h>

static_assert(WEFT_SECTION_BYTES_MAX % WEFT_PIECE_ELEM_BYTES == 0);
static_assert(sizeof(struct weft_retired) % sizeof(uint64_t) == 0);

enum { FLAGS = WEFT_PIECE_LAST | WEFT_PIECE_READY | WEFT_PIECE_BEAT };

static uint32_t padded(uint32_t bytes)
{
    return (bytes + WEFT_PIECE_ELEM_BYTES - 1) / WEFT_PIECE_ELEM_BYTES * WEFT_PIECE_ELEM_BYTES;
}

/* ---- heads ----------------------------------------------------------------------------------- */

void weft_piece_head_pack(const struct weft_piece_head *head, uint8_t *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_PIECE_HEAD_BYTES);
    weft_write_u64(&w, head->transfer);
    weft_write_u32(&w, head->index);
    weft_write_u16(&w, head->flags);
    weft_write_u16(&w, WEFT_PIECE_VERSION);
    weft_write_u32(&w, head->shard);
    weft_write_u32(&w, head->shards);
    weft_write_u32(&w, head->bytes);
    weft_write_zeros(&w, 4);
}

static bool head_valid(const struct weft_piece_head *head, const struct weft_piece_limits *limits)
{
    bool is_beat = (head->flags & WEFT_PIECE_BEAT) != 0;
    if ((head->flags & ~FLAGS) != 0 || head->shard != limits->shard ||
        head->shards != limits->shards) {
        return false;
    }
    return is_beat ? (head->flags & WEFT_PIECE_LAST) == 0 && head->transfer == 0 &&
                         head->index == 0 && head->bytes == 0
                   : head->transfer >= 1;
}

/* ---- sections -------------------------------------------------------------------------------- */

bool weft_section_begin(struct weft_writer *w, const struct weft_section *section)
{
    if (weft_writer_left(w) < WEFT_SECTION_HEAD_BYTES + padded(section->bytes)) {
        return false;
    }
    weft_write_u16(w, section->kind);
    weft_write_u16(w, section->table);
    weft_write_u32(w, section->count);
    weft_write_u32(w, section->first);
    weft_write_u32(w, section->bytes);
    return true;
}

void weft_section_end(struct weft_writer *w, uint32_t bytes)
{
    weft_write_zeros(w, padded(bytes) - bytes);
}

/* Read the head of a section, whose body and padding must be within the piece. */
static bool section_read(struct weft_reader *r, struct weft_section *section_p)
{
    struct weft_section section = {.kind = weft_read_u16(r), .table = weft_read_u16(r)};
    section.count = weft_read_u32(r);
    section.first = weft_read_u32(r);
    section.bytes = weft_read_u32(r);
    if (r->bad || section.bytes > WEFT_SECTION_BYTES_MAX) {
        return false;
    }
    section.body = weft_read_bytes(r, section.bytes);
    const uint8_t *padding = weft_read_bytes(r, padded(section.bytes) - section.bytes);
    if (r->bad) {
        return false;
    }
    for (uint32_t i = 0; i < padded(section.bytes) - section.bytes; i++) {
        if (padding[i] != 0) {
            return false;
        }
    }
    *section_p = section;
    return true;
}

bool weft_section_next(const uint8_t *piece, const struct weft_piece_head *head, uint32_t *at_p,
                       struct weft_section *section_p)
{
    struct weft_reader r =
        weft_reader_make(piece + WEFT_PIECE_HEAD_BYTES + *at_p, head->bytes - *at_p);
    if (weft_reader_left(&r) == 0 || !section_read(&r, section_p)) {
        return false;
    }
    *at_p = head->bytes - (uint32_t)weft_reader_left(&r);
    return true;
}

static bool ranks_valid(const struct weft_section *section, const struct weft_piece_limits *limits)
{
    return section->count >= 1 && section->first < limits->workers_max &&
           section->count <= limits->workers_max - section->first;
}

/* Bits beyond the last chunk must be zero. */
static bool partial_valid(const struct weft_section *section,
                          const struct weft_piece_limits *limits)
{
    const uint32_t chunks = section->count;
    if (section->first >= limits->workers_max || chunks == 0 || chunks > limits->chunks_max ||
        section->bytes !=
            WEFT_SECTION_PARTIAL_BYTES + WEFT_BITS_WORDS((size_t)chunks) * sizeof(uint64_t)) {
        return false;
    }
    uint64_t last = weft_get_u64(section->body + section->bytes - sizeof(uint64_t));
    return weft_get_u64(section->body) != 0 && weft_get_u64(section->body + 8) <= UINT32_MAX &&
           weft_get_u64(section->body + 8) != 0 && (chunks % 64 == 0 || last >> chunks % 64 == 0);
}

static bool pushes_valid(const struct weft_section *section)
{
    for (uint32_t i = 0; i < section->count; i++) {
        if (weft_get_u64(section->body + (size_t)(i + 1) * WEFT_SECTION_PUSHES_BYTES - 8) >
            UINT32_MAX) {
            return false;
        }
    }
    return true;
}

/* Check a section alone. */
static bool section_valid(const struct weft_section *section,
                          const struct weft_piece_limits *limits)
{
    struct weft_table_spec spec;
    const uint64_t count = section->count;
    if (section->table >= limits->tables_max) {
        return false;
    }
    switch (section->kind) {
    case WEFT_SECTION_RANKS:
        return section->table == 0 && ranks_valid(section, limits) &&
               section->bytes == count * WEFT_SECTION_RANK_BYTES;
    case WEFT_SECTION_TABLE:
        return count <= 1 && section->first == 0 && section->bytes == WEFT_RPC_SPEC_BYTES &&
               weft_table_spec_unpack(section->table, section->body, section->bytes, &spec) ==
                   WEFT_OK &&
               spec.workers <= limits->workers_max && spec.dim <= limits->dim_max;
    case WEFT_SECTION_CLOCKS:
        return ranks_valid(section, limits) && section->bytes == count * sizeof(uint32_t);
    case WEFT_SECTION_PUSHES:
        return ranks_valid(section, limits) &&
               section->bytes == count * WEFT_SECTION_PUSHES_BYTES && pushes_valid(section);
    case WEFT_SECTION_PARTIAL:
        return partial_valid(section, limits);
    case WEFT_SECTION_REMOVED:
        return section->first == 0 && count >= 1 && section->bytes == count * sizeof(uint64_t);
    case WEFT_SECTION_ROWS:
        return section->first == 0 && count >= 1 &&
               section->bytes >= count * WEFT_TABLE_RECORD_HEAD;
    default:
        return false;
    }
}

weft_status weft_piece_unpack(const uint8_t *bytes, size_t count,
                              const struct weft_piece_limits *limits,
                              struct weft_piece_head *head_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_piece_head head = {.transfer = weft_read_u64(&r)};
    head.index = weft_read_u32(&r);
    head.flags = weft_read_u16(&r);
    uint16_t version = weft_read_u16(&r);
    head.shard = weft_read_u32(&r);
    head.shards = weft_read_u32(&r);
    head.bytes = weft_read_u32(&r);
    uint32_t zero = weft_read_u32(&r);
    if (r.bad || count > WEFT_PIECE_BYTES_MAX || version != WEFT_PIECE_VERSION || zero != 0 ||
        head.bytes != weft_reader_left(&r) || !head_valid(&head, limits)) {
        return WEFT_PROTO;
    }
    while (weft_reader_left(&r) > 0) {
        struct weft_section section;
        if (!section_read(&r, &section) || !section_valid(&section, limits)) {
            return WEFT_PROTO;
        }
    }
    *head_p = head;
    return WEFT_OK;
}

/* ---- all pieces together --------------------------------------------------------------------- */

uint32_t weft_piece_record_bytes(const struct weft_table_spec *spec)
{
    const struct weft_optimizer *optimizer = weft_optimizer_at(spec->optimizer);
    uint32_t floats =
        spec->dim * (1 + optimizer->slots) + weft_table_blocks(spec) * optimizer->steps;
    return WEFT_TABLE_RECORD_HEAD + floats * (uint32_t)sizeof(float);
}

void weft_piece_check_begin(const struct weft_piece_limits *limits, uint32_t *record_bytes)
{
    memset(record_bytes, 0, limits->tables_max * sizeof(*record_bytes));
}

weft_status weft_piece_check(const struct weft_piece_limits *limits, uint32_t *record_bytes,
                             const uint8_t *piece, const struct weft_piece_head *head)
{
    struct weft_section section;
    (void)limits; /* checked by weft_piece_unpack */
    for (uint32_t at = 0; weft_section_next(piece, head, &at, &section);) {
        uint32_t *record = &record_bytes[section.table];
        if (section.kind == WEFT_SECTION_TABLE) {
            struct weft_table_spec spec;
            if (*record != 0 || weft_table_spec_unpack(section.table, section.body, section.bytes,
                                                       &spec) != WEFT_OK) {
                return WEFT_PROTO;
            }
            *record = weft_piece_record_bytes(&spec);
        } else if (section.kind != WEFT_SECTION_RANKS && *record == 0) {
            return WEFT_PROTO;
        } else if (section.kind == WEFT_SECTION_ROWS &&
                   section.bytes != (uint64_t)section.count * *record) {
            return WEFT_PROTO;
        }
    }
    return WEFT_OK;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

void weft_section_pushes_write(struct weft_writer *w, const struct weft_push_window *window)
{
    weft_write_u64(w, window->newest);
    for (uint32_t i = 0; i < WEFT_PUSH_WINDOW_SIZE / 64; i++) {
        weft_write_u64(w, window->closed[i]);
    }
    weft_write_u64(w, window->clock);
}

void weft_section_pushes_read(const uint8_t *body, struct weft_push_window *window_p)
{
    struct weft_reader r = weft_reader_make(body, WEFT_SECTION_PUSHES_BYTES);
    *window_p = (struct weft_push_window){.newest = weft_read_u64(&r)};
    for (uint32_t i = 0; i < WEFT_PUSH_WINDOW_SIZE / 64; i++) {
        window_p->closed[i] = weft_read_u64(&r);
    }
    window_p->clock = (uint32_t)weft_read_u64(&r);
}

/* ---- CONFIRM --------------------------------------------------------------------------------- */

void weft_confirm_pack(const struct weft_confirm *confirm, uint8_t *out)
{
    struct weft_writer w = weft_writer_make(out, WEFT_CONFIRM_BYTES);
    weft_write_u64(&w, confirm->transfer);
    weft_write_u32(&w, confirm->refused);
    weft_write_zeros(&w, 4);
}

weft_status weft_confirm_unpack(const void *bytes, size_t count, struct weft_confirm *confirm_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    uint64_t transfer = weft_read_u64(&r);
    uint32_t refused = weft_read_u32(&r);
    uint32_t zero = weft_read_u32(&r);
    if (r.bad || weft_reader_left(&r) > 0 || zero != 0 || refused > 1 || transfer == 0) {
        return WEFT_PROTO;
    }
    *confirm_p = (struct weft_confirm){.transfer = transfer, .refused = refused == 1};
    return WEFT_OK;
}
