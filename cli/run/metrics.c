#include "cli/run/metrics.h"

#include "cli/metrics.h"

#include <stdio.h>
#include <string.h>

static const char *const roles[WEFT_RUN_ROLES] = {"coordinator", "server", "replica",
                                                  "aggregator", "scheduler", "worker"};

/* Add a metric family with a sample per role; offset: of the role's value within of[]. */
static void add_roles(const struct weft_run_metrics *run, struct weft_exposition *text,
                      const char *name, const char *type, const char *help, size_t offset)
{
    weft_exposition_family(text, name, type, help);
    for (int role = 0; role < WEFT_RUN_ROLES; role++) {
        char labels[32];
        uint64_t value;
        memcpy(&value, (const char *)&run->of[role] + offset, sizeof(value));
        snprintf(labels, sizeof(labels), "role=\"%s\"", roles[role]);
        weft_exposition_u64(text, name, labels, value);
    }
}

static void add_run(void *arg, struct weft_exposition *text)
{
    struct weft_run_metrics *run = arg;
    pthread_mutex_lock(&run->targets.lock);
#define AT(member) ((size_t)((const char *)&run->of[0].member - (const char *)&run->of[0]))
    add_roles(run, text, "weft_run_processes", "gauge", "Running processes of the job.",
              AT(running));
    add_roles(run, text, "weft_run_starts_total", "counter",
              "Processes started, including restarts.", AT(starts));
    add_roles(run, text, "weft_run_deaths_total", "counter",
              "Processes that exited before they were done.", AT(deaths));
#undef AT
    weft_exposition_one(text, "weft_run_workers_finished", "gauge",
                        "Workers that exited with status 0.", run->finished);
    weft_exposition_one(text, "weft_run_promotions_total", "counter",
                        "Replicas that were promoted.", run->promotions);
    pthread_mutex_unlock(&run->targets.lock);
}

void weft_run_metrics_serve_worker(const struct weft_metrics_options *options, const char *folder,
                                   struct weft_slot *slot)
{
    char text[WEFT_METRICS_HOST_BYTES + 8];
    if (weft_metrics_for_child(options, text)) {
        weft_slot_setenv(slot, "WEFT_METRICS", "%s", text);
        weft_slot_setenv(slot, "WEFT_METRICS_TARGETS", "%s", folder);
    }
}

weft_status weft_run_metrics_start(struct weft_run_metrics *run,
                                   const struct weft_metrics_options *options, const char *folder,
                                   struct weft_error *error)
{
    const struct weft_metrics_source source = {
        .role = "run", .arg = run, .families = add_run, .targets = &run->targets};
    weft_targets_init(&run->targets);
    run->targets.folder = folder;
    return weft_metrics_start(&run->metrics, options, &source, error);
}

void weft_run_metrics_stop(struct weft_run_metrics *run)
{
    weft_metrics_stop(&run->metrics);
}

static int role_of(const struct weft_slot *slot)
{
    int role = 0;
    while (role < WEFT_RUN_ROLES - 1 && strcmp(roles[role], slot->role) != 0) {
        role++;
    }
    return role;
}

/* A dead worker that is not restarted is finished, too, but not with status 0. */
static bool has_succeeded(const struct weft_slot *slot)
{
    return slot->is_done && slot->wait_status == 0;
}

void weft_run_metrics_update(struct weft_run_metrics *run,
                             const struct weft_supervisor *supervisor)
{
    if (run->metrics.http == NULL) {
        return;
    }
    pthread_mutex_lock(&run->targets.lock);
    memset(run->of, 0, sizeof(run->of));
    run->finished = 0;
    run->targets.workers = 0;
    for (uint32_t i = 0; i < supervisor->count; i++) {
        const struct weft_slot *slot = &supervisor->slots[i];
        if (slot->role == NULL || slot->is_retired) {
            continue; /* not started yet, or counted as a death in its previous slot */
        }
        int role = role_of(slot);
        run->targets.workers += role == WEFT_RUN_ROLES - 1;
        bool runs = slot->is_running, succeeded = has_succeeded(slot);
        run->of[role].running += runs;
        run->of[role].starts += slot->starts;
        run->of[role].deaths += slot->starts - runs - succeeded;
        run->finished += succeeded;
    }
    pthread_mutex_unlock(&run->targets.lock);
}

void weft_run_metrics_moved(struct weft_run_metrics *run, const struct weft_slot *slot,
                            const char *url)
{
    if (run->metrics.http != NULL) {
        weft_targets_set(&run->targets, slot->role, slot->rank, url);
    }
}

void weft_run_metrics_gone(struct weft_run_metrics *run, const struct weft_slot *slot)
{
    if (run->metrics.http != NULL) {
        weft_targets_drop(&run->targets, slot->role, slot->rank);
    }
}

void weft_run_metrics_promoted(struct weft_run_metrics *run)
{
    if (run->metrics.http != NULL) {
        pthread_mutex_lock(&run->targets.lock);
        run->promotions++;
        pthread_mutex_unlock(&run->targets.lock);
    }
}

void weft_run_metrics_note(struct weft_run_metrics *run, const struct weft_slot *slot,
                           const cJSON *message)
{
    weft_run_metrics_moved(run, slot, weft_channel_text(message, "metrics"));
}
