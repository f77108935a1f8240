#include "sim/reno.h"

#include "base/assert.h"
#include "sim/heap.h"

#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 2048, /* segments between the oldest and the newest in flight: 3 MB */
    FRAME_BYTES = 1514,
    ACK_FRAME_BYTES = 66,
    HEAD_BYTES = 8, /* flow and life, number */
    WINDOW_FIRST = 10,
    WINDOW_LEAST = 2,
    DUPLICATES = 3,
    MILLI = 1000, /* the window is counted in thousandths of a segment */
    QUEUED_MAX = WEFT_RENO_HOST_BYTES / FRAME_BYTES + 1,
    DOUBLINGS_MAX = 6,
};

static const uint64_t timeout_ns_min = 5 * WEFT_NS_PER_MS;
static const uint64_t delayed_ack_ns = WEFT_NS_PER_MS;

#define SELECTIVE UINT32_C(0x80000000) /* of one segment, not of all before a number */

enum state { FLIGHT, AGAIN, ARRIVED, LOST };

struct flow {
    bool live;
    bool recovering; /* from a loss, until all segments before `recover` are acknowledged */
    uint16_t life;
    uint32_t from;
    uint32_t to;
    uint32_t segments; /* UINT32_MAX = without end */
    /* the sender */
    uint32_t oldest; /* not acknowledged */
    uint32_t next;
    uint32_t highest; /* acknowledged segment with the largest number, plus one */
    uint32_t recover; /* the next segment when the window was halved: once for all before it */
    uint32_t pipe;    /* in flight */
    uint32_t lost;    /* to be retransmitted */
    uint64_t window_milli;
    uint64_t threshold_milli;
    uint64_t srtt_ns;
    uint64_t rttvar_ns;
    uint64_t timeout_ns; /* time of the timeout; WEFT_NEVER = nothing in flight */
    uint32_t doublings;
    uint64_t leave_ns[QUEUED_MAX]; /* when the last segments leave the host */
    uint32_t leave_next;
    uint64_t room_ns; /* when the host's queue has room again; WEFT_NEVER = it has */
    uint8_t state[WINDOW];
    uint64_t sent_ns[WINDOW];
    /* the receiver */
    uint32_t expected;
    bool unacknowledged;
    uint64_t ack_ns; /* time of the delayed acknowledgement */
    bool here[WINDOW];
    uint64_t event_ns; /* of the earliest event in the heap */
};

struct weft_reno {
    struct weft_reno_config config;
    struct flow *flows[WEFT_RENO_FLOWS_MAX];
    struct weft_reno_flow next; /* valid if more */
    bool more;
    bool ended;
    uint64_t begin_ns;
    struct weft_sim_heap timers;
    struct weft_reno_counters counters;
};

static uint64_t now_of(const struct weft_reno *r)
{
    return weft_world_now_ns(r->config.world);
}

