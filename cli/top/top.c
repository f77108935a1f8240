/* `weft top`: live view of the processes of a job, from their /metrics. */
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/top/screen.h"
#include "cli/top/view.h"
#include "cli/verbs.h"
#include "io/clock.h"
#include "io/http_get.h"
#include "metrics/targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ONCE_WIDTH = 80, TARGETS_BYTES_MAX = 1 << 20 };

/* Timeout of one HTTP request. A busy server waits 1 s for each shard that does not reply. */
#define SCRAPE_TIMEOUT_NS (5 * WEFT_NS_PER_S)

struct top {
    const char *const *words;
    uint32_t word_count;
    const char *targets_file;
    uint32_t interval_ms;
    uint32_t width;
    uint32_t intervals; /* with --once: number of scrapes after the first */
    bool once;

    struct weft_top_target *targets; /* (WEFT_TOP_TARGETS_MAX,) */
    uint32_t count;
    uint32_t found; /* by weft_targets_parse */
    /* Targets beyond WEFT_TOP_TARGETS_MAX: those of the file, then those of the last scrape. */
    char left_out_names[WEFT_TOP_LEFT_OUT_MAX][WEFT_TOP_NAME_BYTES];
    uint32_t left_out;
    uint32_t left_out_of_file;
    struct weft_top_view view;
};

/* ---- targets --------------------------------------------------------------------------------- */

static void leave_out(struct top *top, const char *name)
{
    for (uint32_t i = 0; i < top->left_out; i++) {
        if (strcmp(top->left_out_names[i], name) == 0) {
            return;
        }
    }
    if (top->left_out < WEFT_TOP_LEFT_OUT_MAX) {
        snprintf(top->left_out_names[top->left_out++], WEFT_TOP_NAME_BYTES, "%s", name);
    }
}

/* Add the target unless it is already listed, or to those left out if it does not fit. False: the
 * text is not a valid target. */
static bool add_target(struct top *top, const char *text)
{
    struct weft_top_target target;
    if (weft_top_target_init(&target, text) != WEFT_OK) {
        return false;
    }
    for (uint32_t i = 0; i < top->count; i++) {
        if (weft_top_target_same(&top->targets[i], &target)) {
            return true;
        }
    }
    if (top->count < WEFT_TOP_TARGETS_MAX) {
        top->targets[top->count++] = target;
    } else {
        leave_out(top, target.name);
    }
    return true;
}

static void add_found(void *arg, const char *at)
{
    struct top *top = arg;
    top->found += add_target(top, at);
}

static bool read_targets(struct top *top)
{
    char *text;
    size_t bytes;
    if (weft_file_read(top->targets_file, TARGETS_BYTES_MAX, &text, &bytes) != WEFT_OK) {
        fprintf(stderr, "weft top: cannot read %s: %s\n", top->targets_file, strerror(errno));
        return false;
    }
    top->found = 0;
    weft_targets_parse(text, add_found, top);
    top->left_out_of_file = top->left_out;
    free(text);
    if (top->found == 0) {
        fprintf(stderr,
                "weft top: no targets in %s; expected JSON such as [{\"targets\": "
                "[\"127.0.0.1:9101\"]}]\n",
                top->targets_file);
        return false;
    }
    return true;
}

/* A signal, or a key, ends the program; also while it waits for a process that does not reply. */
static bool is_over(void)
{
    static bool has_quit;
    has_quit = has_quit || weft_stop_requested() || weft_top_screen_quits();
    return has_quit;
}

/* `weft train` and `weft run` serve /targets: the metrics addresses of their processes. */
static bool serves_targets(const struct weft_top_target *target)
{
    return strcmp(target->role, "train") == 0 || strcmp(target->role, "run") == 0;
}

static void discover_targets(struct top *top, const struct weft_top_target *target)
{
    char *text = NULL;
    if (target->file == NULL && !target->is_gone && serves_targets(target) &&
        weft_http_get_unless(target->host, target->port, "/targets", SCRAPE_TIMEOUT_NS, is_over,
                             &text, NULL) == WEFT_OK) {
        weft_targets_parse(text, add_found, top);
        free(text);
    }
}

static void poll_all(struct top *top)
{
    top->left_out = top->left_out_of_file;
    for (uint32_t i = 0; i < top->count && !is_over(); i++) {
        weft_top_target_poll(&top->targets[i], SCRAPE_TIMEOUT_NS, is_over);
        discover_targets(top, &top->targets[i]); /* its new targets are polled in the same pass */
    }
}

/* ---- showing --------------------------------------------------------------------------------- */

