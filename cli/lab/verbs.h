/* The verbs of `weft lab`. argv[0] is the verb itself; the result is the exit status. */
#ifndef WEFT_CLI_LAB_VERBS_H
#define WEFT_CLI_LAB_VERBS_H

#include <signal.h>
#include <stdbool.h>

int weft_cli_lab_up(int argc, char **argv);
int weft_cli_lab_run(int argc, char **argv);
int weft_cli_lab_exec(int argc, char **argv);
int weft_cli_lab_background(int argc, char **argv);

/* From now on signals that a command shall get, and SIGCHLD, are blocked and come to the descriptor.
 * *old_p: the mask for the command. */
int weft_cli_lab_signals(sigset_t *old_p);

/* Wait until the child ends, pass signals on, collect other children that end. With a parent that is
 * not 0, wait also until that one ends: then the result is false. */
bool weft_cli_lab_wait(pid_t child, int signal_fd, pid_t parent, int *exit_status_p);

/* Of a shell: the command was not found, could not be run, or died of signal n (128 + n). */
enum { WEFT_LAB_EXIT_NOT_FOUND = 127, WEFT_LAB_EXIT_NOT_RUN = 126, WEFT_LAB_EXIT_SIGNAL = 128 };

#endif
