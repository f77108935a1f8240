/* A simulated network: hosts connected by links to one switch, on virtual time.
 *
 *     host a --- uplink of a ---> switch --- downlink of b ---> host b
 *
 * A link has a rate, a delay, a drop-tail buffer and an ECN threshold. The buffer holds the packet
 * being sent too. Faults apply when a packet leaves the link, after the queue, as on a lossy wire:
 * partition, burst loss (Gilbert-Elliott), random loss, corruption, duplication, reordering by
 * extra delay. Corruption is a drop with a separate counter: it models the UDP checksum of the
 * receiving host.
 *
 * It does not model the inside of a switch (no shared buffer, no priorities) and is independent of
 * the protocol. All arithmetic is in integers and depends on one seed. Each link has a separate
 * random stream, so that a fault on one link does not change the effect of another link on the same
 * packets.
 */
#ifndef WEFT_SIM_NET_H
#define WEFT_SIM_NET_H

#include "core/endpoint.h"

#include <stdbool.h>

enum {
    WEFT_NET_HOSTS_MAX = 1024,
    WEFT_NET_OVERHEAD_BYTES = 42, /* of each packet: Ethernet 14, IPv4 20, UDP 8 */
    WEFT_NET_PARTITIONS_MAX = 4,  /* windows per link */
};

enum weft_net_dir { WEFT_NET_UP = 0, WEFT_NET_DOWN = 1 };

struct weft_net_link_config {
    uint64_t rate_bps;       /* >= 1 */
    uint64_t delay_ns;       /* propagation */
    uint64_t buffer_bytes;   /* a packet that does not fit is dropped; headers count */
    uint64_t ecn_mark_bytes; /* an ECT packet with at least this much queued before it is marked CE;
                              * 0 = off */
    uint32_t mtu_bytes;      /* longer packets are dropped without notice, unless they may be
                              * fragmented; headers do not count; 0 = none */
    bool bleach;             /* clears ECN marks */
};

struct weft_net_faults {
    uint32_t loss_ppm;
    uint32_t burst_enter_ppm; /* per packet, from the good state to the bad */
    uint32_t burst_leave_ppm; /* per packet, back */
    uint32_t burst_loss_ppm;  /* loss in the bad state */
    uint32_t corrupt_ppm;
    uint32_t duplicate_ppm;
    uint32_t reorder_ppm;    /* chance of an extra delay */
    uint64_t reorder_ns_max; /* uniform in [1, this] */
};

/* Cumulative. in + duplicated = delivered + all drops + queued + flying, at any time. */
struct weft_net_link_counters {
    uint64_t in;
    uint64_t delivered; /* passed to the switch (up) or to the host (down) */
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t marked;
    uint64_t bleached;
    uint64_t fragmented; /* longer than the MTU, and forwarded; still one packet in this model */
    uint64_t dropped_full;
    uint64_t dropped_loss;
    uint64_t dropped_burst;
    uint64_t dropped_corrupt;
    uint64_t dropped_partition;
    uint64_t dropped_mtu;
    uint64_t queued; /* gauge: in the buffer */
    uint64_t flying; /* gauge: on the wire */
    uint64_t queued_bytes;
    uint64_t queued_bytes_max;
    uint64_t left_bytes; /* sent over the link, with headers, including packets lost after the
                          * queue */
};

/* A datagram in flight. The allocation has exactly the length of the datagram, so that
 * AddressSanitizer detects reads past the end. */
struct weft_net_packet {
    struct weft_net_packet *next; /* for queues of the owner: the network, then the caller */
    uint64_t due_ns;              /* the network's */
    uint32_t from;                /* source host according to the datagram; a hostile one may be
                                   * forged */
    uint32_t to;
    uint32_t from_addr; /* source address in the datagram; equal to `from` unless the host has
                         * moved */
    enum weft_ecn ecn;
    bool fragment;  /* may be fragmented */
    bool hostile;   /* made by an attacker: a correct endpoint drops it */
    bool flood;     /* a real HELLO, from a forged address or replayed by an attacker: a reply is
                     * allowed, an effect is not */
    uint32_t life;  /* of the sending process; used by the world */
    uint64_t at_ns; /* arrival at the host; set on delivery */
    uint32_t count;
    uint8_t bytes[];
};

