/* `weft trace merge`: merges record files of several processes, including spools of killed ones. */
#include "cli/output.h"
#include "cli/trace/trace.h"
#include "obs/records_db.h"

#include <stdio.h>
#include <sys/stat.h>

/* Files of processes that were killed before they wrote a record, or have not written one yet. */
static uint32_t count_empty(const char *const *inputs, uint32_t count)
{
    uint32_t empty = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct stat about;
        empty += stat(inputs[i], &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0;
    }
    return empty;
}

static bool is_same_file(const char *a, const struct stat *b)
{
    struct stat about;
    return stat(a, &about) == 0 && about.st_dev == b->st_dev && about.st_ino == b->st_ino;
}

/* Several processes add their records to one file: replacing it by the records of one that was
 * killed would lose those of the others. */
static bool would_lose(const char *const *inputs, uint32_t count, const char *output)
{
    struct stat about;
    if (stat(output, &about) != 0 || about.st_size == 0) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (is_same_file(inputs[i], &about)) {
            return false;
        }
    }
    return true;
}

static int merge(const char *const *inputs, uint32_t count, const char *output)
{
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    if (weft_records_check_path(output, true, &error) != WEFT_OK) {
        return weft_cli_fail("trace merge", "%s", error.text);
    }
    if (!weft_output_replaceable("trace merge", output)) {
        return WEFT_EXIT_FAILED;
    }
    if (would_lose(inputs, count, output)) {
        return weft_cli_fail("trace merge",
                             "%s exists, and its records are not among the input files: name it as "
                             "an input, too, write to another file, or remove it",
                             output);
    }
    const uint32_t empty = count_empty(inputs, count);
    if (empty == count) {
        return weft_cli_fail("trace merge", "%s%s: no records: the file is empty", inputs[0],
                             count > 1 ? " and the others" : "");
    }
    if (weft_records_make(inputs, count, output, true, NULL, &sum, &error) != WEFT_OK) {
        return weft_cli_fail("trace merge", "%s", error.text);
    }
    printf("%s: %u process%s, %llu RPCs, %llu answers by servers, %llu records\n", output,
           sum.processes, sum.processes == 1 ? "" : "es", (unsigned long long)sum.rpcs,
           (unsigned long long)sum.served, (unsigned long long)sum.records);
    if (sum.processes_cut > 0) {
        printf("%u did not exit normally: records that they had not written yet are missing\n",
               sum.processes_cut);
    }
    if (empty > 0) {
        printf("%u file%s empty: no records of %s process\n", empty, empty == 1 ? " is" : "s are",
               empty == 1 ? "its" : "their");
    }
    if (sum.dropped > 0) {
        printf("%llu records were dropped by their processes\n", (unsigned long long)sum.dropped);
    }
    if (sum.bytes_skipped > 0) {
        printf("%llu bytes are damaged or truncated, and were skipped\n",
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
         "file to create (also -o FILE). It may be one of the input files,\n"
         "which is then replaced. JSON lines if it ends in .jsonl, else a\n"
         "SQLite database",
         WEFT_OPTION_STRING, .value = &output, .fallback = "", .letter = 'o'},
        {0},
    };
    struct weft_command command = {
        .name = "trace merge",
        .summary = "merge record files, or recover the spools of a killed run",
        .description = "FILEs are databases written by --records, and spools: files that a process "
                       "writes during\n"
                       "the run (FILE.spool-worker-0) and leaves behind if it is killed. Every "
                       "block of a spool\n"
                       "is checked; damaged or truncated blocks are skipped and counted. The input "
                       "files are not\n"
                       "changed, except for one that is also the output.",
        .example =
            "  weft trace merge r.db.spool-* -o r.db        # of a job that was killed\n"
            "  weft trace merge r.db r.db.spool-* -o r.db   # others have added their records",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    if (status == WEFT_OPTIONS_RUN && output == NULL) {
        status = weft_options_usage(&command, "-o FILE is missing: the file to create");
    }
    return status == WEFT_OPTIONS_RUN ? merge(files.paths, files.count, output) : status;
}
