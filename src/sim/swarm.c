#include "sim/swarm.h"

#include "base/assert.h"
#include "base/bits.h"
#include "sim/cut.h"
#include "sim/finish.h"
#include "sim/hash.h"
#include "sim/oracle.h"
#include "sim/swarm_ps.h"
#include "sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Virtual time between two looks at whether all is closed, and that which late duplicates and
 * acknowledgements get to arrive after that. */
static const uint64_t look_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t drain_ns = 3 * WEFT_NS_PER_S;
/* A caller-driven host does not bother to sleep for less. */
static const uint64_t nap_ns_min = WEFT_NS_PER_MS;

/* Every tenth seed is a parameter server. */
enum { STEPS_MAX = 20000000, SOCKET_PACKETS = 4096, PS_EVERY = 10 };

#define NOBODY UINT32_MAX

/* Tags. A private message has its own; those of a host's common expectation share the high half. */
#define TAG_PRIVATE (UINT64_C(1) << 32)
#define TAG_SHARED  (UINT64_C(2) << 32)
#define TAG_HIGH    (UINT64_C(0xffffffff) << 32)

/* `user` of a common expectation, until OPEN says which message it is. */
#define USER_SHARED UINT64_C(1000000)

struct totals {
    uint64_t sent;
    uint64_t unknown;
    uint64_t received;
    uint64_t received_short;
    uint64_t missing;
    uint64_t chunks;
};

struct swarm_host {
    uint32_t peer_of[WEFT_PLAN_HOSTS_MAX];  /* whom to send with; NOBODY */
    uint32_t accepted[WEFT_PLAN_HOSTS_MAX]; /* the peer that its HELLO made; NOBODY */
    uint32_t *host_of;                      /* by peer; NOBODY */
    bool connecting[WEFT_PLAN_HOSTS_MAX];
    bool down[WEFT_PLAN_HOSTS_MAX]; /* PEER_DOWN came; do not try again */
    bool anew; /* the peer that was reborn is to be connected anew */
    bool close_done[WEFT_PLAN_CLOSES_MAX];
    float *accumulator;
    uint64_t accumulator_bytes;
    struct totals totals;
};

struct swarm {
    struct weft_plan plan;
    struct weft_world *world;
    struct weft_oracle_msg *msgs;
    struct swarm_host host[WEFT_PLAN_HOSTS_MAX];
    struct weft_cuts cuts;
    struct posted {
        weft_expect_id id;
        uint32_t peer;
    } *posted; /* by message: where its memory was posted */
    uint8_t flows[WEFT_PLAN_HOSTS_MAX][WEFT_PLAN_HOSTS_MAX]; /* [src][dst]: there are messages */
    uint64_t closed_ns;
    uint64_t cut;
    uint64_t cut_messages;
    uint64_t noticed;
    bool draining;
    bool reborn; /* the victim's new process is up */
};

/* ---- what the hosts' applications do --------------------------------------------------------- */

static void fail_msg(struct swarm *s, uint32_t idx, const char *wrong)
{
    static const char *const sinks[] = {"COPY", "ADD", "HAND"};
    const struct weft_plan_msg *m = &s->plan.msg[idx];
    weft_world_fail(s->world,
                    "message %" PRIu32 " (%" PRIu32 " -> %" PRIu32 ", %s%s, N %" PRIu32
                    ", K %" PRIu32 ", critical %u): %s",
                    idx, m->src, m->dst, sinks[m->sink], m->shared ? " shared" : "", m->chunks,
                    weft_plan_lost_max(m), m->critical, wrong);
}

/* The process that the plan is about. Another one may have come up at its address. */
static bool died(const struct swarm *s, uint32_t host)
{
    return !weft_world_alive(s->world, host) || (s->reborn && host == s->plan.victim);
}

/* The plan has closed this connection, so it may end here. */
static bool cut(const struct swarm *s, uint32_t host, uint32_t peer, uint32_t other)
{
    return other != NOBODY && s->plan.closes > 0 &&
           weft_cuts_may_end(&s->cuts, host, peer, other);
}

/* Who opens the connection of a pair: the one who sends; if both do, the lower or both. */
static bool connects(const struct swarm *s, uint32_t host, uint32_t to)
{
    return s->flows[host][to] && (!s->flows[to][host] || s->plan.crossing || host < to);
}

