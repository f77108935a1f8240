#include "rpc/latency.h"

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

struct weft_rpc_latency weft_rpc_latency_make(const struct weft_rpc_reply *reply, uint64_t t1_ns,
                                              uint64_t dequeued_ns, uint64_t delivered_ns)
{
    uint64_t n_tx = minus(t1_ns, reply->t0_ns);
    /* Subtract one at a time: the values come from a peer, and their sum may wrap. */
    n_tx = minus(n_tx, reply->ps_queue_ns);
    n_tx = minus(n_tx, reply->ps_proc_ns);
    n_tx = minus(n_tx, reply->ps_wait_ns);
    return (struct weft_rpc_latency){
        .w_proc_ns = minus(delivered_ns, dequeued_ns),
        .w_queue_ns = minus(dequeued_ns, t1_ns),
        .ps_proc_ns = reply->ps_proc_ns,
        .ps_overlap_ns = reply->ps_overlap_ns,
        .ps_wait_ns = reply->ps_wait_ns,
        .ps_queue_ns = reply->ps_queue_ns,
        .n_tx_ns = n_tx,
    };
}

void weft_rpc_spans_add(struct weft_rpc_spans *spans, uint64_t begin_ns, uint64_t end_ns)
{
    uint32_t place = spans->count % WEFT_RPC_SPANS_KEPT;
    if (spans->count >= WEFT_RPC_SPANS_KEPT) {
        spans->older_ns += minus(spans->kept[place].end_ns, spans->kept[place].begin_ns);
    }
    spans->kept[place].begin_ns = begin_ns;
    spans->kept[place].end_ns = end_ns;
    spans->count++;
}

void weft_rpc_spans_split(const struct weft_rpc_spans *spans, uint64_t b_ns, uint64_t *before_ns_p,
                          uint64_t *after_ns_p)
{
    uint64_t before = spans->older_ns, after = 0;
    uint32_t kept = (uint32_t)weft_min_u64(spans->count, WEFT_RPC_SPANS_KEPT);
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t begin = spans->kept[i].begin_ns, end = spans->kept[i].end_ns;
        before += minus(weft_min_u64(end, b_ns), begin);
        after += minus(end, weft_max_u64(begin, b_ns));
    }
    *before_ns_p = before;
    *after_ns_p = after;
}