/* ---- packets --------------------------------------------------------------------------------- */

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void packet_send(struct weft_reno *r, uint32_t index, uint32_t from, uint32_t to,
                        uint32_t frame_bytes, uint32_t number)
{
    struct weft_net_packet *packet =
        weft_net_packet_new(r->config.hosts + from, r->config.hosts + to, WEFT_ECN_NOT,
                            frame_bytes - r->config.overhead_bytes);
    put_u32(packet->bytes, index << 16 | r->flows[index]->life);
    put_u32(packet->bytes + 4, number);
    weft_net_send(weft_world_net(r->config.world), packet);
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* When a segment that is sent now leaves the host: the queue is drained in order. */
static uint64_t leaves_ns(const struct weft_reno *r, const struct flow *f)
{
    const struct weft_net_link_counters *up =
        weft_net_link_counters(weft_world_net(r->config.world), f->from, WEFT_NET_UP);
    return now_of(r) + up->queued_bytes * 8 * WEFT_NS_PER_S / r->config.rate_bps;
}

static uint64_t timeout_of(const struct flow *f)
{
    uint64_t ns = weft_max_u64(f->srtt_ns + 4 * f->rttvar_ns, timeout_ns_min);
    return (f->srtt_ns == 0 ? 20 * timeout_ns_min : ns) << f->doublings;
}

static void segment_send(struct weft_reno *r, uint32_t index, uint32_t segment, enum state state)
{
    struct flow *f = r->flows[index];
    packet_send(r, index, f->from, f->to, FRAME_BYTES, segment);
    f->state[segment % WINDOW] = (uint8_t)state;
    f->sent_ns[segment % WINDOW] = now_of(r);
    f->pipe++;
    f->leave_ns[f->leave_next++ % QUEUED_MAX] = leaves_ns(r, f);
    r->counters.segments++;
    r->counters.again += state == AGAIN;
    if (f->timeout_ns == WEFT_NEVER) {
        f->timeout_ns = now_of(r) + timeout_of(f);
    }
}

static uint32_t first_lost(const struct flow *f)
{
    uint32_t segment = f->oldest;
    while (f->state[segment % WINDOW] != LOST) {
        segment++;
    }
    return segment;
}

static void flow_send(struct weft_reno *r, uint32_t index)
{
    struct flow *f = r->flows[index];
    f->room_ns = WEFT_NEVER;
    while (!r->ended && (f->pipe + UINT64_C(1)) * MILLI <= f->window_milli) {
        uint64_t leave_ns = f->leave_ns[f->leave_next % QUEUED_MAX];
        if (leave_ns > now_of(r)) {
            f->room_ns = leave_ns;
            return;
        }
        if (f->lost > 0) {
            f->lost--;
            segment_send(r, index, first_lost(f), AGAIN);
        } else if (f->next < f->segments && f->next - f->oldest < WINDOW) {
            segment_send(r, index, f->next++, FLIGHT);
        } else {
            return;
        }
    }
}

static bool in_flight(uint8_t state)
{
    return state == FLIGHT || state == AGAIN;
}

static void halve(struct flow *f)
{
    f->threshold_milli = weft_max_u64(f->window_milli / 2, WINDOW_LEAST * MILLI);
    f->window_milli = f->threshold_milli;
    f->recover = f->next;
    f->recovering = true;
}

/* A segment that was sent at sent_ns has arrived: earlier ones are lost. */
static void find_lost(struct flow *f, uint64_t sent_ns)
{
    bool any = false;
    for (uint32_t s = f->oldest; s < f->highest; s++) {
        uint8_t *state = &f->state[s % WINDOW];
        bool late = *state == FLIGHT ? s + DUPLICATES < f->highest
                                     : *state == AGAIN && f->sent_ns[s % WINDOW] < sent_ns;
        if (late) {
            any |= s >= f->recover;
            *state = LOST;
            f->lost++;
            f->pipe--;
        }
    }
    if (any) {
        halve(f);
    }
}

static void rtt_sample(struct flow *f, uint64_t rtt_ns)
{
    if (f->srtt_ns == 0) {
        f->srtt_ns = rtt_ns;
        f->rttvar_ns = rtt_ns / 2;
        return;
    }
    uint64_t error = rtt_ns > f->srtt_ns ? rtt_ns - f->srtt_ns : f->srtt_ns - rtt_ns;
    f->rttvar_ns = (3 * f->rttvar_ns + error) / 4;
    f->srtt_ns = (7 * f->srtt_ns + rtt_ns) / 8;
}

static void grow(struct flow *f, uint32_t acked)
{
    f->recovering &= f->oldest < f->recover;
    if (f->recovering) {
        return;
    }
    if (f->window_milli < f->threshold_milli) {
        f->window_milli += (uint64_t)acked * MILLI;
    } else {
        f->window_milli += (uint64_t)acked * MILLI * MILLI / f->window_milli;
    }
}

static void flow_end(struct weft_reno *r, uint32_t index)
{
    r->flows[index]->live = false;
    r->counters.complete++;
}

/* The segment has arrived. Returns the time when it was sent. */
static uint64_t acknowledge(struct weft_reno *r, struct flow *f, uint32_t segment)
{
    uint8_t *state = &f->state[segment % WINDOW];
    uint64_t sent_ns = f->sent_ns[segment % WINDOW];
    if (*state == FLIGHT) {
        rtt_sample(f, now_of(r) - sent_ns);
    }
    f->pipe -= in_flight(*state);
    f->lost -= *state == LOST;
    *state = ARRIVED;
    f->highest = segment >= f->highest ? segment + 1 : f->highest;
    return sent_ns;
}

static void on_ack(struct weft_reno *r, uint32_t index, uint32_t number)
{
    struct flow *f = r->flows[index];
    uint32_t acked = 0;
    uint64_t sent_ns = 0;
    bool full = (f->pipe + UINT64_C(2)) * MILLI > f->window_milli;
    if ((number & SELECTIVE) != 0) {
        uint32_t segment = number & ~SELECTIVE;
        if (segment >= f->oldest && f->state[segment % WINDOW] != ARRIVED) {
            sent_ns = acknowledge(r, f, segment);
        }
    }
    while ((number & SELECTIVE) == 0 && f->oldest < number) {
        if (f->state[f->oldest % WINDOW] != ARRIVED) {
            sent_ns = weft_max_u64(sent_ns, acknowledge(r, f, f->oldest));
        }
        f->oldest++;
        acked++;
    }
    r->counters.bytes += (uint64_t)acked * WEFT_RENO_SEGMENT_BYTES;
    if (f->oldest == f->segments) {
        flow_end(r, index);
        return;
    }
    if (sent_ns > 0 && f->highest > f->oldest) {
        find_lost(f, sent_ns);
    }
    if (full) {
        grow(f, acked);
    }
    if (acked > 0) {
        f->doublings = 0;
        f->timeout_ns = f->oldest == f->next ? WEFT_NEVER : now_of(r) + timeout_of(f);
    }
    flow_send(r, index);
}

static void on_timeout(struct weft_reno *r, uint32_t index)
{
    struct flow *f = r->flows[index];
    r->counters.timeouts++;
    f->threshold_milli = weft_max_u64(f->window_milli / 2, WINDOW_LEAST * MILLI);
    f->window_milli = WINDOW_LEAST * MILLI;
    f->recover = f->next;
    f->recovering = false;
    for (uint32_t s = f->oldest; s < f->next; s++) {
        if (in_flight(f->state[s % WINDOW])) {
            f->state[s % WINDOW] = LOST;
            f->lost++;
        }
    }
    f->pipe = 0;
    f->doublings += f->doublings < DOUBLINGS_MAX;
    f->timeout_ns = now_of(r) + timeout_of(f);
    flow_send(r, index);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static void ack_send(struct weft_reno *r, uint32_t index, uint32_t number)
{
    struct flow *f = r->flows[index];
    f->unacknowledged = false;
    f->ack_ns = WEFT_NEVER;
    packet_send(r, index, f->to, f->from, ACK_FRAME_BYTES, number);
}

static void on_segment(struct weft_reno *r, uint32_t index, uint32_t segment)
{
    struct flow *f = r->flows[index];
    if (segment < f->expected) {
        ack_send(r, index, f->expected);
        return;
    }
    f->here[segment % WINDOW] = true;
    if (segment > f->expected) {
        ack_send(r, index, segment | SELECTIVE);
        return;
    }
    uint32_t before = f->expected;
    while (f->here[f->expected % WINDOW]) {
        f->here[f->expected++ % WINDOW] = false;
    }
    if (f->unacknowledged || f->expected > before + 1 || f->expected == f->segments) {
        ack_send(r, index, f->expected);
    } else {
        f->unacknowledged = true;
        f->ack_ns = now_of(r) + delayed_ack_ns;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint64_t due_ns(const struct flow *f)
{
    return f->live ? weft_min_u64(weft_min_u64(f->timeout_ns, f->room_ns), f->ack_ns) : WEFT_NEVER;
}

static void arm(struct weft_reno *r)
{
    uint64_t at_ns = weft_sim_heap_next_ns(&r->timers);
    if (r->more && !r->ended) {
        at_ns = weft_min_u64(at_ns, r->begin_ns + r->next.at_ns);
    }
    weft_net_wake(weft_world_net(r->config.world), r->config.hosts, at_ns);
}

static void flow_arm(struct weft_reno *r, uint32_t index)
{
    struct flow *f = r->flows[index];
    uint64_t at_ns = due_ns(f);
    if (at_ns < f->event_ns) {
        f->event_ns = at_ns;
        weft_sim_heap_push(&r->timers, at_ns, 0, index, NULL);
    }
}

static void flow_timer(struct weft_reno *r, uint32_t index)
{
    struct flow *f = r->flows[index];
    uint64_t now_ns = now_of(r);
    if (f->live && f->ack_ns <= now_ns) {
        ack_send(r, index, f->expected);
    }
    if (f->live && f->room_ns <= now_ns) {
        flow_send(r, index);
    }
    if (f->live && f->timeout_ns <= now_ns) {
        on_timeout(r, index);
    }
}

static void flow_begin(struct weft_reno *r)
{
    uint32_t index = 0;
    while (index < WEFT_RENO_FLOWS_MAX && r->flows[index] != NULL && r->flows[index]->live) {
        index++;
    }
    if (index == WEFT_RENO_FLOWS_MAX) {
        r->counters.refused++;
        return;
    }
    uint16_t life = 0;
    uint64_t event_ns = WEFT_NEVER;
    if (r->flows[index] == NULL) {
        r->flows[index] = malloc(sizeof(*r->flows[index]));
        WEFT_ASSERT(r->flows[index] != NULL);
    } else {
        life = (uint16_t)(r->flows[index]->life + 1);
        event_ns = r->flows[index]->event_ns;
    }
    uint64_t segments = weft_div_ceil_u64(r->next.bytes, WEFT_RENO_SEGMENT_BYTES);
    *r->flows[index] = (struct flow){
        .live = true,
        .life = life,
        .from = r->next.from,
        .to = r->next.to,
        .segments = segments == 0 ? UINT32_MAX : (uint32_t)weft_min_u64(segments, SELECTIVE - 1),
        .window_milli = WINDOW_FIRST * MILLI,
        .threshold_milli = UINT64_MAX,
        .timeout_ns = WEFT_NEVER,
        .room_ns = WEFT_NEVER,
        .ack_ns = WEFT_NEVER,
        .event_ns = event_ns,
    };
    r->counters.flows++;
    flow_send(r, index);
    flow_arm(r, index);
}

static void on_packet(void *self, const struct weft_net_packet *packet, uint64_t now_ns)
{
    (void)now_ns;
    struct weft_reno *r = self;
    uint32_t head = get_u32(packet->bytes);
    uint32_t index = head >> 16;
    struct flow *f = r->flows[index];
    if (!f->live || f->life != (uint16_t)head) {
        return;
    }
    if (packet->from == r->config.hosts + f->from && packet->count > ACK_FRAME_BYTES) {
        on_segment(r, index, get_u32(packet->bytes + 4));
    } else {
        on_ack(r, index, get_u32(packet->bytes + 4));
    }
    flow_arm(r, index);
    arm(r);
}

static void on_wake(void *self, uint64_t now_ns)
{
    struct weft_reno *r = self;
    struct weft_sim_event event;
    while (weft_sim_heap_next_ns(&r->timers) <= now_ns) {
        (void)weft_sim_heap_pop(&r->timers, &event);
        struct flow *f = r->flows[event.index];
        if (event.time_ns == f->event_ns) { /* else an earlier event was inserted, and is over */
            f->event_ns = WEFT_NEVER;
        }
        flow_timer(r, event.index);
        flow_arm(r, event.index);
    }
    while (r->more && !r->ended && r->begin_ns + r->next.at_ns <= now_ns) {
        flow_begin(r);
        r->more = r->config.next(r->config.self, &r->next);
    }
    arm(r);
}

struct weft_reno *weft_reno_new(const struct weft_reno_config *config)
{
    WEFT_ASSERT(config->overhead_bytes + HEAD_BYTES <= ACK_FRAME_BYTES);
    struct weft_reno *r = calloc(1, sizeof(*r));
    WEFT_ASSERT(r != NULL);
    r->config = *config;
    for (uint32_t i = 0; i < config->hosts; i++) {
        weft_world_other_init(config->world, config->hosts + i, i,
                              &(struct weft_world_other){r, on_packet, on_wake});
    }
    return r;
}

void weft_reno_free(struct weft_reno *reno)
{
    if (reno == NULL) {
        return;
    }
    for (uint32_t i = 0; i < WEFT_RENO_FLOWS_MAX; i++) {
        free(reno->flows[i]);
    }
    weft_sim_heap_fini(&reno->timers);
    free(reno);
}

void weft_reno_begin(struct weft_reno *reno)
{
    reno->begin_ns = now_of(reno);
    reno->more = reno->config.next(reno->config.self, &reno->next);
    arm(reno);
}

void weft_reno_end(struct weft_reno *reno)
{
    reno->ended = true;
    for (uint32_t i = 0; i < WEFT_RENO_FLOWS_MAX; i++) {
        if (reno->flows[i] != NULL) {
            reno->flows[i]->live = false;
        }
    }
    arm(reno);
}

const struct weft_reno_counters *weft_reno_counters(const struct weft_reno *reno)
{
    return &reno->counters;
}
