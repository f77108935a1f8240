#include "rpc/latency.h"

#include <assert.h>

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

/* ---- spans ----------------------------------------------------------------------------------- */

enum {
    GAP_NS = 128,                              /* the first limit of a gap; each rise doubles it */
    AFTER_MERGE = WEFT_RPC_SPANS_KEPT * 3 / 4, /* entries in use; the rest is free again */
};

static_assert((int)AFTER_MERGE > (int)WEFT_RPC_SPANS_NEWEST, "there are older entries to merge");

void weft_rpc_spans_clear(struct weft_rpc_spans *spans)
{
    spans->gap_ns = 0;
    spans->count = 0;
}

/* Merge across gaps within the limit, the oldest first, until enough entries are free. */
static void merge_once(struct weft_rpc_spans *spans)
{
    const uint32_t older = spans->count - WEFT_RPC_SPANS_NEWEST;
    uint32_t excess = spans->count - AFTER_MERGE, last = 0;
    for (uint32_t i = 1; i < spans->count; i++) {
        const uint64_t gap = minus(spans->kept[i].begin_ns, spans->kept[last].end_ns);
        if (i < older && excess > 0 && gap <= spans->gap_ns) {
            spans->kept[last].idle_ns += gap + spans->kept[i].idle_ns;
            spans->kept[last].end_ns = spans->kept[i].end_ns;
            excess--;
        } else {
            spans->kept[++last] = spans->kept[i];
        }
    }
    spans->count = last + 1;
}

/* Ends, because the limit exceeds every gap at last. */
static void merge(struct weft_rpc_spans *spans)
{
    for (merge_once(spans); spans->count > AFTER_MERGE; merge_once(spans)) {
        spans->gap_ns = spans->gap_ns > UINT64_MAX / 4 ? UINT64_MAX : 2 * spans->gap_ns + GAP_NS;
    }
}

void weft_rpc_spans_add(struct weft_rpc_spans *spans, uint64_t begin_ns, uint64_t end_ns)
{
    if (spans->count == WEFT_RPC_SPANS_KEPT) {
        merge(spans);
    }
    spans->kept[spans->count].begin_ns = begin_ns;
    spans->kept[spans->count].end_ns = weft_max_u64(begin_ns, end_ns);
    spans->kept[spans->count].idle_ns = 0;
    spans->count++;
}

/* The part of an entry's processing time before b. */
static uint64_t busy_before(const struct weft_rpc_spans *spans, uint32_t i, uint64_t busy_ns,
                            uint64_t b_ns)
{
    const uint64_t begin = spans->kept[i].begin_ns, end = spans->kept[i].end_ns;
    if (b_ns <= begin || b_ns >= end) {
        return b_ns <= begin ? 0 : busy_ns;
    }
    return (uint64_t)(__extension__(unsigned __int128) busy_ns * (b_ns - begin) / (end - begin));
}

void weft_rpc_spans_split(const struct weft_rpc_spans *spans, uint64_t b_ns, uint64_t *before_ns_p,
                          uint64_t *after_ns_p)
{
    uint64_t before = 0, after = 0;
    for (uint32_t i = 0; i < spans->count; i++) {
        const uint64_t busy =
            spans->kept[i].end_ns - spans->kept[i].begin_ns - spans->kept[i].idle_ns;
        const uint64_t part = busy_before(spans, i, busy, b_ns);
        before += part;
        after += busy - part;
    }
    *before_ns_p = before;
    *after_ns_p = after;
}
