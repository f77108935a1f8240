/* Shards and workers over the fake transport: nodes 0 .. shards - 1 are shards, the others are
 * workers. */
#ifndef WEFT_TESTS_PS_CLUSTER_H
#define WEFT_TESTS_PS_CLUSTER_H

#include "fake_msgr.h"
#include "ps/client.h"
#include "ps/shard.h"

enum { CLUSTER_SLABS = 4096 };

struct cluster {
    struct fake_net *net;
    uint32_t shards, workers;
    struct weft_shard *shard[FAKE_NODES];
    struct weft_ps_client *client[FAKE_NODES]; /* by rank */
    uint32_t slabs_allowed;                    /* number of slabs that may still be given */
    bool no_slabs;
};

static inline void cluster_slabs(struct cluster *c, uint32_t s)
{
    uint16_t table;
    size_t bytes;
    while (!c->no_slabs && c->slabs_allowed > 0 &&
           weft_shard_wants_slab(c->shard[s], &table, &bytes)) {
        c->slabs_allowed--;
        WEFT_ASSERT(weft_shard_add_slab(c->shard[s], table, malloc(bytes), bytes) == WEFT_OK);
    }
}

/* All nodes process their events. */
static inline void cluster_poll(struct cluster *c)
{
    struct weft_msg_event event;
    for (uint32_t n = 0; n < c->shards + c->workers; n++) {
        while (!c->net->nodes[n].dead && fake_poll(&c->net->nodes[n], &event)) {
            if (n < c->shards) {
                weft_shard_event(c->shard[n], &event, c->net->now_ns);
            } else {
                weft_ps_client_event(c->client[n - c->shards], &event, c->net->now_ns);
            }
        }
        if (n < c->shards) {
            weft_shard_progress(c->shard[n], c->net->now_ns);
            cluster_slabs(c, n);
        } else {
            weft_ps_client_progress(c->client[n - c->shards], c->net->now_ns);
        }
    }
}

/* False: no chunk can be delivered. */
static inline bool cluster_step(struct cluster *c)
{
    bool moved = fake_step(c->net);
    for (uint32_t s = 0; s < c->shards; s++) {
        moved |= !c->net->nodes[s].dead && weft_shard_has_work(c->shard[s]);
    }
    cluster_poll(c);
    return moved;
}

static inline void cluster_run(struct cluster *c)
{
    while (cluster_step(c)) {
    }
}

/* Run until the operation is done, return its result, release it. */
static inline struct weft_ps_result cluster_wait(struct cluster *c, uint32_t worker, weft_ps_op op)
{
    struct weft_ps_result result;
    while (!weft_ps_op_done(c->client[worker], op, &result)) {
        WEFT_ASSERT(cluster_step(c) || weft_ps_op_done(c->client[worker], op, NULL));
    }
    weft_ps_op_release(c->client[worker], op);
    return result;
}

/* Initialize the configurations; the caller may change them before cluster_start. */
struct cluster_config {
    struct weft_shard_config shard;
    struct weft_ps_client_config client;
    uint64_t incarnation; /* incarnation of node 0, plus 1 for each further node; 0 = a new one at
                           * each connection */
};

static inline struct cluster_config cluster_config(uint32_t shards, uint32_t workers)
{
    struct cluster_config config = {.incarnation = 0};
    weft_shard_config_default(&config.shard);
    weft_ps_client_config_default(&config.client);
    memset(&config.shard.keys, 7, sizeof(config.shard.keys));
    config.shard.shards = config.client.shards = shards;
    config.shard.workers_max = workers;
    config.shard.rows_max = 20000;
    config.shard.slab_bytes = 16384;
    config.shard.step_rows = 7; /* clocks end in slices, with events in between */
    config.shard.rows_per_rpc_max = config.client.rows_per_rpc_max = 300;
    config.client.rows_per_op_max = 1000;
    config.client.missed_max = 5000;
    config.shard.tables_max = config.client.tables_max = 2;
    config.shard.aggregators_max = 0; /* each needs tens of MiB, which MALLOC_PERTURB_ would fill */
    return config;
}

static inline struct weft_shard *cluster_shard_new(const struct cluster *c,
                                                   const struct cluster_config *config, uint32_t s)
{
    struct weft_shard_config shard = config->shard;
    struct weft_shard *new;
    shard.shard = s;
    shard.clock_ns = fake_clock_ns;
    shard.clock_arg = c->net;
    WEFT_ASSERT(weft_shard_new(&shard, fake_msgr(c->net, s), &new) == WEFT_OK);
    return new;
}

static inline void cluster_shard_free(struct cluster *c, uint32_t s)
{
    void *slab;
    while ((slab = weft_shard_take_slab(c->shard[s])) != NULL) {
        free(slab);
    }
    weft_shard_free(c->shard[s]);
}

static inline void cluster_start(struct cluster *c, const struct cluster_config *config,
                                 uint32_t workers, uint64_t seed)
{
    *c = (struct cluster){.net = fake_net_new(seed), .shards = config->shard.shards};
    c->workers = workers;
    c->slabs_allowed = CLUSTER_SLABS;
    weft_peer peers[FAKE_NODES];
    for (uint32_t n = 0; n < FAKE_NODES; n++) {
        c->net->nodes[n].incarnation = config->incarnation > 0 ? config->incarnation + n : 0;
    }
    for (uint32_t s = 0; s < c->shards; s++) {
        c->net->nodes[s].name = weft_rpc_name(WEFT_ROLE_SERVER, s);
        c->shard[s] = cluster_shard_new(c, config, s);
        peers[s] = fake_peer(s);
    }
    for (uint32_t w = 0; w < workers; w++) {
        struct weft_ps_client_config client = config->client;
        uint32_t node = c->shards + w;
        client.worker = w;
        client.clock_ns = fake_clock_ns;
        client.clock_arg = c->net;
        c->net->nodes[node].name = weft_rpc_name(WEFT_ROLE_WORKER, w);
        WEFT_ASSERT(weft_ps_client_new(&client, fake_msgr(c->net, node), peers, &c->client[w]) ==
                    WEFT_OK);
        for (uint32_t s = 0; s < c->shards; s++) {
            fake_connect(c->net, node, s);
        }
    }
    cluster_poll(c);
}

static inline void cluster_stop(struct cluster *c)
{
    for (uint32_t s = 0; s < c->shards; s++) {
        cluster_shard_free(c, s);
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        weft_ps_client_free(c->client[w]);
    }
    fake_net_free(c->net);
}

/* Every worker opens the table. */
static inline void cluster_open(struct cluster *c, const struct weft_table_spec *spec)
{
    weft_ps_op op[FAKE_NODES];
    for (uint32_t w = 0; w < c->workers; w++) {
        WEFT_ASSERT(weft_ps_table_open(c->client[w], spec, c->net->now_ns, &op[w]) == WEFT_OK);
    }
    for (uint32_t w = 0; w < c->workers; w++) {
        WEFT_ASSERT(cluster_wait(c, w, op[w]).status == WEFT_OK);
    }
}

static inline void cluster_clock(struct cluster *c, uint32_t worker, uint16_t table)
{
    weft_status status;
    while ((status = weft_ps_clock(c->client[worker], table, c->net->now_ns)) == WEFT_AGAIN) {
        WEFT_ASSERT(cluster_step(c));
    }
    WEFT_ASSERT(status == WEFT_OK);
}

#endif
