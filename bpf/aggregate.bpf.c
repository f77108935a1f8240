// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The aggregation box as an XDP program: adds what workers send to this interface, and replies.
 *
 * The arithmetic and the rules are src/agg's, the same headers as in a host process. This file has
 * only the rest: it finds the packet in the frame, locks a slot or a bank, and swaps the addresses
 * for the reply.
 *
 *   aggregate   on the interface. Packets to another MAC address than the interface's, to an IP
 *               address that is not the box's, or to another UDP port than that of the settings,
 *               IPv6, packets with IP options, fragments, and weft packets of another class go to
 *               the kernel's network stack unchanged.
 *   toward, spread   send replies, see below.
 *   control     run by the loader alone (BPF_PROG_TEST_RUN): its packet is a command for one bank,
 *               which it executes under the bank's lock. Never attached.
 *
 * It cannot verify who sent a packet: there is no AES-GCM here. docs/AGGREGATION.md says where it
 * may be used.
 *
 * Replies leave in one of two ways (settings.through_queue):
 *
 *   past the queues     a complete sum goes to all members by a redirect to the map `ports`; for
 *                       each copy the program `toward` writes the member's addresses. Every other
 *                       reply leaves by the interface on which its request arrived (XDP_TX).
 *   through the queues  `aggregate` passes the reply to the network stack, with a note in front of
 *                       it (struct weft_aggregate_note). `spread`, a tc program at the ingress of
 *                       the same interface, sends it to the sender of the request, or a copy to
 *                       each member, through the queue of the member's interface.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
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
    __type(value, struct weft_aggregate_counts);
} counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, WEFT_AGG_MEMBERS_MAX);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct bpf_devmap_val));
} ports SEC(".maps");

/* Key: the member's number. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, WEFT_AGG_MEMBERS_MAX);
    __type(key, __u32);
    __type(value, struct weft_aggregate_member);
} members SEC(".maps");

/* Key: the index of the interface. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WEFT_AGG_MEMBERS_MAX);
    __type(key, __u32);
    __type(value, struct weft_aggregate_interface);
} interfaces SEC(".maps");

/* Key: an IPv4 address of the box, big-endian. The value is not used. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WEFT_AGGREGATE_ADDRESSES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} addresses SEC(".maps");

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

/* Not memcmp: the compiler would call it, and there is none here. */
static __always_inline bool same_mac(const __u8 *a, const __u8 *b)
{
    __u8 different = 0;
    for (int i = 0; i < ETH_ALEN; i++) {
        different |= a[i] ^ b[i];
    }
    return different == 0;
}

/* Whether this frame has the form of one for the box. */
static __always_inline bool has_form(const struct frame *frame, const void *end,
                                     const struct weft_aggregate_settings *s)
{
    return (const void *)(frame + 1) + 1 <= end && frame->eth.h_proto == bpf_htons(ETH_P_IP) &&
           frame->ip.version == 4 && frame->ip.ihl == 5 && frame->ip.protocol == IPPROTO_UDP &&
           (frame->ip.frag_off & bpf_htons(0x3fff)) == 0 && frame->udp.dest == s->port &&
           weft_wire_is_agg(*(const __u8 *)(frame + 1));
}

/* Whether a frame of that form is addressed to the box: a switch also floods frames for other
 * hosts, and a host also forwards packets for others. */
