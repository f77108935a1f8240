/* What the files of the endpoint share. Not for anyone outside src/core.
 *
 *   endpoint.c    configuration, memory, one datagram in and one burst out
 *   peers.c       the table of peers: take, up, down
 *   timers.c      deadlines of all peers, and what is due
 *   msgr.c        the message interface and its events
 *   ack.c         when to acknowledge, and what
 *   ahead.c       memory that is asked for before it is needed
 *   bound.c       how many chunks a message may miss
 *   handshake.c   HELLO and ACCEPT
 *   secure.c, guard.c   keys and packets' tags; who may shake hands (core/secure.h)
 *   verify.c      is an incoming packet what it says it is?
 *   rx.c          what it then does; incoming messages, the receiver's half of the bound
 *   pace.c        messages that are held, and their rate
 *   pacer.c       token bucket of a peer
 *   critical.c    chunks that must not be missing, told apart from DATA
 *   credit.c      how much the peers may send to this end
 *   egress.c      whose chunks go next, and the host's own queue
 *   sink.c        the ADD sink
 *   loss.c        ACK, RTT, loss detection, PTO
 *   tail.c        what is said last, once more
 *   tx_msg.c      outgoing messages: which chunk next; DONE
 *   tx.c          building packets
 *   trace.c       records of what happened
 *   path.c        packet size, ECN validation, address change
 *   life.c        keep-alive, idle time-out, close
 */
#ifndef WEFT_CORE_INTERNAL_H
#define WEFT_CORE_INTERNAL_H

#include "base/bits.h"
#include "base/prng.h"
#include "core/bound.h"
#include "core/cc.h"
#include "core/endpoint.h"
#include "core/expect.h"
#include "core/perm.h"
#include "core/secure.h"
#include "core/trace.h"
#include "wire/packet.h"

#include <string.h>

enum {
    MSG_MASK = WEFT_MSGS_MAX - 1,
    RX_WINDOW_BLOCKS = 64,              /* packet numbers remembered: 64 x 64 */
    EVENTS_MAX = 1024,
    EVENTS_RESERVE = 2 * WEFT_MSGS_MAX + 8, /* most that one peer can raise at a time */
    DONE_PART_WORDS = 16,               /* parts of masks begin at multiples of 1,024 chunks */
    MASK_PARTS_WORDS = 4,               /* bits: one per part of 1,024 chunks */
    REORDER_FIRST = 3,
    FINISH_CHUNKS_MIN = 16,             /* shorter messages are not worth another packet */
    NOTES_MAX = 8,
    ACK_EVERY = 64,
    ACK_EVERY_LATE = 16,  /* when the first of these came 100 us ago: who sends on has a smaller burst */
    FEW_CHUNKS = 64,                    /* masks of so many are a word beside their message */
    TX_MASKS = 4,
    RX_MASKS = 2,
    CHALLENGES = 4,                     /* addresses whose answer is awaited at a time */
    PROBES_UNHEARD_MAX = 1024, /* two a second for the longest silence that anybody waits through */
};

static const uint64_t granularity_ns = 100 * WEFT_NS_PER_US;
static const uint64_t ack_delay_ns_min = 100 * WEFT_NS_PER_US; /* of an acknowledgement, unless announced */
static const uint64_t initial_rtt_ns = WEFT_NS_PER_MS;
static const uint64_t pto_ns_max = WEFT_NS_PER_S;
static const uint64_t retell_ns = 50 * WEFT_NS_PER_US; /* beyond two round trips: credit.c */
static const uint64_t lossy_ns = 10 * WEFT_NS_PER_S; /* a loss makes others likely for as long */
static const uint64_t hello_first_ns = 10 * WEFT_NS_PER_MS;

/* Rule 2: of the K chunks that a message may miss, an eighth is given up while the pass goes on. What
 * is lost beyond that is sent again at once, up to half of K: the rest of the bound is for losses that
 * would extend the message, and that half is the most that a lossy path adds to a message for which
 * the bound is enough. Both ends count with it. */
static inline uint32_t pass_spare(uint32_t lost_max)
{
    return lost_max / 8;
}

static inline uint32_t pass_again_max(uint32_t lost_max)
{
    return lost_max / 2 + lost_max % 2;
}

/* The wire's clock: 64 ns units, modulo 2^32. */
static inline uint32_t wire_clock(uint64_t ns)
{
    return (uint32_t)(ns >> 6);
}

enum tx_packet_kind {
    TX_PACKET_DATA = 1,
    TX_PACKET_DONE = 2,   /* holds at least one DONE */
    TX_PACKET_PROBE = 4,
    TX_PACKET_FINISH = 8, /* holds at least one FINISH */
    TX_PACKET_CRITICAL = 16, /* holds CRITICAL of msg: parts (chunk >> 16) on, chunk & 0xffff */
    TX_PACKET_MTU = 32,      /* asks whether `chunk` bytes pass; not in in_flight_bytes */
    TX_PACKET_BACKLOG = 128,
    TX_PACKET_ANSWER = 64,   /* a whole message beside DONE: may be acknowledged late */
};

/* One packet sent; slot = packet number mod tx_window_max. */
struct tx_packet {
    uint64_t sent_ns;
    uint32_t msg;         /* DATA: low half of the sequence number */
    uint32_t chunk;
    uint16_t bytes;       /* in flight; only ack-eliciting packets count */
    uint8_t kind;
    bool ect;             /* marked ECT(0), and not yet proved to be without effect */
};

