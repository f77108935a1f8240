#include "member/service.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Memory for one request. */
struct slot {
    uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
};

enum answer_state { ANSWER_FREE, ANSWER_READY, ANSWER_SENDING };

struct answer {
    enum answer_state state;
    weft_peer peer;
    uint64_t tag;
    uint32_t count; /* bytes */
    uint8_t *bytes;
};

/* A waiting LIST or FIND_AGGREGATOR: one of each for each connection, the newest. */
struct question {
    bool waits;
    uint32_t rpc_id;
    uint64_t have_version;
    uint32_t rank;
    uint32_t rack;
    uint64_t looked; /* FIND_AGGREGATOR: version of the aggregators at the last check, which gave no
                      * reply; 0 = not checked yet */
};

struct asker {
    bool is_member; /* its name has the role */
    struct question list;
    struct question aggregator;
};

struct weft_member_service {
    struct weft_member_service_config config;
    struct weft_msgr msgr;
    struct slot *slots;     /* (slots,) */
    struct answer *answers; /* (answer_count,) */
    uint32_t answer_count;
    uint8_t *answer_bytes;
    struct asker *askers; /* (peers_max,) */
    uint64_t version_noted;
    bool is_dirty; /* records are written and not synced yet */
    bool is_broken;
};

uint32_t weft_member_service_expects_max(const struct weft_member_service_config *config)
{
    return config->slots;
}

static bool post(struct weft_member_service *service, uint32_t i)
{
    weft_expect_id id;
    const struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                           .sink = WEFT_SINK_COPY,
                                           .memory = service->slots[i].bytes,
                                           .memory_bytes = sizeof(service->slots[i].bytes),
                                           .count = 1,
                                           .timeout_ns = WEFT_NEVER,
                                           .user = i};
    return service->msgr.ops->expect(service->msgr.self, &expect, &id) == WEFT_OK;
}

weft_status weft_member_service_new(const struct weft_member_service_config *config,
                                    struct weft_msgr msgr, struct weft_member_service **service_p)
{
    struct weft_member_service *service = calloc(1, sizeof(*service));
    if (service == NULL) {
        return WEFT_NOMEM;
    }
    size_t answer_bytes = weft_member_reply_bytes(config->shards_max);
    service->config = *config;
    service->msgr = msgr;
    service->answer_count = config->slots + 3 * config->peers_max;
    service->slots = calloc(config->slots, sizeof(*service->slots));
    service->answers = calloc(service->answer_count, sizeof(*service->answers));
    service->answer_bytes = calloc(service->answer_count, answer_bytes);
    service->askers = calloc(config->peers_max, sizeof(*service->askers));
    if (service->slots == NULL || service->answers == NULL || service->answer_bytes == NULL ||
        service->askers == NULL) {
        weft_member_service_free(service);
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < service->answer_count; i++) {
        service->answers[i].bytes = service->answer_bytes + i * answer_bytes;
    }
    for (uint32_t i = 0; i < config->slots; i++) {
        if (!post(service, i)) {
            weft_member_service_free(service);
            return WEFT_INVALID;
        }
    }
    *service_p = service;
    return WEFT_OK;
}

void weft_member_service_free(struct weft_member_service *service)
{
    if (service != NULL) {
        free(service->slots);
        free(service->answers);
        free(service->answer_bytes);
        free(service->askers);
        free(service);
    }
}

bool weft_member_service_is_broken(const struct weft_member_service *service)
{
    return service->is_broken;
}

static void note(struct weft_member_service *service, enum weft_member_note what,
                 const struct weft_member_request *who, uint16_t status)
{
    if (service->config.note != NULL) {
        service->config.note(service->config.arg, what, who, status);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* There is no free entry only when members send requests faster than they accept replies. They
 * violate the protocol (one request of each kind at a time), and get no reply. */
static void answer(struct weft_member_service *service, weft_peer peer, uint8_t op,
                   const struct weft_member_reply *reply)
{
    for (uint32_t i = 0; i < service->answer_count; i++) {
        struct answer *a = &service->answers[i];
        if (a->state != ANSWER_FREE) {
            continue;
        }
        WEFT_ASSERT(reply->count <= service->config.shards_max);
        a->state = ANSWER_READY;
        a->peer = peer;
        a->tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = (uint8_t)(op | WEFT_RPC_REPLY_FLAG), .number = reply->rpc_id});
        a->count = (uint32_t)weft_member_reply_pack(reply, a->bytes);
        return;
    }
}

