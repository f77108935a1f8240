#include "sim/plan.h"

#include "sim/finish.h"
#include "wire/packet.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Header of the packet and of DATA, and room for the tag. */
enum { PACKET_OVERHEAD = 64, ELEM_BYTES_MAX = 1032, CRITICAL_MAX = 254 };

#define US  WEFT_NS_PER_US
#define MS  WEFT_NS_PER_MS
#define SEC WEFT_NS_PER_S

static uint64_t range(struct weft_prng *prng, uint64_t lo, uint64_t hi)
{
    return weft_prng_range(prng, lo, hi);
}

static bool percent(struct weft_prng *prng, uint32_t of_100)
{
    return weft_prng_chance(prng, of_100 * (WEFT_PPM / 100));
}

static uint64_t pick(struct weft_prng *prng, const uint64_t *values, size_t count)
{
    return values[weft_prng_below(prng, count)];
}

#define PICK(prng, ...)                                                                            \
    pick(prng, (const uint64_t[]){__VA_ARGS__},                                                    \
         sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

uint32_t weft_plan_chunk_elems(uint32_t packet_bytes, uint32_t elem_bytes)
{
    uint32_t elems = (packet_bytes - PACKET_OVERHEAD) / elem_bytes;
    return elems >= 32 ? elems - elems % 32 : elems;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void draw_links(struct weft_prng *prng, struct weft_plan *plan)
{
    bool alike = percent(prng, 70);
    uint64_t rate_bps = 0;
    uint64_t delay_ns = 0;
    bool ecn = percent(prng, 60);
    uint64_t buffer = range(prng, 16, 512) * 1000;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        if (i == 0 || !alike) {
            rate_bps = PICK(prng, 100, 1000, 1000, 10000, 25000, 40000) * 1000000;
            delay_ns = US << range(prng, 0, 12);
            delay_ns = weft_min_u64(delay_ns + weft_prng_below(prng, delay_ns), 5 * MS);
        }
        for (int dir = 0; dir < 2; dir++) {
            struct weft_net_link_config *link = &plan->host[i].links[dir];
            link->rate_bps = rate_bps;
            link->delay_ns = delay_ns;
            /* Down: a shallow switch port. Up: the host's own queue, deep enough for a burst. */
            link->buffer_bytes = dir == WEFT_NET_DOWN ? buffer + 30000 : 1000000;
            link->ecn_mark_bytes = ecn ? link->buffer_bytes / 5 : 0;
        }
        plan->host[i].ep.ecn = ecn;
    }
}

static void draw_endpoint(struct weft_prng *prng, struct weft_ep_config *ep)
{
    ep->seed = weft_prng_u64(prng);
    ep->incarnation = weft_prng_u64(prng);
    ep->accept = 1;
    ep->tx_window_max = (uint32_t)PICK(prng, 256, 1024, 4096);
    ep->rx_window = (uint32_t)PICK(prng, 16, 64, 256, 1024);
    ep->unscheduled = (uint16_t)PICK(prng, 1, 8, 32, 64);
}

static void draw_hosts(struct weft_prng *prng, struct weft_plan *plan)
{
    bool alike = percent(prng, 85);
    uint64_t packet_bytes = 0;
    uint64_t progress_delay_ns = percent(prng, 50) ? 0 : range(prng, 1, 50) * US;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        struct weft_plan_host *host = &plan->host[i];
        if (i == 0 || !alike) {
            packet_bytes = percent(prng, 20)
                               ? range(prng, 256, 9000)
                               : PICK(prng, 256, 512, 1200, 1472, 1472, 1472, 4096, 8972);
        }
        uint8_t ecn = host->ep.ecn;
        weft_ep_config_default(&host->ep);
        host->ep.ecn = ecn;
        host->ep.name = WEFT_PLAN_NAME_FIRST + i;
        host->ep.packet_bytes = (uint16_t)packet_bytes;
        host->ep.peers_max = 2 * plan->hosts + 2; /* crossing connections count twice */
        draw_endpoint(prng, &host->ep);
        /* In half of the plans, which get a later limit, half of the hosts. Uses no separate draw,
         * so that the other draws of existing seeds do not change. */
        host->ep.confirm_later = (plan->host[0].ep.seed >> 62 & host->ep.seed >> 63 & 1) != 0;
        host->ep.done_later = (plan->host[0].ep.seed >> 60 & host->ep.seed >> 59 & 1) != 0;
        host->ep.host_queue = host->ep.seed >> 61 & 1;
        host->progress_delay_ns = progress_delay_ns;
    }
}