struct tx_msg {
    bool active;
    bool unpolled;           /* closed, but its SENT event is still in the ring */
    bool finish_short;       /* deadline passed: FINISH(SHORT) until DONE */
    bool masked;             /* `must` says which chunks are critical, and CRITICAL frames tell */
    uint8_t priority;
    uint8_t critical;
    bool together; /* as sent */
    bool held;               /* as sent: pace.c */
    bool unbegun;            /* and not begun: in nothing that is counted of chunks to send */
    bool granted;            /* begins at pace_ns */
    uint8_t told;            /* priority, as the receiver is told */
    uint8_t retell;          /* DATA packets with long headers to go, which tell it */
    uint16_t order;          /* tx_order: the least goes first */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;         /* N */
    uint32_t lost_max;       /* K */
    uint32_t pass_next;      /* first-pass chunks sent; the pass is over at N */
    uint32_t acked_count;
    uint32_t lost_count;     /* declared lost, not sent again yet */
    uint32_t in_flight;      /* DATA packets */
    uint32_t resent;         /* DATA packets sent again, before the first was acknowledged */
    uint32_t pass_resent;    /* DATA packets sent again while the pass went on */
    uint32_t peer_received;  /* what a note said it holds, at least */
    uint32_t critical_left;  /* critical chunks not acknowledged */
    uint32_t chunk_bytes;    /* of a full chunk */
    uint64_t seq;
    uint64_t opened;         /* how many the endpoint had opened before */
    uint64_t tag;
    uint64_t user;
    uint64_t deadline_ns;
    uint64_t pace_ns;        /* while it is held or paced: until then */
    uint64_t rate_bps;       /* 0 = not limited */
    uint64_t rate_clock_ns;  /* when what was sent would have been, at the rate */
    const void *near;        /* as sent: ahead.c */
    const uint8_t *base;
    struct weft_perm perm;
    uint64_t *acked;         /* N bits: the receiver is known to hold it */
    uint64_t *lost;          /* N bits: lost_count of them */
    uint64_t *done;          /* N bits: mask of DONE, while its parts come in */
    uint64_t *must;          /* N bits, when masked: critical */
    uint64_t few[TX_MASKS];  /* these four, up to FEW_CHUNKS; beyond they are in the arena */
    uint64_t must_parts[MASK_PARTS_WORDS]; /* parts of it that the receiver has to be told */
    uint64_t done_parts[MASK_PARTS_WORDS];
};

enum rx_state { RX_FREE, RX_OPEN, RX_CLOSED };

struct rx_msg {
    enum rx_state state;
    enum weft_msg_outcome outcome;
    enum weft_msg_sink sink;
    bool unpolled;           /* closed, but its RECEIVED event is still in the ring */
    bool pass_over;
    bool must_known;         /* all parts of `must` are there */
    uint8_t critical;
    uint8_t priority;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;
    uint32_t lost_max;
    uint32_t received_count;
    uint32_t refused;
    uint32_t data_count_open; /* DATA packets that the peer had sent before its first of these */
    uint32_t data_heard_open; /* and that had arrived */
    uint32_t data_heard;     /* that arrived of this message */
    uint32_t critical_left;  /* critical chunks missing; UINT32_MAX: not known which they are */
    uint64_t seq;
    uint64_t tag;
    uint64_t user;
    uint64_t pass_over_ns;
    uint64_t timeout_ns;     /* absolute */
    uint32_t done_word;      /* first word of the mask that DONE has yet to carry */
    uint64_t done_first_pn;  /* packets that carried the last DONE */
    uint64_t done_last_pn;
    uint8_t *memory;
    uint64_t *received;      /* N bits */
    uint64_t *must;          /* N bits, when critical = WEFT_CRITICAL_MASKED */
    uint64_t few[RX_MASKS];  /* these two, up to FEW_CHUNKS; beyond they are in the arena */
    uint64_t must_parts[MASK_PARTS_WORDS]; /* parts of it that are there */
};

enum path_ecn { PATH_ECN_TESTING, PATH_ECN_UNKNOWN, PATH_ECN_CAPABLE, PATH_ECN_FAILED };

/* PATH_CHALLENGE to an address that packets of the peer came from. */
struct challenge {
    struct weft_addr addr;
    uint64_t token;
    uint64_t at_ns; /* when it was sent last; 0 = a free entry */
};

/* What is known of the way to a peer. */
struct path {
    uint32_t packet_bytes; /* UDP payload to build */
    bool ecn_capable;      /* marks of this path count; path.c */
    /* packet size: path.c */
    uint32_t base_bytes;       /* passes everywhere */
    uint32_t ceiling_bytes;    /* most that the configuration and the peer take */
    uint32_t refused_bytes;    /* least that did not pass; ceiling + 1 = none */
    uint32_t probe_bytes;      /* size in question; 0 = the search has ended */
    uint32_t companion_bytes;  /* asked for beside the first try; 0 = none */
    uint8_t probe_tries;
    bool probe_due;
    bool confirming;           /* probe_bytes is the size in use, which is in doubt */
    bool fragment;             /* not even the base passes: let the kernel fragment */
    uint64_t probe_pn;         /* in flight; 0 = none */
    uint64_t probe_ns;         /* given up at */
    uint64_t raise_ns;         /* search again from then on; WEFT_NEVER = no need */
    uint64_t large_pn;         /* newest packet longer than the base that is known to have passed */
    uint32_t large_bytes;      /* its size; sizes as packet_bytes, with the tag's room */
    uint64_t small_pn;         /* newest short packet that has passed */
    uint64_t small_counted_pn; /* as it was when the last round was counted */
    uint64_t large_lost_ns;    /* when the last one counted in large_lost was sent */
    uint32_t large_lost;       /* rounds in a row that lost such packets */
    uint32_t large_lost_bytes; /* the least of them: none as long has passed since; 0 = none */

    /* ECN: path.c */
    enum path_ecn ecn;
    uint32_t ecn_sent;         /* marked packets of the test */
    uint32_t ecn_lost;
    bool ecn_arrives;          /* marked packets do, whether or not they are acknowledged */
    uint32_t ecn_acked;        /* marked packets acknowledged since the counts were looked at */
    uint32_t ecn_ect;          /* counts of the newest ACK */
    uint32_t ecn_ce;
    uint64_t ecn_largest;      /* its `largest` */

