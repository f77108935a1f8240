// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Two functions of the lab's links that the kernel's queue disciplines used there lack: marking at
 * a threshold, and loss in bursts. Two programs for tc; src/lab/link.c loads them.
 *
 *   mark        before the queue of a switch port (clsact egress): sets CE on a packet of an
 *               ECN-capable transport when the queue is longer than a threshold, as DCTCP requires
 *               of a switch. The length is that of the port's root qdisc, read from the kernel's
 *               structure, so it is exact at every rate of the token bucket.
 *   burst_loss  on arrival at a host (clsact ingress): Gilbert's model, lab/link_bpf.h.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "lab/link_bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define KERNEL __attribute__((preserve_access_index))

struct gnet_stats_queue {
    __u32 backlog;
} KERNEL;

struct Qdisc {
    struct gnet_stats_queue qstats;
} KERNEL;

struct net_device {
    struct Qdisc *qdisc;
} KERNEL;

struct sk_buff {
    struct net_device *dev;
} KERNEL;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Set before the program is loaded into the kernel. */
const volatile __u32 mark_bytes = 0;
const volatile struct weft_gilbert gilbert = {0, 0};

/* State of Gilbert's model. Each link loads its own copy of this program, with its own state. If
 * two processors update it at the same time, a burst is a packet longer. */
__u32 bad;

SEC("tc")
int mark(struct __sk_buff *skb)
{
    struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
    if (packet->dev->qdisc->qstats.backlog > mark_bytes) {
        bpf_skb_ecn_set_ce(skb);
    }
    return TC_ACT_OK;
}

SEC("tc")
int burst_loss(struct __sk_buff *skb)
{
    struct weft_gilbert g = {gilbert.to_bad, gilbert.to_good};
    __u32 state = bad;
    int lost = weft_gilbert_lost(&g, &state, bpf_get_prandom_u32());
    bad = state;
    return lost ? TC_ACT_SHOT : TC_ACT_OK;
}
