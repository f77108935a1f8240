/* Where the time of one RPC went: the five latencies of [imc20] section 2.2, and the two that it
 * folds into them. Durations in ns, made from stamps of two clocks that are never compared.
 *
 * b = arrival of the chunk that completed the request, t1 = arrival of the reply's last chunk.
 *
 * Source: docs/PROTOCOL.md section 7; [imc20] section 2.2.
 */
#ifndef WEFT_RPC_LATENCY_H
#define WEFT_RPC_LATENCY_H

#include "rpc/head.h"

struct weft_rpc_latency {
    uint64_t w_proc_ns;     /* worker: taken up until handed over */
    uint64_t w_queue_ns;    /* worker: t1 until taken up */
    uint64_t ps_proc_ns;    /* server: in ps for this RPC after b */
    uint64_t ps_overlap_ns; /* server: in ps before b; a part of n_tx */
    uint64_t ps_wait_ns;    /* server: waiting for consistency */
    uint64_t ps_queue_ns;   /* server: departure - b - ps_proc - ps_wait */
    uint64_t n_tx_ns;       /* the network: t1 - t0 - ps_queue - ps_proc - ps_wait */
};

/* Worker's side. t1_ns <= taken_ns <= handed_ns on the clock of reply->t0_ns. A server that claims
 * more time than passed leaves 0 for n_tx. */
struct weft_rpc_latency weft_rpc_latency_make(const struct weft_rpc_reply *reply, uint64_t t1_ns,
                                              uint64_t taken_ns, uint64_t handed_ns);

/* Server's side: time that one request took in ps, split at b although b is known only afterwards.
 * The latest spans are kept apart until then; older ones surely ended before b, because a driver
 * hands over at most a batch of datagrams at once. */
enum { WEFT_RPC_SPANS_KEPT = 64 };

struct weft_rpc_spans {
    uint64_t older_ns; /* sum of the spans that left the ring */
    uint32_t count;    /* spans ever added */
    struct {
        uint64_t begin_ns;
        uint64_t end_ns;
    } kept[WEFT_RPC_SPANS_KEPT];
};

void weft_rpc_spans_add(struct weft_rpc_spans *spans, uint64_t begin_ns, uint64_t end_ns);

/* Sums before and after b. */
void weft_rpc_spans_split(const struct weft_rpc_spans *spans, uint64_t b_ns, uint64_t *before_ns_p,
                          uint64_t *after_ns_p);

#endif