    /* another address: path.c */
    struct challenge challenge[CHALLENGES];
    uint8_t challenges_due;    /* bit = of these, to be sent */
    uint64_t response_token;   /* to answer */
    bool response_due;
    uint64_t first_pn; /* sent on this way; earlier ones tell of another */
};

/* Words that may be the last between two ends. */
enum tail { TAIL_ACK = 1, TAIL_LAST = 2 };

enum peer_state { PEER_FREE, PEER_CONNECTING, PEER_HALF_OPEN, PEER_OPEN, PEER_CLOSING };

/* The connection: who is at the other end, how far the handshake is, and whether it still lives.
 * handshake.c, life.c, peers.c */
struct conn {
    enum peer_state state;
    struct weft_addr addr;
    uint32_t id;        /* ours: in packets to us */
    uint32_t remote_id; /* theirs: in packets to them */
    uint64_t name;
    uint64_t incarnation;
    uint32_t events_unpolled;      /* SENT and RECEIVED in the ring: they point to masks here */
    uint64_t hello_ns;             /* send HELLO at; WEFT_NEVER = not */
    uint64_t hello_interval_ns;
    uint64_t hello_since_ns;
    bool accepted;                 /* the other end said HELLO */
    bool need_accept;
    uint8_t accepts;               /* sent */
    uint64_t accept_ns;            /* when the first was */
    uint32_t hello_clock;          /* to echo in ACCEPT */
    bool replaced;                 /* by a newer session: goes down at the next deadline */
    bool need_close;
    bool need_ping;
    uint8_t announce_idle; /* packets that still have to say IDLE */
    bool idle;             /* it said IDLE */
    uint64_t heard_ns;     /* last valid packet */
    uint64_t timer_ns;     /* least of all timers of life.c */
    uint64_t ping_ns;      /* last keep-alive */
    uint64_t idle_pn;      /* number of the newest packet that said IDLE or ended it */
    uint16_t close_code;
    uint8_t close_sends; /* CLOSEs sent */
    bool close_told;     /* PEER_DOWN was raised */
    bool close_answered;
    bool idle_said;    /* by this end, which has heard nothing since */
    uint64_t close_ns; /* send CLOSE again at */
    uint64_t drain_ns; /* forget the connection at */
};

/* What the peer has granted this end, and what was used of it: tx.c */
struct allowed {
    uint32_t sent;                 /* DATA packets, cumulative */
    uint32_t limit;                /* DATA packets granted to us, cumulative */
    uint64_t turn_ns;              /* its last burst, or when credit came after there was none */
    uint8_t turn_probes;           /* of these, since credit came last, for want of it */
};

/* A token bucket: pacer.c */
struct pacer {
    int64_t tokens_bytes;          /* pacer's bucket */
    uint64_t tokens_ns;            /* last refilled */
    uint64_t until_ns;             /* blocked by the pacer until */
};

/* What is on its way to the peer: packets sent, round-trip time, losses, probe timeout. loss.c, tail.c */
struct recovery {
    uint64_t pn_next;              /* next packet number to send, from 1 */
    struct tx_packet *packets;     /* ring of tx_window_max */
    uint64_t *in_flight_bits;      /* by packet number mod tx_window_max */
    uint64_t *lost_bits;           /* declared lost, still in the ring */
    uint64_t pn_oldest;            /* none below is in flight */
    uint64_t pn_acked_largest;
    uint64_t in_flight_bytes;
    uint32_t in_flight_count;
    uint32_t reorder_threshold;
    uint64_t srtt_ns;              /* 0 = no sample */
    uint64_t rttvar_ns;
    uint64_t rtt_latest_ns;
    uint64_t answer_ns;            /* longest wait for an acknowledgement lately; decays */
    uint64_t rtt_ns_min;
    uint64_t loss_ns;              /* time-threshold timer */
    uint64_t pto_ns;
    uint64_t pto_base_ns;          /* last ack-eliciting send or progress */
    uint64_t wait_since_ns;        /* since when nothing was heard although awaited */
    uint32_t pto_count;
    uint8_t probes; /* PTO probes to send now */
    uint64_t round_end_pn;
    uint32_t ce_seen;
    uint64_t path_rtt_ns;          /* as srtt_ns, without any delay of the other end; 0 = no sample */
    uint64_t peer_delay_ns;        /* how long its acknowledgements may take, by its last ACK */
    bool bulk_last;                /* that goes for the newest packet, too */
    bool confirms_late;            /* it said LATER: it confirms answers late */
    uint64_t tail_ns;              /* say again at */
    uint8_t tail_said;             /* enum tail: said again, and nothing new since */
};

/* Outgoing messages: tx_msg.c, pace.c, critical.c */
struct tx_msgs {
    struct tx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t next_seq;
    uint64_t open_from;
    uint64_t active;               /* bit = seq mod WEFT_MSGS_MAX */
    uint64_t held;                 /* of these, not begun: pace.c */
    uint64_t paced;                /* of these, that rest because of their rate */
    uint64_t pace_ns;              /* least time at which one of both goes on */
    uint64_t answers;              /* of these, bit = may be confirmed late */
    uint64_t finish;               /* FINISH to send */
    uint64_t critical;             /* bit = CRITICAL to send */
    uint64_t deadline_ns;          /* least deadline of active messages */
    uint64_t probed_seq;           /* message of the last probe: they take turns */
    uint64_t unsent;               /* first-pass chunks of active messages still to send */
    bool need_backlog;             /* the receiver knows of more of them, or of fewer */
    struct weft_bounds bounds;
};

/* Incoming messages: rx.c */
struct rx_msgs {
    struct rx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t open_from;  /* the peer's */
    uint64_t live;       /* bit = state OPEN */
    uint64_t need_done;  /* bit = DONE to send */
    uint64_t later;      /* of these, bit = but that may wait */
    uint64_t closed;     /* bit = state CLOSED */
    uint64_t timer_ns;   /* least time at which an open message may close */
};

