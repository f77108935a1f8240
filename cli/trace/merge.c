/* `weft trace merge`: one file of records from what several processes, or killed ones, left. */
#include "cli/trace/trace.h"
#include "obs/records_db.h"

#include <stdio.h>

static int merge(const char *const *inputs, uint32_t count, const char *output)
{
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    if (weft_records_check_path(output, true, &error) != WEFT_OK ||
        weft_records_make(inputs, count, output, true, NULL, &sum, &error) != WEFT_OK) {
        return weft_cli_fail("trace merge", "%s", error.text);
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
    struct weft_trace_files files;
    const char *output = NULL;
    const struct weft_option options[] = {
        {"output", "FILE",
         "what to make (also -o FILE); it replaces a file that is there. Lines of\n"
         "JSON when it ends in .jsonl, else a SQLite database",
         WEFT_OPTION_STRING, .value = &output, .fallback = "", .letter = 'o'},
        {0},
    };
    struct weft_command command = {
        .name = "trace merge",
        .summary = "one file of records of several",
        .description =
            "FILEs are databases that --records made, and spools: what a process writes while it\n"
            "runs (FILE.spool-worker-0) and leaves when it is killed. Every block of a spool is\n"
            "checked; what is damaged or cut off is left out and counted. FILEs stay as they are.",
        .example = "  weft trace merge r.db.spool-* -o r.db",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    if (status == WEFT_OPTIONS_RUN && output == NULL) {
        status = weft_options_usage(&command, "-o is missing: which file is to be made?");
    }
    return status == WEFT_OPTIONS_RUN ? merge(files.paths, files.count, output) : status;
}
