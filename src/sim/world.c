#include "sim/world.h"

#include "base/assert.h"
#include "base/prng.h"
#include "sim/attack.h"
#include "sim/hash.h"
#include "sim/heap.h"
#include "sim/toy_crypto.h"
#include "wire/packet.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of the bursts in one round of progress and of the rounds of progress at one nanosecond,
 * above which the endpoint is considered to be in an endless loop. Both are far above those of a
 * correct endpoint. */
enum { BURSTS_MAX = 100000, SPINS_MAX = 64 };

enum trace { TRACE_SEND = 1, TRACE_RECV, TRACE_EVENT, TRACE_DEADLINE, TRACE_KILL, TRACE_MOVE };

/* Second addresses: larger than any number that an attacker generates. */
#define MOVED_ADDR UINT32_C(0x40000000)

struct host {
    struct weft_ep *ep;
    struct weft_toy_crypto *toy; /* NULL in mode none */
    struct weft_msgr msgr;
    struct weft_world_app app;
    struct weft_sim_heap wakes; /* scheduled by the application */
    struct weft_net_packet *socket_first;
    struct weft_net_packet **socket_last; /* link of the next packet */
    uint32_t socket_count;
    uint32_t socket_packets;
    uint64_t progress_delay_ns;
    uint64_t progress_at_ns;  /* time of the round of progress for the queued datagrams */
    uint64_t asleep_until_ns; /* no progress before this time */
    uint64_t
        spun_at_ns; /* `spins` counts the rounds of progress at this time that changed nothing */
    uint32_t spins;
    uint32_t packet_bytes_max;
    uint32_t life; /* of its process: number of earlier processes */
    bool alive;
    bool moved; /* its address is MOVED_ADDR + host */
    struct weft_world_other other; /* of a host without an endpoint; else zeroed */
    uint32_t beside; /* host of other programs over the same links; the host itself if none */
    struct weft_world_host_counters counters;
};

struct weft_world {
    struct weft_world_config config;
    struct weft_net *net;
    struct host *hosts;
    struct weft_attacker attacker;
    uint64_t hash;
    uint64_t steps;
    char wrong[256];
    struct weft_tx tx;
};

struct weft_world *weft_world_new(const struct weft_world_config *config)
{
    struct weft_world *world = calloc(1, sizeof(*world));
    WEFT_ASSERT(world != NULL);
    world->config = *config;
    world->hash = WEFT_SIM_HASH_INIT;
    world->net = weft_net_new(config->hosts, config->seed);
    world->hosts = calloc(config->hosts, sizeof(*world->hosts));
    WEFT_ASSERT(world->hosts != NULL);
    weft_attacker_init(&world->attacker, &config->hostile, config->hosts, config->seed);
    for (uint32_t i = 0; i < config->hosts; i++) {
        world->hosts[i].socket_last = &world->hosts[i].socket_first;
        world->hosts[i].beside = i;
    }
    return world;
}

static void socket_clear(struct host *host)
{
    while (host->socket_first != NULL) {
        struct weft_net_packet *packet = host->socket_first;
        host->socket_first = packet->next;
        weft_net_packet_free(packet);
    }
    host->socket_last = &host->socket_first;
    host->socket_count = 0;
}

static void tap_host(struct weft_world *world, uint32_t host_idx, bool last)
{
    if (world->config.tap.host != NULL && world->hosts[host_idx].ep != NULL) {
        world->config.tap.host(world->config.tap.arg, host_idx, world->hosts[host_idx].ep, last);
    }
}

void weft_world_free(struct weft_world *world)
{
    if (world == NULL) {
        return;
    }
    for (uint32_t i = 0; i < world->config.hosts; i++) {
        socket_clear(&world->hosts[i]);
        weft_sim_heap_fini(&world->hosts[i].wakes);
        tap_host(world, i, true);
        weft_ep_free(world->hosts[i].ep);
        weft_toy_crypto_free(world->hosts[i].toy);
    }
    weft_attacker_fini(&world->attacker);
    free(world->hosts);
    weft_net_free(world->net);
    free(world);
}