static void connect_to(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns)
{
    struct swarm_host *h = &s->host[host];
    struct weft_addr addr = weft_world_addr(to);
    weft_peer peer;
    h->connecting[to] = true;
    if (weft_ep_connect(weft_world_ep(s->world, host), &addr, now_ns, &peer) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 " cannot connect to %" PRIu32, host, to);
        return;
    }
    h->peer_of[to] = peer;
    h->host_of[peer] = to;
    weft_cuts_made(&s->cuts, host, peer, to, true);
    weft_world_sleep(s->world, host, 0); /* who has just connected does not leave yet */
}

static void post(struct swarm *s, uint32_t idx)
{
    struct weft_oracle_msg *msg = &s->msgs[idx];
    const struct weft_plan_msg *plan = msg->plan;
    struct swarm_host *h = &s->host[plan->dst];
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, plan->dst));
    /* Crossing connections are two: what comes, comes by the one that its sender uses. */
    bool theirs = connects(s, plan->src, plan->dst);
    uint32_t peer = theirs ? h->accepted[plan->src] : h->peer_of[plan->src];
    struct weft_msg_expect expect = {
        .peer = plan->any_peer || peer == NOBODY ? WEFT_PEER_ANY : peer,
        .sink = plan->sink,
        .tag = TAG_PRIVATE | idx,
        .tag_mask = UINT64_MAX,
        .memory = msg->memory,
        .memory_bytes = plan->sink == WEFT_SINK_HAND
                            ? (uint64_t)plan->total * plan->elem_bytes + plan->slack_bytes
                            : msg->memory_bytes,
        .count = 1,
        .timeout_ns = plan->timeout_ns,
        .user = idx,
    };
    if (plan->shared) {
        expect.memory = h->accumulator;
        expect.memory_bytes = h->accumulator_bytes;
    }
    msg->posted = true;
    s->posted[idx].peer = expect.peer;
    if (msgr.ops->expect(msgr.self, &expect, &s->posted[idx].id) != WEFT_OK) {
        fail_msg(s, idx, "expect refuses");
    }
}

/* What was posted for a peer that is gone must be posted anew: its number will be another's. */
static void take_back(struct swarm *s, uint32_t host, uint32_t peer)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        struct weft_oracle_msg *msg = &s->msgs[i];
        if (msg->plan->dst != host || !msg->posted || msg->opened || s->posted[i].peer != peer) {
            continue;
        }
        if (msgr.ops->cancel(msgr.self, s->posted[i].id) != WEFT_OK) {
            fail_msg(s, i, "what was posted for it cannot be cancelled");
        }
        msg->posted = false;
        s->posted[i].peer = NOBODY;
    }
}

/* One expectation for all messages that this host has handed up and does not tell apart. */
static void post_shared_hand(struct swarm *s, uint32_t host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_HAND) {
            s->msgs[i].posted = true;
            count++;
        }
    }
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    struct weft_msg_expect expect = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_HAND,
        .tag = TAG_SHARED,
        .tag_mask = TAG_HIGH,
        .memory_bytes = WEFT_PLAN_BYTES_MAX * UINT64_C(4),
        .count = count,
        .timeout_ns = WEFT_NEVER,
        .user = USER_SHARED + host,
    };
    weft_expect_id id;
    if (count > 0 && msgr.ops->expect(msgr.self, &expect, &id) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": expect refuses a common expectation", host);
    }
}

static void queue(struct swarm *s, uint32_t idx, uint64_t now_ns)
{
    struct weft_oracle_msg *msg = &s->msgs[idx];
    const struct weft_plan_msg *plan = msg->plan;
    struct swarm_host *h = &s->host[plan->src];
    if (h->down[plan->dst] || (s->reborn && died(s, plan->dst))) {
        msg->gone = true; /* a new process waits for no message */
        return;
    }
    if (h->peer_of[plan->dst] == NOBODY) {
        if (!connects(s, plan->src, plan->dst) || h->connecting[plan->dst]) {
            return; /* the other end connects; PEER_UP brings us here again */
        }
        connect_to(s, plan->src, plan->dst, now_ns);
    }
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, plan->src));
    uint32_t peer = h->peer_of[plan->dst];
    bool common = plan->shared && plan->sink == WEFT_SINK_HAND;
    struct weft_msg_send send = {
        .peer = peer,
        .base = msg->lent,
        .total = plan->total,
        .elem_bytes = plan->elem_bytes,
        .chunk_elems = (uint16_t)plan->chunk_elems,
        .critical = plan->critical,
        .priority = plan->priority,
        .bound_ppm = plan->bound_ppm,
        .tag = (common ? TAG_SHARED : TAG_PRIVATE) | idx,
        .deadline_ns = plan->deadline_ns,
        .user = idx,
    };
    /* A path that shrank, or that is still being asked, holds less than the plan's grid. */
    bool full = weft_ep_packet_bytes(weft_world_ep(s->world, plan->src), peer) ==
                s->plan.host[plan->src].ep.packet_bytes;
    if (full && msgr.ops->chunk_elems(msgr.self, peer, plan->elem_bytes) != plan->chunk_elems) {
        fail_msg(s, idx, "chunk_elems is not what docs/PROTOCOL.md says");
    }
    weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &msg->seq);
    msg->queued = status == WEFT_OK;
    /* A peer is down before its PEER_DOWN is polled: the SENTs of its messages come first. */
    bool dead = status == WEFT_PEER &&
                (died(s, plan->dst) || cut(s, plan->src, peer, plan->dst));
    if (status != WEFT_OK && status != WEFT_AGAIN && !dead) {
        fail_msg(s, idx, weft_status_name(status));
    }
}

