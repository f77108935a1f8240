#include "sim/incast.h"

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "core/cc.h"
#include "sim/round_times.h"
#include "sim/wire_time.h"
#include "sim/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round that takes longer is treated as hung. */
static const uint64_t round_ns_max = 60 * WEFT_NS_PER_S;
static const uint64_t check_interval_ns = WEFT_NS_PER_MS;
static const uint64_t deep_bytes = UINT64_C(1) << 40;

enum {
    ELEM_BYTES = WEFT_SIM_ELEM_BYTES,
    PACKET_BYTES = WEFT_SIM_PACKET_BYTES,
    SOCKET_PACKETS = 65536,
};

#define NOBODY UINT32_MAX

struct sender {
    uint32_t peer;  /* the receiver, as seen by the sender */
    uint32_t back;  /* this sender, as seen by the receiver */
    uint32_t round; /* next round to send */
    bool up;
    uint64_t closed; /* bit r: round r mod 64 is closed at the receiver but not yet at the sender */
    uint64_t *masks; /* WEFT_MSGS_MAX masks of `words` words: the receiver's result of these
                      * rounds */
    uint32_t counts[WEFT_MSGS_MAX];
};

struct shard {
    uint32_t round; /* current */
    uint32_t left;  /* messages of the round not completed */
    uint64_t go_ns;
    uint64_t *times_ns; /* of completed rounds */
    uint32_t done;
    uint8_t *memory;      /* destination of all messages, which are equal */
    uint64_t data_before; /* data_received at the first round */
};

struct incast {
    struct weft_incast_config config;
    struct weft_world *world;
    struct sender *senders; /* host i; shard i / config.senders */
    struct shard shards[WEFT_INCAST_SHARDS_MAX];
    uint32_t hosts; /* of senders; the endpoints of the receiver's host follow */
    uint32_t total; /* elements of a message */
    uint32_t chunks;
    size_t words;
    uint8_t *source;
    struct weft_credit_share share; /* of the endpoints of the receiver's host */
    uint32_t ups;                   /* PEER_UPs received at the receiver's host */
    uint64_t first_go_ns;
    uint64_t last_go_ns;
    bool stopping; /* start no new rounds */
    uint64_t stop_ns;
    uint64_t goodput_bps[WEFT_INCAST_SHARDS_MAX];
    uint64_t messages;
    uint64_t outstanding; /* messages sent whose SENT has not been received */
    uint64_t missing;     /* chunks, over all messages */
    uint32_t missing_max;
    uint64_t unknown;
};

void weft_incast_config_default(struct weft_incast_config *config_p)
{
    *config_p = (struct weft_incast_config){
        .senders = 8,
        .shards = 1,
        .message_bytes = 250000,
        .rate_bps = UINT64_C(1000000000),
        .rtt_ns = 50 * WEFT_NS_PER_US,
        .buffer_bytes = 128000,
        .rounds = 500,
        .seed = 1,
    };
}

const char *weft_incast_config_check(const struct weft_incast_config *config)
{
    if (config->senders < 1 || config->senders > WEFT_INCAST_SENDERS_MAX || config->shards < 1 ||
        config->shards > WEFT_INCAST_SHARDS_MAX) {
        return "1 to 256 senders, 1 to 4 shards";
    }
    if (config->message_bytes == 0 || config->message_bytes % ELEM_BYTES != 0 ||
        config->message_bytes > UINT64_C(100000000)) {
        return "a message is a multiple of 4 bytes, at most 100,000,000";
    }
    if (config->rate_bps < 1000000 || config->rate_bps > UINT64_C(1000000000000)) {
        return "a rate lies between 1 Mbit/s and 1 Tbit/s";
    }
    if (config->rtt_ns > WEFT_NS_PER_S || config->buffer_bytes < 4 * PACKET_BYTES) {
        return "the base round trip is at most a second, the buffer at least four packets";
    }
    if (config->loss_ppm >= WEFT_PPM / 2 || config->bound_ppm >= WEFT_PPM) {
        return "the loss is below one half, the bound below one";
    }
    if (config->rounds < 1 || config->rounds > WEFT_INCAST_ROUNDS_MAX) {
        return "1 to 10,000 rounds";
    }
    return weft_cc_find(config->cc_name) == NULL ? "there is no such congestion control" : NULL;
}