static weft_status host_open(const struct weft_world *world, struct host *host,
                             const struct weft_world_host_config *config)
{
    struct weft_ep_config ep = config->ep;
    if (ep.mode != WEFT_MODE_NONE) {
        host->toy = weft_toy_crypto_new(ep.seed, weft_ep_crypto_slots(ep.peers_max));
        ep.crypto = weft_toy_crypto_ops(host->toy);
    }
    ep.trace_records = world->config.tap.trace_records;
    weft_status status = weft_ep_new(&ep, &host->ep);
    if (status != WEFT_OK) {
        return status;
    }
    host->msgr = weft_ep_msgr(host->ep);
    host->app = config->app;
    host->progress_delay_ns = config->progress_delay_ns;
    host->socket_packets = config->socket_packets;
    host->packet_bytes_max = config->ep.packet_bytes;
    host->alive = true;
    return WEFT_OK;
}

weft_status weft_world_host_init(struct weft_world *world, uint32_t host_idx,
                                 const struct weft_world_host_config *config)
{
    WEFT_ASSERT(host_idx < world->config.hosts);
    struct host *host = &world->hosts[host_idx];
    WEFT_ASSERT(host->ep == NULL);
    return host_open(world, host, config);
}

void weft_world_other_init(struct weft_world *world, uint32_t host_idx, uint32_t beside,
                           const struct weft_world_other *other)
{
    WEFT_ASSERT(host_idx < world->config.hosts && beside < world->config.hosts);
    WEFT_ASSERT(world->hosts[host_idx].ep == NULL && world->hosts[beside].beside == beside);
    weft_net_share(world->net, host_idx, beside);
    world->hosts[host_idx].other = *other;
    world->hosts[beside].beside = host_idx;
}

struct weft_net *weft_world_net(struct weft_world *world)
{
    return world->net;
}

struct weft_ep *weft_world_ep(struct weft_world *world, uint32_t host)
{
    return world->hosts[host].ep;
}

uint64_t weft_world_now_ns(const struct weft_world *world)
{
    return weft_net_now_ns(world->net);
}

struct weft_addr weft_world_addr(uint32_t host)
{
    struct weft_addr addr = {.bytes_used = 4};
    for (uint32_t i = 0; i < 4; i++) {
        addr.bytes[i] = (uint8_t)(host >> (24 - 8 * i));
    }
    return addr;
}

uint32_t weft_world_addr_host(const struct weft_addr *addr)
{
    if (addr->bytes_used != 4) {
        return UINT32_MAX;
    }
    return (uint32_t)addr->bytes[0] << 24 | (uint32_t)addr->bytes[1] << 16 |
           (uint32_t)addr->bytes[2] << 8 | addr->bytes[3];
}

void weft_world_fail(struct weft_world *world, const char *format, ...)
{
    if (world->wrong[0] != '\0') {
        return;
    }
    int used = snprintf(world->wrong, sizeof(world->wrong),
                        "at %" PRIu64 " ns: ", weft_net_now_ns(world->net));
    va_list args;
    va_start(args, format);
    vsnprintf(world->wrong + used, sizeof(world->wrong) - (size_t)used, format, args);
    va_end(args);
}

const char *weft_world_wrong(const struct weft_world *world)
{
    return world->wrong;
}

static void trace(struct weft_world *world, enum trace kind, uint32_t host, uint64_t value)
{
    uint64_t hash = weft_sim_hash_u64(world->hash, weft_net_now_ns(world->net));
    hash = weft_sim_hash_u64(hash, (uint64_t)kind << 32 | host);
    world->hash = weft_sim_hash_u64(hash, value);
}

static void trace_packet(struct weft_world *world, enum trace kind, uint32_t host,
                         const struct weft_net_packet *packet)
{
    if (world->config.lean) {
        return;
    }
    trace(world, kind, host,
          (uint64_t)packet->from << 32 | (uint64_t)packet->to << 8 | (uint64_t)packet->ecn);
    world->hash = weft_sim_hash_bytes(world->hash, packet->bytes, packet->count);
}

