/* The aggregation box in the kernel: loads bpf/aggregate.bpf.c, configures it, sends commands to
 * its banks and reads its state. docs/AGGREGATION.md explains the box. No packets are sent or
 * received here.
 *
 * Thread:  one thread at a time uses a box; the BPF program runs on every processor meanwhile.
 */
#ifndef WEFT_LAB_AGGREGATE_H
#define WEFT_LAB_AGGREGATE_H

#include "base/error.h"
#include "lab/aggregate_bpf.h"

struct weft_aggregate;

/* Load the program; it is not attached yet.
 *
 * Owns:    allocates: slots x 2.9 KB and banks x 28 KB of kernel memory, from config->slots and
 *          ->banks.
 * Errors:  WEFT_UNSUPPORTED  no BPF in this build or kernel; WEFT_IO  the kernel rejected the
 *          program; the text has its message. */
[[nodiscard]] weft_status weft_aggregate_open(const struct weft_agg_config *config, uint16_t port,
                                              struct weft_aggregate **box_p,
                                              struct weft_error *error);
void weft_aggregate_close(struct weft_aggregate *box);

/* Set a new configuration with at most as many slots and banks. Only without traffic: a packet that
 * arrives meanwhile may see parts of both configurations. Other members require another
 * dense_epoch.
 * Errors:  WEFT_INVALID  too many slots or banks, or form is not 0: the kernel has no floats;
 *          WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_configure(struct weft_aggregate *box,
                                                   const struct weft_agg_config *config,
                                                   struct weft_error *error);

/* Reset all slots, banks and counters to their initial state; the configuration stays. Under
 * traffic each slot and each bank is reset atomically, one after the other; counters may include
 * packets counted meanwhile.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reset(struct weft_aggregate *box,
                                               struct weft_error *error);

/* Attach to one more interface, in native mode unless `generic`; detached by close. Replies are
 * sent on the interface on which the request arrived. On a veth the other end needs an XDP program
 * as well, or the kernel does not wake it.
 * Errors:  WEFT_IO  the driver has no native mode, or another program is attached. */
[[nodiscard]] weft_status weft_aggregate_attach(struct weft_aggregate *box, const char *interface,
                                                bool generic, struct weft_error *error);

/* Send complete sums for this member to that interface, with these addresses. One member per
 * interface. The source MAC and address of a sum are the destination of the last packet of its
 * round.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reach(struct weft_aggregate *box, const char *interface,
                                               const struct weft_aggregate_member *member,
                                               struct weft_error *error);

/* *done_p: the result of the function in src/agg/rows.h; false for an epoch of floats.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_command(struct weft_aggregate *box,
                                                 const struct weft_aggregate_command *command,
                                                 bool *done_p, struct weft_error *error);

/* Read copies, each consistent in itself. WEFT_INVALID: index out of range; WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_read_bank(const struct weft_aggregate *box, uint32_t bank,
                                                   struct weft_agg_bank *bank_p,
                                                   struct weft_error *error);
[[nodiscard]] weft_status weft_aggregate_read_slot(const struct weft_aggregate *box, uint32_t slot,
                                                   struct weft_agg_dense *slot_p,
                                                   struct weft_error *error);

/* Totals over all processors. */
[[nodiscard]] weft_status weft_aggregate_read_counts(const struct weft_aggregate *box,
                                                     struct weft_agg_counts *counts_p,
                                                     struct weft_error *error);

/* Run one frame through the program without an interface (BPF_PROG_TEST_RUN), `repeat` times.
 *
 * Shape:   frame (count,), from the Ethernet header on; answer (*answer_count,), set to the number
 *          of bytes of the resulting frame.
 * Gives:   *action_p  the program's return code: XDP_PASS, XDP_TX, ...; *ns_p  mean of a run. */
struct weft_aggregate_run {
    uint32_t action;
    uint32_t ns;
};
[[nodiscard]] weft_status weft_aggregate_run(struct weft_aggregate *box, const void *frame,
                                             uint32_t count, uint32_t repeat, void *answer,
                                             uint32_t *answer_count,
                                             struct weft_aggregate_run *run_p,
                                             struct weft_error *error);

/* Test whether the box works on this host: load it, have it sum one packet and check that the sum
 * is sent to all members; changes nothing. Tested only on Linux 6.18.
 * Errors:  as weft_aggregate_open; WEFT_IO also if the reply is wrong. */
[[nodiscard]] weft_status weft_aggregate_probe(struct weft_error *error);

#endif
