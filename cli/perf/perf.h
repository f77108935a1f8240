/* The patterns of `weft perf`. argv[0] is the pattern; the result is the exit status. */
#ifndef WEFT_CLI_PERF_PERF_H
#define WEFT_CLI_PERF_PERF_H

int weft_perf_stream(int argc, char **argv);
int weft_perf_rounds(int argc, char **argv); /* pingpong to shuffle: enum weft_perf_pattern */
int weft_perf_compare(int argc, char **argv);

#endif
