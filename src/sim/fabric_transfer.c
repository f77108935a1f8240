/* Transfers, one flow each, at the rates of its grant or with a fair share; and forwarding by
 * hosts.
 *
 * Data may be sent as far as its inputs are complete: an aggregate as far as it has arrived from
 * all members; a reduction as far as it has arrived from all children, once the host's own update
 * is ready; a broadcast as far as it has arrived from the parent, or, at the root, as far as the
 * reduction is complete. With cut-through this is tracked per chunk, without it only for the whole.
 */
#include "sim/fabric_internal.h"

#include "base/assert.h"

#include <stdlib.h>

static const uint32_t no_flow = UINT32_MAX;

static bool forwards(enum weft_fabric_kind kind)
{
    return kind == WEFT_FABRIC_GROUP || kind == WEFT_FABRIC_REDUCE || kind == WEFT_FABRIC_BROADCAST;
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* The rate of the booking at this time. A transfer that is not complete at the end of its booking
 * keeps the last rate; the planner reserves more time for it (docs/SCHEDULER.md, "Links"). */
static uint64_t granted_bps(const struct weft_fabric_transfer *t, uint64_t now_ns, uint64_t *next_p)
{
    const struct weft_booking *booking = &t->booking;
    *next_p = WEFT_NEVER;
    for (uint32_t i = 0; i < booking->count; i++) {
        const struct weft_booking_piece *piece = &booking->pieces[i];
        if (now_ns < piece->from_ns) {
            *next_p = piece->from_ns;
            return 0;
        }
        bool last = i + 1 == booking->count;
        if (now_ns < piece->to_ns || last) {
            *next_p = last ? WEFT_NEVER : piece->to_ns;
            return piece->rate_bps;
        }
    }
    return 0;
}

void weft_fabric_transfer_pace(struct weft_fabric *f, uint32_t index)
{
    struct weft_fabric_transfer *t = &f->transfers[index];
    if (!t->used || t->flow == no_flow || t->pace_ns != f->now_ns) {
        return; /* replanned, or ended, since the event was scheduled */
    }
    struct weft_fabric_rate rate = {0};
    uint64_t later_ns;
    rate.bps = granted_bps(t, f->now_ns, &rate.next_ns);
    if (rate.next_ns != WEFT_NEVER) {
        rate.next_bps = granted_bps(t, rate.next_ns, &later_ns);
    }
    weft_fabric_network_limit(f, t->flow, &rate, t->rank);
    t->pace_ns = rate.next_ns;
    if (rate.next_ns != WEFT_NEVER) {
        weft_fabric_event(f, rate.next_ns, WEFT_FABRIC_EVENT_PACE, index, NULL);
    }
}

void weft_fabric_transfer_regrant(struct weft_fabric *f, uint32_t index,
                                  const struct weft_booking *booking)
{
    f->transfers[index].booking = *booking;
    f->transfers[index].pace_ns = f->now_ns;
    weft_fabric_transfer_pace(f, index);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static uint32_t *longer(uint32_t *list, uint32_t room)
{
    list = realloc(list, room * sizeof(*list));
    WEFT_ASSERT(list != NULL);
    return list;
}

static uint32_t take_spare(struct weft_fabric *f)
{
    if (f->spare_count == 0) {
        uint32_t room = f->transfer_room == 0 ? 256 : 2 * f->transfer_room;
        f->transfers = realloc(f->transfers, room * sizeof(*f->transfers));
        WEFT_ASSERT(f->transfers != NULL);
        f->spare = longer(f->spare, room);
        f->grouped = longer(f->grouped, room);
        for (uint32_t i = room; i-- > f->transfer_room;) {
            f->transfers[i] = (struct weft_fabric_transfer){.used = false};
            f->spare[f->spare_count++] = i;
        }
        f->transfer_room = room;
    }
    return f->spare[--f->spare_count];
}

static void release(struct weft_fabric *f, uint32_t index)
{
    f->transfers[index].used = false;
    f->spare[f->spare_count++] = index;
}

/* ---- forwarding ------------------------------------------------------------------------------ */

/* A sum made before the vector was divided into parts is an input of each part. */
static bool feeds(const struct weft_fabric_transfer *in, const struct weft_fabric_transfer *out)
{
    return in->group == out->group &&
           (in->tree == out->tree || (in->trees == 1 && in->kind == WEFT_FABRIC_REDUCE));
}

/* The number of updates in the inputs of a transfer, and their progress in bytes of the output. */
struct inputs {
    uint64_t bytes;
    uint32_t members;
};

static struct inputs inputs_of(const struct weft_fabric *f, const struct weft_fabric_transfer *out,
                               enum weft_fabric_kind kind)
{
    struct inputs inputs = {.bytes = out->bytes};
    uint32_t next = f->relays[out->from].inputs;
    for (; next != WEFT_FABRIC_NOBODY; next = f->transfers[next].next_input) {
        const struct weft_fabric_transfer *in = &f->transfers[next];
        if (in->kind == kind && feeds(in, out)) {
            weft_fluid_nanobits scaled = (weft_fluid_nanobits)in->arrived * out->bytes / in->bytes;
            inputs.bytes = weft_min_u64(inputs.bytes, (uint64_t)scaled);
            inputs.members += kind == WEFT_FABRIC_REDUCE ? in->members : 1;
        }
    }
    return inputs;
}

/* Inputs of a host's sum: those of its children, and its own when that is ready. */
static struct inputs reduced_at(const struct weft_fabric *f, const struct weft_fabric_transfer *out)
{
    struct inputs inputs = inputs_of(f, out, WEFT_FABRIC_REDUCE);
    inputs.members += f->workers[out->from].state == WEFT_FABRIC_PUSHING;
    return inputs;
}

static uint64_t can_forward(const struct weft_fabric *f, const struct weft_fabric_transfer *out)
{
    struct inputs inputs;
    uint32_t wanted = out->members;
    if (out->kind == WEFT_FABRIC_GROUP) {
        inputs = inputs_of(f, out, WEFT_FABRIC_MEMBER);
    } else if (out->kind == WEFT_FABRIC_REDUCE) {
        inputs = reduced_at(f, out);
    } else {
        inputs = inputs_of(f, out, WEFT_FABRIC_BROADCAST);
        wanted = 1;
        if (inputs.members == 0) { /* the root */
            inputs = reduced_at(f, out);
            wanted = f->config.workers;
        }
    }
    if (inputs.members != wanted || (!out->cut_through && inputs.bytes < out->bytes)) {
        return 0;
    }
    return inputs.bytes;
}

void weft_fabric_relay(struct weft_fabric *f)
{
    if (!f->relays_stale) {
        return;
    }
    f->relays_stale = false;
    for (uint32_t i = 0; i < f->grouped_count; i++) {
        struct weft_fabric_transfer *out = &f->transfers[f->grouped[i]];
        if (out->flow == no_flow || !forwards(out->kind) || !f->relays[out->from].stale) {
            continue;
        }
        uint64_t bytes = can_forward(f, out);
        if (bytes > out->released) {
            out->released = bytes;
            weft_fabric_network_release(f, out->flow, bytes);
        }
    }
    for (uint32_t h = 0; h < f->hosts; h++) {
        f->relays[h].stale = false;
    }
}

void weft_fabric_relay_stale(struct weft_fabric *f, uint32_t host)
{
    if (f->relays != NULL) {
        f->relays[host].stale = true;
        f->relays_stale = true;
    }
}

static void group_add(struct weft_fabric *f, uint32_t index)
{
    struct weft_fabric_transfer *t = &f->transfers[index];
    if (f->relays == NULL) {
        f->relays = weft_fabric_zeroed(f->hosts, sizeof(*f->relays));
        for (uint32_t h = 0; h < f->hosts; h++) {
            f->relays[h].inputs = WEFT_FABRIC_NOBODY;
        }
    }
    f->grouped[f->grouped_count++] = index;
    t->next_input = f->relays[t->to].inputs;
    f->relays[t->to].inputs = index;
    weft_fabric_relay_stale(f, t->from);
    weft_fabric_relay_stale(f, t->to);
}

static void forget_inputs(struct weft_fabric *f, uint64_t group, uint32_t host)
{
    uint32_t *at = &f->relays[host].inputs;
    while (*at != WEFT_FABRIC_NOBODY) {
        struct weft_fabric_transfer *t = &f->transfers[*at];
        if (t->group == group) {
            *at = t->next_input;
        } else {
            at = &t->next_input;
        }
    }
}

void weft_fabric_group_over(struct weft_fabric *f, uint64_t group)
{
    uint32_t kept = 0;
    for (uint32_t h = 0; h < f->hosts; h++) {
        forget_inputs(f, group, h);
    }
    for (uint32_t i = 0; i < f->grouped_count; i++) {
        uint32_t index = f->grouped[i];
        if (f->transfers[index].group != group) {
            f->grouped[kept++] = index;
        } else {
            WEFT_ASSERT(f->transfers[index].done);
            release(f, index);
        }
    }
    f->grouped_count = kept;
}

/* ---- start and arrival ----------------------------------------------------------------------- */

uint32_t weft_fabric_transfer_start(struct weft_fabric *f,
                                    const struct weft_fabric_transfer *transfer)
{
    uint32_t index = take_spare(f);
    struct weft_fabric_transfer *t = &f->transfers[index];
    *t = *transfer;
    t->used = true;
    t->flow = no_flow;
    t->from_ns = t->granted ? weft_max_u64(f->now_ns, t->booking.start_ns) : f->now_ns;
    t->pace_ns = WEFT_NEVER;
    f->started++;
    if (t->group > 0) {
        group_add(f, index);
    }
    if (t->from == t->to) { /* an aggregator's own update has arrived */
        weft_fabric_transfer_arrived(f, index, t->bytes);
        return index;
    }
    bool chunks = t->cut_through && t->group > 0;
    struct weft_fluid_flow flow = {
        .up = weft_fabric_up(t->from),
        .down = weft_fabric_down(t->to),
        .bytes = t->bytes,
        .chunk_bytes = chunks ? f->config.chunk_bytes : 0,
        .limit_bps = t->granted ? 0 : WEFT_FLUID_NO_LIMIT,
        .rank = t->rank,
        .user = index,
    };
    t->flow = weft_fabric_network_start(f, &flow, forwards(t->kind) ? 0 : t->bytes);
    if (t->granted) {
        t->pace_ns = f->now_ns;
        weft_fabric_transfer_pace(f, index);
    }
    return index;
}

void weft_fabric_transfer_sent(struct weft_fabric *f, const struct weft_fluid_event *event)
{
    uint32_t index = (uint32_t)event->user;
    if (event->finished) {
        f->transfers[index].flow = no_flow;
    }
    weft_fabric_event(f, f->now_ns + weft_fabric_network_delay_ns(f), WEFT_FABRIC_EVENT_ARRIVED,
                      index, (void *)(uintptr_t)event->bytes);
}

static void span_of(struct weft_fabric *f, const struct weft_fabric_transfer *t)
{
    static const enum weft_fabric_span_kind kinds[] = {
        [WEFT_FABRIC_MEMBER] = WEFT_FABRIC_SPAN_PUSH,
        [WEFT_FABRIC_GROUP] = WEFT_FABRIC_SPAN_GROUP,
        [WEFT_FABRIC_CHAIN] = WEFT_FABRIC_SPAN_REPLICA,
        [WEFT_FABRIC_REPLICA] = WEFT_FABRIC_SPAN_REPLICA,
        [WEFT_FABRIC_REDUCE] = WEFT_FABRIC_SPAN_REDUCE,
        [WEFT_FABRIC_BROADCAST] = WEFT_FABRIC_SPAN_BROADCAST,
        [WEFT_FABRIC_STEP] = WEFT_FABRIC_SPAN_REDUCE,
    };
    if (t->kind != WEFT_FABRIC_READ && t->kind != WEFT_FABRIC_PUSH && t->from != t->to) {
        weft_fabric_span(f, kinds[t->kind], t->from, t->to, t->from_ns, t->bytes);
    }
}

/* The last broadcast of a group ends the all-reduce. */
static void broadcast_arrived(struct weft_fabric *f, uint64_t group)
{
    uint32_t arrived = 0;
    uint32_t trees = 1;
    for (uint32_t i = 0; i < f->grouped_count; i++) {
        const struct weft_fabric_transfer *t = &f->transfers[f->grouped[i]];
        if (t->done && t->group == group && t->kind == WEFT_FABRIC_BROADCAST) {
            arrived++;
            trees = t->trees;
        }
    }
    if (arrived == trees * (f->config.workers - 1)) {
        weft_fabric_group_over(f, group);
        weft_fabric_all_reduced(f);
    }
}

static bool group_is_done(const struct weft_fabric *f, uint64_t group)
{
    uint32_t servers = 0;
    for (uint32_t i = 0; i < f->grouped_count; i++) {
        const struct weft_fabric_transfer *t = &f->transfers[f->grouped[i]];
        servers += t->done && t->group == group && t->kind == WEFT_FABRIC_GROUP;
    }
    return servers == f->config.servers;
}

static void finished(struct weft_fabric *f, uint32_t index)
{
    struct weft_fabric_transfer t = f->transfers[index];
    f->transfers[index].done = true;
    span_of(f, &t);
    if (t.id > 0) {
        weft_fabric_report_delivered(f, t.id);
    }
    if (t.group == 0) {
        release(f, index);
    }
    switch (t.kind) {
    case WEFT_FABRIC_READ:
    case WEFT_FABRIC_PUSH:
    case WEFT_FABRIC_CHAIN:
        weft_fabric_part_arrived(f, &t);
        break;
    case WEFT_FABRIC_GROUP:
        f->result->update_bytes += t.bytes;
        weft_fabric_group_arrived(f, t.group, t.server);
        if (group_is_done(f, t.group)) {
            weft_fabric_group_over(f, t.group);
        }
        break;
    case WEFT_FABRIC_REPLICA:
        weft_fabric_replicated(f, &t);
        break;
    case WEFT_FABRIC_BROADCAST:
        broadcast_arrived(f, t.group);
        break;
    case WEFT_FABRIC_STEP:
        weft_fabric_step_arrived(f, &t);
        break;
    case WEFT_FABRIC_MEMBER:
    case WEFT_FABRIC_REDUCE:
        break;
    }
}

void weft_fabric_transfer_arrived(struct weft_fabric *f, uint32_t index, uint64_t bytes)
{
    struct weft_fabric_transfer *t = &f->transfers[index];
    WEFT_ASSERT(t->used && !t->done && bytes > t->arrived && bytes <= t->bytes);
    t->arrived = bytes;
    if (t->group > 0) {
        weft_fabric_relay_stale(f, t->to);
    }
    if (bytes == t->bytes) {
        finished(f, index);
    }
}
