/* `weft lab background`: flows of a published size distribution between all hosts of a lab.
 *
 * Two processes: one generates the traffic, is a member of the lab and ends with it; this one waits
 * for it and forwards termination signals. */
#include "cli/lab/options.h"
#include "cli/lab/verbs.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/tcp_cc.h"

#include "lab/background.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct background {
    const char *sizes_name;
    double load;
    uint64_t rate_bps; /* 0 = the lab's */
    uint32_t seconds;  /* 0 = until a signal */
    uint32_t drain_seconds;
    uint32_t flows_max;
    uint64_t seed;
    const char *cc;
    bool json;
    struct weft_lab_info info;
    struct weft_flow_sizes sizes;
    struct weft_background_config config;
    struct weft_background_report report;
    int netns[WEFT_LAB_HOSTS_MAX];
    char addresses[WEFT_LAB_HOSTS_MAX][WEFT_LAB_ADDRESS_BYTES];
};

/* ---- the report ------------------------------------------------------------------------------ */

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void print_table(const struct background *b)
{
    static const char *const classes[WEFT_BACKGROUND_CLASSES] = {
        "below 100 KB",
        "100 KB to 10 MB",
        "above 10 MB",
        "all",
    };
    const struct weft_background_report *r = &b->report;
    printf("%s at %.3g of %.4g Mbit/s on each of %u hosts, %.1f s, seed %llu\n", b->sizes_name,
           b->load, (double)b->config.rate_bps / 1e6, b->config.hosts, (double)r->span_ns / 1e9,
           (unsigned long long)b->seed);
    printf("load: offered %.4f, achieved %.4f\n", weft_background_offered(&b->config, r),
           weft_background_achieved(&b->config, r));
    printf("flows: %llu offered, %llu rejected (%u in progress), %llu failed, %llu unfinished\n",
           (unsigned long long)r->offered_flows, (unsigned long long)r->refused_flows, b->flows_max,
           (unsigned long long)r->failed_flows, (unsigned long long)r->unfinished_flows);
    if (r->failed_flows > 0) {
        printf("the last failure: %s\n", strerror(r->failed_errno));
    }
    printf(
        "at most %llu flows were in progress; they started at most %.1f ms later than scheduled\n",
        (unsigned long long)r->under_way_max, ms(r->late_ns_max));
    printf("\n%-16s %10s %12s %12s %12s %12s\n", "completion, ms", "flows", "mean", "p50", "p99",
           "max");
    for (int i = 0; i < WEFT_BACKGROUND_CLASSES; i++) {
        const struct weft_hist *hist = &r->completion_ns[i];
        printf("%-16s %10llu %12.3f %12.3f %12.3f %12.3f\n", classes[i],
               (unsigned long long)hist->count, weft_times_mean(hist) / 1e6,
               ms(weft_hist_quantile(hist, 500000)), ms(weft_hist_quantile(hist, 990000)),
               ms(hist->max));
    }
}

static void add_flows(cJSON *object, const char *name, uint64_t flows, uint64_t bytes)
{
    cJSON *item = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(item, "flows", (double)flows);
    cJSON_AddNumberToObject(item, "bytes", (double)bytes);
}

