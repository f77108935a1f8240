/* Who is in a job of `weft run`: the command and the environment of each place. */
#define _GNU_SOURCE
#include "cli/run/internal.h"

#include "cli/train/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* How long a worker waits for a server that is started again, and what it keeps of its pushes for it:
 * unless the user says otherwise. */
enum { RECONNECT_S = 60, REPLAY_MIB = 256 };

static void add_common(struct run *run, struct weft_arguments *arguments)
{
    weft_train_words_carrier(&run->transport, &run->security, arguments);
    weft_arguments_add(arguments, "--control-fd=%d", (int)WEFT_CONTROL_FD);
    char metrics[WEFT_TARGETS_OPTION_BYTES];
    weft_targets_option(&run->metrics_options, metrics);
    if (metrics[0] != '\0') {
        weft_arguments_add(arguments, "%s", metrics);
    }
}

/* What every process of the job is told. */
static void tell_job(struct run *run, struct weft_place *place)
{
    uint64_t member = 0;
    /* Names the place, not the process: who is started in it again takes over what it had. */
    while (member == 0) {
        if (getrandom(&member, sizeof(member), 0) != (ssize_t)sizeof(member)) {
            member = 0;
        }
    }
    weft_place_set(place, "WEFT_ROLE", "%s", place->role);
    weft_place_set(place, "WEFT_MEMBER", "%016llx", (unsigned long long)member);
    weft_place_set(place, "WEFT_WORKERS", "%u", run->workers);
    weft_place_set(place, "WEFT_SHARDS", "%u", run->servers * run->shards_per_server);
    weft_place_set(place, "WEFT_RANK", "%u", place->rank);
    weft_place_set(place, "WEFT_LOCAL_RANK", "%u", place->rank);
    if (run->job != NULL) {
        weft_place_set(place, "WEFT_JOB", "%s", run->job);
    }
    if (run->key[0] != '\0') {
        weft_place_set(place, "WEFT_JOB_KEY", "%.*s", (int)WEFT_JOB_KEY_TEXT_BYTES, run->key);
    }
}

void weft_run_make_scheduler(struct run *run)
{
    struct weft_place *place = run_scheduler(run);
    struct weft_arguments *arguments = &run->scheduler_words;
    place->role = "scheduler";
    place->words = arguments->words;
    place->has_channel = true;
    weft_arguments_add(arguments, "/proc/self/exe");
    weft_arguments_add(arguments, "scheduler");
    add_common(run, arguments);
    weft_arguments_add(arguments, "--workers=%u", run->workers);
    weft_arguments_add(arguments, "--shards=%u", run->servers * run->shards_per_server);
    weft_arguments_add(arguments, "--lease-ms=%u", run->lease_ms);
    weft_arguments_add(arguments, "--journal=%s/members", run->folder);
    weft_arguments_add(arguments, "--port=%u",
                       0); /* the last word: replaced when the port is known */
    tell_job(run, place);
}

/* What a killed server's last checkpoint lacks it finds in its journal. A word of --server-options
 * says where, or the folder of this run. */
static bool keeps_journal(const struct run *run)
{
    return run->restarts > 0 && run->durability == DURABILITY_REPLAY &&
           strstr(run->server_options, "--journal ") == NULL &&
           strstr(run->server_options, "--journal=") == NULL;
}

void weft_run_make_server(struct run *run, uint32_t s)
{
    struct weft_place *place = run_server(run, s);
    struct weft_arguments *arguments = &run->server_words[s];
    place->role = "server";
    place->rank = s;
    place->words = arguments->words;
    place->has_channel = true;
    weft_arguments_add(arguments, "/proc/self/exe");
    weft_arguments_add(arguments, "server");
    add_common(run, arguments);
    weft_arguments_add(arguments, "--shards-per-server=%u", run->shards_per_server);
    weft_arguments_add(arguments, "--scheduler=127.0.0.1:%u", run->scheduler_port);
    weft_arguments_add(arguments, "--on-worker-death=%s", weft_deaths_name(run->on_death));
    for (const char *at = run->server_options; at != NULL && *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        if (bytes > 0) {
            weft_arguments_add(arguments, "%.*s", (int)bytes, at);
        }
        at += bytes;
    }
    if (keeps_journal(run)) {
        weft_arguments_add(arguments, "--journal=%s", run->folder);
    }
    weft_arguments_add(arguments, "--port=%u", 0);
    tell_job(run, place);
}

/* The environment says so; workers inherit it. Scripts leave empty variables behind. */
static bool user_says(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0';
}

/* What a worker does while a server is away. Options before variables, these before our defaults. */
static void tell_patience(const struct run *run, struct weft_place *place)
{
    bool said = run->replay_bytes != UINT64_MAX;
    uint64_t bytes = said ? run->replay_bytes : (uint64_t)REPLAY_MIB << 20;
    if (run->restarts == 0) {
        return;
    }
    if (!user_says("WEFT_RECONNECT_S")) {
        weft_place_set(place, "WEFT_RECONNECT_S", "%u", (unsigned)RECONNECT_S);
    }
    if (run->durability == DURABILITY_REPLAY && (said || !user_says("WEFT_REPLAY_BYTES"))) {
        weft_place_set(place, "WEFT_REPLAY_BYTES", "%llu", (unsigned long long)bytes);
    } else if (run->durability == DURABILITY_NONE && run->durability_said) {
        weft_place_set(place, "WEFT_REPLAY_BYTES", "0");
    }
}

void weft_run_tell_servers(struct run *run, struct weft_place *worker)
{
    char addresses[WEFT_JOB_SHARDS_MAX * 24] = "";
    for (uint32_t i = 0; i < run->servers * run->shards_per_server; i++) {
        size_t used = strlen(addresses);
        snprintf(addresses + used, sizeof(addresses) - used, "%s127.0.0.1:%u", i > 0 ? "," : "",
                 run->ports[i]);
    }
    weft_place_set(worker, "WEFT_SERVERS", "%s", addresses);
}

void weft_run_make_worker(struct run *run, uint32_t w)
{
    struct weft_place *place = run_worker(run, w);
    place->role = "worker";
    place->rank = w;
    place->words = run->words;
    tell_job(run, place);
    weft_place_set(place, "WEFT_SCHEDULER", "127.0.0.1:%u", run->scheduler_port);
    weft_run_tell_servers(run, place);
    weft_place_set(place, "WEFT_PEER_TIMEOUT_S", "%u", run->transport.peer_timeout_s);
    weft_run_metrics_tell(&run->metrics_options, run->folder, place);
    tell_patience(run, place);
}

weft_status weft_run_start(struct run *run, struct weft_place *place)
{
    weft_place_set(place, "WEFT_RESTART", "%u", place->starts);
    if (weft_squad_start(&run->squad, place) != WEFT_OK) {
        snprintf(run->error, sizeof(run->error), "cannot start %s %u: %s", place->role, place->rank,
                 strerror(errno));
        return WEFT_IO;
    }
    fprintf(stderr, "weft run: %s %u: pid %d\n", place->role, place->rank, (int)place->pid);
    return WEFT_OK;
}

/* Where to listen is the last word of the commands of weft's own processes. */
void weft_run_replace_last(struct weft_arguments *arguments, const char *text)
{
    free(arguments->words[--arguments->count]);
    weft_arguments_add(arguments, "%s", text);
}
