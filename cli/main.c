/* The `weft` binary: finds the verb and calls it. One file per verb. */
#include "cli/verbs.h"
#include "node/recording.h"

#include "cli/options.h"
#include "cli/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct weft_verb verbs[] = {
    {"train", "train a model on this machine, with servers and workers as processes",
     weft_cli_train},
    {"run", "start servers and your own worker program; restart failed processes", weft_cli_run},
    {"coordinator", "run the rendezvous point of a job", weft_cli_coordinator},
    {"scheduler", "run the transfer scheduler of a job: order and rate of pushes",
     weft_cli_scheduler},
    {"server", "run a parameter server", weft_cli_server},
    {"aggregate", "aggregate pushes and serve pulls between workers and servers",
     weft_cli_aggregate},
    {"worker", "run one worker of a built-in model, with servers that are already running", weft_cli_worker},
    {"eval", "evaluate a saved model on a data file", weft_cli_eval},
    {"predict", "print a saved model's prediction for each example of a data file",
     weft_cli_predict},
    {"keygen", "create the secret key that the processes of a job share", weft_cli_keygen},
    {"doctor", "check this host's socket buffers, offloads, MTU and ports", weft_cli_doctor},
    {"load", "load-test parameter servers with many simulated workers", weft_cli_load},
    {"top", "show a running job live: rates, latencies, most-used rows", weft_cli_top},
    {"trace", "analyse latency records and packet traces of a job", weft_cli_trace},
    {"perf", "compare the speed of weft, TCP and plain UDP", weft_cli_perf},
    {"lab", "emulate a cluster on this machine with network namespaces", weft_cli_lab},
    {"sim", "simulate clusters in virtual time, reproducible from a seed", weft_cli_sim},
    {0},
};

static const struct weft_verb_list list = {
    .name = "weft",
    .word = "command",
    .summary = "a partially reliable transport and parameter server for machine learning on Ethernet",
    .usage = "COMMAND [options]",
    .notes = "`weft COMMAND --help` describes a command; `weft --version` prints the version.\n"
             "\nexample:\n  weft train --workers 4 --servers 2 --batch 1024 --loss-bound 0.10 \\\n"
             "      --inject-loss 0.02\n"
             "\nexit status: 0 success, 1 the run failed, 2 invalid command line",
    .verbs = verbs,
};

/* The next file or socket would get the number of a closed standard descriptor, and output would be
 * written into it. Opened the wrong way, the descriptor fails as a closed one does. */
static void standard_descriptors_keep(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

static int run(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_OK;
    }
    weft_recording_command(argc - 1, argv + 1);
    return weft_verbs_run(&list, argc, argv);
}

int main(int argc, char **argv)
{
    standard_descriptors_keep();
    int status = run(argc, argv);
    if (status == WEFT_EXIT_OK && !weft_output_close(argv[1], NULL, stdout, true)) {
        status = WEFT_EXIT_FAILED;
    }
    return status;
}
