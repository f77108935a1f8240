/* Max-min rates by water filling, several levels per pass. A link whose share is the least of all
 * links that its flows cross is their bottleneck, independent of other links, because shares of
 * other links only grow as flows are settled. A flow whose limit is below its links' shares gets
 * its limit. Each pass settles at least the lowest level, and usually all. */
#include "sim/fluid.h"

#include "base/assert.h"

#include <stdlib.h>

#define NO_FLOW UINT32_MAX
static const uint64_t nanobits_per_byte = UINT64_C(8000000000);

struct link {
    uint64_t capacity_bps;
    weft_fluid_nanobits carried;
    weft_fluid_nanobits offered;
    /* State of the rate computation: */
    uint64_t left_bps;
    uint32_t unsettled; /* flows on it */
    bool bottleneck;
};

struct flow {
    struct weft_fluid_flow is;
    bool used;
    bool settled;
    uint64_t rate_bps;
    uint64_t sent; /* nanobits; also the following */
    uint64_t released;
    uint64_t told;      /* events up to here have been returned */
    uint64_t milestone; /* position of the next event */
};

struct weft_fluid {
    struct link *links;
    uint32_t link_count;
    struct flow *flows;
    uint32_t flow_room;
    uint32_t *order; /* flows in use, in the order of their start */
    uint32_t order_count;
    uint32_t *spare; /* free flow numbers */
    uint32_t spare_count;
    uint32_t *ranked; /* scratch memory of the rate computation */
    uint64_t now_ns;
    uint32_t polled; /* position in `order` up to which events were returned */
    bool stale;      /* rates must be recomputed */
};

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

struct weft_fluid *weft_fluid_new(uint32_t links)
{
    struct weft_fluid *f = zeroed(1, sizeof(*f));
    f->links = zeroed(links, sizeof(*f->links));
    f->link_count = links;
    return f;
}

void weft_fluid_free(struct weft_fluid *f)
{
    free(f->links);
    free(f->flows);
    free(f->order);
    free(f->spare);
    free(f->ranked);
    free(f);
}

static void grow(struct weft_fluid *f)
{
    uint32_t room = f->flow_room == 0 ? 64 : f->flow_room * 2;
    f->flows = realloc(f->flows, room * sizeof(*f->flows));
    f->order = realloc(f->order, room * sizeof(*f->order));
    f->spare = realloc(f->spare, room * sizeof(*f->spare));
    f->ranked = realloc(f->ranked, room * sizeof(*f->ranked));
    WEFT_ASSERT(f->flows != NULL && f->order != NULL && f->spare != NULL && f->ranked != NULL);
    for (uint32_t i = room; i-- > f->flow_room;) {
        f->flows[i].used = false;
        f->spare[f->spare_count++] = i; /* the lowest number is used next */
    }
    f->flow_room = room;
}

void weft_fluid_set_capacity(struct weft_fluid *f, uint32_t link, uint64_t bps)
{
    WEFT_ASSERT(link < f->link_count);
    f->stale |= f->links[link].capacity_bps != bps;
    f->links[link].capacity_bps = bps;
}

uint64_t weft_fluid_capacity(const struct weft_fluid *f, uint32_t link)
{
    WEFT_ASSERT(link < f->link_count);
    return f->links[link].capacity_bps;
}

static struct flow *flow_at(const struct weft_fluid *f, uint32_t flow)
{
    WEFT_ASSERT(flow < f->flow_room && f->flows[flow].used);
    return &f->flows[flow];
}

/* The end of the current chunk, or of the released data if that is lower. */
static uint64_t next_milestone(const struct flow *flow)
{
    uint64_t chunk = flow->is.chunk_bytes * nanobits_per_byte;
    uint64_t end = flow->is.bytes * nanobits_per_byte;
    uint64_t next = chunk == 0 || chunk > end - flow->told ? end : flow->told + chunk;
    return next;
}

uint32_t weft_fluid_start(struct weft_fluid *f, const struct weft_fluid_flow *flow,
                          uint64_t released)
{
    WEFT_ASSERT(flow->bytes > 0 && flow->bytes <= WEFT_FLUID_BYTES_MAX);
    WEFT_ASSERT(flow->up < f->link_count && flow->down < f->link_count && flow->up != flow->down);
    if (f->spare_count == 0) {
        grow(f);
    }
    uint32_t number = f->spare[--f->spare_count];
    struct flow *made = &f->flows[number];
    *made = (struct flow){.is = *flow, .used = true};
    made->milestone = next_milestone(made);
    f->order[f->order_count++] = number;
    f->stale = true;
    weft_fluid_release(f, number, released);
    return number;
}