static cJSON *report_json(const struct background *b)
{
    const struct weft_background_report *r = &b->report;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "lab", b->info.name);
    cJSON_AddStringToObject(object, "sizes", b->sizes_name);
    cJSON_AddNumberToObject(object, "mean_bytes", b->sizes.mean_bytes);
    cJSON_AddNumberToObject(object, "load", b->load);
    cJSON_AddNumberToObject(object, "hosts", b->config.hosts);
    cJSON_AddNumberToObject(object, "rate_bps", (double)b->config.rate_bps);
    cJSON_AddStringToObject(object, "cc", weft_cli_tcp_cc_name(b->cc));
    cJSON_AddNumberToObject(object, "seed", (double)b->seed);
    cJSON_AddNumberToObject(object, "seconds", (double)r->span_ns / 1e9);
    add_flows(object, "offered", r->offered_flows, r->offered_bytes);
    add_flows(object, "refused", r->refused_flows, r->refused_bytes);
    cJSON_AddNumberToObject(object, "offered_load", weft_background_offered(&b->config, r));
    cJSON_AddNumberToObject(object, "achieved_load", weft_background_achieved(&b->config, r));
    cJSON_AddNumberToObject(object, "delivered_bytes", (double)r->delivered_bytes);
    cJSON_AddNumberToObject(object, "failed_flows", (double)r->failed_flows);
    cJSON_AddNumberToObject(object, "unfinished_flows", (double)r->unfinished_flows);
    cJSON_AddNumberToObject(object, "under_way_max", (double)r->under_way_max);
    cJSON_AddNumberToObject(object, "late_ms_max", ms(r->late_ns_max));
    cJSON *completion = cJSON_AddObjectToObject(object, "completion_ms");
    for (int i = 0; i < WEFT_BACKGROUND_CLASSES; i++) {
        const struct weft_hist *hist = &r->completion_ns[i];
        cJSON *item = cJSON_AddObjectToObject(completion, weft_background_class_names[i]);
        cJSON_AddNumberToObject(item, "flows", (double)hist->count);
        cJSON_AddNumberToObject(item, "mean", weft_times_mean(hist) / 1e6);
        cJSON_AddNumberToObject(item, "p50", ms(weft_hist_quantile(hist, 500000)));
        cJSON_AddNumberToObject(item, "p99", ms(weft_hist_quantile(hist, 990000)));
        cJSON_AddNumberToObject(item, "max", ms(hist->max));
    }
    return object;
}

static int show(const struct background *b)
{
    if (b->json) {
        return weft_output_json("lab background", report_json(b), true) ? WEFT_EXIT_OK
                                                                        : WEFT_EXIT_FAILED;
    }
    print_table(b);
    return WEFT_EXIT_OK;
}

/* ---- the two processes ----------------------------------------------------------------------- */

/* Runs in the member. Does not return: the stack frames above belong to the other process. */
[[gnu::noreturn]] static void make_traffic(struct background *b)
{
    struct weft_error error = {.text = ""};
    b->config.stop_fd = weft_stop_fd(SIGQUIT);
    int status = weft_background_run(&b->config, &b->report, &error) == WEFT_OK
                     ? show(b)
                     : weft_cli_fail("lab background", "%s", error.text);
    if (status == WEFT_EXIT_OK && !weft_output_close("lab background", NULL, stdout, true)) {
        status = WEFT_EXIT_FAILED;
    }
    _exit(status);
}

/* Wait for the member, which gets the termination signals. */
static int wait_for(pid_t pid, int signal_fd)
{
    int status = WEFT_EXIT_FAILED;
    (void)weft_cli_lab_wait(pid, signal_fd, 0, &status);
    if (status > WEFT_LAB_EXIT_SIGNAL) {
        fprintf(stderr, "weft lab background: ended by signal %d (has the lab ended?)\n",
                status - WEFT_LAB_EXIT_SIGNAL);
        status = WEFT_EXIT_FAILED;
    }
    return status;
}

/* After the fork only the member keeps the namespaces' descriptors open, so that the namespaces
 * end with the lab. */