/* ---- the faults ------------------------------------------------------------------------------ */

static void draw_fault_kinds(struct weft_prng *prng, struct weft_net_faults *faults)
{
    faults->loss_ppm = (uint32_t)PICK(prng, 0, 1000, 10000, 10000, 100000, 300000);
    if (percent(prng, 25)) {
        faults->burst_enter_ppm = (uint32_t)range(prng, 1000, 20000);
        faults->burst_leave_ppm = (uint32_t)range(prng, 50000, 400000);
        faults->burst_loss_ppm = (uint32_t)range(prng, 300000, WEFT_PPM);
    }
    if (percent(prng, 25)) {
        faults->corrupt_ppm = (uint32_t)range(prng, 100, 50000);
    }
    if (percent(prng, 30)) {
        faults->duplicate_ppm = (uint32_t)range(prng, 1000, 300000);
    }
    if (percent(prng, 30)) {
        faults->reorder_ppm = (uint32_t)range(prng, 1000, 500000);
        faults->reorder_ns_max = US << range(prng, 1, 14); /* up to 16 ms */
    }
}

static void draw_hostile(struct weft_prng *prng, struct weft_world_hostile *hostile)
{
    uint32_t ppm = (uint32_t)PICK(prng, 1000, 20000, 200000);
    *hostile = (struct weft_world_hostile){.garbage_ppm = ppm,
                                           .cut_ppm = ppm,
                                           .version_ppm = ppm,
                                           .id_ppm = ppm,
                                           .address_ppm = ppm};
}

static void draw_faults(struct weft_prng *prng, struct weft_plan *plan)
{
    plan->faulty = percent(prng, 85);
    if (percent(prng, 25)) {
        draw_hostile(prng, &plan->hostile);
    }
    if (!plan->faulty) {
        return;
    }
    plan->heal_ns = percent(prng, 80) ? range(prng, 5, 500) * MS : range(prng, 500, 3000) * MS;
    draw_fault_kinds(prng, &plan->faults);
    uint32_t dirs = (uint32_t)range(prng, 1, 3);
    uint32_t struck_percent = percent(prng, 60) ? 100 : 40;
    bool partitions = percent(prng, 20);
    for (uint32_t i = 0; i < plan->hosts; i++) {
        for (uint32_t dir = 0; dir < 2; dir++) {
            if ((dirs >> dir & 1) != 0 && percent(prng, struck_percent)) {
                plan->host[i].faults[dir] = plan->faults;
            }
            if (partitions && percent(prng, 40)) {
                uint64_t from_ns = weft_prng_below(prng, weft_min_u64(plan->heal_ns, 50 * MS));
                plan->host[i].partition[dir].from_ns = from_ns;
                plan->host[i].partition[dir].to_ns = range(prng, from_ns, plan->heal_ns);
            }
        }
    }
}

/* ---- the messages ---------------------------------------------------------------------------- */

struct room {
    uint32_t msgs;
    uint64_t chunks;
    uint64_t bytes;
};

static uint16_t draw_elem_bytes(struct weft_prng *prng, enum weft_msg_sink sink, uint32_t fits)
{
    uint64_t bytes;
    if (sink == WEFT_SINK_ADD) {
        bytes = 4 * PICK(prng, 1, 1, 1, 2, 3, 16);
    } else if (percent(prng, 30)) {
        bytes = range(prng, 1, ELEM_BYTES_MAX);
    } else {
        bytes = PICK(prng, 1, 2, 4, 4, 8, 24, 72, ELEM_BYTES_MAX);
    }
    return (uint16_t)weft_min_u64(bytes, fits);
}

