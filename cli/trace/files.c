#include "cli/trace/trace.h"

#include "obs/records_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
               ? weft_options_usage(command, "FILE is missing: weft %s FILE", command->name)
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

bool weft_trace_load(const char *path, struct weft_trace_doc *doc_p)
{
    char *bytes = NULL;
    size_t count = 0;
    *doc_p = (struct weft_trace_doc){0};
    if (weft_recdb_is_sqlite(path)) {
        fprintf(stderr,
                "weft trace: %s is a database of records, not a trace of packets; `weft trace "
                "summary`, `slow`, `hot` and `sql` read it\n",
                path);
        return false;
    }
    if (weft_records_is_json(path)) {
        fprintf(stderr, "weft trace: %s " WEFT_RECORDS_JSON_WORDS "\n", path);
        return false;
    }
    struct stat about;
    if (stat(path, &about) == 0 && (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode))) {
        fprintf(stderr, "weft trace: %s is a device, not a trace file\n", path); /* no end */
        return false;
    }
    if (weft_file_read(path, SIZE_MAX / 4, &bytes, &count) != WEFT_OK) {
        fprintf(stderr, "weft trace: %s: %s\n", path, strerror(errno));
        return false;
    }
    weft_status status = weft_trace_doc_make(bytes, count, doc_p);
    free(bytes);
    if (status == WEFT_NOMEM) {
        fprintf(stderr, "weft trace: out of memory\n");
    } else if (status != WEFT_OK) {
        fprintf(stderr, "weft trace: %s is not a trace file, or is damaged (at byte %zu of %zu)\n",
                path, doc_p->bad_at, count);
    } else if (doc_p->truncated) {
        fprintf(stderr, "weft trace: %s is truncated; showing the records that it has\n", path);
    }
    return status == WEFT_OK;
}
