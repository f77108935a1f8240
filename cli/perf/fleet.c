#include "cli/perf/fleet.h"

#include "cli/stop.h"
#include "io/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPEN_S = 120 };

static const uint64_t check_interval_ns = 100 * WEFT_NS_PER_MS; /* to check for a request to stop */
static const uint64_t end_ns = 60 * WEFT_NS_PER_S;

/* "sender 3", and on a lab "(host 3)". */
static void name(const struct weft_perf_fleet *fleet, uint32_t participant, char *text_p,
                 unsigned bytes)
{
    char role[48];
    weft_perf_plan_role(fleet->job->plan, participant, role, sizeof(role));
    if (fleet->job->layout->lab != NULL) {
        (void)snprintf(text_p, bytes, "%s (host %u)", role, fleet->job->layout->hosts[participant]);
    } else {
        (void)snprintf(text_p, bytes, "%s", role);
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

/* In the child: ignore signals to stop, which the coordinator handles. This process ends when the
 * coordinator does. */
static int be(void *context, const struct weft_slot *slot)
{
    static const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct weft_perf_fleet *fleet = context;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(deaf); i++) {
        (void)signal(deaf[i], SIG_IGN);
    }
    return weft_perf_agent_run(fleet->job, fleet->shared, slot->rank, WEFT_CONTROL_FD,
                               fleet->security.key != NULL ? WEFT_KEY_FD : -1);
}

static bool start_one(struct weft_perf_fleet *fleet, uint32_t participant)
{
    struct weft_slot *slot = &fleet->supervisor.slots[participant];
    struct weft_error error;
    slot->role = "participant";
    slot->rank = participant;
    slot->body = be;
    slot->context = fleet;
    slot->has_channel = true;
    slot->stdout_fd = STDERR_FILENO;
    if (weft_security_key_pipe(&fleet->security, &slot->key_fd) != WEFT_OK) {
        return weft_perf_fail(&fleet->error, "no pipe for the job key: %s", strerror(errno));
    }
    if (weft_supervisor_start(&fleet->supervisor, slot, &error) != WEFT_OK) {
        char who[80];
        name(fleet, participant, who, sizeof(who));
        return weft_perf_fail(&fleet->error, "cannot start %s: %s", who, error.text);
    }
    return true;
}

bool weft_perf_fleet_start(const struct weft_perf_job *job, const struct weft_security *security,
                           struct weft_perf_fleet *fleet_p)
{
    const struct weft_supervisor_policy policy = {
        .fork = job->layout->lab != NULL ? weft_perf_layout_fork : NULL,
        .context = (void *)job->layout};
    *fleet_p = (struct weft_perf_fleet){.job = job, .security = *security};
    if (weft_supervisor_init(&fleet_p->supervisor, &policy, job->plan->participants, 0) !=
        WEFT_OK) {
        return weft_perf_fail(&fleet_p->error, "out of memory or descriptors: %s", strerror(errno));
    }
    fleet_p->shared = weft_perf_shared_new();
    if (fleet_p->shared == NULL) {
        return weft_perf_fail(&fleet_p->error, "no memory");
    }
    if (weft_security_load(&fleet_p->security, true, &fleet_p->error) != WEFT_OK) {
        return false;
    }
    (void)fflush(NULL); /* otherwise the children would print it again */
    for (uint32_t i = 0; i < job->plan->participants; i++) {
        if (!start_one(fleet_p, i)) {
            return false;
        }
    }
    switch (weft_perf_fleet_recv(fleet_p, "open", weft_clock_now_ns() + OPEN_S * WEFT_NS_PER_S)) {
    case WEFT_PERF_ALL:
        return true;
    case WEFT_PERF_TOO_LONG:
        return weft_perf_fail(&fleet_p->error,
                              "the participants did not open their sockets within %d s", OPEN_S);
    case WEFT_PERF_INTERRUPTED:
    case WEFT_PERF_BROKEN:
        break;
    }
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

void weft_perf_fleet_say(struct weft_perf_fleet *fleet, cJSON *message)
{
    for (uint32_t i = 0; i < fleet->supervisor.count; i++) {
        struct weft_slot *slot = &fleet->supervisor.slots[i];
        if (slot->is_running && slot->channel.fd >= 0) {
            /* A failed send is ignored: the end of a participant is detected separately. */
            (void)weft_channel_send(&slot->channel, cJSON_Duplicate(message, true));
        }
    }
    cJSON_Delete(message);
}

static bool was_killed(const struct weft_slot *slot)
{
    return !slot->is_running && WIFSIGNALED(slot->wait_status);
}

/* This participant failed or has ended. The cause may be another one that was killed: its peers
 * lose their connections, and over TCP they may report that first. */
static void blame(struct weft_perf_fleet *fleet, const struct weft_slot *slot)
{
    struct weft_supervisor_event event;
    char who[80];
    char how[160];
    do {
        weft_supervisor_next(&fleet->supervisor, 0, &event);
        cJSON_Delete(event.type == WEFT_SUPERVISOR_MESSAGE ? event.object : NULL);
    } while (event.type != WEFT_SUPERVISOR_TIMEOUT);
    for (uint32_t i = 0; i < fleet->supervisor.count && !was_killed(slot); i++) {
        slot = was_killed(&fleet->supervisor.slots[i]) ? &fleet->supervisor.slots[i] : slot;
    }
    const char *reason = fleet->shared->agents[slot->rank].error.text;
    name(fleet, slot->rank, who, sizeof(who));
    if (reason[0] != '\0' && !was_killed(slot)) {
        (void)weft_perf_fail(&fleet->error, "%s: %s", who, reason);
    } else {
        weft_slot_ending(slot, how, sizeof(how));
        (void)weft_perf_fail(&fleet->error, "%s %s", who, how);
    }
}

enum weft_perf_heard weft_perf_fleet_recv(struct weft_perf_fleet *fleet, const char *event,
                                          uint64_t until_ns)
{
    struct weft_supervisor *supervisor = &fleet->supervisor;
    uint32_t missing = supervisor->count;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        supervisor->slots[i].is_done = false;
    }
    while (missing > 0) {
        struct weft_supervisor_event next;
        uint64_t now_ns = weft_clock_now_ns();
        if (weft_stop_requested()) {
            return WEFT_PERF_INTERRUPTED;
        }
        if (now_ns > until_ns) {
            return WEFT_PERF_TOO_LONG;
        }
        weft_supervisor_next(supervisor, weft_min_u64(check_interval_ns, until_ns - now_ns), &next);
        bool broken = next.type == WEFT_SUPERVISOR_EXITED;
        if (next.type == WEFT_SUPERVISOR_MESSAGE) {
            const char *said = weft_channel_text(next.object, "event");
            bool is_new = strcmp(said, event) == 0 && !next.slot->is_done;
            next.slot->is_done |= is_new;
            missing -= is_new;
            broken = strcmp(said, "failed") == 0;
            cJSON_Delete(next.object);
        }
        if (broken) {
            blame(fleet, next.slot);
            return WEFT_PERF_BROKEN;
        }
    }
    return WEFT_PERF_ALL;
}

/* ---- end ------------------------------------------------------------------------------------- */

static bool any_runs(const struct weft_perf_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->supervisor.count; i++) {
        if (fleet->supervisor.slots[i].is_running) {
            return true;
        }
    }
    return false;
}

bool weft_perf_fleet_end(struct weft_perf_fleet *fleet)
{
    struct weft_supervisor *supervisor = &fleet->supervisor;
    uint64_t until_ns = weft_clock_now_ns() + end_ns;
    weft_perf_fleet_say(fleet, weft_channel_event("quit"));
    while (any_runs(fleet) && weft_clock_now_ns() < until_ns) {
        struct weft_supervisor_event event;
        weft_supervisor_next(supervisor, check_interval_ns, &event);
        cJSON_Delete(event.type == WEFT_SUPERVISOR_MESSAGE ? event.object : NULL);
    }
    weft_supervisor_stop(supervisor, NULL);
    for (uint32_t i = 0; i < supervisor->count; i++) {
        if (supervisor->slots[i].wait_status != 0) {
            blame(fleet, &supervisor->slots[i]);
        }
    }
    weft_supervisor_fini(supervisor);
    weft_security_fini(&fleet->security);
    weft_perf_shared_free(fleet->shared);
    fleet->shared = NULL;
    return fleet->error.text[0] == '\0';
}