/* ---- scheduling of hosts --------------------------------------------------------------------- */

static uint64_t due_ns(const struct host *host)
{
    uint64_t at_ns = weft_min_u64(weft_ep_deadline(host->ep), weft_sim_heap_next_ns(&host->wakes));
    if (host->socket_count > 0) {
        at_ns = weft_min_u64(at_ns, host->progress_at_ns);
    }
    return weft_max_u64(at_ns, host->asleep_until_ns);
}

static void arm(struct weft_world *world, uint32_t host_idx)
{
    weft_net_wake(world->net, host_idx, due_ns(&world->hosts[host_idx]));
}

void weft_world_wake(struct weft_world *world, uint32_t host_idx, uint64_t at_ns)
{
    weft_sim_heap_push(&world->hosts[host_idx].wakes, at_ns, 0, 0, NULL);
    arm(world, host_idx);
}

void weft_world_sleep(struct weft_world *world, uint32_t host_idx, uint64_t until_ns)
{
    world->hosts[host_idx].asleep_until_ns = until_ns;
}

void weft_world_move(struct weft_world *world, uint32_t host_idx)
{
    trace(world, TRACE_MOVE, host_idx, 0);
    world->hosts[host_idx].moved = true;
}

void weft_world_kill(struct weft_world *world, uint32_t host_idx)
{
    trace(world, TRACE_KILL, host_idx, 0);
    world->hosts[host_idx].alive = false;
    socket_clear(&world->hosts[host_idx]);
}

weft_status weft_world_restart(struct weft_world *world, uint32_t host_idx,
                               const struct weft_world_host_config *config)
{
    struct host *host = &world->hosts[host_idx];
    trace(world, TRACE_KILL, host_idx, 1);
    socket_clear(host);
    tap_host(world, host_idx, true);
    weft_ep_free(host->ep);
    weft_toy_crypto_free(host->toy);
    host->ep = NULL;
    host->toy = NULL;
    host->asleep_until_ns = 0;
    host->life++;
    return host_open(world, host, config);
}

bool weft_world_alive(const struct weft_world *world, uint32_t host_idx)
{
    return world->hosts[host_idx].alive;
}

static bool is_orphan(const void *arg, const struct weft_net_packet *packet)
{
    const struct weft_world *world = arg;
    if (packet->hostile || packet->flood) { /* their sender may be forged */
        return false;
    }
    const struct host *from = &world->hosts[packet->from];
    return !from->alive || packet->life != from->life;
}

bool weft_world_orphans(const struct weft_world *world)
{
    bool orphans = weft_net_any(world->net, is_orphan, world);
    for (uint32_t i = 0; i < world->config.hosts; i++) {
        const struct weft_net_packet *packet = world->hosts[i].socket_first;
        for (; packet != NULL; packet = packet->next) {
            orphans |= is_orphan(world, packet);
        }
    }
    return orphans;
}

/* ---- progress -------------------------------------------------------------------------------- */

static void trace_event(struct weft_world *world, uint32_t host_idx,
                        const struct weft_msg_event *event)
{
    trace(world, TRACE_EVENT, host_idx, (uint64_t)event->type << 32 | event->peer);
    uint64_t hash = weft_sim_hash_u64(world->hash, event->seq);
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        hash = weft_sim_hash_u64(hash, event->name);
        hash = weft_sim_hash_u64(hash, event->incarnation);
        break;
    case WEFT_EVENT_PEER_DOWN:
        hash = weft_sim_hash_u64(hash, event->down);
        break;
    case WEFT_EVENT_OPEN:
        hash = weft_sim_hash_u64(hash, event->tag);
        break;
    case WEFT_EVENT_CHUNK:
        hash = weft_sim_hash_u64(hash, event->chunk);
        break;
    case WEFT_EVENT_RECEIVED:
    case WEFT_EVENT_SENT:
        hash = weft_sim_hash_u64(hash, event->tag);
        hash = weft_sim_hash_u64(hash, (uint64_t)event->received << 8 | event->outcome);
        break;
    }
    world->hash = hash;
}

