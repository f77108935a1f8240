#define _GNU_SOURCE
#include "job/output_queue.h"

#include "base/units.h"
#include "job/args.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A terminal is ready when it has room for one byte, but a write in blocking mode waits until all
 * are written. The mode belongs to the open file description, which other programs share. */
static void open_terminal(struct weft_output_queue *queue)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", queue->fd);
    const int own =
        isatty(queue->fd) ? open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    queue->owns_fd = own >= 0;
    queue->fd = own >= 0 ? own : queue->fd;
}

void weft_output_queue_init(struct weft_output_queue *queue, int fd)
{
    *queue = (struct weft_output_queue){.fd = fd};
}

void weft_output_queue_close(struct weft_output_queue *queue)
{
    if (queue->owns_fd) {
        close(queue->fd);
        queue->owns_fd = false;
        queue->fd = -1;
    }
}

void weft_output_queue_fini(struct weft_output_queue *queue)
{
    weft_output_queue_close(queue);
    free(queue->bytes);
    queue->bytes = NULL;
    queue->count = queue->room = 0;
}

/* Also true if a write would fail. */
static bool is_ready(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    return poll(&poll_fd, 1, 0) > 0;
}

void weft_output_queue_drop(struct weft_output_queue *queue, int why)
{
    if (queue->has_lines && queue->lost == 0) {
        queue->lost = why;
    }
    queue->count = 0;
    queue->has_lines = false;
}

void weft_output_queue_write(struct weft_output_queue *queue)
{
    size_t done = 0;
    if (queue->count == 0) {
        return;
    }
    while (done < queue->count && is_ready(queue->fd)) {
        ssize_t bytes =
            write(queue->fd, queue->bytes + done, weft_min_u64(queue->count - done, PIPE_BUF));
        if (bytes < 0 && errno == EAGAIN) {
            break;
        }
        if (bytes < 0 && errno != EINTR) {
            weft_output_queue_drop(queue, errno);
            return;
        }
        done += bytes > 0 ? (size_t)bytes : 0;
    }
    queue->count -= done;
    memmove(queue->bytes, queue->bytes + done, queue->count);
    queue->has_lines = queue->has_lines && queue->count > 0;
}

void weft_output_queue_add(struct weft_output_queue *queue, const char *bytes, size_t count,
                           bool must_arrive)
{
    if (!queue->was_used) {
        queue->was_used = true;
        open_terminal(queue);
    }
    if (queue->room - queue->count < count) {
        queue->room = 2 * queue->room + count;
        queue->bytes = weft_job_need(realloc(queue->bytes, queue->room));
    }
    memcpy(queue->bytes + queue->count, bytes, count);
    queue->count += count;
    queue->has_lines = queue->has_lines || must_arrive;
    weft_output_queue_write(queue);
}

void weft_output_queue_watch(const struct weft_output_queue *queues, unsigned count,
                             struct pollfd *fds_p)
{
    for (unsigned i = 0; i < count; i++) {
        fds_p[i] =
            (struct pollfd){.fd = queues[i].count > 0 ? queues[i].fd : -1, .events = POLLOUT};
    }
}

void weft_output_queue_serve(struct weft_output_queue *queues, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        weft_output_queue_write(&queues[i]);
    }
}
