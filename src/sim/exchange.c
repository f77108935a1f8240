#include "sim/exchange.h"

#include "base/assert.h"
#include "base/prng.h"
#include "core/cc.h"
#include "sim/round_times.h"
#include "sim/wire_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round that takes longer is treated as hung. */
static const uint64_t round_ns_max = 60 * WEFT_NS_PER_S;
static const uint64_t check_interval_ns = 250 * WEFT_NS_PER_US;
static const uint64_t deep_bytes = UINT64_C(1) << 40;

enum { SOCKET_PACKETS = 65536, CLOCK_BYTES = 40 };

#define NOBODY UINT32_MAX

/* The role of a message in its round; stored in its tag. */
enum kind { KIND_DATA, KIND_REPLY, KIND_PUSH, KIND_REQUEST, KIND_CLOCK, KIND_END };

struct host {
    uint32_t *peers; /* connections to the other hosts, by host index; NOBODY = not connected */
    uint32_t *order; /* destinations of its messages in a round, in this order */
    uint32_t order_count;
};

struct exchange {
    struct weft_exchange_config config;
    struct weft_world *world;
    struct weft_reno *flows; /* NULL = none */
    struct weft_step_times step;
    uint32_t hosts; /* of the world; in a step or an outcast, host 0 is the server */
    struct host *host;
    uint64_t kind_bytes[KIND_END];
    uint32_t kind_bound_ppm[KIND_END];
    uint8_t *source;
    uint8_t *sink; /* destination of all messages */
    uint32_t ups;
    uint32_t links_due; /* number of PEER_UPs when all are connected */
    uint32_t round;     /* current */
    uint32_t left;      /* messages that must complete before the round ends */
    uint64_t go_ns;
    uint64_t *times_ns;
    bool stopping;
    uint64_t messages;
    uint64_t outstanding; /* messages sent whose SENT has not been received */
    uint64_t chunks;
    uint64_t missing;
};

const char *weft_exchange_pattern_name(enum weft_exchange_pattern pattern)
{
    static const char *const names[] = {"alltoall", "outcast", "shuffle", "step"};
    return names[pattern];
}

void weft_exchange_config_default(struct weft_exchange_config *config_p)
{
    *config_p = (struct weft_exchange_config){
        .pattern = WEFT_EXCHANGE_ALLTOALL,
        .hosts = 8,
        .message_bytes = 500000,
        .request_bytes = 66000,
        .reply_bytes = 66000,
        .rate_bps = UINT64_C(1000000000),
        .rtt_ns = 50 * WEFT_NS_PER_US,
        .buffer_bytes = 64000,
        .rounds = 20,
        .seed = 1,
    };
}

uint32_t weft_exchange_hosts(const struct weft_exchange_config *config)
{
    switch (config->pattern) {
    case WEFT_EXCHANGE_ALLTOALL:
        return config->hosts;
    case WEFT_EXCHANGE_SHUFFLE:
        return 2 * config->hosts;
    case WEFT_EXCHANGE_OUTCAST:
    case WEFT_EXCHANGE_STEP:
        break;
    }
    return config->hosts + 1;
}

static bool bytes_valid(uint64_t bytes)
{
    return bytes > 0 && bytes % WEFT_SIM_ELEM_BYTES == 0 && bytes <= 100000000;
}

const char *weft_exchange_config_check(const struct weft_exchange_config *config)
{
    if (config->hosts < 2 || config->hosts > WEFT_EXCHANGE_HOSTS_MAX) {
        return "2 to 64 hosts";
    }
    if (!bytes_valid(config->message_bytes) || !bytes_valid(config->request_bytes) ||
        !bytes_valid(config->reply_bytes)) {
        return "a message is a multiple of 4 bytes, at most 100,000,000";
    }
    if (config->rate_bps < 1000000 || config->rate_bps > UINT64_C(1000000000000)) {
        return "a rate lies between 1 Mbit/s and 1 Tbit/s";
    }
    if (config->rtt_ns > WEFT_NS_PER_S || config->host_delay_ns > WEFT_NS_PER_S ||
        config->buffer_bytes < 4 * WEFT_SIM_PACKET_BYTES) {
        return "delays are at most a second, the buffer at least four packets";
    }
    if (config->loss_ppm >= WEFT_PPM / 2 || config->bound_ppm >= WEFT_PPM) {
        return "the loss is below one half, the bound below one";
    }
    if (config->rounds < 1 || config->rounds > WEFT_EXCHANGE_ROUNDS_MAX) {
        return "1 to 10,000 rounds";
    }
    return weft_cc_find(config->cc_name) == NULL ? "unknown congestion control" : NULL;
}

