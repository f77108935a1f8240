/* A transport in memory for tests of the layers above it: a few nodes, and messages of chunks,
 * delivered one chunk per step in random order, with losses up to the bound. It fulfils the
 * contract of core/msg.h, and asserts that its users do. One seed determines everything.
 *
 * Not a model of a network: no acknowledgements, no timing beyond one tick per step. */
#ifndef WEFT_TESTS_FAKE_MSGR_H
#define WEFT_TESTS_FAKE_MSGR_H

#include "../lib/posted.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

enum {
    FAKE_NODES = 8,
    FAKE_MESSAGES = 256,
    FAKE_EXPECTS = 512,
    FAKE_EVENTS = 512,
    FAKE_WORDS = 160
};

struct fake_message {
    bool live;
    bool open;         /* an expectation matches */
    bool held;         /* held by the test or by its sender */
    uint64_t start_ns; /* start of its pace */
    uint64_t rate_bps;
    uint8_t group;
    uint64_t next_ns;  /* net->paces: its next chunk arrives at this time or later */
    uint8_t rank;
    uint32_t from, to; /* nodes */
    struct weft_msg_send send;
    uint64_t seq;
    uint64_t begun_ns; /* as in its SENT event */
    uint32_t chunk_elems, chunks, left;
    uint64_t todo[FAKE_WORDS]; /* chunks that will still arrive */
    uint64_t mask[FAKE_WORDS];
    uint32_t received, refused;
    uint64_t user; /* the receiver's */
    enum weft_msg_sink sink;
    uint8_t *memory;
    uint64_t until_ns; /* timeout of its expectation; 0 = none */
};

struct fake_net;

struct fake_node {
    struct fake_net *net;
    uint32_t index;
    bool dead;
    uint64_t name;
    uint64_t incarnation; /* 0 = a new one at each connection */
    struct posted expects[FAKE_EXPECTS];
    struct weft_msg_event events[FAKE_EVENTS];
    uint64_t masks[FAKE_EVENTS][FAKE_WORDS];
    uint32_t events_head, events_tail;
};

struct fake_net {
    struct weft_prng prng;
    uint64_t now_ns;
    uint64_t seq;
    uint64_t expect_id;
    uint32_t loss_ppm;        /* loss of chunks, within the bound */
    bool paces;               /* chunks arrive at the rates of their messages. If no other message
                               * can move, time passes until the next chunk of a paced one */
    bool carries;             /* the rest of a message's bound goes to the next message of its
                               * sender to this receiver; all are one stream */
    uint64_t rest[FAKE_NODES][FAKE_NODES]; /* in 10^-6 elements */
    uint32_t packet_bytes;    /* room for a chunk */
    uint32_t chunk_bytes_max; /* limit of the chunks of a caller's layout; 0 = none */
    uint8_t invalid_op;       /* sends with this op return INVALID; 0 = none */
    uint32_t expects_max;     /* limit for the nodes from expects_limited_from on */
    uint32_t expects_limited_from;
    uint32_t msgs_max;
    bool cut[FAKE_NODES][FAKE_NODES]; /* the two nodes are not connected: fake_break */
    uint64_t sent_bytes[FAKE_NODES];  /* total bytes of its messages */
    uint64_t came_bytes[FAKE_NODES][FAKE_NODES]; /* from one node to another: of their chunks */
    uint64_t held_until_ns[FAKE_NODES]; /* nothing of its messages arrives before */
    uint64_t unmatched;               /* steps in which a message found no memory */
    uint8_t *chunk;                   /* the copy that CHUNK pointed to */
    struct fake_message messages[FAKE_MESSAGES];
    struct fake_node nodes[FAKE_NODES];
};

/* All nodes use the same peer number for a node: its index + 10. */
static inline weft_peer fake_peer(uint32_t node)
{
    return node + 10;
}

static inline uint64_t fake_clock_ns(void *arg)
{
    struct fake_net *net = arg;
    return net->now_ns += 7; /* every reading advances the clock */
}

