/* `weft trace qlog`: converts a trace to qlog (obs/qlog.h). */
#include "cli/trace/trace.h"
#include "obs/qlog.h"

#include <errno.h>

static int run(const char *path, const char *out_path)
{
    struct weft_trace_doc doc;
    if (!weft_output_distinct("trace qlog", out_path, &path, 1)) {
        return WEFT_EXIT_FAILED;
    }
    bool good = weft_trace_load(path, &doc);
    if (good) {
        FILE *out = weft_output_open(out_path);
        weft_status status = out != NULL ? weft_qlog_write(&doc, path, out) : WEFT_IO;
        errno = status == WEFT_NOMEM ? ENOMEM : errno;
        good = weft_output_close("trace qlog", out_path, out, status == WEFT_OK);
    }
    weft_trace_doc_fini(&doc);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_trace_qlog(int argc, char **argv)
{
    const char *out = NULL;
    bool json = false;
    const char *file = NULL;
    const struct weft_option options[] = {
        {"out", "OUT", "file to write; also -o OUT", WEFT_OPTION_STRING, .value = &out,
         .fallback = "standard output", .letter = 'o'},
        {"json", NULL, "no effect: qlog is JSON", WEFT_OPTION_FLAG,
         .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "trace qlog",
        .summary = "convert a trace to qlog, for QUIC visualization tools",
        .arguments = "FILE",
        .operand = &file,
        .without = "FILE is missing: weft trace qlog FILE",
        .description =
            "Writes JSON-SEQ: each record starts with the byte 0x1e and is one line of JSON. For\n"
            "tools that need plain lines: `tr -d '\\036'`. Times are ms of the process's clock.",
        .example = "  weft train --trace t && weft trace qlog t.worker-0 -o t.sqlog\n"
                   "  weft trace qlog t.worker-0 | tr -d '\\036' | jq -c 'select(.name == "
                   "\"quic:packet_lost\")'",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    return status == WEFT_OPTIONS_RUN ? run(file, out) : status;
}
