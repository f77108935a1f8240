/* Shared by the benchmarks of the parameter server: one shard in a thread, as in `weft server`
 * (node/shard_thread.h), one worker connected through <weft/ps.h>, authenticated packets; and plain
 * UDP sockets for comparison. */
#ifndef WEFT_BENCH_PS_BENCH_H
#define WEFT_BENCH_PS_BENCH_H

#include "base/assert.h"
#include "io/clock.h"
#include "node/shard_thread.h"
#include "weft/ps.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { BENCH_ROUNDS_MAX = 101 };

/* ---- placement of threads -------------------------------------------------------------------- */

/* cpus: 0 = chosen by the kernel, 1 = both on CPU 0, 2 = worker (side 0) on CPU 0 and server on CPU
 * 1. An error is ignored. */
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
    struct weft_shard_thread thread;
    struct weft_security security;
    uint8_t key[WEFT_PSK_BYTES];
};

/* For one worker and two tables. */
static inline void bench_server_config(struct weft_shard_thread_config *config_p, uint32_t rows_max)
{
    weft_shard_thread_config_default(config_p);
    config_p->shard.workers_max = 1;
    config_p->shard.tables_max = 2;
    config_p->shard.rows_max = rows_max;
}

static inline void bench_fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Its thread inherits the CPU affinity of this one. */
static inline void bench_server_start(struct bench_server *server, int cpus,
                                      struct weft_shard_thread_config *config)
{
    struct weft_error key_error = {.text = ""};
    struct weft_error error = {.text = ""};
    server->security = (struct weft_security)WEFT_SECURITY_DEFAULTS;
    config->security = &server->security;
    if (weft_security_load(&server->security, true, &key_error) != WEFT_OK ||
        weft_job_key_copy(server->security.key, server->key) != WEFT_OK) {
        bench_fail("the key", key_error.text);
    }
    bench_pin(cpus, 1);
    if (weft_shard_thread_start(&server->thread, config, &error) != WEFT_OK) {
        bench_fail("the server", error.text);
    }
    bench_pin(cpus, 0);
}

static inline void bench_server_stop(struct bench_server *server)
{
    weft_shard_thread_join(&server->thread);
    weft_security_fini(&server->security);
}

/* ---- a worker -------------------------------------------------------------------------------- */

static inline void bench_must(const struct weft_ps *ps, weft_status status)
{
    if (status != WEFT_OK) {
        bench_fail(weft_status_name(status), weft_ps_error(ps));
    }
}

static inline struct weft_ps *bench_connect(const struct bench_server *server, uint32_t rows_max)
{
    char servers[32];
    struct weft_ps_config config;
    struct weft_ps *ps = NULL;
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", server->thread.port);
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers;
    config.key = server->key;
    config.rows_max = rows_max;
    config.workers = 1;
    config.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* a virtual machine may be suspended */
    bench_must(NULL, weft_ps_connect(&config, &ps));
    return ps;
}

/* SGD on arrival: a push takes effect at once. */
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

/* Two connected sockets on loopback, which time out after 30 s without a datagram. */
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

/* recv with a timeout is interrupted when a stopped process continues. */
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
