#include "node/sched_link.h"

#include "base/assert.h"
#include "rpc/head.h"

#include <stdlib.h>

enum { SENDS = 4 };

static const uint64_t reconnect_ns = 100 * WEFT_NS_PER_MS;
static const uint64_t resend_ns = WEFT_NS_PER_MS;

struct send {
    bool is_busy; /* the endpoint borrows its memory */
    uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
};

struct weft_sched_link {
    struct weft_sched_daemon *daemon;
    struct weft_msgr msgr;
    weft_peer peer; /* WEFT_PEER_ANY = none, and none being made */
    bool is_up;
    bool is_other;       /* the process reached last is not a scheduler */
    uint64_t connect_ns; /* do not connect before this time */
    uint64_t resend_ns;  /* do not wake up for a report before this time */
    weft_expect_id expects[WEFT_SCHED_LINK_EXPECTS];
    bool is_posted[WEFT_SCHED_LINK_EXPECTS];
    uint8_t plans[WEFT_SCHED_LINK_EXPECTS][WEFT_SCHED_PLAN_BYTES_MAX];
    struct send sends[SENDS];
    struct weft_sched_report report; /* as last polled */
};

weft_status weft_sched_link_new(const struct weft_sched_daemon_config *config,
                                struct weft_msgr msgr, struct weft_sched_link **link_p)
{
    struct weft_sched_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return WEFT_NOMEM;
    }
    weft_status status = weft_sched_daemon_new(config, &link->daemon);
    if (status != WEFT_OK) {
        free(link);
        return status;
    }
    link->msgr = msgr;
    link->peer = WEFT_PEER_ANY;
    *link_p = link;
    return WEFT_OK;
}

void weft_sched_link_free(struct weft_sched_link *link)
{
    if (link != NULL) {
        weft_sched_daemon_free(link->daemon);
        free(link);
    }
}

struct weft_sched_daemon *weft_sched_link_daemon(struct weft_sched_link *link)
{
    return link->daemon;
}

/* ---- connections ----------------------------------------------------------------------------- */

bool weft_sched_link_wants_peer(const struct weft_sched_link *link, uint64_t now_ns)
{
    return link->peer == WEFT_PEER_ANY && now_ns >= link->connect_ns;
}

void weft_sched_link_connecting(struct weft_sched_link *link, weft_peer peer, uint64_t now_ns)
{
    link->peer = peer;
    link->connect_ns = weft_time_add(now_ns, reconnect_ns);
}

static void post(struct weft_sched_link *link, uint32_t i)
{
    const struct weft_msg_expect expect = {
        .peer = link->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_SCHED_PLAN}),
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = link->plans[i],
        .memory_bytes = sizeof(link->plans[i]),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = i};
    link->is_posted[i] =
        link->msgr.ops->expect(link->msgr.self, &expect, &link->expects[i]) == WEFT_OK;
}

static void up(struct weft_sched_link *link, const struct weft_msg_event *event, uint64_t now_ns)
{
    link->is_other = event->name >> 32 != WEFT_ROLE_SCHEDULER;
    if (link->is_other) {
        return; /* not a scheduler: nothing is sent to it, and its messages are ignored */
    }
    link->is_up = true;
    for (uint32_t i = 0; i < WEFT_SCHED_LINK_EXPECTS; i++) {
        post(link, i);
    }
    weft_sched_daemon_connected(link->daemon, now_ns);
}

static void down(struct weft_sched_link *link, uint64_t now_ns)
{
    for (uint32_t i = 0; i < WEFT_SCHED_LINK_EXPECTS; i++) {
        if (link->is_posted[i]) {
            (void)link->msgr.ops->cancel(link->msgr.self, link->expects[i]);
        }
        link->is_posted[i] = false;
    }
    if (link->is_up) {
        weft_sched_daemon_disconnected(link->daemon);
    }
    link->is_up = false;
    link->peer = WEFT_PEER_ANY;
    link->connect_ns = weft_time_add(now_ns, reconnect_ns);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void received(struct weft_sched_link *link, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    uint32_t i = (uint32_t)event->user;
    link->is_posted[i] = false;
    if (event->outcome == WEFT_MSG_COMPLETE && event->elem_bytes == WEFT_SCHED_ELEM_BYTES) {
        (void)weft_sched_daemon_plan(link->daemon, link->plans[i],
                                     (size_t)event->total * WEFT_SCHED_ELEM_BYTES, now_ns);
    }
    if (!event->sender_gone) {
        post(link, i);
    }
}

bool weft_sched_link_event(struct weft_sched_link *link, const struct weft_msg_event *event,
                           uint64_t now_ns)
{
    if (link->peer == WEFT_PEER_ANY || event->peer != link->peer) {
        return false;
    }
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        up(link, event, now_ns);
        break;
    case WEFT_EVENT_PEER_DOWN:
        down(link, now_ns);
        break;
    case WEFT_EVENT_RECEIVED:
        received(link, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        link->sends[event->user].is_busy = false;
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
    return true;
}

static struct send *free_send(struct weft_sched_link *link, uint32_t *i_p)
{
    for (*i_p = 0; *i_p < SENDS; (*i_p)++) {
        if (!link->sends[*i_p].is_busy) {
            return &link->sends[*i_p];
        }
    }
    return NULL;
}

/* A report that finds no room is polled again later, with newer contents: after the next events,
 * one of which may have made room, or after resend_ns. */
void weft_sched_link_progress(struct weft_sched_link *link, uint64_t now_ns)
{
    uint32_t i;
    uint64_t seq;
    struct send *send;
    while (link->is_up && (send = free_send(link, &i)) != NULL &&
           weft_sched_daemon_poll(link->daemon, now_ns, &link->report)) {
        size_t bytes = weft_sched_report_pack(&link->report, send->bytes);
        const struct weft_msg_send message = {
            .peer = link->peer,
            .base = send->bytes,
            .total = (uint32_t)(bytes / WEFT_SCHED_ELEM_BYTES),
            .elem_bytes = WEFT_SCHED_ELEM_BYTES,
            .tag = weft_rpc_tag_pack(
                (struct weft_rpc_tag){.op = WEFT_SCHED_REPORT, .number = link->report.number}),
            .deadline_ns = WEFT_NEVER,
            .user = i};
        if (link->msgr.ops->send(link->msgr.self, &message, now_ns, &seq) != WEFT_OK) {
            weft_sched_daemon_unsent(link->daemon);
            link->resend_ns = weft_time_add(now_ns, resend_ns);
            return;
        }
        send->is_busy = true;
    }
}

bool weft_sched_link_is_other(const struct weft_sched_link *link)
{
    return link->is_other;
}

bool weft_sched_link_is_sending(const struct weft_sched_link *link)
{
    bool is_busy = weft_sched_daemon_has_news(link->daemon);
    for (uint32_t i = 0; i < SENDS; i++) {
        is_busy |= link->sends[i].is_busy;
    }
    return link->is_up && is_busy;
}

/* With all sends in flight, an event will follow. */
uint64_t weft_sched_link_deadline(const struct weft_sched_link *link)
{
    uint64_t due_ns = weft_sched_daemon_deadline(link->daemon);
    bool is_full = true;
    for (uint32_t i = 0; i < SENDS; i++) {
        is_full &= link->sends[i].is_busy;
    }
    if (link->peer == WEFT_PEER_ANY) {
        return weft_min_u64(due_ns, link->connect_ns);
    }
    return is_full && link->is_up ? weft_sched_daemon_silence(link->daemon)
                                  : weft_max_u64(due_ns, link->resend_ns);
}
