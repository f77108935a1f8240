/* A simulated network: hosts joined by a star of links around one switch, on virtual time.
 *
 *     host a --- uplink of a ---> switch --- downlink of b ---> host b
 *
 * A link has a rate, a delay, a drop-tail buffer and an ECN threshold. The buffer holds the packet
 * being sent too. Faults strike a packet when it leaves the link, behind the queue, where lossy
 * wires are: partition, burst loss (Gilbert-Elliott), random loss, corruption, duplication,
 * reordering by extra delay. Corruption is a drop with a counter of its own: it stands for the UDP
 * checksum of the receiving host.
 *
 * It is not a model of a switch's inside (no shared buffer, no priorities) and knows nothing of the
 * protocol. Everything is integer arithmetic and one seed; each link draws from a stream of its
 * own, so a fault on one link does not change what another link does to the same packets.
 */
#ifndef WEFT_SIM_NET_H
#define WEFT_SIM_NET_H

#include "core/endpoint.h"

#include <stdbool.h>

enum {
    WEFT_NET_HOSTS_MAX = 1024,
    WEFT_NET_OVERHEAD_BYTES = 42, /* of each packet: Ethernet 14, IPv4 20, UDP 8 */
    WEFT_NET_PARTITIONS_MAX = 4,  /* windows a link */
};

enum weft_net_dir { WEFT_NET_UP = 0, WEFT_NET_DOWN = 1 };

struct weft_net_link_config {
    uint64_t rate_bps;       /* >= 1 */
    uint64_t delay_ns;       /* propagation */
    uint64_t buffer_bytes;   /* a packet that does not fit is dropped; headers count */
    uint64_t ecn_mark_bytes; /* an ECT packet that finds this much before it gets CE; 0 = off */
    uint32_t mtu_bytes;      /* longer ones vanish, unless they may be fragmented; headers do not
                              * count; 0 = none */
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
    uint64_t delivered; /* handed to the switch (up) or to the host (down) */
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t marked;
    uint64_t bleached;
    uint64_t fragmented; /* longer than the MTU, and passed; still one packet here */
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
    uint64_t left_bytes; /* sent over the link, headers included, whatever became of it behind */
};

/* One datagram on its way. The bytes are an allocation of exactly their length, so that
 * AddressSanitizer sees who reads past the end. */
struct weft_net_packet {
    struct weft_net_packet *next; /* for queues of the owner: the network, then the caller */
    uint64_t due_ns;              /* the network's */
    uint32_t from;                /* what the datagram says; a hostile one lies */
    uint32_t to;
    uint32_t from_addr; /* the address it says it is from, `from` but for hosts that have moved */
    enum weft_ecn ecn;
    bool fragment;  /* may be fragmented */
    bool hostile;   /* made by an attacker: a correct endpoint drops it */
    bool flood;     /* a real HELLO, from an invented address or sent again by an attacker: may be
                     * answered, must have no effect */
    uint32_t life;  /* of the process that sent it; the world's */
    uint64_t at_ns; /* arrival at the host; set on delivery */
    uint32_t count;
    uint8_t bytes[];
};

enum weft_net_event_type {
    WEFT_NET_NONE,   /* something happened inside the network */
    WEFT_NET_PACKET, /* a datagram has reached `host`; `packet` is the caller's to free */
    WEFT_NET_WAKE,   /* a wake planned for `host` */
};

struct weft_net_event {
    enum weft_net_event_type type;
    uint32_t host;
    struct weft_net_packet *packet;
};

struct weft_net;

/* Links start without rate; set all before the first packet. Lack of memory ends the process. */
struct weft_net *weft_net_new(uint32_t hosts, uint64_t seed);
void weft_net_free(struct weft_net *net); /* NULL is fine */

void weft_net_link_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                       const struct weft_net_link_config *config);
void weft_net_faults_set(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                         const struct weft_net_faults *faults);

/* Both links of `host` are those of `other` from now on: two sockets of one machine. `other` has
 * links of its own. Before the first packet. */
void weft_net_share(struct weft_net *net, uint32_t host, uint32_t other);

/* Bytes that each packet takes on a link beyond its own; WEFT_NET_OVERHEAD_BYTES at first. Before
 * the first packet. */
void weft_net_overhead_set(struct weft_net *net, uint32_t overhead_bytes);

/* Drop all that leaves this link in [from_ns, to_ns). */
void weft_net_partition_add(struct weft_net *net, uint32_t host, enum weft_net_dir dir,
                            uint64_t from_ns, uint64_t to_ns);

/* No more faults and partitions from now on, on any link. */
void weft_net_heal(struct weft_net *net);

/* A packet with room for count bytes; fill bytes, then send it. */
struct weft_net_packet *weft_net_packet_new(uint32_t from, uint32_t to, enum weft_ecn ecn,
                                            uint32_t count);
void weft_net_packet_free(struct weft_net_packet *packet);

/* Put a packet on the uplink of packet->from. Takes the packet. */
void weft_net_send(struct weft_net *net, struct weft_net_packet *packet);

/* Put a packet on the downlink of packet->to, as from a stranger at the switch. Takes it. */
void weft_net_inject(struct weft_net *net, struct weft_net_packet *packet);

/* Plan a WAKE for a host, instead of the one planned before; WEFT_NEVER = none. */
void weft_net_wake(struct weft_net *net, uint32_t host, uint64_t at_ns);

/* Virtual time: that of the last event taken. */
uint64_t weft_net_now_ns(const struct weft_net *net);

/* Time of the next event; WEFT_NEVER when nothing is planned. */
uint64_t weft_net_next_ns(const struct weft_net *net);

/* Take the next event; false when nothing is planned. */
bool weft_net_step(struct weft_net *net, struct weft_net_event *event_p);

/* Packets in buffers and on wires. */
uint64_t weft_net_packets(const struct weft_net *net);

/* True when there is one such among them. Cost: a look at each. */
bool weft_net_any(const struct weft_net *net,
                  bool (*such)(const void *arg, const struct weft_net_packet *packet),
                  const void *arg);

const struct weft_net_link_counters *weft_net_link_counters(const struct weft_net *net,
                                                            uint32_t host, enum weft_net_dir dir);

/* NULL when every link conserves its packets and keeps its buffer's size, else what is wrong.
 * `all` looks at every link, otherwise only at the one that the last event touched. */
const char *weft_net_check(const struct weft_net *net, bool all);

#endif
