#include "sim/oracle.h"

#include "base/assert.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

/* A receiver's timeout may be late by this much, because its round of progress may wait for
 * datagrams. */
static const uint64_t timeout_slack_ns = WEFT_NS_PER_MS;

uint8_t weft_oracle_byte_before(uint64_t i)
{
    return (uint8_t)(0x5a ^ (i * 31));
}

float weft_oracle_float_before(uint64_t i)
{
    return (float)((int64_t)(i * 7 % 17) - 8);
}

static uint64_t msg_bytes(const struct weft_plan_msg *plan)
{
    return (uint64_t)plan->total * plan->elem_bytes;
}

static void *alloc(uint64_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

static void fill_floats(uint8_t *at, uint64_t count, struct weft_prng *prng)
{
    for (uint64_t i = 0; i < count; i++) {
        float value = (float)((int64_t)weft_prng_below(prng, 17) - 8);
        memcpy(at + 4 * i, &value, 4);
    }
}

static void fill_bytes(uint8_t *at, uint64_t count, struct weft_prng *prng)
{
    for (uint64_t i = 0; i < count; i++) {
        at[i] = (uint8_t)weft_prng_u64(prng);
    }
}

static void fill_before(struct weft_oracle_msg *msg)
{
    for (uint64_t i = 0; i < msg->memory_bytes; i++) {
        msg->memory[i] = weft_oracle_byte_before(i);
    }
    for (uint64_t i = 0; msg->plan->sink == WEFT_SINK_ADD && i < msg->memory_bytes / 4; i++) {
        float value = weft_oracle_float_before(i);
        memcpy(msg->memory + 4 * i, &value, 4);
    }
}

void weft_oracle_msg_init(struct weft_oracle_msg *msg, const struct weft_plan_msg *plan,
                          uint64_t seed)
{
    *msg = (struct weft_oracle_msg){.plan = plan, .refuse_seed = seed};
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    uint64_t bytes = msg_bytes(plan);
    msg->source = alloc(bytes);
    msg->lent = alloc(bytes);
    if (plan->sink == WEFT_SINK_ADD) {
        fill_floats(msg->source, bytes / 4, &prng);
    } else {
        fill_bytes(msg->source, bytes, &prng);
    }
    memcpy(msg->lent, msg->source, bytes);
    msg->mask = alloc(WEFT_BITS_WORDS((uint64_t)plan->chunks) * 8);
    if (plan->sink == WEFT_SINK_EVENT) {
        msg->handed = alloc(WEFT_BITS_WORDS((uint64_t)plan->chunks) * 8);
    } else if (!plan->shared) {
        msg->memory_bytes = bytes + plan->slack_bytes;
        msg->memory = alloc(msg->memory_bytes);
        fill_before(msg);
    }
}

void weft_oracle_msg_fini(struct weft_oracle_msg *msg)
{
    free(msg->source);
    free(msg->lent);
    free(msg->memory);
    free(msg->mask);
    free(msg->handed);
    *msg = (struct weft_oracle_msg){0};
}

/* The whole chunks of the bound, including the fractions left by earlier messages. */
static uint32_t lost_max(const struct weft_plan_msg *plan, struct weft_oracle_stream *s)
{
    uint64_t left = s->used ? s->parts * plan->chunk_elems / s->chunk_elems : 0;
    uint64_t parts = (uint64_t)plan->bound_ppm * plan->total + left;
    uint64_t whole = parts / ((uint64_t)WEFT_PPM * plan->chunk_elems);
    *s = (struct weft_oracle_stream){
        .used = true,
        .stream = plan->stream,
        .chunk_elems = plan->chunk_elems,
        .parts = parts - whole * WEFT_PPM * plan->chunk_elems,
    };
    return (uint32_t)weft_min_u64(whole, plan->chunks - 1);
}

void weft_oracle_queued(struct weft_oracle_msg *msg, struct weft_oracle_streams *streams,
                        uint64_t seq)
{
    struct weft_oracle_stream *s = streams->of;
    while (s->used && s->stream != msg->plan->stream) {
        s++;
        WEFT_ASSERT(s < streams->of + WEFT_PLAN_STREAMS_MAX);
    }
    msg->queued = true;
    msg->seq = seq;
    msg->lost_max = msg->plan->bound_ppm == 0 ? 0 : lost_max(msg->plan, s);
}

static const char *grid_check(const struct weft_plan_msg *plan, const struct weft_msg_event *event)
{
    if (event->total != plan->total || event->elem_bytes != plan->elem_bytes ||
        event->chunk_elems != plan->chunk_elems || event->chunks != plan->chunks) {
        return "the grid of an event differs from the message's";
    }
    return NULL;
}

const char *weft_oracle_open(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             uint64_t now_ns)
{
    if (!msg->posted) {
        return "OPEN before its memory was posted";
    }
    if (!msg->queued) {
        return "OPEN before it was sent";
    }
    if (msg->opened) {
        return "OPEN twice";
    }
    if (event->seq != msg->seq) {
        return "OPEN with a sequence number different from send's";
    }
    msg->opened = true;
    msg->opened_ns = now_ns;
    msg->opened_peer = event->peer;
    return grid_check(msg->plan, event);
}

/* Whether the application refuses this chunk: determined by the seed, not by the order of
 * arrival. */
static bool refuses(const struct weft_oracle_msg *msg, uint32_t chunk)
{
    struct weft_prng prng;
    weft_prng_split(&prng, msg->refuse_seed, chunk);
    return weft_prng_chance(&prng, msg->plan->refuse_ppm);
}

const char *weft_oracle_chunk(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                              bool *refuse_p)
{
    const struct weft_plan_msg *plan = msg->plan;
    if (plan->sink != WEFT_SINK_EVENT) {
        return "CHUNK of a message whose sink is not EVENT";
    }
    if (!msg->opened || msg->received) {
        return "CHUNK before OPEN or after RECEIVED";
    }
    const char *wrong = grid_check(plan, event);
    if (wrong != NULL) {
        return wrong;
    }
    if (event->chunk >= plan->chunks) {
        return "CHUNK outside the grid";
    }
    if (weft_bits_test(msg->handed, event->chunk)) {
        return "CHUNK delivered twice";
    }
    uint64_t first = (uint64_t)event->chunk * plan->chunk_elems;
    if (event->elems != weft_min_u64(plan->chunk_elems, plan->total - first)) {
        return "CHUNK with a wrong number of elements";
    }
    if (memcmp(event->data, msg->source + first * plan->elem_bytes,
               (size_t)event->elems * plan->elem_bytes) != 0) {
        return "CHUNK with wrong data";
    }
    weft_bits_set(msg->handed, event->chunk);
    *refuse_p = refuses(msg, event->chunk);
    msg->refused += *refuse_p;
    return NULL;
}

/* Whether the mask satisfies the sender's bound. */
static bool enough(const struct weft_oracle_msg *msg, const uint64_t *mask)
{
    const struct weft_plan_msg *plan = msg->plan;
    uint32_t missing = plan->chunks - (uint32_t)weft_bits_count(mask, plan->chunks);
    uint32_t critical = (uint32_t)weft_min_u64(plan->critical, plan->chunks);
    return missing <= msg->lost_max && weft_bits_count(mask, critical) == critical;
}

static const char *mask_check(const struct weft_plan_msg *plan, const struct weft_msg_event *event)
{
    const char *wrong = grid_check(plan, event);
    if (wrong != NULL) {
        return wrong;
    }
    if (event->mask == NULL) {
        return "closed without a mask";
    }
    if (weft_bits_count(event->mask, plan->chunks) != event->received) {
        return event->type == WEFT_EVENT_SENT
                   ? "SENT: the mask and the number of received chunks disagree"
                   : "RECEIVED: the mask and the number of received chunks disagree";
    }
    return NULL;
}

/* SHORT is allowed only after an event that may end a message early. */
static const char *short_check(const struct weft_oracle_msg *msg, bool sender_died, uint64_t now_ns)
{
    const struct weft_plan_msg *plan = msg->plan;
    bool deadline = now_ns >= plan->deadline_ns && plan->deadline_ns != WEFT_NEVER;
    bool timeout =
        now_ns >= weft_time_add(msg->opened_ns, plan->timeout_ns) && plan->timeout_ns != WEFT_NEVER;
    return sender_died || deadline || timeout ? NULL : "SHORT without deadline, timeout or death";
}

const char *weft_oracle_received(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                                 bool sender_died, uint64_t now_ns)
{
    const struct weft_plan_msg *plan = msg->plan;
    if (!msg->opened || msg->received) {
        return "RECEIVED before OPEN or twice";
    }
    const char *wrong = mask_check(plan, event);
    if (wrong != NULL) {
        return wrong;
    }
    msg->received = true;
    msg->received_outcome = event->outcome;
    msg->received_count = event->received;
    memcpy(msg->mask, event->mask, WEFT_BITS_WORDS((size_t)plan->chunks) * 8);
    switch (event->outcome) {
    case WEFT_MSG_UNKNOWN:
    case WEFT_MSG_WITHDRAWN:
        return "RECEIVED with an outcome that senders have";
    case WEFT_MSG_SHORT:
        if (enough(msg, msg->mask)) {
            return "SHORT, but the loss is within the bound";
        }
        wrong = short_check(msg, sender_died, now_ns);
        break;
    case WEFT_MSG_COMPLETE:
        wrong = enough(msg, msg->mask) ? NULL : "COMPLETE, but the loss exceeds the bound";
        break;
    }
    if (wrong == NULL &&
        now_ns > weft_time_add(weft_time_add(msg->opened_ns, plan->timeout_ns), timeout_slack_ns)) {
        wrong = "closed long after the receiver's timeout";
    }
    if (wrong == NULL && plan->sink == WEFT_SINK_EVENT &&
        memcmp(msg->handed, msg->mask, WEFT_BITS_WORDS((size_t)plan->chunks) * 8) != 0) {
        wrong = "the delivered chunks differ from the mask";
    }
    return wrong == NULL ? weft_oracle_memory(msg) : wrong;
}

/* Whether chunk c of the receiver's own memory has the expected content. */
static bool chunk_holds(const struct weft_oracle_msg *msg, uint32_t chunk, bool received)
{
    const struct weft_plan_msg *plan = msg->plan;
    uint64_t first = (uint64_t)chunk * plan->chunk_elems * plan->elem_bytes;
    uint64_t end =
        weft_min_u64(first + (uint64_t)plan->chunk_elems * plan->elem_bytes, msg_bytes(plan));
    if (plan->sink == WEFT_SINK_COPY && received) {
        return memcmp(msg->memory + first, msg->source + first, end - first) == 0;
    }
    for (uint64_t i = first; plan->sink == WEFT_SINK_COPY && i < end; i++) {
        if (msg->memory[i] != weft_oracle_byte_before(i)) {
            return false;
        }
    }
    for (uint64_t i = first / 4; plan->sink == WEFT_SINK_ADD && i < end / 4; i++) {
        float value;
        float added;
        memcpy(&value, msg->memory + 4 * i, 4);
        memcpy(&added, msg->source + 4 * i, 4);
        if (value != weft_oracle_float_before(i) + (received ? added : 0)) {
            return false;
        }
    }
    return true;
}

const char *weft_oracle_memory(const struct weft_oracle_msg *msg)
{
    const struct weft_plan_msg *plan = msg->plan;
    if (msg->memory == NULL) {
        return NULL;
    }
    for (uint32_t chunk = 0; chunk < plan->chunks; chunk++) {
        bool received = weft_bits_test(msg->mask, chunk);
        if (!chunk_holds(msg, chunk, received)) {
            return received ? "the memory of a received chunk differs from the data sent"
                            : "memory of a missing chunk was modified";
        }
    }
    for (uint64_t i = msg_bytes(plan); plan->sink == WEFT_SINK_COPY && i < msg->memory_bytes; i++) {
        if (msg->memory[i] != weft_oracle_byte_before(i)) {
            return "memory after the message was modified";
        }
    }
    for (uint64_t i = msg_bytes(plan) / 4; plan->sink == WEFT_SINK_ADD && i < msg->memory_bytes / 4;
         i++) {
        float value;
        memcpy(&value, msg->memory + 4 * i, 4);
        if (value != weft_oracle_float_before(i)) {
            return "memory after the message was modified";
        }
    }
    return NULL;
}

/* Whether the receiver, dead or alive, received this chunk, according to its visible state. */
static bool receiver_has(const struct weft_oracle_msg *msg, uint32_t chunk)
{
    if (msg->received) {
        return weft_bits_test(msg->mask, chunk);
    }
    if (msg->handed != NULL) {
        return weft_bits_test(msg->handed, chunk);
    }
    return msg->memory == NULL || chunk_holds(msg, chunk, true);
}

/* The receiver decides, so its RECEIVED precedes the DONE that became SENT. */
static const char *masks_agree(const struct weft_oracle_msg *msg,
                               const struct weft_msg_event *event)
{
    const struct weft_plan_msg *plan = msg->plan;
    if (!msg->received) {
        bool nothing = event->outcome == WEFT_MSG_SHORT && event->received == 0 && !msg->opened;
        return nothing ? NULL : "SENT, but its receiver has not closed it";
    }
    if (event->outcome != msg->received_outcome) {
        return "the two ends disagree about the outcome";
    }
    for (uint32_t chunk = 0; chunk < plan->chunks; chunk++) {
        if (weft_bits_test(event->mask, chunk) != weft_bits_test(msg->mask, chunk)) {
            return "the masks of the two ends differ";
        }
    }
    return event->refused == msg->refused ? NULL : "the two ends disagree about refused chunks";
}

const char *weft_oracle_sent(struct weft_oracle_msg *msg, const struct weft_msg_event *event,
                             bool receiver_died)
{
    if (!msg->queued || msg->sent) {
        return "SENT for a message that was not sent, or twice";
    }
    if (event->seq != msg->seq) {
        return "SENT with a sequence number different from send's";
    }
    const char *wrong = mask_check(msg->plan, event);
    if (wrong != NULL) {
        return wrong;
    }
    msg->sent = true;
    msg->sent_outcome = event->outcome;
    msg->sent_received = event->received;
    free(msg->lent);
    msg->lent = NULL;
    if (event->outcome != WEFT_MSG_UNKNOWN) {
        return masks_agree(msg, event);
    }
    if (!receiver_died) {
        return "UNKNOWN, but the receiver is alive";
    }
    for (uint32_t chunk = 0; chunk < msg->plan->chunks; chunk++) {
        if (weft_bits_test(event->mask, chunk) && !receiver_has(msg, chunk)) {
            return "UNKNOWN claims a chunk that its receiver does not have";
        }
    }
    return NULL;
}

void weft_oracle_accumulate(const struct weft_oracle_msg *msg, float *sums)
{
    const struct weft_plan_msg *plan = msg->plan;
    uint64_t chunk_bytes = (uint64_t)plan->chunk_elems * plan->elem_bytes;
    for (uint64_t i = 0; i < msg_bytes(plan) / 4; i++) {
        if (msg->received && weft_bits_test(msg->mask, 4 * i / chunk_bytes)) {
            float added;
            memcpy(&added, msg->source + 4 * i, 4);
            sums[i] += added;
        }
    }
}