/* Packets that have come, and when they are acknowledged: ack.c */
struct ack {
    uint64_t window[RX_WINDOW_BLOCKS]; /* packet numbers received, by block mod 64 */
    uint64_t largest;                  /* received */
    uint64_t largest_ns;
    uint64_t gap_ns;               /* when a number was left out, last; 0 = never */
    uint64_t late_ns;              /* when one came behind a larger number, last; 0 = never */
    uint64_t low;                  /* lowest block changed since the last ACK */
    uint64_t low_before;           /* and in the ACK before */
    uint32_t pending;              /* ack-eliciting packets not acknowledged */
    bool at_once;
    uint64_t since_ns; /* when the first of these came */
    uint64_t due_ns;   /* send an ACK at */
    uint64_t sent_ns;  /* when the last one went out */
    uint64_t delay_ns; /* longest delay, as our last ACK said */
    uint32_t ect_received;
    uint32_t ce_received;
    uint32_t echo_clock; /* clock of the last ACK received, for DATA to echo */
    uint64_t echo_ns;    /* when it came; 0 = none */
};

/* What the peer sends here, and what it was granted: credit.c, credit_want.c */
struct peer_credit {
    uint32_t data_count;           /* highest seen, 32-bit */
    uint32_t data_heard;           /* DATA packets that arrived, 32-bit */
    uint64_t data_last_ns;         /* last DATA */
    uint64_t data_gap_ns;          /* decaying maximum of the gaps between its bursts */
    uint32_t backlog_end;          /* data_count when all is sent that the peer has for us, as it said */
    uint64_t backlog_pn;           /* number of the packet that said so; 0 = none */
    bool sender_limited;           /* as the last DATA packet said */
    uint8_t data_priority;         /* as the last long header of a DATA packet said */
    bool sender_told;              /* a short header has come */
    bool sender_shared;            /* as the last one said: it has other receivers, too */
    uint32_t granted;              /* DATA packets granted to it, cumulative */
    uint64_t since_ns;             /* since when it holds credit without a break */
    uint64_t turn;                 /* number of the last grant */
    uint64_t timer_ns;             /* look at its silence at */
    uint64_t retold_ns;            /* when it was told again */
    uint8_t silences;
    bool silent;                   /* holds credit and says nothing: not counted */
    uint32_t held;                 /* outstanding, of that what it uses; 0 when silent */
    uint32_t out;                  /* outstanding, used or not; 0 when silent */
    uint32_t room;                 /* how much more it could use */
    uint64_t left;                 /* DATA packets that it still has to send */
    bool counted_told;             /* its sender_told */
    bool counted_shared;           /* its sender_shared */
    uint8_t priority;              /* of its most urgent open message */
    uint64_t class;                /* of its shortest open message: power of two of its chunks */
    uint64_t rtt_ns;               /* its rtt_ns_min */
    uint64_t use_ns;               /* until then what it uses is counted */
    uint32_t use_count;            /* its data_count when that began */
    uint32_t use_granted;          /* and what it had been granted */
    uint32_t use_most;             /* more credit than that it cannot use, as it seems; 0 = not known */
};

/* A peer is its objects. Those that every packet needs lie together. */
struct peer {
    struct conn conn;
    struct secure sec;
    struct allowed allowed;
    struct pacer pacer;
    struct recovery recovery;
    struct weft_cc cc;
    struct path path;
    struct tx_msgs tx;
    struct rx_msgs rx;
    struct ack ack;
    struct peer_credit credit;
};

enum { PRIORITY_LAST = 7 };
enum { CREDIT_RATES = 10, PAUSE_PACKETS = 8 }; /* no packet for as long as so many take is a pause */

/* What this end grants to all its peers together. */
struct credit {
    bool dirty;              /* something changed since the last run */
    bool joined;             /* counted in the share of the host */
    bool window_wanted;      /* all through the window some sender wanted more than it had */
    uint64_t budget;         /* DATA packets that may be outstanding */
    uint64_t at_once_host;   /* that a buffer holds: without those on the wire */
    uint64_t bytes;          /* of DATA received, cumulative */
    uint64_t rate_bps;       /* most of the last windows */
    uint64_t rates_bps[CREDIT_RATES];
    uint32_t rate_next;
    uint32_t packet_bytes;   /* smoothed size of DATA packets */
    uint64_t window_ns;      /* begin of the window that is measured; 0 = none */
    uint64_t window_bytes;
    uint64_t span_packets;   /* counts since loss was last measured */
    uint64_t span_lost;
    uint64_t span_ce;
    uint64_t window_pause_ns; /* in which no DATA came for long */
    uint64_t pause_ns;       /* a longer gap between DATA is a pause */
    uint64_t last_ns;        /* last DATA */
    uint64_t slack_bytes;
    uint64_t late_ns;        /* most that DATA has lately waited in this end's socket */
    uint64_t slack_ceiling;  /* it is not tried beyond: packets were lost there */
    uint32_t loss_ppm;
    uint32_t loss_floor[2];  /* least loss_ppm of this and the previous 5 s */
    uint64_t floor_since_ns;
    uint64_t round_ns;       /* begin of the round */
    uint64_t turn;
    uint32_t turn_packets;   /* by turns: DATA packets between two grants to one peer; else 0 */
    uint32_t senders;        /* that a round is expected to have; 0 = none was seen yet */
    bool round_shared;       /* most senders have had other receivers, in this round */
    bool rounds_shared;      /* in the one before */
    bool turns;              /* one of these, or so it seems from those that have told */
    uint32_t senders_now;    /* most at a time since the last round */

    /* credit_want.c: over the peers that have a message open */
    uint32_t active;         /* how many they are */
    uint32_t told;           /* of these, that have said whether they have other receivers, too */
    uint32_t shared;         /* of these, that have */
    uint32_t wanting;        /* of these, that could use more credit */
    uint64_t total;          /* outstanding, without the silent and what is not used */
    uint64_t out;            /* outstanding, without the silent */
    uint64_t rtt_ns;         /* least rtt_ns_min; WEFT_NEVER = none is known */
    bool rtt_stale;          /* the peer that had it has another now */
    uint32_t allowance;      /* that they were counted with */
};

