/* `weft sim grid`: the incast grid, each cell in its own process.
 *
 * Cells are started and printed in order, regardless of which completes first, so the output does
 * not depend on --jobs. A process that crashes (an assertion, a sanitizer's finding) fails only its
 * own cell.
 */
#include "cli/options.h"
#include "cli/sim/live.h"
#include "cli/sim/report.h"
#include "cli/verbs.h"

#include "sim/grid.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A cell that takes longer is considered hung, and reported as signal 14. */
enum { JOBS_MAX = 64, CELL_SECONDS_MAX = 7200 };

/* A result is one atomic write: a reader never gets a part of it. */
static_assert(sizeof(struct weft_incast_result) <= PIPE_BUF);

struct job {
    pid_t pid; /* 0 = idle */
    int fd;
    uint32_t cell;
};

struct grid {
    struct weft_grid_config config;
    uint32_t jobs;
    bool json;
    struct weft_grid_cell cells[WEFT_GRID_CELLS_MAX];
    struct weft_incast_result results[WEFT_GRID_CELLS_MAX];
    bool done[WEFT_GRID_CELLS_MAX];
    uint32_t count;
    uint32_t started;
    uint32_t printed;
    uint32_t over;
    struct job job[JOBS_MAX];
    struct weft_metrics_options metrics;
    struct weft_sim_live live;
};

/* ---- output ---------------------------------------------------------------------------------- */

static void print_head(const struct grid *g)
{
    if (g->json) {
        printf("{\"cells\": [");
        return;
    }
    printf("Gbit/s    W buffer     loss  bound rounds  ideal_ms    p50    p99    max  limit"
           "  delivered  again%%    drops  queue_KB\n");
}

static void print_text(const struct weft_grid_cell *cell, const struct weft_incast_result *r,
                       const char *verdict)
{
    const struct weft_incast_config *c = &cell->config;
    char who[16];
    char loss[32];
    char limit[16] = "-";
    snprintf(who, sizeof(who), c->shards > 1 ? "%" PRIu32 "x%" PRIu32 : "%" PRIu32, c->senders,
             c->shards);
    snprintf(loss, sizeof(loss), "%g%%%s", weft_cli_percent(c->loss_ppm), c->burst ? " burst" : "");
    if (cell->p99_ppm_max > 0) {
        snprintf(limit, sizeof(limit), "%.2f", (double)cell->p99_ppm_max / 1e6);
    }
    printf("%6" PRIu64 " %4s %6" PRIu64 " %8s %6g %6" PRIu32
           " %9.3f %6.3f %6.3f %6.3f %6s %10.3f %7.3f %8" PRIu64 " %9" PRIu64,
           c->rate_bps / 1000000000, who, c->buffer_bytes / 1000, loss, (double)c->bound_ppm / 1e6,
           r->rounds, weft_cli_ms(r->ideal_ns), weft_cli_ratio(r->p50_ns, r->ideal_ns),
           weft_cli_ratio(r->p99_ns, r->ideal_ns), weft_cli_ratio(r->max_ns, r->ideal_ns), limit,
           weft_cli_percent(r->delivered_ppm_mean), weft_cli_percent(r->retransmitted_ppm),
           r->dropped_full, r->queue_bytes_max / 1000);
    if (cell->jain_ppm_min > 0) {
        printf("  Jain %.4f", (double)r->jain_ppm / 1e6);
    }
    if (verdict != NULL) {
        printf("  OVER: %s %s", verdict, r->failure);
    }
    printf("\n");
}

static void print_json(const struct weft_grid_cell *cell, const struct weft_incast_result *r,
                       const char *verdict, bool first)
{
    printf("%s\n{", first ? "" : ",");
    weft_cli_incast_print_json(&cell->config, r);
    printf(", \"p99_ratio_max\": ");
    printf(cell->p99_ppm_max > 0 ? "%.2f" : "null", (double)cell->p99_ppm_max / 1e6);
    printf(", \"verdict\": \"%s\"}", verdict != NULL ? verdict : "good");
}

/* Print the completed cells, in order. */
static void print_done(struct grid *g)
{
    for (; g->printed < g->count && g->done[g->printed]; g->printed++) {
        const struct weft_grid_cell *cell = &g->cells[g->printed];
        const struct weft_incast_result *result = &g->results[g->printed];
        const char *verdict = weft_grid_verdict(cell, result);
        g->over += verdict != NULL;
        if (g->json) {
            print_json(cell, result, verdict, g->printed == 0);
        } else {
            print_text(cell, result, verdict);
        }
        fflush(stdout);
    }
}