static __always_inline bool is_to_box(const struct xdp_md *ctx, const struct frame *frame)
{
    const struct weft_aggregate_interface *in = lookup(&interfaces, ctx->ingress_ifindex);
    return in != NULL && same_mac(in->mac, frame->eth.h_dest) &&
           lookup(&addresses, frame->ip.daddr) != NULL;
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

/* Atomic accesses that processors do not reorder with others, either: in BPF an operation that
 * returns the value before it is a full barrier. (BPF has loads that acquire and stores that
 * release only since Linux 6.14.) Neither is needed for each packet, see learn. The asm keeps the
 * value in use, or the compiler would choose the operation without it, which is no barrier. */
#define LOAD_ORDERED(at)                                                                           \
    ({                                                                                             \
        __u32 value_ = __sync_fetch_and_or(at, 0);                                                 \
        __asm__ volatile("" : "+r"(value_) : : "memory");                                          \
        value_;                                                                                    \
    })
#define STORE_ORDERED(at, value)                                                                   \
    do {                                                                                           \
        __u32 before_ = __sync_lock_test_and_set(at, value);                                       \
        __asm__ volatile("" : : "r"(before_) : "memory");                                          \
    } while (0)

static __always_inline bool is_at(const struct weft_aggregate_member *known,
                                  const struct frame *frame)
{
    return known->address == frame->ip.saddr && known->port == frame->udp.source &&
           same_mac(known->mac, frame->eth.h_source);
}

/* Whether the member was elsewhere in this epoch. Another processor may be storing what it has
 * learnt from a packet of the same place: whoever reads its epoch or, at first contact, its
 * interface, reads all that it stored before, if neither processor reorders that. */
static __always_inline bool has_moved(__u32 ifindex, const struct frame *frame,
                                      struct weft_aggregate_member *known, __u32 epoch)
{
    __u32 known_epoch = LOAD_ORDERED(&known->epoch);
    __u32 known_ifindex = LOAD_ORDERED(&known->ifindex);
    return known_epoch == epoch && known_ifindex != 0 &&
           !(known_ifindex == ifindex && is_at(known, frame));
}

/* Store where the member sent this packet from. The members of a new epoch may be other processes;
 * within an epoch a member has one socket, unless two processes have its rank.
 *
 * Called under the lock of the packet's slot: the processor that completes the round takes that
 * lock later, and finds every member of the sum. Without it, it could find a member that is not
 * known yet, which would miss the sum and have to send again. Packets of one member for two slots
 * may store at the same time; the next packet then corrects the mixture. */
static __always_inline void learn(__u32 ifindex, const struct frame *frame,
                                  struct weft_aggregate_member *known,
                                  struct weft_aggregate_interface *in,
                                  const struct weft_wire_agg *packet,
                                  struct weft_aggregate_counts *tally)
{
    __u32 member = packet->member;
    __u32 epoch = packet->epoch;
    if (in->member != member) {
        in->member = member; /* also of a known member: another member may have sent meanwhile */
    }
    /* Most packets come from the place of the one before. These reads may be of different times;
     * what seems to be a change is looked at again, in order. */
    if (known->epoch == epoch && known->ifindex == ifindex && is_at(known, frame)) {
        return;
    }
    if (has_moved(ifindex, frame, known, epoch)) {
        tally->moved++;
    }
    known->address = frame->ip.saddr;
    known->port = frame->udp.source;
    __builtin_memcpy(known->mac, frame->eth.h_source, ETH_ALEN);
    known->member = (__u16)member;
    STORE_ORDERED(&known->ifindex, ifindex);
    STORE_ORDERED(&known->epoch, epoch);
}

/* Begin the packet's epoch if it is later than the box's. The epoch never decreases, also if two
 * processors do so: a slot that went back would lose rounds that its members have seen. Slots read
 * the epoch under their lock. */
static __always_inline void follow(struct weft_agg_config *config, __u32 epoch)
{
    __u32 own = config->dense_epoch;
    for (int tries = 0; tries < 4 && (__s32)(epoch - own) > 0; tries++) {
        __u32 seen = __sync_val_compare_and_swap(&config->dense_epoch, own, epoch);
        if (seen == own) {
            return;
        }
        own = seen;
    }
}

/* The time to live of a reply between the two programs, and of one that `spread` sent. A note may
 * stay with a packet that comes back, on the loopback interface or by a veth between two interfaces
 * of the box, and is void then. A packet of the network has the first only if it is forged, see
 * has_lost_note. */
enum { NOT_SENT = 0, SENT = 64 };

/* Send the frame, which is a reply now. Some drivers have no room for a note; then the reply goes
 * to its sender past the queue, and other members of a sum get it when they repeat their packets.
 */
static __always_inline int reply(struct xdp_md *ctx, const struct weft_aggregate_settings *s,
                                 __u32 to, struct weft_aggregate_counts *tally)
{
    if (!s->through_queue) {
        return to == WEFT_AGGREGATE_TO_SENDER ? XDP_TX
                                              : (int)bpf_redirect_map(&ports, 0, BPF_F_BROADCAST);
    }
    if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct weft_aggregate_note)) != 0) {
        tally->unnoted++;
        return XDP_TX;
    }
    struct weft_aggregate_note *note = (void *)(long)ctx->data_meta;
    struct frame *frame = (void *)(long)ctx->data;
    if ((void *)(note + 1) > (void *)frame || (void *)(frame + 1) > (void *)(long)ctx->data_end) {
        return XDP_DROP;
    }
    note->mark = s->mark;
    note->to = to;
    frame->ip.ttl = NOT_SENT;
    return XDP_PASS;
}

