/* Handling of endpoint events by a host of a swarm, and checks for events that must not occur. */
#include "sim/swarm_internal.h"

#include <inttypes.h>

static void on_peer_up(struct swarm *s, uint32_t host, const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    uint64_t other = event->name - WEFT_PLAN_NAME_FIRST;
    bool named = event->name >= WEFT_PLAN_NAME_FIRST && other < s->plan.hosts;
    /* The victim's new process has the next incarnation. */
    uint64_t restarts = named ? event->incarnation - s->plan.host[other].ep.incarnation : 0;
    bool may_restart = s->reborn && other == s->plan.victim;
    if (!named || restarts > may_restart) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_UP with a wrong name or incarnation",
                        host);
        return;
    }
    if (restarts == 1) {
        h->reconnecting = false;
        if (h->peer_of[other] == event->peer) {
            /* The handshake began with the old process and was completed by the new one, to which
             * the plan has no messages. */
            weft_ep_close(weft_world_ep(s->world, host), event->peer, event->at_ns);
        }
    }
    if (h->host_of[event->peer] == NOBODY) { /* accepted */
        h->host_of[event->peer] = (uint32_t)other;
        h->accepted[other] = event->peer;
        weft_cuts_made(&s->cuts, host, event->peer, (uint32_t)other, false);
        if (h->peer_of[other] == NOBODY && !swarm_connects(s, host, (uint32_t)other)) {
            h->peer_of[other] = event->peer;
        }
    } else if (h->host_of[event->peer] != other) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_UP with another host's name", host);
    }
}

/* As a higher layer does when its server restarts: connect at once. */
static void reconnect(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns)
{
    struct weft_addr addr = weft_world_addr(to);
    weft_peer peer;
    if (weft_ep_connect(weft_world_ep(s->world, host), &addr, now_ns, &peer) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 " cannot reconnect to %" PRIu32, host, to);
        return;
    }
    s->host[host].host_of[peer] = to;
    weft_cuts_made(&s->cuts, host, peer, to, true);
    s->host[host].reconnecting = true;
}

/* A connection that the plan has closed has ended at this host. The host that opened it opens a new
 * one. */
static void replace_cut(struct swarm *s, uint32_t host, uint32_t other,
                        const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    s->cut++;
    weft_cuts_ended(&s->cuts, host, event->peer, other);
    weft_swarm_take_back(s, host, event->peer);
    if (h->accepted[other] == event->peer) {
        h->accepted[other] = NOBODY;
    }
    if (h->peer_of[other] != event->peer) {
        return;
    }
    /* The next one may already be up, because the event for the end of this one was delayed. */
    h->peer_of[other] = swarm_connects(s, host, other) ? NOBODY : h->accepted[other];
    if (swarm_connects(s, host, other) && !s->draining) {
        weft_swarm_connect(s, host, other, event->at_ns);
    }
}

static bool down_allowed(const struct swarm *s, uint32_t host, uint32_t other,
                         const struct weft_msg_event *event)
{
    bool restarted = event->down == WEFT_DOWN_RESTARTED;
    bool closed_here = event->down == WEFT_DOWN_LOCAL;
    bool silent = event->down == WEFT_DOWN_SILENT;
    if (swarm_may_end(s, host, event->peer, other)) {
        return restarted || closed_here || silent || event->down == WEFT_DOWN_CLOSED;
    }
    return other != NOBODY && swarm_died(s, other) &&
           (silent || (s->reborn && (restarted || closed_here)));
}

/* A peer may go down only if it died or the plan closed the connection, and only after its messages
 * were closed. */
static void on_peer_down(struct swarm *s, uint32_t host, const struct weft_msg_event *event)
{
    struct swarm_host *h = &s->host[host];
    uint32_t other = h->host_of[event->peer];
    bool restarted = s->reborn && event->down == WEFT_DOWN_RESTARTED;
    if (!down_allowed(s, host, other, event)) {
        weft_world_fail(s->world, "host %" PRIu32 ": PEER_DOWN (%d) of live host %" PRIu32, host,
                        (int)event->down, other);
        return;
    }
    h->host_of[event->peer] = NOBODY;
    h->streams[event->peer] = (struct weft_oracle_streams){0}; /* the next connection starts from
                                                                * zero */
    bool mine = h->peer_of[other] == event->peer;
    if ((restarted || h->reconnecting) && swarm_connects(s, host, other) && !s->draining) {
        reconnect(s, host, other, event->at_ns);
    }
    if (swarm_may_end(s, host, event->peer, other)) {
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
            weft_swarm_fail_msg(s, i, "PEER_DOWN came before its SENT");
        }
        if (msg->plan->src == other && msg->plan->dst == host && msg->opened &&
            msg->opened_peer == event->peer && !msg->received) {
            weft_swarm_fail_msg(s, i, "PEER_DOWN came before its RECEIVED");
        }
    }
}

