/* Kernel TCP as it comes: one connection, large writes, no options but the defaults. The receiver
 * reads 256 KB at a time and adds the floats, or (tcp_read) only reads: what TCP itself costs. */
#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10 };

struct sender {
    const struct stream_job *job;
    int fd;
};

static void *send_all(void *arg)
{
    const struct sender *sender = arg;
    size_t message_bytes = sender->job->message_floats * sizeof(float);
    for (uint32_t round = 0; round < sender->job->warmup_rounds + sender->job->rounds; round++) {
        const char *at = (const char *)sender->job->vector;
        size_t left = message_bytes;
        while (left > 0) {
            ssize_t sent = send(sender->fd, at, left, MSG_NOSIGNAL);
            if (sent <= 0) {
                (void)shutdown(sender->fd, SHUT_WR);
                return NULL; /* the receiver sees the end of the stream and says so */
            }
            at += sent;
            left -= (size_t)sent;
        }
    }
    return NULL;
}

static bool open_pair(int fds[2], char *error)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = -1;
    bool open = bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
                listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&addr, &bytes) == 0 &&
                connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
                (fds[1] = accept(listener, NULL, NULL)) >= 0;
    if (!open) {
        (void)snprintf(error, STREAM_ERROR_BYTES, "TCP on loopback: %s", strerror(errno));
        (void)close(fds[0]);
    }
    (void)close(listener);
    return open;
}

/* Read one message; a float may be cut by the end of a read, so reads are filled up. */
static bool take_message(const struct stream_job *job, int fd, char *buffer, bool add)
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
        if (add) {
            stream_add(job->accumulator + done, buffer, (size_t)got / sizeof(float));
        }
        done += (size_t)got / sizeof(float);
        left -= (size_t)got;
    }
    return true;
}

static bool receive_all(const struct stream_job *job, int fd, bool add,
                        struct stream_result *result_p)
{
    char *buffer = malloc(READ_BYTES);
    bool good = buffer != NULL;
    for (uint32_t round = 0; good && round < job->warmup_rounds + job->rounds; round++) {
        if (round == job->warmup_rounds) {
            result_p->start = stream_mark();
        }
        good = take_message(job, fd, buffer, add);
    }
    result_p->end = stream_mark();
    free(buffer);
    return good;
}

static bool run(const struct stream_job *job, bool add, struct stream_result *result_p, char *error)
{
    int fds[2];
    if (!open_pair(fds, error)) {
        return false;
    }
    struct sender sender = {.job = job, .fd = fds[0]};
    pthread_t thread;
    bool good = pthread_create(&thread, NULL, send_all, &sender) == 0;
    if (good) {
        good = receive_all(job, fds[1], add, result_p);
        (void)shutdown(fds[1], SHUT_RDWR); /* after a failure the sender must not block for ever */
        (void)pthread_join(thread, NULL);
    }
    if (!good) {
        (void)snprintf(error, STREAM_ERROR_BYTES, "the TCP stream broke off");
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    result_p->adds = add;
    return good;
}

bool stream_run_tcp_add(const struct stream_job *job, struct stream_result *result_p, char *error)
{
    return run(job, true, result_p, error);
}

bool stream_run_tcp_read(const struct stream_job *job, struct stream_result *result_p, char *error)
{
    return run(job, false, result_p, error);
}
