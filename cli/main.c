/* The one binary `weft`: finds the verb and hands over. One file per verb. */
#include "cli/verbs.h"
#include "node/recording.h"

#include "cli/options.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
} verbs[] = {
    {"train", "train a model on this machine, with servers and workers as processes",
     weft_cli_train},
    {"run", "start servers and your own worker program; restart what fails",
     weft_cli_run},
    {"scheduler", "run the rendezvous point of a job", weft_cli_scheduler},
    {"server", "serve shards of the parameters", weft_cli_server},
    {"worker", "train on one part of the data, using servers that already run", weft_cli_worker},
    {"eval", "evaluate a saved model on a data file", weft_cli_eval},
    {"predict", "print a saved model's prediction for each example of a data file", weft_cli_predict},
    {"keygen", "create the secret key that the processes of a job share", weft_cli_keygen},
    {"doctor", "check this host's socket buffers, offloads, MTU and ports", weft_cli_doctor},
    {"load", "load-test parameter servers with many simulated workers",
     weft_cli_load},
    {"top", "show a running job live: rates, latencies, most-used rows", weft_cli_top},
    {"trace", "analyse RPC records and packet traces of a job", weft_cli_trace},
    {"perf", "benchmark weft against TCP and UDP", weft_cli_perf},
    {"lab", "emulate a cluster on this machine with network namespaces", weft_cli_lab},
    {"sim", "simulate clusters in virtual time, reproducible from a seed", weft_cli_sim},
};

enum { VERB_COUNT = sizeof(verbs) / sizeof(verbs[0]) };

static void print_help(void)
{
    printf("weft: a communication fabric for distributed machine learning on ordinary Ethernet\n"
           "\nusage: weft VERB [options]\n\nverbs:\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        printf("  %-9s  %s\n", verbs[i].name, verbs[i].summary);
    }
    printf("\n`weft VERB --help` describes a verb; `weft --version` prints the version.\n"
           "\nexample:\n  weft train --workers 4 --servers 2 --batch 1024 --loss-bound 0.10 --inject-loss 0.02\n"
           "\nexit status: 0 success, 1 the run failed, 2 wrong usage\n");
}

static int unknown_verb(const char *word)
{
    const char *names[VERB_COUNT + 1];
    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
    }
    names[VERB_COUNT] = NULL;
    const char *closest = weft_options_closest(word, names);
    fprintf(stderr, "weft: unknown verb \"%.80s\"", word);
    if (closest != NULL) {
        fprintf(stderr, "; did you mean %s?", closest);
    }
    fprintf(stderr, "\n`weft --help` lists the verbs\n");
    return WEFT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "weft: a verb is missing\n`weft --help` lists the verbs\n");
        return WEFT_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help();
        return WEFT_EXIT_OK;
    }
    if (strcmp(word, "--version") == 0) {
        printf("weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_OK;
    }
    weft_recording_command(argc - 1, argv + 1);
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(word, verbs[i].name) == 0) {
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    return unknown_verb(word);
}
