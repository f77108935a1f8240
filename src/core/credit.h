/* Credit: the DATA packets that may be in flight. Internal to src/core.
 *
 *   credit.c        the budget of this end, and its distribution to the senders
 *   credit_want.c   accounting of the credit that senders hold and want
 *   credit_far.c    senders whose round trips other traffic makes long
 *   tx.c            use of the credit that the peer has granted this end
 */
#ifndef WEFT_CORE_CREDIT_H
#define WEFT_CORE_CREDIT_H

#include "core/limits.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

/* Credit that the peer has granted to this end, and its use (tx.c). */
struct allowed {
    uint32_t sent;       /* DATA packets sent, cumulative */
    uint32_t limit;      /* DATA packets granted to this end, cumulative */
    uint64_t turn_ns;    /* time of the last burst, or of the arrival of credit if there was none
                          * before */
    uint8_t turn_probes; /* probes for lack of credit since credit last arrived */
};

static inline void allowed_begin(struct allowed *a, uint32_t packets)
{
    a->limit = packets;
}
/* The peer has granted more credit. */
static inline void allowed_more(struct allowed *a, uint32_t limit, uint64_t at_ns)
{
    a->turn_ns = (int32_t)(a->limit - a->sent) <= 0 ? at_ns : a->turn_ns;
    a->limit = limit;
    a->turn_probes = 0;
}
/* Count a probe for lack of credit, up to `most`. */
static inline void allowed_asked(struct allowed *a, uint8_t most)
{
    a->turn_probes += a->turn_probes < most;
}

/* DATA received from the peer, and the credit granted to it (credit.c, credit_want.c). */
struct peer_credit {
    uint32_t data_count;   /* DATA packets sent by the peer: largest value seen, 32-bit */
    uint32_t data_heard;   /* DATA packets received, 32-bit */
    uint64_t data_last_ns; /* arrival of the last DATA */
    uint64_t data_gap_ns;  /* maximum of the gaps between bursts; decays */
    uint32_t backlog_end;  /* data_count at the end of the backlog announced in BACKLOG */
    uint64_t backlog_pn;   /* packet number of that BACKLOG; 0 = none */
    bool sender_limited;   /* flag SENDER_LIMITED of the last DATA packet */
    uint8_t data_priority; /* priority in the last long header of a DATA packet */
    bool sender_told;      /* a short header was received */
    bool sender_shared;    /* flag SHARED of the last short header: the sender has other receivers,
                            * too */
    uint32_t granted;      /* DATA packets granted to the peer, cumulative */
    uint64_t since_ns;     /* the peer has held credit without interruption since this time */
    uint64_t turn;         /* number of the last grant */
    uint64_t timer_ns;     /* next check for silence */
    uint64_t retold_ns;    /* time of the last repetition of the grant */
    uint8_t silences;      /* number of consecutive repetitions of the grant */
    bool silent;           /* the peer holds credit and sends nothing: its credit is not counted */
    uint32_t held;         /* outstanding credit that the peer uses, without `far`; 0 when silent */
    uint32_t out;          /* outstanding credit, used or not, without `far`; 0 when silent */
    uint32_t far;          /* packets of its credit that need not count as at this end's link */
    uint32_t far_out;      /* outstanding credit that the peer has as a far sender */
    uint32_t far_end;      /* `granted` when the peer was last allowed credit as a far sender */
    uint32_t room;         /* additional credit that the peer could use */
    uint64_t left;         /* estimated number of DATA packets that the peer still has to send */
    bool counted_told;     /* sender_told, as counted in struct credit */
    bool counted_shared;   /* sender_shared, as counted in struct credit */
    uint8_t priority;      /* priority of its most urgent open message */
    uint64_t class;        /* size class of its shortest open message: log2 of its chunks */
    uint64_t rtt_ns;       /* rtt_ns_min, as counted in struct credit */
    uint64_t use_ns;       /* end of the current measurement of use */
    uint32_t use_count;    /* data_count at its start */
    uint32_t use_granted;  /* granted at its start */
    uint32_t use_most;     /* most credit that the peer can use, by its recent use; 0 = not known */
};

