/* Replicas of the servers of `weft run`: one per server, in slots after the workers. When a
 * server's process dies, its replica is asked to take over. It acquires the dead process's lease,
 * moves to the server's slot, and gets a replica itself. */
#include "cli/run/internal.h"

#include "io/clock.h"

#include <stdio.h>
#include <string.h>

int weft_run_check_replicas(const struct weft_command *command,
                            const struct weft_run_options *options, bool has_checkpoints)
{
    if (options->on_server_death == WEFT_RUN_PROMOTE && options->replicas == 0) {
        return weft_options_usage(command, "--on-server-death promote requires --replicas 1");
    }
    if (options->replicas == 0 && options->div_max != 0) {
        return weft_options_usage(command, "--div-max requires --replicas 1");
    }
    if (options->replicas > 0 && options->on_server_death != WEFT_RUN_PROMOTE) {
        return weft_options_usage(command, "--replicas 1 requires --on-server-death promote: a "
                                           "replica is not used when its server is restarted");
    }
    return options->replicas > 0 && has_checkpoints
               ? weft_options_usage(command,
                                    "--replicas cannot be combined with checkpoints: a promoted "
                                    "replica does not know which rows the newest checkpoint "
                                    "has, has no journal to continue, and no claim on the "
                                    "directory")
               : WEFT_OPTIONS_RUN;
}

void weft_run_start_replica(struct run *run, uint32_t s)
{
    weft_run_make_replica(run, s);
    (void)weft_run_start(run, run_replica(run, s)); /* run->error has a failure */
}

static void give_up(struct run *run, uint32_t s, const char *why)
{
    if (run->error.text[0] == '\0') {
        (void)weft_fail(&run->error, WEFT_PEER,
                        "server %u has died, and its replica cannot replace it: "
                        "%s",
                        s, why);
    }
}

bool weft_run_promote(struct run *run, uint32_t s, const char *how)
{
    if (run->options->on_server_death != WEFT_RUN_PROMOTE) {
        return false;
    }
    struct weft_slot *replica = run_replica(run, s);
    weft_run_say(run, "server %u %s; promoting its replica", s, how);
    cJSON *event = weft_channel_event("promote");
    cJSON_AddNumberToObject(event, "restart", run_server(run, s)->starts);
    /* The clock is the machine's, and so the replica's, too. */
    cJSON_AddNumberToObject(event, "died_ns", (double)weft_clock_now_ns());
    if (!replica->is_running || !replica->is_ready) {
        cJSON_Delete(event);
        give_up(run, s, "there is no replica");
    } else if (weft_channel_send(&replica->channel, event) != WEFT_OK) {
        give_up(run, s, "it does not reply");
    } else {
        run->promoting[s] = true;
    }
    return true;
}

/* The replica's process is the server from now on. */
static void promoted(struct run *run, uint32_t s, const cJSON *message)
{
    const uint32_t shards = run->options->shards_per_server;
    struct weft_slot *server = run_server(run, s), *replica = run_replica(run, s);
    const uint32_t starts = server->starts + 1; /* same count as at the coordinator */
    weft_supervisor_swap(&run->supervisor, server, replica);
    server->role = "server";
    server->starts = starts;
    replica->role = "replica";
    replica->starts = 0;
    run->promoting[s] = false;
    memcpy(run->ports + s * shards, run->replica_ports + s * shards, shards * sizeof(*run->ports));
    weft_run_metrics_promoted(&run->metrics);
    if (run->options->watch != NULL) {
        run->options->watch->promotions++;
    }
    weft_run_metrics_moved(&run->metrics, server, run->replica_metrics[s]);
    weft_run_say(run, "server %u: pid %d, which was its replica, after %.0f ms", s,
                 (int)server->pid, weft_channel_number(message, "took_ms"));
    for (uint32_t w = 0; w < run->options->workers; w++) {
        if (run_worker(run, w)->role != NULL) {
            weft_run_set_servers(run, run_worker(run, w)); /* for its next process */
        }
    }
    weft_run_start_replica(run, s);
}

bool weft_run_replica_message(struct run *run, struct weft_slot *slot, const cJSON *message)
{
    const uint32_t s = run_replica_of(run, slot);
    const char *event = weft_channel_text(message, "event");
    const uint32_t shards = run->options->shards_per_server;
    if (s == UINT32_MAX) {
        return false;
    }
    if (strcmp(event, "ready") == 0) {
        weft_channel_ports(message, run->replica_ports + s * shards, shards);
        slot->is_ready = true;
        snprintf(run->replica_metrics[s], sizeof(run->replica_metrics[s]), "%s",
                 weft_channel_text(message, "metrics"));
    } else if (strcmp(event, "replica-ready") == 0) {
        weft_run_say(run, "replica %u: ready for promotion", s);
    } else if (strcmp(event, "promoted") == 0) {
        promoted(run, s, message);
    } else if (strcmp(event, "not-promoted") == 0 ||
               (run->promoting[s] && strcmp(event, "error") == 0)) {
        give_up(run, s, weft_channel_text(message, "text"));
    } else {
        return false;
    }
    return true;
}

bool weft_run_replica_exit(struct run *run, struct weft_slot *slot, const char *how)
{
    const uint32_t s = run_replica_of(run, slot);
    if (s == UINT32_MAX || slot->is_retired) {
        return false;
    }
    if (run->promoting[s]) {
        give_up(run, s, how);
    } else if (weft_supervisor_restart(&run->supervisor, slot)) {
        weft_run_say(run, "replica %u %s; restart %u of %u", s, how, slot->starts,
                     run->options->restarts);
    } else {
        weft_run_say(run, "replica %u %s; its server continues without a replica", s, how);
    }
    return true;
}