static uint64_t draw_chunks(struct weft_prng *prng, uint64_t most)
{
    uint64_t wish = PICK(prng, 1, 2, 20, 20, 200, 1000, 5000);
    return range(prng, 1, weft_max_u64(1, weft_min_u64(wish, most)));
}

static void draw_size(struct weft_prng *prng, struct weft_plan *plan, struct weft_plan_msg *msg,
                      struct room *room)
{
    uint32_t packet_bytes = plan->host[msg->src].ep.packet_bytes;
    msg->elem_bytes = draw_elem_bytes(prng, msg->sink, packet_bytes - PACKET_OVERHEAD);
    msg->chunk_elems = weft_plan_chunk_elems(packet_bytes, msg->elem_bytes);
    uint64_t most = weft_min_u64(room->chunks, room->bytes / packet_bytes) * 2 / room->msgs;
    uint64_t chunks = draw_chunks(prng, most);
    uint64_t total = (chunks - 1) * msg->chunk_elems + range(prng, 1, msg->chunk_elems);
    msg->total = (uint32_t)total;
    msg->chunks = (uint32_t)chunks;
    room->chunks -= weft_min_u64(room->chunks, chunks);
    room->bytes -= weft_min_u64(room->bytes, total * msg->elem_bytes);
    room->msgs--;
}

static void draw_bound(struct weft_prng *prng, struct weft_plan_msg *msg)
{
    if (percent(prng, 60)) {
        msg->bound_ppm = (uint32_t)range(prng, 0, PICK(prng, 10000, 100000, 350000, 900000));
    }
    if (percent(prng, 40)) {
        uint64_t most = weft_min_u64(CRITICAL_MAX, msg->chunks);
        msg->critical = (uint8_t)(percent(prng, 60) ? 1 : range(prng, 1, most));
    }
    msg->priority = (uint8_t)range(prng, 0, 7);
}

/* Seed-wide options: which of the rarer features its messages use at all. */
struct manners {
    bool shared_add;
    bool shared_event;
    bool late_post;
    bool short_ends;
    bool spread;
    uint32_t accumulator_elem_bytes;
};

static void draw_times(struct weft_prng *prng, const struct manners *manners,
                       struct weft_plan_msg *msg)
{
    if (manners->spread && percent(prng, 70)) {
        msg->send_ns = weft_prng_below(prng, 50 * MS);
    }
    if (manners->late_post && percent(prng, 40)) {
        msg->post_ns = msg->send_ns + weft_prng_below(prng, percent(prng, 80) ? 20 * MS : SEC);
    }
    msg->deadline_ns = WEFT_NEVER;
    msg->timeout_ns = WEFT_NEVER;
    if (manners->short_ends && percent(prng, 30)) {
        msg->deadline_ns = msg->send_ns + (50 * US << range(prng, 0, 11)); /* up to 100 ms */
    }
    if (manners->short_ends && percent(prng, 30)) {
        msg->timeout_ns = 50 * US << range(prng, 0, 11);
    }
}

static void draw_msg(struct weft_prng *prng, struct weft_plan *plan, const struct manners *manners,
                     struct weft_plan_msg *msg, struct room *room)
{
    msg->sink = (enum weft_msg_sink)PICK(prng, WEFT_SINK_COPY, WEFT_SINK_ADD, WEFT_SINK_EVENT);
    msg->shared = (msg->sink == WEFT_SINK_ADD && manners->shared_add) ||
                  (msg->sink == WEFT_SINK_EVENT && manners->shared_event);
    draw_size(prng, plan, msg, room);
    draw_bound(prng, msg);
    draw_times(prng, manners, msg);
    msg->any_peer = msg->shared || percent(prng, 50);
    msg->slack_bytes = percent(prng, 30) ? weft_prng_below(prng, 5000) : 0;
    if (msg->sink == WEFT_SINK_EVENT && percent(prng, 20)) {
        msg->refuse_ppm = (uint32_t)range(prng, 1000, WEFT_PPM);
    }
    if (msg->shared) {
        /* Received by the receive that the host posted at the start. */
        msg->post_ns = 0;
        msg->timeout_ns = WEFT_NEVER;
    }
}

