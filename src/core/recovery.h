/* Packets in flight to the peer: loss detection, round-trip time and probe timeout. Internal to
 * src/core.
 *
 *   loss.c        ACK, RTT, loss detection, PTO
 *   tail.c        repetition of the last packets of an exchange
 */
#ifndef WEFT_CORE_RECOVERY_H
#define WEFT_CORE_RECOVERY_H

#include "core/cc.h"
#include "core/endpoint.h"
#include "wire/packet.h"

#include <string.h>

struct peer;
struct weft_ep;

enum tx_packet_kind {
    TX_PACKET_DATA = 1,
    TX_PACKET_DONE = 2, /* at least one DONE */
    TX_PACKET_PROBE = 4,
    TX_PACKET_FINISH = 8,    /* at least one FINISH */
    TX_PACKET_CRITICAL = 16, /* CRITICAL of msg: chunk & 0xffff parts from part chunk >> 16 */
    TX_PACKET_MTU = 32,      /* size probe of `chunk` bytes; not in in_flight_bytes */
    TX_PACKET_BACKLOG = 128,
    TX_PACKET_ANSWER = 64,  /* messages of one chunk, with DONE; or, without a chunk, only DONE: may
                             * be acknowledged late */
    TX_PACKET_SHARED = 256, /* at least one MESSAGE frame */
};

/* A packet that was sent; slot = packet number mod tx_window_max. */
struct tx_packet {
    uint64_t sent_ns;
    uint32_t msg; /* DATA: low half of the sequence number */
    uint32_t chunk;
    uint16_t bytes; /* bytes that count as in flight: only ack-eliciting packets do */
    uint16_t kind;
    bool ect; /* marked ECT(0), and not yet evaluated by ECN validation */
};

/* Kinds of packets that may be the last of an exchange. */
enum tail { TAIL_ACK = 1, TAIL_LAST = 2 };

struct recovery {
    uint64_t pn_next;          /* next packet number to send, from 1 */
    struct tx_packet *packets; /* ring of tx_window_max */
    uint64_t *in_flight_bits;  /* by packet number mod tx_window_max */
    uint64_t *lost_bits;       /* declared lost and still in the ring */
    uint64_t pn_oldest;        /* no packet below it is in flight */
    uint64_t pn_acked_largest;
    uint64_t pn_data_acked_least; /* of packets with chunks; UINT64_MAX: none was acknowledged */
    uint64_t in_flight_bytes;
    uint32_t in_flight_count;
    uint32_t late_count; /* of these, packets with only DONE that may be acknowledged late */
    uint32_t reorder_threshold;
    uint64_t srtt_ns; /* 0 = no sample */
    uint64_t rttvar_ns;
    uint64_t rtt_latest_ns;
    uint64_t answer_ns;      /* longest recent wait for an acknowledgement (w of "PTO"); decays */
    uint64_t answer_long_ns; /* likewise, but decays more slowly on a clean path (v of "PTO") */
    bool clean;              /* when they were last measured, the path had lost no packet to any
                              * peer recently, and none of this peer (PROTOCOL section 5, "PTO") */
    uint64_t rtt_ns_min;
    uint64_t loss_ns; /* time-threshold timer */
    uint64_t pto_ns;
    uint64_t pto_base_ns;   /* time of the last ack-eliciting packet sent, or of progress */
    uint64_t wait_since_ns; /* time since which a reply is outstanding and no packet has arrived;
                             * else WEFT_NEVER */
    uint32_t pto_count;
    uint8_t probes; /* number of PTO probes to send now */
    uint64_t round_end_pn;
    uint32_t ce_seen;
    uint64_t path_rtt_ns;   /* as srtt_ns, without the ACK delay of the peer; 0 = no sample */
    uint64_t peer_delay_ns; /* max_ack_delay of the peer, from its last ACK */
    bool bulk_last;         /* peer_delay_ns applies to the newest packet in flight, too */
    bool confirms_late;     /* the peer's ACKs contain LATER: it may delay the confirmation of
                             * replies */
    uint64_t tail_ns;       /* when to repeat the last packet */
    uint8_t tail_said;      /* bits of enum tail: repeated, and no new packet of this kind since */
};