/* ---- ideal ----------------------------------------------------------------------------------- */

/* Number of messages that the busiest link carries in a round. */
static uint64_t busiest(const struct weft_exchange_config *config)
{
    return config->pattern == WEFT_EXCHANGE_ALLTOALL ? config->hosts - 1 : config->hosts;
}

static uint64_t step_wire_bytes(const struct weft_exchange_config *config)
{
    return config->hosts *
           (weft_sim_wire_bytes(config->message_bytes) +
            weft_sim_wire_bytes(config->request_bytes) + weft_sim_wire_bytes(CLOCK_BYTES));
}

uint64_t weft_exchange_ideal_ns(const struct weft_exchange_config *config)
{
    if (config->pattern != WEFT_EXCHANGE_STEP) {
        uint64_t bytes = busiest(config) * weft_sim_wire_bytes(config->message_bytes);
        return weft_sim_wire_ns(bytes, config->rate_bps) + config->rtt_ns;
    }
    uint64_t first = weft_sim_wire_bytes(config->reply_bytes);
    uint64_t there = weft_max_u64(step_wire_bytes(config), (config->hosts - 1) * first);
    return weft_sim_wire_ns(first + there, config->rate_bps) + 2 * config->rtt_ns;
}

/* Bytes of all messages of a round, on all links that they cross. */
static uint64_t round_wire_bytes(const struct weft_exchange_config *config)
{
    uint64_t n = config->hosts;
    uint64_t each = weft_sim_wire_bytes(config->message_bytes);
    switch (config->pattern) {
    case WEFT_EXCHANGE_ALLTOALL:
        return 2 * n * (n - 1) * each;
    case WEFT_EXCHANGE_OUTCAST:
        return 2 * n * each;
    case WEFT_EXCHANGE_SHUFFLE:
        return 2 * n * n * each;
    case WEFT_EXCHANGE_STEP:
        return 2 * (step_wire_bytes(config) + n * weft_sim_wire_bytes(config->reply_bytes));
    }
    return 0;
}

/* ---- the applications ------------------------------------------------------------------------ */

static uint64_t tag_of(enum kind kind, uint32_t round)
{
    return (uint64_t)kind << 32 | round;
}

static enum kind tag_kind(uint64_t tag)
{
    return (enum kind)(tag >> 32);
}

static void send_one(struct exchange *s, uint32_t from, uint32_t to, enum kind kind,
                     uint64_t now_ns)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, from));
    struct weft_msg_send send = {
        .peer = s->host[from].peers[to],
        .base = s->source,
        .total = (uint32_t)(s->kind_bytes[kind] / WEFT_SIM_ELEM_BYTES),
        .elem_bytes = WEFT_SIM_ELEM_BYTES,
        .bound_ppm = s->kind_bound_ppm[kind],
        .stream = kind,
        .together = s->config.pattern == WEFT_EXCHANGE_ALLTOALL,
        .tag = tag_of(kind, s->round),
        .deadline_ns = WEFT_NEVER,
        .user = to,
    };
    uint64_t seq;
    weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &seq);
    if (status != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 " cannot send: %s", from,
                        weft_status_name(status));
        return;
    }
    s->outstanding++;
}

static void post(struct exchange *s, uint32_t host, uint32_t from, enum kind kind)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    struct weft_msg_expect expect = {
        .peer = s->host[host].peers[from],
        .sink = WEFT_SINK_COPY,
        .tag = tag_of(kind, s->round),
        .tag_mask = UINT64_MAX,
        .memory = s->sink,
        .memory_bytes = s->kind_bytes[kind],
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = from,
    };
    weft_expect_id id;
    if (msgr.ops->expect(msgr.self, &expect, &id) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 " cannot post memory", host);
    }
}

