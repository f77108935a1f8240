/* `weft lab`: emulated clusters on this machine. This file: the list of verbs, status, down. */
#include "cli/lab/options.h"
#include "cli/lab/verbs.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include "lab/holder.h"
#include "lab/registry.h"

#include <stdio.h>

/* ---- status ---------------------------------------------------------------------------------- */

static void print_row(const cJSON *facts)
{
    char rate[32];
    char buffer[32];
    printf("%-16s %-9s %-10s %5llu  %-8s %-8s %-8g %-7s %6.0f us  %llu\n",
           weft_lab_fact_text(facts, "name"), weft_lab_fact_text(facts, "state"),
           weft_lab_fact_text(facts, "topology"),
           (unsigned long long)weft_lab_fact_u64(facts, "hosts"),
           weft_lab_rate_text(weft_lab_fact_u64(facts, "rate_bps"), rate, sizeof(rate)),
           weft_lab_bytes_text(weft_lab_fact_u64(facts, "buffer_bytes"), buffer, sizeof(buffer)),
           (double)weft_lab_fact_u64(facts, "loss_ppm") / 1e6,
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(facts, "offload")) ? "on" : "off",
           (double)weft_lab_fact_u64(facts, "base_rtt_ns") / 1e3,
           (unsigned long long)weft_lab_fact_u64(facts, "holder"));
}

static void print_labs(const cJSON *labs)
{
    if (cJSON_GetArraySize(labs) == 0) {
        puts("no lab is up; `weft lab up NAME` creates one");
        return;
    }
    printf("%-16s %-9s %-10s %5s  %-8s %-8s %-8s %-7s %9s  %s\n", "name", "state", "topology",
           "hosts", "rate", "buffer", "loss", "offload", "rtt", "holder");
    const cJSON *facts;
    cJSON_ArrayForEach(facts, labs)
    {
        print_row(facts);
    }
}

static int verb_status(int argc, char **argv)
{
    const char *name = NULL;
    bool json = false;
    const struct weft_option options[] = {
        {"json", NULL, "print all properties as a JSON array of labs", WEFT_OPTION_FLAG,
         .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "lab status",
        .summary = "list the labs of this machine, or show one",
        .arguments = "[NAME]",
        .operand = &name,
        .description = "Exit status 1 if NAME is given and is not up.",
        .example = "  weft lab status\n  weft lab status demo --json | jq '.[0].holder'",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    cJSON *labs = name == NULL ? weft_lab_registry_list() : cJSON_CreateArray();
    if (name != NULL && !cJSON_AddItemToArray(labs, weft_lab_registry_get(name))) {
        fprintf(stderr, "weft lab status: no lab named \"%.40s\" is up\n", name);
        cJSON_Delete(labs);
        return WEFT_EXIT_FAILED;
    }
    if (json) {
        return weft_output_json("lab status", labs, true) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    }
    print_labs(labs);
    cJSON_Delete(labs);
    return WEFT_EXIT_OK;
}

/* ---- down ------------------------------------------------------------------------------------ */

static int verb_down(int argc, char **argv)
{
    const char *name = NULL;
    const struct weft_option options[] = {{0}};
    const struct weft_command command = {
        .name = "lab down",
        .summary = "end a lab and all processes in it",
        .arguments = "NAME",
        .operand = &name,
        .without = "the name of a lab is missing; `weft lab status` lists the labs",
        .description = "Returns when the processes have exited. Also ends a lab that is being set "
                       "up.",
        .example = "  weft lab down demo",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    struct weft_error error = {.text = ""};
    struct weft_lab_info info = {0};
    cJSON *facts = weft_lab_registry_get(name);
    if (facts == NULL) {
        return weft_cli_fail("lab down",
                             "no lab named \"%.40s\" is up; `weft lab status` lists "
                             "them",
                             name);
    }
    snprintf(info.name, sizeof(info.name), "%s", name);
    info.holder = (pid_t)weft_lab_fact_u64(facts, "holder");
    cJSON_Delete(facts);
    return weft_lab_end(&info, &error) == WEFT_OK ? WEFT_EXIT_OK
                                                  : weft_cli_fail(command.name, "%s", error.text);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static const struct weft_verb verbs[] = {
    {"up", "create a lab that stays until `weft lab down`", weft_cli_lab_up},
    {"exec", "run a command on a host of a lab", weft_cli_lab_exec},
    {"status", "list the labs of this machine", verb_status},
    {"down", "end a lab and all processes in it", verb_down},
    {"background", "fill a lab with flows of a published size distribution", weft_cli_lab_background},
    {"box", "configure the aggregation boxes of a lab, and show their counters", weft_cli_lab_box},
    {"run", "create a lab, run one command, and remove the lab in any case", weft_cli_lab_run},
    {0},
};

int weft_cli_lab(int argc, char **argv)
{
    static const struct weft_verb_list list = {
        .name = "weft lab",
        .word = "command",
        .summary = "emulated clusters on this machine, with the kernel's network stack",
        .usage = "COMMAND [options]",
        .description =
            "Every host is a network namespace with its own TCP stack. Links have a rate, switch\n"
            "ports a buffer that overflows, and packets can be lost at random. Addresses are the "
            "same\n"
            "in every lab: host 0 is 10.77.0.1 and named h0, host 1 is 10.77.0.2 and named h1.\n"
            "Requires root. The machine's own network is not changed; when the lab's holder "
            "process\n"
            "ends, the kernel removes everything.",
        .notes = "`weft lab COMMAND --help` describes a command\n"
                 "\nexample:\n"
                 "  weft lab up demo --hosts 9 --rate 1gbit --buffer 128kb --loss 0.01\n"
                 "  weft lab exec demo 0 -- ping -c 3 h1\n"
                 "  weft lab exec demo switch -- tc -s qdisc show dev h0\n"
                 "  weft lab down demo\n"
                 "  weft lab run --hosts 2 --rate 100mbit --on 0 -- ping -c 3 h1",
        .verbs = verbs,
    };
    return weft_verbs_run(&list, argc, argv);
}
