/* `weft run`: a job on this machine. Starts the coordinator, the servers, and W copies of a command;
 * starts again what dies, as often as allowed; ends everything together.
 *
 * The order of things: scheduler ready; servers ready; workers started. When all workers have ended
 * with status 0, servers and scheduler are told to end. Ports are chosen at the first start and kept
 * at the next ones, so that a process in a dead one's place is found where that was.
 *
 * It knows nothing of what the command does: that learns from the environment who it is
 * (docs/RUN.md section 1).
 */
#define _GNU_SOURCE
#include "cli/deaths.h"
#include "cli/job.h"
#include "cli/process.h"
#include "cli/run_metrics.h"
#include "cli/security.h"
#include "cli/verbs.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t ready_patience_ns = 120 * WEFT_NS_PER_S;
static const uint64_t end_grace_ns = 3 * WEFT_NS_PER_S;

/* A last checkpoint takes as long as the disk does. */
static const uint64_t checkpoint_grace_ns = 120 * WEFT_NS_PER_S;

/* Before a process is started again, doubled each time: what fails at once must not spin. */
static const uint64_t restart_pause_ns = 50 * WEFT_NS_PER_MS;
enum { RESTART_DOUBLINGS = 5 };

/* How long a worker waits for a server that is started again. */
enum { RECONNECT_S = 60 };

/* Of a server's command: our own, and those of --server-options. */
enum { SERVER_WORDS_MAX = 64, SERVER_OPTIONS_MAX = 40 };

/* What becomes of pushes that a server's last checkpoint does not have, when it is killed. */
enum durability {
    DURABILITY_UNSAID,
    DURABILITY_NONE,   /* lost, and counted */
    DURABILITY_REPLAY, /* the server's journal has them; workers keep them, too */
};

struct run {
    uint32_t workers;
    uint32_t servers;
    uint32_t shards_per_server;
    uint32_t restarts;
    uint32_t lease_ms;
    const char *job;
    enum weft_worker_death on_death;
    enum durability durability;
    uint64_t replay_bytes; /* of each worker */
    uint32_t lost; /* workers that died and are not started again (SHRINK) */
    const char *server_options; /* words with blanks between them; NULL = none */
    struct weft_carrier carrier;
    struct weft_security security;
    char **words; /* of the command */
    struct weft_metrics_options metrics_options;
    struct weft_run_metrics metrics;

    struct weft_squad squad;
    char folder[64];
    char key[WEFT_JOB_KEY_TEXT_BYTES + 2]; /* text and newline; "" in mode none */
    uint16_t scheduler_port;
    uint16_t ports[WEFT_JOB_SHARDS_MAX];
    uint64_t restart_ns[1 + WEFT_JOB_SHARDS_MAX + WEFT_JOB_WORKERS_MAX]; /* due; 0 = not */
    char *scheduler_words[16];
    char *server_words[WEFT_JOB_SHARDS_MAX][SERVER_WORDS_MAX];
    bool was_ready[WEFT_JOB_SHARDS_MAX]; /* servers, once at least */
    int interrupted;
    char error[640]; /* why the run is over; "" = it is not */
};

/* ---- places ---------------------------------------------------------------------------------- */

static struct weft_place *scheduler_of(struct run *run)
{
    return &run->squad.places[0];
}

static struct weft_place *server_of(struct run *run, uint32_t s)
{
    return &run->squad.places[1 + s];
}

static struct weft_place *worker_of(struct run *run, uint32_t w)
{
    return &run->squad.places[1 + run->servers + w];
}

[[gnu::format(printf, 2, 3)]] static void word(char **words, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char *text = NULL;
    if (vasprintf(&text, format, list) < 0) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    va_end(list);
    while (*words != NULL) {
        words++;
    }
    *words = text;
}

static void free_words(char **words)
{
    for (; *words != NULL; words++) {
        free(*words);
        *words = NULL;
    }
}