/* First post the receives for the whole round. */
static void post_all(struct exchange *s)
{
    bool step = s->config.pattern == WEFT_EXCHANGE_STEP;
    s->left = 0;
    for (uint32_t i = 0; i < s->hosts; i++) {
        for (uint32_t j = 0; j < s->host[i].order_count; j++) {
            uint32_t to = s->host[i].order[j];
            post(s, to, i, step ? KIND_REPLY : KIND_DATA);
            s->left += step ? 3 : 1;
            if (step) {
                post(s, i, to, KIND_PUSH);
                post(s, i, to, KIND_REQUEST);
                post(s, i, to, KIND_CLOCK);
            }
        }
    }
}

static bool is_step(const struct exchange *s)
{
    return s->config.pattern == WEFT_EXCHANGE_STEP;
}

static void go(struct exchange *s, uint64_t now_ns)
{
    s->go_ns = now_ns;
    weft_step_begin(&s->step, now_ns);
    if (is_step(s)) {
        weft_step_order(&s->step, s->host[0].order, s->host[0].order_count);
    }
    post_all(s);
    for (uint32_t i = 0; i < s->hosts; i++) {
        if (s->host[i].order_count > 0) {
            weft_world_wake(s->world, i, now_ns);
        }
    }
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct exchange *s = self;
    if (s->times_ns == NULL || s->stopping) {
        return;
    }
    for (uint32_t j = 0; j < s->host[host].order_count; j++) {
        bool step = s->config.pattern == WEFT_EXCHANGE_STEP;
        send_one(s, host, s->host[host].order[j], step ? KIND_REPLY : KIND_DATA, now_ns);
    }
}

static void round_over(struct exchange *s, uint64_t now_ns)
{
    s->times_ns[s->round++] = now_ns - s->go_ns;
    weft_step_end(&s->step);
    if (s->round == s->config.rounds) {
        s->stopping = true;
    } else {
        go(s, now_ns);
    }
}

/* Record the message in the times of its worker. */
static void step_note(struct exchange *s, uint32_t worker, enum kind kind, uint64_t now_ns)
{
    static const enum weft_step_mark marks[] = {
        [KIND_REPLY] = WEFT_STEP_REPLY,
        [KIND_PUSH] = WEFT_STEP_PUSH,
        [KIND_REQUEST] = WEFT_STEP_REQUEST,
        [KIND_CLOCK] = WEFT_STEP_CLOCK,
    };
    if (kind != KIND_DATA) {
        weft_step_mark(&s->step, worker, marks[kind], now_ns);
    }
}

static void on_received(struct exchange *s, uint32_t host, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    enum kind kind = tag_kind(event->tag);
    uint32_t missing = event->chunks - event->received;
    uint32_t most = weft_sim_lost_max(s->kind_bytes[kind], s->kind_bound_ppm[kind], s->round);
    if (event->outcome != WEFT_MSG_COMPLETE || missing > most) {
        weft_world_fail(s->world, "host %" PRIu32 ": %" PRIu32 " of %" PRIu32 " chunks are missing",
                        host, missing, event->chunks);
        return;
    }
    s->messages++;
    s->chunks += event->chunks;
    s->missing += missing;
    step_note(s, host == 0 ? (uint32_t)event->user : host, kind, now_ns);
    if (kind == KIND_REPLY) {
        send_one(s, host, (uint32_t)event->user, KIND_PUSH, now_ns);
        send_one(s, host, (uint32_t)event->user, KIND_REQUEST, now_ns);
    } else if (--s->left == 0) {
        round_over(s, now_ns);
    }
}

