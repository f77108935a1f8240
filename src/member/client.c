#include "member/client.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* The pause after a connection broke or failed: the coordinator may be about to start. */
static const uint64_t reconnect_ns = 100 * WEFT_NS_PER_MS;

/* Time between requests for a rank or shard that another member holds. That member may leave before
 * its lease ends. */
static const uint64_t claim_retry_ns = 200 * WEFT_NS_PER_MS;

/* Added to the other member's lease, for a renewal that was in flight. */
static const uint64_t claim_grace_ns = 500 * WEFT_NS_PER_MS;

/* One request and its reply. There are three: the coordinator delays its replies to LIST and
 * FIND_AGGREGATOR until they contain news, and these requests must not delay heartbeats. */
struct call {
    bool is_waiting; /* for the reply */
    bool is_sending; /* the endpoint borrows the request's memory */
    uint8_t op;
    weft_expect_id expect;
    uint32_t rpc_id;
    uint8_t request[WEFT_MEMBER_REQUEST_BYTES_MAX];
    uint8_t *reply; /* weft_member_reply_bytes(WEFT_MEMBER_SHARDS_MAX) */
};

enum { CALL_CONTROL, CALL_LIST, CALL_AGGREGATOR, CALLS };

struct weft_member_client {
    struct weft_member_client_config config;
    struct weft_msgr msgr;
    struct weft_member_state state;
    struct call calls[CALLS];
    uint8_t *reply_bytes;
    weft_peer peer; /* WEFT_PEER_ANY = none, and none being made */
    uint32_t rpc_last;
    uint64_t connect_ns;   /* not before */
    uint64_t register_ns;  /* when REGISTER is due; WEFT_NEVER = it is not */
    uint64_t heartbeat_ns; /* due; WEFT_NEVER = not registered on this connection */
    uint64_t claim_end_ns; /* when a refusal because other members hold the rank or shard becomes
                            * final; WEFT_NEVER = there was none */
    bool wants_close;      /* of peer */
    bool wants_leave;
    uint8_t leave_flags;
    bool is_published;
    struct weft_member_address addresses[WEFT_MEMBER_SPAN_MAX];
};

weft_status weft_member_client_new(const struct weft_member_client_config *config,
                                   struct weft_msgr msgr, struct weft_member_client **client_p)
{
    bool is_server = config->role == WEFT_ROLE_SERVER;
    if (config->member == 0 || !weft_job_name_valid(config->job) ||
        (is_server ? config->span == 0 || config->span > WEFT_MEMBER_SPAN_MAX
                   : config->span != 0 || (config->role == WEFT_ROLE_AGGREGATOR
                                               ? config->rank >= WEFT_MEMBER_AGGREGATORS_MAX
                                               : config->role != WEFT_ROLE_WORKER))) {
        return WEFT_INVALID;
    }
    struct weft_member_client *client = calloc(1, sizeof(*client));
    size_t bytes = weft_member_reply_bytes(WEFT_MEMBER_SHARDS_MAX);
    uint8_t *replies = calloc(CALLS, bytes);
    if (client == NULL || replies == NULL) {
        free(client);
        free(replies);
        return WEFT_NOMEM;
    }
    client->config = *config;
    client->config.first = is_server ? config->first : WEFT_MEMBER_NONE;
    client->msgr = msgr;
    client->reply_bytes = replies;
    for (unsigned i = 0; i < CALLS; i++) {
        client->calls[i].reply = replies + i * bytes;
    }
    client->peer = WEFT_PEER_ANY;
    client->register_ns = WEFT_NEVER;
    client->heartbeat_ns = WEFT_NEVER;
    client->claim_end_ns = WEFT_NEVER;
    *client_p = client;
    return WEFT_OK;
}

void weft_member_client_free(struct weft_member_client *client)
{
    if (client != NULL) {
        free(client->reply_bytes);
        free(client);
    }
}

const struct weft_member_state *weft_member_client_state(const struct weft_member_client *client)
{
    return &client->state;
}

