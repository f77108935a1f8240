/* The attacker at the switch, and the judge of what a datagram did to an endpoint.
 *
 * In mode none nothing is authenticated, so the attacker makes only what a correct endpoint can
 * refuse all the same: bytes that are no packet, and copies of real packets that are cut short or
 * have a wrong version, connection id or sender. Copies changed in other ways are not made: they
 * may be indistinguishable from honest packets.
 *
 * In modes auth and seal he flips any bits of anything, invents packets under real headers, sends
 * again what was accepted before, and floods hosts with real HELLOs from invented addresses. All of
 * it must be dropped and counted once, without any other effect; HELLOs may be answered.
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
    struct weft_net_packet *pending; /* a copy of what is being received; NULL */
    struct weft_net_packet *records[WEFT_ATTACK_RECORDS]; /* packets that were accepted */
    struct weft_net_packet *hello;   /* the last one seen */
};

void weft_attacker_init(struct weft_attacker *attacker, const struct weft_world_hostile *hostile,
                        uint32_t hosts, uint64_t seed);
void weft_attacker_fini(struct weft_attacker *attacker);

/* Perhaps inject hostile datagrams beside an honest one that is about to be sent. */
void weft_attack(struct weft_attacker *attacker, struct weft_net *net,
                 const struct weft_net_packet *honest);

/* A host is about to take a packet; then, if it was not dropped: it was accepted. */
void weft_attacker_look(struct weft_attacker *attacker, const struct weft_net_packet *packet);
void weft_attacker_record(struct weft_attacker *attacker);

/* Datagrams that were dropped, by all counters that say so. */
uint64_t weft_attack_drops(const struct weft_ep_counters *c);

/* NULL, or what the endpoint did wrong with a datagram, by its counters before and after. */
const char *weft_attack_judge(const struct weft_net_packet *packet,
                              const struct weft_ep_counters *before,
                              const struct weft_ep_counters *after);

#endif