/* ---- ideal ----------------------------------------------------------------------------------- */

uint64_t weft_incast_ideal_ns(const struct weft_incast_config *config)
{
    uint64_t bytes =
        (uint64_t)config->senders * config->shards * weft_sim_wire_bytes(config->message_bytes);
    return weft_sim_wire_ns(bytes, config->rate_bps) + config->rtt_ns;
}

/* ---- the applications ------------------------------------------------------------------------ */

static uint32_t shard_host(const struct incast *s, uint32_t shard)
{
    return s->hosts + shard;
}

static uint64_t tag_of(uint32_t sender, uint32_t round)
{
    return (uint64_t)(sender + 1) << 32 | round;
}

static void send_one(struct incast *s, uint32_t host, uint64_t now_ns)
{
    struct sender *sender = &s->senders[host];
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    struct weft_msg_send send = {
        .peer = sender->peer,
        .base = s->source,
        .total = s->total,
        .elem_bytes = ELEM_BYTES,
        .bound_ppm = s->config.bound_ppm,
        .tag = tag_of(host, sender->round),
        .deadline_ns = WEFT_NEVER,
        .user = sender->round,
    };
    uint64_t seq;
    weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &seq);
    if (status != WEFT_OK) {
        weft_world_fail(s->world, "sender %" PRIu32 " cannot send in round %" PRIu32 ": %s", host,
                        sender->round, weft_status_name(status));
        return;
    }
    sender->round++;
    s->outstanding++;
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct incast *s = self;
    if (host < s->hosts && s->senders[host].round <= s->shards[host / s->config.senders].round &&
        s->last_go_ns != WEFT_NEVER) {
        send_one(s, host, now_ns);
    }
}

static void post(struct incast *s, uint32_t shard, uint32_t host)
{
    struct shard *r = &s->shards[shard];
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, shard_host(s, shard)));
    struct weft_msg_expect expect = {
        .peer = s->senders[host].back,
        .sink = WEFT_SINK_COPY,
        .tag = tag_of(host, r->round),
        .tag_mask = UINT64_MAX,
        .memory = r->memory,
        .memory_bytes = s->config.message_bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = host,
    };
    weft_expect_id id;
    if (msgr.ops->expect(msgr.self, &expect, &id) != WEFT_OK) {
        weft_world_fail(s->world, "endpoint %" PRIu32 " cannot post memory", shard);
    }
}

/* Post the receives, then start all senders. */
static void go(struct incast *s, uint32_t shard, uint64_t now_ns)
{
    struct shard *r = &s->shards[shard];
    r->left = s->config.senders;
    r->go_ns = now_ns;
    s->last_go_ns = now_ns;
    for (uint32_t i = 0; i < s->config.senders; i++) {
        uint32_t host = shard * s->config.senders + i;
        post(s, shard, host);
        weft_world_wake(s->world, host, now_ns);
    }
}

static void stop(struct incast *s, uint64_t now_ns)
{
    s->stopping = true;
    s->stop_ns = now_ns;
    uint64_t elapsed_ns = weft_max_u64(now_ns - s->first_go_ns, 1);
    for (uint32_t i = 0; i < s->config.shards; i++) {
        const struct weft_ep *ep = weft_world_ep(s->world, shard_host(s, i));
        uint64_t chunks = weft_ep_counters(ep)->data_received - s->shards[i].data_before;
        uint64_t bits = chunks * s->config.message_bytes / s->chunks * 8;
        __extension__ unsigned __int128 scaled = (unsigned __int128)bits * WEFT_NS_PER_S;
        s->goodput_bps[i] = (uint64_t)(scaled / elapsed_ns);
    }
}

static void round_over(struct incast *s, uint32_t shard, uint64_t now_ns)
{
    struct shard *r = &s->shards[shard];
    r->times_ns[r->done++] = now_ns - r->go_ns;
    r->round++;
    if (r->done == s->config.rounds && !s->stopping) {
        stop(s, now_ns);
    }
    if (!s->stopping) {
        go(s, shard, now_ns);
    }
}