static inline struct weft_msg_event *fake_event(struct fake_node *node,
                                                enum weft_msg_event_type type)
{
    WEFT_ASSERT(node->events_tail - node->events_head < FAKE_EVENTS);
    struct weft_msg_event *event = &node->events[node->events_tail++ % FAKE_EVENTS];
    *event = (struct weft_msg_event){.type = type, .at_ns = node->net->now_ns};
    return event;
}

static inline void fake_event_grid(struct fake_node *node, struct weft_msg_event *event,
                                   const struct fake_message *m, bool at_sender)
{
    event->peer = fake_peer(at_sender ? m->to : m->from);
    event->user = at_sender ? m->send.user : m->user;
    event->seq = m->seq;
    event->tag = m->send.tag;
    event->total = m->send.total;
    event->chunk_elems = (uint16_t)m->chunk_elems;
    event->elem_bytes = m->send.elem_bytes;
    event->chunks = m->chunks;
    event->received = m->received;
    event->refused = m->refused;
    uint64_t *mask = node->masks[event - node->events];
    memcpy(mask, m->mask, sizeof(m->mask));
    event->mask = mask;
}

static inline uint32_t fake_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct fake_node *node = self;
    (void)peer;
    uint32_t elems = node->net->packet_bytes / elem_bytes;
    return elems >= 32 ? elems / 32 * 32 : elems;
}

static inline weft_status fake_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                                    uint64_t *seq_p)
{
    struct fake_node *node = self;
    struct fake_net *net = node->net;
    (void)now_ns;
    uint32_t to = send->peer - 10, elems = fake_chunk_elems(self, send->peer, send->elem_bytes);
    WEFT_ASSERT(send->total >= 1 && send->bound_ppm < WEFT_PPM && send->base != NULL);
    if (to >= FAKE_NODES || net->nodes[to].dead || node->dead || net->cut[node->index][to]) {
        return WEFT_PEER;
    }
    if (elems == 0 || (net->invalid_op != 0 && send->tag >> 56 == net->invalid_op) ||
        (net->chunk_bytes_max > 0 &&
         (uint32_t)send->chunk_elems * send->elem_bytes > net->chunk_bytes_max)) {
        return WEFT_INVALID;
    }
    struct fake_message *m = NULL;
    uint32_t open = 0;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        open += net->messages[i].live && net->messages[i].from == node->index &&
                net->messages[i].to == to;
        if (!net->messages[i].live) {
            m = &net->messages[i];
        }
    }
    if (m == NULL || open >= net->msgs_max) {
        return WEFT_AGAIN;
    }
    *m = (struct fake_message){
        .live = true, .held = send->held, .from = node->index, .to = to, .send = *send};
    m->seq = *seq_p = ++net->seq;
    m->begun_ns = net->now_ns;
    net->sent_bytes[node->index] += (uint64_t)send->total * send->elem_bytes;
    m->chunk_elems = send->chunk_elems > 0 ? send->chunk_elems : elems;
    elems = m->chunk_elems;
    m->chunks = (send->total + elems - 1) / elems;
    WEFT_ASSERT(m->chunks <= FAKE_WORDS * 64);
    uint64_t parts = (uint64_t)send->bound_ppm * send->total;
    if (net->carries && send->bound_ppm > 0) {
        parts += net->rest[node->index][to];
        net->rest[node->index][to] = parts % ((uint64_t)elems * WEFT_PPM);
    }
    uint64_t lose = parts / elems / WEFT_PPM;
    lose = lose >= m->chunks ? m->chunks - 1 : lose;
    for (uint32_t c = 0; c < m->chunks; c++) {
        bool must = c < send->critical ||
                    (send->critical_mask != NULL && weft_bits_test(send->critical_mask, c));
        if (!must && lose > 0 && weft_prng_chance(&net->prng, net->loss_ppm)) {
            lose--;
            continue;
        }
        weft_bits_set(m->todo, c);
        m->left++;
    }
    return WEFT_OK;
}

static inline weft_status fake_expect(void *self, const struct weft_msg_expect *expect,
                                      weft_expect_id *id_p)
{
    struct fake_node *node = self;
    WEFT_ASSERT(expect->count >= 1 && (expect->sink == WEFT_SINK_EVENT || expect->count == 1));
    bool limited = node->index >= node->net->expects_limited_from;
    const weft_expect_id id = node->net->expect_id + 1;
    weft_status status =
        posted_add(node->expects, limited ? node->net->expects_max : FAKE_EXPECTS, expect, id);
    if (status == WEFT_OK) {
        *id_p = node->net->expect_id = id;
    }
    return status;
}