void weft_fluid_release(struct weft_fluid *f, uint32_t number, uint64_t bytes)
{
    struct flow *flow = flow_at(f, number);
    uint64_t released = bytes * nanobits_per_byte;
    WEFT_ASSERT(bytes <= flow->is.bytes && released >= flow->released);
    f->stale |= flow->released == flow->sent && released > flow->sent;
    flow->released = released;
}

void weft_fluid_limit(struct weft_fluid *f, uint32_t number, uint64_t limit_bps, uint64_t rank)
{
    struct flow *flow = flow_at(f, number);
    f->stale |= flow->is.limit_bps != limit_bps || flow->is.rank != rank;
    flow->is.limit_bps = limit_bps;
    flow->is.rank = rank;
}

static void remove_at(struct weft_fluid *f, uint32_t place)
{
    uint32_t number = f->order[place];
    f->flows[number].used = false;
    f->spare[f->spare_count++] = number;
    for (uint32_t i = place + 1; i < f->order_count; i++) {
        f->order[i - 1] = f->order[i];
    }
    f->order_count--;
    f->stale = true;
}

void weft_fluid_stop(struct weft_fluid *f, uint32_t number)
{
    (void)flow_at(f, number);
    uint32_t place = 0;
    while (f->order[place] != number) {
        place++;
    }
    f->polled -= place < f->polled;
    remove_at(f, place);
}

uint64_t weft_fluid_left(const struct weft_fluid *f, uint32_t number)
{
    const struct flow *flow = flow_at(f, number);
    uint64_t left = flow->is.bytes * nanobits_per_byte - flow->sent;
    return weft_div_ceil_u64(left, nanobits_per_byte);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static bool sends(const struct flow *flow)
{
    return flow->sent < flow->released && flow->is.limit_bps > 0;
}

static uint64_t share_of(const struct link *link)
{
    return link->left_bps / link->unsettled;
}

static uint64_t shares_min(const struct weft_fluid *f, const struct flow *flow)
{
    return weft_min_u64(share_of(&f->links[flow->is.up]), share_of(&f->links[flow->is.down]));
}

static void settle(struct weft_fluid *f, struct flow *flow, uint64_t rate_bps)
{
    struct link *up = &f->links[flow->is.up];
    struct link *down = &f->links[flow->is.down];
    WEFT_ASSERT(rate_bps <= up->left_bps && rate_bps <= down->left_bps);
    flow->rate_bps = rate_bps;
    flow->settled = true;
    up->left_bps -= rate_bps;
    down->left_bps -= rate_bps;
    if (flow->is.rank == 0) {
        up->unsettled--;
        down->unsettled--;
    }
}

/* Granted flows in the order of their ranks; with equal ranks, in the order of their start. */
static void rates_ranked(struct weft_fluid *f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->order_count; i++) {
        uint32_t number = f->order[i];
        const struct flow *flow = &f->flows[number];
        if (flow->is.rank == 0 || !sends(flow)) {
            continue;
        }
        uint32_t at = count++;
        for (; at > 0 && f->flows[f->ranked[at - 1]].is.rank > flow->is.rank; at--) {
            f->ranked[at] = f->ranked[at - 1];
        }
        f->ranked[at] = number;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct flow *flow = &f->flows[f->ranked[i]];
        uint64_t room =
            weft_min_u64(f->links[flow->is.up].left_bps, f->links[flow->is.down].left_bps);
        settle(f, flow, weft_min_u64(room, flow->is.limit_bps));
    }
}

/* Mark the links whose share is the least for all of their flows, none of which is held by its
 * limit. */
static void find_bottlenecks(struct weft_fluid *f)
{
    for (uint32_t l = 0; l < f->link_count; l++) {
        f->links[l].bottleneck = f->links[l].unsettled > 0;
    }
    for (uint32_t i = 0; i < f->order_count; i++) {
        const struct flow *flow = &f->flows[f->order[i]];
        if (flow->settled) {
            continue;
        }
        uint64_t level = weft_min_u64(shares_min(f, flow), flow->is.limit_bps);
        struct link *up = &f->links[flow->is.up];
        struct link *down = &f->links[flow->is.down];
        up->bottleneck &= share_of(up) == level;
        down->bottleneck &= share_of(down) == level;
    }
}

/* One pass over the unsettled flows; false if there are none. Levels are read before any flow is
 * settled, because settling changes shares. */
