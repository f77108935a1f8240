/* What the benchmarks of the parameter server share: one shard in a thread of the process, as `weft
 * server` runs it, one worker connected through <weft/ps.h>, packets authenticated; and the plain
 * UDP sockets that they are compared with. */
#ifndef WEFT_BENCH_PS_BENCH_H
#define WEFT_BENCH_PS_BENCH_H

#include "base/assert.h"
#include "crypto/provider.h"
#include "io/clock.h"
#include "io/driver.h"
#include "ps/journal.h"
#include "ps/shard.h"
#include "weft/ps.h"
#include "wire/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { BENCH_ROUNDS_MAX = 101 };

static const uint8_t bench_key[WEFT_PSK_BYTES] = {1, 2, 3};

/* ---- where threads run ----------------------------------------------------------------------- */

/* cpus: 0 = wherever the kernel puts the threads, 1 = both on CPU 0, 2 = worker (side 0) on CPU 0 and
 * server on 1. A refusal is ignored. */
static inline void bench_pin(int cpus, unsigned side)
{
    if (cpus > 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpus == 2 ? side : 0, &set);
        (void)sched_setaffinity(0, sizeof(set), &set);
    }
}

/* ---- a server -------------------------------------------------------------------------------- */

struct bench_server {
    int cpus;
    uint32_t rows_max;
    uint16_t packet_bytes; /* 0 = the default */
    struct weft_record_ring *records; /* NULL = none */
    bool checkpoints;
    void *journal; /* (journal_bytes,), all zero; NULL = none. Needs checkpoints */
    uint64_t journal_bytes;
    void (*turn)(void *arg, struct weft_shard *shard); /* after each batch; NULL = nothing */
    void *turn_arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    uint16_t port; /* 0 = not open yet */
    atomic_bool stop;
    struct weft_provider *provider;
    struct weft_driver *driver;
    struct weft_shard *shard;
    struct weft_msgr msgr;
};

static inline uint64_t bench_clock(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

static inline void bench_serve(void *arg, uint64_t now_ns)
{
    struct bench_server *server = arg;
    struct weft_msg_event event;
    while (server->msgr.ops->poll(server->msgr.self, &event)) {
        weft_shard_event(server->shard, &event, now_ns);
    }
    weft_shard_progress(server->shard, now_ns);
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(server->shard, &table, &bytes)) {
        void *slab = malloc(bytes);
        WEFT_ASSERT(slab != NULL);
        WEFT_ASSERT(weft_shard_add_slab(server->shard, table, slab, bytes) == WEFT_OK);
    }
    if (server->turn != NULL) {
        server->turn(server->turn_arg, server->shard);
    }
}

static inline struct weft_provider *bench_server_open(struct bench_server *server)
{
    struct weft_shard_config shard;
    struct weft_driver_config driver;
    struct weft_provider *provider = NULL;
    struct weft_io_error error = {.text = ""};
    weft_shard_config_default(&shard);
    shard.workers_max = 1;
    shard.tables_max = 2;
    shard.rows_max = server->rows_max;
    shard.clock_ns = bench_clock;
    shard.records = server->records;
    weft_driver_config_default(&driver);
    shard.checkpoints = server->checkpoints;
    shard.chunks_max = server->checkpoints ? driver.udp.ep.chunks_max : 0;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_SERVER, 0);
    driver.udp.ep.accept = 1;
    driver.udp.ep.peers_max = 8;
    driver.udp.ep.expects_max = weft_shard_expects_max(&shard);
    driver.udp.ep.mode = WEFT_MODE_AUTH;
    driver.udp.lockstep = WEFT_UDP_LOCKSTEP;
    driver.udp.loopback_packet_bytes =
        server->packet_bytes > 0 ? server->packet_bytes : WEFT_UDP_LOOPBACK_BYTES;
    memcpy(driver.udp.ep.psk, bench_key, sizeof(bench_key));
    WEFT_ASSERT(weft_provider_new(weft_ep_crypto_slots(8), &provider) == WEFT_OK);
    driver.udp.ep.crypto = weft_provider_crypto(provider);
    if (weft_driver_open(&driver, &server->driver, &error) != WEFT_OK) {
        (void)fprintf(stderr, "the server: %s\n", error.text);
        exit(1);
    }
    server->msgr = weft_driver_msgr(server->driver);
    WEFT_ASSERT(weft_shard_new(&shard, server->msgr, &server->shard) == WEFT_OK);
    if (server->journal != NULL) {
        const struct weft_shard_journal_config journal = {.memory = server->journal,
                                                          .bytes = server->journal_bytes,
                                                          .bytes_max = server->journal_bytes};
        WEFT_ASSERT(weft_shard_journal_init(server->shard, &journal) == WEFT_OK);
    }
    return provider;
}

