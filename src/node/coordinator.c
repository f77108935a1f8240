#include "node/coordinator.h"

#include "io/clock.h"
#include "io/resolve.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Wait this long for servers to learn that the work is done. */
static const uint64_t over_patience_ns = 10 * WEFT_NS_PER_S;

enum { SLOTS = 128 };

/* ---- the journal ----------------------------------------------------------------------------- */

static weft_status restore(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct weft_coordinator *coordinator = arg;
    struct weft_member_request record;
    weft_status status = weft_member_request_unpack(op, bytes, count, &record);
    return status == WEFT_OK
               ? weft_roster_restore(coordinator->roster, op, &record, weft_clock_now_ns())
               : WEFT_DATA;
}

static bool record(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct weft_coordinator *coordinator = arg;
    return coordinator->journal == NULL ||
           weft_coordinator_journal_append(coordinator->journal, op, bytes, count) == WEFT_OK;
}

static size_t supply(void *arg, uint32_t i, uint8_t *op_p,
                     uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX])
{
    struct weft_coordinator *coordinator = arg;
    struct weft_member_request record;
    static_assert((int)WEFT_MEMBER_REQUEST_BYTES_MAX <= (int)WEFT_COORDINATOR_JOURNAL_BODY_MAX);
    return weft_roster_record(coordinator->roster, i, op_p, &record)
               ? weft_member_request_pack(&record, body)
               : 0;
}

/* Replace all records by the current roster. False: the journal is unchanged. */
static bool compact(struct weft_coordinator *coordinator)
{
    struct weft_error why = {.text = ""};
    if (!weft_coordinator_journal_is_long(coordinator->journal)) {
        return false;
    }
    weft_status status =
        weft_coordinator_journal_compact(coordinator->journal, supply, coordinator, &why);
    if (status != WEFT_OK) {
        weft_node_warn(&coordinator->config.log,
                       "%s; the journal keeps growing, and is compacted again when it has twice this "
                       "length",
                       why.text);
    }
    return status == WEFT_OK;
}

static bool sync_records(void *arg)
{
    struct weft_coordinator *coordinator = arg;
    return coordinator->journal == NULL || compact(coordinator) ||
           weft_coordinator_journal_sync(coordinator->journal) == WEFT_OK;
}

/* A job that has ended leaves its journal: a coordinator that is to end with its job would end at
 * once, while the processes of the next run wait for it. */
static weft_status look_for_ended_job(struct weft_coordinator *coordinator, uint32_t members,
                                      struct weft_error *error)
{
    const struct weft_roster *roster = coordinator->roster;
    const char *path = coordinator->config.journal;
    const uint32_t workers = weft_roster_workers(roster);
    if (!weft_roster_is_over(roster)) {
        return WEFT_OK;
    }
    if (members > 0) { /* restarted before the last have left, or a server died without leaving */
        weft_node_warn(&coordinator->config.log,
                       "%s is the journal of a job whose %u workers have all finished, with %u "
                       "members that have not left; to run the job again, name a new file",
                       path, workers, members);
        return WEFT_OK;
    }
    if (coordinator->config.roster.tell_over) {
        return weft_fail(error, WEFT_STATE,
                         "%.160s is the journal of a job whose %u workers have all finished; to run "
                         "the job again, name a new file",
                         path, workers);
    }
    weft_node_warn(&coordinator->config.log,
                   "%s is the journal of a job whose %u workers have all finished: a worker that "
                   "names no rank gets none; to run the job again, name a new file",
                   path, workers);
    return WEFT_OK;
}

static weft_status open_journal(struct weft_coordinator *coordinator, struct weft_error *error)
{
    uint64_t torn_bytes;
    const char *path = coordinator->config.journal;
    if (path == NULL) {
        return WEFT_OK;
    }
    weft_status status = weft_coordinator_journal_open(path, restore, coordinator,
                                                       &coordinator->journal, &torn_bytes, error);
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t members = weft_roster_members(coordinator->roster);
    if (torn_bytes > 0) {
        weft_node_info(&coordinator->config.log,
                       "%u members from %s; %" PRIu64 " bytes of an incomplete record were cut off",
                       members, path, torn_bytes);
    } else if (members > 0) {
        weft_node_info(&coordinator->config.log, "%u members from %s", members, path);
    }
    (void)compact(coordinator);
    return look_for_ended_job(coordinator, members, error);
}

/* ---- log lines ------------------------------------------------------------------------------- */