static void on_open(struct swarm *s, uint32_t host, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    uint32_t idx = (uint32_t)(event->tag & ~TAG_HIGH);
    bool common = event->user == USER_SHARED + host;
    if (idx >= s->plan.msgs || s->plan.msg[idx].dst != host || (!common && event->user != idx)) {
        weft_world_fail(s->world, "host %" PRIu32 ": OPEN of no message (user %" PRIu64 ")", host,
                        event->user);
        return;
    }
    if (s->host[host].host_of[event->peer] != s->plan.msg[idx].src) {
        weft_swarm_fail_msg(s, idx, "OPEN from a peer that is not its sender");
    }
    if (common) {
        struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
        msgr.ops->set_user(msgr.self, event->peer, event->seq, idx);
    }
    const char *wrong = weft_oracle_open(&s->msgs[idx], event, now_ns);
    if (wrong != NULL) {
        weft_swarm_fail_msg(s, idx, wrong);
    }
}

/* The message of a CHUNK, RECEIVED or SENT. This host must be its sender for SENT, else its
 * receiver. */
static struct weft_oracle_msg *msg_of(struct swarm *s, uint32_t host,
                                      const struct weft_msg_event *event)
{
    bool known = event->user < s->plan.msgs;
    const struct weft_plan_msg *plan = known ? &s->plan.msg[event->user] : NULL;
    uint32_t end = known && event->type == WEFT_EVENT_SENT ? plan->src : known ? plan->dst : NOBODY;
    if (end != host || (event->tag & ~TAG_HIGH) != event->user) {
        weft_world_fail(s->world, "host %" PRIu32 ": event of no message (user %" PRIu64 ")", host,
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
    struct swarm_totals *totals = &s->host[host].totals;
    const char *wrong = NULL;
    bool refuse = false;
    if (event->type == WEFT_EVENT_CHUNK) {
        wrong = weft_oracle_chunk(msg, event, &refuse);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        bool ended = swarm_may_end(s, host, event->peer, msg->plan->src);
        bool lost = swarm_died(s, msg->plan->src) || ended;
        s->cut_messages += ended && event->outcome == WEFT_MSG_SHORT;
        wrong = weft_oracle_received(msg, event, lost, now_ns);
        totals->received++;
        totals->received_short += event->outcome == WEFT_MSG_SHORT;
        totals->missing += event->chunks - event->received;
        totals->chunks += event->received;
        s->closed_ns = now_ns;
    } else {
        bool ended = swarm_may_end(s, host, event->peer, msg->plan->dst);
        bool lost = swarm_died(s, msg->plan->dst) || ended;
        s->cut_messages += ended && event->outcome == WEFT_MSG_UNKNOWN;
        wrong = weft_oracle_sent(msg, event, lost);
        totals->unknown += event->outcome == WEFT_MSG_UNKNOWN;
        totals->sent += event->outcome != WEFT_MSG_UNKNOWN;
        s->closed_ns = now_ns;
    }
    if (wrong != NULL) {
        weft_swarm_fail_msg(s, (uint32_t)event->user, wrong);
    }
    if (refuse) {
        struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(s->world, host));
        msgr.ops->refuse(msgr.self, event->peer, event->seq);
    }
}

void weft_swarm_on_event(void *self, uint32_t host, const struct weft_msg_event *event,
                         uint64_t now_ns)
{
    struct swarm *s = self;
    if (event->at_ns > now_ns) {
        weft_world_fail(s->world, "host %" PRIu32 ": an event from the future", host);
    }
    if (swarm_died(s, host)) {
        if (event->type != WEFT_EVENT_PEER_UP && event->type != WEFT_EVENT_PEER_DOWN) {
            weft_world_fail(s->world,
                            "host %" PRIu32 ": event %d at the new process, which has no messages",
                            host, (int)event->type);
        }
        return;
    }
    /* A connection that replaces one that the plan has closed may come up late. */
    bool is_replacement = event->type == WEFT_EVENT_PEER_UP && s->plan.closes > 0;
    if (s->draining && event->type != WEFT_EVENT_PEER_DOWN && !is_replacement) {
        weft_world_fail(s->world, "host %" PRIu32 ": event %d after everything was closed", host,
                        (int)event->type);
        return;
    }
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        on_peer_up(s, host, event);
        weft_swarm_advance(s, host, now_ns);
        break;
    case WEFT_EVENT_PEER_DOWN:
        on_peer_down(s, host, event);
        weft_swarm_advance(s, host, now_ns);
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
        weft_swarm_advance(s, host, now_ns); /* there may be room now for calls that returned
                                              * WEFT_AGAIN */
        weft_swarm_maybe_sleep(s, host, now_ns);
        break;
    }
}