/* egress.c. Bytes of the queue are those on the wire, as near as the driver can tell. */
struct egress {
    uint64_t *waits;           /* bit = peer has chunks, and is not known to be kept by anything else */
    uint64_t *keys;            /* of those: place in the order, the least goes first */
    uint64_t *ages;            /* and when the message that is next was opened, by number */
    uint32_t waits_count;
    bool turns;                /* of the receiver's side (struct credit), as the keys were made with */
    uint32_t receivers;        /* peers with first-pass chunks still to send */
    uint64_t opened;           /* messages, so far */
    uint64_t bursts;           /* handed over, so far */
    bool asked;                /* the driver is to tell what waits in the host's queue */
    bool fresh;                /* it has, in this turn */
    bool waiting;              /* chunks wait until look_ns for the queue to drain */
    bool late;                 /* that time has come */
    bool handed_over;          /* something, since it told */
    uint64_t room_bytes;       /* to hand over; UINT64_MAX = no limit */
    uint64_t look_ns;
    uint64_t queued_bytes;     /* as told after something was handed over last */
    uint64_t queued_ns;
    uint64_t rate_bps;         /* at which it drains; 0 = not known */
    uint64_t limit_bytes;
    uint64_t few_bytes;        /* four packets */
    uint64_t left_least_bytes; /* at late looks; UINT64_MAX = none yet */
    uint32_t looks;
    uint64_t still_bytes;      /* most that was told since it last fell */
    uint64_t still_ns;
    uint64_t stuck_bytes;      /* of what is told: they do not drain */
    uint32_t haste;            /* the next look comes earlier by this power of two */
};

/* trace.c: the ring of records; records = NULL when it is off. */
struct trace {
    struct weft_trace_record *records;
    uint32_t mask;
    uint64_t written;
    uint64_t now_ns;               /* of the call of the crank that runs */
    uint64_t drops[WEFT_TRACE_DROP_END]; /* counters as last written */
};

struct deadline {
    uint64_t at_ns;
    uint32_t peer;
};

struct weft_ep {
    struct trace trace;
    struct weft_ep_config config;
    struct weft_ep_counters counters;
    struct weft_prng prng;
    struct peer *peers;
    uint32_t peers_used;           /* highest index in use + 1 */
    struct deadline *heap;         /* of peers, by at_ns */
    uint32_t *heap_pos;            /* of each peer; UINT32_MAX = not in it */
    uint32_t heap_count;
    uint64_t *ready;               /* bit = peer may have something to send */
    uint32_t send_cursor;
    struct weft_expects expects;
    struct weft_msg_event *events; /* ring of EVENTS_MAX */
    uint32_t event_head;
    uint32_t event_count;
    uint64_t lost_ns;              /* when a packet to any peer was declared lost, last; 0 = never */
    uint64_t resumed_ns;           /* when a long pause of ours ended: nobody's silence counts before */
    const struct weft_cc_ops *cc_ops;
    struct egress egress;
    struct credit credit;
    uint64_t *credit_active;       /* bit = peer has a message open here */
    uint64_t *credit_wants;        /* of these, bit = it could use more credit */
    uint64_t *credit_touched;      /* bit = to be counted again */
    struct guard guard;
    uint64_t rekey_packets;        /* packets under one send key */
    uint64_t *bitmaps;             /* arena of all masks: those of a place of tx_arena, then of rx_arena */
    struct tx_msg *tx_arena;
    struct rx_msg *rx_arena;
    struct tx_packet *packet_arena;
    uint64_t *packet_bits_arena;
};

/* msgr.c */
uint32_t weft_core_grid(const struct weft_ep *ep, const struct peer *p, uint16_t elem_bytes,
                        uint32_t total);
uint32_t weft_core_chunk_elems(uint32_t packet_bytes, uint16_t elem_bytes);
struct weft_msg_event *weft_core_event_push(struct weft_ep *ep);

/* timers.c */
/* The peer has no deadline any more. */
void weft_core_timers_remove(struct weft_ep *ep, const struct peer *p);
/* What send has done may have moved the peer's timers: set them, and file the peer by the least. */
void weft_core_timers_arm(struct weft_ep *ep, struct peer *p);

/* peers.c */
void weft_core_peer_ready(struct weft_ep *ep, struct peer *p);
struct peer *weft_core_peer_take(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns);
void weft_core_peer_down(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                         uint64_t now_ns);
void weft_core_peer_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* SENT and RECEIVED of all its messages, then PEER_DOWN. */
void weft_core_peer_end(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns);
void weft_core_peer_clear(struct weft_ep *ep, struct peer *p);
bool weft_core_peer_quiet(const struct peer *p);
static inline uint32_t peer_idx(const struct weft_ep *ep, const struct peer *p)
{
    return (uint32_t)(p - ep->peers);
}
/* ACCEPT came, and nothing since: whether the other end knows that it came is not known. */
static inline bool peer_unheard(const struct peer *p)
{
    return p->conn.state == PEER_OPEN && !p->conn.accepted && p->ack.largest == 0;
}
static inline bool addr_equal(const struct weft_addr *a, const struct weft_addr *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}
/* Messages that have begun. */
static inline uint64_t tx_awake(const struct peer *p)
{
    return p->tx.active & ~p->tx.held;
}
/* Place of a message among those of its peer. */
static inline uint16_t tx_order(uint8_t priority, bool paced, uint8_t rank)
{
    return (uint16_t)(priority << 9 | (paced ? 1 << 8 | rank : 0));
}
static inline bool tx_ranked(const struct tx_msg *m)
{
    return (m->order >> 8 & 1) != 0;
}
/* Something that matters is on its way: a message without its DONE, a DONE that may be lost, or the
 * first PING, without which the other end forgets a connection that it takes for half open. That
 * PING counts before it is sent: PEER_UP is polled first, and an application that went to sleep
 * then would not have said IDLE.
 * PINGs and copies of closed messages in flight are no reason to ask again; when they were, a
 * server kept 64 slow workers' sockets full of PINGs. */