static void name_member(const struct weft_member_request *who, char *text_p, size_t bytes)
{
    if (who->role == WEFT_ROLE_AGGREGATOR) {
        snprintf(text_p, bytes, "aggregator %u", who->rank);
    } else if (who->role == WEFT_ROLE_WORKER && who->rank != WEFT_MEMBER_NONE) {
        snprintf(text_p, bytes, "worker %u", who->rank);
    } else if (who->role == WEFT_ROLE_WORKER) {
        snprintf(text_p, bytes, "a worker");
    } else if (who->first != WEFT_MEMBER_NONE && who->span > 1) {
        snprintf(text_p, bytes, "the server of shards %u to %u", who->first,
                 who->first + who->span - 1);
    } else if (who->first != WEFT_MEMBER_NONE) {
        snprintf(text_p, bytes, "the server of shard %u", who->first);
    } else {
        snprintf(text_p, bytes, "a server");
    }
}

static void note(void *arg, enum weft_member_note what, const struct weft_member_request *who,
                 uint16_t status)
{
    struct weft_coordinator *coordinator = arg;
    const struct weft_node_log *log = &coordinator->config.log;
    char name[64] = "";
    if (who != NULL) {
        name_member(who, name, sizeof(name));
    }
    if (coordinator->config.expired != NULL &&
        (what == WEFT_MEMBER_NOTE_EXPIRED || what == WEFT_MEMBER_NOTE_RECLAIMED)) {
        coordinator->config.expired(coordinator->config.arg, who, what == WEFT_MEMBER_NOTE_EXPIRED);
    }
    if (what == WEFT_MEMBER_NOTE_EXPIRED) {
        weft_node_warn(log, "%s has been silent for its lease; its slot is free", name);
    } else if (what == WEFT_MEMBER_NOTE_REFUSED && status != WEFT_MEMBER_UNKNOWN_MEMBER &&
               status != WEFT_MEMBER_CLAIMED && status != WEFT_MEMBER_FULL) {
        /* A process whose slot is taken repeats its claim while the holder's lease lasts, and logs
         * the refusal itself. */
        weft_node_warn(log, "%s was refused: %s", name, weft_member_status_text(status));
    } else if (what == WEFT_MEMBER_NOTE_JOINED && who->count > 0) {
        char host[WEFT_RESOLVE_TEXT_BYTES];
        weft_resolve_member_host(&who->addresses[0], host);
        weft_node_info(log, "%s is at %s port %u, epoch %" PRIu64, name, host,
                       who->addresses[0].port, who->epoch);
    } else if (what == WEFT_MEMBER_NOTE_COMPLETE) {
        weft_node_info(log, "all shards are registered");
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* All workers are done: end when the servers have left, too, or the time for that is over. */
static void look_whether_over(struct weft_coordinator *coordinator, uint64_t now_ns)
{
    if (!weft_roster_is_over(coordinator->roster)) {
        coordinator->over_ns = 0;
        return;
    }
    coordinator->over_ns = coordinator->over_ns != 0 ? coordinator->over_ns : now_ns;
    if (weft_roster_members(coordinator->roster) == 0 ||
        now_ns - coordinator->over_ns >= over_patience_ns) {
        uint64_t one = 1;
        (void)!write(coordinator->over_fd, &one, sizeof(one));
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_coordinator *coordinator = arg;
    struct weft_msgr msgr = weft_driver_msgr(coordinator->driver);
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        weft_member_service_event(coordinator->service, &event, now_ns);
    }
    weft_member_service_progress(coordinator->service, now_ns);
    if (weft_member_service_is_broken(coordinator->service) && !coordinator->said_broken) {
        coordinator->said_broken = true;
        weft_node_warn(&coordinator->config.log,
                       "cannot write %s: %s; the work goes on, but no process can join any more",
                       coordinator->config.journal, strerror(errno));
    }
    look_whether_over(coordinator, now_ns);
}

static void *run(void *arg)
{
    struct weft_coordinator *coordinator = arg;
    while (!atomic_load(&coordinator->stop)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint64_t until_ns = weft_member_service_deadline(coordinator->service);
        if (coordinator->over_ns != 0) {
            until_ns = weft_min_u64(until_ns, now_ns + WEFT_NS_PER_S);
        }
        uint64_t timeout_ns = until_ns == WEFT_NEVER ? WEFT_NEVER
                              : until_ns > now_ns    ? until_ns - now_ns
                                                     : 0;
        (void)weft_driver_step(coordinator->driver, timeout_ns, handle, coordinator);
        weft_stats_query_poll(&coordinator->query, coordinator);
    }
    weft_stats_query_close(&coordinator->query);
    pthread_mutex_lock(&coordinator->lock);
    coordinator->awake = NULL;
    pthread_mutex_unlock(&coordinator->lock);
    return NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static weft_status open_driver(struct weft_coordinator *coordinator, struct weft_error *error)
{
    const struct weft_coordinator_config *config = &coordinator->config;
    struct weft_driver_config driver;
    weft_driver_config_default(&driver);
    weft_transport_options_apply(&config->transport, &driver);
    driver.udp.host = config->host;
    driver.udp.port = config->port;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_COORDINATOR, 0);
    driver.udp.ep.accept = 1;
    /* Twice the members: a restarted process may connect before its old connection times out. */
    driver.udp.ep.peers_max = 2 * config->roster.members_max;
    driver.udp.ep.chunks_max = 256;
    driver.udp.ep.tx_window_max = 256;
    driver.udp.ep.expects_max = SLOTS;
    /* Members send five heartbeats in a lease; one that was silent for many leases is gone. */
    driver.udp.ep.idle_timeout_ns = 30 * WEFT_NS_PER_S + 4 * config->roster.lease_ns;
    weft_status status =
        weft_security_arm(config->security, &driver.udp, &coordinator->provider, error);
    if (status == WEFT_OK) {
        status = weft_driver_open(&driver, &coordinator->driver, error);
    }
    weft_security_disarm(&driver.udp);
    if (status != WEFT_OK) {
        return status;
    }
    const struct weft_member_service_config service = {.peers_max = driver.udp.ep.peers_max,
                                                       .slots = SLOTS,
                                                       .shards_max = config->roster.shards_max,
                                                       .roster = coordinator->roster,
                                                       .record = record,
                                                       .sync = sync_records,
                                                       .note = note,
                                                       .arg = coordinator};
    status = weft_member_service_new(&service, weft_driver_msgr(coordinator->driver),
                                     &coordinator->service);
    return status == WEFT_OK ? status
                             : weft_fail(error, status, "cannot make the coordinator's service: %s",
                                         weft_status_text(status));
}

static void release(struct weft_coordinator *coordinator)
{
    /* The endpoint borrows the service's memory, so the endpoint is freed first. */
    weft_driver_close(coordinator->driver);
    weft_provider_free(coordinator->provider);
    weft_member_service_free(coordinator->service);
    weft_coordinator_journal_close(coordinator->journal);
    weft_roster_free(coordinator->roster);
    if (coordinator->over_fd >= 0) {
        close(coordinator->over_fd);
    }
}

static weft_status start(struct weft_coordinator *coordinator, struct weft_error *error)
{
    weft_status status = weft_roster_new(&coordinator->config.roster, &coordinator->roster);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "cannot make the list of members: %s",
                         weft_status_text(status));
    }
    if (coordinator->over_fd < 0) {
        return weft_fail(error, WEFT_IO, "eventfd: %s", strerror(errno));
    }
    status = open_journal(coordinator, error);
    status = status == WEFT_OK ? open_driver(coordinator, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    coordinator->awake = coordinator->driver;
    weft_stats_query_open(&coordinator->query);
    int why = pthread_create(&coordinator->thread, NULL, run, coordinator);
    return why == 0 ? WEFT_OK
                    : weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
}

static void wake(void *arg)
{
    struct weft_coordinator *coordinator = arg;
    pthread_mutex_lock(&coordinator->lock);
    if (coordinator->awake != NULL) {
        weft_driver_wake(coordinator->awake);
    }
    pthread_mutex_unlock(&coordinator->lock);
}

weft_status weft_coordinator_start(struct weft_coordinator *coordinator,
                                   const struct weft_coordinator_config *config,
                                   struct weft_error *error)
{
    *coordinator = (struct weft_coordinator){.config = *config};
    coordinator->over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&coordinator->lock, NULL);
    weft_stats_query_init(&coordinator->query, &(struct weft_stats_query_config){
                                                   .wake = wake, .wake_arg = coordinator});
    weft_status status = start(coordinator, error);
    if (status != WEFT_OK) {
        release(coordinator);
    }
    coordinator->is_running = status == WEFT_OK;
    return status;
}

uint16_t weft_coordinator_port(const struct weft_coordinator *coordinator)
{
    return weft_driver_port(coordinator->driver);
}

void weft_coordinator_stop(struct weft_coordinator *coordinator)
{
    if (!coordinator->is_running) {
        return;
    }
    atomic_store(&coordinator->stop, true);
    wake(coordinator);
    pthread_join(coordinator->thread, NULL);
    release(coordinator);
    coordinator->is_running = false;
}