static inline void credit_begin(struct peer_credit *c, uint32_t packets)
{
    c->granted = packets;
}
/* The peer has no backlog. */
static inline void credit_backlog_none(struct peer_credit *c)
{
    c->backlog_end = c->data_count;
}
/* Process the data_count of a packet. An increase is limited to the credit granted plus probes,
 * which need no credit. Without this limit, a malicious peer with the key could claim that it used
 * more credit than there is, and that packets were lost, which would count as loss of the link.
 * Returns the number of new DATA packets. */
static inline uint32_t credit_data_count(struct peer_credit *c, uint16_t data_count, bool data)
{
    int16_t ahead = (int16_t)(data_count - (uint16_t)c->data_count);
    uint32_t news = 0;
    if (ahead > 0) {
        int32_t credit = (int32_t)(c->granted - c->data_count);
        uint32_t left = credit > 0 ? (uint32_t)credit : 0;
        uint32_t taken = (uint32_t)weft_min_u64((uint32_t)ahead, left + PROBES_UNHEARD_MAX);
        c->data_count += taken;
        /* Only packets with credit count as lost, so probes on a dead path do not. */
        news = (uint32_t)weft_min_u64(taken, left + data);
    }
    if ((int32_t)(c->backlog_end - c->data_count) < 0) {
        credit_backlog_none(c); /* otherwise backlog_end would appear to be ahead again after 2^31
                                 * packets */
    }
    if ((int32_t)(c->far_end - c->data_count) < 0) {
        c->far_end = c->data_count; /* as backlog_end */
    }
    return news;
}
/* Only gaps of comparable size decay the maximum. If the small gaps within a burst did, each burst
 * would erase the pause before it. */
static inline void credit_gap(struct peer_credit *c, uint64_t gap_ns)
{
    if (gap_ns >= c->data_gap_ns) {
        c->data_gap_ns = gap_ns;
    } else if (gap_ns > c->data_gap_ns / 8) {
        c->data_gap_ns -= c->data_gap_ns / 8;
    }
}
/* A DATA packet was received. `open`: a message of the peer was open. */
static inline void credit_data(struct peer_credit *c, uint8_t flags, bool open, uint64_t at_ns)
{
    if (open && at_ns > c->data_last_ns) {
        credit_gap(c, weft_min_u64(at_ns - c->data_last_ns, 10 * WEFT_NS_PER_MS));
    }
    c->data_last_ns = weft_max_u64(c->data_last_ns, at_ns);
    c->sender_limited = (flags & WEFT_FLAG_SENDER_LIMITED) != 0;
    c->data_heard++;
}
/* Record the SHARED flag of a short header, and the priority of a long one. */
static inline void credit_shared(struct peer_credit *c, bool shared)
{
    c->sender_told = true;
    c->sender_shared = shared;
}
static inline void credit_urgency(struct peer_credit *c, uint8_t priority)
{
    c->data_priority = priority;
}

enum { CREDIT_RATES = 10, PAUSE_PACKETS = 8 }; /* a gap of this many packet times is a pause */

/* Credit that this end grants to all its peers together. */
struct credit {
    bool dirty;            /* an input of the grants changed since they were last computed */
    bool joined;           /* this endpoint is counted in the credit share of the host */
    bool window_wanted;    /* at all times in the window some sender wanted more credit */
    uint64_t budget;       /* DATA packets that may be outstanding */
    uint64_t at_once_host; /* safe bytes and slack, in packets: the queue that credit allows */
    uint64_t bytes;        /* bytes of DATA received, cumulative */
    uint64_t rate_bps;     /* maximum receive rate of the last windows */
    uint64_t rates_bps[CREDIT_RATES];
    uint32_t rate_next;
    uint32_t packet_bytes; /* smoothed size of DATA packets */
    uint64_t window_ns;    /* start of the measured window; 0 = none */
    uint64_t window_bytes;
    uint64_t span_packets; /* counts since the last measurement of loss */
    uint64_t span_lost;
    uint64_t span_ce;
    uint64_t window_pause_ns; /* total of the pauses in the window */
    uint64_t pause_ns;        /* a longer gap between DATA is a pause */
    uint64_t last_ns;         /* arrival of the last DATA */
    uint64_t slack_bytes;
    uint64_t late_ns;       /* longest recent wait of DATA in the socket */
    uint64_t slack_ceiling; /* upper bound of the slack after losses */
    uint64_t far_ceiling;   /* the same for a far sender, also after marks */
    uint32_t loss_ppm;
    uint32_t loss_floor[2]; /* minimum of loss_ppm in the current and the previous 5 s */
    uint64_t floor_since_ns;
    uint64_t round_ns; /* start of the round */
    uint64_t turn;
    uint32_t turn_packets; /* in round-robin mode: DATA packets between two grants to one peer; else
                            * 0 */
    uint32_t senders;      /* expected number in a round; 0 = no round yet */
    bool round_shared;     /* in this round, most senders have had other receivers */
    bool rounds_shared;    /* round_shared of the previous round */
    bool turns;            /* round-robin mode: one of these two is set, or the flags received so
                            * far require it */
    uint32_t senders_now;  /* maximum number of senders at the same time since the last round */

