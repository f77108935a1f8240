/* A running server: handles signals, parent messages and membership changes, and reports at the
 * end. */
#define _GNU_SOURCE
#include "cli/server/internal.h"

#include "cli/child.h"
#include "cli/output.h"
#include "cli/server/deaths.h"
#include "cli/stop.h"
#include "metrics/report.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Interval of promotion checks of a replica, until it can be promoted. */
enum { REPLICA_LOOK_MS = 50 };

/* A server that rejected every connection has failed; report the reason. */
static weft_status judge(struct server *server, struct weft_error *error)
{
    enum weft_ep_hint hint = WEFT_HINT_NONE;
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        if (thread->counters.ep.data_received > 0) {
            return WEFT_OK;
        }
        hint = thread->hint != WEFT_HINT_NONE ? thread->hint : hint;
    }
    if (hint == WEFT_HINT_NONE) {
        return WEFT_OK;
    }
    char why[WEFT_SECURITY_HINT_BYTES];
    weft_security_hint(&server->security, hint, why, sizeof(why));
    return weft_fail(error, WEFT_PEER, "every connection was rejected: %s", why);
}

void weft_server_say_checkpoint(void *arg, enum weft_node_level level, const char *text)
{
    struct server *server = arg;
    if (server->channel.fd >= 0) {
        cJSON *event = weft_channel_event("checkpoint");
        cJSON_AddBoolToObject(event, "good", level == WEFT_NODE_INFO);
        cJSON_AddStringToObject(event, "text", text);
        (void)weft_channel_send(&server->channel, event);
    } else {
        fprintf(stderr, "weft server: %s\n", text);
    }
}

static void tell_ready(struct server *server)
{
    const char *metrics = server->metrics.metrics.http != NULL ? server->metrics.metrics.url : "";
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    for (uint32_t i = 0; i < server->started; i++) {
        ports[i] = server->threads[i].port;
    }
    if (server->channel.fd >= 0) {
        (void)weft_channel_send(&server->channel,
                                weft_child_ready(ports, server->started, metrics));
        return;
    }
    for (uint32_t i = 0; i < server->started; i++) {
        printf("shard %u of %u: %s:%u\n", server->shard_base + i, server->each.shard.shards,
               server->each.driver.udp.host, ports[i]);
    }
    if (metrics[0] != '\0') {
        printf("metrics: %s\n", metrics);
    }
    fflush(stdout);
}

/* Another process owns the shards of this one. If this one continued, workers would see two
 * different models, and its last checkpoint would be wrong. */
static weft_status look_at_membership(struct server *server, bool *was_replaced_p,
                                      struct weft_error *error)
{
    struct weft_member_state state;
    if (server->membership.thread == NULL) {
        return WEFT_OK;
    }
    weft_member_thread_state(server->membership.thread, &state);
    if (state.phase != WEFT_MEMBER_REPLACED && state.phase != WEFT_MEMBER_IS_REFUSED) {
        return WEFT_OK;
    }
    *was_replaced_p = true;
    weft_member_thread_words(server->membership.thread, error->text, sizeof(error->text));
    return WEFT_PEER;
}

/* Detect a replacement by the checkpoint directory, without a coordinator. */
static weft_status look_at_claim(struct server *server, bool *was_replaced_p,
                                 struct weft_error *error)
{
    if (server->checkpoint == NULL || !weft_checkpoint_is_replaced(server->checkpoint, error)) {
        return WEFT_OK;
    }
    *was_replaced_p = true;
    return WEFT_PEER;
}

/* True if SIGUSR1 arrived. False: another signal, which stays pending in the descriptor. */
static bool is_request(struct server *server, int signal_fd)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) != sizeof(info) || info.ssi_signo != SIGUSR1) {
        return false;
    }
    if (server->checkpoint == NULL) {
        weft_server_say_checkpoint(server, WEFT_NODE_WARNING,
                                   "SIGUSR1 requests a checkpoint, but --checkpoint is not set");
    } else if (!weft_checkpoint_request(server->checkpoint)) {
        weft_server_say_checkpoint(
            server, WEFT_NODE_WARNING,
            "SIGUSR1: this server does not have all shards; see --checkpoint-every");
    }
    return true;
}

/* Handle messages from the parent: a worker died, or promote this replica. False: the parent has
 * exited, or *status_p is not OK. */
static bool is_word(struct server *server, weft_status *status_p, struct weft_error *error)
{
    struct weft_channel *channel = &server->channel;
    weft_status status;
    do {
        cJSON *message = NULL;
        uint32_t rank;
        struct weft_server_promotion promotion;
        uint64_t at_ns;
        status = weft_channel_next(channel, &message);
        if (message != NULL && weft_deaths_take(message, &rank, &at_ns)) {
            for (uint32_t i = 0; i < server->started; i++) {
                weft_shard_thread_worker_died(&server->threads[i], rank, at_ns);
            }
        }
        if (message != NULL && server->replica_of != NULL &&
            weft_server_is_promotion(message, &promotion)) {
            *status_p = weft_server_promote(server, &promotion, error);
        }
        cJSON_Delete(message);
        /* Messages that arrived in the same read: poll would not report them. */
    } while (status == WEFT_OK && channel->count > 0 &&
             memchr(channel->bytes, '\n', channel->count) != NULL);
    return status == WEFT_OK && *status_p == WEFT_OK;
}

