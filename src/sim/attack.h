/* The attacker at the switch, and the check of a datagram's effect on an endpoint.
 *
 * In mode none nothing is authenticated, so the attacker creates only datagrams that a correct
 * endpoint can reject without authentication: random bytes, and copies of real packets that are
 * truncated or have a wrong version, connection id or sender. Other modifications are not
 * generated, because they may be indistinguishable from honest packets.
 *
 * In modes auth and seal the attacker flips arbitrary bits, forges packets with real headers,
 * replays accepted packets, and floods hosts with real HELLOs from forged addresses. Each must be
 * dropped and counted once, without any other effect; a reply to a HELLO is allowed.
 */
#ifndef WEFT_SIM_ATTACK_H
#define WEFT_SIM_ATTACK_H

#include "base/prng.h"
#include "sim/world.h"

enum { WEFT_ATTACK_RECORDS = 24 };

struct weft_attacker {
    struct weft_world_hostile hostile;
    struct weft_prng prng;
    uint32_t hosts;
    struct weft_net_packet *pending; /* a copy of the packet being received; NULL */
    struct weft_net_packet *records[WEFT_ATTACK_RECORDS]; /* packets that were accepted, for
                                                           * replay */
    struct weft_net_packet *hello;                        /* the last one seen */
};

void weft_attacker_init(struct weft_attacker *attacker, const struct weft_world_hostile *hostile,
                        uint32_t hosts, uint64_t seed);
void weft_attacker_fini(struct weft_attacker *attacker);

/* With some probability, inject hostile datagrams next to an honest one that is about to be
 * sent. */
void weft_attack(struct weft_attacker *attacker, struct weft_net *net,
                 const struct weft_net_packet *honest);

/* Call before a host receives a packet, and afterwards if the packet was accepted. */
void weft_attacker_look(struct weft_attacker *attacker, const struct weft_net_packet *packet);
void weft_attacker_record(struct weft_attacker *attacker);

/* Number of dropped datagrams, summed over all drop counters. */
uint64_t weft_attack_drops(const struct weft_ep_counters *c);

/* Compare the counters before and after a datagram. Returns NULL, or a description of the
 * endpoint's error. */
const char *weft_attack_judge(const struct weft_net_packet *packet,
                              const struct weft_ep_counters *before,
                              const struct weft_ep_counters *after);

#endif
