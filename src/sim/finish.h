/* The time by which a plan must be finished: the swarm's bound on slowness.
 *
 * A seed may pass all other checks and still be too slow. This is the time by which a correct
 * transport has closed every message, computed from the plan alone. The bound is not tight;
 * docs/SIMULATOR.md describes its calibration.
 *
 *     finish = start + backoff + later + path + fragments
 *              + FACTOR x (transfer + windows + smalls + 10 x rtt + 3 ms)
 *
 * start     the latest of: the network healed, a message queued, memory posted
 * backoff   maximum pause of a probe at that time: pauses double, so a pause is at most as long as
 *           its cause lasted (faults, or memory not posted), and at most one second
 * later     maximum delay of the acknowledgement of a reply at an end that acknowledges late
 * path      two seconds if the packet size must be discovered, the path's size shrinks, or the
 *           address changes: the time for probes
 * fragments if a path has shrunk, earlier chunks may each exceed the window, which is counted in
 *           packets of the new size: they are sent one at a time, one per round trip
 * transfer  the busiest link sends all data that crosses it, once
 * windows   the busiest receiver receives all packets in windows of its receive buffer, one per
 *           round trip
 * smalls    the longest series of messages from one sender to one receiver is sent in batches that
 *           may begin without credit, one per round trip. A batch is the allowance of PROTOCOL.md
 *           section 5: 36,000 bytes in the receiver's longest packets, at least four, shared by all
 *           connected hosts, and at most `unscheduled`. A receiver does not know of messages that
 *           have not begun, so a series of short ones never gets more
 * rtt       maximum over the plan's pairs, with a full buffer on the path
 */
#ifndef WEFT_SIM_FINISH_H
#define WEFT_SIM_FINISH_H

#include "sim/plan.h"

/* WEFT_NEVER if a host dies: then the peers' timeouts decide. */
uint64_t weft_finish_ns(const struct weft_plan *plan);

/* The formula without deaths and closed connections. The plan's limit is later: a message open at
 * the limit is stuck, not only waiting for its turn. */
uint64_t weft_finish_alive_ns(const struct weft_plan *plan);

#endif