static inline bool peer_waiting(const struct peer *p)
{
    bool rests = p->recovery.in_flight_count == 0 && (tx_awake(p) & ~p->tx.paced) == 0;
    return (tx_awake(p) != 0 && !rests) || peer_unheard(p) ||
           (p->rx.closed != 0 && p->recovery.in_flight_count > 0);
}
/* A keep-alive PING went out and nothing has been heard since. */
static inline bool peer_asked(const struct peer *p)
{
    return p->conn.ping_ns > p->conn.heard_ns;
}
static inline bool peer_connected(const struct peer *p)
{
    return p->conn.state == PEER_OPEN || p->conn.state == PEER_HALF_OPEN;
}

/* ahead.c: what verifying and taking apart the packet that has come of this peer will touch, and then
 * what the layer above will. */
void weft_core_ahead(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns);
void weft_core_ahead_of_events(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns);

/* handshake.c */
/* The peer that waits for an answer to its HELLO; NULL. */
struct peer *weft_core_connecting_find(struct weft_ep *ep, uint32_t connection_id,
                                       const struct weft_addr *from);
/* p is about to come up: older sessions with the same other end go down. */
void weft_core_older_replace(struct weft_ep *ep, const struct peer *p, uint64_t now_ns);
void weft_core_hello_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                          size_t count, uint64_t now_ns);
void weft_core_accept_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                           size_t count, uint64_t at_ns, uint64_t now_ns);
uint32_t weft_core_hello_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_tx *tx);
uint32_t weft_core_accept_build(struct weft_ep *ep, struct peer *p, struct weft_tx *tx);

/* ack.c */
/* How long the acknowledgement of a chunk in the middle of a pass may wait; not so long that of a mark,
 * for its sender is to slow down. */
uint64_t weft_core_ack_delay(const struct peer *p, bool ce);
/* An ack-eliciting packet came: acknowledge it within delay_ns. */
static inline void weft_core_ack_owe(struct peer *p, uint64_t delay_ns, uint64_t now_ns)
{
    p->ack.since_ns = p->ack.pending == 0 ? now_ns : p->ack.since_ns;
    p->ack.pending++;
    p->ack.due_ns = weft_min_u64(p->ack.due_ns, now_ns + delay_ns);
    bool late = now_ns - p->ack.since_ns >= ack_delay_ns_min;
    if (p->ack.pending >= (late ? ACK_EVERY_LATE : ACK_EVERY)) {
        p->ack.at_once = true;
    }
}
/* Remember that packet pn came, to acknowledge it. */
static inline void weft_core_ack_commit(struct peer *p, uint64_t pn, uint64_t at_ns)
{
    uint64_t block = pn / 64;
    if (pn > p->ack.largest) {
        uint64_t from = p->ack.largest / 64 + 1;
        if (block >= from + RX_WINDOW_BLOCKS) {
            from = block - RX_WINDOW_BLOCKS + 1;
        }
        for (uint64_t b = from; b <= block; b++) {
            p->ack.window[b % RX_WINDOW_BLOCKS] = 0;
        }
        if (pn > p->ack.largest + 1) {
            p->ack.at_once = true; /* a gap: tell at once */
            p->ack.gap_ns = at_ns;
        }
        p->ack.largest = pn;
        p->ack.largest_ns = at_ns;
    } else {
        p->ack.late_ns = at_ns;
    }
    p->ack.window[block % RX_WINDOW_BLOCKS] |= UINT64_C(1) << (pn % 64);
    p->ack.low = weft_min_u64(p->ack.low, block);
}
void weft_core_ack_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                        struct weft_wire_ack *ack, size_t room);

/* verify.c */
/* What is in a packet that is verified. */
struct incoming {
    bool eliciting;                /* its sender waits for an acknowledgement */
    struct weft_wire_packet packet;
    struct weft_wire_data data;    /* when packet.data is set; that of a short header is completed */
};
/* The peer that a packet is of, and what is in it; NULL: it is dropped, and counted. */
struct peer *weft_core_packet_verify(struct weft_ep *ep, const struct weft_addr *from,
                                     uint8_t *bytes, size_t count, uint64_t now_ns,
                                     struct incoming *in);

/* rx.c */
void weft_core_packet_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                           uint8_t *bytes, size_t count, uint64_t at_ns, uint64_t now_ns);
void weft_core_rx_open_from(struct weft_ep *ep, struct peer *p, uint64_t open_from);
void weft_core_rx_timer_arm(struct peer *p);
void weft_core_rx_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_rx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* credit.c */
void weft_core_credit_init(struct weft_ep *ep);
void weft_core_credit_fini(struct weft_ep *ep);
/* What a new connection may send before it has an ACK. */
uint16_t weft_core_credit_first(const struct weft_ep *ep);
void weft_core_credit_packet(struct weft_ep *ep, struct peer *p, uint32_t ahead, uint64_t bytes,
                             bool data, bool ce, uint64_t at_ns, uint64_t now_ns);
void weft_core_credit_run(struct weft_ep *ep, uint64_t now_ns);
uint32_t weft_core_credit_told(const struct weft_ep *ep, struct peer *p);
uint64_t weft_core_credit_silent_since(const struct peer *p);
void weft_core_credit_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_credit_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* credit_want.c */
/* DATA packets that the peer has said it has for this end, and has not sent. */
uint32_t weft_core_credit_backlog(const struct peer *p);
void weft_core_credit_backlog_told(struct weft_ep *ep, struct peer *p, uint32_t end, uint64_t pn,
                                   uint64_t now_ns);
