/* `weft perf`: measurements of this host; one file per pattern under cli/perf/. */
#include "cli/options.h"
#include "cli/perf/perf.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} patterns[] = {
    {"stream", "goodput of one flow of float vectors", weft_perf_stream},
    {"pingpong", "round trips of a message and its answer", weft_perf_rounds},
    {"incast", "many senders, one receiver, a message each in a round", weft_perf_rounds},
    {"outcast", "one sender, many receivers, a message to each in a round", weft_perf_rounds},
    {"alltoall", "each sends a message to each other in a round", weft_perf_rounds},
    {"shuffle", "each mapper sends to each reducer, a few messages at once", weft_perf_rounds},
    {"compare", "the same rounds over several transports and networks, side by side",
     weft_perf_compare},
};

enum { PATTERN_COUNT = sizeof(patterns) / sizeof(patterns[0]) };

static void print_help(void)
{
    printf("weft perf: measure transports, on loopback or in a lab\n"
           "\nusage: weft perf PATTERN [options]\n\npatterns:\n");
    for (size_t i = 0; i < PATTERN_COUNT; i++) {
        printf("  %-8s  %s\n", patterns[i].name, patterns[i].summary);
    }
    printf("\n`weft perf PATTERN --help` explains a pattern\n"
           "\nexample:\n  weft perf stream --transport all\n");
}

int weft_cli_perf(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "weft perf: a pattern is missing\n`weft perf --help` lists them\n");
        return WEFT_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return WEFT_EXIT_OK;
    }
    for (size_t i = 0; i < PATTERN_COUNT; i++) {
        if (strcmp(argv[1], patterns[i].name) == 0) {
            return patterns[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "weft perf: unknown pattern \"%.80s\"\n`weft perf --help` lists them\n",
            argv[1]);
    return WEFT_EXIT_USAGE;
}
