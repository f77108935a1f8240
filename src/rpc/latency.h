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
 * one chunk. b is known only when the request is complete; until then a list contains the spans.
 * When the list is full, older spans with short gaps between them are merged, so that spans with
 * long gaps remain apart: a batch of datagrams becomes one entry, and b is before it or among the
 * newest spans. If b lies inside a merged entry, its processing time is divided in proportion; the
 * error is at most the sum of the gaps in that entry.
 *
 * Rejected: a ring of the latest spans, with the older ones counted as before b. A receive batch of
 * merged datagrams can hold more than a thousand chunks, all of which are processed after b. */
enum {
    WEFT_RPC_SPANS_KEPT = 128,
    WEFT_RPC_SPANS_NEWEST = 64, /* these are not merged */
};

struct weft_rpc_spans {
    uint64_t gap_ns; /* spans with at most this between them may be merged */
    uint32_t count;  /* entries in use */
    struct {
        uint64_t begin_ns;
        uint64_t end_ns;
        uint64_t idle_ns; /* sum of the gaps between begin and end */
    } kept[WEFT_RPC_SPANS_KEPT];
};

void weft_rpc_spans_clear(struct weft_rpc_spans *spans);

/* In order of time: begin_ns is not before the end of the previous span. */
void weft_rpc_spans_add(struct weft_rpc_spans *spans, uint64_t begin_ns, uint64_t end_ns);

/* Processing time before b and after b. */
void weft_rpc_spans_split(const struct weft_rpc_spans *spans, uint64_t b_ns, uint64_t *before_ns_p,
                          uint64_t *after_ns_p);

#endif