static void add_common(struct run *run, char **words)
{
    word(words, "--security=%s", weft_security_mode_name(run->security.mode));
    word(words, "--transport=%s", weft_driver_kind_name(run->carrier.kind));
    if (run->carrier.tcp_cc != NULL) {
        word(words, "--tcp-cc=%s", run->carrier.tcp_cc);
    }
    word(words, "--tcp-rto-min=%u", run->carrier.tcp_rto_min_ms);
    word(words, "--peer-timeout=%u", run->carrier.peer_timeout_s);
    word(words, "--control-fd=%d", (int)WEFT_CONTROL_FD);
    char metrics[WEFT_TARGETS_OPTION_BYTES];
    weft_targets_option(&run->metrics_options, metrics);
    if (metrics[0] != '\0') {
        word(words, "%s", metrics);
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

static void make_scheduler(struct run *run)
{
    struct weft_place *place = scheduler_of(run);
    char **words = run->scheduler_words;
    place->role = "scheduler";
    place->words = words;
    place->has_channel = true;
    word(words, "/proc/self/exe");
    word(words, "scheduler");
    add_common(run, words);
    word(words, "--workers=%u", run->workers);
    word(words, "--shards=%u", run->servers * run->shards_per_server);
    word(words, "--lease-ms=%u", run->lease_ms);
    word(words, "--journal=%s/members", run->folder);
    word(words, "--port=%u", 0); /* the last word: replaced when the port is known */
    tell_job(run, place);
}

static bool has_checkpoints(const struct run *run)
{
    return run->server_options != NULL && strstr(run->server_options, "--checkpoint") != NULL;
}

/* What a killed server's last checkpoint lacks it finds in its journal. A word of --server-options
 * says where, or the folder of this run. */
static bool keeps_journal(const struct run *run)
{
    return run->restarts > 0 && run->durability == DURABILITY_REPLAY &&
           strstr(run->server_options, "--journal ") == NULL &&
           strstr(run->server_options, "--journal=") == NULL;
}

static void make_server(struct run *run, uint32_t s)
{
    struct weft_place *place = server_of(run, s);
    char **words = run->server_words[s];
    place->role = "server";
    place->rank = s;
    place->words = words;
    place->has_channel = true;
    word(words, "/proc/self/exe");
    word(words, "server");
    add_common(run, words);
    word(words, "--shards-per-server=%u", run->shards_per_server);
    word(words, "--scheduler=127.0.0.1:%u", run->scheduler_port);
    word(words, "--on-worker-death=%s", weft_deaths_name(run->on_death));
    for (const char *at = run->server_options; at != NULL && *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        if (bytes > 0) {
            word(words, "%.*s", (int)bytes, at);
        }
        at += bytes;
    }
    if (keeps_journal(run)) {
        word(words, "--journal=%s", run->folder);
    }
    word(words, "--port=%u", 0);
    tell_job(run, place);
}

static void make_worker(struct run *run, uint32_t w)
{
    struct weft_place *place = worker_of(run, w);
    char addresses[WEFT_JOB_SHARDS_MAX * 24] = "";
    for (uint32_t i = 0; i < run->servers * run->shards_per_server; i++) {
        size_t used = strlen(addresses);
        snprintf(addresses + used, sizeof(addresses) - used, "%s127.0.0.1:%u", i > 0 ? "," : "",
                 run->ports[i]);
    }
    place->role = "worker";
    place->rank = w;
    place->words = run->words;
    tell_job(run, place);
    weft_place_set(place, "WEFT_SCHEDULER", "127.0.0.1:%u", run->scheduler_port);
    weft_place_set(place, "WEFT_SERVERS", "%s", addresses);
    weft_place_set(place, "WEFT_PEER_TIMEOUT_S", "%u", run->carrier.peer_timeout_s);
    weft_run_metrics_tell(&run->metrics_options, run->folder, place);
    if (run->restarts > 0) {
        weft_place_set(place, "WEFT_RECONNECT_S", "%u", (unsigned)RECONNECT_S);
    }
    if (run->restarts > 0 && run->durability == DURABILITY_REPLAY) {
        weft_place_set(place, "WEFT_REPLAY_BYTES", "%llu", (unsigned long long)run->replay_bytes);
    }
}

static weft_status start(struct run *run, struct weft_place *place)
{
    weft_place_set(place, "WEFT_RESTART", "%u", place->starts);
    if (weft_squad_start(&run->squad, place) != WEFT_OK) {
        snprintf(run->error, sizeof(run->error), "cannot start %s %u: %s", place->role,
                 place->rank, strerror(errno));
        return WEFT_IO;
    }
    fprintf(stderr, "weft run: %s %u: pid %d\n", place->role, place->rank, (int)place->pid);
    return WEFT_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Where to listen is the last word of the commands of weft's own processes. */
static void replace_last(char **words, const char *text)
{
    while (words[1] != NULL) {
        words++;
    }
    free(*words);
    *words = NULL;
    word(words, "%s", text);
}

static void keep_ports(struct run *run, uint32_t server)
{
    char text[WEFT_JOB_SHARDS_MAX * 6 + 16] = "--ports=";
    for (uint32_t i = 0; i < run->shards_per_server; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%u", i > 0 ? "," : "",
                 run->ports[server * run->shards_per_server + i]);
    }
    if (!run->was_ready[server]) {
        /* The next process goes on from the checkpoints of this one. */
        run->was_ready[server] = true;
        replace_last(run->server_words[server], "--restarted");
        word(run->server_words[server], "%s", text);
        return;
    }
    replace_last(run->server_words[server], text);
}

static void note_ready(struct run *run, struct weft_place *place, const cJSON *message)
{
    const cJSON *ports = cJSON_GetObjectItemCaseSensitive(message, "ports");
    const cJSON *first = cJSON_GetArrayItem(ports, 0);
    uint16_t port = cJSON_IsNumber(first) ? (uint16_t)first->valuedouble : 0;
    place->is_ready = true;
    if (place == scheduler_of(run)) {
        char text[32];
        run->scheduler_port = port;
        snprintf(text, sizeof(text), "--port=%u", port);
        replace_last(run->scheduler_words, text);
        return;
    }
    for (uint32_t i = 0; i < run->shards_per_server; i++) {
        const cJSON *item = cJSON_GetArrayItem(ports, (int)i);
        run->ports[place->rank * run->shards_per_server + i] =
            cJSON_IsNumber(item) ? (uint16_t)item->valuedouble : 0;
    }
    keep_ports(run, place->rank);
}

/* The servers learn of it now, not when a connection has been silent for long. */
static void tell_death(struct run *run, uint32_t rank)
{
    for (uint32_t s = 0; s < run->servers; s++) {
        struct weft_place *server = server_of(run, s);
        if (server->pid != 0 && server->channel.fd >= 0) {
            (void)weft_channel_send(&server->channel, weft_deaths_event(rank));
        }
    }
}

/* A place whose process has died as often as it may: the end of the run, or of this worker alone. */
static void give_up(struct run *run, struct weft_place *place, bool is_worker, const char *how)
{
    const char *more = run->restarts > 0 ? ", once more than --restart allows" : "";
    if (is_worker && run->on_death == WEFT_DEATH_SHRINK && ++run->lost < run->workers) {
        place->is_finished = true;
        fprintf(stderr, "weft run: worker %u %s%s; the others go on\n", place->rank, how, more);
    } else if (run->error[0] == '\0') {
        snprintf(run->error, sizeof(run->error), "%s %u %s%s", place->role, place->rank, how, more);
    }
}

static void note_exit(struct run *run, struct weft_place *place)
{
    char how[160];
    const struct weft_process process = {.wait_status = place->wait_status};
    bool is_worker = strcmp(place->role, "worker") == 0;
    if (is_worker && WIFEXITED(place->wait_status) && WEXITSTATUS(place->wait_status) == 0) {
        place->is_finished = true;
        return;
    }
    weft_process_ending(&process, how, sizeof(how));
    if (is_worker) {
        tell_death(run, place->rank);
    }
    if (place->starts > run->restarts ||
        (is_worker && run->on_death == WEFT_DEATH_FAIL)) {
        give_up(run, place, is_worker, how);
        return;
    }
    uint32_t doublings = place->starts - 1 < RESTART_DOUBLINGS ? place->starts - 1
                                                               : RESTART_DOUBLINGS;
    run->restart_ns[place - run->squad.places] =
        weft_clock_now_ns() + (restart_pause_ns << doublings);
    fprintf(stderr, "weft run: %s %u %s; restart %u of %u\n", place->role, place->rank, how,
            place->starts, run->restarts);
}

static void note_message(struct run *run, struct weft_place *place, const cJSON *message)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "ready") == 0) {
        note_ready(run, place, message);
        weft_run_metrics_note(&run->metrics, place, message);
    } else if (strcmp(event, "error") == 0 || strcmp(event, "checkpoint") == 0) {
        fprintf(stderr, "weft run: %s %u: %s\n", place->role, place->rank,
                weft_channel_text(message, "text"));
    }
}

