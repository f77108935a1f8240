#include "agg/dense_member.h"

#include "agg/exponent.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENT_BYTES = 4, TRIES_MAX = 255, DOUBLINGS_MAX = 20 };

/* Up to this exponent every int32 is a finite float. */
enum { FINITE_EXPONENT_MAX = 96 };

enum { FINITE_END = 0x7f800000 }; /* bits of infinity: those of finite floats are below */

static const uint32_t none = UINT32_MAX;

void weft_agg_member_config_default(struct weft_agg_member_config *config_p)
{
    *config_p = (struct weft_agg_member_config){
        .members = 1,
        .slots = 32,
        .values = WEFT_AGG_VALUES_MAX,
        .reorder = 8,
        .timeout_ns_first = 10 * WEFT_NS_PER_MS,
        .timeout_ns_min = 200 * WEFT_NS_PER_US,
        .timeout_ns_max = 50 * WEFT_NS_PER_MS,
    };
}

static bool is_valid(const struct weft_agg_member_config *c)
{
    return c->members >= 1 && c->members <= WEFT_AGG_MEMBERS_MAX && c->member < c->members &&
           c->slots >= 1 && c->slots < UINT32_MAX && c->values >= WEFT_AGG_BLOCK &&
           c->values <= WEFT_AGG_VALUES_MAX && c->values % WEFT_AGG_BLOCK == 0 &&
           c->element <= WEFT_AGG_BLOCK_FLOATS && c->exponent >= WEFT_AGG_EXPONENT_MIN &&
           (c->element == WEFT_AGG_FIXED || c->exponent == 0) && c->timeout_ns_min > 0 &&
           c->timeout_ns_first > 0 && c->timeout_ns_min <= c->timeout_ns_max &&
           c->timeout_ns_max <= 3600 * WEFT_NS_PER_S;
}

static void begin_epoch(struct weft_agg_member *m)
{
    for (uint32_t i = 0; i < m->config.slots; i++) {
        m->slots[i] = (struct weft_agg_member_slot){
            .due_ns = WEFT_NEVER, .chunk = none, .older = none, .newer = none};
    }
    m->queue_count = 0;
    m->oldest = none;
    m->newest = none;
    m->expiry_ns = WEFT_NEVER;
    m->left = 0;
    m->largest = 0;
}

weft_status weft_agg_member_init(struct weft_agg_member *member,
                                 const struct weft_agg_member_config *config)
{
    *member = (struct weft_agg_member){.config = *config};
    if (!is_valid(config)) {
        return WEFT_INVALID;
    }
    member->slots = calloc(config->slots, sizeof(member->slots[0]));
    member->queue = calloc(config->slots, sizeof(member->queue[0]));
    if (member->slots == NULL || member->queue == NULL) {
        weft_agg_member_fini(member);
        return WEFT_NOMEM;
    }
    begin_epoch(member);
    return WEFT_OK;
}

void weft_agg_member_fini(struct weft_agg_member *member)
{
    free(member->slots);
    free(member->queue);
    member->slots = NULL;
    member->queue = NULL;
}

void weft_agg_member_epoch(struct weft_agg_member *member, uint32_t epoch, int8_t exponent)
{
    member->config.epoch = epoch;
    member->config.exponent = member->config.element == WEFT_AGG_FIXED ? exponent : 0;
    begin_epoch(member);
}

int8_t weft_agg_member_exponent(const struct weft_agg_member *member)
{
    return member->largest > 0 ? weft_agg_exponent(member->largest, 2 * member->config.members)
                               : member->config.exponent;
}

/* ---- packets to send ------------------------------------------------------------------------- */

static void enqueue(struct weft_agg_member *m, uint32_t slot)
{
    if (!m->slots[slot].queued) {
        m->slots[slot].queued = true;
        m->queue[((uint64_t)m->queue_at + m->queue_count) % m->config.slots] = slot;
        m->queue_count++;
    }
}

