/* `weft perf`: measurements of this host; one file per pattern under cli/perf/. */
#include "cli/verbs.h"

static const struct weft_verb patterns[] = {
    {"stream", "goodput of one flow of float vectors", weft_perf_stream},
    {"pingpong", "round trips of a message and its reply", weft_perf_rounds},
    {"incast", "many senders, one receiver, one message per sender and round", weft_perf_rounds},
    {"outcast", "one sender, many receivers, one message per receiver and round", weft_perf_rounds},
    {"alltoall", "every host sends a message to every other host in each round", weft_perf_rounds},
    {"shuffle", "every mapper sends to every reducer, a few messages at a time", weft_perf_rounds},
    {"allreduce", "all_reduce of several ranks, for vectors of several sizes", weft_perf_collective},
    {"allgather", "the same for all_gather", weft_perf_collective},
    {"broadcast", "the same for broadcast", weft_perf_collective},
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
        .notes = "`weft perf PATTERN --help` describes a pattern\n"
                 "\nexample:\n  weft perf stream --transport all",
        .verbs = patterns,
    };
    return weft_verbs_run(&list, argc, argv);
}