static void send_ready(struct weft_member_service *service, uint64_t now_ns)
{
    for (uint32_t i = 0; i < service->answer_count; i++) {
        struct answer *a = &service->answers[i];
        uint64_t seq;
        if (a->state != ANSWER_READY) {
            continue;
        }
        const struct weft_msg_send send = {.peer = a->peer,
                                           .base = a->bytes,
                                           .total = a->count / WEFT_MEMBER_ELEM_BYTES,
                                           .elem_bytes = WEFT_MEMBER_ELEM_BYTES,
                                           .tag = a->tag,
                                           .deadline_ns = WEFT_NEVER,
                                           .user = service->config.slots + i};
        weft_status status = service->msgr.ops->send(service->msgr.self, &send, now_ns, &seq);
        if (status == WEFT_OK) {
            a->state = ANSWER_SENDING;
        } else if (status != WEFT_AGAIN) {
            a->state = ANSWER_FREE; /* the member is gone; it will repeat the request */
        }
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool write_record(struct weft_member_service *service, uint8_t op,
                         const struct weft_member_request *record)
{
    uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
    if (service->config.record == NULL) {
        return true;
    }
    size_t count = weft_member_request_pack(record, bytes);
    service->is_broken =
        service->is_broken || !service->config.record(service->config.arg, op, bytes, count);
    service->is_dirty = true;
    return !service->is_broken;
}

static void serve(struct weft_member_service *service, weft_peer peer, uint8_t op,
                  const struct weft_member_request *request, uint64_t now_ns)
{
    struct weft_member_reply reply;
    struct weft_member_request record;
    if (op == WEFT_MEMBER_LIST || op == WEFT_MEMBER_FIND_AGGREGATOR) {
        struct asker *asker = &service->askers[peer];
        *(op == WEFT_MEMBER_LIST ? &asker->list : &asker->aggregator) =
            (struct question){.waits = true,
                              .rpc_id = request->rpc_id,
                              .have_version = request->have_version,
                              .rank = request->rank,
                              .rack = request->rack};
        return;
    }
    uint64_t reclaimed = weft_roster_counters(service->config.roster)->reclaimed;
    bool changed = weft_roster_handle(service->config.roster, op, request, now_ns, &reply, &record);
    bool safe = changed ? write_record(service, op, &record)
                        : !(service->is_broken && op == WEFT_MEMBER_REGISTER);
    if (reply.status == WEFT_MEMBER_OK && !safe) {
        reply.status = WEFT_MEMBER_UNAVAILABLE;
    }
    answer(service, peer, op, &reply);
    const bool is_offer = request->role == WEFT_ROLE_AGGREGATOR && request->count > 0;
    changed |= is_offer || (request->role == WEFT_ROLE_AGGREGATOR && op == WEFT_MEMBER_LEAVE);
    if (reply.status != WEFT_MEMBER_OK) {
        note(service, WEFT_MEMBER_NOTE_REFUSED, request, reply.status);
    } else if (changed) {
        note(service, op == WEFT_MEMBER_LEAVE ? WEFT_MEMBER_NOTE_LEFT : WEFT_MEMBER_NOTE_JOINED,
             &record, reply.status);
    }
    if (weft_roster_counters(service->config.roster)->reclaimed > reclaimed) {
        note(service, WEFT_MEMBER_NOTE_RECLAIMED, &record, reply.status);
    }
}

static void received(struct weft_member_service *service, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    struct weft_member_request request;
    struct weft_rpc_tag tag;
    uint32_t i = (uint32_t)event->user;
    size_t bytes = (size_t)event->total * event->elem_bytes;
    if (event->outcome == WEFT_MSG_COMPLETE && event->elem_bytes == WEFT_MEMBER_ELEM_BYTES &&
        service->askers[event->peer].is_member && weft_rpc_tag_unpack(event->tag, &tag) &&
        weft_member_request_unpack(tag.op, service->slots[i].bytes, bytes, &request) == WEFT_OK) {
        serve(service, event->peer, tag.op, &request, now_ns);
    }
    /* The table of expectations has room for every slot. */
    bool posted = post(service, i);
    WEFT_ASSERT(posted);
}

static void forget(struct weft_member_service *service, weft_peer peer)
{
    service->askers[peer] = (struct asker){.is_member = false};
    for (uint32_t i = 0; i < service->answer_count; i++) {
        if (service->answers[i].peer == peer && service->answers[i].state == ANSWER_READY) {
            service->answers[i].state = ANSWER_FREE;
        }
    }
}

void weft_member_service_event(struct weft_member_service *service,
                               const struct weft_msg_event *event, uint64_t now_ns)
{
    WEFT_ASSERT(event->peer < service->config.peers_max);
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        forget(service, event->peer);
        service->askers[event->peer].is_member = event->name >> 32 == WEFT_ROLE_MEMBER;
        break;
    case WEFT_EVENT_PEER_DOWN:
        forget(service, event->peer);
        break;
    case WEFT_EVENT_RECEIVED:
        received(service, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        service->answers[event->user - service->config.slots].state = ANSWER_FREE;
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
}

/* ---- what is due ----------------------------------------------------------------------------- */

static void tell_list(struct weft_member_service *service)
{
    struct weft_member_reply list;
    uint64_t version = weft_roster_version(service->config.roster);
    if (version != 0 && version != service->version_noted) {
        note(service, WEFT_MEMBER_NOTE_COMPLETE, NULL, WEFT_MEMBER_OK);
    }
    service->version_noted = version;
    for (uint32_t peer = 0; version != 0 && peer < service->config.peers_max; peer++) {
        struct question *asked = &service->askers[peer].list;
        if (asked->waits && asked->have_version != version) {
            bool complete = weft_roster_list(service->config.roster, &list);
            WEFT_ASSERT(complete);
            list.rpc_id = asked->rpc_id;
            answer(service, peer, WEFT_MEMBER_LIST, &list);
            asked->waits = false;
        }
    }
}

static void tell_near(struct weft_member_service *service)
{
    const uint64_t version = weft_roster_aggregators_version(service->config.roster);
    struct weft_member_reply aggregator;
    for (uint32_t peer = 0; peer < service->config.peers_max; peer++) {
        struct question *asked = &service->askers[peer].aggregator;
        if (!asked->waits || asked->looked == version) {
            continue;
        }
        asked->looked = version;
        weft_roster_aggregator(service->config.roster, asked->rank, asked->rack, &aggregator);
        if (aggregator.version != asked->have_version &&
            aggregator.count <= service->config.shards_max) {
            aggregator.rpc_id = asked->rpc_id;
            answer(service, peer, WEFT_MEMBER_FIND_AGGREGATOR, &aggregator);
            asked->waits = false;
        }
    }
}

void weft_member_service_progress(struct weft_member_service *service, uint64_t now_ns)
{
    struct weft_member_request who;
    while (weft_roster_expire_next(service->config.roster, now_ns, &who)) {
        note(service, WEFT_MEMBER_NOTE_EXPIRED, &who, WEFT_MEMBER_OK);
    }
    weft_roster_remove_silent(service->config.roster, now_ns);
    tell_list(service);
    tell_near(service);
    if (service->is_dirty && service->config.sync != NULL && !service->is_broken) {
        service->is_broken = !service->config.sync(service->config.arg);
    }
    service->is_dirty = false;
    send_ready(service, now_ns);
}

uint64_t weft_member_service_deadline(const struct weft_member_service *service)
{
    return weft_roster_deadline(service->config.roster);
}
