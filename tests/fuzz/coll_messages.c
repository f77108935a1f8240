/* One rank of a job of three, whose other ranks send arbitrary messages: data with any tag and any
 * grid, chunks in any order, some missing, control messages with any bytes; connections open and
 * close. In between the rank calls operations. The transport is the minimum that fulfils the
 * contract of core/msg.h. The rank must not access memory out of bounds, and no operation may
 * remain: after an abort, when all its messages are closed, every operation has ended.
 *
 * Input: records of 16 bytes {what u8, flags u8, peer u8, a u8, tag bits u8 x 4, total u16,
 * chunk_elems u16, elem_bytes u8, bytes u8, b u16}, each followed by `bytes` bytes, with which
 * every chunk of its message begins. */
#include "base/assert.h"
#include "base/bits.h"
#include "coll/coll.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RANKS = 3,
    PEER = 5, /* peer number of rank 1; rank 2 has the next one */
    SENT_MAX = 128,
    IN_MAX = 16,
    CALLS_MAX = 12,
    RECORDS_MAX = 64,
    RECORD_BYTES = 16,
    CHUNK_BYTES = 1408,
    COUNT_MAX = 3000,
    BUFFER_BYTES = RANKS * COUNT_MAX * 8,
    MESSAGE_BYTES_MAX = 65536,
    CONTROL_BYTES = 112,
    CONTROL_MEMBERS = 36, /* offset of `members` in the first descriptor (src/coll/control.c) */
    FLAG_SIGNED = 1,    /* use values of this rank's last message: tag, total and element size, or
                         * the hash of its group */
    FLAG_BACKWARDS = 2, /* chunks in descending order */
    FLAG_HOLE = 4,      /* a chunk is missing */
    FLAG_SHORT = 8,     /* only the first three chunks arrive */
    FLAG_OPEN = 16,     /* the message stays open */
    FLAG_CONTROL = 32,  /* a message about operations */
    FLAG_ENTER = 64,    /* for the operation that this rank called last; with FLAG_SIGNED, for the
                         * one that it calls next */
    FLAG_PAIR = 128,    /* a message for a recv */
};

struct incoming {
    bool live;
    struct weft_msg_event event;
    uint64_t mask[MESSAGE_BYTES_MAX / 64];
};

struct fake {
    struct weft_coll *coll;
    uint64_t now_ns;
    uint64_t ids;
    bool again;
    bool up[2];
    uint64_t incarnation;
    struct weft_msg_send sent[SENT_MAX];
    uint64_t sent_seq[SENT_MAX];
    uint32_t sent_count;
    uint8_t last_members[4];
    uint64_t last_tag;
    uint32_t last_total;
    uint8_t last_bytes;
    struct incoming in[IN_MAX];
    uint32_t calls;
    uint32_t open;
    void *work[CALLS_MAX];
    void *from[CALLS_MAX], *to[CALLS_MAX];
    float *residual[CALLS_MAX];
    uint8_t *missed[CALLS_MAX];
};

/* ---- the transport --------------------------------------------------------------------------- */

static uint32_t chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    (void)self, (void)peer;
    return CHUNK_BYTES / elem_bytes;
}

static weft_status send_message(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                                uint64_t *seq_p)
{
    struct fake *fake = self;
    (void)now_ns;
    WEFT_ASSERT(send->total > 0 && send->elem_bytes > 0 && send->bound_ppm < WEFT_PPM);
    if (send->peer < PEER || send->peer > PEER + 1 || !fake->up[send->peer - PEER]) {
        return WEFT_PEER;
    }
    if (fake->again || fake->sent_count == SENT_MAX) {
        return WEFT_AGAIN;
    }
    /* All of it must be readable. */
    const uint8_t *bytes = send->base;
    uint8_t *copy = malloc((size_t)send->total * send->elem_bytes);
    WEFT_ASSERT(copy != NULL);
    memcpy(copy, bytes, (size_t)send->total * send->elem_bytes);
    free(copy);
    if (send->tag >> 60 == 2 && bytes[CONTROL_MEMBERS + 3] != 0) {
        memcpy(fake->last_members, bytes + CONTROL_MEMBERS, sizeof(fake->last_members));
    }
    if (send->tag >> 60 == 1) {
        fake->last_tag = send->tag;
        fake->last_total = send->total;
        fake->last_bytes = (uint8_t)send->elem_bytes;
    }
    fake->sent[fake->sent_count] = *send;
    fake->sent_seq[fake->sent_count++] = *seq_p = ++fake->ids;
    return WEFT_OK;
}