/* No message of it is open any more. */
void weft_core_credit_closed(struct weft_ep *ep, struct peer *p);
void weft_core_credit_open(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_credit_idle(struct weft_ep *ep, struct peer *p);
void weft_core_credit_touch(struct weft_ep *ep, const struct peer *p);
void weft_core_credit_count(struct weft_ep *ep);
void weft_core_credit_look(struct weft_ep *ep, struct peer *p);
/* A DATA packet of the peer came, use_ns or later. */
void weft_core_credit_use(const struct weft_ep *ep, struct peer *p, uint64_t at_ns);
/* limited: who does not use what it holds waits, too. */
struct peer *weft_core_credit_pick(struct weft_ep *ep, bool longest, bool turns, bool limited,
                                   uint64_t most);
uint32_t weft_core_credit_allowance(const struct weft_ep *ep);
uint64_t weft_core_credit_remaining(const struct peer *p);

/* Of that, what the peer can have on its way, by what it lately had. */
static inline uint32_t weft_core_credit_usable(const struct weft_ep *ep, const struct peer *p,
                                               uint64_t packets)
{
    const struct credit *c = &ep->credit;
    bool known =
        p->credit.use_most != 0 && c->active > 1 && !c->turns; /* alone it takes it from nobody */
    return (uint32_t)(known ? weft_min_u64(packets, p->credit.use_most) : packets);
}

static inline uint32_t weft_core_credit_outstanding(const struct peer *p)
{
    int32_t ahead = (int32_t)(p->credit.granted - p->credit.data_count);
    return ahead > 0 ? (uint32_t)ahead : 0;
}

/* loss.c */
uint64_t weft_core_pto_base(const struct peer *p);
void weft_core_rtt_sample(struct peer *p, uint64_t rtt_ns, uint64_t delay_ns);
void weft_core_ack_recv(struct weft_ep *ep, struct peer *p, uint64_t pn,
                        const struct weft_wire_ack *ack,
                        uint64_t at_ns, uint64_t now_ns);
void weft_core_packet_sent(struct weft_ep *ep, struct peer *p, uint64_t now_ns, uint8_t kind,
                           uint32_t msg, uint32_t chunk, uint32_t bytes);
/* The peer asks again for what was answered: was the answer lost? */
void weft_core_answer_again(struct weft_ep *ep, struct peer *p, uint64_t at_ns);
void weft_core_loss_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_pto_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_pto_fire(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* tail.c */
void weft_core_tail_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_tail_fire(const struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* A packet to some peer was declared lost not long ago. */
static inline bool losses_likely(const struct weft_ep *ep, uint64_t now_ns)
{
    return ep->lost_ns != 0 && now_ns < ep->lost_ns + lossy_ns;
}

/* tx_msg.c */
weft_status weft_core_tx_open(struct weft_ep *ep, struct peer *p, const struct weft_msg_send *send,
                              uint64_t now_ns, uint64_t *seq_p);
struct tx_msg *weft_core_tx_find(struct peer *p, uint32_t msg);
void weft_core_tx_acked(struct tx_msg *m, uint32_t chunk, bool was_in_flight);
void weft_core_tx_lost(struct tx_msg *m, uint32_t chunk);
bool weft_core_tx_satisfied(const struct tx_msg *m);
bool weft_core_tx_over(const struct tx_msg *m);
/* The next chunk of the peer's messages to send, not taken yet; NULL = nothing. */
struct tx_msg *weft_core_tx_peek(struct peer *p, uint32_t *chunk_p, bool *again_p);
void weft_core_tx_take(struct tx_msg *m, uint32_t chunk, bool again);
/* For a probe: the next message that waits, in turn. *chunk_p = UINT32_MAX when only FINISH is
 * due. */
struct tx_msg *weft_core_tx_probe(struct peer *p, uint32_t *chunk_p);
void weft_core_done_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_done *done,
                         uint64_t now_ns);
void weft_core_tx_timer(struct peer *p, uint64_t now_ns);
void weft_core_tx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
static inline uint32_t tx_chunk_bytes(const struct tx_msg *m, uint32_t chunk)
{
    uint64_t first = (uint64_t)chunk * m->chunk_elems;
    return (uint32_t)(weft_min_u64(m->total - first, m->chunk_elems) * m->elem_bytes);
}

/* SENT for one that was taken back. */
void weft_core_tx_withdrawn(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns);

/* pace.c */
weft_status weft_core_pace(struct weft_ep *ep, struct peer *p, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns);
weft_status weft_core_withdraw(struct weft_ep *ep, struct peer *p, uint64_t seq, uint64_t now_ns);
/* A packet with a chunk of m, which has a rate, goes out. */
void weft_core_pace_sent(struct peer *p, struct tx_msg *m, uint32_t bytes, uint64_t now_ns);
void weft_core_pace_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* critical.c */
void weft_core_critical_open(struct tx_msg *m, const uint64_t *mask, uint32_t leading);
uint32_t weft_core_critical_lost(const struct tx_msg *m);
uint32_t weft_core_critical_unacked(const struct tx_msg *m);
void weft_core_critical_wake(struct peer *p, const struct tx_msg *m);
bool weft_core_critical_write(struct peer *p, struct weft_writer *w, uint32_t *msg_p,
                              uint32_t *parts_p);
void weft_core_critical_packet_lost(struct peer *p, uint32_t msg, uint32_t parts);
bool weft_core_critical_missing(const struct tx_msg *m);
bool weft_core_critical_recv(struct weft_ep *ep, struct peer *p,
                             const struct weft_wire_critical *frame);
static inline bool tx_critical_chunk(const struct tx_msg *m, uint32_t chunk)
{
    return m->masked ? weft_bits_test(m->must, chunk) : chunk < m->critical;
}
static inline bool rx_critical_chunk(const struct rx_msg *m, uint32_t chunk)
{
    return m->critical == WEFT_CRITICAL_MASKED ? m->must_known && weft_bits_test(m->must, chunk)
                                               : chunk < m->critical;
}
/* 64-bit sequence number of an incoming message; defined in rx.c. */
uint64_t weft_core_rx_seq(const struct peer *p, uint32_t msg);
uint64_t weft_core_brief_seq(const struct peer *p, uint16_t msg);

/* trace.c */
bool weft_core_trace_init(struct weft_ep *ep);
void weft_core_trace_write(struct weft_ep *ep, const struct peer *p, enum weft_trace_type type,
                           unsigned flags, uint64_t number, uint64_t a, uint64_t b, uint64_t c);
void weft_core_trace_round(struct weft_ep *ep, const struct peer *p);
void weft_core_trace_burst(struct weft_ep *ep, const struct peer *p, const struct weft_tx *tx);
void weft_core_trace_drops_find(struct weft_ep *ep);
static inline bool trace_on(const struct weft_ep *ep)
{
    return __builtin_expect(ep->trace.records != NULL, 0);
}
/* One line at each place where something happens; p = NULL: no peer. */
static inline void trace(struct weft_ep *ep, const struct peer *p, enum weft_trace_type type,
                         unsigned flags, uint64_t number, uint64_t a, uint64_t b, uint64_t c)
{
    if (trace_on(ep)) {
        weft_core_trace_write(ep, p, type, flags, number, a, b, c);
    }
}
static inline void trace_rtt(struct weft_ep *ep, const struct peer *p)
{
    trace(ep, p, WEFT_TRACE_RTT, 0, p->recovery.rtt_ns_min, p->recovery.rtt_latest_ns,
          p->recovery.srtt_ns, p->recovery.rttvar_ns);
}
static inline void trace_round(struct weft_ep *ep, const struct peer *p,
                               const struct weft_cc_sample *sample)
{
    if (trace_on(ep) && sample->round_end) {
        weft_core_trace_round(ep, p);
    }
}

/* egress.c */
bool weft_core_egress_init(struct weft_ep *ep);
void weft_core_egress_fini(struct weft_ep *ep);
/* The peer takes its place in the order, or leaves it when it has no chunk to send. */
void weft_core_egress_file(struct weft_ep *ep, struct peer *p);
void weft_core_egress_leave(struct weft_ep *ep, const struct peer *p);
/* Whose burst is next; NULL: nobody's, or not before the host's queue has drained or is known. */
struct peer *weft_core_egress_next(struct weft_ep *ep);
void weft_core_egress_sent(struct weft_ep *ep, uint64_t bytes);
/* So many more first-pass chunks of this peer's messages are to be sent, or fewer. */
void weft_core_egress_unsent(struct weft_ep *ep, struct peer *p, int64_t chunks);
void weft_core_egress_turn(struct weft_ep *ep, uint64_t now_ns);
/* It could send, and only its turn or the host's queue keeps it. */
static inline bool egress_waits(const struct weft_ep *ep, const struct peer *p)
{
    return weft_bits_test(ep->egress.waits, peer_idx(ep, p));
}

/* pacer.c */
void weft_core_pacer_refill(struct peer *p, uint64_t now_ns);
/* May a packet of so many bytes go now? If not, the peer's pacer wakes when it may. */
bool weft_core_pacer_allows(struct peer *p, uint32_t bytes, uint64_t now_ns);
uint64_t weft_core_time_of(uint64_t rate_bps, uint64_t bytes);

/* tx.c */
/* The next packet that is not a chunk's burst; 0 = there is none, and the peer has its place among
 * those with chunks. */
uint32_t weft_core_peer_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                             struct weft_tx *tx);
/* Its next burst of chunks; 0 = window, credit or pacer do not allow one. */
uint32_t weft_core_burst_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx);
/* A packet of one frame and `zeros` bytes behind it, to addr; numbered, not tracked. */
uint32_t weft_core_frame_build(struct weft_ep *ep, struct peer *p, const struct weft_addr *addr,
                               const struct weft_wire_frame *frame, uint32_t zeros,
                               struct weft_tx *tx);

