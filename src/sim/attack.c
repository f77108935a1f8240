#include "sim/attack.h"

#include "wire/packet.h"

#include <string.h>

/* First byte of packets (docs/PROTOCOL.md section 2); bytes 4..7 are the connection id in all of
 * them. */
enum {
    BYTE_PLAIN = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_PLAIN,
    BYTE_AUTH = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_AUTH,
    BYTE_SEAL = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_SEAL,
    BYTE_HELLO = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_HELLO,
    BYTE_ACCEPT = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_ACCEPT,
    BYTE_REFUSED = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_REFUSED,
};

enum { GARBAGE_BYTES_MAX = 200, HEADER_BYTES = 16, FLOOD_MAX = 40 };

void weft_attacker_init(struct weft_attacker *attacker, const struct weft_world_hostile *hostile,
                        uint32_t hosts, uint64_t seed)
{
    *attacker = (struct weft_attacker){.hostile = *hostile, .hosts = hosts};
    weft_prng_split(&attacker->prng, seed, UINT64_C(0x41747461636b));
}

void weft_attacker_fini(struct weft_attacker *attacker)
{
    for (uint32_t i = 0; i < WEFT_ATTACK_RECORDS; i++) {
        weft_net_packet_free(attacker->records[i]);
    }
    weft_net_packet_free(attacker->pending);
    weft_net_packet_free(attacker->hello);
}

static void attack_garbage(struct weft_attacker *a, struct weft_net *net)
{
    uint32_t from = (uint32_t)weft_prng_below(&a->prng, a->hosts + 1);
    uint32_t to = (uint32_t)weft_prng_below(&a->prng, a->hosts);
    uint32_t count = (uint32_t)weft_prng_below(&a->prng, GARBAGE_BYTES_MAX);
    struct weft_net_packet *packet = weft_net_packet_new(from, to, WEFT_ECN_NOT, count);
    for (uint32_t i = 0; i < count; i++) {
        packet->bytes[i] = (uint8_t)weft_prng_u64(&a->prng);
    }
    /* Random bytes after this first byte may be a correct HELLO, which any host may send. */
    if (count > 0 && packet->bytes[0] == BYTE_HELLO) {
        packet->bytes[0] = BYTE_PLAIN;
    }
    packet->hostile = true;
    weft_net_inject(net, packet);
}

static struct weft_net_packet *copy_of(const struct weft_net_packet *honest, uint32_t count)
{
    struct weft_net_packet *copy =
        weft_net_packet_new(honest->from, honest->to, honest->ecn, count);
    memcpy(copy->bytes, honest->bytes, count);
    copy->hostile = true;
    return copy;
}

static void attack_cut(struct weft_attacker *a, struct weft_net *net,
                       const struct weft_net_packet *honest)
{
    weft_net_inject(net, copy_of(honest, (uint32_t)weft_prng_below(&a->prng, honest->count)));
}

static void attack_version(struct weft_attacker *a, struct weft_net *net,
                           const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->bytes[0] ^= (uint8_t)(weft_prng_range(&a->prng, 1, 15) << 4);
    weft_net_inject(net, copy);
}

static void attack_id(struct weft_attacker *a, struct weft_net *net,
                      const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->bytes[weft_prng_range(&a->prng, 4, 7)] ^= (uint8_t)weft_prng_range(&a->prng, 1, 255);
    weft_net_inject(net, copy);
}

static void attack_address(struct weft_attacker *a, struct weft_net *net,
                           const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->from = (uint32_t)weft_prng_below(&a->prng, a->hosts + 1); /* hosts: an address without a
                                                                     * host */
    if (copy->from == honest->from) {
        copy->from = a->hosts;
    }
    copy->from_addr = copy->from;
    weft_net_inject(net, copy);
}

/* ---- modes auth and seal --------------------------------------------------------------------- */