static bool is_final(const struct weft_member_client *client)
{
    enum weft_member_phase phase = client->state.phase;
    return phase == WEFT_MEMBER_IS_REFUSED || phase == WEFT_MEMBER_REPLACED ||
           phase == WEFT_MEMBER_IS_GONE;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct weft_member_request request_of(const struct weft_member_client *client, uint8_t op)
{
    const struct weft_member_client_config *config = &client->config;
    const struct weft_member_state *state = &client->state;
    bool has_lease = state->phase == WEFT_MEMBER_JOINED;
    struct weft_member_request q = {.role = config->role,
                                    .member = config->member,
                                    .incarnation = config->incarnation,
                                    .rank = has_lease ? state->grant.rank : config->rank,
                                    .workers = config->workers,
                                    .shards = config->shards,
                                    .first = has_lease ? state->grant.first : config->first,
                                    .span = config->span,
                                    .rack = config->rack,
                                    .epoch = has_lease ? state->grant.epoch : 0};
    memcpy(q.job, config->job, sizeof(q.job));
    if (op == WEFT_MEMBER_REGISTER && client->is_published) {
        q.count = config->span;
        memcpy(q.addresses, client->addresses, q.count * sizeof(q.addresses[0]));
    }
    q.flags = op == WEFT_MEMBER_LEAVE ? client->leave_flags : 0;
    q.have_version = op == WEFT_MEMBER_LIST              ? state->list.version
                     : op == WEFT_MEMBER_FIND_AGGREGATOR ? state->aggregator.version
                                                         : 0;
    return q;
}

static bool is_idle(const struct call *call)
{
    return !call->is_waiting && !call->is_sending;
}

/* Post the reply's memory, then send. False: no room; the caller retries with the next event. */
static bool call_begin(struct weft_member_client *client, unsigned which, uint8_t op,
                       uint64_t now_ns)
{
    struct call *call = &client->calls[which];
    struct weft_member_request q = request_of(client, op);
    q.rpc_id = ++client->rpc_last;
    const struct weft_msg_expect expect = {
        .peer = client->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = (uint8_t)(op | WEFT_RPC_REPLY_FLAG),
                                                       .number = q.rpc_id}),
        .tag_mask = UINT64_MAX,
        .memory = call->reply,
        .memory_bytes = weft_member_reply_bytes(WEFT_MEMBER_SHARDS_MAX),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = which};
    const struct weft_msg_send send = {
        .peer = client->peer,
        .base = call->request,
        .total = (uint32_t)weft_member_request_pack(&q, call->request) / WEFT_MEMBER_ELEM_BYTES,
        .elem_bytes = WEFT_MEMBER_ELEM_BYTES,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = op, .number = q.rpc_id}),
        .deadline_ns = WEFT_NEVER,
        .user = CALLS + which};
    uint64_t seq;
    if (client->msgr.ops->expect(client->msgr.self, &expect, &call->expect) != WEFT_OK) {
        return false;
    }
    if (client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)client->msgr.ops->cancel(client->msgr.self, call->expect);
        return false;
    }
    call->op = op;
    call->rpc_id = q.rpc_id;
    call->is_waiting = true;
    call->is_sending = true;
    return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

static uint64_t heartbeat_every_ns(const struct weft_member_client *client)
{
    uint64_t lease_ns = client->state.grant.lease_ms * WEFT_NS_PER_MS;
    return client->config.heartbeat_ns != 0 ? client->config.heartbeat_ns : lease_ns / 5;
}

/* A rank or shard that another member holds may become free, so the request is repeated. A request
 * that does not agree with the job, such as another number of workers, is refused for good. */
static void refused(struct weft_member_client *client, const struct weft_member_reply *reply,
                    uint64_t now_ns)
{
    bool is_claim = reply->status == WEFT_MEMBER_CLAIMED || reply->status == WEFT_MEMBER_FULL;
    bool may_wait = is_claim || reply->status == WEFT_MEMBER_SIZE_UNKNOWN ||
                    reply->status == WEFT_MEMBER_UNAVAILABLE;
    client->state.refusal = *reply;
    if (reply->status == WEFT_MEMBER_SUPERSEDED) {
        client->state.phase = WEFT_MEMBER_REPLACED;
        return;
    }
    if (is_claim && client->claim_end_ns == WEFT_NEVER) {
        client->claim_end_ns =
            weft_time_add(now_ns, reply->lease_ms * WEFT_NS_PER_MS + claim_grace_ns);
    }
    if (!may_wait || (is_claim && now_ns >= client->claim_end_ns)) {
        client->state.phase = WEFT_MEMBER_IS_REFUSED;
        return;
    }
    client->register_ns = weft_time_add(now_ns, claim_retry_ns);
}

