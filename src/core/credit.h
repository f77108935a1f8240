/* Credit: DATA packets that may be on their way. Internal to src/core.
 *
 *   credit.c        the budget of this end, and who gets it
 *   credit_want.c   what the senders hold and what they want
 *   tx.c            uses what the peer has granted this end
 */
#ifndef WEFT_CORE_CREDIT_H
#define WEFT_CORE_CREDIT_H

#include "core/limits.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

/* What the peer has granted this end, and what was used of it: tx.c */
struct allowed {
    uint32_t sent;                 /* DATA packets, cumulative */
    uint32_t limit;                /* DATA packets granted to us, cumulative */
    uint64_t turn_ns;              /* its last burst, or when credit arrived after there was none */
    uint8_t turn_probes;           /* sent for lack of credit since credit last arrived */
};

static inline void allowed_begin(struct allowed *a, uint32_t packets)
{
    a->limit = packets;
}
/* The peer grants more. */
static inline void allowed_more(struct allowed *a, uint32_t limit, uint64_t at_ns)
{
    a->turn_ns = (int32_t)(a->limit - a->sent) <= 0 ? at_ns : a->turn_ns;
    a->limit = limit;
    a->turn_probes = 0;
}
/* It is asked again, for want of credit: `most` times counts. */
static inline void allowed_asked(struct allowed *a, uint8_t most)
{
    a->turn_probes += a->turn_probes < most;
}

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

static inline void credit_begin(struct peer_credit *c, uint32_t packets)
{
    c->granted = packets;
}
/* It has no more for this end than it has sent. */
static inline void credit_backlog_none(struct peer_credit *c)
{
    c->backlog_end = c->data_count;
}
/* What is believed of a packet's data_count: no more DATA than was granted, and probes, which need no
 * credit. Without a limit one liar with the key would pass for the owner of more credit than there
 * is, and its losses for everybody's. Returns how many of the packets are news. */
static inline uint32_t credit_data_count(struct peer_credit *c, uint16_t data_count, bool data)
{
    int16_t ahead = (int16_t)(data_count - (uint16_t)c->data_count);
    uint32_t news = 0;
    if (ahead > 0) {
        int32_t credit = (int32_t)(c->granted - c->data_count);
        uint32_t left = credit > 0 ? (uint32_t)credit : 0;
        uint32_t taken = (uint32_t)weft_min_u64((uint32_t)ahead, left + PROBES_UNHEARD_MAX);
        c->data_count += taken;
        /* Lost probes into a dead path are no loss to speak of: only what had credit counts. */
        news = (uint32_t)weft_min_u64(taken, left + data);
    }
    if ((int32_t)(c->backlog_end - c->data_count) < 0) {
        credit_backlog_none(c); /* 2^31 packets later it would lie ahead again */
    }
    return news;
}
/* Gaps of comparable size decay the maximum; the tiny ones within a burst do not, or every burst
 * would forget the pause before it. */
static inline void credit_gap(struct peer_credit *c, uint64_t gap_ns)
{
    if (gap_ns >= c->data_gap_ns) {
        c->data_gap_ns = gap_ns;
    } else if (gap_ns > c->data_gap_ns / 8) {
        c->data_gap_ns -= c->data_gap_ns / 8;
    }
}
/* A DATA packet was received; `open`: while a message of the peer was open. */
static inline void credit_data(struct peer_credit *c, uint8_t flags, bool open, uint64_t at_ns)
{
    if (open && at_ns > c->data_last_ns) {
        credit_gap(c, weft_min_u64(at_ns - c->data_last_ns, 10 * WEFT_NS_PER_MS));
    }
    c->data_last_ns = weft_max_u64(c->data_last_ns, at_ns);
    c->sender_limited = (flags & WEFT_FLAG_SENDER_LIMITED) != 0;
    c->data_heard++;
}
/* What a short header says of its sender, and what a long one does. */
static inline void credit_shared(struct peer_credit *c, bool shared)
{
    c->sender_told = true;
    c->sender_shared = shared;
}
static inline void credit_urgency(struct peer_credit *c, uint8_t priority)
{
    c->data_priority = priority;
}

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
    uint64_t window_pause_ns; /* in which no DATA arrived for long */
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
/* A DATA packet of the peer arrived, use_ns or later. */
void weft_core_credit_use(const struct weft_ep *ep, struct peer *p, uint64_t at_ns);
/* limited: who does not use what it holds waits, too. */
struct peer *weft_core_credit_pick(struct weft_ep *ep, bool longest, bool turns, bool limited,
                                   uint64_t most);
uint32_t weft_core_credit_allowance(const struct weft_ep *ep);
uint64_t weft_core_credit_remaining(const struct peer *p);

#endif