static uint64_t poll_events(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    struct weft_msg_event event;
    uint64_t events = 0;
    while (world->wrong[0] == '\0' && host->msgr.ops->poll(host->msgr.self, &event)) {
        events++;
        trace_event(world, host_idx, &event);
        host->app.event(host->app.self, host_idx, &event, weft_net_now_ns(world->net));
    }
    host->counters.events += events;
    return events;
}

static void take_packet(struct weft_world *world, uint32_t host_idx, struct weft_net_packet *packet)
{
    struct host *host = &world->hosts[host_idx];
    struct weft_ep_counters before;
    if (!world->config.lean) {
        before = *weft_ep_counters(host->ep);
    }
    struct weft_addr from = weft_world_addr(packet->from_addr);
    host->counters.packets_received++;
    host->counters.bytes_received += packet->count;
    host->counters.hostile_received += packet->hostile;
    trace_packet(world, TRACE_RECV, host_idx, packet);
    weft_attacker_look(&world->attacker, packet);
    weft_ep_prefetch(host->ep, packet->bytes, packet->count);
    weft_ep_prefetch_chunk(host->ep, packet->bytes, packet->count);
    weft_ep_recv(host->ep, &from, packet->ecn, packet->bytes, packet->count, packet->at_ns,
                 weft_net_now_ns(world->net));
    const char *wrong =
        world->config.lean ? NULL : weft_attack_judge(packet, &before, weft_ep_counters(host->ep));
    if (wrong != NULL) {
        weft_world_fail(world,
                        "host %" PRIu32 ", datagram of %" PRIu32 " bytes from %" PRIu32 ": %s",
                        host_idx, packet->count, packet->from, wrong);
    }
    uint64_t events = poll_events(world, host_idx);
    if (!world->config.lean &&
        weft_attack_drops(weft_ep_counters(host->ep)) == weft_attack_drops(&before)) {
        weft_attacker_record(&world->attacker); /* accepted */
    }
    if ((packet->hostile || packet->flood) && events > 0) {
        weft_world_fail(world, "host %" PRIu32 ": an attacker's datagram caused an event",
                        host_idx);
    }
}

static void take_socket(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    while (host->socket_first != NULL && world->wrong[0] == '\0') {
        struct weft_net_packet *packet = host->socket_first;
        host->socket_first = packet->next;
        if (host->socket_first == NULL) {
            host->socket_last = &host->socket_first;
        }
        host->socket_count--;
        take_packet(world, host_idx, packet);
        weft_net_packet_free(packet);
    }
}

static void take_wakes(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    uint64_t now_ns = weft_net_now_ns(world->net);
    struct weft_sim_event event;
    while (weft_sim_heap_next_ns(&host->wakes) <= now_ns) {
        (void)weft_sim_heap_pop(&host->wakes, &event);
        host->app.wake(host->app.self, host_idx, now_ns);
    }
}

/* Returns NULL if the burst satisfies the contract of struct weft_tx. */
static const char *tx_check(const struct weft_tx *tx, uint32_t packets, uint32_t packet_bytes_max)
{
    uint64_t bytes = 0;
    if (packets != tx->packets || packets > WEFT_TX_PACKETS_MAX) {
        return "weft_ep_send built an impossible number of packets";
    }
    if (tx->iov_count > WEFT_ARRAY_COUNT(tx->iov)) {
        return "weft_ep_send used too many buffers";
    }
    for (uint32_t i = 0; i < tx->iov_count; i++) {
        bytes += tx->iov[i].bytes;
    }
    if (bytes != tx->bytes || bytes > WEFT_TX_BYTES_MAX) {
        return "weft_ep_send's buffers and bytes disagree";
    }
    if (bytes > (uint64_t)packets * tx->seg_bytes ||
        bytes <= (uint64_t)(packets - 1) * tx->seg_bytes) {
        return "weft_ep_send's segments do not cover its bytes";
    }
    if (tx->fragment && packets > 1) {
        return "weft_ep_send built a GSO burst that may be fragmented";
    }
    return tx->seg_bytes > packet_bytes_max ? "weft_ep_send built too long a packet" : NULL;
}