static void joined(struct weft_member_client *client, const struct weft_member_reply *reply,
                   uint64_t now_ns)
{
    client->state.phase = WEFT_MEMBER_JOINED;
    client->state.grant = *reply;
    client->state.refusal.status = WEFT_MEMBER_OK;
    client->claim_end_ns = WEFT_NEVER;
    client->heartbeat_ns = weft_time_add(now_ns, heartbeat_every_ns(client));
}

static void answered(struct weft_member_client *client, const struct call *call,
                     const struct weft_member_reply *reply, uint64_t now_ns)
{
    client->state.is_over |= (reply->flags & WEFT_MEMBER_JOB_DONE) != 0;
    switch (call->op) {
    case WEFT_MEMBER_REGISTER:
        if (reply->status == WEFT_MEMBER_OK) {
            joined(client, reply, now_ns);
        } else {
            refused(client, reply, now_ns);
        }
        break;
    case WEFT_MEMBER_LIST:
        if (reply->status == WEFT_MEMBER_OK && reply->version != 0) {
            client->state.list = *reply;
        }
        break;
    case WEFT_MEMBER_FIND_AGGREGATOR:
        if (reply->status == WEFT_MEMBER_OK) {
            client->state.aggregator = *reply;
        }
        break;
    case WEFT_MEMBER_HEARTBEAT:
        if (reply->status == WEFT_MEMBER_SUPERSEDED) {
            client->state.refusal = *reply;
            client->state.phase = WEFT_MEMBER_REPLACED;
        } else if (reply->status != WEFT_MEMBER_OK) {
            client->register_ns = now_ns;
        }
        break;
    default: /* LEAVE, with any status */
        client->state.phase = WEFT_MEMBER_IS_GONE;
        break;
    }
}

