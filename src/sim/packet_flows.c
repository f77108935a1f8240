#include "sim/packet_flows.h"

#include "base/assert.h"
#include "base/prng.h"
#include "sim/wire_time.h"
#include "sim/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* PIECES: unacknowledged messages of a flow. A pair of hosts may have WEFT_MSGS_MAX of them, and
 * carry both halves of two trees at once. */
enum { PIECES = 16, SOCKET_PACKETS = 65536, RANK_LAST = UINT8_MAX };

#define NO_PEER UINT32_MAX

static const uint64_t switch_bytes = 450000; /* buffer of each downlink */
static const uint64_t deep_bytes = UINT64_C(1) << 40;
static const uint64_t connect_ns_max = 10 * WEFT_NS_PER_S;
static const uint64_t check_interval_ns = WEFT_NS_PER_MS;
static const uint64_t far_ns = UINT64_C(1000000) * WEFT_NS_PER_S; /* a start time that is never
                                                                   * reached */
static const weft_fluid_nanobits nanobits_per_byte = UINT64_C(8000000000);

struct flow {
    struct weft_fluid_flow is;
    bool used;
    bool finished; /* all has arrived; kept until all is acknowledged */
    bool held;
    bool repace; /* its limit has changed and must be applied to its messages */
    uint64_t piece_bytes;
    uint32_t pieces;
    uint32_t sent;           /* pieces passed to the endpoint: 0 .. sent - 1 */
    uint32_t confirmed;      /* all lower pieces are acknowledged */
    uint32_t arrived;        /* all lower pieces have arrived */
    uint32_t confirmed_mask; /* bit = piece mod PIECES, for pieces from `confirmed` on */
    uint32_t arrived_mask;
    uint64_t seq[PIECES]; /* message number, by piece mod PIECES */
    uint64_t released;
    uint64_t from_ns; /* start of its limit; in the world's time, as due_ns */
    uint64_t due_ns;  /* time at which the next piece would start at this rate */
};

struct link {
    uint64_t bps;
    uint64_t since_ns; /* start of this rate */
    weft_fluid_nanobits offered;
    uint64_t before_bytes; /* bytes carried before time 0 */
};

struct weft_packet_flows {
    struct weft_packet_flows_config config;
    struct weft_world *world;
    uint64_t zero_ns; /* the world's time at time 0 */
    uint64_t now_ns;
    struct link *links;
    uint32_t *peers;    /* (hosts, hosts): peer number of the second host at the first */
    uint32_t *partners; /* (hosts,): number of connections */
    bool *connects;     /* (hosts, hosts), lower host first */
    uint32_t ups;
    uint32_t ups_due;
    struct flow *flows;
    uint32_t flow_room;
    struct weft_fluid_event *events; /* a ring; returned in order */
    uint32_t event_room;
    uint32_t event_count;
    uint32_t event_next;
    void *source; /* content of all messages */
};

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    WEFT_ASSERT(memory != NULL);
    return memory;
}

static uint64_t world_ns(const struct weft_packet_flows *p)
{
    return p->zero_ns + p->now_ns;
}

static uint32_t *peer_at(const struct weft_packet_flows *p, uint32_t host, uint32_t other)
{
    return &p->peers[(size_t)host * p->config.hosts + other];
}

static uint32_t from_of(const struct flow *flow)
{
    return flow->is.up / 2;
}

static uint32_t to_of(const struct flow *flow)
{
    return flow->is.down / 2;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static uint64_t piece_end(const struct flow *flow, uint32_t piece)
{
    return weft_min_u64((piece + UINT64_C(1)) * flow->piece_bytes, flow->is.bytes);
}

static uint64_t piece_bytes(const struct flow *flow, uint32_t piece)
{
    return piece_end(flow, piece) - piece * flow->piece_bytes;
}

/* Number of flows of the same kind that were granted earlier and are in flight (sched/service.c:
 * rank). */
static uint8_t rank_of(const struct weft_packet_flows *p, const struct flow *flow)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < p->flow_room; i++) {
        const struct flow *other = &p->flows[i];
        before += other->used && !other->finished && other->held && other->is.rank < flow->is.rank;
    }
    return (uint8_t)weft_min_u64(before, RANK_LAST);
}

static uint64_t time_of(const struct flow *flow, uint32_t piece)
{
    if (flow->is.limit_bps == 0 || flow->is.limit_bps == WEFT_FLUID_NO_LIMIT) {
        return 0;
    }
    return weft_sim_wire_ns(piece_bytes(flow, piece), flow->is.limit_bps);
}