static __always_inline int dense(struct xdp_md *ctx, struct frame *frame, __u8 *bytes, __u8 *end,
                                 struct weft_aggregate_settings *s, struct weft_wire_agg *packet,
                                 struct weft_aggregate_counts *tally)
{
    const struct weft_agg_config *config = &s->config;
    struct slot *slot = lookup(&slots, packet->place);
    if (slot == NULL) {
        weft_agg_count(&tally->box, WEFT_AGG_FOREIGN);
        return XDP_DROP;
    }
    __u8 *values = bytes + WEFT_AGG_HEADER_BYTES;
    __u32 ifindex = ctx->ingress_ifindex;
    struct weft_aggregate_member *known = NULL;
    struct weft_aggregate_interface *in = NULL;
    if (s->learns) {
        follow(&s->config, packet->epoch);
        known = lookup(&members, packet->member);
        in = lookup(&interfaces, ifindex);
    }
    bpf_spin_lock(&slot->lock);
    struct weft_agg_outcome out =
        weft_agg_dense_receive(&slot->dense, config, packet, values, end, &tally->box);
    if (known != NULL && in != NULL && out.verdict >= WEFT_AGG_SUMMED) {
        learn(ifindex, frame, known, in, packet, tally);
    }
    if (out.action != WEFT_AGG_DROP) {
        weft_agg_dense_answer(&slot->dense, config, packet, values, end);
    }
    bpf_spin_unlock(&slot->lock);
    weft_agg_count(&tally->box, out.verdict);
    if (out.action == WEFT_AGG_DROP) {
        return XDP_DROP;
    }
    turn(frame);
    weft_wire_agg_encode(bytes, packet);
    return reply(ctx, s,
                 out.action == WEFT_AGG_ANSWER ? WEFT_AGGREGATE_TO_SENDER : WEFT_AGGREGATE_TO_ALL,
                 tally);
}

/* The reply's length differs from the request's, so the frame is resized. */
static __always_inline int acknowledge(struct xdp_md *ctx, __u32 count,
                                       const struct weft_aggregate_settings *s,
                                       struct weft_wire_agg *packet, const struct weft_agg_ack *ack,
                                       struct weft_aggregate_counts *tally)
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
    return reply(ctx, s, WEFT_AGGREGATE_TO_SENDER, tally);
}

static __always_inline int rows(struct xdp_md *ctx, const __u8 *bytes, const __u8 *end, __u32 count,
                                const struct weft_aggregate_settings *s,
                                struct weft_wire_agg *packet, struct weft_aggregate_counts *tally)
{
    struct bank *bank = lookup(&banks, packet->place);
    if (bank == NULL) {
        weft_agg_count(&tally->box, WEFT_AGG_FOREIGN);
        return XDP_DROP;
    }
    struct weft_agg_ack ack;
    bpf_spin_lock(&bank->lock);
    struct weft_agg_outcome out =
        weft_agg_rows_receive(&bank->rows, packet, bytes + WEFT_AGG_HEADER_BYTES, end, &tally->box);
    weft_agg_window_ack(&bank->rows.windows[weft_agg_within(packet->member, WEFT_AGG_MEMBERS_MAX)],
                        &ack);
    bpf_spin_unlock(&bank->lock);
    weft_agg_count(&tally->box, out.verdict);
    return out.action == WEFT_AGG_DROP ? XDP_DROP : acknowledge(ctx, count, s, packet, &ack, tally);
}

SEC("xdp")
int aggregate(struct xdp_md *ctx)
{
    struct frame *frame = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    struct weft_aggregate_settings *s = lookup(&settings, 0);
    struct weft_aggregate_counts *tally = lookup(&counts, 0);
    if (s == NULL || tally == NULL || !has_form(frame, end, s) || !is_to_box(ctx, frame)) {
        return XDP_PASS;
    }
    __u8 *bytes = (__u8 *)(frame + 1);
    __u32 count = (__u32)(ctx->data_end - ctx->data) - HEADS_BYTES;
    struct weft_wire_agg packet;
    __u8 verdict;
    /* Ethernet pads only short frames, and aggregation packets are longer: the UDP length must
     * match the frame. */
    if (frame->udp.len != bpf_htons(sizeof(frame->udp) + count)) {
        weft_agg_count(&tally->box, WEFT_AGG_MALFORMED);
        return XDP_DROP;
    }
    if (!weft_agg_open(&s->config, bytes, end, count, &packet, &verdict)) {
        weft_agg_count(&tally->box, verdict);
        return XDP_DROP;
    }
    return packet.kind == WEFT_AGG_DENSE ? dense(ctx, frame, bytes, end, s, &packet, tally)
                                         : rows(ctx, bytes, end, count, s, &packet, tally);
}

/* The part of a sum that differs between members. */
struct sum_head {
    struct frame frame;
    __u8 bytes[8]; /* of the aggregation header: up to the member's number */
} __attribute__((packed));