/* Draw the senders and receivers: sets src and dst of up to WEFT_PLAN_MSGS_MAX messages. */
static void add_flow(struct weft_prng *prng, struct weft_plan *plan, uint32_t src, uint32_t dst,
                     uint32_t msgs_max)
{
    uint64_t count = range(prng, 1, msgs_max);
    for (; count > 0 && plan->msgs < WEFT_PLAN_MSGS_MAX && src != dst; count--) {
        plan->msg[plan->msgs].src = src;
        plan->msg[plan->msgs].dst = dst;
        plan->msgs++;
    }
}

static void draw_flows(struct weft_prng *prng, struct weft_plan *plan)
{
    uint32_t per_flow = (uint32_t)PICK(prng, 1, 1, 4, 4, 12, 100);
    uint32_t hosts = plan->hosts;
    uint64_t kind = weft_prng_below(prng, 10);
    if (kind < 4) {
        plan->pattern = "pairs";
        add_flow(prng, plan, 0, 1, per_flow);
        for (uint64_t flows = weft_prng_below(prng, 2 * hosts); flows > 0; flows--) {
            uint32_t src = (uint32_t)weft_prng_below(prng, hosts);
            add_flow(prng, plan, src, (uint32_t)weft_prng_below(prng, hosts), per_flow);
        }
    } else if (kind < 7 || hosts > 12) {
        plan->pattern = "many to one";
        for (uint32_t i = 1; i < hosts; i++) {
            add_flow(prng, plan, i, 0, per_flow);
        }
    } else {
        plan->pattern = "all to all";
        for (uint32_t i = 0; i < hosts * hosts; i++) {
            add_flow(prng, plan, i / hosts, i % hosts, per_flow);
        }
    }
}

static bool receives(const struct weft_plan *plan, uint32_t host)
{
    for (uint32_t i = 0; i < plan->msgs; i++) {
        if (plan->msg[i].dst == host) {
            return true;
        }
    }
    return false;
}

/* Hosts that only send may go IDLE between two batches. The sleep is limited by the peers'
 * timeouts, because in a faulty network the IDLE itself may be lost. */
static void draw_sleepers(struct weft_prng *prng, struct weft_plan *plan)
{
    uint64_t pause_ns = plan->faulty ? range(prng, 5, 1000) * MS : range(prng, 1, 40) * SEC;
    for (uint32_t host = 0; host < plan->hosts; host++) {
        if (receives(plan, host) || percent(prng, 30)) {
            continue;
        }
        plan->host[host].caller_driven = true;
        for (uint32_t i = 0; i < plan->msgs; i++) {
            struct weft_plan_msg *msg = &plan->msg[i];
            if (msg->src == host && percent(prng, 50)) {
                msg->send_ns += pause_ns;
                msg->post_ns += msg->post_ns > 0 ? pause_ns : 0;
                msg->deadline_ns = weft_time_add(msg->deadline_ns, pause_ns);
            }
        }
    }
}

static void draw_messages(struct weft_prng *prng, struct weft_plan *plan)
{
    struct manners manners = {
        .shared_add = percent(prng, 40),
        .shared_event = percent(prng, 40),
        .late_post = percent(prng, 30),
        .short_ends = percent(prng, 20),
        .spread = percent(prng, 50),
    };
    draw_flows(prng, plan);
    struct room room = {plan->msgs, PICK(prng, 200, 1000, 3000, WEFT_PLAN_CHUNKS_MAX),
                        WEFT_PLAN_BYTES_MAX};
    for (uint32_t i = 0; i < plan->msgs; i++) {
        draw_msg(prng, plan, &manners, &plan->msg[i], &room);
    }
    if (percent(prng, 15)) {
        draw_sleepers(prng, plan);
    }
}