/* Each piece may start when the earlier ones would have been sent at the rate. */
static void pace(struct weft_packet_flows *p, struct flow *flow, uint32_t piece, uint8_t rank,
                 uint64_t now_ns)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(p->world, from_of(flow)));
    bool waits = flow->is.limit_bps == 0;
    bool free_rate = flow->is.limit_bps == WEFT_FLUID_NO_LIMIT;
    const struct weft_msg_pace pace = {
        .start_ns = waits ? now_ns + far_ns : flow->due_ns,
        .rate_bps = waits || free_rate ? 0 : weft_sim_paced_bps(flow->is.limit_bps),
        .rank = rank,
    };
    weft_status status = msgr.ops->pace(msgr.self, *peer_at(p, from_of(flow), to_of(flow)),
                                        flow->seq[piece % PIECES], &pace, now_ns);
    if (status == WEFT_OK) {
        flow->due_ns += time_of(flow, piece);
    } else if (status != WEFT_NOTFOUND) {
        weft_world_fail(p->world, "a held message cannot be paced: %s", weft_status_name(status));
    }
}

static void pace_again(struct weft_packet_flows *p, struct flow *flow, uint64_t now_ns)
{
    uint8_t rank = rank_of(p, flow);
    flow->repace = false;
    flow->due_ns = weft_max_u64(flow->from_ns, now_ns);
    for (uint32_t piece = flow->confirmed; piece < flow->sent; piece++) {
        if ((flow->confirmed_mask >> piece % PIECES & 1) == 0) {
            pace(p, flow, piece, rank, now_ns);
        }
    }
}

/* Returns false if the pair of hosts has the maximum number of messages. */
static bool send_piece(struct weft_packet_flows *p, uint32_t number, uint64_t now_ns)
{
    struct flow *flow = &p->flows[number];
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(p->world, from_of(flow)));
    uint64_t bytes = piece_bytes(flow, flow->sent);
    const struct weft_msg_send send = {
        .peer = *peer_at(p, from_of(flow), to_of(flow)),
        .base = p->source,
        .total = (uint32_t)weft_div_ceil_u64(bytes, WEFT_SIM_ELEM_BYTES),
        .elem_bytes = WEFT_SIM_ELEM_BYTES,
        .held = flow->held,
        .tag = (uint64_t)flow->sent << 32 | number,
        .deadline_ns = WEFT_NEVER,
        .user = number,
    };
    weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &flow->seq[flow->sent % PIECES]);
    if (status == WEFT_AGAIN) {
        return false;
    }
    if (status != WEFT_OK) {
        weft_world_fail(p->world, "a message cannot be sent: %s", weft_status_name(status));
        return false;
    }
    if (flow->held) {
        flow->due_ns = weft_max_u64(flow->due_ns, now_ns);
        pace(p, flow, flow->sent, rank_of(p, flow), now_ns);
    }
    flow->sent++;
    return true;
}

static void send_pieces(struct weft_packet_flows *p, uint32_t number, uint64_t now_ns)
{
    struct flow *flow = &p->flows[number];
    bool good = true;
    while (good && flow->sent < flow->pieces && flow->sent - flow->confirmed < PIECES &&
           piece_end(flow, flow->sent) <= flow->released) {
        good = send_piece(p, number, now_ns);
    }
}

/* ---- events of endpoints --------------------------------------------------------------------- */

static void tell(struct weft_packet_flows *p, uint32_t number)
{
    const struct flow *flow = &p->flows[number];
    if (p->event_count == p->event_room) {
        p->event_room = p->event_room == 0 ? 64 : 2 * p->event_room;
        p->events = realloc(p->events, p->event_room * sizeof(*p->events));
        WEFT_ASSERT(p->events != NULL);
    }
    p->events[p->event_count++] = (struct weft_fluid_event){
        .flow = number,
        .user = flow->is.user,
        .bytes = piece_end(flow, flow->arrived - 1),
        .finished = flow->finished,
    };
}

static struct flow *flow_of(struct weft_packet_flows *p, const struct weft_msg_event *event,
                            uint32_t *piece_p)
{
    uint32_t number = (uint32_t)event->tag;
    *piece_p = (uint32_t)(event->tag >> 32);
    WEFT_ASSERT(number < p->flow_room && p->flows[number].used);
    return &p->flows[number];
}

/* Advance a count over the bits set in the mask. */
static bool advance_over(uint32_t *count, uint32_t *mask, uint32_t piece)
{
    uint32_t before = *count;
    *mask |= UINT32_C(1) << piece % PIECES;
    while ((*mask >> *count % PIECES & 1) != 0) {
        *mask &= ~(UINT32_C(1) << *count % PIECES);
        ++*count;
    }
    return *count > before;
}