    /* credit_want.c: sums over the active peers, which have a message open or a backlog */
    uint32_t active;    /* number of active peers */
    uint32_t told;      /* of these, those with a SHARED flag received */
    uint32_t shared;    /* of these, those with other receivers, too */
    uint32_t wanting;   /* active peers that could use more credit */
    uint64_t total;     /* outstanding credit in use, without silent peers and far_out */
    uint64_t out;       /* outstanding credit, without silent peers and far_out */
    uint64_t far;       /* sum of far_out, of the idle peers, too */
    uint64_t rtt_ns;    /* minimum of rtt_ns_min; WEFT_NEVER = none known */
    uint64_t near_ns[2]; /* least round trip of a sender of DATA in this window, and in the last
                          * window with DATA; WEFT_NEVER = none known */
    bool rtt_stale;     /* the value of the peer with the minimum has changed since */
    uint32_t allowance; /* allowance at the last count */
};

/* credit.c */
void weft_core_credit_init(struct weft_ep *ep);
void weft_core_credit_fini(struct weft_ep *ep);
/* Credit of a new connection before its first ACK. */
uint16_t weft_core_credit_first(const struct weft_ep *ep);
void weft_core_credit_packet(struct weft_ep *ep, struct peer *p, uint32_t ahead, uint64_t bytes,
                             bool data, bool ce, uint64_t at_ns, uint64_t now_ns);
void weft_core_credit_run(struct weft_ep *ep, uint64_t now_ns);
uint32_t weft_core_credit_told(struct weft_ep *ep, struct peer *p);
uint64_t weft_core_credit_silent_since(const struct peer *p);
void weft_core_credit_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_credit_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* credit_want.c */
/* DATA packets that the peer has announced in BACKLOG and not sent yet. */
uint32_t weft_core_credit_backlog(const struct peer *p);
void weft_core_credit_backlog_told(struct weft_ep *ep, struct peer *p, uint32_t end, uint64_t pn,
                                   uint64_t now_ns);
/* The last open message of the peer was closed. */
void weft_core_credit_closed(struct weft_ep *ep, struct peer *p);
void weft_core_credit_open(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_credit_idle(struct weft_ep *ep, struct peer *p);
void weft_core_credit_touch(struct weft_ep *ep, const struct peer *p);
void weft_core_credit_count(struct weft_ep *ep);
void weft_core_credit_look(struct weft_ep *ep, struct peer *p);
/* A DATA packet of the peer arrived at use_ns or later: begin the next measurement of use. */
void weft_core_credit_use(const struct weft_ep *ep, struct peer *p, uint64_t at_ns);
/* limited: skip senders that do not use their credit. */
struct peer *weft_core_credit_pick(struct weft_ep *ep, bool longest, bool turns, bool limited,
                                   uint64_t most);
uint32_t weft_core_credit_allowance(const struct weft_ep *ep);
uint64_t weft_core_credit_senders(const struct weft_ep *ep);
/* The allowance of this peer: more for a far one. */
uint32_t weft_core_credit_allowance_of(const struct weft_ep *ep, const struct peer *p);
uint64_t weft_core_credit_remaining(const struct peer *p);

/* credit_far.c */
/* Number of packets by which the peer is a far sender. */
uint32_t weft_core_credit_far(const struct weft_ep *ep, const struct peer *p);
/* The peer holds credit for this many packets as a far sender. */
void weft_core_credit_far_out(struct weft_ep *ep, struct peer *p, uint32_t packets);
/* The same of an idle peer: what it holds beyond the allowance. */
void weft_core_credit_idle_far(struct weft_ep *ep, struct peer *p);

#endif