static void check_received(struct incast *s, uint32_t host, const struct weft_msg_event *event)
{
    uint32_t missing = event->chunks - event->received;
    uint32_t most = weft_sim_lost_max(s->config.message_bytes, s->config.bound_ppm,
                                      s->shards[host / s->config.senders].round);
    if (event->outcome != WEFT_MSG_COMPLETE) {
        weft_world_fail(s->world, "the message of sender %" PRIu32 " was closed SHORT", host);
    } else if (event->chunks != s->chunks || missing > most) {
        weft_world_fail(s->world,
                        "sender %" PRIu32 ": %" PRIu32 " of %" PRIu32
                        " chunks are missing, K is %" PRIu32,
                        host, missing, event->chunks, most);
    } else if (weft_bits_count(event->mask, event->chunks) != event->received) {
        weft_world_fail(s->world, "sender %" PRIu32 ": the mask has another number of chunks",
                        host);
    }
}

static void on_received(struct incast *s, uint32_t shard, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    struct shard *r = &s->shards[shard];
    uint32_t host = (uint32_t)event->user;
    struct sender *sender = &s->senders[host];
    if (host / s->config.senders != shard || event->tag != tag_of(host, r->round)) {
        weft_world_fail(s->world, "endpoint %" PRIu32 ": RECEIVED of another round", shard);
        return;
    }
    check_received(s, host, event);
    uint32_t slot = r->round % WEFT_MSGS_MAX;
    memcpy(sender->masks + slot * s->words, event->mask, s->words * sizeof(*event->mask));
    sender->counts[slot] = event->received;
    sender->closed |= UINT64_C(1) << slot;
    if (s->config.seen != NULL) {
        s->config.seen(s->config.seen_self, event->mask, event->chunks);
    }
    s->messages++;
    s->missing += event->chunks - event->received;
    s->missing_max = (uint32_t)weft_max_u64(s->missing_max, event->chunks - event->received);
    if (--r->left == 0) {
        round_over(s, shard, now_ns);
    }
}

/* Compare the masks of a message at both ends. */
static const char *check_masks(const struct incast *s, const struct weft_msg_event *event,
                               const uint64_t *received, uint32_t count)
{
    if (event->outcome == WEFT_MSG_UNKNOWN) {
        for (size_t i = 0; i < s->words; i++) {
            if ((event->mask[i] & ~received[i]) != 0) {
                return "UNKNOWN with chunks that the receiver does not hold";
            }
        }
        return NULL;
    }
    if (event->outcome != WEFT_MSG_COMPLETE || event->received != count) {
        return "the ends disagree on outcome or number of chunks";
    }
    bool equal = memcmp(event->mask, received, s->words * sizeof(*received)) == 0;
    return equal ? NULL : "the ends' masks differ";
}

