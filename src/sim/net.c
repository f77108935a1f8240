#include "sim/net.h"

#include "base/assert.h"
#include "base/prng.h"
#include "sim/alarm.h"
#include "sim/heap.h"

#include <stdlib.h>
#include <string.h>

/* Alarms: two per link, that of link i being i x 2 + kind; then the hosts' wakes. */
enum kind { KIND_LEAVE, KIND_ARRIVE };

/* Packets in order of time. Only the first one has an alarm, so a full buffer costs no more than a
 * single packet. */
struct queue {
    struct weft_net_packet *first;
    struct weft_net_packet **last; /* link of the next packet */
};

struct window {
    uint64_t from_ns;
    uint64_t to_ns;
};

struct link {
    struct weft_net_link_config config;
    struct weft_net_faults faults;
    struct window partitions[WEFT_NET_PARTITIONS_MAX];
    uint32_t partition_count;
    bool bursting;       /* Gilbert-Elliott state */
    uint64_t free_at_ns; /* time at which this link has sent all queued packets */
    struct weft_prng prng;
    struct queue sending;
    struct queue flying;
    uint64_t strays; /* packets in flight with an extra delay: each is an event in the heap */
    struct weft_net_link_counters counters;
};

struct weft_net {
    struct weft_sim_alarms alarms;
    struct weft_sim_heap heap; /* events of delayed packets */
    struct link *links;        /* link of (host, dir) is port[host] x 2 + dir */
    uint64_t *queued_bytes;    /* of each host's own packets, in the buffer of its uplink */
    uint32_t *port;            /* the host itself, unless it shares another host's links */
    uint32_t hosts;
    uint32_t overhead_bytes;
    uint64_t local_ns; /* 0 = no bypass */
    uint32_t touched; /* link of the last event, for the check */
    uint64_t now_ns;
};

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

/* Returns true if the packet is the first, so that the alarm must be set. */
static bool queue_put(struct queue *queue, struct weft_net_packet *packet, uint64_t due_ns)
{
    bool first = queue->first == NULL;
    packet->next = NULL;
    packet->due_ns = due_ns;
    *queue->last = packet;
    queue->last = &packet->next;
    return first;
}

static struct weft_net_packet *queue_take(struct queue *queue)
{
    struct weft_net_packet *packet = queue->first;
    queue->first = packet->next;
    if (queue->first == NULL) {
        queue->last = &queue->first;
    }
    return packet;
}

static void queue_free(struct queue *queue)
{
    while (queue->first != NULL) {
        weft_net_packet_free(queue_take(queue));
    }
}

static struct link *link_of(const struct weft_net *net, uint32_t host, enum weft_net_dir dir)
{
    WEFT_ASSERT(host < net->hosts);
    return &net->links[net->port[host] * 2 + dir];
}

struct weft_net *weft_net_new(uint32_t hosts, uint64_t seed)
{
    WEFT_ASSERT(hosts >= 1 && hosts <= WEFT_NET_HOSTS_MAX);
    struct weft_net *net = calloc(1, sizeof(*net));
    WEFT_ASSERT(net != NULL);
    net->links = calloc(hosts * 2, sizeof(*net->links));
    net->port = calloc(hosts, sizeof(*net->port));
    net->queued_bytes = calloc(hosts, sizeof(*net->queued_bytes));
    WEFT_ASSERT(net->links != NULL && net->port != NULL && net->queued_bytes != NULL);
    net->hosts = hosts;
    net->overhead_bytes = WEFT_NET_OVERHEAD_BYTES;
    weft_sim_alarms_init(&net->alarms, hosts * 5);
    for (uint32_t i = 0; i < hosts; i++) {
        net->port[i] = i;
    }
    for (uint32_t i = 0; i < hosts * 2; i++) {
        weft_prng_split(&net->links[i].prng, seed, i);
        queue_init(&net->links[i].sending);
        queue_init(&net->links[i].flying);
    }
    return net;
}

void weft_net_free(struct weft_net *net)
{
    if (net == NULL) {
        return;
    }
    struct weft_sim_event event;
    while (weft_sim_heap_pop(&net->heap, &event)) {
        weft_net_packet_free(event.object);
    }
    for (uint32_t i = 0; i < net->hosts * 2; i++) {
        queue_free(&net->links[i].sending);
        queue_free(&net->links[i].flying);
    }
    weft_sim_heap_fini(&net->heap);
    weft_sim_alarms_fini(&net->alarms);
    free(net->port);
    free(net->queued_bytes);
    free(net->links);
    free(net);
}

void weft_net_link_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                       const struct weft_net_link_config *config)
{
    WEFT_ASSERT(config->rate_bps >= 1);
    link_of(net, host, dir)->config = *config;
}