/* The next slot of the queue; `none` if it is empty. */
static uint32_t dequeue(struct weft_agg_member *m)
{
    if (m->queue_count == 0) {
        return none;
    }
    uint32_t slot = m->queue[m->queue_at];
    m->queue_at = (m->queue_at + 1) % m->config.slots;
    m->queue_count--;
    m->slots[slot].queued = false;
    return slot;
}

static void list_add(struct weft_agg_member *m, uint32_t slot)
{
    m->slots[slot].older = m->newest;
    m->slots[slot].newer = none;
    m->slots[slot].listed = true;
    if (m->newest != none) {
        m->slots[m->newest].newer = slot;
    } else {
        m->oldest = slot;
    }
    m->newest = slot;
}

static void list_remove(struct weft_agg_member *m, uint32_t slot)
{
    struct weft_agg_member_slot *s = &m->slots[slot];
    if (!s->listed) {
        return;
    }
    *(s->older != none ? &m->slots[s->older].newer : &m->oldest) = s->newer;
    *(s->newer != none ? &m->slots[s->newer].older : &m->newest) = s->older;
    s->listed = false;
}

/* From the second packet of a round on the timeout is shortened at random by up to a half. With
 * equal timeouts at all members the same packets would overflow the same buffer again. */
static uint64_t timeout_ns(const struct weft_agg_member *m, uint32_t tries)
{
    const struct weft_agg_member_config *c = &m->config;
    uint64_t ns = m->trip_ns == 0 ? c->timeout_ns_first : 4 * m->trip_ns;
    ns = weft_min_u64(weft_max_u64(ns, c->timeout_ns_min), c->timeout_ns_max);
    ns = weft_min_u64(ns << (tries < DOUBLINGS_MAX ? tries : DOUBLINGS_MAX), c->timeout_ns_max);
    uint64_t random = weft_mix64(m->sequence << 8 | c->member) >> 32;
    return tries == 0 ? ns : ns - ((ns * (random >> 16)) >> 17);
}

static void queue_timed_out(struct weft_agg_member *m, uint64_t now_ns)
{
    m->expiry_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < m->config.slots; i++) {
        struct weft_agg_member_slot *s = &m->slots[i];
        if (s->due_ns > now_ns) {
            m->expiry_ns = weft_min_u64(m->expiry_ns, s->due_ns);
            continue;
        }
        s->due_ns = WEFT_NEVER; /* until it is sent */
        m->counters.resent_timeout++;
        list_remove(m, i);
        enqueue(m, i);
    }
}

/* Queue the packets that were sent `reorder` or more packets before an answered one. */
static void queue_overtaken(struct weft_agg_member *m)
{
    while (m->config.reorder != 0 && m->oldest != none &&
           m->slots[m->oldest].sequence + m->config.reorder <= m->answered) {
        uint32_t slot = m->oldest;
        m->counters.resent_early++;
        m->slots[slot].due_ns = WEFT_NEVER;
        list_remove(m, slot);
        enqueue(m, slot);
    }
}

static uint64_t first_of(const struct weft_agg_member *m, uint32_t chunk)
{
    return (uint64_t)chunk * m->config.values;
}

/* Elements of a chunk. The last one may be short; its packet is filled up with zeros to a multiple
 * of 8. */
static uint32_t elements_of(const struct weft_agg_member *m, uint32_t chunk)
{
    return (uint32_t)weft_min_u64(m->config.values, m->count - first_of(m, chunk));
}

static uint32_t values_of(uint32_t elements)
{
    return (elements + WEFT_AGG_BLOCK - 1) / WEFT_AGG_BLOCK * WEFT_AGG_BLOCK;
}

/* Convert the floats of a chunk. False: one of them does not fit. */
static bool put_fixed(const uint8_t *in, uint32_t elements, int8_t exponent, uint8_t *values)
{
    bool fit = true;
    for (uint32_t i = 0; i < elements; i++) {
        float x;
        int32_t q = 0;
        memcpy(&x, in + (size_t)ELEMENT_BYTES * i, sizeof(x));
        fit = weft_agg_quantize(x, exponent, &q) && fit;
        weft_wire_store_u32(values + (size_t)ELEMENT_BYTES * i, (uint32_t)q);
    }
    return fit;
}

