/* Latency breakdown of one RPC: the five components of [imc20] section 2.2, and two parts of them
 * that are measured separately. Durations are in ns. Each is computed from timestamps of one clock.
 *
 * t0 = when the worker sent the request, b = arrival of the chunk that completed the request,
 * t1 = arrival of the reply's last chunk.
 *
 * Source: docs/PROTOCOL.md section 7; [imc20] section 2.2.
 */
#ifndef WEFT_RPC_LATENCY_H
#define WEFT_RPC_LATENCY_H

#include "rpc/head.h"

struct weft_rpc_latency {
    uint64_t w_proc_ns;     /* worker: from the start of processing until the result is delivered */
    uint64_t w_queue_ns;    /* worker: from t1 until processing starts */
    uint64_t ps_proc_ns;    /* server: time in ps for this RPC after b */
    uint64_t ps_overlap_ns; /* server: time in ps before b; included in n_tx */
    uint64_t ps_wait_ns;    /* server: blocked by the consistency mode */
    uint64_t ps_queue_ns;   /* server: departure - b - ps_proc - ps_wait */
    uint64_t n_tx_ns;       /* network: t1 - t0 - ps_queue - ps_proc - ps_wait */
};

/* Worker's side. dequeued_ns: when its processing started; delivered_ns: when the result was
 * delivered. Requires t1_ns <= dequeued_ns <= delivered_ns on the clock of reply->t0_ns. If the
 * server reports more time than elapsed, n_tx is 0. */
struct weft_rpc_latency weft_rpc_latency_make(const struct weft_rpc_reply *reply, uint64_t t1_ns,
                                              uint64_t dequeued_ns, uint64_t delivered_ns);

/* Server's side: the processing time of one request in ps, split at b. A span is the processing of
 * one chunk. b is known only when the request is complete; until then a ring contains the latest
 * spans. Older spans count as before b. If a driver delivers more chunks of the request after b
 * than the ring holds (a batch of merged datagrams), ps_overlap is too long by these spans, and
 * ps_proc too short. */
enum { WEFT_RPC_SPANS_KEPT = 64 };

struct weft_rpc_spans {
    uint64_t older_ns; /* sum of the spans that were evicted from the ring */
    uint32_t count;    /* total number of spans added */
    struct {
        uint64_t begin_ns;
        uint64_t end_ns;
    } kept[WEFT_RPC_SPANS_KEPT];
};

void weft_rpc_spans_add(struct weft_rpc_spans *spans, uint64_t begin_ns, uint64_t end_ns);

/* Sum of the spans before b and sum of the spans after b. */
void weft_rpc_spans_split(const struct weft_rpc_spans *spans, uint64_t b_ns, uint64_t *before_ns_p,
                          uint64_t *after_ns_p);

#endif