static void received(struct weft_packet_flows *p, const struct weft_msg_event *event)
{
    uint32_t piece;
    struct flow *flow = flow_of(p, event, &piece);
    if (advance_over(&flow->arrived, &flow->arrived_mask, piece)) {
        flow->finished = flow->arrived == flow->pieces;
        tell(p, (uint32_t)event->tag);
    }
}

static void sent(struct weft_packet_flows *p, const struct weft_msg_event *event, uint64_t now_ns)
{
    uint32_t piece;
    struct flow *flow = flow_of(p, event, &piece);
    uint32_t from = from_of(flow);
    (void)advance_over(&flow->confirmed, &flow->confirmed_mask, piece);
    flow->used = flow->confirmed < flow->pieces;
    /* Includes flows that waited for a message of another flow. */
    for (uint32_t i = 0; i < p->flow_room; i++) {
        if (p->flows[i].used && from_of(&p->flows[i]) == from) {
            send_pieces(p, i, now_ns);
        }
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_packet_flows *p = self;
    bool ended = event->type == WEFT_EVENT_RECEIVED || event->type == WEFT_EVENT_SENT;
    if (event->type == WEFT_EVENT_PEER_UP) {
        *peer_at(p, host, (uint32_t)event->name - 1) = event->peer;
        p->ups++;
    } else if (event->type == WEFT_EVENT_PEER_DOWN) {
        weft_world_fail(p->world, "host %" PRIu32 " lost a peer (reason %d)", host, event->down);
    } else if (ended && event->outcome != WEFT_MSG_COMPLETE) {
        weft_world_fail(p->world, "host %" PRIu32 ": a message ended with outcome %d", host,
                        (int)event->outcome);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(p, event);
    } else if (event->type == WEFT_EVENT_SENT) {
        sent(p, event, now_ns);
    }
}

/* The deferred part of start, release and limit. An endpoint is called only in its round of
 * progress: the network's clock does not advance between events, so a deadline of the endpoint
 * would be in the past. */
static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct weft_packet_flows *p = self;
    for (uint32_t i = 0; i < p->flow_room; i++) {
        struct flow *flow = &p->flows[i];
        if (flow->used && from_of(flow) == host) {
            if (flow->repace) {
                pace_again(p, flow, now_ns);
            }
            send_pieces(p, i, now_ns);
        }
    }
}

/* ---- setup ----------------------------------------------------------------------------------- */

struct weft_packet_flows *weft_packet_flows_new(const struct weft_packet_flows_config *config)
{
    struct weft_packet_flows *p = zeroed(1, sizeof(*p));
    const struct weft_world_config world = {
        .hosts = config->hosts,
        .seed = weft_mix64(config->seed ^ UINT64_C(0x7061636b657473)),
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    WEFT_ASSERT(config->hosts <= WEFT_PACKET_FLOWS_HOSTS_MAX &&
                config->bytes_max <= WEFT_PACKET_FLOWS_BYTES_MAX);
    size_t pairs = (size_t)config->hosts * config->hosts;
    p->config = *config;
    p->links = zeroed(2 * (size_t)config->hosts, sizeof(*p->links));
    p->peers = zeroed(pairs, sizeof(*p->peers));
    p->connects = zeroed(pairs, sizeof(*p->connects));
    p->partners = zeroed(config->hosts, sizeof(*p->partners));
    memset(p->peers, 0xff, pairs * sizeof(*p->peers));
    p->source = zeroed(1, config->bytes_max + WEFT_SIM_ELEM_BYTES);
    p->world = weft_world_new(&world);
    /* Mode none lacks the tag that packets of a real job have. */
    weft_net_overhead_set(weft_world_net(p->world), WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES);
    return p;
}

void weft_packet_flows_free(struct weft_packet_flows *p)
{
    if (p == NULL) {
        return;
    }
    weft_world_free(p->world); /* first: endpoints borrow the memory */
    free(p->links);
    free(p->peers);
    free(p->connects);
    free(p->partners);
    free(p->flows);
    free(p->events);
    free(p->source);
    free(p);
}

void weft_packet_flows_connect(struct weft_packet_flows *p, uint32_t host, uint32_t other)
{
    uint32_t lower = (uint32_t)weft_min_u64(host, other);
    bool *connects = &p->connects[(size_t)lower * p->config.hosts + (host + other - lower)];
    WEFT_ASSERT(host != other);
    if (!*connects) {
        *connects = true;
        p->partners[host]++;
        p->partners[other]++;
        p->ups_due += 2;
    }
}

static void make_host(struct weft_packet_flows *p, uint32_t host)
{
    struct weft_world_host_config config = {
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = p, .event = on_event, .wake = on_wake},
    };
    weft_ep_config_default(&config.ep);
    config.ep.name = host + 1;
    config.ep.incarnation = host + 1;
    config.ep.seed = weft_mix64(p->config.seed) + host;
    config.ep.packet_bytes = WEFT_SIM_PACKET_BYTES;
    config.ep.chunks_max = weft_sim_chunks(p->config.bytes_max + WEFT_SIM_ELEM_BYTES);
    config.ep.peers_max = p->config.hosts;
    config.ep.accept = 1;
    config.ep.host_queue = 1;
    /* As a shard of the parameter server sets it (node/shard_thread.c); a worker has few
     * servers. */
    config.ep.senders_expected = (uint16_t)weft_max_u64(p->partners[host], 1);
    config.ep.peer_timeout_ns = WEFT_NEVER; /* a message may be held for a long time */
    if (weft_world_host_init(p->world, host, &config) != WEFT_OK) {
        weft_world_fail(p->world, "an endpoint refuses its configuration");
        return;
    }
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(p->world, host));
    const struct weft_msg_expect expect = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_EVENT,
        .memory_bytes = p->config.bytes_max + WEFT_SIM_ELEM_BYTES,
        .count = UINT32_MAX,
        .timeout_ns = WEFT_NEVER,
    };
    weft_expect_id id;
    if (msgr.ops->expect(msgr.self, &expect, &id) != WEFT_OK) {
        weft_world_fail(p->world, "host %" PRIu32 " cannot post an expectation", host);
    }
}