static void on_sent(struct exchange *s, uint32_t host, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    s->outstanding--;
    if (event->outcome != WEFT_MSG_COMPLETE) {
        weft_world_fail(s->world, "host %" PRIu32 ": a message ended with outcome %d", host,
                        (int)event->outcome);
    } else if (tag_kind(event->tag) == KIND_REPLY) {
        weft_step_replied(&s->step, (uint32_t)event->user, event->begun_ns);
    } else if (tag_kind(event->tag) == KIND_PUSH) {
        weft_step_mark(&s->step, host, WEFT_STEP_CLOSED, now_ns);
        send_one(s, host, (uint32_t)event->user, KIND_CLOCK, now_ns);
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct exchange *s = self;
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        s->host[host].peers[event->name - 1] = event->peer;
        s->ups++;
        break;
    case WEFT_EVENT_PEER_DOWN:
        weft_world_fail(s->world, "host %" PRIu32 " lost a peer (reason %d)", host, event->down);
        break;
    case WEFT_EVENT_RECEIVED:
        on_received(s, host, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        on_sent(s, host, event, now_ns);
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void order_add(struct exchange *s, uint32_t from, uint32_t to)
{
    s->host[from].order[s->host[from].order_count++] = to;
}

static void make_orders(struct exchange *s)
{
    uint32_t n = s->config.hosts;
    for (uint32_t i = 0; i < s->hosts; i++) {
        s->host[i].peers = malloc(s->hosts * sizeof(*s->host[i].peers));
        s->host[i].order = calloc(s->hosts, sizeof(*s->host[i].order));
        WEFT_ASSERT(s->host[i].peers != NULL && s->host[i].order != NULL);
        memset(s->host[i].peers, 0xff, s->hosts * sizeof(*s->host[i].peers));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->config.pattern == WEFT_EXCHANGE_OUTCAST || s->config.pattern == WEFT_EXCHANGE_STEP) {
            order_add(s, 0, i + 1);
            continue;
        }
        bool all = s->config.pattern == WEFT_EXCHANGE_ALLTOALL;
        for (uint32_t j = all ? 1 : 0; j < n; j++) {
            order_add(s, i, all ? (i + j) % n : n + (i + j) % n);
        }
    }
}

static void make_host(struct exchange *s, uint32_t host)
{
    struct weft_net *net = weft_world_net(s->world);
    struct weft_net_link_config link = {
        .rate_bps = s->config.rate_bps,
        .delay_ns = s->config.rtt_ns / 4,
        .buffer_bytes = deep_bytes,
    };
    weft_net_link_set(net, host, WEFT_NET_UP, &link);
    link.buffer_bytes = s->config.buffer_bytes;
    link.ecn_mark_bytes = s->config.ecn_bytes;
    weft_net_link_set(net, host, WEFT_NET_DOWN, &link);
    struct weft_world_host_config config = {
        .progress_delay_ns = s->config.host_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake},
    };
    weft_ep_config_default(&config.ep);
    config.ep.name = host + 1;
    config.ep.incarnation = host + 1;
    config.ep.seed = weft_mix64(s->config.seed) + host;
    config.ep.packet_bytes = WEFT_SIM_PACKET_BYTES;
    uint64_t most = weft_max_u64(s->config.message_bytes,
                                 weft_max_u64(s->config.request_bytes, s->config.reply_bytes));
    config.ep.chunks_max = weft_sim_chunks(most);
    config.ep.peers_max = s->hosts;
    config.ep.expects_max = 4 * s->hosts;
    config.ep.accept = 1;
    config.ep.host_queue = 1;
    config.ep.done_later = s->config.pattern == WEFT_EXCHANGE_STEP; /* as in `weft train` */
    config.ep.cc_name = s->config.cc_name;
    if (weft_world_host_init(s->world, host, &config) != WEFT_OK) {
        weft_world_fail(s->world, "an endpoint rejects its configuration");
    }
}

/* One connection serves both directions of a pair. */
static void connect_all(struct exchange *s)
{
    for (uint32_t i = 0; i < s->hosts; i++) {
        for (uint32_t j = 0; j < s->host[i].order_count; j++) {
            uint32_t to = s->host[i].order[j];
            if (s->config.pattern == WEFT_EXCHANGE_ALLTOALL && to < i) {
                continue;
            }
            struct weft_addr addr = weft_world_addr(to);
            uint32_t peer;
            if (weft_ep_connect(weft_world_ep(s->world, i), &addr, 0, &peer) != WEFT_OK) {
                weft_world_fail(s->world, "host %" PRIu32 " cannot connect", i);
            }
            s->links_due += 2;
        }
        weft_world_wake(s->world, i, 0);
    }
}

static struct exchange *exchange_new(const struct weft_exchange_config *config)
{
    struct exchange *s = calloc(1, sizeof(*s));
    WEFT_ASSERT(s != NULL);
    s->config = *config;
    s->hosts = weft_exchange_hosts(config);
    s->kind_bytes[KIND_DATA] = config->message_bytes;
    s->kind_bytes[KIND_PUSH] = config->message_bytes;
    s->kind_bytes[KIND_REPLY] = config->reply_bytes;
    s->kind_bytes[KIND_REQUEST] = config->request_bytes;
    s->kind_bytes[KIND_CLOCK] = CLOCK_BYTES;
    uint64_t most = 0;
    for (unsigned k = 0; k < KIND_END; k++) {
        bool bounded = k != KIND_REQUEST && k != KIND_CLOCK;
        s->kind_bound_ppm[k] = bounded ? config->bound_ppm : 0;
        most = weft_max_u64(most, s->kind_bytes[k]);
    }
    s->source = calloc(1, most);
    s->sink = calloc(1, most);
    s->host = calloc(s->hosts, sizeof(*s->host));
    WEFT_ASSERT(s->source != NULL && s->sink != NULL && s->host != NULL);
    struct weft_world_config world = {
        .hosts = config->next_flow == NULL ? s->hosts : 2 * s->hosts,
        .seed = weft_mix64(config->seed ^ UINT64_C(0x65786368616e6765)),
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    world.tap = config->tap != NULL ? *config->tap : world.tap;
    s->world = weft_world_new(&world);
    weft_net_overhead_set(weft_world_net(s->world), WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES);
    make_orders(s);
    for (uint32_t i = 0; i < s->hosts; i++) {
        make_host(s, i);
    }
    connect_all(s);
    if (config->next_flow != NULL) {
        s->flows = weft_reno_new(&(struct weft_reno_config){
            .world = s->world,
            .hosts = s->hosts,
            .overhead_bytes = WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES,
            .rate_bps = config->rate_bps,
            .next = config->next_flow,
            .self = config->flows_self,
        });
    }
    return s;
}

static void exchange_free(struct exchange *s)
{
    weft_reno_free(s->flows);
    weft_world_free(s->world); /* before: endpoints borrow the memory */
    for (uint32_t i = 0; i < s->hosts; i++) {
        free(s->host[i].peers);
        free(s->host[i].order);
    }
    free(s->host);
    free(s->times_ns);
    free(s->source);
    free(s->sink);
    free(s);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool good(const struct exchange *s)
{
    return weft_world_wrong(s->world)[0] == '\0';
}

static bool all_up(const struct exchange *s)
{
    return s->ups == s->links_due;
}

static bool rounds_done(const struct exchange *s)
{
    return s->stopping;
}

static bool all_confirmed(const struct exchange *s)
{
    return s->outstanding == 0;
}

/* Bytes that the link of host 0 has carried. */
static uint64_t left_bytes(const struct exchange *s, enum weft_net_dir dir)
{
    return weft_net_link_counters(weft_world_net(s->world), 0, dir)->left_bytes;
}

/* Poll a condition. Time advances in fixed steps, because the network's clock does not advance
 * while no event is scheduled. */
static void run_until(struct exchange *s, bool (*reached)(const struct exchange *s),
                      const char *what)
{
    uint64_t at_ns = weft_world_now_ns(s->world);
    uint64_t start_ns = at_ns;
    while (good(s) && !reached(s)) {
        at_ns += check_interval_ns;
        start_ns = weft_max_u64(start_ns, s->go_ns);
        if (at_ns > start_ns + round_ns_max) {
            weft_world_fail(s->world, "after %" PRIu64 " s not %s", round_ns_max / WEFT_NS_PER_S,
                            what);
            return;
        }
        (void)weft_world_run(s->world, at_ns);
        weft_step_link(&s->step, left_bytes(s, WEFT_NET_UP), left_bytes(s, WEFT_NET_DOWN), at_ns);
    }
}

static void set_faults(struct exchange *s)
{
    struct weft_net_faults faults = {.loss_ppm = s->config.loss_ppm};
    for (uint32_t i = 0; i < s->hosts; i++) {
        weft_net_faults_set(weft_world_net(s->world), i, WEFT_NET_DOWN, &faults);
    }
}

static void run(struct exchange *s)
{
    run_until(s, all_up, "all hosts have connected");
    set_faults(s);
    s->times_ns = calloc(s->config.rounds, sizeof(*s->times_ns));
    WEFT_ASSERT(s->times_ns != NULL);
    if (s->flows != NULL) {
        weft_reno_begin(s->flows);
    }
    go(s, weft_world_now_ns(s->world));
    run_until(s, rounds_done, "a round is over");
    if (s->flows != NULL) {
        weft_reno_end(s->flows);
    }
    run_until(s, all_confirmed, "all messages are confirmed");
    const char *wrong = weft_net_check(weft_world_net(s->world), true);
    if (wrong != NULL) {
        weft_world_fail(s->world, "%s", wrong);
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static void result_times(struct exchange *s, struct weft_exchange_result *r)
{
    r->rounds = s->times_ns == NULL ? 0 : s->round;
    struct weft_sim_times times = weft_sim_times_of(s->times_ns, r->rounds);
    r->p50_ns = times.p50_ns;
    r->p99_ns = times.p99_ns;
    r->max_ns = times.max_ns;
    r->mean_ns = times.mean_ns;
}

static void result_step(const struct exchange *s, struct weft_exchange_result *r)
{
    for (uint32_t i = 0; i < s->config.hosts && is_step(s); i++) {
        r->workers[i] = weft_step_worker_of(&s->step, i + 1, r->rounds);
    }
    for (uint32_t i = 0; i < WEFT_STEP_BINS && is_step(s); i++) {
        r->bins[i] = weft_step_bin_of(&s->step, i, s->config.rate_bps);
    }
}

static void result_counters(const struct exchange *s, struct weft_exchange_result *r)
{
    uint64_t again = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->hosts; i++) {
        const struct weft_net_link_counters *down =
            weft_net_link_counters(weft_world_net(s->world), i, WEFT_NET_DOWN);
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        r->dropped_full += down->dropped_full;
        r->dropped_wire += down->dropped_loss;
        r->marked += down->marked;
        r->queue_bytes_max = weft_max_u64(r->queue_bytes_max, down->queued_bytes_max);
        r->data_sent += c->data_sent;
        r->data_lost += c->lost_packets;
        r->data_spurious += c->spurious_losses;
        r->probes += c->probes;
        r->packets += c->datagrams_sent;
        again += c->retransmitted_packets;
        bytes += c->bytes_sent +
                 c->datagrams_sent * (WEFT_NET_OVERHEAD_BYTES + (uint64_t)WEFT_TAG_BYTES);
    }
    r->retransmitted_ppm = r->data_sent == 0 ? 0 : (uint32_t)(again * WEFT_PPM / r->data_sent);
    uint64_t ideal = round_wire_bytes(&s->config) / 2 * weft_max_u64(r->rounds, 1);
    r->overhead_ppm = bytes > ideal ? (uint32_t)((bytes - ideal) * WEFT_PPM / ideal) : 0;
}

void weft_exchange_run(const struct weft_exchange_config *config,
                       struct weft_exchange_result *result_p)
{
    WEFT_ASSERT(weft_exchange_config_check(config) == NULL);
    struct exchange *s = exchange_new(config);
    if (good(s)) {
        run(s);
    }
    *result_p = (struct weft_exchange_result){
        .ok = good(s),
        .ideal_ns = weft_exchange_ideal_ns(config),
        .messages = s->messages,
        .delivered_ppm_mean =
            s->chunks == 0 ? 0 : (uint32_t)((s->chunks - s->missing) * WEFT_PPM / s->chunks),
        .virtual_ns = weft_world_now_ns(s->world),
        .trace_hash = weft_world_hash(s->world),
    };
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(s->world));
    result_times(s, result_p);
    result_counters(s, result_p);
    result_step(s, result_p);
    if (s->flows != NULL) {
        result_p->flows = *weft_reno_counters(s->flows);
    }
    exchange_free(s);
}