static int start(struct background *b)
{
    struct weft_error error = {.text = ""};
    weft_status status = WEFT_OK;
    uint32_t open_count = 0;
    for (; open_count < b->info.hosts && status == WEFT_OK; open_count++) {
        weft_lab_address(&b->info, open_count, b->addresses[open_count]);
        status = weft_lab_netns(&b->info, open_count, &b->netns[open_count], &error);
    }
    open_count -= status != WEFT_OK;
    sigset_t mask;
    int signal_fd = weft_cli_lab_signals(&mask);
    pid_t pid = -1;
    if (status == WEFT_OK) {
        status = weft_lab_fork(&b->info, 0, &pid, &error);
    }
    if (status == WEFT_OK && pid == 0) {
        make_traffic(b);
    }
    for (uint32_t i = 0; i < open_count; i++) {
        close(b->netns[i]);
    }
    int result = status == WEFT_OK ? wait_for(pid, signal_fd)
                                   : weft_cli_fail("lab background", "%s", error.text);
    close(signal_fd);
    return result;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int configure(struct background *b, const struct weft_command *command, const char *name)
{
    struct weft_error error = {.text = ""};
    weft_status status = weft_flow_sizes_load(b->sizes_name, &b->sizes, &error);
    if (status == WEFT_NOTFOUND || status == WEFT_DATA) {
        return weft_options_usage(command, "--sizes: %s", error.text);
    }
    if (status != WEFT_OK || weft_lab_find(name, &b->info, &error) != WEFT_OK) {
        return weft_cli_fail("lab background", "%s", error.text);
    }
    if (b->rate_bps == 0 && b->info.rate_bps == 0) {
        return weft_options_usage(command,
                                  "the links of lab %s have no rate limit; set --rate, of "
                                  "which the load is a fraction",
                                  name);
    }
    if (b->info.hosts < 2) {
        return weft_options_usage(command, "lab %s has one host; traffic requires two", name);
    }
    int found = weft_cli_tcp_cc(command->name, "cc", &b->cc);
    if (found != WEFT_OPTIONS_RUN) {
        return found;
    }
    b->config = (struct weft_background_config){
        .hosts = b->info.hosts,
        .netns = b->netns,
        .addresses = (const char(*)[WEFT_LAB_ADDRESS_BYTES])b->addresses,
        .sizes = &b->sizes,
        .rate_bps = b->rate_bps != 0 ? b->rate_bps : b->info.rate_bps,
        .load_ppm = (uint32_t)(b->load * WEFT_PPM + 0.5),
        .seed = b->seed,
        .cc = b->cc,
        .port = WEFT_BACKGROUND_PORT,
        .flows_max = b->flows_max,
        .duration_ns = b->seconds != 0 ? b->seconds * WEFT_NS_PER_S : WEFT_NEVER,
        .drain_ns = b->drain_seconds * WEFT_NS_PER_S,
        .ready_fd = -1,
    };
    return WEFT_OPTIONS_RUN;
}

int weft_cli_lab_background(int argc, char **argv)
{
    static struct background b = {
        .sizes_name = "websearch",
        .load = 0.3,
        .drain_seconds = 2,
        .flows_max = 2000,
        .seed = 1,
    };
    const char *name = NULL;
    const struct weft_option options[] = {
        {"sizes", "SIZES", "websearch, datamining, hadoop, or a file of lines \"BYTES PROBABILITY\"",
         WEFT_OPTION_STRING, .value = &b.sizes_name},
        {"load", "FRACTION",
         "offered load as a fraction of each host's link rate, in payload bytes", WEFT_OPTION_F64,
         &b.load, .least = 1e-6, .most = 10},
        {"rate", "RATE", "link rate of which --load is a fraction", WEFT_OPTION_CUSTOM, &b.rate_bps,
         .fallback = "the lab's", .parse = weft_lab_option_rate},
        {"seconds", "N", "seconds of arrivals; 0 = until Ctrl-C or the lab's end",
         WEFT_OPTION_U32, &b.seconds, .max = 1000000},
        {"drain", "SECONDS", "after the last arrival wait up to SECONDS for flows in progress",
         WEFT_OPTION_U32, &b.drain_seconds, .max = 1000000},
        {"cc", "NAME", "TCP congestion control; dctcp needs no kernel module",
         WEFT_OPTION_STRING, &b.cc, .fallback = "the kernel's"},
        {"flows-max", "N", "maximum flows in progress; further ones are rejected and counted",
         WEFT_OPTION_U32, &b.flows_max, .min = 1, .max = WEFT_BACKGROUND_FLOWS_MAX},
        {"seed", "N", "seed of sizes, times and destinations", WEFT_OPTION_U64, .value = &b.seed},
        {"json", NULL, "print the report as one JSON object", WEFT_OPTION_FLAG, .value = &b.json},
        {0},
    };
    const struct weft_command command = {
        .name = "lab background",
        .summary = "fill a lab with flows of a published size distribution",
        .arguments = "NAME",
        .operand = &name,
        .without = "the name of a lab is missing; `weft lab status` lists the labs",
        .description =
            "Every host starts flows as a Poisson process, independent of earlier flows, each to\n"
            "another host drawn at random, in a new TCP connection. A host starts\n"
            "load x rate / (8 x mean size) flows per second. The report has the offered and the\n"
            "achieved load, and the completion times of flows, measured from their scheduled\n"
            "start. docs/LAB.md has the sources of the size distributions.",
        .example = "  weft lab background demo --sizes websearch --load 0.3 --seconds 10\n"
                   "  weft lab background demo --sizes hadoop --load 0.5 --cc dctcp --json",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = configure(&b, &command, name);
    return status == WEFT_OPTIONS_RUN ? start(&b) : status;
}