/* ---- derived values -------------------------------------------------------------------------- */

static void size_tables(struct weft_plan *plan)
{
    uint32_t chunks_max = 64;
    uint32_t expects[WEFT_PLAN_HOSTS_MAX] = {0};
    for (uint32_t i = 0; i < plan->msgs; i++) {
        chunks_max = (uint32_t)weft_max_u64(chunks_max, plan->msg[i].chunks);
        expects[plan->msg[i].dst]++;
    }
    for (uint32_t i = 0; i < plan->hosts; i++) {
        plan->host[i].ep.chunks_max = chunks_max;
        plan->host[i].ep.expects_max = expects[i] + 1;
    }
}

static uint64_t last_start_ns(const struct weft_plan *plan)
{
    uint64_t last_ns = plan->heal_ns;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        last_ns = weft_max_u64(last_ns, plan->msg[i].send_ns);
        last_ns = weft_max_u64(last_ns, plan->msg[i].post_ns);
    }
    return plan->victim == UINT32_MAX ? last_ns : weft_max_u64(last_ns, plan->kill_ns);
}

static void set_patience(struct weft_prng *prng, struct weft_plan *plan)
{
    bool dies = plan->victim != UINT32_MAX;
    uint64_t patience_ns = plan->heal_ns + range(prng, 5, dies ? 8 : 30) * SEC;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        plan->host[i].ep.peer_timeout_ns = patience_ns;
    }
    plan->limit_ns = dies ? 2 * patience_ns : 0;
}

/* Time that a network without faults needs, in addition to the timeouts already in limit_ns: each
 * byte crosses the slowest link ten times; or the bound on slowness if that is later. The bound
 * also counts round trips: a few thousand chunks in windows of 16 packets, 20 ms each, take longer
 * than any link. Ten more seconds allow for a few more probes at their maximum interval of one
 * second.
 *
 * Call after all draws, because they change the bound. */
static void set_limit(struct weft_plan *plan)
{
    uint64_t bytes = 0;
    uint64_t rate_bps = UINT64_MAX;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        bytes += (uint64_t)plan->msg[i].total * plan->msg[i].elem_bytes;
    }
    for (uint32_t i = 0; i < plan->hosts; i++) {
        rate_bps = weft_min_u64(rate_bps, plan->host[i].links[0].rate_bps);
    }
    uint64_t transfer_ns = bytes * 8 * 1000 / (rate_bps / 1000000);
    uint64_t work_ns =
        weft_max_u64(last_start_ns(plan) + 10 * transfer_ns, weft_finish_alive_ns(plan));
    plan->limit_ns += work_ns + 10 * SEC;
}

void weft_plan_draw_cluster(struct weft_prng *prng, struct weft_plan *plan_p)
{
    draw_links(prng, plan_p);
    draw_hosts(prng, plan_p);
    draw_faults(prng, plan_p);
}