static void on_sent(struct incast *s, uint32_t host, const struct weft_msg_event *event)
{
    struct sender *sender = &s->senders[host];
    uint32_t slot = event->user % WEFT_MSGS_MAX;
    s->outstanding--;
    s->unknown += event->outcome == WEFT_MSG_UNKNOWN;
    if ((sender->closed >> slot & 1) == 0) {
        if (event->outcome != WEFT_MSG_UNKNOWN) {
            weft_world_fail(s->world, "sender %" PRIu32 ": SENT before RECEIVED", host);
        }
        return;
    }
    sender->closed &= ~(UINT64_C(1) << slot);
    const char *wrong =
        check_masks(s, event, sender->masks + slot * s->words, sender->counts[slot]);
    if (wrong != NULL) {
        weft_world_fail(s->world, "sender %" PRIu32 ", round %" PRIu64 ": %s", host, event->user,
                        wrong);
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct incast *s = self;
    bool receiver = host >= s->hosts;
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        if (receiver) {
            s->senders[event->name - 1].back = event->peer;
            s->ups++;
        } else {
            s->senders[host].up = true;
        }
        break;
    case WEFT_EVENT_PEER_DOWN:
        weft_world_fail(s->world, "host %" PRIu32 " lost its peer (reason %d)", host, event->down);
        break;
    case WEFT_EVENT_RECEIVED:
        on_received(s, host - s->hosts, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        on_sent(s, host, event);
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void set_links(struct incast *s, uint32_t host, uint64_t down_buffer_bytes,
                      uint64_t down_ecn_bytes)
{
    struct weft_net *net = weft_world_net(s->world);
    struct weft_net_link_config link = {
        .rate_bps = s->config.rate_bps,
        .delay_ns = s->config.rtt_ns / 4,
        .buffer_bytes = deep_bytes,
    };
    weft_net_link_set(net, host, WEFT_NET_UP, &link);
    link.buffer_bytes = down_buffer_bytes;
    link.ecn_mark_bytes = down_ecn_bytes;
    weft_net_link_set(net, host, WEFT_NET_DOWN, &link);
}

static void set_faults(struct incast *s)
{
    struct weft_net *net = weft_world_net(s->world);
    struct weft_net_faults faults = {.loss_ppm = s->config.loss_ppm};
    if (s->config.burst) {
        /* The fraction of packets in the bad state is enter / (enter + leave). */
        uint64_t leave_ppm = WEFT_PPM / WEFT_INCAST_BURST;
        faults = (struct weft_net_faults){
            .burst_enter_ppm =
                (uint32_t)(leave_ppm * s->config.loss_ppm / (WEFT_PPM - s->config.loss_ppm)),
            .burst_leave_ppm = (uint32_t)leave_ppm,
            .burst_loss_ppm = WEFT_PPM,
        };
    }
    weft_net_faults_set(net, shard_host(s, 0), WEFT_NET_DOWN, &faults);
    weft_net_faults_set(net, shard_host(s, 0), WEFT_NET_UP, &faults);
}

static void make_host(struct incast *s, uint32_t host)
{
    bool receiver = host >= s->hosts;
    struct weft_world_host_config config = {
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake},
    };
    weft_ep_config_default(&config.ep);
    config.ep.name = host + 1;
    config.ep.incarnation = host + 1;
    config.ep.seed = weft_mix64(s->config.seed) + host;
    config.ep.packet_bytes = PACKET_BYTES;
    config.ep.chunks_max = s->chunks;
    config.ep.peers_max = receiver ? s->config.senders : 1;
    config.ep.expects_max = receiver ? 2 * s->config.senders : 1;
    config.ep.accept = receiver;
    config.ep.host_queue = 1;
    config.ep.order = s->config.order;
    config.ep.cc_name = s->config.cc_name;
    if (receiver) {
        config.ep.credit_share = &s->share;
        if (!s->config.unannounced) {
            config.ep.senders_expected = (uint16_t)s->config.senders;
        }
    }
    if (weft_world_host_init(s->world, host, &config) != WEFT_OK) {
        weft_world_fail(s->world, "an endpoint refuses its configuration");
    }
}

static void connect_one(struct incast *s, uint32_t host)
{
    struct weft_addr addr = weft_world_addr(shard_host(s, host / s->config.senders));
    struct sender *sender = &s->senders[host];
    sender->back = NOBODY;
    sender->masks = calloc(WEFT_MSGS_MAX * s->words, sizeof(*sender->masks));
    WEFT_ASSERT(sender->masks != NULL);
    if (weft_ep_connect(weft_world_ep(s->world, host), &addr, 0, &sender->peer) != WEFT_OK) {
        weft_world_fail(s->world, "sender %" PRIu32 " cannot connect", host);
    }
    weft_world_wake(s->world, host, 0);
}

static void make_shard(struct incast *s, uint32_t shard)
{
    struct shard *r = &s->shards[shard];
    r->memory = calloc(1, s->config.message_bytes);
    r->times_ns = calloc(s->config.rounds, sizeof(*r->times_ns));
    WEFT_ASSERT(r->memory != NULL && r->times_ns != NULL);
    uint32_t host = shard_host(s, shard);
    if (shard == 0) {
        set_links(s, host, s->config.buffer_bytes, s->config.ecn_bytes);
    } else {
        weft_net_share(weft_world_net(s->world), host, shard_host(s, 0));
    }
    make_host(s, host);
}

static struct incast *incast_new(const struct weft_incast_config *config)
{
    struct incast *s = calloc(1, sizeof(*s));
    WEFT_ASSERT(s != NULL);
    s->config = *config;
    s->hosts = config->senders * config->shards;
    s->total = (uint32_t)(config->message_bytes / ELEM_BYTES);
    s->chunks = weft_sim_chunks(config->message_bytes);
    s->words = WEFT_BITS_WORDS((size_t)s->chunks);
    s->last_go_ns = WEFT_NEVER;
    s->source = calloc(1, config->message_bytes);
    s->senders = calloc(s->hosts, sizeof(*s->senders));
    WEFT_ASSERT(s->source != NULL && s->senders != NULL);
    struct weft_world_config world = {
        .hosts = s->hosts + config->shards,
        .seed = weft_mix64(config->seed ^ UINT64_C(0x696e63617374)),
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    world.tap = config->tap != NULL ? *config->tap : world.tap;
    s->world = weft_world_new(&world);
    weft_net_overhead_set(weft_world_net(s->world), WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES);
    for (uint32_t i = 0; i < config->shards; i++) {
        make_shard(s, i);
    }
    for (uint32_t i = 0; i < s->hosts; i++) {
        set_links(s, i, deep_bytes, 0);
        make_host(s, i);
        connect_one(s, i);
    }
    return s;
}

static void incast_free(struct incast *s)
{
    weft_world_free(s->world); /* first: endpoints borrow the memory */
    for (uint32_t i = 0; i < s->hosts; i++) {
        free(s->senders[i].masks);
    }
    for (uint32_t i = 0; i < s->config.shards; i++) {
        free(s->shards[i].memory);
        free(s->shards[i].times_ns);
    }
    free(s->senders);
    free(s->source);
    free(s);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool good(const struct incast *s)
{
    return weft_world_wrong(s->world)[0] == '\0';
}

static bool all_up(const struct incast *s)
{
    for (uint32_t i = 0; i < s->hosts; i++) {
        if (!s->senders[i].up) {
            return false;
        }
    }
    return s->ups == s->hosts;
}

/* Poll a condition, for at most limit_ns. */
static bool run_until(struct incast *s, bool (*reached)(const struct incast *s), uint64_t limit_ns)
{
    uint64_t at_ns = weft_world_now_ns(s->world);
    uint64_t end_ns = at_ns + limit_ns;
    while (good(s) && !reached(s)) {
        at_ns += check_interval_ns;
        if (at_ns > end_ns) {
            return false;
        }
        (void)weft_world_run(s->world, at_ns);
    }
    return good(s);
}

static bool all_closed(const struct incast *s)
{
    return s->outstanding == 0;
}

/* Time advances in fixed steps, because the network's clock does not advance while no event is
 * scheduled. */
static void run_rounds(struct incast *s)
{
    uint64_t at_ns = s->first_go_ns;
    while (good(s) && !s->stopping) {
        at_ns += check_interval_ns;
        (void)weft_world_run(s->world, at_ns);
        if (at_ns > s->last_go_ns + round_ns_max) {
            weft_world_fail(s->world, "a round takes more than %" PRIu64 " s",
                            round_ns_max / WEFT_NS_PER_S);
        }
    }
}

static void run(struct incast *s)
{
    if (!run_until(s, all_up, round_ns_max)) {
        weft_world_fail(s->world, "not all senders have connected");
        return;
    }
    set_faults(s);
    s->first_go_ns = weft_world_now_ns(s->world);
    for (uint32_t i = 0; i < s->config.shards; i++) {
        const struct weft_ep *ep = weft_world_ep(s->world, shard_host(s, i));
        s->shards[i].data_before = weft_ep_counters(ep)->data_received;
        go(s, i, s->first_go_ns);
    }
    run_rounds(s);
    if (good(s) && !run_until(s, all_closed, round_ns_max)) {
        weft_world_fail(s->world, "%" PRIu64 " messages are not confirmed", s->outstanding);
    }
    const char *wrong = weft_net_check(weft_world_net(s->world), true);
    if (wrong != NULL) {
        weft_world_fail(s->world, "%s", wrong);
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static void result_times(const struct incast *s, struct weft_incast_result *r)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < s->config.shards; i++) {
        count += s->shards[i].done;
    }
    uint64_t *all = calloc(weft_max_u64(count, 1), sizeof(*all));
    WEFT_ASSERT(all != NULL);
    for (uint32_t i = 0; i < s->config.shards; i++) {
        memcpy(all + r->rounds, s->shards[i].times_ns, s->shards[i].done * sizeof(*all));
        r->rounds += s->shards[i].done;
    }
    struct weft_sim_times times = weft_sim_times_of(all, count);
    r->p50_ns = times.p50_ns;
    r->p99_ns = times.p99_ns;
    r->max_ns = times.max_ns;
    r->mean_ns = times.mean_ns;
    free(all);
}

/* (sum x)^2 / (n sum x^2), in ppm. Rates are scaled to Mbit/s so that the squares do not
 * overflow. */
static uint32_t jain_ppm(const uint64_t *bps, uint32_t count)
{
    uint64_t sum = 0;
    uint64_t squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t x = bps[i] / 1000000;
        sum += x;
        squares += x * x;
    }
    return squares == 0 ? 0 : (uint32_t)(sum * sum * WEFT_PPM / (squares * count));
}

static void result_counters(const struct incast *s, struct weft_incast_result *r)
{
    const struct weft_net *net = weft_world_net(s->world);
    const struct weft_net_link_counters *down =
        weft_net_link_counters(net, shard_host(s, 0), WEFT_NET_DOWN);
    const struct weft_net_link_counters *up =
        weft_net_link_counters(net, shard_host(s, 0), WEFT_NET_UP);
    uint64_t again = 0;
    r->dropped_full = down->dropped_full;
    r->dropped_wire =
        down->dropped_loss + down->dropped_burst + up->dropped_loss + up->dropped_burst;
    r->marked = down->marked;
    r->queue_bytes_max = down->queued_bytes_max;
    for (uint32_t i = 0; i < s->hosts + s->config.shards; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        r->data_sent += c->data_sent;
        r->data_lost += c->lost_packets;
        r->data_spurious += c->spurious_losses;
        r->data_duplicate += c->duplicate_chunks;
        r->data_late += c->late_chunks;
        r->probes += c->probes;
        r->packets += c->datagrams_sent;
        again += c->retransmitted_packets;
    }
    r->retransmitted_ppm = r->data_sent == 0 ? 0 : (uint32_t)(again * WEFT_PPM / r->data_sent);
}

static void result_fill(const struct incast *s, struct weft_incast_result *r)
{
    *r = (struct weft_incast_result){
        .ok = good(s),
        .ideal_ns = weft_incast_ideal_ns(&s->config),
        .messages = s->messages,
        .unknown = s->unknown,
        .jain_ppm = jain_ppm(s->goodput_bps, s->config.shards),
        .virtual_ns = weft_world_now_ns(s->world),
        .trace_hash = weft_world_hash(s->world),
    };
    snprintf(r->failure, sizeof(r->failure), "%s", weft_world_wrong(s->world));
    memcpy(r->goodput_bps, s->goodput_bps, sizeof(r->goodput_bps));
    if (s->messages > 0) {
        uint64_t chunks = s->messages * s->chunks;
        r->delivered_ppm_mean = (uint32_t)((chunks - s->missing) * WEFT_PPM / chunks);
        r->delivered_ppm_min =
            (uint32_t)((uint64_t)(s->chunks - s->missing_max) * WEFT_PPM / s->chunks);
    }
    result_times(s, r);
    result_counters(s, r);
}

void weft_incast_run(const struct weft_incast_config *config, struct weft_incast_result *result_p)
{
    WEFT_ASSERT(weft_incast_config_check(config) == NULL);
    struct incast *s = incast_new(config);
    if (good(s)) {
        run(s);
    }
    result_fill(s, result_p);
    incast_free(s);
}