static int show_once(struct top *top)
{
    poll_all(top);
    for (uint32_t i = 0; i < top->intervals && !weft_stop_requested(); i++) {
        const struct timespec pause = {.tv_sec = top->interval_ms / 1000,
                                       .tv_nsec = (long)(top->interval_ms % 1000) * 1000000};
        (void)nanosleep(&pause, NULL);
        poll_all(top);
    }
    weft_top_view_draw(&top->view, top->targets, top->count, top->left_out,
                       top->width);
    for (uint32_t i = 0; i < top->view.count; i++) {
        puts(top->view.lines[i]);
    }
    uint32_t there = 0;
    for (uint32_t i = 0; i < top->count; i++) {
        there += !top->targets[i].is_gone;
    }
    return there > 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

static void draw(struct top *top)
{
    char foot[96];
    snprintf(foot, sizeof(foot), " q quit   space refresh   every %.1f s",
             top->interval_ms / 1000.0);
    weft_top_view_draw(&top->view, top->targets, top->count, top->left_out,
                       weft_top_screen_width());
    weft_top_screen_show(&top->view, foot);
}

static int show_live(struct top *top)
{
    const char *why;
    if (!weft_top_screen_open(&why)) {
        return weft_cli_fail("top", "%s", why);
    }
    enum weft_top_key key = WEFT_TOP_KEY_NEXT;
    uint64_t next_ns = 0;
    while (key != WEFT_TOP_KEY_QUIT && !weft_stop_requested()) {
        uint64_t now_ns = weft_clock_now_ns();
        if (key == WEFT_TOP_KEY_NEXT || now_ns >= next_ns) {
            poll_all(top);
            next_ns = now_ns + top->interval_ms * WEFT_NS_PER_MS;
            if (is_over()) {
                break;
            }
        }
        draw(top);
        now_ns = weft_clock_now_ns();
        uint64_t left_ms = now_ns < next_ns ? (next_ns - now_ns) / WEFT_NS_PER_MS + 1 : 1;
        key = weft_top_screen_wait((int)left_ms);
    }
    weft_top_screen_close();
    return WEFT_EXIT_OK;
}

/* ---- the command line ------------------------------------------------------------------------ */

static int check(const struct weft_command *command, struct top *top)
{
    if (top->word_count > WEFT_TOP_TARGETS_MAX) {
        return weft_options_usage(command, "%u targets; the maximum is %u", top->word_count,
                                  (unsigned)WEFT_TOP_TARGETS_MAX);
    }
    for (uint32_t i = 0; i < top->word_count; i++) {
        if (!add_target(top, top->words[i])) {
            return weft_options_usage(command,
                                      "\"%.80s\" is not a valid target; it must be [HOST:]PORT, or "
                                      "the path of a saved /metrics",
                                      top->words[i]);
        }
    }
    if (top->word_count == 0 && top->targets_file == NULL) {
        return weft_options_usage(command,
                                  "a target is missing: the [HOST:]PORT of --metrics of one or "
                                  "more processes, or of weft train or run");
    }
    return WEFT_OPTIONS_RUN;
}

static int run(struct top *top)
{
    if (top->targets_file != NULL && !read_targets(top)) {
        return WEFT_EXIT_FAILED;
    }
    weft_stop_install();
    int status = top->once ? show_once(top) : show_live(top);
    for (uint32_t i = 0; i < top->count; i++) {
        weft_top_target_fini(&top->targets[i]);
    }
    return status;
}

int weft_cli_top(int argc, char **argv)
{
    static struct weft_top_target targets[WEFT_TOP_TARGETS_MAX];
    static struct top top;
    top = (struct top){.interval_ms = 2000, .width = ONCE_WIDTH, .targets = targets};
    const struct weft_option options[] = {
        {"targets", "FILE",
         "read targets from FILE, in the JSON format of Prometheus'\n"
         "file_sd_configs: [{\"targets\": [\"127.0.0.1:9101\"]}]",
         WEFT_OPTION_STRING, .value = &top.targets_file, .fallback = "none"},
        {"interval-ms", "MS", "scrape interval", WEFT_OPTION_U32, .value = &top.interval_ms,
         .min = 100, .max = 3600000},
        {"once", NULL, "print one view as text and exit, for scripts", WEFT_OPTION_FLAG,
         .value = &top.once},
        {"intervals", "N",
         "with --once: scrape N more times, and show the rates of the last\n"
         "interval; 0 = rates since the processes started",
         WEFT_OPTION_U32, .value = &top.intervals, .max = 1000000},
        {"width", "N", "columns of --once", WEFT_OPTION_U32, .value = &top.width, .min = 60,
         .max = WEFT_TOP_WIDTH_MAX},
        {0},
    };
    const struct weft_command command = {
        .name = "top",
        .summary =
            "show the processes of a job live: rates, time by stage, hot rows, losses",
        .arguments = "[HOST:]PORT...",
        .operands = &top.words,
        .operand_count = &top.word_count,
        .description =
        "Scrapes the --metrics addresses of a job's processes. Give one or more\n"
        "processes; `weft train` and `weft run` provide the addresses of their processes. A\n"
        "process that no longer replies is shown as gone. The bar of an RPC shows the time by\n"
        "stage: n network, q server queue, w wait for slower workers, p server processing, u\n"
        "worker queue, c worker processing. The column \"workers\" has two numbers: workers\n"
        "active in the last second / workers connected or parked (they send only through an\n"
        "aggregator, and have closed their connection).\n"
        "Keys: q quits, space refreshes. With --once the exit status is 1 if no process replied.",
        .example = "  weft train --metrics 9100 --epochs 100 &\n"
                   "  weft top 9100\n"
                   "  weft top --once 10.0.0.1:9101 10.0.0.2:9101",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &top);
    }
    return status == WEFT_OPTIONS_RUN ? run(&top) : status;
}
