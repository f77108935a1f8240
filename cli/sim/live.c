#include "cli/sim/live.h"

#include <stdio.h>

static void add_live(void *arg, struct weft_exposition *text)
{
    struct weft_sim_live *live = arg;
    weft_exposition_one(text, "weft_sim_runs_planned", "gauge",
                        "Planned runs: seeds of swarm, cells of grid.", live->planned);
    weft_exposition_family(text, "weft_sim_runs_total", "counter", "Completed runs.");
    weft_exposition_u64(text, "weft_sim_runs_total", "result=\"good\"", atomic_load(&live->good));
    weft_exposition_u64(text, "weft_sim_runs_total", "result=\"failed\"",
                        atomic_load(&live->failed));
    weft_exposition_one(text, "weft_sim_packets_total", "counter",
                        "Packets of the simulated networks of completed runs.",
                        atomic_load(&live->packets));
}

bool weft_sim_live_start(struct weft_sim_live *live, const struct weft_metrics_options *options,
                         uint64_t planned, const char *command)
{
    struct weft_error error;
    const struct weft_metrics_source source = {.role = "sim", .arg = live, .families = add_live};
    live->planned = planned;
    if (weft_metrics_start(&live->metrics, options, &source, &error) != WEFT_OK) {
        fprintf(stderr, "weft %s: %s\n", command, error.text);
        return false;
    }
    if (live->metrics.http != NULL) {
        fprintf(stderr, "metrics: %s\n", live->metrics.url);
    }
    return true;
}

void weft_sim_live_stop(struct weft_sim_live *live)
{
    weft_metrics_stop(&live->metrics);
}

void weft_sim_live_note(struct weft_sim_live *live, bool is_good, uint64_t packets)
{
    atomic_fetch_add_explicit(is_good ? &live->good : &live->failed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live->packets, packets, memory_order_relaxed);
}
