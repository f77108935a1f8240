/* Shared by the verbs of `weft trace`: FILE... of the command line, and opening and closing the
 * files. */
#ifndef WEFT_CLI_TRACE_TRACE_H
#define WEFT_CLI_TRACE_TRACE_H

#include "cli/options.h"
#include "cli/output.h"
#include "obs/recdb.h"
#include "obs/trace_doc.h"

/* Out of memory ends the program. */
void *weft_trace_need(void *memory);

struct weft_trace_files {
    const char *const *paths;
    uint32_t count;
};

/* As weft_options_parse; adds FILE... to the command; at least one is required. */
int weft_trace_parse(struct weft_command *command, struct weft_trace_files *files_p, int argc,
                     char **argv);

/* Open a database of records, call run, close it, report failures, and check that all of standard
 * output was written. run returns false after it has reported an error; errors of db are reported
 * here. Returns the exit status. */
int weft_trace_run(const struct weft_command *command, const struct weft_trace_files *files,
                   bool (*run)(struct weft_recdb *db, void *arg), void *arg);

/* Read a whole trace file. Errors are reported on standard error. True also for a truncated file,
 * whose intact records are returned; false for a damaged file, or one that is not a trace.
 * Owns:    doc_p is freed with weft_trace_doc_fini, also after false. */
bool weft_trace_load(const char *path, struct weft_trace_doc *doc_p);

/* `weft trace summary` of a database; arg: a bool, as JSON. */
bool weft_trace_records_summary(struct weft_recdb *db, void *arg);

/* The verbs; argv[0] is the verb. */
int weft_cli_trace_slow(int argc, char **argv);
int weft_cli_trace_hot(int argc, char **argv);
int weft_cli_trace_sql(int argc, char **argv);
int weft_cli_trace_export(int argc, char **argv);
int weft_cli_trace_figures(int argc, char **argv);
int weft_cli_trace_msg(int argc, char **argv);
int weft_cli_trace_qlog(int argc, char **argv);
int weft_cli_trace_merge(int argc, char **argv);

#endif
