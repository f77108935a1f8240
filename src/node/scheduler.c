#include "node/scheduler.h"

#include "base/assert.h"
#include "io/clock.h"
#include "io/random.h"
#include "rpc/head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Receive buffers for reports, and plans in flight. */
enum { SLOTS = 256, ANSWERS = 256 };

struct weft_scheduler_slot {
    uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
};

struct weft_scheduler_answer {
    bool is_busy; /* the endpoint borrows its memory */
    uint8_t bytes[WEFT_SCHED_PLAN_BYTES_MAX];
};

/* ---- log lines ------------------------------------------------------------------------------- */

static void note(void *arg, enum weft_sched_note what, enum weft_sched_role role, uint32_t index,
                 uint16_t status)
{
    struct weft_scheduler *scheduler = arg;
    const struct weft_node_log *log = &scheduler->config.log;
    const char *name = role == WEFT_SCHED_WORKER ? "worker" : "shard";
    switch (what) {
    case WEFT_SCHED_NOTE_READY:
        weft_node_info(log, "all shards are connected; updates are planned");
        break;
    case WEFT_SCHED_NOTE_JOINED:
        weft_node_info(log, "%s %u is connected", name, index);
        break;
    case WEFT_SCHED_NOTE_LEFT:
        weft_node_info(log, "%s %u has left", name, index);
        break;
    case WEFT_SCHED_NOTE_LAPSED:
        weft_node_warn(log, "%s %u is silent; the plan does not wait for its update", name, index);
        break;
    case WEFT_SCHED_NOTE_REFUSED:
        weft_node_warn(log, "%s %u is not planned: %s", name, index,
                       weft_sched_status_text(status));
        break;
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool post(struct weft_scheduler *scheduler, struct weft_msgr msgr, uint32_t i)
{
    weft_expect_id id;
    const struct weft_msg_expect expect = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_SCHED_REPORT}),
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = scheduler->slots[i].bytes,
        .memory_bytes = sizeof(scheduler->slots[i].bytes),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = i};
    return msgr.ops->expect(msgr.self, &expect, &id) == WEFT_OK;
}

static void received(struct weft_scheduler *scheduler, struct weft_msgr msgr,
                     const struct weft_msg_event *event, uint64_t now_ns)
{
    uint32_t i = (uint32_t)event->user;
    if (event->outcome == WEFT_MSG_COMPLETE && event->elem_bytes == WEFT_SCHED_ELEM_BYTES) {
        (void)weft_sched_service_report(scheduler->service, event->peer, scheduler->slots[i].bytes,
                                        (size_t)event->total * WEFT_SCHED_ELEM_BYTES, now_ns);
    }
    /* The table of expectations has room for every slot. */
    bool posted = post(scheduler, msgr, i);
    WEFT_ASSERT(posted);
}

/* Other roles may connect; their messages are ignored. */
static void connected(struct weft_scheduler *scheduler, const struct weft_msg_event *event)
{
    uint32_t index = (uint32_t)event->name;
    uint64_t role = event->name >> 32;
    if (role == WEFT_ROLE_WORKER || role == WEFT_ROLE_SERVER) {
        weft_sched_service_connected(scheduler->service, event->peer,
                                     role == WEFT_ROLE_WORKER ? WEFT_SCHED_WORKER
                                                              : WEFT_SCHED_SERVER,
                                     index, event->incarnation);
    }
}

static void take_event(struct weft_scheduler *scheduler, struct weft_msgr msgr,
                       const struct weft_msg_event *event, uint64_t now_ns)
{
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        connected(scheduler, event);
        break;
    case WEFT_EVENT_PEER_DOWN:
        weft_sched_service_disconnected(scheduler->service, event->peer, now_ns);
        break;
    case WEFT_EVENT_RECEIVED:
        received(scheduler, msgr, event, now_ns);
        break;
    case WEFT_EVENT_SENT:
        scheduler->answers[event->user].is_busy = false;
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
}

static uint32_t free_answer(const struct weft_scheduler *scheduler)
{
    uint32_t i = 0;
    while (i < ANSWERS && scheduler->answers[i].is_busy) {
        i++;
    }
    return i;
}

/* A plan that cannot be sent is rebuilt after the next message was sent, with the decisions made by
 * then. */
static void send_plans(struct weft_scheduler *scheduler, struct weft_msgr msgr, uint64_t now_ns)
{
    uint32_t i, conn;
    uint64_t seq;
    while ((i = free_answer(scheduler)) < ANSWERS &&
           weft_sched_service_poll(scheduler->service, now_ns, &conn, &scheduler->plan)) {
        struct weft_scheduler_answer *answer = &scheduler->answers[i];
        size_t bytes = weft_sched_plan_pack(&scheduler->plan, answer->bytes);
        const struct weft_msg_send send = {
            .peer = conn,
            .base = answer->bytes,
            .total = (uint32_t)(bytes / WEFT_SCHED_ELEM_BYTES),
            .elem_bytes = WEFT_SCHED_ELEM_BYTES,
            .tag = weft_rpc_tag_pack(
                (struct weft_rpc_tag){.op = WEFT_SCHED_PLAN, .number = scheduler->plan.number}),
            .deadline_ns = WEFT_NEVER,
            .user = i};
        weft_status status = msgr.ops->send(msgr.self, &send, now_ns, &seq);
        answer->is_busy = status == WEFT_OK;
        if (status == WEFT_AGAIN) {
            weft_sched_service_unsent(scheduler->service, conn);
            return;
        }
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_scheduler *scheduler = arg;
    struct weft_msgr msgr = weft_driver_msgr(scheduler->driver);
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        take_event(scheduler, msgr, &event, now_ns);
    }
    if (weft_sched_service_is_ready(scheduler->service) &&
        weft_sched_job_new(scheduler->service) != WEFT_OK) {
        weft_node_warn(&scheduler->config.log,
                       "no memory for a plan of so many workers; updates are sent without a grant");
    }
    weft_sched_service_progress(scheduler->service, now_ns);
    send_plans(scheduler, msgr, now_ns);
}