static inline void recovery_init(struct recovery *r, struct tx_packet *packets, uint64_t *bits,
                                 uint32_t window)
{
    r->packets = packets;
    r->in_flight_bits = bits;
    r->lost_bits = bits + window / 64;
}
/* The packet contains only DONE, and may be acknowledged late. */
static inline bool tx_packet_late(uint16_t kind)
{
    return (kind & (TX_PACKET_ANSWER | TX_PACKET_DATA)) == TX_PACKET_ANSWER;
}
/* Number of packets in flight of which an acknowledgement is expected soon. */
static inline uint32_t recovery_due_count(const struct recovery *r)
{
    return r->in_flight_count - r->late_count;
}
/* No packet is in flight or lost. */
static inline void recovery_bits_clear(struct recovery *r, uint32_t window)
{
    memset(r->in_flight_bits, 0, window / 64 * sizeof(uint64_t));
    memset(r->lost_bits, 0, window / 64 * sizeof(uint64_t));
}
/* The peer made progress, or is reachable again: restart the probe timeout. */
static inline void recovery_on_progress(struct recovery *r, uint64_t now_ns)
{
    r->pto_count = 0;
    r->pto_base_ns = now_ns;
}
/* From now on a reply is outstanding: start the probe timeout. */
static inline void recovery_wait(struct recovery *r, uint64_t now_ns)
{
    r->pto_base_ns = now_ns;
}
/* A reply is outstanding from now on: start the time of silence, unless it has started already. */
static inline void recovery_silence_begin(struct recovery *r, uint64_t now_ns)
{
    r->wait_since_ns = weft_min_u64(r->wait_since_ns, now_ns);
}
/* End the time of silence: the peer is alive, or is allowed to be silent. This is not progress. */
static inline void recovery_silence_end(struct recovery *r)
{
    r->wait_since_ns = WEFT_NEVER;
}
static inline void recovery_rtt_bound(struct recovery *r, uint64_t rtt_ns)
{
    r->rtt_ns_min = weft_min_u64(r->rtt_ns_min, rtt_ns);
}
/* Discard the measurements of the previous path. */
static inline void recovery_path_changed(struct recovery *r, uint64_t now_ns)
{
    r->srtt_ns = 0;
    r->path_rtt_ns = 0;
    r->rttvar_ns = 0;
    r->rtt_latest_ns = 0;
    r->answer_ns = 0;
    r->answer_long_ns = 0;
    r->clean = false;
    r->rtt_ns_min = WEFT_NEVER;
    recovery_on_progress(r, now_ns);
}
/* A new packet of this kind was sent; it may be repeated once. */
static inline void recovery_tail_new(struct recovery *r, enum tail what)
{
    r->tail_said &= (uint8_t)~what;
}
static inline void recovery_probe(struct recovery *r)
{
    r->probes += r->probes == 0;
}
static inline void recovery_probe_building(struct recovery *r)
{
    r->probes--;
}

/* loss.c */
uint64_t weft_core_pto_base(const struct peer *p);
void weft_core_rtt_sample(struct peer *p, uint64_t rtt_ns, uint64_t delay_ns);
void weft_core_ack_recv(struct weft_ep *ep, struct peer *p, uint64_t pn,
                        const struct weft_wire_ack *ack, uint64_t at_ns, uint64_t now_ns);
void weft_core_ack_short_recv(struct weft_ep *ep, struct peer *p, uint64_t pn,
                              const struct weft_wire_ack_short *ack, uint64_t at_ns,
                              uint64_t now_ns);
void weft_core_packet_sent(struct weft_ep *ep, struct peer *p, uint64_t now_ns, uint16_t kind,
                           uint32_t msg, uint32_t chunk, uint32_t bytes);
/* The peer has repeated a request whose reply was sent: send a probe if the reply was probably
 * lost. */
void weft_core_answer_again(struct weft_ep *ep, struct peer *p, uint64_t at_ns);
void weft_core_loss_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_pto_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_pto_fire(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* tail.c */
void weft_core_tail_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_tail_fire(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

#endif