enum weft_net_event_type {
    WEFT_NET_NONE,   /* an event inside the network */
    WEFT_NET_PACKET, /* a datagram has reached `host`; `packet` is the caller's to free */
    WEFT_NET_WAKE,   /* a scheduled wake of `host` */
};

struct weft_net_event {
    enum weft_net_event_type type;
    uint32_t host;
    struct weft_net_packet *packet;
};

struct weft_net;

/* Links start with rate zero; configure all before the first packet. Running out of memory ends the
 * process. */
struct weft_net *weft_net_new(uint32_t hosts, uint64_t seed);
void weft_net_free(struct weft_net *net); /* NULL is allowed */

void weft_net_link_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                       const struct weft_net_link_config *config);
void weft_net_faults_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                         const struct weft_net_faults *faults);

/* Make `host` use the links of `other`: two sockets of one machine. `other` must have its own
 * links. Call before the first packet. */
void weft_net_share(struct weft_net *net, uint32_t host, uint32_t other);

/* Packets between hosts that share links bypass these: they arrive delay_ns after they were sent,
 * and are not lost. 0 (initially): they pass both links. Call before the first packet. */
void weft_net_local_set(struct weft_net *net, uint64_t delay_ns);

/* Set the bytes that each packet occupies on a link in addition to its length; initially
 * WEFT_NET_OVERHEAD_BYTES. Call before the first packet. */
void weft_net_overhead_set(struct weft_net *net, uint32_t overhead_bytes);

/* Drop all packets that leave this link in [from_ns, to_ns). */
void weft_net_partition_add(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                            uint64_t from_ns, uint64_t to_ns);

/* End all faults and partitions, on all links. */
void weft_net_heal(struct weft_net *net);

/* A packet with room for count bytes; fill bytes, then send it. */
struct weft_net_packet *weft_net_packet_new(uint32_t from, uint32_t to, enum weft_ecn ecn,
                                            uint32_t count);
void weft_net_packet_free(struct weft_net_packet *packet);

/* Put a packet on the uplink of packet->from. Takes the packet. */
void weft_net_send(struct weft_net *net, struct weft_net_packet *packet);

/* Put a packet on the downlink of packet->to, as if sent by an attacker at the switch. Takes it. */
void weft_net_inject(struct weft_net *net, struct weft_net_packet *packet);

/* Schedule a WAKE for a host; it replaces the previous one; WEFT_NEVER = none. */
void weft_net_wake(struct weft_net *net, uint32_t host, uint64_t at_ns);

/* Virtual time: that of the last event processed. */
uint64_t weft_net_now_ns(const struct weft_net *net);

/* Time of the next event; WEFT_NEVER if none is scheduled. */
uint64_t weft_net_next_ns(const struct weft_net *net);

/* Process the next event; false if none is scheduled. */
bool weft_net_step(struct weft_net *net, struct weft_net_event *event_p);

/* Packets in buffers and on wires. */
uint64_t weft_net_packets(const struct weft_net *net);

/* Whether any of these packets matches. Cost: checks each packet. */
bool weft_net_any(const struct weft_net *net,
                  bool (*such)(const void *arg, const struct weft_net_packet *packet),
                  const void *arg);

const struct weft_net_link_counters *weft_net_link_counters(const struct weft_net *net,
                                                            uint32_t host, enum weft_net_dir dir);

/* Bytes of this host's own packets in the buffer of its uplink, which it may share. */
uint64_t weft_net_queued_bytes(const struct weft_net *net, uint32_t host);

/* Returns NULL if every link conserves its packets and respects its buffer size, else the error.
 * `all` checks every link, otherwise only the link of the last event. */
const char *weft_net_check(const struct weft_net *net, bool all);

#endif
