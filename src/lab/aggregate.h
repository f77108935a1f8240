/* The aggregation box in the kernel: loads bpf/aggregate.bpf.c, configures it, gives its banks commands
 * and reads what it holds. docs/AGGREGATION.md explains the box; this sends and receives nothing.
 *
 * Thread:  one at a time has a box; the program itself runs on every processor meanwhile.
 */
#ifndef WEFT_LAB_AGGREGATE_H
#define WEFT_LAB_AGGREGATE_H

#include "base/error.h"
#include "lab/aggregate_bpf.h"

struct weft_aggregate;

/* Load the program; attached to nothing yet.
 *
 * Owns:    allocates: slots x 2.9 KB and banks x 28 KB of kernel memory. config->slots and ->banks size it.
 * Errors:  WEFT_UNSUPPORTED  no BPF in this build or kernel; WEFT_IO  the kernel refuses, with its words. */
[[nodiscard]] weft_status weft_aggregate_open(const struct weft_agg_config *config, uint16_t port,
                                              struct weft_aggregate **box_p,
                                              struct weft_error *error);
void weft_aggregate_close(struct weft_aggregate *box);

/* A new configuration of as many slots and banks, or fewer. With no traffic: a packet that comes meanwhile
 * may see a part of each. Other members need another dense_epoch.
 * Errors:  WEFT_INVALID  more than there are, or form is not 0: the kernel has no floats; WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_configure(struct weft_aggregate *box,
                                                   const struct weft_agg_config *config,
                                                   struct weft_error *error);

/* All slots, banks and counters as after opening; the configuration stays. Under traffic each slot and
 * each bank is emptied whole, one after the other; counters may keep what is counted meanwhile.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reset(struct weft_aggregate *box,
                                               struct weft_error *error);

/* Attach to one more interface, in native mode unless `generic`; detached by close. Answers leave by
 * the interface that their question came from; on a veth the other end needs an XDP
 * program as well, or the kernel does not wake it.
 * Errors:  WEFT_IO  the driver has no native mode, or another program is attached. */
[[nodiscard]] weft_status weft_aggregate_attach(struct weft_aggregate *box, const char *interface,
                                                bool generic, struct weft_error *error);

/* Complete sums go to this member by that interface, with these addresses. One member an interface.
 * The sum's own MAC and address are those that its last packet was sent to.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reach(struct weft_aggregate *box, const char *interface,
                                               const struct weft_aggregate_member *member,
                                               struct weft_error *error);

/* *done_p: what the function of src/agg/rows.h returned; false for an epoch of floats.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_command(struct weft_aggregate *box,
                                                 const struct weft_aggregate_command *command,
                                                 bool *done_p, struct weft_error *error);

/* Copies, each consistent in itself. WEFT_INVALID: no such place; WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_read_bank(const struct weft_aggregate *box, uint32_t bank,
                                                   struct weft_agg_bank *bank_p,
                                                   struct weft_error *error);
[[nodiscard]] weft_status weft_aggregate_read_slot(const struct weft_aggregate *box, uint32_t slot,
                                                   struct weft_agg_dense *slot_p,
                                                   struct weft_error *error);

/* Summed over processors. */
[[nodiscard]] weft_status weft_aggregate_read_counts(const struct weft_aggregate *box,
                                                     struct weft_agg_counts *counts_p,
                                                     struct weft_error *error);

/* One frame through the program without an interface (BPF_PROG_TEST_RUN), `repeat` times.
 *
 * Shape:   frame (count,), from the Ethernet header on; answer (*answer_count,), replaced by how many
 *          bytes the frame has then.
 * Gives:   *action_p  what the program returned: XDP_PASS, XDP_TX, ...; *ns_p  mean of one run. */
struct weft_aggregate_run {
    uint32_t action;
    uint32_t ns;
};
[[nodiscard]] weft_status weft_aggregate_run(struct weft_aggregate *box, const void *frame,
                                             uint32_t count, uint32_t repeat, void *answer,
                                             uint32_t *answer_count,
                                             struct weft_aggregate_run *run_p,
                                             struct weft_error *error);

/* Would it work on this host? Loads it, has one packet added and looks whether its sum goes
 * to all; changes nothing. It was tried on Linux 6.18 alone.
 * Errors:  as weft_aggregate_open; WEFT_IO also when the answer is not the right one. */
[[nodiscard]] weft_status weft_aggregate_probe(struct weft_error *error);

#endif
