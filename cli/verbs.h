/* The verbs. argv[0] is the verb itself; the result is the exit status (options.h). */
#ifndef WEFT_CLI_VERBS_H
#define WEFT_CLI_VERBS_H

int weft_cli_run(int argc, char **argv);
int weft_cli_scheduler(int argc, char **argv);
int weft_cli_train(int argc, char **argv);
int weft_cli_server(int argc, char **argv);
int weft_cli_worker(int argc, char **argv);
int weft_cli_eval(int argc, char **argv);
int weft_cli_predict(int argc, char **argv);
int weft_cli_doctor(int argc, char **argv);
int weft_cli_keygen(int argc, char **argv);
int weft_cli_top(int argc, char **argv);
int weft_cli_trace(int argc, char **argv);
int weft_cli_load(int argc, char **argv);
int weft_cli_perf(int argc, char **argv);
int weft_cli_lab(int argc, char **argv);
int weft_cli_sim(int argc, char **argv);

#endif
