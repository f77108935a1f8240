// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The aggregation box as an XDP program: adds what workers send to this interface, and replies.
 *
 * The arithmetic and the rules are src/agg's, the same headers as in a host process. This file has
 * only the rest: it finds the packet in the frame, locks a slot or a bank, and swaps the addresses for
 * the reply.
 *
 *   aggregate   on the interface. Packets to a UDP port other than that of the settings, IPv6, packets
 *               with IP options, fragments, and weft packets of another class go to the kernel's
 *               network stack unchanged.
 *   control     run by the loader alone (BPF_PROG_TEST_RUN): its packet is a command for one bank;
 *               executing it needs the bank's lock. Never attached.
 *
 * It cannot verify who sent a packet: there is no AES-GCM here. docs/AGGREGATION.md says where it may
 * be used.
 *
 * A complete sum is sent to all members by a redirect to the map `ports`; for each copy the program
 * `toward` writes the member's addresses. Every other reply leaves by the interface on which its
 * request arrived.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "agg/receive.h"
#include "lab/aggregate_bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

enum { HEADS_BYTES = sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr) };

struct slot {
    struct bpf_spin_lock lock;
    __u32 reserved;
    struct weft_agg_dense dense;
};

struct bank {
    struct bpf_spin_lock lock;
    __u32 reserved;
    struct weft_agg_bank rows;
};

/* The loader sets max_entries of slots and banks before it loads the program. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct bank);
} banks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct weft_aggregate_settings);
} settings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct weft_agg_counts);
} counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, WEFT_AGG_MEMBERS_MAX);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct bpf_devmap_val));
} ports SEC(".maps");

/* Key: the index of the interface that leads to the member. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WEFT_AGG_MEMBERS_MAX);
    __type(key, __u32);
    __type(value, struct weft_aggregate_member);
} members SEC(".maps");

struct frame {
    struct ethhdr eth;
    struct iphdr ip;
    struct udphdr udp;
} __attribute__((packed));

_Static_assert(sizeof(struct frame) == HEADS_BYTES, "one layout");

static __always_inline void *lookup(void *map, __u32 key)
{
    return bpf_map_lookup_elem(map, &key);
}

/* Whether this frame is one for the box. */
static __always_inline bool ours(const struct frame *frame, const void *end,
                                 const struct weft_aggregate_settings *s)
{
    return (const void *)(frame + 1) + 1 <= end && frame->eth.h_proto == bpf_htons(ETH_P_IP) &&
           frame->ip.version == 4 && frame->ip.ihl == 5 && frame->ip.protocol == IPPROTO_UDP &&
           (frame->ip.frag_off & bpf_htons(0x3fff)) == 0 && frame->udp.dest == s->port &&
           weft_wire_is_agg(*(const __u8 *)(frame + 1));
}

/* Swap sender and receiver. This does not change the IP checksum; the UDP checksum is optional over
 * IPv4, and set to 0. */
static __always_inline void turn(struct frame *frame)
{
    __u8 mac[ETH_ALEN];
    __builtin_memcpy(mac, frame->eth.h_dest, ETH_ALEN);
    __builtin_memcpy(frame->eth.h_dest, frame->eth.h_source, ETH_ALEN);
    __builtin_memcpy(frame->eth.h_source, mac, ETH_ALEN);
    __be32 address = frame->ip.daddr;
    frame->ip.daddr = frame->ip.saddr;
    frame->ip.saddr = address;
    __be16 port = frame->udp.dest;
    frame->udp.dest = frame->udp.source;
    frame->udp.source = port;
    frame->udp.check = 0;
}

