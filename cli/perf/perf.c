/* `weft perf`: measurements of this host; one file per pattern under cli/perf/. */
#include "cli/verbs.h"

static const struct weft_verb patterns[] = {
    {"stream", "goodput of one flow of float vectors", weft_perf_stream},
    {"pingpong", "round trips of a message and its answer", weft_perf_rounds},
    {"incast", "many senders, one receiver, a message each in a round", weft_perf_rounds},
    {"outcast", "one sender, many receivers, a message to each in a round", weft_perf_rounds},
    {"alltoall", "each sends a message to each other in a round", weft_perf_rounds},
    {"shuffle", "each mapper sends to each reducer, a few messages at once", weft_perf_rounds},
    {"allreduce", "all_reduce of several ranks, for vectors of several sizes", weft_perf_collective},
    {"allgather", "the same of all_gather", weft_perf_collective},
    {"broadcast", "the same of broadcast", weft_perf_collective},
    {"compare", "the same rounds over several transports and networks, side by side",
     weft_perf_compare},
    {0},
};

int weft_cli_perf(int argc, char **argv)
{
    static const struct weft_verb_list list = {
        .name = "weft perf",
        .word = "pattern",
        .summary = "measure transports, on loopback or in a lab",
        .usage = "PATTERN [options]",
        .notes = "`weft perf PATTERN --help` explains a pattern\n"
                 "\nexample:\n  weft perf stream --transport all",
        .verbs = patterns,
    };
    return weft_verbs_run(&list, argc, argv);
}