/* path.c */
/* The packet size that a packet of so many bytes asks of a path: sizes leave room for a tag in every
 * mode, as the probes that measure them do. */
uint32_t weft_core_path_room(const struct peer *p, uint32_t bytes);
void weft_core_path_init(const struct weft_ep *ep, struct peer *p);
/* The handshake is over: begin what asks the network. */
void weft_core_path_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_path_acked(struct weft_ep *ep, struct peer *p, uint64_t pn,
                          const struct tx_packet *packet);
void weft_core_path_lost(struct weft_ep *ep, struct peer *p, uint64_t pn,
                         const struct tx_packet *packet);
bool weft_core_ecn_marks(const struct weft_ep *ep, const struct peer *p);
void weft_core_ecn_sent(struct peer *p);
void weft_core_ecn_silence(struct peer *p);
void weft_core_ecn_check(struct weft_ep *ep, struct peer *p, const struct weft_wire_ack *ack);
/* A valid packet with the connection's id came from another address than the peer's. True: the
 * peer has proved that it is there, and is reached there from now on. */
bool weft_core_path_stray(struct weft_ep *ep, struct peer *p, const struct weft_addr *from,
                          const struct weft_wire_packet *packet, uint64_t now_ns);
/* What is due of size search and challenge, as one packet; 0 = nothing. */
uint32_t weft_core_path_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx);
void weft_core_path_probe_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* life.c */
void weft_core_life_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_life_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* End the connection, with CLOSE; PEER_DOWN now, or (LOCAL) by the next on_deadline. */
void weft_core_close(struct weft_ep *ep, struct peer *p, enum weft_msg_down why, uint16_t code,
                     uint64_t now_ns);
void weft_core_close_recv(struct weft_ep *ep, struct peer *p, uint16_t code, uint64_t now_ns);
void weft_core_closing_recv(struct weft_ep *ep, struct peer *p,
                            const struct weft_wire_packet *packet);
bool weft_core_closing(const struct peer *p);
/* A valid packet said IDLE, or of a peer that had said it: did not. */
void weft_core_idle_note(struct peer *p, uint64_t pn);
void weft_core_awake_note(struct peer *p, uint64_t pn, uint64_t now_ns);

#endif