/* Do everything whose time has come at this host. */
static void advance(struct swarm *s, uint32_t host, uint64_t now_ns)
{
    for (uint32_t i = 0; i < s->plan.msgs && !died(s, host); i++) {
        struct weft_oracle_msg *msg = &s->msgs[i];
        if (msg->plan->dst == host && !msg->posted && msg->plan->post_ns <= now_ns) {
            post(s, i);
        }
        if (msg->plan->src == host && !msg->queued && !msg->gone && msg->plan->send_ns <= now_ns) {
            queue(s, i, now_ns);
        }
    }
}

/* A caller-driven host leaves its wait when nothing is outstanding, and computes. */
static void maybe_sleep(struct swarm *s, uint32_t host, uint64_t now_ns)
{
    uint64_t next_ns = WEFT_NEVER;
    if (!s->plan.host[host].caller_driven || s->draining || died(s, host)) {
        return;
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_oracle_msg *msg = &s->msgs[i];
        if (msg->plan->src != host || msg->sent || msg->gone) {
            continue;
        }
        if (msg->queued || msg->plan->send_ns <= now_ns) {
            return;
        }
        next_ns = weft_min_u64(next_ns, msg->plan->send_ns);
    }
    if (next_ns == WEFT_NEVER || next_ns < now_ns + nap_ns_min) {
        return;
    }
    if (weft_ep_busy(weft_world_ep(s->world, host))) {
        weft_world_wake(s->world, host, now_ns + nap_ns_min / 4);
        return;
    }
    weft_ep_idle(weft_world_ep(s->world, host), now_ns);
    weft_world_sleep(s->world, host, next_ns);
}

/* Close what the plan says that this host closes by now. */
static void close_due(struct swarm *s, uint32_t host, uint64_t now_ns)
{
    struct swarm_host *h = &s->host[host];
    for (uint32_t i = 0; i < s->plan.closes; i++) {
        const struct weft_plan_close *c = &s->plan.close[i];
        bool opener = c->by_opener && host == c->opener;
        bool acceptor = c->by_acceptor && host == c->acceptor;
        if (now_ns < c->at_ns || h->close_done[i] || (!opener && !acceptor) || s->draining) {
            continue;
        }
        h->close_done[i] = true;
        uint32_t other = opener ? c->acceptor : c->opener;
        uint32_t peer = opener ? h->peer_of[other] : h->accepted[other];
        if (peer != NOBODY) {
            weft_cuts_close(&s->cuts, host, peer, other);
            weft_ep_close(weft_world_ep(s->world, host), peer, now_ns);
        }
    }
}

static void on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm *s = self;
    close_due(s, host, now_ns);
    advance(s, host, now_ns);
    maybe_sleep(s, host, now_ns);
}

/* ---- what the events mean -------------------------------------------------------------------- */

static void on_peer_up(struct swarm *s, uint32_t host, const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    uint64_t other = event->name - 1000;
    bool named = event->name >= 1000 && other < s->plan.hosts;
    uint64_t second = named ? event->incarnation - s->plan.host[other].ep.incarnation : 2;
    if (second > (s->reborn && other == s->plan.victim)) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_UP with a wrong name or incarnation",
                        host);
        return;
    }
    if (second == 1) {
        h->anew = false;
        if (h->peer_of[other] == event->peer) {
            /* Begun with the old process, finished with the new one, which waits for no message. */
            weft_ep_close(weft_world_ep(s->world, host), event->peer, event->at_ns);
        }
    }
    if (h->host_of[event->peer] == NOBODY) { /* accepted */
        h->host_of[event->peer] = (uint32_t)other;
        h->accepted[other] = event->peer;
        weft_cuts_made(&s->cuts, host, event->peer, (uint32_t)other, false);
        if (h->peer_of[other] == NOBODY && !connects(s, host, (uint32_t)other)) {
            h->peer_of[other] = event->peer;
        }
    } else if (h->host_of[event->peer] != other) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_UP names somebody else", host);
    }
}