static bool rates_pass(struct weft_fluid *f)
{
    bool any = false;
    find_bottlenecks(f);
    for (uint32_t i = 0; i < f->order_count; i++) {
        struct flow *flow = &f->flows[f->order[i]];
        if (!flow->settled) {
            any = true;
            flow->rate_bps = weft_min_u64(shares_min(f, flow), flow->is.limit_bps);
        }
    }
    for (uint32_t i = 0; any && i < f->order_count; i++) {
        struct flow *flow = &f->flows[f->order[i]];
        bool decided = f->links[flow->is.up].bottleneck || f->links[flow->is.down].bottleneck ||
                       flow->rate_bps == flow->is.limit_bps;
        if (!flow->settled && decided) {
            settle(f, flow, flow->rate_bps);
        }
    }
    return any;
}

static void rates(struct weft_fluid *f)
{
    for (uint32_t l = 0; l < f->link_count; l++) {
        f->links[l].left_bps = f->links[l].capacity_bps;
        f->links[l].unsettled = 0;
    }
    for (uint32_t i = 0; i < f->order_count; i++) {
        struct flow *flow = &f->flows[f->order[i]];
        flow->rate_bps = 0;
        flow->settled = flow->is.rank > 0 || !sends(flow);
        if (!flow->settled) {
            f->links[flow->is.up].unsettled++;
            f->links[flow->is.down].unsettled++;
        }
    }
    rates_ranked(f);
    while (rates_pass(f)) {
    }
    f->stale = false;
}

uint64_t weft_fluid_rate(struct weft_fluid *f, uint32_t flow)
{
    if (f->stale) {
        rates(f);
    }
    return flow_at(f, flow)->rate_bps;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Point at which a flow stops by itself: the end of its chunk, or of the released data. */
static uint64_t stop_of(const struct flow *flow)
{
    return weft_min_u64(flow->milestone, flow->released);
}

uint64_t weft_fluid_next_ns(struct weft_fluid *f)
{
    uint64_t least = WEFT_NEVER;
    if (f->stale) {
        rates(f);
    }
    for (uint32_t i = 0; i < f->order_count; i++) {
        const struct flow *flow = &f->flows[f->order[i]];
        if (flow->rate_bps > 0) {
            least =
                weft_min_u64(least, weft_div_ceil_u64(stop_of(flow) - flow->sent, flow->rate_bps));
        }
    }
    return weft_time_add(f->now_ns, least);
}

void weft_fluid_advance(struct weft_fluid *f, uint64_t now_ns)
{
    WEFT_ASSERT(now_ns >= f->now_ns && now_ns <= weft_fluid_next_ns(f));
    uint64_t ns = now_ns - f->now_ns;
    for (uint32_t i = 0; ns > 0 && i < f->order_count; i++) {
        struct flow *flow = &f->flows[f->order[i]];
        if (flow->rate_bps == 0) {
            continue;
        }
        /* The last nanosecond may be partly used. */
        uint64_t need = stop_of(flow) - flow->sent;
        uint64_t moved = need / flow->rate_bps < ns ? need : flow->rate_bps * ns;
        flow->sent += moved;
        f->links[flow->is.up].carried += moved;
        f->links[flow->is.down].carried += moved;
        f->stale |= flow->sent == flow->released;
    }
    for (uint32_t l = 0; ns > 0 && l < f->link_count; l++) {
        struct link *link = &f->links[l];
        link->offered += (weft_fluid_nanobits)link->capacity_bps * ns;
        WEFT_ASSERT(link->carried <= link->offered);
    }
    f->now_ns = now_ns;
    f->polled = 0;
}

bool weft_fluid_poll(struct weft_fluid *f, struct weft_fluid_event *event_p)
{
    for (; f->polled < f->order_count; f->polled++) {
        uint32_t number = f->order[f->polled];
        struct flow *flow = &f->flows[number];
        if (flow->sent < flow->milestone) {
            continue;
        }
        flow->told = flow->milestone;
        flow->milestone = next_milestone(flow);
        uint64_t bytes = flow->told / nanobits_per_byte;
        *event_p = (struct weft_fluid_event){number, flow->is.user, bytes, bytes == flow->is.bytes};
        if (event_p->finished) {
            remove_at(f, f->polled);
        }
        return true;
    }
    return false;
}

weft_fluid_nanobits weft_fluid_carried(const struct weft_fluid *f, uint32_t link)
{
    WEFT_ASSERT(link < f->link_count);
    return f->links[link].carried;
}

weft_fluid_nanobits weft_fluid_offered(const struct weft_fluid *f, uint32_t link)
{
    WEFT_ASSERT(link < f->link_count);
    return f->links[link].offered;
}
