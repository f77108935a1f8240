#include "sim/finish.h"

enum {
    FACTOR = 4,
    RTTS = 10,
    HEADER_BYTES = 64, /* of a DATA packet, with the tag */
    PACKET_OVERHEAD = WEFT_NET_OVERHEAD_BYTES + HEADER_BYTES,
    SAFE_BYTES = 36000, /* docs/PROTOCOL.md section 5, "Credit" */
    BUDGET_PACKETS_MIN = 4,
};

static const uint64_t unit_ns = 3 * WEFT_NS_PER_MS;
static const uint64_t path_ns = 2 * WEFT_NS_PER_S;
static const uint64_t window_max = 256; /* smallest ring of a sender */

struct load {
    uint64_t bytes[2]; /* by enum weft_net_dir */
    uint64_t packets;  /* received by it */
    uint64_t rtt_ns;   /* longest to its senders */
    uint64_t peers;    /* connected with it */
};

static uint64_t send_ns(const struct weft_net_link_config *link, uint64_t bytes)
{
    return bytes * 8 * 1000 / (link->rate_bps / 1000000);
}

static uint64_t rtt_ns(const struct weft_plan_host *a, const struct weft_plan_host *b)
{
    uint64_t ns = a->progress_delay_ns + b->progress_delay_ns;
    for (int dir = 0; dir < 2; dir++) {
        ns += a->links[dir].delay_ns + b->links[dir].delay_ns;
    }
    return ns + send_ns(&b->links[WEFT_NET_DOWN], b->links[WEFT_NET_DOWN].buffer_bytes);
}

static void measure(const struct weft_plan *plan, struct load *loads)
{
    for (uint32_t i = 0; i < plan->msgs; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        struct load *to = &loads[msg->dst];
        uint64_t bytes =
            (uint64_t)msg->total * msg->elem_bytes + (uint64_t)msg->chunks * PACKET_OVERHEAD;
        loads[msg->src].bytes[WEFT_NET_UP] += bytes;
        to->bytes[WEFT_NET_DOWN] += bytes;
        to->packets += msg->chunks;
        to->rtt_ns = weft_max_u64(to->rtt_ns, rtt_ns(&plan->host[msg->src], &plan->host[msg->dst]));
    }
}

/* Number of connections of each host, including those that a flood may add. */
static void measure_peers(const struct weft_plan *plan, struct load *loads)
{
    uint8_t flows[WEFT_PLAN_HOSTS_MAX][WEFT_PLAN_HOSTS_MAX] = {0};
    for (uint32_t i = 0; i < plan->msgs; i++) {
        flows[plan->msg[i].src][plan->msg[i].dst] = 1;
    }
    for (uint32_t i = 0; i < plan->hosts; i++) {
        for (uint32_t j = 0; j < plan->hosts; j++) {
            uint32_t both = flows[i][j] + flows[j][i];
            loads[i].peers += plan->crossing ? both : both > 0;
        }
        loads[i].peers += plan->hostile.flood_ppm > 0 ? plan->host[i].ep.half_open_max : 0;
    }
}

/* Initial credit of each sender, for the receiver's smallest budget. A message that fits its first
 * packet requests no more. */
static uint64_t allowance(const struct weft_ep_config *ep, uint64_t peers)
{
    uint64_t budget = SAFE_BYTES / (ep->packet_bytes + WEFT_NET_OVERHEAD_BYTES);
    budget = weft_min_u64(weft_max_u64(budget, BUDGET_PACKETS_MIN), ep->rx_window);
    uint64_t share = weft_min_u64(budget / weft_max_u64(peers, 1), ep->unscheduled);
    return weft_max_u64(share, 1);
}

/* The longest series of messages from one host to another, in round trips. */
static uint64_t smalls_ns(const struct weft_plan *plan, const struct load *loads)
{
    uint64_t longest_ns = 0;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        const struct load *to = &loads[msg->dst];
        uint64_t count = 0;
        for (uint32_t j = 0; j < plan->msgs; j++) {
            count += plan->msg[j].src == msg->src && plan->msg[j].dst == msg->dst;
        }
        uint64_t ns = count * to->rtt_ns / allowance(&plan->host[msg->dst].ep, to->peers);
        longest_ns = weft_max_u64(longest_ns, ns);
    }
    return longest_ns;
}

/* The time to send everything, which FACTOR multiplies.
 *
 * The term RTTS allows for growth of the window. After marks or loss it may be at its minimum, and
 * it grows by one packet per round trip: n packets need sqrt(2 n) round trips. FACTOR x (n /
 * window_max + RTTS) is larger for every n (72 against 64 at n = 2048, the closest point). It does
 * not cover a window that marks keep small on an idle link, and is not intended to. */