static void connect_pairs(struct weft_packet_flows *p)
{
    for (uint32_t i = 0; i < p->config.hosts; i++) {
        for (uint32_t j = i + 1; j < p->config.hosts; j++) {
            struct weft_addr addr = weft_world_addr(j);
            uint32_t peer;
            if (p->connects[(size_t)i * p->config.hosts + j] &&
                weft_ep_connect(weft_world_ep(p->world, i), &addr, 0, &peer) != WEFT_OK) {
                weft_world_fail(p->world, "host %" PRIu32 " cannot connect", i);
            }
        }
        weft_world_wake(p->world, i, 0);
    }
}

static uint64_t carried_bytes(const struct weft_packet_flows *p, uint32_t link)
{
    return weft_net_link_counters(weft_world_net(p->world), link / 2, link % 2)->left_bytes;
}

bool weft_packet_flows_begin(struct weft_packet_flows *p)
{
    uint64_t at_ns = 0;
    for (uint32_t i = 0; i < p->config.hosts; i++) {
        make_host(p, i);
    }
    if (weft_packet_flows_wrong(p)[0] == '\0') {
        connect_pairs(p);
    }
    while (weft_packet_flows_wrong(p)[0] == '\0' && p->ups < p->ups_due) {
        at_ns += check_interval_ns;
        if (at_ns > connect_ns_max) {
            weft_world_fail(p->world, "not all hosts have connected");
        }
        (void)weft_world_run(p->world, at_ns);
    }
    p->zero_ns = at_ns;
    for (uint32_t l = 0; l < 2 * p->config.hosts; l++) {
        p->links[l].before_bytes = carried_bytes(p, l);
    }
    return weft_packet_flows_wrong(p)[0] == '\0';
}

/* ---- links ----------------------------------------------------------------------------------- */

void weft_packet_flows_set_capacity(struct weft_packet_flows *p, uint32_t link, uint64_t bps)
{
    struct link *l = &p->links[link];
    const struct weft_net_link_config config = {
        .rate_bps = weft_max_u64(bps, 1),
        .delay_ns = p->config.delay_ns / 2,
        .buffer_bytes = link % 2 == WEFT_NET_UP ? deep_bytes : switch_bytes,
    };
    l->offered += (weft_fluid_nanobits)l->bps * (p->now_ns - l->since_ns);
    l->since_ns = p->now_ns;
    l->bps = bps;
    weft_net_link_set(weft_world_net(p->world), link / 2, link % 2, &config);
}

uint64_t weft_packet_flows_capacity(const struct weft_packet_flows *p, uint32_t link)
{
    return p->links[link].bps;
}

weft_fluid_nanobits weft_packet_flows_carried(const struct weft_packet_flows *p, uint32_t link)
{
    return (carried_bytes(p, link) - p->links[link].before_bytes) * nanobits_per_byte;
}

