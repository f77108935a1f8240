/* Output on its way to a descriptor that may not be ready for it. A supervisor must not wait for
 * the reader of its output, which may be a stopped terminal or a pipe that nobody reads: what
 * cannot be written at once is kept in memory, in order, and written later.
 *
 * Of a descriptor in blocking mode: a write is made only when poll(2) reports that there is room,
 * and of at most PIPE_BUF bytes, for which a pipe then has room. A terminal may have less, and is
 * opened again in non-blocking mode.
 *
 * It is not a limit: the caller must not read more from a process while its output is delayed.
 *
 * Thread: its owner's. SIGPIPE must be ignored. */
#ifndef WEFT_JOB_OUTPUT_QUEUE_H
#define WEFT_JOB_OUTPUT_QUEUE_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

struct weft_output_queue {
    int fd;
    bool was_used;
    bool owns_fd; /* a terminal, opened again at the first use */
    char *bytes; /* (room,), of which count are not written yet; NULL = none so far */
    size_t count;
    size_t room;
    bool has_lines; /* some of them must not be lost */
    int lost;       /* errno of the first write that lost such bytes; 0 = none */
};

void weft_output_queue_init(struct weft_output_queue *queue, int fd);
void weft_output_queue_fini(struct weft_output_queue *queue);

/* Close the descriptor that it has opened, if any; no write may follow. For a forked process. */
void weft_output_queue_close(struct weft_output_queue *queue);

/* Append bytes, and write what can be written now. must_arrive: their loss is noted in `lost`. The
 * program ends if memory is exhausted. */
void weft_output_queue_add(struct weft_output_queue *queue, const char *bytes, size_t count,
                           bool must_arrive);

/* Write what can be written without waiting. After a failed write all kept bytes are dropped. */
void weft_output_queue_write(struct weft_output_queue *queue);

/* Before a poll: fill in (count,) descriptors, one for each queue, to wait until those that have
 * kept bytes can write. */
void weft_output_queue_watch(const struct weft_output_queue *queues, unsigned count,
                             struct pollfd *fds_p);
/* After it: write what can be written. */
void weft_output_queue_serve(struct weft_output_queue *queues, unsigned count);

/* Drop what was not written; why: the errno to note. */
void weft_output_queue_drop(struct weft_output_queue *queue, int why);

#endif
