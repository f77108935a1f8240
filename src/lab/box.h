/* The aggregation boxes of a lab: one on each leaf, on the ports to its hosts.
 *
 *     host h3                leaf                                             host h5
 *     eth0 ---- cable ----> h3 XDP: adds | tc: a sum for each member
 *                                           h5 htb(down, buffer) ---> eth0, loss on arrival
 *
 * A box is the program of lab/aggregate.h. Workers send to the leaf's own address and
 * WEFT_LAB_BOX_PORT; packets to that port at another address are forwarded. The packets that it
 * sends go through the queue of the port to their host, like all packets that leave the leaf. The
 * box is removed with the lab's interfaces, which hold the only references to its programs.
 */
#ifndef WEFT_LAB_BOX_H
#define WEFT_LAB_BOX_H

#include "lab/spec.h"

enum { WEFT_LAB_BOX_PORT = 7701, WEFT_LAB_BOX_SLOTS = 1024, WEFT_LAB_BOX_JOB = 1 };

/* Load and install the box of this leaf, whose ports exist; in the leaf's network namespace. Its
 * members are the leaf's hosts, from 0 on in their order; the job is 1, epoch and exponent are 0 at
 * first.
 *
 * Errors:  WEFT_UNSUPPORTED  no BPF in this build or kernel; WEFT_IO. */
[[nodiscard]] weft_status weft_lab_box_build(const struct weft_lab_spec *spec, uint32_t leaf,
                                             struct weft_error *error);

#endif
