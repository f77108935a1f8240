#include "sim/attack.h"

#include <string.h>

/* Byte 0 of packets (docs/PROTOCOL.md section 2); bytes 4..7 hold the connection id in all. */
enum { BYTE_PLAIN = 0x10, BYTE_HELLO = 0x18, BYTE_ACCEPT = 0x19 };

enum { GARBAGE_BYTES_MAX = 200 };

static void attack_garbage(struct weft_prng *prng, struct weft_net *net, uint32_t hosts)
{
    uint32_t from = (uint32_t)weft_prng_below(prng, hosts + 1);
    uint32_t to = (uint32_t)weft_prng_below(prng, hosts);
    uint32_t count = (uint32_t)weft_prng_below(prng, GARBAGE_BYTES_MAX);
    struct weft_net_packet *packet = weft_net_packet_new(from, to, WEFT_ECN_NOT, count);
    for (uint32_t i = 0; i < count; i++) {
        packet->bytes[i] = (uint8_t)weft_prng_u64(prng);
    }
    /* Random bytes behind this byte would be a correct HELLO: anybody may say hello. */
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

static void attack_cut(struct weft_prng *prng, struct weft_net *net,
                       const struct weft_net_packet *honest)
{
    weft_net_inject(net, copy_of(honest, (uint32_t)weft_prng_below(prng, honest->count)));
}

static void attack_version(struct weft_prng *prng, struct weft_net *net,
                           const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->bytes[0] ^= (uint8_t)(weft_prng_range(prng, 1, 15) << 4);
    weft_net_inject(net, copy);
}

static void attack_id(struct weft_prng *prng, struct weft_net *net,
                      const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->bytes[weft_prng_range(prng, 4, 7)] ^= (uint8_t)weft_prng_range(prng, 1, 255);
    weft_net_inject(net, copy);
}

static void attack_address(struct weft_prng *prng, struct weft_net *net, uint32_t hosts,
                           const struct weft_net_packet *honest)
{
    struct weft_net_packet *copy = copy_of(honest, honest->count);
    copy->from = (uint32_t)weft_prng_below(prng, hosts + 1); /* hosts: an address without a host */
    if (copy->from == honest->from) {
        copy->from = hosts;
    }
    weft_net_inject(net, copy);
}

void weft_attack(const struct weft_world_hostile *hostile, struct weft_prng *prng,
                 struct weft_net *net, uint32_t hosts, const struct weft_net_packet *honest)
{
    if (weft_prng_chance(prng, hostile->garbage_ppm)) {
        attack_garbage(prng, net, hosts);
    }
    if (weft_prng_chance(prng, hostile->cut_ppm)) {
        attack_cut(prng, net, honest);
    }
    if (weft_prng_chance(prng, hostile->version_ppm)) {
        attack_version(prng, net, honest);
    }
    /* A HELLO from elsewhere, or with another id, is a stranger's honest HELLO. */
    if (honest->bytes[0] != BYTE_PLAIN && honest->bytes[0] != BYTE_ACCEPT) {
        return;
    }
    if (weft_prng_chance(prng, hostile->id_ppm)) {
        attack_id(prng, net, honest);
    }
    if (weft_prng_chance(prng, hostile->address_ppm)) {
        attack_address(prng, net, hosts, honest);
    }
}

/* Drops of what cannot have come from a correct sender, whatever the network did to it. */
static uint64_t malformed(const struct weft_ep_counters *c)
{
    return c->bad_short + c->bad_version + c->bad_class + c->bad_packet + c->bad_range + c->bad_ack;
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
                                                       : NULL;
}

/* The counters that tell that a datagram had an effect. */
static uint64_t effects(const struct weft_ep_counters *c)
{
    return c->data_received + c->messages_sent + c->messages_received + c->messages_unknown +
           c->lost_packets + c->spurious_losses + c->ce_received + c->duplicate_chunks +
           c->late_chunks + c->no_memory + c->retransmitted_packets;
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
        return honest_judge(before, after);
    }
    uint64_t drops = malformed(after) + after->bad_peer + after->old_packets +
                     after->duplicate_packets - malformed(before) - before->bad_peer -
                     before->old_packets - before->duplicate_packets;
    if (drops != 1) {
        return drops == 0 ? "an attacker's, but no drop is counted"
                          : "an attacker's, counted as several drops";
    }
    return effects(after) == effects(before) ? NULL : "an attacker's, but it had an effect";
}