void weft_net_faults_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                         const struct weft_net_faults *faults)
{
    link_of(net, host, dir)->faults = *faults;
}

void weft_net_share(struct weft_net *net, uint32_t host, uint32_t other)
{
    WEFT_ASSERT(host < net->hosts && other < net->hosts && net->port[other] == other);
    net->port[host] = other;
}

void weft_net_local_set(struct weft_net *net, uint64_t delay_ns)
{
    net->local_ns = delay_ns;
}

void weft_net_overhead_set(struct weft_net *net, uint32_t overhead_bytes)
{
    net->overhead_bytes = overhead_bytes;
}

void weft_net_partition_add(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                            uint64_t from_ns, uint64_t to_ns)
{
    struct link *link = link_of(net, host, dir);
    WEFT_ASSERT(link->partition_count < WEFT_NET_PARTITIONS_MAX);
    link->partitions[link->partition_count++] = (struct window){from_ns, to_ns};
}

void weft_net_heal(struct weft_net *net)
{
    for (uint32_t i = 0; i < net->hosts * 2; i++) {
        net->links[i].faults = (struct weft_net_faults){0};
        net->links[i].partition_count = 0;
        net->links[i].bursting = false;
    }
}

struct weft_net_packet *weft_net_packet_new(uint32_t from, uint32_t to, enum weft_ecn ecn,
                                            uint32_t count)
{
    struct weft_net_packet *packet = malloc(sizeof(*packet) + count);
    WEFT_ASSERT(packet != NULL);
    *packet = (struct weft_net_packet){
        .from = from, .to = to, .from_addr = from, .ecn = ecn, .count = count};
    return packet;
}

void weft_net_packet_free(struct weft_net_packet *packet)
{
    free(packet);
}

static struct weft_net_packet *packet_copy(const struct weft_net_packet *packet)
{
    struct weft_net_packet *copy =
        weft_net_packet_new(packet->from, packet->to, packet->ecn, packet->count);
    copy->from_addr = packet->from_addr;
    copy->fragment = packet->fragment;
    copy->hostile = packet->hostile;
    copy->flood = packet->flood;
    copy->life = packet->life;
    memcpy(copy->bytes, packet->bytes, packet->count);
    return copy;
}

/* Set the alarm to the time of the link's next packet, if there is one. */
static void link_arm(struct weft_net *net, uint32_t idx, enum kind kind)
{
    const struct link *link = &net->links[idx];
    const struct queue *queue = kind == KIND_LEAVE ? &link->sending : &link->flying;
    weft_sim_alarm_set(&net->alarms, idx * 2 + kind,
                       queue->first == NULL ? WEFT_NEVER : queue->first->due_ns);
}

/* A packet arrives at the sending side of a link. */
static void link_enter(struct weft_net *net, uint32_t idx, struct weft_net_packet *packet)
{
    struct link *link = &net->links[idx];
    struct weft_net_link_counters *counters = &link->counters;
    uint64_t bytes = packet->count + net->overhead_bytes;
    WEFT_ASSERT(link->config.rate_bps > 0);
    net->touched = idx;
    counters->in++;
    if (link->config.mtu_bytes > 0 && packet->count > link->config.mtu_bytes) {
        if (!packet->fragment) {
            counters->dropped_mtu++;
            weft_net_packet_free(packet);
            return;
        }
        counters->fragmented++;
    }
    if (link->config.bleach && packet->ecn != WEFT_ECN_NOT) {
        counters->bleached++;
        packet->ecn = WEFT_ECN_NOT;
    }
    if (counters->queued_bytes + bytes > link->config.buffer_bytes) {
        counters->dropped_full++;
        weft_net_packet_free(packet);
        return;
    }
    if (link->config.ecn_mark_bytes > 0 && counters->queued_bytes >= link->config.ecn_mark_bytes &&
        packet->ecn != WEFT_ECN_NOT) {
        counters->marked++;
        packet->ecn = WEFT_ECN_CE;
    }
    counters->queued++;
    counters->queued_bytes += bytes;
    if (idx % 2 == WEFT_NET_UP) {
        net->queued_bytes[packet->from] += bytes;
    }
    counters->queued_bytes_max = weft_max_u64(counters->queued_bytes_max, counters->queued_bytes);
    link->free_at_ns = weft_max_u64(link->free_at_ns, net->now_ns) +
                       weft_div_ceil_u64(bytes * 8 * WEFT_NS_PER_S, link->config.rate_bps);
    if (queue_put(&link->sending, packet, link->free_at_ns)) {
        link_arm(net, idx, KIND_LEAVE);
    }
}

static bool partitioned(const struct link *link, uint64_t now_ns)
{
    for (uint32_t i = 0; i < link->partition_count; i++) {
        if (now_ns >= link->partitions[i].from_ns && now_ns < link->partitions[i].to_ns) {
            return true;
        }
    }
    return false;
}