/* What a layer above does when its server comes back: connect at once. */
static void connect_anew(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns)
{
    struct weft_addr addr = weft_world_addr(to);
    weft_peer peer;
    if (weft_ep_connect(weft_world_ep(s->world, host), &addr, now_ns, &peer) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 " cannot connect to %" PRIu32 " anew", host, to);
        return;
    }
    s->host[host].host_of[peer] = to;
    weft_cuts_made(&s->cuts, host, peer, to, true);
    s->host[host].anew = true;
}

/* The connection that the plan has closed is gone at this end; whoever opened it opens another. */
static void replace_cut(struct swarm *s, uint32_t host, uint32_t other,
                        const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    s->cut++;
    weft_cuts_ended(&s->cuts, host, event->peer, other);
    take_back(s, host, event->peer);
    if (h->accepted[other] == event->peer) {
        h->accepted[other] = NOBODY;
    }
    if (h->peer_of[other] != event->peer) {
        return;
    }
    /* The next one may be up already: the news of the end of this one had to wait. */
    h->peer_of[other] = connects(s, host, other) ? NOBODY : h->accepted[other];
    if (connects(s, host, other) && !s->draining) {
        connect_to(s, host, other, event->at_ns);
    }
}

static bool down_allowed(const struct swarm *s, uint32_t host, uint32_t other,
                         const struct weft_msg_event *event)
{
    bool restarted = event->down == WEFT_DOWN_RESTARTED;
    bool left = event->down == WEFT_DOWN_LOCAL;
    bool silent = event->down == WEFT_DOWN_SILENT;
    if (cut(s, host, event->peer, other)) {
        return restarted || left || silent || event->down == WEFT_DOWN_CLOSED;
    }
    return other != NOBODY && died(s, other) && (silent || (s->reborn && (restarted || left)));
}

/* A peer may go down only when it died or the plan closed it, and only after its messages were
 * closed. */
static void on_peer_down(struct swarm *s, uint32_t host, const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    uint32_t other = h->host_of[event->peer];
    bool restarted = s->reborn && event->down == WEFT_DOWN_RESTARTED;
    if (!down_allowed(s, host, other, event)) {
        weft_world_fail(s->world,
                        "host %" PRIu32 ": PEER_DOWN (%d) of host %" PRIu32 ", which lives", host,
                        (int)event->down, other);
        return;
    }
    h->host_of[event->peer] = NOBODY;
    bool mine = h->peer_of[other] == event->peer;
    if ((restarted || h->anew) && connects(s, host, other) && !s->draining) {
        connect_anew(s, host, other, event->at_ns);
    }
    if (cut(s, host, event->peer, other)) {
        replace_cut(s, host, other, event);
    } else if (mine) {
        s->noticed += s->plan.watched;
        h->peer_of[other] = NOBODY;
        h->down[other] = true;
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_oracle_msg *msg = &s->msgs[i];
        if (mine && msg->plan->src == host && msg->plan->dst == other && msg->queued &&
            !msg->sent) {
            fail_msg(s, i, "PEER_DOWN came before its SENT");
        }
        if (msg->plan->src == other && msg->plan->dst == host && msg->opened &&
            msg->opened_peer == event->peer && !msg->received) {
            fail_msg(s, i, "PEER_DOWN came before its RECEIVED");
        }
    }
}

static void on_open(struct swarm *s, uint32_t host, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    uint32_t idx = (uint32_t)(event->tag & ~TAG_HIGH);
    bool common = event->user == USER_SHARED + host;
    if (idx >= s->plan.msgs || s->plan.msg[idx].dst != host || (!common && event->user != idx)) {
        weft_world_fail(s->world, "host %" PRIu32 ": OPEN for nobody (user %" PRIu64 ")", host,
                        event->user);
        return;
    }
    if (s->host[host].host_of[event->peer] != s->plan.msg[idx].src) {
        fail_msg(s, idx, "OPEN from another peer than its sender");
    }
    if (common) {
        struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
        msgr.ops->set_user(msgr.self, event->peer, event->seq, idx);
    }
    const char *wrong = weft_oracle_open(&s->msgs[idx], event, now_ns);
    if (wrong != NULL) {
        fail_msg(s, idx, wrong);
    }
}

