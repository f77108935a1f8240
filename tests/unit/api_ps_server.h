/* A shard of a parameter server in a thread of the test, that of `weft server`
 * (node/shard_thread.h), over loopback and without security. It can stop reading packets; to its
 * peers it then looks like a killed process. */
#ifndef TESTS_UNIT_API_PS_SERVER_H
#define TESTS_UNIT_API_PS_SERVER_H

#include "base/assert.h"
#include "node/shard_thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

struct ps_server_options {
    uint32_t shard;
    uint32_t shards;
    uint32_t workers;
    uint32_t rows_max;
    uint16_t port; /* 0 = any */
    uint32_t loss_ppm;
    bool tcp;
    uint64_t name;                               /* 0 = the shard's name */
    uint32_t clocks_max;                         /* CLOCKs above this are refused; 0 = no limit */
    const struct weft_launch_address *scheduler; /* NULL = none; borrowed until stop */
    uint32_t delay_max;                          /* 0 = none */
    uint64_t link_bps;                           /* reported to the scheduler; 0 = none is */
};

struct test_server {
    struct ps_server_options options;
    struct weft_shard_thread thread;
    atomic_bool deaf;
    atomic_uint requests; /* pushes and pulls of which a chunk has arrived */
    uint16_t port;
};

/* Refuse the CLOCK, as a server does that has another clock of this worker. */
static inline bool test_server_on_event(void *arg, struct weft_msgr msgr,
                                        const struct weft_msg_event *event)
{
    struct test_server *server = arg;
    struct weft_rpc_tag tag;
    if ((event->type != WEFT_EVENT_OPEN && event->type != WEFT_EVENT_CHUNK) ||
        !weft_rpc_tag_unpack(event->tag, &tag)) {
        return false;
    }
    bool is_request = tag.op == WEFT_RPC_PUSH || tag.op == WEFT_RPC_PULL;
    if (event->type == WEFT_EVENT_OPEN && is_request) {
        atomic_fetch_add(&server->requests, 1);
    }
    bool refused = event->type == WEFT_EVENT_CHUNK && tag.op == WEFT_RPC_CLOCK &&
                   server->options.clocks_max > 0 && tag.number > server->options.clocks_max;
    if (refused) {
        msgr.ops->refuse(msgr.self, event->peer, event->seq);
    }
    return refused;
}

static inline void test_server_turn(void *arg, struct weft_shard *shard)
{
    struct test_server *server = arg;
    const struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
    (void)shard;
    while (atomic_load(&server->deaf) && !atomic_load(&server->thread.stop)) {
        (void)nanosleep(&pause, NULL);
    }
}

static inline void test_server_be_deaf(void *arg, void *object)
{
    struct test_server *server = arg;
    (void)object;
    atomic_store(&server->deaf, true);
}

/* From here on no packet is read. */
static inline void test_server_go_deaf(struct test_server *server)
{
    WEFT_ASSERT(weft_stats_query_ask(&server->thread.query, test_server_be_deaf, server,
                                     60 * WEFT_NS_PER_S));
}

static inline void test_server_start(struct test_server *server, struct ps_server_options options)
{
    struct weft_shard_thread_config config;
    struct weft_error error = {.text = ""};
    *server = (struct test_server){.options = options};
    weft_shard_thread_config_default(&config);
    config.shard.shard = options.shard;
    config.shard.shards = options.shards;
    config.shard.workers_max = options.workers;
    config.shard.tables_max = 8;
    config.shard.rows_max = options.rows_max > 0 ? options.rows_max : 100000;
    config.shard.delay_max = options.delay_max;
    config.scheduler = options.scheduler;
    config.scheduler_workers = options.workers;
    config.scheduler_host = 1;
    config.scheduler_link_bps = options.link_bps;
    config.driver.kind = options.tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    config.driver.udp.port = options.port;
    config.driver.udp.loopback_packet_bytes = 0; /* many packets, as on a network */
    config.driver.udp.loss = (struct weft_inject_loss_config){
        .loss_ppm = options.loss_ppm, .role = WEFT_ROLE_SERVER, .seed = 7};
    config.driver.udp.ep.name = options.name;
    config.hooks = (struct weft_shard_hooks){
        .on_event = test_server_on_event, .turn = test_server_turn, .arg = server};
    if (weft_shard_thread_start(&server->thread, &config, &error) != WEFT_OK) {
        (void)fprintf(stderr, "the server: %s\n", error.text);
        WEFT_ASSERT(false);
    }
    server->port = server->thread.port;
}

static inline void test_server_stop(struct test_server *server)
{
    weft_shard_thread_join(&server->thread);
}

#endif