static void *run(void *arg)
{
    struct weft_scheduler *scheduler = arg;
    while (!atomic_load(&scheduler->stop)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint64_t until_ns = weft_sched_service_deadline(scheduler->service);
        uint64_t timeout_ns = until_ns == WEFT_NEVER ? WEFT_NEVER
                              : until_ns > now_ns    ? until_ns - now_ns
                                                     : 0;
        (void)weft_driver_step(scheduler->driver, timeout_ns, handle, scheduler);
        weft_stats_query_poll(&scheduler->query, scheduler);
    }
    weft_stats_query_close(&scheduler->query);
    pthread_mutex_lock(&scheduler->lock);
    scheduler->awake = NULL;
    pthread_mutex_unlock(&scheduler->lock);
    return NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static weft_status open_driver(struct weft_scheduler *scheduler, struct weft_error *error)
{
    const struct weft_scheduler_config *config = &scheduler->config;
    struct weft_driver_config driver;
    weft_driver_config_default(&driver);
    weft_transport_options_apply(&config->transport, &driver);
    driver.udp.host = config->host;
    driver.udp.port = config->port;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_SCHEDULER, 0);
    driver.udp.ep.accept = 1;
    driver.udp.ep.peers_max = config->service.conns_max;
    driver.udp.ep.chunks_max = 256;
    driver.udp.ep.tx_window_max = 256;
    driver.udp.ep.expects_max = SLOTS;
    weft_status status =
        weft_security_arm(config->security, &driver.udp, &scheduler->provider, error);
    if (status == WEFT_OK) {
        status = weft_driver_open(&driver, &scheduler->driver, error);
    }
    weft_security_disarm(&driver.udp);
    return status;
}

static weft_status make_service(struct weft_scheduler *scheduler, struct weft_error *error)
{
    struct weft_sched_service_config *config = &scheduler->config.service;
    weft_os_random(&config->life, sizeof(config->life));
    config->life |= 1;
    config->note = note;
    config->arg = scheduler;
    scheduler->slots = calloc(SLOTS, sizeof(*scheduler->slots));
    scheduler->answers = calloc(ANSWERS, sizeof(*scheduler->answers));
    weft_status status = weft_sched_service_new(config, &scheduler->service);
    if (status == WEFT_OK && (scheduler->slots == NULL || scheduler->answers == NULL)) {
        status = WEFT_NOMEM;
    }
    return status == WEFT_OK ? status
                             : weft_fail(error, status, "cannot make the scheduler: %s",
                                         weft_status_text(status));
}

static weft_status post_slots(struct weft_scheduler *scheduler, struct weft_error *error)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!post(scheduler, weft_driver_msgr(scheduler->driver), i)) {
            return weft_fail(error, WEFT_NOMEM, "no room for the scheduler's requests");
        }
    }
    return WEFT_OK;
}

static void release(struct weft_scheduler *scheduler)
{
    /* The endpoint borrows the others' memory, so it is freed first. */
    weft_driver_close(scheduler->driver);
    weft_provider_free(scheduler->provider);
    weft_sched_service_free(scheduler->service);
    free(scheduler->slots);
    free(scheduler->answers);
}

static void wake(void *arg)
{
    struct weft_scheduler *scheduler = arg;
    pthread_mutex_lock(&scheduler->lock);
    if (scheduler->awake != NULL) {
        weft_driver_wake(scheduler->awake);
    }
    pthread_mutex_unlock(&scheduler->lock);
}

static weft_status start(struct weft_scheduler *scheduler, struct weft_error *error)
{
    weft_status status = make_service(scheduler, error);
    status = status == WEFT_OK ? open_driver(scheduler, error) : status;
    status = status == WEFT_OK ? post_slots(scheduler, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    scheduler->awake = scheduler->driver;
    weft_stats_query_open(&scheduler->query);
    int why = pthread_create(&scheduler->thread, NULL, run, scheduler);
    return why == 0 ? WEFT_OK
                    : weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
}

weft_status weft_scheduler_start(struct weft_scheduler *scheduler,
                                 const struct weft_scheduler_config *config,
                                 struct weft_error *error)
{
    *scheduler = (struct weft_scheduler){.config = *config};
    pthread_mutex_init(&scheduler->lock, NULL);
    weft_stats_query_init(&scheduler->query,
                          &(struct weft_stats_query_config){.wake = wake, .wake_arg = scheduler});
    weft_status status = start(scheduler, error);
    if (status != WEFT_OK) {
        release(scheduler);
    }
    scheduler->is_running = status == WEFT_OK;
    return status;
}

uint16_t weft_scheduler_port(const struct weft_scheduler *scheduler)
{
    return weft_driver_port(scheduler->driver);
}

void weft_scheduler_stop(struct weft_scheduler *scheduler)
{
    if (!scheduler->is_running) {
        return;
    }
    atomic_store(&scheduler->stop, true);
    wake(scheduler);
    pthread_join(scheduler->thread, NULL);
    release(scheduler);
    scheduler->is_running = false;
}