static uint64_t work_ns(const struct weft_plan *plan)
{
    struct load loads[WEFT_PLAN_HOSTS_MAX] = {0};
    uint64_t transfer_ns = 0;
    uint64_t windows_ns = 0;
    uint64_t rtt_ns_max = 0;
    measure(plan, loads);
    measure_peers(plan, loads);
    for (uint32_t i = 0; i < plan->hosts; i++) {
        const struct weft_plan_host *host = &plan->host[i];
        uint64_t window = weft_min_u64(host->ep.rx_window, window_max);
        for (int dir = 0; dir < 2; dir++) {
            transfer_ns =
                weft_max_u64(transfer_ns, send_ns(&host->links[dir], loads[i].bytes[dir]));
        }
        windows_ns = weft_max_u64(windows_ns, loads[i].packets * loads[i].rtt_ns / window);
        rtt_ns_max = weft_max_u64(rtt_ns_max, loads[i].rtt_ns);
    }
    return transfer_ns + windows_ns + smalls_ns(plan, loads) + RTTS * rtt_ns_max + unit_ns;
}

/* The longest series of chunks from one host to another that no longer fit the path. */
static uint64_t fragments_ns(const struct weft_plan *plan)
{
    uint64_t longest_ns = 0;
    for (uint32_t i = 0; i < plan->msgs && plan->shrinker != UINT32_MAX; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        uint64_t chunks = 0;
        for (uint32_t j = 0; j < plan->msgs; j++) {
            const struct weft_plan_msg *other = &plan->msg[j];
            bool same = other->src == msg->src && other->dst == msg->dst;
            uint32_t bytes = other->chunk_elems * other->elem_bytes + HEADER_BYTES;
            chunks += same && bytes > plan->mtu_bytes ? other->chunks : 0;
        }
        bool short_path = msg->src == plan->shrinker || msg->dst == plan->shrinker;
        uint64_t ns = chunks * rtt_ns(&plan->host[msg->src], &plan->host[msg->dst]);
        longest_ns = weft_max_u64(longest_ns, short_path ? ns : 0);
    }
    return longest_ns;
}

uint64_t weft_finish_ns(const struct weft_plan *plan)
{
    if (plan->victim != UINT32_MAX || plan->closes > 0) {
        return WEFT_NEVER; /* a host that waits for a lost connection may have to wait for its
                            * timeout */
    }
    return weft_finish_alive_ns(plan);
}

uint64_t weft_finish_alive_ns(const struct weft_plan *plan)
{
    uint64_t start_ns = plan->heal_ns;
    uint64_t trouble_ns = plan->heal_ns;
    for (uint32_t i = 0; i < plan->msgs; i++) {
        const struct weft_plan_msg *msg = &plan->msg[i];
        start_ns = weft_max_u64(start_ns, weft_max_u64(msg->send_ns, msg->post_ns));
        if (msg->post_ns > msg->send_ns) {
            trouble_ns = weft_max_u64(trouble_ns, msg->post_ns - msg->send_ns);
        }
    }
    /* A reply may be acknowledged late. A lost one is resent equally late (PROTOCOL section 5: the
     * PTO is longer by that time), and may then be acknowledged late, too. */
    uint64_t later_ns = 0;
    uint64_t done_ns = 0;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        uint64_t times = plan->heal_ns > 0 ? 2 : 1;
        later_ns = plan->host[i].ep.confirm_later != 0 ? times * WEFT_CONFIRM_LATER_NS : later_ns;
        done_ns = plan->host[i].ep.done_later != 0 ? WEFT_DONE_LATER_NS : done_ns;
    }
    /* The same applies to DONE alone; its sender is patient towards every host. */
    later_ns += done_ns + (plan->heal_ns > 0 ? WEFT_DONE_LATER_NS + WEFT_DONE_LATER_MORE_NS : 0);
    /* Packets that no longer fit cost the time of detection, and are then sent one at a time; an
     * address that no longer works costs probes. */
    bool path = plan->mover != UINT32_MAX || plan->shrinker != UINT32_MAX ||
                plan->host[0].ep.packet_bytes_sure != 0;
    return start_ns + weft_min_u64(trouble_ns, WEFT_NS_PER_S) + FACTOR * work_ns(plan) + later_ns +
           (path ? path_ns : 0) + fragments_ns(plan);
}
