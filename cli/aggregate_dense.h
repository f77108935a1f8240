/* `weft aggregate --dense`: a verb of its own behind that option, like --xdp
 * (cli/aggregate_xdp.h). */
#ifndef WEFT_CLI_AGGREGATE_DENSE_H
#define WEFT_CLI_AGGREGATE_DENSE_H

int weft_cli_aggregate_dense(int argc, char **argv);

#endif