static bool burst_loss(struct link *link)
{
    const struct weft_net_faults *faults = &link->faults;
    if (faults->burst_enter_ppm == 0) {
        return false;
    }
    uint32_t change_ppm = link->bursting ? faults->burst_leave_ppm : faults->burst_enter_ppm;
    link->bursting ^= weft_prng_chance(&link->prng, change_ppm);
    return link->bursting && weft_prng_chance(&link->prng, faults->burst_loss_ppm);
}

/* Whether the packet that leaves now is lost; counts the reason. */
static bool link_drops(struct link *link, uint64_t now_ns)
{
    if (partitioned(link, now_ns)) {
        link->counters.dropped_partition++;
        return true;
    }
    if (burst_loss(link)) {
        link->counters.dropped_burst++;
        return true;
    }
    if (weft_prng_chance(&link->prng, link->faults.loss_ppm)) {
        link->counters.dropped_loss++;
        return true;
    }
    if (weft_prng_chance(&link->prng, link->faults.corrupt_ppm)) {
        link->counters.dropped_corrupt++;
        return true;
    }
    return false;
}

static void link_fly(struct weft_net *net, uint32_t idx, struct weft_net_packet *packet)
{
    struct link *link = &net->links[idx];
    uint64_t due_ns = net->now_ns + link->config.delay_ns;
    link->counters.flying++;
    if (weft_prng_chance(&link->prng, link->faults.reorder_ppm)) {
        due_ns += weft_prng_range(&link->prng, 1, link->faults.reorder_ns_max);
        link->counters.reordered++;
        link->strays++;
        weft_sim_heap_push(&net->heap, due_ns, 0, idx, packet);
    } else if (queue_put(&link->flying, packet, due_ns)) {
        link_arm(net, idx, KIND_ARRIVE);
    }
}

/* A packet that stays within its machine: counted by the downlink as one in flight. */
static void link_bypass(struct weft_net *net, uint32_t idx, struct weft_net_packet *packet)
{
    struct link *link = &net->links[idx];
    net->touched = idx;
    link->counters.in++;
    link->counters.flying++;
    link->strays++;
    weft_sim_heap_push(&net->heap, net->now_ns + net->local_ns, 0, idx, packet);
}

/* The last bit of a packet has left the sending side. */
static void link_leave(struct weft_net *net, uint32_t idx)
{
    struct link *link = &net->links[idx];
    struct weft_net_packet *packet = queue_take(&link->sending);
    link_arm(net, idx, KIND_LEAVE);
    net->touched = idx;
    link->counters.queued--;
    link->counters.queued_bytes -= packet->count + net->overhead_bytes;
    if (idx % 2 == WEFT_NET_UP) {
        net->queued_bytes[packet->from] -= packet->count + net->overhead_bytes;
    }
    link->counters.left_bytes += packet->count + net->overhead_bytes;
    if (link_drops(link, net->now_ns)) {
        weft_net_packet_free(packet);
        return;
    }
    if (weft_prng_chance(&link->prng, link->faults.duplicate_ppm)) {
        link->counters.duplicated++;
        link_fly(net, idx, packet_copy(packet));
    }
    link_fly(net, idx, packet);
}

void weft_net_send(struct weft_net *net, struct weft_net_packet *packet)
{
    WEFT_ASSERT(packet->from < net->hosts && packet->to < net->hosts);
    if (net->local_ns > 0 && net->port[packet->from] == net->port[packet->to]) {
        link_bypass(net, net->port[packet->to] * 2 + WEFT_NET_DOWN, packet);
        return;
    }
    link_enter(net, net->port[packet->from] * 2 + WEFT_NET_UP, packet);
}

void weft_net_inject(struct weft_net *net, struct weft_net_packet *packet)
{
    WEFT_ASSERT(packet->to < net->hosts);
    link_enter(net, net->port[packet->to] * 2 + WEFT_NET_DOWN, packet);
}

void weft_net_wake(struct weft_net *net, uint32_t host, uint64_t at_ns)
{
    weft_sim_alarm_set(&net->alarms, net->hosts * 4 + host, weft_max_u64(at_ns, net->now_ns));
}

uint64_t weft_net_now_ns(const struct weft_net *net)
{
    return net->now_ns;
}

uint64_t weft_net_next_ns(const struct weft_net *net)
{
    return weft_min_u64(weft_sim_alarms_next_ns(&net->alarms), weft_sim_heap_next_ns(&net->heap));
}