static inline void *bench_server_run(void *arg)
{
    struct bench_server *server = arg;
    bench_pin(server->cpus, 1);
    server->provider = bench_server_open(server);
    pthread_mutex_lock(&server->lock);
    server->port = weft_driver_port(server->driver);
    pthread_cond_signal(&server->opened);
    pthread_mutex_unlock(&server->lock);
    while (!atomic_load(&server->stop)) {
        (void)weft_driver_step(server->driver, weft_shard_has_work(server->shard) ? 0 : WEFT_NEVER,
                               bench_serve, server);
    }
    return NULL;
}

static inline void bench_server_start(struct bench_server *server)
{
    WEFT_ASSERT(pthread_mutex_init(&server->lock, NULL) == 0);
    WEFT_ASSERT(pthread_cond_init(&server->opened, NULL) == 0);
    WEFT_ASSERT(pthread_create(&server->thread, NULL, bench_server_run, server) == 0);
    pthread_mutex_lock(&server->lock);
    while (server->port == 0) {
        pthread_cond_wait(&server->opened, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
}

static inline void bench_server_stop(struct bench_server *server)
{
    atomic_store(&server->stop, true);
    weft_driver_wake(server->driver);
    (void)pthread_join(server->thread, NULL);
    weft_driver_close(server->driver);
    for (void *slab; (slab = weft_shard_take_slab(server->shard)) != NULL;) {
        free(slab);
    }
    weft_shard_free(server->shard);
    weft_provider_free(server->provider);
}

/* ---- a worker -------------------------------------------------------------------------------- */

static inline void bench_must(const struct weft_ps *ps, weft_status status)
{
    if (status != WEFT_OK) {
        (void)fprintf(stderr, "%s: %s\n", weft_status_name(status), weft_ps_error(ps));
        exit(1);
    }
}

static inline struct weft_ps *bench_connect(const struct bench_server *server, uint32_t rows_max)
{
    char servers[32];
    struct weft_ps_config config;
    struct weft_ps *ps = NULL;
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", server->port);
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers;
    config.key = bench_key;
    config.rows_max = rows_max;
    config.workers = 1;
    config.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* a machine may stand still */
    bench_must(NULL, weft_ps_connect(&config, &ps));
    return ps;
}

/* SGD on arrival: what is pushed is there at once. */
static inline struct weft_ps_table *bench_table(struct weft_ps *ps, uint32_t number, uint32_t dim)
{
    struct weft_table_options options;
    struct weft_ps_table *table = NULL;
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = "asp";
    options.number = number;
    options.dim = dim;
    options.learning_rate = 1;
    bench_must(ps, weft_table_open(ps, &options, &table));
    return table;
}

/* ---- plain UDP ------------------------------------------------------------------------------- */

/* Two connected sockets on loopback that give up after 30 s without a datagram. */
static inline bool bench_pair(int fds[2])
{
    struct sockaddr_in addr[2];
    const struct timeval limit = {.tv_sec = 30};
    const int buffer_bytes = 4 << 20;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        socklen_t bytes = sizeof(addr[i]);
        addr[i] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
        good = good && setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
               bind(fds[i], (struct sockaddr *)&addr[i], bytes) == 0 &&
               getsockname(fds[i], (struct sockaddr *)&addr[i], &bytes) == 0;
    }
    return good && connect(fds[0], (struct sockaddr *)&addr[1], sizeof(addr[1])) == 0 &&
           connect(fds[1], (struct sockaddr *)&addr[0], sizeof(addr[0])) == 0;
}

/* A process that was stopped and goes on finds its recv interrupted, because it has a time limit. */
static inline ssize_t bench_recv(int fd, void *bytes, size_t count)
{
    ssize_t got = recv(fd, bytes, count, 0);
    while (got < 0 && errno == EINTR) {
        got = recv(fd, bytes, count, 0);
    }
    return got;
}

/* ---- figures --------------------------------------------------------------------------------- */

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_spread {
    double median;
    double least;
    double most;
};

/* Sorts values. */
static inline struct bench_spread bench_spread(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), bench_compare);
    return (struct bench_spread){values[count / 2], values[0], values[count - 1]};
}

#endif
