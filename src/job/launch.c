#define _GNU_SOURCE
#include "job/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 65535 }; /* workers, shards and processes of a job */

/* State passed through the sources. */
struct detection {
    struct weft_launch *launch;
    weft_launch_lookup *lookup;
    void *arg;
    uint32_t shards_per_server;
    struct weft_error *error;
};

static const char *const role_names[] = {[WEFT_LAUNCH_ANY] = "process",
                                         [WEFT_LAUNCH_SERVER] = "server",
                                         [WEFT_LAUNCH_WORKER] = "worker",
                                         [WEFT_LAUNCH_COORDINATOR] = "coordinator",
                                         [WEFT_LAUNCH_AGGREGATOR] = "aggregator"};

struct weft_launch weft_launch_nothing(void)
{
    return (struct weft_launch){.rank = WEFT_LAUNCH_UNKNOWN,
                                .workers = WEFT_LAUNCH_UNKNOWN,
                                .shards = WEFT_LAUNCH_UNKNOWN,
                                .local_rank = WEFT_LAUNCH_UNKNOWN};
}

const char *weft_launch_environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* ---- reading variables ----------------------------------------------------------------------- */

/* An empty variable is treated as unset: scripts leave empty ones behind. */
static const char *get(const struct detection *d, const char *name)
{
    const char *text = d->lookup(d->arg, name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static bool parse_u64(const char *text, unsigned base, uint64_t max, uint64_t *value_p)
{
    const char *digits = "0123456789abcdef";
    uint64_t value = 0;
    if (text[0] == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        const char *digit = strchr(digits, *text);
        unsigned number = digit != NULL ? (unsigned)(digit - digits) : base;
        if (number >= base || value > (max - number) / base) {
            return false;
        }
        value = value * base + number;
    }
    *value_p = value;
    return true;
}

/* *value_p is unchanged if the variable is not set. */
static weft_status read_number(const char *name, const char *text, uint64_t min, uint64_t max,
                               uint64_t *value_p, struct weft_error *error)
{
    uint64_t value;
    if (text == NULL || text[0] == '\0') {
        return WEFT_OK;
    }
    if (!parse_u64(text, 10, max, &value) || value < min) {
        return weft_fail(error, WEFT_INVALID,
                         "%s is \"%.60s\"; it must be a whole number from %llu to %llu", name, text,
                         (unsigned long long)min, (unsigned long long)max);
    }
    *value_p = value;
    return WEFT_OK;
}

static weft_status get_number(const struct detection *d, const char *name, uint32_t min,
                              uint32_t max, uint32_t *value_p)
{
    uint64_t value = *value_p;
    weft_status status = read_number(name, d->lookup(d->arg, name), min, max, &value, d->error);
    *value_p = (uint32_t)value;
    return status;
}

weft_status weft_launch_number(const char *name, uint64_t min, uint64_t max, uint64_t *number_p,
                               struct weft_error *error)
{
    return read_number(name, getenv(name), min, max, number_p, error);
}

static weft_status peer_timeout(uint64_t *seconds_p, struct weft_error *error)
{
    return weft_launch_number("WEFT_PEER_TIMEOUT_S", 1, 86400, seconds_p, error);
}

uint32_t weft_launch_peer_timeout_s(uint32_t fallback_s)
{
    uint64_t seconds = fallback_s;
    return peer_timeout(&seconds, NULL) == WEFT_OK ? (uint32_t)seconds : 0;
}

weft_status weft_launch_peer_timeout_check(struct weft_error *error)
{
    uint64_t seconds;
    return peer_timeout(&seconds, error);
}

bool weft_launch_endpoint_parse(const char *text, size_t bytes, char *host_p, size_t host_bytes,
                                uint16_t *port_p)
{
    const char *colon = bytes > 0 ? memrchr(text, ':', bytes) : NULL;
    char digits[6] = "";
    uint64_t port;
    if (colon == NULL) {
        return false;
    }
    size_t port_bytes = bytes - (size_t)(colon + 1 - text);
    if (port_bytes >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, colon + 1, port_bytes);
    if (!parse_u64(digits, 10, UINT16_MAX, &port) || port == 0) {
        return false;
    }
    size_t used = (size_t)(colon - text);
    bool bracketed = used >= 2 && text[0] == '[' && text[used - 1] == ']';
    if (bracketed) {
        text++;
        used -= 2;
    }
    /* Without brackets the last part of an IPv6 address would be parsed as a port. */
    if (used == 0 || used >= host_bytes || (!bracketed && memchr(text, ':', used) != NULL) ||
        memchr(text, ' ', used) != NULL || memchr(text, ',', used) != NULL) {
        return false;
    }
    memcpy(host_p, text, used);
    host_p[used] = '\0';
    *port_p = (uint16_t)port;
    return true;
}

const char *weft_launch_servers_parse(const char *text, struct weft_launch_address *servers_p,
                                      uint32_t max, uint32_t *count_p)
{
    *count_p = 0;
    for (;;) {
        size_t bytes = strcspn(text, ",");
        struct weft_launch_address *at = &servers_p[*count_p];
        if (*count_p == max ||
            !weft_launch_endpoint_parse(text, bytes, at->host, sizeof(at->host), &at->port)) {
            return text;
        }
        *count_p += 1;
        if (text[bytes] == '\0') {
            return NULL;
        }
        text += bytes + 1;
    }
}

/* ---- role and addresses ---------------------------------------------------------------------- */

static weft_status take_role(const struct detection *d, const char *name)
{
    struct weft_launch *launch = d->launch;
    const char *text = get(d, name);
    if (text == NULL) {
        return WEFT_OK;
    }
    /* The name of the role in ps-lite, and in weft before 0.2. */
    const char *word = strcmp(text, "scheduler") == 0 ? "coordinator" : text;
    for (unsigned role = WEFT_LAUNCH_SERVER; role <= WEFT_LAUNCH_AGGREGATOR; role++) {
        if (strcmp(word, role_names[role]) != 0) {
            continue;
        }
        if (launch->role != WEFT_LAUNCH_ANY && launch->role != (enum weft_launch_role)role) {
            return weft_fail(d->error, WEFT_INVALID,
                             "%s says that this process is a %s, but it is a %s: correct the "
                             "variable or unset it",
                             name, text, role_names[launch->role]);
        }
        launch->role = (enum weft_launch_role)role;
        launch->role_from = name;
        return WEFT_OK;
    }
    return weft_fail(d->error, WEFT_INVALID,
                     "%s is \"%.60s\"; it must be worker, server, aggregator or "
                     "coordinator",
                     name, text);
}

static weft_status detect_role(const struct detection *d)
{
    /* DMLC_ROLE is used only if WEFT_ROLE is not set. */
    return take_role(d, get(d, "WEFT_ROLE") != NULL ? "WEFT_ROLE" : "DMLC_ROLE");
}

static weft_status take_coordinator(const struct detection *d, const char *host, const char *port,
                                    const char *host_name, const char *port_name, const char *from)
{
    uint64_t number;
    struct weft_launch *launch = d->launch;
    if (host == NULL && port == NULL) {
        return WEFT_OK;
    }
    if (host == NULL || port == NULL) {
        return weft_fail(d->error, WEFT_INVALID, "%s is set, but %s is not",
                         host == NULL ? port_name : host_name,
                         host == NULL ? host_name : port_name);
    }
    if (!parse_u64(port, 10, UINT16_MAX, &number) || number == 0) {
        return weft_fail(d->error, WEFT_INVALID,
                         "%s is \"%.60s\"; it must be a port from 1 to 65535", port_name, port);
    }
    if (strlen(host) >= sizeof(launch->coordinator_host)) {
        return weft_fail(d->error, WEFT_INVALID, "%s is too long for a host", host_name);
    }
    strcpy(launch->coordinator_host, host);
    launch->coordinator_port = (uint16_t)number;
    launch->coordinator_from = from;
    return WEFT_OK;
}

static weft_status detect_servers(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    if (launch->servers == NULL) {
        launch->servers = get(d, "WEFT_SERVERS");
        launch->servers_from = launch->servers != NULL ? "WEFT_SERVERS" : NULL;
    }
    return WEFT_OK;
}

static weft_status detect_coordinator(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    if (launch->coordinator_port != 0) {
        return WEFT_OK;
    }
    const char *name = "WEFT_COORDINATOR";
    const char *text = get(d, name);
    if (text != NULL) {
        if (!weft_launch_endpoint_parse(text, strlen(text), launch->coordinator_host,
                                        sizeof(launch->coordinator_host),
                                        &launch->coordinator_port)) {
            return weft_fail(d->error, WEFT_INVALID, "%s is \"%.100s\"; it must be HOST:PORT", name,
                             text);
        }
        launch->coordinator_from = name;
        return WEFT_OK;
    }
    /* With a list of servers there is no coordinator unless it is named explicitly; torch's
     * master is not one. */
    if (launch->servers != NULL) {
        return WEFT_OK;
    }
    weft_status status =
        take_coordinator(d, get(d, "DMLC_PS_ROOT_URI"), get(d, "DMLC_PS_ROOT_PORT"),
                         "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_PS_ROOT_*");
    if (status != WEFT_OK || launch->coordinator_port != 0 || get(d, "RANK") == NULL) {
        return status;
    }
    return take_coordinator(d, get(d, "MASTER_ADDR"), get(d, "MASTER_PORT"), "MASTER_ADDR",
                            "MASTER_PORT", "MASTER_ADDR");
}

static weft_status detect_counts(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    static const char *const workers[] = {"WEFT_WORKERS", "DMLC_NUM_WORKER"};
    weft_status status = WEFT_OK;
    for (unsigned i = 0; status == WEFT_OK && i < 2 && launch->workers == WEFT_LAUNCH_UNKNOWN;
         i++) {
        status = get_number(d, workers[i], 1, NUMBER_MAX, &launch->workers);
        launch->workers_from = launch->workers != WEFT_LAUNCH_UNKNOWN ? workers[i] : NULL;
    }
    if (status == WEFT_OK && launch->shards == WEFT_LAUNCH_UNKNOWN) {
        status = get_number(d, "WEFT_SHARDS", 1, NUMBER_MAX, &launch->shards);
        launch->shards_from = launch->shards != WEFT_LAUNCH_UNKNOWN ? "WEFT_SHARDS" : NULL;
    }
    if (status == WEFT_OK && launch->shards == WEFT_LAUNCH_UNKNOWN) {
        status =
            get_number(d, "DMLC_NUM_SERVER", 1, NUMBER_MAX / d->shards_per_server, &launch->shards);
        if (launch->shards != WEFT_LAUNCH_UNKNOWN) {
            launch->shards *= d->shards_per_server;
            launch->shards_from = "DMLC_NUM_SERVER";
        }
    }
    return status;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A launcher's rank and number of processes. */
struct placing {
    uint32_t rank;
    uint32_t size;
    uint32_t local_rank;
};

struct launcher {
    const char *name;
    const char *rank;
    const char *size;      /* NULL = not set by the launcher */
    const char *size_else; /* the same under another name; NULL = none */
    const char *local_rank;
    const char *needs; /* its variables are valid only with this one; NULL = none */
};

/* SLURM_PROCID and SLURM_NTASKS are also set in a batch script, for the script itself, which is
 * not a task. SLURM_STEP_ID is set only for processes started by srun. */
static const struct launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", NULL},
    {"OMPI_COMM_WORLD_*", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL,
     "OMPI_COMM_WORLD_LOCAL_RANK", NULL},
    {"PMI_*", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID", NULL},
    {"PMIX_RANK", "PMIX_RANK", NULL, NULL, NULL, NULL},
    {"SLURM_*", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID",
     "SLURM_STEP_ID"},
};
enum { LAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

static weft_status read_launcher(const struct detection *d, const struct launcher *launcher,
                                 struct placing *placing_p)
{
    struct placing placing = {WEFT_LAUNCH_UNKNOWN, WEFT_LAUNCH_UNKNOWN, WEFT_LAUNCH_UNKNOWN};
    weft_status status = get_number(d, launcher->rank, 0, NUMBER_MAX - 1, &placing.rank);
    if (status == WEFT_OK && launcher->size != NULL) {
        status = get_number(d, launcher->size, 1, NUMBER_MAX, &placing.size);
    }
    if (status == WEFT_OK && launcher->size_else != NULL && placing.size == WEFT_LAUNCH_UNKNOWN) {
        status = get_number(d, launcher->size_else, 1, NUMBER_MAX, &placing.size);
    }
    if (status == WEFT_OK && launcher->local_rank != NULL) {
        status = get_number(d, launcher->local_rank, 0, NUMBER_MAX - 1, &placing.local_rank);
    }
    if (status != WEFT_OK) {
        return status;
    }
    bool has_rank = placing.rank != WEFT_LAUNCH_UNKNOWN;
    bool has_size = placing.size != WEFT_LAUNCH_UNKNOWN;
    if (launcher->size != NULL && has_rank != has_size) {
        return weft_fail(d->error, WEFT_INVALID, "%s is set, but %s is not",
                         has_rank ? launcher->rank : launcher->size,
                         has_rank ? launcher->size : launcher->rank);
    }
    if (has_rank && has_size && placing.rank >= placing.size) {
        return weft_fail(d->error, WEFT_INVALID, "%s is %u, but %s is only %u: ranks begin at 0",
                         launcher->rank, placing.rank, launcher->size, placing.size);
    }
    *placing_p = placing;
    return WEFT_OK;
}

/* The next number of "1 2 4"; false at its end or if it is not a number. */
static bool next_number(const char **at, uint32_t *value_p)
{
    char *end;
    unsigned long value = strtoul(*at, &end, 10);
    if (end == *at || value == 0 || value > NUMBER_MAX) {
        return false;
    }
    *at = end;
    *value_p = (uint32_t)value;
    return true;
}

/* `mpirun -n 1 A : -n 2 B : -n 4 C` numbers all seven processes, part by part; Open MPI reports
 * the number of processes of each part. (OMPI_FIRST_RANKS has the first rank of each part, but
 * is "0 0 0" in release 4.1.) */
static void within_part(const struct detection *d, struct placing *placing)
{
    const char *counts = get(d, "OMPI_APP_CTX_NUM_PROCS");
    struct placing found = *placing;
    uint32_t begin = 0;
    uint32_t processes;
    while (counts != NULL && next_number(&counts, &processes)) {
        if (placing->rank >= begin && placing->rank - begin < processes) {
            found.rank = placing->rank - begin;
            found.size = processes;
        }
        begin += processes;
    }
    if (begin == placing->size) { /* otherwise the list has a meaning that is not known here */
        *placing = found;
    }
}

/* Use a launcher's rank, or ignore it if its number of processes is not that of the role. */
static void take_placing(const struct detection *d, const struct launcher *launcher,
                         const struct placing *placing)
{
    struct weft_launch *launch = d->launch;
    bool is_server = launch->role == WEFT_LAUNCH_SERVER;
    uint32_t *told = is_server ? &launch->shards : &launch->workers;
    uint32_t counted = placing->size;
    if (counted != WEFT_LAUNCH_UNKNOWN && is_server) {
        counted *= d->shards_per_server;
    }
    if (*told == WEFT_LAUNCH_UNKNOWN && counted != WEFT_LAUNCH_UNKNOWN) {
        *told = counted;
        *(is_server ? &launch->shards_from : &launch->workers_from) = launcher->name;
    }
    if (counted != WEFT_LAUNCH_UNKNOWN && *told != counted) {
        launch->rank_left_from = launcher->name;
        return;
    }
    launch->rank = placing->rank;
    launch->rank_from = launcher->name;
}

static weft_status detect_rank_by_launcher(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    for (unsigned i = 0; i < LAUNCHERS; i++) {
        const struct launcher *launcher = &launchers[i];
        struct placing placing = {WEFT_LAUNCH_UNKNOWN, WEFT_LAUNCH_UNKNOWN, WEFT_LAUNCH_UNKNOWN};
        if (launcher->needs != NULL && get(d, launcher->needs) == NULL) {
            continue;
        }
        weft_status status = read_launcher(d, launcher, &placing);
        if (status != WEFT_OK) {
            return status;
        }
        if (placing.rank == WEFT_LAUNCH_UNKNOWN) {
            continue;
        }
        if (strcmp(launcher->rank, "OMPI_COMM_WORLD_RANK") == 0) {
            within_part(d, &placing);
        }
        if (launch->rank == WEFT_LAUNCH_UNKNOWN) {
            take_placing(d, launcher, &placing);
        }
        if (launch->local_rank == WEFT_LAUNCH_UNKNOWN) {
            launch->local_rank = placing.local_rank;
        }
        return WEFT_OK;
    }
    return WEFT_OK;
}

static weft_status detect_rank(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    const char *dmlc = launch->role == WEFT_LAUNCH_SERVER   ? "DMLC_SERVER_ID"
                       : launch->role == WEFT_LAUNCH_WORKER ? "DMLC_WORKER_ID"
                                                            : "DMLC_RANK";
    const char *const names[] = {"WEFT_RANK", dmlc, "DMLC_RANK"};
    weft_status status = get_number(d, "WEFT_LOCAL_RANK", 0, NUMBER_MAX - 1, &launch->local_rank);
    for (unsigned i = 0; status == WEFT_OK && i < 3 && launch->rank == WEFT_LAUNCH_UNKNOWN; i++) {
        status = get_number(d, names[i], 0, NUMBER_MAX - 1, &launch->rank);
        launch->rank_from = launch->rank != WEFT_LAUNCH_UNKNOWN ? names[i] : NULL;
    }
    /* If rank and number are known, an outer launcher has nothing to add. */
    bool is_told = launch->rank != WEFT_LAUNCH_UNKNOWN &&
                   (launch->role == WEFT_LAUNCH_SERVER || launch->workers != WEFT_LAUNCH_UNKNOWN);
    if (status == WEFT_OK && !is_told && launch->role != WEFT_LAUNCH_COORDINATOR) {
        status = detect_rank_by_launcher(d);
    }
    return status;
}

/* ---- other values ---------------------------------------------------------------------------- */

static weft_status detect_job(const struct detection *d)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    struct weft_launch *launch = d->launch;
    const char *text = launch->job[0] != '\0' ? NULL : get(d, "WEFT_JOB");
    if (text == NULL) {
        return WEFT_OK;
    }
    if (strlen(text) >= sizeof(launch->job) || text[strspn(text, allowed)] != '\0') {
        return weft_fail(d->error, WEFT_INVALID,
                         "WEFT_JOB is \"%.60s\"; it must be 1 to 31 of A-Z a-z 0-9 . _ -", text);
    }
    strcpy(launch->job, text);
    return WEFT_OK;
}

static weft_status detect_member(const struct detection *d)
{
    struct weft_launch *launch = d->launch;
    const char *text = launch->member == 0 ? get(d, "WEFT_MEMBER") : NULL;
    if (text != NULL && (strlen(text) != 16 || !parse_u64(text, 16, UINT64_MAX, &launch->member) ||
                         launch->member == 0)) {
        return weft_fail(d->error, WEFT_INVALID,
                         "WEFT_MEMBER is \"%.60s\"; it must be 16 of 0-9 a-f, not all zero", text);
    }
    return get_number(d, "WEFT_RESTART", 0, UINT32_MAX - 1, &launch->restart);
}

static weft_status check(const struct detection *d)
{
    const struct weft_launch *launch = d->launch;
    const bool is_worker =
        launch->role != WEFT_LAUNCH_SERVER && launch->role != WEFT_LAUNCH_AGGREGATOR;
    if (is_worker && launch->rank != WEFT_LAUNCH_UNKNOWN &&
        launch->workers != WEFT_LAUNCH_UNKNOWN && launch->rank >= launch->workers) {
        return weft_fail(d->error, WEFT_INVALID,
                         "rank %u (from %s) does not exist in a job of %u workers (from %s)",
                         launch->rank, launch->rank_from, launch->workers, launch->workers_from);
    }
    return WEFT_OK;
}

weft_status weft_launch_detect(const struct weft_launch *flags, uint32_t shards_per_server,
                               weft_launch_lookup *lookup, void *arg, struct weft_launch *launch_p,
                               struct weft_error *error)
{
    struct weft_launch launch = *flags;
    const struct detection d = {.launch = &launch,
                                .lookup = lookup,
                                .arg = arg,
                                .shards_per_server = shards_per_server,
                                .error = error};
    static weft_status (*const steps[])(const struct detection *) = {
        detect_role,   detect_counts,  detect_rank,        detect_job,
        detect_member, detect_servers, detect_coordinator, check};
    launch.rank_from = launch.rank != WEFT_LAUNCH_UNKNOWN ? "--rank" : NULL;
    launch.workers_from = launch.workers != WEFT_LAUNCH_UNKNOWN ? "--workers" : NULL;
    launch.shards_from = launch.shards != WEFT_LAUNCH_UNKNOWN ? "--shards" : NULL;
    launch.servers_from = launch.servers != NULL ? "--servers" : NULL;
    launch.coordinator_from = launch.coordinator_port != 0 ? "--coordinator" : NULL;
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        weft_status status = steps[i](&d);
        if (status != WEFT_OK) {
            return status;
        }
    }
    *launch_p = launch;
    return WEFT_OK;
}

/* ---- text for a person ----------------------------------------------------------------------- */

[[gnu::format(printf, 3, 4)]] static void append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

void weft_launch_text(const struct weft_launch *launch, char *text_p, size_t bytes)
{
    (void)snprintf(text_p, bytes, "%s", role_names[launch->role]);
    if (launch->rank != WEFT_LAUNCH_UNKNOWN) {
        append(text_p, bytes, " %u (%s)", launch->rank, launch->rank_from);
    } else if (launch->role != WEFT_LAUNCH_COORDINATOR) {
        append(text_p, bytes, ", rank open");
        if (launch->rank_left_from != NULL) {
            append(text_p, bytes, " (%s counts other processes, too)", launch->rank_left_from);
        }
    }
    if (launch->workers != WEFT_LAUNCH_UNKNOWN) {
        append(text_p, bytes, ", %u workers (%s)", launch->workers, launch->workers_from);
    }
    if (launch->shards != WEFT_LAUNCH_UNKNOWN) {
        append(text_p, bytes, ", %u shards (%s)", launch->shards, launch->shards_from);
    }
    if (launch->coordinator_port != 0) {
        append(text_p, bytes, ", coordinator %s:%u (%s)", launch->coordinator_host,
               launch->coordinator_port, launch->coordinator_from);
    }
    if (launch->servers != NULL) {
        append(text_p, bytes, ", servers from %s", launch->servers_from);
    }
    if (launch->restart > 0) {
        append(text_p, bytes, ", restart %u", launch->restart);
    }
}
