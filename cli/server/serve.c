/* A server from its start to its end: what it is asked and told meanwhile, and what it says then. */
#define _GNU_SOURCE
#include "cli/server/internal.h"

#include "cli/child.h"
#include "cli/output.h"
#include "cli/server/deaths.h"
#include "metrics/report.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

int weft_server_fail(struct server *server, weft_status status, const char *text)
{
    return weft_child_fail(&server->channel, "server", status, text);
}

/* A server that never let anybody in, although somebody knocked, has failed, and says why. */
static int judge(struct server *server)
{
    enum weft_ep_hint hint = WEFT_HINT_NONE;
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        if (thread->counters.ep.data_received > 0) {
            return WEFT_EXIT_OK;
        }
        hint = thread->hint != WEFT_HINT_NONE ? thread->hint : hint;
    }
    if (hint == WEFT_HINT_NONE) {
        return WEFT_EXIT_OK;
    }
    char why[WEFT_SECURITY_HINT_BYTES];
    char text[WEFT_SECURITY_HINT_BYTES + 32];
    weft_security_hint(&server->security, hint, why, sizeof(why));
    snprintf(text, sizeof(text), "no worker ever got in: %s", why);
    return weft_server_fail(server, WEFT_PEER, text);
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

/* Another process has this one's shards: serving on would show workers two truths, and a last
 * checkpoint would be of the wrong one. */
static int look_at_membership(struct server *server, bool *was_replaced_p)
{
    char text[WEFT_ERROR_BYTES];
    struct weft_member_state state;
    if (server->membership.thread == NULL) {
        return WEFT_EXIT_OK;
    }
    weft_member_thread_state(server->membership.thread, &state);
    if (state.phase != WEFT_MEMBER_REPLACED && state.phase != WEFT_MEMBER_IS_REFUSED) {
        return WEFT_EXIT_OK;
    }
    *was_replaced_p = true;
    weft_member_thread_words(server->membership.thread, text, sizeof(text));
    return weft_server_fail(server, WEFT_PEER, text);
}

/* The checkpoint directory says so: no coordinator is needed for that. */
static int look_at_claim(struct server *server, bool *was_replaced_p)
{
    struct weft_error why;
    if (server->checkpoint == NULL || !weft_checkpoint_is_replaced(server->checkpoint, &why)) {
        return WEFT_EXIT_OK;
    }
    *was_replaced_p = true;
    return weft_server_fail(server, WEFT_PEER, why.text);
}

/* SIGUSR1 came; or another one, which is left in the descriptor's word: false. */
static bool is_request(struct server *server, int signal_fd)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) != sizeof(info) || info.ssi_signo != SIGUSR1) {
        return false;
    }
    if (server->checkpoint == NULL) {
        weft_server_say_checkpoint(server, WEFT_NODE_WARNING,
                                   "SIGUSR1 asks for a checkpoint, but there is no --checkpoint");
    } else if (!weft_checkpoint_request(server->checkpoint)) {
        weft_server_say_checkpoint(
            server, WEFT_NODE_WARNING,
            "SIGUSR1: this server has not all shards; see --checkpoint-every");
    }
    return true;
}

/* The parent says that a worker has died; false: it is gone itself. */
static bool is_word(struct server *server)
{
    struct weft_channel *channel = &server->channel;
    weft_status status;
    do {
        cJSON *message = NULL;
        uint32_t rank;
        uint64_t at_ns;
        status = weft_channel_next(channel, &message);
        if (message != NULL && weft_deaths_take(message, &rank, &at_ns)) {
            for (uint32_t i = 0; i < server->started; i++) {
                weft_shard_thread_worker_died(&server->threads[i], rank, at_ns);
            }
        }
        cJSON_Delete(message);
        /* What came in the same bytes: no poll would tell. */
    } while (status == WEFT_OK && channel->count > 0 &&
             memchr(channel->bytes, '\n', channel->count) != NULL);
    return status == WEFT_OK;
}

