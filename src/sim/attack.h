/* The attacker at the switch, and the judge of what a datagram did to an endpoint.
 *
 * In mode none nothing is authenticated, so the attacker makes only what a correct endpoint can
 * refuse all the same: bytes that are no packet, and copies of real packets that are cut short or
 * have a wrong version, connection id or sender. Copies changed in other ways are not made: they
 * may be indistinguishable from honest packets.
 */
#ifndef WEFT_SIM_ATTACK_H
#define WEFT_SIM_ATTACK_H

#include "base/prng.h"
#include "sim/world.h"

/* Perhaps inject hostile datagrams beside an honest one that is about to be sent. */
void weft_attack(const struct weft_world_hostile *hostile, struct weft_prng *prng,
                 struct weft_net *net, uint32_t hosts, const struct weft_net_packet *honest);

/* NULL, or what the endpoint did wrong with a datagram, by its counters before and after. */
const char *weft_attack_judge(const struct weft_net_packet *packet,
                              const struct weft_ep_counters *before,
                              const struct weft_ep_counters *after);

#endif
