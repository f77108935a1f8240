#include "job/output_queue.h"

#include "base/units.h"
#include "job/args.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void weft_output_queue_init(struct weft_output_queue *queue, int fd)
{
    *queue = (struct weft_output_queue){.fd = fd};
}

void weft_output_queue_fini(struct weft_output_queue *queue)
{
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
