/* Kernel TCP with its defaults: one connection, large writes, no options, packets as large as
 * loopback allows. The receiver reads 256 KB at a time and adds the floats. */
#include "cli/perf/stream.h"

#include "core/sink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10 };

struct sender {
    const struct weft_stream_job *job;
    int fd;
};

static void *send_all(void *arg)
{
    const struct sender *sender = arg;
    size_t message_bytes = sender->job->message_floats * sizeof(float);
    weft_stream_pin(sender->job->cpus[0]);
    for (uint32_t m = 0; m < sender->job->warmup_messages + sender->job->messages; m++) {
        const char *at = (const char *)sender->job->vector;
        size_t left = message_bytes;
        while (left > 0) {
            ssize_t sent = send(sender->fd, at, left, MSG_NOSIGNAL);
            if (sent <= 0) {
                (void)shutdown(sender->fd, SHUT_WR);
                return NULL; /* the receiver detects the end of the stream and reports it */
            }
            at += sent;
            left -= (size_t)sent;
        }
    }
    return NULL;
}

static bool open_pair(const struct weft_perf_layout *layout, int fds[2], struct weft_error *error)
{
    struct sockaddr_in addr;
    int listener = weft_perf_layout_socket(layout, WEFT_STREAM_RECEIVER, SOCK_STREAM, error);
    fds[0] = listener >= 0 ? weft_perf_layout_socket(layout, WEFT_STREAM_SENDER, SOCK_STREAM, error)
                           : -1;
    if (fds[0] < 0) {
        (void)close(listener);
        return false;
    }
    bool open = weft_perf_layout_bind(layout, WEFT_STREAM_RECEIVER, listener, &addr) &&
                listen(listener, 1) == 0 &&
                connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
                (fds[1] = accept(listener, NULL, NULL)) >= 0;
    if (!open) {
        (void)weft_perf_fail(error, "TCP at %s: %s", inet_ntoa(addr.sin_addr), strerror(errno));
        (void)close(fds[0]);
    }
    (void)close(listener);
    return open;
}

/* Read one message; a read may end within a float, so it is continued to a float boundary. */
static bool take_message(const struct weft_stream_job *job, int fd, char *buffer)
{
    size_t left = job->message_floats * sizeof(float);
    size_t done = 0; /* floats */
    while (left > 0) {
        size_t want = left < READ_BYTES ? left : READ_BYTES;
        ssize_t got = recv(fd, buffer, want, 0);
        while (got > 0 && (size_t)got % sizeof(float) != 0) {
            ssize_t more = recv(fd, buffer + got, sizeof(float) - (size_t)got % sizeof(float), 0);
            got = more > 0 ? got + more : -1;
        }
        if (got <= 0) {
            return false;
        }
        weft_sink_add((uint8_t *)(job->accumulator + done), (const uint8_t *)buffer, (size_t)got);
        done += (size_t)got / sizeof(float);
        left -= (size_t)got;
    }
    return true;
}

static bool receive_all(const struct weft_stream_job *job, int fd,
                        struct weft_stream_result *result_p)
{
    char *buffer = malloc(READ_BYTES);
    bool good = buffer != NULL;
    for (uint32_t m = 0; good && m < job->warmup_messages + job->messages; m++) {
        if (m == job->warmup_messages) {
            result_p->start = weft_stream_mark();
        }
        good = take_message(job, fd, buffer);
    }
    result_p->end = weft_stream_mark();
    free(buffer);
    return good;
}

static uint64_t retransmitted(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_total_retrans : 0;
}

bool weft_stream_tcp_raw(const struct weft_stream_job *job, struct weft_stream_result *result_p,
                         struct weft_error *error)
{
    int fds[2];
    if (!open_pair(job->layout, fds, error)) {
        return false;
    }
    struct sender sender = {.job = job, .fd = fds[0]};
    pthread_t thread;
    bool good = pthread_create(&thread, NULL, send_all, &sender) == 0;
    if (good) {
        good = receive_all(job, fds[1], result_p);
        result_p->retransmitted = retransmitted(fds[0]);
        (void)shutdown(fds[1], SHUT_RDWR); /* after a failure the sender must not block forever */
        (void)pthread_join(thread, NULL);
    }
    if (!good) {
        (void)weft_perf_fail(error, "the TCP stream ended early");
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    return good;
}