void weft_plan_draw_security(struct weft_plan *plan_p)
{
    struct weft_prng prng;
    weft_prng_split(&prng, plan_p->seed, UINT64_C(0x736563757265));
    uint8_t mode =
        (uint8_t)PICK(&prng, WEFT_MODE_NONE, WEFT_MODE_AUTH, WEFT_MODE_AUTH, WEFT_MODE_SEAL);
    uint64_t rekey_packets = PICK(&prng, 0, 5, 20, 100, 1000);
    uint32_t half_open_max = (uint32_t)PICK(&prng, 0, 1, 4, 32);
    uint32_t hello_rate_max = (uint32_t)PICK(&prng, 1, 16, 256);
    uint8_t psk = (uint8_t)weft_prng_u64(&prng);
    if (mode == WEFT_MODE_NONE) {
        return;
    }
    for (uint32_t i = 0; i < plan_p->hosts; i++) {
        struct weft_ep_config *ep = &plan_p->host[i].ep;
        ep->mode = mode;
        ep->rekey_packets = rekey_packets;
        ep->half_open_max = half_open_max;
        ep->hello_rate_max = hello_rate_max;
        memset(ep->psk, psk, sizeof(ep->psk));
    }
    if (plan_p->hostile.cut_ppm > 0) {
        plan_p->hostile.flip_ppm = plan_p->hostile.cut_ppm;
        plan_p->hostile.forge_ppm = plan_p->hostile.cut_ppm;
        plan_p->hostile.replay_ppm = plan_p->hostile.cut_ppm;
        plan_p->hostile.flood_ppm = (uint32_t)PICK(&prng, 0, 1000, 20000);
    }
    plan_p->reborn = plan_p->victim != UINT32_MAX && percent(&prng, 60);
}

/* No other host opens a connection to it, so its first address may become invalid. */
static bool may_move(const struct weft_plan *plan, uint32_t host)
{
    for (uint32_t i = 0; i < plan->msgs; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        bool back = false;
        for (uint32_t j = 0; j < plan->msgs; j++) {
            back |= plan->msg[j].src == host && plan->msg[j].dst == msg->src;
        }
        if (msg->dst == host && (!back || plan->crossing || msg->src < host)) {
            return false;
        }
    }
    return true;
}

/* Changes of the path. A separate random stream, as for security. */
static void draw_path(struct weft_plan *plan)
{
    struct weft_prng prng;
    weft_prng_split(&prng, plan->seed, UINT64_C(0x70617468));
    plan->mover = UINT32_MAX;
    plan->shrinker = UINT32_MAX;
    bool search = percent(&prng, 20);
    for (uint32_t i = 0; i < plan->hosts; i++) {
        if (search) {
            plan->host[i].ep.packet_bytes_sure = (uint16_t)PICK(&prng, 256, 1200, 1200);
        }
        plan->host[i].links[weft_prng_below(&prng, 2)].bleach = percent(&prng, 3);
    }
    uint32_t host = (uint32_t)weft_prng_below(&prng, plan->hosts);
    uint64_t at_ns = weft_prng_below(&prng, 50 * MS);
    if (plan->victim != UINT32_MAX) {
        return;
    }
    if (percent(&prng, 10)) {
        plan->shrinker = host;
        plan->shrink_ns = at_ns;
        plan->mtu_bytes = (uint32_t)range(&prng, 1200, 1500);
    } else if (percent(&prng, 12) && may_move(plan, host)) {
        plan->mover = host;
        plan->move_ns = at_ns;
        /* A host that moved cannot be found unless it sends: it needs keepalives. */
        plan->host[host].ep.keepalive_ns = 200 * MS;
    }
}

/* Which messages of a pair share a stream, and so the unused loss allowance. A separate random
 * stream, as for security. */
static void draw_streams(struct weft_plan *plan)
{
    struct weft_prng prng;
    weft_prng_split(&prng, plan->seed, UINT64_C(0x73747265616d));
    uint64_t streams = PICK(&prng, 1, 2, 5, WEFT_PLAN_STREAMS_MAX);
    uint64_t names = weft_prng_below(&prng, UINT32_MAX - WEFT_PLAN_STREAMS_MAX);
    for (uint32_t i = 0; i < plan->msgs; i++) {
        plan->msg[i].stream = (uint32_t)(names + weft_prng_below(&prng, streams));
    }
}

/* Which host opens the connection of this message: its sender; if both send, the lower one or
 * both. */
static bool opens(const struct weft_plan *plan, const struct weft_plan_msg *msg)
{
    bool back = false;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        back |= plan->msg[i].src == msg->dst && plan->msg[i].dst == msg->src;
    }
    return !back || plan->crossing || msg->src < msg->dst;
}