/* Sleep until a signal asks us to end, the parent is gone, the coordinator says so, or a worker has
 * died whose death ends the job. */
static void wait_for_end(struct server *server, int signal_fd)
{
    const struct weft_member_thread *member = server->membership.thread;
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = server->channel.fd, .events = POLLIN}, /* -1 is passed over */
        {.fd = member != NULL ? weft_member_thread_fd(member) : -1, .events = POLLIN},
        {.fd = server->each.lost_fd, .events = POLLIN},
        {.fd = server->checkpoint != NULL ? weft_checkpoint_replaced_fd(server->checkpoint) : -1,
         .events = POLLIN},
    };
    for (bool more = true; more;) {
        if (poll(fds, WEFT_ARRAY_COUNT(fds), -1) <= 0) {
            continue;
        }
        more = fds[2].revents == 0 && fds[3].revents == 0 && fds[4].revents == 0 &&
               (fds[0].revents == 0 || is_request(server, signal_fd)) &&
               (fds[1].revents == 0 || is_word(server));
    }
}

/* --on-worker-death fail, and one has. */
static int look_for_lost(struct server *server)
{
    char text[96];
    for (uint32_t i = 0; i < server->started; i++) {
        uint32_t rank = atomic_load(&server->threads[i].lost_rank);
        if (rank != UINT32_MAX) {
            snprintf(text, sizeof(text), "worker %u has died; --on-worker-death fail ends the job",
                     rank);
            return weft_server_fail(server, WEFT_PEER, text);
        }
    }
    return WEFT_EXIT_OK;
}

static void tell_counters(struct server *server)
{
    struct weft_recorder_counts records = weft_recording_finish(&server->recording);
    cJSON *event = weft_channel_event("done");
    cJSON *counters = cJSON_AddObjectToObject(event, "counters");
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        weft_report_add_transport(counters, &thread->counters);
        weft_report_add_shard(counters, &thread->shard_counters);
        weft_report_add_tables(counters, &thread->table_sums);
    }
    weft_report_add(counters, "records", records.records);
    weft_report_add(counters, "records_dropped", records.dropped);
    if (server->channel.fd >= 0) {
        (void)weft_channel_send(&server->channel, event);
        return;
    }
    (void)weft_output_json("server", cJSON_DetachItemViaPointer(event, counters), true);
    cJSON_Delete(event);
}

int weft_server_serve(struct server *server)
{
    /* Before the threads start: they inherit the mask; signals come to this descriptor alone. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (signal_fd < 0) {
        return weft_server_fail(server, WEFT_IO, "signalfd is refused");
    }
    weft_tracing_open(&server->tracing, server->trace, weft_output_log(NULL, false));
    if (server->each.shard.on_death == WEFT_DEATH_FAIL) {
        server->each.lost_fd = eventfd(0, EFD_CLOEXEC);
    }
    bool replaced = false;
    int status = weft_server_start(server, signal_fd);
    if (status == WEFT_EXIT_OK) {
        tell_ready(server);
        wait_for_end(server, signal_fd);
        status = look_at_membership(server, &replaced);
        status = status == WEFT_EXIT_OK ? look_at_claim(server, &replaced) : status;
        status = status == WEFT_EXIT_OK ? look_for_lost(server) : status;
    }
    weft_membership_leave(&server->membership, true);
    weft_server_metrics_stop(&server->metrics);
    weft_checkpoint_end(server->checkpoint, !replaced);
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_join(&server->threads[i]);
    }
    if (status == WEFT_EXIT_OK) {
        tell_counters(server);
        status = judge(server);
    }
    if (!weft_recording_close(&server->recording)) {
        status = WEFT_EXIT_FAILED;
    }
    weft_checkpoint_free(server->checkpoint);
    weft_coordinator_stop(&server->coordinator);
    weft_tracing_close(&server->tracing);
    close(signal_fd);
    if (server->each.lost_fd >= 0) {
        close(server->each.lost_fd);
    }
    return status;
}
