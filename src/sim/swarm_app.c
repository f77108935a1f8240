/* The applications of a swarm's hosts: connect, post, send, sleep, close. */
#include "sim/swarm_internal.h"

#include <inttypes.h>

/* Minimum sleep of a caller-driven host. */
static const uint64_t nap_ns_min = WEFT_NS_PER_MS;

void weft_swarm_fail_msg(struct swarm *s, uint32_t idx, const char *wrong)
{
    static const char *const sinks[] = {"COPY", "ADD", "EVENT"};
    const struct weft_plan_msg *m = &s->plan.msg[idx];
    weft_world_fail(s->world,
                    "message %" PRIu32 " (%" PRIu32 " -> %" PRIu32 ", %s%s, N %" PRIu32
                    ", K %" PRIu32 ", critical %u): %s",
                    idx, m->src, m->dst, sinks[m->sink], m->shared ? " shared" : "", m->chunks,
                    s->msgs[idx].lost_max, m->critical, wrong);
}

void weft_swarm_connect(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns)
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
    weft_world_sleep(s->world, host, 0); /* a host that has just connected does not leave yet */
}

static void post(struct swarm *s, uint32_t idx)
{
    struct weft_oracle_msg *msg = &s->msgs[idx];
    const struct weft_plan_msg *plan = msg->plan;
    struct swarm_host *h = &s->host[plan->dst];
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, plan->dst));
    /* Crossing connections are two: messages arrive over the one that their sender uses. */
    bool theirs = swarm_connects(s, plan->src, plan->dst);
    uint32_t peer = theirs ? h->accepted[plan->src] : h->peer_of[plan->src];
    struct weft_msg_expect expect = {
        .peer = plan->any_peer || peer == NOBODY ? WEFT_PEER_ANY : peer,
        .sink = plan->sink,
        .tag = TAG_PRIVATE | idx,
        .tag_mask = UINT64_MAX,
        .memory = msg->memory,
        .memory_bytes = plan->sink == WEFT_SINK_EVENT
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
        weft_swarm_fail_msg(s, idx, "expect refuses");
    }
}

void weft_swarm_take_back(struct swarm *s, uint32_t host, uint32_t peer)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        struct weft_oracle_msg *msg = &s->msgs[i];
        if (msg->plan->dst != host || !msg->posted || msg->opened || s->posted[i].peer != peer) {
            continue;
        }
        if (msgr.ops->cancel(msgr.self, s->posted[i].id) != WEFT_OK) {
            weft_swarm_fail_msg(s, i, "what was posted for it cannot be cancelled");
        }
        msg->posted = false;
        s->posted[i].peer = NOBODY;
    }
}

void weft_swarm_post_shared(struct swarm *s, uint32_t host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_EVENT) {
            s->msgs[i].posted = true;
            count++;
        }
    }
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
    struct weft_msg_expect expect = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_EVENT,
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
    if (h->down[plan->dst] || (s->reborn && swarm_died(s, plan->dst))) {
        msg->gone = true; /* a new process waits for no message */
        return;
    }
    if (h->peer_of[plan->dst] == NOBODY) {
        if (!swarm_connects(s, plan->src, plan->dst) || h->connecting[plan->dst]) {
            return; /* the other end connects; retried at PEER_UP */
        }
        weft_swarm_connect(s, plan->src, plan->dst, now_ns);
    }
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, plan->src));
    uint32_t peer = h->peer_of[plan->dst];
    bool common = plan->shared && plan->sink == WEFT_SINK_EVENT;
    struct weft_msg_send send = {
        .peer = peer,
        .base = msg->lent,
        .total = plan->total,
        .elem_bytes = plan->elem_bytes,
        .chunk_elems = (uint16_t)plan->chunk_elems,
        .critical = plan->critical,
        .priority = plan->priority,
        .bound_ppm = plan->bound_ppm,
        .stream = plan->stream,
        .tag = (common ? TAG_SHARED : TAG_PRIVATE) | idx,
        .deadline_ns = plan->deadline_ns,
        .user = idx,
    };
    /* A path whose size has shrunk, or is still being probed, carries less than the plan's chunk
     * size. */
    bool full = weft_ep_packet_bytes(weft_world_ep(s->world, plan->src), peer) ==
                s->plan.host[plan->src].ep.packet_bytes;
    if (full && msgr.ops->chunk_elems(msgr.self, peer, plan->elem_bytes) != plan->chunk_elems) {
        weft_swarm_fail_msg(s, idx, "chunk_elems differs from docs/PROTOCOL.md");
    }
    uint64_t seq;
    weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &seq);
    if (status == WEFT_OK) {
        weft_oracle_queued(msg, &h->streams[peer], seq);
    }
    /* A peer is down before its PEER_DOWN is polled, because the SENTs of its messages come
     * first. */
    bool dead = status == WEFT_PEER &&
                (swarm_died(s, plan->dst) || swarm_may_end(s, plan->src, peer, plan->dst));
    if (status != WEFT_OK && status != WEFT_AGAIN && !dead) {
        weft_swarm_fail_msg(s, idx, weft_status_name(status));
    }
}

void weft_swarm_advance(struct swarm *s, uint32_t host, uint64_t now_ns)
{
    for (uint32_t i = 0; i < s->plan.msgs && !swarm_died(s, host); i++) {
        struct weft_oracle_msg *msg = &s->msgs[i];
        if (msg->plan->dst == host && !msg->posted && msg->plan->post_ns <= now_ns) {
            post(s, i);
        }
        if (msg->plan->src == host && !msg->queued && !msg->gone && msg->plan->send_ns <= now_ns) {
            queue(s, i, now_ns);
        }
    }
}

void weft_swarm_maybe_sleep(struct swarm *s, uint32_t host, uint64_t now_ns)
{
    uint64_t next_ns = WEFT_NEVER;
    if (!s->plan.host[host].caller_driven || s->draining || swarm_died(s, host)) {
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

/* Close the connections that the plan requires this host to have closed by now. */
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

void weft_swarm_on_wake(void *self, uint32_t host, uint64_t now_ns)
{
    struct swarm *s = self;
    close_due(s, host, now_ns);
    weft_swarm_advance(s, host, now_ns);
    weft_swarm_maybe_sleep(s, host, now_ns);
}