static void attack_flip(struct weft_attacker *a, struct weft_net *net,
                        const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    uint64_t flips = weft_prng_below(&a->prng, 4) == 0 ? 3 : 1;
    uint64_t bit = weft_prng_below(&a->prng, honest->count * UINT64_C(8));
    for (uint64_t i = 0; i < flips; i++) { /* adjacent bits: never the same bit twice */
        uint64_t at = (bit + i) % (honest->count * UINT64_C(8));
        copy->bytes[at / 8] ^= (uint8_t)(1 << at % 8);
    }
    weft_net_inject(net, copy);
}

/* The header of the honest packet, with 1 to 100 added to the last byte of its packet number, and
 * random bytes after it. The header may be valid. */
static void attack_forge(struct weft_attacker *a, struct weft_net *net,
                         const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->bytes[15] = (uint8_t)(copy->bytes[15] + weft_prng_range(&a->prng, 1, 100));
    for (uint32_t i = HEADER_BYTES; i < copy->count; i++) {
        copy->bytes[i] = (uint8_t)weft_prng_u64(&a->prng);
    }
    weft_net_inject(net, copy);
}

static void attack_replay(struct weft_attacker *a, struct weft_net *net)
{
    const struct weft_net_packet *record =
        a->records[weft_prng_below(&a->prng, WEFT_ATTACK_RECORDS)];
    if (record != NULL) {
        weft_net_inject(net, copy_of(record, record->count));
    }
}

static void attack_flood(struct weft_attacker *a, struct weft_net *net)
{
    uint64_t copies = weft_prng_range(&a->prng, 1, FLOOD_MAX);
    for (uint64_t i = 0; a->hello != NULL && i < copies; i++) {
        struct weft_net_packet *copy = copy_of(a->hello, a->hello->count);
        if (weft_prng_below(&a->prng, 8) != 0) {
            copy->from = a->hosts + (uint32_t)weft_prng_below(&a->prng, 1000000);
            copy->from_addr = copy->from;
        }
        copy->hostile = false;
        copy->flood = true;
        weft_net_inject(net, copy);
    }
}

static void attack_secured(struct weft_attacker *a, struct weft_net *net,
                           const struct weft_net_packet *honest)
{
    /* A REFUSED is never trusted, so it has no tag. */
    if (honest->bytes[0] != BYTE_REFUSED && weft_prng_chance(&a->prng, a->hostile.flip_ppm)) {
        attack_flip(a, net, honest);
    }
    bool connection = honest->bytes[0] == BYTE_AUTH || honest->bytes[0] == BYTE_SEAL;
    if (connection && weft_prng_chance(&a->prng, a->hostile.forge_ppm)) {
        attack_forge(a, net, honest);
    }
    if (weft_prng_chance(&a->prng, a->hostile.replay_ppm)) {
        attack_replay(a, net);
    }
    if (weft_prng_chance(&a->prng, a->hostile.flood_ppm)) {
        attack_flood(a, net);
    }
}

void weft_attack(struct weft_attacker *attacker, struct weft_net *net,
                 const struct weft_net_packet *honest)
{
    struct weft_attacker *a = attacker;
    const struct weft_world_hostile *hostile = &a->hostile;
    if (weft_prng_chance(&a->prng, hostile->garbage_ppm)) {
        attack_garbage(a, net);
    }
    if (weft_prng_chance(&a->prng, hostile->cut_ppm)) {
        attack_cut(a, net, honest);
    }
    if (weft_prng_chance(&a->prng, hostile->version_ppm)) {
        attack_version(a, net, honest);
    }
    if (hostile->flip_ppm > 0) { /* in modes auth and seal only (sim/plan.c) */
        attack_secured(a, net, honest);
    }
    /* A HELLO from a different address, or without a tag and with a different id, is an honest
     * HELLO of an unknown host. */
    if (honest->bytes[0] == BYTE_HELLO) {
        return;
    }
    if (weft_prng_chance(&a->prng, hostile->id_ppm)) {
        attack_id(a, net, honest);
    }
    if (weft_prng_chance(&a->prng, hostile->address_ppm)) {
        attack_address(a, net, honest);
    }
}

