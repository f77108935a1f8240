/* Some ranks with collectives over the transport in memory (fake_msgr.h), and one operation at all
 * of them at a time. */
#ifndef WEFT_TESTS_COLL_RIG_H
#define WEFT_TESTS_COLL_RIG_H

#include "fake_msgr.h"

#include "coll/coll.h"

struct rig {
    struct fake_net *net;
    uint32_t n;
    struct weft_coll_config config;
    struct weft_coll *coll[FAKE_NODES];
    struct weft_coll_call call[FAKE_NODES];
    void *work[FAKE_NODES][8];                 /* memory of open operations */
    struct weft_coll_done done[FAKE_NODES][8]; /* by user */
    uint32_t done_count[FAKE_NODES];
    uint32_t closed[FAKE_NODES]; /* connections that the driver is requested to close */
};

static inline struct weft_coll_config rig_config(uint32_t ranks)
{
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    config.ranks = ranks;
    config.epoch = 7;
    config.peers_max = 32;
    config.chunks_max = 4096;
    config.groups_max = 4;
    config.ops_max = 8;
    config.pool_bytes = 4 << 20;
    return config;
}

static inline void rig_poll_all(struct rig *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct weft_msgr msgr = fake_msgr(r->net, i);
        struct weft_msg_event event;
        if (r->coll[i] == NULL) {
            continue;
        }
        while (msgr.ops->poll(msgr.self, &event)) {
            weft_coll_event(r->coll[i], &event, r->net->now_ns);
        }
        if (weft_coll_deadline(r->coll[i]) <= r->net->now_ns) {
            weft_coll_on_deadline(r->coll[i], r->net->now_ns);
        }
        weft_coll_progress(r->coll[i], r->net->now_ns);
        weft_peer peer;
        while (weft_coll_take_close(r->coll[i], &peer)) {
            r->closed[i] |= UINT32_C(1) << (peer - 10);
        }
        struct weft_coll_done done;
        while (weft_coll_poll(r->coll[i], &done)) {
            r->done[i][done.user] = done;
            r->done_count[i]++;
            free(r->work[i][done.user]);
            r->work[i][done.user] = NULL;
        }
    }
}

static inline struct rig *rig_new_with(const struct weft_coll_config *config, uint64_t seed)
{
    struct rig *r = calloc(1, sizeof(*r));
    WEFT_ASSERT(r != NULL);
    r->net = fake_net_new(seed);
    r->n = config->ranks;
    r->config = *config;
    for (uint32_t i = 0; i < r->n; i++) {
        struct weft_coll_config own = *config;
        own.rank = i;
        r->net->nodes[i].name = weft_coll_name(config->epoch, i);
        r->net->nodes[i].incarnation = 100 + i;
        weft_status status = weft_coll_new(&own, fake_msgr(r->net, i), &r->coll[i]);
        WEFT_ASSERT(status == WEFT_OK);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            fake_connect(r->net, i, j);
        }
    }
    rig_poll_all(r);
    return r;
}

static inline struct rig *rig_new(uint32_t ranks, uint64_t seed)
{
    struct weft_coll_config config = rig_config(ranks);
    return rig_new_with(&config, seed);
}

static inline void rig_free(struct rig *r)
{
    fake_net_free(r->net);
    for (uint32_t i = 0; i < r->n; i++) {
        weft_coll_free(r->coll[i]);
        for (int k = 0; k < 8; k++) {
            free(r->work[i][k]);
        }
    }
    free(r);
}

static inline weft_status rig_begin(struct rig *r, uint32_t rank, struct weft_coll_call call)
{
    size_t bytes = weft_coll_work_bytes(r->coll[rank], &call);
    WEFT_ASSERT(r->work[rank][call.user] == NULL);
    void *work = bytes == 0 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (work != NULL) {
        memset(work, 0xa5, bytes); /* code must not rely on zeros */
    }
    call.work = work;
    call.timeout_ns = call.timeout_ns == 0 ? WEFT_NEVER : call.timeout_ns;
    r->call[rank] = call;
    weft_status status = weft_coll_begin(r->coll[rank], &call, r->net->now_ns);
    if (status != WEFT_OK) {
        free(work);
    } else {
        r->work[rank][call.user] = work;
    }
    weft_coll_progress(r->coll[rank], r->net->now_ns);
    rig_poll_all(r); /* it may be complete immediately */
    return status;
}

/* Run until no chunk can be delivered. */
static inline void rig_run(struct rig *r)
{
    rig_poll_all(r);
    while (fake_step(r->net)) {
        rig_poll_all(r);
    }
}

#endif
