/* The verbs of `weft lab`. argv[0] is the verb itself; the return value is the exit status. */
#ifndef WEFT_CLI_LAB_VERBS_H
#define WEFT_CLI_LAB_VERBS_H

#include <signal.h>
#include <stdbool.h>

int weft_cli_lab_up(int argc, char **argv);
int weft_cli_lab_run(int argc, char **argv);
int weft_cli_lab_exec(int argc, char **argv);
int weft_cli_lab_background(int argc, char **argv);
int weft_cli_lab_box(int argc, char **argv);

/* Block SIGCHLD and the signals to be forwarded to a command; they arrive at the descriptor.
 * *old_p: the signal mask for the command. */
int weft_cli_lab_signals(sigset_t *old_p);

/* Wait until the child ends; forward signals and reap other children. With parent != 0, stop
 * waiting when the parent ends, and return false. */
bool weft_cli_lab_wait(pid_t child, int signal_fd, pid_t parent, int *exit_status_p);

/* As in a shell: the command was not found, could not be executed, or was killed by signal n (128 +
 * n). */
enum { WEFT_LAB_EXIT_NOT_FOUND = 127, WEFT_LAB_EXIT_NOT_RUN = 126, WEFT_LAB_EXIT_SIGNAL = 128 };

#endif
