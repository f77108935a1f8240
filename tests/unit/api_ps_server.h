/* A shard of a parameter server in a thread of the test, over loopback and without security; what
 * `weft server` is, less the command line. It can go deaf, which is what a killed process looks
 * like to others. */
#ifndef TESTS_UNIT_API_PS_SERVER_H
#define TESTS_UNIT_API_PS_SERVER_H

#include "base/assert.h"
#include "io/clock.h"
#include "io/driver.h"
#include "ps/shard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct ps_server_options {
    uint32_t shard;
    uint32_t shards;
    uint32_t workers;
    uint32_t rows_max;
    uint16_t port; /* 0 = any */
    uint32_t loss_ppm;
    bool tcp;
    uint64_t name;       /* 0 = that of the shard */
    uint32_t clocks_max; /* CLOCKs above are refused; 0 = none is */
};

struct test_server {
    struct ps_server_options options;
    pthread_t thread;
    atomic_bool open;
    atomic_bool stop;
    atomic_bool deaf;
    atomic_uint requests; /* pushes and pulls of which something has arrived */
    uint16_t port;
    struct weft_driver *driver;
    struct weft_shard *shard;
    struct weft_msgr msgr;
};

static inline uint64_t test_server_clock(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

/* A server that knows another clock of a worker than that does refuses it. */
static inline bool test_server_refuses(const struct test_server *server,
                                       const struct weft_msg_event *event)
{
    struct weft_rpc_tag tag;
    return server->options.clocks_max > 0 && event->type == WEFT_EVENT_CHUNK &&
           weft_rpc_tag_unpack(event->tag, &tag) && tag.op == WEFT_RPC_CLOCK &&
           tag.number > server->options.clocks_max;
}

static inline void test_server_handle(void *arg, uint64_t now_ns)
{
    struct test_server *server = arg;
    struct weft_msg_event event;
    while (server->msgr.ops->poll(server->msgr.self, &event)) {
        struct weft_rpc_tag tag;
        if (event.type == WEFT_EVENT_OPEN && weft_rpc_tag_unpack(event.tag, &tag) &&
            (tag.op == WEFT_RPC_PUSH || tag.op == WEFT_RPC_PULL)) {
            atomic_fetch_add(&server->requests, 1);
        }
        if (test_server_refuses(server, &event)) {
            server->msgr.ops->refuse(server->msgr.self, event.peer, event.seq);
        } else {
            weft_shard_event(server->shard, &event, now_ns);
        }
    }
    weft_shard_progress(server->shard, now_ns);
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(server->shard, &table, &bytes)) {
        void *slab = malloc(bytes);
        WEFT_ASSERT(slab != NULL);
        WEFT_ASSERT(weft_shard_add_slab(server->shard, table, slab, bytes) == WEFT_OK);
    }
}

static inline void test_server_open(struct test_server *server)
{
    const struct ps_server_options *o = &server->options;
    struct weft_shard_config shard;
    weft_shard_config_default(&shard);
    shard.shard = o->shard;
    shard.shards = o->shards;
    shard.workers_max = o->workers;
    shard.tables_max = 8;
    shard.rows_max = o->rows_max > 0 ? o->rows_max : 100000;
    shard.clock_ns = test_server_clock;
    struct weft_driver_config driver;
    weft_driver_config_default(&driver);
    driver.kind = o->tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    driver.udp.port = o->port;
    driver.udp.loss.loss_ppm = o->loss_ppm;
    driver.udp.loss.role = WEFT_ROLE_SERVER;
    driver.udp.loss.seed = 7;
    driver.udp.ep.name = o->name > 0 ? o->name : weft_rpc_name(WEFT_ROLE_SERVER, o->shard);
    driver.udp.ep.accept = 1;
    driver.udp.ep.peers_max = 2 * o->workers + 8;
    driver.udp.ep.expects_max = weft_shard_expects_max(&shard);
    struct weft_io_error error;
    weft_status status = weft_driver_open(&driver, &server->driver, &error);
    WEFT_ASSERT(status == WEFT_OK);
    server->msgr = weft_driver_msgr(server->driver);
    WEFT_ASSERT(weft_shard_new(&shard, server->msgr, &server->shard) == WEFT_OK);
    server->port = weft_driver_port(server->driver);
    atomic_store(&server->open, true);
}

static inline void *test_server_run(void *arg)
{
    struct test_server *server = arg;
    test_server_open(server);
    while (!atomic_load(&server->stop)) {
        if (atomic_load(&server->deaf)) {
            struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
            (void)nanosleep(&pause, NULL);
        } else {
            (void)weft_driver_step(server->driver, 5 * WEFT_NS_PER_MS, test_server_handle, server);
            weft_peer peer;
            for (bool for_good; weft_shard_take_replaced(server->shard, &peer, &for_good);) {
                (for_good ? weft_driver_refuse : weft_driver_disconnect)(server->driver, peer);
            }
        }
    }
    weft_driver_close(server->driver);
    for (void *slab; (slab = weft_shard_take_slab(server->shard)) != NULL;) {
        free(slab);
    }
    weft_shard_free(server->shard);
    return NULL;
}

static inline void test_server_start(struct test_server *server, struct ps_server_options options)
{
    *server = (struct test_server){.options = options};
    WEFT_ASSERT(pthread_create(&server->thread, NULL, test_server_run, server) == 0);
    while (!atomic_load(&server->open)) {
        struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
        (void)nanosleep(&pause, NULL);
    }
}

static inline void test_server_stop(struct test_server *server)
{
    atomic_store(&server->stop, true);
    (void)pthread_join(server->thread, NULL);
}

#endif