static void print_end(const struct grid *g)
{
    if (g->json) {
        printf("],\n\"over\": %" PRIu32 "}\n", g->over);
    } else {
        printf("%" PRIu32 " cells, %" PRIu32 " over their limits\n", g->count, g->over);
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

/* End with exit, not _exit, because LeakSanitizer runs in exit. */
[[gnu::noreturn]] static void child_run(const struct grid *g, uint32_t cell, int fd)
{
    static struct weft_incast_result result;
    alarm(CELL_SECONDS_MAX);
    weft_incast_run(&g->cells[cell].config, &result);
    bool wrote = write(fd, &result, sizeof(result)) == (ssize_t)sizeof(result);
    exit(wrote ? WEFT_EXIT_OK : WEFT_EXIT_FAILED);
}

static bool job_start(struct grid *g, struct job *job)
{
    int fds[2];
    fflush(NULL);
    if (pipe(fds) != 0) {
        return false;
    }
    pid_t pid = fork();
    if (pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return false;
    }
    if (pid == 0) {
        close(fds[0]);
        child_run(g, g->started, fds[1]);
    }
    close(fds[1]);
    *job = (struct job){.pid = pid, .fd = fds[0], .cell = g->started++};
    return true;
}

/* Handle a result, or the end of a process without one. */
static void job_read(struct grid *g, struct job *job)
{
    struct weft_incast_result *result = &g->results[job->cell];
    int status = 0;
    ssize_t count = read(job->fd, result, sizeof(*result));
    if (count < 0 && errno == EINTR) {
        return;
    }
    close(job->fd);
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (count != (ssize_t)sizeof(*result) || status != 0) {
        result->ok = false;
        result->ideal_ns = weft_incast_ideal_ns(&g->cells[job->cell].config);
        snprintf(result->failure, sizeof(result->failure), "the process ended (%s %d)",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    g->done[job->cell] = true;
    job->pid = 0;
    weft_sim_live_note(&g->live, weft_grid_verdict(&g->cells[job->cell], result) == NULL,
                       result->packets);
    print_done(g);
}

static bool jobs_run(struct grid *g)
{
    for (;;) {
        struct pollfd polls[JOBS_MAX];
        struct job *jobs[JOBS_MAX];
        nfds_t count = 0;
        for (uint32_t j = 0; j < g->jobs; j++) {
            struct job *job = &g->job[j];
            if (job->pid == 0 && g->started < g->count && !job_start(g, job)) {
                return false;
            }
            if (job->pid != 0) {
                polls[count] = (struct pollfd){.fd = job->fd, .events = POLLIN};
                jobs[count++] = job;
            }
        }
        if (count == 0) {
            return true;
        }
        if (poll(polls, count, -1) < 0 && errno != EINTR) {
            return false;
        }
        for (nfds_t i = 0; i < count; i++) {
            if (polls[i].revents != 0) {
                job_read(g, jobs[i]);
            }
        }
    }
}

static int grid_run(struct grid *g)
{
    g->count = weft_grid_cells(&g->config, g->cells);
    if (g->count == 0) {
        fprintf(stderr, "weft sim grid: no cell has %" PRIu32 " senders; use 1, 8, 16 or 64\n",
                g->config.senders);
        return WEFT_EXIT_USAGE;
    }
    if (!weft_sim_live_start(&g->live, &g->metrics, g->count, "sim grid")) {
        return WEFT_EXIT_FAILED;
    }
    print_head(g);
    bool ran = jobs_run(g);
    weft_sim_live_stop(&g->live);
    if (!ran) {
        return weft_cli_fail("sim grid", "cannot start a process: %s", strerror(errno));
    }
    print_end(g);
    return g->over == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_sim_grid(int argc, char **argv)
{
    static struct grid grid = {.config = {.seed = 1}, .jobs = 1};
    static const char *const networks[] = {"1g", "40g", "both", NULL};
    uint32_t network = 2;
    const struct weft_option options[] = {
        {"subset", NULL, "a subset of the cells, with fewer rounds", WEFT_OPTION_FLAG,
         .value = &grid.config.thin},
        {"network", "NAME",
         "1g: 1 Gbit/s, 50 us round trip, messages of 250 KB; 40g: 40 Gbit/s,\n"
         "10 us, 10 MB; or both", WEFT_OPTION_CHOICE,
         .value = &network, .choices = networks},
        {"rounds", "N", "rounds of each cell; default 500, with --subset fewer",
         WEFT_OPTION_U32, .value = &grid.config.rounds, .min = 1, .max = WEFT_INCAST_ROUNDS_MAX,
         .fallback = ""},
        {"senders", "N", "only the cells with N senders: 1, 8, 16 or 64", WEFT_OPTION_U32,
         .value = &grid.config.senders, .min = 1, .max = 64, .fallback = "all"},
        {"seed", "N", "seed of every cell", WEFT_OPTION_U64, .value = &grid.config.seed},
        {"cc", "NAME", "congestion control", WEFT_OPTION_STRING, .value = &grid.config.cc_name,
         .fallback = ""},
        {"jobs", "N", "number of cells that run at the same time", WEFT_OPTION_U32, .value = &grid.jobs, .min = 1,
         .max = JOBS_MAX},
        WEFT_METRICS_OPTIONS(&grid.metrics),
        {"json", NULL, "print the cells as one JSON object", WEFT_OPTION_FLAG,
         .value = &grid.json},
        {0},
    };
    const struct weft_command command = {
        .name = "sim grid",
        .summary = "run the incast grid: compare the round time of every cell with its limit",
        .description =
            "In an incast round W senders send a message each to one receiver at the same time\n"
            "(`weft sim incast`). The grid is a fixed list of cells: each is one combination of\n"
            "network, number of senders, switch buffer, packet loss and loss bound (the fraction of\n"
            "a message that may be missing), and is run in a process of its own.\n"
            "\n"
            "One line is printed per cell. p50, p99 and max are round times divided by the ideal,\n"
            "the time of a round whose packets cross the receiver's link without a gap. limit is\n"
            "the highest p99 that the cell may have; a cell without one, such as those with burst\n"
            "loss, is only reported. A cell that exceeds a limit, or whose run fails, is marked\n"
            "OVER, and the exit status is then 1.",
        .example = "  weft sim grid --subset\n  weft sim grid --network 40g --senders 8 --jobs 2",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    grid.config.slow_network = network != 1;
    grid.config.fast_network = network != 0;
    struct weft_incast_config probe;
    weft_incast_config_default(&probe);
    probe.cc_name = grid.config.cc_name;
    const char *wrong = weft_incast_config_check(&probe);
    return wrong != NULL ? weft_options_usage(&command, "%s", wrong) : grid_run(&grid);
}