/* All hosts probe silent peers, because an end that only waits has no other way to detect a lost
 * connection. The timeout covers the drawn sleeping times of sleepers. */
static void watch(struct weft_prng *prng, struct weft_plan *plan)
{
    uint64_t keepalive_ns = range(prng, 50, 1000) * MS;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        plan->host[i].ep.keepalive_ns = keepalive_ns;
        plan->host[i].ep.sleep_timeout_ns = 60 * SEC;
    }
}

/* A host that sleeps may die asleep, when no peer probes it. Returns true if there was one. */
static bool die_asleep(struct weft_prng *prng, struct weft_plan *plan)
{
    uint64_t last_ns = 0;
    uint32_t sleeper = UINT32_MAX;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        if (plan->host[msg->src].caller_driven && msg->send_ns > last_ns) {
            sleeper = msg->src;
            last_ns = msg->send_ns;
        }
    }
    if (sleeper == UINT32_MAX) {
        return false;
    }
    plan->victim = sleeper;
    plan->kill_ns = range(prng, last_ns / 2, last_ns);
    return true;
}

/* Connections that are closed early, and deaths that must be detected. A separate random stream. */
static void draw_ends(struct weft_plan *plan)
{
    struct weft_prng prng;
    weft_prng_split(&prng, plan->seed, UINT64_C(0x656e6473));
    bool closes = percent(&prng, 15);
    bool watched = percent(&prng, 60);
    uint64_t patience_ns = plan->host[0].ep.peer_timeout_ns;
    bool still = plan->victim == UINT32_MAX && plan->mover == UINT32_MAX;
    bool asleep = percent(&prng, 20) && still && die_asleep(&prng, plan);
    if (plan->victim != UINT32_MAX) {
        plan->watched = asleep || (watched && !plan->reborn);
        if (plan->watched) {
            watch(&prng, plan);
            plan->limit_ns += 60 * SEC + 2 * patience_ns;
        }
        return;
    }
    if (!closes || plan->mover != UINT32_MAX || plan->msgs == 0) {
        return;
    }
    watch(&prng, plan);
    plan->closes = (uint32_t)range(&prng, 1, WEFT_PLAN_CLOSES_MAX);
    plan->limit_ns += 2 * patience_ns;
    uint64_t spread_ns = PICK(&prng, 1, 10, 50) * MS;
    for (uint32_t i = 0; i < plan->closes; i++) {
        const struct weft_plan_msg *msg = &plan->msg[weft_prng_below(&prng, plan->msgs)];
        bool forth = opens(plan, msg);
        uint64_t who = range(&prng, 1, 3);
        plan->close[i] = (struct weft_plan_close){
            .opener = forth ? msg->src : msg->dst,
            .acceptor = forth ? msg->dst : msg->src,
            .by_opener = (who & 1) != 0,
            .by_acceptor = (who & 2) != 0,
            .at_ns = msg->send_ns + weft_prng_below(&prng, spread_ns),
        };
    }
    for (uint32_t i = 0; i < plan->hosts; i++) {
        plan->host[i].ep.peers_max += 2 * plan->closes; /* ends of old connections persist for a
                                                         * while */
    }
}

void weft_plan_build(const struct weft_plan *plan, struct weft_net *net)
{
    for (uint32_t i = 0; i < plan->hosts; i++) {
        const struct weft_plan_host *host = &plan->host[i];
        for (uint32_t d = 0; d < 2; d++) {
            enum weft_net_dir dir = (enum weft_net_dir)d;
            weft_net_link_set(net, i, dir, &host->links[d]);
            weft_net_faults_set(net, i, dir, &host->faults[d]);
            if (host->partition[d].to_ns > 0) {
                weft_net_partition_add(net, i, dir, host->partition[d].from_ns,
                                       host->partition[d].to_ns);
            }
        }
    }
}

