/* The verbs of `weft lab`. argv[0] is the verb itself; the result is the exit status. */
#ifndef WEFT_CLI_LAB_VERBS_H
#define WEFT_CLI_LAB_VERBS_H

int weft_cli_lab_up(int argc, char **argv);
int weft_cli_lab_run(int argc, char **argv);
int weft_cli_lab_exec(int argc, char **argv);
int weft_cli_lab_background(int argc, char **argv);

/* Block the signals that ask to stop and give a descriptor that is readable when one came. */
int weft_cli_lab_stop_fd(void);

#endif