/* A packet has arrived at the far side of a link. */
static void link_arrive(struct weft_net *net, uint32_t idx, struct weft_net_packet *packet,
                        struct weft_net_event *event_p)
{
    net->touched = idx;
    net->links[idx].counters.flying--;
    net->links[idx].counters.delivered++;
    if (idx % 2 == WEFT_NET_UP) {
        link_enter(net, net->port[packet->to] * 2 + WEFT_NET_DOWN, packet);
        return;
    }
    packet->at_ns = net->now_ns;
    *event_p = (struct weft_net_event){WEFT_NET_PACKET, packet->to, packet};
}

static void on_alarm(struct weft_net *net, uint32_t id, struct weft_net_event *event_p)
{
    if (id >= net->hosts * 4) {
        weft_sim_alarm_set(&net->alarms, id, WEFT_NEVER);
        *event_p = (struct weft_net_event){WEFT_NET_WAKE, id - net->hosts * 4, NULL};
    } else if (id % 2 == KIND_LEAVE) {
        link_leave(net, id / 2);
    } else {
        struct weft_net_packet *packet = queue_take(&net->links[id / 2].flying);
        link_arm(net, id / 2, KIND_ARRIVE);
        link_arrive(net, id / 2, packet, event_p);
    }
}

bool weft_net_step(struct weft_net *net, struct weft_net_event *event_p)
{
    struct weft_sim_event stray;
    uint64_t next_ns = weft_net_next_ns(net);
    if (next_ns == WEFT_NEVER) {
        return false;
    }
    WEFT_ASSERT(next_ns >= net->now_ns);
    net->now_ns = next_ns;
    *event_p = (struct weft_net_event){WEFT_NET_NONE, 0, NULL};
    if (weft_sim_alarms_next_ns(&net->alarms) == next_ns) { /* before a delayed packet of the same
                                                             * time */
        on_alarm(net, weft_sim_alarms_next(&net->alarms), event_p);
    } else if (weft_sim_heap_pop(&net->heap, &stray)) {
        net->links[stray.index].strays--;
        link_arrive(net, stray.index, stray.object, event_p);
    }
    return true;
}

uint64_t weft_net_packets(const struct weft_net *net)
{
    uint64_t packets = 0;
    for (uint32_t i = 0; i < net->hosts * 2; i++) {
        packets += net->links[i].counters.queued + net->links[i].counters.flying;
    }
    return packets;
}

static bool queue_any(const struct queue *queue,
                      bool (*such)(const void *arg, const struct weft_net_packet *packet),
                      const void *arg)
{
    for (const struct weft_net_packet *packet = queue->first; packet != NULL;
         packet = packet->next) {
        if (such(arg, packet)) {
            return true;
        }
    }
    return false;
}

bool weft_net_any(const struct weft_net *net,
                  bool (*such)(const void *arg, const struct weft_net_packet *packet),
                  const void *arg)
{
    for (uint32_t i = 0; i < net->hosts * 2; i++) {
        if (queue_any(&net->links[i].sending, such, arg) ||
            queue_any(&net->links[i].flying, such, arg)) {
            return true;
        }
    }
    for (size_t i = 0; i < net->heap.count; i++) {
        if (such(arg, net->heap.events[i].object)) {
            return true;
        }
    }
    return false;
}

const struct weft_net_link_counters *weft_net_link_counters(const struct weft_net *net,
                                                            uint32_t host, enum weft_net_dir dir)
{
    return &link_of(net, host, dir)->counters;
}

uint64_t weft_net_queued_bytes(const struct weft_net *net, uint32_t host)
{
    WEFT_ASSERT(host < net->hosts);
    return net->queued_bytes[host];
}

static const char *link_check(const struct link *link)
{
    const struct weft_net_link_counters *c = &link->counters;
    uint64_t dropped = c->dropped_full + c->dropped_loss + c->dropped_burst + c->dropped_corrupt +
                       c->dropped_partition + c->dropped_mtu;
    if (c->in + c->duplicated != c->delivered + dropped + c->queued + c->flying) {
        return "a link made or lost a packet without counting it";
    }
    if (c->queued_bytes > link->config.buffer_bytes) {
        return "a link has more bytes queued than its buffer";
    }
    if ((c->queued == 0) != (c->queued_bytes == 0) ||
        (c->queued == 0) != (link->sending.first == NULL)) {
        return "a link's bytes and packets disagree";
    }
    if ((c->flying == link->strays) != (link->flying.first == NULL)) {
        return "a link's packets in flight are not those that it counts";
    }
    return NULL;
}

const char *weft_net_check(const struct weft_net *net, bool all)
{
    if (!all) {
        return link_check(&net->links[net->touched]);
    }
    uint64_t strays = 0;
    for (uint32_t i = 0; i < net->hosts * 2; i++) {
        const struct link *link = &net->links[i];
        const char *wrong = link_check(link);
        if (wrong != NULL) {
            return wrong;
        }
        strays += link->strays;
    }
    return strays == net->heap.count ? NULL : "packets are counted that have no event";
}