void weft_attacker_look(struct weft_attacker *attacker, const struct weft_net_packet *packet)
{
    struct weft_attacker *a = attacker;
    weft_net_packet_free(a->pending);
    a->pending = NULL;
    if (a->hostile.flip_ppm == 0 || packet->hostile || packet->flood || packet->count == 0) {
        return;
    }
    bool connection = packet->bytes[0] == BYTE_AUTH || packet->bytes[0] == BYTE_SEAL;
    if (packet->bytes[0] == BYTE_HELLO) {
        weft_net_packet_free(a->hello);
        a->hello = copy_of(packet, packet->count);
    } else if (connection && weft_prng_chance(&a->prng, a->hostile.replay_ppm)) {
        a->pending = copy_of(packet, packet->count);
    }
}

void weft_attacker_record(struct weft_attacker *attacker)
{
    if (attacker->pending != NULL) {
        uint64_t slot = weft_prng_below(&attacker->prng, WEFT_ATTACK_RECORDS);
        weft_net_packet_free(attacker->records[slot]);
        attacker->records[slot] = attacker->pending;
        attacker->pending = NULL;
    }
}

/* ---- the check ------------------------------------------------------------------------------- */

/* Drop counters for datagrams that no correct sender can have sent, whatever the network's
 * faults. */
static uint64_t malformed(const struct weft_ep_counters *c)
{
    return c->bad_short + c->bad_version + c->bad_class + c->bad_packet + c->bad_range +
           c->bad_ack + c->bad_tag + c->bad_mode + c->bad_key;
}

uint64_t weft_attack_drops(const struct weft_ep_counters *c)
{
    return malformed(c) + c->bad_peer + c->old_packets + c->duplicate_packets + c->hello_refused +
           c->refused + c->closed_packets; /* for example a copy of a CLOSE */
}

static const char *honest_judge(const struct weft_ep_counters *before,
                                const struct weft_ep_counters *after)
{
    return after->bad_short != before->bad_short       ? "honest, but counted in bad_short"
           : after->bad_version != before->bad_version ? "honest, but counted in bad_version"
           : after->bad_class != before->bad_class     ? "honest, but counted in bad_class"
           : after->bad_packet != before->bad_packet   ? "honest, but counted in bad_packet"
           : after->bad_range != before->bad_range     ? "honest, but counted in bad_range"
           : after->bad_ack != before->bad_ack         ? "honest, but counted in bad_ack"
           : after->bad_tag != before->bad_tag         ? "honest, but counted in bad_tag"
           : after->bad_mode != before->bad_mode       ? "honest, but counted in bad_mode"
           : after->bad_key != before->bad_key         ? "honest, but counted in bad_key"
                                                       : NULL;
}

/* Sum of the counters that show an effect of a datagram. */
static uint64_t effects(const struct weft_ep_counters *c)
{
    return c->data_received + c->messages_sent + c->messages_received + c->messages_unknown +
           c->lost_packets + c->spurious_losses + c->ce_received + c->duplicate_chunks +
           c->late_chunks + c->no_memory + c->retransmitted_packets + c->path_changes +
           c->mtu_raised + c->rekeys + c->crypto_failures;
}

const char *weft_attack_judge(const struct weft_net_packet *packet,
                              const struct weft_ep_counters *before,
                              const struct weft_ep_counters *after)
{
    if (after->datagrams_received != before->datagrams_received + 1 ||
        after->bytes_received != before->bytes_received + packet->count) {
        return "not counted as received";
    }
    if (!packet->hostile) {
        if (packet->flood && effects(after) != effects(before)) {
            return "a HELLO of a flood had an effect";
        }
        return honest_judge(before, after);
    }
    uint64_t drops = weft_attack_drops(after) - weft_attack_drops(before);
    if (drops != 1) {
        return drops == 0 ? "an attacker's datagram was not counted as a drop"
                          : "an attacker's datagram was counted as several drops";
    }
    return effects(after) == effects(before) ? NULL : "an attacker's datagram had an effect";
}
