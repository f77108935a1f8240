/* Build the command line and environment of each process slot of a `weft run` job. */
#include "cli/run/internal.h"

#include "cli/train/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* Defaults for workers when servers restart: time to wait for the server, and memory for kept
 * pushes. */
enum { RECONNECT_S = 60, REPLAY_MIB = 256 };

/* Start the arguments of a weft verb. The port is the last argument, and supervise.c replaces
 * it. */
static void begin_weft_process(struct run *run, struct weft_slot *slot, const char *verb,
                               const char *role, uint32_t rank)
{
    slot->role = role;
    slot->rank = rank;
    slot->has_channel = true;
    slot->is_prefixed = true;
    weft_args_add(&slot->args, "/proc/self/exe");
    weft_args_add(&slot->args, "%s", verb);
    weft_train_args_transport(&run->options->transport, &run->options->security, &slot->args);
    weft_args_add(&slot->args, "--control-fd=%d", (int)WEFT_CONTROL_FD);
    weft_metrics_add(&run->options->metrics, &slot->args);
}

/* Set the environment variables of every process of the job. */
static void set_job_environment(struct run *run, struct weft_slot *slot)
{
    uint64_t member = 0;
    /* Identifies the slot, not the process: a restarted process takes over its predecessor's
     * membership. */
    while (member == 0) {
        if (getrandom(&member, sizeof(member), 0) != (ssize_t)sizeof(member)) {
            member = 0;
        }
    }
    weft_slot_setenv(slot, "WEFT_ROLE", "%s", slot->role);
    weft_slot_setenv(slot, "WEFT_MEMBER", "%016llx", (unsigned long long)member);
    weft_slot_setenv(slot, "WEFT_WORKERS", "%u", run->options->workers);
    weft_slot_setenv(slot, "WEFT_SHARDS", "%u",
                     run->options->servers * run->options->shards_per_server);
    weft_slot_setenv(slot, "WEFT_RANK", "%u", slot->rank);
    weft_slot_setenv(slot, "WEFT_LOCAL_RANK", "%u", slot->rank);
    if (run->options->job != NULL) {
        weft_slot_setenv(slot, "WEFT_JOB", "%s", run->options->job);
    }
    if (run->key[0] != '\0') {
        weft_slot_setenv(slot, "WEFT_JOB_KEY", "%.*s", (int)WEFT_JOB_KEY_TEXT_BYTES, run->key);
    }
}

/* Write the addresses of `count` shards, comma-separated; text_p must have space for all of
 * them. */
static void write_addresses(const struct run *run, uint32_t first, uint32_t count, char *text_p)
{
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)sprintf(text_p + used, "%s127.0.0.1:%u", i > 0 ? "," : "",
                                (unsigned)run->ports[first + i]);
    }
}

void weft_run_make_coordinator(struct run *run)
{
    struct weft_slot *slot = run_coordinator(run);
    begin_weft_process(run, slot, "coordinator", "coordinator", 0);
    weft_args_add(&slot->args, "--workers=%u", run->options->workers);
    weft_args_add(&slot->args, "--shards=%u",
                  run->options->servers * run->options->shards_per_server);
    weft_args_add(&slot->args, "--lease-ms=%u", run->options->lease_ms);
    weft_args_add(&slot->args, "--journal=%s/members", run->folder);
    weft_args_add(&slot->args, "--port=0");
    set_job_environment(run, slot);
}

static void fill_server(struct run *run, struct weft_slot *slot, uint32_t s)
{
    begin_weft_process(run, slot, "server", "server", s);
    weft_args_add(&slot->args, "--shards-per-server=%u", run->options->shards_per_server);
    weft_args_add(&slot->args, "--coordinator=127.0.0.1:%u", run->coordinator_port);
    weft_args_add(&slot->args, "--on-worker-death=%s", weft_deaths_name(run->options->on_death));
    if (run->options->replicas > 0) {
        weft_args_add(&slot->args, "--replicate");
        weft_args_add(&slot->args, "--div-max=%.17g", run->options->div_max);
    }
    if (run->options->aggregators > 0) {
        weft_args_add(&slot->args, "--aggregators=%u", run->options->aggregators);
    }
    char scheduler[WEFT_LAUNCH_HOST_BYTES + 16];
    weft_run_scheduler_address(run, scheduler, sizeof(scheduler));
    if (scheduler[0] != '\0') {
        weft_args_add(&slot->args, "--scheduler=%s", scheduler);
    }
    weft_args_add_all(&slot->args, run->options->server_args.list);
    /* A killed server restores from its journal the changes that its last checkpoint lacks. */
    if (run->options->restarts > 0 && run->replays &&
        !weft_run_servers_have(run->options, "journal")) {
        weft_args_add(&slot->args, "--journal=%s", run->folder);
    }
    if (slot != run_server(run, s)) {
        char addresses[WEFT_JOB_SHARDS_MAX * 24];
        write_addresses(run, s * run->options->shards_per_server, run->options->shards_per_server,
                        addresses);
        weft_args_add(&slot->args, "--replica-of=%s", addresses);
    }
    weft_args_add(&slot->args, "--port=0");
    if (weft_run_servers_have(run->options, "checkpoint")) {
        slot->grace_ns = WEFT_RUN_CHECKPOINT_GRACE_NS;
    }
    set_job_environment(run, slot);
}

void weft_run_make_server(struct run *run, uint32_t s)
{
    fill_server(run, run_server(run, s), s);
}

