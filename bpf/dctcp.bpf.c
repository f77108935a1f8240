// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Data Center TCP as a congestion control of the kernel, for kernels built without the module.
 *
 * DCTCP uses the *fraction* of marked packets instead of the presence of a mark: alpha is its
 * moving average, updated once per window of data, and the window is reduced by the fraction
 * alpha / 2. The receiver does the other half: acknowledgements must report exactly which packets
 * were marked, so a delayed one is sent at once when the marks begin or end.
 *
 *   sender    RFC 8257 section 3.3: ssthresh(), in_ack_event(); growth is Reno's (3.4)
 *   receiver  RFC 8257 section 3.2: cwnd_event(ECN_IS_CE, ECN_NO_CE)
 *   loss      RFC 8257 section 3.5: like Reno, half, regardless of alpha
 *   no ECN    the connection uses the kernel's Reno
 *
 * Differs from the RFC: it counts packets, not bytes, with the kernel's counters of delivered
 * packets (`delivered`, `delivered_ce`), which include those acknowledged selectively.
 *
 * The structures of the kernel are not included but declared with the few members used; the loader
 * relocates each access to the running kernel's layout (preserve_access_index).
 *
 * src/lab/dctcp.c loads it. The arithmetic is in lab/dctcp_bpf.h and has unit tests.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "lab/dctcp_bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* ---- of the kernel ----------------------------------------------------------------------------*/

#define KERNEL __attribute__((preserve_access_index))

struct sock_common {
    __be16 skc_dport;
    __u16 skc_num;
    volatile unsigned char skc_state;
} KERNEL;

struct sock {
    struct sock_common __sk_common;
} KERNEL;

struct inet_sock {
    struct sock sk;
} KERNEL;

struct inet_connection_sock {
    struct inet_sock icsk_inet;
    struct {
        __u8 pending;
    } icsk_ack;
    __u64 icsk_ca_priv[13];
} KERNEL;

struct tcp_sock {
    struct inet_connection_sock inet_conn;
    __u32 snd_una;
    __u32 snd_nxt;
    __u32 rcv_nxt;
    __u32 snd_cwnd;
    __u32 snd_ssthresh;
    __u32 delivered;
    __u32 delivered_ce;
    __u8 ecn_flags;
} KERNEL;

enum tcp_ca_event {
    CA_EVENT_LOSS = 3,
    CA_EVENT_ECN_NO_CE = 4,
    CA_EVENT_ECN_IS_CE = 5,
};

enum {
    TCP_CA_RECOVERY = 3,
    TCP_LISTEN_STATE = 10,
    TCP_CLOSE_STATE = 7,
    TCP_ECN_OK = 1,
    TCP_ECN_DEMAND_CWR = 4,
    ACK_TIMER_PENDING = 2, /* ICSK_ACK_TIMER */
    ACK_NOW = 16,          /* ICSK_ACK_NOW */
    CONG_NON_RESTRICTED = 1,
    CONG_NEEDS_ECN = 2, /* ECT on all packets, the handshake's too */
    LEVEL_TCP = 6,
    OPTION_CONGESTION = 13,
};

/* Only the members that are set here; the loader maps them by name to the kernel's structure. */
struct tcp_congestion_ops {
    __u32 (*ssthresh)(struct sock *sk);
    void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
    void (*set_state)(struct sock *sk, __u8 new_state);
    void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
    void (*in_ack_event)(struct sock *sk, __u32 flags);
    __u32 (*undo_cwnd)(struct sock *sk);
    char name[16];
    __u32 flags;
    void (*init)(struct sock *sk);
};

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/* ---- state ------------------------------------------------------------------------------------*/

/* State of one connection, in the memory that the kernel provides for a congestion control. */
struct flow {
    __u32 window_end;       /* sequence number at which the observation window ends */
    __u32 delivered;        /* at its beginning */
    __u32 delivered_ce;     /* at its beginning */
    __u32 alpha;
    __u32 cwnd_before_loss; /* to undo a reduction if nothing was lost */
    __u32 rcv_nxt;          /* before the packet that is being received */
    __u8 ce;                /* the last packet received was marked */
    __u8 state;             /* of the kernel's loss recovery */
};