/* The host that has this address now; UINT32_MAX if none. */
static uint32_t host_at(const struct weft_world *world, const struct weft_addr *addr)
{
    uint32_t number = weft_world_addr_host(addr);
    bool second = number >= MOVED_ADDR && number - MOVED_ADDR < world->config.hosts;
    uint32_t host = second ? number - MOVED_ADDR : number;
    return host < world->config.hosts && world->hosts[host].moved == second ? host : UINT32_MAX;
}

/* Split a burst into datagrams, as GSO does, and send them. */
static void send_burst(struct weft_world *world, uint32_t host_idx, const struct weft_tx *tx)
{
    uint32_t to = host_at(world, &tx->addr);
    uint32_t iov = 0;
    size_t iov_at = 0;
    for (uint32_t left = tx->bytes; left > 0;) {
        uint32_t count = left < tx->seg_bytes ? left : tx->seg_bytes;
        struct weft_net_packet *packet = weft_net_packet_new(host_idx, to, tx->ecn, count);
        packet->from_addr += world->hosts[host_idx].moved ? MOVED_ADDR : 0;
        packet->fragment = tx->fragment;
        packet->life = world->hosts[host_idx].life;
        for (uint32_t have = 0; have < count;) {
            size_t take = weft_min_u64(count - have, tx->iov[iov].bytes - iov_at);
            memcpy(packet->bytes + have, (const uint8_t *)tx->iov[iov].base + iov_at, take);
            have += (uint32_t)take;
            iov_at += take;
            if (iov_at == tx->iov[iov].bytes) {
                iov++;
                iov_at = 0;
            }
        }
        left -= count;
        world->hosts[host_idx].counters.packets_sent++;
        world->hosts[host_idx].counters.bytes_sent += count;
        trace_packet(world, TRACE_SEND, host_idx, packet);
        if (world->config.tap.packet != NULL) {
            world->config.tap.packet(world->config.tap.arg, weft_net_now_ns(world->net), host_idx,
                                     to, packet->ecn, packet->bytes, packet->count);
        }
        if (to >= world->config.hosts) { /* a forged or outdated address */
            weft_net_packet_free(packet);
            continue;
        }
        weft_attack(&world->attacker, world->net, packet);
        weft_net_send(world->net, packet);
    }
}

static void queue_report(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    const struct weft_net_link_counters *up =
        weft_net_link_counters(world->net, host_idx, WEFT_NET_UP);
    uint64_t bytes = up->queued_bytes;
    if (host->beside != host_idx) {
        bytes -= weft_net_queued_bytes(world->net, host->beside);
        weft_ep_link_sent(host->ep, weft_ep_link_asked(host->ep, bytes) ? up->left_bytes : 0);
    }
    weft_ep_queued(host->ep, bytes, weft_net_now_ns(world->net));
}

static void send_all(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    for (uint32_t bursts = 0; bursts < BURSTS_MAX; bursts++) {
        uint32_t packets = weft_ep_send(host->ep, weft_net_now_ns(world->net), &world->tx);
        if (packets == 0 && weft_ep_queue_asked(host->ep)) {
            queue_report(world, host_idx);
            continue;
        }
        if (packets == 0) {
            return;
        }
        const char *wrong = tx_check(&world->tx, packets, host->packet_bytes_max);
        if (wrong != NULL) {
            weft_world_fail(world, "host %" PRIu32 ": %s", host_idx, wrong);
            return;
        }
        send_burst(world, host_idx, &world->tx);
    }
    weft_world_fail(world, "host %" PRIu32 ": weft_ep_send never returns 0", host_idx);
}

