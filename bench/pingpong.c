/* Round trips of a small message over loopback: weft with defaults, weft with busy polling, and a
 * plain UDP program that blocks in recv.
 *
 *   pingpong [--trips N] [--rounds N] [--bytes N] [--busy-poll-us N] [--cpus two|one]
 *
 * Each variant has two threads. A trip is one request and one reply, COPY sinks, mode none. Rounds
 * measure the variants alternately. Output for each: the median over the rounds of a round's p50
 * and p99, and the process CPU time per trip, for both ends, including the kernel's. Formulas:
 * METRICS.md.
 *
 * --cpus keeps the two threads on CPUs 0 and 1, or both on CPU 0: the kernel's choice between the
 * two depends on other load, and a blocking reply from another CPU of a virtual machine costs
 * several times one from the same.
 */
#define _GNU_SOURCE // CPU_SET
#include "io/clock.h"
#include "io/driver.h"
#include "wire/packet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TRIPS_MAX = 1000000, ROUNDS_MAX = 101, BYTES_MAX = 1024, WARMUP = 200 };

static const uint64_t STEP_NS = 20 * WEFT_NS_PER_MS;
static const uint64_t GIVE_UP_NS = 10 * WEFT_NS_PER_S;

struct job {
    uint32_t trips;
    uint32_t bytes;
    uint16_t busy_poll_us;
    int cpus;          /* 0 = chosen by the kernel, 1 = both on CPU 0, 2 = on CPUs 0 and 1 */
    uint64_t *trip_ns; /* (trips,) */
    uint64_t cpu_ns;   /* total of all trips */
};

struct summary {
    double p50_us;
    double p99_us;
    double cpu_us;
};

/* side: 0 sends requests, 1 replies. An error is ignored. */
static void pin(const struct job *job, unsigned side)
{
    if (job->cpus > 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(job->cpus == 2 ? side : 0, &set);
        (void)sched_setaffinity(0, sizeof(set), &set);
    }
}

/* A trip has ended: record its time, except for the warm-up trips. */
static void record_trip(struct job *job, uint32_t trip, uint64_t began_ns)
{
    if (trip >= WARMUP) {
        job->trip_ns[trip - WARMUP] = weft_clock_now_ns() - began_ns;
    }
    if (trip == WARMUP - 1) {
        job->cpu_ns = weft_clock_cpu_ns();
    }
    if (trip == WARMUP + job->trips - 1) {
        job->cpu_ns = weft_clock_cpu_ns() - job->cpu_ns;
    }
}

/* ---- weft ------------------------------------------------------------------------------------ */

struct end {
    struct job *job;
    struct weft_driver *driver;
    struct weft_msgr msgr;
    weft_peer peer; /* server: of the last request */
    bool is_client;
    bool broken;
    uint32_t received;
    uint64_t began_ns;
    atomic_bool *over;
    uint16_t port; /* client: the server's */
    uint8_t out[BYTES_MAX];
    uint8_t in[BYTES_MAX];
};

static void expect_one(struct end *end)
{
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .tag = 1,
                                     .tag_mask = UINT64_MAX,
                                     .memory = end->in,
                                     .memory_bytes = end->job->bytes,
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    weft_expect_id id;
    end->broken |= end->msgr.ops->expect(end->msgr.self, &expect, &id) != WEFT_OK;
}