/* Block until a signal, the end of the parent, a message from the coordinator, or the death of a
 * worker that ends the job. */
static weft_status wait_for_end(struct server *server, int signal_fd, struct weft_error *error)
{
    weft_status status = WEFT_OK;
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = server->channel.fd, .events = POLLIN}, /* -1 is skipped */
        {.fd = -1, .events = POLLIN}, /* the membership's; a replica has none yet */
        {.fd = server->each.lost_fd, .events = POLLIN},
        {.fd = server->checkpoint != NULL ? weft_checkpoint_replaced_fd(server->checkpoint) : -1,
         .events = POLLIN},
    };
    for (bool more = true; more;) {
        const struct weft_member_thread *member = server->membership.thread;
        fds[2].fd = member != NULL ? weft_member_thread_fd(member) : -1;
        const bool asks = server->replica_of != NULL && !server->has_reported;
        if (poll(fds, WEFT_ARRAY_COUNT(fds), asks ? REPLICA_LOOK_MS : -1) <= 0) {
            if (asks) {
                weft_server_report_replica(server);
            }
            continue;
        }
        more = fds[2].revents == 0 && fds[3].revents == 0 && fds[4].revents == 0 &&
               (fds[0].revents == 0 || is_request(server, signal_fd)) &&
               (fds[1].revents == 0 || is_word(server, &status, error));
    }
    return status;
}

/* With --on-worker-death fail: fail if a worker has died. */
static weft_status look_for_lost(struct server *server, struct weft_error *error)
{
    for (uint32_t i = 0; i < server->started; i++) {
        uint32_t rank = atomic_load(&server->threads[i].lost_rank);
        if (rank != UINT32_MAX) {
            return weft_fail(error, WEFT_PEER, "worker %u has died, and --on-worker-death is fail",
                             rank);
        }
    }
    return WEFT_OK;
}

static void report_counters(struct server *server)
{
    struct weft_recorder_counts records = weft_recording_finish(&server->recording);
    cJSON *event = weft_channel_event("done");
    cJSON *counters = cJSON_AddObjectToObject(event, "counters");
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        weft_report_add_transport(counters, &thread->counters);
        weft_report_add_shard(counters, &thread->shard_counters);
        weft_report_add_tables(counters, &thread->table_sums);
        if (server->replicate || server->replica_of != NULL) {
            weft_report_add_replication(counters, &thread->replication, &thread->replica);
        }
    }
    weft_report_add(counters, "records", records.records);
    weft_report_add(counters, "records_dropped", records.dropped);
    if (server->channel.fd >= 0 && server->replicate) {
        cJSON *divergences = cJSON_AddArrayToObject(event, "divergence_max");
        for (uint32_t i = 0; i < server->started; i++) {
            cJSON_AddItemToArray(divergences,
                                 cJSON_CreateNumber(server->threads[i].replication.divergence_max));
        }
    }
    if (server->channel.fd >= 0) {
        (void)weft_channel_send(&server->channel, event);
        return;
    }
    (void)weft_output_json("server", cJSON_DetachItemViaPointer(event, counters), true);
    cJSON_Delete(event);
}

int weft_server_serve(struct server *server)
{
    struct weft_error error = {.text = ""};
    /* Before the threads start: they inherit the mask, and signals arrive at this descriptor
     * only. */
    int signal_fd = weft_stop_fd(SIGUSR1);
    if (signal_fd < 0) {
        (void)weft_fail(&error, WEFT_IO, "cannot create a signalfd");
        return weft_child_exit(&server->channel, "server", WEFT_IO, &error);
    }
    weft_tracing_open(&server->tracing, server->trace, weft_output_log(NULL, false));
    if (server->each.shard.on_death == WEFT_DEATH_FAIL) {
        server->each.lost_fd = eventfd(0, EFD_CLOEXEC);
    }
    bool replaced = false;
    weft_status status = weft_server_start(server, signal_fd, &error);
    if (status == WEFT_OK) {
        tell_ready(server);
        status = wait_for_end(server, signal_fd, &error);
        status = status == WEFT_OK ? look_at_membership(server, &replaced, &error) : status;
        status = status == WEFT_OK ? look_at_claim(server, &replaced, &error) : status;
        status = status == WEFT_OK ? look_for_lost(server, &error) : status;
    }
    int result = weft_child_exit(&server->channel, "server", status, &error);
    weft_membership_leave(&server->membership, true);
    weft_server_metrics_stop(&server->metrics);
    weft_checkpoint_end(server->checkpoint, !replaced);
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_end(&server->threads[i]);
    }
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_join(&server->threads[i]);
    }
    if (status == WEFT_OK) {
        report_counters(server);
        result = weft_child_exit(&server->channel, "server", judge(server, &error), &error);
    }
    if (!weft_recording_close(&server->recording)) {
        result = WEFT_EXIT_FAILED;
    }
    weft_checkpoint_free(server->checkpoint);
    weft_coordinator_stop(&server->coordinator);
    weft_tracing_close(&server->tracing);
    close(signal_fd);
    if (server->each.lost_fd >= 0) {
        close(server->each.lost_fd);
    }
    return result;
}