static const uint8_t *input_of(const struct weft_agg_member *m, uint32_t chunk)
{
    return m->in + (size_t)ELEMENT_BYTES * first_of(m, chunk);
}

/* The largest absolute value of a chunk; values that are not finite do not count. */
static float largest_of(const struct weft_agg_member *m, uint32_t chunk)
{
    const uint8_t *in = input_of(m, chunk);
    const uint32_t elements = elements_of(m, chunk);
    int32_t largest = 0; /* the bits of floats that are not negative have the order of the floats */
    for (uint32_t i = 0; i < elements; i++) {
        int32_t size = (int32_t)(weft_wire_load_u32(in + (size_t)ELEMENT_BYTES * i) & INT32_MAX);
        size = size < FINITE_END ? size : 0;
        largest = size > largest ? size : largest;
    }
    return weft_agg_real((uint32_t)largest);
}

/* The exponent with which the values of this chunk of all members can be summed, if theirs are not
 * larger. */
static int8_t exponent_for(const struct weft_agg_member *m, uint64_t chunk)
{
    return chunk < m->chunks
               ? weft_agg_exponent(largest_of(m, (uint32_t)chunk), m->config.members)
               : WEFT_AGG_EXPONENT_MIN;
}

/* Values of the slot's round. */
static uint32_t count_of(const struct weft_agg_member *m, const struct weft_agg_member_slot *s)
{
    return s->opens ? WEFT_AGG_BLOCK : values_of(elements_of(m, s->chunk));
}

static uint8_t form_of(const struct weft_agg_member *m)
{
    return m->config.element == WEFT_AGG_FLOATS         ? WEFT_AGG_FLOAT32
           : m->config.element == WEFT_AGG_BLOCK_FLOATS ? WEFT_AGG_AGREED
                                                        : 0;
}

static bool is_scaled(const struct weft_agg_member *m)
{
    return m->config.element == WEFT_AGG_FIXED || m->config.element == WEFT_AGG_BLOCK_FLOATS;
}

static uint32_t write_packet(struct weft_agg_member *m, const struct weft_agg_member_slot *s,
                             uint32_t slot, uint8_t *bytes)
{
    const struct weft_agg_member_config *c = &m->config;
    uint32_t elements = s->opens ? 0 : elements_of(m, s->chunk);
    uint32_t count = count_of(m, s);
    const uint8_t *in = input_of(m, s->chunk);
    uint8_t *values = bytes + WEFT_AGG_HEADER_BYTES;
    struct weft_wire_agg head = {
        .kind = WEFT_AGG_DENSE,
        .flags = form_of(m),
        .exponent = s->exponent,
        .job = c->job,
        .member = c->member,
        .count = (uint16_t)count,
        .place = slot,
        .epoch = c->epoch,
        .number = s->round,
    };
    memset(values + (size_t)ELEMENT_BYTES * elements, 0,
           (size_t)ELEMENT_BYTES * (count - elements));
    if (c->element == WEFT_AGG_FIXED && s->tries == 0) {
        float largest = largest_of(m, s->chunk);
        m->largest = largest > m->largest ? largest : m->largest;
    } else if (c->element == WEFT_AGG_BLOCK_FLOATS) {
        head.next = exponent_for(m, s->opens ? s->chunk : (uint64_t)s->chunk + c->slots);
    }
    if (!is_scaled(m)) {
        memcpy(values, in, (size_t)ELEMENT_BYTES * elements);
    } else if (!put_fixed(in, elements, s->exponent, values)) {
        head.exponent = (int8_t)(s->exponent < WEFT_AGG_EXPONENT_MAX ? s->exponent + 1
                                                                     : s->exponent - 1);
        m->counters.unfit += s->tries == 0;
    }
    weft_wire_agg_encode(bytes, &head);
    return WEFT_AGG_HEADER_BYTES + ELEMENT_BYTES * count;
}