/* The message that an event of a transfer is about; its end of it must be this host. */
static struct weft_oracle_msg *msg_of(struct swarm *s, uint32_t host,
                                      const struct weft_msg_event *event)
{
    bool known = event->user < s->plan.msgs;
    const struct weft_plan_msg *plan = known ? &s->plan.msg[event->user] : NULL;
    uint32_t end = known && event->type == WEFT_EVENT_SENT ? plan->src : known ? plan->dst : NOBODY;
    if (end != host || (event->tag & ~TAG_HIGH) != event->user) {
        weft_world_fail(s->world, "host %" PRIu32 ": an event for nobody (user %" PRIu64 ")", host,
                        event->user);
        return NULL;
    }
    return &s->msgs[event->user];
}

static void on_transfer(struct swarm *s, uint32_t host, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    struct weft_oracle_msg *msg = msg_of(s, host, event);
    if (msg == NULL) {
        return;
    }
    struct totals *totals = &s->host[host].totals;
    const char *wrong = NULL;
    bool refuse = false;
    if (event->type == WEFT_EVENT_CHUNK) {
        wrong = weft_oracle_chunk(msg, event, &refuse);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        bool ended = cut(s, host, event->peer, msg->plan->src);
        bool lost = died(s, msg->plan->src) || ended;
        s->cut_messages += ended && event->outcome == WEFT_MSG_SHORT;
        wrong = weft_oracle_received(msg, event, lost, now_ns);
        totals->received++;
        totals->received_short += event->outcome == WEFT_MSG_SHORT;
        totals->missing += event->chunks - event->received;
        totals->chunks += event->received;
        s->closed_ns = now_ns;
    } else {
        bool ended = cut(s, host, event->peer, msg->plan->dst);
        bool lost = died(s, msg->plan->dst) || ended;
        s->cut_messages += ended && event->outcome == WEFT_MSG_UNKNOWN;
        wrong = weft_oracle_sent(msg, event, lost);
        totals->unknown += event->outcome == WEFT_MSG_UNKNOWN;
        totals->sent += event->outcome != WEFT_MSG_UNKNOWN;
        s->closed_ns = now_ns;
    }
    if (wrong != NULL) {
        fail_msg(s, (uint32_t)event->user, wrong);
    }
    if (refuse) {
        struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
        msgr.ops->refuse(msgr.self, event->peer, event->seq);
    }
}

static void on_event(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct swarm *s = self;
    if (event->at_ns > now_ns) {
        weft_world_fail(s->world, "host %" PRIu32 ": an event from the future", host);
    }
    if (died(s, host)) {
        if (event->type != WEFT_EVENT_PEER_UP && event->type != WEFT_EVENT_PEER_DOWN) {
            weft_world_fail(s->world, "host %" PRIu32 ", a new process: event %d", host,
                            (int)event->type);
        }
        return;
    }
    bool again = event->type == WEFT_EVENT_PEER_UP && s->plan.closes > 0;
    if (s->draining && event->type != WEFT_EVENT_PEER_DOWN && !again) {
        weft_world_fail(s->world, "host %" PRIu32 ": event %d after everything was closed", host,
                        (int)event->type);
        return;
    }
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        on_peer_up(s, host, event);
        advance(s, host, now_ns);
        break;
    case WEFT_EVENT_PEER_DOWN:
        on_peer_down(s, host, event);
        advance(s, host, now_ns);
        break;
    case WEFT_EVENT_OPEN:
        on_open(s, host, event, now_ns);
        break;
    case WEFT_EVENT_CHUNK:
    case WEFT_EVENT_RECEIVED:
        on_transfer(s, host, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        on_transfer(s, host, event, now_ns);
        advance(s, host, now_ns); /* a slot may be free for what got WEFT_AGAIN */
        maybe_sleep(s, host, now_ns);
        break;
    }
}

/* ---- making the world ------------------------------------------------------------------------ */

static void make_host(struct swarm *s, uint32_t idx)
{
    struct swarm_host *h = &s->host[idx];
    const struct weft_plan_host *plan = &s->plan.host[idx];
    struct weft_world_host_config config = {
        .ep = plan->ep,
        .crank_delay_ns = plan->crank_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake},
    };
    if (weft_world_host_init(s->world, idx, &config) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": the endpoint refuses its configuration", idx);
        return;
    }
    h->host_of = malloc(plan->ep.peers_max * sizeof(*h->host_of));
    WEFT_ASSERT(h->host_of != NULL);
    memset(h->host_of, 0xff, plan->ep.peers_max * sizeof(*h->host_of));
    memset(h->peer_of, 0xff, sizeof(h->peer_of));
    memset(h->accepted, 0xff, sizeof(h->accepted));
    weft_world_wake(s->world, idx, 0);
}