weft_fluid_nanobits weft_packet_flows_offered(const struct weft_packet_flows *p, uint32_t link)
{
    const struct link *l = &p->links[link];
    return l->offered + (weft_fluid_nanobits)l->bps * (p->now_ns - l->since_ns);
}

/* ---- flows ----------------------------------------------------------------------------------- */

static uint32_t take_flow(struct weft_packet_flows *p)
{
    uint32_t number = 0;
    while (number < p->flow_room && p->flows[number].used) {
        number++;
    }
    if (number == p->flow_room) {
        p->flow_room = p->flow_room == 0 ? 64 : 2 * p->flow_room;
        p->flows = realloc(p->flows, p->flow_room * sizeof(*p->flows));
        WEFT_ASSERT(p->flows != NULL);
        for (uint32_t i = number; i < p->flow_room; i++) {
            p->flows[i] = (struct flow){.used = false};
        }
    }
    return number;
}

uint32_t weft_packet_flows_start(struct weft_packet_flows *p, const struct weft_fluid_flow *flow,
                                 uint64_t released)
{
    uint32_t number = take_flow(p);
    struct flow *made = &p->flows[number];
    bool whole = flow->chunk_bytes == 0 || flow->chunk_bytes > flow->bytes;
    WEFT_ASSERT(flow->bytes > 0 && flow->bytes <= p->config.bytes_max);
    *made = (struct flow){
        .is = *flow,
        .used = true,
        .held = flow->rank > 0,
        .piece_bytes = whole ? flow->bytes : flow->chunk_bytes,
    };
    made->pieces = (uint32_t)weft_div_ceil_u64(flow->bytes, made->piece_bytes);
    WEFT_ASSERT(*peer_at(p, from_of(made), to_of(made)) != NO_PEER);
    weft_packet_flows_release(p, number, released);
    return number;
}

void weft_packet_flows_release(struct weft_packet_flows *p, uint32_t number, uint64_t bytes)
{
    struct flow *flow = &p->flows[number];
    WEFT_ASSERT(flow->used && bytes <= flow->is.bytes && bytes >= flow->released);
    flow->released = bytes;
    weft_world_wake(p->world, from_of(flow), world_ns(p));
}

void weft_packet_flows_limit(struct weft_packet_flows *p, uint32_t number, uint64_t from_ns,
                             uint64_t limit_bps)
{
    struct flow *flow = &p->flows[number];
    WEFT_ASSERT(flow->used && flow->held);
    flow->is.limit_bps = limit_bps;
    flow->from_ns = from_ns == WEFT_NEVER ? WEFT_NEVER : p->zero_ns + from_ns;
    flow->repace = true;
    weft_world_wake(p->world, from_of(flow), world_ns(p));
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t weft_packet_flows_next_ns(const struct weft_packet_flows *p)
{
    uint64_t next_ns = weft_net_next_ns(weft_world_net(p->world));
    if (p->event_next < p->event_count) {
        return p->now_ns;
    }
    return next_ns == WEFT_NEVER ? WEFT_NEVER : weft_max_u64(next_ns, world_ns(p)) - p->zero_ns;
}

void weft_packet_flows_advance(struct weft_packet_flows *p, uint64_t now_ns)
{
    WEFT_ASSERT(now_ns >= p->now_ns && now_ns <= weft_packet_flows_next_ns(p));
    p->now_ns = now_ns;
    (void)weft_world_run(p->world, world_ns(p));
}

bool weft_packet_flows_poll(struct weft_packet_flows *p, struct weft_fluid_event *event_p)
{
    if (p->event_next == p->event_count) {
        p->event_next = 0;
        p->event_count = 0;
        return false;
    }
    *event_p = p->events[p->event_next++];
    return true;
}

void weft_packet_flows_counters(const struct weft_packet_flows *p,
                                struct weft_packet_flows_counters *counters_p)
{
    *counters_p = (struct weft_packet_flows_counters){.hash = weft_world_hash(p->world)};
    for (uint32_t i = 0; i < p->config.hosts; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(p->world, i));
        counters_p->packets += c->datagrams_sent;
        counters_p->data += c->data_sent;
        counters_p->again += c->retransmitted_packets;
        counters_p->dropped +=
            weft_net_link_counters(weft_world_net(p->world), i, WEFT_NET_DOWN)->dropped_full;
    }
}

const char *weft_packet_flows_wrong(const struct weft_packet_flows *p)
{
    return weft_world_wrong(p->world);
}