uint32_t weft_agg_member_send(struct weft_agg_member *member, uint8_t *bytes, uint64_t now_ns)
{
    struct weft_agg_member *m = member;
    if (now_ns >= m->expiry_ns) {
        queue_timed_out(m, now_ns);
    }
    uint32_t slot = dequeue(m);
    while (slot != none && m->slots[slot].chunk == none) {
        slot = dequeue(m);
    }
    if (slot == none) {
        return 0;
    }
    struct weft_agg_member_slot *s = &m->slots[slot];
    uint32_t bytes_count = write_packet(m, s, slot, bytes);
    s->due_ns = now_ns + timeout_ns(m, s->tries);
    s->sequence = m->sequence++;
    if (s->tries == 0) {
        s->sent_ns = now_ns;
        list_add(m, slot);
    }
    s->tries += s->tries < TRIES_MAX;
    m->expiry_ns = weft_min_u64(m->expiry_ns, s->due_ns);
    m->counters.sent++;
    return bytes_count;
}

uint64_t weft_agg_member_deadline(const struct weft_agg_member *member)
{
    return member->queue_count > 0 ? 0 : member->expiry_ns;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static float fixed_value(const uint8_t *value, int8_t exponent)
{
    return (float)weft_agg_value((int32_t)weft_wire_load_u32(value), exponent);
}

/* Whether every value of a sum is a finite number of the vector's type. */
static bool is_finite(const struct weft_agg_member *m, const uint8_t *values, uint32_t elements,
                      int8_t exponent)
{
    if (m->config.element == WEFT_AGG_FLOATS) {
        return weft_agg_real_check(values, elements) == 0;
    }
    if (m->config.element == WEFT_AGG_INTEGERS || exponent <= FINITE_EXPONENT_MAX) {
        return true;
    }
    uint32_t bad = 0;
    for (uint32_t i = 0; i < elements; i++) {
        float x = fixed_value(values + (size_t)ELEMENT_BYTES * i, exponent);
        bad |= weft_agg_not_finite(weft_agg_bits(x));
    }
    return bad == 0;
}

static void store(struct weft_agg_member *m, uint32_t chunk, int8_t exponent,
                  const uint8_t *values)
{
    uint32_t elements = elements_of(m, chunk);
    uint8_t *out = m->out + (size_t)ELEMENT_BYTES * first_of(m, chunk);
    if (!is_scaled(m)) {
        memcpy(out, values, (size_t)ELEMENT_BYTES * elements);
        return;
    }
    for (uint32_t i = 0; i < elements; i++) {
        float x = fixed_value(values + (size_t)ELEMENT_BYTES * i, exponent);
        memcpy(out + (size_t)ELEMENT_BYTES * i, &x, sizeof(x));
    }
}

/* Whether a sum can be stored. A void one has no content, and one of another form than this round's
 * packets does not contain this member's values. The round is complete either way: no other sum
 * will arrive. */
static bool is_usable(const struct weft_agg_member *m, const struct weft_wire_agg *head,
                      const uint8_t *values)
{
    const struct weft_agg_member_slot *s = &m->slots[head->place];
    return head->flags == form_of(m) && head->exponent == s->exponent &&
           is_finite(m, values, elements_of(m, s->chunk), s->exponent);
}

/* The time since the first packet of the round. It is too long if a packet was lost, so the times
 * of resent packets have little weight. They must not be ignored: if round trips became longer than
 * the timeout, every packet would be resent, and nothing would be measured. A round without values
 * is not measured: its packets are short, and those of the next would time out in a queue. */
static void measure(struct weft_agg_member *m, const struct weft_agg_member_slot *s,
                    uint64_t now_ns)
{
    uint64_t ns = weft_max_u64(now_ns - s->sent_ns, 1);
    uint64_t part = s->tries == 1 ? 8 : 64;
    if (!s->opens) {
        m->trip_ns = m->trip_ns == 0 ? ns : m->trip_ns - m->trip_ns / part + ns / part;
    }
    if (s->tries == 1) {
        m->answered = weft_max_u64(m->answered, s->sequence);
    }
}

/* The sum of the slot's round has arrived; put the next round into the queue. */
static void advance(struct weft_agg_member *m, uint32_t slot, const struct weft_wire_agg *sum)
{
    struct weft_agg_member_slot *s = &m->slots[slot];
    uint64_t next = (uint64_t)s->chunk + m->config.slots;
    list_remove(m, slot);
    s->round++;
    s->tries = 0;
    s->due_ns = WEFT_NEVER;
    if (m->config.element == WEFT_AGG_BLOCK_FLOATS) { /* a sum of another form has none */
        s->exponent = (sum->flags & WEFT_AGG_AGREED) != 0 ? sum->next : WEFT_AGG_EXPONENT_MIN;
    }
    if (!s->opens) {
        s->chunk = next < m->chunks ? (uint32_t)next : none;
        m->left--;
    }
    s->opens = false;
    if (s->chunk != none) {
        enqueue(m, slot);
    }
}

bool weft_agg_member_receive(struct weft_agg_member *member, const uint8_t *bytes, uint32_t count,
                             uint64_t now_ns)
{
    struct weft_agg_member *m = member;
    struct weft_wire_agg head;
    if (!weft_wire_agg_decode(bytes, bytes + count, count, &head) || head.kind != WEFT_AGG_SUM ||
        head.job != m->config.job || head.member != m->config.member ||
        head.place >= m->config.slots) {
        m->counters.foreign++;
        return false;
    }
    struct weft_agg_member_slot *s = &m->slots[head.place];
    if (head.epoch != m->config.epoch || (int32_t)(head.number - s->round) < 0) {
        m->counters.late++;
        return false;
    }
    /* A round is not complete before this member has sent its packet. */
    if (head.number != s->round || s->tries == 0 ||
        head.count != count_of(m, s)) {
        m->counters.foreign++;
        return false;
    }
    m->counters.sums++;
    measure(m, s, now_ns);
    if (s->opens) {
        /* it has no values */
    } else if (is_usable(m, &head, bytes + WEFT_AGG_HEADER_BYTES)) {
        store(m, s->chunk, s->exponent, bytes + WEFT_AGG_HEADER_BYTES);
    } else {
        m->counters.direct++;
        weft_bits_set(m->direct, s->chunk);
    }
    advance(m, head.place, &head);
    queue_overtaken(m);
    return true;
}

/* ---- vectors --------------------------------------------------------------------------------- */

uint32_t weft_agg_member_chunks(const struct weft_agg_member *member, uint64_t count)
{
    return (uint32_t)weft_div_ceil_u64(count, member->config.values);
}

weft_status weft_agg_member_begin(struct weft_agg_member *member, const void *in, void *out,
                                  uint64_t count, uint64_t *direct)
{
    struct weft_agg_member *m = member;
    if (m->left != 0) {
        return WEFT_STATE;
    }
    if (count == 0 || count > (UINT64_C(1) << 31) * m->config.values) {
        return WEFT_INVALID;
    }
    m->in = in;
    m->out = out;
    m->count = count;
    m->direct = direct;
    m->chunks = weft_agg_member_chunks(m, count);
    m->left = m->chunks;
    memset(direct, 0, sizeof(*direct) * WEFT_BITS_WORDS((size_t)m->chunks));
    for (uint32_t i = 0; i < m->config.slots && i < m->chunks; i++) {
        m->slots[i].chunk = i;
        m->slots[i].opens = m->config.element == WEFT_AGG_BLOCK_FLOATS;
        m->slots[i].exponent = m->config.exponent;
        enqueue(m, i);
    }
    return WEFT_OK;
}
