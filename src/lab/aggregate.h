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
 * Errors:  WEFT_UNSUPPORTED  no BPF in this build or kernel, or no permission to use it; WEFT_IO
 *          the kernel rejected the program; the text has its message; WEFT_NOMEM. */
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

/* Reset all slots, banks and counters to their initial state, and forget learnt members; the
 * configuration stays. Under traffic each slot and each bank is reset atomically, one after the
 * other; counters may include packets counted meanwhile.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reset(struct weft_aggregate *box,
                                               struct weft_error *error);

/* Which frames are for the box: those to its port that arrive at one of its interfaces, with that
 * interface's MAC address and one of these IPv4 addresses as destination. All others pass.
 *
 * Shape:   addresses (count,), big-endian; they replace those of the call before. At first there is
 *          none.
 * Errors:  WEFT_INVALID  more than WEFT_AGGREGATE_ADDRESSES_MAX; WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_set_addresses(struct weft_aggregate *box,
                                                       const uint32_t *addresses, uint32_t count,
                                                       struct weft_error *error);

/* Set the IPv4 addresses that this network namespace has now, and the MAC addresses that the
 * attached interfaces have now; an interface that is gone is passed over. Of more than
 * WEFT_AGGREGATE_ADDRESSES_MAX addresses, the others are not the box's.
 * Errors:  WEFT_IO  what was not read or set is as before; the call can be repeated. */
[[nodiscard]] weft_status weft_aggregate_follow_host(struct weft_aggregate *box,
                                                     struct weft_error *error);

/* Store the MAC address of an interface at which frames for the box arrive. attach, install and
 * reach do so; frames of weft_aggregate_run arrive at "lo".
 * Errors:  WEFT_NOTFOUND  no such interface; WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_accept(struct weft_aggregate *box, const char *interface,
                                                struct weft_error *error);

/* How a box is attached, to all of its interfaces alike.
 *
 * QUEUE: replies are sent through the queues of their interfaces, to any number of members behind
 * each. The drivers have to compute checksums, as a veth does. Without it they are sent by XDP past
 * the queues, to one member behind each interface; on a veth the other end then needs an XDP
 * program as well, or the kernel does not wake it.
 * GENERIC: the mode that needs nothing of the driver, and takes longer for each packet; else native
 * mode. It includes QUEUE: in generic mode copies of a packet that XDP sends share their bytes. */
enum weft_aggregate_how { WEFT_AGGREGATE_QUEUE = 1, WEFT_AGGREGATE_GENERIC = 2 };

/* Attach to one more interface. Detached by close, and by the kernel when the process ends in any
 * way. QUEUE and GENERIC need Linux 6.6.
 * Errors:  WEFT_NOTFOUND  no such interface; WEFT_UNSUPPORTED  the driver has no native mode, or
 *          too few queues or memory for it; WEFT_EXISTS  another program is attached; WEFT_IO
 *          also: the kernel is too old. */
[[nodiscard]] weft_status weft_aggregate_attach(struct weft_aggregate *box, const char *interface,
                                                unsigned how, struct weft_error *error);

/* Detach from all interfaces. */
void weft_aggregate_detach(struct weft_aggregate *box);

/* The same with QUEUE, for as long as the interface exists, also after close and after the end of
 * the process: for the ports of a lab, which end with it. No version of Linux above those of the
 * lab is needed.
 * Errors:  as weft_aggregate_attach. */
[[nodiscard]] weft_status weft_aggregate_install(struct weft_aggregate *box, const char *interface,
                                                 struct weft_error *error);

/* Send complete sums for this member to that interface, with these addresses. One member per
 * interface. The source MAC and address of a sum are the destination of the last packet of its
 * round.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_reach(struct weft_aggregate *box, const char *interface,
                                               const struct weft_aggregate_member *member,
                                               struct weft_error *error);

/* Instead of weft_aggregate_reach: a member is where its last accepted DENSE packet came from. The
 * first packet of a later epoch then begins that epoch, as in the box of a process. Sums are sent
 * to the attached interfaces, so call it after weft_aggregate_attach.
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_aggregate_learn(struct weft_aggregate *box,
                                               struct weft_error *error);

/* The box on an interface of the current network namespace, of this or another process: to
 * configure, reset and read it. Its commands, runs and interfaces are not available. `close`
 * changes nothing of the box.
 *
 * Owns:    allocates.
 * Errors:  WEFT_NOTFOUND  no box is on that interface; WEFT_IO  also: not root. */
[[nodiscard]] weft_status weft_aggregate_find(const char *interface, struct weft_aggregate **box_p,
                                              struct weft_error *error);

/* Read the configuration in use.
 * Errors:  WEFT_IO. */
struct weft_aggregate_facts {
    struct weft_agg_config config;
    uint16_t port;
    uint32_t slots_max; /* weft_aggregate_configure accepts at most so many */
    uint32_t program;   /* its number in the kernel */
    uint32_t known;     /* members whose place is known */
};
[[nodiscard]] weft_status weft_aggregate_read_facts(const struct weft_aggregate *box,
                                                    struct weft_aggregate_facts *facts_p,
                                                    struct weft_error *error);

/* The names of the counters by verdict, as in --json: "malformed", "summed", ... */
extern const char *const weft_aggregate_verdict_names[WEFT_AGG_VERDICTS];

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
                                                     struct weft_aggregate_counts *counts_p,
                                                     struct weft_error *error);

/* Run one frame through a program without an interface (BPF_PROG_TEST_RUN), `repeat` times.
 *
 * Shape:   frame (count,), from the Ethernet header on; answer (*answer_count,), set to the number
 *          of bytes of the resulting frame, and of a note in front of it. */
struct weft_aggregate_run {
    bool is_tc; /* in: run the tc program of QUEUE, not the XDP program */
    uint16_t
        meta_bytes;  /* in: the metadata that the frame has already, a multiple of 4; with as much
                          * as the kernel takes there is no room for a note. XDP alone */
    uint32_t action; /* out: the program's return code: XDP_PASS, XDP_TX, ... */
    uint32_t ns;     /* out: mean of a run */
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