static void received(struct weft_member_client *client, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    struct weft_member_reply reply;
    struct call *call = &client->calls[event->user];
    size_t bytes = (size_t)event->total * event->elem_bytes;
    call->is_waiting = false;
    if (event->outcome == WEFT_MSG_COMPLETE && event->elem_bytes == WEFT_MEMBER_ELEM_BYTES &&
        weft_member_reply_unpack(call->reply, bytes, &reply) == WEFT_OK &&
        reply.rpc_id == call->rpc_id) {
        answered(client, call, &reply, now_ns);
    } else if (client->state.phase == WEFT_MEMBER_JOINING) {
        client->register_ns = weft_time_add(now_ns, claim_retry_ns);
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

static void disconnected(struct weft_member_client *client, uint64_t now_ns)
{
    for (unsigned i = 0; i < CALLS; i++) {
        if (client->calls[i].is_waiting) {
            (void)client->msgr.ops->cancel(client->msgr.self, client->calls[i].expect);
        }
        client->calls[i].is_waiting = false;
    }
    client->peer = WEFT_PEER_ANY;
    client->wants_close = false;
    client->state.is_connected = false;
    client->register_ns = WEFT_NEVER;
    client->heartbeat_ns = WEFT_NEVER;
    client->connect_ns = weft_time_add(now_ns, reconnect_ns);
}

bool weft_member_client_wants_peer(const struct weft_member_client *client, uint64_t now_ns)
{
    return client->peer == WEFT_PEER_ANY && !is_final(client) && now_ns >= client->connect_ns;
}

void weft_member_client_connecting(struct weft_member_client *client, weft_peer peer,
                                   uint64_t now_ns)
{
    client->peer = peer;
    client->connect_ns = weft_time_add(now_ns, reconnect_ns);
}

bool weft_member_client_take_close(struct weft_member_client *client, weft_peer *peer_p)
{
    const bool wants = client->wants_close;
    client->wants_close = false;
    *peer_p = wants ? client->peer : *peer_p;
    return wants;
}

/* If the process at the address is not a coordinator, close the connection: it would never reply. A
 * server, for example, drops such requests. */
static void connected(struct weft_member_client *client, uint64_t name, uint64_t now_ns)
{
    client->state.is_other = name != weft_rpc_name(WEFT_ROLE_COORDINATOR, 0);
    client->state.other = client->state.is_other ? name : 0;
    client->state.is_connected = !client->state.is_other;
    client->wants_close = client->state.is_other;
    client->register_ns = client->state.is_other ? WEFT_NEVER : now_ns;
}

void weft_member_client_event(struct weft_member_client *client, const struct weft_msg_event *event,
                              uint64_t now_ns)
{
    if (event->type == WEFT_EVENT_SENT) {
        client->calls[event->user - CALLS].is_sending = false;
        return;
    }
    if (event->peer != client->peer) {
        return;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        connected(client, event->name, now_ns);
    } else if (event->type == WEFT_EVENT_PEER_DOWN) {
        disconnected(client, now_ns);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(client, event, now_ns);
    }
}

/* ---- what is due ----------------------------------------------------------------------------- */

void weft_member_client_publish(struct weft_member_client *client,
                                const struct weft_member_address *addresses)
{
    memcpy(client->addresses, addresses, client->config.span * sizeof(client->addresses[0]));
    client->is_published = true;
    client->register_ns = client->state.is_connected ? 0 : WEFT_NEVER;
}

void weft_member_client_offer(struct weft_member_client *client,
                              const struct weft_member_address *addresses, uint32_t count)
{
    WEFT_ASSERT(client->config.role == WEFT_ROLE_AGGREGATOR && count <= WEFT_MEMBER_SPAN_MAX);
    client->config.span = count;
    weft_member_client_publish(client, addresses);
}

void weft_member_client_leave(struct weft_member_client *client, bool done)
{
    client->wants_leave = true;
    client->leave_flags = done ? WEFT_MEMBER_DONE : 0;
    if (client->state.phase != WEFT_MEMBER_JOINED) {
        client->state.phase = is_final(client) ? client->state.phase : WEFT_MEMBER_IS_GONE;
    }
}

void weft_member_client_progress(struct weft_member_client *client, uint64_t now_ns)
{
    bool has_lease = client->state.phase == WEFT_MEMBER_JOINED;
    if (!client->state.is_connected || is_final(client)) {
        return;
    }
    if (is_idle(&client->calls[CALL_CONTROL])) {
        if (client->register_ns <= now_ns) {
            if (call_begin(client, CALL_CONTROL, WEFT_MEMBER_REGISTER, now_ns)) {
                client->register_ns = WEFT_NEVER;
            }
        } else if (has_lease && client->wants_leave) {
            (void)call_begin(client, CALL_CONTROL, WEFT_MEMBER_LEAVE, now_ns);
        } else if (has_lease && client->heartbeat_ns <= now_ns) {
            if (call_begin(client, CALL_CONTROL, WEFT_MEMBER_HEARTBEAT, now_ns)) {
                client->heartbeat_ns = weft_time_add(now_ns, heartbeat_every_ns(client));
            }
        }
    }
    if (has_lease && !client->wants_leave && is_idle(&client->calls[CALL_LIST])) {
        (void)call_begin(client, CALL_LIST, WEFT_MEMBER_LIST, now_ns);
    }
    if (has_lease && client->config.wants_aggregator && !client->wants_leave &&
        is_idle(&client->calls[CALL_AGGREGATOR])) {
        (void)call_begin(client, CALL_AGGREGATOR, WEFT_MEMBER_FIND_AGGREGATOR, now_ns);
    }
}

uint64_t weft_member_client_deadline(const struct weft_member_client *client)
{
    if (is_final(client)) {
        return WEFT_NEVER;
    }
    if (client->peer == WEFT_PEER_ANY) {
        return client->connect_ns;
    }
    if (!client->state.is_connected || !is_idle(&client->calls[CALL_CONTROL])) {
        return WEFT_NEVER; /* an event will follow */
    }
    return client->register_ns < client->heartbeat_ns ? client->register_ns : client->heartbeat_ns;
}