static weft_status expect(void *self, const struct weft_msg_expect *expect, weft_expect_id *id_p)
{
    struct fake *fake = self;
    (void)expect;
    *id_p = ++fake->ids;
    return WEFT_OK;
}

static weft_status cancel(void *self, weft_expect_id id)
{
    (void)self, (void)id;
    return WEFT_OK;
}

static void set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct fake *fake = self;
    for (int i = 0; i < IN_MAX; i++) {
        if (fake->in[i].live && fake->in[i].event.peer == peer && fake->in[i].event.seq == seq) {
            fake->in[i].event.user = user;
            return;
        }
    }
    WEFT_ASSERT(false);
}

static void refuse(void *self, weft_peer peer, uint64_t seq)
{
    (void)self, (void)peer, (void)seq;
}

static const struct weft_msg_ops ops = {
    .chunk_elems = chunk_elems,
    .send = send_message,
    .expect = expect,
    .cancel = cancel,
    .set_user = set_user,
    .refuse = refuse,
};

static void tell(struct fake *fake, const struct weft_msg_event *event)
{
    weft_coll_event(fake->coll, event, fake->now_ns);
}

/* ---- incoming messages ----------------------------------------------------------------------- */

static void chunk_in(struct fake *fake, struct incoming *m, uint32_t k, const uint8_t *bytes,
                     size_t count)
{
    struct weft_msg_event event = m->event;
    if (!weft_bits_test(m->mask, k)) {
        event.type = WEFT_EVENT_CHUNK;
        event.chunk = k;
        event.elems =
            (uint32_t)weft_min_u64(event.chunk_elems, event.total - k * event.chunk_elems);
        size_t size = (size_t)event.elems * event.elem_bytes;
        uint8_t *copy = calloc(1, size + 1); /* of exact size, at an odd address */
        WEFT_ASSERT(copy != NULL);
        memcpy(copy + 1, bytes, weft_min_u64(count, size));
        event.data = copy + 1;
        tell(fake, &event);
        free(copy);
        weft_bits_set(m->mask, k);
        m->event.received++;
    }
}

static void close_in(struct fake *fake, struct incoming *m, bool complete, bool gone)
{
    struct weft_msg_event event = m->event;
    event.type = WEFT_EVENT_RECEIVED;
    event.outcome = complete || event.received == event.chunks ? WEFT_MSG_COMPLETE : WEFT_MSG_SHORT;
    event.sender_gone = gone;
    event.mask = m->mask;
    m->live = false;
    tell(fake, &event);
}