void weft_run_make_aggregator(struct run *run, uint32_t a)
{
    struct weft_slot *slot = run_aggregator(run, a);
    begin_weft_process(run, slot, "aggregate", "aggregator", a);
    weft_args_add(&slot->args, "--coordinator=127.0.0.1:%u", run->coordinator_port);
    weft_args_add(&slot->args, "--listen=127.0.0.1:0");
    weft_args_add(&slot->args, "--number=%u", a);
    weft_args_add(&slot->args, "--workers=%u", run->options->workers);
    weft_args_add_all(&slot->args, run->options->aggregator_args.list);
    set_job_environment(run, slot);
}

void weft_run_make_scheduler(struct run *run)
{
    struct weft_slot *slot = run_scheduler(run);
    begin_weft_process(run, slot, "scheduler", "scheduler", 0);
    weft_args_add(&slot->args, "--workers=%u", run->options->workers);
    weft_args_add(&slot->args, "--shards=%u",
                  run->options->servers * run->options->shards_per_server);
    weft_args_add_all(&slot->args, run->options->scheduler_args.list);
    weft_args_add(&slot->args, "--port=0");
    set_job_environment(run, slot);
}

/* A replica may replace its server, so it has the server's member id at the coordinator. */
void weft_run_make_replica(struct run *run, uint32_t s)
{
    static const char member[] = "WEFT_MEMBER=";
    const struct weft_args *of_server = &run_server(run, s)->environment;
    struct weft_slot *slot = run_replica(run, s);
    weft_args_fini(&slot->args);
    weft_args_fini(&slot->environment);
    fill_server(run, slot, s);
    slot->role = "replica";
    for (size_t i = 0; i < of_server->count; i++) {
        if (strncmp(of_server->list[i], member, strlen(member)) == 0) {
            weft_slot_setenv(slot, "WEFT_MEMBER", "%s", of_server->list[i] + strlen(member));
        }
    }
}

/* Is the variable set and not empty? Workers inherit it; an empty value counts as unset. */
static bool env_is_set(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0';
}

/* Set a worker's reconnect time and memory for kept pushes. Options take precedence over variables,
 * variables over defaults. */
static void set_reconnect_environment(const struct run *run, struct weft_slot *slot)
{
    const struct weft_run_options *options = run->options;
    bool said = options->replay_bytes != UINT64_MAX;
    uint64_t bytes = said ? options->replay_bytes : (uint64_t)REPLAY_MIB << 20;
    if (options->no_key_caching) {
        weft_slot_setenv(slot, "WEFT_KEY_CACHING", "0");
    }
    if (options->restarts == 0 && options->on_server_death != WEFT_RUN_PROMOTE) {
        return;
    }
    if (!env_is_set("WEFT_RECONNECT_S")) {
        weft_slot_setenv(slot, "WEFT_RECONNECT_S", "%u", (unsigned)RECONNECT_S);
    }
    if (run->replays && (said || !env_is_set("WEFT_REPLAY_BYTES"))) {
        weft_slot_setenv(slot, "WEFT_REPLAY_BYTES", "%llu", (unsigned long long)bytes);
    } else if (options->durability == WEFT_RUN_DURABILITY_NONE) {
        weft_slot_setenv(slot, "WEFT_REPLAY_BYTES", "0");
    }
}

void weft_run_set_servers(struct run *run, struct weft_slot *worker)
{
    char addresses[WEFT_JOB_SHARDS_MAX * 24];
    write_addresses(run, 0, run->options->servers * run->options->shards_per_server, addresses);
    weft_slot_setenv(worker, "WEFT_SERVERS", "%s", addresses);
}

void weft_run_make_worker(struct run *run, uint32_t w)
{
    struct weft_slot *slot = run_worker(run, w);
    slot->role = "worker";
    slot->rank = w;
    slot->is_prefixed = true;
    weft_args_add_all(&slot->args, run->options->worker_args.list);
    if (run->options->watch != NULL) {
        slot->has_channel = true;
        weft_args_add(&slot->args, "--control-fd=%d", (int)WEFT_CONTROL_FD);
        weft_args_add(&slot->args, "--environment");
    }
    set_job_environment(run, slot);
    weft_slot_setenv(slot, "WEFT_COORDINATOR", "127.0.0.1:%u", run->coordinator_port);
    weft_run_set_servers(run, slot);
    weft_slot_setenv(slot, "WEFT_PEER_TIMEOUT_S", "%u", run->options->transport.peer_timeout_s);
    weft_run_metrics_serve_worker(&run->options->metrics, run->folder, slot);
    if (run->options->aggregators > 0 && !env_is_set("WEFT_VIA")) {
        weft_run_set_via(run, slot);
    }
    char scheduler[WEFT_LAUNCH_HOST_BYTES + 16];
    weft_run_scheduler_address(run, scheduler, sizeof(scheduler));
    if (scheduler[0] != '\0') {
        weft_slot_setenv(slot, "WEFT_SCHEDULER", "%s", scheduler);
    }
    set_reconnect_environment(run, slot);
}

weft_status weft_run_start(struct run *run, struct weft_slot *slot)
{
    struct weft_error error;
    weft_slot_setenv(slot, "WEFT_RESTART", "%u", slot->starts);
    if (weft_supervisor_start(&run->supervisor, slot, &error) != WEFT_OK) {
        return weft_fail(&run->error, WEFT_IO, "cannot start %s %u: %s", slot->role, slot->rank,
                         error.text);
    }
    weft_run_say(run, "%s %u: pid %d", slot->role, slot->rank, (int)slot->pid);
    return WEFT_OK;
}