void weft_plan_draw(uint64_t seed, struct weft_plan *plan_p)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, UINT64_C(0x706c616e));
    memset(plan_p, 0, sizeof(*plan_p));
    plan_p->seed = seed;
    plan_p->victim = UINT32_MAX;
    uint64_t size = weft_prng_below(&prng, 100);
    plan_p->hosts = (uint32_t)(size < 60   ? range(&prng, 2, 4)
                               : size < 87 ? range(&prng, 5, 9)
                               : size < 97 ? range(&prng, 10, 24)
                                           : range(&prng, 25, WEFT_PLAN_HOSTS_MAX));
    plan_p->crossing = percent(&prng, 30);
    weft_plan_draw_cluster(&prng, plan_p);
    draw_messages(&prng, plan_p);
    if (percent(&prng, 10)) {
        plan_p->victim = (uint32_t)weft_prng_below(&prng, plan_p->hosts);
        plan_p->kill_ns = weft_prng_below(&prng, 50 * MS);
    }
    size_tables(plan_p);
    set_patience(&prng, plan_p);
    weft_plan_draw_security(plan_p);
    draw_path(plan_p);
    draw_streams(plan_p);
    draw_ends(plan_p);
    set_limit(plan_p);
}

void weft_plan_describe(const struct weft_plan *plan, char *text, size_t bytes)
{
    static const char *const modes[] = {"none", "auth", "seal"};
    const struct weft_plan_host *host = &plan->host[0];
    const struct weft_net_faults *f = &plan->faults;
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        chunks += plan->msg[i].chunks;
    }
    snprintf(
        text, bytes,
        "%" PRIu32 " hosts, %s, %" PRIu32 " messages, %" PRIu64 " chunks, packets of %u bytes%s\n"
        "host 0: %" PRIu64 " Mbit/s, %" PRIu64 " us, buffer %" PRIu64
        " KB, ECN %s, progress after %" PRIu64 " us\n"
        "loss %u, burst %u/%u/%u, corrupt %u, duplicate %u, reorder %u (ppm) up to %" PRIu64 " us\n"
        "heals at %" PRIu64 " ms, hostile %u ppm, dies: %s%" PRIu32 " at %" PRIu64
        " us%s, patience %" PRIu64 " ms, limit %" PRIu64 " ms\n"
        "moves: %d at %" PRIu64 " us, path shrinks: %d to %" PRIu32 " at %" PRIu64
        " us, sure of %u bytes\n"
        "mode %s, rekey after %" PRIu64 ", half open %u, hellos %u/s, flood %u ppm, closes %u%s\n",
        plan->hosts, plan->pattern, plan->msgs, chunks, host->ep.packet_bytes,
        plan->crossing ? ", crossing" : "", host->links[1].rate_bps / 1000000,
        host->links[1].delay_ns / US, host->links[1].buffer_bytes / 1000,
        host->ep.ecn ? "on" : "off", host->progress_delay_ns / US, f->loss_ppm, f->burst_enter_ppm,
        f->burst_leave_ppm, f->burst_loss_ppm, f->corrupt_ppm, f->duplicate_ppm, f->reorder_ppm,
        f->reorder_ns_max / US, plan->heal_ns / MS, plan->hostile.cut_ppm,
        plan->victim == UINT32_MAX ? "nobody, " : "host ",
        plan->victim == UINT32_MAX ? 0 : plan->victim, plan->kill_ns / US,
        plan->reborn ? " and comes back" : "", host->ep.peer_timeout_ns / MS, plan->limit_ns / MS,
        plan->mover == UINT32_MAX ? -1 : (int)plan->mover, plan->move_ns / US,
        plan->shrinker == UINT32_MAX ? -1 : (int)plan->shrinker, plan->mtu_bytes,
        plan->shrink_ns / US, host->ep.packet_bytes_sure, modes[host->ep.mode],
        host->ep.rekey_packets, host->ep.half_open_max, host->ep.hello_rate_max,
        plan->hostile.flood_ppm, plan->closes, plan->watched ? ", watched" : "");
}