static void make_accumulator(struct swarm *s, uint32_t host)
{
    struct swarm_host *h = &s->host[host];
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_ADD) {
            h->accumulator_bytes =
                weft_max_u64(h->accumulator_bytes, (uint64_t)plan->total * plan->elem_bytes);
        }
    }
    if (h->accumulator_bytes == 0) {
        return;
    }
    h->accumulator = malloc(h->accumulator_bytes);
    WEFT_ASSERT(h->accumulator != NULL);
    for (uint64_t i = 0; i < h->accumulator_bytes / 4; i++) {
        h->accumulator[i] = weft_oracle_float_before(i);
    }
}

static void make_messages(struct swarm *s)
{
    s->msgs = calloc(s->plan.msgs, sizeof(*s->msgs));
    s->posted = calloc(s->plan.msgs, sizeof(*s->posted));
    WEFT_ASSERT(s->msgs != NULL && s->posted != NULL);
    memset(s->posted, 0xff, s->plan.msgs * sizeof(*s->posted));
    for (uint32_t i = 0; i < s->plan.closes; i++) {
        weft_world_wake(s->world, s->plan.close[i].opener, s->plan.close[i].at_ns);
        weft_world_wake(s->world, s->plan.close[i].acceptor, s->plan.close[i].at_ns);
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        weft_oracle_msg_init(&s->msgs[i], plan, weft_mix64(s->plan.seed) + i);
        s->flows[plan->src][plan->dst] = 1;
        if (weft_world_ep(s->world, plan->src) == NULL) {
            continue;
        }
        weft_world_wake(s->world, plan->src, plan->send_ns);
        weft_world_wake(s->world, plan->dst, plan->post_ns);
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        make_accumulator(s, i);
        post_shared_hand(s, i);
    }
}

static struct swarm *swarm_new(uint64_t seed, const struct weft_world_tap *tap)
{
    struct swarm *s = calloc(1, sizeof(*s));
    WEFT_ASSERT(s != NULL);
    weft_plan_draw(seed, &s->plan);
    struct weft_world_config config = {
        .hosts = s->plan.hosts,
        .seed = weft_mix64(seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = s->plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    s->world = weft_world_new(&config);
    weft_plan_build(&s->plan, weft_world_net(s->world));
    weft_cuts_init(&s->cuts, s->plan.hosts, s->plan.host[0].ep.peers_max);
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        make_host(s, i);
    }
    if (weft_world_wrong(s->world)[0] == '\0') {
        make_messages(s);
    }
    return s;
}

static void swarm_free(struct swarm *s)
{
    weft_world_free(s->world); /* first: endpoints borrow the messages */
    for (uint32_t i = 0; s->msgs != NULL && i < s->plan.msgs; i++) {
        weft_oracle_msg_fini(&s->msgs[i]);
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        free(s->host[i].host_of);
        free(s->host[i].accumulator);
    }
    weft_cuts_fini(&s->cuts);
    free(s->posted);
    free(s->msgs);
    free(s);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* NULL when nothing more is owed to this message, else what it waits for. */
static const char *msg_waits(const struct swarm *s, const struct weft_oracle_msg *msg)
{
    /* Given up before a chunk came, by the sender's deadline or with the connection. */
    bool nothing = msg->sent && msg->sent_received == 0 &&
                   (msg->sent_outcome == WEFT_MSG_SHORT || s->plan.closes > 0);
    if (!died(s, msg->plan->src) && msg->queued && !msg->sent) {
        return "waits for SENT";
    }
    if (!msg->queued && !died(s, msg->plan->src) && !died(s, msg->plan->dst)) {
        return "was never queued";
    }
    if (died(s, msg->plan->dst) || msg->received) {
        return NULL;
    }
    if (msg->opened) {
        return "waits for RECEIVED";
    }
    return died(s, msg->plan->src) || nothing ? NULL : "was never opened";
}

/* A death that somebody looks for, by asking or by the sleep time-out, is known to all who were
 * connected. */
static bool holds_the_dead(const struct swarm *s, uint32_t host)
{
    for (uint32_t i = 0; s->plan.watched && i < s->plan.host[host].ep.peers_max; i++) {
        if (s->host[host].host_of[i] == s->plan.victim) {
            return true;
        }
    }
    return false;
}

/* True when all is closed; else, if asked, the first failure says what is not. */
static bool all_closed(struct swarm *s, bool complain)
{
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const char *waits = msg_waits(s, &s->msgs[i]);
        if (waits != NULL) {
            if (complain) {
                fail_msg(s, i, waits);
            }
            return false;
        }
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        if (!died(s, i) && holds_the_dead(s, i)) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " does not notice a death", i);
            }
            return false;
        }
        if (s->host[i].anew) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " did not get through anew", i);
            }
            return false;
        }
        if (!died(s, i) && weft_ep_busy(weft_world_ep(s->world, i))) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " is busy although all is closed", i);
            }
            return false;
        }
    }
    return true;
}