static inline weft_status fake_cancel(void *self, weft_expect_id id)
{
    struct fake_node *node = self;
    return posted_cancel(node->expects, FAKE_EXPECTS, id);
}

static inline struct fake_message *fake_find(struct fake_net *net, uint64_t seq)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        if (net->messages[i].live && net->messages[i].seq == seq) {
            return &net->messages[i];
        }
    }
    return NULL;
}

/* Also updates the events since OPEN that are not polled yet. */
static inline void fake_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct fake_node *node = self;
    struct fake_message *m = fake_find(node->net, seq);
    if (m != NULL) {
        WEFT_ASSERT(fake_peer(m->from) == peer && m->to == node->index);
        m->user = user;
    }
    for (uint32_t i = node->events_head; i != node->events_tail; i++) {
        struct weft_msg_event *event = &node->events[i % FAKE_EVENTS];
        bool incoming = event->type == WEFT_EVENT_CHUNK || event->type == WEFT_EVENT_RECEIVED;
        if (incoming && event->seq == seq) {
            event->user = user;
        }
    }
}

static inline void fake_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct fake_node *node = self;
    struct fake_message *m = fake_find(node->net, seq);
    WEFT_ASSERT(m != NULL && fake_peer(m->from) == peer && m->to == node->index);
    m->refused++;
}

static inline void fake_close(struct fake_net *net, struct fake_message *m,
                              enum weft_msg_outcome outcome)
{
    if (m->open && !net->nodes[m->to].dead) {
        struct weft_msg_event *event = fake_event(&net->nodes[m->to], WEFT_EVENT_RECEIVED);
        fake_event_grid(&net->nodes[m->to], event, m, false);
        event->outcome = outcome == WEFT_MSG_UNKNOWN ? WEFT_MSG_SHORT : outcome;
        event->sender_gone = outcome == WEFT_MSG_UNKNOWN;
    }
    if (!net->nodes[m->from].dead) {
        struct weft_msg_event *event = fake_event(&net->nodes[m->from], WEFT_EVENT_SENT);
        fake_event_grid(&net->nodes[m->from], event, m, true);
        event->outcome = outcome;
        event->begun_ns = m->begun_ns;
    }
    m->live = false;
}

static inline weft_status fake_pace(void *self, weft_peer peer, uint64_t seq,
                                    const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct fake_node *node = self;
    struct fake_message *m = fake_find(node->net, seq);
    (void)now_ns;
    if (m == NULL || m->from != node->index || fake_peer(m->to) != peer) {
        return WEFT_NOTFOUND;
    }
    if (!m->send.held) {
        return WEFT_INVALID;
    }
    m->held = false;
    m->start_ns = pace->start_ns;
    m->rate_bps = pace->rate_bps;
    m->group = pace->group;
    m->rank = pace->rank;
    return WEFT_OK;
}

static inline weft_status fake_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct fake_node *node = self;
    struct fake_message *m = fake_find(node->net, seq);
    (void)now_ns;
    if (m == NULL || m->from != node->index || fake_peer(m->to) != peer) {
        return WEFT_NOTFOUND;
    }
    if (!m->send.held || m->received > 0) {
        return WEFT_STATE;
    }
    fake_close(node->net, m, WEFT_MSG_WITHDRAWN);
    return WEFT_OK;
}

static inline bool fake_poll(void *self, struct weft_msg_event *event_p)
{
    struct fake_node *node = self;
    if (node->events_head == node->events_tail) {
        return false;
    }
    *event_p = node->events[node->events_head++ % FAKE_EVENTS];
    return true;
}