/* A deadline that stays in the past would make a real driver spin. */
static void check_spin(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    uint64_t now_ns = weft_net_now_ns(world->net);
    if (weft_ep_deadline(host->ep) > now_ns) {
        host->spins = 0;
        return;
    }
    host->spins = host->spun_at_ns == now_ns ? host->spins + 1 : 0;
    host->spun_at_ns = now_ns;
    if (host->spins > SPINS_MAX) {
        weft_world_fail(world, "host %" PRIu32 ": its deadline stays in the past", host_idx);
    }
}

static void progress(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    uint64_t now_ns = weft_net_now_ns(world->net);
    take_socket(world, host_idx);
    take_wakes(world, host_idx);
    (void)poll_events(world, host_idx);
    if (world->wrong[0] == '\0' && weft_ep_deadline(host->ep) <= now_ns) {
        trace(world, TRACE_DEADLINE, host_idx, 0);
        weft_ep_on_deadline(host->ep, now_ns);
        (void)poll_events(world, host_idx);
    }
    if (world->wrong[0] == '\0') {
        if (host->app.batch != NULL) {
            host->app.batch(host->app.self, host_idx, now_ns);
        }
        send_all(world, host_idx);
        (void)poll_events(world, host_idx);
        check_spin(world, host_idx);
    }
    tap_host(world, host_idx, false);
}

static void consider(struct weft_world *world, uint32_t host_idx)
{
    struct host *host = &world->hosts[host_idx];
    if (host->other.wake != NULL) {
        host->other.wake(host->other.self, weft_net_now_ns(world->net));
    }
    if (!host->alive) {
        return;
    }
    if (due_ns(host) <= weft_net_now_ns(world->net)) {
        progress(world, host_idx);
    }
    arm(world, host_idx);
}

static void arrived(struct weft_world *world, struct weft_net_packet *packet)
{
    struct host *host = &world->hosts[packet->to];
    if (host->other.packet != NULL) {
        host->other.packet(host->other.self, packet, weft_net_now_ns(world->net));
    }
    if (!host->alive) {
        weft_net_packet_free(packet);
        return;
    }
    if (host->socket_count >= host->socket_packets) {
        host->counters.socket_dropped++;
        weft_net_packet_free(packet);
        return;
    }
    if (host->socket_count == 0) {
        host->progress_at_ns = packet->at_ns + host->progress_delay_ns;
    }
    packet->next = NULL;
    *host->socket_last = packet;
    host->socket_last = &packet->next;
    host->socket_count++;
    consider(world, packet->to);
}

static void happen(struct weft_world *world)
{
    struct weft_net_event event;
    if (!weft_net_step(world->net, &event)) {
        return;
    }
    world->steps++;
    if (event.type == WEFT_NET_PACKET) {
        arrived(world, event.packet);
    } else if (event.type == WEFT_NET_WAKE) {
        consider(world, event.host);
    }
    bool all = world->steps % 4096 == 0;
    const char *wrong = all || !world->config.lean ? weft_net_check(world->net, all) : NULL;
    if (wrong != NULL) {
        weft_world_fail(world, "%s", wrong);
    }
}

enum weft_world_end weft_world_run(struct weft_world *world, uint64_t until_ns)
{
    while (world->wrong[0] == '\0') {
        uint64_t next_ns = weft_net_next_ns(world->net);
        if (next_ns == WEFT_NEVER) {
            return WEFT_WORLD_IDLE;
        }
        if (next_ns > until_ns) {
            return WEFT_WORLD_TIME;
        }
        if (world->steps >= world->config.steps_max) {
            return WEFT_WORLD_STEPS;
        }
        happen(world);
    }
    return WEFT_WORLD_BROKEN;
}

uint64_t weft_world_hash(const struct weft_world *world)
{
    return world->hash;
}

uint64_t weft_world_steps(const struct weft_world *world)
{
    return world->steps;
}

const struct weft_world_host_counters *weft_world_counters(const struct weft_world *world,
                                                           uint32_t host)
{
    return &world->hosts[host].counters;
}
