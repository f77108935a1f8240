#include "cli/trace/trace.h"

#include <stdlib.h>

void *weft_trace_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft trace: out of memory\n");
        exit(1);
    }
    return memory;
}

int weft_trace_parse(struct weft_command *command, struct weft_trace_files *files_p, int argc,
                     char **argv)
{
    *files_p = (struct weft_trace_files){0};
    command->arguments = "FILE...";
    command->operands = &files_p->paths;
    command->operand_count = &files_p->count;
    int status = weft_options_parse(command, argc, argv);
    return status == WEFT_OPTIONS_RUN && files_p->count == 0
               ? weft_options_usage(command, "which file? weft %s FILE", command->name)
               : status;
}

int weft_trace_run(const struct weft_command *command, const struct weft_trace_files *files,
                   bool (*run)(struct weft_recdb *db, void *arg), void *arg)
{
    struct weft_recdb db;
    bool good = weft_recdb_open(files->paths, files->count, &db) == WEFT_OK && run(&db, arg);
    if (db.status != WEFT_OK) {
        fprintf(stderr, "weft %s: %s\n", command->name, db.error.text);
        good = false;
    }
    weft_recdb_close(&db);
    return good && weft_output_close(command->name, NULL, stdout, true) ? WEFT_EXIT_OK
                                                                       : WEFT_EXIT_FAILED;
}