static inline bool fake_match(struct fake_net *net, struct fake_message *m)
{
    struct fake_node *node = &net->nodes[m->to];
    for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
        struct posted *e = &node->expects[i];
        if (!e->live || (e->expect.peer != WEFT_PEER_ANY && e->expect.peer != fake_peer(m->from)) ||
            (m->send.tag & e->expect.tag_mask) != e->expect.tag ||
            (uint64_t)m->send.total * m->send.elem_bytes > e->expect.memory_bytes) {
            continue;
        }
        m->open = true;
        m->user = e->expect.user;
        m->sink = e->expect.sink;
        m->memory = e->expect.memory;
        m->until_ns = e->expect.until_ns;
        e->live = --e->expect.count > 0;
        fake_event_grid(node, fake_event(node, WEFT_EVENT_OPEN), m, false);
        return true;
    }
    net->unmatched++;
    return false;
}

/* A chunk has arrived: the next one of its message, or of the messages of its group, is later. */
static inline void fake_paced(struct fake_net *net, struct fake_message *m, size_t bytes)
{
    if (!net->paces || m->rate_bps == 0) {
        return;
    }
    m->next_ns = weft_max_u64(m->next_ns, net->now_ns) + bytes * 8 * WEFT_NS_PER_S / m->rate_bps;
    for (uint32_t i = 0; m->group > 0 && i < FAKE_MESSAGES; i++) {
        struct fake_message *other = &net->messages[i];
        if (other->live && other->from == m->from && other->to == m->to &&
            other->group == m->group) {
            other->next_ns = m->next_ns;
        }
    }
}

static inline void fake_deliver(struct fake_net *net, struct fake_message *m, uint32_t c)
{
    struct fake_node *node = &net->nodes[m->to];
    uint32_t elems = (uint32_t)weft_min_u64(m->chunk_elems, m->send.total - c * m->chunk_elems);
    size_t offset = (size_t)c * m->chunk_elems * m->send.elem_bytes;
    size_t bytes = (size_t)elems * m->send.elem_bytes;
    weft_bits_clear(m->todo, c);
    weft_bits_set(m->mask, c);
    m->left--;
    m->received++;
    net->came_bytes[m->from][m->to] += bytes;
    fake_paced(net, m, bytes);
    if (m->sink == WEFT_SINK_COPY) {
        memcpy(m->memory + offset, (const uint8_t *)m->send.base + offset, bytes);
        return;
    }
    /* At an odd address and in a buffer of exact size, so that a sanitizer detects invalid
     * accesses. */
    free(net->chunk);
    net->chunk = malloc(bytes + 1);
    memcpy(net->chunk + 1, (const uint8_t *)m->send.base + offset, bytes);
    struct weft_msg_event *event = fake_event(node, WEFT_EVENT_CHUNK);
    fake_event_grid(node, event, m, false);
    event->chunk = c;
    event->elems = elems;
    event->data = net->chunk + 1;
}

/* True: one end has closed the message at its deadline. A message without a received chunk waits
 * for the first. */
static inline bool fake_late(const struct fake_net *net, const struct fake_message *m)
{
    bool until = m->open && m->received > 0 && m->until_ns > 0 && net->now_ns >= m->until_ns;
    return m->left > 0 && (net->now_ns >= m->send.deadline_ns || until);
}

/* Deliver one chunk of some message; false when nothing can move. All nodes must poll to the end
 * afterwards. A message whose last chunk has arrived is closed one step later, as DONE would be. */
static inline bool fake_step(struct fake_net *net)
{
    uint32_t start = (uint32_t)weft_prng_below(&net->prng, FAKE_MESSAGES);
    net->now_ns += 1000;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &net->messages[(start + i) % FAKE_MESSAGES];
        if (m->live && fake_late(net, m)) {
            fake_close(net, m, WEFT_MSG_SHORT);
            return true;
        }
        if (!m->live || m->held || net->now_ns < m->start_ns || net->now_ns < m->next_ns ||
            net->now_ns < net->held_until_ns[m->from] || (!m->open && !fake_match(net, m))) {
            continue;
        }
        if (m->left == 0) {
            fake_close(net, m, WEFT_MSG_COMPLETE);
            return true;
        }
        uint32_t from = (uint32_t)weft_prng_below(&net->prng, m->chunks);
        uint32_t c = (uint32_t)weft_bits_next_one(m->todo, m->chunks, from);
        fake_deliver(net, m,
                     c < m->chunks ? c : (uint32_t)weft_bits_next_one(m->todo, m->chunks, 0));
        return true;
    }
    uint64_t next_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        const struct fake_message *m = &net->messages[i];
        next_ns = m->live && m->next_ns > net->now_ns ? weft_min_u64(next_ns, m->next_ns) : next_ns;
    }
    net->now_ns = next_ns != WEFT_NEVER ? next_ns : net->now_ns;
    return next_ns != WEFT_NEVER;
}