static __always_inline void address(struct sum_head *head,
                                    const struct weft_aggregate_member *member)
{
    __builtin_memcpy(head->frame.eth.h_dest, member->mac, ETH_ALEN);
    head->frame.ip.daddr = member->address;
    head->frame.udp.dest = member->port;
    weft_wire_put_u16(head->bytes + 6, member->member);
    ip_sum(&head->frame);
}

/* A sum about to leave by the interface to a member. */
SEC("xdp/devmap")
int toward(struct xdp_md *ctx)
{
    struct sum_head *head = (void *)(long)ctx->data;
    struct weft_aggregate_interface *out = lookup(&interfaces, ctx->egress_ifindex);
    struct weft_aggregate_member *member = out != NULL ? lookup(&members, out->member) : NULL;
    if (member == NULL || (void *)(head + 1) > (void *)(long)ctx->data_end) {
        return XDP_DROP;
    }
    address(head, member);
    return XDP_PASS;
}

/* Whether a frame without a note is a reply of `aggregate` that was not sent. Then the driver has
 * lost the note on the way from XDP. A host on the link can forge such a frame, like all packets of
 * members: it is sent to the receiver that it names, and the process changes to generic mode. */
static __always_inline bool has_lost_note(struct __sk_buff *skb, __u32 ifindex,
                                          const struct weft_aggregate_settings *s)
{
    const struct frame *frame = (void *)(long)skb->data;
    const __u8 *bytes = (const __u8 *)(frame + 1);
    if ((void *)(bytes + 2) > (void *)(long)skb->data_end ||
        frame->eth.h_proto != bpf_htons(ETH_P_IP) || frame->ip.version != 4 ||
        frame->ip.ihl != 5 || frame->ip.ttl != NOT_SENT || frame->ip.protocol != IPPROTO_UDP ||
        frame->udp.source != s->port || !weft_wire_is_agg(bytes[0]) ||
        (bytes[1] != WEFT_AGG_SUM && bytes[1] != WEFT_AGG_ACK)) {
        return false;
    }
    const struct weft_aggregate_interface *in = lookup(&interfaces, ifindex);
    return in != NULL && same_mac(in->mac, frame->eth.h_source) &&
           lookup(&addresses, frame->ip.saddr) != NULL;
}

/* Replies that `aggregate` has passed on. It writes nothing to the note: that would make the kernel
 * copy a packet that a capture shares, and lose the note. */
SEC("tc")
int spread(struct __sk_buff *skb)
{
    struct weft_aggregate_note *note = (void *)(long)skb->data_meta;
    struct weft_aggregate_settings *s = lookup(&settings, 0);
    struct sum_head head;
    struct weft_aggregate_counts *tally = lookup(&counts, 0);
    /* Read once: the compiler would compute the field's address, which the verifier refuses. */
    __u32 ifindex = skb->ifindex;
    __asm__ volatile("" : "+r"(ifindex));
    if (s == NULL || tally == NULL) {
        return TC_ACT_UNSPEC;
    }
    __u32 to = WEFT_AGGREGATE_TO_SENDER;
    if ((void *)(note + 1) <= (void *)(long)skb->data && note->mark == s->mark) {
        to = note->to;
    } else if (has_lost_note(skb, ifindex, s)) {
        tally->unnoted++;
    } else {
        return TC_ACT_UNSPEC;
    }
    if (bpf_skb_load_bytes(skb, 0, &head, sizeof(head)) != 0) {
        return TC_ACT_SHOT;
    }
    if (head.frame.ip.ttl != NOT_SENT) {
        return TC_ACT_UNSPEC;
    }
    head.frame.ip.ttl = SENT;
    if (to == WEFT_AGGREGATE_TO_SENDER) {
        ip_sum(&head.frame);
        return bpf_skb_store_bytes(skb, 0, &head, sizeof(head), 0) == 0
                   ? (int)bpf_redirect(ifindex, 0)
                   : TC_ACT_SHOT;
    }
    __u64 left = s->config.members;
    for (__u32 i = 0; i < WEFT_AGG_MEMBERS_MAX; i++, left >>= 1) {
        struct weft_aggregate_member *member = (left & 1) ? lookup(&members, i) : NULL;
        if (member == NULL || member->ifindex == 0) {
            continue;
        }
        address(&head, member);
        if (bpf_skb_store_bytes(skb, 0, &head, sizeof(head), 0) == 0) {
            (void)bpf_clone_redirect(skb, member->ifindex, 0);
        }
    }
    return TC_ACT_STOLEN;
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