/* Start what is due again; returns when the next one is. */
static uint64_t restart_due(struct run *run)
{
    uint64_t next_ns = WEFT_NEVER;
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < run->squad.count; i++) {
        uint64_t *due_ns = &run->restart_ns[i];
        if (*due_ns == 0) {
            continue;
        }
        if (*due_ns <= now_ns) {
            *due_ns = 0;
            (void)start(run, &run->squad.places[i]); /* a failure is in run->error */
        } else {
            next_ns = *due_ns < next_ns ? *due_ns : next_ns;
        }
    }
    return next_ns;
}

/* One event, or the passing of until_ns; false when the run is over. */
static bool turn(struct run *run, uint64_t until_ns)
{
    struct weft_squad_event event;
    uint64_t next_ns = restart_due(run);
    uint64_t now_ns = weft_clock_now_ns();
    next_ns = until_ns < next_ns ? until_ns : next_ns;
    uint64_t timeout_ns = next_ns == WEFT_NEVER ? WEFT_NEVER
                          : next_ns > now_ns    ? next_ns - now_ns
                                                : 0;
    if (run->error[0] != '\0') {
        return false;
    }
    weft_run_metrics_look(&run->metrics, &run->squad);
    weft_squad_next(&run->squad, timeout_ns, &event);
    switch (event.type) {
    case WEFT_SQUAD_MESSAGE:
        note_message(run, event.place, event.object);
        cJSON_Delete(event.object);
        break;
    case WEFT_SQUAD_EXITED:
        note_exit(run, event.place);
        break;
    case WEFT_SQUAD_SIGNAL:
        run->interrupted = event.signal;
        break;
    case WEFT_SQUAD_TIMEOUT:
        break;
    }
    return run->interrupted == 0 && run->error[0] == '\0';
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool await_ready(struct run *run, uint32_t first, uint32_t count)
{
    uint64_t until_ns = weft_clock_now_ns() + ready_patience_ns;
    for (;;) {
        uint32_t ready = 0;
        for (uint32_t i = first; i < first + count; i++) {
            ready += run->squad.places[i].is_ready;
        }
        if (ready == count) {
            return true;
        }
        if (weft_clock_now_ns() >= until_ns) {
            snprintf(run->error, sizeof(run->error), "%u of %u %ss were ready in time", ready,
                     count, run->squad.places[first].role);
            return false;
        }
        if (!turn(run, until_ns)) {
            return false;
        }
    }
}

static bool start_all(struct run *run)
{
    make_scheduler(run);
    if (start(run, scheduler_of(run)) != WEFT_OK || !await_ready(run, 0, 1)) {
        return false;
    }
    for (uint32_t s = 0; s < run->servers; s++) {
        make_server(run, s);
        if (start(run, server_of(run, s)) != WEFT_OK) {
            return false;
        }
    }
    if (!await_ready(run, 1, run->servers)) {
        return false;
    }
    for (uint32_t w = 0; w < run->workers; w++) {
        make_worker(run, w);
        if (start(run, worker_of(run, w)) != WEFT_OK) {
            return false;
        }
    }
    return true;
}

static bool supervise(struct run *run)
{
    for (;;) {
        uint32_t finished = 0;
        for (uint32_t w = 0; w < run->workers; w++) {
            finished += worker_of(run, w)->is_finished;
        }
        if (finished == run->workers) {
            return true;
        }
        if (!turn(run, WEFT_NEVER)) {
            return false;
        }
    }
}

static bool start_metrics(struct run *run)
{
    char error[WEFT_HTTP_ERROR_BYTES];
    if (weft_run_metrics_start(&run->metrics, &run->metrics_options, run->folder,
                               error) != WEFT_OK) {
        snprintf(run->error, sizeof(run->error), "%s", error);
        return false;
    }
    if (run->metrics.metrics.http != NULL) {
        fprintf(stderr, "weft run: metrics: %s\n", run->metrics.metrics.url);
    }
    return true;
}

static int run_all(struct run *run)
{
    bool good = start_metrics(run) && start_all(run) && supervise(run);
    weft_run_metrics_stop(&run->metrics);
    weft_squad_end(&run->squad, "worker", end_grace_ns);
    weft_squad_end(&run->squad, "server",
                   has_checkpoints(run) ? checkpoint_grace_ns : end_grace_ns);
    weft_squad_end(&run->squad, NULL, end_grace_ns);
    if (run->interrupted != 0) {
        fprintf(stderr, "weft run: interrupted by signal %d (%s); all processes were ended\n",
                run->interrupted, strsignal(run->interrupted));
    } else if (!good) {
        fprintf(stderr, "weft run: %s; all processes were ended\n", run->error);
    } else {
        fprintf(stderr, "weft run: all %u workers have finished\n", run->workers - run->lost);
    }
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* The key's text, to be handed to children in their environment. */
static weft_status copy_key(struct run *run)
{
    int ends[2];
    if (run->security.key == NULL) {
        return WEFT_OK;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    weft_status status = weft_job_key_write_fd(run->security.key, ends[1]);
    if (status == WEFT_OK &&
        read(ends[0], run->key, sizeof(run->key) - 1) != (ssize_t)sizeof(run->key) - 1) {
        status = WEFT_IO;
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    return status;
}

static int prepare_and_run(struct run *run)
{
    struct weft_crypto_error error = {.text = ""};
    const char *temporary = getenv("TMPDIR");
    /* All processes are our children, so a key that nobody else ever sees is as good as any. */
    if (weft_security_load(&run->security, true, &error) != WEFT_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        return WEFT_EXIT_FAILED;
    }
    if (copy_key(run) != WEFT_OK) {
        fprintf(stderr, "weft run: cannot hand on the job key: %s\n", strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    int used = snprintf(run->folder, sizeof(run->folder), "%s/weft-run-XXXXXX",
                        temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (used >= (int)sizeof(run->folder) || mkdtemp(run->folder) == NULL) {
        fprintf(stderr, "weft run: cannot make the folder %s: %s\n", run->folder, strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    int result = WEFT_EXIT_FAILED;
    if (weft_squad_init(&run->squad, 1 + run->servers + run->workers, run->folder) == WEFT_OK) {
        result = run_all(run);
    } else {
        fprintf(stderr, "weft run: out of memory or descriptors: %s\n", strerror(errno));
    }
    weft_squad_fini(&run->squad); /* its keeper removes the folder */
    free_words(run->scheduler_words);
    for (uint32_t s = 0; s < run->servers; s++) {
        free_words(run->server_words[s]);
    }
    weft_job_key_wipe(run->key, sizeof(run->key));
    return result;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const char *parse_durability(const char *text, void *value)
{
    bool replay = strcmp(text, "replay") == 0;
    if (!replay && strcmp(text, "none") != 0) {
        return "none or replay";
    }
    *(enum durability *)value = replay ? DURABILITY_REPLAY : DURABILITY_NONE;
    return NULL;
}

static int check(const struct weft_command *command, struct run *run)
{
    if (run->durability == DURABILITY_REPLAY && !has_checkpoints(run)) {
        return weft_options_usage(command, "--durability replay goes with checkpoints: "
                                           "--server-options \"--checkpoint DIR\"");
    }
    if (run->durability == DURABILITY_UNSAID) {
        run->durability = has_checkpoints(run) ? DURABILITY_REPLAY : DURABILITY_NONE;
    }
    if (run->words == NULL || run->words[0] == NULL) {
        return weft_options_usage(command, "the command is missing: weft run -n W -- CMD args");
    }
    if (run->servers * run->shards_per_server > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(
            command, "%u servers of %u shards are too many; at most %d shards", run->servers,
            run->shards_per_server, (int)WEFT_JOB_SHARDS_MAX);
    }
    uint32_t blanks = 0;
    for (const char *at = run->server_options; at != NULL && *at != '\0'; at++) {
        blanks += *at == ' ';
    }
    if (blanks >= SERVER_OPTIONS_MAX) {
        return weft_options_usage(command, "--server-options has more than %d words",
                                  (int)SERVER_OPTIONS_MAX);
    }
    int status = weft_carrier_check(command, &run->carrier, 0, NULL);
    return status != WEFT_OPTIONS_RUN ? status : weft_security_check(command, &run->security);
}

/* The words behind "--" are the command; -n and -s, which everybody expects, as the parser spells
 * them. Returns the words before. */
static int split(struct run *run, int argc, char **argv)
{
    static char workers[] = "--workers";
    static char servers[] = "--servers";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            run->words = argv + i + 1;
            return i;
        }
        if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "-s") == 0) {
            argv[i] = argv[i][1] == 'n' ? workers : servers;
        }
    }
    return argc;
}

int weft_cli_run(int argc, char **argv)
{
    static struct run run; /* large, and there is one */
    run = (struct run){.workers = 1,
                       .servers = 1,
                       .shards_per_server = 1,
                       .lease_ms = 5000,
                       .replay_bytes = UINT64_C(256) << 20,
                       .carrier = WEFT_CARRIER_DEFAULTS,
                       .security = WEFT_SECURITY_DEFAULTS};
    const struct weft_option options[] = {
        {"workers", "N", "copies of CMD; -n N is the same", WEFT_OPTION_U32, .value = &run.workers,
         .min = 1, .max = WEFT_JOB_WORKERS_MAX},
        {"servers", "N", "processes of `weft server`; -s N is the same", WEFT_OPTION_U32,
         .value = &run.servers, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"shards-per-server", "N", "shards of each server, each a thread and a port",
         WEFT_OPTION_U32, .value = &run.shards_per_server, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"restart", "N", "start a process that died again, so often for each; 0 = the first death\n"
         "ends the run", WEFT_OPTION_U32, .value = &run.restarts, .max = 1000000},
        WEFT_DEATHS_OPTION(&run.on_death),
        {"durability", "WHAT", "with --restart, of pushes that a killed server's last checkpoint lacks:\n"
         "replay = the server keeps a journal of them, and workers keep and send\n"
         "again what that lacks; none = they are lost",
         WEFT_OPTION_CUSTOM, .value = &run.durability, .parse = parse_durability,
         .fallback = "replay when --server-options has --checkpoint, else none"},
        {"replay-bytes", "N", "memory of each worker for kept pushes: at least four times what it\n"
         "pushes from one checkpoint to the next", WEFT_OPTION_U64, .value = &run.replay_bytes,
         .min = 65536, .max = UINT64_C(1) << 40},
        {"lease-ms", "MS", "as for `weft scheduler`", WEFT_OPTION_U32, .value = &run.lease_ms,
         .min = 100, .max = 3600000},
        WEFT_METRICS_OPTIONS(&run.metrics_options),
        {"server-options", "WORDS", "for every `weft server`, in one argument with blanks between them:\n"
         "\"--tables 8 --checkpoint /data/run\"", WEFT_OPTION_STRING, .value = &run.server_options,
         .fallback = "none"},
        {"job", "NAME", "WEFT_JOB of all processes", WEFT_OPTION_STRING, .value = &run.job,
         .fallback = "none"},
        WEFT_CARRIER_OPTIONS(&run.carrier),
        WEFT_SECURITY_OPTIONS(&run.security),
        {0},
    };
    const struct weft_command command = {
        .name = "run",
        .summary = "start a job on this machine: scheduler, servers, and workers that you name",
        .arguments = "-- CMD [ARGUMENTS]",
        .description =
            "CMD is anything that takes who it is from the environment: `weft worker`, or a\n"
            "program of yours (docs/RUN.md). What the processes write comes out line by line with\n"
            "their names before it. A process in a dead one's place gets its rank. The run ends\n"
            "with status 0 when every worker has ended with 0; Ctrl-C or SIGTERM ends it before.",
        .example = "  weft run -n 4 -s 2 -- weft worker --epochs 2\n"
                   "  weft run -n 8 -s 2 --restart 3 -- python3 train.py",
        .options = options,
    };
    int status = weft_options_parse(&command, split(&run, argc, argv), argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &run);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_carrier_find_cc(&command, &run.carrier);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = prepare_and_run(&run);
    weft_security_fini(&run.security);
    return status;
}
