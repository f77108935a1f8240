/* The verbs of `weft sim` beside swarm. Each takes its own name as argv[0] and returns the exit
 * status. */
#ifndef WEFT_CLI_SIM_VERBS_H
#define WEFT_CLI_SIM_VERBS_H

int weft_cli_sim_incast(int argc, char **argv);
int weft_cli_sim_exchange(int argc, char **argv);
int weft_cli_sim_allreduce(int argc, char **argv);
int weft_cli_sim_grid(int argc, char **argv);

#endif