static void send_one(struct end *end)
{
    struct weft_msg_send send = {.peer = end->peer,
                                 .base = end->out,
                                 .total = end->job->bytes,
                                 .elem_bytes = 1,
                                 .tag = 1,
                                 .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    end->began_ns = weft_clock_now_ns();
    end->broken |= end->msgr.ops->send(end->msgr.self, &send, end->began_ns, &seq) != WEFT_OK;
}

static void on_events(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct end *end = arg;
    struct weft_msg_event event;
    while (end->msgr.ops->poll(end->msgr.self, &event)) {
        end->broken |= event.type == WEFT_EVENT_PEER_DOWN;
        if (event.type == WEFT_EVENT_RECEIVED) {
            end->peer = event.peer;
            if (end->is_client) {
                record_trip(end->job, end->received, end->began_ns);
            }
            end->received++;
            expect_one(end);
            if (!end->is_client || end->received < WARMUP + end->job->trips) {
                send_one(end);
            }
        }
    }
}

static void *serve(void *arg)
{
    struct end *end = arg;
    pin(end->job, 1);
    weft_clock_timers_exact();
    while (!atomic_load(end->over) && !end->broken) {
        (void)weft_driver_step(end->driver, STEP_NS, on_events, end);
    }
    return NULL;
}

static bool open_end(struct end *end)
{
    struct weft_udp_config config;
    struct weft_error error;
    weft_udp_config_default(&config);
    config.busy_poll_us = end->job->busy_poll_us;
    config.ep.mode = WEFT_MODE_NONE;
    config.ep.accept = !end->is_client;
    if (weft_udp_open(&config, &end->driver, &error) != WEFT_OK) {
        (void)fprintf(stderr, "pingpong: %s\n", error.text);
        return false;
    }
    end->msgr = weft_driver_msgr(end->driver);
    expect_one(end);
    return true;
}

static bool run_client(struct end *client)
{
    uint64_t end_ns = weft_clock_now_ns() + GIVE_UP_NS;
    struct weft_error error;
    if (weft_driver_connect(client->driver, "127.0.0.1", client->port, &client->peer, &error) !=
        WEFT_OK) {
        return false;
    }
    send_one(client);
    while (client->received < WARMUP + client->job->trips && !client->broken &&
           weft_clock_now_ns() < end_ns) {
        (void)weft_driver_step(client->driver, STEP_NS, on_events, client);
    }
    return client->received == WARMUP + client->job->trips && !client->broken;
}

static bool run_weft(struct job *job)
{
    static struct end client;
    static struct end server;
    atomic_bool over = false;
    pthread_t thread;
    client = (struct end){.job = job, .is_client = true, .over = &over};
    server = (struct end){.job = job, .over = &over};
    bool good = open_end(&client) && open_end(&server);
    client.port = good ? weft_driver_port(server.driver) : 0;
    if (good && pthread_create(&thread, NULL, serve, &server) == 0) {
        good = run_client(&client);
        atomic_store(&over, true);
        weft_driver_wake(server.driver);
        (void)pthread_join(thread, NULL);
    }
    weft_driver_close(client.driver);
    weft_driver_close(server.driver);
    return good && !server.broken;
}

/* ---- raw ------------------------------------------------------------------------------------- */

struct echo {
    const struct job *job;
    int fd;
};

static void *echo(void *arg)
{
    const struct echo *self = arg;
    int fd = self->fd;
    pin(self->job, 1);
    uint8_t bytes[BYTES_MAX];
    for (ssize_t got = recv(fd, bytes, sizeof(bytes), 0); got > 1;
         got = recv(fd, bytes, sizeof(bytes), 0)) {
        (void)send(fd, bytes, (size_t)got, 0);
    }
    return NULL;
}

static bool open_pair(int fds[2])
{
    struct sockaddr_in addr[2];
    bool good = true;
    for (int i = 0; i < 2; i++) {
        socklen_t bytes = sizeof(addr[i]);
        addr[i] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        good = good && bind(fds[i], (struct sockaddr *)&addr[i], bytes) == 0 &&
               getsockname(fds[i], (struct sockaddr *)&addr[i], &bytes) == 0;
    }
    return good && connect(fds[0], (struct sockaddr *)&addr[1], sizeof(addr[1])) == 0 &&
           connect(fds[1], (struct sockaddr *)&addr[0], sizeof(addr[0])) == 0;
}

/* Datagrams of the same size as weft's: header, DATA header, tag. */
static bool run_raw(struct job *job)
{
    enum { OVERHEAD = 64 };
    uint8_t bytes[BYTES_MAX + OVERHEAD] = {0};
    int fds[2] = {-1, -1};
    pthread_t thread;
    bool good = open_pair(fds);
    struct echo other = {.job = job, .fd = fds[1]};
    good = good && pthread_create(&thread, NULL, echo, &other) == 0;
    if (good) {
        for (uint32_t i = 0; good && i < WARMUP + job->trips; i++) {
            uint64_t began_ns = weft_clock_now_ns();
            good = send(fds[0], bytes, job->bytes + OVERHEAD, 0) > 0 &&
                   recv(fds[0], bytes, sizeof(bytes), 0) > 0;
            record_trip(job, i, began_ns);
        }
        (void)send(fds[0], bytes, 1, 0); /* the end, for echo */
        (void)pthread_join(thread, NULL);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    return good;
}

/* ---- figures --------------------------------------------------------------------------------- */

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct summary summarize(struct job *job)
{
    qsort(job->trip_ns, job->trips, sizeof(*job->trip_ns), compare_u64);
    return (struct summary){
        .p50_us = (double)job->trip_ns[job->trips / 2] / 1e3,
        .p99_us = (double)job->trip_ns[(uint64_t)job->trips * 99 / 100] / 1e3,
        .cpu_us = (double)job->cpu_ns / job->trips / 1e3,
    };
}

static void print_flow(const char *name, const struct summary *rounds, uint32_t count)
{
    double p50[ROUNDS_MAX];
    double p99[ROUNDS_MAX];
    double cpu[ROUNDS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        p50[i] = rounds[i].p50_us;
        p99[i] = rounds[i].p99_us;
        cpu[i] = rounds[i].cpu_us;
    }
    qsort(p50, count, sizeof(double), compare_double);
    qsort(p99, count, sizeof(double), compare_double);
    qsort(cpu, count, sizeof(double), compare_double);
    printf("%-18s p50 %6.2f us (%.2f-%.2f)  p99 %7.2f us (%.2f-%.2f)  CPU %6.2f us a trip "
           "(%.2f-%.2f)\n",
           name, p50[count / 2], p50[0], p50[count - 1], p99[count / 2], p99[0], p99[count - 1],
           cpu[count / 2], cpu[0], cpu[count - 1]);
}

static bool parse(int argc, char **argv, struct job *job, uint32_t *rounds_p, uint32_t *busy_p)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--trips") == 0 && value >= 1 && value <= TRIPS_MAX) {
            job->trips = value;
        } else if (strcmp(argv[i], "--rounds") == 0 && value >= 1 && value <= ROUNDS_MAX) {
            *rounds_p = value;
        } else if (strcmp(argv[i], "--bytes") == 0 && value >= 2 && value <= BYTES_MAX) {
            job->bytes = value;
        } else if (strcmp(argv[i], "--busy-poll-us") == 0 && value >= 1 && value <= 10000) {
            *busy_p = value;
        } else if (strcmp(argv[i], "--cpus") == 0 && strcmp(argv[i + 1], "one") == 0) {
            job->cpus = 1;
        } else if (strcmp(argv[i], "--cpus") == 0 && strcmp(argv[i + 1], "two") == 0) {
            job->cpus = 2;
        } else {
            return false;
        }
    }
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    struct job job = {.trips = 20000, .bytes = 72};
    uint32_t rounds = 7;
    uint32_t busy_us = 50;
    static struct summary figures[3][ROUNDS_MAX];
    if (!parse(argc, argv, &job, &rounds, &busy_us)) {
        (void)fprintf(stderr, "usage: pingpong [--trips N] [--rounds N] [--bytes 2..1024] "
                              "[--busy-poll-us 1..10000] [--cpus one|two]\n");
        return 2;
    }
    job.trip_ns = calloc(job.trips, sizeof(*job.trip_ns));
    bool good = job.trip_ns != NULL;
    pin(&job, 0);
    for (uint32_t round = 0; good && round < rounds; round++) {
        for (int flow = 0; good && flow < 3; flow++) {
            job.busy_poll_us = flow == 1 ? (uint16_t)busy_us : 0;
            good = flow == 2 ? run_raw(&job) : run_weft(&job);
            figures[flow][round] = summarize(&job);
        }
    }
    free(job.trip_ns);
    if (!good) {
        (void)fprintf(stderr, "pingpong: a message was lost\n");
        return 1;
    }
    printf("%u bytes each way, %u trips a round, n = %u\n", job.bytes, job.trips, rounds);
    print_flow("weft", figures[0], rounds);
    print_flow("weft, busy polling", figures[1], rounds);
    print_flow("udp, blocking", figures[2], rounds);
    return 0;
}