static void message(struct fake *fake, const uint8_t *data, const uint8_t *bytes, size_t count)
{
    uint8_t flags = data[1];
    uint32_t slot = 0;
    while (slot < IN_MAX && fake->in[slot].live) {
        slot++;
    }
    if (slot == IN_MAX || !fake->up[data[2] & 1]) {
        return;
    }
    struct incoming *m = &fake->in[slot];
    memset(m, 0, sizeof(*m));
    uint32_t total = (uint32_t)(data[8] | data[9] << 8) + 1;
    uint32_t elem_bytes = data[12] % 16 + 1;
    uint64_t low = (uint64_t)(data[7] & 1) | (uint64_t)(data[6] % 20) << 16;
    uint64_t op = flags & FLAG_ENTER ? fake->calls - 1 : data[5] & 63;
    uint64_t tag = UINT64_C(1) << 60 | (uint64_t)(data[4] & 3) << 50 | (op & 0x3fffff) << 28 | low |
                   (uint64_t)data[7] << 1;
    if (flags & FLAG_SIGNED) {
        tag = (fake->last_tag & ~UINT64_C(0xfff0001)) | low;
        if (flags & FLAG_ENTER) { /* as if the sender had already repeated the same call */
            uint64_t mask = UINT64_C(0x3fffff) << 28;
            tag = (tag & ~mask) | ((uint64_t)fake->calls << 28 & mask);
        }
        total = weft_max_u64(fake->last_total, 1);
        elem_bytes = (uint32_t)weft_max_u64(fake->last_bytes, 1);
    }
    if (flags & FLAG_PAIR) {
        tag = UINT64_C(3) << 60 | (uint64_t)(data[4] % 12) << 36 | (uint64_t)data[5] << 20 |
              (uint64_t)(data[6] % 20) << 8;
    }
    if (flags & FLAG_CONTROL) {
        tag = UINT64_C(2) << 60;
        elem_bytes = 1;
        total = data[8] == 255 ? data[9] % CONTROL_BYTES + 1 : CONTROL_BYTES;
    }
    uint8_t signed_bytes[CONTROL_BYTES];
    if (flags & FLAG_CONTROL && flags & FLAG_SIGNED && count == CONTROL_BYTES) {
        memcpy(signed_bytes, bytes, count);
        memcpy(signed_bytes + CONTROL_MEMBERS, fake->last_members, sizeof(fake->last_members));
        bytes = signed_bytes;
    }
    total = (uint32_t)weft_min_u64(total, MESSAGE_BYTES_MAX / elem_bytes);
    uint32_t most = CHUNK_BYTES / elem_bytes;
    uint32_t chunk = (uint32_t)(data[10] | data[11] << 8) % most + 1;
    chunk = flags & (FLAG_SIGNED | FLAG_CONTROL) && data[10] == 0 ? most : chunk;
    m->live = true;
    m->event = (struct weft_msg_event){
        .type = WEFT_EVENT_OPEN,
        .peer = PEER + (data[2] & 1),
        .seq = ++fake->ids,
        .tag = tag,
        .at_ns = fake->now_ns,
        .total = total,
        .chunk_elems = (uint16_t)chunk,
        .elem_bytes = (uint16_t)elem_bytes,
        .chunks = (total + chunk - 1) / chunk,
    };
    struct weft_msg_event event = m->event;
    tell(fake, &event);
    for (uint32_t i = 0; i < m->event.chunks; i++) {
        uint32_t k = flags & FLAG_BACKWARDS ? m->event.chunks - 1 - i : i;
        if (!(flags & FLAG_HOLE && k == m->event.chunks / 2) && !(flags & FLAG_SHORT && i > 2)) {
            chunk_in(fake, m, k, bytes, count);
        }
    }
    if (!(flags & FLAG_OPEN)) {
        close_in(fake, m, !(flags & FLAG_SHORT), false);
    }
}

/* ---- outgoing messages ----------------------------------------------------------------------- */