static void check_accumulator(struct swarm *s, uint32_t host)
{
    const struct swarm_host *h = &s->host[host];
    uint64_t count = h->accumulator_bytes / 4;
    float *sums = malloc(h->accumulator_bytes);
    WEFT_ASSERT(sums != NULL);
    for (uint64_t i = 0; i < count; i++) {
        sums[i] = weft_oracle_float_before(i);
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_ADD) {
            weft_oracle_accumulate(&s->msgs[i], sums);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        if (sums[i] != h->accumulator[i]) {
            weft_world_fail(s->world, "host %" PRIu32 ": accumulator[%" PRIu64 "] is %g, not %g",
                            host, i, (double)h->accumulator[i], (double)sums[i]);
            break;
        }
    }
    free(sums);
}

static void check_counter(struct swarm *s, uint32_t host, const char *name, uint64_t counted,
                          uint64_t seen)
{
    if (counted != seen) {
        weft_world_fail(s->world,
                        "host %" PRIu32 ": counter %s is %" PRIu64 ", but %" PRIu64 " were seen",
                        host, name, counted, seen);
    }
}

static void check_counters(struct swarm *s, uint32_t host)
{
    const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, host));
    const struct weft_world_host_counters *w = weft_world_counters(s->world, host);
    const struct totals *t = &s->host[host].totals;
    check_counter(s, host, "datagrams_received", c->datagrams_received, w->packets_received);
    check_counter(s, host, "bytes_received", c->bytes_received, w->bytes_received);
    check_counter(s, host, "datagrams_sent", c->datagrams_sent, w->packets_sent);
    check_counter(s, host, "bytes_sent", c->bytes_sent, w->bytes_sent);
    check_counter(s, host, "messages_sent", c->messages_sent, t->sent);
    check_counter(s, host, "messages_unknown", c->messages_unknown, t->unknown);
    check_counter(s, host, "messages_received", c->messages_received, t->received);
    check_counter(s, host, "messages_short", c->messages_short, t->received_short);
    check_counter(s, host, "chunks_missing", c->chunks_missing, t->missing);
    check_counter(s, host, "data_received", c->data_received, t->chunks);
}

static void check_end(struct swarm *s)
{
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_oracle_msg *msg = &s->msgs[i];
        /* Of a receiver that died with the message open, nobody knows the mask. */
        const char *wrong =
            msg->received || !died(s, msg->plan->dst) ? weft_oracle_memory(msg) : NULL;
        if (wrong != NULL) {
            fail_msg(s, i, wrong);
        }
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        if (died(s, i)) {
            continue;
        }
        check_counters(s, i);
        if (s->host[i].accumulator != NULL) {
            check_accumulator(s, i);
        }
    }
    const char *wrong = weft_net_check(weft_world_net(s->world), true);
    if (wrong != NULL) {
        weft_world_fail(s->world, "%s", wrong);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool run_until(struct swarm *s, uint64_t until_ns)
{
    enum weft_world_end end = weft_world_run(s->world, until_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(s->world, "%d events were not enough", STEPS_MAX);
    }
    return end != WEFT_WORLD_BROKEN && end != WEFT_WORLD_STEPS;
}

/* The victim's process is replaced by one that knows nothing. */
static void rebirth(struct swarm *s)
{
    uint32_t victim = s->plan.victim;
    struct weft_world_host_config config = {
        .ep = s->plan.host[victim].ep,
        .crank_delay_ns = s->plan.host[victim].crank_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = on_event, .wake = on_wake},
    };
    config.ep.incarnation++;
    config.ep.seed++;
    s->reborn = true;
    if (weft_world_restart(s->world, victim, &config) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": the endpoint refuses its configuration",
                        victim);
    }
}