static __always_inline void ip_sum(struct frame *frame)
{
    const __u16 *words = (const void *)((const __u8 *)frame + sizeof(frame->eth));
    __u32 sum = 0;
    frame->ip.check = 0;
    for (__u32 i = 0; i < sizeof(frame->ip) / 2; i++) {
        sum += words[i];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    frame->ip.check = (__u16) ~(sum + (sum >> 16));
}

static __always_inline int dense(struct frame *frame, __u8 *bytes, __u8 *end,
                                 const struct weft_agg_config *config, struct weft_wire_agg *packet,
                                 struct weft_agg_counts *tally)
{
    struct slot *slot = lookup(&slots, packet->place);
    if (slot == NULL) {
        weft_agg_count(tally, WEFT_AGG_FOREIGN);
        return XDP_DROP;
    }
    __u8 *values = bytes + WEFT_AGG_HEADER_BYTES;
    bpf_spin_lock(&slot->lock);
    struct weft_agg_outcome out =
        weft_agg_dense_receive(&slot->dense, config, packet, values, end, tally);
    if (out.action != WEFT_AGG_DROP) {
        weft_agg_dense_answer(&slot->dense, config, packet, values, end);
    }
    bpf_spin_unlock(&slot->lock);
    weft_agg_count(tally, out.verdict);
    if (out.action == WEFT_AGG_DROP) {
        return XDP_DROP;
    }
    turn(frame);
    weft_wire_agg_encode(bytes, packet);
    return out.action == WEFT_AGG_ANSWER ? XDP_TX
                                         : (int)bpf_redirect_map(&ports, 0, BPF_F_BROADCAST);
}

/* The reply's length differs from the request's, so the frame is resized. */
static __always_inline int acknowledge(struct xdp_md *ctx, __u32 count,
                                       struct weft_wire_agg *packet, const struct weft_agg_ack *ack)
{
    enum { BYTES = WEFT_AGG_HEADER_BYTES + WEFT_AGG_ACK_BYTES };
    if (bpf_xdp_adjust_tail(ctx, (int)BYTES - (int)count) != 0) {
        return XDP_DROP;
    }
    struct frame *frame = (void *)(long)ctx->data;
    __u8 *bytes = (__u8 *)(frame + 1);
    if (bytes + BYTES > (__u8 *)(long)ctx->data_end) {
        return XDP_DROP;
    }
    turn(frame);
    frame->udp.len = bpf_htons(sizeof(frame->udp) + BYTES);
    frame->ip.tot_len = bpf_htons(sizeof(frame->ip) + sizeof(frame->udp) + BYTES);
    ip_sum(frame);
    weft_agg_ack_head(packet, ack);
    weft_wire_agg_encode(bytes, packet);
    weft_agg_ack_encode(bytes + WEFT_AGG_HEADER_BYTES, ack);
    return XDP_TX;
}

static __always_inline int rows(struct xdp_md *ctx, const __u8 *bytes, const __u8 *end, __u32 count,
                                struct weft_wire_agg *packet, struct weft_agg_counts *tally)
{
    struct bank *bank = lookup(&banks, packet->place);
    if (bank == NULL) {
        weft_agg_count(tally, WEFT_AGG_FOREIGN);
        return XDP_DROP;
    }
    struct weft_agg_ack ack;
    bpf_spin_lock(&bank->lock);
    struct weft_agg_outcome out =
        weft_agg_rows_receive(&bank->rows, packet, bytes + WEFT_AGG_HEADER_BYTES, end, tally);
    weft_agg_window_ack(&bank->rows.windows[weft_agg_within(packet->member, WEFT_AGG_MEMBERS_MAX)],
                        &ack);
    bpf_spin_unlock(&bank->lock);
    weft_agg_count(tally, out.verdict);
    return out.action == WEFT_AGG_DROP ? XDP_DROP : acknowledge(ctx, count, packet, &ack);
}

SEC("xdp")
int aggregate(struct xdp_md *ctx)
{
    struct frame *frame = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    struct weft_aggregate_settings *s = lookup(&settings, 0);
    struct weft_agg_counts *tally = lookup(&counts, 0);
    if (s == NULL || tally == NULL || !ours(frame, end, s)) {
        return XDP_PASS;
    }
    __u8 *bytes = (__u8 *)(frame + 1);
    __u32 count = (__u32)(ctx->data_end - ctx->data) - HEADS_BYTES;
    struct weft_wire_agg packet;
    __u8 verdict;
    /* Ethernet pads only short frames, and aggregation packets are longer: the UDP length must match
     * the frame. */
    if (frame->udp.len != bpf_htons(sizeof(frame->udp) + count)) {
        weft_agg_count(tally, WEFT_AGG_MALFORMED);
        return XDP_DROP;
    }
    if (!weft_agg_open(&s->config, bytes, end, count, &packet, &verdict)) {
        weft_agg_count(tally, verdict);
        return XDP_DROP;
    }
    return packet.kind == WEFT_AGG_DENSE ? dense(frame, bytes, end, &s->config, &packet, tally)
                                         : rows(ctx, bytes, end, count, &packet, tally);
}

/* A sum about to leave by the interface to a member. */
SEC("xdp/devmap")
int toward(struct xdp_md *ctx)
{
    struct frame *frame = (void *)(long)ctx->data;
    struct weft_aggregate_member *member = lookup(&members, ctx->egress_ifindex);
    if (member == NULL || (void *)(frame + 1) + 8 > (void *)(long)ctx->data_end) {
        return XDP_DROP;
    }
    __builtin_memcpy(frame->eth.h_dest, member->mac, ETH_ALEN);
    frame->ip.daddr = member->address;
    frame->udp.dest = member->port;
    weft_wire_put_u16((__u8 *)(frame + 1) + 6, member->member);
    ip_sum(frame);
    return XDP_PASS;
}

SEC("xdp")
int control(struct xdp_md *ctx)
{
    struct weft_aggregate_command *command = (void *)(long)ctx->data;
    if ((void *)(command + 1) > (void *)(long)ctx->data_end) {
        return WEFT_AGGREGATE_REFUSED;
    }
    struct bank *bank = lookup(&banks, command->bank);
    if (bank == NULL) {
        return WEFT_AGGREGATE_REFUSED;
    }
    __u32 what = command->what;
    bool done = true;
    bpf_spin_lock(&bank->lock);
    switch (what) {
    case WEFT_AGGREGATE_FLUSH:
        done = weft_agg_bank_flush(&bank->rows);
        break;
    case WEFT_AGGREGATE_COMMITTED:
    case WEFT_AGGREGATE_GIVEN_UP:
        done = weft_agg_bank_settle(&bank->rows, what == WEFT_AGGREGATE_COMMITTED);
        break;
    case WEFT_AGGREGATE_CLOSE:
        weft_agg_bank_close(&bank->rows);
        break;
    case WEFT_AGGREGATE_BEGIN:
        done = command->epoch.form == 0 && weft_agg_bank_begin(&bank->rows, &command->epoch);
        break;
    default:
        done = false;
    }
    bpf_spin_unlock(&bank->lock);
    return done ? WEFT_AGGREGATE_DONE : WEFT_AGGREGATE_REFUSED;
}