static void sent(struct fake *fake, uint32_t i, bool unknown)
{
    struct weft_msg_send send = fake->sent[i];
    uint64_t seq = fake->sent_seq[i];
    fake->sent_count--;
    fake->sent[i] = fake->sent[fake->sent_count];
    fake->sent_seq[i] = fake->sent_seq[fake->sent_count];
    uint32_t chunk = CHUNK_BYTES / send.elem_bytes;
    uint32_t chunks = (send.total + chunk - 1) / chunk;
    uint64_t mask[MESSAGE_BYTES_MAX / 64] = {0};
    uint32_t received = 0;
    for (uint32_t k = 0; k < chunks && !unknown; k++) {
        bool lost = send.bound_ppm > 0 && k == 1 && received + 1 < chunks;
        if (!lost) {
            weft_bits_set(mask, k);
            received++;
        }
    }
    struct weft_msg_event event = {
        .type = WEFT_EVENT_SENT,
        .peer = send.peer,
        .user = send.user,
        .seq = seq,
        .tag = send.tag,
        .at_ns = fake->now_ns,
        .total = send.total,
        .chunk_elems = (uint16_t)chunk,
        .elem_bytes = send.elem_bytes,
        .chunks = chunks,
        .received = received,
        .mask = mask,
        .outcome = unknown ? WEFT_MSG_UNKNOWN : WEFT_MSG_COMPLETE,
    };
    tell(fake, &event);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void down(struct fake *fake, uint32_t rank, uint8_t how)
{
    weft_peer peer = PEER + rank;
    if (!fake->up[rank]) {
        return;
    }
    fake->up[rank] = false;
    for (int i = 0; i < IN_MAX; i++) {
        if (fake->in[i].live && fake->in[i].event.peer == peer) {
            close_in(fake, &fake->in[i], false, true);
        }
    }
    for (uint32_t i = fake->sent_count; i-- > 0;) {
        if (i < fake->sent_count && fake->sent[i].peer == peer) {
            sent(fake, i, true);
        }
    }
    struct weft_msg_event event = {
        .type = WEFT_EVENT_PEER_DOWN,
        .peer = peer,
        .at_ns = fake->now_ns,
        .name = weft_coll_name(9, rank + 1),
        .incarnation = fake->incarnation,
        .down = (enum weft_msg_down)(how % (WEFT_DOWN_REPLACED + 1)),
    };
    tell(fake, &event);
}

static void up(struct fake *fake, uint32_t rank, uint8_t name)
{
    if (fake->up[rank]) {
        return;
    }
    fake->up[rank] = true;
    struct weft_msg_event event = {
        .type = WEFT_EVENT_PEER_UP,
        .peer = PEER + rank,
        .at_ns = fake->now_ns,
        .name = name == 0 ? weft_coll_name(9, rank + 1) : weft_coll_name(name & 15, name >> 4),
        .incarnation = ++fake->incarnation,
    };
    tell(fake, &event);
}

/* ---- the rank -------------------------------------------------------------------------------- */

static void begin(struct fake *fake, const uint8_t *data)
{
    if (fake->calls == CALLS_MAX) {
        return;
    }
    uint32_t i = fake->calls;
    uint32_t bytes_each = weft_coll_type_bytes((enum weft_coll_type)(data[4] % WEFT_COLL_TYPES));
    uint32_t most = data[1] & FLAG_SIGNED ? COUNT_MAX : COUNT_MAX * 8 / bytes_each;
    uint32_t count = (uint32_t)(data[8] | data[9] << 8) % (most + 1);
    struct weft_coll_call call = {
        .kind = (enum weft_coll_kind)(data[3] % WEFT_COLL_KINDS),
        .type = (enum weft_coll_type)(data[4] % WEFT_COLL_TYPES),
        .reduction = (enum weft_coll_reduction)(data[5] % WEFT_COLL_REDUCTIONS),
        .group = data[6] & 1,
        .root = data[7] % RANKS,
        .peer = data[7] % RANKS,
        .tag = data[11],
        .count = count,
        .bound_ppm = data[1] & FLAG_HOLE ? 500000 : 0,
        .timeout_ns = data[1] & FLAG_SHORT ? WEFT_NS_PER_S : WEFT_NEVER,
        .user = i,
    };
    fake->from[i] = calloc(1, BUFFER_BYTES);
    fake->to[i] = calloc(1, BUFFER_BYTES);
    WEFT_ASSERT(fake->from[i] != NULL && fake->to[i] != NULL);
    call.in = fake->from[i];
    call.out = fake->to[i];
    if (data[1] & FLAG_SIGNED) {
        fake->residual[i] = calloc(RANKS * COUNT_MAX, sizeof(float));
        WEFT_ASSERT(fake->residual[i] != NULL);
        call.residual = fake->residual[i];
        size_t bytes = weft_coll_missed_bytes(fake->coll, &call);
        fake->missed[i] = calloc(1, bytes + 1);
        WEFT_ASSERT(fake->missed[i] != NULL);
        memset(fake->missed[i], data[10], bytes);
        call.missed = fake->missed[i];
    }
    size_t bytes = weft_coll_work_bytes(fake->coll, &call);
    if (bytes > 0) {
        fake->work[i] = aligned_alloc(WEFT_COLL_ALIGN, bytes);
        WEFT_ASSERT(fake->work[i] != NULL);
        memset(fake->work[i], 0xa5, bytes);
        call.work = fake->work[i];
    }
    fake->calls++;
    fake->open += weft_coll_begin(fake->coll, &call, fake->now_ns) == WEFT_OK;
}

static void turn(struct fake *fake)
{
    if (weft_coll_deadline(fake->coll) <= fake->now_ns) {
        weft_coll_on_deadline(fake->coll, fake->now_ns);
        WEFT_ASSERT(weft_coll_deadline(fake->coll) > fake->now_ns);
    }
    weft_coll_progress(fake->coll, fake->now_ns);
    struct weft_coll_done done;
    while (weft_coll_poll(fake->coll, &done)) {
        WEFT_ASSERT(fake->open > 0 && done.user < fake->calls);
        fake->open--;
    }
    weft_peer peer;
    while (weft_coll_take_close(fake->coll, &peer)) {
        WEFT_ASSERT(peer == PEER || peer == PEER + 1);
        down(fake, peer - PEER, WEFT_DOWN_LOCAL);
    }
}

static size_t record(struct fake *fake, const uint8_t *data, size_t size)
{
    size_t count = weft_min_u64(data[13], size - RECORD_BYTES);
    uint32_t at = (uint32_t)(data[14] | data[15] << 8);
    fake->again = (data[0] & 0x80) != 0;
    switch (data[0] & 7) {
    case 0:
        begin(fake, data);
        break;
    case 1:
    case 2:
        message(fake, data, data + RECORD_BYTES, count);
        break;
    case 3:
        if (fake->in[at % IN_MAX].live) {
            close_in(fake, &fake->in[at % IN_MAX], data[1] & FLAG_SHORT, false);
        }
        break;
    case 4:
        for (uint32_t i = 0; i < data[3] && fake->sent_count > 0; i++) {
            sent(fake, at % fake->sent_count, false);
        }
        break;
    case 5:
        down(fake, data[2] & 1, data[3]);
        break;
    case 6:
        up(fake, data[2] & 1, data[3]);
        break;
    case 7:
        fake->now_ns += at * (WEFT_NS_PER_S / 1000);
        break;
    }
    turn(fake);
    return RECORD_BYTES + count;
}

static void end(struct fake *fake)
{
    fake->again = false;
    weft_coll_abort(fake->coll, "the end", fake->now_ns);
    turn(fake);
    while (fake->sent_count > 0) {
        sent(fake, 0, false);
        turn(fake);
    }
    turn(fake); /* polls operations that the last turn ended by closing connections */
    WEFT_ASSERT(fake->open == 0 && weft_coll_open_ops(fake->coll) == 0);
    char text[256];
    weft_coll_failure_text(weft_coll_failure(fake->coll), text, sizeof(text));
    down(fake, 0, WEFT_DOWN_LOCAL);
    down(fake, 1, WEFT_DOWN_LOCAL);
    weft_coll_free(fake->coll);
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        free(fake->from[i]);
        free(fake->to[i]);
        free(fake->residual[i]);
        free(fake->missed[i]);
        free(fake->work[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fake fake;
    memset(&fake, 0, sizeof(fake));
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    config.ranks = RANKS;
    config.rank = 0;
    config.epoch = 9;
    config.peers_max = PEER + 2;
    config.chunks_max = 4096;
    config.groups_max = 3;
    config.ops_max = 8;
    config.pool_bytes = 256 << 10;
    config.segment_bytes = 4096;
    config.small_bytes = 600;
    config.bcast_bytes = 4096;
    weft_status status = weft_coll_new(&config, (struct weft_msgr){&ops, &fake}, &fake.coll);
    WEFT_ASSERT(status == WEFT_OK);
    uint32_t group;
    const uint32_t members[2] = {2, 0};
    status = weft_coll_group(fake.coll, members, 2, &group);
    WEFT_ASSERT(status == WEFT_OK);
    up(&fake, 0, 0);
    up(&fake, 1, 0);
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_BYTES; i++) {
        size_t used = record(&fake, data, size);
        data += used;
        size -= used;
    }
    end(&fake);
    return 0;
}
