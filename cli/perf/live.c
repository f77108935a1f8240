#include "cli/perf/live.h"

#include "io/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Maximum wait for the participants' answers to a query. */
static const uint64_t patience_ns = WEFT_NS_PER_S / 2;

static bool have_all_answered(const struct weft_perf_live *live, uint32_t asked)
{
    for (uint32_t i = 0; i < live->job->plan->participants; i++) {
        if (atomic_load(&live->shared->agents[i].answered) != asked) {
            return false;
        }
    }
    return true;
}

/* A note is read only after its writer has answered this query: before that, the writer may be
 * writing to it, in answer to an earlier query. */
static void ask(struct weft_perf_live *live)
{
    const struct timespec pause = {.tv_nsec = WEFT_NS_PER_MS};
    uint64_t end_ns = weft_clock_now_ns() + patience_ns;
    uint32_t asked = atomic_fetch_add(&live->shared->asked, 1) + 1;
    while (!have_all_answered(live, asked) && weft_clock_now_ns() < end_ns) {
        (void)nanosleep(&pause, NULL);
    }
    for (uint32_t i = 0; i < live->job->plan->participants; i++) {
        const struct weft_perf_agent_note *note = &live->shared->agents[i];
        if (atomic_load(&note->answered) == asked) {
            live->parts[i].counters = note->counters;
        }
    }
}

static void add_progress(const struct weft_perf_live *live, struct weft_exposition *text)
{
    weft_exposition_one(text, "weft_perf_participants", "gauge", "Participating processes.",
                        live->job->plan->participants);
    weft_exposition_one(text, "weft_perf_rounds_planned", "gauge", "Rounds to measure.",
                        live->job->rounds);
    weft_exposition_family(text, "weft_perf_rounds_total", "counter", "Rounds done.");
    weft_exposition_u64(text, "weft_perf_rounds_total", "phase=\"warmup\"", live->warmup);
    weft_exposition_u64(text, "weft_perf_rounds_total", "phase=\"measured\"", live->measured);
    weft_exposition_one(text, "weft_perf_delivered_bytes_total", "counter",
                        "Bytes of messages that arrived in measured rounds.", live->bytes);
    weft_exposition_family(text, "weft_perf_round_seconds", "histogram",
                           "Duration of measured rounds, from the start to the end of the last "
                           "message; with pingpong, of round trips.");
    weft_exposition_hist(text, "weft_perf_round_seconds", NULL, &live->round_ns);
}

static void add_live(void *arg, struct weft_exposition *text)
{
    struct weft_perf_live *live = arg;
    if (live->job->transport->counters != NULL) {
        pthread_mutex_lock(&live->asking);
        if (live->shared != NULL) {
            ask(live);
        }
        weft_metrics_add_transport(text, live->parts, sizeof(*live->parts),
                                   offsetof(struct weft_perf_live_part, counters),
                                   live->job->plan->participants);
        pthread_mutex_unlock(&live->asking);
    }
    pthread_mutex_lock(&live->lock);
    add_progress(live, text);
    pthread_mutex_unlock(&live->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_perf_live_start(struct weft_perf_live *live,
                                 const struct weft_metrics_options *options,
                                 const struct weft_perf_job *job, struct weft_error *error)
{
    *live = (struct weft_perf_live){.job = job};
    if (options->host[0] == '\0') {
        return WEFT_OK;
    }
    live->parts = calloc(job->plan->participants, sizeof(*live->parts));
    if (live->parts == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for --metrics");
    }
    for (uint32_t i = 0; i < job->plan->participants; i++) {
        snprintf(live->parts[i].labels, sizeof(live->parts[i].labels), "participant=\"%u\"", i);
    }
    pthread_mutex_init(&live->asking, NULL);
    pthread_mutex_init(&live->lock, NULL);
    const struct weft_metrics_source source = {.role = "perf", .arg = live, .families = add_live};
    weft_status status = weft_metrics_start(&live->metrics, options, &source, error);
    if (status != WEFT_OK) {
        weft_perf_live_stop(live);
    }
    return status;
}

void weft_perf_live_stop(struct weft_perf_live *live)
{
    weft_metrics_stop(&live->metrics);
    if (live->parts != NULL) {
        pthread_mutex_destroy(&live->asking);
        pthread_mutex_destroy(&live->lock);
    }
    free(live->parts);
    *live = (struct weft_perf_live){.shared = NULL};
}

/* ---- what happens ---------------------------------------------------------------------------- */

void weft_perf_live_see(struct weft_perf_live *live, struct weft_perf_shared *shared)
{
    if (live->parts != NULL) {
        pthread_mutex_lock(&live->asking);
        live->shared = shared;
        pthread_mutex_unlock(&live->asking);
    }
}

void weft_perf_live_rounds(struct weft_perf_live *live, const struct weft_perf_round *timed,
                           uint32_t count, uint64_t bytes)
{
    if (live->parts == NULL) {
        return;
    }
    pthread_mutex_lock(&live->lock);
    live->warmup += timed == NULL ? count : 0;
    live->measured += timed != NULL ? count : 0;
    live->bytes = bytes;
    for (uint32_t i = 0; timed != NULL && i < count; i++) {
        weft_hist_add(&live->round_ns, timed[i].ns);
    }
    pthread_mutex_unlock(&live->lock);
}
