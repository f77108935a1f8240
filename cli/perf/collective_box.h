/* `weft perf allreduce --box`: every rank is a member of dense rounds (node/box_link.h) with a
 * thread and a socket in its host's network, and sums its vector through an aggregation box. */
#ifndef WEFT_CLI_PERF_COLLECTIVE_BOX_H
#define WEFT_CLI_PERF_COLLECTIVE_BOX_H

#include "cli/options.h"
#include "cli/perf/layout.h"

struct weft_perf_box_options {
    const char *address; /* HOST:PORT; NULL = no box */
    uint32_t slots;
    uint32_t job;
    uint32_t epoch; /* 0 = the time in seconds */
    int32_t exponent;
    bool floats;
    bool block_floats;
};

const char *weft_perf_box_parse_exponent(const char *text, void *value);

/* Rows of an option table. */
#define WEFT_PERF_BOX_ROWS(box)                                                                    \
    {"box", "HOST:PORT",                                                                           \
     "allreduce: sum through this aggregation box (`weft aggregate --dense`,\n"                    \
     "`--xdp`, or of a lab); needs --security none",                                               \
     WEFT_OPTION_STRING, .value = &(box)->address, .fallback = "the ranks themselves"},            \
    {"slots", "N", "with --box: packets that a rank has in flight; at most the box's slots",       \
     WEFT_OPTION_U32, .value = &(box)->slots, .min = 1, .max = 65536},                             \
    {"job", "N", "with --box: the box's job", WEFT_OPTION_U32, .value = &(box)->job,               \
     .max = UINT16_MAX},                                                                           \
    {"epoch", "N",                                                                                 \
     "with --box: epoch of the packets, later than that of the run before;\n"                      \
     "0 = the time in seconds",                                                                    \
     WEFT_OPTION_U32, .value = &(box)->epoch},                                                     \
    {"exponent", "E", "with --box: the box's exponent", WEFT_OPTION_CUSTOM,                        \
     .value = &(box)->exponent, .parse = weft_perf_box_parse_exponent, .fallback = "0"},           \
    {"float32", NULL, "with --box: send floats, to a box with --float32", WEFT_OPTION_FLAG,        \
     .value = &(box)->floats},                                                                     \
    {"block-float", NULL,                                                                          \
     "with --box: send floats as int32, with an exponent for each packet, to a box\n"              \
     "without --float32",                                                                          \
     WEFT_OPTION_FLAG, .value = &(box)->block_floats}

struct weft_perf_box;

/* Open a member for each rank. False: error has the reason; call weft_perf_box_close in any
 * case. */
bool weft_perf_box_open(const struct weft_perf_box_options *options,
                        const struct weft_perf_layout *layout, uint32_t ranks,
                        struct weft_perf_box **box_p, struct weft_error *error);
void weft_perf_box_close(struct weft_perf_box *box); /* NULL is allowed */

/* The vectors of a rank: set them before the first round. */
void weft_perf_box_vectors(struct weft_perf_box *box, uint32_t rank, const float *in, float *out);

/* Sum the first `count` elements of all ranks. *ns_p: until the last rank was done. *resent_p: the
 * packets that ranks sent again are added.
 * Errors:  WEFT_AGAIN  interrupted; WEFT_DATA  a sum is not valid; WEFT_TIMEOUT; all others as
 *          weft_dense_link_sum. */
weft_status weft_perf_box_sum(struct weft_perf_box *box, uint64_t count, uint64_t timeout_ns,
                              uint64_t *ns_p, uint64_t *resent_p, struct weft_error *error);

/* What one link carries in each direction, with headers. */
uint64_t weft_perf_box_wire_bytes(uint64_t bytes);

uint32_t weft_perf_box_epoch(const struct weft_perf_box *box);

#endif