/* Connect a and b. */
static inline void fake_connect(struct fake_net *net, uint32_t a, uint32_t b)
{
    uint32_t ends[2] = {a, b};
    net->cut[a][b] = net->cut[b][a] = false;
    for (int i = 0; i < 2; i++) {
        struct weft_msg_event *event = fake_event(&net->nodes[ends[i]], WEFT_EVENT_PEER_UP);
        event->peer = fake_peer(ends[1 - i]);
        event->name = net->nodes[ends[1 - i]].name;
        event->incarnation = net->nodes[ends[1 - i]].incarnation;
    }
}

/* A node ends: its messages end, and its peers get PEER_DOWN. */
static inline void fake_end(struct fake_net *net, uint32_t dead, enum weft_msg_down down)
{
    net->nodes[dead].dead = true;
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &net->messages[i];
        if (m->live && (m->from == dead || m->to == dead)) {
            fake_close(net, m, WEFT_MSG_UNKNOWN);
        }
    }
    for (uint32_t n = 0; n < FAKE_NODES; n++) {
        net->cut[n][dead] = net->cut[dead][n] = true;
        if (n != dead) {
            struct weft_msg_event *event = fake_event(&net->nodes[n], WEFT_EVENT_PEER_DOWN);
            event->peer = fake_peer(dead);
            event->down = down;
        }
    }
}

/* A node dies. */
static inline void fake_kill(struct fake_net *net, uint32_t dead)
{
    fake_end(net, dead, WEFT_DOWN_SILENT);
}

/* End the connection of two nodes. Both are alive, and must cancel their expectations for each
 * other. */
static inline void fake_break(struct fake_net *net, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        struct fake_message *m = &net->messages[i];
        if (m->live && ((m->from == a && m->to == b) || (m->from == b && m->to == a))) {
            fake_close(net, m, WEFT_MSG_UNKNOWN);
        }
    }
    net->cut[a][b] = net->cut[b][a] = true;
    fake_event(&net->nodes[a], WEFT_EVENT_PEER_DOWN)->peer = fake_peer(b);
    fake_event(&net->nodes[b], WEFT_EVENT_PEER_DOWN)->peer = fake_peer(a);
}

/* A new process replaces a killed one. */
static inline void fake_revive(struct fake_net *net, uint32_t node)
{
    struct fake_node *n = &net->nodes[node];
    WEFT_ASSERT(n->dead);
    n->dead = false;
    n->events_head = n->events_tail;
    memset(n->expects, 0, sizeof(n->expects));
}

static const struct weft_msg_ops fake_ops = {
    .chunk_elems = fake_chunk_elems,
    .send = fake_send,
    .pace = fake_pace,
    .withdraw = fake_withdraw,
    .expect = fake_expect,
    .cancel = fake_cancel,
    .set_user = fake_set_user,
    .refuse = fake_refuse,
    .poll = fake_poll,
};

static inline struct weft_msgr fake_msgr(struct fake_net *net, uint32_t node)
{
    return (struct weft_msgr){.ops = &fake_ops, .self = &net->nodes[node]};
}

static inline struct fake_net *fake_net_new(uint64_t seed)
{
    struct fake_net *net = calloc(1, sizeof(*net));
    WEFT_ASSERT(net != NULL);
    weft_prng_init(&net->prng, seed);
    net->now_ns = 1000000;
    net->packet_bytes = 1408;
    net->expects_max = FAKE_EXPECTS;
    net->msgs_max = WEFT_MSGS_MAX;
    for (uint32_t n = 0; n < FAKE_NODES; n++) {
        net->nodes[n].net = net;
        net->nodes[n].index = n;
    }
    return net;
}

static inline void fake_net_free(struct fake_net *net)
{
    free(net->chunk);
    free(net);
}

#endif
