/* The time by which a plan must be finished: the swarm's bound on slowness.
 *
 * A seed may pass all other checks and still be too slow. This is the time by which a correct
 * transport has closed every message, computed from the plan alone. The bound is not tight;
 * docs/SIMULATOR.md describes its calibration.
 *
 *     finish = start + backoff + later + path + fragments
 *              + FACTOR x (transfer + windows + smalls + 10 x rtt + 3 ms)
 *
 * start     the last of: the network healed, a message queued, memory posted
 * backoff   what a probe may sleep then: its pauses double, so no longer than the trouble lasted
 *           (faults, or memory not posted), and at most a second
 * later     what the confirmation of an answer may wait at an end that confirms late
 * path      two seconds, where the longest packets have to be found, do not pass any more, or the
 *           address changes: what that costs is probes
 * fragments where a path has shrunk, chunks that were laid out before may each be longer than the
 *           window, which counts in packets that pass: they go out one by one, one a round trip
 * transfer  the busiest link sends all that crosses it, once
 * windows   the busiest receiver takes all packets in windows of its receive buffer, one a round trip
 * smalls    the longest series of messages of one sender for one receiver goes out in batches that
 *           may begin without credit, one a round trip. A batch is the allowance of PROTOCOL.md
 *           section 5: 36,000 bytes in the receiver's longest packets, four at least, shared by all
 *           that are connected with it, and not more than `unscheduled`. A receiver cannot know of
 *           messages that have not begun, so a series of short ones never gets more
 * rtt       the longest of the plan's pairs, with a full buffer on the way
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