_Static_assert(sizeof(struct flow) <= 13 * 8, "the kernel gives 104 bytes");

/* Read by user space; the only variable, so that .bss is this structure. */
struct weft_dctcp_seen seen;

static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
    return (struct tcp_sock *)sk;
}

static __always_inline struct flow *flow_of(struct sock *sk)
{
    return (struct flow *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

/* Sequence numbers wrap. */
static __always_inline int before(__u32 a, __u32 b)
{
    return (__s32)(a - b) < 0;
}

static __always_inline void note(struct sock *sk, __u32 what, __u32 alpha_old, __u32 a, __u32 b)
{
    __u32 at = __sync_fetch_and_add(&seen.next, 1) & (WEFT_DCTCP_RECORDS - 1);
    struct weft_dctcp_record *record = &seen.records[at];
    record->flow = (__u32)sk->__sk_common.skc_num << 16 |
                   __builtin_bswap16(sk->__sk_common.skc_dport);
    record->what = what;
    record->alpha_old = alpha_old;
    record->alpha = flow_of(sk)->alpha;
    record->delivered = a;
    record->marked = b;
}

static __always_inline void window_begin(const struct tcp_sock *tp, struct flow *flow)
{
    flow->window_end = tp->snd_nxt;
    flow->delivered = tp->delivered;
    flow->delivered_ce = tp->delivered_ce;
}

static __always_inline void halve(struct sock *sk)
{
    struct tcp_sock *tp = tcp_of(sk);
    struct flow *flow = flow_of(sk);
    __u32 cwnd = tp->snd_cwnd;
    __u32 half = cwnd / 2 > WEFT_DCTCP_CWND_MIN ? cwnd / 2 : WEFT_DCTCP_CWND_MIN;
    flow->cwnd_before_loss = cwnd;
    tp->snd_ssthresh = half;
    __sync_fetch_and_add(&seen.counts.losses, 1);
    note(sk, WEFT_DCTCP_LOSS, flow->alpha, cwnd, half);
}

/* The marks have begun or ended (RFC 8257 section 3.2, figure 1). If an acknowledgement is delayed,
 * its packets arrived before the change: it is sent now, with the old flag. This packet is
 * acknowledged at once, with the new one. */
static __always_inline void marks_change(struct sock *sk, __u8 ce)
{
    struct tcp_sock *tp = tcp_of(sk);
    struct inet_connection_sock *icsk = &tp->inet_conn;
    struct flow *flow = flow_of(sk);

    if (flow->ce != ce) {
        if (icsk->icsk_ack.pending & ACK_TIMER_PENDING) {
            if (flow->ce) {
                tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
            } else {
                tp->ecn_flags &= (__u8)~TCP_ECN_DEMAND_CWR;
            }
            bpf_tcp_send_ack(tp, flow->rcv_nxt);
            __sync_fetch_and_add(&seen.counts.acks, 1);
        }
        icsk->icsk_ack.pending |= ACK_NOW;
    }
    flow->rcv_nxt = tp->rcv_nxt;
    flow->ce = ce;
    if (ce) {
        tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
    } else {
        tp->ecn_flags &= (__u8)~TCP_ECN_DEMAND_CWR;
    }
}

/* ---- called by the kernel ---------------------------------------------------------------------*/

SEC("struct_ops/weft_dctcp_init")
void BPF_PROG(weft_dctcp_init, struct sock *sk)
{
    struct tcp_sock *tp = tcp_of(sk);
    struct flow *flow = flow_of(sk);
    unsigned char state = sk->__sk_common.skc_state;

    if (!(tp->ecn_flags & TCP_ECN_OK) && state != TCP_LISTEN_STATE && state != TCP_CLOSE_STATE) {
        /* The peer does not echo marks. With Reno, packets are sent without ECT. */
        char reno[] = "reno";
        bpf_setsockopt(sk, LEVEL_TCP, OPTION_CONGESTION, reno, sizeof(reno));
        __sync_fetch_and_add(&seen.counts.without_ecn, 1);
        return;
    }
    if (state != TCP_LISTEN_STATE && state != TCP_CLOSE_STATE) {
        __sync_fetch_and_add(&seen.counts.connections, 1);
    }
    flow->alpha = WEFT_DCTCP_ONE; /* RFC 8257 section 4.1: the first mark halves */
    flow->cwnd_before_loss = 0;
    flow->rcv_nxt = tp->rcv_nxt;
    flow->ce = 0;
    flow->state = 0;
    window_begin(tp, flow);
}

SEC("struct_ops/weft_dctcp_in_ack_event")
void BPF_PROG(weft_dctcp_in_ack_event, struct sock *sk, __u32 flags)
{
    struct tcp_sock *tp = tcp_of(sk);
    struct flow *flow = flow_of(sk);

    /* An acknowledgement of exactly window_end does not end the window; otherwise a side that only
     * receives would end one with every packet. */
    if (!before(flow->window_end, tp->snd_una)) {
        return;
    }
    __u32 delivered = tp->delivered - flow->delivered;
    __u32 marked = tp->delivered_ce - flow->delivered_ce;
    __u32 alpha_old = flow->alpha;
    flow->alpha = weft_dctcp_alpha_next(alpha_old, delivered, marked);
    window_begin(tp, flow);
    __sync_fetch_and_add(&seen.counts.windows, 1);
    note(sk, WEFT_DCTCP_WINDOW, alpha_old, delivered, marked);
}

/* The kernel calls it after marks, once per window of data, and after a loss. After a loss,
 * set_state or cwnd_event overwrites the result. */
SEC("struct_ops/weft_dctcp_ssthresh")
__u32 BPF_PROG(weft_dctcp_ssthresh, struct sock *sk)
{
    struct tcp_sock *tp = tcp_of(sk);
    struct flow *flow = flow_of(sk);
    __u32 cwnd = tp->snd_cwnd;
    __u32 left = weft_dctcp_cut(cwnd, flow->alpha);

    flow->cwnd_before_loss = cwnd;
    __sync_fetch_and_add(&seen.counts.cuts, 1);
    note(sk, WEFT_DCTCP_CUT, flow->alpha, cwnd, left);
    return left;
}

SEC("struct_ops/weft_dctcp_set_state")
void BPF_PROG(weft_dctcp_set_state, struct sock *sk, __u8 new_state)
{
    struct flow *flow = flow_of(sk);

    if (new_state == TCP_CA_RECOVERY && flow->state != new_state) {
        halve(sk);
    }
    flow->state = new_state;
}

SEC("struct_ops/weft_dctcp_cwnd_event")
void BPF_PROG(weft_dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
    switch (event) {
    case CA_EVENT_ECN_IS_CE:
        marks_change(sk, 1);
        break;
    case CA_EVENT_ECN_NO_CE:
        marks_change(sk, 0);
        break;
    case CA_EVENT_LOSS:
        halve(sk);
        break;
    }
}

SEC("struct_ops/weft_dctcp_cong_avoid")
void BPF_PROG(weft_dctcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/weft_dctcp_undo_cwnd")
__u32 BPF_PROG(weft_dctcp_undo_cwnd, struct sock *sk)
{
    __u32 cwnd = tcp_of(sk)->snd_cwnd;
    __u32 was = flow_of(sk)->cwnd_before_loss;
    return cwnd > was ? cwnd : was;
}

/* The loader overwrites the name's last four characters: names are unique in the whole kernel. */
SEC(".struct_ops")
struct tcp_congestion_ops weft_dctcp = {
    .ssthresh = (void *)weft_dctcp_ssthresh,
    .cong_avoid = (void *)weft_dctcp_cong_avoid,
    .set_state = (void *)weft_dctcp_set_state,
    .cwnd_event = (void *)weft_dctcp_cwnd_event,
    .in_ack_event = (void *)weft_dctcp_in_ack_event,
    .undo_cwnd = (void *)weft_dctcp_undo_cwnd,
    .name = "weft_dctcp_0000",
    .flags = CONG_NON_RESTRICTED | CONG_NEEDS_ECN,
    .init = (void *)weft_dctcp_init,
};
