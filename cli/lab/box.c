/* `weft lab box`: configures the aggregation boxes of a lab and shows their counters. A child goes
 * to each leaf in turn, because a box is found by the interface that it is on. */
#include "cli/box_report.h"
#include "cli/lab/options.h"
#include "cli/lab/verbs.h"
#include "cli/output.h"

#include "lab/aggregate.h"
#include "lab/box.h"
#include "lab/registry.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t not_given = UINT32_MAX;

struct verb {
    const char *name;
    uint32_t members;
    uint32_t job;
    uint64_t epoch;
    int32_t exponent;
    uint32_t slots;
    bool reset;
    bool json;
    struct weft_lab_info info;
    struct weft_lab_spec spec; /* hosts, leaves and spines alone */
};

/* What a child reports about the box of its leaf. */
struct report {
    weft_status status;
    struct weft_error error;
    struct weft_aggregate_facts facts;
    struct weft_aggregate_counts counts;
};

/* ---- in the child ---------------------------------------------------------------------------- */

static weft_status configure(const struct verb *verb, struct weft_aggregate *box,
                             struct weft_error *error)
{
    struct weft_aggregate_facts facts;
    weft_status status = weft_aggregate_read_facts(box, &facts, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_agg_config config = facts.config;
    config.members = verb->members != not_given ? weft_box_members(verb->members) : config.members;
    config.job = verb->job != not_given ? (uint16_t)verb->job : config.job;
    config.dense_epoch = verb->epoch != UINT64_MAX ? (uint32_t)verb->epoch : config.dense_epoch;
    config.exponent = verb->exponent != INT_MAX ? (int8_t)verb->exponent : config.exponent;
    config.slots = verb->slots != not_given ? verb->slots : config.slots;
    return memcmp(&config, &facts.config, sizeof(config)) != 0
               ? weft_aggregate_configure(box, &config, error)
               : WEFT_OK;
}

static void configure_and_read(const struct verb *verb, const char *port, struct report *report)
{
    struct weft_aggregate *box = NULL;
    report->status = weft_aggregate_find(port, &box, &report->error);
    if (report->status == WEFT_OK) {
        report->status = configure(verb, box, &report->error);
    }
    if (report->status == WEFT_OK && verb->reset) {
        report->status = weft_aggregate_reset(box, &report->error);
    }
    if (report->status == WEFT_OK) {
        report->status = weft_aggregate_read_facts(box, &report->facts, &report->error);
    }
    if (report->status == WEFT_OK) {
        report->status = weft_aggregate_read_counts(box, &report->counts, &report->error);
    }
    weft_aggregate_close(box);
}

/* ---- in the caller --------------------------------------------------------------------------- */

static weft_status query_leaf(const struct verb *verb, uint32_t leaf, struct report *report,
                              struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    char port[WEFT_LAB_NODE_BYTES];
    int ends[2];
    pid_t pid;
    weft_lab_router_name(&verb->spec, leaf, node);
    weft_lab_host_name(leaf * (verb->spec.hosts / verb->spec.leaves), port);
    if (pipe(ends) != 0) {
        return weft_fail(error, WEFT_IO, "cannot make a pipe");
    }
    weft_status status = weft_lab_fork_node(&verb->info, node, &pid, error);
    if (status == WEFT_OK && pid == 0) {
        static struct report own;
        configure_and_read(verb, port, &own);
        _exit(write(ends[1], &own, sizeof(own)) == (ssize_t)sizeof(own) ? 0 : 1);
    }
    close(ends[1]);
    if (status == WEFT_OK) {
        ssize_t bytes = read(ends[0], report, sizeof(*report));
        waitpid(pid, NULL, 0);
        if (bytes != (ssize_t)sizeof(*report)) {
            status =
                weft_fail(error, WEFT_IO, "the child process on %s ended without a report", node);
        } else if (report->status != WEFT_OK) {
            status = weft_fail(error, report->status, "%s: %s", node, report->error.text);
        }
    }
    close(ends[0]);
    return status;
}

static bool print_box(const struct verb *verb, uint32_t leaf, const struct report *report)
{
    char node[WEFT_LAB_NODE_BYTES];
    char address[WEFT_LAB_ADDRESS_BYTES];
    const struct weft_agg_config *config = &report->facts.config;
    weft_lab_router_name(&verb->spec, leaf, node);
    weft_lab_router_address(leaf, address);
    printf("%s: %s:%u, members 0 .. %d, job %u, epoch %u, exponent %d, %u slots\n", node, address,
           report->facts.port, __builtin_popcountll(config->members) - 1, config->job,
           config->dense_epoch, config->exponent, config->slots);
    return weft_box_report_print("lab box", &report->counts);
}

static void add_box(cJSON *boxes, const struct verb *verb, uint32_t leaf,
                    const struct report *report)
{
    char text[WEFT_LAB_ADDRESS_BYTES];
    cJSON *box = cJSON_CreateObject();
    weft_lab_router_name(&verb->spec, leaf, text);
    cJSON_AddStringToObject(box, "leaf", text);
    weft_lab_router_address(leaf, text);
    cJSON_AddStringToObject(box, "address", text);
    weft_box_report_json(box, &report->facts, &report->counts);
    cJSON_AddItemToArray(boxes, box);
}

/* Rounds that were complete with the members before would not be with others, and slots in use
 * would wait for packets that nobody sends: every box has to begin a later epoch, or to be reset.
 * Nothing is changed unless all can be. Returns WEFT_OPTIONS_RUN or an exit status. */
static int check_members(const struct verb *verb, const struct weft_command *command)
{
    const struct verb read_only = {.name = verb->name,
                                   .members = not_given,
                                   .job = not_given,
                                   .epoch = UINT64_MAX,
                                   .exponent = INT_MAX,
                                   .slots = not_given,
                                   .info = verb->info,
                                   .spec = verb->spec};
    if (verb->members == not_given || verb->reset) {
        return WEFT_OPTIONS_RUN;
    }
    for (uint32_t leaf = 0; leaf < verb->spec.leaves; leaf++) {
        static struct report report;
        struct weft_error error = {.text = ""};
        if (query_leaf(&read_only, leaf, &report, &error) != WEFT_OK) {
            return weft_cli_fail("lab box", "%s", error.text);
        }
        const struct weft_agg_config *config = &report.facts.config;
        bool later =
            verb->epoch != UINT64_MAX && (int32_t)((uint32_t)verb->epoch - config->dense_epoch) > 0;
        if (weft_box_members(verb->members) != config->members && !later) {
            return weft_options_usage(command,
                                      "--members %u: with %d members until now, it needs --epoch "
                                      "with a number above %u, or --reset",
                                      verb->members, __builtin_popcountll(config->members),
                                      config->dense_epoch);
        }
    }
    return WEFT_OPTIONS_RUN;
}

static int run(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    cJSON *boxes = verb->json ? cJSON_CreateArray() : NULL;
    weft_status status = WEFT_OK;
    for (uint32_t leaf = 0; leaf < verb->spec.leaves && status == WEFT_OK; leaf++) {
        static struct report report;
        status = query_leaf(verb, leaf, &report, &error);
        if (status == WEFT_OK && verb->json) {
            add_box(boxes, verb, leaf, &report);
        } else if (status == WEFT_OK) {
            if (!print_box(verb, leaf, &report)) {
                return WEFT_EXIT_FAILED;
            }
        }
    }
    if (status != WEFT_OK) {
        cJSON_Delete(boxes);
        return weft_cli_fail("lab box", "%s", error.text);
    }
    return !verb->json || weft_output_json("lab box", boxes, true) ? WEFT_EXIT_OK
                                                                   : WEFT_EXIT_FAILED;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Find the lab and its shape. Returns WEFT_OPTIONS_RUN or an exit status. */
static int find(struct verb *verb, const struct weft_command *command)
{
    struct weft_error error = {.text = ""};
    if (weft_lab_find(verb->name, &verb->info, &error) != WEFT_OK) {
        return weft_cli_fail("lab box", "%s", error.text);
    }
    cJSON *facts = weft_lab_registry_get(verb->name);
    verb->spec.hosts = (uint32_t)weft_lab_fact_u64(facts, "hosts");
    verb->spec.leaves = (uint32_t)weft_lab_fact_u64(facts, "leaves");
    verb->spec.spines = (uint32_t)weft_lab_fact_u64(facts, "spines");
    bool has_boxes = strcmp(weft_lab_fact_text(facts, "aggregate"), "xdp") == 0;
    cJSON_Delete(facts);
    if (!has_boxes || verb->spec.leaves == 0) {
        return weft_cli_fail("lab box", "lab %.40s has no boxes; create it with --aggregate xdp",
                             verb->name);
    }
    uint32_t hosts = verb->spec.hosts / verb->spec.leaves;
    if (verb->members != not_given && verb->members > hosts) {
        return weft_options_usage(command, "--members %u: a leaf of lab %.40s has %u hosts",
                                  verb->members, verb->name, hosts);
    }
    return WEFT_OPTIONS_RUN;
}

int weft_cli_lab_box(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){.members = not_given,
                         .job = not_given,
                         .epoch = UINT64_MAX,
                         .exponent = INT_MAX,
                         .slots = not_given};
    const struct weft_option options[] = {
        {"members", "N", "a round is complete with the values of members 0 to N-1", WEFT_OPTION_U32,
         .value = &verb.members, .min = 1, .max = WEFT_AGG_MEMBERS_MAX,
         .fallback = "unchanged; at first all hosts of the leaf"},
        {"job", "N", "accept packets of this job", WEFT_OPTION_U32, .value = &verb.job,
         .max = UINT16_MAX, .fallback = "unchanged; at first 1"},
        {"epoch", "N",
         "begin this epoch, whose rounds begin at 0. Packets of earlier epochs are\n"
         "dropped; the first packet of a later epoch begins that epoch. With other\n"
         "--members, --reset or a later epoch is required",
         WEFT_OPTION_U64, .value = &verb.epoch, .max = UINT32_MAX,
         .fallback = "unchanged; at first 0"},
        {"exponent", "E",
         "a value is its integer x 2^E; packets with another E are not added, except\n"
         "where the members agree on exponents (box_block_float)",
         WEFT_OPTION_CUSTOM, .value = &verb.exponent, .parse = weft_box_parse_exponent,
         .fallback = "unchanged; at first 0"},
        {"slots", "N", "slots in use", WEFT_OPTION_U32, .value = &verb.slots, .min = 1,
         .max = WEFT_LAB_BOX_SLOTS, .fallback = "unchanged; at first 1024"},
        {"reset", NULL, "set all slots and counters to their initial state", WEFT_OPTION_FLAG,
         .value = &verb.reset},
        {"json", NULL, "print all counters as a JSON array of boxes", WEFT_OPTION_FLAG,
         .value = &verb.json},
        {0},
    };
    const struct weft_command command = {
        .name = "lab box",
        .summary = "configure the aggregation boxes of a lab, and show their counters",
        .arguments = "NAME",
        .operand = &verb.name,
        .without = "the name of a lab is missing; `weft lab status` lists the labs",
        .description =
            "A lab that was created with --aggregate xdp has a box on every leaf, at the leaf's\n"
            "own address. Options change all boxes; use them while no packets are sent to boxes.\n"
            "Sums leave through the queues of the ports, like all packets. docs/AGGREGATION.md\n"
            "has more.",
        .example = "  weft lab up demo --hosts 4 --aggregate xdp\n"
                   "  weft lab box demo --epoch 1 --exponent -20\n"
                   "  weft lab box demo --json | jq '.[0].packets'\n"
                   "  weft lab down demo",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = find(&verb, &command);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = check_members(&verb, &command);
    }
    return status == WEFT_OPTIONS_RUN ? run(&verb) : status;
}
