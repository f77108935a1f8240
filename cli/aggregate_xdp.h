/* `weft aggregate --xdp`: a verb of its own behind that option. It shares only --security, --json
 * and the options of /metrics with `weft aggregate` without --xdp. */
#ifndef WEFT_CLI_AGGREGATE_XDP_H
#define WEFT_CLI_AGGREGATE_XDP_H

int weft_cli_aggregate_xdp(int argc, char **argv);

#endif
