/* `weft trace merge`: one file of records from what several processes, or killed ones, left. */
#include "cli/options.h"
#include "cli/trace/load.h"
#include "obs/records_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words that are no options, and "-o FILE" in its long form; argv keeps the rest. */
static uint32_t take_inputs(int *argc, char **argv, const char **inputs)
{
    static char output[] = "--output";
    uint32_t count = 0;
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        bool is_output = strcmp(argv[i], "-o") == 0 || strcmp(argv[i], output) == 0;
        if (argv[i][0] != '-' && argv[i][0] != '\0') {
            inputs[count++] = argv[i];
            continue;
        }
        argv[kept++] = is_output ? output : argv[i];
        if (is_output && i + 1 < *argc) {
            argv[kept++] = argv[++i];
        }
    }
    *argc = kept;
    return count;
}

static int merge(const char *const *inputs, uint32_t count, const char *output)
{
    struct weft_records_sum sum;
    struct weft_records_error error = {.text = ""};
    if (weft_records_check_path(output, true, &error) != WEFT_OK ||
        weft_records_make(inputs, count, output, true, NULL, &sum, &error) != WEFT_OK) {
        fprintf(stderr, "weft trace merge: %s\n", error.text);
        return WEFT_EXIT_FAILED;
    }
    printf("%s: %u process%s, %llu RPCs, %llu answers by servers, %llu records\n", output,
           sum.processes, sum.processes == 1 ? "" : "es", (unsigned long long)sum.rpcs,
           (unsigned long long)sum.served, (unsigned long long)sum.records);
    if (sum.processes_cut > 0) {
        printf("%u did not end in order: what they had not written yet is missing\n",
               sum.processes_cut);
    }
    if (sum.dropped > 0) {
        printf("%llu records were dropped by their processes\n", (unsigned long long)sum.dropped);
    }
    if (sum.bytes_skipped > 0) {
        printf("%llu bytes are damaged, or cut off, and were left out\n",
               (unsigned long long)sum.bytes_skipped);
    }
    return WEFT_EXIT_OK;
}

int weft_cli_trace_merge(int argc, char **argv)
{
    const char *output = NULL;
    const struct weft_option options[] = {
        {"output", "FILE",
         "what to make (also -o FILE); it replaces a file that is there. Lines of\n"
         "JSON when it ends in .jsonl, else a SQLite database",
         WEFT_OPTION_STRING, .value = &output, .fallback = ""},
        {0},
    };
    const struct weft_command command = {
        .name = "trace merge",
        .summary = "one file of records of several",
        .arguments = "FILE...",
        .description =
            "FILEs are databases that --records made, and spools: what a process writes while it\n"
            "runs (FILE.spool-worker-0) and leaves when it is killed. Every block of a spool is\n"
            "checked; what is damaged or cut off is left out and counted. FILEs stay as they are.",
        .example = "  weft trace merge r.db.spool-* -o r.db",
        .options = options,
    };
    const char **inputs = calloc((size_t)argc + 1, sizeof(*inputs));
    if (inputs == NULL) {
        fprintf(stderr, "weft trace merge: out of memory\n");
        return WEFT_EXIT_FAILED;
    }
    uint32_t count = take_inputs(&argc, argv, inputs);
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN && count == 0) {
        status = weft_options_usage(&command, "which files? weft trace merge FILE... -o FILE");
    }
    if (status == WEFT_OPTIONS_RUN && output == NULL) {
        status = weft_options_usage(&command, "-o is missing: which file is to be made?");
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = merge(inputs, count, output);
    }
    free(inputs);
    return status;
}
