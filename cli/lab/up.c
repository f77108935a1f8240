/* `weft lab up`: creates a lab that stays. */
#define _GNU_SOURCE
#include "cli/lab/options.h"
#include "cli/lab/verbs.h"
#include "cli/stop.h"

#include "lab/box.h"
#include "lab/holder.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void print_lab(const struct weft_lab_spec *spec, const struct weft_lab_info *info)
{
    char first[WEFT_LAB_ADDRESS_BYTES];
    char last[WEFT_LAB_ADDRESS_BYTES];
    char rate[32];
    char buffer[32];
    weft_lab_address(info, 0, first);
    weft_lab_address(info, info->hosts - 1, last);
    printf("lab %s is up: %s, hosts 0 .. %u at %s .. %s\n", info->name, info->topology,
           info->hosts - 1, first, last);
    printf("links %s, switch buffers %s, loss %g%s; all hosts can reach each other; base RTT %.0f "
           "us\n",
           weft_lab_rate_text(spec->rate_bps, rate, sizeof(rate)),
           weft_lab_bytes_text(spec->buffer_bytes, buffer, sizeof(buffer)), spec->loss_ppm / 1e6,
           spec->offload ? ", segmentation offload on" : "", (double)info->base_rtt_ns / 1e3);
    if (spec->has_boxes) {
        char box[WEFT_LAB_ADDRESS_BYTES];
        weft_lab_router_address(0, box);
        printf("aggregation boxes (XDP, not authenticated): %s:%d of %s; members 0 .. %u\n", box,
               WEFT_LAB_BOX_PORT, spec->spines == 0 ? "the switch" : "leaf0, and so on",
               spec->hosts / spec->leaves - 1);
    }
    printf("  weft lab exec %s 0 -- CMD...   runs a command on host 0\n"
           "  weft lab down %s               ends it\n",
           info->name, info->name);
}

static int make(const struct weft_lab_options *o, uint32_t until_pid)
{
    int stop_fd = weft_stop_fd(SIGQUIT);
    struct weft_lab_start start = {
        .spec = &o->spec, .trace = &o->trace, .stop_fd = stop_fd, .until_pid = (pid_t)until_pid};
    struct weft_lab_info info;
    struct weft_error error = {.text = ""};
    weft_status status = weft_lab_start(&start, &info, &error);
    close(stop_fd);
    if (status != WEFT_OK) {
        return weft_cli_fail("lab up", "%s", error.text);
    }
    print_lab(&o->spec, &info);
    return WEFT_EXIT_OK;
}

int weft_cli_lab_up(int argc, char **argv)
{
    static struct weft_lab_options o;
    const char *name = NULL;
    uint32_t until_pid = 0;
    weft_lab_options_init(&o);
    const struct weft_option options[] = {
        WEFT_LAB_OPTIONS(&o),
        {"until-pid", "PID",
         "end the lab when the process PID ends, for any reason; in a script,\n"
         "use --until-pid $$", WEFT_OPTION_U32, .value = &until_pid, .min = 1, .max = INT32_MAX,
         .fallback = ""},
        {0},
    };
    const struct weft_command command = {
        .name = "lab up",
        .summary = "create a lab that stays until `weft lab down`",
        .arguments = "NAME",
        .operand = &name,
        .without = "the lab's name is missing",
        .description =
        "Returns when every host has reached every other. A switch port towards a host is the\n"
        "bottleneck: a token bucket with a drop-tail queue of --buffer bytes. Random losses are\n"
        "applied after it, to each packet once on its path (segmentation offloads are off, except\n"
        "with --offload). Requires root; a failed setup leaves nothing behind. docs/LAB.md has\n"
        "more.",
        .example = "  weft lab up demo --hosts 9 --rate 1gbit --buffer 128kb --loss 0.01\n"
                   "  weft lab up slow --hosts 3 --uplink 1=100mbit --downlink 1=100mbit\n"
                   "  weft lab up mine --hosts 2 --until-pid $$\n"
                   "  weft lab up core --topology spine-leaf --spines 2 --leaves 4 --hosts 8 "
                   "--core-rate 2gbit",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = weft_lab_options_spec(&o, &command, name);
    if (status == WEFT_OPTIONS_RUN) {
        status = make(&o, until_pid);
    }
    weft_lab_options_fini(&o);
    return status;
}
