/* `weft aggregate --xdp`: a verb of its own behind that option, because it shares no other option
 * with the process of `weft aggregate`. */
#ifndef WEFT_CLI_AGGREGATE_XDP_H
#define WEFT_CLI_AGGREGATE_XDP_H

int weft_cli_aggregate_xdp(int argc, char **argv);

#endif