static void happen_to_victim(struct swarm *s)
{
    if (s->plan.reborn) {
        rebirth(s);
    } else {
        weft_world_kill(s->world, s->plan.victim);
    }
}

static void happen_shrink(struct swarm *s)
{
    uint32_t host = s->plan.shrinker;
    for (uint32_t d = 0; d < 2; d++) {
        struct weft_net_link_config link = s->plan.host[host].links[d];
        link.mtu_bytes = s->plan.mtu_bytes;
        weft_net_link_set(weft_world_net(s->world), host, (enum weft_net_dir)d, &link);
    }
}

static void happen_move(struct swarm *s)
{
    weft_world_move(s->world, s->plan.mover);
}

static void happen_heal(struct swarm *s)
{
    weft_net_heal(weft_world_net(s->world));
}

/* What happens to the whole world, in the order of the times. */
static bool run_faults(struct swarm *s)
{
    const struct weft_plan *plan = &s->plan;
    struct {
        uint64_t at_ns;
        void (*happen)(struct swarm *);
    } faults[] = {
        {plan->heal_ns, happen_heal},
        {plan->victim != NOBODY ? plan->kill_ns : WEFT_NEVER, happen_to_victim},
        {plan->shrinker != NOBODY ? plan->shrink_ns : WEFT_NEVER, happen_shrink},
        {plan->mover != NOBODY ? plan->move_ns : WEFT_NEVER, happen_move},
    };
    for (;;) {
        size_t next = 0;
        for (size_t i = 1; i < WEFT_ARRAY_COUNT(faults); i++) {
            next = faults[i].at_ns < faults[next].at_ns ? i : next;
        }
        if (faults[next].at_ns == WEFT_NEVER) {
            return true;
        }
        if (!run_until(s, faults[next].at_ns)) {
            return false;
        }
        faults[next].at_ns = WEFT_NEVER;
        faults[next].happen(s);
    }
}

static void swarm_run(struct swarm *s)
{
    if (!run_faults(s)) {
        return;
    }
    uint64_t at_ns = weft_max_u64(s->plan.heal_ns, s->plan.kill_ns);
    at_ns = weft_max_u64(at_ns, weft_max_u64(s->plan.shrink_ns, s->plan.move_ns));
    while (!all_closed(s, false)) {
        if (at_ns > s->plan.limit_ns || weft_net_next_ns(weft_world_net(s->world)) == WEFT_NEVER) {
            (void)all_closed(s, true);
            return;
        }
        at_ns += look_ns;
        if (!run_until(s, at_ns)) {
            return;
        }
    }
    uint64_t finish_ns = weft_finish_ns(&s->plan);
    if (s->closed_ns > finish_ns) {
        weft_world_fail(s->world,
                        "the last message was closed at %" PRIu64 " ns, which is later than %" PRIu64
                        ": too slow", s->closed_ns, finish_ns);
    }
    s->draining = true;
    if (run_until(s, at_ns + drain_ns)) {
        check_end(s);
    }
}

static void run_messages(uint64_t seed, const struct weft_world_tap *tap,
                         struct weft_swarm_result *result_p)
{
    struct swarm *s = swarm_new(seed, tap);
    if (weft_world_wrong(s->world)[0] == '\0') {
        swarm_run(s);
    }
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(s->world)[0] == '\0',
        .trace_hash = weft_world_hash(s->world),
        .steps = weft_world_steps(s->world),
        .virtual_ns = s->closed_ns,
        .messages = s->plan.msgs,
        .cut = s->cut,
        .cut_messages = s->cut_messages,
        .noticed = s->noticed,
    };
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        result_p->packets += weft_world_counters(s->world, i)->packets_sent;
        result_p->path_changes += c->path_changes;
        result_p->black_holes += c->mtu_black_holes;
        result_p->sizes_raised += c->mtu_raised;
        result_p->ecn_failed += c->ecn_failed;
    }
    weft_plan_describe(&s->plan, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(s->world));
    swarm_free(s);
}

void weft_swarm_run(uint64_t seed, const struct weft_world_tap *tap,
                    struct weft_swarm_result *result_p)
{
    if (seed % PS_EVERY == 0) {
        weft_swarm_ps_run(seed, tap, result_p);
    } else {
        run_messages(seed, tap, result_p);
    }
}

uint64_t weft_swarm_combine(uint64_t hash, const struct weft_swarm_result *result)
{
    hash = weft_sim_hash_u64(hash, result->seed);
    hash = weft_sim_hash_u64(hash, result->ok);
    return weft_sim_hash_u64(hash, result->trace_hash);
}
